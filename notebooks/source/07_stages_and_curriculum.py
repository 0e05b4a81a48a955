# %% [markdown]
# # 07 · Stages and curriculum
#
# In many of your groups all completions earn the same reward, so these groups teach nothing: what should you do? The
# answer depends on the cause. This chapter looks for the cause in one small model, before and after training. It first
# measures how hard each problem is for this model. Then it compares rewards: should you pay for the form first, or for
# the form and the answer together? At the end it comes back to the problems: should you leave out those that are too
# hard?
#
# **After this notebook you can** explain why a group has zero variance and find the cause in a log, measure how hard
# each problem is for *this* policy, choose problems by their difficulty, train with two trainers in a row, and judge
# whether any of it was worth its price.
#
# **Time:** about 4 minutes on two CPU cores, most of it training. Reading takes about 35 minutes. **You need** the
# chapters 00, 03 and 04; chapter 08 explains the statistical tests.

# %% [markdown]
# ## The answer in short
#
# `frac_reward_zero_std` in TRL's log is the fraction of zero-variance groups: those in which all completions earn the
# same reward. It is high for a policy that never succeeds and also for one that always succeeds, so look at it together
# with the reward:
#
# - **Near a reward of 0** hardly any completion earns anything. Count those that do. If there is at least one in every
#   few steps, and their number grows, the policy may learn from them alone; otherwise make the task easier, or leave
#   out what is too hard.
# - **Near the maximum of the reward** the policy has nearly mastered the problems, or it fools the reward. Read some
#   completions, then stop or take harder problems.
#
# Four other causes lie between these two ends. The whole table stands before the exercises (*Which cause have you?*).

# %% [markdown]
# ### What this chapter found
#
# The tiny model nearly masters its usual problems. For the other end, a reward near 0, two cases were made on purpose:
#
# - **A form that hardly ever occurs** (right in about one completion of 240). To pay for the whole answer alone was
#   enough; neither two stages nor a reward for parts is shown to be better (five seeds).
# - **Seven of eight problems are never solved.** To leave them out gave better sampled answers after the same number of
#   steps (five seeds). No gain is confirmed for greedy answers, and none if you also count the completions that it
#   takes to find these problems.

# %% [markdown]
# ## Where zero variance comes from
#
# If all completions of a group earn the same reward, every advantage is 0. How often does that happen? The **requested
# form** of an answer is that of the chapters before:
#
# ```text
# <reasoning>
# 5+7=12
# </reasoning>
# <answer>12</answer>
# ```
#
# Imagine a policy whose number is right in 60 % of the completions, but which writes the requested form in only 5 %,
# independently of whether the number is right. Only a completion with both earns a reward. How many groups of eight
# have some completions that earn and some that do not?

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
# training with both required, when 97 % have the form and 95 % are right:

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
# The figure shows the same numbers. Only the blue parts give a gradient; a part without a label is smaller than half a
# percent:

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
# If the policy learns the form in a first training, nearly every group has some variance when both are required (the
# third bar). That is the idea of **form first, then correctness**: two stages with different rewards. A **stage** is a
# part of the training with data, rewards and settings of its own; it starts from the adapter that the stage before it
# has trained. *Mixed* rewards need no second stage: they reward the form and the whole answer from the beginning.
#
# Both ways pay for the form from the first step, so they begin like the second bar, not like the first: in a third of
# the groups some completions have the form and others do not, and these groups can teach it. If no completion has the
# form yet, teach it with SFT on a few examples first (chapter 00).
#
# The last bar shows the opposite end: the policy has mastered the task, and in about half of the groups all completions
# are paid.

# %% [markdown]
# ### One probability decides
#
# All four bars follow from one number each: the probability p that a completion is paid. In a group of n, all
# completions are paid with probability $p^n$, and none with probability $(1 - p)^n$. So a group has some variance with
# probability $1 - p^n - (1 - p)^n$. The next cell draws this with `figures`, the course's drawing module:

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
    title="Groups teach most at one half, never at 0 or 1",
    finding="At one half 50, 88, 99 and nearly 100 % teach, at 0 and 1 none.",
    markers=False,
)
figures.show(figure, words)

# %% [markdown]
# Each line is the fraction of groups that teach, for one group size. At any probability between 0 and 1, a larger group
# is more likely to teach. (With the same number of completions in a step, there are then fewer groups: exercise 07.2.)

# %% [markdown]
# ### Choosing problems
#
# The same holds for a single problem: if it is never paid or always paid, it teaches nothing. Leaving such problems
# out, and ordering the others from easy to hard, is a **curriculum**. (The hope behind the order: what the policy
# learns on easy problems helps it with the hard ones.) This chapter tests the choice of problems, not their order.
#
# To choose, you must know how often the policy solves each problem. You can sample this before training, which costs
# extra completions. From the second epoch on, you can also take it from the groups that training has sampled anyway.

# %% [markdown]
# ## How hard is each problem for this model?
#
# The training problems are those of chapter 04, and 240 others are held out. On a small machine the model is
# *tiny-form*, which can solve the problems and was trained, on purpose, to write its answers in messy forms
# ([its card](../data/tiny-form/README.md)). It can improve in both the form and the number. The folded cell chooses the
# settings (`profile`), and loads `policy`, its `tokenizer`, `train_set` and `heldout_set`:

# %% tags=["hide-input"]
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

completions = profile.grpo["per_device_train_batch_size"]
completions *= profile.grpo["gradient_accumulation_steps"]
GROUPS = completions // 8  # groups of eight in a step
policy, tokenizer = load_policy(profile)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"])
heldout_set = to_dataset(heldout_rows.select(range(profile.heldout)))
print(profile)

# %% [markdown]
# Difficulty depends on the policy. It is measured by the **pass rate**: the fraction of this policy's completions that
# are right. A filter keeps the problems between the two extremes. Problems that are never right in the sample
# (*hopeless*) or always right (*mastered*) are left out; their boxes are grey:

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {
    "rows": (0.07, 0.36, "64\nproblems", pale["data"]),
    "policy": (0.3, 0.36, "the policy now:\n8 completions each", pale["model"]),
}
boxes["none"] = (0.63, 0.92, "0 of 8 right: hopeless", pale["off"])
boxes["all"] = (0.63, 0.64, "8 of 8 right: mastered", pale["off"])
boxes["some"] = (0.63, 0.36, "1 to 7 of 8: can teach", pale["check"])
boxes["train"] = (0.92, 0.36, "train\non these", pale["check"])
arrows = [
    ("rows", "policy", ""),
    ("policy", "none", ""),
    ("policy", "all", ""),
    ("policy", "some", ""),
    ("some", "train", ""),
    ("train", "policy", "measure again", -0.26),
]
figure = figures.diagram(boxes, arrows, size=(8.0, 2.5))
figure.suptitle("A filter by pass rate keeps the problems in the middle", y=1.1)
figures.show(
    figure,
    "Flow of a pass-rate filter. The policy answers 64 problems 8 times each. Problems "
    "with 0 of 8 right (hopeless) and 8 of 8 (mastered) are left out, the rest is "
    "trained on. An arrow leads back: measure again.",
)

