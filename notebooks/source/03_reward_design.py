# %% [markdown]
# # 03 · Reward design
#
# **After this notebook you can** write a reward in TRL's contract, combine three to five of them with weights, see what
# they say about a model's completions before any training, and attack them before the model does.
#
# **Time:** about 1 minute on two CPU cores. Nothing is trained here; a GPU changes only which model writes the samples.
#
# GRPO makes more likely whatever earns more than its group. So the reward *is* the task: what it forgets, the model
# forgets, and what it pays for by mistake, the model learns.

# %% [markdown]
# ## The contract, on four completions
#
# A reward is a function. Completions come in as a list, and one float per completion goes out.

# %%
def says_42(completions, **columns):
    return [1.0 if "42" in text else 0.0 for text in completions]


completions = ["6*7=42", "6*7=41", "It is 41 or 42.", "421"]
says_42(completions=completions)

# %% [markdown]
# Three of four are paid, and only one of them answered. Training would find out quickly.
#
# TRL calls a reward with keywords only: `prompts`, `completions`, `completion_ids` (the tokens), every further column
# of the dataset, `trainer_state`, `log_extra` (a column for the table of samples) and `log_metric` (a number for the
# log). Take what you need; `**columns` swallows the rest.
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
# The function's `__name__` is its name in the log (`rewards/greeting_reward/mean`). An exception stops training, and
# that is right: swallowed into a zero, it would train on noise.

# %% [markdown]
# ## Is it right?
#
# The reward that matters most. Compare as text and `1,000` is not `1000`; compare within 1 % and 1009 is 1000.
# `is_correct` compares exact fractions, and evaluates nothing:

# %%
from grpo_workbook import is_correct

for gold, predictions in {
    "1000": ["1,000", "$1000.00", "1e3", "１０００", "1009", "2000/2"],
    "0.5": ["1/2", "2/4", ".50", "50%"],
    "72": ["72 apples", "72.", "72 or 73", "70+2", "7 dozen"],
}.items():
    print(f"{gold:5}", {p: is_correct(p, gold) for p in predictions})

# %% [markdown]
# Three decisions to know: `50%` is the number 50, never 0.5. Units are not compared. And work left undone is no answer:
# `2000/2` earns nothing, though `1/2`, which is not whole, is a number like any other.
#
# The reward looks into the only answer block. Two blocks are no answer, or the model would learn to write them all:

# %%
from grpo_workbook import answers, correctness_reward, show

show(answers.tagged_answer, correctness_reward)

# %% [markdown]
# `@reward` says what the function judges: its role, the columns that the data must have, and that its answers are
# numbers. Tools ask for that, as the diagnosis of chapter 05 does; nothing is guessed from a name.
#
# For texts in other forms, `extract_answer` looks for `<answer>` pairs, then `\boxed{}`, then what follows `####`. Where
# all of a kind agree, that is the answer; several different ones are a hedge, and a hedge is `None`.

# %%
from grpo_workbook import extract_answer

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
# Three rewards for one form. *Strict* wants the two blocks and nothing else. *Soft* lets words stand around them.
# *Incremental* pays a quarter for each tag in place, counted from the first:

# %%
from grpo_workbook import rewards

show(rewards.tags_in_place)

# %% [markdown]
# That is **partial credit**: a model that never writes the whole form still earns a different reward for each step
# towards it, so its group has a gradient. Strict alone gives none until it succeeds by chance.

# %%
ladder = {
    "nothing": "42",
    "first tag": "<reasoning>\n6*7=42",
    "one block": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "words around": "Sure! <reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer> Bye!",
    "the form": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "empty tags": "<reasoning></reasoning><answer></answer>",
    "reversed": "</answer>42<answer></reasoning><reasoning>",
}
formats = (
    rewards.strict_format_reward,
    rewards.soft_format_reward,
    rewards.incremental_format_reward,
)
for name, text in ladder.items():
    print(f"{name:13}", [f([text])[0] for f in formats])

# %% [markdown]
# The last two lines are cheats, and earn no more than a first tag. Order matters, and an empty block fills no place.

