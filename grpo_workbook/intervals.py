"""How sure is a number, and is a difference more than chance? Wilson, bootstrap, McNemar's exact test.

Shares of yes and no get Wilson's interval. Means of anything else (lengths, shares over several samples of each
problem) get the bootstrap's, which resamples problems: completions of one problem are not independent of each other.
"""

from collections.abc import Sequence


def accuracy(right: Sequence[bool]) -> float:
    """The share of True, 0 to 1, rounded to 4 places. Raises ValueError when there is nothing to measure."""
    if not len(right):
        raise ValueError("nothing was measured: give at least 1 held-out problem")
    return round(sum(right) / len(right), 4)


def wilson_interval(right: Sequence[bool], confidence: float = 0.95) -> tuple[float, float]:
    """(low, high) of a share, rounded to 4 places: Wilson's score interval (Wilson 1927), honest near 0 and 1, where
    the normal one is not. Raises ValueError when there is nothing to measure.
    """
    from scipy.stats import binomtest

    if not len(right):
        raise ValueError("nothing was measured: a share of nothing has no interval")
    interval = binomtest(sum(right), len(right)).proportion_ci(confidence, method="wilson")
    return round(float(interval.low), 4), round(float(interval.high), 4)


def bootstrap_interval(
    values: Sequence[float], confidence: float = 0.95, resamples: int = 5000, seed: int = 0
) -> tuple[float, float]:
    """(low, high) of a mean, by drawing the values again with replacement (Efron's BCa bootstrap 1987, seeded).

    One value for each problem. Values that are all equal give an interval without width: the bootstrap knows only what
    it saw, so for 0 or 100 % right take `wilson_interval`. Raises ValueError for no values, and for one that is
    not finite.
    """
    import numpy as np
    from scipy.stats import bootstrap

    if not len(values):
        raise ValueError("no values: a mean of nothing has no interval")
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError(
            f"value {int(np.argmin(np.isfinite(array)))} is no finite number: leave it out, or mend it"
        )
    if len(array) == 1 or np.ptp(array) == 0:
        return float(array[0]), float(array[0])
    found = bootstrap(
        (array,),
        np.mean,
        confidence_level=confidence,
        n_resamples=resamples,
        batch=max(1, 10**7 // len(array)),
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def changed(before: Sequence[bool], after: Sequence[bool]) -> tuple[list[int], list[int]]:
    """(places that got better, places that got worse). Raises ValueError for lists of different length."""
    pairs = list(enumerate(zip(before, after, strict=True)))
    return [i for i, (b, a) in pairs if a and not b], [i for i, (b, a) in pairs if b and not a]


def paired_p_value(before: Sequence[bool], after: Sequence[bool]) -> float:
    """McNemar's exact two-sided test: could as many of the changed problems have changed for the better by chance?

    Only problems whose outcome changed count; by chance, each is as likely to get better as worse (a fair coin).
    """
    from scipy.stats import binomtest

    better, worse = map(len, changed(before, after))
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
