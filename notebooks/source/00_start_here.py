# %% [markdown]
# # 00 · Start here
#
# **After this notebook you can** explain how GRPO learns, train a small model with it in about a minute, check on
# unseen problems that the model improved, and say when another method fits better.
#
# **Time:** about 2 minutes on two CPU cores, half of it training.

# %% [markdown]
# ## The loop
#
# Ask a model the same question several times. A program checks every answer and gives it a **reward**. Answers above
# the mean of their **group** become a little more likely, answers below it a little less likely. Then comes the next
# question. This is **Group Relative Policy Optimization** (GRPO, [Shao et al. 2024](https://arxiv.org/abs/2402.03300)).

# %% tags=["hide-input"]
from grpo_workbook import figures

data_colour, model_colour, check_colour, number_colour, off = figures.PALE.values()
boxes = {
    "prompt": (0.08, 0.66, "prompt\n“What is 6 x 7?”", data_colour),
    "policy": (0.27, 0.66, "policy\n(the model)", model_colour),
    "answers": (0.5, 0.66, "a group of\n4 answers", data_colour),
    "checker": (0.7, 0.66, "checker\n(a program)", check_colour),
    "rewards": (0.91, 0.66, "rewards\n3, 0, 1, 3", number_colour),
    "advantages": (0.7, 0.15, "advantages\n+0.8, -1.2, -0.5, +0.8", number_colour),
    "critic": (0.27, 0.15, "critic\n(as PPO has)", off),
}
arrows = [
    ("prompt", "policy", ""),
    ("policy", "answers", "samples"),
    ("answers", "checker", ""),
    ("checker", "rewards", ""),
    ("rewards", "advantages", "minus the mean,\nin deviations"),
    ("advantages", "policy", "above 0: likelier\nbelow 0: rarer"),
]
figure = figures.diagram(boxes, arrows, (9, 3.2))
figure.suptitle("GRPO compares the answers of a group, so it needs no critic")
figure.axes[0].plot([0.22, 0.32], [0.05, 0.25], color=figures.ORANGE, lw=2, zorder=4)
figures.show(
    figure,
    "The loop of GRPO: from a prompt the policy samples a group of answers; a checker "
    "gives each a reward; the rewards minus their mean become advantages, which change "
    "the policy. The critic that PPO would need is struck out.",
)

# %% [markdown]
# The **advantage** says how far a reward lies above or below the group's mean, in standard deviations. Here the reward
# is 3 for the right number in the requested form, 1 for the form with a wrong number, and 0 without the form.

# %%
from statistics import mean, stdev

answers = [
    "<answer>42</answer>",  # right, in the requested form
    "The answer is 42.",  # right, without the form
    "<answer>41</answer>",  # wrong number
    "<answer>42</answer>",
]
rewards = [3.0, 0.0, 1.0, 3.0]
advantages = [(r - mean(rewards)) / stdev(rewards) for r in rewards]
for answer, reward, advantage in zip(answers, rewards, advantages):
    print(f"{answer:22} reward {reward:.0f}   advantage {advantage:+.2f}")

# %% [markdown]
# Nobody wrote a solution to imitate, and no second model acted as judge. All it took was a checker and the model's own
# attempts. So GRPO needs a check that you trust, and a model that passes it *sometimes*. If all answers of a group earn
# the same, every advantage is 0 and nothing is learned: a **zero-variance group**.

# %% [markdown]
# ## One minute of GRPO
#
# The chapters train a tiny Qwen3 from `data/` (the **smoke** profile), so that they take minutes on any machine. Where
# there is a GPU, [chapter 04](04_grpo_run.ipynb) and `make run` train a real Qwen3 or Gemma 3, which takes far longer. There
# Unsloth also replaces parts of TRL's trainer.
#
# The model's own weights are frozen and stored in 4 bits (a format called NF4). Training changes only a **LoRA
# adapter**: small matrices beside the frozen ones, in float32. The arrow marks your profile. The last column is the
# number format of the arithmetic and of all other weights.

# %%
import os

from grpo_workbook import PROFILES, quiet
from grpo_workbook.run_config import RunConfig

