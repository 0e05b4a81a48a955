"""GRPO's formulas in plain PyTorch: advantages, log-probabilities, KL estimators, the loss.

They come in the order of a training step: rewards are combined, become advantages, and weigh the
log-probabilities of the sampled tokens in the loss. `grpo_trainer.py` puts a trainer around them.
The tests compare losses and gradients with those of TRL 1.15, for every loss type.

Papers: DeepSeekMath (arXiv 2402.03300, GRPO), Dr. GRPO (2503.20783), DAPO (2503.14476), GSPO
(2507.18071), MiniMax-M1 (2506.13585, CISPO), DeepSeek-V3.2 (2512.02556), Schulman's note
"Approximating KL Divergence" (2020).

Shapes: `completions` is the number of completions in a batch, `tokens` the length of the longest
one; the completions of one prompt stand together as a group of `group_size`.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo")
LEVELS = ("token", "sequence")
SCALES = ("group", "batch", "none")
EPSILON_STD = 1e-4  # as in TRL: limits the advantages of rewards that hardly differ


# ---- rewards and advantages


def combine_rewards(
    per_function: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None
) -> list[float | None]:
    """Add up each completion's weighted rewards, as TRL does.

    `per_function[i][j]` is function i's reward for completion j, or None where the function does
    not apply. `weights` has one number per function; without it every function counts once.
    Returns one number per completion, or None where no function applies. Raises ValueError if the
    lengths differ.
    """
    if weights is None:
        weights = [1.0] * len(per_function)
    combined: list[float | None] = []
    for rewards in zip(*per_function, strict=True):  # of one completion
        terms = []
        for weight, reward in zip(weights, rewards, strict=True):
            if reward is not None:
                terms.append(weight * reward)
        combined.append(sum(terms) if terms else None)
    return combined


def group_advantages(
    rewards: Tensor | Sequence[float | None], group_size: int, scale: str = "group"
) -> Tensor:
    """How much better each completion is than its group: A = (r - mean) / (std + 1e-4).

    `rewards` (completions,) are groups of `group_size`, one after the other. The mean is that of
    the group. `scale` chooses the standard deviation (with n - 1): that of the "group"
    (DeepSeekMath, section 4.1.2), that of the whole "batch", or "none", which leaves the division
    out (Dr. GRPO).

    Returns (completions,), in float64 for a float64 tensor and else in float32. A group of equal
    rewards gets exactly 0. A reward of None (no function applies) gets 0 and does not count. Raises
    ValueError for incomplete groups and for rewards that are not finite.
    """
    _check_choice("scale", scale, SCALES)
    values, scored = _reward_tensors(rewards)  # both (completions,)
    if group_size < 2 or values.ndim != 1 or len(values) == 0 or len(values) % group_size != 0:
        raise ValueError(
            f"rewards {tuple(values.shape)} are not one row of groups of {group_size} >= 2: give "
            "every prompt the same number of completions"
        )
    # TRL takes NaN for "does not apply", which would hide a mistake in a reward.
    if not values.isfinite().all():
        number = int(values.isfinite().int().argmin())
        raise ValueError(f"reward {number} is {values[number]:g}: rewards must be finite")

    groups = values.double().view(-1, group_size)  # (groups, group_size)
    scored = scored.view(-1, group_size)
    counts = scored.sum(dim=1, keepdim=True)  # (groups, 1)
    # A reward of the group is subtracted before the mean is: then equal rewards give exactly 0,
    # where rounding can make the mean of equal numbers another number.
    first_scored = scored.int().argmax(dim=1, keepdim=True)
    centred = (groups - groups.gather(1, first_scored)) * scored
    mean = centred.sum(dim=1, keepdim=True) / counts.clamp(min=1)
    advantages = (centred - mean) * scored
    if scale == "group":
        # The deviations of a group add up to 0, so that n - 1 of its n scored rewards are free.
        squares = advantages.square().sum(dim=1, keepdim=True)
        std = (squares / (counts - 1).clamp(min=1)).sqrt()  # (groups, 1)
        advantages = advantages / (std + EPSILON_STD)
    elif scale == "batch" and scored.sum() > 1:
        advantages = advantages / (groups[scored].std() + EPSILON_STD)
    return advantages.flatten().to(values.dtype)


def _reward_tensors(rewards: Tensor | Sequence[float | None]) -> tuple[Tensor, Tensor]:
    """The rewards as floats, 0 for None; and which of them are not None."""
    if isinstance(rewards, Tensor):
        values = rewards.detach()
        if values.dtype != torch.float64:
            values = values.float()
        return values, torch.ones_like(values, dtype=torch.bool)
    scored = torch.tensor([reward is not None for reward in rewards], dtype=torch.bool)
    values = torch.tensor([0.0 if reward is None else float(reward) for reward in rewards])
    return values, scored


# ---- log-probabilities


def sequence_logprobs(
    model: Any, input_ids: Tensor, attention_mask: Tensor, length: int, temperature: float = 1.0
) -> Tensor:
    """log pi(token | all tokens before it), for the last `length` tokens of each row.

    `input_ids` and `attention_mask` (completions, prompt + tokens) hold prompts padded on the left
    and completions padded on the right. `temperature` is the one that they were sampled with.
    Returns (completions, length), with a gradient.
    """
    output = model(input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=length + 1)
    # Position t predicts token t + 1, so the last position is not used.
    logits = output.logits[:, :-1].float() / temperature  # (completions, length, vocabulary)
    targets = input_ids[:, -length:].unsqueeze(-1)  # (completions, length, 1)
    return logits.log_softmax(dim=-1).gather(-1, targets).squeeze(-1)


def kl_estimate(logp: Tensor, ref_logp: Tensor, estimator: str = "k3") -> Tensor:
    """KL(policy || reference), estimated for each token that the policy sampled.

    With d = log pi_ref - log pi (Schulman, 2020), as a value, and by its mean gradient as a loss:
        k1 = -d               unbiased, often negative; its gradient is 0
        k2 = d^2 / 2          biased; its gradient is that of KL(policy || reference)
        k3 = exp(d) - d - 1   unbiased, never negative; its gradient: KL(reference || policy)
    GRPO's penalty is k3 (DeepSeekMath, equation 4); times the ratio it has the gradient of k2.
    exp(d) is pi_ref / pi; with the inverse ratio, k3 would estimate another quantity.

    `logp` and `ref_logp` have the same shape, and so has the result.
    """
    _check_choice("estimator", estimator, ("k1", "k2", "k3"))
    _check_shape("ref_logp", ref_logp, logp)
    d = ref_logp - logp
    if estimator == "k1":
        return -d
    if estimator == "k2":
        return d.square() / 2
    return d.exp() - d - 1


# ---- the loss


def policy_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor, level: str = "token") -> Tensor:
    """pi / pi_old, how much more likely the policy has become to write what was sampled.

    All three inputs are (completions, tokens). With level "token" the ratio is that of each token:
    (completions, tokens). With "sequence" it is one per completion: (completions, 1), the geometric
    mean of its tokens' ratios (GSPO, equation 7).
    """
    _check_choice("level", level, LEVELS)
    _check_shape("old_logp", old_logp, logp)
    log_ratio = (logp - old_logp.detach()) * mask
    if level == "sequence":
        tokens = mask.sum(dim=1, keepdim=True).clamp(min=1.0)
        log_ratio = log_ratio.sum(dim=1, keepdim=True) / tokens
    return log_ratio.exp()


def clipped_losses(
    ratio: Tensor, advantages: Tensor, epsilon_low: float = 0.2, epsilon_high: float = 0.2
) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - epsilon_low, 1 + epsilon_high) A) for each token.

    DeepSeekMath, equation 3, as in PPO. The minimum stops a token whose ratio has moved far enough
    in the direction of its advantage, but not in the other one. DAPO raises only `epsilon_high`, so
    that rare tokens can become likely. `ratio` and `advantages` must broadcast: `advantages` is
    (completions, 1) where a completion's tokens share one.
    """
    clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
    return -torch.min(ratio * advantages, clipped * advantages)


