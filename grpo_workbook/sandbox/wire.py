"""What crosses between a judge and a candidate: plain values as JSON with tags, in framed messages.

A value comes back as exactly the type it names; an iterator comes as its items. So an object whose
`__eq__` always says yes never meets the test's `==`. Standard library only, and nothing of this
package: both processes load this file by its path.
"""

import json
import socket
import struct
import time
import types

MAX_MESSAGE = 16 << 20  # bytes of one message
MAX_DEPTH = 150
MAX_ITEMS = 100_000  # of an iterator
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f", dict: "d"}
ITERATORS = {types.GeneratorType, map, filter, zip, enumerate, reversed}
ITERATORS |= {type(iter(x)) for x in ([], (), {}, set(), "", range(0))}
VIEWS = {type({}.keys()), type({}.values()), type({}.items())}


class NotPlain(Exception):
    """A value that may not cross."""


def encode(value, depth: int = 0):
    """What json can write, for a plain value; NotPlain for others, such as a subclass of int."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]
    if depth > MAX_DEPTH:
        raise NotPlain(f"nested more than {MAX_DEPTH} deep")
    if kind in TAGS:
        items = [x for pair in value.items() for x in pair] if kind is dict else value
        return [TAGS[kind], *(encode(x, depth + 1) for x in items)]
    if kind is bytes or kind is bytearray:
        return ["b" if kind is bytes else "a", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind is range:
        return ["r", *(encode(x) for x in (value.start, value.stop, value.step))]
    if kind in ITERATORS or kind in VIEWS:
        items = []
        for item in value:
            if len(items) == MAX_ITEMS:
                raise NotPlain(f"an iterator of more than {MAX_ITEMS} items")
            items.append(encode(item, depth + 1))
        return ["g", *items]
    raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])


def decode(data):
    """The plain value; raises ValueError, TypeError or the like for what `encode` never writes."""
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
    """The next message. EOFError at the end, TimeoutError at the deadline (of time.monotonic)."""
    size = struct.unpack("!I", _read(sock, 4, deadline))[0]
    if size > MAX_MESSAGE:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(_read(sock, size, deadline))


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:  # also for one that sends byte by byte
                raise TimeoutError
            sock.settimeout(left)
        piece = sock.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError
        data += piece
    return bytes(data)
