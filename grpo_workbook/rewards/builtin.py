"""The rewards that the chapters use: right answers, their form, and their length.

`correctness_reward` reads the answer block of the course's form and `get_answer_reward` any other
mark. The two format rewards judge the tags, and `get_overlong_reward` makes DAPO's penalty.
`specs.py` gives them the names of the command line.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.answers import (
    MARKS,
    TAGS,
    agreed,
    is_correct,
    is_well_formed,
    marked_answers,
    tagged_answer,
    without_thought,
)
from grpo_workbook.rewards.contract import (
    Completion,
    RewardFunction,
    makes_reward,
    reward,
    text_of,
)

__all__ = [
    "correctness_reward",
    "get_answer_reward",
    "get_overlong_reward",
    "incremental_format_reward",
    "strict_format_reward",
    "tags_in_place",
]


@reward(role="correctness", columns=("answer",), answers="number")
def correctness_reward(
    completions: Sequence[Completion],
    answer: Sequence[str | None],
    prompts: Sequence[Any] | None = None,
    **columns: Any,
) -> list[float | None]:
    """1.0 if the only answer block holds exactly the reference, else 0.0; None if there is none.

    trainer = GRPOTrainer(model, [correctness_reward, strict_format_reward], args, dataset)

    `completions` are texts or chats, and `answer` is the column of reference answers, as text.
    Words of `prompts` may be units in the answers. Raises WorkbookError for a reference that is no
    number.
    """
    prompts = prompts or [""] * len(completions)
    rewards = []
    for completion, reference, prompt in zip(completions, answer, prompts, strict=True):
        if reference is None:
            rewards.append(None)  # TRL leaves the reward out for this row
            continue
        prediction = tagged_answer(text_of(completion))
        rewards.append(float(is_correct(prediction, reference, prompt)))
    return rewards


@makes_reward
def get_answer_reward(
    column: str = "solution", marker: str | re.Pattern = "\\boxed{}", name: str | None = None
) -> RewardFunction:
    """Make a correctness reward for a TRL script: 1.0 if the marked answer is the column's.

        right = get_answer_reward("solution", marker="####")  # a column of your dataset
        trainer = GRPOTrainer(model, reward_funcs=[right], train_dataset=dataset)

    `marker` is "\\boxed{}", "####", "<answer>", or a regular expression with one group, such as
    r'"answer":\\s*"(.*?)"' for an answer in JSON. Several marked answers that differ count as none,
    and earn 0.0; a row without a reference gets None. The reference is the last marked answer of
    the column, or else all of its text. Numbers are compared as numbers (1,000.0 is 1000),
    everything else as text. `name` is the name in the log, "solution_answer_reward" if it is left
    out.

    Raises WorkbookError for a pattern with another number of groups, and, when it is called, if
    the dataset has no such column.
    """
    find_answers = _finder(marker)  # once: it may compile a pattern

    @reward(role="correctness", columns=(column,))
    def marked_answer_reward(
        completions: Sequence[Completion], prompts: Sequence[Any] | None = None, **columns: Any
    ) -> list[float | None]:
        prompts = prompts or [""] * len(completions)
        rewards = []
        for completion, solution, prompt in zip(completions, columns[column], prompts, strict=True):
            reference = _reference_of(solution, find_answers)
            if not reference:
                rewards.append(None)  # TRL leaves the reward out for this row
                continue
            prediction = agreed(find_answers(text_of(completion)))
            rewards.append(float(is_correct(prediction, reference, prompt, or_text=True)))
        return rewards

    marked_answer_reward.__name__ = name or f"{column}_answer_reward"
    return marked_answer_reward


def _reference_of(solution: Any, find_answers: Callable[[str], list[str]]) -> str:
    """The last marked answer of a solution, or else all of it; "" if there is none."""
    if solution is None:
        return ""
    text = str(solution)
    marked = find_answers(text)
    if marked:
        text = marked[-1]  # a worked solution may mark its steps too
    return text.strip()


def _finder(marker: str | re.Pattern) -> Callable[[str], list[str]]:
    """The function that finds all answers with a marker of `get_answer_reward` in a text."""
    if isinstance(marker, str) and marker in MARKS:
        return functools.partial(marked_answers, mark=marker)
    pattern = re.compile(marker)
    if pattern.groups != 1:
        raise WorkbookError(f"the marker {marker!r} has {pattern.groups} groups: give it exactly 1")
    return pattern.findall


@reward(role="format")
def strict_format_reward(completions: Sequence[Completion], **columns: Any) -> list[float]:
    """1.0 for one reasoning block, one answer block and nothing else, else 0.0.

    `completions` are texts or chats.

    trainer = GRPOTrainer(model, [correctness_reward, strict_format_reward], args, dataset)
    """
    return [float(is_well_formed(text_of(completion))) for completion in completions]


@reward(role="format")
def incremental_format_reward(completions: Sequence[Completion], **columns: Any) -> list[float]:
    """0.25 for each of the four tags in place, counted from the first: 0.0 to 1.0.

    `completions` are texts or chats.
    """
    return [0.25 * tags_in_place(text_of(completion)) for completion in completions]


def tags_in_place(text: str) -> int:
    """The number of tags in place, from the first: each once, in order, with text between.

    Tags in a thought at the beginning do not count.
    """
    text = without_thought(text)
    end = 0
    for count, tag in enumerate(TAGS):
        start = text.find(tag, end)
        if start < 0 or text.count(tag) != 1:
            return count
        # An empty block counts for nothing: else two tags earn as much as an answer.
        if tag.startswith("</") and not text[end:start].strip():
            return count
        end = start + len(tag)
    return len(TAGS)


@makes_reward
def get_overlong_reward(max_length: int | str, cache: int | None = None) -> RewardFunction:
    """Make DAPO's penalty (arXiv 2503.14476, eq. 13): 0 up to max_length - cache, then down to -1.

    Both are numbers of tokens; `cache` is a fifth of `max_length` if it is left out. The penalty is
    -1 from `max_length` on. Raises WorkbookError if `max_length` is no whole number from 1 up.
    """
    if not re.fullmatch("[1-9][0-9]{0,8}", str(max_length)):
        raise WorkbookError(f"a length of {max_length!r}: give a whole number from 1 up")
    limit = int(max_length)
    soft_limit = cache or max(1, limit // 5)

    @reward(role="length")
    def overlong_reward(
        completions: Sequence[Completion], completion_ids: Sequence, **columns: Any
    ) -> list[float | None]:
        # Imported when called: TRL must come after Unsloth.
        from trl.rewards.other_rewards import get_soft_overlong_punishment

        return get_soft_overlong_punishment(limit, soft_limit)(completion_ids)

    return overlong_reward
