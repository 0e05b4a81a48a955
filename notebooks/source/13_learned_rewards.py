# %% [markdown]
# # 13 · Reward models and over-optimisation
#
# When does training against a learned reward stop helping, and what helps against it? This chapter trains a policy
# against a reward model until the policy fools it, measures at which distance from the base that happens, and compares
# remedies at the same distance.
#
# **After this notebook you can** train a reward model with TRL and show what it cannot see, draw the true reward over
# the distance from the base, read from such a curve where to stop, and test whether a remedy does more than stop early.
#
# **Time:** about 3 minutes on two CPU cores. You train a reward model and policies against it; the runs with many
# seeds are stored, and you read them. Reading takes about 40 minutes, the exercises about 50, and the optional part
# "For the curious" another 15. **You need** chapters 00, 01 and 03, and from chapter 12 what a paired difference and
# Holm's correction are.

# %% [markdown]
# ## Why a learned reward can stop helping
#
# Until now a rule decided what is right. No rule can decide whether a summary is good. For such tasks the reward comes
# from a **reward model**: a model that has read many pairs of completions, and for each pair which of the two people
# preferred. Training against such a model is called **RLHF** (reinforcement learning from human feedback). Until about
# 2024 most reinforcement learning of language models was of this kind.
#
# A reward model can be wrong, and training searches for the places where it is wrong: a completion that the reward
# model overrates earns more than a good one. So the reward that is paid keeps rising while the quality falls. This is
# called **over-optimisation**. To study it, we need two rewards:
#
# - The **proxy** is the reward that is paid. Here it is a reward model.
# - **Gold** is what we really want. In this chapter gold is a rule, as in chapter 04. No policy is paid by it, except
#   in one comparison and in some runs of "For the curious". It orders the pairs, as people would, and measures the
#   result.
#
# In a real project you have no gold for every completion, only labels of people for some of them. The rule takes their
# place here, so that we can see what stays hidden elsewhere.
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
# How far may the policy move before gold falls? Measure the distance as the **KL divergence** from the base, in nats
# (the unit that belongs to the natural logarithm). It is 0 at the base and grows as the policy prefers some answers
# more and more.

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
# base, the vertical axis its mean reward. The dashed line is the proxy, the solid line gold.
#
# With the loophole, gold falls although the proxy rises. This is **Goodhart's law**: when a measure becomes a target,
# it ceases to be a good measure. Note which proxy is dangerous: the first one orders three of four pairs rightly, the
# second one 99.6 %. What counts is the error on the answers *that the policy moves to*. Here eight large errors do
# more harm than 4,000 ordinary ones, and the accuracy on pairs does not show them.
#
# ### Why the curve bends
#
# Both gold curves begin steeply, which hides their shape. It becomes clear when you draw gold over the *square root* of
# the divergence, $d = \sqrt{\mathrm{KL}}$. The reason is a short calculation. Near the base, $\beta$ is large and
# $e^{r/\beta} \approx 1 + r/\beta$. Then the mean of gold $g$ rises by $\mathrm{Cov}(g, r)/\beta$, and the divergence
# is $\mathrm{Var}(r)/(2\beta^2)$. Eliminate $\beta$ from the two:
#
# $$\text{gain in gold} \approx \alpha\, d \qquad \alpha = \sqrt{2}\;\frac{\mathrm{Cov}(g, r)}{\sigma_r} =
# \sqrt{2}\,\rho\,\sigma_g$$
#
# So the first part of the curve is a straight line over $d$, and its slope $\alpha$ depends on the correlation $\rho$
# of gold and proxy *under the base*. (If gold and proxy are jointly normal under the base, the whole curve is this
# line.) The figure draws both proxies over $d$, each with its straight line:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 4.0)
proxies = {"an error everywhere": noisy, "a loophole": loophole}
lines = []
for (name, proxy), colour in zip(proxies.items(), (figures.BLUE, figures.ORANGE)):
    kl, _, gold_line = zip(*paths[name])
    d = torch.tensor(kl).sqrt()
    gain = torch.tensor(gold_line) - gold_values.mean()
    covariance = torch.cov(torch.stack([gold_values, proxy]))[0, 1]
    alpha = float(2**0.5 * covariance / proxy.std())
    axes.plot(d, gain, color=colour, label=f"{name}: the best policies")
    start = torch.tensor([0.0, 2.2])
    axes.plot(start, alpha * start, ":", color=colour, lw=1.2,
              label=f"{name}: its first slope, {alpha:.2f}")
    lines.append(f"{name}: first slope {alpha:.2f}, gain at most {gain.max():.1f}")
axes.axhline(0, color=figures.GREY, lw=0.8)
axes.set(xlabel="d, the square root of the KL from the base in nats", ylim=(-2.5, 3.3))
axes.set_ylabel("gain in mean gold")
axes.set_title("Over d, gold begins as a straight line; a loophole bends it down")
figure.legend(frameon=False, loc="outside lower center", ncol=2)
figures.show(figure, f"Gain in gold over d for two proxies. {'; '.join(lines)}.")
print("; ".join(lines))

# %% [markdown]
# The solid lines are the gain in gold of the two proxies over d, the dotted lines the straight lines with the slope
# $\alpha$. The proxy with the loophole has the larger slope, because it is nearly exact under the base, and it is the
# one that turns. (The first proxy bends a little upwards, because the few answers that it rewards most happen to have
# more gold than the line predicts. That is an accident of these 4,000 answers.)
#
# When does gold turn? The calculation near the base holds at every $\beta$, if the covariance is taken under the policy
# $\pi$ that has been reached:
#
# $$\frac{\mathrm{d}\, \mathrm{E}_\pi[g]}{\mathrm{d}\,(1/\beta)} = \mathrm{Cov}_\pi(g, r)$$
#
# So gold rises as long as more proxy goes with more gold *among the answers that the policy now gives*, and it falls
# when this covariance is negative. The eight bad answers hardly count under the base, and they decide the covariance
# when the policy gives them often. A bend alone is no sign of an error: gold that has a highest value flattens under
# an exact proxy, too. But under an exact proxy it never falls.
#
# [Gao et al.](https://arxiv.org/abs/2210.10760) measured such curves for reward models of 3 million to 3 billion
# parameters. Their curves have this shape, too, and for larger reward models they turned later and higher. (Two short
# formulas describe them; "For the curious" at the end fits them to the runs of this chapter.)

# %% [markdown]
# ### Exercise 13.1 · `slope_of_gold` · medium · 8 minutes
#
# Return $\mathrm{Cov}_\pi(g, r)$, where $\pi$ is the best policy at this beta over a uniform base. Its sign decides
# whether you get more gold if you lower beta a little. The check has a proxy with a loophole and three betas: at the
# two larger ones the slope is positive, at the smallest one negative. So gold turns between them.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def slope_of_gold(proxy: list[float], gold: list[float], beta: float) -> float:
    raise NotImplementedError


check("13.1", slope_of_gold);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Divide the weights $e^{r/\beta}$ by their sum to get the probabilities $p_i$. With them,
# $\mathrm{Cov}_\pi(g, r) = \sum_i p_i\, g_i r_i - \sum_i p_i\, g_i \cdot \sum_i p_i\, r_i$.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp
#
#
# def slope_of_gold(proxy: list[float], gold: list[float], beta: float) -> float:
#     weights = [exp(reward / beta) for reward in proxy]
#     total = sum(weights)
#     mean_gold = mean_proxy = mean_product = 0.0
#     for weight, proxy_reward, gold_reward in zip(weights, proxy, gold):
#         p = weight / total
#         mean_gold += p * gold_reward
#         mean_proxy += p * proxy_reward
#         mean_product += p * gold_reward * proxy_reward
#     return mean_product - mean_gold * mean_proxy
# ```
#
# You can compute this number because the toy knows gold for every answer. In a real project the sign can only be
# measured: label some completions of the *present* policy. Labels of the base's completions do not show it.
#
# </details>
#
# Ask your function about the toy's proxy with the loophole: does its sign change where gold was highest?

# %%
betas = torch.logspace(1.5, -0.6, 60).tolist()
mean_golds = [mean_gold for _, _, mean_gold in paths["a loophole"]]
top = mean_golds.index(max(mean_golds))
print(f"gold is highest at a beta of {betas[top]:.2f}")
proxy_rewards, gold_rewards = loophole.tolist(), gold_values.tolist()
try:
    falling = []
    for beta in betas:
        if slope_of_gold(proxy_rewards, gold_rewards, beta) < 0:
            falling.append(beta)
    print(f"your slope is negative for the first time at {max(falling):.2f}")
except NotImplementedError:
    print("Write slope_of_gold first, then run this cell.")

