# %% [markdown]
# # 02 · Dataset preparation
#
# **After this notebook you can** turn a file of questions and answers into rows that TRL trains on, see exactly what the
# model reads, and find what in the data would hurt training before it does.
#
# **Time:** about half a minute on two CPU cores. Only one exercise trains.

# %% [markdown]
# ## From a row to tokens
#
# A row for GRPO needs a question and an answer that a program can check. It has no worked solution. The model must find
# one; the reward looks only at the final answer.

# %%
row = {
    "question": "Ana has 12 shells and finds 5 more. How many shells has she now?",
    "answer": "17",
}
row

# %% [markdown]
# A chat model expects a **conversation**: a list of messages, each with a role and a content. TRL reads it from the
# column `prompt`. It passes all other columns to the reward functions, unchanged.

# %%
system = "Work inside <reasoning> tags, then give the number inside <answer> tags."
prompt = [
    {"role": "system", "content": system},
    {"role": "user", "content": row["question"]},
]

# %% [markdown]
# The model does not see this list either. The tokenizer's **chat template** turns it into one text, with special tokens
# around each turn. The last line opens the assistant's turn, and the model continues from there.

# %%
from grpo_workbook import quiet
from grpo_workbook.run_config import RunConfig

quiet()  # fewer warnings of the libraries
from transformers import AutoTokenizer

run = RunConfig.from_env(default_profile="smoke")
tokenizer = AutoTokenizer.from_pretrained(run.model)
text = tokenizer.apply_chat_template(
    prompt, tokenize=False, add_generation_prompt=True, enable_thinking=False
)
print(text)

# %% [markdown]
# Last, the tokenizer cuts the text into tokens. Here is a bar at every boundary. A word includes the space before it, a
# number may be one token or one per digit, and a tag is a single token only if it is in the vocabulary. The template has
# already written the special tokens, hence `add_special_tokens=False`.

# %%
tokens = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
print("|".join(text[start:end] for start, end in tokens["offset_mapping"]))
print(len(tokens["input_ids"]), "tokens")

# %% [markdown]
# All four layers in one picture:

# %% tags=["hide-input"]
from grpo_workbook import figures

data_colour, plain, check_colour, number_colour, off = figures.PALE.values()
lines = "\n".join(f"{line:.38}{'…' * (len(line) > 38)}" for line in text.splitlines())
first = ", ".join(map(str, tokens["input_ids"][:9]))
boxes = {
    "row": (0.43, 0.87, f"question: {row['question']:.32}…", data_colour),
    "answer": (0.87, 0.87, f"answer: {row['answer']}", check_colour),
    "system": (0.27, 0.67, f"system: {system:.22}…", number_colour),
    "user": (0.57, 0.67, f"user: {row['question']:.22}…", data_colour),
    "text": (0.43, 0.38, lines, plain),
    "tokens": (0.43, 0.09, f"{first}, …", plain),
    "model": (0.87, 0.09, "model", plain),
    "reward": (0.87, 0.38, "reward functions", check_colour),
}
arrows = [("row", "user", ""), ("system", "text", ""), ("tokens", "model", "")]
arrows += [("user", "text", "chat template"), ("text", "tokens", "tokenizer")]
arrows += [("model", "reward", "completion"), ("answer", "reward", "unchanged")]
figure = figures.diagram(boxes, arrows, (9, 5))
for y, layer in ((0.87, "row"), (0.67, "messages"), (0.38, "text"), (0.09, "tokens")):
    figure.axes[0].text(0.01, y, layer, weight="bold", va="center")
figure.suptitle("The question reaches the model in four layers, the answer never does")
count = len(tokens["input_ids"])
figures.show(
    figure,
    "Four layers: the row's question becomes messages with a system message, the chat "
    f"template makes one text of them, the tokenizer {count} tokens, which the model "
    "reads. The row's answer goes to the reward functions unchanged.",
)

# %% [markdown]
# ## Real templates side by side
#
# Every family has its own template. TRL carries copies, so you can compare them without downloading a model.

