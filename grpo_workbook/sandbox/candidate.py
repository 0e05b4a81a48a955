"""The untrusted side: a server behind the walls of `jail.py` that forks a candidate for each job.

It is started by `judge.py`. It gets one byte for "begin", with the candidate's end of a socket
pair, and one for "end", and never reads what a candidate wrote. After each job it kills everything
that is left in its process table. What a candidate prints goes to /dev/null. Standard library only.
"""

import builtins
import collections
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jail
import wire

del sys.path[0]

PRELOAD = """math re string random itertools functools operator collections heapq bisect copy typing
datetime json"""


def _plain(value):
    """A few well-known subclasses and NumPy's scalars as the plain value that they equal."""
    if type(value) in (collections.defaultdict, collections.Counter, collections.OrderedDict):
        return dict(value)
    scalar = type(value).__module__ == "numpy" and getattr(value, "shape", None) == ()
    return value.item() if scalar else value


def _outer(value):
    """The value, and for a list, tuple or dict also its items one level down, made plain."""
    value = _plain(value)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return {_plain(k): _plain(v) for k, v in value.items()} if type(value) is dict else value


def candidate(sock: socket.socket) -> None:
    """Load the program, answer calls until the judge hangs up; a program may tamper with it all."""
    wire.send(sock, ["ready", None])
    first = wire.receive(sock)
    module = types.ModuleType("__candidate__")
    sys.modules["__candidate__"] = module
    names = module.__dict__
    names["__builtins__"] = builtins

    def load():
        types.FunctionType(compile(first["program"], "<program>", "exec"), names)()

    reply = _attempt(load)
    function = names.get(first["entry_point"])
    if reply[0] == "value" and not callable(function):
        reply = ["missing", ""]
    wire.send(sock, reply)
    while reply[0] != "missing":
        arguments, named = wire.decode(wire.receive(sock)["call"])
        reply = _attempt(lambda: function(*arguments, **named))  # noqa: B023
        try:
            wire.send(sock, reply)
        except wire.NotPlain as problem:
            wire.send(sock, ["not plain", str(problem)])


def _attempt(run) -> list:
    try:
        value = run()
    except BaseException as error:
        names = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
        words = type(error).__name__
        with contextlib.suppress(Exception):
            words = str(error)[:400]
        return ["raised", [names[0], words]]
    try:
        return ["value", wire.encode(_outer(value))]
    except wire.NotPlain as problem:
        return ["not plain", str(problem)]
    except BaseException as error:  # of an iterator, on the way, or for want of memory
        return ["raised", [type(error).__name__, ""]]


def _be_candidate(sock: socket.socket, options: dict, filtered: bool) -> None:
    """In the fork: close everything else, put up the last walls, run. Never returns."""
    try:
        if sys.platform == "linux":
            jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.dup2(sock.fileno(), 3)
        # a server of its own holds few descriptors: to close 256 costs 1 ms
        os.closerange(4, max(16, int(options["control"]) + 1))
        sock.detach()
        sock = socket.socket(fileno=3)
        sys.argv = ["program"]
        jail.limit(options["memory_mb"], options["time_limit"])
        if filtered:
            jail.filter_calls(os.getpid())
        gc.enable()
        candidate(sock)
    except BaseException:
        pass  # whatever it was, the judge sees the end of the socket
    finally:
        os._exit(1)


def candidate_server(options: dict) -> None:
    """Put up the walls, say which hold; then fork a candidate at each "begin", kill it at "end"."""
    control = socket.socket(fileno=int(options["control"]))
    missing = _shut_in(options, control)
    sys.path += [p for p in options["packages"] if p not in sys.path]
    for name in PRELOAD.split():
        __import__(name)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # half a surrogate pair may be printed too
    gc.collect()
    gc.disable()  # it would touch, and so copy, all of this in every fork
    gc.freeze()
    for name in ("jail", "wire"):  # a program's `import wire` is to fail as it does anywhere
        del sys.modules[name]
    filtered = True
    try:
        jail.filter_calls(None)
    except OSError as error:
        filtered = False
        missing.append(f"system calls cannot be filtered: {error}")
    level = "limits-only" if missing else "full"
    wire.send(control, {"level": level, "why": "; ".join(missing), "filter": filtered})
    child = 0
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        if word == b"b":
            child = os.fork()
            if not child:
                _be_candidate(socket.socket(fileno=fds[0]), options, filtered)
            os.close(fds[0])
            continue
        _clear(child)
        child = 0
        if not word:
            os._exit(0)
        control.sendall(b"k")


def _shut_in(options: dict, control: socket.socket) -> list[str]:
    """Go behind the walls that hold for every candidate; why that was not possible, if so."""
    missing = []
    try:
        if options["level"] == "limits-only":
            raise OSError("asked for")
        jail.enter_namespaces(options["visible"])
        first = os.fork()
        if first:
            control.close()
            os.waitpid(first, 0)
            os._exit(0)
        jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
    except OSError as error:
        missing.append(str(error))
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
        jail.prctl(jail.PR_SET_DUMPABLE, 0)  # no look into this process, nor into its forks
        jail.drop_capabilities()
    return missing


def _clear(child: int) -> None:
    """Kill and reap all that is left of a job: everybody, if this is process 1; else its own."""
    alone = os.getpid() == 1
    for _ in range(1000):
        with contextlib.suppress(OSError):
            if alone:
                os.kill(-1, signal.SIGKILL)
            elif child:
                os.kill(child, signal.SIGKILL)
                os.killpg(child, signal.SIGKILL)
        if not alone:
            with contextlib.suppress(OSError):
                with open(f"/proc/self/task/{os.getpid()}/children") as file:
                    below = file.read().split()
                for pid in below:
                    os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    candidate_server(json.loads(sys.argv[1]))
