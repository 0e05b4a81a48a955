"""Reward functions in TRL's contract, by name and weight; functions to check, join and load them.

The contract: a reward gets completions and the dataset's columns as lists, and returns one float
per completion, or None if it does not apply. A completion is a text, or with chat prompts
`[{"role": "assistant", "content": text}]`. A function's `__name__` is its name in the log.
Rewards go from 0 to 1, penalties from -1 to 0, and none hides an error.
"""

import contextlib
import functools
import inspect
import math
import re
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from pathlib import Path
from statistics import fmean, median_low
from types import SimpleNamespace
from typing import Any

from grpo_workbook.answers import TAGS, is_correct, is_well_formed, read_answer, tagged_answer
from grpo_workbook.config import nearest
from grpo_workbook.errors import WorkbookError

Completion = str | list[dict[str, str]]
RewardFunction = Callable[..., list[float | None]]


def reward(role: str | None = None, columns: Sequence[str] = (), answers: str | None = None):
    """Decorator: what a reward judges ("correctness", "format", "length", "style" or your own word,
    for the diagnosis), which columns it needs, and whether the answers must be "number"s.
    """

    def mark(function: Any) -> Any:
        function.role, function.columns, function.answers = role, tuple(columns), answers
        return function

    return mark


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


def call(function: Callable, completions: Sequence, ids: Sequence | None = None, **columns) -> list:
    """The checked rewards outside of training, called with everything that TRL would pass."""
    texts = [text_of(c) for c in completions]
    given = {"prompts": columns.pop("prompt", [""] * len(texts))}
    if any(isinstance(prompt, list) for prompt in given["prompts"]):
        completions = [[{"role": "assistant", "content": text}] for text in texts]
    given["completion_ids"] = [text.split() for text in texts] if ids is None else ids
    given |= dict.fromkeys(("log_extra", "log_metric"), lambda *_: None)
    state = SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[])
    return checked(function, completions, trainer_state=state, **given, **columns)


@reward(role="correctness", columns=("answer",), answers="number")
def correctness_reward(completions, answer, prompts=None, **columns) -> list[float | None]:
    """1.0 if the only answer block holds exactly the reference, else 0.0; None if there is none."""
    said = [tagged_answer(text_of(c)) for c in completions]
    rows = zip(said, answer, prompts or [""] * len(said), strict=True)
    return [None if row[1] is None else float(is_correct(*row)) for row in rows]


@reward(role="format")
def integer_answer_reward(completions, **columns) -> list[float]:
    """1.0 if the only answer block holds a whole number, right or wrong, else 0.0."""
    texts = [tagged_answer(text_of(c)) or "" for c in completions]
    numbers = [read_answer(text, question=text) for text in texts]  # with any unit
    return [float(n is not None and n.denominator == 1) for n in numbers]


@reward(role="format")
def strict_format_reward(completions, **columns) -> list[float]:
    """1.0 for one reasoning block, one answer block and nothing else, else 0.0."""
    return [float(is_well_formed(text_of(c))) for c in completions]


@reward(role="format")
def soft_format_reward(completions, **columns) -> list[float]:
    """1.0 for one filled reasoning block, then one filled answer block, with any text around."""
    return [float(tags_in_place(text_of(c)) == len(TAGS)) for c in completions]


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


# Rewards for the form of a text. A completion can earn each of them without any answer, so keep
# their weights small beside correctness. Outside of training they count words instead of tokens.
WINDOW = 20_000  # characters of a text that are read
UNWANTED = (
    "as an ai|as a language model|i cannot|i apologize|sure!|certainly!|great question|"
    "let me know if|i hope this helps|the answer could be"
).split("|")


def _whole(value: int | str, what: str) -> int:
    if not re.fullmatch("0*[1-9][0-9]{0,8}", str(value)):
        raise WorkbookError(f"{what} of {value!r}: give a whole number from 1 up")
    return int(value)


def length(target: int | str) -> RewardFunction:
    """A reward: 1.0 at the target length, falling linearly to 0.0 at length 0 and at twice it."""
    target = _whole(target, "a target length")

    @reward(role="length")
    def length_reward(completions, completion_ids=None, **columns):
        tokens = completion_ids or [text_of(c).split(None, 2 * target) for c in completions]
        return [max(0.0, 1.0 - abs(len(ids) - target) / target) for ids in tokens]

    return length_reward


