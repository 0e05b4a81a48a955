"""GRPO's formulas in plain PyTorch: advantages, log-probabilities, KL estimators, the loss. grpo_trainer.py trains.

Papers: DeepSeekMath (arXiv 2402.03300, GRPO), Dr. GRPO (2503.20783), DAPO (2503.14476), GSPO (2507.18071, the ratio of
whole sequences), MiniMax-M1 (2506.13585, CISPO), Schulman's note "Approximating KL Divergence" (2020; k1, k2, k3).
Tests compare losses and gradients with TRL 1.15's own. Letters in shapes: B completions, T tokens of a completion.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from grpo_workbook.grpo_checks import (
    at_least,
    checked_mask,
    numbers,
    one_of,
    one_per_row,
    refuse_non_finite,
    same_shape,
)
from grpo_workbook.settings import SCALES

LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo")
LEVELS = ("token", "sequence")
EPSILON_STD = 1e-4  # TRL's: keeps the division harmless where rewards hardly differ


def group_advantages(
    rewards: Tensor | np.ndarray | Sequence[float | None], group_size: int, scale: str = "group"
) -> Tensor:
    """How much better each completion is than the others of its group: A = (r - mean) / (std + 1e-4).

    `rewards`: one flat row of any number of groups, each of `group_size` neighbours. A tensor of the same length comes
    back (float64 from float64 tensors and arrays, else float32). The mean is the group's; `scale` says which standard
    deviation divides, with n - 1: the "group"'s (DeepSeekMath, 4.1.2), the whole "batch"'s, or "none" (Dr. GRPO).

    Groups whose rewards are all equal get exactly 0. None means "no reward function applies": such a completion stays
    out of mean and deviation and gets 0, as in TRL. Raises ValueError for rewards that are not one row of whole groups,
    and for NaN or infinite ones, with the index.
    """
    one_of("scale", scale, SCALES)
    r, scored, device = _as_rewards(rewards)
    if not isinstance(group_size, int | np.integer) or group_size < 2:
        raise ValueError(
            f"group_size is {group_size}: a group needs at least 2 completions, or nothing is compared"
        )
    if r.ndim != 1 or r.size == 0 or r.size % group_size:
        raise ValueError(
            f"rewards of shape {r.shape} are not one flat row of whole groups of {group_size}"
        )
    with np.errstate(over="ignore", invalid="ignore"):  # what these would warn of is raised below
        centred, std = _centre(r.reshape(-1, group_size), scored, scale)
    if not np.isfinite(std.sum()):  # a NaN or an infinity anywhere in r arrives here
        refuse_non_finite(r)
    if scale != "none":
        centred /= std + r.dtype.type(EPSILON_STD)
    return torch.from_numpy(centred.reshape(-1)).to(device)


def _as_rewards(rewards) -> tuple[np.ndarray, np.ndarray | None, torch.device | None]:
    """(a float array, which entries are scored or None when all are, the device to return to)."""
    scored, device = None, None
    if isinstance(rewards, Tensor):
        device, rewards = rewards.device, rewards.detach().cpu()
        rewards = (rewards if rewards.dtype == torch.float64 else rewards.float()).numpy()
    elif not hasattr(rewards, "dtype") or rewards.dtype.kind == "O":
        missing = [value is None for value in rewards]
        if any(missing):
            scored = ~np.array(missing)
            rewards = [0.0 if value is None else value for value in rewards]
        exact = numbers(rewards)
        with np.errstate(over="ignore"):
            rewards = exact.astype(np.float32)
        if np.isinf(rewards).any() and np.isfinite(exact).all():
            raise ValueError(
                f"rewards up to {np.abs(exact).max():g} overflow float32: scale them down"
            )
    else:
        rewards = numbers(rewards)
    return (
        rewards if rewards.dtype == np.float64 else rewards.astype(np.float32, copy=False),
        scored,
        device,
    )


def _centre(
    groups: np.ndarray, scored: np.ndarray | None, scale: str
) -> tuple[np.ndarray, np.ndarray]:
    """(r - mean of the group (G, n), the deviation to divide by: (G, 1), or one number for "batch").

    einsum sums short rows without starting threads, which costs more than the sums do (benchmarks/advantages.py).
    """
    if scored is None:
        gaps, count, first = np.s_[:0], groups.shape[1], groups[:, :1]
    else:
        gaps = ~scored.reshape(groups.shape)
        count = np.maximum(1, (~gaps).sum(axis=1, keepdims=True)).astype(groups.dtype)
        first = np.take_along_axis(groups, gaps.argmin(axis=1)[:, None], axis=1)
    centred = groups - first  # equal rewards become exactly 0 here; in floats, r - mean(r) need not
    centred[gaps] = 0.0
    centred -= np.einsum("gn->g", centred)[:, None] / count
    centred[gaps] = 0.0
    if scale == "group":
        return centred, np.sqrt(
            np.einsum("gn,gn->g", centred, centred)[:, None] / np.maximum(count - 1, 1)
        )
    values = groups.reshape(-1) if scored is None else groups[~gaps]
    return centred, values.std(ddof=1) if scale == "batch" and len(values) > 1 else centred.sum()


def combine_rewards(
    per_function: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None
) -> list[float | None]:
    """One reward per completion: the weighted sum over the functions that apply, None where none does (TRL's rule).

    `per_function[i][j]` is what function i gave completion j; `weights[i]` counts function i, None counts each once.
    NaN gives NaN, which `group_advantages` refuses. Raises ValueError when lengths differ.
    """
    weights = [1.0] * len(per_function) if weights is None else list(weights)
    sizes = [len(values) for values in per_function]
    if len(weights) != len(sizes) or len(set(sizes)) > 1:
        raise ValueError(
            f"{len(sizes)} reward functions gave {sizes} rewards, and there are {len(weights)} "
            "weights: give one weight for each function, and one reward of each for every completion"
        )
    combined: list[float | None] = []
    for values in zip(*per_function, strict=True):
        terms = [w * v for w, v in zip(weights, values, strict=True) if v is not None]
        combined.append(sum(terms) if terms else None)
    return combined


def sequence_logprobs(
    model,
    input_ids: Tensor,
    attention_mask: Tensor,
    completion_length: int,
    temperature: float = 1.0,
) -> Tensor:
    """log pi(token | all tokens before it), for the last `completion_length` tokens of each row: (B, T).

    `input_ids` and `attention_mask` (B, P + T): prompts padded on the left, completions on the right. A whole
    sequence's log-probability is the sum over its tokens. Gradients flow: wrap in torch.no_grad() for old or reference
    log-probabilities. Raises ValueError when nothing stands before the completion.
    """
    if input_ids.shape != attention_mask.shape or not 0 < completion_length < input_ids.shape[1]:
        raise ValueError(
            f"input_ids {tuple(input_ids.shape)}, attention_mask {tuple(attention_mask.shape)} and a completion of "
            f"{completion_length} tokens do not fit: the shapes must be equal and a prompt must stand before it"
        )
    logits = model(
        input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=completion_length + 1
    ).logits
    logits = logits[:, :-1].float() / temperature  # position t predicts token t + 1
    targets = input_ids[:, -completion_length:].unsqueeze(-1)
    return logits.log_softmax(dim=-1).gather(-1, targets).squeeze(-1)


def kl_estimate(logp: Tensor, ref_logp: Tensor, kind: str = "k3") -> Tensor:
    """Per-token estimate of KL(policy || reference) from tokens that the policy drew; same shape as `logp`.

    With d = log pi_ref - log pi (Schulman, 2020):
        k1 = -d               unbiased; wide, and often negative
        k2 = d^2 / 2          never negative; biased
        k3 = exp(d) - d - 1   unbiased and never negative: GRPO's penalty (DeepSeekMath, equation 4)
    exp(d) is pi_ref / pi. With the ratio turned over, k3 estimates another quantity. Raises ValueError for shapes that
    differ.
    """
    one_of("kind", kind, ("k1", "k2", "k3"))
    same_shape("ref_logp", ref_logp, logp)
    d = ref_logp - logp
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    return d.exp() - d - 1


def policy_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor, level: str = "token") -> Tensor:
    """pi / pi_old: for each token (B, T), or with level "sequence" one for each completion (B, 1).

    The ratio of a sequence is the geometric mean of its tokens' (GSPO, equation 7): long answers do not run away.
    """
    one_of("level", level, LEVELS)
    same_shape("old_logp", old_logp, logp)
    same_shape("mask", mask, logp)
    log_ratio = (logp - old_logp.detach()) * mask
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(
            min=1.0
        )
    return log_ratio.exp()


def clipped_losses(
    ratio: Tensor,
    A: Tensor,
    epsilon_low: float = 0.2,
    epsilon_high: float = 0.2,
    delta: float | None = None,
) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - epsilon_low, 1 + epsilon_high) A) (DeepSeekMath, equation 3; PPO).

    The minimum stops a token whose ratio has already gone far enough the way A wants. The other way stays open, and
    `delta` caps the ratio there (A < 0). DAPO raises epsilon_high alone, so that rare tokens can become likely.
    """
    one_per_row("A", A, ratio)
    clipped = ratio.clamp(1 - epsilon_low, 1 + epsilon_high)
    capped = ratio if delta is None else ratio.clamp(max=delta)
    return -torch.min(capped * A, clipped * A)


def cispo_losses(ratio: Tensor, A: Tensor, logp: Tensor, epsilon_high: float | None) -> Tensor:
    """-min(ratio, epsilon_high) A log pi, the weight held constant: no token loses its gradient (CISPO, equation 4).

    `ratio` and `logp` (B, T), `A` (B, 1); (B, T) comes back. Raises ValueError without epsilon_high.
    """
    if epsilon_high is None:
        raise ValueError(
            "cispo caps the ratio at epsilon_high itself (not 1 + epsilon_high): give it, such as 5.0"
        )
    return -ratio.clamp(max=epsilon_high).detach() * A * logp


def reduce_tokens(
    per_token: Tensor,
    mask: Tensor,
    loss_type: str,
    max_completion_length: int | None = None,
    num_items_in_batch: int | None = None,
    accumulation_steps: int = 1,
) -> Tensor:
    """From (B, T) to one number:

        grpo      mean over tokens, then over completions: a token of a long answer counts less
        dr_grpo   sum / (B max_completion_length): every token counts the same, whatever the length
        bnpo      sum / number of tokens in this batch
        dapo, cispo   sum / num_items_in_batch, the tokens of the whole optimizer step (None: of this batch)

    When a step is cut into `accumulation_steps` batches, the first three are divided by that number (TRL's rule).
    """
    one_of("loss_type", loss_type, LOSS_TYPES)
    if loss_type == "dr_grpo" and max_completion_length is None:
        raise ValueError(
            "dr_grpo divides by max_completion_length, a constant: give the sampling limit"
        )
    at_least(1, max_completion_length=max_completion_length, accumulation_steps=accumulation_steps)
    at_least(0, num_items_in_batch=num_items_in_batch)
    one_per_row("per_token", per_token, mask)  # (B, 1) where the ratio is the sequence's
    per_token = per_token * mask
    if loss_type == "grpo":
        return (per_token.sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)).mean() / accumulation_steps
    if loss_type == "dr_grpo":
        return per_token.sum() / (len(mask) * max_completion_length) / accumulation_steps
    if loss_type == "bnpo":
        return per_token.sum() / mask.sum().clamp(min=1.0) / accumulation_steps
    return per_token.sum() / max(
        1.0, float(mask.sum() if num_items_in_batch is None else num_items_in_batch)
    )