def reduce_tokens(
    per_token: Tensor,
    mask: Tensor,
    loss_type: str,
    *,
    max_completion_length: int | None = None,
    num_items_in_batch: float | Tensor | None = None,
    accumulation_steps: int = 1,
) -> Tensor:
    """From the loss of each token, (completions, tokens), to the one number that is minimised.

    grpo      the mean over tokens, then over completions: tokens of long answers count less
    dr_grpo   sum / (completions * max_completion_length): every token counts the same
    bnpo      sum / number of tokens in this batch
    dapo, cispo   sum / `num_items_in_batch`, the tokens of the whole step (None: of this batch)

    Where a step has several batches, TRL divides the first three by `accumulation_steps`.
    """
    _check_choice("loss_type", loss_type, LOSS_TYPES)
    per_token = per_token * mask
    if loss_type == "grpo":
        tokens = mask.sum(dim=1).clamp(min=1.0)  # (completions,)
        per_completion = per_token.sum(dim=1) / tokens
        return per_completion.mean() / accumulation_steps
    if loss_type == "dr_grpo":
        if not max_completion_length:
            raise ValueError("dr_grpo needs max_completion_length, the sampling limit: give it")
        return per_token.sum() / (len(mask) * max_completion_length) / accumulation_steps
    if loss_type == "bnpo":
        return per_token.sum() / mask.sum().clamp(min=1.0) / accumulation_steps
    tokens_of_step = float(num_items_in_batch or mask.sum())
    return per_token.sum() / max(1.0, tokens_of_step)


