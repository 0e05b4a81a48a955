"""Reward functions in TRL's contract: completions and dataset columns in, one float per completion out.

A completion is a text, or with chat prompts `[{"role": "assistant", "content": text}]`. The function's `__name__`
names its metric in the log. None of these swallows an error: a broken reference answer raises.
"""

from collections.abc import Sequence

from grpo_workbook.answers import TAGS, is_well_formed, same_number, tagged_answer

Completion = str | list[dict[str, str]]


def text_of(completion: Completion) -> str:
    """The assistant's text of a completion, whichever of TRL's two forms it has."""
    if isinstance(completion, str):
        return completion
    return "".join(message["content"] for message in completion if message["role"] == "assistant")


def correctness_reward(completions: Sequence[Completion], answer: Sequence[str], **columns) -> list[float]:
    """2.0 where the only answer block holds exactly the reference number, else 0.0. Two answers are no answer."""
    if len(completions) != len(answer):
        raise ValueError(f"{len(completions)} completions but {len(answer)} reference answers")
    return [2.0 if same_number(tagged_answer(text_of(c)), a) else 0.0 for c, a in zip(completions, answer, strict=True)]


def strict_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """0.5 where the completion is one reasoning block, one answer block and nothing else, else 0.0."""
    return [0.5 if is_well_formed(text_of(c)) else 0.0 for c in completions]


def incremental_format_reward(completions: Sequence[Completion], **columns) -> list[float]:
    """0.125 for each of the four tags that is in place, counted from the first: at most 0.5, never negative.

    A tag is in place when it stands exactly once, all tags before it are in place, and a block that it closes is not
    empty. So each step towards the form pays, and leaving a part out, repeating or reversing tags does not.
    """
    return [0.125 * _tags_in_place(text_of(c)) for c in completions]


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


REWARDS = (correctness_reward, strict_format_reward, incremental_format_reward)
MAX_REWARD = 3.0
