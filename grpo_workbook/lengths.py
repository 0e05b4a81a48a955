"""A list of lengths in few numbers: percentiles that occur, and bins of a round width."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

PERCENTILES = (0, 5, 25, 50, 75, 95, 99, 100)


def percentiles(counts: Sequence[int]) -> dict[int, int]:
    """{per cent: the smallest count that so many per cent of all counts do not exceed}, for PERCENTILES.

    Raises IndexError for no counts.
    """
    ordered = sorted(counts)
    return {p: ordered[max(0, -(-p * len(ordered) // 100) - 1)] for p in PERCENTILES}


def histogram(counts: Sequence[int], bins: int = 10) -> list[tuple[int, int, int]]:
    """(from, to, how many) in at most `bins` + 1 bins of one round width; the upper end belongs to the next bin.

    Raises ValueError for no counts.
    """
    low, high = min(counts), max(counts)
    width = next(
        w for e in range(12) for w in (10**e, 2 * 10**e, 5 * 10**e) if (high - low) // w < bins
    )
    edges = list(range(low // width * width, high + width + 1, width))
    found = Counter((n - edges[0]) // width for n in counts)
    return [(a, b, found[i]) for i, (a, b) in enumerate(pairwise(edges)) if a <= high]
