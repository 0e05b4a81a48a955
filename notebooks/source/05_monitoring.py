# %% [markdown]
# # 05 · Monitoring: a run that says what is wrong with it
#
# **After this notebook you can** read every curve of a GRPO run, explain why a loss near 0 is normal, tell a healthy
# run from a sick one (within 30 steps here, within 100 on a GPU), name the disease and its cure, and stop a bad run
# before it wastes an hour.
#
# **Time:** about 2 minutes on two CPU cores (smoke profile).
#
# For a run of your own: `python -m grpo_workbook diagnose FOLDER`.

# %% [markdown]
# ## Why the loss is near 0
#
# Take four completions of one problem, two of them right. Their advantages sum to 0, because they are measured from the
# group's mean. The loss is minus the mean of `ratio * advantage`, and at the first update of a batch every ratio is 1.

# %%
from statistics import mean, stdev

rewards = [1.0, 1.0, 0.0, 0.0]
advantages = [(r - mean(rewards)) / (stdev(rewards) + 1e-4) for r in rewards]
print("advantages:", [round(a, 2) for a in advantages])
print(f"loss: {abs(mean(1.0 * a for a in advantages)):.3f}")

# %% [markdown]
# The *value* of the loss is 0, but its *gradient* is not: it makes the first two completions likelier and the other two
# rarer. A real log shows small values, because this course's `loss_type="dapo"` averages over tokens, so a longer
# completion counts more. Each box is a completion, as wide as its length and as high as its advantage; the loss is
# minus the sum of the areas, per token.

# %% tags=["hide-input"]
from grpo_workbook import figures

cases = {"all equal": [20] * 4, "right ones longer": [30, 30, 20, 20],
         "wrong ones longer": [20, 20, 30, 30]}
figure, grid = figures.new_panels(9.0, 2.6, 3, 3)
losses = {}
for axes, (name, lengths) in zip(grid, cases.items()):
    starts = [sum(lengths[:i]) for i in range(4)]
    axes.bar(starts, advantages, lengths, align="edge", ec="white",
             color=[figures.GREEN] * 2 + [figures.ORANGE] * 2)
    axes.axhline(0, color="black", linewidth=1)
    loss = -sum(a * n for a, n in zip(advantages, lengths)) / sum(lengths)
    losses[name] = f"{loss + 0.0:+.2f}"
    axes.set(title=f"{name}: loss {losses[name]}", xlabel="tokens", xlim=(0, 100))
grid[0].set_ylabel("advantage")
figure.suptitle("The loss only says which completions are longer")
said = ", ".join(f"{name} {loss}" for name, loss in losses.items())
figures.show(figure, "Three bar charts of two right and two wrong completions, each as "
             f"wide as it is long. The loss: {said}. It says which are longer.")

# %% [markdown]
# So the loss says nothing about whether the model gets better. Watch the reward instead. Only with `beta` above 0 does
# the loss show something: it contains the KL penalty, which starts at 0 and grows.

# %% [markdown]
# ## The spread that matters is the group's
#
# TRL's `reward_std` is the standard deviation over the *whole batch*. An advantage comes from the differences *within a
# group*. `frac_reward_zero_std` counts the groups that have none, the zero-variance groups. Here are two batches of
# four groups, with the same sixteen rewards:

# %% tags=["hide-input"]
import torch

apart = torch.tensor([[1.0] * 4, [0.0] * 4, [1.0] * 4, [0.0] * 4])
mixed = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 4)
batches = {"problems differ": apart, "completions differ": mixed}
figure, grid = figures.new_panels(7.5, 3.0, 2, 2)
said = {}
for axes, (name, batch) in zip(grid, batches.items()):
    none = (batch.std(dim=1) == 0).float().mean()
    said[name] = f"reward_std {batch.std():.2f}, frac_reward_zero_std {none:.0f}"
    axes.imshow(batch, cmap="Blues", vmin=-0.2, vmax=1.6, aspect="auto")
    for group, row in enumerate(batch.tolist()):
        for place, reward in enumerate(row):
            axes.text(place, group, f"{reward:.0f}", ha="center", va="center")
    axes.set_title(f"{name}\n{said[name]}", fontsize=10)
    names = [f"group {i}" for i in range(1, 5)]
    axes.set(xticks=[], yticks=range(4), yticklabels=names)
    axes.grid(visible=False)
figure.suptitle("The same reward_std, but only the batch on the right teaches")
listed = "; ".join(f"{name}: {numbers}" for name, numbers in said.items())
figures.show(figure, f"Two tables of rewards, four groups of four. {listed}. In the "
             "left one all rewards of a group are equal: no advantage and no gradient.")

# %% [markdown]
# ## A healthy run, metric by metric
#
# This is a stored log: 30 steps of the course's main run, as TRL wrote it. `read_run` takes a log as you have it: the
# folder of a run, a checkpoint, a `trainer_state.json`, a notebook with its training table (`read_run("run.ipynb")`),
# TensorBoard's folder, what W&B or trackio export (CSV, JSON), printed metrics in a text, or
# `trainer.state.log_history`. What the log does not say you add: `settings={"beta": 0.04}`.

# %%
from grpo_workbook import files
from grpo_workbook.diagnosis import read_run

LOGS = files.REPO / "tests" / "diagnosis_logs"
healthy = read_run(LOGS / "healthy_0.json")
columns = ["reward", "reward_std", "frac_reward_zero_std", "loss", "grad_norm"]
healthy.table.loc[[1, 5, 10, 20, 30], columns].round(3)

# %% [markdown]
# The reward rises from 1.5 to 2.8 while the loss stays near 0. More and more groups have zero variance, because all of
# their completions become right. The next cell compares the average loss with the gain in reward, with and without a KL
# penalty (`beta` times the KL):

