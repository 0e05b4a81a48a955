# %% [markdown]
# # 03 · Reward design
#
# How do you write a reward that teaches the task, and not a trick? This chapter writes rewards, attacks them before the
# model does, and measures which of them drives an update. The question matters because GRPO makes a completion likelier
# if it earns more than the mean of its group. The model therefore learns whatever it writes that the reward pays for,
# even by mistake, and nothing holds in place what the reward ignores. In one of this chapter's runs the paid task, to
# write any number, is mastered from the start. A reward for two words, with a twentieth of the task's weight, doubles
# these words within ten steps, and a form for which nothing pays disappears.
#
# **After this notebook you can** write a reward in TRL's contract, combine several, score a model's completions before
# any training, attack a reward before the model does, and say which reward drives an update.
#
# **Time:** about 1 minute on two CPU cores; reading takes 40 minutes, the exercises an hour. Two short runs train; two
# exercises train too, for under a minute each. (The stored run shared its machine, so its bars show longer times.)
# **You need** chapter 00.

# %% [markdown]
# ## From functions to advantages
#
# GRPO samples several completions of one prompt, a *group*. Several functions score each of them, and TRL adds up the
# weighted scores. The totals of a group are then compared and become its advantages: how much better than its group
# each completion is. (Blue: completions. Green: the reward functions, which this chapter writes. Orange: TRL's
# arithmetic. White: the result.)

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
# A reward is a function that gets a list of completions and returns one float per completion. This is TRL's *contract*.
# The first example is meant for the question "What is 6 x 7?":

# %%
def says_42(completions, **columns):
    values = []
    for text in completions:
        values.append(1.0 if "42" in text else 0.0)
    return values


completions = ["6*7=42", "6*7=41", "It is 41 or 42.", "421"]
says_42(completions=completions)

# %% [markdown]
# This reward pays for three of the four completions, but only the first answers the question. Training would soon
# make the other two more frequent, too.
#
# TRL calls the function with keyword arguments only: `prompts`, `completions`, `completion_ids` (the tokens), every
# other column of the dataset, `trainer_state`, `log_extra` (adds a column to the table of samples), `log_metric` (adds
# a number to the log) and, where tools are used, `environments`. Take what you need; `**columns` accepts the rest.
#
# With chat prompts a completion is a list of messages. `None` means that the reward does not apply to this row, and TRL
# leaves it out of the sum. If all rewards of a completion are `None`, TRL leaves the completion out of its group.

# %%
def greeting_reward(completions, task, **columns):
    """1.0 for a greeting that greets; None where the row asks for something else."""
    values = []
    for messages, asked in zip(completions, task, strict=True):
        if asked != "greeting":
            values.append(None)
        else:
            text = messages[0]["content"].lower()
            values.append(1.0 if "hello" in text else 0.0)
    return values


chat = [[{"role": "assistant", "content": text}] for text in ("Hello!", "No.", "42")]
greeting_reward(completions=chat, task=["greeting", "greeting", "sum"])

# %% [markdown]
# The function's `__name__` is its name in the log (`rewards/greeting_reward/mean`). Let exceptions stop the run: a
# reward that turns an error into 0 trains the model on noise.
#
# A reward may also be an `async def`, which TRL runs concurrently (useful if another language model, behind a network,
# judges the answers), or the id of a reward model, which TRL loads. [Chapter 13](13_learned_rewards.ipynb) trains
# against a reward model, and [chapter 14](14_judges_and_rubrics.ipynb) against a judge.

# %% [markdown]
# ## Is it right?
#
# The reward for a correct answer matters most. A comparison of texts would reject `1,000` for `1000`, and a comparison
# that allows an error of 1 % would accept `1009`. `is_correct` compares exact fractions and evaluates no expression:

# %%
from grpo_workbook import is_correct

tries = {
    "1000": ["1,000", "$1000.00", "1e3", "１０００", "1009", "2000/2"],
    "0.5": ["1/2", "2/4", ".50", "50%"],
    "72": ["72 apples", "72.", "72 halved", "72 or 73", "70+2", "7 dozen"],
}
for reference, predictions in tries.items():
    for text in predictions:
        verdict = "right" if is_correct(text, reference) else "wrong"
        print(f"{reference:5} {text:10} {verdict}")

# %% [markdown]
# Three decisions explain these results:
#
# - `50%` is the number 50, never 0.5.
# - A unit may follow the number and is not compared. The package has a list of common units and things, such as `km`
#   and `apple`, and a word of the question counts too. Any other word, such as `halved`, makes the answer wrong.
# - A fraction is a number, reduced or not: `1/2`, `2/4`. But a division that comes out even (`2000/2`) or a sum
#   (`70+2`) is work that the model has left to the reader, so it earns nothing.
#
# The next reward reads the answer block only if there is exactly one. Otherwise the model would learn to write many
# numbers. The third text has one tag of each sort, but no block:

# %%
import re


def one_answer_reward(completions, answer, **columns):
    """1.0 where the only answer block contains exactly the reference number."""
    values = []
    for text, reference in zip(completions, answer, strict=True):
        blocks = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
        if len(blocks) == text.count("<answer>") == text.count("</answer>") == 1:
            values.append(1.0 if is_correct(blocks[0], reference) else 0.0)
        else:
            values.append(0.0)
    return values


three_texts = [
    "<answer>42</answer>", "<answer>41</answer><answer>42</answer>",
    "</answer><answer>42",
]
one_answer_reward(three_texts, answer=["42"] * 3)

# %% [markdown]
# Our package's `correctness_reward` follows the same rule, and also leaves out a `<think>` block. `get_answer_reward`
# makes a similar reward for other forms, such as `\boxed{}` or `####`, and for other columns. TRL has rewards of its
# own. Before you use one of them, try it on texts in *your* form:

# %%
from grpo_workbook import quiet

quiet()
import unsloth  # before TRL
from trl.rewards import accuracy_reward, think_format_reward

texts = [
    r"\boxed{42}", r"\boxed{41} or \boxed{42}", r"\boxed{40+2}",
    "<answer>42</answer>",
]
chats = [[{"role": "assistant", "content": text}] for text in texts]
values = accuracy_reward(chats, solution=["42"] * 4)
for text, value in zip(texts, values):
    print(f"{value:.0f}  {text}")
think_format_reward([[{"role": "assistant", "content": "<think>6*7</think>42"}]])

# %% [markdown]
# `accuracy_reward` reads mathematics in LaTeX. It accepts an expression that equals the answer, such as `40+2`. It
# cannot read our tags: with our prompts every completion would earn 0, and the run would never learn. The last value is
# that of `think_format_reward`, which pays 1 for a text that begins with a `<think>` block, whether or not an answer
# follows. That is not our form either.

# %% [markdown]
# ## Does it have the form?
#
# Our package has two rewards for the same form. The *strict* reward wants the two blocks and nothing else. The
# *incremental* reward pays 0.25 for each of the four tags that is in place, and allows words around the blocks. Its
# counting stops at the first tag that is missing.
#
# The incremental reward gives **partial credit**: a model that never writes the whole form still earns more for each
# step towards it, so its groups have a gradient. With the strict reward alone there is no gradient until the model
# succeeds by chance. The next cell compares both rewards on seven texts.

