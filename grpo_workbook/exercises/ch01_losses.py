"""The exercises of notebook 01_grpo_from_scratch on the distance from the reference and on loss types."""

import math
from statistics import mean

from grpo_workbook.exercises import Raises, exercise

NOTEBOOK = "01_grpo_from_scratch"


# 01.4 the KL estimator


def _k3(logp, ref_logp):
    return [math.exp(r - p) - (r - p) - 1 for p, r in zip(logp, ref_logp, strict=True)]


def _k3_reversed(logp, ref_logp):
    return _k3(ref_logp, logp)


def _k3_half_reversed(logp, ref_logp):
    return [math.exp(p - r) - (r - p) - 1 for p, r in zip(logp, ref_logp, strict=True)]


def _k1(logp, ref_logp):
    return [p - r for p, r in zip(logp, ref_logp, strict=True)]


def _k2(logp, ref_logp):
    return [(p - r) ** 2 / 2 for p, r in zip(logp, ref_logp, strict=True)]


_KLS = [
    ([-1.0, -0.5], [-1.0, -0.5]),
    ([-0.7, -2.0, -0.1], [-0.3, -3.0, -1.5]),
    ([-0.693], [-0.288]),
]
exercise(
    "01.4",
    "k3",
    NOTEBOOK,
    [(case, _k3(*case)) for case in _KLS],
    [
        (
            _k3_reversed,
            "you have the ratio reversed: it is reference over policy, exp(ref_logp - logp)",
        ),
        (
            _k3_half_reversed,
            "the ratio and the logarithm point in different directions: both are ref_logp - logp",
        ),
        (_k1, "that is k1, the bare difference: it is unbiased, but negative for many tokens"),
        (_k2, "that is k2, half the square: it is never negative, but biased"),
    ],
)


# 01.5 the penalty, with gradients


def _penalty_and_gradients(fn, logp, ref_logp, mask):
    import torch

    policy, reference = (torch.tensor(x, requires_grad=True) for x in (logp, ref_logp))
    penalty = fn(policy, reference, torch.tensor(mask))
    gradients = [torch.zeros_like(policy), torch.zeros_like(reference)]
    if penalty.requires_grad:
        found = torch.autograd.grad(penalty, [policy, reference], allow_unused=True)
        gradients = [zero if g is None else g for zero, g in zip(gradients, found, strict=True)]
    names = ("penalty", "gradient into the policy", "gradient into the reference")
    return dict(
        zip(names, [float(penalty.detach()), *[g.tolist() for g in gradients]], strict=True)
    )


def _penalty(logp, ref_logp, mask):
    d = ref_logp.detach() - logp
    return ((d.exp() - d - 1) * mask).sum() / mask.sum()


def _through_the_reference(logp, ref_logp, mask):
    d = ref_logp - logp
    return ((d.exp() - d - 1) * mask).sum() / mask.sum()


def _no_gradient(logp, ref_logp, mask):
    return _penalty(logp.detach(), ref_logp, mask)


def _into_the_reference_alone(logp, ref_logp, mask):
    return _through_the_reference(logp.detach(), ref_logp, mask)


def _penalty_without_mask(logp, ref_logp, mask):
    d = ref_logp.detach() - logp
    return (d.exp() - d - 1).mean()


def _penalty_by_answers(logp, ref_logp, mask):
    d = ref_logp.detach() - logp
    return (((d.exp() - d - 1) * mask).sum(dim=1) / mask.sum(dim=1)).mean()


def _penalty_over_all_entries(logp, ref_logp, mask):
    d = ref_logp.detach() - logp
    return ((d.exp() - d - 1) * mask).mean()


def _penalty_reversed(logp, ref_logp, mask):
    d = logp - ref_logp.detach()
    return ((d.exp() - d - 1) * mask).sum() / mask.sum()


