# %% [markdown]
# # 12 · Which algorithm?
#
# You have a base model, problems, and a check of their answers: should you train with GRPO, imitate good answers, or learn
# from pairs? This chapter answers the question by a race of 28 methods with eight seeds each, and shows how far its answer
# carries.
#
# **After this notebook you can** set up a fair race between training methods, read its result with seeds, intervals and
# corrected tests, say when a variant of GRPO can matter, and choose a method with a number behind it.
#
# **Time:** about 3 minutes on two CPU cores. You run a small race yourself; a large one is stored and read. Reading takes
# about 50 minutes. **You need** chapters 00 and 01, and from chapter 08 what an interval and a paired test are.

# %% [markdown]
# ## What makes a race fair
#
# Published comparisons are mostly single runs. [A controlled study](https://arxiv.org/abs/2603.19335) of about 240 runs
# found that the model's scale was worth about 50 points and the kind of training about 10. Changes of the loss were worth
# about 1 point; that number comes from 20 variants of DPO. With 1.5 billion weights online reinforcement learning was the
# best of its methods, and with 7 billion weights the order was another one. In the race of this chapter, with a model of
# less than a million weights, imitation leads. So a table from somebody else's model does not answer the question for
# yours. A race of your own does, if it is fair. The last column says whether the race of this chapter keeps the rule:
#
# | rule | without it | kept here? |
# | --- | --- | --- |
# | equal numbers of sampled completions | the method that samples more looks better | yes |
# | the same problems, start and token limit | you compare data, not methods | yes |
# | a learning rate tuned for each with equal effort, on other problems | the one you like best gets the best rate | **no**, see below |
# | held-out problems, looked at once | the best of ten checkpoints is partly luck | **not quite**: one method was added after the first look |
# | several seeds, paired | seeds differ by more than most methods | yes, eight |
# | a control that cannot learn | some gains come from anything at all | yes |
# | a corrected test of all differences | of 20 equal methods one is "better" at p < 0.05 | yes |
# | more than one way to measure | the winner may depend on the measure | yes, two |
#
# The learning rates were not tuned equally. GRPO, SFT, REINFORCE and PPO had two tries, and each time the lower rate was
# the better one, so the best may lie lower still. GRPO with four updates per batch had three tries, DPO four; only DPO's
# best rate lies between two that are worse. All other methods inherit the rate of one of these. "GRPO, a third of the
# rate" was added when the first results were known. So small differences between methods may be due to their rates.

# %% [markdown]
# ## Toy: what each method does with the same samples
#
# Two questions, eight sampled answers each, a reward of 1 if right. The first question is hard for the model (2 of 8
# right), the second is easy (7 of 8). All methods end in a gradient step on $\sum_i w_i \log \pi(\text{answer}_i)$; they
# differ in the weights $w_i$. Five of them weigh the sampled answers by an advantage:

# %%
import torch

from grpo_workbook import group_advantages, quiet, use_one_thread

quiet()
use_one_thread()  # for a tiny model several threads only wait for each other
right = torch.tensor([[1.0, 0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1, 1, 1]])
minus_group_mean = right - right.mean(dim=1, keepdim=True)
advantages = {
    "REINFORCE": right,
    "minus the batch's mean": right - right.mean(),
    "RLOO": 8 / 7 * minus_group_mean,
    "GRPO": group_advantages(right.flatten(), 8).view(2, 8),
    "Dr. GRPO": minus_group_mean,
}

# %% [markdown]
# Now each loss as its authors write it, of the log-probabilities of the answers. Column 8 is an answer that the model did
# not sample: the training data's, which only SFT sees.

# %%
from torch.nn.functional import logsigmoid


def advantage_loss(logp, advantages):
    sampled = logp[:, :8]
    return -(advantages * sampled).mean()


def sft_loss(logp):
    return -logp[:, 8].mean()


def rejection_loss(logp):
    sampled = logp[:, :8]
    return -sampled[right == 1].mean()


def dpo_loss(logp, beta=0.1):
    """The first right and the last wrong answer of each group."""
    reference = logp.detach()  # here the policy itself
    moved = logp - reference
    better = moved[:, 0]
    worse = moved[[0, 1], [7, 3]]
    return -logsigmoid(beta * (better - worse)).mean()

# %% [markdown]
# Autograd gives the weights. A constant factor does not count, because AdamW cancels it, so the largest weight of each
# method is set to 1.

# %%
def weights_of(loss_function, *arguments):
    """The weight of each answer, as the loss's gradient gives it: (2 questions, 9)."""
    logp = torch.zeros(2, 9, requires_grad=True)
    loss = loss_function(logp, *arguments)
    gradient = torch.autograd.grad(loss, logp)[0]
    return -gradient / gradient.abs().max() + 0.0  # + 0.0: no -0.0


weights = {
    "SFT": weights_of(sft_loss),
    "rejection sampling": weights_of(rejection_loss),
}
for name, values in advantages.items():
    weights[name] = weights_of(advantage_loss, values)
weights["DPO"] = weights_of(dpo_loss)

# %% [markdown]
# In the figure a blue bar makes an answer more likely, an orange one less likely.

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.5, 4.6, 8, 4)
descriptions = []
for axes, (name, values) in zip(panels, weights.items()):
    for group in (0, 1):
        for answer in range(9):
            place = 10 * group + answer
            mark = "+" if right[group, min(answer, 7)] else "–"
            if answer == 8:  # the answer of the data, a little apart
                place, mark = place + 0.8, "D"
            value = float(values[group, answer])
            colour = figures.BLUE if value > 0 else figures.ORANGE
            axes.bar(place, value, 0.85, color=colour)
            axes.text(place, -1.32, mark, ha="center", fontsize=7)
    axes.axhline(0, color="black", lw=0.7)
    axes.set(xticks=[4, 14], xticklabels=["hard", "easy"], ylim=(-1.4, 1.1))
    axes.set_title(name, fontsize=10)
    hard, easy = values.tolist()
    descriptions.append(
        f"{name}: hard right {hard[0]:.2f}, hard wrong {hard[7]:.2f}, easy right "
        f"{easy[0]:.2f}, easy wrong {easy[3]:.2f}, data {hard[8]:.2f}"
    )
figure.suptitle("Weight of each answer: + right, – wrong, D from the data")
words = "; ".join(descriptions)
figures.show(figure, f"Bars of the weights of two groups of 8 answers. {words}.")

# %% [markdown]
# - **SFT** imitates an answer that the model might never have written. It needs such answers.
# - **Rejection sampling** (sample, keep what is right, imitate it) and **REINFORCE** have the same weights here: with
#   rewards of 0 and 1 they are one method, as long as the samples are fresh. Easy questions dominate both.
# - With the **batch's mean**, the answers to an easy question are mostly reinforced and those to a hard one mostly
#   penalised. The mean of the group asks instead: is this answer better than usual *for this question*?
# - **RLOO** and **Dr. GRPO** differ by the factor 8/7 (exercise 12.1), which AdamW cancels. **GRPO** also divides by the
#   group's standard deviation, so it enlarges the groups whose rewards differ least.
# - **DPO** learns from one pair of a group and leaves the other six answers unused.
#
# Now take a step of the same length in each of these directions, for a policy with one logit per question (two arms, right
# and wrong). The derivative of $\log \pi$ is $1 - p$ for a right answer and $-p$ for a wrong one:

# %%
p = torch.tensor([0.25, 0.875])
slope = right - p[:, None]  # (2 questions, 8 answers)
print(f"{'before':24} hard {p[0]:.3f}   easy {p[1]:.3f}")
for name, values in weights.items():
    from_samples = (values[:, :8] * slope).sum(dim=1)
    from_data = values[:, 8] * (1 - p)
    push = from_samples + from_data
    step = 0.5 * push / push.norm()
    after = (p.logit() + step).sigmoid()
    print(f"{name:24} hard {after[0]:.3f}   easy {after[1]:.3f}")

# %% [markdown]
# Here the samples are exactly as frequent as their probabilities, so luck is out of it, and five methods with three
# different pictures take **the same** step: a baseline changes no mean, only the noise (chapter 01). SFT helps the hard
# question more; GRPO and DPO the easy one. So if methods differ in a race, then by noise, by how fresh their samples
# are, and by what they need: training answers, a critic, more samples.

# %% [markdown]
# ### Exercise 12.1 · `rloo_advantages` · easy · 8 minutes
#
# RLOO's advantages: each reward minus the mean of the *others* in its group. `rewards` holds one group after the other.
# Compare yours with the reward minus the mean of the whole group: what is the factor?

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def rloo_advantages(rewards: list[float], group_size: int) -> list[float]:
    raise NotImplementedError


