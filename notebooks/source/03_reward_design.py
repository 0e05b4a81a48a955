# %% [markdown]
# # 03 · Reward design
#
# **After this notebook you can** write a reward in TRL's contract, combine several, see which of them drives the update,
# score a model's completions before any training, and attack a reward before the model does.
#
# **Time:** about 1 minute on two CPU cores. One short run trains; two exercises train too, for under a minute each.
#
# GRPO makes more likely whatever earns more than the rest of its group. So the reward *is* the task: the model ignores
# what the reward ignores, and learns whatever the reward pays for, also by mistake.

# %% [markdown]
# ## From functions to advantages
#
# Several functions score each completion of a group. TRL adds up the weighted scores, and the group turns the totals
# into advantages.

# %% tags=["hide-input"]
from grpo_workbook import figures

pale = figures.PALE
boxes = {
    "group": (0.07, 0.5, "8 completions\nof one prompt", pale["data"]),
    "right": (0.3, 0.85, "correctness: 0 or 1", pale["check"]),
    "form": (0.3, 0.5, "format: 0 to 1", pale["check"]),
    "style": (0.3, 0.15, "style: -1 to 0", pale["check"]),
    "sum": (0.55, 0.5, "8 totals", pale["number"]),
    "norm": (0.76, 0.5, "minus group mean,\n÷ group std", pale["number"]),
    "update": (0.94, 0.5, "8\nadvantages", pale["model"]),
}
arrows = [("group", name, "") for name in ("right", "form", "style")]
arrows += [("right", "sum", "× 2"), ("form", "sum", "× 0.5"), ("style", "sum", "× 0.1")]
arrows += [("sum", "norm", ""), ("norm", "update", "")]
figure = figures.diagram(boxes, arrows, (9, 2.6))
figure.suptitle("Rewards are weighted and added, then compared in the group", y=1.06)
figures.show(
    figure,
    "Diagram. The 8 completions of one prompt go to three reward functions: "
    "correctness, format and style. Their scores, weighted 2, 0.5 and 0.1, add up to "
    "8 totals. Minus the group's mean, over its standard deviation: 8 advantages.",
)

# %% [markdown]
# ## The contract, on four completions
#
# A reward is a function. A list of completions goes in, and one float per completion comes out.

# %%
def says_42(completions, **columns):
    return [1.0 if "42" in text else 0.0 for text in completions]


completions = ["6*7=42", "6*7=41", "It is 41 or 42.", "421"]
says_42(completions=completions)

# %% [markdown]
# It pays three of the four, but only the first answers the question. Training would find that out quickly.
#
# TRL passes keywords only: `prompts`, `completions`, `completion_ids` (the tokens), every other column of the dataset,
# `trainer_state`, `log_extra` (adds a column to the table of samples), `log_metric` (adds a number to the log) and,
# where tools are used, `environments`. Take what you need; `**columns` accepts the rest.
#
# With chat prompts a completion is a list of messages. `None` means "does not apply": TRL leaves it out of the sum.

# %%
def greeting_reward(completions, kind, **columns):
    """1.0 for a greeting that greets; None where the row asks for something else."""
    texts = [messages[0]["content"] for messages in completions]
    return [
        float("hello" in t.lower()) if k == "greeting" else None
        for t, k in zip(texts, kind)
    ]


chat = [[{"role": "assistant", "content": text}] for text in ("Hello!", "No.", "42")]
greeting_reward(
    prompts=["?"] * 3, completions=chat, kind=["greeting", "greeting", "sum"]
)

# %% [markdown]
# The function's `__name__` is its name in the log (`rewards/greeting_reward/mean`). Let exceptions stop the run: a
# reward that turns an error into 0 trains the model on noise.
#
# A reward may also be an `async def`, which TRL runs concurrently (useful for a judge behind a network), or the id of a
# reward model, which TRL loads. [Chapter 13](13_learned_rewards.ipynb) trains against both.

# %% [markdown]
# ## Is it right?
#
# This reward matters most. Compared as text, `1,000` is not `1000`; compared within 1 %, 1009 is 1000. `is_correct`
# compares exact fractions and evaluates no expression:

# %%
from grpo_workbook import is_correct

for gold, predictions in {
    "1000": ["1,000", "$1000.00", "1e3", "１０００", "1009", "2000/2"],
    "0.5": ["1/2", "2/4", ".50", "50%"],
    "72": ["72 apples", "72.", "72 halved", "72 or 73", "70+2", "7 dozen"],
}.items():
    print(f"{gold:5}", {p: is_correct(p, gold) for p in predictions})

# %% [markdown]
# Three decisions are worth knowing. `50%` is the number 50, never 0.5. Units are not compared, but only a known unit may
# follow the number: a usual one, or a word of the question, which the reward gets as the prompt. An expression that
# still has to be evaluated does not count as an answer, so `2000/2` earns nothing; the fraction `1/2` is a number.
#
# The reward reads the answer block only if there is exactly one. Otherwise the model would learn to write many numbers.

# %%
def one_answer_reward(completions, answer, **columns):
    """1.0 where the only answer block holds exactly the reference number."""

    def judge(text, gold):
        if text.count("<answer>") != 1 or text.count("</answer>") != 1:
            return 0.0
        return float(is_correct(text.split("<answer>")[1].split("</answer>")[0], gold))

    return [judge(text, gold) for text, gold in zip(completions, answer)]


one_answer_reward(
    ["<answer>42</answer>", "<answer>41</answer><answer>42</answer>"], ["42", "42"]
)

# %% [markdown]
# The course's `correctness_reward` works like this. For other forms, `extract_answer` looks for `<answer>` pairs, then
# for `\boxed{}`, then for the text after `####`. Several different answers are a hedge, and a hedge is `None`.

# %%
from grpo_workbook.rewards.answers import extract_answer

for text in [
    "<answer>42</answer> no wait, 41",
    r"so \boxed{\frac{1}{2}}",
    "6*7=42\n#### 42",
    "<answer>41</answer><answer>42</answer>",
    "It is 42.",
]:
    print(f"{text!r:45} -> {extract_answer(text)!r}")

