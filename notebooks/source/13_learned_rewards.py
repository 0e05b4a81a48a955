# %% [markdown]
# # 13 · Learned rewards
#
# What happens if the reward is not a rule but a model that learned what people prefer, and what helps when this model
# is wrong? This chapter trains a policy against such a reward until the policy fools it, and then compares remedies.
#
# **After this notebook you can** train a reward model with TRL and say which errors it overlooks, train against it and
# see at which distance from the base it stops helping, choose a remedy by stored runs, and test a language model as
# judge before you trust it.
#
# **Time:** about 3 minutes on two CPU cores. You train a reward model, a policy against it, and a judge; the runs with
# many seeds are stored, and you read them. Reading takes about 45 minutes, and the optional part "For the curious"
# another 15. **You need** chapters 00, 01 and 03, and from chapter 12 what a paired difference and Holm's correction
# are.

# %% [markdown]
# ## Rewards that learned
#
# Until now a rule decided what is right. No rule can decide whether a summary is good. For such tasks the reward comes
# from a model that learned, and it can be wrong:
#
# | reward | made from | how it goes wrong |
# | --- | --- | --- |
# | a rule, or tests | a program | a gap in the rule (chapters 03 and 06) |
# | a **reward model** | pairs of completions that people compared | it learns whatever separates the pairs |
# | a **judge** | a language model and a question | it likes length, confidence, the first answer, flattery |
# | a **process reward** | labels, or a rule, for each step | steps that are fine and lead nowhere |
#
# Training against a reward model that learned from people's comparisons is called **RLHF**; until 2024 most
# reinforcement learning of language models was of this kind. The reward that is paid is the **proxy**. What we really
# want is **gold**. Here gold is a rule, as in chapter 04, but no training sees it. It only orders the pairs, as people
# would, and measures the result.
#
# ## Toy: when a measure becomes a target
#
# Where does optimising a wrong reward lead? Take 4,000 answers to one question, each with its gold value. A proxy is
# gold plus an error. The best policy under a penalty of strength $\beta$ for leaving the base policy $\pi_0$ is known
# exactly:
#
# $$\pi(a) \propto \pi_0(a)\, e^{r(a) / \beta}$$
#
# So this toy needs no training: lower $\beta$ step by step and compute the best policy each time. The first proxy has
# an error on every answer, with the same standard deviation as gold itself. The second proxy is exact except for 8
# answers, which are bad and get a high reward.

# %%
import torch

torch.manual_seed(0)
gold_values = torch.randn(4000)
gold_values[:8] = -2.0  # eight bad answers
noisy = gold_values + torch.randn(4000)
loophole = gold_values.clone()
loophole[:8] = 6.0  # which this proxy rewards most


def optimised(proxy, gold, beta):
    """(KL from the uniform base, mean proxy, mean gold) of the best policy."""
    p = (proxy / beta).softmax(0)
    kl = (p * (p * len(p)).log()).sum()
    return float(kl), float(p @ proxy), float(p @ gold)


paths = {"an error everywhere": [], "a loophole": []}
for beta in torch.logspace(1.5, -0.6, 60).tolist():
    paths["an error everywhere"].append(optimised(noisy, gold_values, beta))
    paths["a loophole"].append(optimised(loophole, gold_values, beta))
for name, proxy in (("an error everywhere", noisy), ("a loophole", loophole)):
    same_order = (proxy[:, None] > proxy) == (gold_values[:, None] > gold_values)
    print(f"{name}: {same_order.float().mean():.1%} of the pairs in the right order")

# %% [markdown]
# Compare the two proxies:

# %% tags=["hide-input"]
from grpo_workbook import figures

figure, panels = figures.new_panels(9.0, 3.3, 2, 2)
lines = []
for axes, (name, path) in zip(panels, paths.items()):
    kl, proxy, gold_line = zip(*path)
    axes.plot(kl, proxy, "--", color=figures.ORANGE, label="proxy")
    axes.plot(kl, gold_line, color=figures.BLUE, label="gold")
    axes.set(xlabel="KL from the base, nats", ylabel="mean reward")
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
# In each panel the policy moves from left to right as $\beta$ falls: the horizontal axis is its KL divergence from the
# base in nats (the unit that belongs to the natural logarithm), the vertical axis its mean reward. The dashed line is
# the proxy, the solid line gold.
#
# With the loophole, gold falls although the proxy rises. This is **Goodhart's law**: when a measure becomes a target,
# it ceases to be a good measure. [Gao et al.](https://arxiv.org/abs/2210.10760) measured such curves for reward models
# of many sizes. Note which proxy is dangerous: the first one orders three of four pairs rightly, the second one 99.6 %.
# What counts is the error on the answers *that the policy moves to*. Rare large errors are worse than common small
# ones, and the accuracy on pairs does not show them.

# %% [markdown]
# ### Exercise 13.1 · `tilted` · medium · 10 minutes
#
# Write the toy's formula yourself, in plain Python, for a uniform base of n answers: return the KL divergence of the
# policy from the base, the mean proxy and the mean gold. Then make up a proxy with a loophole, and find the beta at
# which the mean gold is highest.

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
# Divide the weights $e^{r/\beta}$ by their sum to get the probabilities $p_i$. The KL divergence is
# $\sum_i p_i \log (p_i / \frac{1}{n})$.
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
# People find it hard to give a number to a text and easy to compare two texts. So a reward model learns from pairs. It
# maps a whole conversation to one number $r$, and the model of **Bradley and Terry** gives the probability that a is
# preferred to b:
#
# $$P(a \succ b) = \sigma(r_a - r_b) \qquad \text{loss} = -\log \sigma(r_{\text{chosen}} - r_{\text{rejected}})$$
#
# Only differences matter: if you add 100 to all rewards, the loss stays the same. GRPO's advantages stay the same too,
# because GRPO subtracts the group's mean.

