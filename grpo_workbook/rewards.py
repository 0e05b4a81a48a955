"""Reward functions in TRL's contract: is the answer right, and does it have the form?

The contract: completions and the dataset's columns come in as lists, one float per completion goes out, or None where
the reward does not apply. A completion is a text, or with chat prompts `[{"role": "assistant", "content": text}]`. The
function's `__name__` names its metric in the log.

Every reward here is unit-scaled: 0 to 1, a penalty -1 to 0. What it counts is said apart, by its weight
(`GRPOConfig(reward_weights=...)`). None swallows an error: a broken reference answer raises. Rewards for how a text is
written are in `shaping.py`; choosing, weighing and testing them is in `rubric.py`.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from grpo_workbook.answers import (
    FORMS,
    TAGS,
    extract_answer,
    is_correct,
    is_well_formed,
    read_answer,
    tagged_answer,
)
from grpo_workbook.errors import WorkbookError

if TYPE_CHECKING:
    from grpo_workbook.reward_lab.symbolic import SymbolicChecker

Completion = str | list[dict[str, str]]
RewardFunction = Callable[..., list[float | None]]

MAX_JSON = 10_000  # characters


def name_of(function: RewardFunction) -> str:
    """The name of a reward function in the log; a functools.partial has that of what it wraps."""
    function = getattr(function, "func", function)
    return getattr(function, "__name__", type(function).__name__)


def plain_values(name: str, values: Sequence, n: int) -> list[float | None]:
    """What a reward function gave, in Python's numbers: TRL takes NumPy's too. Raises WorkbookError for what breaks the
    contract.
    """
    try:
        plain = [
            None if v is None else v if type(v) in (int, bool) and math.isfinite(v) else float(v)
            for v in values
        ]
        text = isinstance(values, Mapping | Set) or any(
            isinstance(v, str) for v in values
        )  # a dict gives its keys
    except (TypeError, ValueError, OverflowError):
        plain, text = [], True
    if text or len(plain) != n or not all(v is None or math.isfinite(v) for v in plain):
        raise WorkbookError(
            f"{name} broke the contract: {n} completions in, and not {n} finite numbers or None out"
        )
    return plain


def text_of(completion: Completion) -> str:
    """The assistant's text of a completion, whichever of TRL's two forms it has."""
    if isinstance(completion, str):
        return completion
    try:
        return "".join(_content(m.get("content")) for m in completion if m["role"] == "assistant")
    except (TypeError, KeyError, AttributeError):
        raise WorkbookError(
            f"the completion {str(completion)[:80]!r} is no text and no list of messages with role and content"
        ) from None


def _content(content: str | list[dict] | None) -> str:
    """A message's text: as it stands, or in blocks such as {"type": "text", "text": ...}."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(block["text"] for block in content if block["type"] == "text")


def _judged(
    completions: Sequence[Completion],
    answer: Sequence[str | None] | None,
    judge: Callable[[list], list],
) -> list[float | None]:
    """What `judge` gives the (text, reference answer) pairs, and None where the reference is None: does not apply."""
    if answer is None:
        raise WorkbookError(
            "this reward needs the column 'answer' with the reference answers: the data has none"
        )
    if isinstance(answer, str):
        raise WorkbookError(
            f"answer is the text {answer[:80]!r}: give a list with one for each completion"
        )
    if len(completions) != len(answer):
        raise WorkbookError(f"{len(completions)} completions but {len(answer)} reference answers")
    pairs = [(text_of(c), a) for c, a in zip(completions, answer, strict=True)]
    values = iter(judge([pair for pair in pairs if pair[1] is not None]))
    return [None if gold is None else next(values) for _, gold in pairs]


# ------------------------------------------------------------------ the answer


def correctness_reward(
    completions: Sequence[Completion], answer: Sequence[str | None] | None = None, **columns
) -> list[float | None]:
    """1.0 where the only answer block holds exactly the reference number, else 0.0. Two answers are no answer."""

    def judge(pairs):
        return [1.0 if is_correct(tagged_answer(text), gold) else 0.0 for text, gold in pairs]

    return _judged(completions, answer, judge)


