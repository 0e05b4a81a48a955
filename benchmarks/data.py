"""The memory and time of reading a large file: memory-mapped table against a list of dicts.

    python benchmarks/data.py                   # 1,000,000 rows, about 2 minutes on two cores
    python benchmarks/data.py --rows 100000

Both ways read the same JSONL file, extract every answer and build every chat prompt, each in its
own process. The file is temporary. Memory is the sampled peak of the process's own memory
(RssAnon); pages of a mapped file (RssFile), which the operating system can take back, are printed
beside it.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

NAMES = "Ada Ben Cleo Dora Emil Fay Gus Hana Ivo Jana".split()
THINGS = "shells stamps beads cards coins rings seeds tiles".split()


def make(path: Path, rows: int) -> None:
    """A file in GSM8K's form, about 250 bytes per row, without repeated questions."""
    rng = random.Random(0)
    with path.open("w", encoding="utf-8") as file:
        for number in range(rows):
            a, b, name, thing = (
                rng.randrange(2, 900),
                rng.randrange(2, 900),
                rng.choice(NAMES),
                rng.choice(THINGS),
            )
            question = (
                f"{name} has {a} {thing} in box number {number} and finds {b} more on the way "
                f"home from school. How many {thing} does {name} have in all?"
            )
            answer = f"{a} + {b} = <<{a}+{b}={a + b}>>{a + b}\n#### {a + b}"
            file.write(
                json.dumps({"question": question, "answer": answer, "difficulty": a % 3}) + "\n"
            )


def _memory(kind: str) -> float:
    """MB that this process holds: RssAnon (its own), RssFile (mapped files) or VmRSS (all)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind + ":"):
            return int(line.split()[1]) * 1024 / 1e6
    raise SystemExit(f"/proc/self/status has no {kind}: this benchmark needs Linux")


def measure(way: str, path: str) -> None:
    """Run one way in this process and print its figures as JSON."""
    import datasets  # noqa: F401  (both ways end as a dataset in a real run: its import is not the difference)

    from grpo_workbook import data  # noqa: F401

    peaks = dict.fromkeys(("RssAnon", "RssFile", "VmRSS"), 0.0)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            for kind in peaks:
                peaks[kind] = max(peaks[kind], _memory(kind))

    at_start = {kind: _memory(kind) for kind in peaks}
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    started = time.perf_counter()
    rows, checksum = WAYS[way](path)
    seconds = time.perf_counter() - started
    done.set()
    watcher.join()
    grown = {kind: round(peaks[kind] - at_start[kind], 1) for kind in peaks}
    print(json.dumps({"seconds": seconds, "rows": rows, "checksum": checksum, **grown}))


def table(path: str) -> tuple[int, int]:
    """Ours: a mapped table by `datasets`, every row checked, prompts mapped, batches filtered."""
    from grpo_workbook.data import load_problems, to_dataset

    dataset = to_dataset(load_problems(path))
    kept = dataset.filter(lambda batch: [len(q) < 200 for q in batch["question"]], batched=True)
    return len(kept), sum(int(a) for batch in kept.iter(1000) for a in batch["answer"])


def plain(path: str) -> tuple[int, int]:
    """The usual way: a list of dicts, a list of prompts, a list comprehension."""
    from grpo_workbook.data import chat_prompt
    from grpo_workbook.rewards.answers import reference_answer

    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            number = reference_answer(row["answer"])
            rows.append(row | {"answer": number, "solution": row["answer"]})
    prompts = [{"prompt": chat_prompt(row["question"]), **row} for row in rows]
    kept = [row for row in prompts if len(row["question"]) < 200]
    return len(kept), sum(int(row["answer"]) for row in kept)


WAYS = {"memory-mapped table": table, "list of dicts": plain}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rows.jsonl")
        make(path, args.rows)
        print(f"{args.rows:,} rows, {path.stat().st_size / 1e6:.0f} MB of JSONL\n")
        print(f"{'':22} {'own MB':>8} {'mapped MB':>10} {'seconds':>8} {'rows/s':>9}")
        results = {}
        for way in WAYS:
            command = [sys.executable, __file__, "--measure", way, str(path)]
            output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            r = results[way] = json.loads(output.splitlines()[-1])
            print(
                f"{way:22} {r['RssAnon']:8.0f} {r['RssFile']:10.0f} {r['seconds']:8.1f} "
                f"{args.rows / r['seconds']:9,.0f}",
                flush=True,
            )
    ours, theirs = results.values()
    if (ours["rows"], ours["checksum"]) != (theirs["rows"], theirs["checksum"]):
        raise SystemExit("the two ways do not agree on the rows")
    print(
        f"\nmemory of its own: 1 : {theirs['RssAnon'] / max(ours['RssAnon'], 1):.0f}   "
        f"all that is resident: 1 : {theirs['VmRSS'] / ours['VmRSS']:.1f}   "
        f"time: {ours['seconds'] / theirs['seconds']:.1f} : 1"
    )


if __name__ == "__main__":
    main()
