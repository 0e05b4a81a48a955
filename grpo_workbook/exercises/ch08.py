"""The exercises of notebook 08_evaluation."""

import math
from math import comb, sqrt

from grpo_workbook.exercises.tasks import exercise, experiment

# 08.1: McNemar's exact test


def one_tail(better, worse):
    """The probability of an outcome at least as far from even, in one direction."""
    changed = better + worse
    outcomes = 0
    for heads in range(min(better, worse) + 1):
        outcomes += comb(changed, heads)
    return outcomes / 2**changed


def correct_mcnemar(better, worse):
    """The solution."""
    return min(1.0, 2 * one_tail(better, worse))


mcnemar = exercise("08.1", "mcnemar")
mcnemar.case(6, 1, gives=0.125)
mcnemar.case(1, 6, gives=0.125)
mcnemar.case(10, 0, gives=2 / 1024)
mcnemar.case(3, 3, gives=1.0)  # the middle is in both tails
mcnemar.case(0, 0, gives=1.0)  # nothing changed
# 1, 19, 171, ...: the ways to get 0, 1, 2, ... heads of 19 coins
mcnemar.case(15, 4, gives=2 * (1 + 19 + 171 + 969 + 3876) / 2**19)


@mcnemar.mistake
def returns_the_complement(better, worse):
    """You returned 1 - p: a large imbalance must give a small p."""
    return 1 - correct_mcnemar(better, worse)


@mcnemar.mistake
def leaves_out_this_outcome(better, worse):
    """You left out the outcome itself: `range` ends before its last number, so add 1."""
    changed = better + worse
    outcomes = 0
    for heads in range(min(better, worse)):
        outcomes += comb(changed, heads)
    return min(1.0, 2 * outcomes / 2**changed)


@mcnemar.mistake
def takes_the_tail_of_worse(better, worse):
    """You summed up to `worse`, which may be the larger count: the tail ends at the smaller one."""
    changed = better + worse
    outcomes = 0
    for heads in range(worse + 1):
        outcomes += comb(changed, heads)
    return min(1.0, 2 * outcomes / 2**changed)


@mcnemar.mistake
def looks_in_one_direction(better, worse):
    """You looked in one direction only: training could have made it worse as well, so double the
    tail.
    """
    return min(1.0, one_tail(better, worse))


@mcnemar.mistake
def counts_the_middle_twice(better, worse):
    """Your p is above 1 where both counts are equal: the middle is in both tails,
    so limit p to 1.
    """
    return 2 * one_tail(better, worse)


@mcnemar.mistake
def takes_this_outcome_alone(better, worse):
    """You took the probability of this one outcome: p adds up all outcomes that are at least as far
    from even.
    """
    changed = better + worse
    return min(1.0, 2 * comb(changed, worse) / 2**changed)


@mcnemar.mistake
def approximates(better, worse):
    """That is the chi-squared approximation: with few changed problems it gives too small a p."""
    from scipy.stats import chi2

    if better + worse == 0:
        return 1.0
    return float(chi2.sf((better - worse) ** 2 / (better + worse), 1))


# 08.2: the probability that the best of several runs shows a gain by chance


def chances(n, rate):
    """The probability of each number of right answers, from 0 to n."""
    chances = []
    for right in range(n + 1):
        one_order = rate**right * (1 - rate) ** (n - right)
        chances.append(comb(n, right) * one_order)
    return chances


def chance_for_each_baseline(n, rate, counts):
    """(the probability of a baseline, that `counts(run - baseline)` holds of one run), for each."""
    distribution = chances(n, rate)
    pairs = []
    for baseline, baseline_chance in enumerate(distribution):
        one_run = 0.0
        for right, chance in enumerate(distribution):
            if counts(right - baseline):
                one_run += chance
        pairs.append((baseline_chance, one_run))
    return pairs


def best_of_runs(n, rate, runs, counts):
    """The probability that `counts(run - baseline)` holds of at least one of the runs."""
    total = 0.0
    for baseline_chance, one_run in chance_for_each_baseline(n, rate, counts):
        total += baseline_chance * (1 - (1 - one_run) ** runs)
    return total


def correct_chance_of_gain(n, rate, gain, runs):
    """The solution."""

    def is_a_gain(difference):
        return difference >= gain

    return best_of_runs(n, rate, runs, is_a_gain)


