"""The rules of the diagnosis: each looks at a View and yields findings (bounds: findings.toml)."""

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from grpo_workbook.diagnosis.findings import ALARMS, DATA, NOTE, Diagnosis, Finding, bound, make
from grpo_workbook.diagnosis.runlog import RunLog, read_run

UNIQUE, EMPTY = "completions/unique_fraction", "completions/empty_fraction"
CUT_OFF, LENGTH = "completions/clipped_ratio", "completions/mean_length"
ZERO_VARIANCE, MOVED = "frac_reward_zero_std", "adapter/change"
MEMORY, GENERATING = "memory/fraction", "time/generation_fraction"
INVALID, RISE = "rewards/invalid_fraction", "t of a line through the reward"
HELDOUT = "heldout/strict", "heldout/lenient"
NAMES = "call_frequency failure_frequency calling lost_results result_frequency out_of_turns broken"
TOOLS = CALLS, FAILED, CALLING, ENDED, RESULTS, LATE, DOWN = [f"tools/{n}" for n in NAMES.split()]
ROUNDING, NO_WEIGHT = 1e-3, 1e-6  # a gradient norm, and a weight, up to this count as 0


class View:
    """A run in windows: `first` and `last` are means over its first and last quarter.

    A metric that was never logged is an empty series with NaN as its means, and every comparison
    with NaN is False. So a rule tests for the fault (`x >= limit`), never for its absence.
    """

    def __init__(self, run: RunLog, live: bool = False):
        self.run, self.settings, self.of = run, run.settings, run.of
        reward = self.of("reward")
        rows = len(reward if "reward" in run.table else run.table)
        self.enough, self.enough_for_two = rows >= bound.first_steps, rows >= 2 * bound.first_steps
        self.width = int(max(bound.first_steps, rows * bound.window))
        self.gradient = self.of("grad_norm").tail(self.width).median()
        names, given = run.functions, run.settings.get("reward_weights") or {}
        if isinstance(given, list | tuple) and len(given) == len(names):  # as in a GRPOConfig
            given = dict(zip(names, given, strict=True))
        self.weights = {n: float(given[n]) if {*names} <= {*given} else 1.0 for n in names}
        said = DATA["roles"].items()
        guessed = {n: role for role, words in said for n in names if re.search(words, n)}
        known = run.settings.get("reward_roles") or {}
        self.roles = {n: role for n, role in known.items() if role} or guessed
        possible = sum(w for w in self.weights.values() if w > 0)  # if each is at most 1
        self.highest = max([possible, *reward])
        self.gain = self.last("reward") - self.first("reward")
        self.best, self.lost, self.fell = self._fall(reward)
        lines, tested = self.lines("reward"), [s for s in map(self.of, HELDOUT) if len(s) > 1]
        self.trend = float(lines.tail(1).sum())  # the last, 0 if there is none
        # also if it is level now and kept what it won; one of many moments is easily high by chance
        ends = reward.head(self.width), reward.tail(self.width)
        error = math.sqrt(sum(end.var() / max(1, len(end)) for end in ends))
        once = max([*lines, 0.0]) - bound.chance >= bound.sure
        rose = self.trend >= bound.sure or (once and self.gain >= bound.kept * error)
        rose = rose or self._fall(-reward)[2]
        self.better = any(s.iloc[-1] > s.iloc[0] + bound.better for s in tested)
        self.rose = (rose or self.better) and not self.fell
        # on a scale that is not known any level run is near the highest that it has seen
        known = self.rose or self.highest <= possible * 1.001
        self.high = known and self.last("reward") >= bound.high_reward * self.highest > 0
        self.learned = self.rose or self.high
        planned = self.settings.get("max_steps", 0)
        most = bound.flat_open if run.table.index.max() < planned else bound.flat_most
        patience = min(planned / 2, math.inf if live else most) if planned > 0 else bound.flat_after
        steps = run.table.index  # a row may be the mean of several steps
        covered = (steps.max() - steps.min()) * len(steps) / max(1, len(steps) - 1)
        self.judgeable = rows >= bound.points and covered >= max(bound.flat_least, patience)
        self.flat = self.judgeable and not (self.learned or self.fell)

    def first(self, metric: str) -> float:
        """The mean of the first window."""
        return float(self.of(metric).head(self.width).mean())

    def last(self, metric: str) -> float:
        """The mean of the last window."""
        return float(self.of(metric).tail(self.width).mean())

    def seen(self, metric: str, *healthy: str) -> tuple:
        """The mean of the last window as evidence for `make`."""
        return metric, self.last(metric), *healthy

    def since(self, holds) -> int:
        """The first step from which it holds to the log's end, with one exception in five steps."""
        back = holds[::-1]
        allowed = [max(1, steps // 5) for steps in range(1, len(back) + 1)]
        held = back.index[back & ((~back).cumsum() <= allowed).cummin()]
        return int([back.index[0], *held][-1])  # if it does not hold now: the last step

    def lines(self, metric: str):
        """t values of straight lines through the first 10, 11, ... and all values."""
        y, least = self.of(metric).reset_index(drop=True), 2 * bound.first_steps
        n = y.index.to_series() + 1.0
        r = y.expanding(least).corr(n).round(12).fillna(0.0)  # a constant has none
        rest = y - r.tail(1).sum() * y.std() / n.std() * n
        alike = min(0.5, max(0.0, rest.autocorr()))  # steps like those before them count for less
        t = r * ((n - 2) / (1 - r * r) * (1 - alike) / (1 + alike)) ** 0.5
        return t.iloc[least - 1 :]

    def _fall(self, values) -> tuple[int, float, bool]:
        """Step and lost fraction of the best window, and whether that is more than chance."""
        size = int(max(bound.first_steps, len(values) / 10))
        if len(values) < 2 * size:
            return 0, 0.0, False
        means = values.rolling(size).mean().dropna()
        fall = means.cummax() - means
        deep, best = fall.max(), means[: fall.idxmax()].idxmax()
        lost = deep / max(means.max() - values.min(), 1e-9)
        error = math.sqrt(values.diff().pow(2).mean() / size)  # steps' noise, without the trend
        gone = fall.iloc[-1] >= deep * bound.not_regained
        return best, lost, bool(gone and lost >= bound.lost and deep >= bound.fall * error)

    def level(self, metric: str, value: float) -> float:
        """Where a function's mean is between the least (or 0) and the most (or 1) it has paid."""
        paid = self.of(metric)
        low, high = min([0.0, *paid]), max([1.0, *paid])
        return (value - low) / (high - low)

    def dead(self, metric: str) -> bool:
        """Whether a function has paid exactly the same, 0 or a penalty, in all of many steps."""
        paid = self.of(metric)
        return self.judgeable and len(paid) >= bound.points and paid.min() == paid.max() <= 0

    def judging(self, role: str) -> dict[str, float]:
        """{metric of a function's mean: its weight} for a role ("correctness", "format")."""
        names = [n for n in self.weights if self.roles.get(n) == role]
        return {f"rewards/{n}/mean": self.weights[n] for n in names}


def _broken(v: View) -> Iterator[Finding]:
    if v.run.error is not None:
        step, text = v.run.error
        known = [name for sign, name in DATA["endings"].items() if sign in text.lower()]
        yield make([*known, "stopped"][0], step, ("exception", text[:120], ""))
    # KL and entropy are only logged; and a gradient that overflowed once was skipped
    broken = v.run.broken
    metrics = [m for m in ("loss", "grad_norm", MOVED) if m in broken]
    for metric in [m for m in metrics if not v.of(m).index.max() > broken[m]][:1]:
        yield make("nan", broken[metric], (metric, "NaN or infinite", "a number"))
    invalid, paid = v.of(INVALID), [m for m in broken if re.match("reward(s/|$)", m)]
    if len(bad := invalid[invalid > 0]):
        yield make("reward_nan", bad.index[0], (INVALID, bad.iloc[0], "0"), until=bad.index[-1])
    elif paid and not len(invalid):  # if watched, a NaN means that the function never applied
        since = broken[paid[0]]
        trained = v.run.table.filter(["reward", LENGTH]).dropna(how="all").loc[since + 1 :].index
        rows = v.run.table[paid[0]].reindex([since, *trained])
        seen = paid[0], "NaN", "a number, or None on purpose"
        yield make("reward_nan", since, seen, until=rows.index[rows.isna()][-1])
    rewards = v.run.table.filter(regex="^(reward(_std)?|rewards/.*/mean)$").dropna(how="all")
    without, sampled = v.of(LENGTH).drop(rewards.index, errors="ignore").index, len(v.of(LENGTH))
    if len(without):
        told = ("rows in which no reward applied", f"{len(without)} of {sampled}", "none")
        found = make("no_reward", without[0], told, until=without[-1])
        often = sampled >= bound.first_steps and len(without) >= bound.half * sampled
        yield found if often else replace(found, severity=NOTE)


def _limits(v: View) -> Iterator[Finding]:
    half, used = bound.half, v.of(MEMORY)
    if len(high := used[used >= bound.memory_full]):
        yield make("memory", high.index[0], (MEMORY, high.iloc[0]), until=high.index[-1])
    if v.last(GENERATING) > (most := bound.generation) and v.enough:
        yield make("generation_slow", v.since(v.of(GENERATING) >= most), v.seen(GENERATING))
    if v.last(EMPTY) >= half:
        yield make("empty", v.since(v.of(EMPTY) >= half), v.seen(EMPTY))
    elif v.last(LENGTH) <= 2 and v.settings.get("max_completion_length", 99) > 8:
        yield make("empty", v.since(v.of(LENGTH) <= 2), v.seen(LENGTH))
    most, by_length = bound.nearly_all, not len(v.of(CUT_OFF))
    cut = _cut_off_by_length(v) if by_length else v.of(CUT_OFF)
    # from the first steps: length that grows in training is another finding
    usual = min(cut.head(v.width).mean(), cut.tail(v.width).mean(), cut.mean())
    if usual >= most and not by_length and v.enough_for_two:
        means = [f"rewards/{n}/mean" for n in v.run.functions]
        best = max((v.level(m, v.last(m)) for m in means if not v.dead(m)), default=0.0)
        name = "never_ends" if best > bound.little_earned else "truncated"
        yield make(name, cut.index[0], (CUT_OFF, usual), ("best reward function", best), most=most)
    elif usual >= half and v.flat:
        alike = DATA["findings"]["truncated"]["by_length"] if by_length and usual >= most else ""
        yield make("truncated", cut.index[0], (cut.name, usual), means=alike, most=half)


def _cut_off_by_length(v: View):
    """The fraction of completions at the limit, from their mean length."""
    length, limit = v.of(LENGTH), v.settings.get("max_completion_length", math.nan)
    if limit < bound.short_limit:
        limit = math.inf
    elif math.isnan(limit):  # the mean of a step is exactly the limit if all are cut off
        top = length.max()
        limit = top if top % 1 == 0 and (length == top).sum() >= bound.often else math.inf
    cut = (2 * length / limit - 1).clip(0)  # half of the limit is a guess for those that end
    return cut.rename("cut off, from the mean length and its limit")


def _tools(v: View) -> Iterator[Finding]:
    calls = v.of(CALLS)
    # steps without a call say nothing of calls: a model whose calls always fail stops calling
    table = v.run.table.reindex(calls.index[calls > 0], columns=TOOLS).fillna(0.0)
    recent = table.tail(v.width).mean()
    dropped = recent[CALLS] - recent[RESULTS] >= recent[ENDED] / 2
    if not dropped:  # nothing but a turn was missing
        recent[LATE], table[LATE] = recent[LATE] + recent[ENDED], table[LATE] + table[ENDED]
    most = bound.half * recent[CALLING] or math.inf  # 0: nobody counted (`watch` does)
    for name, seen, bad in (
        ("tool_down", DOWN, bound.tool_down),
        ("calls_fail", FAILED, bound.half),
        ("results_lost", ENDED, most if dropped else math.inf),
        ("turns_used_up", LATE, most if v.judgeable and not v.learned else math.inf),
    ):
        if (rate := recent[seen]) >= bad and v.enough:
            yield make(name, v.since(table[seen] >= bad), (seen, rate, f"under {bad:.2g}"))
    first, last = v.first(CALLS), v.last(CALLS)
    if v.enough_for_two and first >= bound.some_calls:
        trends = [v.lines(m).tail(1).sum() for m in v.judging("correctness")]
        helped = max(trends) >= bound.sure if trends else v.learned
        if last <= first * bound.calls_gone and not (v.better or v.high):
            yield make("calls_die", v.since(calls <= first / 2), v.seen(CALLS), first=first)
        if last >= max(first * bound.calls_grown, 1.0) and not helped:
            yield make("calls_explode", v.since(calls >= last / 2), v.seen(CALLS), first=first)


def _unmoved(v: View) -> Iterator[Finding]:
    moved, rate = v.of(MOVED), v.of("learning_rate")
    # an entry shows the change by earlier steps; a warm-up starts at rate 0
    tried = moved.index.intersection(rate.index[rate > 0])[1:]
    if len(tried) >= 3 and moved.max() == 0 and v.gradient > ROUNDING:
        yield make("frozen", tried[0], (MOVED, 0.0), v.seen("grad_norm"))
    reward = v.of("reward")
    differs = max([0.0, *v.of("reward_std"), *(reward - reward.min())])
    if v.enough and len(reward) and not differs > 1e-6:
        yield make("reward_constant", reward.index[0], v.seen("reward"), ("largest deviation", 0.0))


def _answers(v: View) -> Iterator[Finding]:
    formats, small = v.judging("format"), 0.1 * max(v.weights.values(), default=0.0)
    ignored = [m for m, weight in formats.items() if weight < small and v.last(m) < bound.half]
    if ignored and v.enough_for_two and v.last("reward") > bound.little_earned * v.highest:
        name, weight = ignored[0], ("its weight", formats[ignored[0]])
        yield make("format_ignored", v.of(name).index[0], v.seen(name), weight)
    rare, heldout, judges = bound.rarely_right, v.of(HELDOUT[1]), v.judging("correctness")
    dead = [m for n, w in v.weights.items() if w > 0 and v.dead(m := f"rewards/{n}/mean")]
    if dead and len(dead) < len(v.weights):
        yield make("never_pays", v.run.table.index[0], *map(v.seen, dead))
    forms = [m for m in formats if v.level(m, v.last(m)) >= bound.half]
    # if it was right more often at first, it lost that: another finding; nor if it rises
    wrong = [
        m for m, weight in judges.items()
        if weight > NO_WEIGHT and v.level(m, v.last(m)) <= rare
        and v.level(m, v.first(m)) <= 2 * rare and v.lines(m).tail(1).sum() < bound.rising
    ]  # fmt: skip
    never = [m for m in wrong if m in dead and v.last(m) < 0]  # always its penalty
    if never or (forms and wrong and v.judgeable):
        metric = (never or wrong)[0]
        said = [v.seen(metric), *(v.seen(m, "the form is right") for m in forms[:1])]
        if len(heldout) and heldout.iloc[0] >= bound.half:
            said.append((HELDOUT[1], heldout.iloc[0]))
        yield make("wrong_answers", v.since(v.level(metric, v.of(metric)) <= rare), *said)


def _alike(v: View) -> Iterator[Finding]:
    size = v.settings.get("num_generations", 8)
    limit = bound.same_text / size
    of_success = v.learned and v.of(UNIQUE).head(3).mean() > limit
    if v.last(UNIQUE) <= limit and v.enough and not of_success:
        since = v.since(v.of(UNIQUE) <= limit)
        yield make("collapsed", since, v.seen(UNIQUE), limit=limit, size=size)
    silent, most = v.of(ZERO_VARIANCE), bound.half if v.flat else bound.zero_variance
    if not len(silent):  # the deviation is 0 in a step in which no group differs
        reward = v.of("reward")
        noise = math.sqrt(reward.diff().pow(2).mean() / 2)  # from step to step
        nothing = max(1e-6, bound.little_spread * noise)
        silent = (v.of("reward_std") <= nothing).rename("steps in which reward_std is about 0")
        most = bound.zero_variance
    rate = silent.tail(max(bound.first_steps, len(silent) // 2)).mean()
    still = not v.rose and v.of("grad_norm").head(3).median() <= ROUNDING  # from the first steps on
    # Equal rewards that are not round numbers leave a rounding error as deviation and gradient.
    rounding = rate > 0.25 and v.gradient <= ROUNDING
    of_success = v.high and v.gain >= 0 and not still
    if (rate >= most or rounding) and v.enough and not of_success:
        norm = [v.seen("grad_norm")] if v.gradient >= 0 else []  # or not logged
        since = v.since(silent >= (0.2 if rounding else bound.half))
        yield make("no_gradient", since, (silent.name, rate), *norm, rounding=ROUNDING, most=most)
    elif v.flat and v.level("reward", v.last("reward")) <= bound.rarely_right:  # whatever it judges
        yield make("wrong_answers", v.of("reward").index[0], v.seen("reward"))
    now = silent.tail(v.width).mean()
    if now >= bound.half and v.high and v.enough_for_two and not still:
        seen = (silent.name, now), v.seen("reward")
        yield make("saturated", v.since(silent >= bound.half), *seen, highest=v.highest)


def _drowned(v: View) -> Iterator[Finding]:
    # over the first steps, without functions mastered then or later: nothing hid those
    means, stds = ({n: v.first(f"rewards/{n}/{k}") for n in v.weights} for k in ("mean", "std"))
    spread = {n: w * stds[n] for n, w in v.weights.items() if w > NO_WEIGHT and stds[n] >= 0}
    total, loud = sum(spread.values()), max(spread, key=spread.get, default="")
    best = bound.high_reward  # near 1, or near 0 for a penalty
    mastered = [
        n for n in spread if means[n] >= best or v.last(f"rewards/{n}/mean") >= bound.nearly_all
        or (best - 1 <= means[n] <= 0 and stds[n] < bound.half)
    ]  # fmt: skip
    quiet = [n for n in spread if n not in (loud, *mastered) and stds[n] > 0.05]
    if quiet and v.enough and spread[loud] >= bound.drown * total:
        metric, other = f"rewards/{loud}/std", f"{quiet[0]}: {spread[quiet[0]]:.3g}"
        of_all = (f"{loud}'s fraction of the spread", spread[loud] / total)
        beside = (f"{metric} times its weight", spread[loud], other)
        yield make("drowned", v.of(metric).index[0], of_all, beside)


def _hacked(v: View) -> Iterator[Finding]:
    measured = [s for s in map(v.of, reversed(HELDOUT)) if len(s) >= 2]
    rose = v.rose and v.gain >= bound.gamed_rise * v.highest and v.enough_for_two
    # lenient accuracy is better evidence if it fell
    fallen = [s for s in measured if s.tail(2).mean() <= s.head(2).mean() - bound.heldout]
    if not measured or v.better or not (rose or fallen):
        return
    series = (fallen or [s for s in measured if s.iloc[-1] < s.iloc[0]] or measured)[0]
    start, rise = series.iloc[0], [(RISE, v.trend)] if rose else []
    since = series.index[1:][series[1:] <= start + bound.better][0]
    yield make("hacked", since, *rise, (series.name, series.iloc[-1]), start=start)


def _penalty(v: View) -> Iterator[Finding]:
    beta, kl, entropy = v.settings.get("beta", math.nan), v.of("kl"), v.of("entropy")
    # Unsloth's trainer logs no entropy on a GPU
    held = v.last("kl") / max(v.last("entropy") if len(entropy) else bound.usual_entropy, 1e-9)
    tied = held <= bound.held and not v.of(MOVED).max() < bound.hardly
    if tied and beta >= bound.large_beta and v.judgeable and not v.learned:
        yield make("beta_too_high", kl.index[0], ("beta", beta), ("kl / entropy", held))
    if not v.enough_for_two or not len(kl):
        return
    # medians: the estimate of one step can be far too high, when one token was very unlikely
    usual, began = kl.tail(v.width).median(), kl.iloc[0]
    if began >= bound.first_kl and began >= kl.median() / 2:
        found = make("reference_differs", kl.index[0], ("first kl", began))
        yield replace(found, severity=ALARMS[1]) if v.flat else found
    # a policy that clearly learns may go half as far again
    limit = max(began, 0.0) + bound.far * (1.5 if v.trend >= 2 * bound.sure else 1)
    if usual > limit and beta != 0:
        yield make("kl_too_high", v.since(kl > limit), ("kl", usual), limit=limit)


def _movement(v: View) -> Iterator[Finding]:
    reward, moved, norms = v.of("reward"), v.of(MOVED), v.of("grad_norm")
    broken, line = v.lost >= bound.cliff, (RISE, v.trend)
    gone = [("reward lost since its best", v.lost)] if broken else []
    far = moved[moved >= (bound.jump / 2 if broken else bound.jump)]
    limit, falling = 5 * norms.head(v.width).median(), -bound.sure - bound.chance
    if len(far) and (broken or not v.rose):
        yield make("rate_too_high", far.index[0], (MOVED, far.max()), *gone)
    elif not len(moved) and broken and v.fell and norms.max() > limit > 0:
        spike, since = ("grad_norm", norms.max()), norms.index[norms > limit][0]
        yield make("rate_too_high", since, spike, *gone, limit=limit)
    if v.fell or (v.trend <= falling and v.lost >= bound.lost / 2):
        deep = ("lost fraction of its best window", v.lost)
        yield make("reward_falls", v.best, line, deep, falling=falling)
    still = 0 < moved.max() < bound.hardly and v.gradient > ROUNDING
    if v.judgeable and still and v.gain < bound.gamed_rise * v.highest:
        yield make("rate_too_low", reward.index[0], (MOVED, moved.max()), line)
    elif v.flat and len(reward):
        yield make("reward_flat", reward.index[0], line)


RULES = _broken, _limits, _tools, _unmoved, _answers, _alike, _drowned, _hacked, _penalty, _movement


def diagnose(run, *, live: bool = False) -> Diagnosis:
    """What is wrong with the run, the most severe first; one finding "healthy" if nothing is.

    `run`: a RunLog, or a source for read_run. `live`: it goes on, so that a flat reward is reported
    only after half of its `max_steps`. The list's `unjudged` has, as dicts, each "metric" or
    setting that is not known, the "findings" that need it, and "how" to log or give it.
    """
    view = View(read_run(run), live)
    seen = {"learning_rate": "learning_rate", "max_completion_length": "completions/max_length"}
    known = {name: view.of(metric).max() for name, metric in seen.items()} | view.settings
    found = [finding for rule in RULES for finding in rule(view)]
    if not any(f.severity in ALARMS for f in found):
        found.append(_no_alarm(view))
    all_known = {*view.roles} >= {*view.weights}  # no function of unknown role may judge answers
    told = {*view.settings, *view.roles.values()} | ({"correctness"} if all_known else set())
    return Diagnosis(found, view.run.table, known, told)


def _no_alarm(v: View) -> Finding:
    reward, steps, heldout = v.of("reward"), v.run.table.index, v.of(HELDOUT[0])
    if not (v.enough_for_two if v.learned else v.judgeable) or not len(reward):
        return make("too_short", steps.min(), ("steps", steps.max()))
    # not reward_std, TRL's deviation of the whole batch: it is above 0 even if no group differs
    proofs = [v.seen(m) for m in (ZERO_VARIANCE, "grad_norm") if len(v.of(m))]  # what was logged
    said = [v.seen("reward"), *proofs[:1], *[(HELDOUT[0], x) for x in heldout[1:].tail(1)]]
    known = {"first": v.first("reward"), "highest": v.highest, "alike": v.first(ZERO_VARIANCE)}
    known["began"] = heldout.head(1).sum()
    # why the loss of this run says nothing about learning
    kl = "kl" in v.run.broken or v.of("kl").any()
    loss, why, beta = v.of("loss"), DATA["loss"], v.settings.get("beta", kl)
    words = why["with_kl" if beta else "alone"]
    words += "" if beta or v.settings.get("loss_type") == "grpo" else why["lengths"]
    about = words.format(f"{loss.abs().mean():.2g} on average") if len(loss) else ""
    return make("healthy", reward.index[0], *said, means=about, **known)
