"""The processes behind `sandbox.py`, which starts this file fresh: an isolated Python with an empty environment.

    judge server      reads jobs from its input, one at a time; forks a judge for each test
    candidate server  its child, `sandbox_candidate.py`, behind walls; for each job it forks a candidate

A judge and its candidate share one socket pair, made for this job alone.

Standard library only.
"""

import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox_jail as jail
import sandbox_judge as judge
from sandbox_candidate import Nowhere, settle

del sys.path[0]

CANDIDATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sandbox_candidate.py")
GRACE = 1.0  # seconds beyond the time limit for a test that does not end by itself
READY_LIMIT = 30.0  # seconds for the candidate server to come up
MAX_CACHED = 256  # compiled tests
MAX_TRIES = 3  # of a job during which a server died
MAX_JOBS = 500  # of one fork that runs a test


# ------------------------------------------------------------------ the judge server


class Candidates:
    """The judge server's hold on its candidate server, which it starts again when it is gone."""

    def __init__(self, options: dict):
        self.options, self.process = options, None
        self.start()

    def start(self) -> None:
        """Start it, in place of one that ran, and read which walls it could put up.

        Raises RuntimeError or TimeoutError when it does not come up.
        """
        import subprocess  # here: it would make every fork of the candidate server slower

        self.stop()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", "-B", CANDIDATES]
        self.process = subprocess.Popen(
            [*command, json.dumps({**self.options, "control": theirs.fileno()})],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            cwd="/",
        )
        theirs.close()
        self.control = ours
        ours.settimeout(READY_LIMIT)
        line = b""
        while not line.endswith(b"\n"):
            piece = ours.recv(4096)
            if not piece:
                raise RuntimeError("the candidate server did not start")
            line += piece
        self.walls = json.loads(line)

    def begin(self, sock: socket.socket) -> None:
        """Give this end to a new candidate. OSError when the candidate server is gone."""
        with sock:
            socket.send_fds(self.control, [b"b"], [sock.fileno()])

    def end(self) -> None:
        """Have it killed, with all it left behind. OSError when the candidate server is gone or does not answer."""
        self.control.settimeout(5.0)
        self.control.sendall(b"e")
        if self.control.recv(1) != b"k":
            raise BrokenPipeError

    def stop(self) -> None:
        """End it, if it runs."""
        if self.process is not None:
            self.control.close()
            self.process.kill()
            self.process.wait()


class Runner:
    """A fork of the judge server that runs one test for one program after another.

    A new test gets a new fork, so that no test meets what another left; so does one that was killed, or is worn out.
    """

    def __init__(self, test: judge.Test, candidates: Candidates, options: dict):
        self.test, self.jobs = test, 0
        self.sock, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid:
            theirs.close()
            return
        try:
            self.sock.close()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            if sys.platform == "linux":
                jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
            jail.limit(2 * options["memory_mb"])
            if candidates.walls["filter"]:
                jail.filter_calls(None)
                jail.filter_calls(os.getpid())
            sys.stdout = sys.stderr = Nowhere()
            gc.enable()
            while True:
                job = judge.receive(theirs)
                judge.send(
                    theirs, self.one(job, candidates, time.monotonic() + options["time_limit"])
                )
        finally:
            os._exit(0)

    def one(self, job: dict, candidates: Candidates, deadline: float) -> dict:
        """In the fork: the verdict on one program, whose candidate is gone afterwards."""
        ours, theirs = socket.socketpair()
        with ours:
            candidates.begin(theirs)
            verdict = judge.Judge(self.test, job, ours, deadline).run()
        candidates.end()
        return verdict

    def check(self, job: dict, seconds: float) -> dict | None:
        """The verdict, or None when the runner died or did not come back: then it is of no use any more."""
        self.jobs += 1
        try:
            judge.send(self.sock, job)
            if 0 in select.select([self.sock, 0], [], [], seconds)[0]:
                raise KeyboardInterrupt  # one job at a time is sent: this is the end of the input, the caller is gone
            return judge.receive(self.sock, time.monotonic() + seconds)
        except (OSError, EOFError, ValueError):
            return None

    def stop(self) -> None:
        """End the fork."""
        self.sock.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def judge_server(options: dict) -> None:
    """Serve until the input ends. `options` are those of sandbox.Sandbox: limits, level, folders."""
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    candidates = Candidates(options)
    settle()
    _write(
        out, {"ready": True, "isolation": candidates.walls["level"], "why": candidates.walls["why"]}
    )
    with contextlib.suppress(KeyboardInterrupt):
        _serve(out, candidates, options)
    candidates.stop()


def _serve(out: int, candidates: Candidates, options: dict) -> None:
    cache: dict[tuple[str, str], judge.Test | str] = {}
    runner: Runner | None = None
    while (job := _hear(0)) is not None:
        started = time.monotonic()
        test = _compiled(cache, (job["test"], job["setup"]))
        if isinstance(test, str):
            verdict = {
                "outcome": "rejected",
                "reason": test,
                "fault": "test",
                "cases_passed": 0,
                "cases": 1,
            }
        else:
            for _ in range(MAX_TRIES):
                if runner is None or runner.test is not test or runner.jobs >= MAX_JOBS:
                    if runner is not None:
                        runner.stop()
                    runner = Runner(test, candidates, options)
                verdict = runner.check(job, options["time_limit"] + GRACE)
                if verdict is not None:
                    break
                runner.stop()
                runner = None
                candidates.start()
                verdict = {
                    "outcome": "sandbox error",
                    "reason": "a server died",
                    "fault": "sandbox",
                }
                if time.monotonic() - started > options["time_limit"]:
                    verdict = {
                        "outcome": "timeout",
                        "reason": "the test did not end",
                        "fault": "test",
                    }
                    break
            verdict = {"cases_passed": 0, "cases": max(test.asserts, 1), **verdict}
        _write(
            out, {**verdict, "id": job["id"], "ms": round(1e3 * (time.monotonic() - started), 3)}
        )
    if runner is not None:
        runner.stop()


def _compiled(cache: dict, key: tuple[str, str]) -> "judge.Test | str":
    if key not in cache:
        if len(cache) >= MAX_CACHED:
            cache.clear()
        try:
            cache[key] = judge.Test(*key)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            cache[key] = f"the test is no Python: {type(error).__name__}: {error}"[:400]
    return cache[key]


def _write(fd: int, message: dict) -> None:
    data = json.dumps(message).encode("ascii")
    data = struct.pack("!I", len(data)) + data
    while data:
        data = data[os.write(fd, data) :]


def _hear(fd: int) -> dict | None:
    """The next job, or None at the end of the input."""

    def read(size: int) -> bytes:
        data = b""
        while len(data) < size and (piece := os.read(fd, size - len(data))):
            data += piece
        return data

    head = read(4)
    return json.loads(read(struct.unpack("!I", head)[0])) if len(head) == 4 else None


if __name__ == "__main__":
    judge_server(json.loads(sys.argv[1]))
