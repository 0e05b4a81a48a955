# %% [markdown]
# # 12 · Which algorithm?
#
# You have a base model, problems, and a check of their answers: should you train with GRPO, imitate good answers, or
# learn from pairs of a better and a worse answer? This chapter answers with a race of 28 methods with eight seeds each
# (41 methods on a second, harder task), and it shows what such a race can and cannot tell you about your own model.
#
# **After this notebook you can** set up a fair race between training methods, read its result with seeds, intervals and
# corrected tests, choose a method by measured numbers, and train with TRL's trainer for it.
#
# **Time:** about 3 minutes on two CPU cores. (The stored run shared its machine and took longer.) You run a small race
# yourself and read the stored results of a large one. Reading takes about 35 minutes, and the optional part "For the
# curious" another 25. **You need** chapters 00 and 01, and from chapter 08 what an interval and a paired test are.

# %% [markdown]
# ## What makes a race fair
#
# Why not look the answer up? Most published comparisons have one run per method. [A controlled
# study](https://arxiv.org/abs/2603.19335) of about 240 runs found that the model's scale was worth about 50 points of
# accuracy and the kind of training about 10. Changes of the loss were worth about 1 point; that number comes from 20
# variants of DPO. Among models with 1.5 billion weights, online reinforcement learning was the best of the study's
# methods; with 7 billion weights the methods came in another order. In the race of this chapter, whose model has less
# than a million weights, imitation leads. So a table that was made with somebody else's model does not answer the
# question for yours.
#
# A race of your own does, if it is fair. The table lists the rules; its last column says whether this chapter's race
# keeps them:
#
# | rule | without it | kept here? |
# | --- | --- | --- |
# | equal numbers of sampled completions | the method that samples more looks better | yes |
# | the same problems, start and token limit | you compare data, not methods | yes |
# | a learning rate tuned for each with equal effort, on other problems | the one you like best gets the best rate | **no**, see below |
# | held-out problems, looked at once | the best of ten checkpoints is partly luck | **not quite**: one method was added after the first look |
# | several seeds, paired | seeds differ by more than most methods | yes, eight |
# | a control that cannot learn | some gains come from anything at all | yes |
# | a corrected test of all differences | of 20 equal methods one is "better" at p < 0.05 | yes |
# | more than one way to measure | the winner may depend on the measure | yes, two |
#
# The learning rates were not tuned equally. GRPO, SFT, REINFORCE and PPO had two tries, and each time the lower rate
# was the better one, so an even lower rate may be better still. GRPO with four updates per batch had three tries, and
# DPO had four; only DPO's best rate lies between two worse ones (a cell below prints all tries). Every other method
# uses a rate that was tuned for one of these six. "GRPO, a third of the rate" was added when the first results were
# known. So a small difference between two methods may come from their learning rates.

# %% [markdown]
# ## Toy: what each method does with the same samples
#
# The model has sampled eight answers to each of two questions, and a right answer earns a reward of 1. The first
# question is hard for the model (2 of 8 answers are right), the second is easy (7 of 8). Every method ends in a
# gradient step on $\sum_i w_i \log \pi(\text{answer}_i)$; the methods differ in the weights $w_i$. Five of them use an
# advantage as the weight of each sampled answer. REINFORCE takes the reward itself, the second one subtracts the mean
# reward of the batch, and RLOO, GRPO and Dr. GRPO compare an answer with its own group:

# %%
import torch

from grpo_workbook import group_advantages, quiet, use_one_thread

quiet()
use_one_thread()  # for a tiny model several threads only wait for each other
right = torch.tensor([[1.0, 0, 0, 1, 0, 0, 0, 0], [1, 1, 1, 0, 1, 1, 1, 1]])
minus_group_mean = right - right.mean(dim=1, keepdim=True)
advantages = {
    "REINFORCE": right,
    "minus the batch's mean": right - right.mean(),
    "RLOO": 8 / 7 * minus_group_mean,
    "GRPO": group_advantages(right.flatten(), 8).view(2, 8),
    "Dr. GRPO": minus_group_mean,
}

# %% [markdown]
# Now write each loss as a function of the answers' log-probabilities. Columns 0 to 7 are the sampled answers. Column 8
# is the answer in the training data, which the model did not sample and only SFT uses. DPO compares how far two answers
# have moved from a reference policy, here the policy itself; `beta` scales the difference.

# %%
from torch.nn.functional import logsigmoid


def advantage_loss(logp, advantages):
    sampled = logp[:, :8]
    return -(advantages * sampled).mean()


def sft_loss(logp):
    return -logp[:, 8].mean()


def rejection_loss(logp):
    sampled = logp[:, :8]
    return -sampled[right == 1].mean()


def dpo_loss(logp, beta=0.1):
    """The first right and the last wrong answer of each group."""
    reference = logp.detach()  # here the policy itself
    moved = logp - reference
    better = moved[:, 0]
    worse = moved[[0, 1], [7, 3]]
    return -logsigmoid(beta * (better - worse)).mean()

# %% [markdown]
# Autograd then gives the weights. AdamW cancels a constant factor, so the largest weight of each method is set to 1.

# %%
def weights_of(loss_function, *arguments):
    """The weight of each answer, as the loss's gradient gives it: (2 questions, 9)."""
    logp = torch.zeros(2, 9, requires_grad=True)
    loss = loss_function(logp, *arguments)
    gradient = torch.autograd.grad(loss, logp)[0]
    return -gradient / gradient.abs().max() + 0.0  # + 0.0: no -0.0


weights = {
    "SFT": weights_of(sft_loss),
    "rejection sampling": weights_of(rejection_loss),
}
for name, values in advantages.items():
    weights[name] = weights_of(advantage_loss, values)
weights["DPO"] = weights_of(dpo_loss)

# %% [markdown]
# How do the weights differ?

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.5, 4.6, 8, 4)
descriptions = []
for axes, (name, values) in zip(panels, weights.items()):
    for group in (0, 1):
        for answer in range(9):
            place = 10 * group + answer
            mark = "+" if right[group, min(answer, 7)] else "–"
            if answer == 8:  # the answer of the data, a little apart
                place, mark = place + 0.8, "D"
            value = float(values[group, answer])
            colour = figures.BLUE if value > 0 else figures.ORANGE
            axes.bar(place, value, 0.85, color=colour)
            axes.text(place, -1.32, mark, ha="center", fontsize=7)
    axes.axhline(0, color="black", lw=0.7)
    axes.set(xticks=[4, 14], xticklabels=["hard", "easy"], ylim=(-1.4, 1.1))
    axes.set_title(name, fontsize=10)
    hard, easy = values.tolist()
    descriptions.append(
        f"{name}: hard right {hard[0]:.2f}, hard wrong {hard[7]:.2f}, easy right "
        f"{easy[0]:.2f}, easy wrong {easy[3]:.2f}, data {hard[8]:.2f}"
    )
figure.suptitle("Weight of each answer: + right, – wrong, D from the data")
words = "; ".join(descriptions)
figures.show(figure, f"Bars of the weights of two groups of 8 answers. {words}.")

# %% [markdown]
# Each bar is the weight of one answer: a blue bar makes the answer more likely, an orange bar less likely. The sign
# below a bar marks a right answer (+), a wrong one (–), or the answer of the data (D).
#
# - **SFT** imitates an answer that the model might never have written. It needs such answers.
# - **Rejection sampling** samples answers, keeps the right ones and imitates them. **REINFORCE** has the same weights
#   here: with rewards of 0 and 1, both are one method as long as the samples are fresh. In both, the easy question gets
#   most of the weight, because it has more right answers.
# - With the **batch's mean** as baseline, the answers to the easy question are mostly reinforced and those to the hard
#   question mostly penalised. The mean of the group compares each answer with the other answers *to the same question*.
# - **RLOO** and **Dr. GRPO** differ by the factor 8/7 (exercise 12.1), which AdamW cancels. **GRPO** also divides by
#   the group's standard deviation, so it enlarges the advantages in groups whose rewards differ least.
# - **DPO** learns from one pair of each group and leaves the other six answers unused.
#
# Now take a step of the same length in each of these directions. The policy has one logit per question, which sets the
# probability $p$ of a right answer. The derivative of $\log \pi$ is $1 - p$ for a right answer and $-p$ for a wrong
# one:

# %%
p = torch.tensor([0.25, 0.875])
slope = right - p[:, None]  # (2 questions, 8 answers)
print(f"{'before':24} hard {p[0]:.3f}   easy {p[1]:.3f}")
for name, values in weights.items():
    from_samples = (values[:, :8] * slope).sum(dim=1)
    from_data = values[:, 8] * (1 - p)
    push = from_samples + from_data
    step = 0.5 * push / push.norm()
    after = (p.logit() + step).sigmoid()
    print(f"{name:24} hard {after[0]:.3f}   easy {after[1]:.3f}")

# %% [markdown]
# Rejection sampling, REINFORCE, the batch's mean, RLOO and Dr. GRPO have three different sets of weights, and they take
# **the same** step. The reason is that each answer was sampled exactly as often as its probability says, and then a
# baseline does not change the mean gradient; it only reduces noise (chapter 01). SFT helps the hard question more, GRPO
# and DPO the easy one. So in a race, the methods can differ in their noise, in how fresh their samples are, and in what
# they need: training answers, a critic, or more samples.

