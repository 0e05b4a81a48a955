# %% [markdown]
# # 01 · GRPO from scratch
#
# **After this notebook you can** compute group-relative advantages, ratios, clipping, KL estimates and the five
# common loss types by hand; say what each does to short and to long answers; train a model with a trainer whose every
# step you have read; and say what GRPO saves over PPO, and when to take something else.
#
# **Time:** about 3 minutes on two CPU cores. It trains a tiny model on the CPU, and needs no GPU.
#
# Every formula here is in `grpo_workbook/grpo.py`, and a test compares losses and gradients with TRL's own.

# %% [markdown]
# ## Four answers to one question
#
# A model answers a question four times. Two answers are right and earn 1, two earn 0. The **advantage** of an answer is
# how much better it did than its group: reward minus mean, over the standard deviation.

# %%
from statistics import mean, stdev

rewards = [1, 1, 0, 0]
print([round((r - mean(rewards)) / stdev(rewards), 3) for r in rewards])

# %% [markdown]
# Training makes answers with a positive advantage more likely, and the others less. No second model is asked how good
# an answer should have been: the group is the yardstick. That is the G and the R of Group Relative Policy Optimization.
#
# `stdev` divides by n - 1, as TRL does. When all four earn the same, there is nothing to compare:

# %%
rewards = [1, 1, 1, 1]
print([(r - mean(rewards)) / (stdev(rewards) + 1e-4) for r in rewards])

# %% [markdown]
# Such a group is a **zero-variance group**: no advantage, no gradient. The small number keeps the division harmless.

# %% [markdown]
# ## Many groups at once
#
# A batch holds several groups, one after the other. `scale` says which deviation divides: the group's, the whole
# batch's, or none (Dr. GRPO). TRL calls it `scale_rewards`. The mean is always the group's.

# %%
from grpo_workbook import group_advantages, quiet, show

quiet()

batch = [1, 1, 0, 0,   1, 0, 0, 0,   3, 0, 0, 0]
for scale in ("group", "batch", "none"):
    values = group_advantages(batch, group_size=4, scale=scale).tolist()
    print(f"{scale:6}", " ".join(f"{a:6.2f}" for a in values))

# %% [markdown]
# Scaled by its group, a lone right answer (the fifth) weighs more than one of two, and a reward of 3 weighs as much as
# one of 1. Unscaled, the last group pulls three times as hard as the one before it.

# %% [markdown]
# ## How large should a group be?
#
# A simulation: 20,000 groups of each size, for problems that the model gets right with probability 0.2, 0.5 or 0.9. How
# many groups have no variance, and how much does the advantage of a *right* answer vary from group to group?

# %%
import torch


def simulate(size: int, p: float) -> tuple[float, float, float]:
    """Fraction of zero-variance groups; a right answer's advantage: mean, spread."""
    right = (torch.rand(20_000, size) < p).float()
    advantages = group_advantages(right.flatten(), size).view(-1, size)
    equal = (advantages == 0).all(dim=1)
    of_right = advantages[~equal][right[~equal] == 1]
    return float(equal.float().mean()), float(of_right.mean()), float(of_right.std())


torch.manual_seed(0)
sizes, chances = [2, 4, 8, 16, 32, 64], [0.2, 0.5, 0.9]
simulated = {p: [simulate(size, p) for size in sizes] for p in chances}

# %% [markdown]
# Of groups of 2, half and more teach nothing. From 8 on, half-known problems nearly always teach; very easy and very
# hard ones need more.

# %%
from grpo_workbook import figures

figures.show(
    *figures.line_chart(
        {
            f"right in {p:.0%}": (sizes, [equal for equal, _, _ in simulated[p]])
            for p in chances
        },
        x="group size",
        y="fraction of zero-variance groups",
        title="Groups that teach nothing",
        log_x=True,
        finding="Larger groups are rarely all equal; hard and easy problems last.",
    )
)

# %% [markdown]
# From 16 on the advantage gets steadier as the group grows, because mean and deviation are estimated from more answers.
# Small groups are steady for a bad reason: in nearly every one that teaches the same thing happened.

# %%
figures.show(
    *figures.line_chart(
        {
            f"right in {p:.0%}": (sizes, [spread for _, _, spread in simulated[p]])
            for p in chances
        },
        x="group size",
        y="standard deviation",
        title="How much a right answer's advantage varies",
        log_x=True,
        finding="It is 0 in groups of 2, largest from 4 to 16, and falls from there.",
    )
)

# %% [markdown]
# Steady, and wrong. Measured against all answers the model could give, a right one to a problem that it solves one time
# in five has an advantage of sqrt(0.8 / 0.2) = 2. A group of n can give at most (n - 1) / sqrt(n), which is 0.71 for
# two, so small groups underrate it:

# %%
print("right in 20%")
for size, (_, average, spread) in zip(sizes, simulated[0.2]):
    print(
        f"groups of {size:2}: a right answer's advantage is {average:.2f} on average, "
        f"varying by {spread:.2f}"
    )

# %% [markdown]
# ## From an advantage to a gradient
#
# A policy gradient makes an answer more likely in proportion to its advantage: it descends the loss $-A \log \pi$. An
# answer's $\log \pi$ is the sum over its tokens. Take an answer of three tokens from a vocabulary of four:

# %%
logits = torch.tensor(
    [[2.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0]], requires_grad=True
)
answer, A = torch.tensor([0, 1, 2]), 1.5
logp = logits.log_softmax(dim=-1).gather(-1, answer[:, None]).squeeze(-1)
(-A * logp.sum()).backward()
print("log pi of each token:", [round(x, 2) for x in logp.tolist()])
print("of the answer:       ", round(sum(logp.tolist()), 2))
pushes = [-float(row[token]) for row, token in zip(logits.grad, answer)]
print("push on each token:  ", [round(push, 2) for push in pushes])

# %% [markdown]
# Every token gets the same A, and is pushed by A (1 - π): a token that was nearly certain hardly moves, a surprising one
# moves most. On a real model the log-probabilities come from one forward pass. Position t predicts token t + 1, and that
# shift by one is where hand-written trainers go wrong:

# %%
from grpo_workbook import grpo

show(grpo.sequence_logprobs)

# %% [markdown]
# ## The ratio, and where it is clipped
#
# With one update for each batch of answers, the policy that learns is the one that wrote them. With more, it moves
# away, and each token gets the ratio of new to old probability, $\rho = \pi / \pi_{old}$. The loss of a token with
# advantage $A$ is
#
# $$-\min\bigl(\rho A,\ \mathrm{clip}(\rho, 1 - \varepsilon_{low}, 1 + \varepsilon_{high})\, A\bigr)$$

# %%
show(grpo.policy_ratio, grpo.clipped_losses)

# %% [markdown]
# At a ratio of 1 its gradient is that of $-A \log \pi$. What happens elsewhere, let autograd compute for ratios from
# 0.4 to 1.8, and for CISPO as well, which caps the weight of a token (at `epsilon_high` itself, here 1.2) but never
# drops its gradient. `pull` gives one token to the loss and asks for the gradient in its log-probability:

# %%
def pull(ratio: float, A: float, loss: str) -> float:
    """How strongly a token with this ratio is pushed up (positive) or down."""
    logp = torch.tensor([[ratio]]).log().requires_grad_()
    high = 1.2 if loss == "cispo" else 0.2
    value, _ = grpo.grpo_loss(
        logp,
        torch.tensor([A]),
        torch.ones(1, 1),
        old_logp=torch.zeros(1, 1),
        loss_type=loss,
        epsilon_high=high,
    )
    return -float(torch.autograd.grad(value, logp)[0])


ratios = [round(0.4 + 0.01 * i, 2) for i in range(141)]
pulls = {
    "A = +1": (ratios, [pull(r, 1.0, "dapo") for r in ratios]),
    "A = -1": (ratios, [pull(r, -1.0, "dapo") for r in ratios]),
    "A = +1, CISPO": (ratios, [pull(r, 1.0, "cispo") for r in ratios]),
}

# %% [markdown]
# A token of a good answer stops being pushed once it is 20 % likelier than before; one of a bad answer once it is 20 %
# less likely. CISPO's line lies on that of A = +1 up to there, and goes on. A token that moved the *wrong* way keeps
# its gradient, however far it went: that is what the minimum is for.

# %%
figures.show(
    *figures.line_chart(
        pulls,
        x="ratio of new to old probability",
        y="push on the token",
        title="Clipping, as the gradient sees it",
        finding="It ends above 1.2 if A = +1, below 0.8 if A = -1; CISPO's stays.",
        markers=False,
    )
)

# %% [markdown]
# DAPO raises `epsilon_high` alone, to 0.28. GSPO takes one ratio for the whole answer, the geometric mean of its
# tokens', so that an answer is clipped as a whole or not at all. A mean of many tokens stays far nearer to 1 than any
# of them, so its paper clips at 3e-4 and 4e-4. All of this acts only when a batch is used for more than one update
# (`num_iterations` above 1, or `steps_per_generation` above `gradient_accumulation_steps`): in the first, every ratio
# is 1. In TRL GSPO takes four settings together, because the default loss is another:
#
# ```python
# GRPOConfig(importance_sampling_level="sequence", loss_type="grpo", epsilon=3e-4, epsilon_high=4e-4)
# ```

# %% [markdown]
# ## Staying near the reference
#
# GRPO can be held near a frozen **reference**, the model before training, by a penalty on the Kullback-Leibler (KL)
# divergence. Only the sampled tokens are known, so it is estimated from them. Three estimators are common:

# %%
show(grpo.kl_estimate)

# %% [markdown]
# On a vocabulary of three tokens the exact divergence is known. The last row turns the ratio over, as a published
# helper does: never negative either, and it measures something else.

# %%
policy, reference = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.5, 0.3])
print(f"exact KL {float((policy * (policy / reference).log()).sum()):.3f}\n")
tokens = torch.multinomial(policy, 100_000, replacement=True)
logp, ref_logp = policy.log()[tokens], reference.log()[tokens]
estimates = {
    kind: grpo.kl_estimate(logp, ref_logp, kind) for kind in ("k1", "k2", "k3")
}
estimates["k3, reversed"] = grpo.kl_estimate(ref_logp, logp, "k3")
for name, values in estimates.items():
    print(
        f"{name:13} mean {values.mean():6.3f}   spread {values.std():.3f}   "
        f"smallest {values.min():6.3f}"
    )

# %% [markdown]
# k1 and k3 are right on average, and k3 is never negative: GRPO uses k3. One catch: its *gradient* is not that of the
# divergence. TRL 1.15 multiplies k3 by the ratio, which fixes that, and so does our `unbiased_kl=True`.
#
# For rewards that a program checks, many leave the penalty out (`beta=0`, TRL's default): there is no learned taste to
# run away from, and no reference to keep in memory.

# %% [markdown]
# ## A real batch
#
# Now a model: the tiny Qwen3 of this course, in float32, with LoRA adapters. It knows its arithmetic and shows it
# badly.

# %%
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_workbook import config

TINY = config.DATA / "tiny-qwen3"
torch.manual_seed(0)
tokenizer = AutoTokenizer.from_pretrained(TINY)
base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
model = get_peft_model(
    base,
    LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
)
model.print_trainable_parameters()

# %% [markdown]
# The trainer of this chapter samples a batch: eight problems, eight answers each. Its settings are the main run's, with
# twice the learning rate, because it will take a third of the steps. The reward is 2 for the right number in an answer
# block, and up to 1 for the form of the answer, in parts (chapter 03): 3 at most.

# %%
from grpo_workbook import ScratchTrainer, data, load_problems, parse_rewards, to_dataset

rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
spec = "correctness:2,strict_format:0.5,incremental_format:0.5"
functions, weights = parse_rewards(spec)
trainer = ScratchTrainer(
    model,
    tokenizer,
    functions,
    weights,
    group_size=8,
    prompts_per_step=8,
    learning_rate=2e-3,
)
torch.manual_seed(1)
batch = trainer.rollout(rows[:8])
rewards = trainer.score(rows[:8], batch["texts"])
print(rows[0]["question"])
for text, reward in list(zip(batch["texts"], rewards))[:4]:
    print(f"{reward:6.3f}  {' '.join(text.split())[:90]}")

# %% [markdown]
# All eight groups, each with its rewards from best to worst. Where the eight are equal, nothing is learned; where
# only one differs, that one answer carries the group.

# %%
for start in range(0, len(rewards), 8):
    group = sorted(rewards[start : start + 8], reverse=True)
    shown = " ".join(f"{reward:5.3f}" for reward in group)
    print(f"{shown}   mean {mean(group):.2f}   deviation {stdev(group):.2f}")

# %% [markdown]
# ## Why the loss shows about 0
#
# Here are the loss and the length of its gradient for each loss type, before any update.

# %%
advantages = group_advantages(rewards, 8)
logp = trainer.logprobs(model, batch)
losses = {}
for kind in grpo.LOSS_TYPES:
    losses[kind], _ = grpo.grpo_loss(
        logp,
        advantages,
        batch["mask"],
        loss_type=kind,
        max_completion_length=64,
        epsilon_high=5.0 if kind == "cispo" else 0.2,
    )
    gradients = torch.autograd.grad(losses[kind], trainer.trained, retain_graph=True)
    length = float(torch.stack([g.norm() for g in gradients]).norm())
    loss = float(losses[kind].detach())
    print(f"{kind:8} loss {loss:8.4f}   gradient {length:.4f}")

# %% [markdown]
# The ratio is 1, so each answer contributes its advantage, and within a group advantages sum to 0: `grpo` shows 0. The
# others weigh answers by their length, and CISPO's number holds log-probabilities: what they show is not 0, and means
# as little. The gradient is what moves the model, and it is not 0. A dead run has a gradient of 0 in every step.
#
# This is the whole loss. What is left to say is how tokens become one number.

# %%
show(grpo.grpo_loss)

# %% [markdown]
# ## What each loss type does to short and long answers
#
# The types differ in how tokens become one number:

# %%
show(grpo.reduce_tokens)

# %% [markdown]
# The gradient of the loss in each token's log-probability is that token's weight. Divided by the advantage, and times
# the number of answers, it says what one token counts:

# %%
lengths = batch["mask"].sum(dim=1)
kept = (advantages != 0).nonzero().flatten()
kept = kept[lengths[kept].argsort()]  # from the shortest to the longest
weights = {}
for kind in grpo.LOSS_TYPES:
    weights[kind] = torch.autograd.grad(losses[kind], logp, retain_graph=True)[0]
per_token = {
    k: (weights[k][kept, 0] / advantages[kept]).abs() * len(logp)
    for k in ("grpo", "dapo", "dr_grpo")
}

# %% [markdown]
# `grpo` gives every answer the same weight, so each of its n tokens counts 1 / n, and a token of a short answer more.
# The others give every token the same weight: `dapo` 1 over the mean length, `dr_grpo` 1 over the largest possible one,
# 64. `bnpo` and `cispo` lie on `dapo` here: they differ when a step is cut into batches, and when ratios leave 1.

# %%
figures.show(
    *figures.line_chart(
        {
            kind: (lengths[kept].tolist(), values.tolist())
            for kind, values in per_token.items()
        },
        x="length of the answer in tokens",
        y="weight of one token",
        title="What one token counts",
        markers=False,
        finding="grpo: it falls as 1 over the length; dapo, dr_grpo: all alike.",
    )
)

# %% [markdown]
# And what does a whole answer do to the model? Send each answer's share of the gradient back to the adapters, one by
# one, for the eight shortest and the eight longest answers.

# %%
def pull_on_the_model(kind: str, answers: torch.Tensor) -> float:
    """Mean length of the adapters' gradient from one answer, for an advantage of 1."""
    found = []
    for i in answers.tolist():
        share = torch.zeros_like(logp)
        share[i] = weights[kind][i] / advantages[i].abs()
        gradients = torch.autograd.grad(
            logp, trainer.trained, grad_outputs=share, retain_graph=True
        )
        found.append(torch.stack([g.norm() for g in gradients]).norm())
    return float(torch.stack(found).mean())


parts = {"8 shortest": kept[:8], "8 longest": kept[-8:]}
pulled = {
    k: [pull_on_the_model(k, answers) for answers in parts.values()] for k in per_token
}
labels = [
    f"{name} ({lengths[a].float().mean():.0f} tokens)" for name, a in parts.items()
]

# %% [markdown]
# Under `grpo` a short answer moves the model several times as much as a long one. So `grpo` praises a short right
# answer strongly and blames a long wrong one weakly: Dr. GRPO's authors saw wrong answers grow longer from that.
#
# Under the others a long answer has about three times the tokens, and yet pulls hardly harder *here*: the long ones are
# this model's usual form, whose tokens are nearly certain and hardly move (the A (1 - π) from above); the short ones
# are odd. `dr_grpo` is smaller throughout, because it divides by the largest possible length. That matters for SGD and
# where gradients are cut to a norm; AdamW, which this trainer uses, divides a constant factor out again.

# %%
figures.show(
    *figures.bar_chart(
        pulled,
        labels,
        y="gradient from one answer",
        title="How hard one answer pulls",
        finding="Under grpo long answers pull less than short ones; else alike.",
    )
)

# %% [markdown]
# ## The trainer
#
# Sampling keeps the keys and values of past tokens, so each new token costs one position:

# %%
from grpo_workbook import grpo_trainer

show(grpo_trainer.sample)

# %% [markdown]
# One step: sample, reward, compare, update.

# %%
show(ScratchTrainer.step)

# %% [markdown]
# And what it calls: a group of answers for each problem, and around it all the loop over steps and epochs.

# %%
show(ScratchTrainer.rollout, ScratchTrainer.train)

# %% [markdown]
# Measure first. *Strict* means right and well-formed; the 480 held-out problems are not among those it trains on.
# (Chapter 04 loads the same model in 4 bits. Its sampled answers are others, and so are its numbers, within what their
# intervals allow.)

# %%
from grpo_workbook import evaluate, statistics, wilson_interval

heldout = to_dataset(load_problems(data.WORD_PROBLEMS["heldout"]))
before = evaluate(model, tokenizer, heldout, max_new_tokens=64, sample=True).strict
print(
    f"strict, sampled: {statistics.accuracy(before):.1%}, "
    f"95 % interval {wilson_interval(before)}"
)

# %% [markdown]
# Now 40 steps of 64 answers. `train` is a generator: it yields the metrics of each step, and we show them as they come.

# %%
import time

from tqdm import tqdm

start, log = time.time(), []
with tqdm(
    trainer.train(rows[: 40 * 8]), total=40, desc="training", unit="step", ncols=80
) as bar:
    for metrics in bar:
        log.append(metrics)
        bar.set_postfix(reward=f"{metrics['reward']:.2f}", kl=f"{metrics['kl']:.2f}")
seconds = time.time() - start

# %% [markdown]
# Single steps are noisy, so here are means over eight. The reward rises, the spread within groups shrinks, and more
# groups are all equal. The KL divergence leaves 0 and then jumps about: a few tokens that the reference finds nearly
# impossible make most of k3. The loss says nothing.

# %%
names = {
    "reward": "reward",
    "reward_std": "spread",
    "zero_variance": "equal",
    "kl": "KL",
    "loss": "loss",
    "grad_norm": "gradient",
}
print(f"{'steps':>6}", *[f"{name:>9}" for name in names.values()])
for first in range(0, 40, 8):
    part = log[first : first + 8]
    values = [mean(m[key] for m in part) for key in names]
    print(f"{first + 1:2}-{first + 8:3}", *[f"{value:9.3f}" for value in values])
epoch = {key: mean(m[key] for m in log) for key in ("reward", "kl")}
print(f"\nthe epoch: reward {epoch['reward']:.2f}, KL {epoch['kl']:.3f}")

# %% [markdown]
# Did it learn what was meant? The held-out problems say so:

# %%
after = evaluate(model, tokenizer, heldout, max_new_tokens=64, sample=True).strict
print(
    f"strict, sampled: {statistics.accuracy(after):.1%}, "
    f"95 % interval {wilson_interval(after)}, after {seconds:.0f} s of training"
)

# %% [markdown]
# ## Beside TRL
#
# 40 steps of TRL's trainer, through Unsloth, with the same model, file of problems, rewards, batch size and adapters.
# The learning rate is the same too, but here TRL warms up to it over five steps. Its curve is stored in
# `data/trl_curve.json`, with its accuracy on the same held-out problems; `python data/build_trl_curve.py` runs it
# again.

# %%
import json

trl = json.loads((config.DATA / "trl_curve.json").read_text())
print(trl["command"])
print(
    "TRL",
    trl["versions"]["trl"],
    "strict, sampled, before and after:",
    trl["strict_sampled"],
)
steps = list(range(1, 41))
figures.show(
    *figures.line_chart(
        {
            "this notebook": (steps, figures.smooth([m["reward"] for m in log])),
            "TRL": (steps, figures.smooth(trl["reward"])),
        },
        x="step",
        y="mean reward, smoothed over 7 steps",
        title="From scratch, and TRL",
        markers=False,
        finding="Both rise; TRL lags during its warm-up, then they lie close together.",
    )
)

# %% [markdown]
# They sample other problems and other answers, so they agree as two seeds agree. On the *same* answers they agree to
# 1e-5 in loss and in every gradient, for all loss types: `tests/test_grpo.py`. What TRL adds is everything else:
# several GPUs, vLLM, chat templates, checkpoints, logging. From chapter 04 on, the course trains with TRL.

# %% [markdown]
# ## Rounds with a refreshed reference
#
# Trained for long, a policy leaves its first reference far behind, and a penalty would only hold it back. Iterative
# GRPO takes the policy itself as the next reference and goes on. Two rounds of four steps:

# %%
show(ScratchTrainer.refresh_reference, ScratchTrainer.train_rounds)
trainer.kl_coef = 0.04
trainer.refresh_reference()
for m in trainer.train_rounds(rows[320:352], rounds=2):
    place = f"round {m['round']}  step {m['step']}"
    print(f"{place}  reward {m['reward']:.2f}  KL {m['kl']:.4f}")

# %% [markdown]
# At the start of each round the distance is 0 again.

# %% [markdown]
# ## What GRPO saves
#
# PPO trains a second network beside the policy, the **critic**, which predicts from each token on what reward is to
# come: usually as large as the policy, with its own gradients and optimizer state. With a reward model (RLHF) there is
# one network more. Count the bytes that live after one AdamW step, for this same tiny model; activations come on top
# everywhere.

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
        held += [p.grad for p in weights] + [
            t for s in optimizer.state.values() for t in s.values()
        ]
    return sum(t.numel() * t.element_size() for t in held) / 1e6

# %% [markdown]
# Policy, reference, critic and reward model all have the tiny model's size here; the last two have one number as
# output.

# %%
def language_model():
    return AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")


def one_number():
    return AutoModelForTokenClassification.from_config(base.config, dtype=torch.float32)


lora = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM")
adapted = get_peft_model(language_model(), lora)
needs = {
    "PPO, reward model (RLHF)": megabytes(
        [language_model(), one_number()], [language_model(), one_number()]
    ),
    "PPO, verifiable reward": megabytes(
        [language_model(), one_number()], [language_model()]
    ),
    "GRPO with KL penalty": megabytes([language_model()], [language_model()]),
    "GRPO without": megabytes([language_model()], []),
    "GRPO without, LoRA": megabytes([adapted], []),
    "SFT": megabytes([language_model()], []),
    "DPO": megabytes([language_model()], [language_model()]),
}

# %% [markdown]
# The last column compares with GRPO under a KL penalty. With adapters even that penalty costs next to nothing: the
# reference is the same base with the adapters as they were at the start. For fresh adapters that is the base with its
# adapters turned off: TRL does so where it makes the adapters itself, and keeps a copy of them where they are given.
# (`ScratchTrainer` copies the whole model, because that is one line.)

# %%
for name, value in needs.items():
    print(f"{name:26} {value:6.1f} MB   {value / needs['GRPO with KL penalty']:.2f} x")

# %% [markdown]
# The other difference is who judges. A reward model is a network that has learned what people prefer; a verifiable
# reward is a program that checks. How long does each need for the 64 answers of a batch?

