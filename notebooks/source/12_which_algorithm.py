# %% [markdown]
# # 12 · Which algorithm?
#
# **After this notebook you can** set up a fair race between training methods, read its result with seeds, intervals and
# corrected tests, say when a variant of GRPO can matter, and choose a method with a number behind it.
#
# **Time:** about 3 minutes on two CPU cores. You run a small race yourself; a large one is stored and read.

# %% [markdown]
# ## The question
#
# You have a base model, problems, and a check of their answers. Should you train with GRPO at all, or imitate good
# answers, or learn from pairs? And which of the dozen variants of GRPO? Published answers are mostly single runs.
# [A controlled study](https://arxiv.org/abs/2603.19335) of about 240 runs found the loss function worth about 1 point,
# the kind of training 10, and the model's scale 50, with rankings that change from one scale to the next. So a table
# from somebody else's model does not answer the question for yours. A race of your own does, if it is fair:
#
# | rule | without it |
# | --- | --- |
# | equal numbers of sampled completions | the method that samples more looks better |
# | the same problems, start and token limit | you compare data, not methods |
# | a learning rate tuned for each with equal effort, on other problems | the one you like best gets the best rate |
# | held-out problems, looked at once | the best of ten checkpoints is partly luck |
# | several seeds, paired | seeds differ by more than most methods |
# | a control that cannot learn | some gains come from anything at all |
# | a corrected test of all differences | of 20 equal methods one is "better" at p < 0.05 |
#
# ## Toy: what each method does with the same samples
#
# Two questions, eight sampled answers each, a reward of 1 if right. The first question is hard for the model (2 of 8
# right), the second is easy (7 of 8). All methods end in a gradient step on $\sum_i w_i \log \pi(\text{answer}_i)$; they
# differ in the weights $w_i$. So write each loss as its authors do, and let autograd say the weights. Column 8 is an
# answer that the model did not sample: the training data's, which only SFT sees.

# %%
import torch
from torch.nn.functional import logsigmoid

from grpo_workbook import group_advantages, quiet

quiet()
right = torch.tensor([[1.0, 0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1, 1, 1]])
minus_mean, minus_all = right - right.mean(1, keepdim=True), right - right.mean()
advantage = group_advantages(right.flatten(), 8).view(2, 8)


def dpo(logp, beta=0.1):  # the first right and the last wrong answer of each group
    moved = logp - logp.detach()  # from the reference, which here is the policy itself
    better, worse = moved[:, 0], moved[[0, 1], [7, 3]]
    return -logsigmoid(beta * (better - worse)).mean()


losses = {
    "SFT": lambda logp: -logp[:, 8].mean(),
    "rejection sampling": lambda logp: -logp[:, :8][right == 1].mean(),
    "REINFORCE": lambda logp: -(right * logp[:, :8]).mean(),
    "minus the batch's mean": lambda logp: -(minus_all * logp[:, :8]).mean(),
    "RLOO": lambda logp: -(8 / 7 * minus_mean * logp[:, :8]).mean(),
    "GRPO": lambda logp: -(advantage * logp[:, :8]).mean(),
    "Dr. GRPO": lambda logp: -(minus_mean * logp[:, :8]).mean(),
    "DPO": dpo,
}

# %% [markdown]
# The weights. A constant factor does not count, because AdamW cancels it, so every panel's largest bar has length 1.

# %%
weights = {}
for name, loss in losses.items():
    logp = torch.zeros(2, 9, requires_grad=True)
    w = -torch.autograd.grad(loss(logp), logp)[0]
    weights[name] = w / w.abs().max() + 0.0  # no -0.0

# %% [markdown]
# Blue makes an answer likelier, orange less likely:

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.5, 4.6, 8, 4)
for axes, (name, w) in zip(panels, weights.items()):
    for group in (0, 1):
        places = [10 * group + i + 0.8 * (i == 8) for i in range(9)]
        colours = [figures.BLUE if x > 0 else figures.ORANGE for x in w[group]]
        axes.bar(places, w[group].tolist(), 0.85, color=colours)
        marks = ["+" if r else "–" for r in right[group]] + ["D"]
        for place, mark in zip(places, marks):
            axes.text(place, -1.32, mark, ha="center", fontsize=7)
    axes.axhline(0, color="black", lw=0.7)
    axes.set(xticks=[4, 14], xticklabels=["hard", "easy"], ylim=(-1.4, 1.1))
    axes.set_title(name, fontsize=10)
figure.suptitle("Weight of each answer: + right, – wrong, D from the data")
words = "; ".join(
    f"{name}: hard right {w[0, 0]:.2f}, hard wrong {w[0, 7]:.2f}, easy right "
    f"{w[1, 0]:.2f}, easy wrong {w[1, 3]:.2f}, data {w[0, 8]:.2f}"
    for name, w in weights.items()
)
figures.show(figure, f"Bars of the weights of two groups of 8 answers. {words}.")

# %% [markdown]
# - **SFT** imitates an answer that the model might never have written. It needs such answers.
# - **Rejection sampling** (sample, keep what is right, imitate it) and **REINFORCE** have the same weights here: with
#   rewards of 0 and 1 they are one method, as long as the samples are fresh. Easy questions dominate both.
# - With the **batch's mean**, an easy question is mostly praised and a hard one mostly blamed. A mean per group asks
#   instead: better than usual *for this question*?
# - **RLOO** and **Dr. GRPO** differ by the factor 8/7 (exercise 12.1), which AdamW cancels. **GRPO** divides by the
#   group's deviation too, so it lifts the groups whose rewards differ least.
# - **DPO** learns from one pair of a group and leaves the other six answers unused.
#
# A step of the same length in each of these directions, for a policy with one logit per question (two arms, right and
# wrong). The derivative of $\log \pi$ is $1 - p$ for a right answer and $-p$ for a wrong one:

# %%
p = torch.tensor([0.25, 0.875])
slope = right - p[:, None]
print(f"{'before':24} hard {p[0]:.3f}   easy {p[1]:.3f}")
for name, w in weights.items():
    push = (w[:, :8] * slope).sum(1) + w[:, 8] * (1 - p)
    after = (p.logit() + 0.5 * push / push.norm()).sigmoid()
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
#     found = []
#     for start in range(0, len(rewards), group_size):
#         group = rewards[start : start + group_size]
#         total, others = sum(group), group_size - 1
#         found += [r - (total - r) / others for r in group]
#     return found
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
# One loop for all methods, all weights in float32, 64 completions per update. For SFT a training answer counts as a
# completion. Its rules and learning rates stand in `benchmarks/race_results/README.md`. Before you look:

# %% [markdown]
# ### Exercise 12.2 · `my_order` · medium · 8 minutes
#
# Order these six by held-out accuracy on *main*, from best to worst:
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
    return rows.join(pd.DataFrame(list(rows["end"]), index=rows.index))


race = {task: read_race(STORED / f"{task}.jsonl") for task in ("main", "steps")}
for task, rows in race.items():
    seeds = rows.groupby("method")["seed"].nunique()
    few = ", ".join(seeds[seeds < 3].index) or "none"
    print(f"{task:5} {len(rows):3} runs of {len(seeds)} methods, {seeds.max()} seeds;")
    print(f"      fewer than 3 seeds: {few}")

# %% [markdown]
# Means over the seeds. *sampled* is the accuracy of single completions at temperature 1, *pass@8* the rate of problems
# with a right answer among eight. The last columns say when a measurement first found 80 % or more, if every seed
# of the method got there:

# %%
base = race["main"].query("method == 'base'")["sampled"].mean()


def reached(curve, goal=0.8):
    """(completions, seconds) at the first measurement that reaches the goal."""
    return next((point[:2] for point in curve if point[2] >= goal), [float("nan")] * 2)


def overview(rows):
    shown = {"seeds": rows["seed"], "sampled %": 100 * rows["sampled"],
             "greedy %": 100 * rows["greedy"], "pass@8 %": 100 * rows["pass8"],
             "entropy": rows["entropy"], "tokens": rows["tokens"]}
    at = list(rows["curve"].map(reached))
    shown["80 % at"], shown["80 % after s"] = zip(*at)
    table = pd.DataFrame(shown, index=rows.index).groupby(rows["method"])
    counted, means = table["seeds"].nunique(), table.agg(lambda x: x.mean(skipna=False))
    means = means.assign(seeds=counted).sort_values("sampled %", ascending=False)
    return means.round(1).assign(entropy=means["entropy"].round(2))


overview(race["main"])

# %% [markdown]
# Of the names: *best of 8* imitates the best of each group, right or not; *reinforce, baseline* takes off the batch's
# mean; *token-level loss* is `dapo`'s loss alone; *overlong penalty* is DAPO's, for the last fifth of the length; *sapo*
# has a smooth gate on the ratio in place of a clip.
#
# Completions are one price, seconds another: PPO trains a critic too, and four updates take four backward passes. The
# seconds are processor seconds of training on a shared machine: good for a ratio of two, not more.
#
# ### Over completions
#
# Accuracy on the way, for six methods. Lines are means, bands go from the worst to the best seed. A method that learns
# only after all its samples are there has no points on the way: a dashed line.

# %%
def curve_of(rows, method):
    """Completions; mean, lowest and highest accuracy there: all start from the base."""
    curves = rows[rows["method"] == method]["curve"]
    points = [point for curve in curves for point in curve]
    table = pd.DataFrame(points, columns=["completions", "seconds", "rate"])
    rate = table.groupby("completions")["rate"]
    found = pd.DataFrame({"mean": rate.mean(), "low": rate.min(), "high": rate.max()})
    start = pd.DataFrame({name: base for name in found}, index=[0])
    return 100 * pd.concat([start, found])


drawn = ["sft", "rejection", "rejection, 4 rounds", "grpo", "ppo", "dpo, 4 rounds"]
known = set(race["main"]["method"])
curves = {name: curve_of(race["main"], name) for name in drawn if name in known}

# %% [markdown]
# Drawn:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 3.8)
for (name, curve), (colour, dash, marker) in zip(curves.items(), figures.STYLES):
    dash = "--" if len(curve) == 2 else "-"
    axes.plot(curve.index, curve["mean"], dash, color=colour, marker=marker, label=name)
    ends = curve["low"], curve["high"]
    axes.fill_between(curve.index, *ends, color=colour, alpha=0.12)
best = max(curves, key=lambda name: curves[name]["mean"].iloc[-1])
axes.set(xlabel="completions sampled", ylabel="held-out accuracy, %", ylim=(0, 100))
axes.set_title(f"Most of the gain comes early; in the end {best} leads")
figure.legend(frameon=False, loc="outside right center")
ends = "; ".join(f"{name} {c['mean'].iloc[-1]:.0f}" for name, c in curves.items())
figures.show(figure, f"Line chart of accuracy over completions, from {100 * base:.0f} "
                     f"percent. At the end, in percent: {ends}.")

# %% [markdown]
# ### Is the difference real?
#
# Seeds share their luck: seed 3 of every method sees the same problems in the same order. So compare *within* seeds:
# the difference of each seed, its mean, a t-test against 0 and its interval. (The bootstrap of chapter 08 needs more
# values: of eight its 95 % are 88.) Each method is compared with the one that differs from it in one thing: those with
# four updates per batch with GRPO with four, the mechanisms at the end of this chapter with the token-level loss, on
# which they build, a corrected sampler with the same one uncorrected, all others with GRPO.

# %%
from scipy.stats import ttest_1samp

MANY = "grpo, 4 updates"
MECHANISMS = ["entropy bonus", "top-entropy tokens", "stale sampler",
              "stale sampler, corrected", "4-bit sampler", "4-bit sampler, corrected"]


def rival(method):
    """What a method is compared with."""
    if method.endswith(", corrected"):
        return method.removesuffix(", corrected")
    if method in MECHANISMS:
        return "token-level loss"
    return MANY if "4 updates" in method and method != MANY else "grpo"


def paired_gaps(task, method):
    """Points above its rival, seed by seed; empty where one of them is not stored."""
    by_seed = race[task].pivot(index="seed", columns="method", values="sampled")
    if not {method, rival(method)} <= set(by_seed):
        return pd.Series(dtype=float)
    return (100 * (by_seed[method] - by_seed[rival(method)])).dropna().round(6)

