"""Twins in a crowd: one problem a thousand times with other names has half a million pairs of near-duplicates.

Nobody reads them, and what has to be known of each row is only whether it has a twin. So a crowd is compared with
representatives: a row that no representative has explained becomes one and is compared with all of the crowd; the rows
like it are explained by it. A crowd of one problem needs one or two of them.

Exact as long as the representatives last: 100 for each crowd, and more as long as all crowds together need at most
COMPARISONS. Only where many crowds of thousands of rows share numbers and a rare word, and yet are unlike, may a row's
twin be missed.
"""

from collections.abc import Sequence

REPRESENTATIVES = 100  # of a crowd, however large it is
COMPARISONS = 300_000_000  # of two rows, in one search: about 20 seconds


def partners(
    words: Sequence[int],
    starts: Sequence[int],
    digests: Sequence[int],
    rows: Sequence[int],
    alike: float,
    boundary: int | None = None,
    budget: int = COMPARISONS,
) -> tuple[list[tuple[int, int]], int]:
    """Pairs (row, a row of the crowd nearly like it), and how many comparisons are left of the budget.

    One pair for each row that has a twin; across `boundary` only, if given. `rows` are the crowd's, at least
    one; `words`, `starts` and `digests` those of duplicates.Index, of all rows. Rows with equal digests are
    the same, and no twins. `alike`: the share of words in common (Jaccard) from which on two rows are twins.
    """
    import numpy as np

    rows = np.asarray(rows, np.int64)
    codes = np.frombuffer(digests, np.uint64)[rows]
    held = np.zeros(len(rows), bool) if boundary is None else rows >= boundary
    # One of each question and side, in order: copies share its twin.
    _, first, copy = np.unique(
        np.stack([codes, held.astype(np.uint64)]), axis=1, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    first, place = first[order], np.argsort(order)[copy.ravel()]
    limit = max(REPRESENTATIVES, budget // len(first))
    parts = _gathered(words, starts, rows[first])
    twin, used = _twins(*parts, codes[first], held[first], alike, boundary is not None, limit)
    twin = twin[place]
    found = np.flatnonzero(twin >= 0)
    pairs = zip(rows[found].tolist(), rows[first[twin[found]]].tolist(), strict=True)
    return list(pairs), max(0, budget - used * len(first))


def _gathered(words: Sequence[int], starts: Sequence[int], rows) -> tuple:
    """(the rows' words behind one another, where each row begins, how many words each has)."""
    import numpy as np

    words, starts = np.frombuffer(words, np.uint32), np.frombuffer(starts, np.int64)
    sizes = starts[rows + 1] - starts[rows]
    begins = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    places = np.arange(sizes.sum()) + np.repeat(starts[rows] - begins, sizes)
    return np.unique(words[places], return_inverse=True)[1], begins, sizes


def _twins(words, begins, sizes, codes, held, alike: float, across: bool, limit: int) -> tuple:
    """(for each row the place of a row like it, or -1; how many representatives it took, at most `limit`)."""
    import numpy as np

    count = len(sizes)
    twin, waiting = np.full(count, -1), np.ones(count, bool)
    marked = np.zeros(words.max() + 1, np.uint8)
    smaller = held.sum() * 2 <= count
    queue = np.argsort(
        held != smaller, kind="stable"
    ).tolist()  # the smaller side first: mostly the held-out one
    at, used, suggested = 0, 0, None
    while used < limit:
        if suggested is None:
            while at < count and not waiting[queue[at]]:
                at += 1
            if at == count:
                break
            chosen = queue[at]
        else:
            chosen, suggested = suggested, None
        own = words[begins[chosen] : begins[chosen] + sizes[chosen]]
        marked[own] = 1
        shared = np.add.reduceat(marked[words], begins, dtype=np.int64)
        marked[own] = 0
        like = (shared / (sizes + sizes[chosen] - shared) >= alike) & (codes != codes[chosen])
        if across:
            like &= held != held[chosen]
        used += 1
        fresh = twin[chosen] < 0
        waiting[chosen] = False
        found = np.flatnonzero(like)
        if not len(found):
            continue
        if fresh:
            twin[chosen] = found[0]
        twin[found[twin[found] < 0]] = chosen
        waiting[found] = False
        if across and fresh:
            suggested = int(found[0])  # like many of this side, probably: explains them in one step
    return twin, used
