"""The rules of the diagnosis: each looks at a View and returns its finding, or None.

They stand by subject: broken runs, limits, calls of tools, answers, groups without a difference,
rewards against each other, held-out problems, the KL penalty, the movement of the adapters. RULES
lists them all. The bounds and their reasons are in findings.toml.
"""

import math
import re
from collections.abc import Callable

from grpo_workbook.diagnosis.findings import DATA, NOTE, WARNING, Finding, bounds
from grpo_workbook.diagnosis.view import (
    CALLING,
    CALLS,
    CUT_OFF,
    DIFFERENCE,
    DOWN,
    EMPTY,
    FAILED,
    GENERATING,
    INVALID,
    LATE,
    LENGTH,
    LENIENT,
    LOST,
    MEMORY,
    MOVED,
    RATIO,
    RESULTS,
    STRICT,
    UNCLOSED,
    UNIQUE,
    ZERO_VARIANCE,
    Series,
    View,
    last_of,
    mean_of,
    since,
)

ROUNDING = 1e-3  # a gradient norm up to this is a rounding error
NO_WEIGHT = 1e-6  # the same for the weight of a reward function
TREND = "t of a line through the reward"
FALLING = -bounds.sure - bounds.chance  # a trend

# ---- broken runs


def stopped(view: View) -> Finding | None:
    """An exception ended the run."""
    if view.run.error is None:
        return None
    step, message = view.run.error
    evidence = [("exception", message[:120], "")]
    for words, name in DATA["endings"].items():
        if words in message.lower():
            return view.finding(name, step, evidence)
    return view.finding("stopped", step, evidence)


def not_a_number(view: View) -> Finding | None:
    """The loss, the gradient or the adapters became NaN or infinite, and stayed so."""
    # KL and entropy are only logged
    for metric in ("loss", "grad_norm", MOVED):
        if metric not in view.run.broken:
            continue
        step = view.run.broken[metric]
        if view.of(metric).index.max() > step:
            continue  # a number followed: a gradient that overflowed once was skipped
        return view.finding("nan", step, [(metric, "NaN or infinite", "a number")])
    return None


def reward_not_a_number(view: View) -> Finding | None:
    """A reward function returned NaN or infinity."""
    invalid = view.of(INVALID)
    bad = invalid[invalid > 0]
    if len(bad) > 0:
        evidence = [(INVALID, bad.iloc[0], "0")]
        return view.finding("reward_nan", bad.index[0], evidence, until=bad.index[-1])
    if len(invalid) > 0:
        return None  # the rewards were watched: a NaN means that the function never applied
    metrics = [name for name in view.run.broken if re.match("reward(s/|$)", name)]
    if not metrics:
        return None
    metric = metrics[0]
    step = view.run.broken[metric]
    trained = view.table.filter(["reward", LENGTH]).dropna(how="all").loc[step + 1 :].index
    values = view.table[metric].reindex([step, *trained])
    missing = values.index[values.isna()]
    if len(missing) == 0:
        return None  # the step was logged again, with a number
    evidence = [(metric, "NaN", "a number, or None on purpose")]
    return view.finding("reward_nan", step, evidence, until=missing[-1])


def no_reward(view: View) -> Finding | None:
    """No reward function applied in some rows; a note if they are few."""
    rewards = view.table.filter(regex="^(reward(_std)?|rewards/.*/mean)$").dropna(how="all")
    sampled = view.of(LENGTH)
    missing = sampled.drop(rewards.index, errors="ignore").index
    if len(missing) == 0:
        return None
    # in a few rows it is a matter of the data, in most of them nothing is learned
    often = len(sampled) >= bounds.first_steps and len(missing) >= bounds.half * len(sampled)
    rows = f"{len(missing)} of {len(sampled)}"
    return view.finding(
        "no_reward",
        missing[0],
        [("rows in which no reward applied", rows, "none")],
        until=missing[-1],
        severity=None if often else NOTE,
    )


# ---- limits of memory, time and length


