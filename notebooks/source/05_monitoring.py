# %% [markdown]
# # 05 · Monitoring: a run that says what is wrong with it
#
# Is a run learning while it trains, and if not, what is wrong with it? This chapter first reads the curves of a healthy
# run, then finds out what is wrong with sick ones, and then watches runs while they train and stops the bad ones.
#
# **After this notebook you can** read every curve of a GRPO run, explain why a loss near 0 is normal, tell a healthy
# run from a sick one (within 30 steps here; on a GPU wait for about 100), name what is probably wrong and its cure, and
# stop a bad run before it wastes an hour.
#
# **Time:** about 1 minute on two CPU cores that do nothing else (smoke profile). Reading takes about 35 minutes. (The
# stored outputs come from a slower machine, so their progress bars show longer times.) **You need** chapter 00, and
# chapter 04, which explains how a run is started. To diagnose a run of your own, use
# `python -m grpo_workbook diagnose FOLDER`.

# %% [markdown]
# ## Why the reward is not enough
#
# Here are the stored logs of two runs of the same tiny model. In both runs GRPO did what it should: it raised the mean
# reward. The runs differ only in their reward functions.

# %%
from grpo_workbook import figures, files
from grpo_workbook.diagnosis import read_run

LOGS = files.REPO / "tests" / "diagnosis_logs"
healthy = read_run(LOGS / "healthy_0.json")
shows_work = read_run(LOGS / "shows_work_0.json")

# %% [markdown]
# In the figure, each panel is a run, and its title names what the reward pays for. The blue line is the mean reward of
# each step, as a percentage of the highest possible reward. The orange dots are the accuracy on held-out problems,
# which the model never trains on: the percentage that it answers correctly and in the right form. Each dot comes from
# 64 problems, so it is uncertain by up to 12 points (the 95 % interval of chapter 08).

# %% tags=["hide-input"]
figure, grid = figures.new_panels(9.0, 3.0, 2, 2)
pairs = {  # what the reward pays for -> the run and its highest reward
    "paid for right answers and their form": (healthy, 3.0),
    "paid for equals signs": (shows_work, 1.0),
}
words = []
for axes, (name, (run, highest)) in zip(grid, pairs.items()):
    rewards = 100 * run.table["reward"].dropna() / highest
    accuracies = 100 * run.table["heldout/strict"].dropna()
    axes.plot(rewards, color=figures.BLUE, label="reward")
    axes.plot(accuracies, "o--", color=figures.ORANGE, label="held-out accuracy")
    axes.set_xlabel("optimizer step")
    axes.set_ylim(-3, 105)
    axes.set_title(name, fontsize=10)
    words.append(f"{name}: reward to {rewards.iloc[-1]:.0f} %")
    words.append(f"held-out accuracy to {accuracies.iloc[-1]:.0f} %")
grid[0].set_ylabel("% of the highest possible")
handles, labels = grid[0].get_legend_handles_labels()
figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=2)
figure.suptitle("Both rewards rise, but only the model on the left gets better")
figures.show(figure, f"Two line charts over the steps. {'; '.join(words)}.")

# %% [markdown]
# On the right the reward reaches its maximum, and not one held-out problem is answered correctly and in the right form
# any more. The author of that reward wanted to see the steps of the calculation, and paid for equals signs. The reward
# alone cannot show such a failure, because the reward is what the model exploits. So you need more curves, and you need
# to know how each looks in a healthy run.

# %% [markdown]
# ## The curves of a healthy run
#
# The left run of the figure above is healthy. Its model is *tiny-form*. It can solve the course's word problems, but it
# was trained, on purpose, to write its answers in messy forms ([its card](../data/tiny-form/README.md)). So it learns
# within 30 steps, and what it learns is mostly the form.
#
# Six panels show most of what matters. Each answers one question. The faint lines are the values of single
# steps, and the bold lines are means of five steps.
#
# - *Reward*: does the model earn more? The *total* is twice *correctness* plus half of each of the two rewards for the
#   form, *strict_format* and *incremental_format* (chapter 03), so it is at most 3. These three parts are drawn before
#   weighting, each from 0 to 1.
# - *Spread, zero-variance groups*: is there something to compare? The *spread* is TRL's `reward_std`, the standard
#   deviation of all rewards of a step. In a *zero-variance group* all rewards are equal, and the panel shows the
#   fraction of such groups, TRL's `frac_reward_zero_std`.
# - *Entropy*: how undecided is the policy about its next token?
# - *Tokens*: how long are the completions?
# - *Gradient norm, adapter change*: is there a gradient, and do the adapters move? Their change is a fraction of their
#   norm at the start.
# - *Held-out problems*: can the model solve problems that it never trains on? *Strict* is the accuracy of the first
#   figure: right, and in the right form. *Lenient* is right in any form.
#
# <details><summary>The adapters' norm, and which weights these are</summary>
#
# The norm at the start is that of LoRA's `A` alone, because `B` is 0 then.
#
# The settings in the stored logs name the model `data/tiny-qwen3`. This was the folder of these weights when the runs
# were recorded; today's `tiny-qwen3` is another model.
#
# </details>

# %%
from grpo_workbook.diagnosis import run_panels

title = "Healthy: the reward rises, and the held-out accuracy too"
figures.show(*run_panels(healthy, title=title))

# %% [markdown]
# How does each panel look in a healthy run, and when should you worry?
#
# | panel | healthy | worry when |
# | --- | --- | --- |
# | reward and its parts | rise, then level off | flat after 30 steps (on a GPU 100), falling, or one part rising alone |
# | zero-variance groups | more and more, *as the reward gets high* | nearly all, from the start: no gradient |
# | entropy | falls while the reward rises | near 0 while the reward is low |
# | tokens | steady, or moving for a reason | all at the limit; a steep climb; near 0 |
# | gradient norm, adapters | gradient noisy; adapters move, here by one or two tenths of their norm (less with the smaller rates of a real model) | gradient 0; adapters at 0, or beyond half their norm |
# | held-out problems | accuracy rises with the reward | accuracy flat or falling while the reward rises |
#
# <details><summary>For the curious: three more of TRL's metrics</summary>
#
# `completions/mean_terminated_length` is the mean length of the completions that ended by themselves. If it is far
# below `completions/mean_length`, the other completions ran into the limit.
#
# `clip_ratio/*` are the fractions of tokens whose ratio was clipped. They are 0 where every completion is used for one
# update, as here. With several updates for a batch, a large fraction means that the policy moves far between them.
#
# </details>

# %% [markdown]
# ### The loss is near 0, and that is normal
#
# The panels leave out the loss, because it does not show whether a model learns. Take four completions of one problem,
# two of them right. Their advantages sum to 0, because each advantage is a distance from the group's mean. The loss is
# minus the mean of `ratio * advantage`. The ratio compares a token's probability now with that when it was sampled, so
# at the first update of a batch it is 1. With this course's `loss_type="dapo"` the mean is over all *tokens*, so a
# longer completion counts more. The cell computes the loss of the four completions for three choices of their lengths:

# %%
from statistics import mean, stdev

group = [1.0, 1.0, 0.0, 0.0]  # the rewards: two right, two wrong
advantages = [(reward - mean(group)) / (stdev(group) + 1e-4) for reward in group]
print("advantages:", *(f"{advantage:+.2f}" for advantage in advantages))
lengths_of = {  # in tokens
    "all of 20 tokens": [20, 20, 20, 20],
    "the right ones longer": [30, 30, 20, 20],
    "the wrong ones longer": [20, 20, 30, 30],
}
for name, lengths in lengths_of.items():
    total = 0.0
    for advantage, length in zip(advantages, lengths):
        total += advantage * length
    loss = 0.0 - total / sum(lengths)  # without the 0.0, a loss of 0 prints as -0.00
    print(f"{name:22} loss {loss:+.2f}")

# %% [markdown]
# So the value of the loss shows only which completions are longer, and it is 0 if all are equally long. Its *gradient*
# is not 0: it makes the first two completions likelier and the other two less likely. With `beta` above 0 the loss also
# contains the KL penalty, which starts at 0 and grows. Here are some values of the healthy run:

# %%
columns = ["reward", "loss", "grad_norm", "reward_std", "frac_reward_zero_std"]
healthy.table.loc[[1, 5, 10, 20, 30], columns].round(3)

# %% [markdown]
# The reward rises from 1.5 to 2.8. The loss goes from -0.15 to about 0, and does not show the rise. A negative loss, as
# at first, means that the completions with a positive advantage have more tokens.