# %% [markdown]
# ### Exercise 13.2 · `preference_loss` · easy · 5 minutes
#
# Return the mean loss over all pairs, from the rewards of the chosen and of the rejected completions.


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
# The base model of this chapter is *tiny-form*, which can solve the problems and was trained, on purpose, to write its
# answers in messy forms ([its card](../data/tiny-form/README.md)); so its answers differ in form and in the number. It
# answers 320 problems, four times each. Gold is chapter 04's weighted sum of rewards divided by 3, so it goes from 0 to
# 1; 1 means a right answer in exactly the requested form.

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
TINY = config.DATA / "tiny-form"
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
# The completions are sampled as in training. A list called `pool` keeps the completions of one problem next to each
# other. The cell prints four of the values that gold takes, each with an example; the remaining completions have other
# values:

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
# A row for TRL has a `prompt` and two completions, `chosen` and `rejected`. Take up to two pairs of each problem whose
# four completions differ in gold. The last 64 problems are held out:

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
# A reward model is a language model whose last layer is replaced by one that gives a single number, read at the
# conversation's last token. In Transformers this is `AutoModelForSequenceClassification` with `num_labels=1`. TRL's
# `RewardTrainer` minimises the loss above. In its log, *accuracy* is the fraction of a batch's 16 pairs that are
# ordered rightly, and *margin* the mean of $r_{\text{chosen}} - r_{\text{rejected}}$:

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
# This model is tiny, so it needs neither 4-bit weights nor an adapter. For a large model give `peft_config` with
# `task_type="SEQ_CLS"` and `modules_to_save=["score"]`, because the new last layer has to be trained in full.
#
# How often does the model order held-out pairs as gold does? A fair count compares only completions of the *same*
# problem. The loss sees only such pairs, so the model is free to give all completions of one problem higher rewards
# than those of another. For the interval, note that problems are drawn independently and pairs of one problem are not.
# So compute for each problem the fraction of its pairs that are ordered rightly:

# %%
from statistics import mean

from grpo_workbook import bootstrap_interval, wilson_interval


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
# Compute this rate twice: over all pairs, and over pairs of the *same form*, in which both completions have the
# requested form and only one has the right answer (their gold is 1 and 0.333). Such pairs are rare among the held-out
# completions, so sample eight completions for each of 512 more problems:

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
# Nearly all pairs differ in form, so form is what the model learned best. Among pairs of the same form, only the number
# tells right from wrong, and there the model is right in 70 % of cases; a coin would reach 50 %. A single accuracy over
# all pairs hides this, so break it down by *what differs*. (Even 91 problems leave a wide interval.)
#
# ### Is it calibrated?
#
# $\sigma(r_a - r_b)$ is a probability. A model is calibrated if, of the pairs to which it gives 80 %, 8 in 10 are
# ordered that way:

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
axes.set(xlabel="predicted probability", xlim=(0, 1), ylim=(0, 1))
axes.set_ylabel("fraction that came true")
axes.set_title("Predicted and observed, held-out pairs")
figures.show(
    figure, f"Calibration of the reward model on held-out pairs. {'; '.join(lines)}."
)

# %% [markdown]
# Each point is a group of pairs: the horizontal axis is the mean predicted probability, the vertical axis the fraction
# of pairs for which the prediction came true, with a 95 % interval. (Each pair appears in both orders, so the left half
# mirrors the right. The intervals treat the pairs as independent and are a little too narrow, because some pairs belong
# to the same problem.) On the grey line both are equal.
#
# Right of the middle the points lie above the line. So the model is too cautious: what it calls likely comes true even
# more often.
#
# ### What does it read?
#
# Give the model chapter 03's collection of attacks, all for one question with the answer 42 (those of fewer than 400
# characters). An attack that earns as much as the honest right answer is a loophole. The second comparison is an honest
# wrong answer: how much less does it earn?

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
# No attack earns more than the right answer, but the best attacks come close, and the honest wrong answer earns almost
# the same (1.61 against 1.64). So the model reads the form well and the number badly. A policy that is trained against
# it is not limited to this collection: it searches, update by update, for what the model overrates.
#
# ### Labels that are wrong
#
# People make errors, too: two of them agree on 60 to 75 % of pairs ([Coste et al.](https://arxiv.org/abs/2310.02743)
# list studies). Suppose a fraction $f$ of the labels is flipped at random. Then the best prediction is
# $f + (1 - 2f)\,\sigma(r_a - r_b)$, which is less certain but orders all pairs in the same way. So a reward model can
# learn the right order from flipped labels, but it needs more data. The stored runs have 10, 20 and 30 % of the labels
# flipped:

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
# *accuracy* is the rate over all held-out pairs. *points* is the difference from unflipped labels, seed by seed, with
# its 95 % interval and its p after Holm's correction (chapter 12). The last word is *better* or *worse* if this p is
# below 0.05. Otherwise it is *unsettled* if the interval leaves out 0, which more seeds would settle, and *not shown*
# if it does not. With three labels of ten flipped, accuracy is four points lower, and even that is unsettled with five
# seeds. These runs do not show whether pairs of the same form suffer more, because they have no fair count of such
# pairs. Systematic errors are worse than random ones, because they do not average out: if people prefer the longer
# answer, the model learns to prefer it.
#
# ## Train against it
#
# TRL accepts a reward model in the place of a reward function. Gold is added as a second reward with a weight of 0, so
# it is measured at every step and never paid. A tiny `beta` makes TRL log the KL divergence from the base:

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
            "proxy": entry["rewards/tiny-form/mean"],
            "gold": entry["rewards/gold/mean"],
            "kl": entry["kl"],  # per token
            "tokens": entry["completions/mean_length"],
        })
    return log, policy


free, hacked = goodhart(reward_model, beta=1e-4)

# %% [markdown]
# How do proxy and gold depend on the distance from the base? Steps are a poor measure of it, because one method takes
# longer steps than another. So this chapter draws everything over the KL divergence, as in the toy. TRL logs the mean
# KL per token; multiplied by the mean number of tokens, it is the KL of a completion:

# %% tags=["hide-input"]
import pandas as pd

table = pd.DataFrame(free)
table["distance"] = table["kl"] * table["tokens"]  # KL of a completion
smooth = table.rolling(3, min_periods=1, center=True).mean()
figure, panels = figures.new_panels(9.0, 3.4, 2, 2)
looks = {"proxy": ("o--", figures.ORANGE), "gold": ("o-", figures.BLUE)}
for axes, (column, (dash, colour)) in zip(panels, looks.items()):
    axes.plot(smooth["distance"], smooth[column], dash, color=colour, ms=3, lw=1)
    axes.set(xlabel="KL of a completion from the base, nats", title=column)
    axes.set_ylabel(f"mean {column} of the completions")