def memory(view: View) -> Finding | None:
    """Memory is nearly full."""
    used = view.of(MEMORY)
    full = used[used >= bounds.memory_full]
    if len(full) == 0:
        return None
    evidence = [(MEMORY, full.iloc[0], f"under {bounds.memory_full}")]
    return view.finding("memory", full.index[0], evidence, until=full.index[-1])


def generation_slow(view: View) -> Finding | None:
    """Sampling takes nearly all the time of a step."""
    limit = bounds.generation
    fraction = view.last(GENERATING)
    if not (view.enough and fraction > limit):
        return None
    step = since(view.of(GENERATING) >= limit)
    return view.finding("generation_slow", step, [(GENERATING, fraction, f"under {limit}")])


def empty(view: View) -> Finding | None:
    """Completions are empty, or of one or two tokens where more are allowed."""
    fraction = view.last(EMPTY)
    if fraction >= bounds.half:
        step = since(view.of(EMPTY) >= bounds.half)
        return view.finding("empty", step, [(EMPTY, fraction, f"under {bounds.half}")])
    length = view.last(LENGTH)
    # a limit that is not known counts as a long one
    if length <= 2 and view.settings.get("max_completion_length", 99) > 8:
        step = since(view.of(LENGTH) <= 2)
        return view.finding("empty", step, [(LENGTH, length, "more than 2 tokens")])
    return None


def thoughts_open(view: View) -> Finding | None:
    """Most thoughts never close, so that no answer follows; a note if the reward is high."""
    unclosed = view.of(UNCLOSED)
    fraction = view.last(UNCLOSED)
    if not (view.enough and fraction >= bounds.half):
        return None
    evidence = [(UNCLOSED, fraction, f"under {bounds.half}")]
    # The clipped ratio tells a limit that is too short from a model that forgets the tag.
    cut_off = view.last(CUT_OFF)
    if cut_off >= bounds.half:
        evidence.append((CUT_OFF, cut_off, "the limit cuts them off"))
    elif cut_off >= 0:  # it was logged
        evidence.append((CUT_OFF, cut_off, "they end, and are not closed"))
    severity = NOTE if view.high else None
    step = since(unclosed >= bounds.half)
    return view.finding("thoughts_open", step, evidence, severity=severity)


def truncated(view: View) -> Finding | None:
    """Completions are cut off from the first steps on: for want of room, or of an end token."""
    ratio = cut_off_ratio(view)
    cut_off = usual_from_the_start(view, ratio)
    most = cut_off >= bounds.nearly_all
    if most and ratio.name == CUT_OFF and view.enough_for_two:
        metrics = [mean_of(name) for name in view.run.functions]
        levels = [view.level(m, view.last(m)) for m in metrics if not view.is_dead(m)]
        best = max(levels, default=0.0)
        # what earns has an answer in it: there was room enough, and no end token
        name = "never_ends" if best > bounds.little_earned else "truncated"
        evidence = [
            (CUT_OFF, cut_off, f"under {bounds.nearly_all}"),
            ("best reward function", best, f"over {bounds.little_earned}: earns"),
        ]
        return view.finding(name, ratio.index[0], evidence)
    if not (view.flat and cut_off >= bounds.half):
        return None
    note = DATA["notes"]["cut_off_by_length"] if most and ratio.name != CUT_OFF else ""
    evidence = [(ratio.name, cut_off, f"under {bounds.half}")]
    return view.finding("truncated", ratio.index[0], evidence, note=note)


def cut_off_ratio(view: View) -> Series:
    """The fraction of completions that are cut off, by their mean length where it is not logged."""
    ratio = view.of(CUT_OFF)
    if len(ratio) > 0:
        return ratio
    length = view.of(LENGTH)
    # half of the limit is a guess for the completions that end
    ratio = (2 * length / length_limit(view, length) - 1).clip(0)
    return ratio.rename("cut off, from the mean length and its limit")


def usual_from_the_start(view: View, values: Series) -> float:
    """The least mean of the first window, the last and all: what grew in training is not usual."""
    first = values.head(view.width).mean()
    last = values.tail(view.width).mean()
    return min(first, last, values.mean())


