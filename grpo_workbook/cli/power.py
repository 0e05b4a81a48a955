"""How many problems show a gain, or which gain your problems can show.

examples:
  python -m grpo_workbook power --before 0.6 --gain 0.05
  python -m grpo_workbook power --before 0.6 --items 500
"""

from grpo_workbook import statistics
from grpo_workbook.cli import option
from grpo_workbook.errors import WorkbookError

MOST = 100_000  # problems: the time grows with them, here some seconds
OPTIONS = [
    option("--before", type=float, required=True, metavar="X", help="the baseline's rate, 0 to 1"),
    option("--gain", type=float, metavar="X", help="the gain to find, such as 0.05"),
    option("--items", type=int, metavar="N", help="or the problems that you have"),
    option("--worse", type=float, metavar="X", help="rate that gets worse (default: before / 10)"),
    option("--power", type=float, default=0.8, metavar="X", help="to find the gain (default 0.8)"),
]


def main(args) -> int:
    """Print the problems for --gain, or the gain for --items. WorkbookError for bad rates."""
    before, gain, items, power = args.before, args.gain, args.items, args.power
    worse = before / 10 if args.worse is None else args.worse
    if items and items > MOST:
        raise WorkbookError(f"--items is {items:,}: at most {MOST:,}, which show any gain of use")
    if (gain is None) == (items is None) or not (gain or items or 0) > 0:
        raise WorkbookError(f"--gain is {gain}, --items is {items}: give one of them, above 0")
    if not (0 < power < 1 and 0 <= worse <= before <= before + (gain or 0) <= 1):
        said = f"--before is {before}, after is {before + (gain or 0)}, --worse is {worse}"
        raise WorkbookError(f"{said}, --power is {power}: give 0 to 1, --worse up to --before")
    if gain is not None:
        said = f"{statistics.paired_items(worse + gain, worse, power):,} problems show a gain from "
        said += f"{before:.1%} to {before + gain:.1%}"
    else:
        least = statistics.paired_gain(items, worse, power)
        said = f"a gain of {100 * least:.1f} points" if least else "no gain"
        said = f"{items:,} problems show {said}"
    print(f"{said} with a power of {power:.0%},")
    print(f"if the same problems are answered before and after, and {worse:.1%} get worse.")
    return 0
