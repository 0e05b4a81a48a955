"""The judge server, started by `pool.py`: it reads one job at a time and runs its test.

The program runs in a candidate, a fork of `candidate.py` behind walls. Judge and candidate have one
socket pair for each job; the test's text and its expected values never leave this process. If a
test does not end, `pool.py` ends this process. Standard library only.
"""

import ast
import builtins
import functools
import os
import select
import socket
import sys
import threading
import time

import jail
import wire

MAX_WORDS = 400  # characters from the program in a reason
COUNTED = """_workbook_passed()
try: pass
except _workbook_error as _workbook_e: _workbook_failed(_workbook_e)"""


class Test:
    """A test's source, compiled to count its assertions and to continue after a failed one."""

    def __init__(self, source: str, setup: str):
        tree = ast.parse(source)
        self.asserts = 0
        tree.body = self._block(tree.body, False)
        plain = [s for s in tree.body if not isinstance(s, ast.FunctionDef | ast.ClassDef)]
        used = {n.id for s in plain for n in ast.walk(s) if isinstance(n, ast.Name)}
        takes = {s.name: len(s.args.args) for s in tree.body if isinstance(s, ast.FunctionDef)}
        wanted = {x: int(x == "check") for x in takes if x == "check" or x.startswith("test")}
        self.calls = {x: n for x, n in wanted.items() if takes[x] == n and x not in used}
        self.code = compile(ast.fix_missing_locations(tree), "<test>", "exec", dont_inherit=True)
        self.setup = compile(setup, "<setup>", "exec", dont_inherit=True)

    def _block(self, statements: list, guarded: bool) -> list:
        """The same statements, counted; an assert whose failure may be caught still raises."""
        out = []
        for node in statements:
            if isinstance(node, ast.Assert) and not isinstance(node.test, ast.Constant):
                self.asserts += 1
                passed, attempt = ast.parse(COUNTED).body
                attempt.body, attempt.orelse = [node], [passed]
                out += [node, passed] if guarded else [attempt]
                continue
            catches = bool(getattr(node, "handlers", [])) or isinstance(node, ast.With)
            for part in [node, *getattr(node, "handlers", []), *getattr(node, "cases", [])]:
                for name in ("body", "orelse", "finalbody"):
                    if isinstance(inner := getattr(part, name, None), list):
                        inside = catches and part is node and name == "body"
                        setattr(part, name, self._block(inner, guarded or inside))
            out.append(node)
        return out


class Gone(Exception):
    """The candidate does not answer any more."""