# %%
import copy
from importlib.resources import files


def with_template(name):
    """A copy of the tokenizer with the chat template of another model."""
    other = copy.deepcopy(tokenizer)
    folder = files("trl") / "chat_templates"
    other.chat_template = (folder / f"{name}.jinja").read_text(encoding="utf-8")
    other.bos_token = "<bos>"
    return other


real = {
    "Qwen3": with_template("qwen3"),
    "Gemma 3": with_template("gemma3"),
    "Gemma 4": with_template("gemma4_v5"),
}

# %% [markdown]
# Qwen3 is a thinking model: by default it writes a long `<think>` block before it answers. The course turns this off by
# `enable_thinking=False`. The template then writes an *empty* block into the prompt, and the model continues behind it.
# Gemma 3 has no system role, so the system text opens the user's turn. Gemma 4 has one, with other turn tokens.

# %% tags=["hide-input"]
figure, panels = figures.new_panels(10, 3.2, count=3, across=3)
for axes, (name, other) in zip(panels, real.items()):
    text = other.apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    for i, line in enumerate(text.splitlines()):
        colour = data_colour if "Ana" in line else plain
        colour = number_colour if line.startswith("Work") else colour
        colour = check_colour if "think>" in line else colour
        look = {"facecolor": colour, "edgecolor": "none", "pad": 2}
        short = line if len(line) < 34 else f"{line[:22]}…{line[-10:]}"
        where = (0.02, 0.93 - i * 0.11)
        axes.text(*where, short, family="monospace", fontsize=9, bbox=look)
    axes.set_title(name, loc="left")
    axes.axis("off")
figure.suptitle("One conversation, three prompts (orange: system, green: thinking)")
figures.show(
    figure,
    "Qwen3 and Gemma 4 give the system message a turn of its own, Gemma 3 puts it at "
    "the start of the user's turn. Qwen3's prompt ends with an empty think block.",
)

# %% [markdown]
# Two questions to ask of every tokenizer before training: what becomes of a system message, and what does the template
# add if there is none? For the first, render two texts that no template contains, and look for them.

# %%
from jinja2 import TemplateError
from grpo_workbook import chat_prompt, data, render


def system_role(tokenizer) -> str:
    try:
        text = render([chat_prompt("USER TEXT", "SYSTEM TEXT")], tokenizer)[0]
    except TemplateError:
        return "refused"
    _, found, after = text.partition("SYSTEM TEXT")
    if not found:
        return "ignored"
    between = after.partition("USER TEXT")[0].strip()
    return "own turn" if between else "in the user's turn"


real["Gemma 1"] = with_template("gemma")
real["Qwen2.5"] = with_template("qwen2_5")
real["Llama 3.1"] = with_template("llama3_1")
for name, other in real.items():
    alone = [{"role": "user", "content": "How many?"}]
    text = other.apply_chat_template(alone, tokenize=False).partition("How many?")[0]
    added = [line for line in text.splitlines() if line and not line.startswith("<")]
    print(f"{name:10} system message: {system_role(other):20} adds: {added}")

# %% [markdown]
# Gemma 1 refuses a system message. Qwen2.5 adds one of its own if you give none, Llama 3.1 a date. If yours is refused,
# put it into the user's turn. `to_dataset(..., fold=True)` does that for every row; the main run does it by itself.

# %%
print(render([data.prompts.fold_system(prompt)], real["Gemma 1"])[0])

# %% [markdown]
# ## Examples in the prompt
#
# Solved questions before the real one show the form better than a description: **one-shot** means one of them,
# **few-shot** several. Every completion of every group reads them again.

# %%
def with_examples(question: str, examples: list) -> list[dict]:
    """The system turn, each solved question as two turns, then the question."""
    first, last = chat_prompt(question, system)
    turns = [first]
    for asked, answered in examples:
        turns.append({"role": "user", "content": asked})
        turns.append({"role": "assistant", "content": answered})
    return [*turns, last]