# %% [markdown]
# ### Zero-variance groups teach nothing
#
# In the table `reward_std` falls, and `frac_reward_zero_std` rises. The first is the standard deviation over the *whole
# batch*. But an advantage comes from the differences *within a group*, and `frac_reward_zero_std` is the fraction of
# groups without any. The figure shows two batches with the same sixteen rewards, one for each completion. Each row is a
# group:

# %% tags=["hide-input"]
import torch

apart = torch.tensor([[1.0] * 4, [0.0] * 4, [1.0] * 4, [0.0] * 4])
mixed = torch.tensor([[1.0, 0.0, 1.0, 0.0]] * 4)
batches = {"problems differ": apart, "completions differ": mixed}
figure, grid = figures.new_panels(7.5, 3.0, 2, 2)
words = []
for axes, (name, batch) in zip(grid, batches.items()):
    zero_variance = (batch.std(dim=1) == 0).float().mean()
    numbers = f"reward_std {batch.std():.2f}, frac_reward_zero_std {zero_variance:.0f}"
    words.append(f"{name}: {numbers}")
    axes.imshow(batch, cmap="Blues", vmin=-0.2, vmax=1.6, aspect="auto")
    for row in range(4):
        for column in range(4):
            reward = f"{batch[row, column]:.0f}"
            axes.text(column, row, reward, ha="center", va="center")
    axes.set_title(f"{name}\n{numbers}", fontsize=10)
    labels = ["group 1", "group 2", "group 3", "group 4"]
    axes.set(xticks=[], yticks=range(4), yticklabels=labels)
    axes.grid(visible=False)
figure.suptitle("The same reward_std, but only the batch on the right teaches")
listed = "; ".join(words)
figures.show(figure, f"Two tables of rewards, four groups of four. {listed}. On the "
             "left all rewards of a group are equal: no advantage and no gradient.")

# %% [markdown]
# So read `frac_reward_zero_std`, and read it together with the reward. In the healthy run more and more groups have
# zero variance because all of their completions become right. If the reward is low, zero variance usually means that
# all completions of a group are wrong, and that the run has nothing to learn from.
#
# <details><summary>reward_std in older versions of TRL</summary>
#
# Older versions of TRL log under the name `reward_std` the mean of the groups' own standard deviations. So before you
# compare the `reward_std` of two logs, look at their versions of TRL. `frac_reward_zero_std` means the same in both.
#
# </details>

# %% [markdown]
# ### Entropy falls, and the KL grows
#
# The entropy is 0 if the model is always certain of its next token. It is measured in nats (units of the natural
# logarithm) per token. With `beta` above 0 TRL also logs the KL, the distance from the reference. It starts at 0,
# because the policy still equals its reference.
#
# The run above logged no KL, so the figure shows a second healthy run, with `beta` at 0.04. The faint lines are single
# steps, and the bold lines are medians of seven steps. The vertical axis is broken: its upper part shows one step with
# a far higher KL.

# %% tags=["hide-input"]
kl_run = read_run(LOGS / "healthy_beta_0.json").table
figure, (upper, lower) = figures.new_panels(7.5, 3.8, 2, 1)
upper.get_subplotspec().get_gridspec().set_height_ratios([1, 3])
lines = {"entropy": (figures.GREEN, "-"), "kl": (figures.BLUE, "--")}
for metric, (colour, dash) in lines.items():
    values = kl_run[metric].dropna()
    medians = values.rolling(7, min_periods=1, center=True).median()
    for axes in (upper, lower):
        axes.plot(values, color=colour, alpha=0.35, lw=1)
        axes.plot(medians, dash, color=colour, lw=2.2, label=metric)
start = kl_run["entropy"].head(5).mean()
end = kl_run["entropy"].tail(5).mean()
lost = f"{1 - end / start:.0%}"
peak = kl_run["kl"].max()
lower.set_ylim(0, 0.3)
lower.set_xlabel("optimizer step")
lower.set_ylabel("nats per token")
upper.set_ylim(peak - 0.06, peak + 0.04)
upper.set_yticks([round(peak, 2)])
upper.set_xticks([])
upper.spines["bottom"].set_visible(False)
slash = [(-1, -0.5), (1, 0.5)]  # the mark of a broken axis
look = {"marker": slash, "ms": 10, "color": "black", "clip_on": False}
upper.plot(0, 0, transform=upper.transAxes, **look)
lower.plot(0, 1, transform=lower.transAxes, **look)
lower.legend(frameon=False, loc="upper center")
figure.suptitle(f"A tiny task is learned: {lost} of the entropy is gone in 30 steps")
figures.show(figure, f"Line chart over 30 steps. Entropy loses {lost}; the KL starts "
             f"at 0 and meets it near 0.03. One step's KL is {peak:.2f}.")

# %% [markdown]
# The KL of a step is estimated from its sampled tokens. Now and then a token is sampled that the policy finds very
# unlikely, and the reference does not. One such token makes the estimate jump, as in the upper part of the figure. So
# look at the bold line. A healthy KL grows and then levels off. Worry when it is 1.7 nats per token or more above its
# first step: this bound lies between the healthy and the broken runs on GPUs whose logs we have.
#
# **Do not take the speed at which this entropy falls (86 % in 30 steps) as the norm for a real model.** A sum of small
# numbers has one right answer and nearly one wording, so little is left to be undecided about. A real model that loses
# its entropy this fast may stop exploring: its completions become alike, GRPO has nothing to compare, and learning
# ends. DAPO ([arXiv 2503.14476](https://arxiv.org/abs/2503.14476)) calls this *entropy collapse*.
#
# So compare the entropy of your run with that of its own first steps, and ask how much the reward rose while the
# entropy fell (exercise 05.4).
#
# <details><summary>Why 1.7?</summary>
#
# In our logs of GPU runs the median KL of the healthy runs reached 1.2, and that of the first broken one was 2.5. The
# three healthy GPU runs below end at 0.03 to 0.11. If your KL is well above that but under 1.7, do not stop yet: read
# completions and look at the held-out accuracy.
#
# </details>
#
# <details><summary>For the curious: entropy collapse in large models, and what works against it</summary>
#
# TRL's `entropy_coef`, a bonus for entropy in the loss, works against the collapse. DAPO's own cure is
# `epsilon_high=0.28`. With it, tokens that become likelier are clipped less often. This chapter's runs use each
# completion for one update, at which nothing is clipped, so there it does nothing.
#
# In the runs of Cui et al. (arXiv 2505.22617, eleven base models of 0.5 to 32 billion weights) the first 200 of 2,400
# steps used up 73 % of the entropy and brought 76 % of the gain.
#
# On a GPU, Unsloth's trainer logs no `entropy` (but a `kl` even when `beta` is 0). There, watch the fraction of
# different texts in a group, which the next section introduces.
#
# </details>

# %% [markdown]
# ## What is wrong with a sick run?
#
# The next figure shows twelve runs of the same tiny model. One of them is healthy. In each of the others
# `benchmarks/diagnosis.py` made one change that makes the run sick (the folded code names it).
#
# Each panel is the reward of one run over the optimizer steps, pale for single steps and bold for means of five. Every
# panel has a scale of its own, from 0 upwards, because the runs have different rewards. Before you read on, decide:
# **which run is healthy?**

# %% tags=["hide-input"]
from grpo_workbook.diagnosis import side_by_side

changes = {  # the log of a run -> what was changed
    "cold_sampling": "temperature 0.05", "four_tokens": "at most 4 tokens",
    "wrong_sign": "loss maximised", "beta_10": "beta 10",
    "wrong_answers": "answers shifted", "rate_by_100": "rate / 100",
    "shows_work": "paid for equals signs", "wrong_end_token": "unknown end token",
    "reward_by_prompt": "equal in each group", "healthy": "no change",
    "rate_times_100": "rate × 100", "frozen_adapters": "other weights trained",
}
sick = {}
numbered = {}
for number, name in enumerate(changes, start=1):
    sick[name] = read_run(LOGS / f"{name}_0.json")
    numbered[f"run {number}"] = sick[name]
figure, words = side_by_side(numbered)
figure.suptitle("Twelve runs, and one of them is healthy: which?")
figures.show(figure, words)

# %% [markdown]
# The next cell prints the change in each run and what is wrong with it, as `diagnose` names it. `diagnose` is a
# function of this course that reads all metrics of a log and returns its *findings*. For the first finding the cell
# also prints how serious it is, from which step on it holds, and the metric or setting that shows it. Three names
# first:
#
# - `completions/unique_fraction` is the fraction of different texts in a group, and `completions/clipped_ratio` is the
#   fraction of completions that are cut off at the limit.
# - The *t* of a line says how surely the reward rises or falls: it is the slope of a straight line through the rewards,
#   divided by the slope's standard error.
#
# (The folded cell above made `changes` and the logs, `sick`.)

