# %% [markdown]
# # 01 · GRPO from scratch
#
# How does GRPO turn a handful of rewards into a change of the model's weights? In this chapter you write the pieces
# of GRPO, see them put together in a trainer of about 80 lines, train a small Qwen with it, and do the same in
# TRL.
#
# **After this notebook you can** derive GRPO from REINFORCE, write its advantages, ratio, clipping, KL penalty and
# training step, and read any GRPO trainer.
#
# **Time:** about 2 minutes on two CPU cores (the stored run was made on a slower machine, so its progress bars show a
# longer time); reading takes 40 minutes, the exercises a good hour. The chapter needs no GPU. **You need** chapter 00,
# PyTorch's tensors and `backward()`.
#
# Every cell also runs if you skip the exercises.

# %% [markdown]
# ## Why write a trainer that exists already
#
# TRL's trainer is a single call, and this call runs without an error even when the model learns nothing. Perhaps all
# answers to a question earned the same reward, so that none looked better. Or a penalty pulled the model back to where
# it started. Each such case comes from one line of the trainer. Once you have written this line, you know which number
# to look at when a run fails.
#
# ## A policy with four answers
#
# A toy model is asked "What is 3 + 4?" and knows only four answers. Its **policy** $\pi$ gives each answer a
# probability: the softmax of four numbers, the logits. Every answer earns 3 points for its form; the right one earns 1
# more. Training should raise the expected reward, $J = \sum_a \pi(a)\, r(a)$. With only four answers we can compute its
# gradient exactly:

# %%
import torch

from grpo_workbook import quiet, use_one_thread

quiet()
use_one_thread()
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
# An expectation can be estimated by a mean over samples. So sample answers, and raise the probability of each one in
# proportion to its reward. This is **REINFORCE**, the basic **policy gradient**; GRPO and PPO refine it. Written as a
# loss to minimise, it is $-r \log \pi$. In the next cell `weigh` turns rewards into the weights of this loss;
# `unchanged` leaves them as they are. The cell prints the probability of "7" at steps 0, 5, 10, 20, 40 and 59, for
# three seeds.

# %%
def learn(weigh, seed=0, steps=60, group=8, learning_rate=0.5):
    """The probability of "7" before each step of gradient descent."""
    torch.manual_seed(seed)
    logits = torch.zeros(4, requires_grad=True)
    right = []
    for _ in range(steps):
        logp = logits.log_softmax(0)
        probabilities = logp.detach().exp()
        right.append(probabilities[2].item())
        sampled = torch.multinomial(probabilities, group, replacement=True)
        weights = weigh(REWARDS[sampled])
        loss = -(weights * logp[sampled]).mean()
        (gradient,) = torch.autograd.grad(loss, logits)
        logits = (logits - learning_rate * gradient).detach().requires_grad_()
    return right


def unchanged(rewards):
    return rewards


for seed in range(3):
    curve = learn(unchanged, seed)
    print(f"seed {seed}:", *[f"{curve[step]:.2f}" for step in (0, 5, 10, 20, 40, 59)])

# %% [markdown]
# The policy learns, but not steadily: with seed 1 it first *unlearns* "7". All rewards are positive, so each sample
# raises the probability of its own answer, right or wrong. Luck decides which answer gains, until the extra point of
# "7" has added up over many steps.
#
# ## The baseline: why a mean may be subtracted
#
# Subtract the same number $b$ from every reward. The expected gradient does not change, because the probabilities add
# up to 1, and the gradient of this constant is 0:
#
# $$
# \mathbb{E}\bigl[\, b\, \nabla \log \pi(a)\, \bigr] = b \sum_a \nabla \pi(a) = b\, \nabla \sum_a \pi(a) = b\, \nabla 1
# = 0 .
# $$
#
# This holds for every $b$ that does not depend on the sampled answer. Such a number is called a **baseline**. It keeps
# the estimate **unbiased**, that is, right on average, and can make it far less noisy: with $b = 3.25$ the rewards 3
# and 4 become -0.25 and 0.75.
#
# The next cell samples 20,000 groups of 8 answers at the start of the training. From each group it estimates one
# number, the gradient in the logit of "7", with four choices: no baseline, the expected reward 3.25, for each answer
# the mean reward of the 7 *other* answers, and the mean of the whole group.
#
# The cell needs one formula, the **softmax rule**: the gradient of $\log \pi(a)$ is $1 - \pi(a)$ in the logit of $a$
# itself, and $-\pi(b)$ in the logit of another answer $b$. Here every $\pi$ is 1/4. So the gradient in the logit of "7"
# is 0.75 if "7" was sampled, and -0.25 if not.

# %%
torch.manual_seed(0)
sampled = torch.randint(4, (20_000, 8))  # (groups, answers)
rewards = REWARDS[sampled]
# the gradient of log pi(answer) in the logit of "7"
gradient_of_7 = (sampled == 2).float() - 0.25
group_mean = rewards.mean(dim=1, keepdim=True)
others_mean = (rewards.sum(dim=1, keepdim=True) - rewards) / 7
baselines = {
    "none": 0.0,
    "expected\nreward": 3.25,
    "mean of other\nanswers": others_mean,
    "mean of\nthe group": group_mean,
}
measured = {}
for name, baseline in baselines.items():
    measured[name] = ((rewards - baseline) * gradient_of_7).mean(dim=1)  # (groups,)

# %% [markdown]
# On the left, the figure shows the means of the 20,000 estimates with their 95 % intervals (black) and the exact
# gradient (dashed). On the right is the standard deviation of the estimates (their noise).

# %% tags=["hide-input"]
from grpo_workbook import figures

means = [estimates.mean().item() for estimates in measured.values()]
spreads = [estimates.std().item() for estimates in measured.values()]
errors = [1.96 * spread / 20_000**0.5 for spread in spreads]  # of the means
figure, (left, right) = figures.new_panels(8.0, 3.2, 2, 2)
colours = [figures.GREY] + [figures.BLUE] * 3
labels = [(left, means, "center", "white"), (right, spreads, "edge", "black")]
for axes, values, place, colour in labels:
    bars = axes.bar(list(measured), values, 0.7, color=colours)
    look = {"label_type": place, "color": colour, "fontsize": 9}
    axes.bar_label(bars, fmt="%.3f", padding=3, **look)
    axes.tick_params(axis="x", labelsize=8)
left.errorbar(range(4), means, errors, fmt="none", ecolor="black", capsize=4)
left.axhline(exact[2].item(), color="black", lw=1, ls="--")
left.set(title="Only the group's mean is biased", ylim=(0, 0.24))
left.set_ylabel("mean estimate of the gradient")
right.set(title="Every baseline removes most noise", ylim=(0, 0.7))
right.set_ylabel("standard deviation")
figures.show(
    figure,
    "Two bar charts, for no baseline, the expected reward, the other answers' mean and "
    f"the group's mean. Mean gradient: {', '.join(f'{v:.3f}' for v in means)}; exact: "
    f"{exact[2]:.4f}; only the last interval misses it. "
    f"Deviation: {', '.join(f'{v:.3f}' for v in spreads)}.",
)

# %% [markdown]
# On the right, every baseline brings the noise from 0.57 to below 0.09.
#
# On the left, the first three estimates are right on average: their intervals contain the exact gradient. Only the
# estimate with the group's mean is too small, because this mean contains the answer's own reward $r$. Let $m$ be the
# mean of the other 7. Then the group's mean is $(7m + r) / 8$, and $r$ minus this is $\tfrac{7}{8}(r - m)$. So the
# estimate has the same direction and is only shorter, as if the learning rate were lower.
#
# Three methods differ in where the baseline comes from:
#
# - **PPO** trains a second network, the **critic**, to predict the reward to expect. It is usually as large as the
#   policy, with gradients and an optimizer state of its own ([chapter 10](10_scale_out.ipynb) counts the memory).
# - **RLOO** samples several answers to the same question and takes the mean reward of the other answers.
# - **GRPO** takes the mean reward of all $n$ answers, the answer itself included; so each distance is $(n - 1) / n$ of
#   RLOO's.
#
# GRPO replaces the critic by a comparison within the group. Hence the name: Group Relative Policy Optimization.
#
# ## The group's advantages
#
# GRPO also divides by the group's standard deviation. So every group with some variance pushes about equally hard,
# whatever the scale of its rewards. The result is the **advantage** of answer $i$:
#
# $$A_i = \frac{r_i - \mathrm{mean}(r_1, \ldots, r_n)}{\mathrm{std}(r_1, \ldots, r_n) + 10^{-4}}$$
#
# The standard deviation is computed with n - 1 in the denominator, as in `Tensor.std` and TRL. The small number keeps
# the division safe when all rewards are equal. A group with equal rewards is a **zero-variance group**: all its
# advantages are 0, so it teaches nothing.

# %% [markdown]
# ### Exercise 01.1 · `advantages` · easy · 8 minutes
#
# Return the advantages of a batch of groups. `rewards` has the shape (B,), for B answers: one group after the other,
# with `group_size` rewards each. The advantages have the same order.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def advantages(rewards: "torch.Tensor", group_size: int) -> "torch.Tensor":
    raise NotImplementedError


