# %% [markdown]
# # 00 · Start here
#
# How can a language model get better at a task for which nobody has written solutions? This chapter answers the
# question with one run: a small model is trained for about half a minute with GRPO, the method of this course, and is
# then tested on problems that it has never seen.
#
# **After this notebook you can** explain how GRPO learns, train a small model with it, check on unseen problems that
# the model improved, and say when another method fits better.
#
# **Time:** about 1 minute on two CPU cores, half of it training. Reading takes about 20 minutes. **You need** Python,
# an idea of what a language model does, and no mathematics beyond a mean and a standard deviation.

# %% [markdown]
# ## Why this method
#
# The usual way to train a model further is to let it imitate written solutions. For most tasks nobody has written any.
# For many tasks, however, a *program* can check an answer: a number is right or wrong, code passes its tests or fails
# them. Training with such checks is called **reinforcement learning with verifiable rewards** (RLVR).
#
# RLVR became known through reasoning models. [DeepSeek-R1-Zero](https://arxiv.org/abs/2501.12948) was made from a
# pre-trained base model without any further written solutions. Programs rewarded two things: a right final answer, for
# example in mathematics or programming, and a fixed form of the answer. Under these rewards alone its share of right
# answers in a mathematics contest, AIME 2024, rose from 15.6 % to more than 70 %, and its chains of thought before the
# answer grew much longer. The algorithm was **Group Relative Policy Optimization** (GRPO,
# [Shao et al. 2024](https://arxiv.org/abs/2402.03300)), the subject of this course.

# %% [markdown]
# ## The loop
#
# The model in training is called the **policy**. It answers the same question several times; these answers are a
# **group**. A program checks each answer and gives it a **reward**. Answers with a reward above the mean of their group
# become a little more likely, and answers below it become a little less likely. Then the policy answers the next
# questions.
#
# How much more or less likely depends on the **advantage**: the reward minus the mean of its group, divided by the
# group's standard deviation. Because of the division, a group whose rewards lie close together counts as much as one
# whose rewards lie far apart.
#
# The figure shows one round. In it, an answer earns 3 for the right number inside `<answer>` tags, 1 for the tags with
# a wrong number, and 0 without the tags.
#
# An older method, PPO, compares each reward with a prediction. The prediction comes from the **critic**, a second model
# that is trained, too. GRPO compares with the mean of the group instead, so no arrow leads to the critic, the grey box.

# %% tags=["hide-input"]
from grpo_workbook import figures

right = "<answer>42</answer>"
group = f"{right}\nThe answer is 42.\n<answer>41</answer>\n{right}"
data, number, off = figures.PALE["data"], figures.PALE["number"], figures.PALE["off"]
boxes = {
    "prompt": (0.09, 0.68, "prompt\n“What is 6 x 7?\nUse <answer> tags.”", data),
    "policy": (0.265, 0.68, "policy\n(the model)", figures.PALE["model"]),
    "answers": (0.56, 0.68, f"a group of 4 answers\n{group}", data),
    "checker": (0.77, 0.68, "checker\n(a program)", figures.PALE["check"]),
    "rewards": (0.93, 0.68, "rewards\n3\n0\n1\n3", number),
    "advantages": (0.75, 0.12, "advantages\n+0.8, -1.2, -0.5, +0.8", number),
    "critic": (0.265, 0.12, "not needed:\na critic, as in PPO", off),
}
arrows = [
    ("prompt", "policy", ""), ("policy", "answers", "samples"),
    ("answers", "checker", ""), ("checker", "rewards", ""),
    ("rewards", "advantages", "subtract the mean, divide by\nthe standard deviation"),
    ("advantages", "policy", "above 0: more likely\nbelow 0: less likely"),
]
figure = figures.diagram(boxes, arrows, (9.5, 3.6))
figure.suptitle("GRPO compares the answers of a group, so it needs no critic")
figures.show(
    figure,
    "The loop of GRPO: from a prompt the policy samples a group of 4 answers; a "
    "checker gives them the rewards 3, 0, 1 and 3; these minus their mean, divided by "
    "their standard deviation, become advantages, which change the policy. The critic "
    "that PPO would need stands apart, and no arrow leads to it.",
)

# %% [markdown]
# The next cell computes the advantages of these four answers:

# %%
from statistics import mean, stdev

answers = [
    "<answer>42</answer>",  # right, in the tags
    "The answer is 42.",  # right, without the tags
    "<answer>41</answer>",  # wrong number
    "<answer>42</answer>",
]
rewards = [3.0, 0.0, 1.0, 3.0]
for answer, reward in zip(answers, rewards):
    advantage = (reward - mean(rewards)) / stdev(rewards)
    print(f"{answer:22} reward {reward:.0f}   advantage {advantage:+.2f}")