# %%
from grpo_workbook.diagnosis import diagnose

for number, (name, change) in enumerate(changes.items(), start=1):
    finding = diagnose(sick[name])[0]
    evidence = finding.evidence[0]
    metric = evidence.metric.split(",")[0]
    row = f"{number:2}  {change:21} {finding.severity:8}{finding.name:14}"
    print(f"{row}step {finding.step:2}  {metric} {evidence.value:.3g}")

# %% [markdown]
# Run 10 is the healthy one, but the reward alone could not tell you:
#
# | the reward | runs |
# | --- | --- |
# | rises | 2 (a little), 5, 7, 8, 10 |
# | falls to 0 | 3, 11 |
# | hardly rises | 4, 6, 9, 12 |
# | is high from the first step | 1 |
#
# The best-looking rise is that of run 7, which is paid for equals signs. In run 5 each problem has the answer of
# another one, and in run 8 the trainer waits for an end token that the model has never learned.
#
# The four that hardly rise have four different causes. Run 4 has a `beta` of 10. In run 6 the learning rate is too low,
# and the adapters hardly move. In run 9 the reward depends on the problem alone, so there is almost no gradient. In run
# 12 the optimizer got other weights, and the adapters do not move at all.
#
# Why is run 1 sick, although its reward is high? Its temperature is 0.05, so the model nearly always writes its most
# likely answer. This is mostly right, so the reward starts at 2.6, and not at 1.5 as in the healthy run. The cell
# compares its log, `cold_sampling`, with that of the healthy run:

# %%
columns = ["reward", "completions/unique_fraction", "frac_reward_zero_std", "grad_norm"]
for name in ("cold_sampling", "healthy"):
    print(name)
    print(sick[name].table.loc[[1, 5, 10, 15], columns].round(3).to_string())

# %% [markdown]
# A unique fraction of 0.125 means that all eight completions of a group are the same text, so GRPO has nothing to
# compare. This is a *collapse*. In the healthy run the fraction falls too, but from 0.78 and only as the task is
# learned. The cure is to sample at a temperature of 1.

# %% [markdown]
# ### Six questions
#
# Ask six questions about a run. They follow the path of learning. All numbers must be finite, and the completions must
# be whole. The completions of a group must differ, because their differences make the gradient. The gradient must move
# the adapters. Then the reward should rise, and with it the held-out accuracy. A fault usually spoils what comes after
# it, too, so look for the first one. The folded cell lists the `questions`:

# %% tags=["hide-input"]
questions = {  # question: its bad answers, each with its findings
    "Is every number finite?": [("no", ["nan", "reward_nan"])],
    "Do the completions end,\nand do they hold text?": [
        ("no", ["truncated", "never_ends", "empty"])],
    "Do the completions of a group differ,\nand do their rewards?": [
        ("the same texts", ["collapsed"]),
        ("equal rewards", ["no_gradient", "reward_constant"]),
        ("equal rewards, all answers right", ["saturated"])],
    "How far do the adapters move?": [
        ("not at all", ["frozen"]),
        ("under 0.5 %", ["rate_too_low"]),
        ("over 50 % (25 % if half the reward was lost)", ["rate_too_high"])],
    "Where do the reward and the KL go?": [
        ("reward down", ["reward_falls"]),
        ("reward nowhere", ["reward_flat", "beta_too_high"]),
        ("KL up by 1.7 per token", ["kl_too_high"])],
    "Do all parts of the reward rise,\nand the held-out accuracy?": [
        ("a part does not", ["drowned", "wrong_answers", "format_ignored"]),
        ("the accuracy does not", ["hacked"])],
}

# %% [markdown]
# Read the figure from top to bottom. At the first bad answer, follow its arrow to the diseases. Where an arrow has
# several answers, each has its diseases on the same line of the box.
#
# The percentages are the adapters' change, as a fraction of their norm at the start. Under 0.5 % is bad only if the
# reward is flat, too. The upper limit is 50 %, and 25 % for a run that has also lost half of its reward: half of the
# distance from its lowest step to its best mean of five steps.

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {}
arrows = []
words = []
for place, (question, cases) in enumerate(questions.items()):
    y = 0.94 - 0.155 * place
    answers = "\n".join(answer for answer, _ in cases)
    diseases = "\n".join(", ".join(names) for _, names in cases)
    boxes[question] = (0.19, y, question, pale["data"])
    boxes[diseases] = (0.83, y, diseases, pale["number"])
    arrows.append((question, diseases, answers))
    words.append(f"{question} {answers}: {diseases}".replace("\n", "; "))
boxes["healthy"] = (0.19, 0.04, "healthy", pale["check"])
in_order = [*questions, "healthy"]
for question, following in zip(in_order, in_order[1:]):
    arrows.append((question, following, ""))
figure = figures.diagram(boxes, arrows, (11.0, 6.6))
figure.suptitle("Six questions, asked in this order", y=1.02)
listed = ". ".join(words)
figures.show(figure, "Decision tree of the diagnosis: six questions from top to bottom "
             f"with the findings to their right. {listed}. At the end: healthy.")

# %% [markdown]
# The names on the right are findings of `diagnose`. The next cell prints them under their questions, with what the log
# shows for each. You need not learn this list; use it to look things up:

# %%
from grpo_workbook.diagnosis.findings import CATALOGUE

for question, cases in questions.items():
    print(question.replace("\n", " "))
    for _, names in cases:
        for name in names:
            print(f"    {name:16} {CATALOGUE[name].symptom}")
print(f"None of these\n    healthy          {CATALOGUE['healthy'].symptom}")

# %% [markdown]
# The limits of the adapters' change come from short healthy runs: in a long run look at the held-out accuracy, too.
# [findings.toml](../grpo_workbook/diagnosis/findings.toml) has all findings with their cures, and every bound with its
# reason.
#
# <details><summary>Four names that need more words</summary>
#
# - *Truncated* means that completions are cut off at their maximum length. If at least nine in ten are cut off, the
#   reward may even rise a little, as in run 2 (*at most 4 tokens*), where no function pays more than a quarter of its
#   maximum. If one pays more, the completions had room for what it pays for, and the finding is `never_ends`.
# - A form is *ignored* if its reward has a weight near 0.
# - `rate_too_low` needs a reward that hardly rises, besides adapters that hardly move. With the small rates of a real
#   model the adapters of a healthy run may also move by less than 0.5 % in its first steps.
# - With `beta_too_high` the reward goes nowhere, although the adapters move: a large penalty holds the policy near its
#   reference, but not the adapters. In the run *beta 10* they move by 8 %. You recognise it by a large `beta` and a KL
#   near 0.
#
# </details>
#
# <details><summary>How a loss of the reward is measured, and where the limits of the movement come from</summary>
#
# What was lost is the deepest fall from one mean of five steps to a later one. With a best mean of 2.0 and a lowest
# step of 0.6 the distance is 1.4, and a fall from 2.0 to 1.0 has lost more than half of it.
#
# A run whose reward rises and stays up is never called `rate_too_high`. The limits rest on healthy runs of 30 to 60
# steps, which stay below 20 %, with a `lora_alpha` of twice the rank. A long run, or an adapter with another alpha, may
# pass them in good health.
#
# </details>

# %% [markdown]
# `diagnose` asks the six questions for you. `as_text` prints its findings with the evidence (*seen*) and the cure
# (*do*), and then the findings that this log cannot show (*not judged*). Behind each number under *seen*, a bracket
# gives what it is compared with. In the gamed run from the beginning, the *t* is over 2.5, so the reward rose. But the
# held-out accuracy is not over its first value. Together they mean `hacked`:

# %%
from grpo_workbook.diagnosis import as_text

print(as_text(diagnose(shows_work)[:1], shows_work))

# %% [markdown]
# A lenient held-out accuracy of 0.0156 means that hardly any answer is right, in whatever form. (`reference_differs`
# comes in exercise 05.5.)
#
# How far can you trust these names? We ran `diagnose` on logs of other people's runs that had played no part in writing
# its rules. It named the cause of 24 of 44 sick runs, and called 1 of 21 healthy runs sick. So take a finding as a
# hint, and do not take *healthy* as a proof.
#
# <details><summary>For the curious: what happened to the other runs</summary>
#
# 24 of 44 is 55 %, with a 95 % interval from 40 to 68 %. The rules have been changed since, partly with these logs in
# view. Now `diagnose` names 32 of these 44 runs, but expect less for a new log. It calls no healthy run sick, which for
# 21 runs still leaves up to 15 %.
#
# Of the twelve sick runs that it does not name, it calls three too short to judge and two flat, in which the groups do
# not differ. For the other seven we did not note whether they got a wrong name or were called *healthy*. So up to 7 of
# 44 sick runs (16 %) may have been called healthy. [docs/measurements.md](../docs/measurements.md) tells more about
# these logs.
#
# </details>