# %%
with_kl = read_run(LOGS / "healthy_beta_0.json")
for name, log in (("beta 0", healthy.table), ("beta 0.04", with_kl.table)):
    reward, loss = log["reward"].dropna(), log["loss"].dropna()
    penalty = 0.04 * log["kl"].tail(5).median() if "kl" in log else 0.0
    print(f"{name:10} |loss| {loss.abs().mean():.3f}, penalty {penalty:.4f}"
          f"   reward {reward.head(5).mean():.2f} to {reward.tail(5).mean():.2f}")

# %% [markdown]
# Six panels show nearly everything. The faint line is what each step logged, the bold one the mean of five steps.
# *Adapter change* is how far the adapters have moved, divided by their initial norm (that of `A`, because `B` starts
# at 0).

# %%
from grpo_workbook.diagnosis import run_panels

title = "Healthy: the reward rises, and the held-out accuracy too"
figures.show(*run_panels(healthy, title=title))

# %% [markdown]
# | panel | healthy | worry when |
# | --- | --- | --- |
# | reward and its parts | rises, then levels off; form first, correctness after it | flat after 30 steps (on a GPU 100), falling, or one part rising alone |
# | zero-variance groups | become more *as the reward gets high* | nearly all, from the start: no gradient |
# | entropy, KL | entropy falls while the reward rises; KL grows and levels off | entropy gone while the reward is low; KL above the initial entropy |
# | tokens | steady, or moving for a reason | all at the limit; a steep climb; near 0 |
# | gradient norm, adapters | gradient noisy; adapters move by a tenth or two of their norm | gradient 0; adapters at 0, or beyond half their norm |
# | held-out problems | rise with the reward | still or falling while the reward rises |

# %% [markdown]
# ### How fast may entropy fall?
#
# Entropy says how undecided the policy is, in nats per token. With `beta` above 0 there is a KL beside it, which starts
# at 0 because the policy is still its reference. (In chapter 07's rounds it starts at 0 again with each new reference.)
# The KL of one step is an estimate and can jump (step 29 here): one sampled token that the policy finds nearly impossible,
# and the reference does not, is enough. So the bold lines are medians.

# %% tags=["hide-input"]
parted = with_kl.table[["kl", "entropy"]].dropna()
figure, (axes,) = figures.new_panels(7.0, 3.0)
for name, colour in (("entropy", figures.GREEN), ("kl", figures.BLUE)):
    level = parted[name].rolling(7, min_periods=1, center=True).median()
    axes.plot(parted.index, parted[name], color=colour, alpha=0.25, linewidth=1)
    axes.plot(parted.index, level, color=colour, linewidth=2)
    axes.text(2.5, level.iloc[1] + 0.03, {"kl": "KL"}.get(name, name), color=colour)
peak = parted["kl"].max()
axes.text(28.7, 0.29, f"one step: {peak:.2f}", color=figures.BLUE, ha="right", va="top")
lost = 1 - parted["entropy"].tail(5).mean() / parted["entropy"].head(5).mean()
axes.set(xlabel="optimizer step", ylabel="nats per token", ylim=(0, 0.3),
         title=f"A tiny task is learned: {lost:.0%} of the entropy is gone in 30 steps")
figures.show(figure, f"Line chart over 30 steps. Entropy loses {lost:.0%}; the KL "
             f"starts at 0, meets it near 0.03. One step's KL is {peak:.2f}.")

# %% [markdown]
# **This is not the norm for a real model.** A sum of small numbers has one right answer and nearly one wording, so a model
# that has learned it has little left to be undecided about. A real model that loses its entropy at this speed stops
# exploring, and then stops learning. In the runs of Cui et al. (arXiv 2505.22617, eleven base models of 0.5 to 32
# billion weights) 73 % of the entropy and 76 % of the gain were used up in the first 200 of 2,400 steps. DAPO (arXiv
# 2503.14476) calls this *entropy collapse* and raises `epsilon_high` to 0.28 against it, that is the upper bound of the
# ratio to 1.28; TRL 1.15 also has `entropy_coef`. Compare the entropy with your own first steps, and ask what the reward
# gained while it fell (exercise 05.4).
#
# On a GPU, Unsloth's trainer logs no `entropy`, and it logs a `kl` even when `beta` is 0.

# %% [markdown]
# A program can read the panels too. "At first" is its mean over the first quarter of the steps:

# %%
from grpo_workbook.diagnosis import as_text, diagnose

print(as_text(diagnose(healthy), healthy))

# %% [markdown]
# ## What a run on a GPU looks like
#
# The tiny model learns in 30 steps, at a learning rate of 1e-3. Larger models take smaller rates (5e-6 in most of the
# following runs; chapter 04 starts at 1e-5) and more steps. These six are published runs, as means over ten steps (their
# sources: `data/README.md`). Before you read on: which of them would you stop?

# %%
import pandas as pd

gpu = pd.read_csv(files.REPO / "data" / "gpu_runs.csv").set_index("step")
gpu_runs = dict(list(gpu.groupby("run", sort=False)))
gpu_runs["gemma3_1b"].dropna(axis=1).head(3)

# %% [markdown]
# The reward of each, on its own scale:

# %% tags=["hide-input"]
figure, grid = figures.new_panels(10.0, 5.0, 6, 3)
words = []
for axes, (name, log) in zip(grid, gpu_runs.items()):
    axes.plot(log.index, log["reward"], color=figures.BLUE)
    axes.set(title=name, xlim=(0, 500))
    ends = [f"{log['reward'].iloc[k]:.2g}" for k in (0, -1)]
    words.append(f"{name} {' to '.join(ends)} in {log.index[-1]} steps")
