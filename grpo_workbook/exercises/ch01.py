"""The exercises of notebook 01_grpo_from_scratch."""

import math
from statistics import mean, pstdev, stdev

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "01_grpo_from_scratch"


# 01.1 advantages


def _advantages(rewards, size, deviation=stdev, centre=mean, epsilon=1e-4):
    groups = [rewards[i : i + size] for i in range(0, len(rewards), size)]
    return [(r - centre(g)) / (deviation(g) + epsilon) for g in groups for r in g]


_TWO_GROUPS = [1.0, 1.0, 0.0, 0.0, 9.0, 7.0, 5.0, 7.0]
exercise(
    "01.1",
    "advantages",
    NOTEBOOK,
    [
        (([1.0, 1.0, 0.0, 0.0], 4), _advantages([1.0, 1.0, 0.0, 0.0], 4)),
        (([3.0, 3.0, 3.0, 3.0], 4), [0.0, 0.0, 0.0, 0.0]),
        ((_TWO_GROUPS, 4), _advantages(_TWO_GROUPS, 4)),
        (([0.0, 2.0, 4.0, 10.0, 12.0, 14.0], 3), [-2 / 2.0001, 0.0, 2 / 2.0001] * 2),
    ],
    [
        (
            lambda rewards, size: _advantages(rewards, size, pstdev),
            "you divided by the population deviation: TRL divides by n - 1, as stdev does",
        ),
        (
            lambda rewards, size: _advantages(rewards, len(rewards)),
            "you compared with the whole batch: a hard problem's best answer then counts as bad",
        ),
        (
            lambda rewards, size: _advantages(rewards, size, centre=lambda g: mean(rewards)),
            "you subtracted the whole batch's mean: an answer is compared with its own group only",
        ),
        (
            lambda rewards, size: _advantages(rewards, size, lambda g: stdev(rewards)),
            "you divided by the deviation of the whole batch: that is scale_rewards='batch'",
        ),
        (
            lambda rewards, size: _advantages(rewards, size, lambda g: 1.0, epsilon=0.0),
            "you did not divide: an advantage is in units of its group's deviation",
        ),
        (
            lambda rewards, size: _advantages(rewards, size, epsilon=0.0),
            "you divided by the bare deviation: it is 0 where all are equal; add 1e-4 as TRL does",
        ),
    ],
    tolerance=1e-5,
)


# 01.2 the ratio of a sequence


def _log_ratios(logp, old_logp, mask):
    return [(a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)]


def _ratio(logp, old_logp, mask):
    return math.exp(sum(_log_ratios(logp, old_logp, mask)) / sum(mask))


def _ratio_arithmetic(logp, old_logp, mask):
    kept = [math.exp(a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)]
    return sum(kept) / sum(mask)


_RATIOS = [
    ([-1.0, -2.0, -3.0], [-1.5, -2.0, -2.0], [1, 1, 1]),
    ([-1.0, -0.5, -7.0, -9.0], [-1.2, -0.9, -1.0, -1.0], [1, 1, 0, 0]),
    ([-0.7, -4.0], [-0.7, -1.0], [1, 0]),
]
exercise(
    "01.2",
    "sequence_ratio",
    NOTEBOOK,
    [(case, _ratio(*case)) for case in _RATIOS],
    [
        (
            lambda logp, old, mask: _ratio(logp, old, [1] * len(mask)),
            "you left the mask out: log-probabilities of padding are in your ratio",
        ),
        (
            lambda *given: math.exp(sum(_log_ratios(*given)) / len(given[0])),
            "you divided by the padded length: divide by how many tokens the mask keeps",
        ),
        (
            lambda *given: math.exp(sum(_log_ratios(*given))),
            "you took no mean over tokens: the ratio of a long answer explodes",
        ),
        (
            lambda *given: 1 / _ratio(*given),
            "you turned the ratio over: the new policy stands above the old, exp(logp - old_logp)",
        ),
        (_ratio_arithmetic, "you averaged the tokens' ratios: GSPO averages their logarithms"),
    ],
)


# 01.3 clipping