# %% [markdown]
# ## Weights
#
# Each reward here is unit-scaled: 0 to 1, a penalty -1 to 0. What it *counts* is said apart, in TRL's own argument, so
# that you can read the log without knowing the weights. TRL adds up the weighted rewards of a completion, and what is
# compared within the group is that total (`multi_objective_aggregation="sum_then_normalize"`, its default):
#
# ```python
# GRPOConfig(reward_weights=[2.0, 0.5, 0.5], ...)
# GRPOTrainer(reward_funcs=[correctness_reward, strict_format_reward, incremental_format_reward], ...)
# ```
#
# `parse_rewards` makes both from a line of text, and refuses what is unknown or makes no sense:

# %%
from grpo_workbook import RunConfig, parse_rewards

functions, weights = parse_rewards(RunConfig.rewards)
print(RunConfig.rewards)
print([f.__name__ for f in functions], weights)

# %% [markdown]
# | type | weight | why |
# | --- | --- | --- |
# | correctness | 2 | the task. More than all others together, or form without content wins |
# | form: strict, soft, incremental | 0.5 each | learned within a few steps, and needed so that answers can be read |
# | length, overlong | 0.1 to 0.5 | only once answers are right; too strong, and reasoning disappears |
# | style, repetition | 0.1 to 0.3 | a penalty for what you have seen, not for what you fear |
#
# Three to five rewards are enough. Every further one is one more thing to game.

# %% [markdown]
# ## The library
#
# What can be had by name. Rewards with a setting are made by a **factory**, a function that returns the reward: the
# setting stands behind an equals sign.

# %%
for name, made in rewards.REGISTRY.items():
    call = name if hasattr(made, "role") else f"{name}=..."
    print(f"{call:20} {made.__doc__.splitlines()[0]}")

# %% [markdown]
# This one is DAPO's penalty for completions that come near the length at which they would be cut. The formula is TRL's,
# and Unsloth must be imported before TRL:

# %%
from grpo_workbook import quiet

quiet()
import unsloth

show(rewards.overlong)
rewards.overlong(max_length=100, cache=20)(
    ["..."] * 4, completion_ids=[[0] * n for n in (80, 90, 100, 500)]
)

# %% [markdown]
# Your own factory looks the same. Here answers are to be JSON that follows a schema, with partial credit for JSON alone:

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
        except (ValueError, RecursionError):  # no JSON, or nested beyond any use
            return 0.0
        return 1.0

    return json_schema_reward


json_reward({"required": ["n"]})(['{"n": 42}', '{"m": 42}', "42, I think"])

# %% [markdown]
# Saved in a file, a reward of your own has a name on the command line: `--rewards "correctness:2,my.py:my_reward:0.5"`.
# It is called once with made-up completions before anything is trained, so that a slip costs no run.

# %% [markdown]
# Try each of them alone, on texts of which you know what they deserve. Reasoning is paid by true equations: connecting
# words would be the cheapest thing to learn. (`length=8` wants 8 tokens, or, where no tokens are passed as here, words.)

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
alone, _ = parse_rewards("reasoning_steps=2,length=8,repetition=2,style,integer_answer")
print(f"{'':15}", *[f"{f.__name__.removesuffix('_reward'):>16}" for f in alone])
for name, text in samples.items():
    print(f"{name:15}", *[f"{f([text])[0]:16.2f}" for f in alone])

# %% [markdown]
# Read the column of `length`: two of the three cheats come nearer to 8 words than the answer that shows its work, and
# earn more. A length is never worth anything by itself; it only trims what is already right.

# %% [markdown]
# ## What would GRPO see on step 1?
#
# Before you train, let the model answer a few problems, a group each, and score them. This is the course's model as it
# comes (chapter 04 trains it):

# %%
from grpo_workbook import load_policy

run = RunConfig.from_env()
model, tokenizer = load_policy(run)

# %% [markdown]
# Eight problems, eight completions each, sampled as training samples them:

# %%
from grpo_workbook import data, generate, load_problems, to_dataset

