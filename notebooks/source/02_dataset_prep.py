# %% [markdown]
# # 02 · Dataset preparation
#
# What must be true of your data before GRPO can learn from it? This chapter turns a file of questions and answers into
# rows that TRL can train on, and finds what would ruin a run before the run begins.
#
# **After this notebook you can** see exactly what the model reads, build a dataset with `load_dataset(...).map(...)`,
# check whether *your* model can learn from the problems, find invalid rows, repeats and leaks, and make a split that
# you can trust.
#
# **Time:** about half a minute on two CPU cores; reading takes 40 minutes, the exercises a good hour. **You need**
# chapter 00, and from chapter 01 what an advantage is.

# %% [markdown]
# ## A model that lost its answers
#
# A model is trained, saved, and served by another program. There its answers are suddenly wrong, although its weights
# are the same. A common cause is the *chat template*, the text that a program writes around the messages of a
# conversation: the two programs use different ones. The next cells repeat this failure. First load the held-out
# problems of chapter 00 and the course's tiny Qwen3, which has learned to solve most of them:

# %%
from grpo_workbook import (
    choose_profile, data, evaluate, load_model, load_problems, paired_p_value, quiet,
    to_dataset, use_one_thread,
)

quiet()  # fewer warnings of the libraries
use_one_thread()
profile = choose_profile(default="smoke")
model, tokenizer = load_model(profile.model, dtype=profile.dtype, device=profile.device)
heldout = load_problems(data.WORD_PROBLEMS["heldout"])
questions = to_dataset(heldout.select(range(160)))

# %% [markdown]
# A **chat template** turns a conversation into the text that the model reads. Every family of models has its own, and
# TRL carries copies of them. The next two cells ask the tiny model the same 160 problems in three ways: with its own
# template, with this template but without the system message, and with the template of the real Qwen3. An answer counts
# here if its number is right, in whatever form. Each p-value is from the paired test of chapter 00 and compares its
# way with the first.

# %%
import copy
from collections import Counter
from importlib.resources import files


def with_template(name):
    """A copy of the tokenizer with the chat template of another model."""
    changed = copy.deepcopy(tokenizer)
    template = files("trl") / "chat_templates" / f"{name}.jinja"
    changed.chat_template = template.read_text(encoding="utf-8")
    changed.bos_token = "<bos>"  # some templates begin with it
    return changed


def ask(problems, with_tokenizer, with_model=model):
    return evaluate(
        with_model, with_tokenizer, problems, sample=True,
        max_new_tokens=profile.grpo["max_completion_length"],
        batch_size=profile.eval_batch_size,
    )


# %% [markdown]
# Each call of `ask` samples one answer to every problem. The last line shows what the model writes most often with the
# template of Qwen3:

# %%
own = ask(questions, tokenizer)
without_system = to_dataset(heldout.select(range(160)), system_prompt=None)
ways = {
    "no system message": ask(without_system, tokenizer),
    "Qwen3's template": ask(questions, with_template("qwen3")),
}
print(f"its own template   {sum(own.lenient):3} of 160 numbers are right")
for name, scores in ways.items():
    right = sum(scores.lenient)
    p_value = paired_p_value(own.lenient, scores.lenient)
    print(f"{name:18} {right:3} of 160, p = {p_value:.2g}")
print(Counter(ways["Qwen3's template"].completions).most_common(1))

# %% [markdown]
# In the figure, each bar counts the problems with a right number, and the black line at its end is the 95 % interval.
# (Each interval is about one way alone. To compare two ways, use the paired test.)

# %% tags=["hide-input"]
from grpo_workbook import figures, wilson_interval

figure, (axes,) = figures.new_panels(7.5, 2.1)
right_numbers, below, above, sentences = [], [], [], []
for name, scores in {"its own template": own, **ways}.items():
    count = sum(scores.lenient)
    low, high = wilson_interval(scores.lenient)
    right_numbers.append(count)
    below.append(max(0, count - 160 * low))  # not below 0 by rounding
    above.append(160 * high - count)
    sentences.append(f"{name} {count} ({160 * low:.0f} to {160 * high:.0f})")
names = ["its own template", *ways]
colours = [figures.BLUE, figures.GREY, figures.GREY]
bars = axes.barh(names, right_numbers, xerr=[below, above], capsize=4, color=colours)
axes.bar_label(bars, padding=4)
axes.invert_yaxis()
axes.grid(False)
first, last = right_numbers[0], right_numbers[-1]
title = f"The template of another model: from {first} right numbers to {last}"
axes.set(xlim=(0, 160), xlabel="right numbers, of 160 problems", title=title)
words = "Bars of the right numbers of 160, with 95 % intervals: "
figures.show(figure, words + ", ".join(sentences) + ".")

# %% [markdown]
# No error appeared, but with the template of Qwen3 the model lost all of its right answers: 145 of its 160 completions
# are nothing but `</answer>`. Without the system message 78 numbers are right instead of 89. This difference may be
# chance (p = 0.052). Qwen3's template writes the same tokens around each turn as the tiny model's template. It differs
# in one thing: it ends the prompt with an empty `<think>` block (the second figure below shows it), and the tiny model
# has never seen such a block. So a few tokens just before the answer can cost everything.
#
# A large model has seen more kinds of text and may lose less, but it, too, was trained with one template. Measure each
# change of a prompt, and use one template and one system message for training, evaluation and serving. To see what your
# model reads, this chapter first goes from a row to tokens, layer by layer.
#
# ## From a row to tokens
#
# A row for GRPO needs a question and an answer that a program can check. It needs no worked solution: the model must
# find a solution itself, and the reward looks only at the final answer.

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
# The model does not see this list of messages. The chat template turns the list into one text, with special tokens
# around each turn. With `add_generation_prompt=True` the last line opens the assistant's turn, and the model continues
# from there. (`enable_thinking` concerns Qwen3; the section after the next figure explains it.)

# %%
text = tokenizer.apply_chat_template(
    prompt, tokenize=False, add_generation_prompt=True, enable_thinking=False
)
print(text)

# %% [markdown]
# Last, the tokenizer cuts the text into tokens. The next cell shows each token in brackets. A frequent word is one
# token, together with the space before it. A rare word falls into pieces, such as `A`, `n`, `a`. Here a number has one
# token per digit; other tokenizers make one token of several digits. A tag is a single token only if it is in the
# vocabulary. The template has already written the special tokens, so `add_special_tokens=False` keeps the tokenizer
# from adding them again. (Without it, a Gemma prompt would begin with two `<bos>` tokens, and no error would say so.)

# %%
tokens = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
for start, end in tokens["offset_mapping"]:
    print(f"[{text[start:end]}]", end="")
print("\n", len(tokens["input_ids"]), "tokens")

# %% [markdown]
# The next figure shows all four layers, from the row at the top to the tokens at the bottom (blue: the question,
# orange: the system message, green: the answer and the reward functions):

# %% tags=["hide-input"]
pale = figures.PALE
shown = []
for line in text.splitlines():
    shown.append(line if len(line) < 38 else f"{line[:24]} … {line[-10:]}")
first = ", ".join(map(str, tokens["input_ids"][:9]))
boxes = {
    "row": (0.43, 0.87, f"question: {row['question'][:32]}…", pale["data"]),
    "answer": (0.87, 0.87, f"answer: {row['answer']}", pale["check"]),
    "system": (0.27, 0.67, f"system: {system[:22]}…", pale["number"]),
    "user": (0.57, 0.67, f"user: {row['question'][:22]}…", pale["data"]),
    "text": (0.43, 0.38, "\n".join(shown), pale["model"]),
    "tokens": (0.43, 0.09, f"{first}, …", pale["model"]),
    "model": (0.87, 0.09, "model", pale["model"]),
    "reward": (0.87, 0.38, "reward functions", pale["check"]),
}
arrows = [("row", "user", ""), ("system", "text", ""), ("tokens", "model", "")]
arrows += [("user", "text", "chat template"), ("text", "tokens", "tokenizer")]
arrows += [("model", "reward", "completion"), ("answer", "reward", "unchanged")]
figure = figures.diagram(boxes, arrows, (9, 5))
for y, layer in ((0.87, "row"), (0.67, "messages"), (0.38, "text"), (0.09, "tokens")):
    figure.axes[0].text(0.01, y, layer, weight="bold", va="center")
figure.suptitle("The question reaches the model in four layers, the answer never does")
figures.show(
    figure,
    "Four layers: the row's question becomes messages with a system message, the chat "
    "template makes one text of them, the tokenizer makes tokens, which the model "
    "reads. The row's answer goes to the reward functions unchanged.",
)

# %% [markdown]
# ## Real templates side by side
#
# Qwen3 is a thinking model: by default it writes a long `<think>` block before it answers. The course turns this off
# with `enable_thinking=False`. The template then writes an *empty* block into the prompt, and the model continues after
# it. Except for this block, Qwen3's prompt is that of the tiny model above. Gemma 3 has no system role, so its template
# puts the system text at the start of the user's turn. Gemma 4 has a system role, but other tokens around each turn.
# (It can think, too, but only if asked: `enable_thinking=True` writes `<|think|>` into its system turn.) In the figure,
# each column is the prompt of one model (orange: the system message, blue: the question, green: the think block). Gemma
# 4 is there with the template of its smallest model, E2B.

# %% tags=["hide-input"]
def colour_of(line):
    if "think>" in line:
        return pale["check"]
    if line.startswith("Work"):
        return pale["number"]
    if "Ana" in line:
        return pale["data"]
    return pale["model"]


templates = {"Qwen3": "qwen3", "Gemma 3": "gemma3", "Gemma 4 E2B": "gemma4_v5"}
figure, panels = figures.new_panels(10, 3.2, count=3, across=3)
for axes, (name, file) in zip(panels, templates.items()):
    rendered = with_template(file).apply_chat_template(
        prompt, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    y = 0.93
    for line in rendered.splitlines():
        short = line if len(line) < 34 else f"{line[:18]}…{line[-14:]}"
        look = {"facecolor": colour_of(line), "edgecolor": "none", "pad": 2}
        axes.text(0.02, y, short, family="monospace", fontsize=9, bbox=look)
        y -= 0.11
    axes.set_title(name, loc="left")
    axes.axis("off")
figure.suptitle("Gemma 3 has no system turn; here only Qwen3 has an empty think block")
figures.show(
    figure,
    "Qwen3 and Gemma 4 E2B give the system message a turn, Gemma 3 puts it at "
    "the start of the user's turn. Qwen3's prompt ends with an empty think block.",
)

# %% [markdown]
# Even two models of one family can differ here. The prompt of Gemma 4 E2B and E4B ends as in the figure. The larger
# Gemma 4 models have another template: with thinking off, it ends the prompt with an empty thought block
# (`<|channel>thought`, `<channel|>`), much as Qwen3's does. A program that wrote this block for E2B and E4B too [made
# them write their thoughts into the answer](https://github.com/Comfy-Org/ComfyUI/pull/15278). So take the template of
# exactly the model that you train.
#
# Before training, find out two things about a chat template. Where does it put a system message? And what does it add
# if there is no system message? The next cell, which is folded, answers both questions for six templates. Gemma 1
# refuses a system message. Without one, Qwen2.5 adds a system message of its own, and Llama 3.1 adds two dates. If a
# template refuses your system message, `to_dataset(..., fold=True)` puts it into the user's turn. The command `run`
# (chapter 04) does this automatically.

# %% tags=["hide-input"]
from grpo_workbook import chat_prompt, render
from jinja2 import TemplateError


def system_role(tokenizer):
    """Where the template puts a system message."""
    try:
        text = render([chat_prompt("USER TEXT", "SYSTEM TEXT")], tokenizer)[0]
    except TemplateError:
        return "refused"
    if "SYSTEM TEXT" not in text:
        return "ignored"
    between = text.partition("SYSTEM TEXT")[2].partition("USER TEXT")[0]
    return "own turn" if between.strip() else "in the user's turn"


others = {"Gemma 1": "gemma", "Qwen2.5": "qwen2_5", "Llama 3.1": "llama3_1"}
for name, file in {**templates, **others}.items():
    changed = with_template(file)
    question = [{"role": "user", "content": "How many?"}]
    text = changed.apply_chat_template(question, tokenize=False)
    before = text.partition("How many?")[0]
    added = []
    for line in before.splitlines():
        if line and not line.startswith("<"):
            added.append(line.removesuffix("<|im_end|>"))
    if len(added) == 0:
        added.append("nothing")
    print(f"{name:11} system: {system_role(changed):20} without one it adds:", end=" ")
    print(" | ".join(added))

# %% [markdown]
# ## From a file to a dataset
#
# GSM8K, the best-known set of word problems, keeps the whole solution in `answer` and ends it with `#### N`. Each
# calculation in a solution is repeated between `<<` and `>>`, so that a program can read it. The course's own problems
# have the same format. The `datasets` library reads the file, and one function turns each problem into a row as TRL
# expects it. (A comma, as in `1,000`, stays in the answer. The rewards of this course read it as 1000.)

# %%
from datasets import load_dataset


def to_row(problem):
    solution, _, number = problem["answer"].partition("####")
    messages = [
        {"role": "system", "content": system},
        {"role": "user", "content": problem["question"]},
    ]
    return {"prompt": messages, "answer": number.strip(), "solution": solution}


file = str(data.WORD_PROBLEMS["train"])
plain_set = load_dataset("json", data_files=file, split="train").map(to_row)
print(plain_set)
plain_set[0]["prompt"][1]["content"], plain_set[0]["answer"]

# %% [markdown]
# As data, this is all that `GRPOTrainer(train_dataset=...)` needs: TRL applies the chat template to `prompt` itself.
# But the options of the template are not in the data. To train Qwen3 without thinking, write
# `GRPOConfig(chat_template_kwargs={"enable_thinking": False})`. Otherwise TRL trains with another prompt than the one
# that you measured, which is the failure at the beginning of this chapter. (The profiles of this course set this
# option.)
#
# A dataset stays on disk, so ten million rows do not fill the memory. With `load_dataset("openai/gsm8k", "main",
# split="train")` the same function makes rows of GSM8K.
#
# The course's `load_problems` and `to_dataset` do the same and check every row on the way. They read CSV, Parquet,
# JSON, the id of a dataset on the Hugging Face hub, or a list of dicts, and find out whether the answers are numbers or
# texts. A question may also be a conversation: a list of messages in `prompt` or `messages`, as TRL's users have it, or
# `conversations` in the form of ShareGPT. Without a column of answers, its last turn is the answer.

# %%
train = load_problems(data.WORD_PROBLEMS["train"])
train_set = to_dataset(train)
print(train_set.column_names)
train[0]

# %% [markdown]
# Rows can also come from a spreadsheet that was saved as CSV. If its columns have other names, pass these names, as in
# the next cell. The answers may be sentences, which a comparison of numbers cannot check ([chapter
# 13](13_learned_rewards.ipynb) has rewards for them). Rows of programming tasks have tests instead of an answer
# ([chapter 06](06_code_rewards.ipynb)).

# %%
knowledge = load_problems(data.reading.KNOWLEDGE_BASE, answer_column="expert_answer")
print(len(knowledge), "rows")
print(knowledge[2]["question"], "\n", knowledge[2]["answer"])

# %% [markdown]
# ### Exercise 02.1 · `row_of` · medium · 12 minutes
#
# The data set MATH has no column for the answer: a `solution` keeps it in a box, as in `so $x = \boxed{7}$`. Write the
# function that turns such a problem, a dict with `problem` and `solution`, into a row for TRL. The row is a dict with
# two keys: `prompt` has two messages, the text `system` and the problem, and `answer` has the content of the *last*
# box, without spaces around it. A box may contain braces in pairs, as in `\boxed{\frac{1}{2}}`. Return None if there is
# no box, if the last box is empty or never closed, or if the problem is blank.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def row_of(problem: dict, system: str) -> dict | None:
    raise NotImplementedError


check("02.1", row_of);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `text.rfind("\\boxed{")` finds the beginning of the last box. Go on from there, character by character, and count the
# braces that are open. A regular expression cannot count them.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def row_of(problem: dict, system: str) -> dict | None:
#     solution = problem["solution"]
#     start = solution.rfind("\\boxed{")
#     if start < 0 or not problem["problem"].strip():
#         return None
#     start += len("\\boxed{")
#     messages = [
#         {"role": "system", "content": system},
#         {"role": "user", "content": problem["problem"]},
#     ]
#     open_braces = 1
#     for place in range(start, len(solution)):
#         open_braces += {"{": 1, "}": -1}.get(solution[place], 0)
#         if open_braces == 0:
#             answer = solution[start:place].strip()
#             if not answer:
#                 return None
#             return {"prompt": messages, "answer": answer}
#     return None
# ```
#
# The test set `load_dataset("HuggingFaceH4/MATH-500", split="test")` also has a column `answer`, so you can count how
# often your function agrees with it.
#
# </details>

# %% [markdown]
# A program can also make problems with their answers, at any difficulty. The package `reasoning-gym` has about a
# hundred kinds of them; a new seed gives new problems.

# %%
from reasoning_gym import create_dataset


def sums(terms, digits):
    """200 sums of `terms` numbers with up to `digits` digits."""
    made = create_dataset(
        "chain_sum", size=200, seed=1, min_terms=terms, max_terms=terms,
        max_digits=digits,
    )
    rows = []
    for problem in made:
        rows.append({"question": problem["question"], "answer": problem["answer"]})
    return load_problems(rows)


easy = sums(terms=2, digits=1)
hard = sums(terms=6, digits=3)
print(easy[0]["question"], "→", easy[0]["answer"])
print(hard[0]["question"], "→", hard[0]["answer"])

# %% [markdown]
# ## Can *your* model learn from these problems?
#
# GRPO learns from groups in which some answers are right and some are wrong. If all answers of a group are right, or
# all are wrong, the correctness reward is the same for all of them, and no answer gets an advantage from it (chapter
# 01). Whether a problem gives a mixed group depends on the model. So before training, let the model answer each problem
# of a small sample eight times, as a group of eight would. An answer is right here if the correctness reward pays for
# it, that is, if the right number stands inside the answer tags.
#
# The cell does so for the first 32 rows of four sources. This is fair because these files are in random order; shuffle
# your own file first, with `rows.shuffle(seed=0)`. Two sources are word problems. The tiny model has practised
# thousands of problems of the *common* kinds. Of each *rare* kind it has seen four examples.

# %%
import numpy as np
from grpo_workbook.training import pass_rates

is_rare = np.array(train["rare"])
common = train.select(np.flatnonzero(~is_rare))
rare = train.select(np.flatnonzero(is_rare))
sources = {"common kinds": common, "rare kinds": rare}
sources["easy sums"] = easy
sources["hard sums"] = hard
solve_rates = {}  # source -> for each of its 32 problems the fraction of right answers
for name, rows in sources.items():
    some = to_dataset(rows.select(range(32)))
    solve_rates[name] = pass_rates(
        model, tokenizer, some, samples=8,
        max_new_tokens=profile.grpo["max_completion_length"],
        batch_size=profile.eval_batch_size, progress=None,
    )

# %% [markdown]
# In the next figure, each panel is one source. The height of a bar is the number of problems, and its place on the
# horizontal axis is how many of the eight answers to them were right. Blue problems gave a mixed group; grey ones were
# never right, or right each time:

# %% tags=["hide-input"]
figure, panels = figures.new_panels(10, 2.7, count=4, across=4)
sentences = []
for axes, (name, rates) in zip(panels, solve_rates.items()):
    right_answers = np.rint(8 * np.array(rates)).astype(int)
    counts = np.bincount(right_answers, minlength=9)
    colours = [figures.GREY] + [figures.BLUE] * 7 + [figures.GREY]
    axes.bar(range(9), counts, color=colours)
    mixed = int(counts[1:8].sum())
    axes.set_title(f"{name}: {mixed} of 32 mixed", fontsize=10)
    axes.set(xticks=range(0, 9, 2), ylim=(0, 33), xlabel="right answers of 8")
    never, always = counts[0], counts[8]
    sentences.append(f"{name}: {mixed} mixed, {never} never, {always} always right")
panels[0].set_ylabel("problems")
figure.suptitle("Only the blue problems gave a group of right and wrong answers")
words = "Bars of how often 32 problems were answered right in eight tries. "
figures.show(figure, words + "; ".join(sentences))

# %% [markdown]
# In training, a group without a difference takes as much time as a mixed one, but teaches nothing about being right. A
# problem that is truly always or never solved gives only such groups. (A format reward may still differ within its
# group. The model then learns the form and no arithmetic.) So train on a source with blue problems. Here each of the
# two sources of word problems has 11 among its 32, and both could start. They differ in what can follow. Most grey
# problems of the common kinds are solved each time, so little is left to gain on them. Most grey problems of the rare
# kinds are never solved. What the model learns from the blue problems of a kind may carry over to these, and then they
# turn blue. So the rare kinds have more room, and chapter 04 trains on them.
#
# A person would call sums such as `4 - 1` easier than a word problem. The tiny model solves none of them in any try,
# probably because it was never trained on such sentences (an answer without the tags also counts as wrong here). What
# a model can solve depends on what it was trained on, and nothing in a data file shows that.
#
# Eight tries are few. Take a problem that the model solves once in twenty tries. All eight tries at it fail with a
# probability of 0.95⁸ = 0.66. So a grey bar at 0 also contains problems that a longer run could learn. In the same way,
# a problem that is solved nine times in ten passes all eight tries with a probability of 0.9⁸ = 0.43, so the bar at 8
# can contain problems that the model still gets wrong at times. [Chapter 07](07_stages_and_curriculum.ipynb) filters
# problems by these rates.

# %% [markdown]
# ### Exercise 02.2 · `mixed_groups` · medium · 12 minutes
#
# Each problem was tried `tries` times, and `right` has the number of right answers to each problem. You will train with
# groups of `size` answers. Which fraction of the groups can you expect to be mixed? For one problem, imagine that a
# group is drawn from its tries at random, each try at most once: the group is mixed unless all of its answers are right
# or all are wrong. Return the mean of this probability over the problems. (Why at most once? If you put the measured
# rate p of a problem into 1 - pⁿ - (1 - p)ⁿ instead, few tries give too low a result on average.)

# %% tags=["exercise"]
def mixed_groups(right: list[int], tries: int, size: int) -> float:
    raise NotImplementedError


check("02.2", mixed_groups);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `math.comb(n, k)` is the number of ways to draw k of n. Of how many groups of `size` tries, drawn from all tries, are
# all answers right? Of how many are all wrong? Chapter 08 computes pass@k in the same way.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def mixed_groups(right: list[int], tries: int, size: int) -> float:
#     from math import comb
#
#     total = 0.0
#     for count in right:
#         equal = comb(count, size) + comb(tries - count, size)
#         total += 1 - equal / comb(tries, size)
#     return total / len(right)
# ```
#
# </details>
#
# Now use this function to choose a source and a group size. The last column shows what one would expect for groups of
# 8 from the mean solve rate p alone, as if all problems of a source were equally hard: 1 - p⁸ - (1 - p)⁸. (Until your
# function is right, the cell takes the course's.)

# %%
from grpo_workbook.exercises import judge
from grpo_workbook.exercises.ch02 import correct_mixed_groups

if judge("02.2", mixed_groups).status != "solved":
    mixed_groups = correct_mixed_groups
print("mixed groups   size 2   size 4   size 8   mean rate   from the mean rate")
for name, rates in solve_rates.items():
    counts = np.rint(8 * np.array(rates)).astype(int)
    right = counts.tolist()
    print(f"{name:14}", end="")
    for size in (2, 4, 8):
        print(f"{mixed_groups(right, 8, size):9.0%}", end="")
    mean_rate = sum(right) / (8 * len(right))
    if_alike = 1 - mean_rate**8 - (1 - mean_rate) ** 8
    print(f"{mean_rate:12.0%}{if_alike:21.0%}")

# %% [markdown]
# First, the mean rate of a source misleads. The model solves the rare kinds in 26 % of its tries. If all of these
# problems were equally hard, 91 % of the groups of 8 would be mixed. In fact 34 % are, because in eight tries 19 of the
# 32 problems were never solved and 2 each time. So measure the problems one by one, and do not judge a source by its
# mean.
#
# Second, a smaller group is mixed less often. Suppose that a step can afford 64 answers to problems of the rare kinds.
# In groups of 8, 34 % of these answers can have an advantage from correctness, in groups of 2 only 14 %. The price is
# variety: 8 groups of 8 see 8 problems in a step, of which about 3 give a mixed group; 32 groups of 2 see 32, of which
# 4 or 5 do. We choose groups of 8: more than twice as many answers can then have an advantage, and the mean of a group
# is less noisy. This is a rule of thumb and no measurement of learning: with groups of 2, a step would learn from more
# problems. The table does not decide between the two sources of word problems either: their small differences at sizes
# 2 and 4 may be chance with 32 problems each. But it rules out the sums, which gave no mixed group of any size.
#
# ## Invalid rows
#
# Here is a file with four kinds of invalid row among eight:

# %%
import json
import tempfile
from pathlib import Path

good = []
for i in range(1, 5):
    good.append({"question": f"What is {i} + {i}?", "answer": str(2 * i)})
bad = [
    {"question": "What is 5 + 5?"},
    {"question": " ", "answer": "12"},
    {"question": "Why?", "answer": "no idea"},
    {"question": 8, "answer": 16},
]
folder = tempfile.TemporaryDirectory()
messy = Path(folder.name) / "messy.jsonl"
lines = [json.dumps(row) for row in good + bad]
messy.write_text("\n".join(lines) + "\n");

# %% [markdown]
# Loading stops and names the first invalid row, its value and the fix. It never drops rows silently, because nobody
# would notice whether 5 rows or 5,000 were gone.

# %%
from grpo_workbook import WorkbookError

try:
    load_problems(messy)
except WorkbookError as error:
    print(error)

# %% [markdown]
# If you want to drop the invalid rows, `check_problems` returns the valid rows, and for each invalid row the reason.

# %%
from grpo_workbook.data import check_problems

kept, dropped = check_problems(messy)
print(len(kept), "rows kept")
for number, reason in dropped.items():
    print(f"row {number}: {reason}")

# %% [markdown]
# A file with a damaged line (not JSON, or not UTF-8) is refused as a whole, because other lines may be damaged too.

# %% [markdown]
# ## The prompt budget
#
# Older guides pass `max_prompt_length` and let TRL cut long prompts. TRL 1.15 has no such argument: **it does not
# truncate prompts**. One long prompt pads all prompts of the batch to its length, and the memory of the whole batch
# grows.

# %%
from trl import GRPOConfig

try:
    GRPOConfig(output_dir="unused", max_prompt_length=160)
except TypeError as error:
    print(error)

# %% [markdown]
# Truncation would be wrong anyway. The old argument cut a prompt from the left, so a long prompt lost its system
# message and the first facts of its problem, and the model was then penalised for wrong answers to a question that it
# could not read. So measure the prompts in tokens, with the model's own tokenizer and template, and drop the rows that
# are over your budget. But look at these rows first. To show why, the next cell takes a very small budget that keeps
# about nine tenths of the prompts:

# %%
from grpo_workbook import drop_long_prompts
from grpo_workbook.data.prompts import prompt_lengths

lengths = np.array(prompt_lengths(train_set, tokenizer))
steps = np.array([solution.count("<<") for solution in train["solution"]])
budget = int(np.percentile(lengths, 90)) - 1
fitting, long_prompts = drop_long_prompts(train_set, tokenizer, budget)
print(f"a budget of {budget} tokens drops {long_prompts} of {len(train_set)} prompts")
print("longest prompt:", lengths.max(), "tokens")
print("budget of the profile:", profile.max_prompt_length)

# %% [markdown]
# A budget can change what a dataset is about. A solution has one step for each `<<`. The figure counts the problems
# by the length of their prompts. Grey problems have one step in their solution, and blue ones, on top of them, have
# two. The dotted line is the budget.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.8)
bins = np.arange(lengths.min(), lengths.max() + 2) - 0.5
parts = [lengths[steps == 1], lengths[steps == 2]]
colours = [figures.GREY, figures.BLUE]
axes.hist(parts, bins, stacked=True, color=colours, label=["one step", "two steps"])
axes.axvline(budget + 0.5, color="black", linestyle=":")
axes.text(budget + 1, axes.get_ylim()[1] * 0.9, "dropped →")
of_all = float((steps == 2).mean())
of_kept = float((steps[lengths <= budget] == 2).mean())
of_dropped = float((steps[lengths > budget] == 2).mean())
axes.set(xlabel="length of the prompt in tokens", ylabel="problems")
two_step_loss = float((lengths[steps == 2] > budget).mean())
title = f"A budget of {budget} tokens drops only two-step problems"
axes.set_title(f"{title}: {two_step_loss:.0%} of them")
axes.legend(frameon=False, loc="upper left")
figures.show(
    figure,
    "Histogram of the prompts' lengths in tokens, for problems of one and two steps. "
    f"Those of two are {of_all:.0%} of all, {of_dropped:.0%} of those over {budget}, "
    f"and {of_kept:.0%} of those that are left.",
)

# %% [markdown]
# All 266 dropped problems have two steps, because a problem of two steps needs more words. So one in seven of the
# two-step problems is gone, and no problem of one step. A budget therefore changes the mixture of the problems, here a
# little, elsewhere perhaps much. Long prompts do cost memory, because a prompt is stored once per completion: 512
# tokens in groups of 16 are 8,192 prompt tokens for one problem. The budget of the profile, 160 tokens, drops none of
# these prompts. Take a smaller one only if your memory requires it.

# %% [markdown]
# ## Duplicates
#
# A question that appears twice counts twice in training. Worse, one copy may end up in the held-out set. The next cell
# compares four questions that resemble each other in three ways:

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
# Each output maps a row to the earlier row that it repeats. Rows 0 and 1 differ only in case and punctuation. (The
# first output names row 1, so the second one leaves it out.) Row 2 is a **near-duplicate** of row 0: it has the same
# numbers and arithmetic signs in the same order, and at least 80 % of the words in common (words in both questions,
# divided by words in either; a number counts as a word here). Row 3 has other numbers, so it is another problem from
# the same **sentence template**. `4 + 1` and `4 - 1` are two problems as well.
#
# ## Leakage
#
# A **leak** is a problem that is in both sets, for training and held out, unchanged or as a near-duplicate. A wrong
# template makes a score worse, and somebody will look for the cause. A leak makes the score *better*, and nobody looks.
# How much better? The worst case is a "model" that has only memorized the training set: it looks up each question, and
# guesses the commonest answer if it does not find the question. The next cell replaces more and more of the held-out
# rows by copies of training rows.

# %%
memory = dict(zip(train["question"], train["answer"]))
guess = Counter(memory.values()).most_common(1)[0][0]
clean = heldout.to_list()
known = train.to_list()
for leaks in (0, 24, 120, 240):
    right = 0
    for problem in known[:leaks] + clean[leaks:]:
        right += memory.get(problem["question"], guess) == problem["answer"]
    print(f"{leaks / 480:4.0%} of the held-out rows are leaks: score {right / 480:.1%}")

# %% [markdown]
# This "model" has no skill at all. Real models memorize, too: [Wu et al. 2025](https://arxiv.org/abs/2507.10532) gave
# Qwen2.5-Math-7B the first 60 % of each problem of MATH-500, a well-known test set, and it wrote the rest of 54.6 % of
# them word for word. On such a test set, even training with random rewards seemed to help. You cannot undo a leak into
# somebody's pretraining, so also measure with problems that are newer than the model, or made by a program. But copies
# and near-copies between your own two files can be found, and dropped from the training set:

# %%
from datasets import Dataset
from grpo_workbook import drop_leaked, leaked_rows

leaky = Dataset.from_list(known[:24] + clean[24:])
print(len(leaked_rows(train, leaky)), "training rows are held out too")
safe, dropped = drop_leaked(train, leaky)
print(len(safe), "training rows are left,", dropped, "dropped")
print(len(leaked_rows(train, heldout)), "leaks in the course's own split")

# %% [markdown]
# In the exercise below, you get a training file and a held-out file that share problems. The next cell prepares this
# pair. It puts copies of held-out rows into the training file: some unchanged, some in capitals without punctuation,
# and some with a word more.

# %%
import random

heldout_questions = heldout["question"][:160]
heldout_answers = heldout["answer"][:160]
suspect_questions = train["question"][:640]
suspect_answers = train["answer"][:640]
planted = random.Random(0).sample(range(640), 48)
for number, place in enumerate(planted):
    question = heldout_questions[number]
    capitals = question.upper().replace(",", "").replace(".", "").replace("?", "")
    copies = [question, capitals, f"Quiz: {question}"]
    suspect_questions[place] = copies[number % 3]
    suspect_answers[place] = heldout_answers[number]

# %% [markdown]
# ### Exercise 02.3 · `rows_to_drop` · medium · 12 minutes
#
# Find the leaks yourself. `train` and `heldout` are lists of questions. Return the indices of the training questions
# that are held out too, from small to large. A copy may be written in other capitals or without punctuation, it may
# name another person, or it may have a word in front. Three kinds of question are *no* copies and must stay: the same
# sentence with other numbers (or with the numbers exchanged), another problem that happens to have the same numbers,
# and the same sum with another sign (`4 + 1` and `4 - 1`). Write the rule yourself, without the functions of
# `duplicates`: the rule of the section above is one, others pass too. The check has files with copies that were
# disguised at random: it wants all of them, and no other row.

# %% tags=["exercise"]
def rows_to_drop(train: list[str], heldout: list[str]) -> list[int]:
    raise NotImplementedError


check("02.3", rows_to_drop);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Take the rule from above: the same numbers and signs in the same order, and at least 80 % of the words in common.
# `re.findall(r"[a-z]+", text.lower())` finds the words (the numbers may be left out of them),
# `re.findall(r"\d+|[-+*/]", text)` the numbers and signs. Compare the numbers and signs as lists and the words as sets:
# `a & b` has the words in both sets, `a | b` those in either.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def rows_to_drop(train: list[str], heldout: list[str]) -> list[int]:
#     import re
#
#     def read(text):
#         words = set(re.findall(r"[a-z]+", text.lower()))
#         return re.findall(r"\d+|[-+*/]", text), words
#
#     known = [read(text) for text in heldout]
#     rows = []
#     for row, text in enumerate(train):
#         numbers, words = read(text)
#         for other_numbers, other_words in known:
#             alike = len(words & other_words) >= 0.8 * len(words | other_words)
#             if numbers == other_numbers and alike:
#                 rows.append(row)
#                 break
#     return rows
# ```
#
# </details>
#
# Does it matter? Take a second "model" without skill. Unlike the first, it need not find the question itself: it takes
# the training question that has most words and numbers in common with the one asked, and gives its answer. The cell
# prints its held-out score with the suspect file, then without the training rows that are equal to a held-out question
# letter by letter, and last without the rows that your function finds. (Until your function is right, the cell takes
# the course's `leaked_rows`.)

# %%
suspect_pieces = [set(duplicates.pieces(text)) for text in suspect_questions]


def outcomes_without(dropped_rows):
    """For each held-out question, whether the most similar training row is right."""
    outcomes = []
    for question, answer in zip(heldout_questions, heldout_answers):
        asked = set(duplicates.pieces(question))
        best, best_answer = 0.0, ""
        for row, known_pieces in enumerate(suspect_pieces):
            similarity = len(asked & known_pieces) / len(asked | known_pieces)
            if similarity > best and row not in dropped_rows:
                best, best_answer = similarity, suspect_answers[row]
        outcomes.append(best_answer == answer)
    return outcomes


equal = [i for i in range(640) if suspect_questions[i] in heldout_questions]
if judge("02.3", rows_to_drop).status == "solved":
    drop = rows_to_drop(suspect_questions, heldout_questions)
else:
    suspect_set = Dataset.from_dict({"question": suspect_questions})
    drop = list(leaked_rows(suspect_set, heldout.select(range(160))))
results = {}
for name, rows in {"nothing": [], "equal rows": equal, "leaks": drop}.items():
    copies = len(set(rows) & set(planted))
    results[name] = outcomes_without(rows)
    score = sum(results[name]) / 160
    print(f"dropped {name:10} {len(rows):2} rows, {copies:2} copies: {score:.1%} right")

# %% [markdown]
# In the figure, a bar is the number of right answers to the 160 held-out questions, and the number at its end is the
# score. Orange (hatched) are the answers to the 48 questions that were copied into the training file, grey those to the
# 112 other questions:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.4)
names, copied, others, scores = [], [], [], []
for name, right in results.items():
    names.append(f"dropped: {name}")
    copied.append(sum(right[: len(planted)]))
    others.append(sum(right[len(planted) :]))
    scores.append(f"{sum(right) / 160:.1%}")
axes.barh(names, others, color=figures.GREY, label="to other questions")
bars = axes.barh(
    names, copied, left=others, color=figures.ORANGE, hatch="//", edgecolor="white",
    label="to copied questions",
)
axes.bar_label(bars, scores, padding=6)
axes.invert_yaxis()
axes.grid(False)
axes.margins(x=0.12)
title = f"No skill: {scores[0]} right with all copies, {scores[-1]} without"
axes.set(xlabel="right answers, to 160 held-out questions", title=title)
axes.legend(frameon=False, loc="lower right")
words = "Bars of right answers to copied and to other questions, by what was dropped: "
figures.show(figure, f"{words}{names}, copied {copied}, others {others}.")

# %% [markdown]
# A comparison letter by letter finds 16 of the 48 copies, a third, and leaves a score of 25.0 %. That is still far too
# high: without all 48 copies the score is 4.4 %. This rest needs no leak, because some similar problems have the same
# answer by chance.
#
# The rule found all 48 copies because they were disguised in ways that it knows. It misses a problem that was reworded
# or translated, or that has "twelve" for 12. It also takes some different problems for copies, because it ignores the
# order of the words: "6 get off and 5 get on" and "6 get on and 5 get off" are one problem to it, with two answers. And
# it needs numbers to tell problems apart. Of two questions without numbers that differ in one word, the rule says that
# they are copies if the sentence has at least nine different words, as in "How many vowels are there in the English
# word banana?" and the same with "orange". So read the pairs that it reports, and where it is wrong for your kind of
# question, drop exact repeats only. To find reworded copies, people compare embeddings or ask a language model. So "0
# leaks" means: none that this rule can see.
#
# ## Diversity
#
# A score on rows that are all alike says little about other problems. Three numbers show cheaply how diverse the rows
# are: the number of different sentences once all numbers are masked, the rate of the commonest answer (a model that
# always guesses this answer is right at this rate), and the number of repeated rows.

# %%
sources = {"word problems": train, "knowledge": knowledge, "easy sums": easy}
for name, rows in sources.items():
    table = rows.to_pandas()
    templates_used = table["question"].map(duplicates.template).nunique()
    commonest = table["answer"].value_counts(normalize=True).max()
    repeats = len(duplicates.same_questions(table["question"]))
    print(
        f"{name:14} sentences {templates_used:4} of {len(table):4}   "
        f"commonest answer {commonest:.1%}   repeats {repeats}"
    )
print(len(set(train["kind"])), "kinds of word problem, of which", end=" ")
print(len(set(rare["kind"])), "are rare")

# %% [markdown]
# All easy sums use one sentence, with a plus or a minus, and a third of them are repeats. Different sentences need
# not be different problems. The word problems come from only 16 kinds of problem: other names and things make many
# different sentences of one kind. A held-out score on them shows that a skill carries over to new numbers, not to new
# kinds of problem. To measure that, hold out all rows of one kind, such as those with the kind `bus_stop`.

# %% [markdown]
# ## A split that you can trust
#
# The order of the steps matters. If you split before you drop repeats, two copies of a row can end up on different
# sides, where they are leaks, or both on the held-out side, where the problem counts twice. Why look for leaks after
# the split, if the repeats are gone? If step 2 also drops near-duplicates, as below, step 4 should find nothing; it is
# then a check that costs one line. It has work to do if step 2 dropped only exact repeats, or if the held-out set comes
# from another file, such as a public test set. The figure shows the right order:

# %% tags=["hide-input"]
boxes = {
    "file": (0.06, 0.45, "your\nfile", pale["data"]),
    "valid": (0.22, 0.45, "1 drop\ninvalid rows", pale["check"]),
    "once": (0.39, 0.45, "2 drop\nrepeats", pale["check"]),
    "split": (0.55, 0.45, "3 split,\nstratified", pale["check"]),
    "leaks": (0.74, 0.72, "4 drop\nleaks", pale["check"]),
    "train": (0.92, 0.72, "training", pale["data"]),
    "held": (0.74, 0.18, "held out", pale["data"]),
}
arrows = [
    ("file", "valid", ""), ("valid", "once", ""), ("once", "split", ""),
    ("split", "leaks", ""), ("leaks", "train", ""),
    ("split", "held", ""), ("held", "leaks", "compare"),
]
figure = figures.diagram(boxes, arrows, (9, 2.6))
figure.suptitle("Drop repeats before the split, and leaks after it")
figures.show(
    figure,
    "Four steps: drop invalid rows, drop repeats, split (stratified), drop leaks. The "
    "last step compares the training rows with the held-out rows.",
)

# %% [markdown]
# The easy sums contain repeats, so they show what happens if the second step is left out. `split` never holds out more
# than a fifth of the rows, here 40 of the 200 with repeats. The cell counts the leaks in both cases:

# %%
from grpo_workbook import split

repeats = duplicates.same_questions(easy["question"])
kept = [i for i in range(len(easy)) if i not in repeats]
once = easy.select(kept)
for name, rows in {"with repeats": easy, "without": once}.items():
    train_part, heldout_part = split(rows, heldout=40, seed=0)
    leaks = leaked_rows(train_part, heldout_part)
    print(f"{name:12} {len(leaks)} of {len(train_part)} training rows are held out too")

# %% [markdown]
# `split` uses a **seed**, so the same rows are held out each time. It is **stratified**: problems of each difficulty
# have the same share in both parts. Otherwise chance may put more of the hard problems on one side, and the held-out
# score is then higher or lower than it should be. `split` takes the length of the question as its difficulty, which is
# only a cheap stand-in, or the column that you name with `by`. Here this is the number of steps in the solution; solve
# rates of your model, grouped into a few classes, are better still. (It calls `Dataset.train_test_split` with
# `stratify_by_column`.)

# %%
with_steps = train.add_column("steps", steps.tolist())
train_part, heldout_part = split(with_steps, heldout=100, seed=0, by="steps")
for name, part in {"train": train_part, "held out": heldout_part}.items():
    rates = part.to_pandas()["steps"].value_counts(normalize=True)
    print(f"{name:9} {len(part):5} rows: one step {rates[1]:.1%}, two {rates[2]:.1%}")
print("leaks:", len(leaked_rows(train_part, heldout_part)))

# %% [markdown]
# ## Your own file
#
# Name your file and its columns here. If you name none, the notebook takes a file with the easy sums and the invalid
# rows from above. The tiny model of this profile spells many ordinary words letter by letter and knows only its own
# problems: you can check a file of your own here, but train on that file with a real model.

# %%
MY_FILE = None  # "my.csv", "my.jsonl", "my.parquet" or a hub id
MY_COLUMNS = {"question_column": "question", "answer_column": "answer"}

if MY_FILE is None:
    MY_FILE = Path(folder.name) / "mine.jsonl"
    rows = bad + easy.select_columns(["question", "answer"]).to_list()
    MY_FILE.write_text("\n".join([json.dumps(row) for row in rows]))

# %% [markdown]
# The next cell does the four steps, and applies the prompt budget before the split. With the repeats it also drops
# near-duplicates (in a file of your own, read these pairs first). `split` holds out 100 rows, but at most a fifth of
# all. The cell writes two files, one for training and one for measuring:

# %%
valid, invalid = check_problems(MY_FILE, **MY_COLUMNS)
counts = {"in the file": len(valid) + len(invalid), "valid": len(valid)}
asked = valid["question"][:]
repeats = {**duplicates.near_duplicates(asked), **duplicates.same_questions(asked)}
kept = [i for i in range(len(valid)) if i not in repeats]
once = valid.select(kept)
counts["no repeats"] = len(once)
mine, _ = drop_long_prompts(to_dataset(once), tokenizer, profile.max_prompt_length)
counts["within the budget"] = len(mine)
my_train, my_heldout = split(mine, heldout=100, seed=profile.seed)
my_train, _ = drop_leaked(my_train, my_heldout)
counts["for training"] = len(my_train)
counts["held out"] = len(my_heldout)
for name, part in {"train": my_train, "heldout": my_heldout}.items():
    part.remove_columns("prompt").to_json(profile.output / "my_data" / f"{name}.jsonl")

# %% [markdown]
# In the figure, each grey bar shows how many rows are left after a step; the two blue bars are the two files. The lines
# below the figure give the reason for each invalid row. If a step drops more rows than you expected, read those rows
# before you go on. Few held-out rows measure a gain only roughly: with 26 of them, the 95 % interval of an accuracy of
# one half reaches 18 points up and down ([chapter 08](08_evaluation.ipynb)). For training, count what a run reads: its
# steps times the problems of a step. The run of chapter 00, 40 steps of 10 problems, would read these 106 rows nearly
# four times each. GRPO can learn from a row several times, as long as its group stays mixed. The held-out rows show
# whether the model only memorizes its training rows. Once most of these are solved each time, you need new ones.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.6)
colours = [figures.GREY] * 4 + [figures.BLUE] * 2
bars = axes.barh(list(counts), counts.values(), color=colours)
axes.bar_label(bars, padding=4)
axes.invert_yaxis()
axes.grid(False)
title = f"Of {counts['in the file']} rows, {len(my_train)} are left for training"
axes.set(xlabel="rows", title=title)
words = ", ".join([f"{count} {name}" for name, count in counts.items()])
figures.show(figure, f"Rows after each step: {words}.")
for number in list(invalid)[:5]:
    print(f"row {number}: {invalid[number]}")

# %% [markdown]
# Read a few of your prompts in full, with the answer that the reward will compare with.

# %%
print(render([my_train[0]["prompt"]], tokenizer)[0], "\nanswer:", my_train[0]["answer"])

# %% [markdown]
# No step so far has asked the question that a file cannot answer: can your model learn from these rows? So measure
# solve rates on the training rows, as above, with the model that you will train. (For your own model, give
# `model="Qwen/Qwen3-0.6B"` to `choose_profile` in the cell that loads the tiny model, and run the notebook again
# on a GPU. On a CPU, the profile ends each answer after 64 tokens, often too early for a real model.)

# %%
some = my_train.select(range(min(32, len(my_train))))
rates = pass_rates(
    model, tokenizer, some, samples=8,
    max_new_tokens=profile.grpo["max_completion_length"],
    batch_size=profile.eval_batch_size, progress=None,
)
sometimes = sum(0 < rate < 1 for rate in rates)
print(f"{sometimes} of {len(rates)} problems: solved in some of 8 tries, not in all")

# %% [markdown]
# What is left of the file with the easy sums passes the other checks and fails this one. Do not start a run with such a
# file: choose problems that your model solves sometimes, or a model that solves some of these.
#
# In a terminal, `check-data` looks for invalid rows, repeats, long prompts and leaks, and lists at the end what would
# hurt training. If it lists anything, its exit status is 1. It runs no model, so it does not measure solve rates. The
# command `run` trains on the first of the two files and measures with the second. Both count the prompts in the tokens
# of the model that `--model` names, so give the model that you will train. Without `--model`, they take the profile's
# model.
#
# ```bash
# python -m grpo_workbook check-data my.csv --question-column problem --answer-column result \
#     --model Qwen/Qwen3-0.6B
# python -m grpo_workbook check-data train.jsonl --heldout-data heldout.jsonl --json report.json \
#     --model Qwen/Qwen3-0.6B
# python -m grpo_workbook run --data train.jsonl --heldout-data heldout.jsonl --output-dir outputs/mine \
#     --model Qwen/Qwen3-0.6B
# ```

# %% [markdown]
# ## Exercises
#
# The exercises 02.1 to 02.3 stand above. In the next one, predict what a change will do, and run the cell. In the last
# one, write the function. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 02.4 · `one_problem` · medium · 8 minutes
#
# How much data does GRPO need? Train for 24 steps on one single problem: in every step, all groups answer the same
# question. What happens to the rate of strictly right answers on 160 *other* problems? Predict "rises", "stays" or
# "falls". The run takes about 40 seconds, with the trainer of chapter 01 and the model *tiny-form*, which can solve the
# problems but writes its answers in messy forms.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rises", "stays" or "falls"


def one_problem() -> dict:
    """Held-out accuracy before and after 24 steps on one problem."""
    from grpo_workbook import ScratchTrainer, parse_rewards
    from grpo_workbook.config import DATA, REWARDS
    from peft import LoraConfig, get_peft_model

    lora = LoraConfig(r=16, lora_alpha=32, target_modules="all-linear")
    tiny_form = DATA / "tiny-form"
    dtype, device = profile.dtype, profile.device
    base, form_tokenizer = load_model(tiny_form, dtype=dtype, device=device)
    rewards, weights = parse_rewards(REWARDS)
    before = ask(questions, form_tokenizer, base)
    policy = get_peft_model(base, lora)
    trainer = ScratchTrainer(policy, form_tokenizer, rewards, weights)
    batch = [train_set[0]] * 8  # eight groups, all with the same question
    zero_variance = []
    for _ in range(24):
        metrics = trainer.step(batch)
        zero_variance.append(metrics["frac_reward_zero_std"])
    after = ask(questions, form_tokenizer, trainer.model)
    return {"before": before.rate, "after": after.rate, "zero": zero_variance}


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
# The form is the same for every problem, so one problem can teach it. In our run (one seed) the strict rate on the
# other problems rose from 16 % to 70 %, by far more than the 11 points of two standard errors. In the last step all
# groups had zero variance: without a difference in the rewards there is no advantage, so that step taught nothing.
# Other problems, whose groups are still mixed, would give advantages again. (Is the gain really form? Print
# `sum(before.lenient)` and `sum(after.lenient)` in the function: they count right numbers in any form.)
#
# [Wang et al. 2025](https://arxiv.org/abs/2504.20571) trained Qwen2.5-Math-1.5B on one problem: its score on MATH500
# rose from 36.0 % to 73.6 %, and 8.6 points of this gain go beyond the form. There the score went on rising long after
# the one problem was solved nearly every time. Two differences from our run may explain this: nearly is not always, so
# a few groups may still have been mixed; and their loss has an entropy term, which gives a gradient even without an
# advantage. Read the score with care: the section on leakage names this test set as one that a model of the same family
# had partly memorized.
#
# </details>

# %% [markdown]
# ### Exercise 02.5 · `my_rows` · medium · 20 minutes
#
# Make the data for a task of your own. Return two lists of rows, one to train on and one to hold out, with at least 64
# rows each. A row is a dict with `question` and `answer`, both texts (`"17"`, not `17`). Write a program that makes the
# rows (unit conversions, dates, spelling, ...), or read your own file. The check requires what this chapter requires of
# a file: valid rows, no repeats and no near-duplicates within a list, no leak from one list to the other, no answer
# that is right for more than a fifth of a list, at most half of the questions of a list that end with their answers (in
# `Which is larger, 12 or 17?` this happens by chance), and the same rows each time. It cannot know whether your answers
# are right: read ten of them.

# %% tags=["exercise"]
def my_rows() -> tuple[list[dict], list[dict]]:
    raise NotImplementedError


check("02.5", my_rows);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `random.Random(0)` makes the same rows each time. Two rows are near-duplicates if they have the same numbers and
# signs, and nearly the same words, so let the numbers differ: take them from `random.sample`, which repeats nothing.
# Without numbers, as in spelling, questions from one sentence must be short: if they differ in one word, at most eight
# different words each. Make all rows first, and then divide them.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_rows() -> tuple[list[dict], list[dict]]:
#     import random
#
#     rows = []
#     for minutes in random.Random(0).sample(range(61, 600), 200):
#         question = f"A film lasts {minutes} minutes. How many minutes are left after the last full hour?"
#         rows.append({"question": question, "answer": str(minutes % 60)})
#     return rows[:100], rows[100:]
# ```
#
# `Dataset.from_list(rows).to_json("train.jsonl")` writes a list to a file, and the command `run` above trains on it.
#
# </details>

# %% [markdown]
# ## Summary
#
# What must be true of your data before GRPO can learn from it?
#
# - The prompts use the chat template that the model was trained with, and measurement and training use the same options
#   of it. Render a prompt for every model that you train, and read it.
# - Each row has a question, as a conversation, and an answer that a program can check. Other columns reach the rewards
#   unchanged. Read the reason for each invalid row before you drop it.
# - Your model solves some of the problems in some tries and not in others. Measure this with a few tries at each.
# - No prompt is longer than you can afford, and you have looked at what the budget drops. TRL truncates nothing.
# - Repeats were dropped before the split, the split has a seed and the same difficulty on both sides, and no copy or
#   near-copy of a held-out row is left in the training set.
#
# Next: [03 · Reward design](03_reward_design.ipynb) scores the answers to such prompts.
