"""python -m grpo_workbook check-data: the report on the terminal, the report as JSON, the cleaned rows as a file."""

import argparse
import datetime
import json
from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, shorten, wrap
from grpo_workbook.files import check_writable, readable, whole_file, write_json
from grpo_workbook.lengths import histogram
from grpo_workbook.problems import KINDS, Loaded, load
from grpo_workbook.validation import Report, validate

WIDTH = 80
EXAMPLES = """examples:
  python -m grpo_workbook check-data my.jsonl
  python -m grpo_workbook check-data my.csv --question-column frage \\
      --answer-column antwort
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl
  python -m grpo_workbook check-data my.jsonl --skip-invalid --output good.jsonl
  python -m grpo_workbook check-data openai/gsm8k:main
  python -m grpo_workbook check-data reasoning-gym:chain_sum,size=500

exit status:
  0  well
  1  something would hurt training: invalid rows (without --skip-invalid), leaks
     between training and held-out, one question with two answers, over 5 % of
     the questions repeated, over 20 % of the prompts over the budget, held-out
     prompts over it, fewer than 64 rows, answers that are texts (without
     --answers text)
  2  bad input
"""


def add_reading_options(group) -> None:
    """The options that say how a source is read; `run` has them too."""
    group.add_argument(
        "--question-column", default="question", metavar="NAME", help="default question"
    )
    group.add_argument("--answer-column", default="answer", metavar="NAME", help="default answer")
    group.add_argument(
        "--skip-invalid", action="store_true", help="leave out invalid rows instead of stopping"
    )


def reading_options(args: argparse.Namespace) -> dict:
    """What `add_reading_options` was given, as problems.load takes it."""
    return {
        name: getattr(args, name) for name in ("question_column", "answer_column", "skip_invalid")
    }


def add_parser(commands) -> None:
    """Add check-data to the command line."""
    parser = commands.add_parser(
        "check-data",
        help="report on a data set: what is in it, what would hurt training",
        usage="%(prog)s SOURCE [options]",
        description="Report on a data set: invalid rows, duplicates, leaks, lengths, diversity.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "source", metavar="SOURCE", help=".jsonl, .csv, .parquet, a hub id, reasoning-gym:TASK"
    )
    what = parser.add_argument_group("what is read")
    what.add_argument("--heldout-data", metavar="SOURCE", help="look for leaks between the two")
    add_reading_options(what)
    what.add_argument(
        "--answers", choices=KINDS, default="auto", help="what an answer is (default auto)"
    )
    how = parser.add_argument_group("how it is measured")
    how.add_argument(
        "--model", metavar="M", help="whose tokenizer and template (default: the run's)"
    )
    how.add_argument(
        "--profile", metavar="P", help="whose prompt budget (default: what fits the device)"
    )
    how.add_argument(
        "--max-prompt-length", type=int, metavar="N", help="the budget (default: the profile's)"
    )
    where = parser.add_argument_group("what is written")
    where.add_argument("--json", type=Path, metavar="FILE", help="the report as JSON")
    where.add_argument(
        "--output", type=Path, metavar="FILE", help="the valid rows that fit (.jsonl or .parquet)"
    )


def main(args: argparse.Namespace) -> int:
    """Exit status: 0 well, 1 when something would hurt training. Raises WorkbookError for bad input."""
    if args.output is not None and args.output.suffix not in (".jsonl", ".parquet"):
        raise WorkbookError(
            f"the output {args.output} is of an unknown kind: name it .jsonl or .parquet"
        )
    written = {"--output": args.output, "--json": args.json}
    check_writable(written, {"the source": args.source, "--heldout-data": args.heldout_data})
    run = RunConfig.from_env(
        profile=args.profile, model=args.model, max_prompt_length=args.max_prompt_length
    )
    reading = {
        "question_column": args.question_column,
        "answer_column": args.answer_column,
        "skip_invalid": True,  # the report counts them
        "seed": run.seed,
        "progress": True,
    }
    loaded = load(args.source, answers=args.answers, **reading)
    heldout = load(args.heldout_data, answers=loaded.kind, **reading) if args.heldout_data else None
    budget = run.max_prompt_length
    report = validate(
        loaded,
        heldout,
        tokenizer=load_tokenizer(run.model),
        max_prompt_length=budget,
        skip_invalid=args.skip_invalid,
    )
    print(as_text(report))
    if args.json is not None:
        write_json(args.json, report.to_dict())
        print(f"\n{readable(args.json)}: the report")
    if args.output is not None:
        rows = write_rows(loaded, report, budget, args.output)
        print(f"\n{readable(args.output)}: {rows:,} rows")
    return 1 if report.hurts else 0