solved = "<reasoning>\n3+4=7\n</reasoning>\n<answer>7</answer>"
example = ("Ben has 3 hats and buys 4. How many does he have?", solved)
for message in with_examples(row["question"], [example]):
    print(f"{message['role']:10} {message['content']!r}")

counts = {"no example": 0, "one-shot": 1, "three-shot": 3}
for name, count in counts.items():
    talk = with_examples(row["question"], [example] * count)
    ids = tokenizer(render([talk], tokenizer)[0], add_special_tokens=False)["input_ids"]
    print(f"{name:10} {len(ids):4} tokens")

# %% [markdown]
# | | when |
# | --- | --- |
# | system prompt only | the model follows instructions, or knows this form |
# | one-shot | the form is new: the format reward is near 0 at the start |
# | few-shot | a base model, or a form with several cases; drop the examples once GRPO has taught the form |
#
# A model may copy the example's answer, so take one that is rare in the data.

# %% [markdown]
# ## The answer column
#
# GSM8K, the best-known set of word problems, keeps the whole solution in `answer` and ends it with `#### N`. So do the
# course's own problems. `load_problems` reads a file with the `datasets` library and checks every row. `answer` becomes
# what a reward compares with; `solution` keeps the whole text.

# %%
from grpo_workbook import load_problems

train = load_problems(data.WORD_PROBLEMS["train"])
train[0]

# %% [markdown]
# Answers are numbers (after the last `####`, or the whole text) if at least half of the first 1,000 rows have one,
# otherwise texts; `answers="number"` or `answers="text"` decides it for you.
#
# The result is a `datasets.Dataset`: it stays on disk, so ten million rows do not fill the memory. `to_dataset` adds the
# prompt, and this is what TRL gets.

# %%
from grpo_workbook import to_dataset

train_set = to_dataset(train)
train_set

# %% [markdown]
# ## Where rows come from
#
# **A spreadsheet.** Saved as CSV it is a source like any other; only its columns have other names. `.jsonl`, `.json`,
# `.parquet`, a `Dataset` and a list of dicts work too.

# %%
knowledge = load_problems(data.reading.KNOWLEDGE_BASE, answer_column="expert_answer")
print(len(knowledge), "rows")
for one in knowledge.select([2, 17]):
    print("\n" + one["question"], "\n  ", one["answer"])

# %% [markdown]
# These answers are sentences, so a reward that compares numbers cannot judge them. A first reward for such rows counts
# shared words, a simplified form of SQuAD's F1 (punctuation and articles stay in).

# %%
def shared_words(completions, answer, **columns):
    """F1 of words between completion and answer, 0 to 1 (Rajpurkar et al. 2016)."""
    values = []
    for text, gold in zip(completions, answer, strict=True):
        if not isinstance(text, str):  # in training a completion is a chat
            text = text[0]["content"]
        said, wanted = set(text.lower().split()), set(gold.lower().split())
        values.append(2 * len(said & wanted) / max(1, len(said) + len(wanted)))
    return values


gold = knowledge[17]["answer"]
for said in (
    gold,
    "The base model with the adapter switched off.",
    "It is the critic.",
    "the a of is it",
):
    print(f"{shared_words([said], [gold])[0]:.2f}  {said[:60]}")

# %% [markdown]
# It separates near from far, but it understands nothing: a contradiction in the same words earns nearly everything, and
# a list of common words earns more than a short wrong answer. The deciding reward should be a check, or a judge that you
# have measured. If you have neither, fine-tune on the answers (SFT).
#
# **Programs.** Rows in HumanEval's form have a `test` and an `entry_point` instead of an answer, and the reward runs
# the tests ([chapter 06](06_code_rewards.ipynb)).
#
# **A generator.** A program can make problems with their answers, at any difficulty. The package `reasoning-gym` has
# about a hundred kinds; a new seed gives new problems.

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
# **The hub.** Write the dataset's id, configuration and split with colons between them. This needs the network; without
# it you see the error message below.

# %%
from grpo_workbook import WorkbookError

try:
    gsm8k = load_problems("openai/gsm8k:main:train")
    print(len(gsm8k), "problems")
