"""python -m grpo_workbook evaluate and power: the options, the summary on the terminal."""

import argparse
import textwrap
from pathlib import Path

from grpo_workbook.cli.data_report import add_reading_options, reading_options
from grpo_workbook.config import RunConfig
from grpo_workbook.data import SYSTEM_PROMPT
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation_report import NAMES, build_report, write
from grpo_workbook.evaluation_run import Plan, answer_all, read_evaluation
from grpo_workbook.files import alone, readable
from grpo_workbook.generation import temperature_for

WIDTH = 80
EXAMPLES = """examples:
  python -m grpo_workbook evaluate qwen --data test.jsonl --output outputs/base
  python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter \\
      --data test.jsonl --output outputs/after --baseline outputs/base
  python -m grpo_workbook evaluate outputs/run/merged --data test.jsonl \\
      --samples 8 --k 1,2,4,8 --output outputs/samples
  python -m grpo_workbook evaluate Qwen/Qwen3-0.6B --items 200 \\
      --data openai/gsm8k:main:test --max-new-tokens 512 --output outputs/gsm8k

A run that was killed goes on when the same command is given again.
exit status: 0 well, 2 bad input, 130 interrupted
"""
POWER_EXAMPLES = """examples:
  python -m grpo_workbook power --before 0.6 --gain 0.05
  python -m grpo_workbook power --before 0.6 --items 480
"""


