"""The walls around a candidate's process: namespaces, Landlock, a filter of system calls, limits.

A refused system call raises OSError with its name. Standard library only.
"""

import contextlib
import ctypes
import errno
import glob
import json
import os
import platform
import re
import resource
import struct
import sys

THREADS_BY_NAMESPACE = [*map(int, re.findall(r"\d+", platform.release())[:2])] >= [5, 14]
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

NEW_NAMESPACES = 0x7C020000  # for users, mounts, processes, network, messages, host name
NEW_USER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 1 << 12, 1 << 14, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
INTERPRETER_MB = 64  # address space of Python itself, added to the memory limit
THREADS = 128  # of a candidate with its server
SPARE_THREADS = 400  # where a candidate's cannot be told apart from the user's others
# One of them becomes the new root.
PLACES = ("/mnt", "/media", "/srv", "/opt", "/run", "/var/tmp", "/tmp", "/home")


def _call(name: str, *arguments) -> int:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name}: this is not Linux")
    if (result := getattr(_libc, name)(*arguments)) < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _system_call(number: int, *arguments) -> int:
    longs = [ctypes.c_long(x) if isinstance(x, int) else x for x in (number, *arguments)]
    return _call("syscall", *longs)


def prctl(option: int, value: int) -> None:
    """Linux's prctl; on other systems nothing, and the isolation level is limits-only."""
    if _libc is not None:
        _call("prctl", option, *(ctypes.c_ulong(x) for x in (value, 0, 0, 0)))


def _mount(source: str, target: str, kind: str | None, flags: int, data=None) -> None:
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), data)


def be_first_to_go(score: int = 1000) -> None:
    """When memory runs out the kernel ends this process and its forks before others: 1000 first."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(str(score))


def enter_namespaces(visible: list[str]) -> None:
    """Continue as process 1 in new namespaces; after an OSError nothing can be judged here."""
    build_root(visible)
    if os.fork():  # only a child is in the new namespace of processes
        with contextlib.suppress(ChildProcessError):
            os.wait()
        os._exit(0)


def build_root(visible: list[str]) -> None:
    """New namespaces for this process and its forks; their root holds `visible`, read-only."""
    tops: list[str] = []
    for path in sorted({os.path.abspath(p) + "/" for p in visible if os.path.isdir(p)}):
        if not path.startswith(tuple(tops)):
            tops.append(path)
    free = [p for p in PLACES if os.path.isdir(p) and not any(t.startswith(p + "/") for t in tops)]
    if not free:
        raise OSError(errno.ENOENT, "no folder to build the new root on")
    root, user, group = free[0], f"1000 {os.geteuid()} 1", f"1000 {os.getegid()} 1"
    be_nobody()
    _call("unshare", NEW_NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, b"size=4m,mode=755")
    for path in tops:
        os.makedirs(root + path, exist_ok=True)
        _mount(path, root + path, None, MS_BIND | MS_REC)
        _read_only(root + path)
    os.chdir(root)
    _system_call(155 if _MACHINE == "x86_64" else 41, b".", b".")  # pivot_root
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _read_only("/")


def _read_only(path: str) -> None:
    had = os.statvfs(path).f_flag  # flags locked in the outer namespace must be repeated
    flags = had & (0b1110 | 1024 | 2048) | (1 << 21 if had & 4096 else 0)  # relatime's bits differ
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags)


def be_nobody() -> bool:
    """For root, whose threads the kernel never limits: take a real user id of no account.

    The effective id, and so the access to files, stays; the filter refuses the way back.
    """
    with contextlib.suppress(OSError):
        if os.geteuid() == 0:
            os.setresuid(60578 + os.getpid() % 606, -1, -1)  # no distribution gives these to anyone
    return os.getuid() != os.geteuid() == 0


def own_user_namespace() -> bool:
    """Enter a user namespace that maps nobody: other processes' memory is out of reach from it."""
    with contextlib.suppress(OSError):
        return _call("unshare", NEW_USER) == 0
    return False


def threads_of_user() -> int:
    """How many threads all processes of this user have."""
    count = 0
    for folder in glob.glob("/proc/[0-9]*/task"):
        with contextlib.suppress(OSError):
            if os.stat(folder).st_uid == os.getuid():
                count += len(os.listdir(folder))
    return count


def landlock(visible: list[str]) -> None:
    """Allow only reading below `visible`, for this process and its forks, irrevocably (Landlock).

    Other processes' memory cannot be read either; newer kernels also stop TCP, signals to processes
    outside and abstract UNIX sockets. It needs no namespaces. OSError before Linux 5.13.
    """
    version = _system_call(444, None, 0, 1)
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1  # all that the kernel knows
    every = struct.pack("QQQ", rights, 3 * (version >= 4), 3 * (version >= 6))  # files, TCP, others
    rules = _system_call(444, every, len(every), 0)
    for path in filter(os.path.isdir, visible):
        folder = os.open(path, os.O_PATH)
        _system_call(445, rules, 1, struct.pack("=Qi", 0b1100, folder), 0)  # read files and folders
        os.close(folder)
    _system_call(446, rules, 0)
    os.close(rules)


