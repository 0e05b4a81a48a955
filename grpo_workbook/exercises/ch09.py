"""The exercises of notebook 09_merge_and_inference."""

from functools import partial
from math import comb

import numpy as np

from grpo_workbook.exercises import exercise, experiment


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
exercise("09.1", "sampling_chances", [(asked, _chances(*asked)) for asked in _ASKED], {
    "you cut before the temperature: the temperature comes first, and a flatter distribution "
    "needs more tokens to reach top_p": _cut_first,
    "you left out the token that crosses top_p: the kept ones add up to at least "
    "top_p": partial(_chances, crossing=False),
    "what is left does not add up to 1: divide by its sum": partial(_chances, norm=list),
    "you multiplied by the temperature: logits are divided by it, so that a high one "
    "flattens": lambda logits, temperature, top_p: _chances(logits, 1 / temperature, top_p),
    "the temperature changed nothing: if you divided the chances by it, the sum undoes that. "
    "Divide the logits": lambda logits, temperature, top_p: _chances(logits, 1.0, top_p),
})  # fmt: skip


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
exercise("09.2", "left_pad", [(rows, _padded(*rows)) for rows in _ROWS], {
    "you padded on the right: the model would have to continue after it, so padding is before "
    "the prompt": partial(_padded, left=False),
    "your positions count the padding: a prompt's first token has position 0 wherever it "
    "stands": partial(_padded, edge=True),
    "you took the mask from the token's number: a prompt may hold the padding token itself, "
    "and that is to be read": partial(_padded, by_token=True),
    "your mask is upside down: 1 is what the model reads, 0 is padding":
        partial(_padded, upside_down=True),
})  # fmt: skip


def _paired(measured):
    better, worse, n = (measured[name] for name in ("better", "worse", "problems"))
    changed = better + worse
    p = min(1.0, 2 * sum(comb(changed, i) for i in range(min(better, worse) + 1)) / 2**changed)
    said = f"Of {n} problems {better} got better and {worse} worse (paired test: p = {p:.2g})."
    return "stays" if p > 0.05 else "rises" if better > worse else "falls", said


experiment("09.3", "other_prompt", _paired, {
    "falls": "The form followed the turn of the assistant here, and not the words before it: "
    "do not rely on that with another prompt or model.",
    "stays": "The answers changed more than chance would change them: the system prompt is a "
    "part of what the model was trained on, so it belongs to the model.",
    "rises": "A prompt that the rewards never saw is rarely better than the one of training; "
    "look at the completions before you believe it.",
}, [
    ({"better": 0, "worse": 15, "problems": 120}, "falls"),  # without a system prompt
    ({"better": 1, "worse": 0, "problems": 120}, "stays"),  # the same in other words
])  # fmt: skip
experiment("09.4", "fewer_bits", _paired, {
    "falls": "No loss was shown. A small one may hide in so few problems: see how many would "
    "show it, by `power` of chapter 08.",
    "stays": "More answers changed in one direction than chance explains, so rounding moved "
    "this model: report the score of the 4-bit model.",
    "rises": "Rounding adds errors to weights and no skill; where it seems to help, suspect "
    "chance or a policy that was trained on the 4-bit base.",
}, [({"better": 1, "worse": 0, "problems": 120}, "stays")])  # fmt: skip
