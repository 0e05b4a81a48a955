# %% [markdown]
# # 07 · Stages and curriculum
#
# **After this notebook you can** train in stages with a list of them, carry adapter and optimizer from one to the
# next, say for each stage whether it helped, choose problems by how hard they are for *this* policy, let a reward fade
# once it is mastered, refresh the KL reference between rounds, resume exactly, and say when none of that is worth it.
#
# **Time:** about 2 minutes on two CPU cores. On a GPU the same cells train Qwen3 or Gemma 3; the times there have not
# been measured yet.

# %% [markdown]
# ## Why stages: a reward that nobody earns is silent
#
# A reward for a right answer in the right form needs two things at once. Take a policy that answers right in 6 of 10
# completions, but in the asked form only in 1 of 20. Groups of eight:

# %%
import random

random.seed(0)


def draw_groups(form, right, groups=2000, size=8):
    """Completions as (in form?, right?)"""
    return [
        [(random.random() < form, random.random() < right) for _ in range(size)]
        for _ in range(groups)
    ]


def silent(groups, reward):
    """The share of groups in which all earn the same"""
    return sum(len({reward(*c) for c in g}) == 1 for g in groups) / len(groups)


def strict(form, right):
    return float(form and right)


start = draw_groups(form=0.05, right=0.6)
print(
    f"paid for right and in form: {silent(start, strict):.0%} of the groups are silent"
)

# %% [markdown]
# Nearly four of five groups teach nothing. The form alone is earned more often, so more groups speak. Suppose a first
# stage is paid for form only, until 19 of 20 have it. Then the same strict reward finds another policy:

# %%
form_only = silent(start, lambda form, right: float(form))
later = draw_groups(form=0.95, right=0.6)
print(f"paid for form alone, at the start: {form_only:.0%} silent")
print(f"paid for both, after that stage:   {silent(later, strict):.0%} silent")

# %% [markdown]
# That is the whole idea of **form first, then correctness**. A group is silent when all of it fails or all of it
# succeeds, so what matters is how far the success rate is from 0 and from 1:

# %%
from grpo_workbook import charts, figures

rates = [i / 50 for i in range(51)]
lines = {
    f"groups of {n}": (rates, [1 - p**n - (1 - p) ** n for p in rates])
    for n in (2, 4, 8, 16)
}
figures.show(
    *charts.line_chart(
        lines,
        x="chance that one completion succeeds",
        y="share of groups that speak",
        title="Groups speak between never and always",
        finding="At one half 50, 88, 99 and nearly 100 % of the groups speak, "
        "at 0 and 1 none.",
        markers=False,
    )
)

# %% [markdown]
# The same picture holds for each single problem: one that is never right and one that always is are silent. Leaving
# them out is a **curriculum**. Both ideas cost something: steps that train only form, completions that only measure.
# Whether they pay is a question to measure, and below we do.

# %% [markdown]
# ## The model, and how hard each problem is for it
#
# Everything as in chapter 04, with 96 held-out problems.

# %%
import os

from grpo_workbook.notebook import quiet, show
from grpo_workbook.run import Run

quiet()
run = Run.from_env(heldout=96)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset
from grpo_workbook.training import load_policy

model, tokenizer = load_policy(run)
train_set = to_dataset(read_problems(WORD_PROBLEMS["train"]))
heldout_set = to_dataset(
    read_problems(WORD_PROBLEMS["heldout"])[: run.settings.heldout]
)
print(run.model_name, "on", run.device)

# %% [markdown]
# Difficulty is no property of a problem. It is the share of *this policy's* completions that are right: the **pass
# rate**. Eight sampled completions for each of 64 problems, judged by the correctness reward:

# %%
from grpo_workbook.difficulty import curriculum, pass_rates

some = train_set.shuffle(seed=run.seed).select(range(64))
settings = run.settings
how = {
    "max_new_tokens": settings.max_completion_tokens,
    "seed": run.seed,
    "batch_size": settings.eval_batch,
    "temperature": settings.temperature,
}
rates_before = pass_rates(model, tokenizer, some, n=8, **how)
print(f"on average {sum(rates_before) / len(some):.0%} right")

