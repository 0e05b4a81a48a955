"""The exercises of notebook 07_stages_and_curriculum."""

from math import sqrt
from statistics import mean, pvariance, variance

from grpo_workbook.exercises import Raises, exercise
from grpo_workbook.intervals import wilson_interval

NOTEBOOK = "07_stages_and_curriculum"


# 07.1 how large must a group be to speak?


def _speaks(rate, size):
    return 1 - rate**size - (1 - rate) ** size


def _smallest(rate, share, enough):
    """The first size from 2 on that is enough; ValueError where none can be."""
    if not 0 < rate < 1:
        raise ValueError(f"a rate of {rate}")
    return next(size for size in range(2, 10_000) if enough(rate, size, share))


def _right_size(rate, share):
    return _smallest(rate, share, lambda rate, size, share: _speaks(rate, size) >= share)


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
    [
        (
            lambda rate, share: _smallest(
                rate, share, lambda rate, size, share: 1 - (1 - rate) ** size >= share
            ),
            "you left out the groups that succeed as a whole: they are as silent as those that fail as a whole",
        ),
        (
            lambda rate, share: _smallest(
                rate, share, lambda rate, size, share: 1 - rate**size >= share
            ),
            "you left out the groups that fail as a whole: they are as silent as those that succeed as a whole",
        ),
        (
            lambda rate, share: _smallest(
                rate, share, lambda rate, size, share: _speaks(rate, size) > share
            ),
            "you asked for more than the share: at least the share is enough",
        ),
        (
            lambda rate, share: _right_size(rate, share) - 1,
            "you gave the last size that is too small: the next one is asked for",
        ),
        (
            lambda rate, share: _right_size(rate, share) if 0 < rate < 1 else 2,
            "you gave a size for a rate of 0 or 1: there every group is silent, however large. Raise ValueError",
        ),
    ],
)


# 07.2 which rows can still teach?


def _learnable(
    rates, low, high, order=lambda rate: -rate, inside=lambda r, low, high: low < r < high
):
    return sorted(
        (i for i, r in enumerate(rates) if inside(r, low, high)), key=lambda i: order(rates[i])
    )


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
    [
        (
            lambda rates, low, high: _learnable(
                rates, low, high, inside=lambda r, low, high: low <= r <= high
            ),
            "you kept rows at the bounds: with 0 and 1 that lets the hopeless and the mastered in",
        ),
        (
            lambda rates, low, high: _learnable(rates, low, high, order=lambda rate: rate),
            "you put the hardest first: a low pass rate is a hard row",
        ),
        (
            lambda rates, low, high: [rates[i] for i in _learnable(rates, low, high)],
            "you gave the pass rates: asked are the places of the rows",
        ),
        (
            lambda rates, low, high: [i for i, r in enumerate(rates) if low < r < high],
            "you left the rows in their order: the easiest should come first",
        ),
        (
            lambda rates, low, high: _learnable(rates, low, 2.0),
            "you forgot the upper bound: a mastered row is as silent as a hopeless one",
        ),
    ],
)


# 07.3 when to go on to the next stage


def _switch(counts, n, goal, bound=0):
    for step, right in enumerate(counts, 1):
        if wilson_interval([True] * right + [False] * (n - right))[bound] >= goal:
            return step
    return None


def _switch_by(counts, n, goal, low):
    return next((step for step, right in enumerate(counts, 1) if low(right / n) >= goal), None)


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
    [
        (
            lambda counts, n, goal: _switch_by(counts, n, goal, lambda p: p),
            "you compared the share itself: one lucky step is enough for it, so take the interval's lower end",
        ),
        (
            lambda counts, n, goal: _switch(counts, n, goal, bound=1),
            "you took the upper end: that says the goal is not ruled out, the lower end that it is reached",
        ),
        (
            lambda counts, n, goal: _switch_by(
                counts, n, goal, lambda p: p - 1.96 * sqrt(p * (1 - p) / n)
            ),
            "that is the schoolbook interval: 8 of 8 has no width in it, so eight completions would prove anything",
        ),
        (
            lambda counts, n, goal: (
                None if (step := _switch(counts, n, goal)) is None else step - 1
            ),
            "you counted from 0: the first step is 1",
        ),
    ],
)


# 07.4 how much do problems differ, once luck is taken off?


def _spread(
    rates, n, *, factor=True, root=True, variance=pvariance, luck=lambda p, n: p * (1 - p) / n
):
    if n < 2:
        raise ValueError(f"n = {n}")
    left = variance(rates) - luck(mean(rates), n)
    left = max(0.0, left * n / (n - 1) if factor else left)
    return sqrt(left) if root else left


exercise(
    "07.4",
    "real_spread",
    NOTEBOOK,
    [
        (([0.0, 0.5, 0.5, 1.0], 8), sqrt(0.75 / 7)),
        (([0.0, 1.0], 4), 0.5),
        (
            ([0.25, 0.75, 0.5, 0.875, 0.125, 0.0], 16),
            _spread([0.25, 0.75, 0.5, 0.875, 0.125, 0.0], 16),
        ),
        (([0.5, 0.5, 0.5], 8), 0.0),
        (([0.375, 0.5, 0.625], 8), 0.0),
        (([0.0, 1.0, 1.0], 1), Raises(ValueError)),
    ],
    [
        (
            lambda rates, n: _spread(rates, n, root=False),
            "you gave the variance: the deviation is its square root",
        ),
        (
            lambda rates, n: _spread(rates, n, factor=False),
            "you forgot n / (n - 1): where problems differ, luck's part is smaller than p (1 - p) / n",
        ),
        (
            lambda rates, n: _spread(rates, n, variance=variance),
            "you divided the variance by one less than the number of rates: pvariance divides by their number",
        ),
        (
            lambda rates, n: _spread(rates, n, luck=lambda p, n: p * (1 - p)),
            "you took off the luck of a single completion: over n of them its variance is p (1 - p) / n",
        ),
        (
            lambda rates, n: _spread(rates, n, luck=lambda p, n: 0.0, factor=False),
            "you gave the deviation as it was measured: luck is still in it",
        ),
        (
            lambda rates, n: _spread(rates, n) if n > 1 else _spread(rates, 2),
            "you gave a spread for one completion each: that is all luck or all difficulty, and nobody can tell. "
            "Raise ValueError",
        ),
    ],
)


# 07.5 the learning rate over stages


def _rates(stages, warmup):
    rates = []
    for steps, peak in stages:
        for i in range(steps):
            up = i / max(1, warmup)
            down = (steps - i) / max(1, steps - warmup)
            rates.append(peak * (up if i < warmup else down))
    return rates


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
    [
        (
            lambda stages, warmup: (
                _rates([(sum(n for n, _ in stages), stages[0][1])], warmup) if stages else []
            ),
            "you made one schedule over all steps: each stage has a trainer of its own, which warms up again",
        ),
        (
            lambda stages, warmup: _rates(stages, 0),
            "you forgot the warm-up: over its steps the rate rises from 0 to the peak",
        ),
        (
            lambda stages, warmup: [
                peak * ((i + 1) / max(1, warmup) if i < warmup else (n - i) / max(1, n - warmup))
                for n, peak in stages
                for i in range(n)
            ],
            "you counted from 1: the schedule begins at 0, so the first step of every stage moves nothing",
        ),
        (
            lambda stages, warmup: [
                peak * (i / max(1, warmup) if i < warmup else (n - i) / n)
                for n, peak in stages
                for i in range(n)
            ],
            "you let the rate fall from the stage's beginning: it falls from the end of the warm-up, where it is at "
            "its peak",
        ),
    ],
)