class Judge:
    """Runs one test against one program, until `deadline` (of time.monotonic)."""

    def __init__(self, test: Test, job: dict, sock: socket.socket, deadline: float):
        self.test, self.job, self.sock, self.deadline = test, job, sock, deadline
        self.passed = self.failed = self.calls = 0
        self.first: tuple[str, str, str] | None = None  # outcome, reason, fault

    def run(self) -> list:
        """The verdict on the program: the first five fields of pool.Verdict."""
        try:
            wire.receive(self.sock, self.deadline)
        except (OSError, EOFError):
            return ["sandbox error", "the candidate did not start", "sandbox", 0, 1]
        names: dict = {"__name__": "__test__", "_workbook_error": Exception}
        names |= {"_workbook_passed": self._passed, "_workbook_failed": self._failed}
        name = self.job["entry_point"]
        try:
            self._ask({"program": self.job["program"], "entry_point": name})
            exec(self.test.setup, names)
            names[name] = names["candidate"] = self._candidate
            exec(self.test.code, names)
            for function, n in self.test.calls.items():
                names[function](*[self._candidate] * n)
        except Exception as error:
            self._failed(error)
        if not self.calls:
            why = "the test never calls the candidate, so it would pass any program"
            self._note("rejected", why, "test")
        total = max(self.test.asserts, self.passed + self.failed, 1)
        if self.first is None:
            return ["passed", "", "", total, total]
        # at least one case is lost, even if the error was outside of all assertions
        return [*self.first, self.passed, max(total, self.passed + 1)]

    def _candidate(self, *arguments, **named):
        """The test's candidate: it calls the program's function in the other process."""
        self.calls += 1
        try:
            return self._ask({"call": wire.encode([list(arguments), named])})
        except wire.NotPlain as problem:
            why = f"the test passes {problem}: only plain values up to 16 MB are possible"
            self._note("rejected", why, "test")
            raise

    def _ask(self, message: dict):
        """The candidate's answer to one message; raises what it raised, or Gone."""
        kind, data = "", None
        try:
            wire.send(self.sock, message)
            kind, data = wire.receive(self.sock, self.deadline)
            if kind == "value":
                return wire.decode(data)
        except TimeoutError:
            self._end("timeout", "no answer within the time limit")
        except (EOFError, OSError):
            self._end("error", "the program ended its process")
        except (ValueError, TypeError, LookupError, RecursionError):
            kind = "nonsense"
        match kind, data:
            case "raised", [str(name), str(words)]:
                self._raise(name, words[:MAX_WORDS])
            case "not plain", str(what):
                why = f"the program returned {what[:MAX_WORDS]}: only plain values are possible"
                self._note("rejected", why)  # continue: another call may return a plain value
                raise Gone
            case "missing", _:
                self._end("rejected", f"the program does not define {self.job['entry_point']}")
        self._end("error", "the answer breaks the protocol")

    def _raise(self, name: str, words: str) -> None:
        """Raise what the candidate raised: a built-in exception by its name, but no SystemExit."""
        cls = getattr(builtins, name, None)
        if name == "MemoryError":
            self._end("out of memory", words or "MemoryError")
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            self._end("error", f"{name[:80]}: {words}")
        raise (ValueError if issubclass(cls, UnicodeError | ExceptionGroup) else cls)(words)

    def _note(self, outcome: str, reason: str, fault: str = "program") -> None:
        """The first failure is the verdict, and nothing later can change it."""
        if self.first is None:
            self.first = outcome, reason[: MAX_WORDS + 200], fault

    def _end(self, outcome: str, reason: str) -> None:
        self._note(outcome, reason)
        self.sock.close()  # so that every later call ends here too
        raise Gone

    def _passed(self) -> None:
        self.passed += 1

    def _failed(self, error: Exception) -> None:
        self.failed += 1
        words = str(error)[:MAX_WORDS]
        if isinstance(error, AssertionError):
            self._note("failed", words or "an assertion does not hold")
        elif not isinstance(error, Gone):
            self._note("error", f"{type(error).__name__}: {words}")


compiled = functools.lru_cache(maxsize=256)(Test)


def check(job: dict, control: socket.socket, seconds: float) -> list:
    """The verdict on one job; ends its candidate. OSError: the servers are gone."""
    try:
        test = compiled(job["test"], job["setup"])
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        why = f"the test is not Python: {type(error).__name__}: {error}"
        return ["rejected", why[:400], "test", 0, 1]
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(control, [b"b"], [theirs.fileno()])
        answer = Judge(test, job, ours, time.monotonic() + seconds).run()
    control.settimeout(5.0)
    control.sendall(b"e")  # kills it, with all its processes
    if control.recv(1) != b"k":
        raise BrokenPipeError
    return answer


def leave_with(caller: socket.socket) -> None:
    """End this process at any point as soon as the other end of the socket is closed."""
    poll = select.poll()
    poll.register(caller, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve the process that started this one, over the socket that is standard input."""
    del sys.path[0]  # a test must not import these files
    caller, options = wire.take_socket()
    threading.Thread(target=leave_with, args=[caller], daemon=True).start()
    _process, control = wire.start_server("candidate.py", options)
    walls = wire.receive(control, time.monotonic() + wire.START_LIMIT)
    jail.prctl(jail.PR_SET_DUMPABLE, 0)
    jail.limit(2 * options["memory_mb"])
    if walls["filter"]:
        jail.filter_calls(None)
        jail.filter_calls(os.getpid())
    wire.send(caller, walls)
    while True:
        job = wire.receive(caller)
        started = time.monotonic()
        answer = check(job, control, options["time_limit"])
        wire.send(caller, [*answer, round(1e3 * (time.monotonic() - started), 3)])


if __name__ == "__main__":
    main()