# %% [markdown]
# `curriculum` leaves out the hopeless (never right) and the mastered (always right), and puts the easy ones first:

# %%
chosen = curriculum(rates_before, low=0.0, high=1.0)
print(chosen)
for i in (chosen.rows[0], chosen.rows[-1]):
    print(f"{rates_before[i]:.0%}: {some[i]['question']}")

# %% [markdown]
# Eight completions are few: a problem that is right in one of ten is called hopeless in 43 of 100 tries. So ask how
# much of the spread is luck. If all problems were equally hard, eight coins each would still not fall alike:

# %%
from statistics import mean, pstdev

share = mean(rates_before)
print(f"deviation of the pass rates:          {pstdev(rates_before):.2f}")
luck = share * (1 - share) / 8  # the variance if all were equally hard
print(f"equally hard problems would have one: {luck**0.5:.2f}")
print(f"share of the variance that is luck:   {luck / pstdev(rates_before) ** 2:.0%}")

# %% [markdown]
# Most of the spread is luck: these problems differ little for this model, and what looks easy was mostly lucky. A
# curriculum needs problems that differ, and rates that are measured well enough to see it.

# %% [markdown]
# ## Two stages
#
# A stage has a name, its steps, and whatever differs from the run: rewards, learning rate, rows.

# %%
from grpo_workbook.stage import Stage

STAGES = (
    Stage("format", steps=8, rewards="strict_format:0.5,incremental_format:0.5"),
    Stage("correct", steps=16, rewards="correctness:2,strict_format:0.5"),
)
run = Run.from_env(heldout=96, stages=STAGES)
print(run)

# %% [markdown]
# The same as a file, for `read_stages`. A name that no stage has is refused, not ignored: a misspelt learning rate
# would otherwise train with another one, and nobody would know.

# %%
from grpo_workbook.run import WorkbookError

SAME = """
- {name: format, steps: 8, rewards: "strict_format:0.5,incremental_format:0.5"}
- {name: correct, steps: 16, rewards: "correctness:2,strict_format:0.5"}
"""
import yaml

assert tuple(Stage.from_dict(given) for given in yaml.safe_load(SAME)) == STAGES
try:
    Stage.from_dict({"name": "correct", "steps": 16, "learning_rat": 1e-4})
except WorkbookError as error:
    print(error)

# %% [markdown]
# Each stage is a `GRPOTrainer` of its own, on the same adapter. A new trainer has a new optimizer, and AdamW without
# its two moving averages is another optimizer for its first steps: they are written at a stage's end and given to the
# next.

# %%
from grpo_workbook import stages

show(stages.Carry)

# %% [markdown]
# Two more things a new trainer would do silently. With the same seed every stage would begin with the same problems
# again, so each stage has its own. And TRL keeps a frozen copy of the adapter for the KL penalty: see *rounds* below.

# %%
show(stages.stage_run)

# %% [markdown]
# Training. The held-out problems are answered before, between and after the stages, and every four steps in between.

# %%
from grpo_workbook.stages import show_stages, train_stages

report = train_stages(run, model, tokenizer, train_set, heldout_set, probe_every=4)

# %% [markdown]
# If a warning `drowned` stands above: the diagnosis of chapter 05 sees one reward make up nearly all of the spread. In
# this stage that is meant: the form is mastered by then, so little of its spread is left, and correctness counts four
# times as much.
#
# Did each stage help? Every stage is compared with the one before it on the same problems, by the paired test of
# chapter 08. A last score alone would not say which stage earned it.

# %%
show_stages(report)

# %% [markdown]
# At the dotted line the rewards change, and the learning rate begins again from 0: in each stage it rises for five steps
# and then falls to 0. The grey line at 80 % is the goal of the experiment further down.

# %%
from grpo_workbook import stage_figures

figures.show(*stage_figures.stage_curve(report["stages"], goal=0.8))

# %% [markdown]
# Form alone lifts *strict* accuracy, though no right answer was paid yet: what the model already knows now counts.
# *Lenient* accuracy takes any answer that can be read, so it shows what is more than form:

# %%
for told in report["stages"]:
    was, now = told["heldout"]["before"], told["heldout"]["after"]
    print(f"{told['stage']['name']:8}", end="")
    for name in ("well_formed", "strict", "lenient"):
        print(f"  {name} {was[name]:.0%} -> {now[name]:.0%}", end="")
    print(f"  silent groups {told['silent_groups']:.0%}")

# %% [markdown]
# Was the optimizer really carried on? AdamW counts its own steps. After the second stage, which had 16, it says:

# %%
from safetensors.torch import load_file

folder = run.output / "stage-2-correct"
moments = load_file(folder / stages.MOMENTS)
print("steps by AdamW's count:", {int(v) for k, v in moments.items() if ".step" in k})
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# ## The same problems are easier now
#
# The 64 problems again, with the trained policy. The grey, hatched bars are what a curriculum leaves out.

# %%
rates_after = pass_rates(model, tokenizer, some, n=8, **how)
measured = {"before training": rates_before, "after two stages": rates_after}
figures.show(*stage_figures.pass_rate_histogram(measured, samples=8))
print("before:", curriculum(rates_before))
print("after: ", curriculum(rates_after))

# %% [markdown]
# A curriculum measured at the start would now train on problems that are mastered: measure again from time to time. In
# a stage, `pass_rate=(low, high)` does it as the stage begins. `ordered=True` turns off TRL's shuffling, which would
# undo the order from easy to hard:
#
# ```python
# Stage("harder", steps=40, pass_rate=(0.1, 0.9), samples=8, measured=200, ordered=True)
# ```
#
# `keep=lambda row: ...` chooses rows by anything else, such as their length.

# %% [markdown]
# ## Rounds: the reference refreshed
#
# With `beta` above 0 the KL penalty pulls the policy back to a *reference*. Which one? What TRL 1.15 does when it is
# given a model that has an adapter:
#
# - It makes no second model. As the trainer is made, the adapter is copied under the name `ref`, frozen; for the
#   reference's log-probabilities TRL switches to the copy.
# - Where there is no `ref`, it switches the adapter off: then the reference is the base model.
# - `sync_ref_model=True`, which refreshes the reference of a full model, raises `NotImplementedError` with an adapter.
# - A second trainer on the same model fails, because `ref` is there already.
#
# So a **round** is a stage whose trainer copies the adapter afresh: `drop_reference` removes the old copy, TRL makes
# the new one. `reference="base"` removes it again after that, and the whole way from the base is penalized.

# %%
from dataclasses import replace

from grpo_workbook.stage import rounds

again = rounds(Stage("round", steps=4, beta=0.1, learning_rate=5e-4), 2)
fixed = Stage("fixed", steps=2, beta=0.1, learning_rate=5e-4, reference="base")
rounds_run = replace(run, output=run.output / "rounds")
few = heldout_set.select(range(32))
rounds_report = train_stages(
    rounds_run, model, tokenizer, train_set, few, stages=[*again, fixed]
)

# %% [markdown]
# The KL at the beginning of each: 0 for a round, because the policy *is* its reference there (and stays so in the
# second step, for the learning rate of the first is 0). Against the base it is not 0 from the first step on: that is
# how far two stages and two rounds have led away.

# %%
import json

kl = {}
for path in sorted(rounds_run.output.glob("stage-*/log.json")):
    kl[path.parent.name] = [entry["kl"] for entry in json.loads(path.read_text())]
    shown = [f"{value:z8.4f}" for value in kl[path.parent.name]]  # z: no -0.0000
    print(f"{path.parent.name:16}", *shown)

# %% [markdown]
# Refreshing gives room: each round may go as far again. It also forgets where it came from, round by round; a policy
# can leave its base entirely, in steps that each looked small. With `beta=0`, as in the rest of this course, there is
# no reference, and nothing to refresh.

# %% [markdown]
# ## A reward that fades
#
# Instead of a hard border: let form pay less the more of it is right. `AdaptiveWeight` follows the success rate of the
# batches before:

# %%
from grpo_workbook.ensembles import AdaptiveWeight
from grpo_workbook.rewards import strict_format_reward

