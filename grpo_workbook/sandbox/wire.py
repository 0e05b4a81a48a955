"""Messages between a judge and a candidate: values as JSON with tags, in frames.

A value arrives as exactly the type in its tag, made by trusted code. So the test's `==` never gets
a value with an `__eq__` that is always True. The servers load this file by its path, so it
imports only the standard library.
"""

import builtins
import collections
import contextlib
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
from collections.abc import Callable, Iterator

MAX_MESSAGE = 16 << 20  # bytes of one message
MAX_ITEMS = 1_000_000  # of an iterator
START_LIMIT = 60.0  # seconds for a server to come up
_NUMBERS = re.compile(r"[<>|=]?[?biufcSUMm]\d*(\[\w+\])?")
# the last: else each thread takes 64 MB of addresses
FOR_LITTLE_MEMORY = "OPENBLAS_NUM_THREADS OMP_NUM_THREADS MKL_NUM_THREADS MALLOC_ARENA_MAX".split()


class NotPlain(Exception):
    """A value that cannot be sent."""


def _arguments(value):
    """What its class needs to make it anew."""
    if zone := getattr(value, "tzinfo", None):
        value = value.replace(tzinfo=datetime.timezone(zone.utcoffset(value)))
    made_of = getattr(value, "__getinitargs__", None)
    return made_of() if made_of else value.__reduce__()[1]


# What never changes. tag: its type, a value's parts, and what makes it from them, whatever these
# are: a constructor gives exactly its type, or an error.
FIXED = {
    "t": (tuple, list, lambda *items: items),
    "f": (frozenset, list, lambda *items: frozenset(items)),
    "b": (bytes, lambda x: [x.hex()], bytes.fromhex),
    "c": (complex, lambda x: [x.real, x.imag], complex),
    "keys": (type({}.keys()), list, lambda *items: dict.fromkeys(items).keys()),
    "values": (type({}.values()), list, lambda *items: dict(enumerate(items)).values()),
    "items": (type({}.items()), list, lambda *items: dict(items).items()),
    "...": (type(...), lambda x: [], lambda: ...),
}
_DATES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
for _kind in (decimal.Decimal, fractions.Fraction, range, slice, *_DATES):
    FIXED[_kind.__name__] = _kind, _arguments, _kind
_TAGS = {kind: (tag, parts) for tag, (kind, parts, _) in FIXED.items()}
_MADE = {tag: make for tag, (_, _, make) in FIXED.items()}
_MADE |= {"i": lambda digits: int(digits, 16), "g": lambda *items: iter(items)}
# what changes in place, and an empty one
_DICTS = (collections.OrderedDict, collections.Counter, collections.defaultdict)
MUTABLE = {list: "l", dict: "d", set: "s", bytearray: "B", collections.deque: "q"}
MUTABLE |= {kind: kind.__name__ for kind in _DICTS}
_EMPTY = {tag: kind for kind, tag in MUTABLE.items()} | {"q": lambda n: collections.deque(maxlen=n)}
PLAIN = {bool, int, float, str, *MUTABLE, *_TAGS}


@functools.lru_cache(maxsize=256)
def _tuple_class(name: str, *fields: str) -> type:
    return collections.namedtuple(name, fields)


