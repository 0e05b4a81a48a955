"""The trusted side of one check: runs the test, and reaches the candidate over a socket. Used by the server only.

What crosses is JSON with tags, and comes back as exactly the types it names: None, bool, int, float, complex, str,
bytes, bytearray, list, tuple, dict, set, frozenset, range, and an iterator (as its items). So an object whose `__eq__`
always says yes never meets the test's `==`. Arguments go to the candidate as copies. The test's text and its expected
values never leave this process.

Standard library only, and nothing of this package.
"""

import ast
import builtins
import inspect
import json
import select
import socket
import struct
import time
import types

MAX_MESSAGE = 16 << 20  # bytes of one call's arguments or result
MAX_DEPTH = 150
MAX_ITEMS = 100_000  # of an iterator
MAX_WORDS = 400  # characters of the program's own words in a reason
_ITERATORS = (
    types.GeneratorType,
    map,
    filter,
    zip,
    enumerate,
    reversed,
    type(iter([])),
    type(iter(())),
)
_ITERATORS += (type(iter({})), type(iter(set())), type(iter("")), type(iter(range(0))))
_VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
_TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f", dict: "d"}


class NotPlain(Exception):
    """A value that may not cross."""


# ------------------------------------------------------------------ the wire


def encode(value, depth: int = 0):
    """What json can write, for a plain value; NotPlain for anything else, a subclass of a plain type included."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    if kind in _TAGS:
        items = [x for pair in value.items() for x in pair] if kind is dict else value
        return [_TAGS[kind], *(encode(x, depth + 1) for x in items)]
    if kind is bytes or kind is bytearray:
        return ["b" if kind is bytes else "a", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is range:
        return ["r", *(encode(x) for x in (value.start, value.stop, value.step))]
    if kind in _ITERATORS or kind in _VIEWS:
        items = []
        for item in value:
            if len(items) == MAX_ITEMS:
                raise NotPlain(f"an iterator of more than {MAX_ITEMS} items")
            items.append(encode(item, depth + 1))
        return ["g", *items]
    raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])


def decode(data):
    """The plain value; raises ValueError, TypeError or the like for what `encode` does not write."""
    if type(data) is not list:
        if type(data) is dict:
            raise ValueError("not in this form")
        return data
    tag, *rest = data
    if tag in ("b", "a"):
        return (bytes if tag == "b" else bytearray).fromhex(*rest)
    if tag == "i":
        return int(*rest, 16)
    if tag == "c":
        real, imag = rest
        return complex(float(real), float(imag))
    items = [decode(x) for x in rest]
    if tag == "d":
        return dict(zip(items[::2], items[1::2], strict=True))
    if tag == "g":
        return iter(items)
    return {"l": list, "t": tuple, "s": set, "f": frozenset, "r": lambda x: range(*x)}[tag](items)


def send(sock: socket.socket, message) -> None:
    """Send one message, of what JSON can hold. Raises NotPlain for one that is too large."""
    data = json.dumps(message, check_circular=False).encode("ascii")
    if len(data) > MAX_MESSAGE:
        raise NotPlain(f"{len(data) >> 20} MB of data")
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket, deadline: float | None = None):
    """The next message; raises EOFError at the end, TimeoutError at the deadline, ValueError for nonsense."""
    size = struct.unpack("!I", _read(sock, 4, deadline))[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(_read(sock, size, deadline))


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if (
            deadline is not None
            and not select.select([sock], [], [], max(0.0, deadline - time.monotonic()))[0]
        ):
            raise TimeoutError
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


# ------------------------------------------------------------------ the test


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
        functions = [
            s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name not in called
        ]
        self.check = any(f.name == "check" and len(f.args.args) == 1 for f in functions)
        self.tests = [f.name for f in functions if f.name.startswith("test") and not f.args.args]
        self.code = compile(ast.fix_missing_locations(tree), "<test>", "exec", dont_inherit=True)
        self.setup = compile(setup, "<setup>", "exec", dont_inherit=True) if setup else None

    def _block(self, statements: list, guarded: bool) -> list:
        """The same statements with counting; an assert whose failure the test itself may catch keeps raising."""
        out = []
        for node in statements:
            if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
                self.asserts += 1
                passed = ast.copy_location(ast.parse("_workbook_passed()").body[0], node)
                if guarded:
                    out += [node, passed]
                    continue
                wrapped = ast.parse(
                    "try: pass\nexcept _workbook_error as _workbook_e: _workbook_failed(_workbook_e)"
                )
                attempt = wrapped.body[0]
                attempt.body, attempt.orelse = [node], [passed]
                out.append(attempt)
                continue
            catches = (isinstance(node, ast.Try) and node.handlers) or isinstance(node, ast.With)
            for name in ("body", "orelse", "finalbody"):
                if isinstance(inner := getattr(node, name, None), list):
                    setattr(
                        node,
                        name,
                        self._block(inner, guarded or (bool(catches) and name == "body")),
                    )
            for handler in getattr(node, "handlers", []):
                handler.body = self._block(handler.body, guarded)
            for case in getattr(node, "cases", []):
                case.body = self._block(case.body, guarded)
            out.append(node)
        return out


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
        """The verdict: outcome, reason, fault, cases_passed and cases, as sandbox.Verdict has them."""
        try:
            if receive(self.sock, self.deadline)[0] != "ready":
                raise EOFError
        except (OSError, EOFError, ValueError):
            late = time.monotonic() >= self.deadline
            why = "the candidate's process did not start" + (
                " within the time limit" if late else ""
            )
            return {
                "outcome": "sandbox error",
                "reason": why,
                "fault": "sandbox",
                "cases_passed": 0,
                "cases": 1,
            }
        try:
            self._ask({"program": self.job["program"], "entry_point": self.job["entry_point"]})
            self._test()
        except Exception as error:
            self._failed(error)
        if self.first is None and not self.calls:
            self._note(
                "rejected", "the test never calls the candidate: it would pass anything", "test"
            )
        good = self.first is None
        total = max(self.test.asserts, self.passed + self.failed, 1)
        if not good and self.passed >= total:
            total = self.passed + 1  # what broke stood outside of any assertion
        outcome, reason, fault = self.first or ("passed", "", "")
        cases = total if good else self.passed
        return {
            "outcome": outcome,
            "reason": reason,
            "fault": fault,
            "cases_passed": cases,
            "cases": total,
        }

    def _test(self) -> None:
        names: dict = {
            "__name__": "__test__",
            "_workbook_passed": self._passed,
            "_workbook_failed": self._failed,
            "_workbook_error": Exception,
        }
        candidate = self._candidate()
        if self.test.setup is not None:
            builtins.exec(self.test.setup, names)
        names[self.job["entry_point"]] = names["candidate"] = candidate
        builtins.exec(self.test.code, names)
        if self.test.check:
            names["check"](candidate)
        for name in self.test.tests:
            if not inspect.signature(names[name]).parameters:
                names[name]()

    def _candidate(self):
        def candidate(*arguments, **named):
            try:
                call = encode([list(arguments), named])
            except NotPlain as problem:
                self._note(
                    "rejected", f"the test passes {problem}: only plain values cross", "test"
                )
                raise
            self.calls += 1
            return decode_result(self._ask({"call": call}))

        def decode_result(data):
            try:
                return decode(data)
            except Exception as error:
                self._end("error", f"the answer is not in the agreed form ({type(error).__name__})")
                raise Gone from None

        candidate.__name__ = candidate.__qualname__ = self.job["entry_point"]
        return candidate

    def _ask(self, message: dict):
        """The candidate's answer to one message; raises what it raised, or Gone."""
        if self.over:
            raise Gone
        try:
            send(self.sock, message)
            kind, data = receive(self.sock, self.deadline)
        except NotPlain as problem:
            self._note("rejected", f"the test passes {problem}", "test")
            raise
        except TimeoutError:
            self._end("timeout", "no answer within the time limit")
        except (EOFError, OSError):
            self._end("error", "the program ended its process")
        except (ValueError, TypeError, RecursionError):
            self._end("error", "the answer is not in the agreed form")
        else:
            if kind == "value":
                return data
            if kind == "raised" and type(data) is list and [type(x) for x in data] == [str, str]:
                self._raise(*data)
            elif kind == "not plain" and type(data) is str:
                self._note(
                    "rejected", f"the program returned {data[:MAX_WORDS]}: only plain values cross"
                )
                raise Gone
            elif kind == "missing":
                self._end("rejected", f"the program does not define {self.job['entry_point']}")
            self._end("error", "the answer is not in the agreed form")
        raise Gone

    def _raise(self, name: str, words: str) -> None:
        """Raise what the candidate raised: a built-in exception by its name. Leaving is no exception like others."""
        words = words[:MAX_WORDS]
        cls = getattr(builtins, name, None)
        if name == "MemoryError":
            self._end("out of memory", words or "MemoryError")
        elif not (isinstance(cls, type) and issubclass(cls, Exception)):
            self._end("error", f"{name[:80]}: {words}")
        elif issubclass(cls, NotPlain | UnicodeError | ExceptionGroup):
            raise ValueError(words)
        else:
            raise cls(words)
        raise Gone

    def _note(self, outcome: str, reason: str, fault: str = "program") -> None:
        """The first thing that went wrong is the verdict: nothing that comes later can mend it."""
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
