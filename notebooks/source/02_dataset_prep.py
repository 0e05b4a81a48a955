# %% [markdown]
# # 02 · Dataset preparation
#
# **After this notebook you can** turn any file of questions and answers into rows that TRL trains on, see exactly what
# the model reads, and find out before training what in the data would hurt it: bad rows, prompts that do not fit,
# duplicates, leaks.
#
# **Time:** about half a minute on two CPU cores, and no more on a T4: no training happens here.
#
# The checks of this chapter are also one command: `python -m grpo_workbook check-data FILE`.

# %% [markdown]
# ## The idea, on one row
#
# A data set for GRPO needs two things in each row: a question, and an answer that a program can check. How the question
# is solved is not in it: the model finds that by itself, and the reward compares only the end.

# %%
row = {
    "question": "Ana has 12 shells and finds 5 more. How many shells has Ana now?",
    "answer": "17",
}
row

# %% [markdown]
# A chat model does not read a question but a **conversation**: a list of messages with a role and a content. TRL wants
# it in a column called `prompt`; every other column goes to the reward functions untouched.

# %%
system = "Work inside <reasoning> tags, then give the number inside <answer> tags."
prompt = [
    {"role": "system", "content": system},
    {"role": "user", "content": row["question"]},
]

# %% [markdown]
# And even that is not what the model reads. Its **chat template** turns the conversation into one text, with special
# tokens around each turn. The last line opens the assistant's turn: from there on the model writes.
# (`enable_thinking=False` asks Qwen3's own template for an answer without a long train of thought before it; templates
# that do not know it ignore it.)

# %%
from grpo_workbook import RunConfig, quiet, show

quiet()
from transformers import AutoTokenizer

run = RunConfig.from_env()
tokenizer = AutoTokenizer.from_pretrained(run.model)
text = tokenizer.apply_chat_template(
    prompt, tokenize=False, add_generation_prompt=True, enable_thinking=False
)
print(text)

# %% [markdown]
# The text is cut into tokens. The tokenizer knows where each begins and ends in the text; a bar at every boundary (the
# special tokens have bars of their own) shows things that surprise: words carry the space before them, numbers may be
# one token or one per digit, and a tag is one token only if the tokenizer was given it.

# %%
tokens = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
print("|".join(text[start:end] for start, end in tokens["offset_mapping"]))
print(len(tokens["input_ids"]), "tokens")

# %% [markdown]
# `add_special_tokens=False` matters: the template has already written them. Some tokenizers would put a second
# beginning-of-sequence token in front, and the model has never seen two.

# %% [markdown]
# ## System prompt, one-shot, few-shot
#
# The helper that the whole course uses is short. `examples` are solved questions that come before the real one: one is
# called one-shot, several few-shot.

# %%
from grpo_workbook import chat_prompt, render

show(chat_prompt)

# %% [markdown]
# An example shows the form better than a description can. It is not free: every completion of every group reads it
# again.

# %%
solved = "<reasoning>\n3+4=7\n</reasoning>\n<answer>7</answer>"
example = ("Ben has 3 hats and buys 4. How many has he?", solved)


def tokens_of(conversation):
    return len(
        tokenizer(render([conversation], tokenizer)[0], add_special_tokens=False)[
            "input_ids"
        ]
    )


question = row["question"]
for name, examples in {
    "no example": [],
    "one-shot": [example],
    "three-shot": [example] * 3,
}.items():
    print(f"{name:12} {tokens_of(chat_prompt(question, system, examples)):4} tokens")

# %% [markdown]
# | | when |
# | --- | --- |
# | system prompt only | the model has been tuned to follow instructions, or has seen this form |
# | one-shot | the form is new to it: the format reward is near 0 at the start |
# | few-shot | a base model, or a form with several cases. Drop it later: what GRPO has trained needs no example |
#
# An example also suggests an answer. Take one whose answer is rare in the data, or the model may copy it.

# %% [markdown]
# ## Models without a system role
#
# Gemma's template knows two roles, user and model. The same conversation through it: the system text stands in the
# user's turn.

# %%
from grpo_workbook import config, data

gemma = AutoTokenizer.from_pretrained(config.DATA / "tiny-gemma3")
print(render([prompt], gemma)[0])

