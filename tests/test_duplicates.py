"""Near-duplicates and leaks are found as comparing every pair would find them, and much faster."""

import itertools
import random

import pytest
from datasets import Dataset

from grpo_workbook.data import WORD_PROBLEMS, duplicates, load_problems
from grpo_workbook.data.duplicates import (
    ALIKE,
    drop_leaked,
    leaked_rows,
    near_duplicates,
    pieces,
    same_questions,
    template,
)
from grpo_workbook.errors import WorkbookError


def words(text):
    return {piece for piece in pieces(text) if piece[0].isalnum()}


def numbers(text):
    return [piece for piece in pieces(text) if not piece[0].isalpha()]


def alike(a, b):
    return len(a & b) / len(a | b) >= ALIKE if a | b else True


def by_every_pair(texts):
    """Pairs (earlier, later) of nearly and not exactly the same texts."""
    pairs = []
    for a, b in itertools.combinations(range(len(texts)), 2):
        if pieces(texts[a]) == pieces(texts[b]) or numbers(texts[a]) != numbers(texts[b]):
            continue
        if alike(words(texts[a]), words(texts[b])):
            pairs.append((a, b))
    return pairs


@pytest.mark.parametrize("seed", range(5))
def test_near_duplicates_are_what_comparing_every_pair_finds(seed):
    rng = random.Random(seed)
    lexicon = [f"word{chr(97 + i)}" for i in range(26)]
    texts = []
    for _ in range(60):
        base = rng.choices(lexicon, k=rng.randrange(1, 25))
        base += [str(rng.randrange(3)) for _ in range(rng.randrange(2))]
        for _ in range(rng.randrange(1, 6)):
            copy = list(base)
            for _ in range(rng.randrange(4)):
                copy[rng.randrange(len(copy))] = rng.choice(lexicon)
            texts.append(" ".join(copy))
    wanted = by_every_pair(texts)
    found = near_duplicates(texts)
    assert wanted
    assert set(found) == {b for _, b in wanted}
    assert {(a, b) for b, a in found.items()} <= set(wanted)
    half = len(texts) // 2
    across = near_duplicates(texts[half:], texts[:half])
    assert {b + half for b in across} == {b for a, b in wanted if a < half <= b}
    assert {(a, b + half) for b, a in across.items()} <= set(wanted)


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
    assert (pieces(a) == pieces(b)) is equal
    assert same_questions([a, b]) == ({1: 0} if equal else {})


def test_templates_mask_numbers():
    assert template("Ana has 3 shells.") == template("ana has 14 shells")
    assert template("Ana has 3 shells.") != template("Ben has 3 shells")


def test_nothing_is_similar_in_nothing():
    assert near_duplicates([]) == same_questions([]) == near_duplicates(["", "  "]) == {}
    assert same_questions(["", "  "]) == {1: 0}


@pytest.mark.slow
def test_the_course_does_not_leak():
    train, held = (load_problems(WORD_PROBLEMS[name]) for name in ("train", "heldout"))
    assert leaked_rows(train, held) == leaked_rows(held, train) == {}
    assert same_questions(train["question"]) == {}


def test_one_problem_ten_thousand_times_takes_one_comparison_a_row(monkeypatch):
    monkeypatch.setattr(duplicates, "COMPARED", 1)
    letters = str.maketrans("0123456789", "abcdefghij")
    made_up_words = [str(i).translate(letters) for i in range(10_000)]
    texts = [f"Is the word {word} a noun or is it a verb?" for word in made_up_words]
    assert list(near_duplicates(texts)) == list(range(1, 10_000))


def questions(*texts):
    return Dataset.from_list([{"question": t, "answer": "1"} for t in texts])


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
    with pytest.raises(WorkbookError):
        drop_leaked(train.select([0, 2]), held)


def test_a_leak_of_a_hundred_rows_is_found_whole():
    """150 near-copies to train on and 100 held out: more leakage is not less to report."""
    syllables = itertools.product("BDFGHKLMNP", "aeiou", ("ra", "li", "no", "tu", "ke"))
    names = ["".join(parts) for parts in syllables]
    text = "{} has 12 apples and buys 7 more apples at the market with a friend. How many now?"
    copies = [text.format(name) for name in names]
    other = [f"What is {i} plus {i * i}?" for i in range(100)]
    train, held = questions(*other, *copies[:150]), questions(*copies[150:])
    assert list(leaked_rows(train, held)) == list(range(100, 250))
    assert list(leaked_rows(held, train)) == list(range(100))
