"""The exercises of notebook 02_dataset_prep."""

import math
import re

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "02_dataset_prep"


def _talk(*texts, system="", roles=("user", "assistant")):
    turns = [(roles[i % 2], text) for i, text in enumerate(texts)]
    opening = [("system", system)] if system is not None and system != "" else []
    return [{"role": role, "content": text} for role, text in [*opening, *turns]]


def _flat(examples):
    return [text for pair in examples for text in pair]


_ONE, _TWO = [("1+1?", "2")], [("1+1?", "2"), ("2+3?", "5")]
exercise(
    "02.1",
    "few_shot_prompt",
    NOTEBOOK,
    [
        (("2+2?", "Be brief.", []), _talk("2+2?", system="Be brief.")),
        (("2+2?", "", []), _talk("2+2?")),
        (("2+2?", "Be brief.", _ONE), _talk("1+1?", "2", "2+2?", system="Be brief.")),
        (("2+2?", "", _TWO), _talk("1+1?", "2", "2+3?", "5", "2+2?")),
    ],
    [
        (
            lambda q, system, ex: [{"role": "system", "content": system}, *_talk(*_flat(ex), q)],
            "you wrote an empty system turn: it costs tokens, and hides what the template adds",
        ),
        (
            lambda q, system, ex: _talk(*_flat(ex), q, system=system, roles=("user", "user")),
            "your examples are answered by the user: what the model imitates is the assistant's",
        ),
        (
            lambda q, system, ex: _talk(q, system=system) + _talk(*_flat(ex)),
            "your question is not last: the model answers the last turn, and examples come before",
        ),
        (
            lambda q, system, ex: _talk(*_flat(ex), system=system),
            "you left out the question itself: it is the last turn, behind the examples",
        ),
    ],
)


def _behind(solution, part=-1, comma=""):
    if "####" not in solution:
        raise ValueError
    return solution.split("####")[part].replace(",", comma).strip()


exercise(
    "02.2",
    "final_answer",
    NOTEBOOK,
    [
        (("2 + 3 = 5\n#### 5",), "5"),
        (("1000 + 200 = 1200\n#### 1,200",), "1200"),
        (("Mark each step with #### at its end.\n4 - 9 = -5\n#### -5 ",), "-5"),
        (("3 / 4 = 0.75\n#### 0.75",), "0.75"),
        (("The answer is 5.",), Raises(ValueError)),
        (("",), Raises(ValueError)),
    ],
    [
        (
            lambda solution: _behind(solution, part=1),
            "you took what follows the first ####: the final answer follows the last one",
        ),
        (
            lambda solution: _behind(solution, comma=","),
            "you kept the comma: 1,200 and 1200 are one number, so give it without separators",
        ),
        (
            lambda solution: _behind("####" + solution),
            "you gave an answer where there is no ####: raise ValueError, so that the row is named",
        ),
        (
            lambda solution: _behind(solution) and re.findall(r"\d+", solution)[-1],
            "you took the last run of digits: a sign or a decimal point belongs to the number",
        ),
    ],
)


def _budget(lengths, share, rank):
    ordered = sorted(lengths)
    return ordered[min(len(ordered) - 1, max(0, rank(share * len(ordered))))]


def _interpolated(lengths, share):
    ordered, place = sorted(lengths), share * (len(lengths) - 1)
    low, high = ordered[int(place)], ordered[math.ceil(place)]
    return int(low + (place - int(place)) * (high - low))


exercise(
    "02.3",
    "budget_for",
    NOTEBOOK,
    [
        (([10, 20, 30, 40], 0.5), 20),
        (([40, 10, 30, 20], 0.75), 30),
        (([10, 20, 30, 40], 0.6), 30),
        (([5, 5, 5, 90], 0.75), 5),
        (([5, 5, 5, 90], 1.0), 90),
        (([7], 0.9), 7),
        ((list(range(1, 101)), 0.55), 55),  # 0.55 * 100 is a little more than 55 in floats
    ],
    [
        (
            lambda lengths, rate: _budget(lengths, rate, lambda x: int(x + 1e-9) - 1),
            "you rounded the number of prompts down: 0.6 of 4 prompts is 2.4, so three must fit",
        ),
        (
            lambda lengths, rate: _budget(lengths, rate, lambda x: int(x + 1e-9)),
            "you are one place too far: the k-th smallest has index k - 1",
        ),
        (
            lambda lengths, rate: _budget(lengths, rate, lambda x: math.ceil(x) - 1),
            "0.55 * 100 is 55.000000000000007 in floats, and rounds up to 56: subtract 1e-9 first",
        ),
        (
            _interpolated,
            "you interpolated between two lengths: the budget must itself keep enough prompts",
        ),
    ],
)


