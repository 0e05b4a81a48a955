"""Merge an adapter into its base's 16-bit weights and prove it, or refuse.

examples:
  python -m grpo_workbook merge outputs/run/adapter --output outputs/merged
  python -m grpo_workbook merge mine/adapter --base Qwen/Qwen3-4B \\
      --output mine/merged --data test.jsonl
"""

import argparse
from pathlib import Path

from grpo_workbook.cli import option
from grpo_workbook.cli.report import show_card
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.data import load_problems, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.export import merge, settings_of_run
from grpo_workbook.files import readable
from grpo_workbook.models import find_adapter

OPTIONS = [
    option("adapter", metavar="ADAPTER", help="the folder of a saved LoRA adapter"),
    option("--output", type=Path, required=True, metavar="DIR"),
    option("--base", metavar="MODEL", help="default: the one that the adapter names"),
    option(
        "--dequantize",
        action="store_true",
        help="into the base as in 4-bit training: rounded to NF4, in 16-bit weights",
    ),
    option("--data", metavar="SOURCE", help="held-out problems; default: the run's"),
    option("--overwrite", action="store_true", help="replace an existing model"),
]


def main(args: argparse.Namespace) -> int:
    """Merge and print the proof. Raises WorkbookError for bad input and for a bad merge."""
    find_adapter(args.adapter)  # before the libraries are loaded
    if args.output.is_dir() and any(args.output.iterdir()) and not args.overwrite:
        raise WorkbookError(f"{args.output} is not empty: give another --output, or --overwrite")
    heldout, judge = None, None
    if args.data:
        # The prompts have the instruction that the adapter was trained with.
        settings = settings_of_run(args.adapter)
        # Texts would need a judge, for which this command has no option.
        rows = load_problems(args.data, answers="number")
        heldout = to_dataset(rows, settings.get("system_prompt"))
    else:  # the run's own problems, whose answers may be texts
        judge = judge_for("text")
    merge(
        args.base,
        args.adapter,
        args.output,
        heldout=heldout,
        judge=judge,
        dequantize=args.dequantize,
    )
    show_card(args.output, "The merge, proved")
    print(f"{readable(args.output)}: 16-bit safetensors for plain Transformers")
    return 0
