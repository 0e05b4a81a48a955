"""The exercises of notebook 07_stages_and_curriculum."""

from math import ceil, sqrt
from statistics import mean, variance

from grpo_workbook.exercises.tasks import direction, exercise, experiment

# 07.1: how large must a group be to teach?

smallest_group = exercise("07.1", "smallest_group")
smallest_group.case(0.5, 0.8, gives=4)
smallest_group.case(0.5, 0.5, gives=2)
smallest_group.case(0.05, 0.5, gives=14)
smallest_group.case(0.05, 0.9, gives=45)
smallest_group.case(0.75, 0.9, gives=9)
smallest_group.case(0.5, 0.55, gives=3)
smallest_group.case(0.3, 0.0, gives=2)  # the smallest group there is
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
def begins_with_a_group_of_one(rate, wanted):
    """You began with a group of 1, which can have no variance: begin with 2."""
    check_rate(rate)
    size = 1
    while fraction_with_variance(rate, size) < wanted:
        size += 1
    return size


@smallest_group.mistake
def multiplies_the_two_chances(rate, wanted):
    """You multiplied the chance that not all fail by the chance that not all succeed. These two are
    not independent: subtract both the groups that fail and those that succeed from 1.
    """
    check_rate(rate)
    size = 2
    while (1 - rate**size) * (1 - (1 - rate) ** size) < wanted:
        size += 1
    return size


@smallest_group.mistake
def gives_a_size_for_any_rate(rate, wanted):
    """You gave a size for a rate of 0 or 1, where no group has variance: raise ValueError."""
    if rate in (0, 1):
        return 2
    return correct_smallest_group(rate, wanted)


# 07.2: groups of 16 instead of 8, with the same number of completions in a step


def read_larger_groups(measured):
    """From the number of groups that teach in each step, of both runs."""
    before = measured["before"]
    after = measured["after"]
    if len(before) < 2 or len(after) < 2:
        raise ValueError("a run of one step shows no spread: train for at least two steps")
    noise = 2 * sqrt(variance(before) / len(before) + variance(after) / len(after))
    change = direction(mean(after) - mean(before), noise)
    names = {"rises": "more", "stays": "as many", "falls": "fewer"}
    sentence = (
        f"{mean(after):.1f} groups teach in a step, and {mean(before):.1f} with groups of 8 (up to "
        f"{noise:.1f} can be chance)."
    )
    return names[change], sentence


larger_groups = experiment(
    "07.2",
    "larger_groups",
    read=read_larger_groups,
    wrong={
        "more": (
            "A larger *fraction* of the groups teaches, but a step has fewer groups: multiply both."
        ),
        "as many": (
            "Compare with the line chart: when a group becomes twice as large, its chance to have "
            "some variance becomes less than twice as large."
        ),
        "fewer": "Count the groups of a step first: smaller groups are also more groups.",
    },
)
larger_groups.example(
    {"before": [6.0, 5.0, 7.0, 5.0], "after": [4.0, 3.0, 4.0, 3.0]}, gives="fewer"
)


# 07.3: which sort are the learner's own problems?


def read_own_problems(measured):
    """From the pass rate of each problem."""
    rates = measured["pass_rates"]
    if len(rates) < 8:
        raise ValueError(f"{len(rates)} problems are too few: give at least 8")
    hopeless = rates.count(0)
    mastered = rates.count(1)
    counts = {
        "hopeless": hopeless,
        "can teach": len(rates) - hopeless - mastered,
        "mastered": mastered,
    }
    sentence = (
        f"Of {len(rates)} problems {hopeless} are hopeless, {counts['can teach']} can teach, and "
        f"{mastered} are mastered."
    )
    for sort, count in counts.items():
        if count > len(rates) / 2:
            return sort, sentence
    return "none", sentence