# %% [markdown]
# Nobody wrote a solution that the model could imitate, and no second model acted as a judge. GRPO needs two things: a
# check that you trust, and a model that *sometimes* passes this check.
#
# Why sometimes? If all answers of a group earn the same reward, each reward equals the mean. Then every advantage is 0,
# and the rewards of this group teach the model nothing. Such a group is called a **zero-variance group**. (Its standard
# deviation is 0, too. Trainers add a tiny number to it, so that nothing is divided by 0.)

# %% [markdown]
# ### Exercise 00.1 · `teaches` · easy · 3 minutes
#
# Every chapter has exercises that check themselves: a wrong answer gets a message about the mistake. Here the
# function gets the rewards of one group. Return `True` if the group teaches the model anything, that is, if any of
# its advantages differs from 0 by more than a rounding error. Rewards may be negative, and every group has at least
# two.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def teaches(rewards: list[float]) -> bool:
    raise NotImplementedError


check("00.1", teaches);

# %% [markdown]
# <details><summary>Hint</summary>
#
# When are all rewards of a group equal to the group's mean? Compare the rewards with each other: a computed mean is
# rounded, so even equal rewards may differ from it a little.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def teaches(rewards: list[float]) -> bool:
#     return max(rewards) > min(rewards)
# ```
#
# </details>

# %% [markdown]
# ## A short run of GRPO
#
# The task of this run is to solve a word problem and to give the number in a fixed form. One of the problems is: *A
# shop had 29 ribbons in the morning and sold 6 of them by noon. How many ribbons were not sold?* The working must stand
# inside `<reasoning>` tags, and the number, 23, inside `<answer>` tags.
#
# The model is *tiny-form*, a Qwen3 with only 0.67 million weights. We made it for lessons about form
# ([its card](../data/tiny-form/README.md) tells how). It first learned to solve such problems by imitating solutions
# that a program wrote; this stands in for the pre-training of a large model. Then it learned, on purpose, to answer
# badly: mostly in messy forms, sometimes with a guess or with an error in the working. It has never seen the problems
# of this chapter.
#
# So GRPO starts here, as it mostly does, from a model that passes the check sometimes. GRPO itself gets no solutions,
# only the right numbers, which the check needs.
#
# A **profile** holds the settings that fit a machine. The profile *smoke* and the tiny model make the run short on any
# machine. If you have a GPU, [chapter 04](04_grpo_run.ipynb) trains a real Qwen3 or Gemma 3 with the same code.

# %%
from grpo_workbook import choose_profile, quiet, use_one_thread
from grpo_workbook.config import DATA

quiet()  # fewer warnings of the libraries
use_one_thread()  # for a tiny model several threads only wait for each other
profile = choose_profile(
    "smoke", model=DATA / "tiny-form", heldout=160, grpo={"max_steps": 40}
)
print(profile)

# %% [markdown]
# The last two lines are about the training; *NF4* and *LoRA rank* are explained with the next cell. A *completion* is
# one answer. At each of the 40 *steps* the policy answers 10 problems, 8 times each. So a step has 80 completions. Then
# the weights are changed once.
#
# The learning rate of 0.0015 suits only a model as tiny as this one. [Chapter 04](04_grpo_run.ipynb) gives the much
# lower rates for real models.

# %% [markdown]
# Now load the model. Three libraries work together: *Transformers* runs the model, *TRL* (Transformer Reinforcement
# Learning) has the GRPO trainer, and *Unsloth* makes both faster on a GPU.
#
# The model's own weights are *frozen*: training does not change them. They are stored in 4 bits, in a format called
# NF4, so that a large model fits a small GPU. (The tiny model does not need this.) Training changes only a **LoRA
# adapter**: small matrices that `load_policy` adds beside the frozen ones. The *rank* that was printed above, 16, is
# the length of their short side.
#
# Without a GPU, the first line of the output below names only another trainer, `SFTTrainer`. GRPO runs on a CPU, too;
# [chapter 04](04_grpo_run.ipynb) explains why.

# %%
import os

if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
import unsloth  # before TRL and Transformers: it changes parts of both
from grpo_workbook import load_policy

model, tokenizer = load_policy(profile)

# %% [markdown]
# Now load the problems. Some of them are **held out**: the model never trains on them. This run needs 400 of the 2,400
# training problems, 10 for each of its 40 steps, and 160 held-out ones. The cell prints the first held-out problem, as
# the model gets it.

# %%
from grpo_workbook import data, load_problems, to_dataset

train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"])
heldout_set = to_dataset(heldout_rows.select(range(profile.heldout)))
for message in heldout_set[0]["prompt"]:
    print(f"{message['role']}: {message['content']}")
print("right answer:", heldout_set[0]["answer"])

