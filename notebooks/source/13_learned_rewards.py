# %% [markdown]
# # 13 · Learned rewards
#
# What happens if the reward is not a rule but a model that learned what people prefer, and what helps when this model is
# wrong? This chapter trains a policy against such a reward until it is fooled, and compares remedies.
#
# **After this notebook you can** train a reward model with TRL and say where it is blind, train against it and see the
# moment when it stops helping, choose a remedy by stored runs, and test a language model as judge before you trust it.
#
# **Time:** about 3 minutes on two CPU cores. You train a reward model, a policy against it, and a judge; the runs with
# many seeds are stored and read. Reading takes about an hour. **You need** chapters 00, 01 and 03, and from chapter 12
# what a paired difference and Holm's correction are.

# %% [markdown]
# ## Rewards that learned
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
# rule, as in chapter 04, but no training sees it: it only orders the pairs, as people would, and measures the result.
#
# ## Toy: when a measure becomes a target
#
# Take 4,000 answers to one question, each with its gold value. A proxy is gold plus an error. With a penalty of strength
# $\beta$ for leaving the base policy $\pi_0$, the best policy of all is known exactly:
#
# $$\pi(a) \propto \pi_0(a)\, e^{r(a) / \beta}$$
#
# So we need no training to see where optimisation leads: lower $\beta$ step by step. One proxy has an error on every
# answer, with gold's own standard deviation; the other is exact but for 8 answers, which are bad and look great.

# %%
import torch

torch.manual_seed(0)
gold_values = torch.randn(4000)
noisy = gold_values + torch.randn(4000)
loophole = gold_values.clone()
loophole[:8] = 6.0
gold_values[:8] = -2.0


def optimised(proxy, gold, beta):
    """(KL from the uniform base, mean proxy, mean gold) of the best policy."""
    p = (proxy / beta).softmax(0)
    kl = (p * (p * len(p)).log()).sum()
    return float(kl), float(p @ proxy), float(p @ gold)


paths = {"an error everywhere": [], "a loophole": []}
for beta in torch.logspace(1.5, -0.6, 60).tolist():
    paths["an error everywhere"].append(optimised(noisy, gold_values, beta))
    paths["a loophole"].append(optimised(loophole, gold_values, beta))

# %% [markdown]
# In each panel the policy moves from left to right as $\beta$ falls:

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.0, 3.3, 2, 2)
lines = []
for axes, (name, path) in zip(panels, paths.items()):
    kl, proxy, gold_line = zip(*path)
    axes.plot(kl, proxy, "--", color=figures.ORANGE, label="proxy")
    axes.plot(kl, gold_line, color=figures.BLUE, label="gold")
    axes.set(xlabel="KL from the base", ylabel="mean reward")
    axes.set_title(f"{name}: gold {gold_line[-1]:.1f} at the end")
    top = gold_line.index(max(gold_line))
    lines.append(
        f"{name}: proxy up to {proxy[-1]:.1f}, gold at most {gold_line[top]:.1f} at a "
        f"KL of {kl[top]:.1f}, at the end {gold_line[-1]:.1f}"
    )
panels[0].legend(frameon=False)
figure.suptitle("The proxy rises in both; a loophole makes gold fall")
figures.show(figure, f"Two line charts over KL. {'; '.join(lines)}.")

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
#     weights = [exp(reward / beta) for reward in proxy]
#     total = sum(weights)
#     kl = mean_proxy = mean_gold = 0.0
#     for weight, proxy_reward, gold_reward in zip(weights, proxy, gold):
#         p = weight / total
#         kl += p * log(p * len(proxy))
#         mean_proxy += p * proxy_reward
#         mean_gold += p * gold_reward
#     return kl, mean_proxy, mean_gold
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

from grpo_workbook import choose_profile, parse_rewards, quiet, use_one_thread

quiet()
use_one_thread()  # for a tiny model several threads only wait for each other
import unsloth
from transformers import AutoModelForCausalLM, AutoTokenizer

from grpo_workbook import config, data, generate, load_problems, to_dataset
from grpo_workbook.grpo import combine_rewards

profile = choose_profile(default="smoke")
TINY = config.DATA / "tiny-qwen3"
tokenizer = AutoTokenizer.from_pretrained(TINY)
base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
functions, weights = parse_rewards(config.REWARDS)


def gold(completions, **columns):
    """The rule, from 0 to 1: what we really want."""
    per_function = []
    for function in functions:
        per_function.append(function(completions=completions, **columns))
    totals = combine_rewards(per_function, weights)
    return [total / sum(weights) for total in totals]

# %% [markdown]
# The completions are sampled as in training. A **pool** keeps the completions of a problem side by side:

# %%
def sample_pool(rows, each):
    """`each` completions of each row, with their gold, one problem after the other."""
    pool = []
    for row in rows:
        for _ in range(each):
            pool.append(dict(row))
    prompts = [row["prompt"] for row in pool]
    texts = generate(
        base, tokenizer, prompts, sample=True, max_new_tokens=64, batch_size=256,
        seed=profile.seed,
    )
    answers = [row["answer"] for row in pool]
    questions = [row["question"] for row in pool]
    values = gold(texts, prompts=prompts, answer=answers, question=questions)
    for row, text, value in zip(pool, texts, values):
        row["text"] = text
        row["gold"] = round(value, 3)
    return pool


train_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["train"])))
pool = sample_pool(train_rows[:320], each=4)
for value in (0.0, 0.333, 0.833, 1.0):
    same = [row["text"] for row in pool if row["gold"] == value]
    print(f"gold {value}: {len(same):4} of {len(pool)}, such as {same[0]!r}")

# %% [markdown]
# A row for TRL has a `prompt` and two completions, `chosen` and `rejected`. Take two pairs of each problem whose four
# completions differ in gold; the last 64 problems are held out:

# %%
def message(text):
    return [{"role": "assistant", "content": text}]


def ordered_pairs(group):
    """(better, worse): all pairs of a problem's completions that differ in gold."""
    pairs = []
    for better in group:
        for worse in group:
            if better["gold"] > worse["gold"]:
                pairs.append((better, worse))
    return pairs


def pairs_of(pool, each=2, seed=0):
    rng = random.Random(seed)
    pairs = []
    for start in range(0, len(pool), 4):
        candidates = ordered_pairs(pool[start : start + 4])
        pairs += rng.sample(candidates, min(each, len(candidates)))
    return pairs


train_pairs, test_pairs = pairs_of(pool[:1024]), pairs_of(pool[1024:], each=6)
preferences = []
for better, worse in train_pairs:
    chosen, rejected = message(better["text"]), message(worse["text"])
    row = {"prompt": better["prompt"], "chosen": chosen, "rejected": rejected}
    preferences.append(row)
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

