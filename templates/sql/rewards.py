"""Two reward functions: TRL passes the completions and every column of the data, as lists.

A completion is `[{"role": "assistant", "content": text}]`. Return one number for each, or None if
the reward does not apply. `**kwargs` takes the arguments that a function does not use.

A query written by a model is hostile. It runs on databases in memory, may only read the table (an
authorizer refuses everything else), and gets a budget of instructions, characters and rows. It must
give the same rows as the reference on several databases, so that no constant passes for a query.
"""

import random
import sqlite3
from collections import Counter
from functools import cache
from pathlib import Path

from grpo_workbook import reward

SHOP = (Path(__file__).parent / "shop.sql").read_text(encoding="utf-8")
DATABASES = 3  # the shop's, and others with a random half of its rows
FUNCTIONS = "count sum min max avg total abs round lower upper length".split()
BUDGET = 200  # thousands of SQLite's instructions for one query: far more than a right one needs
ROWS = 1_000
LIMITS = {
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1_000,  # characters of a query
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,  # bytes of a value
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 5,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
}


@reward("correctness", columns=("answer",))
def right(completions, answer, **kwargs):
    """1 if the query gives the reference's rows, in any order, on every database, else 0."""
    values = []
    for completion, wanted in zip(completions, answer, strict=True):
        query = completion[0]["content"]
        pairs = ((rows_of(query, i), rows_of(wanted, i)) for i in range(DATABASES))
        values.append(float(all(given is not None and given == there for given, there in pairs)))
    return values


@reward("format")
def runs(completions, **kwargs):
    """1 for one query that may run and ends within its budget, right or wrong, else 0."""
    return [float(rows_of(c[0]["content"], 0) is not None) for c in completions]


def rows_of(query: str, number: int) -> Counter | None:
    """The rows of a query, each with its count; None if it fails, or is not allowed."""
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
    return Counter(rows) if cursor.description and len(rows) <= ROWS else None


@cache
def database(number: int) -> sqlite3.Connection:
    """A database in memory that can only be read: 0 is the shop."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(SHOP)
    if number:
        ids = range(1, connection.execute("SELECT MAX(rowid) FROM orders").fetchone()[0] + 1)
        gone = random.Random(number).sample(ids, len(ids) // 2)
        connection.executemany("DELETE FROM orders WHERE rowid = ?", [(i,) for i in gone])
    for limit, value in LIMITS.items():
        connection.setlimit(limit, value)
    connection.set_authorizer(allowed)
    return connection


def allowed(action, first, second, *rest) -> int:
    """Reading the table with harmless functions is allowed, and nothing else."""
    reads = action == sqlite3.SQLITE_READ and first == "orders"
    calls = action == sqlite3.SQLITE_FUNCTION and str(second).lower() in FUNCTIONS
    fine = action == sqlite3.SQLITE_SELECT or reads or calls
    return sqlite3.SQLITE_OK if fine else sqlite3.SQLITE_DENY