def _clip(ratio, low, high):
    return min(max(ratio, low), high)


def _clipped(ratio, A, low, high):
    return -min(ratio * A, _clip(ratio, 1 - low, 1 + high) * A)


_CLIPS = [(r, a, 0.2, 0.28) for a in (1.0, -0.5) for r in (1.0, 0.6, 0.9, 1.25, 1.5)]
exercise(
    "01.3",
    "clipped_loss",
    NOTEBOOK,
    [(case, _clipped(*case)) for case in _CLIPS],
    [
        (
            lambda ratio, A, low, high: -min(ratio * A, _clip(ratio, low, high) * A),
            "you clipped to the epsilons themselves: the bounds are 1 - epsilon_low and 1 + "
            "epsilon_high",
        ),
        (
            lambda *given: -_clipped(*given),
            "the minus sign is missing: a loss is made smaller, a good token must become likelier",
        ),
        (
            lambda ratio, A, low, high: _clipped(ratio, A, high, low),
            "you swapped the epsilons: epsilon_low belongs below 1, epsilon_high above",
        ),
        (
            lambda ratio, A, low, high: -max(ratio * A, _clip(ratio, 1 - low, 1 + high) * A),
            "you took the larger of the two: PPO takes the smaller, the pessimistic one",
        ),
        (
            lambda ratio, A, low, high: -min(ratio * A, min(ratio, 1 + high) * A),
            "you forgot the lower side: with A < 0 the ratio must stop at 1 - epsilon_low",
        ),
        (
            lambda ratio, A, low, high: -min(ratio * A, max(ratio, 1 - low) * A),
            "you forgot the upper side: with A > 0 the ratio must stop at 1 + epsilon_high",
        ),
        (
            lambda ratio, A, low, high: -_clip(ratio, 1 - low, 1 + high) * A,
            "you left out the minimum: a token that went the wrong way must be able to come back",
        ),
    ],
)


# 01.4 the KL estimator


def _k3(logp, ref_logp):
    return [math.exp(r - p) - (r - p) - 1 for p, r in zip(logp, ref_logp, strict=True)]


def _each(formula):
    return lambda logp, ref: [formula(r - p) for p, r in zip(logp, ref, strict=True)]


_KLS = [
    ([-1.0, -0.5], [-1.0, -0.5]),
    ([-0.7, -2.0, -0.1], [-0.3, -3.0, -1.5]),
    ([-0.693], [-0.288]),
]
_REVERSED = "you have the ratio reversed: it is reference over policy, exp(ref_logp - logp)"
exercise(
    "01.4",
    "k3",
    NOTEBOOK,
    [(case, _k3(*case)) for case in _KLS],
    [
        (_each(lambda d: math.exp(-d) + d - 1), _REVERSED),
        (
            _each(lambda d: math.exp(-d) - d - 1),
            "the ratio and the logarithm point in different directions: both are ref_logp - logp",
        ),
        (
            _each(lambda d: -d),
            "that is k1, the bare difference: it is unbiased, but negative for many tokens",
        ),
        (
            _each(lambda d: d * d / 2),
            "that is k2, half the square: it is never negative, but biased",
        ),
    ],
)


# 01.5 the penalty, with gradients


def _with_gradients(fn, logp, ref_logp, mask):
    import torch

    policy, reference = (torch.tensor(x, requires_grad=True) for x in (logp, ref_logp))
    penalty = fn(policy, reference, torch.tensor(mask))
    gradients = [torch.zeros_like(policy), torch.zeros_like(reference)]
    if penalty.requires_grad:
        found = torch.autograd.grad(penalty, [policy, reference], allow_unused=True)
        gradients = [zero if g is None else g for zero, g in zip(gradients, found, strict=True)]
    return {
        "penalty": float(penalty.detach()),
        "gradient into the policy": gradients[0].tolist(),
        "gradient into the reference": gradients[1].tolist(),
    }


def _penalty(logp, ref_logp, mask):
    d = ref_logp - logp
    return ((d.exp() - d - 1) * mask).sum() / mask.sum()


