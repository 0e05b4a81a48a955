"""The rewards pay for the right rows and for nothing else: `make test`.

When your model gets paid for an answer that is not right, add that answer to CHEATS.
"""

import json
from pathlib import Path

import pytest
from rewards import DATABASES, SHOP, database, right, rows_of, well_formed

ROWS = [json.loads(line) for line in (Path(__file__).parent / "train.jsonl").open()]
ANSWER = "SELECT COUNT(*) FROM orders WHERE city = 'Oslo'"
SORTED = "SELECT DISTINCT city FROM orders WHERE customer = 'Ada' ORDER BY city"
[(COUNT,)] = rows_of(ANSWER, 0)
CHEATS = {
    "nothing": "",
    "words around it": f"Use this: {ANSWER}",
    "a code fence": f"```sql\n{ANSWER}\n```",
    "the number instead of a query": f"SELECT {COUNT}",
    "the number, from the table": f"SELECT {COUNT} FROM orders LIMIT 1",
    "another condition that gives the number": f"SELECT {COUNT} FROM orders WHERE rowid = {COUNT}",
    "without the condition": "SELECT COUNT(*) FROM orders",
    "a comment behind a wrong one": f"SELECT COUNT(*) FROM orders -- {ANSWER}",
    "all columns": "SELECT * FROM orders WHERE city = 'Oslo'",
    "several answers": f"{ANSWER} UNION SELECT COUNT(*) FROM orders",
    "the answer as a text": "SELECT CAST(COUNT(*) AS TEXT) FROM orders WHERE city = 'Oslo'",
    "every number": "SELECT rowid FROM orders",
}
DOUBLING = ", ".join(f"t{i} AS (SELECT 1 FROM t{i - 1}, t{i - 1})" for i in range(1, 30))
HOSTILE = {
    "delete the rows": "DELETE FROM orders",
    "drop the table": "DROP TABLE orders",
    "change a value": "UPDATE orders SET price = 0",
    "two statements": f"{ANSWER}; DELETE FROM orders",
    "two questions": f"{ANSWER}; {ANSWER}",
    "write": "INSERT INTO orders VALUES ('Ada', 'Oslo', 'lamps', 1, 1)",
    "write and read": "INSERT INTO orders SELECT * FROM orders RETURNING *",
    "a table of its own": "CREATE TABLE mine AS SELECT 1",
    "a view with the table's name": "CREATE TEMP VIEW orders AS SELECT 1",
    "a trigger": "CREATE TEMP TRIGGER t AFTER INSERT ON orders BEGIN SELECT 1; END",
    "a file": "ATTACH DATABASE 'stolen.db' AS stolen",
    "without its database": "DETACH DATABASE main",
    "a copy on the disk": "VACUUM INTO 'stolen.db'",
    "a setting": "PRAGMA writable_schema = 1",
    "a setting as a table": "SELECT * FROM pragma_database_list",
    "the schema": "SELECT sql FROM sqlite_master",
    "a library": "SELECT load_extension('/tmp/evil.so')",
    "memory": "SELECT zeroblob(1000000000)",
    "a long text": "SELECT " + "||".join(["printf('%.9999c', 'x')"] * 9),
    "an endless loop": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT COUNT(*) FROM n",
    "tables that double": f"WITH t0 AS (SELECT 1), {DOUBLING} SELECT COUNT(*) FROM t29"[:1_000],
    "the same, further inside": "SELECT * FROM (WITH/**/t AS (SELECT 1) SELECT * FROM t, t)",
    "a product of tables": "SELECT COUNT(*) FROM orders a, orders b, orders c, orders d",
    "a sorted product": "SELECT a.item FROM orders a, orders b ORDER BY b.price, a.price LIMIT 1",
    "too many rows": "SELECT a.item FROM orders a, orders b LIMIT 2000",
    "a transaction": "BEGIN IMMEDIATE",
    "a long query": "SELECT " + " + ".join(["1"] * 5_000),
    "deep brackets": "SELECT " + "(" * 400 + "1" + ")" * 400,
    "a null byte": "SELECT 1\0",
    "half a character": "SELECT '\ud800'",
    "a value that is missing": "SELECT COUNT(*) FROM orders WHERE city = ?",
}


def completion(text: str) -> list:
    return [{"role": "assistant", "content": text}]


def test_every_answer_of_the_data_earns_everything():
    answers = [row["answer"] for row in ROWS]
    texts = [completion(text) for text in answers]
    assert set(right(texts, answers)) == {1.0}
    assert set(well_formed(texts)) == {1.0}


def test_no_constant_answers_a_question_of_the_data():
    """The right rows differ between the databases."""
    for row in ROWS:
        rows = [sorted(rows_of(row["answer"], i)) for i in range(DATABASES)]
        assert any(other != rows[0] for other in rows), row


@pytest.mark.parametrize("city", ["in ('Oslo')", "like 'oslo'"])
def test_another_query_for_the_same_rows_is_right(city):
    assert right([completion(f"select sum(1) from Orders where city {city};")], [ANSWER]) == [1.0]
    counted = f"SELECT COUNT(*) FROM ORDERS WHERE city {city} -- Oslo"
    assert right([completion(counted)], [ANSWER]) == [1.0]


def test_the_order_of_the_rows_counts_only_if_the_reference_asks_for_it():
    backwards = SORTED + " DESC"
    unsorted = SORTED.partition(" ORDER")[0]
    assert right([completion(backwards)], [unsorted]) == [1.0]
    assert right([completion(SORTED)], [SORTED]) == [1.0]
    assert right([completion(backwards)], [SORTED]) == [0.0]


def test_a_row_counts_as_often_as_it_is_there():
    assert right([completion(SORTED)], [SORTED.replace("DISTINCT ", "")]) == [0.0]


def test_an_answer_of_the_data_that_does_not_run_is_an_error():
    with pytest.raises(ValueError, match="does not run"):
        right([completion(ANSWER)], ["SELECT COUNT(*) FROM order"])


@pytest.mark.parametrize("cheat", CHEATS)
def test_no_cheat_is_paid_as_right(cheat):
    assert right([completion(CHEATS[cheat])], [ANSWER]) == [0.0]


@pytest.mark.parametrize("query", HOSTILE)
def test_a_hostile_query_earns_nothing_and_changes_nothing(query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = SHOP.read_bytes()
    assert right([completion(HOSTILE[query])], [ANSWER]) == [0.0]
    assert well_formed([completion(HOSTILE[query])]) == [0.0]
    assert rows_of(ANSWER, 0) == [(COUNT,)]
    assert not database(0).in_transaction
    assert SHOP.read_bytes() == before
    assert list(tmp_path.iterdir()) == []
