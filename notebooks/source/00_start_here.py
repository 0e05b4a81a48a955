# %% [markdown]
# # 00 · Start here
#
# **After this notebook you can** say what GRPO is for and when to take something else, see a model learn on your own
# machine in about a minute, check that it really learned, and find your way through the course.
#
# **Time:** about 2 minutes on two CPU cores; training is half of it. On a GPU the same cells train Qwen3 or Gemma 3;
# the times there have not been measured yet.

# %% [markdown]
# ## The idea, with four answers
#
# Ask a model the same question four times. A program checks every answer and gives it a **reward**: here 3 for the
# right number in the form that was asked for, 1 for that form with a wrong number, 0 for no form. What counts is the
# **advantage**: how far an answer's reward lies above or below the mean of its **group**, in standard deviations.

# %%
from statistics import mean, stdev

answers = [
    "<answer>42</answer>",  # right, in the form that was asked for
    "The answer is 42.",  # no form
    "<answer>41</answer>",  # wrong number
    "<answer>42</answer>",
]
rewards = [3.0, 0.0, 1.0, 3.0]
advantages = [(r - mean(rewards)) / stdev(rewards) for r in rewards]
for answer, reward, advantage in zip(answers, rewards, advantages):
    print(f"{answer:22} reward {reward:.0f}   advantage {advantage:+.2f}")

# %% [markdown]
# Then make the answers above the mean a little likelier, those below a little rarer, and ask again. That is **Group
# Relative Policy Optimization**. No one wrote a good answer, no second model judged: only a check, and the model's own
# attempts. So it needs two things: a check that you trust, and a model that is right *sometimes*.

# %% [markdown]
# ## When to take something else
#
# | you have | take | because |
# | --- | --- | --- |
# | good answers to imitate | supervised fine-tuning (SFT) | cheapest: nothing is sampled; it learns what it is shown, no more |
# | pairs: this answer is better than that | direct preference optimization (DPO) | nothing is sampled, and no reward model is needed |
# | a check, and a model that passes it now and then | **GRPO** | learns from what the model itself does |
# | people's ratings of long texts | reinforcement learning from human feedback (RLHF): a reward model, then PPO or GRPO | a check cannot be written; the reward model can be fooled |
# | a reward for every step of a long task | proximal policy optimization (PPO) | its critic (see below) says which step earned it |
#
# They follow each other: SFT until the model is right now and then, GRPO from there.
#
# Some of them hold more than one model. The **policy** is the one that is trained. A **reference** is a frozen copy of
# it as it was at the start; a **KL penalty** (on the Kullback-Leibler divergence, with weight `beta`) holds the policy
# near to it. A **critic** is a second trained model, which foretells the reward. A **reward model** was trained on
# people's ratings, and is frozen. What each method keeps in memory beside the activations, for a model of 4 billion
# parameters, all of them trained:

# %%
TRAINED = 16  # bytes a parameter: weights, gradient, AdamW's two moments, in float32
FROZEN = 2  # bytes a parameter: weights alone, in 16-bit
methods = {
    "SFT": (1, 0),  # (models trained, models frozen)
    "DPO": (1, 1),  # its reference
    "GRPO, beta 0": (1, 0),
    "GRPO with a KL penalty": (1, 1),  # its reference
    "PPO with a check": (2, 1),  # policy and critic; reference
    "PPO with a reward model": (2, 2),
}
for name, (trained, frozen) in methods.items():
    print(f"{name:24} {4 * (trained * TRAINED + frozen * FROZEN):4} GB")

# %% [markdown]
# PPO's second trained model is what GRPO's group mean replaces. This course trains a **LoRA adapter**, about one
# percent of a large model's weights, and keeps the rest in 4 bits, half a byte: the 64 GB of GRPO become about 3. The
# reference then is the same base with the adapter as it was at the start, and costs next to nothing. Chapter 01 shows
# all this in numbers, chapter 10 estimates your run.

# %% [markdown]
# ## Is this machine well?
#
# The doctor looks at versions, memory, the GPU, 4-bit layers, the sandbox (for programs that a model wrote, chapter 06)
# and the models. Where something is missing it says how to fix it. In a terminal: `python -m grpo_workbook doctor`.