# %% [markdown]
# ## Does it have the form?
#
# Two rewards for the same form. *Strict* wants the two blocks and nothing else. *Incremental* pays 0.25 for each of the
# four tags that is in place, counted from the first, and allows words around them. Each line below shows both.
#
# Incremental gives **partial credit**: a model that never writes the whole form still earns more for each step towards
# it, so its groups have a gradient. Strict alone gives none until the model succeeds by chance.

# %%
from grpo_workbook import rewards
from grpo_workbook.rewards.contract import about
from grpo_workbook.rewards.specs import REGISTRY

ladder = {
    "nothing": "42",
    "first tag": "<reasoning>\n6*7=42",
    "one block": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "words around": "Sure! <reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer> Bye!",
    "the form": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "empty tags": "<reasoning></reasoning><answer></answer>",
    "reversed": "</answer>42<answer></reasoning><reasoning>",
}
formats = (rewards.strict_format_reward, rewards.incremental_format_reward)
for name, text in ladder.items():
    print(f"{name:13}", [f([text])[0] for f in formats])

# %% [markdown]
# The last two are cheats. They earn no more than a first tag, because tags count only in order and around some text.

# %% [markdown]
# ## Weights
#
# Each reward here is unit-scaled: 0 to 1, or -1 to 0 for a penalty. Its weight is a separate argument of TRL, so the log
# shows every reward on its own scale:
#
# ```python
# GRPOConfig(reward_weights=[2.0, 0.5, 0.5], ...)
# GRPOTrainer(reward_funcs=[correctness_reward, strict_format_reward, incremental_format_reward], ...)
# ```
#
# `parse_rewards` makes both lists from a line of text and refuses unknown names:

# %%
from grpo_workbook import parse_rewards
from grpo_workbook.run_config import RunConfig

functions, weights = parse_rewards(RunConfig.rewards)
print(RunConfig.rewards)
print([f.__name__ for f in functions], weights)

# %% [markdown]
# | type | weight | why |
# | --- | --- | --- |
# | correctness | 2 | the task; more than all others together, or form without content wins |
# | format: strict, incremental | 0.5 each | learned within a few steps, and needed so that answers can be read |
# | length, overlong | 0.1 to 0.5 | only once answers are right; too strong, and the reasoning disappears |
# | style, repetition | 0.1 to 0.3 | a penalty for what you have seen in samples |
#
# Three to five rewards are enough, because each one can be gamed. A weight ranks completions *within* a group; it does
# not say how hard a reward pushes, as the section "A small weight is not a small push" shows.

# %% [markdown]
# ## The library
#
# These rewards have names. An equals sign marks a **factory**: a function that takes a setting and returns a reward.

# %%
from textwrap import fill

for name, made in REGISTRY.items():
    call = name if about(made).role else f"{name}=..."
    line = f"{call:20} {made.__doc__.splitlines()[0]}"
    print(fill(line, 88, subsequent_indent=" " * 21))

# %% [markdown]
# `overlong` is DAPO's penalty for completions near the length limit, and the formula is TRL's own. With a limit of 100
# tokens and a margin of 20, the penalty falls from 0 at 80 tokens to -1 at 100. Import Unsloth before TRL:

# %%
from grpo_workbook import quiet

quiet()
import unsloth
from trl.rewards import get_soft_overlong_punishment

overlong = get_soft_overlong_punishment(100, 20)
overlong(completion_ids=[[0] * n for n in (80, 90, 100, 500)])

# %% [markdown]
# Your own factory looks the same. This one wants JSON that follows a schema, and gives partial credit for any JSON:

# %%
import json

import jsonschema


def json_reward(schema):
    @rewards.reward(role="format")
    def json_schema_reward(completions, **columns):
        return [value(rewards.text_of(c)) for c in completions]

    def value(text):
        try:
            jsonschema.validate(json.loads(text), schema)
        except jsonschema.ValidationError:
            return 0.25
        except (ValueError, RecursionError):  # no JSON, or nested too deeply
            return 0.0
        return 1.0

    return json_schema_reward


json_reward({"required": ["n"]})(['{"n": 42}', '{"m": 42}', "42, I think"])

# %% [markdown]
# `@reward` records what the function judges, for the diagnosis of chapter 05. A reward in a file has a name on the
# command line: `--rewards "correctness:2,my.py:my_reward:0.5"`. The run tries it once before it trains.
#
# Three more of your own: a length that a completion should have, a penalty for phrases that you saw in samples, and TRL's
# penalty for repeated pairs. It counts words here, because pairs of tokens recur in right solutions too.

# %%
from trl.rewards import get_repetition_penalty_reward


def length(target):
    @rewards.reward(role="length")
    def length_reward(completions, completion_ids=None, **columns):
        tokens = completion_ids or [rewards.text_of(c).split() for c in completions]
        return [max(0.0, 1 - abs(len(ids) - target) / target) for ids in tokens]

    return length_reward


@rewards.reward(role="style")
def style_reward(completions, **columns):
    phrases = ("sure!", "as an ai", "i hope this helps")
    said = [rewards.text_of(c).lower() for c in completions]
    return [-sum(phrase in text for phrase in phrases) / len(phrases) for text in said]


def repetition_reward(completions, **columns):
    words = [rewards.text_of(c).split() for c in completions]
    return get_repetition_penalty_reward(2)(words)


# %% [markdown]
# Try each reward alone, on texts whose worth you know. (`length(8)` wants 8 tokens; here, without tokens, 8 words.)

# %%
samples = {
    "works it out": "<reasoning>\n6*7=42\n42/2=21\n</reasoning>\n<answer>21</answer>",
    "only sounds so": "<reasoning>\nFirst, we think. So, therefore, 21.\n</reasoning>\n"
    "<answer>21</answer>",
    "goes round": "<reasoning>\n"
    + "6*7=42 and so on " * 6
    + "\n</reasoning>\n<answer>21</answer>",
    "chats": "Sure! As an AI, I hope this helps: 21",
}
alone = [rewards.incremental_format_reward, length(8), repetition_reward, style_reward]
print(f"{'':15}", *[f"{f.__name__.removesuffix('_reward'):>16}" for f in alone])
for name, text in samples.items():
    print(f"{name:15}", *[f"{f([text])[0]:16.2f}" for f in alone])

