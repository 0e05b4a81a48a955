"""The untrusted side: a server behind the walls of `jail.py` that forks a candidate for each job.

It gets a byte for "begin", with the candidate's end of a socket pair, and a byte for "end": then it
kills all processes that are left. Standard library only.
"""

import atexit
import builtins
import contextlib
import functools
import gc
import inspect
import itertools
import operator
import os
import resource
import signal
import socket
import sys
import types
from _thread import RLock  # `threading` has hooks that make each fork slower
from collections import UserList, UserString
from collections.abc import Iterator, Mapping, Set

import jail
import wire
from handles import SPECIAL

# a value of a subclass crosses as its content
_BASES = (bool, int, float, complex, str, bytes, bytearray, tuple, list, set, frozenset)
_BASES += (Mapping, Set, UserList, UserString)
_CONTENT = {str: "".join, Mapping: dict, Set: set, UserList: list, UserString: str}

# what LeetCode has imported (the last: `pow` is the built-in one), and its nodes
_LEETCODE = "typing functools collections itertools heapq bisect copy string operator math builtins"
_LEETCODE = "".join(f"from {name} import *; import {name}\n" for name in _LEETCODE.split())
_LEETCODE += """import random, re, sys, datetime
class ListNode:
    def __init__(self, val=0, next=None): self.val, self.next = val, next
class TreeNode:
    def __init__(self, val=0, left=None, right=None):
        self.val, self.left, self.right = val, left, right
"""
_LEETCODE = compile(_LEETCODE, "<leetcode>", "exec")  # once, in the server


class Program(wire.Peer):
    """The program's side of the wire. A program may change all of this.

    Objects that are no values stay here. The judge gets a number for each, and asks for what it
    wants done with them, by the name of a function of `operator` or `builtins`.
    """

    def __init__(self, sock: socket.socket, module=None, known=(), numpy: bool = False):
        super().__init__(sock)
        self.known, self.numpy = set(known), numpy
        self.things, self.places, self.callbacks = [module], {id(module): 0}, {}
        self.lock = RLock()  # its threads call the test's functions in turn

    def special(self, values, value, kind: type):
        """What is no plain value: by its number, a record, or as the nearest plain value."""
        asked = id(kind) in self.places
        if id(value) in self.places:
            return self.thing(value)
        if not asked and (isinstance(value, Iterator) or inspect.iscoroutine(value)):
            return self.thing(value)
        if kind.__name__ in self.known and not isinstance(value, _BASES):
            return self.record(values, value)
        if kind.__module__ == "numpy" and not self.numpy and getattr(value, "shape", 1) == ():
            return values.encode(value.item())  # the judge would have to load NumPy for it
        ours = kind.__module__ in ("numpy", "builtins")
        if ours and (found := super().special(values, value, kind)):
            return found
        if kind is _Callback:
            return ["k", value.number]
        if isinstance(value, BaseException):
            return ["E", *self.raised(value)]
        base = next((x for x in _BASES if isinstance(value, x)), None)
        if asked or not base:  # only the content of a class that the test has not asked for crosses
            return self.thing(value)
        if base is tuple and hasattr(kind, "_fields"):
            return ["n", kind.__name__, kind._fields, *map(values.encode, tuple.__iter__(value))]
        return values.encode(_CONTENT.get(base, base)(value))

    def thing(self, value) -> list:
        """An object that stays here: its number, what it is, its classes by name and number."""
        place = self.places.setdefault(id(value), len(self.things))
        if place == len(self.things):
            self.things.append(value)
        kind = value if isinstance(value, type) else type(value)
        what = "class" if kind is value else "coroutine" if inspect.iscoroutine(value) else "object"
        what = "iterator" if isinstance(value, Iterator) and id(kind) not in self.places else what
        fields = [] if kind is value else list(getattr(kind, "__dataclass_fields__", ()))
        special = [x for x in SPECIAL if any(x in vars(c) for c in type(value).__mro__)]
        special += ["__getitem__"] * (kind is value and hasattr(kind, "__class_getitem__"))
        names = [c.__name__ for c in kind.__mro__]
        classes = [self.places[id(c)] for c in kind.__mro__ if id(c) in self.places]
        return ["h", place, what, kind.__module__, names, fields, special, classes]

    def found(self, values, tag: str, *parts):
        """What the judge has sent by number."""
        if tag == "h":
            return self.things[parts[0]]
        if tag == "w":
            return _ready(_Callback(self, parts[0], "coroutine", None, []))
        if tag == "k":  # one for each function, for the program may look for it again
            return self.callbacks.setdefault(parts[0], _Callback(self, *parts))
        return super().found(values, tag, *parts)

    def own_class(self, name: str) -> type:
        """The program's class of the same name as the test's, or an empty one."""
        self.known.add(name)
        kind = vars(self.things[0]).get(name)
        return kind if isinstance(kind, type) else type(name, (), {})

    def exception(self, names: list, _, given: list) -> BaseException:
        """An exception of the test, of a class of this name."""
        arguments, _ = wire.Values(self).unpack(given)
        kind = next(vars(builtins)[x] for x in names if hasattr(builtins, x))
        kind = kind if kind.__name__ == names[0] else type(names[0], (kind,), {})
        return kind(*arguments)

    def raised(self, error: BaseException) -> list:
        """An exception of the program, and its number, by which the test can ask it for more."""
        self.things.append(error)
        return [*super().raised(error), len(self.things) - 1]

    def operation(self, name: str):
        """The function that the judge asks for."""
        run = self.new if name == "new" else _OPERATIONS.get(name)
        return run or getattr(operator, name, None) or getattr(builtins, name)

    def new(self, kind: type, *arguments, **named):
        """An object that the test makes: it stays here, whatever it is."""
        self.thing(made := kind(*arguments, **named))
        return made