except WorkbookError as error:
    print(error)

# %% [markdown]
# ## Invalid rows
#
# Here is a file with four kinds of invalid row among eight:

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
# Loading stops and names the first invalid row, its value and the fix. It never drops rows silently: nobody would
# notice whether 5 rows or 5,000 were gone.

# %%
try:
    load_problems(messy)
except WorkbookError as error:
    print(error)

# %% [markdown]
# If you want to drop them, `check_problems` gives the valid rows, and for each other row the reason.

# %%
from grpo_workbook.data import check_problems

kept, dropped = check_problems(messy)
print(len(kept), "rows kept")
for number, why in dropped.items():
    print(f"row {number}: {why}")

# %% [markdown]
# A file with a damaged line (not JSON, or not UTF-8) is refused as a whole, because more of it may be lost.

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
# Older guides pass `max_prompt_length` and let TRL cut long prompts. TRL 1.15 has no such argument: **it does not
# truncate prompts**. One long row then takes the memory of the whole batch.

# %%
from trl import GRPOConfig

try:
    GRPOConfig(output_dir="unused", max_prompt_length=160)
except TypeError as error:
    print(error)

# %% [markdown]
# Truncation would be wrong anyway, because a word problem ends with its question. So measure the prompts in tokens, with
# the model's own tokenizer and template, and drop what is over the budget (`max_prompt_length` of the profile).

# %%
import numpy as np

budget, curves = run.max_prompt_length, {}
for name, count in counts.items():
    talks = [with_examples(q, [example] * count) for q in train["question"][:]]
    ids = tokenizer(render(talks, tokenizer), add_special_tokens=False)["input_ids"]
    curves[name] = sorted(map(len, ids))
figure, (axes,) = figures.new_panels(7.5, 3.0)
for (name, lengths), (colour, dash, _) in zip(curves.items(), figures.STYLES):
    fraction = np.arange(1, len(lengths) + 1) / len(lengths)
    axes.step(lengths, fraction, dash, where="post", color=colour, lw=2)
    axes.text(lengths[-1], 1.03, name, color=colour, ha="center")
axes.axvline(budget, color="black", linestyle=":")
axes.set(xlabel="budget in tokens (dotted: this profile's)", ylabel="prompts that fit")
axes.set(xlim=(0, max(budget, curves["three-shot"][-1]) * 1.1))
fits = {name: np.mean(np.array(found) <= budget) for name, found in curves.items()}
none, three = fits["no example"], fits["three-shot"]
title = f"{none:.0%} of the prompts fit, with three examples {three:.0%}"
axes.set_title(title, pad=14)
said = ", ".join(f"{n} {c[0]} to {c[-1]}, {fits[n]:.0%} fit" for n, c in curves.items())
figures.show(figure, f"Fraction of prompts that fit a budget, by tokens: {said}.")

# %% [markdown]
# Before you lower a budget, look at what it would drop. Here the longest tenth goes:

# %%
from grpo_workbook import drop_long_prompts

lengths = curves["no example"]
tight = int(np.percentile(lengths, 90)) - 1
fitting, dropped = drop_long_prompts(train_set, tokenizer, tight)
kept, everything = (
    [solution.count("<<") for solution in rows["solution"]]
    for rows in (fitting, train_set)
)
print(f"a budget of {tight} tokens drops {dropped} of {len(train_set)} prompts")
lost = everything.count(2) - kept.count(2)
print(f"two-step problems: {kept.count(2) / len(kept):.0%} of those kept,")
print(f"                   {lost / dropped:.0%} of those dropped")

# %% [markdown]
# The budget dropped hard problems, not noise. But long prompts cost memory, because a prompt is stored once per
# completion: 512 tokens in groups of 16 are 8,192 prompt tokens for one problem.

# %% [markdown]
# ## Duplicates
#
# A question that appears twice counts twice. Worse, one copy may end up in the held-out set. Three ways to be alike:

# %%
from grpo_workbook.data import duplicates