# %% [markdown]
# One method in twenty passes p < 0.05 by luck. **Holm's correction** takes all p-values of a task together: it
# multiplies the smallest by their number m, the next by m - 1, and so on; and no corrected p is smaller than the one
# before it. What is below 0.05 then holds for *all* of them with 95 % confidence.

# %%
def holm(p_values: pd.Series) -> pd.Series:
    ordered = p_values.sort_values()
    factors = list(range(len(ordered), 0, -1))
    return (ordered * factors).cummax().clip(upper=1)


def compare_all(task, least=3):
    """A row per method: seeds, gap, interval, corrected p, verdict."""
    table, tested = {}, {}
    for method in sorted(set(race[task]["method"]) - {"grpo", "base"}):
        gaps = paired_gaps(task, method)
        row = {"seeds": len(gaps), "gap": gaps.mean(), "verdict": "the same"}
        if len(gaps) < least:
            row["verdict"] = "too few seeds"
        elif gaps.nunique() > 1:
            tested[method] = (test := ttest_1samp(gaps, 0)).pvalue
            row["low"], row["high"] = test.confidence_interval()
        table[method] = row
    for method, p_value in holm(pd.Series(tested, dtype=float)).items():
        row = table[method]
        row["p"] = p_value
        row["verdict"] = "better" if row["gap"] > 0 else "worse"
        if p_value >= 0.05:
            apart = row["low"] > 0 or row["high"] < 0
            row["verdict"] = "unsettled" if apart else "not shown"
    wanted = ["seeds", "gap", "low", "high", "p", "verdict"]
    return pd.DataFrame.from_dict(table, "index").reindex(columns=wanted)


verdicts = {task: compare_all(task) for task in race}

# %% [markdown]
# "Unsettled" is a difference whose own interval leaves out 0, but which the corrected test does not confirm: it needs
# more seeds. The picture is a *forest plot*: a dot for the mean difference, a line for its interval. Methods with fewer
# than three seeds are left out.

# %% tags=["hide-input"]
LOOKS = {"better": figures.BLUE, "worse": figures.ORANGE, "unsettled": "black"}


def forest(task, lowest=-30):
    """Draw the paired differences of a task; those below `lowest` stand at the edge."""
    table = verdicts[task].dropna(subset=["p"]).sort_values("gap")
    if table.empty:
        print(f"{task}: no method has three seeds yet")
        return
    figure, (axes,) = figures.new_panels(8.0, 1.2 + 0.24 * len(table))
    for y, (name, row) in enumerate(table.iterrows()):
        colour = LOOKS.get(row["verdict"], figures.GREY)
        place, *ends = row[["gap", "low", "high"]].clip(lower=lowest)
        axes.plot(ends, [y, y], color=colour, lw=2)
        axes.plot(place, y, "o", color=colour)
        note = f"{row['gap']:.0f}" if row["gap"] < lowest else ""
        axes.text(place + 1, y, note, va="center", fontsize=8)
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(table)), table.index, fontsize=8)
    count = table["verdict"].value_counts()
    said = ", ".join(f"{count.get(w, 0)} {w}" for w in (*LOOKS, "not shown"))
    axes.set(xlabel="points above its rival, with interval", title=f"{task}: {said}")
    told = "; ".join(f"{n} {row['gap']:+.1f}, {row['verdict']}"
                     for n, row in table.iterrows())
    figures.show(figure, f"Forest plot of differences in points. {told}.")


forest("main")

# %% [markdown]
# "Not shown" does not prove that there is no difference: with so few seeds and this much noise a true gap of a point or
# two stays hidden. It says that nothing is known, so take the simpler one. On the harder task:

# %% tags=["hide-input"]
forest("steps", lowest=-70)

# %% [markdown]
# On *main* imitation of right answers leads: SFT with the data's, rejection sampling with the model's own, by seven to
# ten points, and eight seeds settle it; in four rounds it is above 80 % at its first measurement, after 256
# completions, GRPO after 672.
# Without a check (a random one of eight) nothing is gained, and DPO on pairs that were sampled once stays far below;
# pairs four times fresh make up for most of it. The variants of GRPO's loss lie within about two points of one
# another, less than its own seeds differ; REINFORCE without a baseline and groups of two each had a seed that went
# wrong.
#
# On *steps* GRPO's seeds differ so much (3 to 72 %) that hardly any gap is settled. Look at means and at the worst seed
# there: GRPO 49 % on average and 3 % at worst, groups of four 61 and 42 %, rejection sampling in one round 72 and 66 %,
# SFT 77 and 68 %, GRPO with four updates per batch 78 and 72 %. So its trouble is less the loss than the step: one update
# with a rate of 3e-4 goes wrong in some seeds. With 1e-4 ("grpo, a third of the rate") it goes wrong in none, 37 to 44 %,
# but learns too slowly for this budget; four clipped updates with 1e-4 do both. Against that stronger rival GSPO is worse
# by the corrected test, as is, against GRPO, what cannot learn at all.
#
# The order depends on the setting, too: learning rates tuned for six methods, with two to four tries each, and inherited
# by the others, one tiny model, an easy task. The study named above saw rankings turn around between 1.5 and 7 billion
# weights.
#
# ### Does it only sharpen?
#
# A method may make right answers likelier without solving anything that the base could not solve in eight attempts
# (chapter 08). Each dot is a method:

# %% tags=["hide-input"]
ends = race["main"].groupby("method")[["sampled", "pass8", "entropy"]].mean()
figure, panels = figures.new_panels(9.0, 3.6, 2, 2)
named = {"base": (6, -9), "sft": (0, -14), "grpo": (-62, -10), "dpo": (6, -9),
         "dpo, 4 rounds": (-60, 12), "random of 8": (6, -3)}  # where the names stand
