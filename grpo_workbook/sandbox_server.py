"""The processes behind `sandbox.py`, which starts this file fresh: an isolated Python with an empty environment.

    judge server      reads jobs from its input, one at a time; for each it forks a judge, which runs the test
    candidate server  the judge server's child, behind the walls of `sandbox_jail`; for each job it forks a candidate

A judge and its candidate share one socket pair, made for this job alone. The candidate server gets one byte for "begin"
(with the candidate's end of the pair) and one for "end", and never reads what a candidate wrote. After each job it kills
everything that is left in its process table.

Standard library only.
"""

import builtins
import contextlib
import gc
import io
import json
import os
import select
import signal
import socket
import struct
import sys
import time
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sandbox_jail as jail
import sandbox_judge as judge

del sys.path[0]

GRACE = 1.0  # seconds beyond the time limit for a test that does not end by itself
READY_LIMIT = 30.0
MAX_CACHED = 256  # compiled tests
MAX_TRIES = 3  # of a job during which a server died
MAX_JOBS = 500  # of one fork that runs a test
PRELOAD = "math re string random itertools functools operator collections heapq bisect copy typing datetime json"


# ------------------------------------------------------------------ the candidate


class _Nowhere(io.TextIOBase):
    """Standard output of a candidate: whatever is printed is gone."""

    encoding = "utf-8"

    def write(self, text):
        return len(text)

    def writable(self):
        return True


def _plain(value):
    """What crosses for a value: a few well-known subclasses and NumPy's scalars as what they equal."""
    kind = type(value)
    if kind.__module__ == "collections" and kind.__name__ in ("defaultdict", "Counter", "OrderedDict"):
        return dict(value)
    if kind.__module__ == "numpy" and hasattr(kind, "dtype") and getattr(value, "shape", None) == ():
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
    reply = _attempt(lambda: types.FunctionType(compile(first["program"], "<program>", "exec"), names)())
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
        os.closerange(4, 256)
        sock.detach()
        sock = socket.socket(fileno=3)
        sys.stdout = sys.stderr = _Nowhere()
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
    _settle()
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


def _settle() -> None:
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
    return code == 0, "" if code == 0 else f"system calls cannot be filtered: {os.strerror(abs(code))}"


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
            with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:
                for pid in file.read().split():
                    os.kill(int(pid), signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


# ------------------------------------------------------------------ the judge server


class Candidates:
    """The judge server's hold on its candidate server, which it starts again when it is gone."""

    def __init__(self, options: dict):
        self.options, self.process = options, None
        self.start()

    def start(self) -> None:
        import subprocess  # here: it would make every fork of the candidate server slower

        self.stop()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", "-B", os.path.abspath(__file__), "candidates"]
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
            sys.stdout = sys.stderr = _Nowhere()
            gc.enable()
            while True:
                job = judge.receive(theirs)
                judge.send(theirs, self.one(job, candidates, time.monotonic() + options["time_limit"]))
        finally:
            os._exit(0)

    def one(self, job: dict, candidates: Candidates, deadline: float) -> dict:
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
        self.sock.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def judge_server(options: dict) -> None:
    if sys.platform == "linux":
        jail.prctl(jail.PR_SET_DUMPABLE, 0)
    out = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    candidates = Candidates(options)
    _settle()
    _write(out, {"ready": True, "isolation": candidates.walls["level"], "why": candidates.walls["why"]})
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
            verdict = {"outcome": "rejected", "reason": test, "fault": "test", "cases_passed": 0, "cases": 1}
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
                verdict = {"outcome": "sandbox error", "reason": "a server died", "fault": "sandbox"}
                if time.monotonic() - started > options["time_limit"]:
                    verdict = {"outcome": "timeout", "reason": "the test did not end", "fault": "test"}
                    break
            verdict = {"cases_passed": 0, "cases": max(test.asserts, 1), **verdict}
        _write(out, {**verdict, "id": job["id"], "ms": round(1e3 * (time.monotonic() - started), 3)})
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
    (judge_server if sys.argv[1] == "judge" else candidate_server)(json.loads(sys.argv[2]))
