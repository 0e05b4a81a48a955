"""The walls around a candidate's process: namespaces, a system call filter, resource limits. Used by the server only.

Standard library only, and nothing of this package: it runs in a process that was started fresh. Each wall is put up by
system calls; what the kernel refuses raises OSError with the call's name.

- `enter_namespaces`: own process table, no network, and a root that holds the Python libraries, read-only, and nothing
  else: no /proc, no /dev, no home.
- `filter_calls` (seccomp): no new processes or programs, no sockets, no opening of files for writing, no deleting or
  renaming, no signals to and no look into other processes. Threads and reading files are left.
- `limit`: address space, processor time, open files, file size.
"""

import ctypes
import errno
import os
import platform
import resource
import struct
import sys

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

NEW_NAMESPACES = (
    0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000 | 0x04000000
)  # user mnt pid net ipc uts
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = (
    1,
    2,
    4,
    32,
    4096,
    1 << 14,
    1 << 18,
)
MNT_DETACH = 2
INTERPRETER_MB = 64  # address space of Python itself, which the memory limit comes on top of
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = (
    1,
    4,
    22,
    36,
    38,
)
PLACES = (
    "/mnt",
    "/media",
    "/srv",
    "/opt",
    "/run",
    "/var/tmp",
    "/tmp",
    "/home",
)  # one becomes the new root


def _call(name: str, *arguments) -> None:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name}: this is not Linux")
    if getattr(_libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def prctl(option: int, value: int) -> None:
    """Linux's prctl with one argument. OSError with the call's name when the kernel refuses."""
    _call("prctl", option, ctypes.c_ulong(value), *(ctypes.c_ulong(0),) * 3)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    encoded = [None if x is None else os.fsencode(x) for x in (source, target, kind)]
    _call("mount", *encoded, ctypes.c_ulong(flags), None if data is None else data.encode())


def enter_namespaces(visible: list[str]) -> None:
    """Leave the machine for a world that holds only the folders `visible`. The next fork is its process 1."""
    tops: list[str] = []
    for path in sorted({os.path.abspath(p) for p in visible if os.path.isdir(p)}):
        if not any(path == t or path.startswith(t + "/") for t in tops):
            tops.append(path)
    root = next(
        (
            p
            for p in PLACES
            if os.path.isdir(p) and not any((t + "/").startswith(p + "/") for t in tops)
        ),
        None,
    )
    if root is None:
        raise OSError(errno.ENOENT, "no folder to build the new root on")
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", NEW_NAMESPACES)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"1000 {uid} 1"),
        ("gid_map", f"1000 {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=755")
    for path in tops:
        os.makedirs(root + path, exist_ok=True)
        _mount(path, root + path, None, MS_BIND | MS_REC)
        _read_only(root + path)
    os.chdir(root)
    _call("syscall", *_long(155 if _MACHINE == "x86_64" else 41), b".", b".")  # pivot_root
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _read_only("/")


def _read_only(path: str) -> None:
    had = os.statvfs(path).f_flag  # what is locked in the outer namespace must be said again
    flags = (had & 0b1110) | (had & (1024 | 2048)) | ((1 << 21) if had & 4096 else 0)
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags)


def _long(number: int) -> tuple:
    return (ctypes.c_long(number),)


