"""Describe a data set, and report what would hurt training.

examples:
  python -m grpo_workbook check-data my.csv --answer-column solution
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl

Exit status 0: fine; 2: bad input; 1: something would hurt training: invalid
rows, leaks, second answers, over 5 % repeats, over 20 % of the prompts (or a
held-out one) over the budget, fewer than 64 rows, texts without --answers text.
"""

import argparse
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_workbook.cli import READING, option
from grpo_workbook.config import choose_profile
from grpo_workbook.data import check_problems, load_tokenizer, to_dataset
from grpo_workbook.data.duplicates import near_duplicates, same_questions, template
from grpo_workbook.data.prompts import needs_folding, prompt_lengths
from grpo_workbook.data.reading import ANSWER_KINDS, find_file
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.files import readable, write_json
from grpo_workbook.rewards.answers import parse_number

MOST_REPEATED = 0.05  # largest share of repeated questions
MOST_TOO_LONG = 0.20  # largest share of prompts over the budget
FEWEST_ROWS = 64  # a model memorizes fewer
PERCENTILES = (0, 5, 25, 50, 75, 95, 99, 100)
EXAMPLES_SHOWN = 5
OPTIONS = [
    option("source", help=".jsonl, .csv, .parquet or a hub id"),
    option("--heldout-data", metavar="SOURCE", help="look for leaks between the two"),
    *READING,
    option("--answers", choices=ANSWER_KINDS, default="auto", help="what an answer is"),
    option("--model", metavar="M", help="use its tokenizer and chat template"),
    option("--profile", metavar="P", help="use its prompt budget"),
    option("--max-prompt-length", type=int, metavar="N", help="the budget in tokens"),
    option("--json", type=Path, metavar="FILE", help="the report as JSON"),
]


@dataclass(frozen=True)
class Problems:
    """The valid problems of a source, one entry per problem, and what is wrong with the rest."""

    name: str
    columns: list[str]
    questions: list[str]
    answers: list[str]
    lengths: list[int]  # of the prompts, in tokens
    row_names: list[str]  # "train.jsonl, row 7"
    invalid: dict[int, str]  # row number -> reason
    too_long: int  # prompts over the budget

    def facts(self) -> dict[str, Any]:
        """What the report says of each source."""
        return {
            "source": self.name,
            "rows": len(self.questions) + len(self.invalid),
            "invalid": [f"row {number}: {reason}" for number, reason in self.invalid.items()],
            "too_long": self.too_long,
        }


def main(args: argparse.Namespace) -> int:
    """Exit status 0, or 1 when something would hurt training; WorkbookError for bad input."""
    refuse_to_overwrite(args.json, [args.source, args.heldout_data])
    report, harms = examine(args)
    for name, value in report.items():
        head = f"{name.replace('_', ' '):<28}"
        if isinstance(value, list):
            show(head, f"{len(value):,}")
            for example in value[:EXAMPLES_SHOWN]:
                show("  - ", example)
        elif isinstance(value, int):
            show(head, f"{value:,}")
        else:
            show(head, value)
    print("" if harms else "\nNothing here would hurt training.")
    for harm in harms:
        show("HURTS: ", harm)
    if args.json:
        write_json(args.json, {**report, "hurts": harms, "well": not harms})
        print(f"\n{readable(args.json)}: the report")
    return 1 if harms else 0


def show(head: str, text: str) -> None:
    """Print a text in lines of at most 80 columns."""
    for line in wrap(text, 80, head):
        print(line)


def refuse_to_overwrite(report: Path | None, sources: list[str | None]) -> None:
    """WorkbookError if the report would replace the data, also by another name of the same file."""
    for source in sources:
        if source is None:
            continue
        # Without a report, too: a missing file is an error before a tokenizer is loaded.
        path, file_format = find_file(source)
        if report is None:
            continue
        is_data = file_format is not None and report.exists() and report.samefile(path)
        if is_data or report.is_dir():
            raise WorkbookError(f"--json {report} is a folder, or the data: choose another file")


