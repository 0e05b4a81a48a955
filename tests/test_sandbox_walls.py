"""The walls on other kinds of machines: what a kernel refuses there is refused here by a filter."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path

import psutil
import pytest
from conftest import REPO, finished, until

from grpo_workbook.sandbox import Job, Sandbox
from grpo_workbook.sandbox.attacks import ENTRY_POINT, TEST, code_attacks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the walls are Linux's")
GOOD = "def add(a, b):\n    return a + b\n"
WRONG = "def add(a, b):\n    return a - b\n"
WALLS = ("scheduling", "signals and processes", "machine", "outside")
ATTACKS = [a for a in code_attacks() if a.family in WALLS]
LEVELS = ("full", "limits-only")
READING = ("read a file", "environment of every process", "memory of the processes above")
READING += ("command lines of all processes", "the names in a folder")


@pytest.fixture(scope="module", params=LEVELS)
def sandbox(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with Sandbox(workers=2, time_limit=5.0, level=request.param) as made:
            if made.isolation != request.param:
                pytest.skip(f"this machine gives {made.isolation}: {made.probe()[1]}")
            yield made


# ------------------------------------------------------------------ kinds of machines

JUDGES = """
import sys, errno, struct, warnings
from grpo_workbook.sandbox import Job, Sandbox, jail
refused = [int(x) for x in sys.argv[1].split(",") if x]
rules = [op for n in refused for op in ((0x15, 0, 1, n), (6, 0, 0, 0x50000 | errno.EPERM))]
jail.Filter(rules).install()
good = Job("def f(x): return x + 1", "assert f(1) == 2", "f")
wrong = Job("def f(x): return x", "assert f(1) == 2", "f")
with warnings.catch_warnings(), Sandbox(workers=2, time_limit=5) as sandbox:
    warnings.simplefilter("ignore")
    print(*sandbox.probe())
    print(*[v.outcome for v in sandbox.check([good, wrong] * 4)])
"""
CALLS = {
    "unshare": [272, 97],
    "mount": [165, 40],
    "pivot_root": [155, 41],
    "umount2": [166, 39],
    "landlock_create_ruleset": [444, 444],
    "setresuid": [117, 147],
}


def judged(refused=(), before=()):
    """(the isolation level and why, the outcomes) where these system calls are refused."""
    column = 1 if os.uname().machine == "aarch64" else 0
    numbers = ",".join(str(CALLS[name][column]) for name in refused)
    command = [*before, sys.executable, "-c", JUDGES, numbers]
    done = finished(command)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


FAST = ("unshare", "landlock_create_ruleset")
CALLS_MARKED = [
    name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in CALLS
]


@pytest.mark.parametrize("name", CALLS_MARKED)
def test_where_a_call_is_refused_programs_are_judged(name):
    why, outcomes = judged([name])
    assert outcomes == " ".join(["passed", "failed"] * 4), why
    if name not in ("landlock_create_ruleset", "setresuid"):
        assert why.startswith("limits-only ")


def test_with_nothing_but_a_filter_programs_are_judged_and_the_warning_names_what_is_missing():
    why, outcomes = judged(CALLS)
    assert outcomes == " ".join(["passed", "failed"] * 4), why
    for words in ("unshare", "no Landlock", "read all your files", "processes' environment"):
        assert words in why


def test_where_proc_is_read_only_programs_are_judged():
    """As on Ubuntu 24.04: the new namespace is given, and the map of its users is refused."""
    script = 'mount --bind /proc /proc && mount -o remount,bind,ro /proc && exec "$@"'
    before = ["unshare", "-rm", "sh", "-c", script, "sh"]
    if not shutil.which("unshare") or subprocess.run([*before, "true"], stderr=-3).returncode:
        pytest.skip("no /proc can be mounted here")
    why, outcomes = judged(before=before)
    assert why.startswith("limits-only ")
    assert outcomes == " ".join(["passed", "failed"] * 4), why


def test_where_full_isolation_judges_nothing_the_weaker_one_is_taken(monkeypatch):
    """A wall that no step of its own refuses, and behind which no program can be judged."""
    with Sandbox(workers=1, time_limit=5) as made:
        launch = made._workers[0]._launch

        def dead(level):
            launch(level)
            if level == "full":
                raise OSError("sandbox error: the candidate did not start")

        monkeypatch.setattr(made._workers[0], "_launch", dead)
        with pytest.warns(UserWarning, match="limits-only.*full: sandbox error: the candidate"):
            assert made.isolation == "limits-only"
        assert [v.passed for v in made.check([Job(p, TEST, "add") for p in (GOOD, WRONG)])] == [
            True,
            False,
        ]


# ------------------------------------------------------------------ what a program may not reach


def servers():
    """{process id: what a program could change of it} of this process and all servers."""
    found = {}
    own = psutil.Process()  # other tests beside this one have servers too
    for pid in (own.pid, *(child.pid for child in own.children(recursive=True))):
        folder = Path(f"/proc/{pid}")
        try:
            line = (folder / "cmdline").read_bytes()
            if os.fsencode(REPO / "grpo_workbook" / "sandbox") in line or pid == os.getpid():
                limits = (folder / "limits").read_text()
                nice = os.getpriority(os.PRIO_PROCESS, pid)
                found[pid] = nice, os.sched_getscheduler(pid), os.sched_getaffinity(pid), limits
        except OSError:
            continue
    return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda a: a.name)
def test_no_program_gets_what_it_wants_and_the_next_one_is_judged(
    sandbox, attack, tmp_path, monkeypatch
):
    if attack.name in READING and "read all your files" in (why := sandbox.probe()[1]):
        pytest.skip(why)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    victim = tmp_path / "folder" / "file.txt"
    victim.parent.mkdir()
    victim.write_text("5")
    program = next(a.program for a in code_attacks(str(victim)) if a.name == attack.name)
    sandbox.check([Job(GOOD, TEST, ENTRY_POINT)] * 4)
    before, judges = servers(), {w.process.pid for w in sandbox._workers if w.process}
    verdicts = sandbox.check([Job(program, TEST, ENTRY_POINT), Job(GOOD, TEST, ENTRY_POINT)])
    assert not verdicts[0].passed
    assert verdicts[0].fault == "program", str(verdicts[0])
    assert verdicts[0].cases_passed == 0, "the attack had what it wanted"
    assert verdicts[1].passed, str(verdicts[1])
    after = servers()
    kept = before.keys() & after.keys()  # not candidates that ended
    if verdicts[0].outcome != "timeout":  # after one the sandbox starts new servers
        assert judges <= {w.process.pid for w in sandbox._workers if w.process}
        assert judges <= kept
    assert os.getpid() in kept
    assert {pid: after[pid] for pid in kept} == {pid: before[pid] for pid in kept}
    assert victim.read_text() == "5"
    assert [p.name for p in tmp_path.rglob("*")] == ["folder", "file.txt"]


def test_when_memory_runs_out_the_servers_go_first(sandbox):
    sandbox.probe()

    def scores() -> set:
        pids = servers().keys() - {os.getpid()}
        return {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in pids}

    until(lambda: 0 not in scores())  # other workers are still starting
    assert scores() == {1000}
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 500


def test_threads_within_the_limit_are_given_again_and_again(sandbox):
    program = (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f(x):\n    with ThreadPoolExecutor(32) as pool: return sum(pool.map(int, range(x)))"
    )
    verdicts = sandbox.check([Job(program, "assert f(1000) == 499500", "f")] * 20)
    assert [str(v) for v in verdicts if not v.passed] == []


# ------------------------------------------------------------------ NumPy on many cores

CORES = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
long sysconf(int name) {
    if (name == 83 || name == 84) return CORES;  // _SC_NPROCESSORS_CONF and _SC_NPROCESSORS_ONLN
    return ((long (*)(int))dlsym(RTLD_NEXT, "sysconf"))(name);
}
int get_nprocs(void) { return CORES; }
int get_nprocs_conf(void) { return CORES; }
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
    CPU_ZERO_S(size, set);
    for (int i = 0; i < CORES; i++) CPU_SET_S(i, size, set);
    return 0;
}
"""
NUMPY = """
import os
import numpy as np
def f(n):
    return os.cpu_count(), float((np.ones((n, n)) @ np.ones((n, n))).sum())
"""