# %%
from grpo_workbook import quiet
from grpo_workbook.cli import main

quiet()
main(["doctor"]);

# %% [markdown]
# And this is what the course will do here. Without a GPU it takes the **smoke** profile: a tiny Qwen3 that lies in
# `data/`, with its own small task, and one thread. On a GPU it takes a real Qwen3 or Gemma 3. Everything else stays the
# same. The arrow marks the profile of this machine; what is not in 4 bits is held and computed in the type at the right.
# `GRPO_WORKBOOK_PROFILE` (such as `t4`) and `GRPO_WORKBOOK_MODEL` (`qwen`, `gemma`, a folder or a hub id) in the
# environment choose otherwise.

# %%
import os

from grpo_workbook import PROFILES, RunConfig

run = RunConfig.from_env(max_steps=40, heldout=160)
print(run, "\n")
print(f"   {'profile':7} {'qwen':12} {'gemma':15} numbers in")
for name, values in PROFILES.items():
    mark = "->" if name == run.profile else "  "
    qwen, gemma = (os.path.basename(values[family]) for family in ("qwen", "gemma"))
    print(f"{mark} {name:7} {qwen:12} {gemma:15} {values['dtype']}")

# %% [markdown]
# ## One minute of GRPO
#
# Load the model in 4-bit with LoRA adapters. Unsloth must be imported before TRL and Transformers, which it patches.

# %%
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
import unsloth
from grpo_workbook import load_policy, training

model, tokenizer = load_policy(run)
print(training.count_4bit_layers(model), "layers in 4-bit")

# %% [markdown]
# The task: word problems whose answer is a number, to be given in a fixed form. Some are held out: the model never
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
# First the baseline. An answer is *strictly* right when the number is right and in the form that was asked for. Every
# answer is sampled at temperature 1, as in training. The first is printed whole: look at its number, then at its form.

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
# Now train: TRL's `GRPOTrainer`, with three rewards, each from 0 to 1, and their weights: correctness counts 2, the
# strict form 0.5, and parts of the form 0.5. The bar shows the mean of the weighted sum, at most 3, and the mean length
# of the answers in tokens.

# %%
from grpo_workbook import make_trainer, parse_rewards

print(run.rewards)
functions, weights = parse_rewards(run.rewards)
trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
trainer.train();

# %% [markdown]
# The reward rose. The total is weighted, the single rewards are not; the pale lines are single steps, the strong ones
# smoothed.

# %%
from grpo_workbook import figures

log = [entry for entry in trainer.state.log_history if "reward" in entry]
figures.show(*figures.reward_curves(log))

# %% [markdown]
# But a reward can be gamed, and training problems can be learned by heart. So ask the held-out problems again. With an
# interval, because 160 problems are a sample; and with a paired test: how probable would so lopsided a change be, problem
# by problem, if training had done nothing?

# %%
from grpo_workbook import paired_p_value

after = evaluate(model, tokenizer, heldout_set, **how)
for name, scores in (("before", before), ("after", after)):
    low, high = wilson_interval(scores.strict)
    bar = "#" * round(40 * mean(scores.strict))
    rate = mean(scores.strict)
    print(f"{name:6} {bar:40} {rate:.1%}  (95 %: {low:.1%} to {high:.1%})")
p_value = paired_p_value(before.strict, after.strict)
print(f"\nif training had done nothing: p = {p_value:.1g}\n")
print(after.completions[0])

# %% [markdown]
# What did it learn? *Lenient* takes any answer that can be read, whatever its form:

# %%
for name, scores in (("before", before), ("after", after)):
    rates = [mean(found) for found in (scores.strict, scores.lenient)]
    print("{:6}  strict {:.1%}   lenient {:.1%}".format(name, *rates))

# %% [markdown]
# Most of the arithmetic was there before; the form was not. The tiny model learned to do reliably what it could do
# sometimes. That is often all that such training does, in large models too ([Yue et al.,
# 2025](https://arxiv.org/abs/2504.13837)); [chapter 08](08_evaluation.ipynb) tells it from a new skill.

