"""The exercises of notebook 09_merge_and_inference on sampling and padding."""

import math

from grpo_workbook.exercises import exercise

NOTEBOOK = "09_merge_and_inference"


# 09.3 sampling_chances


def _softmax(logits):
    top = max(logits)
    weights = [math.exp(x - top) for x in logits]
    return [w / sum(weights) for w in weights]


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


def _chances(logits, temperature, top_p):
    return _normed(_cut(_softmax([x / temperature for x in logits]), top_p))


def _cut_first(logits, temperature, top_p):
    kept = _cut(_softmax(logits), top_p)
    scaled = _softmax([x / temperature for x in logits])
    return _normed([s if k else 0.0 for s, k in zip(scaled, kept, strict=True)])


_LOGITS = [2.0, 0.5, 1.0, -1.0, 0.0]
exercise(
    "09.3",
    "sampling_chances",
    NOTEBOOK,
    lambda: [
        ((logits, temperature, top_p), _chances(logits, temperature, top_p))
        for logits, temperature, top_p in (
            (_LOGITS, 1.0, 1.0),
            (_LOGITS, 2.0, 0.8),
            (_LOGITS, 0.5, 0.9),
            (_LOGITS, 1.0, 0.7),
            (_LOGITS, 1.0, 0.3),
            ([0.0, 3.0, 1.0], 1.5, 0.95),
        )
    ],
    [
        (
            _cut_first,
            "you cut before the temperature: the temperature comes first, and a flatter distribution needs more tokens "
            "to reach top_p",
        ),
        (
            lambda logits, temperature, top_p: _normed(
                _cut(_softmax([x / temperature for x in logits]), top_p, crossing=False)
            ),
            "you left out the token that crosses top_p: the kept ones add up to at least top_p",
        ),
        (
            lambda logits, temperature, top_p: _cut(
                _softmax([x / temperature for x in logits]), top_p
            ),
            "what is left does not add up to 1: divide by its sum",
        ),
        (
            lambda logits, temperature, top_p: _normed(
                _cut(_softmax([x * temperature for x in logits]), top_p)
            ),
            "you multiplied by the temperature: logits are divided by it, so that a high one flattens",
        ),
        (
            lambda logits, temperature, top_p: _normed(
                _cut(_normed([c / temperature for c in _softmax(logits)]), top_p)
            ),
            "you divided the chances by the temperature, which changes nothing after the sum is 1: divide the logits",
        ),
    ],
)


# 09.4 left_pad


def _padded(rows, pad, left=True):
    width = max(map(len, rows))
    ids, mask, places = [], [], []
    for row in rows:
        gap = width - len(row)
        parts = ([pad] * gap, row), ([0] * gap, [1] * len(row)), ([0] * gap, list(range(len(row))))
        a, b, c = (x + y if left else y + x for x, y in parts)
        ids, mask, places = [*ids, a], [*mask, b], [*places, c]
    return ids, mask, places


def _from_the_edge(rows, pad):
    ids, mask, places = _padded(rows, pad)
    return ids, mask, [list(range(len(row))) for row in places]


def _by_the_token(rows, pad):
    ids, _, places = _padded(rows, pad)
    return ids, [[int(token != pad) for token in row] for row in ids], places


def _upside_down(rows, pad):
    ids, mask, places = _padded(rows, pad)
    return ids, [[1 - m for m in row] for row in mask], places


exercise(
    "09.4",
    "left_pad",
    NOTEBOOK,
    lambda: [
        ((rows, pad), _padded(rows, pad))
        for rows, pad in (
            ([[5, 6, 7], [8]], 0),
            ([[1, 2], [3, 4]], 9),
            ([[0, 5], [7, 8, 9, 4]], 0),
            ([[3]], 0),
        )
    ],
    [
        (
            lambda rows, pad: _padded(rows, pad, left=False),
            "you padded on the right: the model would have to go on after padding, so it comes before the prompt",
        ),
        (
            _from_the_edge,
            "your positions count the padding: a prompt's first token has position 0 wherever it stands",
        ),
        (
            _by_the_token,
            "you took the mask from the token's number: a prompt may hold the padding token itself, and that is to be "
            "read",
        ),
        (_upside_down, "your mask is upside down: 1 is what the model reads, 0 is padding"),
    ],
)