def write_rows(loaded: Loaded, report: Report, budget: int, path: Path) -> int:
    """Write the valid rows whose prompt fits, in their order and with their answers as they came; how many.

    `budget` is in tokens. All or nothing: a kill leaves no half-written file. Raises WorkbookError when no row is left,
    a row cannot be JSON, or the file cannot be written.
    """
    kept = [row for row, tokens in enumerate(report.token_counts) if tokens <= budget]
    if not kept:
        raise WorkbookError(
            f"no prompt has at most {budget} tokens: raise --max-prompt-length; {path} is not written"
        )
    rows = loaded.dataset.select(kept).remove_columns("answer").rename_column("solution", "answer")
    with whole_file(path) as new:
        if path.suffix == ".parquet":
            rows.to_parquet(new)
        else:
            _write_jsonl(rows, new)
    return len(kept)


def _write_jsonl(rows, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for batch in rows.iter(1000):
            for values in zip(*batch.values(), strict=True):
                row = dict(zip(batch, values, strict=True))
                try:
                    file.write(
                        json.dumps(row, ensure_ascii=False, default=_dated, allow_nan=False) + "\n"
                    )
                except (TypeError, ValueError) as error:
                    raise WorkbookError(
                        f"a row cannot be JSON ({error}): name the output .parquet"
                    ) from None


def _dated(value: object) -> str:
    """Dates and times as text. Bytes, Decimals and the like would come back as something else."""
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise TypeError(f"it holds {type(value).__name__} {value!r:.40}")


def as_text(report: Report) -> str:
    """The report in lines of at most 80 columns."""
    lines: list[str] = []

    def say(label: str, value: str) -> None:
        lines.extend(wrap(f"{label:<13} {value}", WIDTH, 14) or [label])

    def examples(texts: list[str]) -> None:
        lines.extend("  - " + shorten(text, WIDTH - 4) for text in texts)

    invalid, twice, d = sum(report.invalid.values()), report.duplicates, report.diversity
    say("source", report.name)
    say("rows", f"{report.rows:,} ({report.rows - invalid:,} valid, {invalid:,} invalid)")
    say("columns", ", ".join(report.columns))
    say("answer kind", f"{report.answers} ({report.answers_reason})")
    for kind, count in report.invalid.items():
        say("invalid", f"{count:,} x {kind}")
    examples(report.invalid_examples)
    say(
        "duplicates",
        f"{twice['same_question']:,} repeat an earlier question, {twice['same_question_other_answer']:,} questions "
        f"have several answers, {twice['near']:,} pairs are nearly the same",
    )
    examples(twice["examples"])
    if held := report.heldout:
        say(
            "held-out",
            f"{held['name']}, {held['rows']:,} rows ({held['invalid']:,} invalid): {held['also_in_training']:,} also "
            f"in training, {held['nearly_in_training']:,} nearly",
        )
        examples(held["examples"])
    say(
        "diversity",
        f"{d['distinct_1']:.1%} of the words are different ones, {d['distinct_3']:.1%} of the word triples; "
        f"{d['templates']:,} templates in {d['rows']:,} rows",
    )
    say("openings", ", ".join(f"{text} ({share:.1%})" for text, share in d["openings"]))
    answer, share = d["commonest_answer"]
    say("answers", f"{d['distinct_answers']:,} different; the commonest is {answer} ({share:.1%})")
    if report.lengths:
        _say_lengths(report, say, lines)
    lines.append("")
    for note in report.notes:
        lines.extend(wrap(f"note: {note}", WIDTH, 2))
    for finding in report.hurts:
        lines.extend(wrap(f"HURTS: {finding}", WIDTH, 2))
    if not report.hurts:
        lines.append("Nothing here would hurt training.")
    return "\n".join(lines)


def _say_lengths(report: Report, say, lines: list[str]) -> None:
    lengths = report.lengths
    names = {0: "min", 50: "median", 100: "max"}
    say(
        "tokens",
        ", ".join(f"{names.get(p, f'p{p}')} {n:,}" for p, n in lengths["percentiles"].items()),
    )
    bins = histogram(report.token_counts)
    most, budget = max(n for *_, n in bins), lengths.get("budget")
    for low, high, count in bins:
        bar = "#" * -(-count * 40 // most)
        over = "  over the budget" if budget is not None and low > budget else ""
        span = f"{low:,} to {high - 1:,}" if high - low > 1 else f"{low:,}"
        lines.append(f"{span:>17} {count:>9,} {bar}{over}"[:WIDTH])
    if budget is not None:
        say(
            "budget",
            f"{budget:,} tokens: {lengths['kept']:,} prompts fit, {lengths['dropped']:,} would be dropped",
        )
