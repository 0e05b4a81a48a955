"""The report at the end of a run: sums of the log, a verdict, figures, versions, the table."""

import platform
from pathlib import Path

from grpo_workbook import figures
from grpo_workbook.cli.versions import installed
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import visible
from grpo_workbook.files import readable

VERSIONS = "unsloth unsloth-zoo torch trl transformers datasets peft accelerate bitsandbytes"


def from_log(log: list[dict], run: RunConfig) -> dict:
    """The number and length of completions; each reward in the log's first and last tenth."""
    import pandas as pd

    tenth, table = max(1, len(log) // 10), pd.DataFrame(log).apply(pd.to_numeric, errors="coerce")
    parts = (table[:tenth], table[-tenth:], table)  # a None is NaN: no reward applied in the step
    first, last, whole = (part.mean().round(4).to_dict() for part in parts)
    rewards = {"reward": "reward"}
    rewards |= {k[8:-5]: k for k in log[0] if k.startswith("rewards/") and k.endswith("/mean")}
    length = next(k for k in ("completions/mean_length", "completion_length") if k in log[0])
    total = log[-1]["step"] * run.batch_size
    tenths = {n: {"first_tenth": first[k], "last_tenth": last[k]} for n, k in rewards.items()}
    return {"completions": {"total": total, "mean_length": whole[length]}, "rewards": tenths}


def verdict(heldout: dict) -> list[str]:
    """A verdict on the held-out numbers, as sentences."""
    said, sides = [], (heldout["before"], heldout["after"])
    form = ("the rate of well-formed answers", "well_formed_sampled", "p_value_well_formed")
    for name, key, p_key in (("strict accuracy", "strict_sampled", "p_value"), form):
        (a, b), p = (side[key] for side in sides), heldout[p_key]
        chance = f"{a:.1%} before, {b:.1%} after, a difference that may be chance (p = {p:.2g})"
        sure = f"{name} {'rose' if b > a else 'fell'} from {a:.1%} to {b:.1%} (p = {p:.1g})"
        said.append(f"{name}: {chance}" if p >= 0.01 else sure)
    if late := sum(side.get("unjudged", 0) for side in sides):
        said.append(f"{late} completions could not be judged in time and count as wrong")
    return said


def draw(run: RunConfig, log: list[dict], report: dict) -> None:
    """Write figures/rewards.png, before_after.png and health.png with text alternatives (.txt)."""
    from grpo_workbook.diagnosis import diagnose, read_run, run_panels

    held, whole, folder = report["heldout"], read_run(run.output), run.output / "figures"
    before_after = figures.before_after(held["before"], held["after"], held["n"])
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


def show_report(report: dict, output: Path) -> None:
    """Print the before/after table, five answers, and the files."""
    held, merge = report["heldout"], report["merge"]
    print(f"\n{held['n']} held-out problems, {report['model']:<22}   before    after")
    for key in ("strict_sampled", "strict_greedy", "lenient_sampled", "well_formed_sampled"):
        name = ", ".join(key.rsplit("_", 1)).replace("_", "-")
        print(f"  {name:<43}{held['before'][key]:>8.1%} {held['after'][key]:>8.1%}")
    spans = ["{:.1%} to {:.1%}".format(*held[when]["ci95"]) for when in ("before", "after")]
    print(f"  95 % interval of the first: {spans[0]} before, {spans[1]} after")
    print(*(f"- {line}" for line in report["verdict"]), sep="\n")
    print(f"- trained {report['steps']} steps in {report['train_seconds']} s", end=" ")
    print(f"({report['total_seconds']} s in all), peak memory {report['peak_rss_mb']} MB")
    most, same = merge["max_abs_logit_difference"], merge["same_greedy_tokens"]
    print(f"- merged: largest logit difference {most}, the same greedy token at {same:.2%} of the")
    print(f"  positions, strict greedy {merge['merged_strict_greedy']:.1%}")
    print("\nFive held-out questions, answered by the merged model:")
    for example in report["examples"]:
        print(visible(f"  {example['question']}  (right: {example['answer']})"))
        print(visible("    " + " ".join(example["after"].split())))
    print(f"\n{readable(output)}: report.json, log.json, adapter, merged (16-bit), figures")
