"""The judge server, which `pool.py` starts fresh: an isolated Python with an empty environment.

It reads one job at a time from its socket and runs the test. The program runs in a candidate, which
its child forks: `candidate.py`, behind walls. The two share one socket pair, made for this job
alone; the test's text and its expected values never leave this process. A test that does not end is
no matter of this process: `pool.py` ends it, and starts another. Standard library only.
"""

import ast
import builtins
import functools
import gc
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jail
import wire

del sys.path[0]

HERE = os.path.dirname(os.path.abspath(__file__))
READY_LIMIT = 30.0  # seconds for the candidate server to come up
MAX_WORDS = 400  # characters of the program's own words in a reason


def verdict(outcome: str, reason: str, fault: str, passed: int = 0, cases: int = 1) -> dict:
    """The fields of pool.Verdict that the servers fill in."""
    said = {"outcome": outcome, "reason": reason, "fault": fault}
    return said | {"cases_passed": passed, "cases": cases}


class Test:
    """A test's source, compiled so that it counts its assertions and goes on after one that failed.

    Raises SyntaxError, ValueError, RecursionError or MemoryError when the text is no Python.
    """

    def __init__(self, source: str, setup: str = ""):
        tree = ast.parse(source)
        self.asserts = 0
        tree.body = self._block(tree.body, False)
        called = {
            call.func.id
            for statement in tree.body
            if not isinstance(statement, ast.FunctionDef | ast.ClassDef)
            for call in ast.walk(statement)
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        }
        functions = {s.name: s.args for s in tree.body if isinstance(s, ast.FunctionDef)}
        functions = {name: given for name, given in functions.items() if name not in called}
        self.check = "check" in functions and len(functions["check"].args) == 1
        plain = [name for name, given in functions.items() if not ast.unparse(given)]
        self.tests = [name for name in plain if name.startswith("test")]
        self.code = compile(ast.fix_missing_locations(tree), "<test>", "exec", dont_inherit=True)
        self.setup = compile(setup, "<setup>", "exec", dont_inherit=True) if setup else None

    def _block(self, statements: list, guarded: bool) -> list:
        """The same statements, counted; an assert whose failure may be caught still raises."""
        out = []
        for node in statements:
            if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
                self.asserts += 1
                out += self._counted(node, guarded)
                continue
            catches = (isinstance(node, ast.Try) and node.handlers) or isinstance(node, ast.With)
            for name in ("body", "orelse", "finalbody"):
                if isinstance(inner := getattr(node, name, None), list):
                    inside = guarded or (bool(catches) and name == "body")
                    setattr(node, name, self._block(inner, inside))
            for part in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                part.body = self._block(part.body, guarded)
            out.append(node)
        return out

    @staticmethod
    def _counted(node: ast.Assert, guarded: bool) -> list:
        source = "try: pass\nexcept _workbook_error as _workbook_e: _workbook_failed(_workbook_e)"
        passed, attempt = ast.parse("_workbook_passed()\n" + source).body
        attempt.body, attempt.orelse = [node], [passed]
        return [node, passed] if guarded else [attempt]


class Gone(Exception):
    """The candidate answers no more."""


