# %% [markdown]
# # 07 · Stages and curriculum
#
# **After this notebook you can** train in stages, carry adapter and optimizer from one to the next, say for each stage
# whether it helped, choose problems by how hard they are for *this* policy, let a reward fade once it is mastered,
# refresh the KL reference between rounds, resume exactly, and say when none of that is worth it.
#
# **Time:** about 2 minutes on two CPU cores. On a GPU the same cells train Qwen3 or Gemma 3; the times there have not
# been measured yet.

# %% [markdown]
# ## Why stages: a reward that nobody earns teaches nothing
#
# A group in which all completions earn the same has no variance, and gives no advantage to any of them: a
# *zero-variance group*. A reward for a right answer in the right form needs two things at once. Take a policy that
# answers right in 6 of 10 completions, but in the asked form only in 1 of 20. Groups of eight:

# %%
import random

random.seed(0)


def sample_groups(form, right, groups=2000, size=8):
    """Completions as (in form?, right?)"""
    return [
        [(random.random() < form, random.random() < right) for _ in range(size)]
        for _ in range(groups)
    ]


def zero_variance(groups, reward):
    """The rate of groups in which all earn the same"""
    return sum(len({reward(*c) for c in g}) == 1 for g in groups) / len(groups)


def strict(form, right):
    return float(form and right)


start = sample_groups(form=0.05, right=0.6)
print(f"paid for right and in form: {zero_variance(start, strict):.0%} zero variance")

# %% [markdown]
# Nearly four of five groups teach nothing. The form alone is earned more often, so more groups teach. Suppose a first
# stage is paid for form only, until 19 of 20 have it. Then the same strict reward finds another policy:

# %%
form_only = zero_variance(start, lambda form, right: float(form))
later = sample_groups(form=0.95, right=0.6)
print(f"paid for form alone, at the start: {form_only:.0%}")
print(f"paid for both, after that stage:   {zero_variance(later, strict):.0%}")

# %% [markdown]
# That is the whole idea of **form first, then correctness**. A group has no variance when all of it fails or all of it
# succeeds, so what matters is how far the success rate is from 0 and from 1:

# %%
from grpo_workbook import figures

rates = [i / 50 for i in range(51)]
lines = {
    f"groups of {n}": (rates, [1 - p**n - (1 - p) ** n for p in rates])
    for n in (2, 4, 8, 16)
}
figures.show(
    *figures.line_chart(
        lines,
        x="chance that one completion succeeds",
        y="rate of groups that teach",
        title="Groups teach between never and always",
        finding="At one half 50, 88, 99 and nearly 100 % of the groups teach, "
        "at 0 and 1 none.",
        markers=False,
    )
)

# %% [markdown]
# The same picture holds for each single problem: one that is never right teaches nothing, nor does one that always is.
# Leaving them out is a **curriculum**. Both ideas cost something: steps that train only form, completions that only
# measure. Whether they pay is a question to measure, and below we do.

# %% [markdown]
# ## The model, and how hard each problem is for it
#
# Everything as in chapter 04, with 96 held-out problems.

# %%
import os

from grpo_workbook import RunConfig, quiet, show

quiet()
run = RunConfig.from_env(heldout=96)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook import data, load_policy, load_problems, to_dataset

model, tokenizer = load_policy(run)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"])
heldout_set = to_dataset(heldout_rows.select(range(run.heldout)))
print(run.model_name, "on", run.device)

# %% [markdown]
# Difficulty is no property of a problem alone. It is the rate of *this policy's* completions that are right: the
# **pass rate**. Eight sampled completions for each of 64 problems, judged by the correctness reward of chapter 03 (the
# right number between answer tags, whatever stands around them):

# %%
from grpo_workbook.stages import curriculum, pass_rates

some = train_set.shuffle(seed=run.seed).select(range(64))
how = {
    "max_new_tokens": run.max_completion_length,
    "seed": run.seed,
    "batch_size": run.eval_batch,
    "temperature": run.temperature,
}
rates_before = pass_rates(model, tokenizer, some, n=8, **how)
print(f"on average {sum(rates_before) / len(some):.0%} right")

# %% [markdown]
# `curriculum` leaves out the problems that are *hopeless* (never right) and those that are *mastered* (always right),
# and puts the easy ones first:

# %%
chosen = curriculum(rates_before, low=0.0, high=1.0)
print(chosen)
for i in (chosen.rows[0], chosen.rows[-1]):
    print(f"{rates_before[i]:.0%}: {some[i]['question']}")

# %% [markdown]
# Eight completions are few: a problem whose true pass rate is one in ten is called hopeless in 43 of 100 tries (0.9 to
# the power of 8). So ask how much of the spread is luck. If all problems were equally hard, with the pass rate p, the
# measured rates would still differ, with the variance p (1 - p) / 8:

# %%
from statistics import mean, pstdev

p = mean(rates_before)
print(f"deviation of the pass rates:          {pstdev(rates_before):.2f}")
luck = p * (1 - p) / 8  # the variance if all were equally hard
print(f"equally hard problems would have one: {luck**0.5:.2f}")
print(f"part of the variance that is luck:    {luck / pstdev(rates_before) ** 2:.0%}")

# %% [markdown]
# In the smoke run most of the spread is luck: these problems differ little for this model, and what looks easy was
# mostly lucky. A curriculum needs problems that differ, and rates that are measured well enough to see it.

# %% [markdown]
# ## Two stages
#
# A stage has a name, its steps, and whatever differs from the run: rewards, learning rate, rows.

# %%
from grpo_workbook.stages import Stage

STAGES = (
    Stage("format", steps=8, rewards="strict_format:0.5,incremental_format:0.5"),
    Stage("correct", steps=16, rewards="correctness:2,strict_format:0.5"),
)
print(run)

# %% [markdown]
# The same as a YAML file, which `grpo_workbook.stages.read_stages` reads. A setting that no stage has is refused, not
# ignored: a misspelt learning rate would otherwise train with another one, and nobody would know.

# %%
from grpo_workbook import WorkbookError

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
# Each stage is a `GRPOTrainer` of its own, on the same adapter. A new trainer has a new optimizer. AdamW keeps two
# moving averages of the gradient, its *moments*; without them it behaves otherwise for its first steps. So the moments
# are saved at a stage's end and given to the next:

# %%
from grpo_workbook import stages

show(stages.Carry)

# %% [markdown]
# A new trainer would do two more things without a word. With the same seed every stage would begin with the same
# problems again, so each stage has its own seed, below. And TRL keeps a frozen copy of the adapter for the KL penalty:
# see *Rounds*, further down.

# %%
show(stages.stage_run)

# %% [markdown]
# Training. `train_stages` answers the held-out problems before, between and after the stages. Callbacks go to the
# trainer of every stage: chapter 05's `HeldoutProbe` looks every four steps in between.

# %%
from grpo_workbook import HeldoutProbe
from grpo_workbook.stages import show_stages, train_stages

probe = HeldoutProbe(
    model,
    tokenizer,
    heldout_set,
    max_new_tokens=run.max_completion_length,
    every=4,
    problems=len(heldout_set),
)
data_sets = (train_set, heldout_set)
report = train_stages(run, model, tokenizer, *data_sets, STAGES, callbacks=[probe])

# %% [markdown]
# Did each stage help? Every stage is compared with what was there before it on the same problems, by the paired test of
# chapter 04. A last score alone would not say which stage earned it.

# %%
show_stages(report)

# %% [markdown]
# At the dotted line the rewards change, and the learning rate begins again from 0: in each stage it rises for five
# steps and then falls to 0. The grey line at 80 % is the goal of the experiment further down.

# %%
curves = {stage["stage"]["name"]: stage["curve"] for stage in report["stages"]}
figures.show(*figures.stage_curve(curves, goal=0.8))

# %% [markdown]
# Form alone lifts *strict* accuracy, though no right answer was paid yet: what the model already knows now counts.
# *Lenient* accuracy takes any answer that can be read, so only what it gains is more than form:

# %%
for told in report["stages"]:
    was, now = told["heldout"]["before"], told["heldout"]["after"]
    print(f"{told['stage']['name']:8}", end="")
    for name in ("well_formed", "strict", "lenient"):
        key = f"{name}_sampled"
        print(f"  {name} {was[key]:.0%} -> {now[key]:.0%}", end="")
    print(f"  zero-variance groups {told['zero_variance']:.0%}")