def examine(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The report on the data, and what of it would hurt training."""
    # The tokenizer and the budget of the run that would take this data on this machine.
    profile = choose_profile(
        args.profile, model=args.model, max_prompt_length=args.max_prompt_length
    )
    budget = profile.max_prompt_length
    tokenizer = load_tokenizer(profile.model)
    train = load(args.source, args, tokenizer, budget)
    report, harms = describe_training_data(train, args, budget)
    if args.heldout_data:
        heldout = load(args.heldout_data, args, tokenizer, budget)
        heldout_facts, heldout_harms = describe_heldout_data(heldout, train, args, budget)
        for name, value in heldout_facts.items():
            report[f"heldout_{name}"] = value
        harms = [*harms, *heldout_harms]
    return report, harms


def load(source: str, args: argparse.Namespace, tokenizer: Any, budget: int) -> Problems:
    """Read a source, and measure its prompts with the tokenizer."""
    rows, invalid = check_problems(
        source,
        question_column=args.question_column,
        answer_column=args.answer_column,
        answers=args.answers,
    )
    # Lengths count what a run sends: the course's instruction and the model's template.
    lengths = prompt_lengths(to_dataset(rows, fold=needs_folding(tokenizer)), tokenizer)
    name = Path(source).name
    row_names = []
    # Invalid rows have left the table, but they count in the file, where a user looks.
    for number in range(1, len(rows) + len(invalid) + 1):
        if number not in invalid:
            row_names.append(f"{name}, row {number}")
    return Problems(
        name=name,
        columns=rows.column_names,
        questions=rows["question"][:],
        answers=rows["answer"][:],
        lengths=lengths,
        row_names=row_names,
        invalid=invalid,
        too_long=sum(length > budget for length in lengths),
    )


def describe_training_data(
    train: Problems, args: argparse.Namespace, budget: int
) -> tuple[dict[str, Any], list[str]]:
    """The facts of the training data, and its harms."""
    same = same_questions(train.questions)
    near = near_duplicates(train.questions)
    # Where the same question has two answers, one of them is usually wrong.
    other_answer = {}
    for row, match in same.items():
        if train.answers[row] != train.answers[match]:
            other_answer[row] = match
    all_numbers = all(parse_number(answer) is not None for answer in train.answers)
    answer_counts = Counter(train.answers)
    commonest, times = answer_counts.most_common(1)[0]
    share = times / len(train.answers)

    report = {
        **train.facts(),
        "columns": ", ".join(train.columns),
        "answers": "number" if all_numbers else "text",
        "same_question": name_pairs(same, train, train),
        "other_answer": name_pairs(other_answer, train, train),
        "near": name_pairs(near, train, train),
        "templates": len({template(question) for question in train.questions}),
        "different_answers": len(answer_counts),
        "commonest_answer": f"{commonest:.40} ({share:.1%})",
        "budget": budget,
        "prompt_tokens": percentiles(train.lengths),
    }
    harms = harms_of_training(train, args, budget, repeated=len(same), disputed=len(other_answer))
    if not all_numbers and args.answers != "text":
        # With --answers text a user says that this is meant.
        need = "the default rewards of `run` need numbers"
        fix = "if you want texts, give --answers text here and --rewards symbolic there"
        harms.append(f"answers are texts, and {need}: {fix}")
    return report, harms


def harms_of_training(
    train: Problems, args: argparse.Namespace, budget: int, *, repeated: int, disputed: int
) -> list[str]:
    """What would hurt training, by numbers of rows."""
    count = len(train.questions)
    harms = []
    if train.invalid and not args.skip_invalid:
        harms.append(f"{len(train.invalid):,} rows are invalid: fix or --skip-invalid")
    if disputed > 0:
        harms.append(f"{disputed:,} questions have a second answer")
    if repeated > MOST_REPEATED * count:
        harms.append(f"{repeated:,} rows repeat a question: drop them")
    if train.too_long > MOST_TOO_LONG * count:
        over = f"{train.too_long:,} of {count:,} prompts are longer than {budget} tokens"
        harms.append(f"{over} and would be dropped")
    if count < FEWEST_ROWS:
        harms.append(f"{count} rows are too few: a model memorizes them")
    return harms


def describe_heldout_data(
    heldout: Problems, train: Problems, args: argparse.Namespace, budget: int
) -> tuple[dict[str, Any], list[str]]:
    """The facts of the held-out data, and its harms, above all the leaks from the training data."""
    same = same_questions(heldout.questions, train.questions)
    near = near_duplicates(heldout.questions, train.questions)
    facts = {
        **heldout.facts(),
        "also_in_training": name_pairs(same, heldout, train),
        "nearly_in_training": name_pairs(near, heldout, train),
    }
    harms = []
    if same or near:
        leaks = f"{len(same):,} held-out questions are also training questions"
        near_leaks = f"{len(near):,} near-duplicates"
        harms.append(f"{leaks} and {near_leaks}: the held-out score would be too high")
    if heldout.too_long:
        harms.append(f"{heldout.too_long:,} held-out prompts are longer than {budget} tokens")
    if heldout.invalid and not args.skip_invalid:
        harms.append(f"{len(heldout.invalid):,} held-out rows are invalid: fix or --skip-invalid")
    return facts, harms


def name_pairs(pairs: dict[int, int], rows: Problems, others: Problems) -> list[str]:
    """Each pair of problems by the names of their rows."""
    return [f"{rows.row_names[a]} ~ {others.row_names[b]}" for a, b in pairs.items()]


def percentiles(lengths: list[int]) -> str:
    """The lengths at PERCENTILES, such as "p0 31, p5 40, ..."."""
    ordered = sorted(lengths)
    parts = []
    for percent in PERCENTILES:
        # No interpolation: the rank below, so that it is the length of a prompt.
        length = ordered[(len(ordered) - 1) * percent // 100]
        parts.append(f"p{percent} {length}")
    return ", ".join(parts)
