"""The rules of the diagnosis: each looks at a run's log and gives a finding or None. Bounds are in findings.py."""

import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from grpo_workbook.diagnosis.findings import Evidence, Finding, bound, make
from grpo_workbook.diagnosis.runlog import RunLog

if TYPE_CHECKING:
    import pandas

RIGHT = re.compile(r"correct|accura|answer|solved|exact", re.IGNORECASE)
FORM = re.compile(r"format|xml|tag", re.IGNORECASE)


class View:
    """A run seen in windows: `first` and `last` are means over as many steps at its begin and end (see findings.py)."""

    def __init__(self, run: RunLog):
        self.run, self.table, self.settings = run, run.table, run.settings
        self.steps = (
            len(self.table["reward"].dropna()) if "reward" in self.table else len(self.table)
        )
        self.width = int(
            min(max(bound("first_steps"), self.steps * bound("window")), bound("longest_window"))
        )

    def of(self, metric: str) -> "pandas.Series":
        """The metric's values by step, without the steps at which it was not logged. Empty when it never was."""
        import pandas as pd

        return self.table[metric].dropna() if metric in self.table else pd.Series(dtype=float)

    def first(self, metric: str) -> float:
        """The mean of the first window; NaN when the metric was not logged."""
        return float(self.of(metric).head(self.width).mean())

    def last(self, metric: str) -> float:
        """The mean of the last window; NaN when the metric was not logged."""
        return float(self.of(metric).tail(self.width).mean())

    def since(self, metric: str, holds: Callable[[float], bool]) -> int:
        """The first step of the stretch at the log's end in which it holds, one exception in five allowed."""
        values = self.of(metric)
        start, misses = len(values), 0
        for place in range(len(values) - 1, -1, -1):
            if holds(values.iloc[place]):
                start = place
            else:
                misses += 1
                if misses > max(1, (len(values) - place) // 5):
                    break
        return int(values.index[min(start, len(values) - 1)])

    def change(self, metric: str = "reward") -> float:
        """Last window minus first, in standard errors of their difference. 0 when there is no room for two windows."""
        values = self.of(metric)
        if len(values) < 2 * self.width:
            return 0.0
        a, b = values.head(self.width), values.tail(self.width)
        error = math.sqrt((a.var() + b.var()) / self.width)
        moved = float(b.mean() - a.mean())
        return (
            moved / error
            if error > 0
            else math.copysign(math.inf, moved)
            if abs(moved) > 1e-9
            else 0.0
        )

    @cached_property
    def weights(self) -> dict[str, float]:
        """Each function's weight: as the settings have it, or as reward and its parts show it (least squares), or 1."""
        given = self.settings.get("reward_weights")
        names = self.run.functions
        if isinstance(given, dict) and set(names) <= set(given):
            return {n: float(given[n]) for n in names}
        if isinstance(given, list | tuple) and len(given) == len(names):
            return dict(zip(names, map(float, given), strict=True))
        parts = (
            self.table[[f"rewards/{n}/mean" for n in names] + ["reward"]].dropna()
            if "reward" in self.table
            else []
        )
        if len(parts) > 2 * len(names) and names:
            import numpy as np

            found, _, rank, _ = np.linalg.lstsq(
                parts.iloc[:, :-1].to_numpy(), parts["reward"].to_numpy(), rcond=None
            )
            if rank == len(names):
                return dict(zip(names, map(float, found), strict=True))
        return dict.fromkeys(names, 1.0)

    def names(self, kind: re.Pattern, weighed: bool | None = None) -> list[str]:
        """Functions whose name says that they judge the answer (RIGHT) or the form (FORM); weighed: with a weight."""
        found = [
            n
            for n in self.run.functions
            if kind.search(n) and not (kind is RIGHT and FORM.search(n))
        ]
        return [n for n in found if weighed is None or (self.weights[n] > 1e-6) == weighed]

    @property
    def highest(self) -> float:
        """The highest reward possible if every function pays at most 1, or the highest seen if that is more."""
        possible = sum(w for w in self.weights.values() if w > 0)
        return max(possible, float(self.of("reward").max())) if len(self.of("reward")) else possible

    @property
    def rose(self) -> bool:
        """Surely, and by an amount that matters."""
        size = self.last("reward") - self.first("reward")
        return self.change() >= bound("sure") and size >= bound("rise") * self.highest

    @property
    def learned(self) -> bool:
        """The reward is high, or has clearly risen and has not come down from its best."""
        return self.rose or (self.last("reward") >= bound("high_reward") * self.highest)

    def gradient(self) -> bool:
        """Is there a gradient that is more than rounding, in the steps of the last window?"""
        norm = self.of("grad_norm")
        return bool(len(norm)) and float(norm.tail(self.width).median()) > 1e-3


def _ended(v: View) -> Finding | None:
    if v.run.error is None:
        return None
    step, text = v.run.error
    said = Evidence("exception", text[:120], "")
    if "raised by the reward function" in text:
        return make("reward_raises", step, said)
    if "probability tensor contains" in text:
        return make("nan", step, said)
    return make("memory" if "out of memory" in text.lower() else "stopped", step, said)


def _nan(v: View) -> Finding | None:
    for metric in ("loss", "grad_norm", "kl", "entropy", "adapter/change"):
        if metric in v.run.broken:
            return make(
                "nan", v.run.broken[metric], Evidence(metric, "NaN or infinite", "a number")
            )
    return None


def _reward_nan(v: View) -> Finding | None:
    invalid = v.of("rewards/invalid_share")
    if len(bad := invalid[invalid > 0]):
        return make("reward_nan", bad.index[0], Evidence("rewards/invalid_share", bad.iloc[0], "0"))
    if len(invalid):
        return (
            None  # it was watched: a NaN in the log then means that a function applied to nothing
        )
    for metric, step in v.run.broken.items():
        if metric == "reward" or metric.startswith("rewards/"):
            return make("reward_nan", step, Evidence(metric, "NaN", "a number, or None on purpose"))
    return None


def _memory(v: View) -> Finding | None:
    share, full = v.of("memory/share"), bound("memory_full")
    high = share[share >= full]
    return (
        make("memory", high.index[0], Evidence("memory/share", high.iloc[0], f"under {full}"))
        if len(high)
        else None
    )


def _empty(v: View) -> Finding | None:
    half = bound("half")
    if v.last("completions/empty_share") >= half:
        metric, value, when = (
            "completions/empty_share",
            v.last("completions/empty_share"),
            lambda x: x >= half,
        )
        return make("empty", v.since(metric, when), Evidence(metric, value, f"under {half}"))
    length = v.last("completions/mean_length")
    if length <= 2 and v.settings.get("max_completion_length", 99) > 8:
        metric = "completions/mean_length"
        return make(
            "empty",
            v.since(metric, lambda x: x <= 2),
            Evidence(metric, length, "more than 2 tokens"),
        )
    return None


def _cut_off(v: View) -> Finding | None:
    metric, most = "completions/clipped_ratio", bound("share_nearly_all")
    # from the beginning: what training made long is another finding
    if not (v.last(metric) >= most and float(v.of(metric).head(2).mean()) >= most):
        return None
    parts = {n: v.last(f"rewards/{n}/mean") for n in v.run.functions}
    best = max(parts.values(), default=0.0)
    said = Evidence(metric, v.last(metric), f"under {most}")
    step = v.since(metric, lambda x: x >= most)
    paid = f"over {bound('little_earned')}: something is earned"
    if best > bound("little_earned"):
        return make("never_ends", step, said, Evidence("best reward function", best, paid))
    return make(
        "truncated",
        step,
        said,
        Evidence("best reward function", best, f"more than {bound('little_earned')}"),
    )


def _frozen(v: View) -> Finding | None:
    moved, rate = v.of("adapter/change"), v.of("learning_rate")
    if len(moved):
        # the change that a step's entry shows came from the steps before it; a warm-up begins with a rate of 0
        tried = [s for s in moved.index if s in rate.index and rate[s] > 0][1:]
        if len(tried) >= 3 and float(moved.max()) == 0.0 and v.gradient():
            said = Evidence("adapter/change", 0.0, "more than 0")
            return make(
                "frozen",
                tried[0],
                said,
                Evidence("grad_norm", v.last("grad_norm"), "there is a gradient"),
            )
        return None
    still = v.of("grad_norm")
    silent = v.last("frac_reward_zero_std")
    if len(still) >= v.width and float(still.abs().max()) == 0.0 and silent < bound("half"):
        return make("frozen", still.index[0], Evidence("grad_norm", 0.0, "more than 0"),
                    Evidence("frac_reward_zero_std", silent, "groups with spread should give a gradient"))  # fmt: skip
    return None


def _constant(v: View) -> Finding | None:
    names = [n for n in v.run.functions if v.weights[n] > 1e-6]
    if not names or v.steps < bound("first_steps"):
        return None
    for name in names:
        spread, mean = v.of(f"rewards/{name}/std"), v.of(f"rewards/{name}/mean")
        if not len(mean) or float(spread.max()) > 1e-6 or float(mean.max() - mean.min()) > 1e-6:
            return None
    value = v.last(f"rewards/{names[0]}/mean")
    return make("reward_constant", v.table["reward"].dropna().index[0] if "reward" in v.table else v.table.index[0],
                Evidence(f"rewards/{names[0]}/mean", value, "should differ"),
                Evidence("largest deviation of any function", 0.0, "more than 0"))  # fmt: skip


def _wrong_answers(v: View) -> Finding | None:
    rare = bound("rarely_right")
    for right in v.names(RIGHT, weighed=True):
        metric = f"rewards/{right}/mean"
        if v.steps < 2 * bound("first_steps") or not v.last(metric) <= rare:
            continue
        forms = [f for f in v.names(FORM) if v.last(f"rewards/{f}/mean") >= bound("half")]
        heldout = v.of("heldout/lenient")
        knows = len(heldout) > 0 and float(heldout.iloc[0]) >= bound("half")
        if v.first(metric) > 2 * rare:
            continue  # it could, and lost it: another finding
        if forms:
            said = [Evidence(metric, v.last(metric), f"over {rare}")]
            said += [
                Evidence(
                    f"rewards/{forms[0]}/mean",
                    v.last(f"rewards/{forms[0]}/mean"),
                    "the form is there",
                )
            ]
            if knows:
                said += [
                    Evidence(
                        "heldout/lenient", heldout.iloc[0], "it can do it on held-out problems"
                    )
                ]
            return make("wrong_answers", v.since(metric, lambda x: x <= rare), *said)
    return None


def _rate_too_high(v: View) -> Finding | None:
    moved, jump = v.of("adapter/change"), bound("jump")
    best = (
        float(v.of("reward").rolling(v.width, min_periods=2).mean().max())
        if len(v.of("reward"))
        else math.nan
    )
    lowest = min(0.0, float(v.of("reward").min())) if len(v.of("reward")) else 0.0
    now = float(v.of("reward").tail(3).mean())
    lost = (best - now) / (best - lowest) if best > lowest else 0.0
    if len(moved):
        broken = lost >= bound("cliff")
        far = moved[moved >= (jump / 2 if broken else jump)]
        if not len(far) or (v.rose and not broken):
            return None
        said = [
            Evidence(
                "adapter/change",
                float(far.max()),
                f"under {jump}, or half of it where the reward is lost",
            )
        ]
        if broken:
            said.append(Evidence("reward lost since its best", lost, f"under {bound('cliff')}"))
        return make("rate_too_high", far.index[0], *said)
    norms = v.of("grad_norm")
    usual = float(norms.head(v.width).median()) if len(norms) else 0.0
    if lost >= bound("cliff") and usual > 0 and float(norms.max()) > 5 * usual:
        at = norms[norms > 5 * usual].index[0]
        return make("rate_too_high", at, Evidence("grad_norm", float(norms.max()), f"under {5 * usual:.3g}"),
                    Evidence("reward lost since its best", lost, f"under {bound('cliff')}"))  # fmt: skip
    return None


def _collapsed(v: View) -> Finding | None:
    metric, size = "completions/unique_share", v.settings.get("num_generations", 8)
    limit = bound("same_text") / size
    if not v.last(metric) <= limit or v.steps < bound("first_steps"):
        return None
    from_start = float(v.of(metric).head(3).mean()) <= limit
    if v.learned and not from_start:
        return None
    entropy = (
        [Evidence("entropy", v.last("entropy"), "nats per token")] if len(v.of("entropy")) else []
    )
    return make("collapsed", v.since(metric, lambda x: x <= limit),
                Evidence(metric, v.last(metric), f"over {limit:.3g}, two texts in {size}"), *entropy)  # fmt: skip


def _no_gradient(v: View) -> Finding | None:
    silent, norm = v.of("frac_reward_zero_std"), v.of("grad_norm")
    if v.steps < bound("first_steps") or not len(silent):
        return None
    share = v.last("frac_reward_zero_std")
    # Equal rewards that are no round numbers leave a deviation of rounding, and a gradient of rounding.
    rounding = len(norm) and share > 0.25 and not v.gradient()
    if share < bound("silent") and not rounding:
        return None
    if v.learned and v.last("reward") >= v.first("reward") and not _is_flat_from_start(v):
        return None  # saturated
    return make("no_gradient", v.since("frac_reward_zero_std", lambda x: x >= (0.2 if rounding else bound("silent"))),
                Evidence("frac_reward_zero_std", share, f"under {bound('silent')}"),
                Evidence("grad_norm", v.last("grad_norm"), "over 0.001"))  # fmt: skip


def _is_flat_from_start(v: View) -> bool:
    return not v.rose and float(v.of("grad_norm").head(3).median()) <= 1e-3


def _saturated(v: View) -> Finding | None:
    share = v.last("frac_reward_zero_std")
    if (
        v.steps < 2 * bound("first_steps")
        or not share >= bound("half")
        or not v.learned
        or _is_flat_from_start(v)
    ):
        return None
    if v.last("reward") < bound("high_reward") * v.highest:
        return None
    return make("saturated", v.since("frac_reward_zero_std", lambda x: x >= bound("half")),
                Evidence("frac_reward_zero_std", share, f"under {bound('half')}"),
                Evidence("reward", v.last("reward"), f"of at most {v.highest:.3g}"))  # fmt: skip
