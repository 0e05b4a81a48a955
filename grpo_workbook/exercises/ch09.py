"""The exercises of notebook 09_merge_and_inference."""

import numpy as np

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "09_merge_and_inference"


def _merged(W, A, B, scale, keep=1.0):
    return (keep * np.array(W) + scale * np.array(B) @ np.array(A)).tolist()


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
    lambda: [(layer, _merged(*layer[:3], layer[3] / layer[4])) for layer in _LAYERS],
    [
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, 1.0),
            "you forgot the scale: the adapter adds alpha / r times B A",
        ),
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, alpha),
            "you scaled by alpha alone: the scale is alpha / r, so that a larger rank does not "
            "mean a larger step",
        ),
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, r / alpha),
            "your scale is upside down: it is alpha / r",
        ),
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, alpha / r, keep=0.0),
            "you returned what the adapter adds: the merged weight is W plus that",
        ),
        (
            _other_order,
            "you multiplied A by B: the input meets A first, so the product is B A, and only that "
            "has the shape of W",
        ),
    ],
)


def _nearest(x, levels):
    return min(levels, key=lambda level: abs(level - x))


def _rounded(weights, levels, scale, choose=_nearest, back=True):
    if scale == 0:
        return [0.0 for _ in weights]
    return [choose(w / scale, levels) * (scale if back else 1.0) for w in weights]


def _largest(weights):
    return max(abs(w) for w in weights)


def _below(x, levels):
    return max(level for level in levels if level <= x)


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
    lambda: [((block, _GRID), _rounded(block, _GRID, _largest(block))) for block in _BLOCKS],
    [
        (
            lambda weights, levels: _rounded(weights, levels, 1.0),
            "you forgot the scale: divide by the block's largest magnitude first, so that the "
            "levels fit the weights",
        ),
        (
            lambda weights, levels: _rounded(weights, levels, max(weights)),
            "your scale is the largest weight, not the largest magnitude: in [0.3, -2.0] it is 2.0",
        ),
        (
            lambda weights, levels: _rounded(weights, levels, _largest(weights), back=False),
            "you returned levels between -1 and 1: multiply them by the scale again to get weights",
        ),
        (
            lambda weights, levels: _rounded(weights, levels, _largest(weights), _below),
            "you took the next level below: rounding takes the nearest one, on whichever side",
        ),
        (
            lambda weights, levels: [
                _nearest(w / _largest(weights), levels) * _largest(weights) for w in weights
            ],
            "a block of zeros has the scale 0, and you divided by it: its weights stay 0.0",
        ),
    ],
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


def _chances(logits, temperature, top_p, crossing=True):
    return _normed(_cut(_softmax([x / temperature for x in logits]), top_p, crossing))


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
    lambda: [(asked, _chances(*asked)) for asked in _ASKED],
    [
        (
            _cut_first,
            "you cut before the temperature: the temperature comes first, and a flatter "
            "distribution needs more tokens to reach top_p",
        ),
        (
            lambda *asked: _chances(*asked, crossing=False),
            "you left out the token that crosses top_p: the kept ones add up to at least top_p",
        ),
        (
            lambda logits, temperature, top_p: _cut(
                _softmax([x / temperature for x in logits]), top_p
            ),
            "what is left does not add up to 1: divide by its sum",
        ),
        (
            lambda logits, temperature, top_p: _chances(logits, 1 / temperature, top_p),
            "you multiplied by the temperature: logits are divided by it, so that a high one "
            "flattens",
        ),
        (
            lambda logits, temperature, top_p: _chances(logits, 1.0, top_p),
            "the temperature changed nothing: if you divided the chances by it, the sum undoes "
            "that. Divide the logits",
        ),
    ],
)