class Judge:
    """Runs one test against one program, until `deadline` (of time.monotonic)."""

    def __init__(self, test: Test, job: dict, sock: socket.socket, deadline: float):
        self.test, self.job, self.sock, self.deadline = test, job, sock, deadline
        self.passed = self.failed = self.calls = 0
        self.first: tuple[str, str, str] | None = None  # outcome, reason, whose fault
        self.over = False

    def run(self) -> dict:
        """What became of the program, as `verdict` gives it."""
        try:
            if wire.receive(self.sock, self.deadline)[0] != "ready":
                raise EOFError
        except (OSError, EOFError, ValueError):
            late = " within the time limit" * (time.monotonic() >= self.deadline)
            return verdict("sandbox error", f"the candidate did not start{late}", "sandbox")
        try:
            self._ask({"program": self.job["program"], "entry_point": self.job["entry_point"]})
            self._test()
        except Exception as error:
            self._failed(error)
        if self.first is None and not self.calls:
            why = "the test never calls the candidate: it would pass anything"
            self._note("rejected", why, "test")
        total = max(self.test.asserts, self.passed + self.failed, 1)
        if self.first is None:
            return verdict("passed", "", "", total, total)
        # at least one case is lost, also where what broke stood outside of any assertion
        return verdict(*self.first, self.passed, max(total, self.passed + 1))

    def _test(self) -> None:
        names: dict = {"__name__": "__test__", "_workbook_error": Exception}
        names |= {"_workbook_passed": self._passed, "_workbook_failed": self._failed}
        if self.test.setup is not None:
            builtins.exec(self.test.setup, names)
        names[self.job["entry_point"]] = names["candidate"] = self._candidate
        builtins.exec(self.test.code, names)
        if self.test.check:
            names["check"](self._candidate)
        for name in self.test.tests:
            names[name]()

    def _candidate(self, *arguments, **named):
        """What the test calls: the program's function, in the other process."""
        try:
            call = wire.encode([list(arguments), named])
        except wire.NotPlain as problem:
            self._note("rejected", f"the test passes {problem}: only plain values cross", "test")
            raise
        self.calls += 1
        data = self._ask({"call": call})
        try:
            return wire.decode(data)
        except Exception as error:
            self._end("error", f"the answer is not in the agreed form ({type(error).__name__})")
            raise Gone from None

    def _ask(self, message: dict):
        """The candidate's answer to one message; raises what it raised, or Gone."""
        if self.over:
            raise Gone
        kind, data = "", None
        try:
            wire.send(self.sock, message)
            kind, data = wire.receive(self.sock, self.deadline)
        except wire.NotPlain as problem:
            self._note("rejected", f"the test passes {problem}", "test")
            raise
        except TimeoutError:
            self._end("timeout", "no answer within the time limit")
        except (EOFError, OSError):
            self._end("error", "the program ended its process")
        except (ValueError, TypeError, RecursionError):
            pass  # nonsense
        if kind == "value":
            return data
        if kind == "raised" and type(data) is list and [type(x) for x in data] == [str, str]:
            self._raise(*data)
        elif kind == "not plain" and type(data) is str:
            why = f"the program returned {data[:MAX_WORDS]}: only plain values cross"
            self._note("rejected", why)  # and go on: another call may return a plain value
            raise Gone
        elif kind == "missing":
            self._end("rejected", f"the program does not define {self.job['entry_point']}")
        self._end("error", "the answer is not in the agreed form")
        raise Gone

    def _raise(self, name: str, words: str) -> None:
        """Raise what the candidate raised: a built-in exception by its name, but no SystemExit."""
        words = words[:MAX_WORDS]
        cls = getattr(builtins, name, None)
        if name == "MemoryError":
            self._end("out of memory", words or "MemoryError")
        elif not (isinstance(cls, type) and issubclass(cls, Exception)):
            self._end("error", f"{name[:80]}: {words}")
        elif issubclass(cls, UnicodeError | ExceptionGroup):
            raise ValueError(words)
        else:
            raise cls(words)
        raise Gone

    def _note(self, outcome: str, reason: str, fault: str = "program") -> None:
        """The first thing that went wrong is the verdict: nothing later can change it."""
        if self.first is None:
            self.first = outcome, reason[: MAX_WORDS + 200], fault

    def _end(self, outcome: str, reason: str) -> None:
        self._note(outcome, reason)
        self.over = True

    def _passed(self) -> None:
        if not self.over:
            self.passed += 1

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        if isinstance(error, Gone):
            return
        words = str(error)[:MAX_WORDS]
        if isinstance(error, AssertionError):
            self._note("failed", words or "an assertion does not hold")
        else:
            self._note("error", f"{type(error).__name__}: {words}")


def start_candidates(options: dict) -> tuple[socket.socket, dict]:
    """The candidate server's socket, and which walls it could put up (see candidate.py)."""
    control, theirs = socket.socketpair()
    more = json.dumps({**options, "control": theirs.fileno()})
    with theirs:
        command = [sys.executable, "-I", "-S", "-B", os.path.join(HERE, "candidate.py"), more]
        silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        how = {"pass_fds": [theirs.fileno()], "start_new_session": True, "cwd": "/"}
        subprocess.Popen(command, **silent, **how)
    return control, wire.receive(control, time.monotonic() + READY_LIMIT)


@functools.lru_cache(maxsize=256)
def compiled(source: str, setup: str) -> Test | str:
    """The test, compiled once; why it cannot be, where it is no Python."""
    try:
        return Test(source, setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the test is no Python: {type(error).__name__}: {error}"[:400]


def check(job: dict, control: socket.socket, seconds: float) -> dict:
    """The verdict on one job, whose candidate is gone afterwards. OSError: the servers are."""
    test = compiled(job["test"], job["setup"])
    if isinstance(test, str):
        return verdict("rejected", test, "test")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(control, [b"b"], [theirs.fileno()])
        answer = Judge(test, job, ours, time.monotonic() + seconds).run()
    control.settimeout(5.0)
    control.sendall(b"e")  # it is killed, with all that it left behind
    if control.recv(1) != b"k":
        raise BrokenPipeError
    return answer


def leave_with(caller: socket.socket) -> None:
    """End this process, in whatever it is, as soon as the other end of the socket is gone."""
    poll = select.poll()
    poll.register(caller, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve the process that started this one, over the socket that is standard input."""
    options = json.loads(sys.argv[1])
    caller = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=leave_with, args=[caller], daemon=True).start()
    control, walls = start_candidates(options)
    gc.freeze()
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
    jail.limit(2 * options["memory_mb"])
    if walls["filter"]:
        jail.filter_calls(None)
        jail.filter_calls(os.getpid())
    wire.send(caller, {"isolation": walls["level"], "why": walls["why"]})
    while True:
        job = wire.receive(caller)
        started = time.monotonic()
        answer = check(job, control, options["time_limit"])
        wire.send(caller, answer | {"ms": round(1e3 * (time.monotonic() - started), 3)})


if __name__ == "__main__":
    main()
