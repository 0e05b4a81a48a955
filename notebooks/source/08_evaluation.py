# %% [markdown]
# # 08 · Evaluation
#
# A model scores higher after training than before. Is it better or was it lucky, and what has it gained? This chapter
# plans how many problems such a comparison needs, measures one model before and after a short training, and explains
# what the numbers do and do not show.
#
# **After this notebook you can** plan how many problems an evaluation needs, measure a model strictly and leniently
# with an interval, show with a paired test that training helped, find what got worse, read pass@k and majority vote,
# and say what kind of gain it is.
#
# **Time:** about 2 minutes on two CPU cores that do nothing else; a large part of it is a short training run. (The
# stored run was made on a slower machine, so its bar shows a longer time.) Reading takes about 35 minutes. **You need**
# chapter 00, and an idea of what a confidence interval is.

# %% [markdown]
# ## 30 problems are too few
#
# A model that is right half of the time answers 30 problems. Then it answers 30 different ones. Nothing was trained in
# between. How often does the model look better by ten percentage points or more? We simulate this 10,000 times, with 30
# and with 480 problems:

# %%
import numpy as np

rng = np.random.default_rng(0)
few = rng.binomial(30, 0.5, (10_000, 2)) / 30  # (repetition, before and after)
many = rng.binomial(480, 0.5, (10_000, 2)) / 480
lucky = {}
for name, rates in (("30 problems", few), ("480 problems", many)):
    gains = rates[:, 1] - rates[:, 0]
    gains = gains.round(6)  # 0.1 is not exact in binary
    lucky[name] = np.mean(gains >= 0.1)
    print(f"{name}: a gain of 10 points or more in {lucky[name]:.1%} of repetitions")
best = rng.binomial(30, 0.5, (10_000, 4)).max(axis=1) / 30  # of four runs
gains = (best - few[:, 0]).round(6)  # all four are compared with the same baseline
print(f"30 problems, the best of four runs: in {np.mean(gains >= 0.1):.0%}")

# %% [markdown]
# With 30 problems, luck alone produces ten points or more in about one of four repetitions. If you train four times and
# show the best run, you have such a result in about half of them, even if no training helped. The figure shows the
# simulated gains of a single run, above with 30 problems and below with 480. The height of a bar is the percentage of
# repetitions with this gain. A bar stands for a single gain above and for five neighbouring gains below, where one
# problem is only 0.2 points. The orange bars are gains of ten points or more (below they are too low to be seen):

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(7.0, 4.2, count=2)
shapes = [  # name, rates, the edges of the bars in points
    ("30 problems", few, (np.arange(-12, 14) - 0.5) * 10 / 3),  # one problem is 3.3
    ("480 problems", many, (np.arange(-38, 40) - 0.5) * 500 / 480),  # five are 1.04
]
for axes, (name, rates, edges) in zip(panels, shapes):
    gains = (100 * (rates[:, 1] - rates[:, 0])).round(4)
    counts, _ = np.histogram(gains, edges)
    middles = (edges[1:] + edges[:-1]) / 2
    reaches_ten = np.where(middles > 9.9, figures.ORANGE, figures.GREY)
    width = 0.8 * (edges[1] - edges[0])
    axes.bar(middles, counts / 100, width, color=reaches_ten)
    axes.set(xlim=(-40, 40), ylabel="% of repetitions")
    axes.set_title(name, loc="left", fontsize=10)
    luck = f"10 points or more:\n{lucky[name]:.1%} of repetitions"
    axes.text(20, 0.6 * axes.get_ylim()[1], luck, color=figures.ORANGE)
panels[1].set_xlabel("gain in points, although nothing changed")
figure.suptitle("An unchanged model: with 30 problems, ten points are often luck")
figures.show(
    figure,
    "Two distributions of the gain in points where nothing changed. With 480 problems "
    "nearly all gains lie within 8 points of 0. With 30 problems they spread over 30 "
    f"points, and {lucky['30 problems']:.0%} of them reach 10 points.",
)

# %% [markdown]
# So before we train, we ask how many problems we need. To answer this, we first measure the model as it is.
#
# ## The baseline
#
# The model is the tiny Qwen3, loaded as in chapter 04. Its [card](../data/tiny-qwen3/README.md) says what it has
# learned: ten kinds of word problem are common, and of six *rare* kinds it has seen only four worked examples each. We
# train it on the rare kinds and ask whether it gets better at them, so we measure held-out problems of these kinds.

# %%
import os

from grpo_workbook import choose_profile, quiet, show, use_one_thread

quiet()
use_one_thread()
profile = choose_profile(default="smoke", heldout=160, grpo={"max_steps": 60})
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
import unsloth
from grpo_workbook import load_policy

model, tokenizer = load_policy(profile)
print(profile)

# %% [markdown]
# `evaluate` takes any model, its tokenizer, and a dataset with the columns `prompt` and `answer`. The model answers
# each held-out problem eight times, sampled at temperature 1 as in training, because pass@k and voting (below) need
# several answers. The method `table` of the result returns a pandas table with one row per answer and the dataset's own
# columns.

# %%
from grpo_workbook import data, evaluate, load_problems, to_dataset

SAMPLES = 8


def is_rare(row):
    return row["rare"]


problems = load_problems(data.WORD_PROBLEMS["heldout"]).filter(is_rare)
heldout = to_dataset(problems.select(range(profile.heldout)))


