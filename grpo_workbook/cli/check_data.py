"""Describe a data set, and report what would hurt training.

examples:
  python -m grpo_workbook check-data my.csv --answer-column solution
  python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl

Exit status 0: fine; 2: bad input; 1: something would hurt training: invalid
rows, leaks, second answers, over 5 % repeats, over 20 % of the prompts (or a
held-out one) over the budget, fewer than 64 rows, texts without --answers text,
a column of tools, which a run does not have, pictures where TRL does not look.
"""

import argparse
import statistics
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.cli import READING, option
from grpo_workbook.cli.rewards import try_references
from grpo_workbook.config import choose_profile
from grpo_workbook.data import check_problems, load_tokenizer, to_dataset
from grpo_workbook.data.chats import NO_TOOLS
from grpo_workbook.data.duplicates import near_duplicates, questions_of, same_questions
from grpo_workbook.data.prompts import needs_folding, prompt_lengths
from grpo_workbook.data.reading import ANSWER_KINDS, find_columns, find_file, read_rows
from grpo_workbook.errors import WorkbookError, wrap
from grpo_workbook.files import readable, write_json
from grpo_workbook.pictures import (
    IMAGE_COLUMNS,
    columns_of_pictures,
    image_column,
    unreadable_pictures,
)
from grpo_workbook.rewards.answers import parse_number
from grpo_workbook.rewards.symbolic import Outcome

if TYPE_CHECKING:
    from datasets import Dataset

MOST_REPEATED = 0.05  # largest share of repeated questions
MOST_TOO_LONG = 0.20  # largest share of prompts over the budget
FEWEST_ROWS = 64  # a fifth of fewer rows, held out, cannot measure a gain
EXAMPLES_SHOWN = 5
OPTIONS = [
    option("source", help=".jsonl, .csv, .parquet or a hub id"),
    option("--heldout-data", metavar="SOURCE", help="look for leaks between the two"),
    *READING,
    option("--answers", choices=ANSWER_KINDS, default="auto", help="what an answer is"),
    option("--model", metavar="M", help="use its tokenizer and chat template"),
    option("--max-prompt-length", type=int, metavar="N", help="the budget in tokens"),
    option("--json", type=Path, metavar="FILE", help="the report as JSON"),
]


@dataclass(frozen=True)
class Problems:
    """The valid problems of a source, one entry per problem, and the invalid rows."""

    name: str
    questions_from: str  # the column of the questions
    answers_from: str
    has_tools: bool  # whether there is a column `tools`
    pictures_in: list[str]  # the columns of pictures, under any name
    questions: list[str]
    answers: list[str]
    lengths: list[int]  # of the prompts, in tokens
    row_names: list[str]  # "train.jsonl, row 7"
    invalid: dict[int, str]  # row number -> reason


def main(args: argparse.Namespace) -> int:
    """Exit status 0, or 1 when something would hurt training; WorkbookError for bad input."""
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
        write_json(args.json, {**report, "hurts": harms})
        print(f"\n{readable(args.json)}: the report")
    return 1 if harms else 0


def show(head: str, text: str) -> None:
    """Print a text in lines of at most 80 columns."""
    print(*wrap(text, 80, head), sep="\n")


