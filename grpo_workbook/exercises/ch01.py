"""The exercises of notebook 01_grpo_from_scratch on advantages, ratios and clipping."""

import math
from statistics import mean, pstdev, stdev

from grpo_workbook.exercises import exercise

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


def _only_centred(rewards, group_size):
    return [r - mean(g) for g in _groups(rewards, group_size) for r in g]


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
        (
            ([1.0, 1.0, 0.0, 0.0, 9.0, 7.0, 5.0, 7.0], 4),
            [_S, _S, -_S, -_S, *_advantages([9, 7, 5, 7], 4, stdev)],
        ),
        (([0.0, 2.0, 4.0, 10.0, 12.0, 14.0], 3), [-2 * _T, 0.0, 2 * _T] * 2),
    ],
    [
        (
            _population,
            "you divided by the population deviation: TRL divides by n - 1, as stdev does",
        ),
        (
            _whole_batch,
            "you compared with the whole batch: then a hard problem's best answer counts as bad",
        ),
        (
            _batch_mean,
            "you subtracted the mean of the whole batch: an answer is compared with its own group only",
        ),
        (
            _batch_deviation,
            "you divided by the deviation of the whole batch: that is scale_rewards='batch'",
        ),
        (
            _only_centred,
            "you did not divide: scaled by its group, an advantage is in units of the group's deviation",
        ),
        (
            _no_epsilon,
            "you divided by the bare deviation: it is 0 where all are equal; add 1e-4 as TRL does",
        ),
    ],
    tolerance=1e-5,
)


# 01.2 the ratio of a sequence


def _ratio(logp, old_logp, mask):
    return math.exp(
        sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / sum(mask)
    )


def _ratio_without_mask(logp, old_logp, mask):
    return math.exp(sum(a - b for a, b in zip(logp, old_logp, strict=True)) / len(logp))


def _ratio_padded_length(logp, old_logp, mask):
    return math.exp(
        sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / len(mask)
    )


def _ratio_of_sums(logp, old_logp, mask):
    return math.exp(sum((a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)))


def _ratio_arithmetic(logp, old_logp, mask):
    return sum(math.exp(a - b) * m for a, b, m in zip(logp, old_logp, mask, strict=True)) / sum(
        mask
    )


def _ratio_inverted(logp, old_logp, mask):
    return 1 / _ratio(logp, old_logp, mask)


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
            _ratio_without_mask,
            "you left the mask out: log-probabilities of padding are in your ratio",
        ),
        (
            _ratio_padded_length,
            "you divided by the padded length: divide by how many tokens the mask keeps",
        ),
        (_ratio_of_sums, "you took no mean over tokens: the ratio of a long answer explodes"),
        (
            _ratio_inverted,
            "you turned the ratio over: the new policy stands above the old one, exp(logp - old_logp)",
        ),
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


def _bare_bounds(ratio, advantage, epsilon_low, epsilon_high):
    return -min(ratio * advantage, _clip(ratio, epsilon_low, epsilon_high) * advantage)


def _no_minus(ratio, advantage, epsilon_low, epsilon_high):
    return -_clipped(ratio, advantage, epsilon_low, epsilon_high)


def _swapped(ratio, advantage, epsilon_low, epsilon_high):
    return _clipped(ratio, advantage, epsilon_high, epsilon_low)


def _maximum(ratio, advantage, epsilon_low, epsilon_high):
    return -max(ratio * advantage, _clip(ratio, 1 - epsilon_low, 1 + epsilon_high) * advantage)


_CLIPS = [(r, a, 0.2, 0.28) for a in (1.0, -0.5) for r in (1.0, 0.6, 0.9, 1.25, 1.5)]
exercise(
    "01.3",
    "clipped_loss",
    NOTEBOOK,
    [(case, _clipped(*case)) for case in _CLIPS],
    [
        (
            _bare_bounds,
            "you clipped to the epsilons themselves: the bounds are 1 - epsilon_low and 1 + epsilon_high",
        ),
        (
            _no_minus,
            "the minus sign is missing: a loss is made smaller, and a good token must become likelier",
        ),
        (_swapped, "you swapped the epsilons: epsilon_low belongs below 1, epsilon_high above"),
        (_maximum, "you took the larger of the two: PPO takes the smaller, the pessimistic one"),
        (
            _no_lower_side,
            "you forgot the lower side: with A < 0 the ratio must stop at 1 - epsilon_low",
        ),
        (
            _no_upper_side,
            "you forgot the upper side: with A > 0 the ratio must stop at 1 + epsilon_high",
        ),
        (
            _no_minimum,
            "you left out the minimum: a token that went the wrong way must be able to come back",
        ),
    ],
)