# %% [markdown]
# ### Exercise 12.1 · `rloo_advantages` · easy · 8 minutes
#
# In RLOO, the advantage of an answer is its reward minus the mean reward of the *other* answers in its group. `rewards`
# holds one group after the other. Compare your advantages with the reward minus the mean of the whole group: by which
# factor do they differ?

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def rloo_advantages(rewards: list[float], group_size: int) -> list[float]:
    raise NotImplementedError


check("12.1", rloo_advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The sum of the other rewards is the group's sum minus the reward itself. How many other rewards are there?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def rloo_advantages(rewards: list[float], group_size: int) -> list[float]:
#     advantages = []
#     for start in range(0, len(rewards), group_size):
#         group = rewards[start : start + group_size]
#         for reward in group:
#             mean_of_others = (sum(group) - reward) / (group_size - 1)
#             advantages.append(reward - mean_of_others)
#     return advantages
# ```
#
# The factor is n / (n - 1): 2 in a group of two, 8/7 in a group of eight.
#
# </details>

# %% [markdown]
# ## Distillation: a grade for every token
#
# All methods above learn from one number per answer. **On-policy distillation** ([Agarwal et al.
# 2024](https://arxiv.org/abs/2306.13649)) learns from a second model, the *teacher*, which is better and reads the same
# tokens. The student samples an answer, and at every token of it the teacher says how likely it finds each token of the
# vocabulary. The student then moves its own distribution towards the teacher's. The loss is the **reverse KL
# divergence**, $\sum_t \pi(t)\,(\log \pi(t) - \log q(t))$ for the student $\pi$ and the teacher $q$. It is called
# reverse because the average is taken over the student's tokens, not over the teacher's. No reward is needed.
#
# If the teacher can only tell the probability of the token that was sampled, as most servers do, the student treats
# $\log q(t) - \log \pi(t)$ as the token's advantage. Here both forms grade one token. The student has five options and
# prefers A, the teacher prefers B:

# %%
student_logits = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0], requires_grad=True)
teacher = torch.tensor([0.05, 0.70, 0.15, 0.05, 0.05]).log()
student = student_logits.log_softmax(0)
reverse_kl = (student.exp() * (student - teacher)).sum()
whole = -torch.autograd.grad(reverse_kl, student_logits, retain_graph=True)[0]

torch.manual_seed(0)
estimates = []
for _ in range(1000):  # 1,000 times: one sampled token
    token = torch.multinomial(student.exp(), 1).item()
    advantage = (teacher[token] - student[token]).detach()
    loss = -advantage * student[token]
    push = -torch.autograd.grad(loss, student_logits, retain_graph=True)[0]
    estimates.append(push)
estimates = torch.stack(estimates)

print(f"{'token':34} " + " ".join(f"{name:>6}" for name in "ABCDE"))
for label, values in {
    "the student's probability": student.exp(),
    "the teacher's probability": teacher.exp(),
    "push, whole vocabulary": whole,
    "push, sampled token: mean": estimates.mean(dim=0),
    "push, sampled token: deviation": estimates.std(dim=0),
}.items():
    print(f"{label:34} " + " ".join(f"{value:6.2f}" for value in values))

# %% [markdown]
# A positive push makes a token more likely. Both forms push B up most and A down, and their means agree. But the push of
# a single sampled token varies a lot: its standard deviation is 0.44 for A and 0.33 for B, more than half of the push
# itself. With the whole vocabulary this noise is gone. What distillation needs instead is a teacher. The stored race
# below does not contain distillation; at the end of the chapter you run TRL's trainer for it.

# %% [markdown]
# ## The race
#
# `benchmarks/race.py` trains the course's tiny models by every method, with 8 seeds:
#
# - **main** asks word problems. Each run uses 1,024 completions, and an answer counts if it is strictly right, that is,
#   if it is the right number in the requested form. The model is *tiny-form*, which can solve these problems and was
#   trained, on purpose, to write its answers in messy forms ([its card](../data/tiny-form/README.md)). So this part of
#   the race shows how fast each method teaches a form, more than how well it teaches a skill.
# - **steps** asks for sums of long numbers. Each run uses 1,536 completions. The model can add column by column, but
#   usually it does not.
#
# All methods are trained by the same loop, with all weights in float32 and 64 completions per update. For SFT, a
# training answer counts as a completion. Accuracy is measured in two ways, which can disagree:
#
# - **greedy**: the model takes the most likely token each time. This measures whether its best guess is right.
# - **sampled**: the model draws each token at temperature 1. This measures how often a random answer is right. If a
#   policy becomes more certain, this accuracy rises even if its best guesses stay the same.
#
# `benchmarks/race_results/README.md` has all rules and learning rates. Make your guess before you look at the result:

# %% [markdown]
# ### Exercise 12.2 · `my_order` · medium · 8 minutes
#
# Order these six by held-out accuracy (sampled) on *main*, from best to worst:
#
# - `"base"`: not trained.
# - `"sft"`: imitates 1,024 training answers.
# - `"grpo"`: 16 updates, each on 64 fresh completions.
# - `"clip-higher, one update"`: `"grpo"` with an upper clip of 0.28 instead of 0.2, and like it one update per batch.
# - `"rejection"`: samples 1,024 completions from the base and imitates those with the full reward, in 16 updates.
# - `"random of 8"`: the same, but it imitates one completion of each eight, chosen at random.
#
# The check compares your order with the stored runs. If the mean paired difference of two methods is below two standard
# errors, both orders are accepted.

# %% tags=["exercise"]
def my_order() -> list[str]:
    raise NotImplementedError


check("12.2", my_order);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which of the six use a check of the answers? Which one uses better answers than the model's own? And what is the ratio
# in the first update on a batch?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_order() -> list[str]:
#     return ["sft", "rejection", "grpo", "clip-higher, one update", "base", "random of 8"]
# ```
#
# </details>

# %% [markdown]
# ## The result
#
# Each stored run is one line of JSON with its method, seed and settings, its measurements at the end, and its accuracy
# on the way.

# %%
import pandas as pd

from grpo_workbook import files

pd.set_option("display.width", 120)
STORED = files.REPO / "benchmarks" / "race_results"


def read_race(path):
    """One row per run, with the measurements at its end as columns."""
    rows = pd.read_json(path, lines=True)
    rows = rows.drop_duplicates(["method", "seed"], keep="last")
    measured = pd.DataFrame(list(rows["end"]), index=rows.index)
    return rows.join(measured)


race = {}
for task in ("main", "steps"):
    rows = read_race(STORED / f"{task}.jsonl")
    race[task] = rows
    seeds = rows.groupby("method")["seed"].nunique()
    print(f"{task:5} {len(rows)} runs, {len(seeds) - 1} methods and the base, "
          f"{seeds.min()} seeds each")

# %% [markdown]
# These are the tries with which the learning rates were chosen, on other problems and with another seed: accuracy
# (sampled) after 512 completions. A NaN is a rate that was not tried:

# %%
tries = read_race(STORED / "dev-main.jsonl")
names = tries["method"].str.rsplit(", rate ", n=1)
tries["method"] = names.str[0]
tries["rate"] = names.str[1].astype(float)
by_rate = tries.pivot(index="method", columns="rate", values="sampled")
(100 * by_rate[by_rate.columns[::-1]]).round(1)

# %% [markdown]
# Now the results. The table shows means over the seeds. *pass@8* is the fraction of problems with at least one right
# answer among eight samples, *entropy* the policy's mean entropy per token (0 if it is always certain of its next
# token), and *tokens* the mean length of a completion. The last two columns give the completions and the seconds at the
# first measurement of 80 % or more (sampled); they are empty (NaN) if a seed of the method never got there. On the way,
# the accuracy was measured about every 256 completions, so these numbers are coarse.

# %%
def reached(curve, goal=0.8):
    """(completions, seconds) at the first measurement that reaches the goal."""
    for completions, seconds, rate in curve:
        if rate >= goal:
            return completions, seconds
    return float("nan"), float("nan")


def overview(rows):
    """A row per method, the best one first."""
    table = pd.DataFrame()
    table["sampled %"] = 100 * rows["sampled"]
    table["greedy %"] = 100 * rows["greedy"]
    table["pass@8 %"] = 100 * rows["pass8"]
    table["entropy"] = rows["entropy"]
    table["tokens"] = rows["tokens"]
    table["80 % at"] = [reached(curve)[0] for curve in rows["curve"]]
    table["80 % after s"] = [reached(curve)[1] for curve in rows["curve"]]
    by_method = table.groupby(rows["method"])
    means = by_method.agg(lambda values: values.mean(skipna=False))
    means = means.sort_values("sampled %", ascending=False)
    return means.round(1).assign(entropy=means["entropy"].round(2))


overview(race["main"])

