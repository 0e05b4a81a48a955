"""Every plot of the course: each function returns (figure, text alternative made from the data).

`finding` is the lesson's own sentence before it. The colours are Okabe and Ito's; dash, marker and
hatch differ too, so a chart can be read without colours.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_workbook.errors import WorkbookError

Drawn = tuple[Any, str]  # a matplotlib Figure and its text alternative
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
PALE = {"data": "#DCE9F5", "model": "#FFFFFF", "check": "#E0F0E3", "number": "#FBE7D3"}
PALE["off"] = "#EEEEEE"
_COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", GREY, "#56B4E9", "#000000")
_DASHES, _MARKERS = ("-", "--", "-.", ":"), "os^Dx"
# (colour, dash, marker) of the first, second, ... line of a chart; they repeat only after 28
STYLES = [(_COLOURS[i % 7], _DASHES[i % 4], _MARKERS[i % 5]) for i in range(28)]


def new_panels(width: float = 7.0, height: float = 3.6, count: int = 1, across: int = 1):
    """(figure, its `count` axes, `across` in a row) in the course's style; sizes in inches."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display needed

    figure = Figure(figsize=(width, height), layout="constrained")
    grid = list(figure.subplots(-(-count // across), across, squeeze=False).flat)
    for i, axes in enumerate(grid):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        axes.set_visible(i < count)
    return figure, grid[:count]


def _words(kind: str, finding: str, parts: Mapping[str, str]) -> str:
    said = "; ".join(f"{name}: {text}" for name, text in parts.items()) + "."
    return " ".join(filter(None, [f"{kind}.", finding, said]))


def _number(value: float) -> str:
    return f"{0.0 if abs(value) < 1e-6 else float(value):.3g}"  # no 1.8e-07 of rounding


def diagram(boxes: Mapping, arrows: Sequence = (), size: tuple[float, float] = (8.0, 3.0)) -> Any:
    """A figure of `boxes` {name: (x, y, words, colour)}, x and y from 0 to 1, and of `arrows`
    (from, to, words) or (from, to, words, bend), such as a bend of 0.3, or -0.3 to the other side.
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
    for start, end, words, *bend in arrows:
        (x0, y0), (x1, y1) = (drawn[name].get_position() for name in (start, end))
        rad = bend[0] if bend else 0.0
        line = {"arrowstyle": "-|>", "color": GREY, "connectionstyle": f"arc3,rad={rad}"}
        line |= {f"patch{k}": drawn[n].get_bbox_patch() for k, n in (("A", start), ("B", end))}
        axes.annotate("", (x1, y1), (x0, y0), arrowprops=line | {"shrinkA": 2, "shrinkB": 2})
        dx, dy = (x1 - x0) * size[0], (y1 - y0) * size[1]  # the middle of the arc, in inches
        x, y = (x0 + x1) / 2 + rad * dy / 2 / size[0], (y0 + y1) / 2 - rad * dx / 2 / size[1]
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        if words:
            axes.text(x, y, words, ha="center", va="center", fontsize=9, color="#444", bbox=paper)
    return figure


def line_chart(series: Mapping, *, x: str, y: str, title: str, finding="", markers=True) -> Drawn:
    """A line for each of {name: (x values, y values)}."""
    (figure, (axes,)), parts = new_panels(), {}
    for (name, (xs, ys)), (colour, dash, marker) in zip(series.items(), STYLES, strict=False):
        axes.plot(xs, ys, dash, c=colour, marker=marker if markers else "", ms=4, lw=2, label=name)
        parts[name] = ", ".join(f"{_number(ys[i])} at {_number(xs[i])}" for i in (0, -1))
    axes.set(xlabel=x, ylabel=y, title=title)
    figure.legend(frameon=False, loc="outside right center")
    return figure, _words(f"Line chart of {y} over {x}", finding, parts)


def bar_panels(panels: Mapping, labels: Sequence[str], *, y: str, title: str, finding="") -> Drawn:
    """A bar chart for each {name: a value for each label}, on one scale; a cross is a 0."""
    across, parts = min(4, len(panels)), {}
    height = 0.8 + 1.7 * -(-len(panels) // across)
    figure, grid = new_panels(max(7.0, 2.3 * across), height, len(panels), across)
    top = max(max(values) for values in panels.values())
    for axes, (name, values) in zip(grid, panels.items(), strict=True):
        axes.bar(range(len(labels)), values, 0.8, color=BLUE)
        crosses = [i for i, value in enumerate(values) if value == 0]
        if crosses:  # an unclipped line without points would upset the layout
            axes.plot(crosses, [0.0] * len(crosses), "x", color=ORANGE, markersize=6, clip_on=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(0, 1.05 * top)
        pairs = zip(values, labels, strict=True)
        parts[name] = ", ".join(f"{_number(v)} for {label}" for v, label in pairs)
    figure.supylabel(y, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure, _words(f"{len(panels)} small bar charts of {y}", finding, parts)


def reward_curves(log: Sequence[dict]) -> Drawn:
    """Each reward function by step from TRL's log history: raw values pale, means of 7 steps."""
    import pandas as pd

    table = pd.DataFrame([entry for entry in log if "reward" in entry])
    if table.empty:
        raise ValueError("the log has no step with a reward: was it logged with logging_steps=1?")
    raw, lines = {}, {}
    for key in sorted(table.filter(regex="^reward$|^rewards/.*/mean$")):
        name = "total" if key == "reward" else key.split("/")[1].removesuffix("_reward")
        raw[name] = values = table.set_index("step")[key].dropna()
        lines[name] = list(values.index), list(values.rolling(7, 1, center=True).mean())
    x, y, title = "optimizer step", "mean reward (of 7 steps)", "Reward while training"
    figure, words = line_chart(lines, x=x, y=y, title=title, markers=False)
    for values, (colour, _, _) in zip(raw.values(), STYLES, strict=False):
        figure.axes[0].plot(values.index, values, color=colour, alpha=0.18, linewidth=1)
    return figure, words


def before_after(heldout: Mapping[str, Mapping]) -> Drawn:
    """Held-out accuracy before and after training, from `evaluation.report_heldout`."""
    bars = {
        "strict, sampled": heldout["sampled"]["strict"],
        "strict, greedy": heldout["greedy"]["strict"],
        "lenient, sampled": heldout["sampled"]["lenient"],
    }
    figure, (axes,) = new_panels()
    parts = {}
    for side, shift, colour, hatch in (("before", -0.2, GREY, ""), ("after", 0.2, BLUE, "//")):
        rates = [change[side] for change in bars.values()]
        intervals = [change[f"{side}_interval"] for change in bars.values()]
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
    strict = heldout["sampled"]["strict"]
    rise = f"{strict['before']:.0%} to {strict['after']:.0%}"
    title = f"{heldout['sampled']['n']} held-out problems: {rise} strict, sampled"
    y = "accuracy, with 95 % intervals"
    axes.set(xticks=range(len(bars)), xticklabels=list(bars), ylabel=y, title=title)
    axes.margins(y=0.15)
    figure.legend(frameon=False, loc="outside right center")
    return figure, _words(f"Bar chart of {y}", "", parts)


def save(figure: Any, words: str, path: Path) -> None:
    """Write the PNG, with its text alternative inside (Description) and in a .txt beside it."""
    if path.suffix.lower() != ".png":
        raise WorkbookError(f"{path} is not the name of a PNG file: let it end in .png")
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"Description": words, "Software": None}  # no version, so that the bytes are the same
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata=about)
    path.with_suffix(".txt").write_text(words + "\n", encoding="utf-8")


class Picture:
    """A figure for a notebook: as HTML with its text alternative, and as PNG."""

    def __init__(self, figure: Any, words: str):
        from PIL import Image

        buffer, small = io.BytesIO(), io.BytesIO()
        figure.savefig(buffer, dpi=200, bbox_inches="tight")
        image = Image.open(buffer).convert("RGB").quantize(64, 2)  # octree: a fifth of the bytes
        image.save(small, format="PNG", optimize=True)
        self.words, self.width = words, image.width // 2
        self.png = base64.b64encode(small.getvalue()).decode()

    def _repr_mimebundle_(self, **_) -> tuple[dict, dict]:
        alt = html.escape(self.words, quote=True)
        image = f'<img src="data:image/png;base64,{self.png}" width="{self.width}" alt="{alt}">'
        found = {"text/html": image, "image/png": self.png, "text/plain": self.words}
        return found, {"image/png": {"width": self.width}}


def show(figure: Any, words: str) -> None:
    """Display in a notebook as an image that carries its text alternative."""
    from IPython.display import display

    display(Picture(figure, words))
