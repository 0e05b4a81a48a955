"""Reward functions in TRL's contract, by name and weight; and how to check, join and load them.

The contract: completions and the dataset's columns come in as lists, one float per completion goes
out, or None where the reward does not apply. A completion is a text, or with chat prompts
`[{"role": "assistant", "content": text}]`. A function's `__name__` names its metric in the log;
`@reward` says what it judges.

Every reward is unit-scaled, 0 to 1, a penalty -1 to 0; what it counts is said apart, by its weight.
None swallows an error: a broken reference answer raises.
"""

import difflib
import functools
import importlib.util
import inspect
import math
import re
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence, Set
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grpo_workbook.answers import TAGS, is_correct, is_well_formed, read_answer, tagged_answer
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable

Completion = str | list[dict[str, str]]
RewardFunction = Callable[..., list[float | None]]

WINDOW = 20_000  # characters of a text that the rewards for how it is written read
UNWANTED = tuple(
    "as an ai|as a language model|i cannot|i apologize|sure!|certainly!|great question|"
    "let me know if|i hope this helps|the answer could be".split("|")
)

# ------------------------------------------------------------------ the contract


def reward(role: str | None = None, columns: Sequence[str] = (), answers: str | None = None):
    """Decorator: say what a reward judges, so that no tool guesses it from a name.

    `role`, for the diagnosis, is "correctness", "format", "length", "style" or your own word;
    `columns` are those that the data must have; answers="number" refuses answers that are none.
    """

    def mark(function: Any) -> Any:
        function.role, function.columns, function.answers = role, tuple(columns), answers
        return function

    return mark