# %% [markdown]
# The names that need an explanation: *best of 8* imitates the best completion of each group, right or wrong.
# *reinforce, baseline* subtracts the batch's mean. *token-level loss* is the loss of DAPO without its other changes,
# and *overlong penalty* is DAPO's penalty for completions that reach the last fifth of the allowed length. *dapo* has
# both of these, dynamic sampling, and an upper clip of 0.28. *sapo* replaces the clip of the ratio by a smooth
# function. *4 rounds* means that a method samples a quarter of its completions, learns from them, and samples the next
# quarter with the new policy. *sft then grpo* spends its first 256 completions on training answers. Chapter 01 explains
# GSPO, CISPO and BNPO.
#
# Completions are not the only cost. PPO also trains a critic, and four updates per batch need four backward passes. The
# seconds count processor time of training on a shared machine, so take only a factor of two or more seriously.
#
# ### Over completions
#
# How fast does each method learn? This cell collects the accuracy on the way for six methods.

# %%
base_rows = race["main"].query("method == 'base'")
base_sampled = base_rows["sampled"].mean()
base_greedy = base_rows["greedy"].mean()


def curve_of(rows, method):
    """Mean, lowest and highest accuracy in percent over completions, from the base."""
    points = []
    for curve in rows[rows["method"] == method]["curve"]:
        points.extend(curve)
    table = pd.DataFrame(points, columns=["completions", "seconds", "rate"])
    rates = table.groupby("completions")["rate"].agg(["mean", "min", "max"])
    rates.loc[0] = base_sampled
    return 100 * rates.sort_index()


curves = {}
drawn = ["sft", "rejection", "rejection, 4 rounds", "grpo", "ppo", "dpo, 4 rounds"]
for method in drawn:
    curves[method] = curve_of(race["main"], method)

