"""The exercises of notebook 09_merge_and_inference."""

from functools import partial

import numpy as np

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "09_merge_and_inference"


def _merged(W, A, B, alpha, r, scale=lambda alpha, r: alpha / r, keep=1.0):
    return (keep * np.array(W) + scale(alpha, r) * np.array(B) @ np.array(A)).tolist()


def _other_order(W, A, B, alpha, r):
    update = np.array(A) @ np.array(B)
    if update.shape != np.shape(W):
        raise ValueError("the shapes do not fit")
    return (np.array(W) + alpha / r * update).tolist()


_LAYERS = (
    ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 0.0, -1.0]], [[0.5], [2.0]], 2.0, 1),
    ([[0.0, 1.0], [2.0, 3.0]], [[1.0, 2.0], [0.0, 1.0]], [[1.0, 0.5], [-1.0, 0.0]], 32.0, 2),
    ([[1.0, 2.0, 3.0]], [[1.0, 1.0, 1.0], [0.0, 2.0, 0.0]], [[0.25, -0.5]], 1.0, 2),
    ([[1.0, -1.0]], [[3.0, 4.0]], [[0.0]], 16.0, 1),
)
exercise(
    "09.1",
    "merge_lora",
    NOTEBOOK,
    [(layer, _merged(*layer)) for layer in _LAYERS],
    {
        "you forgot the scale: the adapter adds alpha / r times B A": partial(
            _merged, scale=lambda alpha, r: 1.0
        ),
        "you scaled by alpha alone: the scale is alpha / r, so that a larger rank does not mean a "
        "larger step": partial(_merged, scale=lambda alpha, r: alpha),
        "your scale is upside down: it is alpha / r": partial(
            _merged, scale=lambda alpha, r: r / alpha
        ),
        "you returned what the adapter adds: the merged weight is W plus that": partial(
            _merged, keep=0.0
        ),
        "you multiplied A by B: the input meets A first, so the product is B A, and only that has "
        "the shape of W": _other_order,
    },
)


def _nearest(x, levels):
    return min(levels, key=lambda level: abs(level - x))


def _below(x, levels):
    return max(level for level in levels if level <= x)


def _largest(weights):
    return max(abs(w) for w in weights)


def _rounded(weights, levels, size=_largest, choose=_nearest, back=True, zeros=True):
    scale = size(weights)
    if scale == 0 and zeros:
        return [0.0 for _ in weights]
    return [choose(w / scale, levels) * (scale if back else 1.0) for w in weights]


_GRID = [-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0]
_BLOCKS = (
    [0.5, -0.2, 0.1],
    [0.3, -2.0, 0.9, 0.6],
    [4.0, 3.2, -1.1],
    [0.0, 0.0],
    [0.7, -0.39, 0.05, 0.27],
)
exercise(
    "09.2",
    "round_to_grid",
    NOTEBOOK,
    [((block, _GRID), _rounded(block, _GRID)) for block in _BLOCKS],
    {
        "you forgot the scale: divide by the block's largest magnitude first, so that the levels "
        "fit the weights": partial(_rounded, size=lambda weights: 1.0),
        "your scale is the largest weight, not the largest magnitude: in [0.3, -2.0] it is "
        "2.0": partial(_rounded, size=max),
        "you returned levels between -1 and 1: multiply them by the scale again to get "
        "weights": partial(_rounded, back=False),
        "you took the next level below: rounding takes the nearest one, on whichever side": partial(
            _rounded, choose=_below
        ),
        "a block of zeros has the scale 0, and you divided by it: its weights stay 0.0": partial(
            _rounded, zeros=False
        ),
    },
)


def _softmax(logits):
    weights = np.exp(np.array(logits) - max(logits))
    return (weights / weights.sum()).tolist()


def _cut(chances, top_p, crossing=True):
    order, kept, total = sorted(range(len(chances)), key=lambda i: -chances[i]), set(), 0.0
    for i in order:
        if not crossing and kept and total + chances[i] > top_p:
            break
        kept.add(i)
        total += chances[i]
        if total >= top_p:
            break
    return [c if i in kept else 0.0 for i, c in enumerate(chances)]


def _normed(chances):
    return [c / sum(chances) for c in chances]


def _chances(logits, temperature, top_p, crossing=True, norm=_normed):
    return norm(_cut(_softmax([x / temperature for x in logits]), top_p, crossing))


def _cut_first(logits, temperature, top_p):
    kept = _cut(_softmax(logits), top_p)
    scaled = _softmax([x / temperature for x in logits])
    return _normed([s if k else 0.0 for s, k in zip(scaled, kept, strict=True)])