# %% [markdown]
# The two numbers are the same, or one step of the list of betas apart.

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
# Return the mean loss over all pairs, from the rewards of the chosen and of the rejected completions. Then add 100 to
# both rewards of the first pair only. Does the loss change? The answer decides how you may count a reward model's
# errors.

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
# The loss does not change: a constant that both completions of a pair share drops out. So the loss leaves the level of
# each prompt's rewards free, and a comparison of completions of *different* prompts shows nothing about the model.
#
# </details>

# %% [markdown]
# ### Pairs
#
# The base model of this chapter is *tiny-form*, which can solve the problems and was trained, on purpose, to write its
# answers in messy forms ([its card](../data/tiny-form/README.md)); so its answers differ in form and in the number. It
# answers 256 problems, four times each.
#
# Gold is chapter 04's weighted sum of rewards divided by 3, so it goes from 0 to 1. Two thirds are for the right number
# between the answer tags, one sixth for exactly the requested form, and up to one sixth for tags in their places. So a
# right number without tags earns nothing, as for a program that reads the tags.

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
# other. (The model is an argument, because the trained policy is asked later.) The cell prints one example for each of
# four values of gold. Other values occur, too:

# %%
def sample_pool(model, rows, each):
    """A model's completions, `each` of a row, with their gold, problem by problem."""
    pool = []
    for row in rows:
        for _ in range(each):
            pool.append(dict(row))
    prompts = [row["prompt"] for row in pool]
    texts = generate(
        model, tokenizer, prompts, sample=True, max_new_tokens=64, batch_size=256,
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
pool = sample_pool(base, train_rows[:256], each=4)
for value in (0.0, 0.333, 0.833, 1.0):
    same = [row["text"] for row in pool if row["gold"] == value]
    print(f"gold {value}: {len(same):4} of {len(pool)}, such as {same[0]!r}")

# %% [markdown]
# A row for TRL has a `prompt` and two completions, `chosen` and `rejected`. Take up to two pairs of each problem whose
# four completions differ in gold:

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


train_pairs = pairs_of(pool)
preferences = []
for better, worse in train_pairs:
    chosen, rejected = message(better["text"]), message(worse["text"])
    row = {"prompt": better["prompt"], "chosen": chosen, "rejected": rejected}
    preferences.append(row)
print(len(train_pairs), "pairs to learn from")

# %% [markdown]
# ### RewardTrainer
#
# A reward model is a language model whose last layer is replaced by one that gives a single number, read at the
# conversation's last token. In Transformers this is `AutoModelForSequenceClassification` with `num_labels=1`. TRL's
# `RewardTrainer` minimises the loss above. In its log, *accuracy* is the fraction of a batch's 16 pairs that are
# ordered rightly, and *margin* the mean of $r_{\text{chosen}} - r_{\text{rejected}}$. (At step 1 the new layer is
# random; here it happens to prefer the rejected completions.)

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
# `task_type="SEQ_CLS"` and `modules_to_save=["score"]`, because the new last layer has to be trained in full. In your
# own project try ready-made reward models first: [RewardBench](https://github.com/allenai/reward-bench) ranks them, and
# [Skywork-Reward-V2](https://github.com/SkyworkAI/Skywork-Reward-V2) has small ones that are based on Qwen3. Give
# `GRPOTrainer` the name of such a model in the place of a reward function, such as
# `"Skywork/Skywork-Reward-V2-Qwen3-0.6B"`: TRL loads it with the class above, with one output, and with its own
# tokenizer. The next section's question applies to such a model, too.
#
# ## What can the reward model not see?
#
# The accuracy in the log is high, but over which pairs? Two completions of a problem can differ in form, in the number,
# or in both. Three rules make the count fair:
#
# 1. **Compare only completions of the same prompt.** The loss sees only such pairs, so the level of each prompt's
#    rewards is free (exercise 13.2). If you compared completions of an easy and of a hard prompt, you would measure the
#    difference of these levels.
# 2. **Break the accuracy down by what differs.** A single number is dominated by the kind of pair that is most common.
# 3. **Take the mean of each problem first.** Problems are drawn independently, and the pairs of one problem are not. So
#    compute for each problem the fraction of its pairs that are in the right order, and then the mean of these
#    fractions. The interval, too, is over problems.

# %% [markdown]
# ### Exercise 13.3 · `rate_within` · easy · 8 minutes
#
# Each row is a tuple `(prompt, gold, reward)`. For each prompt take all pairs of its rows that differ in gold; a pair
# is in the right order if the row with more gold has strictly more reward. Return the mean over prompts of the fraction
# in the right order. Leave out a prompt without such a pair. The number decides whether you may train against a reward
# model: at 0.5 it cannot tell apart what you ask it to tell apart. The next cells contain the solution, so try it
# before you scroll.

# %% tags=["exercise"]
def rate_within(rows: list[tuple[str, float, float]]) -> float:
    raise NotImplementedError


check("13.3", rate_within);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Collect the rows of each prompt in a dictionary first. Then two nested loops over the rows of one prompt find the
# pairs: `if first_gold > second_gold`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def rate_within(rows: list[tuple[str, float, float]]) -> float:
#     by_prompt = {}
#     for prompt, gold, reward in rows:
#         by_prompt.setdefault(prompt, []).append((gold, reward))
#     rates = []
#     for group in by_prompt.values():
#         outcomes = []
#         for first_gold, first_reward in group:
#             for second_gold, second_reward in group:
#                 if first_gold > second_gold:
#                     outcomes.append(first_reward > second_reward)
#         if outcomes:
#             rates.append(sum(outcomes) / len(outcomes))
#     return sum(rates) / len(rates)
# ```
#
# </details>

# %% [markdown]
# Now apply it to the reward model, once over all pairs and once over pairs of the *same form*: both completions have
# the requested form, and only one has the right number (their gold is 1 and 0.333). Such pairs are rare, so sample
# eight completions for each of 512 problems that the reward model has not seen:

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


def rates_within(pool, size, golds):
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
# The interval is a bootstrap over problems:

# %%
more = sample_pool(base, train_rows[320:832], each=8)
for row, reward in zip(more, rewards_of(reward_model, more)):
    row["proxy"] = reward

every_gold = {row["gold"] for row in more}
all_rates = rates_within(more, 8, every_gold)
form_rates = rates_within(more, 8, {1.0, 0.333})
for name, rates in (("all pairs", all_rates), ("same form", form_rates)):
    low, high = bootstrap_interval(rates)
    print(f"{name}: {mean(rates):.1%} in the right order, {len(rates)} problems")
    print(f"           95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# Your function should give the rate of all pairs, too:

# %%
tuples = []
for place, row in enumerate(more):
    tuples.append((f"problem {place // 8}", row["gold"], row["proxy"]))
try:
    print(f"your rate_within: {rate_within(tuples):.1%}")
except NotImplementedError:
    print("Write rate_within first, then run this cell.")

# %% [markdown]
# Of all pairs most are in the right order, of the pairs of the same form far fewer. To see why, look at the margins of
# the pairs: the reward of the better completion minus that of the worse one. The pairs of one problem share a weight of
# 1. So the share of the area to the right of 0 is the mean rate over problems (for the same form, the rate that is
# printed above):

# %%
def margins_of(pool, same_form):
    """(margin, weight) of each pair: those of the same form, or all others."""
    margins = []
    for start in range(0, len(pool), 8):
        values = []
        for better, worse in ordered_pairs(pool[start : start + 8]):
            golds = {better["gold"], worse["gold"]}
            if (golds == {1.0, 0.333}) == same_form:
                values.append(better["proxy"] - worse["proxy"])
        for value in values:
            margins.append((value, 1 / len(values)))
    return margins

# %% [markdown]
# Draw them for both kinds of pairs:

# %% tags=["hide-input"]
kinds = {"same form, another number": True, "all other pairs": False}
figure, panels = figures.new_panels(9.0, 3.2, 2, 2)
edges, lines = torch.linspace(-2, 4, 49), []
for axes, (name, same_form) in zip(panels, kinds.items()):
    values, shares = torch.tensor(margins_of(more, same_form)).T
    shares = shares / shares.sum()
    heights = 100 * torch.histogram(values, edges, weight=shares).hist
    right = edges[:-1] >= 0
    lefts = edges[:-1]
    axes.bar(lefts[right], heights[right], 0.125, align="edge", color=figures.BLUE)
    axes.bar(lefts[~right], heights[~right], 0.125, align="edge", color=figures.ORANGE)
    axes.axvline(0, color="black", lw=1)
    won = float(shares[values > 0].sum())
    axes.set_title(f"{name}: {won:.0%} right")
    axes.set_ylabel("pairs, %")
    axes.set_xlabel("reward of the better one minus the worse one")
    lines.append(f"{name}: {won:.0%} of the margins are above 0")
figure.suptitle(
    "Where only the number differs, more than half of the margins are close to 0"
)
figures.show(figure, f"Margins of pairs of one problem. {'; '.join(lines)}.")

# %% [markdown]
# The horizontal axis is the margin, the vertical axis the share of pairs in percent. The blue bars are pairs in the
# right order, the orange bars those in the wrong order. The two vertical axes have different scales. A few margins
# outside -2 to 4 are counted in the titles but not drawn.
#
# The reward model has learned the form. Among completions of the same form only the number tells right from wrong, and
# there more than half of the margins lie within 0.13 of 0, almost as many on the wrong side as on the right one. Nearly
# all the others are right. So this model sees some wrong numbers clearly, and more than half of them hardly at all. Is
# that an accident of this reward model? The benchmark trains five reward models, each on its own pool, and measures
# each on 64 completions for each of 48 new problems:

# %%
import subprocess
import sys

import pandas as pd
from IPython.display import Markdown, display
from scipy.stats import ttest_1samp

from grpo_workbook import files

GOODHART = files.REPO / "benchmarks" / "goodhart.py"
STORED = files.REPO / "benchmarks" / "goodhart_results"


def read_runs(task):
    """One row per stored run, with what was measured at its end as columns."""
    runs = pd.read_json(STORED / f"{task}.jsonl", lines=True)
    runs = runs.drop_duplicates(["method", "seed"], keep="last").sort_values("seed")
    measured = pd.DataFrame(list(runs["end"]), index=runs.index)
    return runs.join(measured)


selection = read_runs("selection")
for name, column in (("all pairs", "accuracy"), ("same form", "alike")):
    rates = selection[column]
    low, high = ttest_1samp(rates, 0).confidence_interval()
    print(f"{name}: {rates.mean():.1%} [{low:.1%}, {high:.1%}]")
    print("    by model:", rates.round(2).tolist())
print(f"{selection['alike_problems'].sum()} problems have pairs of the same form")

# %% [markdown]
# Of all pairs, these five models order 89.5 % rightly [86.7, 92.3]; of the pairs of the same form only 68.5 % [62.2,
# 74.7] (means of five models, with t intervals in percent). A coin would reach 50 %. A training log shows only a number
# like the first, which hides the second. As soon as the policy writes every completion in the requested form, only such
# pairs are left. Of those that the *base* writes, about three of ten are ordered wrongly. That alone would not make
# gold fall, because seven of ten are right. One way for gold to fall is that the policy moves to completions that the
# model overrates, and a rate on the base's completions does not show those.

# %% [markdown]
# ## Train against it
#
# TRL accepts a reward model in the place of a reward function. Gold is added as a second reward with a weight of 0, so
# it is measured at every step and never paid. A tiny `beta` makes TRL log the KL divergence from the base:

# %%
from trl import GRPOConfig, GRPOTrainer


def goodhart(proxy_model, beta, steps=24, callbacks=None):
    """GRPO against a reward model; a row per step: proxy, gold, KL; and the policy."""
    policy = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    args = GRPOConfig(
        max_steps=steps, learning_rate=3e-4, beta=beta, loss_type="grpo",
        per_device_train_batch_size=64, num_generations=8, max_completion_length=64,
        reward_weights=[1.0, 0.0], seed=profile.seed, **common)
    trainer = GRPOTrainer(
        policy, [proxy_model, gold], args, Dataset.from_list(train_rows[320:]),
        processing_class=tokenizer, reward_processing_classes=[tokenizer, None],
        callbacks=callbacks)
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

# %% [markdown]
# Train with a penalty close to 0. Later we also ask a policy from the middle of this run, so a callback keeps a copy of
# the weights after 8 of the 24 steps:

# %%
import copy

from transformers import TrainerCallback


class KeepWeights(TrainerCallback):
    """Keeps a copy of the policy's weights after one step of the training."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, model, **kwargs):
        if state.global_step == self.step:
            self.weights = copy.deepcopy(model.state_dict())


kept = KeepWeights(8)
free, hacked = goodhart(reward_model, beta=1e-4, callbacks=[kept])

# %% [markdown]
# Steps are a poor measure of how far a policy has moved, because one method takes longer steps than another. So draw
# proxy and gold over the KL divergence, as in the toy. TRL logs the mean KL per token; multiplied by the mean number of
# tokens, it is the KL of a completion. The axis is stretched like a square root, so that equal distances are equal
# steps in $d$:

# %% tags=["hide-input"]
def over_distance(axes, ticks):
    """A horizontal axis in nats on which equal lengths are equal differences of d."""
    axes.set_xscale("function", functions=(signed_root, signed_square))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(0, ticks[-1])
    axes.set_xlabel("KL of a completion from the base, nats")


def signed_root(kl):
    return torch.as_tensor(kl).clamp(min=0).sqrt().numpy()


def signed_square(d):
    return torch.as_tensor(d).square().numpy()


def course_of(path, column):
    """How a column of a path begins, where it is highest, and how it ends, in words."""
    values = path[column]
    first, last = values.iloc[0], values.iloc[-1]
    top, where = values.max(), path["kl"][values.idxmax()]
    words = f"{first:.2f} at first, at most {top:.2f} at {where:.1f} nats"
    return f"{column}: {words}, {last:.2f} at the end"

# %% [markdown]
# Draw the run without a penalty on this axis:

# %% tags=["hide-input"]
table = pd.DataFrame(free)
table["kl"] *= table["tokens"]  # now of a completion
smooth = table.rolling(3, min_periods=1, center=True).mean()
figure, panels = figures.new_panels(9.0, 3.4, 2, 2)
looks = {"proxy": ("o--", figures.ORANGE), "gold": ("o-", figures.BLUE)}
lines = []
for axes, (column, (dash, colour)) in zip(panels, looks.items()):
    axes.plot(smooth["kl"], smooth[column], dash, color=colour, ms=4, lw=1)
    over_distance(axes, [0, 0.25, 1, 2, 4, 8, 16, 32])
    axes.set_title(column)
    axes.set_ylabel(f"mean {column} of the completions")
    lines.append(course_of(smooth, column))
panels[1].set_ylim(0, 1)
figure.suptitle("The proxy rises and stays high; gold rises, then falls")
figures.show(figure, f"Two line charts over KL. {'; '.join(lines)}.")
print("\n".join(lines))

# %% [markdown]
# The dots are the 24 steps of the run in their order, each a mean of three steps (the first and the last of two, so the
# first dot is already some way from the base, whose gold is 0.44). The horizontal axis is the KL divergence of a
# completion from the base. The vertical axis is the proxy on the left and gold on the right.
#
# First the policy learns what the reward model knows, the form, and gold rises with the proxy. What the policy gains
# after that is no gain in gold: the proxy stays high, while gold falls to little more than half of its best value and
# ends no higher than it was at the base. The form alone is worth 1/3. So if every completion has it now, a gold of 0.42
# means that only about one number in eight is right. What does the policy write in the end?

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
# All six completions have the form, five of the six answers are wrong, and all six rewards are high. So the reward does
# not show what has happened; you have to read completions or to buy gold labels.
#
# In the toy, gold fell when its covariance with the proxy was negative among the answers that the policy then gave
# (exercise 13.1). What is it here? These six lines cannot show it: each belongs to another problem, and the level of
# each problem's rewards is free (exercise 13.2). So sample eight completions for each of 128 problems, take the
# covariance among the completions of each problem, and then the mean over problems. Ask three policies: the base (its
# completions of these problems are in `more`), the policy after 8 steps, in the middle of the fall, and the policy at
# the end. First a function for the covariances:

# %%
def covariances(pool, size):
    """For each problem: the covariance of gold and proxy among its completions."""
    values = []
    for start in range(0, len(pool), size):
        group = pool[start : start + size]
        both = torch.tensor([[row["gold"], row["proxy"]] for row in group])
        values.append(float(torch.cov(both.T)[0, 1]))
    return values

# %% [markdown]
# The policy after 8 steps has the weights that the callback kept. It wrote the batch of the next step, so that batch
# shows how far it is from the base:

# %%
middle = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
middle.load_state_dict(kept.weights)
middle_name = f"after {kept.step} steps"
print(f"{middle_name}: {table['kl'][kept.step]:.1f} nats from the base")

pools = {"base": more[: 8 * 128]}
for name, policy in ((middle_name, middle), ("at the end", hacked)):
    written = sample_pool(policy, train_rows[320:448], each=8)
    for row, reward in zip(written, rewards_of(reward_model, written)):
        row["proxy"] = reward
    pools[name] = written
for name, rows in pools.items():
    values = covariances(rows, 8)
    low, high = bootstrap_interval(values)
    mean_gold = mean(row["gold"] for row in rows)
    print(f"{name:14} gold {mean_gold:.2f}, covariance of gold and proxy", end=" ")
    print(f"{mean(values):+.3f} [{low:+.3f}, {high:+.3f}]")

# %% [markdown]
# Each of the last three lines has the mean covariance within a problem and its 95 % interval, a bootstrap over
# problems. For the base it is 0.50. At the end it is 0.01 [0.004, 0.020]: fifty times smaller, but not negative. That
# does not contradict the toy: at the end of the run gold no longer falls (see the figure), and there a covariance near
# 0 is to be expected. In the end hardly anything pulls the policy towards gold any more.
#
# The line between them is the test, because there gold is falling: at 3.7 nats it is 0.59, after a peak of 0.77. The
# covariance is 0.030 there, and its interval lies above 0. So the rewards of one problem still point towards gold,
# although weakly, while gold falls. In the toy the loophole made it negative; here the fall must have another cause.
# Presumably it is this one: GRPO divides the rewards of a group by their standard deviation, so even tiny differences
# make full steps, and these steps move weights that all problems share.
#
# The call that trained the policy has three traps, none of which raises an error:
#
# - A **classifier with two labels** is accepted. TRL reads its first output, which in most models is the score for
#   "bad". Check `model.config.num_labels == 1`.
# - Without `reward_processing_classes` TRL loads the tokenizer that the reward model's own folder names. A **wrong
#   tokenizer** with a smaller vocabulary gives meaningless rewards.
# - The chat template closes each completion, so a completion that was **cut off** at the length limit looks finished to
#   the reward model. Use `mask_truncated_completions=True`, or a penalty. (That call leaves it out.)
#
# Check the number of labels, the vocabulary, and the order of a good and a bad text before any training. (The check of
# the vocabulary finds a tokenizer that is too large. For one that is too small only the order of the two texts can warn
# you, so try it with several pairs. Nothing here finds a cut-off completion.) The cell tries one pair:

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
good = next(row for row in pool if row["gold"] == 1.0)
bad = next(row for row in pool if row["gold"] == 0.0)
print(check_reward_model(reward_model, tokenizer, good, bad))
try:
    check_reward_model(two_labels, tokenizer, good, bad)
except ValueError as error:
    print("refused:", error)

# %% [markdown]
# ### Exercise 13.4 · `penalised` · medium · 3 minutes
#
# Train the same 24 steps with a KL penalty of 0.3. Will the policy end with more gold than without the penalty, with
# less, or with the same (within 0.1)? Predict, then run. It takes about a minute.

# %% tags=["exercise"]
prediction = ...  # "more gold", "less gold" or "the same"


def both_runs() -> dict:
    """The run without a penalty, from above, and one with a penalty."""
    penalised, _ = goodhart(reward_model, beta=0.3)
    return {"beta 0": free, "beta 0.3": penalised}


predict("13.4", prediction, both_runs);

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
# trained on. In the stored runs of five seeds, also with 24 updates, those with this penalty end with 73 % right and a
# proxy of 1.79, those without it with 21 % right and a proxy of 1.85. A much larger penalty would lower gold again:
# with an infinite one, the policy stays the base. Note what this comparison does *not* show. The two runs end at
# different distances, so stopping the first run early might have done the same. The next sections compare at equal
# distance.
#
# </details>

# %% [markdown]
# ## Best of n: over-optimisation without training
#
# Is training to blame, or the reward model? There is a way to optimise against a reward model that changes no weight:
# sample n completions of the base and keep the one with the highest reward. This is **best of n**. If no two of the
# completions are equal or have equal rewards, its divergence from the base is known exactly, whatever the model is:
#
# $$\mathrm{KL}_{\text{best of } n} = \ln n - \frac{n - 1}{n}$$
#
# With equal ones the divergence is smaller, so the formula is an upper bound ([Beirami et
# al.](https://arxiv.org/abs/2401.01879)). Choosing the best of 8 costs 1.2 nats, the best of 64 costs 3.2. Selection
# does not move far from the base. It optimises the same reward, so we draw it on the same axis.

# %% [markdown]
# ### Exercise 13.5 · `best_of` · hard · 12 minutes
#
# You have sampled N completions of one problem and know the proxy and the gold of each. What gold can you expect if you
# keep the best of n by the proxy? Average over *all* choices of n of the N completions. Number them by rising proxy
# from 0 to N - 1 (assume that no two are equal): completion number i is the best of exactly $\binom{i}{n-1}$ of the
# $\binom{N}{n}$ choices. The result decides how many completions you sample: the next cells use it for the reward model
# of this chapter. They contain the solution, so try it before you scroll.

# %% tags=["exercise"]
def best_of(proxy: list[float], gold: list[float], n: int) -> float:
    raise NotImplementedError


check("13.5", best_of);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.comb(i, n - 1) / math.comb(N, n)` is the probability that number i is kept. To sort by the proxy, use
# `sorted(zip(proxy, gold))`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import comb
#
#
# def best_of(proxy: list[float], gold: list[float], n: int) -> float:
#     ordered = sorted(zip(proxy, gold))
#     choices = comb(len(ordered), n)
#     total = 0.0
#     for i, (_, value) in enumerate(ordered):
#         total += comb(i, n - 1) / choices * value
#     return total
# ```
#
# </details>

# %% [markdown]
# The eight completions of each problem from above have both rewards. How much gold does the best of n have?

# %%
from math import comb, log


def expected_best(group, n, column):
    """The mean of a column over the best of n, over all choices of n from a group."""
    ordered = sorted(group, key=lambda row: row["proxy"])
    total = 0.0
    for i, row in enumerate(ordered):
        share = comb(i, n - 1) / comb(len(ordered), n)
        total += share * row[column]
    return total


groups = [more[start : start + 8] for start in range(0, len(more), 8)]
for n in (1, 2, 4, 8):
    kl = log(n) - (n - 1) / n
    proxy = mean(expected_best(group, n, "proxy") for group in groups)
    value = mean(expected_best(group, n, "gold") for group in groups)
    print(f"best of {n}: KL up to {kl:.2f} nats, proxy {proxy:5.2f}, gold {value:.2f}")

# %% [markdown]
# Up to 8 completions, more are better, and the best of 8 has more gold than the live training reached anywhere. Does it
# go on like this? For larger n you need more completions of each problem, and these are stored.
#
# ## The frontier
#
# Now all methods on one axis. `benchmarks/goodhart.py` repeats the live experiment with new pools, reward models and
# policies for each of five seeds, in the training loop of chapter 12. Each stored run has for each batch of 64
# completions the proxy, gold, and the KL from the base. Best of n uses the five reward models from above, with n up to
# 64. First the two ways without any remedy:

# %%
def best_of_path(run):
    """KL, proxy and gold of best of n, from a stored row of `selection`."""
    path = pd.DataFrame(run["best"])
    path["kl"] = path["n"].map(log) - (path["n"] - 1) / path["n"]
    return path


runs = read_runs("goodhart")
trained = []
for batches in runs[runs["method"] == "one model"]["log"]:
    trained.append(pd.DataFrame(batches).rolling(3, min_periods=1, center=True).mean())
chosen = [best_of_path(run) for run in selection.to_dict("records")]
print(len(trained), "seeds of training,", len(chosen), "of best of n")

# %% [markdown]
# Draw both over the distance:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(9.0, 3.6, 2, 2)
ways = {
    "training": (trained, figures.BLUE, "-"),
    "best of n": (chosen, figures.ORANGE, "--"),
}
lines = []
for axes, column in zip(panels, ("proxy", "gold")):
    for name, (paths_of_way, colour, dash) in ways.items():
        for path in paths_of_way:
            axes.plot(path["kl"], path[column], dash, color=colour, lw=0.7, alpha=0.3)
        average = pd.concat(paths_of_way).groupby(level=0).mean()
        axes.plot(average["kl"], average[column], dash, color=colour, lw=2.5,
                  label=name)
        lines.append(f"{name}, {course_of(average, column)}")
    over_distance(axes, [0, 0.25, 1, 2, 4, 8, 16, 32])
    axes.set_title(column)
    axes.set_ylabel(f"mean {column} of the completions")
panels[1].set_ylim(0.2, 1)
panels[0].legend(frameon=False, loc="lower right")
figure.suptitle("Gold rises, peaks and falls: for best of n as for training")
figures.show(figure, f"Proxy and gold over KL. {'; '.join(lines)}.")
print("\n".join(lines))

# %% [markdown]
# A thin line is a seed (training is smoothed over three batches), a thick line joins the means of the five seeds,
# batch by batch or n by n. The axes are those of the live run. Each seed has its own reward model with its own scale,
# so the proxies of different seeds lie at different heights. Where a line turns back, the policy moved towards the
# base for a few updates. (At the end of training the seeds lie farthest apart, in their distance as well as in their
# gold.)
#
# Best of n needs no training, and its gold turns, too: it rises from 0.44 to 0.81 for n = 8 and falls to 0.59 for n =
# 64, although the proxy still rises. So the fall needs no training. Whoever optimises this reward model, by whatever
# means, finds completions that it overrates: among 64 completions there is often one. This does not show that the
# reward model causes all of training's fall. Best of n ends at 3.2 nats. Training goes on to 15, where the proxy rises
# only slowly and gold falls on, and a part of that fall may come from the distance itself: no run here separates the
# two.
#
# The two ways differ in how far they have to go. Best of n gains more gold per nat than training, and it also turns
# earlier. Gao et al. found the same, and warn that the divergence does not measure the amount of optimisation across
# the two ways. A likely reason is that training also changes the policy in ways that no reward asked for, and these
# cost nats, too. So use the divergence to compare one training with another.

# %% [markdown]
# ### Compare at equal distance
#
# The stored runs also have remedies, such as the KL penalty of exercise 13.4. A method that ends nearer to the base
# will often end with more gold. So would a run without any remedy that stops earlier. To see whether a remedy does more
# than stop early, compare the gold of two methods where both have moved *equally far*.

# %% [markdown]
# ### Exercise 13.6 · `at_equal_distance` · hard · 12 minutes
#
# `first` and `second` are two methods. Each has for every seed a list of batches `(kl, gold)`, in the order of the
# training. Return by how much more gold the second method has at a divergence between `low` and `high`: take for each
# seed the mean gold of its batches in this range, the difference of the two methods for each seed, and the mean of
# these differences. Leave out a seed that only one of the methods has, or for which one of them has no batch in the
# range. Return `None` if no seed is left. (No divergence in the check is equal to `low` or `high`.) The next cells
# contain the solution, so try it before you scroll.

# %% tags=["exercise"]
def at_equal_distance(
    first: dict[int, list[tuple[float, float]]],
    second: dict[int, list[tuple[float, float]]],
    low: float,
    high: float,
) -> float | None:
    raise NotImplementedError


check("13.6", at_equal_distance);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Write a small function for the mean gold of one run's batches in the range, which returns `None` if there are none.
# Then loop over the seeds that both methods have.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def mean_in_range(batches, low, high):
#     golds = [gold for kl, gold in batches if low < kl < high]
#     if not golds:
#         return None
#     return sum(golds) / len(golds)
#
#
# def at_equal_distance(
#     first: dict[int, list[tuple[float, float]]],
#     second: dict[int, list[tuple[float, float]]],
#     low: float,
#     high: float,
# ) -> float | None:
#     differences = []
#     for seed in first.keys() & second.keys():
#         before = mean_in_range(first[seed], low, high)
#         after = mean_in_range(second[seed], low, high)
#         if before is not None and after is not None:
#             differences.append(after - before)
#     if not differences:
#         return None
#     return sum(differences) / len(differences)
# ```
#
# A run passes a range quickly or slowly, so it has few or many batches there. The mean of each seed comes first, so
# that a slow run does not count more than the others.
#
# </details>

# %% [markdown]
# The next cell does the same for several ranges at once. For each run it takes the mean gold over all batches that fell
# into a range:

# %%
BORDERS = [0, 0.3, 1, 2, 4, 8, 16, 40]


def by_distance(runs, method, borders, column):
    """Mean of a column by range of KL: a row per seed, a column per range.

    A range is empty (NaN) if the seeds had fewer than five batches there in all.
    """
    means, counts = {}, {}
    for run in runs[runs["method"] == method].to_dict("records"):
        batches = pd.DataFrame(run["log"])
        ranges = pd.cut(batches["kl"], borders, include_lowest=True)
        in_range = batches.groupby(ranges, observed=False)[column]
        means[run["seed"]] = in_range.mean()
        counts[run["seed"]] = in_range.count()
    table = pd.DataFrame.from_dict(means, orient="index")
    batches_in_all = pd.DataFrame.from_dict(counts, orient="index").sum()
    table.loc[:, batches_in_all < 5] = float("nan")
    return table

# %% [markdown]
# A curve has a point for each range that at least three seeds reached:

# %%
def curve(runs, method, borders=BORDERS, column="gold"):
    """KL and mean, lowest and highest seed of each range that three seeds reached."""
    values = by_distance(runs, method, borders, column)
    distance = by_distance(runs, method, borders, "kl")
    points = pd.DataFrame({"kl": distance.mean(), "mean": values.mean()})
    points["low"] = values.min()
    points["high"] = values.max()
    return points[values.count() >= 3].reset_index(drop=True)


def in_words(name, points):
    """The points of a curve, for a picture's text alternative."""
    numbers = []
    for kl, value in zip(points["kl"], points["mean"]):
        numbers.append(f"{value:.2f} at {kl:.2f}")
    return f"{name}: {', '.join(numbers)}"

# %% [markdown]
# ### All methods on one axis
#
# The stored runs compare these remedies:
#
# - **beta** is a fixed KL penalty. (It is weighed against advantages, which GRPO has divided by the group's standard
#   deviation. So one beta serves reward models of different scales, and its numbers are not those of the toy.)
#   **adaptive beta** rises while the divergence is above a target of 2 nats, and falls below it ([Ziegler et
#   al.](https://arxiv.org/abs/1909.08593)).
# - **batch's std** divides advantages by the batch's standard deviation, **no std** does not divide them. Once all
#   completions of a group have the form, most of the reward model's differences are close to 0 (see the figure of the
#   margins), and among those it is right hardly more often than a coin. Dividing by the group's own standard deviation
#   makes them as large as real differences.
# - **mean of three** and **minimum of three** are an ensemble: three reward models that were trained on different
#   pairs. Where the models disagree, at least one of them is wrong. The minimum takes the lowest of the three rewards
#   as they are: they are not brought to one level and scale first, so a model whose rewards are low anyway may decide
#   it. [Coste et al.](https://arxiv.org/abs/2310.02743) report that such a cautious ensemble reduces over-optimisation,
#   and together with a small penalty prevents it.
# - **early stopping** measures gold on 64 other problems every 256 completions and keeps the best weights. It needs a
#   few gold labels.
# - **diversity bonus** adds a reward for answers that few others in the group gave (its formula is at the end).
#   **30 % flipped** uses reward models from labels of which 30 % were wrong. **the rule itself** pays gold.
#
# The **frontier** is the highest mean gold that any of the six methods in the figure reached at a given divergence or
# a smaller one. (The other methods with a reward model lie below it.) It answers the practical question: how much
# gold can you get if you are willing to go this far?

# %%
import numpy as np

shown = ["one model", "beta 0.1", "beta 0.3", "adaptive beta", "minimum of three"]
curves = {name: curve(runs, name) for name in shown}
by_n = pd.concat(chosen).groupby("n").mean()
curves["best of n"] = by_n.rename(columns={"gold": "mean"})
the_rule = curve(runs, "the rule itself")


def frontier_of(curves, d):
    """The highest mean of any curve at d or below, interpolated between its points."""
    heights = []
    for points in curves.values():
        reached = points["kl"] ** 0.5
        heights.append(np.interp(d, reached, points["mean"], right=0.0))
    highest = np.max(heights, axis=0)
    return np.maximum.accumulate(highest)


d = np.linspace(0, 32**0.5, 400)
frontier = frontier_of(curves, d)
end = frontier.argmax() + 1
where = d[end - 1] ** 2
print(f"the frontier ends at gold {frontier[-1]:.2f}, reached at {where:.1f} nats")
print(f"the rule itself: {the_rule['mean'].max():.2f}")

# %% [markdown]
# How much gold does each method have at each distance? The figure of this chapter draws six methods and the frontier:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(9.0, 4.4)
axes.plot(d[:end] ** 2, frontier[:end], "k", lw=7, alpha=0.15, label="frontier")
axes.plot([where, 32], [frontier[-1]] * 2, "k--", lw=0.8, alpha=0.5)
axes.plot(the_rule["kl"], the_rule["mean"], ":", color="black", marker="x", lw=2,
          label="the rule itself\n(paid gold)")
styles = {
    "one model": (figures.BLUE, "-", "o"),
    "beta 0.3": (figures.GREEN, "--", "^"),
    "best of n": (figures.ORANGE, "-.", "s"),
    "beta 0.1": (figures.GREY, "-", "D"),
    "adaptive beta": (figures.GREY, "--", "v"),
    "minimum of three": (figures.GREY, "-.", "P"),
}
lines = [in_words(name, curves[name]) for name in styles]
for name, (colour, dash, marker) in styles.items():
    points = curves[name]
    width = 2.0
    if colour == figures.GREY:
        width = 1.0
        points = points[points["kl"] > 1]  # below they lie on one another
    axes.plot(points["kl"], points["mean"], dash, color=colour, marker=marker, ms=5,
              lw=width, label=name)
    if name == "one model":
        axes.fill_between(points["kl"], points["low"], points["high"], color=colour,
                          alpha=0.12, lw=0)
over_distance(axes, [0, 0.25, 1, 2, 4, 8, 16, 32])
axes.set(ylim=(0.3, 0.95), ylabel="mean gold of the completions")
axes.set_title("The frontier ends before 2 nats: more distance brings no more gold")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Gold over KL by method, with the frontier. {'; '.join(lines)}.")

# %% [markdown]
# The horizontal axis is the KL of a completion from the base, stretched like a square root, the vertical axis mean
# gold. A marker is the mean of the seeds in one range of the divergence (for best of n, at one n); along a training,
# time runs roughly from left to right. The band is one model's lowest to highest seed, the broad grey line the frontier
# of the six methods (the thin dashed line only goes on at its greatest height), and the dotted line pays gold itself
# and is not part of it. Three things to know before you compare:
#
# - Lines between markers are not measured. The thin grey curves are drawn from 1 nat on; before, they lie close
#   together.
# - A range that fewer than three seeds reached, or that has fewer than five batches in all, has no marker.
# - Best of n is measured on 48 new problems, the trainings on the batches that they trained on. Best of n is placed at
#   the formula's KL, an upper bound, so it may lie too far to the right.
#
# What the figure shows:
#
# - **Beyond 2 nats nothing is gained.** The frontier rises to 0.82 within the first two nats and stays there (by its
#   definition it cannot fall). Beyond 3 nats every curve with a reward model falls, whatever the remedy, and the runs
#   with the strongest penalty simply do not go there. (The frontier is the largest of several noisy means, so it is a
#   little too high.)
# - **The rule itself shows no lasting fall.** Its runs never go beyond 4.3 nats, and their last four batches have a
#   mean gold of 0.84 to 0.92, by seed. (Its point between 2 and 4 nats is lower than the one before, 0.81 after 0.84,
#   but four of the five runs come back from there, and end below 2 nats with more gold.) So the figure shows how good a
#   reward without this error is near the base. It does not show what a large distance alone would cost.
# - **At the same distance the methods have different amounts of gold.** Among those with a reward model best of n has
#   most up to 1.2 nats, and least at 3 nats. The penalised runs lie above training without a remedy. The next section
#   tests this for the penalties, between 2 and 4 nats.

# %% [markdown]
# ## Does a KL penalty move the frontier?
#
# A penalty ends nearer to the base, so it ends with more gold. That alone does not make it better than stopping
# earlier. It would be better if it had more gold *at the same divergence*. Gao et al. asked this question: in their
# runs the penalty raised the proxy at a given KL, but gold depended on the divergence alone. So their penalty acted
# like early stopping and did not move the frontier. They add that this result may depend on the settings.
#
# Here every run of the next four methods has some batches between 2 and 4 nats, so there the seeds can be compared in
# pairs:

# %%
def paired_points(values, others):
    """The mean difference in points with its 95 % interval, in words, and p."""
    gaps = 100 * (values - others).dropna()
    test = ttest_1samp(gaps, 0)
    low, high = test.confidence_interval()
    words = f"{gaps.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
    return words, float(test.pvalue)


def holm(p_values):
    """Holm's correction of a dictionary of p-values (chapter 12)."""
    corrected, least = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.get)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[name]))
        corrected[name] = least
    return corrected


