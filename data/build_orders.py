"""Generate the data of the project templates for extraction and SQL: orders of a shop.

    python data/build_orders.py            # writes the data of templates/extraction and templates/sql
    python data/build_orders.py --check    # exit status 1 if the files differ from what this makes

All names and texts are made up. The pools are those of build_messages.py: no row is in two of them.
"""

import json
import random
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "templates" / "sql")]

from build_messages import NAMES, Row, files, main  # noqa: E402

TEMPLATES = HERE.parent / "templates"
SHOP = TEMPLATES / "sql" / "shop.db"
CITIES = "Oslo Rome Lima Cairo Paris Quito Delhi Turin Accra Bonn Kyoto Porto".split()
ITEMS = "lamps chairs desks books pens clocks mugs plants".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday".split()

# ---------------------------------------------------------------- an order and what it says

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
WITH_DAY = (" Deliver on {day}.", " I am at home on {day}.", " It must be here on {day}.")
WITHOUT_DAY = (" It is a gift.", " Pay by card.", " The old ones were sold.", " Any day is fine.")


def order(rng: random.Random) -> Row:
    """A sentence, and its values as JSON; the day is null where the sentence says none."""
    day = rng.choice((rng.choice(DAYS), None))
    values = {"name": rng.choice(NAMES), "city": rng.choice(CITIES)}
    values |= {"item": rng.choice(ITEMS), "count": rng.randint(2, 60), "day": day}
    text = rng.choice(SENTENCES) + rng.choice(WITH_DAY if day else WITHOUT_DAY)
    return Row(text.format(**values), json.dumps(values), values)


# ---------------------------------------------------------------- a question and its query

# (the question's start and end, what is selected, in which order)
WANTED = (
    ("How many orders", "", "COUNT(*)", ""),
    ("How many pieces in all", "", "SUM(count)", ""),
    ("What is the total price of orders", "", "SUM(price)", ""),
    ("What is the highest price of orders", "", "MAX(price)", ""),
    ("What is the lowest price of orders", "", "MIN(price)", ""),
    ("Which customers have orders", "", "DISTINCT customer", ""),
    ("Which items are in orders", "", "DISTINCT item", ""),
    ("Which cities have orders", ", from A to Z", "DISTINCT city", " ORDER BY city"),
    ("What are the prices of orders", ", lowest first", "price", " ORDER BY price"),
    ("What are the prices of orders", ", highest first", "price", " ORDER BY price DESC"),
)


def condition(rng: random.Random) -> tuple[str, str, str]:
    """(column, words, SQL)."""
    column = rng.choice(("customer", "city", "item", "count", "price"))
    texts = {"customer": ("by", NAMES), "city": ("from", CITIES), "item": ("of", ITEMS)}
    if column in texts:
        word, values = texts[column]
        value = rng.choice(values)
        return column, f"{word} {value}", f"{column} = '{value}'"
    words, sign = rng.choice((("over", ">"), ("under", "<")))
    number = rng.randint(3, 17) if column == "count" else rng.randint(20, 180)
    unit = " pieces" if column == "count" else " in price"
    return column, f"{words} {number}{unit}", f"{column} {sign} {number}"


def any_query(rng: random.Random) -> Row:
    """A question with one condition or two, and its query."""
    start, end, wanted, order_by = rng.choice(WANTED)
    conditions: dict[str, tuple] = {}
    while len(conditions) < 2:
        column, words, sql = condition(rng)
        if column not in wanted:
            conditions[column] = (words, sql)
    words, tests = zip(*list(conditions.values())[: rng.choice((1, 2))], strict=True)
    answer = f"SELECT {wanted} FROM orders WHERE {' AND '.join(tests)}{order_by}"
    return Row(f"{start} {' and '.join(words)}{end}?", answer, {"wanted": wanted, "tests": tests})


def query(rng: random.Random) -> Row:
    """A question whose answer no query with fewer conditions gives, and no constant."""
    from rewards import DATABASES, rows_of  # templates/sql/rewards.py

    while True:
        row = any_query(rng)
        fewer = [row.answer.replace(test, "1") for test in row.values["tests"]]
        right = [Counter(rows_of(row.answer, i)) for i in range(DATABASES)]
        other = right[1:] + [Counter(rows_of(text, 0)) for text in fewer]
        if right[0] and (None,) not in right[0] and right[0] not in other:
            return row


def shop() -> list[tuple]:
    """400 orders: customer, city, item, count, price."""
    rng = random.Random(33)
    return [
        (rng.choice(NAMES), rng.choice(CITIES), rng.choice(ITEMS), rng.randint(1, 20), price)
        for price in rng.choices(range(5, 201), k=400)
    ]


def read_shop() -> list[tuple]:
    """The rows that the database of the SQL template has: its bytes depend on SQLite's version."""
    if not SHOP.is_file():
        return []
    with closing(sqlite3.connect(SHOP)) as connection:
        return connection.execute("SELECT * FROM orders").fetchall()


def write_shop() -> None:
    """Write the database of the SQL template anew."""
    SHOP.unlink(missing_ok=True)
    with closing(sqlite3.connect(SHOP)) as connection:
        connection.execute(
            "CREATE TABLE orders (customer TEXT, city TEXT, item TEXT, count INTEGER, price INTEGER)"
        )
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", shop())
        connection.commit()


if __name__ == "__main__":
    if read_shop() != shop():
        if "--check" in sys.argv:
            sys.exit(f"{SHOP} differs")
        write_shop()
    sys.exit(main(files(TEMPLATES / "extraction", order) | files(TEMPLATES / "sql", query)))
