"""The untrusted side: a server behind the walls of `sandbox_jail` that forks a candidate for each job.

It is started by `sandbox_server.py`. It gets one byte for "begin", with the candidate's end of a socket pair, and one
for "end", and never reads what a candidate wrote. After each job it kills everything that is left in its process table.

Standard library only.
"""

import builtins
import contextlib
import gc
import io
import json
import os
import signal
import socket
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox_jail as jail
import sandbox_judge as judge

del sys.path[0]

PRELOAD = "math re string random itertools functools operator collections heapq bisect copy typing datetime json"


# ------------------------------------------------------------------ the candidate


class Nowhere(io.TextIOBase):
    """Standard output of a candidate: whatever is printed is gone."""

    encoding = "utf-8"

    def write(self, text):
        """As if all of it had been written."""
        return len(text)

    def writable(self):
        """Yes, or print would refuse."""
        return True


def _plain(value):
    """What crosses for a value: a few well-known subclasses and NumPy's scalars as what they equal."""
    kind = type(value)
    if kind.__module__ == "collections" and kind.__name__ in (
        "defaultdict",
        "Counter",
        "OrderedDict",
    ):
        return dict(value)
    if (
        kind.__module__ == "numpy"
        and hasattr(kind, "dtype")
        and getattr(value, "shape", None) == ()
    ):
        return value.item()
    return value


def _outer(value):
    """The value, and for a list, tuple or dict also its items one level down, made plain."""
    value = _plain(value)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return {_plain(k): _plain(v) for k, v in value.items()} if type(value) is dict else value


def candidate(sock: socket.socket) -> None:
    """Load the program, then answer calls until the judge hangs up. Everything here may be tampered with by it."""
    judge.send(sock, ["ready", None])
    first = judge.receive(sock)
    module = types.ModuleType("__candidate__")
    sys.modules["__candidate__"] = module
    names = module.__dict__
    names["__builtins__"] = builtins
    reply = _attempt(
        lambda: types.FunctionType(compile(first["program"], "<program>", "exec"), names)()
    )
    if reply[0] == "value":
        function = names.get(first["entry_point"])
        reply = ["value", None] if callable(function) else ["missing", ""]
    judge.send(sock, reply)
    while reply[0] != "missing":
        arguments, named = judge.decode(judge.receive(sock)["call"])
        reply = _attempt(lambda: function(*arguments, **named))  # noqa: B023
        try:
            judge.send(sock, reply)
        except judge.NotPlain as problem:
            judge.send(sock, ["not plain", str(problem)])


def _attempt(run) -> list:
    try:
        value = run()
    except BaseException as error:
        names = [c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins"]
        words = type(error).__name__
        with contextlib.suppress(Exception):
            words = str(error)[: judge.MAX_WORDS]
        return ["raised", [names[0], words]]
    try:
        return ["value", judge.encode(_outer(value))]
    except judge.NotPlain as problem:
        return ["not plain", str(problem)]
    except BaseException as error:  # of an iterator, on the way, or for want of memory
        return ["raised", [type(error).__name__, ""]]


def _be_candidate(sock: socket.socket, options: dict, walls: dict) -> None:
    """In the fork: close everything else, put up the last walls, run. Never returns."""
    try:
        if sys.platform == "linux":
            jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        os.dup2(sock.fileno(), 3)
        os.closerange(
            4, max(16, int(options["control"]) + 1)
        )  # a server of its own holds few: 256 calls cost 1 ms
        sock.detach()
        sock = socket.socket(fileno=3)
        sys.stdout = sys.stderr = Nowhere()
        sys.stdin = io.StringIO()
        sys.argv = ["program"]
        jail.limit(options["memory_mb"], options["time_limit"])
        if walls["filter"]:
            jail.filter_calls(os.getpid())
        gc.enable()
        candidate(sock)
    except BaseException:
        pass  # whatever it was, the judge sees the end of the socket
    finally:
        os._exit(1)


# ------------------------------------------------------------------ the candidate server


def candidate_server(options: dict) -> None:
    """Put up the walls, say which hold, then fork a candidate at each "begin" and kill it at each "end". No return."""
    control = socket.socket(fileno=int(options["control"]))
    walls = {"level": "full", "why": "", "filter": True}
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
        walls.update(level="limits-only", why=str(error))
    walls["filter"], problem = _filter_works()
    if not walls["filter"]:
        walls.update(level="limits-only", why="; ".join(x for x in (walls["why"], problem) if x))
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
        jail.prctl(jail.PR_SET_DUMPABLE, 0)  # no look into this process, nor into its forks
        jail.drop_capabilities()
    sys.path += [p for p in options["packages"] if p not in sys.path]
    settle()
    if walls["filter"]:
        jail.filter_calls(None)
    control.sendall(json.dumps(walls).encode() + b"\n")
    child = 0
    while True:
        word, fds, _, _ = socket.recv_fds(control, 1, 1)
        if word == b"b":
            child = os.fork()
            if not child:
                _be_candidate(socket.socket(fileno=fds[0]), options, walls)
            os.close(fds[0])
            continue
        _clear(child)
        child = 0
        if not word:
            os._exit(0)
        control.sendall(b"k")


def settle() -> None:
    """Load what programs need, and keep the collector from touching (and so copying) it in every fork."""
    for name in PRELOAD.split():
        __import__(name)
    gc.collect()
    gc.disable()
    gc.freeze()


def _filter_works() -> tuple[bool, str]:
    """In a fork, since it cannot be taken back."""
    child = os.fork()
    if not child:
        try:
            jail.filter_calls(None)
            jail.filter_calls(os.getpid())
            os._exit(0)
        except BaseException as error:
            os._exit(getattr(error, "errno", None) or 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (
        code == 0,
        "" if code == 0 else f"system calls cannot be filtered: {os.strerror(abs(code))}",
    )


def _clear(child: int) -> None:
    """Kill and reap all that is left of a job. As process 1 that is everything; else all our descendants."""
    alone = os.getpid() == 1
    for _ in range(1000):
        with contextlib.suppress(OSError):
            if alone:
                os.kill(-1, signal.SIGKILL)
            elif child:
                os.kill(child, signal.SIGKILL)
                os.killpg(child, signal.SIGKILL)
        if not alone:
            with (
                contextlib.suppress(OSError),
                open(f"/proc/self/task/{os.getpid()}/children") as file,
            ):
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


if __name__ == "__main__":
    candidate_server(json.loads(sys.argv[1]))