penalties = ["beta 0.1", "beta 0.3", "adaptive beta"]
for column in ("gold", "right"):
    without = by_distance(runs, "one model", [2, 4], column).iloc[:, 0]
    words, p_values = {}, {}
    for name in penalties:
        values = by_distance(runs, name, [2, 4], column).iloc[:, 0]
        words[name], p_values[name] = paired_points(values, without)
    for name, p in holm(p_values).items():
        print(f"{column:5} at 2 to 4 nats, {name:13} points {words[name]}, p {p:.3f}")

# %% [markdown]
# *gold* is the mean gold times 100, *right* the rate of completions with gold 1 (right number, whole form); both are
# differences from the runs without a penalty. The p-values are corrected for the three comparisons of a measure. Your
# function should give the first number of the row *gold*, *beta 0.3*:

# %%
batches_of = {"one model": {}, "beta 0.3": {}}
for name, seeds in batches_of.items():
    for run in runs[runs["method"] == name].to_dict("records"):
        seeds[run["seed"]] = [(batch["kl"], batch["gold"]) for batch in run["log"]]
try:
    gap = at_equal_distance(batches_of["one model"], batches_of["beta 0.3"], 2, 4)
    print(f"your at_equal_distance: {100 * gap:+.1f} points")
except NotImplementedError:
    print("Write at_equal_distance first, then run this cell.")

