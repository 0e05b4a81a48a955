"""The plots of the course.

Each function returns (figure, text alternative); the text is made from the same data, so that the
two agree. `finding` is a sentence that the caller puts before the numbers. The colours are those of
Okabe and Ito; dash, marker and hatch differ too, so that a chart can be read without colours.
"""

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError

Drawn = tuple[Any, str]  # a matplotlib Figure and its text alternative
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
PALE = {  # of the boxes of a diagram
    "data": "#DCE9F5",
    "model": "#FFFFFF",
    "check": "#E0F0E3",
    "number": "#FBE7D3",
    "off": "#EEEEEE",
}
_COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", GREY, "#56B4E9", "#000000")
_DASHES, _MARKERS = ("-", "--", "-.", ":"), "os^Dx"
# (colour, dash, marker) of the first, second, ... line of a chart; they repeat only after 28
STYLES = [(_COLOURS[i % 7], _DASHES[i % 4], _MARKERS[i % 5]) for i in range(28)]


def new_panels(
    width: float = 7.0, height: float = 3.6, count: int = 1, across: int = 1
) -> tuple[Any, list[Any]]:
    """(figure, its `count` axes, `across` in a row) in the course's style; sizes in inches."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display needed

    figure = Figure(figsize=(width, height), layout="constrained")
    rows = math.ceil(count / across)
    grid = list(figure.subplots(rows, across, squeeze=False).flat)
    for i, axes in enumerate(grid):
        axes.spines[["top", "right"]].set_visible(False)
        # Paler lines would become white among the 64 colours of a Picture.
        axes.grid(axis="y", alpha=0.45)
        # The last row may have fewer charts than places.
        axes.set_visible(i < count)
    return figure, grid[:count]


def _describe(chart: str, finding: str, parts: Mapping[str, str]) -> str:
    """A text alternative: what chart it is, what it shows, and the numbers of its parts."""
    numbers = "; ".join(f"{name}: {text}" for name, text in parts.items())
    if finding:
        return f"{chart}. {finding} {numbers}."
    return f"{chart}. {numbers}."


def _number(value: float) -> str:
    if abs(value) < 1e-6:  # not the 1.8e-07 of rounding
        return "0"
    return f"{float(value):.3g}"


def diagram(
    boxes: Mapping[str, tuple[float, float, str, str]],
    arrows: Sequence[tuple] = (),
    size: tuple[float, float] = (8.0, 3.0),
) -> Any:
    """A figure of boxes and arrows.

    Args:
        boxes: {name: (x, y, words, colour)}, x and y from 0 to 1.
        arrows: (from, to, words) or (from, to, words, bend), such as a bend of 0.3, or of -0.3 to
            the other side.
        size: width and height in inches.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=size)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    axes.axis("off")
    drawn = {}
    for name, (x, y, words, colour) in boxes.items():
        look = {"boxstyle": "round,pad=0.5", "facecolor": colour, "edgecolor": GREY}
        drawn[name] = axes.text(x, y, words, ha="center", va="center", bbox=look, zorder=3)
    figure.canvas.draw()  # gives the boxes a size, so that arrows can end at them
    for start, end, words, *bends in arrows:
        bend = bends[0] if bends else 0.0
        _draw_arrow(axes, drawn[start], drawn[end], words, bend, size)
    return figure


def _draw_arrow(
    axes: Any, start: Any, end: Any, words: str, bend: float, size: tuple[float, float]
) -> None:
    """An arrow from one box to another, with words in its middle."""
    x0, y0 = start.get_position()
    x1, y1 = end.get_position()
    look = {
        "arrowstyle": "-|>",
        "color": GREY,
        "connectionstyle": f"arc3,rad={bend}",
        "patchA": start.get_bbox_patch(),
        "patchB": end.get_bbox_patch(),
        "shrinkA": 2,  # points between the box and the arrow
        "shrinkB": 2,
    }
    # annotate takes the head of the arrow first, then its start.
    axes.annotate("", (x1, y1), (x0, y0), arrowprops=look)
    if not words:
        return
    # the middle of the arc; the bend is perpendicular to the arrow in inches
    width, height = size
    x = (x0 + x1) / 2 + bend * (y1 - y0) * height / 2 / width
    y = (y0 + y1) / 2 - bend * (x1 - x0) * width / 2 / height
    paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    axes.text(x, y, words, ha="center", va="center", fontsize=9, color="#444", bbox=paper)


