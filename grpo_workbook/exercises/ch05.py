"""The exercises of notebook 05_monitoring."""

from functools import partial
from math import sqrt
from statistics import mean, pvariance, variance

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "05_monitoring"

# 05.1 a moving average


def _averages(values, parts):
    return [mean(values[a:b]) for a, b in parts]


def _moving(v, window):
    return _averages(v, [(max(0, i - window + 1), i + 1) for i in range(len(v))])


def _padded(v, window):
    return _moving([0.0] * (window - 1) + v, window)[window - 1 :]


def _around(v, window):
    half = window // 2
    return _averages(v, [(max(0, i - half), i + half + 1) for i in range(len(v))])


exercise(
    "05.1",
    "moving_average",
    NOTEBOOK,
    [
        (([1.0, 2.0, 3.0, 4.0], 2), [1.0, 1.5, 2.5, 3.5]),
        (([0.0, 3.0, 6.0, 0.0, 9.0], 3), [0.0, 1.5, 3.0, 3.0, 5.0]),
        (([2.0], 5), [2.0]),
        (([], 3), []),
    ],
    {
        "you divided by the window where fewer values are there: the curve seems to rise from "
        "nothing": _padded,
        "you averaged the values that come after: a step's average must not know the "
        "future": lambda v, window: _averages(v, [(i, i + window) for i in range(len(v))]),
        "you dropped the first steps: average those that are there, so that one value stands at "
        "each step": lambda v, window: _moving(v, window)[window - 1 :],
        "you averaged around each step: half of the window lies in the future": _around,
    },
)

# 05.2 did the reward rise, or is it noise?


def _rise(values, k, spread=variance, error=lambda a, b, k: sqrt((a + b) / k), overlap=False):
    if len(values) < 2 * k and not overlap:
        raise ValueError
    first, last = values[:k], values[-k:]
    return (mean(last) - mean(first)) / error(spread(first), spread(last), k)


_REWARDS = [1.2, 1.5, 1.1, 1.4, 1.9, 2.2, 2.0, 2.4, 2.1, 2.6]
_NOISE = [1.0, 1.6, 0.8, 1.4, 1.2, 0.9, 1.5, 1.1]
_SERIES = ((_REWARDS, 4), (_NOISE, 4), (_REWARDS[::-1], 3))
exercise(
    "05.2",
    "rise",
    NOTEBOOK,
    [*((given, _rise(*given)) for given in _SERIES), (([1.0, 2.0, 3.0], 2), Raises(ValueError))],
    {
        "you divided by the spread of single steps: a mean of k steps is sharper, its variance "
        "is 1/k of theirs": partial(_rise, error=lambda a, b, k: sqrt(a + b)),
        "you divided by the variance: the standard error is its square root": partial(
            _rise, error=lambda a, b, k: (a + b) / k
        ),
        "you took the population variance: from a sample, divide by n - 1, as "
        "statistics.variance does": partial(_rise, spread=pvariance),
        "you subtracted the last from the first: a rise is positive": lambda values, k: (
            -_rise(values, k)
        ),
        "you let the windows overlap: raise ValueError when there are fewer than 2 * k "
        "steps": partial(_rise, overlap=True),
    },
)

# 05.3 since when?


def _starts(values, limit, patience, shift=0):
    in_a_row = 0
    for step, value in enumerate(values, 1):
        in_a_row = in_a_row + 1 if value >= limit else 0
        if in_a_row == patience:
            return step - patience + 1 + shift
    return None


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
    {
        "you took the first step over the limit: one step is noise, it must hold for `patience` "
        "steps in a row": lambda values, limit, patience: _starts(values, limit, 1),
        "you gave the step at which you became sure: asked is where the stretch "
        "begins": lambda values, limit, patience: _starts(values, limit, patience, patience - 1),
        "you counted steps that do not follow each other: they must be in a row": _counts_all,
        "you counted from 0: the log's first step is 1": lambda values, limit, patience: _starts(
            values, limit, patience, -1
        ),
        "you left the limit itself out: at the limit counts too": lambda values, limit, patience: (
            _starts(values, limit + 1e-09, patience)
        ),
    },
)

# 05.4 is it gamed?


def _risen(reward):
    third = max(1, len(reward) // 3)
    return mean(reward[-third:]) > mean(reward[:third]) + 0.05


_UP = [0.2, 0.3, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.9]
_EVEN = [0.5, 0.6, 0.4, 0.5, 0.5, 0.6, 0.5, 0.5, 0.5]
exercise(
    "05.4",
    "is_gamed",
    NOTEBOOK,
    [
        ((_UP, [0.20, 0.55, 0.80]), False),
        ((_UP, [0.20, 0.10, 0.00]), True),
        ((_UP, [0.20, 0.22, 0.21]), True),
        ((_UP[::-1], [0.20, 0.10, 0.00]), False),
        ((_UP, [0.20, 0.05, 0.50]), False),
        ((_EVEN, [0.4, 0.3]), False),
    ],
    {
        "you waited for the accuracy to fall: a reward that rises while accuracy stays is gamed "
        "too": lambda reward, heldout: _risen(reward) and heldout[-1] < heldout[0] - 0.05,
        "you looked at the held-out accuracy alone: without a rising reward it is another "
        "disease": lambda reward, heldout: heldout[-1] <= heldout[0] + 0.05,
        "you looked at the reward alone: a rising reward is what one hopes "
        "for": lambda reward, heldout: _risen(reward),
        "you took the lowest accuracy on the way: what counts is where it "
        "ended": lambda reward, heldout: _risen(reward) and min(heldout[1:]) <= heldout[0] + 0.05,
    },
)

# 05.5 the clinic: each patient's log, and what ails it

_CLINIC = {
    "A": ("cold_sampling_1", "collapsed"),
    "B": ("wrong_answers_1", "wrong_answers"),
    "C": ("shows_work_1", "hacked"),
    "D": ("four_tokens_1", "truncated"),
    "E": ("rate_by_100_1", "rate_too_low"),
    "F": ("frozen_adapters_1", "frozen"),
}
CLINIC = {letter: log for letter, (log, _) in _CLINIC.items()}
_FLAT = "'s reward is flat, but a cause is in the log: how far did its adapters move?"
_WRONG = [
    ("A", "no_gradient", "A's groups have no variance, but why? Look at how many different texts a "
     "group holds"),
    ("A", "saturated", "A has no variance from its first step, before it could learn: look at "
     "unique texts"),
    ("B", "truncated", "B cuts nothing off: compare its format reward with its correctness"),
    ("B", "reward_flat", "B's reward rises, by its form alone: compare the two"),
    ("C", "healthy", "C's reward rises and looks healthy: what do its held-out problems say?"),
    ("D", "never_ends", "D runs to its limit, but nothing is earned on the way: how long may it "
     "be?"),
    ("E", "frozen", "E's adapters do move, a very little"),
    ("E", "reward_flat", "E" + _FLAT),
    ("F", "rate_too_low", "F's adapters do not move at all, with a usual learning rate"),
    ("F", "reward_flat", "F" + _FLAT),
]  # fmt: skip


def _but(letter, said):
    return lambda patient: said if patient == letter else _CLINIC[patient][1]


exercise(
    "05.5",
    "my_diagnosis",
    NOTEBOOK,
    [((letter,), name) for letter, (_, name) in _CLINIC.items()],
    [(_but(letter, said), sentence) for letter, said, sentence in _WRONG],
)