panels[1].set_ylim(0, 1)
best = smooth["gold"].idxmax()
first, top, last = smooth.iloc[0], smooth.loc[best], smooth.iloc[-1]
figure.suptitle("The proxy rises and stays high; gold rises, then falls")
figures.show(
    figure,
    f"Two line charts over KL. Gold: {first['gold']:.2f} at first, at best "
    f"{top['gold']:.2f} at {top['distance']:.1f} nats, at the end {last['gold']:.2f} "
    f"at {last['distance']:.1f} nats. Proxy: {first['proxy']:.2f} at first, "
    f"{top['proxy']:.2f} where gold is best, at the end {last['proxy']:.2f}.",
)
print(f"gold {first['gold']:.2f} at first, {last['gold']:.2f} at the end; at best "
      f"{top['gold']:.2f}, at {top['distance']:.1f} nats, in step {best + 1}")

# %% [markdown]
# The dots are the 24 steps of the run in their order, each a mean of three steps. The horizontal axis is the KL
# divergence of a completion from the base. The vertical axis is the proxy on the left and gold on the right.
#
# First the policy learns what the reward model knows, the form, and gold rises with the proxy. After that, the policy
# can gain only from the *errors* of the reward model, and it finds them: gold falls to about half of its best value.
# What does the policy write in the end?

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
# The completions are well-formed, and four of the six answers are wrong. Without gold labels you would not notice.
#
# The call above has three traps, none of which raises an error:
#
# - A **classifier with two labels** is accepted. TRL reads its first output, which in most models is the score for
#   "bad". Check `model.config.num_labels == 1`.
# - Without `reward_processing_classes` TRL loads the tokenizer that the reward model's own folder names. A **wrong
#   tokenizer** with a smaller vocabulary gives meaningless rewards.
# - The chat template closes each completion, so a completion that was **cut off** at the length limit looks finished to
#   the reward model. Use `mask_truncated_completions=True`, or a penalty.
#
# Check the number of labels, the vocabulary, and the order of a good and a bad text before any training:

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
# Train the same 24 steps with a KL penalty of 0.3. Will the policy end with more gold than without the penalty, with
# less, or with the same (within 0.1)? Predict, then run. It takes about a minute.

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
# At which KL divergence did the run without a penalty have its best gold? At which one did it end?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "more gold"
# ```
#
# The penalty costs some proxy reward and keeps the policy near completions of the kind that the reward model was
# trained on. A much larger penalty lowers gold again: with an infinite one, the policy stays the base.
#
# </details>

# %% [markdown]
# ## Remedies, with seeds
#
# `benchmarks/goodhart.py` repeats this experiment with new pools, reward models and policies for every seed. It uses
# the training loop of chapter 12 and held-out problems. The stored runs compare these remedies:
#
# - **beta** is a fixed KL penalty. **adaptive beta** rises while the divergence is above a target, and falls below it
#   ([Ziegler et al.](https://arxiv.org/abs/1909.08593)).
# - **batch's std** divides advantages by the batch's standard deviation, **no std** does not divide them. Once all
#   completions of a group have the form, the reward model's differences are mostly error, and dividing by the group's
#   own standard deviation makes them as large as real differences.
# - **mean of three** and **minimum of three** are an ensemble: three reward models that were trained on different
#   pairs. Where the models disagree, none has seen enough. The minimum takes the lowest of the three rewards; Coste et
#   al. found it best with a small penalty.
# - **early stopping** measures gold on 64 other problems every 256 completions and keeps the best weights. It needs a
#   few gold labels.
# - **diversity bonus** is explained in the last part of this chapter. **30 % flipped** uses reward models from worse
#   labels. **the rule itself** pays gold.

# %%
def read_runs(task):
    """One row per stored run, with what was measured at its end as columns."""
    runs = pd.read_json(STORED / f"{task}.jsonl", lines=True)
    runs = runs.drop_duplicates(["method", "seed"], keep="last")
    measured = pd.DataFrame(list(runs["end"]), index=runs.index)
    return runs.join(measured)


runs = read_runs("goodhart")
labelled = runs[runs["method"] == "early stopping"]["labels"].mean()
print(f"{len(runs)} runs, {runs['seed'].nunique()} seeds; early stopping used "
      f"{labelled:.0f} gold labels in each run")
report("goodhart")

# %% [markdown]
# *sampled* is the rate of right answers in the requested form, and *points* the paired difference in this rate. *kl* is
# the divergence from the base of the weights that were measured (with early stopping, those that were kept). All
# completions are sampled; these runs were not measured greedily.
#
# The table compares the *ends* of the runs, and the methods do not end at the same distance from the base. The next
# figure shows the runs without a remedy on their way:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 3.4, 2, 2)
unhelped = runs[runs["method"] == "one model"]
lines = []
for axes, (column, (_, colour)) in zip(panels, looks.items()):
    paths = []
    for log in unhelped["log"]:
        path = pd.DataFrame(log).rolling(3, min_periods=1, center=True).mean()
        axes.plot(path["kl"], path[column], color=colour, lw=0.8, alpha=0.5)
        paths.append(path)
    average = pd.concat(paths).groupby(level=0).mean()
    values = average[column]
    axes.plot(average["kl"], values, color=colour, lw=2.5)
    axes.set(xlabel="KL of a completion from the base, nats", title=column)
    axes.set_ylabel(f"mean {column} of the completions")
    start, most, end = values.iloc[0], values.max(), values.iloc[-1]
    line = f"{column}: {start:.2f} at first, at most {most:.2f}, at the end {end:.2f}"
    lines.append(line)
panels[1].set_ylim(0, 1)
figure.suptitle("Five seeds without a remedy: the proxy stays high, gold falls")
figures.show(figure, f"Proxy and gold over KL, by seed. {'; '.join(lines)}.")

# %% [markdown]
# A thin line is a seed, smoothed over three batches. The thick line joins the means of the five seeds, batch by batch:
# each of its points is the mean KL and the mean reward at the same batch. The axes are those of the live run. Where a
# line turns back, the policy moved towards the base for a few updates.
#
# To compare methods at the *same* distance, divide the divergence into ranges. For each run, take the mean rate of
# right answers over all batches that fell into a range:

# %%
BORDERS = [0, 1, 2, 4, 8, 16, 32]
RANGES = ["0 to 1", "1 to 2", "2 to 4", "4 to 8", "8 to 16", "16 to 32"]