grid[0].set_ylabel("reward")
grid[3].set_ylabel("reward")
for axes in grid[3:]:
    axes.set_xlabel("step")
figure.suptitle("In three of six GPU runs the reward rises, in none before step 40")
figures.show(figure, f"Six charts of the reward: {'; '.join(words)}.")

# %% [markdown]
# **When does a rise first show?** Fit a straight line through all steps so far, and divide its slope by the slope's
# standard error. At 3 or more the rise is hardly chance:

# %%
import numpy as np


def slope_t(steps, values) -> float:
    """The slope of the least-squares line, in standard errors."""
    x, y = steps - steps.mean(), values - values.mean()
    slope = (x * y).sum() / (x * x).sum()
    rest = ((y - slope * x) ** 2).sum() / (len(y) - 2)
    return slope / np.sqrt(rest / (x * x).sum())


for name, log in gpu_runs.items():
    y = log["reward"].to_numpy()
    x = log.index.to_numpy(float)
    found = {int(x[n - 1]): slope_t(x[:n], y[:n]) for n in range(4, len(y) + 1)}
    since = next((step for step, t in found.items() if t >= 3), "never")
    end = found[int(x[-1])]
    print(f"{name:16} t = {end:5.1f} at the end; first at 3 or more: step {since}")

# %% [markdown]
# The three that learn show it after 40 to 80 steps. (With means over ten steps, the loop begins at step 40; for
# the first 30 steps no t is above 1.7.) So 30 flat steps of a GPU run mean nothing: give it 100. Their warm-up alone
# takes a tenth of the steps.
#
# In these three the KL starts at 0 and ends between 0.03 and 0.11. What is wrong with the other three? Exercise 05.5
# asks: their KL and their lengths tell them apart.

# %% [markdown]
# ## Watching a live run
#
# TRL logs most of what is needed, and four helpers add the rest:

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {
    "step": (0.12, 0.8, "GRPOTrainer\none step", pale["model"]),
    "watch": (0.12, 0.46, "watch(rewards)\ncounts texts", pale["data"]),
    "probe": (0.12, 0.12, "HeldoutProbe\nevery 10 steps", pale["data"]),
    "log": (0.5, 0.46, "trainer.state\n.log_history", pale["number"]),
    "health": (0.86, 0.8, "HealthCallback\ndiagnose()", pale["check"]),
    "panels": (0.86, 0.46, "panels=True\nsix panels", pale["check"]),
    "report": (0.86, 0.12, "report_to\nTrackio, TensorBoard", pale["check"]),
}
arrows = [("step", "log", "metrics"), ("watch", "log", "unique, empty, invalid"),
          ("probe", "log", "held-out accuracy"), ("log", "health", "every 5 steps"),
          ("log", "panels", ""), ("log", "report", ""),
          ("health", "step", "stop_on ends training")]
figure = figures.diagram(boxes, arrows, (9.0, 3.6))
figure.suptitle("Everything meets in the trainer's log", y=1.03)
figures.show(figure, "Diagram: trainer, watched rewards and held-out probe write to "
             "trainer.state.log_history; HealthCallback, its panels and TensorBoard "
             "read it, and HealthCallback can stop the trainer.")

# %% [markdown]
# `watch` wraps the rewards. They return the same numbers, and the wrapper counts the different texts in a group, empty
# texts, and values that are not numbers.

# %%
import os

from grpo_workbook import quiet
from grpo_workbook.run_config import RunConfig

quiet()
run = RunConfig.from_env(default_profile="smoke", max_steps=20)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network

import unsloth
from grpo_workbook import load_policy, parse_rewards
from grpo_workbook.diagnosis import watch

model, tokenizer = load_policy(run)
functions, weights = parse_rewards(run.rewards)
watched = watch(functions)

# %% [markdown]
# TRL's `report_to` says where the numbers go. `"trackio"` and `"tensorboard"` write into a folder on this disk, without
# an account; `"wandb"` works once it is installed (offline: `WANDB_MODE=offline`). `trainer.state.log_history` is always
# kept, also in `trainer_state.json` of each checkpoint. `log_completions` keeps what the model wrote.

# %%
os.environ["TRACKIO_DIR"] = str(run.output / "trackio")  # read when trackio is imported
os.environ["TENSORBOARD_LOGGING_DIR"] = str(run.output / "tensorboard")
logging = {
    "report_to": ["trackio", "tensorboard"], "project": "grpo", "run_name": "live",
    "log_completions": True, "num_completions_to_print": 0,  # in a file, unprinted
    "save_strategy": "no",
}

# %% [markdown]
# `HealthCallback` diagnoses the log while it grows. `HeldoutProbe` samples answers to a few held-out problems every ten
# steps. With `panels=True` the callback also redraws one figure in place. `alert=` sends each finding on, to W&B with
# `alert=wandb.alert`, to trackio with `alert=lambda title, text, level: trackio.alert(title, text,
# trackio.AlertLevel[level])`; on several GPUs one process does it.

# %%
from grpo_workbook import HeldoutProbe, data
from grpo_workbook.run_config import make_trainer
from grpo_workbook.diagnosis import HealthCallback

train_set, heldout_set = [
    data.to_dataset(data.load_problems(data.WORD_PROBLEMS[part]))
    for part in ("train", "heldout")
]
probe = HeldoutProbe(model, tokenizer, heldout_set, every=10,
                     max_new_tokens=run.max_completion_length)
health = HealthCallback(watched, stop_on={"nan", "collapsed"}, panels=True)
trainer = make_trainer(run, model, tokenizer, train_set, watched, weights, logging)
for callback in (probe, health):
    trainer.add_callback(callback)
