"""Run model-written Python against unit tests: fast, and so that no program gives itself a pass.

    with Sandbox() as sandbox:
        verdicts = sandbox.check([Job(program, "assert add(2, 3) == 5", "add"), ...])

1. The test runs in a trusted process, the program in another. Only plain values of exact types
   cross: the test's `==` never meets an object of the program's, which never sees the test.
2. The program's process has no network, writes no files, starts no programs, and all it left is
   killed. How much of that this machine can enforce is `sandbox.isolation`: "full", "limits-only".
3. Nothing the program does to its own process says "passed": only a test that ran to its end does.

A test that looks at an argument after the call sees it unchanged, and an entry point that is a
class cannot be tested. Servers are started fresh, not forked from a trainer that holds gigabytes.
"""

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Literal

from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox import wire

SERVER = Path(__file__).with_name("judge.py")
OUTCOMES = ("passed", "failed", "error", "timeout", "out of memory", "rejected", "sandbox error")
MAX_PROGRAM = 200_000  # characters
MAX_TEST = 2_000_000  # characters
MAX_TRIES = 3  # of a job whose server dies
START_LIMIT = 60.0  # seconds for a server to come up
GRACE = 5.0  # seconds beyond the time limit for a test that does not end by itself


@dataclass(frozen=True)
class Job:
    """One program and the test that it has to pass.

    `test` calls the program's function `entry_point` by that name, or defines `check(candidate)` as
    HumanEval does, or functions named test_... without arguments. `setup` is trusted Python that
    runs before: a helper that the test uses must not come from the program.
    """

    program: str
    test: str
    entry_point: str
    setup: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of one job; `outcome` is one of OUTCOMES.

    `cases_passed` of `cases` assertions held (in a loop each counts). `fault` says whose it was:
    "program", "test" (a rejected one, say) or "sandbox". `ms`: milliseconds.
    """

    outcome: str
    reason: str = ""
    fault: str = ""
    cases_passed: int = 0
    cases: int = 1
    ms: float = 0.0
    isolation: str = ""

    @property
    def passed(self) -> bool:
        """Whether the test ran to its end and everything in it held."""
        return self.outcome == "passed"

    @property
    def fraction(self) -> float:
        """The fraction of the cases that passed, 0 to 1; 1 only when everything did."""
        return self.cases_passed / self.cases

    def __str__(self) -> str:
        why = f"in {self.ms:.0f} ms [{self.isolation}]: {self.reason}".removesuffix(": ")
        return f"{self.outcome}, {self.cases_passed} of {self.cases} {why}"


class Sandbox(contextlib.AbstractContextManager):
    """Judge jobs in `workers` pairs of processes (None: one for each core), started when needed.

    Each job may take `time_limit` seconds, and map `memory_mb` (MiB) beyond the interpreter.
    `require="full"` raises WorkbookError where the isolation is less; `level="limits-only"` asks
    for less. `counts` holds the outcomes so far.
    """

    def __init__(
        self,
        workers: int | None = None,
        time_limit: float = 5.0,
        memory_mb: int = 512,
        require: Literal["full"] | None = None,
        level: Literal["full", "limits-only"] = "full",
    ):
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        if workers < 1 or not 0 < time_limit < 3600 or memory_mb < 16:
            given = f"workers={workers}, time_limit={time_limit}, memory_mb={memory_mb}"
            raise WorkbookError(f"{given}: give at least 1 worker, under an hour, 16 MiB")
        self.time_limit, self.require = time_limit, require
        options = {"time_limit": time_limit, "memory_mb": int(memory_mb), "level": level}
        self._workers = [_Worker(options | _folders()) for _ in range(workers)]
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        atexit.register(self.close)

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the next check starts new ones."""
        for worker in self._workers:
            worker.stop()

    @property
    def isolation(self) -> str:
        """The level in force: "full" or "limits-only"."""
        return self.probe()[0]

    def probe(self) -> tuple[str, str]:
        """(level, why it is not full). Raises WorkbookError if `require` is not met."""
        with self._lock:
            self._start(self._workers[0])
        return self._workers[0].level, self._workers[0].why

    def check(self, jobs: Sequence[Job]) -> list[Verdict]:
        """One Verdict per job, in order. Give many jobs at once: they run side by side.

        A job that cannot be judged is rejected, and the others are judged all the same.
        """
        with self._lock:
            verdicts = [_unfit(job) for job in jobs]
            fit = [i for i, verdict in enumerate(verdicts) if verdict is None]
            fit.sort(key=lambda i: (jobs[i].test, jobs[i].setup))  # a test is compiled once
            try:
                self._work(jobs, deque(fit), verdicts)
            except BaseException:  # such as Ctrl-C: no stale answer may be read later
                for worker in self._workers:
                    worker.stop()
                raise
            self.counts.update(v.outcome for v in verdicts)
            return verdicts

    def _work(self, jobs: Sequence[Job], waiting: deque, verdicts: list) -> None:
        tries: Counter[int] = Counter()
        busy: dict[_Worker, int] = {}
        while waiting or busy:
            for worker in self._workers:
                if waiting and worker not in busy:
                    self._start(worker)
                    busy[worker] = i = waiting.popleft()
                    tries[i] += 1
                    worker.send(jobs[i])
            soonest = min(worker.deadline for worker in busy)
            ready = wait(list(busy), max(0.0, soonest - time.monotonic()))
            for worker in [w for w in busy if w in ready or time.monotonic() > w.deadline]:
                i = busy.pop(worker)
                verdicts[i] = worker.verdict()
                if verdicts[i] is None and tries[i] < MAX_TRIES:
                    waiting.appendleft(i)
                elif verdicts[i] is None:
                    why = f"the server died {MAX_TRIES} times"
                    verdicts[i] = Verdict("sandbox error", why, "sandbox")

    def _start(self, worker: "_Worker") -> None:
        """Start its servers, if they do not run. Warn, or refuse, where isolation is not full."""
        if worker.process is not None:
            return
        worker.start()
        if worker.level == "full":
            return
        words = f"the sandbox is limits-only ({worker.why}): programs can read every file of yours"
        if self.require == "full":
            worker.stop()
            raise WorkbookError(f"{words}; allow user namespaces, or leave out require")
        warnings.warn(words, stacklevel=2)  # Python shows it once