common = {
    "output_dir": str(profile.output / "learned"), "save_strategy": "no",
    "report_to": "none", "use_cpu": True, "bf16": False, "disable_tqdm": True,
    "gradient_checkpointing": False, "logging_steps": 1,
}
torch.manual_seed(profile.seed)
reward_model = AutoModelForSequenceClassification.from_pretrained(
    TINY, num_labels=1, dtype="float32"
)
args = RewardConfig(
    learning_rate=3e-4, num_train_epochs=1, warmup_steps=4,
    per_device_train_batch_size=16, **common,
)
trainer = RewardTrainer(
    reward_model, args, processing_class=tokenizer,
    train_dataset=Dataset.from_list(preferences),
)
trainer.remove_callback(PrinterCallback)
trainer.train()
reward_model.eval()
for entry in trainer.state.log_history[:-1:6]:
    metrics = {name: round(entry[name], 2) for name in ("loss", "accuracy", "margin")}
    print(f"step {entry['step']:2}", metrics)

# %% [markdown]
# It runs on a CPU in seconds, without 4-bit and adapters. For a large model give `peft_config` with
# `task_type="SEQ_CLS"` and `modules_to_save=["score"]`: the new last layer has to be trained in full.
#
# How often does the model order held-out pairs as gold does? A fair count compares completions of the *same* problem only.
# The loss sees nothing else, so the model may give all completions of one problem higher rewards than those of another.
# Problems are drawn independently, pairs of one problem are not. So count for each problem the fraction of its pairs that
# are ordered rightly:

# %%
from statistics import mean

from grpo_workbook import bootstrap_interval


@torch.no_grad()
def rewards_of(model, rows):
    """The model's rewards, as TRL computes them when it trains a policy."""
    chats = [row["prompt"] + message(row["text"]) for row in rows]
    texts = tokenizer.apply_chat_template(chats, tokenize=False)
    inputs = tokenizer(
        texts, return_tensors="pt", padding=True, padding_side="right",
        add_special_tokens=False,
    )
    return model(**inputs).logits[:, 0].tolist()


def ordering_rates(pool, size, golds):
    """For each problem with such pairs: the fraction in the right order."""
    rates = []
    for start in range(0, len(pool), size):
        group = [row for row in pool[start : start + size] if row["gold"] in golds]
        outcomes = []
        for better, worse in ordered_pairs(group):
            outcomes.append(better["proxy"] > worse["proxy"])
        if outcomes:
            rates.append(mean(outcomes))
    return rates

# %% [markdown]
# Over all pairs, and over pairs in which both completions have the whole form and differ in their answer alone. The second
# kind is rare among the held-out completions, so sample eight completions for each of 512 more problems:

# %%
held = pool[1024:]
for row, reward in zip(held, rewards_of(reward_model, held)):
    row["proxy"] = reward
more = sample_pool(train_rows[320:832], each=8)
for row, reward in zip(more, rewards_of(reward_model, more)):
    row["proxy"] = reward