@pytest.mark.slow
@pytest.mark.parametrize("cores", [2, 16, 64, 128])
def test_numpy_works_on_a_machine_with_many_cores(cores, tmp_path, monkeypatch):
    """The servers' Python finds a library in front of the system's that counts other cores."""
    pytest.importorskip("numpy")
    if not (compiler := shutil.which("cc")):
        pytest.skip("there is no C compiler to make such a machine with")
    (tmp_path / "cores.c").write_text(CORES)
    library, python = tmp_path / "cores.so", tmp_path / "bin" / "python"
    command = [
        compiler,
        "-shared",
        "-fPIC",
        f"-DCORES={cores}",
        "-o",
        library,
        tmp_path / "cores.c",
    ]
    subprocess.run(command, check=True)
    python.parent.mkdir()
    python.write_text(f'#!/bin/bash\nLD_PRELOAD={library} exec -a "$0" {sys.executable} "$@"\n')
    python.chmod(0o755)
    home = Path(sys.base_prefix, "bin")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {home}\n")
    monkeypatch.setattr(sys, "executable", str(python))
    with warnings.catch_warnings(action="ignore"), Sandbox(workers=1, time_limit=20) as made:
        verdict = made.check([Job(NUMPY, f"assert f(300) == ({cores}, 27e6)", "f")])[0]
    assert verdict.passed, str(verdict)


# ------------------------------------------------------------------ packages in /tmp

LOOKS_AROUND = """
import os
from only_here import NUMBER


def f(folder):
    try:
        open(os.path.join(folder, "left"), "w").close()
    except OSError:
        return NUMBER
    return "it could write beside the packages"
"""


@pytest.mark.parametrize("level", LEVELS)
def test_packages_of_an_environment_in_tmp_are_seen_and_nothing_is_left_there(level, monkeypatch):
    """As in a clone that somebody tries in /tmp: its .venv lies below the private /tmp's place."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        (Path(folder) / "only_here.py").write_text("NUMBER = 7\n")
        paths = sysconfig.get_paths() | {"platlib": folder}
        monkeypatch.setattr(sysconfig, "get_paths", lambda: paths)
        job = Job(LOOKS_AROUND, f"assert f({folder!r}) == 7", "f")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Sandbox(workers=1, level=level) as sandbox:
                if sandbox.isolation != level:
                    pytest.skip(f"this machine gives {sandbox.isolation}")
                first, second = sandbox.check([job, job])
        assert first.passed, first
        assert second.passed, second
        assert os.listdir(folder) == ["only_here.py"]
