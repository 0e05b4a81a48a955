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

Exit status: 0 nothing severe, 1 something severe, 2 no log to read.
"""

import contextlib
import json
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook import figures
from grpo_workbook.cli import option
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.files import readable

if TYPE_CHECKING:  # the diagnosis loads pandas: only when it is needed
    from grpo_workbook.diagnosis.findings import Finding
    from grpo_workbook.diagnosis.runlog import RunLog

USAGE = "%(prog)s LOG [options]"
OPTIONS = [
    option("folder", metavar="LOG", help="a run's folder or its log, in any form below"),
    option("--run", metavar="NAME", help="one of several runs in LOG"),
    option(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting that the log does not have, such as num_generations=8; for several: again",
    ),
    option(
        "--figure",
        type=Path,
        metavar="PNG",
        help="write six panels of the run, with the findings marked; of several runs the rewards",
    ),
]

# The rules calculate with these settings.
NUMBERS = (
    "learning_rate",
    "temperature",
    "beta",
    "num_generations",
    "logging_steps",
    "max_steps",
    "max_completion_length",
    "per_device_train_batch_size",
)


def main(args: Namespace) -> int:
    """Exit status 1 for a severe finding. Raises WorkbookError if there is no log."""
    try:
        return diagnose_log(args)
    except WorkbookError as error:  # "error: " will stand before it
        raise WorkbookError("\n".join(wrap(str(error), 72))) from None


def diagnose_log(args: Namespace) -> int:
    """Read the log, print what is wrong with each run, and return the exit status."""
    from grpo_workbook.diagnosis.findings import SEVERE
    from grpo_workbook.diagnosis.panels import run_panels, side_by_side
    from grpo_workbook.diagnosis.report import as_text, diagnose
    from grpo_workbook.diagnosis.runlog import RunLog, read_runs

    settings = dict(read_setting(text) for text in args.set)
    results = read_runs(args.folder, settings=settings)
    if args.run is not None:
        results = choose_run(results, args.run)
    runs = {}
    errors = {}
    for name, result in results.items():
        if isinstance(result, RunLog):
            runs[name] = result
        else:
            errors[name] = result
    findings = {name: diagnose(run) for name, run in runs.items()}
    place = readable(args.folder)
    # There is one: `read_runs` and `choose_run` raise where no run could be read.
    name, run = next(iter(runs.items()))
    # Runs that could not be read count as well: the table has their errors.
    if len(results) > 1:
        print_table(runs, findings, errors)
    else:
        print(*wrap(f"{place}: {len(run.table)} rows, steps {steps_of(run)}", 79), sep="\n")
        print(f"\n{as_text(findings[name], run)}")
    # After the text: a figure that cannot be written costs nobody the diagnosis.
    if args.figure:
        drawn = side_by_side(runs) if len(runs) > 1 else run_panels(run, findings[name], place)
        figures.save(*drawn, args.figure)
    for of_run in findings.values():
        if of_run[0].severity == SEVERE:  # the most severe is the first
            return 1
    return 0


def choose_run(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The run of that name alone; WorkbookError if there is none, or if it could not be read."""
    if name not in results:
        names = ", ".join(results)
        raise WorkbookError(f"no run {name!r} in it: choose one of {names}")
    # `read_runs` keeps a run's error as its result, for the table of all runs.
    if isinstance(results[name], WorkbookError):
        raise results[name]
    return {name: results[name]}


def read_setting(text: str) -> tuple[str, Any]:
    """The name and the value of NAME=VALUE; WorkbookError if the rules cannot use it."""
    name, sign, word = text.partition("=")
    if not sign:
        raise WorkbookError(f"--set {text}: give NAME=VALUE, for example num_generations=8")
    value: Any = word
    with contextlib.suppress(json.JSONDecodeError):  # a word, such as loss_type=grpo
        value = json.loads(word)
    # Rules compare and divide by these.
    if name in NUMBERS and not isinstance(value, int | float):
        raise WorkbookError(f"--set {text}: give {name}=NUMBER")
    # What a shell has left of the quotes of a JSON object.
    if name in ("reward_roles", "reward_weights") and not isinstance(value, dict | list):
        raise WorkbookError(f"""--set {text}: give JSON, {name}='{{"NAME": VALUE}}'""")
    return name, value


def steps_of(run: "RunLog") -> str:
    """The first and the last step of a log."""
    if run.table.empty:
        return "none"
    return f"{run.table.index[0]}-{run.table.index[-1]}"


def print_table(
    runs: "dict[str, RunLog]",
    findings: "dict[str, list[Finding]]",
    errors: dict[str, WorkbookError],
) -> None:
    """Print a line for each run with its first finding, and one for each that was not read."""
    rows = []
    for name, run in runs.items():
        first = findings[name][0]
        words = f"{first.severity.upper()} {first.name} from {first.step}"
        rows.append((name, steps_of(run), words))
    for name, error in errors.items():
        rows.append((name, "", f"not read: {error}"))
    print(f"{'run':<32} {'steps':>10}  first finding")
    for name, steps, words in rows:
        print(*wrap(words, 79, f"{name:<32.32} {steps:>10}  "), sep="\n")
    print("\nOne of them in full: --run NAME")