def name_of(function: Callable) -> str:
    """The name of a reward function in the log; a functools.partial has that of what it wraps."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def plain_values(name: str, values: Any, n: int) -> list[float | None]:
    """What a reward gave, as floats. Raises WorkbookError for what breaks the contract."""
    try:
        if isinstance(values, Mapping | Set) or any(isinstance(v, str) for v in values):
            raise TypeError("a dict would give its keys")
        plain = [None if v is None else float(v) for v in values]
        if len(plain) == n and all(v is None or math.isfinite(v) for v in plain):
            return plain
    except (TypeError, ValueError, OverflowError):
        pass
    raise WorkbookError(
        f"{name} broke the contract: {n} completions in, and not {n} finite numbers or None out"
    )


def text_of(completion: Completion) -> str:
    """The assistant's text of a completion, whichever of TRL's forms it has."""
    if isinstance(completion, str):
        return completion
    try:
        contents = [m.get("content") or "" for m in completion if m["role"] == "assistant"]
        blocks = [b for c in contents for b in ([c] if isinstance(c, str) else c)]
        return "".join(b if isinstance(b, str) else b["text"] for b in blocks)
    except (TypeError, KeyError, AttributeError):
        raise WorkbookError(
            f"the completion {str(completion)[:80]!r} is no text and no list of messages"
        ) from None


def judged(completions: Sequence, answer: Sequence | None, judge: Callable[[list], list]) -> list:
    """What `judge` gives the (text, reference answer) pairs; None where the reference is None."""
    if answer is None or isinstance(answer, str) or len(completions) != len(answer):
        given = "none" if answer is None else repr(answer)[:80]
        raise WorkbookError(
            f"this reward needs the column 'answer' with a list of {len(completions)} reference "
            f"answers, one for each completion: it got {given}"
        )
    pairs = [(text_of(c), a) for c, a in zip(completions, answer, strict=True)]
    values = iter(judge([pair for pair in pairs if pair[1] is not None]))
    return [None if gold is None else next(values) for _, gold in pairs]


# ------------------------------------------------------------------ the answer and the form


@reward(role="correctness", columns=("answer",), answers="number")
def correctness_reward(completions, answer=None, **columns) -> list[float | None]:
    """1.0 where the only answer block holds exactly the reference number. Two answers are none."""
    return judged(
        completions,
        answer,
        lambda pairs: [float(is_correct(tagged_answer(text), gold)) for text, gold in pairs],
    )


@reward(role="format")
def integer_answer_reward(completions, **columns) -> list[float]:
    """1.0 where the only answer block holds a whole number, right or not, else 0.0."""
    numbers = [read_answer(tagged_answer(text_of(c)) or "") for c in completions]
    return [float(n is not None and n.denominator == 1) for n in numbers]


@reward(role="format")
def strict_format_reward(completions, **columns) -> list[float]:
    """1.0 for one reasoning block, one answer block and nothing else, else 0.0."""
    return [float(is_well_formed(text_of(c))) for c in completions]


@reward(role="format")
def soft_format_reward(completions, **columns) -> list[float]:
    """1.0 for one filled reasoning block, then one filled answer block, whatever stands around."""
    return [float(tags_in_place(text_of(c)) == len(TAGS)) for c in completions]


@reward(role="format")
def incremental_format_reward(completions, **columns) -> list[float]:
    """0.25 for each of the four tags that is in place, counted from the first: 0.0 to 1.0.

    Text behind the last tag costs nothing here, so that it can never drown the other rewards.
    """
    return [0.25 * tags_in_place(text_of(c)) for c in completions]


def tags_in_place(text: str) -> int:
    """How many of the four tags are in place, from the first on.

    One is, when it stands exactly once, all tags before it are in place, and a block that it closes
    is not empty. So each step towards the form pays; leaving out, repeating or reversing does not.
    """
    count, end = 0, 0
    for tag in TAGS:
        start = text.find(tag, end)
        closes = tag.startswith("</")
        if text.count(tag) != 1 or start < 0 or (closes and not text[end:start].strip()):
            break
        count, end = count + 1, start + len(tag)
    return count


# What the course's main run uses. The weights go to GRPOConfig(reward_weights=...), in this order.
REWARDS = (correctness_reward, strict_format_reward, incremental_format_reward)
REWARD_WEIGHTS = (2.0, 0.5, 0.5)

# ------------------------------------------------------------------ how a text is written
# Alone, each can be earned without any answer: keep their weights small beside correctness.


def _tokens(completions: Sequence[Completion], ids: Sequence | None, most: int) -> Sequence:
    """The token ids that TRL hands over; without them words stand for tokens, a few over `most`."""
    return ids if ids is not None else [text_of(c).split(None, most + 1) for c in completions]


def _whole(value: int | str, what: str) -> int:
    number = int(value) if str(value).isdecimal() and len(str(value)) < 10 else 0
    if number < 1:
        raise WorkbookError(f"{what} of {value!r}: give a whole number from 1 up")
    return number


def length(target: int | str) -> RewardFunction:
    """A reward: 1.0 at the target length, falling evenly to 0.0 at nothing and at twice of it."""
    target = _whole(target, "a target length")

    @reward(role="length")
    def length_reward(completions, completion_ids=None, **columns):
        lengths = map(len, _tokens(completions, completion_ids, 2 * target))
        return [max(0.0, 1.0 - abs(n - target) / target) for n in lengths]

    return length_reward


def overlong(max_length: int | str, cache: int | None = None) -> RewardFunction:
    """A penalty, -1 to 0: TRL's soft overlong punishment (DAPO, arXiv 2503.14476, equation 13).

    0 up to max_length - cache (a fifth unless given), falling evenly to -1 at max_length. TRL is
    imported at the first call: Unsloth must have come before it.
    """
    max_length = _whole(max_length, "a length")
    cache = max(1, max_length // 5) if cache is None else cache

    @reward(role="length")
    def overlong_reward(completions, completion_ids=None, **columns):
        from trl.rewards.other_rewards import get_soft_overlong_punishment

        tokens = _tokens(completions, completion_ids, max_length)
        return get_soft_overlong_punishment(max_length, cache)(tokens)

    return overlong_reward


def repetition(n: int | str = 4) -> RewardFunction:
    """A penalty, -1 to 0: TRL's, minus the rate of n-grams that stood before in the text.

    It is given words: n-grams of tokens recur in right solutions too (-0.14 in the course's own).
    """
    n = _whole(n, "n-grams")

    @reward(role="style")
    def repetition_reward(completions, **columns):
        from trl.rewards.other_rewards import get_repetition_penalty_reward

        words = [text_of(c)[-WINDOW:].lower().split() for c in completions]
        return get_repetition_penalty_reward(n)(words)

    return repetition_reward


def style(unwanted: Sequence[str] = UNWANTED, cost: float = 0.5) -> RewardFunction:
    """A penalty, -1 to 0: minus `cost` for each different unwanted phrase. Case does not count."""
    phrases = [p.lower() for p in unwanted if p]

    @reward(role="style")
    def style_reward(completions, **columns):
        texts = [text_of(c)[:WINDOW].lower() for c in completions]
        return [0.0 - min(1.0, cost * sum(p in text for p in phrases)) for text in texts]

    return style_reward


_EQUATION = re.compile(  # 6*7=42; a digit first, to skip to; possessive: nothing is read twice
    r"(\d(?<![\d.+*/=x×-]\d)(?<![-+*/x×] \d)\d{0,11}+(?:\.\d{1,6}+)?+) ?([-+*/x×]) ?"
    r"(\d{1,12}+(?:\.\d{1,6}+)?+) ?= ?(-?\d{1,12}+(?:\.\d{1,6}+)?+)(?!\d|\.\d)",
    re.ASCII,
)


def reasoning_steps(target: int | str = 2) -> RewardFunction:
    """A reward: the different true equations ("6*7=42") in the reasoning, of `target`, at most 1.0.

    Of two numbers each. Connecting words earn nothing, nor does a false equation, the same one in
    other writing (2+3=5, 3 + 2 = 5.0), or one without work (5+0=5, 1*1=1).
    """
    target = _whole(target, "a target")

    def steps(text: str) -> int:
        inside, closed, _ = text.partition(TAGS[0])[2].partition(TAGS[1])
        written = {m.groups() for m in _EQUATION.finditer(inside[:WINDOW] if closed else "")}
        return len({_worked_out(*equation) for equation in written} - {None})

    @reward(role="reasoning")
    def reasoning_steps_reward(completions, **columns):
        return [min(1.0, steps(text_of(c)) / target) for c in completions]

    return reasoning_steps_reward


@functools.lru_cache(maxsize=4096)  # the completions of a group repeat each other's steps
def _worked_out(left: str, sign: str, right: str, result: str) -> tuple | None:
    """What tells a true equation from others; None for a false one, and where nothing is done."""
    a, b = Fraction(left), Fraction(right)
    if 0 in (a, b) or {a, b} == {1} or (1 in (a, b) and sign not in "+-"):
        return None
    value = a + b if sign == "+" else a - b if sign == "-" else a / b if sign == "/" else a * b
    return (value, *sorted((a, b))) if value == Fraction(result) else None


# ------------------------------------------------------------------ several as one


def mean_of(*rewards: RewardFunction) -> RewardFunction:
    """The mean of the rewards that apply: good for several views of one thing, each a bit wrong."""
    return _ensemble("mean", rewards, lambda values: sum(values) / len(values))


def minimum_of(*rewards: RewardFunction) -> RewardFunction:
    """The least of the rewards that apply: all must be satisfied; cheating one gains nothing."""
    return _ensemble("minimum", rewards, min)


def vote_of(*rewards: RewardFunction) -> RewardFunction:
    """1.0 where more than half of the rewards that apply give more than 0.5. A tie is lost."""
    return _ensemble("vote", rewards, lambda v: float(2 * sum(x > 0.5 for x in v) > len(v)))


def _ensemble(kind: str, members: Sequence[RewardFunction], join: Callable) -> RewardFunction:
    if len(members) < 2:
        raise WorkbookError(f"a {kind} of {len(members)} rewards: give at least 2")
    names = [name_of(member) for member in members]

    def ensemble_reward(completions, **columns):
        given = [
            plain_values(name, member(completions=completions, **columns), len(completions))
            for name, member in zip(names, members, strict=True)
        ]
        applying = [[v for v in values if v is not None] for values in zip(*given, strict=True)]
        return [join(values) if values else None for values in applying]

    joined = "_".join(name.removesuffix("_reward") for name in names)
    ensemble_reward.__name__ = f"{kind}_of_{joined}_reward"
    return _joined(ensemble_reward, members)


def _joined(function: Any, members: Sequence) -> Any:
    """Marked with what the members say: the role where all have one, columns and answers of any."""
    roles = {getattr(m, "role", None) for m in members}
    columns = dict.fromkeys(c for m in members for c in getattr(m, "columns", ()))
    answers = next(filter(None, (getattr(m, "answers", None) for m in members)), None)
    function.members = tuple(members)  # which may have a state of their own
    return reward(roles.pop() if len(roles) == 1 else None, tuple(columns), answers)(function)


class AdaptiveWeight:
    """A reward whose weight follows the success rate of another: form may fade once it is mastered.

    Before each batch: weight = at_zero + (at_one - at_zero) * rate; it earns weight * reward. Then
    rate = memory * rate + (1 - memory) * (the rate of `success` over 0.5 in the batch), from 0 on.
    Each call is a batch: do not call it to look. Checkpoints keep its state; in several processes
    each keeps the rate of its own batches. The weight is logged as rewards/NAME/weight.
    """

    members: tuple[RewardFunction, RewardFunction]

    def __init__(self, reward, success, *, at_zero=1.0, at_one=0.0, memory=0.9):
        for name, value in (("at_zero", at_zero), ("at_one", at_one), ("memory", memory)):
            if not 0 <= value <= 1 or (name == "memory" and value == 1):
                raise WorkbookError(f"{name} is {value}: give 0 to 1, and a memory below 1")
        self.at_zero, self.at_one, self.memory, self.rate = at_zero, at_one, memory, 0.0
        self.__name__ = f"adaptive_{name_of(reward)}"
        _joined(self, (reward, success)).role = getattr(reward, "role", None)

    @property
    def weight(self) -> float:
        """The weight of the next batch."""
        return self.at_zero + (self.at_one - self.at_zero) * self.rate

    def __call__(self, completions, **columns) -> list[float | None]:
        weight = self.weight
        if columns.get("log_metric") is not None:
            columns["log_metric"](f"rewards/{self.__name__}/weight", weight)
        values, success = (
            plain_values(name_of(one), one(completions=completions, **columns), len(completions))
            for one in self.members
        )
        if given := [v > 0.5 for v in success if v is not None]:
            rate = sum(given) / len(given)
            self.rate = self.memory * self.rate + (1 - self.memory) * rate
        return [None if v is None else weight * v for v in values]

    def state_dict(self) -> dict:
        """What a checkpoint keeps."""
        return {"rate": self.rate}

    def load_state_dict(self, state: dict) -> None:
        """Go on from `state_dict()`. Raises WorkbookError when it is none."""
        rate = state.get("rate")
        if not isinstance(rate, int | float) or not 0 <= rate <= 1:
            raise WorkbookError(
                f"{rate!r} is no rate of {self.__name__}: give what state_dict() gave"
            )
        self.rate = float(rate)


# ------------------------------------------------------------------ by name, and from files

# A reward, or a factory that takes the text behind "=", as in "overlong=200".
REGISTRY: dict[str, Callable] = {
    "correctness": correctness_reward,
    "integer_answer": integer_answer_reward,
    "strict_format": strict_format_reward,
    "soft_format": soft_format_reward,
    "incremental_format": incremental_format_reward,
    "reasoning_steps": reasoning_steps,
    "length": length,
    "overlong": overlong,
    "repetition": repetition,
    "style": style(),
}
# FILE.py:FUNCTION or NAME or NAME=ARGUMENT, with or without :WEIGHT behind it
_PART = re.compile(r"(?P<call>.+\.py:[^:]*|[^:]*)(?::(?P<weight>[^:]*))?", re.DOTALL)


def parse_rewards(
    spec: str, more: Mapping[str, Callable] | None = None
) -> tuple[list[RewardFunction], list[float]]:
    """(functions, weights) of "name[=argument][:weight],...": reward_funcs and reward_weights.

    FILE.py:FUNCTION[:weight] is a function of your own. A weight is 1 if left out, 0 for a reward
    that shall only be logged. `more` are rewards and factories beside REGISTRY.
    """
    known, functions, weights = {**REGISTRY, **(more or {})}, [], []
    for part in (p.strip() for p in spec.split(",")):
        found = _PART.fullmatch(part)
        if not found or not found["call"].strip():
            raise WorkbookError(f"{part!r} in {spec!r} is no reward: give name[=argument][:weight]")
        call = found["call"].strip()
        functions.append(load_reward(call) if ".py:" in call else _named(call, known))
        weights.append(1.0 if found["weight"] is None else _weight(call, found["weight"]))
    if not any(weights):
        raise WorkbookError(f"every weight in {spec!r} is 0, so nothing would be learned")
    names = [name_of(f) for f in functions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WorkbookError(
            f"two rewards in {spec!r} have the name {twice!r} in the log: give one, or rename yours"
        )
    return functions, weights


def _named(call: str, known: Mapping[str, Callable]) -> RewardFunction:
    name, equals, argument = (x.strip() for x in call.partition("="))
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise WorkbookError(
            f"unknown reward {name!r}: {hint}choose from {', '.join(known)}, or FILE.py:FUNCTION"
        )
    made = known[name]
    if hasattr(made, "role"):
        if equals:
            raise WorkbookError(f"the reward {name!r} takes no argument: leave out ={argument}")
        return made
    try:
        return made(argument) if equals else made()
    except TypeError:
        takes = ", ".join(inspect.signature(made).parameters) or "none"
        raise WorkbookError(f"{call!r} has not the argument ({takes}): {name}=ARGUMENT") from None
    except WorkbookError as error:
        raise WorkbookError(f"{call}: {error}") from None


def _weight(name: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not math.isfinite(weight) or weight < 0:
        raise WorkbookError(
            f"the weight {text!r} of {name!r}: give a number from 0 up (penalties are negative)"
        )
    return weight


def load_reward(where: str) -> RewardFunction:
    """The function FILE.py:FUNCTION. The file is run as any Python is: name only what you trust.

    What it gives is checked at every call; what it raises becomes a WorkbookError that says where.
    """
    file, _, name = where.rpartition(":")
    path = Path(file).expanduser()
    if not path.is_file():
        raise WorkbookError(f"the reward file {file!r} does not exist: name it as FILE.py:FUNCTION")
    names = vars(_run_file(path, path.stat().st_mtime_ns))
    if not inspect.isfunction(function := names.get(name)):
        others = ", ".join(n for n, v in names.items() if inspect.isfunction(v)) or "none"
        raise WorkbookError(f"{readable(path)} has no function {name!r}; it has {others}")

    @functools.wraps(function)  # it brings what @reward says
    def checked(completions, **columns):
        try:
            values = function(completions=completions, **columns)
        except (Exception, SystemExit) as error:
            step = getattr(columns.get("trainer_state"), "global_step", None)
            when = "" if step is None else f" in step {step + 1}"
            raise WorkbookError(
                f"{readable(path)}: {name} failed{when}: {_said(error, path)}. A model writes "
                "anything: let it score every text, and take **kwargs for what it does not use"
            ) from error
        return plain_values(name, values, len(completions))

    marked: Any = checked
    marked.__name__, marked.own = name, path
    return marked


@functools.cache  # a file that was changed since is run again
def _run_file(path: Path, changed: int):
    """The file as a module of its own, which finds its neighbours as a script does."""
    module_name = f"own_rewards_{abs(hash((path, changed)))}"
    spec: Any = importlib.util.spec_from_file_location(module_name, path)
    module = sys.modules[module_name] = importlib.util.module_from_spec(spec)
    sys.path.append(str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise WorkbookError(f"{readable(path)} cannot be run: {_said(error, path)}") from error
    return module


def _said(error: BaseException, path: Path) -> str:
    """What went wrong, with the last line of the user's own file that it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename) == path]
    lines = [error.lineno] if isinstance(error, SyntaxError) else lines
    return f"{type(error).__name__}: {error}" + (f" (line {lines[-1]})" if lines else "")


def try_rewards(functions: Sequence[Callable], rows: Sequence[dict]) -> None:
    """Raise WorkbookError for what a run would end with: a missing column, an own function's fault.

    `rows` are rows of the training data; own functions get made-up completions for them.
    """
    form = "<reasoning>\n1\n</reasoning>\n<answer>\n{}\n</answer>"
    texts = [text for row in rows for text in (form.format(row.get("answer")), "")]
    columns = {key: [row[key] for row in rows for _ in range(2)] for key in rows[0]}
    for function in functions:
        for wanted in getattr(function, "columns", ()):
            if wanted not in columns:
                raise WorkbookError(
                    f"{name_of(function)} wants the column {wanted!r}, and the data has "
                    f"{', '.join(columns)}: rename one, or choose another reward"
                )
        if hasattr(function, "own"):
            call(function, texts, **columns)


def call(
    function: Callable, completions: Sequence[Completion], ids: Sequence | None = None, **columns
) -> list:
    """The rewards outside of a training, with all that TRL gives beside the columns of the data.

    Without `ids`, the tokens, words stand for them. Texts become messages where `prompt` is a chat.
    """
    prompts = columns.pop("prompt", [""] * len(completions))
    chat = any(isinstance(prompt, list) for prompt in prompts)
    return function(
        prompts=prompts,
        completions=[
            [{"role": "assistant", "content": c}] if chat and isinstance(c, str) else c
            for c in completions
        ],
        completion_ids=[text_of(c).split() for c in completions] if ids is None else ids,
        trainer_state=SimpleNamespace(global_step=0, max_steps=1, epoch=0.0, log_history=[]),
        log_extra=lambda *_: None,
        log_metric=lambda *_: None,
        **columns,
    )
