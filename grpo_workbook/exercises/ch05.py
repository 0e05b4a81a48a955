"""The exercises of notebook 05_monitoring."""

import math
from statistics import mean, pvariance, variance

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "05_monitoring"


# 05.1 a moving average


def _moving(values, window):
    return [mean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]


exercise(
    "05.1",
    "moving_average",
    NOTEBOOK,
    [
        (([1.0, 2.0, 3.0, 4.0], 2), [1.0, 1.5, 2.5, 3.5]),
        (([0.0, 3.0, 6.0, 0.0, 9.0], 3), _moving([0.0, 3.0, 6.0, 0.0, 9.0], 3)),
        (([2.0], 5), [2.0]),
        (([], 3), []),
    ],
    [
        (
            lambda values, window: [
                sum(values[max(0, i - window + 1) : i + 1]) / window for i in range(len(values))
            ],
            "you divided by the window where fewer values are there: the curve seems to rise from nothing",
        ),
        (
            lambda values, window: [mean(values[i : i + window]) for i in range(len(values))],
            "you averaged the values that come after: a step's average must not know the future",
        ),
        (
            lambda values, window: [
                mean(values[i - window + 1 : i + 1]) for i in range(window - 1, len(values))
            ],
            "you dropped the first steps: average those that are there, so that one value stands at each step",
        ),
        (
            lambda values, window: [
                mean(values[max(0, i - window // 2) : i + window // 2 + 1])
                for i in range(len(values))
            ],
            "you averaged around each step: half of the window lies in the future",
        ),
    ],
)


# 05.2 did the reward rise, or is it noise?


def _rise(values, k, spread=variance, error=lambda a, b, k: math.sqrt((a + b) / k)):
    if len(values) < 2 * k:
        raise ValueError
    first, last = values[:k], values[-k:]
    return (mean(last) - mean(first)) / error(spread(first), spread(last), k)


_REWARDS = [1.2, 1.5, 1.1, 1.4, 1.9, 2.2, 2.0, 2.4, 2.1, 2.6]
_NOISE = [1.0, 1.6, 0.8, 1.4, 1.2, 0.9, 1.5, 1.1]
exercise(
    "05.2",
    "rise",
    NOTEBOOK,
    [
        ((_REWARDS, 4), _rise(_REWARDS, 4)),
        ((_NOISE, 4), _rise(_NOISE, 4)),
        ((_REWARDS[::-1], 3), _rise(_REWARDS[::-1], 3)),
        (([1.0, 2.0, 3.0], 2), Raises(ValueError)),
    ],
    [
        (
            lambda values, k: _rise(values, k, error=lambda a, b, k: math.sqrt(a + b)),
            "you divided by the spread of single steps: a mean of k steps is sharper, its variance is 1/k of theirs",
        ),
        (
            lambda values, k: _rise(values, k, error=lambda a, b, k: (a + b) / k),
            "you divided by the variance: the standard error is its square root",
        ),
        (
            lambda values, k: _rise(values, k, spread=pvariance),
            "you took the population variance: from a sample, divide by n - 1, as statistics.variance does",
        ),
        (
            lambda values, k: -_rise(values, k),
            "you subtracted the last from the first: a rise is positive",
        ),
        (
            lambda values, k: (
                (mean(values[-k:]) - mean(values[:k]))
                / math.sqrt((variance(values[:k]) + variance(values[-k:])) / k)
            ),
            "you let the windows overlap: raise ValueError when there are fewer than 2 * k steps",
        ),
    ],
)


# 05.3 since when?


def _starts(values, limit, patience):
    run = 0
    for step, value in enumerate(values, 1):
        run = run + 1 if value >= limit else 0
        if run == patience:
            return step - patience + 1
    return None


def _end_of_stretch(values, limit, patience):
    start = _starts(values, limit, patience)
    return None if start is None else start + patience - 1


def _counts_all(values, limit, patience):
    steps = [s for s, v in enumerate(values, 1) if v >= limit]
    return steps[0] if len(steps) >= patience else None


exercise(
    "05.3",
    "first_step",
    NOTEBOOK,
    [
        (([0.1, 0.9, 0.2, 0.9, 0.95, 1.0], 0.9, 3), 4),
        (([1.0, 1.0, 0.0], 0.9, 2), 1),
        (([0.9, 0.0, 0.9, 0.0], 0.9, 2), None),
        (([0.9, 0.0, 0.0], 0.9, 2), None),
        (([], 0.5, 1), None),
        (([0.2, 0.5], 0.5, 1), 2),
    ],
    [
        (
            lambda values, limit, patience: _starts(values, limit, 1),
            "you took the first step over the limit: one step is noise, it must hold for `patience` steps in a row",
        ),
        (
            _end_of_stretch,
            "you gave the step at which you became sure: asked is where the stretch begins",
        ),
        (_counts_all, "you counted steps that do not follow each other: they must be in a row"),
        (
            lambda values, limit, patience: (
                None if (s := _starts(values, limit, patience)) is None else s - 1
            ),
            "you counted from 0: the log's first step is 1",
        ),
        (
            lambda values, limit, patience: _starts([v - 1e-9 for v in values], limit, patience),
            "you left the limit itself out: at the limit counts too",
        ),
    ],
)


# 05.4 is it gamed?


def _gamed(reward, heldout):
    third = max(1, len(reward) // 3)
    return mean(reward[-third:]) > mean(reward[:third]) + 0.05 and heldout[-1] <= heldout[0] + 0.05


_UP, _DOWN = (
    [0.2, 0.3, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.9],
    [0.9, 0.8, 0.8, 0.6, 0.5, 0.4, 0.3, 0.3, 0.2],
)
exercise(
    "05.4",
    "is_gamed",
    NOTEBOOK,
    [
        ((_UP, [0.20, 0.55, 0.80]), False),
        ((_UP, [0.20, 0.10, 0.00]), True),
        ((_UP, [0.20, 0.22, 0.21]), True),
        ((_DOWN, [0.20, 0.10, 0.00]), False),
        ((_UP, [0.20, 0.05, 0.50]), False),
        (([0.5, 0.6, 0.4, 0.5, 0.5, 0.6, 0.5, 0.5, 0.5], [0.4, 0.3]), False),
    ],
    [
        (
            lambda reward, heldout: (
                mean(reward[-(len(reward) // 3) :]) > mean(reward[: len(reward) // 3]) + 0.05
                and heldout[-1] < heldout[0] - 0.05
            ),
            "you waited for the accuracy to fall: a reward that rises while accuracy stays is gamed too",
        ),
        (
            lambda reward, heldout: heldout[-1] <= heldout[0] + 0.05,
            "you looked at the held-out accuracy alone: without a rising reward it is another disease",
        ),
        (
            lambda reward, heldout: (
                mean(reward[-(len(reward) // 3) :]) > mean(reward[: len(reward) // 3]) + 0.05
            ),
            "you looked at the reward alone: a rising reward is what one hopes for",
        ),
        (
            lambda reward, heldout: _gamed(reward, [heldout[0], min(heldout[1:])]),
            "you took the lowest accuracy on the way: what counts is where it ended",
        ),
    ],
)


# 05.5 the clinic

CLINIC = {
    "A": "cold_sampling_1",
    "B": "wrong_answers_1",
    "C": "shows_work_1",
    "D": "four_tokens_1",
    "E": "rate_by_100_1",
    "F": "frozen_adapters_1",
}
DIAGNOSES = {
    "A": "collapsed",
    "B": "wrong_answers",
    "C": "hacked",
    "D": "truncated",
    "E": "rate_too_low",
    "F": "frozen",
}


def _but(letter, said):
    return lambda patient: said if patient == letter else DIAGNOSES[patient]


exercise(
    "05.5",
    "my_diagnosis",
    NOTEBOOK,
    [((letter,), name) for letter, name in DIAGNOSES.items()],
    [
        (
            _but("A", "no_gradient"),
            "A has silent groups, but why? Look at how many different texts a group holds",
        ),
        (
            _but("A", "saturated"),
            "A is silent from its first step, before it could learn: look at unique texts",
        ),
        (
            _but("B", "truncated"),
            "B cuts nothing off: compare its format reward with its correctness",
        ),
        (_but("B", "reward_flat"), "B's reward rises, by its form alone: compare the two"),
        (
            _but("C", "healthy"),
            "C's reward rises and looks healthy: what do its held-out problems say?",
        ),
        (
            _but("D", "never_ends"),
            "D runs to its limit, but nothing is earned on the way: how long may it be?",
        ),
        (_but("E", "frozen"), "E's adapters do move, a very little"),
        (
            _but("E", "reward_flat"),
            "E's reward is flat, but a cause is in the log: how far did its adapters move?",
        ),
        (_but("F", "rate_too_low"), "F's adapters do not move at all, with a usual learning rate"),
        (
            _but("F", "reward_flat"),
            "F's reward is flat, but a cause is in the log: how far did its adapters move?",
        ),
    ],
)
