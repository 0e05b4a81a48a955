"""The exercises of notebook 02_dataset_prep."""

import math

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "02_dataset_prep"

_ONE = [("1+1?", "2")]
_TWO = [("1+1?", "2"), ("2+3?", "5")]


def _messages(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def _always_a_system_turn(question, system, examples):
    shown = [pair for q, a in examples for pair in (("user", q), ("assistant", a))]
    return _messages(("system", system), *shown, ("user", question))


def _examples_from_the_user(question, system, examples):
    shown = [pair for q, a in examples for pair in (("user", q), ("user", a))]
    return _messages(*([("system", system)] if system else []), *shown, ("user", question))


def _examples_last(question, system, examples):
    shown = [pair for q, a in examples for pair in (("user", q), ("assistant", a))]
    return _messages(*([("system", system)] if system else []), ("user", question), *shown)


def _no_question(question, system, examples):
    return _examples_last(question, system, examples)[: (1 if system else 0)] + [
        m for q, a in examples for m in _messages(("user", q), ("assistant", a))
    ]


exercise(
    "02.1",
    "few_shot_prompt",
    NOTEBOOK,
    [
        (("2+2?", "Be brief.", []), _messages(("system", "Be brief."), ("user", "2+2?"))),
        (("2+2?", "", []), _messages(("user", "2+2?"))),
        (
            ("2+2?", "Be brief.", _ONE),
            _messages(
                ("system", "Be brief."), ("user", "1+1?"), ("assistant", "2"), ("user", "2+2?")
            ),
        ),
        (
            ("2+2?", "", _TWO),
            _messages(
                ("user", "1+1?"),
                ("assistant", "2"),
                ("user", "2+3?"),
                ("assistant", "5"),
                ("user", "2+2?"),
            ),
        ),
    ],
    [
        (
            _always_a_system_turn,
            "you wrote a system turn with no text: an empty one still costs tokens, and hides what the template adds",
        ),
        (
            _examples_from_the_user,
            "your examples are answered by the user: the answer that the model shall imitate is the assistant's",
        ),
        (
            _examples_last,
            "your question is not last: the model answers the last turn, and examples come before it",
        ),
        (
            _no_question,
            "you left out the question itself: it is the last turn, behind the examples",
        ),
    ],
)


def _after(solution, where):
    if "####" not in solution:
        raise ValueError
    return where(solution).replace(",", "").strip()


def _last_number(solution):
    import re

    if "####" not in solution:
        raise ValueError
    return re.findall(r"\d+", solution)[-1]


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
            lambda s: _after(s, lambda t: t.split("####")[1]),
            "you took what follows the first ####: the final answer follows the last one",
        ),
        (
            lambda s: _after(s.replace(",", "\x00"), lambda t: t.rsplit("####", 1)[1]).replace(
                "\x00", ","
            ),
            "you kept the comma: 1,200 and 1200 are the same number, so give it without thousands separators",
        ),
        (
            lambda s: s.rsplit("####", 1)[-1].replace(",", "").strip(),
            "you gave an answer where there is no ####: raise ValueError, so that the row is named and not trained on",
        ),
        (
            _last_number,
            "you took the last run of digits: a sign or a decimal point belongs to the number",
        ),
    ],
)


def _budget(lengths, share, rank):
    ordered = sorted(lengths)
    return ordered[min(len(ordered) - 1, max(0, rank(share * len(ordered))))]


def _interpolated(lengths, share):
    ordered = sorted(lengths)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return int(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


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
            lambda lengths, share: _budget(lengths, share, lambda x: int(x + 1e-9) - 1),
            "you rounded the number of prompts down: 0.6 of 4 prompts is 2.4, so two are too few and three must fit",
        ),
        (
            lambda lengths, share: _budget(lengths, share, lambda x: int(x + 1e-9)),
            "you are one place too far: the k-th smallest has index k - 1",
        ),
        (
            lambda lengths, share: _budget(lengths, share, lambda x: math.ceil(x) - 1),
            "0.55 * 100 is 55.000000000000007 in floats, and rounds up to 56: subtract 1e-9 before rounding up",
        ),
        (
            _interpolated,
            "you interpolated between two lengths: the budget must itself keep enough prompts",
        ),
        (
            lambda lengths, share: int(share * max(lengths)),
            "you took a share of the longest prompt: the share is one of the prompts, not of the tokens",
        ),
    ],
)


def _bag(text):
    return text.lower().split()


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
            lambda a, b: (
                len(set(a.split()) & set(b.split())) / max(1, len(set(a.split()) | set(b.split())))
                if a
                else 1.0
            ),
            "upper and lower case count in yours: Ana and ana are the same word",
        ),
        (
            lambda a, b: (
                len(set(_bag(a)) & set(_bag(b))) / min(len(set(_bag(a))), len(set(_bag(b))))
                if _bag(a) and _bag(b)
                else 1.0
            ),
            "you divided by the shorter text's words: then a single shared word makes a short text a perfect copy",
        ),
        (
            lambda a, b: (
                2
                * len(set(_bag(a)) & set(_bag(b)))
                / ((len(set(_bag(a))) + len(set(_bag(b)))) or 1)
                if a
                else 1.0
            ),
            "you divided by the words of both added up (Dice): Jaccard divides by those that occur in either",
        ),
        (
            lambda a, b: len(set(_bag(a)) & set(_bag(b))) / len(_bag(a) + _bag(b)) if a else 1.0,
            "you counted repeated words again and again: take sets, so that each different word counts once",
        ),
    ],
)


def _checked(share):
    if not 0 <= share < 1:
        raise ValueError


def _subtracted(measured, leaked_share):
    _checked(leaked_share)
    return measured - leaked_share


def _scaled(measured, leaked_share):
    _checked(leaked_share)
    return measured * (1 - leaked_share)


def _unchecked(measured, leaked_share):
    return 0.0 if leaked_share == 1 else (measured - leaked_share) / (1 - leaked_share)


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
            _subtracted,
            "you only took the leaked problems' points away: what is left was earned on fewer problems, so divide by "
            "their share",
        ),
        (
            _scaled,
            "you scaled the whole score down: only the leaked problems' points are undeserved",
        ),
        (
            _unchecked,
            "you let an impossible share through: from 1 on there is no honest problem left, so raise ValueError",
        ),
    ],
)


def _with_rest(sizes, count, order):
    total = sum(sizes)
    quotas = [count * size // total for size in sizes]
    for i in order(sizes, count)[: count - sum(quotas)]:
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
            lambda sizes, count: _with_rest(
                sizes, count, lambda s, c: sorted(range(len(s)), key=lambda i: -s[i])
            ),
            "you gave the rest to the largest strata: it goes where rounding down took most away",
        ),
        (
            lambda sizes, count: _with_rest(
                sizes, count, lambda s, c: sorted(range(len(s)), key=lambda i: c * s[i] % sum(s))
            ),
            "you gave the rest where rounding down took least away: it goes where it took most",
        ),
        (
            lambda sizes, count: _with_rest(
                sizes, count, lambda s, c: sorted(range(len(s)), key=lambda i: s[i])
            ),
            "you gave the rest to the smallest strata: it goes where rounding down took most away",
        ),
        (
            lambda sizes, count: _with_rest(sizes, count, lambda s, c: list(range(len(s)))),
            "you gave the rest to the first strata: it goes where rounding down took most away",
        ),
    ],
)
