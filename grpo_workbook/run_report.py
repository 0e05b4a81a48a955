"""What report.json says beside the measured scores: rewards of the log, the verdict in words, versions, memory."""

import platform
import resource

from grpo_workbook.run import Run

VERSIONS = ("unsloth", "unsloth_zoo", "torch", "trl", "transformers", "datasets", "peft", "accelerate", "bitsandbytes")


def from_log(log: list[dict], run: Run) -> dict:
    """Completions and rewards as the log has them: the first and the last tenth of the steps, by function."""
    tenth = max(1, len(log) // 10)
    names = [k for k in log[0] if k == "reward" or (k.startswith("rewards/") and k.endswith("/mean"))]

    def mean(key, entries):
        return round(sum(e[key] for e in entries) / len(entries), 4)

    length = "completions/mean_length" if "completions/mean_length" in log[0] else "completion_length"
    return {
        "completions": {
            "total": len(log) * run.settings.batch_size,
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
            said.append(f"{name}: {a:.1%} before, {b:.1%} after, a difference that may be chance (p = {p:.2g})")
        else:
            said.append(f"{name} {change} from {a:.1%} to {b:.1%} (p = {p:.1g})")
    if late := sum(heldout[key].get("unjudged", 0) for key in ("before", "after")):
        said.append(f"{late} completions could not be judged in time and count as wrong")
    return said


def versions() -> dict[str, str]:
    """Installed versions of what the numbers depend on."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in VERSIONS}}


def peak_rss_mb() -> int:
    """The most memory this process has held, in MB (10^6 bytes); ru_maxrss is in KiB on Linux, bytes on macOS."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if platform.system() == "Darwin" else 1024) / 1e6)
