"""Messages between the processes of the sandbox: JSON in frames, and plain values as JSON.

A value arrives as exactly the type that its tag names, made by trusted code. So the test's `==`
never gets a value with an `__eq__` of the program's. Standard library only.
"""

import collections
import contextlib
import itertools
import json
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

MAX_MESSAGE = 64 << 20  # bytes of one message
MAX_ITEMS = 1_000_000  # of an iterator
MAX_TEXT = 400  # characters of an error's text
ENDED = "the program ended its process"
# What pool.py asks the server for: processes, their end, and imports
TEST, PROGRAM, SCRIPT, TOGETHER, END, IMPORT = b"q", b"v", b"s", b"t", b"e", b"i"
START_LIMIT = 60.0  # seconds for a process to come up, or to import a test's modules
SCALARS = {bool, float, str, type(None)}  # JSON's own types, beside int
_HOLDERS = {list, dict}
MAX_INT = 1 << 1000  # larger ones cross in base 16, which takes linear time
# Each set to 1: without the last, every thread takes 64 MB of addresses.
_FOR_LITTLE_MEMORY = """OPENBLAS_NUM_THREADS OMP_NUM_THREADS MKL_NUM_THREADS
MALLOC_ARENA_MAX""".split()


class NotPlain(Exception):
    """A value that cannot be sent."""


def _make_dict(*keys_and_values) -> dict:
    return dict(zip(keys_and_values[::2], keys_and_values[1::2], strict=True))


def _items_of(value: dict) -> Iterator:
    return itertools.chain.from_iterable(value.items())


# What crosses: of each type its tag and its parts, of each tag what makes a value from them. A
# constructor gives exactly its type, or raises, whatever the parts are.
_TAGS: dict[type, tuple[str, Callable]] = {}
_MAKERS: dict[str, Callable] = {}


def _crosses(tag: str, cls: type, parts: Callable, make: Callable) -> None:
    _TAGS[cls] = tag, parts
    _MAKERS[tag] = make


_crosses("t", tuple, list, lambda *items: items)
_crosses("s", set, list, lambda *items: set(items))
_crosses("f", frozenset, list, lambda *items: frozenset(items))
_crosses("d", dict, _items_of, _make_dict)
_crosses("Counter", collections.Counter, lambda x: [dict(x)], collections.Counter)
_crosses("deque", collections.deque, lambda x: [list(x), x.maxlen], collections.deque)
_crosses("keys", type({}.keys()), list, lambda *items: dict.fromkeys(items).keys())
_crosses("values", type({}.values()), list, lambda *items: dict(enumerate(items)).values())
_crosses("items", type({}.items()), list, lambda *items: dict(items).items())
_crosses("b", bytes, lambda x: [x.hex()], bytes.fromhex)
_crosses("c", complex, lambda x: [x.real, x.imag], complex)
_crosses("range", range, lambda x: [x.start, x.stop, x.step], range)
_crosses("...", type(...), lambda _: [], lambda: ...)
# what `encode` knows beside these
_MAKERS["int"] = lambda digits: int(digits, 16)
_MAKERS["iterator"] = lambda *items: iter(items)
# A value of another class crosses as the content of the first of these classes that fits.
_CONTENT = [
    (bool, bool),
    (int, int.__int__),
    (float, float.__float__),
    (complex, complex),
    (str | collections.UserString, "".join),
    (bytes | bytearray, bytes),
    (tuple, tuple),
    (list | collections.UserList, list),
    (Mapping, dict),
    (frozenset, frozenset),
    (Set, set),
]


def encode(value: Any):
    """A plain value as JSON's types; NotPlain for any other.

    Lists are JSON's own; another type is an object of JSON, with its tag as the key. An object of a
    subclass crosses as its content, a NumPy array as a list, an iterator as its items.
    """
    cls = type(value)
    if cls in SCALARS:
        return value
    if cls is int:
        return value if -MAX_INT < value < MAX_INT else {"int": [hex(value)]}
    if cls is list:
        return value if _is_flat(value) or _is_grid(value) else list(map(encode, value))
    if cls in _TAGS:
        tag, parts = _TAGS[cls]
        return {tag: list(map(encode, parts(value)))}
    if cls.__module__ == "numpy" and hasattr(value, "tolist"):
        return encode(value.tolist())
    if isinstance(value, Iterator):
        return {"iterator": list(map(encode, _first_items(value)))}
    return encode(_content(value))