def _padded(rows, pad, left=True):
    width = max(map(len, rows))
    found = []
    for row in rows:
        gap = width - len(row)
        parts = ([pad] * gap, row), ([0] * gap, [1] * len(row)), ([0] * gap, [*range(len(row))])
        found.append([a + b if left else b + a for a, b in parts])
    return tuple(map(list, zip(*found, strict=True)))


def _from_the_edge(rows, pad):
    ids, mask, places = _padded(rows, pad)
    return ids, mask, [list(range(len(row))) for row in places]


def _by_the_token(rows, pad):
    ids, _, places = _padded(rows, pad)
    return ids, [[int(token != pad) for token in row] for row in ids], places


def _upside_down(rows, pad):
    ids, mask, places = _padded(rows, pad)
    return ids, [[1 - m for m in row] for row in mask], places


_ROWS = (([[5, 6, 7], [8]], 0), ([[1, 2], [3, 4]], 9), ([[0, 5], [7, 8, 9, 4]], 0), ([[3]], 0))
exercise(
    "09.4",
    "left_pad",
    NOTEBOOK,
    lambda: [(rows, _padded(*rows)) for rows in _ROWS],
    [
        (
            lambda rows, pad: _padded(rows, pad, left=False),
            "you padded on the right: the model would have to go on after padding, so it comes "
            "before the prompt",
        ),
        (
            _from_the_edge,
            "your positions count the padding: a prompt's first token has position 0 wherever it "
            "stands",
        ),
        (
            _by_the_token,
            "you took the mask from the token's number: a prompt may hold the padding token "
            "itself, and that is to be read",
        ),
        (_upside_down, "your mask is upside down: 1 is what the model reads, 0 is padding"),
    ],
)


def _compared(ours, merged, how=lambda a, b: (np.mean((a - b) ** 2) / _spread(a)) ** 0.5):
    a, b = np.array(ours), np.array(merged)
    return float(how(a, b)), float((a.argmax(1) == b.argmax(1)).mean())


def _spread(a):
    return a.var(1, ddof=1).mean()


def _each(a, b):
    return np.mean(((a - b) ** 2).mean(1) / a.var(1, ddof=1)) ** 0.5


_OURS = [[4.0, 1.0, 0.0, -1.0], [2.0, 2.5, 2.0, 1.5], [0.0, -3.0, 3.0, 0.0]]
_OTHERS = (
    _OURS,
    [[3.9, 1.1, 0.0, -1.0], [2.1, 2.4, 2.0, 1.5], [0.0, -3.1, 3.0, 0.1]],
    [[2.0, 0.5, 0.0, -0.5], [2.5, 2.0, 2.0, 1.5], [0.5, -1.5, 1.0, 0.0]],
    [[5.0, 2.0, 1.0, 0.0], [3.0, 3.5, 3.0, 2.5], [1.0, -2.0, 4.0, 1.0]],
)
exercise(
    "09.5",
    "compare_merge",
    NOTEBOOK,
    lambda: (
        [((_OURS, merged), _compared(_OURS, merged)) for merged in _OTHERS]
        + [(([[1.0, 0.0]], []), Raises(ValueError))]
    ),
    [
        (
            lambda *both: _compared(*both, lambda a, b: np.mean((a - b) ** 2) / _spread(a)),
            "you left out the square root: mean squares over a variance are the square of what is "
            "asked",
        ),
        (
            lambda *both: _compared(*both, lambda a, b: abs(a - b).max()),
            "you gave the largest difference: whether 0.3 is much depends on how far the logits "
            "lie apart, so divide by their spread",
        ),
        (
            lambda *both: _compared(
                *both, lambda a, b: (((a - b) ** 2).mean() / (a**2).mean()) ** 0.5
            ),
            "you divided by the logits' size: only how far they lie apart matters, so take their "
            "variance, which is measured from their mean",
        ),
        (
            lambda *both: _compared(*both, _each),
            "you divided at each position and averaged then: one position whose logits lie close "
            "together would decide. Average both first",
        ),
    ],
    tolerance=1e-5,
)
