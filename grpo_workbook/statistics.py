"""Intervals of a rate, tests of a difference (*paired*: of the same problems), pass@k, maj@k."""

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
