"""One server for each worker: it goes behind the walls of jail.py and forks all processes there.

pool.py asks it for processes: one that runs a test (tester.py), one with a program that answers by
value or is a script (candidate.py), one that has program and test together (together.py). Each gets
what it works on over a socket of its own, so this process never sees a test, and no fork of it
inherits one. The forks can start, signal and trace no other process. Standard library only.
"""

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
from typing import Any

import candidate
import jail
import tester
import together
import wire

PRIVATE = "/tmp"  # with full isolation it is in memory, and emptied after each job
LARGEST_FILE = 32 << 20  # bytes
DESCRIPTORS = 64
INTERPRETER = 64 << 20  # bytes of address space, where this process cannot look up its own
# What the processes run that pool.py can ask for.
FORKS = {
    wire.TEST: tester.run,
    wire.PROGRAM: candidate.answer_calls,
    wire.SCRIPT: candidate.run_script,
    wire.TOGETHER: together.run,
}
OWN_MODULES = """assertions candidate guard jail json_tests runner tester together wire""".split()


def main() -> None:
    """Serve the process that started this one, over the socket that is standard input."""
    control = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    options = wire.receive(control)
    try:
        server = Server(control, options)
    except OSError as error:  # half a wall: pool.py starts another server, without this one
        wire.send(control, {"level": "", "why": str(error)})
        return
    wire.send(control, {"level": server.level, "why": server.why()})
    server.serve()