chance_of_gain = exercise("08.2", "chance_of_gain", solution=correct_chance_of_gain, tolerance=1e-5)
chance_of_gain.case(30, 0.5, 3, 1)
chance_of_gain.case(30, 0.5, 3, 4)
chance_of_gain.case(30, 0.7, 3, 2)
chance_of_gain.case(4, 0.5, 1, 3)
chance_of_gain.case(100, 0.5, 10, 2)
chance_of_gain.case(30, 0.5, 0, 1)  # as good or better


@chance_of_gain.mistake
def leaves_out_the_gain_itself(n, rate, gain, runs):
    """You left out the gain of exactly `gain`: "at least" includes it."""
    return correct_chance_of_gain(n, rate, gain + 1, runs)


@chance_of_gain.mistake
def counts_this_gain_alone(n, rate, gain, runs):
    """You counted the gain of exactly `gain`: "at least" includes the larger ones."""

    def is_this_gain(difference):
        return difference == gain

    return best_of_runs(n, rate, runs, is_this_gain)


@chance_of_gain.mistake
def returns_the_complement_of_the_chance(n, rate, gain, runs):
    """You returned the probability of a smaller gain: take it from 1."""
    return 1 - correct_chance_of_gain(n, rate, gain, runs)


def normal_tail(n, rate, gain):
    """The probability of a gain of one run by the normal approximation."""
    deviation = sqrt(2 * n * rate * (1 - rate))
    return 0.5 * math.erfc(gain / deviation / sqrt(2))


@chance_of_gain.mistake
def approximates_by_a_normal(n, rate, gain, runs):
    """That is the normal approximation: add up the exact probabilities, there are only a few."""
    return 1 - (1 - normal_tail(n, rate, gain)) ** runs


@chance_of_gain.mistake
def approximates_with_a_correction(n, rate, gain, runs):
    """That is the normal approximation: add up the exact probabilities, there are only a few."""
    return 1 - (1 - normal_tail(n, rate, gain - 0.5)) ** runs


@chance_of_gain.mistake
def counts_losses_too(n, rate, gain, runs):
    """You counted losses as well: only a count above the baseline looks like a gain."""

    def is_a_change(difference):
        return abs(difference) >= gain

    return best_of_runs(n, rate, runs, is_a_change)


@chance_of_gain.mistake
def takes_the_first_count_as_certain(n, rate, gain, runs):
    """You took the baseline's count as certain: it is as much luck as the others."""
    needed = math.ceil(n * rate + gain)
    one_run = sum(chances(n, rate)[needed:])
    return 1 - (1 - one_run) ** runs


@chance_of_gain.mistake
def takes_the_gains_as_independent(n, rate, gain, runs):
    """You took the gains as independent: all runs are compared with the same baseline, and if it is
    low, all of them look better. Fix its count first, then add up over its counts.
    """
    return 1 - (1 - correct_chance_of_gain(n, rate, gain, 1)) ** runs


@chance_of_gain.mistake
def leaves_out_the_other_runs(n, rate, gain, runs):
    """You computed the gain of one run: the best of several gains more often."""
    return correct_chance_of_gain(n, rate, gain, 1)


@chance_of_gain.mistake
def asks_it_of_every_run(n, rate, gain, runs):
    """You asked for the gain in every run: it is enough that the best run has it."""

    def is_a_gain(difference):
        return difference >= gain

    total = 0.0
    for baseline_chance, one_run in chance_for_each_baseline(n, rate, is_a_gain):
        total += baseline_chance * one_run**runs
    return total


# 08.3: how far training seeds lie apart

# The range of so many equal means stays below this many standard errors in 95 % of cases (Tukey).
RANGE = {2: 2.77, 3: 3.31, 4: 3.63, 5: 3.86}
# All seeds answer the same problems, so only the sampling of the answers makes equal models differ.
# Its share of the variance rate * (1 - rate) was 45 % before the chapter's training, 49 % after it.
SAMPLING = 0.5


def read_seeds(measured):
    """From the strict rate of each seed and the number of problems."""
    rates = measured["strict"]
    if len(rates) not in RANGE:
        raise ValueError(f"{len(rates)} rates: measure two to five seeds")
    n = measured["problems"]
    rate = sum(rates) / len(rates)
    gap = max(rates) - min(rates)
    limit = RANGE[len(rates)] * sqrt(SAMPLING * rate * (1 - rate) / n)
    sentence = (
        f"The seeds lie {gap:.1%} apart; sampling the answers to {n} problems explains up to about "
        f"{limit:.1%}."
    )
    if gap > limit:
        return "beyond", sentence
    return "within", sentence


