"""The judge server, started by `pool.py`: it reads one job at a time and runs its test.

The program runs in a candidate, a fork of `candidate.py` behind walls. Judge and candidate have one
socket pair for each job; the test's text and its expected values never leave this process. A job
has one deadline. Where a C function of Python does not end (a power, a pattern), `pool.py` ends
this process, and knows from it whether the program had answered. Standard library only.
"""

import ast
import asyncio
import builtins
import contextlib
import decimal
import functools
import inspect
import json
import numbers
import os
import random
import re
import select
import signal
import socket
import sys
import threading
import time
import types
import unittest.mock

import jail
import wire
from forms import Forms
from handles import Handle, Thing, handle
from source import CALLS, PLAIN_NAMES, SCRIPT, Test, is_json, read_json, same_output, same_value

MAX_WORDS = 400  # characters from the program in a reason
COUNTING = 0.2  # seconds to count the cases that a program did not reach
NONSENSE = "the answer breaks the protocol"
# what ends a loop of the test
_LOOP_ENDS = (StopIteration, StopAsyncIteration, GeneratorExit, unittest.SkipTest)
_EVALUATE = "__main__ collections dataclasses ast".split()  # their own text
_OPERATORS = {"__eq__", "__lt__", "__hash__", "__iter__", "__getitem__", "__enter__", "__add__"}
_PLAIN = {kind.__name__: kind for kind in wire.PLAIN}
_ORDER = random.SystemRandom()  # no seed of the test or guess of the program tells it


class Gone(Exception):
    """The candidate does not answer any more."""


class Late(BaseException):
    """The deadline is over."""


def _late(*_):
    if Judge.timed:
        raise Late


def _ends_within(seconds: float, run) -> bool:
    """Whether it ends in time; 0: there is no limit. Late may come at any point until then."""
    try:
        signal.signal(signal.SIGALRM, _late)  # a test before may have had its own
        Judge.timed = True
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.1)  # again, for a test may catch it
        run()
        return True
    except Late:
        Judge.timed = False
        return False
    finally:
        Judge.timed = False  # an assignment, not a call: no Late can come between
        signal.setitimer(signal.ITIMER_REAL, 0)


def _guard(event: str, arguments: tuple) -> None:
    """An audit hook: no test evaluates or unpickles what may be the program's text.

    It may evaluate its own text and sums; some modules of Python evaluate only what they write.
    """
    judge = Judge.running
    if event not in ("compile", "pickle.find_class") or not judge or not judge.answered:
        return
    frame, modules = sys._getframe(1), []
    while frame:
        modules.append(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    if event == "compile":
        if modules[0] in _EVALUATE or any("importlib" in module for module in modules):
            return
        text = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        if isinstance(text, str) and (text in judge.test.texts or judge.is_plain(text)):
            return
    judge.stop("rejected", "the test would run what the program returns", "test")


def _result_of(coroutine) -> tuple:
    """(what it returns, whether it has waited), also inside of the event loop of an async test."""

    async def watched():
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)  # its first step
        waited = not task.done()
        return await task, waited

    outer = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        return asyncio.run(watched())
    finally:
        asyncio._set_running_loop(outer)


def _has_methods(kind: type) -> bool:
    """Whether it is a class of the test's with methods: its objects stay here."""
    own = [vars(c) for c in kind.__mro__ if c.__module__ == "__test__"]
    named = [(n, x) for one in own for n, x in one.items() if isinstance(x, types.FunctionType)]
    return any(n == "__call__" or not n.startswith("_") for n, _ in named)


def _takes(function) -> list:
    """Its parameters for JSON: name, kind, [default], [annotation]."""
    found = []
    with contextlib.suppress(ValueError, TypeError):  # not of every built-in function
        for one in inspect.signature(function).parameters.values():
            default = _plainly(one.default) or [None] * (one.default is not one.empty)
            found.append([str(one.name), int(one.kind), default, _plainly(one.annotation)])
    return found


def _plainly(value) -> list:
    """[the value for JSON], if it is a simple one or a built-in type."""
    if type(value) in (bool, int, float, str):
        return [value]
    known = isinstance(value, type) and vars(builtins).get(value.__name__) is value
    return [["K", value.__name__]] if known else []


def _same_method(one, other) -> bool:
    methods = types.MethodType | types.BuiltinMethodType
    return isinstance(one, methods) and isinstance(other, methods) and one == other