for axes, what in zip(panels, ("pass8", "entropy")):
    scale = 100 if what == "pass8" else 1
    axes.plot(100 * ends["sampled"], scale * ends[what], "o", color=figures.GREY, ms=5)
    for name, place in named.items():
        dot = 100 * ends.loc[name, "sampled"], scale * ends.loc[name, what]
        axes.plot(*dot, "o", color=figures.ORANGE, ms=5)
        axes.annotate(name, dot, place, textcoords="offset points", fontsize=8,
                      arrowprops={"arrowstyle": "-", "lw": 0.5, "shrinkB": 3})
    axes.set(xlabel="single completions right, %")
panels[0].set(ylabel="pass@8, %", title="More right in eight attempts, too")
panels[1].set(ylabel="entropy per token", title="The better, the more certain",
              ylim=(0, None))
gain = 100 * (ends.loc["grpo", "pass8"] - ends.loc["base", "pass8"])
listed = "; ".join(f"{n} {100 * r['sampled']:.0f}, {100 * r['pass8']:.0f}, "
                   f"{r['entropy']:.2f}" for n, r in ends.iterrows() if n in named)
figures.show(figure, "Two scatter charts of methods: pass@8 and entropy over single "
                     f"accuracy. Accuracy, pass@8, entropy: {listed}.")
print(f"GRPO adds {gain:+.1f} points of pass@8 to the base's "
      f"{100 * ends.loc['base', 'pass8']:.1f} %")

# %% [markdown]
# At k = 8 every method that learns raises pass@8 as well, mostly by form: an answer outside its tags counts as wrong.
# That is no proof of new skills; k = 8 cannot give one.

# %% [markdown]
# ## A slice of it, live
#
# Three methods, two seeds, half of the completions: about two minutes on two cores. The command prints a line per
# finished run. Run the cell twice: what is stored is not made again.

# %%
import subprocess
import sys

from grpo_workbook.run_config import RunConfig

run = RunConfig.from_env(default_profile="smoke")
slice_folder = run.output / "race"
command = [sys.executable, str(files.REPO / "benchmarks" / "race.py"),
           "--tasks", "main", "--methods", "grpo", "rejection", "dpo",
           "--seeds", "0", "1", "--budget", "512", "--points", "2", "--jobs", "2",
           "--folder", str(slice_folder)]
slice_folder.mkdir(parents=True, exist_ok=True)
with open(slice_folder / "errors.txt", "w+") as errors:
    how = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
    with subprocess.Popen(command, **how) as racing:
        for line in racing.stdout:
            print(line, end="")
    errors.seek(0)
    assert racing.returncode == 0, errors.read()[-2000:]

# %% [markdown]
# `steps` are lines of work that were written; then come the seconds of training, and those with loading and measuring.
#
# Beside the stored runs. These are not the same runs with half of the steps: the learning rate falls to 0 within 512
# completions here, and within 1,024 there.

# %%
live = read_race(slice_folder / "main.jsonl")
both = pd.DataFrame({
    "live, 512: seed 0": live[live["seed"] == 0].set_index("method")["sampled"],
    "seed 1": live[live["seed"] == 1].set_index("method")["sampled"],
    "stored, 1,024: mean": race["main"].groupby("method")["sampled"].mean(),
    "lowest": race["main"].groupby("method")["sampled"].min(),
    "highest": race["main"].groupby("method")["sampled"].max(),
})
(100 * both.loc[["grpo", "rejection", "dpo"]]).round(1)

# %% [markdown]
# GRPO and rejection sampling gain from the second half of the completions. DPO, whose pairs are all sampled before it
# learns, loses: after more updates the policy is far from the pairs, and they say little about what it now does.
#
# ## The same with TRL
#
# The race's loop keeps all but the method equal. For your own training take TRL's trainers, which give the same losses
# (a test of this repository compares RLOO's and DPO's numbers). Each of the next cells makes two updates, to show what
# one writes; Unsloth comes first, because on a CPU TRL 1.15 samples only with its patches.

# %%
import unsloth

import re

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

from grpo_workbook import config, data, load_problems, parse_rewards, to_dataset

TINY = config.DATA / "tiny-qwen3"
tokenizer = AutoTokenizer.from_pretrained(TINY)
train_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
common = {"output_dir": str(run.output / "trl"), "max_steps": 2, "logging_steps": 1,
          "per_device_train_batch_size": 8, "save_strategy": "no", "report_to": "none",
          "use_cpu": True, "bf16": False, "disable_tqdm": True,
          "gradient_checkpointing": False}


def trained(trainer, *names):
    """Train, and print these metrics of each step."""
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history[:-1]:
        print(entry["step"], {name: round(entry[name], 4) for name in names})


def fresh():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")


# %% [markdown]
# **SFT** on worked answers: a `completion` beside each `prompt`, and only the completion's tokens are learned.

# %%
from trl import SFTConfig, SFTTrainer


def message(text):
    return [{"role": "assistant", "content": text}]


def worked(row):
    steps = "\n".join(re.findall("<<(.+?)>>", row["solution"]))
    return (f"<reasoning>\n{steps}\n</reasoning>\n"
            f"<answer>{row['answer']}</answer>")


rows = [{"prompt": row["prompt"], "completion": message(worked(row))}
        for row in train_rows[:16]]
trained(SFTTrainer(fresh(), args=SFTConfig(learning_rate=3e-4, **common),
                   train_dataset=Dataset.from_list(rows), processing_class=tokenizer),
        "loss", "entropy", "mean_token_accuracy")

# %% [markdown]
# Rejection sampling is the same call with other rows: what the model sampled, if its reward is full. **DPO** takes from
# each group its best and its worst completion. The sampling is chapter 01's; groups without variance give no pair:

# %%
from grpo_workbook import ScratchTrainer
from trl import DPOConfig, DPOTrainer

parts = "correctness:2,strict_format:0.5,incremental_format:0.5"
rewards, reward_weights = parse_rewards(parts)
sampler = ScratchTrainer(fresh(), tokenizer, rewards, reward_weights)
torch.manual_seed(0)
batch = sampler.rollout(train_rows[:8])
scores = torch.tensor(sampler.score(train_rows[:8], batch["texts"])).view(8, 8)
pairs = []
for group, row in enumerate(train_rows[:8]):
    texts = batch["texts"][8 * group : 8 * group + 8]
    best, worst = int(scores[group].argmax()), int(scores[group].argmin())
    if scores[group, best] > scores[group, worst]:
        pairs.append({"prompt": row["prompt"], "chosen": message(texts[best]),
                      "rejected": message(texts[worst])})
