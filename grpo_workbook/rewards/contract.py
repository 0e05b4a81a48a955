"""What a reward function is, for TRL and for this package, and how to call one outside of training.

TRL calls a reward with keywords: prompts, completions and each column of the dataset, as lists. It
returns one number for each completion, or None where it does not apply. A completion is a text, or
with chat prompts `[{"role": "assistant", "content": text}]`. The `__name__` of a function is its
name in the log. An object with `__call__`, a functools.partial and an async function are rewards,
too. Rewards go from 0 to 1 and penalties from -1 to 0, and none of them hides an error.

`@reward(...)` attaches a `RewardInfo`, and everybody else reads it with `about`.
"""

import asyncio
import functools
import inspect
import math
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from grpo_workbook.errors import WorkbookError

__all__ = [
    "Completion",
    "RewardFunction",
    "RewardInfo",
    "about",
    "attach_info",
    "call",
    "checked",
    "makes_reward",
    "name_of",
    "require_columns",
    "reward",
    "text_of",
    "with_opening",
]

Completion = str | list[dict[str, str]]
RewardFunction = Callable[..., list[float | None]]
F = TypeVar("F")
P = ParamSpec("P")

# TRL parses the completions of a model with tools, or with a response template. A message with one
# of these fields has been parsed, and its content is without the thought.
PARSED = {"reasoning_content", "thinking", "tool_calls"}

# What TRL passes beside the columns of the dataset.
PASSED_BY_TRL = {
    "prompts",
    "completions",
    "completion_ids",
    "trainer_state",
    "log_extra",
    "log_metric",
}


@dataclass(frozen=True)
class RewardInfo:
    """What a reward function says about itself.

    `role` is what it judges: "correctness", "format", "length", "style" or a word of your own.
    `columns` are the columns of the dataset that it needs, `answers` is "number" or "text" if the
    reference answers must be of that form. `file` is the user's file that the function comes from.
    """

    role: str | None = None
    columns: tuple[str, ...] = ()
    answers: str | None = None
    file: Path | None = None


def about(function: Any) -> RewardInfo:
    """What a reward function says about itself; an empty RewardInfo for one without @reward."""
    while isinstance(function, functools.partial) and not hasattr(function, "reward_info"):
        function = function.func
    return getattr(function, "reward_info", RewardInfo())


def attach_info(function: Any, info: RewardInfo) -> None:
    """Set what `about(function)` returns from now on."""
    function.reward_info = info


def reward(
    role: str | None = None, columns: Sequence[str] = (), answers: str | None = None
) -> Callable[[F], F]:
    """Decorator for a reward function: says what it judges, and checks the columns.

        @reward("correctness", columns=("answer",))
        def right(completions, answer, **columns): ...

    If TRL calls the function without one of the columns, it raises WorkbookError and names the
    columns that the data has. `role`, `columns` and `answers` are those of `RewardInfo`.
    """
    info = RewardInfo(role, tuple(columns), answers)

    def decorate(function: F) -> F:
        # TRL awaits async functions, and an object keeps its own methods: neither is wrapped.
        if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
            attach_info(function, info)
            return function

        @functools.wraps(function)
        def with_columns(*args: Any, **kwargs: Any) -> list[float | None]:
            # TRL passes everything by name. A call by hand may pass the columns in their order.
            if len(args) < 2:
                require_columns(name_of(wrapper), about(wrapper).columns, kwargs)
            # IPython's autoreload replaces __wrapped__, so `function` may be out of date.
            return wrapper.__wrapped__(*args, **kwargs)

        wrapper: Any = with_columns
        attach_info(wrapper, info)
        return wrapper

    return decorate


def makes_reward(factory: Callable[P, F]) -> Callable[P, F]:
    """Decorator for a function that makes a reward, such as get_answer_reward.

    A trainer that gets the factory itself calls it as if it were a reward. Then it raises
    WorkbookError, with the call that is missing.
    """

    @functools.wraps(factory)
    def make(*args: P.args, **kwargs: P.kwargs) -> F:
        if "completions" in kwargs:
            name = name_of(factory)
            raise WorkbookError(
                f"{name} makes a reward and is none itself: give the trainer {name}(...)"
            )
        return factory(*args, **kwargs)

    return make


def require_columns(name: str, needed: Iterable[str], columns: Iterable[str]) -> None:
    """Raise WorkbookError if one of the needed columns is missing; it names those that exist.

    `name` is who needs them, `columns` are the names that were passed.
    """
    passed = list(columns)
    for column in needed:
        if column not in passed:
            others = [other for other in passed if other not in PASSED_BY_TRL]
            raise WorkbookError(
                f"{name} needs the column {column!r}; the data has only "
                f"{', '.join(others) or 'the prompt'}: rename one, or name another column"
            )