def lengths_grow(view: View) -> Finding | None:
    """Completions become many times longer; a note if the reward rose or is high."""
    lengths = view.of(LENGTH)
    # less than ten tokens may well become a hundred
    first, last = max(10.0, view.first(LENGTH)), view.last(LENGTH)
    if not view.enough_for_two or not last >= bounds.longer * first:
        return None
    step = since(lengths >= bounds.longer * first / 2)
    evidence = [(LENGTH, last, f"near its start of {first:.3g}")]
    severity = NOTE if view.learned else None
    return view.finding("lengths_grow", step, evidence, severity=severity)


def length_limit(view: View, length: Series) -> float:
    """The limit of a completion's length, infinite where it is not known or very short."""
    limit = view.settings.get("max_completion_length", math.nan)
    if limit < bounds.short_limit:
        return math.inf
    if not math.isnan(limit):
        return limit
    longest = length.max()
    # the mean of a step is exactly the limit if all are cut off
    if longest % 1 == 0 and (length == longest).sum() >= bounds.often:
        return longest
    return math.inf


# ---- the program that samples


def sampler_differs(view: View) -> Finding | None:
    """vLLM and the trainer give the sampled tokens different probabilities."""
    ratio, difference = view.last(RATIO), view.last(DIFFERENCE)
    if not view.enough or probabilities_agree(ratio, difference):
        return None
    evidence = [
        (RATIO, ratio, f"near 1, from {bounds.few_kept} to {bounds.many_times}"),
        (DIFFERENCE, difference, f"under {bounds.other_probabilities}"),
    ]
    return view.finding("sampler_differs", view.table.index[0], evidence)


def probabilities_agree(ratio: float, difference: float) -> bool:
    """Whether the mean ratio and difference of two programs' probabilities are usual, or NaN."""
    if not (ratio > 0 or difference > 0):
        return True  # Unsloth logs 0 for both where it has not measured them
    if ratio <= bounds.few_kept or ratio >= bounds.many_times:
        return False
    return not difference >= bounds.other_probabilities


# ---- calls of tools


def calls_fault(view: View, name: str, rates: Series, limit: float) -> Finding | None:
    """The finding `name` if the last window's mean of these rates reaches the limit."""
    rate = rates.tail(view.width).mean()
    if not (view.enough and rate >= limit):
        return None
    return view.finding(
        name, since(rates >= limit), [(str(rates.name), rate, f"under {limit:.2g}")]
    )


def tool_down(view: View) -> Finding | None:
    """A tool fails by its own fault."""
    return calls_fault(view, "tool_down", view.calls[DOWN], bounds.tool_down)


def calls_fail(view: View) -> Finding | None:
    """Most calls end in an error."""
    return calls_fault(view, "calls_fail", view.calls[FAILED], bounds.half)


def results_were_dropped(view: View) -> bool:
    """Calls without a result are so many as completions that end in a call."""
    recent = view.calls.tail(view.width).mean()
    return recent[CALLS] - recent[RESULTS] >= recent[LOST] / 2


def half_of_calling(view: View) -> float:
    """Half of the fraction of completions that call; infinite if `watch` did not count them."""
    calling = view.calls[CALLING].tail(view.width).mean()
    return bounds.half * calling or math.inf


def results_lost(view: View) -> Finding | None:
    """Most completions that call end in the call, because its result did not fit."""
    if not results_were_dropped(view):
        return None
    return calls_fault(view, "results_lost", view.calls[LOST], half_of_calling(view))


def turns_used_up(view: View) -> Finding | None:
    """Most completions that call have no turn left for the answer."""
    if not view.judgeable or view.learned:
        return None
    late = view.calls[LATE]
    if not results_were_dropped(view):  # nothing but a turn was missing
        late = (late + view.calls[LOST]).rename(LATE)
    return calls_fault(view, "turns_used_up", late, half_of_calling(view))


