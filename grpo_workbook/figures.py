"""The plots. Each returns (figure, text alternative): the same finding in words, for those who cannot see it.

Colours are from Okabe and Ito's palette, which survives colour blindness; lines differ in style as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.lengths import histogram, percentiles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
_COLOURS = (BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":")


def smooth(values: Sequence[float], window: int = 7) -> list[float]:
    """The mean of each value and up to window - 1 before it."""
    return [
        sum(values[max(0, i - window + 1) : i + 1]) / (i + 1 - max(0, i - window + 1))
        for i in range(len(values))
    ]


def reward_curves(log: Sequence[dict]) -> tuple["Figure", str]:
    """Each reward function over the optimizer steps, from TRL's log history (`trainer.state.log_history`).

    Raises ValueError when no entry has a reward.
    """
    figure, axes = new_axes(7.0, 3.6)
    steps = [entry["step"] for entry in log if "reward" in entry]
    if not steps:
        raise ValueError(
            "the log has no step with a reward: did training run with logging_steps=1?"
        )
    names = sorted(
        {
            k
            for e in log
            if "reward" in e
            for k in e
            if k.startswith("rewards/") and k.endswith("/mean")
        }
    )
    said, few = [], min(10, len(steps))
    for i, (key, name) in enumerate(
        [("reward", "total"), *((k, k.split("/")[1].removesuffix("_reward")) for k in names)]
    ):
        colour, style = _COLOURS[i % len(_COLOURS)], _DASHES[i % len(_DASHES)]
        at, values = zip(
            *((e["step"], e[key]) for e in log if "reward" in e and key in e), strict=True
        )
        axes.plot(at, values, color=colour, alpha=0.18, linewidth=1)
        axes.plot(at, smooth(values), color=colour, linestyle=style, linewidth=2, label=name)
        said.append(
            f"{name} goes from {_mean(values[:few]):.2f} (first {few} steps) to {_mean(values[-few:]):.2f} (last {few})"
        )
    axes.set(xlabel="optimizer step", ylabel="mean reward", title="Reward while training")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure, f"Line chart of mean reward over {len(steps)} optimizer steps: " + "; ".join(
        said
    ) + "."


def before_after(before: dict, after: dict, n: int) -> tuple["Figure", str]:
    """Held-out accuracy before and after as bars; the whisker is the 95 % interval of the strict sampled one.

    `before` and `after` are from evaluate.summary (shares from 0 to 1), `n` is how many problems were measured.
    """
    figure, axes = new_axes(7.0, 3.6)
    keys = {
        "strict_sampled": "strict, sampled",
        "strict_greedy": "strict, greedy",
        "lenient_sampled": "lenient, sampled",
    }
    for offset, scores, colour, hatch, label in (
        (-0.19, before, GREY, "//", "before"),
        (0.19, after, BLUE, "", "after"),
    ):
        for x, key in enumerate(keys):
            axes.bar(
                x + offset,
                scores[key],
                0.36,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                label=label if x == 0 else None,
            )
            top = scores["ci95"][1] if key == "strict_sampled" else scores[key]
            axes.annotate(
                f"{scores[key]:.1%}",
                (x + offset, top),
                ha="center",
                va="bottom",
                fontsize=10,
                xytext=(0, 2),
                textcoords="offset points",
            )
            if key == "strict_sampled":
                low, high = scores["ci95"]
                axes.errorbar(
                    x + offset,
                    scores[key],
                    [[scores[key] - low], [high - scores[key]]],
                    color="black",
                    capsize=4,
                )
    axes.set(
        xticks=range(len(keys)),
        xticklabels=list(keys.values()),
        ylim=(0, 1.12),
        ylabel="share of problems",
        title=f"{n} held-out problems",
    )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    said = "; ".join(f"{name} from {before[k]:.1%} to {after[k]:.1%}" for k, name in keys.items())
    low, high = after["ci95"]
    return figure, (
        f"Bar chart of accuracy on {n} held-out problems before and after training: {said}. "
        f"The 95 % interval of the first is {low:.1%} to {high:.1%} after training."
    )


def length_histogram(counts: Sequence[int], budget: int) -> tuple["Figure", str]:
    """Prompt lengths in tokens as bars on a logarithmic scale, so that a few long ones are seen.

    Those over the budget are hatched, and a line marks it. Raises ValueError for no prompts.
    """
    figure, axes = new_axes(7.0, 3.2)
    for low, high, count in histogram(counts, bins=24):
        over = sum(max(low, budget + 1) <= n < high for n in counts)
        bar = {"width": high - low, "align": "edge", "edgecolor": "white"}
        axes.bar(low, count - over, color=BLUE, **bar)
        axes.bar(low, over, bottom=count - over, color=ORANGE, hatch="//", **bar)
    axes.bar(min(counts), 0, color=BLUE, label="fit")
    axes.bar(min(counts), 0, color=ORANGE, hatch="//", edgecolor="white", label="over the budget")
    axes.set_yscale("log")
    axes.set_ylim(0.7, 2 * axes.get_ylim()[1])
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.axvline(budget, color="black", linestyle="--", linewidth=1.5)
    axes.annotate(f" budget: {budget}", (budget, axes.get_ylim()[1]), va="top")
    axes.set(xlabel="tokens in the prompt", ylabel="prompts (log scale)", title="Prompt lengths")
    dropped, middle = sum(n > budget for n in counts), percentiles(counts)
    return figure, (
        f"Histogram of the lengths of {len(counts):,} prompts: from {middle[0]} to {middle[100]} tokens, half of them "
        f"at most {middle[50]}, 95 % at most {middle[95]}. {dropped:,} lie over the budget of {budget} tokens."
    )


def reward_distributions(
    groups: dict[str, Sequence[Sequence[float | None]]],
) -> tuple["Figure", str]:
    """For each reward function, the rewards within each group; groups whose rewards are all equal are grey crosses.

    `groups` is {name: groups}, a group the rewards of one prompt's completions, None where the function does not apply.
    Raises ValueError for no function.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 0.5 + 1.15 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    said = []
    for axes, (name, table) in zip(panels, groups.items(), strict=True):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
        equal = 0
        for x, group in enumerate(table, 1):
            values = [v for v in group if v is not None]
            same = len(set(group)) == 1
            equal += same
            # Side by side where they are equal, so that each completion is seen.
            shift = [0.5 * (i + 0.5) / len(values) - 0.25 for i in range(len(values))]
            how = {"color": GREY, "marker": "x"} if same else {"color": BLUE, "marker": "o"}
            axes.scatter([x + s for s in shift], sorted(values), s=14, linewidths=1, **how)
        axes.set_title(
            f"{name.removesuffix('_reward')}: {equal} of {len(table)} groups all equal",
            fontsize=10,
            loc="left",
        )
        given = [v for group in table for v in group if v is not None]
        axes.margins(y=0.2)
        if len(set(given)) == 1:
            axes.set_ylim(given[0] - 0.5, given[0] + 0.5)
        axes.set_xticks(range(1, len(table) + 1))
        said.append(
            f"{name} has a mean of {_mean(given):.2f}, and all rewards are equal in {equal}"
            if given
            else f"{name} applies to none, and is equal in {equal}"
        )
    panels[-1].set_xlabel(
        "group (one dot for each completion; grey crosses: all equal, no gradient)"
    )
    figure.supylabel("reward", fontsize=10)
    count = len(next(iter(groups.values())))
    return figure, f"Dot plot of rewards within {count} groups, by reward function: " + "; ".join(
        said
    ) + "."