check("01.1", advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `rewards.view(-1, group_size)` has one group in each row. `mean` and `std` take `dim=1, keepdim=True`.
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
# Now import the course's own version of this function, and train the toy model with each kind of weight: the bare
# reward, the reward minus the group's mean, and the advantage.

# %%
from grpo_workbook import group_advantages


def minus_the_mean(rewards):
    return rewards - rewards.mean()


def as_advantages(rewards):
    return group_advantages(rewards, group_size=len(rewards))


weights = {
    "reward": unchanged,
    "minus the mean": minus_the_mean,
    "advantage": as_advantages,
}
curves = {}
for name, weigh in weights.items():
    curves[name] = torch.tensor([learn(weigh, seed) for seed in range(20)])

# %% [markdown]
# The figure shows the probability of the right answer at each step. Lines are means over 20 seeds, and each band
# contains 80 % of the seeds.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.0, 3.4)
looks = ((figures.GREY, "--"), (figures.ORANGE, "-."), (figures.BLUE, "-"))
ends = []
for (name, runs), (colour, dash) in zip(curves.items(), looks):
    low, high = runs.quantile(torch.tensor([0.1, 0.9]), dim=0)
    axes.fill_between(range(60), low, high, color=colour, alpha=0.15, lw=0)
    axes.plot(runs.mean(dim=0), dash, color=colour, label=name, lw=2)
    ends.append(f"{name}, {low[10]:.2f} to {high[10]:.2f}")
axes.set(xlabel="step", ylabel='probability of "7"', ylim=(0, 1.02))
axes.set_title("Without a baseline, learning depends on the seed")
axes.legend(frameon=False, loc="lower right")
figures.show(
    figure,
    "Line chart of the probability of the right answer over 60 steps, 20 seeds each. "
    f"80 % of the seeds lie, after 10 steps, within: {'; '.join(ends)}.",
)

# %% [markdown]
# Without a baseline the seeds differ widely (the grey band); with the group's mean subtracted they differ little. In
# this toy, the division by the standard deviation works like a higher learning rate: at first the rewards have a
# standard deviation of about 0.43, so the division more than doubles the weights.
#
# ### Which standard deviation?
#
# With several groups in a batch, the division also decides how much each group counts. TRL's `scale_rewards` chooses
# the standard deviation: that of the `"group"`, that of the whole `"batch"`, or none at all (`"none"`). The mean that
# is subtracted is always the group's.
#
# The figure shows three groups of four answers, a bar for each answer: first the rewards (a 0 has no visible bar), then
# the advantages under each setting.

# %% tags=["hide-input"]
batch = [1, 1, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0]
heights = {"rewards": batch}
for scale in ("group", "batch", "none"):
    heights[f'"{scale}"'] = group_advantages(batch, group_size=4, scale=scale).tolist()
places = [i + i // 4 for i in range(12)]  # a gap between the groups
figure, panels = figures.new_panels(9.0, 2.9, 4, 4)
words = []
for axes, (name, values) in zip(panels, heights.items()):
    colour = figures.GREY if name == "rewards" else figures.BLUE
    axes.bar(places, values, 0.9, color=colour)
    axes.axhline(0, color="black", lw=0.8)
    axes.set(xticks=[1.5, 6.5, 11.5], xticklabels=["1", "2", "3"], title=name)
    axes.set_ylim(-1, 3.1)
    axes.set_ylabel("reward" if name == "rewards" else "advantage", fontsize=9)
    words.append(f"{name}: " + ", ".join([f"{value:.2f}" for value in values]))
figure.supxlabel("group", fontsize=10)
figure.suptitle('scale_rewards="group": a reward of 3 weighs as much as one of 1')
figures.show(figure, f"Three groups, rewards, then advantages. {'; '.join(words)}.")

# %% [markdown]
# With `"group"`, and only there, the third group has the same advantages as the second, although its reward is three
# times as large. Rewards of 0.1, 0, 0, 0 would give nearly the same advantages, too. So even a tiny difference within a
# group leads to advantages of full size. Chapter 03 shows how a tiny style reward takes over a run.

# %% [markdown]
# ## From answers to tokens
#
# A language model writes an answer token by token, so $\log \pi(\mathrm{answer})$ is a sum: for each token, its
# log-probability given all tokens before it. One forward pass gives the log-probabilities of all tokens.
#
# A batch is a rectangle: prompts are padded on the left, so that all **completions** (the tokens of the answers) begin
# in the same column, and completions are padded on the right. The **mask** is 1 for each token of a completion and 0
# for the padding after it. In the figure, cells of prompts are blue, those of completions orange, and padding is grey.

# %% tags=["hide-input"]
shown = [  # three rows of a batch: padding, prompt, completion, padding
    ["", "", "3", "+", "4", "?", "It", "is", "7", "end", ""],
    ["5", "-", "1", "+", "2", "?", "6", "end", "", "", ""],
    ["", "", "9", "-", "2", "?", "9-2", "=", "7", "so", "7"],
]
figure, (axes,) = figures.new_panels(8.5, 3.0)
for y, row in enumerate(shown):
    for x, token in enumerate(row):
        colour = figures.PALE["data"] if x < 6 else figures.PALE["number"]
        if token == "":
            colour = figures.PALE["off"]
        axes.barh(-y, 0.96, 0.8, left=x, color=colour)
        axes.text(x + 0.48, -y + 0.08, token, ha="center", va="center")
        if x >= 6:
            mask = f"mask {int(token != '')}"
            axes.text(x + 0.48, -y - 0.28, mask, ha="center", va="center", fontsize=7)
line = {"arrowstyle": "->", "connectionstyle": "arc3,rad=-0.5", "color": figures.BLUE}
for x in range(5, 9):  # the position before a token predicts it
    axes.annotate("", (x + 1.4, 0.42), (x + 0.55, 0.42), arrowprops=line)
axes.text(7.5, 0.95, "position t predicts token t + 1", color=figures.BLUE, ha="center")
axes.text(3, 0.6, "prompt, P columns", ha="center")
axes.text(8.5, -2.75, "completion, T columns", ha="center")
axes.set(xlim=(0, 11), ylim=(-3, 1.2))
axes.axis("off")
axes.set_title("Only the tokens of the completions are trained")
words = "Three rows of a batch: 6 prompt columns, padded on the left, and 5 completion "
words += "columns, padded on the right (mask 0). A position predicts the next token."
figures.show(figure, words)

# %% [markdown]
# The third completion has no end token, because it was cut off at the longest allowed length.
#
# The logits at position t belong to token t + 1. The next function takes care of this shift by one. (V is the size of
# the vocabulary.)
#
# All tokens of an answer share its advantage. Do they also learn equally fast? Below the function, the cell tries an
# answer of three tokens, with logits set by hand and an advantage $A$ of 1.5. The **push** on a token is the negative
# gradient of the loss $-A \log \pi$ in the token's logit. By the softmax rule, it is $A\,(1 - \pi)$.

# %%
def token_logprobs(logits: torch.Tensor, ids: torch.Tensor, T: int) -> torch.Tensor:
    """log pi of the last T tokens: logits (B, P + T, V), ids (B, P + T) -> (B, T)."""
    before = logits[:, -T - 1 : -1]  # the position before each of these tokens
    tokens = ids[:, -T:, None]
    return before.log_softmax(-1).gather(-1, tokens).squeeze(-1)


logits = torch.zeros(1, 4, 4)  # a prompt of one token, an answer of three
logits[0, 0, 0] = 2.0  # position 0 favours token 0, which comes next
logits[0, 1, 1] = 1.0  # position 1 favours token 1 a little
logits.requires_grad_()
ids = torch.tensor([[3, 0, 1, 2]])
A = 1.5
logp = token_logprobs(logits, ids, T=3)
(-A * logp.sum()).backward()
for position, token in enumerate([0, 1, 2]):
    probability = logp[0, position].exp()
    push = -logits.grad[0, position, token]
    print(f"pi of the token {probability:.2f}   push on its logit {push:.2f}")

# %% [markdown]
# They do not learn equally fast: the likelier a token is, the smaller its push (0.43 at a probability of 0.71, 1.12 at
# 0.25).
#
# ## The ratio and the clip
#
# May a batch be used more than once? Sampling is the slowest part of training, so one would like to take several
# optimizer steps with the same answers. But after the first step the policy has changed. From then on it learns
# **off-policy**, from answers of an older policy, $\pi_{old}$.
#
# The **ratio** of a token, $\rho = \pi / \pi_{old}$, is its probability now, divided by its probability when it was
# sampled. In the first step every ratio is 1, and GRPO is **on-policy**.
#
# From the second step on, it corrects for the old sample: the answers were drawn with the probabilities $\pi_{old}$,
# but we want the mean reward under $\pi$. Take a whole answer $a$ first: one that is now twice as likely must count
# twice, so its weight is $w(a) = \pi(a) / \pi_{old}(a)$. Then the mean is right again, because
# $\sum_a \pi_{old}(a)\, w(a)\, r(a) = \sum_a \pi(a)\, r(a)$. For an answer of many tokens this weight is the product of
# its tokens' ratios; GRPO weights each token by its own ratio only, as an approximation.

# %% [markdown]
# ### The clip
#
# The ratio can be trusted only while $\pi$ is near $\pi_{old}$: far from it, a few tokens with large ratios decide the
# whole gradient. So the **clip** takes away the gradient of a token whose probability has already moved far enough in
# the wanted direction, which is up if $A > 0$ and down if $A < 0$. "Far enough" is set by two small numbers,
# $\varepsilon_{low}$ and $\varepsilon_{high}$. The loss of a token is
#
# $$-\min\bigl(\rho A,\ \mathrm{clip}(\rho, 1 - \varepsilon_{low}, 1 + \varepsilon_{high})\, A\bigr).$$
#
# Read it for $A > 0$. Above $1 + \varepsilon_{high}$ the clipped product is the smaller one; it is constant, so the
# gradient is 0. Below $1 - \varepsilon_{low}$ the unclipped product $\rho A$ is the smaller one, so the token keeps its
# gradient: it moved in the *wrong* direction and may come back.
#
# In the figure, the solid line is the objective of a token, which is minus its loss. The dashed line is the objective
# without the clip. The shaded range is 1 - ε to 1 + ε, for ε = 0.2.

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
panels[0].text(1.34, 1.08, "no gradient", color=figures.BLUE)
panels[1].text(0.42, -0.93, "no gradient", color=figures.BLUE, fontsize=9)
panels[0].legend(frameon=False, loc="upper left")
figures.show(
    figure,
    "Two panels of the objective over the ratio, 0.8 to 1.2 shaded. For A = +1 it "
    "rises with the ratio and is flat above 1.2; for A = -1 it is flat below 0.8 and "
    "falls from there.",
)

# %% [markdown]
# Where the solid line is flat, the token has no gradient. In the wrong direction it is nowhere flat.
#
# <details><summary>For the curious: a token that has moved far in the wrong direction</summary>
#
# The gradient of $\rho A$ with respect to the token's log-probability is $\rho A$ itself. So it shrinks with $\rho$ for
# a good token: one that has become 100 times rarer has 1/100 of its gradient left. For a bad token it grows without a
# bound: one that has become 40 times likelier has 40 times the gradient. TRL's `delta`, off by default, is a bound for
# this case: a bad token whose ratio is above it has no gradient.
#
# </details>
#
# <details><summary>For the curious: when TRL uses a batch more than once</summary>
#
# `num_iterations=2` uses the same completions again. With `steps_per_generation` above `gradient_accumulation_steps`,
# TRL samples more completions at once and uses them in several steps.
#
# </details>

# %% [markdown]
# ### Exercise 01.2 · `clipped_loss` · medium · 12 minutes
#
# Return the clipped loss of every token, (B, T). `logp` and `old_logp`, both (B, T), are the log-probabilities now and
# at sampling time; `A` (B,) is the advantage of each answer; `low` and `high` are $\varepsilon_{low}$ and
# $\varepsilon_{high}$ of the formula above, and the check makes them different. It also compares gradients with respect
# to `logp`.

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
# A penalty can keep the policy near the **reference**, a frozen copy of the model before training. It adds $\beta$
# times the Kullback-Leibler (KL) divergence of the policy from the reference to the loss.
#
# The exact divergence at a position is a sum over the whole vocabulary, which takes much memory for every token of a
# batch. So trainers estimate it from the log-probabilities of the sampled tokens alone. DeepSeekMath uses an estimate
# called k3. With $d = \log \pi_{ref} - \log \pi$ of a sampled token, it is
#
# $$k_3 = e^d - d - 1 .$$
#
# This number is 0 if the two policies agree about the token, and never negative. Its mean over tokens that the policy
# samples is the divergence, so its *value* is right. But as a *loss* it has the gradient of the divergence in the other
# direction, of the reference from the policy. This one, too, is smallest where both agree, so it still pulls the policy
# back. TRL corrects this ("For the curious", at the end of this chapter); our trainer does not.
#
# Is the penalty needed? A learned reward model may become wrong as the policy moves away from the reference; there the
# penalty is useful. An exact check by a program stays right, so many runs with such rewards leave the penalty out
# (`beta=0.0`, TRL's default), and then no reference is needed. But a program that checks less than you want can be
# fooled, too (exercise 01.6, chapter 03).

# %% [markdown]
# ### Exercise 01.3 · `kl_penalty` · medium · 10 minutes
#
# Return the mean of k3 over the tokens whose mask is 1; all arguments are (B, T). The check computes gradients of your
# result: the policy must get a gradient, and the frozen reference must get none, even if `ref_logp` could carry one.

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
# ## The whole objective
#
# Now every term of GRPO's objective is known ([DeepSeekMath](https://arxiv.org/abs/2402.03300), equation 3). For a
# question, sample $n$ answers $o_1, \ldots, o_n$, where $o_i$ has $\lvert o_i \rvert$ tokens. GRPO maximises
#
# $$
# J(\theta) = \frac{1}{n} \sum_{i=1}^{n} \frac{1}{|o_i|} \sum_{t=1}^{|o_i|} \Bigl( \min\bigl(\rho_{i,t}\, A_i,\;
# \mathrm{clip}(\rho_{i,t},\, 1 - \varepsilon,\, 1 + \varepsilon)\, A_i\bigr)
# - \beta\, D_{i,t} \Bigr)
# $$
#
# | term | is | exercise |
# | --- | --- | --- |
# | $A_i$ | the advantage of answer $i$ | 01.1 |
# | $\rho_{i,t}$, clip and min | the ratio of token $t$ of this answer, and its clip (here with one $\varepsilon$ for both bounds) | 01.2 |
# | $\beta\, D_{i,t}$ | the penalty: $\beta$ times k3, the estimate of the KL divergence | 01.3 |
# | $1/\lvert o_i \rvert$ and $1/n$ | the means over the tokens of an answer and over the answers | 01.4 takes another mean |
#
# Trainers differ in the last row (`loss_type` in TRL). The formula takes the mean within each answer first. Exercise
# 01.4 takes one mean over all tokens of the batch, as TRL's default does, so that every token counts the same.
#
# At a ratio of 1 and $\beta = 0$ each token has the gradient of $A_i \log \pi$, times its share in the means. This is
# REINFORCE with the advantage in the place of the reward.

# %% [markdown]
# ## The training step
#
# Your last function puts the pieces together; further below it updates a real model.

# %% [markdown]
# ### Exercise 01.4 · `training_step` · hard · 20 minutes
#
# Write one update of the model. The loss is one mean over all tokens of the batch: the sum of the tokens' losses,
# divided by the sum of the mask. This is the first update on the batch, so the ratio is 1 and you need no clip:
# $-A \log \pi$ has the same gradient as the clipped loss.
#
# `model(ids)` gives logits (B, P + T, V); `ids` is (B, P + T), `mask` (B, T), and `A` (B,). Use `model` only as
# `model(ids)`, because the check and the notebook pass a plain function. The check looks at the weights after one step
# and after two.

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
# You may call `token_logprobs` from above; the solution writes it out. Clear the old gradients, call `backward` on the
# loss, then let the optimizer step.
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
# ## A trainer from your functions
#
# The map shows one training step. Follow the arrows from the top left; orange boxes are your exercises.

# %% tags=["hide-input"]
pale = figures.PALE
white, yours = pale["model"], pale["number"]
boxes = {
    "problems": (0.06, 0.84, "8 problems", pale["data"]),
    "policy": (0.25, 0.84, "policy samples\n8 answers to each", white),
    "rewards": (0.61, 0.84, "rewards", pale["check"]),
    "advantages": (0.87, 0.84, "advantages\n(exercise 01.1)", yours),
    "penalty": (0.4, 0.47, "KL penalty\n(exercise 01.3)", yours),
    "logp": (0.64, 0.47, "log-probabilities:\nnow, old, reference", white),
    "clip": (0.87, 0.47, "ratio and clip\n(exercise 01.2)", yours),
    "loss": (0.64, 0.12, "mean loss\n(exercise 01.4)", yours),
    "update": (0.25, 0.12, "gradient and update\n(exercise 01.4)", yours),
}
arrows = [
    ("problems", "policy", ""), ("policy", "rewards", "64 answers"),
    ("rewards", "advantages", ""), ("policy", "logp", ""),
    ("advantages", "clip", ""), ("logp", "clip", ""), ("logp", "penalty", ""),
    ("clip", "loss", ""), ("penalty", "loss", "times β"), ("loss", "update", ""),
    ("update", "policy", ""),
]
figure = figures.diagram(boxes, arrows, (9.0, 3.6))
figure.suptitle("Your functions turn rewards into an update of the policy")
figures.show(
    figure,
    "A loop: 8 problems go to the policy, which samples 8 answers to each. Rewards "
    "become advantages (exercise 01.1). These and the log-probabilities go through "
    "ratio and clip (01.2); with the KL penalty (01.3) they give one mean loss, whose "
    "gradient updates the policy (01.4).",
)

# %% [markdown]
# Now train a real model. The policy is the course's tiny Qwen3 ([its card](../data/tiny-qwen3/README.md)), which has
# learned by imitating right answers. It saw thousands of word problems of ten common kinds, but only four worked
# examples of each of six **rare** kinds, so it answers most of these wrongly. We train it on problems of the rare kinds
# and measure it on others of these kinds. In the next cell:
#
# - `profile` names the model and contains the settings of its runs: `"smoke"` are those for two CPU cores, and
#   `load_in_4bit=False` keeps the weights in full precision.
# - `select_true` keeps the problems of the rare kinds; `to_dataset` makes rows with `prompt` and `answer`.
# - `lora` describes a **LoRA adapter** (chapter 04): the model's own weights stay frozen, and beside each matrix a
#   small pair of matrices is trained.
#
# Ignore the line that Unsloth prints.

# %%
import unsloth  # for the run in TRL below; it must come before Transformers
from grpo_workbook import choose_profile, data, load_problems, to_dataset
from grpo_workbook.data.splitting import select_true
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

profile = choose_profile("smoke", load_in_4bit=False)
tokenizer = AutoTokenizer.from_pretrained(profile.model, padding_side="left")
train_problems = load_problems(data.WORD_PROBLEMS["train"])
heldout_problems = load_problems(data.WORD_PROBLEMS["heldout"])
train_set = to_dataset(select_true(train_problems, "rare"))
heldout = to_dataset(select_true(heldout_problems, "rare"))
rows = list(train_set)
lora = LoraConfig(
    r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
)


def new_policy():
    """The tiny model with a fresh adapter."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(profile.model, dtype="float32")
    return get_peft_model(base, lora)


policy = new_policy()
policy.print_trainable_parameters()

# %% [markdown]
# The next cell takes each of your functions that solves its exercise, and the course's solution for the others. The
# trainer calls the first three. It can make several updates of a batch, so it writes exercise 01.4 out; `update_once`
# has its turn when we compare learning rates.

# %%
from grpo_workbook.exercises import ch01, judge


def choose(number, yours, solution):
    """Your function if it solves its exercise, else the solution."""
    if judge(number, yours).status == "solved":
        print(f"exercise {number}: your {yours.__name__}")
        return yours
    print(f"exercise {number}: the solution of {yours.__name__}")
    return solution


compute_advantages = choose("01.1", advantages, group_advantages)
compute_losses = choose("01.2", clipped_loss, ch01.correct_clipped_loss)
compute_kl = choose("01.3", kl_penalty, ch01.correct_kl_penalty)
update_once = choose("01.4", training_step, ch01.correct_training_step)

# %% [markdown]
# **First part: sample groups.** Every prompt is repeated eight times, `render` writes each copy as the text that the
# model reads, and the policy continues it at temperature 1, that is, with the probabilities that it really gives to the
# tokens. `top_k=0` and `top_p=1.0` switch off two filters, so no token is left out.
#
# <details><summary>For the curious: another temperature</summary>
#
# At another temperature the logits must be divided by it before `log_softmax`, as in TRL. Otherwise the
# log-probabilities are not those of the policy that sampled.
#
# </details>

# %%
from grpo_workbook import render


def sample_groups(policy, rows, group_size=8):
    """Answers to each row: all ids (B, P + T), the answers' mask (B, T), the texts."""
    chats = []
    for row in rows:
        chats.extend([row["prompt"]] * group_size)
    prompts = tokenizer(
        render(chats, tokenizer), return_tensors="pt", padding=True,
        add_special_tokens=False,
    )
    ids = policy.generate(
        **prompts, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
        max_new_tokens=64,
    )
    answers = ids[:, prompts["input_ids"].shape[1] :]
    mask = (answers != tokenizer.pad_token_id).float()  # 1 for the end token, too
    return ids, mask, tokenizer.batch_decode(answers, skip_special_tokens=True)


def compute_logits(policy, ids):
    """Logits (B, P + T, V): what exercise 01.4 calls `model(ids)`."""
    attention_mask = (ids != tokenizer.pad_token_id).long()
    return policy(input_ids=ids, attention_mask=attention_mask).logits


def logprobs(policy, ids, T):
    """The policy's log-probabilities of the last T tokens, (B, T)."""
    return token_logprobs(compute_logits(policy, ids), ids, T)

# %% [markdown]
# **Second part: reward them.** An answer earns 2 for the right number in an answer block, 0.5 for the whole form, and
# up to 0.5 for the single tags (chapter 03), so at most 3. This model nearly always writes the requested form, so most
# of its answers earn 1 or 3.

# %%
from grpo_workbook import (
    correctness_reward, incremental_format_reward, strict_format_reward,
)


def score(rows, texts):
    """The reward of each text, (B,); the texts of a row stand together."""
    completions = [[{"role": "assistant", "content": text}] for text in texts]
    group_size = len(texts) // len(rows)
    prompts = []
    answers = []
    for row in rows:
        prompts.extend([row["prompt"]] * group_size)
        answers.extend([row["answer"]] * group_size)
    right = torch.tensor(correctness_reward(completions, answers, prompts))
    whole_form = torch.tensor(strict_format_reward(completions))
    single_tags = torch.tensor(incremental_format_reward(completions))
    return 2 * right + 0.5 * whole_form + 0.5 * single_tags

# %% [markdown]
# Look at a batch of eight problems. The cell prints each different answer to the first one, with its count and reward,
# then the rewards of all eight groups, a group in each line, the highest first.

# %%
torch.manual_seed(1)
ids, mask, texts = sample_groups(policy, rows[:8])
rewards = score(rows[:8], texts)
print(rows[0]["question"])
for text in dict.fromkeys(texts[:8]):  # without repetitions
    reward = rewards[texts.index(text)]
    print(f"{texts[:8].count(text)} x {reward:.3f}  {' '.join(text.split())[:80]}")
print()
for group in rewards.view(8, 8).sort(dim=1, descending=True).values:
    numbers = " ".join([f"{reward:5.3f}" for reward in group])
    print(f"{numbers}   mean {group.mean():.2f}   deviation {group.std():.2f}")

# %% [markdown]
# The reward judges the number and the form, so one answer earns all 3 points with a garbled step, "1 ribbons-6=5". Four
# of these eight groups teach nothing, because all their rewards are equal: in three every answer is wrong, and in
# one every answer is right.
#
# **Third part: the metrics.** The next function measures the rewards, the zero-variance groups, the lengths, and the
# fractions of tokens that were clipped below 0.8 (with A < 0) and above 1.2 (with A > 0).

# %%
def measure(rewards, mask, logp, old_logp, A):
    """Metrics of a step. The names are TRL's, where TRL has them."""
    groups = rewards.view(-1, 8)
    ratio = (logp - old_logp).exp().detach()
    A = A.unsqueeze(1)
    # 0.8 and 1.2 are the default bounds of clipped_loss
    low = ((ratio < 0.8) & (A < 0)) * mask
    high = ((ratio > 1.2) & (A > 0)) * mask
    equal = groups.max(dim=1).values == groups.min(dim=1).values
    return {
        "reward": rewards.mean().item(),
        "group_std": groups.std(dim=1).mean().item(),
        "frac_reward_zero_std": equal.float().mean().item(),
        "tokens": mask.sum(dim=1).mean().item(),
        "clip_low": (low.sum() / mask.sum()).item(),
        "clip_high": (high.sum() / mask.sum()).item(),
    }

# %% [markdown]
# **Fourth part: the update.** The tokens' losses become one number as in exercise 01.4. The reference is the model with
# its adapter switched off. It is needed only for the KL divergence, which is logged even if `beta` is 0. `train` yields
# the metrics of each step.
#
# Two lines are common practice and no part of GRPO: the learning rate falls in a straight line to 0, and
# `clip_grad_norm_` shortens a gradient whose norm is above 1. This has nothing to do with the clip of the ratio.

# %%
def train(policy, rows, steps, reward=score, updates=1, beta=0.0, learning_rate=2e-3):
    """GRPO with 8 problems a step, 8 answers to each. Yields each step's metrics."""
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        trained, learning_rate, betas=(0.9, 0.99), weight_decay=0.0
    )
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = learning_rate * (1 - step / steps)
        problems = rows[8 * step : 8 * step + 8]
        ids, mask, texts = sample_groups(policy, problems)
        T = mask.shape[1]
        rewards = reward(problems, texts)
        A = compute_advantages(rewards, 8)
        with torch.no_grad():
            old_logp = logprobs(policy, ids, T)
            with policy.disable_adapter():
                ref_logp = logprobs(policy, ids, T)
        for _ in range(updates):
            logp = logprobs(policy, ids, T)
            loss = (compute_losses(logp, old_logp, A) * mask).sum() / mask.sum()
            kl = compute_kl(logp, ref_logp, mask)
            optimizer.zero_grad()
            (loss + beta * kl).backward()
            norm = torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
        numbers = {"step": step + 1, "loss": loss.item(), "grad_norm": norm.item()}
        yield {**numbers, "kl": kl.item(), **measure(rewards, mask, logp, old_logp, A)}

# %% [markdown]
# ## One batch, five updates: clipping acts
#
# The real run below makes one update of each batch, so its clip never acts. To see it act, use the 64 answers above
# (`ids`, `mask`, `rewards`) for five updates. The loop is the inner one of `train`, with a print before each update; so
# in the first line every ratio is 1.
#
# The output's last line is the share of the tokens with A > 0 that began with a probability above
# $1 / 1.2 = 0.83$. Such a token cannot be clipped high: no probability exceeds 1, so its ratio stays below 1.2.

# %%
ratios = []
trained = [p for p in policy.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, 2e-3, betas=(0.9, 0.99), weight_decay=0.0)
A = compute_advantages(rewards, 8)
with torch.no_grad():
    old_logp = logprobs(policy, ids, mask.shape[1])
for update in range(1, 6):
    logp = logprobs(policy, ids, mask.shape[1])
    loss = (compute_losses(logp, old_logp, A) * mask).sum() / mask.sum()
    ratio = (logp - old_logp).exp().detach()[mask == 1]
    ratios.append(ratio)
    clipped = measure(rewards, mask, logp, old_logp, A)
    print(
        f"update {update}   clipped low {clipped['clip_low']:.1%} high "
        f"{clipped['clip_high']:.1%}   ratios {ratio.min():.2f} to {ratio.max():.2f}"
    )
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step()
good = (mask == 1) & (A > 0).unsqueeze(1)  # the tokens with A > 0
likely = (old_logp.exp()[good] > 1 / 1.2).float().mean()
print(f"tokens with A > 0 that began with a probability above 0.83: {likely:.0%}")

# %% [markdown]
# The histogram counts the ratios of all tokens before the second and the fifth update. Both axes are
# logarithmic. Ratios in the shaded range, 0.8 to 1.2, are never clipped.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.0, 3.0)
edges = (0.8 * 1.5 ** (torch.arange(-21, 26) / 4)).tolist()  # 0.8 and 1.2 are edges
outside = []
axes.axvspan(0.8, 1.2, color=figures.PALE["data"], lw=0)
for update, colour in ((2, figures.ORANGE), (5, figures.BLUE)):
    ratio = ratios[update - 1]
    outside.append((ratio.sub(1).abs() > 0.2).float().mean().item())
    values = ratio.clamp(0.1, 10).tolist()
    label = f"update {update}: {outside[-1]:.0%} outside"
    axes.hist(
        values, edges, log=True, histtype="step", color=colour, lw=2, label=label
    )
ticks = [0.1, 0.4, 0.8, 1.2, 3, 10]
axes.set(xscale="log", ylabel="number of tokens")
axes.set_xlabel("ratio (edge bars: 0.1 and less, 10 and more)")
axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
axes.minorticks_off()
axes.set_title("Most ratios stay near 1, some move far")
axes.legend(frameon=False)
figures.show(
    figure,
    "Histograms of the tokens' ratios before updates 2 and 5, 0.8 to 1.2 shaded. "
    f"Outside are {outside[0]:.1%}, then {outside[1]:.1%} of the tokens.",
)

# %% [markdown]
# Before the second update, 5 % of the ratios lie outside the range, but only 3.1 % of the tokens are clipped (2.9 %
# low, 0.2 % high). The other ratios moved against the advantage of their token, or belong to zero-variance groups,
# whose advantages are 0.
#
# Why are far more tokens clipped low than high?
#
# - In the four groups with some variance, 22 of the 32 answers are wrong and have A < 0.
# - Upwards there is no room: 98 % of the tokens with A > 0 began above 0.83.
# - Downwards there is room: dozens of tokens (the left edge bar) have become at least ten times rarer.
#
# ### How can one update change a token so much?
#
# The largest ratio is 41. Does it come from the learning rate? The next cell tries three of them, each for one update
# of a new policy. All new policies have the same weights, so `old_logp` is right for each. In a first update the ratio
# is 1, so `update_once` can make it.

# %%
def one_update(learning_rate):
    """The tokens' log-probabilities after one update of a new policy, (B, T)."""
    policy = new_policy()
    trained = [p for p in policy.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, learning_rate, weight_decay=0.0)
    update_once(lambda ids: compute_logits(policy, ids), optimizer, ids, mask, A)
    with torch.no_grad():
        return logprobs(policy, ids, mask.shape[1])


for learning_rate in (2e-5, 2e-4, 2e-3):
    logp = one_update(learning_rate)
    change = (logp - old_logp) * mask  # 0 at the padding
    far = (change.exp() - 1).abs() > 0.2
    rate = far.sum() / mask.sum()
    print(f"{learning_rate:g}: {rate:.1%} of the ratios outside 0.8 to 1.2", end=", ")
    print(f"the largest is {change.max().exp():.2f}")

# %% [markdown]
# Which token has the largest ratio? `change` and `logp` belong to the last rate, 2e-3. The next cell prints its answer
# up to this token, and the token's probability before and after the update.

# %%
row, column = divmod(int(change.argmax()), mask.shape[1])
answer = ids[row, -mask.shape[1] :][: column + 1]
print(f"advantage of the answer: {A[row]:.2f}")
print("the answer up to the token:", " ".join(tokenizer.decode(answer).split()))
for name, values in (("before", old_logp), ("after", logp)):
    print(f"probability of the token {name}: {values[row, column].exp():.3f}")

# %% [markdown]
# The token is the 1 at the end of the printed answer, with which the next step of the calculation begins. It stands in
# the only right answer of its group, which therefore has a large advantage, and it had a probability of only 2 %. So
# its push is large, $A\,(1 - \pi) = 2.47 \cdot 0.976 = 2.41$. After one update its probability is nearly 100 %, so the
# ratio of 41 can hardly grow any more. The clip does not undo such a jump. It only takes away the token's own gradient
# in the later updates; Adam's momentum and the gradients of other tokens can still move it.
#
# But one update can go so far only because the step is large. AdamW divides each gradient by its own recent size. So in
# its first step every weight that has a gradient moves by about the full learning rate, however small this gradient is.
# At a learning rate of 2e-5 the largest ratio is 1.21. This is one reason why runs often begin with a **warm-up**, in
# which the learning rate grows from 0.
#
# ## Train it
#
# First measure the model before training. *Strict* means right and well-formed, *lenient* means right in any readable
# form. The model never trains on the 257 held-out problems.

# %%
from grpo_workbook import evaluate

policy = new_policy()


def ask_heldout_problems(policy, problems):
    return evaluate(
        policy, tokenizer, problems, sample=True, max_new_tokens=64,
        batch_size=profile.eval_batch_size,
    )


before = ask_heldout_problems(policy, heldout)
print(before)

# %% [markdown]
# Now make 40 steps, one update each, with 8 new problems in every step. The learning rate begins at 2e-3. This is high,
# as the jumps above show, but 40 steps must be enough. For the adapter of a large model this course begins at 1e-5
# (chapter 04).

# %%
from tqdm import tqdm

torch.manual_seed(0)
log = []
with tqdm(train(policy, rows, steps=40), total=40, unit="step", ncols=80) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(reward=f"{metrics['reward']:.2f}", kl=f"{metrics['kl']:.2f}")
after = ask_heldout_problems(policy, heldout)
print(after)

# %% [markdown]
# The functions chosen above trained a language model: 30 % of its answers were right before, and 50 % are right now.
# *Strict* and *lenient* are the same in both lines, so the model gained right numbers, not the form. The rewards did
# not show the model how to solve a problem; they only told it which of its own answers were right.
# [Chapter 04](04_grpo_run.ipynb) trains longer, and asks where the gain is: on problems that the model sometimes solved
# before, or on others.
#
# ## The same in TRL
#
# TRL's `GRPOTrainer` does the same in one call and adds everything else: several GPUs, vLLM, checkpoints. The settings
# in this table are pieces from above:
#
# | setting | piece | here |
# | --- | --- | --- |
# | `num_generations` | the group size | 8 |
# | `scale_rewards` | the standard deviation in the advantage | `"group"` |
# | `num_iterations` | the number of updates for each batch | 1 |
# | `epsilon` | the clip | 0.2 |
# | `beta` | the weight of the KL penalty | 0.0 |
# | `loss_type` | how the tokens' losses become one number | `"dapo"` |
#
# The course's `profile` already has the values of the last column, which are those of our trainer. The next cell
# changes others, so that both runs have the same number of steps, the same learning rates and the same number of
# answers in a step, and saves no checkpoints. `reward_weights` are the factors 2, 0.5 and 0.5 of `score`. `load_policy`
# loads the model and a fresh adapter with Unsloth.

# %%
from grpo_workbook import RewardBar, load_policy
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

settings = {
    **profile.grpo, "max_steps": 40, "learning_rate": 2e-3, "warmup_steps": 0,
    "per_device_train_batch_size": 64, "save_strategy": "no",
}
args = GRPOConfig(
    output_dir=str(profile.output / "scratch"), reward_weights=[2.0, 0.5, 0.5],
    **settings,
)
trl_policy, _ = load_policy(profile)
trainer = GRPOTrainer(
    trl_policy, [correctness_reward, strict_format_reward, incremental_format_reward],
    args, train_set, processing_class=tokenizer, callbacks=[RewardBar()],
)
trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
trainer.train()
trl_after = ask_heldout_problems(trl_policy, heldout)
print(trl_after)

# %% [markdown]
# The last reward in each bar above is that of one step. The model before training, ours and TRL's answered the same
# held-out problems, so the next cell compares them problem by problem (the paired test of chapter 00): first our
# training, then TRL's run against ours.

# %%
from grpo_workbook import compare

pairs = {"our training": (before, after), "TRL's run minus ours": (after, trl_after)}
for name, (first, second) in pairs.items():
    change = compare(first, second).strict
    low, high = change.gain_interval
    interval = f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}"
    print(f"{name}: {100 * change.gain:+.1f} points ({interval})")
    print(f"  {change.better} gained, {change.worse} lost: p = {change.p_value:.1g}")