class Server:
    """The server's process.

    - `missing`: which walls are not there; `lacks`: what programs can do without them
    - `has_folder`: whether there is a private /tmp, which a job in one process may write to
    - `is_shut_off`: whether other processes' memory is out of reach even without Landlock
    - `test`, `program`: process ids of the running forks, 0 for none
    - `children_file`, `memory_file`: descriptors of files in /proc, None where there are none
    - `unclean`: whether something of a job is left that cannot be deleted
    """

    def __init__(self, control: socket.socket, options: dict):
        self.control, self.options = control, options
        self.missing: list[str] = []
        self.lacks: list[str] = []
        self.level = options["level"]
        self.has_folder = self.level == "full"
        self.test = self.program = 0
        self.children_file = self.memory_file = None
        self.unclean = False
        self._enter()
        if not self.has_folder:
            self.level = "limits-only"
            self._forbid_files()
        self._filter_calls()
        self._prepare_python()

    def why(self) -> str:
        """Which walls are missing and what follows; "" if none is."""
        if not self.missing:
            return ""
        return f"{'; '.join(self.missing)}: programs can {' and '.join(self.lacks)}"

    # ------------------------------------------------------------------ the walls

    def _enter(self) -> None:
        """Leave the other processes behind: namespaces, or at least another user."""
        jail.be_first_to_go()
        threads = jail.threads_of_user()
        proc = self._open("/proc")  # it shows what no program may see
        if self.has_folder:
            jail.enter_namespaces(self.options["visible"])
            is_nobody, self.is_shut_off = os.getuid() != os.geteuid(), True
        else:
            self.missing.append("no namespaces")
            is_nobody = jail.be_nobody()
            self.is_shut_off = jail.enter_user_namespace() or is_nobody
        if proc is not None:
            self.memory_file = self._open("self/statm", proc)
            if os.getpid() != 1:  # the process ids there are those of the namespace outside
                self.children_file = self._open(f"self/task/{os.getpid()}/children", proc)
            os.close(proc)
        self._set_limits(threads, is_nobody)
        jail.prctl(jail.PR_SET_CHILD_SUBREAPER, 1)
        jail.prctl(jail.PR_SET_DUMPABLE, 0)  # other processes cannot read this one or its forks
        jail.drop_capabilities()

    def _set_limits(self, others_threads: int, is_nobody: bool) -> None:
        """Limit this process, and note the limits of its forks."""
        limits = {resource.RLIMIT_NOFILE: DESCRIPTORS, resource.RLIMIT_CORE: 0}
        limits[resource.RLIMIT_FSIZE] = LARGEST_FILE if self.has_folder else 0
        jail.set_limits(limits)
        self.limits = {resource.RLIMIT_CPU: int(self.options["time_limit"]) + 2}
        if sys.platform != "linux":
            return
        if is_nobody or (self.is_shut_off and jail.threads_are_counted_by_namespace()):
            self.limits[resource.RLIMIT_NPROC] = jail.THREADS
        else:  # the limit counts the user's other threads, too
            self.limits[resource.RLIMIT_NPROC] = others_threads + jail.SPARE_THREADS
            self.lacks.append(f"start {jail.SPARE_THREADS} threads")

    @staticmethod
    def _open(path: str, folder: int | None = None) -> int | None:
        with contextlib.suppress(OSError):
            return os.open(path, os.O_RDONLY, dir_fd=folder)
        return None

    def _forbid_files(self) -> None:
        """Keep files from programs where no namespace hides them."""
        try:
            jail.landlock(self.options["visible"])
            self.lacks.append("see whether a file exists")
        except OSError as error:
            self.missing.append(f"no Landlock: {error}")
            self.lacks.append("read all your files")
            if not self.is_shut_off:
                self.lacks.append("read your other processes' environment")

    def _filter_calls(self) -> None:
        self.filters: dict[bool, jail.Filter] = {}  # whether it is for program and test together
        try:
            jail.server_filter(self.has_folder).install()
            self.filters[True] = jail.program_filter(self.has_folder, timers=False)
            self.filters[False] = jail.program_filter(files=False, timers=True)
        except OSError as error:
            if self.has_folder:  # process 1 could not find the processes that a program starts
                raise
            self.missing.append(f"system calls cannot be filtered: {error}")
            self.lacks.append("use the network, write files and end your processes")

    # ------------------------------------------------------------------ the interpreter

    def _prepare_python(self) -> None:
        """Import what programs need most, once here and not in every fork."""
        del sys.path[0]  # a program's `import wire` must fail, as anywhere else
        sys.path.extend(self.options["packages"])
        for name in OWN_MODULES:
            sys.modules.pop(name, None)
        if self.has_folder:
            for name in ("HOME", "TMPDIR", "MPLCONFIGDIR"):
                os.environ[name] = PRIVATE
        else:  # Matplotlib asks for a folder to write to, and goes on if it cannot
            os.environ["MPLCONFIGDIR"] = os.path.dirname(os.__file__)
            os.access = lambda *_, **__: True
        os.environ["MPLBACKEND"] = "Agg"
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        candidate.import_for_leetcode()
        streams: Any = (sys.stdout, sys.stderr)
        for stream in streams:
            stream.reconfigure(errors="replace")  # a program may print half a surrogate pair
        gc.disable()  # it would touch, and so copy, this memory in every fork
        gc.freeze()

    def _import(self, names: list[str]) -> None:
        """Import a test's modules, for all forks from now on."""
        for name in names:
            # whatever a package does, the test itself says what is wrong with it
            with contextlib.suppress(BaseException):
                __import__(name)
        gc.freeze()

    # ------------------------------------------------------------------ requests

    def serve(self) -> None:
        """Do what pool.py asks for; this ends the process when pool.py hangs up."""
        while True:
            request, descriptors, _, _ = socket.recv_fds(self.control, 1, 1)
            if not request or self.unclean:
                os._exit(0)  # pool.py starts another server, with a new folder
            if request == wire.END:
                self._end_program()
                self.control.sendall(b"k")
            elif request == wire.IMPORT:
                self._import(wire.receive(self.control))
                wire.send(self.control, self._sizes()[1])
            else:
                self._start(request, descriptors[0])

    # ------------------------------------------------------------------ forks

    def _start(self, request: bytes, descriptor: int) -> None:
        """Fork the process that this request asks for; it ends the one before."""
        if request == wire.TEST:
            _end(self.test)
        else:
            self._end_program()
        limits = dict(self.limits)
        memory = self.options["memory_mb"] << 20
        if request == wire.TEST:
            memory *= 2  # it has its own values and the program's
            del limits[resource.RLIMIT_CPU]  # it judges many programs
        if sys.platform == "linux":  # macOS cannot limit the address space
            limits[resource.RLIMIT_AS] = self._sizes()[0] + memory
        may_write = request == wire.TOGETHER and self.has_folder
        if not may_write:
            limits[resource.RLIMIT_FSIZE] = 0
        child = os.fork()
        if child == 0:
            self._be_child(request, descriptor, limits)
        os.close(descriptor)
        if request == wire.TEST:
            self.test = child
        else:
            self.program = child

    def _be_child(self, request: bytes, descriptor: int, limits: dict) -> None:
        """Put up the last walls and run; this never returns."""
        try:
            os.dup2(descriptor, 3)
            os.closerange(4, DESCRIPTORS)  # on the others a program could ask for processes
            if os.getppid() != 1:  # process 1 takes all others with it when it ends
                jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
            os.setsid()
            jail.set_limits(limits)
            if self.filters:
                self.filters[request == wire.TOGETHER].install()
            gc.enable()
            FORKS[request](socket.socket(fileno=3))
        finally:
            os._exit(1)  # after any error the other side sees the end of the socket

    def _sizes(self) -> tuple[int, int]:
        """Bytes of address space that a fork of this process starts with, and of memory."""
        if self.memory_file is None:
            return INTERPRETER, 0
        pages = os.pread(self.memory_file, 100, 0).split()
        page = resource.getpagesize()
        return int(pages[0]) * page, int(pages[1]) * page

    def _end_program(self) -> None:
        """Kill and reap all processes of a job, and empty /tmp."""
        if self.program:
            _end(-self.program)
            _end(self.program)
            self.program = 0
            self._end_descendants()
        if self.has_folder:
            self._empty_folder()

    def _end_descendants(self) -> None:
        """Without a filter a program can start others, which become children of this process."""
        for _ in range(1000):
            if self.children_file is None:
                return
            children = {int(pid) for pid in os.pread(self.children_file, 1 << 20, 0).split()}
            children.discard(self.test)
            if not children:
                return
            for pid in children:
                _end(pid)

    def _empty_folder(self) -> None:
        names = os.listdir(PRIVATE)
        if not names:
            return
        import shutil  # not above: each fork costs what this process has in memory

        for name in names:
            path = os.path.join(PRIVATE, name)
            if os.path.ismount(path):  # it leads to packages that lie in the machine's /tmp
                continue
            try:
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path)
                else:
                    os.remove(path)
            except (OSError, RecursionError):
                self.unclean = True


def _end(pid: int) -> None:
    """Kill and reap a process, or all of a group (-pid); 0: none."""
    if pid == 0:
        return
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
