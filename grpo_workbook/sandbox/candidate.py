"""The untrusted side: a server behind the walls of `jail.py` that forks a candidate for each job.

It gets a byte for "begin", with the candidate's end of a socket pair, and a byte for "end", and
never reads output of a candidate, which goes to /dev/null. After each job it kills all processes
that are left. Standard library only.
"""

import contextlib
import functools
import gc
import os
import resource
import signal
import socket
import sys
import types
from collections import Counter, OrderedDict, defaultdict

import jail
import wire


def _plain(value, deep: bool = True):
    """Some well-known subclasses and NumPy's scalars as plain values, also one level down."""
    kind = type(value)
    if kind.__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    if kind in (dict, defaultdict, Counter, OrderedDict):
        return {_plain(k, False): _plain(v, False) if deep else v for k, v in value.items()}
    return kind(_plain(x, False) for x in value) if deep and kind in (list, tuple) else value


def candidate(sock: socket.socket) -> None:
    """Load the program, answer calls until the judge hangs up; a program may change all of this."""
    wire.send(sock, ["ready", None])
    first = wire.receive(sock)
    module = sys.modules["__candidate__"] = types.ModuleType("__candidate__")
    names = module.__dict__
    reply = _attempt(lambda: exec(first["program"], names))
    function = names.get(first["entry_point"])
    if reply[0] == "value" and not callable(function):
        reply = ["missing", ""]
    while True:
        try:
            wire.send(sock, reply)
        except wire.NotPlain as problem:
            wire.send(sock, ["not plain", str(problem)])
        arguments, named = wire.decode(wire.receive(sock)["call"])
        reply = _attempt(functools.partial(function, *arguments, **named))


def _attempt(run) -> list:
    try:
        return ["value", wire.encode(_plain(run()))]
    except wire.NotPlain as problem:
        return ["not plain", str(problem)]
    except BaseException as error:
        names = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
        words = type(error).__name__
        with contextlib.suppress(Exception):
            words = str(error)[:400]
        return ["raised", [names[0], words]]


def _be_candidate(sock: socket.socket, control: int, options: dict, walls) -> None:
    """In the fork: close all other descriptors, put up the last walls, run. Never returns."""
    try:
        if os.getppid() != 1:  # process 1 takes all others with it when it ends
            jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.dup2(sock.fileno(), 3)
        os.closerange(4, max(16, control + 1))  # a server of its own holds few descriptors
        sock.detach()
        jail.set_limits(options["limits"])
        if walls:
            walls.install(os.getpid())
        gc.enable()
        candidate(socket.socket(fileno=3))
    finally:
        os._exit(1)  # for any error the judge sees the end of the socket


def candidate_server() -> None:
    """Put up the walls, report which hold; then fork a candidate per "begin", kill it at "end"."""
    control, options = wire.take_socket()
    missing, lacks = _shut_in(options)
    del sys.path[0]  # a program's `import wire` must fail, as anywhere else
    sys.path += options["packages"]
    for name in "math re string random itertools heapq bisect copy typing datetime".split():
        __import__(name)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # a program may print half a surrogate pair
    del sys.modules["jail"], sys.modules["wire"]
    walls = None
    try:
        jail.filter_calls(None)
        walls = jail.filter_for_one()
    except OSError as error:
        missing.append(f"system calls cannot be filtered: {error}")
        lacks.append("use the network, write files and end your processes")
    jail.limit(options["memory_mb"])
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


def _shut_in(options: dict) -> tuple[list[str], list[str]]:
    """Go behind the walls: (why not all are there, what programs can do without them)."""
    missing, lacks, visible = [], [], options["visible"]
    jail.be_first_to_go()
    crowded = jail.threads_of_user() + jail.SPARE_THREADS
    try:
        if options["level"] == "limits-only":
            raise OSError("asked for")
        jail.enter_namespaces(visible)
        nobody, inside = os.getuid() != os.geteuid(), True
    except OSError as error:
        missing.append(str(error))
        nobody, inside = jail.be_nobody(), jail.own_user_namespace()
    alone = nobody or (inside and jail.COUNTS_BY_NAMESPACE)
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