class _Callback:
    """A function of the test, or an object with methods, which the program can call."""

    def __init__(self, program: Program, number: int, name: str, doc: str | None, takes: list):
        self.program, self.number = program, number
        self.__name__, self.__doc__ = name, doc
        parameters, empty = [], inspect.Parameter.empty
        for one, kind, default, hint in takes:  # [] or [the encoded default]
            values = [wire.Values(program).decode(x[0]) if x else empty for x in (default, hint)]
            told = dict(zip(("default", "annotation"), values, strict=True))
            parameters.append(inspect.Parameter(one, kind, **told))
        self.__signature__ = inspect.Signature(parameters)

    def __call__(self, *arguments, **named):
        return self._ask(self.number, *arguments, **named)

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(f"'{self.__name__}' object has no attribute '{name}'")
        return self._ask("getattr", self, name)

    def _ask(self, wanted: int | str, *arguments, **named):
        values = wire.Values(self.program)
        packed = values.pack((arguments, tuple(named.items())))
        with self.program.lock:
            kind, data = self.program.converse([wanted, packed])
        if kind == "value":
            return values.unpack(data)
        raise self.program.exception(*data) if kind == "raised" else TypeError(data)


def _take(iterator, count: int) -> tuple[list, object]:
    """Up to `count` items, and what was raised after them."""
    items, error = [], None
    try:
        items.extend(itertools.islice(iterator, count))  # keeps those before an error
    except Exception as found:
        error = found
    return items, error


@functools.cache
def _event_loop():
    import asyncio

    return asyncio.Runner()  # all coroutines have one loop


async def _ready(ask):
    return ask()


async def _anext(iterator):
    return await anext(iterator)


def _equal(*pairs) -> list:
    """Whether each pair is equal, None where it raises."""
    found = []
    for one, other in pairs:
        found.append(None)
        with contextlib.suppress(Exception):
            found[-1] = one == other
    return found


_OPERATIONS = {"take": _take, "equal": _equal, "__divmod__": divmod}
_OPERATIONS["random"] = lambda state: sys.modules["random"].setstate(state)
_OPERATIONS["numpy random"] = lambda state: sys.modules["numpy"].random.set_state(state)
_OPERATIONS["wait"] = lambda coroutine: _event_loop().run(coroutine)
_OPERATIONS["anext"] = lambda iterator: _event_loop().run(_anext(iterator))


def candidate(sock: socket.socket) -> None:
    """Load the program, answer requests until the judge hangs up."""
    wire.send(sock, ["ready", None])
    name, source, *how = wire.receive(sock)
    builtins.exit = builtins.quit = sys.exit  # which `-S` leaves out
    module = sys.modules[name] = types.ModuleType(name)
    program, reply = Program(sock, module, *how), ["value", [0, None]]
    if is_script := name == "__main__":
        _, (pipe,), _, _ = socket.recv_fds(sock, 1, 1)
        os.dup2(pipe, 0)
        os.dup2(pipe, 1)
        os.close(pipe)
        sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    try:
        if "random" in source:
            sys.modules["random"].seed()
        if "matplotlib" in source:  # it asks for a folder to write to, and goes on if it cannot
            os.environ["MPLCONFIGDIR"] = os.path.dirname(os.__file__)
            os.access = lambda *_, **__: True
        if "class Solution" in source:
            exec(_LEETCODE, module.__dict__)
        exec(compile(source, "<program>", "exec"), module.__dict__)
        if is_script and (threads := sys.modules.get("threading")):
            threads._shutdown()  # waits for its threads, as at the end of any script
    except BaseException as error:
        if not (is_script and isinstance(error, SystemExit) and error.code in (None, 0, False)):
            reply = ["raised", program.raised(error)]
    if is_script:
        with contextlib.suppress(Exception):
            atexit._run_exitfuncs()
            sys.stdout.flush()
        os.closerange(0, 2)
    program.converse(reply)  # until the judge hangs up


