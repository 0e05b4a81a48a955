"""The difficulty of each row for a policy (its pass rate), and a curriculum of useful rows.

A row that is never or always solved gives GRPO a zero-variance group: all completions earn the
same, so there is nothing to learn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate
from grpo_workbook.rewards import call, correctness_reward


def pass_rates(
    model, tokenizer, dataset, n: int = 8, *, success: Callable = correctness_reward, **how
) -> list[float]:
    """For each row the fraction of `n` sampled completions with a `success` reward above 0.5.

    The Dataset has `prompt` and the columns that the reward reads. `how`: max_new_tokens,
    temperature, seed, batch_size and progress, as in `generate`. A reward of None (it does not
    apply) counts as not solved. Raises WorkbookError for no rows or n < 1.
    """
    if not len(dataset) or n < 1:
        raise WorkbookError(f"{len(dataset)} rows, {n} completions each: give at least 1 of both")
    rows = dataset.select([i for i in range(len(dataset)) for _ in range(n)])
    columns = {name: list(rows[name]) for name in rows.column_names}
    how = {"sample": True, "progress": "pass rates"} | how
    values = call(success, generate(model, tokenizer, columns["prompt"], **how), **columns)
    right = [value is not None and value > 0.5 for value in values]
    return [sum(right[start : start + n]) / n for start in range(0, len(right), n)]


@dataclass(frozen=True)
class Curriculum:
    """The rows to train on, and how many are left out for which reason."""

    rows: list[int]  # their indices, the easiest first
    left_out: dict[str, int]  # hopeless (never right), too hard, too easy, mastered (always right)

    def __str__(self) -> str:
        said = ", ".join(f"{n} {kind}" for kind, n in self.left_out.items() if n)
        return f"{len(self.rows)} rows can teach; left out: {said or 'none'}"


def curriculum(rates: Sequence[float], low: float = 0.0, high: float = 1.0) -> Curriculum:
    """The rows to train on: low < pass rate < high, the easiest first (equal ones in order).

    Low 0 and high 1 leave out only the rows that are never or always solved. Raises WorkbookError
    for invalid bounds, and if no row is left.
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
        raise WorkbookError(f"{said}: widen the bounds, or start with an easier stage")
    return found
