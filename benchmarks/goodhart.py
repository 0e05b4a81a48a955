"""What happens when a learned reward is wrong? Runs against reward models, noise and steps.

    python benchmarks/goodhart.py --table                      # the report of the stored runs
    python benchmarks/goodhart.py --list                       # all methods: settings, seeds stored
    python benchmarks/goodhart.py --minutes 60 --seeds 0 1   # more runs; stored ones are skipped
    python benchmarks/goodhart.py --tasks noise --methods "group of 4"

Every (task, method, seed) is a process of its own with one thread, and one line in
benchmarks/goodhart_results, as in benchmarks/race.py. The reward models of a seed are trained by
the first run that needs them and kept in build/goodhart. All settings were chosen with seed 100:

    python benchmarks/goodhart.py --seeds 100 --folder build/goodhart_dev
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPO), str(REPO / "benchmarks")]
import race  # noqa: E402
from race import digest, inputs  # noqa: E402

MAIN, STEPS = race.TASKS["main"], race.TASKS["steps"]
RULE = {"paid": "rule"}
PER_TOKEN = RULE | {"loss": "ppo"}  # advantages may differ from token to token


def noisy(rate_of_flips: float, **more) -> dict:
    """The rule, right or wrong, with some of its verdicts flipped."""
    return {"paid": "noisy rule", "noise": rate_of_flips, **more}


# `setup`: model, data and budget; `rival`: the method with which the others are compared.
TASKS: dict[str, dict] = {
    "models": {"setup": MAIN | {"budget": 0}, "rival": "0 % flipped",
        "methods": {
            f"{100 * rate:.0f} % flipped": {"flips": rate} for rate in (0.0, 0.1, 0.2, 0.3)
        },
    },
    "goodhart": {"setup": MAIN | {"budget": 1536}, "rival": "one model",
        "methods": {
            "one model": {},
            "beta 0.1": {"beta": 0.1},
            "beta 0.3": {"beta": 0.3},
            "adaptive beta": {"beta": 0.1, "target": 2.0},
            "batch's std": {"scale": "batch"},
            "no std": {"scale": "none"},
            "mean of three": {"models": 3},
            "minimum of three": {"models": 3, "combine": "minimum"},
            "minimum of three, beta 0.1": {"models": 3, "combine": "minimum", "beta": 0.1},
            "early stopping": {"keep": True},
            "diversity bonus": {"diverse": 1.0},
            "30 % flipped": {"flips": 0.3},
            "the rule itself": RULE,
        },
    },
    "selection": {"setup": MAIN | {"budget": 0, "pool": [48, 64]}, "rival": "0 % flipped",
        "methods": {
            "0 % flipped": {"flips": 0.0},
        },
    },
    "noise": {"setup": MAIN | {"budget": 1024}, "rival": "group of 8",
        "methods": {
            "group of 4": RULE | {"group": 4},
            "group of 8": RULE,
            "group of 16": RULE | {"group": 16},
            "20 %, group of 4": noisy(0.2, group=4),
            "20 %, group of 8": noisy(0.2),
            "20 %, group of 16": noisy(0.2, group=16),
            "20 %, group of 8, batch's std": noisy(0.2, scale="batch"),
            "30 %, group of 4": noisy(0.3, group=4),
            "30 %, group of 8": noisy(0.3),
            "30 %, group of 16": noisy(0.3, group=16),
            "30 %, group of 8, batch's std": noisy(0.3, scale="batch"),
            "30 %, group of 8, rate 1e-4": noisy(0.3, rate=1e-4),
        },
    },
    "pipeline": {"setup": MAIN | {"budget": 1024}, "rival": "SFT, then GRPO",
        "methods": {
            "SFT": {"learn": "nothing", "cold": 128, "paid": "rule"},
            "SFT, then GRPO": {"cold": 128, "beta": 0.1},
            "SFT, then GRPO, batch's std": {"cold": 128, "beta": 0.1, "scale": "batch"},
            "SFT, then GRPO, PPO's loss": {"cold": 128, "beta": 0.1, "loss": "ppo"},
            "SFT, then PPO": {"cold": 128, "beta": 0.1, "baseline": "critic", "loss": "ppo"},
        },
    },
    "diversity": {"setup": MAIN | {"budget": 1024}, "rival": "majority",
        "methods": {
            "base": {"learn": "nothing", "paid": "majority"},
            "majority": {"paid": "majority"},
            "majority, bonus 0.5": {"paid": "majority", "diverse": 0.5},
            "majority, bonus 1": {"paid": "majority", "diverse": 1.0},
        },
    },
    "process": {"setup": STEPS | {"budget": 1536}, "rival": "outcome",
        "methods": {
            "outcome": PER_TOKEN,
            "right steps": PER_TOKEN | {"steps": "right"},
            "true steps": PER_TOKEN | {"steps": "true"},
        },
    },
}  # fmt: skip

# What the report shows of a task's runs; the first is compared.
COLUMNS = {
    "models": ("accuracy", "seconds"),  # not `alike`: it compares different problems
    "selection": ("alike", "accuracy", "alike_problems", "seconds"),
    "goodhart": ("sampled", "pass8", "proxy", "kl", "seconds"),
    "noise": ("sampled", "pass8", "entropy"),
    "pipeline": ("sampled", "pass8", "proxy", "kl", "megabytes", "seconds"),
    "diversity": ("answer", "answer8", "sampled", "pass8", "entropy"),
    "process": ("sampled", "pass8", "tokens", "steps"),
}
RATES = {"accuracy", "alike", "sampled", "pass8", "answer", "answer8"}


def wanted(args: argparse.Namespace) -> Iterator[dict]:
    """The runs that the command asks for, seed by seed, so that what time allows is balanced."""
    settings_of_runs = []
    for task in args.tasks:
        setup = dict(TASKS[task]["setup"])
        if args.budget and setup["budget"]:
            setup["budget"] = args.budget
        files = inputs("steps" if task == "process" else "main")
        for method, settings in TASKS[task]["methods"].items():
            if args.methods and method not in args.methods:
                continue
            key = digest(settings, setup, *files)
            row = {"task": task, "method": method, "key": key, "settings": settings}
            # Where the reward models are kept changes no result, so it is not part of the key.
            settings_of_runs.append({**row, "setup": {**setup, "models": str(args.models)}})
    for seed, row in itertools.product(args.seeds, settings_of_runs):
        command = f'goodhart.py --tasks {row["task"]} --methods "{row["method"]}" --seeds {seed}'
        yield {**row, "seed": seed, "command": command}


def train(setup: dict, settings: dict, seed: int, dev: bool, points: int) -> dict:
    """One run, in a process of its own; without a budget only its reward model."""
    import torch
    import transformers
    from datasets import disable_progress_bars
    from goodhart_selection import selection
    from goodhart_training import Learned, Learner, accuracies

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    disable_progress_bars()
    os.chdir(REPO)
    started = time.perf_counter()
    folder = Path(setup["models"])
    if setup["budget"]:
        learner = Learner(setup, Learned(**settings), seed, setup["budget"], folder)
        result = learner.run(points)
    else:
        processor_seconds = time.process_time()
        if "pool" in setup:
            result = selection(setup, seed, settings["flips"], folder)
        else:
            result = accuracies(setup, seed, settings["flips"], folder)
        result["seconds"] = round(time.process_time() - processor_seconds, 1)
    result["wall"] = round(time.perf_counter() - started, 1)
    return result


def measured_kl(row: dict) -> float:
    """The KL of the weights that were measured, in nats per completion.

    It is that of the last batch; with early stopping, that of the first batch which the kept
    weights wrote.
    """
    kept = row["end"].get("kept")
    for batch in row["log"]:
        if kept is not None and batch["used"] > kept:
            return batch["kl"]
    return row["log"][-1]["kl"]


def table(task: str, rows: list[dict]) -> None:
    """Print the report of a task as Markdown."""
    by_method: dict[str, dict[int, dict]] = {}
    for row in rows:
        row["end"]["seconds"] = row["seconds"]
        if row.get("log"):  # a run that learns nothing has none
            row["end"]["kl"] = measured_kl(row)
        by_method.setdefault(row["method"], {})[row["seed"]] = row
    rival = TASKS[task]["rival"]
    columns = COLUMNS[task]
    gains = race.differences(by_method, rival_of=lambda method: rival, measure=columns[0])
    headings = [f"{name} %" if name in RATES else name for name in columns]
    print(f"\n{task}: {len(rows)} runs; points of {columns[0]} against {rival!r}\n")
    print("| method | seeds |", " | ".join(headings), "| points |")
    print("| --- " * (len(columns) + 3) + "|")
    for method, by_seed in by_method.items():
        ends = [row["end"] for row in by_seed.values()]
        cells = [mean_cell(name, ends) for name in columns]
        print(f"| {method} | {len(by_seed)} |", " | ".join(cells), f"| {gains.get(method, '')} |")


def mean_cell(name: str, ends: list[dict]) -> str:
    """The mean of a column over runs; empty for what no run has: the rule itself has no proxy."""
    values = [end[name] for end in ends if name in end]
    if not values:
        return ""
    if name in RATES:
        return f"{100 * mean(values):.1f}"
    return f"{mean(values):.3g}"


def all_methods() -> list[str]:
    """The names of the methods of all tasks, each once."""
    names: list[str] = []
    for task in TASKS.values():
        names.extend(name for name in task["methods"] if name not in names)
    return names


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=[*TASKS])
    parser.add_argument("--methods", choices=all_methods(), nargs="+", metavar="METHOD")
    parser.add_argument("--seeds", type=int, nargs="+", help="default: 0 to 4; all for --table")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--minutes", type=float, default=1e6, help="then start no new run")
    parser.add_argument("--table", action="store_true", help="print the report, run nothing")
    parser.add_argument("--list", action="store_true", help="print the methods, run nothing")
    parser.add_argument("--budget", type=int, help="completions of a run (default: the task's)")
    parser.add_argument("--folder", type=Path, default=REPO / "benchmarks" / "goodhart_results")
    parser.add_argument("--models", type=Path, default=REPO / "build" / "goodhart")
    args = parser.parse_args()
    args.dev = False
    args.points = 1
    reads_alone = args.table or args.list
    if args.seeds is None:
        args.seeds = range(32) if reads_alone else range(5)
    store = race.Store(args.folder, dev=False)
    if reads_alone:
        race.show(args, store, wanted(args), table, lambda task: TASKS[task]["methods"])
        return 0
    modules = ("benchmarks/goodhart_training.py", "benchmarks/goodhart_selection.py")
    constants = race.circumstances(*modules)
    return race.make_missing(args, store, wanted(args), train, "goodhart_training", constants)


if __name__ == "__main__":
    sys.exit(main())
