"""What rewards say about sample completions, before any training: scores in a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import Completion, RewardFunction, call, name_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: for each function, and "total", a list for each group."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]

    def table(self) -> "pd.DataFrame":
        """A row for each function and for the total; `none` counts where it did not apply.

        `equal` is the rate of groups whose rewards are all equal: alone it gives no gradient there.
        """
        import pandas as pd

        rows = {}
        for name, groups in self.groups.items():
            values = pd.Series([v for group in groups for v in group], dtype=float)
            rows[name.removesuffix("_reward")] = {
                "weight": self.weights.get(name),
                "none": int(values.isna().sum()),
                "mean": values.mean(),
                "std": values.std(ddof=0),
                "min": values.min(),
                "max": values.max(),
                "equal": sum(len(set(group)) == 1 for group in groups) / len(groups),
            }
        return pd.DataFrame.from_dict(rows, orient="index")


def score(
    functions: Sequence[RewardFunction],
    completions: Sequence[Completion],
    rows: Sequence[dict],
    *,
    group_size: int,
    weights: Sequence[float] | None = None,
) -> Scored:
    """Every reward for every completion, group by group: what GRPO would see, before any training.

    `rows` are the dataset's, one for each group or each completion; their columns are passed on.
    """
    n = len(completions)
    if group_size < 2 or n == 0 or n % group_size:
        raise WorkbookError(f"{n} completions are no groups of {group_size}: give 2 or more each")
    if len(rows) * group_size == n:
        rows = [row for row in rows for _ in range(group_size)]
    weights = [1.0] * len(functions) if weights is None else list(weights)
    names = [name_of(f) for f in functions]
    if len(rows) != n or not names or len(weights) != len(names) or len(set(names)) != len(names):
        raise WorkbookError(
            f"{n} completions, {len(rows)} rows, {len(weights)} weights, rewards {names}: give one "
            "row for each group or completion, one weight for each reward, no name twice"
        )
    columns = {key: [row[key] for row in rows] for key in rows[0] if key != "completion"}
    values = [call(function, completions, **columns) for function in functions]
    totals = [  # TRL's weighted sum, where None counts as 0: what GRPO compares
        sum(w * (v or 0.0) for w, v in zip(weights, given, strict=True))
        for given in zip(*values, strict=True)
    ]
    starts = range(0, n, group_size)
    table = zip([*names, "total"], [*values, totals], strict=True)
    groups = {name: [given[i : i + group_size] for i in starts] for name, given in table}
    return Scored(groups, dict(zip(names, weights, strict=True)))