# %% [markdown]
# ## What to do: watch the run while it trains
#
# A diagnosis after the run comes too late: the hours are spent. TRL logs most of what is needed while the run trains.
# In the figure, the white box is TRL's trainer. The blue helpers add their numbers to its log, and the green ones read
# it. One of these, `HealthCallback`, diagnoses the log while the run goes on, and can end the run. It also logs a
# number that TRL does not (not drawn): `adapter/change`, how far the adapters have moved.

# %% tags=["hide-input"]
boxes = {
    "step": (0.12, 0.8, "GRPOTrainer\none step", pale["model"]),
    "watch": (0.12, 0.46, "watch(rewards)\ncounts texts", pale["data"]),
    "probe": (0.12, 0.12, "HeldoutProbe\nevery 10 steps", pale["data"]),
    "log": (0.5, 0.46, "trainer.state\n.log_history", pale["number"]),
    "health": (0.86, 0.8, "HealthCallback\ndiagnose()", pale["check"]),
    "panels": (0.86, 0.46, "panels=True\nsix panels", pale["check"]),
    "report": (0.86, 0.12, "report_to\nTrackio, TensorBoard", pale["check"]),
}
arrows = [
    ("step", "log", "metrics"), ("watch", "log", "unique, empty, invalid"),
    ("probe", "log", "held-out accuracy"), ("log", "health", "every 5 steps"),
    ("log", "panels", ""), ("log", "report", ""),
    ("health", "step", "stop_on ends training"),
]
figure = figures.diagram(boxes, arrows, (9.0, 3.6))
figure.suptitle("Everything meets in the trainer's log", y=1.03)
figures.show(figure, "Diagram: trainer, watched rewards and held-out probe write to "
             "trainer.state.log_history; HealthCallback, its panels and TensorBoard "
             "read it, and HealthCallback can stop the trainer.")

# %% [markdown]
# First choose the settings. The folded cell puts them into `profile`. In the smoke profile the model is tiny-form
# again, with the settings of the stored runs:

# %% tags=["hide-input"]
import os

from grpo_workbook import choose_profile, config, quiet, use_one_thread

quiet()
use_one_thread()
short_run = {"max_steps": 20}
profile = choose_profile(default="smoke", grpo=short_run)
if profile.name == "smoke":
    short_run.update(learning_rate=1e-3, per_device_train_batch_size=64)  # as stored
    tiny_form = config.DATA / "tiny-form"
    profile = choose_profile("smoke", model=tiny_form, grpo=short_run)
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed

# %% [markdown]
# Then load the model and the problems, those for training and the held-out ones. (Unsloth's output names only
# `SFTTrainer`, but GRPO runs on a CPU, too.)

# %%
import unsloth
from grpo_workbook import data, load_policy, load_problems, to_dataset

model, tokenizer = load_policy(profile)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout_set = to_dataset(load_problems(data.WORD_PROBLEMS["heldout"]))

# %% [markdown]
# `watch` wraps the reward functions. The wrapped functions return the same rewards, but they also count the different
# texts in a group, the empty texts, and the rewards that are not finite numbers.

# %%
from grpo_workbook import (
    correctness_reward, incremental_format_reward, strict_format_reward,
)
from grpo_workbook.diagnosis import watch

functions = [correctness_reward, strict_format_reward, incremental_format_reward]
weights = [2.0, 0.5, 0.5]
watched = watch(functions)

# %% [markdown]
# TRL's `report_to` chooses where the metrics are written. `"trackio"` and `"tensorboard"` write into a folder on this
# disk and need no account; `"wandb"` works once it is installed. `log_completions` keeps what the model writes in a
# file.

# %%
# trackio reads its folder when it is imported, which TRL's trainer does
os.environ["TRACKIO_DIR"] = str(profile.output / "trackio")
os.environ["TENSORBOARD_LOGGING_DIR"] = str(profile.output / "tensorboard")
from trl import GRPOConfig, GRPOTrainer

settings = {**profile.grpo, "save_strategy": "no"}  # no checkpoints in this chapter
live_settings = {
    **settings,
    "report_to": ["trackio", "tensorboard"], "project": "grpo", "run_name": "live",
    "log_completions": True, "num_completions_to_print": 0,  # in a file, unprinted
}
args = GRPOConfig(
    output_dir=str(profile.output / "checkpoints"), reward_weights=weights,
    **live_settings,
)

# %% [markdown]
# `HeldoutProbe` samples answers to 64 held-out problems every ten steps. `HealthCallback` ends the run at the findings
# of `stop_on`: here `nan` and `collapsed`, after which nothing more is learned. With `panels=True` it also redraws one
# figure in place. In the panel *tokens*, the line *longest* is the length of the step's longest completion. (The
# variable `longest` is the limit.)
#
# The function `train` adds these two callbacks to those of chapter 04: `Float32Adapters`, which keeps the adapters in
# float32, and `RewardBar`, the progress bar.

# %%
from grpo_workbook import Float32Adapters, HeldoutProbe, RewardBar
from grpo_workbook.diagnosis import HealthCallback
from transformers import PrinterCallback


def train(policy, rewards, args, callbacks):
    """Train the policy with these callbacks besides the usual ones."""
    trainer = GRPOTrainer(
        policy, rewards, args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar(), *callbacks],
    )
    trainer.remove_callback(PrinterCallback)  # RewardBar shows the same in one line
    trainer.train()
    return trainer


longest = profile.grpo["max_completion_length"]
probe = HeldoutProbe(
    model, tokenizer, heldout_set, every=10, problems=64, max_new_tokens=longest
)
health = HealthCallback(watched, stop_on={"nan", "collapsed"}, panels=True)
trainer = train(model, watched, args, [probe, health])

# %% [markdown]
# The panels look like those of the stored healthy run. *Longest* falls from about 40 to 30 tokens, and the mean length
# stays near 26.
#
# What is the diagnosis at the end? `diagnose` must know which reward judges the answer and which judges the form. The
# log does not say so, but the reward functions do, through the decorator `@reward(role="correctness")`. So we pass them
# to `read_run`, too. The output compares the last quarter of the steps with the first (*at first*), and for the
# held-out accuracy the last probe with the first one. The loss is averaged without its sign.

# %%
live = read_run(trainer.state.log_history, functions)
findings = diagnose(live)
print(as_text(findings, live))

# %% [markdown]
# No metric replaces reading. With `log_completions=True` TRL writes a table of the completions for each logged step.
# For the first and the last step, the next cell prints the best, a typical and the worst completion of one group. The
# number before each text is the sum of its three rewards, each of them at most 1:

# %%
import pandas as pd

logged = profile.output / "checkpoints" / "completions"
for step in (1, 20):
    rows = pd.read_parquet(logged / f"completions_{step:05}.parquet")
    group = rows.head(8).sort_values("advantage", ascending=False)
    places = {"best": 0, "typical": 4, "worst": 7}
    for name, place in places.items():
        row = group.iloc[place]
        rewards = row.filter(like="_reward").sum()
        message = row["completion"][-1]
        text = message["content"].replace("\n", " ")
        print(f"step {step:2}  {name:8} {rewards:5.2f}  {text[:75]}")

# %% [markdown]
# At step 1 the completions of this group differ in form, and the worst one also has a wrong number. The model learns
# from these differences. At step 20 even the worst completion has the highest reward, so all eight rewards are equal:
# this is a zero-variance group, which has nothing more to teach. The probe shows a gain on problems that training never
# sees, too. *Well formed* is right in form, whatever the answer, and the last line says what the probes cost:

# %%
table = live.table
print(table.filter(like="heldout/").dropna().round(2).to_string())
share = table["heldout/seconds"].sum() / table["step_time"].sum()
print(f"\nthree probes in 20 steps took {share:.1%} of the steps' time")

# %% [markdown]
# ### A gamed reward: stop at the held-out accuracy
#
# How does a policy come to exploit a reward that counts equals signs? Continue to train the live model, which has just
# learned to write its answers in the form, with this reward alone. The probe now measures every five steps, and with
# `keep` it saves the adapter of the best step:

# %%
from grpo_workbook import reward


@reward(role="style")
def shows_work_reward(completions, **columns):
    """The number of equals signs, as a fraction of six."""
    rewards = []
    for completion in completions:
        signs = completion[0]["content"].count("=")
        rewards.append(min(1.0, signs / 6))
    return rewards