every_gold = {row["gold"] for row in held}
all_rates = ordering_rates(held, 4, every_gold)
form_rates = ordering_rates(more, 8, {1.0, 0.333})
for name, rates in (("all pairs", all_rates), ("same form", form_rates)):
    low, high = bootstrap_interval(rates)
    print(f"{name}: {mean(rates):.1%} in the right order, {len(rates)} problems")
    print(f"           95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# The pairs are separated by form nearly always, so form is what the model learned best. About whether 23 + 9 is 32 it
# knows something, but not much: a coin would order half of those pairs rightly. One number for all pairs hides that, so
# break accuracy down by *what differs*. (Pairs of the same form are rare, so even 91 problems leave a wide interval.)
#
# ### Is it calibrated?
#
# $\sigma(r_a - r_b)$ is a probability. If it says 80 %, then 8 of 10 should be ordered that way:

# %% tags=["hide-input"]
margins = []
for better, worse in test_pairs:
    margins.append(better["proxy"] - worse["proxy"])
margins = torch.tensor(margins)
predicted = torch.cat([margins, -margins]).sigmoid()  # either may be asked for first
came_true = torch.cat([torch.ones(len(margins)), torch.zeros(len(margins))])
figure, (axes,) = figures.new_panels(4.6, 4.0)
axes.plot([0, 1], [0, 1], color=figures.GREY, lw=1)
lines = []
for low in torch.arange(0, 1, 0.125).tolist():
    inside = (predicted >= low) & (predicted < low + 0.125)
    count = int(inside.sum())
    if count < 8:
        continue
    x = float(predicted[inside].mean())
    y = float(came_true[inside].mean())
    error = 1.96 * (y * (1 - y) / count) ** 0.5
    axes.errorbar(x, y, error, fmt="o", color=figures.BLUE, capsize=3)
    lines.append(f"{x:.0%} predicted, {y:.0%} true")
axes.set(xlabel="predicted probability", ylabel="came true", xlim=(0, 1), ylim=(0, 1))
axes.set_title("Predicted and observed, held-out pairs")
figures.show(
    figure, f"Calibration of the reward model on held-out pairs. {'; '.join(lines)}."
)

# %% [markdown]
# Right of the middle the points lie above the line: the model is too cautious, and what it calls likely comes true more
# often.
#
# ### What does it read?
#
# Give the model chapter 03's collection of attacks, all for the same question with the answer 42. An honest right answer
# is the measure: what earns as much without the work is a loophole. And how much less does an honest wrong answer get?

# %%
from grpo_workbook.rewards import attacks, honest

candidates = {
    "honest, right": honest(),
    "honest, wrong": honest("41", "6*7=41\n41+0=41"),
}
for attack in attacks():
    if len(attack.text) < 400:
        candidates[f"{attack.family}: {attack.name}"] = attack.text
system = train_rows[0]["prompt"][0]
prompt = [system, {"role": "user", "content": "What is 6 times 7?"}]
rows = [{"prompt": prompt, "text": text} for text in candidates.values()]
scores = dict(zip(candidates, rewards_of(reward_model, rows)))
fooling = 0
for name, score in scores.items():
    if score >= scores["honest, right"] and not name.startswith("honest"):
        fooling += 1
total = len(scores) - 2
print(f"{fooling} of {total} attacks earn at least as much as the right answer")
for name in sorted(scores, key=scores.get, reverse=True)[:6]:
    print(f"{scores[name]:6.2f}  {name:32} {candidates[name][:44]!r}")

# %% [markdown]
# No attack earns more than the right answer, but the best come close, and an honest answer that is wrong loses little. So
# the model reads the form well and the number badly. A policy that is trained against it is not limited to this
# collection: it searches, update by update, for what the model overrates.
#
# ### Labels that are wrong
#
# Two people agree on 60 to 75 % of pairs ([Coste et al.](https://arxiv.org/abs/2310.02743) list studies). Suppose a
# rate $f$ of the labels is flipped at random. Then the best prediction is $f + (1 - 2f)\,\sigma(r_a - r_b)$: less
# certain, but in the same order. So flipped labels cost data, not direction, and a reward model stays usable to
# surprisingly high rates. The stored runs have 10, 20 and 30 % flipped:

# %%
import subprocess
import sys

from IPython.display import Markdown, display

from grpo_workbook import files

GOODHART = files.REPO / "benchmarks" / "goodhart.py"
STORED = files.REPO / "benchmarks" / "goodhart_results"


def report(task):
    """Show the benchmark's own table of the stored runs of a task."""
    command = [sys.executable, str(GOODHART), "--table", "--tasks", task]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    display(Markdown(finished.stdout))


report("models")

# %% [markdown]
# *accuracy* is over all held-out pairs; *points* are the difference from unflipped labels, seed by seed, with the interval
# and Holm's correction of chapter 12. With three labels of ten wrong, four points are lost, and even that is not settled by
# five seeds. These runs do not say whether the pairs with the same form suffer more: the few that were counted compared
# completions of different problems. Systematic errors do not average out like that: if people prefer the longer answer,
# so will the model.
#
# ## Train against it
#
# TRL takes a reward model in the place of a function. Gold goes beside it with a weight of 0: measured at every step,
# never paid. A tiny `beta` makes TRL log the KL divergence from the base:

# %%
from trl import GRPOConfig, GRPOTrainer


def goodhart(judge, beta, steps=24):
    """GRPO against a reward model; a row per step: proxy, gold, KL; and the policy."""
    policy = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    args = GRPOConfig(
        max_steps=steps, learning_rate=3e-4, beta=beta, loss_type="grpo",
        per_device_train_batch_size=64, num_generations=8, max_completion_length=64,
        reward_weights=[1.0, 0.0], seed=profile.seed, **common)
    trainer = GRPOTrainer(
        policy, [judge, gold], args, Dataset.from_list(train_rows[320:]),
        processing_class=tokenizer, reward_processing_classes=[tokenizer, None])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    log = []
    for entry in trainer.state.log_history[:-1]:
        log.append({
            "proxy": entry["rewards/tiny-qwen3/mean"],
            "gold": entry["rewards/gold/mean"],
            "kl": entry["kl"],  # per token
            "tokens": entry["completions/mean_length"],
        })
    return log, policy


free, hacked = goodhart(reward_model, beta=1e-4)

# %% [markdown]
# The left panel shows the steps, the right panel the distance from the base, as in the toy. `kl` is TRL's mean per token;
# times the tokens it is the divergence of a completion. Each dot is a mean of three steps:

# %% tags=["hide-input"]
import pandas as pd

table = pd.DataFrame(free)
smooth = table.rolling(3, min_periods=1, center=True).mean()
distances = table["kl"] * table["tokens"]
steps = table.index + 1
figure, panels = figures.new_panels(9.5, 3.6, 2, 2)
places = [("step", steps, "-"), ("KL of a completion, nats", distances, "")]
for axes, (label, x, dash) in zip(panels, places):
    other = axes.twinx()
    other.spines["top"].set_visible(False)
    axes.plot(x, smooth["gold"], "o" + dash, color=figures.BLUE, ms=3)
    other.plot(x, smooth["proxy"], "s" + dash, color=figures.ORANGE, ms=3)
    axes.set(xlabel=label, ylim=(0, 1))
panels[0].set_ylabel("gold (blue)")
other.set_ylabel("proxy (orange)")
best = smooth["gold"].idxmax()
first, top, last = smooth.iloc[0], smooth.loc[best], smooth.iloc[-1]
figure.suptitle(f"Gold is best in step {best + 1}; the proxy keeps its value")
figures.show(
    figure,
    f"Proxy and gold over {len(free)} steps and over KL. Gold: {first['gold']:.2f}, at "
    f"best {top['gold']:.2f} in step {best + 1}, at the end {last['gold']:.2f}. Proxy: "
    f"{first['proxy']:.2f}, at the end {last['proxy']:.2f}.",
)

# %% [markdown]
# First the policy learns what the reward model knows, the form, and gold rises with it. Then only what the reward model
# *gets wrong* is left to gain, and it is found. What does the policy write in the end?

# %%
heldout_rows = list(to_dataset(load_problems(data.WORD_PROBLEMS["heldout"])))[:6]
prompts = [row["prompt"] for row in heldout_rows]
texts = generate(
    hacked, tokenizer, prompts, sample=True, max_new_tokens=64, seed=0
)
for row, text in zip(heldout_rows, texts):
    row["text"] = text
for row, reward in zip(heldout_rows, rewards_of(reward_model, heldout_rows)):
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
def check_reward_model(model, tokenizer, good, bad):
    """Raise ValueError unless a reward model can be used with this tokenizer."""
    labels = model.config.num_labels
    if labels != 1:
        raise ValueError(f"{labels} labels: a reward model has one; train with 1")
    if len(tokenizer) > model.config.vocab_size:
        known = model.config.vocab_size
        words = f"{len(tokenizer)} tokens, but the model knows {known}"
        raise ValueError(f"{words}: give its own tokenizer")
    better, worse = rewards_of(model, [good, bad])
    if not better > worse:
        raise ValueError(f"a good text gets {better:.2f}, a bad one {worse:.2f}")
    return f"fine: {better:.2f} for a good text, {worse:.2f} for a bad one"


two_labels = AutoModelForSequenceClassification.from_pretrained(TINY, num_labels=2)
good, bad = test_pairs[0]
print(check_reward_model(reward_model, tokenizer, good, bad))
try:
    check_reward_model(two_labels, tokenizer, good, bad)
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
    """The run without a penalty, from above, and one with a penalty."""
    penalised, _ = goodhart(reward_model, beta=0.3)
    return {"beta 0": free, "beta 0.3": penalised}


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
# - **batch's std, no std**: advantages divided by the batch's standard deviation, or by none. Once all completions of a
#   group have the form, the reward model's differences are mostly error, and dividing by the group's standard deviation
#   makes these differences as large as any.
# - **mean / minimum of three**: an ensemble of reward models, trained on different pairs. Where they disagree, none has
#   seen enough. The minimum believes the most sceptical one; Coste et al. found it best with a small penalty.
# - **early stopping**: every 256 completions, 64 other problems are judged by gold, and the best weights are kept. It
#   costs gold labels, few of them.
# - **diversity bonus**: below. **flipped**: reward models from worse labels. **the rule itself**: gold is paid.

# %%
def read_runs(task):
    """One row per stored run, with what was measured at its end as columns."""
    runs = pd.read_json(STORED / f"{task}.jsonl", lines=True)
    runs = runs.drop_duplicates(["method", "seed"], keep="last")
    measured = pd.DataFrame(list(runs["end"]), index=runs.index)
    return runs.join(measured)


def mean_path(runs, method):
    """Means over the seeds and three batches, by completions."""
    logs = []
    for log in runs[runs["method"] == method]["log"]:
        logs.append(pd.DataFrame(log))
    means = pd.concat(logs).groupby("used").mean()
    return means.rolling(3, min_periods=1, center=True).mean()


runs = read_runs("goodhart")
print(len(runs), "runs,", runs["seed"].nunique(), "seeds")
report("goodhart")

# %% [markdown]
# *sampled* is the rate of right answers in the whole form, *points* the paired difference in it, *kl* the divergence at
# the end. All is sampled; these runs were not measured greedily. First the Goodhart curve of the unprotected runs, a thin
# line per seed:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.5, 3.4, 2, 2)
average = mean_path(runs, "one model")
lines = []
columns = [("proxy", figures.ORANGE), ("gold", figures.BLUE)]
for axes, (column, colour) in zip(panels, columns):
    for log in runs[runs["method"] == "one model"]["log"]:
        path = pd.DataFrame(log).rolling(3, min_periods=1, center=True).mean()
        axes.plot(path["kl"], path[column], color=colour, lw=0.8, alpha=0.5)
    values = average[column]
    axes.plot(average["kl"], values, color=colour, lw=2.5)
    axes.set(xlabel="KL of a completion, nats", ylabel=column)
    start, end = values.iloc[0], values.iloc[-1]
    most = values.max()
    lines.append(
        f"{column}: {start:.2f} at first, at most {most:.2f}, at the end {end:.2f}"
    )
panels[1].set_ylim(0, 1)
figure.suptitle("The same runs: the proxy stays high, gold falls")
figures.show(figure, f"Proxy and gold over KL, by seed. {'; '.join(lines)}.")

# %% [markdown]
# And the remedies, each as the mean over its seeds. On the right the same rates stand over the distance from the base:

# %% tags=["hide-input"]
shown = ["one model", "mean of three", "minimum of three", "beta 0.1", "beta 0.3",
         "the rule itself"]
figure, (left, right_panel) = figures.new_panels(9.5, 3.8, 2, 2)
lines = []
for name, (colour, dash, _) in zip(shown, figures.STYLES):
    path = mean_path(runs, name)
    left.plot(path.index, path["right"], dash, color=colour, label=name)
    right_panel.plot(path["kl"], path["right"], dash, color=colour)
    best, last = path["right"].max(), path.iloc[-1]
    lines.append(
        f"{name}: at best {best:.2f}, at the end {last['right']:.2f} at a KL of "
        f"{last['kl']:.1f}"
    )
left.set(xlabel="completions", ylabel="right", ylim=(0, 1), title="Over the run")
right_panel.set(xlabel="KL of a completion, nats", ylim=(0, 1))
right_panel.set_title("Over the distance")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers by remedy. {'; '.join(lines)}.")

# %% [markdown]
# - **What is better than no remedy here**: a KL penalty of 0.3 ends at 73 %, above the best moment of the unprotected
#   runs, and keeps pass@8. Early stopping ends at 58 % for 384 gold labels. Both are confirmed by the corrected test. A
#   penalty of 0.1 ends at 53 %, and the controller, which overshot its target of 2 nats, at 62 %; five seeds leave these
#   two unsettled.
# - **What is not shown**: an ensemble. The minimum of three models ends where one model ends, -0.2 points with an interval
#   from -20 to +20, so it may help or harm. All three learned from the same base and the same kind of pairs, so they may
#   overlook the same thing. Nor does anything follow about a bonus for diversity or another standard deviation.
# - **The rule itself** reaches 87 %: nothing makes up for a reward that does not know what is right. All these reward
#   models ordered 86 to 90 % of held-out pairs rightly, and none of that says how a run ends.
#
# Look at the right panel again. In the runs of [Gao et al.](https://arxiv.org/abs/2210.10760) a KL penalty did not change
# gold *at a given KL*: it worked like stopping earlier. Here the penalised runs lie above the others at the same KL: between
# 1 and 2 nats 43 % are right without a penalty, 54 % with 0.1 and 70 % with 0.3. One reason may be time. The unprotected
# runs pass that range within about two updates, while they still learn the form; the runs with 0.3 spend half of
# their updates there. So the comparison mixes the effect of the penalty with that of more updates, and these runs cannot
# separate the two. They do not contradict Gao et al.
#
# None of these remedies repairs the reward model. What does: label completions of the *policy*, and train it again
# ("iterated RLHF"), because then the new errors are in the data.

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
# A reward can also be right on average and err at random, such as people in a hurry or flaky tests. Flip a reward of 0 or
# 1 at the rate $f$, and a completion that is right with probability $p$ is paid with $f + (1 - 2f)\,p$. The order stays,
# the signal shrinks to $1 - 2f$, and the group's standard deviation grows with the noise. How well do the advantages
# still agree with the truth? Take 4,000 questions, p uniform between 0 and 1, in groups of 4, 8 and 16; the *batch's*
# standard deviation is that of all of them:

# %%
from grpo_workbook import group_advantages

torch.manual_seed(0)
probability = torch.rand(4000, 1)  # of a right answer, for each question
is_right = (torch.rand(4000, 16) < probability).float()


def agreement_with_truth(flips, size, scale):
    """Correlation of the advantages with those of the true rewards."""
    true_rewards = is_right[:, :size]
    flipped = (torch.rand(true_rewards.shape) < flips).float()
    paid = (true_rewards - flipped).abs()
    true_advantages = group_advantages(true_rewards.flatten(), size, scale)
    paid_advantages = group_advantages(paid.flatten(), size, scale)
    both = torch.stack([true_advantages, paid_advantages])
    return float(torch.corrcoef(both)[0, 1])


for flips in (0.1, 0.2, 0.35):
    for scale in ("group", "batch"):
        cells = []
        for size in (4, 8, 16):
            correlation = agreement_with_truth(flips, size, scale)
            cells.append(f"groups of {size}: {correlation:.2f}")
        print(f"{flips:4.0%} flipped, divided by the {scale}'s std: {', '.join(cells)}")

# %% [markdown]
# A larger group estimates its mean better, but the noise of each single reward stays: more *completions* average it out,
# in whatever groups they come. The standard deviation matters where a group is all right or all wrong: then its only
# variance is the noise, and dividing by the group's standard deviation turns it into advantages as large as any:

# %%
all_wrong = torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0])  # the 1 is a flipped verdict
mixed = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 0])
both_groups = torch.cat([all_wrong, mixed])
for scale in ("group", "batch", "none"):
    values = group_advantages(both_groups, 8, scale).tolist()
    flipped, right_one = values[3], values[8]
    print(f"{scale:6} the flipped one {flipped:5.2f}, a right one {right_one:5.2f}")

