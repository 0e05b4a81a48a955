"""Which algorithm? A race on equal numbers of completions, with many seeds.

    python benchmarks/race.py --table                        # the report of the stored runs
    python benchmarks/race.py --list                         # all methods: settings, seeds stored
    python benchmarks/race.py --minutes 60 --seeds 0 1 2     # more runs; finished ones are skipped
    python benchmarks/race.py --methods grpo rloo --tasks steps

Every (task, method, seed) is a process of its own with one thread, and one line in
benchmarks/race_results. A run whose settings, model or data have changed is made again.
Learning rates were chosen on other problems, taken out of the training data, with other seeds:

    python benchmarks/race.py --dev --rates 1e-4 3e-4 1e-3 --seeds 100 --methods grpo sft dpo

On the tasks of COMPARISON, a run takes the rate that was best in these tries.
"""

import argparse
import functools
import hashlib
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "benchmarks")]
GOAL, ALPHA = 0.8, 0.05
PARTS = "correctness:2,strict_format:0.5,incremental_format:0.5"
SYSTEM = "Work inside <reasoning> tags, then give the number inside <answer> tags."
# `strict`: an answer is right only in the asked form; `tokens`: the longest completion
TASKS: dict[str, dict] = {
    "main": {
        "model": "data/tiny-form", "data": "data/word_problems", "system": SYSTEM,
        "rewards": PARTS, "strict": True, "tokens": 64, "budget": 1024,
    },
    "rare": {  # the main run's: the rare kinds of problem
        "model": "data/tiny-qwen3", "data": "data/word_problems", "only": "rare",
        "system": SYSTEM, "rewards": "correctness", "strict": True, "tokens": 64, "budget": 1536,
    },
    "addition": {  # the problems of "steps", with fewer completions
        "model": "data/tiny-steps", "data": "data/step_tasks", "system": None,
        "rewards": "correctness", "strict": False, "tokens": 64, "budget": 1024,
    },
    "steps": {
        "model": "data/tiny-steps", "data": "data/step_tasks", "system": None,
        "rewards": "correctness", "strict": False, "tokens": 64, "budget": 1536,
    },
}  # fmt: skip
FOUR = {"updates": 4, "rate": 1e-4}
# What differs from GRPO with one update per batch. In a first update the ratio is 1: clip-higher,
# GSPO and SAPO are GRPO, and CISPO is the token-level loss. So they have four updates, and are
# compared with GRPO with four. BNPO is the token-level loss unless a batch is cut into parts.
METHODS: dict[str, dict] = {
    "base": {"learn": "nothing"},
    "grpo": {},
    "sft": {"learn": "sft", "rate": 3e-4},
    "sft then grpo": {"cold": 256},
    "rejection": {"learn": "sft", "texts": "right", "rate": 3e-4},
    "rejection, 4 rounds": {"learn": "sft", "texts": "right", "rounds": 4, "rate": 3e-4},
    "best of 8": {"learn": "sft", "texts": "best", "rate": 3e-4},
    "random of 8": {"learn": "sft", "texts": "random", "rate": 3e-4},
    "dpo": {"learn": "dpo", "rate": 1e-4},
    "dpo, 4 rounds": {"learn": "dpo", "rounds": 4, "rate": 1e-4},
    "teacher": {"learn": "teacher"},
    "distillation": {"learn": "distill", "group": 1},
    "distillation, sampled token": {"learn": "distill", "group": 1, "whole": False},
    "reinforce": {"baseline": "none"},
    "reinforce, baseline": {"baseline": "batch"},
    "rloo": {"baseline": "rloo", "loss": "rloo"},
    "ppo": {"baseline": "critic", "loss": "ppo"},
    "dr_grpo": {"loss": "dr_grpo", "scale": "none"},
    "bnpo": {"loss": "bnpo", "parts": 4},
    "token-level loss": {"loss": "dapo"},
    "dynamic sampling": {"dynamic": True},
    "overlong penalty": {"overlong": True},
    "group of 2": {"group": 2},
    "group of 4": {"group": 4},
    "group of 16": {"group": 16},
    "grpo, 4 updates": FOUR,
    "ppo, 4 updates": {"baseline": "critic", "loss": "ppo", **FOUR},
    "clip-higher, 4 updates": {"high": 0.28, **FOUR},
    "dapo, 4 updates": {
        "loss": "dapo", "high": 0.28, "dynamic": True, "overlong": True, **FOUR,
    },
    "gspo, 4 updates": {"level": "sequence", "low": 3e-4, "high": 4e-4, **FOUR},
    "cispo, 4 updates": {"loss": "cispo", "high": 5.0, **FOUR},
    "sapo, 4 updates": {"loss": "sapo", **FOUR},
}  # fmt: skip
# Only on the harder task: what grows, and what does not, without a reward for being right.
CONTROLS: dict[str, dict] = {
    "random reward": {"reward": "random"},
    "format reward": {"reward": "format"},
    "length price 0.1": {"price": 0.1},
    "length price 0.5": {"price": 0.5},
    "length price 1.5": {"price": 1.5},
    "base without steps": {"habit": True},
}
# Only there too: chapter 12's mechanisms, each beside the token-level loss, which theirs is.
MECHANISMS: dict[str, dict] = {
    "entropy bonus": {"loss": "dapo", "bonus": 0.03},
    "top-entropy tokens": {"loss": "ppo", "top": 0.2},
    "stale sampler": {"loss": "ppo", "sampler": "stale"},
    "stale sampler, corrected": {"loss": "ppo", "sampler": "stale", "corrected": True},
    "4-bit sampler": {"loss": "ppo", "sampler": "nf4"},
    "4-bit sampler, corrected": {"loss": "ppo", "sampler": "nf4", "corrected": True},
}
# The rate that was chosen for GRPO is the lowest that was tried: one below it.
SLOWER = {"grpo, a third of the rate": {"rate": 1e-4}}
ALL = METHODS | SLOWER | CONTROLS | MECHANISMS
# On these two tasks each method runs with the rate that was best on the development problems.
COMPARISON = ("rare", "addition")
UNTUNED_RATE = 3e-4
COMPARED = (
    "base", "teacher", "sft", "rejection", "rejection, 4 rounds", "dpo, 4 rounds", "grpo",
    "grpo, 4 updates", "gspo, 4 updates", "dapo, 4 updates", "rloo", "ppo", "distillation",
    "distillation, sampled token", "random reward",
)  # fmt: skip


