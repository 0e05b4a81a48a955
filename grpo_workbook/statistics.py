"""How sure is a number, is a difference more than chance, how many problems does it take?

*Paired*: both policies answer the same problems. Power: how likely a gain gives p <= 0.05.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from math import ceil, comb, sqrt

import numpy as np
import scipy  # .stats is loaded on its first use

from grpo_workbook.errors import WorkbookError


def accuracy(right: Sequence[bool]) -> float:
    """The rate of True, 0 to 1, to 4 places. Raises WorkbookError when nothing was measured."""
    if not len(right):
        raise WorkbookError("nothing was measured: give at least 1 held-out problem")
    return round(sum(right) / len(right), 4)


def wilson_interval(right: Sequence[bool]) -> tuple[float, float]:
    """95 % (low, high) of a rate, to 4 places: Wilson's score interval (1927)."""
    accuracy(right)  # its error
    found = scipy.stats.binomtest(int(sum(right)), len(right)).proportion_ci(method="wilson")
    return round(float(found.low), 4), round(float(found.high), 4)


def bootstrap_interval(values: Sequence[float], resamples=5000, seed=0) -> tuple[float, float]:
    """95 % (low, high) of a mean of one value per problem: Efron's BCa bootstrap (1987), seeded.

    Values that are all equal give no width: for 0 or 100 % right take `wilson_interval`.
    """
    array = np.asarray(values, dtype=float)
    if not len(array) or not np.isfinite(array).all():
        raise WorkbookError("nothing to take a mean of: no values, or one that is not finite")
    if np.ptp(array) == 0:
        return float(array[0]), float(array[0])
    how = {"n_resamples": resamples, "batch": max(1, 10**7 // len(array)), "rng": seed}
    found = scipy.stats.bootstrap((array,), np.mean, **how).confidence_interval
    return float(found.low), float(found.high)


def changed(before: Sequence[bool], after: Sequence[bool]) -> tuple[list[int], list[int]]:
    """(indices that got better, indices that got worse). ValueError for different lengths."""
    pairs = list(enumerate(zip(before, after, strict=True)))
    return [i for i, (b, a) in pairs if a and not b], [i for i, (b, a) in pairs if b and not a]


def paired_p_value(before: Sequence[bool], after: Sequence[bool]) -> float:
    """McNemar's exact two-sided test: could the changed problems have changed so by chance?

    By chance, each problem whose outcome changed is as likely to get better as worse (a fair coin).
    """
    better, worse = map(len, changed(before, after))
    return float(scipy.stats.binomtest(better, better + worse).pvalue) if better + worse else 1.0


def pass_at_k(n: int, right: int, k: int) -> float:
    """The fraction of the choices of k out of n attempts that hold a right one.

    The unbiased estimator of Chen et al. 2021, "Evaluating Large Language Models Trained on Code".
    """
    if not (1 <= k <= n and 0 <= right <= n):
        raise WorkbookError(f"k is {k} and {right} of {n} are right: choose k from 1 to {n}")
    return 1 - comb(n - right, k) / comb(n, k)


def majority_at_k(votes: Sequence[Hashable | None], reference: Hashable, k: int) -> float:
    """The fraction of the choices of k out of all votes whose commonest is `reference` (maj@k).

    None abstains. A tie counts as 1 / the number of tied answers. When all k abstain it is wrong.
    """
    if not 1 <= k <= len(votes):
        raise WorkbookError(f"k is {k}: choose k from 1 to {len(votes)}, the number of attempts")
    others = Counter(votes)
    abstaining, right, total = others.pop(None, 0), others.pop(reference, 0), 0.0
    for most in range(1, min(right, k) + 1):  # that the reference has among the k
        # ways[used, ties]: choices that use so many of the k, no other answer with more than `most`
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


def unpaired_items(before: float, after: float, power: float = 0.8) -> int:
    """Problems that each of two policies answers, to tell two rates (0 to 1) apart unpaired.

    The normal approximation of Fleiss, Levin and Paik 2003, without continuity correction.
    """
    _check(power=power, before=before, after=after)
    if before == after:
        raise WorkbookError(f"before and after are both {before}: there is no gain to be seen")
    middle = (before + after) / 2
    spread = scipy.stats.norm.isf(0.025) * sqrt(2 * middle * (1 - middle))
    spread += scipy.stats.norm.ppf(power) * sqrt(before * (1 - before) + after * (1 - after))
    return ceil((spread / (after - before)) ** 2)


def unpaired_gain(items: int, before: float, power: float = 0.8) -> float | None:
    """The smallest gain over `before` that so many problems each show unpaired; None for none."""
    return _smallest(lambda g: unpaired_items(before, before + g, power) <= items, 1 - before)


def paired_power(items: int, better: float, worse: float) -> float:
    """The power of McNemar's exact test when problems get better or worse at these rates (0 to 1).

    Exact: summed over how many problems change, and how many of those for the better.
    """
    _check(better=better, worse=worse, together=better + worse)
    binom, changes = scipy.stats.binom, np.arange(items + 1)
    # the most problems on the smaller side with which so many changes give p <= 0.05; -1 for none
    limit = binom.ppf(0.025, changes, 0.5)
    limit -= binom.cdf(limit, changes, 0.5) > 0.025
    rate = better / ((better + worse) or 1)
    found = binom.cdf(limit, changes, rate) + binom.cdf(limit, changes, 1 - rate)
    return float(np.sum(binom.pmf(changes, items, better + worse) * found))


def paired_items(better: float, worse: float, power: float = 0.8) -> int:
    """Problems after which a paired test finds a gain of better - worse with this power."""
    _check(power=power)
    for most in (2**i for i in range(3, 21)):
        if better != worse and paired_power(most, better, worse) >= power:
            # the exact power goes up in small teeth, so a few problems less may do as well
            return bisect_left(range(most), power, key=lambda n: paired_power(n, better, worse))
    raise WorkbookError(f"better is {better}, worse {worse}: no gain that a million show")


def paired_gain(items: int, worse: float = 0.0, power: float = 0.8) -> float | None:
    """The smallest gain that so many problems show paired, a fraction `worse` getting worse; None
    for none: 5 problems are too few even if all of them get better.
    """
    return _smallest(lambda g: paired_power(items, worse + g, worse) >= power, 1 - 2 * worse)


def _smallest(shows: Callable[[float], bool], most: float) -> float | None:
    """The smallest gain, to 4 places and rounded up, for which shows(gain); None for none."""
    steps = range(1, int(most * 10_000 + 1e-6) + 1)
    found = bisect_left(steps, True, key=lambda step: shows(step / 10_000))
    return steps[found] / 10_000 if found < len(steps) else None


def _check(**rates: float) -> None:
    for name, value in rates.items():
        if not 0 <= value <= 1 + 1e-9 or (name == "power" and value in (0, 1)):
            raise WorkbookError(f"{name} is {value}: it must lie between 0 and 1")
