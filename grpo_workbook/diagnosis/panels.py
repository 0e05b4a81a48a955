"""A run at a glance: six panels, two runs overlaid, many side by side. Figures with their words."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpo_workbook.diagnosis.findings import FINE, NOTE, Finding
from grpo_workbook.diagnosis.runlog import RunLog
from grpo_workbook.figures import GREY, STYLES, smooth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Title, and (metric, name) for each line; "rewards" stands for the total and every function.
PANELS = {
    "reward": "rewards",
    "spread within the batch, zero-variance groups": (
        ("reward_std", "deviation"), ("frac_reward_zero_std", "zero-variance groups"),
    ),
    "entropy, KL": (("entropy", "entropy"), ("kl", "KL")),
    "tokens": (("completions/mean_length", "mean length"), ("completions/max_length", "longest")),
    "gradient norm, adapters": (
        ("grad_norm", "gradient norm"), ("adapter/change", "adapter change"),
    ),
    "held-out problems": (("heldout/strict", "strict"), ("heldout/lenient", "lenient")),
}  # fmt: skip


def run_panels(
    run: RunLog, findings: Sequence[Finding] = (), title: str = ""
) -> tuple["Figure", str]:
    """Six panels of one run: steps faintly, their moving average, a line where a finding starts."""
    return _panels({title: run}, findings, title)


def compare_panels(runs: Mapping[str, RunLog]) -> tuple["Figure", str]:
    """Two to four runs in the same panels, a colour each: the first line, which the title names."""
    return _panels(runs, (), " and ".join(runs))


def _panels(runs: Mapping[str, RunLog], findings: Sequence[Finding], title: str):
    figure, said = _figure(10.5, 5.2), []
    marked = [f for f in findings if f.severity not in (NOTE, FINE)]
    for axes, (name, lines) in zip(figure.subplots(2, 3).flat, PANELS.items(), strict=True):
        drawn = 0
        for i, (label, run) in enumerate(runs.items()):
            wanted = _reward_lines(run) if lines == "rewards" else lines
            one = len(runs) == 1
            for j, (metric, word) in enumerate(wanted if one else wanted[:1]):
                drawn += _line(axes, run, metric, word if one else label, i + j)
                said.append(_said(run, metric, word if one else f"{label}: {word}"))
        axes.set_title(name if len(runs) == 1 else name.split(",")[0], fontsize=10, loc="left")
        if drawn:
            _legend_above(axes, drawn)
        else:
            axes.text(0.5, 0.5, "not logged", ha="center", color=GREY, transform=axes.transAxes)
        for f in marked:
            axes.axvline(f.step, color="black", linestyle=":", linewidth=1)
    if marked:
        title += ": " + ", ".join(f"{f.name} from step {f.step}" for f in marked)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("optimizer step", fontsize=10)
    return figure, f"Six line charts over optimizer steps. {title}. {'; '.join(said)}."


def side_by_side(
    runs: Mapping[str, RunLog], metric: str = "reward", columns: int = 4
) -> tuple["Figure", str]:
    """The same metric of many runs as small charts, each on its own scale."""
    rows = -(-len(runs) // columns)
    figure = _figure(10.5, 0.4 + 1.5 * rows)
    grid, said = list(figure.subplots(rows, columns, squeeze=False).flat), []
    for axes, (name, run) in zip(grid, runs.items(), strict=False):
        _line(axes, run, metric, metric, 0)
        axes.set_title(name, fontsize=9, loc="left")
        axes.tick_params(labelsize=7)
        said.append(_said(run, metric, name))
    for axes in grid[len(runs) :]:
        axes.set_visible(False)
    figure.supxlabel("optimizer step", fontsize=9)
    figure.supylabel(metric, fontsize=9)
    return figure, f"{len(runs)} small line charts of {metric}: {'; '.join(said)}."


def _legend_above(axes: "Axes", lines: int) -> None:
    """The names in two columns, above all that is drawn: the scale makes room for them."""
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + (high - low) * (0.05 + 0.09 * -(-lines // 2)))
    axes.legend(frameon=False, fontsize=7, loc="upper center", ncols=2, borderaxespad=0.1)


def _reward_lines(run: RunLog) -> list[tuple[str, str]]:
    parts = [(f"rewards/{n}/mean", n.removesuffix("_reward")) for n in run.functions]
    return [("reward", "total"), *parts]


def _line(axes: "Axes", run: RunLog, metric: str, label: str, style: int) -> bool:
    values = run.table[metric].dropna() if metric in run.table else []
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    if not len(values):
        return False
    colour, dash, _ = STYLES[style % len(STYLES)]
    few = len(values) < 8  # measured now and then: points, no average
    look = {"color": colour, "marker": "o" if few else None, "markersize": 3}
    axes.plot(values.index, values, alpha=0.25, linewidth=1, **look)
    line = list(values) if few else smooth(list(values), 5)
    axes.plot(values.index, line, color=colour, linestyle=dash, linewidth=1.8, label=label)
    return True


def _said(run: RunLog, metric: str, word: str) -> str:
    values = run.table[metric].dropna() if metric in run.table else []
    if not len(values):
        return f"{word}: not logged"
    few = max(1, min(5, len(values) // 2))
    return f"{word} from {values.head(few).mean():.3g} to {values.tail(few).mean():.3g}"


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")