def add_parsers(commands) -> None:
    """Add evaluate and power to the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser(
        "evaluate",
        help="measure any model on held-out problems, compare it with a baseline",
        usage="%(prog)s MODEL --data SOURCE [options]",
        description="Measure a model: accuracy with intervals, pass@k, majority vote, by\n"
        "difficulty and length, and a paired comparison with a baseline.",
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    parser.add_argument(
        "model", metavar="MODEL", help="a family (qwen, gemma), a folder or a hub id"
    )
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--data", metavar="SOURCE", required=True, help=".jsonl, .csv, .parquet, a hub id"
    )
    what.add_argument(
        "--also", metavar="SOURCE", help="problems of another skill: was it forgotten?"
    )
    what.add_argument("--adapter", metavar="DIR", help="a LoRA adapter on top of MODEL")
    what.add_argument(
        "--any-base", action="store_true", help="measure an adapter on another base than its own"
    )
    what.add_argument("--items", type=int, metavar="N", help="only the first N problems")
    add_reading_options(what)
    how = parser.add_argument_group("how")
    how.add_argument(
        "--samples",
        type=int,
        default=1,
        metavar="N",
        help="completions for each problem (default 1)",
    )
    how.add_argument(
        "--temperature", type=float, metavar="X", help="default 0 for one sample, else 1"
    )
    how.add_argument("--top-p", type=float, default=1.0, metavar="X", help="default 1")
    how.add_argument("--k", metavar="LIST", help="k of pass@k and maj@k, such as 1,4,8")
    how.add_argument("--seed", type=int, metavar="N", help="default 0")
    how.add_argument("--max-new-tokens", type=int, metavar="N", help="default: the profile's")
    how.add_argument("--batch-size", type=int, metavar="N", help="default: the profile's")
    how.add_argument("--profile", metavar="P", help="default: what fits the device")
    how.add_argument(
        "--load-in-4bit", action="store_true", help="as it was trained; default 16-bit or 32-bit"
    )
    how.add_argument("--system-prompt", metavar="TEXT", help="default: the course's; '' for none")
    where = parser.add_argument_group("where")
    where.add_argument(
        "--output",
        type=Path,
        default=Path("outputs/evaluation"),
        metavar="DIR",
        help="default outputs/evaluation",
    )
    where.add_argument(
        "--baseline", metavar="REPORT", help="an evaluation to compare with: folder or report.json"
    )
    where.add_argument(
        "--overwrite", action="store_true", help="replace the evaluation that is there"
    )

    parser = commands.add_parser(
        "power",
        help="how many problems show a gain, and what gain so many show",
        usage="%(prog)s --before X (--gain X | --items N) [options]",
        description="Before the run: how many problems are needed, or what they can show.",
        epilog=POWER_EXAMPLES,
        formatter_class=raw,
    )
    parser.add_argument(
        "--before", type=float, required=True, metavar="X", help="the baseline's share, 0 to 1"
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument(
        "--gain", type=float, metavar="X", help="what you want to see, such as 0.05"
    )
    choice.add_argument("--items", type=int, metavar="N", help="the problems that you have")
    parser.add_argument(
        "--worse",
        type=float,
        metavar="X",
        help="share that gets worse (default: a tenth of before)",
    )
    parser.add_argument(
        "--power", type=float, default=0.8, metavar="X", help="chance to find it (default 0.8)"
    )


def main(args: argparse.Namespace) -> int:
    """Evaluate, report, print a summary; the exit status. Raises WorkbookError for bad input."""
    run = RunConfig.from_env(profile=args.profile, model="qwen", seed=args.seed)
    s = run
    plan = Plan(
        model=args.model,
        data=args.data,
        output=args.output,
        adapter=args.adapter,
        also=args.also,
        items=args.items,
        samples=args.samples,
        temperature=temperature_for(args.samples, args.temperature),
        top_p=args.top_p,
        seed=run.seed,
        max_new_tokens=s.max_completion_length
        if args.max_new_tokens is None
        else args.max_new_tokens,
        batch_size=s.eval_batch if args.batch_size is None else args.batch_size,
        dtype=s.dtype,
        device=run.device,
        load_in_4bit=args.load_in_4bit,
        any_base=args.any_base,
        system_prompt=SYSTEM_PROMPT if args.system_prompt is None else args.system_prompt,
        reading={**reading_options(args), "seed": run.seed},
    )
    plan.check()
    ks = read_ks(args.k, args.samples)
    baseline = read_evaluation(args.baseline) if args.baseline else None
    if args.baseline and args.output.resolve() in (p := Path(args.baseline).resolve(), p.parent):
        raise WorkbookError(
            f"the baseline {args.baseline} is the --output itself: name another folder for one of them"
        )
    from grpo_workbook.notebook import quiet

    quiet()
    with alone(plan.output):
        found = answer_all(plan, overwrite=args.overwrite)
        report, changes = build_report(found, ks, baseline)
        write(plan.output, report, changes)
    print(summary(report, plan.output))
    return 0


def read_ks(text: str | None, samples: int) -> list[int]:
    """The k of pass@k, rising, from "1,4,8"; by default powers of two up to the number of samples, and that number.

    Raises WorkbookError for anything but whole numbers from 1 to `samples`.
    """
    if text is None:
        return sorted({2**i for i in range(samples.bit_length()) if 2**i <= samples} | {samples})
    try:
        ks = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise WorkbookError(
            f"--k is {text!r}: give whole numbers with commas between them, such as 1,4,8"
        ) from None
    if not 1 <= ks[0] <= ks[-1] <= samples:
        raise WorkbookError(
            f"--k is {text!r} and there are {samples} samples: each k must lie from 1 to --samples"
        )
    return ks


def summary(report: dict, folder: Path) -> str:
    """What the terminal shows, at most 80 columns wide."""
    lines = [""]
    for name, numbers in report["sets"].items():
        before = (report.get("baseline") or {}).get("sets", {}).get(name)
        title = f"{numbers['n']:,} {'held-out problems' if name == 'main' else 'problems of another skill'}"
        title += f", {numbers['samples']} samples each" if numbers["samples"] > 1 else ""
        lines += [f"{title:<40} {'share':>8}   95 % interval" + ("   baseline" if before else "")]
        for measure, word in NAMES.items():
            one = numbers[measure]
            row = f"  {word:<38} {one['share']:>8.1%}   {one['low']:.1%} to {one['high']:.1%}"
            lines.append(f"{row:<69} {before[measure]['share']:>7.1%}" if before else row)
        for which, word in (("pass_at_k", "pass"), ("majority_at_k", "maj")):
            if len(numbers[which]) > 1:
                row = ", ".join(
                    f"{word}@{k} {one['lenient']['share']:.1%}" for k, one in numbers[which].items()
                )
                lines += textwrap.wrap(
                    f"lenient {row}", WIDTH, initial_indent="  ", subsequent_indent="    "
                )
        lines.append(
            f"  {numbers['tokens']['mean']:g} tokens on average, {numbers['cut_off']:.1%} cut off; harness: "
            f"{numbers['harness']['flexible-extract']:.1%} flexible"
        )
    said = [*report.get("verdict", ()), *(f"note: {note}" for note in report["notes"])]
    for line in said:
        lines += textwrap.wrap(line, WIDTH, initial_indent="- ", subsequent_indent="  ")
    lines.append(f"In {readable(folder)}:")
    for name, what in (
        ("completions.jsonl", "every completion"),
        ("report.json", "every number"),
        ("report.md", "the same to read"),
        ("report.png", "the figure"),
        *((("changes.jsonl", "what got better and worse"),) if "baseline" in report else ()),
    ):
        lines.append(f"  {name:<20} {what}")
    return "\n".join(lines)


def show_power(args: argparse.Namespace) -> int:
    """Print what --before and --gain, or --items, come to; 0. Raises WorkbookError for shares that cannot be."""
    from grpo_workbook import power

    worse = args.before / 10 if args.worse is None else args.worse
    try:
        if args.gain is not None:
            if not 0 < args.gain <= 1 - args.before:
                raise ValueError(
                    f"--gain is {args.gain} and --before {args.before}: together they must be at most 1"
                )
            paired = power.paired_items(worse + args.gain, worse, args.power)
            unpaired = power.unpaired_items(args.before, args.before + args.gain, args.power)
            after = args.before + args.gain
            print(
                f"To see a gain from {args.before:.1%} to {after:.1%} with a chance of {args.power:.0%}:"
            )
            print(
                f"  the same problems before and after      {paired:>7,}  ({worse:.1%} of them getting worse)"
            )
            print(f"  different problems before and after     {unpaired:>7,}  each time")
            return 0
        if args.items < 1:
            raise ValueError(f"--items is {args.items}: it must be at least 1")
        found = (
            power.paired_gain(args.items, worse, args.power),
            power.unpaired_gain(args.items, args.before, args.power),
        )
    except ValueError as error:
        raise WorkbookError(str(error)) from None
    paired, unpaired = ("none" if gain is None else f"{gain:.1%}" for gain in found)
    print(f"The smallest gain that {args.items:,} problems show with a chance of {args.power:.0%}:")
    print(
        f"  the same problems before and after      {paired:>7}  ({worse:.1%} of them getting worse)"
    )
    print(f"  different problems before and after     {unpaired:>7}")
    return 0
