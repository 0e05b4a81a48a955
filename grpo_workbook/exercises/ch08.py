"""The exercises of notebook 08_evaluation."""

from collections import Counter
from math import comb, sqrt

from grpo_workbook.exercises import exercise

NOTEBOOK = "08_evaluation"

# 08.1 pass@k

exercise(
    "08.1",
    "pass_at_k",
    NOTEBOOK,
    [
        ((4, 1, 2), 0.5),
        ((5, 2, 3), 0.9),
        ((8, 3, 1), 0.375),
        ((10, 0, 5), 0.0),
        ((4, 3, 2), 1.0),
        ((200, 10, 10), 1 - comb(190, 10) / comb(200, 10)),
    ],
    {
        "you drew with replacement: that is too low, for k different answers are chosen out of n":
        lambda n, right, k: 1 - (1 - right / n) ** k,
        "you counted the choices in which all k are right: one right answer is enough":
        lambda n, right, k: comb(right, k) / comb(n, k),
        "you multiplied one answer's rate by k: choices with two right answers count twice then":
        lambda n, right, k: min(1.0, k * right / n),
        "you gave the fraction with no right answer: take it from 1":
        lambda n, right, k: comb(n - right, k) / comb(n, k),
    },
)  # fmt: skip

# 08.2 Wilson's interval


def _wilson(right, n, z=1.96, moved=True, divisor=None):
    p, d = right / n, divisor or 1 + z * z / n
    centre = (p + z * z / (2 * n)) / d if moved else p
    half = z / d * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def _schoolbook(right, n):
    half = 1.96 * sqrt(right / n * (1 - right / n) / n)
    return right / n - half, right / n + half


exercise(
    "08.2",
    "wilson",
    NOTEBOOK,
    [((r, n), _wilson(r, n)) for r, n in ((15, 30), (30, 30), (3, 30), (442, 480), (1, 7))],
    {
        "that is the schoolbook interval p ± 1.96 deviations: for 30 of 30 it has no width, and it "
        "leaves 0 to 1 near the ends": _schoolbook,
        "your half width is right, but you put it around p: Wilson's centre is nearer to one half":
        lambda right, n: _wilson(right, n, moved=False),
        "you did not divide by 1 + z²/n: both the centre and the half width need it":
        lambda right, n: _wilson(right, n, divisor=1),
        "that is z = 1.645, the 90 % interval: 95 % in two tails needs 1.96":
        lambda right, n: _wilson(right, n, 1.645),
    },
)  # fmt: skip

# 08.3 McNemar's exact test


def _tail(better, worse):
    m = better + worse
    return sum(comb(m, i) for i in range(min(better, worse) + 1)) / 2**m


def _normal(better, worse):
    from scipy.stats import chi2

    return float(chi2.sf((better - worse) ** 2 / (better + worse), 1)) if better + worse else 1.0


exercise(
    "08.3",
    "mcnemar",
    NOTEBOOK,
    [
        ((6, 1), 0.125),
        ((1, 6), 0.125),
        ((10, 0), 2 / 1024),
        ((3, 3), 1.0),
        ((0, 0), 1.0),
        ((15, 4), 2 * (1 + 19 + 171 + 969 + 3876) / 2**19),
    ],
    {
        "you looked in one direction only: training could have made it worse as well, so double "
        "the tail": lambda better, worse: min(1.0, _tail(better, worse)),
        "your p is above 1 where both counts are equal: the middle is in both tails, cap it at 1":
        lambda better, worse: 2 * _tail(better, worse),
        "you took the chance of this one outcome: p adds up all that are at least as far from even":
        lambda better, worse: min(1.0, 2 * comb(better + worse, better) / 2 ** (better + worse)),
        "that is the chi-squared approximation: with few changed problems it gives too small a p":
        _normal,
    },
)  # fmt: skip

# 08.4 a gain by chance


def _chances(n, rate):
    return [comb(n, i) * rate**i * (1 - rate) ** (n - i) for i in range(n + 1)]


def _gain(n, rate, fits):
    chances = list(enumerate(_chances(n, rate)))
    return sum(a * b for i, a in chances for j, b in chances if fits(j - i))


exercise(
    "08.4",
    "chance_of_gain",
    NOTEBOOK,
    lambda: [
        ((n, rate, more), _gain(n, rate, lambda d, more=more: d >= more))
        for n, rate, more in ((30, 0.5, 3), (30, 0.7, 3), (4, 0.5, 1), (100, 0.5, 10), (30, 0.5, 0))
    ],
    {
        "you left out the gain of exactly `more`: at least means it counts":
        lambda n, rate, more: _gain(n, rate, lambda d: d > more),
        "you counted losses as well: only a second count that is higher looks like a gain":
        lambda n, rate, more: _gain(n, rate, lambda d: abs(d) >= more),
        "you took the first count for certain: it is as much luck as the second, and both scatter":
        lambda n, rate, more: sum(_chances(n, rate)[-int(-(n * rate + more) // 1) :]),
    },
    tolerance=1e-5,
)  # fmt: skip

# 08.5 majority vote


def _vote(answers, abstain=True, tie=lambda counts: None):
    counts = Counter(a for a in answers if a is not None or not abstain).most_common(2)
    tied = len(counts) == 2 and counts[0][1] == counts[1][1]
    return tie(counts) if tied else counts[0][0] if counts else None


def _needs_half(answers):
    votes = [a for a in answers if a is not None]
    return next((a for a in votes if 2 * votes.count(a) > len(votes)), None)


exercise(
    "08.5",
    "vote",
    NOTEBOOK,
    [
        ((["42", "41", "42"],), "42"),
        ((["41", "42"],), None),
        (([None, None, "42"],), "42"),
        ((["42", "41", "40", "42", "39"],), "42"),
        (([None, None],), None),
        (([],), None),
        ((["1", "2", "2", "1", "3"],), None),
    ],
    {
        "two answers are equally common and you took the first: a tie is no decision, so None":
        lambda answers: _vote(answers, tie=lambda counts: counts[0][0]),
        "you let None vote: a completion without an answer abstains":
        lambda answers: _vote(answers, abstain=False),
        "you asked for more than half of the votes: the commonest is enough, in "
        "[42, 41, 40, 42, 39] as well": _needs_half,
    },
)  # fmt: skip
