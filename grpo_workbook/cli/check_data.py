"""check-data: what a data set is, and what in it would hurt training."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grpo_workbook.answers import parse_number
from grpo_workbook.config import RunConfig
from grpo_workbook.data import (
    KINDS,
    SYSTEM_PROMPT,
    load_problems,
    load_tokenizer,
    needs_folding,
    prompt_lengths,
    to_dataset,
)
from grpo_workbook.errors import WorkbookError, shorten, wrap
from grpo_workbook.files import check_writable, readable, whole_file, write_json
from grpo_workbook.leakage import near_duplicates, same_questions, template

REPEATED = 0.05  # more repeated questions than that hurt
TOO_LONG = 0.20  # more prompts over the budget than that hurt
FEWEST = 64  # rows: fewer are learned by heart
SHOWN = 5  # examples of each finding
PERCENTILES = (0, 5, 25, 50, 75, 95, 99, 100)
WIDTH = 80
EPILOG = """examples:
  python -m grpo_workbook check-data my.jsonl
  python -m grpo_workbook check-data my.csv --question-column frage \\
      --answer-column antwort
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl
  python -m grpo_workbook check-data my.jsonl --skip-invalid --output good.jsonl
  python -m grpo_workbook check-data openai/gsm8k:main

exit status: 0 well, 2 bad input, 1 something would hurt training: invalid rows
(without --skip-invalid), leaks between training and held-out, one question with
two answers, over 5 % of the questions repeated, over 20 % of the prompts over
the budget, held-out prompts over it, fewer than 64 rows, answers that are texts
(without --answers text)
"""


def add_parser(commands) -> None:
    """Add check-data to the command line."""
    parser = commands.add_parser(
        "check-data",
        help="report on a data set: what is in it, what would hurt training",
        description="Report on a data set: invalid rows, duplicates, leaks, lengths.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", help=".jsonl, .csv, .parquet or a hub id")
    parser.add_argument("--heldout-data", metavar="SOURCE", help="look for leaks between the two")
    parser.add_argument("--question-column", default="question", metavar="NAME")
    parser.add_argument("--answer-column", default="answer", metavar="NAME")
    parser.add_argument("--skip-invalid", action="store_true", help="leave invalid rows out")
    parser.add_argument("--answers", choices=KINDS, default="auto", help="what an answer is")
    parser.add_argument("--model", metavar="M", help="whose tokenizer and template")
    parser.add_argument("--profile", metavar="P", help="whose prompt budget")
    parser.add_argument("--max-prompt-length", type=int, metavar="N", help="the budget in tokens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report as JSON")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the valid rows that fit")


def main(args: argparse.Namespace) -> int:
    """Exit status 0, or 1 when something would hurt training; WorkbookError for bad input."""
    if args.output is not None and args.output.suffix not in (".jsonl", ".parquet"):
        raise WorkbookError(f"the output {args.output} must end in .jsonl or .parquet")
    written = {"--output": args.output, "--json": args.json}
    check_writable(written, {"the source": args.source, "--heldout-data": args.heldout_data})
    given = {"profile": args.profile, "model": args.model}
    run = RunConfig.from_env(max_prompt_length=args.max_prompt_length, **given)
    columns = {"question_column": args.question_column, "answer_column": args.answer_column}
    parts = []
    for source in filter(None, (args.source, args.heldout_data)):
        invalid: dict[int, str] = {}
        rows = load_problems(source, answers=args.answers, invalid=invalid, **columns)
        parts.append((Path(source).name, rows, invalid))
    tokenizer = load_tokenizer(run.model)
    report, lengths = examine(parts, tokenizer, run.max_prompt_length, args.skip_invalid)
    if args.answers != "text" and report["answers"] == "text":
        report["hurts"].append(
            "answers are texts, and the default rewards of `run` need numbers: if texts are meant, "
            "say --answers text here and --rewards symbolic (or your own) there"
        )
    print(as_text(report))
    if args.json is not None:
        write_json(args.json, report | {"well": not report["hurts"]})
        print(f"\n{readable(args.json)}: the report")
    if args.output is not None:
        kept = [row for row, tokens in enumerate(lengths) if tokens <= run.max_prompt_length]
        if not kept:
            raise WorkbookError(f"no prompt has at most {run.max_prompt_length} tokens to write")
        rows = parts[0][1].select(kept).remove_columns("answer").rename_column("solution", "answer")
        with whole_file(args.output) as new:
            if args.output.suffix == ".parquet":
                rows.to_parquet(new)
            else:
                rows.to_json(new, force_ascii=False, date_format="iso")
        print(f"\n{readable(args.output)}: {len(kept):,} rows")
    return 1 if report["hurts"] else 0


def examine(parts: list[tuple], tokenizer, budget: int, skip_invalid: bool) -> tuple[dict, list]:
    """(the report, the prompts' lengths in tokens); `parts` are (name, rows, invalid rows) each."""
    import numpy as np

    name, rows, invalid = parts[0]
    questions, answers = rows["question"][:], rows["answer"][:]
    same, near = same_questions(questions), near_duplicates(questions)
    opposed = {a: b for a, b in same.items() if answers[a] != answers[b]}
    lengths = _lengths(rows, tokenizer)
    too_long = sum(n > budget for n in lengths)
    spread = np.percentile(lengths, PERCENTILES, method="inverted_cdf").astype(int).tolist()
    text, count = Counter(answers).most_common(1)[0]
    report = {
        "name": name,
        "rows": len(rows) + len(invalid),
        "invalid": [f"row {row}: {why}" for row, why in invalid.items()],
        "columns": rows.column_names,
        "answers": "number" if all(parse_number(a) is not None for a in answers) else "text",
        "same_question": _pairs(same, parts[:1]),
        "other_answer": _pairs(opposed, parts[:1]),
        "near": _pairs(near, parts[:1]),
        "templates": len({hash(template(question)) for question in questions}),
        "different_answers": len(set(answers)),
        "commonest_answer": {"answer": text, "rate": count / len(rows)},
        "budget": budget,
        "too_long": too_long,
        "percentiles": dict(zip(PERCENTILES, spread, strict=True)),
    }
    findings = {
        f"{len(invalid):,} rows are invalid: fix or --skip-invalid": invalid and not skip_invalid,
        f"{len(opposed):,} questions have a second answer": opposed,
        f"{len(same):,} rows repeat a question: drop them": len(same) > REPEATED * len(rows),
        f"{too_long:,} of {len(rows):,} prompts are longer than {budget} tokens and would be "
        "dropped": too_long > TOO_LONG * len(rows),
        f"{len(rows)} rows are few: a model learns them by heart": len(rows) < FEWEST,
    }
    for name, held, held_invalid in parts[1:]:
        asked = held["question"][:]
        also, nearly = same_questions(asked, questions), near_duplicates(asked, questions)
        dropped = sum(n > budget for n in _lengths(held, tokenizer))
        report["heldout"] = {
            "name": name,
            "rows": len(held),
            "invalid": [f"row {row}: {why}" for row, why in held_invalid.items()],
            "also_in_training": _pairs(also, parts[::-1]),
            "nearly_in_training": _pairs(nearly, parts[::-1]),
        }
        findings |= {
            f"{len(also):,} held-out questions are also training questions and {len(nearly):,} "
            "nearly so: the held-out score would flatter": also or nearly,
            f"{dropped:,} held-out prompts are longer than {budget} tokens": dropped,
        }
    return report | {"hurts": [text for text, found in findings.items() if found]}, lengths


def _lengths(rows, tokenizer) -> list[int]:
    return prompt_lengths(to_dataset(rows, SYSTEM_PROMPT, fold=needs_folding(tokenizer)), tokenizer)


def _pairs(found: dict[int, int], parts: list[tuple]) -> list[str]:
    """Each pair with its files: the first row is of parts[0], the second of parts[-1]."""

    def places(part: tuple) -> list[int]:
        _, rows, invalid = part
        return [n for n in range(1, len(rows) + len(invalid) + 1) if n not in invalid]

    mine, theirs = places(parts[0]), places(parts[-1])
    return [
        f"{parts[0][0]}, row {mine[a]} ~ {parts[-1][0]}, row {theirs[b]}" for a, b in found.items()
    ]


def as_text(report: dict) -> str:
    """The report in lines of at most 80 columns."""
    lines: list[str] = []

    def say(label: str, value: str, examples: Sequence[str] = ()) -> None:
        lines.extend(wrap(f"{label:<13} {value}", WIDTH, 14))
        lines.extend("  - " + shorten(text, WIDTH - 4) for text in examples[:SHOWN])

    invalid, common = report["invalid"], report["commonest_answer"]
    say("source", report["name"])
    say("rows", f"{report['rows']:,} ({len(invalid):,} of them invalid)", invalid)
    say("columns", ", ".join(report["columns"]))
    same, near, other = (report[name] for name in ("same_question", "near", "other_answer"))
    say(
        "same",
        f"{len(same):,} rows repeat an earlier one, {len(other):,} with another answer",
        same,
    )
    say("near", f"{len(near):,} rows nearly repeat an earlier one", near)
    if held := report.get("heldout"):
        also, nearly = held["also_in_training"], held["nearly_in_training"]
        found = f"{len(also):,} also in training, {len(nearly):,} nearly"
        say("held-out", f"{held['name']}, {held['rows']:,} rows: {found}", [*also, *nearly])
    say("templates", f"{report['templates']:,}: questions that differ in more than their numbers")
    different = f"{report['different_answers']:,} different {report['answers']}s"
    say("answers", f"{different}; the commonest is {common['answer']:.40} ({common['rate']:.1%})")
    say("tokens", ", ".join(f"p{p} {n:,}" for p, n in report["percentiles"].items()))
    say("budget", f"{report['budget']:,} tokens; {report['too_long']:,} prompts are longer")
    lines.append("")
    for finding in report["hurts"]:
        lines.extend(wrap(f"HURTS: {finding}", WIDTH, 2))
    return "\n".join(lines if report["hurts"] else [*lines, "Nothing here would hurt training."])