def drop_capabilities() -> None:
    """For root, and for the first process of a namespace, which is root there. Descendants have none either."""
    header = struct.pack("Ii", 0x20080522, 0)
    _call("capset", header, bytes(24))
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def limit(memory_mb: int, seconds: float | None = None) -> None:
    """Hard limits for this process and its forks, which cannot be raised again: address space (MiB beyond the
    interpreter's), processor time (seconds, and 2 more), open files, no file written.
    """
    wanted = {
        "RLIMIT_AS": (memory_mb + INTERPRETER_MB) << 20,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
    }
    if seconds is not None:
        wanted["RLIMIT_CPU"] = int(seconds) + 2
    for name, value in wanted.items():
        hard = resource.getrlimit(getattr(resource, name))[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (ValueError, OSError):
            if sys.platform == "linux":  # a Mac knows no limit of the address space
                raise


# ------------------------------------------------------------------ the system call filter

# name: number on x86_64, on aarch64 (None: there is no such call)
_DENIED = {
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "creat": (85, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34),
    "rmdir": (84, None), "mknod": (133, None), "mknodat": (259, 33), "link": (86, None), "linkat": (265, 37),
    "symlink": (88, None), "symlinkat": (266, 36), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "truncate": (76, 45),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186),
    "semget": (64, 190), "mq_open": (240, 180), "init_module": (175, 105), "finit_module": (313, 273),
    "kexec_load": (246, 104), "reboot": (169, 142), "swapon": (167, 224), "sethostname": (170, 161),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "kcmp": (312, 272), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "io_setup": (206, 0),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "memfd_secret": (447, 447),
}  # fmt: skip
_NEWER = 424  # system calls from here on (io_uring, pidfd, clone3, openat2) do not exist: callers fall back
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_THREAD = 0x00010000
_MACHINE = platform.machine()
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL = 0x7FFF0000, 0x80000000


def _error(code: int) -> int:
    return 0x00050000 | code


def filter_program(machine: str, pid: int | None) -> bytes:
    """A filter in the kernel's packet filter language. Raises OSError for a machine that is not known.

    It comes in two parts that add up: with `pid` None what a server can live with too (put up once, it holds for every
    fork), and with a pid what only that process gets: no new processes, signals to nobody else.
    """
    if machine not in _ARCH:
        raise OSError(errno.ENOSYS, f"no system call filter is written for {machine}")
    arch, column = _ARCH[machine]
    no, yes = _error(errno.EPERM), _ALLOW
    ops = [(_LOAD, 0, 0, 4), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL), (_LOAD, 0, 0, 0)]

    def special(
        numbers: tuple, argument: int, test: int, values: list[int], when_true: int, otherwise: int
    ):
        """For this call, decide by one argument: `when_true` if it meets the test with any of the values."""
        if numbers[column] is None:
            return
        body = [(_LOAD, 0, 0, 16 + 8 * argument)]
        for value in values:
            body += [(test, 0, 1, value), (_RET, 0, 0, when_true)]
        body.append((_RET, 0, 0, otherwise))
        ops.extend([(_JEQ, 0, len(body), numbers[column]), *body])

    if pid is None:
        ops += [(_JGE, 0, 1, _NEWER), (_RET, 0, 0, _error(errno.ENOSYS))]
        for numbers in _DENIED.values():
            if numbers[column] is not None:
                ops += [(_JEQ, 0, 1, numbers[column]), (_RET, 0, 0, no)]
        special((2, None), 1, _JSET, [_WRITING], _error(errno.EACCES), yes)  # open
        special((257, 56), 2, _JSET, [_WRITING], _error(errno.EACCES), yes)  # openat
        special((302, 261), 0, _JEQ, [0], yes, no)  # prlimit64
        special((72, 25), 1, _JEQ, [8, 10, 15], no, yes)  # fcntl: who gets a signal
    else:
        special((56, 220), 0, _JSET, [_THREAD], yes, no)  # clone
        special((57, None), 0, _JEQ, [], no, no)  # fork
        special((58, None), 0, _JEQ, [], no, no)  # vfork
        special((62, 129), 0, _JEQ, [pid], yes, no)  # kill
        special((234, 131), 0, _JEQ, [pid], yes, no)  # tgkill
    ops.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *op) for op in ops)


def filter_calls(pid: int | None) -> None:
    """From here on, for this process, its threads and its forks, for good; see `filter_program`."""
    program = filter_program(_MACHINE, pid)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    code = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    )
    _call(
        "prctl",
        PR_SET_SECCOMP,
        ctypes.c_ulong(2),
        ctypes.byref(head),
        ctypes.c_ulong(0),
        ctypes.c_ulong(0),
    )