texts = [
    "Ana has 12 red shells and finds 5 more. How many red shells does Ana have now?",
    "ana has 12 red shells, and finds 5 more; how many red shells does ana have now",
    "Ben has 12 red shells and finds 5 more. How many red shells does Ben have now?",
    "Ana has 31 red shells and finds 8 more. How many red shells does Ana have now?",
]
print("the same:       ", duplicates.same_questions(texts))
print("nearly the same:", duplicates.near_duplicates(texts))

# %% [markdown]
# Rows 0 and 1 differ only in case and punctuation. Row 2 is a **near-duplicate** of row 0: the same numbers, and at least
# 80 % of the words in common. Row 3 has other numbers: another problem from the same **sentence template**.

# %%
for other in (2, 3):
    a, b = (set(duplicates.pieces(texts[row])) for row in (0, other))
    overlap = len(a & b) / len(a | b)  # Jaccard's similarity
    alike = duplicates.template(texts[0]) == duplicates.template(texts[other])
    print(f"0 and {other}: {overlap:.0%} of the words, same template: {alike}")

# %% [markdown]
# ## Leakage
#
# A **leak** is a problem that is in both sets, the same or as a near-duplicate. How much does it flatter? Take a "model"
# that has only memorized the training set and guesses the commonest answer for everything else. Then let more and more
# of the training rows be held out too.

# %%
from collections import Counter

memory = dict(zip(train["question"], train["answer"]))
guess = Counter(memory.values()).most_common(1)[0][0]
heldout = load_problems(data.WORD_PROBLEMS["heldout"])
clean, known = heldout.to_list(), train.to_list()
leaks, scores = [0, 24, 120, 240, 360, 480], []
for leaked in leaks:
    rows = known[:leaked] + clean[leaked:]
    right = [memory.get(r["question"], guess) == r["answer"] for r in rows]
    scores.append(100 * sum(right) / len(rows))
rates = [100 * leaked / len(clean) for leaked in leaks]
figure, words = figures.line_chart(
    {"knows the training set by heart": (rates, scores)},
    x="held-out rows that are leaks (%)",
    y="score (%)",
    title=f"Half the rows are leaks: a model without skill scores {scores[3]:.0f} %",
)
figure.legends[0].remove()
figure.axes[0].set_ylim(-8, 105)
for rate, score, place in zip(rates, scores, [(8, -10), (-16, 8), (8, -12), (8, -12)]):
    label = {"textcoords": "offset points", "xytext": place}
    figure.axes[0].annotate(f"{score:.1f} %", (rate, score), **label)
figures.show(figure, words)

# %% [markdown]
# The score of a real model that memorizes rises too, and nothing in its training curve shows it. So look for leaks
# before training, and drop them from the training set.

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
# Rows that are all alike can teach a form, but little else. Three cheap signs: the number of sentence templates, the rate
# of the commonest answer (a model can earn it by guessing), and the number of repeated rows.

# %%
for name, rows in {
    "word problems": train,
    "knowledge base": knowledge,
    "easy sums": easy,
}.items():
    table = rows.to_pandas()
    templates = table["question"].map(duplicates.template).nunique()
    common = table["answer"].value_counts(normalize=True).max()
    print(
        f"{name:15} templates {templates:4} of {len(table):4}  "
        f"commonest answer {common:.1%}  "
        f"repeats {len(duplicates.same_questions(table['question']))}"
    )

# %% [markdown]
# The easy sums are one sentence with plus or minus, and many repeat. They cannot measure reasoning.

# %% [markdown]
# ## A split that you can trust
#
# The order matters. If you split first, two copies of a row can land on different sides.