def methods_of(task: str) -> dict[str, dict]:
    """The methods that run on a task, with their settings."""
    if task in COMPARISON:
        return {name: ALL[name] for name in COMPARED}
    if task == "steps":
        return ALL
    return METHODS


def tuned_rate(tries: list[dict], method: str) -> float | None:
    """The rate with the best accuracy on the development problems; None if none was tried.

    Accuracy is the mean of sampled and greedy here, because the race reports both.

    Args:
        tries: the stored development runs of a task.
    """
    by_rate: dict[float, list[float]] = {}
    for row in tries:
        if row["method"].rsplit(", rate ", 1)[0] == method:
            accuracy = (row["end"]["sampled"] + row["end"]["greedy"]) / 2
            by_rate.setdefault(row["settings"]["rate"], []).append(accuracy)
    if not by_rate:
        return None
    return max(by_rate, key=lambda rate: sum(by_rate[rate]) / len(by_rate[rate]))


def digest(*parts: object) -> str:
    """Twelve digits of a SHA-256: of files by their bytes, of other things by their JSON."""
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()[:12]


@functools.cache
def inputs(task: str) -> list[bytes]:
    """The files that a task's runs depend on, read once for all of them."""
    model, data = (REPO / TASKS[task][name] for name in ("model", "data"))
    names = ("config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja")
    paths = [*(model / n for n in names), *(data / f"{n}.jsonl" for n in ("train", "heldout"))]
    return [path.read_bytes() for path in paths]


def circumstances(*more: str) -> dict:
    """What a result may depend on beside its settings; `more`: modules beside race_training."""
    names = ("benchmarks/race_training.py", "grpo_workbook/grpo.py", *more)
    code = [REPO / name for name in names]
    packages = {name: version(name) for name in ("torch", "transformers", "numpy")}
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    return {
        "code": digest(*(path.read_bytes() for path in code)),
        "machine": machine,
        "python": platform.python_version(),
    } | packages


def train(task: dict, settings: dict, seed: int, dev: bool, points: int) -> dict:
    """One run, in a process of its own."""
    import torch
    import transformers
    from datasets import disable_progress_bars
    from race_training import Racer, Settings

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()
    os.chdir(REPO)
    started = time.perf_counter()
    racer = Racer(task, Settings(**settings), seed, task["budget"], dev=dev)
    found = racer.run(points)
    return found | {"wall": round(time.perf_counter() - started, 1)}


class Store:
    """The finished runs: a JSON line each, one file for each task."""

    def __init__(self, folder: Path, dev: bool):
        self.folder, self.name = folder, "dev-{}.jsonl" if dev else "{}.jsonl"

    def rows(self, task: str) -> list[dict]:
        path = self.folder / self.name.format(task)
        lines = path.read_text(encoding="utf-8").splitlines(True) if path.is_file() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may cut one

    def add(self, row: dict) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / self.name.format(row["task"])
        with path.open("ab+") as file:
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write(json.dumps(row).encode() + b"\n")


