"""Rules that compare: rewards with each other, training with held-out problems, the policy with its reference."""

from grpo_workbook.diagnosis import rules
from grpo_workbook.diagnosis.findings import Evidence, Finding, bound, make
from grpo_workbook.diagnosis.rules import FORM, RIGHT, View


def _drowned(v: View) -> Finding | None:
    names = [n for n in v.run.functions if v.weights[n] > 1e-6 and len(v.of(f"rewards/{n}/std"))]
    if len(names) < 2 or v.steps < bound("first_steps"):
        return None
    # over the first steps: later a function may be quiet because it is satisfied
    spread = {n: v.weights[n] * float(v.of(f"rewards/{n}/std").head(v.width).mean()) for n in names}
    loud = max(spread, key=spread.get)
    quiet = [
        n
        for n in names
        if n != loud and float(v.of(f"rewards/{n}/std").head(v.width).mean()) > 0.05
    ]
    share = spread[loud] / sum(spread.values()) if sum(spread.values()) > 0 else 0.0
    if not quiet or share < bound("drown"):
        return None
    share_of = Evidence(f"{loud}'s share of the spread", share, f"under {bound('drown')}")
    beside = Evidence(
        f"rewards/{loud}/std times its weight", spread[loud], f"{quiet[0]}: {spread[quiet[0]]:.3g}"
    )
    return make("drowned", v.of("reward").index[0], share_of, beside)


def _hacked(v: View) -> Finding | None:
    gain = v.last("reward") - v.first("reward")
    if not v.rose or gain < bound("gamed_rise") * v.highest or v.steps < 2 * bound("first_steps"):
        return None
    said = []
    for kind in ("strict", "lenient"):
        series = v.of(f"heldout/{kind}")
        if len(series) >= 2:
            begin, now = float(series.iloc[0]), float(series.iloc[-1])
            said.append((f"heldout/{kind}", begin, now))
    gained = any(now > begin + 0.05 for _, begin, now in said)
    reward = Evidence(
        "rise of the reward, in standard errors", v.change(), f"over {bound('sure')}: it rose"
    )
    if said and not gained:
        metric, begin, now = said[-1] if len(said) > 1 and said[-1][2] < said[-1][1] else said[0]
        series = v.of(metric)
        at = next((s for s in series.index[1:] if series[s] <= begin + 0.05), series.index[-1])
        return make(
            "hacked", at, reward, Evidence(metric, now, f"over {begin:.3g}, where it began")
        )
    if gained or [n for n in v.names(RIGHT, weighed=True) if v.change(f"rewards/{n}/mean") > 1]:
        return None
    length, longer = "completions/mean_length", bound("longer")
    if v.last(length) >= longer * float(v.of(length).head(3).mean()):
        start = float(v.of(length).head(3).mean())
        at = v.since(length, lambda x: x >= longer * start)
        return make(
            "hacked", at, reward, Evidence(length, v.last(length), f"under {longer * start:.3g}")
        )
    return None


def _beta(v: View) -> Finding | None:
    beta, moved = v.settings.get("beta"), v.of("adapter/change")
    if not beta or beta < bound("large_beta") or v.learned or v.steps < bound("flat_after"):
        return None
    if not len(v.of("kl")) or (len(moved) and float(moved.max()) < bound("hardly")):
        return None
    share = v.last("kl") / max(v.last("entropy"), 1e-9) if len(v.of("entropy")) else 0.0
    if share > bound("held"):
        return None
    tied = Evidence("kl / entropy", share, f"over {bound('held')}: it stays with its reference")
    return make(
        "beta_too_high",
        v.of("kl").index[0],
        Evidence("beta", beta, f"under {bound('large_beta')}"),
        tied,
    )


def _kl(v: View) -> Finding | None:
    entropy = float(v.of("entropy").head(v.width).mean())
    if not len(v.of("kl")) or not entropy > 0 or not v.settings.get("beta", 1):
        return None
    limit = bound("kl_of_entropy") * entropy
    # the median: the estimate of a single step can be far too high, when one token was very unlikely
    usual = float(v.of("kl").tail(v.width).median())
    if not usual > limit:
        return None
    said = Evidence("kl", usual, f"under {limit:.3g}, the entropy of the first steps")
    return make("kl_too_high", v.since("kl", lambda x: x > limit), said)


def _falls(v: View) -> Finding | None:
    if v.change() > -bound("sure") or v.steps < 2 * bound("first_steps"):
        return None
    best = float(v.of("reward").rolling(v.width).mean().idxmax())
    fall = Evidence("rise of the reward, in standard errors", v.change(), f"over -{bound('sure')}")
    return make(
        "reward_falls",
        best,
        fall,
        Evidence("reward", v.last("reward"), f"{v.first('reward'):.3g} at first"),
    )


def _format_ignored(v: View) -> Finding | None:
    unpaid = v.names(FORM, weighed=False) or [
        n for n in v.names(FORM, weighed=True) if v.weights[n] < 0.1 * max(v.weights.values())
    ]
    if v.steps < 2 * bound("first_steps"):
        return None
    for name in unpaid:
        metric = f"rewards/{name}/mean"
        if v.last(metric) < bound("half") and v.last("reward") > bound("little_earned") * v.highest:
            seen = Evidence(metric, v.last(metric), f"over {bound('half')}")
            weight = Evidence("its weight", v.weights[name], "more than a tenth of the largest")
            return make("format_ignored", v.of(metric).index[0], seen, weight)
    return None


def _flat(v: View) -> Finding | None:
    if v.steps < bound("flat_after"):
        return None
    reward = Evidence("rise of the reward, in standard errors", v.change(), f"over {bound('sure')}")
    moved, hardly = v.of("adapter/change"), bound("hardly")
    gain = v.last("reward") - v.first("reward")
    if (
        len(moved)
        and 0 < float(moved.max()) < hardly
        and v.gradient()
        and gain < bound("gamed_rise") * v.highest
    ):
        still = Evidence("adapter/change", float(moved.max()), f"over {hardly}")
        return make("rate_too_low", v.of("reward").index[0], still, reward)
    if abs(v.change()) >= bound("sure") or v.learned:
        return None
    return make("reward_flat", v.of("reward").index[0], reward)


def _generation(v: View) -> Finding | None:
    metric, most = "time/generation_share", bound("generation")
    if v.steps < bound("first_steps") or not v.last(metric) > most:
        return None
    return make(
        "generation_slow",
        v.since(metric, lambda x: x > most),
        Evidence(metric, v.last(metric), f"under {most}"),
    )


RULES = (rules._ended, rules._nan, rules._reward_nan, rules._memory, rules._empty, rules._cut_off, rules._frozen,
         rules._constant, rules._wrong_answers, rules._rate_too_high, rules._collapsed, rules._no_gradient,
         rules._saturated, _drowned, _hacked, _beta, _kl, _falls, _format_ignored, _flat, _generation)  # fmt: skip
