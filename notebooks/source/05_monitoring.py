# %% [markdown]
# # 05 · Monitoring: a run that says what is wrong with it
#
# **After this notebook you can** read every curve of a GRPO run, say why a loss near 0 is normal, tell a healthy run
# from a sick one within 30 steps, name the disease and its cure, and stop a bad run before it wastes an hour.
#
# **Time:** about 2 minutes on two CPU cores (smoke profile). The times on a GPU have not been measured yet.
#
# For a run of your own: `python -m grpo_workbook diagnose FOLDER`.

# %% [markdown]
# ## Why the loss is 0
#
# Four completions of one problem, two right. Their advantages are centred on the group's mean, so they sum to 0. The
# loss is minus the mean of `ratio * advantage`, and at the first update of a batch the policy is still the one that
# sampled the completions: every ratio is 1.

# %%
from statistics import mean, stdev

rewards = [1.0, 1.0, 0.0, 0.0]
advantages = [(r - mean(rewards)) / (stdev(rewards) + 1e-4) for r in rewards]
print("advantages:", [round(a, 2) for a in advantages])
print(f"loss: {abs(mean(1.0 * a for a in advantages)):.3f}")

# %% [markdown]
# The *value* is 0, its *gradient* is not: it makes the first two likelier and the others rarer. What remains in a real
# log comes from lengths. Here the loss is averaged over tokens, so a longer completion counts more, and the sign only
# says whether the good ones were longer:

# %%
for lengths in ([20, 20, 20, 20], [30, 30, 20, 20], [20, 20, 30, 30]):
    loss = -sum(a * n for a, n in zip(advantages, lengths)) / sum(lengths)
    print(lengths, f"loss {round(loss, 3) + 0.0:+.3f}")

# %% [markdown]
# The loss does not fall when the model gets better, and does not rise when it gets worse. Watch the reward. One thing
# does show up in the loss: with `beta` above 0 it holds the KL penalty, which starts at 0 and grows.

# %% [markdown]
# ## A healthy run, metric by metric
#
# This is a stored log: 30 steps of the course's main run, as TRL wrote it. `read_run` takes the folder of a run, a
# checkpoint, a `trainer_state.json`, logged completions, or `trainer.state.log_history`.

# %%
from grpo_workbook import files
from grpo_workbook.diagnosis import read_run

LOGS = files.REPO / "tests" / "diagnosis_logs"
healthy = read_run(LOGS / "healthy_0.json")
columns = ["reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm"]
healthy.table.loc[[1, 5, 10, 20, 30], columns].round(3)

# %% [markdown]
# The mean size of the loss beside the rise of the reward, without and with a KL penalty. The penalty in it is small:
# `beta` times the KL of the last steps.

# %%
with_kl = read_run(LOGS / "healthy_beta_0.json")
for name, log in (("beta 0", healthy.table), ("beta 0.04", with_kl.table)):
    reward, loss = log["reward"].dropna(), log["loss"].dropna()
    penalty = 0.04 * log["kl"].tail(5).median() if "kl" in log else 0.0
    print(f"{name:10} |loss| {loss.abs().mean():.3f}, penalty {penalty:.4f}"
          f"   reward {reward.head(5).mean():.2f} to {reward.tail(5).mean():.2f}")

# %% [markdown]
# Six panels say nearly everything. What each step logged is drawn faintly, its moving average above it. *Adapter
# change* is how far the adapters have moved, relative to their norm at the start; there is no KL line, because `beta`
# is 0. In a *zero-variance group* all rewards are equal, so that it teaches nothing.

# %%
from grpo_workbook import figures
from grpo_workbook.diagnosis import run_panels

figures.show(*run_panels(healthy, title="A healthy run"))

# %% [markdown]
# | panel | healthy | worry when |
# | --- | --- | --- |
# | reward, each part | rises, then bends; form first, correctness after it | flat after 30 steps, falling, or one part rising alone |
# | spread, zero-variance groups | spread falls and such groups grow *as the reward gets high* | zero variance from the start: no gradient |
# | entropy, KL | entropy falls slowly, KL grows and levels off | entropy 0 while the reward is low; KL over the entropy at the start |
# | tokens | steady, or moving for a reason | all at the limit; a steep climb; near 0 |
# | gradient norm, adapters | gradient noisy, adapters move by a tenth or two of their norm | gradient 0; adapters at 0, or beyond half their norm |
# | held-out problems | rise with the reward | still or falling while the reward rises |