def drop_capabilities() -> None:
    """For root, and the first process of a namespace, which is root in it; also for its forks."""
    if _libc is not None:
        _call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))  # version 3; no rights
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit(memory_mb: int) -> None:
    """Set final limits for this process and its forks: MiB beyond the interpreter's, no files."""
    wanted = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":  # macOS cannot limit the address space
        wanted[resource.RLIMIT_AS] = (memory_mb + INTERPRETER_MB) << 20
    set_limits(wanted)


def set_limits(wanted: dict[int, int]) -> None:
    """Set resource limits, soft and hard, or keep lower ones."""
    for which, value in wanted.items():
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


# the filter of system calls
_MACHINE = platform.machine()
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # and the column in syscalls.json
_NEWER = 424  # from here on (io_uring, pidfd, clone3, openat2) calls "do not exist": all fall back
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_THREAD = 0x00010000
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "syscalls.json")) as _file:
    _DENIED = json.load(_file)  # name: its number on x86_64, on aarch64 (null: no such call)
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NO, _NO_FILE, _NO_CALL = (_ERROR | e for e in (errno.EPERM, errno.EACCES, errno.ENOSYS))
# What may be asked of an open file: the state of its descriptor and lock; whether it is a terminal,
# how much waits in it. The others set who gets a signal, a lease, or anything in some driver.
_FCNTL = [0, 1, 2, 3, 4, 5, 6, 7, 1030]
_IOCTL = [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A]
# Calls decided by one argument: numbers on x86_64 and aarch64 (None: no such call), the argument,
# the test, the values, the result if the test holds for one of them, and the result otherwise.
_FOR_ALL = (
    ((2, None), 1, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # open
    ((257, 56), 2, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # openat
    ((302, 261), 0, _JEQ, [0], _ALLOW, _NO),  # prlimit64
    ((72, 25), 1, _JEQ, _FCNTL, _ALLOW, _NO),  # fcntl
    ((16, 29), 1, _JEQ, _IOCTL, _ALLOW, _NO),  # ioctl
    ((53, 199), 1, _JSET, [0b110], _NO, _ALLOW),  # socketpair: datagrams could go to any socket
    ((157, 167), 0, _JEQ, [62], _NO, _ALLOW),  # prctl: the scheduling of others
)
_FOR_ONE = (
    ((56, 220), 0, _JSET, [_THREAD], _ALLOW, _NO),  # clone
    # fork, vfork, kill, tgkill
    *((x, 0, _JEQ, [], _NO, _NO) for x in ((57, None), (58, None), (62, 129), (234, 131))),
)


def filter_calls() -> "Filter":
    """Filter system calls of this process, its threads and its forks, irrevocably (seccomp).

    It denies new programs, sockets, writing and deleting files, other users' rights, and all that
    reaches other processes or stays after this one (see syscalls.json), but not reads, threads,
    forks and signals. Returns the filter for a process that may start and signal no other.
    """
    if _libc is None or _MACHINE not in _ARCH:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {_MACHINE}")
    ops = [(_JGE, 0, 1, _NEWER), (_RET, 0, 0, _NO_CALL)]
    denied = tuple((numbers, 0, _JEQ, [], _NO, _NO) for numbers in _DENIED.values())
    Filter([*ops, *_by_argument(denied + _FOR_ALL)]).install()
    return Filter(_by_argument(_FOR_ONE))


def _by_argument(calls: tuple) -> list:
    ops = []
    for numbers, argument, test, values, yes, no in calls:
        if (number := numbers[_ARCH[_MACHINE][1]]) is not None:
            body = [(_LOAD, 0, 0, 16 + 8 * argument)]
            for value in values:
                body += [(test, 0, 1, value), (_RET, 0, 0, yes)]
            ops += [(_JEQ, 0, len(body) + 1, number), *body, (_RET, 0, 0, no)]
    return ops


class Filter:
    """A program in the language of the kernel's packet filter, whose parts are (code, jt, jf, k).

    It is made before the fork that it is for: each page that a fork writes to must be copied.
    """

    def __init__(self, ops: list[tuple[int, int, int, int]]):
        start = [(_LOAD, 0, 0, 4), (_JEQ, 1, 0, _ARCH[_MACHINE][0]), (_RET, 0, 0, _KILL)]
        ops = [*start, (_LOAD, 0, 0, 0), *ops, (_RET, 0, 0, _ALLOW)]  # _KILL: 32-bit numbers differ
        self._code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *op) for op in ops))
        head = struct.pack("HxxxxxxP", len(ops), ctypes.addressof(self._code))
        self._head = ctypes.create_string_buffer(head, len(head))
        self._prctl = [ctypes.c_ulong(x) for x in (2, ctypes.addressof(self._head), 0, 0)]
        prctl(PR_SET_NO_NEW_PRIVS, 1)

    def install(self) -> None:
        """Put it up, irrevocably."""
        _call("prctl", PR_SET_SECCOMP, *self._prctl)