def by_distance(runs, method, borders=BORDERS, labels=RANGES):
    """The rate of right answers by range of KL: a row per seed, a column per range.

    A range is empty (NaN) if the seeds had fewer than six batches there in all.
    """
    rates, counts = {}, {}
    for run in runs[runs["method"] == method].to_dict("records"):
        batches = pd.DataFrame(run["log"])
        ranges = pd.cut(batches["kl"], borders, labels=labels, include_lowest=True)
        right_in_range = batches.groupby(ranges, observed=False)["right"]
        rates[run["seed"]] = right_in_range.mean()
        counts[run["seed"]] = right_in_range.count()
    table = pd.DataFrame.from_dict(rates, orient="index")
    batches_in_all = pd.DataFrame.from_dict(counts, orient="index").sum()
    table.loc[:, batches_in_all < 6] = float("nan")
    return table

# %% [markdown]
# The next function draws these rates:

# %% tags=["hide-input"]
def draw_ranges(axes, rates, shift, style, name):
    """Mean, lowest and highest seed of each range that at least three seeds reached."""
    colour, dash, marker = style
    order = list(rates.columns)
    rates = rates.loc[:, rates.count() >= 3]
    places = [order.index(label) + shift for label in rates.columns]
    means = rates.mean()
    axes.plot(places, means, dash, color=colour, marker=marker, ms=5, label=name)
    axes.vlines(places, rates.min(), rates.max(), color=colour, lw=1)
    numbers = [f"{mean:.2f} at {label}" for label, mean in means.items()]
    return f"{name}: {', '.join(numbers)}"

# %% [markdown]
# Draw it for six methods:

# %% tags=["hide-input"]
shown = ["the rule itself", "beta 0.3", "beta 0.1", "minimum of three",
         "mean of three", "one model"]
figure, (axes,) = figures.new_panels(9.0, 3.8)
lines = []
for i, name in enumerate(shown):
    rates = by_distance(runs, name)
    lines.append(draw_ranges(axes, rates, 0.09 * (i - 2.5), figures.STYLES[i], name))
axes.set_xticks(range(len(RANGES)), RANGES)
axes.set(xlabel="KL of a completion from the base, nats", ylim=(0, 1))
axes.set_ylabel("rate of right answers")
axes.set_title("Right answers are most frequent between 1 and 4 nats")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers over KL, by method. {'; '.join(lines)}.")

# %% [markdown]
# A marker is the mean over the seeds in one range of the divergence; the thin line through it goes from the lowest seed
# to the highest one. The markers of a range are moved a little to the side so that you can tell them apart. A method
# has no marker in a range if fewer than three of its seeds arrived there, or if they had fewer than six batches there
# in all.
#
# All methods begin alike. Beyond 4 nats, all runs against a reward model lose, whatever the remedy; the penalised runs
# simply do not go there. Is a penalty also better at the *same* distance? Between 2 and 4 nats every run of the next
# four methods has some batches, so there the seeds can be compared in pairs:

# %%
from scipy.stats import ttest_1samp


def paired_points(values, others):
    """The mean difference in points with its 95 % interval, in words."""
    gaps = 100 * (values - others).dropna()
    test = ttest_1samp(gaps, 0)
    low, high = test.confidence_interval()
    return f"{gaps.mean():+.1f} [{low:+.1f}, {high:+.1f}], p {test.pvalue:.2g}"


unhelped_rates = by_distance(runs, "one model")["2 to 4"]
p_values = []
for name in ("one model", "beta 0.1", "beta 0.3", "minimum of three"):
    rates = by_distance(runs, name)["2 to 4"]
    batches = pd.DataFrame(runs.query("method == @name")["log"].explode().tolist())
    inside = batches["kl"].between(2, 4).sum() / len(rates)
    line = f"{name:17} {rates.mean():.0%} right, {inside:4.1f} batches per seed"
    if name != "one model":
        line += f", points {paired_points(rates, unhelped_rates)}"
        gaps = (rates - unhelped_rates).dropna()
        p_values.append(ttest_1samp(gaps, 0).pvalue)
    print(line)
smallest = min(p_values)
corrected = len(p_values) * smallest
print(f"the smallest p, {smallest:.3f}, is {corrected:.2f} after Holm's correction")

# %% [markdown]
# What do the stored runs show?
#
# - **Better than no remedy, at the end:** with a KL penalty of 0.3, 73 % are right, and early stopping ends at 58 %,
#   for 384 gold labels. The corrected test confirms both. A penalty of 0.1 ends at 53 %, and the adaptive beta, which
#   overshot its target of 2 nats, at 62 %; with five seeds these two are unsettled.
# - **Not shown:** that an ensemble helps. With the minimum of three models the runs end where they end with one model,
#   at -0.2 points with an interval from -20 to +20, so it may help or harm. At the same distance its difference is not
#   shown either. All three models learned from the same base and the same kind of pairs, so they may overlook the same
#   errors. Nor do these runs confirm a diversity bonus or another standard deviation.
# - **The rule itself** reaches 87 %: no remedy makes up for a reward that does not know what is right. The reward
#   models from unflipped labels ordered 90 % of held-out pairs rightly, and this accuracy does not tell how a run ends.
#
# Most of what a remedy gains is distance: it ends nearer to the base. In the runs of [Gao et
# al.](https://arxiv.org/abs/2210.10760) this was all that a KL penalty did. It did not change gold *at a given KL*, so
# it worked like stopping earlier. Here the penalised runs lie 13 and 17 points above the others at 2 to 4 nats. But the
# two intervals barely leave out 0, and Holm's correction for three comparisons confirms neither (p rises from 0.049 to
# 0.15). One reason for a difference may be time. The runs without a penalty pass this range within two or three
# batches, while they still learn the form; the penalised runs stay there for ten or more. So the comparison mixes the
# effect of the penalty with that of more updates, and these runs neither confirm nor contradict Gao et al.
#
# None of these remedies repairs the reward model. To repair it, label completions of the *policy* and train the reward
# model again ("iterated RLHF"), because then its pairs contain the errors that the policy has found.