# %% [markdown]
# Read the column `length`: two of the three cheats earn more than the answer that shows its work. A length is worth
# nothing by itself; use it only to trim answers that are already right.

# %% [markdown]
# ## What would GRPO see on step 1?
#
# Before you train, let the model answer a few problems and score the groups. This is the course's untrained model
# (chapter 04 trains it):

# %%
from grpo_workbook import load_policy

config = RunConfig.from_env(default_profile="smoke")
model, tokenizer = load_policy(config)

# %% [markdown]
# Eight problems with eight completions each, sampled as in training:

# %%
from grpo_workbook import data, generate, load_problems, to_dataset

train_rows = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
rows = list(train_rows.select(range(8)))
prompts = [row["prompt"] for row in rows for _ in range(8)]
completions = generate(
    model,
    tokenizer,
    prompts,
    max_new_tokens=config.max_completion_length,
    sample=True,
    seed=config.seed,
)
print(completions[0])

# %% [markdown]
# `score` calls every reward as TRL would. The column *equal* is the fraction of **zero-variance groups**: all their
# rewards are equal, so all advantages are 0 and the group teaches nothing.

# %%
from grpo_workbook.rewards import score_rewards

scored = score_rewards(functions, completions, rows, group_size=8, weights=weights)
scored.table().round(2)

# %% [markdown]
# In groups of 8, every reward has variance in every group. Cut the same completions into groups of 4 and compare:

# %% tags=["hide-input"]
import numpy as np
from matplotlib.patches import Rectangle

one_row_each = [row for row in rows for _ in range(8)]
fours = score_rewards(functions, completions, one_row_each, group_size=4, weights=weights)
table = np.array([np.sort(g, axis=1) for g in fours.groups.values()], dtype=float)
equal = table.max(axis=2) == table.min(axis=2)  # (functions and total, groups)
shade = table / table.max(axis=(1, 2), keepdims=True).clip(1e-9)
figure, (axes,) = figures.new_panels(9, 2.6)
axes.grid(False)
axes.imshow(shade.reshape(4, -1), aspect="auto", cmap="Blues", vmin=-0.3, vmax=1.2)
for row, group in zip(*equal.nonzero()):
    place = (4 * group - 0.5, row - 0.5)
    axes.add_patch(Rectangle(place, 4, 1, facecolor="#DDD", ec="grey", hatch="//"))
for x in range(4, 64, 4):
    axes.axvline(x - 0.5, color="white", lw=4)
for y in range(3):
    axes.axhline(y + 0.5, color="white", lw=4)
names = [name.removesuffix("_reward") for name in fours.groups]
axes.set_yticks(range(len(names)), names)
axes.set_xticks(np.arange(16) * 4 + 1.5, range(1, 17))
said = ", ".join(f"{name} {sum(row)}" for name, row in zip(names, equal))
only_form = sum(equal[0] & ~equal[-1])
finding = f"Groups of 4: {only_form} of 16 differ only in their format"
axes.set_xlabel("group of 4, sorted; dark: high reward, hatched grey: all equal")
axes.set_title(finding)
words = f"Heat map: rewards of 64 completions in 16 groups. Zero variance: {said}."
figures.show(figure, words)

# %% [markdown]
# In a small group a single reward often has no variance. Where one gives no gradient, another can still tell the
# completions apart. In such a table or figure, look for:
#
# - **mean 0 and all groups equal**: the reward is out of reach. Give partial credit, or easier problems.
# - **mean 1 and all groups equal**: it is mastered, or broken. The model learns nothing more from it.
# - **none** is not 0: the reward did not apply or could not be computed. Find out which.
#
# To see samples while training runs, set `GRPOConfig(log_completions=True)`. Or add a reward that only prints. With a
# weight of 0 it changes nothing:

# %%
def prints_a_sample(completions, trainer_state=None, **columns):
    """0.0 for every completion; every tenth step it prints the first one."""
    step = trainer_state.global_step if trainer_state else 0
    if step % 10 == 0:
        print(f"step {step}: {' '.join(rewards.text_of(completions[0]).split())}")
    return [0.0] * len(completions)


prints_a_sample(completions[:8])

# %% [markdown]
# ## A small weight is not a small push
#
# The group's standard deviation divides every advantage. Compare three groups of four:

# %%
from grpo_workbook import group_advantages

for group in ([3.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0], [2.1, 2.0, 2.0, 2.0]):
    print(group, "->", [round(a, 2) for a in group_advantages(group, 4).tolist()])

# %% [markdown]
# They get the same advantages. In the second group no completion is right, and one earns 0.1 for a cheat. In the third
# all are right, and one earns 0.1 for its style. Both times 0.1 pushes as hard as the whole task does in the first.
#
# So **where correctness does not vary, the smallest reward drives the update, and its size does not matter**. That
# happens on problems that are too hard and, late in a successful run, on most problems.

# %% [markdown]
# ### Four ways to make advantages
#
# TRL has two switches. `scale_rewards` chooses the divisor: the `"group"`'s standard deviation (the default), the whole
# `"batch"`'s, or `"none"` (Dr. GRPO). `multi_objective_aggregation="normalize_then_sum"` is GDPO (arXiv 2601.05242): it
# normalises each reward within its group first, then applies the weights, sums, and normalises over the batch. It
# ignores `scale_rewards`. The arithmetic of TRL 1.15, in short:

# %%
import torch


def advantages(rewards, weights, scale="group", order="sum_then_normalize"):
    """For rewards of shape (functions, groups, completions)."""
    weights = torch.tensor(weights)[:, None, None]
    if order == "normalize_then_sum":
        mean, std = rewards.mean(2, keepdim=True), rewards.std(2, keepdim=True)
        total = (weights * (rewards - mean) / (std + 1e-4)).sum(0)
        return (total - total.mean()) / (total.std() + 1e-4)
    total = (weights * rewards).sum(0)
    centred = total - total.mean(1, keepdim=True)
    if scale == "none":
        return centred
    std = total.std(1, keepdim=True) if scale == "group" else total.std()
    return centred / (std + 1e-4)