# %% [markdown]
# Other templates raise an error at a system message, some drop it without a word, and some add a text of their own
# when there is none. We can make all three from the template at hand:

# %%
import copy

qwen = AutoTokenizer.from_pretrained(config.DATA / "tiny-qwen3")
adds, refuses, drops = (copy.deepcopy(qwen) for _ in range(3))
own = "{{ '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}"
error = "{{ raise_exception('no system role') }}"
first = "{% if messages[0].role"
adds.chat_template = (
    first + " != 'system' %}" + own + "{% endif %}" + qwen.chat_template
)
refuses.chat_template = (
    first + " == 'system' %}" + error + "{% endif %}" + qwen.chat_template
)
drops.chat_template = qwen.chat_template.replace(
    "in messages", "in messages if message.role != 'system'"
)

# %% [markdown]
# Two questions to ask any tokenizer before you train with it: what becomes of my system prompt? `system_role` renders one
# and looks. And what do you add if I give none? Render a question without one, and look yourself.

# %%
templates = {"qwen": qwen, "gemma": gemma, "adds": adds, "refuses": refuses}
for name, t in (templates | {"drops": drops}).items():
    print(f"{name:8} system message: {data.system_role(t)}")
print("\n" + render([chat_prompt("How many?", None)], adds)[0])

# %% [markdown]
# Where it is refused or dropped, write it into the user's turn yourself. `to_dataset(..., fold=True)` does so for
# every row, and the main run does it when it must.

# %%
print(render([data.fold_system(prompt)], refuses)[0])

# %% [markdown]
# ## The answer column
#
# GSM8K, the best-known set of word problems, keeps the whole solution in `answer` and ends it in `#### N`. The course's
# own problems have that form. `load_problems` reads a file with the `datasets` library and checks every row: `answer`
# becomes what a reward compares with, `solution` keeps the whole text.

# %%
from grpo_workbook import load_problems

train = load_problems(data.WORD_PROBLEMS["train"])
train[0]

# %% [markdown]
# What is an answer? Either a number (after the last `####`, or the whole text), or any text. `load_problems` looks at
# the first 1,000 rows and takes numbers if at least half of them hold one; `answers="number"` or `answers="text"`
# decides for it.
#
# The result is a `datasets.Dataset`: it lies in a file and is mapped into memory, so ten million rows take disk, not
# memory. `to_dataset` puts the prompt in front, and this is what TRL gets.

# %%
from grpo_workbook import to_dataset

train_set = to_dataset(train)
train_set

# %% [markdown]
# ## A knowledge base of your own
#
# Teams collect questions in a spreadsheet. Saved as CSV it is a source like any other; only its columns have other
# names. `.jsonl`, `.json` and `.parquet` files, a `Dataset` and a list of dicts are sources too.

# %%
knowledge = load_problems(data.KNOWLEDGE_BASE, answer_column="expert_answer")
print(len(knowledge), "rows")
for row in knowledge.select([2, 17]):
    print("\n" + row["question"], "\n  ", row["answer"])

# %% [markdown]
# These answers are sentences, so a reward that compares numbers refuses them. A first reward for such rows counts
# shared words, much as SQuAD's F1 does: how many of the answer's words were said, and how many of the words said are in
# the answer?

# %%
def shared_words(completions, answer, **columns):
    """F1 of words between completion and answer, 0 to 1 (Rajpurkar et al. 2016)."""
    values = []
    for text, gold in zip(completions, answer, strict=True):
        said, wanted = set(text.lower().split()), set(gold.lower().split())
        values.append(2 * len(said & wanted) / max(1, len(said) + len(wanted)))
    return values


gold = knowledge[17]["answer"]
for said in (
    gold,
    "The base model, its adapter switched off.",
    "It is the critic.",
    "the a of is it",
):
    print(f"{shared_words([said], [gold])[0]:.2f}  {said[:60]}")

# %% [markdown]
# It tells near from far, and knows nothing: a contradiction in the same words earns nearly all, and a list of common
# words more than a short wrong answer. As one of several rewards it can begin (with chat prompts a completion is a list
# of messages, and its text is `completion[0]["content"]`: chapter 03); what decides should be checkable, or judged by a
# model that you have measured. Where neither can be had, fine-tune on the answers themselves (SFT).
#
# A third kind of answer is a **program**: rows in HumanEval's form have a `test` and an `entry_point` instead of an
# answer, and the reward runs the tests ([chapter 06](06_code_rewards.ipynb)).