# %% [markdown]
# **This training run helped.** It gained 68 problems and lost 18. Chance hardly gives so one-sided a result (p =
# 5e-08).
#
# **Between the two trainers no difference is shown.** After TRL's run 4.3 points fewer of the answers are right, but
# this may be chance (p = 0.3). The interval is wide, so it does not show that both are equally good, either. The two
# runs train on different problems in each step, so they can agree no better than two runs with different seeds.
#
# In the figure, strong lines are means over 7 steps, and pale lines are single steps. The dashed line in the first
# panel is the run in TRL; all else is ours.

# %% tags=["hide-input"]
import pandas as pd

table = pd.DataFrame(log).set_index("step").rename(columns={"reward": "our reward"})
trl_log = [entry for entry in trainer.state.log_history if "reward" in entry]
table["TRL's reward"] = [entry["reward"] for entry in trl_log]
smooth = table.rolling(7, center=True, min_periods=1).mean()
useless = table["frac_reward_zero_std"].mean()
panels_of = {  # title: columns, label of the y axis
    "Both rewards rise, TRL's later": (
        ["our reward", "TRL's reward"], "mean reward, at most 3",
    ),
    f"{useless:.0%} of the groups teach nothing": (
        ["frac_reward_zero_std"], "fraction of groups",
    ),
    "The KL stays small, but for one jump": (["kl"], "k3 in nats per token"),
    "The loss stays near 0, which says little": (["loss"], "loss"),
}
figure, panels = figures.new_panels(9.0, 5.2, 4, 2)
words = []
for axes, (title, (names, label)) in zip(panels, panels_of.items()):
    for name, (colour, dash, _) in zip(names, figures.STYLES):
        values = table[name]
        axes.plot(table.index, values, color=colour, alpha=0.25, lw=1)
        axes.plot(table.index, smooth[name], dash, color=colour, lw=2, label=name)
        start, end = values[:5].mean(), values[-5:].mean()
        words.append(f"{name} {start:.2f} to {end:.2f}")
    axes.set(title=title, xlabel="step", ylabel=label)