# %% [markdown]
# The KL of the run with `beta` 0.04, beside its entropy, both in nats per token. KL begins at 0, because the policy is
# still its reference, and grows as they part. Single steps may jump far, here step 29, for a few tokens that the
# reference finds nearly impossible (chapter 01): look at the level, not at the peaks.

# %%
from grpo_workbook import figures

parted = with_kl.table[["kl", "entropy"]].dropna()
figures.show(*figures.line_chart(
    {"KL": (list(parted.index), figures.smooth(list(parted["kl"]))),
     "entropy": (list(parted.index), figures.smooth(list(parted["entropy"])))},
    x="optimizer step", y="nats per token, smoothed over 7 steps",
    title="Entropy falls, KL leaves 0", markers=False,
    finding="The policy becomes surer, and parts from its reference.",
))

# %% [markdown]
# A machine can read them too:

# %%
from grpo_workbook.diagnosis import as_text, diagnose

print(as_text(diagnose(healthy), healthy))

# %% [markdown]
# ## Watching a live run
#
# A short run of 20 steps. TRL logs most of what is needed, and helpers add the rest. `watch` wraps the rewards: the
# same numbers, and it counts how many different texts a group holds, empty ones, and values that are no numbers.

# %%
import os

from grpo_workbook import RunConfig, quiet

quiet()
run = RunConfig.from_env(max_steps=20)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network

import unsloth
from grpo_workbook import load_policy, parse_rewards
from grpo_workbook.diagnosis import watch

model, tokenizer = load_policy(run)
functions, weights = parse_rewards(run.rewards)
watched = watch(functions)

# %% [markdown]
# Where the numbers go is TRL's `report_to`. A local log is always kept (`trainer.state.log_history`, and
# `trainer_state.json` in each checkpoint). TensorBoard is a folder on this disk. `"trackio"` and `"wandb"` work by the
# same name once they are installed; offline, set `WANDB_MODE=offline`. `log_completions` keeps what the model wrote.

# %%
args = run.to_grpo_config(weights)
args.report_to = ["tensorboard"]
os.environ["TENSORBOARD_LOGGING_DIR"] = str(run.output / "tensorboard")
args.log_completions, args.num_completions_to_print = True, 0  # in a file, unprinted
args.save_strategy = "no"

# %% [markdown]
# `HealthCallback` diagnoses the log while it grows. `HeldoutProbe` samples answers to a few held-out problems every
# ten steps, for accuracy and for form. `LivePanels` redraws one figure in place.

# %%
from transformers import PrinterCallback
from trl import GRPOTrainer
from grpo_workbook import HeldoutProbe, data
from grpo_workbook.diagnosis import HealthCallback, LivePanels

train_set, heldout_set = [
    data.to_dataset(data.load_problems(data.WORD_PROBLEMS[part]))
    for part in ("train", "heldout")
]
probe = HeldoutProbe(model, tokenizer, heldout_set, every=10,
                     max_new_tokens=run.max_completion_length)
health = HealthCallback(watched, stop_on={"nan", "collapsed"})
trainer = GRPOTrainer(
    model=model, processing_class=tokenizer, args=args,
    reward_funcs=watched, train_dataset=train_set,
    callbacks=[probe, health, LivePanels(every=10)],
)
trainer.remove_callback(PrinterCallback)
trainer.train();

# %% [markdown]
# What does the diagnosis say, from the log in memory? Which reward judges the answer and which the form, a log does not
# know. The functions do: each has an attribute `role`, which `@reward(role="correctness")` sets on your own.

# %%
print({f.__name__: f.role for f in functions})
live = read_run(trainer.state.log_history, functions)
findings = diagnose(live)
print(as_text(findings, live))

# %% [markdown]
# ### Format and accuracy on held-out prompts
#
# Format compliance is the rate of well-formed answers to problems that training never sees. The probe also says what
# it cost (by default it measures every 20 steps, not every 10):

