"""Which algorithm? A race on equal numbers of completions, with many seeds.

    python benchmarks/race.py --table                        # the report of the stored runs
    python benchmarks/race.py --list                         # all methods: settings, seeds stored
    python benchmarks/race.py --minutes 60 --seeds 0 1 2     # more runs; finished ones are skipped
    python benchmarks/race.py --methods grpo rloo --tasks steps

Every (task, method, seed) is a process of its own with one thread, and one line in
benchmarks/race_results. A run whose settings, model or data have changed is made again.
Learning rates were chosen on other problems, taken out of the training data, with other seeds:

    python benchmarks/race.py --dev --rates 1e-4 3e-4 1e-3 --seeds 100 --methods grpo sft dpo

On the tasks of COMPARISON, a run takes the rate that was best in the stored tries.
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
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from statistics import mean

import numpy as np
from scipy.stats import ttest_1samp

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "benchmarks")]
RESULTS = REPO / "benchmarks" / "race_results"
GOAL = 0.8  # accuracy whose first measurement the report names
ALPHA = 0.05
TIE = 0.01  # learning rates whose accuracy is that near to the best one's are tied with it
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
# Of the older races, where the rate that was chosen for GRPO is the lowest that was tried.
SLOWER = {"grpo, a third of the rate": {"rate": 1e-4}}
# SFT and distillation take one completion for each problem, so they see eight times the problems of
# a method with groups. These two see the same problems as GRPO with the same seed, each eight
# times, and the rate of the race. They are made only where --methods names them, and are stored in
# a folder of their own:
#     race.py --tasks rare addition --points 1 --methods "sft, same problems" \
#         "distillation, same problems" --folder benchmarks/race_results/same_problems
SAME_PROBLEMS: dict[str, dict] = {
    "sft, same problems": {"learn": "sft", "repeats": 8, "rate": 3e-4},
    "distillation, same problems": {"learn": "distill", "group": 1, "repeats": 8, "rate": 3e-4},
}
# GRPO with four updates per batch makes four times as many updates as SFT. This is SFT with that
# many: it imitates the answers of the race's SFT with the same seed four times, so it needs four
# times the budget. Made only where --methods names it, with a folder of its own:
#     race.py --tasks rare --budget 6144 --points 1 --methods "sft, four passes" \
#         --folder benchmarks/race_results/four_passes
#     race.py --tasks addition --budget 4096 --points 1 --methods "sft, four passes" \
#         --folder benchmarks/race_results/four_passes
FOUR_PASSES: dict[str, dict] = {"sft, four passes": {"learn": "sft", "repeats": 4, "rate": 3e-4}}
ON_REQUEST = SAME_PROBLEMS | FOUR_PASSES  # only where --methods names them
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


# ---------------------------------------------------------------- the runs


def digest(*parts: object) -> str:
    """Twelve digits of a SHA-256: of files by their bytes, of other things by their JSON."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, bytes):
            sha.update(part)
        else:
            sha.update(json.dumps(part, sort_keys=True).encode())
    return sha.hexdigest()[:12]


@functools.cache
def inputs(task: str) -> list[bytes]:
    """The files that a task's runs depend on, read once for all of them."""
    model = REPO / TASKS[task]["model"]
    data = REPO / TASKS[task]["data"]
    paths = [
        model / "config.json",
        model / "model.safetensors",
        model / "tokenizer.json",
        model / "chat_template.jinja",
        data / "train.jsonl",
        data / "heldout.jsonl",
    ]
    return [path.read_bytes() for path in paths]


def circumstances(*modules: str) -> dict:
    """What a result may depend on beside its settings: code, machine and versions.

    Args:
        modules: files, beside the training loop's, whose code the result depends on.
    """
    names = ("benchmarks/race_training.py", "grpo_workbook/grpo.py", *modules)
    sources = [(REPO / name).read_bytes() for name in names]
    return {
        "code": digest(*sources),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
        "numpy": version("numpy"),
    }


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
    result = racer.run(points)
    result["wall"] = round(time.perf_counter() - started, 1)
    return result