panels[0].legend(frameon=False, fontsize=8, loc="lower right")
panels[1].set_ylim(0, 1)
figures.show(figure, f"Four metrics, first to last 5 of 40 steps: {'; '.join(words)}.")

# %% [markdown]
# **The value of the loss does not show progress.** At a ratio of 1 the loss of each token is minus the advantage of its
# answer, and the advantages of a group add up to 0. What is left comes from the different lengths of the answers. But
# the gradient is not 0, and moves the model.
#
# So watch the reward and `frac_reward_zero_std`, the fraction of groups that teach nothing (39 % in our run). Read both
# together: a group teaches nothing when all of its answers are wrong, and also when all of them are right. So the
# fraction can end about where it began, as here, although the reward rose.
#
# TRL's reward rises later than ours. One run of each cannot tell whether this is chance. Each batch had one update and
# `beta` was 0, so neither clip nor penalty acted; `compute_kl` only measured the divergence. Exercises 01.5 and 01.6
# let them act.
#
# <details><summary>For the curious: the jump of the KL curve</summary>
#
# The KL curve jumps at step 12. Why it jumps was not traced. The estimate k3 grows with $\pi_{ref} / \pi$, so a single
# token that the policy rates far less likely than the reference can cause most of a step's KL.
#
# </details>