@functools.cache
def _strict_numpy():
    """The class of empty arrays; patches NumPy, where an empty array is close to any number.

    Not here, for it is no right answer: also not in `(f(x) == 5).all()` and `pytest.approx`.
    """
    import numpy.testing

    def refuse(*values):
        with contextlib.suppress(ValueError):  # lists of different lengths
            if len({numpy.size(x) > 0 for x in values[:2]}) > 1:
                raise AssertionError("an empty array is no right answer")

    def strict(compare):
        @functools.wraps(compare)
        def close(*given, **named):
            refuse(*inspect.signature(compare).bind(*given, **named).args)
            return compare(*given, **named)

        return close

    def operate(self, function, method, *values, **named):
        refuse(self, *filter(numpy.size, values))
        return getattr(function, method)(*map(numpy.asarray, values), **named)

    compares = [(numpy.testing, x) for x in vars(numpy.testing) if x.startswith("assert_")]
    for module, name in [*compares, *((numpy, x) for x in ("allclose", "isclose", "array_equiv"))]:
        setattr(module, name, strict(getattr(module, name)))
    flat = property(lambda _: refuse([], 0))  # what pytest.approx reads
    own = {"__module__": "numpy", "__array_ufunc__": operate, "flat": flat}
    return type("ndarray", (numpy.ndarray,), own)


def count_cases(test: Test, job: dict, answers: list) -> int:
    """How many cases the test has at most where the program's every answer is one of these."""
    anything, counts = unittest.mock.MagicMock(), []  # equal to all
    for name in "eq ne lt le gt ge contains bool".split():
        getattr(anything, f"__{name}__").return_value = True
    for answer in (anything, *answers):
        run = Judge(test, job | {"entry_point": test.root})
        run.member = lambda _, answer=answer: lambda *_, **__: answer
        run.answered = True
        _ends_within(COUNTING, run.execute)
        counts.append(run.passed + run.failed)
    return max(counts)


def _same(one, other) -> bool:
    """Equal, without a question to the program."""
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    of_program = isinstance(one, Handle) or isinstance(other, Handle)
    return one is other or not (of_program or one != other)


def like(value, step: int, at: float = 0.999):
    """Another value of this type, or object that is made from others; the same if none is known."""
    kind, changed = type(value), value
    if kind is bool:
        return value
    if isinstance(value, Handle):
        if (recipe := like(value._thing.recipe, step, at)) is value._thing.recipe:
            return value
        kind, given, named = recipe
        return kind._thing.judge.ask("new", kind, *given, **named)  # as the one that was made
    if kind is float:
        with contextlib.suppress(ArithmeticError, ValueError, TypeError):
            exact = decimal.Decimal(repr(value))
            changed = float(exact + decimal.Decimal(step).scaleb(exact.as_tuple().exponent))
    elif isinstance(value, numbers.Number):
        changed = value + step
    elif kind is str:
        k = int(at * len(value))
        changed = value[:k] + chr(max(ord(value[k : k + 1] or "a") + step, 0)) + value[k + 1 :]
    elif kind in (list, tuple, set, frozenset):
        changed = kind(like(x, step, at) for x in value)
    elif kind is dict:
        changed = {name: like(x, step, at) for name, x in value.items()}
    return value if _same(changed, value) else changed  # an infinite number, an empty list


