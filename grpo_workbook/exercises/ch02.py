"""The exercises of notebook 02_dataset_prep."""

import math
import random
from collections import Counter

from grpo_workbook.exercises import Raises, exercise, experiment


def _budget(lengths, rate, rank):
    ordered = sorted(lengths)
    return ordered[min(len(ordered) - 1, max(0, rank(rate * len(ordered))))]


def _interpolated(lengths, rate):
    ordered, place = sorted(lengths), rate * (len(lengths) - 1)
    low, high = ordered[int(place)], ordered[math.ceil(place)]
    return int(low + (place - int(place)) * (high - low))


exercise("02.1", "budget_for", [
    (([10, 20, 30, 40], 0.5), 20),
    (([40, 10, 30, 20], 0.75), 30),
    (([10, 20, 30, 40], 0.6), 30),
    (([5, 5, 5, 90], 0.75), 5),
    (([5, 5, 5, 90], 1.0), 90),
    (([7], 0.9), 7),
    ((list(range(1, 101)), 0.55), 55),  # 0.55 * 100 is a little more than 55 in floats
], {
    "you rounded the number of prompts down: 0.6 of 4 prompts is 2.4, so three must fit":
        lambda lengths, rate: _budget(lengths, rate, lambda x: int(x + 1e-9) - 1),
    "you are one place too far: the k-th smallest has index k - 1":
        lambda lengths, rate: _budget(lengths, rate, lambda x: int(x + 1e-9)),
    "0.55 * 100 is 55.000000000000007 in floats, and rounds up to 56: subtract 1e-9 first":
        lambda lengths, rate: _budget(lengths, rate, lambda x: math.ceil(x) - 1),
    "you interpolated between two lengths: the budget must itself keep enough prompts":
        _interpolated,
})  # fmt: skip


def _score(measured, leaked, formula):
    if not 0 <= leaked < 1:
        raise ValueError
    return formula(measured, leaked)


exercise("02.2", "honest_score", [
    ((0.5, 0.0), 0.5),
    ((0.55, 0.1), 0.5),
    ((0.6, 0.5), 0.2),
    ((0.25, 0.25), 0.0),
    ((1.0, 0.3), 1.0),
    ((1.0, 1.0), Raises(ValueError)),
    ((0.9, -0.1), Raises(ValueError)),
], {
    "you only took the leaked points away: the rest came from fewer problems, so divide":
        lambda measured, leaked: _score(measured, leaked, lambda m, rate: m - rate),
    "you scaled the whole score down: only the leaked problems' points are undeserved":
        lambda measured, leaked: _score(measured, leaked, lambda m, rate: m * (1 - rate)),
    "you let an impossible rate through: from 1 on no honest problem is left: ValueError":
        lambda m, rate: 0.0 if rate == 1 else (m - rate) / (1 - rate),
})  # fmt: skip


def _other_template(measured):
    before, after = measured["before"], measured["after"]
    said = f"The number was right in {before:.0%} of the answers before and {after:.0%} after."
    kept = after / max(before, 1e-9)  # of 160 answers, a change by a fifth may still be chance
    return "about as often" if kept > 0.8 else "less often" if kept > 0.4 else "hardly ever", said


experiment("02.3", "other_template", _other_template, {
    "about as often": "A few unknown tokens in front of the answer are enough to mislead it.",
    "less often": "Look at some answers of both kinds: how far is the change from training?",
    "hardly ever": "This change was not so far from what the model was trained on.",
}, [  # the template of Qwen3; no system message; the model's own template
    ({"before": 0.7125, "after": 0.05625}, "hardly ever"),
    ({"before": 0.7125, "after": 0.5}, "less often"),
    ({"before": 0.7125, "after": 0.7125}, "about as often"),
])  # fmt: skip


def _one_problem(measured):
    before, after, zero = (measured[name] for name in ("before", "after", "zero"))
    same = 0.11  # two standard errors of a difference of two rates of 160 problems, at most
    said = f"Strictly right on other problems: {before:.0%} before, {after:.0%} after. In the last "
    said += f"step {zero[-1]:.0%} of the groups had zero variance (in the first {zero[0]:.0%})."
    moved = after - before
    return "rises" if moved > same else "falls" if moved < -same else "stays", said


experiment("02.4", "one_problem", _one_problem, {
    "rises": "The model learned this one problem and nothing that helps with the rest.",
    "stays": "What one problem teaches need not be about that problem: look at the form.",
    "falls": "The form is the same for all problems, and the reward stops once it is right.",
}, [({"before": 0.1625, "after": 0.7, "zero": [0.0, 1.0]}, "rises")])  # fmt: skip


def _valid(rows):
    from grpo_workbook.data import load_problems

    return len(load_problems(rows, answers="text")) == len(rows)


def _apart(rows):
    from grpo_workbook.data.duplicates import near_duplicates, same_questions

    questions = [row["question"] for row in rows]
    return not near_duplicates(questions) and not same_questions(questions)


_FACTS = {
    "64 rows or more": lambda rows: len(rows) >= 64,
    "a question and an answer, both texts, in each row": _valid,
    "no row repeats another, or nearly so": _apart,
    "no answer is right for more than a fifth": lambda rows: (
        5 * Counter(row["answer"] for row in rows).most_common(1)[0][1] <= len(rows)
    ),
}


def _sums(count=64, most=1000, answer=str):
    pairs = [random.Random(i).sample(range(most), 2) for i in range(count)]
    return [{"question": f"What is {a} plus {b}?", "answer": answer(a + b)} for a, b in pairs]


exercise("02.5", "my_rows", [((fact,), True) for fact in _FACTS], {
    "these are too few rows: below 64 a model memorizes them": lambda: _sums(20),
    "rows repeat: sample without repetition, from a larger range of numbers or words":
        lambda: _sums(64, 6),
    "one answer is right too often: a model that always gives it earns a reward by luck":
        lambda: _sums(answer=lambda n: "yes" if n % 2 else "no"),
    "an answer is not a text: write numbers as texts too, as in a file":
        lambda: _sums(answer=lambda n: ["yes"]),
}, call=lambda fn, fact: _FACTS[fact](fn()))  # fmt: skip