problems = load_problems(data.WORD_PROBLEMS["train"]).select(range(8))
rows = list(to_dataset(problems))
prompts = [row["prompt"] for row in rows for _ in range(8)]
completions = generate(
    model,
    tokenizer,
    prompts,
    max_new_tokens=run.max_completion_length,
    sample=True,
    seed=run.seed,
)
print(completions[0])

# %% [markdown]
# `score` calls every reward as TRL would, and shows for each what GRPO would compare:

# %%
from grpo_workbook.reward_lab import score

scored = score(functions, completions, rows, group_size=8, weights=weights)
scored.table().round(2)

# %% [markdown]
# Read the column *equal*. A group whose rewards are all equal, a **zero-variance group**, has advantages of 0: it teaches
# nothing, and its completions were sampled for nothing. In groups of 8 hardly any is one in total here, for this model
# wavers: the row *total*. Cut the same completions into groups of 4, and look for the grey crosses:

# %%
from grpo_workbook import figures

one_row_each = [row for row in rows for _ in range(8)]
fours = score(functions, completions, one_row_each, group_size=4, weights=weights)
figures.show(*figures.reward_distributions(fours.groups))

# %% [markdown]
# Small groups have no variance more often, and so does a reward that stands alone. Where one gives no gradient, another
# still tells the completions apart.

# %% [markdown]
# What to look for in a table or figure like these:
#
# - **mean 0 and all groups equal**: the reward is out of reach. Give partial credit, or easier problems.
# - **mean 1 and all groups equal**: it is mastered, or broken. Nothing more will be learned from it.
# - **none** is not 0: the reward did not apply, or could not be computed. Find out which.
#
# To see samples while training runs, give TRL `GRPOConfig(log_completions=True)`.

# %% [markdown]
# ## Attack it before the model does
#
# A policy under GRPO searches for what pays, with thousands of samples and no shame. These two rewards are written the
# way many notebooks have them:

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
# The collection holds completions that try to be paid without answering: hedges, spam, empty tags, sums left undone,
# bombs, invisible characters, texts of a million characters.

# %%
from grpo_workbook.reward_lab import attacks, honest

collection = attacks(right="42", wrong="41", prompt="What is 6 times 7?")
print(len(collection), "attacks of", len({a.kind for a in collection}), "kinds\n")
for attack in collection[::9]:
    print(f"{attack.kind + ': ' + attack.name:50} {attack.text[:42]!r}")

# %% [markdown]
# Each attack is paid by both sets of rewards, and compared with what the honest right answer earns from the same set.
# At 1 or more it pays as well as honesty, and gets through; the numbers at the right count those, in the colour of the
# rewards that let them. Below 1 it can still be learned, by a group in which nobody does better: that is the price of
# partial credit, and why what they earn should stay low.

# %%
def total(functions, weights, text):
    return sum(
        w * f(completions=[text], answer=["42"])[0] for f, w in zip(functions, weights)
    )


earned = {}
for name, fs, ws in (
    ("naive", [naive_correctness, naive_format], [1, 1]),
    ("ours", functions, weights),
):
    best = total(fs, ws, honest())
    earned[name] = {attack.kind: [] for attack in collection}
    for attack in collection:
        earned[name][attack.kind].append(total(fs, ws, attack.text) / best)
figures.show(*figures.attack_rates(earned))

# %% [markdown]
# These fool the naive rewards:

# %%
naive = [naive_correctness, naive_format]
for attack in collection:
    if total(naive, [1, 1], attack.text) >= total(naive, [1, 1], honest()):
        print(f"{attack.kind + ': ' + attack.name:52} {attack.text[-40:]!r}")

# %% [markdown]
# What is the most that an attack earns *without* the right number in it, and with it?

# %%
for name, rates in earned.items():
    every = [rate for of_kind in rates.values() for rate in of_kind]
    texts = [a.text for kind in rates for a in collection if a.kind == kind]
    with_it = max(rate for rate, text in zip(every, texts) if "42" in text)
    without = max(rate for rate, text in zip(every, texts) if "42" not in text)
    print(f"{name:6} {with_it:5.0%} with the right number, {without:5.0%} without")

