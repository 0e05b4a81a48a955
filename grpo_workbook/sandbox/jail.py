"""The walls around model-written programs: namespaces, Landlock, a filter of system calls, limits.

Each wall is a function that raises OSError where the kernel refuses it; server.py decides what
then remains. Standard library only.
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

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

NEW_NAMESPACES = 0x7C020000  # for users, mounts, processes, network, messages, host name
NEW_USER = 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT = 1, 2, 4, 32
MS_BIND, MS_REC, MS_PRIVATE, MS_RELATIME, MNT_DETACH = 1 << 12, 1 << 14, 1 << 18, 1 << 21, 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
# System calls that libc has no function for; their numbers are the same on all machines.
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
THREADS = 128  # of a program with its server
SPARE_THREADS = 400  # where a program's cannot be told apart from the user's others
FILES_SIZE = 64 << 20  # bytes of the private /tmp
# One of them becomes the new root.
PLACES = ("/mnt", "/media", "/srv", "/opt", "/run", "/var/tmp", "/tmp", "/home")
DEVICES = ("/dev/null", "/dev/urandom")


def _call(name: str, *arguments) -> int:
    if _libc is None:
        raise OSError(errno.ENOSYS, f"{name}: this is not Linux")
    result = getattr(_libc, name)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def _system_call(number: int, *arguments) -> int:
    longs = [ctypes.c_long(x) if isinstance(x, int) else x for x in (number, *arguments)]
    return _call("syscall", *longs)


def prctl(option: int, value: int) -> None:
    """Linux's prctl; on other systems nothing, and the isolation level is limits-only."""
    if _libc is not None:
        longs = [ctypes.c_ulong(number) for number in (value, 0, 0, 0)]
        _call("prctl", option, *longs)


def _mount(source: str, target: str, filesystem: str | None, flags: int, data=None) -> None:
    filesystem_bytes = None if filesystem is None else filesystem.encode()
    flags_long = ctypes.c_ulong(flags)
    _call("mount", os.fsencode(source), os.fsencode(target), filesystem_bytes, flags_long, data)


