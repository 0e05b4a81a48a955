"""Messages between a judge and a candidate: values as JSON with tags, in frames.

A value arrives as exactly the type in its tag, made by trusted code. So the test's `==` never gets
a value with an `__eq__` that is always True. The servers load this file by its path, so it
imports only the standard library.
"""

import builtins
import collections
import datetime
import decimal
import enum
import fractions
import functools
import itertools
import json
import os
import re
import socket
import struct
import sys
import time
import types

MAX_MESSAGE = 16 << 20  # bytes of one message
MAX_ITEMS = 1_000_000  # of an iterator
START_LIMIT = 60.0  # seconds for a server to come up
ITERATORS = {types.GeneratorType, map, filter, zip, enumerate, reversed}
ITERATORS |= {type(iter(x)) for x in ([], (), {}, set(), "", range(0))}
ITERATORS |= {type(iter(x)) for x in ({}.values(), {}.items(), [].__reversed__())}
_NUMBERS = re.compile(r"[<>|=]?[?biufcSUMm]\d*(\[\w+\])?")
FOR_LITTLE_MEMORY = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
FOR_LITTLE_MEMORY += ("MALLOC_ARENA_MAX",)  # else each thread takes 64 MB of addresses


class NotPlain(Exception):
    """A value that cannot be sent."""


# What changes in place, what never changes, and what is made anew from the arguments of its
# `__reduce__`, whatever these are: a constructor gives exactly its type, or an error.
MUTABLE = {list: "l", dict: "d", set: "s", bytearray: "B", collections.deque: "q"}
MUTABLE |= {collections.OrderedDict: "od", collections.Counter: "cd", collections.defaultdict: "dd"}
FIXED = {tuple: "t", frozenset: "f", bytes: "b", complex: "c", type({}.keys()): "V"}
FIXED |= {type({}.values()): "W", type({}.items()): "X", type(...): "..."}
REDUCED = {decimal.Decimal: "D", fractions.Fraction: "F", range: "r", slice: "S"}
REDUCED |= {datetime.date: "Y", datetime.time: "T", datetime.datetime: "Z"}
REDUCED |= {datetime.timedelta: "L", datetime.timezone: "U"}
PLAIN = {bool, int, float, str, *MUTABLE, *FIXED, *REDUCED}
BLANK = {tag: kind for kind, tag in MUTABLE.items()}
MADE = {tag: kind for kind, tag in REDUCED.items()} | {
    "t": lambda *items: items,
    "f": lambda *items: frozenset(items),
    "b": bytes.fromhex,
    "c": complex,
    "V": lambda *items: dict.fromkeys(items).keys(),
    "W": lambda *items: dict(enumerate(items)).values(),
    "X": lambda *items: dict(items).items(),
    "...": lambda: ...,
    "i": lambda digits: int(digits, 16),
    "g": lambda *items: iter(items),
}


def _parts(value, kind: type) -> list:
    if isinstance(value, dict):
        return [x for pair in value.items() for x in pair]
    if kind is bytes or kind is bytearray:
        return [value.hex()]
    if kind is complex:
        return [value.real, value.imag]
    if kind in REDUCED:
        if zone := getattr(value, "tzinfo", None):
            value = value.replace(tzinfo=datetime.timezone(zone.utcoffset(value)))
        return value.__getinitargs__() if kind is datetime.timezone else value.__reduce__()[1]
    return [] if value is ... else list(value)


def _room(value, kind: type) -> list:
    """What an empty one needs: the greatest length of a deque, the factory of a defaultdict."""
    if kind is collections.deque:
        return [value.maxlen]
    if kind is collections.defaultdict:
        found = value.default_factory
        return [found if vars(builtins).get(getattr(found, "__name__", "")) is found else None]
    return []


@functools.lru_cache(maxsize=256)
def _tuple_class(name: str, *fields: str) -> type:
    return collections.namedtuple(name, fields)