# %% [markdown]
# ## Exercises
#
# The last two exercises are experiments. Write your prediction first; the cell trains only then.

# %% [markdown]
# ### Exercise 01.5 · `reuse` · medium · 10 minutes
#
# Train on four batches, and use each of them for one update or for four. Both sample equally many answers. Is the
# policy with four updates `"better"`, `"the same"` or `"worse"` on held-out problems? ("The same" means that no
# difference is shown: a paired test gives p of at least 0.05.)
#
# **Then try to do harm**, in two ways. Before each run, predict again, and say whether the clip will prevent the harm:
#
# - *More updates:* change the dictionary to `{"once": 1, "16 times": 16}`.
# - *A higher rate:* go back to four updates, and give `train` the argument
#   `learning_rate=2e-2 if updates > 1 else 2e-3`.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "better", "the same" or "worse"


def run() -> dict:
    """Four batches, 1 and 4 updates of each: which held-out answers are right then."""
    problems = heldout.select(range(160))
    right = {}
    for name, updates in {"once": 1, "four times": 4}.items():  # the dictionary
        policy = new_policy()
        for metrics in train(policy, rows, steps=4, updates=updates):
            clipped = metrics["clip_low"] + metrics["clip_high"]
            print(f"{name}: reward {metrics['reward']:.2f}, last clipped {clipped:.1%}")
        right[name] = list(ask_heldout_problems(policy, problems).strict)
    return right