# %% [markdown]
# Was the optimizer really carried on? AdamW counts its own steps. After the second stage, which had 16 steps after the
# first one's 8, its count is:

# %%
from safetensors.torch import load_file

folder = run.output / "stage-2-correct"
moments = load_file(folder / "optimizer.safetensors")  # 7.step, 7.exp_avg, ...
adamw_steps = {int(moments[name]) for name in moments if name.endswith(".step")}
print("steps by AdamW's count:", adamw_steps)
print(sorted(path.name for path in folder.iterdir()))

# %% [markdown]
# ## The same problems are easier now
#
# The 64 problems again, with the trained policy. The grey, hatched bars are what a curriculum leaves out.

# %%
rates_after = pass_rates(model, tokenizer, some, n=8, **how)
measured = {"before training": rates_before, "after two stages": rates_after}
figures.show(*figures.pass_rate_histogram(measured, samples=8))
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
# So a **round** (chapter 01 trained two by hand) is a stage whose trainer copies the adapter afresh: `drop_reference`
# removes the old copy, TRL makes the new one. `reference="base"` removes that too, and the whole way from the base is
# penalized. Two rounds, and then two steps against the base:

# %%
from grpo_workbook.stages import rounds

again = rounds(Stage("round", steps=4, beta=0.1, learning_rate=5e-4), 2)
fixed = Stage("fixed", steps=2, beta=0.1, learning_rate=5e-4, reference="base")
rounds_run = run.replace(output=run.output / "rounds")
few = heldout_set.select(range(32))
rounds_report = train_stages(
    rounds_run, model, tokenizer, train_set, few, [*again, fixed]
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
# Instead of a hard border between stages: let form pay less the more of it is right. Chapter 03's `AdaptiveWeight`
# follows the success rate of the batches before:

# %%
from grpo_workbook import AdaptiveWeight, strict_format_reward

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
# As a reward of a stage: `Stage("adaptive", 24, rewards=((correctness_reward, 2.0), (fading, 0.5)))`. Its weight at
# each step is in TRL's log. Here it is in the stored runs of the experiment that comes next:

# %%
from grpo_workbook import files

bench = json.loads((files.REPO / "benchmarks" / "stages.json").read_text())
curves = {
    f"seed {told['seed']}": (range(1, len(told["weights"]) + 1), told["weights"])
    for told in bench["runs"]
    if told["way"] == "adaptive"
}
figures.show(
    *figures.line_chart(
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
# A claim about training needs more than one run. `python benchmarks/stages.py` trained the tiny Qwen3 in five ways,
# with three seeds each, and measured 120 held-out problems every four steps. The question: how much does it take
# until 80 % are strictly right? Its results are stored, and this notebook reads them. The five ways:

# %%
for way, words in bench["ways"].items():
    print(f"{way:13} {words}")

# %% [markdown]
# What to count? Steps, or completions: a curriculum samples before its first step, and that is not free. The table
# has the steps to the goal for each seed and their mean; then the mean number of completions, with those that were
# sampled for pass rates; and last how many times as many that is as with `mixed`, compared seed by seed. The goal
# counts as reached when two measurements in a row are at 80 % or more; the step between two measurements is
# interpolated.

# %%
print(bench["text"])
seeds = list(bench["table"][0]["completions"])
figures.show(
    *figures.bar_chart(
        {
            f"seed {n}": [row["completions"][n] or 0 for row in bench["table"]]
            for n in seeds
        },
        [row["way"] for row in bench["table"]],
        y="completions sampled",
        title=f"Until {bench['goal']:.0%} of the held-out problems are strictly right",
        form=",.0f",
    )
)

# %% [markdown]
# Read with the noise in mind: one measurement of 120 problems is uncertain by some seven points, and near 80 % the
# curves of `mixed` rise by one to three points a step.
#
# - **Correctness alone** took 2.3 times as many completions as the mixed rewards on average, and its seeds lie far
#   apart. It pays for a right number inside the answer tags and for no other form, so more of its groups had no
#   variance. Some reward for form is worth its place.
# - **Stages did not help.** They cost 13 % more on average, and came later with each of the three seeds. One possible
#   reason, not tested apart: the learning rate falls to 0 and warms up again between them. And the form was never so
#   rare that the other rewards went unearned. Three seeds do not prove so small a loss, but they speak against a large
#   gain.
# - **The filter did not pay.** It needed five steps less with one seed and a little more with the other two, and
#   measuring came on top: 1,920 completions, more than the training itself. Of 240 problems it left out 4 to 9,
#   hopeless or mastered.
# - **The fading reward** was the fastest with one seed and as fast as `mixed` with another. With the third it was at
#   81 % after 12 steps, but then fell back once. Three seeds cannot say whether that was chance, or came from taking
#   the pay for form away while form was still being learned.
#
# So for this model and these problems: mix the rewards, and leave the rest. When would you decide otherwise? When the
# zero-variance groups at the start are many (`frac_reward_zero_std` in the log; on average over whole runs it was 15 to
# 25 % with the mixed rewards, 30 to 36 % with correctness alone), when problems differ so much that a large part of
# them is hopeless, when a run is long enough to pay for measuring. Then measure again: with your model, your problems,
# and a goal that is fixed before.

# %% [markdown]
# ## Stop and resume
#
# Stages make long runs, and long runs are interrupted. The room `resume` stops and resumes any `GRPOTrainer`, in three
# lines: Ctrl-C ends training after the step under way and saves, and what was killed goes on from its newest whole
# checkpoint.
#
# ```python
# from grpo_workbook.resume import train
#
# train(trainer)                 # in place of trainer.train()
# train(trainer, resume=True)    # later, in a new process, with a trainer that was made in the same way
# ```
#
# "Goes on" should mean: as if nothing had happened. A small run to prove it, 4 steps with a checkpoint every 2:

# %%
from grpo_workbook import make_trainer, parse_rewards
from grpo_workbook.resume import train


def small_trainer(name):
    small = RunConfig.from_env(
        max_steps=4, batch_size=16, num_generations=4, output=run.output / name
    )
    policy, tokens = load_policy(small)
    rewards = parse_rewards(small.rewards)
    trainer = make_trainer(small, policy, tokens, train_set, *rewards)
    trainer.args.save_steps = 2
    return trainer


whole = small_trainer("whole")
train(whole, say=lambda text: None)
whole.state.global_step

# %% [markdown]
# The same run again, but the power fails as its third step ends. Then a new trainer, as a new process would make it,
# which finds the checkpoint of step 2:

# %%
from transformers import TrainerCallback


class PowerCut(TrainerCallback):
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
# random states of Python, NumPy and torch, the place in the shuffled data, completions that are sampled and not yet
# used, and the state of rewards that have one, such as `AdaptiveWeight`. Stock resuming loses several of these;
# `grpo_workbook/resume/exact.py` says which, and brings them back. On a GPU the same states are kept, but kernels there
# need not add up in the same order twice.
#
# Stages take it as an argument. `train_stages(..., resume=True)` skips those that have a `report.json`; what trains the
# next one is whatever is given as `train`. This goes on inside it, exactly, and is what `python -m grpo_workbook
# stages` does:


# %%
def exactly(run, model, tokenizer, rows, rewards, weights, callbacks):
    trainer = make_trainer(run, model, tokenizer, rows, rewards, weights)
    for callback in callbacks:
        trainer.add_callback(callback)
    return train(trainer, resume=True).history


resumed_report = train_stages(
    run, model, tokenizer, *data_sets, STAGES, resume=True, train=exactly
)
assert resumed_report["stages"] == json.loads(json.dumps(report["stages"]))

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
    "before": first["strict_sampled"],
    "after": last["strict_sampled"],
    "p_values": [told["heldout"]["p_value"] for told in report["stages"]],
    "adamw_steps": max(adamw_steps),
    "kl_begins": {name: values[0] for name, values in kl.items()},
    "same_bits": same_bits,
    "pass_rates": [sum(r) / len(r) for r in (rates_before, rates_after)],
}
(run.output / "notebook_07.json").write_text(json.dumps(proved, indent=2))
assert proved["steps"] == [8, 16] and proved["adamw_steps"] == 24
assert all(entry["step_time"] > 0 for log in logs for entry in log)
if run.profile == "smoke":
    assert same_bits, "resuming was not exact"
    assert proved["after"] > proved["before"] + 0.4, "the stages did not help"
    assert proved["p_values"][0] < 1e-6, "the first stage did not help"
    assert proved["pass_rates"][1] > proved["pass_rates"][0] + 0.3

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 07.1 · `smallest_group` · easy · 8 minutes
#
# Each completion succeeds with the chance `rate`, and a success earns 1, a failure 0. What is the smallest group size,
# from 2 on, with which at least `wanted` of all groups (a fraction below 1) have some variance? Where no size is
# enough, raise `ValueError`.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def smallest_group(rate: float, wanted: float) -> int:
    raise NotImplementedError


check("07.1", smallest_group);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A group has no variance in two ways; the figure at the top of this chapter draws what is left. For which rates does no
# size help?
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
# ### Exercise 07.2 · `keep_learnable` · easy · 5 minutes
#
# Return the indices of the rows whose pass rate is above `low` and below `high`: the easiest first,
# equally easy ones in the order they have.


# %% tags=["exercise"]
def keep_learnable(rates: list[float], low: float, high: float) -> list[int]:
    raise NotImplementedError


check("07.2", keep_learnable);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Collect the indices first, then sort them by their rates. Python's sort keeps equal ones in their order, also with a
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
# When to go on to the next stage? `counts` says for each step how many of `n` completions had the form. Each step's
# rate has a 95 % interval (Wilson's, as in chapter 04). Return the first step, counted from 1, at which the *lower*
# end of the interval is at least `goal`, so that a rate that is high by luck is not enough; `None` where there is
# none.


# %% tags=["exercise"]
def switch_step(counts: list[int], n: int, goal: float) -> int | None:
    raise NotImplementedError


check("07.3", switch_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `grpo_workbook.wilson_interval` takes a list of True and False. You can make one from a count.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from grpo_workbook import wilson_interval
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
# ### Exercise 07.4 · `real_spread` · medium · 10 minutes
#
# Measured pass rates are spread more than the true ones, because luck is added. With V the variance of the measured
# `rates` (divided by their number), p their mean, and `n` completions behind each rate, the true rates have the
# variance n / (n - 1) * (V - p (1 - p) / n), as well as one can tell. Return their standard deviation, and 0.0 where
# luck explains all the spread or more. From one completion each nothing can be said: raise `ValueError` for an `n`
# below 2.


# %% tags=["exercise"]
def real_spread(rates: list[float], n: int) -> float:
    raise NotImplementedError


check("07.4", real_spread);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `statistics.pvariance` divides by the number of rates. The root of a negative number is an error: look at the sign
# first.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, pvariance
#
#
# def real_spread(rates: list[float], n: int) -> float:
#     if n < 2:
#         raise ValueError(f"{n} completions each cannot tell luck from difficulty")
#     p = mean(rates)
#     variance = n / (n - 1) * (pvariance(rates) - p * (1 - p) / n)
#     return max(0.0, variance) ** 0.5
# ```
#
# </details>

# %% [markdown]
# ### Exercise 07.5 · `learning_rates` · medium · 10 minutes
#
# `stages` are pairs `(steps, peak)`. Each stage has its own linear schedule. At its step i, counted from 0, the rate is
# `peak * i / warmup` during the first `warmup` steps, and `peak * (steps - i) / (steps - warmup)` after them. Return
# the rates of all steps of all stages in one list. Then look at a stage of 8 steps with a warm-up of 5: how many of its
# steps move the weights at all, and to how many steps at the peak do they add up?


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
# In the stage of 8 steps the first does not move the weights. The rates add up to 4 times the peak: its 8 steps are
# worth 4 at the peak.
#
# </details>

# %% [markdown]
# ## Summary
#
# - Stages help where a reward is hardly earned at the start. Count the zero-variance groups before you plan any.
# - A stage is a trainer of its own on the same adapter: carry the optimizer's moments, change the seed, mind that the
#   learning rate warms up again. Compare each stage with what was there before it, on the same problems.
# - Difficulty is this policy's pass rate, and it moves. Measuring it costs completions: count them.
# - With an adapter TRL's reference is a frozen copy, made with the trainer: a new round refreshes it.
# - On a CPU, a resumed run that is not the same run to the last bit has lost something: find out what.
# - An adaptive weight does what a stage does, without a border. Here neither was faster than fixed weights.
# - A claim about training takes several seeds, a goal that is fixed before, and a report whichever way it falls.
#
# Next: [08 · Evaluation](08_evaluation.ipynb) measures what came out.