# %%
from grpo_workbook import incremental_format_reward, strict_format_reward

ladder = {
    "nothing": "42",
    "first tag": "<reasoning>\n6*7=42",
    "one block": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "words around": "Sure! <reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer> Bye!",
    "the form": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "empty tags": "<reasoning></reasoning><answer></answer>",
    "reversed": "</answer>42<answer></reasoning><reasoning>",
}
for name, text in ladder.items():
    (strict,) = strict_format_reward([text])
    (incremental,) = incremental_format_reward([text])
    print(f"{name:13} strict {strict:.0f}   incremental {incremental:.2f}")

# %% [markdown]
# The last two texts are cheats. They earn no more than the first tag alone, because tags count only if they are in
# order and have some text between them.

# %% [markdown]
# ## Weights
#
# Each of our rewards is *unit-scaled*: it lies between 0 and 1, or between -1 and 0 for a penalty. The weights
# are a separate argument of TRL, so the log shows every reward on its own scale:

# %%
from grpo_workbook import correctness_reward
from trl import GRPOConfig

functions = [correctness_reward, strict_format_reward, incremental_format_reward]
weights = [2.0, 0.5, 0.5]
args = GRPOConfig(output_dir="unused", reward_weights=weights, use_cpu=True, bf16=False)
for function, weight in zip(functions, args.reward_weights):
    print(f"{weight:3} x {function.__name__}")

# %% [markdown]
# The table gives weights to start from. They are rules of thumb, not measurements of this chapter:
#
# | type | weight | why |
# | --- | --- | --- |
# | correctness | 2 | this is the task; it must weigh more than all others together, or form without content wins |
# | format: strict, incremental | 0.5 each | learned within a few steps, and needed so that answers can be read |
# | length, overlong | 0.1 to 0.5 | only once answers are right; too strong, and the reasoning disappears |
# | style, repetition | 0.1 to 0.3 | a penalty for what you have seen in samples |
#
# Use few rewards, three to five: each further one is one more that can be gamed. A weight decides how the completions
# *within* a group are ranked. But a small weight alone does not keep a reward's effect small: where nothing else
# varies, a weight of 0.1 pushes as hard as one of 2, as the second part of this chapter shows.

# %% [markdown]
# ## Rewards of your own
#
# A reward that needs a setting is made by a **factory**, a function that returns the reward. The next reward wants JSON
# that follows a schema, and gives partial credit for any JSON. `@reward` records what the function judges, for the
# diagnosis of chapter 05. `text_of` takes a completion's text, whether it is a chat or a plain text.

# %%
import json

import jsonschema
from grpo_workbook.rewards import reward, text_of


def get_json_reward(schema):
    def value_of(text):
        try:
            jsonschema.validate(json.loads(text), schema)
        except jsonschema.ValidationError:
            return 0.25
        except (ValueError, RecursionError):  # no JSON, or nested too deeply
            return 0.0
        return 1.0

    @reward(role="format")
    def json_schema_reward(completions, **columns):
        return [value_of(text_of(completion)) for completion in completions]

    return json_schema_reward


json_reward = get_json_reward({"type": "object", "required": ["n"]})
json_reward(['{"n": 42}', '{"m": 42}', "42", "42, I think"])

# %% [markdown]
# The schema needs its `"type": "object"`. Without it the bare number `42` would earn 1.0, because `required` says
# nothing about a text that is no object. Even so, a bare `42` earns 0.25, and in a group in which nothing follows the
# schema no completion earns more. If this happens in your samples, give the partial credit only to objects.
#
# TRL has factories too: `get_repetition_penalty_reward` for repeated sequences of tokens, and
# `get_soft_overlong_punishment`, DAPO's penalty near the length limit. For the course's own command-line run, a reward
# in a file is named like this: `--rewards "correctness:2,my.py:my_reward:0.5"`. The run calls each reward once before
# it trains.
#
# Try each reward alone, on texts of which you know how good they are. A limit on the length is often the first reward
# that people add, because short completions are cheap. The next reward wants completions of eight words. The four texts
# answer "What is half of 6 x 7?":

# %%
@reward(role="length")
def length_reward(completions, **columns):
    values = []
    for completion in completions:
        words = text_of(completion).split()
        values.append(max(0.0, 1 - abs(len(words) - 8) / 8))
    return values


form = "<reasoning>\n{}\n</reasoning>\n<answer>21</answer>"
samples = {
    "works it out": form.format("6*7=42\n42/2=21"),
    "only sounds so": form.format("First, we think. So, therefore, 21."),
    "goes round": form.format("6*7=42 and so on " * 6),
    "chats": "Sure! As an AI, I hope this helps: 21",
}
for name, text in samples.items():
    (format_value,) = incremental_format_reward([text])
    (length_value,) = length_reward([text])
    print(f"{name:15} format {format_value:.2f}   length {length_value:.2f}")

# %% [markdown]
# Look at the column `length`. The answer that shows its work earns 0.62. Two of the three cheats earn more, 0.88 each:
# the one whose reasoning has no calculation, and the one that chats. The length does not show whether an answer is
# good. Use such a reward only to shorten answers that are already right. One way is to multiply it by correctness
# inside one function. Then a wrong answer, or one without tags such as the one that chats, earns nothing for its
# length, and in a group without a right answer the length decides nothing. But `only sounds so` gives the right number
# too, so it still earns more than the answer that shows its work: correctness does not read the reasoning. In a group
# that has mastered the task it still decides everything, as the second part shows.

# %% [markdown]
# ## What would GRPO see on step 1?
#
# Before you train, let the model answer a few problems and score the groups. This chapter's model is *tiny-form*, which
# can solve this workbook's word problems and was trained, on purpose, to write its answers in messy forms ([its
# card](../data/tiny-form/README.md)), so that rewards for the form have something to change. The next cell loads it and
# samples eight completions for each of eight problems, as training would:

# %%
from grpo_workbook import (
    choose_profile, data, generate, load_policy, load_problems, to_dataset,
    use_one_thread,
)
from grpo_workbook.config import DATA

use_one_thread()
profile = choose_profile("smoke", model=DATA / "tiny-form")
model, tokenizer = load_policy(profile)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
rows = list(train_set.select(range(8)))
prompts = []
for row in rows:
    prompts.extend([row["prompt"]] * 8)
completions = generate(
    model, tokenizer, prompts, sample=True, seed=profile.seed,
    max_new_tokens=profile.grpo["max_completion_length"],
)
print(completions[0])

# %% [markdown]
# `score_rewards` calls every reward as TRL would. The last row, *total*, is the weighted sum, so it has no weight of
# its own (`NaN`). The column *none* counts completions without a reward. The column *equal* is the fraction of
# **zero-variance groups**: all their rewards are equal, so all advantages are 0 and the group teaches nothing.

# %%
from grpo_workbook.rewards import score_rewards

scored = score_rewards(functions, completions, rows, group_size=8, weights=weights)
scored.table().round(2)

# %% [markdown]
# In groups of 8, every reward has variance in every group. (These are only 8 groups: if 1 group in 10 had no variance,
# 0 of 8 would not be rare.) Smaller groups need fewer completions. What would be lost? The next figure cuts the same 64
# completions into groups of 2, 4 and 8. Each bar is the percentage of groups in which the reward has no variance. Above
# each bar stands in how many groups this is so, out of how many. (Groups of 8 have no bar to see: all of theirs have
# height 0.)