WAYS = {
    "group": {},
    "batch": {"scale": "batch"},
    "none": {"scale": "none"},
    "normalize_then_sum": {"order": "normalize_then_sum"},
}

# %% [markdown]
# Take two groups of 8. In the first, half of the answers are right; in the second all are. In both, two completions
# contain a phrase that a style reward pays with a weight of 0.1.

# %% tags=["hide-input"]
right = [[1.0, 0, 1, 0, 1, 0, 1, 0], [1.0] * 8]
phrase = [[1.0, 1, 0, 0, 0, 0, 0, 0]] * 2
rewards_of_two = torch.tensor([right, phrase])
lines = {"2 × correctness": 2 * rewards_of_two[0]}
lines["0.1 × phrase"] = 0.1 * rewards_of_two[1]
lines["total"] = sum(lines.values())
for name, way in WAYS.items():
    lines[name] = advantages(rewards_of_two, [2.0, 0.1], **way)
figure, (axes,) = figures.new_panels(10, 3.6)
axes.grid(False)
shades = torch.stack(list(lines.values())).flatten(1)
axes.imshow(shades, aspect="auto", cmap="RdBu", vmin=-3, vmax=3)
for (y, x), value in np.ndenumerate(shades.numpy()):
    said = f"{value:g}"[:3] if y < 3 else f"{value:.2f}"
    axes.text(x, y, said, ha="center", va="center", fontsize=8)
axes.axvline(7.5, color="black")
axes.axhline(2.5, color="black")
axes.set_yticks(range(7), [*list(lines)[:3], *(f"advantage, {way}" for way in WAYS)])
axes.set_xticks([3.5, 11.5], ["group 1: half are right", "group 2: all are right"])
pushes = [lines[name][1, 0].item() for name in WAYS]
axes.set_title(f"Where all are right, the phrase gets {pushes[0]:.1f} or about 0.1")
said = ", ".join(f"{name} {push:.2f}" for name, push in zip(WAYS, pushes))
words = "Matrix of 16 completions in two groups: weighted rewards, totals, advantages. "
words += f"Where all are right, the phrase has an advantage of: {said}."
figures.show(figure, words)

# %% [markdown]
# Under `"group"` the phrase has an advantage of 1.6 in the second group, more than any right answer has in the first.
# The other three keep it near 0.1, because none of them divides the total by the group's own deviation.

# %% [markdown]
# ### What a policy learns from that
#
# A toy policy shows the effect in seconds. It makes two decisions: be right (31 % at first) and use the phrase (10 %).
# Both come from the same 64 weights, as in a network. It trains on 8 groups of 8. In the mastered groups all answers are
# right, whatever it does. (All wrong would give the same advantages, because the mean is subtracted.)

