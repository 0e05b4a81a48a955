# %% [markdown]
# # 07 · Stages and curriculum
#
# In many of your groups all completions earn the same reward, so these groups teach nothing: what should you do? The
# answer depends on the cause, and the pass rates of the problems show the cause. This chapter measures them, tries the
# usual remedies (mixed rewards, stages, a filter by difficulty), and tests whether they helped.
#
# **After this notebook you can** explain why a group has zero variance, measure how hard each problem is for *this*
# policy, choose problems by their difficulty, train with two trainers in a row, and test whether any of it was worth
# its price.
#
# **Time:** about 3 minutes on two CPU cores, most of it training. (The stored run shared its machine, so its bars show
# longer times.) Reading takes about 30 minutes. **You need** the chapters 00, 03 and 04; chapter 08 explains the
# statistical tests.

# %% [markdown]
# ## The answer in short
#
# | what you see | the cause | what to do |
# | --- | --- | --- |
# | from the first step on, no completion of most groups earns anything | the reward asks for too much at once | reward parts of the answer too (mixed rewards), or train first with SFT (chapter 00) |
# | some problems are never right | they are too hard for this policy | leave them out, or use an easier version |
# | later, in more and more groups, all completions are right | the policy has mastered the problems | stop, take harder problems, or sample more groups |
# | about half of the groups have zero variance all the time | the groups are small, or the problems are of two sorts, never right and always right | measure the pass rates; near 0 and 1 choose other problems, in between take larger groups if you can afford more completions (line chart below, exercise 07.2) |
#
# `frac_reward_zero_std` in TRL's log is the fraction of zero-variance groups. Look at it together with the reward: the
# fraction is high for a policy that never succeeds and also for one that always succeeds.
#
# With this chapter's tiny model the cause is the third one: it masters the problems. A filter by difficulty would have
# left out only 2 of 64 problems. Mixed rewards, two stages and correctness alone were compared in one run each, and no
# difference was shown. The cause may be another one for your model, so the chapter shows how to find it.

# %% [markdown]
# ## Where zero variance comes from
#
# If all completions of a group earn the same reward, every advantage is 0. How often does that happen? Imagine a
# policy whose answer is right in 60 % of the completions, but has the requested form in only 5 %, independently of
# whether it is right. Only a completion with both earns a reward. How many groups of eight have some completions that
# earn and some that do not?

# %%
import random
from statistics import mean

random.seed(0)


def sample_groups(form: float, right: float, pay_for: str) -> list[float]:
    """The fraction of paid completions in each of 2,000 groups of eight."""
    fractions = []
    for _ in range(2000):
        paid = 0
        for _ in range(8):
            has_form = random.random() < form
            is_right = random.random() < right
            if pay_for == "form":
                paid += has_form
            else:
                paid += has_form and is_right
        fractions.append(paid / 8)
    return fractions


def count_groups(fractions: list[float]) -> tuple[float, float, float]:
    """The rates of groups in which no, some and all completions are paid."""
    none = fractions.count(0) / len(fractions)
    every = fractions.count(1) / len(fractions)
    return none, 1 - none - every, every

# %% [markdown]
# The next cell compares four cases. In *start, form paid* the reward is 1 for the form alone. *later* is the policy
# after a training on that reward, when 95 % of the completions have the form. *mastered* is the policy after more
# training on the strict reward, when 97 % of the completions have the form and 95 % are right:

# %%
toy = {
    "start, both required": count_groups(sample_groups(0.05, 0.6, "both")),
    "start, form paid": count_groups(sample_groups(0.05, 0.6, "form")),
    "later, both required": count_groups(sample_groups(0.95, 0.6, "both")),
    "mastered, both required": count_groups(sample_groups(0.97, 0.95, "both")),
}

for name, (none, some, every) in toy.items():
    print(f"{name:24} none paid {none:4.0%}   some {some:4.0%}   all {every:4.0%}")

# %% [markdown]
# The same as a figure. Each bar is one of the four cases with its 2,000 groups, and only the blue part gives a
# gradient. A part without a label is smaller than half a percent:

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, (axes,) = figures.new_panels(8.5, 3.0)
looks = {
    "none": ("#BBBBBB", ""), "some": (figures.BLUE, ""), "all": (figures.ORANGE, "//"),
}
for row, rates in enumerate(toy.values()):
    left = 0.0
    for rate, (name, (colour, hatch)) in zip(rates, looks.items(), strict=True):
        axes.barh(
            row, rate, 0.6, left, color=colour, hatch=hatch, edgecolor="white",
            label=f"{name} paid" if row == 0 else None,
        )
        if rate > 0.05:
            paper = {"facecolor": colour, "edgecolor": "none", "pad": 1.5}
            axes.text(
                left + rate / 2, row, f"{rate:.0%}", ha="center", va="center",
                color="black" if name == "none" else "white", bbox=paper,
            )
        elif rate > 0.005:  # too narrow for its label
            axes.text(1.01, row, f"{rate:.0%} {name}", va="center", color=colour)
        left += rate