# %% tags=["hide-input"]
import numpy as np

rows_each = np.repeat(rows, 8).tolist()  # the row of each completion
figure, (axes,) = figures.new_panels(8.5, 3.2)
shades = {2: "#9CC9E8", 4: "#3E8FC4", 8: "#00466E"}
words = []
for shift, (size, colour) in zip((-0.27, 0, 0.27), shades.items()):
    cut = score_rewards(
        functions, completions, rows_each, group_size=size, weights=weights
    )
    values = np.array(list(cut.groups.values()), dtype=float)
    equal = values.max(axis=2) == values.min(axis=2)  # (rewards and total, groups)
    names = [name.removesuffix("_reward") for name in cut.groups]
    places = np.arange(len(names)) + shift
    bars = axes.bar(places, 100 * equal.mean(axis=1), 0.25, color=colour)
    bars.set_label(f"groups of {size}")
    counts = [f"{row.sum()}/{len(row)}" for row in equal]
    axes.bar_label(bars, counts, fontsize=8)
    words.append(f"groups of {size}: {', '.join(counts)}")
axes.set_xticks(range(len(names)), names)
axes.set(ylim=(0, 75), ylabel="groups without variance (%)")
axes.set_title("Groups without variance: the same 64 completions, cut in three ways")
figure.legend(frameon=False, loc="outside right center")
figures.show(
    figure,
    f"Bar chart of zero-variance groups for {', '.join(names)}: {'; '.join(words)}.",
)

# %% [markdown]
# In groups of 4, correctness has no variance in 4 of 16 groups, but the total always has some: where one reward cannot
# tell the completions apart, another can. This helps the training to start. It is also a danger, because in those
# 4 groups only the form decides what is reinforced. The second part of this chapter comes back to this.
#
# In such a table or figure, look for:
#
# - **mean 0 and all groups equal**: the reward is out of reach, or it cannot read your form, as `accuracy_reward`
#   above. Try it on an honest answer first. If that is paid, give partial credit, or easier problems.
# - **mean 1 and all groups equal**: the task of this reward is mastered, or the reward is broken. The model learns
#   nothing more from it.
# - **a mean between 0 and 1, and all groups equal**: within a group nothing differs. However healthy the mean looks,
#   the model learns nothing from it. Either the reward reads only the prompt, or the model solves each problem always
#   or never (its samples are nearly alike). Print one group: if its texts differ in quality, the reward is at fault. If
#   they do not, change the problems or the temperature.
# - **a number above 0 in the column *none***: the reward did not apply, or could not be computed. Find out which.
#
# To see samples while training runs, set `GRPOConfig(log_completions=True)`. Or add a reward that only prints. With a
# weight of 0 such a reward does not change the training:

# %%
def prints_a_sample(completions, trainer_state=None, **columns):
    """0.0 for every completion; every tenth step it prints the first one."""
    step = 0 if trainer_state is None else trainer_state.global_step
    if step % 10 == 0:
        text = text_of(completions[0])
        print(f"step {step}: {' '.join(text.split())}")
    return [0.0] * len(completions)


prints_a_sample(completions[:8])

# %% [markdown]
# ## Attack it before the model does
#
# GRPO samples thousands of completions and reinforces whatever earns more than the mean of its group. So look for
# cheats yourself before you train. Here are three rules for "the answer is right". Each of them looks reasonable and
# accepts the right answer, and each can be broken:

# %%
def contains_the_number(text, reference):
    return reference in text


def any_block_is_right(text, reference):
    return reference in re.findall("<answer>(.*?)</answer>", text)


def last_block_is_near(text, reference):
    inside = text.split("<answer>")[-1].split("</answer>")[0]
    try:
        error = abs(float(inside) - float(reference))
    except ValueError:  # no number
        return False
    return not error > 0.01


for rule in (contains_the_number, any_block_is_right, last_block_is_near):
    print(rule.__name__, rule("<answer>42</answer>", "42"))

# %% [markdown]
# ### Exercise 03.1 · `blind_cheat` · medium · 10 minutes
#
# Break them. For the name of each rule, return one completion that the rule accepts for *every* reference from "0" to
# "99". Such a completion is a cheat beyond doubt: whoever wrote it did not need to read the question.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def blind_cheat(rule: str) -> str:
    """A completion that the rule accepts, whatever the right answer is."""
    raise NotImplementedError


check("03.1", blind_cheat);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The first two rules let you give as many answers as you like. The third reads only one number. It refuses a number
# whose error is *larger* than 0.01. Which text does `float` accept, although the result is neither larger nor smaller
# than any number?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def blind_cheat(rule: str) -> str:
#     """A completion that the rule accepts, whatever the right answer is."""
#     numbers = [str(number) for number in range(100)]
#     if rule == "contains_the_number":
#         return " ".join(numbers)
#     if rule == "any_block_is_right":
#         return " ".join(f"<answer>{number}</answer>" for number in numbers)
#     return "<answer>nan</answer>"
# ```
#
# Every comparison with `nan` is false, so a reward must ask for what is right (`error <= 0.01`) and not for what is
# wrong. The other two rules pay for a list of guesses: read one answer, and refuse several.
#
# </details>

# %% [markdown]
# Now a rule that many GRPO scripts have in common. The
# [Hugging Face course](https://huggingface.co/learn/llm-course/chapter12/6) has it too: its correctness reward takes
# the text after the last `<answer>`, up to the next `</answer>`, and pays 2 if this text is the reference. Here is the
# rule in our words:

# %%
def hf_course_correctness(completions, answer, **columns):
    """What the Hugging Face course pays for a correct answer."""
    values = []
    for completion, reference in zip(completions, answer, strict=True):
        last = text_of(completion).split("<answer>")[-1]
        inside = last.split("</answer>")[0].strip()
        values.append(2.0 if inside == reference else 0.0)
    return values


hf_course_correctness(["<answer>\n42\n</answer>", "<answer>41</answer>"], ["42", "42"])

# %% [markdown]
# The attacks are **ours**: completions that try to earn a reward without an honest answer in the form that this chapter
# asks for. Among them are hedges (several answers at once), repeated tags, empty tags, sums that are not worked out,
# expressions that take forever to evaluate, invisible characters, and texts of a million characters. We wrote our
# rewards against this collection, so the comparison favours our rewards. A collection by somebody else would be a
# fairer test.

# %%
from grpo_workbook.rewards import attacks, honest

collection = attacks(right="42", wrong="41", prompt="What is 6 times 7?")
texts = [attack.text for attack in collection]
references = ["42"] * len(texts)
families = {attack.family for attack in collection}
print(len(collection), "attacks of", len(families), "kinds")
for attack in collection[::16]:
    print(f"{attack.family + ': ' + attack.name:50} {attack.text[:38]!r}")

# %% [markdown]
# How many of the attacks earn the full reward for correctness?

# %%
import pandas as pd

