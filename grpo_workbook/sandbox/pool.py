"""Run model-written Python against unit tests, behind walls, in a pool of servers.

A test is judged in one of two ways, which its text alone chooses:

- *by value*, where it gives the program plain values and gets some back. Test and program are in
  two processes, and the expected values never reach the program's: no program can give itself a
  pass.
- *in one process*, where it needs the program's own objects. Program and test run together, as
  pytest would run them. What shares a process can be attacked: the sandbox resists the cheats that
  are known from training, but not every one (docs/measurements.md).

`Verdict.how` says which way and why. In both, the processes have no network, start no programs,
write no files outside a /tmp of their own, and are killed after the job. `Sandbox.isolation` says
what this machine can enforce: "full" or "limits-only".
"""

import contextlib
import os
import re
import socket
import sys
import sysconfig
import threading
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

from grpo_workbook.errors import WorkbookError
from grpo_workbook.sandbox import wire
from grpo_workbook.sandbox.json_tests import is_json
from grpo_workbook.sandbox.rewriting import TOKEN
from grpo_workbook.sandbox.source import Test, Unusable, read_test

OUTCOMES = ("passed", "failed", "error", "timeout", "out of memory", "rejected", "sandbox error")
REPORTED = ("failed", "error", "out of memory", "rejected")  # by the process of a test
MAX_PROGRAM = 200_000  # characters
MAX_TEST = 2_000_000  # characters
MAX_REASON = 1_000  # characters
MEMORY_MB = 512  # MiB for a program beyond the interpreter's own
MAX_TRIES = 3  # attempts at a job if the server dies
MAX_SERVER = 150 << 20  # bytes of memory of a server, before it imports the next test's modules
UNREADABLE = (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError)
# Modules whose functions the walls refuse.
WALLED = {"socket", "subprocess", "multiprocessing", "threading", "os", "signal", "requests"}
TOKENS = re.compile(TOKEN + r"(\d+)")
NAMES = "give that of a function or class, or Solution().method"
_ENTRY_POINT = re.compile(r"[^\W\d]\w*(\(\))?(\.[^\W\d]\w*)*")  # f, or Solution().f


@dataclass(frozen=True)
class Job:
    """One program and the test that it has to pass.

    `test` calls the program's `entry_point` by name (a function, a class, `Solution().method`), or
    defines `check(candidate)` as in HumanEval, functions test_..., or a `unittest.TestCase`. It may
    import from `solution`, the program, and from installed packages; or it is JSON with inputs and
    outputs (then `entry_point` is ""). `setup` is trusted Python that runs first, because the
    test's helpers must not come from the program.
    """

    program: str
    test: str
    entry_point: str
    setup: str = ""


@dataclass(frozen=True)
class Verdict:
    """The verdict on one job.

    - `outcome`: one of OUTCOMES; `reason`: why the program has not passed
    - `fault`: "program", "test" or "sandbox"; "" if it passed
    - `cases_passed`: how many of `cases`, the assertions in the test's text, held
    - `ms`: milliseconds that it took
    - `why_together`: why it was judged in one process with its test; "" if by value
    - `isolation`: of the sandbox, "full" or "limits-only"; "" if no server has judged it
    """

    outcome: str
    reason: str = ""
    fault: str = ""
    cases_passed: int = 0
    cases: int = 1
    ms: float = 0.0
    why_together: str = ""
    isolation: str = ""

    @property
    def passed(self) -> bool:
        """Whether the test ran to its end and all its assertions held."""
        return self.outcome == "passed"

    @property
    def is_together(self) -> bool:
        """Whether it was judged in one process with its test."""
        return self.why_together != ""

    @property
    def how(self) -> str:
        """Either "by value", or "in one process: " and why; "" if no server has judged it."""
        if self.is_together:
            return f"in one process: {self.why_together}"
        return "by value" if self.isolation else ""

    @property
    def fraction(self) -> float:
        """The fraction of cases that passed, 0 to 1; it is 1 only if the whole test passed."""
        return self.cases_passed / self.cases

    def __str__(self) -> str:
        text = f"{self.outcome}, {self.cases_passed} of {self.cases} in {self.ms:.0f} ms"
        text = f"{text} [{self.isolation}, {self.how}]"
        return f"{text}: {self.reason}" if self.reason else text


# The server judges it before all others: walls may stand where nothing runs.
PROOF = Job("def f(x): return x + 1", "assert f(1) == 2", "f")