# %% tags=["hide-input"]
boxes = {
    "file": (0.07, 0.45, "your\nfile", data_colour),
    "valid": (0.25, 0.45, "1 drop\ninvalid rows", check_colour),
    "once": (0.43, 0.45, "2 drop\nrepeats", check_colour),
    "split": (0.6, 0.45, "3 split\nby difficulty", check_colour),
    "train": (0.77, 0.72, "training", data_colour),
    "held": (0.77, 0.18, "held out", data_colour),
    "leaks": (0.92, 0.45, "4 look\nfor leaks", check_colour),
}
arrows = [("file", "valid", ""), ("valid", "once", ""), ("once", "split", "")]
arrows += [("split", "train", ""), ("split", "held", "")]
arrows += [("train", "leaks", ""), ("held", "leaks", "")]
figure = figures.diagram(boxes, arrows, (9, 2.6))
figure.suptitle("Drop repeats before the split, look for leaks after it")
words = "Four steps: drop invalid rows, drop repeats, split, look for leaks."
figures.show(figure, words)

# %% [markdown]
# The easy sums repeat, so they show the difference:

# %%
from grpo_workbook import split

repeats = duplicates.same_questions(easy["question"])
once = easy.select([i for i in range(len(easy)) if i not in repeats])
for name, rows in {"with repeats": easy, "without": once}.items():
    train_part, heldout_part = split(rows, heldout=40, seed=0)
    leaks = leaked_rows(train_part, heldout_part)
    print(f"{name:12} {len(leaks)} of {len(train_part)} training rows are held out too")

# %% [markdown]
# `split` uses a **seed**, so the same rows are held out each time. It is **stratified**: both parts have each difficulty
# at the same rate. Difficulty is the question's length, or the column that you name with `by`, here the number of steps
# in the solution. (It calls `Dataset.train_test_split` with `stratify_by_column`.)

# %%
counts = [solution.count("<<") for solution in train["solution"]]
steps = train.add_column("steps", counts)
train_part, heldout_part = split(steps, heldout=100, seed=0, by="steps")
for name, part in {"train": train_part, "held out": heldout_part}.items():
    rates = part.to_pandas()["steps"].value_counts(normalize=True)
    said = ", ".join(f"{n} steps {rate:.1%}" for n, rate in rates.items())
    print(f"{name:9} {len(part):5} rows: {said}")
print("leaks:", len(leaked_rows(train_part, heldout_part)))

# %% [markdown]
# Without stratifying, 100 held-out rows can be easier or harder than the rest by chance. How much, over 200 seeds?

# %%
import random

flags = [s == 1 for s in steps["steps"]]
plain_rates = [sum(random.Random(i).sample(flags, 100)) / 100 for i in range(200)]
print(f"rate of one-step problems in all: {sum(flags) / len(flags):.1%}")
print(f"in 100 random rows: from {min(plain_rates):.0%} to {max(plain_rates):.0%}")

# %% [markdown]
# ## The whole report
#
# One command runs all these checks and lists at the end what would hurt training. If there is anything, its exit status
# is 1. *Same question* counts repeats, *other answer* those of them with a different answer, *near* near-duplicates; p5
# is the length that 5 % of the prompts do not exceed.

# %%
import subprocess
import sys


def check_data(*arguments):
    command = [sys.executable, "-m", "grpo_workbook", "check-data", *arguments]
    print(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout)


check_data(messy)

# %% [markdown]
# ## Your own file
#
# Name your file and its columns here. Without one, the notebook takes a file with the easy sums and the invalid rows
# from above.

# %%
MY_FILE = None  # "my.csv", "my.jsonl", "my.parquet" or a hub id
MY_COLUMNS = {"question_column": "question", "answer_column": "answer"}

if MY_FILE is None:
    MY_FILE = Path(folder.name) / "mine.jsonl"
    rows = [*bad, *easy.select_columns(["question", "answer"])]
    MY_FILE.write_text("\n".join(map(json.dumps, rows)))

# %% [markdown]
# The four steps, and the prompt budget between them. `split` holds out 100 rows, but at most a fifth of all. Two files
# come out, for training and for measuring:

# %%
rows, invalid = check_problems(MY_FILE, **MY_COLUMNS)
found = {"in the file": len(rows) + len(invalid), "valid": len(rows)}
asked = rows["question"][:]
repeats = duplicates.near_duplicates(asked) | duplicates.same_questions(asked)
rows = rows.select([i for i in range(len(rows)) if i not in repeats])
found["no repeats"] = len(rows)
mine, _ = drop_long_prompts(to_dataset(rows), tokenizer, budget)
found["within the budget"] = len(mine)
my_train, my_heldout = split(mine, heldout=100, seed=run.seed)
my_train, _ = drop_leaked(my_train, my_heldout)
found |= {"for training": len(my_train), "held out": len(my_heldout)}
place = run.output / "my_data"
for name, part in {"train": my_train, "heldout": my_heldout}.items():
    part.remove_columns("prompt").to_json(place / f"{name}.jsonl")

# %% [markdown]
# If a step drops more than you expected, read those rows before you go on.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.6)
colours = [figures.GREY] * 4 + [figures.BLUE] * 2
bars = axes.barh(list(found), found.values(), color=colours)
axes.bar_label(bars, padding=4)
axes.invert_yaxis()
axes.grid(False)
title = f"{found['in the file']} rows in the file, {len(my_train)} left for training"
few = " (below 64 a model memorizes them)" if len(my_train) < 64 else ""
axes.set(xlabel="rows", title=title + few)
said = ", ".join(f"{count} {name}" for name, count in found.items())
figures.show(figure, f"Rows after each step: {said}.")
print(*(f"row {number}: {why}" for number, why in list(invalid.items())[:5]), sep="\n")
folder.cleanup()

# %% [markdown]
# Read a few of your prompts in full, with the answer that the reward will compare with.

# %%
print(render([my_train[0]["prompt"]], tokenizer)[0], "\nanswer:", my_train[0]["answer"])

# %% [markdown]
# In a terminal:
#
# ```bash
# python -m grpo_workbook check-data my.csv --question-column problem --answer-column result
# python -m grpo_workbook check-data train.jsonl --heldout-data heldout.jsonl --json report.json
# python -m grpo_workbook run --data train.jsonl --heldout_data heldout.jsonl --output_dir outputs/mine
# ```

# %% [markdown]
# ## Exercises
#
# Write the function, or predict what a change will do, and run the cell. The table in chapter 00 counts what
# you have solved.

# %% [markdown]
# ### Exercise 02.1 · `budget_for` · easy · 6 minutes
#
# Given the prompts' lengths, return the smallest budget that keeps at least the fraction `rate` of the prompts
# (0 < rate <= 1). It is one of the lengths.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def budget_for(lengths: list[int], rate: float) -> int:
    raise NotImplementedError


check("02.1", budget_for);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Sort. How many prompts must fit? Round that number up; subtract 1e-9 first, because 0.55 * 100 is a little more than
# 55 in floats.
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
# ### Exercise 02.2 · `honest_score` · medium · 8 minutes
#
# Some held-out problems were leaks, and the model answered all of those right, because it knew them. `measured` is its
# score on all held-out problems, `leaked_rate` the fraction of leaks among them. Return its score on the others. A
# fraction below 0, or of 1 and more, is an error: raise `ValueError`.

# %% tags=["exercise"]
def honest_score(measured: float, leaked_rate: float) -> float:
    raise NotImplementedError


check("02.2", honest_score);

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
# ### Exercise 02.3 · `other_template` · easy · 5 minutes
#
# The tiny model reads the same 160 problems twice: through its own template, and through the template of the real Qwen3,
# which only adds an empty `<think>` block at the end. How often does it still find the right number, in any form? Predict
# "about as often", "less often" (down to 40 % of the rate before) or "hardly ever". The run takes about ten seconds.
# Then try another change: no system message (`to_dataset(rows, None)`), or a one-shot prompt.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "about as often", "less often" or "hardly ever"


def other_template() -> dict:
    """The rates of right numbers with two prompts: change the second."""
    from grpo_workbook import evaluate, load_model

    model, words = load_model(run.model, dtype=run.dtype, device=run.device)
    how = {"sample": True, "max_new_tokens": 64, "batch_size": run.eval_batch}
    rows = heldout.select(range(160))
    before = evaluate(model, words, to_dataset(rows), **how).lenient
    words.chat_template = with_template("qwen3").chat_template
    after = evaluate(model, words, to_dataset(rows), **how).lenient
    return {"before": sum(before) / 160, "after": sum(after) / 160}


