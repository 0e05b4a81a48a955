"""Intervals of a rate, tests of a difference (*paired*: of the same problems), power, pass@k."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Sequence
from math import comb

import numpy as np
import scipy  # .stats is loaded on its first use

from grpo_workbook.errors import WorkbookError


def accuracy(right: Sequence[bool]) -> float:
    """The rate of True, 0 to 1, to 4 places. Raises WorkbookError for an empty list."""
    if not len(right):
        raise WorkbookError("nothing was measured: give at least 1 held-out problem")
    return round(sum(right) / len(right), 4)


def wilson_interval(right: Sequence[bool]) -> tuple[float, float]:
    """95 % (low, high) of a rate, to 4 places: Wilson's score interval (1927)."""
    accuracy(right)  # raises for an empty list
    found = scipy.stats.binomtest(int(sum(right)), len(right)).proportion_ci(method="wilson")
    return round(float(found.low), 4), round(float(found.high), 4)


def bootstrap_interval(values: Sequence[float], resamples=5000, seed=0) -> tuple[float, float]:
    """95 % (low, high) of a mean of one value per problem: Efron's BCa bootstrap (1987), seeded."""
    array = np.asarray(values, dtype=float)
    if not len(array) or not np.isfinite(array).all():
        raise WorkbookError("there is no mean: give at least one value, and only finite ones")
    if np.ptp(array) == 0:  # no width: for 0 or 100 % right use wilson_interval
        return float(array[0]), float(array[0])
    how = {"n_resamples": resamples, "batch": max(1, 10**7 // len(array)), "rng": seed}
    found = scipy.stats.bootstrap((array,), np.mean, **how).confidence_interval
    return float(found.low), float(found.high)


def changed(before: Sequence[bool], after: Sequence[bool]) -> tuple[list[int], list[int]]:
    """(indices that got better, indices that got worse). ValueError for different lengths."""
    pairs = list(enumerate(zip(before, after, strict=True)))
    return [i for i, (b, a) in pairs if a and not b], [i for i, (b, a) in pairs if b and not a]


def paired_p_value(before: Sequence[bool], after: Sequence[bool]) -> float:
    """McNemar's exact two-sided test: by chance, as many problems get better as worse."""
    better, worse = map(len, changed(before, after))
    return float(scipy.stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0


def pass_at_k(n: int, right: int, k: int) -> float:
    """The probability that k of n attempts hold a right one: unbiased (Chen et al. 2021, Codex)."""
    if not (1 <= k <= n and 0 <= right <= n):
        raise WorkbookError(f"k is {k} and {right} of {n} are right: choose k from 1 to {n}")
    return 1 - comb(n - right, k) / comb(n, k)


def majority_at_k(votes: Sequence[Hashable | None], reference: Hashable, k: int) -> float:
    """The probability that the majority of k random votes out of all is `reference` (maj@k).
    None abstains; a tie counts as 1 / the number of tied answers.
    """
    if not 1 <= k <= len(votes):
        raise WorkbookError(f"k is {k}: choose k from 1 to {len(votes)}, the number of attempts")
    others = Counter(votes)
    abstaining, right, total = others.pop(None, 0), others.pop(reference, 0), 0.0
    for most in range(1, min(right, k) + 1):  # votes for the reference among the k
        # ways[used, ties]: choices with `used` of the k votes, no other answer above `most`
        ways = Counter({(most, 0): comb(right, most)})
        for count in others.values():
            longer: Counter[tuple[int, int]] = Counter()
            for (used, ties), number in ways.items():
                for taken in range(min(count, most, k - used) + 1):
                    longer[used + taken, ties + (taken == most)] += number * comb(count, taken)
            ways = longer
        for (used, ties), number in ways.items():
            total += number * comb(abstaining, k - used) / comb(len(votes), k) / (ties + 1)
    return min(1.0, total)


def paired_power(items: int, better: float, worse: float) -> float:
    """The power of McNemar's exact test if problems get better or worse at these rates, 0 to 1."""
    binom, changes = scipy.stats.binom, np.arange(items + 1)
    # per number of changes: the largest smaller side that still gives p <= 0.05; -1 for none
    limit = binom.ppf(0.025, changes, 0.5)
    limit -= binom.cdf(limit, changes, 0.5) > 0.025
    rate = better / ((better + worse) or 1)
    found = binom.cdf(limit, changes, rate) + binom.cdf(limit, changes, 1 - rate)
    return float(np.sum(binom.pmf(changes, items, better + worse) * found))


def paired_items(better: float, worse: float, power: float = 0.8) -> int:
    """The problems that a paired test needs to find a gain of better - worse with this power."""
    for most in (2**i for i in range(3, 18)):  # the time of each test grows with them
        if better != worse and paired_power(most, better, worse) >= power:
            # the exact power rises like a saw, so a few problems less may be enough
            return bisect_left(range(most), power, key=lambda n: paired_power(n, better, worse))
    raise WorkbookError(f"{most:,} problems do not show a gain of {better - worse:.2g}: raise it")


def paired_gain(items: int, worse: float = 0.0, power: float = 0.8) -> float | None:
    """The smallest gain that a paired test with `items` problems finds, if a fraction `worse` gets
    worse, rounded up to 4 places. None: 5 problems are too few even if all get better.
    """
    gains = [step / 10_000 for step in range(1, int((1 - 2 * worse) * 10_000 + 1e-6) + 1)]
    found = bisect_left(gains, power, key=lambda gain: paired_power(items, worse + gain, worse))
    return gains[found] if found < len(gains) else None