axes.set(yticks=range(4), yticklabels=toy, xlim=(0, 1))
axes.set_xlabel("fraction of 2,000 simulated groups of 8")
axes.invert_yaxis()
axes.grid(visible=False)
axes.set_title("How many completions of a group are paid: none, some or all")
figure.legend(frameon=False, loc="outside lower center", ncols=3)
words = "; ".join(f"{name}: {rates[1]:.0%}" for name, rates in toy.items())
figures.show(figure, f"Stacked bars. Groups with some completions paid: {words}.")

# %% [markdown]
# A first training on the form alone therefore makes nearly every group useful for the strict reward. That is the idea
# of **form first, then correctness**: two stages with different rewards. A **stage** is a part of the training with
# data, rewards and settings of its own; it starts from the adapter that the stage before it has trained. *Mixed*
# rewards need no second stage: they reward the form and the whole answer from the beginning.
#
# The last bar shows the opposite end: the policy has mastered the task, so in about half of the groups all completions
# are paid, and these groups teach nothing either.
#
# In all of these cases, one number decides: how far the success rate is from 0 and from 1. If a completion succeeds
# with probability p, a group of n has some variance with probability $1 - p^n - (1 - p)^n$:

# %%
rates = [i / 50 for i in range(51)]
lines = {}
for size in (2, 4, 8, 16):
    teaching = [1 - p**size - (1 - p) ** size for p in rates]
    lines[f"groups of {size}"] = (rates, teaching)
figure, words = figures.line_chart(
    lines,
    x="probability that one completion succeeds",
    y="fraction of groups that teach",
    title="Groups with some variance, for four group sizes",
    finding="At one half 50, 88, 99 and nearly 100 % teach, at 0 and 1 none.",
    markers=False,
)
figures.show(figure, words)

# %% [markdown]
# Each line is the fraction of groups that teach, for one group size. At a success rate of one half nearly all groups of
# eight teach; where success is rare or nearly certain, a larger group teaches more often. (With the same number of
# completions in a step, there are then fewer groups: exercise 07.2.)
#
# The same holds for a single problem: if it is never right or always right, it teaches nothing. Leaving such problems
# out, and ordering the others from easy to hard, is a **curriculum**. Its price is the completions that must be sampled
# to measure the problems.

# %% [markdown]
# ## How hard is each problem for this model?
#
# The problems are those of chapter 04, of all kinds, and 240 of them are held out. On a small machine the model is
# *tiny-form*, which can solve the problems and was trained, on purpose, to write its answers in messy forms ([its
# card](../data/tiny-form/README.md)). This chapter compares rewards for the form with rewards for the number, and with
# this model both have something to change.

# %%
import os

from grpo_workbook import choose_profile, config, quiet, use_one_thread

quiet()
use_one_thread()
heldout = 240
short_run = {"max_steps": 24}
profile = choose_profile(default="smoke", heldout=heldout, grpo=short_run)
if profile.name == "smoke":
    short_run.update(learning_rate=1e-3, per_device_train_batch_size=64)
    tiny_form = config.DATA / "tiny-form"
    profile = choose_profile("smoke", model=tiny_form, heldout=heldout, grpo=short_run)
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
import unsloth
from grpo_workbook import data, load_policy, load_problems, to_dataset

mixed_policy, tokenizer = load_policy(profile)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"])
heldout_set = to_dataset(heldout_rows.select(range(profile.heldout)))
print(profile)