class Store:
    """The finished runs: a JSON line each, one file for each task."""

    def __init__(self, folder: Path, dev: bool):
        self.folder = folder
        self.dev = dev

    def path(self, task: str) -> Path:
        """The file of a task's runs; the tries of learning rates have a file of their own."""
        if self.dev:
            return self.folder / f"dev-{task}.jsonl"
        return self.folder / f"{task}.jsonl"

    def rows(self, task: str) -> list[dict]:
        """The finished runs of a task; none if it has no file yet."""
        path = self.path(task)
        if not path.is_file():
            return []
        rows = []
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):  # a writer that was killed leaves half a line
                rows.append(json.loads(line))
        return rows

    def add(self, row: dict) -> None:
        """Write a run's line, in place of half a line at the end."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(row["task"]).open("ab+") as file:
            file.seek(0)
            end_of_last_line = file.read().rfind(b"\n") + 1
            file.truncate(end_of_last_line)
            file.write(json.dumps(row).encode() + b"\n")


def identity(row: dict) -> tuple:
    """What makes two rows the same run."""
    return row["task"], row["method"], row["seed"], row["key"]


def tuned_rate(tries: list[dict], method: str) -> float:
    """The rate with the best accuracy on the development problems; in a tie the lowest.

    Accuracy is the mean of sampled and greedy here, because the race reports both. Why the lowest:
    above the best rate the accuracy falls off a cliff, and below it slowly.

    Args:
        tries: the stored development runs of a task.

    Returns:
        The learning rate; UNTUNED_RATE for a method without tries, such as base and control.
    """
    by_rate: dict[float, list[float]] = {}
    for row in tries:
        if row["method"].rsplit(", rate ", 1)[0] == method:
            accuracy = (row["end"]["sampled"] + row["end"]["greedy"]) / 2
            by_rate.setdefault(row["settings"]["rate"], []).append(accuracy)
    if not by_rate:
        return UNTUNED_RATE
    mean_accuracy = {rate: mean(accuracies) for rate, accuracies in by_rate.items()}
    best = max(mean_accuracy.values())
    return min(rate for rate, accuracy in mean_accuracy.items() if accuracy >= best - TIE)


def wanted(args: argparse.Namespace) -> Iterator[dict]:
    """The runs that the command asks for, seed by seed, so that what time allows is balanced."""
    # Also where the runs go to another folder: the rates are those of the stored tries.
    tries = {task: Store(RESULTS, dev=True).rows(task) for task in args.tasks}
    for seed, task in itertools.product(args.seeds, args.tasks):
        setup = dict(TASKS[task])
        if args.budget:
            setup["budget"] = args.budget
        of_task = methods_of(task)
        known = of_task
        if task in COMPARISON:
            known = of_task | ON_REQUEST
        for name in args.methods or of_task:
            if name not in known:
                continue
            for rate in args.rates or [None]:
                settings = dict(known[name])
                label = name
                if rate is not None:
                    settings["rate"] = rate
                    label = f"{name}, rate {rate:g}"
                elif task in COMPARISON and name in of_task:
                    # The control is GRPO with another reward, so it takes GRPO's rate.
                    tuned = "grpo" if name == "random reward" else name
                    settings["rate"] = tuned_rate(tries[task], tuned)
                yield {
                    "task": task,
                    "method": label,
                    "seed": seed,
                    "key": digest(settings, setup, args.points, *inputs(task)),
                    "command": f'race.py --tasks {task} --methods "{name}" --seeds {seed}',
                    "settings": settings,
                    "setup": setup,
                }


def make_missing(
    args: argparse.Namespace,
    store: Store,
    rows: Iterable[dict],
    train: Callable[..., dict],
    module: str,
    constants: dict,
) -> int:
    """Make those of the runs that are not stored, side by side, and store each at its end.

    Args:
        args: the command's; `jobs` runs at once, none is started after `minutes`.
        store: where the runs are.
        rows: the runs that are wanted.
        train: makes one run.
        module: what `train` imports; it is loaded once for all runs.
        constants: what is written into each row, such as versions.

    Returns:
        The number of runs that failed.
    """
    stored = {identity(row) for task in args.tasks for row in store.rows(task)}
    missing = deque(row for row in rows if identity(row) not in stored)
    print(f"{len(missing)} runs to make", flush=True)
    last_start = time.monotonic() + 60 * args.minutes
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    context = get_context("forkserver")  # it loads torch once; every run is a fork of its own
    context.set_forkserver_preload([module])
    failed = 0
    running: dict[Future, dict] = {}
    with ProcessPoolExecutor(args.jobs, context, max_tasks_per_child=1) as pool:
        while missing or running:
            while missing and len(running) < args.jobs and time.monotonic() < last_start:
                row = missing.popleft()
                setup = row.pop("setup")
                future = pool.submit(
                    train, setup, row["settings"], row["seed"], args.dev, args.points
                )
                running[future] = row
            if not running:
                print(f"{len(missing)} runs are left", flush=True)
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                row = running.pop(future)
                name = f"{row['task']}, {row['method']}, seed {row['seed']}"
                error = future.exception()
                if error is not None:
                    failed += 1
                    print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
                    continue
                result = future.result()
                store.add({**row, **result, **constants})
                end = " ".join(f"{measure} {value:g}" for measure, value in result["end"].items())
                seconds = f"{result['seconds']} s, {result['wall']} s in all"
                print(f"{name}: {end}, {seconds}", flush=True)
    return failed


# ---------------------------------------------------------------- the report


def reached(row: dict) -> tuple[float, float] | None:
    """(completions, seconds) at the first measurement that reaches GOAL; None: none did."""
    for completions, seconds, accuracy, *_ in row["curve"]:
        if accuracy >= GOAL:
            return completions, seconds
    return None


def holm(p_values: list[float]) -> list[float]:
    """Holm's correction (1979) of several tests' p-values."""
    smallest_first = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(smallest_first):
        corrected = min(1.0, (len(p_values) - rank) * p_values[index])
        largest = max(largest, corrected)  # an adjusted p is never below that of a smaller p
        adjusted[index] = largest
    return adjusted


def against(method: str) -> str:
    """The name of the method with which a method is compared."""
    if method.endswith(", corrected"):
        return method.removesuffix(", corrected")
    if method in MECHANISMS:
        return "token-level loss"
    if method == "distillation, sampled token":
        return "distillation"
    has_four_updates = METHODS.get(method, {}).get("updates") == 4
    if has_four_updates and method != "grpo, 4 updates":
        return "grpo, 4 updates"
    return "grpo"


def differences(
    by_method: dict[str, dict[int, dict]],
    rival_of: Callable[[str], str] = against,
    measure: str = "sampled",
) -> dict[str, str]:
    """How far each method is from its rival, in points, and what Holm's test says of it.

    The interval is that of a t-test: a bootstrap of five normal values covers the mean in 84 %
    of cases, not in 95 %.

    Args:
        by_method: method -> seed -> a stored run.
        rival_of: the name of the method with which a method is compared.
        measure: what is compared, a name in a run's "end".

    Returns:
        method -> its mean paired difference over the seeds that both have. With three seeds or
        more that differ: the 95 % interval, Holm's p over all methods, and a verdict.
    """
    texts: dict[str, str] = {}
    paired: dict[str, np.ndarray] = {}
    for method, rows in by_method.items():
        rival_rows = by_method.get(rival_of(method), {})
        if method in ("grpo", "base", "teacher") or rival_rows is rows:
            continue
        seeds = sorted(rows.keys() & rival_rows.keys())
        if not seeds:
            continue
        gains = [rows[s]["end"][measure] - rival_rows[s]["end"][measure] for s in seeds]
        gains = np.array(gains)
        if len(gains) >= 3 and np.ptp(gains) > 0:
            paired[method] = gains
        elif not gains.any():
            texts[method] = "the same"
        else:
            texts[method] = f"{100 * gains.mean():+.1f}"
    tests = [ttest_1samp(gains, 0) for gains in paired.values()]
    p_values = holm([float(test.pvalue) for test in tests])
    for method, test, p_value in zip(paired, tests, p_values, strict=True):
        points = 100 * paired[method].mean()
        interval = test.confidence_interval()
        low = 100 * interval.low
        high = 100 * interval.high
        if p_value < ALPHA:
            verdict = "better" if points > 0 else "worse"
        elif low > 0 or high < 0:
            verdict = "unsettled"  # more seeds would tell
        else:
            verdict = "not shown"
        texts[method] = f"{points:+.1f} [{low:+.1f}, {high:+.1f}], p {p_value:.2g}: {verdict}"
    return texts


def when_reached(runs: list[dict]) -> tuple[str, str]:
    """Completions and seconds until GOAL, means over the seeds that reach it, as cells."""
    points = [reached(run) for run in runs]
    points = [point for point in points if point is not None]
    if not points:
        return "never", "never"
    completions = f"{mean(point[0] for point in points):.0f}"
    if len(points) < len(runs):
        completions += f" ({len(points)} of {len(runs)} seeds)"
    seconds = f"{mean(point[1] for point in points):.0f}"
    return completions, seconds


def table(task: str, rows: list[dict]) -> None:
    """Print the report of a task as Markdown."""
    by_method: dict[str, dict[int, dict]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["seed"]] = row
    sampled_gains = differences(by_method)
    greedy_gains = differences(by_method, measure="greedy")
    versions = {row["code"] for row in rows}
    budget = max(row["completions"] for row in rows)
    print(f"\n{task}: {budget:,} completions; {len(rows)} runs", end="")
    if len(versions) > 1:
        print(f", by {len(versions)} versions of the code", end="")
    print(
        "\n\n| method | seeds | sampled % | greedy % | pass@8 % | entropy | tokens | steps "
        "| completions to 80 % | s to 80 % | s | sampled, points | greedy, points |"
    )
    print("| --- " * 13 + "|")
    for method, by_seed in by_method.items():
        runs = list(by_seed.values())
        end = {}
        for measure in runs[0]["end"]:
            end[measure] = mean(run["end"][measure] for run in runs)
        sampled = f"{100 * end['sampled']:.1f}"
        if len(runs) >= 3:
            test = ttest_1samp([run["end"]["sampled"] for run in runs], 0)
            interval = test.confidence_interval()
            sampled += f" [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
        completions, seconds_to_goal = when_reached(runs)
        seconds = mean(run["seconds"] for run in runs)
        print(
            f"| {method} | {len(runs)} | {sampled} | {100 * end['greedy']:.1f} "
            f"| {100 * end['pass8']:.1f} | {end['entropy']:.2f} | {end['tokens']:.1f} "
            f"| {end['steps']:.1f} | {completions} | {seconds_to_goal} | {seconds:.0f} "
            f"| {sampled_gains.get(method, '')} | {greedy_gains.get(method, '')} |"
        )


def show(
    args: argparse.Namespace,
    store: Store,
    rows: Iterable[dict],
    table: Callable[[str, list[dict]], None],
    methods_of: Callable[[str], dict[str, dict]],
) -> None:
    """Print the reports (--table) or the methods (--list) of those of the runs that are stored.

    Args:
        args: the command's.
        store: where the runs are.
        rows: the runs that are wanted.
        table: prints the report of a task from its rows.
        methods_of: the methods of a task, with their settings.
    """
    wanted_runs = [identity(row) for row in rows]
    for task in args.tasks:
        stored = {identity(row): row for row in store.rows(task)}
        task_rows = [stored[run] for run in wanted_runs if run in stored]
        if args.table and task_rows:
            table(task, task_rows)
        if args.list:
            for method, settings in methods_of(task).items():
                seeds = sorted(row["seed"] for row in task_rows if row["method"] == method)
                print(f"{task:8} {method:32} {json.dumps(settings)} seeds {seeds}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=[*TASKS])
    choices = [*ALL, *ON_REQUEST]
    parser.add_argument("--methods", choices=choices, nargs="+", metavar="METHOD")
    parser.add_argument("--seeds", type=int, nargs="+", default=[*range(8)])
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=1e6, help="then start no new run")
    parser.add_argument("--table", action="store_true", help="print the report, run nothing")
    parser.add_argument("--list", action="store_true", help="print the methods, run nothing")
    parser.add_argument("--dev", action="store_true", help="on problems out of the training data")
    parser.add_argument("--rates", type=float, nargs="+", help="with --dev: learning rates to try")
    parser.add_argument("--budget", type=int, help="completions of a run (default: the task's)")
    parser.add_argument("--points", type=int, default=4, help="of the curve")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    args = parser.parse_args()
    store = Store(args.folder, args.dev)
    if args.table or args.list:
        show(args, store, wanted(args), table, methods_of)
        return 0
    return make_missing(args, store, wanted(args), train, "race_training", circumstances())


if __name__ == "__main__":
    sys.exit(main())
