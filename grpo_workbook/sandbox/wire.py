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
import zoneinfo
from collections.abc import Iterator

MAX_MESSAGE = 16 << 20  # bytes of one message
MAX_ITEMS = 1_000_000  # of an iterator
MAX_CHAIN = 20_000  # objects in a message that Python frees recursively: a long chain ends it
START_LIMIT = 60.0  # seconds for a server to come up
ANSWERS = ("value", "raised", "not plain")
_DTYPE = re.compile(r"[<>|=]?[?biufcSUMmO]\d*(\[\w+\])?")  # none with fields of its own
# the last: else each thread takes 64 MB of addresses
FOR_LITTLE_MEMORY = "OPENBLAS_NUM_THREADS OMP_NUM_THREADS MKL_NUM_THREADS MALLOC_ARENA_MAX".split()


class NotPlain(Exception):
    """A value that cannot be sent."""


def _arguments(value):
    """What its class needs to make it anew."""
    made_of = getattr(value, "__getinitargs__", None)
    return made_of() if made_of else value.__reduce__()[1]


def _with_zone(moment: datetime.datetime) -> list:
    zone = moment.tzinfo  # of another kind: as the fixed offset of this moment
    return [moment.isoformat(), zone if type(zone) is zoneinfo.ZoneInfo else None, moment.fold]


def _in_zone(text: str, zone, fold: int) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    known = type(zone) is zoneinfo.ZoneInfo  # it may be anything that the program has sent
    return moment.replace(tzinfo=zone if known else moment.tzinfo, fold=fold)


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
for _kind in (datetime.date, datetime.time):
    # not by what they are pickled as: bytes can make a day that does not exist
    FIXED[_kind.__name__] = _kind, lambda x: [x.isoformat()], _kind.fromisoformat
FIXED["datetime"] = datetime.datetime, _with_zone, _in_zone
_OTHERS = (decimal.Decimal, fractions.Fraction, range, slice, datetime.timedelta, datetime.timezone)
for _kind in _OTHERS:
    FIXED[_kind.__name__] = _kind, _arguments, _kind
FIXED["ZoneInfo"] = zoneinfo.ZoneInfo, lambda x: [x.key], zoneinfo.ZoneInfo
_TAGS = {kind: (tag, parts) for tag, (kind, parts, _) in FIXED.items()}
_MADE = {tag: make for tag, (_, _, make) in FIXED.items()}
_MADE |= {"i": lambda digits: int(digits, 16), "g": lambda *items: iter(items)}
# what changes in place, and an empty one
_DICTS = (collections.OrderedDict, collections.Counter, collections.defaultdict)
MUTABLE = {list: "l", dict: "d", set: "s", bytearray: "B", collections.deque: "q"}
MUTABLE |= {kind: kind.__name__ for kind in _DICTS}
_EMPTY = {tag: kind for kind, tag in MUTABLE.items()} | {"q": lambda n: collections.deque(maxlen=n)}
_EMPTY["defaultdict"] = lambda kind: collections.defaultdict(kind if type(kind) is type else None)
PLAIN = {bool, int, float, str, *MUTABLE, *_TAGS}
_tuple_class = functools.lru_cache(maxsize=256)(collections.namedtuple)


class Values:
    """The values of one message and its answer: both sides number its mutable objects alike.

    So an object that is there twice stays one, and an argument that the program has changed can be
    changed in the test. All of them follow behind the value, which keeps a long linked list flat.
    """

    def __init__(self, peer: "Peer"):
        self.peer, self.objects, self.numbers = peer, [], {}

    def pack(self, value) -> list:
        """[0, the value, all the objects] for JSON."""
        packed = [0, self.encode(value)]
        while (at := len(packed) - 2) < len(self.objects):
            packed.append(self.content(self.objects[at]))
        return packed

    def unpack(self, packed: list):
        """The value. Raises an Exception for anything that `pack` never makes.

        The first number says which object is the first: those before it have not changed.
        """
        start, value, *objects = packed
        heads = [head[0] for head, *_ in objects] + [MUTABLE.get(type(x)) for x in self.objects]
        if sum(head in ("q", "defaultdict", "N") for head in heads) > MAX_CHAIN:
            raise ValueError("perhaps a long chain")
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
            return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]  # linear time
        if kind in MUTABLE:
            return self.number(value)
        if kind in _TAGS:
            tag, parts = _TAGS[kind]
            return [tag, *map(self.encode, parts(value))]
        if (found := self.peer.special(self, value, kind)) is None:
            raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])
        return found

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
        return self.peer.found(self, tag, *parts)

    def content(self, value) -> list:
        """A mutable object: what an empty one is made from, and its parts."""
        kind = type(value)
        head = [MUTABLE.get(kind, "o")]
        if kind is collections.deque:
            head.append(value.maxlen)
        elif kind is collections.defaultdict:
            made = value.default_factory
            known = vars(builtins).get(getattr(made, "__name__", "")) is made
            head.append(self.encode(made) if known else None)
        elif kind.__name__ == "ndarray":
            head, value = ["N", value.dtype.str, value.shape], value.ravel().tolist()
        elif kind not in MUTABLE:
            head.append(kind.__name__)
            slots = [x for c in kind.__mro__ for x in vars(c).get("__slots__", ())]
            slots = {x: getattr(value, x) for x in slots if hasattr(value, x)}
            value = getattr(value, "__dict__", {}) | slots
        return [head, *map(self.encode, value.items() if isinstance(value, dict) else value)]

    def blank(self, tag: str, *room):
        """An empty one; an object without attributes or a call of `__init__`."""
        if tag == "o":
            return object.__new__(self.peer.own_class(room[0]))
        if tag == "N":
            return self.peer.array(*room)
        return _EMPTY[tag](*map(self.decode, room))

    def fill(self, value, parts: list) -> None:
        """Change a mutable object in place, one by one: so a deadline can come between."""
        if type(value).__name__ == "ndarray":
            for i in range(max(value.size, len(parts))):  # an error if there are less or more
                value.flat[i] = parts[i]
            return
        if type(value) not in MUTABLE:
            getattr(value, "__dict__", {}).clear()
            for name, part in parts:
                self.peer.allow(type(value), name, part)
                object.__setattr__(value, name, part)
            return
        value.clear()
        put = getattr(value, "append", 0) or getattr(value, "add", lambda x: value.__setitem__(*x))
        for part in parts:
            put(part)


