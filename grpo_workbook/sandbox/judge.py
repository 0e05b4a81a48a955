"""Judges jobs, one at a time, in a fork of server.py.

By value, the test runs here and the program in another process: only plain values cross, and the
expected ones never leave this process. In one process, both run in another one (together.py), and
only the words that a complete run reports are known here. Standard library only.
"""

import _thread
import builtins
import contextlib
import os
import re
import signal
import socket
import sys
import time
import types
from typing import Any, NoReturn

import wire
from assertions import MAX_WORDS, Assertions, describe
from json_tests import Pairs, is_json, read_json
from runner import run
from source import WORD, Test, read_test

NONSENSE = "the answer breaks the protocol"
BY_VALUE, TOGETHER = "by value", "in one process"
START_VALUE, START_SCRIPT, START_TOGETHER, END, IMPORT = b"v", b"s", b"t", b"e", b"i"
# Errors of a program that would end a loop of the test, or the test, and not fail it.
ENDING = (StopIteration, StopAsyncIteration, GeneratorExit)
# Modules whose functions the walls refuse.
WALLED = {"socket", "subprocess", "multiprocessing", "threading", "os", "signal", "requests"}
# What an error says where a wall is its cause: the system, tempfile, sqlite3.
REFUSALS = ("not permitted", "Permission denied", "temporary directory", "open database file")
CANNOT_RUN = {"Skipped", "SkipTest", "ImportError", "ModuleNotFoundError", "FixtureLookupError"}


_WORDS = re.compile(WORD + r"(\d+)")


class Gone(Exception):
    """The program does not answer any more."""


class Late(BaseException):
    """The deadline is over."""


class Programs:
    """Processes with a program, which the server starts: one at a time."""

    def __init__(self, requests: socket.socket):
        self.requests = requests
        self.sock: socket.socket | None = None

    def start(self, word: bytes, message) -> socket.socket:
        """A socket to a new process that gets the message."""
        self.end()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self.requests, [word], [theirs.fileno()])
        self.sock = ours
        wire.send(ours, message)
        wire.receive(ours, time.monotonic() + wire.START_LIMIT)
        return ours

    def end(self) -> None:
        """Kill the process, and all that it has started."""
        if self.sock is not None:
            self.sock.close()
            self.sock = None
            self._ask(END)

    def load(self, modules: list[str]) -> None:
        """Let the server import modules, for all processes that it starts from now on."""
        self._ask(IMPORT, modules)

    def _ask(self, word: bytes, message=None) -> None:
        self.requests.sendall(word)
        if message is not None:
            wire.send(self.requests, message)
        if not self.requests.recv(1):
            raise EOFError


def serve(caller: socket.socket, requests: socket.socket, options: dict) -> None:
    """Judge what pool.py sends, until it hangs up."""
    # a million would let a deep message end this process
    set_depth = sys.setrecursionlimit
    sys.setrecursionlimit = lambda depth: set_depth(min(depth, 10_000))
    programs = Programs(requests)
    while True:
        job = wire.receive(caller)
        started = time.monotonic()
        verdict, way, traces = check(job, programs, options, lambda word: wire.send(caller, word))
        programs.end()
        milliseconds = round(1e3 * (time.monotonic() - started), 3)
        wire.send(caller, [*verdict, milliseconds, way, traces])


def check(job: dict, programs: Programs, options: dict, tell) -> tuple[list, str, bool]:
    """(the verdict on a job, how it was judged, whether the test may have left something here).

    Raises EOFError if the server is gone.
    """
    pairs = None
    try:
        if is_json(job["test"]):
            pairs = read_json(job["test"], job["entry_point"])
        if pairs is None:
            test = read_test(job["test"], job["setup"], job["entry_point"])
        else:
            if not pairs.pairs:
                why = "there is no input: nothing can be judged"
                return ["rejected", why, "test", 0, 1], "", False
            test = read_test(pairs.as_python(), "", pairs.entry_point(job["program"]))
            test.why = ""
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError) as error:
        why = f"the test cannot be used: {type(error).__name__}: {error}"
        return ["rejected", why[:MAX_WORDS], "test", 0, 1], "", False
    _load_modules(test, programs, tell)
    if test.why:
        verdict = _check_together(test, job, programs, options)
        return verdict, f"{TOGETHER}: {test.why}", False
    return ByValue(test, job, programs, tell, pairs).run(), BY_VALUE, test.leaves_traces


