"""The exercises of notebook 01_grpo_from_scratch."""

import math
from statistics import mean, pstdev, stdev

from grpo_workbook.checks import Raises, exercise

NOTEBOOK = "01_grpo_from_scratch"


def _groups(rewards, size):
    return [rewards[i : i + size] for i in range(0, len(rewards), size)]


# 01.1 advantages


def _advantages(rewards, size, deviation, centre=mean):
    return [(r - centre(g)) / (deviation(g) + 1e-4) for g in _groups(rewards, size) for r in g]


def _population(rewards, group_size):
    return _advantages(rewards, group_size, pstdev)


def _batch_mean(rewards, group_size):
    return _advantages(rewards, group_size, stdev, lambda g: mean(rewards))


def _batch_deviation(rewards, group_size):
    return _advantages(rewards, group_size, lambda g: stdev(rewards))


def _whole_batch(rewards, group_size):
    return [(r - mean(rewards)) / (stdev(rewards) + 1e-4) for r in rewards]


def _no_epsilon(rewards, group_size):
    return [(r - mean(g)) / stdev(g) for g in _groups(rewards, group_size) for r in g]


_S, _T = 0.5 / (math.sqrt(1 / 3) + 1e-4), 1.0 / (2.0 + 1e-4)
exercise(
    "01.1",
    "advantages",
    NOTEBOOK,
    [
        (([1.0, 1.0, 0.0, 0.0], 4), [_S, _S, -_S, -_S]),
        (([3.0, 3.0, 3.0, 3.0], 4), [0.0, 0.0, 0.0, 0.0]),
        (([1.0, 1.0, 0.0, 0.0, 9.0, 7.0, 5.0, 7.0], 4), [_S, _S, -_S, -_S, *_advantages([9, 7, 5, 7], 4, stdev)]),
        (([0.0, 2.0, 4.0, 10.0, 12.0, 14.0], 3), [-2 * _T, 0.0, 2 * _T] * 2),
    ],
    [
        (_population, "you divided by the population deviation: TRL divides by n - 1, as stdev does"),
        (_whole_batch, "you compared with the whole batch: then a hard problem's best answer counts as bad"),
        (_batch_mean, "you subtracted the mean of the whole batch: an answer is compared with its own group only"),
        (_batch_deviation, "you divided by the deviation of the whole batch: that is scale_rewards='batch'"),
        (_no_epsilon, "you divided by the bare deviation: it is 0 where all are equal; add 1e-4 as TRL does"),
    ],
    tolerance=1e-5,
)


# 01.2 the ratio of a sequence


def _ratio(logp, old_logp, mask):
    return math.exp(sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / sum(mask))


def _ratio_without_mask(logp, old_logp, mask):
    return math.exp(sum(a - b for a, b in zip(logp, old_logp, strict=True)) / len(logp))


def _ratio_padded_length(logp, old_logp, mask):
    return math.exp(sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / len(mask))


def _ratio_of_sums(logp, old_logp, mask):
    return math.exp(sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)))


def _ratio_arithmetic(logp, old_logp, mask):
    return sum(math.exp(a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / sum(mask)


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
        (_ratio_without_mask, "you left the mask out: log-probabilities of padding are in your ratio"),
        (_ratio_padded_length, "you divided by the padded length: divide by how many tokens the mask keeps"),
        (_ratio_of_sums, "you took no mean over tokens: the ratio of a long answer explodes"),
        (_ratio_arithmetic, "you averaged the tokens' ratios: GSPO averages their logarithms"),
    ],
)


# 01.3 clipping


def _clip(ratio, low, high):
    return min(max(ratio, low), high)


def _clipped(ratio, advantage, epsilon_low, epsilon_high):
    return -min(ratio * advantage, _clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantage)


def _no_lower_side(ratio, advantage, epsilon_low, epsilon_high):
    return -min(ratio * advantage, min(ratio, 1 + epsilon_high) * advantage)


def _no_upper_side(ratio, advantage, epsilon_low, epsilon_high):
    return -min(ratio * advantage, max(ratio, 1 - epsilon_low) * advantage)


def _no_minimum(ratio, advantage, epsilon_low, epsilon_high):
    return -_clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantage


def _maximum(ratio, advantage, epsilon_low, epsilon_high):
    return -max(ratio * advantage, _clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantage)


_CLIPS = [(r, a, 0.2, 0.28) for a in (1.0, -0.5) for r in (1.0, 0.6, 0.9, 1.25, 1.5)]
exercise(
    "01.3",
    "clipped_loss",
    NOTEBOOK,
    [(case, _clipped(*case)) for case in _CLIPS],
    [
        (_maximum, "you took the larger of the two: PPO takes the smaller, the pessimistic one"),
        (_no_lower_side, "you forgot the lower side: with A < 0 the ratio must stop at 1 - epsilon_low"),
        (_no_upper_side, "you forgot the upper side: with A > 0 the ratio must stop at 1 + epsilon_high"),
        (_no_minimum, "you left out the minimum: a token that went the wrong way must be able to come back"),
    ],
)


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


_KLS = [([-1.0, -0.5], [-1.0, -0.5]), ([-0.7, -2.0, -0.1], [-0.3, -3.0, -1.5]), ([-0.693], [-0.288])]
exercise(
    "01.4",
    "k3",
    NOTEBOOK,
    [(case, _k3(*case)) for case in _KLS],
    [
        (_k3_reversed, "you have the ratio reversed: it is reference over policy, exp(ref_logp - logp)"),
        (_k3_half_reversed, "the ratio and the logarithm point in different directions: both are ref_logp - logp"),
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
    return dict(zip(names, [float(penalty.detach()), *[g.tolist() for g in gradients]], strict=True))


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


def _penalty_cases():
    cases = [
        ([[-1.0, -0.5], [-2.0, -0.1]], [[-1.2, -0.4], [-1.0, -0.3]], [[1.0, 1.0], [1.0, 1.0]]),
        ([[-1.0, -0.5, -6.0], [-2.0, -9.0, -9.0]], [[-1.5, -0.2, -1.0], [-1.7, -5.0, -2.0]], [[1.0, 1, 0], [1, 0, 0]]),
    ]
    return [(case, _penalty_and_gradients(_penalty, *case)) for case in cases]


exercise(
    "01.5",
    "kl_penalty",
    NOTEBOOK,
    _penalty_cases,
    [
        (_through_the_reference, "a gradient flows through the reference: it is frozen; take ref_logp.detach()"),
        (_into_the_reference_alone, "you detached the wrong one: the policy must get the gradient, not the reference"),
        (_no_gradient, "no gradient reaches the policy: detach the reference alone"),
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
        (_all_by_tokens, "your dr_grpo divides by the tokens that are there: its divisor is B x max_length"),
        (_grpo_by_tokens, "your grpo is one mean over all tokens: it takes the mean of each answer first"),
        (_dapo_by_answers, "your dapo takes the mean of each answer first: it is one mean over all tokens"),
        (_longest_here, "your dr_grpo divides by the longest answer here: max_length is the same in every step"),
    ],
)