trainer.train();

# %% [markdown]
# A log does not know which reward judges the answer and which the form, but the functions do: `about` reads the role
# that `@reward(role="correctness")` sets.

# %%
from grpo_workbook.rewards.contract import about

print({f.__name__: about(f).role for f in functions})
live = read_run(trainer.state.log_history, functions)
findings = diagnose(live)
print(as_text(findings, live))

# %% [markdown]
# ### Held-out problems
#
# The probe measures accuracy and the rate of well-formed answers on problems that training never sees:

# %%
print(live.table.filter(like="heldout/").dropna().round(2).to_string())
seconds = live.table["heldout/seconds"].sum() / live.table["step_time"].sum()
print(f"\nthree probes in 20 steps took {seconds:.1%} of the steps' time")

# %% [markdown]
# ### What the model writes
#
# No number replaces reading. These are the best, a typical and the worst completion of one group:

# %%
from grpo_workbook.diagnosis import samples

for step in (1, 20):
    for sample in samples(run.output / "checkpoints", step):
        text = " ".join(sample.completion.split())
        print(f"step {step:2}  {sample.kind:8} {sample.reward:5.2f}  {text[:75]}")

# %% [markdown]
# ### Trackio and TensorBoard
#
# `trackio show` opens a page with all runs of a project, in the browser. Its data is a SQLite file, which anything can
# read:

# %%
import json
import sqlite3

with sqlite3.connect(run.output / "trackio" / "grpo.db") as store:
    rows = [json.loads(row) for row, in store.execute("SELECT metrics FROM metrics")]
rewards = [round(row["train/reward"], 2) for row in rows if "train/reward" in row]
print(len(rewards), "steps; reward:", rewards[:2], "...", rewards[-1])

# %% [markdown]
# `tensorboard --logdir outputs/run/tensorboard` shows the same curves:

# %%
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(str(run.output / "tensorboard")).Reload()
rewards = [(e.step, round(e.value, 2)) for e in events.Scalars("train/reward")]
print(len(events.Tags()["scalars"]), "curves; reward:", rewards[:2], "...", rewards[-1])

# %% [markdown]
# ### When it is slow, or memory is short
#
# A faster engine (vLLM) speeds up sampling; smaller batches with more accumulation steps save memory.

# %%
table = live.table
sampling = table["time/generation_fraction"].mean()
print(f"a step takes {table['step_time'].mean():.1f} s, {sampling:.0%} of it sampling")
print(f"memory: {table['memory/fraction'].max():.1%} of this machine's")

# %% [markdown]
# With vLLM look at two more groups of TRL's metrics, `sampling/sampling_logp_difference/*` and
# `sampling/importance_sampling_ratio/*`. They compare the probabilities that vLLM sampled with and those that the
# trainer computes. A mean ratio far from 1 means that the two engines disagree, and that TRL corrects, or drops,
# many completions.

# %% [markdown]
# ## Sick runs
#
# Each of these runs but the first was made sick on purpose, in one place, by `benchmarks/diagnosis.py`, with the same
# tiny model. First their rewards, each on its own scale, with the name that the diagnosis gives:

# %%
from grpo_workbook.diagnosis import side_by_side

names = ["healthy", "cold_sampling", "wrong_answers", "reward_by_prompt",
         "four_tokens", "wrong_end_token", "shows_work", "rate_times_100",
         "rate_by_100", "frozen_adapters", "beta_10", "wrong_sign"]
sick = {name: read_run(LOGS / f"{name}_0.json") for name in names}
found = {name: diagnose(log)[0] for name, log in sick.items()}
named = {f"{name}: {found[name].name}": log for name, log in sick.items()}
figure, words = side_by_side(named)
figure.suptitle("The reward alone separates few of the diseases")
figures.show(figure, words)

# %% [markdown]
# The reward alone separates few of them. `shows_work` has the best-looking curve, and four flat curves have four
# different causes. So the diagnosis reads more metrics, and compares most of them with the run's own beginning. The
# first piece of evidence for each finding (a rise is counted in standard errors):

# %%
for name, first in found.items():
    seen = first.evidence[0]
    print(f"{name:17} {first.severity:8} {first.name:16} step {first.step:2}   "
          f"{seen.metric.split(',')[0]} {seen.value:.3g}")

# %% [markdown]
# ### A reward that is gamed
#
# The reward of `shows_work` counts equals signs. It rises fast to its maximum while the held-out accuracy goes to 0:
# the model writes equations until it is cut off. The lengths and the held-out accuracy give it away.

# %%
from grpo_workbook.diagnosis import compare_panels

both = {"healthy": healthy, "shows work": sick["shows_work"]}
figure, words = compare_panels(both)
figure.suptitle("Gamed: the reward rises to its maximum, held-out accuracy falls to 0")
figures.show(figure, words)

# %% [markdown]
# The last step of such a run is its worst, although its reward is the highest. So judge steps by a score that the reward
# cannot buy. `HeldoutProbe(keep=...)` saves the adapter of the best step by held-out accuracy, and `stop=True` ends the
# run when fewer problems are right than at that step (a paired test, chapter 08) while the reward has risen. Train the
# live model on, with the equals signs alone:

# %%
from grpo_workbook import reward


@reward(role="style")
def shows_work_reward(completions, **columns):
    """The number of equals signs, as a fraction of six."""
    return [min(1.0, c[0]["content"].count("=") / 6) for c in completions]


gamed_run = run.replace(max_steps=40, output=run.output / "gamed")
keeper = HeldoutProbe(model, tokenizer, heldout_set, every=5, problems=64,
                      keep=gamed_run.output / "best", stop=True,
                      max_new_tokens=run.max_completion_length)
