"""The rules of the diagnosis: each looks at a View of the run and yields findings.

Their bounds are in findings.toml. A rule is skipped if its metric was not logged, or if it needs
the role of a reward function (see grpo_workbook.rewards.reward) and no function has one.
"""

import math
from collections.abc import Callable, Iterator

from grpo_workbook.diagnosis.findings import ALARMS, Evidence, Finding, bound, in_order, make
from grpo_workbook.diagnosis.runlog import RunLog, read_run

UNIQUE, EMPTY = "completions/unique_fraction", "completions/empty_fraction"
INVALID = "rewards/invalid_fraction"
CUT_OFF, LENGTH = "completions/clipped_ratio", "completions/mean_length"
ZERO_VARIANCE, MOVED = "frac_reward_zero_std", "adapter/change"
MEMORY, GENERATING = "memory/fraction", "time/generation_fraction"
RISE = "rise of the reward, in standard errors"
GRADIENT = "grad_norm", "more than 0"
ROUNDING, NO_WEIGHT = 1e-3, 1e-6  # a gradient norm, and a weight, up to this count as 0
ENDINGS = {  # words of the exception that ended a run -> the finding
    "raised by the reward function": "reward_raises", "out of memory": "memory",
    "probability tensor contains": "nan",
}  # fmt: skip