def line_chart(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    x: str,
    y: str,
    title: str,
    finding: str = "",
    markers: bool = True,
) -> Drawn:
    """A line for each of {name: (x values, y values)}; `x` and `y` are the labels of the axes."""
    figure, (axes,) = new_panels()
    parts = {}
    # zip ends with the shorter one: there are more styles than lines.
    for (name, (xs, ys)), (colour, dash, marker) in zip(series.items(), STYLES, strict=False):
        axes.plot(
            xs,
            ys,
            linestyle=dash,
            color=colour,
            marker=marker if markers else "",
            markersize=4,
            linewidth=2,
            label=name,
        )
        first = f"{_number(ys[0])} at {_number(xs[0])}"
        last = f"{_number(ys[-1])} at {_number(xs[-1])}"
        parts[name] = f"{first}, {last}"
    axes.set(xlabel=x, ylabel=y, title=title)
    # Beside the chart, where it covers no line.
    figure.legend(frameon=False, loc="outside right center")
    return figure, _describe(f"Line chart of {y} over {x}", finding, parts)


def bar_panels(
    panels: Mapping[str, Sequence[float]],
    labels: Sequence[str],
    *,
    y: str,
    title: str,
    finding: str = "",
) -> Drawn:
    """A bar chart for each {name: a value for each label}, on one scale; a cross is a 0."""
    across = min(4, len(panels))
    rows = math.ceil(len(panels) / across)
    # In inches: 2.3 for a column, 1.7 for a row, and 0.8 for the titles.
    figure, grid = new_panels(max(7.0, 2.3 * across), 0.8 + 1.7 * rows, len(panels), across)
    top = max(max(values) for values in panels.values())
    parts = {}
    for axes, (name, values) in zip(grid, panels.items(), strict=True):
        axes.bar(range(len(labels)), values, 0.8, color=BLUE)
        zeros = [i for i, value in enumerate(values) if value == 0]
        if zeros:  # an unclipped line without points would upset the layout
            axes.plot(zeros, [0.0] * len(zeros), "x", color=ORANGE, markersize=6, clip_on=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(0, 1.05 * top)
        pairs = zip(values, labels, strict=True)
        parts[name] = ", ".join(f"{_number(value)} for {label}" for value, label in pairs)
    figure.supylabel(y, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure, _describe(f"{len(panels)} small bar charts of {y}", finding, parts)


def from_zero(axes: Any, room: float = 0.05) -> None:
    """Start the y axis at 0, so that small changes look small, unless a value is negative.

    `room` is the free space above the highest value, as a fraction of the axis.
    """
    axes.margins(y=room)
    highest = axes.dataLim.ymax
    if axes.dataLim.ymin >= 0 and highest > 0:
        axes.set_ylim(0, highest * (1 + room))


def reward_curves(log: Sequence[dict]) -> Drawn:
    """Each reward function by step from TRL's log history: raw values pale, means of 7 steps.

    Raises ValueError if the log has no step with a reward.
    """
    import pandas as pd

    table = pd.DataFrame([entry for entry in log if "reward" in entry])
    if table.empty:
        raise ValueError("the log has no step with a reward: was it logged with logging_steps=1?")
    raw, smooth = [], {}
    for column in sorted(table.filter(regex="^reward$|^rewards/.*/mean$")):
        name = "total"
        if column != "reward":
            name = column.split("/")[1].removesuffix("_reward")
        values = table.set_index("step")[column].dropna()
        # Centred, so that a mean does not lag behind its raw values.
        means = values.rolling(7, min_periods=1, center=True).mean()
        raw.append(values)
        smooth[name] = (list(values.index), list(means))
    figure, words = line_chart(
        smooth,
        x="optimizer step",
        y="mean reward (of 7 steps)",
        title="Reward while training",
        markers=False,
    )
    # In the colours of their means, which line_chart has drawn in this order.
    for values, (colour, _, _) in zip(raw, STYLES, strict=False):
        figure.axes[0].plot(values.index, values, color=colour, alpha=0.18, linewidth=1)
    from_zero(figure.axes[0])
    return figure, words


def before_after(heldout: Mapping[str, Mapping], name: str = "held-out problems") -> Drawn:
    """Held-out accuracy before and after training, from `evaluation.report_heldout`.

    `name` is what the title calls the problems.
    """
    sampled = heldout["sampled"]
    bars = {
        "strict, sampled": sampled["strict"],
        "strict, greedy": heldout["greedy"]["strict"],
        "lenient, sampled": sampled["lenient"],
    }
    if sampled.get("lenient_pass") is not None:
        bars[f"lenient, pass@{sampled['samples']}"] = sampled["lenient_pass"]
    figure, (axes,) = new_panels()
    parts = {}
    for side, shift, colour, hatch in (("before", -0.2, GREY, ""), ("after", 0.2, BLUE, "//")):
        rates = [change[side] for change in bars.values()]
        intervals = [change[f"{side}_interval"] for change in bars.values()]
        # matplotlib takes an interval as distances from the height of its bar.
        below, above, spans = [], [], []
        for label, rate, (low, high) in zip(bars, rates, intervals, strict=True):
            below.append(rate - low)
            above.append(high - rate)
            spans.append(f"{rate:.1%} ({low:.1%} to {high:.1%}) for {label}")
        drawn = axes.bar(
            [place + shift for place in range(len(bars))],
            rates,
            0.38,
            yerr=[below, above],
            capsize=4,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=side,
        )
        axes.bar_label(drawn, [f"{rate:.1%}" for rate in rates], padding=3, fontsize=9)
        parts[side] = ", ".join(spans)
    strict = sampled["strict"]
    rise = f"{strict['before']:.0%} to {strict['after']:.0%}"
    title = f"{sampled['n']} {name}: {rise} strict, sampled"
    y = "accuracy, with 95 % intervals"
    axes.set(xticks=range(len(bars)), xticklabels=list(bars), ylabel=y, title=title)
    # Room for the labels above the bars.
    axes.margins(y=0.15)
    figure.legend(frameon=False, loc="outside right center")
    return figure, _describe(f"Bar chart of {y}", "", parts)


def save(figure: Any, words: str, path: Path) -> None:
    """Write the PNG, with its text alternative inside (Description) and in a .txt beside it."""
    if path.suffix.lower() != ".png":
        raise WorkbookError(f"{path} is not the name of a PNG file: let it end in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"Description": words, "Software": None}  # no version: always the same bytes
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata=metadata)
    path.with_suffix(".txt").write_text(words + "\n", encoding="utf-8")


class Picture:
    """A figure for a notebook: as HTML with its text alternative, and as PNG."""

    def __init__(self, figure: Any, words: str):
        from PIL import Image

        full = io.BytesIO()
        figure.savefig(full, dpi=200, bbox_inches="tight")
        image = Image.open(full).convert("RGB")
        image = image.quantize(64, Image.Quantize.FASTOCTREE)  # a fifth of the bytes
        small = io.BytesIO()
        image.save(small, format="PNG", optimize=True)
        self.words = words
        # Shown at 100 dots per inch: sharp also where a screen has two dots for one.
        self.width = image.width // 2
        self.png = base64.b64encode(small.getvalue()).decode()

    def _repr_mimebundle_(self, **_) -> tuple[dict, dict]:
        # As HTML first, because a notebook shows an image/png without its text alternative.
        alternative = html.escape(self.words, quote=True)
        source = f"data:image/png;base64,{self.png}"
        image = f'<img src="{source}" width="{self.width}" alt="{alternative}">'
        bundle = {"text/html": image, "image/png": self.png, "text/plain": self.words}
        return bundle, {"image/png": {"width": self.width}}


def show(figure: Any, words: str) -> None:
    """Display in a notebook as an image that carries its text alternative."""
    from IPython.display import display

    display(Picture(figure, words))
