"""GRPO's formulas in plain PyTorch: advantages, log-probabilities, KL estimators, the loss.

Papers: DeepSeekMath (arXiv 2402.03300, GRPO), Dr. GRPO (2503.20783), DAPO (2503.14476), GSPO
(2507.18071), MiniMax-M1 (2506.13585, CISPO), DeepSeek-V3.2 (2512.02556), Schulman's note
"Approximating KL Divergence" (2020). Tests compare losses and gradients with those of TRL 1.15.
Shapes: B completions of T tokens, G groups of n.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

LOSS_TYPES = ("grpo", "dr_grpo", "dapo", "bnpo", "cispo")
LEVELS = ("token", "sequence")
SCALES = ("group", "batch", "none")
EPSILON_STD = 1e-4  # as in TRL: limits the advantages of rewards that hardly differ


def group_advantages(
    rewards: Tensor | np.ndarray | Sequence[float | None], group_size: int, scale: str = "group"
) -> Tensor:
    """How much better each completion is than its group: A = (r - mean) / (std + 1e-4).

    `rewards` is one flat row of groups of `group_size`. The mean is the group's; `scale` chooses
    the standard deviation (n - 1): of the "group" (DeepSeekMath, 4.1.2), of the whole "batch", or
    "none" (Dr. GRPO). Groups of equal rewards get exactly 0, and so does a reward of None (no
    function applies), which does not count. Float64 rewards give float64, all others float32.
    """
    _one_of("scale", scale, SCALES)
    r, scored = _as_array(rewards)
    if group_size < 2 or r.ndim != 1 or r.size == 0 or r.size % group_size:
        raise ValueError(f"rewards {r.shape} are not one row of groups of {group_size} >= 2")
    with np.errstate(over="ignore", invalid="ignore"):  # an error is raised below instead
        centred, std = _centre(r.reshape(-1, group_size), scored, scale)
    if not np.isfinite(std.sum()):  # any NaN or infinity in r reaches this sum
        i = int(np.argmax(np.where(np.isfinite(r), np.abs(r), np.inf)))
        raise ValueError(f"reward {i} is {r[i]:g}: rewards and their squares must be finite")
    if scale != "none":
        centred /= std + r.dtype.type(EPSILON_STD)
    device = rewards.device if isinstance(rewards, Tensor) else None
    return torch.from_numpy(centred.reshape(-1)).to(device)


def _as_array(rewards) -> tuple[np.ndarray, np.ndarray | None]:
    """(the rewards as floats, which of them are scored; None: all)."""
    if isinstance(rewards, Tensor):  # bfloat16, which NumPy lacks, becomes float32
        dtype = torch.promote_types(rewards.dtype, torch.float32)
        rewards = rewards.detach().to("cpu", dtype).numpy()
    if isinstance(rewards, np.ndarray) and rewards.dtype != object:
        return rewards.astype("f8" if rewards.dtype == "f8" else "f4", copy=False), None
    scored = np.array([value is not None for value in rewards])
    values = np.array([0.0 if value is None else value for value in rewards], dtype=np.float32)
    return values, None if scored.all() else scored


def _centre(groups: np.ndarray, scored: np.ndarray | None, scale: str):
    """(r - mean of the group (G, n); standard deviation: (G, 1), a number, or a sum for "none")."""
    # einsum sums short rows without threads, which would cost more (benchmarks/advantages.py)
    first, count, where = groups[:, :1], groups.shape[1], True
    if scored is not None:
        where = scored.reshape(groups.shape)
        first = np.take_along_axis(groups, where.argmax(axis=1)[:, None], axis=1)
        count = np.maximum(1, where.sum(axis=1, keepdims=True)).astype(groups.dtype)
        groups = np.where(where, groups, first)
    centred = groups - first  # equal rewards become exactly 0; r - mean(r) may not, in floats
    np.subtract(centred, np.einsum("gn->g", centred)[:, None] / count, out=centred, where=where)
    if scale == "group":
        squares = np.einsum("gn,gn->g", centred, centred)[:, None]
        return centred, np.sqrt(squares / np.maximum(count - 1, 1))
    values = groups if scored is None else groups[where]
    return centred, values.std(ddof=1) if scale == "batch" and values.size > 1 else centred.sum()


def combine_rewards(
    per_function: Sequence[Sequence[float | None]], weights: Sequence[float] | None = None
) -> list[float | None]:
    """Each completion's weighted sum of the rewards that apply, or None if none does (as in TRL);
    `per_function[i][j]` is function i's reward for completion j.
    """
    weights = [1.0] * len(per_function) if weights is None else weights
    combined: list[float | None] = []
    for values in zip(*per_function, strict=True):
        terms = [w * v for w, v in zip(weights, values, strict=True) if v is not None]
        combined.append(sum(terms) if terms else None)
    return combined


def sequence_logprobs(model, input_ids, attention_mask, length: int, temperature=1.0) -> Tensor:
    """log pi(token | all tokens before it), for the last `length` tokens of each row: (B, length).
    `input_ids` and `attention_mask` (B, P + T): prompts padded on the left, completions right.
    """
    out = model(input_ids=input_ids, attention_mask=attention_mask, logits_to_keep=length + 1)
    logits = out.logits[:, :-1].float() / temperature  # position t predicts token t + 1
    targets = input_ids[:, -length:].unsqueeze(-1)
    return logits.log_softmax(dim=-1).gather(-1, targets).squeeze(-1)


def kl_estimate(logp: Tensor, ref_logp: Tensor, kind: str = "k3") -> Tensor:
    """KL(policy || reference), estimated for each token that the policy sampled; shape of `logp`.

    With d = log pi_ref - log pi (Schulman, 2020); as a value, and by its mean gradient as a loss:
        k1 = -d               unbiased, often negative; its gradient is 0
        k2 = d^2 / 2          biased; its gradient is that of KL(policy || reference)
        k3 = exp(d) - d - 1   unbiased, never negative; its gradient: KL(reference || policy)
    GRPO's penalty is k3 (DeepSeekMath, equation 4); times the ratio it has the gradient of k2.
    exp(d) is pi_ref / pi; with the inverse ratio, k3 would estimate another quantity.
    """
    _one_of("kind", kind, ("k1", "k2", "k3"))
    d = _same_shape("ref_logp", ref_logp, logp) - logp
    return {"k1": -d, "k2": d.square() / 2, "k3": d.exp() - d - 1}[kind]


def policy_ratio(logp: Tensor, old_logp: Tensor, mask: Tensor, level: str = "token") -> Tensor:
    """pi / pi_old: for each token (B, T), or with level "sequence" one for each completion (B, 1):
    the geometric mean of its tokens' ratios (GSPO, 7).
    """
    _one_of("level", level, LEVELS)
    log_ratio = (logp - _same_shape("old_logp", old_logp, logp).detach()) * mask
    if level == "sequence":
        log_ratio = log_ratio.sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1.0)
    return log_ratio.exp()


def clipped_losses(ratio: Tensor, A: Tensor, low=0.2, high=0.2) -> Tensor:
    """-min(ratio A, clip(ratio, 1 - low, 1 + high) A) (DeepSeekMath, equation 3; PPO).

    The minimum stops a token whose ratio has moved far enough in the direction of A (B, 1), but not
    in the other one. DAPO raises only `high`, so that rare tokens can become likely.
    """
    return -torch.min(ratio * A, ratio.clamp(1 - low, 1 + high) * A)


def reduce_tokens(
    per_token: Tensor, mask: Tensor, loss_type: str,
    max_completion_length=None, num_items_in_batch=None, accumulation_steps=1,
) -> Tensor:  # fmt: skip
    """From (B, T) to one number; TRL divides the first three by `accumulation_steps`:

    grpo      mean over tokens, then over completions: tokens of long answers count less
    dr_grpo   sum / (B max_completion_length): every token counts the same, whatever the length
    bnpo      sum / number of tokens in this batch
    dapo, cispo   sum / num_items_in_batch, the tokens of the whole step (None: of this batch)
    """
    _one_of("loss_type", loss_type, LOSS_TYPES)
    per_token = per_token * mask
    if loss_type == "grpo":
        return (per_token.sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)).mean() / accumulation_steps
    if loss_type == "dr_grpo":
        if not max_completion_length:
            raise ValueError("dr_grpo needs max_completion_length, the sampling limit: give it")
        return per_token.sum() / (len(mask) * max_completion_length) / accumulation_steps
    if loss_type == "bnpo":
        return per_token.sum() / mask.sum().clamp(min=1.0) / accumulation_steps
    return per_token.sum() / max(1.0, float(num_items_in_batch or mask.sum()))


def grpo_loss(  # noqa: PLR0913, RUF100 - each is a setting of the loss
    logp: Tensor, advantages: Tensor, mask: Tensor, *,
    old_logp: Tensor | None = None, ref_logp: Tensor | None = None, truncated: Tensor | None = None,
    loss_type: str = "dapo", level: str = "token", beta: float = 0.0, unbiased_kl: bool = True,
    epsilon_low: float = 0.2, epsilon_high: float | None = None, **reduction,
) -> tuple[Tensor, dict[str, float]]:  # fmt: skip
    """(the loss to minimise, values to log: fractions clip_low and clip_high, kl with a reference).

    logp (B, T)       log-probabilities under the policy, with gradient; old_logp at sampling time
                      (None: the same, as in the first update), ref_logp under the reference
    advantages (B,)   from group_advantages
    mask (B, T)       1 for the completion's tokens, 0 for padding; truncated (B,) leaves some out
    beta              weight of k3. Its value is unbiased, its gradient is not: `unbiased_kl`
                      multiplies by the ratio, as DeepSeek-V3.2 and TRL; False: DeepSeekMath
    epsilon_high      None is epsilon_low; "cispo" has no default, 5.0 is common
    reduction         what `reduce_tokens` takes: max_completion_length, num_items_in_batch, ...
    """
    if logp.ndim != 2 or advantages.shape != logp.shape[:1] or not advantages.isfinite().all():
        raise ValueError(f"advantages {advantages} must be finite, one per row ({len(logp)})")
    mask = _same_shape("mask", mask, logp).to(logp.dtype)
    if (empty := mask.sum(dim=1) == 0).any():
        raise ValueError(f"completion {int(empty.int().argmax())} is empty: the mask has no token")
    if truncated is not None:  # if all are truncated, the loss and its gradient are 0
        mask = mask * (~_same_shape("truncated", truncated, advantages).bool()).unsqueeze(1)
    if beta and ref_logp is None:
        raise ValueError(f"beta is {beta}: the KL penalty needs ref_logp, of the reference")
    # padding becomes 0, so that its values cannot overflow
    logp = logp.masked_fill(mask == 0, 0.0)
    old_logp, ref_logp = (
        None if x is None else _same_shape(name, x, logp).masked_fill(mask == 0, 0.0)
        for name, x in (("old_logp", old_logp), ("ref_logp", ref_logp))
    )
    A = advantages.detach().unsqueeze(1)  # (B, 1): a completion's tokens share its advantage
    ratio = policy_ratio(logp, logp if old_logp is None else old_logp, mask, level)
    high = epsilon_low if epsilon_high is None else epsilon_high
    least, most, per_token = 1 - epsilon_low, 1 + high, clipped_losses(ratio, A, epsilon_low, high)
    if loss_type == "cispo":  # the weight is a constant: no token loses its gradient (CISPO, 4)
        if epsilon_high is None:
            raise ValueError("cispo caps the ratio at epsilon_high itself: give it, such as 5.0")
        least, most, per_token = 0.0, high, -ratio.clamp(max=high).detach() * A * logp
    logged = {"clip_low": (ratio < least) & (A < 0), "clip_high": (ratio > most) & (A > 0)}
    if ref_logp is not None:
        kl = logged["kl"] = kl_estimate(logp, ref_logp.detach())  # no gradient to the reference
        if beta:
            per_token = per_token + beta * (kl * ratio if unbiased_kl else kl)
    tokens = mask.sum().clamp(min=1.0)
    metrics = {name: float((v.detach() * mask).sum() / tokens) for name, v in logged.items()}
    return reduce_tokens(per_token, mask, loss_type, **reduction), metrics


def _same_shape(name: str, value: Tensor, other: Tensor) -> Tensor:
    if value.shape != other.shape:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, it must be {tuple(other.shape)}")
    return value


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")