folder = str(profile.output / "gamed")
gamed_args = GRPOConfig(output_dir=folder, **{**settings, "max_steps": 40})
keeper = HeldoutProbe(
    model, tokenizer, heldout_set, every=5, problems=64, max_new_tokens=longest,
    keep=profile.output / "best",
)
gamed = train(model, [shows_work_reward], gamed_args, [keeper])

# %% [markdown]
# The figure shows the reward and the mean length of the completions in every step, and the held-out accuracy in every
# fifth step:

# %% tags=["hide-input"]
history = read_run(gamed.state.log_history).table
accuracy = history["heldout/strict"].dropna()
figure, grid = figures.new_panels(10.0, 2.8, 3, 3)
titles = ["mean reward, at most 1", "mean length, tokens"]
titles.append("held-out accuracy, strict, 0 to 1")
metrics = ["reward", "completions/mean_length", "heldout/strict"]
words = []
for axes, title, metric in zip(grid, titles, metrics):
    values = history[metric].dropna()
    axes.plot(values.index, values, color=figures.BLUE)
    axes.set(xlim=(0, 41))
    axes.set_title(title, fontsize=10)
    figures.from_zero(axes)
    words.append(f"{title} {values[5]:.2f} at 5, {values[15]:.2f} at 15")
    words.append(f"{values[40]:.2f} at 40")
grid[2].plot(accuracy.index, accuracy, "o", color=figures.BLUE, clip_on=False)
figure.supxlabel("optimizer step", fontsize=9)
figure.suptitle(
    "Gamed: the reward reaches its maximum, and no answer is strictly right"
)
figures.show(figure, f"Line charts over the steps: {', '.join(words)}.")

# %% [markdown]
# The held-out accuracy is lost first. At step 15 the reward is still flat, and no answer is strictly right any more.
# Then the reward rises to its maximum within a few steps, and the completions become as long as they may be. Nothing in
# this reward pays for a right answer or for its form, so nothing keeps them. Read what the model writes at steps 0, 15,
# 20 and 40 about the first held-out problem (29 ribbons, 6 are sold: how many are not?):

# %%
for step, texts in keeper.seen:
    if step in (0, 15, 20, 40):
        print(f"step {step:2}  {' '.join(texts[0].split())}")

# %% [markdown]
# At step 15 the model puts calculations into the tags, which breaks the form. At steps 20 and 40 it writes one
# calculation after another until it is cut off, and few of them have to do with the question. Each has an equals sign,
# which is all that the reward asks for.

# %% [markdown]
# The last steps of such a run have the highest reward and the worst policy. So judge steps by held-out accuracy, which
# the reward does not measure. With `HeldoutProbe(stop=True)` a run ends when clearly fewer problems are right than at
# the best step.
#
# What does *clearly* mean? The probe compares the latest accuracy with the best one so far. How probable is a fall at
# least as large if nothing has changed? This is the p-value of the paired test (chapter 08). With a limit of 0.05, a
# single comparison gives a false alarm in at most one of twenty cases. But the best and the latest may be any two of
# this run's 9 probes, which make 36 pairs. So the limit is 0.05 / 36. The cell makes this test for the first probes:

# %%
from math import comb

from grpo_workbook import paired_p_value, score
from grpo_workbook.statistics import has_fallen

asked = heldout_set["answer"][:64]
probes = len(keeper.seen)
print(f"{probes} probes: the limit of p is {0.05 / comb(probes, 2):.2g}")
best = score(keeper.seen[0][1], asked).strict  # of step 0
for step, texts in keeper.seen[1:5]:
    right = score(texts, asked).strict
    if sum(right) > sum(best):
        best = right
    p_value = paired_p_value(best, right) / 2  # one-sided: only a fall counts
    decision = "stop" if has_fallen(best, right, probes) else "go on"
    print(f"step {step:2}: {sum(right):2} of 64 right, p = {p_value:.1g}: {decision}")

# %% [markdown]
# With `stop=True` this run would have ended at step 15, before its reward had begun to rise.
#
# <details><summary>Why the limit is so strict, and what it costs</summary>
#
# A limit of 0.05 would be too lax, because the best probe is partly luck. In a simulation with 64 problems, this limit
# stopped runs whose accuracy stays level: about a quarter of them with 9 probes, and two thirds with 20.
#
# With 0.05 / 36, at most one such run in twenty is stopped for no reason, and with `keep` such a stop costs time, but
# not the model. The price is that a small fall is not noticed: in simulations the test finds a lasting loss of 20
# points, from the middle of the run on, in four of five runs or more.
#
# </details>

# %% [markdown]
# The best step of this run is 0, which is the adapter as the live run had left it. How much accuracy did `keep` save?
# The probe chose the step by its own 64 problems, so we test the kept and the last adapter on other problems. (These
# answers are greedy, which gives a higher accuracy than the probe's sampling at temperature 1.)

# %%
from grpo_workbook import evaluate, load_model

other_problems = heldout_set.select(range(64, 192))
kept, _ = load_model(
    profile.model, keeper.keep, load_in_4bit=profile.loader["load_in_4bit"],
    any_base=True,  # no check of the base: it is the one trained on above
)
for name, policy in (("kept", kept), ("last", model)):
    scores = evaluate(policy, tokenizer, other_problems, max_new_tokens=longest)
    print(f"{name}: {sum(scores.strict)} of {scores.n} other problems strictly right")

# %% [markdown]
# ### A learning rate that is too high: stop at the finding
#
# Train a new model with a learning rate of 0.3, which is 300 times that of the healthy run:

# %%
model, tokenizer = load_policy(profile)
watched = watch(functions)
guard = HealthCallback(watched, stop_on={"rate_too_high", "nan"}, every=1, say=print)
sick_args = GRPOConfig(
    output_dir=str(profile.output / "sick"), reward_weights=weights,
    **{**settings, "max_steps": 30, "learning_rate": 0.3},
)
stopped = train(model, watched, sick_args, [guard])
print(f"\nstopped after {stopped.state.global_step} of 30 steps")

# %% [markdown]
# The finding holds from step 2 on. The run stopped at step 4, because `HealthCallback` reports such a finding only when
# three checks in a row have made it. (With `every=1` it checks after each step.) The cure it prints is a first step
# only: 0.03 is still 30 times the healthy rate.

# %% [markdown]
# ## How long must you wait on a GPU?
#
# The tiny model learns in 30 steps, at a learning rate of 1e-3. Larger models need smaller rates (5e-6 in most of the
# following runs; chapter 04 starts at 1e-5) and more steps.
#
# The next cells load and draw six published runs, as means over ten steps. [data/README.md](../data/README.md) lists
# their sources. A run's name says the model and its number of weights: `gemma3_1b` is Gemma 3 with one billion.

# %%
import pandas as pd

table = pd.read_csv(files.REPO / "data" / "gpu_runs.csv").set_index("step")
gpu_runs = dict(list(table.groupby("run", sort=False)))
gpu_runs["gemma3_1b"].dropna(axis=1).head(3)

# %% [markdown]
# Each row of the figure is a run, with its mean reward, its KL and the mean length of its completions over the steps.
# The grey band is the first 30 steps, in which the tiny model learns its task. The dashed line is the maximum length,
# where it is known.
#
# Every run has a scale of its own for the reward, which need not begin at 0. So read the numbers beside the reward
# before you call a jump large. The scale of the KL is logarithmic. The last run comes from another program. It logs a
# KL penalty instead, which is roughly the KL per token. Where its estimate is negative, which a logarithmic scale
# cannot show, the line has a gap. Before you read on, decide: **which of the runs would you stop?**

# %% tags=["hide-input"]
limits = [768, None, 200, 200, 1849, 1024]
metrics = ["reward", "kl", "completions/mean_length"]
figure, grid = figures.new_panels(10.0, 9.0, 18, 3)
words = []
for row, (name, log) in enumerate(gpu_runs.items()):
    for column, metric in enumerate(metrics):
        axes = grid[3 * row + column]
        values = log[metric]
        axes.plot(values.index, values, ".-", ms=4, color=figures.BLUE)
        axes.axvspan(0, 30, color=figures.GREY, alpha=0.15, lw=0)
        words.append(f"{name} {metric} {values.iloc[0]:.2g} to {values.iloc[-1]:.2g}")
        if metric == "kl":
            axes.set_yscale("log", nonpositive="mask")
            axes.set(ylim=(1e-6, 100), yticks=[1e-6, 1e-4, 1e-2, 1, 100])
        if metric == "completions/mean_length":
            figures.from_zero(axes, room=0.1)
        if metric == "completions/mean_length" and limits[row] is not None:
            axes.axhline(limits[row], color="black", ls="--", lw=1)
            axes.set_ylim(0, 1.1 * limits[row])
            words.append(f"limit {limits[row]}")
    grid[3 * row].set_ylabel(name, rotation=0, ha="right", va="center")
    grid[3 * row].yaxis.set_label_coords(-0.25, 0.5)