seed_spread = experiment(
    "08.3",
    "seed_spread",
    read=read_seeds,
    wrong={
        "within": (
            "The bound covers the sampling of the answers alone. The seed also changes the start "
            "of the adapters, the order of the problems and every completion. Where the curve is "
            "steep, one seed is several steps ahead of another."
        ),
        "beyond": (
            "The seeds may differ, but by no more than the sampling of the answers explains: it "
            "takes more problems, or more answers to each, to show it."
        ),
    },
)
# after 8 and 10 steps
seed_spread.example({"strict": [0.68125, 0.65], "problems": 160}, gives="within")
seed_spread.example({"strict": [0.425, 0.4625, 0.4125], "problems": 160}, gives="within")
# made up: less than different problems for each seed would explain, more than sampling does
seed_spread.example({"strict": [0.375, 0.43125, 0.4875], "problems": 160}, gives="beyond")

# 08.4: the sentence for the report


def outcomes(stayed, better, worse, never):
    """What was right before and after, with so many problems of each sort."""
    before = [True] * stayed + [False] * better + [True] * worse + [False] * never
    after = [True] * (stayed + better) + [False] * (worse + never)
    return before, after


def changed_counts(before, after):
    """How many problems got better and how many got worse."""
    better = 0
    worse = 0
    for was_right, is_right in zip(before, after, strict=True):
        if is_right and not was_right:
            better += 1
        if was_right and not is_right:
            worse += 1
    return better, worse


verdict = exercise("08.4", "verdict")
verdict.case(*outcomes(40, 8, 0, 52), gives="rose")
# the rates differ by 5 of 120, and 55 problems changed
verdict.case(*outcomes(40, 30, 25, 25), gives="not shown")
verdict.case(*outcomes(40, 3, 15, 42), gives="fell")
# five heads of five coins: p = 0.06 in both directions, 0.03 in one
verdict.case(*outcomes(40, 5, 0, 55), gives="not shown")
verdict.case(*outcomes(0, 0, 0, 30), gives="not shown")
verdict.case(*outcomes(40, 6, 0, 54), gives="rose")  # p = 0.03
# ten more got better than worse, but 50 problems changed: p = 0.20
verdict.case(*outcomes(40, 30, 20, 30), gives="not shown")
verdict.case(*outcomes(40, 13, 4, 43), gives="rose")  # p = 0.049


def verdict_of(p, before, after):
    """The verdict for a p-value."""
    if p > 0.05:
        return "not shown"
    if sum(after) > sum(before):
        return "rose"
    return "fell"


def correct_verdict(before, after):
    """The solution."""
    better, worse = changed_counts(before, after)
    return verdict_of(correct_mcnemar(better, worse), before, after)


@verdict.mistake
def exchanges_the_directions(before, after):
    """You have the directions the wrong way round: more right answers after than before is a
    rise.
    """
    return correct_verdict(after, before)


@verdict.mistake
def takes_a_large_p_for_a_change(before, after):
    """You took a large p-value for a change: a change is shown where p is at most 0.05."""
    better, worse = changed_counts(before, after)
    return verdict_of(1 - correct_mcnemar(better, worse), before, after)


@verdict.mistake
def compares_the_rates(before, after):
    """You compared the rates: 70 of 120 against 65 may be chance, so test the problems that
    changed.
    """
    if sum(before) == sum(after):
        return "not shown"
    return verdict_of(0.0, before, after)


@verdict.mistake
def tests_unpaired(before, after):
    """You tested both rates as if different problems had been answered: compare each problem with
    itself. Then 8 better and none worse is enough.
    """
    from scipy.stats import fisher_exact

    right_before = [sum(before), len(before) - sum(before)]
    right_after = [sum(after), len(after) - sum(after)]
    _, p = fisher_exact([right_before, right_after])
    return verdict_of(p, before, after)


@verdict.mistake
def tests_one_direction(before, after):
    """You tested one direction: training may make it worse as well, so double the tail."""
    better, worse = changed_counts(before, after)
    return verdict_of(one_tail(better, worse), before, after)


@verdict.mistake
def ignores_the_direction(before, after):
    """A small p says only that something changed: look at the direction too."""
    better, worse = changed_counts(before, after)
    if correct_mcnemar(better, worse) > 0.05:
        return "not shown"
    return "rose"


@verdict.mistake
def asks_for_0_01(before, after):
    """You asked for a smaller p-value: the verdict is due at p of at most 0.05."""
    better, worse = changed_counts(before, after)
    return verdict_of(5 * correct_mcnemar(better, worse), before, after)
