"""Reward functions in TRL's contract, by name and weight; functions to check them.

The contract: a reward gets completions and the dataset's columns as lists, and returns one float
per completion, or None if it does not apply. A completion is a text, or with chat prompts
`[{"role": "assistant", "content": text}]`. A function's `__name__` is its name in the log.
Rewards go from 0 to 1, penalties from -1 to 0, and none hides an error.
"""

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

from grpo_workbook.errors import WorkbookError

Completion = str | list[dict[str, str]]
RewardFunction = Callable[..., list[float | None]]


def reward(role: str | None = None, columns: Sequence[str] = (), answers: str | None = None):
    """Decorator: what a reward judges ("correctness", "format", "length", "style" or your own word,
    for the diagnosis), the columns that it needs (if TRL calls it without one of them it raises
    WorkbookError and names those that are there), and whether the answers must be a "number".
    """

    def mark(function: Any) -> Any:
        @functools.wraps(function)
        def checks(*given, **named):
            if len(given) < 2:  # else by hand, with the columns in order
                require_columns(name_of(marked), marked.columns, named)
            return marked.__wrapped__(*given, **named)  # autoreload updates this one only

        plain = inspect.isfunction(function) and not inspect.iscoroutinefunction(function)
        marked: Any = checks if plain else function  # TRL awaits async ones; an object stays itself
        marked.role, marked.columns, marked.answers = role, tuple(columns), answers
        return marked

    return mark


def require_columns(who: str, needed: Sequence[str], columns: Mapping | Sequence[str]) -> None:
    """Raise WorkbookError for the first column that is needed and missing; it names the others."""
    if missing := [name for name in needed if name not in columns]:
        made = "prompts completions completion_ids trainer_state log_extra log_metric"  # by TRL
        there = ", ".join(name for name in columns if name not in made.split()) or "the prompt"
        said = f"{who} needs the column {missing[0]!r}; the data has only {there}"
        raise WorkbookError(f"{said}: rename one, or name another column")


def name_of(function: Callable) -> str:
    """The name of a reward function in the log; for a functools.partial that of its function."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def text_of(completion: Completion) -> str:
    """The assistant's text of a completion, in either of TRL's forms."""
    if isinstance(completion, str):
        return completion
    return "".join(m.get("content") or "" for m in completion if m["role"] == "assistant")


def checked(function: Callable, completions: Sequence, **columns) -> list[float | None]:
    """The values of a reward as floats. Raises WorkbookError if it breaks the contract."""
    values, n = function(completions=completions, **columns), len(completions)
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        plain = [None if v is None else float(v) for v in values]
        finite = all(v is None or math.isfinite(v) for v in plain)
        if finite and len(plain) == n and not isinstance(values, Mapping | Set):
            return plain
    wanted = f"for {n} completions it must return {n} finite numbers or None"
    raise WorkbookError(f"{name_of(function)} broke the contract: {wanted}")


def call(function: Callable, completions: Sequence, **columns) -> list:
    """The checked rewards outside of training, called with everything that TRL would pass."""
    texts = [text_of(c) for c in completions]
    given = {"prompts": columns.pop("prompt", [""] * len(texts))}
    if any(isinstance(prompt, list) for prompt in given["prompts"]):
        completions = [[{"role": "assistant", "content": text}] for text in texts]
    given["completion_ids"] = [text.split() for text in texts]
    given |= dict.fromkeys(("log_extra", "log_metric"), lambda *_: None)
    state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
    return checked(function, completions, trainer_state=state, **given, **columns)