class Peer:
    """One end of a conversation: it asks the other one, and answers what that asks meanwhile."""

    deadline: float | None = None
    ends: tuple = ()  # errors that no message tells
    hears = None  # gets the size of each message before it is read

    def __init__(self, sock: socket.socket | None):
        self.sock = sock

    def converse(self, message: list | None = None) -> list:
        """Send the message, do what the other side asks for meanwhile; its answer."""
        if message:
            send(self.sock, message)
        while (found := receive(self.sock, self.deadline, self.hears))[0] not in ANSWERS:
            try:
                send(self.sock, self.answer(*found))
            except NotPlain as problem:
                send(self.sock, ["not plain", str(problem)])
        return found

    def answer(self, wanted, packed: list) -> list:
        """Do what is wanted. The arguments go back too if that has changed them."""
        values = Values(self)
        arguments, named = values.unpack(packed)
        count = len(values.objects)
        try:
            full = values.pack(self.operation(wanted)(*arguments, **dict(named)))
        except self.ends:
            raise
        except NotPlain as problem:
            return ["not plain", str(problem)]
        except BaseException as error:
            return ["raised", self.raised(error)]
        same = full[2 : count + 2] == packed[2:]  # else the answer changes them for the asker too
        return ["value", [count, full[1], *full[count + 2 :]] if same else full]

    def raised(self, error: BaseException) -> list:
        """An exception: its classes, its words, its arguments and attributes."""
        names, words = [c.__name__ for c in type(error).__mro__], type(error).__name__
        with contextlib.suppress(Exception):
            words = str(error)[:400]
        try:
            given = Values(self).pack((error.args, vars(error)))
        except (NotPlain, RecursionError):
            given = Values(self).pack(((words,), {}))
        return [names, words, given]

    def special(self, values: Values, value, kind: type) -> list | None:
        """What is neither a plain value nor a container of Python's own; None: it cannot cross."""
        if isinstance(value, Iterator) and kind.__module__ in ("builtins", "itertools"):
            items = list(itertools.islice(value, MAX_ITEMS + 1))
            if len(items) > MAX_ITEMS:
                raise NotPlain(f"an iterator of more than {MAX_ITEMS:,} items")
            return ["g", *map(values.encode, items)]
        if kind is type and vars(builtins).get(value.__name__) is value:
            return ["K", value.__name__]
        if kind.__module__ == "numpy" and (dtype := getattr(value, "dtype", None)) is not None:
            if kind.__name__ == "ndarray":
                return values.number(value)
            return None if value.shape else ["N", dtype.str, values.encode(value.tolist())]
        return None

    def record(self, values: Values, value) -> list:
        """An object of a class of the test's own: an enum's member, or all its attributes."""
        if isinstance(value, enum.Enum):
            return ["e", type(value).__name__, value.name]
        return values.number(value)

    def found(self, values: Values, tag: str, *parts):
        """What `special` of the other side has sent."""
        match tag, *parts:
            case "K", name if isinstance(kind := vars(builtins)[name], type):
                return kind
            case "E", *described:
                return self.exception(*described)
            case "N", dtype, item:
                values.fill(array := self.array(dtype, [1]), [values.decode(item)])
                return array[0]
            case "e", name, member:
                return self.own_class(name)[member]
            case "n", name, fields, *items if len(name + "".join(fields)) < 10_000:  # it is kept
                items = [values.decode(item) for item in items]
                for field, item in zip(fields, items, strict=True):
                    self.allow(object, field, item)
                return _tuple_class(name, tuple(fields))(*items)
        raise ValueError(f"an unknown tag {tag!r}")

    def array(self, kind: str, shape: list):
        """NumPy's array of such a `dtype.str`, to be filled."""
        import numpy

        if not _DTYPE.fullmatch(kind):
            raise ValueError(f"an array of {kind}")
        return numpy.empty(shape, dtype=kind)

    def allow(self, kind: type, name: str, value) -> None:
        """Raise ValueError if the program may not give an object such an attribute."""


def encode(value) -> list:
    """A plain value and its mutable objects as JSON's types; NotPlain, as for a subclass of int."""
    return Values(Peer(None)).pack(value)[1:]


_to_json = json.JSONEncoder(check_circular=False).encode


def send(sock: socket.socket, message) -> None:
    """Send one message of JSON's types. Raises NotPlain if it is too large."""
    data = _to_json(message).encode("ascii")
    if len(data) > MAX_MESSAGE:
        raise NotPlain(f"{len(data) >> 20} MB of data")
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket, deadline: float | None = None, hears=None):
    """The next message. EOFError at the end, TimeoutError at the deadline (of time.monotonic)."""
    size = struct.unpack("!I", read(sock, 4, deadline))[0]
    if hears:
        hears(size)
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