# %% [markdown]
# Measure the model before training. An answer is *strictly* right if both its number and its form are right.
#
# The answers are **sampled**: each token is drawn at random with the probability that the model gives it (this is
# sampling at temperature 1). Training will sample in the same way, because GRPO needs answers that differ. Sampling
# also draws answers that the policy rarely writes; trying such answers is called **exploration**.

# %%
from grpo_workbook import evaluate


def ask_heldout_problems(policy, seed=profile.seed, sample=True):
    return evaluate(
        policy, tokenizer, heldout_set, sample=sample, seed=seed,
        batch_size=profile.eval_batch_size, max_new_tokens=64,
    )


before = ask_heldout_problems(model)
print(f"{sum(before.strict)} of {before.n} held-out problems strictly right\n")
print(before.completions[0])

# %% [markdown]
# The first answer has the right number, but not inside the `<answer>` tags that the system message asks for. So this
# answer is not strictly right.
#
# Now the rewards. Three reward functions each give an answer a number from 0 to 1. TRL multiplies each number by a
# weight and adds up the results:
#
# - `correctness_reward`, weight 2, is for the right number inside `<answer>` tags.
# - `strict_format_reward`, weight 0.5, is for the whole requested form.
# - `incremental_format_reward`, weight 0.5, is for parts of this form: a quarter for each of the four tags, in
#   their order; the count stops at the first tag that is missing or out of place. So answers can earn different rewards
#   even if none has the whole form.
#
# The answer above gets 0, 0 and, for its two `<reasoning>` tags, 0.5. Weighted, this is 0.25 of at most 3.
#
# Now train. `GRPOConfig` and `GRPOTrainer` are TRL's own classes; the profile supplies most arguments of `GRPOConfig`.
# `Float32Adapters` keeps the adapter's numbers in 32 bits; TRL would round them to 16, which can lose small changes.
# `RewardBar` shows the mean reward and the mean length in tokens. (The bar below shows more than half a minute: the
# stored run was made on a slower machine.)
#
# <details><summary>For the curious: two settings that differ from the paper of 2024</summary>
#
# As in many runs today, there is no KL penalty (`beta` is 0), and the loss averages over all tokens of a step
# (`loss_type="dapo"`). [Chapter 01](01_grpo_from_scratch.ipynb) explains both.
#
# </details>

