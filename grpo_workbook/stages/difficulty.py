"""How hard is each row for this policy: its pass rate, and a curriculum of the rows that can teach.

A row that is never right, and one that always is, give GRPO a zero-variance group: no completion
stands out from the others, so there is nothing to learn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate
from grpo_workbook.rewards import call, correctness_reward


def pass_rates(
    model, tokenizer, dataset, n: int = 8, *, success: Callable = correctness_reward, **how
) -> list[float]:
    """For each row the fraction of `n` sampled completions to which `success` gives more than 0.5.

    The Dataset has `prompt`, and the columns that the reward reads. `how` is max_new_tokens,
    temperature, seed, batch_size and progress, as `generate` has them. A row to which the reward
    does not apply (None) counts as never right. Raises WorkbookError for no rows or n < 1.
    """
    if not len(dataset) or n < 1:
        raise WorkbookError(f"{len(dataset)} rows with {n} completions each: give some of both")
    rows = dataset.select([i for i in range(len(dataset)) for _ in range(n)])
    columns = {name: list(rows[name]) for name in rows.column_names}
    how = {"sample": True, "progress": "pass rates"} | how
    values = call(success, generate(model, tokenizer, columns["prompt"], **how), **columns)
    right = [value is not None and value > 0.5 for value in values]
    return [sum(right[start : start + n]) / n for start in range(0, len(right), n)]


@dataclass(frozen=True)
class Curriculum:
    """Which rows to train on, and how many are left out of each kind."""

    rows: list[int]  # their indices, the easiest first
    left_out: dict[str, int]  # hopeless (never right), too hard, too easy, mastered (always right)

    def __str__(self) -> str:
        said = ", ".join(f"{n} {kind}" for kind, n in self.left_out.items() if n)
        return f"{len(self.rows)} rows can teach; left out: {said or 'none'}"


def curriculum(rates: Sequence[float], low: float = 0.0, high: float = 1.0) -> Curriculum:
    """Which rows to train on: low < pass rate < high, the easiest first (equal ones in order).

    With low 0 and high 1 that is all but the hopeless and the mastered. Raises WorkbookError for
    bounds that leave no room, and when no row is left.
    """
    if not 0 <= low < high <= 1:
        raise WorkbookError(f"the bounds are {low!r} and {high!r}: give 0 <= low < high <= 1")
    kept = [i for i, rate in enumerate(rates) if low < rate < high]
    left_out = {
        "hopeless": sum(rate == 0 for rate in rates),
        "too hard": sum(0 < rate <= low for rate in rates),
        "too easy": sum(high <= rate < 1 for rate in rates),
        "mastered": sum(rate == 1 for rate in rates),
    }
    found = Curriculum(sorted(kept, key=lambda i: -rates[i]), left_out)
    if not kept:
        said = f"no row of {len(rates)} has a pass rate between {low:g} and {high:g} ({found})"
        raise WorkbookError(f"{said}: widen the bounds, or begin with an easier stage")
    return found