def grpo_loss(
    logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    old_logp: Tensor | None = None,
    ref_logp: Tensor | None = None,
    truncated: Tensor | None = None,
    loss_type: str = "dapo",
    level: str = "token",
    beta: float = 0.0,
    unbiased_kl: bool = True,
    epsilon_low: float = 0.2,
    epsilon_high: float | None = None,
    max_completion_length: int | None = None,
    num_items_in_batch: float | Tensor | None = None,
    accumulation_steps: int = 1,
) -> tuple[Tensor, dict[str, float]]:
    """The loss to minimise, and values to log: clip_low, clip_high, and kl with a reference.

    logp (completions, tokens)       log-probabilities under the policy, with gradient
    advantages (completions,)        from `group_advantages`
    mask (completions, tokens)       1 for the completion's tokens, 0 for padding
    old_logp (completions, tokens)   when sampled; None: the same as logp, as in the first update
    ref_logp (completions, tokens)   under the reference, for the KL divergence
    truncated (completions,)         completions that are left out of the loss
    loss_type, level                 see `reduce_tokens` and `policy_ratio`
    beta                             weight of the KL penalty k3
    unbiased_kl    the penalty's value is unbiased, its gradient is not: True multiplies it by the
                   ratio, as DeepSeek-V3.2 and TRL do; False is DeepSeekMath's
    epsilon_high   None: the same as epsilon_low; "cispo" has no default, 5.0 is common
    The last three are those of `reduce_tokens`.

    clip_low and clip_high are the fractions of tokens that are clipped on either side. Raises
    ValueError for shapes that do not fit, an empty completion, and a setting that is missing.
    """
    _check_batch(logp, advantages, mask, truncated)
    _check_settings(loss_type, beta, ref_logp, epsilon_high)
    if epsilon_high is None:
        epsilon_high = epsilon_low
    mask = mask.to(logp.dtype)
    if truncated is not None:
        mask = mask * (~truncated.bool()).unsqueeze(1)  # if all are, loss and gradient are 0
    padding = mask == 0
    logp = logp.masked_fill(padding, 0.0)  # what stands in the padding cannot overflow then
    if old_logp is None:
        old_logp = logp
    _check_shape("old_logp", old_logp, logp)
    ratio = policy_ratio(logp, old_logp.masked_fill(padding, 0.0), mask, level)

    A = advantages.detach().unsqueeze(1)  # (completions, 1): the tokens share their advantage
    if loss_type == "cispo":
        # The ratio is a constant weight here, so no token loses its gradient (MiniMax-M1, eq. 4).
        per_token = -ratio.clamp(max=epsilon_high).detach() * A * logp
        lowest, highest = 0.0, epsilon_high
    else:
        per_token = clipped_losses(ratio, A, epsilon_low, epsilon_high)
        lowest, highest = 1 - epsilon_low, 1 + epsilon_high
    metrics = {
        "clip_low": _token_mean((ratio < lowest) & (A < 0), mask),
        "clip_high": _token_mean((ratio > highest) & (A > 0), mask),
    }
    if ref_logp is not None:
        _check_shape("ref_logp", ref_logp, logp)
        kl = kl_estimate(logp, ref_logp.masked_fill(padding, 0.0).detach())
        metrics["kl"] = _token_mean(kl, mask)
        if unbiased_kl:
            kl = kl * ratio
        if beta:
            per_token = per_token + beta * kl
    loss = reduce_tokens(
        per_token,
        mask,
        loss_type,
        max_completion_length=max_completion_length,
        num_items_in_batch=num_items_in_batch,
        accumulation_steps=accumulation_steps,
    )
    return loss, metrics


def _token_mean(values: Tensor, mask: Tensor) -> float:
    """The mean over the completions' tokens, without the padding."""
    tokens = mask.sum().clamp(min=1.0)
    return float((values.detach() * mask).sum() / tokens)


# ---- checks


def _check_batch(logp: Tensor, advantages: Tensor, mask: Tensor, truncated: Tensor | None) -> None:
    if logp.ndim != 2 or advantages.shape != logp.shape[:1] or not advantages.isfinite().all():
        raise ValueError(f"advantages {advantages} must be finite, one per row ({len(logp)})")
    _check_shape("mask", mask, logp)
    if truncated is not None:
        _check_shape("truncated", truncated, advantages)
    empty = mask.sum(dim=1) == 0
    if empty.any():
        number = int(empty.int().argmax())
        raise ValueError(f"completion {number} is empty: give its row of the mask a token")


def _check_settings(
    loss_type: str, beta: float, ref_logp: Tensor | None, epsilon_high: float | None
) -> None:
    if beta and ref_logp is None:
        raise ValueError(f"beta is {beta}: the KL penalty needs ref_logp, of the reference")
    if loss_type == "cispo" and epsilon_high is None:
        raise ValueError("cispo caps the ratio at epsilon_high itself: give it, such as 5.0")


def _check_shape(name: str, value: Tensor, other: Tensor) -> None:
    if value.shape != other.shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, it must be {tuple(other.shape)}")


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(choices)}")
