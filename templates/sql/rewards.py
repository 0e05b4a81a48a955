"""Two reward functions in TRL's contract, for queries that run on a database.

TRL calls a reward with the completions and every column of the data, as lists. A completion is
`[{"role": "assistant", "content": text}]`. A reward returns one number for each completion, or None
where it does not apply. `**kwargs` takes the columns that a function does not use. `@reward` says
what a function judges and which columns it needs.

A query written by a model is hostile. So the file is opened read-only, an authorizer refuses all
but reading the table, and instructions, characters and rows have limits. A query must give the
reference's rows on changed copies of the database too, so that no constant passes for a query.
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
    rewards = []
    for completion, reference in zip(completions, answer, strict=True):
        query = completion[0]["content"]
        agrees = all(agree(query, reference, number) for number in range(DATABASES))
        rewards.append(1.0 if agrees else 0.0)
    return rewards


@reward("format")
def well_formed(completions, **kwargs):
    """1 for one query that may run and ends within its limits, right or wrong, else 0."""
    rewards = []
    for completion in completions:
        rows = rows_of(completion[0]["content"], 0)
        rewards.append(0.0 if rows is None else 1.0)
    return rewards


def agree(query: str, reference: str, number: int) -> bool:
    """Whether both queries give the same rows on a database, each row as often.

    The order of the rows counts if the reference has ORDER BY.
    """
    rows = rows_of(query, number)
    right_rows = rows_of(reference, number)
    if right_rows is None:
        raise ValueError(f"an answer of the data does not run, or is not allowed: {reference}")
    if rows is None:
        return False
    if "order by" in reference.lower():
        return rows == right_rows
    return Counter(rows) == Counter(right_rows)


def rows_of(query: str, number: int) -> list | None:
    """The rows of a query; None if it fails, is not allowed, or goes over a limit."""
    # A chain of WITHs, each twice the one before, would cost minutes before the first instruction.
    if re.search(r"\bwith\b", query, re.IGNORECASE):
        return None
    connection = database(number)
    thousands = 0

    def is_over_budget() -> bool:  # called every thousand instructions; True ends the query
        nonlocal thousands
        thousands += 1
        return thousands > BUDGET

    connection.set_progress_handler(is_over_budget, 1_000)
    try:
        cursor = connection.execute(query)  # it takes one statement
        rows = cursor.fetchmany(ROWS + 1)
        cursor.close()
    except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError):  # of the query
        return None
    if cursor.description is None or len(rows) > ROWS:  # no SELECT, or too many rows
        return None
    return rows


@cache
def database(number: int) -> sqlite3.Connection:
    """A database that can only be read: 0 is the file, the others are changed copies in memory."""
    link = f"{SHOP.as_uri()}?mode=ro&immutable=1"  # not even a lock is written
    file = sqlite3.connect(link, uri=True, isolation_level=None, check_same_thread=False)
    connection = file
    if number > 0:
        connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        file.backup(connection)
        rowids = connection.execute("SELECT rowid FROM orders").fetchall()  # a list of (id,)
        removed = random.Random(number).sample(rowids, len(rowids) // 2)
        connection.executemany("DELETE FROM orders WHERE rowid = ?", removed)
        connection.execute("UPDATE orders SET price = price + ?", (number,))
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(allow)
    return connection


def allow(action, first, second, *rest) -> int:
    """SQLite's authorizer: reading the table with harmless functions is allowed, nothing else."""
    if action == sqlite3.SQLITE_SELECT:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_READ and first.lower() == "orders":
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and second.lower() in FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY
