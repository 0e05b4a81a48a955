# %% [markdown]
# # 13 · Learned rewards
#
# **After this notebook you can** train a reward model with TRL and say where it is blind, train against it and see the
# moment when it stops helping, choose a remedy by stored runs, and test a language model as judge before you trust it.
#
# **Time:** about 3 minutes on two CPU cores. You train a reward model, a policy against it, and a judge; the runs with
# many seeds are stored and read.

# %% [markdown]
# ## The question
#
# Until now a rule said what is right. For "is this summary good?" there is none. Then something that learned gives the
# reward, and it can be wrong:
#
# | reward | made from | how it goes wrong |
# | --- | --- | --- |
# | a rule, or tests | a program | a gap in the rule (chapters 03 and 06) |
# | a **reward model** | pairs of completions that people compared | it learns whatever separates the pairs |
# | a **judge** | a language model and a question | it likes length, confidence, the first answer, flattery |
# | a **process reward** | labels, or a rule, for each step | steps that are fine and lead nowhere |
#
# To train against a reward model made from people's comparisons is **RLHF**; until 2024 most reinforcement learning of
# language models was that. The reward that is paid is called **proxy**, what we really want **gold**. Here gold is a
# rule, as in chapter 04, but no training sees it: it only orders the pairs, as people would, and it watches.
#
# ## Toy: when a measure becomes a target
#
# 4,000 answers to one question, each with its gold value. A proxy is gold plus an error. With a penalty of strength
# $\beta$ for leaving the base policy $\pi_0$, the best policy of all is known exactly:
#
# $$\pi(a) \propto \pi_0(a)\, e^{r(a) / \beta}$$
#
# So we need no training to see where optimisation leads: lower $\beta$ step by step. One proxy has an error on every
# answer, as large as gold's own deviation; the other is exact but for 8 answers, which are bad and look great.

# %%
import torch

torch.manual_seed(0)
gold_values = torch.randn(4000)
noisy = gold_values + torch.randn(4000)
loophole = gold_values.clone()
loophole[:8], gold_values[:8] = 6.0, -2.0


def optimised(proxy, gold, beta):
    """(KL from the uniform base, mean proxy, mean gold) of the best policy."""
    p = (proxy / beta).softmax(0)
    kl = (p * (p * len(p)).log()).sum()
    return float(kl), float(p @ proxy), float(p @ gold)


betas = torch.logspace(1.5, -0.6, 60).tolist()
paths = {name: [optimised(proxy, gold_values, beta) for beta in betas]
         for name, proxy in (("an error everywhere", noisy), ("a loophole", loophole))}

# %% [markdown]
# The policy moves from left to right:

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.0, 3.3, 2, 2)
said = []
for axes, (name, path) in zip(panels, paths.items()):
    kl, proxy, gold_line = zip(*path)
    axes.plot(kl, proxy, "--", color=figures.ORANGE, label="proxy")
    axes.plot(kl, gold_line, color=figures.BLUE, label="gold")
    top = max(range(len(kl)), key=lambda i: gold_line[i])
    axes.set(xlabel="KL from the base", ylabel="mean reward",
             title=f"{name}: gold {gold_line[-1]:.1f} at the end")
    said.append(f"{name}: proxy up to {proxy[-1]:.1f}, gold at most "
                f"{gold_line[top]:.1f} at a KL of {kl[top]:.1f}, at the end "
                f"{gold_line[-1]:.1f}")
panels[0].legend(frameon=False)
figure.suptitle("The proxy rises in both; a loophole makes gold fall")
figures.show(figure, f"Two line charts over KL. {'; '.join(said)}.")

# %% [markdown]
# This is **Goodhart's law**: when a measure becomes a target, it ceases to be a good measure.
# [Gao et al.](https://arxiv.org/abs/2210.10760) measured such curves for reward models of many sizes. Note which of the
# two is dangerous: the first proxy orders three of four pairs rightly, the second one 99.6 %. What counts is the error
# *where the policy goes*. Rare large errors are worse than common small ones, and accuracy on pairs does not show them.

# %% [markdown]
# ### Exercise 13.1 · `tilted` · medium · 10 minutes
#
# Write the toy's formula yourself, in plain Python, for a uniform base of n answers: return the KL divergence of the
# policy from the base, the mean proxy and the mean gold. Then find the beta at which a proxy of yours pays best.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def tilted(
    proxy: list[float], gold: list[float], beta: float
) -> tuple[float, float, float]:
    raise NotImplementedError


check("13.1", tilted);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Weights $e^{r/\beta}$, divided by their sum, are the probabilities p. Then $\sum_i p_i \log (p_i / \frac{1}{n})$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp, log
#
#
# def tilted(
#     proxy: list[float], gold: list[float], beta: float
# ) -> tuple[float, float, float]:
#     weights = [exp(r / beta) for r in proxy]
#     p = [w / sum(weights) for w in weights]
#     kl = sum(x * log(x * len(p)) for x in p)
#     mean_proxy = sum(x * r for x, r in zip(p, proxy))
#     return kl, mean_proxy, sum(x * g for x, g in zip(p, gold))
# ```
#
# </details>

# %% [markdown]
# ## A reward model
#
# People find it hard to give a number and easy to compare. So a reward model learns from pairs. Its output is one number
# $r$ for a whole conversation, and the model of **Bradley and Terry** says how likely a is preferred to b:
#
# $$P(a \succ b) = \sigma(r_a - r_b) \qquad \text{loss} = -\log \sigma(r_{\text{chosen}} - r_{\text{rejected}})$$
#
# Only differences matter: add 100 to all rewards, and nothing changes. GRPO takes the group's mean away, so it does not
# care either.

# %% [markdown]
# ### Exercise 13.2 · `preference_loss` · easy · 5 minutes
#
# The mean loss over pairs, from the rewards of the chosen and of the rejected completions.


# %% tags=["exercise"]
def preference_loss(chosen: list[float], rejected: list[float]) -> float:
    raise NotImplementedError


check("13.2", preference_loss);

# %% [markdown]
# <details><summary>Hint</summary>
#
# $\sigma(x) = 1 / (1 + e^{-x})$. Which of the two is subtracted from the other?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp, log
#
#
# def preference_loss(chosen: list[float], rejected: list[float]) -> float:
#     losses = [log(1 + exp(r - c)) for c, r in zip(chosen, rejected)]
#     return sum(losses) / len(losses)
# ```
#
# </details>

# %% [markdown]
# ### Pairs
#
# The course's base model answers 320 problems, four times each. Gold is chapter 04's weighted sum, divided by 3: from 0
# to 1, where 1 is a right answer in the whole form.

# %%
import json
import random

from grpo_workbook import parse_rewards, quiet
from grpo_workbook.run_config import RunConfig

quiet()
import unsloth
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_workbook import config, data, generate, load_problems, to_dataset

run = RunConfig.from_env(default_profile="smoke")
TINY = config.DATA / "tiny-qwen3"
tokenizer = AutoTokenizer.from_pretrained(TINY)
base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
functions, weights = parse_rewards(RunConfig.rewards)


def gold(completions, **columns):
    """The rule, from 0 to 1: what we really want."""
    each = [f(completions=completions, **columns) for f in functions]
    rows = zip(*each)
    return [sum(w * r for w, r in zip(weights, row)) / sum(weights) for row in rows]


# %% [markdown]
# Sampled as in training:

# %%
train_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
asked = [row for row in train_rows[:320] for _ in range(4)]
prompts = [row["prompt"] for row in asked]
how = {"max_new_tokens": 64, "sample": True, "batch_size": 256}
texts = generate(base, tokenizer, prompts, seed=run.seed, **how)
pool = [row | {"text": text} for row, text in zip(asked, texts)]
columns = {name: [row[name] for row in pool] for name in ("answer", "question")}
values = gold(texts, prompts=prompts, **columns)
for row, value in zip(pool, values):
    row["gold"] = round(value, 3)
for value in (0.0, 0.333, 0.833, 1.0):
    same = [row["text"] for row in pool if row["gold"] == value]
    print(f"gold {value}: {len(same):4} of {len(pool)}, such as {same[0]!r}")

# %% [markdown]
# A row for TRL has a `prompt` and two completions, `chosen` and `rejected`. Two pairs for each problem whose four
# completions differ in gold; the last 64 problems are held out:

# %%
def message(text):
    return [{"role": "assistant", "content": text}]


def pairs_of(pool, each=2, seed=0):
    rng, found = random.Random(seed), []
    for i in range(0, len(pool), 4):
        group = pool[i : i + 4]
        ordered = [(a, b) for a in group for b in group if a["gold"] > b["gold"]]
        found += rng.sample(ordered, min(each, len(ordered)))
    return found


train_pairs, test_pairs = pairs_of(pool[:1024]), pairs_of(pool[1024:], each=6)
preferences = [{"prompt": a["prompt"], "chosen": message(a["text"]),
                "rejected": message(b["text"])} for a, b in train_pairs]
print(len(train_pairs), "pairs to learn from,", len(test_pairs), "held out")

# %% [markdown]
# ### RewardTrainer
#
# A reward model is a language model whose last layer is replaced by one number, read at the conversation's last token:
# `AutoModelForSequenceClassification` with `num_labels=1`. TRL's `RewardTrainer` minimises the loss above:

# %%
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, PrinterCallback
from trl import RewardConfig, RewardTrainer

common = {"output_dir": str(run.output / "learned"), "save_strategy": "no",
          "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True,
          "gradient_checkpointing": False, "logging_steps": 1}
torch.manual_seed(run.seed)
reward_model = AutoModelForSequenceClassification.from_pretrained(
    TINY, num_labels=1, dtype="float32")
settings = RewardConfig(learning_rate=3e-4, num_train_epochs=1, warmup_steps=4,
                        per_device_train_batch_size=16, **common)
trainer = RewardTrainer(reward_model, settings, processing_class=tokenizer,
                        train_dataset=Dataset.from_list(preferences))
trainer.remove_callback(PrinterCallback)
trainer.train()
reward_model.eval()
for entry in trainer.state.log_history[:-1:6]:
    print({k: round(entry[k], 2) for k in ("step", "loss", "accuracy", "margin")})

# %% [markdown]
# It runs on a CPU in seconds, without 4-bit and adapters. For a large model give `peft_config` with
# `task_type="SEQ_CLS"` and `modules_to_save=["score"]`: the new last layer has to be trained in full.
#
# How often does it order held-out pairs as gold does? Over all pairs, and over completions that both have the whole
# form and differ in their answer alone:

# %%
from grpo_workbook import wilson_interval


@torch.no_grad()
def rewards_of(model, rows):
    """The model's rewards, as TRL computes them when it trains a policy."""
    chats = [row["prompt"] + message(row["text"]) for row in rows]
    read = tokenizer.apply_chat_template(chats, tokenize=False)
    inputs = tokenizer(read, return_tensors="pt", padding=True, padding_side="right",
                       add_special_tokens=False)
    return model(**inputs).logits[:, 0].tolist()


held = pool[1024:]
proxies = dict(zip(map(id, held), rewards_of(reward_model, held)))
margins = [proxies[id(a)] - proxies[id(b)] for a, b in test_pairs]
formed = {value: [row for row in held if row["gold"] == value]
          for value in (1.0, 0.333)}
alike = [proxies[id(a)] - proxies[id(b)] for a in formed[1.0] for b in formed[0.333]]
accuracy, accuracy_alike = (sum(m > 0 for m in some) / len(some)
                            for some in (margins, alike))
low, high = wilson_interval([m > 0 for m in margins])
print(f"all pairs:        {accuracy:.1%} ({low:.1%} to {high:.1%}) of {len(margins)}")
print(f"same form: {accuracy_alike:.1%} of {len(formed[1.0])} right ones by "
      f"{len(formed[0.333])} wrong ones")

# %% [markdown]
# There it is. The pairs are separated by form nearly always, so form is what it learned; whether 23 + 9 is 32 it hardly
# knows. One number for all pairs hides that, so break accuracy down by *what differs*. (The pairs share completions, so
# the interval is a little too narrow.)
#
# ### Is it calibrated?
#
# $\sigma(r_a - r_b)$ is a probability. If it says 80 %, then 8 of 10 should be ordered that way:

# %% tags=["hide-input"]
both = torch.tensor([m for margin in margins for m in (margin, -margin)]).sigmoid()
came_true = torch.tensor([1.0, 0.0] * len(margins))
figure, (axes,) = figures.new_panels(4.6, 4.0)
axes.plot([0, 1], [0, 1], color=figures.GREY, lw=1)
said = []
for low_end in torch.arange(0, 1, 0.125).tolist():
    inside = (both >= low_end) & (both < low_end + 0.125)
    if inside.sum() >= 8:
        x, y = float(both[inside].mean()), float(came_true[inside].mean())
        error = 1.96 * (y * (1 - y) / int(inside.sum())) ** 0.5
        axes.errorbar(x, y, error, fmt="o", color=figures.BLUE, capsize=3)
        said.append(f"{x:.0%} predicted, {y:.0%} true")
axes.set(xlabel="predicted probability", ylabel="came true", xlim=(0, 1), ylim=(0, 1),
         title="Predicted and observed, held-out pairs")
figures.show(figure, "Calibration of the reward model on held-out pairs. "
                     f"{'; '.join(said)}.")

# %% [markdown]
# Points above the line right of the middle: it is too cautious, and what it calls likely comes true more often.
#
# ### What does it read?
#
# Chapter 03's collection of attacks, all for the same question with the answer 42. An honest right answer is the
# measure: what earns as much without the work is a loophole. And how much less does an honest wrong answer get?

# %%
from grpo_workbook.rewards import attacks, honest

question = [{"role": "user", "content": "What is 6 times 7?"}]
wrong_steps = honest("41", "6*7=41\n41+0=41")
tried = [("honest, right", honest()), ("honest, wrong", wrong_steps)]
tried += [(f"{a.family}: {a.name}", a.text) for a in attacks() if len(a.text) < 400]
rows = [{"prompt": train_rows[0]["prompt"][:1] + question, "text": t} for _, t in tried]
scores = rewards_of(reward_model, rows)
ranked = sorted(zip(scores, tried), reverse=True, key=lambda pair: pair[0])
above = sum(score >= scores[0] for score in scores[2:])
print(f"{above} of {len(scores) - 2} attacks earn at least as much as the right answer")
for score, (name, text) in ranked[:6]:
    print(f"{score:6.2f}  {name:32} {text[:44]!r}")

# %% [markdown]
# No attack earns more than the right answer, but the best come close, and an honest answer that is wrong loses little.
# So the model reads the form well and the number hardly. A policy that is trained against it is not limited to this
# collection: it searches, update by update, for what the model overrates.
#
# ### Labels that are wrong
#
# Two people agree on 60 to 75 % of pairs ([Coste et al.](https://arxiv.org/abs/2310.02743) list studies). Suppose a
# rate $f$ of the labels is flipped at random. Then the best prediction is $f + (1 - 2f)\,\sigma(r_a - r_b)$: less
# certain, but in the same order. So flipped labels cost data, not direction, and a reward model stays usable to
# surprisingly high rates. Stored, with 10, 20 and 30 % flipped:

# %%
import subprocess
import sys

from IPython.display import Markdown, display

from grpo_workbook import files

GOODHART = files.REPO / "benchmarks" / "goodhart.py"
STORED = files.REPO / "benchmarks" / "goodhart_results"


def report(task):
    """The benchmark's own table of the stored runs of a task."""
    command = [sys.executable, str(GOODHART), "--table", "--tasks", task]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    display(Markdown(told or f"{task}: no runs are stored yet"))


report("models")

# %% [markdown]
# *accuracy* is over all held-out pairs, *alike* over those with the same form; *points* are the difference from unflipped
# labels, seed by seed, with the interval and Holm's correction of chapter 12. Three labels of ten are wrong, and four
# points are lost. What suffers first is the part that counts: *alike* falls from 68 to 61 % with the first tenth.
# Systematic errors do not average out like that: if people prefer the longer answer, so will the model.
#
# ## Train against it
#
# TRL takes a reward model in the place of a function. Gold goes beside it with a weight of 0: measured at every step,
# never paid. A tiny `beta` makes TRL log the KL divergence from the base:

# %%
from trl import GRPOConfig, GRPOTrainer


def goodhart(judge, beta, steps=24):
    """GRPO against a reward model; a row per step: proxy, gold, kl, entropy."""
    policy = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    args = GRPOConfig(
        max_steps=steps, learning_rate=3e-4, beta=beta, loss_type="grpo",
        per_device_train_batch_size=64, num_generations=8, max_completion_length=64,
        reward_weights=[1.0, 0.0], seed=run.seed, **common)
    trainer = GRPOTrainer(
        policy, [judge, gold], args, Dataset.from_list(train_rows[320:]),
        processing_class=tokenizer, reward_processing_classes=[tokenizer, None])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    names = {"rewards/tiny-qwen3/mean": "proxy", "rewards/gold/mean": "gold",
             "kl": "kl", "entropy": "entropy", "completions/mean_length": "tokens"}
    log = [e for e in trainer.state.log_history if "rewards/gold/mean" in e]
    return [{new: e[old] for old, new in names.items()} for e in log], policy


free, hacked = goodhart(reward_model, beta=1e-4)

# %% [markdown]
# Left over the steps, right over the distance from the base, as in the toy. `kl` is TRL's mean per token; times the
# tokens it is the divergence of a completion:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.5, 3.6, 2, 2)
smooth = {name: [sum(e[name] for e in free[max(0, i - 1) : i + 2])
                 / len(free[max(0, i - 1) : i + 2]) for i in range(len(free))]
          for name in ("proxy", "gold")}
places = [("step", list(range(1, len(free) + 1))),
          ("KL of a completion, nats", [e["kl"] * e["tokens"] for e in free])]
for axes, (label, x) in zip(panels, places):
    other = axes.twinx()
    other.spines["top"].set_visible(False)
    dash = "-" if label == "step" else ""
    axes.plot(x, smooth["gold"], "o" + dash, color=figures.BLUE, ms=3)
    other.plot(x, smooth["proxy"], "s" + dash, color=figures.ORANGE, ms=3)
    axes.set(xlabel=label, ylim=(0, 1))
panels[0].set_ylabel("gold (blue)")
other.set_ylabel("proxy (orange)")
best = max(range(len(free)), key=lambda i: smooth["gold"][i])
figure.suptitle(f"Gold is best in step {best + 1}; the proxy keeps its value")
figures.show(figure, f"Proxy and gold over {len(free)} steps and over KL. Gold: "
             f"{smooth['gold'][0]:.2f}, at best {smooth['gold'][best]:.2f} in step "
             f"{best + 1}, at the end {smooth['gold'][-1]:.2f}. Proxy: "
             f"{smooth['proxy'][0]:.2f}, at the end {smooth['proxy'][-1]:.2f}.")

# %% [markdown]
# First the policy learns what the reward model knows, the form, and gold rises with it. Then only what the reward model
# *gets wrong* is left to gain, and it is found. What does the policy write in the end?

# %%
heldout_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["heldout"])))[:6]
asked = [row["prompt"] for row in heldout_rows]
said = generate(hacked, tokenizer, asked, seed=0, **how)
ends = [row | {"text": text} for row, text in zip(heldout_rows, said)]
for row, reward in zip(ends, rewards_of(reward_model, ends)):
    print(f"{reward:5.2f}  {row['text']!r:72.72} (right: {row['answer']})")

# %% [markdown]
# No tag spam, no nonsense: well-formed, confident, mostly wrong. Without gold labels it would not show.
#
# Three traps of the call above, none of which raises an error:
#
# - A **classifier with two labels** is accepted. TRL reads its first output, the score for "bad" in most models. Check
#   `model.config.num_labels == 1`.
# - Without `reward_processing_classes` TRL loads the tokenizer that the reward model's own folder names. **Another
#   tokenizer** with a smaller vocabulary gives rewards without any meaning.
# - The chat template closes each completion. So a completion that was **cut off** at the length limit looks finished to
#   the reward model: use `mask_truncated_completions=True`, or a penalty.
#
# A check of all three, before any training:

# %%
def checked(model, tokenizer, good, bad):
    """Raise ValueError unless a reward model can be used with this tokenizer."""
    if model.config.num_labels != 1:
        labels = model.config.num_labels
        raise ValueError(f"{labels} labels: a reward model has one; train with 1")
    if len(tokenizer) > model.config.vocab_size:
        raise ValueError(f"{len(tokenizer)} tokens, but the model knows "
                         f"{model.config.vocab_size}: give its own tokenizer")
    better, worse = rewards_of(model, [good, bad])
    if better <= worse:
        raise ValueError(f"a good text gets {better:.2f}, a bad one {worse:.2f}")
    return f"fine: {better:.2f} for a good text, {worse:.2f} for a bad one"


two_labels = AutoModelForSequenceClassification.from_pretrained(TINY, num_labels=2)
good, bad = test_pairs[0]
print(checked(reward_model, tokenizer, good, bad))
try:
    checked(two_labels, tokenizer, good, bad)
except ValueError as error:
    print("refused:", error)

# %% [markdown]
# ### Exercise 13.3 · `penalised` · medium · 3 minutes
#
# The same 24 steps with a KL penalty of 0.3: will the policy end with more gold than without it, with less, or with the
# same (within 0.1)? Predict, then run. It takes about a minute.

# %% tags=["exercise"]
prediction = ...  # "more gold", "less gold" or "the same"


def both_runs() -> dict:
    """The free run of above, and one with a penalty"""
    return {"beta 0": free, "beta 0.3": goodhart(reward_model, beta=0.3)[0]}


predict("13.3", prediction, both_runs);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which divergence did the free run have where its gold was best? And where at the end?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "more gold"
# ```
#
# The penalty costs some proxy reward and keeps the policy near completions that the reward model has seen. A larger one
# costs gold again: at infinity the policy is the base.
#
# </details>

# %% [markdown]
# ## Remedies, with seeds
#
# `benchmarks/goodhart.py` repeats this with new pools, reward models and policies for every seed, in the loop of chapter
# 12, with held-out problems. Its runs are stored:
#
# - **beta**: a fixed KL penalty. **adaptive beta**: it rises while the divergence is above a target, and falls below it
#   ([Ziegler et al.](https://arxiv.org/abs/1909.08593)).
# - **batch's std, no std**: advantages divided by the batch's deviation, or by none. Once all completions of a group have
#   the form, the reward model's differences are mostly error, and the group's deviation makes them as large as any.
# - **mean / minimum of three**: an ensemble of reward models, trained on different pairs. Where they disagree, none has
#   seen enough. The minimum believes the most sceptical one; Coste et al. found it best with a small penalty.
# - **early stopping**: every 256 completions, 64 other problems are judged by gold, and the best weights are kept. It
#   costs gold labels, few of them.
# - **diversity bonus**: below. **flipped**: reward models from worse labels. **the rule itself**: gold is paid.

# %%
import pandas as pd


def read_runs(task):
    """One row per stored run, with what was measured at its end as columns."""
    path = STORED / f"{task}.jsonl"
    if not path.is_file():
        return pd.DataFrame({"method": [], "seed": [], "log": []})
    runs = pd.read_json(path, lines=True)
    runs = runs.drop_duplicates(["method", "seed"], keep="last")
    return runs.join(pd.DataFrame(list(runs["end"]), index=runs.index))


runs = read_runs("goodhart")
print(len(runs), "runs,", runs["seed"].nunique(), "seeds")
report("goodhart")

# %% [markdown]
# *sampled* is the rate of right answers in the whole form, *points* the paired difference in it, *kl* the divergence at
# the end. First the Goodhart curve of the unprotected runs, a thin line per seed:

# %% tags=["hide-input"]
def path_of(method):
    """Means over the seeds, by completions: proxy, gold, right, kl."""
    logs = [pd.DataFrame(log) for log in runs[runs["method"] == method]["log"]]
    if not logs:
        return None
    return pd.concat(logs).groupby("used").mean().rolling(3, 1, center=True).mean()


figure, panels = figures.new_panels(9.5, 3.4, 2, 2)
free_runs = runs[runs["method"] == "one model"]
said = []
colours = (figures.ORANGE, figures.BLUE)
for axes, name, colour in zip(panels, ("proxy", "gold"), colours):
    for log in free_runs["log"]:
        path = pd.DataFrame(log).rolling(3, 1, center=True).mean()
        axes.plot(path["kl"], path[name], color=colour, lw=0.8, alpha=0.5)
    if (path := path_of("one model")) is not None:
        axes.plot(path["kl"], path[name], color=colour, lw=2.5)
        said.append(f"{name}: {path[name].iloc[0]:.2f} at first, at most "
                    f"{path[name].max():.2f}, at the end {path[name].iloc[-1]:.2f}")
    axes.set(xlabel="KL of a completion, nats", ylabel=name)
panels[1].set_ylim(0, 1)
figure.suptitle("The same runs: the proxy stays high, gold falls")
figures.show(figure, f"Proxy and gold over KL, by seed. {'; '.join(said)}.")

# %% [markdown]
# And the remedies, each the mean over its seeds:

# %% tags=["hide-input"]
shown = ["one model", "mean of three", "minimum of three", "beta 0.1", "beta 0.3",
         "the rule itself"]
figure, panels = figures.new_panels(9.5, 3.8, 2, 2)
said = []
for name, (colour, dash, _) in zip(shown, figures.STYLES):
    if (path := path_of(name)) is not None:
        panels[0].plot(path.index, path["right"], dash, color=colour, label=name)
        panels[1].plot(path["kl"], path["right"], dash, color=colour)
        best, last = path["right"].max(), path.dropna().iloc[-1]
        said.append(f"{name}: at best {best:.2f}, at the end {last['right']:.2f} at a "
                    f"KL of {last['kl']:.1f}")
panels[0].set(xlabel="completions", ylabel="right", ylim=(0, 1), title="Over the run")
panels[1].set(xlabel="KL of a completion, nats", ylim=(0, 1), title="Over the distance")
if said:
    figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers by remedy. {'; '.join(said)}.")

# %% [markdown]
# - **What holds**: a KL penalty of 0.3 ends at 73 %, above the best moment of the unprotected runs, and keeps pass@8.
#   With 0.1 the end is at 53 %, and the controller, whose target of 2 nats was passed, lies between. Early stopping needs
#   no such choice: 384 gold labels bring 58 %.
# - **What does not**: an ensemble. The minimum of three models rises higher before it falls, and falls as deep; the mean
#   is no better than one. All learned from the same base and the same kind of pairs, so they overlook the same thing. A
#   bonus for diversity does not help either, and whether another deviation does is unsettled.
# - **The rule itself** reaches 87 %: nothing makes up for a reward that does not know what is right. All these reward
#   models ordered 86 to 90 % of held-out pairs rightly, and none of that says how a run ends.
#
# None of these repairs the reward model. What does: label completions of the *policy*, and train it again ("iterated
# RLHF"), because then the new errors are in the data.

# %% [markdown]
# ### Exercise 13.4 · `adaptive_beta` · easy · 5 minutes
#
# Write the controller: the error is `kl / target - 1`, limited to -0.2 and 0.2, and beta is multiplied by
# `1 + 0.5 * error`. Then think: where does it end if the target cannot be reached?


# %% tags=["exercise"]
def adaptive_beta(beta: float, kl: float, target: float) -> float:
    raise NotImplementedError


check("13.4", adaptive_beta);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Limit with `max(-0.2, min(0.2, error))`. Too far away must give a larger beta.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def adaptive_beta(beta: float, kl: float, target: float) -> float:
#     error = max(-0.2, min(0.2, kl / target - 1))
#     return beta * (1 + 0.5 * error)
# ```
#
# While the divergence stays below the target, beta falls by a tenth a step, to nothing.
#
# </details>

# %% [markdown]
# ## What noise costs
#
# Another kind of wrong: a reward that is right on average and errs at random, such as people in a hurry or flaky tests.
# Flip a reward of 0 or 1 at the rate $f$, and a completion that is right with probability $p$ is paid with
# $f + (1 - 2f)\,p$. The order stays, the signal shrinks to $1 - 2f$, and the group's deviation grows with the noise. How
# well do the advantages still agree with the truth? 4,000 questions, p uniform between 0 and 1, in groups of 4, 8
# and 16; the *batch's* deviation is that of all of them:

# %%
from grpo_workbook import group_advantages

torch.manual_seed(0)
true = (torch.rand(4000, 1) > torch.rand(4000, 16)).float()


def kept(flips, size, scale, p_true=true):
    """Correlation of advantages with those of the true rewards."""
    groups = p_true[:, :size]
    wrong = (torch.rand(groups.shape) < flips).float()
    paid = (groups - wrong).abs()
    best = group_advantages(groups.flatten(), size, scale)
    seen = group_advantages(paid.flatten(), size, scale)
    return float(torch.corrcoef(torch.stack([best, seen]))[0, 1])


for flips in (0.1, 0.2, 0.35):
    for scale in ("group", "batch"):
        row = {size: f"{kept(flips, size, scale):.2f}" for size in (4, 8, 16)}
        print(f"{flips:4.0%} flipped, divided by the {scale}'s deviation: {row}")

# %% [markdown]
# A larger group estimates its mean better, but the noise of each single reward stays: more *completions* average it out,
# in whatever groups they come. The deviation matters where a group is all right or all wrong: then its only variance is
# the noise, and dividing by the group's deviation turns it into advantages as large as any:

# %%
lonely = torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0])  # all wrong, one flipped
mixed = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 0])
pair = torch.cat([lonely, mixed])
for scale in ("group", "batch", "none"):
    A = group_advantages(pair, 8, scale)
    print(f"{scale:6} the flipped one {A[3]:5.2f}, a right one beside it {A[8]:5.2f}")

# %% [markdown]
# With the group's deviation the flipped one counts for nearly three right ones, with the batch's for less than two.
# Does it matter in training? Stored, on chapter 04's task with 20 and 30 % of the verdicts flipped:

# %%
report("noise")

# %% [markdown]
# With 20 % flipped, seven or eight points are lost in groups of 4 and 8; in groups of 16 one seed of five ended at 1 %.
# With 30 % every size of group has seeds at nearly 0 and others at 65 to 76 %: noise makes a run a gamble, and five seeds
# cannot say which size is best. Nor does the batch's deviation help here; the toy's gain drowns. What helps is a third of
# the learning rate: smaller steps average over more completions, and all five seeds end between 57 and 70 %.
#
# ## The pipeline that GRPO replaced
#
# RLHF as of 2022 ([InstructGPT](https://arxiv.org/abs/2203.02155)) has three stages: SFT on demonstrations, a reward
# model on comparisons, PPO against it. PPO's **critic** is a second model, usually about as large as the policy, that
# predicts the reward from each token on; what came better than predicted is praised. GRPO replaced the critic by the
# group's mean. The KL divergence is part of PPO's reward; in GRPO it is a term of the loss.

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {
    "policy": (0.09, 0.5, "policy\nlearns", pale["model"]),
    "text": (0.3, 0.5, "completions", pale["data"]),
    "reward": (0.55, 0.85, "reward model\nfrozen", pale["check"]),
    "reference": (0.55, 0.5, "reference\nfrozen", pale["check"]),
    "critic": (0.55, 0.24, "critic\nlearns (PPO)", pale["off"]),
    "A": (0.85, 0.5, "advantages:\nPPO per token,\nGRPO per text", pale["number"]),
}
arrows = [("policy", "text", ""), ("text", "reward", ""), ("text", "reference", ""),
          ("text", "critic", ""), ("reward", "A", ""), ("reference", "A", "KL"),
          ("critic", "A", "baseline"), ("A", "policy", "", -0.5)]
figures.show(figures.diagram(boxes, arrows, (9.0, 3.6)),
             "Diagram: the policy writes completions; a frozen reward model, a frozen "
             "reference and, in PPO alone, a learning critic look at them; together "
             "they make the advantages with which the policy is updated.")

# %% [markdown]
# The critic's predictions $V_t$ become advantages by **generalised advantage estimation**: the error of one step is
# $\delta_t = r_t + V_{t+1} - V_t$, and $A_t = \delta_t + \lambda A_{t+1}$ (without discount). The reward comes at the
# last token only:

# %%
def gae(rewards, values, mask, decay=0.95):
    """Advantages and returns, (B, T) each; rewards (B,) come at the last token."""
    length = mask.sum(1)
    errors = torch.zeros_like(values)
    for i, (reward, n) in enumerate(zip(rewards, length.tolist())):
        errors[i, :n] = -values[i, :n]
        errors[i, : n - 1] += values[i, 1:n]
        errors[i, n - 1] += reward
    advantages = errors.clone()
    for t in reversed(range(values.shape[1] - 1)):
        advantages[:, t] += decay * advantages[:, t + 1]
    return advantages * mask, (advantages + values) * mask


guess = torch.tensor([[0.2, 0.2, 0.7, 0.9]])
A, returns = gae([1.0], guess, torch.ones(1, 4, dtype=torch.long), decay=0.5)
print("values    ", [round(v, 2) for v in guess[0].tolist()])
print("advantages", [round(a, 2) for a in A[0].tolist()])

# %% [markdown]
# $V_t$ is predicted before token $t$ is written. After the second token the prediction rose from 0.2 to 0.7, so that one
# gets most of the credit (with a decay as low as 0.5; 0.95 is usual and spreads it). In GRPO all four would have the
# same advantage. Chapter 01's readable trainer becomes PPO by one class: a critic, and a step that uses it.

# %%
import copy

from grpo_workbook import ScratchTrainer, grpo
from grpo_workbook.grpo import policy_ratio


class PPO(ScratchTrainer):
    def __post_init__(self):
        super().__post_init__()
        self.critic = copy.deepcopy(self.model)
        self.head = torch.nn.Linear(self.model.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        weights = [*self.critic.model.parameters(), *self.head.parameters()]
        self.critic_optimizer = torch.optim.AdamW(weights, 1e-3, weight_decay=0.0)

    def values(self, batch):
        ids, attention = batch["input_ids"], batch["attention_mask"]
        states = self.critic.model(input_ids=ids, attention_mask=attention)
        length = batch["mask"].shape[1]
        before = states.last_hidden_state[:, -length - 1 : -1]
        return self.head(before).squeeze(-1) * batch["mask"]

# %% [markdown]
# Its step: sample, reward, advantages from the critic, one update of each model.

# %%
def ppo_step(self, rows):
    batch = self.rollout(rows)
    rewards, mask = self.score(rows, batch["texts"]), batch["mask"]
    with torch.no_grad():
        A, returns = gae(rewards, self.values(batch), mask)
        there = A[mask.bool()]
        A = (A - there.mean()) / (there.std() + 1e-4)
    logp = self.logprobs(self.model, batch)
    ratio = policy_ratio(logp, logp.detach(), mask)
    loss = grpo.reduce_tokens(grpo.clipped_losses(ratio, A), mask, "dapo")
    error = ((self.values(batch) - returns).square() * mask).sum() / mask.sum()
    both = (self.optimizer, loss), (self.critic_optimizer, error)
    for optimizer, objective in both:
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    return {"reward": sum(rewards) / len(rewards), "critic": float(error.detach())}


def learned(prompts, completions, **columns):
    given = zip(prompts, completions)
    rows = [{"prompt": p, "text": c[0]["content"]} for p, c in given]
    return rewards_of(reward_model, rows)


PPO.step = ppo_step

# %% [markdown]
# Six steps, the reward and the critic's squared error:

# %%
fresh = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
ppo = PPO(fresh, tokenizer, learned, learning_rate=3e-4)
for metrics in ppo.train(train_rows[320 : 320 + 6 * 8]):
    print({name: round(metrics[name], 2) for name in ("step", *list(metrics)[-2:])})

# %% [markdown]
# What each has to hold in memory, counted: weights, and for those that learn gradients and AdamW's two averages.

# %%
def mebibytes(learns, frozen):
    counts = [sum(p.numel() for p in m.parameters()) for m in (*learns, *frozen)]
    copies = [4] * len(learns) + [1] * len(frozen)
    return sum(4 * n * c for n, c in zip(counts, copies)) / 2**20


frozen = [ppo.reference, reward_model]
print(f"GRPO with a reward model: {mebibytes([fresh], frozen):5.1f} MiB")
print(f"PPO with a reward model:  {mebibytes([fresh, ppo.critic], frozen):5.1f} MiB")
print(f"GRPO with a rule, no KL:  {mebibytes([fresh], []):5.1f} MiB")

# %% [markdown]
# In float32; for a model of 7 billion weights multiply by 10,000. Activations come on top. Stored: SFT on 128 worked
# answers, then PPO or GRPO against the same reward models, a beta of 0.1, with equal completions:

# %%
report("pipeline")

# %% [markdown]
# Read the first line first: SFT on 128 answers is good already, and GRPO against the reward model takes 14 points away
# again. PPO does not, for 1.7 times the memory and 1.3 times the seconds. Is it the critic? The other two lines take the
# difference apart: PPO's loss changes nothing; dividing by the batch's deviation, as PPO does, brings back 12.6 of the
# 16.3 points. Where all completions have the form, a group differs in the reward model's errors alone, and GRPO makes
# them as large as any.

# %% [markdown]
# ## Process rewards
#
# An **outcome reward** judges the answer, a **process reward** each step. DeepSeekMath (section 4.1.3) normalises the
# rewards of all steps of a group together, and a token's advantage is the sum over its own step and all later ones. One
# group of chapter 12's sums, with three completions; a step is right if it is the next column of the sum:

# %%
steps_of = {"all right": [1.0, 1.0, 1.0, 1.0],
            "slip in the second": [1.0, 0.0, 1.0, 0.0], "no steps, wrong": [0.0]}
flat = torch.tensor([r for each in steps_of.values() for r in each])
outcome = torch.tensor([each[-1] for each in steps_of.values()])
scaled = {"outcome": (outcome - outcome.mean()) / (outcome.std() + 1e-4)}
by_step = {name: [(r - float(flat.mean())) / (float(flat.std()) + 1e-4) for r in each]
           for name, each in steps_of.items()}
process = {name: [sum(each[i:]) for i in range(len(each))]
           for name, each in by_step.items()}
for i, name in enumerate(steps_of):
    steps = " ".join(f"{a:5.2f}" for a in process[name])
    print(f"{name:20} outcome {scaled['outcome'][i]:5.2f}   by step {steps}")

# %% [markdown]
# The last reward is the answer's. The outcome blames the completion with the slip as much as the one that tried nothing,
# in every token alike. By step, the slip is blamed most and the right step after it least; even the first step, which
# was right, answers for what came after. And note a side effect: early steps add up many later rewards, so where most
# steps are right, *longer* is better.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 2.6, 2, 2)
top = max(abs(a) for each in process.values() for a in each)
for axes, kind in zip(panels, ("outcome", "process")):
    axes.grid(False)
    for y, (name, each) in enumerate(process.items()):
        shown = each if kind == "process" else [float(scaled["outcome"][y])] * len(each)
        for x, a in enumerate(shown):
            colour = figures.BLUE if a > 0 else figures.ORANGE
            shade = 0.15 + 0.8 * abs(a) / top
            axes.barh(-y, 0.94, 0.7, left=x, color=colour, alpha=shade)
            axes.text(x + 0.47, -y, f"{a:.1f}", ha="center", va="center", fontsize=9)
    axes.set_yticks([0, -1, -2], list(process) if kind == "outcome" else [""] * 3)
    axes.set_xticks([i + 0.47 for i in range(4)], ["1st", "2nd", "3rd", "answer"])
    axes.set_title(f"{kind} reward")
told = "; ".join(f"{n}: outcome {float(o):.1f}, by step "
                 + ", ".join(f"{a:.1f}" for a in process[n])
                 for n, o in zip(process, scaled["outcome"]))
figures.show(figure, f"Advantages of the steps of three completions. {told}.")

# %% [markdown]
# A rule for steps can have a gap too. "Right steps" below compares with the columns of this very sum; "true steps" pays
# every equation that is true, such as 1+1=2, written as often as you like. Stored, on the sums of chapter 12:

# %%
report("process")

# %% [markdown]
# Paying right steps gained ten points on average, but on this task the seeds differ so much (chapter 12) that eight of
# them do not settle it. Paying every true equation lost fifteen, no more settled: it buys columns that are true and
# belong to no sum. What is paid for each step is one more reward that can be wrong.

# %% [markdown]
# ### Exercise 13.5 · `step_advantages` · medium · 12 minutes
#
# `rewards` holds one group: for each completion the rewards of its steps. Return the advantages of the steps in the same
# shape: minus the mean of all steps of the group, divided by their standard deviation (n - 1) plus 1e-4, and for each
# step the sum over itself and all later ones of the same completion.


# %% tags=["exercise"]
def step_advantages(rewards: list[list[float]]) -> list[list[float]]:
    raise NotImplementedError


check("13.5", step_advantages);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Flatten the group for `statistics.mean` and `stdev`, then go through each completion: `sum(scaled[i:])`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, stdev
#
#
# def step_advantages(rewards: list[list[float]]) -> list[list[float]]:
#     every = [r for each in rewards for r in each]
#     centre, scale = mean(every), stdev(every) + 1e-4
#     found = []
#     for each in rewards:
#         scaled = [(r - centre) / scale for r in each]
#         found.append([sum(scaled[i:]) for i in range(len(scaled))])
#     return found
# ```
#
# </details>

# %% [markdown]
# ## Diversity
#
# A reward can be right more often than not and still make the policy narrower. The purest case needs neither a label nor
# a model: pay the answer that most of the group gave
# ([test-time reinforcement learning](https://arxiv.org/abs/2504.16084)). Where the majority is right, single answers get
# better. Where a right answer is in the minority, it dies out, and pass@8 falls. A bonus for answers that few others
# gave works against that:
#
# $$r_i' = r_i + w \left(1 - \frac{\text{others in the group with the same answer}}{n - 1}\right)$$

# %%
from collections import Counter


def majority(answers):
    most = Counter(answers).most_common(1)[0][0]
    return [float(answer == most) for answer in answers]


def diversity(answers):
    same = Counter(answers)
    return [1 - (same[answer] - 1) / (len(answers) - 1) for answer in answers]


group = ["12", "12", "12", "12", "12", "15", "15", "9"]
agreed = torch.tensor(majority(group))
for weight in (0.0, 0.5, 1.0, 2.0):
    paid = agreed + weight * torch.tensor(diversity(group))
    A = group_advantages(paid, 8)
    print(f"bonus {weight}: 12 {A[0]:5.2f}, 15 {A[5]:5.2f}, 9 {A[7]:5.2f}")

# %% [markdown]
# A bonus does not know which rare answer is right; it only slows the narrowing down. And at a weight of 2 it turns the
# majority over. Stored; *answer* counts right numbers in any form, *answer8* problems with one among eight attempts:

# %%
report("diversity")

# %% [markdown]
# Without a label, the majority lifts single answers from 53 to 74 % right; and of the problems that the base solves at
# least once in eight attempts, which are nearly all, one in fifteen is lost. The bonus of 0.5 kept two fifths of these
# and, in the strict form, 95 instead of 89 % of the problems, at no cost: 3 and 6 points, for which eight seeds are no
# proof. With the reward model above it was no help ("diversity bonus" in the table of remedies): there the other answers
# are mostly wrong, and nothing that is paid pulls back.

# %% [markdown]
# ## A language model as judge
#
# A judge is asked in words and needs no training: any model behind an API that speaks OpenAI's format. It is slow, costs
# money, and is the easiest of all rewards to fool, because the text it judges is also text that it reads. So test it
# like a new colleague: on cases whose answer you know, **before** it decides anything.
#
# To have one here, the tiny model learns to say 1 or 0 to a completion, and which of two is better. A `Judge` writes its
# own questions: what is judged stands in a fence of random digits, so a completion cannot close it.

# %%
from grpo_workbook import correctness_reward
from grpo_workbook.rewards.judges import Judge, agreement, get_judge_reward, length_bias

ONE = "{prompt}\n{fence}\n{completion}\n{fence}\nRight?"
TWO = "{prompt}\n{fence}\n{first}\n{fence}\n{second}\n{fence}\nFirst better?"
SAYS = {"1": 1.0, "0": 0.0}
teacher, chooser = Judge("", "", ONE, SAYS), Judge("", "", TWO, SAYS)
right = correctness_reward(texts, **columns)
lesson, rng = [], random.Random(0)


def ask_and_say(text, verdict):
    prompt = [{"role": "user", "content": text}]
    lesson.append({"prompt": prompt, "completion": message(str(int(verdict)))})


for row, verdict in list(zip(pool, right))[:640]:
    asked = {"prompt": row["question"], "completion": row["text"]}
    ask_and_say(teacher.text(asked), verdict)
for a, b in train_pairs[:480]:
    first = rng.random() < 0.5
    shown = (a, b) if first else (b, a)
    asked = {"prompt": a["question"], "first": shown[0]["text"]}
    ask_and_say(chooser.text(asked | {"second": shown[1]["text"]}), first)
print(lesson[0]["prompt"][0]["content"], "->", lesson[0]["completion"][0]["content"])

# %% [markdown]
# Trained with TRL's `SFTTrainer`, and saved:

# %%
from trl import SFTConfig, SFTTrainer

torch.manual_seed(run.seed)
student = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
settings = SFTConfig(learning_rate=1e-3, num_train_epochs=1, warmup_steps=4,
                     per_device_train_batch_size=16, seed=run.seed, **common)
trainer = SFTTrainer(student, settings, processing_class=tokenizer,
                     train_dataset=Dataset.from_list(lesson).shuffle(seed=0))
trainer.remove_callback(PrinterCallback)
trainer.train()
folder = run.output / "judge"
student.save_pretrained(folder)
tokenizer.save_pretrained(folder)
losses = [entry["loss"] for entry in trainer.state.log_history[:-1]]
print(f"loss {losses[0]:.2f} at first, {sum(losses[-8:]) / 8:.2f} at the end")

# %% [markdown]
# ### An endpoint
#
# As in chapter 09, `transformers serve` on loopback. Replace address, model and key by those of your own judge:

# %%
import os
import socket
import time
from pathlib import Path

with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
transformers = Path(sys.executable).with_name("transformers")
line = f"{transformers} serve {folder} --host 127.0.0.1 --port {port} --device cpu"
server_log = (run.output / "judge.log").open("w")
server = subprocess.Popen(line.split(), stdout=server_log, stderr=server_log,
                          env={**os.environ, "HF_HUB_OFFLINE": "1"})
while True:
    assert server.poll() is None, (run.output / "judge.log").read_text()[-2000:]
    with socket.socket() as sock:
        if sock.connect_ex(("127.0.0.1", port)) == 0:
            break
    time.sleep(0.2)
print("the judge is there")

# %% [markdown]
# `ask` takes rows with the template's fields and gives one verdict for each, or None. It asks eight at a time, equal
# questions once, and again after an error or a timeout. It is a coroutine, as TRL wants it. A notebook has a running
# event loop already, so here it runs in a thread of its own:

# %%
import asyncio
from concurrent.futures import ThreadPoolExecutor


def now(coroutine):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


url, price = f"http://127.0.0.1:{port}/v1", (0.5, 1.5)  # of a million tokens
judge = Judge(url, str(folder), ONE, SAYS, price=price)
unseen = pool[1024:1184]
labels = right[1024:1184]
asked = [{"prompt": row["question"], "completion": row["text"]} for row in unseen]
verdicts = now(judge.ask(asked))
print(dict(judge.counts))
print(f"{sum(judge.tokens):,} tokens, {judge.cost:.4f} for {len(asked)} verdicts; a "
      f"run of 10,000 completions: {10_000 / len(asked) * judge.cost:.2f}")

# %% [markdown]
# ### Calibrate it
#
# **Cohen's kappa** is agreement beyond chance: $\kappa = (p_o - p_e) / (1 - p_e)$, with $p_o$ the rate of equal verdicts
# and $p_e$ the rate that a judge with the same habits would reach blindly. 1 is perfect, 0 useless. Measure how
# well two people agree, too: against the labels of one person, who errs, even a perfect judge stays below 1. For a higher
# bound take the majority of several people.

# %%
def shown(name, chosen):
    found = agreement([verdicts[i] for i in chosen], [labels[i] for i in chosen])
    print(f"{name:22} kappa {found.kappa:5.2f} [{found.low:5.2f}, {found.high:5.2f}], "
          f"equal {found.equal:.0%} of {found.n}")
    return found


whole = shown("all", range(len(unseen)))
same_form = [i for i, row in enumerate(unseen) if row["gold"] in (1.0, 0.333)]
blind = shown("the same, whole form", same_form)
bias = length_bias(verdicts, labels, [len(row["text"]) for row in unseen])
print(f"of two with the same label the longer one wins: {bias:.0%} (fair: 50%)")

# %% [markdown]
# A kappa that many would accept, and a judge that looks at the form alone. It was asked "Right?", but what it answers is
# "well-formed?": a prompt is no proof of what a judge reads. Calibrate on the cases between which it will have to decide:
# as the policy learns the form, all completions will be of the second kind.
#
# ### Which of two?
#
# For pairs ask twice, with the order swapped. A judge that says "the first" both times has decided nothing:

# %%
which = Judge(url, str(folder), TWO, SAYS, price=price)
some = test_pairs[:30]
choices = now(which.compare([(a["question"], a["text"], b["text"]) for a, b in some]))
decided = [choice for choice in choices if choice in (0.0, 1.0)]
position = which.counts["position decided"] / len(some)
print(f"{position:.0%} of {len(some)} pairs are decided by position alone")
print(f"of the others {sum(decided) / max(1, len(decided)):.0%} in the order of gold")

# %% [markdown]
# ### Attack it
#
# What a policy could find out: the lab's collection has texts that talk to a judge, all with a wrong answer. Eight
# problems, each attack on each. A completion may also hold the marks with which a chat template opens a turn; a `Judge`
# breaks those up, so they are only text (the last lines):

# %%
taken_in = {}


def pass_rate(name, rows, made):
    """The rate at which these completions of wrong answers pass."""
    told = [{"prompt": row["question"], "completion": text}
            for row, text in zip(rows, made)]
    found = now(judge.ask(told))
    taken_in[name] = sum(v or 0 for v in found) / len(found)
    print(f"{name:28} {taken_in[name]:5.0%} pass")


wrong = [row for row, label in zip(unseen, labels) if not label][:8]
pass_rate("as they were", wrong, [row["text"] for row in wrong])
off = [str(int(row["answer"]) + 1) for row in wrong]
pass_rate("wrong, in the whole form", wrong, [honest(n, f"1+1={n}") for n in off])
pass_rate("wrong, the tag alone", wrong, [f"<answer>{n}</answer>" for n in off])
by_row = [[a for a in attacks(row["answer"], n) if a.family == "talking to a judge"]
          for row, n in zip(wrong, off)]
for same in zip(*by_row):
    pass_rate(same[0].name, wrong, [a.text.replace("yes", "1") for a in same])
turn = next(a.text for a in by_row[0] if a.name == "a turn of its own")
print(judge.text({"prompt": "6*7?", "completion": turn}))

# %% [markdown]
# Compare each line with the second and the third: this judge lets every text in the whole form pass, and no attack passes
# more often than that, so against it none is needed. Marks, fences and strict replies close the ways around the judge.
# They do not help against a completion that it simply believes. Every judge has such a table; a larger one has other
# gaps. Make yours before training, and again with completions of the trained policy. What helps: a reference answer in
# the question (`{answer}` in the template takes the dataset's column), the order swapped, a rule for what a rule can
# check, and a penalty of length outside of the judge.
#
# ### When it fails
#
# A reply that is no verdict, a timeout, a busy server: None, counted, with the reason. Never 0, which would blame the
# completion. If more than half of a batch has no verdict, the run stops:

# %%
from grpo_workbook import WorkbookError

talker = Judge(url, str(folder), ONE, {"yes": 1.0, "no": 0.0})
try:
    now(talker.ask(asked[:4]))
except WorkbookError as error:
    print(str(error).replace(str(folder), "judge").replace(str(port), "PORT"))
server.terminate()
server.wait(timeout=60)
server_log.close()
late = Judge(url, str(folder), ONE, SAYS, retries=0)
try:
    now(late.ask(asked[:4]))
except WorkbookError as error:
    print(str(error).replace(str(port), "PORT"))

# %% [markdown]
# In TRL the judge is one reward among others, asked while the other rewards are computed:
#
# ```python
# GRPOTrainer(model, reward_funcs=[get_judge_reward(judge), strict_format_reward], ...)
# ```

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
def mean_of(log, name, part):
    return sum(e[name] for e in log[part]) / len(log[part])


proved = {
    "pairs": len(train_pairs),
    "accuracy": accuracy,
    "alike": accuracy_alike,
    "steps": len(free),
    "proxy": [free[0]["proxy"], mean_of(free, "proxy", slice(-4, None))],
    "gold": [free[0]["gold"], max(smooth["gold"]),
             mean_of(free, "gold", slice(-4, None))],
    "kl": [free[0]["kl"], free[-1]["kl"]],
    "kappa": [whole.kappa, whole.low, blind.kappa],
    "position": position,
    "taken in": taken_in,
    "asked": judge.counts["asked"],
    "stored": len(runs),
}
run.output.mkdir(parents=True, exist_ok=True)
(run.output / "notebook_13.json").write_text(json.dumps(proved, indent=2))
print(json.dumps(proved, indent=2))

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 13.6 · `kappa` · medium · 10 minutes
#
# Cohen's kappa of two lists of verdicts of any kind. Then use it on your own: judge 20 completions of a model of yours
# by hand, let a judge, or a friend, do the same, and see how far you agree. If two people reach 0.4, a judge's
# 0.4 with one of them says little against it.


# %% tags=["exercise"]
def kappa(judge: list[str], labels: list[str]) -> float:
    raise NotImplementedError


check("13.6", kappa);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Chance: for each kind of verdict, the rate at which the judge says it times the rate at which the labels do; add up.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def kappa(judge: list[str], labels: list[str]) -> float:
#     n = len(judge)
#     equal = sum(a == b for a, b in zip(judge, labels)) / n
#     kinds = {*judge, *labels}
#     chance = sum(judge.count(k) / n * labels.count(k) / n for k in kinds)
#     return (equal - chance) / (1 - chance)
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - A reward model learns what separates its pairs. Break its accuracy down by what differs: it may be blind where it
#   counts. Random errors in the labels cost data; systematic ones are learned.
# - Train against it, and the proxy always rises. Gold rises, peaks and falls. Only gold labels show where.
# - A KL penalty that is strong enough and early stopping hold what was won; three models of one kind do not. New labels
#   on the policy's own completions repair the reward.
# - A judge is a reward that can read, so it can be talked to. Calibrate it on the cases it will see, swap the order,
#   attack it, and count what gives no verdict.
# - Where a rule can check something, let the rule do it.
#
# Next: [14 · Your own project](14_capstone.ipynb) takes a file of yours through all of it, step by step.
