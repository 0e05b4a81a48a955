# %% [markdown]
# # 01 · GRPO from scratch
#
# **After this notebook you can** derive GRPO from REINFORCE, write its advantages, ratio, clipping, KL penalty and
# training step yourself, say what each loss type does to short and long answers, see clipping act in a run, and say
# what GRPO saves over PPO.
#
# **Time:** about 2 minutes on two CPU cores, and a good hour for the exercises. It needs no GPU.
#
# You write each piece and check it. Only then does the notebook import the tested version from `grpo_workbook/grpo.py`,
# whose losses and gradients are compared with TRL's in a test. Every cell also runs if you skip the exercises.

# %% [markdown]
# ## A policy with four answers
#
# "What is 3 + 4?" A toy model knows four answers. Its **policy** $\pi$ gives each answer a probability: the softmax of
# four numbers, the logits. Every answer earns 3 points for its form; the right one earns 1 more. Training should raise
# the expected reward, $J = \sum_a \pi(a)\, r(a)$. With only four answers we can compute its gradient exactly:

# %%
import torch

from grpo_workbook import quiet

quiet()

ANSWERS = ["5", "6", "7", "8"]
REWARDS = torch.tensor([3.0, 3.0, 4.0, 3.0])
logits = torch.zeros(4, requires_grad=True)  # no preference yet
expected = (logits.softmax(0) * REWARDS).sum()
(exact,) = torch.autograd.grad(expected, logits)
print(f"expected reward {expected.item():.2f}")
print("its gradient   ", dict(zip(ANSWERS, exact.tolist())))

# %% [markdown]
# The gradient raises the logit of "7" and lowers the others.
#
# ## REINFORCE: the gradient from samples
#
# A language model has too many answers to list, so we sample a few. This works because
# $\nabla \pi = \pi\, \nabla \log \pi$, which turns the sum over all answers into an expectation:
#
# $$\nabla J = \sum_a r(a)\, \nabla \pi(a) = \mathbb{E}_{a \sim \pi}\bigl[\, r(a)\, \nabla \log \pi(a)\, \bigr]$$
#
# An expectation can be estimated by a mean over samples. So: sample answers, and make each one likelier in proportion
# to its reward. This is **REINFORCE**, the basic **policy gradient**; GRPO and PPO refine it. As a loss to minimise it
# is $-r \log \pi$. In the next cell `weigh` turns rewards into weights, and for now it changes nothing.

# %%
import time


def learn(weigh, seed: int = 0, steps: int = 60, group: int = 8, lr: float = 0.5):
    """The probability of "7" before each step of gradient descent."""
    torch.manual_seed(seed)
    logits, right = torch.zeros(4, requires_grad=True), []
    for _ in range(steps):
        logp = logits.log_softmax(0)
        chances = logp.detach().exp()
        right.append(float(chances[2]))
        sampled = torch.multinomial(chances, group, replacement=True)
        loss = -(weigh(REWARDS[sampled]) * logp[sampled]).mean()
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - lr * gradient).detach().requires_grad_()
    return right


start = time.perf_counter()
for seed in range(3):
    curve = learn(lambda rewards: rewards, seed)
    print(f"seed {seed}:", *[f"{curve[step]:.2f}" for step in (0, 5, 10, 20, 40, 59)])
print(f"{(time.perf_counter() - start) / 3 * 1e3:.0f} ms a run")

# %% [markdown]
# It learns in milliseconds, but the path is rough: one of the seeds first *unlearns* "7". All rewards are positive, so
# each sampled answer is pushed up, right or wrong. Which one gains is decided by luck until the small advantage of "7"
# has added up.
#
# ## The baseline: why a mean may be subtracted
#
# Subtract the same number $b$ from every reward. The expected gradient does not change, because
#
# $$\mathbb{E}\bigl[\, b\, \nabla \log \pi(a)\, \bigr] = b \sum_a \nabla \pi(a) = b\, \nabla 1 = 0 .$$
#
# This holds for every $b$ that does not depend on the sampled answer. Such a number is called a **baseline**. It keeps
# the estimate **unbiased** and can make it far less noisy. Measure both, with 20,000 groups of 8 answers each. One of
# the baselines is, for each answer, the mean of the 7 *other* answers.

# %%
def gradients(baseline, groups: int = 20_000, n: int = 8) -> torch.Tensor:
    """REINFORCE's estimates for the logit of "7", one from each group of n answers."""
    torch.manual_seed(0)
    sampled = torch.randint(4, (groups, n))
    rewards = REWARDS[sampled]
    score = (sampled == 2).float() - 0.25  # d log pi(answer) / d logit of "7"
    return ((rewards - baseline(rewards)) * score).mean(dim=1)


def other_answers(rewards: torch.Tensor) -> torch.Tensor:
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


baselines = {
    "none": lambda rewards: 0.0,
    "expected\nreward": lambda rewards: 3.25,
    "mean of other\nanswers": other_answers,
    "mean of\nthe group": lambda rewards: rewards.mean(1, keepdim=True),
}
measured = {name: gradients(baseline) for name, baseline in baselines.items()}

# %% [markdown]
# Left: the mean of the estimates, with the exact gradient as a line. Right: how much one estimate differs from the next.

# %% tags=["hide-input"]
from grpo_workbook import figures

