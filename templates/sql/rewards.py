"""Two reward functions: TRL passes the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. Return one number for each, or None if
the reward does not apply. `**kwargs` takes the arguments that a function does not use.

A query written by a model is hostile. The file is opened read-only, an authorizer refuses all but
reading the table, and instructions, characters and rows have limits. The query must also give the
reference's rows on changed copies of the database: so no constant passes for a query.
"""

import random
import re
import sqlite3
from collections import Counter
from functools import cache
from pathlib import Path

from grpo_workbook import reward

SHOP = Path(__file__).resolve().parent / "shop.db"
DATABASES = 3  # the file, and copies with other prices and a random half of its rows
FUNCTIONS = "count sum min max avg total abs round lower upper length like".split()
BUDGET = 100  # thousands of SQLite's instructions, which is some milliseconds on any machine
ROWS = 1_000
LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000,  # characters of a query
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000,  # bytes of a value
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 50,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}


@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    """1 for the reference's rows on every database, else 0; in its order if it has ORDER BY."""
    return [
        float(all(agree(completion[0]["content"], wanted, i) for i in range(DATABASES)))
        for completion, wanted in zip(completions, answer, strict=True)
    ]


@reward("format")
def well_formed(completions, **kwargs):
    """1 for one query that may run and ends within its limits, right or wrong, else 0."""
    return [float(rows_of(completion[0]["content"], 0) is not None) for completion in completions]


def agree(query: str, wanted: str, number: int) -> bool:
    """Whether both give the same rows, each as often, in the order that `wanted` asks for."""
    given, right_rows = rows_of(query, number), rows_of(wanted, number)
    if right_rows is None:
        raise ValueError(f"an answer of the data does not run, or is not allowed: {wanted}")
    if given is None or "order by" in wanted.lower():
        return given == right_rows
    return Counter(given) == Counter(right_rows)


def rows_of(query: str, number: int) -> list | None:
    """The rows of a query; None if it fails, is not allowed, or goes over a limit."""
    # A chain of WITHs, each twice the one before, would cost minutes before the first instruction.
    if re.search(r"\bwith\b", query, re.IGNORECASE):
        return None
    connection, used = database(number), 0

    def spent() -> bool:  # called every thousand instructions; True ends the query
        nonlocal used
        used += 1
        return used > BUDGET

    connection.set_progress_handler(spent, 1_000)
    try:
        cursor = connection.execute(query)  # it takes one statement
        rows = cursor.fetchmany(ROWS + 1)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):  # of the query
        return None
    return rows if cursor.description and len(rows) <= ROWS else None


@cache
def database(number: int) -> sqlite3.Connection:
    """A database that can only be read: 0 is the file, the others are changed copies in memory."""
    link = f"{SHOP.as_uri()}?mode=ro&immutable=1"  # not even a lock is written
    file = sqlite3.connect(link, uri=True, isolation_level=None, check_same_thread=False)
    connection = file
    if number:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        file.backup(connection)
        ids = [row[0] for row in connection.execute("SELECT rowid FROM orders")]
        gone = random.Random(number).sample(ids, len(ids) // 2)
        connection.executemany("DELETE FROM orders WHERE rowid = ?", [(i,) for i in gone])
        connection.execute("UPDATE orders SET price = price + ?", (number,))
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(allowed)
    return connection


def allowed(action, first, second, *rest) -> int:
    """Reading the table with harmless functions is allowed, and nothing else."""
    reads = action == sqlite3.SQLITE_READ and first.lower() == "orders"
    calls = action == sqlite3.SQLITE_FUNCTION and second.lower() in FUNCTIONS
    fine = action == sqlite3.SQLITE_SELECT or reads or calls
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY
