"""The pictures of staged runs: accuracy over all stages, how hard the rows are, the same race with several seeds."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import TYPE_CHECKING

from grpo_workbook.charts import STYLES
from grpo_workbook.figures import BLUE, GREY, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def stage_curve(reports: Sequence[dict], goal: float | None = None) -> tuple["Figure", str]:
    """Held-out accuracy over the steps of all stages, a line between two stages: from train_stages(probe_every=...).

    Raises ValueError for reports without a "curve".
    """
    if not reports or any("curve" not in told for told in reports):
        raise ValueError("the reports have no curve: train with probe_every=4 or so")
    figure, axes = new_axes(7.0, 3.6)
    said, start = [], 0
    for told, (colour, dash, marker) in zip(reports, STYLES * len(reports), strict=False):
        name, steps = told["stage"]["name"], told["stage"]["steps"]
        points = [*told["curve"], [start + steps, told["heldout"]["after"]["strict"]]]
        points = [p for i, p in enumerate(points) if i == 0 or p[0] > points[i - 1][0]]
        xs, ys = zip(*points, strict=True)
        axes.plot(
            xs,
            ys,
            color=colour,
            linestyle=dash,
            marker=marker,
            linewidth=2,
            markersize=4,
            label=name,
        )
        if start:
            axes.axvline(start, color="black", linestyle=":", linewidth=1)
        said.append(f"{name} from {ys[0]:.0%} at step {xs[0]} to {ys[-1]:.0%} at step {xs[-1]}")
        start += steps
    if goal is not None:
        axes.axhline(goal, color=GREY, linewidth=1)
        axes.text(0, goal + 0.01, f"{goal:.0%}", color=GREY, fontsize=9, va="bottom")
    axes.set(
        xlabel="optimizer step, over all stages", ylabel="strictly right, held out", ylim=(0, 1.02)
    )
    axes.set_title(
        "A new stage begins at each dotted line" if len(reports) > 1 else "One stage", fontsize=11
    )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    marked = "" if goal is None else f" A grey line marks {goal:.0%}."
    what = f"Line chart of held-out strict accuracy over {start} steps in {len(reports)} stages"
    return figure, f"{what}: {'; '.join(said)}.{marked}"


def pass_rate_histogram(
    measured: Mapping[str, Sequence[float]], samples: int, low: float = 0.0, high: float = 1.0
) -> tuple["Figure", str]:
    """How many rows have each pass rate; those that a curriculum(low, high) leaves out are grey and hatched.

    `measured` is {title: the pass rates}, one panel each, as difficulty.pass_rates gives them with n=samples.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    panels = figure.subplots(1, len(measured), sharey=True, squeeze=False)[0]
    said = []
    for axes, (title, rates) in zip(panels, measured.items(), strict=True):
        counts = [0] * (samples + 1)
        for rate in rates:
            counts[round(rate * samples)] += 1
        teaching = [low < k / samples < high for k in range(samples + 1)]
        for wanted, colour, hatch, label in (
            (True, BLUE, "", "can teach"),
            (False, "#BBBBBB", "//", "left out"),
        ):
            places = [k for k in range(samples + 1) if teaching[k] is wanted]
            heights = [counts[k] for k in places]
            bars = axes.bar(
                places, heights, color=colour, hatch=hatch, edgecolor="white", label=label
            )
            axes.bar_label(bars, [h or "" for h in heights], fontsize=8, padding=1)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlabel=f"right completions of {samples}", xticks=range(samples + 1))
        axes.set_title(title, fontsize=10, loc="left")
        left = sum(n for n, teaches in zip(counts, teaching, strict=True) if not teaches)
        said.append(
            f"{title}: {counts[0]} rows never right, {counts[-1]} always right, {left} of {len(rates)} left out"
        )
    panels[0].set_ylabel("rows")
    panels[-1].legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure, "Histograms of rows by how many completions are right. " + "; ".join(said) + "."


def race(rows: Sequence[dict], goal: float) -> tuple["Figure", str]:
    """Completions until the goal, a dot for each seed and a bar for the mean: the rows of benchmarks/stages.json.

    The dots of one row lie at different heights, so that equal ones do not hide each other.
    """
    figure, axes = new_axes(7.0, 0.9 + 0.5 * len(rows))
    axes.grid(axis="y", visible=False)
    axes.grid(axis="x", alpha=0.25)
    said = []
    seeds = sorted({seed for row in rows for seed in row["completions"]})
    marks = {seed: STYLES[i % len(STYLES)] for i, seed in enumerate(seeds)}
    heights = {seed: 0.2 * (i - (len(seeds) - 1) / 2) for i, seed in enumerate(seeds)}
    for place, row in enumerate(rows):
        there = {seed: n for seed, n in row["completions"].items() if n is not None}
        for seed, n in there.items():
            colour, _, marker = marks[seed]
            label = f"seed {seed}" if place == 0 else None
            axes.scatter(
                n, place + heights[seed], color=colour, marker=marker, s=30, zorder=3, label=label
            )
        if len(there) == len(row["completions"]) and there:
            axes.plot(
                [mean(there.values())] * 2, [place - 0.36, place + 0.36], color="black", linewidth=2
            )
            seeds_said = "1 seed" if len(there) == 1 else f"{len(there)} seeds"
            span = f"{min(there.values()):,.0f} to {max(there.values()):,.0f}, {seeds_said}"
            said.append(f"{row['way']} {mean(there.values()):,.0f} on average ({span})")
        else:
            said.append(f"{row['way']} not with every seed")
    axes.set(yticks=range(len(rows)), yticklabels=[row["way"] for row in rows], xlim=(0, None))
    axes.set_xlabel("completions drawn (the black line: mean over seeds)")
    axes.set_title(f"Until {goal:.0%} of the held-out problems are strictly right", fontsize=11)
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return (
        figure,
        f"Dot plot of completions until {goal:.0%} strictly right, by way and seed: "
        + "; ".join(said)
        + ".",
    )