# %% [markdown]
# ### Exercise 13.4 · `adaptive_beta` · easy · 5 minutes
#
# Write the controller of the adaptive beta. The error is `kl / target - 1`, limited to the range from -0.2 to 0.2, and
# beta is multiplied by `1 + 0.5 * error`. Then think: where does beta end if the divergence never reaches the target?


# %% tags=["exercise"]
def adaptive_beta(beta: float, kl: float, target: float) -> float:
    raise NotImplementedError


check("13.4", adaptive_beta);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Limit the error with `max(-0.2, min(0.2, error))`. A divergence above the target must give a larger beta.
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
# While the divergence stays far below the target, beta falls by a tenth per step, towards 0.
#
# </details>

# %% [markdown]
# ## The pipeline that GRPO replaced
#
# RLHF as of 2022 ([InstructGPT](https://arxiv.org/abs/2203.02155)) has three stages: SFT on demonstrations, a reward
# model from comparisons, and PPO against it. PPO trains a second model, the **critic**, usually about as large as the
# policy. At each token the critic predicts the reward to come, and PPO reinforces tokens after which the outcome is
# better than predicted. GRPO replaces the critic by the group's mean. Does a critic also help against a reward that is
# wrong?

# %% tags=["hide-input"]
pale = figures.PALE
boxes = {
    "policy": (0.09, 0.6, "policy\nlearns", pale["model"]),
    "text": (0.29, 0.6, "completions", pale["data"]),
    "reference": (0.52, 0.9, "reference\nfrozen", pale["check"]),
    "reward": (0.52, 0.6, "reward model\nfrozen", pale["check"]),
    "critic": (0.52, 0.32, "critic, only in PPO\nlearns", pale["off"]),
    "A": (0.86, 0.6, "advantages:\nPPO for each token,\nGRPO for each text",
          pale["number"]),
    "loss": (0.86, 0.9, "KL penalty", pale["number"]),
    "trainer": (0.52, 0.07, "trainer: loss and gradient", pale["number"]),
}
arrows = [
    ("policy", "text", ""), ("text", "reward", ""), ("text", "reference", ""),
    ("text", "critic", ""), ("reward", "A", "reward"), ("reference", "loss", ""),
    ("critic", "A", "predictions"), ("loss", "A", "InstructGPT"),
    ("A", "trainer", ""), ("trainer", "critic", ""),
    ("trainer", "policy", "new weights"),
]
figure = figures.diagram(boxes, arrows, (9.0, 4.6))
figure.suptitle("PPO holds four models; GRPO does without the critic", y=1.04)
figures.show(
    figure,
    "Diagram: the policy writes completions; a frozen reward model, a frozen reference "
    "and, in PPO alone, a critic look at them. Reward and predictions make the "
    "advantages; InstructGPT also subtracts the KL penalty there. From the advantages "
    "the trainer computes the loss and gives the policy and the critic new weights.",
)

# %% [markdown]
# The diagram shows what is computed for one update. Two models are frozen, and only PPO has a critic that learns. At the
# end the trainer updates the weights of the policy with the advantages, and in PPO also those of the critic. Then the
# new policy writes the next completions.
#
# The KL penalty has two possible places. InstructGPT subtracts it from the reward, so it enters the advantages; the
# arrow from the penalty shows this way. GRPO adds the penalty to the loss instead. In the stored runs below it is in
# the loss for both methods, so that they differ in less. The short PPO class of this chapter has no KL penalty.
#
# **Generalised advantage estimation** turns the critic's predictions $V_t$ into advantages. The error of one step is
# $\delta_t = r_t + V_{t+1} - V_t$, and the advantage is $A_t = \delta_t + \lambda A_{t+1}$ (without discount). Behind
# the last token both $V$ and $A$ are 0. The reward comes at the last token only:

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
# $V_t$ is predicted before token $t$ is written. After the second token the prediction rises from 0.2 to 0.7, so this
# token gets the largest advantage. (The decay $\lambda$ is only 0.5 here; the usual 0.95 spreads the credit over more
# tokens.) In GRPO all four tokens would have the same advantage. Two classes turn chapter 01's trainer into PPO: the
# first adds a critic, the second a step that uses it.

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
# How much memory does each method need? Count one number for each weight; for a weight that learns, add its gradient
# and AdamW's two averages.

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
# For a model of 7 billion weights multiply these numbers by about 10,000, and add the memory for activations. Is PPO
# worth its memory? The stored runs start with SFT on 128 worked answers. PPO or GRPO then trains against the same
# reward models, with a beta of 0.1 and equally many completions:

# %%
pipeline = read_runs("pipeline")
report("pipeline")
sampled = pipeline.pivot(index="seed", columns="method", values="sampled")
versus_sft = paired_points(sampled["SFT, then PPO"], sampled["SFT"])
print(f"PPO after SFT, against SFT alone: points {versus_sft}")

# %% [markdown]
# SFT on 128 answers alone reaches 80 %. GRPO against the reward model then loses 14 points of it, and PPO does not.
# Does that make PPO the better method? Look at the column *kl*: the runs did not move equally far. At the end, GRPO is
# at a KL divergence of 1.6 nats from the policy after SFT, GRPO with the batch's standard deviation at 0.6, and PPO at
# 0.35. So compare the methods at the same distance:

# %% tags=["hide-input"]
methods = ["SFT, then GRPO", "SFT, then GRPO, batch's std", "SFT, then PPO"]
near_labels = ["0 to 0.2", "0.2 to 0.6", "0.6 to 1", "1 to 3"]
figure, (axes,) = figures.new_panels(9.0, 3.6)
lines, middle = [], {}
for i, name in enumerate(methods):
    rates = by_distance(pipeline, name, [0, 0.2, 0.6, 1, 3], near_labels)
    lines.append(draw_ranges(axes, rates, 0.1 * (i - 1), figures.STYLES[i], name))
    middle[name] = rates["0.2 to 0.6"]
axes.set_xticks(range(len(near_labels)), near_labels)
axes.set(xlabel="KL of a completion from the policy after SFT, nats", ylim=(0.4, 1))
axes.set_ylabel("rate of right answers")
axes.set_title("Between 0.2 and 0.6 nats no method is shown to be better")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers over KL, by method. {'; '.join(lines)}.")
for name in methods[1:]:
    points = paired_points(middle[name], middle["SFT, then GRPO"])
    print(f"{name:28} at 0.2 to 0.6 nats: points above GRPO {points}")

