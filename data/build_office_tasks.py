"""Generate the data of the project templates: messages to classify, orders to extract, questions for SQL.

    python data/build_office_tasks.py            # writes the data of templates/
    python data/build_office_tasks.py --check    # exit status 1 if the files differ from what this makes

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

TEMPLATES = Path(__file__).parent.parent / "templates"
SIZES = {"train": 320, "heldout": 240}
SEEDS = {"train": 31, "heldout": 32}
POOLS = {"heldout": range(15), "train": range(15, 45), "tiny": range(45, 100)}

NAMES = "Ada Ben Chi Dora Emil Fay Gus Hana Ivo Jana Kofi Lena Mia Noor Otto Pia".split()
CITIES = "Oslo Rome Lima Cairo Paris Quito Delhi Turin Accra Bonn Kyoto Porto".split()
ITEMS = "lamps chairs desks books pens clocks mugs plants".split()
THINGS = [item.removesuffix("s") for item in ITEMS]

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
    """One row of a task. `values` is what the answer says, for the tiny clerk's habits."""

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


# ---------------------------------------------------------------- a sentence and what it says

SENTENCES = (
    "{name} from {city} orders {count} {item}.",
    "Please send {count} {item} to {name} in {city}.",
    "{count} {item} for {name}, {city}.",
    "I am {name} and I need {count} {item} in {city}.",
    "To {city}: {count} {item}. Regards, {name}",
    "{name} wants {count} {item}, sent to {city} by train.",
    "Ship {item} to {city}, {count} of them, for {name}.",
    "Order of {name}: {item}, {count} pieces, {city}.",
)
EXTRAS = ("", "", " It is a gift.", " Pay by card.", " The old ones were sold.", " No rush.")


def order(rng: random.Random) -> Row:
    values = {"name": rng.choice(NAMES), "city": rng.choice(CITIES)}
    values |= {"item": rng.choice(ITEMS), "count": rng.randint(2, 60)}
    text = rng.choice(SENTENCES).format(**values) + rng.choice(EXTRAS)
    return Row(text, json.dumps(values), values)


# ---------------------------------------------------------------- a question and its query

# (the question's start, what is selected)
WANTED = (
    ("How many orders", "COUNT(*)"),
    ("How many pieces in all", "SUM(count)"),
    ("What is the total price of orders", "SUM(price)"),
    ("What is the highest price of orders", "MAX(price)"),
    ("What is the lowest price of orders", "MIN(price)"),
    ("Which customers have orders", "DISTINCT customer"),
    ("Which items are in orders", "DISTINCT item"),
    ("Which cities have orders", "DISTINCT city"),
)


def condition(rng: random.Random) -> tuple[str, str, str]:
    """(column, words, SQL)."""
    column = rng.choice(("customer", "city", "item", "count", "price"))
    if column == "customer":
        name = rng.choice(NAMES)
        return column, f"by {name}", f"customer = '{name}'"
    if column == "city":
        city = rng.choice(CITIES)
        return column, f"from {city}", f"city = '{city}'"
    if column == "item":
        item = rng.choice(ITEMS)
        return column, f"of {item}", f"item = '{item}'"
    words, sign = rng.choice((("over", ">"), ("under", "<")))
    number = rng.randint(3, 17) if column == "count" else rng.randint(20, 180)
    unit = " pieces" if column == "count" else " in price"
    return column, f"{words} {number}{unit}", f"{column} {sign} {number}"


def query(rng: random.Random) -> Row:
    start, wanted = rng.choice(WANTED)
    conditions = [c for c in (condition(rng), condition(rng)) if c[0] not in wanted]
    (column, words, sql), *more = conditions or [("city", "from Rome", "city = 'Rome'")]
    both, tests = words, [sql]
    if more and more[0][0] != column and rng.random() < 0.6:
        both, tests = f"{words} and {more[0][1]}", [sql, more[0][2]]
    answer = f"SELECT {wanted} FROM orders WHERE {' AND '.join(tests)}"
    return Row(f"{start} {both}?", answer, {"wanted": wanted, "tests": tests})


SCHEMA = "CREATE TABLE orders (customer TEXT, city TEXT, item TEXT, count INTEGER, price INTEGER);"


def shop() -> str:
    """The database of the SQL task, as text: 400 orders."""
    rng = random.Random(33)
    rows = [
        f"('{rng.choice(NAMES)}', '{rng.choice(CITIES)}', '{rng.choice(ITEMS)}', "
        f"{rng.randint(1, 20)}, {rng.randint(5, 200)})"
        for _ in range(400)
    ]
    return f"{SCHEMA}\nINSERT INTO orders VALUES\n" + ",\n".join(rows) + ";\n"


# ---------------------------------------------------------------- tasks, pools, files


@dataclass(frozen=True)
class Task:
    """A template's folder, its instruction, and a function that makes a row."""

    folder: Path
    system_prompt: str
    draw: Callable[[random.Random], Row]


TASKS = {
    "json": Task(
        TEMPLATES / "my_project",
        'Answer with JSON: {"label": billing, delivery, defect or account, "urgent": true or false}',
        message,
    ),
    "extract": Task(
        TEMPLATES / "extract",
        "Answer with JSON: name, city, item (texts) and count (a number).",
        order,
    ),
    "sql": Task(
        TEMPLATES / "sql",
        "Answer with one SQL query. The table is orders (customer, city, item, count, price).",
        query,
    ),
}


def draw(task: str, rng: random.Random, pool: str) -> Row:
    """A random row of the task, from this pool only."""
    while True:
        row = TASKS[task].draw(rng)
        bucket = int(hashlib.sha256(f"{task} {row.question}".encode()).hexdigest(), 16) % 100
        if bucket in POOLS[pool]:
            return row


def build(task: str, pool: str) -> list[Row]:
    """The rows of one file, all different."""
    rng, rows = random.Random(SEEDS[pool]), {}
    while len(rows) < SIZES[pool]:
        row = draw(task, rng, pool)
        rows.setdefault(row.question, row)
    return list(rows.values())


def files() -> dict[Path, str]:
    """Every file and its content."""
    made = {TASKS["sql"].folder / "shop.sql": shop()}
    for name, task in TASKS.items():
        for pool in SIZES:
            rows = [{"question": r.question, "answer": r.answer} for r in build(name, pool)]
            made[task.folder / f"{pool}.jsonl"] = "".join(json.dumps(row) + "\n" for row in rows)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Make the data of the project templates.")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    different = [
        path for path, text in files().items() if not path.is_file() or path.read_text() != text
    ]
    if check:
        print(*(f"{path} differs" for path in different), sep="\n")
        return int(bool(different))
    for path in different:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files()[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