fading = AdaptiveWeight(
    strict_format_reward, strict_format_reward, at_zero=1.0, at_one=0.0, memory=0.8
)
good = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
for batch in ([good, "42", "42", "42"], [good, good, good, "42"], [good] * 4):
    weight = fading.weight
    paid = fading(completions=batch, answer=["42"] * 4)
    told = [round(p, 2) for p in paid]
    print(f"weight {weight:.2f}  paid {told}  rate after it {fading.rate:.2f}")

# %% [markdown]
# As a reward of a stage: `Stage("adaptive", 24, rewards=((correctness_reward, 2.0), (fading, 0.5)))`. The weight of
# each step stands in TRL's log. Here it is in two runs of the experiment that comes next:

# %%
from grpo_workbook.settings import REPO

bench = json.loads((REPO / "benchmarks" / "stages.json").read_text())
curves = {
    f"seed {told['seed']}": (range(1, len(told["weights"]) + 1), told["weights"])
    for told in bench["runs"]
    if told["way"] == "adaptive"
}
figures.show(
    *charts.line_chart(
        curves,
        x="optimizer step",
        y="weight of the form",
        title="Form pays less as it is mastered",
        finding="The weight falls by itself: no one has to choose a border.",
        markers=False,
    )
)

# %% [markdown]
# ## Does it help? The experiment
#
# A claim about training needs more than one run. `python benchmarks/stages.py` trains the tiny Qwen3 in five ways with
# three seeds each and measures 120 held-out problems every four steps. The question: how much until 80 % are strictly
# right?

# %%
for way, words in bench["ways"].items():
    print(f"{way:13} {words}")

# %% [markdown]
# What to count? Steps, or completions drawn: a curriculum draws before its first step, and that is not free. The table
# has the steps to the goal for each seed, their mean, the mean number of completions with those for measuring, and its
# ratio to `mixed`, seed by seed. The goal is reached when two measurements in a row are at 80 % or more; the step
# between two measurements is interpolated.

# %%
print(bench["text"])
figures.show(*stage_figures.race(bench["table"], bench["goal"]))

# %% [markdown]
# Where it says `not run`, there was no time for the third seed. Read with the noise in mind: one measurement of 120
# problems is uncertain by some seven points, and near 80 % the curves rise by about three points a step.
#
# - **Correctness alone** took 2.3 times as many completions as the mixed rewards on average, and its seeds lie far
#   apart. It pays for a right number inside the answer tags and for no other form, so more of its groups were silent.
#   Some reward for form is worth its place.
# - **Stages did not help.** They cost 13 % more on average, and came later with each of the three seeds. One possible
#   reason, not tested apart: the learning rate falls to 0 and warms up again between them. And the form was never so rare
#   that the other rewards were silent. Three seeds do not prove so small a loss, but they speak against a large gain.
# - **The filter did not help either.** It needs about as many steps as the mixed rewards without it, and measuring came
#   on top: 1,920 completions, more than the training itself. Of 240 problems it left out 4 to 7, hopeless or mastered.
# - **The fading reward** was slower with one seed and as fast with the other. It takes the pay for form away while form
#   is still being learned, which may be why.
#
# So for this model and these problems: mix the rewards, and leave the rest. When would you decide otherwise? When the
# silent groups at the start are many (`frac_reward_zero_std` in the log; over these runs 15 to 25 % with the mixed
# rewards, 30 to 36 % with correctness alone), when problems differ so much that a large share of them is hopeless, when
# a run is long enough to pay for measuring. Then measure again: with your model, your problems, and a goal that is
# fixed before.

# %% [markdown]
# ## Stop and resume
#
# Stages make long runs, and long runs are interrupted. `train_stages(..., resume=True)` skips the stages that have a
# `report.json` and goes on inside the one that was stopped, from its newest whole checkpoint.
#
# "Goes on" should mean: as if nothing had happened. A small run to prove it, 4 steps with a checkpoint every 2:

# %%
from grpo_workbook.resume import train
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.training import make_trainer