# %% [markdown]
# The axes and marks are those of the figure of the remedies; here the distance is counted from the policy after SFT.
#
# At 0.2 to 0.6 nats, PPO is 4.8 points above GRPO, with an interval from -2.6 to +12.2: a difference is not shown. GRPO
# with the batch's standard deviation has about the same rate there as PPO, without a critic. (Beyond 0.6 nats the two
# cannot be compared: PPO has no marker there, because it had fewer than six batches in each of the two ranges.) So most
# of PPO's lead of 16 points is probably a difference of distance: at the same learning rate, PPO and the batch's
# standard deviation move the policy less far from its start. Nor is PPO shown to be better than the plain SFT with
# which it started: the difference is +2.0 points (p = 0.25), for 1.7 times GRPO's memory and 1.3 times its seconds.
# With this reward model, stopping after SFT is the cheapest choice, and no method was shown to be better than SFT
# alone.

# %% [markdown]
# ## A language model as judge
#
# A judge is asked in words and needs no training: any model behind an API in OpenAI's format will do. It is slow, costs
# money, and is the easiest of all rewards to fool, because the text that it judges can also talk to it. So test a judge
# on cases whose answer you know, **before** it decides anything.
#
# To have a judge here, the tiny model learns two things: to answer 1 or 0 for a completion, and to tell which of two is
# better. The class `Judge` writes the questions. It puts the judged text between two lines with random digits, a
# *fence*, so that a completion cannot close it by guessing. With `fence_seed` the digits of a question are the same in
# every run, so that you get the numbers of this page; leave it out when you train.

# %%
from grpo_workbook import correctness_reward
from grpo_workbook.rewards.judges import Judge, agreement, get_judge_reward

ONE = "{prompt}\n{fence}\n{completion}\n{fence}\nRight?"
TWO = "{prompt}\n{fence}\n{first}\n{fence}\n{second}\n{fence}\nFirst better?"
SAYS = {"1": 1.0, "0": 0.0}
judge_of_one = Judge("", "", ONE, SAYS, fence_seed=0)
judge_of_two = Judge("", "", TWO, SAYS, fence_seed=0)
columns = pd.DataFrame(pool)[["answer", "question"]].to_dict("list")
right = correctness_reward([row["text"] for row in pool], **columns)
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
# Print one of the questions, train the model on all of them with TRL's `SFTTrainer`, and save it:

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
# As in chapter 09, `transformers serve` answers on this machine only. For your own judge, replace address, model and
# key:

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
# `ask` takes rows with the template's fields and returns one verdict for each, or None. It sends eight questions at a
# time, sends equal questions only once, and repeats a question after an error or a timeout. It is a coroutine, because
# TRL wants one. A notebook already has a running event loop, so here `ask` runs in a thread of its own. The prices in
# the cell, 0.5 for a million tokens read and 1.5 for a million written, are examples: put in those of your endpoint, in
# its currency.

# %%
import asyncio
from concurrent.futures import ThreadPoolExecutor


def run_now(coroutine):
    with ThreadPoolExecutor(1) as executor:
        return executor.submit(asyncio.run, coroutine).result()


url = f"http://127.0.0.1:{port}/v1"
judge = Judge(url, str(folder), ONE, SAYS, fence_seed=1)
unseen = pool[1024:1184]
labels = right[1024:1184]
questions = []
for row in unseen:
    questions.append({"prompt": row["question"], "completion": row["text"]})
verdicts = run_now(judge.ask(questions))
print(dict(judge.counts))
read, written = judge.tokens
cost = (0.5 * read + 1.5 * written) / 1e6  # 0.5 and 1.5 for a million tokens
cost_of_run = 10_000 / len(questions) * cost
print(f"{read + written:,} tokens, {cost:.4f} for {len(questions)} verdicts")
print(f"a run of 10,000 completions: {cost_of_run:.2f}")

# %% [markdown]
# ### Calibrate it
#
# How far can you trust these verdicts? **Cohen's kappa** is agreement beyond chance: $\kappa = (p_o - p_e) / (1 -
# p_e)$. Here $p_o$ is the rate of equal verdicts, and $p_e$ is the rate that the judge would reach if it gave its
# verdicts at random, as often 1 and as often 0 as now. A kappa of 1 is perfect, 0 is useless. Measure also how well two
# people agree: the labels of one person have errors, so even a perfect judge stays below 1. To raise this limit, take
# the majority of several people.
#
# Compute kappa twice: over all kinds of completions, and over completions that all have the requested form, of which
# about half are right:

# %%
def show_agreement(name, verdicts, labels):
    result = agreement(verdicts, labels)
    interval = f"[{result.low:.2f}, {result.high:.2f}]"
    passed = sum(verdict == 1 for verdict in verdicts)
    print(f"{name:22} kappa {result.kappa:.2f} {interval}, equal {result.equal:.0%}")
    print(f"{'':22} the judge says \"right\" to {passed} of {result.n}")
    print(f"{'':22} right are {sum(labels):.0f} of {result.n}")
    return result


whole = show_agreement("all", verdicts, labels)
well_formed_wrong = [row for row in more if row["gold"] == 0.333][:80]
well_formed_right = [row for row in more if row["gold"] == 1.0][:80]
same_form = well_formed_wrong + well_formed_right
questions = []
for row in same_form:
    questions.append({"prompt": row["question"], "completion": row["text"]})
form_labels = [float(row["gold"] == 1.0) for row in same_form]
form_verdicts = run_now(judge.ask(questions))
blind = show_agreement("the same, whole form", form_verdicts, form_labels)

# %% [markdown]
# Over all completions the kappa is 0.60, which many would call moderate. Among completions in the requested form it is
# 0.18, with an interval from 0.08 to 0.28, which is only a little better than chance: the judge says "right" to 140 of
# 160, although only 80 are right. So this judge looks mostly at the form. It was asked "Right?" and answers
# "well-formed?": the wording of a question does not prove what a judge looks at. Calibrate it on the cases between
# which it will have to decide. As the policy learns the form, all of its completions will be of the second kind.
#
# (A judge that always gives the same verdict has a kappa of 0 with an interval of no width. That is no precise
# measurement: such a judge is useless.)
#
# ### Which of two?
#
# To compare two completions, ask twice, with the order swapped. A judge that prefers "the first" both times has decided
# nothing:

# %%
pair_judge = Judge(url, str(folder), TWO, SAYS, fence_seed=1)
asked_pairs = pairs_of(held, each=1)  # one of each problem
questions_of_two = []
for better, worse in asked_pairs:
    questions_of_two.append((better["question"], better["text"], worse["text"]))
choices = run_now(pair_judge.compare(questions_of_two))
decided = [choice for choice in choices if choice in (0.0, 1.0)]
by_position = pair_judge.counts["position decided"]
position = by_position / len(asked_pairs)
print(f"{by_position} of {len(asked_pairs)} pairs are decided by position alone")
if decided:
    low, high = wilson_interval(decided)
    print(f"of the other {len(decided)}, {sum(decided):.0f} in the order of gold "
          f"({mean(decided):.0%}, interval {low:.0%} to {high:.0%})")

# %% [markdown]
# Nearly half of the pairs are decided by their position alone, so this judge looks at the order of the texts as much as
# at their quality. On the other pairs it agrees with gold in 29 of 33 cases, and nearly all pairs differ in form, which
# it can see. So quote both numbers: of all 64 pairs, it ordered 29 rightly whatever their position.
#
# ### Attack it
#
# What could a policy find out about the judge? Chapter 03's collection has texts that talk to a judge, all with a wrong
# answer. Try each of them on 20 problems. First, for comparison, wrong answers that do not attack:

# %%
pass_rates = {}
wrong_rows = [row for row, label in zip(unseen, labels) if not label][:20]
wrong_numbers = [str(int(row["answer"]) + 1) for row in wrong_rows]


def show_pass_rate(name, texts):
    """How many of these completions pass; all have a wrong answer."""
    questions = []
    for row, text in zip(wrong_rows, texts):
        questions.append({"prompt": row["question"], "completion": text})
    outcomes = [verdict or 0 for verdict in run_now(judge.ask(questions))]
    pass_rates[name] = mean(outcomes)
    print(f"{name:28} {sum(outcomes):3.0f} of {len(outcomes)} pass")


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
# Now the attacks. A completion may also contain the marks with which a chat template opens a turn. A `Judge` breaks
# these marks up, so that they are only text; the last printed lines show this:

# %%
for name, texts in attack_texts.items():
    show_pass_rate(name, texts)
own_turn = attack_texts["a turn of its own"][0]
print(judge.text({"prompt": "6*7?", "completion": own_turn}))

# %% [markdown]
# Compare each attack with "wrong, in the whole form". An attack that passes more often than a plain wrong answer would
# be a loophole of its own. Here none does: the plain wrong answer passes for 13 of 20 problems, the best two attacks
# for 4. Where a plain wrong answer passes, no attack is needed. "The end of a fence" cannot close the real fence,
# because it does not know its digits. (With 20 problems, a rate of 4 in 20 has a 95 % interval from 8 to 42 %.)
#
# Do not conclude that this judge is safe. In earlier trainings, whose fences had other digits and whose results are not
# stored, it fell once for flattery and once for "a turn of its own". So test a judge again whenever anything about it
# has changed.
#
# Every judge has such a table, and a larger judge has other gaps. Make the table before training, and again with
# completions of the trained policy. Fences, broken marks and strict replies stop a completion from leaving its place;
# they do not help against a completion that the judge simply believes. What helps: a reference answer in the question
# (`{answer}` in the template takes the dataset's column), the swapped order, a rule for what a rule can check, and a
# length penalty outside the judge.
#
# ### When it fails
#
# If a reply is no verdict, or the server is busy or too slow, the result is None, and the judge counts it with the
# reason. It is never 0, which would penalise the completion. If more than half of a batch has no verdict, the run
# stops:

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
# In TRL the judge is one reward among others. It is asked while the other rewards are computed:
#
# ```python
# GRPOTrainer(model, reward_funcs=[get_judge_reward(judge), strict_format_reward], ...)
# ```

# %% [markdown]
# ## For the curious
#
# The three sections of this part answer other questions: what random errors of a reward cost, how to reward single
# steps, and how a reward can cost diversity. You can leave them out; the code of their cells is folded.

# %% [markdown]
# ### What noise costs
#
# A reward can also be right on average and make random errors, as people in a hurry or flaky tests do. Suppose a reward
# of 0 or 1 is flipped at the rate $f$. Then a completion that is right with probability $p$ earns $f + (1 - 2f)\,p$ on
# average. The order of the answers stays, the difference between right and wrong shrinks by the factor $1 - 2f$, and
# the noise adds to the group's standard deviation. How well do the advantages still agree with those of the true
# rewards? Take 4,000 questions with p uniform between 0 and 1, in groups of 4, 8 and 16; the *batch's* standard
# deviation is that of all rewards:

# %% tags=["hide-input"]
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
# All six numbers of a noise level are nearly equal. A larger group estimates its mean better, but each reward stays as
# noisy as before; only more *completions* average the noise out, however they are grouped. The choice of the standard
# deviation matters in a group whose answers are all right or all wrong. There the noise is the only variance, and
# dividing by the group's standard deviation turns it into large advantages:

# %% tags=["hide-input"]
all_wrong = torch.tensor([0.0, 0, 0, 1, 0, 0, 0, 0])  # the 1 is a flipped verdict
mixed = torch.tensor([1.0, 0, 1, 1, 0, 0, 1, 0])
both_groups = torch.cat([all_wrong, mixed])
for scale in ("group", "batch", "none"):
    values = group_advantages(both_groups, 8, scale).tolist()
    flipped, right_one = values[3], values[8]
    print(f"{scale:6} the flipped one {flipped:5.2f}, a right one {right_one:5.2f}")

# %% [markdown]
# With the group's standard deviation, the flipped reward gets nearly three times the advantage of a right answer in the
# mixed group; with the batch's, less than twice. Does this matter in training? The stored runs pay the rule itself on
# chapter 12's task *main*, with 20 and 30 % of the rewards flipped:

# %% tags=["hide-input"]
report("noise")
noise = read_runs("noise").pivot(index="seed", columns="method", values="sampled")
for name in noise.columns:
    if "%" in name:
        lowest, highest = noise[name].min(), noise[name].max()
        print(f"{name:28} seeds from {lowest:.0%} to {highest:.0%}")