gamed = make_trainer(gamed_run, model, tokenizer, train_set, [shows_work_reward],
                     overrides={"save_strategy": "no"})
gamed.add_callback(keeper)
gamed.train();

# %% [markdown]
# The best step is 0: the adapter as the live run had left it, because no later step did better. How much was saved? The
# probe chose the step by its own 64 problems, so ask both adapters others. (Greedily here; the probe samples, so its
# accuracy is lower.)

# %%
from grpo_workbook import evaluate, load_model

fresh = heldout_set.select(range(64, 192))
how = {"load_in_4bit": run.load_in_4bit, "any_base": True}
kept, _ = load_model(run.model, keeper.keep, **how)
history = read_run(gamed.state.log_history).table
for name, policy, step in (("kept", kept, max(1, keeper.best["step"])),
                           ("last", model, gamed.state.global_step)):
    tokens = run.max_completion_length
    scores = evaluate(policy, tokenizer, fresh, max_new_tokens=tokens)
    print(f"{name}: reward {history['reward'].loc[step]:.2f}, "
          f"{sum(scores.strict)} of {scores.n} fresh problems strictly right")

# %% [markdown]
# Both curves of the run, with the best step as a dotted line. Accuracy was gone before the reward had risen, so a look at
# the reward alone comes too late:

# %% tags=["hide-input"]
figure, (left, right) = figures.new_panels(8.0, 2.8, 2, 2)
paid, held = history["reward"].dropna(), history["heldout/strict"].dropna()
left.plot(paid.index, paid, color=figures.BLUE)
left.set(title="The reward rises", xlabel="step", ylim=(0, 1))
right.plot(held.index, held, "o-", color=figures.GREEN)
right.axvline(keeper.best["step"], color="black", ls=":", lw=1)
right.set(title="Held-out accuracy falls first", xlabel="step", ylim=(-0.03, 1))
left.set_ylabel("mean reward")
right.set_ylabel("strictly right")
figures.show(figure, f"Two line charts: the reward goes from {paid.iloc[0]:.2f} to "
             f"{paid.iloc[-1]:.2f}, held-out accuracy from {held.iloc[0]:.2f} to "
             f"{held.iloc[-1]:.2f}; the best step is {keeper.best['step']}.")

# %% [markdown]
# ### A reward that teaches its rounding error
#
# `reward_by_prompt` pays all completions of a group the same, here the length of the question divided by 100. There is
# nothing to learn. Yet the held-out accuracy goes to 0:

# %%
log = sick["reward_by_prompt"].table
part = log[["frac_reward_zero_std", "grad_norm", "entropy", "adapter/change"]]
print(part.loc[[1, 5, 10, 20, 30]].to_string())
print(log[["heldout/strict", "heldout/lenient"]].dropna().to_string())

# %% [markdown]
# The cause is rounding. The mean of eight times 0.87 in 32 bits is not exactly 0.87, and the tiny difference has the
# same sign for all eight completions:

# %%
for reward in (0.71, 0.87, 1.01):
    group = torch.full((8,), reward)
    advantage = (group - group.mean()) / (group.std() + 1e-4)
    print(reward, [f"{a:+.4f}" for a in advantage.tolist()[:4]], "...")

# %% [markdown]
# So the whole group is pushed up, or the whole group is pushed down, whatever it wrote. Advantages and gradients are a
# thousand times smaller than usual, but Adam divides each gradient by its own typical size, so the steps are as large
# as ever. The model is trained at full speed on the rounding error of the question's length, and unlearns what it knew.

# %% [markdown]
# ## Symptom, cause, cure
#
# Ask these questions from top to bottom. The first unwanted answer usually names the disease. (The table below the
# figure has every finding, also those about the KL.)

# %% tags=["hide-input"]
questions = {
    "Is every number finite?": ("no", "nan, reward_nan"),
    "Do completions end, and hold text?": ("no", "truncated, never_ends, empty"),
    "Do groups differ?": ("no", "collapsed, no_gradient, reward_constant,\n"
                          "and saturated where the reward is high"),
    "How far do adapters move?": ("0, < 0.5 %, > 50 %", "frozen, rate_too_low or "
                                  "beta_too_high,\nrate_too_high"),
    "Where does the reward go?": ("down, nowhere", "reward_falls, reward_flat"),
    "Do all parts rise, and held-out problems?": ("no", "drowned, wrong_answers,\n"
                                                  "format_ignored; hacked"),
}
boxes, arrows, places = {}, [], list(questions)
for i, (question, (answer, names)) in enumerate(questions.items()):
    y = 0.93 - 0.155 * i
    boxes[question] = (0.22, y, question, pale["data"])
    boxes[names] = (0.77, y, names, pale["number"])
    arrows.append((question, names, answer))
boxes["healthy"] = (0.22, 0.04, "healthy", pale["check"])
arrows += [(a, b, "") for a, b in zip(places, [*places[1:], "healthy"])]
listed = " ".join(f"{q} {answer}: {n}." for q, (answer, n) in questions.items())
figure = figures.diagram(boxes, arrows, (9.5, 5.6))
figure.suptitle("Six questions in this order name most diseases", y=1.02)
figures.show(figure, "Decision tree of the diagnosis, six questions from top to "
             f"bottom, the findings to their right. {listed} At the end: healthy.")

# %% [markdown]
# Every finding, what it means and what to do. This table is printed from the code that makes the diagnosis:

# %%
from IPython.display import Markdown, display
from grpo_workbook.diagnosis import CATALOGUE

