"""The split is seeded, stratified, disjoint; leaks are found, and what only looks like one is not."""

from collections import Counter

import pytest
from datasets import Dataset

from grpo_workbook.errors import WorkbookError
from grpo_workbook.splitting import drop_leaked, leaked_rows, shares, split

TABLE = Dataset.from_list(
    [{"question": f"q{i} " + "x" * i, "answer": str(i), "level": f"L{i % 4}"} for i in range(100)]
)


@pytest.mark.parametrize("by", [None, "length", "level"])
def test_split_is_seeded_and_disjoint(by):
    train, heldout = split(TABLE, 400, seed=3, by=by)
    assert (len(train), len(heldout)) == (80, 20)
    again, other = split(TABLE, 400, seed=3, by=by)[1], split(TABLE, 400, seed=4, by=by)[1]
    assert again.to_list() == heldout.to_list() != other.to_list()
    order = {row["question"]: i for i, row in enumerate(TABLE)}
    for part in (train, heldout):
        assert [order[q] for q in part["question"]] == sorted(order[q] for q in part["question"])
    assert sorted([*train["answer"], *heldout["answer"]], key=int) == TABLE["answer"][:]
    assert len(split(TABLE, 7, seed=3, by=by)[1]) == 7


def test_strata_keep_their_shares():
    rows = [
        {"question": "q" * (1 + i % 50), "answer": "1", "level": "hard" if i % 10 == 0 else "easy"}
        for i in range(500)
    ]
    train, heldout = split(Dataset.from_list(rows), 50, seed=0, by="level")
    assert shares(train, "level") == shares(heldout, "level") == {"easy": 0.9, "hard": 0.1}
    _, heldout = split(TABLE, 20, seed=0, by="length")
    assert Counter(int(a) // 25 for a in heldout["answer"]) == {0: 5, 1: 5, 2: 5, 3: 5}
    assert len(split(TABLE, 19, seed=0, by="level")[1]) == 19


def test_a_split_that_cannot_be_made_says_why():
    with pytest.raises(WorkbookError, match="4 rows are too few"):
        split(TABLE.select(range(4)), 400, seed=3)
    with pytest.raises(WorkbookError, match="no column 'colour'"):
        split(TABLE, 10, 0, by="colour")
    many = Dataset.from_list([{"question": "q", "answer": str(i)} for i in range(101)])
    with pytest.raises(WorkbookError, match="101 different values"):
        split(many, 10, 0, by="answer")


def test_a_column_called_length_is_no_stratum():
    """The word means the question's length: 320 lengths in a column of their own stop nobody's default split."""
    rows = [{"question": "q" * (1 + i % 40), "answer": str(i), "length": i} for i in range(320)]
    train, heldout = split(Dataset.from_list(rows), 40, seed=0)
    assert Counter((len(q) - 1) // 10 for q in heldout["question"]) == {0: 10, 1: 10, 2: 10, 3: 10}
    assert len(train) == 280


def questions(*texts):
    return Dataset.from_list([{"question": t, "answer": "1"} for t in texts])


def test_nothing_held_out_is_said_as_such():
    rows = Dataset.from_list([{"question": f"q{i}", "answer": "1"} for i in range(20)])
    with pytest.raises(WorkbookError, match="heldout is 0: hold out at least 1 row"):
        split(rows, 0, seed=0)


def test_leaked_questions_leave_the_training_set():
    held = questions(
        "How  Many?",
        "Ana has 3 red shells and finds 4 more shells. How many red shells has Ana now?",
    )
    train = questions(
        "how many",
        "another",
        "Ben has 3 red shells and finds 4 more shells. How many red shells has Ben now?",
        "Ana has 3 red shells and finds 5 more shells. How many red shells has Ana now?",
    )
    assert leaked_rows(train, held) == {0: 0, 2: 1}
    kept, dropped = drop_leaked(train, held)
    assert (kept["question"][:], dropped) == ([train[1]["question"], train[3]["question"]], 2)
    untouched, none = drop_leaked(train.select([1]), held)
    assert (len(untouched), none) == (1, 0)
    with pytest.raises(WorkbookError, match="also held out"):
        drop_leaked(train.select([0, 2]), held)
