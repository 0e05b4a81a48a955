"""`python -m grpo_workbook power`: how many problems show a gain, and what gain so many show."""

import argparse

from grpo_workbook import statistics
from grpo_workbook.errors import WorkbookError

EXAMPLES = """examples:
  python -m grpo_workbook power --before 0.6 --gain 0.05
  python -m grpo_workbook power --before 0.6 --items 480
"""


def add_parser(commands) -> None:
    """Add power to the command line."""
    parser = commands.add_parser(
        "power",
        help="how many problems show a gain, and what gain so many show",
        description="Before the run: how many problems are needed, or what they can show.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, choice = parser.add_argument, parser.add_mutually_exclusive_group(required=True)
    add("--before", type=float, required=True, metavar="X", help="the baseline's rate, 0 to 1")
    choice.add_argument("--gain", type=float, metavar="X", help="what you want to see, as in 0.05")
    choice.add_argument("--items", type=int, metavar="N", help="the problems that you have")
    add("--worse", type=float, metavar="X", help="rate that gets worse (default: before / 10)")
    add("--power", type=float, default=0.8, metavar="X", help="to find it (default 0.8)")


def main(args: argparse.Namespace) -> int:
    """Print what --before and --gain, or --items, come to. Raises WorkbookError for bad rates."""
    before, gain, items, power = args.before, args.gain, args.items, args.power
    worse = before / 10 if args.worse is None else args.worse
    try:
        if gain is not None:
            if gain <= 0:
                raise ValueError(f"--gain is {gain}: it must be more than 0")
            after = before + gain
            head = f"To see a gain from {before:.1%} to {after:.1%} with a power of {power:.0%}:"
            paired = f"{statistics.paired_items(worse + gain, worse, power):,} problems"
            unpaired = f"{statistics.unpaired_items(before, after, power):,} problems each"
        else:
            if items < 1:
                raise ValueError(f"--items is {items}: it must be at least 1")
            head = f"The smallest gain that {items:,} problems show with a power of {power:.0%}:"
            gains = (
                statistics.paired_gain(items, worse, power),
                statistics.unpaired_gain(items, before, power),
            )
            paired, unpaired = (f"{g:.1%}" if g else "none" for g in gains)
    except ValueError as error:
        raise WorkbookError(str(error)) from None
    print(f"{head}\n  the same problems before and after    {paired} ({worse:.1%} get worse)")
    print(f"  different problems before and after   {unpaired}")
    return 0
