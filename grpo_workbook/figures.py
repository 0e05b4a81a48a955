"""Every plot of the course: each function returns (figure, text alternative), the finding in words.

The words are made from the data and cannot drift from it; `finding` puts the lesson's own sentence
before them. Colours are Okabe and Ito's, which survive colour blindness; dash, marker and hatch
differ as well, so that no colour is needed.
"""

import base64
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawn = tuple["Figure", str]  # a figure and its text alternative
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]  # {name: (x values, y values)}
Bars = Mapping[str, Sequence[float]]  # {name: a value for each label}
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
_COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", GREY, "#56B4E9", "#000000")
_DASHES, _MARKERS, HATCHES = ("-", "--", "-.", ":"), "os^Dx", ("", "//", "..", "xx", "--")
# (colour, dash, marker) of the first, second, ... line of a chart; they repeat only after 28
STYLES = [(_COLOURS[i % 7], _DASHES[i % 4], _MARKERS[i % 5]) for i in range(28)]


def new_panels(width: float, height: float, rows: int = 1, columns: int = 1):
    """(figure, the list of its axes, row by row) in the look of the course; inches."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display needed

    figure = Figure(figsize=(width, height), layout="constrained")
    grid: list[Axes] = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    return figure, grid


def new_axes(width: float = 7.0, height: float = 3.6) -> tuple["Figure", "Axes"]:
    """(figure, axes) of that many inches, in the look of the course."""
    figure, (axes,) = new_panels(width, height)
    return figure, axes


def _legend(axes: "Axes") -> None:
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _words(kind: str, finding: str, parts: Mapping[str, str]) -> str:
    said = "; ".join(f"{name}: {text}" for name, text in parts.items()) + "."
    return " ".join(filter(None, [f"{kind}.", finding, said]))


def _number(value: float, form: str = ".3g") -> str:
    return format(0.0 if abs(value) < 1e-6 else float(value), form)  # no 1.8e-07 of rounding


def _values(values: Sequence[float], labels: Sequence[str], form: str = ".3g") -> str:
    pairs = zip(values, labels, strict=True)
    return ", ".join(f"{_number(value, form)} for {label}" for value, label in pairs)


def smooth(values: Sequence[float], window: int = 7) -> list[float]:
    """The mean of each value and up to window - 1 before it."""
    return [mean(values[max(0, i - window + 1) : i + 1]) for i in range(len(values))]


def line_chart(
    series: Lines, *, x: str, y: str, title: str, finding="", log_x=False, markers=True
) -> Drawn:
    """One line for each name: (x values, y values), as many of each; `log_x` has base 2."""
    (figure, axes), parts = new_axes(), {}
    for (name, (xs, ys)), (colour, dash, marker) in zip(series.items(), STYLES, strict=False):
        axes.plot(xs, ys, dash, color=colour, marker=marker * markers, ms=4, lw=2, label=name)
        parts[name] = ", ".join(f"{_number(ys[i])} at {_number(xs[i])}" for i in (0, -1))
    if log_x:
        axes.set_xscale("log", base=2)
        ticks = sorted({float(v) for xs, _ in series.values() for v in xs})
        axes.set_xticks(ticks, [_number(v) for v in ticks])
        axes.minorticks_off()
    axes.set(xlabel=x, ylabel=y, title=title)
    _legend(axes)
    return figure, _words(f"Line chart of {y} over {x}", finding, parts)


def bar_chart(
    series: Bars, labels: Sequence[str], *, y: str, title: str, finding="", form=".3g", ci=None
) -> Drawn:
    """Bars in groups: for each name one value per label, written above its bar as `form` says.

    `ci`: {name: the (low, high) of its first value}, drawn as a whisker.
    """
    figure, axes = new_axes()
    width, parts = 0.8 / len(series), {}
    for i, (name, values) in enumerate(series.items()):
        parts[name] = _values(values, labels, form)
        places = [k + (i - (len(series) - 1) / 2) * width for k in range(len(labels))]
        bars = axes.bar(places, values, width * 0.94, color=STYLES[i][0], label=name)
        for bar in bars:
            bar.set(hatch=HATCHES[i % 5], edgecolor="white")
        text = axes.bar_label(bars, [_number(v, form) for v in values], padding=2, fontsize=9)
        if ci and name in ci:
            low, high = ci[name]
            ends = [[values[0] - low], [high - values[0]]]
            axes.errorbar(places[0], values[0], ends, color="black", capsize=4)
            parts[name] += f" (95 % interval of the first: {low:{form}} to {high:{form}})"
            text[0].xy = (text[0].xy[0], high)  # above the whisker
    axes.set(xticks=range(len(labels)), xticklabels=labels, ylabel=y, title=title)
    axes.margins(y=0.15)
    _legend(axes)
    return figure, _words(f"Bar chart of {y}", finding, parts)


def bar_panels(
    panels: Bars, labels: Sequence[str], *, y: str, title: str, finding="", muted=()
) -> Drawn:
    """A small bar chart for each name on one scale, four in a row; a value of 0 is a cross.

    `muted`: the places of the labels whose bars are grey and hatched.
    """
    across = min(4, len(panels))
    rows = -(-len(panels) // across)
    figure, grid = new_panels(max(7.0, 2.3 * across), 0.8 + 1.7 * rows, rows, across)
    top = max(max(values) for values in panels.values())
    for axes, (name, values) in zip(grid, panels.items(), strict=False):
        for i, bar in enumerate(axes.bar(range(len(labels)), values, 0.8, color=BLUE)):
            if i in muted:
                bar.set(facecolor="#BBBBBB", hatch="//", edgecolor="white")
            if values[i] == 0:
                axes.plot(i, 0.0, "x", color=ORANGE, markersize=6, clip_on=False)
        axes.set_title(name, fontsize=9, loc="left")
        axes.set_xticks(range(len(labels)), labels, fontsize=8)
        axes.set_ylim(0, 1.05 * top)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    figure.supylabel(y, fontsize=9)
    figure.suptitle(title, fontsize=11)
    parts = {name: _values(values, labels) for name, values in panels.items()}
    return figure, _words(f"{len(panels)} small bar charts of {y}", finding, parts)


def reward_curves(log: Sequence[dict]) -> Drawn:
    """Each reward function over the steps of TRL's log history, smoothed over the faint steps."""
    log = [entry for entry in log if "reward" in entry]
    if not log:
        raise ValueError("the log has no step with a reward: was it logged with logging_steps=1?")
    keys = sorted({k for e in log for k in e if k.startswith("rewards/") and k.endswith("/mean")})
    raw = {}
    for key in ("reward", *keys):
        there = [e for e in log if e.get(key) is not None]
        name = "total" if key == "reward" else key.split("/")[1].removesuffix("_reward")
        raw[name] = ([e["step"] for e in there], [e[key] for e in there])
    lines, x, y = (
        {n: (xs, smooth(ys)) for n, (xs, ys) in raw.items()},
        "optimizer step",
        "mean reward",
    )
    figure, words = line_chart(lines, x=x, y=y, title="Reward while training", markers=False)
    for (xs, ys), (colour, _, _) in zip(raw.values(), STYLES, strict=False):
        figure.axes[0].plot(xs, ys, color=colour, alpha=0.18, linewidth=1)
    return figure, words


