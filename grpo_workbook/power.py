"""Before the run: how many held-out problems does it take to see a gain, and what gain can the ones there are show?

*Paired* is what this course does: both policies answer the same problems, and McNemar's exact test looks at those whose
outcome changed. *Unpaired* compares two shares that were measured on different problems. Power is the chance that a
gain which is really there is also found (p below alpha); 0.8 is customary.
"""

MOST = 10**7  # problems: the exact power holds a few numbers for each


def unpaired_items(before: float, after: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Problems that each of two policies must answer, to tell two shares (0 to 1) apart without pairing.

    The normal approximation for two proportions (Fleiss, Levin and Paik 2003, without continuity correction). Raises
    ValueError for equal shares, and for what is no share.
    """
    from math import ceil, sqrt

    from scipy.stats import norm

    _check_shares(before=before, after=after)
    _check_chances(power, alpha)
    if before == after:
        raise ValueError(
            f"before and after are both {before}: no number of problems shows a gain of nothing"
        )
    middle = (before + after) / 2
    spread = norm.isf(alpha / 2) * sqrt(2 * middle * (1 - middle))
    spread += norm.ppf(power) * sqrt(before * (1 - before) + after * (1 - after))
    return ceil((spread / (after - before)) ** 2)


def unpaired_gain(
    items: int, before: float, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest gain over `before` that so many problems for each policy show unpaired; None when no gain does."""
    return _smallest(
        lambda gain: unpaired_items(before, before + gain, power, alpha) <= items, 1 - before
    )


def paired_power(items: int, better: float, worse: float, alpha: float = 0.05) -> float:
    """The chance that McNemar's exact test gives p <= alpha, when each problem gets better or worse with these shares.

    Exact: summed over how many problems change (a binomial) and how many of those for the better. Raises ValueError for
    what is no share (0 to 1), shares of more than 1 together, and more than ten million items.
    """
    import numpy as np
    from scipy.stats import binom

    _check_shares(better=better, worse=worse)
    _check_chances(0.5, alpha)
    if items > MOST:
        raise ValueError(
            f"{items:,} items: the exact power is summed over each of them, so give at most {MOST:,}"
        )
    if better + worse > 1:
        raise ValueError(f"better ({better}) and worse ({worse}) add up to more than all problems")
    if better + worse == 0:
        return 0.0
    changes = np.arange(items + 1)
    # the most problems on the smaller side with which so many changes are still p <= alpha; -1 for none
    limit = binom.ppf(alpha / 2, changes, 0.5)
    limit = np.where(binom.cdf(limit, changes, 0.5) > alpha / 2, limit - 1, limit)
    share = better / (better + worse)
    found = binom.cdf(limit, changes, share) + binom.cdf(limit, changes, 1 - share)
    return float(np.sum(binom.pmf(changes, items, better + worse) * found))


def paired_items(better: float, worse: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Problems after which a paired test finds a gain of better - worse (shares, 0 to 1) with this power.

    The exact power goes up in small teeth, so a few problems less may do as well. Raises ValueError for no gain, or
    for one so small that it takes over a million problems.
    """
    _check_chances(power, alpha)
    if better == worse:
        raise ValueError(
            f"better and worse are both {better}: no number of problems shows a gain of nothing"
        )
    low, high = 1, 8
    while paired_power(high, better, worse, alpha) < power:
        low, high = high, 2 * high
        if high > 2**20:
            raise ValueError(
                f"better {better} and worse {worse} take over a million problems to tell apart"
            )
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if paired_power(middle, better, worse, alpha) >= power
            else (middle + 1, high)
        )
    return low


def paired_gain(
    items: int, worse: float = 0.0, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """The smallest gain (0 to 1) that a paired test on so many problems shows, when a share `worse` gets worse all the
    same.

    None when no gain does: 5 problems are too few even if all of them get better.
    """
    _check_chances(power, alpha)
    return _smallest(
        lambda gain: paired_power(items, worse + gain, worse, alpha) >= power, 1 - 2 * worse
    )


def _smallest(shows, most: float) -> float | None:
    """The smallest gain, to 4 places and rounded up, for which shows(gain); None when even the largest does not."""
    low, high = 0, int(most * 10_000 + 1e-6)
    if high < 1 or not shows(high / 10_000):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shows(middle / 10_000) else (middle, high)
    return high / 10_000


def _check_shares(**shares: float) -> None:
    for name, value in shares.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} is {value}: a share lies between 0 and 1")


def _check_chances(power: float, alpha: float) -> None:
    for name, value in (("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise ValueError(
                f"{name} is {value}: a chance that can be had is more than 0 and less than 1"
            )