def _penalty_cases():
    cases = [
        ([[-1.0, -0.5], [-2.0, -0.1]], [[-1.2, -0.4], [-1.0, -0.3]], [[1.0, 1.0], [1.0, 1.0]]),
        (
            [[-1.0, -0.5, -6.0], [-2.0, -9.0, -9.0]],
            [[-1.5, -0.2, -1.0], [-1.7, -5.0, -2.0]],
            [[1.0, 1, 0], [1, 0, 0]],
        ),
    ]
    return [(case, _penalty_and_gradients(_penalty, *case)) for case in cases]


exercise(
    "01.5",
    "kl_penalty",
    NOTEBOOK,
    _penalty_cases,
    [
        (
            _through_the_reference,
            "a gradient flows through the reference: it is frozen; take ref_logp.detach()",
        ),
        (
            _into_the_reference_alone,
            "you detached the wrong one: the policy must get the gradient, not the reference",
        ),
        (_no_gradient, "no gradient reaches the policy: detach the reference alone"),
        (
            _penalty_by_answers,
            "you took the mean of each answer first: it is one mean over all tokens that are kept",
        ),
        (_penalty_over_all_entries, "you divided by all entries: divide by the sum of the mask"),
        (
            _penalty_reversed,
            "you have the ratio reversed: it is reference over policy, exp(ref_logp - logp)",
        ),
        (_penalty_without_mask, "you left the mask out: the distance at padding is in your mean"),
    ],
    call=_penalty_and_gradients,
    tolerance=1e-5,
)


# 01.6 from tokens to one number


def _reduced(losses, loss_type, max_length):
    if loss_type == "grpo":
        return mean(mean(row) for row in losses)
    tokens = [t for row in losses for t in row]
    if loss_type == "dapo":
        return sum(tokens) / len(tokens)
    if loss_type == "dr_grpo":
        return sum(tokens) / (len(losses) * max_length)
    raise ValueError(f"unknown loss type {loss_type!r}")


def _all_by_tokens(losses, loss_type, max_length):
    return _reduced(losses, "dapo" if loss_type == "dr_grpo" else loss_type, max_length)


def _grpo_by_tokens(losses, loss_type, max_length):
    return _reduced(losses, "dapo" if loss_type == "grpo" else loss_type, max_length)


def _dapo_by_answers(losses, loss_type, max_length):
    return _reduced(losses, "grpo" if loss_type == "dapo" else loss_type, max_length)


def _longest_here(losses, loss_type, max_length):
    return _reduced(losses, loss_type, max(len(row) for row in losses))


def _max_length_alone(losses, loss_type, max_length):
    return _reduced(losses, loss_type, max_length) * (len(losses) if loss_type == "dr_grpo" else 1)


_LOSSES = [[1.0, 2.0, 3.0, 6.0], [4.0], [-3.0, -2.0]]
exercise(
    "01.6",
    "reduce_losses",
    NOTEBOOK,
    [
        *[((_LOSSES, t, 10), _reduced(_LOSSES, t, 10)) for t in ("grpo", "dapo", "dr_grpo")],
        *[
            (([[2.0, 2.0], [1.0] * 8], t, 16), _reduced([[2.0, 2.0], [1.0] * 8], t, 16))
            for t in ("grpo", "dapo", "dr_grpo")
        ],
        ((_LOSSES, "ppo", 10), Raises(ValueError)),
    ],
    [
        (
            _all_by_tokens,
            "your dr_grpo divides by the tokens that are there: its divisor is B x max_length",
        ),
        (
            _grpo_by_tokens,
            "your grpo is one mean over all tokens: it takes the mean of each answer first",
        ),
        (
            _dapo_by_answers,
            "your dapo takes the mean of each answer first: it is one mean over all tokens",
        ),
        (
            _max_length_alone,
            "your dr_grpo divides by max_length alone: it is a mean over answers too, B x max_length",
        ),
        (
            _longest_here,
            "your dr_grpo divides by the longest answer here: max_length is the same in every step",
        ),
    ],
)