def before_after(before: dict, after: dict, n: int) -> Drawn:
    """Held-out accuracy before and after training, from `evaluation.summary`, on `n` problems."""
    keys, title = ("strict_sampled", "strict_greedy", "lenient_sampled"), f"{n} held-out problems"
    both = {"before": before, "after": after}
    bars = {name: [scores[key] for key in keys] for name, scores in both.items()}
    whiskers = {name: scores["ci95"] for name, scores in both.items()}
    labels = [key.replace("_", ", ") for key in keys]
    return bar_chart(bars, labels, y="accuracy", title=title, form=".1%", ci=whiskers)


def length_histogram(counts: Sequence[int], budget: int) -> Drawn:
    """Prompt lengths in tokens on a logarithmic scale; those over the budget are hatched."""
    import numpy as np

    figure, axes = new_axes(7.0, 3.2)
    fit, over = ([n for n in counts if (n > budget) is long] for long in (False, True))
    edges = np.unique(np.linspace(min(counts), max(counts) + 1, 25).round())
    look: dict[str, Any] = {"color": [BLUE, ORANGE], "label": ["fit", "over"], "hatch": ["", "//"]}
    axes.hist([fit, over], edges.tolist(), stacked=True, **look)
    axes.axvline(budget, color="black", linestyle="--", linewidth=1.5)
    axes.set(xlabel="tokens in the prompt", ylabel="prompts (log scale)", title="Prompt lengths")
    axes.set_yscale("log")
    _legend(axes)
    low, half, most, high = np.percentile(counts, (0, 50, 95, 100), method="inverted_cdf")
    return figure, (
        f"Histogram of the lengths of {len(counts):,} prompts: {low} to {high} tokens, half at "
        f"most {half}, 95 % at most {most}. {len(over):,} are over the budget of {budget} tokens."
    )


