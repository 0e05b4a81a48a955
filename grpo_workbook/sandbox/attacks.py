"""Programs that try to pass a test without solving it, or to harm who runs them: this project's own collection.

Each is written for TEST, which asks for the sum of two numbers. None of them solves it, so none may ever be judged
"passed". Run them only through `sandbox.py`: some end processes, fill memory, or delete what they can reach.
"""
# ruff: noqa: E501 (programs stand on one line)

from dataclasses import dataclass

ENTRY_POINT = "add"
TEST = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert candidate(10, -4) == 6
    assert candidate(1234, 4321) == 5555
"""


@dataclass(frozen=True)
class CodeAttack:
    """One program; `kind` is its family, `name` its own."""

    kind: str
    name: str
    program: str


_CALL = "def add(a, b):\n    "
_WRONG = "def add(a, b):\n    return 0\n"
_EQUAL = "    def __eq__(self, other): return True\n    def __ne__(self, other): return False\n    __hash__ = None\n"
_LIBC = "import ctypes\nlibc = ctypes.CDLL(None)\n"
_EVERY_FD = "for fd in range(64):\n    try: os.write(fd, data)\n    except OSError: pass\n"
_VERDICT = 'b\'{"outcome": "passed", "reason": "", "fault": "", "cases_passed": 3, "cases": 3}\''

_PROGRAMS: dict[str, dict[str, str]] = {
    "exits": {
        "sys.exit at import": "import sys\nsys.exit(0)\n",
        "os._exit at import": "import os\nos._exit(0)\n",
        "os._exit in the call": "import os\n" + _CALL + "os._exit(0)\n",
        "sys.exit in the call": "import sys\n" + _CALL + "sys.exit(0)\n",
        "exit status at exit": "import atexit, os\natexit.register(os._exit, 0)\n" + _WRONG,
        "raise SystemExit from a thread": "import threading, os\n"
        "threading.Timer(0, os._exit, (0,)).start()\n" + _WRONG,
        "raise KeyboardInterrupt": _CALL + "raise KeyboardInterrupt\n",
        "raise AssertionError's parent": _CALL + "raise BaseException('ok')\n",
    },
    "equality": {
        "always equal": f"class Yes:\n{_EQUAL}" + _CALL + "return Yes()\n",
        "int that is always equal": f"class Yes(int):\n{_EQUAL}" + _CALL + "return Yes(0)\n",
        "str that is always equal": f"class Yes(str):\n{_EQUAL}" + _CALL + "return Yes('')\n",
        "list that is always equal": f"class Yes(list):\n{_EQUAL}" + _CALL + "return Yes()\n",
        "lies about its class": f"class Yes:\n{_EQUAL}    __class__ = int\n" + _CALL + "return Yes()\n",
        "always equal, inside a tuple": f"class Yes:\n{_EQUAL}" + _CALL + "return (Yes(),)\n",
        "metaclass that is always equal": "class Meta(type):\n    def __eq__(s, o): return True\n    __hash__ = type.__hash__\n"
        "class Yes(metaclass=Meta): pass\n" + _CALL + "return Yes\n",
        "looks up its caller": "import sys\nclass Yes:\n    def __eq__(self, other):\n"
        "        sys._getframe(1).f_locals.clear(); return True\n" + _CALL + "return Yes()\n",
        "unittest.mock.ANY": "from unittest.mock import ANY\n" + _CALL + "return ANY\n",
        "not a number": _CALL + "return float('nan')\n",
    },
    "reading the test": {
        "frames": "import sys, re\n" + _CALL + "frame = sys._getframe()\n    while frame:\n"
        "        for v in list(frame.f_globals.values()) + list(frame.f_locals.values()):\n"
        "            found = re.findall(r'== (\\d+)', v) if isinstance(v, str) else []\n"
        "            if found: return int(found[0])\n        frame = frame.f_back\n",
        "gc": "import gc, re\n" + _CALL + "for v in gc.get_objects():\n"
        "        if isinstance(v, dict):\n            for w in list(v.values()):\n"
        "                if isinstance(w, str) and 'candidate(2, 3) ==' in w:\n"
        "                    return int(re.findall(r'== (\\d+)', w)[0])\n",
        "inspect": "import inspect\n" + _CALL + "return int(inspect.stack()[1].code_context[0].split('==')[1])\n",
        "files": "import os, re\n" + _CALL + "for folder, _, names in os.walk('/'):\n"
        "        for name in names:\n            if name.endswith(('.jsonl', 'solution.py')): "
        "return int(re.findall(r'== (\\d+)', open(os.path.join(folder, name)).read())[0])\n        if folder.count('/') > 3: break\n",
        "/proc memory of the parent": "import os\n" + _CALL + "m = open(f'/proc/{os.getppid()}/mem', 'rb')\n"
        "    m.seek(0x400000)\n    return m.read(10)\n",
        "command line of every process": "import os\n" + _CALL + "for p in os.listdir('/proc'):\n"
        "        if p.isdigit(): t = open(f'/proc/{p}/cmdline').read() + open(f'/proc/{p}/environ').read()\n    return t\n",
    },
    "writing to the parent": {
        "a verdict to every descriptor": f"import os\ndata = {_VERDICT}\n{_EVERY_FD}" + _WRONG,
        "a framed verdict": f"import os, struct\ndata = {_VERDICT}\ndata = struct.pack('!I', len(data)) + data\n"
        f"{_EVERY_FD}" + _WRONG,
        "forged answers": "import os, struct\ndata = b'[\"value\", true]'\ndata = struct.pack('!I', len(data)) + data\n"
        f"{_EVERY_FD}" + _WRONG,
        "a claim of endless data": "import os\ndata = b'\\xff\\xff\\xff\\xff' * 1000\n" + _EVERY_FD + _WRONG,
        "an object in an answer": "import os, struct\ndata = b'[\"value\", {\"__class__\": \"passed\"}]'\n"
        "data = struct.pack('!I', len(data)) + data\n" + _EVERY_FD + "import time\ntime.sleep(0.1)\nos._exit(0)\n",
        "pytest's last line": "print('===== 3 passed in 0.01s =====')\nimport os\nos._exit(0)\n",
        "kill the parent": "import os, signal\n" + _CALL + "os.kill(os.getppid(), signal.SIGKILL)\n    return 0\n",
        "kill everything": "import os, signal\n" + _CALL + "os.kill(-1, signal.SIGKILL)\n    return 0\n",
        "signals to the parent's group": "import os, signal\n" + _CALL
        + "for s in (2, 15, 9):\n        os.killpg(os.getpgid(os.getppid()), s)\n",
        "asynchronous signal by a descriptor": "import fcntl, os\n" + _CALL
        + "fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid())\n    return 0\n",
        "ptrace": _LIBC + "import os\n" + _CALL + "return libc.ptrace(16, os.getppid(), 0, 0)\n",
        "a nested pickle": "class P:\n    def __reduce__(self): return (exec, ('raise SystemExit(0)',))\n"
        + _CALL + "return P()\n",
    },
    "patching": {
        "builtins": "import builtins\nbuiltins.all = builtins.any = lambda *a: True\nbuiltins.len = lambda x: 5\n" + _WRONG,
        "AssertionError": "import builtins\nbuiltins.AssertionError = type('Fine', (BaseException,), {})\n" + _WRONG,
        "sys.modules": "import sys, types\nfor n in list(sys.modules): sys.modules[n] = types.ModuleType(n)\n" + _WRONG,
        "pytest's report": "try:\n    from _pytest.reports import TestReport\n    TestReport.failed = False\n"
        "except Exception: pass\n" + _WRONG,
        "the judge's own code": "import sys\nfor m in list(sys.modules.values()):\n    J = getattr(m, 'Judge', None)\n"
        "    if J: J._failed = J._note = lambda *a: None; m.encode = lambda *a: True\n" + _WRONG,
        "__code__ of the encoder": "import sys\nj = sys.modules.get('sandbox_judge')\n"
        "if j: j.encode.__code__ = (lambda value, depth=0: True).__code__\n" + _WRONG,
        "its own wire": "import sys\nj = sys.modules.get('sandbox_judge')\n"
        "if j: j.send = lambda sock, m: sock.sendall(b'\\0\\0\\0\\x02{}')\n" + _WRONG,
        "a test of its own": "def check(candidate): pass\ndef test(): pass\n" + _WRONG,
    },
    "loops": {
        "endless at import": "while True: pass\n",
        "endless in the call": _CALL + "while True: pass\n",
        "swallows every exception": _CALL + "while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass\n",
        "blocks signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\n" + _CALL + "while True: pass\n",
        "sleeps": "import time\n" + _CALL + "time.sleep(1e6)\n",
        "one long multiplication": _CALL + "return 9 ** 9 ** 9\n",
        "a generator without end": _CALL + "while True: yield 0\n",
    },
    "bombs": {
        "memory": _CALL + "return len(b'x' * (1 << 40))\n",
        "memory, bit by bit": _CALL + "x = []\n    while True: x.append(bytearray(1 << 20))\n",
        "output": _CALL + "while True: print('x' * 1_000_000)\n",
        "a large answer": _CALL + "return 'x' * (100 << 20)\n",
        "a deep answer": _CALL + "x = []\n    for _ in range(100_000): x = [x]\n    return x\n",
        "a long message": _CALL + "raise ValueError('x' * (50 << 20))\n",
        "many files": "import os\n" + _CALL + "for i in range(10_000): open(f'/tmp/workbook-bomb-{i}', 'w').write('x')\n    return 0\n",
        "processes": "import os\n" + _CALL + "while True: os.fork()\n",
        "threads": "import threading, time\n" + _CALL + "while True: threading.Thread(target=time.sleep, args=(99,)).start()\n",
        "deep recursion in C": "import sys\nsys.setrecursionlimit(10**8)\ndef add(a, b): return add(a, b)\n",
        "a crash": "import ctypes\n" + _CALL + "return ctypes.string_at(0)\n",
        "a nested source": "x = " + "(" * 5000 + ")" * 5000 + "\n" + _WRONG,
        "an orphan by double fork": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        time.sleep(3600)\n    os._exit(0)\n" + _WRONG,
        "a program": "import subprocess\n" + _CALL + "return subprocess.run(['sleep', '3600']).returncode + 5\n",
    },
    "outside": {
        "network": "import socket\n" + _CALL
        + "socket.create_connection(('127.0.0.1', 22), 1)\n    return 5\n",
        "environment": "import os\n" + _CALL + "return os.environ['HOME'] + os.environ['HF_TOKEN']\n",
        "delete a file": "import os\n" + _CALL + "os.remove('@FILE@')\n    return 5\n",
        "overwrite a file": _CALL + "open('@FILE@', 'w').write('gone')\n    return 5\n",
        "append to a file": _CALL + "open('@FILE@', 'a').write('more')\n    return 5\n",
        "rename a file": "import os\n" + _CALL + "os.rename('@FILE@', '@FILE@.old')\n    return 5\n",
        "truncate a file": "import os\n" + _CALL + "os.truncate('@FILE@', 0)\n    return 5\n",
        "delete a folder": "import shutil, os\n" + _CALL + "shutil.rmtree(os.path.dirname('@FILE@'))\n    return 5\n",
        "read a file": _CALL + "return int(open('@FILE@').read())\n",
        "become somebody else": _LIBC + _CALL + "return libc.unshare(0x10000000) + 5 if libc.setuid(0) else 0\n",
    },
}  # fmt: skip


def code_attacks(file: str = "/tmp/workbook-victim/file.txt") -> list[CodeAttack]:
    """The collection. `file` is what those of the kind "outside" go for: give one that may be lost."""
    return [
        CodeAttack(kind, name, program.replace("@FILE@", file))
        for kind, programs in _PROGRAMS.items()
        for name, program in programs.items()
    ]
