"""The exercises of notebook 07_stages_and_curriculum."""

from math import sqrt

from grpo_workbook.checks import Raises, exercise
from grpo_workbook.intervals import wilson_interval

NOTEBOOK = "07_stages_and_curriculum"


# 07.1 how many groups say nothing?


def _share(groups, silent):
    return sum(map(silent, groups)) / len(groups)


_GROUPS = [[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0], [0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.5]]
exercise(
    "07.1",
    "silent_share",
    NOTEBOOK,
    [
        ((_GROUPS,), 0.6),
        (([[1.0, 1.0], [0.0, 1.0]],), 0.5),
        (([[-1.0, 1.0], [0.0, 2.0]],), 0.0),
        (([[0.25, 0.25, 0.25]],), 1.0),
        (([],), Raises(ValueError)),
    ],
    [
        (
            lambda groups: _share(groups, lambda g: sum(g) == 0) if groups else _share_of_none(),
            "you looked at the sum: -1 and 1 add up to 0 and say a lot",
        ),
        (
            lambda groups: _share(groups, lambda g: not any(g)) if groups else _share_of_none(),
            "you counted groups that earn nothing: one in which all earn the same is silent too, however much",
        ),
        (
            lambda groups: sum(len(set(g)) == 1 for g in groups) if groups else _share_of_none(),
            "you gave the number of silent groups: divide it by the number of groups",
        ),
        (
            lambda groups: _share(groups, lambda g: len(set(g)) > 1) if groups else _share_of_none(),
            "you gave the share of the groups that speak",
        ),
        (
            lambda groups: _share(groups, lambda g: len(set(g)) == 1) if groups else 0.0,
            "you gave 0 for no groups at all, as if all of them spoke: raise ValueError",
        ),
    ],
)


def _share_of_none():
    raise ValueError


# 07.2 which rows can still teach?


def _learnable(rates, low, high, order=lambda rate: -rate, inside=lambda r, low, high: low < r < high):
    return sorted((i for i, r in enumerate(rates) if inside(r, low, high)), key=lambda i: order(rates[i]))


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
            lambda rates, low, high: _learnable(rates, low, high, inside=lambda r, low, high: low <= r <= high),
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
            lambda counts, n, goal: _switch_by(counts, n, goal, lambda p: p - 1.96 * sqrt(p * (1 - p) / n)),
            "that is the schoolbook interval: 8 of 8 has no width in it, so eight completions would prove anything",
        ),
        (
            lambda counts, n, goal: None if (step := _switch(counts, n, goal)) is None else step - 1,
            "you counted from 0: the first step is 1",
        ),
    ],
)


# 07.4 a weight that fades


def _weights(shares, at_zero, at_one, memory):
    rate, weights = 0.0, []
    for share in shares:
        weights.append(at_zero + (at_one - at_zero) * rate)
        rate = memory * rate + (1 - memory) * share
    return weights


def _updated_first(shares, at_zero, at_one, memory):
    return _weights([*shares, 0.0], at_zero, at_one, memory)[1:]


exercise(
    "07.4",
    "adaptive_weights",
    NOTEBOOK,
    [
        (([0.5, 1.0, 1.0], 1.0, 0.2, 0.5), [1.0, 0.8, 0.5]),
        (([0.0, 0.4, 0.8, 0.9], 1.0, 0.0, 0.9), _weights([0.0, 0.4, 0.8, 0.9], 1.0, 0.0, 0.9)),
        (([1.0, 1.0], 0.0, 1.0, 0.75), [0.0, 0.25]),
        (([], 1.0, 0.0, 0.5), []),
    ],
    [
        (
            _updated_first,
            "you updated the rate before paying: a batch would then be paid by its own success",
        ),
        (
            lambda shares, at_zero, at_one, memory: _weights(shares, at_zero, at_one, 1 - memory),
            "you swapped memory and 1 - memory: memory is what stays of the old rate",
        ),
        (
            lambda shares, at_zero, at_one, memory: _weights(shares, at_one, at_zero, memory),
            "you swapped the ends: at_zero is the weight while nothing is right",
        ),
        (
            lambda shares, at_zero, at_one, memory: _weights(shares, at_zero, at_one, 0.0),
            "you forgot the memory: the weight then jumps with every batch",
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
            lambda stages, warmup: _rates([(sum(n for n, _ in stages), stages[0][1])], warmup) if stages else [],
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
                peak * (i / max(1, warmup) if i < warmup else (n - i) / n) for n, peak in stages for i in range(n)
            ],
            "you let the rate fall from the stage's beginning: it falls from the end of the warm-up, where it is at "
            "its peak",
        ),
    ],
)
