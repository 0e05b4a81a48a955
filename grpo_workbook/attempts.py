"""Several attempts at each problem: the chance that one of k is right (pass@k), and that their majority is (maj@k).

Both are expectations over every choice of k out of the n attempts that were made, exactly: no draw is left to luck.
"""

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import comb


def pass_at_k(n: int, right: int, k: int) -> float:
    """The share of the choices of k out of n attempts that hold at least one of the `right` ones.

    1 - C(n - right, k) / C(n, k), as a product of factors below 1, so that nothing overflows (Chen et al. 2021,
    "Evaluating Large Language Models Trained on Code"). Unbiased, where 1 - (1 - right / n) ** k is not. Raises
    ValueError unless 1 <= k <= n and 0 <= right <= n.
    """
    _check(n, k)
    if not 0 <= right <= n:
        raise ValueError(f"{right} of {n} attempts cannot be right")
    missed = 1.0
    for i in range(n - right + 1, n + 1):  # one factor for each right attempt: not among the k
        missed *= max(0.0, 1 - k / i)
    return 1.0 - missed


def majority_at_k(votes: Sequence[Hashable | None], reference: Hashable, k: int) -> float:
    """The share, 0 to 1, of the choices of k out of all votes whose commonest answer is `reference` (maj@k).

    None abstains. A tie counts as the share of `reference` among the tied: 1/2 of two. When all k abstain it is wrong.
    Raises ValueError unless 1 <= k <= len(votes).
    """
    _check(len(votes), k)
    counts = Counter(v for v in votes if v is not None)
    right = counts.pop(reference, 0)
    return _majority(right, tuple(sorted(counts.values())), len(votes) - right - counts.total(), k)


@lru_cache(maxsize=65_536)
def _majority(right: int, others: tuple[int, ...], silent: int, k: int) -> float:
    """The same from the counts: of the reference answer, of each other answer, of those that abstain."""
    total = 0.0
    choices = comb(right + sum(others) + silent, k)
    for votes in range(1, min(right, k) + 1):  # that the reference answer has among the k
        # ways[used, ties]: how many choices of the others use so many of the k, none with more votes than it
        ways = {(votes, 0): comb(right, votes)}
        for count in others:
            more: dict[tuple[int, int], int] = {}
            for (used, ties), number in ways.items():
                for taken in range(min(count, votes, k - used) + 1):
                    place = used + taken, ties + (taken == votes)
                    more[place] = more.get(place, 0) + number * comb(count, taken)
            ways = more
        for (used, ties), number in ways.items():
            if k - used <= silent:
                total += number * comb(silent, k - used) / choices / (ties + 1)
    return min(1.0, total)


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k is {k} and there are {n} attempts: choose k from 1 to {n}")
