"""However many near-copies of one problem there are, each row that has a twin is known to have one."""

import random

import pytest
from datasets import Dataset
from test_duplicates import by_every_pair

from grpo_workbook import crowds
from grpo_workbook.duplicates import Index, near
from grpo_workbook.problems import load
from grpo_workbook.splitting import leaked_rows
from grpo_workbook.validation import validate

NAMES = [
    a + b + c for a in "BDFGHKLMNP" for b in "aeiou" for c in ("ra", "li", "no", "tu", "ke", "so")
]


def problems(names):
    text = "{} has 12 apples and buys 7 more apples at the market with a friend. How many apples are there now?"
    return [{"question": text.format(name), "answer": "19"} for name in names]


def test_a_leak_of_a_hundred_rows_is_found_whole():
    """150 near-copies to train on and 100 held out: more leakage is not less to report."""
    other = [{"question": f"What is {i} plus {i * i}?", "answer": "1"} for i in range(100)]
    train, held = [*other, *problems(NAMES[:150])], problems(NAMES[150:250])
    report = validate(load(train), load(held))
    assert report.heldout["nearly_in_training"] == 100
    assert "100 nearly so" in report.hurts[-1]
    leaked = leaked_rows(Dataset.from_list(train), Dataset.from_list(held))
    assert sorted(leaked) == list(range(100, 250))


def sentences(rng, families, copies):
    """Texts without numbers that share common words: some are like one another, and some exactly the same."""
    texts = []
    for _ in range(families):
        base = ["the"] + [f"w{chr(97 + rng.randrange(26))}" for _ in range(rng.randrange(4, 12))]
        for _ in range(copies):
            copy = list(base)
            if rng.random() < 0.7:
                copy[rng.randrange(len(copy))] = f"v{chr(97 + rng.randrange(26))}"
            texts.append(" ".join(copy))
    rng.shuffle(texts)
    return texts


@pytest.mark.parametrize("seed", range(4))
def test_every_row_that_has_a_twin_is_in_a_pair(seed, monkeypatch):
    """Against comparing every pair, with crowds of more than 3 rows: within the rows and across two parts."""
    monkeypatch.setattr("grpo_workbook.duplicates.CROWD", 3)
    texts = sentences(random.Random(seed), 12, 15)
    wanted, index = by_every_pair(texts), Index.of(texts)
    found = near(index)
    assert set(found) <= set(wanted)
    assert {row for pair in found for row in pair} == {row for pair in wanted for row in pair}
    for half in (20, 90, 170):
        wanted_across = [(a, b) for a, b in wanted if a < half <= b]
        across = near(index, boundary=half)
        assert set(across) <= set(wanted_across)
        assert {row for pair in across for row in pair} == {
            row for pair in wanted_across for row in pair
        }


def test_one_problem_ten_thousand_times_takes_one_representative(monkeypatch):
    monkeypatch.setattr(crowds, "REPRESENTATIVES", 1)
    monkeypatch.setattr("grpo_workbook.duplicates.COMPARISONS", 1)
    texts = [
        f"Is the word {''.join(chr(97 + int(d)) for d in str(i))} a noun or is it a verb?"
        for i in range(10_000)
    ]
    assert near(Index.of(texts)) == [(0, i) for i in range(1, 10_000)]


def test_copies_of_a_leaked_row_leak_too():
    texts = [p["question"] for p in problems(NAMES[:1] * 150 + NAMES[1:2] * 10)]
    found = near(Index.of(texts), boundary=150)
    assert {a for a, _ in found} == set(range(150))
    assert {b for _, b in found} == set(range(150, 160))
