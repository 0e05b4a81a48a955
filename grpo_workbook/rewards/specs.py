"""Rewards by name, argument and weight, as the command line takes them.

`parse_rewards("correctness:2,overlong=200:0.5")` makes functions and weights for GRPOTrainer. The
names are in REGISTRY; the command line adds those of other modules, and functions of your files.
`trl.rewards.NAME` is a reward of TRL, and a folder or a hub id is a reward model.
"""

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.builtin import (
    correctness_reward,
    get_overlong_reward,
    incremental_format_reward,
    strict_format_reward,
)
from grpo_workbook.rewards.contract import RewardFunction, about, name_of, reward
from grpo_workbook.rewards.models import RewardModel

__all__ = ["REGISTRY", "as_reward", "parse_rewards"]

# Name -> a reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {
    "correctness": correctness_reward,
    "strict_format": strict_format_reward,
    "incremental_format": incremental_format_reward,
    "overlong": get_overlong_reward,
}
# What TRL's rewards judge, and the columns that they read.
_OF_TRL: dict[str, tuple[str, tuple[str, ...]]] = {
    "accuracy_reward": ("correctness", ("solution",)),
    "reasoning_accuracy_reward": ("correctness", ("solution",)),
    "get_cosine_scaled_reward": ("correctness", ("solution",)),
    "think_format_reward": ("format", ()),
    "get_repetition_penalty_reward": ("style", ()),
    "get_soft_overlong_punishment": ("length", ()),
}
# FILE.py:FUNCTION or NAME or NAME=ARGUMENT, with or without :WEIGHT
_PART = re.compile(
    r"(?s)\s*(?P<reward>.+\.py:[^:]+?|[^:\s][^:]*?)\s*"
    r"(?::\s*(?P<weight>(?:\d+\.?\d*|\.\d+)(?:e-?\d\d?)?)\s*)?"
)


def parse_rewards(
    spec: str,
    extra: Mapping[str, Callable] | None = None,
    load: Callable[[str], RewardFunction] | None = None,
) -> tuple[list[RewardFunction], list[float]]:
    """The reward functions and weights of `spec`, a text "name[=argument][:weight],...".

        functions, weights = parse_rewards("correctness:2,strict_format:0.5")

    A weight is 1 if it is left out; with 0 a reward is only logged. `extra` are names beside those
    of REGISTRY, and `load` makes a function of the command line's FILE.py:FUNCTION. A name may also
    be trl.rewards.NAME, with the numbers that its factory takes as in
    "trl.rewards.get_soft_overlong_punishment=256;64", or a reward model's folder or hub id. Raises
    WorkbookError for an unknown name, a bad argument or weight, weights that are all 0, and two
    rewards with the same name in the log.
    """
    registry = {**REGISTRY, **(extra or {})}  # a name of `extra` wins
    functions = []
    weights = []
    for part in spec.split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise WorkbookError(
                f"{part!r} in {spec!r} is not a reward: give name[=argument][:weight], the weight "
                "from 0 up (penalties are negative)"
            )
        if load is not None and ".py:" in match["reward"]:
            functions.append(load(match["reward"]))
        else:
            functions.append(_registered(match["reward"], registry))
        weights.append(float(match["weight"] or 1))
    if not any(weights):
        raise WorkbookError(f"every weight in {spec!r} is 0: give at least one above 0")
    # Two rewards with one name would share a metric in the log.
    names = [name_of(function) for function in functions]
    if len(set(names)) < len(names):
        raise WorkbookError(f"two of {', '.join(names)} have the same name: rename your function")
    return functions, weights


def _registered(text: str, registry: Mapping[str, Callable]) -> RewardFunction:
    """The reward of "name" or "name=argument"."""
    name, equals, argument = [part.strip() for part in text.partition("=")]
    if name.startswith("trl.rewards."):
        return _reward_of_trl(name.removeprefix("trl.rewards."), argument)
    if name not in registry:
        if _is_model(text):
            return RewardModel(text)
        others = ("FILE.py:FUNCTION", "trl.rewards.NAME", "a reward model's folder")
        raise WorkbookError(f"unknown reward {name!r}: {nearest(name, [*registry, *others])}")
    function = registry[name]
    is_reward = about(function).role is not None  # a factory has no role
    if is_reward and equals:
        raise WorkbookError(f"the reward {name!r} takes no argument: leave out ={argument}")
    if is_reward:
        return function
    try:
        return function(argument) if equals else function()
    except (TypeError, ValueError) as error:  # a factory without its argument, or with a bad one
        raise WorkbookError(f"{text}: {error}") from None


def _is_model(name: str) -> bool:
    """Whether this is a folder, or may be a hub id: A/B. No reward's name has a slash."""
    return Path(name).is_dir() or bool(re.fullmatch(r"\w[\w.-]*/[\w.-]+", name))


def _reward_of_trl(name: str, argument: str) -> RewardFunction:
    """A reward of trl.rewards; the numbers in `argument`, as "256;64", are for its factory."""
    # Only the rewards are loaded with it, which Unsloth does not change.
    rewards = importlib.import_module("trl.rewards")
    if not callable(getattr(rewards, name, None)):
        raise WorkbookError(f"TRL has no reward {name!r}: {nearest(name, _OF_TRL)}")
    function: Any = getattr(rewards, name)
    if name.startswith("get_"):
        try:
            function = function(*[int(number) for number in argument.split(";") if number])
        except (TypeError, ValueError) as error:
            raise WorkbookError(
                f"trl.rewards.{name}: {error}. Give whole numbers as in {name}=256;64"
            ) from None
    elif argument:
        raise WorkbookError(f"trl.rewards.{name} takes no argument: leave out ={argument}")
    role, columns = _OF_TRL.get(name, (None, ()))
    return reward(role, columns)(function)


def as_reward(function: Any) -> RewardFunction:
    """A reward function of what TRL takes as one: a function, a model, or a model's name.

    A text may also be a name that `parse_rewards` knows. Raises WorkbookError for an unknown name.
    """
    if isinstance(function, str):
        return _registered(function, REGISTRY)
    if hasattr(function, "get_input_embeddings"):  # a model of Transformers
        return RewardModel(function)
    return function
