"""The exercises of notebook 09_merge_and_inference on merging."""

import math
from statistics import mean, variance

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "09_merge_and_inference"


# 09.1 merge_lora


def _product(left, right):
    return [
        [
            sum(x * y for x, y in zip(row, column, strict=True))
            for column in zip(*right, strict=True)
        ]
        for row in left
    ]


def _merged(W, A, B, scale, keep=1.0):
    update = _product(B, A)
    return [
        [keep * w + scale * u for w, u in zip(*rows, strict=True)]
        for rows in zip(W, update, strict=True)
    ]


def _other_order(W, A, B, alpha, r):
    update = _product(A, B)
    if (len(update), len(update[0])) != (len(W), len(W[0])):
        raise ValueError("the shapes do not fit")
    return [
        [w + alpha / r * u for w, u in zip(*rows, strict=True)]
        for rows in zip(W, update, strict=True)
    ]


exercise(
    "09.1",
    "merge_lora",
    NOTEBOOK,
    lambda: [
        ((W, A, B, alpha, r), _merged(W, A, B, alpha / r))
        for W, A, B, alpha, r in (
            ([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[1.0, 0.0, -1.0]], [[0.5], [2.0]], 2.0, 1),
            (
                [[0.0, 1.0], [2.0, 3.0]],
                [[1.0, 2.0], [0.0, 1.0]],
                [[1.0, 0.5], [-1.0, 0.0]],
                32.0,
                2,
            ),
            ([[1.0, 2.0, 3.0]], [[1.0, 1.0, 1.0], [0.0, 2.0, 0.0]], [[0.25, -0.5]], 1.0, 2),
            ([[1.0, -1.0]], [[3.0, 4.0]], [[0.0]], 16.0, 1),
        )
    ],
    [
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, 1.0),
            "you forgot the scale: the adapter adds alpha / r times B A",
        ),
        (
            lambda W, A, B, alpha, r: _merged(W, A, B, alpha),
            "you scaled by alpha alone: the scale is alpha / r, so that a larger rank does not mean a larger step",
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
            "you multiplied A by B: the input meets A first, so the product is B A, and only that has the shape of W",
        ),
    ],
)


# 09.2 round_to_grid


def _rounded(
    weights,
    levels,
    scale,
    nearest=lambda x, levels: min(levels, key=lambda level: abs(level - x)),
    back=True,
):
    if scale == 0:
        return [0.0 for _ in weights]
    return [nearest(w / scale, levels) * (scale if back else 1.0) for w in weights]


def _largest(weights):
    return max(abs(w) for w in weights)


def _zero_divided(weights, levels):
    scale = _largest(weights)
    return [min(levels, key=lambda level: abs(level - w / scale)) * scale for w in weights]


_GRID = [-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0]
exercise(
    "09.2",
    "round_to_grid",
    NOTEBOOK,
    lambda: [
        ((weights, _GRID), _rounded(weights, _GRID, _largest(weights)))
        for weights in (
            [0.5, -0.2, 0.1],
            [0.3, -2.0, 0.9, 0.6],
            [4.0, 3.2, -1.1],
            [0.0, 0.0],
            [0.7, -0.39, 0.05, 0.27],
        )
    ],
    [
        (
            lambda weights, levels: _rounded(weights, levels, 1.0),
            "you forgot the scale: divide by the block's largest magnitude first, so that the levels fit the weights",
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
            lambda weights, levels: _rounded(
                weights,
                levels,
                _largest(weights),
                lambda x, levels: max(level for level in levels if level <= x),
            ),
            "you took the next level below: rounding takes the nearest one, whichever side it is on",
        ),
        (
            _zero_divided,
            "a block of zeros has the scale 0, and you divided by it: its weights stay 0.0",
        ),
    ],
)


# 09.5 compare_merge


def _first_largest(row):
    return max(range(len(row)), key=lambda i: row[i])


def _same(ours, merged):
    return mean(
        float(_first_largest(a) == _first_largest(b)) for a, b in zip(ours, merged, strict=True)
    )


def _squares(ours, merged):
    return [
        mean((x - y) ** 2 for x, y in zip(*rows, strict=True))
        for rows in zip(ours, merged, strict=True)
    ]


def _compared(ours, merged):
    return math.sqrt(mean(_squares(ours, merged)) / mean(variance(row) for row in ours)), _same(
        ours, merged
    )


def _from_zero(ours, merged):
    size = mean(mean(x * x for x in row) for row in ours)
    return math.sqrt(mean(_squares(ours, merged)) / size), _same(ours, merged)


def _by_position(ours, merged):
    ratios = [s / variance(row) for s, row in zip(_squares(ours, merged), ours, strict=True)]
    return math.sqrt(mean(ratios)), _same(ours, merged)


def _largest_gap(ours, merged):
    gaps = [
        abs(x - y) for rows in zip(ours, merged, strict=True) for x, y in zip(*rows, strict=True)
    ]
    return max(gaps), _same(ours, merged)


_OURS = [[4.0, 1.0, 0.0, -1.0], [2.0, 2.5, 2.0, 1.5], [0.0, -3.0, 3.0, 0.0]]
exercise(
    "09.5",
    "compare_merge",
    NOTEBOOK,
    lambda: (
        [
            ((_OURS, merged), _compared(_OURS, merged))
            for merged in (
                _OURS,
                [[3.9, 1.1, 0.0, -1.0], [2.1, 2.4, 2.0, 1.5], [0.0, -3.1, 3.0, 0.1]],
                [[2.0, 0.5, 0.0, -0.5], [2.5, 2.0, 2.0, 1.5], [0.5, -1.5, 1.0, 0.0]],
                [[5.0, 2.0, 1.0, 0.0], [3.0, 3.5, 3.0, 2.5], [1.0, -2.0, 4.0, 1.0]],
            )
        ]
        + [(([[1.0, 0.0]], []), Raises(ValueError))]
    ),
    [
        (
            lambda ours, merged: (_compared(ours, merged)[0] ** 2, _same(ours, merged)),
            "you left out the square root: mean squares over a variance are the square of what is asked",
        ),
        (
            _largest_gap,
            "you gave the largest difference: whether 0.3 is much depends on how far the logits lie apart, so divide "
            "by their spread",
        ),
        (
            _from_zero,
            "you divided by the logits' size: only how far they lie apart matters, so take their variance, which is "
            "measured from their mean",
        ),
        (
            _by_position,
            "you divided at each position and averaged then: one position whose logits lie close together would "
            "decide. Average both first",
        ),
    ],
    tolerance=1e-5,
)