def integer_answer_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 where the only answer block holds a whole number, right or not, else 0.0."""
    return [1.0 if _is_whole(tagged_answer(text_of(c))) else 0.0 for c in completions]


def _is_whole(answer: str | None) -> bool:
    number = None if answer is None else read_answer(answer)
    return number is not None and number.denominator == 1


def symbolic_correctness(
    checker: "SymbolicChecker", forms: Sequence[str] = FORMS, max_failed: float = 0.5
) -> RewardFunction:
    """A reward: 1.0 where the final answer equals the reference as mathematics (numbers, LaTeX), else 0.0.

    None where the checker could not say: it timed out, or failed. When more than `max_failed` of a batch is like that,
    raises WorkbookError with the counts, for then the number would mean nothing.
    """

    def judge(pairs):
        outcomes = checker.check([(extract_answer(text, forms), gold) for text, gold in pairs])
        failed = [o for o in outcomes if not o.judged]
        if failed and len(failed) > max_failed * len(outcomes):
            late = sum(o.verdict == "timeout" for o in failed)
            raise WorkbookError(
                f"{len(failed)} of {len(outcomes)} completions could not be judged ({late} timeouts, "
                f"{len(failed) - late} errors; the first: {failed[0].reason}): mend the reference answers, raise "
                f"time_limit ({checker.time_limit:g} s), or allow more with max_failed ({max_failed:g})"
            )
        return [(1.0 if o.verdict == "right" else 0.0) if o.judged else None for o in outcomes]

    def symbolic_correctness_reward(completions, answer=None, **columns):
        """1.0 where the final answer equals the reference as mathematics, else 0.0; None where nothing can be said."""
        return _judged(completions, answer, judge)

    return symbolic_correctness_reward


def json_schema(schema: dict) -> RewardFunction:
    """A reward: 1.0 for JSON that follows the schema, 0.25 for JSON that breaks it, 0.0 for no JSON.

    Reads the only answer block, or where there is none the whole text, of at most 10,000 characters. The schema is
    checked first (WorkbookError); references to other documents are not fetched.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise WorkbookError(f"the schema is no JSON schema: {error.message}") from None
    validator = Draft202012Validator(schema, registry=Registry())
    if isinstance(schema, dict):
        resource = Resource.from_contents(schema, default_specification=DRAFT202012)
        try:
            _resolve(resource, Registry().resolver_with_root(resource))
        except Unresolvable as error:
            raise WorkbookError(
                f"the schema refers to {error.ref!r}, which it does not hold: other documents are not fetched"
            ) from None

    def judge(text: str) -> float:
        inside = tagged_answer(text)
        text = text.strip() if inside is None else inside
        if len(text) > MAX_JSON:
            return 0.0
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except (ValueError, RecursionError):  # no JSON, or nested beyond any use
            return 0.0
        try:
            return 1.0 if validator.is_valid(value) else 0.25
        except (
            RecursionError,
            ArithmeticError,
        ):  # too deep, or a number that no float can hold against multipleOf
            return 0.25

    def json_schema_reward(completions, **columns):
        """1.0 for JSON that follows the schema, 0.25 for JSON that breaks it, 0.0 for no JSON."""
        return [judge(text_of(c)) for c in completions]

    return json_schema_reward


def _resolve(resource, resolver) -> None:
    """Raise Unresolvable for a reference in the schema that leads nowhere, instead of at the first completion."""
    if isinstance(resource.contents, dict) and isinstance(resource.contents.get("$ref"), str):
        resolver.lookup(resource.contents["$ref"])
    for part in resource.subresources():
        _resolve(part, resolver.in_subresource(part))


def _no_constant(name: str):
    raise ValueError(f"{name} is no JSON")


# ------------------------------------------------------------------ the form


def strict_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 where the completion is one reasoning block, one answer block and nothing else, else 0.0."""
    return [1.0 if is_well_formed(text_of(c)) else 0.0 for c in completions]


def soft_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """1.0 where one filled reasoning block and then one filled answer block occur, whatever stands around, else 0.0."""
    return [1.0 if _tags_in_place(text_of(c)) == len(TAGS) else 0.0 for c in completions]


def incremental_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """0.25 for each of the four tags that is in place, counted from the first: 0.0 to 1.0.

    A tag is in place when it stands exactly once, all tags before it are in place, and a block that it closes is not
    empty. So each step towards the form pays, and leaving a part out, repeating or reversing tags does not. Text behind
    the last tag costs nothing here, so that it can never drown the rest: it costs the strict format reward.
    """
    return [0.25 * _tags_in_place(text_of(c)) for c in completions]


def _tags_in_place(text: str) -> int:
    """How many of the four tags are in place, from the first on."""
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