def name_of(function: Callable) -> str:
    """The name of a reward function in the log; for a functools.partial that of its function."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


def text_of(completion: Completion) -> str:
    """The assistant's text of a completion, in either of TRL's forms."""
    if isinstance(completion, str):
        return completion
    text = ""
    for message in completion:
        if message["role"] == "assistant":
            text += message.get("content") or ""  # a message that calls a tool may have None
    return text


def with_opening(completion: Completion, prompt_tag: str) -> Completion:
    """A completion behind the tag that its prompt has opened, in the same one of TRL's forms.

    A completion whose thought TRL has taken out of its content stays as it is.
    """
    if isinstance(completion, str):
        return prompt_tag + completion
    first, *others = completion
    if prompt_tag == "<think>" and not PARSED.isdisjoint(first):
        return completion
    content = first.get("content") or ""
    return [{**first, "content": prompt_tag + content}, *others]


def checked(
    function: Callable, completions: Sequence[Completion], **columns: Any
) -> list[float | None]:
    """Call a reward as TRL does, with keywords, and return its values as floats.

    An async reward is awaited. Raises WorkbookError if the values are not one finite number, or
    None, for each completion.
    """
    values = function(completions=completions, **columns)  # one for each completion
    if inspect.isawaitable(values):
        values = asyncio.run_coroutine_threadsafe(_finish(values), _event_loop()).result()
    rewards = _as_floats(values)
    if rewards is None or len(rewards) != len(completions):
        raise WorkbookError(
            f"{name_of(function)} broke the contract: for {len(completions)} completions it must "
            f"return {len(completions)} finite numbers or None"
        )
    return rewards


async def _finish(values: Awaitable) -> Any:
    return await values


@functools.cache
def _event_loop() -> asyncio.AbstractEventLoop:
    """The loop of all async rewards, in a thread of its own: a notebook's own loop is running."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _as_floats(values: Any) -> list[float | None] | None:
    """The values as floats; None if they have no order or one of them is no finite number."""
    if isinstance(values, Mapping | Set):
        return None
    # Arrays and tensors are fine: float() takes their numbers.
    rewards = []
    try:
        for value in values:
            number = None if value is None else float(value)
            if number is not None and not math.isfinite(number):
                return None
            rewards.append(number)
    except (TypeError, ValueError, OverflowError):  # also of 10**400
        return None
    return rewards


def call(
    function: Callable,
    completions: Sequence[Completion],
    *,
    tokenizer: Any = None,
    completion_ids: Sequence[Sequence[int]] | None = None,
    **columns: Any,
) -> list[float | None]:
    """The checked rewards of completions, outside of training.

        call(correctness_reward, ["<answer>42</answer>"], answer=["42"])

    Beside the columns the reward gets everything that TRL would pass; with chat prompts the
    completions become chats. `trainer_state` is a TrainerState before the first step.

    Args:
        function: the reward function.
        completions: texts or chats.
        tokenizer: makes the `completion_ids` of the texts, with the end token, if they are not
            given.
        completion_ids: the token ids of each completion, as they were generated.
        columns: columns of the dataset, `prompt` among them if you have it.

    Raises:
        WorkbookError: if the reward breaks the contract, and if it reads token ids that are not
            known.
    """
    texts = [text_of(completion) for completion in completions]
    prompts = columns.pop("prompt", [""] * len(texts))
    # TRL gives chats for chats, and texts for texts.
    if len(prompts) > 0 and isinstance(prompts[0], list):
        completions = [[{"role": "assistant", "content": text}] for text in texts]
    parameters = inspect.signature(function).parameters
    if completion_ids is None and tokenizer is not None:
        encoded = tokenizer(texts, add_special_tokens=False)["input_ids"]
        completion_ids = [[*token_ids, tokenizer.eos_token_id] for token_ids in encoded]
    if completion_ids is not None:
        columns["completion_ids"] = completion_ids
    elif "completion_ids" in parameters:
        raise WorkbookError(
            f"{name_of(function)} reads completion_ids, the token ids of the completions, which "
            "texts alone do not have: give a tokenizer"
        )
    # Transformers takes seconds to load, and must be loaded after Unsloth.
    if "trainer_state" in parameters or "transformers" in sys.modules:
        from transformers import TrainerState

        columns["trainer_state"] = TrainerState(epoch=0.0, max_steps=1)
    return checked(
        function,
        completions,
        prompts=prompts,
        log_extra=_log_nothing,
        log_metric=_log_nothing,
        **columns,
    )


def _log_nothing(name: str, value: Any) -> None:
    """Stands for TRL's log_metric and log_extra."""
