"""A table of the rewards of sample completions, before any training."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import call, name_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: per function, and as "total", a list per group."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]

    def table(self) -> "pd.DataFrame":
        """A row per function and for the total; `none` counts completions where it did not apply.

        `equal` is the rate of groups with equal rewards: these give no gradient.
        """
        import pandas as pd

        frame = pd.DataFrame({n: [*chain(*g)] for n, g in self.groups.items()}, dtype=float)
        equal = [fmean(len(set(g)) == 1 for g in groups) for groups in self.groups.values()]
        table = pd.DataFrame({"none": frame.isna().sum(), "mean": frame.mean()})
        table = table.assign(std=frame.std(ddof=0), min=frame.min(), max=frame.max(), equal=equal)
        table.insert(0, "weight", pd.Series(self.weights))
        return table.rename(index=lambda name: name.removesuffix("_reward"))


def score(
    functions: Sequence, completions: Sequence, rows: Sequence, *, group_size: int, weights=None
) -> Scored:
    """Every reward for every completion, group by group, as GRPO would see them.

    `rows` are rows of the dataset, one per group or per completion; rewards get their columns.
    """
    import pandas as pd

    n, names = len(completions), [name_of(f) for f in functions]
    weights = [1.0] * len(names) if weights is None else list(weights)
    if group_size < 2 or n == 0 or n % group_size:
        raise WorkbookError(f"{n} completions do not form groups of {group_size} (at least 2)")
    if len(rows) * group_size == n:
        rows = [row for row in rows for _ in range(group_size)]
    if len(rows) != n or len(weights) != len(names) or len(set(names)) != len(names):
        raise WorkbookError(
            f"{n} completions, {len(rows)} rows, {len(weights)} weights, rewards {names}: give one "
            "row per group or completion, one weight per reward, and each name once"
        )
    columns = {key: [row[key] for row in rows] for key in rows[0] if key != "completion"}
    values = {name_of(f): call(f, completions, **columns) for f in functions}
    # TRL's weighted sum, where None counts as 0: GRPO compares these
    values["total"] = (pd.DataFrame(values, dtype=float).fillna(0.0) @ weights).tolist()
    starts = range(0, n, group_size)
    groups = {name: [v[i : i + group_size] for i in starts] for name, v in values.items()}
    return Scored(groups, dict(zip(names, weights, strict=True)))