rows = ["| finding | what you see | what it means | what to do |", "| --- " * 4 + "|"]
for name, kind in CATALOGUE.items():
    rows.append(f"| `{name}` | {kind.symptom} | {kind.means} | {kind.do} |")
display(Markdown("\n".join(rows)))

# %% [markdown]
# Each bound has its reason, and most compare the run with itself:

# %%
from textwrap import fill

from grpo_workbook.diagnosis import THRESHOLDS

for name in ("sure", "zero_variance", "same_text", "jump", "hardly", "drown"):
    line = f"{name:14} {THRESHOLDS[name].value:<6g} {THRESHOLDS[name].reason}"
    print(fill(line, 88, subsequent_indent=" " * 22))

# %% [markdown]
# The bounds were set on the first seed of each of these runs and on published GPU logs. On other seeds the diagnosis
# names 20 of 20 diseases (one was missed until the rules were changed) and accuses none of 4 healthy runs. That is one
# task and tiny models, with adapters in bfloat16 (chapter 04). On 33 published logs it names 19 of 19 sick runs and accuses
# none of 14 healthy ones, but its rules were written with these logs in view. Of 36 logs that were collected later it
# named 12 of 20 sick runs (of those of TRL's or Unsloth's trainer 12 of 15), and accused none of 11 healthy ones at the
# end. `docs/measurements.md` has the tables.

# %% [markdown]
# ## Stopping a sick run
#
# The same model again, with a learning rate 300 times too high. `stop_on` names the findings that end training:

# %%
sick_run = run.replace(max_steps=30, learning_rate=0.3, output=run.output / "sick")
model, tokenizer = load_policy(sick_run)
watched = watch(functions)
guard = HealthCallback(watched, stop_on={"rate_too_high", "nan"}, every=1, say=print)
stopped = make_trainer(sick_run, model, tokenizer, train_set, watched, weights,
                       {"save_strategy": "no"})
stopped.add_callback(guard)
stopped.train()
print(f"\nstopped after {stopped.state.global_step} of {sick_run.max_steps} steps")

# %% [markdown]
# ## Before, during and after a run
#
# - **Before**: `doctor` for the machine, `check-data` for the data (chapter 02), attacks on the rewards (chapter 03),
#   the baseline with its lengths and zero-variance groups (chapter 04).
# - **During**: `HealthCallback` with `stop_on`, held-out problems every so many steps, and samples to read.
# - **After**: `diagnose`, then held-out accuracy with an interval and a paired test (chapter 08).

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or when
# the diagnosis is wrong.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

strict = live.table["heldout/strict"].dropna()
proved = {"steps": trainer.state.global_step, "finding": findings[0].name,
          "gamed": [float(held.max()), float(held.iloc[-1])],
          "before": float(strict.iloc[0]), "after": float(strict.iloc[-1]),
          "stopped_at": stopped.state.global_step,
          "stopped_for": [f.name for f in guard.findings]}
