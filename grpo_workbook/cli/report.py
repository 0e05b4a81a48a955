"""What a run says at its end: the log's sums, a verdict in words, figures, versions, the table."""

import platform
import resource
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from grpo_workbook import figures
from grpo_workbook.config import RunConfig
from grpo_workbook.errors import visible
from grpo_workbook.files import readable

VERSIONS = (
    "unsloth unsloth_zoo torch trl transformers datasets peft accelerate bitsandbytes".split()
)


def from_log(log: list[dict], run: RunConfig) -> dict:
    """Completions (how many, mean length in tokens), and each reward's mean in the first and the
    last tenth of the log's entries, to 4 places.
    """
    tenth = max(1, len(log) // 10)

    def mean(key: str, entries: list[dict]) -> float:
        return round(sum(e[key] for e in entries) / len(entries), 4)

    rewards = {"reward": "reward"}
    rewards |= {k[8:-5]: k for k in log[0] if k.startswith("rewards/") and k.endswith("/mean")}
    length = next(k for k in ("completions/mean_length", "completion_length") if k in log[0])
    total = log[-1]["step"] * run.batch_size
    return {
        "completions": {"total": total, "mean_length": mean(length, log)},
        "rewards": {
            name: {"first_tenth": mean(key, log[:tenth]), "last_tenth": mean(key, log[-tenth:])}
            for name, key in rewards.items()
        },
    }


def verdict(heldout: dict) -> list[str]:
    """What the held-out numbers allow one to say, in words."""
    said, form = [], "the rate of well-formed answers"
    for key, name, p in (
        ("strict_sampled", "strict accuracy", heldout["p_value"]),
        ("well_formed_sampled", form, heldout["p_value_well_formed"]),
    ):
        a, b = heldout["before"][key], heldout["after"][key]
        change = "rose" if b > a else "fell" if b < a else "stayed"
        chance = f"{a:.1%} before, {b:.1%} after, a difference that may be chance (p = {p:.2g})"
        sure = f"{name} {change} from {a:.1%} to {b:.1%} (p = {p:.1g})"
        said.append(f"{name}: {chance}" if p >= 0.01 else sure)
    if late := sum(heldout[when].get("unjudged", 0) for when in ("before", "after")):
        said.append(f"{late} completions could not be judged in time and count as wrong")
    return said


def draw(run: RunConfig, log: list[dict], report: dict) -> None:
    """Write figures/rewards.png, before_after.png and health.png, each with its words (.txt)."""
    from grpo_workbook.diagnosis import diagnose, read_run, run_panels

    held, whole = report["heldout"], read_run(run.output)
    drawn = {
        "rewards": figures.reward_curves(log),
        "before_after": figures.before_after(held["before"], held["after"], held["n"]),
        "health": run_panels(whole, diagnose(whole), "The run"),  # what `diagnose` sees
    }
    for name, figure in drawn.items():
        figures.save(*figure, run.output / "figures" / f"{name}.png")


def versions() -> dict[str, str]:
    """Python's version, and that of each installed package which the numbers depend on."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        with suppress(PackageNotFoundError):  # the plain backend needs no Unsloth
            found[name] = version(name)
    return found


def peak_rss_mb() -> int:
    """The most memory this process has held, in MB; ru_maxrss is in KiB on Linux, else bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if platform.system() == "Darwin" else 1024) / 1e6)


def show_report(report: dict, output: Path) -> None:
    """The before/after table, five answers, and where everything lies."""
    held, merge = report["heldout"], report["merge"]
    print(f"\n{held['n']} held-out problems, {report['model']:<22}   before    after")
    for key in ("strict_sampled", "strict_greedy", "lenient_sampled", "well_formed_sampled"):
        name = ", ".join(key.rsplit("_", 1)).replace("_", "-")
        print(f"  {name:<43}{held['before'][key]:>8.1%} {held['after'][key]:>8.1%}")
    spans = ["{:.1%} to {:.1%}".format(*held[when]["ci95"]) for when in ("before", "after")]
    print(f"  95 % interval of the first: {spans[0]} before, {spans[1]} after")
    print(*(f"- {line}" for line in report["verdict"]), sep="\n")
    print(
        f"- trained {report['steps']} steps in {report['train_seconds']} s "
        f"({report['total_seconds']} s in all), peak memory {report['peak_rss_mb']} MB\n"
        f"- merged: largest logit difference {merge['max_abs_logit_difference']}, the same greedy "
        f"token at\n  {merge['same_greedy_tokens']:.2%} of the places, strict greedy "
        f"{merge['merged_strict_greedy']:.1%}\n\n"
        "Five held-out questions, answered by the merged model:"
    )
    for example in report["examples"]:
        print(visible(f"  {example['question']}  (right: {example['answer']})"))
        print(visible("    " + " ".join(example["after"].split())))
    print(f"\n{readable(output)}: report.json, log.json, adapter, merged (16-bit), figures")