print(len(pairs), "pairs of 64 completions")
trained(DPOTrainer(fresh(), args=DPOConfig(learning_rate=1e-4, beta=0.1, **common),
                   train_dataset=Dataset.from_list(pairs), processing_class=tokenizer),
        "loss", "rewards/margins", "logps/chosen")

# %% [markdown]
# Watch `logps/chosen`: DPO only wants the *difference* to grow, so it may make the chosen completion less likely as
# well. **RLOO** takes rewards like GRPO; its defaults differ (2 completions a prompt, `beta=0.05`):

# %%
from trl import RLOOConfig, RLOOTrainer

settings = RLOOConfig(num_generations=8, beta=0.0, max_completion_length=64,
                      learning_rate=3e-4, reward_weights=reward_weights, **common)
trained(RLOOTrainer(fresh(), rewards, args=settings, processing_class=tokenizer,
                    train_dataset=Dataset.from_list(train_rows[:64])),
        "reward", "entropy", "completions/mean_length")

# %% [markdown]
# ## The harder task: when writing steps pays
#
# *tiny-steps* adds two long numbers. It can do it column by column, but was taught to write all columns in one of ten
# answers, some in three, and to answer at once in six, which is nearly always wrong. The reward is **for the right
# number alone**. Before training, 512 samples, by the number of columns written:

# %%
from grpo_workbook import correctness_reward

STEPS = config.DATA / "step_tasks"
sums = {name: list(to_dataset(load_problems(STEPS / f"{name}.jsonl"), None))
        for name in ("train", "heldout")}
folder = config.DATA / "tiny-steps"
adder = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
words = AutoTokenizer.from_pretrained(folder)
learner = ScratchTrainer(adder, words, correctness_reward, learning_rate=3e-4,
                         loss_type="grpo")


def by_steps(rows):
    """Sample a group for each row: columns written, tokens, right or not."""
    batch = learner.rollout(rows)
    columns = [text.count("=") for text in batch["texts"]]
    return pd.DataFrame({"columns": columns, "tokens": batch["mask"].sum(1),
                         "right": learner.score(rows, batch["texts"])}), batch


torch.manual_seed(0)
first, batch = by_steps(sums["heldout"][:64])
first["columns"] = first["columns"].clip(upper=5)
paid = first.groupby("columns").agg(["size", "mean"])
paid = pd.DataFrame({"samples": paid["right", "size"], "tokens": paid["tokens", "mean"],
                     "right": paid["right", "mean"]})
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

log, snapshots = [], {}
before = {name: value.clone() for name, value in adder.state_dict().items()}
rows = sums["train"][: 24 * 8]
with tqdm(learner.train(rows), total=24, desc="GRPO", unit="step", ncols=80) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(right=f"{metrics['reward']:.2f}")
        if len(log) == 16:  # for later: the policy of some updates ago
            snapshots["stale"] = {k: v.clone() for k, v in adder.state_dict().items()}

# %% [markdown]
# The live run:

# %% tags=["hide-input"]
figure, (left,) = figures.new_panels(6.5, 3.4)
table = pd.DataFrame(log)
steps = table["step"] * 64
left.plot(steps, table["tokens"], "--", color=figures.ORANGE, label="tokens")
left.plot(steps, 100 * table["reward"], color=figures.BLUE, label="right, %")
left.set(xlabel="completions sampled", ylabel="tokens; right, %",
         title="Length grows because it pays")
left.legend(frameon=False)
last = table.tail(3).mean()
was, now = table["reward"][0], last["reward"]
figures.show(figure, f"Line chart: from {table['tokens'][0]:.0f} to "
                     f"{last['tokens']:.0f} tokens while {100 * was:.0f} to "
                     f"{100 * now:.0f} percent become right.")

# %% [markdown]
# The stored runs, means over eight seeds:

# %%
shown = ["base", "grpo", "random reward", "format reward", "length price 0.1",
         "length price 0.5", "length price 1.5", "base without steps"]
ends = race["steps"].groupby("method")[["tokens", "sampled"]].mean().loc[shown]
ends["right, %"] = 100 * ends.pop("sampled")
ends.round(1)

# %% [markdown]
# This is the curve that is called the "aha moment": nobody asked for steps, yet they come, because in a group with one
# long right answer the short ones earn less. It is *elicited*, not invented: the base does it in one of ten answers,
# and a base that never does ("base without steps") learns nothing. In two of the eight stored seeds of GRPO length more
# than doubled, to 36 tokens, while 3 and 15 % were right. So length is no evidence of reasoning; measure accuracy.
#
# The controls settle what the rise is due to. A **random reward** and a **format reward** do not lift accuracy: updates
# alone, or asking for tags, are not enough. And the **price**, even 0.1, ends in short wrong answers. Why, if its mean
# reward looked harmless? Look at the groups: at first most have no right answer. Without a price they have zero variance
# and teach nothing. With *any* price they differ, in length alone, and GRPO divides by their deviation (chapters 01
# and 03). The advantages of such a group, all wrong:

# %%
lengths = torch.tensor([8.0, 8, 9, 8, 38, 16, 8, 23])
for price in (0.1, 0.5, 1.5):
    A = group_advantages(-price * lengths / 40, 8)
    print(f"price {price}:", *[f"{a:5.2f}" for a in A.tolist()])

# %% [markdown]
# The answer with all its columns is blamed most, by each price alike. Add a price only after accuracy has risen, or do
# not scale by the group.
#
# One sum before and after, greedily decoded:

# %%
from grpo_workbook import generate

question = sums["heldout"][0]
after_weights = {name: value.clone() for name, value in adder.state_dict().items()}
for name, state in (("before", before), ("after", after_weights)):
    adder.load_state_dict(state)
    text = generate(adder, words, [question["prompt"]], max_new_tokens=64)[0]
    print(f"{name}: {question['question']}\n{text}\n")