quiet()  # fewer warnings of the libraries
run = RunConfig.from_env(default_profile="smoke", max_steps=40, heldout=160)
print(run, "\n")
print(f"   {'profile':7} {'qwen':12} {'gemma':15} numbers in")
for name, values in PROFILES.items():
    mark = "->" if name == run.profile else "  "
    qwen, gemma = (os.path.basename(values[family]) for family in ("qwen", "gemma"))
    print(f"{mark} {name:7} {qwen:12} {gemma:15} {values['dtype']}")

# %% [markdown]
# `GRPO_WORKBOOK_PROFILE` (such as `t4`) and `GRPO_WORKBOOK_MODEL` (`qwen`, `gemma`, a folder or a hub id) in the
# environment choose otherwise; a real model takes longer than this chapter says.
#
# Now load the model. Unsloth must be imported before TRL and Transformers, because it patches them. On a CPU its first
# line names only `SFTTrainer`; `GRPOTrainer` works too, and chapter 04 explains why the line says so.

# %%
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
import unsloth
from grpo_workbook import load_policy, training

model, tokenizer = load_policy(run)
print(training.count_4bit_layers(model), "layers in 4-bit")

# %% [markdown]
# The task is word problems. The answer is a number in a fixed form. Some problems are **held out**: the model never
# trains on them.

# %%
from grpo_workbook import data, load_problems, to_dataset

train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"])
heldout_set = to_dataset(heldout_rows.select(range(run.heldout)))
for message in heldout_set[0]["prompt"]:
    print(f"{message['role']}: {message['content']}")
print("right answer:", heldout_set[0]["answer"])

# %% [markdown]
# Measure first. An answer is *strictly* right if both number and form are right. Answers are sampled at temperature 1,
# as in training. Compare the first answer with the form that the system message asks for.

# %%
from grpo_workbook import evaluate, wilson_interval

how = {
    "sample": True,
    "seed": run.seed,
    "batch_size": run.eval_batch,
    "max_new_tokens": run.max_completion_length,
}
before = evaluate(model, tokenizer, heldout_set, **how)
print(f"{sum(before.strict)} of {before.n} held-out problems strictly right\n")
print(before.completions[0])

# %% [markdown]
# Now train with TRL's `GRPOTrainer`. Three rewards, each from 0 to 1, are added with weights: 2 for correctness, 0.5
# for the strict form and 0.5 for parts of the form. The bar shows the mean reward and the mean length in tokens.

# %%
from grpo_workbook import parse_rewards
from grpo_workbook.run_config import make_trainer

print(run.rewards)
functions, weights = parse_rewards(run.rewards)
trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
trainer.train();

# %% [markdown]
# The figure's title compares the first and the last five steps. The total is weighted, the single rewards are not.

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
figure, words = figures.reward_curves(log)
first, last = (mean(e["reward"] for e in part) for part in (log[:5], log[-5:]))
figure.axes[0].set_title(f"The mean reward goes from {first:.1f} to {last:.1f} of 3")
figure.axes[0].set_ylabel("reward, mean of 7 steps (pale: single steps)")
figures.show(figure, words)

# %% [markdown]
# But a model can game a reward, and it can memorize problems. So ask the held-out problems again. They are a sample, so
# the rate needs an interval. The *same* problems were asked twice, so compare them in pairs.

# %%
from collections import Counter

from grpo_workbook import paired_p_value

after = evaluate(model, tokenizer, heldout_set, **how)
for name, scores in (("before", before), ("after", after)):
    low, high = wilson_interval(scores.strict)
    rate = mean(scores.strict)
    print(f"{name:6} {rate:.1%}  (95 % interval: {low:.1%} to {high:.1%})")
pairs = Counter(zip(before.strict, after.strict))
p_value = paired_p_value(before.strict, after.strict)
gained, lost = pairs[False, True], pairs[True, False]
print(f"{gained} problems gained, {lost} lost: p = {p_value:.1g}\n")
print(after.completions[0])

# %% [markdown]
# If training had done nothing, each change would be a coin toss: as likely a gain as a loss. The p-value is the
# probability of a result at least this one-sided.