def overlong(max_length: int | str, cache: int | None = None) -> RewardFunction:
    """A penalty, -1 to 0: TRL's soft overlong punishment (DAPO, arXiv 2503.14476, equation 13).

    0 up to max_length - cache (default: a fifth), then falling linearly to -1 at max_length.
    """
    max_length = _whole(max_length, "a length")

    @reward(role="length")
    def overlong_reward(completions, completion_ids=None, **columns):
        from trl.rewards.other_rewards import get_soft_overlong_punishment  # after Unsloth

        tokens = completion_ids or [text_of(c).split(None, max_length) for c in completions]
        return get_soft_overlong_punishment(max_length, cache or max(1, max_length // 5))(tokens)

    return overlong_reward


def repetition(n: int | str = 4) -> RewardFunction:
    """A penalty, -1 to 0: TRL's, minus the fraction of n-grams that repeat earlier ones.

    It counts words: n-grams of tokens recur in right solutions too (-0.14 in the course's own).
    """
    n = _whole(n, "n-grams")

    @reward(role="style")
    def repetition_reward(completions, **columns):
        from trl.rewards.other_rewards import get_repetition_penalty_reward

        words = [text_of(c)[-WINDOW:].lower().split() for c in completions]
        return get_repetition_penalty_reward(n)(words)

    return repetition_reward


@reward(role="style")
def style_reward(completions, **columns) -> list[float]:
    """A penalty, -1 to 0: -0.5 for each of the UNWANTED phrases in the text."""
    texts = [text_of(c)[:WINDOW].lower() for c in completions]
    return [0.0 - min(1.0, 0.5 * sum(phrase in text for phrase in UNWANTED)) for text in texts]


_N = r"\d{1,12}+(?:\.\d{1,6}+)?+"  # possessive: nothing is read twice
_EQUATION = re.compile(  # 6*7=42, without another sign and number before it
    r"(?a)(\d(?<![\d.+*/x=×-]\d)(?<![-+*/x×] \d)\d{0,11}+(?:\.\d{1,6}+)?+) ?([-+*/x×]) ?"
    rf"({_N}) ?= ?(-?{_N})(?!\d|\.\d)"
)


def reasoning_steps(target: int | str = 2) -> RewardFunction:
    """A reward: distinct true equations ("6*7=42") in the reasoning / `target`, at most 1.0.

    A repeated one (2+3=5, 3 + 2 = 5.0) or one without work (5+0=5) earns nothing.
    """
    target = _whole(target, "a target")

    @reward(role="reasoning")
    def reasoning_steps_reward(completions, **columns):
        blocks = [text_of(c).partition(TAGS[0])[2].partition(TAGS[1]) for c in completions]
        written = [_EQUATION.findall(inside[:WINDOW] if end else "") for inside, end, _ in blocks]
        different = [{_worked_out(*found) for found in set(every)} - {None} for every in written]
        return [min(1.0, len(found) / target) for found in different]

    return reasoning_steps_reward


@functools.lru_cache(maxsize=4096)  # the completions of a group repeat each other's steps
def _worked_out(left: str, sign: str, right: str, result: str) -> tuple | None:
    """A key for a true equation; None for a false one, and for one without work."""
    a, b = Fraction(left), Fraction(right)
    if 0 in (a, b) or {a, b} == {1} or (1 in (a, b) and sign not in "+-"):
        return None
    value = a + b if sign == "+" else a - b if sign == "-" else a / b if sign == "/" else a * b
    return (value, *sorted((a, b))) if value == Fraction(result) else None


def _joined(function: Any, members: Sequence) -> Any:
    """The function marked like its members: their common role, the columns and answers of all."""
    roles = {getattr(m, "role", None) for m in members}
    columns = dict.fromkeys(c for m in members for c in getattr(m, "columns", ()))
    answers = next((m.answers for m in members if getattr(m, "answers", None)), None)
    function.members = members  # they may have a state of their own
    return reward(roles.pop() if len(roles) == 1 else None, tuple(columns), answers)(function)


def _ensemble(kind: str, join: Callable[[list], float], *members: RewardFunction) -> RewardFunction:
    def ensemble_reward(completions, **columns):
        each = [checked(member, completions, **columns) for member in members]
        applying = [[v for v in given if v is not None] for given in zip(*each, strict=True)]
        return [join(values) if values else None for values in applying]

    names = [name_of(member).removesuffix("_reward") for member in members]
    ensemble_reward.__name__ = f"{kind}_of_{'_'.join(names)}_reward"
    return _joined(ensemble_reward, members)


# Each joins rewards into one, over those that apply to a completion. The mean evens out errors,
# cheating one member of a minimum gains nothing, a vote takes more than half.
mean_of = functools.partial(_ensemble, "mean", fmean)
minimum_of = functools.partial(_ensemble, "minimum", min)
vote_of = functools.partial(_ensemble, "vote", lambda values: float(median_low(values) > 0.5))


class AdaptiveWeight:
    """A reward whose weight follows the success rate of another one: form can fade once mastered.

    A batch earns weight * reward, with weight = at_zero + (at_one - at_zero) * rate. After it,
    rate = memory * rate + (1 - memory) * (fraction of the batch with `success` over 0.5), starting
    from 0. Each process keeps the rate of its own batches.
    """

    def __init__(self, reward, success, *, at_zero=1.0, at_one=0.0, memory=0.9):
        if not (0 <= at_zero <= 1 and 0 <= at_one <= 1 and 0 <= memory < 1):
            raise WorkbookError(f"{at_zero=}, {at_one=}, {memory=}: give 0 to 1, memory below 1")
        self.at_zero, self.at_one, self.memory, self.rate = at_zero, at_one, memory, 0.0
        self.__name__, self.members = f"adaptive_{name_of(reward)}", (reward, success)
        _joined(self, self.members).role = getattr(reward, "role", None)

    @property
    def weight(self) -> float:
        """The weight of the next batch."""
        return self.at_zero + (self.at_one - self.at_zero) * self.rate

    def __call__(self, completions, **columns) -> list[float | None]:
        weight = self.weight
        if "log_metric" in columns:
            columns["log_metric"](f"rewards/{self.__name__}/weight", weight)
        values, success = [checked(m, completions, **columns) for m in self.members]
        if given := [v > 0.5 for v in success if v is not None]:
            self.rate = self.memory * self.rate + (1 - self.memory) * fmean(given)
        return [None if v is None else weight * v for v in values]

    def state_dict(self) -> dict:
        """The state for a checkpoint."""
        return {"rate": self.rate}

    def load_state_dict(self, state: dict) -> None:
        """Continue from a `state_dict()`."""
        self.rate = float(state["rate"])


_MADE = (correctness_reward, integer_answer_reward, strict_format_reward, soft_format_reward)
_MADE += (incremental_format_reward, reasoning_steps, length, overlong, repetition, style_reward)
# Name -> a reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {name_of(made).removesuffix("_reward"): made for made in _MADE}
# FILE.py:FUNCTION or NAME or NAME=ARGUMENT, with or without :WEIGHT
_PART = re.compile(
    r"(?s)\s*(.+\.py:[^:]+?|[^:\s][^:]*?)\s*(?::\s*((?:\d+\.?\d*|\.\d+)(?:e-?\d\d?)?)\s*)?"
)


def parse_rewards(spec: str, more: Mapping[str, Callable] | None = None) -> tuple[list, list]:
    """(functions, weights) from "name[=argument][:weight],...": reward_funcs and reward_weights.

    FILE.py:FUNCTION[:weight] is your own function. The default weight is 1; a reward of weight 0
    is only logged. `more` are rewards and factories in addition to REGISTRY.
    """
    functions, weights, known = [], [], {**REGISTRY, **(more or {})}
    for part in spec.split(","):
        if not (found := _PART.fullmatch(part)):
            said = "name[=argument][:weight], the weight from 0 up (penalties are negative)"
            raise WorkbookError(f"{part!r} in {spec!r} is not a reward: give {said}")
        called, weight = found.groups()
        functions.append(load_reward(called) if ".py:" in called else _named(called, known))
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
        which = nearest(name, [*known, "FILE.py:FUNCTION"])
        raise WorkbookError(f"unknown reward {name!r}: {which}")
    if hasattr(known[name], "role"):
        if equals:
            raise WorkbookError(f"the reward {name!r} takes no argument: leave out ={argument}")
        return known[name]
    try:
        return known[name](argument) if equals else known[name]()
    except (TypeError, ValueError) as error:
        raise WorkbookError(f"{called}: {error}") from None


def load_reward(where: str) -> RewardFunction:
    """The function FILE.py:FUNCTION. This runs the file: give only a file that you trust."""
    file, _, name = where.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise WorkbookError(f"the reward file {file!r} does not exist: give FILE.py:FUNCTION")
    functions = _functions_of(path, path.stat().st_mtime_ns)
    if name not in functions:
        raise WorkbookError(f"{path} has no function {name!r}: {nearest(name, functions)}")

    @functools.wraps(functions[name])  # also copies the marks of @reward
    def own_reward(completions, **columns):
        step = getattr(columns.get("trainer_state"), "global_step", 0) + 1
        with _blamed(path, f": {name} failed in step {step}"):
            return checked(functions[name], completions, **columns)

    vars(own_reward)["own"] = path
    return own_reward


@functools.cache  # a file runs once for all its rewards, and again only after a change
def _functions_of(path: Path, changed: int) -> dict[str, Callable]:
    sys.path.append(str(path.resolve().parent))  # so that it can import its neighbours
    with _blamed(path, " cannot be run"):
        found = runpy.run_path(str(path))
    return {name: value for name, value in found.items() if inspect.isfunction(value)}


@contextlib.contextmanager
def _blamed(path: Path, what: str):
    """Turn an error from the user's file into a WorkbookError with the file's last line in it."""
    try:
        yield
    except WorkbookError:
        raise
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)  # of a SyntaxError
        place = f"line {line}" if line else "add **kwargs to its arguments"
        said = f"{type(error).__name__}: {error} ({place})"
        raise WorkbookError(f"{path}{what}: {said}") from error


def try_rewards(functions: Sequence[Callable], rows: Sequence[dict]) -> None:
    """Raise WorkbookError if a column is missing, or a user's function fails on made-up texts."""
    form = "<reasoning>\n1\n</reasoning>\n<answer>{}</answer>"
    texts = [text for row in rows for text in (form.format(row.get("answer")), "")]
    columns = {key: [row[key] for row in rows for _ in range(2)] for key in rows[0]}
    for function in functions:
        if missing := set(getattr(function, "columns", ())) - columns.keys():
            said = f"but the data has {', '.join(columns)}: rename one, or choose another reward"
            raise WorkbookError(f"{name_of(function)} needs the column {missing.pop()!r}, {said}")
        if hasattr(function, "own"):
            call(function, texts, **columns)