# %% [markdown]
# ## The variants, one by one
#
# Each with a toy or a measurement that shows *when* it can matter, and with its stored runs. `said` gives a method's
# line of the comparison, or says that it has too few seeds:

# %%
def said(task, method):
    """The verdict of one method as a sentence."""
    if method not in verdicts[task].index:
        return f"{task}: {method}: not stored"
    row = verdicts[task].loc[method]
    if pd.isna(row["p"]):
        return f"{task}: {method}: {row['verdict']} ({row['seeds']:.0f} seeds)"
    span = f"[{row['low']:+.1f}, {row['high']:+.1f}]"
    return f"{task}: {method}: {row['gap']:+.1f} points {span}, {row['verdict']}"


for method in ("reinforce", "reinforce, baseline", "rloo", "ppo", "dr_grpo"):
    print(said("main", method))

# %% [markdown]
# ### Dynamic sampling
#
# Chapter 07 shows how it works: groups without variance are discarded, and more are sampled. If a completion is right
# with probability $p$, a group of $n$ has variance with probability $1 - p^n - (1 - p)^n$, and a batch costs the inverse:

# %%
import numpy as np

chance = np.linspace(0.005, 0.995, 199)
figure, panels = figures.new_panels(9.0, 3.4, 2, 2)
for n, (colour, dash, _) in zip((2, 4, 8, 16), figures.STYLES):
    useful = 1 - chance**n - (1 - chance) ** n
    for axes, values in zip(panels, (useful, 1 / useful)):
        axes.plot(chance, values, dash, color=colour, label=f"groups of {n}")
        axes.set(xlabel="probability p of a right completion")
panels[0].set(title="Few groups teach at either end", ylabel="groups with variance")
panels[1].set(title="What a full batch costs", ylabel="completions per one used",
              yscale="log", ylim=(0.9, 30), yticks=[1, 3, 10, 30])
panels[1].set_yticklabels(["1", "3", "10", "30"])
panels[0].legend(frameon=False)
at = {p: 1 - p**8 - (1 - p) ** 8 for p in (0.02, 0.5, 0.98)}
figures.show(figure, "Two line charts over p for groups of 2 to 16. Groups of 8 have "
             "variance at these p: " + ", ".join(f"{p} {v:.0%}" for p, v in at.items()))
for task in race:
    print(said(task, "dynamic sampling"))

# %% [markdown]
# The race counts the discarded completions. So dynamic sampling makes fewer, fuller updates from the same budget. It
# matters where many groups have no variance *and* updates are noisy or expensive beside sampling; with p between 0.2
# and 0.8 at most one in six groups (of eight completions) is discarded.
#
# ### Clip-higher
#
# The clip bounds the *ratio*, so a token of probability 0.9 could only be stopped above 1.08, which does not exist,
# while one of 0.01 is stopped at 0.012. DAPO raises the upper bound to 1.28 for the sake of rare tokens. Which tokens
# are clipped in practice? One batch of the tiny model, four updates as in the race; here all tokens of completions with
# a positive advantage, before the fourth update:

# %%
from grpo_workbook import grpo_loss

updater = ScratchTrainer(fresh(), tokenizer, rewards, reward_weights)
optimizer = torch.optim.AdamW(updater.trained, 1e-4, weight_decay=0.0)
torch.manual_seed(1)
batch = updater.rollout(train_rows[:8])
A = group_advantages(updater.score(train_rows[:8], batch["texts"]), 8)
with torch.no_grad():
    old = updater.logprobs(updater.model, batch)
for update in range(4):
    logp = updater.logprobs(updater.model, batch)
    if update == 3:
        break
    loss, _ = grpo_loss(logp, A, batch["mask"], old_logp=old, loss_type="grpo")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
praised = batch["mask"].bool() & (A > 0)[:, None]
was, ratio = old[praised].exp(), (logp - old)[praised].detach().exp()

# %% [markdown]
# No token can lie in the grey area, where the ratio is above 1 / p:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.6)
axes.plot(was, ratio, ".", color=figures.GREY, alpha=0.5, ms=5)
line = torch.linspace(0.005, 1, 400)
axes.fill_between(line, 1 / line, 10, color=figures.PALE["off"])
for bound, colour in ((1.2, figures.BLUE), (1.28, figures.ORANGE)):
    axes.axhline(bound, color=colour, lw=1.2)
    axes.text(1.05, bound, f"{bound}", color=colour, fontsize=9,
              va="top" if bound == 1.2 else "bottom")
axes.set(xscale="log", yscale="log", xlabel="probability when sampled", ylabel="ratio",
         xlim=(0.005, 1.02), ylim=(0.3, 4))
axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
axes.minorticks_off()
over = ratio > 1.2
rare = float((was[over] < 0.5).float().mean()) if over.any() else 0.0
between = int((over & (ratio < 1.28)).sum())
clipped, seen = int(over.sum()), len(was)
axes.set_title(f"{clipped} of {seen} tokens are clipped, {rare:.0%} of them below 0.5")
figures.show(
    figure, f"Scatter of {seen} tokens, ratio over probability when sampled. {clipped} "
    f"lie above 1.2, {between} of them below 1.28; {rare:.0%} of those above 1.2 had a "
    "probability below 0.5. Likely tokens cannot move up that far.")
print(f"{between} tokens lie between the two bounds: these clip-higher sets free")
print(said("main", "clip-higher, 4 updates"))

# %% [markdown]
# Most of the clipped tokens are not rare at all; only those above p = 1 / 1.2 = 0.83 are safe. In the first update on a
# batch no token is clipped, so with one update per batch clip-higher, GSPO and SAPO *are* GRPO (and CISPO is the
# token-level loss). With four, few tokens lie between 1.2 and 1.28. The bound was raised for thousands of updates, in
# which a rare token that is stopped again and again dies out.
#
# ### Entropy: a bonus, or only the forks
#
# Entropy says how undecided the model is about the next token. Here it is drawn over one completion of the untrained
# adder: the darker, the less decided. The fifth of its tokens with the highest entropy has a frame:

# %%
from html import escape

from IPython.display import HTML, display