def _overlap(a, b, divisor, bag=lambda text: set(text.lower().split())):
    a, b = bag(a), bag(b)
    return len(set(a) & set(b)) / divisor(a, b) if a and b else 1.0


exercise(
    "02.4",
    "word_overlap",
    NOTEBOOK,
    [
        (("Ana has 3 red shells", "Ben has 3 red shells"), 4 / 6),
        (("ana HAS shells", "Ana has shells"), 1.0),
        (("one two", "three four"), 0.0),
        (("a a a b", "a b b b"), 1.0),
        (("red", "red shells and blue shells"), 0.25),
        (("", ""), 1.0),
    ],
    [
        (
            lambda a, b: _overlap(a, b, lambda a, b: len(a | b), bag=lambda t: set(t.split())),
            "upper and lower case count in yours: Ana and ana are the same word",
        ),
        (
            lambda a, b: _overlap(a, b, lambda a, b: min(len(a), len(b))),
            "you divided by the shorter text's words: one common word makes a short text a copy",
        ),
        (
            lambda a, b: _overlap(a, b, lambda a, b: (len(a) + len(b)) / 2),
            "you divided by the words of both added up (Dice): Jaccard divides by those in either",
        ),
        (
            lambda a, b: _overlap(a, b, lambda a, b: len(a + b), lambda t: t.lower().split()),
            "you counted repeated words again and again: take sets, each different word once",
        ),
    ],
)


def _score(measured, leaked, formula):
    if not 0 <= leaked < 1:
        raise ValueError
    return formula(measured, leaked)


exercise(
    "02.5",
    "honest_score",
    NOTEBOOK,
    [
        ((0.5, 0.0), 0.5),
        ((0.55, 0.1), 0.5),
        ((0.6, 0.5), 0.2),
        ((0.25, 0.25), 0.0),
        ((1.0, 0.3), 1.0),
        ((1.0, 1.0), Raises(ValueError)),
        ((0.9, -0.1), Raises(ValueError)),
    ],
    [
        (
            lambda measured, leaked: _score(measured, leaked, lambda m, rate: m - rate),
            "you only took the leaked points away: the rest came from fewer problems, so divide",
        ),
        (
            lambda measured, leaked: _score(measured, leaked, lambda m, rate: m * (1 - rate)),
            "you scaled the whole score down: only the leaked problems' points are undeserved",
        ),
        (
            lambda m, rate: 0.0 if rate == 1 else (m - rate) / (1 - rate),
            "you let an impossible rate through: from 1 on no honest problem is left: ValueError",
        ),
    ],
)


def _quotas(sizes, count, order):
    quotas = [count * size // sum(sizes) for size in sizes]
    for i in sorted(range(len(sizes)), key=order)[: count - sum(quotas)]:
        quotas[i] += 1
    return quotas


exercise(
    "02.6",
    "stratified_quotas",
    NOTEBOOK,
    [
        (([90, 10], 10), [9, 1]),
        (([50, 30, 20], 10), [5, 3, 2]),
        (([50, 30, 20], 7), [4, 2, 1]),
        (([14, 43, 43], 10), [2, 4, 4]),
        (([55, 25, 20], 6), [3, 2, 1]),
        (([4, 4, 92], 10), [1, 0, 9]),
        (([10], 3), [3]),
    ],
    [
        (
            lambda sizes, count: [count * size // sum(sizes) for size in sizes],
            "you rounded down and stopped: the quotas must add up to count, so hand out the rest",
        ),
        (
            lambda sizes, count: [round(count * size / sum(sizes)) for size in sizes],
            "you rounded each by itself: then the sum may miss count by one or more",
        ),
        (
            lambda sizes, count: _quotas(sizes, count, lambda i: -sizes[i]),
            "you gave the rest to the largest strata: it goes where rounding down took most away",
        ),
        (
            lambda sizes, count: _quotas(sizes, count, lambda i: count * sizes[i] % sum(sizes)),
            "you gave the rest where rounding down took least away: it goes where it took most",
        ),
        (
            lambda sizes, count: _quotas(sizes, count, lambda i: 0),
            "you gave the rest to the first strata: it goes where rounding down took most away",
        ),
    ],
)