# %% [markdown]
# There is a second way to ask: is the penalty better than early stopping, at the end, on held-out problems?

# %%
ends = runs.pivot(index="seed", columns="method", values="sampled")
p_values, words = {}, {}
for name in penalties:
    words[name], p_values[name] = paired_points(ends[name], ends["early stopping"])
for name, p in holm(p_values).items():
    print(f"{name:13} against early stopping: points {words[name]}, p {p:.2f}")
for name in ("one model", *penalties):
    batches = pd.DataFrame(runs.query("method == @name")["log"].explode().tolist())
    distance = batches["kl"]
    inside = distance[distance.between(2, 4)]
    per_seed = len(inside) / 5
    print(f"{name:13} {per_seed:4.1f} batches per seed at 2 to 4 nats", end=", ")
    print(f"mean KL {inside.mean():.1f}")

# %% [markdown]
# By gold, all three penalties lie above the runs without one, by 12.2, 8.6 and 7.0 points (in the order beta 0.3, beta
# 0.1, adaptive beta), and Holm's correction leaves p at 0.04. By the rate of right answers the differences are 16.9,
# 13.0 and 10.5 points, and they are not confirmed (p = 0.15). At the end of the runs, no penalty is shown to be better
# than early stopping: for a beta of 0.3 the difference is +15.3 points, with an interval from -3.2 to +33.9.
#
# So does our penalty move the frontier? **There is a hint, and it is not settled**, for three reasons. The verdict
# depends on the measure. The range from 2 to 4 nats was chosen after the runs had been seen. And the comparison mixes
# two things: the runs without a penalty cross this range within two or three batches, while they still learn the form,
# and the penalised runs stay in it for ten or more, so that they have had many more updates at the same distance.
# (Those with a beta of 0.3 also lie nearer to the lower end of the range, at 2.3 nats instead of 3.2.) Our runs neither
# confirm nor contradict Gao et al.
#
# What you can rely on is this: a limit on the distance helps, and a penalty is a convenient one, because it needs no
# gold labels while it runs. But its strength has to be chosen, and that takes gold labels: ours was chosen in runs of
# another seed, which are not in the tables.

