"""`diagnose`: what is wrong with a run, from its log."""

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path

from grpo_workbook import diagnosis, figures
from grpo_workbook.errors import wrap
from grpo_workbook.files import readable

EXAMPLES = """examples:
  python -m grpo_workbook diagnose outputs/run
  python -m grpo_workbook diagnose outputs/run --figure health.png
  python -m grpo_workbook diagnose my-run --completions 20   at step 20
  python -m grpo_workbook diagnose my-run/checkpoint-50/trainer_state.json
"""


def add_parser(commands) -> None:
    """Add diagnose to the command line."""
    words, usage = "what is wrong with a run, from its log", "%(prog)s FOLDER [options]"
    about = "Reads the log of a GRPO run, and reports what is wrong and how to fix it.\n"
    about += "Exit status: 0 nothing severe, 1 something severe, 2 no log to read."
    how = {"epilog": EXAMPLES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    command = commands.add_parser("diagnose", help=words, usage=usage, description=about, **how)
    add = command.add_argument
    add("folder", metavar="FOLDER", help="a run, a checkpoint, a log file or a completions parquet")
    add("--json", action="store_true", help="for programs")
    words = "write six panels of the run, with the findings marked"
    add("--figure", type=Path, metavar="PNG", help=words)
    words = "show the best, a typical and the worst completion of that step"
    add("--completions", type=int, metavar="STEP", help=words)


def main(args: argparse.Namespace) -> int:
    """Exit status 1 for a severe finding. Raises WorkbookError if there is no log."""
    run, step = diagnosis.read_run(args.folder), args.completions
    shown = [] if step is None else diagnosis.samples(args.folder, step, groups=2)
    found = diagnosis.diagnose(run)
    if args.json:
        told = [asdict(finding) for finding in found]
        for evidence in (e for finding in told for e in finding["evidence"]):
            if isinstance(value := evidence["value"], float) and not math.isfinite(value):
                evidence["value"] = str(value)  # JSON has no infinity
        more = {"unjudged": [m._asdict() for m in found.unjudged], "notes": run.notes}
        print(json.dumps({"findings": told, **more}, indent=2, default=float))
    else:
        print(f"{readable(args.folder)}: {len(run.table)} steps\n")
        print(diagnosis.as_text(found, run))
        for sample in shown:
            print(f"\nstep {step}, {sample.kind}, reward {sample.reward:g}")
            for line in sample.completion.splitlines():
                print(*wrap(line, 80, "  "), sep="\n")
    if args.figure:
        figures.save(*diagnosis.run_panels(run, found, readable(args.folder)), args.figure)
    return 1 if any(finding.severity == diagnosis.SEVERE for finding in found) else 0