def reward_distributions(groups: Mapping[str, Sequence[Sequence[float | None]]]):
    """The rewards in each group, a panel per function; groups of equal rewards are grey crosses.

    `groups` is {function: groups}; None stands where the function does not apply.
    """
    figure, grid = new_panels(7.0, 0.5 + 1.15 * len(groups), len(groups), 1)
    parts = {}
    for axes, (name, table) in zip(grid, groups.items(), strict=True):
        equal = [len(set(group)) == 1 for group in table]
        for x, group in enumerate(table, 1):
            values = sorted(v for v in group if v is not None)
            colour, marker = (GREY, "x") if equal[x - 1] else (BLUE, "o")
            places = [x + 0.5 * (i + 0.5) / len(values) - 0.25 for i in range(len(values))]
            axes.scatter(places, values, s=14, linewidths=1, color=colour, marker=marker)
        told = f"{sum(equal)} of {len(table)} groups all equal"
        axes.set_title(f"{name.removesuffix('_reward')}: {told}", fontsize=10, loc="left")
        axes.set(xticks=range(1, len(table) + 1), xlim=(0.4, len(table) + 0.6))
        axes.margins(y=0.2)
        given = [v for group in table for v in group if v is not None]
        parts[name] = f"mean {_number(mean(given))}, {told}" if given else f"never applies, {told}"
    figure.supxlabel("group (a dot per completion; grey crosses: all equal, no gradient)")
    figure.supylabel("reward")
    return figure, _words("Dot plot of rewards within groups", "", parts)


def attack_rates(earned: Mapping[str, Mapping[str, Sequence[float]]]) -> Drawn:
    """What attacks earn, as a fraction of the honest answer's reward; 1 or more gets through.

    `earned` is {rewards: {kind of attack: fractions}}; dots stay between -0.5 and 1.5.
    """
    kinds, parts = list(next(iter(earned.values()))), {}
    figure, axes = new_axes(7.0, 0.9 + 0.3 * len(kinds))
    for i, (name, table) in enumerate(earned.items()):
        dots = [(v, row) for row, kind in enumerate(kinds) for v in table[kind]]
        places = [(min(1.5, max(-0.5, v)), row + 0.3 * i - 0.15) for v, row in dots]
        (colour, _, marker), through = STYLES[i], sum(v >= 1 for v, _ in dots)
        axes.scatter(*zip(*places, strict=True), color=colour, marker=marker, s=18, label=name)
        parts[name] = f"{through} of {len(dots)} get through, at most {max(dots)[0]:.0%}"
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set(yticks=range(len(kinds)), yticklabels=kinds, title="What attacks earn")
    axes.set_xlabel("fraction of the honest answer's reward (1 and more: gets through)")
    axes.invert_yaxis()
    _legend(axes)
    return figure, _words(f"Dot plot of {len(kinds)} kinds of attack", "", parts)


def stage_curve(curves: Mapping[str, Sequence], goal: float | None = None) -> Drawn:
    """Held-out accuracy over all stages: {stage: [(optimizer step, accuracy), ...]}."""
    lines = {name: ([x for x, _ in at], [y for _, y in at]) for name, at in curves.items()}
    title = "A new stage begins at each dotted line" if len(lines) > 1 else "One stage"
    x, y = "optimizer step, over all stages", "strictly right, held out"
    figure, words = line_chart(lines, x=x, y=y, title=title)
    for xs, _ in list(lines.values())[1:]:
        figure.axes[0].axvline(xs[0], color="black", linestyle=":", linewidth=1)
    if goal is not None:
        figure.axes[0].axhline(goal, color=GREY, linewidth=1)
        words += f" A grey line marks {goal:.0%}."
    return figure, words


def pass_rate_histogram(measured: Mapping[str, Sequence[float]], samples: int, low=0.0, high=1.0):
    """How many rows have each pass rate; grey and hatched: what a curriculum(low, high) leaves out.

    `measured` is {title: pass rates of `samples` completions}, a panel each.
    """
    places = range(samples + 1)
    rows = {n: [round(rate * samples) for rate in rates] for n, rates in measured.items()}
    counts = {name: [found.count(k) for k in places] for name, found in rows.items()}
    left_out = [k for k in places if not low < k / samples < high]
    title = f"Right completions of {samples}; grey: left out"
    return bar_panels(counts, [str(k) for k in places], y="rows", title=title, muted=left_out)


def save(figure: "Figure", words: str, path: Path) -> None:
    """Write the PNG with its text alternative inside (as Description) and beside it (.txt)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"Description": words, "Software": None}  # no version: the same run, the same bytes
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata=about)
    path.with_suffix(".txt").write_text(words + "\n", encoding="utf-8")


def as_html(figure: "Figure", words: str):
    """The figure as an image for a notebook, with its text alternative."""
    from IPython.core.display import HTML

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, bbox_inches="tight", metadata={"Software": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    return HTML(f'<img src="data:image/png;base64,{image}" alt="{html.escape(words, quote=True)}">')


def show(figure: "Figure", words: str) -> None:
    """Display in a notebook as an image that carries its text alternative."""
    from IPython.display import display

    display(as_html(figure, words))
