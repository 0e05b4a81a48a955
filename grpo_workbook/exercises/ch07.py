"""The exercises of notebook 07_stages_and_curriculum."""

from math import sqrt
from statistics import mean, pvariance, variance

from grpo_workbook.exercises import Raises, exercise
from grpo_workbook.statistics import wilson_interval

NOTEBOOK = "07_stages_and_curriculum"


# 07.1 how large must a group be to teach?


def _teaches(rate, size):
    return 1 - rate**size - (1 - rate) ** size


def _smallest(rate, enough):
    """The first size from 2 on that is enough; ValueError where none can be."""
    if not 0 < rate < 1:
        raise ValueError(f"a rate of {rate}")
    return next(size for size in range(2, 10_000) if enough(size))


def _right_size(rate, wanted):
    return _smallest(rate, lambda size: _teaches(rate, size) >= wanted)


exercise(
    "07.1",
    "smallest_group",
    NOTEBOOK,
    [
        ((0.5, 0.8), 4),
        ((0.5, 0.5), 2),
        ((0.05, 0.5), 14),
        ((0.75, 0.9), 9),
        ((0.0, 0.5), Raises(ValueError)),
        ((1.0, 0.5), Raises(ValueError)),
    ],
    {
        "you left out the groups that succeed as a whole: they have no variance either":
            lambda rate, wanted: _smallest(rate, lambda size: 1 - (1 - rate) ** size >= wanted),
        "you left out the groups that fail as a whole: they have no variance either":
            lambda rate, wanted: _smallest(rate, lambda size: 1 - rate**size >= wanted),
        "you asked for more than the wanted fraction: that much is enough":
            lambda rate, wanted: _smallest(rate, lambda size: _teaches(rate, size) > wanted),
        "you gave the last size that is too small: the next one is asked for":
            lambda rate, wanted: _right_size(rate, wanted) - 1,
        "you gave a size for a rate of 0 or 1, where no group has variance: raise ValueError":
            lambda rate, wanted: _right_size(rate, wanted) if 0 < rate < 1 else 2,
    },
)  # fmt: skip


# 07.2 which rows can still teach?


def _learnable(rates, low, high, key=lambda rate: -rate, inside=lambda r, a, b: a < r < b):
    kept = [i for i, rate in enumerate(rates) if inside(rate, low, high)]
    return sorted(kept, key=lambda i: key(rates[i]))


exercise(
    "07.2",
    "keep_learnable",
    NOTEBOOK,
    [
        (([0.0, 0.5, 1.0, 0.25, 0.875], 0.0, 1.0), [4, 1, 3]),
        (([0.125, 0.5, 0.5, 0.75, 0.875, 1.0, 0.0], 0.125, 0.875), [3, 1, 2]),
        (([0.0, 1.0, 1.0], 0.0, 1.0), []),
        (([0.25], 0.0, 0.5), [0]),
    ],
    {
        "you kept rows at the bounds: with 0 and 1 that lets the hopeless and the mastered in":
            lambda *given: _learnable(*given, inside=lambda r, a, b: a <= r <= b),
        "you put the hardest first: a low pass rate is a hard row":
            lambda *given: _learnable(*given, key=lambda rate: rate),
        "you gave the pass rates: asked are the indices of the rows":
            lambda rates, low, high: [ rates[i] for i in _learnable(rates, low, high) ],
        "you left the rows in their order: the easiest should come first":
            lambda *given: _learnable(*given, key=lambda rate: 0),
        "you forgot the upper bound: a mastered row teaches as little as a hopeless one":
            lambda rates, low, high: _learnable(rates, low, 2.0),
    },
)  # fmt: skip


# 07.3 when to go on to the next stage


def _switch(counts, n, goal, end):
    return next((step for step, right in enumerate(counts, 1) if end(right, n) >= goal), None)


def _schoolbook(right, n):
    return right / n - 1.96 * sqrt(right / n * (1 - right / n) / n)


def _wilson(right, n):
    return wilson_interval([True] * right + [False] * (n - right))