# %% tags=["hide-input"]
figure, (left, right) = figures.new_panels(8.5, 3.0, count=2, across=2)
rates = [mean(scores.strict) for scores in (before, after)]
ends = [wilson_interval(scores.strict) for scores in (before, after)]
whiskers = [
    [rate - low for rate, (low, _) in zip(rates, ends)],
    [high - rate for rate, (_, high) in zip(rates, ends)],
]
left.bar(["before", "after"], rates, 0.6, color=[figures.GREY, figures.BLUE])
left.errorbar([0, 1], rates, whiskers, fmt="none", color="black", capsize=5)
left.set(ylim=(0, 1), ylabel="strictly right", title="with 95 % intervals")
kinds = {
    "wrong both times": pairs[False, False],
    "right, then wrong": pairs[True, False],
    "wrong, then right": pairs[False, True],
    "right both times": pairs[True, True],
}
colours = ["#BBBBBB", figures.ORANGE, figures.BLUE, "#BBBBBB"]
right.bar_label(right.barh(list(kinds), kinds.values(), color=colours), padding=3)
right.set(xlabel="problems", title="problem by problem")
right.grid(False)
figure.suptitle(f"Held-out problems: {rates[0]:.0%} right before, {rates[1]:.0%} after")
words = ", ".join(f"{count} {name}" for name, count in kinds.items())
figures.show(
    figure,
    f"Bars: {rates[0]:.1%} strictly right before training, {rates[1]:.1%} after, with "
    f"intervals that do not touch. Of {before.n} problems: {words}.",
)

# %% [markdown]
# What did the model learn? *Lenient* accepts the answer in any readable form:

# %%
for name, scores in (("before", before), ("after", after)):
    rates = [mean(found) for found in (scores.strict, scores.lenient)]
    print("{:6}  strict {:.1%}   lenient {:.1%}".format(name, *rates))

# %% [markdown]
# Most of the arithmetic was there before; the form was not. The model now does reliably what it could do sometimes.
#
# > **In dispute: does such training add anything new?** [Yue et al. 2025](https://arxiv.org/abs/2504.13837): no. With
# > enough samples, base models solved at least as many problems as their trained versions.
# > [ProRL](https://arxiv.org/abs/2505.24864): yes. After long training that kept the answers diverse, models solved
# > problems at which the base model failed in every sample. [Chapter 08](08_evaluation.ipynb) measures it for your model.

# %% [markdown]
# ## The words
#
# | word | meaning |
# | --- | --- |
# | policy | the model in training: it gives every possible answer a probability |
# | reference | a frozen policy, usually the one from the start |
# | KL penalty | a charge for moving away from the reference, with weight `beta`; 0, the default here, needs no reference |
# | ratio | a token's probability now, divided by its probability when it was sampled |
# | `frac_reward_zero_std` | the fraction of zero-variance groups |
# | critic | a second trained model that predicts the reward to expect |
# | reward model | a frozen model, trained on people's comparisons, that gives rewards where no program can |

# %% [markdown]
# ## When something is wrong
#
# `doctor` checks the machine. If something is missing, it tells you how to fix it. With `--full` it also tries what
# takes seconds to load. In a terminal: `python -m grpo_workbook doctor --full`.

# %%
from grpo_workbook.cli import main

main(["doctor", "--full"]);

# %% [markdown]
# `diagnose` reads the log of a run, names what is wrong and says what to do. It compares the last quarter of the steps
# with the first quarter ("at first"). First this notebook's run, then a recorded one whose reward function gives every
# completion the same. "Not judged" lists the causes that this log cannot show; chapter 05 records more.

# %%
from grpo_workbook import files
from grpo_workbook.diagnosis import as_text, diagnose, read_run

this_run = read_run(trainer.state.log_history)
print(as_text(diagnose(this_run), this_run))
sick = read_run(files.REPO / "tests" / "diagnosis_logs" / "constant_reward_0.json")
print("\n" + as_text(diagnose(sick), sick))

# %% [markdown]
# In a terminal: `python -m grpo_workbook diagnose outputs/run`. If you ask a person for help, send the output of both
# commands; it contains no secret. For your own data there is a third command, `check-data` ([chapter
# 02](02_dataset_prep.ipynb)). [Chapter 05](05_monitoring.ipynb) lists what to check before, during and after a run.