# %% [markdown]
# Difficulty depends on the policy. It is measured by the **pass rate**: the fraction of this policy's completions that
# are right. A filter keeps the problems between the two extremes:

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {
    "rows": (0.08, 0.5, "64\nproblems", pale["data"]),
    "policy": (0.31, 0.5, "the policy now:\n8 completions each", pale["model"]),
    "none": (0.62, 0.85, "0 of 8 right: hopeless", pale["off"]),
    "some": (0.62, 0.5, "1 to 7 of 8: can teach", pale["check"]),
    "all": (0.62, 0.15, "8 of 8: mastered", pale["off"]),
    "train": (0.91, 0.5, "train,\neasiest first", pale["check"]),
}
arrows = [
    ("rows", "policy", ""),
    ("policy", "none", ""),
    ("policy", "some", ""),
    ("policy", "all", ""),
    ("some", "train", ""),
    ("train", "policy", "measure again", 0.62),
]
figure = figures.diagram(boxes, arrows, size=(8.0, 3.2))
figure.suptitle("A filter by pass rate keeps the problems in the middle", y=1.1)
figures.show(
    figure,
    "Flow of a pass-rate filter. The policy answers 64 problems 8 times each. Problems "
    "with 0 of 8 right (hopeless) and 8 of 8 (mastered) are left out, the rest is "
    "trained on, easiest first. An arrow leads back: measure again.",
)

# %% [markdown]
# `pass_rates` samples the completions and scores them with the correctness reward of chapter 03, which looks for the
# right number between answer tags and ignores the text around them. `curriculum` applies the filter:

# %%
from grpo_workbook.training import curriculum, pass_rates

some_problems = train_set.shuffle(seed=profile.seed).select(range(64))