def grpo_loss(
    logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    old_logp: Tensor | None = None,
    ref_logp: Tensor | None = None,
    truncated: Tensor | None = None,
    beta: float = 0.0,
    unbiased_kl: bool = True,
    epsilon_low: float = 0.2,
    epsilon_high: float | None = None,
    delta: float | None = None,
    loss_type: str = "dapo",
    level: str = "token",
    max_completion_length: int | None = None,
    num_items_in_batch: int | None = None,
    accumulation_steps: int = 1,
) -> tuple[Tensor, dict[str, float]]:
    """The loss to minimise, and what to log: kl (when there is a reference), clip_low, clip_high (shares of tokens).

    logp (B, T)       log-probabilities under the policy, with gradient; old_logp those when the completions were drawn
                      (None: this is the first update, they are the same numbers), ref_logp the frozen reference's
    advantages (B,)   from group_advantages
    mask (B, T)       1 for tokens of the completion, 0 for padding; truncated (B,) True leaves a completion out
    beta              weight of k3. Its value is unbiased, its gradient is not: `unbiased_kl` multiplies by the ratio,
                      which mends that (DeepSeek-V3.2, 2512.02556; TRL 1.15's default). False: DeepSeekMath as printed
    epsilon_high      None is epsilon_low; "cispo" has no default, 5.0 is common
    Raises ValueError for shapes that do not fit, an empty completion, a mask of zeros, a missing reference.
    """
    one_of("loss_type", loss_type, LOSS_TYPES)
    at_least(0, beta=beta, epsilon_low=epsilon_low, epsilon_high=epsilon_high, delta=delta)
    mask = checked_mask(logp, advantages, mask, truncated)
    if beta and ref_logp is None:
        raise ValueError(
            f"beta is {beta}: the KL penalty needs ref_logp, the reference's log-probabilities"
        )
    # padding is 0 from here on: nothing that stands there can overflow
    logp, old_logp, ref_logp = (
        None if x is None else same_shape(name, x, logp).masked_fill(mask == 0, 0.0)
        for name, x in (("logp", logp), ("old_logp", old_logp), ("ref_logp", ref_logp))
    )
    A = advantages.detach().unsqueeze(1)  # (B, 1): every token of a completion shares its advantage

    ratio = policy_ratio(logp, logp if old_logp is None else old_logp, mask, level)
    if loss_type == "cispo":
        low, high = 0.0, epsilon_high
        per_token = cispo_losses(ratio, A, logp, epsilon_high)
    else:
        epsilon_high = epsilon_low if epsilon_high is None else epsilon_high
        low, high = 1 - epsilon_low, 1 + epsilon_high
        per_token = clipped_losses(ratio, A, epsilon_low, epsilon_high, delta)
    metrics = {
        "clip_low": _mean((ratio < low) & (A < 0), mask),
        "clip_high": _mean((ratio > high) & (A > 0), mask),
    }
    if ref_logp is not None:
        per_token_kl = kl_estimate(
            logp, ref_logp.detach(), "k3"
        )  # the reference is a constant: no gradient into it
        metrics["kl"] = _mean(per_token_kl, mask)
        if beta:
            per_token = per_token + beta * (per_token_kl * ratio if unbiased_kl else per_token_kl)
    return reduce_tokens(
        per_token, mask, loss_type, max_completion_length, num_items_in_batch, accumulation_steps
    ), metrics


def _mean(values: Tensor, mask: Tensor) -> float:
    return float((values.detach() * mask).sum() / mask.sum().clamp(min=1.0))