titles = ["mean reward", "KL as it was logged", "mean length, tokens"]
for column, title in enumerate(titles):
    grid[column].set_title(title, fontsize=10)
    grid[15 + column].set_xlabel("optimizer step")
figure.suptitle("Six runs: which would you stop, and why?")
figures.show(figure, f"Reward, KL and length of six runs: {'; '.join(words)}.")

# %% [markdown]
# <details><summary>What the last run logs as its KL</summary>
#
# The first five runs log the KL in nats per token. The program of the last run logs its KL penalty: a coefficient
# (0.001 by default) times the *sum* over a completion's tokens. With completions of 1,000 tokens this is about the KL
# per token, and with shorter ones it is less.
#
# </details>
#
# What could you have known after 30 steps? The cell prints the mean reward of the ten steps that end at steps 10, 30,
# 60 and 100, and of the last ten:

# %%
print(f"{'':16}", *(f"{step:>6}" for step in (10, 30, 60, 100, "last")))
for name, log in gpu_runs.items():
    rewards = [log["reward"][step] for step in (10, 30, 60, 100)]
    rewards.append(log["reward"].iloc[-1])
    print(f"{name:16}", *(f"{reward:6.2f}" for reward in rewards))

# %% [markdown]
# Three of the runs learn. `gemma3_1b` earns 0.63 at step 30 and 0.62 at step 60. Whoever stops it there stops a healthy
# run: at step 100 it earns 1.38. `qwen25_3b` earns next to nothing at step 30, and ends at 1.54. `llama32_3b` rises
# early, then stays level for about a hundred steps, and only then climbs to 7.5. Thirty flat steps mean little, and a
# level stretch after a rise means little too. At step 100 these three runs are clearly above their start. So we call a
# reward flat only if it has not risen within about 100 steps. (Three runs are few: this is a rule of thumb.)
#
# Other curves show a disease sooner. In the three runs that learn, the KL starts at 0 and ends between 0.03 and 0.11.
# What is wrong with the other three? Exercise 05.5 asks you to find out. Two of their logs say more than the figure:
# one has the fraction of completions that were cut off, and one has the accuracy on held-out problems.

# %%
cut_off = gpu_runs["llama32_1b_fp8"]["completions/clipped_ratio"].mean()
print(f"llama32_1b_fp8: {cut_off:.0%} of the completions were cut off")
accuracies = gpu_runs["qwen3_0.6b_base"]["heldout/strict"].dropna()
for step, rate in accuracies.items():
    print(f"qwen3_0.6b_base, step {step:3}: {rate:.0%} of the held-out problems right")

# %% [markdown]
# In the first run two of three completions are cut off. The second learns and then breaks: its accuracy rises to 41 %,
# and at step 100 all of it is lost. The mean reward alone would not have told you about the first. So do not wait for
# 100 steps if another curve already shows a disease.

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

# %% tags=["remove-cell"]
import json

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