# %% [markdown]
# ## When something is wrong: ask for help
#
# Every run leaves a log. `diagnose` reads it and says what it sees, with the numbers and the cure. Here is the run of
# this notebook, and then a sick one that was recorded: its reward gives every completion the same.

# %%
from grpo_workbook import files
from grpo_workbook.diagnosis import as_text, diagnose, read_run

this_run = read_run(trainer.state.log_history)
print(as_text(diagnose(this_run), this_run))
sick = read_run(files.REPO / "tests" / "diagnosis_logs" / "constant_reward_0.json")
print("\n" + as_text(diagnose(sick), sick))

# %% [markdown]
# On the command line: `python -m grpo_workbook diagnose outputs/run`. If you ask a person, send its output with
# `python -m grpo_workbook doctor`'s: together they hold what anyone would ask you first, and no secret.

# %% [markdown]
# ## The map
#
# Chapters 01 to 03 explain the parts, 04 is the whole run, 05 to 08 make it trustworthy, 09 and 10 take it elsewhere.
# Whoever wants to train first goes to 04 and comes back.

# %%
from grpo_workbook.exercises.course import course_map

course_map()

# %% [markdown]
# Every chapter ends in exercises that answer back: a stub says "not attempted", a wrong answer is told its mistake, a
# right one is counted above. `python -m grpo_workbook progress` lists them.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %%
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
# Write the function and run its cell: it answers. Three easy ones, to see how it works.

# %% [markdown]
# ### Exercise 00.1 · `teaches` · easy · 3 minutes
#
# The rewards of one group. Does the group teach anything: is any advantage different from 0?

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
# ### Exercise 00.2 · `choose_method` · easy · 5 minutes
#
# What to do first: "GRPO" where there is a check and the model passes it sometimes but not always (`pass_rate`, `None`
# without a check); else "DPO" where there are preference pairs, else "SFT" where there are good answers;
# and "nothing" where none of these is to be had, or the model passes the check always.


# %% tags=["exercise"]
def choose_method(pass_rate: float | None, pairs: bool, good_answers: bool) -> str:
    raise NotImplementedError


check("00.2", choose_method);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three questions in this order: is it mastered already, can GRPO learn, what else is there. A pass rate of 0 says
# something else than `None`, and leads on to the same question.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def choose_method(pass_rate: float | None, pairs: bool, good_answers: bool) -> str:
#     if pass_rate == 1:
#         return "nothing"
#     if pass_rate:
#         return "GRPO"
#     if pairs:
#         return "DPO"
#     return "SFT" if good_answers else "nothing"
# ```
#
# </details>

# %% [markdown]
# ### Exercise 00.3 · `models_in_memory` · medium · 5 minutes
#
# How many models a method holds, as (trained, frozen), when all weights are trained. `method` is "SFT", "DPO", "GRPO" or
# "PPO". DPO always has a reference; GRPO and PPO have one when the KL penalty's weight `beta` is above 0; PPO has a
# critic. `reward_model` says whether there is a learned one, which is frozen; SFT and DPO use none in any case.


# %% tags=["exercise"]
def models_in_memory(method: str, beta: float, reward_model: bool) -> tuple[int, int]:
    raise NotImplementedError


check("00.3", models_in_memory);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Only PPO trains two models. Count the frozen ones apart: the reference, then the reward model.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def models_in_memory(method: str, beta: float, reward_model: bool) -> tuple[int, int]:
#     if method == "SFT":
#         return 1, 0
#     if method == "DPO":
#         return 1, 1
#     frozen = int(beta > 0) + int(reward_model)
#     return (2 if method == "PPO" else 1), frozen
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - GRPO compares a model's own answers with each other. It needs a check, and a model that passes it sometimes.
# - The reward says which way training goes; held-out problems, an interval and a paired test say whether it helped.
# - `doctor` before, `diagnose` during and after.
#
# Next: [01 · GRPO from scratch](01_grpo_from_scratch.ipynb), or straight to
# [04 · A GRPO run you can trust](04_grpo_run.ipynb).
