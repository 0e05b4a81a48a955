"""Says what is wrong with a GRPO run: `diagnose(read_run(folder))`, or `python -m grpo_workbook diagnose FOLDER`."""

import argparse
import json
import math
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from grpo_workbook.diagnosis.findings import (
    CATALOGUE,
    SEVERE,
    WARNING,
    Evidence,
    Finding,
    bound,
    in_order,
    make,
)
from grpo_workbook.diagnosis.more_rules import RULES
from grpo_workbook.diagnosis.rules import View
from grpo_workbook.diagnosis.runlog import RunLog, read_run, samples
from grpo_workbook.errors import wrap
from grpo_workbook.files import readable

EXAMPLES = """examples:
  python -m grpo_workbook diagnose outputs/run
  python -m grpo_workbook diagnose outputs/run --json
  python -m grpo_workbook diagnose outputs/run --figure health.png
  python -m grpo_workbook diagnose my-run --completions 20   what it wrote
  python -m grpo_workbook diagnose my-run/checkpoint-50/trainer_state.json
"""


def diagnose(run) -> list[Finding]:
    """What is wrong with the run, the severest first; one finding called "healthy" when nothing is.

    `run`: what read_run gives, or anything that read_run takes. A run is compared with itself: its first steps, its
    group size, its rewards. What was not logged is not judged.
    """
    run = read_run(run)
    view = View(run)
    found = in_order([f for rule in RULES if (f := rule(view)) is not None])
    if any(f.severity in (SEVERE, WARNING) for f in found):
        return found
    last = int(run.table.index.max()) if len(run.table) else 0
    if view.steps < (2 * bound("first_steps") if view.learned else bound("flat_after")):
        return [
            *found,
            make("too_short", last, Evidence("steps", view.steps, "more, to see the reward rise")),
        ]
    return [_healthy(view), *found]


def _healthy(v: View) -> Finding:
    said = [
        Evidence(
            "reward",
            v.last("reward"),
            f"{v.first('reward'):.3g} at first, of at most {v.highest:.3g}",
        )
    ]
    if len(v.of("reward_std")):
        said.append(
            Evidence("reward_std", v.last("reward_std"), "more than 0: something to compare")
        )
    heldout = v.of("heldout/strict")
    if len(heldout) > 1:
        said.append(Evidence("heldout/strict", heldout.iloc[-1], f"{heldout.iloc[0]:.3g} at first"))
    return make(
        "healthy", v.of("reward").index[0] if len(v.of("reward")) else 0, *said, means=about_loss(v)
    )


def _as_json(finding: Finding) -> dict:
    """JSON has no infinity and no NaN: such a value is given as its text."""
    told = asdict(finding)
    for evidence in told["evidence"]:
        if isinstance(evidence["value"], float) and not math.isfinite(evidence["value"]):
            evidence["value"] = str(evidence["value"])
    return told


def about_loss(v: View) -> str:
    """Why the loss says nothing, for this run; empty when it was not logged."""
    loss = v.of("loss")
    if not len(loss):
        return ""
    size = float(loss.abs().mean())
    if v.settings.get("beta") or ("beta" not in v.settings and float(v.of("kl").abs().sum()) > 0):
        return f"The loss ({size:.2g} on average) holds the KL penalty, which grows as the policy learns."
    return (
        f"A loss near 0 ({size:.2g} on average) is normal here, because beta is 0: advantages sum to 0 in each group, "
        "and with one update per batch the ratio is 1."
    )


def severe(found: Sequence[Finding]) -> bool:
    """Whether one of the findings is severe."""
    return any(f.severity == SEVERE for f in found)


def symptom_table() -> str:
    """Symptom, cause and cure of every finding, as Markdown: from the code's own catalogue."""
    rows = ["| finding | what you see | what it means | what to do |", "| --- | --- | --- | --- |"]
    return "\n".join(
        rows
        + [f"| `{n}` | {seen} | {means} | {do} |" for n, (_, seen, means, do) in CATALOGUE.items()]
    )


def as_text(found: Sequence[Finding], run: RunLog, width: int = 79) -> str:
    """The findings for a terminal of 80 columns."""
    lines = []
    for f in found:
        lines.append(f"{f.severity.upper()}  {f.name}, from step {f.step}")
        for head, text in (
            ("", f.means),
            ("seen: ", "; ".join(map(str, f.evidence))),
            ("do:   ", f.do),
        ):
            lines += textwrap.wrap(
                text, width, initial_indent="  " + head, subsequent_indent="  " + " " * len(head)
            )
        lines.append("")
    lines += [line for note in run.notes for line in textwrap.wrap(f"Not known: {note}", width)]
    return "\n".join(lines).rstrip()


def add_parser(commands) -> None:
    """Add diagnose to the command line."""
    command = commands.add_parser(
        "diagnose",
        help="what is wrong with a run, from its log",
        usage="%(prog)s FOLDER [options]",
        description="Reads the log of a GRPO run, and says what is wrong with it and what to do. "
        "Exit status: 0 nothing severe, 1 something severe, 2 no log to read.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.description = textwrap.fill(command.description, 79)
    command.add_argument(
        "folder", metavar="FOLDER", help="a run, a checkpoint, a log file or a completions parquet"
    )
    command.add_argument("--json", action="store_true", help="for programs")
    command.add_argument(
        "--figure", type=Path, metavar="PNG", help="write six panels of the run, findings marked"
    )
    command.add_argument(
        "--completions",
        type=int,
        metavar="STEP",
        help="show the best, a typical and the worst one of that step",
    )


def main(args: argparse.Namespace) -> int:
    """Exit status 1 when something is severe. Raises WorkbookError when there is no log."""
    run = read_run(args.folder)
    shown = samples(args.folder, args.completions, groups=2) if args.completions is not None else []
    found = diagnose(run)
    if args.json:
        print(
            json.dumps(
                {"findings": [_as_json(f) for f in found], "notes": run.notes},
                indent=2,
                default=float,
            )
        )
    else:
        steps = len(run.table)
        print(f"{readable(args.folder)}: {steps} steps\n\n{as_text(found, run)}")
        for sample in shown:
            print(f"\nstep {args.completions}, {sample.kind}, reward {sample.reward:g}")
            for line in sample.completion.splitlines():
                print(*("  " + part for part in wrap(line, 78)), sep="\n")
    if args.figure:
        from grpo_workbook import figures
        from grpo_workbook.diagnosis.panels import run_panels

        figures.save(*run_panels(run, found, readable(args.folder)), args.figure)
    return 1 if severe(found) else 0