# %% [markdown]
# Draw the six curves:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 3.8, 2, 2)
finals = {}
for i, (name, curve) in enumerate(curves.items()):
    axes = panels[i // 3]
    colour, dash, marker = figures.STYLES[i]
    dash = "--" if len(curve) == 2 else "-"
    places = curve.index + 12 * (i % 3 - 1)
    axes.plot(places, curve["mean"], dash, color=colour, marker=marker, label=name)
    axes.vlines(places, curve["min"], curve["max"], color=colour, lw=1)
    finals[name] = curve["mean"].iloc[-1]
for axes, title in zip(panels, ("Imitation", "GRPO, PPO and pairs")):
    axes.set(xlabel="completions sampled", ylim=(0, 100), title=title)
    axes.legend(frameon=False, loc="lower right")
panels[0].set_ylabel("held-out accuracy (sampled), %")
figure.suptitle("Most of the gain comes early")
ends = "; ".join(f"{name} {final:.0f}" for name, final in finals.items())
figures.show(
    figure,
    "Two line charts of accuracy over completions, from "
    f"{100 * base_sampled:.0f} percent. At the end, in percent: {ends}.",
)

# %% [markdown]
# The horizontal axis counts sampled completions, and the vertical axis shows held-out accuracy (sampled). A marker is
# the mean over the seeds, and the thin line through it goes from the worst seed to the best one; the markers are moved
# a little to the side so that you can tell them apart. A dashed line belongs to a method that learns only after all its
# samples are there, so it was not measured on the way. GRPO and PPO gain most in the first half of their completions.
#
# ### Is the difference real?
#
# Part of a run's luck comes from its seed: seed 3 of every method sees the same problems in the same order. So the
# chapter compares methods *within* each seed. It takes the difference for each seed, then the mean of these
# differences, its interval, and a t-test against 0. (With eight values, a 95 % bootstrap interval as in chapter 08
# would be too narrow ([measurements](../docs/measurements.md)).)
#
# Each method is compared with its *rival*, the method that differs from it in one thing:
#
# - The rival of a method with four updates per batch is GRPO with four updates.
# - The mechanisms at the end of this chapter build on the token-level loss, which is their rival. The rival of a
#   corrected sampler is the uncorrected one.
# - The rival of every other method is GRPO.

# %%
MANY = "grpo, 4 updates"
MECHANISMS = [
    "entropy bonus", "top-entropy tokens", "stale sampler", "stale sampler, corrected",
    "4-bit sampler", "4-bit sampler, corrected",
]


def rival(method):
    """What a method is compared with."""
    if method.endswith(", corrected"):
        return method.removesuffix(", corrected")
    if method in MECHANISMS:
        return "token-level loss"
    if "4 updates" in method and method != MANY:
        return MANY
    return "grpo"


def paired_gaps(task, method, measure):
    """Points above the rival, seed by seed."""
    by_seed = race[task].pivot(index="seed", columns="method", values=measure)
    gaps = 100 * (by_seed[method] - by_seed[rival(method)])
    return gaps.dropna()

# %% [markdown]
# Even if no method differed from its rival, one test in twenty would give p < 0.05 by luck. **Holm's correction** takes
# all p-values of a task together. It multiplies the smallest p-value by their number m, the next one by m - 1, and so
# on; and no corrected p may be smaller than the one before it. Then the risk that even one of the differences with a
# corrected p below 0.05 is due to luck is at most 5 %. The correction is made for each measure separately.

# %%
from scipy.stats import ttest_1samp


def holm(p_values):
    """Holm's corrected p-values, of a Series."""
    ordered = p_values.sort_values()
    factors = list(range(len(ordered), 0, -1))
    return (ordered * factors).cummax().clip(upper=1)


def compare_all(task, measure):
    """A row per method: seeds, mean gap in points, its interval, the corrected p."""
    rows = {}
    for method in sorted(set(race[task]["method"]) - {"grpo", "base"}):
        gaps = paired_gaps(task, method, measure)
        test = ttest_1samp(gaps, 0)
        low, high = test.confidence_interval()
        rows[method] = {
            "seeds": len(gaps), "gap": gaps.mean(), "low": low, "high": high,
            "p": test.pvalue,
        }
    table = pd.DataFrame.from_dict(rows, orient="index")
    table["p"] = holm(table["p"])
    return table

# %% [markdown]
# The two measures can disagree, so they need a joint verdict:
#
# - **better** or **worse**: the corrected tests of sampled *and* greedy accuracy both show it.
# - **sharper** or **less sharp**: only the test of *sampled* accuracy shows a difference. We call this sharper, because
#   a policy that is more certain of its answers gains in this way. A difference of the best guesses may exist, but it
#   is not shown.
# - **not shown**: everything else. This does not prove that there is no difference.

# %%
def result(row):
    """What the corrected test of one measure says."""
    if not row["p"] < 0.05:
        return "not shown"
    return "better" if row["gap"] > 0 else "worse"


def verdict(sampled, greedy):
    """What both measures say together."""
    if result(sampled) == result(greedy):
        return result(sampled)
    words = {"better": "sharper", "worse": "less sharp", "not shown": "not shown"}
    return words[result(sampled)]


tables, verdicts = {}, {}
for task in race:
    for measure in ("sampled", "greedy", "pass8"):
        tables[task, measure] = compare_all(task, measure)
    sampled, greedy = tables[task, "sampled"], tables[task, "greedy"]
    for method in sampled.index:
        verdicts[task, method] = verdict(sampled.loc[method], greedy.loc[method])
words = pd.Series(verdicts)
for task in race:
    for word in ("better", "sharper", "less sharp", "worse"):
        chosen = words[task].index[words[task] == word]
        print(f"{task}, {word}: {'; '.join(chosen) or 'none'}")

# %% [markdown]
# Every method that is not listed is *not shown*. A *forest plot* shows all differences at once. This cell draws the
# marks of one measure. A mark is hollow if its interval leaves out 0 but the corrected test does not confirm this:

# %% tags=["hide-input"]
LOOKS = {
    "sampled": (0.17, "o", figures.BLUE),
    "greedy": (-0.17, "s", figures.ORANGE),
}


def draw_gaps(axes, table, measure, lowest):
    """Draw the differences of one measure; returns which marks are hollow."""
    shift, marker, colour = LOOKS[measure]
    places = pd.Series(range(len(table)), index=table.index) + shift
    ends = table[["gap", "low", "high"]].clip(lower=lowest)
    axes.hlines(places, ends["low"], ends["high"], color=colour, lw=1.5)
    axes.plot(ends["gap"], places, marker, color=colour, ms=4, label=measure)
    leaves_out_0 = (table["low"] > 0) | (table["high"] < 0)
    hollow = leaves_out_0 & ~(table["p"] < 0.05)
    axes.plot(
        ends["gap"][hollow], places[hollow], marker, color=colour, ms=4,
        markerfacecolor="white",
    )
    return hollow

# %% [markdown]
# The next cell puts both measures and the verdicts into one figure:

# %% tags=["hide-input"]
def forest(task, methods, title, lowest):
    """Draw the paired differences; those below `lowest` stand at the edge."""
    order = tables[task, "sampled"].loc[methods].sort_values("gap").index
    figure, (axes,) = figures.new_panels(8.5, 1.2 + 0.27 * len(order))
    marks = {method: [] for method in order}
    for measure in LOOKS:
        table = tables[task, measure].loc[order]
        hollow = draw_gaps(axes, table, measure, lowest)
        for method, gap in table["gap"].items():
            mark = f"{measure} {gap:+.1f}"
            if hollow[method]:
                mark += " (hollow)"
            marks[method].append(mark)
    axes.plot([], [], "o", color=figures.GREY, markerfacecolor="white", ms=4,
              label="hollow: interval leaves out 0, corrected test does not confirm")
    axes.axvline(0, color="black", lw=0.8)
    axes.set_yticks(range(len(order)), order, fontsize=8)
    axes.set(xlabel="points above its rival, with interval", title=title)
    axes.set_ylim(-0.7, len(order) - 0.3)
    edge = axes.get_xlim()[1] + 1
    lines = []
    for y, method in enumerate(order):
        word = verdicts[task, method]
        axes.text(edge, y, word, va="center", fontsize=8)
        lines.append(f"{method}: {', '.join(marks[method])}, {word}")
    figure.legend(frameon=False, loc="outside lower center", ncols=3)
    figures.show(figure, f"Forest plot of differences in points. {'; '.join(lines)}.")

# %% [markdown]
# First the main task:

# %% tags=["hide-input"]
forest(
    "main", tables["main", "sampled"].index,
    "main: imitating right answers is better than GRPO", lowest=-40,
)

# %% [markdown]
# Each row is a method. A mark is its mean difference from its rival in points, and the line through it is the 95 %
# interval; circles are sampled accuracy, squares greedy accuracy. What would lie further to the left is drawn at the
# left edge. The word at the right is the joint verdict.
#
# An interval looks at one difference alone. The corrected test takes all methods into account. So an interval can leave
# out 0 although the corrected test of the same measure does not confirm the difference. In that case the mark is
# **hollow**, as for "grpo, 4 updates". Do not read a hollow mark as a result. If a filled mark's interval leaves out 0,
# the corrected test of its measure does confirm the difference.
#
# Where the verdict is "not shown", a true difference of a point or two may stay hidden, because eight seeds have this
# much noise. In that case take the simpler method. Now the harder task, drawn in the same way. First the methods:

# %% tags=["hide-input"]
EXPLAINED_LATER = [
    *MECHANISMS, "base without steps", "random reward", "format reward",
    "length price 0.1", "length price 0.5", "length price 1.5",
]
methods = tables["steps", "sampled"].index.difference(EXPLAINED_LATER)
forest("steps", methods, "steps: no method is shown to be better", lowest=-70)

# %% [markdown]
# The harder task also has rows for samplers, entropy, prices and controls, which are explained in the part "For the
# curious":

# %% tags=["hide-input"]
forest("steps", EXPLAINED_LATER, "steps: the controls are worse", lowest=-70)

# %% [markdown]
# What can be said of the two tasks? `describe` prints a method's differences from its rival, with their 95 % intervals, in how
# many seeds the method is ahead, and the verdict:

# %%
def describe(task, method):
    """The differences of one method from its rival, and the verdict."""
    parts = []
    for measure in ("sampled", "greedy", "pass8"):
        row = tables[task, measure].loc[method]
        gaps = paired_gaps(task, method, measure)
        interval = f"[{row['low']:+.1f}, {row['high']:+.1f}]"
        ahead = f"ahead in {(gaps > 0).sum()} of {len(gaps)} seeds"
        parts.append(f"{measure} {row['gap']:+.1f} {interval}, {ahead}")
    lines = [f"{task}: {method} - {rival(method)}: {verdicts[task, method]}"]
    return "\n    ".join([*lines, *parts])


for method in ("sft", "rejection", "best of 8", "dpo, 4 rounds"):
    print(describe("main", method))
for method in ("grpo, 4 updates", "random of 8"):
    print(describe("steps", method))
for measure in ("sampled", "greedy"):
    corrected = tables["steps", measure].loc["random of 8", "p"]
    print(f"    corrected p of random of 8, {measure}: {corrected:.3f}")

# %% [markdown]
# On *main* two methods are **better** than GRPO. SFT on the data's answers is 9.5 points better when sampled and 4.2
# points better when decoded greedily. Rejection sampling, which imitates the model's own right answers, is 6.8 and 3.1
# points better. Rejection sampling in four rounds and SFT followed by GRPO are **sharper**: their differences are
# similar, but only the test of the sampled measure confirms them. So *better* and *sharper* can lie close together:
# rejection sampling in one round and in four differ by 0.1 points (greedy). DPO on pairs that were sampled once is
# **worse**, and so is imitating a random one of eight answers, without any check.
#
# Two methods are **less sharp** than GRPO. "Best of 8" is 10.7 points below GRPO when sampled, and 3.0 points above it
# when decoded greedily, in each of the eight seeds. DPO in four rounds is 8.0 points below GRPO and 1.1 points above
# it. On average, the best guesses of these two methods are right more often than GRPO's, but the corrected test does
# not confirm this. Their policies are less certain: in the table above, their entropy is about twice as high. Which
# method is better depends on how you will decode.
#
# No variant of GRPO's loss is shown to be better or worse than GRPO with as many updates per batch.
#
# On *steps*, GRPO's own seeds differ so much that even a lead of 29 points over it ("grpo, 4 updates") is not shown.
# Only the controls and the prices on length are worse. (Imitating a random one of eight answers looks as bad, but only
# the greedy test confirms it, with a corrected p of 0.032; the sampled test has 0.087.) So look at the mean, the worst
# and the best seed of some methods:

# %%
compared = [
    "grpo", "group of 4", "grpo, a third of the rate", "grpo, 4 updates",
    "gspo, 4 updates", "rejection", "sft", "random of 8",
]
by_method = race["steps"].groupby("method")
columns = {}
for measure in ("sampled", "greedy"):
    for statistic in ("mean", "min", "max"):
        values = getattr(by_method[measure], statistic)()
        columns[f"{measure} %, {statistic}"] = 100 * values.loc[compared]
pd.DataFrame(columns).round(0).astype(int)

# %% [markdown]
# These numbers point to the size of the step rather than to the loss. With one update per batch and a learning rate of
# 3e-4, GRPO goes wrong in some seeds; with 1e-4 (the rate of both "a third of the rate" and "4 updates") it goes wrong
# in none. "A third of the rate" has learned the task, as its greedy accuracy shows, but it has not become certain of
# its answers.
#
# GSPO and GRPO, both with four updates, are a case in which the measures disagree:

# %%
print(describe("steps", "gspo, 4 updates"))
corrected = tables["steps", "greedy"].loc["gspo, 4 updates", "p"]
print(f"corrected p of the greedy difference: {corrected:.2f}")

# %% [markdown]
# GSPO is 7.4 points lower when sampled, in all eight seeds. Decoded greedily it is 2.5 points higher, in seven of eight
# seeds, and its pass@8 is 1.8 points higher. So it is less sharp, and these runs do not show which of the two is
# better.
#
# The order of all these methods also depends on the setting: one tiny model, two short tasks, and the learning rates
# described above.
#
# ### Does it only sharpen?
#
# A method may make right answers more likely without solving any problem that the base cannot solve in eight attempts
# (chapter 08). Compare accuracy, pass@8 and entropy of all methods of *main*:

# %% tags=["hide-input"]
ends = race["main"].groupby("method")[["sampled", "pass8", "entropy"]].mean()
ends[["sampled", "pass8"]] *= 100
figure, panels = figures.new_panels(9.0, 3.6, 2, 2)
named = {
    "base": (6, -9), "sft": (0, -14), "grpo": (-62, -10), "dpo": (6, -9),
    "dpo, 4 rounds": (-60, 12), "random of 8": (6, -3),
}  # where the names stand
for axes, column in zip(panels, ("pass8", "entropy")):
    axes.plot(ends["sampled"], ends[column], "o", color=figures.GREY, ms=5)
    for name, place in named.items():
        dot = (ends.loc[name, "sampled"], ends.loc[name, column])
        axes.plot(*dot, "o", color=figures.ORANGE, ms=5)
        axes.annotate(name, dot, place, textcoords="offset points", fontsize=8,
                      arrowprops={"arrowstyle": "-", "lw": 0.5, "shrinkB": 3})
    axes.set(xlabel="single completions right (sampled), %")
panels[0].set(ylabel="pass@8, %", title="More right in eight attempts, too")
panels[1].set(ylabel="entropy per token", title="The better, the more certain")
panels[1].set_ylim(0, None)
lines = []
for name in named:
    single, eight, entropy = ends.loc[name]
    lines.append(f"{name} {single:.0f}, {eight:.0f}, {entropy:.2f}")
words = "Two scatter charts of methods: pass@8 and entropy over single accuracy."
figures.show(figure, f"{words} Accuracy, pass@8, entropy: {'; '.join(lines)}.")
gain = ends.loc["grpo", "pass8"] - ends.loc["base", "pass8"]
print(f"GRPO adds {gain:+.1f} points of pass@8 to {ends.loc['base', 'pass8']:.1f} %")

# %% [markdown]
# Each dot is a method of *main*; some are orange and carry their names. The horizontal axis is the percentage of single
# completions that are right. The vertical axis is pass@8 on the left and the entropy per token on the right.
#
# Every method that learns also raises pass@8. This is no proof of new skills, because an answer outside its tags counts
# as wrong here. In chapter 13 ("Diversity") answers in any form count, and the base itself solves 99.5 % of the
# problems in eight attempts. The right panel shows that the methods with the lowest entropy have the highest sampled
# accuracy. A policy that is nearly sure of its best guess seldom samples another one. If the best guess is right, low
# entropy therefore raises sampled accuracy.

# %% [markdown]
# ## A slice of it, live
#
# Now race three methods with two seeds and half of the completions, which takes about two minutes on two cores. The
# command prints a line per finished run. If you run the cell twice, finished runs are not made again.

# %%
import subprocess
import sys

from grpo_workbook import choose_profile

profile = choose_profile(default="smoke")
slice_folder = profile.output / "race"
slice_folder.mkdir(parents=True, exist_ok=True)
command = [
    sys.executable, str(files.REPO / "benchmarks" / "race.py"),
    "--tasks", "main", "--methods", "grpo", "rejection", "dpo",
    "--seeds", "0", "1", "--budget", "512", "--points", "2", "--jobs", "2",
    "--folder", str(slice_folder),
]
with open(slice_folder / "errors.txt", "w+") as errors:
    racing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    for line in racing.stdout:
        print(line, end="")
    racing.wait()
    errors.seek(0)
    assert racing.returncode == 0, errors.read()[-2000:]

# %% [markdown]
# In each line, `pass8` and `pass16` are the fractions of problems with at least one right answer among 8 and 16 samples,
# and `steps` is the mean number of lines of work in a completion. The first time is that of training; "in all" includes
# loading and measuring.
#
# Now compare these runs with the stored ones. They are not the stored runs stopped halfway: here the learning rate
# falls to 0 within 512 completions, there within 1,024.

# %%
live = read_race(slice_folder / "main.jsonl")
stored = race["main"]
lines = {}
for method in ("grpo", "rejection", "dpo"):
    for measure in ("sampled", "greedy"):
        here = live[live["method"] == method].set_index("seed")[measure]
        there = stored[stored["method"] == method][measure]
        lines[f"{method}, {measure}"] = {
            "live, 512: seed 0": here.get(0),
            "seed 1": here.get(1),
            "stored, 1,024: mean": there.mean(),
            "lowest": there.min(),
            "highest": there.max(),
        }
(100 * pd.DataFrame.from_dict(lines, orient="index").astype(float)).round(1)

# %% [markdown]
# When sampled, rejection sampling ends a little higher with 1,024 completions than with 512, and GRPO about as high;
# two live seeds are too few to tell. DPO, whose pairs are all sampled before it learns, ends lower by both measures. A
# likely reason: after more updates the policy is far from the policy that wrote the pairs, so the pairs teach it little
# about what it now writes.

# %% [markdown]
# ## The decision table
#
# Every row is computed from the stored runs, and the advice follows from the verdict alone.

# %%
from IPython.display import Markdown, display

ADVICE = {
    "better": "take it", "worse": "leave it", "not shown": "keep the simpler one",
    "sharper": "for sampling", "less sharp": "not for sampling",
}
QUESTIONS = """
You have worked answers: imitate them? | main | sft
Worked answers for a start, then GRPO? | main | sft then grpo
A check: sample once, imitate what is right? | main | rejection
The same on a task that the base hardly solves? | steps | rejection
Imitate the best of a group, right or not? | main | best of 8
Learn from pairs, sampled once? | main | dpo
Pairs, four times fresh? | main | dpo, 4 rounds
A critic? | main | ppo
No standard deviation? | main | dr_grpo
Dynamic sampling? | main | dynamic sampling
A third of the rate? | steps | grpo, a third of the rate
Four updates per batch? | steps | grpo, 4 updates
Four updates: GSPO? | steps | gspo, 4 updates
A reward that knows nothing? | steps | random reward
"""

# %% [markdown]
# The table shows each method's difference from its rival in points, with the 95 % interval, sampled and greedy; the
# last number is the difference of pass@8:

# %%
lines = [
    "| question | task: method - rival | sampled | greedy | pass@8 | verdict |",
    "| :-- | :-- | --: | --: | --: | :-- |",
]
for line in QUESTIONS.strip().splitlines():
    question, task, method = line.split(" | ")
    cells = [question, f"{task}: {method} - {rival(method)}"]
    for measure in ("sampled", "greedy"):
        row = tables[task, measure].loc[method]
        cells.append(f"{row['gap']:+.1f} [{row['low']:+.1f}, {row['high']:+.1f}]")
    in_eight = tables[task, "pass8"].loc[method, "gap"]
    cells.append(f"{in_eight:+.1f}")
    word = verdicts[task, method]
    cells.append(f"{word}: {ADVICE[word]}")
    lines.append("| " + " | ".join(cells) + " |")
display(Markdown("\n".join(lines)))

# %% [markdown]
# What do these runs show by both measures? First, a method must know right from wrong: the controls end far below GRPO.
# Second, on the easy task, imitating right answers is better than GRPO, whether the answers are given (SFT) or the
# model's own (rejection sampling). A likely reason is that the base can already do this task and only misses its form,
# and that right answers are given or easily found. If the model never samples a right answer, no method that samples
# can learn anything.
#
# On the harder task, the means and the worst seeds suggest that the size of a step matters more than the form of the
# loss, but eight seeds do not show it. No detail of the loss, GSPO included, is shown to be better or worse by both
# measures.
#
# Should you then train with GRPO at all? If you have right answers, or if the model already finds many, try imitation
# first, because it is simpler. Otherwise GRPO is a good start, with a step size that you have tuned. Remember how
# narrow this race is: one tiny model, two short tasks, one budget, full weights, and learning rates that were not tuned
# equally. You can reuse its procedure. Race the two or three methods that you consider on your own task, with a budget
# that you can repeat three times, and measure with the decoding that you will use.

# %% [markdown]
# ## The same with TRL
#
# The race uses a loop of its own so that only the method differs. For your own training take TRL's trainers, which
# compute the same losses (a test of this repository compares the numbers of RLOO and DPO). Each of the next cells makes
# only two updates, to show the calls. Unsloth is imported first, because TRL 1.15 needs its patches to sample on a CPU.

# %%
import unsloth

from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, PrinterCallback

from grpo_workbook import config, data, load_problems, parse_rewards, to_dataset

TINY = config.DATA / "tiny-form"
tokenizer = AutoTokenizer.from_pretrained(TINY)
train_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
common = {
    "output_dir": str(profile.output / "trl"), "max_steps": 2, "logging_steps": 1,
    "per_device_train_batch_size": 8, "save_strategy": "no", "report_to": "none",
    "use_cpu": True, "bf16": False, "disable_tqdm": True,
    "gradient_checkpointing": False,
}


def load_tiny_model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")


def train_and_print(trainer, *names):
    """Train, and print these metrics of each step."""
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    for entry in trainer.state.log_history[:-1]:  # the last entry is of the whole run
        metrics = {name: round(entry[name], 4) for name in names}
        print(entry["step"], metrics)

# %% [markdown]
# **SFT** learns from worked answers. Each row has a `prompt` and a `completion`, and only the completion's tokens are
# learned.

# %%
import re

from trl import SFTConfig, SFTTrainer


def message(text):
    return [{"role": "assistant", "content": text}]


def worked_answer(row):
    """The training answer in the form that is asked for."""
    equations = "\n".join(re.findall("<<(.+?)>>", row["solution"]))
    reasoning = f"<reasoning>\n{equations}\n</reasoning>"
    return f"{reasoning}\n<answer>{row['answer']}</answer>"


sft_rows = []
for row in train_rows[:16]:
    completion = message(worked_answer(row))
    sft_rows.append({"prompt": row["prompt"], "completion": completion})
args = SFTConfig(learning_rate=3e-4, **common)
trainer = SFTTrainer(
    load_tiny_model(), args=args, train_dataset=Dataset.from_list(sft_rows),
    processing_class=tokenizer,
)
train_and_print(trainer, "loss", "entropy", "mean_token_accuracy")

# %% [markdown]
# Rejection sampling is the same call with other rows: the model's own completions that earned the full reward. **DPO**
# takes the best and the worst completion of each group. Chapter 01's trainer samples them; a group whose rewards are
# all equal gives no pair:

# %%
from grpo_workbook import ScratchTrainer
from trl import DPOConfig, DPOTrainer

parts = "correctness:2,strict_format:0.5,incremental_format:0.5"
rewards, reward_weights = parse_rewards(parts)
sampler = ScratchTrainer(load_tiny_model(), tokenizer, rewards, reward_weights)
torch.manual_seed(0)
batch = sampler.rollout(train_rows[:8])
scores = sampler.score(train_rows[:8], batch["texts"])
pairs = []
for group, row in enumerate(train_rows[:8]):
    places = range(8 * group, 8 * group + 8)
    best = max(places, key=lambda place: scores[place])
    worst = min(places, key=lambda place: scores[place])
    if scores[best] > scores[worst]:
        chosen, rejected = message(batch["texts"][best]), message(batch["texts"][worst])
        pairs.append({"prompt": row["prompt"], "chosen": chosen, "rejected": rejected})
print(len(pairs), "pairs of 64 completions")
args = DPOConfig(learning_rate=1e-4, beta=0.1, **common)
trainer = DPOTrainer(
    load_tiny_model(), args=args, train_dataset=Dataset.from_list(pairs),
    processing_class=tokenizer,
)
train_and_print(trainer, "loss", "rewards/margins", "logps/chosen")

# %% [markdown]
# Watch `logps/chosen`, the log-probability of the chosen completions, in longer runs. DPO only increases the
# *difference* between chosen and rejected, so it may make the chosen completion less likely as well. **RLOO** takes
# reward functions as GRPO does, but its defaults differ (2 completions per prompt, `beta=0.05`). Here each update sees
# eight completions of a single problem, so the two printed rewards belong to different problems and do not show
# progress:

# %%
from trl import RLOOConfig, RLOOTrainer

args = RLOOConfig(
    num_generations=8, beta=0.0, max_completion_length=64, learning_rate=3e-4,
    reward_weights=reward_weights, **common,
)
trainer = RLOOTrainer(
    load_tiny_model(), rewards, args=args, processing_class=tokenizer,
    train_dataset=Dataset.from_list(train_rows[:64]),
)
train_and_print(trainer, "reward", "entropy", "completions/mean_length")

# %% [markdown]
# **On-policy distillation** is TRL's `DistillationTrainer`, with `beta=1.0` for the reverse KL divergence. It has no
# reward function; the teacher is a second model with the same tokenizer. TRL computes the divergence in a kernel for
# GPUs, so on a CPU `distil_without_triton` puts the same formula in its place (a test compares both). To show the call
# without training a teacher first, the base here is the teacher of a student whose last layer was disturbed:

# %%
from grpo_workbook import compat
from trl import DistillationConfig, DistillationTrainer

compat.distil_without_triton()
student = load_tiny_model()
torch.manual_seed(0)
for weight in student.model.layers[-1].parameters():
    weight.data += 0.1 * torch.randn_like(weight)
longer = {**common, "max_steps": 8, "per_device_train_batch_size": 32}
args = DistillationConfig(
    beta=1.0, learning_rate=1e-3, max_completion_length=64, **longer
)
trainer = DistillationTrainer(
    student, teacher_model=load_tiny_model(), args=args, processing_class=tokenizer,
    train_dataset=Dataset.from_list(train_rows[:256]),
)
train_and_print(trainer, "loss", "entropy", "completions/mean_length")

# %% [markdown]
# The loss is the mean divergence of a token in nats. It falls as the student returns to its teacher.

# %% [markdown]
# ## For the curious
#
# This part answers two other questions: when do answers grow longer, and when can a variant of GRPO matter? You can
# leave it out; most of its code is folded.
#
# ### The harder task: when writing steps pays
#
# When does a model learn to write longer answers? *tiny-steps* adds two long numbers. It can do this column by column.
# But in its training data, one answer in ten wrote all columns, three wrote some, and six gave the result at once,
# which is nearly always wrong. The reward is **for the right number alone**. This table groups 512 samples from before
# training by the number of columns written:

# %% tags=["hide-input"]
from grpo_workbook import correctness_reward

STEPS = config.DATA / "step_tasks"
sums = {}
for name in ("train", "heldout"):
    problems = load_problems(STEPS / f"{name}.jsonl")
    sums[name] = list(to_dataset(problems, system_prompt=None))
folder = config.DATA / "tiny-steps"
adder = AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
adder_tokenizer = AutoTokenizer.from_pretrained(folder)
learner = ScratchTrainer(
    adder, adder_tokenizer, correctness_reward, learning_rate=3e-4, loss_type="grpo"
)
torch.manual_seed(0)
rows = sums["heldout"][:64]
batch = learner.rollout(rows)
samples = pd.DataFrame()
samples["columns"] = [min(5, text.count("=")) for text in batch["texts"]]
samples["tokens"] = batch["mask"].sum(dim=1).tolist()
samples["right"] = learner.score(rows, batch["texts"])
by_columns = samples.groupby("columns")
paid = by_columns.mean()
paid.insert(0, "samples", by_columns.size())
for price in (0.1, 0.5, 1.5):
    paid[f"price {price}"] = paid["right"] - price * paid["tokens"] / 40
paid.round(2)

# %% [markdown]
# A sum has four or five columns, so the last row is complete, and the row before it is complete for the sums of four
# columns. The last three table columns show the mean reward if 40 tokens cost 0.1, 0.5 or 1.5. With a price of 1.5,
# answers without any work earn most, so the model should stop writing steps. With 0.5, answers with five columns earn
# most, but those with one to three columns earn less than those with none, so the first steps towards full answers are
# penalised. With 0.1, full answers earn far more than any others, so this price looks harmless. Remember this guess.
#
# Now GRPO, live: 24 updates of 64 completions.

# %% tags=["hide-input"]
from tqdm import tqdm


def copy_weights(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


log = []
weights_before = copy_weights(adder)
rows = sums["train"][: 24 * 8]
with tqdm(learner.train(rows), total=24, desc="GRPO", unit="step", ncols=80) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(right=f"{metrics['reward']:.2f}")
        if len(log) == 16:  # for later: the policy of some updates ago
            old_weights = copy_weights(adder)
weights_after = copy_weights(adder)

# %% [markdown]
# Did the answers get longer, and did accuracy rise with them?

# %% tags=["hide-input"]
figure, panels = figures.new_panels(8.5, 3.2, 2, 2)
table = pd.DataFrame(log)
completions = table["step"] * 64
curves = [("tokens of a completion", table["tokens"], figures.ORANGE),
          ("right answers, %", 100 * table["reward"], figures.BLUE)]
for axes, (label, values, colour) in zip(panels, curves):
    axes.plot(completions, values, color=colour)
    axes.set(xlabel="completions sampled", ylabel=label)
    axes.set_ylim(0, None)
figure.suptitle("Length grows because it pays")
first = table.iloc[0]
last = table.tail(3).mean()
figures.show(
    figure,
    f"Line chart: from {first['tokens']:.0f} to {last['tokens']:.0f} tokens while "
    f"{100 * first['reward']:.0f} to {100 * last['reward']:.0f} percent become right.",
)

# %% [markdown]
# The horizontal axes count sampled completions. The left panel shows the mean number of tokens of a completion, the
# right panel the percentage of right answers; both are means of one batch of 64 completions.
#
# The stored runs add controls. These are means over eight seeds:

# %% tags=["hide-input"]
controls = [
    "base", "grpo", "random reward", "format reward", "length price 0.1",
    "length price 0.5", "length price 1.5", "base without steps",
]
means = race["steps"].groupby("method")[["tokens", "sampled", "greedy"]].mean()
means["sampled, %"] = 100 * means.pop("sampled")
means["greedy, %"] = 100 * means.pop("greedy")
of_grpo = race["steps"].query("method == 'grpo'").sort_values("sampled")
for run in of_grpo.head(2).to_dict("records"):
    print(f"GRPO, seed {run['seed']}: {run['tokens']:.0f} tokens, "
          f"{run['sampled']:.0%} right")
means.loc[controls].round(1)

# %% [markdown]
# No reward asks for steps, yet the model learns to write them: in a group with one long right answer, the short answers
# are wrong and earn less. Such curves of growing length are often shown beside the "aha moment" of reasoning models.
# That is something else: text in which the model reconsiders its own work. Here the steps are *elicited*, not invented:
# the base writes four or five columns in 80 of the 512 samples above, and a base that never writes any ("base without
# steps") learns nothing. Length alone proves little, too: in two of GRPO's eight stored seeds it more than doubled, to
# 36 tokens, while only 3 and 15 % of the answers were right. So measure accuracy.
#
# The controls show what causes the rise. A **random reward** and a **format reward** do not raise accuracy, so neither
# updates alone nor a reward for tags is enough. And with a **price** on length, even of 0.1, the model ends with short
# wrong answers. Why, if that price looked harmless? Look at the groups: at first, most have no right answer. Without a
# price, such a group has zero variance and teaches nothing. With *any* price, its rewards differ by length alone, and
# GRPO divides by their standard deviation, however small it is (chapters 01 and 03). These are the advantages of a
# group in which all answers are wrong:

# %% tags=["hide-input"]
lengths = torch.tensor([8.0, 8, 9, 8, 38, 16, 8, 23])
for price in (0.1, 0.5, 1.5):
    group = group_advantages(-price * lengths / 40, 8)
    shown = " ".join(f"{value:5.2f}" for value in group.tolist())
    print(f"price {price}: {shown}")

# %% [markdown]
# The answer with all its columns is penalised most, and about equally at every price. So add a price only after
# accuracy has risen. Not dividing by the standard deviation makes a group in which all answers are wrong count less.
# Whether that is enough was not tested.
#
# Here is one sum before and after training, decoded greedily:

# %% tags=["hide-input"]
from grpo_workbook import generate

question = sums["heldout"][0]
for name, state in (("before", weights_before), ("after", weights_after)):
    adder.load_state_dict(state)
    prompts = [question["prompt"]]
    text = generate(adder, adder_tokenizer, prompts, max_new_tokens=64)[0]
    print(f"{name}: {question['question']}\n{text}\n")

# %% [markdown]
# ### The variants, one by one
#
# For each variant, a toy or a measurement shows *when* it can matter, and the stored runs show whether it did:

# %% tags=["hide-input"]
for method in ("reinforce", "reinforce, baseline", "rloo", "ppo", "dr_grpo"):
    print(describe("main", method))

# %% [markdown]
# None of these five is shown to be better or worse than GRPO on *main*.
#
# #### Dynamic sampling
#
# Dynamic sampling discards groups without variance and samples more (chapter 07). If a completion is right with
# probability $p$, a group of $n$ has variance with probability $1 - p^n - (1 - p)^n$. The inverse of this probability
# is the number of completions sampled for each one used:

# %% tags=["hide-input"]
import numpy as np

chance = np.linspace(0.005, 0.995, 199)
figure, (left, right_panel) = figures.new_panels(9.0, 3.4, 2, 2)
for size, (colour, dash, _) in zip((2, 4, 8, 16), figures.STYLES):
    useful = 1 - chance**size - (1 - chance) ** size
    left.plot(chance, useful, dash, color=colour, label=f"groups of {size}")
    right_panel.plot(chance, 1 / useful, dash, color=colour)
left.set(title="Few groups teach at either end", ylabel="groups with variance")
right_panel.set(title="What a full batch costs", ylabel="completions per one used")
right_panel.set(yscale="log", ylim=(0.9, 30))
right_panel.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
for axes in (left, right_panel):
    axes.set_xlabel("probability p of a right completion")
left.legend(frameon=False)
shown = []
for p in (0.02, 0.5, 0.98):
    shown.append(f"{p} {1 - p**8 - (1 - p) ** 8:.0%}")
figures.show(
    figure,
    "Two line charts over p for groups of 2 to 16. Groups of 8 have variance at these "
    f"p: {', '.join(shown)}.",
)
for task in race:
    print(describe(task, "dynamic sampling"))

# %% [markdown]
# Both horizontal axes are the probability $p$ of a right completion, and each line is a group size. The left panel
# shows the fraction of groups with variance, the right panel the completions sampled for each one used.
#
# The race counts the discarded completions, so dynamic sampling makes fewer, fuller updates from the same budget. It
# can help where many groups have no variance *and* updates are noisy, or expensive compared with sampling. With p
# between 0.2 and 0.8 at most about one in six groups of eight completions is discarded.
#
# #### Clip-higher
#
# The clip bounds the *ratio* of new to old probability. With an upper bound of 1.2, a token of probability 0.01 is
# clipped when it reaches 0.012. A token of probability 0.9 would be clipped at 1.08, which no probability can reach.
# DAPO raises the bound to 1.28 so that rare tokens can rise further. Which tokens are clipped in practice? Take one
# batch of the tiny model and make four updates, as in the race. The figure will show all tokens of completions with a
# positive advantage, just before the fourth update:

# %% tags=["hide-input"]
from grpo_workbook import grpo_loss

updater = ScratchTrainer(load_tiny_model(), tokenizer, rewards, reward_weights)
optimizer = torch.optim.AdamW(updater.trained, 1e-4, weight_decay=0.0)
torch.manual_seed(1)
batch = updater.rollout(train_rows[:8])
batch_rewards = updater.score(train_rows[:8], batch["texts"])
batch_advantages = group_advantages(batch_rewards, 8)
with torch.no_grad():
    old_logp = updater.logprobs(updater.model, batch)
for update in range(3):
    logp = updater.logprobs(updater.model, batch)
    loss, _ = grpo_loss(
        logp, batch_advantages, batch["mask"], old_logp=old_logp, loss_type="grpo"
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    new_logp = updater.logprobs(updater.model, batch)
reinforced = batch["mask"].bool() & (batch_advantages > 0)[:, None]
probability = old_logp[reinforced].exp()  # when the token was sampled
ratio = (new_logp - old_logp)[reinforced].exp()

# %% [markdown]
# How many of them lie above the two bounds?

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 3.6)
axes.plot(probability, ratio, ".", color=figures.GREY, alpha=0.5, ms=5)
line = torch.linspace(0.005, 1, 400)
axes.fill_between(line, 1 / line, 10, color=figures.PALE["off"])
bounds = [(1.2, figures.BLUE, "top"), (1.28, figures.ORANGE, "bottom")]
for bound, colour, side in bounds:
    axes.axhline(bound, color=colour, lw=1.2)
    axes.text(1.05, bound, f"{bound}", color=colour, fontsize=9, va=side)
axes.set(xscale="log", yscale="log", xlabel="probability when sampled", ylabel="ratio",
         xlim=(0.005, 1.02), ylim=(0.3, 4))
axes.set_yticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
axes.minorticks_off()
over = ratio > 1.2
clipped, tokens = int(over.sum()), len(ratio)
between = int((over & (ratio < 1.28)).sum())
rare = int((over & (probability < 0.5)).sum()) / max(1, clipped)
title = f"{clipped} of {tokens} tokens are clipped, {rare:.0%} of them below 0.5"
axes.set_title(title)
figures.show(
    figure,
    f"Scatter of {tokens} tokens, ratio over probability when sampled. {clipped} lie "
    f"above 1.2, {between} of them below 1.28; {rare:.0%} of those above 1.2 had a "
    "probability below 0.5. Likely tokens cannot move up that far.",
)
print(f"{between} tokens lie between the two bounds: only these does clip-higher free")
print(describe("main", "clip-higher, 4 updates"))

# %% [markdown]
# Each dot is a token: the horizontal axis is its probability when it was sampled, the vertical axis its ratio after
# three updates. The lines are the bounds 1.2 and 1.28. In the grey area no token can lie, because its new probability
# would be above 1.
#
# Most of the clipped tokens are not rare: 72 % had a probability of 0.5 or more. A token can never be clipped if its
# probability was above 0.83 (1 / 1.2). In the first update on a batch no token is clipped at all, so with one update
# per batch clip-higher, GSPO and SAPO *are* GRPO (and CISPO is the token-level loss). With four updates, few tokens lie
# between 1.2 and 1.28. DAPO raised the bound for runs of thousands of updates, in which a rare token that is clipped
# again and again can disappear.
#
# #### Entropy: a bonus, or only the forks
#
# Entropy measures how undecided the model is about the next token. At most tokens it is nearly certain. The others are
# *forks*: for the adder, whether to write steps at all, and whether to go on.

# %% [markdown]
# There are two ideas about them. [Wang et al.](https://arxiv.org/abs/2506.01939) train only the 20 % of the tokens with
# the highest entropy (TRL: `top_entropy_quantile=0.2`); with 8 billion weights, accuracy stays the same or rises. An
# **entropy bonus** adds $c$ times the entropy $H$ to the objective (TRL: `entropy_coef`), so that the policy keeps
# exploring. The bonus has a price. Suppose a token has two options and the right one earns a reward of 1. Under a bonus
# $c$, the best policy takes the right one with $p = \mathrm{sigmoid}(1/c)$ only, and a completion has many tokens:

# %% tags=["hide-input"]
for bonus in (0.03, 0.1, 0.2, 0.5):
    p = torch.sigmoid(torch.tensor(1 / bonus)).item()
    print(f"bonus {bonus:4}: best p of a token {p:.4f}, of 30 tokens {p**30:.1%}")
for method in ("entropy bonus", "top-entropy tokens"):
    print(describe("steps", method))
forks = race["steps"].query("method == 'top-entropy tokens'")["sampled"]
at_zero = (forks < 0.005).sum()
print(f"from the forks alone: {at_zero} of {len(forks)} runs ended at 0 % sampled")

# %% [markdown]
# The bonus helps where a policy would become certain before it has seen what pays; later it only adds noise. So lower
# it during training, or give TRL a target (`use_adaptive_entropy`, `entropy_target`). Training on the forks alone
# assumes that the model can already do the rest; a model that still has to learn its digits needs the gradient of all
# tokens. These are explanations, and the stored runs do not test them. With the bonus (0.03) the adder is right about
# as often as without it, and seven of the eight runs that learned from the forks alone ended at 0 % sampled.
#
# #### A sampler that is not the policy
#
# Sometimes the completions come from other weights than those that learn: from weights of some updates ago
# (asynchronous training), or from a 4-bit copy, which takes less memory. Chapter 10 imitates vLLM's rounding with a
# copy in bfloat16 and shows what TRL drops. Here the adder is the policy, with its weights after training. One sampler
# is its copy in NF4, the other has its weights of 8 updates before.

# %% tags=["hide-input"]
import copy

from bitsandbytes.functional import dequantize_nf4, quantize_nf4

adder.load_state_dict(weights_after)
rounded = copy.deepcopy(adder)
for name, layer in rounded.named_modules():
    if isinstance(layer, torch.nn.Linear) and name != "lm_head":
        packed, state = quantize_nf4(layer.weight.data)
        layer.weight.data = dequantize_nf4(packed, state)
stale = copy.deepcopy(adder)
stale.load_state_dict(old_weights)

of_tokens, of_completions = {}, {}
for name, sampling_model in {"4-bit": rounded, "8 updates old": stale}.items():
    learner.model = sampling_model
    torch.manual_seed(0)
    batch = learner.rollout(sums["heldout"][:32])  # 256 completions
    with torch.no_grad():
        policy_logp = learner.logprobs(adder, batch)
        sampler_logp = learner.logprobs(sampling_model, batch)
    log_ratio = (policy_logp - sampler_logp) * batch["mask"]  # (256, tokens)
    of_tokens[name] = log_ratio[batch["mask"].bool()]
    of_completions[name] = log_ratio.sum(dim=1)
learner.model = adder

# %% [markdown]
# How far apart are the probabilities of the policy and of each sampler?

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 5.0, 4, 2)
limit = float(np.log(2))
lines = []
for column, name in enumerate(of_tokens):
    for row, (unit, ratios) in enumerate(
        (("tokens", of_tokens[name]), ("completions", of_completions[name]))
    ):
        axes = panels[column + 2 * row]
        values = ratios.clamp(-3, 3).tolist()
        log_scale = unit == "tokens"
        axes.hist(values, 61, range=(-3, 3), color=figures.BLUE, log=log_scale)
        axes.axvline(limit, color=figures.ORANGE)
        cut = float((ratios > limit).float().mean())
        axes.set_title(f"{unit}: {name}: {cut:.1%} above 2", fontsize=10)
        axes.set_ylabel("tokens (log scale)" if log_scale else unit)
        spread = float(ratios.std())
        line = f"{unit}: {name}, deviation {spread:.2f}, {cut:.1%} above a ratio of 2"
        lines.append(line)
for axes in panels[2:]:
    axes.set_xlabel("log of the ratio")
figure.suptitle("Small differences of a token add up over a completion")
figures.show(figure, f"Four histograms of log-ratios: {'; '.join(lines)}.")

# %% [markdown]
# The horizontal axis is the logarithm of the ratio, the policy's probability over the sampler's; values beyond -3 or 3
# are counted at the edge. The bars count tokens in the upper panels and whole completions in the lower ones. The orange
# line is a ratio of 2.
#
# The gradient is right on average if each completion's loss is multiplied by its ratio (**importance sampling**). But
# the ratio of a completion is a product over its tokens, and its variance is large. *Truncated* importance sampling
# cuts the ratio at a bound, here 2: the variance falls, but the gradient gets a bias.

# %% tags=["hide-input"]
for name, log_ratios in of_completions.items():
    whole = log_ratios.exp()
    truncated = whole.clamp(max=2.0)
    for label, weight in (("whole ratio", whole), ("truncated at 2", truncated)):
        effective = weight.sum() ** 2 / weight.square().sum()
        share = float(effective) / len(weight)
        shape = f"mean {weight.mean():.2f}, largest {weight.max():6.2f}"
        print(f"{name:14} {label:15} {shape}, as good as {share:.0%} of completions")
for method in MECHANISMS[2:]:
    print(describe("steps", method))

# %% [markdown]
# "As good as" is the *effective sample size* as a fraction. With 78 %, for example, the weighted completions are as
# noisy as only 78 % as many completions with equal weights. The correction costs little. It should matter where the
# sampler differs much from the policy: when it is many updates old, when completions are very long, or when rounding is
# coarse. The stored runs fit this and do not settle it. With a sampler that is up to seven batches old, the correction
# adds 13 points sampled (in seven of eight seeds) and 9 points greedy (in five of eight). With the 4-bit copy, no
# difference can be told from noise. TRL has these options, printed with their defaults:

# %% tags=["hide-input"]
from dataclasses import fields

from trl import GRPOConfig

topics = ("vllm_importance", "off_policy", "entropy", "epsilon_high", "mask_truncated")
for field in fields(GRPOConfig):
    for topic in topics:
        if topic in field.name:
            print(f"{field.name:36} {field.default}")

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
import json

from scipy.stats import fisher_exact

base_right = round(240 * base_greedy)  # of 240 held-out problems, decoded greedily
p_values, live_runs = {}, {}
for run in live.to_dict("records"):
    name = f"{run['method']} {run['seed']}"
    right_now = round(240 * run["greedy"])
    outcomes = [[right_now, 240 - right_now], [base_right, 240 - base_right]]
    p_values[name] = float(fisher_exact(outcomes).pvalue)
    live_runs[name] = [run["completions"], run["updates"], run["sampled"]]
proved = {"base": base_sampled, "slice": live_runs, "p_values": p_values}
proved["steps"] = len(log)
proved["right"] = [metrics["reward"] for metrics in log]
proved["tokens"] = [metrics["tokens"] for metrics in log]
proved["stored"] = {task: len(rows) for task, rows in race.items()}
proved["spread"] = {name: float(values.std()) for name, values in of_tokens.items()}
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_12.json").write_text(json.dumps(proved, indent=2))
for name in ("grpo 0", "grpo 1", "rejection 0", "rejection 1"):
    assert p_values[name] < 1e-6, f"{name} did not learn"

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 12.3 · `paired_gap` · medium · 10 minutes
#
# You get the accuracy of two methods by seed, such as `{0: 0.81, 1: 0.77}`. Some runs may be missing. Return the mean
# paired difference, `method` minus `other`, over the seeds that both have, and its standard error.


# %% tags=["exercise"]
def paired_gap(
    method: dict[int, float], other: dict[int, float]
) -> tuple[float, float]:
    raise NotImplementedError


check("12.3", paired_gap);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the difference for each common seed first. The standard error of a mean of n numbers is their standard deviation
# (with n - 1) divided by the square root of n.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, stdev
#
#
# def paired_gap(
#     method: dict[int, float], other: dict[int, float]
# ) -> tuple[float, float]:
#     gaps = [method[seed] - other[seed] for seed in method if seed in other]
#     return mean(gaps), stdev(gaps) / len(gaps) ** 0.5
# ```
#
# </details>

# %% [markdown]
# ### Exercise 12.4 · `faults` · medium · 10 minutes
#
# This table is invented, and so is its paper, "FancyPO beats GRPO by 4 points":
#
# | | GRPO | FancyPO |
# | --- | --- | --- |
# | model, prompt, temperature | the same | the same |
# | sampled completions | 128,000 | 256,000 |
# | learning rate | the library's default | best of five |
# | training runs reported | 1 | 1 |
# | reported checkpoint | the last | the best of 20 on the test problems |
# | test problems | 30 | 30 |
# | accuracy | 53 % | 57 % |
#
# Return the set of its faults, out of `"different models"`, `"unequal completions"`, `"unequal tuning"`, `"one seed"`,
# `"chosen on the test set"`, `"too few problems"`, `"different prompts"`, `"no control"`.


# %% tags=["exercise"]
def faults() -> set[str]:
    raise NotImplementedError


check("12.4", faults);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through the rules at the top of this chapter, one by one. How many problems are 4 points of 30?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def faults() -> set[str]:
#     return {"unequal completions", "unequal tuning", "one seed", "chosen on the test set",
#             "too few problems", "no control"}
# ```
#
# Four points of 30 problems are 1.2 problems. Each of these faults alone could explain the difference.
#
# </details>

# %% [markdown]
# ### Exercise 12.5 · `dynamic_cost` · easy · 8 minutes
#
# How many completions does dynamic sampling sample, on average, to fill a batch of `wanted` completions with groups of
# `group` that have variance, if each completion is right with probability `p` (between 0 and 1)?


# %% tags=["exercise"]
def dynamic_cost(p: float, group: int, wanted: int) -> float:
    raise NotImplementedError


check("12.5", dynamic_cost);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What is the probability that a group has variance? The inverse of it is the number of groups that you sample for each
# useful one.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def dynamic_cost(p: float, group: int, wanted: int) -> float:
#     useful = 1 - p**group - (1 - p) ** group
#     return wanted / useful
# ```
#
# </details>

# %% [markdown]
# ### Exercise 12.6 · `truncated_weights` · medium · 10 minutes
#
# Write truncated importance sampling as `vllm_importance_sampling_mode="token_truncate"` does it. Return the weight of
# each token, with shape (B, T), from its log-probabilities under the policy that learns (`logp`) and under the
# `sampler`. Cut the ratios at `cap`, and return 0 where the mask is 0.


# %% tags=["exercise"]
def truncated_weights(
    logp: "torch.Tensor", sampler: "torch.Tensor", mask: "torch.Tensor", cap: float
) -> "torch.Tensor":
    raise NotImplementedError


check("12.6", truncated_weights);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A token that the sampler writes more often than the policy would must count less. Which of the two probabilities is
# the numerator of the ratio? `Tensor.clamp(max=...)` cuts.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def truncated_weights(
#     logp: "torch.Tensor", sampler: "torch.Tensor", mask: "torch.Tensor", cap: float
# ) -> "torch.Tensor":
#     return (logp - sampler).exp().clamp(max=cap) * mask
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# Should you train with GRPO, imitate good answers, or learn from pairs?
#
# - In this race, imitating right answers was better than GRPO on the easy task, by both measures; pairs that were
#   sampled once were worse. So if right answers exist or are often sampled, imitate first; otherwise use GRPO with a
#   tuned step size.
# - A fair race has equal completions, equal tuning, held-out problems, several paired seeds, a control, and a corrected
#   test. This race lacks equal tuning. No variant of GRPO's loss is shown to be better or worse.
# - The result depends on the measure. Sampled accuracy rewards certainty; greedy accuracy does not. Call a method
#   better only where both agree; where only sampled accuracy differs, call it sharper or less sharp.
# - With rewards of 0 and 1, REINFORCE is rejection sampling on fresh samples. RLOO and Dr. GRPO differ by a constant
#   factor.
# - From the optional part: in the first update on a batch the ratio is 1, so clip-higher, GSPO, SAPO and CISPO only act
#   from the second on. Answers grow longer where longer answers earn more, and only if the base writes steps now and
#   then. Each mechanism is made for one situation; measure whether you are in it.
#
# Next: [13 · Reward models and over-optimisation](13_learned_rewards.ipynb) trains against a reward that is itself a
# model, and wrong.
