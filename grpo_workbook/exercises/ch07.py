"""The exercises of notebook 07_stages_and_curriculum."""

from math import sqrt

from grpo_workbook.exercises import Raises, exercise, experiment
from grpo_workbook.statistics import wilson_interval

# 07.1 how large must a group be to teach?


def _teaches(rate, size):
    return 1 - rate**size - (1 - rate) ** size


def _smallest(rate, enough):
    """The first size from 2 on that is enough; ValueError if there is none."""
    if not 0 < rate < 1:
        raise ValueError(f"a rate of {rate}")
    return next(size for size in range(2, 10_000) if enough(size))


def _right_size(rate, wanted):
    return _smallest(rate, lambda size: _teaches(rate, size) >= wanted)


exercise("07.1", "smallest_group", [
    ((0.5, 0.8), 4),
    ((0.5, 0.5), 2),
    ((0.05, 0.5), 14),
    ((0.75, 0.9), 9),
    ((0.0, 0.5), Raises(ValueError)),
    ((1.0, 0.5), Raises(ValueError)),
], {
    "you left out the groups that succeed as a whole: they have no variance either":
        lambda rate, wanted: _smallest(rate, lambda size: 1 - (1 - rate) ** size >= wanted),
    "you left out the groups that fail as a whole: they have no variance either":
        lambda rate, wanted: _smallest(rate, lambda size: 1 - rate**size >= wanted),
    "you required more than the wanted fraction: exactly that is enough":
        lambda rate, wanted: _smallest(rate, lambda size: _teaches(rate, size) > wanted),
    "you gave the last size that is too small: give the next one":
        lambda rate, wanted: _right_size(rate, wanted) - 1,
    "you gave a size for a rate of 0 or 1, where no group has variance: raise ValueError":
        lambda rate, wanted: _right_size(rate, wanted) if 0 < rate < 1 else 2,
})  # fmt: skip


# 07.2 when to go on to the next stage


def _switch(counts, n, goal, end):
    return next((step for step, right in enumerate(counts, 1) if end(right, n) >= goal), None)


def _schoolbook(right, n):
    return right / n - 1.96 * sqrt(right / n * (1 - right / n) / n)


def _wilson(right, n):
    return wilson_interval([True] * right + [False] * (n - right))


exercise("07.2", "switch_step", [
    (([30, 49, 52, 58, 62], 64, 0.8), 4),
    (([10, 20, 30], 64, 0.8), None),
    (([8, 7, 8], 8, 0.9), None),
    (([64], 64, 0.9), 1),
    (([], 64, 0.5), None),
], {
    "you compared the rate itself, which may be high by chance: take the interval's lower end":
        lambda *given: _switch(*given, lambda right, n: right / n),
    "you took the upper end: it only says that the goal is not ruled out":
        lambda *given: _switch(*given, lambda right, n: _wilson(right, n)[1]),
    "that is the schoolbook interval, in which 8 of 8 has no width and proves anything":
        lambda *given: _switch(*given, _schoolbook),
    "you counted from 0: the first step is 1, and where there is none, give None":
        lambda *given: (_switch(*given, lambda right, n: _wilson(right, n)[0]) or 1) - 1,
})  # fmt: skip


# 07.3 the learning rate over stages


def _rates(stages, warmup, first=0, fall_from=None):
    """`first` is the first step's number, `fall_from` where the fall begins."""
    start = warmup if fall_from is None else fall_from
    return [
        peak * ((i + first) / warmup if i < warmup else (n - i) / max(1, n - start))
        for n, peak in stages
        for i in range(n)
    ]


exercise("07.3", "learning_rates", [
    (([(4, 1.0), (6, 0.5)], 2), _rates([(4, 1.0), (6, 0.5)], 2)),
    (([(5, 1e-3)], 0), _rates([(5, 1e-3)], 0)),
    (([(8, 1e-3), (12, 1e-3)], 5), _rates([(8, 1e-3), (12, 1e-3)], 5)),
    (([], 5), []),
], {
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
})  # fmt: skip


# 07.4 what new moments of AdamW do


def _distance(measured):
    carried, new = measured["carried"], measured["new"]
    said = f"The adapter moves {carried:.3f} with its moments and {new:.3f} with new ones."
    if new > 1.2 * carried:  # less than 20 % apart, other batches could turn it round
        return "farther", said
    return ("less far" if carried > 1.2 * new else "as far"), said


experiment("07.4", "new_moments", _distance, {
    "farther": "Here the carried moments made the larger steps: what did you change?",
    "as far": "The rate is the same, but AdamW divides by what it has averaged so far.",
    "less far": "New moments start at 0, but AdamW corrects for that from the first step on.",
}, [  # after 8 steps of stage 1, as the chapter stands; after 2 steps
    ({"carried": 0.235, "new": 0.305}, "farther"),
    ({"carried": 0.297, "new": 0.345}, "as far"),
])  # fmt: skip


# 07.5 how many of the learner's own problems can teach?


def _teachable(measured):
    rates = measured["pass_rates"]
    if len(rates) < 8:
        raise ValueError(f"{len(rates)} problems are too few: give at least 8")
    some = sum(0 < rate < 1 for rate in rates) / len(rates)
    said = f"{some:.0%} of {len(rates)} problems can teach; {rates.count(0)} are hopeless and "
    said += f"{rates.count(1)} are mastered."
    return "most" if some >= 2 / 3 else "few" if some <= 1 / 3 else "about half", said


experiment("07.5", "own_problems", _teachable, {
    "most": "Too many of them are always wrong or always right for this model.",
    "about half": "The rates of this model are less mixed: look at both ends.",
    "few": "The model solves more of them sometimes, and those can teach.",
}, [({"pass_rates": [0.625, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]}, "few")])  # fmt: skip
