"""Do stages help? Steps and completions until 0.8 of the held-out problems are strictly right.

    python benchmarks/stages.py                          # five ways, three seeds: 15 minutes
    python benchmarks/stages.py --ways mixed staged      # two of the ways
    python benchmarks/stages.py --jobs 2                 # two runs at a time

Every run is its own process. It trains the tiny Qwen3 for up to 60 steps of 64 completions with the
same seed for all ways, and answers 120 held-out problems (one sample each) every 4 steps. It ends
when two measurements in a row reach 0.8; the step is interpolated between two measurements. Runs
that are already in --folder are not repeated. The table compares the ways by ratios within each
seed, and is written to benchmarks/stages.json.
"""

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean

HERE = Path(__file__).resolve().parent
WAYS = {
    "mixed": "the course's rewards at once: correctness 2, strict form 0.5, parts of the form 0.5",
    "staged": "8 steps of form (strict 0.5, parts 0.5), then correctness 2 and strict form 0.5",
    "correct only": "correctness alone",
    "filtered": "mixed, on the rows that the policy at its start gets right in 1 to 7 of 8",
    "adaptive": "mixed, but the form pays less the more of it is right",
}
STEPS, FORMAT_STEPS, EVERY, HELDOUT, GOAL = 60, 8, 4, 120, 0.8
MEASURED, SAMPLES = 240, 8  # rows whose pass rate is measured, completions for each


def stages_of(way: str) -> list:
    from grpo_workbook import (
        correctness_reward,
        incremental_format_reward,
        strict_format_reward,
    )
    from grpo_workbook.stages import AdaptiveWeight, Stage

    if way == "staged":
        form = Stage("format", FORMAT_STEPS, rewards="strict_format:0.5,incremental_format:0.5")
        return [
            form,
            Stage("correct", STEPS - FORMAT_STEPS, rewards="correctness:2,strict_format:0.5"),
        ]
    if way == "correct only":
        return [Stage("correct", STEPS, rewards="correctness:2")]
    if way == "filtered":
        return [Stage("filtered", STEPS, pass_rate=(0.0, 1.0), measured=MEASURED, samples=SAMPLES)]
    if way == "adaptive":
        parts = [
            AdaptiveWeight(reward, strict_format_reward, at_zero=1.0, at_one=0.0, memory=0.8)
            for reward in (strict_format_reward, incremental_format_reward)
        ]
        return [
            Stage(
                "adaptive",
                STEPS,
                rewards=((correctness_reward, 2.0), *((part, 0.5) for part in parts)),
            )
        ]
    return [Stage("mixed", STEPS)]


def run_one(way: str, seed: int, folder: Path) -> dict:
    """One run: its curve of [step, rate of strictly right], and what it took."""
    from grpo_workbook.notebook import quiet

    quiet()
    from grpo_workbook import HeldoutProbe, RunConfig, load_policy, load_problems, to_dataset
    from grpo_workbook.data import WORD_PROBLEMS
    from grpo_workbook.stages import train_stages
    from grpo_workbook.training import Callback

    class Enough(Callback):
        """Stops training when two measurements in a row reached the goal."""

        def on_step_end(self, args, state, control, **kwargs):
            seen = [
                entry["heldout/strict"] for entry in state.log_history if "heldout/strict" in entry
            ]
            if len(seen) > 1 and min(seen[-2:]) >= GOAL:
                control.should_training_stop = True

    run = RunConfig.from_env(seed=seed, model="qwen", profile="smoke", output=folder)
    model, tokenizer = load_policy(run)
    train_set = to_dataset(load_problems(WORD_PROBLEMS["train"]))
    heldout = to_dataset(load_problems(WORD_PROBLEMS["heldout"]).select(range(HELDOUT)))
    how = {"max_new_tokens": run.max_completion_length, "every": EVERY, "problems": HELDOUT}
    callbacks = [HeldoutProbe(model, tokenizer, heldout, **how), Enough()]
    sets = (train_set, heldout)
    report = train_stages(run, model, tokenizer, *sets, stages_of(way), callbacks=callbacks)
    told = report["stages"]
    curve = [point for stage in told for point in stage["curve"]]
    logs = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("stage-*/log.json"))
    ]
    weight = "rewards/adaptive_strict_format_reward/weight"
    return {
        "way": way,
        "seed": seed,
        "curve": [point for i, point in enumerate(curve) if i == 0 or point[0] > curve[i - 1][0]],
        "zero_variance": [stage["zero_variance"] for stage in told],
        "measuring": sum(
            len(stage.get("pass_rates", ())) * stage["stage"]["samples"] for stage in told
        ),
        "pass_rates": next((stage["pass_rates"] for stage in told if "pass_rates" in stage), None),
        "weights": [entry[weight] for log in logs for entry in log if weight in entry],
        "train_seconds": round(sum(stage["train_seconds"] for stage in told), 1),
    }


