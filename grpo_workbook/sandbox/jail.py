"""The walls around a candidate's process: namespaces, a filter of system calls, resource limits.

A refused system call raises OSError with its name. Standard library only.
"""

import ctypes
import errno
import json
import os
import platform
import resource
import signal
import struct
import sys

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

NEW_NAMESPACES = 0x7C020000  # for users, mounts, processes, network, messages, host name
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 1 << 12, 1 << 14, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
INTERPRETER_MB = 64  # address space of Python itself, added to the memory limit
# One of them becomes the new root.
PLACES = ("/mnt", "/media", "/srv", "/opt", "/run", "/var/tmp", "/tmp", "/home")


def _call(name: str, *arguments) -> None:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name}: this is not Linux")
    if getattr(_libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def prctl(option: int, value: int, more: int = 0) -> None:
    """Linux's prctl; on other systems nothing, and the isolation level is limits-only."""
    if _libc is not None:
        _call("prctl", option, *(ctypes.c_ulong(x) for x in (value, more, 0, 0)))


def _mount(source: str, target: str, kind: str | None, flags: int, data=None) -> None:
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), data)


def enter_namespaces(visible: list[str]) -> None:
    """Continue as process 1 in new namespaces without a network; the parent waits for its end.

    Its root holds only the folders `visible`, read-only: no /proc, no /dev, no home.
    """
    tops: list[str] = []
    for path in sorted({os.path.abspath(p) + "/" for p in visible if os.path.isdir(p)}):
        if not path.startswith(tuple(tops)):
            tops.append(path)
    free = [p for p in PLACES if os.path.isdir(p) and not any(t.startswith(p + "/") for t in tops)]
    if not free:
        raise OSError(errno.ENOENT, "no folder to build the new root on")
    root, user, group = free[0], f"1000 {os.geteuid()} 1", f"1000 {os.getegid()} 1"
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
    _call("syscall", ctypes.c_long(155 if _MACHINE == "x86_64" else 41), b".", b".")  # pivot_root
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _read_only("/")
    if first := os.fork():
        os.waitpid(first, 0)
        os._exit(0)
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _read_only(path: str) -> None:
    had = os.statvfs(path).f_flag  # flags locked in the outer namespace must be repeated
    flags = (had & 0b1110) | (had & (1024 | 2048)) | ((1 << 21) if had & 4096 else 0)
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags)


def drop_capabilities() -> None:
    """For root, and the first process of a namespace, which is root in it; also for its forks."""
    if _libc is not None:
        _call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit(memory_mb: int, seconds: float | None = None) -> None:
    """Set final limits: MiB beyond the interpreter's, processor seconds, no written files."""
    wanted = {resource.RLIMIT_NOFILE: 64, resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CORE: 0}
    if sys.platform == "linux":  # macOS cannot limit the address space
        wanted[resource.RLIMIT_AS] = (memory_mb + INTERPRETER_MB) << 20
    if seconds is not None:
        wanted[resource.RLIMIT_CPU] = int(seconds) + 2
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
# Calls decided by one argument: numbers on x86_64 and aarch64 (None: no such call), the argument,
# the test, the values (None: the own process id), the result if the test holds for one of them, and
# the result otherwise.
_FOR_ALL = (
    ((2, None), 1, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # open
    ((257, 56), 2, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # openat
    ((302, 261), 0, _JEQ, [0], _ALLOW, _NO),  # prlimit64
    ((72, 25), 1, _JEQ, [8, 10, 15], _NO, _ALLOW),  # fcntl: who gets a signal
)
_FOR_ONE = (
    ((56, 220), 0, _JSET, [_THREAD], _ALLOW, _NO),  # clone
    ((57, None), 0, _JEQ, [], _NO, _NO),  # fork
    ((58, None), 0, _JEQ, [], _NO, _NO),  # vfork
    ((62, 129), 0, _JEQ, [None], _ALLOW, _NO),  # kill
    ((234, 131), 0, _JEQ, [None], _ALLOW, _NO),  # tgkill
)


def filter_calls(pid: int | None) -> None:
    """Filter system calls of this process, its threads and its forks, irrevocably (seccomp).

    With `pid` None it denies new programs, sockets, writing and deleting files, and access to other
    processes (see syscalls.json), but not reads, threads and forks. With a process's pid it also
    denies new processes and signals to others.
    """
    if _libc is None or _MACHINE not in _ARCH:
        raise OSError(errno.ENOSYS, f"there is no system call filter for {_MACHINE}")
    arch, column = _ARCH[_MACHINE]
    # a program in the kernel's packet filter language
    ops = [(_LOAD, 0, 0, 4), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    if pid is None:
        ops += [(_JGE, 0, 1, _NEWER), (_RET, 0, 0, _NO_CALL)]
        for number in {numbers[column] for numbers in _DENIED.values()} - {None}:
            ops += [(_JEQ, 0, 1, number), (_RET, 0, 0, _NO)]
    for numbers, argument, test, values, yes, no in _FOR_ALL if pid is None else _FOR_ONE:
        if numbers[column] is not None:
            body = [(_LOAD, 0, 0, 16 + 8 * argument)]
            for value in values:
                body += [(test, 0, 1, pid if value is None else value), (_RET, 0, 0, yes)]
            ops += [(_JEQ, 0, len(body) + 1, numbers[column]), *body, (_RET, 0, 0, no)]
    program = b"".join(struct.pack("HBBI", *op) for op in [*ops, (_RET, 0, 0, _ALLOW)])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    head = ctypes.create_string_buffer(head, len(head))
    prctl(PR_SET_SECCOMP, 2, ctypes.addressof(head))