class Sandbox(contextlib.AbstractContextManager):
    """Judge jobs in a pool of servers, which start when needed.

    Use it in a `with` block, or `close` it. `counts` has how many verdicts there were of each
    outcome.

    Args:
        workers: how many jobs are judged at once; None: one for each core, at most 16.
        time_limit: seconds for each job.
        require: "full" raises WorkbookError if the isolation is weaker.
        level: "limits-only" asks for the weaker isolation.
    """

    def __init__(
        self,
        workers: int | None = None,
        time_limit: float = 5.0,
        require: Literal["full"] | None = None,
        level: Literal["full", "limits-only"] = "full",
    ):
        self.time_limit = time_limit
        self.counts: Counter[str] = Counter()
        paths = sysconfig.get_paths()
        packages = [paths["purelib"], paths["platlib"]]
        system = ["/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64"]
        python = [f"{sys.base_prefix}/lib", paths["stdlib"], paths["platstdlib"]]
        options = {
            "time_limit": time_limit,
            "memory_mb": MEMORY_MB,
            "level": level,
            "packages": packages,
            "visible": [*python, *packages, *system],
        }
        if workers is None:
            workers = min(os.cpu_count() or 1, 16)
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
        worker.start()
        return worker.level, worker.why

    def check(self, jobs: Sequence[Job]) -> list[Verdict]:
        """One Verdict per job, in order. Jobs run in parallel; invalid ones are rejected."""
        verdicts: list[Any] = list(map(_reject, jobs))
        valid = [index for index, verdict in enumerate(verdicts) if verdict is None]
        # All workers take from one iterator; sorted, so that each test is read once.
        waiting = iter(sorted(valid, key=lambda index: jobs[index].test))
        errors: list[WorkbookError] = []

        def serve(worker: _Worker) -> None:
            """Judge what is waiting, as long as the worker's server can be started."""
            try:
                worker.start()
                for index in waiting:
                    verdicts[index] = worker.judge(jobs[index])
            except WorkbookError as error:
                errors.append(error)

        with ThreadPoolExecutor(len(self._workers)) as threads:
            try:
                # No more workers than jobs: to start a server takes longer than most jobs.
                list(threads.map(serve, self._workers[: len(valid)]))
            except BaseException:
                list(waiting)  # after a Ctrl-C no new job starts
                raise
        if errors and not any(worker.has_judged for worker in self._workers):
            raise errors[0]
        for index in valid:
            # A reward must not lose a step because a machine is full for a moment.
            if verdicts[index] is None:
                verdicts[index] = Verdict("sandbox error", str(errors[0]), "sandbox")
        self.counts.update(verdict.outcome for verdict in verdicts)
        return verdicts