def attack_shares(earned: dict[str, dict[str, Sequence[float]]]) -> tuple["Figure", str]:
    """What attacks earn as a share of the honest answer: a row for each kind, a colour for each set of rewards.

    `earned` is {rewards: {kind: shares}}, of exactly two sets of rewards (else ValueError). A share of 1 or more gets
    through; what lies outside of -0.5 to 1.5 is drawn at the edge.
    """
    kinds = list(next(iter(earned.values())))
    figure, axes = new_axes(7.0, 0.9 + 0.26 * len(kinds))
    axes.grid(axis="y", visible=False)
    axes.axvline(1.0, color="black", linewidth=1)
    said = []
    for (name, table), colour, marker, shift in zip(
        earned.items(), (ORANGE, BLUE), ("x", "o"), (-0.15, 0.15), strict=True
    ):
        for row, kind in enumerate(kinds):
            values = [min(1.5, max(-0.5, v)) for v in table[kind]]
            label = name if row == 0 else None
            axes.scatter(
                values,
                [row + shift] * len(values),
                s=16,
                linewidths=1,
                color=colour,
                marker=marker,
                label=label,
            )
        for row, kind in enumerate(kinds):
            if through := sum(v >= 1 for v in table[kind]):
                axes.text(
                    1.64,
                    row + shift,
                    f"{through} of {len(table[kind])}",
                    color=colour,
                    va="center",
                    fontsize=9,
                )
        every = [v for kind in kinds for v in table[kind]]
        through = sum(v >= 1 for v in every)
        said.append(
            f"{name}: {through} of {len(every)} get through, the best earns {max(every):.0%}"
        )
    axes.text(1.64, -1, "get through:", va="center", fontsize=9)
    axes.set(
        yticks=range(len(kinds)), yticklabels=kinds, xlim=(-0.6, 1.6), title="What attacks earn"
    )
    axes.set_xlabel(
        "share of the honest answer's reward (on the line or right of it: gets through)"
    )
    axes.invert_yaxis()
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.12, 0.5))
    return (
        figure,
        f"Dot plot of {len(kinds)} kinds of attack against {len(earned)} sets of rewards. "
        + "; ".join(said)
        + ".",
    )


def save(figure: "Figure", alternative: str, path: Path) -> None:
    """Write the PNG with its text alternative inside (as Description) and beside it (.txt), with the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # No software version in the file: the same run then gives the same bytes.
    figure.savefig(
        path, dpi=120, bbox_inches="tight", metadata={"Description": alternative, "Software": None}
    )
    path.with_suffix(".txt").write_text(alternative + "\n", encoding="utf-8")


def show(figure: "Figure", alternative: str) -> None:
    """Display in a notebook as an image that carries its text alternative."""
    from IPython.display import display

    display(as_html(figure, alternative))


def as_html(figure: "Figure", alternative: str):
    """The figure as an image for a notebook, with its text alternative."""
    import base64
    import html
    import io

    from IPython.display import HTML

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, bbox_inches="tight", metadata={"Software": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    return HTML(
        f'<img src="data:image/png;base64,{image}" alt="{html.escape(alternative, quote=True)}">'
    )


def new_axes(width: float, height: float) -> tuple["Figure", "Axes"]:
    """(figure, axes) of that many inches, in the look of the course."""
    from matplotlib.figure import Figure  # no pyplot: no global state, no display needed

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    return figure, axes


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
