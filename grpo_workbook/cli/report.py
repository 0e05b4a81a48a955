"""The report at the end of a run: sums of the log, a verdict, figures, versions, the table."""

import platform
from pathlib import Path

from grpo_workbook import figures
from grpo_workbook.cli.versions import installed
from grpo_workbook.errors import visible, wrap
from grpo_workbook.evaluation import Change
from grpo_workbook.files import readable

VERSIONS = "unsloth unsloth-zoo torch trl transformers datasets peft accelerate bitsandbytes"


def from_log(log: list[dict], completions_per_step: int) -> dict:
    """The number and length of completions; each reward in the log's first and last tenth."""
    import pandas as pd

    tenth, table = max(1, len(log) // 10), pd.DataFrame(log).apply(pd.to_numeric, errors="coerce")
    total = {"total": log[-1]["step"] * completions_per_step}
    total["mean_length"] = round(table["completions/mean_length"].mean(), 4)
    rewards = table.filter(regex="^reward$|^rewards/.*/mean$")  # NaN where no reward applied
    ends = {"first_tenth": rewards[:tenth].mean(), "last_tenth": rewards[-tenth:].mean()}
    told = pd.DataFrame(ends).rename(lambda k: k.removeprefix("rewards/").removesuffix("/mean"))
    return {"completions": total, "rewards": told.round(4).to_dict("index")}


def verdict(comparison: dict) -> list[str]:
    """A verdict on a `Comparison` in plain values, as sentences."""
    sentences = []
    names = {"strict": "strict accuracy", "lenient": "lenient accuracy"}
    names["well_formed"] = "the rate of well-formed answers"
    for measure, name in names.items():
        change = Change(**comparison[measure])
        counts = f"{change.better} problems got better, {change.worse} worse"
        sentences.append(f"{change.sentence(name)}; {counts}")
    if comparison["unjudged"]:
        sentences.append(
            f"{comparison['unjudged']} completions could not be judged in time and count as wrong"
        )
    return sentences


def draw(output: Path, log: list[dict], report: dict) -> None:
    """Write figures/rewards.png, before_after.png and health.png with text alternatives (.txt)."""
    from grpo_workbook.diagnosis import diagnose, read_run, run_panels

    held, whole, folder = report["heldout"], read_run(output), output / "figures"
    before_after = figures.before_after(held)
    figures.save(*figures.reward_curves(log), folder / "rewards.png")
    figures.save(*before_after, folder / "before_after.png")
    figures.save(*run_panels(whole, diagnose(whole), "The run"), folder / "health.png")


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that the numbers depend on."""
    there = installed()  # the plain backend needs no Unsloth
    named = {name: there[name] for name in VERSIONS.split() if name in there}
    return {"python": platform.python_version(), **named}


def peak_rss_mb() -> int:
    """The peak memory of this process in MB; ru_maxrss is in KiB on Linux, in bytes on macOS."""
    if platform.system() == "Windows":
        import psutil

        return round(psutil.Process().memory_info().peak_wset / 1e6)
    import resource  # Windows has none

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if platform.system() == "Darwin" else 1024) / 1e6)


def show_card(folder: Path, *sections: str) -> None:
    """Print these sections of the model card in the folder."""
    parts = (folder / "README.md").read_text(encoding="utf-8").split("\n## ")
    for line in "\n".join(part for part in parts if part.startswith(sections)).splitlines():
        print(*wrap(line, 80), sep="\n")


def show_report(report: dict, output: Path) -> None:
    """Print the card's numbers, the costs, five answers, and the files."""
    show_card(output / "merged", "Before and after", "The merge, proved")
    cost = "{model}: {steps} steps in {train_seconds} s, {total_seconds} s in all, {peak_rss_mb} MB"
    print(f"\n{cost.format(**report)}")
    print("\nFive held-out questions, answered by the merged model:")
    for example in report["examples"]:
        print(visible(f"  {example['question']}  (right: {example['answer']})"))
        print(visible("    " + " ".join(example["after"].split())))
    print(f"\n{readable(output)}: report.json, log.json, adapter, merged (16-bit), figures")