# %% [markdown]
# ## Which method when

# %% tags=["hide-input"]
boxes = {
    "check": (0.5, 0.92, "Can a program check an answer?", model_colour),
    "often": (0.27, 0.64, "How often does the\nmodel pass the check?", model_colour),
    "data": (0.78, 0.64, "Which data do you have?", model_colour),
    "never": (0.09, 0.34, "first SFT, or\neasier problems", data_colour),
    "fails": (0.3, 0.34, "Learn from\nfailures too?", model_colour),
    "done": (0.48, 0.34, "nothing\nto train", off),
    "SFT": (0.61, 0.34, "SFT", data_colour),
    "DPO": (0.755, 0.34, "DPO", data_colour),
    "RLHF": (0.93, 0.34, "reward model,\nthen PPO, GRPO", data_colour),
    "keep": (0.1, 0.07, "rejection sampling", data_colour),
    "GRPO": (0.3, 0.07, "GRPO", data_colour),
    "PPO": (0.5, 0.07, "PPO", data_colour),
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
# | method | learns from | strength | price |
# | --- | --- | --- | --- |
# | SFT, supervised fine-tuning | given answers | nothing is sampled | only imitates |
# | DPO, direct preference optimization | pairs, better and worse | nothing is sampled | learns from given pairs only |
# | rejection sampling, then SFT | its own right answers | simple | ignores what failed |
# | **GRPO** | its own answers, right and wrong | no critic | one credit for all tokens of an answer, unless single steps are rewarded |
# | PPO, proximal policy optimization | its own answers, right and wrong | the critic gives each token its own credit | a second model to train |
# | RLHF, learning from human feedback | people's comparisons | needs no check | the reward model can be fooled |
#
# Methods are often combined: SFT until the model passes sometimes, then GRPO. [Chapter 12](12_which_algorithm.ipynb) races
# all of them, and [chapter 13](13_learned_rewards.ipynb) shows how a reward model is fooled.
#
# They differ in memory, because some hold several models. Here for 4 billion weights, without activations: a trained
# weight takes 16 bytes (weight, gradient, AdamW's two moments), a frozen one 2 bytes, in 4 bits half a byte.

# %%
TRAINED, FROZEN, NF4 = 16, 2, 0.5  # bytes for each weight
methods = {  # billions of weights: (trained, frozen, in 4 bits)
    "PPO with a reward model": (8, 8, 0),  # policy, critic; reference, reward model
    "PPO with a check": (8, 4, 0),  # policy, critic; reference
    "GRPO with a KL penalty": (4, 4, 0),  # policy; reference
    "DPO": (4, 4, 0),
    "GRPO, beta 0": (4, 0, 0),
    "SFT": (4, 0, 0),
    "GRPO, LoRA on 4 bits": (0.04, 0, 4),  # an adapter of 1 %
}
figure, (axes,) = figures.new_panels(7.5, 3.0)
trained = [TRAINED * weights[0] for weights in methods.values()]
frozen = [FROZEN * weights[1] + NF4 * weights[2] for weights in methods.values()]
axes.barh(list(methods), trained, color=figures.BLUE, label="trained")
bars = axes.barh(list(methods), frozen, left=trained, color="#BBBBBB", label="frozen")
total = [a + b for a, b in zip(trained, frozen)]
axes.bar_label(bars, [f"{gb:.0f} GB" for gb in total], padding=4)
axes.set(xlim=(0, 170), xlabel="GB for a model of 4 billion weights")
axes.set_title("A critic nearly doubles the memory; an adapter on 4 bits needs 3 GB")
axes.legend(frameon=False, loc="upper right")
axes.grid(False)
said = ", ".join(f"{name} {gb:.0f} GB" for name, gb in zip(methods, total))
figures.show(figure, f"Bar chart of memory for a model of 4 billion weights: {said}.")

# %% [markdown]
# GRPO's trick: the group's mean reward takes the place of PPO's critic, so one of the two trained models disappears.
# With LoRA on a 4-bit model even a KL penalty is nearly free, because the reference uses the same base weights.
# [Chapter 10](10_scale_out.ipynb) estimates the memory of your own run.

# %% [markdown]
# ## The map
#
# Chapters 01 to 03 explain the parts. Chapter 04 is a whole run, 05 to 08 make it trustworthy, 09 to 13 take it
# further, and 14 is your own project. If you would rather train first, jump to chapter 04 and come back later.

# %%
from grpo_workbook.exercises import course_map

course_map()

# %% [markdown]
# Every chapter ends with exercises that check themselves: a wrong answer gets a hint about the mistake, a right one is
# counted in the table above: run its cell again to see it.

# %% [markdown] tags=["remove-cell"]
# The next cell is for the machine that runs this notebook on every change. It fails if training did not happen, or did
# not help.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

run.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": trainer.state.global_step,
    "linear4bit_layers": training.count_4bit_layers(model),
    "before": mean(before.strict),
    "after": mean(after.strict),
    "p_value": p_value,
    "reward": [log[0]["reward"], log[-1]["reward"]],
}
(run.output / "notebook_00.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 40 and all(e["step_time"] > 0 for e in log)
if run.profile == "smoke":
    assert proved["after"] > proved["before"] + 0.3 and p_value < 1e-6, "no gain"

# %% [markdown]
# ## Exercises
#
# Some ask for a function, which the cell checks. Some ask for a prediction, which the cell tests by a run.

# %% [markdown]
# ### Exercise 00.1 · `teaches` · easy · 3 minutes
#
# Given the rewards of one group: does the group teach anything, that is, is any advantage different from 0?

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def teaches(rewards: list[float]) -> bool:
    raise NotImplementedError


check("00.1", teaches);

# %% [markdown]
# <details><summary>Hint</summary>
#
# An advantage is the reward minus the group's mean. When are they all 0?
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
# ### Exercise 00.2 · `form_alone` · easy · 5 minutes
#
# Train a fresh model for 24 steps with a reward that looks at the form only, never at the number. What happens to the
# rate of *strictly* right answers on the held-out problems? Predict "rises", "stays" or "falls", then run the cell
# (about 40 seconds). Afterwards try other `rewards`, such as `"correctness:1"`.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def form_alone() -> dict:
    """24 steps from the start, with another reward: change it here."""
    trial = run.replace(max_steps=24, rewards="strict_format:1")
    policy, words = load_policy(trial)
    functions, weights = parse_rewards(trial.rewards)
    make_trainer(trial, policy, words, train_set, functions, weights).train()
    found = evaluate(policy, words, heldout_set, **how)
    strict = mean(before.strict), mean(found.strict)
    return {"strict": strict, "lenient": mean(found.lenient), "n": found.n}


predict("00.2", prediction, form_alone);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at strict and lenient before training. Which of the two parts, number or form, does the model fail at?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# Most numbers were right before; with the right form they count. The danger: this reward would have risen just as well
# if the numbers had got worse.
#
# </details>

# %% [markdown]
# ### Exercise 00.3 · `my_task` · medium · 10 minutes
#
# Would GRPO suit a task of yours? Take one whose answers a program can check: a date in a fixed form, valid JSON, a unit
# conversion. Return a reward function (a text in, a number from 0 to 1 out), at least three good answers, and at least
# three bad ones that could fool it: an empty one, the right value in the wrong form, several at once. Every good answer
# must earn more than every bad one.

# %% tags=["exercise"]
def my_task() -> tuple:
    raise NotImplementedError


check("00.3", my_task);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Define the reward function inside `my_task` and return `reward, good, bad`. `re.fullmatch` accepts nothing before or
# after the pattern.
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
# The task of this one is a date as year-month-day. Keep your own: [chapter 03](03_reward_design.ipynb) turns it into a
# reward that TRL takes, and attacks it.
#
# </details>

# %% [markdown]
# ## Summary
#
# - GRPO samples a group of answers, checks them, and compares them with the group's mean. It needs a check, and a model
#   that passes it sometimes.
# - The reward shows where training is going. Held-out problems, an interval and a paired test show whether it helped.
# - `doctor` checks the machine, `diagnose` checks a run.
#
# Next: [01 · GRPO from scratch](01_grpo_from_scratch.ipynb), or straight to
# [04 · A GRPO run you can trust](04_grpo_run.ipynb).
