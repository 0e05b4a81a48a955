"""Figures of runs with text alternatives: six panels, two runs overlaid, many side by side."""

from collections.abc import Mapping, Sequence

from grpo_workbook.diagnosis.findings import ALARMS, DATA, Finding
from grpo_workbook.diagnosis.runlog import RunLog
from grpo_workbook.figures import GREY, STYLES, Drawn, new_panels


def run_panels(run: RunLog, findings: Sequence[Finding] = (), title: str = "") -> Drawn:
    """Six panels of one run: pale raw values, their mean of 5, a line where a finding starts."""
    functions = {f"rewards/{n}/mean": n.removesuffix("_reward") for n in sorted(run.functions)}
    panels = {}
    for name, metrics in DATA["panels"].items():
        parts = name.split(", ")  # a panel for two metrics names only those that were logged
        there = [p for p, m in zip(parts, metrics, strict=False) if m in run.table]
        lines = metrics or {"reward": "total"} | functions
        panels[", ".join(there or parts[:1])] = [(run, m, w, w) for m, w in lines.items()]
    return _panels(panels, [f for f in findings if f.severity in ALARMS], title)


def compare_panels(runs: Mapping[str, RunLog]) -> Drawn:
    """Two to four runs in the same panels, in one colour each."""
    panels = {}
    for name, metrics in DATA["panels"].items():
        metric, word = [*metrics.items(), ("reward", "total")][0]
        lines = [(run, metric, label, f"{label}: {word}") for label, run in runs.items()]
        panels[name.split(", ")[0]] = lines
    return _panels(panels, (), " and ".join(runs))


def side_by_side(runs: Mapping[str, RunLog], metric: str = "reward", columns: int = 4) -> Drawn:
    """One metric of many runs as small charts, each with its own scale."""
    panels = {name: [(run, metric, None, name)] for name, run in runs.items()}
    return _panels(panels, (), metric, columns)


def _panels(panels: Mapping[str, list], marked: Sequence[Finding], title: str, columns=3) -> Drawn:
    height = 0.4 + (2.4 if columns == 3 else 1.5) * -(-len(panels) // columns)
    (figure, grid), said = new_panels(10.5, height, len(panels), columns), []
    for axes, (name, lines) in zip(grid, panels.items(), strict=True):
        for i, (run, metric, label, words) in enumerate(lines):
            said.append(words + _line(axes, run, metric, label, i))
        axes.set_title(name, fontsize=9, loc="left")
        if labels := axes.get_legend_handles_labels()[1]:
            (low, high), room = axes.get_ylim(), 0.05 + 0.09 * -(-len(labels) // 2)  # for a legend
            axes.set_ylim(min(low, 0) if "entropy" in name else low, high + (high - low) * room)
            axes.legend(frameon=False, fontsize=7, loc="upper center", ncols=2, borderaxespad=0.1)
        elif not axes.lines:
            axes.text(0.5, 0.5, "not logged", ha="center", color=GREY, transform=axes.transAxes)
        for f in marked:
            axes.axvline(f.step, color="black", linestyle=":", linewidth=1)
    if marked:
        title += ": " + ", ".join(f"{f.name} from step {f.step}" for f in marked)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("optimizer step", fontsize=10)
    return figure, f"{len(panels)} line charts over optimizer steps. {title}. {'; '.join(said)}."


def _line(axes, run: RunLog, metric: str, label: str, style: int) -> str:
    """Draw the logged values, and return their first and last means as text."""
    if (values := run.of(metric)).empty:
        return ": not logged"
    colour, dash, _ = STYLES[style % len(STYLES)]
    few = len(values) < 8  # measured rarely: points, no average
    look = {"color": colour, "marker": "o" if few else None, "markersize": 3}
    axes.plot(values.index, values, alpha=0.25, linewidth=1, **look)
    line = values if few else values.rolling(5, min_periods=1, center=True).mean()
    axes.plot(line.index, line, color=colour, linestyle=dash, linewidth=1.8, label=label)
    ends = 1 if few else min(5, len(values) // 2)
    return f" from {values.head(ends).mean():.3g} to {values.tail(ends).mean():.3g}"
