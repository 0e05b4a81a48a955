"""Run model-written Python against unit tests: fast, and so that a program cannot give itself a pass.

    with Sandbox() as sandbox:
        verdicts = sandbox.check([Job(program, "assert add(2, 3) == 5", "add"), ...])

Three things make it hold:
1. The test runs in a trusted process; the program runs in another. Only plain values of exact types cross, so the
   test's `==` never meets an object of the program's, and the program never sees the test.
2. The program's process has no network, writes no files, starts no programs, and after its job everything it left is
   killed. How much of that this machine can enforce is `sandbox.isolation`: "full" or "limits-only".
3. Nothing the program does to its own process says "passed": only a test that ran to its end does.

What does not cross: a test that looks at an argument after the call sees it unchanged, and an entry point that is a
class cannot be tested. Servers are started fresh, not forked from a trainer that holds gigabytes, and kept.
"""

import atexit
import json
import os
import selectors
import struct
import subprocess
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.errors import WorkbookError

SERVER = Path(__file__).with_name("sandbox_server.py")
OUTCOMES = ("passed", "failed", "error", "timeout", "out of memory", "rejected", "sandbox error")
MAX_PROGRAM = 200_000  # characters
MAX_TEST = 2_000_000  # characters
MAX_TRIES = 3  # of a job whose server dies
START_LIMIT = 60.0  # seconds for a server to come up
_warned = False


@dataclass(frozen=True)
class Job:
    """One program and the test that it has to pass.

    `test` calls the program's function `entry_point` by that name, or defines `check(candidate)` as HumanEval does,
    or functions named test_... without arguments. `setup` is trusted Python that runs before the test, for helpers that
    the test uses (HumanEval's prompt): a helper from the program itself could be written to suit.
    """

    program: str
    test: str
    entry_point: str
    setup: str = ""


@dataclass(frozen=True)
class Verdict:
    """What became of one job; `outcome` is one of OUTCOMES.

    `cases_passed` of `cases` assertions held (an assertion in a loop counts each time). `fault` says whose it was:
    "program", "test" (a rejected test, say) or "sandbox". `reason` holds at most 700 characters. `ms` are milliseconds,
    the test's compilation included.
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
    def share(self) -> float:
        """The share of the cases that passed, 0 to 1; 1 only when everything did."""
        return self.cases_passed / self.cases

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ""
        return f"{self.outcome}, {self.cases_passed} of {self.cases} in {self.ms:.0f} ms [{self.isolation}]{why}"


class Sandbox:
    """Judge jobs in `workers` pairs of processes (one for each core, if None), each job within `time_limit` seconds.

    `memory_mb` (MiB) is what a program may map beyond the interpreter. `require="full"` raises WorkbookError where the
    isolation is less; `level="limits-only"` asks for less, to try it out. Works in any thread. `counts` holds the
    outcomes so far.
    """

    def __init__(
        self,
        workers: int | None = None,
        time_limit: float = 5.0,
        memory_mb: int = 512,
        require: str | None = None,
        level: str = "full",
    ):
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        whole = isinstance(workers, int) and isinstance(memory_mb, int)
        if not whole or workers < 1 or not 0 < time_limit < 3600 or not 16 <= memory_mb < 1 << 20:
            raise WorkbookError(
                f"workers={workers}, time_limit={time_limit}, memory_mb={memory_mb}: give at least 1 worker, a limit "
                "under an hour and at least 16 MiB, in whole numbers but for the limit"
            )
        if require not in (None, "full") or level not in ("full", "limits-only"):
            raise WorkbookError(
                f"require={require!r}, level={level!r}: the levels are full and limits-only"
            )
        self.time_limit, self.require = time_limit, require
        options = {"time_limit": time_limit, "memory_mb": memory_mb, "level": level, **_folders()}
        self._workers = [_Worker(options) for _ in range(workers)]
        self._lock = threading.Lock()
        self.counts: Counter[str] = Counter()
        atexit.register(self.close)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the next check starts new ones."""
        atexit.unregister(self.close)
        for worker in self._workers:
            worker.stop()

    @property
    def pids(self) -> list[int]:
        """The process ids of the servers that run now."""
        return [w.process.pid for w in self._workers if w.process is not None]

    @property
    def isolation(self) -> str:
        """The level in force: "full" or "limits-only"."""
        return self.probe()[0]

    def probe(self) -> tuple[str, str]:
        """(level, why it is not full). Starts one server if none runs. Raises WorkbookError if `require` is not met."""
        worker = self._workers[0]
        with self._lock:
            if worker.process is None:
                worker.start()
                self._admit(worker)
        return worker.level, worker.why

    def check(self, jobs: Sequence[Job]) -> list[Verdict]:
        """One Verdict per job, in order. Give many jobs at once: they run side by side.

        A program that is no text or too long is rejected. Raises WorkbookError for a job without a test or with an
        entry point that is no name, and RuntimeError when servers cannot be started at all.
        """
        for i, job in enumerate(jobs):
            _validate(i, job)
        with self._lock:
            verdicts = [_unfit(job) for job in jobs]
            unjudged = [i for i, verdict in enumerate(verdicts) if verdict is None]
            waiting = deque(
                sorted(unjudged, key=lambda i: (jobs[i].test, jobs[i].setup))
            )  # a test once, then again
            if waiting:
                self._work(jobs, waiting, verdicts)
            self.counts.update(v.outcome for v in verdicts)
            return verdicts

    def _work(self, jobs: Sequence[Job], waiting: deque, verdicts: list) -> None:
        tries: Counter[int] = Counter()
        busy: dict[_Worker, int] = {}
        with selectors.DefaultSelector() as selector:
            try:
                while waiting or busy:
                    for worker in self._workers:
                        if waiting and worker not in busy:
                            if worker.process is None:
                                worker.start()
                                self._admit(worker)
                            i = waiting.popleft()
                            tries[i] += 1
                            busy[worker] = i
                            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
                            worker.send(i, jobs[i])
                    soonest = min(worker.deadline for worker in busy)
                    ready = {
                        key.data for key, _ in selector.select(max(0.0, soonest - time.monotonic()))
                    }
                    for worker in list(busy):
                        late = time.monotonic() > worker.deadline
                        answer = worker.read() if worker in ready else None
                        if answer is None and not late and not worker.dead:
                            continue
                        selector.unregister(worker.process.stdout)
                        i = busy.pop(worker)
                        if answer is not None:
                            verdicts[i] = Verdict(**answer, isolation=worker.level)
                            continue
                        worker.stop()
                        if tries[i] < MAX_TRIES:
                            waiting.appendleft(i)
                        else:
                            verdicts[i] = Verdict(
                                "sandbox error", f"the server died {MAX_TRIES} times", "sandbox"
                            )
            finally:
                for worker in (
                    busy
                ):  # an exception, such as Ctrl-C, came between: no stale answer may be read later
                    worker.stop()

    def _admit(self, worker: "_Worker") -> None:
        """Warn once, or refuse, where the isolation is not full."""
        global _warned
        if worker.level == "full":
            return
        words = (
            f"the sandbox is limits-only ({worker.why}): time, memory and system calls are limited, but a program can "
            "read every file that you can read"
        )
        if self.require == "full":
            worker.stop()
            raise WorkbookError(f"{words}; allow user namespaces, or leave out require")
        if not _warned:
            _warned = True
            warnings.warn(words, stacklevel=4)


