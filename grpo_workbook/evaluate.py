"""Measure a policy on held-out problems: strict and lenient accuracy, intervals, a paired test, what it wrote.

Strict: well-formed and exactly right. Lenient: the kindly read answer is right, whatever the form. Greedy is what
the policy holds most likely; sampled (temperature 1) is what GRPO trains.

Where the reference answers are numbers, right is the same number. Where they are texts (answers="text"), it is the same
text but for case and white space, or the same mathematics (symbolic.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_workbook.answers import (
    extract_answer,
    is_leniently_right,
    is_strictly_right,
    is_well_formed,
    lenient_answer,
    tagged_answer,
)
from grpo_workbook.errors import WorkbookError
from grpo_workbook.generation import generate
from grpo_workbook.intervals import accuracy, wilson_interval
from grpo_workbook.intervals import paired_p_value as paired_p_value
from grpo_workbook.reward_lab.symbolic import SymbolicChecker

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Scores:
    """One completion per problem, and what each was worth: lists of one length, in the problems' order."""

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]
    unjudged: int = (
        0  # texts that the symbolic checker could not judge in time: they count as wrong
    )

    @property
    def n(self) -> int:
        """How many problems."""
        return len(self.completions)


def score(completions: Sequence[str], references: Sequence[str], answers: str = "number") -> Scores:
    """Judge completions against their reference answers, which are numbers or, with answers="text", texts.

    Raises WorkbookError for another kind of answers, and for a reference that should be a number and is none;
    ValueError when there are not as many references as completions.
    """
    if answers not in ("number", "text"):
        raise WorkbookError(f"unknown kind of answers {answers!r}: choose number or text")
    pairs = list(zip(completions, references, strict=True))
    well_formed = [is_well_formed(c) for c in completions]
    if answers == "number":
        strict, lenient = (
            [right(c, a) for c, a in pairs] for right in (is_strictly_right, is_leniently_right)
        )
        return Scores(list(completions), strict, lenient, well_formed)
    given = [
        tagged_answer(c) if ok else None for c, ok in zip(completions, well_formed, strict=True)
    ]
    kind = [extract_answer(c) or lenient_answer(c) for c in completions]
    verdicts = _judge_texts(
        {pair for found in (given, kind) for pair in zip(found, references, strict=True)}
    )
    strict, lenient = (
        [verdicts[p] == "right" for p in zip(found, references, strict=True)]
        for found in (given, kind)
    )
    unjudged = sum(
        verdicts[p] not in ("right", "wrong") for p in zip(kind, references, strict=True)
    )
    return Scores(list(completions), strict, lenient, well_formed, unjudged)


def _judge_texts(pairs: set[tuple[str | None, str]]) -> dict[tuple[str | None, str], str]:
    """The verdict on each (answer, reference): "right", "wrong", or "timeout" or "error" where none can be given."""

    def plain(text: str) -> str:
        return " ".join(text.casefold().split())

    verdicts = {
        p: "wrong" if p[0] is None else "right"
        for p in pairs
        if p[0] is None or plain(p[0]) == plain(p[1])
    }
    rest = sorted(pairs - verdicts.keys())
    with SymbolicChecker() as checker:
        outcomes = checker.check(rest)
    return verdicts | {pair: outcome.verdict for pair, outcome in zip(rest, outcomes, strict=True)}


def evaluate(
    model,
    tokenizer,
    dataset: "Dataset",
    *,
    max_new_tokens: int,
    sample: bool = False,
    seed: int = 0,
    batch_size: int = 128,
    progress: str | None = None,
    answers: str = "number",
) -> Scores:
    """Generate one completion for every row of the dataset (`prompt`, `answer`) and judge it (see `score`).

    Greedy, or with `sample` drawn at temperature 1, seeded. `max_new_tokens` is the limit of a completion, `batch_size`
    how many prompts go through the model at once.
    Several processes share the generating; each gets all scores, the same as one process's.
    """
    completions = generate(
        model,
        tokenizer,
        list(dataset["prompt"]),
        max_new_tokens=max_new_tokens,
        sample=sample,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    return score(completions, list(dataset["answer"]), answers)


def summary(sampled: Scores, greedy: Scores) -> dict:
    """What report.json says of one policy: shares from 0 to 1, and `ci95`, the interval of strict_sampled.

    Raises ValueError when no problem was measured.
    """
    return {
        "strict_sampled": accuracy(sampled.strict),
        "strict_greedy": accuracy(greedy.strict),
        "lenient_sampled": accuracy(sampled.lenient),
        "well_formed_sampled": accuracy(sampled.well_formed),
        "ci95": list(wilson_interval(sampled.strict)),
        **({"unjudged": sampled.unjudged} if sampled.unjudged else {}),
    }