# %% [markdown]
# ## Which remedies help at the end of a run?
#
# A run without gold labels is not stopped at its best point, so what counts in practice is where it ends. The table of
# the stored runs has these columns:
#
# - *sampled* is the rate of right answers in the requested form, on held-out problems, and *pass8* the rate of problems
#   with such an answer among eight attempts. All completions are sampled; these runs were not measured greedily.
# - *proxy* is the mean reward at the end, *seconds* the time of a run. *kl* is the divergence of the weights that were
#   measured (with early stopping, those that were kept).
# - *points* is the difference from one model without a remedy, seed by seed, with its 95 % interval and its p after
#   Holm's correction. The last word is *better* or *worse* if this p is below 0.05. Otherwise it is *unsettled* if the
#   interval leaves out 0, and *not shown* if it does not. More seeds could settle both.

# %%
def report(task):
    """Show the benchmark's own table of the stored runs of a task."""
    command = [sys.executable, str(GOODHART), "--table", "--tasks", task]
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    display(Markdown(finished.stdout))


labelled = runs[runs["method"] == "early stopping"]["labels"].mean()
print(f"{len(runs)} runs, {runs['seed'].nunique()} seeds; early stopping used "
      f"{labelled:.0f} gold labels in each run")
report("goodhart")

# %% [markdown]
# For comparison, the base has 20 % sampled and 83 % pass8 (the row *base* of the last table, under "Diversity"). So
# without a remedy, training ends at the base's rate of right answers, and the problems solved in eight attempts have
# fallen from 83 to 45 %. Two remedies are shown to help, a strong penalty and early stopping, and both limit the
# distance. In detail:
#
# - **Shown to help:** with a KL penalty of 0.3, 73 % are right, and early stopping ends at 58 %, for 384 gold labels.
#   The corrected test confirms both.
# - **Unsettled with five seeds:** a penalty of 0.1 ends at 53 %, the adaptive beta, which overshot its target of 2
#   nats, at 62 %, the minimum of three with a penalty of 0.1 at 45 %, and dividing by the batch's standard deviation at
#   41.5 %. The intervals of all four lie above 0, and Holm's correction does not confirm them.
# - **Not shown:** that an ensemble without a penalty helps. With the minimum of three models the runs end where they
#   end with one model, at -0.2 points with an interval from -20 to +20, so it may help or harm. In the figure above its
#   curve is close to that of one model from 2 nats on. Between 1 and 2 nats it lies higher (0.79 against 0.67), but
#   only four seeds of each have batches there, and we did not test the difference. All three models learned from the
#   same base and the same kind of pairs, so they may overlook the same errors. And their rewards were not brought to
#   one level and scale, so this is no verdict on ensembles that do so. The mean of three ends lower, at -11.8 points,
#   and so do reward models from labels of which 30 % were flipped, at -10.6; neither harm is shown. Nor do these runs
#   show that a diversity bonus helps, or leaving out the division by a standard deviation.
# - **The rule itself** reaches 87 %, more than any remedy here.
#
# None of these remedies repairs the reward model. To repair it, label completions of the *policy* and train the reward
# model again ("iterated RLHF"), because then its pairs contain the errors that the policy has found.
#
# ## Is PPO a remedy?
#
# RLHF as of 2022 ([InstructGPT](https://arxiv.org/abs/2203.02155)) begins with supervised fine-tuning (SFT) on
# demonstrations, and then trains against a reward model with PPO. PPO has a **critic**, a second model that predicts
# the reward at each token; GRPO replaces it by the group's mean. Does a critic help against a reward that is wrong? The
# stored runs start with SFT on 128 worked answers. PPO or GRPO then trains against the same reward models, with equally
# many completions and a KL penalty of 0.1 from the policy after SFT. (InstructGPT subtracts this penalty from the
# reward. In these runs it is in the loss for both methods, so that they differ in less.)
#
# The columns are those of the table above, but *points* is the difference from SFT, then GRPO. *megabytes* counts
# weights, gradients and the optimizer's averages, in MiB. (The row SFT contains a frozen copy of the policy, which only
# the later training needs.) *PPO's loss* is GRPO with PPO's mean over all tokens of the batch in place of a mean for
# each completion.

