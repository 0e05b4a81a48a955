"""Merge an adapter into its base's 16-bit weights and prove it, or refuse.

examples:
  python -m grpo_workbook merge outputs/run/adapter --output outputs/merged
  python -m grpo_workbook merge mine/adapter --base Qwen/Qwen3-4B \\
      --output mine/merged --data test.jsonl
"""

import argparse
from pathlib import Path

from grpo_workbook.cli import add_command
from grpo_workbook.cli.rewards import judge_for
from grpo_workbook.data import load_problems, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.export import merge, run_of
from grpo_workbook.files import readable
from grpo_workbook.models import find_adapter


def add_parser(commands) -> None:
    """Add merge to the command line."""
    add = add_command(commands, "merge", __doc__)
    add("adapter", metavar="ADAPTER", help="the folder of a saved LoRA adapter")
    add("--output", type=Path, required=True, metavar="DIR")
    add("--base", metavar="MODEL", help="default: the one that the adapter names")
    add("--data", metavar="SOURCE", help="held-out problems; default: the run's")
    add("--overwrite", action="store_true", help="replace an existing model")


def main(args: argparse.Namespace) -> int:
    """Merge and print the proof. Raises WorkbookError for bad input and for a bad merge."""
    find_adapter(args.adapter)  # before the libraries are loaded
    if args.output.is_dir() and any(args.output.iterdir()) and not args.overwrite:
        raise WorkbookError(f"{args.output} is not empty: give another --output, or --overwrite")
    heldout, judge = None, judge_for("text")
    if args.data:
        rows, judge = load_problems(args.data, answers="number"), None
        heldout = to_dataset(rows, run_of(args.adapter)[1].get("system_prompt"))
    proof = merge(args.base, args.adapter, args.output, heldout=heldout, judge=judge)
    print(f"merged into {readable(args.output)}, 16-bit safetensors for plain Transformers")
    print(f"  largest logit difference  {proof['max_abs_logit_difference']}")
    print(f"  of the logits' spread     {proof['relative_logit_difference']:.2%}")
    print(f"  the same greedy token     {proof['same_greedy_tokens']:.2%} of the positions")
    if "heldout_n" in proof:
        low, high = proof["policy_ci95"]
        merged, policy = proof["merged_strict_greedy"], proof["policy_strict_greedy"]
        print(f"  held-out, strictly right  {merged:.1%} of {proof['heldout_n']} problems")
        print(f"  the policy before         {policy:.1%} (95 % interval {low:.1%} to {high:.1%})")
    return 0
