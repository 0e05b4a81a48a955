"""The rewards that every chapter uses: right answers, their format, their length."""

import functools
import json
import re
from collections.abc import Callable

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import answers as reading
from grpo_workbook.rewards.answers import TAGS, agreed, is_correct, tagged_answer
from grpo_workbook.rewards.contract import RewardFunction, reward, text_of


@reward(role="correctness", columns=("answer",), answers="number")
def correctness_reward(completions, answer, prompts=None, **columns) -> list[float | None]:
    """1.0 if the only answer block holds exactly the reference, else 0.0; None if there is none.

    trainer = GRPOTrainer(model, [correctness_reward, strict_format_reward], args, dataset)
    """
    said = [tagged_answer(text_of(c)) for c in completions]
    rows = zip(said, answer, prompts or [""] * len(said), strict=True)
    return [None if row[1] is None else float(is_correct(*row)) for row in rows]


def get_answer_reward(
    column: str = "solution", marker: str | re.Pattern = "\\boxed{}", name: str | None = None
) -> RewardFunction:
    """A correctness reward for a TRL script: 1.0 if the marked answer is exactly the column's.

        right = get_answer_reward("solution", marker="####")  # a column of your dataset
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


def get_overlong_reward(max_length: int | str, cache: int | None = None) -> RewardFunction:
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