# %% [markdown]
# With ours, an attack that does not know the answer gets a well-formed wrong answer's pay and no more. Those that do
# know it lose what their form is worth.
#
# And the other side: the penalty without a floor. A right answer with a long farewell earns less than nothing, so the
# model learns to be silent. Ours keeps what it earned, less the strict form:

# %%
chatty = honest() + " " + "I hope this helps! " * 200
print(f"naive: {total(naive, [1, 1], chatty):.2f}")
print(f"ours:  {total(functions, weights, chatty):.2f}")

# %% [markdown]
# No reward is proof against everything. What remains: an answer that is right by luck, whatever the reasoning says. So
# read samples while it trains, and measure on held-out problems (chapter 04). Programs as answers can attack the test
# itself: chapter 06.

# %% [markdown]
# ## Symbolic answers: math-verify and its traps
#
# For reference answers (*golds*) such as `x^2+2x+1`, no comparison of numbers helps. math-verify parses LaTeX and
# compares with algebra. As a reward it has traps:

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
# A hedge passes, a sum left undone passes, 50 % is two numbers, and the tagged answer fails. Its time limit works in
# the main thread alone, and elsewhere it raises `ValueError`; whoever swallowed that got zeros for a whole run.
#
# `SymbolicChecker` compares numbers exactly by itself, refuses several answers, and leaves the algebra to math-verify
# in a process of its own. One that is late is killed: *timeout* is an outcome, not a wrong answer.

# %%
from grpo_workbook.reward_lab import SymbolicChecker

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
# As a reward it is `symbolic_correctness(checker)`: 1.0, 0.0, or `None` where nothing could be said. When more than
# half of a batch is like that, it stops the run and says why.

# %% [markdown]
# ## Ensembles
#
# Several rewards as one. The *minimum* wants all of them satisfied, so that cheating one gains nothing; the *mean*
# evens out errors; the *vote* is for judges that are each often wrong.

# %%
from grpo_workbook import mean_of, minimum_of, vote_of

members = (correctness_reward, rewards.strict_format_reward, rewards.reasoning_steps(1))
texts = [honest(), honest(work="I just know it."), "<answer>42</answer>"]
for make in (minimum_of, mean_of, vote_of):
    ensemble = make(*members)
    print(
        ensemble.__name__,
        [round(v, 2) for v in ensemble(completions=texts, answer=["42"] * 3)],
    )

# %% [markdown]
# ## A weight that adapts
#
# Form is learned first. Once nearly every completion has it, its reward hardly tells them apart, so its weight may fade
# as the form succeeds. ([Chapter 07](07_stages_and_curriculum.ipynb) measures what that brings.)

# %%
from grpo_workbook import AdaptiveWeight

fading = AdaptiveWeight(
    rewards.strict_format_reward,
    success=rewards.strict_format_reward,
    at_zero=1.0,
    at_one=0.2,
    memory=0.8,
)
for well_formed in (0, 2, 4, 6, 8, 8, 8, 8):
    weight = fading.weight
    fading(completions=[honest()] * well_formed + ["42"] * (8 - well_formed))
    print(
        f"{well_formed} of 8 well-formed: weight {weight:.2f}, "
        f"then a success rate of {fading.rate:.2f}"
    )

# %% [markdown]
# The rate belongs to the run: keep `fading.state_dict()` beside the checkpoint, and `load_state_dict` it to go on.

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 03.1 · `exact_reward` · easy · 5 minutes
#
# A reward in TRL's contract, for chat completions: 1.0 where the assistant's text, without white space around it, is
# the row's `answer`, else 0.0.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def exact_reward(completions: list, answer: list[str], **columns) -> list[float]:
    raise NotImplementedError


