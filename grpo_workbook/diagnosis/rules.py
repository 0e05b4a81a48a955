"""The rules of the diagnosis: each looks at a View of the run, and gives a finding or None.

Their bounds stand in findings.toml. What was not logged is not judged, and neither is what needs
the role of a reward function (see grpo_workbook.rewards.reward) where no function has one.
"""

import math
from collections.abc import Callable
from functools import cached_property

from grpo_workbook.diagnosis.findings import (
    SEVERE,
    WARNING,
    Evidence,
    Finding,
    bound,
    in_order,
    make,
)
from grpo_workbook.diagnosis.runlog import RunLog, read_run

UNIQUE, EMPTY = "completions/unique_share", "completions/empty_share"
CUT_OFF, LENGTH = "completions/clipped_ratio", "completions/mean_length"
ZERO_VARIANCE, MOVED = "frac_reward_zero_std", "adapter/change"
MEMORY, GENERATING = "memory/share", "time/generation_share"
RISE = "rise of the reward, in standard errors"


class View:
    """A run in windows: `first` and `last` are means over as many steps at its begin and end."""

    def __init__(self, run: RunLog):
        self.run, self.table, self.settings = run, run.table, run.settings
        self.steps = len(self.table["reward"].dropna() if "reward" in self.table else self.table)
        wanted = max(bound("first_steps"), self.steps * bound("window"))
        self.width = int(min(wanted, bound("longest_window")))

    def of(self, metric: str):
        """The metric's values by step as a series, which is empty when it was never logged."""
        import pandas as pd

        return self.table[metric].dropna() if metric in self.table else pd.Series(dtype=float)

    def first(self, metric: str) -> float:
        """The mean of the first window; NaN when the metric was not logged."""
        return float(self.of(metric).head(self.width).mean())

    def last(self, metric: str) -> float:
        """The mean of the last window; NaN when the metric was not logged."""
        return float(self.of(metric).tail(self.width).mean())

    def start(self, metric: str = "reward") -> int:
        """The first step at which the metric was logged."""
        return self.of(metric).index[0]

    def seen(self, metric: str, threshold: str) -> Evidence:
        """The mean of the last window as evidence."""
        return Evidence(metric, self.last(metric), threshold)

    def since(self, metric: str, holds: Callable[[float], bool]) -> int:
        """First step of the stretch at the log's end in which it holds, one exception in five."""
        values = self.of(metric)
        start, misses = len(values), 0
        for place in range(len(values) - 1, -1, -1):
            if holds(values.iloc[place]):
                start = place
                continue
            misses += 1
            if misses > max(1, (len(values) - place) // 5):
                break
        return int(values.index[min(start, len(values) - 1)])

    def over(self, name: str, metric: str, limit: float, *more: Evidence) -> Finding:
        """The finding, since the metric has been at or over the limit, which is its evidence."""
        said = self.seen(metric, f"under {limit:.3g}"), *more
        return make(name, self.since(metric, lambda x: x >= limit), *said)

    def change(self, metric: str = "reward") -> float:
        """Last window minus first, in standard errors of that. 0 when there is no room for two."""
        values = self.of(metric)
        if len(values) < 2 * self.width:
            return 0.0
        a, b = values.head(self.width), values.tail(self.width)
        error, moved = math.sqrt((a.var() + b.var()) / self.width), float(b.mean() - a.mean())
        if error > 0:
            return moved / error
        return math.copysign(math.inf, moved) if abs(moved) > 1e-9 else 0.0

    @cached_property
    def weights(self) -> dict[str, float]:
        """Each function's weight: by the settings, else as the reward shows it, else 1."""
        given, names = self.settings.get("reward_weights"), self.run.functions
        if isinstance(given, dict) and set(names) <= set(given):
            return {n: float(given[n]) for n in names}
        if isinstance(given, list | tuple) and len(given) == len(names):
            return dict(zip(names, map(float, given), strict=True))
        if names and "reward" in self.table:
            parts = (
                self.table[[*(f"rewards/{n}/mean" for n in names), "reward"]].dropna().to_numpy()
            )
            if len(parts) > 2 * len(names):
                import numpy as np

                found, _, rank, _ = np.linalg.lstsq(parts[:, :-1], parts[:, -1], rcond=None)
                if rank == len(names):
                    return dict(zip(names, map(float, found), strict=True))
        return dict.fromkeys(names, 1.0)

    def judging(self, role: str, weighed: bool | None = None) -> list[str]:
        """The functions with that role ("correctness", "format"); weighed: those with a weight."""
        found = [n for n in self.run.functions if self.run.roles.get(n) == role]
        return [n for n in found if weighed is None or (self.weights[n] > 1e-6) == weighed]

    @property
    def highest(self) -> float:
        """The highest reward if every function pays at most 1, or the highest seen if more."""
        possible = sum(w for w in self.weights.values() if w > 0)
        return max([possible, *self.of("reward")])

    def gained(self, name: str = "rise") -> bool:
        """Has the mean reward gained that fraction of the highest from first to last window?"""
        return self.last("reward") - self.first("reward") >= bound(name) * self.highest

    @property
    def rose(self) -> bool:
        """Surely, and by an amount that matters."""
        return self.change() >= bound("sure") and self.gained()

    @property
    def learned(self) -> bool:
        """The reward is high, or has clearly risen and has not come down from its best."""
        return self.rose or self.last("reward") >= bound("high_reward") * self.highest

    @property
    def lost(self) -> float:
        """The fraction of the reward's best window that is gone in the last three steps."""
        reward = self.of("reward")
        best = float(reward.rolling(self.width, min_periods=2).mean().max())
        lowest = min([0.0, *reward])
        return (best - float(reward.tail(3).mean())) / (best - lowest) if best > lowest else 0.0

    def gradient(self) -> bool:
        """Is there a gradient that is more than rounding, in the steps of the last window?"""
        return float(self.of("grad_norm").tail(self.width).median()) > 1e-3

    def still_from_start(self) -> bool:
        """No rise, and no gradient in the first steps either."""
        return not self.rose and float(self.of("grad_norm").head(3).median()) <= 1e-3

    def few(self, times: int = 1, name: str = "first_steps") -> bool:
        """Are there too few steps to say?"""
        return self.steps < times * bound(name)


def _ended(v: View) -> Finding | None:
    if v.run.error is None:
        return None
    step, text = v.run.error
    signs = {"raised by the reward function": "reward_raises", "out of memory": "memory"}
    signs["probability tensor contains"] = "nan"
    name = next((name for sign, name in signs.items() if sign in text.lower()), "stopped")
    return make(name, step, Evidence("exception", text[:120]))


def _nan(v: View) -> Finding | None:
    for metric in ("loss", "grad_norm", "kl", "entropy", MOVED):
        if step := v.run.broken.get(metric):
            return make("nan", step, Evidence(metric, "NaN or infinite", "a number"))
    return None


def _reward_nan(v: View) -> Finding | None:
    invalid = v.of("rewards/invalid_share")
    if len(bad := invalid[invalid > 0]):
        return make("reward_nan", bad.index[0], Evidence("rewards/invalid_share", bad.iloc[0], "0"))
    broken = [m for m in v.run.broken if m == "reward" or m.startswith("rewards/")]
    if len(invalid) or not broken:  # watched: a NaN means that a function applied to nothing
        return None
    seen = Evidence(broken[0], "NaN", "a number, or None on purpose")
    return make("reward_nan", v.run.broken[broken[0]], seen)


def _memory(v: View) -> Finding | None:
    used, full = v.of(MEMORY), bound("memory_full")
    if not len(high := used[used >= full]):
        return None
    return make("memory", high.index[0], Evidence(MEMORY, high.iloc[0], f"under {full}"))


def _empty(v: View) -> Finding | None:
    if v.last(EMPTY) >= bound("half"):
        return v.over("empty", EMPTY, bound("half"))
    if v.last(LENGTH) <= 2 and v.settings.get("max_completion_length", 99) > 8:
        seen = v.seen(LENGTH, "more than 2 tokens")
        return make("empty", v.since(LENGTH, lambda x: x <= 2), seen)
    return None


def _cut_off(v: View) -> Finding | None:
    most, little = bound("nearly_all"), bound("little_earned")
    # from the beginning: what training made long is another finding
    if not (v.last(CUT_OFF) >= most and float(v.of(CUT_OFF).head(2).mean()) >= most):
        return None
    best = max((v.last(f"rewards/{n}/mean") for n in v.run.functions), default=0.0)
    name, wanted = "truncated", f"more than {little}"
    if best > little:
        name, wanted = "never_ends", f"over {little}: something is earned"
    return v.over(name, CUT_OFF, most, Evidence("best reward function", best, wanted))


def _frozen(v: View) -> Finding | None:
    moved, rate, norm = v.of(MOVED), v.of("learning_rate"), v.of("grad_norm")
    if len(moved):
        # a step's entry shows the change of the steps before; a warm-up begins at rate 0
        tried = [s for s in moved.index if s in rate.index and rate[s] > 0][1:]
        if len(tried) < 3 or float(moved.max()) != 0.0 or not v.gradient():
            return None
        there = v.seen("grad_norm", "there is a gradient")
        return make("frozen", tried[0], Evidence(MOVED, 0.0, "more than 0"), there)
    if len(norm) < v.width or float(norm.abs().max()) or not v.last(ZERO_VARIANCE) < bound("half"):
        return None
    spread = v.seen(ZERO_VARIANCE, "groups with spread should give a gradient")
    return make("frozen", norm.index[0], Evidence("grad_norm", 0.0, "more than 0"), spread)


def _constant(v: View) -> Finding | None:
    names = [n for n in v.run.functions if v.weights[n] > 1e-6]
    means, stds = ([v.of(f"rewards/{n}/{kind}") for n in names] for kind in ("mean", "std"))
    if not names or v.few() or not all(map(len, means)):
        return None
    if max([0.0, *(s.max() for s in stds), *(m.max() - m.min() for m in means)]) > 1e-6:
        return None
    none = Evidence("largest deviation of any function", 0.0, "more than 0")
    differ = v.seen(str(means[0].name), "should differ")
    return make("reward_constant", means[0].index[0], differ, none)


def _wrong_answers(v: View) -> Finding | None:
    rare, heldout = bound("rarely_right"), v.of("heldout/lenient")
    forms = [f"rewards/{n}/mean" for n in v.judging("format")]
    forms = [metric for metric in forms if v.last(metric) >= bound("half")]
    if v.few(2) or not forms:
        return None
    for metric in (f"rewards/{n}/mean" for n in v.judging("correctness", weighed=True)):
        if not v.last(metric) <= rare or v.first(metric) > 2 * rare:
            continue  # it can; or it could, and lost it: another finding
        said = [v.seen(metric, f"over {rare}"), v.seen(forms[0], "the form is there")]
        if len(heldout) and float(heldout.iloc[0]) >= bound("half"):
            knows = "it can do it on held-out problems"
            said.append(Evidence("heldout/lenient", heldout.iloc[0], knows))
        return make("wrong_answers", v.since(metric, lambda x: x <= rare), *said)
    return None


def _rate_too_high(v: View) -> Finding | None:
    moved, norms, jump = v.of(MOVED), v.of("grad_norm"), bound("jump")
    gone = Evidence("reward lost since its best", v.lost, f"under {bound('cliff')}")
    broken = v.lost >= bound("cliff")
    if len(moved):
        far = moved[moved >= (jump / 2 if broken else jump)]
        if not len(far) or (v.rose and not broken):
            return None
        limit = f"under {jump}, or half of it where the reward is lost"
        said = [Evidence(MOVED, float(far.max()), limit), *([gone] if broken else [])]
        return make("rate_too_high", far.index[0], *said)
    limit = 5 * float(norms.head(v.width).median())
    if not broken or not float(norms.max()) > limit > 0:
        return None
    spike = Evidence("grad_norm", float(norms.max()), f"under {limit:.3g}")
    return make("rate_too_high", norms[norms > limit].index[0], spike, gone)


def _collapsed(v: View) -> Finding | None:
    size = v.settings.get("num_generations", 8)
    limit = bound("same_text") / size
    if not v.last(UNIQUE) <= limit or v.few():
        return None
    if v.learned and float(v.of(UNIQUE).head(3).mean()) > limit:
        return None
    said = v.seen(UNIQUE, f"over {limit:.3g}, two texts in {size}")
    return make("collapsed", v.since(UNIQUE, lambda x: x <= limit), said)


def _no_gradient(v: View) -> Finding | None:
    if v.few() or not len(v.of(ZERO_VARIANCE)):
        return None
    rate, most = v.last(ZERO_VARIANCE), bound("zero_variance")
    # Equal rewards that are no round numbers leave a deviation, and a gradient, of rounding.
    rounding = len(v.of("grad_norm")) and rate > 0.25 and not v.gradient()
    if rate < most and not rounding:
        return None
    if v.learned and v.last("reward") >= v.first("reward") and not v.still_from_start():
        return None  # saturated
    step = v.since(ZERO_VARIANCE, lambda x: x >= (0.2 if rounding else most))
    said = v.seen(ZERO_VARIANCE, f"under {most}"), v.seen("grad_norm", "over 0.001")
    return make("no_gradient", step, *said)


def _saturated(v: View) -> Finding | None:
    if v.few(2) or not v.last(ZERO_VARIANCE) >= bound("half") or v.still_from_start():
        return None
    if not v.learned or v.last("reward") < bound("high_reward") * v.highest:
        return None
    high = v.seen("reward", f"of at most {v.highest:.3g}")
    return v.over("saturated", ZERO_VARIANCE, bound("half"), high)


def _drowned(v: View) -> Finding | None:
    # over the first steps: later a function may be quiet because it is satisfied
    stds = {n: v.first(f"rewards/{n}/std") for n in v.run.functions if v.weights[n] > 1e-6}
    spread = {n: v.weights[n] * std for n, std in stds.items() if not math.isnan(std)}
    if len(spread) < 2 or v.few():
        return None
    loud = max(spread, key=lambda n: spread[n])
    quiet = [n for n in spread if n != loud and stds[n] > 0.05]
    if not quiet or spread[loud] < bound("drown") * sum(spread.values()):
        return None
    part = spread[loud] / sum(spread.values())
    of_all = Evidence(f"{loud}'s fraction of the spread", part, f"under {bound('drown')}")
    other = f"{quiet[0]}: {spread[quiet[0]]:.3g}"
    beside = Evidence(f"rewards/{loud}/std times its weight", spread[loud], other)
    return make("drowned", v.start(), of_all, beside)


def _hacked(v: View) -> Finding | None:
    if not v.rose or not v.gained("gamed_rise") or v.few(2):
        return None
    reward = Evidence(RISE, v.change(), f"over {bound('sure')}: it rose")
    measured = [v.of(f"heldout/{kind}") for kind in ("strict", "lenient")]
    measured = [series for series in measured if len(series) >= 2]
    if any(series.iloc[-1] > series.iloc[0] + 0.05 for series in measured):
        return None
    if measured:  # lenient accuracy says more, where it fell
        series = measured[-1] if measured[-1].iloc[-1] < measured[-1].iloc[0] else measured[0]
        start = float(series.iloc[0])
        at = next((s for s in series.index[1:] if series[s] <= start + 0.05), series.index[-1])
        now = Evidence(str(series.name), float(series.iloc[-1]), f"over {start:.3g}, as it began")
        return make("hacked", at, reward, now)
    right = v.judging("correctness", weighed=True)
    if not v.run.roles or any(v.change(f"rewards/{n}/mean") > 1 for n in right):
        return None
    limit = bound("longer") * float(v.of(LENGTH).head(3).mean())
    return v.over("hacked", LENGTH, limit, reward) if v.last(LENGTH) >= limit else None


def _format_ignored(v: View) -> Finding | None:
    small = 0.1 * max(v.weights.values(), default=0.0)
    unpaid = v.judging("format", weighed=False)
    unpaid = unpaid or [n for n in v.judging("format", weighed=True) if v.weights[n] < small]
    if v.few(2) or v.last("reward") <= bound("little_earned") * v.highest:
        return None
    for name in unpaid:
        metric = f"rewards/{name}/mean"
        if v.last(metric) < bound("half"):
            weight = Evidence("its weight", v.weights[name], "more than a tenth of the largest")
            said = v.seen(metric, f"over {bound('half')}"), weight
            return make("format_ignored", v.start(metric), *said)
    return None


def _beta(v: View) -> Finding | None:
    beta, moved, large = v.settings.get("beta"), v.of(MOVED), bound("large_beta")
    if not beta or beta < large or v.learned or v.few(name="flat_after"):
        return None
    if not len(v.of("kl")) or (len(moved) and float(moved.max()) < bound("hardly")):
        return None
    held = v.last("kl") / max(v.last("entropy"), 1e-9) if len(v.of("entropy")) else 0.0
    if held > bound("held"):
        return None
    tied = Evidence("kl / entropy", held, f"over {bound('held')}: it stays with its reference")
    return make("beta_too_high", v.start("kl"), Evidence("beta", beta, f"under {large}"), tied)


def _kl(v: View) -> Finding | None:
    limit = bound("kl_of_entropy") * v.first("entropy")
    # the median: the estimate of one step can be far too high, when one token was very unlikely
    usual = float(v.of("kl").tail(v.width).median())
    if not v.settings.get("beta", 1) or not usual > limit > 0:
        return None
    said = Evidence("kl", usual, f"under {limit:.3g}, the entropy of the first steps")
    return make("kl_too_high", v.since("kl", lambda x: x > limit), said)


def _falls(v: View) -> Finding | None:
    if v.change() > -bound("sure") or v.few(2):
        return None
    best = v.of("reward").rolling(v.width).mean().idxmax()
    fall = Evidence(RISE, v.change(), f"over -{bound('sure')}")
    return make("reward_falls", best, fall, v.seen("reward", f"{v.first('reward'):.3g} at first"))


def _flat(v: View) -> Finding | None:
    if v.few(name="flat_after"):
        return None
    reward = Evidence(RISE, v.change(), f"over {bound('sure')}")
    moved, hardly = max([0.0, *v.of(MOVED)]), bound("hardly")
    if 0 < moved < hardly and v.gradient() and not v.gained("gamed_rise"):
        return make("rate_too_low", v.start(), Evidence(MOVED, moved, f"over {hardly}"), reward)
    if abs(v.change()) >= bound("sure") or v.learned:
        return None
    return make("reward_flat", v.start(), reward)


def _generation(v: View) -> Finding | None:
    slow = not v.few() and v.last(GENERATING) > bound("generation")
    return v.over("generation_slow", GENERATING, bound("generation")) if slow else None


RULES = (
    _ended, _nan, _reward_nan, _memory, _empty, _cut_off, _frozen, _constant, _wrong_answers,
    _rate_too_high, _collapsed, _no_gradient, _saturated, _drowned, _hacked, _format_ignored,
    _beta, _kl, _falls, _flat, _generation,
)  # fmt: skip


def diagnose(run) -> list[Finding]:
    """What is wrong with the run, the severest first; one finding called "healthy" if nothing is.

    `run`: what read_run gives, or anything that read_run takes. A run is compared with itself: its
    first steps, its group size, its rewards.
    """
    view = View(read_run(run))
    found = in_order([f for rule in RULES if (f := rule(view)) is not None])
    if any(f.severity in (SEVERE, WARNING) for f in found):
        return found
    if view.few(2) if view.learned else view.few(name="flat_after"):
        last = int(view.table.index.max()) if len(view.table) else 0
        seen = Evidence("steps", view.steps, "more, to see the reward rise")
        return [*found, make("too_short", last, seen)]
    return [_healthy(view), *found]


def _healthy(v: View) -> Finding:
    said = [v.seen("reward", f"{v.first('reward'):.3g} at first, of at most {v.highest:.3g}")]
    if len(v.of("reward_std")):
        said.append(v.seen("reward_std", "more than 0: something to compare"))
    heldout = v.of("heldout/strict")
    if len(heldout) > 1:
        said.append(Evidence("heldout/strict", heldout.iloc[-1], f"{heldout.iloc[0]:.3g} at first"))
    step = v.start() if len(v.of("reward")) else 0
    return make("healthy", step, *said, means=_about_loss(v))


def _about_loss(v: View) -> str:
    """Why the loss says nothing, for this run; empty when it was not logged."""
    loss = v.of("loss")
    if not len(loss):
        return ""
    size = f"{float(loss.abs().mean()):.2g} on average"
    if v.settings.get("beta", float(v.of("kl").abs().sum())):
        return f"The loss ({size}) holds the KL penalty, which grows as the policy learns."
    return (
        f"A loss near 0 ({size}) is normal here, because beta is 0: advantages sum to 0 in each "
        "group, and with one update per batch the ratio is 1."
    )