def _be_candidate(sock: socket.socket, control: int, options: dict, walls) -> None:
    """In the fork: close all other descriptors, put up the last walls, run. Never returns."""
    try:
        if os.getppid() != 1:  # process 1 takes all others with it when it ends
            jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.dup2(sock.fileno(), 3)
        os.closerange(4, max(16, control + 1))  # on `control` a program could forge "killed"
        sock.detach()
        jail.set_limits(options["limits"])
        if walls:
            walls.install()
        gc.enable()
        candidate(socket.socket(fileno=3))
    finally:
        os._exit(1)  # for any error the judge sees the end of the socket


def candidate_server() -> None:
    """Put up the walls, report which hold; then fork a candidate per "begin", kill it at "end"."""
    control, options = wire.take_socket()
    try:
        missing, lacks = _shut_in(options)
    except OSError as error:  # half a wall: `pool.py` starts another server, without this one
        wire.send(control, {"level": "", "filter": False, "why": str(error)})
        return
    del sys.path[0]  # a program's `import wire` must fail, as anywhere else
    sys.path += options["packages"]
    register, os.register_at_fork = os.register_at_fork, lambda **_: None
    exec(_LEETCODE, {})  # what programs import most: once here, and not in every fork
    os.register_at_fork = register  # without the hook of `random`: a fork seeds it if it needs it
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a program may print half a surrogate pair
    del sys.modules["jail"], sys.modules["wire"], sys.modules["handles"]  # no import finds them
    walls = None
    try:
        walls = jail.filter_calls()
    except OSError as error:
        missing.append(f"system calls cannot be filtered: {error}")
        lacks.append("use the network, write files and end your processes")
    jail.limit(options["memory_mb"])
    _warm_up()
    gc.disable()  # it would touch, and so copy, this memory in every fork
    gc.freeze()
    why = f"{'; '.join(missing)}: programs can {' and '.join(lacks)}" if missing else ""
    level = "limits-only" if missing else "full"
    wire.send(control, {"level": level, "filter": walls is not None, "why": why})
    child = 0
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        if word == b"b":
            child = os.fork()
            if not child:
                _be_candidate(socket.socket(fileno=fds[0]), control.fileno(), options, walls)
            os.close(fds[0])
            continue
        _clear(child, options.get("below"))
        child = 0
        if not word:
            os._exit(0)
        control.sendall(b"k")


def _warm_up() -> None:
    """Serve a program here: a fork need not look up again what Python learns from this."""
    find = ["getattr", [0, ["t", ["t", ["h", 0], "f"], ["t"]]]]
    call = ["call", [0, ["t", ["t", ["h", 1], ["a", 0]], ["t"]], [["l"], 1]]]
    for _ in range(8):  # as often as Python runs code before it specializes it
        ours, theirs = socket.socketpair()
        with ours, theirs, contextlib.suppress(EOFError):
            for message in (["solution", "def f(x): return [*x]"], find, *[call] * 20):
                wire.send(ours, message)
            ours.shutdown(socket.SHUT_WR)
            candidate(theirs)
    del sys.modules["solution"]


def _shut_in(options: dict) -> tuple[list[str], list[str]]:
    """Go behind the walls: (why not all are there, what programs can do without them)."""
    missing, lacks, visible = [], [], options["visible"]
    jail.be_first_to_go()
    crowded = jail.threads_of_user() + jail.SPARE_THREADS
    if options["level"] == "full":
        jail.enter_namespaces(visible)
        nobody, inside = os.getuid() != os.geteuid(), True
    else:
        missing.append("no namespaces")
        nobody, inside = jail.be_nobody(), jail.own_user_namespace()
    alone = nobody or (inside and jail.THREADS_BY_NAMESPACE)  # the limit counts no others' threads
    options["limits"] = {resource.RLIMIT_CPU: int(options["time_limit"]) + 2}
    if sys.platform == "linux":
        options["limits"][resource.RLIMIT_NPROC] = jail.THREADS if alone else crowded
        if not alone:
            lacks.append(f"start {jail.SPARE_THREADS} threads")
    jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
    jail.prctl(jail.PR_SET_DUMPABLE, 0)  # other processes cannot read this one or its forks
    jail.drop_capabilities()
    if os.getpid() != 1:  # it shows what no program may: open it before Landlock
        with contextlib.suppress(OSError):
            path = f"/proc/self/task/{os.getpid()}/children"
            options["below"] = os.open(path, os.O_RDONLY)
    try:
        jail.landlock(visible)
        lacks.append("see whether a file exists")
    except OSError as error:
        lacks.append("read all your files")
        if missing:
            missing.append(f"no Landlock: {error}")
        if not (nobody or inside):
            lacks.append("read your other processes' environment")
    return missing, lacks


def _clear(child: int, below: int | None) -> None:
    """Kill and reap all processes of a job: all that exist, if this is process 1; else its own."""
    for _ in range(1000):
        left = [-1] if os.getpid() == 1 else [child, -child] if child else []
        if below is not None:
            left += map(int, os.pread(below, 1 << 20, 0).split())
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    candidate_server()
