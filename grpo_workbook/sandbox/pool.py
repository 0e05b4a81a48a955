"""Run model-written Python against unit tests: fast, and no program can give itself a pass.

1. The test runs in a trusted process, the program in another, and never sees the test. Only values
   of exact types cross. Any other object stays where it is, and the other side asks it over the
   wire. So an object of the program's is equal to no value and cannot stand for one, unless the
   test names its class; then it answers with values until it has seen one of the test, and "equal"
   is believed if it is not equal to others like it. (A class that counts its objects can cheat.)
2. The program's process has no network, cannot write files or start programs, and all its processes
   are killed. `sandbox.isolation` says what this machine can enforce: "full" or "limits-only".
3. A program cannot report success, whatever it does to its process: only a completed test can.

What a program does to its arguments is done to the test's, if it returns None or the test looks at
them. A job has one deadline; once the program has answered, it is to blame for what does not end.
A test may evaluate its own text and sums, no other text. Two processes cannot show all that one
does: the program's threads and coroutines take turns when they call the test, and a list that comes
back is a copy.
"""

import contextlib
import os
import re
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Literal

from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox import wire
from grpo_workbook.sandbox.source import is_json

OUTCOMES = ("passed", "failed", "error", "timeout", "out of memory", "rejected", "sandbox error")
MAX_PROGRAM = 200_000  # characters
MAX_TEST = 2_000_000  # characters
_ENTRY = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*)*")  # f, or Solution().f
MAX_TRIES = 3  # attempts at a job if the server dies
GRACE = 1.0  # seconds beyond the time limit, before a judge that does not answer is ended


@dataclass(frozen=True)
class Job:
    """One program and the test that it has to pass.

    `test` calls the program's `entry_point` by name (a function, a class, `Solution().method`), or
    defines `check(candidate)` as in HumanEval, functions test_..., or a `unittest.TestCase`. It may
    import from `solution`, the program, and from installed packages; or it is JSON with inputs and
    outputs (then `entry_point` is ""). `setup` is trusted Python that runs first, because the
    test's helpers must not come from the program; objects of its classes cross with their
    attributes. The program does not see it.
    """

    program: str
    test: str
    entry_point: str
    setup: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one job: one of OUTCOMES, and the `fault`: "program", "test" or "sandbox".

    `cases_passed` of `cases` assertions held (in a loop one for each call). `ms`: milliseconds.
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
        """Whether the test ran to its end and all its assertions held."""
        return self.outcome == "passed"

    @property
    def fraction(self) -> float:
        """The fraction of cases that passed, 0 to 1; it is 1 only if the whole test passed."""
        return self.cases_passed / self.cases

    def __str__(self) -> str:
        why = f"in {self.ms:.0f} ms [{self.isolation}]: {self.reason}".removesuffix(": ")
        return f"{self.outcome}, {self.cases_passed} of {self.cases} {why}"


PROOF = Job("def f(x): return x + 1", "assert f(1) == 2", "f")  # judged before all others


