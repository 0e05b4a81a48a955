"""The rewards pay for the right rows and for nothing else: `make test`.

Whatever your model gets paid for without being right, add it to CHEATS.
"""

import json
from pathlib import Path

import pytest
from rewards import database, right, rows_of, runs

ROWS = [json.loads(line) for line in (Path(__file__).parent / "train.jsonl").open()]
ANSWER = "SELECT COUNT(*) FROM orders WHERE city = 'Oslo'"
[(COUNT,)] = rows_of(ANSWER, 0)
CHEATS = {
    "nothing": "",
    "words around it": f"Use this: {ANSWER}",
    "the number instead of a query": f"SELECT {COUNT}",
    "the number, from the table": f"SELECT {COUNT} FROM orders LIMIT 1",
    "without the condition": "SELECT COUNT(*) FROM orders",
    "a comment behind a wrong one": f"SELECT COUNT(*) FROM orders -- {ANSWER}",
    "all columns": "SELECT * FROM orders WHERE city = 'Oslo'",
    "several answers": f"{ANSWER} UNION SELECT COUNT(*) FROM orders",
}
HOSTILE = {
    "delete the rows": "DELETE FROM orders",
    "drop the table": "DROP TABLE orders",
    "two statements": f"{ANSWER}; DELETE FROM orders",
    "write": "INSERT INTO orders VALUES ('Ada', 'Oslo', 'lamps', 1, 1)",
    "a table of its own": "CREATE TABLE mine AS SELECT 1",
    "a hidden function": "CREATE TEMP VIEW orders AS SELECT 1",
    "a file": "ATTACH DATABASE 'stolen.db' AS stolen",
    "a copy on the disk": "VACUUM INTO 'stolen.db'",
    "a setting": "PRAGMA writable_schema = 1",
    "the schema": "SELECT sql FROM sqlite_master",
    "a library": "SELECT load_extension('/tmp/evil.so')",
    "memory": "SELECT zeroblob(1000000000)",
    "an endless loop": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT COUNT(*) FROM n",
    "a product of tables": "SELECT COUNT(*) FROM orders a, orders b, orders c, orders d",
    "too many rows": "SELECT a.item FROM orders a, orders b",
    "a transaction": "BEGIN IMMEDIATE",
    "a long query": "SELECT " + " + ".join(["1"] * 5_000),
    "deep brackets": "SELECT " + "(" * 400 + "1" + ")" * 400,
    "a null byte": "SELECT 1\0",
    "half a character": "SELECT '\ud800'",
    "a number of a thousand digits": "SELECT " + "9" * 900,
}


def said(text: str) -> list:
    return [{"role": "assistant", "content": text}]


def test_every_answer_of_the_data_earns_everything():
    answers = [row["answer"] for row in ROWS]
    texts = [said(text) for text in answers]
    assert set(right(texts, answers)) == {1.0}
    assert set(runs(texts)) == {1.0}


def test_another_query_for_the_same_rows_is_right():
    other = "select sum(1) from orders where city in ('Oslo')"
    assert right([said(other)], [ANSWER]) == [1.0]


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_is_paid_as_right(cheat):
    assert right([said(CHEATS[cheat])], [ANSWER]) == [0.0]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_query_earns_nothing_and_changes_nothing(query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert right([said(HOSTILE[query])], [ANSWER]) == [0.0]
    assert runs([said(HOSTILE[query])]) == [0.0] or query == "a number of a thousand digits"
    assert rows_of(ANSWER, 0) == {(COUNT,): 1}
    assert not database(0).in_transaction
    assert list(tmp_path.iterdir()) == []
