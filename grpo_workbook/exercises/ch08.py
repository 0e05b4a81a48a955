"""The exercises of notebook 08_evaluation."""

from collections import Counter
from math import comb, sqrt

from grpo_workbook.exercises import exercise

NOTEBOOK = "08_evaluation"

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
    [
        (
            lambda n, right, k: 1 - (1 - right / n) ** k,
            "you drew with replacement: that formula is too low, because k different answers are chosen out of n",
        ),
        (
            lambda n, right, k: comb(right, k) / comb(n, k),
            "you counted the choices in which all k are right: one right answer is enough",
        ),
        (
            lambda n, right, k: min(1.0, k * right / n),
            "you multiplied one answer's chance by k: choices with two right answers are then counted twice",
        ),
        (
            lambda n, right, k: comb(n - right, k) / comb(n, k),
            "you gave the share with no right answer: take it from 1",
        ),
    ],
)


def _wilson(right, n, z=1.96):
    p = right / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def _schoolbook(right, n):
    p = right / n
    half = 1.96 * sqrt(p * (1 - p) / n)
    return p - half, p + half


def _not_moved(right, n):
    low, high = _wilson(right, n)
    return right / n - (high - low) / 2, right / n + (high - low) / 2


def _not_divided(right, n):
    p, z = right / n, 1.96
    centre = p + z * z / (2 * n)
    half = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return centre - half, centre + half


exercise(
    "08.2",
    "wilson",
    NOTEBOOK,
    lambda: [
        ((right, n), _wilson(right, n))
        for right, n in ((15, 30), (30, 30), (3, 30), (442, 480), (1, 7))
    ],
    [
        (
            _schoolbook,
            "that is the schoolbook interval p ± 1.96 deviations: for 30 of 30 it has no width at all, and it leaves "
            "0 to 1 near the ends",
        ),
        (
            _not_moved,
            "your half width is right, but you put it around p: Wilson's centre lies nearer to one half",
        ),
        (
            _not_divided,
            "you did not divide by 1 + z²/n: both the centre and the half width need it",
        ),
        (
            lambda right, n: _wilson(right, n, 1.645),
            "that is z = 1.645, the 90 % interval: 95 % in two tails needs 1.96",
        ),
    ],
)


def _tail(better, worse):
    m = better + worse
    return sum(comb(m, i) for i in range(min(better, worse) + 1)) / 2**m


def _normal(better, worse):
    from scipy.stats import chi2

    return float(chi2.sf((better - worse) ** 2 / (better + worse), 1)) if better + worse else 1.0


def _only_this(better, worse):
    m = better + worse
    return min(1.0, 2 * comb(m, better) / 2**m)


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
    [
        (
            lambda better, worse: min(1.0, _tail(better, worse)),
            "you looked in one direction only: training could have made it worse as well, so double the tail",
        ),
        (
            lambda better, worse: 2 * _tail(better, worse),
            "your p is above 1 where both counts are equal: the middle is in both tails, so cap it at 1",
        ),
        (
            _only_this,
            "you took the chance of this one outcome: p adds up all outcomes that are at least as far from even",
        ),
        (
            _normal,
            "that is the chi-squared approximation: with few changed problems it gives too small a p",
        ),
    ],
)


def _chances(n, share):
    return [comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(n + 1)]


def _gain(n, share, more, fits):
    chance = _chances(n, share)
    return sum(chance[i] * chance[j] for i in range(n + 1) for j in range(n + 1) if fits(j - i))


exercise(
    "08.4",
    "chance_of_gain",
    NOTEBOOK,
    lambda: [
        ((n, share, more), _gain(n, share, more, lambda d, more=more: d >= more))
        for n, share, more in (
            (30, 0.5, 3),
            (30, 0.7, 3),
            (4, 0.5, 1),
            (100, 0.5, 10),
            (30, 0.5, 0),
        )
    ],
    [
        (
            lambda n, share, more: _gain(n, share, more, lambda d: d > more),
            "you left out the gain of exactly `more`: at least means it counts",
        ),
        (
            lambda n, share, more: _gain(n, share, more, lambda d: abs(d) >= more),
            "you counted losses as well: only a second count that is higher looks like a gain",
        ),
        (
            lambda n, share, more: sum(
                c for i, c in enumerate(_chances(n, share)) if i >= n * share + more
            ),
            "you took the first count for certain: it is as much luck as the second, and the scatter of both adds up",
        ),
    ],
    tolerance=1e-5,
)


def _first_of_equal(answers):
    counts = Counter(a for a in answers if a is not None).most_common(1)
    return counts[0][0] if counts else None


def _none_votes(answers):
    counts = Counter(answers).most_common(2)
    return (
        None if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]) else counts[0][0]
    )


def _needs_half(answers):
    votes = [a for a in answers if a is not None]
    counts = Counter(votes).most_common(1)
    return counts[0][0] if counts and 2 * counts[0][1] > len(votes) else None


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
    [
        (
            _first_of_equal,
            "two answers are equally common and you took the first: a tie is no decision, so None",
        ),
        (_none_votes, "you let None vote: a completion without an answer abstains"),
        (
            _needs_half,
            "you asked for more than half of the votes: the commonest is enough, in [42, 41, 40, 42, 39] as well",
        ),
    ],
)
