"""What is wrong with a GRPO run, from its log, and how to fix it.

examples:
  python -m grpo_workbook diagnose outputs/run           a run of this workbook
  python -m grpo_workbook diagnose outputs               several runs: a table
  python -m grpo_workbook diagnose my-run/checkpoint-50
  python -m grpo_workbook diagnose run.ipynb             the table in its output
  python -m grpo_workbook diagnose my-run/runs/Jan01     TensorBoard
  python -m grpo_workbook diagnose wandb_export.csv      or .json, or .jsonl
  python -m grpo_workbook diagnose ~/.cache/huggingface/trackio/NAME.db
  python -m grpo_workbook diagnose train.log --set logging_steps=10
  python -m grpo_workbook diagnose outputs/run --figure health.png
  python -m grpo_workbook diagnose my-run --completions 20   at step 20

Exit status: 0 nothing severe, 1 something severe, 2 no log to read.
"""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

from grpo_workbook import figures
from grpo_workbook.cli import option
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.files import readable

USAGE, MORE = "%(prog)s LOG [options]", "such as num_generations=8; for several: again"
PANELS = "six panels of the run, with the findings marked; of several runs the rewards"
OPTIONS = [
    option("folder", metavar="LOG", help="a run's folder or its log, in any form below"),
    option("--run", metavar="NAME", help="one of several runs in LOG"),
    option("--set", metavar="NAME=VALUE", action="append", default=[],
           help=f"a setting that the log does not have, {MORE}"),
    option("--json", action="store_true", help="for programs"),
    option("--figure", type=Path, metavar="PNG", help=f"write {PANELS}"),
    option("--completions", type=int, metavar="STEP",
           help="show the best, a typical and the worst completion of that step"),
]  # fmt: skip

# The rules calculate with these settings: the least number of each, and the types of the others.
LEAST = {"learning_rate": 0, "temperature": 0, "beta": 0, "num_generations": 1, "logging_steps": 1,
         "max_steps": 1, "max_completion_length": 1, "per_device_train_batch_size": 1}  # fmt: skip
PARTS = {"reward_roles": (dict, str, '{"NAME": "correctness"}'),
         "reward_weights": (dict | list, int | float, '{"NAME": 2}')}  # fmt: skip


def main(args) -> int:
    """Exit status 1 for a severe finding. Raises WorkbookError if there is no log."""
    try:
        return _diagnose(args)
    except WorkbookError as error:  # "error: " will stand before it
        raise WorkbookError("\n".join(wrap(str(error), 72))) from None


def _diagnose(args) -> int:
    from grpo_workbook import diagnosis  # it loads pandas

    runs = diagnosis.read_runs(args.folder, settings=dict(map(_setting, args.set)))
    if args.run is not None:
        if not isinstance(runs.get(args.run), diagnosis.RunLog):
            said = f"no run {args.run!r} in it: choose one of {', '.join(runs)}"
            raise runs.get(args.run, WorkbookError(said))
        runs = {args.run: runs[args.run]}
    if args.completions is not None and len(runs) > 1:
        raise WorkbookError(f"--completions is for one run: --run with one of {', '.join(runs)}")
    good = {name: run for name, run in runs.items() if isinstance(run, diagnosis.RunLog)}
    found = {name: diagnosis.diagnose(run) for name, run in good.items()}
    if args.json:
        told = {name: _told(run, found.get(name)) for name, run in runs.items()}
        alone = next(iter(told.values())) if len(told) == 1 else {"runs": told}
        plain = json.loads(json.dumps(alone, default=float), parse_constant=lambda n: str(float(n)))
        print(json.dumps(plain, indent=2))  # JSON has no NaN
    elif len(runs) == 1:
        _show(args, *good.values(), *found.values())
    else:
        print(f"{'run':<32} {'steps':>10}  first finding")
        for name, run in runs.items():
            steps, said = "", f"not read: {run}"
            if name in good:
                steps, first = _steps(run), found[name][0]
                said = f"{first.severity.upper()} {first.name} from {first.step}"
            print(*wrap(said, 79, f"{name:<32.32} {steps:>10}  "), sep="\n")
        print("\nOne of them in full: --run NAME")
    if args.figure:
        one = *good.values(), *found.values(), readable(args.folder)
        drawn = diagnosis.side_by_side(good) if len(good) > 1 else diagnosis.run_panels(*one)
        figures.save(*drawn, args.figure)
    return int(any(f.severity == diagnosis.SEVERE for each in found.values() for f in each))


def _setting(text: str) -> tuple[str, object]:
    name, sign, told = text.partition("=")
    if not sign:
        raise WorkbookError(f"--set {text}: give NAME=VALUE, for example num_generations=8")
    value: object = told
    with contextlib.suppress(ValueError):
        value = json.loads(told)
    if name in LEAST and not (isinstance(value, int | float) and value >= LEAST[name]):
        raise WorkbookError(f"--set {text}: give {name}=NUMBER, of at least {LEAST[name]}")
    if name in PARTS:
        whole, part, such = PARTS[name]
        parts = value.values() if isinstance(value, dict) else value
        if not (isinstance(value, whole) and all(isinstance(p, part) for p in parts)):
            raise WorkbookError(f"--set {text}: give JSON, such as {name}='{such}'")
    return name, value


def _steps(run) -> str:
    return f"{run.table.index.min()}-{run.table.index.max()}" if len(run.table) else "none"


def _told(run, findings) -> dict:
    """All that is known of a run, for programs."""
    if isinstance(run, WorkbookError):
        return {"error": str(run)}
    names = "notes", "settings", "functions", "broken"
    facts = {name: getattr(run, name) for name in names} | {"ended": run.error}
    facts |= {"metrics": list(run.table), "rows": len(run.table), "steps": _steps(run)}
    return {"findings": [asdict(f) for f in findings], "unjudged": findings.unjudged} | facts


def _show(args, run, findings) -> None:
    from grpo_workbook.diagnosis import as_text, samples

    place = Path(args.folder) / (args.run or "")
    shown = [] if args.completions is None else samples(place, args.completions, groups=2)
    head = f"{readable(args.folder)}: {len(run.table)} rows, steps {_steps(run)}"
    print(*wrap(head, 79), sep="\n")
    print(f"\n{as_text(findings, run)}")
    for sample in shown:
        print(f"\nstep {args.completions}, {sample.kind}, reward {sample.reward:g}")
        for line in sample.completion.splitlines():
            print(*wrap(line, 80, "  "), sep="\n")