(run.output / "notebook_05.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 20 and len(rewards) == 20
if run.profile == "smoke":
    assert not health.found
    best, last = proved["gamed"]
    assert best > 0.7 and last < 0.4, "the gamed run kept learning"
    assert findings[0].name == "healthy" and proved["after"] > proved["before"] + 0.2
    assert "rate_too_high" in proved["stopped_for"] and stopped.state.global_step <= 10

# %% [markdown]
# ## Exercises
#
# Write the function, or in 05.3 a prediction, and run the cell: it checks itself.
# The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 05.1 · `is_gamed` · medium · 10 minutes
#
# Is the reward being gamed? It is when the mean reward of the last third of the steps is more than 0.05 above that of
# the first third (a third of their number rounded down, at least one step), while the last held-out accuracy is *not*
# more than 0.05 above the first.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def is_gamed(reward: list[float], heldout: list[float]) -> bool:
    raise NotImplementedError


check("05.1", is_gamed);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two conditions, and both must hold. An accuracy that only stays the same is enough.
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
# Twelve runs, A to L. Some are healthy, and one has two findings. Seven metrics, each on one scale for all twelve:

# %%
from grpo_workbook.exercises import CLINIC

patients = {letter: read_run(LOGS / f"{name}.json") for letter, name in CLINIC.items()}
sheet = {"reward, of at most 3": ("reward", -1, 3),
         "zero variance": ("frac_reward_zero_std", 0, 1),
         "unique texts": ("completions/unique_fraction", 0, 1),
         "cut off": ("completions/clipped_ratio", 0, 1),
         "gradient norm": ("grad_norm", 0, 1.5),
         "adapter change": ("adapter/change", 0, 0.3),
         "held-out, strict": ("heldout/strict", 0, 1)}

# %% [markdown]
# Each row is a patient. What lies beyond a scale is drawn at its edge, and the panel says from where to where it goes:

# %% tags=["hide-input"]
figure, grid = figures.new_panels(11.0, 10.0, 12 * len(sheet), len(sheet))
words = []
for place, axes in enumerate(grid):
    letter, title = list(patients)[place // len(sheet)], list(sheet)[place % len(sheet)]
    metric, low, high = sheet[title]
    values = patients[letter].table[metric].dropna()
    axes.plot(values.index, values.clip(low, high), "o-" if len(values) < 8 else "-",
              color=figures.BLUE, markersize=3)
    room = 0.04 * (high - low)
    axes.set(ylim=(low - room, high + room), xticks=[], yticks=[low, high])
    axes.tick_params(labelsize=7)
    if place < len(sheet):
        axes.set_title(title, fontsize=9)
    if title == list(sheet)[0]:
        steps = f"{letter}\n{values.index[-1]} steps"
        axes.set_ylabel(steps, rotation=0, ha="right", va="center")
    few = 1 if len(values) < 8 else 3
    ends = f"{values.head(few).mean():.2g} to {values.tail(few).mean():.2g}"
    words.append(f"{letter} {title} {ends}")
    if not values.between(low, high).all():
        axes.text(0.97, 0.65, ends, transform=axes.transAxes, ha="right", fontsize=8)
figure.supxlabel("optimizer step", fontsize=10)
figure.suptitle("Twelve runs: which are healthy, and what is wrong with the others?")
figures.show(figure, f"Twelve patients, seven small charts each: {'; '.join(words)}.")

# %% [markdown]
# The six panels of one patient show the parts of its reward, its KL and its lengths. Change the letter:

# %%
LETTER = "E"
figures.show(*run_panels(patients[LETTER], title=f"Patient {LETTER}"))

# %% [markdown]
# ### Exercise 05.2 · `my_diagnosis` · hard · 20 minutes
#
# Return for each letter the set of its findings, from these names: `collapsed`, `drowned`, `format_ignored`, `frozen`,
# `hacked`, `healthy`, `kl_too_high`, `never_ends`, `no_gradient`, `rate_too_high`, `rate_too_low`, `reward_falls`,
# `reward_flat`, `saturated`, `truncated`, `wrong_answers`. A healthy run may have `saturated` as a note beside `healthy`. Look at
# `patients["A"].table` before you ask `diagnose`.

# %% tags=["exercise"]
def my_diagnosis(letter: str) -> set[str]:
    raise NotImplementedError


check("05.2", my_diagnosis);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A dict from letter to set is enough. Adapters: exactly 0, almost 0, or moving? Unique texts: one in eight means that
# all eight are the same. C, D and L have rising rewards: compare the parts, and the held-out accuracy. K has two
# findings.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_diagnosis(letter: str) -> set[str]:
#     return {
#         "A": {"healthy"}, "B": {"collapsed"}, "C": {"format_ignored"}, "D": {"hacked"},
#         "E": {"rate_too_high"}, "F": {"rate_too_low"}, "G": {"drowned"},
#         "H": {"healthy"}, "I": {"truncated"}, "J": {"frozen"},
#         "K": {"healthy", "saturated"}, "L": {"wrong_answers"},
#     }[letter]
# ```
#
# E's learning rate was eight times too high, and its `beta` too small to hold it: its reward falls and its KL grows,
# but that is one cause.
#
# </details>

# %% [markdown]
# ### Exercise 05.3 · `cured` · medium · 10 minutes
#
# One more patient has two diseases: `max_completion_length` 4 and `temperature` 0.05. Its diagnosis is `truncated`. The
# cure below raises the limit to 64. **Predict** the diagnosis after that, then run the cell: it trains the cured run for
# 15 steps (about half a minute) and shows its panels. Then change `cure`, and your prediction, until it is healthy.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "healthy", "truncated", "collapsed" or "another"
SICK = {"max_completion_length": 4, "temperature": 0.05}
cure = {"max_completion_length": 64}  # this is yours to change


def treat() -> dict:
    """15 steps of the sick run with your cure, its panels and its diagnosis."""
    treated = run.replace(max_steps=15, output=run.output / "cured", **SICK | cure)
    model, tokenizer = load_policy(treated)
    watched = watch(functions)
    trainer = make_trainer(treated, model, tokenizer, train_set, watched, weights,
                           {"save_strategy": "no"})
    trainer.add_callback(HealthCallback(watched, say=print))
    trainer.train()
    log = read_run(trainer.state.log_history, functions)
    figures.show(*run_panels(log, title=f"After {cure}"))
    reward = log.table["reward"].dropna()
    ends = reward.head(3).mean(), reward.tail(3).mean()
    return {"finding": diagnose(log)[0].name, "reward": ends,
            "unique": log.table["completions/unique_fraction"].tail(5).mean()}


predict("05.3", prediction, treat);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which disease is left, and what does it do to the eight completions of a group?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "collapsed"
# ```
#
# Cut-off answers hid the second disease. With whole answers the temperature shows: all eight completions of a group are
# nearly the same text. The reward is high from the first step, because the model's most likely answer is mostly right,
# and it does not rise. With `cure = {"max_completion_length": 64, "temperature": 1.0}` predict `"healthy"`.
#
# </details>

# %% [markdown]
# ### Exercise 05.4 · `entropy_spent` · hard · 15 minutes
#
# Write a rule that the diagnosis lacks, and run it on a log of your own: entropy was spent, but bought no reward.
# Return the first step (from 1) at which the mean entropy of the last three steps is below a quarter of that of the
# *first* three steps, while the mean reward of the last three is below 0.8 of `highest`; `None` when there is no such
# step.

# %% tags=["exercise"]
def entropy_spent(
    entropy: list[float], reward: list[float], highest: float
) -> int | None:
    raise NotImplementedError


check("05.4", entropy_spent);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Loop over `step` from 3 to `len(entropy)`; the window is `entropy[step - 3 : step]`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def entropy_spent(
#     entropy: list[float], reward: list[float], highest: float
# ) -> int | None:
#     from statistics import mean
#
#     start = mean(entropy[:3])
#     for step in range(3, len(entropy) + 1):
#         undecided, paid = mean(entropy[step - 3 : step]), mean(reward[step - 3 : step])
#         if undecided < 0.25 * start and paid < 0.8 * highest:
#             return step
#     return None
# ```
#
# </details>

# %% [markdown]
# Now your own run: set `MY_RUN` to the folder of any GRPO run, of this workbook or of a `GRPOTrainer` elsewhere, and
# `HIGHEST` to the highest reward that your functions can pay. Without a folder it reads this chapter's live run. The
# stored logs stand beside it: their rewards pay at most 3, the equals signs 1.

# %%
MY_RUN, HIGHEST = "", 3.0
mine = read_run(MY_RUN) if MY_RUN else live
print(as_text(diagnose(mine), mine))
for name, log in {"mine": mine, "wrong answers": patients["L"], **both}.items():
    if "entropy" not in log.table:
        print(f"{name}: no entropy was logged")
        continue
    curve = log.table[["entropy", "reward"]].dropna()
    highest = {"mine": HIGHEST, "shows work": 1.0}.get(name, 3.0)
    try:
        spent = entropy_spent(list(curve["entropy"]), list(curve["reward"]), highest)
        print(f"{name}: entropy spent at step {spent}")
    except NotImplementedError:
        print(f"{name}: write entropy_spent first")

# %% [markdown]
# ### The clinic again: six GPU runs
#
# The published runs from above. Reward, KL and length were logged, as means over ten steps; the dashed line is the
# limit of a completion's length, where it is known. The scale of the KL is logarithmic above 0.1; an estimate of the KL
# can fall below 0.

# %% tags=["hide-input"]
limits = dict(zip(gpu_runs, (768, None, 200, 200, 1849, 1024)))
figure, grid = figures.new_panels(10.0, 9.0, 18, 3)
words = []
for place, axes in enumerate(grid):
    name, column = list(gpu_runs)[place // 3], place % 3
    metric = ("reward", "kl", "completions/mean_length")[column]
    values = gpu_runs[name][metric]
    axes.plot(values.index, values, color=figures.BLUE)
    if metric == "kl":
        axes.set_yscale("symlog", linthresh=0.1)
        axes.set_ylim(-0.1, 100)
    if column == 2 and limits[name]:
        axes.axhline(limits[name], color="black", ls="--", lw=1)
        axes.set_ylim(0, 1.1 * limits[name])
    if place < 3:
        axes.set_title(("reward", "KL", "tokens")[column], fontsize=10)
    if column == 0:
        axes.set_ylabel(name, rotation=0, ha="right", labelpad=24)
    ends = " to ".join(f"{values.iloc[k]:.2g}" for k in (0, -1))
    words.append(f"{name} {metric} {ends}, limit {limits[name]}")
for axes in grid[-3:]:
    axes.set_xlabel("step")
figure.suptitle("Six runs: which would you stop, and why?")
figures.show(figure, f"Reward, KL and length of six runs: {'; '.join(words)}.")

# %% [markdown]
# One run also logged the fraction of completions that are cut off (mean of all steps):

# %%
for name, log in gpu_runs.items():
    cut_off = log["completions/clipped_ratio"].mean()
    if cut_off == cut_off:  # not a NaN
        print(f"{name}: {cut_off:.0%} cut off")

# %% [markdown]
# ### Exercise 05.5 · `gpu_diagnosis` · medium · 12 minutes
#
# What is wrong with each of the six? Return the set of its findings, from `healthy`, `kl_too_high` (the KL grew too
# far), `rate_too_low`, `reference_differs` (the KL is above 0 before anything was learned), `reward_falls`,
# `reward_flat`, `truncated` (completions are cut off before their answer). Two of the runs have two findings. Name a
# cause, not its effect: `truncated` only if completions are cut off from the start and the reward does not rise,
# `reward_flat` only if nothing else explains it.

# %% tags=["exercise"]
def gpu_diagnosis(run: str) -> set[str]:
    raise NotImplementedError


check("05.5", gpu_diagnosis);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three are healthy, as their slopes say. Of the others, one writes up to its limit from first to last, one has a large
# KL in its first steps, and one begins to learn and breaks after step 60.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def gpu_diagnosis(run: str) -> set[str]:
#     return {
#         "phi4_14b": {"truncated"},
#         "llama32_1b_fp8": {"reference_differs", "truncated"},
#         "qwen3_0.6b_base": {"kl_too_high", "reward_falls"},
#     }.get(run, {"healthy"})
# ```
#
# - `phi4_14b` writes about 195 of its 200 tokens from first to last: most completions are cut off before their answer.
#   Its KL stays near 0, because little pays. Give it more tokens. `qwen25_3b` began the same way, but learned to write
#   less.
# - `llama32_1b_fp8` has a KL of 0.6 in its *first* steps, when policy and reference should still agree. With weights in
#   8 bits the two are probably not computed in the same way. No `beta` cures that. And two of three completions are cut off.
# - `qwen3_0.6b_base` learns for 50 steps (its held-out accuracy goes from 16 % to 41 %). Then it breaks, in spite of a
#   KL penalty: the reward is 0 from step 70, the KL above 20 from step 80, the length at its limit from step 90. Stop
#   such a run at the first of these. The log does not say why it broke: neither gradient norm nor adapter change was
#   logged.
#
# </details>

# %% [markdown]
# ## Summary
#
# - A loss near 0 is normal when `beta` is 0: advantages sum to 0 and every ratio is 1. What is left comes from
#   completions of different lengths. The sign of failure is a gradient norm of 0 with zero-variance groups.
# - `reward_std` is the whole batch's and proves nothing. Read `frac_reward_zero_std`.
# - Watch the reward with its parts, zero-variance groups, entropy, lengths, gradient, adapters and held-out problems.
#   Most diseases look alike in any one of them; two together tell them apart.
# - A reward that rises proves nothing by itself.
# - A GPU run needs about 100 steps before its reward says anything. Its KL and its lengths say something sooner.
# - `HealthCallback` diagnoses while the run goes on, `python -m grpo_workbook diagnose` afterwards.
#
# Next: [06 · Code rewards](06_code_rewards.ipynb), where the answers are programs.