# %%
def toy(way, weight=0.1, mastered=4, steps=41, adamw=True, seed=0):
    """The chance of the phrase before each step."""
    random = torch.Generator().manual_seed(seed)
    read = torch.randn(2, 64, generator=random) / 8
    theta, start = torch.zeros(64, requires_grad=True), torch.tensor([-0.8, -2.2])
    optimizer = torch.optim.SGD([theta], lr=0.5)
    if adamw:
        optimizer = torch.optim.AdamW([theta], 0.03, (0.9, 0.99), weight_decay=0.0)
    open_ = (torch.arange(8) >= mastered).float()[:, None]
    chances = []
    for _ in range(steps):
        chance = torch.sigmoid(read @ theta + start)
        chances.append(chance[1].item())
        chance = chance[:, None, None].expand(2, 8, 8)
        did = torch.bernoulli(chance.detach(), generator=random)
        earned = torch.stack([did[0].maximum(1 - open_), did[1]])
        advantage = advantages(earned, [2.0, weight], **WAYS[way])
        logp = torch.where(did > 0, chance, 1 - chance).log()
        loss = -(advantage * (open_ * logp[0] + logp[1])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return chances


print([round(chance, 2) for chance in toy("group")[::10]])

# %% [markdown]
# Five seeds for each way, once with half of the groups mastered and once with all of them:

# %% tags=["hide-input"]
cases = {"half of the groups mastered": 4, "all groups mastered": 8}
figure, panels = figures.new_panels(9, 3.4, 2, 2)
runs, parts = {}, []
for axes, (title, mastered) in zip(panels, cases.items()):
    for way, (colour, dash, _) in zip(WAYS, figures.STYLES):
        seeds = np.array([toy(way, mastered=mastered, seed=s) for s in range(5)])
        runs[way, mastered] = seeds.mean(0)
        axes.plot(seeds.mean(0), dash, color=colour, lw=2, label=way)
        low, high = seeds.min(0), seeds.max(0)
        axes.fill_between(range(41), low, high, color=colour, alpha=0.15)
        parts.append(f"{way}, {title}: {seeds[:, 30].mean():.0%}")
    axes.set(ylim=(0, 1), xlabel="step", title=title)
panels[0].set_ylabel("chance of the phrase")
panels[0].legend(frameon=False, loc="upper left")
figure.suptitle("A weight of 0.1 stays small only beside something larger")
figures.show(
    figure,
    "Two line charts of the chance of the phrase over 40 steps, five seeds each. "
    f"At step 30: {'; '.join(parts)}.",
)

# %% [markdown]
# With half of the groups mastered, `"group"` takes the phrase to 80 % in 30 steps. The three others still hold it at
# 10 % to 18 %, because the larger pushes of correctness are in the same batch. Not for ever: at step 40 `"batch"` and
# `"normalize_then_sum"` are near 40 %. And does its weight matter?

# %%
import pandas as pd


def after_30(way, weight):
    return np.mean([toy(way, weight, steps=31, seed=seed)[-1] for seed in range(5)])


sizes = (1.0, 0.1, 0.01)
ends = {way: [after_30(way, weight) for weight in sizes] for way in WAYS}
pd.DataFrame(ends, index=[f"weight {weight}" for weight in sizes]).round(2)

# %% [markdown]
# Under `"group"`, a weight 100 times smaller changes little. Under the others, the weight decides.
#
# The right panel is the limit of the cures. Where *every* group is mastered, nothing larger is left in the batch.
# `"batch"` and `"normalize_then_sum"` divide by the phrase's own spread. `"none"` gives a gradient about 20 times
# smaller, but AdamW divides each gradient by its own recent size, so the step stays large. With plain SGD it would not:

# %%
for adamw in (True, False):
    last = {way: toy(way, mastered=8, steps=31, adamw=adamw)[-1] for way in WAYS}
    print("AdamW" if adamw else "SGD  ", {way: round(p, 2) for way, p in last.items()})

# %% [markdown]
# ### The same on a real run
#
# `train` trains the course's model. `make_trainer` builds TRL's `GRPOTrainer` as chapter 04 does, with adapters in float32;
# `changes` are fields of `GRPOConfig`.

# %%
from grpo_workbook.run_config import make_trainer


def train(reward_functions, reward_weights, steps=20, **changes):
    """Train the untrained model, and give back the trainer with its log."""
    model, tokenizer = load_policy(config)
    changes = {"max_steps": steps, "save_strategy": "no", **changes}
    trainer = make_trainer(
        config, model, tokenizer, train_rows, reward_functions, reward_weights, changes
    )
    trainer.train()
    return trainer


def curve(trainer, name):
    """The mean of one reward in each step."""
    key = f"rewards/{name}/mean"
    return [entry[key] for entry in trainer.state.log_history if key in entry]

# %% [markdown]
# The model writes a number in nearly every completion, so `gives_a_number` is a task that it has mastered. The style
# reward pays the words "answer is", with a weight of 0.1. The strict format has a weight of 0: it is logged, not paid.

# %%
def gives_a_number(completions, **columns):
    return [float(any(map(str.isdigit, rewards.text_of(c)))) for c in completions]


def says_answer_is(completions, **columns):
    return [float("answer is" in rewards.text_of(c)) for c in completions]


judges = [gives_a_number, says_answer_is, rewards.strict_format_reward]
trainer = train(judges, [2.0, 0.1, 0.0], steps=10, scale_rewards="group")

# %% [markdown]
# What a reward of 0.1 did in 10 steps, and what it cost:

# %% tags=["hide-input"]
curves = {f.__name__: curve(trainer, f.__name__) for f in judges}
labels = ["gives a number (weight 2)", "says \"answer is\" (0.1)", "strict form (0)"]
figure, (axes,) = figures.new_panels(7.5, 3.2)
for label, values, (colour, dash, _) in zip(labels, curves.values(), figures.STYLES):
    axes.plot(range(1, len(values) + 1), values, dash, color=colour, lw=2, label=label)
spoken, strict = (curves[f.__name__] for f in judges[1:])
axes.set(xlabel="step", ylabel="fraction of completions", ylim=(0, 1.05))
first, last = spoken[0], spoken[-1]
axes.set_title(f"A weight of 0.1 takes the phrase from {first:.0%} to {last:.0%}")
figure.legend(frameon=False, loc="outside right center")
figures.show(
    figure,
    f"Line chart of three rewards over {len(spoken)} steps. Nearly all completions "
    f"have a number. The phrase: {first:.0%} to {last:.0%}. The strict form: "
    f"{strict[0]:.0%} to {strict[-1]:.0%}.",
)

# %% [markdown]
# The phrase takes over, and the strict form disappears, because the phrase stands outside of the two blocks.
#
# Now the cures, where correctness (weight 2) still varies beside the phrase (0.1). Measured over 20 steps, one seed:
#
# | | phrase | correctness |
# | --- | --- | --- |
# | first 3 steps | 28 % | 46 % |
# | last 3, `"group"` | 72 % | 86 % |
# | last 3, `"normalize_then_sum"` | 42 % | 83 % |
# | last 3, `"none"` | 42 % | 85 % |

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: TRL's advantages are ours in all four ways, and
# the run did what the text says.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
batch = next(iter(trainer.get_train_dataloader()))
gaps = {}
for name, way in WAYS.items():
    trainer.scale_rewards = way.get("scale", "group")
    trainer.multi_objective_aggregation = way.get("order", "sum_then_normalize")
    trainer._generate_and_score_completions(batch)
    kept = [list(trainer._logs["rewards"][f.__name__])[-64:] for f in judges]
    ours = advantages(torch.tensor(kept).reshape(3, 8, 8), [2.0, 0.1, 0.0], **way)
    theirs = torch.tensor(list(trainer._logs["advantages"])[-64:]).reshape(8, 8)
    gaps[name] = (ours - theirs).abs().max().item()
assert max(gaps.values()) < 1e-3, gaps
proved = {"steps": trainer.state.global_step, "gaps": gaps, "curves": curves}
proved["toy"] = {f"{way} {m}": run[30] for (way, m), run in runs.items()}
config.output.mkdir(parents=True, exist_ok=True)
(config.output / "notebook_03.json").write_text(json.dumps(proved))

# %% [markdown]
# ### What to do
#
# | case | remedy |
# | --- | --- |
# | a small reward should stay small beside correctness | `scale_rewards="batch"` or `"none"` |
# | several rewards should all be learned, as weighted | `multi_objective_aggregation="normalize_then_sum"` |
# | a cheat earns partial credit | make it earn 0; a small weight protects only within a group that has right answers |
# | nearly all groups have mastered correctness | remove the small reward, or stop the run: no setting keeps it small |
#
# Two cautions. GDPO divides each reward by its own spread, so a length reward that differs by 0.01 within a group pushes
# as hard as one that differs by 0.5. And with `"batch"` or `"normalize_then_sum"`, TRL computes `frac_reward_zero_std`
# over the whole batch: it stays 0 while single groups have no variance.

# %% [markdown]
# ## Attack it before the model does
#
# Under GRPO a policy searches for whatever pays, with thousands of samples. These two rewards are written as in many
# notebooks:

# %%
import re


def first_number(text):
    found = re.search(r"-?\d+(\.\d+)?", text[:300])
    return float(found[0]) if found else float("nan")


def naive_correctness(completions, answer, **columns):
    """2.0 if the first number in any answer block is the right one, within 1 %."""
    blocks = [
        [first_number(block) for block in text.split("<answer>")[1:]]
        for text in completions
    ]
    return [
        2.0
        if any(abs(number - float(a)) <= 0.01 * float(a) for number in numbers)
        else 0.0
        for numbers, a in zip(blocks, answer)
    ]


def naive_format(completions, **columns):
    """0.125 for every tag there is, less 0.001 for each character behind the last."""
    tags = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
    return [
        sum(0.125 * (tag in text) for tag in tags)
        - 0.001 * len(text.split("</answer>")[-1])
        for text in completions
    ]

# %% [markdown]
# The collection holds completions that try to earn a reward without answering: hedges, spam, empty tags, unevaluated
# sums, expression bombs, invisible characters, texts of a million characters.

# %%
from grpo_workbook.rewards import attacks, honest

collection = attacks(right="42", wrong="41", prompt="What is 6 times 7?")
print(len(collection), "attacks of", len({a.family for a in collection}), "kinds\n")
for attack in collection[::9]:
    print(f"{attack.family + ': ' + attack.name:50} {attack.text[:42]!r}")

# %% [markdown]
# Each attack earns a fraction of what the honest right answer earns from the same rewards. At 1 or more it gets through.

# %%
def total(functions, weights, text):
    return sum(
        w * f(completions=[text], answer=["42"])[0] for f, w in zip(functions, weights)
    )


sets = {
    "naive": ([naive_correctness, naive_format], [1, 1]),
    "ours": (functions, weights),
}
paid = pd.DataFrame({"kind": [a.family for a in collection]})
for name, of_set in sets.items():
    full = total(*of_set, honest())
    paid[name] = [total(*of_set, attack.text) / full for attack in collection]
print((paid[["naive", "ours"]] >= 1).sum().to_dict(), "get through")

# %% [markdown]
# By kind, how many get through:

# %% tags=["hide-input"]
kinds = paid.groupby("kind", sort=False)
through = kinds[["naive", "ours"]].agg(lambda fractions: (fractions >= 1).sum())
through["attacks"] = kinds.size()
fooled = through["naive"].sum(), through["ours"].sum()
figure, (axes,) = figures.new_panels(7.5, 4.6)
axes.barh(through.index, through["attacks"], color="#DDDDDD", label="attacks")
look = {"color": figures.ORANGE, "hatch": "//", "edgecolor": "white"}
axes.barh(through.index, through["naive"], 0.5, label="fool the naive rewards", **look)
axes.barh(through.index, through["ours"], 0.25, color=figures.BLUE, label="fool ours")
axes.invert_yaxis()
axes.grid(False)
axes.set(xlabel="number of attacks")
title = f"Of {len(paid)} attacks {fooled[0]} fool the naive rewards, {fooled[1]} ours"
axes.set_title(title)
figure.legend(frameon=False, loc="outside lower center", ncols=3)
said = ", ".join(f"{k} {row.naive} of {row.attacks}" for k, row in through.iterrows())
figures.show(figure, f"Bar chart by kind of attack. {said} fool the naive rewards.")

# %% [markdown]
# Some that fool the naive rewards:

# %%
for attack, fraction in zip(collection, paid["naive"]):
    if fraction >= 1 and attack.family in ("hedging", "nested tags", "huge numbers"):
        print(f"{attack.family + ': ' + attack.name:45} {attack.text[-40:]!r}")

# %% [markdown]
# What is the most that an attack earns with the right number in it, and without?

# %%
knows = np.array(["42" in attack.text for attack in collection])
for name in sets:
    best = paid[name][knows].max(), paid[name][~knows].max()
    print(f"{name:6} {best[0]:5.0%} with the right number, {best[1]:5.0%} without")

# %% [markdown]
# With ours, an attack without the right number earns no more than a well-formed wrong answer. Most attacks that contain
# the right number (39 of 46) lose the reward for correctness; the other 7 lose the one for the strict form. In a group
# with right answers, the right answers win. In a group without any, the best cheat wins, however little it earns: a small
# weight is not a small push.
#
# The opposite fault is a penalty without a floor. Under the naive rewards a right answer with a long farewell earns less
# than an empty completion, so the model learns to say nothing. Ours only withholds the reward for the strict form:

# %%
chatty = honest() + " " + "I hope this helps! " * 200
for name, of_set in sets.items():
    print(f"{name}: {total(*of_set, chatty):.2f}")

# %% [markdown]
# No reward stops everything. An answer can be right by luck, whatever the reasoning says. So read samples during
# training and measure on held-out problems (chapter 04). If the answers are programs, they can attack the test itself
# (chapter 06).

# %% [markdown]
# ## Symbolic answers: math-verify and its traps
#
# For reference answers (*golds*) such as `x^2+2x+1`, comparing numbers does not help. math-verify parses LaTeX and
# compares by algebra. As a reward it has traps:

# %%
import logging
from math_verify import parse, verify

logging.disable(logging.WARNING)
for gold, prediction in [
    ("72", "1, 2, 3 or 72"),
    ("72", r"\boxed{2+70}"),
    ("50", r"\boxed{50\%}"),
    ("0.5", r"\boxed{50\%}"),
    ("72", "<answer>72</answer>"),
    ("1000", "1e3"),
]:
    print(f"{prediction:20} against {gold:5}", verify(parse(gold), parse(prediction)))

# %% [markdown]
# A hedge passes, an unevaluated sum passes, 50 % equals two numbers, and the tagged answer fails. Its time limit works
# only in the main thread; elsewhere it raises `ValueError`. Code that caught this error has given a reward of 0 for
# whole runs.
#
# `SymbolicChecker` compares numbers exactly, refuses several answers, and leaves only the algebra to math-verify, in a
# separate process. A check that takes too long is killed: *timeout* is an outcome of its own, not a wrong answer.

# %%
from grpo_workbook.rewards.symbolic import SymbolicChecker

pairs = [
    ("1, 2, 3 or 72", "72"),
    (r"\boxed{2+70}", "72"),
    (r"\boxed{50\%}", "50"),
    ("<answer>72</answer>", "72"),
    ("(x+1)^2", "x^2+2x+1"),
    (r"\frac{2}{\sqrt{2}}", r"\sqrt{2}"),
    ("9^{9^{9^{9}}}", "x^2"),
]
with SymbolicChecker(time_limit=2.0) as checker:
    for (prediction, gold), outcome in zip(pairs, checker.check(pairs)):
        print(f"{prediction:20} against {gold:9} {outcome.verdict:8} {outcome.reason}")
    print(dict(checker.counts))

# %% [markdown]
# As a reward it is `get_symbolic_reward(checker)`: 1.0, 0.0, or `None` where it cannot say. If more than half of a
# batch is `None`, it stops the run and says why.

# %% [markdown]
# ## Ensembles, and a weight that adapts
#
# An ensemble makes one reward of several. Under the *minimum*, cheating one member gains nothing. The *mean* averages
# out errors. The *vote* (a median) suits judges that are often wrong on their own. (Reward models that learned
# from the same kind of data are wrong together, and then none of these helps: chapter 13.) It takes a few lines:

# %%
from statistics import fmean, median_low


def ensemble(join, *members):
    def ensemble_reward(completions, **columns):
        each = [member(completions, **columns) for member in members]
        return [join(values) for values in zip(*each)]

    return ensemble_reward


def shows_work(completions, **columns):
    return [float("=" in rewards.text_of(c)) for c in completions]


members = (rewards.correctness_reward, rewards.strict_format_reward, shows_work)
texts = [honest(), honest(work="I just know it."), "<answer>42</answer>"]
for join in (min, fmean, median_low):
    values = ensemble(join, *members)(texts, answer=["42"] * 3)
    print(f"{join.__name__:10}", [round(value, 2) for value in values])

# %% [markdown]
# `AdaptiveWeight` lowers a reward's weight as the model masters it; [chapter 07](07_stages_and_curriculum.ipynb)
# measures the effect. Here the weight of the strict format falls as more completions are well-formed:

# %%
from grpo_workbook.stages import AdaptiveWeight

form = rewards.strict_format_reward
fading = AdaptiveWeight(form, success=form, at_zero=1.0, at_one=0.2, memory=0.8)
for good in (0, 4, 8, 8, 8, 8):
    print(f"weight {fading.weight:.2f}, then {good} of 8 completions are well-formed")
    fading(completions=[honest()] * good + ["42"] * (8 - good))

# %% [markdown]
# ## A lab for a new task
#
# A new task, from nothing: a program downstream reads only the last line of each completion, which must be
# `#### NUMBER`. A first attempt at the reward:

# %%
def first_attempt(completions, answer, **columns):
    texts = [rewards.text_of(c) for c in completions]
    return [float("####" in text and a in text) for text, a in zip(texts, answer)]

# %% [markdown]
# **Attack it.** Write down the honest completion, then everything you would try if only the reward mattered:

# %%
wanted = "6*7=42\n#### 42"
cheats = {
    "both numbers": "#### 41 or 42",
    "two last lines": "#### 42\n#### 41",
    "number elsewhere": "6*7=42\n#### 41",
    "longer number": "6*7=42\n#### 142",
    "talks on": "6*7=42\n#### 42\nI hope this helps!",
    "within a line": "6*7=42, so #### 42",
    "every number": "#### " + " ".join(map(str, range(100))),
    "mark alone": "####",
}


def examine(reward):
    texts = {"honest": wanted, **cheats}
    chats = [[{"role": "assistant", "content": text}] for text in texts.values()]
    values = reward(completions=chats, answer=["42"] * len(texts))
    for (name, text), value in zip(texts.items(), values):
        print(f"{value:5.2f}  {name:17} {text[:40]!r}")


examine(first_attempt)

# %% [markdown]
# It pays seven of the eight cheats. Exercise 03.3 asks for a reward that pays none.
#
# **Score real samples.** Does the model ever do what you want to pay for? These are the 64 completions from above:

# %%
marks = [text.count("####") for text in completions]
last = [text.strip().splitlines()[-1:] for text in completions]
form = [bool(line) and bool(re.fullmatch(r"#### -?\d+", line[0])) for line in last]
print(f"contain the mark: {sum(m > 0 for m in marks)} of 64, more than once:", end=" ")
print(f"{sum(m > 1 for m in marks)}, end in '#### NUMBER': {sum(form)}")
score_rewards([first_attempt], completions, rows, group_size=8).table().round(2)

# %% [markdown]
# It does sometimes, so groups have a gradient without partial credit. **Train, and read what the reward taught**:
# exercise 03.4. **Do the same for a task of your own**: exercise 03.6.

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it checks itself. In 03.4 and 03.5 you write a prediction first, and the run
# starts only then. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 03.1 · `agreed_answer` · medium · 10 minutes
#
# Return the text inside the `<answer>...</answer>` pairs, without white space around it. Return `None` if there is no
# complete pair, or if several pairs hold different answers. Two equal answers are one answer.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def agreed_answer(text: str) -> str | None:
    raise NotImplementedError


check("03.1", agreed_answer);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `re.findall` with a group gives all pairs; `re.DOTALL` lets the dot match new lines. How many *different* ones are
# there?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# import re
#
#
# def agreed_answer(text: str) -> str | None:
#     found = {inside.strip() for inside in re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)}
#     return found.pop() if len(found) == 1 else None
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.2 · `weighted_total` · medium · 8 minutes
#
# `values` has a list for each reward function, with one entry for each completion. Return each completion's total as
# TRL computes it: the weighted sum over the functions that apply, and `None` where none applies.

# %% tags=["exercise"]
def weighted_total(
    values: list[list[float | None]], weights: list[float]
) -> list[float | None]:
    raise NotImplementedError


check("03.2", weighted_total);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `zip(*values)` transposes the table: each tuple belongs to one completion.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def weighted_total(
#     values: list[list[float | None]], weights: list[float]
# ) -> list[float | None]:
#     totals = []
#     for of_one in zip(*values, strict=True):
#         given = [w * v for w, v in zip(weights, of_one, strict=True) if v is not None]
#         totals.append(sum(given) if given else None)
#     return totals
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.3 · `last_line_reward` · medium · 10 minutes
#
# The reward of the lab, in TRL's contract for chat completions. Pay 1.0 where the last line is `####`, a space and the
# row's `answer`, and where `####` stands nowhere else; otherwise pay 0.0. Ignore white space around the completion. When
# it is solved, run `examine(last_line_reward)`.

# %% tags=["exercise"]
def last_line_reward(completions: list, answer: list[str], **columns) -> list[float]:
    raise NotImplementedError


check("03.3", last_line_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A completion is `[{"role": "assistant", "content": text}]`. An empty completion has no last line:
# `text.strip().split("\n")[-1]` gives "" for it. `text.count("####")` finds the hedges.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def last_line_reward(completions: list, answer: list[str], **columns) -> list[float]:
#     values = []
#     for messages, gold in zip(completions, answer, strict=True):
#         text = messages[0]["content"].strip()
#         right = text.split("\n")[-1] == f"#### {gold}" and text.count("####") == 1
#         values.append(1.0 if right else 0.0)
#     return values
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.4 · `form_alone` · medium · 10 minutes
#
# Train on the new task, but pay only for its form: any number on the last line earns 1. In 20 steps the form becomes
# more frequent. What happens to the fraction of completions *in the form* that have the right number? Write "rises",
# "stays" or "falls", then run the cell (under a minute) and read the last completions. Afterwards pay for `is_right`
# or for `first_attempt` instead, and compare.

# %% tags=["exercise"]
prediction = ...  # "rises", "stays" or "falls"


def run() -> dict:
    """20 steps that pay for the form of the last line, and log whether it is right."""

    def has_form(completions, **columns):
        ends = [rewards.text_of(c).strip().split("\n")[-1] for c in completions]
        return [float(bool(re.fullmatch(r"#### -?\d+", end))) for end in ends]

    def is_right(completions, answer, **columns):
        ends = [rewards.text_of(c).strip().split("\n")[-1] for c in completions]
        return [float(end == f"#### {a}") for end, a in zip(ends, answer)]

    trainer = train([has_form, is_right], [1.0, 0.0], steps=20)
    print(*list(trainer._logs["completion"])[-3:], sep="\n")
    rates = {name: curve(trainer, name) for name in ("has_form", "is_right")}
    return {name: [np.mean(r[:3]), np.mean(r[-3:])] for name, r in rates.items()}


predict("03.4", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What in this reward depends on the sum?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "falls"
# ```
#
# In our run the form went from 6 % to 37 % of the completions, and the right ones among them from 67 % to 26 %. The
# reward ignores the number, so nothing keeps the work that made it right. Pay for the form only together with the answer,
# and report both rates.
#
# </details>

# %% [markdown]
# ### Exercise 03.5 · `no_scaling` · hard · 10 minutes
#
# Repeat the run above with `scale_rewards="none"`: the task is mastered, and the phrase has a weight of 0.1. What
# happens to the rate of the phrase in 15 steps? Then try `multi_objective_aggregation="normalize_then_sum"`, or replace
# `gives_a_number` by `rewards.correctness_reward`, which the model has not mastered.

# %% tags=["exercise"]
prediction = ...  # "rises", "stays" or "falls"


def run() -> dict:
    """15 steps with weights of 2 and 0.1, and no division by a standard deviation."""
    trainer = train(judges, [2.0, 0.1, 0.0], steps=15, scale_rewards="none")
    spoken = curve(trainer, "says_answer_is")
    return {"says_answer_is": [np.mean(spoken[:3]), np.mean(spoken[-3:])]}


predict("03.5", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The gradient is smaller. Which optimizer takes the step?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# Nothing else varies, so the whole gradient comes from the phrase. AdamW divides it by its own recent size, and the step
# stays large. `"none"` keeps a reward small only while larger rewards vary in the batch.
#
# </details>

# %% [markdown]
# ### Exercise 03.6 · `my_task` · hard · 20 minutes
#
# A reward for **your** task. Return four things: the reward; the columns of one row, such as `{"answer": "42"}`; one
# honest completion; and at least five cheats, all as plain text. The check calls the reward as TRL does, with chat
# messages, and adds an empty and a very long completion. All must earn less than the honest one, and every value must
# lie between -1 and 1. When it passes, train with it: `train([my_reward], [1.0])`.

# %% tags=["exercise"]
def my_task() -> tuple:
    raise NotImplementedError


check("03.6", my_task);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Start from the lab: with `wanted` and `cheats`, `first_attempt` fails the check and your `last_line_reward` passes.
# Tasks that suit a reward: JSON with certain keys, an SQL query that runs, a short summary with all the names.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_task() -> tuple:
#     def list_reward(completions, word, **columns):
#         """1.0 for three different lines of "- WORD", each with the word of the row."""
#
#         def value(text, word):
#             lines = text.strip().split("\n")
#             good = [line.startswith("- ") and word in line[2:].split() for line in lines]
#             return float(all(good) and len(set(lines)) == len(lines) == 3)
#
#         return [value(c[0]["content"], w) for c, w in zip(completions, word)]
#
#     honest = "- red apple\n- green apple\n- sour apple"
#     cheats = ["apple", "- apple\n" * 3, "- apples\n- pineapple\n- an apple", "- \n- \n- "]
#     cheats += ["- red apple\n- green apple", honest + "\n- old apple", honest + "\nEnjoy!"]
#     return list_reward, {"word": "apple"}, honest, cheats
# ```
#
# </details>

# %% [markdown]
# ## Before you train, a checklist
#
# - You tried every reward alone, on texts whose worth you know and on the attacks.
# - The honest right answer earns strictly the most.
# - Every reward is bounded, and correctness weighs more than all others together.
# - `score` on real samples: no reward is 0 everywhere or 1 everywhere, and few groups have zero variance.
# - You know which reward drives the update once correctness is mastered.
# - Errors stop the run or are counted; none becomes a 0.

# %% [markdown]
# ## Summary
#
# - A reward takes completions and columns, and gives one float per completion, or None. Its name goes into the log.
# - Compare answers exactly, read only one answer, and give partial credit for the form, in order.
# - Use three to five unit-scaled functions, with the weights apart.
# - Where correctness does not vary, the smallest reward drives the update. `"batch"`, `"none"` and GDPO keep it small
#   only while larger rewards vary in the batch.
# - Score samples before training, and attack your rewards. The model learns what gets through.
#
# Next: [04 · A GRPO run you can trust](04_grpo_run.ipynb) trains with these rewards.