def identity(row: dict) -> tuple:
    return tuple(row[name] for name in ("task", "method", "seed", "key"))


def wanted(args) -> Iterable[dict]:
    """The runs that were asked for, seed by seed, so that what time allows is balanced."""
    tries = {task: Store(args.folder, dev=True).rows(task) for task in args.tasks}
    for seed, task in itertools.product(args.seeds, args.tasks):
        known = methods_of(task)
        for name in args.methods or known:
            if name not in known:
                continue
            for rate in args.rates or [None]:
                settings = known[name] | ({"rate": rate} if rate else {})
                if rate is None and task in COMPARISON:
                    best_rate = tuned_rate(tries[task], name)
                    if best_rate is None:  # such as the base and the control, which are not tuned
                        best_rate = UNTUNED_RATE
                    settings = settings | {"rate": best_rate}
                setup = TASKS[task] | ({"budget": args.budget} if args.budget else {})
                key = digest(settings, setup, args.points, *inputs(task))
                label = f"{name}, rate {rate:g}" if rate else name
                row = {"task": task, "method": label, "seed": seed, "key": key}
                row["command"] = f'race.py --tasks {task} --methods "{name}" --seeds {seed}'
                yield row | {"settings": settings, "setup": setup}


# ---------------------------------------------------------------- the report


def reached(row: dict) -> tuple[float, float] | None:
    """(completions, seconds) at the first measurement that reaches GOAL; None: none did."""
    return next((tuple(point[:2]) for point in row["curve"] if point[2] >= GOAL), None)


def holm(p_values: list[float]) -> list[float]:
    """Holm's correction (1979) of several tests' p-values."""
    order, least, adjusted = sorted(range(len(p_values)), key=p_values.__getitem__), 0.0, {}
    for rank, i in enumerate(order):
        least = adjusted[i] = max(least, min(1.0, (len(order) - rank) * p_values[i]))
    return [adjusted[i] for i in range(len(order))]


def against(method: str) -> str:
    """What a method is compared with."""
    if method.endswith(", corrected"):
        return method.removesuffix(", corrected")
    if method in MECHANISMS:
        return "token-level loss"
    four = METHODS.get(method, {}).get("updates") == 4 and method != "grpo, 4 updates"
    return "grpo, 4 updates" if four else "grpo"


def differences(
    by_method: dict[str, dict[int, dict]], against=against, measure: str = "sampled"
) -> dict[str, str]:
    """method -> its paired difference in percent, with an interval, and what Holm's test says."""
    import numpy as np
    from scipy.stats import ttest_1samp

    said, gains = {}, {}
    for method, rows in by_method.items():
        other = by_method.get(against(method), {})
        alone = method in ("grpo", "base") or other is rows
        seeds = [] if alone else sorted(rows.keys() & other.keys())
        found = np.array([rows[s]["end"][measure] - other[s]["end"][measure] for s in seeds])
        if len(found) >= 3 and np.ptp(found) > 0:
            gains[method] = found
        elif len(found):
            said[method] = "the same" if not found.any() else f"{100 * found.mean():+.1f}"
    # Student's t, also for the interval: a bootstrap of 5 normal values covers the mean in 84 %
    tests = [ttest_1samp(found, 0) for found in gains.values()]
    p_values = holm([float(test.pvalue) for test in tests])
    for (method, found), test, p in zip(gains.items(), tests, p_values, strict=True):
        low, high = (100 * end for end in test.confidence_interval())
        word = "better" if found.mean() > 0 else "worse"
        if p >= ALPHA:
            word = "unsettled" if low > 0 or high < 0 else "not shown"
        said[method] = f"{100 * found.mean():+.1f} [{low:+.1f}, {high:+.1f}], p {p:.2g}: {word}"
    return said


