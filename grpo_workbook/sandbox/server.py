"""The judge server, which `pool.py` starts fresh: an isolated Python with an empty environment.

It reads one job at a time from its socket and runs the test. The program runs in a candidate, which
its child forks: `candidate.py`, behind walls. The two share one socket pair, made for this job
alone. A test that does not end is no matter of this process: `pool.py` ends it, and starts another.
Standard library only.
"""

import functools
import gc
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import jail
import judge
import wire

del sys.path[0]

HERE = os.path.dirname(os.path.abspath(__file__))
READY_LIMIT = 30.0  # seconds for the candidate server to come up


def start_candidates(options: dict) -> tuple[socket.socket, dict]:
    """The candidate server's socket, and which walls it could put up (see candidate.py)."""
    control, theirs = socket.socketpair()
    more = json.dumps({**options, "control": theirs.fileno()})
    with theirs:
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", os.path.join(HERE, "candidate.py"), more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
        )
    return control, wire.receive(control, time.monotonic() + READY_LIMIT)


@functools.lru_cache(maxsize=256)
def compiled(source: str, setup: str) -> "judge.Test | str":
    """The test, compiled once; why it cannot be, where it is no Python."""
    try:
        return judge.Test(source, setup)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"the test is no Python: {type(error).__name__}: {error}"[:400]


def check(job: dict, control: socket.socket, seconds: float) -> dict:
    """The verdict on one job, whose candidate is gone afterwards. OSError: the servers are."""
    test = compiled(job["test"], job["setup"])
    if isinstance(test, str):
        return judge.verdict("rejected", test, "test")
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            socket.send_fds(control, [b"b"], [theirs.fileno()])
        verdict = judge.Judge(test, job, ours, time.monotonic() + seconds).run()
    control.settimeout(5.0)
    control.sendall(b"e")  # it is killed, with all that it left behind
    if control.recv(1) != b"k":
        raise BrokenPipeError
    return verdict


def leave_with(caller: socket.socket) -> None:
    """End this process, in whatever it is, as soon as the other end of the socket is gone."""
    poll = select.poll()
    poll.register(caller, getattr(select, "POLLRDHUP", select.POLLHUP))
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve the process that started this one, over the socket that is standard input."""
    options = json.loads(sys.argv[1])
    caller = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=leave_with, args=[caller], daemon=True).start()
    control, walls = start_candidates(options)
    gc.freeze()
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
    jail.limit(2 * options["memory_mb"])
    if walls["filter"]:
        jail.filter_calls(None)
        jail.filter_calls(os.getpid())
    wire.send(caller, {"isolation": walls["level"], "why": walls["why"]})
    while True:
        job = wire.receive(caller)
        started = time.monotonic()
        verdict = check(job, control, options["time_limit"])
        wire.send(caller, verdict | {"ms": round(1e3 * (time.monotonic() - started), 3)})


if __name__ == "__main__":
    main()