class View:
    """A run in windows: `first` and `last` are means over its first and last steps.

    A metric that was never logged is an empty series with NaN as its means, and every comparison
    with NaN is False. So a rule tests for the fault (`x >= limit`), never for its absence.
    """

    def __init__(self, run: RunLog):
        self.run, self.settings = run, run.settings
        self._logged = {name: values.dropna() for name, values in run.table.items()}
        self._nothing = run.table.reindex(columns=["nothing"])["nothing"].dropna()
        self.steps = len(self.of("reward") if "reward" in run.table else run.table)
        self.enough, self.enough_for_two = (self.steps >= n * bound.first_steps for n in (1, 2))
        width = max(bound.first_steps, self.steps * bound.window)
        self.width = int(min(width, bound.longest_window))
        self.gradient = self.of("grad_norm").tail(self.width).median()
        self.weights = self._weights()
        possible = sum(w for w in self.weights.values() if w > 0)  # if each is at most 1
        self.highest = max([possible, *self.of("reward")])
        self.gain = self.last("reward") - self.first("reward")
        # significant, and large enough to matter
        self.rose = self.change() >= bound.sure and self.gain >= bound.rise * self.highest
        self.high = self.last("reward") >= bound.high_reward * self.highest
        self.learned = self.rose or self.high

    def of(self, metric: str):
        """The metric's values by step, as a series."""
        return self._logged.get(metric, self._nothing)

    def first(self, metric: str, steps: int = 0) -> float:
        """The mean of the first window, or of the first `steps`."""
        return float(self.of(metric).head(steps or self.width).mean())

    def last(self, metric: str) -> float:
        """The mean of the last window."""
        return float(self.of(metric).tail(self.width).mean())

    def seen(self, metric: str, threshold: str) -> Evidence:
        """The mean of the last window as evidence."""
        return Evidence(metric, self.last(metric), threshold)

    def since(self, metric: str, holds: Callable[[float], bool]) -> int:
        """The first step from which it holds to the log's end, with one exception in five steps."""
        backwards = self.of(metric)[::-1].map(holds)
        allowed = [max(1, steps // 5) for steps in range(1, len(backwards) + 1)]
        stretch = ((~backwards).cumsum() <= allowed).cummin()
        held = backwards.index[backwards & stretch]
        return int(held[-1] if len(held) else backwards.index[0])

    def over(self, name: str, metric: str, limit: float, *more: Evidence) -> Finding:
        """The finding from the step on at which the metric reached the limit, its evidence."""
        said = self.seen(metric, f"under {limit:.3g}"), *more
        return make(name, self.since(metric, lambda x: x >= limit), *said)

    def change(self, metric: str = "reward") -> float:
        """Last window minus first, in standard errors; 0 if there are too few steps for two."""
        values = self.of(metric)
        if len(values) < 2 * self.width:
            return 0.0
        a, b = values.head(self.width), values.tail(self.width)
        error, moved = math.sqrt((a.var() + b.var()) / self.width), float(b.mean() - a.mean())
        if error > 0:
            return moved / error
        return math.copysign(math.inf, moved) if abs(moved) > 1e-9 else 0.0

    def _weights(self) -> dict[str, float]:
        """Each function's weight: from the settings, else fitted to the reward, else 1."""
        names, given = self.run.functions, self.settings.get("reward_weights") or {}
        if isinstance(given, list | tuple) and len(given) == len(names):  # as in a GRPOConfig
            given = dict(zip(names, given, strict=True))
        if set(names) <= set(given):
            return {n: float(given[n]) for n in names}
        columns = [*(f"rewards/{n}/mean" for n in names), "reward"]
        parts = self.run.table.reindex(columns=columns).dropna().to_numpy()
        if len(parts) > 2 * len(names):
            import numpy as np

            found, _, rank, _ = np.linalg.lstsq(parts[:, :-1], parts[:, -1], rcond=None)
            if rank == len(names):
                return dict(zip(names, map(float, found), strict=True))
        return dict.fromkeys(names, 1.0)

    def judging(self, role: str) -> dict[str, float]:
        """{metric of a function's mean: its weight} for a role ("correctness", "format")."""
        judges = {n: weight for n, weight in self.weights.items() if self.run.roles.get(n) == role}
        return {f"rewards/{n}/mean": weight for n, weight in judges.items()}


def _broken(v: View) -> Iterator[Finding]:
    if v.run.error is not None:
        step, text = v.run.error
        name = next((name for sign, name in ENDINGS.items() if sign in text.lower()), "stopped")
        yield make(name, step, Evidence("exception", text[:120]))
    metrics = [m for m in ("loss", "grad_norm", "kl", "entropy", MOVED) if m in v.run.broken]
    for metric in metrics[:1]:
        yield make("nan", v.run.broken[metric], Evidence(metric, "NaN or infinite", "a number"))
    invalid = v.of(INVALID)
    broken = [m for m in v.run.broken if m == "reward" or m.startswith("rewards/")]
    if len(bad := invalid[invalid > 0]):
        yield make("reward_nan", bad.index[0], Evidence(INVALID, bad.iloc[0], "0"))
    elif broken and not len(invalid):  # if watched, a NaN means that the function never applied
        seen = Evidence(broken[0], "NaN", "a number, or None on purpose")
        yield make("reward_nan", v.run.broken[broken[0]], seen)


def _resources(v: View) -> Iterator[Finding]:
    used, full, slow = v.of(MEMORY), bound.memory_full, bound.generation
    if len(high := used[used >= full]):
        yield make("memory", high.index[0], Evidence(MEMORY, high.iloc[0], f"under {full}"))
    if v.last(GENERATING) > slow and v.enough:
        yield v.over("generation_slow", GENERATING, slow)


def _lengths(v: View) -> Iterator[Finding]:
    if v.last(EMPTY) >= bound.half:
        yield v.over("empty", EMPTY, bound.half)
    elif v.last(LENGTH) <= 2 and v.settings.get("max_completion_length", 99) > 8:
        seen = v.seen(LENGTH, "more than 2 tokens")
        yield make("empty", v.since(LENGTH, lambda x: x <= 2), seen)
    most, little = bound.nearly_all, bound.little_earned
    # from the first steps: length that grows in training is another finding
    if v.last(CUT_OFF) >= most and v.first(CUT_OFF, 2) >= most:
        best = max((v.last(f"rewards/{n}/mean") for n in v.run.functions), default=0.0)
        name, wanted = "truncated", f"more than {little}"
        if best > little:
            name, wanted = "never_ends", f"over {little}: some earn a reward"
        yield v.over(name, CUT_OFF, most, Evidence("best reward function", best, wanted))


def _frozen(v: View) -> Iterator[Finding]:
    moved, rate = v.of(MOVED), v.of("learning_rate")
    # an entry shows the change by earlier steps; a warm-up starts at rate 0
    tried = moved.index.intersection(rate.index[rate > 0])[1:]
    if len(tried) >= 3 and moved.max() == 0 and v.gradient > ROUNDING:
        there = v.seen("grad_norm", "there is a gradient")
        yield make("frozen", tried[0], Evidence(MOVED, 0.0, "more than 0"), there)


def _constant(v: View) -> Iterator[Finding]:
    paid = [n for n, weight in v.weights.items() if weight > NO_WEIGHT]
    means, stds = ([v.of(f"rewards/{n}/{kind}") for n in paid] for kind in ("mean", "std"))
    differences = [0.0, *(s.max() for s in stds), *(m.max() - m.min() for m in means)]
    if paid and v.enough and all(map(len, means)) and not max(differences) > 1e-6:
        none = Evidence("largest deviation of any function", 0.0, "more than 0")
        differ = v.seen(means[0].name, "should differ")
        yield make("reward_constant", means[0].index[0], differ, none)


def _wrong_answers(v: View) -> Iterator[Finding]:
    rare, heldout = bound.rarely_right, v.of("heldout/lenient")
    forms = [m for m in v.judging("format") if v.last(m) >= bound.half]
    right = [m for m, weight in v.judging("correctness").items() if weight > NO_WEIGHT]
    # if it was right more often at first, it lost that: another finding
    right = [m for m in right if v.last(m) <= rare and v.first(m) <= 2 * rare]
    if forms and right and v.enough_for_two:
        said = [v.seen(right[0], f"over {rare}"), v.seen(forms[0], "the form is right")]
        if len(heldout) and heldout.iloc[0] >= bound.half:
            knows = "it solves held-out problems"
            said.append(Evidence(heldout.name, heldout.iloc[0], knows))
        yield make("wrong_answers", v.since(right[0], lambda x: x <= rare), *said)


def _rate_too_high(v: View) -> Iterator[Finding]:
    moved, norms, reward, jump = v.of(MOVED), v.of("grad_norm"), v.of("reward"), bound.jump
    best, lowest = reward.rolling(v.width, min_periods=2).mean().max(), min([0.0, *reward])
    lost = (best - reward.tail(3).mean()) / (best - lowest) if best > lowest else 0.0
    gone = Evidence("reward lost since its best", lost, f"under {bound.cliff}")
    broken = lost >= bound.cliff
    if len(moved):
        far = moved[moved >= (jump / 2 if broken else jump)]
        if len(far) and (broken or not v.rose):
            wanted = f"under {jump}, or half of that if the reward is lost"
            said = [Evidence(MOVED, far.max(), wanted), *([gone] if broken else [])]
            yield make("rate_too_high", far.index[0], *said)
        return
    limit = 5 * norms.head(v.width).median()
    if broken and norms.max() > limit > 0:
        spike = Evidence("grad_norm", norms.max(), f"under {limit:.3g}")
        yield make("rate_too_high", norms.index[norms > limit][0], spike, gone)


def _collapsed(v: View) -> Iterator[Finding]:
    size = v.settings.get("num_generations", 8)
    limit = bound.same_text / size
    of_success = v.learned and v.first(UNIQUE, 3) > limit
    if v.last(UNIQUE) <= limit and v.enough and not of_success:
        said = v.seen(UNIQUE, f"over {limit:.3g}, two texts in {size}")
        yield make("collapsed", v.since(UNIQUE, lambda x: x <= limit), said)


def _zero_variance(v: View) -> Iterator[Finding]:
    rate, most = v.last(ZERO_VARIANCE), bound.zero_variance
    still = not v.rose and v.of("grad_norm").head(3).median() <= ROUNDING  # from the first steps on
    # Equal rewards that are not round numbers leave a rounding error as deviation and gradient.
    rounding = rate > 0.25 and v.gradient <= ROUNDING
    of_success = v.learned and v.last("reward") >= v.first("reward") and not still
    if (rate >= most or rounding) and v.enough and not of_success:
        step = v.since(ZERO_VARIANCE, lambda x: x >= (0.2 if rounding else most))
        said = v.seen(ZERO_VARIANCE, f"under {most}"), v.seen("grad_norm", f"over {ROUNDING}")
        yield make("no_gradient", step, *said)
    if rate >= bound.half and v.high and v.enough_for_two and not still:
        high = v.seen("reward", f"highest possible: {v.highest:.3g}")
        yield v.over("saturated", ZERO_VARIANCE, bound.half, high)


def _mastered(mean: float, std: float) -> bool:
    """Whether the mean is near the best value: 1, or 0 for a penalty."""
    return mean >= bound.high_reward or (bound.high_reward - 1 <= mean <= 0 and std < bound.half)


def _drowned(v: View) -> Iterator[Finding]:
    # over the first steps, without mastered functions: their spread is small for a good reason
    stds = {n: v.first(f"rewards/{n}/std") for n, weight in v.weights.items() if weight > NO_WEIGHT}
    spread = {n: v.weights[n] * std for n, std in stds.items() if not math.isnan(std)}
    total, loud = sum(spread.values()), max(spread, key=lambda n: spread[n], default="")
    means = {n: v.first(f"rewards/{n}/mean") for n in spread}
    quiet = [n for n in spread if n != loud and stds[n] > 0.05 and not _mastered(means[n], stds[n])]
    if quiet and v.enough and spread[loud] >= bound.drown * total:
        under, other = f"under {bound.drown}", f"{quiet[0]}: {spread[quiet[0]]:.3g}"
        of_all = Evidence(f"{loud}'s fraction of the spread", spread[loud] / total, under)
        beside = Evidence(f"rewards/{loud}/std times its weight", spread[loud], other)
        yield make("drowned", v.of(f"rewards/{loud}/std").index[0], of_all, beside)


def _hacked(v: View) -> Iterator[Finding]:
    if not (v.rose and v.gain >= bound.gamed_rise * v.highest and v.enough_for_two):
        return
    reward = Evidence(RISE, v.change(), f"over {bound.sure}: it rose")
    measured = [s for s in map(v.of, ("heldout/strict", "heldout/lenient")) if len(s) >= 2]
    right = [m for m, weight in v.judging("correctness").items() if weight > NO_WEIGHT]
    limit = bound.longer * v.first(LENGTH, 3)
    if any(series.iloc[-1] > series.iloc[0] + 0.05 for series in measured):
        return
    if measured:  # lenient accuracy is better evidence if it fell
        series = measured[-1] if measured[-1].iloc[-1] < measured[-1].iloc[0] else measured[0]
        start = series.iloc[0]
        since = series.index[1:][series[1:] <= start + 0.05][0]
        now = Evidence(series.name, series.iloc[-1], f"over {start:.3g}, its first value")
        yield make("hacked", since, reward, now)
    elif v.run.roles and v.last(LENGTH) >= limit and not any(v.change(m) > 1 for m in right):
        yield v.over("hacked", LENGTH, limit, reward)


def _format_ignored(v: View) -> Iterator[Finding]:
    forms, small = v.judging("format"), 0.1 * max(v.weights.values(), default=0.0)
    ignored = [m for m, weight in forms.items() if weight < small and v.last(m) < bound.half]
    if ignored and v.enough_for_two and v.last("reward") > bound.little_earned * v.highest:
        seen = v.seen(ignored[0], f"over {bound.half}")
        weight = Evidence("its weight", forms[ignored[0]], "more than a tenth of the largest")
        yield make("format_ignored", v.of(ignored[0]).index[0], seen, weight)


def _penalty(v: View) -> Iterator[Finding]:
    beta, large = v.settings.get("beta"), bound.large_beta
    first, last = v.first("entropy"), v.last("entropy")
    if not len(v.of("entropy")):  # Unsloth's trainer logs none on a GPU
        first = last = bound.usual_entropy
    held = v.last("kl") / max(last, 1e-9)
    tied = held <= bound.held and not v.of(MOVED).max() < bound.hardly
    if tied and (beta or 0) >= large and not v.learned and v.steps >= bound.flat_after:
        low = Evidence("kl / entropy", held, f"over {bound.held}: it stays with its reference")
        said = Evidence("beta", beta, f"under {large}"), low
        yield make("beta_too_high", v.of("kl").index[0], *said)
    # the median: the estimate of one step can be far too high, when one token was very unlikely
    usual, limit = v.of("kl").tail(v.width).median(), bound.kl_of_entropy * first
    if usual > limit > 0 and beta != 0:
        said = Evidence("kl", usual, f"under {limit:.3g}, the entropy of the first steps")
        yield make("kl_too_high", v.since("kl", lambda x: x > limit), said)


def _movement(v: View) -> Iterator[Finding]:
    reward, moved, change = v.of("reward"), v.of(MOVED).max(), v.change()
    flat = Evidence(RISE, change, f"over {bound.sure}")
    still = 0 < moved < bound.hardly and v.gradient > ROUNDING
    if change <= -bound.sure and v.enough_for_two:
        best = reward.rolling(v.width).mean().idxmax()
        now = v.seen("reward", f"{v.first('reward'):.3g} at first")
        yield make("reward_falls", best, Evidence(RISE, change, f"over -{bound.sure}"), now)
    if len(reward) < bound.flat_after:
        return
    if still and v.gain < bound.gamed_rise * v.highest:
        little = Evidence(MOVED, moved, f"over {bound.hardly}")
        yield make("rate_too_low", reward.index[0], little, flat)
    elif abs(change) < bound.sure and not v.learned:
        yield make("reward_flat", reward.index[0], flat)


RULES = (
    _broken, _resources, _lengths, _frozen, _constant, _wrong_answers, _rate_too_high, _collapsed,
    _zero_variance, _drowned, _hacked, _format_ignored, _penalty, _movement,
)  # fmt: skip


def diagnose(run) -> list[Finding]:
    """What is wrong with the run, the most severe first; one finding "healthy" if nothing is.

    `run`: a RunLog, or a source for read_run. It is compared with its own first steps.
    """
    view = View(read_run(run))
    found = in_order([finding for rule in RULES for finding in rule(view)])
    if any(f.severity in ALARMS for f in found):
        return found
    rewards = view.of("reward")
    if len(rewards) < (2 * bound.first_steps if view.learned else bound.flat_after):
        seen = Evidence("steps", len(rewards), "more, to see the reward rise")
        return [*found, make("too_short", view.run.table.index.max(), seen)]
    heldout, high = view.of("heldout/strict"), f"of at most {view.highest:.3g}"
    said = [view.seen("reward", f"{view.first('reward'):.3g} at first, {high}")]
    # not reward_std, TRL's deviation of the whole batch: it is above 0 even if no group differs
    began = f"{view.first(ZERO_VARIANCE):.3g} at first; 1 would mean no gradient"
    said.append(view.seen(*((ZERO_VARIANCE, began) if len(view.of(ZERO_VARIANCE)) else GRADIENT)))
    if len(heldout) > 1:
        said.append(Evidence(heldout.name, heldout.iloc[-1], f"{heldout.iloc[0]:.3g} at first"))
    return [make("healthy", rewards.index[0], *said, means=_about_loss(view)), *found]


def _about_loss(v: View) -> str:
    """Why the loss of this run says nothing about learning; "" if it was not logged."""
    if not len(loss := v.of("loss")):
        return ""
    size = f"{loss.abs().mean():.2g} on average"
    if v.settings.get("beta", v.of("kl").any()):
        return f"The loss ({size}) includes the KL penalty, which grows as the policy learns."
    said = (
        f"A loss near 0 ({size}) is normal here, because beta is 0: advantages sum to 0 in each "
        "group, and with one update per batch every ratio is 1."
    )
    if v.settings.get("loss_type") == "grpo":
        return said
    return f"{said} The rest comes from completions of different lengths."
