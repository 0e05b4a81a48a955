"""What a run reports: sums of the log, a verdict, figures, versions, and what is printed.

`run` puts the parts together in report.json, `evaluate` uses the verdict and the versions, and
`run` and `merge` print sections of the model card.
"""

import contextlib
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from grpo_workbook import figures
from grpo_workbook.errors import visible, wrap
from grpo_workbook.evaluation import Change
from grpo_workbook.files import readable

PACKAGES = [
    "unsloth",
    "unsloth-zoo",
    "torch",
    "trl",
    "transformers",
    "datasets",
    "peft",
    "accelerate",
    "bitsandbytes",
]


def from_log(log: list[dict[str, Any]], completions_per_step: int) -> dict[str, Any]:
    """The number and length of completions; each reward in the log's first and last tenth."""
    import pandas as pd

    table: Any = pd.DataFrame(log).apply(pd.to_numeric, errors="coerce")
    tenth = max(1, len(log) // 10)
    rewards = {}
    for column in table.filter(regex="^reward$|^rewards/.*/mean$"):
        values = table[column]  # NaN where the reward did not apply
        name = column.removeprefix("rewards/").removesuffix("/mean")
        rewards[name] = {
            "first_tenth": round(float(values[:tenth].mean()), 4),
            "last_tenth": round(float(values[-tenth:].mean()), 4),
        }
    completions = {
        # TRL logs lengths and tokens, but no count of completions.
        "total": log[-1]["step"] * completions_per_step,
        "mean_length": round(float(table["completions/mean_length"].mean()), 4),
    }
    return {"completions": completions, "rewards": rewards}


def verdict(comparison: dict[str, Any]) -> list[str]:
    """A sentence for each measure of an `evaluation.Comparison` in plain values."""
    names = {
        "strict": "strict accuracy",
        "lenient": "lenient accuracy",
        "well_formed": "the rate of well-formed answers",
    }
    sentences = []
    for measure, name in names.items():
        change = Change(**comparison[measure])
        counts = f"{change.better} problems got better, {change.worse} worse"
        sentences.append(f"{change.sentence(name)}; {counts}")
    if comparison["unjudged"]:
        sentences.append(
            f"{comparison['unjudged']} completions could not be judged in time and count as wrong"
        )
    return sentences


def draw(output: Path, log: list[dict[str, Any]], report: dict[str, Any]) -> None:
    """Write figures/rewards.png and before_after.png with text alternatives (.txt)."""
    folder = output / "figures"
    figures.save(*figures.reward_curves(log), folder / "rewards.png")
    figures.save(*figures.before_after(report["heldout"]), folder / "before_after.png")
    if "subset" in report:
        name = f"problems where {report['data']['subset']} is true"
        chart = figures.before_after(report["subset"], name)
        figures.save(*chart, folder / "before_after_subset.png")


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages that the numbers depend on."""
    result = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):  # plain needs no Unsloth
            result[name] = metadata.version(name)
    return result


def peak_rss_mb() -> int:
    """The peak memory of this process in MB."""
    system = platform.system()
    if system == "Windows":
        import psutil

        memory: Any = psutil.Process().memory_info()
        return round(memory.peak_wset / 1e6)
    import resource  # Windows has none

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if system == "Darwin":  # in bytes
        return round(peak / 1e6)
    # Linux gives KiB.
    return round(peak * 1024 / 1e6)


def show_card(folder: Path, *sections: str) -> None:
    """Print these sections of the model card in the folder."""
    card = (folder / "README.md").read_text(encoding="utf-8")
    for section in card.split("\n## "):
        if section.startswith(sections):
            for line in section.splitlines():
                print(*wrap(line, 80), sep="\n")


def show_report(report: dict[str, Any], output: Path) -> None:
    """Print the card's numbers, the costs, five answers, and the files."""
    show_card(output / "merged", "Before and after", "The merge, proved")
    print(
        f"\n{report['model']}: {report['steps']} steps in {report['train_seconds']} s, "
        f"{report['total_seconds']} s in all, {report['peak_rss_mb']} MB"
    )
    print("\nFive held-out questions, answered by the merged model:")
    for example in report["examples"]:
        # Both may have many lines, and control characters, which `visible` escapes.
        question = " ".join(example["question"].split())
        answer = " ".join(example["after"].split())
        print(visible(f"  {question}  (right: {example['answer']})"))
        print(visible(f"    {answer}"))
    print(f"\n{readable(output)}: report.json, log.json, adapter, merged (16-bit), figures")
