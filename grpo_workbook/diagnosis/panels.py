"""Figures of runs with text alternatives: six panels of one run, or many runs side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from grpo_workbook.diagnosis.findings import ALARMS, Finding
from grpo_workbook.diagnosis.runlog import RunLog
from grpo_workbook.figures import GREY, STYLES, Drawn, from_zero, new_panels

# (title, {metric: its name}) of each panel after the first, which has the rewards. Where the title
# is empty it is the names of the metrics that were logged.
PANELS: list[tuple[str, dict[str, str]]] = [
    (
        "",
        {"reward_std": "spread within the batch", "frac_reward_zero_std": "zero-variance groups"},
    ),
    ("", {"entropy": "entropy", "kl": "KL"}),
    ("tokens", {"completions/mean_length": "mean length", "completions/max_length": "longest"}),
    ("", {"grad_norm": "gradient norm", "adapter/change": "adapter change"}),
    ("held-out problems", {"heldout/strict": "strict", "heldout/lenient": "lenient"}),
]


@dataclass
class Line:
    """A metric of a run in a panel."""

    run: RunLog
    metric: str
    words: str  # what the text alternative calls it
    label: str | None  # in the legend, None: it has no place there


@dataclass
class Panel:
    """A chart: its title, and its lines."""

    title: str
    lines: list[Line] = field(default_factory=list)


def run_panels(run: RunLog, findings: Sequence[Finding] = (), title: str = "") -> Drawn:
    """Six panels of one run: pale raw values, their mean of 5, a line where an alarm starts.

    findings: what `diagnose` returned; only those that are severe or a warning are drawn.
    title: of the whole figure.

    Returns the figure and its text alternative.
    """
    rewards = Panel("reward", [Line(run, "reward", "total", "total")])
    for name in sorted(run.functions):
        label = name.removesuffix("_reward")
        rewards.lines.append(Line(run, f"rewards/{name}/mean", label, label))
    panels = [rewards]
    for heading, metrics in PANELS:
        lines = []
        logged = []
        for metric, name in metrics.items():
            lines.append(Line(run, metric, name, name))
            if metric in run.table:
                logged.append(name)
        # where nothing was logged the title says what is missing
        panels.append(Panel(heading or ", ".join(logged) or lines[0].words, lines))
    alarms = [finding for finding in findings if finding.severity in ALARMS]
    return draw(panels, title, alarms)


def side_by_side(runs: Mapping[str, RunLog]) -> Drawn:
    """The reward of many runs, {name: run}, as small charts, each with its own scale."""
    panels = [Panel(name, [Line(run, "reward", name, None)]) for name, run in runs.items()]
    return draw(panels, "reward", columns=4, row_height=1.5)


def draw(
    panels: Sequence[Panel],
    title: str,
    alarms: Sequence[Finding] = (),
    columns: int = 3,
    row_height: float = 2.4,
) -> Drawn:
    """The figure of the panels, and in words what it shows; row_height in inches."""
    height = 0.4 + row_height * ceil(len(panels) / columns)
    figure, grid = new_panels(10.5, height, len(panels), columns)
    parts = []
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(panel.title, fontsize=9, loc="left")
        for style, line in enumerate(panel.lines):
            parts.append(line.words + draw_line(axes, line, style))
        if not axes.lines:
            axes.text(0.5, 0.5, "not logged", ha="center", color=GREY, transform=axes.transAxes)
        room = 0.05
        if axes.get_legend_handles_labels()[1]:
            room = 0.4  # for the legend above the lines
            axes.legend(frameon=False, fontsize=7, loc="upper center", ncols=2, borderaxespad=0.1)
        from_zero(axes, room)
        for finding in alarms:
            axes.axvline(finding.step, color="black", linestyle=":", linewidth=1)
    if alarms:
        names = [f"{finding.name} from step {finding.step}" for finding in alarms]
        title = f"{title}: {', '.join(names)}"
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("optimizer step", fontsize=10)
    return figure, f"{len(panels)} line charts over optimizer steps. {title}. {'; '.join(parts)}."


def draw_line(axes: Any, line: Line, style: int) -> str:
    """Draw the logged values, and return their first and last means as text."""
    values: Any = line.run.of(line.metric)
    if values.empty:
        return ": not logged"
    colour, dash, _ = STYLES[style % len(STYLES)]
    if len(values) < 8:  # measured rarely: points, no average
        axes.plot(values.index, values, color=colour, alpha=0.25, lw=1, marker="o", ms=3)
        means, window = values, 1
    else:
        axes.plot(values.index, values, color=colour, alpha=0.25, lw=1)
        means, window = values.rolling(5, min_periods=1, center=True).mean(), 5
    axes.plot(means.index, means, color=colour, linestyle=dash, linewidth=1.8, label=line.label)
    # the first and last values of few are far apart; means of up to 5 are less noisy
    ends = min(window, max(1, len(values) // 2))
    return f" from {values.head(ends).mean():.3g} to {values.tail(ends).mean():.3g}"