# %%
pipeline = read_runs("pipeline")
report("pipeline")
sampled = pipeline.pivot(index="seed", columns="method", values="sampled")
words, p = paired_points(sampled["SFT, then PPO"], sampled["SFT"])
print(f"PPO after SFT, against SFT alone: points {words}, p {p:.2f}")

# %% [markdown]
# SFT on 128 answers alone reaches 80 %. GRPO against the reward model then loses 14 points of it, and PPO does not.
# Does that make PPO the better method? Look at the column *kl*: the runs did not move equally far. At the end, GRPO is
# at a KL divergence of 1.6 nats from the policy after SFT, GRPO with the batch's standard deviation at 0.6, and PPO at
# 0.35. So draw these methods, too, over the distance:

# %% tags=["hide-input"]
NEAR = [0, 0.02, 0.2, 0.6, 1, 3]
methods = ["SFT, then GRPO", "SFT, then GRPO, batch's std", "SFT, then PPO"]
figure, (axes,) = figures.new_panels(9.0, 3.6)
lines = []
for i, name in enumerate(methods):
    colour, dash, marker = figures.STYLES[i]
    points = curve(pipeline, name, NEAR, "right")
    axes.plot(points["kl"], points["mean"], dash, color=colour, marker=marker, ms=6,
              label=name)
    axes.vlines(points["kl"], points["low"], points["high"], color=colour, lw=1)
    lines.append(in_words(name, points))