# %% [markdown]
# ## Problems without end
#
# Procedural tasks are made by a program, with the right answer and with a difficulty that you set. The package
# `reasoning-gym` has about a hundred kinds. Another seed gives other problems, for as long as there are enough of the
# kind. Its rows have a question and an answer, so they are a source as they are.

# %%
from reasoning_gym import create_dataset


def sums(terms, digits):
    level = {"min_terms": terms, "max_terms": terms, "max_digits": digits}
    made = create_dataset("chain_sum", size=200, seed=1, **level)
    return load_problems([{k: r[k] for k in ("question", "answer")} for r in made])


easy, hard = sums(2, 1), sums(6, 3)
print(easy[0]["question"], easy[0]["answer"])
print(hard[0]["question"], hard[0]["answer"])

# %% [markdown]
# ## GSM8K from the hub
#
# A hub id is a source too, with configuration and split behind colons. It needs the network; without one it says so,
# and the notebook goes on with the course's own problems.

# %%
from grpo_workbook import WorkbookError

try:
    gsm8k = load_problems("openai/gsm8k:main:train")
    print(len(gsm8k), "problems")
except WorkbookError as error:
    print(error)

# %% [markdown]
# ## Rows that cannot be used
#
# Real files hold a few rows that no one has looked at. Here is one with four kinds of trouble in eight rows:

# %%
import json
import tempfile
from pathlib import Path