class _Worker:
    """One server: one job at a time."""

    def __init__(self, options: dict, require: str | None):
        self.options, self.require = options, require
        self.level = self.why = ""
        self.process = None
        self.test_sock: Any = None  # to the process of the last test by value
        self.test: Test | None = None  # which that is
        self.loaded: set[str] = set()  # the modules that the server has imported
        self.server_memory = 0  # bytes
        self.lock = threading.RLock()  # `judge` holds it, and starts
        self.has_judged = False

    def start(self) -> None:
        """Start its server, if it does not run. Warn, or refuse, if isolation is not full."""
        with self.lock:
            if self.process is not None:
                return
            self._start_server()
            if self.level == "full":
                return
            text = f"the sandbox is limits-only ({self.why})"
            if self.require == "full":
                self.stop()
                raise WorkbookError(f"{text}. Allow user namespaces, or leave out require")
            warnings.warn(text, stacklevel=3)  # Python shows the same warning once

    def _start_server(self) -> None:
        """Start it at the level asked for, else at the weaker one."""
        failures = []
        for level in dict.fromkeys((self.options["level"], "limits-only")):
            try:
                self._launch(level)
                self.why = "; ".join([*failures, self.why])
                return
            except (OSError, EOFError) as error:
                failures.append(f"{level}: {error or 'the server ended'}")
                self.stop()
        reasons = "; ".join(failures)
        raise WorkbookError(
            f"the sandbox's server does not judge here ({reasons}): "
            "see docs/install.md for what it needs, or use another machine"
        )

    def _launch(self, level: str) -> None:
        self.process, self.sock = wire.start_server(self.options | {"level": level})
        walls = wire.receive(self.sock, time.monotonic() + wire.START_LIMIT)
        self.level, self.why = walls["level"], walls["why"]
        if not self.level:
            raise OSError(self.why)
        # not within the time limit: a short one can pass on a busy machine
        verdict = self.ask(PROOF, wire.START_LIMIT)
        if not verdict.passed:
            raise OSError(f"{verdict.outcome}: {verdict.reason}")

    def judge(self, job: Job) -> Verdict:
        """The verdict on the job; if the server dies, it tries again with a new one."""
        for _ in range(MAX_TRIES):
            with self.lock:
                self.start()
                try:
                    verdict = self.ask(job, self.options["time_limit"])
                    self.has_judged = True
                    return verdict
                except (OSError, EOFError):
                    self.stop()
        return Verdict("sandbox error", f"the server died {MAX_TRIES} times", "sandbox")

    def ask(self, job: Job, seconds: float) -> Verdict:
        """The verdict on the job; OSError or EOFError if the server is gone."""
        try:
            test = read_test(job.test, job.setup, job.entry_point)
        except UNREADABLE as error:
            reason = str(error)
            if not isinstance(error, Unusable):
                reason = f"the test cannot be used: {type(error).__name__}: {reason}"
            return Verdict("rejected", printable(reason)[:MAX_REASON], "test")
        self._load(test.modules)  # before the clock starts: pandas takes a second
        started = time.monotonic()
        run = self._run_together if test.why else self._run_by_value
        try:
            verdict = run(test, job, seconds)
        except TimeoutError:
            self.test = None  # its process is still busy
            verdict = Verdict(
                "timeout", "no end within the time limit", "program", cases=test.cases
            )
        self._end_job()
        ms = round(1e3 * (time.monotonic() - started), 3)
        return replace(verdict, ms=ms, why_together=test.why, isolation=self.level)

    def _load(self, modules: list[str]) -> None:
        """Let the server import modules, for all processes that it starts from now on."""
        missing = [name for name in modules if name not in self.loaded]
        if not missing:
            return
        if self.server_memory > MAX_SERVER:
            self.stop()  # what earlier tests have imported is not needed any more
            self.start()
        self.sock.sendall(wire.IMPORT)
        wire.send(self.sock, modules)
        self.server_memory = wire.receive(self.sock, time.monotonic() + wire.START_LIMIT)
        self.loaded.update(modules)

    def _message(self, test: Test, job: Job, tokens: list[str]) -> dict:
        """What the process of a test gets.

        `tokens`: the first ends the report, the others stand behind the test's assertions.
        """
        return {
            "text": TOKENS.sub(lambda match: tokens[int(match[1])], test.text),
            "end": tokens[0],
            "setup": job.setup,
            "entry_point": job.entry_point,
            "functions": test.functions,
            "modules": test.modules,
            "asked": test.asked,
            "free": test.free,
            "is_script": test.is_script,
            "may_meet_walls": self.level != "full" or not WALLED.isdisjoint(test.modules),
        }

    def _run_by_value(self, test: Test, job: Job, seconds: float) -> Verdict:
        """Run the test and the program in two processes."""
        if test is not self.test:
            if self.test_sock is not None:
                self.test_sock.close()
            self.test_sock = self._fork(wire.TEST)
            self.test = test
        # no secret is needed: the program's process never sees the test
        tokens = [f"{TOKEN}{number}" for number in range(test.cases + 1)]
        message = self._message(test, job, tokens)
        if test.function:
            message["entry_point"] = call_of(test.function, job)
        wire.send(self.test_sock, message)
        deadline = None
        while True:
            report = wire.receive(self.test_sock, deadline)
            if report != "start":
                return conclude(test, tokens, report)
            program = self._fork(wire.SCRIPT if test.is_script else wire.PROGRAM)
            with program:
                wire.send(program, job.program)
                socket.send_fds(self.test_sock, [b"p"], [program.fileno()])
            if deadline is None:  # what it takes to start is not the program's time
                deadline = time.monotonic() + seconds

    def _run_together(self, test: Test, job: Job, seconds: float) -> Verdict:
        """Run program and test in one process."""
        # a program cannot guess them, and finds them nowhere but in the test's own code
        tokens = [os.urandom(8).hex() for _ in range(test.cases + 1)]
        message = self._message(test, job, tokens)
        message["program"] = job.program
        with self._fork(wire.TOGETHER) as sock:
            wire.send(sock, message)
            report = None
            try:
                report = wire.receive(sock, time.monotonic() + seconds)
            except (EOFError, ConnectionError):  # os._exit, or the kernel has killed it
                return Verdict("error", wire.ENDED, "program", cases=test.cases)
            except (ValueError, RecursionError):
                pass  # no message at all, so it is not the test's
            return conclude(test, tokens, report)

    def _fork(self, request: bytes) -> socket.socket:
        """A socket to a new process of the server."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.sock, [request], [theirs.fileno()])
        wire.receive(ours, time.monotonic() + wire.START_LIMIT)
        return ours

    def _end_job(self) -> None:
        """Have the server end the program's processes, and wait until it has."""
        self.sock.sendall(wire.END)
        wire.read(self.sock, 1, time.monotonic() + wire.START_LIMIT)

    def stop(self) -> None:
        """End the server."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.sock.close()
        if self.test_sock is not None:
            self.test_sock.close()
        self.process = self.test_sock = self.test = None
        self.loaded.clear()
        self.server_memory = 0


def conclude(test: Test, tokens: list[str], report: Any) -> Verdict:
    """The verdict that follows from a report. It counts only if it is complete.

    A report is [the first token, the tokens behind assertions that hold, failures]; a failure is
    [number of the assertion or 0, outcome, reason, fault].
    """
    try:
        end, reported, failures = report
        held = {tokens.index(token) for token in reported}  # ValueError: it has made one up
        if end != tokens[0]:
            raise ValueError("it does not end as the test does")
        lost = [number for number, *_ in failures]
        # an error outside of all assertions, whose number is 0, has cost one
        passed = len(held.difference(lost)) - lost.count(0)
        passed = min(max(passed, 0), test.cases - 1)
        if failures:
            _, outcome, reason, fault = failures[0]
            if outcome not in REPORTED or fault not in ("program", "test"):
                raise ValueError(f"an outcome {outcome!r}, a fault {fault!r}")
            reason = printable(str(reason))[:MAX_REASON]
            return Verdict(outcome, reason, fault, passed, test.cases)
    except (ValueError, TypeError):
        return Verdict("error", "the report is not the test's", "program", cases=test.cases)
    missing = len(test.required - held)
    if missing:
        reason = f"{missing} assertions were not reached"
        return Verdict("failed", reason, "program", passed, test.cases)
    return Verdict("passed", cases_passed=test.cases, cases=test.cases)


def call_of(function: str, job: Job) -> str:
    """The expression for a function of JSON's tests: in the class that LeetCode's programs have."""
    if "class Solution" in job.program and function.isidentifier():
        return f"Solution().{function}"
    return function


def printable(text: str) -> str:
    """The text with control characters and lone surrogates as escapes: safe in a terminal."""
    characters = []
    for character in text:
        if not character.isprintable():
            character = ascii(character)[1:-1]
        characters.append(character)
    return "".join(characters)


def _show(value) -> str:
    """The start of a value of any kind, for a message."""
    try:
        return printable(repr(str(value)[:60]))
    except Exception:  # an int of 5,000 digits
        return f"of type {type(value).__name__}"


def _reject(job: Job) -> Verdict | None:
    """The verdict on an invalid job, which goes to no server; None for a valid one."""
    if not isinstance(job, Job):
        problem = f"the job {_show(job)} is no Job: give Job(program, test, entry_point)"
        return Verdict("rejected", problem, "test")
    for part, limit in (("program", MAX_PROGRAM), ("test", MAX_TEST), ("setup", MAX_TEST)):
        text = getattr(job, part)
        if not isinstance(text, str) or len(text) > limit:
            problem = f"the {part} is not a text of at most {limit:,} characters: {_show(text)}"
            return Verdict("rejected", problem, "program" if part == "program" else "test")
    if not job.test.strip():
        return Verdict("rejected", "there is no test: nothing can be judged", "test")
    if not _is_entry_point(job.entry_point, job.test):
        problem = f"the entry point {_show(job.entry_point)} is not a name: {NAMES}"
        return Verdict("rejected", problem, "test")
    return None


def _is_entry_point(name, test: str) -> bool:
    if name == "":  # input and output, or `from solution import f`
        return is_json(test) or "solution" in test
    return isinstance(name, str) and _ENTRY_POINT.fullmatch(name) is not None