def _load_modules(test: Test, programs: Programs, tell) -> None:
    """Import what the test imports in the server, and here if the test runs here."""
    missing = [name for name in test.modules if name not in sys.modules]
    if not missing:
        return
    tell("loading")
    programs.load(missing)
    for name in missing if not test.why else ():
        with contextlib.suppress(Exception):  # the test says what is wrong with it
            __import__(name)
    tell("started")


def conclude(test: Test, held: set, lost: set, cut: int, failures: list) -> list:
    """The verdict: outcome, reason, fault, assertions that held, assertions.

    `failures` are (outcome, reason, fault), the first one counts; `cut` is how many errors were
    outside of all assertions: each has cost at least one that was not reached.
    """
    total = max(test.asserts, 1)
    passed = min(max(len(held - lost) - cut, 0), total - 1)
    missing = test.required - held
    if missing and not failures:
        failures = [("failed", f"{len(missing)} assertions were not reached", "program")]
    if failures:
        return [*failures[0], passed, total]
    return ["passed", "", "", total, total]


def explain(test: Test, name: str, text: str, missing: str) -> tuple[str, str, str]:
    """(outcome, reason, fault) for an error of the test, as `describe` gives it.

    `missing` is the name that a NameError or ImportError is about.
    """
    if name in ("AssertionError", "Failed"):
        return "failed", text or "an assertion does not hold", "program"
    reason = f"{name}: {text}"
    if name == "MemoryError":
        return "out of memory", reason, "program"
    if name not in CANNOT_RUN and name != "NameError":
        return "error", reason, "program"
    if missing == "solution" or missing in test.names.asked:
        return "rejected", f"the program does not define it: {reason}", "program"
    return "rejected", f"the test cannot run here: {reason}", "test"


# ------------------------------------------------------------------ by value


