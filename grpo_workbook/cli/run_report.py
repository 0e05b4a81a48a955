"""What a run says at its end: the log's sums, the verdict in words, the figures, the versions, the printed table."""

import platform
import resource
from contextlib import suppress
from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import visible
from grpo_workbook.files import readable

VERSIONS = (
    "unsloth",
    "unsloth_zoo",
    "torch",
    "trl",
    "transformers",
    "datasets",
    "peft",
    "accelerate",
    "bitsandbytes",
)


def from_log(log: list[dict], run: RunConfig) -> dict:
    """Completions (how many, mean length in tokens) and each function's mean reward in the first and the last tenth of
    the log's entries, to 4 places. `log` holds at least one entry with a reward.
    """
    tenth = max(1, len(log) // 10)
    names = [
        k for k in log[0] if k == "reward" or (k.startswith("rewards/") and k.endswith("/mean"))
    ]

    def mean(key, entries):
        return round(sum(e[key] for e in entries) / len(entries), 4)

    length = (
        "completions/mean_length" if "completions/mean_length" in log[0] else "completion_length"
    )
    return {
        "completions": {
            "total": log[-1]["step"] * run.batch_size,
            "mean_length": mean(length, log),
        },
        "rewards": {
            k.removeprefix("rewards/").removesuffix("/mean"): {
                "first_tenth": mean(k, log[:tenth]),
                "last_tenth": mean(k, log[-tenth:]),
            }
            for k in names
        },
    }


def verdict(heldout: dict) -> list[str]:
    """What the held-out numbers allow one to say, in words."""
    said = []
    for key, name, p in (
        ("strict_sampled", "strict accuracy", heldout["p_value"]),
        ("well_formed_sampled", "the share of well-formed answers", heldout["p_value_well_formed"]),
    ):
        a, b = heldout["before"][key], heldout["after"][key]
        change = "rose" if b > a else "fell" if b < a else "stayed"
        if p >= 0.01:
            said.append(
                f"{name}: {a:.1%} before, {b:.1%} after, a difference that may be chance (p = {p:.2g})"
            )
        else:
            said.append(f"{name} {change} from {a:.1%} to {b:.1%} (p = {p:.1g})")
    if late := sum(heldout[key].get("unjudged", 0) for key in ("before", "after")):
        said.append(f"{late} completions could not be judged in time and count as wrong")
    return said


def draw(run: RunConfig, log: list[dict], report: dict) -> None:
    """Write figures/rewards.png, before_after.png and health.png, each with its words beside it (.txt).

    The last is what `diagnose` sees, so it is drawn from what the run's folder holds.
    """
    from grpo_workbook import figures

    figures.save(*figures.reward_curves(log), run.output / "figures" / "rewards.png")
    heldout = report["heldout"]
    figures.save(
        *figures.before_after(heldout["before"], heldout["after"], heldout["n"]),
        run.output / "figures" / "before_after.png",
    )
    from grpo_workbook.diagnosis.monitor import diagnose, read_run
    from grpo_workbook.diagnosis.panels import run_panels

    whole = read_run(run.output)
    figures.save(
        *run_panels(whole, diagnose(whole), "The run"), run.output / "figures" / "health.png"
    )


def versions() -> dict[str, str]:
    """Python's version, and that of each package which the numbers depend on and which is installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in VERSIONS:
        with suppress(PackageNotFoundError):  # the plain backend needs no Unsloth
            found[name] = version(name)
    return found


def peak_rss_mb() -> int:
    """The most memory this process has held, in MB (10^6 bytes); ru_maxrss is in KiB on Linux, bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if platform.system() == "Darwin" else 1024) / 1e6)


def show_report(report: dict, output: Path) -> None:
    """The before/after table, five answers, and where everything lies."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False, markup=False, emoji=False)  # a folder may be called [/so]
    held, merge = report["heldout"], report["merge"]
    table = Table(title=f"{held['n']} held-out problems, {report['model']}", title_justify="left")
    for name, justify in (("", "left"), ("before", "right"), ("after", "right")):
        table.add_column(name, justify=justify)
    for key, name in (
        ("strict_sampled", "strict, sampled"),
        ("strict_greedy", "strict, greedy"),
        ("lenient_sampled", "lenient, sampled"),
        ("well_formed_sampled", "well-formed, sampled"),
    ):
        table.add_row(name, f"{held['before'][key]:.1%}", f"{held['after'][key]:.1%}")
    interval = {k: "{:.1%} to {:.1%}".format(*held[k]["ci95"]) for k in ("before", "after")}
    table.add_row("  95 % interval of the first", interval["before"], interval["after"])
    console.print()
    console.print(table)
    for line in report["verdict"]:
        console.print(f"- {line}")
    console.print(
        f"- trained {report['steps']} steps in {report['train_seconds']} s "
        f"({report['total_seconds']} s in all), peak memory {report['peak_rss_mb']} MB"
    )
    console.print(
        f"- merged: largest logit difference {merge['max_abs_logit_difference']}, the same greedy token at "
        f"{merge['same_greedy_tokens']:.2%} of places, strict greedy {merge['merged_strict_greedy']:.1%}"
    )
    console.print("\nFive held-out questions, answered by the merged model:")
    for example in report["examples"]:
        console.print(Text(visible(f"  {example['question']}  (right: {example['answer']})")))
        console.print(Text(visible("    " + " ".join(example["after"].split()))))
    console.print()
    for name, what in (
        ("report.json", "every number"),
        ("adapter", "the LoRA adapter"),
        ("merged", "16-bit weights for plain Transformers"),
        ("figures", "curves and bars"),
        ("log.json", "TRL's metrics, step by step"),
    ):
        console.print(f"{readable(output / name):<28} {what}")