# %% [markdown]
# The next cell takes 64 of the training problems. `pass_rates` samples eight completions of each and scores them with
# the correctness reward of chapter 03, which looks for the right number between answer tags and ignores the text around
# them. `curriculum` keeps the problems with a pass rate above `low` and below `high`, from easy to hard. The cell
# prints one of the easiest and one of the hardest of these:

# %%
from grpo_workbook.training import curriculum, pass_rates

some_problems = train_set.shuffle(seed=profile.seed).select(range(64))


def measure_pass_rates(policy, problems=some_problems):
    return pass_rates(
        policy, tokenizer, problems, samples=8, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


rates_before = measure_pass_rates(policy)
chosen = curriculum(rates_before, low=0.0, high=1.0)
print(f"{mean(rates_before):.0%} right on average. {chosen}")
for index in (chosen.rows[0], chosen.rows[-1]):
    print(f"{rates_before[index]:.0%}: {some_problems[index]['question']}")

# %% [markdown]
# Would this filter be worth its price? It leaves out only 2 problems, and measuring took 64 x 8 = 512 completions, as
# many as eight training steps.
#
# Why does it leave out so few? Perhaps the problems are about equally hard, and their rates differ only because eight
# completions are few. The next cell tests this in two ways:
#
# - *By a formula.* If all problems had the same pass rate p, the measured rates would still vary by chance, with
#   standard deviation $\sqrt{p(1-p)/8}$. Is the measured one much larger?
# - *By a simulation.* Measure 64 equally hard problems 10,000 times: how often do their rates differ at least as much
#   as here?

# %%
from statistics import pstdev

import numpy as np

p = mean(rates_before)
chance = (p * (1 - p) / 8) ** 0.5  # if all problems were equally hard
spread = pstdev(rates_before)
print(f"standard deviation of the measured rates: {spread:.3f}")
print(f"expected if all were equally hard:        {chance:.3f}")

dice = np.random.default_rng(0)
simulated = dice.binomial(8, p, size=(10_000, 64)) / 8  # 64 equally hard problems
as_wide = (simulated.std(axis=1) >= spread).mean()
print(f"equally hard problems look so different in {as_wide:.0%} of simulations")

# %% [markdown]
# The measured rates differ hardly more than by chance: if all problems were equally hard, they would differ as much or
# more in 9 % of measurements. So eight completions each do not show that the problems differ at all. The two problems
# that the filter leaves out may only have been unlucky: a problem with a true pass rate of 30 % has no right completion
# among eight in 6 of 100 tries.
#
# So the filter is not worth its price here. A curriculum needs problems that differ in difficulty, and enough
# completions of each to measure the difference. If yours has both, pass `some_problems.select(chosen.rows)` to the
# trainer, and `shuffle_dataset=False` to `GRPOConfig` to keep their order. (*A case for the filter* comes back to this
# with problems that differ. First come the rewards.)

# %% [markdown]
# ## Three ways, the same number of completions
#
# "First the form, then the answer" is common advice. Our policy is right between its tags in about half of its tries,
# so nearly every group can teach from the start, and the advice should bring nothing here. Does it cost anything? If
# not, you can follow it in every training. If it does, look at your groups first.
#
# Three policies start from the same new adapter and train for 24 steps of 64 completions. They differ in the weights of
# three rewards of chapter 03: *correctness* (`correctness_reward`), *full form* (`strict_format_reward`: the requested
# form and nothing else) and *tags* (`incremental_format_reward`: a quarter for each of the form's four tags in place):
#
# | way | steps 1 to 8 | steps 9 to 24 |
# | --- | --- | --- |
# | *mixed* | correctness 2, full form 0.5, tags 0.5 | correctness 2, full form 0.5, tags 0.5 |
# | *form first* (two stages) | full form 0.5, tags 0.5 | correctness 2, full form 0.5 |
# | *correctness alone* | correctness 1 | correctness 1 |
#
# (The second stage no longer pays for single tags: the first one is there to teach them.)
#
# The measure was fixed before the run: how many of the 240 held-out problems are strictly right (form and number both
# right) after training?
#
# <details><summary>For the curious: is the comparison fair?</summary>
#
# Only the ratios of the weights matter, because the advantages of a group are divided by the standard deviation of its
# rewards (`scale_rewards="group"`). Where only the form varies, it gets advantages of full size, however small its
# weight is. In each trainer the learning rate rises over five steps and then falls to 0. Its mean over the 24 steps is
# the same in all three ways.
#
# </details>

# %% [markdown]
# A stage needs no special tool: it is a second `GRPOTrainer` around the same model. `train` makes one trainer and runs
# it. (`Float32Adapters` keeps the adapter in float32; `RewardBar` prints the newest reward.)

# %%
from grpo_workbook import (
    Float32Adapters, RewardBar, correctness_reward, incremental_format_reward,
    strict_format_reward,
)
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer


def train(
    policy, rewards, weights, steps, problems=train_set, seed=profile.seed, group_size=8
):
    """One trainer; returns its log. The policy's adapter is changed in place."""
    settings = {**profile.grpo, "max_steps": steps, "num_generations": group_size}
    settings.update(seed=seed, data_seed=seed)
    args = GRPOConfig(
        output_dir=str(profile.output / "chapter_07"), reward_weights=weights,
        **settings,
    )
    trainer = GRPOTrainer(
        policy, rewards, args, problems, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry]

# %% [markdown]
# First evaluate the policy before training. The chapter counts answers in four ways (and later once in a form of its
# own):
#
# | name | what counts | used for |
# | --- | --- | --- |
# | *strict* | the right number in the requested form | the comparisons of *Three ways* and *A case for the filter* |
# | *between the tags* | the right number between the answer tags, whatever stands around them | the pass rates, and `correctness_reward` |
# | *lenient* | the right number in any form | beside *strict*: how much of a gain is only form |
# | *well-formed* | the requested form, with any number | how far the form is learned |

# %%
from grpo_workbook import compare, evaluate


def ask_heldout_problems(policy):
    return evaluate(
        policy, tokenizer, heldout_set, sample=True, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


scores = {"before": ask_heldout_problems(policy)}
logs = {}
print(scores["before"])

# %% [markdown]
# *Mixed*: one trainer.

# %%
mixed_policy = policy  # the same object: train changes it in place
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
# and the learning rate warms up again from 0. (*For the curious*, before the summary, tells what the reference of the
# KL penalty is, if you use one.)
#
# *Correctness alone*:

# %%
alone_policy, _ = load_policy(profile)
logs["correctness alone"] = train(alone_policy, [correctness_reward], [1.0], steps=24)
scores["correctness alone"] = ask_heldout_problems(alone_policy)

# %% [markdown]
# ## Did it help?
#
# A *forest plot* answers this. This function draws it:

# %% tags=["hide-input"]
changes = {}


def forest_plot(pairs, title):
    """A row for each pair of policies: the second one's gain, with its interval."""
    figure, (axes,) = figures.new_panels(8.5, 0.9 + 0.3 * len(pairs))
    labels = []
    sentences = []
    for row, (old, new) in enumerate(pairs):
        change = compare(scores[old], scores[new]).strict
        changes[old, new] = change
        low, high = change.gain_interval
        colour, dot = figures.BLUE, "o"
        if change.p_value > 0.05:  # no difference shown
            colour, dot = figures.ORANGE, "s"
        axes.plot([100 * low, 100 * high], [row, row], color=colour, lw=2)
        axes.plot(100 * change.gain, row, dot, color=colour, markersize=7)
        numbers = f"{change.before:.1%} to {change.after:.1%}, p = {change.p_value:.2g}"
        axes.text(1.03, row, numbers, va="center", transform=axes.get_yaxis_transform())
        labels.append(f"{old} → {new}")
        sentences.append(f"{labels[-1]}: {numbers} ({low:+.1%} to {high:+.1%})")
    axes.axvline(0, color="black", lw=1)
    axes.set(xlabel="gain in points, with its 95 % interval", title=title)
    axes.set_yticks(range(len(pairs)), labels)
    axes.set_ylim(len(pairs) - 0.5, -0.5)  # the first pair on top
    figures.show(figure, f"Forest plot. {'; '.join(sentences)}.")

# %% [markdown]
# Each row compares two policies on the same 240 problems, with one sampled answer to each. The mark is the gain of the
# second policy in strictly right answers, the line is its 95 % interval, and the black line is no gain. At the right
# stand both rates and the p-value of the paired test of chapters 00 and 08. A blue dot is a difference (p at most
# 0.05); an orange square means that no difference is shown.
#
# Which of the three would you choose now? Decide before you run the cell:

# %% tags=["hide-input"]
three_ways = ("mixed", "form first", "correctness alone")
pairs = [("before", name) for name in three_ways]
pairs += [
    ("mixed", "form first"),
    ("mixed", "correctness alone"),
    ("form first", "correctness alone"),
]
forest_plot(pairs, "Strictly right answers: which intervals leave out 0?")

# %% [markdown]
# The first three rows compare with the policy before training: it improves in all three ways. The last three rows
# compare the ways with one another: **no difference shown**.
#
# That does not mean that there is none. The intervals against *mixed* reach down to a loss of 9 points, so *form first*
# and *correctness alone* may still be several points worse. And each way was trained once, with one seed: another seed
# could change the order (chapter 08). So it stays open whether the advice costs anything here. I would take *mixed*: no
# other way is shown to be better, it needs one trainer (*form first* needs two), and unlike *correctness alone* it pays
# for the form, too.

# %% [markdown]
# ### Why do the rewards make so little difference?
#
# Look at the groups. The next cell defines the figure that shows them:

# %% tags=["hide-input"]
from grpo_workbook import wilson_interval


def draw_zero_variance(logs, title):
    """The fraction of zero-variance groups, of four steps each; returns it per run."""
    figure, (axes,) = figures.new_panels(8.5, 3.2)
    rates = {}
    sentences = []
    groups = 4 * GROUPS  # in four steps
    shifts = (-0.35, 0, 0.35)  # a little apart, so that all are seen
    for (name, log), shift, look in zip(logs.items(), shifts, figures.STYLES):
        colour, dash, marker = look
        zero = [entry["frac_reward_zero_std"] for entry in log]
        places = [start + 2.5 + shift for start in range(0, len(zero), 4)]
        rates[name] = []
        for number, place in enumerate(places):
            idle = round(GROUPS * sum(zero[4 * number : 4 * number + 4]))
            low, high = wilson_interval([True] * idle + [False] * (groups - idle))
            axes.vlines(place, low, high, color=colour, lw=1)
            rates[name].append(idle / groups)
        axes.plot(places, rates[name], dash, marker=marker, color=colour, label=name)
        numbers = ", ".join(f"{rate:.2f}" for rate in rates[name])
        sentences.append(f"{name}: {numbers}")
    axes.set(xlabel="optimizer step", ylabel="fraction of zero-variance groups")
    axes.set(ylim=(0, 1), xticks=range(0, len(zero) + 1, 4), title=title)
    figure.legend(frameon=False, loc="outside right center")
    return figure, axes, rates, f"Means of four steps. {'; '.join(sentences)}."

# %% [markdown]
# Each line is the fraction of zero-variance groups of one way. A point is the mean of four steps, or 32 groups, and the
# thin line through it is its 95 % interval. At the dotted line *form first* changes its rewards:

# %% tags=["hide-input"]
figure, axes, idle_rates, words = draw_zero_variance(
    logs, "Zero-variance groups of the three ways, one run each"
)
axes.axvline(8.5, color="black", linestyle=":", lw=1)
axes.text(8.8, 0.98, "form first changes\nits rewards", fontsize=9, va="top")
figures.show(figure, words)

# %% [markdown]
# At the start hardly any group has zero variance. Mixed rewards and *form first* are made for a rare form, and here it
# is not rare: about half of the completions have the right number between the tags, and about a quarter have the
# requested form.
#
# The zero-variance groups come later, because the policy has become better: in the last four steps they are 13 of 32
# with mixed rewards, and 15 of 32 with correctness alone. Rewarding parts of the answer does not help against this
# cause.
#
# Do not compare the ends of the lines: each way counts the groups of its own reward. *Form first* ends lowest, with 4
# of 32, but its held-out rate is no higher (one run each).

# %% [markdown]
# ### How much of a gain is only form?
#
# The next cell prints three rates of each policy. *form* is the policy of *form first* after its first trainer:

# %%
for name, score in scores.items():
    print(f"{name:18} strict {mean(score.strict):.1%}", end=", ")
    print(f"lenient {mean(score.lenient):.1%}", end=", ")
    print(f"well-formed {mean(score.well_formed):.1%}")

# %% [markdown]
# Before training 65.8 % of the answers were right in some form, but only 21.2 % in the requested one. The first trainer
# of *form first* never rewards a right answer, and yet the strict rate rises to 60.8 % (*form*): once the form is
# there, the right numbers count.
#
# The sampled numbers became better too: each of the three ways ends with at least 79.6 % strictly right, while before
# training only 65.8 % were right in any form. But the policy hardly learned new arithmetic: without sampling, nearly
# all of its answers had the right number before any training (99 %; a later section, *Five seeds, and the price*,
# prints it). So it probably became surer of what it could already do.

# %% [markdown]
# <details><summary>For the curious: why does correctness alone raise the strict rate too?</summary>
#
# It pays only for the right number between the answer tags. With this model most of the form came along: 91.2 % of its
# answers are well-formed, and 97.5 % after *mixed*. You cannot rely on that: with a reward that also charged for
# length, the same model dropped `</reasoning>`, and its strict rate fell to 0 (exercise 04.2).
#
# </details>

# %% [markdown]
# ## A case for stages
#
# Where could two stages or mixed rewards help? Where the form that is paid for hardly ever occurs. This policy rarely
# leaves out the end tag `</reasoning>`, so this case asks for a form without it, the **open form**. It has three parts:
# a reasoning *without* its end tag, the number in its answer tags, and a sentence with the number at the end. A whole
# answer looks like this:
#
# ```text
# <reasoning>
# 5+7=12
# <answer>12</answer>
# So the answer is 12.
# ```
#
# How often does the policy write each part before any training? The next cell counts them in the 240 sampled answers of
# the evaluation before training:

# %%
import re
from collections import Counter


def parts_in(text):
    """Which of the three parts of the open form a completion has."""
    parts = []
    if text.lstrip().startswith("<reasoning>") and "</reasoning>" not in text:
        parts.append("no end tag")
    if len(re.findall(r"<answer>\d+</answer>", text)) == 1:
        parts.append("number")
    if re.search(r"\nSo the answer is \d+\.\s*$", text):
        parts.append("sentence")
    return tuple(parts)


parts_found = Counter(parts_in(text) for text in scores["before"].completions)
for part in ("no end tag", "number", "sentence"):
    count = sum(times for parts, times in parts_found.items() if part in parts)
    print(f"{part}: {count}")
print(f"only number and sentence: {parts_found['number', 'sentence']}")
print(f"all three: {parts_found['no end tag', 'number', 'sentence']}")

# %% [markdown]
# A sample of 240 answers is small, so the count was repeated with eight seeds, in 1,920 answers
# ([the numbers](../docs/measurements.md)):
#
# - *The whole answer*: 8 of them (0.4 %) have all three parts and the right number. So under a reward for it nearly
#   every group has zero variance, and the reward is near 0.
# - *The rarest part* is the missing end tag: 6.7 % begin with `<reasoning>` and leave it out.
#
# Of the 53 answers with the sentence above, 51 have the number too, but not the first part. This combination will
# matter.

# %% [markdown]
# ### Four ways to pay for the open form
#
# The *whole reward* is 1 for the right number in the open form, and 0 for any other answer. The *parts reward* is 1/3
# for each of the three parts; its part *number* asks only for some number between the answer tags, right or wrong. In a
# way's name, *and number* means a reward beside it: 1 for the *right* number in any form. Four ways with five seeds are
# 20 runs, too many for this notebook, so their results are stored. Each has 24 steps of 64 completions:
#
# | way | steps 1 to 8 | steps 9 to 24 | at most |
# | --- | --- | --- | --- |
# | *whole alone* | whole | whole | 1 |
# | *parts first* (two stages) | parts | whole | 1 |
# | *parts and number* | parts + right number | parts + right number | 2 |
# | *parts, number and whole* | parts + right number + whole | parts + right number + whole | 3 |
#
# Which way would you choose? The folded cell loads the stored runs. `runs` has a row for each run, `stored_rates` has
# their held-out rates in percent, and `ways` lists the names:

# %% tags=["hide-input"]
import pandas as pd
from grpo_workbook import files

path = files.REPO / "benchmarks" / "curriculum_runs.jsonl"
stored = pd.read_json(path, lines=True)
plain = {"base": "before training", "base, other form": "before training, open form"}
plain["strict alone"] = "whole alone"
stored["method"] = stored["method"].replace(plain)
runs = stored.join(pd.DataFrame(list(stored["end"])))
both_rates = ["sampled", "greedy"]
stored_rates = 100 * runs.pivot(index="method", columns="seed", values=both_rates)

ways = ["before training, open form", "whole alone", "parts first"]
ways += ["parts and number", "parts, number and whole"]

# %% [markdown]
# The figure shows how many of the 240 held-out problems are right in the open form. Each dot is a run with a seed of
# its own, and the black line is the median of its row. The two ways that pay for the number in any form are orange:

# %% tags=["hide-input"]
def draw_seeds(methods, orange, title):
    """Sampled and greedy rates of stored runs: a row per method, a dot per seed."""
    figure, panels = figures.new_panels(9.0, 2.8, 2, 2)
    words = []
    for axes, measure in zip(panels, ("sampled", "greedy")):
        for row, method in enumerate(methods):
            rates = stored_rates.loc[method, measure]
            colour = figures.ORANGE if method in orange else figures.BLUE
            heights = [row] * len(rates)
            axes.plot(rates, heights, "o", color=colour, alpha=0.6)
            axes.plot(rates.median(), row, "|", color="black", ms=16)
            words.append(f"{method}, {measure}: {rates.median():.0f}")
        axes.set_xlim(-3, 103)
        axes.set_xlabel("right answers, %")
        axes.set_title(measure)
        axes.set_yticks(range(len(methods)), methods)
        axes.set_ylim(len(methods) - 0.5, -0.5)
    panels[1].set_yticklabels([])
    figure.suptitle(title)
    figures.show(figure, f"Dots of five seeds. Medians in percent: {'; '.join(words)}.")


title = "Parts and number: four of five runs mostly miss the open form"
draw_seeds(ways, orange=ways[3:], title=title)

# %% [markdown]
# *Whole alone* and *parts first* lie close together, and *parts and number* mostly near 0. The next cell prints how far
# each of the three other ways ends from *whole alone* (sampled answers, paired by seed: the mean difference, its 95 %
# interval and its p-value). Then follows one greedy answer of each of the two orange ways:

# %%
from scipy.stats import ttest_rel


def compare_stored(ours, theirs, measure="sampled"):
    """The points between two methods, paired by seed, with 95 % interval and p."""
    first = stored_rates.loc[ours, measure]
    second = stored_rates.loc[theirs, measure]
    gap = (first - second).mean()
    test = ttest_rel(first, second)
    low, high = test.confidence_interval()
    print(f"{ours} minus {theirs}, {measure}:")
    print(f"    {gap:+.1f} points ({low:+.1f} to {high:+.1f}), p = {test.pvalue:.2g}")


for way in ("parts first", "parts and number", "parts, number and whole"):
    compare_stored(way, "whole alone")
for way in ("parts and number", "parts, number and whole"):
    run = runs.query("method == @way and seed == 1").iloc[0]
    print(f"{way}: {run['examples'][0]!r}")

# %% [markdown]
# Were there groups that teach, and what did they teach? The figure compares two of the ways. A thin line is one seed,
# and the thick line is the mean of the five:
#
# - *Left*: the fraction of zero-variance groups.
# - *Right*: the mean reward, with a maximum of its own for each way (1 and 2).

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 3.0, 2, 2)
looks = {
    "whole alone": (figures.BLUE, "-"),
    "parts and number": (figures.ORANGE, "--"),
}
numbers = []
for way, (colour, dash) in looks.items():
    of_way = runs[runs["method"] == way]
    logs_of_way = np.array(list(of_way["log"]))  # (seeds, steps, reward and groups)
    means = logs_of_way.mean(axis=0)
    steps = range(1, len(means) + 1)
    for axes, column in zip(panels, (1, 0)):
        for values in logs_of_way[:, :, column]:
            axes.plot(steps, values, color=colour, alpha=0.3, lw=0.8)
        axes.plot(steps, means[:, column], dash, color=colour, lw=2.2)
    panels[0].plot([], [], dash, color=colour, lw=2.2, label=way)
    numbers.append(
        f"{way}: groups {means[0, 1]:.2f} at step 1, {means[8, 1]:.2f} at step 9, "
        f"reward {means[0, 0]:.2f} to {means[-1, 0]:.2f}"
    )
panels[0].set(title="fraction of zero-variance groups", ylim=(-0.04, 1.04))
panels[1].set(title="mean reward in training", ylim=(-0.08, 2.08))
for axes in panels:
    axes.set(xlabel="optimizer step", xticks=range(0, 25, 4))
figure.suptitle("Parts and number: groups differ, but the whole is rarely learned")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
figures.show(figure, f"Means of five seeds. {'; '.join(numbers)}.")

# %% [markdown]
# *Whole alone* begins with hardly any group that teaches, and at step 9 four of five groups teach. *Parts and number*
# has no zero-variance group at any step, and its reward rises, but only one of its five runs comes near *whole alone*.
# The runs show four things:
#
# - **The whole reward alone works.** A few lucky completions are enough to begin: in the first five steps at most 4 of
#   320 are paid in a run. After 24 steps at least 96 % of the greedy answers are right in the open form.
# - **Two stages are not shown to be better** than *whole alone*: the interval contains 0.
# - **Parts and number misses the open form in most runs**: in four of five at most 22 % of the sampled answers are
#   right after 24 steps.
# - **With the whole reward beside the parts it mostly works**: the greedy answers end at 70 to 96 %. No gain over
#   *whole alone* is shown; the loss (13.1 points when sampled) is not confirmed either, given the number of tests (the
#   fold below).
#
# <details><summary>For the curious: which differences are confirmed?</summary>
#
# There are six tests: the three printed ones, and the same for greedy answers. Holm's correction for six tests confirms
# one difference: *parts and number* is worse when sampled (on average 37.7 points, p = 0.037). For *parts, number and
# whole* the printed 0.018 becomes 0.09, so its loss is not confirmed. The t-test is rough there, because its runs are
# of two kinds; but all five seeds are below *whole alone*, sampled and greedy.
#
# </details>

# %% [markdown]
# ### What went wrong with *parts and number*?
#
# The printed answer of such a run has the end tag. So it has two parts and the right number, and earns 2/3 + 1, of at
# most 2. The third part, no end tag, is rare at the start. So presumably the number and the two common parts decide
# most groups, and the policy learns these, together with the end tag.
#
# So groups that teach are not enough: look at *what* they teach. A reward for parts pays for every answer that has some
# of them. If you need it, pay for the whole as well, or pay for parts for a few steps only, and log the rate of the
# whole answer beside it. (This is one form of one tiny model.)

# %% [markdown]
# ### How long should you wait for paid completions?
#
# Count them at the start. Here about one untrained answer in 240 would be paid. With 64 completions in a step, this is
# about one in four steps, and it was enough. For your run:
#
# - If at least one comes in every few steps, train through the warm-up of the learning rate (here the first five
#   steps), and go on as long as their number grows.
# - If only one comes in hundreds of steps, rather do not wait.
#
# (Only one in four steps was tested, with a learning rate of 1e-3. With 1e-6 to 1e-5, usual for large models, it may
# take many more.)

# %% [markdown]
# ## The filter goes stale
#
# The rest of the chapter asks which problems to choose. At the start the filter left out only 2 of 64 problems. Would
# it still do so after training? Measure the same problems again, with the policy that was trained with mixed rewards:

# %%
rates_after = measure_pass_rates(mixed_policy)
print(f"{mean(rates_after):.0%} right on average, {mean(rates_before):.0%} before")

# %% [markdown]
# The figure counts the problems that have 0, 1, ... 8 right completions of 8, before and after the mixed training. The
# filter would leave out the grey, hatched bars, and a cross marks a bar of height 0.
#
# A black line is the height to expect if all 64 problems were equally hard, with the mean pass rate of the panel. Where
# the bars end near these lines, chance alone can explain the differences between the problems:

# %% tags=["hide-input"]
from math import comb

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
words += " Counted by the right ones among 8 completions. Expected if equally hard:"
for axes, rates in zip(figure.axes, (rates_before, rates_after)):
    axes.set_xlabel("right ones among 8 completions")
    for k in (0, 8):  # what a curriculum leaves out is grey
        axes.patches[k].set(facecolor="#BBBBBB", hatch="//", edgecolor="white")
    p = mean(rates)
    expected = [64 * comb(8, k) * p**k * (1 - p) ** (8 - k) for k in range(9)]
    (marks,) = axes.plot(range(9), expected, "_k", markersize=15, markeredgewidth=2)
    words += f" {', '.join(f'{number:.0f}' for number in expected)};"
label = "expected if all 64 problems were equally hard"
figure.legend([marks], [label], frameon=False, loc="outside lower center", fontsize=9)
figure.set_size_inches(7.0, 3.0)
figures.show(figure, f"{words.removesuffix(';')}.")

# %% [markdown]
# After training, 23 of the 64 problems are right in all eight tries, and a filter measured now would leave them out. So
# measure again before each new trainer.
#
# A part of the 23 is chance too: if every problem had a pass rate of 86 %, 19 of 64 would be right in all eight tries
# (the last black line). So many of the 23 may still fail sometimes, and could still teach.
#
# At the other end two problems have only two of eight right, which chance hardly explains. So, unlike before training,
# the problems clearly differ now.

# %% [markdown]
# ## A case for the filter
#
# Where can a filter win? Where many problems are *never* right, because the data set is too hard for the model. Here is
# such a case, made on purpose: a pool of 16 of the problems above and 112 sums of numbers from 100 to 999. The results
# that the model has learned go up to 65. The policy is the one before training. The form is again the requested one,
# with its end tag. The reward is 1 for a strictly right answer, and 0 for any other.

# %%
generator = random.Random(0)
rows = []
for row in some_problems.select(range(16)):
    rows.append({"question": row["question"], "answer": row["answer"]})
for _ in range(112):
    a = generator.randint(100, 999)
    b = generator.randint(100, 999)
    sentence = f"A box holds {a} red books and {b} blue books."
    question = f"{sentence} How many books are in the box?"
    rows.append({"question": question, "answer": str(a + b)})
pool = to_dataset(load_problems(rows))  # a data set like train_set

# %% [markdown]
# A filter needs the pass rates of this pool. To measure them before training would take 128 x 8 = 1,024 completions, as
# many as 16 steps. But a training samples such completions anyway, in its groups. TRL gives a reward function all
# columns of the data set, the question too, so the function can keep the results of each problem.
#
# `strictly_right` pays for a strictly right answer, and keeps for each completion whether its number is right. (Why the
# number, and not the payment? A problem that is always answered in the wrong form is never paid, but it is not too
# hard.)

# %%
was_right = {}  # question: 1.0 or 0.0 for each of its completions in training


def strictly_right(completions, question, **columns):
    """1 for the right number in the requested form, else 0; keeps the right numbers."""
    right_numbers = correctness_reward(completions, **columns)
    right_forms = strict_format_reward(completions, **columns)
    rewards = []
    for problem, number, form in zip(question, right_numbers, right_forms, strict=True):
        was_right.setdefault(problem, []).append(number)
        rewards.append(min(number, form))
    return rewards

# %% [markdown]
# The training on the whole pool takes 16 steps of eight problems. That is one epoch: each problem has one group of
# eight. Which problems were never right in it?

# %%
policy, _ = load_policy(profile)
epoch = len(pool) // GROUPS  # GROUPS: groups in a step, here 8
pool_logs = {
    "whole pool": train(policy, [strictly_right], [1.0], steps=epoch, problems=pool)
}
scores["whole pool"] = ask_heldout_problems(policy)

pool_rates = [mean(was_right[problem]) for problem in pool["question"]]
possible = [place for place, rate in enumerate(pool_rates) if rate > 0]
print(f"{len(pool) - len(possible)} of {len(pool)} problems were never right")
print(f"{sum(place < 16 for place in possible)} of the 16 solvable ones are kept")

# %% [markdown]
# The epoch finds the large sums without any extra completion. Now a fresh copy of the policy trains for 16 steps on the
# 16 problems that are left. The two runs differ only in their problems: each of these 16 gets eight groups instead of
# one. (In your own training you would go on with the same policy, as a stored run below does.) What do you expect of
# the reward and of the zero-variance groups in the two runs?

# %%
policy, _ = load_policy(profile)
pool_logs["chosen"] = train(
    policy, [strictly_right], [1.0], steps=epoch, problems=pool.select(possible)
)
scores["chosen"] = ask_heldout_problems(policy)

# %% [markdown]
# The figure is of the same kind as that of the three ways. Below it stand, for each run, the fraction of zero-variance
# groups, and the mean reward of the first and of the last four steps:

# %% tags=["hide-input"]
figure, _, pool_idle, words = draw_zero_variance(
    pool_logs, "Zero-variance groups with and without the filter, one run each"
)
figures.show(figure, words)
for name, log in pool_logs.items():
    rewards = [entry["reward"] for entry in log]
    idle = mean(pool_idle[name])
    print(f"{name}: {idle:.0%} of {len(pool)} groups have zero variance", end=", ")
    print(f"reward {mean(rewards[:4]):.2f}, then {mean(rewards[-4:]):.2f}")

# %% [markdown]
# With the whole pool 88 % of the groups teach nothing. The reward stays near 0, and it cannot rise far: only 16 of the
# 128 problems are ever right, so its mean over the pool is at most 0.13. (The 0.17 of the bar above is of one step,
# with only eight problems.) Does this cost anything on the held-out problems, of which none is a large sum?

# %% tags=["hide-input"]
pairs = [("before", "whole pool"), ("before", "chosen"), ("whole pool", "chosen")]
forest_plot(pairs, "Strictly right answers: did the chosen problems teach more?")

# %% [markdown]
# In this run it does: 65.8 % are strictly right after the whole pool, and 77.5 % after the chosen problems.

# %% [markdown]
# ### Five seeds, and the price
#
# The stored runs repeat both with five seeds; each seed draws its own pool. Is the filter also worth its completions?
# The last column counts those for measuring the pool too:
#
# | training | steps | completions |
# | --- | --- | --- |
# | *whole pool* | 16 | 1,024 |
# | *chosen* | 16 | 2,048: 1,024 to measure the pool, then 1,024 |
# | *whole pool, 32 steps* | 32 | 2,048 |
# | *whole pool, then chosen* | 16 and 16, the same policy | 2,048: the first 16 steps count as the measurement |
#
# One simplification: no stored run really measured. In all of them the chosen problems are the 16 solvable ones, which
# the epoch above found exactly. The price of the measurement is counted all the same.
#
# Dots and black lines are as in the figure of the four ways. The trainings on chosen problems are orange:

# %% tags=["hide-input"]
pools = ["before training", "whole pool", "chosen"]
pools += ["whole pool, 32 steps", "whole pool, then chosen"]
title = "Chosen problems: better when sampled, close together when greedy"
draw_seeds(pools, orange=["chosen", "whole pool, then chosen"], title=title)

# %% [markdown]
# When sampled, the orange rows lie mostly to the right of the blue ones; when greedy, all trained rows lie close
# together. How large are the differences? The next cell prints four mean differences, paired by seed (the black lines
# of the figure are medians). The first two compare as many steps, and the last two as many completions:

# %%
compare_stored("chosen", "whole pool")
compare_stored("chosen", "whole pool", "greedy")
compare_stored("chosen", "whole pool, 32 steps")
compare_stored("whole pool, then chosen", "whole pool, 32 steps")

# %% [markdown]
# Two checks before you read these: how many groups taught, and did the policy learn new numbers? The next cell counts
# the zero-variance groups, and the greedy answers with the right number in any form:

# %%
for method in ("whole pool", "chosen"):
    fractions = []
    for log in runs[runs["method"] == method]["log"]:
        fractions.extend(fraction for _, fraction in log)
    print(f"{method}: {mean(fractions):.0%} of the groups have zero variance")
for method in ("before training", "whole pool", "chosen"):
    lenient = runs[runs["method"] == method]["greedy lenient"].mean()
    print(f"{method}: {lenient:.1%} of the greedy answers right in any form")

# %% [markdown]
# Read the runs in three steps:
#
# 1. *Did the filter do its work?* Yes. 89 % of the groups of the whole pool have zero variance, and 27 % of those of
#    the chosen problems.
# 2. *Did the policy learn more in as many steps?* When sampled, yes: 8.8 points [4.3, 13.4]. For greedy answers no
#    difference is shown: both are above 92 % there.
# 3. *Did it learn more from as many completions, the measuring included?* Not confirmed. When sampled, the two
#    trainings on chosen problems end 4.8 and 6.4 points above *whole pool, 32 steps*. The first does not hold given the
#    number of tests (the fold below), and the interval of the second contains 0.

# %% [markdown]
# ### What did the policy learn?
#
# With the filter more than six times as many groups teach (73 % instead of 11 %), but the sampled answers gain only 8.8
# points. The policy learns the form and surer sampling, not new numbers. When the form is ignored, 99 % of the greedy
# answers were right before any training, and fewer after it, 95 % with the whole pool and 96 % with the chosen
# problems.
#
# One warning: a filter helps to learn what is paid for, and nothing else. Two earlier versions of this experiment paid
# for correctness alone (one seed each), and there the filter gave a lower strict rate
# ([the numbers](../docs/measurements.md)).
#
# <details><summary>For the curious: how sure are these results, and why is the gain small?</summary>
#
# There are six tests: the three pairs printed above, each sampled and greedy. The 8.8 points hold with Holm's
# correction for the six tests as well (p = 0.034), but the 4.8 points do not: the printed 0.032 becomes 0.13. This
# trusts the t-test with five pairs. A test of the signs alone cannot go below 0.06 with five; here all five seeds point
# the same way. The greedy answers of the chosen problems are 0.9 points [-1.5, 3.3] above the whole pool, and 2.7 [0.5,
# 4.8] above its 32 steps, which is not confirmed after the correction (p = 0.13).
#
# Presumably the gain is small for two reasons (neither was tested). The form is soon learned: the greedy answers are at
# least 90 % right in all of these trainings. And AdamW divides the gradient by its usual size: a step with one group
# that teaches is noisier, but hardly shorter, than one with six.
#
# </details>
#
# <details><summary>For the curious: which bounds, and which order, do others take?</summary>
#
# Here only the problems that are never right are left out.
# [Eurus-2-7B-PRIME](https://huggingface.co/PRIME-RL/Eurus-2-7B-PRIME) keeps prompts on which the policy is right in 20
# to 80 % of its answers. [Olmo 3](https://arxiv.org/abs/2512.13961) takes eight completions of each prompt before the
# training and leaves out those with more than 62.5 % right.
#
# Why narrower bounds? A group that differs does not always teach as much: with rewards of 0 and 1, the sizes of its
# advantages add up to a sum in proportion to $\sqrt{p(1-p)}$ (p: the fraction that is right). So a group with one right
# of eight has two thirds of the advantages of one with four. ([Bae et al.](https://arxiv.org/abs/2504.03380) derive a
# lower bound of the improvement from the variance $p(1-p)$.) The price is that fewer problems are repeated more often,
# so watch the held-out rate.
#
# And the order? [Kimi k1.5](https://arxiv.org/abs/2501.12599) begins with easier problems and samples those with a low
# success rate more often. This chapter has not tested that.
#
# </details>

# %% [markdown]
# ## Dynamic sampling: the filter at every step
#
# The method DAPO ([2503.14476](https://arxiv.org/abs/2503.14476)) filters during training: it discards zero-variance
# groups and samples more until the batch is full. If a fraction z of the groups has zero variance, a full batch takes
# $1 / (1 - z)$ times as many samples. What would that have cost in the mixed run, if the policy had developed in the
# same way? (`idle_rates` are the points of the figure of the three ways.)

# %%
starts = range(1, 25, 4)
for start, fraction in zip(starts, idle_rates["mixed"]):
    price = 1 / (1 - fraction)
    print(f"steps {start:2} to {start + 3:2}: {fraction:4.0%} zero-variance", end=", ")
    print(f"{price:.2f} completions sampled for each one used")

# %% [markdown]
# What does this price buy? Not more groups that teach: a thousand sampled completions contain as many as without it.
# But each training step then has a full batch of groups that teach, so its gradient does not get noisier as problems
# are mastered. For the same completions there are fewer such steps. In DAPO's ablation dynamic sampling raised the
# score on AIME 2024 from 42 to 50 (with a model of 32B weights; each of its steps takes more samples).

# %% [markdown]
# ### Which filter should you use?
#
# | | filter before training | filter from the groups of the last epoch | dynamic sampling |
# | --- | --- | --- | --- |
# | When are the problems measured? | once, before the training | in every epoch, for the next one | in every batch |
# | What does it cost? | completions before the first step | nothing extra (`was_right` above) | the discarded groups |
# | Does it go stale? | yes | partly: a rate is up to an epoch old or, for a problem left out, older | no |
# | Does it save sampling later? | yes, while the pass rates stay the same | yes, while the pass rates stay the same | no |
#
# In TRL, the filter from the groups of the last epoch is the cheapest to try, because it costs no extra completions. In
# the case above no gain from it is confirmed (*whole pool, then chosen*). Bring the problems that it leaves out back
# from time to time, or they are never measured again.
#
# TRL 1.15 has no option for dynamic sampling ([issue 3708](https://github.com/huggingface/trl/issues/3708)). The
# libraries verl and NeMo-RL have one.

# %% [markdown]
# ## Which cause have you?
#
# Find your row by the fraction, the reward and the column *how to tell* (exercise 07.5 puts the words into numbers):
#
# | row | fraction of zero-variance groups | reward | how to tell | the cause |
# | --- | --- | --- | --- | --- |
# | 1 | high from the first step on | near 0 | - | the reward asks for too much at once, or the problems are too hard |
# | 2 | rises, or is high from the first step on | near its maximum | read some completions (chapter 03) | the policy has nearly mastered the problems, or it fools the reward |
# | 3 | in between or high from the first step on | in between | many pass rates are near 0 or 1 | some problems are never right, or others always |
# | 4 | in between or high from the first step on | in between | few pass rates are near 0 or 1 | small groups, or a lower `temperature` than the pass rates were measured with |
# | 5 | rises | levels off well below its maximum | the entropy is near 0: even wrong completions are alike | the policy has lost its variety (*entropy collapse*, chapter 05) |
# | 6 | rises | levels off well below its maximum | the entropy is not near 0: the wrong completions differ | some problems are mastered, and the others are too hard |
#
# *What to do, by row:*
#
# 1. Wait if paid completions come often enough (*How long should you wait for paid completions?*). Otherwise train
#    first with SFT (chapter 00), pay for parts of the answer for a few steps, or leave out the problems that are never
#    right.
# 2. If mastered: stop, take harder problems, train on those that are still often wrong, or use dynamic sampling (none
#    of this was tested here). If fooled: mend the reward.
# 3. Leave out the problems near 0 and 1.
# 4. Set `temperature` to 1; take larger groups if you can afford more completions (exercise 07.2).
# 5. Go back to an earlier checkpoint, and train from there with a lower learning rate or a bonus for entropy
#    (`entropy_coef`; chapter 05 has more).
# 6. Look at the problems that are still wrong. If hardly any of their completions was right before training, they are
#    too hard: do for them what row 1 says.
#
# Two cases of this chapter belong to row 1: the open form under the whole reward, and the whole pool of the filter. The
# mixed run belongs to row 2. The rows 3 to 6 do not occur in the runs: they follow from the formula above and from
# chapter 05.

# %% [markdown]
# ### What the table leaves out
#
# - **The fraction rises while the reward falls to 0.** The training broke the policy: go back to an earlier checkpoint,
#   with a lower learning rate.
# - **It is row 3, but the filter leaves hardly any problem, and the entropy is near 0.** The policy was too sure before
#   the training: begin from an earlier checkpoint of its SFT (not tested).
# - **The fraction is low.** This does not prove that all is well: *parts and number* had no zero-variance group and a
#   rising reward, and missed the open form in most runs.
# - **There are several rewards.** `frac_reward_zero_std` is computed from their weighted sum. A group of eight wrong
#   answers has some variance if only their form varies: it can teach the form, but nothing about correctness. So look
#   at the mean of the correctness reward by itself too (`rewards/correctness_reward/mean` in TRL's log).

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
# Before your own training, find out which cause you have. Name a file (.jsonl, .csv, .parquet with the columns
# `question` and `answer`), or write at least 8 rows. The cell measures their pass rates with the tiny Qwen3 before GRPO
# (not with tiny-form, whose messy forms would hide what it can solve), 8 completions for each problem. Predict which
# sort makes up more than half of them: "hopeless" (0 of 8 right), "can teach", "mastered" (8 of 8), or "none" if no
# sort does. Then read the printed rates: which problems would you make easier, and which harder? To use your own model,
# set `GRPO_WORKBOOK_MODEL` or give `model=` to `choose_profile`.

# %% tags=["exercise"]
prediction = ...  # "hopeless", "can teach", "mastered" or "none"
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
    policy, own_tokenizer = load_policy(own)
    mine = to_dataset(load_problems(PROBLEMS))
    mine = mine.select(range(min(64, len(mine))))
    tokens = own.grpo["max_completion_length"]
    rates = pass_rates(
        policy, own_tokenizer, mine, samples=8, max_new_tokens=tokens,
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
# prediction = "hopeless"
# ```
#
# This is the answer for the rows above and the tiny Qwen3: "3 shells and 4 more" is always right, "48 shells and 7
# more" in three of its eight samples, and the other six problems never. If most of your problems are hopeless, begin
# with easier problems, SFT, or a reward with partial credit. If most are mastered, find harder ones. If most can teach,
# train.
#
# </details>

# %% [markdown]
# ### Exercise 07.4 · `steps_to_pay_back` · hard · 15 minutes
#
# After how many steps has a filter paid for its measurement? `rates` are the pass rates of all problems, each measured
# with `samples` completions; take them as true and constant. The filter leaves out the problems with a rate of 0 or 1.
#
# A training step takes `completions` completions. With the filter, each of them goes to a problem that can teach.
# Without it, some go to problems that cannot teach. For as many completions of problems that can teach, a step must
# then be larger. These extra completions are what the filter saves in each step. Return the smallest number of steps
# after which the savings are at least as many completions as the measurement took, or `None` if the filter leaves out
# no problem, or all of them. Example: if it keeps 8 of 16 problems, with 8 samples and steps of 64, the answer is 2.

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
# The first filter of this chapter would pay back after 248 steps, ten times as many as the first runs have. Measured
# after training, a filter would pay back after 15 steps, if the pass rates were true and stayed as they are. In fact
# some of the 23 problems that it leaves out could still teach, so it takes longer. With the pool of large sums,
# measured before the training, it would pay back after 3 steps. (This counts groups that teach, and it is a lower
# bound: no gain was confirmed above when the measurement is counted.)
#
# </details>
#
# Apply your function to the three measurements of this chapter. In how many steps would the first filter have paid for
# itself, and how much had the pass rates changed after 24 steps?

# %%
measurements = {
    "before training": rates_before,
    "after it": rates_after,
    "in the pool": pool_rates,
}
try:
    for when, rates in measurements.items():
        steps = steps_to_pay_back(rates, samples=8, completions=64)
        print(f"a filter measured {when} pays back after {steps} steps")
except NotImplementedError:
    print("Write steps_to_pay_back first, then run this cell.")

# %% [markdown]
# ### Exercise 07.5 · `row_of_cause` · medium · 12 minutes
#
# Read a log with the table above (*Which cause have you?*): return the number of its row, 1 to 6. `zero` (the fraction
# of zero-variance groups), `reward` (at most 1) and `entropy` have one value for each step, and `rates` are the pass
# rates of the problems before training. The start is the mean of the first four steps, the end that of the last four.
#
# If the fraction ends below 0.3, most groups teach (perhaps the wrong thing, as with *parts and number*), and the
# answer is `None`. Otherwise the words of the table mean, in numbers:
#
# - the fraction *rises* if its end is at least 0.3 above its start;
# - the reward is *near 0* if it ends at 0.1 or below, and *near its maximum* if it ends at 0.8 or above (then the row
#   is 1 or 2, whatever the fraction did before; no log here has a reward that falls);
# - the entropy is *near 0* if it ends at 0.05 or below;
# - *few* pass rates are near 0 or 1 if less than a quarter of them are 0 or 1.
#
# In which order must you ask?

# %% tags=["exercise"]
def row_of_cause(
    zero: list[float], reward: list[float], entropy: list[float], rates: list[float]
) -> int | None:
    raise NotImplementedError


check("07.5", row_of_cause);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The reward decides the first two rows, whatever the rest of the log shows. Only then ask whether the fraction rises:
# this divides the rows 3 and 4 from 5 and 6. Which number divides each of these pairs?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean
#
#
# def row_of_cause(
#     zero: list[float], reward: list[float], entropy: list[float], rates: list[float]
# ) -> int | None:
#     zero_end = mean(zero[-4:])
#     reward_end = mean(reward[-4:])
#     if zero_end < 0.3:
#         return None
#     if reward_end <= 0.1:
#         return 1
#     if reward_end >= 0.8:
#         return 2
#     if zero_end - mean(zero[:4]) >= 0.3:
#         if mean(entropy[-4:]) <= 0.05:
#             return 5
#         return 6
#     at_the_ends = rates.count(0) + rates.count(1)
#     if at_the_ends / len(rates) >= 0.25:
#         return 3
#     return 4
# ```
#
# Three logs of the check are made up after this chapter's runs: *whole alone* after six steps (row 1) and at its end
# (`None`), and the mixed run (row 2). The others are invented, as are the bounds: for your run, take them as a start.
#
# </details>

# %% [markdown]
# ## For the curious: the KL reference of a second trainer
#
# With `beta` above 0 the KL penalty pulls the policy towards a *reference*. For a second trainer on the same adapter,
# this is a copy of the adapter or the base model. The cell prints the KL at the first step with each:
#
# <details><summary>Which trainer has which reference?</summary>
#
# | trainer | reference |
# | --- | --- |
# | TRL 1.15, given a model with an adapter | a frozen copy of the adapter under the name `ref`, made with the trainer |
# | TRL 1.15, which makes the adapter itself (`peft_config=`) | the base model, with the adapter turned off |
# | Unsloth's (on a GPU) | the base model: `unsloth/models/rl.py` removes the lines that make the copy |
# | either, with a fresh adapter | the base model in effect, because a fresh adapter changes nothing |
#
# (Unsloth's behaviour on a GPU was read in its source, not measured.)
#
# </details>

# %% tags=["hide-input"]
kl_at_start = {}
for name in ("copy of the adapter", "base model"):
    settings = {**profile.grpo, "max_steps": 1, "beta": 0.1, "learning_rate": 5e-4}
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
# With the copy the KL begins at 0: the policy *is* its reference at that moment. So a new reference in each stage no
# longer keeps the policy near the base model.

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did not
# help.

# %% tags=["remove-cell"]
import json

proved = {
    "steps": [len(form_log), len(correct_log)],
    "before": scores["before"].rate,
    "after": scores["form first"].rate,
    "mixed": scores["mixed"].rate,
    "p_values": [
        compare(scores["before"], scores["form"]).strict.p_value,
        changes["before", "mixed"].p_value,
    ],
    "kl_begins": kl_at_start,
    "pass_rates": [mean(rates_before), mean(rates_after)],
    "zero_variance": {name: mean(idle) for name, idle in pool_idle.items()},
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
    idle = proved["zero_variance"]
    assert idle["chosen"] < idle["whole pool"] - 0.4, "the filter took nothing out"

# %% [markdown]
# ## Summary
#
# Many groups have zero variance: what should you do?
#
# - Find the cause first, with the table above (rows 1 to 6): the log and the pass rates show it.
# - If most groups earn nothing, count the paid completions. If at least one comes in every few steps, wait as long as
#   their number grows: at one in 240, and a learning rate of 1e-3, the whole reward alone was enough.
# - A reward for parts makes more groups differ, but it may teach another answer: *parts and number* missed the open
#   form in most runs (five seeds, 24 steps). So log the rate of the whole answer.
# - If problems are never right or always right, leave them out, but first compare their number with chance: eight
#   completions are few. The pass rates change with training, so a filter goes stale; dynamic sampling does not, but has
#   its cost in every batch.
# - Where seven of eight problems were never right, the filter made the sampled answers 8.8 points better after the same
#   number of steps (five seeds). No gain is confirmed if the measurement is counted too, and a filter helps only with
#   what is paid for.
# - A stage is a second trainer around the same adapter. Two stages were nowhere shown to be better (one run each in
#   *Three ways*, five seeds in the case made for them).
# - Before you believe that one way is better, fix the measure, run several seeds, and report the result in any case.
#
# Next: [08 · Evaluation](08_evaluation.ipynb): how do you measure whether training helped?