class _Worker:
    """One judge server with its candidate server: one job at a time."""

    def __init__(self, options: dict):
        self.options, self.level, self.why, self.deadline = options, "", "", 0.0
        self.process: subprocess.Popen | None = None

    def fileno(self) -> int:
        """For `wait`: readable when there is an answer, or its end."""
        return self.sock.fileno()

    def start(self) -> None:
        """Start the servers. Raises WorkbookError when they do not come up."""
        self.sock, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", str(SERVER), json.dumps(self.options)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for the trainer, which then closes us
                env={k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"},
                cwd="/",
            )
        try:
            walls = wire.receive(self.sock, time.monotonic() + START_LIMIT)
        except (OSError, EOFError):
            self.stop()
            why = "the sandbox's server did not start: run `python -m grpo_workbook doctor`"
            raise WorkbookError(why) from None
        self.level, self.why = walls["isolation"], walls["why"]

    def send(self, job: Job) -> None:
        self.deadline = time.monotonic() + self.options["time_limit"] + GRACE
        with contextlib.suppress(OSError):  # it has died since: `verdict` will find its end
            wire.send(self.sock, asdict(job))

    def verdict(self) -> Verdict | None:
        """What became of the job; None where the server died instead. Then it is stopped."""
        try:
            return Verdict(**wire.receive(self.sock, self.deadline), isolation=self.level)
        except TimeoutError:
            self.stop()
            return Verdict("timeout", "the test did not end", "test", isolation=self.level)
        except (OSError, EOFError):
            self.stop()
            return None

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            self.sock.close()


def _folders() -> dict[str, list[str]]:
    """What a candidate can see, and of it the folders of packages to import from."""
    paths = sysconfig.get_paths()
    packages = [p for p in dict.fromkeys((paths["purelib"], paths["platlib"])) if Path(p).is_dir()]
    system = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"]
    own = [f"{sys.base_prefix}/lib", paths["stdlib"], paths["platstdlib"]]
    return {"packages": packages, "visible": [*system, *own, *packages]}


def _unfit(job: Job) -> Verdict | None:
    """The verdict on a job that no server is asked about, and whose fault it is."""
    for name, limit in (("program", MAX_PROGRAM), ("test", MAX_TEST), ("setup", MAX_TEST)):
        value, fault = getattr(job, name), "program" if name == "program" else "test"
        if not isinstance(value, str) or len(value) > limit:
            words = f"the {name} is no text of at most {limit:,} characters: {str(value)[:40]!r}"
            return Verdict("rejected", words, fault)
    if not job.test.strip():
        return Verdict("rejected", "there is no test: nothing can be judged", "test")
    if not isinstance(job.entry_point, str) or not job.entry_point.isidentifier():
        words = f"the entry point {str(job.entry_point)[:60]!r} is no name of a function"
        return Verdict("rejected", words, "test")
    return None
