"""How many problems a paired comparison needs: how probably a gain gives p <= 0.05."""

from bisect import bisect_left

import numpy as np
import scipy  # .stats is loaded on its first use

from grpo_workbook.errors import WorkbookError


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
    for most in (2**i for i in range(3, 21)):
        if better != worse and paired_power(most, better, worse) >= power:
            # the exact power rises like a saw, so a few problems less may be enough
            return bisect_left(range(most), power, key=lambda n: paired_power(n, better, worse))
    raise WorkbookError(f"better is {better}, worse {worse}: a million problems show no gain")


def paired_gain(items: int, worse: float = 0.0, power: float = 0.8) -> float | None:
    """The smallest gain that a paired test with `items` problems finds, if a fraction `worse` gets
    worse, rounded up to 4 places. None: 5 problems are too few even if all get better.
    """
    gains = [step / 10_000 for step in range(1, int((1 - 2 * worse) * 10_000 + 1e-6) + 1)]
    found = bisect_left(gains, power, key=lambda gain: paired_power(items, worse + gain, worse))
    return gains[found] if found < len(gains) else None