class Judge(Forms, wire.Peer):
    """Runs one test against one program, until `deadline` (of time.monotonic)."""

    ends = Gone, Late
    running: "Judge | None" = None
    timed = False  # while it is, Late can come
    touched = False  # a test may have changed a module
    error, same_value = Exception, staticmethod(same_value)  # for the compiled test
    same_output = staticmethod(same_output)

    def __init__(self, test: Test, job: dict, sock=None, deadline: float = 0, begin=None):
        super().__init__(sock)
        self.test, self.passed, self.failed, self.raised_one = test, 0, 0, False
        self.names, self.pairs = {}, job.get("pairs", ())
        self.job, self.deadline, self.begin = job, deadline, begin
        self.asks, self.seen = 0, {}  # and an answer of each type
        self.called = 0 if sock or begin else 10**9  # calls; to count cases: no limit
        self.ready = self.answered = self.ended = self.unreached = False
        self.first: tuple[str, str, str] | None = None  # outcome, reason, fault
        self.functions, self.things, self.held = [], {}, {}
        self.foreign = [f"the program has a copy of {name}" for name in test.keeps]
        self.wanted: set[int] = set()  # classes that the test names
        self.holders: set[int] = set()  # and whose methods are called: no answer is one of them
        self.members: set[int] = set()  # objects that it has asked such a class for by name
        self.errors, self.sent = {}, {}  # classes: of the program's errors, of objects it was given
        self.lock = threading.RLock()
        self.module = handle(Thing(judge=self, place=0, what="module"))

    def run(self) -> list:
        """The verdict on the program: the first five fields of pool.Verdict."""
        # a script has its own deadline: none may come while the server ends a candidate
        left = 0 if self.begin else max(self.deadline - time.monotonic(), 0.001)
        if not _ends_within(left, self.execute):
            self.unreached = True
            why = "the test did not end" + (" with the program's answers" if self.answered else "")
            self.note("timeout", why, "program" if self.answered else "test")
        return self._verdict()

    def _verdict(self) -> list:
        test = self.test
        if not self.asks:
            why = "the test never calls the candidate, so it would pass any program"
            self.note("rejected", why, "test")
        if test.asserts and not (self.passed or self.failed or self.raised_one):
            self.note("failed", "no assertion of the test was reached")
        total = max(test.asserts, len(self.pairs), self.passed + self.failed, 1)
        if self.first is None:
            return ["passed", "", "", total, total]
        why = [f"the test uses {x}, which does not reach the program" for x in test.elsewhere]
        if (why := [*why, *self.foreign]) and self.first[2] == "program":
            self.first = "rejected", f"{why[0]}; {self.first[1]}", "test"
        if self.unreached and self.passed:
            total = max(total, count_cases(test, self.job, [*self.seen.values()]))
        # at least one case is lost, even if the error was outside of all assertions
        return [*self.first, self.passed, max(total, self.passed + 1)]

    def execute(self) -> None:
        """Run all of the test."""
        Judge.running, test = self, self.test
        Judge.touched = test.touches
        module = sys.modules["__test__"] = types.ModuleType("__test__")  # dataclasses look there
        vars(module).update(self.names, _workbook=self)
        self.names = vars(module)
        solution = sys.modules["solution"] = types.ModuleType("solution")
        solution.__all__ = test.free  # for `from solution import *`
        if "numpy" in test.modules:
            with contextlib.suppress(ImportError):
                _strict_numpy()
        try:
            exec(test.setup, self.names)
            self.ready = not test.root
            if self.sock:
                self.blame(reply := self.converse())
                self._understand(reply)  # the program is loaded
            solution.__getattr__ = self.member
            if test.root:
                self._enter(test.root)
            exec(test.code, self.names)
            for name in ("setup_module", *test.functions, "teardown_module"):
                if name in test.functions:
                    self.run_function(self.names[name])
                elif part := self.names.get(name):
                    module = types.SimpleNamespace()
                    part(*[module] * part.__code__.co_argcount)
                    self.names.update(vars(module))
            for kind in [x for x in self.names.values() if isinstance(x, type)]:
                if kind.__module__ == "__test__":
                    self.run_class(kind)
        except BaseException as error:  # pytest's and sys.exit's too
            self.fail_one(error, outside=True)
        finally:
            Judge.running = None
            sys.modules.pop("solution", None)

    def _enter(self, root: str) -> None:
        """Give the test the program's entry point, perhaps Solution().f."""
        found = None
        for name in [*({*self.test.free} & (self.test.class_names - {root})), root]:
            with contextlib.suppress(AttributeError):
                found = self.member(name)
                if name == root or isinstance(found, type) or found._thing.wanted:
                    self.names[name] = found
        if callable(found):
            exec(f"candidate = {self.job['entry_point']}", self.names)
            found = self.names["candidate"]
        if not callable(found):
            self.stop("rejected", f"the program does not define {self.job['entry_point']}")
        self.asks, self.ready = 0, True
        if isinstance(found, type):  # a built-in type crosses as itself, and so is called here
            self.asks, self.called = 1, 10**9

    def type_of(self, value):
        """What `type(value)` and `value.__class__` are for the test."""
        return self.ask("type", value) if issubclass(type(value), Handle) else type(value)

    def member(self, name: str):
        """What stands for a name of the program."""
        if self.begin:
            return self.run_script
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.ask("getattr", self.module, name)
        plain = not name[0].isupper() or name.isupper()  # not for a class
        if type(found) in wire.MUTABLE and plain and name not in {*self.test.calls, self.test.root}:
            self.foreign = [f"the test has a copy of the program's {name}, which does not change"]
        is_class = isinstance(found, Handle) and found._thing.what == "class"
        if is_class and name in self.test.class_names:
            self.wanted.add(found._thing.place)
            if name == self.test.root and "." in self.job["entry_point"]:
                self.holders.add(found._thing.place)
            found._thing.wanted = True
        return found

    def run_script(self, text: str) -> str:
        """What the program prints, run as a script with this input in a process of its own."""
        output, reply = b"", ["value", [0, None]]
        self.asks, self.called = self.asks + 1, self.called + 1
        self.blame()

        def feed(ours):  # in a thread, for the program may not read it
            with contextlib.suppress(OSError):
                ours.sendall(text.encode("utf-8", "surrogateescape"))
                ours.shutdown(socket.SHUT_WR)

        with self.begin(["__main__", self.job["program"]]) as self.sock:
            try:
                ours, theirs = socket.socketpair()
                with ours:
                    with theirs:
                        socket.send_fds(self.sock, [b"o"], [theirs.fileno()])
                    threading.Thread(target=feed, args=[ours], daemon=True).start()
                    output = wire.read(ours, wire.MAX_MESSAGE, self.deadline, to_end=True)
                reply = wire.receive(self.sock, self.deadline)
            except TimeoutError:
                self.note("timeout", "no end within the time limit")
                raise Late from None
            except EOFError:
                pass  # os._exit: its output counts
            except Exception:
                reply = None
        self._understand(reply)
        return output.decode("utf-8", "replace")

    def ask(self, operation: str, *arguments, **named):
        """What the program answers; raises what it raised, or Gone."""
        values = wire.Values(self)
        self.asks += 1
        self.called += operation in ("call", "new")
        # the program's random numbers are those that the test would have
        if "seed" in self.test.used and not operation.endswith("random"):
            self.ask("random", random.getstate())
            if "numpy" in self.test.modules:
                self.ask("numpy random", sys.modules["numpy"].random.get_state())
        try:
            packed = values.pack((arguments, tuple(named.items())))
            reply = self.converse([operation, packed])
        except Gone:
            raise
        except wire.NotPlain as problem:
            why = f"the test passes {problem}: only plain values up to 16 MB are possible"
            self.stop("rejected", why, "test")
        except Exception as problem:  # of a generator of the test
            self.stop("rejected", f"what the test passes raises {type(problem).__name__}", "test")
        self.blame(None if self.ready and arguments[0] is not self.module else reply)
        answer = self._understand(reply, values, packed)
        if type(answer) in wire.PLAIN and len(self.seen) < 3 and operation != "equal":
            self.seen.setdefault(type(answer), answer)
        return answer

    def hears(self, size: int) -> None:
        """Blame the program for a long message before it is read, which takes long."""
        if size > 1 << 16:
            self.blame()

    def blame(self, reply: list | None = None) -> None:
        """From now on the program is to blame; not for a reply that gives the test its function."""
        left = self.deadline - time.monotonic()
        match reply:
            case "value", [_, None | ["h", *_]] if left > self.job["seconds"] / 2:
                return  # a program that sleeps before it answers would make the test late
        if not self.answered:
            self.answered = True
            self.job["tell"]("answered")

    def converse(self, message: list | None = None):
        """The program's answer; None if it breaks the protocol."""
        if threading.current_thread() is not threading.main_thread():
            self.foreign = ["threads of the test call the program in turns"]
        with self.lock:
            try:
                return super().converse(message)
            except (TimeoutError, Late):
                self.stop("timeout", "no answer within the time limit")
            except (EOFError, OSError):
                self.stop("error", "the program ended its process")
            except Gone:
                raise
            except Exception:
                return None

    def _understand(self, reply, values=None, sent: list | None = None):
        """The value of an answer; raises what the program raised.

        Changes of arguments are dropped beside an answer (not None), or if the test computes with
        them, unless it also looks at them: else a program could fit them to its answer.
        """
        try:
            match reply:
                case "value", [start, value, *_] as packed:
                    values = values or wire.Values(self)
                    fits = not self.test.in_place and (value is not None or self.test.fits)
                    if start < len(values.objects) and fits:
                        values = wire.Values(self)
                        values.unpack(sent)
                    return values.unpack(packed)
                case "raised", [["MemoryError", *_], str(words), *_]:
                    self.stop("out of memory", words or "MemoryError")
                case "raised", [[_, *_] as names, str(words), given, *place]:
                    self.ended = names[0] in ("StopIteration", "StopAsyncIteration")
                    error = self.exception(names, words[:MAX_WORDS], given, *place)
                    self.raised_one = True
                    raise error
                case "not plain", str(what):
                    why = f"the program returned {what[:MAX_WORDS]}: only plain values are possible"
                    self.stop("rejected", why)
        except Exception as problem:
            if isinstance(problem, Gone) or "_of_program" in vars(problem):
                raise
        self.stop("error", NONSENSE)

    def answer(self, wanted, packed: list) -> list:
        """Call a function of the test for the program."""
        self.blame()
        reply = super().answer(wanted, packed)
        if reply[0] == "not plain":
            self.note("rejected", f"a function of the test returns {reply[1]}", "test")
        return reply

    def operation(self, wanted: int | str):
        """A function of the test that the program has, or a question for an object's attribute."""
        return self.attribute if wanted == "getattr" else self.functions[wanted]

    def attribute(self, thing, name: str):
        """A public attribute of an object of the test's own class, or of a mock."""
        mock = unittest.mock.NonCallableMock
        own = isinstance(thing, mock) or _has_methods(type(thing))
        given = any(thing is x for x in self.functions)  # it has made no other itself
        if name.startswith("_") or hasattr(mock, name) or not (own and given):
            raise AttributeError(f"'{type(thing).__name__}' object has no attribute '{name}'")
        return getattr(thing, name)

    def special(self, values, value, kind: type):
        """What is no plain value: the program's object, a record, or a function to call back."""
        if issubclass(kind, Handle):  # not isinstance, which a mock of the program's class deceives
            return ["h", value._thing.place]
        self._note_lost(value, kind)
        if self.own_class(kind.__name__, self.test.classes) is kind and not _has_methods(kind):
            self.sent[kind.__name__] = kind
            return self.record(values, value)
        if kind is types.CoroutineType and value.cr_code is Judge._wait.__code__:
            return ["h", value.cr_frame.f_locals["place"]]
        if kind is types.CoroutineType:
            self.functions.append(functools.partial(self._await, value))
            return ["w", len(self.functions) - 1]
        own = kind is types.GeneratorType and value.gi_code is Judge._pull.__code__
        if self.test.continues and hasattr(kind, "__next__") and not own:
            self.foreign = ["an iterator of the test is read to its end at once"]
        if own and inspect.getgeneratorstate(value) == inspect.GEN_CREATED:  # nothing is pulled yet
            return self.special(values, value.gi_frame.f_locals["iterator"], Handle)
        if isinstance(value, Exception) and (found := self._error(value, kind)):
            return found
        if isinstance(value, tuple) and hasattr(kind, "_fields"):
            return ["n", kind.__name__, kind._fields, *map(values.encode, tuple.__iter__(value))]
        found = super().special(values, value, kind)
        if found or not (callable(value) or _has_methods(kind)):
            return found
        # each `seen.append` is another object, but equal
        same = (n for n, f in enumerate(self.functions) if f is value or _same_method(f, value))
        number = next(same, len(self.functions))
        if number == len(self.functions):
            self.functions.append(value)
        name, doc = str(getattr(value, "__name__", kind.__name__)), value.__doc__
        return ["k", number, name, doc if type(doc) is str else None, _takes(value)]

    def raised(self, error: BaseException) -> list:
        """An exception of the test, whose class is found again when it comes back."""
        if type(error).__module__ == "__test__":
            self.errors[type(error).__name__] = type(error)
        return super().raised(error)

    def _error(self, error: Exception, kind: type) -> list | None:
        """An error of the program by its number, or one of a built-in class."""
        if vars(error).get("_place"):
            return ["h", vars(error)["_place"]]
        return ["E", *self.raised(error)] if vars(builtins).get(kind.__name__) is kind else None

    def _note_lost(self, value, kind: type) -> None:
        """What a value of the test's own loses on its way to the program."""
        if kind is type and issubclass(value, Exception) and value.__module__ == "__test__":
            self.foreign = [f"the test's class {value.__name__} does not reach the program"]
        written = (getattr(vars(kind).get(x), "__code__", None) for x in _OPERATORS)
        if any(getattr(code, "co_filename", "") == "<test>" for code in written):
            self.foreign = [f"operators of the test's {kind.__name__} do not reach the program"]

    def found(self, values, tag: str, *parts):
        """What the program has sent: its object as a handle, or one of the test's own."""
        if tag == "h":
            return self.thing(*parts)
        return self.functions[parts[0]] if tag == "k" else super().found(values, tag, *parts)

    def array(self, kind: str, shape: list):
        """The program's array: an empty one must not fit the test's value of any shape."""
        value = super().array(kind, shape)
        return value if value.size else value.view(_strict_numpy())

    def allow(self, kind: type, name: str, value) -> None:
        """Raise ValueError for an attribute that could change what the test's own code does."""
        if name.startswith("__") or callable(getattr(kind, name, None)):
            raise ValueError(f"an attribute {name!r}")
        # `f(2).startswith("a")` must not call what the program has put there
        if callable(value) and (not isinstance(value, Handle) or self.is_plain_name(name)):
            raise ValueError(f"a function as {name!r}")

    def own_class(self, name: str, known=()) -> type | None:
        """A class of the test's own code that the program knows: it may be equal to anything."""
        known = known or {*self.job["known"], *self.sent}
        found = self.names.get(name) if name in known else None
        return found if isinstance(found, type) and found.__module__ == "__test__" else None

    def is_plain_name(self, name: str) -> bool:
        """Whether a plain value, or an array or a table, has such an attribute."""
        tables = ("numpy", "ndarray"), ("pandas", "DataFrame"), ("pandas", "Series")
        found = [getattr(sys.modules.get(m), x, None) for m, x in tables if m in self.test.modules]
        return name in PLAIN_NAMES or any(hasattr(kind, name) for kind in found if kind)

    def thing(self, place: int, what="", module="", names=(), fields=(), special=(), classes=()):
        """An object of the program: a Handle, an iterator, a coroutine, a class of errors."""
        if what == "coroutine":
            return self._wait(place)
        names = names[:100]  # millions would make the test late
        if what and place not in self.things:  # else the test has sent it
            given = {"module": str(module), "names": [*map(str, names)], "fields": fields}
            root = module.split(".")[0]
            named = self.test.used if root == "numpy" else self.test.loaded
            may = root not in {"numpy", *sys.stdlib_module_names} or given["names"][0] in named
            if may and self.is_known(**given):
                self.foreign = [f"a {module} object of the program does not reach the test"[:200]]
            kin = what != "class" and not (self.wanted - self.holders).isdisjoint(classes)
            bases = _PLAIN if kin else {"property": property}
            base = next((bases[x] for x in given["names"] if x in bases), None)
            thing = Thing(judge=self, place=int(place), what=what, kin=kin, base=base, **given)
            made = handle(thing, special)
            if what == "iterator":
                made = self._pull(made)
                if "send" in self.test.used:
                    self.foreign = ["what the test sends to a generator does not reach it"]
            elif what == "class" and "BaseException" in names:
                made = self._error_class(names)
            self.things[place] = made
        if isinstance(found := self.things.get(place), Handle):
            found._thing.seen += 1
        return found

    def made(self, found, recipe: tuple):
        """The object that a class of the program has made for the test from the recipe."""
        if not isinstance(found, Handle) or found._thing.place in self.members:
            return found  # a TypedDict's, an enum's
        mine, is_alone = found._thing, not any(recipe[1:])
        if mine.seen > 1 and not (is_alone and mine.recipe and not any(mine.recipe[1:])):
            # it was there before: `[P(1)] == [P(2)]` must not hold because both are the same
            if self.test.asks_is:
                self.foreign = ["the class gives the same object again, which `is` cannot see"]
            return type(found)(Thing(**vars(mine) | {"recipe": recipe}))
        mine.recipe = recipe
        return found

    def equals(self, one: Handle, other) -> bool:
        """Whether the program says that they are equal, and to none of the others like it.

        They come in any order, twice. So no `==` is believed that is always true, true for all of a
        class, or of a class that forgets what it is made from.
        """
        mine, is_value = one._thing, not isinstance(other, Handle)
        units, at = (1, 10, 100), _ORDER.random()  # no habit of the program's fits all
        changing = one if not is_value and not other._thing.recipe else other
        pairs, raised = [(one, other), (one, "a string")], self.raised_one
        # steps around 0, which is anywhere among them: so the true value is not the middle one
        place = _ORDER.randrange(10)
        for step in {*range(10)} - {place}:
            with contextlib.suppress(Exception):
                if (x := like(changing, (step - place) * _ORDER.choice(units), at)) is not changing:
                    pairs.append((one, x) if changing is other else (x, other))
        if is_value and mine.recipe and mine.recipe[1]:
            kind, (first, *rest), named = mine.recipe  # nor is one of another first part, far away
            for step in _ORDER.sample(range(100, 1000), 2):
                with contextlib.suppress(Exception):  # the class may not take it
                    if (x := like(first, step)) is not first:
                        pairs.append((self.ask("new", kind, x, *rest, **named), other))
        if len(pairs) < 5 and is_value and not mine.recipe:
            return False  # none is like it: a truth value, None, an empty list
        order = [*range(len(pairs))] * 2
        _ORDER.shuffle(order)
        answers = self.ask("equal", *(pairs[k] for k in order))
        yes = [k for k, answer in zip(order, answers, strict=True) if answer is True]
        self.raised_one = raised
        if yes.count(0) < 2 or any(yes.count(k) == 1 for k in yes):  # no, or no steady answer
            return False
        if 2 < len(yes) < 2 * len(pairs) - 2:  # equal modulo 3, perhaps
            self.stop("rejected", "the program's == holds for some other values too", "test")
        return len(yes) == 2

    def _pull(self, iterator: Handle):
        for count in (min(2**k, 1000) for k in range(10 + wire.MAX_ITEMS // 1000)):
            items, error = self.ask("take", iterator, count)
            yield from items
            if error:
                self.raised_one = True
                raise error if isinstance(error, Exception) else RuntimeError(NONSENSE)
            if len(items) < count:
                return
        self.stop("rejected", f"an iterator of more than {wire.MAX_ITEMS:,} items")

    def _await(self, coroutine):
        result, waited = _result_of(coroutine)
        if waited:
            self.foreign = ["a coroutine of the test does not run beside the program's"]
        return result

    async def _wait(self, place: int):
        return self.ask("wait", handle(Thing(judge=self, place=place, what="coroutine")))

    def _error_class(self, names: list) -> type:
        """The class of the program's error: one that the test can name, or a new one below it."""
        places = [self.errors, self.names, vars(builtins)]
        places += [vars(x) for x in self.names.values() if isinstance(x, types.ModuleType)]
        more = {"__getattr__": lambda error, name: self._of_error(error, name)}
        known: list[type] = []  # the nearest first
        for name in reversed(names):
            found = next((place[name] for place in places if name in place), None)
            if found is None:
                bases = [x for x in known if not any(issubclass(y, x) for y in known if y is not x)]
                with contextlib.suppress(TypeError):  # some cannot be combined
                    found = self.errors[name] = type(name, tuple(bases) or (Exception,), more)
            if isinstance(found, type) and issubclass(found, BaseException):
                known.insert(0, found)
        return known[0] if known else Exception

    def _of_error(self, error: Exception, name: str):
        """A method, a property or an attribute of the class of an error that the program raised."""
        if name.startswith("_") or "_place" not in vars(error):
            raise AttributeError(name)
        return self.ask("getattr", handle(Thing(judge=self, place=vars(error)["_place"])), name)

    def exception(self, names: list, words: str, given: list, place=None) -> Exception:
        """What the program raised, as an exception of the test's own or a built-in class."""
        arguments, attributes = wire.Values(self).unpack(given)
        kind = self._error_class(names)
        allowed = issubclass(kind, Exception) or kind.__name__ in self.test.source
        if issubclass(kind, _LOOP_ENDS) or not allowed:
            kind, arguments = RuntimeError, (f"the program raised {names[0]}: {words}",)
        if issubclass(kind, UnicodeError | ExceptionGroup):
            kind, arguments = ValueError, (words,)
        try:  # a class of the test's own may have an __init__ with other arguments
            make = kind if kind.__module__ == "builtins" else functools.partial(kind.__new__, kind)
            error = make(*arguments)
        except TypeError:
            error = kind(words)
        error.args = arguments
        for name, value in attributes.items():
            self.allow(kind, name, value)
        vars(error).update(attributes, _of_program=True, _place=place)
        if kind.__module__ != "__test__" and str(error)[:MAX_WORDS] != words:  # its own __str__
            error.args = (words,)
        return error

    def is_plain(self, text: str) -> bool:
        """Whether the text is a sum, or makes an object of the program's, as its repr does."""
        parts = ast.Expression | ast.BinOp | ast.UnaryOp | ast.Constant | ast.operator | ast.unaryop
        parts |= ast.Call | ast.keyword | ast.List | ast.Tuple | ast.Name | ast.expr_context
        with contextlib.suppress(Exception):
            nodes = [*ast.walk(ast.parse(text, mode="eval"))]
            names = {n.id for n in nodes if isinstance(n, ast.Name)}
            return all(isinstance(n, parts) for n in nodes) and names <= self.test.class_names
        return False

    def refuse(self, thing: Thing) -> None:
        """The test needs a value, and has an object of the program."""
        name = ".".join([thing.module, *thing.names[:1]])[:200]
        why = f"the program returned a value of type {name}: only plain values are possible here"
        known = thing.kin or self.is_known(thing.module, thing.names)
        fault = "test" if known else "program"
        self.stop("rejected", why, fault)

    def is_known(self, module: str, names: list[str], fields=()) -> bool:
        """Whether a class of this name is in a module that the test imports."""
        real = getattr(sys.modules.get(module), names[0] if names else "", None)
        known = self.test.modules - {"pytest", "unittest"}  # they have no objects for programs
        return isinstance(real, type) and real not in wire.PLAIN and module.split(".")[0] in known

    def note(self, outcome: str, reason: str, fault: str = "program") -> None:
        """The first failure is the verdict, and nothing later can change it."""
        if self.first is None:
            self.first = outcome, reason[: MAX_WORDS + 200], fault

    def stop(self, outcome: str, reason: str, fault: str = "program") -> None:
        """Note the outcome and end this call; only after "rejected" may the test make others."""
        self.note(outcome, reason, fault)
        if outcome != "rejected":
            self.sock.close()  # so that every later call ends here too
        raise Gone

    def holds(self, number: int) -> None:
        """A case passed: of an assert statement one for each call, so a long answer buys none."""
        self.held[number] = self.held.get(number, 0) + 1
        if self.held[number] <= max(self.called, 1):
            self.passed += 1

    def lost(self, error) -> None:
        """An assertion failed in a block of the program's, which could swallow that."""
        if isinstance(error, AssertionError) and "_of_program" not in vars(error):
            self.fail_one(error)

    def fail_one(self, error: BaseException, outside: bool = False) -> None:
        """A case is lost; `outside` of an assertion, so that other cases were not reached."""
        if isinstance(error, Late):
            raise Late
        self.failed += 1
        self.unreached |= outside
        words = ""
        with contextlib.suppress(Exception):  # an object in it may raise, a number be too long
            words = str(error)[:MAX_WORDS]
        if isinstance(error, AssertionError) or type(error).__name__ == "Failed":  # of pytest
            self.note("failed", words or "an assertion does not hold")
        elif self._is_tests_fault(error, words):
            why = f"the test cannot run here: {type(error).__name__}: {words}"
            self.note("rejected", why, "test")
        elif not isinstance(error, Gone):
            self.note("error", f"{type(error).__name__}: {words}")

    def _is_tests_fault(self, error: BaseException, words: str) -> bool:
        """An error of the test's own code that no answer of a program can bring about."""
        for kind in map(self.sent.get, re.findall(r"'(\w+)'", words)):
            own = {*vars(kind or int)} - {*vars(wire.Peer), "__eq__", "__repr__"}
            if kind and any(isinstance(vars(kind)[n], types.FunctionType) for n in own):
                return True  # a method of the test's own class, such as `<`, which does not cross
        if "_of_program" in vars(error):
            return False
        if isinstance(error, NameError):  # UnboundLocalError has no name: the test binds it
            return error.name not in {None, *self.test.bound}
        if isinstance(error, ImportError) and error.name == "solution":
            return False
        of_module = isinstance(getattr(error, "obj", None), types.ModuleType)
        skipped = type(error).__name__ in ("Skipped", "SkipTest", "XFailed")
        of_file = getattr(error, "errno", None)  # none: of an archive, perhaps the program's
        return isinstance(error, ImportError) or bool(of_file) or of_module or skipped


compiled = functools.lru_cache(maxsize=256)(Test)


def check(job: dict, control: socket.socket, tell) -> list:
    """The verdict on one job; ends its candidates. OSError: the servers are gone."""

    @contextlib.contextmanager
    def begin(message: list):
        ours, theirs = socket.socketpair()
        control.settimeout(5.0)
        with theirs:
            socket.send_fds(control, [b"b"], [theirs.fileno()])
        try:
            wire.send(ours, message)
            wire.receive(ours, time.monotonic() + wire.START_LIMIT)
        except (OSError, EOFError):
            os._exit(1)  # `pool.py` starts other servers
        try:
            yield ours
        finally:
            ours.close()
            control.sendall(b"e")  # kills it, with all its processes
            if control.recv(1) != b"k":
                raise BrokenPipeError

    name, source = job["entry_point"], job["test"]
    try:
        if is_json(source):
            with contextlib.suppress(json.JSONDecodeError):
                job["pairs"], source, name = read_json(source, name)
                if source is CALLS and "class Solution" in job["program"] and name.isidentifier():
                    name = f"Solution().{name}"
        if job.get("pairs") == []:
            return ["rejected", "there is no input: nothing can be judged", "test", 0, 1]
        test = compiled(source, job["setup"], name)
    except (SyntaxError, ValueError, TypeError, LookupError, RecursionError, MemoryError) as error:
        why = f"the test cannot be used: {type(error).__name__}: {error}"
        return ["rejected", why[:400], "test", 0, 1]
    for module in test.modules - sys.stdlib_module_names - {"solution", *sys.modules}:
        tell("loading")
        with contextlib.suppress(Exception):  # the test says what is wrong with it
            __import__(module)
        tell("started")
    job |= {"entry_point": name, "tell": tell}
    job["known"] = [*test.classes & {*re.findall(r"\w+", job["program"] + job["setup"])}]
    first = ["__candidate__", job["program"], job["known"], "numpy" in test.modules]
    begin_each = begin if source is SCRIPT else None  # a script: a process for each input
    # it is loaded while the setup runs here
    with contextlib.nullcontext() if begin_each else begin(first) as sock:
        return Judge(test, job, sock, time.monotonic() + job["seconds"], begin_each).run()


def leave_with(caller: socket.socket) -> None:
    """End this process at any point as soon as the other end of the socket is closed."""
    poll = select.poll()
    poll.register(caller, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve the process that started this one, over the socket that is standard input."""
    del sys.path[0]  # a test must not import these files
    deeper = sys.setrecursionlimit  # a million would let a deep message end this process
    sys.setrecursionlimit = lambda depth: deeper(min(depth, 10_000))
    sys.addaudithook(_guard)
    # the words of a difference take hours for long lists, and nobody reads them
    unittest.case.difflib = types.SimpleNamespace(ndiff=lambda *_: ())
    caller, options = wire.take_socket()
    sys.path += options["packages"]
    threading.Thread(target=leave_with, args=[caller], daemon=True).start()
    _process, control = wire.start_server("candidate.py", options)
    walls = wire.receive(control, time.monotonic() + wire.START_LIMIT)
    jail.prctl(jail.PR_SET_DUMPABLE, 0)
    jail.be_first_to_go(500)  # after the candidates, before the caller
    jail.limit(2 * options["memory_mb"])
    if walls["filter"]:
        jail.filter_calls().install()
    wire.send(caller, walls)
    while True:
        job = wire.receive(caller)
        started = time.monotonic()
        answer = check(job, control, functools.partial(wire.send, caller))
        wire.send(caller, [*answer, round(1e3 * (time.monotonic() - started), 3)])
        if Judge.touched:
            os._exit(0)  # the next job gets a new server: nothing of a test may outlive it


if __name__ == "__main__":
    main()
