"""The time and memory of each notebook in the smoke profile.

    python benchmarks/notebooks.py                 # every notebook alone: about 20 minutes
    python benchmarks/notebooks.py 00 04           # some
    python benchmarks/notebooks.py --side-by-side  # then two at a time, one thread each: the ratio

Memory is the most that the kernel and everything it starts held together, shared pages counted once
(Linux: PSS), looked at four times a second. The notebooks in the repository are not touched.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SECONDS, MEGABYTES = 180, 4000  # what a notebook may take on two cores


def held(process: psutil.Process) -> int:
    """The memory of the process and its children, in bytes."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        try:
            memory = one.memory_full_info()
        except psutil.Error:  # it ended meanwhile
            continue
        total += getattr(memory, "pss", memory.rss)
    return total


def execute(notebook: Path, threads: int | None = None) -> tuple[float, float]:
    """Seconds and the most megabytes of one execution. SystemExit, after what it printed, when a
    cell fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(notebook, folder)
        env = os.environ | {
            "GRPO_WORKBOOK_PROFILE": "smoke",
            "GRPO_WORKBOOK_OUTPUT": f"{folder}/outputs",
            "GRPO_WORKBOOK_PROGRESS": f"{folder}/progress.json",
            "HF_HUB_OFFLINE": "1",
            **({"OMP_NUM_THREADS": str(threads)} if threads else {}),
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--nbmake",
            "--nbmake-timeout=1800",
            "-q",
            "-p",
            "no:cacheprovider",
        ]
        began, most = time.monotonic(), 0
        with (Path(folder) / "said.txt").open("w+") as said:
            process = psutil.Popen(
                [*command, notebook.name], cwd=folder, env=env, stdout=said, stderr=said
            )
            while process.poll() is None:
                most = max(most, held(process))
                time.sleep(0.25)
            seconds = time.monotonic() - began
            if process.returncode:
                said.seek(0)
                sys.exit(f"{notebook.name} failed:\n{said.read()[-3000:]}")
    return seconds, most / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "chapters", nargs="*", help="how their names begin (all when none is given)"
    )
    parser.add_argument("--side-by-side", action="store_true", help="measure two at a time as well")
    args = parser.parse_args()
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    chosen = [n for n in found if not args.chapters or n.name.startswith(tuple(args.chapters))]
    if not chosen:
        parser.error(
            f"no notebook begins with {' or '.join(args.chapters)}: there are {found[0].stem} to "
            f"{found[-1].stem}"
        )
    print(
        f"| notebook ({os.cpu_count()} cores) | seconds | minutes | MB |\n| --- | --- | --- | --- |"
    )
    total, kept = 0.0, True
    for notebook in chosen:
        seconds, megabytes = execute(notebook)
        total += seconds
        kept &= seconds <= SECONDS and megabytes <= MEGABYTES
        print(
            f"| {notebook.stem} | {seconds:.0f} | {seconds / 60:.1f} | {megabytes:.0f} |",
            flush=True,
        )
    print(f"| all, one after another | {total:.0f} | {total / 60:.1f} | |", flush=True)
    if args.side_by_side:
        began = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda n: execute(n, threads=1), chosen))
        beside = time.monotonic() - began
        print(f"| all, two at a time, one thread each | {beside:.0f} | {beside / 60:.1f} | |")
        print(f"\none after another takes {total / beside:.2f} times as long")
    if not kept:
        print(f"\nover {SECONDS} s or {MEGABYTES} MB")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