own_problems = experiment(
    "07.3",
    "own_problems",
    read=read_own_problems,
    wrong={
        "hopeless": "The model solves more of them, at least sometimes.",
        "can teach": "Too many of them are always wrong or always right for this model.",
        "mastered": "Fewer of them are always right: which numbers or words are new to this model?",
        "none": "One sort makes up more than half: look at both ends, and at the rates between.",
    },
)
own_problems.example(
    {"pass_rates": [1.0, 0.0, 0.375, 0.0, 0.0, 0.0, 0.0, 0.0]},
    gives="hopeless",
)
own_problems.example({"pass_rates": [1.0] * 4 + [0.5] * 3 + [0.0]}, gives="none")
own_problems.example({"pass_rates": [1.0] * 6 + [0.875] * 2}, gives="mastered")


# 07.4: after how many steps has a filter paid for its measurement?

steps_to_pay_back = exercise("07.4", "steps_to_pay_back")
steps_to_pay_back.case([0.0] * 4 + [1.0] * 4 + [0.5] * 8, 8, 64, gives=2)
steps_to_pay_back.case([0.0] + [0.5] * 7, 8, 80, gives=6)
steps_to_pay_back.case([1.0] + [0.25] * 9, 8, 32, gives=23)
steps_to_pay_back.case([1.0] * 2 + [0.25] * 8, 8, 16, gives=20)
steps_to_pay_back.case([0.0] * 3 + [1.0] * 2 + [0.125] * 2 + [0.875] * 3, 8, 16, gives=5)
steps_to_pay_back.case([0.0] * 2 + [0.125] * 4 + [0.875] * 5, 8, 64, gives=7)
# no problem is left out, or none is left
steps_to_pay_back.case([0.5] * 8, 8, 64, gives=None)
steps_to_pay_back.case([0.0, 1.0], 8, 64, gives=None)


def steps_for(price, saved_per_step):
    """The steps after which the savings are at least the price."""
    return ceil(price / saved_per_step)


def split_by_rate(rates):
    """How many problems can teach, and how many cannot."""
    kept = sum(0 < rate < 1 for rate in rates)
    return kept, len(rates) - kept


@steps_to_pay_back.mistake
def compares_with_an_unfiltered_step(rates, samples, completions):
    """You saved the part that a step without the filter wastes. But that step also teaches less:
    count what it takes without the filter to teach as much as a step with it.
    """
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return steps_for(len(rates) * samples, completions * dropped / len(rates))


@steps_to_pay_back.mistake
def counts_each_problem_once(rates, samples, completions):
    """You counted each problem once: measuring takes `samples` completions of each."""
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return steps_for(len(rates), completions * dropped / kept)


@steps_to_pay_back.mistake
def keeps_the_mastered(rates, samples, completions):
    """You left out only the hopeless problems: those that are always right teach nothing either."""
    dropped = rates.count(0)
    kept = len(rates) - dropped
    if kept == 0 or dropped == 0:
        return None
    return steps_for(len(rates) * samples, completions * dropped / kept)


@steps_to_pay_back.mistake
def measures_only_the_kept(rates, samples, completions):
    """You paid only for the problems that are kept: all of them were measured."""
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return steps_for(kept * samples, completions * dropped / kept)


@steps_to_pay_back.mistake
def measures_only_the_dropped(rates, samples, completions):
    """You paid only for the problems that are left out, or you saved the whole of the larger step.
    All problems were measured, and a step with the filter takes completions too.
    """
    # Both mistakes give samples * kept / completions.
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return steps_for(dropped * samples, completions * dropped / kept)


@steps_to_pay_back.mistake
def saves_the_kept(rates, samples, completions):
    """You saved completions for the problems that are kept: without the filter, each kept problem
    brings dropped / kept problems with it that teach nothing.
    """
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return steps_for(len(rates) * samples, completions * kept / dropped)


@steps_to_pay_back.mistake
def rounds_down(rates, samples, completions):
    """You rounded down: the last, partial step is needed too."""
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return int(len(rates) * samples / (completions * dropped / kept))


@steps_to_pay_back.mistake
def pays_back_at_once(rates, samples, completions):
    """You gave a number where the filter never pays: if it leaves out no problem, or all of them,
    give None.
    """
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return 0
    return steps_for(len(rates) * samples, completions * dropped / kept)


