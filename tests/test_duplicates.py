"""Twins are found exactly as comparing every pair would find them, and much faster."""

import itertools
import random

import pytest

from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.duplicates import (
    ALIKE,
    Index,
    jaccard,
    key,
    near,
    numbers_of,
    pieces,
    same,
    template,
    words,
)
from grpo_workbook.problems import load


def by_every_pair(texts):
    found = [pieces(t) for t in texts]
    bags, numbers = [set(words(t)) for t in texts], [numbers_of(f) for f in found]
    return [
        (a, b)
        for a, b in itertools.combinations(range(len(texts)), 2)
        if numbers[a] == numbers[b] and found[a] != found[b] and jaccard(bags[a], bags[b]) >= ALIKE
    ]


@pytest.mark.parametrize("seed", range(5))
def test_near_is_what_comparing_every_pair_finds(seed, monkeypatch):
    monkeypatch.setattr("grpo_workbook.duplicates.CHUNK", 7 if seed else 50_000)
    rng = random.Random(seed)
    lexicon = [f"word{chr(97 + i)}" for i in range(26)]
    texts = []
    for _ in range(60):
        base = rng.choices(lexicon, k=rng.randrange(1, 25)) + [
            str(rng.randrange(3)) for _ in range(rng.randrange(2))
        ]
        for _ in range(rng.randrange(1, 6)):
            copy = list(base)
            for _ in range(rng.randrange(4)):
                copy[rng.randrange(len(copy))] = rng.choice(lexicon)
            texts.append(" ".join(copy))
    wanted = by_every_pair(texts)
    assert wanted
    assert near(Index.of(texts)) == wanted
    half = len(texts) // 2
    assert near(Index.of(texts[:half], texts[half:]), boundary=half) == [
        (a, b) for a, b in wanted if a < half <= b
    ]


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("How many?", "  how MANY ", True),
        ("It costs $1,000.", "it costs 1000", True),
        ("a well-known sum", "a well known sum", True),
        ("3 - 4 =", "3 \u2212 4 =", True),
        ("５ apples", "5 apples", True),
        ("3 + 4", "3 - 4", False),
        ("10, 20", "1020", False),
        ("1,00", "100", False),
        ("1.5 m", "15 m", False),
        ("???", "!!!", False),
        ("6 × 3", "6 ÷ 3", False),
        ("6 × 3", "6*3", True),
        ("(1+2)*3", "1+2*3", False),
        ("(sin x + 2) * 3", "sin x + 2 * 3", False),
        ("（1＋2）* 3", "(1+2)*3", True),
        ("[1,2]", "(1,2)", False),
        ("Ana (a girl) has 5 (red) hats", "Ana, a girl, has 5 red hats", True),
        ("Ana (aged 5) runs", "Ana, aged 5, runs", True),
        ("x≥3", "x≤3", False),
        ("x ≥ 3", "x >= 3", True),
        ("a != b", "a = b", False),
        ("5!", "5", False),
        ("What! No.", "what no", True),
        ("√9", "9", False),
        ("x²", "x2", False),
        ("10⁻¹²", "10^-12", True),
        ("log₂8", "log 28", False),
        ("a∪b", "a∩b", False),
        ("2½", "21/2", False),
        ("½ l", "1/2 l", True),
        ("3:4", "34", False),
    ],
)
def test_case_space_and_punctuation_do_not_count_but_signs_do(a, b, equal):
    assert (key(a) == key(b)) is equal
    assert bool(same(Index.of([a, b]))) is equal


def test_templates_mask_numbers():
    assert (
        template("Ana has 3 shells.")
        == template("ana has 14 shells")
        != template("Ben has 3 shells")
    )


def test_the_course_does_not_leak():
    train, held = (load(WORD_PROBLEMS[s]).dataset["question"][:] for s in ("train", "heldout"))
    index = Index.of(train, held)
    assert same(index) == near(index, boundary=len(train)) == []


def test_nothing_is_similar_in_nothing():
    assert near(Index.of([])) == same(Index.of([])) == near(Index.of(["", "  "])) == []
    assert same(Index.of(["", "  "])) == [[0, 1]]
