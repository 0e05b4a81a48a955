"""Intervals of a rate, tests of a difference and their power, pass@k and maj@k.

A test or an interval of a difference is *paired* here: both policies answered the same problems, so
each problem is compared with itself.
"""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from itertools import combinations
from math import comb, floor, log2

import numpy as np
import scipy  # scipy.stats is loaded on its first use

from grpo_workbook.errors import WorkbookError

MOST_CHOICES = 5_000  # of k votes; those of 4 out of 16 are 1,820
RESAMPLES = 5_000  # of the bootstrap, always the same ones
POWER = 0.8  # that a comparison is planned for
MOST_ITEMS = 2**16


def accuracy(right: Sequence[float]) -> float:
    """The mean of True and False, or of rates: 0 to 1, to 4 places.

    Raises WorkbookError for an empty list.
    """
    if len(right) == 0:
        raise WorkbookError("nothing was measured: give at least 1 held-out problem")
    return round(float(sum(right) / len(right)), 4)


def wilson_interval(right: Sequence[float]) -> tuple[float, float]:
    """95 % (low, high) of a rate, to 4 places: Wilson's score interval (1927).

    right: True or False, or 1 or 0, for each trial.
    Raises WorkbookError for an empty list.
    """
    if len(right) == 0:
        raise WorkbookError("nothing was measured: give at least 1 held-out problem")
    test = scipy.stats.binomtest(int(sum(right)), len(right))
    interval = test.proportion_ci(method="wilson")
    return round(float(interval.low), 4), round(float(interval.high), 4)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % (low, high) of the mean of one value per problem: Efron's BCa bootstrap (1987).

    Raises WorkbookError for no values, and for values that are not finite.
    """
    array = np.asarray(values, dtype=float)
    if len(array) == 0 or not np.isfinite(array).all():
        raise WorkbookError("there is no mean: give at least one value, and only finite ones")
    if np.ptp(array) == 0:  # no width: use wilson_interval or mean_interval
        return float(array[0]), float(array[0])
    result = scipy.stats.bootstrap(
        (array,),
        np.mean,
        n_resamples=RESAMPLES,
        batch=max(1, 10**7 // len(array)),  # bounds the memory
        rng=0,
    )
    interval = result.confidence_interval
    return float(interval.low), float(interval.high)


def mean_interval(values: Sequence[float], lowest: float, highest: float) -> tuple[float, float]:
    """95 % (low, high) of the mean of values between two limits; it always has a width.

    This is `bootstrap_interval`, unless all values are equal: then a bootstrap has no width, as if
    nothing could be different. Of n equal values the *rule of three* says that with 95 % confidence
    at most about 3 / n of all values differ from them, exactly 1 - 0.05 ** (1 / n). The interval
    reaches to the means that result if these values are all `lowest`, or all `highest`.

    Args:
        values: one for each problem.
        lowest, highest: the limits of a value, such as -1 and 1 for a gain, 0 and 1 for a rate.

    Raises:
        WorkbookError: for no values, and for values that are not finite.
    """
    low, high = bootstrap_interval(values)
    if np.ptp(values) > 1e-9:  # differences of rates may differ by rounding
        return low, high
    may_differ = 1 - 0.05 ** (1 / len(values))
    return low - may_differ * (low - lowest), high + may_differ * (highest - high)


def changed(before: Sequence[float], after: Sequence[float]) -> tuple[list[int], list[int]]:
    """(indices that got better, indices that got worse), of outcomes or rates.

    Raises ValueError for different lengths.
    """
    better, worse = [], []
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if new > old:
            better.append(index)
        elif new < old:
            worse.append(index)
    return better, worse


def paired_p_value(before: Sequence[float], after: Sequence[float]) -> float:
    """The two-sided p-value of "chance makes as many problems better as worse".

    For outcomes that are right or wrong this is McNemar's exact test (1947), for rates of several
    samples the sign test. Raises ValueError for different lengths.
    """
    better, worse = changed(before, after)
    if not better and not worse:
        return 1.0
    return float(scipy.stats.binomtest(len(better), len(better) + len(worse)).pvalue)


def has_fallen(best: Sequence[float], latest: Sequence[float], probes: int) -> bool:
    """Whether fewer problems are right in the latest probe than in the best one, beyond chance.

    The best of several probes is partly luck, and each probe is one more chance to be fooled. So
    any two of the probes share the probability of 0.05 evenly (Bonferroni): the one-sided p-value
    of McNemar's exact test must be below 0.05 divided by their pairs. A run whose accuracy stays
    level is then called fallen in at most 5 % of cases, however many probes it has. With 64
    problems, a lasting loss of 20 points from the middle of the run on is found in four of five
    runs or more, for 9 and for 20 probes; with 32 problems in about half of them.

    Args:
        best, latest: for each problem whether its answer was right, in the best probe so far and
            in the latest one.
        probes: how many probes the whole run has, the first one included, at least 2.

    Raises:
        WorkbookError: for fewer than 2 probes.
        ValueError: for different lengths.
    """
    level = _level_of_a_pair(probes)
    if sum(latest) >= sum(best):
        return False
    p_value = paired_p_value(best, latest) / 2  # of a loss alone
    return p_value < level


def fewest_problems(probes: int) -> int:
    """The fewest problems with which `has_fallen` can be true: where all of them are lost.

    Raises WorkbookError for fewer than 2 probes.
    """
    # If n problems are lost and none is won, the one-sided p-value is 0.5 ** n.
    return floor(-log2(_level_of_a_pair(probes))) + 1


def _level_of_a_pair(probes: int) -> float:
    """The part of the probability of 0.05 that any two of the probes share evenly."""
    if probes < 2:
        raise WorkbookError(
            f"probes is {probes}: a fall is seen between two of them, so give at least 2 (of a "
            "HeldoutProbe with a smaller `every`)"
        )
    return 0.05 / comb(probes, 2)


def pass_at_k(n: int, right: int, k: int) -> float:
    """The probability that k of n attempts hold a right one.

    The unbiased estimator of Chen et al. (2021, Codex). Raises WorkbookError unless 1 <= k <= n.
    """
    if not (1 <= k <= n and 0 <= right <= n):
        raise WorkbookError(f"k is {k} and {right} of {n} are right: choose k from 1 to {n}")
    return 1 - comb(n - right, k) / comb(n, k)


def majority_at_k(votes: Sequence[Hashable | None], reference: Hashable, k: int) -> float:
    """The probability that the majority of k of the votes, drawn at random, is `reference` (maj@k).

    None abstains; in a tie of t answers each has a chance of 1 / t. Up to MOST_CHOICES choices of k
    votes are all counted, and as many random ones are where there are more.
    Raises WorkbookError unless 1 <= k <= the number of votes.
    """
    if not 1 <= k <= len(votes):
        raise WorkbookError(f"k is {k}: choose k from 1 to {len(votes)}, the number of attempts")
    if comb(len(votes), k) <= MOST_CHOICES:
        choices = list(combinations(votes, k))
    else:
        draw = random.Random(0)
        choices = [draw.sample(votes, k) for _ in range(MOST_CHOICES)]
    won = 0.0  # choices in which the reference has the majority, a tie as its part
    for choice in choices:
        counts = Counter(choice)
        counts.pop(None, None)
        most = max(counts.values(), default=0)
        if counts[reference] == most > 0:
            won += 1 / list(counts.values()).count(most)
    return won / len(choices)


def paired_power(items: int, better: float, worse: float) -> float:
    """The power of McNemar's exact test: how often it gives p <= 0.05.

    items: problems. better, worse: the rates, 0 to 1, at which they get better and worse.
    """
    binom = scipy.stats.binom
    changes = np.arange(items + 1)  # how many problems may change
    # For each number of changes: the largest smaller side that still gives p <= 0.05, -1 for none
    limit = binom.ppf(0.025, changes, 0.5)
    limit -= binom.cdf(limit, changes, 0.5) > 0.025
    total = better + worse
    fraction = better / total if total else 0.0
    rejected = binom.cdf(limit, changes, fraction) + binom.cdf(limit, changes, 1 - fraction)
    return float(np.sum(binom.pmf(changes, items, total) * rejected))


def paired_items(better: float, worse: float) -> int:
    """How many problems a paired test needs to find a gain of better - worse in 80 % of cases.

    better, worse: the rates, 0 to 1, at which problems get better and worse.
    It takes about a second. Raises WorkbookError if 65,536 are not enough.
    """
    if paired_power(MOST_ITEMS, better, worse) < POWER:
        raise WorkbookError(
            f"{MOST_ITEMS:,} problems do not show a gain of {better - worse:.2g}: plan for a "
            "larger gain"
        )
    # The power rises with the problems like a saw, so that a few less may be enough as well.
    return bisect_left(
        range(MOST_ITEMS), POWER, key=lambda items: paired_power(items, better, worse)
    )


def paired_gain(items: int, worse: float = 0.0) -> float | None:
    """The smallest gain that a paired test finds in 80 % of cases, rounded up to 4 places.

    items: problems, of which a fraction `worse` gets worse.
    None if the problems are too few even if all the others get better (5, if none gets worse).
    """
    largest = int((1 - 2 * worse) * 10_000 + 1e-6)
    gains = [step / 10_000 for step in range(1, largest + 1)]
    place = bisect_left(gains, POWER, key=lambda gain: paired_power(items, worse + gain, worse))
    if place == len(gains):
        return None
    return gains[place]