events = EventAccumulator(str(profile.output / "tensorboard")).Reload()
strict = live.table["heldout/strict"].dropna()
proved = {
    "steps": trainer.state.global_step,
    "finding": findings[0].name,
    "gamed": [float(accuracy.max()), float(accuracy.iloc[-1])],
    "before": float(strict.iloc[0]),
    "after": float(strict.iloc[-1]),
    "stopped_at": stopped.state.global_step,
    "stopped_for": [finding.name for finding in guard.findings],
}
(profile.output / "notebook_05.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == 20
assert (profile.output / "trackio" / "grpo.db").is_file()
assert len(events.Scalars("train/reward")) == 20
if profile.name == "smoke":
    assert not health.findings
    best, last = proved["gamed"]
    assert best > 0.7 and last < 0.4, "the gamed run kept learning"
    assert history["reward"].dropna().iloc[-1] > 0.9, "the reward was not gamed"
    assert findings[0].name == "healthy" and proved["after"] > proved["before"] + 0.2
    assert "rate_too_high" in proved["stopped_for"]
    assert stopped.state.global_step <= 10

# %% [markdown]
# ## Exercises
#
# Write the function, or in 05.3 a prediction, and run the cell, which checks your answer. The table in chapter 00
# counts what you have solved.

# %% [markdown]
# ### Exercise 05.1 · `is_gamed` · medium · 10 minutes
#
# The simplest rule against a gamed reward compares the two ends of a run. Write it, and then see on twelve runs how far
# it can be trusted. Return `True` when the mean reward of the last third of the steps is more than 0.05 above that of
# the first third, while the last held-out accuracy is *not* more than 0.05 above the first. (Round a third of the steps
# down, but use at least one step.)

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
# Apply the rule to the twelve runs. (Until your function is right, the cell takes the course's.) **Which runs will it
# name besides the gamed one?**

# %%
from grpo_workbook.exercises import judge
from grpo_workbook.exercises.ch05 import correct_is_gamed

if judge("05.1", is_gamed).status != "solved":
    is_gamed = correct_is_gamed
for name, change in changes.items():
    log = sick[name].table
    rewards, accuracies = log["reward"].dropna(), log["heldout/strict"].dropna()
    if is_gamed(list(rewards), list(accuracies)):
        print(f"{change}: gamed, says the rule")

# %% [markdown]
# The rule finds the gamed run, and wrongly accuses four others. *Other weights trained* cannot have gamed anything,
# because its policy never changes: by chance alone its mean reward differs by more than 0.05 between the two ends. The
# policies of *rate / 100* and *beta 10* hardly change either. With *unknown end token* no completion ends. This is why
# `diagnose` first asks whether the completions end and the adapters move, why it wants a rise beyond chance (the *t*),
# and why *hacked* comes last.
#
# The margins of the rule are too small, too. The reward of these four runs can reach 3, so `diagnose` asks for a gain
# of at least 15 % of the highest reward. And 0.05 of the accuracy is about three of 64 problems, although a dot is
# uncertain by up to 12 points.

# %% [markdown]
# ### The clinic
#
# Here are six runs, the patients A to F. One of them is healthy. The folded cell loads their logs into `patients`, and
# prints the reward functions of each run with their weights:

# %% tags=["hide-input"]
from grpo_workbook.exercises import CLINIC

patients = {}
for letter, name in CLINIC.items():
    patients[letter] = read_run(LOGS / f"{name}.json")
sheet = {
    "unique texts": ("completions/unique_fraction", 1.0),
    "tokens": ("completions/mean_length", 64),
    "adapter change": ("adapter/change", 0.5),
    "held-out, strict": ("heldout/strict", 1.0),
}
for letter, run in patients.items():
    print(letter, run.settings["reward_weights"])

# %% [markdown]
# In the figure, each row is a patient, and each column shows a metric over the optimizer steps. Look first at the parts
# of the reward, whose lines are named at the bottom (*strict* is the reward `strict_format`). Then look at the columns
# that may explain them. *Unique texts* is the fraction of different texts in a group, and the dots in the last column
# are the measured steps. The runs are of different lengths, from 15 to 30 steps, so a curve that ends early means
# nothing:

# %% tags=["hide-input"]
looks = {
    "correctness": (figures.BLUE, "-"), "lenient": (figures.BLUE, ":"),
    "strict": (figures.ORANGE, "--"), "incremental": (figures.GREEN, "-."),
    "shows_work": ("black", "-"),
}
figure, grid = figures.new_panels(11.5, 10, 30, 5)
grid[0].get_subplotspec().get_gridspec().set_width_ratios([1.7, 1, 1, 1, 1])
words, lines = [], {}
for row, (letter, run) in enumerate(patients.items()):
    axes = grid[5 * row]
    for function in run.functions:
        part = run.table[f"rewards/{function}/mean"].dropna()
        label = function.removesuffix("_reward").removesuffix("_format")
        colour, dash = looks[label]
        (lines[label],) = axes.plot(part, dash, color=colour, lw=2)
        words.append(f"{letter} {label} {part.iloc[0]:.2f} to {part.iloc[-1]:.2f}")
    axes.set(xlim=(-0.5, 30.5), ylim=(-0.04, 1.06))
    axes.set_ylabel(letter, rotation=0, ha="right", va="center", fontsize=13)
    for column, (metric, top) in enumerate(sheet.values(), start=1):
        values = run.table[metric].dropna()
        axes = grid[5 * row + column]
        marker = "o" if len(values) < 8 else ""  # measured rarely
        axes.plot(values, marker=marker, color=figures.BLUE, lw=2, ms=4)
        axes.set(xlim=(-0.5, 30.5), ylim=(-0.04 * top, 1.06 * top))
for column, title in enumerate(["parts of the reward", *sheet]):
    grid[column].set_title(title)
    grid[25 + column].set_xlabel("optimizer step")
figure.legend(lines.values(), lines, ncols=5, loc="outside lower center")
figure.suptitle("Six runs: which is healthy, and what is wrong with the others?")
figures.show(figure, f"Six patients, five small charts each: {'; '.join(words)}.")

# %% [markdown]
# The six panels of one patient also show its gradient, its zero-variance groups and, where it was logged, its KL.
# Change the letter to see another patient:

# %%
LETTER = "E"
figures.show(*run_panels(patients[LETTER], title=f"Patient {LETTER}"))

# %% [markdown]
# ### Exercise 05.2 · `my_diagnosis` · hard · 20 minutes
#
# Return for each letter the name of its finding, from these (their meanings are folded below): `collapsed`,
# `drowned`, `format_ignored`, `frozen`, `hacked`, `healthy`, `kl_too_high`, `no_gradient`, `rate_too_high`,
# `rate_too_low`, `reward_falls`, `reward_flat`, `saturated`, `wrong_answers`. Name a cause, not its effect. Use the two
# figures, the weights and, if you want numbers, `patients["A"].table`; ask `diagnose` only afterwards.
#
# <details><summary>What the names mean</summary>
#
# - `collapsed`: completions of a group are the same text;
# - `drowned`: the larger spread of one reward hides another one;
# - `format_ignored`: correctness rises, the form does not;
# - `frozen`: there is a gradient, but the adapters do not move;
# - `hacked`: the held-out accuracy falls, or stays while the reward rises;
# - `healthy`: the reward rises, groups differ, there is a gradient;
# - `kl_too_high`: the KL grows by 1.7 nats per token or more;
# - `no_gradient`: nearly all groups have zero variance, and the gradient is near 0;
# - `rate_too_high`: the adapters jump, and the reward collapses;
# - `rate_too_low`: the adapters hardly move, and the reward is flat;
# - `reward_falls`: the reward falls, or fell deeply and did not recover;
# - `reward_flat`: the reward is flat;
# - `saturated`: groups have zero variance because all answers are right;
# - `wrong_answers`: the form is learned, but correctness stays near 0.
#
# </details>

# %% tags=["exercise"]
def my_diagnosis(letter: str) -> str:
    raise NotImplementedError


check("05.2", my_diagnosis);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A dict from letter to name is enough. When one text in eight is unique, all eight are the same. In C, D and F some
# part of the reward rises: is it the part that matters, and what is its weight? For E, use the limits of the adapters'
# movement in *Six questions*.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_diagnosis(letter: str) -> str:
#     return {
#         "A": "healthy", "B": "collapsed", "C": "format_ignored",
#         "D": "hacked", "E": "rate_too_high", "F": "wrong_answers",
#     }[letter]
# ```
#
# The eight texts of B's groups are nearly all the same, because B samples at a temperature of 0.05. Its held-out
# accuracy is far below its reward, because the probe samples at a temperature of 1, at which the policy still varies
# its form.
#
# C's reward for the form has weight 0, so nothing pays for the form. The lenient reward rises. The form drifts up a
# little, but on the held-out problems the strict accuracy stays near 0.2.
#
# E's learning rate was eight times too high, and the KL penalty did not prevent the damage. The mean reward of five
# steps falls from 1.94 to 0.78. The lowest single step earns 0.61, which is 1.33 below the best mean. Far more than
# half of it was lost, and so the limit is 25 %. The adapters move by almost half of their norm. The reward falls and
# the KL grows, but both have this one cause.
#
# F's answer column is shifted by seven rows, so a right answer earns nothing and the correctness stays near 0. The
# held-out problems have their right answers: there the strict accuracy rises from 0.20 to 0.70, because the model
# learns the form and calculates nearly as well as before. If correctness stays near 0 while held-out accuracy rises,
# check the answer column before you blame the model.
#
# </details>

# %% [markdown]
# ### Exercise 05.3 · `cured` · medium · 10 minutes
#
# One more patient has two diseases: its `max_completion_length` is 4 and its `temperature` is 0.05. Its diagnosis is
# `truncated`. The cure below raises the limit to 64. **Predict** the diagnosis after that, then run the cell: it trains
# the cured run for 15 steps (less than a minute) and shows its panels. Then change `cure`, and your prediction, until
# it is healthy. The exercise is solved with your first right prediction; your cure is not checked.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "healthy", "truncated", "collapsed" or "another"
SICK = {"max_completion_length": 4, "temperature": 0.05}
cure = {"max_completion_length": 64}  # this is yours to change


def treat() -> dict:
    """15 steps of the sick run with your cure, its panels and its diagnosis."""
    policy, _ = load_policy(profile)
    watched = watch(functions)
    changes = {**settings, "max_steps": 15, **SICK, **cure}
    args = GRPOConfig(
        output_dir=str(profile.output / "cured"), reward_weights=weights, **changes
    )
    treated = train(policy, watched, args, [HealthCallback(watched, say=print)])
    log = read_run(treated.state.log_history, functions)
    figures.show(*run_panels(log, title=f"After {cure}"))
    rewards = log.table["reward"].dropna()
    unique = log.table["completions/unique_fraction"]
    return {
        "finding": diagnose(log)[0].name,
        "reward": (rewards.head(3).mean(), rewards.tail(3).mean()),
        "unique": unique.tail(5).mean(),
    }


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
# The cut-off answers hid the second disease. Once the answers are whole, the effect of the temperature shows: all eight
# completions of a group are nearly the same text. The reward is high from the first step, because the model's most
# likely answer is mostly right, and it does not rise. With `cure = {"max_completion_length": 64, "temperature": 1.0}`
# predict `"healthy"`.
#
# </details>

# %% [markdown]
# ### Exercise 05.4 · `entropy_spent` · hard · 15 minutes
#
# Write a rule that `diagnose` lacks, and run it on a log of your own: the entropy has fallen, but the reward is still
# low. Return the first step (from 1) at which the mean entropy of the last three steps is below a quarter of that of
# the *first* three steps, while the mean reward of the last three is below 0.8 of `highest`; `None` when there is no
# such step.

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
#         recent_entropy = mean(entropy[step - 3 : step])
#         recent_reward = mean(reward[step - 3 : step])
#         if recent_entropy < 0.25 * start and recent_reward < 0.8 * highest:
#             return step
#     return None
# ```
#
# </details>

# %% [markdown]
# Now apply the rule to your own run. Set `MY_RUN` to the folder of any GRPO run, of this workbook or of a `GRPOTrainer`
# elsewhere, and `HIGHEST` to the highest reward that your functions can give. Without a folder the cell reads this
# chapter's live run. For comparison it also reads three stored logs. The highest reward is 3 in two of them, and 1 for
# the equals signs. (Until your function is right, the cell takes the course's.)

# %%
from grpo_workbook.exercises import judge
from grpo_workbook.exercises.ch05 import correct_entropy_spent

MY_RUN = ""
HIGHEST = 3.0
if judge("05.4", entropy_spent).status != "solved":
    entropy_spent = correct_entropy_spent
mine = live
if MY_RUN:
    mine = read_run(MY_RUN)
    print(as_text(diagnose(mine), mine))
runs = {
    "mine": (mine, HIGHEST), "wrong answers": (patients["F"], 3.0),
    "healthy": (healthy, 3.0), "shows work": (sick["shows_work"], 1.0),
}
for name, (log, highest) in runs.items():
    if "entropy" not in log.table:
        print(f"{name}: no entropy was logged")
        continue
    curve = log.table[["entropy", "reward"]].dropna()
    step = entropy_spent(list(curve["entropy"]), list(curve["reward"]), highest)
    print(f"{name}: entropy spent at step {step}")

# %% [markdown]
# Of these three stored logs, only the run with wrong answers has spent its entropy, at step 13. The rule does not see
# that the run with the equals signs is gamed: no single rule sees every disease.

# %% [markdown]
# ### Exercise 05.5 · `gpu_diagnosis` · medium · 12 minutes
#
# What is wrong with each of the six GPU runs? Return the set of a run's findings, from:
#
# - `healthy`;
# - `truncated`: completions are cut off from the start, and the reward does not rise;
# - `reference_differs`: the KL is already large when hardly anything has been learned, and it stays there;
# - `kl_too_high`: the KL grows by 1.7 nats per token or more;
# - `reward_falls`;
# - `rate_too_low` or `reward_flat`: only if none of the others explains why the reward does not rise.
#
# Two of the runs have two findings. These logs do not show every cause, so name all findings that you see.

# %% tags=["exercise"]
def gpu_diagnosis(run: str) -> set[str]:
    raise NotImplementedError


check("05.5", gpu_diagnosis);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Three runs are healthy: their rewards end far above their start. Of the others, one writes up to its limit from the
# first step to the last, one has a large KL in its first steps, and one begins to learn and breaks after step 60.
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
# - `phi4_14b` writes about 195 of its 200 tokens from first to last, and its reward does not rise. This run did not log
#   how many completions were cut off. The mean length suggests that most of them were cut off before their answer. The
#   KL stays near 0, probably because few completions earn anything. Give the run more tokens. `qwen25_3b` began the
#   same way, but learned to write less.
# - `llama32_1b_fp8` has a KL of 0.6 in its *first* steps, when policy and reference should still agree. With weights in
#   8 bits the two are probably not computed in the same way. No `beta` cures that. In addition, two of three
#   completions are cut off.
# - `qwen3_0.6b_base` learns for 50 steps: its held-out accuracy goes from 16 % to 41 %. Then it breaks, in spite of a
#   KL penalty: the reward is 0 from step 70, the logged KL is above 20 from step 80 (0.08 at first), the length is at
#   its limit from step 90. Stop such a run at the first of these. Both findings are effects. The log does not say why
#   the run broke: neither gradient norm nor adapter change was logged.
#
# </details>

# %% [markdown]
# ## For the curious
#
# ### When is a rise more than chance?
#
# In the folded cell below, `slope_t` fits a straight line through the points, and divides the slope of this line by the
# slope's standard error (how far the slope would typically be off by chance). The quotient is *t*. `first_rise` finds
# the first point at which t passes a bound. How large must this bound be?
#
# - *Few points*: with 4 points, pure noise has a t of 3 or more, up or down, in 10 % of cases. So the bound must depend
#   on the number of points, which Student's distribution takes into account.
# - *Many looks*: you look again after every point, and each look is another chance to be fooled. So the bound must also
#   be strict.

# %% tags=["hide-input"]
import numpy as np
from scipy.stats import t as student


def slope_t(steps, values):
    """The slope of the fitted line in standard errors, for each row of values."""
    x = steps - steps.mean()
    y = values - values.mean(axis=-1, keepdims=True)
    slope = (x * y).sum(axis=-1, keepdims=True) / (x * x).sum()
    variance = ((y - slope * x) ** 2).sum(axis=-1) / (len(x) - 2)
    return slope[..., 0] / np.sqrt(variance / (x * x).sum())


def first_rise(steps, values, least_points, chance):
    """The first step at which t passes its bound (0: never), for each row of values."""
    first = np.zeros(len(values), dtype=int)
    for n in range(least_points, len(steps) + 1):
        bound = student.ppf(1 - chance, n - 2)
        passed = slope_t(steps[:n], values[:, :n]) >= bound
        first = np.where((first == 0) & passed, steps[n - 1], first)
    return first

# %% [markdown]
# How strict? The cell makes 2,000 runs of pure noise, each of 50 points, and counts in how many of them t exceeds the
# bound at least once. *Chance* is the probability of being fooled by a single look:

# %%
noise = np.random.default_rng(0).normal(size=(2000, 50))
for least_points, chance in ((4, 0.05), (8, 0.01), (8, 0.001)):
    fooled = first_rise(np.arange(1, 51), noise, least_points, chance) > 0
    label = f"from {least_points} points on, chance {chance} a look"
    print(f"{label}: {fooled.mean():.1%} of runs of noise pass")

# %% [markdown]
# With at least 8 points and a chance of 0.001 for each look, about one run of noise in a hundred is mistaken for a
# rise. (The points of this noise are independent. Neighbouring steps of a real run may be alike, and then chance passes
# more often.) Now apply this bound to the six runs. It also decides about `llama32_1b_fp8`, which ends above its start,
# but whose reward jumps up and down by more than this:

# %%
for name, log in gpu_runs.items():
    steps = log.index.to_numpy()
    rewards = log["reward"].to_numpy()[np.newaxis, :]
    step = first_rise(steps, rewards, least_points=8, chance=0.001)[0]
    t = slope_t(steps, rewards)[0]
    rise = "no rise"
    if step > 0:
        rise = f"first rise: step {step}"
    print(f"{name:16} t at the end {t:5.1f}   {rise}")

# %% [markdown]
# The test finds a rise in the three runs that learn, and in no other. The logs are means over ten steps and the test
# needs eight points, so here it cannot show a rise before step 80. In a log of single steps it can do so at step 8.
#
# <details><summary>Why diagnose is laxer</summary>
#
# `diagnose` asks for a *t* of 2.5. At 30 steps this is a chance of about 0.01 a look, as in the second line of the
# output about noise. `diagnose` makes its t smaller where neighbouring steps are alike, because such steps are less
# evidence than independent ones.
#
# It can afford to be laxer because it does not take a rise alone as a proof. A rise leads to `hacked` only if the
# reward also gains at least 15 % of its highest value while the held-out accuracy does not rise. `HealthCallback` also
# waits for three checks in a row. The price is that a flat run whose noise passes the bound may be called *healthy*.
#
# </details>
#
# <details><summary>Logs of other tools, alerts, and slow runs</summary>
#
# `read_run` accepts many forms of a log: the folder of a run, a checkpoint, a `trainer_state.json`, a notebook with its
# training table (`read_run("run.ipynb")`), TensorBoard's folder, the exports of W&B or trackio (CSV, JSON), a text with
# printed metrics, or `trainer.state.log_history`. You can add settings that the log lacks, such as `settings={"beta":
# 0.04}`.
#
# A log without `adapter/change` cannot answer the fourth of the six questions. Then go on to the fifth: `frozen` and
# `rate_too_low` show there as `reward_flat`. `diagnose` still names `rate_too_high` if the gradient norm jumps and much
# of the reward is lost for good; otherwise it shows as `reward_falls`.
#
# `trackio show` opens a page with all runs of a project in the browser. `tensorboard --logdir outputs/run/tensorboard`
# shows the same curves. `WANDB_MODE=offline` keeps W&B on this machine. `HealthCallback` can also send each finding to
# a service: with `alert=wandb.alert` to W&B, or with `alert=lambda title, text, level: trackio.alert(title, text,
# trackio.AlertLevel[level])` to trackio. On several GPUs only one process sends it.
#
# If a run is slow, look at `step_time` (seconds) and `time/generation_fraction`, the part of it that is sampling. A
# faster engine (vLLM) speeds up sampling. If memory is short (`memory/fraction`), use smaller batches with more
# accumulation steps. With vLLM look at two more groups of TRL's metrics, `sampling/sampling_logp_difference/*` and
# `sampling/importance_sampling_ratio/*`. They compare the probabilities with which vLLM sampled the tokens and the
# probabilities that the trainer computes for them. The mean difference is about 0.01 nats per token where they agree;
# `diagnose` reports `sampler_differs` from 0.1 on. The ratio of a whole completion is a product over its tokens, so
# with long completions a mean of 0.4 to 0.7 is still normal. `diagnose` reports a mean of 0.3 or less, at which TRL
# drops or hardly counts most completions, and one of 2 or more.
#
# </details>

# %% [markdown]
# ## Summary
#
# Is a run learning, and if not, what is wrong with it?
#
# - A rising reward does not prove that the model improves, because the reward may be gamed. Held-out accuracy shows
#   whether it is.
# - The loss does not show whether a run learns. A loss near 0 is normal when `beta` is 0, because advantages sum to 0
#   and every ratio is 1; what is left comes from completions of different lengths.
# - Watch the reward with its parts, zero-variance groups, entropy, lengths, gradient, adapters and held-out problems.
#   In a single metric many diseases look alike; a second metric tells them apart.
# - To see whether a run can still learn, read `frac_reward_zero_std`, not `reward_std`.
# - On a GPU wait for about 100 steps before you call a reward flat: one of three healthy published runs earned no more
#   at step 60 than at step 30. The KL and the lengths can show a disease sooner.
# - A run is learning if its reward and its held-out accuracy rise together. If they do not, ask the six questions: on
#   other people's runs they named the cause in about half.
# - `HealthCallback` asks these questions while a run trains and can stop it, and `python -m grpo_workbook diagnose`
#   asks them afterwards.
#
# Next: [06 · Code rewards](06_code_rewards.ipynb), where the answers are programs.