paid = pd.DataFrame({"kind": [attack.family for attack in collection]})
paid["Hugging Face"] = np.array(hf_course_correctness(texts, references)) == 2
paid["ours"] = np.array(correctness_reward(texts, references)) == 1
print(paid[["Hugging Face", "ours"]].sum().to_string())

# %% [markdown]
# Which attacks are these? In the figure each box is one attack, and each row is one kind of attack. Grey attacks earn
# less than the full reward from both functions. Orange attacks earn the full reward from the Hugging Face course's
# function alone, and blue attacks earn it from both:

# %% tags=["hide-input"]
fools = paid[["Hugging Face", "ours"]].sum()
paid["verdict"] = paid["Hugging Face"].astype(int) + paid["ours"].astype(int)
squares = {}
for kind, verdicts in paid.groupby("kind")["verdict"]:
    squares[kind] = sorted(verdicts, reverse=True)
kinds = sorted(squares, key=lambda kind: (-np.count_nonzero(squares[kind]), kind))
looks = {
    2: {"color": figures.BLUE, "label": "both rewards pay in full"},
    1: {"color": figures.ORANGE, "label": "only Hugging Face's pays in full",
        "hatch": "//", "edgecolor": "white"},
    0: {"color": "#DDDDDD", "label": "neither pays in full"},
}
figure, (axes,) = figures.new_panels(8, 4.6)
for verdict, look in looks.items():
    rows_of_squares, columns_of_squares = [], []
    for row, kind in enumerate(kinds):
        for column, verdict_of_square in enumerate(squares[kind]):
            if verdict_of_square == verdict:
                rows_of_squares.append(row)
                columns_of_squares.append(column + 0.575)  # the first is centred at 1
    axes.barh(rows_of_squares, 0.85, 0.75, left=columns_of_squares, **look)
axes.set_yticks(range(len(kinds)), kinds)
axes.invert_yaxis()
axes.grid(False)
axes.set(xlim=(0.4, None), xlabel="attacks of this kind, one box for each")
title = f"Full correctness reward for {fools.iloc[0]} of {len(paid)} attacks"
figure.suptitle(f"{title} (Hugging Face) and for {fools.iloc[1]} (ours)", fontsize=11)
figure.legend(frameon=False, loc="outside lower center", ncols=3)
words = [f"{kind} {np.count_nonzero(squares[kind])}" for kind in kinds]
figures.show(figure, f"Boxes by kind. Paid in full: {', '.join(words)}.")

# %% [markdown]
# Not all of these are equally bad. Read the six shortest of the ten attacks that only the Hugging Face course's reward
# pays for:

# %%
for attack, theirs, ours in zip(collection, paid["Hugging Face"], paid["ours"]):
    if theirs and not ours and len(attack.text) < 130:
        print(f"{attack.name:28} {attack.text!r}")

# %% [markdown]
# Most of these six are right answers in a wrong form, such as `42` without any tag. To pay for them is a choice and not
# a mistake: a reward for correctness need not judge the form, and the Hugging Face course has four more rewards that
# do. One of them shows what our choice costs: the reasoning in `talks of the tag` only mentions a tag, and our reward
# pays nothing for its right answer. The ones to think about on the other side are `two blocks` and
# `the example, then the answer`. They contain two different answers. This does not raise the chance of being paid,
# because only the last one counts. But nothing stops the model from writing several, and a program that reads the first
# block gets a wrong number.
#
# **Attack with honest answers too.** A reward that pays too little for a right answer misleads as much as a reward that
# pays for a cheat:

# %%
for inside in ("42", "42.0", "$42", "42 apples"):
    text = honest(right=inside)
    (theirs,) = hf_course_correctness([text], ["42"])
    (ours,) = correctness_reward([text], ["42"])
    print(f"{inside:10} Hugging Face {theirs / 2:.0f}   ours {ours:.0f}")

# %% [markdown]
# The *format* rewards of the Hugging Face course have two traps. The first is in their patterns. A `.` stands for any
# character, but in Python it does not match a new line. So reasoning of two lines counts as not well-formed:

# %%
pattern = r"<reasoning>\n.*?\n</reasoning>\n<answer>\n.*?\n</answer>\n"
one_line = "<reasoning>\n6*7=42\n</reasoning>\n<answer>\n42\n</answer>\n"
two_lines = one_line.replace("6*7=42", "6*7=42\n42+0=42")
for text in (one_line, two_lines):
    plain = re.fullmatch(pattern, text) is not None
    with_dotall = re.fullmatch(pattern, text, re.DOTALL) is not None
    print(f"{text[:28]!r}   plain {plain}   with re.DOTALL {with_dotall}")

# %% [markdown]
# A model can earn such a reward only by writing all its reasoning in one line. The second trap is in the reward that
# counts tags. It subtracts up to 0.002 for each character after the closing tag, without a lower limit:

# %%
def hf_course_tags(text):
    """What the Hugging Face course pays for tags (0.125 each), in our words."""
    value = 0.0
    for tag in ("<reasoning>\n", "\n</reasoning>\n", "\n<answer>\n", "\n</answer>"):
        if text.count(tag) == 1:
            value += 0.125
    if text.count("\n<answer>\n") == 1:
        value -= 0.001 * len(text.split("\n</answer>\n")[-1])
    if text.count("\n</answer>") == 1:
        value -= 0.001 * (len(text.split("\n</answer>")[-1]) - 1)
    return value


chatty = one_line + "I hope this helps! " * 200
for name, text in {"right": one_line, "right, then chats": chatty, "empty": ""}.items():
    (correct,) = hf_course_correctness([text], ["42"])
    tags = hf_course_tags(text)
    both = correct + tags
    print(f"{name:18} correctness {correct:.0f} + tags {tags:5.2f} = {both:5.2f}")

# %% [markdown]
# The right answer with a farewell of 3,800 characters earns less than an empty completion. With these two rewards, a
# right answer earns nothing from about 1,250 further characters on (2.5 / 0.002). Give every penalty a lower limit. Our
# rewards subtract nothing: a completion with extra text only fails to earn the reward for the strict form.
#
# How much can an attack earn from our own rewards? The next cell adds up all three, and divides the sum by what the
# honest right answer earns. It also prints the attacks that earn our full correctness reward:

# %%
def total(text):
    value = 0.0
    for function, weight in zip(functions, weights):
        value += weight * function(completions=[text], answer=["42"])[0]
    return value


fractions = np.array([total(text) for text in texts]) / total(honest())
contains = np.array(["42" in text for text in texts])
best = fractions[contains].max()
best_without = fractions[~contains].max()
print(f"{contains.sum()} attacks contain the right number: up to {best:.0%}")
print(f"{(~contains).sum()} do not: up to {best_without:.0%}\n")
for fooled, attack, fraction in zip(paid["ours"], collection, fractions):
    if fooled:
        (form,) = strict_format_reward([attack.text])
        text = " ".join(attack.text.split())  # a million spaces become one
        print(f"total {fraction:.0%}, strict form {form:.0f}   {text[:60]}")