# %%
print(live.table.filter(like="heldout/").dropna().round(2).to_string())
seconds = live.table["heldout/seconds"].sum() / live.table["step_time"].sum()
print(f"\nthree probes in 20 steps took {seconds:.1%} of the steps' time")

# %% [markdown]
# ### What it writes
#
# No number replaces reading. The best, a typical and the worst completion of one group, from the logged completions:

# %%
from grpo_workbook.diagnosis import samples

for step in (1, 20):
    for sample in samples(run.output / "checkpoints", step):
        text = " ".join(sample.completion.split())
        print(f"step {step:2}  {sample.kind:8} {sample.reward:5.2f}  {text[:75]}")

# %% [markdown]
# ### TensorBoard
#
# `tensorboard --logdir outputs/run/tensorboard` shows the same curves in a browser. That they arrived can be read back:

# %%
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(str(run.output / "tensorboard")).Reload()
rewards = [(e.step, round(e.value, 2)) for e in events.Scalars("train/reward")]
print(len(events.Tags()["scalars"]), "curves; reward:", rewards[:2], "...", rewards[-1])

# %% [markdown]
# ## Sick runs
#
# Each of these was made sick on purpose, in one place, by `benchmarks/diagnosis.py`, and ran on the same tiny model.
# Look at their rewards first, each on its own scale:

# %%
names = ["healthy", "cold_sampling", "wrong_answers", "reward_by_prompt",
         "four_tokens", "wrong_end_token", "shows_work", "rate_times_100",
         "rate_by_100", "frozen_adapters", "beta_10", "wrong_sign"]
sick = {name: read_run(LOGS / f"{name}_0.json") for name in names}
from grpo_workbook.diagnosis import side_by_side

figures.show(*side_by_side(sick))

# %% [markdown]
# The reward alone separates few of them: `shows_work` has the finest curve of all, and four that are flat have four
# different causes. The diagnosis compares more, most of it with the run's own beginning. After each finding: since
# which step, and the first piece of evidence. (`adapter/change` is relative to the adapters' norm at the start, a rise
# is counted in standard errors, the others are as TRL logs them.)

# %%
for name, log in sick.items():
    first = diagnose(log)[0]
    seen = first.evidence[0]
    print(f"{name:17} {first.severity:8} {first.name:16} step {first.step:2}   "
          f"{seen.metric.split(',')[0]} {seen.value:.3g}")

# %% [markdown]
# `shows_work` beside the healthy run. Its reward counts equals signs. It rises fast, to its maximum, and the held-out
# accuracy goes to 0: the model writes equations until it is cut off. (Of each panel the first line only: of rewards the
# total, of lengths the mean.)

# %%
from grpo_workbook.diagnosis import compare_panels

both = {"healthy": healthy, "shows work": sick["shows_work"]}
figures.show(*compare_panels(both))

# %% [markdown]
# One more is worth a pause. `reward_by_prompt` pays the same to all completions of a group, so there is nothing to
# learn. Yet its held-out accuracy goes to 0. Rewards such as 0.93 leave a deviation of rounding, advantages of a
# thousandth, a gradient of a thousandth, and Adam scales every gradient to the same step: the adapters walk at random.

# %%
log = sick["reward_by_prompt"].table
part = log[["frac_reward_zero_std", "grad_norm", "adapter/change"]]
print(part.loc[[5, 10, 20, 30]].to_string())
print(log[["heldout/strict", "heldout/lenient"]].dropna().to_string())

# %% [markdown]
# ## Symptom, cause, cure
#
# This table is printed from the code that makes the diagnosis:

# %%
from IPython.display import Markdown, display
from grpo_workbook.diagnosis import symptom_table

display(Markdown(symptom_table()))

# %% [markdown]
# No bound in it is hidden. Each is in one table with its reason, and most compare the run with itself:

# %%
from grpo_workbook.diagnosis import THRESHOLDS

for name in ("sure", "zero_variance", "same_text", "jump", "hardly", "drown"):
    print(f"{name:14} {THRESHOLDS[name].value:<6g} {THRESHOLDS[name].reason}")

# %% [markdown]
# ## Stopping a sick run
#
# The same model again, with a learning rate 300 times too high. `stop_on` names the findings that end training:

# %%
sick_run = run.replace(max_steps=30, learning_rate=0.3, output=run.output / "sick")
model, tokenizer = load_policy(sick_run)
watched = watch(functions)
guard = HealthCallback(watched, stop_on={"rate_too_high", "nan"}, every=1, say=print)
args = sick_run.to_grpo_config(weights)
args.save_strategy = "no"
stopped = GRPOTrainer(
    model=model, processing_class=tokenizer, args=args,
    reward_funcs=watched, train_dataset=train_set, callbacks=[guard],
)
stopped.remove_callback(PrinterCallback)
stopped.train()
print(f"\nstopped after {stopped.state.global_step} of {sick_run.max_steps} steps")

# %% [markdown]
# ## When it is slow, or memory is short
#
# `step_time` is what a step takes. The part of it that goes into sampling completions says where to begin: a faster
# engine (vLLM) helps generation, smaller batches in more accumulation steps help memory.

# %%
table = live.table
sampling = table["time/generation_share"].mean()
print(f"a step takes {table['step_time'].mean():.1f} s, {sampling:.0%} of it sampling")
print(f"memory: {table['memory/share'].max():.1%} of this machine's")

# %% [markdown]
# ## Before, during and after a run
#
# - **Before**: `doctor` for the machine, `check-data` for the data (chapter 02), the rewards attacked (chapter 03); then
#   the baseline, its lengths and its zero-variance groups (chapter 04).
# - **During**: `HealthCallback` with `stop_on`, held-out problems every so many steps, and samples to read.
# - **After**: `diagnose`, then held-out accuracy with an interval and a paired test (chapter 08).

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or when
# the diagnosis is wrong.

# %%
import json

strict = live.table["heldout/strict"].dropna()
proved = {"steps": trainer.state.global_step, "finding": findings[0].name,
          "before": float(strict.iloc[0]), "after": float(strict.iloc[-1]),
          "stopped_at": stopped.state.global_step,
          "stopped_for": [f.name for f in guard.found]}