def _array(kind: str, data: str, *shape: int):
    """NumPy's array of such a `dtype.str`, or without a shape its scalar."""
    import numpy

    if not _NUMBERS.fullmatch(kind):
        raise ValueError(f"an array of {kind}")
    flat = numpy.frombuffer(bytearray.fromhex(data), dtype=numpy.dtype(kind))
    return flat.reshape(shape[0]) if shape else flat[0]


class Values:
    """The values of one message and its answer: both sides number its mutable objects alike.

    So an object that is there twice stays one object, and an argument that the program has changed
    can be changed in the test. An object of a class that the test's own code defines ("o") follows
    behind the value, which keeps a long linked list flat. Subclasses add what only they can send.
    """

    def __init__(self):
        self.objects, self.numbers, self.records = [], {}, []

    def pack(self, value) -> list:
        """The value and the attributes of its objects, as JSON's types."""
        done = len(self.records)
        packed = [self.encode(value)]
        while len(packed) <= len(self.records) - done:
            record = self.records[done + len(packed) - 1]
            packed.append([self.encode(x) for x in self.parts(record)])
        return packed

    def unpack(self, packed: list):
        """The value. Raises an Exception for anything that `pack` never makes."""
        done = len(self.records)
        value = self.decode(packed[0])
        for i, parts in enumerate(packed[1:], done):
            self.fill(self.records[i], [self.decode(x) for x in parts])
        return value

    def encode(self, value):
        """A value as JSON's types; NotPlain for other values, such as a subclass of int."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]
        if kind in MUTABLE:
            if (number := self.numbers.get(id(value))) is not None:
                return ["a", number]
            self._number(value)
            parts = [*_room(value, kind), *_parts(value, kind)]
            return [MUTABLE[kind], *(self.encode(x) for x in parts)]
        if kind in FIXED or kind in REDUCED:
            tag = FIXED.get(kind) or REDUCED[kind]
            return [tag, *(self.encode(x) for x in _parts(value, kind))]
        if (found := self.special(value, kind)) is None:
            raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])
        return found

    def special(self, value, kind: type) -> list | None:
        """What is neither a plain value nor a container of Python's own; None: it cannot cross."""
        if kind in ITERATORS:
            items = list(itertools.islice(value, MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise NotPlain(f"an iterator of more than {MAX_ITEMS:,} items")
            return ["g", *(self.encode(x) for x in items)]
        if kind is type and vars(builtins).get(value.__name__) is value:
            return ["K", value.__name__]
        if kind.__module__ == "numpy" and hasattr(value, "tobytes") and hasattr(value, "dtype"):
            is_array = kind.__name__ == "ndarray"
            shape = [[*map(int, value.shape)]] if is_array else []
            if value.dtype.kind == "O" and is_array:
                return ["O", *shape, *map(self.encode, value.flat)]
            if _NUMBERS.fullmatch(value.dtype.str) and (is_array or not value.shape):
                return ["N", value.dtype.str, value.tobytes().hex(), *shape]
        return None

    def decode(self, data):
        """The value; an Exception for anything that `encode` never writes."""
        if type(data) is not list:
            if type(data) is dict:
                raise ValueError("an object")
            return data
        tag, *parts = data
        if tag == "a":
            return self.objects[parts[0]]
        if tag in BLANK:
            room = [self.decode(x) for x in parts[: tag in ("q", "dd")]]
            value = BLANK[tag]((), *room) if tag == "q" else BLANK[tag](*room)
            self._number(value)
            self.fill(value, [self.decode(x) for x in parts[len(room) :]])
            return value
        if tag in MADE:
            return MADE[tag](*[self.decode(x) for x in parts])
        if tag == "K" and isinstance(found := vars(builtins)[parts[0]], type):
            return found
        if tag == "N":
            return self.array(_array(*parts))
        if tag == "O":
            import numpy

            value = numpy.empty(parts[0], dtype=object)
            value.flat = [self.decode(x) for x in parts[1:]]
            return self.array(value)
        if tag == "n":
            kind, items = _tuple_class(parts[0], *parts[1]), [self.decode(x) for x in parts[2:]]
            for name, item in zip(parts[1], items, strict=True):
                self.allow(object, name, item)
            return kind(*items)
        return self.found(tag, *parts)

    def array(self, value):
        """What stands for an array that has come."""
        return value

    def allow(self, kind: type, name: str, value) -> None:
        """Raise ValueError if the program may not give an object such an attribute."""

    def found(self, tag: str, *parts):
        """What `special` of the other side has sent."""
        raise ValueError(f"an unknown tag {tag!r}")

    def record(self, value) -> list:
        """An object of a class that the test's own code defines: its attributes follow."""
        if isinstance(value, enum.Enum):
            return ["o", type(value).__name__, value.name]
        if (number := self.numbers.get(id(value))) is not None:
            return ["a", number]
        self._number(value)
        self.records.append(value)
        return ["o", type(value).__name__]

    def blank(self, kind: type, *name: str):
        """An object of the class without attributes or a call of `__init__`; the enum's member."""
        if name:
            return kind[name[0]]
        value = object.__new__(kind)
        self._number(value)
        self.records.append(value)
        return value

    def parts(self, value) -> list:
        """The parts of a mutable object."""
        if type(value) in MUTABLE:
            return _parts(value, type(value))
        slots = [x for c in type(value).__mro__ for x in vars(c).get("__slots__", ())]
        found = getattr(value, "__dict__", {})
        return _parts(found | {x: getattr(value, x) for x in slots if hasattr(value, x)}, dict)

    def fill(self, value, parts: list) -> None:
        """Change a mutable object in place, one by one: so a deadline can come between."""
        if type(value) is bytearray:
            value[:] = bytes.fromhex(*parts)
        elif isinstance(value, list | set | collections.deque):
            value.clear()
            put = value.add if isinstance(value, set) else value.append
            for part in parts:
                put(part)
        else:
            is_dict = isinstance(value, dict)
            (value if is_dict else getattr(value, "__dict__", {})).clear()
            for name, part in zip(parts[::2], parts[1::2], strict=True):
                if is_dict:
                    value[name] = part
                else:
                    self.allow(type(value), name, part)
                    object.__setattr__(value, name, part)

    def _number(self, value) -> None:
        self.numbers[id(value)] = len(self.objects)
        self.objects.append(value)


def encode(value):
    """A plain value as JSON's types; NotPlain for other values, such as a subclass of int."""
    return Values().encode(value)


def send(sock: socket.socket, message) -> None:
    """Send one message of JSON's types. Raises NotPlain if it is too large."""
    data = json.dumps(message, check_circular=False).encode("ascii")
    if len(data) > MAX_MESSAGE:
        raise NotPlain(f"{len(data) >> 20} MB of data")
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket, deadline: float | None = None):
    """The next message. EOFError at the end, TimeoutError at the deadline (of time.monotonic)."""
    size = struct.unpack("!I", read(sock, 4, deadline))[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(read(sock, size, deadline))


def read(sock: socket.socket, size: int, deadline: float | None, to_end: bool = False) -> bytes:
    """So many bytes, or `to_end` all until the end if there are less; errors as `receive`."""
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:  # also if the sender goes byte by byte
                raise TimeoutError
            sock.settimeout(left)
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece and to_end:
            break
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)


def start_server(file: str, options: dict):
    """(process, its socket): a new isolated Python with an empty environment runs `file`."""
    import subprocess  # not above: a candidate does not need it

    ours, theirs = socket.socketpair()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
    command = [sys.executable, "-E", "-s", "-S", "-B", path]
    how = {"env": {k: v for k, v in os.environ.items() if k == "LD_LIBRARY_PATH"}, "cwd": "/"}
    how["env"] |= dict.fromkeys(FOR_LITTLE_MEMORY, "1")
    how |= dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    with theirs:  # its own session: a Ctrl-C goes to the trainer, which closes the servers
        process = subprocess.Popen(command, stdin=theirs, start_new_session=True, **how)
    send(ours, options)
    return process, ours


def take_socket() -> tuple:
    """(socket, options) from the process that started this server; then empties standard input."""
    sock = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    return sock, receive(sock)