def small_trainer(name):
    small = Run.from_env(
        steps=4, batch_size=16, num_generations=4, output=run.output / name
    )
    policy, tokens = load_policy(small)
    rewards = parse_rewards(small.settings.rewards)
    trainer = make_trainer(small, policy, tokens, train_set, *rewards)
    trainer.args.save_steps = 2
    return trainer


whole = small_trainer("whole")
train(whole, say=lambda text: None)
whole.state.global_step

# %% [markdown]
# The same run again, but the power fails as its third step ends. Then a new trainer, as a new process would make it:

# %%
from grpo_workbook.callback import Callback


class PowerCut(Callback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 3:
            raise RuntimeError("the power failed")


killed = small_trainer("killed")
killed.add_callback(PowerCut())
try:
    train(killed, say=lambda text: None)
except RuntimeError as error:
    print("step", killed.state.global_step, error)
resumed = small_trainer("killed")
train(resumed, resume=True)
print("ended at step", resumed.state.global_step)

# %% [markdown]
# Step 3 was lost and is trained again. Is it the same step? Compare every weight of the two adapters, bit by bit:

# %%
import torch


def adapter_of(trainer):
    return [p.detach() for n, p in trainer.model.named_parameters() if "lora_" in n]


pairs = list(zip(adapter_of(whole), adapter_of(resumed), strict=True))
same_bits = all(torch.equal(a, b) for a, b in pairs)
print(len(pairs), "matrices, all the same bits:", same_bits)
print([entry["reward"] for entry in whole.state.log_history if "reward" in entry])
print([entry["reward"] for entry in resumed.state.log_history if "reward" in entry])

# %% [markdown]
# For that a checkpoint must hold everything that the next step depends on: adapter and optimizer, the schedule, the
# random states of Python, NumPy and torch, the place in the shuffled data, completions that are drawn and not yet used,
# and the state of rewards that have one, such as `AdaptiveWeight`. Stock resuming loses several of these;
# `grpo_workbook/resume.py` says which, and brings them back. On a GPU the same states are kept, but kernels there need
# not add up in the same order twice.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %%
first, last = (
    report["stages"][0]["heldout"]["before"],
    report["stages"][-1]["heldout"]["after"],
)
logs = [
    json.loads(path.read_text()) for path in sorted(run.output.glob("stage-*/log.json"))
]
proved = {
    "steps": [len(log) for log in logs],
    "before": first["strict"],
    "after": last["strict"],
    "p_values": [told["p_value"] for told in report["stages"]],
    "adamw_steps": max(int(v) for k, v in moments.items() if ".step" in k),
    "kl_begins": {name: values[0] for name, values in kl.items()},
    "same_bits": same_bits,
    "pass_rates": [sum(r) / len(r) for r in (rates_before, rates_after)],
}
(run.output / "notebook_07.json").write_text(json.dumps(proved, indent=2))
assert proved["steps"] == [8, 16] and proved["adamw_steps"] == 24
assert all(entry["step_time"] > 0 for log in logs for entry in log)
if run.profile == "smoke":
    assert same_bits, "resuming was not exact"
    assert last["strict"] > first["strict"] + 0.4, "the stages did not help"
    assert proved["p_values"][0] < 1e-6, "the first stage did not help"
    assert proved["pass_rates"][1] > proved["pass_rates"][0] + 0.3

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 07.1 · `silent_share` · easy · 5 minutes
#
# The share of groups that teach nothing, because all of the group earn the same. No groups have no share: raise
# `ValueError`.

# %% tags=["exercise"]
from grpo_workbook.checks import check


def silent_share(groups: list[list[float]]) -> float:
    raise NotImplementedError


check("07.1", silent_share);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The set of a silent group's rewards has one element.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def silent_share(groups: list[list[float]]) -> float:
#     if not groups:
#         raise ValueError("no groups")
#     return sum(len(set(group)) == 1 for group in groups) / len(groups)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.2 · `keep_learnable` · easy · 5 minutes
#
# The places of the rows whose pass rate lies between `low` and `high`, both left out; the easiest first, equal ones in
# their order.


# %% tags=["exercise"]
def keep_learnable(rates: list[float], low: float, high: float) -> list[int]:
    raise NotImplementedError


check("07.2", keep_learnable);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Collect the places first, then sort them by their rates. Python's sort keeps equal ones in their order, also with a
# negative key; `reverse=True` does as well.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def keep_learnable(rates: list[float], low: float, high: float) -> list[int]:
#     kept = [i for i, rate in enumerate(rates) if low < rate < high]
#     return sorted(kept, key=lambda i: -rates[i])
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.3 · `switch_step` · medium · 10 minutes
#
# When to go on to the next stage? `counts` says for each step how many of `n` completions had the form. Each step's share
# has a 95 % interval (Wilson's). Return the first step, counted from 1, at which its *lower* end is at least `goal`, or
# `None`: so a share that is only luckily high is not enough.


# %% tags=["exercise"]
def switch_step(counts: list[int], n: int, goal: float) -> int | None:
    raise NotImplementedError


check("07.3", switch_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `grpo_workbook.intervals.wilson_interval` takes a list of True and False. You can make one from a count.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from grpo_workbook.intervals import wilson_interval
#
#
# def switch_step(counts: list[int], n: int, goal: float) -> int | None:
#     for step, right in enumerate(counts, 1):
#         low, high = wilson_interval([True] * right + [False] * (n - right))
#         if low >= goal:
#             return step
#     return None
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.4 · `adaptive_weights` · medium · 8 minutes
#
# `shares` are the success shares of the batches, in order. Return the weight with which each batch is paid: `at_zero`
# for a rate of 0, `at_one` for 1, in a straight line between. The rate begins at 0; after each batch it becomes
# `memory * rate + (1 - memory) * share`.


# %% tags=["exercise"]
def adaptive_weights(
    shares: list[float], at_zero: float, at_one: float, memory: float
) -> list[float]:
    raise NotImplementedError


check("07.4", adaptive_weights);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A batch is paid before its own success is known.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def adaptive_weights(
#     shares: list[float], at_zero: float, at_one: float, memory: float
# ) -> list[float]:
#     rate, weights = 0.0, []
#     for share in shares:
#         weights.append(at_zero + (at_one - at_zero) * rate)
#         rate = memory * rate + (1 - memory) * share
#     return weights
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.5 · `learning_rates` · medium · 10 minutes
#
# `stages` are `(steps, peak)`. Each stage has its own linear schedule. At its step i, counted from 0: during the first
# `warmup` steps `peak * i / warmup`, after that `peak * (steps - i) / (steps - warmup)`. Return the learning rate of
# every step of all stages. Then look at a stage of 8 steps with a warm-up of 5: how many of its steps move at all, and
# how many steps at the peak are they worth together?


# %% tags=["exercise"]
def learning_rates(stages: list[tuple[int, float]], warmup: int) -> list[float]:
    raise NotImplementedError


check("07.5", learning_rates);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two loops, one inside the other. With `warmup` 0 the rate begins at the peak.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def learning_rates(stages: list[tuple[int, float]], warmup: int) -> list[float]:
#     rates = []
#     for steps, peak in stages:
#         for i in range(steps):
#             if i < warmup:
#                 rates.append(peak * i / warmup)
#             else:
#                 rates.append(peak * (steps - i) / (steps - warmup))
#     return rates
# ```
#
# In the stage of 8 steps the first does not move. The rates add up to 5 times the peak: its 8 steps are worth 5.
#
# </details>

# %% [markdown]
# ## Summary
#
# - Stages help where a reward is silent at the start. Look at the silent groups before you plan any.
# - A stage is a trainer of its own on the same adapter: carry the optimizer's moments, change the seed, mind that the
#   learning rate warms up again. Compare each stage with the one before, on the same problems.
# - Difficulty is this policy's pass rate, and it moves. Measuring it costs completions: count them.
# - With an adapter TRL's reference is a frozen copy, made with the trainer: a new round refreshes it.
# - On a CPU, a resumed run that is not the same run to the last bit has lost something: find out what.
# - An adaptive weight does what a stage does, without a border. Here neither was faster than fixed weights.
# - A claim about training takes several seeds, a goal that is fixed before, and a report whichever way it falls.
#
# Next: [08 · Evaluation](08_evaluation.ipynb) measures what came out.