def calls_die(view: View) -> Finding | None:
    """Calls become rare, and few answers are right."""
    first, last = view.first(CALLS), view.last(CALLS)
    if not (view.enough_for_two and first >= bounds.some_calls):
        return None
    # a model that is right without a call needs none
    if not last <= first * bounds.calls_gone or view.heldout_rose or view.high:
        return None
    step = since(view.of(CALLS) <= first / 2)
    return view.finding("calls_die", step, [(CALLS, last, f"near its start of {first:.2g}")])


def calls_explode(view: View) -> Finding | None:
    """Calls multiply, and the answers get no better."""
    first, last = view.first(CALLS), view.last(CALLS)
    if not (view.enough_for_two and first >= bounds.some_calls):
        return None
    if not last >= max(first * bounds.calls_grown, 1.0):
        return None
    trends = [last_of(view.t_values(metric)) for metric in view.judging("correctness")]
    answers_rose = max(trends) >= bounds.sure if trends else view.learned
    if answers_rose:
        return None
    step = since(view.of(CALLS) >= last / 2)
    healthy = f"near its start of {first:.2g}, or better answers"
    return view.finding("calls_explode", step, [(CALLS, last, healthy)])


# ---- answers and their form


def reward_constant(view: View) -> Finding | None:
    """The reward is the same number for every completion."""
    reward = view.reward
    largest = max([0.0, *view.of("reward_std"), *(reward - reward.min())])
    if not view.enough or len(reward) == 0 or largest > 1e-6:
        return None
    evidence = [
        ("reward", view.last("reward"), "should differ"),
        ("largest deviation", 0.0, "more than 0"),
    ]
    return view.finding("reward_constant", reward.index[0], evidence)


def format_ignored(view: View) -> Finding | None:
    """Answers are rewarded in any form, and the form that is checked has no weight."""
    if not view.enough_for_two or not view.last("reward") > bounds.little_earned * view.highest:
        return None
    # the weights are compared with one another: their scale is the user's
    small = 0.1 * max(view.weights.values(), default=0.0)
    for metric, weight in view.judging("format").items():
        value = view.last(metric)
        if weight < small and value < bounds.half:
            evidence = [
                (metric, value, f"over {bounds.half}"),
                ("its weight", weight, "more than a tenth of the largest"),
            ]
            return view.finding("format_ignored", view.of(metric).index[0], evidence)
    return None


def never_pays(view: View) -> Finding | None:
    """Some reward functions, but not all, pay exactly the same, 0 or a penalty, in every step."""
    return constant_functions(view, "never_pays", view.is_dead)


def always_pays(view: View) -> Finding | None:
    """Some reward functions, but not all, pay exactly the same, above 0, in every step."""
    return constant_functions(view, "always_pays", view.pays_always)


def constant_functions(view: View, name: str, is_constant: Callable) -> Finding | None:
    """The finding `name` about the functions with a weight whose metric is constant."""
    evidence = []
    for function, weight in view.weights.items():
        metric = mean_of(function)
        if weight > 0 and is_constant(metric):
            evidence.append((metric, view.last(metric), "exactly this in every step"))
    if not evidence or len(evidence) == len(view.weights):
        return None  # that all are constant is another finding
    return view.finding(name, view.table.index[0], evidence)


def wrong_answers(view: View) -> Finding | None:
    """The function that judges the answer hardly ever pays, although the form is right."""
    formats = list(view.judging("format"))
    learned = [m for m in formats if view.level(m, view.last(m)) >= bounds.half]
    metric = judge_that_hardly_pays(view, form_is_learned=len(learned) > 0)
    if metric is None:
        return None
    evidence = [(metric, view.last(metric), f"over {bounds.rarely_right}")]
    if learned:
        evidence.append((learned[0], view.last(learned[0]), "the form is right"))
    accuracy = view.of(LENIENT)
    if len(accuracy) > 0 and accuracy.iloc[0] >= bounds.half:
        evidence.append((LENIENT, accuracy.iloc[0], "it solves held-out problems"))
    step = since(view.level(metric, view.of(metric)) <= bounds.rarely_right)
    return view.finding("wrong_answers", step, evidence)


