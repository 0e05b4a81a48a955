"""What other sizes cost, drawn: memory and time against group size, completion length and model; up to 1,000 GPUs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.figures import BLUE, GREEN, GREY, ORANGE
from grpo_workbook.planning.architectures import architecture
from grpo_workbook.planning.estimate import Estimate, model_sizes
from grpo_workbook.planning.memory import GIB, memory
from grpo_workbook.planning.step_time import GPUS, saturation, step_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GROUPS, LENGTHS = (2, 4, 8, 16, 32), (128, 256, 512, 1024, 2048)
COUNTS = tuple(2**n for n in range(11))  # 1 to 1,024 GPUs
# Colour, dash, marker, and hatch of a bar: each of them tells the lines apart.
_TIMES = (
    ("generation", BLUE, "-", "o"),
    ("update", ORANGE, "--", "s"),
    ("communication", GREEN, "-.", "^"),
)
_MEMORY = (("always", GREY, ""), ("generation", BLUE, "//"), ("update", ORANGE, ".."))


def cost_panels(e: Estimate) -> tuple["Figure", str]:
    """Memory (bars, GiB) and seconds of a step (lines) against group size, completion length and model size.

    With each group size the number of problems in a step stays the same. Needs a GPU profile: WorkbookError for others.
    """
    from matplotlib.figure import Figure

    if e.profile not in GPUS:
        raise WorkbookError(
            f"the profile {e.profile!r} has no GPU to draw: choose from {', '.join(GPUS)}"
        )
    a, s, gpu = architecture(e.model), e.settings, GPUS[e.profile]
    maker = "gemma-3-" if a.model_type.startswith("gemma") else "qwen3-"
    columns: dict[str, dict] = {
        "completions in a group": {g: (a, _group(s, g)) for g in GROUPS},
        "longest completion, tokens": {
            n: (a, replace(s, max_completion_length=n)) for n in LENGTHS
        },
        "model": model_sizes(e.profile, s, maker),
    }
    figure = Figure(figsize=(10.5, 5.4), layout="constrained")
    grid, said = figure.subplots(2, 3), []
    for column, (title, cases) in enumerate(columns.items()):
        names = [str(name).removeprefix(maker) for name in cases]
        memories = [memory(*case, gib=gpu.gib) for case in cases.values()]
        times = [step_seconds(*case, gpu) for case in cases.values()]
        _memory_bars(grid[0, column], names, memories, (e.budget or 0) / GIB)
        for part, colour, dash, marker in _TIMES[:2]:
            values = [t[part] for t in times]
            grid[1, column].plot(
                names, values, color=colour, linestyle=dash, marker=marker, markersize=4, label=part
            )
        grid[1, column].set_xlabel(title)
        grid[1, column].set_ylim(bottom=0)
        totals, seconds = [m.total / GIB for m in memories], [sum(t.values()) for t in times]
        said.append(
            f"{title} from {names[0]} to {names[-1]}: {totals[0]:.1f} to {totals[-1]:.1f} GiB, "
            f"{seconds[0]:.0f} to {seconds[-1]:.0f} s a step"
        )
    grid[0, 0].set_ylabel("GiB")
    grid[1, 0].set_ylabel("seconds of a step")
    for axes in (grid[0, 2], grid[1, 2]):
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    for axes in grid.flat:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", alpha=0.25)
    title = f"{e.model} on {e.profile}: computed, not measured"
    figure.suptitle(title, fontsize=11)
    limit = (
        f" The dashed line is the memory that can be used, {e.budget / GIB:.1f} GiB."
        if e.budget
        else ""
    )
    return figure, f"Bars of memory and lines of time. {title}. " + "; ".join(said) + "." + limit


def _memory_bars(axes, names: Sequence[str], memories: Sequence, budget: float) -> None:
    """Beside each other what generation and update take, each on top of what is always there."""
    for shift, (phase, colour, hatch) in zip((-0.2, 0.2), _MEMORY[1:], strict=True):
        places = [x + shift for x in range(len(names))]
        bottom = [sum(m.always.values()) / GIB for m in memories]
        sizes = [sum(getattr(m, phase).values()) / GIB for m in memories]
        axes.bar(places, bottom, 0.38, color=GREY, label="always" if shift < 0 else None)
        axes.bar(
            places,
            sizes,
            0.38,
            bottom=bottom,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=phase,
        )
    if budget:
        axes.axhline(budget, color="black", linestyle="--", linewidth=1, label="can be used")
    axes.set_xticks(range(len(names)), names)


def _group(s: RunConfig, group: int) -> RunConfig:
    return replace(s, num_generations=group, batch_size=s.prompts_per_step * group)


def gpu_counts(e: Estimate, batch: int = 1024) -> tuple["Figure", str]:
    """Seconds of a step of `batch` completions on 1 to 1,024 A100s, in 16 bits, generated by vLLM: (figure, words)."""
    from matplotlib.figure import Figure

    a = architecture(e.model)
    s = replace(e.settings, dtype="bfloat16", load_in_4bit=False, batch_size=batch, vllm="server")
    found, stuck, count = saturation(a, s, GPUS["80gb"], COUNTS)
    figure = Figure(figsize=(7.0, 3.8), layout="constrained")
    axes = figure.subplots()
    for part, colour, dash, marker in _TIMES:
        points = [(n, seconds[part]) for n, seconds in found.items() if seconds[part] > 0]
        axes.plot(
            *zip(*points, strict=True),
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=4,
            label=part,
        )
    first = sum(found[1].values())
    axes.plot(
        COUNTS,
        [first / n for n in COUNTS],
        color=GREY,
        linestyle=":",
        label="all, shared out evenly",
    )
    axes.set(xlabel="GPUs", ylabel="seconds of a step")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS], fontsize=8)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_title(f"{e.model}, {batch} completions a step, on paper", fontsize=11)
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    if stuck:
        axes.axvline(count, color="black", linestyle="--", linewidth=1)
        axes.text(count * 1.1, axes.get_ylim()[1] * 0.6, f"{stuck} saturates", fontsize=8, va="top")
    return (
        figure,
        "Line chart of seconds of a step over 1 to 1,024 GPUs, both scales logarithmic. "
        + said(found, stuck, count),
    )


def said(found: Mapping[int, Mapping[str, float]], stuck: str, count: int) -> str:
    """What `gpu_counts` shows, in sentences, of what step_time.saturation gives: {GPUs: {part: seconds}}, the part that
    saturates first ("" for none), and from how many GPUs on.
    """
    first, last = found[min(found)], found[max(found)]
    parts = [
        f"{name}: {first[name]:.3g} s on one, {last[name]:.3g} s on {max(found)}"
        for name, *_ in _TIMES
    ]
    total = [sum(values.values()) for values in (first, last)]
    end = f" {max(found)} GPUs are {total[0] / total[1]:.0f} times as fast as one."
    saturates = f" {stuck.capitalize()} saturates first, from {count} GPUs on." if stuck else ""
    return "; ".join(parts) + "." + saturates + end