predict("01.5", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# One run makes four updates of Adam, the other 16. The clip stops a token once its ratio has moved by 20 %, which
# happened to few tokens in the five updates above. But how many of the groups in such a batch teach anything?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "the same"
# ```
#
# In our run (seed 0) 64 of 160 problems were right after one update a batch and 54 after four (p = 0.09). Without
# training 58 were right. Each answer is sampled, so many problems change between two models by chance alone. So a
# difference of 10 problems is not shown, and neither is a gain over no training. This does not show that there is no
# difference. Four batches have 32 groups, and if about half of these teach nothing, the later updates can learn only
# from the few others. To find out whether reuse pays, use all held-out problems and several seeds.
#
# We made each of the two changes once (seed 0). After 16 updates a batch 19 of 160 problems were right, and after four
# updates at the higher rate none: from the second batch on, every answer earned a reward of 0. So both changes did
# harm, and the higher learning rate did more. The clip acts only after a step: it takes the gradient from tokens that
# have already moved far enough, so it softens the later ones of 16 updates. But it cannot make a single step shorter,
# and at the higher rate Adam's first step already moves each weight that has a gradient ten times as far.
#
# </details>

# %% [markdown]
# ### Exercise 01.6 · `own_reward` · medium · 20 minutes
#
# Train with a reward that **does not depend on the right number**, so it must not read the answers in `rows`. While
# this reward rises, what happens to the number of right answers: `"rises"`, `"stays"` (no difference is shown) or
# `"falls"`? The function below rewards short answers; predict, and run the cell.
#
# Then write a reward of your own, and predict again: no digit 7, many plus signs, a long calculation. Some answers must
# earn more than others from the start, or no group teaches anything.
#
# <details><summary>For the curious: let your <code>kl_penalty</code> act</summary>
#
# Put `lambda: run(beta=0.5)` in the place of `run` in the last line. Compare the KL, the length and the number of right
# answers with those of the run without a penalty.
#
# </details>

# %% tags=["exercise"]
prediction = ...  # "rises", "stays" or "falls"


def my_reward(rows, texts) -> "torch.Tensor":
    """1 for an answer of up to 25 characters, less for longer ones."""
    return torch.tensor([min(1.0, 25 / max(1, len(text))) for text in texts])


def run(beta=0.0) -> dict:
    """12 steps with this reward alone: lenient counts right numbers in any form."""
    policy = new_policy()
    start = ask_heldout_problems(policy, heldout.select(range(160)))
    group_means = []  # of each step, the mean rewards of its 8 groups

    def recorded(rows, texts):
        values = my_reward(rows, texts)
        group_means.append(values.view(8, 8).mean(dim=1))
        return values

    *_, last = train(policy, rows, steps=12, reward=recorded, beta=beta)
    print(f"last step: KL {last['kl']:.2f}, {last['tokens']:.0f} tokens")
    end = ask_heldout_problems(policy, heldout.select(range(160)))
    return {
        "right": [list(start.lenient), list(end.lenient)],
        "first": torch.cat(group_means[:3]).tolist(),  # 24 groups, compared with
        "last": torch.cat(group_means[-3:]).tolist(),  # the last 24: a rise?
    }


predict("01.6", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What must the model leave out to earn this reward, and what did it need this part for?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "falls"
# ```
#
# In our run (seed 0) the reward rose from 0.43 to 0.53, and the answers became shorter, from 27 to 17 tokens. Before
# the training 58 of 160 were right and after it 8 (p = 2e-13). A short answer leaves no room for the steps of the
# calculation, and without them the number is a guess. Another reward may need another prediction. Training changes
# everything that raises the reward, not only what you had in mind. Chapter 03 attacks rewards on purpose.
#
# A penalty keeps the policy nearer to the reference, which calculates, so it should cost some of this reward. How much
# of the reward and of the right answers is left depends on `beta`. If the reward no longer rises beyond the noise, the
# cell says so, and prints the numbers of right answers all the same.
#
# </details>

# %% [markdown]
# ## Summary
#
# GRPO compares each reward with the mean of its group. The difference, divided by the group's standard deviation, is
# the answer's advantage. The advantage weighs the log-probability of each token of the answer, and the gradient of this
# loss changes the weights.
#
# - The group's mean is the baseline: it makes REINFORCE's gradient far less noisy, and replaces PPO's critic. It
#   contains the answer itself, so the gradient is a little shorter.
# - A group whose answers all earn the same reward teaches nothing. After the division by the group's standard
#   deviation, even a tiny difference has its full effect.
# - The ratio corrects for answers that an older policy sampled: it leaves 1 when a batch is used for several optimizer
#   steps. The clip then takes the gradient from tokens that have moved far enough in the wanted direction.
# - The loss stays near 0 and does not show progress: watch the reward together with `frac_reward_zero_std`.

# %% [markdown]
# ## For the curious
#
# The next chapter does not need these three questions.
#
# ### Variants of the loss
#
# The objective takes the mean over an answer's tokens, then over answers. Other loss types differ in two places:
#
# - **How the tokens' losses become one number.** `dr_grpo` divides their sum by a constant, the number of answers times
#   the longest allowed completion. `dapo` divides it by the number of tokens of the whole step.
# - **What happens to a ratio far from 1.** GSPO has one ratio for the whole answer, and clips the answer as a whole.
#   `cispo` caps a token's weight but never takes its gradient away.
#
# The **weight** of a token is the gradient of the loss with respect to its log-probability. The folded cell computes it
# with autograd.

# %% tags=["hide-input"]
from grpo_workbook import grpo_loss

lengths = torch.tensor([4, 7, 11, 16])
kept = (torch.arange(16) < lengths[:, None]).float()
torch.manual_seed(4)
moved = 0.13 * torch.randn(4, 16)  # logarithms of the ratios
variants = {  # title: loss type, level, lower and upper bound
    "grpo: 1 / (4 · length)": ("grpo", "token", 0.2, 0.2),
    "dr_grpo: 1 / (4 · 20)": ("dr_grpo", "token", 0.2, 0.2),
    "dapo and bnpo: 1 / 38": ("dapo", "token", 0.2, 0.2),
    "GSPO: 1 / (4 · length)": ("grpo", "sequence", 0.03, 0.03),
    "cispo with a cap of 1.2: 1 / 38": ("cispo", "token", 0.2, 1.2),
}
weight = {}
for title, (loss_type, level, low, high) in variants.items():
    logp = torch.zeros(4, 16, requires_grad=True)
    loss, _ = grpo_loss(
        logp, torch.ones(4), kept, old_logp=-moved, loss_type=loss_type, level=level,
        epsilon_low=low, epsilon_high=high, max_completion_length=20,
    )
    weight[title] = -torch.autograd.grad(loss, logp)[0]

# %% [markdown]
# The figure has four answers of 4, 7, 11 and 16 tokens, each with an advantage of 1, in a batch that is used a second
# time. All panels have the same scale.
#
# Each title gives the weight of a token at a ratio of 1. There are 4 answers, 20 is the longest allowed completion, and
# the batch has 38 tokens. Except under GSPO, the bars of a row differ, because a token's weight is multiplied by its
# ratio.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.5, 6.2, 6, 3)
panels[5].axis("off")
note = "row: an answer\nbar: a token's weight\n×: clipped, no gradient"
panels[5].text(0.1, 0.5, note, va="center", transform=panels[5].transAxes)
highest = max([values.max().item() for values in weight.values()])
counts = []
for axes, (title, values) in zip(panels, weight.items()):
    heights = 0.9 * values / highest
    for row, length in enumerate(lengths.tolist()):
        bottom = 3 - row
        axes.bar(range(length), heights[row, :length], 0.85, bottom, color=figures.BLUE)
        axes.axhline(bottom, color="black", lw=0.6)
        for token in range(length):
            if values[row, token] == 0:
                axes.plot(token, bottom + 0.12, "x", color=figures.ORANGE, ms=5)
    axes.set(xlim=(-1, 16), ylim=(-0.05, 4), xticks=[0, 5, 10, 15], yticks=[3, 2, 1, 0])
    axes.set_yticklabels(["4 tokens", "7", "11", "16"], fontsize=8)
    axes.set_xlabel("position of the token", fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(title, fontsize=9)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines["left"].set_visible(False)
    counts.append(str(int((values[kept == 1] == 0).sum())))
figure.suptitle("grpo and GSPO give the tokens of short answers more weight")
words = "Five panels of four answers, a bar for each token's weight. Under grpo and "
words += "GSPO bars shrink with the length; elsewhere all are about alike. Those of "
words += "dr_grpo are half as high as those of dapo. Clipped of "
figures.show(figure, f"{words}38 tokens, panel by panel: {', '.join(counts)}.")

# %% [markdown]
# Under `grpo` and GSPO a token of the shortest answer weighs about four times as much as one of the longest. Under the
# other three all tokens weigh about the same, so a long answer counts more as a whole. GSPO clips the answer of 7
# tokens as a whole; `cispo` clips no token.
#
# <details><summary>The variants, what each was made for, and how to get it in TRL</summary>
#
# `grpo_workbook/grpo_trainer.py` has the same trainer as a class with all loss types. On the same answers its losses
# and gradients agree with TRL's to 1e-5 (`tests/test_grpo.py`).
#
# | name | what it was made for | what it changes | in TRL |
# | --- | --- | --- | --- |
# | GRPO | no critic | mean over an answer's tokens, then over answers | `loss_type="grpo"` |
# | [Dr. GRPO](https://arxiv.org/abs/2503.20783) | wrong answers that grow longer, because each of their many tokens is penalised little | divides by a constant, the longest allowed completion; no deviation in the advantage | `loss_type="dr_grpo"`, `scale_rewards="none"` |
# | [DAPO](https://arxiv.org/abs/2503.14476) | long chains of thought, and falling entropy (the policy writes nearly the same every time) | every token of the step counts the same; clip-higher; dynamic sampling; answers cut off at the limit are masked or softly punished | only partly, see below |
# | BNPO in TRL | (not the paper of this name) | as `dapo`, but counts the tokens of one micro-batch, not of the step | `loss_type="bnpo"` |
# | [GSPO](https://arxiv.org/abs/2507.18071) | mixtures of experts, whose token ratios are noisy | one ratio for the whole answer, the geometric mean of its tokens' | `importance_sampling_level="sequence"`, `loss_type="grpo"`, `epsilon=3e-4`, `epsilon_high=4e-4` |
# | [CISPO](https://arxiv.org/abs/2506.13585) | rare but important tokens that lose their gradient to clipping | caps a token's weight, but keeps its gradient | `loss_type="cispo"`, `epsilon_high=5.0` |
#
# **`loss_type="dapo"`, TRL's default and this course's, is not DAPO.** It is only DAPO's way to count tokens. DAPO also
# needs `epsilon_high=0.28` (*clip-higher*: a rare token reaches a ratio of 1.2 after a tiny change in probability),
# `mask_truncated_completions=True` (or a reward for length, chapter 03), and *dynamic sampling*: zero-variance groups
# are thrown away and sampled anew until the batch is full. TRL 1.15 has no switch for dynamic sampling.
#
# GSPO's ratio is a mean over the answer's tokens, so it stays nearer to 1 than the ratios of most single tokens.
# Therefore its bounds are so narrow (the figure uses 0.03 to show an answer that is clipped as a whole). AdamW cancels
# a constant factor. So the small size of `dr_grpo`'s weights matters only where gradients are clipped to a norm. What
# remains is that a step with more tokens counts for more with `dr_grpo`, because its divisor does not grow with them.
# [Chapter 12](12_which_algorithm.ipynb) compares some of these methods in runs. TRL knows three more loss types: sapo,
# luspo and vespo.
#
# </details>

# %% [markdown]
# ### How large should a group be?
#
# TRL's default group size, 8, suits problems that the model solves about half of the time. The reason is the groups
# with zero variance.
#
# If the model solves a problem with probability $p$, then $n$ answers are all right with probability $p^n$, and all
# wrong with probability $(1 - p)^n$. So the fraction of zero-variance groups is $p^n + (1 - p)^n$. The next cell
# computes it for problems that the model solves 20, 50 or 90 % of the time, together with the mean advantage of a right
# answer in the groups that have some variance.

# %%
from math import comb


def expect(n, p):
    """Fraction of zero-variance groups, and the mean advantage of a right answer."""
    right = 0.0  # the expected number of right answers
    total = 0.0  # the expected sum of their advantages
    for k in range(1, n):  # k of n answers are right
        chance = comb(n, k) * p**k * (1 - p) ** (n - k)
        values = group_advantages([1.0] * k + [0.0] * (n - k), n)
        right += chance * k
        total += chance * k * values[0].item()
    return p**n + (1 - p) ** n, total / right


sizes = [2, 4, 8, 16, 32, 64]
at_8 = sizes.index(8)
expected = {}
for p in (0.2, 0.5, 0.9):
    expected[p] = [expect(n, p) for n in sizes]
    equal, advantage = expected[p][at_8]
    print(f"solved {p:.0%}: of the groups of 8, {equal:.0%} have zero variance, and")
    print(f"  in the others a right answer's mean advantage is {advantage:.2f}")

# %% [markdown]
# The figure shows both results for all group sizes.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(8.5, 3.2, 2, 2)
titles = ("Large groups seldom have zero variance", "Small groups bias the advantage")
labels = ("fraction of zero-variance groups", "mean advantage of a right answer")
for which, axes in enumerate(panels):
    for (p, pairs), (colour, dash, marker) in zip(expected.items(), figures.STYLES):
        values = [pair[which] for pair in pairs]
        axes.plot(sizes, values, dash, color=colour, marker=marker, label=f"{p:.0%}")
    axes.set(xscale="log", xlabel="group size", ylabel=labels[which])
    axes.set_title(titles[which])
    axes.set_ylim(bottom=-0.03)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
panels[0].legend(frameon=False, title="solved")
words = []
for p, pairs in expected.items():
    equal, advantage = pairs[at_8]
    words.append(f"{equal:.0%} and {advantage:.2f} when {p:.0%} are solved")
text = f"Two line charts over group sizes 2 to 64. At 8: {', '.join(words)}."
figures.show(figure, text)

# %% [markdown]
# The larger the groups, the fewer of them have zero variance. The rate furthest from one half, 90 %, needs the largest
# groups, or harder problems (chapter 07). But large groups have a price: with 64 completions a step, groups of 8 cover
# 8 problems, groups of 32 only 2.
#
# In small groups the advantage is also **biased**: the lines on the right are not yet flat at size 8. For a problem
# solved 20 % of the time, a right answer should get $(1 - 0.2) / \sqrt{0.2 \cdot 0.8} = 2$, and groups of eight give
# about 1.6. For one solved 90 % of the time it is the other way round: small groups give too much.
#
# The formula is for one problem; do not put the mean rate of a data set into it. The run above solved between 30 % and
# 50 % of its held-out problems, for which the formula gives at most 6 %. Yet 39 % of its groups taught nothing, because
# many of its problems are solved nearly never or nearly always.

# %% [markdown]
# ### Which estimate of the KL divergence is right?
#
# Three estimators of the divergence are common. With $d = \log \pi_{ref} - \log \pi$ of a sampled token, they are
# $k_1 = -d$, $k_2 = d^2/2$ and $k_3 = e^d - d - 1$.
#
# The short answer: k3 is right as a value, but as a loss it needs the ratio as a factor. TRL 1.15 multiplies by it
# (`use_bias_correction_kl`, on by default).
#
# To see why, keep two questions apart. Is the *value* of an estimator right on average? And is its *gradient* right, as
# a loss? With a vocabulary of three tokens both questions have exact answers. The next cell computes the divergence in
# both directions, because an estimator may have the gradient of the wrong one. `p` is the policy's probability of each
# token, without a gradient.

# %%
from grpo_workbook.grpo import kl_estimate

policy_logits = torch.tensor([0.7, 0.2, 0.1]).log().requires_grad_()
reference = torch.tensor([0.1, 0.3, 0.6]).log()
log_p = policy_logits.log_softmax(0)
p = log_p.detach().exp()


def gradient(loss):
    (values,) = torch.autograd.grad(loss, policy_logits, retain_graph=True)
    return values.tolist()


from_policy = (log_p.exp() * (log_p - reference)).sum()  # KL(policy || ref)
from_reference = (reference.exp() * (reference - log_p)).sum()  # KL(ref || policy)

# %% [markdown]
# Next, the mean of each estimator and the gradient of this mean. In the mean each token is weighted by `p`, because the
# policy would sample it with this probability. The first and the last line of the output are the gradients of the two
# divergences. Each line between them should equal the first. `ratio` is 1 as a number, but has the gradient of
# $\log \pi$. So this factor does not change the value of k3, but adds a second gradient, which makes tokens with a
# large k3 rarer.

# %%
value = {}
slope = {"KL(policy || ref)": gradient(from_policy)}
for name in ("k1", "k2", "k3"):
    estimate = kl_estimate(log_p, reference, name)
    value[name] = (p * estimate.detach()).sum().item()
    slope[name] = gradient((p * estimate).sum())
ratio = (log_p - log_p.detach()).exp()
k3 = kl_estimate(log_p, reference, "k3")
slope["k3 x ratio"] = gradient((p * ratio * k3).sum())
slope["KL(ref || policy)"] = gradient(from_reference)
print("gradient in the logit of  token 1 token 2 token 3")
for name, numbers in slope.items():
    print(f"{name:25}", *[f"{number:7.3f}" for number in numbers])

# %% [markdown]
# On the left, the figure shows the value of each estimator over $d$, with its mean over the policy's own tokens in the
# legend. The exact divergence is 1.10: k1 and k3 have this mean, k2 has 1.50. On the right are the gradients above, a
# group of bars for each logit. Blue bars are the gradient of KL(policy || reference), the divergence that GRPO means to
# penalise; orange and brown ones are that of KL(reference || policy). k1 has no bars, because its gradients are 0.

# %% tags=["hide-input"]
figure, (left, right) = figures.new_panels(9.0, 3.3, 2, 2)
d = torch.linspace(-2, 2, 81)
shapes = {"k1": -d, "k2": d.square() / 2, "k3": d.exp() - d - 1}
looks = ((figures.GREY, "-"), (figures.BLUE, "--"), (figures.ORANGE, "-."))
for (name, shape), (colour, dash) in zip(shapes.items(), looks):
    label = f"{name}: mean {value[name]:.2f}"
    left.plot(d, shape, dash, color=colour, lw=2, label=label)
left.axhline(0, color="black", lw=0.8)
left.set_title(f"Value: k1 and k3 average {from_policy.item():.2f}, k2 does not")
left.set(xlabel="d = log reference - log policy", ylabel="nats", ylim=(-2, 4.4))
left.legend(frameon=False)
shades = {
    "KL(policy || ref)": "#003F66", "k2": figures.BLUE, "k3 x ratio": "#56B4E9",
    "k3": figures.ORANGE, "KL(ref || policy)": "#7A3600",
}
for i, (name, shade) in enumerate(shades.items()):
    places = [token + 0.14 * (i - 2) for token in range(3)]
    right.bar(places, slope[name], 0.13, color=shade, label=name)
right.axhline(0, color="black", lw=0.8)
right.set_xticks(range(3), ["token 1", "token 2", "token 3"])
right.set(xlabel="logit", ylabel="gradient of the loss")
right.set_title("Gradient: k2 and k3 x ratio are right")
right.legend(frameon=False, fontsize=7)
numbers = ", ".join([f"{name} {number:.2f}" for name, number in value.items()])
figures.show(
    figure,
    f"Left: k1, k2, k3 over d; means {numbers}. Right: gradients in three logits; "
    "those of k2 and of k3 x ratio equal that of KL(policy || reference), k1's is 0, "
    "and k3's is that of KL(reference || policy).",
)

# %% [markdown]
# | estimator | its value | its gradient as a loss |
# | --- | --- | --- |
# | k1 | right on average, but negative for many tokens | 0 on average: no penalty at all (as a part of the *reward*, as in RLHF with PPO, it works) |
# | k2 | biased | right: that of KL(policy \|\| reference) |
# | k3 | right on average, never negative | wrong: that of the other direction, KL(reference \|\| policy) |
# | k3 times the ratio | as k3 | right |
#
# <details><summary>For the curious: reverse and forward, and what "right" means here</summary>
#
# KL(policy || reference) is called the *reverse* KL divergence; KL(reference || policy) is the *forward* one. The
# reverse one penalises a policy that writes what the reference would hardly ever write.
#
# The word "right" refers here to one token, given the tokens before it. The divergence of whole answers also depends on
# how often the policy writes each beginning of an answer. A penalty that is added to the loss token by token does not
# contain this part of the gradient. k1 inside the reward does, because there the divergence of a whole answer weighs
# each of its tokens.
#
# </details>

# %% [markdown] tags=["remove-cell"]
# This cell is for automatic checks: it fails if the model was not trained or did not learn.

# %% tags=["remove-cell"]
import json

profile.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": len(log),
    "before": before.rate,
    "after": after.rate,
    "p_value": compare(before, after).strict.p_value,
    "trl_after": trl_after.rate,
    "log": log,
}
(profile.output / "notebook_01.json").write_text(json.dumps(proved, indent=2))
assert [metrics["step"] for metrics in log] == list(range(1, 41))
assert all(metrics["tokens"] > 0 for metrics in log)
assert sum(metrics["grad_norm"] > 0 for metrics in log) > 30
assert proved["after"] > proved["before"] + 0.08, "the model did not learn"
assert proved["p_value"] < 1e-3, "the gain may be chance"
assert proved["trl_after"] > proved["before"] + 0.08, "TRL's model did not learn"
assert outside[1] > 0 and ratios[0].sub(1).abs().max() < 1e-4, "no ratio left 1"

# %% [markdown]
# ## Sources
#
# [REINFORCE](https://link.springer.com/article/10.1007/BF00992696), [PPO](https://arxiv.org/abs/1707.06347),
# [RLOO](https://arxiv.org/abs/2402.14740), [DeepSeekMath](https://arxiv.org/abs/2402.03300) (GRPO), [Schulman's
# note](http://joschu.net/blog/kl-approx.html) (k1, k2, k3), [DeepSeek-V3.2](https://arxiv.org/abs/2512.02556) (k3
# times the ratio).
#
# Next: [02 · Dataset preparation](02_dataset_prep.ipynb) makes the rows that such a trainer reads. In
# [04 · A GRPO run you can trust](04_grpo_run.ipynb) Unsloth and TRL train in 4-bit.