(run.output / "notebook_05.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 20 and len(rewards) == 20 and not health.found
if run.profile == "smoke":
    assert findings[0].name == "healthy" and proved["after"] > proved["before"] + 0.2
    assert "rate_too_high" in proved["stopped_for"] and stopped.state.global_step <= 10

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 05.1 · `moving_average` · easy · 5 minutes
#
# The line above the noise: for each step, the mean of its value and the up to `window - 1` values before it. The first
# steps have fewer.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def moving_average(values: list[float], window: int) -> list[float]:
    raise NotImplementedError


check("05.1", moving_average);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The slice begins at `max(0, i - window + 1)`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def moving_average(values: list[float], window: int) -> list[float]:
#     averages = []
#     for i in range(len(values)):
#         part = values[max(0, i - window + 1) : i + 1]
#         averages.append(sum(part) / len(part))
#     return averages
# ```
#
# </details>

# %% [markdown]
# ### Exercise 05.2 · `rise` · medium · 10 minutes
#
# Did the reward rise, or is it noise? Return the mean of the last `k` steps minus that of the first `k`, divided by the
# standard error of the difference, `sqrt((variance of the first + variance of the last) / k)`; a variance here is a
# sample's, over n - 1. Raise `ValueError` when the windows would overlap. (The diagnosis takes 3 and more for a rise.)

# %% tags=["exercise"]
def rise(values: list[float], k: int) -> float:
    raise NotImplementedError


check("05.2", rise);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `statistics.variance` divides by n - 1, `pvariance` by n.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def rise(values: list[float], k: int) -> float:
#     from math import sqrt
#     from statistics import mean, variance
#
#     if len(values) < 2 * k:
#         raise ValueError(f"{len(values)} steps are too few for two windows of {k}")
#     first, last = values[:k], values[-k:]
#     return (mean(last) - mean(first)) / sqrt((variance(first) + variance(last)) / k)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 05.3 · `first_step` · medium · 8 minutes
#
# Since when? Return the step at which the first stretch of `patience` steps in a row begins whose values are all at
# least `limit`, and `None` when there is none. Steps count from 1.

# %% tags=["exercise"]
def first_step(values: list[float], limit: float, patience: int) -> int | None:
    raise NotImplementedError


check("05.3", first_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Count how many steps in a row reached the limit; set the count back to 0 at each that did not.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def first_step(values: list[float], limit: float, patience: int) -> int | None:
#     in_a_row = 0
#     for step, value in enumerate(values, 1):
#         in_a_row = in_a_row + 1 if value >= limit else 0
#         if in_a_row == patience:
#             return step - patience + 1
#     return None
# ```
#
# </details>

# %% [markdown]
# ### Exercise 05.4 · `is_gamed` · medium · 10 minutes
#
# Is the reward being gamed? It is when the mean reward of the last third of the steps is more than 0.05 above that of
# the first third (a third of their number rounded down, at least one step), while the last held-out accuracy is *not*
# more than 0.05 above the first.

# %% tags=["exercise"]
def is_gamed(reward: list[float], heldout: list[float]) -> bool:
    raise NotImplementedError


check("05.4", is_gamed);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two conditions, and both must hold. Accuracy that only stays the same is enough.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def is_gamed(reward: list[float], heldout: list[float]) -> bool:
#     third = max(1, len(reward) // 3)
#     risen = sum(reward[-third:]) / third > sum(reward[:third]) / third + 0.05
#     return risen and heldout[-1] <= heldout[0] + 0.05
# ```
#
# </details>

# %% [markdown]
# ### The clinic
#
# Six runs, each with one disease. No labels; what you have is their log.

# %%
from grpo_workbook.exercises.ch05 import CLINIC

patients = {letter: read_run(LOGS / f"{name}.json") for letter, name in CLINIC.items()}
shown = {"reward": "reward", "frac_reward_zero_std": "zero var.",
         "grad_norm": "gradient",
         "adapter/change": "adapters", "completions/unique_share": "unique",
         "completions/clipped_ratio": "cut off", "heldout/strict": "held-out"}
print(" ", *[f"{word:>14}" for word in shown.values()])
for letter, patient in patients.items():
    columns = [patient.table[metric].dropna() for metric in shown]
    few = [max(1, min(3, len(values) // 4)) for values in columns]
    ends = [(v.head(n).mean(), v.tail(n).mean()) for v, n in zip(columns, few)]
    print(letter, *[f"{a:6.2g} > {b:<5.2g}" for a, b in ends])

# %% [markdown]
# Each pair is the mean of the first and of the last three steps (held-out: the first and the last measurement). The
# rewards of the six:

# %%
figures.show(*side_by_side(patients, columns=6))

# %% [markdown]
# ### Exercise 05.5 · `my_diagnosis` · hard · 15 minutes
#
# Return for each letter the name of the finding: one of `collapsed`, `frozen`, `hacked`, `never_ends`, `no_gradient`,
# `rate_too_low`, `reward_flat`, `truncated`, `wrong_answers`, `healthy`. Look at more of a run with
# `patients["A"].table` or `run_panels(patients["A"])` before you ask `diagnose`.

# %% tags=["exercise"]
def my_diagnosis(letter: str) -> str:
    raise NotImplementedError


check("05.5", my_diagnosis);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A dict from letter to name is enough. Adapters: exactly 0, almost 0, or moving? Unique texts: one in eight means that
# all eight are the same. B and C both have rising rewards: compare B's parts, and C's held-out accuracy.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_diagnosis(letter: str) -> str:
#     return {
#         "A": "collapsed", "B": "wrong_answers", "C": "hacked",
#         "D": "truncated", "E": "rate_too_low", "F": "frozen",
#     }[letter]
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - A loss near 0 is normal when `beta` is 0: advantages sum to 0 and the ratio is 1. The sign of failure is a gradient
#   norm of 0 with zero-variance groups.
# - Watch the reward with its parts, zero-variance groups, entropy, lengths, gradient, adapters, held-out problems. Most
#   diseases look alike in one of them and different in two.
# - A reward that rises proves nothing by itself.
# - `HealthCallback` says it while it happens, `python -m grpo_workbook diagnose` afterwards.
#
# Next: [06 · Code rewards](06_code_rewards.ipynb), where the answers are programs.