class _Worker:
    """One judge server with its candidate server: one job at a time."""

    def __init__(self, options: dict):
        self.options = options
        self.process: subprocess.Popen | None = None
        self.level = self.why = ""
        self.dead, self.deadline, self.buffer = False, 0.0, b""

    def start(self) -> None:
        """Start the servers and wait until they are ready. Raises RuntimeError when they do not come up."""
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", str(SERVER), json.dumps(self.options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is for the trainer, which then closes us
            env={k: os.environ[k] for k in ("LD_LIBRARY_PATH",) if k in os.environ},
            cwd="/",
            bufsize=0,
        )
        self.dead, self.buffer = False, b""
        self.deadline = time.monotonic() + START_LIMIT
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            answer = None
            while (
                answer is None
                and not self.dead
                and selector.select(max(0.0, self.deadline - time.monotonic()))
            ):
                answer = self.read()
        if answer is None:
            self.stop()
            raise RuntimeError(
                "the sandbox's server did not start: run `python -m grpo_workbook doctor`"
            )
        self.level, self.why = answer["isolation"], answer["why"]

    def send(self, i: int, job: Job) -> None:
        fields = {
            "id": i,
            "program": job.program,
            "test": job.test,
            "entry_point": job.entry_point,
            "setup": job.setup,
        }
        data = json.dumps(fields).encode("ascii")
        data = memoryview(struct.pack("!I", len(data)) + data)
        self.deadline = time.monotonic() + self.options["time_limit"] + START_LIMIT
        try:
            while data:
                data = data[self.process.stdin.write(data) :]
        except OSError:
            pass  # it has died since: read() will find its end

    def read(self) -> dict | None:
        """The answer, when it is complete; an end of the pipe marks the worker dead."""
        piece = os.read(self.process.stdout.fileno(), 1 << 16)
        self.dead = not piece
        self.buffer += piece
        size = struct.unpack("!I", self.buffer[:4])[0] if len(self.buffer) >= 4 else 1 << 30
        if len(self.buffer) < 4 + size:
            return None
        answer, self.buffer = json.loads(self.buffer[4 : 4 + size]), self.buffer[4 + size :]
        answer.pop("id", None)
        return answer

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()


def _folders() -> dict[str, list[str]]:
    """What a candidate can see, and of it the folders of packages to import from."""
    paths = sysconfig.get_paths()
    packages = [p for p in dict.fromkeys((paths["purelib"], paths["platlib"])) if Path(p).is_dir()]
    system = [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/lib",
        "/lib64",
        f"{sys.base_prefix}/lib",
    ]
    return {
        "packages": packages,
        "visible": [*system, paths["stdlib"], paths["platstdlib"], *packages],
    }


def _validate(i: int, job: Job) -> None:
    for name in ("test", "entry_point", "setup"):
        value = getattr(job, name)
        if (
            not isinstance(value, str)
            or (not value.strip() and name != "setup")
            or len(value) > MAX_TEST
        ):
            raise WorkbookError(
                f"job {i}: {name} is {str(value)[:60]!r}: give text; without a test nothing can be judged"
            )
    if not job.entry_point.isidentifier():
        raise WorkbookError(
            f"job {i}: the entry point {job.entry_point[:60]!r} is no name of a function"
        )


def _unfit(job: Job) -> Verdict | None:
    if not isinstance(job.program, str):
        return Verdict(
            "rejected", f"the program is no text but {type(job.program).__name__}", "program"
        )
    if len(job.program) > MAX_PROGRAM:
        return Verdict(
            "rejected",
            f"a program of {len(job.program)} characters (limit {MAX_PROGRAM})",
            "program",
        )
    return None