check("12.1", rloo_advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The sum of the others is the sum of the group less the reward itself. How many others are there?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def rloo_advantages(rewards: list[float], group_size: int) -> list[float]:
#     advantages = []
#     for start in range(0, len(rewards), group_size):
#         group = rewards[start : start + group_size]
#         for reward in group:
#             mean_of_others = (sum(group) - reward) / (group_size - 1)
#             advantages.append(reward - mean_of_others)
#     return advantages
# ```
#
# The factor is n / (n - 1): 2 in a group of two, 8/7 in a group of eight.
#
# </details>

# %% [markdown]
# ## The race
#
# `benchmarks/race.py` trains the course's tiny models by every method, with 8 seeds:
#
# - **main**: chapter 04's word problems, 1,024 completions; strictly right answers count.
# - **steps**: sums of long numbers, 1,536 completions. The model can add column by column, but usually does not.
#
# One loop trains all methods, with all weights in float32 and 64 completions per update. For SFT a training answer counts
# as a completion. Accuracy is measured in two ways, and they can disagree:
#
# - **greedy**: each next token is the most likely one. Is the most likely answer right?
# - **sampled**: each next token is drawn at temperature 1. How often is a random answer right? A policy that becomes more
#   certain rises here even if its most likely answers stay the same.
#
# All rules and learning rates are in `benchmarks/race_results/README.md`. Before you look:

# %% [markdown]
# ### Exercise 12.2 · `my_order` · medium · 8 minutes
#
# Order these six by held-out accuracy (sampled) on *main*, from best to worst:
#
# - `"base"`: not trained.
# - `"sft"`: imitates 1,024 training answers.
# - `"grpo"`: 16 updates, each on 64 fresh completions.
# - `"clip-higher, one update"`: `"grpo"` with an upper clip of 0.28 instead of 0.2, and like it one update per batch.
# - `"rejection"`: samples 1,024 completions from the base, imitates those with the full reward in 16 updates.
# - `"random of 8"`: the same, but imitates one completion of each eight, chosen at random.
#
# The check compares with the stored runs. Two methods that they cannot tell apart may stand in either order.

# %% tags=["exercise"]
def my_order() -> list[str]:
    raise NotImplementedError


check("12.2", my_order);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which of them makes use of a check of the answers? Which uses something better than the model's own answers? And what
# is the ratio in the first update on a batch?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_order() -> list[str]:
#     return ["sft", "rejection", "grpo", "clip-higher, one update", "base", "random of 8"]
# ```
#
# </details>

# %% [markdown]
# ## The result
#
# The stored runs are data, one JSON line each: method, seed, settings, what was measured at the end, a curve.

# %%
import pandas as pd

from grpo_workbook import files

pd.set_option("display.width", 120)
STORED = files.REPO / "benchmarks" / "race_results"


def read_race(path):
    """One row per run, with the measurements at its end as columns."""
    rows = pd.read_json(path, lines=True)
    rows = rows.drop_duplicates(["method", "seed"], keep="last")
    measured = pd.DataFrame(list(rows["end"]), index=rows.index)
    return rows.join(measured)


race = {}
for task in ("main", "steps"):
    rows = read_race(STORED / f"{task}.jsonl")
    race[task] = rows
    seeds = rows.groupby("method")["seed"].nunique()
    print(f"{task:5} {len(rows)} runs, {len(seeds)} methods, {seeds.min()} seeds each")

# %% [markdown]
# Means over the seeds. *pass@8* is the rate of problems with a right answer among eight samples. The last columns say when
# a measurement (sampled) first found 80 % or more, if every seed of the method got there:

# %%
def reached(curve, goal=0.8):
    """(completions, seconds) at the first measurement that reaches the goal."""
    for completions, seconds, rate in curve:
        if rate >= goal:
            return completions, seconds
    return float("nan"), float("nan")


def overview(rows):
    """A row per method, the best one first."""
    table = pd.DataFrame({
        "sampled %": 100 * rows["sampled"],
        "greedy %": 100 * rows["greedy"],
        "pass@8 %": 100 * rows["pass8"],
        "entropy": rows["entropy"],
        "tokens": rows["tokens"],
        "80 % at": [reached(curve)[0] for curve in rows["curve"]],
        "80 % after s": [reached(curve)[1] for curve in rows["curve"]],
    })
    by_method = table.groupby(rows["method"])
    means = by_method.agg(lambda values: values.mean(skipna=False))
    means = means.sort_values("sampled %", ascending=False)
    return means.round(1).assign(entropy=means["entropy"].round(2))


overview(race["main"])

# %% [markdown]
# Of the names: *best of 8* imitates the best of each group, right or not; *reinforce, baseline* subtracts the batch's
# mean; *token-level loss* is `dapo`'s loss alone; *overlong penalty* is DAPO's, for the last fifth of the length; *sapo*
# has a smooth gate on the ratio in place of a clip.
#
# Completions are one price, seconds another: PPO trains a critic too, and four updates take four backward passes. The
# seconds are processor seconds of training on a shared machine: good for a ratio of two, not more.
#
# ### Over completions
#
# The next figure shows accuracy (sampled) during training, for six methods. Lines are means, bands go from the worst to
# the best seed. A method that learns only after all its samples are there has no points on the way: a dashed line.

# %%
base_rows = race["main"].query("method == 'base'")
base_sampled = base_rows["sampled"].mean()
base_greedy = base_rows["greedy"].mean()


def curve_of(rows, method):
    """Mean, lowest and highest accuracy in percent over completions, from the base."""
    points = []
    for curve in rows[rows["method"] == method]["curve"]:
        points.extend(curve)
    table = pd.DataFrame(points, columns=["completions", "seconds", "rate"])
    rates = table.groupby("completions")["rate"].agg(["mean", "min", "max"])
    rates.loc[0] = base_sampled
    return 100 * rates.sort_index()


curves = {}
drawn = ["sft", "rejection", "rejection, 4 rounds", "grpo", "ppo", "dpo, 4 rounds"]
for method in drawn:
    curves[method] = curve_of(race["main"], method)

# %% [markdown]
# GRPO and PPO gain most in the first half of their completions:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 3.8)
finals = {}
for (name, curve), (colour, dash, marker) in zip(curves.items(), figures.STYLES):
    dash = "--" if len(curve) == 2 else "-"
    axes.plot(curve.index, curve["mean"], dash, color=colour, marker=marker, label=name)
    axes.fill_between(curve.index, curve["min"], curve["max"], color=colour, alpha=0.12)
    finals[name] = curve["mean"].iloc[-1]
best = max(finals, key=finals.get)
axes.set(xlabel="completions sampled", ylabel="held-out accuracy, %", ylim=(0, 100))
axes.set_title(f"Most of the gain comes early; in the end {best} leads")
figure.legend(frameon=False, loc="outside right center")
ends = "; ".join(f"{name} {final:.0f}" for name, final in finals.items())
figures.show(
    figure,
    f"Line chart of accuracy over completions, from {100 * base_sampled:.0f} percent. "
    f"At the end, in percent: {ends}.",
)

# %% [markdown]
# ### Is the difference real?
#
# Seeds share their luck: seed 3 of every method sees the same problems in the same order. So compare *within* seeds: take
# the difference of each seed, their mean, a t-test against 0 and its interval. (The bootstrap of chapter 08 needs more
# values: with eight values, a 95 % bootstrap interval covers only 88 %.) Each method is compared with the one that differs
# from it in one thing. Methods with four updates per batch are compared with GRPO with four updates. The mechanisms at the
# end of this chapter are compared with the token-level loss, on which they build, and a corrected sampler with the
# uncorrected one. All others are compared with GRPO.

# %%
MANY = "grpo, 4 updates"
MECHANISMS = [
    "entropy bonus", "top-entropy tokens", "stale sampler", "stale sampler, corrected",
    "4-bit sampler", "4-bit sampler, corrected",
]


def rival(method):
    """What a method is compared with."""
    if method.endswith(", corrected"):
        return method.removesuffix(", corrected")
    if method in MECHANISMS:
        return "token-level loss"
    if "4 updates" in method and method != MANY:
        return MANY
    return "grpo"


def paired_gaps(task, method, measure):
    """Points above the rival, seed by seed."""
    by_seed = race[task].pivot(index="seed", columns="method", values=measure)
    gaps = 100 * (by_seed[method] - by_seed[rival(method)])
    return gaps.dropna()

# %% [markdown]
# One method in twenty passes p < 0.05 by luck. **Holm's correction** takes all p-values of a task together: it
# multiplies the smallest by their number m, the next by m - 1, and so on; and no corrected p is smaller than the one
# before it. What is below 0.05 then holds for *all* of them with 95 % confidence. It is applied to each measure.

# %%
from scipy.stats import ttest_1samp


def holm(p_values):
    """Holm's corrected p-values, of a Series."""
    ordered = p_values.sort_values()
    factors = list(range(len(ordered), 0, -1))
    return (ordered * factors).cummax().clip(upper=1)


def compare_all(task, measure):
    """A row per method: seeds, mean gap in points, its interval, the corrected p."""
    rows = {}
    for method in sorted(set(race[task]["method"]) - {"grpo", "base"}):
        gaps = paired_gaps(task, method, measure)
        test = ttest_1samp(gaps, 0)
        low, high = test.confidence_interval()
        rows[method] = {
            "seeds": len(gaps), "gap": gaps.mean(), "low": low, "high": high,
            "p": test.pvalue,
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["p"] = holm(table["p"])
    return table

# %% [markdown]
# What does one measure say about a method, and what do both say together? A method is called better or worse only if
# greedy *and* sampled accuracy, each by its corrected test, say so. It *depends* if one of them says so and the other points in
# the opposite direction.

# %%
def result(row):
    """What one measure says."""
    if row["p"] < 0.05:
        return "better" if row["gap"] > 0 else "worse"
    if row["low"] > 0 or row["high"] < 0:
        return "unsettled"  # an interval without 0, not confirmed by the corrected test
    return "not shown"


def verdict(sampled, greedy):
    """What both measures say together."""
    results = {result(sampled), result(greedy)}
    if len(results) == 1:
        return results.pop()
    opposite = sampled["gap"] * greedy["gap"] < 0
    if opposite and results & {"better", "worse"}:
        return "depends"
    return "unsettled"


tables, verdicts = {}, {}
for task in race:
    sampled, greedy = compare_all(task, "sampled"), compare_all(task, "greedy")
    tables[task] = {"sampled": sampled, "greedy": greedy}
    for method in sampled.index:
        verdicts[task, method] = verdict(sampled.loc[method], greedy.loc[method])

# %% [markdown]
# "Unsettled" means that at least one measure points away from 0, but not both are confirmed: the method needs more seeds.
# The picture is a *forest plot*: a mark for the mean difference, a line for its interval. What is below its left edge is
# drawn at the edge.

# %% tags=["hide-input"]
LOOKS = {
    "sampled": (0.17, "o", figures.BLUE),
    "greedy": (-0.17, "s", figures.ORANGE),
}


def forest(task, lowest):
    """Draw the paired differences of a task; those below `lowest` stand at the edge."""
    order = tables[task]["sampled"].sort_values("gap").index
    figure, (axes,) = figures.new_panels(8.5, 1.4 + 0.27 * len(order))
    for measure, (shift, marker, colour) in LOOKS.items():
        table = tables[task][measure].loc[order]
        places = [y + shift for y in range(len(order))]
        ends = table[["gap", "low", "high"]].clip(lower=lowest)
        axes.hlines(places, ends["low"], ends["high"], color=colour, lw=1.5)
        axes.plot(ends["gap"], places, marker, color=colour, ms=4, label=measure)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set_xlabel("points above its rival, with interval")
    edge = axes.get_xlim()[1] + 1
    lines = []
    for y, method in enumerate(order):
        axes.text(edge, y, verdicts[task, method], va="center", fontsize=8)
        gaps = [tables[task][measure].loc[method, "gap"] for measure in LOOKS]
        text = f"sampled {gaps[0]:+.1f}, greedy {gaps[1]:+.1f}"
        lines.append(f"{method}: {text}, {verdicts[task, method]}")
    axes.set_title(f"{task}: how far each method is from its rival")
    figure.legend(frameon=False, loc="outside lower center", ncols=2)
    figures.show(figure, f"Forest plot of differences in points. {'; '.join(lines)}.")

# %% [markdown]
# The main task. The word at the right is the verdict of both measures:

# %% tags=["hide-input"]
forest("main", lowest=-40)

# %% [markdown]
# "Not shown" does not prove that there is no difference: with so few seeds and this much noise a true gap of a point or
# two stays hidden. Nothing is known, so take the simpler method. On the harder task:

# %% tags=["hide-input"]
forest("steps", lowest=-70)

# %% [markdown]
# On *main* two methods are better than GRPO by both measures. SFT with the data's answers gains 9.5 points sampled and 4.2
# greedy; rejection sampling, which imitates the model's own right answers, gains 6.8 and 3.1. Rejection sampling in four
# rounds and SFT followed by GRPO have similar gaps, which only the sampled measure confirms. Without a check (a random one
# of eight) nothing is gained, and DPO on pairs that were sampled once stays far below GRPO.
#
# For two methods **the verdict depends on the measure**. "Best of 8" is 10.7 points below GRPO when sampled and 3.0
# points above it when decoded greedily, in each of the eight seeds. DPO in four rounds is 8.0 points below and 1.1 above.
# Their most likely answers are right at least as often as GRPO's, but they are less certain: their entropy is twice as high.
#
# No variant of GRPO's loss is shown to be better or worse than GRPO with as many updates; SAPO and PPO with four updates
# are unsettled. REINFORCE without a baseline and groups of two each had a seed that went wrong.
#
# On *steps* GRPO's seeds differ so much (sampled 3 to 71 %, greedy 5 to 95 %) that hardly any gap to it is settled. Only
# what cannot learn at all is worse by both measures. Look at the means and at the worst seed there:
#
# | | sampled: mean, worst seed | greedy: mean, worst seed |
# | --- | --- | --- |
# | GRPO | 49, 3 % | 70, 5 % |
# | GRPO, groups of 4 | 61, 42 % | 87, 62 % |
# | GRPO, a third of the rate | 41, 37 % | 97, 95 % |
# | GRPO, 4 updates per batch | 78, 72 % | 96, 91 % |
# | GSPO, 4 updates per batch | 71, 68 % | 98, 97 % |
# | rejection sampling | 72, 66 % | 97, 94 % |
# | SFT | 77, 68 % | 100, 99 % |
#
# The step size is the problem, not the loss: a single update with a rate of 3e-4 goes wrong in some seeds. With 1e-4 it
# goes wrong in none. "A third of the rate" has learned the task, as its greedy accuracy shows, and has not become certain
# of it. GSPO against GRPO with four updates is another case of the same kind. It is 7.4 points lower when sampled, in
# all eight seeds. Decoded greedily it is 2.5 points higher (seven of eight seeds; corrected p = 0.28), and its pass@8 is
# 1.8 points higher. So these runs do not say which of the two is better.
#
# The order depends on the setting, too: one tiny model, two short tasks, and the learning rates described above.
#
# ### Does it only sharpen?
#
# A method may make right answers more likely without solving anything that the base could not solve in eight attempts
# (chapter 08). Each dot is a method:

# %% tags=["hide-input"]
ends = race["main"].groupby("method")[["sampled", "pass8", "entropy"]].mean()
ends[["sampled", "pass8"]] *= 100
figure, panels = figures.new_panels(9.0, 3.6, 2, 2)
named = {
    "base": (6, -9), "sft": (0, -14), "grpo": (-62, -10), "dpo": (6, -9),
    "dpo, 4 rounds": (-60, 12), "random of 8": (6, -3),
}  # where the names stand
for axes, column in zip(panels, ("pass8", "entropy")):
    axes.plot(ends["sampled"], ends[column], "o", color=figures.GREY, ms=5)
    for name, place in named.items():
        dot = (ends.loc[name, "sampled"], ends.loc[name, column])
        axes.plot(*dot, "o", color=figures.ORANGE, ms=5)
        axes.annotate(name, dot, place, textcoords="offset points", fontsize=8,
                      arrowprops={"arrowstyle": "-", "lw": 0.5, "shrinkB": 3})
    axes.set(xlabel="single completions right, %")
panels[0].set(ylabel="pass@8, %", title="More right in eight attempts, too")
panels[1].set(ylabel="entropy per token", title="The better, the more certain")
panels[1].set_ylim(0, None)
lines = []
for name in named:
    single, eight, entropy = ends.loc[name]
    lines.append(f"{name} {single:.0f}, {eight:.0f}, {entropy:.2f}")
words = "Two scatter charts of methods: pass@8 and entropy over single accuracy."
figures.show(figure, f"{words} Accuracy, pass@8, entropy: {'; '.join(lines)}.")
gain = ends.loc["grpo", "pass8"] - ends.loc["base", "pass8"]
print(f"GRPO adds {gain:+.1f} points of pass@8 to {ends.loc['base', 'pass8']:.1f} %")

# %% [markdown]
# At k = 8 every method that learns raises pass@8 as well, mostly by form: an answer outside its tags counts as wrong.
# That is no proof of new skills; k = 8 cannot give one. The right panel shows why the sampled measure favours certain
# policies.

# %% [markdown]
# ## A slice of it, live
#
# Three methods, two seeds, half of the completions: about two minutes on two cores. The command prints a line per
# finished run. Run the cell twice: what is stored is not made again.

# %%
import subprocess
import sys

from grpo_workbook import choose_profile

profile = choose_profile(default="smoke")
slice_folder = profile.output / "race"
slice_folder.mkdir(parents=True, exist_ok=True)
command = [
    sys.executable, str(files.REPO / "benchmarks" / "race.py"),
    "--tasks", "main", "--methods", "grpo", "rejection", "dpo",
    "--seeds", "0", "1", "--budget", "512", "--points", "2", "--jobs", "2",
    "--folder", str(slice_folder),
]
with open(slice_folder / "errors.txt", "w+") as errors:
    racing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    for line in racing.stdout:
        print(line, end="")
    racing.wait()
    errors.seek(0)
    assert racing.returncode == 0, errors.read()[-2000:]

# %% [markdown]
# `steps` are lines of work that were written; then come the seconds of training, and those with loading and measuring.
#
# Now compare them with the stored runs. These are not the same runs with half of the steps: the learning rate falls to 0
# within 512 completions here, and within 1,024 there.

# %%
live = read_race(slice_folder / "main.jsonl")
stored = race["main"]
lines = {}
for method in ("grpo", "rejection", "dpo"):
    for measure in ("sampled", "greedy"):
        here = live[live["method"] == method].set_index("seed")[measure]
        there = stored[stored["method"] == method][measure]
        lines[f"{method}, {measure}"] = {
            "live, 512: seed 0": here.get(0),
            "seed 1": here.get(1),
            "stored, 1,024: mean": there.mean(),
            "lowest": there.min(),
            "highest": there.max(),
        }
(100 * pd.DataFrame.from_dict(lines, orient="index").astype(float)).round(1)

# %% [markdown]
# When sampled, GRPO and rejection sampling gain from the second half of the completions. DPO, whose pairs are all sampled
# before it learns, loses by both measures: after more updates the policy is far from the pairs, and they tell it little
# about what it now writes.
#
# ## The same with TRL
#
# The race's loop keeps all but the method equal. For your own training take TRL's trainers, which give the same losses
# (a test of this repository compares RLOO's and DPO's numbers). Each of the next cells makes two updates, to show what
# one writes. Unsloth comes first, because on a CPU TRL 1.15 samples only with its patches.

# %%
import unsloth

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

from grpo_workbook import config, data, load_problems, parse_rewards, to_dataset

TINY = config.DATA / "tiny-qwen3"
tokenizer = AutoTokenizer.from_pretrained(TINY)
train_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
common = {
    "output_dir": str(profile.output / "trl"), "max_steps": 2, "logging_steps": 1,
    "per_device_train_batch_size": 8, "save_strategy": "no", "report_to": "none",
    "use_cpu": True, "bf16": False, "disable_tqdm": True,
    "gradient_checkpointing": False,
}


def load_tiny_model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")


def train_and_print(trainer, *names):
    """Train, and print these metrics of each step."""
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history[:-1]:  # the last entry is of the whole run
        metrics = {name: round(entry[name], 4) for name in names}
        print(entry["step"], metrics)

# %% [markdown]
# **SFT** on worked answers: a `completion` beside each `prompt`, and only the completion's tokens are learned.

# %%
import re

from trl import SFTConfig, SFTTrainer


def message(text):
    return [{"role": "assistant", "content": text}]


def worked_answer(row):
    """The training answer in the form that is asked for."""
    equations = "\n".join(re.findall("<<(.+?)>>", row["solution"]))
    reasoning = f"<reasoning>\n{equations}\n</reasoning>"
    return f"{reasoning}\n<answer>{row['answer']}</answer>"


sft_rows = []
for row in train_rows[:16]:
    completion = message(worked_answer(row))
    sft_rows.append({"prompt": row["prompt"], "completion": completion})
args = SFTConfig(learning_rate=3e-4, **common)
trainer = SFTTrainer(
    load_tiny_model(), args=args, train_dataset=Dataset.from_list(sft_rows),
    processing_class=tokenizer,
)
train_and_print(trainer, "loss", "entropy", "mean_token_accuracy")

# %% [markdown]
# Rejection sampling is the same call with other rows: what the model sampled, if its reward is full. **DPO** takes from
# each group its best and its worst completion. The sampling is chapter 01's; groups without variance give no pair:

# %%
from grpo_workbook import ScratchTrainer
from trl import DPOConfig, DPOTrainer

parts = "correctness:2,strict_format:0.5,incremental_format:0.5"
rewards, reward_weights = parse_rewards(parts)
sampler = ScratchTrainer(load_tiny_model(), tokenizer, rewards, reward_weights)
torch.manual_seed(0)
batch = sampler.rollout(train_rows[:8])
scores = sampler.score(train_rows[:8], batch["texts"])
pairs = []
for group, row in enumerate(train_rows[:8]):
    places = range(8 * group, 8 * group + 8)
    best = max(places, key=lambda place: scores[place])
    worst = min(places, key=lambda place: scores[place])
    if scores[best] > scores[worst]:
        chosen, rejected = message(batch["texts"][best]), message(batch["texts"][worst])
        pairs.append({"prompt": row["prompt"], "chosen": chosen, "rejected": rejected})
print(len(pairs), "pairs of 64 completions")
args = DPOConfig(learning_rate=1e-4, beta=0.1, **common)
trainer = DPOTrainer(
    load_tiny_model(), args=args, train_dataset=Dataset.from_list(pairs),
    processing_class=tokenizer,
)
train_and_print(trainer, "loss", "rewards/margins", "logps/chosen")

# %% [markdown]
# Watch `logps/chosen`: DPO only wants the *difference* to grow, so it may make the chosen completion less likely as
# well. **RLOO** takes rewards like GRPO; its defaults differ (2 completions a prompt, `beta=0.05`):

# %%
from trl import RLOOConfig, RLOOTrainer

args = RLOOConfig(
    num_generations=8, beta=0.0, max_completion_length=64, learning_rate=3e-4,
    reward_weights=reward_weights, **common,
)
trainer = RLOOTrainer(
    load_tiny_model(), rewards, args=args, processing_class=tokenizer,
    train_dataset=Dataset.from_list(train_rows[:64]),
)
train_and_print(trainer, "reward", "entropy", "completions/mean_length")

# %% [markdown]
# ## The harder task: when writing steps pays
#
# *tiny-steps* adds two long numbers. It can do it column by column, but was taught to write all columns in one of ten
# answers, some in three, and to answer at once in six, which is nearly always wrong. The reward is **for the right
# number alone**. Before training, 512 samples, by the number of columns written:

# %%
from grpo_workbook import correctness_reward

STEPS = config.DATA / "step_tasks"
sums = {}
for name in ("train", "heldout"):
    problems = load_problems(STEPS / f"{name}.jsonl")
    sums[name] = list(to_dataset(problems, system_prompt=None))
folder = config.DATA / "tiny-steps"
adder = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
adder_tokenizer = AutoTokenizer.from_pretrained(folder)
learner = ScratchTrainer(
    adder, adder_tokenizer, correctness_reward, learning_rate=3e-4, loss_type="grpo"
)
torch.manual_seed(0)
rows = sums["heldout"][:64]
batch = learner.rollout(rows)
samples = pd.DataFrame({
    "columns": [min(5, text.count("=")) for text in batch["texts"]],
    "tokens": batch["mask"].sum(dim=1),
    "right": learner.score(rows, batch["texts"]),
})
by_columns = samples.groupby("columns")
paid = by_columns.mean()
paid.insert(0, "samples", by_columns.size())
for price in (0.1, 0.5, 1.5):
    paid[f"price {price}"] = paid["right"] - price * paid["tokens"] / 40
paid.round(2)

# %% [markdown]
# Four or five columns are all there are. The last columns are the mean reward if 40 tokens cost that much: a price of 1.5
# should silence the model; at 0.5 answers with all columns earn most, but those with one to three earn less than those
# with none, so the first steps towards them are punished; 0.1 looks harmless. Remember that guess.
#
# Now GRPO, live: 24 updates of 64 completions.

# %%
from tqdm import tqdm


def copy_weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


log = []
weights_before = copy_weights(adder)
rows = sums["train"][: 24 * 8]
with tqdm(learner.train(rows), total=24, desc="GRPO", unit="step", ncols=80) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(right=f"{metrics['reward']:.2f}")
        if len(log) == 16:  # for later: the policy of some updates ago
            old_weights = copy_weights(adder)
weights_after = copy_weights(adder)

# %% [markdown]
# The curves of the live run:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(6.5, 3.4)
table = pd.DataFrame(log)
completions = table["step"] * 64
axes.plot(completions, table["tokens"], "--", color=figures.ORANGE, label="tokens")
axes.plot(completions, 100 * table["reward"], color=figures.BLUE, label="right, %")
axes.set(xlabel="completions sampled", ylabel="tokens; right, %",
         title="Length grows because it pays")
axes.legend(frameon=False)
first = table.iloc[0]
last = table.tail(3).mean()
figures.show(
    figure,
    f"Line chart: from {first['tokens']:.0f} to {last['tokens']:.0f} tokens while "
    f"{100 * first['reward']:.0f} to {100 * last['reward']:.0f} percent become right.",
)

# %% [markdown]
# The stored runs, means over eight seeds:

# %%
controls = [
    "base", "grpo", "random reward", "format reward", "length price 0.1",
    "length price 0.5", "length price 1.5", "base without steps",
]
means = race["steps"].groupby("method")[["tokens", "sampled", "greedy"]].mean()
means["sampled, %"] = 100 * means.pop("sampled")
means["greedy, %"] = 100 * means.pop("greedy")
means.loc[controls].round(1)

# %% [markdown]
# Nobody asked for steps, yet they come, because in a group with one long right answer the short ones earn less. Such
# curves of growing length are often shown beside the "aha moment" of reasoning models, which is something else: text in
# which the model reconsiders its own work. Here the steps are *elicited*, not invented: the base writes them in one of ten
# answers, and a base that never does ("base without steps") learns nothing. In two of the eight stored seeds of GRPO the
# length more than doubled, to 36 tokens, while 3 and 15 % were right. So length is no evidence of reasoning; measure
# accuracy.
#
# The controls settle what the rise is due to. A **random reward** and a **format reward** do not lift accuracy: updates
# alone, or asking for tags, are not enough. And the **price**, even 0.1, ends in short wrong answers. Why, if its mean
# reward looked harmless? Look at the groups: at first most have no right answer. Without a price they have zero variance
# and teach nothing. With *any* price they differ, in length alone, and GRPO divides by their standard deviation (chapters
# 01 and 03). These are the advantages of such a group, in which all are wrong:

# %%
lengths = torch.tensor([8.0, 8, 9, 8, 38, 16, 8, 23])
for price in (0.1, 0.5, 1.5):
    group = group_advantages(-price * lengths / 40, 8)
    shown = " ".join(f"{value:5.2f}" for value in group.tolist())
    print(f"price {price}: {shown}")

# %% [markdown]
# The answer with all its columns is penalised most, by each price alike. Add a price only after accuracy has risen, or do
# not scale by the group.
#
# One sum before and after, greedily decoded:

# %%
from grpo_workbook import generate

question = sums["heldout"][0]
for name, state in (("before", weights_before), ("after", weights_after)):
    adder.load_state_dict(state)
    prompts = [question["prompt"]]
    text = generate(adder, adder_tokenizer, prompts, max_new_tokens=64)[0]
    print(f"{name}: {question['question']}\n{text}\n")

# %% [markdown]
# ## The variants, one by one
#
# Each has a toy or a measurement that shows *when* it can matter, and its stored runs. `describe` gives a method's line
# of the comparison:

# %%
def describe(task, method):
    """The differences of one method from its rival, and the verdict."""
    parts = []
    for measure in ("sampled", "greedy"):
        row = tables[task][measure].loc[method]
        interval = f"[{row['low']:+.1f}, {row['high']:+.1f}]"
        parts.append(f"{measure} {row['gap']:+.1f} {interval}")
    return f"{task}: {method}: {', '.join(parts)}: {verdicts[task, method]}"


for method in ("reinforce", "reinforce, baseline", "rloo", "ppo", "dr_grpo"):
    print(describe("main", method))

# %% [markdown]
# ### Dynamic sampling
#
# Chapter 07 shows how it works: groups without variance are discarded, and more are sampled. If a completion is right
# with probability $p$, a group of $n$ has variance with probability $1 - p^n - (1 - p)^n$, and a batch costs the inverse:

# %% tags=["hide-input"]
import numpy as np

chance = np.linspace(0.005, 0.995, 199)
figure, (left, right_panel) = figures.new_panels(9.0, 3.4, 2, 2)
for size, (colour, dash, _) in zip((2, 4, 8, 16), figures.STYLES):
    useful = 1 - chance**size - (1 - chance) ** size
    left.plot(chance, useful, dash, color=colour, label=f"groups of {size}")
    right_panel.plot(chance, 1 / useful, dash, color=colour)
left.set(title="Few groups teach at either end", ylabel="groups with variance")
right_panel.set(title="What a full batch costs", ylabel="completions per one used")
right_panel.set(yscale="log", ylim=(0.9, 30))
right_panel.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
for axes in (left, right_panel):
    axes.set_xlabel("probability p of a right completion")
left.legend(frameon=False)
shown = []
for p in (0.02, 0.5, 0.98):
    shown.append(f"{p} {1 - p**8 - (1 - p) ** 8:.0%}")
figures.show(
    figure,
    "Two line charts over p for groups of 2 to 16. Groups of 8 have variance at these "
    f"p: {', '.join(shown)}.",
)
for task in race:
    print(describe(task, "dynamic sampling"))

# %% [markdown]
# The race counts the discarded completions. So dynamic sampling makes fewer, fuller updates from the same budget. It
# matters where many groups have no variance *and* updates are noisy or expensive beside sampling; with p between 0.2
# and 0.8 at most one in six groups (of eight completions) is discarded.
#
# ### Clip-higher
#
# The clip bounds the *ratio*, so a token of probability 0.9 could only be stopped above 1.08, which does not exist,
# while one of 0.01 is stopped at 0.012. DAPO raises the upper bound to 1.28 for the sake of rare tokens. Which tokens
# are clipped in practice? Take one batch of the tiny model and make four updates, as in the race. These are all tokens of
# completions with a positive advantage, before the fourth update:

# %%
from grpo_workbook import grpo_loss

updater = ScratchTrainer(load_tiny_model(), tokenizer, rewards, reward_weights)
optimizer = torch.optim.AdamW(updater.trained, 1e-4, weight_decay=0.0)
torch.manual_seed(1)
batch = updater.rollout(train_rows[:8])
batch_rewards = updater.score(train_rows[:8], batch["texts"])
batch_advantages = group_advantages(batch_rewards, 8)
with torch.no_grad():
    old_logp = updater.logprobs(updater.model, batch)
for update in range(3):
    logp = updater.logprobs(updater.model, batch)
    loss, _ = grpo_loss(
        logp, batch_advantages, batch["mask"], old_logp=old_logp, loss_type="grpo"
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    new_logp = updater.logprobs(updater.model, batch)
reinforced = batch["mask"].bool() & (batch_advantages > 0)[:, None]
probability = old_logp[reinforced].exp()  # when the token was sampled
ratio = (new_logp - old_logp)[reinforced].exp()

# %% [markdown]
# No token can lie in the grey area, where the ratio is above 1 / p:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.6)
axes.plot(probability, ratio, ".", color=figures.GREY, alpha=0.5, ms=5)
line = torch.linspace(0.005, 1, 400)
axes.fill_between(line, 1 / line, 10, color=figures.PALE["off"])
bounds = [(1.2, figures.BLUE, "top"), (1.28, figures.ORANGE, "bottom")]
for bound, colour, side in bounds:
    axes.axhline(bound, color=colour, lw=1.2)
    axes.text(1.05, bound, f"{bound}", color=colour, fontsize=9, va=side)
axes.set(xscale="log", yscale="log", xlabel="probability when sampled", ylabel="ratio",
         xlim=(0.005, 1.02), ylim=(0.3, 4))
axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
axes.minorticks_off()
over = ratio > 1.2
clipped, tokens = int(over.sum()), len(ratio)
between = int((over & (ratio < 1.28)).sum())
rare = int((over & (probability < 0.5)).sum()) / max(1, clipped)
title = f"{clipped} of {tokens} tokens are clipped, {rare:.0%} of them below 0.5"
axes.set_title(title)
figures.show(
    figure,
    f"Scatter of {tokens} tokens, ratio over probability when sampled. {clipped} lie "
    f"above 1.2, {between} of them below 1.28; {rare:.0%} of those above 1.2 had a "
    "probability below 0.5. Likely tokens cannot move up that far.",
)
print(f"{between} tokens lie between the two bounds: only these does clip-higher free")
print(describe("main", "clip-higher, 4 updates"))

# %% [markdown]
# Most of the clipped tokens are not rare at all; only those above p = 1 / 1.2 = 0.83 are safe. In the first update on a
# batch no token is clipped, so with one update per batch clip-higher, GSPO and SAPO *are* GRPO (and CISPO is the
# token-level loss). With four, few tokens lie between 1.2 and 1.28. The bound was raised for thousands of updates, in
# which a rare token that is stopped again and again dies out.
#
# ### Entropy: a bonus, or only the forks
#
# Entropy says how undecided the model is about the next token. Most tokens are decided. The undecided ones are forks: for
# the adder, whether to write steps at all, and whether to go on.

# %% [markdown]
# [Wang et al.](https://arxiv.org/abs/2506.01939) train only the 20 % of the tokens with the highest entropy (TRL:
# `top_entropy_quantile=0.2`) and lose nothing on 8 billion weights, or gain. An **entropy bonus** adds
# $c \cdot H$ to the objective (TRL: `entropy_coef`). It has a price: with two arms and a reward of 1 for the right one,
# the best policy under a bonus $c$ has $p = \mathrm{sigmoid}(1/c)$, and a completion has many tokens:

# %%
for bonus in (0.03, 0.1, 0.2, 0.5):
    p = torch.sigmoid(torch.tensor(1 / bonus)).item()
    print(f"bonus {bonus:4}: best p of a token {p:.4f}, of 30 tokens {p**30:.1%}")
for method in ("entropy bonus", "top-entropy tokens"):
    print(describe("steps", method))

# %% [markdown]
# The bonus keeps exploration alive where a policy would settle before it has seen what pays; later it only adds noise. So
# let it fall, or give TRL a target (`use_adaptive_entropy`, `entropy_target`). Training on the forks alone assumes that
# the model can do the rest; one that still has to learn its digits needs the gradient of all tokens. Both fit the
# stored runs and neither is settled: with the bonus they are about as often right as without, and seven of eight runs
# on the forks alone ended at 0 % sampled.
#
# ### A sampler that is not the policy
#
# Completions may come from other weights than those that learn: from some updates ago (asynchronous training), or from
# a 4-bit copy, which takes less memory. Chapter 10 measured such differences for vLLM and shows what TRL drops. Here both
# cases for the adder as it is after training: its NF4 copy, and its own weights of 8 updates before.

# %%
import copy

from bitsandbytes.functional import dequantize_nf4, quantize_nf4

adder.load_state_dict(weights_after)
rounded = copy.deepcopy(adder)
for name, layer in rounded.named_modules():
    if isinstance(layer, torch.nn.Linear) and name != "lm_head":
        packed, state = quantize_nf4(layer.weight.data)
        layer.weight.data = dequantize_nf4(packed, state)
stale = copy.deepcopy(adder)
stale.load_state_dict(old_weights)

of_tokens, of_completions = {}, {}
for name, sampling_model in {"4-bit": rounded, "8 updates old": stale}.items():
    learner.model = sampling_model
    torch.manual_seed(0)
    batch = learner.rollout(sums["heldout"][:32])  # 256 completions
    with torch.no_grad():
        policy_logp = learner.logprobs(adder, batch)
        sampler_logp = learner.logprobs(sampling_model, batch)
    log_ratio = (policy_logp - sampler_logp) * batch["mask"]  # (256, tokens)
    of_tokens[name] = log_ratio[batch["mask"].bool()]
    of_completions[name] = log_ratio.sum(dim=1)
learner.model = adder

# %% [markdown]
# The logarithm of the ratio, policy over sampler, for tokens and for whole completions. The orange line is a ratio of
# 2, where *truncated importance sampling* cuts:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 5.0, 4, 2)
limit = float(np.log(2))
lines = []
for column, name in enumerate(of_tokens):
    for row, (unit, ratios) in enumerate(
        (("tokens", of_tokens[name]), ("completions", of_completions[name]))
    ):
        axes = panels[column + 2 * row]
        values = ratios.clamp(-3, 3).tolist()
        log_scale = unit == "tokens"
        axes.hist(values, 61, range=(-3, 3), color=figures.BLUE, log=log_scale)
        axes.axvline(limit, color=figures.ORANGE)
        cut = float((ratios > limit).float().mean())
        axes.set_title(f"{unit}: {name}: {cut:.1%} above 2", fontsize=10)
        axes.set_ylabel("tokens (log scale)" if log_scale else unit)
        spread = float(ratios.std())
        line = f"{unit}: {name}, deviation {spread:.2f}, {cut:.1%} above a ratio of 2"
        lines.append(line)
for axes in panels[2:]:
    axes.set_xlabel("log of the ratio")
figure.suptitle("Small differences of a token add up over a completion")
figures.show(figure, f"Four histograms of log-ratios: {'; '.join(lines)}.")

# %% [markdown]
# The gradient is right on average if each completion's loss is multiplied by its ratio (importance sampling). But a
# product of many tokens' ratios has a huge variance. Truncation at 2 trades it for a bias:

# %%
for name, log_ratios in of_completions.items():
    whole = log_ratios.exp()
    truncated = whole.clamp(max=2.0)
    for label, weight in (("whole ratio", whole), ("truncated at 2", truncated)):
        effective = weight.sum() ** 2 / weight.square().sum()
        share = float(effective) / len(weight)
        shape = f"mean {weight.mean():.2f}, largest {weight.max():6.2f}"
        print(f"{name:14} {label:15} {shape}, as good as {share:.0%} of completions")
for method in MECHANISMS[2:]:
    print(describe("steps", method))

# %% [markdown]
# "As good as" is the effective sample size: the fraction of equally weighted completions with the same variance. The
# correction costs little and should matter where the sampler drifts: many updates old, very long completions, coarse
# rounding. The stored runs fit this and do not settle it. With the sampler of some updates ago the correction adds 13
# points sampled (seven of eight seeds) and 9 greedy (five of eight). With the 4-bit copy nothing can be told from noise.
# What TRL offers, with its defaults:

# %%
from dataclasses import fields

from trl import GRPOConfig

topics = ("vllm_importance", "off_policy", "entropy", "epsilon_high", "mask_truncated")
for field in fields(GRPOConfig):
    for topic in topics:
        if topic in field.name:
            print(f"{field.name:36} {field.default}")

# %% [markdown]
# ## The decision table
#
# Every row is computed from the stored runs, and the advice follows from the verdict alone.

# %%
from IPython.display import Markdown, display

ADVICE = {
    "better": "take it", "worse": "leave it", "depends": "on how you will decode",
    "unsettled": "needs more seeds", "not shown": "keep the simpler one",
}
QUESTIONS = [
    ("You have worked answers: imitate them?", "main", "sft"),
    ("Worked answers for a start, then GRPO?", "main", "sft then grpo"),
    ("A check: sample once, imitate what is right?", "main", "rejection"),
    ("The same on a task that the base hardly solves?", "steps", "rejection"),
    ("Imitate the best of a group, right or not?", "main", "best of 8"),
    ("Learn from pairs, sampled once?", "main", "dpo"),
    ("Pairs, four times fresh?", "main", "dpo, 4 rounds"),
    ("A critic?", "main", "ppo"),
    ("No standard deviation?", "main", "dr_grpo"),
    ("Dynamic sampling?", "main", "dynamic sampling"),
    ("A third of the rate?", "steps", "grpo, a third of the rate"),
    ("Four updates per batch?", "steps", "grpo, 4 updates"),
    ("Four updates: GSPO?", "steps", "gspo, 4 updates"),
    ("A reward that knows nothing?", "steps", "random reward"),
]

# %% [markdown]
# The gaps are in points, sampled and greedy:

# %%
lines = [
    "| question | task | method - rival | sampled | greedy | verdict |",
    "| :-- | :-- | :-- | --: | --: | :-- |",
]
for question, task, method in QUESTIONS:
    sampled = tables[task]["sampled"].loc[method, "gap"]
    greedy = tables[task]["greedy"].loc[method, "gap"]
    word = verdicts[task, method]
    lines.append(
        f"| {question} | {task} | {method} - {rival(method)} | {sampled:+.1f} "
        f"| {greedy:+.1f} | {word}: {ADVICE[word]} |"
    )
display(Markdown("\n".join(lines)))

# %% [markdown]
# What do these runs show by both measures? A method must know right from wrong: the controls learn nothing. And on the
# easy task imitation of right answers is better than GRPO, whether the answers are given (SFT) or the model's own
# (rejection sampling). Imitation leads there because the base can do the task and misses its form, and because right
# answers exist or are found. Where nothing right is sampled, no method that samples has anything to learn from.
#
# On the harder task the means and the worst seeds suggest that the size of a step matters more than the form of the loss,
# but eight seeds do not settle it. No detail of the loss is shown to be better or worse by both measures, GSPO included.
#
# Should you then train with GRPO at all? If you have right answers, or the model already finds many, try imitation first:
# it is simpler. Otherwise GRPO is a good start, with a step size that you have tuned. This is one tiny model, two short
# tasks, one budget, full weights, and rates that were not tuned equally. What carries over is the procedure: race the two
# or three methods that you consider, on your own task, with a budget you can repeat three times, and measure in the way in
# which you will decode.

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
import json

from scipy.stats import fisher_exact

base_right = round(240 * base_greedy)  # of 240 held-out problems, decoded greedily
p_values, live_runs = {}, {}
for run in live.to_dict("records"):
    name = f"{run['method']} {run['seed']}"
    right_now = round(240 * run["greedy"])
    outcomes = [[right_now, 240 - right_now], [base_right, 240 - base_right]]
    p_values[name] = float(fisher_exact(outcomes).pvalue)
    live_runs[name] = [run["completions"], run["updates"], run["sampled"]]
proved = {
    "base": base_sampled,
    "slice": live_runs,
    "p_values": p_values,
    "steps": len(log),
    "right": [metrics["reward"] for metrics in log],
    "tokens": [metrics["tokens"] for metrics in log],
    "stored": {task: len(rows) for task, rows in race.items()},
    "spread": {name: float(values.std()) for name, values in of_tokens.items()},
}
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_12.json").write_text(json.dumps(proved, indent=2))
for name in ("grpo 0", "grpo 1", "rejection 0", "rejection 1"):
    assert p_values[name] < 1e-6, f"{name} did not learn"

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 12.3 · `paired_gap` · medium · 10 minutes
#
# Two methods, accuracy by seed, such as `{0: 0.81, 1: 0.77}`. Some runs may be missing. Return the mean paired
# difference, `method` minus `other`, over the seeds that both have, and its standard error. Then apply yours to
# `race["main"]`: by how much is it smaller than that of an unpaired comparison?


# %% tags=["exercise"]
def paired_gap(
    method: dict[int, float], other: dict[int, float]
) -> tuple[float, float]:
    raise NotImplementedError


check("12.3", paired_gap);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the difference of each common seed first. The standard error of a mean of n numbers is their deviation (with
# n - 1) divided by the root of n.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, stdev
#
#
# def paired_gap(
#     method: dict[int, float], other: dict[int, float]
# ) -> tuple[float, float]:
#     gaps = [method[seed] - other[seed] for seed in method if seed in other]
#     return mean(gaps), stdev(gaps) / len(gaps) ** 0.5
# ```
#
# </details>

# %% [markdown]
# ### Exercise 12.4 · `faults` · medium · 10 minutes
#
# An invented table from an invented paper. "FancyPO beats GRPO by 4 points":
#
# | | GRPO | FancyPO |
# | --- | --- | --- |
# | model, prompt, temperature | the same | the same |
# | sampled completions | 128,000 | 256,000 |
# | learning rate | the library's default | best of five |
# | training runs reported | 1 | 1 |
# | reported checkpoint | the last | the best of 20 on the test problems |
# | test problems | 30 | 30 |
# | accuracy | 53 % | 57 % |
#
# Return the set of its faults, out of `"different models"`, `"unequal completions"`, `"unequal tuning"`, `"one seed"`,
# `"chosen on the test set"`, `"too few problems"`, `"different prompts"`, `"no control"`.


# %% tags=["exercise"]
def faults() -> set[str]:
    raise NotImplementedError


check("12.4", faults);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the rules at the top of this chapter, one by one. How many problems are 4 points of 30?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def faults() -> set[str]:
#     return {"unequal completions", "unequal tuning", "one seed", "chosen on the test set",
#             "too few problems", "no control"}
# ```
#
# Four points of 30 problems are 1.2 problems. Each of these faults alone could make the difference.
#
# </details>

# %% [markdown]
# ### Exercise 12.5 · `dynamic_cost` · easy · 8 minutes
#
# How many completions does dynamic sampling sample, on average, to fill a batch of `wanted` completions with groups of
# `group` that have variance, if each completion is right with probability `p` (between 0 and 1)?


# %% tags=["exercise"]
def dynamic_cost(p: float, group: int, wanted: int) -> float:
    raise NotImplementedError


check("12.5", dynamic_cost);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What is the probability that a group is useful? Then so many groups are needed for one useful group: its inverse.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def dynamic_cost(p: float, group: int, wanted: int) -> float:
#     useful = 1 - p**group - (1 - p) ** group
#     return wanted / useful
# ```
#
# </details>

# %% [markdown]
# ### Exercise 12.6 · `truncated_weights` · medium · 10 minutes
#
# Truncated importance sampling, as `vllm_importance_sampling_mode="token_truncate"` does it: the weight of each token,
# (B, T), from the log-probabilities under the policy that learns (`logp`) and under the `sampler`, with ratios cut at
# `cap`, and 0 where the mask is 0.


# %% tags=["exercise"]
def truncated_weights(
    logp: "torch.Tensor", sampler: "torch.Tensor", mask: "torch.Tensor", cap: float
) -> "torch.Tensor":
    raise NotImplementedError


check("12.6", truncated_weights);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A token that the sampler wrote too often must count less. Which of the two goes on top of the ratio?
# `Tensor.clamp(max=...)` cuts.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def truncated_weights(
#     logp: "torch.Tensor", sampler: "torch.Tensor", mask: "torch.Tensor", cap: float
# ) -> "torch.Tensor":
#     return (logp - sampler).exp().clamp(max=cap) * mask
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - A fair race has equal completions, equal tuning, held-out problems, several paired seeds, a control, and a corrected
#   test. This one misses equal tuning. Then most variants show no difference.
# - The measure is part of the result. Sampled accuracy rewards certainty; greedy accuracy does not. Call a method better
#   only where both agree.
# - With rewards of 0 and 1, REINFORCE is rejection sampling on fresh samples. RLOO and Dr. GRPO differ by a factor.
# - In the first update on a batch the ratio is 1: clip-higher, GSPO, SAPO and CISPO only act from the second on.
# - Length grows where it pays, and only if the base writes steps now and then. Controls tell that from artefacts.
# - Each mechanism is for a regime: dynamic sampling for groups without variance, an entropy bonus for a policy that settles
#   too early, importance sampling for a sampler that drifts. Measure whether you are in it.
#
# Next: [13 · Learned rewards](13_learned_rewards.ipynb) trains against rewards that are themselves models, and wrong.
