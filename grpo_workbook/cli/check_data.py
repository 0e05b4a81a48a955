"""check-data: what a data set is, and what in it would hurt training."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grpo_workbook import data
from grpo_workbook.answers import parse_number
from grpo_workbook.config import RunConfig
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
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl
  python -m grpo_workbook check-data my.jsonl --skip-invalid --output good.jsonl
  python -m grpo_workbook check-data openai/gsm8k:main

exit status: 0 well, 2 bad input, 1 something would hurt training: invalid rows,
leaks, second answers, over 5 % repeats, over 20 % of the prompts (or one that
is held out) over the budget, fewer than 64 rows, texts without --answers text
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
    parser.add_argument("--answers", choices=data.KINDS, default="auto", help="what an answer is")
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
    named = ("profile", "model", "max_prompt_length")
    run = RunConfig.from_env(**{name: getattr(args, name) for name in named})
    reading = {n: getattr(args, n) for n in ("question_column", "answer_column", "answers")}
    parts = []
    for source in filter(None, (args.source, args.heldout_data)):
        invalid: dict[int, str] = {}
        rows = data.load_problems(source, invalid=invalid, **reading)
        parts.append((Path(source).name, rows, invalid))
    tokenizer = data.load_tokenizer(run.model)
    report, lengths = examine(parts, tokenizer, run.max_prompt_length, args.skip_invalid)
    if args.answers != "text" and report["answers"] == "text":
        need = "the default rewards of `run` need numbers: if texts are meant, say --answers text"
        report["hurts"].append(f"answers are texts, and {need} here and --rewards symbolic there")
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

    _, rows, invalid = parts[0]
    questions, answers = rows["question"][:], rows["answer"][:]
    same, near = same_questions(questions), near_duplicates(questions)
    opposed = {a: b for a, b in same.items() if answers[a] != answers[b]}
    fold = data.needs_folding(tokenizer)
    every = [data.prompt_lengths(data.to_dataset(part[1], fold=fold), tokenizer) for part in parts]
    too_long = [sum(tokens > budget for tokens in lengths) for lengths in every]
    spread = np.percentile(every[0], PERCENTILES, method="inverted_cdf").astype(int).tolist()
    text, count = Counter(answers).most_common(1)[0]
    report = _counts(parts[0]) | {
        "columns": rows.column_names,
        "answers": "number" if all(parse_number(a) is not None for a in answers) else "text",
        "same_question": _pairs(same, parts[:1]),
        "other_answer": _pairs(opposed, parts[:1]),
        "near": _pairs(near, parts[:1]),
        "templates": len({hash(template(question)) for question in questions}),
        "different_answers": len(set(answers)),
        "commonest_answer": {"answer": text, "rate": count / len(rows)},
        "budget": budget,
        "too_long": too_long[0],
        "percentiles": dict(zip(PERCENTILES, spread, strict=True)),
    }
    findings = {
        f"{len(invalid):,} rows are invalid: fix or --skip-invalid": invalid and not skip_invalid,
        f"{len(opposed):,} questions have a second answer": opposed,
        f"{len(same):,} rows repeat a question: drop them": len(same) > REPEATED * len(rows),
        f"{too_long[0]:,} of {len(rows):,} prompts are longer than {budget} tokens and would be "
        "dropped": too_long[0] > TOO_LONG * len(rows),
        f"{len(rows)} rows are few: a model learns them by heart": len(rows) < FEWEST,
    }
    for part in parts[1:]:
        asked = part[1]["question"][:]
        also, nearly = same_questions(asked, questions), near_duplicates(asked, questions)
        report["heldout"] = _counts(part) | {
            "rows": len(part[1]),
            "also_in_training": _pairs(also, parts[::-1]),
            "nearly_in_training": _pairs(nearly, parts[::-1]),
        }
        findings |= {
            f"{len(also):,} held-out questions are also training questions and {len(nearly):,} "
            "nearly so: the held-out score would flatter": also or nearly,
            f"{too_long[1]:,} held-out prompts are longer than {budget} tokens": too_long[1],
        }
    return report | {"hurts": [text for text, found in findings.items() if found]}, every[0]


def _counts(part: tuple) -> dict:
    """A part's name, how many rows it has, and its invalid ones."""
    name, rows, invalid = part
    told = [f"row {row}: {why}" for row, why in invalid.items()]
    return {"name": name, "rows": len(rows) + len(invalid), "invalid": told}


def _pairs(found: dict[int, int], parts: list[tuple]) -> list[str]:
    """Each pair with its files: the first row is of parts[0], the second of parts[-1]."""
    mine, theirs = (
        [f"{name}, row {n}" for n in range(1, len(rows) + len(invalid) + 1) if n not in invalid]
        for name, rows, invalid in (parts[0], parts[-1])
    )
    return [f"{mine[a]} ~ {theirs[b]}" for a, b in found.items()]


def as_text(report: dict) -> str:
    """The report in lines of at most 80 columns."""
    lines: list[str] = []

    def say(label: str, value: str, examples: Sequence[str] = ()) -> None:
        lines.extend(wrap(f"{label:<13} {value}", WIDTH, 14))
        lines.extend("  - " + shorten(text, WIDTH - 4) for text in examples[:SHOWN])

    invalid, common = report["invalid"], report["commonest_answer"]
    same, near, other = (report[name] for name in ("same_question", "near", "other_answer"))
    say("source", report["name"])
    say("rows", f"{report['rows']:,} ({len(invalid):,} of them invalid)", invalid)
    say("columns", ", ".join(report["columns"]))
    say("same", f"{len(same):,} rows repeat one, {len(other):,} with another answer", same)
    say("near", f"{len(near):,} rows nearly repeat one", near)
    if held := report.get("heldout"):
        also, nearly = held["also_in_training"], held["nearly_in_training"]
        found = f"{len(also):,} also in training, {len(nearly):,} nearly"
        say("held-out", f"{held['name']}, {held['rows']:,} rows: {found}", [*also, *nearly])
    say("templates", f"{report['templates']:,}: questions that differ in more than their numbers")
    different = f"{report['different_answers']:,} different {report['answers']}s"
    say("answers", f"{different}; the commonest is {common['answer']:.40} ({common['rate']:.1%})")
    say("tokens", ", ".join(f"p{p} {n:,}" for p, n in report["percentiles"].items()))
    say("budget", f"{report['budget']:,} tokens; {report['too_long']:,} prompts are longer")
    hurts = [f"HURTS: {finding}" for finding in report["hurts"]]
    for text in ["", *(hurts or ["Nothing here would hurt training."])]:
        lines.extend(wrap(text, WIDTH, 2) or [""])
    return "\n".join(lines)