axes.axvspan(0.2, 0.6, color=figures.GREY, alpha=0.12, lw=0)
over_distance(axes, [0, 0.02, 0.2, 0.6, 1, 2])
axes.set(ylim=(0.4, 1), ylabel="rate of right answers")
axes.set_xlabel("KL of a completion from the policy after SFT, nats")
axes.set_title("At the same distance, PPO is not shown to be better than GRPO")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Rate of right answers over KL, by method. {'; '.join(lines)}.")
without = by_distance(pipeline, methods[0], [0.2, 0.6], "right").iloc[:, 0]
for name in methods[1:]:
    values = by_distance(pipeline, name, [0.2, 0.6], "right").iloc[:, 0]
    words, p = paired_points(values, without)
    print(f"{name:28} at 0.2 to 0.6 nats: points above GRPO {words}, p {p:.2f}")

# %% [markdown]
# A marker is again the mean of the seeds in one range of the divergence, but the vertical axis is the rate of right
# answers, and the distance is counted from the policy after SFT. A vertical line goes from the lowest to the highest
# seed. (The lines are long at the first marker, because a seed has only one or two batches of 64 completions there.)
# The grey band marks 0.2 to 0.6 nats, the farthest range in which every seed of all three methods has batches.
#
# In this range PPO is 4.8 points above GRPO, with an interval from -2.6 to +12.2: a difference is not shown. GRPO
# with the batch's standard deviation has about the same rate there as PPO, without a critic. So a good part of PPO's
# lead of 16 points at the end may be a difference of distance: at the same learning rate, PPO and the batch's
# standard deviation move the policy less far from its start. PPO is not shown to be better than SFT alone, either:
# the difference is +2.0 points (p = 0.25). And PPO needs 1.7 times the memory of GRPO and 1.3 times its time. With
# this reward model, stopping after SFT is the cheapest choice.
#
# ## What to do in your own project
#
# 1. **Before training**, measure the reward model's accuracy within prompts and by what differs. If it cannot tell
#    apart completions of the same form, expect the curve to turn as soon as the form is learned. If it can, that is no
#    proof: the toy's loophole had 99.6 %.
# 2. **Log the KL of a completion** in nats from the first step, and draw every reward over it. Do not take over our 2
#    nats: the number belongs to a tiny model, to completions of some 30 tokens and to this reward model. (With 500
#    tokens, 2 nats are 0.004 per token in TRL's log.) What you can expect again is the shape of the curve.
# 3. **Buy some gold labels.** Label a few hundred completions at several distances; only they show where the curve
#    turns. The proxy does not.
# 4. **Try best of n first.** It needs no training, and a few gold labels of its choices show whether the reward model
#    breaks. But every request then costs n completions and n rewards.
# 5. **Limit the distance**, by a KL penalty or by stopping, and compare methods only at equal distance.
# 6. **When the curve has turned, improve the reward**, with labels of the policy's own completions or with a rule for
#    what a rule can check.

# %% [markdown]
# ## For the curious
#
# The sections of this part answer other questions: which formula describes the curves, what random errors of a reward
# cost, how to reward single steps, how a reward can cost diversity, and how PPO's critic works. You can leave them out.

# %% [markdown]
# ### Which formula fits?
#
# [Gao et al.](https://arxiv.org/abs/2210.10760) found that two short formulas describe their curves of gold over
# $d = \sqrt{\mathrm{KL}}$, the first for best of n and the second for training:
#
# $$R_{\text{best of } n}(d) = d\,(\alpha - \beta\, d) \qquad R_{\text{training}}(d) = d\,(\alpha - \beta \ln d)$$
#
# Here $\beta$ is not the penalty's strength: it measures how strongly the proxy's errors reduce the gain. In the first
# formula $\alpha$ is the slope at the base, as in the toy. In the second it is the gain at $d = 1$; at $d = 0$ the
# slope of this formula is infinite, and Gao et al. note that it does not hold there. Fit $\alpha$ and $\beta$ by least
# squares to the gain in gold of all seeds of the frontier's first figure:

# %% tags=["hide-input"]
def fitted(d, gain, bend):
    """alpha, beta and the root mean squared error of d (alpha - beta bend(d))."""
    inputs = torch.stack([d, -d * bend(d)], dim=1)
    coefficients = torch.linalg.lstsq(inputs, gain[:, None]).solution[:, 0]
    error = (inputs @ coefficients - gain).square().mean().sqrt()
    return *coefficients.tolist(), float(error)


def gains(paths_of_way):
    """d and the gain in gold over the base, of all points of all seeds."""
    d, gain = [], []
    for path in paths_of_way:
        away = path[path["kl"] > 0.05]
        d += away["kl"].pow(0.5).tolist()
        gain += (away["gold"] - path["gold"].iloc[0]).tolist()
    return torch.tensor(d), torch.tensor(gain)

# %% [markdown]
# Both formulas, on both ways:

# %% tags=["hide-input"]
from math import exp

raw = [pd.DataFrame(run) for run in runs[runs["method"] == "one model"]["log"]]
bends = {"d (a - b d)": lambda d: d, "d (a - b ln d)": torch.log}
fits = {}
for way, way_paths in (("best of n", chosen), ("training", raw)):
    for formula, bend in bends.items():
        alpha, beta, error = fitted(*gains(way_paths), bend)
        fits[way, formula] = alpha, beta
        print(f"{way:9} {formula:15} a {alpha:.2f}, b {beta:.2f}, error {error:.3f}")
alpha, beta = fits["best of n", "d (a - b d)"]
print(f"by its formula, best of n turns at {(alpha / (2 * beta)) ** 2:.1f} nats")
alpha, beta = fits["training", "d (a - b ln d)"]
print(f"by its formula, training turns at {exp(2 * (alpha / beta - 1)):.1f} nats")