def steps_to(curve: list, goal: float = GOAL) -> float | None:
    """The step at which the curve reaches the goal for two measurements in a row, interpolated.

    A curve that reaches it only at its last measurement counts too. None: it never reached it.
    """
    for i, (step, rate) in enumerate(curve):
        if rate >= goal and (i + 1 == len(curve) or curve[i + 1][1] >= goal):
            if i == 0:
                return float(step)
            (before, low), (after, high) = curve[i - 1], curve[i]
            return before + (goal - low) / (high - low) * (after - before)
    return None


def table(results: list[dict]) -> list[dict]:
    """A row for each way: steps and completions for each seed, and the ratio to "mixed"."""
    rows = []
    for way in WAYS:
        mine = {r["seed"]: r for r in results if r["way"] == way}
        steps = {seed: steps_to(r["curve"]) for seed, r in mine.items()}
        sampled = {
            s: None if n is None else round(n * 64 + mine[s]["measuring"]) for s, n in steps.items()
        }
        rows.append(
            {
                "way": way,
                "steps": steps,
                "completions": sampled,
                "last": {s: r["curve"][-1] for s, r in mine.items()},
            }
        )
    base = rows[0]
    for row in rows:
        row["ratio"] = {
            s: round(n / base["completions"][s], 2) if n and base["completions"].get(s) else None
            for s, n in row["completions"].items()
        }
    return rows


def _cell(steps: dict, seed: int) -> str:
    return (
        "not run" if seed not in steps else "never" if steps[seed] is None else f"{steps[seed]:.1f}"
    )


def as_text(rows: list[dict]) -> str:
    """The table as it is printed, and in notebook 07."""
    seeds = sorted({seed for row in rows for seed in row["steps"]})
    heads = "".join(f"{'seed ' + str(s):>9}" for s in seeds)
    lines = [f"{'way':14}{heads}{'mean':>8}{'completions':>13}{'x mixed':>9}"]
    for row in rows:
        line = f"{row['way']:14}" + "".join(f"{_cell(row['steps'], seed):>9}" for seed in seeds)
        if row["steps"] and all(row["steps"].values()):
            completions, ratios = (
                mean(row["completions"].values()),
                [r for r in row["ratio"].values() if r],
            )
            line += f"{mean(row['steps'].values()):8.1f}{completions:13,.0f}" + (
                f"{mean(ratios):9.2f}" if ratios else ""
            )
        lines.append(line)
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path("outputs/stages"),
        help="where each run's result is kept",
    )
    parser.add_argument(
        "--one", action="store_true", help="run the one way and seed in this process"
    )
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)

    def place(way: str, seed: int) -> Path:
        return args.folder / f"{way.replace(' ', '-')}-{seed}.json"

    if args.one:
        way, seed = args.ways[0], args.seeds[0]
        result = run_one(way, seed, args.folder / place(way, seed).stem)
        place(way, seed).write_text(json.dumps(result), encoding="utf-8")
        return 0

    def one(job: tuple[str, int]) -> None:
        way, seed = job
        if not place(way, seed).is_file():
            command = [
                sys.executable,
                __file__,
                "--one",
                "--ways",
                way,
                "--seeds",
                str(seed),
                "--folder",
                args.folder,
            ]
            env = os.environ | {"PYTHONPATH": str(HERE.parent)}
            result = subprocess.run(
                list(map(str, command)), capture_output=True, text=True, env=env
            )
            if result.returncode:
                raise RuntimeError(
                    f"{way}, seed {seed}: {result.stdout[-2000:]}{result.stderr[-4000:]}"
                )
        print(f"{way}, seed {seed}: done", flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, [(way, seed) for way in args.ways for seed in args.seeds]))
    found = [
        json.loads(place(w, s).read_text(encoding="utf-8"))
        for w in WAYS
        for s in args.seeds
        if place(w, s).is_file()
    ]
    rows = table(found)
    print(as_text(rows))
    print(f"\nsteps until {GOAL} strictly right, by seed and on average; completions sampled until")
    print("then, those for pass rates among them; and their ratio to mixed, the mean over seeds")
    whole = {
        "goal": GOAL,
        "heldout": HELDOUT,
        "every": EVERY,
        "format_steps": FORMAT_STEPS,
        "ways": WAYS,
        "text": as_text(rows),
        "table": rows,
        "runs": found,
    }
    (HERE / "stages.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