class ByValue(Assertions):
    """Runs a test here, and asks the program for its answers."""

    timed = False  # while it is, Late can come

    def __init__(self, test: Test, job: dict, programs: Programs, tell, pairs: Pairs | None):
        self.test, self.job, self.programs, self.tell = test, job, programs, tell
        self.pairs = pairs
        self.is_script = pairs is not None and not pairs.function
        self.sock: Any = None  # to the program's process
        if not self.is_script:
            message = [job["program"], "numpy" in test.names.modules]
            self.sock = programs.start(START_VALUE, message)
        self.deadline = time.monotonic() + job["seconds"]
        self.reached: set[int] = set()
        self.missed: set[int] = set()
        self.failures: list[tuple[str, str, str]] = []
        self.cut = self.calls = 0
        self.answered = False
        self.counted: BaseException | None = None  # the last error that cost an assertion
        pytest = sys.modules.get("pytest")
        if pytest is not None:
            self.errors = (Exception, pytest.fail.Exception)

    def run(self) -> list:
        """The verdict."""
        if not self._ends_in_time():
            self.cut += 1
            if self.answered:
                self.note("timeout", "the test did not end with the program's answers")
            else:
                self.note("timeout", "the test did not end", "test")
        if not self.calls:
            why = "the test never calls the candidate, so it would pass any program"
            self.note("rejected", why, "test")
        return conclude(self.test, self.reached, self.missed, self.cut, self.failures)

    def _ends_in_time(self) -> bool:
        """Execute the test; whether it ends in time. Late may come at any point until then."""
        try:
            signal.signal(signal.SIGALRM, _raise_late)  # a test before may have had its own
            ByValue.timed = True
            left = max(self.deadline - time.monotonic(), 0.001)
            signal.setitimer(signal.ITIMER_REAL, left, 0.1)  # again, for a test may catch it
            self._execute()
            return True
        except Late:
            ByValue.timed = False
            return False
        finally:
            ByValue.timed = False  # an assignment, not a call: no Late can come between
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _execute(self) -> None:
        module = types.ModuleType("__test__")
        solution = types.ModuleType("solution")
        vars(solution).update(__all__=self.test.names.free, __getattr__=self._member)
        sys.modules["__test__"], sys.modules["solution"] = module, solution
        names = vars(module)
        names["_workbook"] = self
        try:
            exec(self.test.setup_code, names)  # while the program is loaded
            if self.sock is not None:
                self._read_answer()
                self.answered = False  # what it defines is no answer yet
            names.update((name, self._member(name)) for name in self.test.names.asked)
            if self.is_script:
                names["candidate"] = self._run_script
            elif self.test.entry_point:
                names["candidate"] = Stub(self, self.test.entry_point, anew=False)
            if self.pairs is not None:
                names["_pairs"], names["_same"] = self.pairs.pairs, self.pairs.same
            exec(self.test.code, names)
            run(module, self.test.functions, self.test.needs_pytest, self._fail)
        except BaseException as error:  # pytest's and sys.exit's too
            self._fail(error)
        finally:
            sys.modules.pop("solution", None)
            sys.modules.pop("__test__", None)

    def _member(self, name: str) -> "Stub":
        """What stands for a name of the program."""
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub(self, name)

    # what the test reports

    def held(self, word: str) -> None:
        """An assertion holds: the word ends with its number."""
        self.reached.add(int(word.removeprefix(WORD)))

    def lost(self, number: int, error: BaseException) -> None:
        """An assertion does not hold."""
        self.missed.add(number)
        self.reached.add(number)
        self.counted = error
        self._explain(error)

    def _fail(self, error: BaseException | None) -> None:
        """An error outside of all assertions."""
        if isinstance(error, Late):
            raise error
        if error is not None:
            self.cut += error is not self.counted
            self._explain(error)

    def _explain(self, error: BaseException) -> None:
        if isinstance(error, Gone):
            return
        name, text, missing = describe(error)
        if "_of_program" in vars(error):  # whatever it is, the test is not to blame for it
            self.note("error", f"{name}: {text}")
        else:
            self.note(*explain(self.test, name, text, missing))

    def note(self, outcome: str, reason: str, fault: str = "program") -> None:
        """The first failure is the verdict, and nothing later can change it."""
        self.failures.append((outcome, reason[: MAX_WORDS + 200], fault))

    def _blame(self) -> None:
        """From now on the program is to blame for a test that does not end."""
        if not self.answered:
            self.answered = True
            self.tell("answered")

    def _stop(self, outcome: str, reason: str, fault: str = "program") -> NoReturn:
        """Note the outcome and end this call, and all later ones."""
        self.note(outcome, reason, fault)
        if self.sock is not None:
            self.sock.close()
        raise Gone

    # what the program answers

    def ask(self, expression: str, anew: bool, arguments: tuple, named: dict):
        """What the program's function answers; raises what it raised, or Gone."""
        self.calls += 1
        try:
            message = [expression, anew, wire.encode(arguments), wire.encode(named)]
            wire.send(self.sock, message)
        except (wire.NotPlain, RecursionError) as problem:
            self._stop("rejected", f"the test passes {problem}", "test")
        except OSError:
            self._stop("error", "the program ended its process")
        except Exception as problem:  # of an iterator of the test
            self._stop("rejected", f"what the test passes raises {type(problem).__name__}", "test")
        return self._read_answer()

    def _read_answer(self):
        """The value of the next answer."""
        try:
            answer = wire.receive(self.sock, self.deadline, self._blame)
        except (TimeoutError, Late):
            self._blame()
            self._stop("timeout", "no answer within the time limit")
        except (EOFError, OSError):
            self._blame()
            self._stop("error", "the program ended its process")
        except Exception:
            answer = None
        self._blame()
        return self._understand(answer)

    def _understand(self, answer):
        """The value in an answer; raises what the program raised."""
        match answer:
            case ["value", value]:
                with contextlib.suppress(Exception):
                    return wire.decode(value)
            case ["raised", ["MemoryError", *_], str(text), *_]:
                self._stop("out of memory", text or "MemoryError")
            case ["raised", [str(), *_] as names, str(text), arguments]:
                error = None
                with contextlib.suppress(Exception):
                    error = self._make_error(list(names), text[:MAX_WORDS], wire.decode(arguments))
                if error is not None:
                    raise error
            case ["missing", str(name)]:
                self._stop("rejected", f"the program does not define {name[:MAX_WORDS]}")
            case ["not plain", str(what)]:
                self._stop("rejected", f"the program returned {what[:MAX_WORDS]}")
        self._stop("error", NONSENSE)

    def _make_error(self, names: list, text: str, arguments) -> BaseException:
        """What the program raised, as an exception of a built-in class."""
        error_class: type = Exception
        for name in names:
            named = getattr(builtins, str(name), None)
            if isinstance(named, type) and issubclass(named, BaseException):
                error_class = named
                break
        # one that the test names may end it, or be taken for its own failure
        expected = error_class.__name__ in self.job["test"]
        if issubclass(error_class, ENDING):
            error_class = RuntimeError
        elif issubclass(
            error_class, UnicodeError | ExceptionGroup
        ):  # they need arguments of their own
            error_class = ValueError
        elif not issubclass(error_class, Exception) or issubclass(error_class, AssertionError):
            error_class = error_class if expected else RuntimeError
        if error_class.__name__ != names[0] or type(arguments) is not tuple:
            arguments = (text,)
        try:
            error = error_class(*arguments)
        except TypeError:
            error = error_class(text)
        error.args = arguments
        vars(error)["_of_program"] = True
        return error

    def _run_script(self, text: str) -> str:
        """What the program prints, run as a script with this input in a process of its own."""
        self.calls += 1
        self._blame()
        self.sock = self.programs.start(START_SCRIPT, self.job["program"])
        output = b""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self.sock, [b"o"], [theirs.fileno()])
            # in a thread, for the program may not read it
            _thread.start_new_thread(_feed, (ours, text))
            try:
                output = wire.read(ours, wire.MAX_MESSAGE, self.deadline, to_end=True)
                answer = wire.receive(self.sock, self.deadline)
            except TimeoutError:
                self.note("timeout", "no end within the time limit")
                raise Late from None
            except EOFError:
                answer = ["value", None]  # os._exit: its output counts
            except (OSError, ValueError, RecursionError):
                answer = None
        self._understand(answer)
        return output.decode("utf-8", "replace")


