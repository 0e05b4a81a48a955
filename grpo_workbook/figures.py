"""The plots. Each returns (figure, text alternative): the same finding in words, for those who cannot see it.

Colours are from Okabe and Ito's palette, which survives colour blindness; lines differ in style as well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#767676"
_STYLES = ((BLUE, "-"), (ORANGE, "--"), (GREEN, "-."), ("#CC79A7", ":"))


def smooth(values: Sequence[float], window: int = 7) -> list[float]:
    """The mean of each value and up to window - 1 before it."""
    return [sum(values[max(0, i - window + 1) : i + 1]) / (i + 1 - max(0, i - window + 1)) for i in range(len(values))]


def reward_curves(log: Sequence[dict]) -> tuple["Figure", str]:
    """Each reward function over the optimizer steps, from TRL's log history."""
    figure, axes = _new(7.0, 3.6)
    steps = [entry["step"] for entry in log if "reward" in entry]
    if not steps:
        raise ValueError("the log has no step with a reward: did training run with logging_steps=1?")
    names = sorted({k for e in log for k in e if k.startswith("rewards/") and k.endswith("/mean")})
    said = []
    for (key, name), (colour, style) in zip(
        [("reward", "total"), *((k, k.split("/")[1]) for k in names)], _STYLES, strict=False
    ):
        values = [e[key] for e in log if "reward" in e]
        axes.plot(steps, values, color=colour, alpha=0.18, linewidth=1)
        line = smooth(values)
        axes.plot(steps, line, color=colour, linestyle=style, linewidth=2, label=name)
        said.append(
            f"{name} goes from {_mean(values[:10]):.2f} (first 10 steps) to {_mean(values[-10:]):.2f} (last 10)"
        )
    axes.set(xlabel="optimizer step", ylabel="mean reward", title="Reward while training")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure, f"Line chart of mean reward over {len(steps)} optimizer steps: " + "; ".join(said) + "."


def before_after(before: dict, after: dict, n: int) -> tuple["Figure", str]:
    """Held-out accuracy before and after as bars; the whisker is the 95 % interval of the strict sampled one."""
    figure, axes = _new(7.0, 3.6)
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
            bar = axes.bar(
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
                f"{scores[key]:.0%}",
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
                    x + offset, scores[key], [[scores[key] - low], [high - scores[key]]], color="black", capsize=4
                )
        del bar
    axes.set(
        xticks=range(len(keys)),
        xticklabels=list(keys.values()),
        ylim=(0, 1.12),
        ylabel="share of problems",
        title=f"{n} held-out problems",
    )
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    said = "; ".join(f"{name} from {before[k]:.1%} to {after[k]:.1%}" for k, name in keys.items())
    return figure, f"Bar chart of accuracy on {n} held-out problems before and after training: {said}."


def length_histogram(counts: Sequence[int], budget: int) -> tuple["Figure", str]:
    """Prompt lengths in tokens as bars; those over the budget are hatched, and a line marks it."""
    from grpo_workbook.validation import histogram, percentiles

    figure, axes = _new(7.0, 3.2)
    for low, high, count in histogram(counts, bins=24):
        over = low > budget
        axes.bar(low, count, high - low, align="edge", color=ORANGE if over else BLUE, hatch="//" if over else "",
                 edgecolor="white")  # fmt: skip
    axes.axvline(budget, color="black", linestyle="--", linewidth=1.5)
    axes.annotate(f" budget: {budget}", (budget, axes.get_ylim()[1]), va="top")
    axes.set(xlabel="tokens in the prompt", ylabel="prompts", title="Prompt lengths")
    dropped, middle = sum(n > budget for n in counts), percentiles(counts)
    return figure, (
        f"Histogram of the lengths of {len(counts):,} prompts: from {middle[0]} to {middle[100]} tokens, half of them "
        f"at most {middle[50]}, 95 % at most {middle[95]}. {dropped:,} lie over the budget of {budget} tokens."
    )


def save(figure: "Figure", alternative: str, path: Path) -> None:
    """Write the PNG with its text alternative inside (as Description) and beside it (.txt)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # No software version in the file: the same run then gives the same bytes.
    figure.savefig(path, dpi=120, bbox_inches="tight", metadata={"Description": alternative, "Software": None})
    path.with_suffix(".txt").write_text(alternative + "\n", encoding="utf-8")


def show(figure: "Figure", alternative: str) -> None:
    """Display in a notebook as an image that carries its text alternative."""
    import base64
    import html
    import io

    from IPython.display import HTML, display

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110, bbox_inches="tight", metadata={"Software": None})
    image = base64.b64encode(buffer.getvalue()).decode()
    display(HTML(f'<img src="data:image/png;base64,{image}" alt="{html.escape(alternative, quote=True)}">'))


def _new(width: float, height: float):
    from matplotlib.figure import Figure  # no pyplot: no global state, no display needed

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    return figure, axes


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