@steps_to_pay_back.mistake
def adds_a_step(rates, samples, completions):
    """You added a step where the savings are already as large as the price: that step is enough."""
    kept, dropped = split_by_rate(rates)
    if kept == 0 or dropped == 0:
        return None
    return int(len(rates) * samples / (completions * dropped / kept)) + 1


# 07.5: which row of the table of causes does a log show?

row_of_cause = exercise("07.5", "row_of_cause")

# as whole alone after six steps
zero = [0.95] * 5 + [0.8]
reward = [0.01] * 5 + [0.03]
entropy = [1.1] * 6
rates = [0.0] * 6 + [0.125] * 2
row_of_cause.case(zero, reward, entropy, rates, gives=1)

# as whole alone after all of its steps
zero = [0.95] * 4 + [0.62, 0.2, 0.17, 0.05, 0.03, 0.05]
reward = [0.01] * 4 + [0.07, 0.18, 0.36, 0.5, 0.53, 0.55]
entropy = [1.1] * 4 + [0.8] * 6
rates = [0.0] * 6 + [0.125] * 2
row_of_cause.case(zero, reward, entropy, rates, gives=None)

# as the mixed run: mastered during training
zero = [0.0, 0.03, 0.0, 0.06, 0.2, 0.3, 0.38, 0.41, 0.41, 0.44]
reward = [0.5, 0.52, 0.5, 0.55, 0.7, 0.8, 0.85, 0.86, 0.88, 0.9]
entropy = [0.9] * 4 + [0.3] * 6
rates = [0.5, 0.375, 0.625, 0.5, 0.25, 0.5, 0.75, 0.5]
row_of_cause.case(zero, reward, entropy, rates, gives=2)

# a model for which the problems are too easy, and sure of its answers
zero = [0.75, 0.88, 0.88, 0.75, 0.88, 0.88]
reward = [0.97] * 6
entropy = [0.03] * 6
rates = [1.0] * 7 + [0.875]
row_of_cause.case(zero, reward, entropy, rates, gives=2)

# problems at both ends
zero = [0.75, 0.75, 0.62, 0.75, 0.75, 0.88, 0.75, 0.75]
reward = [0.4] * 8
entropy = [0.5] * 8
rates = [0.0] * 4 + [1.0] * 2 + [0.5, 0.25]
row_of_cause.case(zero, reward, entropy, rates, gives=3)

# a third of the problems is always right, none is never right
zero = [0.38, 0.38, 0.5, 0.38, 0.38, 0.5, 0.38, 0.38]
reward = [0.65] * 8
entropy = [0.5] * 8
rates = [1.0] * 3 + [0.5, 0.25, 0.5, 0.375, 0.5]
row_of_cause.case(zero, reward, entropy, rates, gives=3)

# groups of two
zero = [0.5, 0.53, 0.47, 0.5, 0.5, 0.53, 0.47, 0.5]
reward = [0.5] * 8
entropy = [0.8] * 8
rates = [0.5, 0.375, 0.625, 0.5, 0.25, 0.5, 0.75, 0.0]
row_of_cause.case(zero, reward, entropy, rates, gives=4)

# the policy lost its variety
zero = [0.06] * 4 + [0.3, 0.6, 0.75, 0.88, 0.88, 0.94]
reward = [0.4] * 4 + [0.55] * 6
entropy = [0.8, 0.7, 0.6, 0.5, 0.2, 0.08, 0.03, 0.02, 0.02, 0.01]
rates = [0.5, 0.375, 0.25, 0.5, 0.25, 0.5, 0.625, 0.375]
row_of_cause.case(zero, reward, entropy, rates, gives=5)

# three of the eight problems are too hard, the others become mastered
zero = [0.38] * 4 + [0.5, 0.62, 0.75, 0.81, 0.81, 0.88]
reward = [0.3] * 4 + [0.6] * 6
entropy = [0.9] * 4 + [0.5] * 6
rates = [0.0] * 3 + [0.5, 0.375, 0.5, 0.625, 0.5]
row_of_cause.case(zero, reward, entropy, rates, gives=6)