def be_first_to_go() -> None:
    """When memory runs out the kernel ends this process and its forks before others."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # the highest score


# ------------------------------------------------------------------ namespaces


def enter_namespaces(visible: list[str]) -> None:
    """Continue as process 1 in new namespaces; after an OSError nothing can be judged here."""
    build_root(visible)
    if os.fork():  # only a child is in the new namespace of processes
        with contextlib.suppress(ChildProcessError):
            os.wait()
        os._exit(0)


def build_root(visible: list[str]) -> None:
    """New namespaces for this process and its forks.

    Their root holds the folders in `visible`, read-only, and an empty /tmp in memory.
    """
    folders = _outermost(visible)
    root = _free_place(folders)
    user = f"1000 {os.geteuid()} 1"
    group = f"1000 {os.getegid()} 1"
    be_nobody()
    _call("unshare", NEW_NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)
    _mount("none", "/", None, MS_REC | MS_PRIVATE)
    _mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, b"size=4m,mode=755")
    os.makedirs(root + "/tmp", exist_ok=True)
    options = f"size={FILES_SIZE},nr_inodes=10000,mode=777".encode()
    _mount("tmpfs", root + "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, options)
    # A visible folder may lie in the real /tmp, as that of an environment made there. What leads to
    # it is a file system of its own, so that no program can write beside it.
    places_in_tmp = {"/".join(path.split("/")[:3]) for path in folders if path.startswith("/tmp/")}
    for place in places_in_tmp:
        os.makedirs(root + place)
        _mount("tmpfs", root + place, "tmpfs", MS_NOSUID | MS_NODEV, b"size=4m,mode=755")
    for path in folders:
        os.makedirs(root + path, exist_ok=True)
        _mount(path, root + path, None, MS_BIND | MS_REC)
        _make_read_only(root + path)
    for place in places_in_tmp:
        _make_read_only(root + place)
    os.makedirs(root + "/dev", exist_ok=True)
    for device in DEVICES:
        open(root + device, "w").close()
        with contextlib.suppress(OSError):
            _mount(device, root + device, None, MS_BIND)
    os.chdir(root)
    pivot_root = 155 if _MACHINE == "x86_64" else 41
    _system_call(pivot_root, b".", b".")
    _call("umount2", b".", MNT_DETACH)
    os.chdir("/")
    _make_read_only("/")


def _outermost(paths: list[str]) -> list[str]:
    """The folders that exist, without those inside of others."""
    folders: list[str] = []
    existing = {os.path.abspath(path) + "/" for path in paths if os.path.isdir(path)}
    for path in sorted(existing):
        if not path.startswith(tuple(folders)):
            folders.append(path)
    return folders


def _free_place(folders: list[str]) -> str:
    """A folder to build the new root on, in which none of the visible ones is."""
    for place in PLACES:
        inside = [path for path in folders if path.startswith(place + "/")]
        if os.path.isdir(place) and not inside:
            return place
    raise OSError(errno.ENOENT, "no folder to build the new root on")


def _make_read_only(path: str) -> None:
    present = os.statvfs(path).f_flag  # flags locked in the outer namespace must be repeated
    flags = present & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME)
    if present & os.ST_RELATIME:  # which has another bit here
        flags = flags | MS_RELATIME
    _mount("none", path, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | flags)


def be_nobody() -> bool:
    """For root, whose threads the kernel never limits: take a real user id of no account.

    The effective id, and so the access to files, stays; the filter refuses the way back. Returns
    whether this process now is nobody in that way.
    """
    with contextlib.suppress(OSError):
        if os.geteuid() == 0:
            os.setresuid(60578 + os.getpid() % 606, -1, -1)  # no distribution gives these to anyone
    return os.getuid() != os.geteuid() == 0


def enter_user_namespace() -> bool:
    """Enter a user namespace that maps nobody: other processes' memory is out of reach from it.

    Returns whether the kernel allows it.
    """
    with contextlib.suppress(OSError):
        _call("unshare", NEW_USER)
        return True
    return False


def drop_capabilities() -> None:
    """For root, and the first process of a namespace, which is root in it; also for its forks."""
    if _libc is not None:
        _call("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))  # version 3; no rights
    prctl(PR_SET_NO_NEW_PRIVS, 1)


# ------------------------------------------------------------------ Landlock


def landlock(visible: list[str]) -> None:
    """Allow only to read below `visible`, irrevocably.

    Other processes' memory cannot be read either. It needs no namespaces.
    OSError before Linux 5.13.
    """
    version = _system_call(LANDLOCK_CREATE_RULESET, None, 0, 1)
    file_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # all that this kernel knows
    attributes = struct.pack("Q", (1 << file_rights) - 1)
    rules = _system_call(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0)
    reading = 0b1100  # files and folders
    for path in filter(os.path.isdir, visible):
        descriptor = os.open(path, os.O_PATH)
        _system_call(LANDLOCK_ADD_RULE, rules, 1, struct.pack("=Qi", reading, descriptor), 0)
        os.close(descriptor)
    _system_call(LANDLOCK_RESTRICT_SELF, rules, 0)
    os.close(rules)


# ------------------------------------------------------------------ limits


def threads_are_counted_by_namespace() -> bool:
    """Whether this kernel counts the threads of a user namespace apart."""
    major, minor = re.findall(r"\d+", platform.release())[:2]
    return (int(major), int(minor)) >= (5, 14)


def threads_of_user() -> int:
    """How many threads all processes of this user have."""
    count = 0
    for folder in glob.glob("/proc/[0-9]*/task"):
        with contextlib.suppress(OSError):
            if os.stat(folder).st_uid == os.getuid():
                count += len(os.listdir(folder))
    return count


def set_limits(limits: dict[int, int]) -> None:
    """Set resource limits, soft and hard, or keep lower ones.

    `limits`: the value of each resource, such as `resource.RLIMIT_CPU`, in the kernel's units.
    """
    for limited, value in limits.items():
        hard = resource.getrlimit(limited)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(limited, (value, value))


# ------------------------------------------------------------------ the filter of system calls

_MACHINE = platform.machine()
_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # and the column in syscalls.json
_NEWER = 424  # from here on (io_uring, pidfd, clone3, openat2) calls "do not exist": all fall back
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_THREAD = 0x00010000
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "syscalls.json")) as _file:
    # name: its number on x86_64, on aarch64 (null: no such call). "files" are denied to all but
    # those who have a /tmp of their own.
    _NUMBERS = json.load(_file)
_LOAD, _JEQ, _JGE, _JSET, _RET = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NO, _NO_FILE, _NO_CALL = _ERROR | errno.EPERM, _ERROR | errno.EACCES, _ERROR | errno.ENOSYS
# What may be asked of an open file: the state of its descriptor and lock; whether it is a terminal,
# how much waits in it. The others set who gets a signal, a lease, or anything in some driver.
_FCNTL = [0, 1, 2, 3, 4, 5, 6, 7, 1030]
_IOCTL = [0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451, 0x802C542A]
# Calls decided by one argument: numbers on x86_64 and aarch64 (None: no such call), the argument,
# the test, the values, the result if the test holds for one of them, and the result otherwise.
_FOR_ALL = [
    ((302, 261), 0, _JEQ, [0], _ALLOW, _NO),  # prlimit64
    ((72, 25), 1, _JEQ, _FCNTL, _ALLOW, _NO),  # fcntl
    ((16, 29), 1, _JEQ, _IOCTL, _ALLOW, _NO),  # ioctl
    ((53, 199), 1, _JSET, [0b110], _NO, _ALLOW),  # socketpair: datagrams could go to any socket
    ((157, 167), 0, _JEQ, [62], _NO, _ALLOW),  # prctl: the scheduling of others
]
_NO_FORKS = [((56, 220), 0, _JSET, [_THREAD], _ALLOW, _NO)]  # clone: only of threads
_OPENING = [
    ((2, None), 1, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # open
    ((257, 56), 2, _JSET, [_WRITING], _NO_FILE, _ALLOW),  # openat
]


def _denied(group: str) -> list:
    return [(numbers, 0, _JEQ, [], _NO, _NO) for numbers in _NUMBERS[group].values()]


def _rules(calls: list) -> list[tuple[int, int, int, int]]:
    """The filter's operations for calls that are decided by one argument."""
    operations = []
    for numbers, argument, test, values, if_so, if_not in calls:
        number = numbers[_ARCH[_MACHINE][1]]
        if number is None:
            continue
        body = [(_LOAD, 0, 0, 16 + 8 * argument)]
        for value in values:
            body.append((test, 0, 1, value))
            body.append((_RET, 0, 0, if_so))
        operations.append((_JEQ, 0, len(body) + 1, number))
        operations.extend(body)
        operations.append((_RET, 0, 0, if_not))
    return operations


