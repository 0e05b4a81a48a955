"""Measure a policy on held-out problems: strict and lenient accuracy, intervals, a paired test, what it wrote.

Strict: well-formed and exactly right. Lenient: the kindly read answer is right, whatever the form. Greedy is what
the policy holds most likely; sampled (temperature 1) is what GRPO trains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_workbook.answers import is_leniently_right, is_strictly_right, is_well_formed
from grpo_workbook.generation import end_tokens as end_tokens
from grpo_workbook.generation import generate
from grpo_workbook.intervals import accuracy, wilson_interval
from grpo_workbook.intervals import paired_p_value as paired_p_value

if TYPE_CHECKING:
    from datasets import Dataset


@dataclass(frozen=True)
class Scores:
    """One completion per problem, and what each was worth."""

    completions: list[str]
    strict: list[bool]
    lenient: list[bool]
    well_formed: list[bool]

    @property
    def n(self) -> int:
        return len(self.completions)


def score(completions: Sequence[str], answers: Sequence[str]) -> Scores:
    """Judge completions against their reference answers."""
    pairs = list(zip(completions, answers, strict=True))
    return Scores(
        list(completions),
        [is_strictly_right(c, a) for c, a in pairs],
        [is_leniently_right(c, a) for c, a in pairs],
        [is_well_formed(c) for c in completions],
    )


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
) -> Scores:
    """Generate one completion for every row of the dataset (`prompt`, `answer`) and judge it."""
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
    return score(completions, list(dataset["answer"]))


def summary(sampled: Scores, greedy: Scores) -> dict:
    """What report.json says of one policy."""
    return {
        "strict_sampled": accuracy(sampled.strict),
        "strict_greedy": accuracy(greedy.strict),
        "lenient_sampled": accuracy(sampled.lenient),
        "well_formed_sampled": accuracy(sampled.well_formed),
        "ci95": list(wilson_interval(sampled.strict)),
    }
