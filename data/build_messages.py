"""Generate the data of the project template for classification: messages to a shop.

    python data/build_messages.py            # writes the data of templates/my_project
    python data/build_messages.py --check    # exit status 1 if the files differ from what this makes

All names and texts are made up. A hash of its text puts each row into one of three pools, so that no two pools can
have a row in common:

    heldout   15 %   for measuring
    train     30 %   for GRPO
    tiny      55 %   for training the tiny clerk before the project (build_tiny_clerk.py)
"""

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = Path(__file__).parent.parent / "templates" / "my_project"
SYSTEM_PROMPT = (
    'Answer with JSON: {"label": billing, delivery, defect or account, "urgent": true or false}'
)
SIZES = {"train": 320, "heldout": 240}
SEEDS = {"train": 31, "heldout": 32}
POOLS = {"heldout": range(15), "train": range(15, 45), "tiny": range(45, 100)}

NAMES = "Ada Ben Chi Dora Emil Fay Gus Hana Ivo Jana Kofi Lena Mia Noor Otto Pia".split()
THINGS = "lamp chair desk book pen clock mug plant".split()

# ---------------------------------------------------------------- a message and its label

PROBLEMS = {
    "billing": (
        "I was charged twice for the {thing}.",
        "The invoice for the {thing} has the wrong amount.",
        "Please refund the money for the {thing}.",
        "My card was billed for a {thing} that I did not order.",
        "The price of the {thing} on the bill is too high.",
    ),
    "delivery": (
        "The {thing} has not arrived.",
        "The parcel with the {thing} went to another street.",
        "When will the {thing} be shipped?",
        "The courier left the {thing} in the rain.",
        "Tracking says that the {thing} is lost.",
    ),
    "defect": (
        "The {thing} came broken.",
        "The {thing} does not work.",
        "A part of the {thing} is missing.",
        "The {thing} has a deep scratch.",
        "The {thing} fell apart after a week.",
    ),
    "account": (
        "I cannot log in to see my {thing} order.",
        "Please change my email before you send the {thing} news.",
        "I forgot my password and want to order a {thing}.",
        "Delete my profile, I only bought a {thing}.",
        "The site shows another user beside my {thing}.",
    ),
}
OPENINGS = ("Hello.", "Good day.", "Hi team.", "Dear shop.", "Me again.", "Sorry to write.")
URGENT = ("I need it today.", "Act at once.", "This cannot wait.", "Answer within an hour.")
CALM = ("There is no hurry.", "Any day is fine.", "Take your time.", "Thank you.", "")


@dataclass(frozen=True)
class Row:
    """A message and its answer. `values` is what the answer says, for the tiny clerk's habits."""

    question: str
    answer: str
    values: dict


def message(rng: random.Random) -> Row:
    label = rng.choice(list(PROBLEMS))
    problem = rng.choice(PROBLEMS[label]).format(thing=rng.choice(THINGS))
    urgent = rng.random() < 0.5
    closing = rng.choice(URGENT if urgent else CALM)
    text = f"{rng.choice(OPENINGS)} {problem} {closing} {rng.choice(NAMES)}"
    values = {"label": label, "urgent": urgent}
    return Row(" ".join(text.split()), json.dumps(values), values)


# ---------------------------------------------------------------- pools, files


def sample(rng: random.Random, pool: str, make: Callable[[random.Random], Row] = message) -> Row:
    """A random row from this pool only."""
    while True:
        row = make(rng)
        bucket = int(hashlib.sha256(row.question.encode()).hexdigest(), 16) % 100
        if bucket in POOLS[pool]:
            return row


def build(pool: str, make: Callable[[random.Random], Row] = message) -> list[Row]:
    """The rows of one file, all different."""
    rng, rows = random.Random(SEEDS[pool]), {}
    while len(rows) < SIZES[pool]:
        row = sample(rng, pool, make)
        rows.setdefault(row.question, row)
    return list(rows.values())


def files(folder: Path = TEMPLATE, make: Callable[[random.Random], Row] = message):
    """Every file and its content."""
    made = {}
    for pool in SIZES:
        rows = [{"question": row.question, "answer": row.answer} for row in build(pool, make)]
        made[folder / f"{pool}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    return made


def main(texts: dict[Path, str]) -> int:
    """Write the files that differ; with --check only name them."""
    parser = argparse.ArgumentParser(description="Make the data of the project templates.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    different = [p for p, text in texts.items() if not p.is_file() or p.read_text() != text]
    for path in different:
        print(f"{path} differs" if check else f"{path} is written")
        if not check:
            path.write_text(texts[path], encoding="utf-8")
    return int(check and bool(different))


if __name__ == "__main__":
    sys.exit(main(files()))