def table(task: str, rows: list[dict]) -> None:
    """Print the report of a task as Markdown."""
    from scipy.stats import ttest_1samp

    by_method: dict[str, dict[int, dict]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["seed"]] = row
    compared = differences(by_method)
    codes = {row["code"] for row in rows}
    budget = max(row["completions"] for row in rows)
    print(f"\n{task}: {budget:,} completions; {len(rows)} runs", end="")
    print(f", by {len(codes)} versions of the code\n" if len(codes) > 1 else "\n")
    print(
        "| method | seeds | sampled % | greedy % | pass@8 % | entropy | tokens | steps "
        "| completions to 80 % | s to 80 % | s | points against GRPO |"
    )
    print("| --- " * 12 + "|")
    for method, by_seed in by_method.items():
        runs = list(by_seed.values())
        ends = [run["end"] for run in runs]
        mean = {name: sum(end[name] for end in ends) / len(ends) for name in ends[0]}
        rate = f"{100 * mean['sampled']:.1f}"
        if len(runs) >= 3:
            low, high = ttest_1samp([end["sampled"] for end in ends], 0).confidence_interval()
            rate += f" [{100 * low:.1f}, {100 * high:.1f}]"
        found = [point for run in runs if (point := reached(run))]
        when = [
            f"{sum(p[i] for p in found) / len(found):.0f}" if found else "never" for i in (0, 1)
        ]
        if 0 < len(found) < len(runs):
            when[0] += f" ({len(found)} of {len(runs)} seeds)"
        seconds = sum(run["seconds"] for run in runs) / len(runs)
        print(
            f"| {method} | {len(runs)} | {rate} | {100 * mean['greedy']:.1f} "
            f"| {100 * mean['pass8']:.1f} | {mean['entropy']:.2f} | {mean['tokens']:.1f} "
            f"| {mean['steps']:.1f} | {when[0]} | {when[1]} | {seconds:.0f} "
            f"| {compared.get(method, '')} |"
        )


def race(args, store: Store) -> int:
    """Make the runs that are missing; the number of failures."""
    return make(args, store, wanted(args), train, "race_training", circumstances())


def make(args, store: Store, rows: Iterable[dict], train, module: str, told: dict) -> int:
    """Let `train`, which needs `module`, make those of the runs `rows` that are not stored."""
    done = {identity(row) for task in args.tasks for row in store.rows(task)}
    todo = [row for row in rows if identity(row) not in done]
    print(f"{len(todo)} runs to make", flush=True)
    until, failed, waiting = time.monotonic() + 60 * args.minutes, 0, {}
    os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    context = get_context("forkserver")  # it loads torch once; every run is a fork of its own
    context.set_forkserver_preload([module])
    with ProcessPoolExecutor(args.jobs, context, max_tasks_per_child=1) as pool:
        while todo or waiting:
            while todo and len(waiting) < args.jobs and time.monotonic() < until:
                row = todo.pop(0)
                given = (row["setup"], row["settings"], row["seed"], args.dev, args.points)
                waiting[pool.submit(train, *given)] = row
            if not waiting:
                print(f"{len(todo)} runs are left", flush=True)
                break
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                row = waiting.pop(future)
                name = f"{row['task']}, {row['method']}, seed {row['seed']}"
                if error := future.exception():
                    failed += 1
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    continue
                found = future.result()
                store.add({k: v for k, v in row.items() if k != "setup"} | found | told)
                end = " ".join(f"{name} {value:g}" for name, value in found["end"].items())
                print(f"{name}: {end}, {found['seconds']} s, {found['wall']} s in all", flush=True)
    return failed


def show(args, store: Store, rows: Iterable[dict], table, methods) -> None:
    """Print the reports (--table) or the methods (--list) of those of the runs that are stored."""
    asked = [identity(row) for row in rows]
    for task in args.tasks:
        stored = {identity(row): row for row in store.rows(task)}
        found = [stored[name] for name in asked if name in stored]
        if args.table and found:
            table(task, found)
        for method, settings in methods(task).items() if args.list else ():
            seeds = sorted(row["seed"] for row in found if row["method"] == method)
            print(f"{task:8} {method:32} {json.dumps(settings)} seeds {seeds}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=[*TASKS])
    parser.add_argument("--methods", choices=ALL, nargs="+", metavar="METHOD")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(8)])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=1e6, help="then start no new run")
    parser.add_argument("--table", action="store_true", help="print the report, run nothing")
    parser.add_argument("--list", action="store_true", help="print the methods, run nothing")
    parser.add_argument("--dev", action="store_true", help="on problems out of the training data")
    parser.add_argument("--rates", type=float, nargs="+", help="with --dev: learning rates to try")
    parser.add_argument("--budget", type=int, help="completions of a run (default: the task's)")
    parser.add_argument("--points", type=int, default=4, help="of the curve")
    parser.add_argument("--folder", type=Path, default=REPO / "benchmarks" / "race_results")
    args = parser.parse_args()
    store = Store(args.folder, args.dev)
    if not (args.table or args.list):
        return race(args, store)
    show(args, store, wanted(args), table, methods_of)
    return 0


if __name__ == "__main__":
    sys.exit(main())
