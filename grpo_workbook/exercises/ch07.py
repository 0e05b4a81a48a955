"""The exercises of notebook 07_stages_and_curriculum."""

from math import sqrt

from grpo_workbook.exercises.tasks import exercise, experiment
from grpo_workbook.statistics import wilson_interval

# 07.1: how large must a group be to teach?

smallest_group = exercise("07.1", "smallest_group")
smallest_group.case(0.5, 0.8, gives=4)
smallest_group.case(0.5, 0.5, gives=2)
smallest_group.case(0.05, 0.5, gives=14)
smallest_group.case(0.75, 0.9, gives=9)
# no size is large enough
smallest_group.case(0.0, 0.5, raises=ValueError)
smallest_group.case(1.0, 0.5, raises=ValueError)


def check_rate(rate):
    """Raise ValueError for a success rate at which no group has variance."""
    if not 0 < rate < 1:
        raise ValueError(f"a rate of {rate}")


def fraction_with_variance(rate, size):
    """The fraction of groups of this size in which some succeed and some fail."""
    return 1 - rate**size - (1 - rate) ** size


def correct_smallest_group(rate, wanted):
    """The solution."""
    check_rate(rate)
    size = 2
    while fraction_with_variance(rate, size) < wanted:
        size += 1
    return size


@smallest_group.mistake
def leaves_out_groups_that_succeed(rate, wanted):
    """You left out the groups that succeed as a whole: they have no variance either."""
    check_rate(rate)
    size = 2
    while 1 - (1 - rate) ** size < wanted:
        size += 1
    return size


@smallest_group.mistake
def leaves_out_groups_that_fail(rate, wanted):
    """You left out the groups that fail as a whole: they have no variance either."""
    check_rate(rate)
    size = 2
    while 1 - rate**size < wanted:
        size += 1
    return size


@smallest_group.mistake
def requires_more_than_wanted(rate, wanted):
    """You required more than the wanted fraction: a size that gives exactly this fraction is
    enough.
    """
    check_rate(rate)
    size = 2
    while fraction_with_variance(rate, size) <= wanted:
        size += 1
    return size


@smallest_group.mistake
def gives_the_last_that_is_too_small(rate, wanted):
    """You gave the last size that is too small: the next one is wanted."""
    return correct_smallest_group(rate, wanted) - 1


@smallest_group.mistake
def gives_a_size_for_any_rate(rate, wanted):
    """You gave a size for a rate of 0 or 1, where no group has variance: raise ValueError."""
    if rate in (0, 1):
        return 2
    return correct_smallest_group(rate, wanted)


# 07.2: when to begin the second trainer

switch_step = exercise("07.2", "switch_step")
switch_step.case([30, 49, 52, 58, 62], 64, 0.8, gives=4)
switch_step.case([10, 20, 30], 64, 0.8, gives=None)
switch_step.case([8, 7, 8], 8, 0.9, gives=None)  # 8 of 8 may be chance
switch_step.case([64], 64, 0.9, gives=1)
switch_step.case([], 64, 0.5, gives=None)


def interval(right, n):
    """Both ends of Wilson's interval for so many right of n."""
    return wilson_interval([True] * right + [False] * (n - right))


@switch_step.mistake
def compares_the_rate(counts, n, goal):
    """You compared the rate itself, which may be high by chance: compare the lower end of its
    interval.
    """
    for step, right in enumerate(counts, 1):
        if right / n >= goal:
            return step
    return None


@switch_step.mistake
def takes_the_upper_end(counts, n, goal):
    """You took the upper end: it only says that the goal is not ruled out."""
    for step, right in enumerate(counts, 1):
        if interval(right, n)[1] >= goal:
            return step
    return None


@switch_step.mistake
def takes_the_schoolbook_interval(counts, n, goal):
    """You took the schoolbook interval: for 8 of 8 it has no width, so that it would prove
    anything.
    """
    for step, right in enumerate(counts, 1):
        rate = right / n
        if rate - 1.96 * sqrt(rate * (1 - rate) / n) >= goal:
            return step
    return None


@switch_step.mistake
def counts_from_0(counts, n, goal):
    """You counted from 0: the first step is 1, and where there is none, give None."""
    for index, right in enumerate(counts):
        if interval(right, n)[0] >= goal:
            return index
    return 0


# 07.3: how many of the learner's own problems can teach?


def read_own_problems(measured):
    """From the pass rate of each problem."""
    rates = measured["pass_rates"]
    if len(rates) < 8:
        raise ValueError(f"{len(rates)} problems are too few: give at least 8")
    can_teach = sum(0 < rate < 1 for rate in rates) / len(rates)
    sentence = (
        f"{can_teach:.0%} of {len(rates)} problems can teach; {rates.count(0)} are hopeless and "
        f"{rates.count(1)} are mastered."
    )
    if can_teach >= 2 / 3:
        return "most", sentence
    if can_teach <= 1 / 3:
        return "few", sentence
    return "about half", sentence


own_problems = experiment(
    "07.3",
    "own_problems",
    read=read_own_problems,
    wrong={
        "most": "Too many of them are always wrong or always right for this model.",
        "about half": "The rates of this model are less mixed: look at both ends.",
        "few": "The model solves more of them sometimes, and those can teach.",
    },
)
own_problems.example(
    {"pass_rates": [1.0, 0.0, 0.375, 0.0, 0.0, 0.0, 0.0, 0.0]},
    gives="few",
)