# %% [markdown]
# With the group's standard deviation the flipped one counts for nearly three right ones, with the batch's for less than
# two. Does it matter in training? Stored, on chapter 04's task with 20 and 30 % of the verdicts flipped:

# %%
report("noise")

# %% [markdown]
# With 20 % flipped, seven or eight points are lost in groups of 4 and 8; in groups of 16 one seed of five ended at 1 %.
# With 30 % every size of group has seeds at nearly 0 and others at 65 to 76 %: noise makes a run a gamble, and five seeds
# cannot say which size is best. The gain from the batch's standard deviation that the toy shows is lost in the noise.
#
# With a third of the learning rate and 30 % flipped, all five seeds end between 57 and 70 %, 24 points above the usual rate
# on average. Smaller steps average over more completions, so that is plausible, but the paired difference is not shown by
# five seeds (p = 0.15).
#
# ## The pipeline that GRPO replaced
#
# RLHF as of 2022 ([InstructGPT](https://arxiv.org/abs/2203.02155)) has three stages: SFT on demonstrations, a reward
# model on comparisons, PPO against it. PPO's **critic** is a second model, usually about as large as the policy, that
# predicts the reward from each token on; what came better than predicted is reinforced. GRPO replaced the critic by the
# group's mean. InstructGPT subtracts the KL divergence from PPO's reward; GRPO adds it to the loss. The stored runs below
# have it in the loss for both methods, so that they differ in less, and the short class in this chapter has none.

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
arrows = [
    ("policy", "text", ""), ("text", "reward", ""), ("text", "reference", ""),
    ("text", "critic", ""), ("reward", "A", ""), ("reference", "A", "KL"),
    ("critic", "A", "baseline"), ("A", "policy", "", -0.5),
]
figure = figures.diagram(boxes, arrows, (9.0, 3.6))
figures.show(
    figure,
    "Diagram: the policy writes completions; a frozen reward model, a frozen reference "
    "and, in PPO alone, a learning critic look at them; together they make the "
    "advantages with which the policy is updated.",
)