# %% [markdown]
# *error* is the root mean square of the gold that the formula misses. For best of n the first formula has the smaller
# error, for training the second, as in Gao et al.; the differences are small, and we did not test them. (For training
# the batches of 64 completions are noisy, so no formula could have an error near 0.) The fitted formulas also give
# the best distance. The first one turns at $d = \alpha / (2\beta)$, which here is 1.1 nats, the second one at $d =
# e^{\alpha/\beta - 1}$, which here is 2.4 nats. (The smoothed curves of the five seeds of training have their highest
# gold between 1.5 and 4.7 nats.) Points with gold labels on both sides of the turn give such an estimate. Whether
# points before the turn suffice, we did not try.

# %% [markdown]
# ### What noise costs
#
# A reward can also be right on average and make random errors, as people in a hurry or flaky tests do. First the labels
# of a reward model: two people agree on 60 to 75 % of pairs, as [Coste et al.](https://arxiv.org/abs/2310.02743)
# report. Suppose a fraction $f$ of its pairs is flipped at random. Then the best prediction is
# $f + (1 - 2f)\,\sigma(r_a - r_b)$, which is less certain but orders all pairs in the same way. So a reward model can
# learn the right order from flipped labels, too, but each pair teaches it less. The stored reward models had equally
# many pairs:

# %% tags=["hide-input"]
report("models")

# %% [markdown]
# *accuracy* is the rate over all held-out pairs within a problem. With three labels of ten flipped, accuracy is four
# points lower, and even that is unsettled with five seeds. Systematic errors are worse than random ones, because they
# do not average out: if people prefer the longer answer, the model learns to prefer it.
#
# Now flip the reward itself, at the rate $f$. A completion that is right with probability $p$ then earns $f + (1 -
# 2f)\,p$ on average: the order of the answers stays, and the difference between right and wrong shrinks by the factor
# $1 - 2f$. The stored runs pay the rule itself on chapter 12's task *main*, with 20 and 30 % of the rewards flipped;
# the table has the size of the group and what the advantages are divided by. *entropy* is the mean entropy of a token
# in nats, which falls as the policy becomes more certain:

# %% tags=["hide-input"]
report("noise")
noise = read_runs("noise").pivot(index="seed", columns="method", values="sampled")
for name in noise.columns:
    if "%" in name:
        lowest, highest = noise[name].min(), noise[name].max()
        print(f"{name:28} seeds from {lowest:.0%} to {highest:.0%}")
slower = noise["30 %, group of 8, rate 1e-4"]
words, p = paired_points(slower, noise["30 %, group of 8"])
print(f"a third of the rate, against the usual rate: points {words}, p {p:.2f}")

# %% [markdown]
# With 20 % flipped, groups of 4 and 8 end seven and eight points lower on average, which five seeds do not confirm;
# with groups of 16, one seed of five ended at 1 %. With 30 % flipped, every group size has a seed below 4 % and another
# one at 68 to 76 %: the outcome depends on the seed, and five seeds cannot show which size is best. Nor do they show an
# advantage of the batch's standard deviation.
#
# With 30 % flipped and a third of the learning rate, all five seeds end between 57 and 70 %, on average 24 points above
# the usual rate. That is plausible, because smaller steps average over more completions, but five seeds do not confirm
# the paired difference (p = 0.15).

# %% [markdown]
# ### Process rewards
#
# An **outcome reward** judges the final answer, a **process reward** each step. DeepSeekMath (section 4.1.3) normalises
# the rewards of all steps of a group together. A token's advantage is then the sum over its own step and all later
# ones. So a wrong step lowers the advantages of its own tokens and of those before it, and not of those after it, while
# an outcome reward penalises all tokens of the completion alike. There is a side effect: the tokens of an early step
# add up many later rewards. So of two completions whose steps are all right, the *longer* one gets the larger
# advantages. (In the runs below, the length hardly changed.)
#
# A rule for steps can have a gap, too. In the table, "right steps" pays a step only if it is a column of this very sum.
# "true steps" pays every true equation, such as 1+1=2, however often it is written. The stored runs are on the sums of
# chapter 12, and *tokens* and *steps* are counted for each completion:

# %% tags=["hide-input"]
report("process")

# %% [markdown]
# Neither difference is shown. Paying right steps gained ten points on average, but the seeds differ so much on this
# task (chapter 12) that the interval goes from -12 to +32. Paying every true equation lost fifteen points, with an
# interval from -38 to +7. A loss there would be no surprise, because that reward pays true columns that belong to no
# sum. So a process reward is one more reward that can be wrong.

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
#
# The bonus does not know which rare answer is right; it only makes rare answers less unattractive. In the table of the
# stored runs, *answer* is the rate of right numbers in any form, and *answer8* the rate of problems with a right number
# among eight attempts:

# %% tags=["hide-input"]
report("diversity")
diverse = read_runs("diversity")
for measure in ("answer8", "pass8"):
    by_seed = diverse.pivot(index="seed", columns="method", values=measure)
    words, p = paired_points(by_seed["majority, bonus 0.5"], by_seed["majority"])
    print(f"bonus 0.5, {measure}: points {words}, p {p:.2f}")

# %% [markdown]
# Without any label, paying the majority raises single answers from 53 to 74 % right. But the base solves nearly all
# problems (99.5 %) at least once in eight attempts, and after training one in fifteen of them is lost. The bonus of 0.5
# recovered two fifths of the lost problems. In the strict form, 95 instead of 89 % of the problems have a right answer
# among eight. Eight seeds cannot confirm either gain. Against the reward model above, the bonus shows no gain
# ("diversity bonus" in the table of remedies).

# %% [markdown]
# ### How PPO's critic works
#
# At each token the critic predicts the reward to come, and PPO reinforces tokens after which the outcome is better than
# predicted. **Generalised advantage estimation** turns the critic's predictions $V_t$ into advantages. The error of one
# step is $\delta_t = r_t + V_{t+1} - V_t$, and the advantage is $A_t = \delta_t + \lambda A_{t+1}$ (without discount).
# Behind the last token both $V$ and $A$ are 0. The reward comes at the last token only:

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
# A step samples completions, scores them, takes advantages from the critic, and updates each model once. (With a single
# update the ratio is 1 and PPO's clip never acts; it matters from the second update of a batch on.)

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
# This short class has no KL penalty. How much memory does each method need? Count one number for each weight; for a
# weight that learns, add its gradient and AdamW's two averages.

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
# For a model of 7 billion weights multiply these numbers by about 10,000, and add the memory for activations.

# %% [markdown] tags=["remove-cell"]
# The numbers that the tests of this course look at:

# %% tags=["remove-cell"]
last = pd.DataFrame(free).tail(4).mean()
proved = {
    "pairs": len(train_pairs),
    "accuracy": mean(all_rates),
    "alike": mean(form_rates),
    "alike problems": len(form_rates),
    "steps": len(free),
    "proxy": [free[0]["proxy"], last["proxy"]],
    "gold": [free[0]["gold"], smooth["gold"].max(), last["gold"]],
    "kl": [free[0]["kl"], free[-1]["kl"]],
    "frontier": [float(frontier[0]), float(frontier[-1]), float(where)],
    "stored": len(runs) + len(selection),
}
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_13.json").write_text(json.dumps(proved, indent=2))
print(json.dumps(proved, indent=2))

# %% [markdown]
# ## Exercises
#
# Exercises 13.1 to 13.6 stand above, where their ideas are explained. The table in chapter 00 counts what you have
# solved. One more has no check, because it is about your own project: take a run of yours against a learned reward,
# label 30 completions at each of four distances from the base, several of each prompt, and draw the rate of good ones
# over the divergence. At each distance compute also the covariance of label and reward among the completions of one
# prompt, and its mean over the prompts. Has the curve turned, and where is the covariance negative?

# %% [markdown]
# ## Summary
#
# - A reward model learns what separates its pairs. Count its accuracy within prompts and by what differs: among
#   completions of the same form the reward models of this chapter are right in 68.5 % of the pairs.
# - Over the divergence from the base, the proxy rises and stays high; gold rises, peaks and falls. Within a problem,
#   the covariance of the two falls from 0.50 to 0.03 while gold falls, and to 0.01 at the end. Best of n turns, too,
#   without any training. So the reward model alone can cause the fall; beyond the first 3 nats the distance itself may
#   add to it.
# - A limit on the distance helps: a penalty of 0.3 and early stopping are shown to end with more right answers. That a
#   penalty does more than early stopping is not settled here. An ensemble without a penalty and PPO's critic are not
#   shown to help.
# - If a rule can check something, use the rule. Here the rule is gold itself, so its curve without a lasting fall is
#   the best case; a rule with a gap is a proxy, too.
#
# When does training against a learned reward stop helping? When the policy has learned what the reward model can see:
# here best of n turned at about 1 nat, the training runs between 0.6 and 5 nats. (These nats belong to a tiny model and
# completions of some 30 tokens; do not take them over.) What helps is to go no further, and gold labels show where that
# is. To get beyond that, the reward has to be repaired, which this chapter did not measure.
#
# Next: [14 · Judges and rubrics](14_judges_and_rubrics.ipynb) asks a language model for the reward, in words.
