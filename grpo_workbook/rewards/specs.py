"""Rewards by name, argument and weight, as the command line takes them.

`parse_rewards("correctness:2,overlong=200:0.5")` makes functions and weights for GRPOTrainer. The
names are in REGISTRY; the command line adds those of other modules, and functions of your files.
"""

import re
from collections.abc import Callable, Mapping

from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.builtin import (
    correctness_reward,
    get_overlong_reward,
    incremental_format_reward,
    strict_format_reward,
)
from grpo_workbook.rewards.contract import RewardFunction, about, name_of

__all__ = ["REGISTRY", "parse_rewards"]

# Name -> a reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {
    "correctness": correctness_reward,
    "strict_format": strict_format_reward,
    "incremental_format": incremental_format_reward,
    "overlong": get_overlong_reward,
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
    of REGISTRY, and `load` makes a function of the command line's FILE.py:FUNCTION. Raises
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
    if name not in registry:
        suggestion = nearest(name, [*registry, "FILE.py:FUNCTION"])
        raise WorkbookError(f"unknown reward {name!r}: {suggestion}")
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