# %% [markdown]
# The critic's predictions $V_t$ become advantages by **generalised advantage estimation**: the error of one step is
# $\delta_t = r_t + V_{t+1} - V_t$, and $A_t = \delta_t + \lambda A_{t+1}$ (without discount). The reward comes at the
# last token only:

# %%
def gae(rewards, values, mask, decay=0.95):
    """Advantages and returns, (B, T) each; rewards (B,) come at the last token."""
    errors = torch.zeros_like(values)
    lengths = mask.sum(dim=1).tolist()
    for i, (reward, length) in enumerate(zip(rewards, lengths)):
        errors[i, :length] = -values[i, :length]
        errors[i, : length - 1] += values[i, 1:length]
        errors[i, length - 1] += reward
    advantages = errors.clone()
    for t in reversed(range(values.shape[1] - 1)):
        advantages[:, t] += decay * advantages[:, t + 1]
    returns = advantages + values
    return advantages * mask, returns * mask


predicted_rewards = torch.tensor([[0.2, 0.2, 0.7, 0.9]])
mask = torch.ones(1, 4, dtype=torch.long)
token_advantages, _ = gae([1.0], predicted_rewards, mask, decay=0.5)
for name, row in (("values", predicted_rewards), ("advantages", token_advantages)):
    numbers = " ".join(f"{value:5.2f}" for value in row[0].tolist())
    print(f"{name:10} {numbers}")

# %% [markdown]
# $V_t$ is predicted before token $t$ is written. After the second token the prediction rose from 0.2 to 0.7, so this token
# gets most of the credit (with a decay as low as 0.5; 0.95 is usual and spreads it). In GRPO all four would have the
# same advantage. Chapter 01's readable trainer becomes PPO by two classes: one adds a critic, the other a step that uses it.

# %%
import copy

from grpo_workbook import ScratchTrainer
from grpo_workbook.grpo import clipped_losses, policy_ratio, reduce_tokens


class CriticTrainer(ScratchTrainer):
    """The trainer of chapter 01 with a critic: a copy of the model with one output."""

    def __post_init__(self):
        super().__post_init__()
        self.critic = copy.deepcopy(self.model)
        self.head = torch.nn.Linear(self.model.config.hidden_size, 1)
        torch.nn.init.zeros_(self.head.weight)
        weights = [*self.critic.model.parameters(), *self.head.parameters()]
        self.critic_optimizer = torch.optim.AdamW(weights, 1e-3, weight_decay=0.0)

    def values(self, batch):
        """The reward that the critic expects before each token: (B, T)."""
        body = self.critic.model
        ids, attention = batch["input_ids"], batch["attention_mask"]
        hidden = body(input_ids=ids, attention_mask=attention).last_hidden_state
        length = batch["mask"].shape[1]
        before_each_token = hidden[:, -length - 1 : -1]
        return self.head(before_each_token).squeeze(-1) * batch["mask"]

# %% [markdown]
# A step samples completions, scores them, takes advantages from the critic, and updates each model once.