class Sandbox(contextlib.AbstractContextManager):
    """Judge jobs in `workers` pairs of processes (None: one per core), started when needed.

    Each job gets `time_limit` seconds, and `memory_mb` MiB beyond the interpreter.
    `require="full"` raises WorkbookError if the isolation is weaker; `level="limits-only"` asks for
    the weaker one. `counts` holds the outcomes so far. Use it in a `with` block, or `close` it.
    """

    def __init__(
        self, workers: int | None = None, time_limit: float = 5.0, memory_mb: int = 512,
        require: Literal["full"] | None = None, level: Literal["full", "limits-only"] = "full",
    ):  # fmt: skip
        self.time_limit, self.counts = time_limit, Counter[str]()
        paths = sysconfig.get_paths()
        packages = [paths["purelib"], paths["platlib"]]
        visible = [f"{sys.base_prefix}/lib", paths["stdlib"], paths["platstdlib"], *packages]
        visible += ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"]
        options = {"time_limit": time_limit, "memory_mb": memory_mb, "level": level}
        options |= {"packages": packages, "visible": visible}
        workers = min(os.cpu_count() or 1, 16) if workers is None else workers
        self._workers = [_Worker(options, require) for _ in range(workers)]

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; the next check starts new ones."""
        for worker in self._workers:
            worker.stop()

    @property
    def isolation(self) -> str:
        """The isolation level: "full" or "limits-only"."""
        return self.probe()[0]

    def probe(self) -> tuple[str, str]:
        """(level, why it is not full). Raises WorkbookError if `require` is not met."""
        worker = self._workers[0]
        with worker.lock:
            worker.start()
        return worker.level, worker.why

    def check(self, jobs: Sequence[Job]) -> list[Verdict]:
        """One Verdict per job, in order. Jobs run in parallel; invalid ones are rejected."""
        verdicts = [_unfit(job) for job in jobs]
        fit = [i for i, unfit in enumerate(verdicts) if unfit is None]
        left = deque(sorted(fit, key=lambda i: jobs[i].test))  # so that each test is compiled once

        def serve(worker: _Worker) -> WorkbookError | None:
            """Judge what is left; the error of a worker whose servers do not start."""
            while left:
                with contextlib.suppress(IndexError):  # another worker took the last one
                    i = left.popleft()
                    try:
                        verdicts[i] = worker.judge(jobs[i])
                    except WorkbookError as error:
                        left.appendleft(i)
                        return error
            return None

        with ThreadPoolExecutor(len(self._workers)) as threads:
            try:
                errors = list(threads.map(serve, self._workers))
            except BaseException:
                left.clear()  # after a Ctrl-C no new job starts
                raise
        # what one put back after the others' end
        errors += [serve(w) for w, failed in zip(self._workers, errors, strict=True) if not failed]
        errors = [error for error in errors if error]
        if left and not any(worker.has_judged for worker in self._workers):
            raise errors[0]
        for i in left:  # a reward must not lose a step because a machine is full for a moment
            verdicts[i] = Verdict("sandbox error", str(errors[0]), "sandbox")
        self.counts.update(v.outcome for v in verdicts)
        return verdicts


class _Worker:
    """One judge server with its candidate server: one job at a time."""

    def __init__(self, options: dict, require: str | None):
        self.options, self.require, self.level, self.why = options, require, "", ""
        self.process, self.lock, self.has_judged = None, threading.Lock(), False

    def start(self) -> None:
        """Start its servers, if they do not run. Warn, or refuse, if isolation is not full."""
        if self.process is not None:
            return
        failed = []
        for level in dict.fromkeys((self.options["level"], "limits-only")):
            try:
                self._launch(level)
                break
            except (OSError, EOFError) as error:
                failed.append(f"{level}: {error or 'the server ended'}")
                self.stop()
        else:
            raise WorkbookError(f"the sandbox's servers do not judge here ({'; '.join(failed)})")
        self.why = "; ".join([*failed, self.why])
        words = f"the sandbox is limits-only ({self.why})"
        if self.level != "full" and self.require == "full":
            self.stop()
            raise WorkbookError(f"{words}. Allow user namespaces, or leave out require")
        if self.level != "full":
            warnings.warn(words, stacklevel=3)  # Python shows the same warning once

    def _launch(self, level: str) -> None:
        """Start the servers and let them judge a program: walls may stand where nothing runs."""
        self.process, self.sock = wire.start_server("judge.py", self.options | {"level": level})
        walls = wire.receive(self.sock, time.monotonic() + wire.START_LIMIT)
        self.level, self.why = walls["level"], walls["why"]
        if not self.level:
            raise OSError(self.why)
        # not within the time limit: a short one can pass on a busy machine
        outcome, reason, *_ = self.ask(PROOF, wire.START_LIMIT)
        if outcome != "passed":
            raise OSError(f"{outcome}: {reason}")

    def judge(self, job: Job) -> Verdict:
        """The verdict on the job; if the servers die, it tries again with new ones."""
        for _ in range(MAX_TRIES):
            with self.lock:
                self.start()
                try:
                    found = self.ask(job, self.options["time_limit"])
                    self.has_judged = True
                    if found[0] == "timeout":  # half an import, or a thread, may be left
                        self.stop()
                    return Verdict(*found, isolation=self.level)
                except (OSError, EOFError, ValueError, TypeError, LookupError):
                    self.stop()
        return Verdict("sandbox error", f"the server died {MAX_TRIES} times", "sandbox")

    def ask(self, job: Job, seconds: float) -> list:
        """The server's answer. A test that does not end may be at fault until the program answers.

        The judge says "loading" and "started" if it loads the test's packages, and "answered".
        """
        deadline = time.monotonic() + seconds + GRACE
        why, fault = "the test did not end", "test"
        wire.send(self.sock, asdict(job) | {"seconds": seconds})
        try:
            while isinstance(found := wire.receive(self.sock, deadline), str):
                if found == "answered":
                    why, fault = "the test did not end with the program's answers", "program"
                else:
                    left = wire.START_LIMIT if found == "loading" else seconds + GRACE
                    deadline = time.monotonic() + left
        except TimeoutError:
            self.stop()
            return ["timeout", why, fault]
        return [found[0], printable(found[1])[:1000], *found[2:]]

    def stop(self) -> None:
        """End the servers."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.sock.close()
            self.process = None


def printable(text: str) -> str:
    """The text with control characters and lone surrogates as escapes: safe in a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _unfit(job: Job) -> Verdict | None:
    """The verdict on an invalid job, which goes to no server."""

    def bad(words: str, value="", fault: str = "test") -> Verdict:
        shown = f"of type {type(value).__name__}"
        with contextlib.suppress(Exception):  # an int of 5,000 digits
            shown = printable(repr(str(value)[:60]))
        return Verdict("rejected", words.format(shown), fault)

    if not isinstance(job, Job):
        return bad("the job {} is no Job", job)
    for part, limit in (("program", MAX_PROGRAM), ("test", MAX_TEST), ("setup", MAX_TEST)):
        if not isinstance(text := getattr(job, part), str) or len(text) > limit:
            words = f"the {part} is not a text of at most {limit:,} characters: {{}}"
            return bad(words, text, "program" if part == "program" else "test")
    name = job.entry_point
    if not job.test.strip():
        return bad("there is no test: nothing can be judged")
    # without a name: input and output, or `from solution import f`
    if name == "" and (is_json(job.test) or "solution" in job.test):
        return None
    is_name = isinstance(name, str) and _ENTRY.fullmatch(name)
    return None if is_name else bad("the entry point {} is not a name", name)