class Stub:
    """A function of the program in the test: an expression that finds it there."""

    def __init__(self, judge: ByValue, expression: str, anew: bool = True):
        self._judge, self._expression, self._anew = judge, expression, anew

    def __call__(self, *arguments, **named):
        return self._judge.ask(self._expression, self._anew, arguments, named)


def _raise_late(*_) -> None:
    if ByValue.timed:
        raise Late


def _feed(sock: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError):
        sock.sendall(text.encode("utf-8", "surrogateescape"))
        sock.shutdown(socket.SHUT_WR)


# ------------------------------------------------------------------ in one process


def _check_together(test: Test, job: dict, programs: Programs, options: dict) -> list:
    """Run program and test together; the verdict on what they report."""

    def failed(outcome: str, reason: str, fault: str = "program") -> list:
        return [outcome, reason, fault, 0, max(test.asserts, 1)]

    if not test.asks:
        return failed("rejected", "the test never calls the candidate", "test")
    if test.runs_answer:
        return failed("rejected", "the test would run what the program returns", "test")
    # a program cannot guess them, and finds them nowhere but in the test's own code
    words = [os.urandom(8).hex() for _ in range(test.asserts + 1)]  # the first one ends it
    message = {
        "program": job["program"],
        "setup": job["setup"],
        "entry_point": job["entry_point"],
        "test": _WORDS.sub(lambda match: words[int(match[1])], test.text),
        "end": words[0],
        "imports": test.modules,
        "imported": sorted(test.names.imported),
        "functions": test.functions,
        "needs_pytest": test.needs_pytest,
        "has_classes": bool(test.names.classes),
        "without": options.get("without", []),
    }
    try:
        sock = programs.start(START_TOGETHER, message)
        report: Any = wire.receive(sock, time.monotonic() + job["seconds"])
    except TimeoutError:
        return failed("timeout", "no end within the time limit")
    except (EOFError, ConnectionError):
        return failed("error", "the program ended its process")
    except (ValueError, RecursionError):
        return failed("error", NONSENSE)
    try:
        end, doubt, reported, errors = report
        held = {words.index(word) for word in reported}  # ValueError: it has made one up
        if end != words[0]:
            raise ValueError("it does not end as the test does")
        return _judge_report(test, held, errors, str(doubt), options)
    except (ValueError, TypeError):
        return failed("error", "the report is not the test's")


def _judge_report(test: Test, held: set[int], errors: list, doubt: str, options: dict) -> list:
    """The verdict on a complete run.

    `errors` are [number of the assertion or 0, class, text, missing name], `doubt` says which
    object decides by itself what it is equal to.
    """
    lost, failures = set(), []
    cut = 0
    if doubt:
        failures.append(("rejected", doubt[:MAX_WORDS], "test"))
    for number, name, text, missing in errors:
        lost.add(int(number))
        cut += number == 0
        refused = any(words in text for words in REFUSALS)
        needs_more = not options["files"] or not WALLED.isdisjoint(test.modules)
        if refused and needs_more:
            failures.append(("rejected", f"the walls do not let it run: {text}", "test"))
        failures.append(explain(test, str(name), text[:MAX_WORDS], missing))
    return conclude(test, held, lost, cut, failures)