def judge_that_hardly_pays(view: View, form_is_learned: bool) -> str | None:
    """The metric of a function that judges the answer and is the cause that nothing is right."""
    wrong = [metric for metric in view.judging("correctness") if rarely_right(view, metric)]
    for metric in wrong:
        if view.is_dead(metric) and view.last(metric) < 0:
            return metric  # always its penalty, whatever the form
    if wrong and form_is_learned and view.judgeable:
        return wrong[0]
    return None


def rarely_right(view: View, metric: str) -> bool:
    """A function that judges answers pays hardly ever, did so at first, and does not rise."""
    if view.judging("correctness")[metric] <= NO_WEIGHT:
        return False
    if not view.level(metric, view.last(metric)) <= bounds.rarely_right:
        return False
    if not view.level(metric, view.first(metric)) <= 2 * bounds.rarely_right:
        return False  # right answers were lost, which is another finding
    return last_of(view.t_values(metric)) < bounds.rising


# ---- groups without a difference


def collapsed(view: View) -> Finding | None:
    """The completions of a group are nearly all the same text, and that is no success."""
    # 8 is TRL's default
    size = view.settings.get("num_generations", 8)
    limit = bounds.same_text / size
    fraction = view.last(UNIQUE)
    if not (view.enough and fraction <= limit):
        return None
    if view.learned and view.of(UNIQUE).head(3).mean() > limit:
        return None  # texts differed at first: the same right answer is learned
    step = since(view.of(UNIQUE) <= limit)
    healthy = f"over {limit:.3g}, two texts in {size}"
    return view.finding("collapsed", step, [(UNIQUE, fraction, healthy)])


def silent_groups(view: View) -> Series:
    """The fraction of groups without a difference, or where it was not logged of such steps."""
    silent = view.of(ZERO_VARIANCE)
    if len(silent) > 0:
        return silent
    # the batch's deviation is about 0 in a step in which no group differs
    noise = math.sqrt(view.reward.diff().pow(2).mean() / 2)  # from step to step
    nothing = max(1e-6, bounds.little_spread * noise)
    return (view.of("reward_std") <= nothing).rename("steps in which reward_std is about 0")


def began_without_gradient(view: View) -> bool:
    """There was no gradient in the first window, and the reward has not risen."""
    # a few steps are no evidence: in a run near its maximum all of a step may be right
    return not view.rose and view.of("grad_norm").head(view.width).median() <= ROUNDING


def all_are_right(view: View) -> bool:
    """The run is near its maximum, has not left it, and began with a gradient."""
    fell = view.gain < -bounds.level * view.highest
    return view.high and not fell and not began_without_gradient(view)