adder.load_state_dict(before)
torch.manual_seed(3)
batch = learner.rollout(sums["heldout"][:8])
row = max(range(64), key=lambda i: batch["texts"][i].count("="))
count = int(batch["mask"][row].sum())
with torch.no_grad():
    ids, attention = batch["input_ids"][[row]], batch["attention_mask"][[row]]
    logits = adder(input_ids=ids, attention_mask=attention).logits[0]
start = ids.shape[1] - batch["mask"].shape[1]
log_p = logits[start - 1 : start - 1 + count].log_softmax(-1)
entropy = -(log_p.exp() * log_p).sum(-1)
bound = entropy.quantile(0.8)

# %% [markdown]
# Where are the forks?

# %% tags=["hide-input"]
boxes = ""
for token, value in zip(ids[0, start : start + count].tolist(), entropy.tolist()):
    shade = f"rgba(213, 94, 0, {min(1.0, value / 1.2):.2f})"
    frame = "2px solid black" if value >= bound else "2px solid transparent"
    text = escape(repr(words.decode([token]))[1:-1])
    boxes += (f'<span title="{value:.2f}" style="background:{shade};border:{frame};'
              f'color:#000;padding:1px 4px;border-radius:3px;display:inline-block">'
              f"{text}</span>")
display(HTML(f'<div style="line-height:2;font-family:monospace;background:#fff">'
             f"{boxes}</div>"))
top = entropy >= bound
print(f"mean entropy {entropy.mean():.2f}; in frames {entropy[top].mean():.2f}, "
      f"others {entropy[~top].mean():.2f}")

# %% [markdown]
# Most tokens are decided. The undecided ones are forks: whether to write steps at all, and whether to go on.
# [Wang et al.](https://arxiv.org/abs/2506.01939) train only the 20 % with the highest entropy (TRL:
# `top_entropy_quantile=0.2`) and lose nothing on 8 billion weights, or gain. An **entropy bonus** adds
# $c \cdot H$ to the objective (TRL: `entropy_coef`). It has a price: with two arms and a reward of 1 for the right one,
# the best policy under a bonus $c$ has $p = \mathrm{sigmoid}(1/c)$, and a completion has many tokens:

# %%
for c in (0.03, 0.1, 0.2, 0.5):
    p = torch.sigmoid(torch.tensor(1 / c)).item()
    print(f"bonus {c:4}: best p {p:.4f} for a token; 30 such tokens right: {p**30:.1%}")
for method in MECHANISMS[:2]:
    print(said("steps", method))

# %% [markdown]
# The bonus keeps trying alive where a policy would settle before it has seen what pays; later it only adds noise. So
# let it fall, or give TRL a target (`use_adaptive_entropy`, `entropy_target`). Training on the forks alone assumes that
# the model can do the rest; one that still has to learn its digits needs the gradient of all tokens. Both fit the
# stored runs and neither is settled: with the bonus they are about as often right as without, and seven of eight runs
# on the forks alone ended at 0 %.
#
# ### A sampler that is not the policy
#
# Completions may come from other weights than those that learn: from some updates ago (asynchronous training), or from
# a 4-bit copy, which is faster. Chapter 10 measured such differences for vLLM and shows what TRL drops. Here both cases
# for the adder as it is after training: its NF4 copy, and its own weights of 8 updates before.

# %%
import copy

from bitsandbytes.functional import dequantize_nf4, quantize_nf4

adder.load_state_dict(after_weights)
rounded, stale = copy.deepcopy(adder), copy.deepcopy(adder)
stale.load_state_dict(snapshots["stale"])
with torch.no_grad():
    for name, layer in rounded.named_modules():
        if isinstance(layer, torch.nn.Linear) and name != "lm_head":
            layer.weight.copy_(dequantize_nf4(*quantize_nf4(layer.weight.data)))
log_ratio, in_all = {}, {}
for name, model in {"4-bit": rounded, "8 updates old": stale}.items():
    learner.model = model
    torch.manual_seed(0)
    batch = learner.rollout(sums["heldout"][:32])  # 256 completions
    with torch.no_grad():
        gap = learner.logprobs(adder, batch) - learner.logprobs(model, batch)
    log_ratio[name] = gap[batch["mask"].bool()]
    in_all[name] = (gap * batch["mask"]).sum(1)
learner.model = adder

# %% [markdown]
# The logarithm of the ratio, policy over sampler, for tokens and for whole completions. The orange line is a ratio of
# 2, where *truncated importance sampling* cuts:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 5.0, 4, 2)
parts = [(f"{kind}: {name}", values[name]) for name in log_ratio
         for kind, values in (("tokens", log_ratio), ("completions", in_all))]
told = []
for axes, (title, values) in zip(panels, parts):
    of_tokens = "tokens" in title
    axes.hist(values.clamp(-3, 3).tolist(), 61, range=(-3, 3), color=figures.BLUE,
              log=of_tokens)
    axes.set_ylabel("tokens (log scale)" if of_tokens else "completions")
    axes.axvline(float(np.log(2)), color=figures.ORANGE)
    cut = float((values > np.log(2)).float().mean())
    axes.set_title(f"{title}: {cut:.1%} above 2", fontsize=10)
    told.append(f"{title}, deviation {values.std():.2f}, {cut:.1%} above a ratio of 2")
for axes in panels[2:]:
    axes.set_xlabel("log of the ratio")
figure.suptitle("Small differences a token add up over a completion")
figures.show(figure, f"Four histograms of log-ratios: {'; '.join(told)}.")

# %% [markdown]
# The gradient is right on average if each completion's loss is multiplied by its ratio (importance sampling). But a
# product of many tokens' ratios has a huge variance. Truncation at 2 trades it for a bias:

# %%
for name, values in in_all.items():
    weight = values.exp()
    for kind, w in (("whole ratio", weight), ("truncated at 2", weight.clamp(max=2.0))):
        used = float(w.sum() ** 2 / w.square().sum()) / len(w)
        print(f"{name:14} {kind:15} mean {w.mean():.2f}, largest {w.max():6.2f}, "
              f"as good as {used:.0%} of the completions")
for method in MECHANISMS[2:]:
    print(said("steps", method))