predict("02.3", prediction, other_template);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The tiny model has never seen these tokens in this place. A small model knows little beyond what it was trained on.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "hardly ever"
# ```
#
# A large model survives more, but it too works best with the template of its training. Use one template for training,
# evaluation and serving.
#
# </details>

# %% [markdown]
# ### Exercise 02.4 · `one_problem` · medium · 8 minutes
#
# How much data does GRPO need? Train for 24 steps on one single problem: all groups of all steps answer the same
# question. What happens to the rate of strictly right answers on 160 *other* problems? Predict "rises", "stays" or
# "falls". The run takes about 40 seconds, with the trainer of chapter 01. Then take 8 problems (`range(8)`), and compare.

# %% tags=["exercise"]
prediction = ...  # "rises", "stays" or "falls"


def one_problem() -> dict:
    """Held-out accuracy before and after 24 steps on one problem: change how many."""
    from grpo_workbook import ScratchTrainer, evaluate, load_model, parse_rewards
    from peft import LoraConfig, get_peft_model

    model, words = load_model(run.model, dtype=run.dtype, device=run.device)
    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    rewards = parse_rewards(run.rewards)
    trainer = ScratchTrainer(get_peft_model(model, lora), words, *rewards)
    rows = [train_set[i] for i in range(1)]
    how = {"sample": True, "max_new_tokens": 64, "batch_size": run.eval_batch}
    tests = to_dataset(heldout.select(range(160)))
    before = evaluate(model, words, tests, **how).strict
    log = [trainer.step(rows * (8 // len(rows))) for _ in range(24)]
    after = evaluate(trainer.model, words, tests, **how).strict
    zero = [m["frac_reward_zero_std"] for m in log]
    return {"before": sum(before) / 160, "after": sum(after) / 160, "zero": zero}


predict("02.4", prediction, one_problem);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Which part of a right answer is the same for every problem?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "rises"
# ```
#
# The form is the same for every problem, so one problem can teach it. Soon all answers to it are right, and its groups
# have zero variance: then nothing more is learned. [Wang et al. 2025](https://arxiv.org/abs/2504.20571) trained
# Qwen2.5-Math-1.5B on one problem: from 36.0 % to 73.6 % on MATH500, of which 8.6 points are more than form.
#
# </details>

# %% [markdown]
# ### Exercise 02.5 · `my_rows` · medium · 15 minutes
#
# Make the data for a task of your own: at least 64 rows, each a dict with `question` and `answer`. Write a program that
# makes them (unit conversions, dates, spelling, ...), or read your own file. The check asks what training asks: valid
# rows, no repeats or near-duplicates, and no answer that is right for more than a fifth of the rows.

# %% tags=["exercise"]
def my_rows() -> list[dict]:
    raise NotImplementedError


check("02.5", my_rows);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `random.Random(0)` makes the same rows each time. Two rows are near-duplicates if they have the same numbers and nearly
# the same words, so let the numbers differ: take them from `random.sample`, which repeats nothing.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_rows() -> list[dict]:
#     import random
#
#     rows = []
#     for minutes in random.Random(0).sample(range(61, 600), 100):
#         question = f"A film lasts {minutes} minutes. How many minutes is that beyond full hours?"
#         rows.append({"question": question, "answer": str(minutes % 60)})
#     return rows
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - A row is a conversation and an answer that a program can check; other columns reach the rewards unchanged.
# - The model reads the template's text, cut into tokens. Render a prompt for every model that you train.
# - TRL does not truncate prompts. Measure them with the model's own tokenizer, and look at what a budget drops.
# - Invalid rows are named before they are dropped. Find repeats, near-duplicates and leaks before training.
# - Split with a seed and by difficulty, then compare both parts.
#
# Next: [03 · Reward design](03_reward_design.ipynb) scores the answers to such prompts.