def _penalty_by_answers(logp, ref_logp, mask):
    d = ref_logp.detach() - logp
    return (((d.exp() - d - 1) * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def _right_penalty(logp, ref_logp, mask):
    return _penalty(logp, ref_logp.detach(), mask)


def _penalty_cases():
    cases = [
        ([[-1.0, -0.5], [-2.0, -0.1]], [[-1.2, -0.4], [-1.0, -0.3]], [[1.0, 1.0], [1.0, 1.0]]),
        (
            [[-1.0, -0.5, -6.0], [-2.0, -9.0, -9.0]],
            [[-1.5, -0.2, -1.0], [-1.7, -5.0, -2.0]],
            [[1.0, 1, 0], [1, 0, 0]],
        ),
    ]
    return [(case, _with_gradients(_right_penalty, *case)) for case in cases]


exercise(
    "01.5",
    "kl_penalty",
    NOTEBOOK,
    _penalty_cases,
    [
        (
            _penalty,
            "a gradient flows through the reference: it is frozen; take ref_logp.detach()",
        ),
        (
            lambda logp, ref, mask: _penalty(logp.detach(), ref, mask),
            "you detached the wrong one: the policy must get the gradient, not the reference",
        ),
        (
            lambda logp, ref, mask: _right_penalty(logp.detach(), ref, mask),
            "no gradient reaches the policy: detach the reference alone",
        ),
        (
            _penalty_by_answers,
            "you took the mean of each answer first: it is one mean over all tokens that are kept",
        ),
        (
            lambda logp, ref, mask: _right_penalty(logp, ref, mask) * mask.mean(),
            "you divided by all entries: divide by the sum of the mask",
        ),
        (lambda logp, ref, mask: _penalty(ref.detach(), logp, mask), _REVERSED),
        (
            lambda logp, ref, mask: _right_penalty(logp, ref, mask.clamp(min=1.0)),
            "you left the mask out: the distance at padding is in your mean",
        ),
    ],
    call=_with_gradients,
    tolerance=1e-5,
)


# 01.6 from tokens to one number


def _reduced(losses, loss_type, max_length):
    if loss_type == "grpo":
        return mean(mean(row) for row in losses)
    if loss_type not in ("dapo", "dr_grpo"):
        raise ValueError(f"unknown loss type {loss_type!r}")
    tokens = [t for row in losses for t in row]
    return sum(tokens) / (len(tokens) if loss_type == "dapo" else len(losses) * max_length)


def _taken_for(wrong, other):
    """What comes of reducing `wrong` as `other` is reduced."""
    return lambda losses, kind, n: _reduced(losses, other if kind == wrong else kind, n)


_TYPES = ("grpo", "dapo", "dr_grpo")
_LOSSES = [[1.0, 2.0, 3.0, 6.0], [4.0], [-3.0, -2.0]]
_MORE = [[2.0, 2.0], [1.0] * 8]
exercise(
    "01.6",
    "reduce_losses",
    NOTEBOOK,
    [
        *[((_LOSSES, kind, 10), _reduced(_LOSSES, kind, 10)) for kind in _TYPES],
        *[((_MORE, kind, 16), _reduced(_MORE, kind, 16)) for kind in _TYPES],
        ((_LOSSES, "ppo", 10), Raises(ValueError)),
    ],
    [
        (
            _taken_for("dr_grpo", "dapo"),
            "your dr_grpo divides by the tokens that are there: its divisor is B x max_length",
        ),
        (
            _taken_for("grpo", "dapo"),
            "your grpo is one mean over all tokens: it takes the mean of each answer first",
        ),
        (
            _taken_for("dapo", "grpo"),
            "your dapo takes the mean of each answer first: it is one mean over all tokens",
        ),
        (
            lambda losses, kind, n: (
                _reduced(losses, kind, n) * (len(losses) if kind == "dr_grpo" else 1)
            ),
            "your dr_grpo divides by max_length alone: it is a mean over answers too",
        ),
        (
            lambda losses, kind, n: _reduced(losses, kind, max(map(len, losses))),
            "your dr_grpo divides by the longest answer here: max_length stays the same",
        ),
    ],
)
