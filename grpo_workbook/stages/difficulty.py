"""How hard is each row for this policy: its pass rate, and a curriculum of the rows that can still teach.

A row that is never right, and one that always is, give GRPO silent groups: no completion stands out from the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.generation import generate
from grpo_workbook.rewards import correctness_reward, name_of, plain_values
from grpo_workbook.stages.stage import check_bounds

if TYPE_CHECKING:
    from datasets import Dataset


def pass_rates(
    model,
    tokenizer,
    dataset: "Dataset",
    n: int = 8,
    *,
    max_new_tokens: int,
    success: Callable = correctness_reward,
    temperature: float = 1.0,
    seed: int = 0,
    batch_size: int = 128,
    progress: str | None = "pass rates",
) -> list[float]:
    """For each row the share of `n` sampled completions to which `success`, a reward, gives more than 0.5.

    The dataset has `prompt`, and the columns that the reward reads. Rows of like length go through the model together.
    A row to which the reward does not apply (None) counts as never right. Raises WorkbookError for no rows or n < 1.
    """
    if not len(dataset):
        raise WorkbookError("pass rates of no rows: give at least one row")
    if not isinstance(n, int) or n < 1:
        raise WorkbookError(f"pass rates from {n!r} completions of each row: give at least 1")
    repeated = [i for i in range(len(dataset)) for _ in range(n)]
    rows = dataset.select(repeated)
    texts = generate(
        model,
        tokenizer,
        list(rows["prompt"]),
        max_new_tokens=max_new_tokens,
        sample=True,
        temperature=temperature,
        seed=seed,
        batch_size=batch_size,
        progress=progress,
    )
    columns = {name: list(rows[name]) for name in rows.column_names if name != "prompt"}
    values = success(prompts=list(rows["prompt"]), completions=texts, **columns)
    right = [v is not None and v > 0.5 for v in plain_values(name_of(success), values, len(texts))]
    return [sum(right[start : start + n]) / n for start in range(0, len(right), n)]


@dataclass(frozen=True)
class Curriculum:
    """The places of the rows to train on, easy first, and how many of each kind there were."""

    rows: list[int]
    hopeless: int  # never right
    too_hard: int  # right at times, but not above low
    too_easy: int  # wrong at times, but not below high
    mastered: int  # always right

    def __str__(self) -> str:
        kinds = ("hopeless", "too_hard", "too_easy", "mastered")
        left_out = ", ".join(
            f"{getattr(self, k)} {k.replace('_', ' ')}" for k in kinds if getattr(self, k)
        )
        return f"{len(self.rows)} rows can teach; left out: {left_out or 'none'}"


def curriculum(rates: Sequence[float], low: float = 0.0, high: float = 1.0) -> Curriculum:
    """Which rows to train on: those with low < pass rate < high, the easiest first (equal ones in their order).

    With low 0 and high 1 that is all but the hopeless and the mastered. Raises WorkbookError for rates outside of 0 to
    1, bounds that leave no room, and when no row is left.
    """
    check_bounds((low, high))
    odd = next((i for i, rate in enumerate(rates) if not 0 <= rate <= 1), None)
    if odd is not None:
        raise WorkbookError(
            f"the pass rate of row {odd} is {rates[odd]!r}: a share lies between 0 and 1"
        )
    kept = [i for i, rate in enumerate(rates) if low < rate < high]
    found = Curriculum(
        sorted(kept, key=lambda i: -rates[i]),
        hopeless=sum(rate == 0 for rate in rates),
        too_hard=sum(0 < rate <= low for rate in rates),
        too_easy=sum(high <= rate < 1 for rate in rates),
        mastered=sum(rate == 1 for rate in rates),
    )
    if not kept:
        raise WorkbookError(
            f"no row of {len(rates)} has a pass rate between {low:g} and {high:g} ({found}): "
            "widen the bounds, or begin with an easier stage"
        )
    return found