class Filter:
    """A program in the language of the kernel's packet filter, whose parts are (code, jt, jf, k).

    It is made before the fork that it is for: each page that a fork writes to must be copied.
    """

    def __init__(self, operations: list[tuple[int, int, int, int]]):
        if _libc is None or _MACHINE not in _ARCH:
            raise OSError(errno.ENOSYS, f"there is no system call filter for {_MACHINE}")
        # _KILL: the numbers of 32-bit calls differ
        start = [(_LOAD, 0, 0, 4), (_JEQ, 1, 0, _ARCH[_MACHINE][0]), (_RET, 0, 0, _KILL)]
        every = [*start, (_LOAD, 0, 0, 0), *operations, (_RET, 0, 0, _ALLOW)]
        code = b"".join(struct.pack("HBBI", *operation) for operation in every)
        self._code = ctypes.create_string_buffer(code)
        head = struct.pack("HxxxxxxP", len(every), ctypes.addressof(self._code))
        self._head = ctypes.create_string_buffer(head, len(head))
        longs = (2, ctypes.addressof(self._head), 0, 0)
        self._arguments = [ctypes.c_ulong(number) for number in longs]
        prctl(PR_SET_NO_NEW_PRIVS, 1)

    def install(self) -> None:
        """Put it up for this process, its threads and its forks, irrevocably."""
        _call("prctl", PR_SET_SECCOMP, *self._arguments)


def server_filter(files: bool) -> Filter:
    """For the server and all that it forks.

    It denies new programs, sockets, other users' rights, and all that reaches other processes or
    stays after this one, and without `files` also to write and delete files. It does not deny
    reads, threads, forks and signals.
    """
    calls = _denied("always") + _FOR_ALL
    if not files:
        calls = calls + _denied("files") + _OPENING
    newer = [(_JGE, 0, 1, _NEWER), (_RET, 0, 0, _NO_CALL)]
    return Filter([*newer, *_rules(calls)])


def program_filter(files: bool, timers: bool) -> Filter:
    """For a process that may start and signal no other.

    Without `files` it writes none; without `timers` it cannot signal itself later either.
    """
    calls = _denied("processes") + _NO_FORKS
    if not files:
        calls = calls + _denied("files") + _OPENING
    if not timers:  # a handler gets the frame of whatever runs then
        calls = calls + _denied("timers")
    return Filter(_rules(calls))