exercise(
    "07.3",
    "switch_step",
    NOTEBOOK,
    [
        (([30, 49, 52, 58, 62], 64, 0.8), 4),
        (([10, 20, 30], 64, 0.8), None),
        (([8, 7, 8], 8, 0.9), None),
        (([64], 64, 0.9), 1),
        (([], 64, 0.5), None),
    ],
    {
        "you compared the rate itself, which may be luck: take the interval's lower end":
            lambda *given: _switch(*given, lambda right, n: right / n),
        "you took the upper end: it only says that the goal is not ruled out":
            lambda *given: _switch(*given, lambda right, n: _wilson(right, n)[1]),
        "that is the schoolbook interval, in which 8 of 8 has no width and proves anything":
            lambda *given: _switch(*given, _schoolbook),
        "you counted from 0: the first step is 1, and where there is none, give None":
            lambda *given: (_switch(*given, lambda right, n: _wilson(right, n)[0]) or 1) - 1,
    },
)  # fmt: skip


# 07.4 how much do problems differ, once luck is taken off?


def _spread(rates, n, variance=pvariance, luck=lambda p, n: p * (1 - p) / n, factor=True):
    if n < 2:
        raise ValueError(f"n = {n}")
    left = variance(rates) - luck(mean(rates), n)
    return sqrt(max(0.0, left * n / (n - 1) if factor else left))


SIX = [0.25, 0.75, 0.5, 0.875, 0.125, 0.0]
exercise(
    "07.4",
    "real_spread",
    NOTEBOOK,
    [
        (([0.0, 0.5, 0.5, 1.0], 8), sqrt(0.75 / 7)),
        (([0.0, 1.0], 4), 0.5),
        ((SIX, 16), _spread(SIX, 16)),
        (([0.5, 0.5, 0.5], 8), 0.0),
        (([0.375, 0.5, 0.625], 8), 0.0),
        (([0.0, 1.0, 1.0], 1), Raises(ValueError)),
    ],
    {
        "you gave the variance: the deviation is its square root":
            lambda rates, n: _spread(rates, n) ** 2,
        "you forgot n / (n - 1): where problems differ, luck is less than p (1 - p) / n":
            lambda rates, n: _spread(rates, n, factor=False),
        "you divided by one less than the number of rates: pvariance divides by their number":
            lambda rates, n: _spread(rates, n, variance),
        "you took off the luck of one completion: of n the variance is p (1 - p) / n":
            lambda rates, n: _spread(rates, n, luck=lambda p, n: p * (1 - p)),
        "you gave the deviation as it was measured: luck is still in it":
            lambda rates, n: _spread(rates, n, luck=lambda p, n: 0.0, factor=False),
        "you gave a spread for one completion each, where nobody can tell: raise ValueError":
            lambda rates, n: _spread(rates, max(2, n)),
    },
)  # fmt: skip


# 07.5 the learning rate over stages


def _rates(stages, warmup, first=0, fall_from=None):
    """`first` is the first step's number, `fall_from` where the fall begins."""
    start = warmup if fall_from is None else fall_from
    return [
        peak * ((i + first) / warmup if i < warmup else (n - i) / max(1, n - start))
        for n, peak in stages
        for i in range(n)
    ]


exercise(
    "07.5",
    "learning_rates",
    NOTEBOOK,
    [
        (([(4, 1.0), (6, 0.5)], 2), _rates([(4, 1.0), (6, 0.5)], 2)),
        (([(5, 1e-3)], 0), _rates([(5, 1e-3)], 0)),
        (([(8, 1e-3), (12, 1e-3)], 5), _rates([(8, 1e-3), (12, 1e-3)], 5)),
        (([], 5), []),
    ],
    {
        "you made one schedule over all steps: each stage's trainer warms up again":
            lambda stages, warmup: _rates(
                [(sum(n for n, _ in stages), stages[0][1])] if stages else [], warmup
            ),
        "you forgot the warm-up: over its steps the rate rises from 0 to the peak":
            lambda stages, warmup: _rates(stages, 0),
        "you counted from 1: the schedule begins at 0, and the first step moves nothing":
            lambda stages, warmup: _rates(stages, warmup, first=1),
        "you let the rate fall from the stage's beginning: it falls from the warm-up's end":
            lambda stages, warmup: _rates(stages, warmup, fall_from=0),
    },
)  # fmt: skip