def examine(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """The report on the data, and what of it would hurt training."""
    for source in (args.source, args.heldout_data):
        if source is not None:
            find_file(source)  # before a tokenizer is loaded
    # The tokenizer and the budget of the run that would take this data on this machine.
    profile = choose_profile(model=args.model, max_prompt_length=args.max_prompt_length)
    budget = profile.max_prompt_length
    tokenizer = load_tokenizer(profile.model)
    train = load(args.source, args, tokenizer)
    report = describe_training_data(train, budget)
    harms = harms_of_training(report, args)
    if train.has_tools:
        harms.append(f"the column 'tools' would go to the rewards only: {NO_TOOLS}")
    harms.extend(harms_of_pictures(train))
    if args.heldout_data:
        heldout = load(args.heldout_data, args, tokenizer)
        heldout_report = describe_heldout_data(heldout, train, budget)
        harms.extend(harms_of_heldout(heldout_report, args))
        for name, value in heldout_report.items():
            report[f"heldout_{name}"] = value
    return report, harms


def load(source: str, args: argparse.Namespace, tokenizer: Any) -> Problems:
    """Read a source, and measure its prompts with the tokenizer."""
    name = Path(source).name
    table = read_rows(source)
    rows, invalid = check_problems(
        table,
        question_column=args.question_column,
        answer_column=args.answer_column,
        answers=args.answers,
        name=name,
        pictures=True,
    )
    rows, invalid = leave_out_unreadable(rows, invalid, name)
    questions_from, answers_from = find_columns(
        table, args.question_column, args.answer_column, name
    )
    # Lengths count what a run sends: the course's instruction and the model's template.
    texts = rows.remove_columns(columns_of_pictures(rows))
    lengths = prompt_lengths(to_dataset(texts, fold=needs_folding(tokenizer)), tokenizer)
    numbers = numbers_of_valid(len(rows), invalid)
    return Problems(
        name=name,
        questions_from=questions_from,
        answers_from=answers_from or "the last turn of each chat",
        has_tools="tools" in rows.column_names,
        pictures_in=columns_of_pictures(rows),
        questions=questions_of(rows),
        answers=rows["answer"][:],
        lengths=lengths,
        row_names=[f"{name}, row {number}" for number in numbers],
        invalid=invalid,
    )


def leave_out_unreadable(
    rows: "Dataset", invalid: dict[int, str], name: str
) -> tuple["Dataset", dict[int, str]]:
    """The rows, and the reasons for invalid ones, to which those without a picture are added.

    Raises WorkbookError if no row is left.
    """
    if image_column(rows) is None:
        return rows, invalid
    unreadable = unreadable_pictures(rows)
    if len(unreadable) == len(rows):
        raise WorkbookError(f"{name} has no row with a picture: {unreadable[1]}")
    invalid = dict(invalid)
    kept = []
    for row, number in enumerate(numbers_of_valid(len(rows), invalid)):
        if row + 1 in unreadable:
            invalid[number] = unreadable[row + 1]
        else:
            kept.append(row)
    return rows.select(kept), dict(sorted(invalid.items()))


def numbers_of_valid(count: int, invalid: dict[int, str]) -> list[int]:
    """The numbers in the file of so many valid rows.

    Invalid rows have left the table, but they count in the file, where a user looks.
    """
    numbers = range(1, count + len(invalid) + 1)
    return [number for number in numbers if number not in invalid]


def describe(problems: Problems, budget: int) -> dict[str, Any]:
    """What the report says of each source."""
    too_long = [length for length in problems.lengths if length > budget]
    pictures = {}
    if problems.pictures_in:
        columns = ", ".join(problems.pictures_in)
        note = "for TRL's trainer (chapter 15): `run` refuses them; tokens not in the lengths"
        pictures = {"pictures_from": f"{columns} ({note})"}
    return {
        "source": problems.name,
        **pictures,
        "questions_from": problems.questions_from,
        "answers_from": problems.answers_from,
        "rows": len(problems.questions) + len(problems.invalid),
        "invalid": [f"row {number}: {reason}" for number, reason in problems.invalid.items()],
        "budget": budget,
        # The lower of two middle values, so that it is the length of a prompt.
        "median_prompt": statistics.median_low(problems.lengths),
        "longest_prompt": max(problems.lengths),
        "too_long": len(too_long),
    }


def describe_training_data(train: Problems, budget: int) -> dict[str, Any]:
    """The facts of the training data."""
    same = same_questions(train.questions)
    # Where the same question has two answers, one of them is usually wrong.
    other_answer = {}
    for row, match in same.items():
        if train.answers[row] != train.answers[match]:
            other_answer[row] = match
    all_numbers = all(parse_number(answer) is not None for answer in train.answers)
    not_comparable = {} if all_numbers else try_references(train.answers)
    commonest, times = Counter(train.answers).most_common(1)[0]
    return {
        **describe(train, budget),
        "answers": "number" if all_numbers else "text",
        "not_comparable": name_references(not_comparable, train),
        "commonest_answer": f"{commonest:.40} ({times / len(train.answers):.1%})",
        "same_question": name_pairs(same, train, train),
        "other_answer": name_pairs(other_answer, train, train),
        "near": name_pairs(near_duplicates(train.questions), train, train),
    }


def describe_heldout_data(heldout: Problems, train: Problems, budget: int) -> dict[str, Any]:
    """The facts of the held-out data, above all the leaks from the training data."""
    same = same_questions(heldout.questions, train.questions)
    near = near_duplicates(heldout.questions, train.questions)
    return {
        **describe(heldout, budget),
        "not_comparable": name_references(try_references(heldout.answers), heldout),
        "also_in_training": name_pairs(same, heldout, train),
        "nearly_in_training": name_pairs(near, heldout, train),
    }


def harms_of_training(report: dict[str, Any], args: argparse.Namespace) -> list[str]:
    """What of the training data would hurt."""
    invalid = len(report["invalid"])
    # Shares are of the valid rows, because a run never sees the others.
    count = report["rows"] - invalid
    repeated = len(report["same_question"])
    disputed = len(report["other_answer"])
    too_long = report["too_long"]
    harms = []
    if invalid and not args.skip_invalid:
        harms.append(f"{invalid:,} rows are invalid: fix or --skip-invalid")
    if disputed:
        harms.append(f"{disputed:,} questions have a second answer")
    if repeated > MOST_REPEATED * count:
        harms.append(f"{repeated:,} rows repeat a question: drop them")
    if too_long > MOST_TOO_LONG * count:
        over = f"{too_long:,} of {count:,} prompts are longer than {report['budget']} tokens"
        harms.append(f"{over} and would be dropped")
    if count < FEWEST_ROWS:
        harms.append(f"{count} rows are too few: a fifth of them, held out, measures no gain")
    if report["not_comparable"]:
        count = len(report["not_comparable"])
        harms.append(f"the symbolic reward cannot compare {count:,} of the answers as mathematics")
    # With --answers text a user says that this is meant.
    if report["answers"] == "text" and args.answers != "text":
        need = "the default rewards of `run` need numbers"
        fix = "if you want texts, give --answers text here and --rewards symbolic there"
        harms.append(f"answers are texts, and {need}: {fix}")
    return harms


def harms_of_pictures(problems: Problems) -> list[str]:
    """What would let a model train without its pictures."""
    columns = problems.pictures_in
    # With pictures in the right place, those in another column may be meant for a reward.
    if not columns or not set(columns).isdisjoint(IMAGE_COLUMNS):
        return []
    return [
        f"the pictures are in the column {columns[0]!r}, where TRL does not look, so that a model "
        "would train without them: call it 'image', or 'images' for lists of them"
    ]


def harms_of_heldout(report: dict[str, Any], args: argparse.Namespace) -> list[str]:
    """What of the held-out data would hurt the measurement."""
    same = len(report["also_in_training"])
    near = len(report["nearly_in_training"])
    too_long = report["too_long"]
    invalid = len(report["invalid"])
    harms = []
    if report["not_comparable"]:
        count = len(report["not_comparable"])
        harms.append(f"{count:,} held-out answers cannot be compared as mathematics")
    if same or near:
        leaks = f"{same:,} held-out questions are also training questions"
        harms.append(f"{leaks} and {near:,} near-duplicates: the held-out score would be too high")
    # A run drops long prompts, so that one of them already changes what is measured.
    if too_long:
        harms.append(f"{too_long:,} held-out prompts are longer than {report['budget']} tokens")
    if invalid and not args.skip_invalid:
        harms.append(f"{invalid:,} held-out rows are invalid: fix or --skip-invalid")
    return harms


def name_references(outcomes: dict[int, Outcome], problems: Problems) -> list[str]:
    """Each answer that cannot be compared, by the name of its row, with the reason."""
    lines = []
    for row, outcome in outcomes.items():
        lines.append(f"{problems.row_names[row]}: {problems.answers[row]!r:.60}, {outcome.reason}")
    return lines


def name_pairs(pairs: dict[int, int], rows: Problems, others: Problems) -> list[str]:
    """Each pair of problems by the names of their rows."""
    return [f"{rows.row_names[a]} ~ {others.row_names[b]}" for a, b in pairs.items()]