# %% [markdown]
# "As good as" is the effective sample size: the fraction of equally weighted completions with the same variance. The
# correction costs little and matters where the sampler drifts: many updates old, very long completions, coarse
# rounding. For the sampler of some updates ago it adds 13 points in the stored runs (48 % right instead of 35 %, higher
# in seven of eight seeds), for the 4-bit copy nothing that could be told from noise. What TRL offers, with its
# defaults:

# %%
from dataclasses import fields

from trl import GRPOConfig

wanted = ("vllm_importance", "off_policy", "entropy", "epsilon_high", "mask_truncated")
for field in fields(GRPOConfig):
    if any(word in field.name for word in wanted):
        print(f"{field.name:36} {field.default}")

# %% [markdown]
# ## The decision table
#
# Every row is computed from the stored runs: nothing stands here that they do not say. The advice follows from the
# verdict alone.

# %%
from IPython.display import Markdown, display

ADVICE = {"better": "take it", "worse": "leave it", "the same": "the same thing",
          "unsettled": "needs more seeds",
          "too few seeds": "not known yet"}
QUESTIONS = [
    ("You have worked answers: imitate them?", "main", "sft"),
    ("Worked answers for a start, then GRPO?", "main", "sft then grpo"),
    ("A check, no answers: sample once, imitate what is right?", "main", "rejection"),
    ("The same in four rounds?", "main", "rejection, 4 rounds"),
    ("The same on a task that the base hardly solves?", "steps", "rejection, 4 rounds"),
    ("Learn from pairs, sampled once?", "main", "dpo"),
    ("Pairs, four times fresh?", "main", "dpo, 4 rounds"),
    ("No baseline?", "main", "reinforce"),
    ("The mean of the others?", "main", "rloo"),
    ("A critic?", "main", "ppo"),
    ("No deviation?", "main", "dr_grpo"),
    ("All tokens count the same?", "main", "token-level loss"),
    ("Dynamic sampling?", "main", "dynamic sampling"),
    ("Groups of 4?", "main", "group of 4"),
    ("On the harder task?", "steps", "group of 4"),
    ("Groups of 16?", "main", "group of 16"),
    ("A third of the rate, on the harder task?", "steps", "grpo, a third of the rate"),
    ("Four updates per batch?", "main", "grpo, 4 updates"),
    ("On the harder task?", "steps", "grpo, 4 updates"),
    ("Four updates: clip-higher?", "steps", "clip-higher, 4 updates"),
    ("Four updates: all of DAPO?", "steps", "dapo, 4 updates"),
    ("Four updates: GSPO?", "steps", "gspo, 4 updates"),
]

# %% [markdown]
# The variants of the last section join them:

# %%
QUESTIONS += [(f"{name.capitalize()}?", "steps", name) for name in MECHANISMS]
lines = ["| question | task | method - rival | points | seeds | so |",
         "| :-- | :-- | :-- | :-- | --: | :-- |"]
unknown = []
for question, task, method in QUESTIONS:
    row = verdicts[task].reindex([method]).iloc[0]
    if row["verdict"] == "not shown":
        unknown.append(f"{method} ({task})")
        continue
    span = "" if pd.isna(row["p"]) else f" [{row['low']:+.1f}, {row['high']:+.1f}]"
    gap = "" if pd.isna(row["gap"]) else f"{row['gap']:+.1f}{span}"
    verdict = "too few seeds" if pd.isna(row["seeds"]) else row["verdict"]
    seeds = 0 if pd.isna(row["seeds"]) else int(row["seeds"])
    lines.append(f"| {question} | {task} | {method} - {rival(method)} "
                 f"| {gap} | {seeds} | {verdict}: {ADVICE[verdict]} |")
display(Markdown("\n".join(lines)))
print("Not shown, so keep the simpler one:", ", ".join(unknown))

# %% [markdown]
# Three things mattered, in this order: whether the method knows right from wrong, what kind of training it is, and how
# fresh its samples are. On the harder task a fourth: whether every seed learns, and there four small updates on a batch
# beat a large one and a small one. Of the details of the loss only GSPO's showed, and it was worse. Imitation wins here
# because the base can do the task and misses its form, and because right answers exist or are found: even where it is
# right in 8 % of its samples, a hundred of its own right answers teach the steps. Where nothing right is sampled, neither
# has anything to learn from.
#
# Read it for what it is: one tiny model, two short tasks, one budget, full weights. What carries over is the procedure.
# Race the two or three methods that you consider, on your own task, with a budget you can repeat three times.

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

from scipy.stats import fisher_exact

was_right = round(240 * race["main"].query("method == 'base'")["greedy"].mean())
p_values = {}
for one in live.to_dict("records"):
    now = round(240 * one["greedy"])  # held-out problems, decoded greedily
    table_2x2 = [[now, 240 - now], [was_right, 240 - was_right]]
    p_values[f"{one['method']} {one['seed']}"] = float(fisher_exact(table_2x2).pvalue)
named = live.set_index(live["method"] + " " + live["seed"].astype(str))
proved = {
    "base": base,
    "slice": named[["completions", "updates", "sampled"]].T.to_dict("list"),
    "p_values": p_values,
    "steps": len(log),
    "right": [m["reward"] for m in log],
    "tokens": [m["tokens"] for m in log],
    "stored": {task: len(rows) for task, rows in race.items()},
    "spread": {name: float(values.std()) for name, values in log_ratio.items()},
}
run.output.mkdir(parents=True, exist_ok=True)
(run.output / "notebook_12.json").write_text(json.dumps(proved, indent=2))
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
#   test. Then most variants show no difference.
# - With rewards of 0 and 1, REINFORCE is rejection sampling on fresh samples. RLOO and Dr. GRPO differ by a factor.
# - In the first update on a batch the ratio is 1: clip-higher, GSPO, SAPO and CISPO only act from the second on.
# - Length grows where it pays, and only if the base writes steps now and then. Controls tell that from artefacts.
# - Dynamic sampling pays in completions, an entropy bonus in accuracy at the end, importance sampling in variance: each
#   is for a regime. Measure whether you are in it.
#
# Next: [13 · Learned rewards](13_learned_rewards.ipynb) trains against rewards that are themselves models, and wrong.