def at_both_ends(rates):
    """The fraction of problems that are never or always right."""
    return (rates.count(0) + rates.count(1)) / len(rates)


def row_without_end(zero, reward, entropy, rates):
    """The row of a log whose groups still lack variance at the end."""
    if mean(reward[-4:]) <= 0.1:
        return 1
    if mean(reward[-4:]) >= 0.8:
        return 2
    if mean(zero[-4:]) - mean(zero[:4]) >= 0.3:
        if mean(entropy[-4:]) <= 0.05:
            return 5
        return 6
    if at_both_ends(rates) >= 0.25:
        return 3
    return 4


def correct_row_of_cause(zero, reward, entropy, rates):
    """The solution."""
    if mean(zero[-4:]) < 0.3:
        return None
    return row_without_end(zero, reward, entropy, rates)


@row_of_cause.mistake
def reads_only_the_fraction(zero, reward, entropy, rates):
    """You took each high fraction for row 1. It is also high for a policy that always succeeds, or
    for problems of both ends: read the reward too.
    """
    if mean(zero[-4:]) >= 0.7 and mean(zero[:4]) >= 0.7:
        return 1
    return correct_row_of_cause(zero, reward, entropy, rates)


@row_of_cause.mistake
def reads_the_start(zero, reward, entropy, rates):
    """You read the start of the log where its end decides: a run that began with groups that teach
    nothing, and has lost them, needs no remedy, and a reward counts as it is now.
    """
    if mean(zero[:4]) < 0.3:
        return None
    return row_without_end(zero[:4], reward[:4], entropy[:4], rates)


@row_of_cause.mistake
def always_names_a_cause(zero, reward, entropy, rates):
    """You named a cause where most groups teach at the end: return None there."""
    return row_without_end(zero, reward, entropy, rates)


@row_of_cause.mistake
def asks_the_pass_rates_first(zero, reward, entropy, rates):
    """You asked the pass rates first. Problems at both ends occur in other rows too: they decide
    between the rows 3 and 4 only, when the reward and the rise have left these two.
    """
    if mean(zero[-4:]) < 0.3:
        return None
    if at_both_ends(rates) >= 0.25:
        return 3
    return row_without_end(zero, reward, entropy, rates)


@row_of_cause.mistake
def takes_mastery_for_a_plateau(zero, reward, entropy, rates):
    """You asked for a rise before the reward: if the fraction rises while the reward comes near its
    maximum, the problems are mastered, which is row 2.
    """
    rises = mean(zero[-4:]) - mean(zero[:4]) >= 0.3
    if mean(zero[-4:]) >= 0.3 and rises:
        if mean(entropy[-4:]) <= 0.05:
            return 5
        return 6
    return correct_row_of_cause(zero, reward, entropy, rates)


@row_of_cause.mistake
def asks_the_entropy_first(zero, reward, entropy, rates):
    """You took each low entropy for a collapse: a policy that is sure and right has one as well, so
    ask the reward first.
    """
    if mean(zero[-4:]) >= 0.3 and mean(entropy[-4:]) <= 0.05:
        return 5
    return correct_row_of_cause(zero, reward, entropy, rates)


@row_of_cause.mistake
def never_asks_the_entropy(zero, reward, entropy, rates):
    """You gave row 6 where the entropy is near 0: the completions are nearly alike there, which is
    row 5.
    """
    row = correct_row_of_cause(zero, reward, entropy, rates)
    return 6 if row == 5 else row


@row_of_cause.mistake
def sees_a_collapse_in_each_plateau(zero, reward, entropy, rates):
    """You gave row 5 where the completions still differ: the entropy is not near 0, so it is
    row 6.
    """
    row = correct_row_of_cause(zero, reward, entropy, rates)
    return 5 if row == 6 else row


@row_of_cause.mistake
def leaves_out_the_mastered(zero, reward, entropy, rates):
    """You counted only the problems that are never right: those that are always right belong to row
    3 as well.
    """
    row = correct_row_of_cause(zero, reward, entropy, rates)
    if row in (3, 4):
        return 3 if rates.count(0) / len(rates) >= 0.25 else 4
    return row