means = [float(g.mean()) for g in measured.values()]
spreads = [float(g.std()) for g in measured.values()]
figure, (left, right) = figures.new_panels(8.0, 3.2, 2, 2)
colours = [figures.GREY] + [figures.BLUE] * 3
for axes, values in ((left, means), (right, spreads)):
    bars = axes.bar(list(measured), values, 0.7, color=colours)
    axes.bar_label(bars, [f"{value:.3f}" for value in values], padding=4, fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
left.axhline(float(exact[2]), color="black", lw=1, ls="--")
left.set(title="The group's mean shrinks it", ylim=(0, 0.24))
left.set_ylabel("mean of the estimates")
times = f"{spreads[0] / spreads[3]:.0f} times"
right.set(title=f"A baseline: {times} smaller", ylim=(0, 0.7), ylabel="their deviation")
figures.show(
    figure,
    "Two bar charts, for no baseline, the expected reward, the other answers' mean and "
    f"the group's mean. Mean gradient: {', '.join(f'{v:.3f}' for v in means)}; exact: "
    f"{float(exact[2]):.4f}. Deviation: {', '.join(f'{v:.3f}' for v in spreads)}.",
)

# %% [markdown]
# Three methods differ in where the baseline comes from:
#
# - **PPO** trains a second network, the **critic**, to predict the reward to expect.
# - **RLOO** samples several answers to the same question and takes the mean of the other answers.
# - **GRPO** takes the mean of the whole group. This mean contains the answer itself, so the gradient shrinks to
#   (n - 1) / n, here 7/8, but its direction stays right.
#
# Comparing answers with their group replaces the critic: Group Relative Policy Optimization.
#
# ## The group's advantages
#
# GRPO also divides by the group's standard deviation. The result is the **advantage** of answer $i$:
#
# $$A_i = \frac{r_i - \mathrm{mean}(r_1, \ldots, r_n)}{\mathrm{std}(r_1, \ldots, r_n) + 10^{-4}}$$
#
# The deviation divides by n - 1, as `Tensor.std` and TRL do. The small number keeps the division safe when all rewards
# are equal. Such a group is a **zero-variance group**: its advantages are 0, so it teaches nothing.

# %% [markdown]
# ### Exercise 01.1 · `advantages` · easy · 8 minutes
#
# The advantages of a batch of groups. `rewards` (B,) holds one group after the other, `group_size` rewards each; return
# the advantages in the same order.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def advantages(rewards: "torch.Tensor", group_size: int) -> "torch.Tensor":
    raise NotImplementedError


check("01.1", advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `rewards.view(-1, group_size)` has a group in each row. `mean` and `std` take `dim=1, keepdim=True`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def advantages(rewards: "torch.Tensor", group_size: int) -> "torch.Tensor":
#     groups = rewards.view(-1, group_size)
#     centred = groups - groups.mean(dim=1, keepdim=True)
#     return (centred / (groups.std(dim=1, keepdim=True) + 1e-4)).flatten()
# ```
#
# </details>

# %% [markdown]
# Now import the tested version, and give the toy each kind of weight: the bare reward, the reward minus the group's
# mean, and the advantage. Lines are means over 20 seeds, bands hold 80 % of them.

# %%
from grpo_workbook import group_advantages

weights = {
    "reward": (lambda r: r, figures.GREY, "--"),
    "minus the mean": (lambda r: r - r.mean(), figures.ORANGE, "-."),
    "advantage": (lambda r: group_advantages(r, len(r)), figures.BLUE, "-"),
}
figure, (axes,) = figures.new_panels(7.0, 3.4)
ends = []
for name, (weigh, colour, dash) in weights.items():
    runs = torch.tensor([learn(weigh, seed) for seed in range(20)])
    low, high = runs.quantile(torch.tensor([0.1, 0.9]), dim=0)
    axes.fill_between(range(60), low, high, color=colour, alpha=0.15, lw=0)
    axes.plot(runs.mean(dim=0), dash, color=colour, label=name, lw=2)
    ends.append(f"{name}, {low[10]:.2f} to {high[10]:.2f}")
axes.set(xlabel="step", ylabel='probability of "7"', ylim=(0, 1.02))
axes.set_title("The group's mean takes the luck out of learning")
axes.legend(frameon=False, loc="lower right")
figures.show(
    figure,
    "Line chart of the probability of the right answer over 60 steps, 20 seeds each. "
    f"80 % of the seeds lie, after 10 steps, within: {'; '.join(ends)}.",
)

# %% [markdown]
# On this toy, the division makes the weights about twice as large, so it works like a higher learning rate. With
# several groups in a batch it does more. TRL's `scale_rewards` says which deviation divides: the `"group"`'s, the whole
# `"batch"`'s, or `"none"` (Dr. GRPO). The mean is always the group's. Three groups of four:

# %% tags=["hide-input"]
batch = [1, 1, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]
figure, panels = figures.new_panels(9.0, 2.9, 4, 4)
heights = {"rewards": batch}
for scale in ("group", "batch", "none"):
    heights[f'"{scale}"'] = group_advantages(batch, group_size=4, scale=scale).tolist()
for axes, (name, values) in zip(panels, heights.items()):
    colour = figures.GREY if name == "rewards" else figures.BLUE
    places = [i + i // 4 for i in range(12)]  # a gap between the groups
    axes.bar(places, values, 0.9, color=colour)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xticks=[1.5, 6.5, 11.5], xticklabels=["1", "2", "3"], title=name)
    axes.set_ylim(-1, 3.1)
figure.supxlabel("group", fontsize=10)
figure.suptitle('scale_rewards="group": a reward of 3 weighs as much as one of 1')
words = "; ".join(
    f"{name}: " + ", ".join(f"{value:.2f}" for value in values)
    for name, values in heights.items()
)
figures.show(figure, f"Bars of three groups: rewards, then advantages. {words}.")

# %% [markdown]
# With every setting a lone right answer (group 2) weighs more than one of two (group 1). With `"group"` alone, the third
# group looks like the second although its reward is three times as large. The reverse holds too: rewards of 0.1, 0, 0, 0
# would give the same advantages again. Any difference within a group becomes a full-sized push. Chapter 03 shows how a
# tiny style reward takes over a run that way.
#
# ## How large should a group be?
#
# A simulation: 20,000 groups of each size, for problems that the model solves 20, 50 or 90 % of the time.

# %%
def simulate(size: int, p: float) -> tuple[float, float]:
    """Fraction of zero-variance groups, and the mean advantage of a right answer."""
    right = (torch.rand(20_000, size) < p).float()
    values = group_advantages(right.flatten(), size).view(-1, size)
    equal = (values == 0).all(dim=1)
    of_right = values[~equal][right[~equal] == 1]
    return float(equal.float().mean()), float(of_right.mean())


torch.manual_seed(0)
sizes = [2, 4, 8, 16, 32, 64]
simulated = {p: [simulate(size, p) for size in sizes] for p in (0.2, 0.5, 0.9)}
figure, panels = figures.new_panels(8.5, 3.2, 2, 2)
titles = ("Fewer large groups lack variance", "Small groups bias the advantage")
axis = ("fraction of zero-variance groups", "mean advantage of a right answer")
for which, axes in enumerate(panels):
    for (p, pairs), (colour, dash, marker) in zip(simulated.items(), figures.STYLES):
        values = [pair[which] for pair in pairs]
        axes.plot(sizes, values, dash, color=colour, marker=marker, label=f"{p:.0%}")
    axes.set(xscale="log", xlabel="group size", ylabel=axis[which], title=titles[which])
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
panels[0].legend(frameon=False, title="solved")
at = {p: f"{pairs[2][0]:.0%} and {pairs[2][1]:.2f}" for p, pairs in simulated.items()}
words = ", ".join(f"{value} when {p:.0%} are solved" for p, value in at.items())
figures.show(figure, f"Two line charts over group sizes 2 to 64. At 8: {words}.")

# %% [markdown]
# The larger the group, the fewer zero-variance groups; very easy and very hard problems need the largest. Small groups
# are also **biased**. With infinitely many samples, a right answer to a problem solved 20 % of the time would have an
# advantage of $\sqrt{0.8 / 0.2} = 2$. A group of two can never give it more than 0.71, and a group of eight gives 1.58
# on average.
#
# TRL's default is 8. It suits problems that the model solves about half of the time. On problems that it solves 90 % of
# the time, 43 % of such groups have no variance: take larger groups, or harder problems (chapter 07).

# %% [markdown]
# ## From answers to tokens
#
# A language model writes an answer token by token, so $\log \pi(\mathrm{answer})$ is a sum: for each token, its
# log-probability given all tokens before it. One forward pass gives them all. A batch is a rectangle: prompts are
# padded on the left, so that all completions begin in the same column, and completions are padded on the right. The
# **mask** keeps the completions' tokens and nothing else.

# %% tags=["hide-input"]
shown = [  # three rows of a batch: padding, prompt, completion, padding
    ["", "", "3", "+", "4", "?", "It", "is", "7", "end", ""],
    ["5", "-", "1", "+", "2", "?", "6", "end", "", "", ""],
    ["", "", "9", "-", "2", "?", "9-2", "=", "7", "so", "7"],
]
figure, (axes,) = figures.new_panels(8.5, 3.0)
for y, row in enumerate(shown):
    for x, token in enumerate(row):
        kind = "off" if not token else "data" if x < 6 else "number"
        axes.barh(-y, 0.96, 0.8, left=x, color=figures.PALE[kind])
        axes.text(x + 0.48, -y + 0.08, token, ha="center", va="center")
        if x >= 6:
            mask = f"mask {int(bool(token))}"
            axes.text(x + 0.48, -y - 0.28, mask, ha="center", va="center", fontsize=7)
for x in range(5, 9):  # the position before a token predicts it
    bend = {"arrowstyle": "->", "connectionstyle": "arc3,rad=-0.5"}
    bend |= {"color": figures.BLUE}
    axes.annotate("", (x + 1.4, 0.42), (x + 0.55, 0.42), arrowprops=bend)
axes.text(7.5, 0.95, "position t predicts token t + 1", color=figures.BLUE, ha="center")
axes.text(3, 0.6, "prompt, P columns", ha="center")
axes.text(8.5, -2.75, "completion, T columns: only these are trained", ha="center")
axes.set(xlim=(0, 11), ylim=(-3, 1.2))
axes.axis("off")
figures.show(
    figure,
    "Three rows of a batch: 6 prompt columns, padded on the left, and 5 completion "
    "columns, padded on the right, where the mask is 0. Arrows lead from a position to "
    "the next token, which it predicts.",
)

# %% [markdown]
# The shift by one is where hand-written trainers go wrong: the logits at position t belong to token t + 1. In code:

# %%
def token_logprobs(logits: torch.Tensor, ids: torch.Tensor, T: int) -> torch.Tensor:
    """log pi of the last T tokens: logits (B, P + T, V), ids (B, P + T) -> (B, T)."""
    before = logits[:, -T - 1 : -1]  # the position before each of these tokens
    return before.log_softmax(-1).gather(-1, ids[:, -T:, None]).squeeze(-1)


logits = torch.tensor(
    [[[2.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]], requires_grad=True
)
ids, A = torch.tensor([[3, 0, 1, 2]]), 1.5  # a prompt of one token, an answer of three
logp = token_logprobs(logits, ids, T=3)
(-A * logp.sum()).backward()
pushes = [-logits.grad[0, t, token].item() for t, token in enumerate([0, 1, 2])]
print("pi of each token:   ", [round(x, 2) for x in logp.exp()[0].tolist()])
print("push on its logit:  ", [round(push, 2) for push in pushes])

# %% [markdown]
# All tokens of an answer share its advantage, and each is pushed by $A\,(1 - \pi)$: a nearly certain token hardly moves,
# a surprising one moves most.
#
# ## The whole objective
#
# This is what GRPO maximises ([DeepSeekMath](https://arxiv.org/abs/2402.03300), equation 3). For a question, sample $n$
# answers $o_1, \ldots, o_n$; then
#
# $$
# J(\theta) = \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|o_i|} \sum_{t=1}^{|o_i|} \Bigl(
# \min\bigl(\rho_{i,t}\, A_i,\; \mathrm{clip}(\rho_{i,t},\, 1 - \varepsilon,\, 1 + \varepsilon)\, A_i\bigr)
# - \beta\, D_{i,t} \Bigr)
# $$
#
# | term | is | because |
# | --- | --- | --- |
# | $A_i$ | the advantage of answer $i$ | the group is the baseline |
# | $\rho_{i,t} = \pi_\theta / \pi_{old}$ | the **ratio**: probability of token $t$ now, over that when it was sampled | a batch may be used for several updates |
# | clip and min | no gradient once the ratio has left $1 \pm \varepsilon$ in the wanted direction | an old sample says little about a policy that has moved far |
# | $D_{i,t}$ | an estimate of the KL divergence from a frozen **reference** | keeps the policy near the model before training |
# | $1/\lvert o_i \rvert$ and $1/n$ | from tokens to one number | here the loss types differ |
#
# The next sections take them one by one. At a ratio of 1 and $\beta = 0$ the gradient is that of $A \log \pi$: REINFORCE
# with the group as its baseline.
#
# ## The ratio: when does it leave 1?
#
# With one update for each batch, the policy that learns is the one that sampled: every ratio is 1. But sampling is the
# slow part, so one would like to use a batch for more. TRL has two ways:

# %% tags=["hide-input"]
plans = {  # settings: (micro-batches, how many to an optimizer step)
    "default: steps_per_generation = gradient_accumulation_steps (here 4)": (4, 4),
    "num_iterations = 2: the same completions again": (8, 4),
    "steps_per_generation = 8: twice as many, in two steps": (8, 4),
}
figure, panels = figures.new_panels(8.5, 3.6, 3)
for axes, (title, (batches, every)) in zip(panels, plans.items()):
    long = 4 if "twice" in title else 2  # sampling takes longer for more completions
    axes.barh(0, long - 0.1, 0.8, color=figures.PALE["data"])
    axes.text(long / 2, 0, "sample", ha="center", va="center", fontsize=9)
    for i in range(batches):
        kind, ratio = ("check", "= 1") if i < every else ("number", "≠ 1")
        axes.barh(0, 0.9, 0.8, left=long + i, color=figures.PALE[kind])
        number = i % 4 + 1 if "again" in title else i + 1
        axes.text(long + i + 0.45, 0.1, str(number), ha="center", fontsize=9)
        axes.text(long + i + 0.45, -0.28, f"ratio {ratio}", ha="center", fontsize=6.5)
        if (i + 1) % every == 0:
            axes.plot(long + i + 0.95, 0.55, "v", color=figures.BLUE, ms=8)
    axes.set(xlim=(0, 12.1), ylim=(-0.45, 0.75))
    axes.set_title(title, loc="left", fontsize=9)
    axes.axis("off")
figure.suptitle("Ratios leave 1 after the first optimizer step (blue) on a batch")
figures.show(
    figure,
    "Three time lines of sampling and micro-batches, 4 to an optimizer step. By "
    "default one step follows and all ratios are 1. With num_iterations 2, or with "
    "steps_per_generation 8, a second step follows, where the ratios are not 1.",
)

# %% [markdown]
# In the third plan no completion is used twice; the second half is simply learned from by a policy that has already
# moved. With vLLM, TRL also multiplies by a second ratio, trainer over vLLM, because the two engines compute slightly
# different probabilities (chapter 10).
#
# ## The clip
#
# A token's loss is
#
# $$-\min\bigl(\rho A,\ \mathrm{clip}(\rho, 1 - \varepsilon_{low}, 1 + \varepsilon_{high})\, A\bigr).$$

# %% tags=["hide-input"]
ratios = torch.linspace(0.4, 1.8, 141)
figure, panels = figures.new_panels(8.5, 3.4, 2, 2)
titles = ("A = +1: no push above 1.2", "A = -1: no push below 0.8")
for axes, A, title in zip(panels, (1.0, -1.0), titles):
    objective = torch.minimum(ratios * A, ratios.clamp(0.8, 1.2) * A)
    axes.axvspan(0.8, 1.2, color=figures.PALE["data"], lw=0)
    axes.plot(ratios, ratios * A, "--", color=figures.GREY, label=r"$\rho A$")
    axes.plot(ratios, objective, color=figures.BLUE, lw=2.5, label="objective")
    axes.set_xticks([0.4, 0.8, 1, 1.2, 1.8], ["0.4", "1 - ε", "1", "1 + ε", "1.8"])
    axes.set(xlabel="ratio", title=title)
panels[0].set_ylabel("objective of a token")
panels[0].axvline(1.28, color=figures.ORANGE, ls=":")
panels[0].text(1.3, 0.5, "DAPO: 1.28", color=figures.ORANGE)
panels[0].text(1.34, 1.08, "flat: no gradient", color=figures.BLUE)
panels[1].text(0.4, -1.05, "flat: no gradient", color=figures.BLUE)
panels[0].legend(frameon=False, loc="upper left")
figures.show(
    figure,
    "Two panels of the objective over the ratio, 0.8 to 1.2 shaded. For A = +1 it "
    "rises with the ratio and is flat above 1.2 (DAPO: 1.28); for A = -1 it is flat "
    "below 0.8 and falls from there.",
)

# %% [markdown]
# Flat means no gradient: the token has moved far enough the way its advantage wants. A token that moved the *wrong* way
# keeps its full gradient, however far it went. That is what the minimum is for. DAPO raises only the upper bound, to
# 1.28 ("clip-higher"), because a rare token reaches 1 + ε after a tiny change in probability.

# %% [markdown]
# ### Exercise 01.2 · `clipped_loss` · medium · 12 minutes
#
# The clipped loss of every token, (B, T), from log-probabilities now (`logp`) and at sampling time (`old_logp`), both
# (B, T), and `A` (B,), the advantage of each answer. The check also takes gradients in `logp`.

# %% tags=["exercise"]
def clipped_loss(
    logp: "torch.Tensor", old_logp: "torch.Tensor", A: "torch.Tensor",
    low: float = 0.2, high: float = 0.2,
) -> "torch.Tensor":
    raise NotImplementedError


check("01.2", clipped_loss);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The ratio is `(logp - old_logp).exp()`. Give `A` a second dimension. `Tensor.clamp` clips, and `minimum` compares two
# tensors.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def clipped_loss(
#     logp: "torch.Tensor", old_logp: "torch.Tensor", A: "torch.Tensor",
#     low: float = 0.2, high: float = 0.2,
# ) -> "torch.Tensor":
#     ratio, A = (logp - old_logp).exp(), A.unsqueeze(1)
#     return -(ratio * A).minimum(ratio.clamp(1 - low, 1 + high) * A)
# ```
#
# </details>

# %% [markdown]
# ## Staying near the reference
#
# The penalty measures how far the policy has moved from the frozen reference, by the Kullback-Leibler (KL) divergence.
# Only sampled tokens are known, so it is estimated. With $d = \log \pi_{ref} - \log \pi$ of a sampled token, three
# estimators are common: $k_1 = -d$, $k_2 = d^2/2$ and $k_3 = e^d - d - 1$.
#
# Two questions must be kept apart: is its *value* right on average, and is its *gradient* right when it is used as a
# loss? On a vocabulary of three tokens both have exact answers. (`p` weighs each token by how often it is sampled.)

# %%
from grpo_workbook.grpo import kl_estimate

policy = torch.tensor([0.7, 0.2, 0.1]).log().requires_grad_()  # its logits
reference = torch.tensor([0.1, 0.3, 0.6]).log()
log_p = policy.log_softmax(0)
p = log_p.detach().exp()


def gradient(loss: torch.Tensor) -> list[float]:
    return torch.autograd.grad(loss, policy, retain_graph=True)[0].tolist()


divergence = (log_p.exp() * (log_p - reference)).sum()  # KL(policy || reference)
reverse = (reference.exp() * (reference - log_p)).sum()  # KL(reference || policy)
k = {kind: kl_estimate(log_p, reference, kind) for kind in ("k1", "k2", "k3")}
value = {kind: (p * each.detach()).sum().item() for kind, each in k.items()}
slope = {"exact KL": gradient(divergence)}
slope |= {kind: gradient((p * each).sum()) for kind, each in k.items()}
slope["k3 x ratio"] = gradient((p * (log_p - log_p.detach()).exp() * k["k3"]).sum())
slope["reverse KL"] = gradient(reverse)
for name, numbers in slope.items():
    print(f"{name:10}", *[f"{number:7.3f}" for number in numbers])

# %% [markdown]
# These were the gradients in the three logits. As pictures, with the values beside them:

# %% tags=["hide-input"]
figure, (left, right) = figures.new_panels(9.0, 3.3, 2, 2)
d = torch.linspace(-2, 2, 81)
shapes = {"k1": -d, "k2": d.square() / 2, "k3": d.exp() - d - 1}
for (name, shape), (colour, dash, _) in zip(shapes.items(), figures.STYLES):
    label = f"{name}: mean {value[name]:.2f}"
    left.plot(d, shape, dash, color=colour, lw=2, label=label)
left.axhline(0, color="black", lw=0.8)
title = f"Value: k1 and k3 average to {divergence.item():.2f}, k2 does not"
left.set(xlabel="d = log reference - log policy", ylim=(-2, 4.4))
left.set_title(title, fontsize=10)
left.legend(frameon=False)
shades = ["black", *[style[0] for style in figures.STYLES[:3]], "#56B4E9", figures.GREY]
for i, ((name, numbers), shade) in enumerate(zip(slope.items(), shades)):
    places = [token + 0.14 * (i - 2.5) for token in range(3)]
    right.bar(places, numbers, 0.13, color=shade, label=name)
right.axhline(0, color="black", lw=0.8)
right.set(xticks=range(3), xticklabels=["token 1", "token 2", "token 3"])
right.set_title("Gradient: k2 and k3 x ratio are right", fontsize=10)
right.legend(frameon=False, fontsize=8)
figures.show(
    figure,
    f"Left: k1, k2, k3 over d; means {value['k1']:.2f}, {value['k2']:.2f}, "
    f"{value['k3']:.2f}, exact {divergence.item():.2f}. Right: gradients in three "
    "logits: k2 and k3 x ratio equal the exact KL's, k1 is 0, k3 is the reverse KL's.",
)

# %% [markdown]
# | estimator | its value | its gradient as a loss |
# | --- | --- | --- |
# | k1 | right on average, but negative for many tokens | 0 on average: no penalty at all (it works *inside the reward*, as PPO uses it) |
# | k2 | biased | right: that of KL(policy \|\| reference) |
# | k3 | right on average, never negative | that of the *reverse* divergence, KL(reference \|\| policy) |
# | k3 times the ratio | as k3 | right |
#
# DeepSeekMath uses k3. TRL 1.15 multiplies it by the ratio (`use_bias_correction_kl`, on by default), and so does our
# `grpo_loss`. For rewards that a program checks, many leave the penalty out (`beta=0.0`, TRL's default): there is no
# reward model to over-optimise, and you save the reference.

# %% [markdown]
# ### Exercise 01.3 · `kl_penalty` · medium · 10 minutes
#
# The mean of k3 over the tokens that the mask keeps, all arguments (B, T). The check takes gradients of what you
# return: the policy must get one, the frozen reference none, even where `ref_logp` could carry one.

# %% tags=["exercise"]
def kl_penalty(
    logp: "torch.Tensor", ref_logp: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    raise NotImplementedError


check("01.3", kl_penalty);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `tensor.detach()` has the same numbers and no gradient. Multiply by the mask, then divide by its sum.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def kl_penalty(
#     logp: "torch.Tensor", ref_logp: "torch.Tensor", mask: "torch.Tensor"
# ) -> "torch.Tensor":
#     d = ref_logp.detach() - logp
#     return ((d.exp() - d - 1) * mask).sum() / mask.sum()
# ```
#
# </details>

# %% [markdown]
# ## Loss types: what a token weighs
#
# The objective takes the mean over an answer's tokens, then over answers. Other loss types differ in two places: how
# tokens become one number, and what happens to a ratio far from 1. The gradient of the loss in a token's
# log-probability is that token's weight, so autograd can draw it. Four answers of 4, 7, 11 and 16 tokens, each with an
# advantage of 1, in a batch that is used a second time, so that the ratios have left 1:

# %%
from grpo_workbook import grpo_loss

lengths, LIMIT = torch.tensor([4, 7, 11, 16]), 20
mask = (torch.arange(16) < lengths[:, None]).float()
torch.manual_seed(4)
moved = 0.13 * torch.randn(4, 16)  # logarithms of the ratios
kinds = {  # TRL's settings that make each of them
    'loss_type="grpo"': {"loss_type": "grpo"},
    'loss_type="dr_grpo"': {"loss_type": "dr_grpo"},
    'loss_type="dapo" or "bnpo"': {"loss_type": "dapo"},
    'GSPO: level "sequence"': {"loss_type": "grpo", "level": "sequence"},
    'loss_type="cispo", cap 1.2': {"loss_type": "cispo", "epsilon_high": 1.2},
}
weight = {}
for name, how in kinds.items():
    if "GSPO" in name:
        how = how | {"epsilon_low": 0.03, "epsilon_high": 0.03}
    logp = torch.zeros(4, 16, requires_grad=True)
    limit = {"max_completion_length": LIMIT, "old_logp": -moved}
    loss, _ = grpo_loss(logp, torch.ones(4), mask, **limit, **how)
    weight[name] = -torch.autograd.grad(loss, logp)[0]

# %% [markdown]
# One row is one answer, one bar is one token: the higher, the more it weighs. Except under GSPO, the bars of a row
# differ, because a token's weight is multiplied by its ratio. A cross marks a token that was clipped.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.5, 5.6, 6, 3)
panels[5].axis("off")
note = "row: an answer, its length\nbar: a token's weight\n×: clipped, no gradient"
panels[5].text(0.1, 0.5, note, va="center", transform=panels[5].transAxes)
for axes, (name, values) in zip(panels, weight.items()):
    unit = 0.8 / max(each.max() for each in weight.values()).item()
    for row, n in enumerate(lengths.tolist()):
        heights = [unit * w for w in values[row, :n].tolist()]
        axes.bar(range(n), heights, 0.85, bottom=3 - row, color=figures.BLUE)
        gone = [t for t in range(n) if heights[t] == 0]
        axes.plot(gone, [3.12 - row] * len(gone), "x", color=figures.ORANGE, ms=5)
        axes.axhline(3 - row, color="black", lw=0.6)
    axes.set(xlim=(-1, 16), ylim=(-0.05, 4), xticks=[], yticks=[3, 2, 1, 0])
    axes.set_yticklabels([4, 7, 11, 16], fontsize=8)
    axes.set_title(name, fontsize=9)
    axes.spines["left"].set_visible(False)
figure.suptitle("grpo and GSPO give the tokens of short answers more weight")
gone = ", ".join(str(int((w[mask == 1] == 0).sum())) for w in weight.values())
figures.show(
    figure,
    "Five panels of four answers, a bar for each token's weight. Under grpo and GSPO "
    "bars shrink with the answer's length; under the other types all that are not "
    f"clipped are about alike. Clipped of 38 tokens, panel by panel: {gone}.",
)

# %% [markdown]
# | name | what it was made for | what it changes | in TRL |
# | --- | --- | --- | --- |
# | GRPO | no critic | mean over an answer's tokens, then over answers | `loss_type="grpo"` |
# | [Dr. GRPO](https://arxiv.org/abs/2503.20783) | wrong answers that grow longer, because each of their many tokens is blamed little | divides by a constant, the longest allowed completion; no deviation in the advantage | `loss_type="dr_grpo"`, `scale_rewards="none"` |
# | [DAPO](https://arxiv.org/abs/2503.14476) | long chains of thought and falling entropy | every token of the step counts the same; clip-higher; dynamic sampling; answers cut off at the limit are masked or softly punished | only partly, see below |
# | BNPO in TRL | (no paper) | as `dapo`, but counts the tokens of one micro-batch, not of the step | `loss_type="bnpo"` |
# | [GSPO](https://arxiv.org/abs/2507.18071) | mixtures of experts, whose token ratios are noisy | one ratio for the whole answer, the geometric mean of its tokens' | `importance_sampling_level="sequence"`, `loss_type="grpo"`, `epsilon=3e-4`, `epsilon_high=4e-4` |
# | [CISPO](https://arxiv.org/abs/2506.13585) | rare but important tokens that lose their gradient to clipping | caps a token's weight, but keeps its gradient | `loss_type="cispo"`, `epsilon_high=5.0` |
#
# **`loss_type="dapo"`, TRL's default and this course's, is not DAPO.** It is only DAPO's way to count tokens. DAPO also
# needs `epsilon_high=0.28`, `mask_truncated_completions=True` (or a reward for length, chapter 03), and *dynamic
# sampling*: zero-variance groups are thrown away and sampled anew until the batch is full. TRL 1.15 has no switch for
# the last. TRL's `bnpo` is not the method of the paper of that name either.
#
# GSPO's ratio is a mean over the answer's tokens, so it stays nearer to 1 than most of them do. That is why its bounds
# are so narrow (the picture uses 0.03 to show an answer clipped as a whole). AdamW cancels a constant factor, so
# `dr_grpo`'s smaller weights matter only where gradients are clipped to a norm.

# %% [markdown]
# ## The training step
#
# All the pieces come together in a few lines: a forward pass, the shift, the loss, the gradient, the update.

# %% [markdown]
# ### Exercise 01.4 · `training_step` · hard · 20 minutes
#
# One update with `dapo`'s reduction: the sum of the tokens' losses over the sum of the mask. `model(ids)` gives logits
# (B, P + T, V); `ids` is (B, P + T), `mask` (B, T), and `A` (B,). It is the first update on this batch, so the ratio is
# 1 and $-A \log \pi$ has the same gradient as the clipped loss. The check looks at the weights after one step and after
# two.

# %% tags=["exercise"]
def training_step(
    model: "torch.nn.Module", optimizer: "torch.optim.Optimizer",
    ids: "torch.Tensor", mask: "torch.Tensor", A: "torch.Tensor",
) -> None:
    raise NotImplementedError


check("01.4", training_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take `token_logprobs` from above. Clear the old gradients, call `backward` on the loss, then let the optimizer step.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def training_step(
#     model: "torch.nn.Module", optimizer: "torch.optim.Optimizer",
#     ids: "torch.Tensor", mask: "torch.Tensor", A: "torch.Tensor",
# ) -> None:
#     T = mask.shape[1]
#     log_p = model(ids)[:, -T - 1 : -1].log_softmax(-1)
#     logp = log_p.gather(-1, ids[:, -T:, None]).squeeze(-1)
#     loss = -(logp * A.unsqueeze(1) * mask).sum() / mask.sum()
#     optimizer.zero_grad()
#     loss.backward()
#     optimizer.step()
# ```
#
# </details>

# %% [markdown]
# ## A real model
#
# `ScratchTrainer` is this step with a batch around it: it samples groups, scores them, computes advantages, updates, and
# logs. Here is its heart, and the sampling:

# %%
from grpo_workbook import ScratchTrainer, show

show(ScratchTrainer.step, ScratchTrainer.rollout)

# %% [markdown]
# The policy is the course's tiny Qwen3, which can do the arithmetic but seldom writes it in the form that is asked for.
# Its own weights stay frozen; beside each matrix a small pair of matrices is trained, a **LoRA adapter** (chapter 04).
# The reward is 2 for the right number in an answer block and up to 1 for the form (chapter 03), so 3 at most.

# %%
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_workbook import config, data, load_problems, parse_rewards, to_dataset

TINY = config.DATA / "tiny-qwen3"
tokenizer = AutoTokenizer.from_pretrained(TINY)
rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
spec = "correctness:2,strict_format:0.5,incremental_format:0.5"
rewards, reward_weights = parse_rewards(spec)
lora = LoraConfig(
    r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
)


def new_trainer(rewards=rewards, weights=reward_weights, **settings) -> ScratchTrainer:
    """A trainer with a fresh adapter: groups of 8, 8 prompts a step, loss "dapo"."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    model = get_peft_model(base, lora)
    settings = {"learning_rate": 2e-3} | settings
    return ScratchTrainer(model, tokenizer, rewards, weights, **settings)


trainer = new_trainer()
trainer.model.print_trainable_parameters()

# %% [markdown]
# A batch: eight problems, eight answers each. Here are a few answers, then the rewards of all eight groups, from best to
# worst.

# %%
from statistics import mean, stdev

torch.manual_seed(1)
batch = trainer.rollout(rows[:8])
scores = trainer.score(rows[:8], batch["texts"])
print(rows[0]["question"])
for text, score in list(zip(batch["texts"], scores))[:4]:
    print(f"{score:6.3f}  {' '.join(text.split())[:90]}")
print()
for first in range(0, len(scores), 8):
    group = sorted(scores[first : first + 8], reverse=True)
    shown = " ".join(f"{score:5.3f}" for score in group)
    print(f"{shown}   mean {mean(group):.2f}   deviation {stdev(group):.2f}")

# %% [markdown]
# Before any update, these are the loss and the norm of its gradient for each loss type:

# %%
from grpo_workbook import grpo

advantage = group_advantages(scores, 8)
logp = trainer.logprobs(trainer.model, batch)
for kind in grpo.LOSS_TYPES:
    settings = {"max_completion_length": 64, "loss_type": kind}
    settings["epsilon_high"] = 5.0 if kind == "cispo" else 0.2
    loss, _ = grpo_loss(logp, advantage, batch["mask"], **settings)
    parts = torch.autograd.grad(loss, trainer.trained, retain_graph=True)
    norm = torch.stack([part.norm() for part in parts]).norm()
    print(f"{kind:8} loss {loss.item():8.4f}   gradient norm {norm.item():.4f}")

# %% [markdown]
# `grpo` shows 0, because advantages sum to 0 in each group and every ratio is 1. The other types weigh answers by
# length, and CISPO's value holds log-probabilities: these numbers are not 0, and mean as little. **The loss says
# nothing; the gradient moves the model.** A gradient of 0 in every step is a dead run.
#
# ## One batch, five updates: clipping acts
#
# Now use this batch five times. `clip_low` and `clip_high` are the fractions of tokens below 0.8 with A < 0 and above
# 1.2 with A > 0. TRL logs them as `clip_ratio/low_mean` and `clip_ratio/high_mean`.

# %%
from grpo_workbook.grpo import policy_ratio

with torch.no_grad():
    old_logp = trainer.logprobs(trainer.model, batch)
ratios, sequence_ratios, kept = [], [], batch["mask"].bool()
for update in range(1, 6):
    logp = trainer.logprobs(trainer.model, batch)
    loss, logged = grpo_loss(logp, advantage, batch["mask"], old_logp=old_logp)
    given = logp.detach(), old_logp, batch["mask"]
    ratios.append(policy_ratio(*given)[kept])
    sequence_ratios.append(policy_ratio(*given, level="sequence").flatten())
    clipped = f"low {logged['clip_low']:.1%}  high {logged['clip_high']:.1%}"
    low, high = ratios[-1].min().item(), ratios[-1].max().item()
    print(f"update {update}  clipped {clipped}  ratios {low:.2f} to {high:.2f}")
    trainer.optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trainer.trained, 1.0)
    trainer.optimizer.step()

# %% [markdown]
# The ratios of all tokens, and GSPO's ratios of whole answers, before the second and before the fifth update:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(8.5, 3.2, 2, 2)
edges = torch.logspace(-1, 1, 41).tolist()
outside = [(r.sub(1).abs() > 0.2).float().mean().item() for r in (ratios[1], ratios[4])]
pairs = {"tokens": (ratios[1], ratios[4])}
pairs["answers (GSPO)"] = sequence_ratios[1], sequence_ratios[4]
for axes, (name, (second, fifth)) in zip(panels, pairs.items()):
    axes.axvspan(0.8, 1.2, color=figures.PALE["data"], lw=0)
    for r, colour, label in ((second, figures.GREY, 2), (fifth, figures.BLUE, 5)):
        r, how = r.clamp(0.1, 10).tolist(), {"color": colour, "alpha": 0.6}
        axes.hist(r, edges, log=name == "tokens", label=f"update {label}", **how)
    axes.set(ylabel=f"number of {name}", xscale="log")
    ticks = [0.1, 0.4, 0.8, 1.2, 3, 10]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
figure.supxlabel("ratio (edge bars: 0.1 and less, 10 and more)", fontsize=10)
panels[0].set_title("Most tokens stay near 1, some move far")
panels[1].set_title("Answers move less, and mostly down")
panels[0].legend(frameon=False)
low, high = sequence_ratios[4].min().item(), sequence_ratios[4].max().item()
figures.show(
    figure,
    "Histograms of ratios before updates 2 and 5, 0.8 to 1.2 shaded. Outside are "
    f"{outside[0]:.1%}, then {outside[1]:.1%} of the tokens. The answers' ratios lie "
    f"between {low:.2f} and {high:.2f} before update 5.",
)

# %% [markdown]
# In update 1 all ratios are 1 and nothing is clipped. One optimizer step later, 8 % of the tokens have no gradient, and
# in update 5 it is 11 %. The extremes are tokens of bad answers that have become nearly impossible, and rare tokens that
# have become likely. An answer's ratio is a mean over its tokens, so it moves less, but here much more than GSPO's
# 3e-4: this learning rate is large, as tiny models need it. Exercise 01.5 asks whether reuse pays.
#
# ## Train it
#
# Measure first. *Strict* means right and well-formed; the 480 held-out problems are not among those it trains on.
# Chapter 04 loads this model in 4 bits and samples different answers, so its number before training differs a little;
# the two intervals overlap.

# %%
from grpo_workbook import evaluate, statistics, wilson_interval

heldout = to_dataset(load_problems(data.WORD_PROBLEMS["heldout"]))
trainer = new_trainer()


def strictly_right() -> list:
    found = evaluate(trainer.model, tokenizer, heldout, max_new_tokens=64, sample=True)
    low, high = wilson_interval(found.strict)
    accuracy = statistics.accuracy(found.strict)
    print(f"strict, sampled: {accuracy:.1%}, 95 % interval {low:.1%} to {high:.1%}")
    return found.strict


before = strictly_right()

# %% [markdown]
# Now 40 steps of 64 answers, one update each. `train` is a generator: it yields each step's metrics.

# %%
from tqdm import tqdm

start, log = time.time(), []
steps = trainer.train(rows[: 40 * 8])
with tqdm(steps, total=40, desc="training", unit="step", ncols=80) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(reward=f"{metrics['reward']:.2f}", kl=f"{metrics['kl']:.2f}")
seconds = time.time() - start
epoch = {key: mean(m[key] for m in log) for key in ("reward", "kl")}
print(f"the epoch: reward {epoch['reward']:.2f}, KL {epoch['kl']:.3f}")
after = strictly_right()

# %% [markdown]
# Beside it stand 40 steps of TRL's trainer, through Unsloth, with the same model, problems, rewards, batch size and
# learning rate (but with a warm-up of five steps). `data/trl_curve.json` stores its curve;
# `python data/build_trl_curve.py` runs it again. Thick lines are means over 7 steps, centred.

# %%
import json

import pandas as pd

trl = json.loads((config.DATA / "trl_curve.json").read_text())
table = pd.DataFrame(log).set_index("step")
table["TRL's reward"] = trl["reward"][: len(log)]
wanted = {
    "The reward rises, as TRL's does": ["reward", "TRL's reward"],
    "Groups agree more": ["reward_std", "group_std", "frac_reward_zero_std"],
    "The KL stays small, with jumps": ["kl"],
    "The loss ends near 0, which says little": ["loss"],
}
figure, panels = figures.new_panels(9.0, 5.2, 4, 2)
for axes, (title, names) in zip(panels, wanted.items()):
    for name, (colour, dash, _) in zip(names, figures.STYLES):
        middle = table[name].rolling(7, center=True, min_periods=1).mean()
        axes.plot(table.index, table[name], color=colour, alpha=0.25, lw=1)
        axes.plot(table.index, middle, dash, color=colour, lw=2, label=name)
    axes.set(title=title, xlabel="step")
    axes.legend(frameon=False, fontsize=8)
edge = {name: (table[name][:5].mean(), table[name][-5:].mean()) for name in table}
seen = ("reward", "TRL's reward", "reward_std", "group_std", "kl", "loss")
words = "; ".join(f"{n} {edge[n][0]:.2f} to {edge[n][1]:.2f}" for n in seen)
figures.show(figure, f"Four metrics over 40 steps, first to last 5 steps: {words}.")
print("TRL", trl["versions"]["trl"], "strict, sampled:", trl["strict_sampled"])

# %% [markdown]
# Read the second panel with care. `reward_std` is TRL's metric: the deviation of *all* rewards of the batch. It is above
# 0 even when no group has any variance, as long as the groups differ from each other. What is learned from is within the
# groups: `frac_reward_zero_std`, the fraction of zero-variance groups, says how many teach nothing. `group_std`, the
# mean deviation within groups, is logged by our trainer only. The KL jumps, because k3 grows with $\pi_{ref} / \pi$: one
# sampled token that the *policy* finds nearly impossible, and the reference does not, can make most of a step's k3. The
# loss starts below 0 only because at first the better answers were the longer ones, and `dapo` counts tokens.
#
# The two runs see different problems and samples, so expect them to agree only as well as two random seeds do. On the
# *same* answers losses and gradients agree to 1e-5, for all loss types: `tests/test_grpo.py`. TRL adds everything else:
# several GPUs, vLLM, chat templates, checkpoints. From chapter 04 on, the course trains with it.
#
# ## Rounds with a refreshed reference
#
# Trained for long, a policy leaves its first reference far behind, and a penalty would only hold it back. Iterative
# GRPO makes the policy itself the next reference and goes on. Two rounds of four steps with `beta` 0.04:

# %%
trainer.beta = 0.04
trainer.refresh_reference()  # a frozen copy of the model as it is now
for number in (1, 2):
    for m in trainer.train(rows[320:352]):
        place = f"round {number}  step {m['step']}"
        print(f"{place}  reward {m['reward']:.2f}  KL {m['kl']:.4f}")
    trainer.refresh_reference()

# %% [markdown]
# At the start of each round the KL is 0 again. Our trainer copies the whole model. With adapters there are cheaper
# ways, and they differ: stock TRL 1.15 turns the adapters off if it made them itself, and keeps a frozen copy of those
# that it was given. **Unsloth on a GPU removes that copy**, so there the reference is the base model and a new round
# refreshes nothing. Chapter 07 makes the copy itself.
#
# ## What GRPO saves
#
# PPO's critic is usually as large as the policy, with its own gradients and optimizer state. RLHF, learning from human
# preferences, adds a reward model. The next cell counts bytes after one AdamW step; activations come on top everywhere.

# %%
from transformers import AutoModelForTokenClassification


def megabytes(trained: list, frozen: list) -> float:
    """MB of all weights, and of the trained ones' gradients and AdamW's state."""
    held = [p for m in [*trained, *frozen] for p in m.parameters()]
    for m in trained:
        weights = [p for p in m.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(weights)
        m(input_ids=torch.ones(1, 4, dtype=torch.long)).logits.sum().backward()
        optimizer.step()
        state = [t for s in optimizer.state.values() for t in s.values()]
        held += [p.grad for p in weights] + state
    return sum(t.numel() * t.element_size() for t in held) / 1e6


def language_model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")


def one_number():  # a critic or a reward model: the same network with one output
    shape = trainer.model.config
    return AutoModelForTokenClassification.from_config(shape, dtype=torch.float32)

# %% [markdown]
# All networks have the tiny model's size here, in float32:

# %%
lm, critic = language_model, one_number
needs = {
    "PPO, reward model (RLHF)": megabytes([lm(), critic()], [lm(), critic()]),
    "PPO, verifiable reward": megabytes([lm(), critic()], [lm()]),
    "GRPO with KL penalty": megabytes([lm()], [lm()]),
    "GRPO, beta 0": megabytes([lm()], []),
    "GRPO, beta 0, LoRA": megabytes([new_trainer().model], []),
    "SFT": megabytes([lm()], []),
    "DPO": megabytes([lm()], [lm()]),
}
for name, value in needs.items():
    times = value / needs["GRPO with KL penalty"]
    print(f"{name:26} {value:6.1f} MB   {times:.2f} x GRPO with KL penalty")

# %% [markdown]
# The other difference is the judge: a reward model has learned what people prefer, a **verifiable reward** is a program
# that checks. How long does each take for the 64 answers of a batch?

# %%
judge = one_number().eval()


def milliseconds(function, times: int = 10) -> float:
    start = time.perf_counter()
    for _ in range(times):
        function()
    return (time.perf_counter() - start) / times * 1e3


def ask_the_judge():
    with torch.no_grad():
        judge(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])


rules = milliseconds(lambda: trainer.score(rows[:8], batch["texts"]))
print(f"three rules {rules:.1f} ms")
print(f"a reward model of the policy's size {milliseconds(ask_the_judge):.1f} ms")

# %% [markdown]
# | | reward model (RLHF) | verifiable reward |
# | --- | --- | --- |
# | costs | one more model in memory, and a forward pass for each answer | the time of the rules, whatever the model |
# | needs | many human comparisons | a reference answer, a unit test, a format |
# | judges | style, helpfulness, tone | what a program can check, and nothing else |
# | fails by | flattery: the policy finds what the judge overrates; a KL penalty slows that down | loopholes in the rules |
#
# Rewards for single steps do not require PPO: DeepSeekMath (section 4.1.3) describes GRPO with a reward for each step,
# and TRL's loss accepts advantages for each token. A common order is SFT until the model is right now and then, and
# GRPO from there. A model that never succeeds gives GRPO nothing to compare. Chapter 00 says which method suits what you
# have, [chapter 12](12_which_algorithm.ipynb) compares SFT, DPO, GRPO and PPO with numbers, and
# [chapter 13](13_learned_rewards.ipynb) trains a reward model and a critic.

# %% [markdown] tags=["remove-cell"]
# This cell is for automatic checks: it fails if the model was not trained or did not learn.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
from grpo_workbook.run_config import RunConfig

run = RunConfig.from_env()
run.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": len(log),
    "before": statistics.accuracy(before),
    "after": statistics.accuracy(after),
    "train_seconds": round(seconds, 1),
    "log": log,
}
(run.output / "notebook_01.json").write_text(json.dumps(proved, indent=2))
assert [m["step"] for m in log] == list(range(1, 41))
assert all(m["tokens"] > 0 for m in log)
assert sum(m["grad_norm"] > 0 for m in log) > 30
assert proved["after"] >= 0.8 and proved["before"] < 0.35, "the model did not learn"
assert outside[1] > 0 and ratios[0].sub(1).abs().max() < 1e-4, "no ratio left 1"

# %% [markdown]
# ## Exercises
#
# The last two are experiments. Write your prediction first; only then does the cell train.

# %% [markdown]
# ### Exercise 01.5 · `reuse` · medium · 10 minutes
#
# Four batches, each used for one update or for four. Sampling costs the same. Is the policy with four updates
# `"better"`, `"the same"` or `"worse"` on held-out problems? ("The same": within two standard errors.) Then change the
# run: 16 updates, or ten times the learning rate.

# %% tags=["exercise"]
prediction = ...  # "better", "the same" or "worse"


def run() -> dict:
    """Four batches of 64 answers: held-out answers right, with 1 and 4 updates each."""
    found, problems = {}, heldout.select(range(160))
    for name, updates in {"once": 1, "four times": 4}.items():
        trainer = new_trainer(inner_epochs=updates)
        for metrics in trainer.train(rows[: 4 * 8]):
            clipped = metrics["clip_low"] + metrics["clip_high"]
            print(f"{name}: reward {metrics['reward']:.2f}, last clipped {clipped:.1%}")
        how = {"max_new_tokens": 64, "sample": True}
        strict = evaluate(trainer.model, tokenizer, problems, **how).strict
        found[name] = sum(strict)
    return found | {"problems": len(problems)}


predict("01.5", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Four updates of Adam against 16. The clip stops a token once its ratio has moved by 20 %; look at the table of the
# five updates above: how many tokens is that?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "better"
# ```
#
# Most tokens stay within the clip, so the later updates still teach. After four updates the model is far from what its
# rewards allow, so more of them should help. If your run says "the same", measure on all 480 problems.
#
# </details>

# %% [markdown]
# ### Exercise 01.6 · `own_reward` · medium · 20 minutes
#
# A task of your own: a reward that says **nothing about the right number**. The default asks for short answers. Write
# yours if you like: no digit 7, many exclamation marks, another language's words. Predict what happens to the fraction
# of right numbers while your reward rises: `"rises"`, `"stays"` (within two standard errors) or `"falls"`.

# %% tags=["exercise"]
prediction = ...  # "rises", "stays" or "falls"


def my_reward(completions, **columns) -> list[float]:
    """Your task: 1 for an answer of up to 25 characters, less for longer ones."""
    return [min(1.0, 25 / max(1, len(c[0]["content"]))) for c in completions]


def run() -> dict:
    """12 steps with this reward alone: lenient counts right numbers in any form."""
    trainer, problems = new_trainer(my_reward, None), heldout.select(range(160))
    right = []
    for prompts in (rows[: 12 * 8], []):
        how = {"max_new_tokens": 64, "sample": True}
        found = evaluate(trainer.model, tokenizer, problems, **how)
        right.append(sum(found.lenient))
        if prompts:
            log = list(trainer.train(prompts))
    first, last = (mean(m["reward"] for m in part) for part in (log[:3], log[-3:]))
    error = log[0]["reward_std"] * (2 / (3 * 64)) ** 0.5
    moved = {"reward": [first, last], "error": error}
    return moved | {"problems": len(problems), "right": right}


predict("01.6", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What does the model have to leave out to be rewarded, and what was that good for?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "falls"
# ```
#
# A short answer leaves no room for the steps of the calculation, and without them the number is a guess. A reward
# pulls on everything that is connected with it, not only on what you had in mind. Chapter 03 attacks rewards on
# purpose.
#
# </details>

# %% [markdown]
# ## Summary
#
# - REINFORCE makes sampled answers likelier by their reward. A baseline keeps its gradient unbiased and takes out noise;
#   GRPO's baseline is the group's mean, which replaces PPO's critic.
# - Groups whose answers all earn the same teach nothing, and small groups bias the advantage. Dividing by the group's
#   deviation makes any difference full-sized.
# - The ratio leaves 1 when a batch serves several optimizer steps. Clipping then stops tokens that have moved far enough
#   the right way and leaves the way back open.
# - k3's value is right and its gradient is not; times the ratio both are.
# - `grpo` weighs answers equally, `dapo` and `dr_grpo` tokens. `loss_type="dapo"` is only a part of DAPO.
# - The loss shows about 0: watch rewards, gradient norms and `frac_reward_zero_std`.
#
# Sources: [REINFORCE](https://link.springer.com/article/10.1007/BF00992696),
# [PPO](https://arxiv.org/abs/1707.06347), [RLOO](https://arxiv.org/abs/2402.14740),
# [DeepSeekMath](https://arxiv.org/abs/2402.03300) (GRPO), [Schulman's note](http://joschu.net/blog/kl-approx.html) (k1,
# k2, k3), [DeepSeek-V3.2](https://arxiv.org/abs/2512.02556) (k3 times the ratio),
# [RLHF](https://arxiv.org/abs/2203.02155), [DPO](https://arxiv.org/abs/2305.18290). TRL knows three more loss types:
# sapo, luspo and vespo.
#
# Next: [02 · Dataset preparation](02_dataset_prep.ipynb) makes the rows that such a trainer reads. In
# [04 · A GRPO run you can trust](04_grpo_run.ipynb) Unsloth and TRL train in 4-bit.
