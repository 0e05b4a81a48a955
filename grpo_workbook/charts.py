"""Charts that any lesson can use: lines over x, bars in groups. Each returns (figure, text alternative), as figures do.

The words are made from the data and cannot drift from it; `finding` puts the lesson's own sentence before them.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpo_workbook.figures import BLUE, GREEN, GREY, ORANGE, new_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Colour, dash and marker all differ, so that none of the three is needed.
STYLES = (
    (BLUE, "-", "o"),
    (ORANGE, "--", "s"),
    (GREEN, "-.", "^"),
    ("#CC79A7", ":", "D"),
    (GREY, "-", "x"),
)
HATCHES = ("", "//", "..", "xx", "--")
ACROSS = 4  # small charts in a row of bar_panels


def line_chart(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str,
    finding: str = "",
    log_x: bool = False,
    markers: bool = True,
) -> tuple["Figure", str]:
    """One line for each name: (x values, y values), as many of each. At most five lines; `log_x` has base 2.

    Raises ValueError for no line, more than five, an empty one, or one with more values of x than of y.
    """
    _check_names(series)
    figure, axes = new_axes(7.0, 3.6)
    said = []
    for (name, (xs, ys)), (colour, dash, marker) in zip(series.items(), STYLES, strict=False):
        if len(xs) != len(ys) or not len(xs):
            raise ValueError(
                f"the line {name!r} has {len(xs)} x values and {len(ys)} y values: give as many of each"
            )
        axes.plot(
            xs,
            ys,
            color=colour,
            linestyle=dash,
            marker=marker if markers else None,
            markersize=4,
            linewidth=2,
            label=name,
        )
        said.append(
            f"{name}: {_number(ys[0])} at {_number(xs[0])}, {_number(ys[-1])} at {_number(xs[-1])}"
        )
    if log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({float(v) for xs, _ in series.values() for v in xs})
        axes.set_xticks(ticks, [_number(v) for v in ticks])
        axes.minorticks_off()
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure, f"Line chart of {y} over {x}. " + " ".join(
        filter(None, [finding, "; ".join(said) + "."])
    )


def bar_chart(
    series: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    *,
    y: str,
    title: str,
    finding: str = "",
) -> tuple["Figure", str]:
    """Bars in groups: for each name one value per label, written above its bar. At most five names.

    Raises ValueError for no name, more than five, or values that do not fit the labels.
    """
    _check_names(series)
    figure, axes = new_axes(7.0, 3.6)
    width = 0.8 / len(series)
    said = []
    for i, (name, values) in enumerate(series.items()):
        if len(values) != len(labels):
            raise ValueError(
                f"{name!r} has {len(values)} values for {len(labels)} labels: give one for each"
            )
        places = [k + (i - (len(series) - 1) / 2) * width for k in range(len(labels))]
        bars = axes.bar(
            places,
            values,
            width * 0.94,
            color=STYLES[i][0],
            hatch=HATCHES[i],
            edgecolor="white",
            label=name,
        )
        axes.bar_label(bars, [_number(v) for v in values], padding=2, fontsize=9)
        said.append(
            f"{name}: "
            + ", ".join(f"{_number(v)} for {k}" for k, v in zip(labels, values, strict=True))
        )
    axes.set(xticks=range(len(labels)), xticklabels=labels, ylabel=y, title=title)
    axes.margins(y=0.15)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure, f"Bar chart of {y}. " + " ".join(filter(None, [finding, "; ".join(said) + "."]))


def bar_panels(
    panels: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    *,
    y: str,
    title: str,
    finding: str = "",
) -> tuple["Figure", str]:
    """A small bar chart for each name, all on one scale, four in a row; a value of 0 is a cross on the axis.

    Raises ValueError for no panel, or one whose values do not fit the labels.
    """
    from matplotlib.figure import Figure

    if not panels:
        raise ValueError("no panels: give at least one name with its values")
    rows = -(-len(panels) // ACROSS)
    figure = Figure(figsize=(2.3 * ACROSS, 0.5 + 1.7 * rows), layout="constrained")
    grid = figure.subplots(rows, ACROSS, sharex=True, sharey=True, squeeze=False)
    said = []
    for axes, (name, values) in zip(grid.flat, panels.items(), strict=False):
        if len(values) != len(labels):
            raise ValueError(
                f"{name!r} has {len(values)} values for {len(labels)} labels: give one for each"
            )
        axes.bar(range(len(labels)), values, 0.8, color=BLUE)
        gone = [i for i, v in enumerate(values) if v == 0]
        if gone:  # an empty line would stand at the figure's corner, and the layout would make room for it
            axes.plot(gone, [0.0] * len(gone), "x", color=ORANGE, markersize=6, clip_on=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        said.append(
            f"{name}: "
            + ", ".join(f"{_number(v)} for {k}" for k, v in zip(labels, values, strict=True))
        )
    for axes in list(grid.flat)[len(panels) :]:
        axes.set_visible(False)
    figure.supylabel(y, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure, f"{len(panels)} small bar charts of {y}. " + " ".join(
        filter(None, [finding, "; ".join(said) + "."])
    )


def _check_names(series: Mapping) -> None:
    if not 1 <= len(series) <= len(STYLES):
        raise ValueError(
            f"{len(series)} lines or groups of bars: a chart here shows 1 to {len(STYLES)}"
        )


def _number(value: float) -> str:
    return (
        "0" if abs(value) < 1e-6 else f"{float(value):.3g}"
    )  # no -0, and no 1.8e-07 that is only rounding