# %% [markdown]
# No attack of the collection earns as much as the honest answer. Seven earn our full correctness reward, and they
# should, by the same choice as above: each has the right number in its only pair of answer tags. What is wrong is the
# text around it: a farewell, a greeting, the answer before or inside the reasoning, no reasoning, a tag too many. None
# of the seven has the strict form, so each of them loses at least that reward. The 33 % are the two rewards for the
# form: a wrong number in the perfect form earns 1 of 3.
#
# So in a group with an honest right answer in the strict form, none of *these* attacks gets a higher advantage than
# that answer. In a group without one, the best cheat has the highest advantage, however little it earns.
#
# No reward stops every cheat. An answer can be right by luck, even if the reasoning is wrong. So read samples during
# training and measure on held-out problems (chapter 04). If the answers are programs, they can attack the test itself
# (chapter 06).

# %% [markdown]
# ## A lab for a new task
#
# This section designs a reward for a new task: a program reads only the last line of each completion, which must be
# `#### NUMBER`. Here is a first attempt at the reward:

# %%
def first_attempt(completions, answer, **columns):
    values = []
    for completion, reference in zip(completions, answer, strict=True):
        text = text_of(completion)
        values.append(1.0 if "####" in text and reference in text else 0.0)
    return values

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
    "every number": "#### " + " ".join([str(number) for number in range(100)]),
    "mark alone": "####",
}


def examine(reward):
    for name, text in {"honest": wanted, **cheats}.items():
        chat = [{"role": "assistant", "content": text}]
        (value,) = reward(completions=[chat], answer=["42"])
        print(f"{value:5.2f}  {name:17} {text[:40]!r}")


examine(first_attempt)

# %% [markdown]
# The first attempt pays for seven of the eight cheats.

# %% [markdown]
# ### Exercise 03.2 · `last_line_reward` · medium · 10 minutes
#
# The reward of the lab, in TRL's contract for chat completions. Pay 1.0 where the last line is `####`, a space and the
# row's `answer`, letter by letter, and where `####` appears nowhere else; otherwise pay 0.0. Ignore white space around
# the completion. When your function is right, run `examine(last_line_reward)`.

# %% tags=["exercise"]
def last_line_reward(completions: list, answer: list[str], **columns) -> list[float]:
    raise NotImplementedError


check("03.2", last_line_reward);

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
# **Score real samples.** Does the model ever do what you want to pay for? The next cell checks the 64 completions from
# above:

# %%
def ends_in_the_form(text):
    last_line = text.strip().split("\n")[-1]
    return re.fullmatch(r"#### -?\d+", last_line) is not None


print("contain the mark:       ", sum("####" in text for text in completions), "of 64")
print("end in '#### NUMBER':   ", sum(ends_in_the_form(text) for text in completions))
score_rewards([first_attempt], completions, rows, group_size=8).table().round(2)

# %% [markdown]
# 11 of the 64 completions end in the wanted form, and `first_attempt` pays for 11 (a mean of 0.17). So this table does
# not show that the reward is broken; only the attacks have shown it. The column *equal* shows 0.38: in 3 of the 8
# groups the rewards do not differ, and the other 5 have a gradient, even without partial credit. Score your
# `last_line_reward` in the place of `first_attempt`: how many groups have a gradient then?
#
# <details><summary>Answer</summary>
#
# In our run (seed 0) also 5, and every number of the table stays the same. The model has written none of the cheats
# yet, so both rewards pay for the same 11 completions. They will differ as soon as training makes a cheat likely.
#
# </details>
#
# **Train, and read what the reward taught**: exercise 03.4, at the end of this notebook, is the last step of this lab.
# It needs only what you have read so far, and `train` from the second part. **Do the same for a task of your own**:
# exercise 03.5.

# %% [markdown]
# ## Second part: a small weight is not a small push
#
# GRPO divides the advantages of a group by the group's standard deviation. Compare three groups of four:

# %%
from grpo_workbook import group_advantages

for group in ([3.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.0], [2.1, 2.0, 2.0, 2.0]):
    numbers = group_advantages(group, 4).tolist()
    print(group, "->", [round(number, 2) for number in numbers])

# %% [markdown]
# All three groups get the same advantages. In the second group no completion is right, and one earns 0.1 for a cheat.
# In the third all are right, and one earns 0.1 for its style. In both, a reward of 0.1 brings the same advantage as the
# whole task (3.0) brings in the first group.
#
# So **where correctness does not vary, whatever reward still varies drives the update, however small it is**.
# Correctness does not vary on problems that are too hard and, late in a successful run, on most problems.

# %% [markdown]
# ### On a real run
#
# `train` trains a fresh copy of tiny-form. Its parameter `scale_rewards` keeps TRL's default, `"group"`, at first; its
# other values follow below. Everything else, such as the learning rate, comes from `profile.grpo` (print it): a step
# has 80 completions, 8 for each of 10 problems.

# %%
from grpo_workbook import Float32Adapters, RewardBar
from transformers import PrinterCallback
from trl import GRPOTrainer