_LOGITS = [2.0, 0.5, 1.0, -1.0, 0.0]
_CUTS = ((1.0, 1.0), (2.0, 0.8), (0.5, 0.9), (1.0, 0.7), (1.0, 0.3))
_ASKED = (*((_LOGITS, *cut) for cut in _CUTS), ([0.0, 3.0, 1.0], 1.5, 0.95))
exercise(
    "09.3",
    "sampling_chances",
    NOTEBOOK,
    [(asked, _chances(*asked)) for asked in _ASKED],
    {
        "you cut before the temperature: the temperature comes first, and a flatter distribution "
        "needs more tokens to reach top_p": _cut_first,
        "you left out the token that crosses top_p: the kept ones add up to at least "
        "top_p": partial(_chances, crossing=False),
        "what is left does not add up to 1: divide by its sum": partial(_chances, norm=list),
        "you multiplied by the temperature: logits are divided by it, so that a high one "
        "flattens": lambda logits, temperature, top_p: _chances(logits, 1 / temperature, top_p),
        "the temperature changed nothing: if you divided the chances by it, the sum undoes that. "
        "Divide the logits": lambda logits, temperature, top_p: _chances(logits, 1.0, top_p),
    },
)


def _padded(rows, pad, left=True, edge=False, by_token=False, upside_down=False):
    width, found = max(map(len, rows)), []
    for row in rows:
        gap, places = width - len(row), [*range(len(row))]
        parts = ([pad] * gap, row), ([0] * gap, [1] * len(row)), ([0] * gap, places)
        ids, mask, places = (a + b if left else b + a for a, b in parts)
        mask = [int(token != pad) for token in ids] if by_token else mask
        mask = [1 - m for m in mask] if upside_down else mask
        found.append([ids, mask, [*range(width)] if edge else places])
    return tuple(map(list, zip(*found, strict=True)))


_ROWS = (([[5, 6, 7], [8]], 0), ([[1, 2], [3, 4]], 9), ([[0, 5], [7, 8, 9, 4]], 0), ([[3]], 0))
exercise(
    "09.4",
    "left_pad",
    NOTEBOOK,
    [(rows, _padded(*rows)) for rows in _ROWS],
    {
        "you padded on the right: the model would have to go on after padding, so it comes before "
        "the prompt": partial(_padded, left=False),
        "your positions count the padding: a prompt's first token has position 0 wherever it "
        "stands": partial(_padded, edge=True),
        "you took the mask from the token's number: a prompt may hold the padding token itself, "
        "and that is to be read": partial(_padded, by_token=True),
        "your mask is upside down: 1 is what the model reads, 0 is padding": partial(
            _padded, upside_down=True
        ),
    },
)


def _spread(a):
    return a.var(1, ddof=1).mean()


def _compared(ours, merged, how=lambda a, b: (np.mean((a - b) ** 2) / _spread(a)) ** 0.5):
    a, b = np.array(ours), np.array(merged)
    return float(how(a, b)), float((a.argmax(1) == b.argmax(1)).mean())


_OURS = [[4.0, 1.0, 0.0, -1.0], [2.0, 2.5, 2.0, 1.5], [0.0, -3.0, 3.0, 0.0]]
_OTHERS = (
    _OURS,
    [[3.9, 1.1, 0.0, -1.0], [2.1, 2.4, 2.0, 1.5], [0.0, -3.1, 3.0, 0.1]],
    [[2.0, 0.5, 0.0, -0.5], [2.5, 2.0, 2.0, 1.5], [0.5, -1.5, 1.0, 0.0]],
    [[5.0, 2.0, 1.0, 0.0], [3.0, 3.5, 3.0, 2.5], [1.0, -2.0, 4.0, 1.0]],
)
_COMPARED = [((_OURS, merged), _compared(_OURS, merged)) for merged in _OTHERS]
exercise(
    "09.5",
    "compare_merge",
    NOTEBOOK,
    [*_COMPARED, (([[1.0, 0.0]], []), Raises(ValueError))],
    {
        "you left out the square root: mean squares over a variance are the square of what is "
        "asked": partial(_compared, how=lambda a, b: np.mean((a - b) ** 2) / _spread(a)),
        "you gave the largest difference: whether 0.3 is much depends on how far the logits lie "
        "apart, so divide by their spread": partial(_compared, how=lambda a, b: abs(a - b).max()),
        "you divided by the logits' size: only how far they lie apart matters, so take their "
        "variance, which is measured from their mean": partial(
            _compared, how=lambda a, b: (((a - b) ** 2).mean() / (a**2).mean()) ** 0.5
        ),
        "you divided at each position and averaged then: one position whose logits lie close "
        "together would decide. Average both first": partial(
            _compared, how=lambda a, b: np.mean(((a - b) ** 2).mean(1) / a.var(1, ddof=1)) ** 0.5
        ),
    },
    tolerance=1e-5,
)
