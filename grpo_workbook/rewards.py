"""Reward functions in TRL's contract, by name and weight; functions to check them.

The contract: a reward gets completions and the dataset's columns as lists, and returns one float
per completion, or None if it does not apply. A completion is a text, or with chat prompts
`[{"role": "assistant", "content": text}]`. A function's `__name__` is its name in the log.
Rewards go from 0 to 1, penalties from -1 to 0, and none hides an error.
"""

import contextlib
import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any

from grpo_workbook import answers as reading
from grpo_workbook.answers import TAGS, agreed, is_correct, tagged_answer
from grpo_workbook.config import nearest
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


@reward(role="correctness", columns=("answer",), answers="number")
def correctness_reward(completions, answer, prompts=None, **columns) -> list[float | None]:
    """1.0 if the only answer block holds exactly the reference, else 0.0; None if there is none.

    trainer = GRPOTrainer(model, [correctness_reward, strict_format_reward], args, dataset)
    """
    said = [tagged_answer(text_of(c)) for c in completions]
    rows = zip(said, answer, prompts or [""] * len(said), strict=True)
    return [None if row[1] is None else float(is_correct(*row)) for row in rows]


def answer_reward(
    column: str = "solution", marker: str | re.Pattern = "\\boxed{}", name: str | None = None
) -> RewardFunction:
    """A correctness reward for a TRL script: 1.0 if the marked answer is exactly the column's.

        right = answer_reward("solution", marker="####")  # a column of your dataset
        trainer = GRPOTrainer(model, reward_funcs=[right], train_dataset=dataset)

    `marker`: "\\boxed{}", "####", "<answer>", "json:KEY", or a regular expression with one group.
    Several marked answers that differ count as none, and earn 0.0; a row without gold gets None. A
    gold is the last marked answer of the column, or all of it. Numbers are compared as numbers
    (1,000.0 is 1000), all else as text. Raises WorkbookError if the dataset has no such column.
    """
    find = _finder(marker)

    @reward(role="correctness", columns=(column,))
    def marked_answer_reward(completions, prompts=None, **columns) -> list[float | None]:
        said = [agreed(find(text_of(c))) for c in completions]
        texts = ["" if value is None else str(value) for value in columns[column]]
        golds = [(find(text) or [text])[-1].strip() for text in texts]
        rows = zip(said, golds, prompts or [""] * len(said), strict=True)
        return [float(is_correct(s, g, q, or_text=True)) if g else None for s, g, q in rows]

    marked_answer_reward.__name__ = name or f"{column}_answer_reward"
    return marked_answer_reward


def _finder(marker: str | re.Pattern) -> Callable[[str], list[str]]:
    """What finds all answers by the mark, after json:KEY, or in a pattern's one group."""
    if isinstance(marker, str) and marker in reading.MARKS:
        return functools.partial(reading.marked_answers, mark=marker)
    if isinstance(marker, str) and marker.startswith("json:"):
        key = re.escape(json.dumps(marker.removeprefix("json:")))
        text, number = r'"(?>(?:[^"\\]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*)"', r"-?\d[\d.eE+-]*+"
        pairs = re.compile(rf"(?a){key}\s*:\s*(?:({text})|({number}))").findall
        return lambda said: [json.loads(t, strict=False) if t else n for t, n in pairs(said)]
    if (pattern := re.compile(marker)).groups != 1:
        raise WorkbookError(f"the marker {marker!r} has {pattern.groups} groups: give it exactly 1")
    return pattern.findall


@reward(role="format")
def strict_format_reward(completions, **columns) -> list[float]:
    """1.0 for one reasoning block, one answer block and nothing else, else 0.0.

    trainer = GRPOTrainer(model, [correctness_reward, strict_format_reward], args, dataset)
    """
    return [float(reading.is_well_formed(text_of(c))) for c in completions]


@reward(role="format")
def incremental_format_reward(completions, **columns) -> list[float]:
    """0.25 for each of the four tags in place, counted from the first: 0.0 to 1.0."""
    return [0.25 * tags_in_place(text_of(c)) for c in completions]


def tags_in_place(text: str) -> int:
    """The number of tags in place, from the first: each once, in order, with text between."""
    end = 0
    for count, tag in enumerate(TAGS):
        start = text.find(tag, end)
        empty = tag.startswith("</") and not text[end:start].strip()
        if text.count(tag) != 1 or start < 0 or empty:
            return count
        end = start + len(tag)
    return len(TAGS)


def overlong(max_length: int | str, cache: int | None = None) -> RewardFunction:
    """DAPO's penalty (arXiv 2503.14476, eq. 13): 0 up to max_length - cache, then down to -1."""
    if not re.fullmatch("[1-9][0-9]{0,8}", str(max_length)):
        raise WorkbookError(f"a length of {max_length!r}: give a whole number from 1 up")
    limit = int(max_length)

    @reward(role="length")
    def overlong_reward(completions, completion_ids=None, **columns):
        from trl.rewards.other_rewards import get_soft_overlong_punishment  # after Unsloth

        tokens = completion_ids or [text_of(c).split(None, limit) for c in completions]  # words
        return get_soft_overlong_punishment(limit, cache or max(1, limit // 5))(tokens)

    return overlong_reward


_MADE = (correctness_reward, strict_format_reward, incremental_format_reward, overlong)
# Name -> a reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {name_of(made).removesuffix("_reward"): made for made in _MADE}
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