# %%
judge = one_number().eval()
start = time.perf_counter()
for _ in range(20):
    trainer.score(rows[:8], batch["texts"])
rules = (time.perf_counter() - start) / 20
start = time.perf_counter()
with torch.no_grad():
    for _ in range(20):
        judge(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
network = (time.perf_counter() - start) / 20
print(f"three rules {rules * 1e3:.1f} ms")
print(f"a reward model of the policy's size {network * 1e3:.1f} ms")

# %% [markdown]
# | | reward model (RLHF) | verifiable reward |
# | --- | --- | --- |
# | memory beside the policy | one more model, measured above | none |
# | time for a batch | a forward pass, measured above: grows with the model | the time of the rules, whatever the model |
# | needs | many human comparisons | a reference answer, a unit test, a format |
# | judges | style, helpfulness, tone | what a program can check, and nothing else |
# | fails by | flattery: the policy finds what the judge overrates; a KL penalty holds it | loopholes in the rules |
#
# ## When to take which
#
# | you have | take | because |
# | --- | --- | --- |
# | good answers to imitate | SFT | cheapest by far, nothing is sampled; learns the form, and no more than is shown |
# | pairs: this answer is better than that | DPO | no sampling and no reward model; learns taste, on the pairs' own answers |
# | a check, or a good reward model | GRPO | learns from what the model itself does; several answers for each question |
# | a reward for each step of a long task | PPO | its critic says which step deserved it; GRPO gives all tokens the same |
#
# They follow each other: SFT until the model gets it right now and then, GRPO from there on. A model that never
# succeeds gives GRPO nothing to compare.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %%
from grpo_workbook import RunConfig

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
assert [m["step"] for m in log] == steps and all(m["tokens"] > 0 for m in log)
assert sum(m["grad_norm"] > 0 for m in log) > 30
assert proved["after"] >= 0.8 and proved["before"] < 0.35, "the model did not learn"

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 01.1 · `advantages` · easy · 5 minutes
#
# The advantages of a flat list of rewards, in groups of `group_size`, scaled by each group's own deviation. Plain
# Python is enough. Add 1e-4 to the deviation.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def advantages(rewards: list[float], group_size: int) -> list[float]:
    raise NotImplementedError


check("01.1", advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Walk through the list in slices of `group_size`. `statistics.stdev` divides by n - 1, `pstdev` by n.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, stdev
#
#
# def advantages(rewards: list[float], group_size: int) -> list[float]:
#     result = []
#     for start in range(0, len(rewards), group_size):
#         group = rewards[start : start + group_size]
#         result += [(r - mean(group)) / (stdev(group) + 1e-4) for r in group]
#     return result
# ```
#
# </details>

# %% [markdown]
# ### Exercise 01.2 · `sequence_ratio` · medium · 8 minutes
#
# GSPO's ratio of one answer: the geometric mean of its tokens' ratios, from log-probabilities under the new and the old
# policy. `mask` is 1 for tokens of the answer and 0 for padding.

# %% tags=["exercise"]
def sequence_ratio(logp: list[float], old_logp: list[float], mask: list[int]) -> float:
    raise NotImplementedError


check("01.2", sequence_ratio);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The geometric mean is the exponential of the mean logarithm, and the logarithm of a ratio is a difference.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp
#
#
# def sequence_ratio(logp: list[float], old_logp: list[float], mask: list[int]) -> float:
#     difference = sum((new - old) * m for new, old, m in zip(logp, old_logp, mask))
#     return exp(difference / sum(mask))
# ```
#
# </details>

# %% [markdown]
# ### Exercise 01.3 · `clipped_loss` · medium · 8 minutes
#
# The clipped loss of one token from its ratio and its advantage, with a lower and an upper epsilon.

# %% tags=["exercise"]
def clipped_loss(
    ratio: float, advantage: float, epsilon_low: float, epsilon_high: float
) -> float:
    raise NotImplementedError


check("01.3", clipped_loss);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two products, one with the ratio as it is and one with the clipped ratio; the smaller of the two; a minus sign.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def clipped_loss(
#     ratio: float, advantage: float, epsilon_low: float, epsilon_high: float
# ) -> float:
#     clipped = max(1 - epsilon_low, min(ratio, 1 + epsilon_high))
#     return -min(ratio * advantage, clipped * advantage)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 01.4 · `k3` · easy · 5 minutes
#
# The k3 estimate of KL(policy || reference) for each token that the policy sampled.

# %% tags=["exercise"]
def k3(logp: list[float], ref_logp: list[float]) -> list[float]:
    raise NotImplementedError


check("01.4", k3);

# %% [markdown]
# <details><summary>Hint</summary>
#
# With r the ratio of reference to policy: r - log r - 1.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp
#
#
# def k3(logp: list[float], ref_logp: list[float]) -> list[float]:
#     differences = [ref - new for new, ref in zip(logp, ref_logp)]
#     return [exp(d) - d - 1 for d in differences]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 01.5 · `kl_penalty` · medium · 10 minutes
#
# The mean of k3 over the tokens that the mask keeps, for tensors of shape (answers, tokens). The check takes gradients
# of what you return: the policy must get one, the frozen reference none, even where `ref_logp` could carry one.

# %% tags=["exercise"]
def kl_penalty(
    logp: "torch.Tensor", ref_logp: "torch.Tensor", mask: "torch.Tensor"
) -> "torch.Tensor":
    raise NotImplementedError


check("01.5", kl_penalty);

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
# ### Exercise 01.6 · `reduce_losses` · medium · 10 minutes
#
# From the tokens' losses of each answer (lists of different length) to one number, for the loss types "grpo", "dapo"
# and "dr_grpo". Raise `ValueError` for any other.

# %% tags=["exercise"]
def reduce_losses(losses: list[list[float]], loss_type: str, max_length: int) -> float:
    raise NotImplementedError


check("01.6", reduce_losses);

# %% [markdown]
# <details><summary>Hint</summary>
#
# "grpo" is a mean of means. The other two share the sum over all tokens and differ in what divides it.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def reduce_losses(losses: list[list[float]], loss_type: str, max_length: int) -> float:
#     total = sum(sum(answer) for answer in losses)
#     if loss_type == "grpo":
#         return sum(sum(answer) / len(answer) for answer in losses) / len(losses)
#     if loss_type == "dapo":
#         return total / sum(len(answer) for answer in losses)
#     if loss_type == "dr_grpo":
#         return total / (len(losses) * max_length)
#     raise ValueError(f"unknown loss type {loss_type!r}")
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - An answer is compared with its group. Groups that all earn the same teach nothing; 8 answers are a good start.
# - Clipping stops a token that has moved far enough the right way, and leaves the way back open.
# - k3 estimates the distance from the reference; turn its ratio over and it measures something else.
# - `grpo` weighs answers equally, `dapo` and `dr_grpo` tokens. The loss shows about 0: watch the reward.
# - No critic, and with a checkable reward no reward model either. TRL knows three more loss types (sapo, luspo, vespo):
#   they differ in the same two places, how a ratio is bounded and how tokens become one number.
#
# Where it comes from: [PPO](https://arxiv.org/abs/1707.06347) (the clipped ratio),
# [DeepSeekMath](https://arxiv.org/abs/2402.03300) (GRPO), [Dr. GRPO](https://arxiv.org/abs/2503.20783),
# [DAPO](https://arxiv.org/abs/2503.14476), [GSPO](https://arxiv.org/abs/2507.18071),
# [MiniMax-M1](https://arxiv.org/abs/2506.13585) (CISPO), [Schulman's note](http://joschu.net/blog/kl-approx.html) (k1,
# k2, k3), [DeepSeek-V3.2](https://arxiv.org/abs/2512.02556) (k3 times the ratio); beside it
# [RLHF](https://arxiv.org/abs/2203.02155) and [DPO](https://arxiv.org/abs/2305.18290).
#
# Next: [02 · Dataset preparation](02_dataset_prep.ipynb) makes the rows that such a trainer reads. In
# [04 · A GRPO run you can trust](04_grpo_run.ipynb) Unsloth and TRL train in 4-bit.