check("03.1", exact_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Walk through completions and answers together. A completion is `[{"role": "assistant", "content": text}]`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def exact_reward(completions: list, answer: list[str], **columns) -> list[float]:
#     texts = [messages[0]["content"].strip() for messages in completions]
#     return [1.0 if text == a else 0.0 for text, a in zip(texts, answer, strict=True)]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.2 · `agreed_answer` · medium · 10 minutes
#
# What stands in the `<answer>...</answer>` pairs of a text, without white space around it. `None` where there is no
# complete pair, or where several pairs hold different answers. Two equal ones are one answer.

# %% tags=["exercise"]
def agreed_answer(text: str) -> str | None:
    raise NotImplementedError


check("03.2", agreed_answer);

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
# ### Exercise 03.3 · `soft_overlong` · medium · 8 minutes
#
# DAPO's penalty (arXiv 2503.14476, equation 13) for each length in tokens: 0 up to `max_length - cache`, from there
# falling evenly to -1 at `max_length`, and -1 beyond.

# %% tags=["exercise"]
def soft_overlong(lengths: list[int], max_length: int, cache: int) -> list[float]:
    raise NotImplementedError


check("03.3", soft_overlong);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Between the two limits it is `(max_length - cache - n) / cache`. Keep it between -1 and 0.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def soft_overlong(lengths: list[int], max_length: int, cache: int) -> list[float]:
#     return [max(-1.0, min(0.0, (max_length - cache - n) / cache)) for n in lengths]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.4 · `weighted_total` · medium · 8 minutes
#
# `values` has a list for each reward function, with one entry for each completion. Return each completion's total as
# TRL computes it: the weighted sum over the functions that apply, and `None` where none applies.

# %% tags=["exercise"]
def weighted_total(
    values: list[list[float | None]], weights: list[float]
) -> list[float | None]:
    raise NotImplementedError


check("03.4", weighted_total);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `zip(*values)` turns the table round: what it gives belongs to one completion.
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
# ### Exercise 03.5 · `zero_variance_rate` · easy · 5 minutes
#
# The rate of groups in which all rewards are equal. Completions of one group stand next to each other. Raise
# `ValueError` when the groups do not come out whole.

# %% tags=["exercise"]
def zero_variance_rate(rewards: list[float], group_size: int) -> float:
    raise NotImplementedError


check("03.5", zero_variance_rate);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `rewards[i : i + group_size]` is the group that begins at i. A set has one element when all are equal.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def zero_variance_rate(rewards: list[float], group_size: int) -> float:
#     if not rewards or len(rewards) % group_size:
#         raise ValueError(f"{len(rewards)} rewards are not whole groups of {group_size}")
#     groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
#     return sum(len(set(group)) == 1 for group in groups) / len(groups)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 03.6 · `adaptive_weights` · hard · 10 minutes
#
# The weight of each batch, when `rates` are the success rates of the batches: `at_zero + (at_one - at_zero) * rate`,
# where the rate begins at 0 and becomes `memory * rate + (1 - memory) * (that of the batch)` *after* each batch.

# %% tags=["exercise"]
def adaptive_weights(
    rates: list[float], at_zero: float, at_one: float, memory: float
) -> list[float]:
    raise NotImplementedError


check("03.6", adaptive_weights);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A batch's weight is written down before the batch changes the rate.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def adaptive_weights(
#     rates: list[float], at_zero: float, at_one: float, memory: float
# ) -> list[float]:
#     rate, weights = 0.0, []
#     for of_batch in rates:
#         weights.append(at_zero + (at_one - at_zero) * rate)
#         rate = memory * rate + (1 - memory) * of_batch
#     return weights
# ```
#
# </details>

# %% [markdown]
# ## Before you train, a checklist
#
# - Every reward was tried alone on texts of which you know the worth, and on the attacks.
# - The honest right answer earns strictly the most.
# - Every reward is bounded, and correctness weighs more than all others together.
# - `score` on real samples: no reward is 0 everywhere or 1 everywhere, and few groups are without variance.
# - Errors stop the run or are counted; none becomes a zero.

# %% [markdown]
# ## Summary
#
# - A reward takes completions and columns, and gives one float per completion, or None. Its name goes into the log.
# - Compare answers exactly, read one answer only, and give partial credit for form, in order.
# - Unit-scaled functions, weights apart. Three to five of them.
# - Score samples before training: groups whose rewards are all equal teach nothing.
# - Attack your rewards first. What gets through will be learned.
#
# Next: [04 · A GRPO run you can trust](04_grpo_run.ipynb) trains with these rewards.