def no_gradient(view: View) -> Finding | None:
    """In most groups all completions earn the same, and that is no success."""
    silent = silent_groups(view)
    rate = silent.tail(max(bounds.first_steps, len(silent) // 2)).mean()
    flat_groups = view.flat and silent.name == ZERO_VARIANCE
    limit = bounds.half if flat_groups else bounds.zero_variance
    # equal rewards that are not round numbers leave a rounding error as deviation and gradient
    rounding = rate > 0.25 and view.gradient <= ROUNDING
    if not view.enough or not (rate >= limit or rounding):
        return None
    if all_are_right(view):
        return None
    step = since(silent >= (0.2 if rounding else bounds.half))
    return view.finding("no_gradient", step, no_gradient_evidence(view, silent.name, rate, limit))


def no_gradient_evidence(view: View, metric: str, rate: float, limit: float) -> list:
    """The rate of zero-variance groups and the gradient norm, if they show that nothing is learned.

    A rounding error hides many of the groups: then the gradient norm alone is evidence.
    """
    evidence = []
    if rate >= limit:
        evidence.append((metric, rate, f"under {limit}"))
    if view.gradient >= 0:  # it was logged
        evidence.append(("grad_norm", view.last("grad_norm"), f"over {ROUNDING}"))
    return evidence


def hardly_paid(view: View) -> Finding | None:
    """The total reward is flat and near its least, whatever it judges, and groups differ."""
    if not view.flat or no_gradient(view) is not None:
        return None
    reward = view.last("reward")
    if not view.level("reward", reward) <= bounds.rarely_right:
        return None
    evidence = [("reward", reward, f"over {bounds.rarely_right}")]
    return view.finding("wrong_answers", view.reward.index[0], evidence)


def saturated(view: View) -> Finding | None:
    """In most groups all completions are right."""
    silent = silent_groups(view)
    rate = silent.tail(view.width).mean()
    if not (view.high and view.enough_for_two and rate >= bounds.half):
        return None
    if began_without_gradient(view):
        return None
    evidence = [
        (silent.name, rate, f"under {bounds.half}"),
        ("reward", view.last("reward"), f"highest possible: {view.highest:.3g}"),
    ]
    return view.finding("saturated", since(silent >= bounds.half), evidence)


# ---- rewards against each other, and against held-out problems


def drowned(view: View) -> Finding | None:
    """The spread of one reward function, times its weight, hides another in the first steps."""
    spreads = {}
    for name, weight in view.weights.items():
        deviation = view.first(f"rewards/{name}/std")
        if weight > NO_WEIGHT and deviation >= 0:
            # advantages come from the weighted sum, in which a function counts by this product
            spreads[name] = weight * deviation
    loud = max(spreads, key=lambda name: spreads[name], default="")
    quiet = [name for name in spreads if name != loud and has_more_to_learn(view, name)]
    total = sum(spreads.values())
    if not quiet or not view.enough or not spreads[loud] >= bounds.drown * total:
        return None
    metric = f"rewards/{loud}/std"
    fraction = spreads[loud] / total
    other = f"{quiet[0]}: {spreads[quiet[0]]:.3g}"
    evidence = [
        (f"{loud}'s fraction of the spread", fraction, f"under {bounds.drown}"),
        (f"{metric} times its weight", spreads[loud], other),
    ]
    return view.finding("drowned", view.of(metric).index[0], evidence)


def has_more_to_learn(view: View, name: str) -> bool:
    """A function's rewards differ in the first steps, and it is not mastered, then or later."""
    deviation = view.first(f"rewards/{name}/std")
    if not deviation > 0.05:
        return False
    first, last = view.first(mean_of(name)), view.last(mean_of(name))
    if first >= bounds.high_reward or last >= bounds.nearly_all:
        return False
    # a penalty of 0 to -0.2 is hardly ever due: it is learned
    rare_penalty = bounds.high_reward - 1 <= first <= 0 and deviation < bounds.half
    return not rare_penalty


def hacked(view: View) -> Finding | None:
    """Held-out accuracy falls, or does not rise while the reward does."""
    if view.heldout_rose:
        return None
    large_gain = view.enough_for_two and view.gain >= bounds.gamed_rise * view.highest
    evidence = []
    accuracy = heldout_that_fell(view)
    if view.rose and large_gain:
        evidence.append((TREND, view.trend, f"over {bounds.sure}: it rose"))
        if accuracy is None:
            accuracy = heldout_that_is_level(view)
    if accuracy is None:
        return None
    start = accuracy.iloc[0]
    evidence.append((accuracy.name, accuracy.iloc[-1], f"over {start:.3g}, its first value"))
    later = accuracy.iloc[1:]
    step = later.index[later <= start + bounds.better][0]
    return view.finding("hacked", step, evidence)


def heldout_that_fell(view: View) -> Series | None:
    """The held-out accuracy that fell clearly; if both did, the lenient one is better evidence."""
    for metric in (LENIENT, STRICT):
        accuracy = view.of(metric)
        if accuracy.tail(2).mean() <= accuracy.head(2).mean() - bounds.heldout:
            return accuracy
    return None


def heldout_that_is_level(view: View) -> Series | None:
    """A held-out accuracy that was measured twice."""
    for metric in (LENIENT, STRICT):
        accuracy = view.of(metric)
        if len(accuracy) >= 2:
            return accuracy
    return None


# ---- the KL penalty


def beta_too_high(view: View) -> Finding | None:
    """The KL penalty outweighs the reward."""
    beta = view.settings.get("beta", math.nan)
    if not beta >= bounds.large_beta or not view.judgeable or view.learned:
        return None
    if view.of(MOVED).max() < bounds.hardly:
        return None
    # Unsloth's trainer logs no entropy on a GPU
    entropy = view.last("entropy") if len(view.of("entropy")) > 0 else bounds.usual_entropy
    ratio = view.last("kl") / max(entropy, 1e-9)
    if not ratio <= bounds.held:
        return None
    evidence = [
        ("beta", beta, f"under {bounds.large_beta}"),
        ("kl / entropy", ratio, f"over {bounds.held}: it stays with its reference"),
    ]
    return view.finding("beta_too_high", view.of("kl").index[0], evidence)


def reference_differs(view: View) -> Finding | None:
    """The KL is above 0 in the first step; a warning if the reward is flat."""
    kl = view.of("kl")
    if not view.enough_for_two or len(kl) == 0:
        return None
    start = kl.iloc[0]
    if not (start >= bounds.first_kl and start >= kl.median() / 2):
        return None
    severity = WARNING if view.flat else None
    return view.finding(
        "reference_differs", kl.index[0], [("first kl", start, "0")], severity=severity
    )


def kl_too_high(view: View) -> Finding | None:
    """The policy is far from its reference, beyond what the first step shows."""
    kl = view.of("kl")
    if not view.enough_for_two or len(kl) == 0 or view.settings.get("beta") == 0:
        return None
    # the median: the estimate of one step can be far too high, when one token was very unlikely
    usual = kl.tail(view.width).median()
    clearly_learns = view.trend >= 2 * bounds.sure  # it may go half as far again
    growth = bounds.far * 1.5 if clearly_learns else bounds.far
    limit = max(kl.iloc[0], 0.0) + growth
    if not usual > limit:
        return None
    evidence = [("kl", usual, f"under {limit:.3g} per token")]
    return view.finding("kl_too_high", since(kl > limit), evidence)


# ---- the movement of the adapters and of the reward


def frozen(view: View) -> Finding | None:
    """There is a gradient, but the adapters do not move."""
    moved = view.of(MOVED)
    rate = view.of("learning_rate")
    # an entry shows the change by earlier steps; a warm-up starts at rate 0
    tried = moved.index.intersection(rate.index[rate > 0])[1:]
    if len(tried) < 3 or moved.max() != 0 or not view.gradient > ROUNDING:
        return None
    evidence = [
        (MOVED, 0.0, "more than 0"),
        ("grad_norm", view.last("grad_norm"), "there is a gradient"),
    ]
    return view.finding("frozen", tried[0], evidence)


def rate_too_high(view: View) -> Finding | None:
    """The adapters jump; or the gradient does, where their change was not logged."""
    moved = view.of(MOVED)
    broken = view.fall.lost >= bounds.cliff
    evidence = []
    if broken:
        lost = ("reward lost since its best", view.fall.lost, f"under {bounds.cliff}")
        evidence.append(lost)
    if len(moved) == 0:
        if not (broken and view.fall.certain):
            return None
        norms = view.of("grad_norm")
        limit = 5 * norms.head(view.width).median()
        if not norms.max() > limit > 0:
            return None
        evidence.insert(0, ("grad_norm", norms.max(), f"under {limit:.3g}"))
        return view.finding("rate_too_high", norms.index[norms > limit][0], evidence)
    # where half of the reward is lost, half a jump is enough
    far = moved[moved >= (bounds.jump / 2 if broken else bounds.jump)]
    if len(far) == 0 or (view.rose and not broken):
        return None
    healthy = f"under {bounds.jump}, or half of that if the reward is lost"
    evidence.insert(0, (MOVED, far.max(), healthy))
    return view.finding("rate_too_high", far.index[0], evidence)


def reward_falls(view: View) -> Finding | None:
    """The reward falls, or fell deeply from its best."""
    slowly = view.trend <= FALLING and view.fall.lost >= bounds.lost / 2
    if not view.fall.certain and not slowly:
        return None
    evidence = [
        (TREND, view.trend, f"over {FALLING}"),
        ("lost fraction of its best window", view.fall.lost, f"under {bounds.lost}"),
    ]
    return view.finding("reward_falls", view.fall.step, evidence)


def rate_too_low(view: View) -> Finding | None:
    """There is a gradient, but the adapters hardly move, and the reward hardly rises."""
    if not view.judgeable or not view.gain < bounds.gamed_rise * view.highest:
        return None
    farthest = view.of(MOVED).max()
    if not 0 < farthest < bounds.hardly or not view.gradient > ROUNDING:
        return None
    evidence = [
        (MOVED, farthest, f"over {bounds.hardly}"),
        (TREND, view.trend, f"over {bounds.sure}"),
    ]
    return view.finding("rate_too_low", view.reward.index[0], evidence)


def reward_flat(view: View) -> Finding | None:
    """The reward has not risen, and the adapters do move."""
    if not view.flat or len(view.reward) == 0 or rate_too_low(view) is not None:
        return None
    evidence = [(TREND, view.trend, f"over {bounds.sure}")]
    return view.finding("reward_flat", view.reward.index[0], evidence)


# ---- runs without an alarm


def healthy(view: View) -> Finding:
    """The run is healthy, with the proofs that were logged; or it is too short to tell."""
    steps = view.table.index
    long_enough = view.enough_for_two if view.learned else view.judgeable
    if not long_enough or len(view.reward) == 0:
        return view.finding(
            "too_short", steps.min(), [("steps", steps.max(), "more, to see the reward rise")]
        )
    start = f"{view.first('reward'):.3g} at first, of at most {view.highest:.3g}"
    evidence = [("reward", view.last("reward"), start)]
    # not reward_std, TRL's deviation of the whole batch: it is above 0 even if no group differs
    if len(view.of(ZERO_VARIANCE)) > 0:
        start = f"{view.first(ZERO_VARIANCE):.3g} at first; 1 would mean no gradient"
        evidence.append((ZERO_VARIANCE, view.last(ZERO_VARIANCE), start))
    elif len(view.of("grad_norm")) > 0:
        evidence.append(("grad_norm", view.last("grad_norm"), "more than 0"))
    accuracy = view.of(STRICT)
    if len(accuracy) > 1:
        evidence.append((STRICT, accuracy.iloc[-1], f"{accuracy.iloc[0]:.3g} at first"))
    return view.finding("healthy", view.reward.index[0], evidence, note=about_the_loss(view))


def about_the_loss(view: View) -> str:
    """Why the loss of a healthy run says nothing about learning."""
    loss = view.of("loss")
    if len(loss) == 0:
        return ""
    kl_was_logged = "kl" in view.run.broken or view.of("kl").any()
    beta = view.settings.get("beta", kl_was_logged)
    notes = DATA["notes"]
    text = notes["loss_with_kl"] if beta else notes["loss_alone"]
    return text.format(f"{loss.abs().mean():.2g} on average")


RULES: list[Callable[[View], Finding | None]] = [
    stopped,
    not_a_number,
    reward_not_a_number,
    no_reward,
    memory,
    generation_slow,
    empty,
    thoughts_open,
    truncated,
    lengths_grow,
    sampler_differs,
    tool_down,
    calls_fail,
    results_lost,
    turns_used_up,
    calls_die,
    calls_explode,
    reward_constant,
    format_ignored,
    never_pays,
    always_pays,
    wrong_answers,
    collapsed,
    no_gradient,
    hardly_paid,
    saturated,
    drowned,
    hacked,
    beta_too_high,
    reference_differs,
    kl_too_high,
    frozen,
    rate_too_high,
    reward_falls,
    rate_too_low,
    reward_flat,
]