slower = noise["30 %, group of 8, rate 1e-4"]
versus_usual = paired_points(slower, noise["30 %, group of 8"])
print(f"a third of the rate, against the usual rate: points {versus_usual}")

# %% [markdown]
# With 20 % flipped, groups of 4 and 8 end seven and eight points lower on average, which five seeds do not confirm;
# with groups of 16, one seed of five ended at 1 %. With 30 % flipped, every group size has a seed below 4 % and another
# one at 68 to 76 %: the outcome depends on the seed, and five seeds cannot show which size is best. The advantage of
# the batch's standard deviation, which the toy shows, is not visible through this noise.
#
# With 30 % flipped and a third of the learning rate, all five seeds end between 57 and 70 %, on average 24 points above
# the usual rate. That is plausible, because smaller steps average over more completions, but five seeds do not confirm
# the paired difference (p = 0.15).

# %% [markdown]
# ### Process rewards
#
# An **outcome reward** judges the final answer, a **process reward** each step. DeepSeekMath (section 4.1.3) normalises
# the rewards of all steps of a group together. A token's advantage is then the sum over its own step and all later
# ones. Take one group of three completions for chapter 12's sums; a step is right if it is the next column of the sum:

# %% tags=["hide-input"]
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
# The last number of each row belongs to the answer. With the outcome reward, all tokens of the completion with the slip
# are penalised, and as much as those of the completion that wrote no steps. With the process reward, the slip itself is
# penalised most and the right step after it least. The first step was right and is penalised too, because its advantage
# includes all later steps. There is also a side effect: an early step adds up many later rewards, so where most steps
# are right, *longer* completions earn more. The figure shows the same numbers:

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
    axes.set(title=title, xlabel="step of the completion")
panels[0].set_yticks([0, -1, -2], list(by_step))
lines = []
for name, values in by_step.items():
    numbers = ", ".join(f"{value:.1f}" for value in values)
    lines.append(f"{name}: outcome {by_outcome[name][0]:.1f}, by step {numbers}")
words = "; ".join(lines)
figures.show(figure, f"Advantages of the steps of three completions. {words}.")

# %% [markdown]
# Each row is a completion, each cell one of its steps; blue steps are reinforced, orange steps penalised, and a darker
# cell has a larger advantage. The completion without steps has only its answer, drawn in the first column.
#
# A rule for steps can have a gap, too. In the table, "right steps" pays a step only if it is a column of this very sum.
# "true steps" pays every true equation, such as 1+1=2, however often it is written. The stored runs are on the sums of
# chapter 12:

# %% tags=["hide-input"]
report("process")

# %% [markdown]
# Neither difference is shown. Paying right steps gained ten points on average, but the seeds differ so much on this
# task (chapter 12) that the interval goes from -12 to +32. Paying every true equation lost fifteen points, with an
# interval from -38 to +7. A loss there would be no surprise, because that reward pays true columns that belong to no
# sum. So a process reward is one more reward that can be wrong.

# %% [markdown]
# ### Exercise 13.5 · `step_advantages` · medium · 12 minutes
#
# `rewards` holds one group: for each completion the rewards of its steps. Return the advantages of the steps in the
# same shape. First subtract from each reward the mean of all steps of the group, and divide by their standard deviation
# (with n - 1) plus 1e-4. Then give each step the sum over itself and all later steps of the same completion.


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
# ### Diversity
#
# A reward can be right more often than not and still make the policy less diverse. The clearest case needs neither
# labels nor a reward model: pay the answer that most of the group gave ([test-time reinforcement
# learning](https://arxiv.org/abs/2504.16084)). Where the majority is right, single answers get better. Where the right
# answer is in the minority, it becomes ever rarer, and pass@8 falls. A bonus for answers that few others gave works
# against that:
#
# $$r_i' = r_i + w \left(1 - \frac{\text{others in the group with the same answer}}{n - 1}\right)$$

# %% tags=["hide-input"]
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
# The bonus does not know which rare answer is right; it only makes the rarest one less unattractive. At a weight of 2
# the rarest answer even earns more than the majority's. In the table of the stored runs, *answer* is the rate of right
# numbers in any form, and *answer8* the rate of problems with a right number among eight attempts:

# %% tags=["hide-input"]
report("diversity")
diverse = read_runs("diversity")
for measure in ("answer8", "pass8"):
    by_seed = diverse.pivot(index="seed", columns="method", values=measure)
    gain = paired_points(by_seed["majority, bonus 0.5"], by_seed["majority"])
    print(f"bonus 0.5, {measure}: points {gain}")

# %% [markdown]
# Without any label, paying the majority raises single answers from 53 to 74 % right. But the base solves nearly all
# problems (99.5 %) at least once in eight attempts, and after training one in fifteen of them is lost. The bonus of 0.5
# recovered two fifths of the lost problems. In the strict form, 95 instead of 89 % of the problems have a right answer
# among eight. Eight seeds cannot confirm either gain. Against the reward model above, the bonus shows no gain
# ("diversity bonus" in the table of remedies).

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
# Return Cohen's kappa of two lists of verdicts, which may be any strings. Then use your function: judge 20 completions
# of a model of yours by hand, let a judge or a friend do the same, and see how far you agree. If two people reach a
# kappa of only 0.4, a judge's 0.4 with one of them is as good.


# %% tags=["exercise"]
def kappa(judge: list[str], labels: list[str]) -> float:
    raise NotImplementedError


check("13.6", kappa);

# %% [markdown]
# <details><summary>Hint</summary>
#
# To get the agreement by chance, multiply for each possible verdict the rate at which the judge gives it by the rate at
# which the labels have it, and add up.
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
#   may miss the difference that counts. Random errors in the labels cost data; systematic errors are learned.
# - If you train against it without a remedy, the proxy rises and stays high. Gold rises, peaks and falls, and only gold
#   labels show where.
# - Here a strong enough KL penalty and early stopping kept what was gained; an ensemble of three was not shown to help.
#   Compare methods at the same KL, or a slow one looks good. To repair the reward model, train it on new labels of the
#   policy's own completions.
# - A judge is a reward that reads, so a completion can talk to it. Calibrate it on the cases that it will see, swap the
#   order, attack it, and count the questions without a verdict.
# - If a rule can check something, use the rule.
#
# Next: [17 · Your own project](17_capstone.ipynb) takes a file of yours through all of it, step by step.