# %%
from grpo_workbook import (
    Float32Adapters, RewardBar, correctness_reward, incremental_format_reward,
    strict_format_reward,
)
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(
    output_dir=str(profile.output / "start"), reward_weights=[2.0, 0.5, 0.5],
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
# The next figure shows how the rewards change during training. The blue line is the weighted total, which can reach 3.
# The other lines are the three rewards before weighting, each of which can reach 1. Pale lines show single steps, and
# strong lines are smoothed. The title compares the first five steps with the last five.

# %% tags=["hide-input"]
log = [entry for entry in trainer.state.log_history if "reward" in entry]
figure, words = figures.reward_curves(log)
first = mean(entry["reward"] for entry in log[:5])
last = mean(entry["reward"] for entry in log[-5:])
figure.axes[0].set_title(f"The mean reward goes from {first:.1f} to {last:.1f} of 3")
figure.axes[0].set_ylabel("mean reward")
weights = {"total": "at most 3", "correctness": "weight 2"}
for label in figure.legends[0].get_texts():
    name = label.get_text()
    label.set_text(f"{name} ({weights.get(name, 'weight 0.5')})")
figure.set_size_inches(8, 3.6)  # room for the longer legend
figures.show(figure, words)

# %% [markdown]
# So the reward rises. The form is learned first: from about step 12 its two lines lie on top of each other, close to 1,
# while the correctness is still lower.
#
# The correctness starts above 0.5, far above the 21 % of strictly right answers on the held-out problems, because many
# answers have the right number inside `<answer>` tags but another fault of form, such as a sentence after the last tag.

# %% [markdown]
# ## Did it learn?
#
# A rising reward does not prove that the model learned the task. It may have memorized the training problems, so let it
# answer the held-out ones. Or it may exploit a weakness of the reward, so read one of its answers, too.
#
# The held-out problems are only a sample of all problems, and each answer is only one draw. So each rate comes with a
# 95 % **interval**: in 95 % of such measurements it contains the true rate.

# %%
after = ask_heldout_problems(model)
for name, scores in (("before", before), ("after", after)):
    low, high = scores.interval
    print(f"{name:6} {scores.rate:.1%}  (95 % interval: {low:.1%} to {high:.1%})")
print()
print(after.completions[0])

# %% [markdown]
# Can chance explain the difference? Both models answered the *same* problems, so compare problem by problem. A problem
# is *gained* if its answer was wrong before training and right after it, and *lost* in the opposite case. If training
# had changed nothing, gains and losses would be equally likely, like heads and tails. The **p-value** `p` is the
# probability that coin tosses give a result at least as one-sided as the measured one.

# %%
from collections import Counter

from grpo_workbook import paired_p_value

pairs = Counter(zip(before.strict, after.strict))
gained = pairs[False, True]
lost = pairs[True, False]
p_value = paired_p_value(before.strict, after.strict)
print(f"{gained} problems gained, {lost} lost: p = {p_value:.1g}")

# %% [markdown]
# The next figure shows, on the left, the fraction of strictly right answers with its 95 % intervals, and on the right
# the problems, sorted by their results before and after training.

# %% tags=["hide-input"]
figure, (left, right) = figures.new_panels(8.5, 3.0, count=2, across=2)
rates = [before.rate, after.rate]
left.bar(["before", "after"], rates, 0.6, color=[figures.GREY, figures.BLUE])
for place, scores in enumerate([before, after]):
    low, high = scores.interval
    whiskers = [[scores.rate - low], [high - scores.rate]]
    left.errorbar([place], [scores.rate], whiskers, color="black", capsize=5)
left.set(ylim=(0, 1), ylabel="fraction strictly right", title="with 95 % intervals")
outcomes = {
    "wrong both times": pairs[False, False],
    "right, then wrong": pairs[True, False],
    "wrong, then right": pairs[False, True],
    "right both times": pairs[True, True],
}
colours = ["#BBBBBB", figures.ORANGE, figures.BLUE, "#BBBBBB"]
bars = right.barh(list(outcomes), outcomes.values(), color=colours)
right.bar_label(bars, padding=3)
right.set(xlabel="problems", title="problem by problem")
right.grid(False)
title = f"Held-out problems: {rates[0]:.0%} strictly right before"
figure.suptitle(f"{title}, {rates[1]:.0%} after")
counts = ", ".join(f"{count} {name}" for name, count in outcomes.items())
figures.show(
    figure,
    f"Bars: {before.rate:.1%} strictly right before training, {after.rate:.1%} after, "
    f"with intervals that do not touch. Of {before.n} problems: {counts}.",
)

# %% [markdown]
# So the answer is yes: chance hardly explains 109 gains against 1 loss, and the model never trained on these problems.
# The one answer printed above shows no trick, either: its working is right. (One answer is little evidence; [chapter
# 03](03_reward_design.ipynb) looks for tricks.)

# %% [markdown]
# ### Exercise 00.2 · `form_alone` · easy · 5 minutes
#
# The run paid for the right number and for the form. Would the form alone have been enough? Train a fresh model for
# 24 steps with a reward that looks only at the form and never at the number. What happens to the rate of *strictly*
# right answers on the held-out problems? Predict "rises", "stays" or "falls", then run the cell (about half a minute).

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def form_alone() -> dict:
    """24 steps from the start, with a reward for the form alone."""
    policy, _ = load_policy(profile)
    settings = {**profile.grpo, "max_steps": 24}
    args = GRPOConfig(output_dir=str(profile.output / "form"), **settings)
    form_trainer = GRPOTrainer(
        policy, [strict_format_reward], args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    form_trainer.remove_callback(PrinterCallback)
    form_trainer.train()
    trained = ask_heldout_problems(policy)
    strict = (mean(before.strict), mean(trained.strict))
    # lenient: a right number in any readable form
    lenient = (mean(before.lenient), mean(trained.lenient))
    return {"strict": strict, "lenient": lenient, "n": trained.n}


predict("00.2", prediction, form_alone);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Read a few answers of the model before training: `print(before.completions[1])`, and so on. Which of the two parts,
# number or form, does it mostly fail at?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# Most numbers were right before training, and with the right form they count as strictly right. In our run the strict
# rate rose from 21 % to 75 %. After training every right number stood in the requested form. What was still missing
# were right numbers, for which this reward does not pay. The run above, which pays for them, reached 89 %. (It had more
# steps, but at step 24 its correctness reward was already above 0.8 on the training problems.)
#
# A reward for the form alone is also dangerous: it would have risen in the same way if the model's numbers had become
# worse.
#
# </details>

# %% [markdown]
# ## What did it learn?
#
# The strict rate needs the right number *and* the right form. Which of the two did training improve? *Lenient* scoring
# counts a right number in any readable form: in the tags, else after `####` (some data sets put this mark before the
# result), else as the last number of the answer. The function `compare` makes the paired test for both rates, and also
# gives each gain with its interval. (The strict rates are those from above.)

# %%
from grpo_workbook import compare

comparison = compare(before, after)
for name, change in (("strict", comparison.strict), ("lenient", comparison.lenient)):
    low, high = change.gain_interval
    rates = f"{change.before:.1%} before, {change.after:.1%} after"
    interval = f"95 % interval: {100 * low:.1f} to {100 * high:.1f}"
    print(f"{name}: {rates}")
    print(f"  gain {100 * change.gain:.1f} points ({interval})")
    print(f"  {change.better} gained, {change.worse} lost: p = {change.p_value:.1g}")

# %% [markdown]
# In the run shown here, the strict rate rises by 67.5 percentage points and the lenient rate by 10.6. So most of the
# gain is **form**: tiny-form could solve most of the problems before, and GRPO taught it to write the answers as the
# system message asks. This is no surprise, because we built tiny-form in this way. But the run shows how fast GRPO
# finds what a reward pays for.
#
# Is the smaller gain, the lenient one, more than chance? The paired test says yes: 28 problems were gained and 11 lost,
# p = 0.009. But 160 problems do not tell the size of this gain well: its interval reaches from 3 to 18 points.
#
# Part of this uncertainty comes from sampling: with another random seed the same model answers differently. So the next
# cell asks both models again with the seeds 1, 2 and 3. For each problem it takes the mean over all four seeds, and
# computes the gain and its interval from these means:

# %% tags=["hide-input"]
import numpy as np
from grpo_workbook import bootstrap_interval

strict = {"before": [before.strict], "after": [after.strict]}
lenient = {"before": [before.lenient], "after": [after.lenient]}
for seed in (1, 2, 3):
    scores_after = ask_heldout_problems(model, seed)
    with model.disable_adapter():  # the model as it was before training
        scores_before = ask_heldout_problems(model, seed)
    for name, scores in (("before", scores_before), ("after", scores_after)):
        strict[name].append(scores.strict)
        lenient[name].append(scores.lenient)
for name, outcomes in (("strict", strict), ("lenient", lenient)):
    right_before = np.array(outcomes["before"], dtype=float)  # (seeds, problems)
    right_after = np.array(outcomes["after"], dtype=float)
    print(f"{name:8} seed        0      1      2      3")
    print("  before    ", *[f"{rate:6.1%}" for rate in right_before.mean(axis=1)])
    print("  after     ", *[f"{rate:6.1%}" for rate in right_after.mean(axis=1)])
    gains = (right_after - right_before).mean(axis=0)  # (problems,)
    low, high = bootstrap_interval(gains)
    interval = f"95 % interval: {100 * low:.1f} to {100 * high:.1f}"
    print(f"  gain over four seeds: {100 * gains.mean():.1f} points ({interval})")

# %% [markdown]
# The strict gain hardly changes. The lenient gain is larger than with seed 0 alone: 16.7 points instead of 10.6. It is
# also known better, because its interval is now 13 to 20 points instead of 3 to 18.
#
# Seed 0 was a lucky one for the untrained model: its lenient rate is 79 % there, and 72 % or less with the other seeds.
# So one sampled rate can be several points off. [Chapter 08](08_evaluation.ipynb) computes how many problems are
# enough.
#
# These seeds change only the sampling of the answers. The training was done once, and with another training seed it
# could end elsewhere.

# %% [markdown]
# ### Is it new arithmetic?
#
# The lenient rate rose. Did the model learn to compute better? A sampled answer can be wrong by bad luck, because
# sampling sometimes draws a token that the model itself finds unlikely. So let both models answer once more, now
# **greedily**: each token is the most likely one. (With its adapter disabled, the trained model is the model before
# training.)

# %%
greedy_after = ask_heldout_problems(model, sample=False)
with model.disable_adapter():
    greedy_before = ask_heldout_problems(model, sample=False)
for name, scores in (("before", greedy_before), ("after", greedy_after)):
    rates = f"{mean(scores.strict):6.1%} strict, {mean(scores.lenient):6.1%} lenient"
    print(f"{name:6} {rates}, with greedy answers")

# %% [markdown]
# The next figure puts the sampled and the greedy answers side by side. Each pair of bars (before and after training) is
# one way of answering, sampled or greedy, and one way of scoring, strict or lenient. A sampled rate is the mean over
# the four seeds, and the black lines are 95 % intervals. Compare the two greedy pairs on the right.

# %% tags=["hide-input"]
strict_greedy = {"before": [greedy_before.strict], "after": [greedy_after.strict]}
lenient_greedy = {"before": [greedy_before.lenient], "after": [greedy_after.lenient]}
measures = {
    "strict,\nsampled": strict, "lenient,\nsampled": lenient,
    "strict,\ngreedy": strict_greedy, "lenient,\ngreedy": lenient_greedy,
}
figure, (axes,) = figures.new_panels(7.5, 3.8)
sides = (("before", -0.2, figures.GREY), ("after", 0.2, figures.BLUE))
changes = {}
for place, (name, outcomes) in enumerate(measures.items()):
    rates = []
    for side, shift, colour in sides:
        by_problem = np.mean(outcomes[side], axis=0)
        low, high = bootstrap_interval(by_problem)
        rate = by_problem.mean()
        label = side if place == 0 else None  # each once in the legend
        axes.bar(place + shift, rate, 0.38, color=colour, label=label)
        axes.vlines(place + shift, low, high, color="black")
        axes.text(place + shift, high + 0.02, f"{rate:.0%}", ha="center", fontsize=9)
        rates.append(f"{rate:.0%}")
    changes[name.replace("\n", " ")] = " to ".join(rates)
axes.set(ylim=(0, 1.25), ylabel="fraction right", yticks=[0, 0.2, 0.4, 0.6, 0.8, 1])
axes.set_xticks(range(len(measures)), list(measures))
axes.legend(ncols=2, loc="upper left", frameon=False)
strict_change, lenient_change = changes["strict, greedy"], changes["lenient, greedy"]
title = "With greedy answers only the form improves"
axes.set_title(f"{title}:\nstrict {strict_change}, lenient {lenient_change}")
figures.show(figure, f"Pairs of bars, before to after: {changes}.")

# %% [markdown]
# Before training, 98.8 % of the greedy answers have the right number. So the model knew this arithmetic already. Its
# sampled answers were worse, because sampling also draws what is less likely, such as the guesses and errors that we
# had taught the model on purpose.
#
# Wrong answers earn less, so GRPO makes them rarer, and the sampled rate rises. The greedy rate had almost no room to
# rise: before training two of the 160 problems were wrong, and after it four, which may be chance. So this run gives no
# sign of new arithmetic.
#
# The form is another matter: the greedy *strict* rate rises from 43.1 to 97.5 %. Even so, GRPO did not invent the
# requested form: before training 23 % of the sampled answers (the mean over the four seeds) were strictly right, so the
# model wrote this form sometimes. GRPO turned what the model did sometimes, in form and in numbers, into what it does
# nearly always.
#
# GRPO can also improve more than the form: [chapter 04](04_grpo_run.ipynb) shows such a run. Whether GRPO can add
# anything new to a model is in dispute.
#
# <details><summary>For the curious: what else GRPO can improve, and the dispute</summary>
#
# In chapter 04 another tiny model, which already writes the requested form, trains on kinds of problem that it had
# hardly seen. The fraction of right greedy answers rises from 44 % to 85 %, and none of the gain is form. In sampled
# answers, about half of the gain is on problems that the model had solved in none of 15 tries. It knew the arithmetic
# of these problems already, and learned to use it in these kinds.
#
# Does such training add anything new? [Yue et al. 2025](https://arxiv.org/abs/2504.13837) say no: with enough samples,
# base models solved at least as many problems as their trained versions. [ProRL](https://arxiv.org/abs/2505.24864) says
# yes: after long training that kept the answers diverse, models solved problems at which the base model failed in every
# sample. [Chapter 08](08_evaluation.ipynb) shows how to measure such a difference.
#
# </details>

# %% [markdown]
# ## Which method when
#
# GRPO is one of several ways to train a model further. The table has the main ones. In it, *pairs* are two answers to
# the same question, of which people have said which is better. A *reward model* is trained on pairs, and gives rewards
# where no program can. *Credit* is how much of the reward a token gets.
#
# | method | learns from | strength | price |
# | --- | --- | --- | --- |
# | SFT, supervised fine-tuning | given answers | nothing is sampled | it only imitates |
# | DPO, direct preference optimization | pairs, better and worse | nothing is sampled | it learns from given pairs only |
# | rejection sampling, then SFT | its own answers that pass the check | simple | it ignores what failed |
# | **GRPO** | its own answers, right and wrong | no critic | it samples new groups at every step; all tokens of an answer get the same credit |
# | PPO, proximal policy optimization | its own answers, right and wrong | a critic gives each token its own credit | it samples at every step; the critic is a second model to train |
# | RLHF, learning from human feedback | people's comparisons | learns from new answers without a check | the reward model can be fooled |
#
# GRPO, PPO and, once its reward model is trained, RLHF sample new answers for each step. Such methods are called
# **on-policy**: the policy learns from what it writes now.
#
# The tree helps to choose one. Start at its top. White boxes are questions, blue boxes say what to do, and the grey box
# means that no training is needed. *You can sample* means that the policy can write answers of its own during
# training.

# %% tags=["hide-input"]
question = figures.PALE["model"]
method = figures.PALE["data"]
boxes = {
    "check": (0.5, 0.92, "Can a program check an answer?", question),
    "often": (0.27, 0.64, "How often does the\nmodel pass the check?", question),
    "data": (0.78, 0.64, "Which data do you have?", question),
    "never": (0.09, 0.34, "first SFT, or\neasier problems", method),
    "fails": (0.3, 0.34, "Learn from\nfailures too?", question),
    "done": (0.48, 0.34, "nothing\nto train", figures.PALE["off"]),
    "SFT": (0.61, 0.34, "SFT", method), "DPO": (0.755, 0.34, "DPO", method),
    "RLHF": (0.92, 0.34, "RLHF: reward model,\nthen PPO or GRPO", method),
    "keep": (0.1, 0.07, "rejection sampling", method),
    "GRPO": (0.3, 0.07, "GRPO", method), "PPO": (0.5, 0.07, "PPO", method),
}
arrows = [
    ("check", "often", "yes"), ("check", "data", "no"),
    ("often", "never", "never"), ("often", "fails", "sometimes"),
    ("often", "done", "always"), ("fails", "keep", "no"), ("fails", "GRPO", "yes"),
    ("fails", "PPO", "yes, and credit\nfor each token"), ("data", "DPO", "pairs"),
    ("data", "SFT", "good answers"), ("data", "RLHF", "pairs, and you\ncan sample"),
]
figure = figures.diagram(boxes, arrows, (9.5, 4.6))
figure.suptitle("GRPO suits tasks with a check that the model passes sometimes", y=1.03)
figures.show(
    figure,
    "A decision tree. With a check: a model that never passes needs SFT or easier "
    "problems first, one that always passes needs nothing; between them lie rejection "
    "sampling, GRPO and PPO. Without a check: SFT for good answers, DPO for pairs, a "
    "reward model for pairs if you can sample.",
)

# %% [markdown]
# Take the run above: a program can check the answers, tiny-form sometimes passes the check, and its wrong answers
# should count, too. One advantage for the whole answer is enough here, so the tree leads to GRPO.
#
# Methods are also combined, such as SFT until the model passes sometimes, and then GRPO. [Chapter
# 12](12_which_algorithm.ipynb) compares methods by runs, and [chapter 10](10_scale_out.ipynb) shows how much memory
# each of them needs.
#
# <details><summary>For the curious: a model as the judge</summary>
#
# Where no program can check an answer, another language model can, with a written list of criteria
# ([chapter 14](14_judges_and_rubrics.ipynb)). Its verdicts can then be the rewards of GRPO, but it can be fooled, as a
# reward model can ([chapter 13](13_learned_rewards.ipynb)).
#
# </details>

# %% [markdown]
# ### Exercise 00.3 · `choose_methods` · medium · 8 minutes
#
# Six teams ask you for advice. Return a dict with the letter of each team and one of the methods `"SFT"`, `"DPO"`,
# `"rejection sampling"`, `"GRPO"`, `"PPO"`, `"RLHF"`, or `"nothing"`.
#
# - **A**: Our model writes database queries. A test database runs each of them. In most groups of eight, two to five
#   queries are right. Wrong ones should teach the model too, and our GPU has no memory left for a second trained model.
# - **B**: Our model writes mathematical proofs, and a program verifies them. None of 10,000 sampled proofs was right.
#   We also have 300 proofs that people wrote.
# - **C**: Our model writes replies to customers. We have 20,000 pairs of replies, and people marked the better reply of
#   each pair. Our training machine is too slow to sample from the model.
# - **D**: Our model writes dates in a fixed form, and a program checks this form. All of 1,000 sampled dates were
#   right.
# - **E**: We have the pairs of team C and can sample. We want the model to find replies that are better than those in
#   our pairs.
# - **F**: Our model solves puzzles, and a program checks them. One answer in ten is right. Our only trainer is one for
#   SFT, and we have no written solutions.

# %% tags=["exercise"]
def choose_methods() -> dict[str, str]:
    raise NotImplementedError


check("00.3", choose_methods);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Follow the tree from the top for each team. For the last question of each branch, ask what the team can do and
# what it cannot do.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def choose_methods() -> dict[str, str]:
#     return {
#         "A": "GRPO",
#         "B": "SFT",
#         "C": "DPO",
#         "D": "nothing",
#         "E": "RLHF",
#         "F": "rejection sampling",
#     }
# ```
#
# Team B can go on with GRPO once some of its proofs are right. Team D needs harder problems before any method can
# teach it more.
#
# </details>

# %% [markdown]
# ## Exercises
#
# The exercises 00.1 to 00.3 stand above. The last one is about a task of your own.

# %% [markdown]
# ### Exercise 00.4 · `my_task` · medium · 10 minutes
#
# GRPO needs a check that you trust. Write one for a task of yours. The reward function sees only the answer, not the
# question. So take a task whose answers can be judged alone, such as a date in a fixed form or valid JSON. Or fix one
# question, such as "How many metres are 5 km?", to which 5000, 5000.0 and 5,000 are right answers.
#
# Return `reward, good, bad`:
#
# - `reward`: a function that takes a text and gives a number from 0 to 1
# - `good`: at least three good answers
# - `bad`: at least three bad answers; at least two of them must contain a good one or resemble it (about half of
#   the characters agree, in the same order)
#
# Every good answer must earn more than every bad one. Choose bad answers that come *close*: the right value in the
# wrong form, a wrong value in the right form, a right answer with more text around it.
#
# The check also tries an empty answer, and two of your good answers in one text, joined by *or*; both must earn less
# than a good answer. It refuses a function that has a list of your good answers: the reward must also judge answers
# that you have not thought of.
#
# The other thing that GRPO needs is a model that passes *sometimes*. [Chapter 02](02_dataset_prep.ipynb) measures this.

# %% tags=["exercise"]
def my_task() -> tuple:
    raise NotImplementedError


check("00.4", my_task);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Define the reward function inside `my_task`. `re.fullmatch` accepts nothing before or after the pattern.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_task() -> tuple:
#     from datetime import date
#
#     def reward(text):
#         try:
#             return float(date.fromisoformat(text.strip()).isoformat() == text.strip())
#         except ValueError:
#             return 0.0
#
#     good = ["2025-03-01", "1999-12-31", "2024-02-29\n"]
#     bad = ["", "March 1st, 2025", "2025-02-29", "20250301", "2025-03-01 or 2025-01-03"]
#     return reward, good, bad
# ```
#
# The task of this solution is to write a date as year-month-day. Keep your own function: in [chapter
# 03](03_reward_design.ipynb) you turn it into a reward that TRL takes, and attack it.
#
# </details>

# %% [markdown]
# ## Summary
#
# How can a language model get better at a task for which nobody has written solutions?
#
# - By its own answers, which a program checks. GRPO samples a group of answers to each question, makes those with a
#   reward above the group's mean more likely, and makes those below it less likely. It needs a check that you trust,
#   and a model that sometimes passes this check.
# - A rising reward does not prove that the model learned. Held-out problems, an interval and a paired test are much
#   better evidence: here the strict rate rose from 21 % to 89 %.
# - Ask *what* the model learned before you claim a gain. Here it was mostly the requested form: what the model wrote
#   sometimes became its habit. Its sampled answers also have fewer errors, but greedy answers show that it knew the
#   arithmetic before. Ask with several seeds: one sampled rate can be several points off.

# %% [markdown]
# ## The map of the course
#
# The chapters 00 to 05, 08 and 09 are the core of the course. They explain how GRPO works, how to prepare data and
# rewards, how to train, how to monitor and evaluate a run, and how to put the trained model to work. The other chapters
# are electives.

# %%
from grpo_workbook.exercises import course_map

course_map()

# %% [markdown]
# An exercise that you have solved is counted in this table. Run the cell of the table again to see your progress.
#
# Two commands help when something is wrong: `python -m grpo_workbook doctor` checks the machine, and `python -m
# grpo_workbook diagnose outputs/run` reads the log of a run and names what went wrong ([chapter
# 05](05_monitoring.ipynb)).
#
# <details><summary>Words that later chapters use</summary>
#
# [Chapter 01](01_grpo_from_scratch.ipynb) derives the *KL penalty* and the *ratio*.
#
# | word | meaning |
# | --- | --- |
# | reference | a frozen policy, usually the one from the start |
# | KL penalty | a term of the loss that grows as the policy moves away from the reference. Its weight is `beta`; here `beta` is 0, so no reference is needed |
# | ratio | a token's probability now, divided by its probability when it was sampled |
# | `frac_reward_zero_std` | the fraction of zero-variance groups, as TRL logs it |
#
# </details>
#
# Next: [01 · GRPO from scratch](01_grpo_from_scratch.ipynb), or straight to
# [04 · A GRPO run you can trust](04_grpo_run.ipynb).

# %% [markdown] tags=["remove-cell"]
# The next cell is for the machine that runs this notebook on every change. It fails if training did not happen, or did
# not help.

# %% tags=["remove-cell"]
import json

from grpo_workbook.training import count_4bit_layers

profile.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": trainer.state.global_step,
    "linear4bit_layers": count_4bit_layers(model),
    "before": mean(before.strict),
    "after": mean(after.strict),
    "p_value": p_value,
    "reward": [log[0]["reward"], log[-1]["reward"]],
}
(profile.output / "notebook_00.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 40
assert all(entry["step_time"] > 0 for entry in log)
assert proved["after"] > proved["before"] + 0.3, "no gain"
assert p_value < 1e-6, "no gain"
