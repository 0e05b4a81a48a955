"""The time and memory of each notebook in the smoke profile.

    python benchmarks/notebooks.py                 # every notebook alone: about 20 minutes
    python benchmarks/notebooks.py 00 04           # some
    python benchmarks/notebooks.py --write         # and into the texts; `00 --write` only that row
    python benchmarks/notebooks.py --build --write # and keep the notebooks as executed
    python benchmarks/notebooks.py --side-by-side  # then two at a time, one thread each: the ratio

Memory is the most that the kernel and everything it starts held together, shared pages counted once
(Linux: PSS), looked at four times a second. Without `--build` the notebooks in the repository are
not touched; with it notebooks/build.py executes them, which adds its own start of a few seconds.

`--write` writes the table of docs/measurements.md. From its seconds come the minutes in README.md
and in each chapter's first lines, which the map in chapter 00 shows: then `python
notebooks/build.py --words` brings them into the notebooks, and chapter 00 is executed again.
"""

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

REPO = Path(__file__).resolve().parent.parent
NOTEBOOKS, TABLE = REPO / "notebooks", REPO / "docs" / "measurements.md"
ROW = r"^\| (\d\d_\w+) \| (\d+) \| (\d*) ?\|\n"  # a notebook, its seconds and megabytes
SECONDS, MEGABYTES = 180, 4000  # what a notebook may take on two cores


def memory_in_use(process: psutil.Process) -> int:
    """The memory of the process and its children, in bytes."""
    total = 0
    for member in (process, *process.children(recursive=True)):
        try:
            memory = member.memory_full_info()
        except psutil.Error:  # it ended meanwhile
            continue
        total += getattr(memory, "pss", memory.rss)
    return total


def execute(notebook: Path, threads: int | None = None, build: bool = False) -> tuple[float, float]:
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
            notebook.name,
        ]
        if build:
            command = [sys.executable, str(NOTEBOOKS / "build.py"), "--all", notebook.stem]
        started = time.monotonic()
        peak_memory = 0
        with (Path(folder) / "output.txt").open("w+") as output:
            process = psutil.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
            while process.poll() is None:
                peak_memory = max(peak_memory, memory_in_use(process))
                time.sleep(0.25)
            seconds = time.monotonic() - started
            if process.returncode:
                output.seek(0)
                sys.exit(f"{notebook.name} failed:\n{output.read()[-3000:]}")
    return seconds, peak_memory / 1e6


def write(measured: dict[str, tuple[str, str]]) -> None:
    """{name: (seconds, MB)} into the table, and its minutes into README.md and the sources."""
    text = TABLE.read_text(encoding="utf-8")
    rows = {}
    for name, seconds, megabytes in re.findall(ROW, text, re.M):
        rows[name] = (seconds, megabytes)
    rows.update(measured)
    table = ""
    total = 0
    for name, (seconds, megabytes) in sorted(rows.items()):
        table += f"| {name} | {seconds} | {megabytes} |\n"
        total += int(seconds)
    table += f"| one after another | {total} | |\n"
    text = re.sub(rf"(?:{ROW})+\| one after another .*\n", lambda _: table, text, flags=re.M)
    TABLE.write_text(text, encoding="utf-8")
    for path, new_text in with_minutes().items():
        path.write_text(new_text, encoding="utf-8")


def with_minutes() -> dict[Path, str]:
    """README.md and the notebooks' sources as they are with the minutes of the table."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    texts = {}
    for name, seconds, _ in re.findall(ROW, TABLE.read_text(encoding="utf-8"), re.M):
        minutes = int(seconds) / 60
        cell = rf"(\(notebooks/{name}\.ipynb\) \|[^|]+\|) [\d.]+ "
        readme = re.sub(cell, rf"\1 {minutes:.1f} ", readme)
        if minutes >= 1.5:
            duration = f"{minutes:.0f} minutes"
        elif minutes > 0.75:
            duration = "1 minute"
        else:
            duration = "half a minute"
        source = NOTEBOOKS / "source" / f"{name}.py"
        line = r"(?<=\*\*Time:\*\* about ).*?(?= on two CPU)"
        texts[source] = re.sub(line, duration, source.read_text(encoding="utf-8"), count=1)
    return {**texts, REPO / "README.md": readme}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "chapters", nargs="*", help="how their names begin (all when none is given)"
    )
    parser.add_argument("--side-by-side", action="store_true", help="measure two at a time as well")
    parser.add_argument("--build", action="store_true", help="keep the executed notebooks")
    parser.add_argument("--write", action="store_true", help="write the numbers into the texts")
    args = parser.parse_args()
    notebooks = sorted(NOTEBOOKS.glob("*.ipynb"))
    # Every name begins with "".
    beginnings = tuple(args.chapters) or ("",)
    chosen = [notebook for notebook in notebooks if notebook.name.startswith(beginnings)]
    if not chosen:
        parser.error(
            f"no notebook begins with {' or '.join(args.chapters)}: there are "
            f"{notebooks[0].stem} to {notebooks[-1].stem}"
        )
    print(
        f"| notebook ({os.cpu_count()} cores) | seconds | minutes | MB |\n| --- | --- | --- | --- |"
    )
    total = 0.0
    within_limits = True
    measured = {}
    for notebook in chosen:
        seconds, megabytes = execute(notebook, build=args.build)
        total += seconds
        measured[notebook.stem] = f"{seconds:.0f}", f"{megabytes:.0f}"
        if seconds > SECONDS or megabytes > MEGABYTES:
            within_limits = False
        print(
            f"| {notebook.stem} | {seconds:.0f} | {seconds / 60:.1f} | {megabytes:.0f} |",
            flush=True,
        )
    print(f"| all, one after another | {total:.0f} | {total / 60:.1f} | |", flush=True)
    if args.write:
        write(measured)
    if args.side_by_side:
        started = time.monotonic()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda notebook: execute(notebook, threads=1), chosen))
        seconds = time.monotonic() - started
        print(f"| all, two at a time, one thread each | {seconds:.0f} | {seconds / 60:.1f} | |")
        print(f"\none after another takes {total / seconds:.2f} times as long")
    if not within_limits:
        print(f"\nover {SECONDS} s or {MEGABYTES} MB")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