good = [{"question": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(1, 5)]
bad = [
    {"question": "What is 5 + 5?"},
    {"question": " ", "answer": "12"},
    {"question": "Why?", "answer": "no idea"},
    {"question": 8, "answer": 16},
]
lines = [json.dumps(row) for row in good + bad]
folder = tempfile.TemporaryDirectory()
messy = Path(folder.name) / "messy.jsonl"
messy.write_text("\n".join(lines) + "\n");

# %% [markdown]
# Loading stops, with the row, the field, its value and the fix, and with how many more there are. Nothing is dropped
# behind your back: a silent drop of 5 rows looks just like one of 5,000.

# %%
try:
    load_problems(messy)
except WorkbookError as error:
    print(error)

# %% [markdown]
# If dropping is what you want, say so; a dict that you give as `invalid` is filled with what was dropped.

# %%
dropped: dict[int, str] = {}
kept = load_problems(messy, skip_invalid=True, invalid=dropped)
print(len(kept), "rows kept")
for row, why in dropped.items():
    print(f"row {row}: {why}")

# %% [markdown]
# A file that is damaged as a whole (a line that is no JSON, bytes that are no UTF-8) is refused with its line, and
# nothing of it is used: who knows what else was lost?

# %%
torn = Path(folder.name) / "torn.jsonl"
torn.write_text(lines[0] + "\n" + '{"question": "What is 9 + 9?", "ans')
try:
    load_problems(torn, skip_invalid=True)
except WorkbookError as error:
    print(error.args[0].replace(folder.name, "..."))

# %% [markdown]
# ## The prompt budget
#
# Older guides pass `max_prompt_length` and let TRL cut what is too long. TRL 1.15 has no such argument: **it no longer
# truncates prompts**. One long row then takes the memory of the whole batch.

# %%
from trl import GRPOConfig

try:
    GRPOConfig(output_dir="unused", max_prompt_length=160)
except TypeError as error:
    print(error)

# %% [markdown]
# Cutting would be wrong anyway: the end of a word problem is its question. So measure, with the model's own tokenizer
# and template, and drop what does not fit. Characters or words are no measure of tokens. Thirty overlong prompts are
# put in here, so that there is something to see; printed are percentiles and their lengths in tokens:

# %%
import numpy as np

from grpo_workbook import figures

budget = run.max_prompt_length
long = [
    "Read this first. " * n + "What is 1 + 1?" for n in range(budget // 16, budget // 4)
]
rows = [{"question": question, "answer": "2", "solution": "2"} for question in long]
mixed = to_dataset(train.select(range(200)).to_list() + rows)
lengths = data.prompt_lengths(mixed, tokenizer)
for percent in (0, 50, 75, 95, 100):
    most = np.percentile(lengths, percent)
    print(f"{percent:3} % of the prompts: at most {most:.0f}")

# %% [markdown]
# The budget is a setting of the profile: `max_prompt_length`. Choose it so that few prompts are lost, and look at those
# that are: are they noise, or your hardest problems?

# %%
figures.show(*figures.length_histogram(lengths, budget))

# %% [markdown]
# Prompt and completion share the model's context, and the prompt is stored once per completion: a budget of 512 with
# groups of 16 holds 8,192 prompt tokens for one problem.

# %%
from grpo_workbook import drop_long_prompts

fitting, dropped = drop_long_prompts(mixed, tokenizer, budget)
print(len(fitting), "fit,", dropped, "dropped")

# %% [markdown]
# ## Duplicates
#
# A question that stands there twice counts twice. Worse, it may come back in the held-out set. Exact comparison misses
# some of them; comparing every pair of 7,000 questions takes 25 million comparisons. Three ways to be alike:

# %%
from grpo_workbook import leakage

texts = [
    "Ana has 12 red shells and finds 5 more. How many red shells does Ana have now?",
    "ana has 12 red shells, and finds 5 more; how many red shells does ana have now",
    "Ben has 12 red shells and finds 5 more. How many red shells does Ben have now?",
    "Ana has 31 red shells and finds 8 more. How many red shells does Ana have now?",
]
print("the same:       ", leakage.same_questions(texts))
print("nearly the same:", leakage.near_duplicates(texts))

# %% [markdown]
# Each row is named with the earlier one that it repeats. Rows 0 and 1 differ in case and punctuation. Row 2 has another
# name and the same answer: a **near-duplicate**, with the
# same numbers and at least 80 % of the words in common. Row 3 has other numbers: another problem from the same **template**.

# %%
for other in (2, 3):
    overlap = leakage.jaccard(leakage.words(texts[0]), leakage.words(texts[other]))
    alike = leakage.template(texts[0]) == leakage.template(texts[other])
    print(f"0 and {other}: {overlap:.0%} of the words, same template: {alike}")

# %% [markdown]
# ## Leakage
#
# A **leak** is a held-out problem that the model was trained on. How much does it flatter? Take a "model" that has
# learned nothing but its training set by heart, and guesses the commonest answer for anything else:

# %%
from collections import Counter

memory = dict(zip(train["question"], train["answer"]))
guess = Counter(memory.values()).most_common(1)[0][0]


def score(rows):
    return sum(
        memory.get(row["question"], guess) == row["answer"] for row in rows
    ) / len(rows)

# %% [markdown]
# On the real held-out problems it is as bad as it should be. Then we let training rows leak into them, more and more:

# %%
heldout = load_problems(data.WORD_PROBLEMS["heldout"])
clean, known = heldout.to_list(), train.to_list()
for leaked in (0, 24, 120, 240):
    rows = known[:leaked] + clean[leaked:]
    print(f"{leaked / len(rows):4.0%} of the held-out rows leaked: {score(rows):.1%}")

# %% [markdown]
# Half the rows leaked, and a parrot scores above 50 %. The score of a real model is lifted in the same way, and nothing
# in its curve shows it. So compare the two sets before training; the near-duplicates count as well.

# %%
from datasets import Dataset
from grpo_workbook import drop_leaked, leaked_rows

leaky = Dataset.from_list(known[:24] + clean[24:])
print(len(leaked_rows(train, leaky)), "training rows are held out too")
safe, dropped = drop_leaked(train, leaky)
print(len(safe), "training rows are left,", dropped, "dropped")
print(len(leaked_rows(train, heldout)), "leaks in the course's own split")

# %% [markdown]
# ## Diversity
#
# A model trained on one sentence learns that sentence. Three cheap signs, with pandas: how many templates there are, how
# often the commonest answer is right (if one answer is common, guessing it earns reward), and how many rows repeat an
# earlier one.

# %%
for name, rows in {
    "word problems": train,
    "knowledge base": knowledge,
    "easy sums": easy,
}.items():
    table = rows.to_pandas()
    templates = table["question"].map(leakage.template).nunique()
    common = table["answer"].value_counts(normalize=True).max()
    print(
        f"{name:15} templates {templates:4} of {len(table):4}  "
        f"commonest answer {common:.1%}  "
        f"repeats {len(leakage.same_questions(table['question']))}"
    )

# %% [markdown]
# The easy sums are one sentence with plus or minus in it, and there are not even 200 of them: they repeat. That is fine
# to teach the form, and not to measure reasoning.

# %% [markdown]
# ## A split that can be trusted
#
# Three steps, in this order: drop repeats, or the twins land on both sides; split; then look for leaks, near ones too.
# On the easy sums, which repeat, the order makes the difference:

# %%
from grpo_workbook import split

repeats = leakage.same_questions(easy["question"])
once = easy.select([i for i in range(len(easy)) if i not in repeats])
for name, rows in {"with repeats": easy, "without": once}.items():
    train_part, heldout_part = split(rows, heldout=40, seed=0)
    leaks = leaked_rows(train_part, heldout_part)
    print(f"{name:12} {len(leaks)} of {len(train_part)} training rows are held out too")

# %% [markdown]
# **Seeded**, so that the same rows are held out each time; **stratified**, so that both parts have each difficulty at
# the same rate. `split` is `Dataset.train_test_split(stratify_by_column=...)`, by the question's length if you name no
# column. Here the difficulty is the number of steps in the solution.

# %%
counts = [solution.count("<<") for solution in train["solution"]]
steps = train.add_column("steps", counts)
train_part, heldout_part = split(steps, heldout=100, seed=0, by="steps")
for name, part in {"train": train_part, "held out": heldout_part}.items():
    rates = part.to_pandas()["steps"].value_counts(normalize=True)
    told = ", ".join(f"{n} steps {rate:.1%}" for n, rate in rates.items())
    print(f"{name:9} {len(part):5} rows: {told}")
print("leaks:", len(leaked_rows(train_part, heldout_part)))

# %% [markdown]
# Without strata, a draw of 100 may be easier or harder than the rest by luck. How much, over 200 seeds?

# %%
import random

flags = [s == 1 for s in steps["steps"]]
plain = [sum(random.Random(seed).sample(flags, 100)) / 100 for seed in range(200)]
print(f"rate of one-step problems in all: {sum(flags) / len(flags):.1%}")
print(f"in a plain draw of 100: from {min(plain):.0%} to {max(plain):.0%}")

# %% [markdown]
# ## The whole report
#
# All of it is one command. What would hurt training is listed at the end; the command's exit status is then 1, so that
# a script can stop.

# %%
import subprocess
import sys


def check_data(*arguments):
    command = [sys.executable, "-m", "grpo_workbook", "check-data", *arguments]
    print(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout)


heldout_file = data.WORD_PROBLEMS["heldout"]
check_data(data.WORD_PROBLEMS["train"], "--heldout-data", heldout_file)

# %% [markdown]
# And on the small messy file from above, to see it complain:

# %%
check_data(messy)
folder.cleanup()

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 02.1 · `few_shot_prompt` · easy · 5 minutes
#
# Build the conversation: a system turn if `system` is not empty, then each example as a user's and an assistant's turn,
# then the question. Every message is a dict with `role` and `content`.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def few_shot_prompt(
    question: str, system: str, examples: list[tuple[str, str]]
) -> list[dict[str, str]]:
    raise NotImplementedError


check("02.1", few_shot_prompt);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Start with an empty list and append. What should be in it when `system` is `""`?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def few_shot_prompt(
#     question: str, system: str, examples: list[tuple[str, str]]
# ) -> list[dict[str, str]]:
#     messages = []
#     if system:
#         messages.append({"role": "system", "content": system})
#     for asked, answered in examples:
#         messages.append({"role": "user", "content": asked})
#         messages.append({"role": "assistant", "content": answered})
#     messages.append({"role": "user", "content": question})
#     return messages
# ```
#
# </details>

# %% [markdown]
# ### Exercise 02.2 · `final_answer` · easy · 5 minutes
#
# Return what follows the last `####` of a GSM8K solution: without the commas of `1,000`, without white space around it.
# A solution without `####` is a broken row: raise `ValueError`.

# %% tags=["exercise"]
def final_answer(solution: str) -> str:
    raise NotImplementedError


check("02.2", final_answer);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `str.rpartition` cuts at the last place, and tells by its middle part whether it found one.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def final_answer(solution: str) -> str:
#     _, found, answer = solution.rpartition("####")
#     if not found:
#         raise ValueError(f"no #### in {solution!r}")
#     return answer.replace(",", "").strip()
# ```
#
# </details>

# %% [markdown]
# ### Exercise 02.3 · `budget_for` · medium · 8 minutes
#
# Given the prompts' lengths, return the smallest budget that keeps at least the rate `rate` of the prompts
# (0 < rate <= 1). It is one of the lengths.

# %% tags=["exercise"]
def budget_for(lengths: list[int], rate: float) -> int:
    raise NotImplementedError


check("02.3", budget_for);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Sort. How many prompts must fit? Round that number up; subtract 1e-9 first, because 0.55 * 100 is a little more than
# 55.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def budget_for(lengths: list[int], rate: float) -> int:
#     import math
#
#     needed = math.ceil(rate * len(lengths) - 1e-9)
#     return sorted(lengths)[needed - 1]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 02.4 · `word_overlap` · medium · 8 minutes
#
# Return the Jaccard overlap of two texts: the number of different words that both have, divided by the number of
# different words that occur in either. Case does not count; words are what stands between white space. Two empty
# texts are equal: 1.0.

# %% tags=["exercise"]
def word_overlap(a: str, b: str) -> float:
    raise NotImplementedError


check("02.4", word_overlap);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Make a set of each; `&` is what both have, `|` is what either has.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def word_overlap(a: str, b: str) -> float:
#     first, second = set(a.lower().split()), set(b.lower().split())
#     either = first | second
#     return len(first & second) / len(either) if either else 1.0
# ```
#
# </details>

# %% [markdown]
# ### Exercise 02.5 · `honest_score` · medium · 8 minutes
#
# A model answered every leaked held-out problem right, because it knew them. `measured` is its score on all held-out
# problems, `leaked_rate` the rate of leaked ones. Return its score on the others. A rate below 0, or of 1 and more,
# is an error: raise `ValueError`.

# %% tags=["exercise"]
def honest_score(measured: float, leaked_rate: float) -> float:
    raise NotImplementedError


check("02.5", honest_score);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `measured = leaked_rate * 1 + (1 - leaked_rate) * honest`. Solve for `honest`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def honest_score(measured: float, leaked_rate: float) -> float:
#     if not 0 <= leaked_rate < 1:
#         raise ValueError(f"the leaked rate is {leaked_rate}: it must be at least 0 and below 1")
#     return (measured - leaked_rate) / (1 - leaked_rate)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 02.6 · `stratified_quotas` · hard · 12 minutes
#
# `count` rows shall be held out of strata with these sizes. Give each its exact part rounded down; the rows still
# missing go one each to the strata that lost most by rounding (the first of equals first). The quotas add up to `count`.

# %% tags=["exercise"]
def stratified_quotas(sizes: list[int], count: int) -> list[int]:
    raise NotImplementedError


check("02.6", stratified_quotas);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The exact part of a stratum is `count * size / sum(sizes)`. Sort the strata by how much rounding down took away;
# Python's sort keeps equals in their order.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def stratified_quotas(sizes: list[int], count: int) -> list[int]:
#     exact = [count * size / sum(sizes) for size in sizes]
#     quotas = [int(part) for part in exact]
#     by_loss = sorted(range(len(sizes)), key=lambda i: quotas[i] - exact[i])
#     for i in by_loss[: count - sum(quotas)]:
#         quotas[i] += 1
#     return quotas
# ```
#
# </details>

# %% [markdown]
# ## From the command line
#
# ```bash
# python -m grpo_workbook check-data my.csv --question-column frage --answer-column antwort
# python -m grpo_workbook check-data train.jsonl --heldout-data test.jsonl --json report.json
# python -m grpo_workbook run --data my.jsonl --skip-invalid --max-steps 100 --output outputs/mine
# ```

# %% [markdown]
# ## Summary
#
# - A row is a conversation and an answer that a program can check; other columns reach the rewards untouched.
# - What the model reads is the template's text, cut into tokens. Print it once for every model you train.
# - TRL truncates no prompt: measure with the model's own tokenizer, and drop what is over the budget.
# - Bad rows are named, not dropped silently. Duplicates, near-duplicates and leaks are found before training.
# - Split with a seed and by difficulty, and compare both parts with each other.
#
# Next: [03 · Reward design](03_reward_design.ipynb) judges what a model answers to such prompts.