def measure_pass_rates(policy):
    return pass_rates(
        policy, tokenizer, some_problems, samples=8, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


rates_before = measure_pass_rates(mixed_policy)
chosen = curriculum(rates_before, low=0.0, high=1.0)
print(f"{mean(rates_before):.0%} right on average. {chosen}")
for index in (chosen.rows[0], chosen.rows[-1]):
    print(f"{rates_before[index]:.0%}: {some_problems[index]['question']}")

# %% [markdown]
# To train on the chosen problems, pass `some_problems.select(chosen.rows)` to the trainer. Add `shuffle_dataset=False`
# in `GRPOConfig` if it should keep the order from easy to hard.
#
# Is the filter worth its price here? No: it leaves out only 2 problems, and measuring took 64 x 8 = 512 completions, as
# many completions as eight training steps take. The reason is that the pass rates hardly differ. Even if all problems
# had the same pass rate p, the measured rates would vary by chance, with variance p (1 - p) / 8. Compare this with the
# variance that was measured:

# %%
from statistics import pstdev

import numpy as np

p = mean(rates_before)
chance = p * (1 - p) / 8  # the variance if all problems were equally hard
spread = pstdev(rates_before)
print(f"standard deviation of the pass rates:   {spread:.3f}")
print(f"the same if all were equally hard:      {chance**0.5:.3f}")
print(f"part of the variance due to chance:     {chance / spread**2:.0%}")

dice = np.random.default_rng(0)
simulated = dice.binomial(8, p, size=(10_000, 64)) / 8  # 64 equally hard problems
as_wide = (simulated.std(axis=1) >= spread).mean()
print(f"equally hard problems look so different in {as_wide:.0%} of simulations")

# %% [markdown]
# Most of the variance is chance: if all problems were equally hard, their rates would differ as much or more in 9 % of
# measurements. So these 64 problems hardly differ for this model, and eight completions each do not even show that they
# differ at all. One reason is the model itself. Many of its completions have the right number outside the tags (before
# training 65.8 % of the held-out answers below are right in some form, but only 21.2 % strictly), and that habit
# probably depends little on the problem. A curriculum needs problems that differ in difficulty. It also
# needs enough completions to measure the difference: a problem with a true pass rate of 10 % has no right completion
# among eight in 43 of 100 tries.

# %% [markdown]
# ## Three ways, the same number of completions
#
# "First the form, then the answer" is common advice, and people follow it without looking at their groups. In the
# simulation it helped a policy that hardly ever earned anything. Our policy is right between its tags in about half of
# its tries, so nearly every group can teach from the start. Does the advice still help there, does it do nothing, or
# does it waste the steps that train only the form? You will often be in this position, so it is worth a test.
#
# Three policies start from the same new adapter and train for 24 steps of 64 completions. They differ in the rewards
# and their weights:
#
# - **mixed**: correctness 2, strict form 0.5, parts of the form 0.5;
# - **form first**: 8 steps with strict form 0.5 and parts of the form 0.5, then 16 steps with correctness 2 and strict
#   form 0.5;
# - **correctness alone**: correctness 1.
#
# The measure was fixed before the run: how many of the 240 held-out problems are strictly right after training? For a
# stage you need no special tool, because it is a second `GRPOTrainer` around the same model. `train` makes such a
# trainer:

# %%
from grpo_workbook import (
    Float32Adapters, RewardBar, correctness_reward, incremental_format_reward,
    strict_format_reward,
)
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer


def train(policy, rewards, weights, steps, seed=profile.seed, group_size=8):
    """One trainer; returns its log. The policy's adapter is changed in place."""
    settings = {**profile.grpo, "max_steps": steps, "num_generations": group_size}
    settings.update(seed=seed, data_seed=seed)
    args = GRPOConfig(
        output_dir=str(profile.output / "chapter_07"), reward_weights=weights,
        **settings,
    )
    trainer = GRPOTrainer(
        policy, rewards, args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]

# %% [markdown]
# First evaluate the policy before training:

# %%
from grpo_workbook import compare, evaluate


def ask_heldout_problems(policy):
    return evaluate(
        policy, tokenizer, heldout_set, sample=True, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


scores = {"before": ask_heldout_problems(mixed_policy)}
logs = {}
print(scores["before"])

# %% [markdown]
# *Mixed*: one trainer.

# %%
mixed_rewards = [correctness_reward, strict_format_reward, incremental_format_reward]
logs["mixed"] = train(mixed_policy, mixed_rewards, [2.0, 0.5, 0.5], steps=24)
scores["mixed"] = ask_heldout_problems(mixed_policy)

# %% [markdown]
# *Form first*: two trainers in a row on the same adapter. The second one has another seed, because with the same seed
# it would train on the same problems as the first one.

# %%
staged_policy, _ = load_policy(profile)
form_rewards = [strict_format_reward, incremental_format_reward]
form_log = train(staged_policy, form_rewards, [0.5, 0.5], steps=8)
scores["form"] = ask_heldout_problems(staged_policy)

both_rewards = [correctness_reward, strict_format_reward]
next_seed = profile.seed + 1
correct_log = train(staged_policy, both_rewards, [2.0, 0.5], steps=16, seed=next_seed)
scores["form first"] = ask_heldout_problems(staged_policy)
logs["form first"] = form_log + correct_log

# %% [markdown]
# What does the second trainer inherit? Only the adapter, because it is a part of the model. AdamW's moments begin at 0,
# the learning rate warms up again from 0, and with `beta` above 0 the KL reference is a new copy of the adapter ("For
# the curious" below).
#
# *Correctness alone*:

# %%
alone_policy, _ = load_policy(profile)
logs["correctness alone"] = train(alone_policy, [correctness_reward], [1.0], steps=24)
scores["correctness alone"] = ask_heldout_problems(alone_policy)

# %% [markdown]
# ## Did it help?
#
# Which of the three would you choose now? Decide before you run the cell. Each row compares two policies on the same
# 240 problems, with one sampled answer to each: the rates that are strictly right, the 95 % interval of their
# difference, and the p-value of the paired test of chapters 00 and 08. *form* is the policy of *form first* after its
# first trainer:

# %%
pairs = [
    ("before", "mixed"),
    ("before", "form first"),
    ("before", "correctness alone"),
    ("before", "form"),
    ("form", "form first"),
    ("mixed", "form first"),
    ("mixed", "correctness alone"),
    ("form first", "correctness alone"),
]
changes = {}
for old, new in pairs:
    change = compare(scores[old], scores[new]).strict
    changes[old, new] = change
    low, high = change.gain_interval
    print(f"{old:10} -> {new:17} {change.before:.1%} -> {change.after:.1%}", end="  ")
    print(f"({low:+.1%} to {high:+.1%}), p = {change.p_value:.2g}", end=", ")
    print("no difference shown" if change.p_value > 0.05 else "a difference")

# %% [markdown]
# The first three rows compare with the policy before training: it improves in all three ways. The last three rows
# compare the ways with one another: **no difference shown**. That does not mean that there is none. The intervals
# against *mixed* reach from a loss of 9 points to a gain of 1, so *form first* and *correctness alone* may still be
# several points worse. And each way was trained once, with one seed: another seed could change the order (chapter 08).
#
# Why do the rewards make so little difference? Look at the groups. The figure shows the fraction of zero-variance
# groups over the steps:

# %% tags=["hide-input"]
from grpo_workbook import wilson_interval

lines = {}
sentences = []
figure, (axes,) = figures.new_panels(8.5, 3.6)
looks = zip((-0.35, 0, 0.35), figures.STYLES)  # a little apart, so that all are seen
for (name, log), (shift, (colour, dash, marker)) in zip(logs.items(), looks):
    zero = [entry["frac_reward_zero_std"] for entry in log]
    places = []
    means = []
    for start in range(0, len(zero), 4):
        idle = round(8 * sum(zero[start : start + 4]))  # of 4 steps with 8 groups each
        place = start + 2.5 + shift
        axes.vlines(place, *wilson_interval([True] * idle + [False] * (32 - idle)),
                    color=colour, lw=1)
        places.append(place)
        means.append(idle / 32)
    axes.plot(places, means, dash, marker=marker, color=colour, lw=2, label=name)
    lines[name] = (places, means)
    sentences.append(f"{name}: {', '.join(f'{rate:.2f}' for rate in means)}")
axes.axvline(8.5, color="black", linestyle=":", lw=1)
axes.text(8.8, 0.78, "form first changes\nits rewards", fontsize=9, va="top")
axes.set(xlabel="optimizer step", ylabel="fraction of zero-variance groups")
axes.set_ylim(0, 0.8)
axes.set_title("Zero-variance groups of the three ways, one run each")
axes.set_xticks(range(0, 25, 4))
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Line chart, means of four steps. {'; '.join(sentences)}.")

# %% [markdown]
# Each line is one of the three ways. A point is 32 groups (four steps of eight), and the thin line through it is its 95
# % interval; the three are drawn a little beside each other. The dotted line marks the step after which *form first*
# changes its rewards.
#
# At the start hardly any group has zero variance in any of the three ways. About half of the completions have the right
# number between the tags (the pass rates above), so even correctness alone rewards some completions of nearly every
# group. The imagined policy at the top of the chapter was different: only 5 % of its completions had the form. Here the
# zero-variance groups come later, because problems are mastered: after the mixed training no problem of the sample is
# wrong in all tries, and many are right in all (see the next section). With mixed rewards and with correctness alone
# they are 13 and 15 of the 32 groups in the last four steps. Rewarding parts of the answer does not help against this
# cause. *Form first* ends with fewer such groups (4 of 32, in one run), but not with more right answers.
#
# *Form first* also shows how much of a gain can be form. Its first trainer raises *strict* accuracy from 21 to 61 %
# although it never rewards a right answer. Before training 65.8 % of the answers were right in some form (the *lenient*
# rate), but few of them had the requested form. Once the form is there, they count.
#
# Why does even *correctness alone* raise the strict rate, with no reward for the form? It pays only for a number
# between the answer tags, and with this model the rest of the form came along. You cannot rely on that: with a reward
# that also charged for length, the same model dropped `</reasoning>`, and its strict rate fell to 0 (exercise 04.2).

# %% [markdown]
# ## The filter goes stale
#
# Measure the same 64 problems again, now with the policy that was trained with mixed rewards:

# %%
rates_after = measure_pass_rates(mixed_policy)
print(f"{mean(rates_after):.0%} right on average, {mean(rates_before):.0%} before")

# %% [markdown]
# How many problems have 0, 1, ... 8 right completions of 8, before and after the mixed training? The filter would leave
# out the grey, hatched bars. A cross marks a bar of height 0:

# %% tags=["hide-input"]
counts = {}
for name, rates in (("before training", rates_before), ("after it", rates_after)):
    right = [round(8 * rate) for rate in rates]
    counts[name] = [right.count(k) for k in range(9)]
idle_before = counts["before training"][0] + counts["before training"][8]
idle_after = counts["after it"][0] + counts["after it"][8]
figure, words = figures.bar_panels(
    counts,
    [str(k) for k in range(9)],
    y="problems",
    title=f"The filter leaves out {idle_before} of 64 problems before training, "
    f"and {idle_after} after it",
)
for axes in figure.axes[:2]:
    axes.set_xlabel("right ones among 8 completions")
    for k in (0, 8):  # what a curriculum leaves out is grey
        axes.patches[k].set(facecolor="#BBBBBB", hatch="//", edgecolor="white")
figures.show(figure, f"{words} Counted by the right ones among 8 completions.")

# %% [markdown]
# After training, 23 of the 64 problems are right in all eight tries, but the filter that was measured at the start left
# out only two. So measure again before each new trainer. Here, too, a part is chance: if every problem had a pass rate
# of 86 %, 19 of 64 would be right in all eight tries. So many of the 23 are not mastered for good, and more completions
# would show which.

# %% [markdown]
# ## Dynamic sampling: the filter at every step
#
# The method DAPO ([2503.14476](https://arxiv.org/abs/2503.14476)) filters during training: it discards zero-variance
# groups and samples more until the batch is full. If a fraction z of the groups has zero variance, a full batch takes 1
# / (1 - z) times as many samples. From the log of the mixed run, one can compute what that would have cost:

# %%
starts = range(1, 25, 4)
_, zero = lines["mixed"]
for start, fraction in zip(starts, zero):
    price = 1 / (1 - fraction)
    print(f"steps {start:2} to {start + 3:2}: {fraction:4.0%} zero-variance", end=", ")
    print(f"{price:.2f} completions sampled for each one used")

# %% [markdown]
# What does this price buy? A zero-variance group adds nothing to the gradient of the rewards. So the same number of
# sampled completions holds no more groups that teach; dynamic sampling only gathers them in fewer steps. But each of
# its steps has the same number of groups that teach, so the gradient does not get noisier as problems are mastered. In
# DAPO's ablation, dynamic sampling raised the score on AIME 2024 from 42 to 50 (with a model of 32B weights; each of
# its steps takes more samples).
#
# | | filter before training | dynamic sampling |
# | --- | --- | --- |
# | When are the problems measured? | once, before the training | in every batch |
# | What does it cost? | completions before the first step | the discarded groups |
# | Does it go stale? | yes | no |
# | Does it save sampling later? | yes, while the pass rates stay the same | no |
#
# TRL 1.15 has no option for dynamic sampling ([issue 3708](https://github.com/huggingface/trl/issues/3708)); the
# libraries verl and NeMo-RL have one.

# %% [markdown]
# ## For the curious: the KL reference of a second trainer
#
# Most runs of the course have `beta=0` and no reference. With `beta` above 0 the KL penalty pulls the policy towards a
# *reference*. For a second trainer on the same adapter, the reference depends on who makes it:
#
# | trainer | reference |
# | --- | --- |
# | TRL 1.15, given a model with an adapter | a frozen copy of the adapter under the name `ref`, made with the trainer |
# | TRL 1.15, which makes the adapter itself (`peft_config=`) | the base model, with the adapter turned off |
# | Unsloth's (on a GPU) | the base model: `unsloth/models/rl.py` removes the lines that make the copy |
# | either, with a fresh adapter | the base model in effect, because a fresh adapter changes nothing |
#
# So with TRL alone a second trainer gets a new reference, the policy at its own start. With Unsloth on a GPU the
# reference stays the base model (this was read in Unsloth's source, not measured). The cell shows both on the CPU: a
# trainer with TRL's copy, and one whose copy is removed.

# %% tags=["hide-input"]
kl_at_start = {}
for name in ("copy of the adapter", "base model"):
    settings = {**profile.grpo, "max_steps": 2, "beta": 0.1, "learning_rate": 5e-4}
    args = GRPOConfig(output_dir=str(profile.output / "chapter_07"), **settings)
    trainer = GRPOTrainer(
        mixed_policy, mixed_rewards, args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(mixed_policy), RewardBar()],
    )
    if name == "base model":
        trainer.model.delete_adapter("ref")
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    log = [entry["kl"] for entry in trainer.state.log_history if "kl" in entry]
    kl_at_start[name] = log[0]
    if "ref" in trainer.model.peft_config:
        trainer.model.delete_adapter("ref")
for name, kl in kl_at_start.items():
    print(f"KL at the first step, reference {name}: {kl:z.4f}")

# %% [markdown]
# With the copy the KL begins at 0, because the policy *is* its reference at that moment. With the base model as the
# reference it begins above 0, because the policy has already moved away from the base model. A new reference lets the
# policy move on, but no longer keeps it near the base model: after many stages the policy can be far from it, although
# it moves only a little in each.

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %% tags=["remove-cell"]
import json

proved = {
    "steps": [len(form_log), len(correct_log)],
    "before": scores["before"].rate,
    "after": scores["form first"].rate,
    "mixed": scores["mixed"].rate,
    "p_values": [changes["before", "form"].p_value, changes["before", "mixed"].p_value],
    "kl_begins": kl_at_start,
    "pass_rates": [mean(rates_before), mean(rates_after)],
}
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_07.json").write_text(json.dumps(proved, indent=2))
assert proved["steps"] == [8, 16]
for log in logs.values():
    assert len(log) == 24
    assert all(entry["step_time"] > 0 for entry in log)
if profile.name == "smoke":
    assert proved["after"] > proved["before"] + 0.4, "two trainers: no gain"
    assert proved["mixed"] > proved["before"] + 0.4, "mixed rewards: no gain"
    assert max(proved["p_values"]) < 1e-6, "no gain"
    assert proved["pass_rates"][1] > proved["pass_rates"][0] + 0.3

# %% [markdown]
# ## Exercises
#
# Write the function, or make the prediction, and run the cell: it checks itself. The table in chapter 00 counts what
# you have solved.

# %% [markdown]
# ### Exercise 07.1 · `smallest_group` · easy · 8 minutes
#
# Each completion succeeds with probability `rate`; a success earns 1, a failure 0. Return the smallest group size, from
# 2 on, with which at least the fraction `wanted` (below 1) of all groups has some variance. If no size is enough, raise
# `ValueError`.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def smallest_group(rate: float, wanted: float) -> int:
    raise NotImplementedError


check("07.1", smallest_group);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A group has no variance in two cases, and the line chart at the top of this chapter shows how often neither occurs.
# For which rates does no size help?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def smallest_group(rate: float, wanted: float) -> int:
#     if not 0 < rate < 1:
#         raise ValueError(f"with a success rate of {rate} no group has variance")
#     size = 2
#     while 1 - rate**size - (1 - rate) ** size < wanted:
#         size += 1
#     return size
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.2 · `larger_groups` · medium · 10 minutes
#
# Larger groups more often have some variance, as the line chart shows. But a step has a fixed number of completions, so
# larger groups are also fewer. Repeat the *mixed* run with groups of 16: the 64 completions of a step then answer 4
# problems instead of 8. Predict the *number* of groups that teach in a step, on average over the run: "more", "as many"
# or "fewer" than with groups of 8? Then run the cell (under a minute). It also prints the held-out accuracy of both:
# which size would you choose for your own run, and why?

# %% tags=["exercise"]
prediction = ...  # "more", "as many" or "fewer"


def larger_groups() -> dict:
    """The mixed run again, with groups of 16 (yours to change) instead of 8."""
    own_size = 16
    policy, _ = load_policy(profile)
    weights = [2.0, 0.5, 0.5]
    own_log = train(policy, mixed_rewards, weights, steps=24, group_size=own_size)
    own_scores = ask_heldout_problems(policy)
    change = compare(scores["mixed"], own_scores).strict
    print(f"held out, groups of 8: {change.before:.1%} strictly right")
    print(f"groups of {own_size}: {change.after:.1%}, p = {change.p_value:.2g}")
    groups_that_teach = []
    for size, entries in ((8, logs["mixed"]), (own_size, own_log)):
        groups = 64 // size
        teaching = [groups * (1 - entry["frac_reward_zero_std"]) for entry in entries]
        print(f"groups of {size}: {mean(teaching):.1f} of {groups} teach in a step")
        groups_that_teach.append(teaching)
    return {"before": groups_that_teach[0], "after": groups_that_teach[1]}


predict("07.2", prediction, larger_groups);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take a problem with a success rate of 0.9 and read the line chart at groups of 8 and of 16. Then multiply each value
# by the number of groups in a step.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "fewer"
# ```
#
# In our run 3.5 of 4 groups of 16 taught in a step, and 6.2 of 8 groups of 8. So a larger fraction teaches, but fewer
# groups. In exchange, the mean of a larger group is known better, and so are its advantages. Which of the two counts
# more, only the accuracy can tell: 85.8 % of the held-out problems were strictly right with groups of 16, and 83.3 %
# with groups of 8 (p = 0.33, one run each), so no difference is shown.
#
# </details>

# %% [markdown]
# ### Exercise 07.3 · `own_problems` · medium · 15 minutes
#
# Measure your own problems: name a file (.jsonl, .csv, .parquet with the columns `question` and `answer`), or write at
# least 8 rows. The cell measures their pass rates with the tiny Qwen3 before GRPO (not with tiny-form), 8 completions
# for each problem. Predict which part of them can teach: "most" (two thirds or more), "few" (one third or less) or
# "about half". Then read the printed rates: which problems would you make easier, and which harder? To use your own
# model, set `GRPO_WORKBOOK_MODEL` or give `model=` to `choose_profile`.


# %% tags=["exercise"]
prediction = ...  # "most", "about half" or "few"
SENTENCES = [
    "Mira has {a} shells and buys {b} more. How many shells does Mira have now?",
    "A zoo owns {a} elephants and {b} zebras. What is the total?",
]
PROBLEMS = []  # or the path of your file
for sentence in SENTENCES:
    for a, b in ((3, 4), (17, 26), (48, 7), (123, 456)):
        PROBLEMS.append({"question": sentence.format(a=a, b=b), "answer": str(a + b)})


def own_pass_rates() -> dict:
    """Eight completions for each of my problems, before training."""
    own = choose_profile(default="smoke")
    policy, words = load_policy(own)
    mine = to_dataset(load_problems(PROBLEMS))
    mine = mine.select(range(min(64, len(mine))))
    tokens = own.grpo["max_completion_length"]
    rates = pass_rates(
        policy, words, mine, samples=8, max_new_tokens=tokens,
        batch_size=own.eval_batch_size,
    )
    for rate, question in zip(rates, mine["question"], strict=True):
        print(f"{rate:5.0%}  {question[:70]}")
    return {"pass_rates": rates}


predict("07.3", prediction, own_pass_rates);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The tiny model learned 16 kinds of sentences with results up to 65. How will it answer with a larger number, or with
# words that it has never read? A large model has the opposite problem with such sums.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "few"
# ```
#
# This is the answer for the rows above and the tiny Qwen3: "3 shells and 4 more" is always right, "48 shells and 7
# more" in three of its eight samples, and the other six problems never. If most of your problems are never right, begin
# with easier problems or a reward with partial credit. If most are mastered, find harder ones.
#
# </details>

# %% [markdown]
# ### Exercise 07.4 · `steps_to_pay_back` · hard · 15 minutes
#
# After how many steps has a filter paid for its measurement? `rates` are the pass rates of all problems, each measured
# with `samples` completions, and a training step takes `completions` of them. Take the rates as true and constant. The
# filter leaves out the problems with a rate of 0 or 1. With it, every completion of a step goes to a problem that can
# teach. Without it, only a part does, so a step must be larger to teach as much. The difference is what the filter
# saves in each step. Return the first number of steps whose savings are at least the completions that the measurement
# took. Return `None` if the filter leaves out no problem, or all of them.

# %% tags=["exercise"]
def steps_to_pay_back(rates: list[float], samples: int, completions: int) -> int | None:
    raise NotImplementedError


check("07.4", steps_to_pay_back);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Suppose that half of the problems are left out. How many completions does it take without the filter to sample as many
# of the other half as one step with the filter does?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import ceil
#
#
# def steps_to_pay_back(rates: list[float], samples: int, completions: int) -> int | None:
#     kept = sum(0 < rate < 1 for rate in rates)
#     dropped = len(rates) - kept
#     if kept == 0 or dropped == 0:
#         return None
#     saved_per_step = completions * dropped / kept
#     return ceil(len(rates) * samples / saved_per_step)
# ```
#
# The filter of this chapter would pay back after 248 steps, ten times as many as the runs above have. Measured after
# training, a filter would pay back after 15 steps, if the pass rates were true and stayed as they are. In fact some of
# the 23 problems that it leaves out were only lucky in eight tries and could still teach, so it takes longer.
#
# </details>
#
# Apply your function to the two measurements of this chapter. In how many steps would the first filter have paid for
# itself, and how much had the pass rates changed after 24 steps?

# %%
try:
    for when, rates in (("before training", rates_before), ("after it", rates_after)):
        steps = steps_to_pay_back(rates, samples=8, completions=64)
        print(f"a filter measured {when} pays back after {steps} steps")
except NotImplementedError:
    print("Write steps_to_pay_back first, then run this cell.")

# %% [markdown]
# ## Summary
#
# Many groups have zero variance: what should you do?
#
# - Find the cause first: is the reward never earned, is the problem too hard, or is it mastered? The fraction of
#   zero-variance groups over the steps and the pass rates show it.
# - If most groups earn nothing, reward parts of the answer as well: more groups then have some variance. (The
#   simulation shows this; our model did not have the problem.) In our runs few groups earned nothing, and no difference
#   between mixed rewards, form first and correctness alone was shown, with one seed each.
# - If problems are too hard or mastered, leave them out. Difficulty is the pass rate of *this* policy, so it changes
#   with training. A filter before training has its cost in advance and goes stale; dynamic sampling has its cost in
#   every batch and does not.
# - A stage is a second trainer around the same adapter. Change the seed, and remember that the optimizer and the
#   learning rate begin anew.
# - Before you believe that one way is better, fix the measure, run several seeds, and report the result in any case.
#
# Next: [08 · Evaluation](08_evaluation.ipynb): how do you measure whether training helped?
