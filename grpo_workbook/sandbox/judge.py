"""The trusted side of one check: runs the test, and reaches the candidate over a socket.

Arguments go to the candidate as copies. The test's text and its expected values never leave this
process. Standard library only, and nothing of this package: the server loads this file by its path.
"""

import ast
import builtins
import socket
import time

import wire

MAX_WORDS = 400  # characters of the program's own words in a reason


def verdict(outcome: str, reason: str, fault: str, passed: int = 0, cases: int = 1) -> dict:
    """The fields of pool.Verdict that the servers fill in."""
    named = {"outcome": outcome, "reason": reason, "fault": fault}
    return named | {"cases_passed": passed, "cases": cases}


class Test:
    """A test's source, compiled so that it counts its assertions and goes on after one that failed.

    Raises SyntaxError, ValueError, RecursionError or MemoryError when the text is no Python.
    """

    __test__ = False  # pytest, this is no test of yours

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
        passed = ast.copy_location(ast.parse("_workbook_passed()").body[0], node)
        if guarded:
            return [node, passed]
        source = "try: pass\nexcept _workbook_error as _workbook_e: _workbook_failed(_workbook_e)"
        attempt = ast.parse(source).body[0]
        attempt.body, attempt.orelse = [node], [passed]
        return [attempt]


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
        counting = {"passed": self._passed, "failed": self._failed, "error": Exception}
        names: dict = {f"_workbook_{name}": value for name, value in counting.items()}
        names["__name__"] = "__test__"
        if self.test.setup is not None:
            builtins.exec(self.test.setup, names)
        candidate = self._candidate()
        names[self.job["entry_point"]] = names["candidate"] = candidate
        builtins.exec(self.test.code, names)
        if self.test.check:
            names["check"](candidate)
        for name in self.test.tests:
            names[name]()

    def _candidate(self):
        def candidate(*arguments, **named):
            try:
                call = wire.encode([list(arguments), named])
            except wire.NotPlain as problem:
                why = f"the test passes {problem}: only plain values cross"
                self._note("rejected", why, "test")
                raise
            self.calls += 1
            data = self._ask({"call": call})
            try:
                return wire.decode(data)
            except Exception as error:
                self._end("error", f"the answer is not in the agreed form ({type(error).__name__})")
                raise Gone from None

        candidate.__name__ = candidate.__qualname__ = self.job["entry_point"]
        return candidate

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