def ask_heldout_problems(policy, samples=SAMPLES, sample=True):
    return evaluate(
        policy, tokenizer, heldout, samples=samples, sample=sample, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


scores_before = ask_heldout_problems(model)
before = scores_before.table(heldout)
print(before["problem"].nunique(), "problems,", len(before), "completions")
before[["kind", "problem", "sample", "answer", "completions", "strict"]].head(4)

# %% [markdown]
# ## Strict and lenient
#
# An answer is *strictly* right if it is right and in the required form. It is *leniently* right if it is right in any
# readable form. The strict rate tells you how many answers a program can use, and the lenient rate how many results are
# right. Report both. The intervals below need one outcome for each problem, so the cell takes only the first answer:

# %%
from grpo_workbook import statistics

MEASURES = ["strict", "lenient", "well_formed"]
first_before = before[before["sample"] == 0].set_index("problem")
for name in MEASURES:
    right = first_before[name]
    low, high = statistics.wilson_interval(right)
    count = f"{sum(right):3} of {len(right)} = {right.mean():.1%}"
    print(f"{name:11} {count}   95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# The interval is Wilson's: it contains every true rate that the observed count does not contradict at the 5 % level.
# The textbook interval, `rate ± 1.96 * sqrt(rate * (1 - rate) / n)`, fails near 0 and 1: for 30 of 30 right it claims
# 100 % to 100 %.

# %%
print("30 of 30:", statistics.wilson_interval([True] * 30))
print(" 0 of 30:", statistics.wilson_interval([False] * 30))

# %% [markdown]
# Strict and lenient are the same here, because this model nearly always writes the required form. So a gain of this
# model cannot be a gain in form. A model that knows the answers and shows them in the wrong form is the subject of
# [chapter 03](03_reward_design.ipynb).
#
# Never trust a rate before you have read some completions. What do wrong answers look like?

# %%
wrong = first_before[~first_before["lenient"]]
for row in wrong.head(4).itertuples():
    print(f"{row.question} (right: {row.answer})")
    print("   ", " ".join(row.completions.split()))

# %% [markdown]
# Three of these four solutions contain a number that is not in the problem (`6*4` for 6 boxes with 2 beads each, for
# example), and one subtracts wrongly. So these are wrong answers, not right ones that were misread.
#
# ## How many problems? Ask before the run
#
# A test gives a *p-value*: the probability that chance alone gives a difference at least as large, if nothing has
# changed. Here a gain counts as found if its p-value is at most 0.05. **Power** is the probability that a test finds a
# gain which really exists. The usual goal is a power of 80 %. There are two ways to compare two models:
#
# - *unpaired*: the models answer different problems. Each of them may get easier or harder problems by luck.
# - *paired*: the models answer the same problems. Then only the problems whose outcome changed count.
#
# Two rates describe a paired comparison: the fraction of problems that get better, and the fraction that get worse. The
# gain is the first minus the second. **How much pairing helps depends on the second rate.** If the outcomes before and
# after are correlated, because hard problems stay hard and easy ones stay easy, few problems get worse and the test
# sees the gain clearly.
#
# You cannot know before the training how many problems it will make worse. But you can measure how many problems get
# worse when *nothing* changes, by comparing two runs of the baseline. Our eight answers to each problem are eight such
# runs:

# %%
run_1 = first_before["strict"]
run_2 = before[before["sample"] == 1].set_index("problem")["strict"]
better, worse = statistics.changed(run_1, run_2)
print(f"second run against the first: {len(better)} better, {len(worse)} worse")

right = before.groupby("problem")["strict"].sum()  # of 8, for each problem
pairs_worse = right * (SAMPLES - right)  # ordered pairs of runs: right, then wrong
untrained_worse = pairs_worse.mean() / (SAMPLES * (SAMPLES - 1))
rate = before["strict"].mean()
independent_worse = rate * (1 - rate)
print(f"right in all runs together:       {rate:.1%}")
print(f"over all pairs of the eight runs: {untrained_worse:.1%} get worse")
print(f"if the runs were independent:     {independent_worse:.1%} would")

# %% [markdown]
# Fewer problems get worse than independent runs would give, because some problems are easy for this model and others
# are hard. So pairing will help. (With greedy decoding two runs of the same model give the same answers, so there only
# the training can make a problem worse.)
#
# Now we can plan. `paired_items` computes from the two rates how many problems a paired test needs for a power of 80 %.
# The next cell writes down two plans to compare it with, an unpaired test and a paired test with *independent*
# outcomes. If the outcomes are independent, the two accuracies determine both rates. For a gain of five points, for
# example, a problem is right before with probability 0.328 and wrong after with 1 - 0.378, so 0.328 x 0.622 = 20 % of
# the problems get worse:

# %%
from math import ceil

from scipy.stats import norm

from grpo_workbook.statistics import paired_gain, paired_items, paired_power


def unpaired_items(before: float, gain: float, power: float = 0.8) -> int:
    """Problems for each model: the normal approximation (Fleiss et al. 2003)."""
    after = before + gain
    middle = before + gain / 2
    if_equal = 2 * middle * (1 - middle)  # variance if both have the same rate
    if_gained = before * (1 - before) + after * (1 - after)
    spread = norm.isf(0.025) * if_equal**0.5 + norm.ppf(power) * if_gained**0.5
    return ceil((spread / gain) ** 2)


def independent_items(before: float, gain: float) -> int:
    """Problems of a paired test if the outcomes before and after are independent."""
    after = before + gain
    return paired_items(better=(1 - before) * after, worse=before * (1 - after))

# %% [markdown]
# How many problems does each plan need for a gain of 3, 5, 10 or 20 points? The first two are paired tests in which 3 %
# of the problems get worse, and as many as we measured:

# %%
plan_gains = [0.03, 0.05, 0.10, 0.20]
plans = {}
for worse_rate in (0.03, untrained_worse):
    needed = [paired_items(worse_rate + gain, worse_rate) for gain in plan_gains]
    plans[f"paired, {worse_rate:.1%} get worse"] = needed
plans["paired, independent"] = [independent_items(rate, gain) for gain in plan_gains]
plans["unpaired, each model"] = [unpaired_items(rate, gain) for gain in plan_gains]
print(f"{'problems for a gain of':24}", *(f"{100 * g:4.0f} points" for g in plan_gains))
for name, items in plans.items():
    print(f"{name:24}", *(f"{count:11,}" for count in items))
power = paired_power(profile.heldout, untrained_worse + 0.20, untrained_worse)
print(f"{profile.heldout} problems find 20 points with a power of {power:.0%}")

# %% [markdown]
# The figure draws this table. The horizontal axis is the gain, the vertical axis the number of problems, and both are
# logarithmic. Each line is one plan, and its number at a gain of five points is written beside it:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.0, 4.0)
points = [100 * gain for gain in plan_gains]
for (name, items), (colour, dash, marker) in zip(plans.items(), figures.STYLES):
    is_open = name.startswith("unpaired")  # an open marker, to see the line below it
    axes.plot(points, items, dash, color=colour, marker=marker, lw=2, label=name,
              ms=9 if is_open else 5, mfc="none" if is_open else colour)
at_five = plan_gains.index(0.05)
(few_worse, measured, independent, unpaired_5) = [n[at_five] for n in plans.values()]
notes = [(few_worse, f"{few_worse:,}"), (measured, f"{measured:,}"),
         (independent, f"{independent:,} and {unpaired_5:,}")]
for count, words in notes:
    axes.annotate(words, (5, count), (7, 5), textcoords="offset points", fontsize=9)
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_xticks(points, [f"{value:.0f}" for value in points], minor=False)
axes.set_yticks([50, 100, 250, 500, 1000, 2500, 5000],
                ["50", "100", "250", "500", "1,000", "2,500", "5,000"], minor=False)
axes.minorticks_off()
axes.set(xlabel="gain to be found, points", ylabel="problems that each model answers")
axes.legend(frameon=False, loc="upper right")
axes.set_title("The fewer problems get worse, the fewer a paired test needs")
ends = [f"{name}: {n[0]:,} for 3 points, {n[-1]:,} for 20" for name, n in plans.items()]
figures.show(figure, "Problems needed for a gain, four designs. The unpaired line and "
             f"that of independent outcomes nearly coincide. {'; '.join(ends)}.")

# %% [markdown]
# To show a gain of five points, a paired test needs 367 problems if 3 % of them get worse, 808 if as many get worse as
# we measured, and 1,474 if the outcomes are independent. With independent outcomes the unpaired test needs about as
# many answers of each model (1,434), and it needs two different sets of problems. (Its numbers are a little smaller
# because they come from a normal approximation, and the paired ones from the exact test.) So pairing always saves
# problems, but it saves answers only as far as the outcomes are correlated.
#
# A wrong assumption about this rate is expensive. If you assume 3 % and take 367 problems, but the outcomes are
# independent, the test misses the gain in about three of four cases:

# %%
for worse_rate in (0.03, untrained_worse, rate * (1 - rate - 0.05)):
    power = paired_power(367, worse_rate + 0.05, worse_rate)
    print(f"{worse_rate:5.1%} get worse: 367 problems have a power of {power:.0%}")

# %% [markdown]
# So sample your baseline twice, and plan with the rate of problems that get worse between the two runs. (Do this also
# if you will evaluate greedily: two greedy runs of one model agree, but training can still make a problem worse.) If
# the training makes no problem harder, fewer problems get worse than between these two runs, and the plan is cautious.
# If it makes some problems harder, more may get worse, and the plan was too small.
#
# Choose the smallest gain that would matter for your decision, and read off the number of problems. If you have fewer,
# collect more first; otherwise you may well miss a gain of that size. This chapter only looks for a large gain, of 20
# points or more, so its 160 problems are more than enough.

# %% [markdown]
# ## The bootstrap: intervals for means
#
# Wilson's interval needs outcomes that are right or wrong. A length is not such an outcome, and neither is a problem's
# rate over eight answers. For the mean of such numbers there is the **bootstrap**: it draws as many problems as there
# are, with replacement, thousands of times, and measures how much the mean varies.
#
# The bootstrap must not draw single answers. Eight answers to one problem are not eight problems, because an easy
# problem may be answered right all eight times. The same argument applies to the problems. Ours are of six kinds, and
# two problems of one kind resemble each other. Such groups are called **clusters**:

# %%
by_kind = before.groupby("kind")["lenient"].agg(["mean", "size"])
by_kind = by_kind.sort_values("mean")
print(len(by_kind), "kinds:")
for row in by_kind.itertuples():
    print(f"  {row[1]:.0%} of {row[2]} answers right: {row[0]}")

# %% [markdown]
# The next cell computes three intervals of the same mean, by resampling answers, problems, and whole kinds. To resample
# kinds means to draw as many kinds as there are, with replacement, each with all of its problems:


# %%
def interval_over_clusters(values, clusters, resamples=5000):
    """95 % (low, high) of the mean: a bootstrap that draws whole clusters."""
    groups = values.groupby(clusters)
    sums = groups.sum().to_numpy()
    sizes = groups.size().to_numpy()
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(sums), size=(resamples, len(sums)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    return np.quantile(means, [0.025, 0.975])


interval = statistics.bootstrap_interval
rates = before.groupby("problem")["lenient"].mean()
kinds = before.groupby("problem")["kind"].first()
print(f"lenient, mean {rates.mean():.1%}")
print("  over answers:    {:.1%} to {:.1%}".format(*interval(before["lenient"])))
print("  over problems:   {:.1%} to {:.1%}".format(*interval(rates)))
low, high = interval_over_clusters(rates, kinds)
print(f"  over kinds:      {low:.1%} to {high:.1%}")
lengths = first_before["tokens"]
print(f"tokens, mean {lengths.mean():.1f}")
print("  over problems:   {:.1f} to {:.1f}".format(*interval(lengths)))

# %% [markdown]
# In the figure, each row is a kind. A grey circle stands at a rate of right answers out of eight, and the number in it
# counts the problems of this kind with this rate. (Its area grows with the number.) The orange line is the kind's mean.
# Below are the three intervals of the mean over all kinds:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 4.8)
for y, kind in enumerate(by_kind.index):
    for rate_here, count in rates[kinds == kind].value_counts().items():
        x = 100 * rate_here
        axes.scatter(x, y, s=120 + 25 * count, color="#CCCCCC")
        axes.text(x, y, count, ha="center", va="center", fontsize=8, zorder=4)
    mean_here = 100 * rates[kinds == kind].mean()
    ends = (y - 0.42, y + 0.42)
    axes.vlines(mean_here, *ends, color=figures.ORANGE, lw=2, zorder=3)
bounds = {
    "mean, over answers": interval(before["lenient"]),
    "mean, over problems": interval(rates),
    "mean, over kinds": interval_over_clusters(rates, kinds),
}
for y, (low, high) in enumerate(bounds.values(), start=len(by_kind)):
    axes.plot([100 * low, 100 * high], [y, y], color=figures.BLUE, lw=3, marker="|")
    axes.plot(100 * rates.mean(), y, "o", color=figures.BLUE)
axes.axhline(len(by_kind) - 0.5, color=figures.GREY, lw=0.8)
axes.set_yticks(range(len(by_kind) + 3), [*by_kind.index, *bounds])
axes.invert_yaxis()
axes.grid(visible=False)
axes.set(xlabel="leniently right, % of eight answers")
axes.set_title("Kinds differ widely, so resampling kinds gives the widest interval")
spans = [f"{name} {low:.0%} to {high:.0%}" for name, (low, high) in bounds.items()]
figures.show(figure, "The rates of 160 problems in six rows, one for each kind; the "
             f"kinds differ widely. Below, three intervals: {'; '.join(spans)}.")

# %% [markdown]
# Which interval is right depends on your claim. Resampling problems answers "how well does the model do on more
# problems of these kinds?". Resampling kinds answers "how well does it do on average over more such kinds?". The second
# interval is much the wider one, because the kinds differ widely: of `trays` the model solves 12 %, of `how_many_more`
# 79 %. It is still too narrow, by a factor of about 1.4: from six kinds one should go 2.57 standard errors to each side
# instead of 1.96 (Student's t with five degrees of freedom), and the bootstrap's own spread lacks a factor of
# sqrt(6/5). And it is an interval for the average: a single new kind can lie far outside it, as these two do. Never
# resample answers: more answers to the same problems do not replace more problems. With the first answers alone the
# interval is 24.0 to 38.1 % (Wilson's, above), with all eight it is 27.3 to 38.8 %. (For a *gain* the eight answers
# help more, as we see below.)
#
# Benchmarks have clusters too, such as several questions about one text, or the same problem in several languages.
# [Miller 2024](https://arxiv.org/abs/2411.00640) found standard errors over three times as large on popular evaluations
# once their clusters were counted. If your problems come in groups, resample the groups.

# %% [markdown]
# ## A second skill, to detect forgetting
#
# Training on one task can make a model worse at another. So measure a skill that the training does not ask for. Our
# training uses only the six rare kinds of word problem. The ten common kinds, which the model could already solve, are
# such a skill. The model answers 160 held-out problems of these kinds, once each and greedily:

# %%
def is_common(row):
    return not row["rare"]


common_problems = load_problems(data.WORD_PROBLEMS["heldout"]).filter(is_common)
common = to_dataset(common_problems.select(range(profile.heldout)))


def ask_common_problems(policy):
    return evaluate(
        policy, tokenizer, common, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


common_before = ask_common_problems(model)
print(f"common kinds before: {common_before.rate:.1%} strict, of {common_before.n}")

# %% [markdown]
# ## A short training run
#
# The model trains for 60 steps on the rare kinds, with the rewards of chapter 00 and TRL's own classes:

# %%
from grpo_workbook import (
    Float32Adapters, RewardBar, correctness_reward, incremental_format_reward,
    strict_format_reward,
)
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

train_problems = load_problems(data.WORD_PROBLEMS["train"]).filter(is_rare)
train_set = to_dataset(train_problems)
args = GRPOConfig(
    output_dir=str(profile.output / "chapter_08" / "checkpoints"),
    reward_weights=[2.0, 0.5, 0.5],
    **profile.grpo,
)
trainer = GRPOTrainer(
    model, [correctness_reward, strict_format_reward, incremental_format_reward],
    args, train_set, processing_class=tokenizer,
    callbacks=[Float32Adapters(model), RewardBar()],
)
trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
trainer.train();

# %% [markdown]
# ## Did it get better?
#
# We ask the same problems with the same sampling seed, and compare for each problem the mean over its eight answers.
# The intervals are those of the mean *difference* per problem, over problems and over kinds:

# %%
scores_after = ask_heldout_problems(model)
after = scores_after.table(heldout)
was = before.groupby("problem")[MEASURES].mean()
now = after.groupby("problem")[MEASURES].mean()
for name in MEASURES:
    gain = 100 * (now[name] - was[name])  # in points
    print(f"{name:11} {was[name].mean():.1%} -> {now[name].mean():.1%}", end="   ")
    print(f"gain {gain.mean():+.1f} points")
    print("    over problems {:+.1f} to {:+.1f}".format(*interval(gain)), end=", ")
    low, high = interval_over_clusters(gain, kinds)
    print(f"over kinds {low:+.1f} to {high:+.1f}")

# %% [markdown]
# Where does the gain come from? The figure shows the strict rate of each kind before training (grey) and after it
# (blue). The last row is the mean over all problems, with its 95 % intervals over problems:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.6)
kind_was = was["strict"].groupby(kinds).mean()
kind_now = now["strict"].groupby(kinds).mean()
order = (kind_now - kind_was).sort_values(ascending=False).index
for y, kind in enumerate(order):
    axes.hlines(y, 100 * kind_was[kind], 100 * kind_now[kind], color="#BBBBBB", lw=3)
    axes.plot(100 * kind_was[kind], y, "s", color=figures.GREY, ms=7)
    axes.plot(100 * kind_now[kind], y, "o", color=figures.BLUE, ms=8)
last = len(order)
for rates_of, colour, mark in ((was, figures.GREY, "s"), (now, figures.BLUE, "o")):
    low, high = interval(rates_of["strict"])
    axes.plot([100 * low, 100 * high], [last, last], color=colour, lw=2, marker="|")
    axes.plot(100 * rates_of["strict"].mean(), last, mark, color=colour, ms=8)
axes.axhline(last - 0.5, color=figures.GREY, lw=0.8)
axes.set_yticks(range(last + 1), [*order, "all problems"])
axes.set_ylim(last + 0.6, -0.9)
axes.grid(visible=False)
axes.text(100 * kind_was[order[0]], -0.35, "before", color=figures.GREY, ha="center")
axes.text(100 * kind_now[order[0]], -0.35, "after", color=figures.BLUE, ha="center")
axes.set(xlabel="strictly right, %", xlim=(0, 100))
many = int((kind_now - kind_was > 0.3).sum())
axes.set_title(f"{many} of {last} kinds gain more than 30 points, the others less")
gained = [f"{k} {kind_was[k]:.0%} to {kind_now[k]:.0%}" for k in order]
figures.show(figure, f"Strict rate before and after, by kind: {'; '.join(gained)}.")

# %% [markdown]
# Four kinds gain more than 30 points. `how_many_more` gains little, because most of its answers were right before
# training, and `trays` stays hard: such a kind is where to look next.
#
# The interval of the gain over problems is no wider than that of the rate before training, although a gain contains the
# noise of two measurements. The reason is that each problem is compared with itself. Do not compare the two intervals
# in the figure's last row by eye: such intervals may overlap although the difference is beyond doubt. The interval over
# kinds is wider, and even if it is made 1.4 times as wide (see above) it lies clearly above 0. It speaks about other
# kinds if they are trained as these six were, and not about kinds that the training leaves out.
#
# **McNemar's exact test** takes one answer per problem and looks only at the problems whose outcome changed. If
# training did nothing, each of these problems is like the toss of a fair coin: it gets better or worse with the same
# probability.

# %%
first_after = after[after["sample"] == 0].set_index("problem")
strict_before = first_before["strict"]
strict_after = first_after["strict"]
better, worse = statistics.changed(strict_before, strict_after)
p_value = statistics.paired_p_value(strict_before, strict_after)
print(f"{len(better)} got better, {len(worse)} got worse; p = {p_value:.1g}")
single_gain = 100 * (strict_after.astype(float) - strict_before.astype(float))
low, high = interval(single_gain)
print(f"gain of the first answers {single_gain.mean():+.1f} points", end=", ")
print(f"over problems {low:+.1f} to {high:+.1f}")
show(statistics.paired_p_value)

# %% [markdown]
# The figure divides the problems by their outcome before training (upper and lower row) and after it (left and right).
# The area of a cell is its share of the problems, and the test counts only the two coloured cells:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

pale = figures.PALE
cells_of = {  # right before training? -> the words and the colours of its two cells
    True: [("stayed right", pale["off"]), ("got\nworse", pale["number"])],
    False: [("got better", pale["check"]), ("stayed wrong", pale["off"])],
}
figure, (axes,) = figures.new_panels(6.5, 4.0)
top = len(heldout)
for was_right, cells in cells_of.items():
    outcomes = strict_after[strict_before == was_right]
    share = outcomes.mean()  # right after training
    height = len(outcomes)
    for x, width, (words, colour) in zip((0, share), (share, 1 - share), cells):
        box = Rectangle((x, top - height), width, height, fc=colour, ec="white", lw=4)
        axes.add_patch(box)
        label = f"{width * height:.0f}\n{words}"
        axes.text(x + width / 2, top - height / 2, label, ha="center", va="center")
    side = f"{height} were\n{'right' if was_right else 'wrong'} before"
    axes.text(-0.02, top - height / 2, side, ha="right", va="center")
    top -= height
axes.set(xlim=(0, 1), ylim=(0, len(heldout)), yticks=[], xlabel="share of the row")
axes.xaxis.set_major_formatter("{x:.0%}")
axes.spines[:].set_visible(False)
changed = len(better) + len(worse)
title = f"Of {len(heldout)} problems {changed} changed, and only these count"
axes.set_title(f"{title}: p = {p_value:.0g}")
figures.show(figure, f"{len(better)} problems got better and {len(worse)} got worse; "
             "the others stayed right or wrong and are not counted.")

# %% [markdown]
# Five of 160 problems (3 %) got worse. The plan assumed 9.9 %, so it was cautious.
#
# Compare the interval of the gain of the first answers with that of all eight (above): it is about one and a half times
# as wide. With one answer to each problem it would take more than twice as many problems to make it as narrow, because
# much of the noise of such a gain comes from sampling the answers. So several answers to each problem do help a
# comparison. The plan above counted one answer per problem, so with eight it is more cautious than it needs to be.
#
# A small p-value does *not* mean that the gain is large: the interval shows how large it is. Nor does it mean that the
# gain extends to kinds of problems that were not trained, or that it has the cause you believe in. The cause takes
# controls: in chapter 04's longer run a random reward left nothing right, and more of the model's own supervised data
# brought 4 of the 43 points ([the measurements](../docs/measurements.md)). Better form alone can raise *strict*, which
# is why we compare *strict* with *lenient*.

# %% [markdown]
# ## One model, eight evaluations, one seed
#
# The eight samples of each problem are also eight complete evaluations of the same model:

# %%
for name, table in (("before", before), ("after", after)):
    rates = table.groupby("sample")["strict"].mean()
    print(f"{name:6}", " ".join(f"{rate:.1%}" for rate in rates))

# %% [markdown]
# This spread comes from sampling the answers. The intervals above cover it, and they cover the choice of the problems.
# They do not cover the **training seed**: another seed gives another model. Exercise 08.3 asks whether an evaluation of
# this size can tell three seeds apart after ten steps.

# %% [markdown]
# ## What got worse?
#
# A mean hides the problems that got worse, because gains and losses cancel. Read these problems first. A single answer
# may be worse by chance. So the cell counts the leniently right answers to each problem, out of eight, and looks for
# problems that have at least two fewer than before.

# %%
loss = (SAMPLES * (was["lenient"] - now["lenient"])).round()
print((loss >= 2).sum(), "problems lost two or more right answers,")
print((loss <= -2).sum(), "gained two or more\n")
for problem in loss[loss >= 2].sort_values(ascending=False).index[:3]:
    answers = after[after["problem"] == problem]
    wrong = answers[~answers["lenient"]].iloc[0]
    print(f"{wrong['question']} (right: {wrong['answer']})")
    print("   ", " ".join(wrong["completions"].split()))

# %% [markdown]
# Three problems lost two right answers or more, and 86 gained two or more. If nothing had changed, chance alone would
# let about 14 problems lose two or more (two draws of eight answers at each problem's rate before training), so these
# three show no harm. Reading shows what goes wrong: in each of the three wrong answers it is the subtraction.
#
# Compare lengths as well: longer answers cost money, and shorter ones may have lost their reasoning. Then measure the
# second skill again:

# %%
for name, table in (("before", before), ("after", after)):
    tokens = table["tokens"]
    print(f"{name:6} {tokens.mean():5.1f} tokens on average", end=", ")
    print(f"the longest {tokens.max()}")
common_after = ask_common_problems(model)
right_before = np.array(common_before.strict, float)
right_after = np.array(common_after.strict, float)
gain = 100 * (right_after - right_before)
low, high = interval(gain)
got_better, got_worse = statistics.changed(right_before, right_after)
print(f"common kinds: {right_before.mean():.1%} -> {right_after.mean():.1%} strict")
print(f"{len(got_better)} got better, {len(got_worse)} got worse", end="; ")
print(f"p = {statistics.paired_p_value(right_before, right_after):.2g}")
print(f"gain {gain.mean():+.1f} points, 95 % interval {low:+.1f} to {high:+.1f}")

# %% [markdown]
# No change of the common kinds is shown: nine problems got better, nine got worse (p = 1). But a large p-value never
# means "nothing was forgotten": a loss of five points, the lower end of the interval, would also fit what we observed.
# If p is close to 0.05, the interval and the test can disagree. Then call the result undecided, or measure a new and
# larger set of problems, and report that one. (To add problems until p falls below 0.05 would be luck again.) And the
# common kinds are word problems, too, so they lie close to the trained task. For your model, also measure a skill that
# lies further away.

# %% [markdown]
# ## pass@k and maj@k: several answers to one problem
#
# - **pass@k** is the probability that at least one of k answers is right. It measures what the model *can* produce. To
#   use the right one of the k answers, you need somebody who recognises it.
# - **maj@k** (majority vote, or self-consistency: [Wang et al. 2022](https://arxiv.org/abs/2203.11171)) is the rate at
#   which the most common of k answers is right. A vote needs no checker, but it helps only where the right answer is
#   more common than each wrong one.
#
# The figure shows eight invented answers to each of three problems. Each row is a problem with its reference answer;
# right answers are green, wrong ones orange, and the three columns on the right are pass@1, pass@8 and maj@8:

# %% tags=["hide-input"]
toy = {
    "A: mostly right": ("23", "23 23 31 23 23 17 23 23"),
    "B: one common mistake": ("14", "19 14 19 19 12 14 19 19"),
    "C: out of reach": ("42", "40 41 38 40 39 45 37 46"),
}
figure, (axes,) = figures.new_panels(9.0, 2.8)
for y, (reference, text) in enumerate(toy.values()):
    texts = text.split()
    axes.text(0.4, y + 0.4, reference, ha="center", va="center", weight="bold")
    for x, answer in enumerate(texts, start=2):
        colour = figures.PALE["check" if answer == reference else "number"]
        axes.add_patch(Rectangle((x, y), 0.9, 0.8, facecolor=colour))
        axes.text(x + 0.45, y + 0.4, answer, ha="center", va="center")
    right = texts.count(reference)
    vote = statistics.majority_at_k(texts, reference, 8)
    rates = {10.9: right / 8, 12.3: statistics.pass_at_k(8, right, 8), 13.7: vote}
    for x, rate in rates.items():
        axes.text(x, y + 0.4, f"{rate:.0%}", ha="center", va="center")
heads = {0.4: "reference", 6: "eight answers"}
heads.update({10.9: "pass@1", 12.3: "pass@8", 13.7: "maj@8"})
for x, head in heads.items():
    axes.text(x, -0.3, head, ha="center", va="center")
axes.set(xlim=(-0.5, 14.4), ylim=(2.9, -0.6), xticks=[])
axes.set_title("In B the right answer is there, and the vote misses it")
axes.set_yticks([0.4, 1.4, 2.4], [*toy])
axes.tick_params(length=0)
axes.grid(visible=False)
axes.spines[:].set_visible(False)
figures.show(figure, "Three problems. A: 6 of 8 right, pass@8 and maj@8 100 %. B: 2 "
             "right, one mistake 5 times, pass@8 100 %, maj@8 0 %. C: none right.")

# %% [markdown]
# Suppose that `right` of n answers are right. There are `C(n, k)` ways to choose k of the n answers, and `C(n - right,
# k)` of these choices contain no right answer. So the HumanEval paper ([Chen et al.
# 2021](https://arxiv.org/abs/2107.03374)) estimates pass@k by `1 - C(n - right, k) / C(n, k)`. This is right on
# average. The obvious formula `1 - (1 - right / n) ** k` is too low on average, because it draws the same answer more
# than once. For example, let one of four answers be right. Three of the six pairs of answers contain it:

# %%
print("estimator:      ", statistics.pass_at_k(n=4, right=1, k=2))
print("obvious formula:", 1 - (1 - 1 / 4) ** 2)

# %% [markdown]
# Now we compute pass@k and maj@k of our model, before and after training. For the vote we read the number in each
# completion; a completion without a number does not vote.

# %%
from grpo_workbook.rewards import answers as reading


def numbers_of(completions):
    """The number that each completion answers, or None."""
    numbers = []
    for completion in completions:
        answer = reading.lenient_answer(completion)
        numbers.append(reading.read_answer(answer) if answer else None)
    return numbers


ks = [1, 2, 4, 8]
solved = {}  # measure and time -> rates, (problems, ks)
for when, table in (("before", before), ("after", after)):
    passed = []
    voted = []
    for _, rows in table.groupby("problem"):
        reference = reading.read_answer(rows["answer"].iloc[0])
        votes = numbers_of(rows["completions"])
        right = int(rows["lenient"].sum())
        passed.append([statistics.pass_at_k(SAMPLES, right, k) for k in ks])
        voted.append([statistics.majority_at_k(votes, reference, k) for k in ks])
    solved["pass@k", when] = np.array(passed)
    solved["maj@k", when] = np.array(voted)

# %% [markdown]
# The table below has the means over the problems:

# %%
print(f"{'k':13}", *(f"{k:6}" for k in ks))
for (measure, when), values in solved.items():
    print(f"{measure:6} {when:6}", *(f"{rate:6.1%}" for rate in values.mean(0)))

# %% [markdown]
# In the figure, the horizontal axis is k and the vertical axis is the percentage of problems solved, on the left by at
# least one of k answers, on the right by a vote of k answers. Grey is before and blue after training. Each band is the
# 95 % interval over problems:

# %% tags=["hide-input"]


def draw_rates(axes, ks, values, colour):
    """The mean over the problems for each k, and its 95 % interval as a band."""
    low, high = np.array([interval(column) for column in values.T]).T
    axes.fill_between(ks, 100 * low, 100 * high, color=colour, alpha=0.2, lw=0)
    axes.plot(ks, 100 * values.mean(0), "o-", color=colour, ms=5, lw=2)
    axes.set_xscale("log", base=2)
    axes.set_xticks(ks, ks)
    axes.set(xlabel="k, answers to each problem", ylim=(0, 102))


rules = {"pass@k": "one of k answers is right", "maj@k": "the vote of k is right"}
figure, panels = figures.new_panels(8.0, 3.6, count=2, across=2)
ends = []
for axes, measure in zip(panels, ("pass@k", "maj@k")):
    for when, colour in (("before", figures.GREY), ("after", figures.BLUE)):
        values = solved[measure, when]
        draw_rates(axes, ks, values, colour)
        means = values.mean(0)
        axes.text(1.02, 100 * means[0] + 10, when, color=colour)
        ends.append(f"{measure} {when}: {means[0]:.1%} at 1, {means[-1]:.1%} at 8")
    axes.set_title(f"{measure}: {rules[measure]}", loc="left", fontsize=10)
panels[0].set_ylabel("problems solved, % (lenient)")
figure.suptitle("Training raises pass@k and maj@k, for each k from 1 to 8")
figures.show(figure, f"Two charts of the problems solved over k. {'; '.join(ends)}.")

# %% [markdown]
# Training lifts the single answer, and it lifts pass@8 nearly as much: the trained model solves problems that the base
# did not solve in eight tries. A vote over eight answers adds eight points before training and eleven after it.
#
# maj@2 is close to maj@1: where two answers disagree, the vote picks one of them at random.

# %% [markdown]
# ## What kind of gain is it?
#
# A rise of *strict* can mean three things, and a reader of your number will think of the third one:
#
# - **Form**: answers that were right before now have the required form. The lenient rate does not rise.
# - **Sharpening**: problems that the model already solved in some of its tries are now solved in most tries.
# - **New**: problems are solved that the model solved in none of its tries.
#
# `describe_gain` divides the strict gain into these three parts, which add up to it. *Form* is the strict gain less the
# lenient gain. The lenient gain is divided by what the model solved before. Here lies a trap: if the same tries sorted
# a problem and measured its gain, a problem with bad luck before training would seem to gain afterwards, whatever the
# training did. So `describe_gain` takes the eight tries before training in turn. The one try measures the difference:
# the rate after training less its own outcome. The *other seven* tries sort this difference. It is *new* if they were
# all wrong, and *sharpening* if at least one was right. The parts are the means over the eight turns.
#
# For example, a problem is right in half of the tries after training. If all eight tries before were wrong, each
# difference is 0.5, and the whole gain of 0.5 is new. If two of the eight were right, then each try has a right one
# among the other seven, and the whole gain of 0.25 is sharpening. If exactly one was right, it stands alone among wrong
# ones, so its difference of -0.5 counts as new. The seven differences of 0.5 count as sharpening. So the gain of 0.375
# is -0.0625 new and 0.4375 sharpening.
#
# We also ask for one greedy answer to each problem. Sampling at a lower temperature would sharpen, too, and it would
# not change the greedy answer. So if the greedy answers get better, training did more than this. PEFT's
# `disable_adapter` turns the adapter off for a while, so the model is the base again:

# %%
from grpo_workbook.evaluation import describe_gain, report_heldout
from IPython.display import Markdown

with model.disable_adapter():
    scores_greedy_before = ask_heldout_problems(model, samples=1, sample=False)
scores_greedy_after = ask_heldout_problems(model, samples=1, sample=False)
gains = report_heldout(
    {"sampled": scores_before, "greedy": scores_greedy_before},
    {"sampled": scores_after, "greedy": scores_greedy_after},
)
Markdown("\n".join(describe_gain(gains)))

# %% [markdown]
# None of the gain is form. About two fifths of it is sharpening, and three fifths are on problems that the base solved
# in none of seven tries. The greedy answer gains as much as the sampled ones.
#
# "None of seven tries" depends on the number of tries. With more of them the base finds rarer answers, so less of the
# gain counts as new. How many tries would the base need to do as well as a *single* greedy answer after training? We
# let the base answer each problem 64 times and compute pass@k for k up to 64:

# %%
TRIES = 64
with model.disable_adapter():
    base_tries = ask_heldout_problems(model, samples=TRIES)
base_right = base_tries.table(heldout).groupby("problem")["lenient"].sum()
base_ks = [1, 2, 4, 8, 16, 32, 64]
base_solved = []
for n in base_right:
    base_solved.append([statistics.pass_at_k(TRIES, int(n), k) for k in base_ks])
base_solved = np.array(base_solved)  # (problems, base_ks)
base_passes = base_solved.mean(0).tolist()
for k, rate in zip(base_ks, base_passes):
    print(f"base pass@{k:<2} {rate:.1%}")
greedy_right = np.array(scores_greedy_after.lenient, float)
greedy_rate = greedy_right.mean()
print(f"one greedy answer after training: {greedy_rate:.1%}")
trained = {"greedy": greedy_right, "pass@8": solved["pass@k", "after"][:, -1]}
for name, values in trained.items():
    lead = 100 * (values - base_solved[:, -1])
    low, high = interval(lead)
    print(f"trained {name} less base pass@64: {lead.mean():+.1f} points", end=" ")
    print(f"({low:+.1f} to {high:+.1f})")

# %% [markdown]
# In the figure, the grey line is pass@k of the base for k tries, the blue line pass@k of the trained model for up to 8
# tries, and the dashed green line the rate of problems that the trained model solves with one greedy answer. The bands
# are 95 % intervals over problems:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.0, 4.0)
draw_rates(axes, ks, solved["pass@k", "after"], figures.BLUE)
draw_rates(axes, base_ks, base_solved, figures.GREY)
axes.axhline(100 * greedy_rate, color=figures.GREEN, ls="--", lw=2)
blue_end = solved["pass@k", "after"].mean(0)[-1]
axes.text(16, 100 * base_passes[4] - 18, "base, k tries", color=figures.GREY)
axes.text(8.6, 100 * blue_end + 5, "trained, k tries", color=figures.BLUE, va="center")
greedy_words = f"trained,\none greedy\nanswer: {greedy_rate:.0%}"
axes.text(88, 100 * greedy_rate, greedy_words, color=figures.GREEN, va="center")
enough = [k for k, rate in zip(base_ks, base_passes) if rate >= greedy_rate]
needed = f"as about {enough[0]} tries" if enough else "as more than 64 tries"
axes.set(ylabel="problems solved, % (lenient)")
title = "One greedy answer after training solves as many problems"
axes.set_title(f"{title}\n{needed} of the base")
figures.show(
    figure,
    f"Base pass@k rises from {base_passes[0]:.0%} at 1 to {base_passes[-1]:.0%} at 64. "
    f"The trained model's pass@8 is {blue_end:.0%}. One greedy answer after training "
    f"solves {greedy_rate:.0%}.",
)

# %% [markdown]
# In the stored run, one greedy answer after training solves about as many problems as the base solves in 64 tries: 73.8
# and 75.0 %, and the interval of the difference includes 0. And nobody has to find the right one among 64 answers.
# (Greedy decoding explains only a small part of this: the base's own greedy answer solves about 42 %, as many problems
# as two of its sampled tries.)
#
# Eight tries after training solve more than 64 tries before it, by 8.8 points with an interval from 2.5 to 15.0. More
# tries never solve fewer problems, so with 64 tries of each the trained model is ahead as well: up to there the two
# lines do not cross. So this gain is not sharpening alone, if sharpening means what 64 tries of the base find. (A
# problem that the base solves once in 500 tries is mostly missed by 64, and counts as unsolved here.) The grey line
# still rises at 64, so more tries would solve more problems. (The base's pass@8 differs a little from the one above,
# because these are other samples.)
#
# One run with one seed is little evidence. [The measurements](../docs/measurements.md) have three seeds of a longer
# run, chapter 04's 120 steps: there one greedy answer after training solves 83 to 85 % of 120 problems, and 64 answers
# of the base solve 76 %.
#
# GRPO reinforces what the model samples on its *training* problems. A training problem that the model never answers
# rightly earns no correctness reward. The held-out problems earn no reward at all. So whatever is new there, the model
# learned from other problems of the same kinds.

# %% [markdown]
# <details><summary>For the curious: in dispute, does RL teach what the base model cannot do?</summary>
#
# *It only sharpens.* [Yue et al. 2025](https://arxiv.org/abs/2504.13837) report that the trained model wins at k = 1,
# but with k in the tens to hundreds the base model catches up and wins, on mathematics, code and images. In their
# account, training makes existing solutions likelier and loses variety.
#
# *It can add.* [ProRL](https://arxiv.org/abs/2505.24864) trains far longer, on more kinds of tasks, and keeps entropy
# up (KL penalty with a reference that is reset, higher temperature, a higher upper clip). On some tasks the base model
# then fails in every attempt and the trained model succeeds, mostly where the base model was weak.
#
# So look at pass@k with large k, at entropy and at the length of training before you claim either. A tiny model such as
# ours gives a hypothesis about large ones, and no evidence.
#
# *Also in dispute: does the reward matter?* With [random rewards](https://arxiv.org/abs/2506.10947) Qwen2.5-Math-7B
# gained about 21 points on MATH-500, and 29 with correct rewards; Llama 3 and OLMo 2 gained little or nothing from
# random ones. [Wu et al. 2025](https://arxiv.org/abs/2507.10532) point to contamination: given 60 % of a MATH-500
# problem, that model completes the rest word for word in 55 % of cases, and on new arithmetic only correct rewards
# helped. So train once with a random reward as a control, use two model families, and test on problems newer than the
# model.
#
# </details>

# %% [markdown]
# ## The same as one command
#
# The command `evaluate` takes a model in a folder or on the hub, with or without an adapter, and can compare it with an
# earlier report. It writes the table with one row per answer, which `table` returned above, into `results.jsonl`. To
# measure a second skill, run the command again with other `--data`:
#
# ```bash
# python -m grpo_workbook evaluate qwen --data test.jsonl --samples 8 --output outputs/base
# python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter --data test.jsonl \
#     --samples 8 --output outputs/after --baseline outputs/base
# ```
#
# The cell runs the command for the base and for our new adapter, greedily, on 100 problems of the rare kinds
# (`--subset` names a column that is true or false):

# %%
from grpo_workbook import save_adapter
from grpo_workbook.cli import main

folder = profile.output / "chapter_08"
save_adapter(model, tokenizer, folder / "adapter")


def evaluate_into(name, *options):
    """Run the command `evaluate` with its output in a folder of this name."""
    words = ["evaluate", profile.model, "--data", data.WORD_PROBLEMS["heldout"]]
    words += ["--subset", "rare", "--items", 100, "--batch-size", 100]
    words += ["--max-new-tokens", 64, "--load-in-4bit", "--overwrite"]
    words += ["--output", folder / name, *options]
    status = main([str(word) for word in words])
    assert status == 0, "the command failed"


evaluate_into("base")
evaluate_into("after", "--adapter", folder / "adapter", "--baseline", folder / "base")

# %% [markdown]
# Read *lenient* beside *strict*. Both rise by the same 28 points here, so the gain is no gain in form. (The base is
# right in 43 % of the problems here and in 33 % above, mainly because these answers are greedy and those sampled.) With
# one greedy answer to each problem the command cannot divide the rest into sharpening and new; `--samples 8` would.

# %% [markdown]
# ## What to record
#
# A reader of your number must be able to measure it again. `report.json` and `results.jsonl` record:
#
# | record | because |
# | --- | --- |
# | model, adapter and data, each with a hash | "the new one" identifies nothing |
# | system prompt, template, temperature, token limit, seed | each can change accuracy by several points |
# | strict, lenient, form, lengths, rate of cut-off answers | a single number hides the others |
# | interval, paired p, better and worse | without them a difference is an anecdote |
# | the baseline, measured by the same code | a paper's number was measured differently |
# | every completion, and the versions | someone will ask what the model wrote, and with what |
#
# **Before** the run: enough problems (`paired_items`, with the rate of your baseline), no leaks (`check-data`), a
# baseline, a second skill. **During**: never select anything on the held-out set. If you pick a checkpoint with it, you
# need a third set for the final number. **After**: report every run and every seed, including the ones that failed.

# %% [markdown]
# <details><summary>For the curious: comparing with published numbers</summary>
#
# Published numbers often come from lm-evaluation-harness, whose settings are not those of your training. Its `gsm8k`
# shows the model five solved examples, sends no system prompt, and reports two numbers: `strict-match` looks for `####
# 72`, and `flexible-extract` takes the last number in the text. A model that writes our tags scores close to 0 in the
# first, whatever it can do, and the second also counts answers that no program could use. In both, the prompt is not
# the one of the training. There are two honest comparisons. Run the base model and yours with the harness's own
# settings, and say that yours was trained for another form. Or define a task that asks as in training, and run both
# models with it:
#
# ```yaml
# # my_tasks/gsm8k_tags.yaml
# task: gsm8k_tags
# dataset_path: openai/gsm8k
# dataset_name: main
# output_type: generate_until
# test_split: test
# num_fewshot: 0
# doc_to_text: "{{question}}"
# doc_to_target: "{{answer.split('####')[-1].strip()}}"
# generation_kwargs: {do_sample: false, max_gen_toks: 768, until: ["</answer>"]}
# filter_list:
#   - name: tags
#     filter:
#       - {function: regex, regex_pattern: "<answer>\\s*\\$?(-?[0-9.,]+)"}
#       - {function: take_first}
# metric_list:
#   - {metric: exact_match, aggregation: mean, higher_is_better: true, regexes_to_ignore: [",", "\\.$"]}
# ```
#
# ```bash
# lm_eval --model hf --model_args pretrained=outputs/run/merged,enable_thinking=False \
#     --include_path my_tasks --tasks gsm8k_tags --apply_chat_template --num_fewshot 0 \
#     --system_instruction "Work inside <reasoning> tags, then give the number inside <answer> tags."
# ```
#
# No cell runs this, because the harness and its data must be downloaded. Check the log of the first samples
# (`--log_samples`) before you believe a number.
#
# </details>

# %% [markdown] tags=["remove-cell"]
# This cell serves the machine that runs the notebook on every change. It fails when training did not happen or did not
# help.

# %% tags=["remove-cell"]
import json

report = json.loads((folder / "after" / "report.json").read_text())
log = [entry for entry in trainer.state.log_history if "reward" in entry]
proved = {
    "steps": trainer.state.global_step,
    "strict": {"before": scores_before.rate, "after": scores_after.rate},
    "p_value": p_value,
    "kinds": len(by_kind),
    "pass_at_64": base_passes[-1],
    "greedy": {"before": scores_greedy_before.rate, "after": scores_greedy_after.rate},
    "common": [common_before.rate, common_after.rate],
    "command": report["verdict"],
}
(profile.output / "notebook_08.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 60 == len(log)
assert all(entry["step_time"] > 0 for entry in log)
if profile.name == "smoke":
    assert proved["strict"]["after"] > proved["strict"]["before"] + 0.2, "no gain"
    assert p_value < 1e-6, "no gain"
    greedy = report["heldout"]["greedy"]["strict"]
    assert greedy["p_value"] < 1e-3, "the command saw no gain"
    assert common_before.rate > 0.5, "the other skill was never there"
    assert len(by_kind) == 6, "the kinds are not those of the data"

# %% [markdown]
# ## Exercises
#
# Fill in a cell and run it. The cell checks your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 08.1 · `mcnemar` · medium · 8 minutes
#
# `better` problems got better and `worse` problems got worse. If each of these was the toss of a fair coin, how likely
# is an outcome at least as far from even, in either direction? Return this exact p-value, at most 1.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def mcnemar(better: int, worse: int) -> float:
    raise NotImplementedError


check("08.1", mcnemar);

# %% [markdown]
# <details><summary>Hint</summary>
#
# With m coins, `comb(m, i) / 2**m` is the probability of i heads. One tail runs from 0 to the smaller count; the other
# tail is as large. What is counted twice when both counts are equal?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import comb
#
#
# def mcnemar(better: int, worse: int) -> float:
#     m = better + worse
#     tail = sum(comb(m, i) for i in range(min(better, worse) + 1)) / 2**m
#     return min(1.0, 2 * tail)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.2 · `chance_of_gain` · medium · 10 minutes
#
# How often does luck alone look like a success if you train several times and show the best run? Compute it without a
# simulation. A model that is right with probability `rate` answers `n` problems: this is the one baseline. Then `runs`
# models answer `n` other problems each. Nothing was learned, so they are right with the same probability. What is the
# probability that the best of them gets at least `gain` problems more right than the baseline? For 30 problems, a rate
# of 0.5 and a gain of 3, the simulation above estimated it for one run and for four.

# %% tags=["exercise"]
def chance_of_gain(n: int, rate: float, gain: int, runs: int) -> float:
    raise NotImplementedError


check("08.2", chance_of_gain);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the baseline's number of right answers as given. Then the runs no longer have anything in common, and the
# probability that none of them reaches the gain is a power. `scipy.stats.binom.pmf(i, n, rate)` is the probability of i
# right answers, and `binom.cdf(i, n, rate)` that of at most i.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from scipy.stats import binom
#
#
# def chance_of_gain(n: int, rate: float, gain: int, runs: int) -> float:
#     total = 0.0
#     for baseline in range(n + 1):
#         no_run_gains = binom.cdf(baseline + gain - 1, n, rate) ** runs
#         total += binom.pmf(baseline, n, rate) * (1 - no_run_gains)
#     return float(total)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.3 · `seed_spread` · medium · 10 minutes
#
# This is an experiment. Train three times for ten steps. Only the seed differs: it sets the start of the adapters, the
# order of the problems and the sampling. Measure each model on the same held-out problems. Are the three rates
# `"within"` what sampling the answers alone would give (their range stays below a 95 % bound), or `"beyond"` it?
# Predict, then run the cell.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "within" or "beyond"


def three_seeds(reward_weights=(2.0, 0.5, 0.5), steps=10, seeds=(0, 1, 2)) -> dict:
    """Train once per seed, measure on the same problems. Change weights and steps."""
    rewards = [correctness_reward, strict_format_reward, incremental_format_reward]
    rates = []
    for seed in seeds:
        own = choose_profile(default="smoke", seed=seed, grpo={"max_steps": steps})
        policy, _ = load_policy(own)
        output = str(folder / f"seed_{seed}")
        weights = list(reward_weights)
        args = GRPOConfig(output_dir=output, reward_weights=weights, **own.grpo)
        trainer = GRPOTrainer(
            policy, rewards, args, train_set, processing_class=tokenizer,
            callbacks=[Float32Adapters(policy), RewardBar()],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        rates.append(ask_heldout_problems(policy, samples=1).rate)
        print(f"seed {seed}: {rates[-1]:.1%} strict")
    return {"strict": rates, "problems": len(heldout)}


predict("08.3", prediction, three_seeds);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The bound is that of Tukey's test: among three equal rates, the range exceeds 3.31 standard errors in 5 % of cases.
# All models answer the same problems, so only the sampling of the answers counts. It makes about half of the variance
# `rate * (1 - rate)`: before training, 9.9 of 22.0 % (the pairs of runs that got worse, above). At a rate of 43 % on
# 160 problems, how many points is the bound?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "within"
# ```
#
# Recorded runs of this cell had 42.5 %, 46.2 % and 41.2 % on 160 problems after ten steps: five points apart, and the
# bound is about 9. This does not show that the seeds are equal: a difference of several points would hide in this
# noise. So an evaluation of this size, with one answer to each problem, cannot tell the seeds apart, nor could it tell
# apart two methods that differ by five points. More answers to each problem, or more problems, make the noise smaller.
#
# </details>

# %% [markdown]
# ### Exercise 08.4 · `verdict` · medium · 15 minutes
#
# Write the verdict for your own report. From the outcomes of the same problems before and after, return `"rose"`,
# `"fell"` or `"not shown"`, at a p-value of at most 0.05. The cell below the solution applies your function to two
# evaluations of your own.


# %% tags=["exercise"]
def verdict(before: list[bool], after: list[bool]) -> str:
    raise NotImplementedError


check("08.4", verdict);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `statistics.paired_p_value` and `statistics.changed` take these lists. First ask whether anything was shown, then in
# which direction.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from grpo_workbook import statistics
#
#
# def verdict(before: list[bool], after: list[bool]) -> str:
#     if statistics.paired_p_value(before, after) > 0.05:
#         return "not shown"
#     return "rose" if sum(after) > sum(before) else "fell"
# ```
#
# </details>

# %% [markdown]
# **Your data, your model.** Evaluate your model before and after training (or two models) on your own file, with the
# command above, and enter the two output folders here. By default they are this chapter's. The last line prints the
# smallest gain that your number of problems shows with a power of 80 %, if as many problems get worse as did here. That
# looks back at this comparison. To plan the next one, take the rate between two sampled runs of your baseline: with the
# 9.9 % measured above, 100 problems show only gains well above 10 points. Is this gain small enough for the decision
# that you have to make? (Until your function is right, the cell takes the course's.)

# %%
import pandas as pd

from grpo_workbook.exercises import judge
from grpo_workbook.exercises.ch08 import correct_verdict

BEFORE = folder / "base"  # your two --output folders
AFTER = folder / "after"
old = pd.read_json(BEFORE / "results.jsonl", lines=True).query("sample == 0")
new = pd.read_json(AFTER / "results.jsonl", lines=True).query("sample == 0")
assert list(old["question"]) == list(new["question"]), "not the same problems"
if judge("08.4", verdict).status != "solved":
    verdict = correct_verdict
for name in MEASURES:
    result = verdict(list(old[name]), list(new[name]))
    print(f"{name}: {old[name].mean():.1%} -> {new[name].mean():.1%}: {result}")
_, worse = statistics.changed(list(old["strict"]), list(new["strict"]))
least = paired_gain(len(old), worse=len(worse) / len(old))
if least is None:
    print(f"{len(old)} problems can show no gain at all")
else:
    print(f"{len(old)} problems can show a gain of {100 * least:.1f} points in strict")

# %% [markdown]
# ## Summary
#
# Is a model better after training, or was it lucky, and what has it gained? This model is better: on the same 160
# problems its strict rate rose by 31 points (26 to 37), far more than luck explains. It gained no form. Two fifths of
# the gain are sharpening, and the rest is on problems that the base solved in none of seven tries. This holds for these
# kinds of problems and one training seed. To answer the question for a model of yours:
#
# - Before the run, compute how many problems you need for a power of 80 %. With 30 problems, ten points are often luck.
# - Pairing saves answers only as far as the outcomes are correlated. Compare two *sampled* runs of the baseline to see
#   how many problems get worse when nothing changes, and plan with that rate.
# - Report strict and lenient, form and length, each with an interval. If problems come in groups, resample the groups.
# - Compare on the same problems with a paired test, read what got worse, and measure a skill that the training did not
#   ask for.
# - An interval covers the problems, not the training seed. Run several seeds before you compare methods.
# - pass@k measures what the model can produce within k answers, and pass@1 how often a single answer is right. Divide a
#   gain into form, sharpening and new before you say what training did, and name the number of tries.
#
# Next: [09 · Merge and inference](09_merge_and_inference.ipynb) puts a trained adapter to work.
