"""The time of a check in the sandbox, of `python -m pytest` and of `python -c` per completion.

    python benchmarks/code_rewards.py              # the table, about a minute
    python benchmarks/code_rewards.py --heavy      # from a process with torch and a model
    python benchmarks/code_rewards.py --long 10000 # also so many checks in a row: time, memory

The programs are 64 completions in 8 groups of 8 (8 tasks, each with 5 assertions). Ratios compare
rows of one call.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from grpo_workbook.sandbox import Job, Sandbox

CORES = min(os.cpu_count() or 1, 2)


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


def in_subprocess(job: Job, pytest: bool) -> bool:
    """As in tutorials: the program and its test in one file, the exit code as the verdict."""
    with tempfile.TemporaryDirectory() as folder:
        if pytest:
            code = f"{job.program}\n{job.test}\ndef test_it():\n    check({job.entry_point})\n"
            Path(folder, "test_it.py").write_text(code, encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-q", "test_it.py"]
        else:
            command = [
                sys.executable,
                "-c",
                f"{job.program}\n{job.test}\ncheck({job.entry_point})\n",
            ]
        return subprocess.run(command, cwd=folder, capture_output=True, timeout=60).returncode == 0


def subprocesses(jobs: list[Job], pytest: bool) -> tuple[float, list[bool]]:
    started = time.perf_counter()
    with ThreadPoolExecutor(CORES) as pool:
        passed = list(pool.map(lambda job: in_subprocess(job, pytest), jobs))
    return (time.perf_counter() - started) / len(jobs), passed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--heavy", action="store_true", help="hold torch and a tiny model in this process"
    )
    parser.add_argument("--long", type=int, default=0, metavar="N", help="N checks in a row")
    args = parser.parse_args()
    held = None
    if args.heavy:
        from transformers import AutoModelForCausalLM

        held = AutoModelForCausalLM.from_pretrained(
            Path(__file__).parent.parent / "data" / "tiny-qwen3"
        )
    jobs = tasks()
    wanted = [i % 2 == 0 for i in range(64)]
    with Sandbox(workers=CORES) as sandbox:
        held_mb = _pages(os.getpid())
        print(f"isolation: {sandbox.isolation}; {CORES} workers; this process holds {held_mb} MB")
        sandbox.check(jobs)
        steps = []
        for _ in range(10):
            started = time.perf_counter()
            assert [v.passed for v in sandbox.check(jobs)] == wanted
            steps.append(time.perf_counter() - started)
        rows = {
            "python -m pytest": subprocesses(jobs[:16], True),
            "python -c": subprocesses(jobs, False),
        }
        assert all(passed == wanted[: len(passed)] for _, passed in rows.values())
        seconds = {name: took for name, (took, _) in rows.items()} | {
            "sandbox": sum(steps) / len(steps) / 64
        }
        print(f"{'':20} {'checks/s':>9} {'times pytest':>13}")
        for name, took in seconds.items():
            print(f"{name:20} {1 / took:9.1f} {seconds['python -m pytest'] / took:13.1f}")
        mean = sum(steps) / len(steps)
        print(f"a step of 64 completions: {mean:.3f} s, the slowest of 10 {max(steps):.3f} s")
        if args.long:
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
