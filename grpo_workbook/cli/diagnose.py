"""`diagnose`: what is wrong with a run, from its log."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

from grpo_workbook import figures
from grpo_workbook.diagnosis import (
    SEVERE,
    Finding,
    as_text,
    diagnose,
    read_run,
    run_panels,
    samples,
)
from grpo_workbook.errors import wrap
from grpo_workbook.files import readable

EXAMPLES = """examples:
  python -m grpo_workbook diagnose outputs/run
  python -m grpo_workbook diagnose outputs/run --json
  python -m grpo_workbook diagnose outputs/run --figure health.png
  python -m grpo_workbook diagnose my-run --completions 20   what it wrote
  python -m grpo_workbook diagnose my-run/checkpoint-50/trainer_state.json
"""


def add_parser(commands) -> None:
    """Add diagnose to the command line."""
    command = commands.add_parser(
        "diagnose",
        help="what is wrong with a run, from its log",
        usage="%(prog)s FOLDER [options]",
        description="Reads the log of a GRPO run, and says what is wrong with it and what to do.\n"
        "Exit status: 0 nothing severe, 1 something severe, 2 no log to read.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = "a run, a checkpoint, a log file or a completions parquet"
    command.add_argument("folder", metavar="FOLDER", help=what)
    command.add_argument("--json", action="store_true", help="for programs")
    what = "write six panels of the run, findings marked"
    command.add_argument("--figure", type=Path, metavar="PNG", help=what)
    what = "show the best, a typical and the worst one of that step"
    command.add_argument("--completions", type=int, metavar="STEP", help=what)


def main(args: argparse.Namespace) -> int:
    """Exit status 1 when something is severe. Raises WorkbookError when there is no log."""
    run = read_run(args.folder)
    shown = samples(args.folder, args.completions, groups=2) if args.completions is not None else []
    found = diagnose(run)
    if args.json:
        told = {"findings": [_as_json(f) for f in found], "notes": run.notes}
        print(json.dumps(told, indent=2, default=float))
    else:
        print(f"{readable(args.folder)}: {len(run.table)} steps\n\n{as_text(found, run)}")
        for sample in shown:
            print(f"\nstep {args.completions}, {sample.kind}, reward {sample.reward:g}")
            for line in sample.completion.splitlines():
                print(*wrap(line, 80, "  "), sep="\n")
    if args.figure:
        figures.save(*run_panels(run, found, readable(args.folder)), args.figure)
    return 1 if any(f.severity == SEVERE for f in found) else 0


def _as_json(finding: Finding) -> dict:
    """JSON has no infinity and no NaN: such a value is given as its text."""
    told = asdict(finding)
    for evidence in told["evidence"]:
        if isinstance(evidence["value"], float) and not math.isfinite(evidence["value"]):
            evidence["value"] = str(evidence["value"])
    return told