def _content(value: Any):
    """The plain value that an object of a subclass has as its content; NotPlain for any other."""
    for base, content_of in _CONTENT:
        if isinstance(value, base):
            return content_of(value)
    cls = type(value)
    name = f"{cls.__module__}.{cls.__qualname__}"[:200]
    raise NotPlain(f"a value of type {name}: only plain values can be sent")


def _first_items(iterator: Iterator) -> list:
    items = list(itertools.islice(iterator, MAX_ITEMS + 1))
    if len(items) > MAX_ITEMS:
        raise NotPlain(f"an iterator of more than {MAX_ITEMS:,} items")
    return items


def _is_flat(items: list) -> bool:
    """Whether the list has only what JSON can write as it is: millions take no time."""
    types = set(map(type, items))
    if int in types:
        return types <= {int, bool} and max(items) < MAX_INT and min(items) > -MAX_INT
    return types <= SCALARS


def _is_grid(rows: list) -> bool:
    """Whether all items are flat lists: a table, or a graph's edges."""
    return set(map(type, rows)) == {list} and _is_flat([*itertools.chain.from_iterable(rows)])


def decode(data) -> Any:
    """The value; an Exception for anything that `encode` never makes."""
    if type(data) is list:
        return data if _HOLDERS.isdisjoint(map(type, data)) else list(map(decode, data))
    if type(data) is dict:
        ((tag, parts),) = data.items()
        return _MAKERS[tag](*map(decode, parts))
    return data


_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_to_json = json.JSONEncoder(check_circular=False).encode


def send(sock: socket.socket, message) -> None:
    """Send one message of JSON's types. Raises NotPlain if it is too large."""
    data = _to_json(message).encode("ascii")
    if len(data) > MAX_MESSAGE:
        limit = MAX_MESSAGE >> 20
        raise NotPlain(f"{len(data) >> 20} MB of data, more than the {limit} MB that can be sent")
    sock.sendall(struct.pack("!I", len(data)) + data)


def receive(sock: socket.socket, deadline: float | None = None):
    """The next message. EOFError at the end, TimeoutError at the deadline (of time.monotonic).

    ValueError or RecursionError for what is no message.
    """
    size = struct.unpack("!I", read(sock, 4, deadline))[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    # one NaN for all: [math.nan] equals itself in Python, because both are the same object
    return json.loads(read(sock, size, deadline), parse_constant=_CONSTANTS.__getitem__)


def read(sock: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """Exactly `size` bytes; EOFError at an earlier end, TimeoutError at the deadline."""
    data = read_up_to(sock, size, deadline)
    if len(data) < size:
        raise EOFError
    return data


def read_up_to(sock: socket.socket, size: int, deadline: float | None = None) -> bytes:
    """All bytes until the end, at most `size`; TimeoutError at the deadline."""
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:  # also if the sender goes byte by byte
                raise TimeoutError
            sock.settimeout(left)
        piece = b""
        with contextlib.suppress(ConnectionError):  # it has not read all that was sent
            piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            break
        data.extend(piece)
    return bytes(data)


def start_server(options: dict):
    """(process, its socket): a new isolated Python with an empty environment runs server.py.

    `options` are those of `pool.Sandbox`: time_limit in seconds, memory_mb, level, and the folders
    packages and visible.
    """
    import subprocess  # not above: a candidate does not need it

    ours, theirs = socket.socketpair()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")
    environment: dict[str, str] = dict.fromkeys(_FOR_LITTLE_MEMORY, "1")
    if "LD_LIBRARY_PATH" in os.environ:
        environment["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    with theirs:
        # in its own session: a Ctrl-C goes to the trainer, which closes the servers
        process = subprocess.Popen(
            [sys.executable, "-E", "-s", "-S", "-B", path],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )
    send(ours, options)
    return process, ours