def train(reward_functions, reward_weights, steps=20, scale_rewards="group", seed=0):
    """Train a fresh tiny-form, and return the trainer with its log."""
    changes = {
        "max_steps": steps, "scale_rewards": scale_rewards, "save_strategy": "no",
        "seed": seed, "data_seed": seed,  # of the samples, and of the order of problems
    }
    args = GRPOConfig(
        output_dir=str(profile.output / "rewards"), reward_weights=reward_weights,
        **{**profile.grpo, **changes},
    )
    policy, _ = load_policy(profile)
    trainer = GRPOTrainer(
        policy, reward_functions, args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


def curve(trainer, name):
    """The mean of one reward in each step."""
    key = f"rewards/{name}/mean"
    return [entry[key] for entry in trainer.state.log_history if key in entry]

# %% [markdown]
# The model writes a number in nearly every completion, so `gives_a_number` is a task that it has mastered. The style
# reward pays for the words "answer is", with a weight of 0.1. The other two rewards have a weight of 0, so they are
# logged and have no effect: the strict form, and the phrase within the strict form. The cell trains with two seeds:

# %%
def gives_a_number(completions, **columns):
    return [float(bool(re.search(r"\d", text_of(chat)))) for chat in completions]


def says_answer_is(completions, **columns):
    return [float("answer is" in text_of(chat)) for chat in completions]


def phrase_in_form(completions, **columns):
    pairs = zip(says_answer_is(completions), strict_format_reward(completions))
    return [phrase * form for phrase, form in pairs]


judges = [gives_a_number, says_answer_is, strict_format_reward, phrase_in_form]
curves = {}
for seed in (0, 1):
    trainer = train(judges, [2.0, 0.1, 0.0, 0.0], steps=10, seed=seed)
    for function in judges:
        curves[function.__name__, seed] = curve(trainer, function.__name__)

# %% [markdown]
# The figure shows, for each of the 10 steps, the fraction of the 80 completions that earn each of the first three
# rewards. The weights are in the legend.

# %% tags=["hide-input"]
labels = {
    "gives_a_number": "gives a number (weight 2)",
    "says_answer_is": "says \"answer is\" (0.1)",
    "strict_format_reward": "strict form (0)",
}
figure, (axes,) = figures.new_panels(8, 3.2)
for (name, label), (colour, dash, _) in zip(labels.items(), figures.STYLES):
    for seed, width in ((0, 2.4), (1, 1.0)):
        values = curves[name, seed]
        steps = range(1, 1 + len(values))
        (line,) = axes.plot(steps, values, dash, color=colour, lw=width)
        if seed == 0:
            line.set_label(label)
axes.set_xlabel("step")
axes.set_ylabel("fraction of completions")
axes.set_ylim(0, 1.05)
axes.set_title("Ten steps, two seeds: the phrase spreads, the strict form disappears")
legend = figure.legend(frameon=False, loc="outside right center", alignment="left")
legend.set_title("bold: seed 0, thin: seed 1")
words = []
for (name, seed), values in curves.items():
    words.append(f"{name}, seed {seed}: {values[0]:.2f} to {values[-1]:.2f}")
figures.show(figure, f"Line chart over the steps. {'; '.join(words)}.")

# %% [markdown]
# How many completions are behind these lines? The cell counts them in the first and in the last three steps, 240
# completions each:

# %%
batch = trainer.args.per_device_train_batch_size
for name in ("says_answer_is", "strict_format_reward", "phrase_in_form"):
    for seed in (0, 1):
        first = sum(curves[name, seed][:3]) * batch
        last = sum(curves[name, seed][-3:]) * batch
        print(f"{name:21} seed {seed}: {first:3.0f} of 240, then {last:3.0f}")

# %% [markdown]
# With both seeds the phrase doubles, from 92 to 192 and to 194 of 240 completions, although its weight is a twentieth
# of the other reward's. Meanwhile the strict form goes from 53 and 52 completions to 0 and 2. No reward with a weight
# above 0 mentions the form. But in none of the 960 completions that are counted here does the model write the phrase
# within the strict form (the last two lines). So in a group in which all give a number and some write the phrase, a
# completion in the form earns less than the mean of its group and becomes less likely.
#
# This run does not show *why* so small a reward was enough. It may be the division by the group's standard deviation,
# or it may be that nothing larger varied. Exercise 03.3 repeats the run without the division.

# %% [markdown]
# ### Four ways to make advantages
#
# `scale_rewards` chooses the divisor: the standard deviation of the `"group"`, that of the whole `"batch"` (Lite PPO,
# arXiv 2508.08221), or `"none"` (Dr. GRPO, arXiv 2503.20783). TRL has a second setting for the advantages.
# `multi_objective_aggregation="normalize_then_sum"` is GDPO (arXiv 2601.05242): it normalises each reward within its
# group first, then applies the weights, sums, and normalises over the batch. It ignores `scale_rewards`. The next cell
# repeats the arithmetic of TRL 1.15 in short:

# %%
import torch


def advantages(values, weights, way="group"):
    """For values of shape (functions, groups, completions)."""
    weights = torch.tensor(weights)[:, None, None]
    if way == "normalize_then_sum":
        centred = values - values.mean(dim=2, keepdim=True)
        scaled = centred / (values.std(dim=2, keepdim=True) + 1e-4)
        total = (weights * scaled).sum(dim=0)
        return (total - total.mean()) / (total.std() + 1e-4)
    total = (weights * values).sum(dim=0)
    centred = total - total.mean(dim=1, keepdim=True)
    if way == "group":
        return centred / (total.std(dim=1, keepdim=True) + 1e-4)
    if way == "batch":
        return centred / (total.std() + 1e-4)
    return centred  # "none"


WAYS = ("group", "batch", "none", "normalize_then_sum")

# %% [markdown]
# Take two groups of 8. In the first, half of the answers are right; in the second all are. In both, two completions
# contain a phrase that a style reward pays with a weight of 0.1. What advantage does the phrase bring in the second?

# %%
right = [[1.0, 0, 1, 0, 1, 0, 1, 0], [1.0] * 8]
phrase = [[1.0, 1, 0, 0, 0, 0, 0, 0]] * 2
values = torch.tensor([right, phrase])
for way in WAYS:
    both = advantages(values, [2.0, 0.1], way)
    print(f"{way:19} right: {both[0, 2]:5.2f}   phrase in group 2: {both[1, 0]:5.2f}")

# %% [markdown]
# Under `"group"` the phrase has an advantage of 1.6 in the second group, more than any right answer has in the first.
# The other three settings keep this advantage near 0.1. `"batch"` and `"none"` do not divide by this group's small
# standard deviation. `"normalize_then_sum"` does divide by it (the phrase alone gets 1.62 again), but it applies the
# weight of 0.1 afterwards.
#
# What does a policy learn from such advantages? A toy policy shows this in seconds. It makes two decisions: be right
# (31 % at first) and use the phrase (10 %). Both decisions depend on the same 64 weights, as in a network. The toy
# trains on 8 groups of 8. In the mastered groups the correctness reward is always 1. The folded cells train it with
# five seeds in each of the four ways.

# %% tags=["hide-input"]
def toy(way, weight=0.1, mastered=4, steps=41, adamw=True, seed=0):
    """The probabilities of a right answer and of the phrase, before each step."""
    generator = torch.Generator().manual_seed(seed)
    read = torch.randn(2, 64, generator=generator) / 8
    theta = torch.zeros(64, requires_grad=True)
    start = torch.tensor([-0.8, -2.2])
    optimizer = torch.optim.SGD([theta], lr=0.5)
    if adamw:
        optimizer = torch.optim.AdamW([theta], 0.03, (0.9, 0.99), weight_decay=0.0)
    varies = (torch.arange(8) >= mastered).float()[:, None]  # (groups, 1)
    probabilities = []
    for _ in range(steps):
        probability = torch.sigmoid(read @ theta + start)
        probabilities.append(probability.tolist())
        probability = probability[:, None, None].expand(2, 8, 8)
        actions = torch.bernoulli(probability.detach(), generator=generator)
        earned = torch.stack([actions[0].maximum(1 - varies), actions[1]])
        A = advantages(earned, [2.0, weight], way)
        logp = torch.where(actions > 0, probability, 1 - probability).log()
        loss = -(A * (varies * logp[0] + logp[1])).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return np.array(probabilities)  # (steps, 2)

# %% [markdown]
# In the figure, 4 of the 8 groups are mastered. The solid line is the probability that the policy writes the phrase.
# The dashed line is the probability that it is right, which counts in the 4 other groups. Both are means over five
# seeds, and the band reaches from the lowest to the highest seed.

# %% tags=["hide-input"]
runs = {}


def show_toy(mastered, title):
    """Draw what the toy does, for each way to make advantages."""
    figure, panels = figures.new_panels(9.5, 3.2, 4, 4)
    words = []
    for axes, way in zip(panels, WAYS):
        seeds = np.array([toy(way, mastered=mastered, seed=seed) for seed in range(5)])
        right, phrase = seeds.mean(axis=0).T
        low, high = seeds[:, :, 1].min(axis=0), seeds[:, :, 1].max(axis=0)
        axes.fill_between(range(41), low, high, color=figures.ORANGE, alpha=0.25)
        axes.plot(phrase, color=figures.ORANGE, lw=2, label="writes the phrase")
        if mastered < 8:
            axes.plot(right, "--", color=figures.BLUE, label="is right")
        axes.set(ylim=(0, 1), xlabel="step", title=way)
        runs[way, mastered] = phrase
        words.append(f"{way} {phrase[30]:.0%}")
    panels[0].set_ylabel("probability")
    lines, labels = panels[0].get_legend_handles_labels()
    figure.legend(lines, labels, frameon=False, loc="outside lower center", ncols=2)
    figure.suptitle(title)
    figures.show(
        figure,
        "Four line charts of the probability of the phrase over 40 steps, five seeds. "
        f"{mastered} of 8 groups are mastered. At step 30: {', '.join(words)}.",
    )


show_toy(4, "4 of 8 groups mastered: \"group\" raises the phrase first")

# %% [markdown]
# `"group"` raises the phrase to 80 % in 30 steps (mean of the five seeds). With the three other settings it is still at
# 10 % to 18 %, because the same batch contains the larger advantages of correctness. By step 40 `"batch"` and
# `"normalize_then_sum"` are near 40 % on average, and the seeds differ widely; `"none"` is still near 10 %. Under
# `"group"` the right answers also come a little later: the dashed line is at about 89 % in step 20, and at about 94 %
# in the other panels.

# %% [markdown]
# ### Exercise 03.3 · `no_scaling` · hard · 10 minutes
#
# In the toy, the three other settings keep a small reward small, at least for 30 steps. Does that hold when *every*
# group has mastered the task? Repeat the run of tiny-form above, in which nearly every completion has a number, with
# `scale_rewards="none"`. The weights stay at 2 and 0.1. What happens to the rate of the phrase in 15 steps? Write
# "rises", "stays" or "falls", then run the cell (about half a minute).

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def run() -> dict:
    """15 steps with weights of 2 and 0.1, and no division by a standard deviation."""
    weights = [2.0, 0.1, 0.0, 0.0]
    trainer = train(judges, weights, steps=15, scale_rewards="none")
    spoken = curve(trainer, "says_answer_is")
    batch = trainer.args.per_device_train_batch_size
    return {
        "says_answer_is": [np.mean(spoken[:3]), np.mean(spoken[-3:])],
        "completions": 3 * batch,  # behind each of the two means
    }


predict("03.3", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Without the division the advantages are small, and so is the gradient. But which optimizer takes the step?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# In most groups only the phrase varies, so no larger reward opposes it. AdamW divides the gradient by its own recent
# size, so the step is about as large as any other. In our run the phrase rose from 38 % to 90 % of the completions.
#
# So the run above did not need the division by the standard deviation: the phrase spreads because no larger reward
# varies. The division matters where a larger reward varies in *other* groups of the batch, as in the figure with 4
# mastered groups.
#
# </details>

# %% [markdown]
# The toy shows the same. This also explains why the phrase rose late under `"batch"` and `"normalize_then_sum"` in the
# last figure: by then the policy was nearly always right, so correctness hardly varied any more. In the next figure
# all 8 groups are mastered from the start:

# %% tags=["hide-input"]
show_toy(8, "All 8 groups mastered: the four settings raise the phrase alike")

# %% [markdown]
# The four panels look alike. `"group"`, `"batch"` and `"normalize_then_sum"` divide by the phrase's own spread.
# `"none"` gives a smaller gradient, but AdamW divides it by its own recent size, so the step stays large. (In the
# figure with 4 mastered groups, this recent size still contained the larger gradients of correctness, so `"none"` rose
# last.) Plain SGD does not divide, so its step is small under `"none"`. Here is the probability of the phrase after 30
# steps, with one seed:

# %%
for adamw in (True, False):
    print("AdamW" if adamw else "SGD  ", end="")
    for way in WAYS:
        right, phrase = toy(way, mastered=8, steps=31, adamw=adamw)[-1]
        print(f"   {way} {phrase:.2f}", end="")
    print()

# %% [markdown] tags=["remove-cell"]
# This cell is for the machine that runs the notebook on every change: it fails if TRL's advantages differ from ours in
# one of the four ways, and it writes what the runs gave to a file.

# %% tags=["remove-cell"]
batch = next(iter(trainer.get_train_dataloader()))
size = trainer.args.per_device_train_batch_size
gaps = {}
for way in WAYS:
    trainer.multi_objective_aggregation = "sum_then_normalize"
    trainer.scale_rewards = "group"
    if way == "normalize_then_sum":
        trainer.multi_objective_aggregation = way
    else:
        trainer.scale_rewards = way
    trainer._generate_and_score_completions(batch)
    logged = [list(trainer._logs["rewards"][f.__name__])[-size:] for f in judges]
    values = torch.tensor(logged).reshape(4, -1, 8)
    ours = advantages(values, [2.0, 0.1, 0.0, 0.0], way)
    theirs = torch.tensor(list(trainer._logs["advantages"])[-size:]).reshape(-1, 8)
    gaps[way] = (ours - theirs).abs().max().item()
print("largest difference from TRL's advantages:", f"{max(gaps.values()):.0e}")
assert max(gaps.values()) < 1e-3, gaps
proved = {"steps": trainer.state.global_step, "gaps": gaps}
proved["curves"] = {f"{name} {seed}": values for (name, seed), values in curves.items()}
proved["toy"] = {f"{way} {mastered}": run[30] for (way, mastered), run in runs.items()}
proved["fooled"] = [int(fools.iloc[0]), int(fools.iloc[1])]
profile.output.mkdir(parents=True, exist_ok=True)
(profile.output / "notebook_03.json").write_text(json.dumps(proved));

# %% [markdown]
# ### What to do
#
# The first two rows rest on the arithmetic and on the toy. This chapter has not tried them on a model whose correctness
# still varies.
#
# | case | remedy |
# | --- | --- |
# | a small reward should stay small beside correctness | `scale_rewards="batch"` or `"none"`, while correctness varies in the batch |
# | each reward should have an influence in proportion to its weight | `multi_objective_aggregation="normalize_then_sum"` |
# | a cheat earns partial credit | make it earn 0; a small weight protects only within a group that has right answers |
# | nearly all groups have mastered correctness | remove the small reward, take harder problems, leave out groups whose *correctness* does not vary (as DAPO's dynamic sampling leaves out groups that are all right or all wrong), or stop the run: with AdamW none of these four settings keeps it small (a KL penalty, `beta`, was not tried here) |
#
# Two cautions. GDPO divides each reward by its own spread, so a length reward that differs by 0.01 within a group has
# as much influence as one that differs by 0.5. And with `"batch"` or `"normalize_then_sum"`, TRL computes
# `frac_reward_zero_std` over the whole batch: it stays 0 even if single groups have no variance.

# %% [markdown]
# ## Appendix: symbolic answers
#
# For reference answers such as `x^2+2x+1`, comparing numbers does not help. The library math-verify parses LaTeX and
# compares by algebra; TRL's `accuracy_reward` uses it. As a reward, math-verify has traps: it accepts a hedge, a sum
# that is not worked out, and 50 % for 0.5. Its time limit works only in the main thread. `SymbolicChecker` compares
# numbers exactly, refuses several answers, and leaves only the algebra to math-verify, in a separate process. It kills
# a check that takes too long, and reports *timeout* instead of a wrong answer.

# %%
import logging

from grpo_workbook.rewards.symbolic import SymbolicChecker
from math_verify import parse, verify

logging.disable(logging.WARNING)
pairs = [
    ("1, 2, 3 or 72", "72"),
    (r"\boxed{2+70}", "72"),
    (r"\boxed{50\%}", "0.5"),
    ("<answer>72</answer>", "72"),
    ("(x+1)^2", "x^2+2x+1"),
    ("9^{9^{9^{9}}}", "x^2"),
]
with SymbolicChecker(time_limit=2.0) as checker:
    outcomes = checker.check(pairs)
for (prediction, reference), outcome in zip(pairs, outcomes):
    print(f"{prediction:20} against {reference:9} {outcome.verdict:8} {outcome.reason}")
for prediction, reference in pairs[:3]:
    print("math-verify alone:", prediction, verify(parse(reference), parse(prediction)))

# %% [markdown]
# `get_symbolic_reward(checker)` makes a reward of it, which returns 1.0, 0.0, or `None` if the checker cannot decide.
# If more than half of a batch is `None`, the reward stops the run and gives the reason.

# %% [markdown]
# ## Exercises
#
# Exercises 03.1 to 03.3 stand above, where their ideas are explained. In 03.4 the run starts only after you have
# written a prediction. The table in chapter 00 counts what you have solved. Here are the rewards of 03.4:

# %%
def has_form(completions, **columns):
    return [float(ends_in_the_form(text_of(completion))) for completion in completions]


def is_right(completions, answer, **columns):
    last_lines = [text_of(chat).strip().split("\n")[-1] for chat in completions]
    return [float(line == f"#### {a}") for line, a in zip(last_lines, answer)]


def shows_work(completions, **columns):
    """1.0 for the form with a calculation in the completion."""
    texts = [text_of(completion) for completion in completions]
    return [float(ends_in_the_form(text) and "=" in text) for text in texts]

# %% [markdown]
# ### Exercise 03.4 · `last_line_alone` · medium · 10 minutes
#
# Train on the new task, but pay only for its form: any number on the last line earns 1. In 20 steps the form becomes
# more frequent. What happens to the fraction of completions *in the form* that have the right number? Write "rises",
# "stays" or "falls", then run the cell (under a minute) and read the samples. The cell also prints how many completions
# have the form and a calculation. Afterwards pay for `is_right` or for `first_attempt` instead, and compare.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def run() -> dict:
    """20 steps that pay for the form of the last line, and log what else is there."""
    functions = [has_form, is_right, shows_work, prints_a_sample]
    trainer = train(functions, [1.0, 0.0, 0.0, 0.0], steps=20)
    rates = {}
    for name in ("has_form", "is_right", "shows_work"):
        values = curve(trainer, name)
        rates[name] = [np.mean(values[:3]), np.mean(values[-3:])]
        print(f"{name:10} {rates[name][0]:.0%} of all, then {rates[name][1]:.0%}")
    batch = trainer.args.per_device_train_batch_size
    return {**rates, "completions": 3 * batch}  # behind each of the means


predict("03.4", prediction, run);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What in this reward depends on a right calculation?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "falls"
# ```
#
# In our run the form went from 8 % to 44 % of the completions, and the right ones among them from 83 % (15 of 18) to
# 4 % (4 of 106). (Each rate is the mean of three steps.) The reward pays `#### 7` without any calculation as much as a
# worked-out answer. So it makes likelier whatever reaches the form, and nothing pushes back when the calculation gets
# lost or wrong. Compare the rates of `has_form` and `shows_work` at the end of your run: which of the two happened?
#
# We also trained once with `is_right` and once with `first_attempt` as the paid reward. With `is_right` the form rose
# just as far, to 42 %, and 61 % of these completions were right. (That is not clearly fewer than the 83 % before
# training, which are only 15 of 18.) So do not pay for the form alone, and report both rates. (We did not try the form
# and the answer as two separate rewards here, as in the table of weights.) With `first_attempt` the form fell to 1 %:
# that reward wants the mark and the number, but not on the last line, so nothing holds the form. (This is one run each,
# and we did not examine why the form fell.)
#
# </details>

# %% [markdown]
# ### Exercise 03.5 · `my_reward` · hard · 20 minutes
#
# Write a reward for **your** task. Return five things: the reward; the columns of one row, such as `{"answer": "42"}`;
# the columns of another row, for which the same completions are wrong, such as `{"answer": "43"}`; a list of at least
# two different honest completions; and a list of at least five cheats, all as plain text. A cheat is a text that a lazy
# or greedy model would write: a hedge, a copy, an empty part, too much of what is paid. Five wrong answers are not five
# cheats. The check cannot tell a wrong answer from a cheat, nor a rule from a list of your honest texts. So write one
# more honest completion afterwards, and see that it is paid.
#
# The check calls the reward as TRL does, with chat messages. It adds attacks of its own: each honest completion twice,
# all of them in one text, an empty and a very long completion. The honest completions must all earn the same, and more
# than every other one. The reward must give every completion a number from -1 to 1.
#
# On the other row the honest completions must earn less: a reward that does not read its row fails. To train with your
# reward you need rows that have its columns: put your own dataset in the place of `train_set` in `train`.

# %% tags=["exercise"]
def my_reward() -> tuple:
    raise NotImplementedError


check("03.5", my_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Start from the lab: with `[wanted, "#### 42"]` and `cheats.values()`, `first_attempt` fails the check and your
# `last_line_reward` passes. Tasks that suit a reward: JSON with certain keys, an SQL query that runs, a short summary
# with all the names.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_reward() -> tuple:
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
#     first = "- red apple\n- green apple\n- sour apple"
#     honest = [first, "- an apple a day\n- apple\n- one more apple"]
#     cheats = ["apple", "- apple\n" * 3, "- apples\n- pineapple\n- an apple", "- \n- \n- "]
#     cheats += ["- red apple\n- green apple", first + "\n- old apple", first + "\nEnjoy!"]
#     return list_reward, {"word": "apple"}, {"word": "pear"}, honest, cheats
# ```
#
# </details>

# %% [markdown]
# ## Before you train, a checklist
#
# - You tried every reward alone, on texts of which you know how good they are, and on the attacks.
# - The honest right answer earns strictly the most.
# - Every reward is bounded, and correctness weighs more than all others together.
# - You scored real samples: no reward is 0 everywhere or 1 everywhere, and few groups have zero variance.
# - You know which reward drives the update once correctness is mastered.
# - Errors stop the run or are counted; no error becomes a reward of 0.

# %% [markdown]
# ## Summary
#
# How do you write a reward that teaches the task, and not a trick? Pay only for what you can check exactly. Attack the
# reward and score real samples before you train. And know which reward drives the update once the task is mastered.
#
# - Write a function that takes completions and columns, and returns one float, or `None`, per completion. Its name
#   appears in the log.
# - Compare answers exactly, read only one answer, and give partial credit for the form, in order.
# - Use three to five unit-scaled functions, and give TRL their weights separately.
# - Score samples before training. Attack your rewards with cheats and with honest answers: the model learns the paid
#   cheats that it happens to write, and unlearns honest answers that earn less than the rest of their group.
# - Where correctness does not vary, whatever reward still varies drives the update, however small it is. `"batch"`,
#   `"none"` and GDPO keep its effect small only while larger rewards vary in the batch.
#
# Next: [04 · A GRPO run you can trust](04_grpo_run.ipynb) trains with these rewards.
