"""What rewards say about sample completions, before any training: scores in a table."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import Completion, RewardFunction, call, name_of, plain_values


@dataclass(frozen=True)
class Scored:
    """The rewards of sample completions: `groups` holds for each function its groups of rewards."""

    groups: dict[str, list[list[float | None]]]
    weights: dict[str, float]

    @property
    def totals(self) -> list[list[float]]:
        """What GRPO compares in each group: TRL's weighted sum, where None counts as 0."""
        weights = self.weights.values()
        return [
            [
                sum(w * (v or 0.0) for w, v in zip(weights, values, strict=True))
                for values in zip(*group, strict=True)
            ]
            for group in zip(*self.groups.values(), strict=True)
        ]

    def rows(self) -> list[dict]:
        """One row for each function and one for the total, with the numbers of `show`.

        `equal_groups` is the rate of groups whose rewards are all equal: alone it gives no gradient
        there. `none` counts completions to which it did not apply; the others leave them out.
        """
        table = {**self.groups, "total": self.totals}
        return [
            {"reward": name, "weight": self.weights.get(name), **_row(groups)}
            for name, groups in table.items()
        ]

    def show(self) -> None:
        """Print the rows as a table of at most 80 columns."""
        from rich.console import Console
        from rich.table import Table

        title = f"{len(self.totals)} groups of {len(self.totals[0])}"
        caption = "equal: groups whose rewards are all equal, so without gradient"
        table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
        table.add_column("reward")
        for name in ("weight", "none", "mean", "std", "min", "max", "equal"):
            table.add_column(name, justify="right")
        for row in self.rows():
            if row["reward"] == "total":
                table.add_section()
            cells = ["" if row["weight"] is None else f"{row['weight']:g}", str(row["none"])]
            cells += [
                "-" if row[k] is None else f"{row[k]:.2f}" for k in ("mean", "std", "min", "max")
            ]
            name = row["reward"].removesuffix("_reward")
            table.add_row(name, *cells, f"{row['equal_groups']:.0%}")
        Console(width=80, highlight=False).print(table)

    def figure(self):
        """(figure, text alternative): for each function the rewards within each group."""
        from grpo_workbook import figures

        return figures.reward_distributions({**self.groups, "total": self.totals})


def _row(groups: list[list[float | None]]) -> dict:
    given = [v for group in groups for v in group if v is not None]
    return {
        "n": sum(map(len, groups)),
        "none": sum(v is None for group in groups for v in group),
        "mean": statistics.fmean(given) if given else None,
        "std": statistics.pstdev(given) if given else None,
        "min": min(given, default=None),
        "max": max(given, default=None),
        "equal_groups": sum(len(set(group)) == 1 for group in groups) / len(groups),
    }


def score(
    functions: Sequence[RewardFunction],
    completions: Sequence[Completion],
    rows: Sequence[dict],
    *,
    group_size: int,
    weights: Sequence[float] | None = None,
) -> Scored:
    """Every reward for every completion, group by group: what GRPO would see, before any training.

    `rows` are the dataset's: one for each group, or one for each completion; their columns are passed
    on as TRL does. Raises WorkbookError when the numbers do not fit.
    """
    n = len(completions)
    if group_size < 2 or n == 0 or n % group_size:
        raise WorkbookError(
            f"{n} completions are no groups of {group_size}: give 2 or more in each"
        )
    if len(rows) * group_size == n:
        rows = [row for row in rows for _ in range(group_size)]
    weights = [1.0] * len(functions) if weights is None else list(weights)
    names = [name_of(f) for f in functions]
    if len(rows) != n or not names or len(weights) != len(names) or len(set(names)) != len(names):
        raise WorkbookError(
            f"{n} completions, {len(rows)} rows, {len(weights)} weights, rewards {', '.join(names)}: "
            "give one row for each group or completion, one weight for each reward, no name twice"
        )
    columns = {key: [row[key] for row in rows] for key in rows[0] if key != "completion"}
    groups = {}
    for name, function in zip(names, functions, strict=True):
        values = plain_values(name, call(function, completions, **columns), n)
        groups[name] = [values[i : i + group_size] for i in range(0, n, group_size)]
    return Scored(groups, dict(zip(names, weights, strict=True)))
