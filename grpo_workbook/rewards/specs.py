"""Rewards by name, argument and weight: "correctness:2,overlong=200:0.5"."""

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
from grpo_workbook.rewards.contract import RewardFunction, name_of

# Name -> a reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {
    "correctness": correctness_reward,
    "strict_format": strict_format_reward,
    "incremental_format": incremental_format_reward,
    "overlong": get_overlong_reward,
}
# FILE.py:FUNCTION or NAME or NAME=ARGUMENT, with or without :WEIGHT
_PART = re.compile(
    r"(?s)\s*(.+\.py:[^:]+?|[^:\s][^:]*?)\s*(?::\s*((?:\d+\.?\d*|\.\d+)(?:e-?\d\d?)?)\s*)?"
)


def parse_rewards(
    spec: str, more: Mapping[str, Callable] | None = None, load: Callable | None = None
) -> tuple[list, list]:
    """(functions, weights) from "name[=argument][:weight],...", by default 1; 0 only logs.
    `more`: besides REGISTRY; `load`: makes a function of the command line's FILE.py:FUNCTION.
    """
    functions, weights, known = [], [], {**REGISTRY, **(more or {})}
    for part in spec.split(","):
        if not (found := _PART.fullmatch(part)):
            said = "name[=argument][:weight], the weight from 0 up (penalties are negative)"
            raise WorkbookError(f"{part!r} in {spec!r} is not a reward: give {said}")
        called, weight = found.groups()
        functions.append(load(called) if load and ".py:" in called else _named(called, known))
        weights.append(float(weight or 1))
    if not any(weights):
        raise WorkbookError(f"every weight in {spec!r} is 0: give at least one above 0")
    names = [name_of(f) for f in functions]
    if len(set(names)) < len(names):
        raise WorkbookError(f"two of {', '.join(names)} have the same name: rename your function")
    return functions, weights


def _named(called: str, known: Mapping[str, Callable]) -> RewardFunction:
    name, equals, argument = (x.strip() for x in called.partition("="))
    if name not in known:
        near = nearest(name, [*known, "FILE.py:FUNCTION"])
        raise WorkbookError(f"unknown reward {name!r}: {near}")
    if hasattr(known[name], "role"):
        if equals:
            raise WorkbookError(f"the reward {name!r} takes no argument: leave out ={argument}")
        return known[name]
    try:
        return known[name](argument) if equals else known[name]()
    except (TypeError, ValueError) as error:
        raise WorkbookError(f"{called}: {error}") from None
