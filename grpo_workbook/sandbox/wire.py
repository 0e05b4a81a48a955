"""Messages between a judge and a candidate: plain values as JSON with tags, in frames.

A value arrives as exactly the type in its tag, an iterator as its items. So the test's `==` never
gets an object with an `__eq__` that is always True. The servers load this file by its path, so it
imports only the standard library.
"""

import json
import os
import socket
import struct
import sys
import time
import types

MAX_MESSAGE = 16 << 20  # bytes of one message
TAGS = {list: "l", tuple: "t", set: "s", frozenset: "f", dict: "d"}
ITERATORS = {types.GeneratorType, map, filter, zip, enumerate, reversed}
ITERATORS |= {type(iter(x)) for x in ([], (), {}, set(), "", range(0))}
VIEWS = {type({}.keys()), type({}.values()), type({}.items()), range}
FOR_LITTLE_MEMORY = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
FOR_LITTLE_MEMORY += ("MALLOC_ARENA_MAX",)  # else each thread takes 64 MB of addresses
START_LIMIT = 60.0  # seconds for a server to come up
FROM_ITEMS = {tag: kind for kind, tag in TAGS.items()} | {
    "d": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    "g": iter,
    "c": lambda items: complex(*items),
    "i": lambda items: int(*items, 16),
    "b": lambda items: bytes.fromhex(*items),
}


class NotPlain(Exception):
    """A value that cannot be sent."""


def encode(value):
    """A plain value as JSON's types; NotPlain for other values, such as a subclass of int."""
    kind = type(value)
    if value is None or kind is bool or kind is float or kind is str:
        return value
    if kind is int:
        return value if -(1 << 1000) < value < 1 << 1000 else ["i", hex(value)]
    if kind is bytes:
        return ["b", value.hex()]
    if kind is complex:
        return ["c", value.real, value.imag]
    if kind in TAGS or kind in ITERATORS or kind in VIEWS:
        items = [x for pair in value.items() for x in pair] if kind is dict else value
        return [TAGS.get(kind, "g"), *(encode(x) for x in items)]
    raise NotPlain(f"a value of type {kind.__module__}.{kind.__qualname__}"[:200])


def decode(data):
    """The plain value; an Exception for anything that `encode` never writes."""
    return FROM_ITEMS[data[0]]([decode(x) for x in data[1:]]) if type(data) is list else data


def send(sock: socket.socket, message) -> None:
    """Send one message of JSON's types. Raises NotPlain if it is too large."""
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
            if (left := deadline - time.monotonic()) <= 0:  # also if the sender goes byte by byte
                raise TimeoutError
            sock.settimeout(left)
        piece = sock.recv(min(size - len(data), 1 << 20))
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
