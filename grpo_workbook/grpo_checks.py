"""What the formulas in grpo.py refuse, with the value: shapes that would broadcast, numbers that are none."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor


def checked_mask(
    logp: Tensor, advantages: Tensor, mask: Tensor, truncated: Tensor | None
) -> Tensor:
    """The mask (B, T) as floats, without the truncated completions: logp (B, T), advantages and truncated (B,).

    Raises ValueError for what no loss can be taken of: other shapes, advantages that are not finite, numbers other than
    0 and 1 in the mask, a completion without a token.
    """
    if logp.ndim != 2 or advantages.shape != logp.shape[:1]:
        raise ValueError(
            f"logp {tuple(logp.shape)} must be (B, T) and advantages {tuple(advantages.shape)} (B,)"
        )
    if not advantages.isfinite().all():
        broken = int((~advantages.isfinite()).nonzero()[0])
        raise ValueError(f"advantage {broken} is {advantages[broken]:g}: advantages must be finite")
    mask = same_shape("mask", mask, logp).to(logp.dtype)
    if not ((mask == 0) | (mask == 1)).all():
        raise ValueError(
            "the mask holds other numbers than 0 and 1: give 1 for tokens of the completion, 0 for padding"
        )
    empty = (mask.sum(dim=1) == 0).nonzero().flatten().tolist()
    if len(empty) == len(mask):
        raise ValueError(
            f"the mask {tuple(mask.shape)} is all zeros: there is no token to learn from"
        )
    if empty:
        raise ValueError(
            f"completion {empty[0]} is empty: its row of the mask {tuple(mask.shape)} has no token in it"
        )
    if truncated is not None:
        if truncated.shape != advantages.shape:
            raise ValueError(
                f"truncated {tuple(truncated.shape)} must be one bool per completion: ({len(mask)},)"
            )
        mask = mask * (~truncated.bool()).unsqueeze(
            1
        )  # when all are, the loss is 0 and so is its gradient
    return mask


def same_shape(name: str, value: Tensor, logp: Tensor) -> Tensor:
    """`value`, which must have the shape of `logp`; else ValueError."""
    if value.shape != logp.shape:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}, the policy's log-probabilities {tuple(logp.shape)}"
        )
    return value


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Raise ValueError for a value that is none of the known ones."""
    if value not in known:
        raise ValueError(f"unknown {name} {value!r}: choose one of {', '.join(known)}")


def refuse_non_finite(r: np.ndarray) -> None:
    """Raise ValueError for rewards whose sums are not finite: with the first that is not, or because they overflow."""
    broken = np.flatnonzero(~np.isfinite(r))
    if len(broken):
        raise ValueError(
            f"reward {broken[0]} is {r[broken[0]]}: rewards must be finite (None: not applicable)"
        )
    raise ValueError(f"rewards up to {np.abs(r).max():g} overflow {r.dtype}: scale them down")


def one_per_row(name: str, value: Tensor, tokens: Tensor) -> None:
    """Raise ValueError unless `value` is a number, has the shape of `tokens` (B, T), or is (B, 1).

    What else would broadcast means nothing.
    """
    if value.ndim and value.shape != tokens.shape and value.shape != (*tokens.shape[:-1], 1):
        shapes = f"{tuple(value.shape)}, which does not fit {tuple(tokens.shape)}"
        raise ValueError(f"{name} has shape {shapes}: give that, or (B, 1)")


def at_least(least: float, **values: float | None) -> None:
    """Raise ValueError for a value below `least`, or NaN; None is left out."""
    for name, value in values.items():
        if value is not None and not value >= least:  # NaN neither
            raise ValueError(f"{name} is {value}: it must be at least {least}")


def numbers(rewards) -> np.ndarray:
    """A list or array of numbers as an array of floats or whole numbers. Raises ValueError for text and the like."""
    try:
        array = np.asarray(rewards)
        array = array.astype(np.float64) if array.dtype.kind == "O" else array
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"the rewards are not one row of numbers: {error}") from None
    if array.dtype.kind not in "fiub" or any(isinstance(value, str) for value in rewards):
        raise ValueError(f"the rewards are not numbers but {array.dtype}")
    return array
