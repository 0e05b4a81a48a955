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
    """0.125 for each tag that appears exactly once, in its place: at most 0.5, never negative.

    A closing tag counts only behind its opening tag with something between them, so that empty, reversed or repeated
    tags earn next to nothing.
    """
    return [0.125 * _tags_in_place(text_of(c)) for c in completions]


def _tags_in_place(text: str) -> int:
    """How many of the four tags stand exactly once and in order."""
    count, end = 0, 0
    for opening, closing in (TAGS[:2], TAGS[2:]):
        start = text.find(opening)
        if text.count(opening) != 1 or start < end:
            continue
        count, end = count + 1, start + len(opening)
        stop = text.find(closing)
        inside = text[end:stop]
        if text.count(closing) == 1 and stop > end and inside.strip() and not any(tag in inside for tag in TAGS):
            count, end = count + 1, stop + len(closing)
    return count


REWARDS = (correctness_reward, strict_format_reward, incremental_format_reward)
MAX_REWARD = 3.0