class Values:
    """The values of one message and its answer: both sides number its mutable objects alike.

    So an object that is there twice stays one, and an argument that the program has changed can be
    changed in the test. All of them follow behind the value, which keeps a long linked list flat.
    """

    def __init__(self):
        self.objects, self.numbers = [], {}

    def pack(self, value, start: int | None = None) -> list:
        """[start, the value, the objects from that number on (None: all new ones)] for JSON."""
        start = len(self.objects) if start is None else start
        packed = [start, self.encode(value)]
        while (at := start + len(packed) - 2) < len(self.objects):
            packed.append([self.head(self.objects[at]), *self.parts(self.objects[at])])
        return packed

    def unpack(self, packed: list):
        """The value. Raises an Exception for anything that `pack` never makes."""
        start, value, *objects = packed
        for head, *_ in objects[len(self.objects) - start :]:
            self.number(self.blank(*head))
        # the last ones first, for a set or a dict needs the hash of what is in it
        for at in reversed(range(len(objects))):
            self.fill(self.objects[start + at], [self.decode(x) for x in objects[at][1:]])
        return self.decode(value)

    def number(self, value) -> list:
        """The tag of a mutable object, with its number."""
        number = self.numbers.setdefault(id(value), len(self.objects))
        if number == len(self.objects):
            self.objects.append(value)
        return ["a", number]

    def encode(self, value):
        """A value as JSON's types; NotPlain for other values, such as a subclass of int."""
        kind = type(value)
        if value is None or kind is bool or kind is float or kind is str:
            return value
        if kind is int:
            return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]
        if kind in MUTABLE:
            return self.number(value)
        if kind in _TAGS:
            tag, parts = _TAGS[kind]
            return [tag, *map(self.encode, parts(value))]
        if (found := self.special(value, kind)) is None:
            raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])
        return found

    def special(self, value, kind: type) -> list | None:
        """What is neither a plain value nor a container of Python's own; None: it cannot cross."""
        if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            items = list(itertools.islice(value, MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise NotPlain(f"an iterator of more than {MAX_ITEMS:,} items")
            return ["g", *map(self.encode, items)]
        if kind is type and vars(builtins).get(value.__name__) is value:
            return ["K", value.__name__]
        if kind.__module__ == "numpy" and hasattr(value, "tobytes") and hasattr(value, "dtype"):
            is_array, dtype = kind.__name__ == "ndarray", value.dtype.str
            shape = [*map(int, value.shape)] if is_array else None
            if dtype == "|O" and is_array:
                return ["N", dtype, shape, *map(self.encode, value.flat)]
            if _NUMBERS.fullmatch(dtype) and (is_array or not value.shape):
                return ["N", dtype, shape, value.tobytes().hex()]
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
        if tag in _MADE:
            return _MADE[tag](*map(self.decode, parts))
        return self.found(tag, *parts)

    def found(self, tag: str, *parts):
        """What `special` of the other side has sent."""
        if tag == "K" and isinstance(kind := vars(builtins)[parts[0]], type):
            return kind
        if tag == "N":
            return self.array(*parts)
        if tag == "e":
            return self.own_class(parts[0])[parts[1]]
        if tag == "n":
            kind, items = _tuple_class(parts[0], *parts[1]), [self.decode(x) for x in parts[2:]]
            for name, item in zip(parts[1], items, strict=True):
                self.allow(object, name, item)
            return kind(*items)
        raise ValueError(f"an unknown tag {tag!r}")

    def array(self, kind: str, shape: list | None, *data):
        """NumPy's array of such a `dtype.str`, or without a shape its scalar."""
        import numpy

        if kind == "|O":
            flat = numpy.empty(len(data), dtype=object)
            flat[:] = [self.decode(x) for x in data]
        elif not _NUMBERS.fullmatch(kind):
            raise ValueError(f"an array of {kind}")
        else:
            flat = numpy.frombuffer(bytearray.fromhex(*data), dtype=numpy.dtype(kind))
        return flat[0] if shape is None else flat.reshape(shape)

    own_class: Callable[[str], type | None]  # a class that the test's own code defines

    def allow(self, kind: type, name: str, value) -> None:
        """Raise ValueError if the program may not give an object such an attribute."""

    def record(self, value) -> list:
        """An object of a class of the test's own: an enum's member, or all its attributes."""
        if isinstance(value, enum.Enum):
            return ["e", type(value).__name__, value.name]
        return self.number(value)

    def head(self, value) -> list:
        """What an empty one is made from: the greatest length of a deque, the factory of a dict."""
        kind = type(value)
        if kind not in MUTABLE:
            return ["o", kind.__name__]
        if kind is collections.deque:
            return ["q", value.maxlen]
        if kind is collections.defaultdict:
            made = value.default_factory
            known = vars(builtins).get(getattr(made, "__name__", "")) is made
            return ["defaultdict", self.encode(made) if known else None]
        return [MUTABLE[kind]]

    def blank(self, tag: str, *room):
        """An empty one; an object without attributes or a call of `__init__`."""
        if tag == "o":
            return object.__new__(self.own_class(*room))
        return _EMPTY[tag](*map(self.decode, room))

    def parts(self, value) -> list:
        """The parts of a mutable object."""
        if type(value) is bytearray:
            return [value.hex()]
        if type(value) not in MUTABLE:
            slots = [x for c in type(value).__mro__ for x in vars(c).get("__slots__", ())]
            slots = {x: getattr(value, x) for x in slots if hasattr(value, x)}
            value = getattr(value, "__dict__", {}) | slots
        if isinstance(value, dict):
            value = [x for pair in value.items() for x in pair]
        return [self.encode(x) for x in value]

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


def encode(value) -> list:
    """A plain value and its mutable objects as JSON's types; NotPlain, as for a subclass of int."""
    return Values().pack(value)[1:]


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
        piece = b""
        with contextlib.suppress(ConnectionError):  # it has not read all that was sent
            piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece and not to_end:
            raise EOFError
        if not piece:
            break
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