# %%
def update(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


class PPO(CriticTrainer):
    def step(self, rows):
        batch = self.rollout(rows)
        mask = batch["mask"]
        rewards = self.score(rows, batch["texts"])
        with torch.no_grad():
            advantages, returns = gae(rewards, self.values(batch), mask)
        written = advantages[mask.bool()]
        advantages = (advantages - written.mean()) / (written.std() + 1e-4)

        logp = self.logprobs(self.model, batch)
        ratio = policy_ratio(logp, logp.detach(), mask)
        loss = reduce_tokens(clipped_losses(ratio, advantages), mask, "dapo")
        update(self.optimizer, loss)

        squared_errors = (self.values(batch) - returns).square() * mask
        critic_loss = squared_errors.sum() / mask.sum()
        update(self.critic_optimizer, critic_loss)
        return {"reward": mean(rewards), "critic": float(critic_loss.detach())}

# %% [markdown]
# Make six steps against the reward model, and print the reward and the critic's squared error:

# %%
def learned_reward(prompts, completions, **columns):
    rows = []
    for prompt, completion in zip(prompts, completions):
        rows.append({"prompt": prompt, "text": completion[0]["content"]})
    return rewards_of(reward_model, rows)


policy = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
ppo = PPO(policy, tokenizer, learned_reward, learning_rate=3e-4)
for metrics in ppo.train(train_rows[320 : 320 + 6 * 8]):
    reward, error = metrics["reward"], metrics["critic"]
    print(f"step {metrics['step']}  reward {reward:5.2f}  critic's error {error:.2f}")

# %% [markdown]
# What does each method hold in memory? Count the weights, and for those that learn gradients and AdamW's two averages.

# %%
def mebibytes(learning, frozen):
    """Memory in float32: four numbers for a weight that learns, else one."""
    numbers = 0
    for model in learning:
        numbers += 4 * sum(weight.numel() for weight in model.parameters())
    for model in frozen:
        numbers += sum(weight.numel() for weight in model.parameters())
    return 4 * numbers / 2**20


frozen = [ppo.reference, reward_model]
print(f"GRPO with a reward model: {mebibytes([policy], frozen):5.1f} MiB")
both = [policy, ppo.critic]
print(f"PPO with a reward model:  {mebibytes(both, frozen):5.1f} MiB")
print(f"GRPO with a rule, no KL:  {mebibytes([policy], []):5.1f} MiB")

# %% [markdown]
# In float32; for a model of 7 billion weights multiply by 10,000. Activations come on top. The stored runs make SFT on 128
# worked answers, then PPO or GRPO against the same reward models, with a beta of 0.1 and equal completions:

# %%
pipeline = read_runs("pipeline")
report("pipeline")

# %% [markdown]
# SFT on 128 answers is good already, and GRPO against the reward model takes 14 points away again. PPO does not. But does
# that make PPO the better method? The runs did not move equally far. At the end GRPO is at a KL divergence of 1.6 nats from
# the policy after SFT, GRPO with the batch's standard deviation at 0.6, and PPO at 0.35. So compare them at the same distance:

# %% tags=["hide-input"]
methods = ["SFT, then GRPO", "SFT, then GRPO, PPO's loss",
           "SFT, then GRPO, batch's std", "SFT, then PPO"]
borders = [0, 0.2, 0.6, 1, 3]
labels = ["0 to 0.2", "0.2 to 0.6", "0.6 to 1", "1 to 3"]
figure, (axes,) = figures.new_panels(8.5, 3.6)
lines = []
for method, (colour, dash, marker) in zip(methods, figures.STYLES):
    logs = [pd.DataFrame(log) for log in pipeline.query("method == @method")["log"]]
    batches = pd.concat(logs)
    ranges = pd.cut(batches["kl"], borders, labels=labels, include_lowest=True)
    rates = batches.groupby(ranges, observed=True)["right"].agg(["mean", "size"])
    rates = rates[rates["size"] >= 5]
    places = [labels.index(label) for label in rates.index]
    axes.plot(places, rates["mean"], dash, marker=marker, color=colour, label=method)
    numbers = []
    for label, row in rates.iterrows():
        numbers.append(f"{row['mean']:.3f} of {row['size']:.0f} batches at {label}")
    lines.append(f"{method}: {', '.join(numbers)}")
axes.set_xticks(range(len(labels)), labels)
axes.set(xlabel="KL of a completion from the policy after SFT, nats", ylim=(0.4, 0.9))
axes.set(ylabel="right", title="At the same distance the methods differ little")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers over KL. {'; '.join(lines)}.")

# %% [markdown]
# At 0.2 to 0.6 nats 74 % of GRPO's completions are right, 77 % with the batch's standard deviation and 76 % of PPO's. So most
# of the 16 points at the end go with the distance: PPO and the batch's standard deviation take smaller steps away
# from the start at the same learning rate. (The points are means over the batches of five runs that fell in that range.) Nor
# is PPO better than the plain SFT with which it started: +2.0 points, p = 0.25, for 1.7 times GRPO's memory and 1.3
# times its seconds. Against this reward model no method earned its price.

# %% [markdown]
# ## Process rewards
#
# An **outcome reward** judges the answer, a **process reward** each step. DeepSeekMath (section 4.1.3) normalises the
# rewards of all steps of a group together, and a token's advantage is the sum over its own step and all later ones. One
# group of chapter 12's sums, with three completions; a step is right if it is the next column of the sum:

# %%
step_rewards = {
    "all right": [1.0, 1.0, 1.0, 1.0],
    "slip in the second": [1.0, 0.0, 1.0, 0.0],
    "no steps, wrong": [0.0],
}
every_step, outcomes = [], []
for rewards in step_rewards.values():
    every_step.extend(rewards)
    outcomes.append(rewards[-1])  # the answer
every_step, outcomes = torch.tensor(every_step), torch.tensor(outcomes)
outcome_advantages = (outcomes - outcomes.mean()) / (outcomes.std() + 1e-4)
centre, scale = every_step.mean(), every_step.std() + 1e-4

by_outcome, by_step = {}, {}
for i, (name, rewards) in enumerate(step_rewards.items()):
    scaled = (torch.tensor(rewards) - centre) / scale
    sums = [float(scaled[start:].sum()) for start in range(len(rewards))]
    by_step[name] = sums
    by_outcome[name] = [float(outcome_advantages[i])] * len(rewards)
    numbers = " ".join(f"{value:5.2f}" for value in sums)
    print(f"{name:20} outcome {outcome_advantages[i]:5.2f}   by step {numbers}")

# %% [markdown]
# The last reward is the answer's. The outcome penalises the completion with the slip as much as the one that tried
# nothing, in every token alike. By step, the slip is penalised most and the right step after it least; even the first
# step, which was right, answers for what came after. And note a side effect: early steps add up many later rewards, so
# where most steps are right, *longer* is better.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 2.6, 2, 2)
top = max(abs(value) for value in by_step["all right"])
kinds = [("outcome reward", by_outcome), ("process reward", by_step)]
for axes, (title, advantages) in zip(panels, kinds):
    axes.grid(False)
    for row, values in enumerate(advantages.values()):
        for x, value in enumerate(values):
            colour = figures.BLUE if value > 0 else figures.ORANGE
            shade = 0.15 + 0.8 * abs(value) / top
            axes.barh(-row, 0.94, 0.7, left=x, color=colour, alpha=shade)
            label = f"{value:.1f}"
            axes.text(x + 0.47, -row, label, ha="center", va="center", fontsize=9)
    axes.set_yticks([0, -1, -2], ["", "", ""])
    axes.set_xticks([0.47, 1.47, 2.47, 3.47], ["1st", "2nd", "3rd", "answer"])
    axes.set_title(title)
panels[0].set_yticks([0, -1, -2], list(by_step))
lines = []
for name, values in by_step.items():
    numbers = ", ".join(f"{value:.1f}" for value in values)
    lines.append(f"{name}: outcome {by_outcome[name][0]:.1f}, by step {numbers}")
words = "; ".join(lines)
figures.show(figure, f"Advantages of the steps of three completions. {words}.")

# %% [markdown]
# A rule for steps can have a gap too. "Right steps" below compares with the columns of this very sum; "true steps" pays
# every equation that is true, such as 1+1=2, written as often as you like. The stored runs are on the sums of chapter 12:

# %%
report("process")

# %% [markdown]
# Neither difference is shown. Paying right steps gained ten points on average, but on this task the seeds differ so much
# (chapter 12) that the interval goes from -12 to +32. Paying every true equation lost fifteen, from -38 to +7. A loss
# there would be no surprise: that reward buys columns that are true and belong to no sum. What is paid for each step is one
# more reward that can be wrong.

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
#     every_step = []
#     for steps in rewards:
#         every_step.extend(steps)
#     centre = mean(every_step)
#     scale = stdev(every_step) + 1e-4
#     advantages = []
#     for steps in rewards:
#         scaled = [(reward - centre) / scale for reward in steps]
#         advantages.append([sum(scaled[i:]) for i in range(len(scaled))])
#     return advantages
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
    (most_common, _), *_ = Counter(answers).most_common(1)
    return [float(answer == most_common) for answer in answers]


def diversity(answers):
    counts = Counter(answers)
    others = len(answers) - 1
    return [1 - (counts[answer] - 1) / others for answer in answers]


answers = ["12", "12", "12", "12", "12", "15", "15", "9"]
agreed = torch.tensor(majority(answers))
rare = torch.tensor(diversity(answers))
for weight in (0.0, 0.5, 1.0, 2.0):
    values = group_advantages(agreed + weight * rare, 8).tolist()
    numbers = f"12 {values[0]:5.2f}, 15 {values[5]:5.2f}, 9 {values[7]:5.2f}"
    print(f"bonus {weight}: {numbers}")

# %% [markdown]
# A bonus does not know which rare answer is right; it only slows the narrowing down. And at a weight of 2 the majority
# earns less than the rarest answer. In the table of the stored runs *answer* counts right numbers in any form, and
# *answer8* the problems with a right number among eight attempts:

# %%
report("diversity")

# %% [markdown]
# Without a label, the majority lifts single answers from 53 to 74 % right. But of the problems that the base solves at
# least once in eight attempts, which are nearly all, one in fifteen is lost. The bonus of 0.5 recovered two fifths of the
# lost problems, and in the strict form 95 instead of 89 % of the problems have a right answer among eight; eight seeds
# cannot confirm either. With the reward model above a bonus shows no gain ("diversity bonus" in the table of remedies).

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
judge_of_one, judge_of_two = Judge("", "", ONE, SAYS), Judge("", "", TWO, SAYS)
right = correctness_reward(
    [row["text"] for row in pool], answer=[row["answer"] for row in pool],
    question=[row["question"] for row in pool],
)
lesson = []  # questions to the judge, and what it should say


def add_question(text, verdict):
    prompt = [{"role": "user", "content": text}]
    lesson.append({"prompt": prompt, "completion": message(str(int(verdict)))})


for row, verdict in list(zip(pool, right))[:640]:
    fields = {"prompt": row["question"], "completion": row["text"]}
    add_question(judge_of_one.text(fields), verdict)
rng = random.Random(0)
for better, worse in train_pairs[:480]:
    better_first = rng.random() < 0.5
    first, second = better["text"], worse["text"]
    if not better_first:
        first, second = second, first
    fields = {"prompt": better["question"], "first": first, "second": second}
    add_question(judge_of_two.text(fields), better_first)

# %% [markdown]
# This is one of the questions. The model learns them with TRL's `SFTTrainer`, and is saved:

# %%
from trl import SFTConfig, SFTTrainer

print(lesson[0]["prompt"][0]["content"], "->", lesson[0]["completion"][0]["content"])
torch.manual_seed(profile.seed)
student = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
args = SFTConfig(
    learning_rate=1e-3, num_train_epochs=1, warmup_steps=4,
    per_device_train_batch_size=16, seed=profile.seed, **common,
)
trainer = SFTTrainer(
    student, args, processing_class=tokenizer,
    train_dataset=Dataset.from_list(lesson).shuffle(seed=0),
)
trainer.remove_callback(PrinterCallback)
trainer.train()
folder = profile.output / "judge"
student.save_pretrained(folder)
tokenizer.save_pretrained(folder)
losses = [entry["loss"] for entry in trainer.state.log_history[:-1]]
print(f"loss {losses[0]:.2f} at first, {mean(losses[-8:]):.2f} at the end")

# %% [markdown]
# ### An endpoint
#
# As in chapter 09, `transformers serve` answers on loopback. Replace address, model and key by those of your own judge:

# %%
import os
import socket
import time
from pathlib import Path

with socket.socket() as connection:
    connection.bind(("127.0.0.1", 0))  # 0: any free port
    port = connection.getsockname()[1]
transformers = Path(sys.executable).with_name("transformers")
command = f"{transformers} serve {folder} --host 127.0.0.1 --port {port} --device cpu"
log_path = profile.output / "judge.log"
log_file = log_path.open("w")
server = subprocess.Popen(
    command.split(), stdout=log_file, stderr=log_file,
    env={**os.environ, "HF_HUB_OFFLINE": "1"},
)
listening = False
while not listening:
    assert server.poll() is None, log_path.read_text()[-2000:]
    time.sleep(0.2)
    with socket.socket() as connection:
        listening = connection.connect_ex(("127.0.0.1", port)) == 0
print("the judge is there")

# %% [markdown]
# `ask` takes rows with the template's fields and gives one verdict for each, or None. It asks eight at a time, equal
# questions once, and again after an error or a timeout. It is a coroutine, as TRL wants it. A notebook has a running
# event loop already, so here it runs in a thread of its own:

# %%
import asyncio
from concurrent.futures import ThreadPoolExecutor


def run_now(coroutine):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


url = f"http://127.0.0.1:{port}/v1"
price = (0.5, 1.5)  # of a million tokens, read and written
judge = Judge(url, str(folder), ONE, SAYS, price=price)
unseen = pool[1024:1184]
labels = right[1024:1184]
questions = []
for row in unseen:
    questions.append({"prompt": row["question"], "completion": row["text"]})
verdicts = run_now(judge.ask(questions))
print(dict(judge.counts))
cost_of_run = 10_000 / len(questions) * judge.cost
print(f"{sum(judge.tokens):,} tokens, {judge.cost:.4f} for {len(questions)} verdicts")
print(f"a run of 10,000 completions: {cost_of_run:.2f}")

# %% [markdown]
# ### Calibrate it
#
# **Cohen's kappa** is agreement beyond chance: $\kappa = (p_o - p_e) / (1 - p_e)$, with $p_o$ the rate of equal verdicts
# and $p_e$ the rate that a judge with the same habits would reach blindly. 1 is perfect, 0 useless. Measure how
# well two people agree, too: against the labels of one person, who errs, even a perfect judge stays below 1. For a higher
# bound take the majority of several people.

# %%
def show_agreement(name, places):
    chosen = [verdicts[place] for place in places]
    result = agreement(chosen, [labels[place] for place in places])
    interval = f"[{result.low:.2f}, {result.high:.2f}]"
    passed = sum(verdict == 1 for verdict in chosen)
    print(f"{name:22} kappa {result.kappa:.2f} {interval}, equal {result.equal:.0%}")
    print(f"{'':22} the judge says \"right\" to {passed} of {result.n}")
    return result


whole = show_agreement("all", range(len(unseen)))
same_form = []
for place, row in enumerate(unseen):
    if row["gold"] in (1.0, 0.333):
        same_form.append(place)
blind = show_agreement("the same, whole form", same_form)
bias = length_bias(verdicts, labels, [len(row["text"]) for row in unseen])
print(f"of two with the same label the longer one wins: {bias:.0%} (fair: 50%)")

# %% [markdown]
# Over all completions the kappa is one that many would accept. Among those in the whole form the judge says "right" to
# nearly all. A judge that hardly varies cannot agree beyond chance, so its kappa is near 0 whatever the labels are, and a
# narrow interval there would not mean that much is known. So this judge looks at the form. It was asked "Right?", but what
# it answers is "well-formed?": a prompt is no proof of what a judge reads. Calibrate on the cases between which it will
# have to decide: as the policy learns the form, all completions will be of the second kind.
#
# ### Which of two?
#
# For pairs ask twice, with the order swapped. A judge that says "the first" both times has decided nothing:

# %%
pair_judge = Judge(url, str(folder), TWO, SAYS, price=price)
asked_pairs = test_pairs[:30]
questions_of_two = []
for better, worse in asked_pairs:
    questions_of_two.append((better["question"], better["text"], worse["text"]))
choices = run_now(pair_judge.compare(questions_of_two))
decided = [choice for choice in choices if choice in (0.0, 1.0)]
by_position = pair_judge.counts["position decided"]
position = by_position / len(asked_pairs)
print(f"{by_position} of {len(asked_pairs)} pairs are decided by position alone")
print(f"of the other {len(decided)}, {sum(decided):.0f} in the order of gold")

# %% [markdown]
# Most pairs are decided by their position alone, so this judge has learned the order of the texts rather than their
# quality. The few pairs that are left say little about it, and another execution gives another rate: count them before
# you quote a percentage.
#
# ### Attack it
#
# What could a policy find out? The lab's collection has texts that talk to a judge, all with a wrong answer. Try each on
# eight problems. First, for comparison, wrong answers that do not attack:

# %%
pass_rates = {}
wrong_rows = [row for row, label in zip(unseen, labels) if not label][:8]
wrong_numbers = [str(int(row["answer"]) + 1) for row in wrong_rows]


def show_pass_rate(name, texts):
    """The rate at which these completions pass; all have a wrong answer."""
    questions = []
    for row, text in zip(wrong_rows, texts):
        questions.append({"prompt": row["question"], "completion": text})
    outcomes = [verdict or 0 for verdict in run_now(judge.ask(questions))]
    pass_rates[name] = mean(outcomes)
    print(f"{name:28} {pass_rates[name]:5.0%} pass")


show_pass_rate("as they were", [row["text"] for row in wrong_rows])
in_form = [honest(number, f"1+1={number}") for number in wrong_numbers]
show_pass_rate("wrong, in the whole form", in_form)
tags = [f"<answer>{number}</answer>" for number in wrong_numbers]
show_pass_rate("wrong, the tag alone", tags)
attack_texts = {}
for row, number in zip(wrong_rows, wrong_numbers):
    for attack in attacks(row["answer"], number):
        if attack.family == "talking to a judge":
            text = attack.text.replace("yes", "1")
            attack_texts.setdefault(attack.name, []).append(text)

# %% [markdown]
# Now the attacks. A completion may also hold the marks with which a chat template opens a turn; a `Judge` breaks those up,
# so they are only text (the last lines):

# %%
for name, texts in attack_texts.items():
    show_pass_rate(name, texts)
own_turn = attack_texts["a turn of its own"][0]
print(judge.text({"prompt": "6*7?", "completion": own_turn}))

# %% [markdown]
# Compare each attack with "wrong, in the whole form" and "the tag alone". Where a plain wrong answer in the right form
# passes, no attack is needed; an attack that passes more often is a loophole of its own. Eight problems are few: a rate
# of 50 % is four of them. Marks, fences and strict replies close the ways around the judge. They do not help against a completion that
# it simply believes. Every judge has such a table; a larger one has other gaps. Make yours before training, and again with
# completions of the trained policy. What helps: a reference answer in the question (`{answer}` in the template takes the
# dataset's column), the order swapped, a rule for what a rule can check, and a penalty of length outside of the judge.
#
# ### When it fails
#
# A reply that is no verdict, a timeout, a busy server: None, counted, with the reason. Never 0, which would penalise the
# completion. If more than half of a batch has no verdict, the run stops:

# %%
from grpo_workbook import WorkbookError


def show_error(judge):
    try:
        run_now(judge.ask(questions[:4]))
    except WorkbookError as error:
        print(str(error).replace(str(folder), "judge").replace(str(port), "PORT"))


show_error(Judge(url, str(folder), ONE, {"yes": 1.0, "no": 0.0}))
server.terminate()
server.wait(timeout=60)
log_file.close()
show_error(Judge(url, str(folder), ONE, SAYS, retries=0))

# %% [markdown]
# In TRL the judge is one reward among others, asked while the other rewards are computed:
#
# ```python
# GRPOTrainer(model, reward_funcs=[get_judge_reward(judge), strict_format_reward], ...)
# ```

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
last = pd.DataFrame(free).tail(4).mean()
proved = {
    "pairs": len(train_pairs),
    "accuracy": mean(all_rates),
    "alike": mean(form_rates),
    "steps": len(free),
    "proxy": [free[0]["proxy"], last["proxy"]],
    "gold": [free[0]["gold"], smooth["gold"].max(), last["gold"]],
    "kl": [free[0]["kl"], free[-1]["kl"]],
    "kappa": [whole.kappa, whole.low, blind.kappa],
    "position": position,
    "taken in": pass_rates,
    "asked": judge.counts["asked"],
    "stored": len(runs),
}
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_13.json").write_text(json.dumps(proved, indent=2))
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
# Chance: for each possible verdict, the rate at which the judge says it times the rate at which the labels do; add up.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def kappa(judge: list[str], labels: list[str]) -> float:
#     n = len(judge)
#     equal = sum(a == b for a, b in zip(judge, labels)) / n
#     chance = 0.0
#     for verdict in {*judge, *labels}:
#         chance += judge.count(verdict) / n * labels.count(verdict) / n
#     return (equal - chance) / (1 - chance)
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# What happens if the reward is a learned model, and what helps when it is wrong?
#
# - A reward model learns what separates its pairs. Break its accuracy down by what differs, within the same problem: it
#   may be blind where it counts. Random errors in the labels cost data; systematic ones are learned.
# - Train against it, and the proxy always rises. Gold rises, peaks and falls. Only gold labels show where.
# - Here a KL penalty that is strong enough and early stopping kept what was gained; that an ensemble of three helps was not
#   shown. Compare methods at the same KL, or a slow one looks good. New labels on the policy's own completions repair the
#   reward.
# - A judge is a reward that can read, so it can be talked to. Calibrate it on the cases it will see, swap the order,
#   attack it, and count what gives no verdict.
# - Where a rule can check something, let the rule do it.
#
# Next: [14 · Your own project](14_capstone.ipynb) takes a file of yours through all of it, step by step.
