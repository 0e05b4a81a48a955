# %% [markdown]
# # 17 · Your own project
#
# How do you get from a raw file of your own to a trained model that others can trust? A gain is easy to claim and easy
# to get wrong. The same question may stand in both parts of the data, the reward may pay for something else, or the
# model may have learned a form instead of a skill. This chapter goes the whole way once, from the file to a model card
# with a checklist, and each claim on the card is backed by a file that a step wrote.
#
# **After this notebook you can** clean and split your own data, attack your own rewards, train and merge a model, and
# say on one page what the model gained and what it did not gain.
#
# **Time:** about 2 minutes on two CPU cores; more than half of it is the training run. (The stored run was made on a
# slower machine, so its bar shows a longer time.) Reading takes about 30 minutes. **You need** the chapters 00 to 05,
# 08 and 09.

# %% [markdown]
# ## The steps
#
# Most of what the steps find out is written to files, and the checklist at the end reads these files. So the checklist
# judges what the run left on the disk, and not what you remember of it. In the picture, the numbers are those of the
# sections below, and the names of files stand under the steps that write them. (Step 10 also stores the measurements of
# the steps 6 and 9.) Data are blue, checks green, measurements orange, and the steps that make a model white. The grey
# box is your own part:

# %% tags=["hide-input"]
from grpo_workbook import figures, quiet, use_one_thread

quiet()  # fewer warnings of the libraries
use_one_thread()  # for a tiny model several threads only wait for each other
pale = figures.PALE
blue, white = pale["data"], pale["model"]
green, orange = pale["check"], pale["number"]
boxes = {}
boxes["raw"] = (0.06, 0.82, "1 · your\nraw file", blue)
clean_files = "train.jsonl, heldout.jsonl\ndata_report.json"
boxes["clean"] = (0.25, 0.82, f"2 · clean, split\n{clean_files}", blue)
boxes["rewards"] = (0.5, 0.82, "3 · rewards, attacked\nattacks.json", green)
boxes["groups"] = (0.72, 0.82, "4, 5 · can it learn?\nDoes it fit?", green)
boxes["before"] = (0.92, 0.82, "6 · baseline", orange)
boxes["train"] = (0.92, 0.45, "7 · GRPO run\nrun.json, log.json", white)
boxes["health"] = (0.64, 0.45, "8 · diagnosis", green)
boxes["after"] = (0.37, 0.45, "9 · held-out again\nheldout_answers.jsonl", orange)
merge_files = "report.json\nadapter/, merged/"
boxes["merge"] = (0.1, 0.45, f"10 · report, merge, card\n{merge_files}", white)
boxes["list"] = (0.25, 0.08, "11 · checklist", green)
boxes["you"] = (0.62, 0.08, "what no program checks:\nread completions", pale["off"])
order = list(boxes)
arrows = []
for start, end in zip(order, order[1:]):
    arrows.append((start, end, "every file" if end == "list" else ""))
figure = figures.diagram(boxes, arrows, (10.0, 3.8))
figure.suptitle("The eleven steps, and the files that they write", y=1.03)
figures.show(figure, "Boxes in order: raw file, clean and split, rewards attacked, "
             "groups and memory, baseline, GRPO run, diagnosis, held-out again, "
             "report, merge and card, checklist, your own reading.")

# %% [markdown]
# ## What is yours
#
# For a project of your own you change two things: the values in the next cell, and the reward and its honest answer in
# step 3. Run the chapter once as it is, on an example. Then change both and go through the chapter again. `MY_FILE` may
# be a CSV, JSON lines or Parquet file, or the id of a data set on the Hugging Face hub.
#
# **Your own file needs a real model.** The tiny model of the profile *smoke* can read only the course's word problems:
# its tokenizer splits ordinary English almost into letters. Step 1 measures this and stops if the tokenizer does not
# fit your text. With `MY_PROFILE = None` the chapter takes the model that fits your GPU. Then set more steps and more
# held-out problems (for example 250 and 400), and expect the run to take hours. (All results that this chapter shows
# are those of the tiny model.)

# %%
MY_FILE = None  # "my.csv", "my.jsonl", "owner/name:config:split"; None: the example
QUESTION_COLUMN = "question"
ANSWER_COLUMN = "answer"
ANSWER_FORM = "auto"  # "number" or "text" settles it for all rows
MY_PROMPT = "Work inside <reasoning> tags, then give the number inside <answer> tags."
MY_PROFILE = "smoke"  # the tiny model; None: the model that fits your GPU
MY_STEPS = 60
MY_HELDOUT = 120  # problems that training never sees
MY_JUDGE = None  # for answers that are texts: a function (answer, reference) -> bool

# %% [markdown]
# The next cell chooses the settings for your machine. All files go into one folder. Unsloth must be imported before TRL
# and Transformers, because it changes parts of both.

# %%
import os

from grpo_workbook import choose_profile

profile = choose_profile(
    default=MY_PROFILE, heldout=MY_HELDOUT, system_prompt=MY_PROMPT,
    grpo={"max_steps": MY_STEPS},
)
folder = profile.output / "capstone"
folder.mkdir(parents=True, exist_ok=True)
data_is_here = MY_FILE is None or os.path.exists(MY_FILE)
if os.path.isdir(profile.model) and data_is_here:
    os.environ["HF_HUB_OFFLINE"] = "1"  # all is on this disk: no network needed
import unsloth

print(profile)

# %% [markdown]
# ## 1 · The raw file
#
# If you gave no file, the next cell writes one: 720 word problems of the course, with the faults that real files have.
# They are of the six *rare* kinds, of which the tiny model has seen only four worked examples each ([its
# card](../data/tiny-qwen3/README.md)), so there is something to learn. Some rows repeat another row, some contradict
# another row, and some have no answer. The columns also have other names than the course's.

# %%
import csv
import random

from grpo_workbook import data, load_problems


def write_example(path):
    problems = load_problems(data.WORD_PROBLEMS["train"])
    problems = problems.filter(lambda row: row["rare"])
    rows = list(zip(problems["question"][:720], problems["answer"][:720]))
    faults = []
    for question, answer in rows[:40]:
        faults.append((question.upper(), answer))  # the same question again
    for question, answer in rows[40:70]:
        faults.append((f"Please: {question}", answer))  # nearly the same
    for question, answer in rows[70:80]:
        faults.append((question, int(answer) + 1))  # a second answer
    for question, answer in rows[80:90]:
        faults.append((f"{question} (open)", ""))  # no answer
    for question, answer in rows[90:96]:
        faults.append((f"{question} (open)", "see page 7"))
    rows = rows + faults
    random.Random(0).shuffle(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("task", "result"), *rows])

# %% [markdown]
# Write the file, unless you have one.

# %%
if MY_FILE is None:
    MY_FILE = folder / "raw.csv"
    QUESTION_COLUMN = "task"
    ANSWER_COLUMN = "result"
    write_example(MY_FILE)

# %% [markdown]
# Look at the file before you change it. The command `check-data` lists what would hurt training. Its exit status is 1
# if it finds something. In the list, `budget` is the largest number of tokens that a prompt may have. `same question`
# counts the rows that repeat an earlier question, `near` those that nearly repeat one, and `other answer` the repeats
# whose answer differs:

# %%
from grpo_workbook.cli import main

columns = ["--question-column", QUESTION_COLUMN, "--answer-column", ANSWER_COLUMN]
status = main(["check-data", str(MY_FILE), *columns, "--answers", ANSWER_FORM])
print("exit status", status)

# %% [markdown]
# `HURTS` marks what has to be corrected. The near repeats are not marked, because some of them may be different
# problems in similar words, so look at them. Step 2 drops them too: a split could put one copy on each side.
#
# Before you correct anything, find out whether the model can read your text at all. If a tokenizer knows a language, a
# token has about four characters, nearly a word. If it does not, it splits the words into letters.

# %%
from grpo_workbook import WorkbookError

raw_rows, invalid = data.check_problems(
    MY_FILE, question_column=QUESTION_COLUMN, answer_column=ANSWER_COLUMN,
    answers=ANSWER_FORM,
)
tokenizer = data.load_tokenizer(profile.model)


def characters_per_token(texts):
    ids = tokenizer(texts)["input_ids"]
    return sum(map(len, texts)) / sum(map(len, ids))


ordinary = "Which invoice did the customer from Lyon complain about last week?"
print(f"ordinary English: {characters_per_token([ordinary]):.1f} characters per token")
in_file = characters_per_token(raw_rows["question"][:200])
print(f"your file:        {in_file:.1f} characters per token")
if profile.name == "smoke" and in_file < 2.5:
    raise WorkbookError("the tiny model cannot read this: MY_PROFILE = None, on a GPU")

# %% [markdown]
# ## 2 · Clean, then split
#
# What happens if you split before you clean? Count the training questions that have a copy among the held-out ones:

# %%
from grpo_workbook import leaked_rows, split

naive_train, naive_heldout = split(raw_rows, profile.heldout, profile.seed)
naive_leaks = len(leaked_rows(naive_train, naive_heldout))
print(naive_leaks, "training questions would also be held out")

# %% [markdown]
# With such copies, held-out accuracy would partly measure memory. So drop repeats first. If two copies have different
# answers, drop both, because you do not know which answer is right. (A near repeat with another answer may be a
# different problem with other numbers. Here it is lost. If your file has many such rows, read them and keep what is
# right.)

# %%
from grpo_workbook.data import duplicates

questions = raw_rows["question"][:]
known_answers = raw_rows["answer"][:]
repeats = duplicates.near_duplicates(questions)
repeats.update(duplicates.same_questions(questions))  # {row: the earlier row}
disputed = set()
for row, earlier in repeats.items():
    if known_answers[row] != known_answers[earlier]:
        disputed.update([row, earlier])
dropped = disputed.union(repeats)
clean = [row for row in range(len(questions)) if row not in dropped]
clean_rows = raw_rows.select(clean)

rows_left = {"in the file": len(raw_rows) + len(invalid)}  # after each step
rows_left["valid"] = len(raw_rows)
rows_left["undisputed"] = len(raw_rows) - len(disputed)
rows_left["no repeats"] = len(clean_rows)

# %% [markdown]
# Then drop prompts that are longer than the budget, split the rows, and look for leaks once more. `split` gives both
# parts questions of about the same lengths; with `by="topic"` it gives both parts the same mix of topics, or of another
# column. If your rows come from documents, split by document (exercise 17.1).

# %%
from grpo_workbook import drop_leaked, drop_long_prompts, to_dataset

fold = data.prompts.needs_folding(tokenizer)  # a template without a system message
prompts = to_dataset(clean_rows, profile.system_prompt, fold=fold)
prompts, too_long = drop_long_prompts(prompts, tokenizer, profile.max_prompt_length)
rows_left["within the budget"] = len(prompts)
train_part, heldout_part = split(prompts, profile.heldout, profile.seed)
train_part, dropped_leaked = drop_leaked(train_part, heldout_part)
rows_left["for training"] = len(train_part)
rows_left["held out"] = len(heldout_part)

# %% [markdown]
# Write both parts to files and read the files again. From here on the chapter uses only these two files.

# %%
def read_part(folder, name):
    return load_problems(folder / f"{name}.jsonl", answers=ANSWER_FORM)


parts = {"train": train_part, "heldout": heldout_part}
for name, part in parts.items():
    part.remove_columns(["prompt", "solution"]).to_json(folder / f"{name}.jsonl")
train_rows = read_part(folder, "train")
heldout_rows = read_part(folder, "heldout")
train_set = to_dataset(train_rows, profile.system_prompt, fold=fold)
heldout_set = to_dataset(heldout_rows, profile.system_prompt, fold=fold)
print(train_set[0]["prompt"][-1]["content"], "->", train_set[0]["answer"])

# %% [markdown]
# How many rows are left after each step?

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.8)
colours = [figures.GREY] * (len(rows_left) - 2) + [figures.BLUE] * 2
bars = axes.barh(list(rows_left), rows_left.values(), color=colours)
total = rows_left["in the file"]
row_labels = []
numbers_left = list(rows_left.values())
for name, count, previous in zip(rows_left, numbers_left, [total, *numbers_left]):
    if count == previous or name in ("for training", "held out"):
        row_labels.append(str(count))
    else:
        row_labels.append(f"{count} ({previous - count} fewer)")
axes.bar_label(bars, row_labels, padding=4)
axes.margins(x=0.2)
axes.invert_yaxis()
axes.grid(False)
unusable = total - rows_left["within the budget"]
axes.set(xlabel="rows", title=f"{unusable} of {total} rows could not be used")
counts = ", ".join(f"{name} {count}" for name, count in rows_left.items())
figures.show(figure, f"Bar chart of the rows that are left after each step: {counts}.")

# %% [markdown]
# A grey bar is the number of rows that are left after a step; the two blue bars are the parts into which they were
# split. If a step drops more rows than you expected, read these rows before you go on.
#
# Now check the two files again and keep the result in `data_report.json`. The check finds no repeats, no leaks, and
# nothing that would hurt training.

# %%
train_file = folder / "train.jsonl"
heldout_file = folder / "heldout.jsonl"
report_file = folder / "data_report.json"
main([
    "check-data", str(train_file), "--heldout-data", str(heldout_file),
    "--answers", ANSWER_FORM, "--json", str(report_file),
]);

# %% [markdown]
# ## 3 · Rewards, attacked
#
# Training will exploit any gap in a reward, so look for the gaps first. Here is a draft that was written in a hurry. It
# pays 2 if the digits of the right number occur anywhere, and 1 if both opening tags occur:

# %%
from grpo_workbook import reward
from grpo_workbook.rewards import text_of


@reward("correctness", columns=("answer",), answers="number")
def draft_right(completions, answer, **columns):
    """1.0 where the right number stands somewhere in the text."""
    values = []
    for completion, reference in zip(completions, answer):
        values.append(float(reference in text_of(completion)))
    return values


@reward("format")
def draft_form(completions, **columns):
    """1.0 where both opening tags stand somewhere in the text."""
    values = []
    for completion in completions:
        text = text_of(completion)
        values.append(float("<reasoning>" in text and "<answer>" in text))
    return values

# %% [markdown]
# The second version reads only the single answer block, and it compares numbers exactly. Two rewards of the course
# check the form. **For your own task write `right_number` anew**, and keep three habits: read one fixed place, accept
# only one answer, compare exactly.

# %%
from grpo_workbook import incremental_format_reward, strict_format_reward
from grpo_workbook.rewards import answers


@reward("correctness", columns=("answer",), answers="number")
def right_number(completions, answer, **columns):
    """1.0 where the only answer block holds exactly the right number."""
    values = []
    for completion, reference in zip(completions, answer):
        block = answers.tagged_answer(text_of(completion))
        values.append(float(answers.is_correct(block, reference)))
    return values


reward_functions = [right_number, strict_format_reward, incremental_format_reward]
weights = [2.0, 0.5, 0.5]

# %% [markdown]
# Now attack both versions. Take five of your rows and write what a good model would answer (`write_honest`). Then
# collect attacks: those of the course, and texts in the right form with the answers of *other* rows. The course's
# collection needs a whole number of at least 10 as the answer. If your file has none, for example because your answers
# are texts, this cell attacks a question of its own instead. That says nothing about your task, so the box *no attack
# gets through* of the checklist stays empty, and only exercise 17.2 attacks your reward.

# %%
from grpo_workbook.rewards import attacks, honest

targets = []  # the rows whose reward is attacked
for row in train_rows:
    if len(targets) < 5 and row["answer"].isdecimal() and int(row["answer"]) >= 10:
        targets.append(row)
own_question = len(targets) > 0  # whether the attacks are on questions of the file
if not own_question:
    targets.append({"question": "What is 6 times 7?", "answer": "42"})


def write_honest(row):
    return honest(row["answer"])


attempts = []  # (row, kind, text)
for row in targets:
    right = row["answer"]
    for attempt in attacks(right, str(int(right) - 1), row["question"]):
        attempts.append((row, attempt.family, attempt.text))
    for other in dict.fromkeys(train_rows["answer"][:10]):
        if other != right:
            attempts.append((row, "another row's answer", honest(other)))
print(f"{len(attempts)} attacks on {len(targets)} rows; the first one:")
print(targets[0]["question"], "->", targets[0]["answer"])

# %% [markdown]
# `score_rewards` treats the honest completion and an attack on the same row as one group, and adds up the rewards as
# TRL does. If an attack earns at least as much as the honest completion, it **gets through**. (Exercise 17.2 is
# stricter: there an attack may earn at most nine tenths.)

# %%
from grpo_workbook.rewards import score_rewards


def attack(functions, weights):
    """What each attack earns, as a fraction of the honest completion's reward."""
    texts = []
    for row, _, text in attempts:
        texts += [write_honest(row), text]
    rows = [row for row, _, _ in attempts]
    scored = score_rewards(functions, texts, rows, group_size=2, weights=weights)
    fractions = []
    for honest_reward, attack_reward in scored.groups["total"]:
        if not honest_reward > 0:
            raise WorkbookError(
                "an honest text earns nothing: correct it, or the reward"
            )
        fractions.append(attack_reward / honest_reward)
    return fractions


earned = {"draft": attack([draft_right, draft_form], [2.0, 1.0])}
earned["final"] = attack(reward_functions, weights)
through = {}
for name, fractions in earned.items():
    through[name] = sum(fraction >= 1 for fraction in fractions)
    print(f"{name}: {through[name]} of {len(attempts)} attacks get through")

# %% [markdown]
# The best attack on the final rewards still earns part of the honest reward. Store which rewards were attacked, with
# which weights, and the most that an attack earned. Print that attack, and what another row's answer earns in the right
# form:

# %%
from grpo_workbook import files

names = [function.__name__ for function in reward_functions]
reward_weights = dict(zip(names, weights))
attacked = {
    "rewards": reward_weights, "attacks": len(attempts), "through": through["final"],
    "most": max(earned["final"]), "own_question": own_question,
}
files.write_json(folder / "attacks.json", attacked)
print(f"the best attack earns {attacked['most']:.0%} of the honest reward:")
best_attack = earned["final"].index(attacked["most"])
print(attempts[best_attack][2])
others = []
for (_, kind, _), fraction in zip(attempts, earned["final"]):
    if kind == "another row's answer":
        others.append(fraction)
print(f"another row's answer in the right form earns at most {max(others):.0%}")

# %% [markdown]
# This best attack gives the right number and adds a polite sentence outside of the tags, so it loses only the reward
# for the strict form. It is hardly a cheat, because it has to know the right number. The attack that needs no skill is
# a wrong number in the right form. It earns only the two rewards for the form, a third of the honest reward. Which
# kinds of attack get through?

# %% tags=["hide-input"]
from collections import Counter

tried = Counter(kind for _, kind, _ in attempts)
fooled = {"draft": Counter(), "final": Counter()}
for name, fractions in earned.items():
    for (_, kind, _), fraction in zip(attempts, fractions):
        if fraction >= 1:
            fooled[name][kind] += 1
kinds = list(tried)
draft_counts = [fooled["draft"][kind] for kind in kinds]
final_counts = [fooled["final"][kind] for kind in kinds]
figure, (axes,) = figures.new_panels(7.5, 4.4)
axes.barh(kinds, tried.values(), color="#DDDDDD", label="attacks tried")
axes.barh(kinds, draft_counts, 0.55, color=figures.ORANGE, label="fool the draft")
axes.plot(final_counts, kinds, "D", color=figures.BLUE, ms=5, clip_on=False,
          label="fool the final rewards")
axes.invert_yaxis()
axes.spines["left"].set_visible(False)
axes.tick_params(axis="y", length=0, pad=8)
axes.grid(False)
axes.set_xlabel("number of attacks")
figure.suptitle(f"Of {len(attempts)} attacks {through['draft']} fool the draft, "
                f"{through['final']} the final rewards")
figure.legend(frameon=False, loc="outside lower center", ncols=3)
counts = ", ".join(f"{kind} {fooled['draft'][kind]} of {tried[kind]}" for kind in kinds)
figures.show(figure, f"Bar chart by kind of attack. The draft is fooled by: {counts}. "
             f"The final rewards by {through['final']}.")

# %% [markdown]
# Each row counts attacks of one kind: the grey bar those that were tried, the orange bar those that fool the draft, and
# the blue diamond those that fool the final rewards. All diamonds lie at 0.
#
# ## 4 · Can the model learn it?
#
# Load the policy: the base in 4 bits, with new LoRA adapters.

# %%
from grpo_workbook import load_policy
from grpo_workbook.training import count_4bit_layers

policy, tokenizer = load_policy(profile)
trainable, _ = policy.get_nb_trainable_parameters()
print(count_4bit_layers(policy), f"layers in 4 bits, {trainable:,} weights will learn")

# %% [markdown]
# GRPO needs a task that the model solves *sometimes*. So sample a group of completions for each of 16 training problems
# and score them. The column `equal` is the fraction of groups whose rewards are all equal. In the row `total`, such a
# group teaches nothing. (`none` counts the completions to which a reward did not apply.)

# %%
from grpo_workbook import evaluate

group_size = profile.grpo["num_generations"]
sixteen = train_set.select(range(16))
first_tries = evaluate(
    policy, tokenizer, sixteen, samples=group_size, sample=True, judge=MY_JUDGE,
    max_new_tokens=profile.grpo["max_completion_length"],
    batch_size=profile.eval_batch_size, seed=profile.seed,
)
scored = score_rewards(
    reward_functions, first_tries.completions, list(sixteen), group_size=group_size,
    weights=weights,
)
scored.table().round(2)

# %% [markdown]
# In how many groups are some completions right and others wrong?

# %% tags=["hide-input"]
right_in_group = []
for group in scored.groups[names[0]]:
    right_in_group.append(round(sum(group)))
groups_with = [right_in_group.count(number) for number in range(group_size + 1)]
mixed = sum(groups_with[1:-1])
figure, (axes,) = figures.new_panels(7.5, 3.0)
alike = [0, group_size]
axes.bar(alike, [groups_with[0], groups_with[-1]], color="#BBBBBB", hatch="//",
         edgecolor="white", label="all right or all wrong")
axes.bar(range(1, group_size), groups_with[1:-1], color=figures.BLUE,
         label="some right, some wrong")
title = f"In {mixed} of {len(sixteen)} groups some completions are right and some wrong"
axes.set_title(title, loc="left")
axes.set(xlabel=f"right completions of {group_size}", ylabel="groups")
axes.set_xticks(range(group_size + 1))
axes.yaxis.get_major_locator().set_params(integer=True)
axes.margins(y=0.1)
figure.legend(frameon=False, loc="outside lower center", ncols=2)
parts = [f"{number} right: {count}" for number, count in enumerate(groups_with)]
figures.show(figure, f"{title}. Groups by right completions: {', '.join(parts)}.")

# %% [markdown]
# The horizontal axis is the number of right completions in a group of eight, and a bar counts the groups with that
# number. In the groups of the two grey, hatched bars all completions get the same reward for the number. In half of the
# groups no completion is right here, so these problems are hard for the model. They teach nothing in this draw, but may
# in a later one: by luck, or because training on the others makes a right completion likelier.
#
# With all rewards together (row `total` of the table), 11 of the 16 groups teach nothing at first, and 5 teach, one of
# them only form. That is enough to begin. Sixteen groups are few: the 95 % interval of 11 of 16 is 44 to 86 %. In the
# run below, 43 % of the groups teach nothing on average, a little less than this interval. (Where the diagnosis in step
# 8 says *at first*, it means the mean of the first steps, and not this sample.) If nearly all groups had no right
# completion, you would take easier problems or teach some answers by SFT first. If most groups had only right
# completions, you would take harder problems.

# %% [markdown]
# ## 5 · Plan: memory and problems
#
# How much of your GPU's memory will the run take? The tiny model needs no plan, so in the example this cell plans
# Qwen3-1.7B on a T4.

# %%
from grpo_workbook.planning import plan

if profile.name == "smoke":
    memory_plan = plan("qwen", "t4")
else:
    memory_plan = plan(profile.model, profile)
print(memory_plan)

# %% [markdown]
# What stands under *always* occupies memory during the whole run. *Sampling* and *learning* alternate, so the total is
# *always* plus the larger of the two.
#
# How small a gain can the held-out problems show? The answer depends on how many problems get worse by chance while
# others get better. You can estimate this number from two baselines with different seeds ([chapter
# 08](08_evaluation.ipynb)). The next cell computes, for two such numbers, the gain that a test would find in 80 % of
# cases:

# %%
from grpo_workbook.statistics import paired_gain

for worse in (0.03, 0.1):
    gain = paired_gain(len(heldout_set), worse=worse)
    if gain is None:
        print(f"if {worse:.0%} get worse: no gain can be shown, hold out more problems")
    else:
        print(f"if {worse:.0%} get worse: gains from {100 * gain:.1f} points on")

# %% [markdown]
# So with 120 problems and one answer to each, a gain below 11 points (or below 16, if a tenth of the problems gets
# worse) would often not be shown. If you expect a smaller gain, hold out more problems. Step 9 compares the gain of the
# run with this plan.
#
# ## 6 · The baseline
#
# Measure the model on the held-out problems before training. *Strict* counts answers that are right and in the
# requested form. *Sampled* draws each token at temperature 1, as in training; *greedy* takes the most likely token
# each time. Each problem gets eight sampled answers, because step 9 asks which problems the untrained model solves at
# least once. The cell also prints the first sampled answer that has the requested form, with its problem:

# %%
TRIES = 8  # sampled answers to each problem


def ask_heldout_problems(model, sample):
    return evaluate(
        model, tokenizer, heldout_set, sample=sample, samples=TRIES if sample else 1,
        judge=MY_JUDGE,
        max_new_tokens=profile.grpo["max_completion_length"],
        batch_size=profile.eval_batch_size, seed=profile.seed,
    )


before_sampled = ask_heldout_problems(policy, sample=True)
before_greedy = ask_heldout_problems(policy, sample=False)
low, high = before_sampled.interval
print(f"strict, sampled: {before_sampled.rate:.1%} ({low:.1%} to {high:.1%})")
if True in before_sampled.well_formed:
    place = before_sampled.well_formed.index(True)
    problem = heldout_set[place // TRIES]  # TRIES answers to each problem in a row
    print(problem["question"], "->", problem["answer"])
    print(before_sampled.completions[place])

# %% [markdown]
# In the stored run this answer has the right form and a wrong number.
#
# ## 7 · The run
#
# `GRPOConfig` and `GRPOTrainer` are TRL's own classes. `watch` adds counters to the rewards, which the diagnosis reads.
# `HealthCallback` diagnoses the log during the run and stops a run that cannot recover. `HeldoutProbe` lets the policy
# answer 60 held-out problems every 20 steps, so that step 8 shows a curve. Nothing in this run is chosen by this curve.
# If you want to choose by it, for example when to stop, give the probe other problems, which are neither trained on nor
# held out. If you interrupt the cell, `stop_on_interrupt` ends the run after the current step, so that you can use what
# was learned so far.

# %%
from grpo_workbook import Float32Adapters, HeldoutProbe, RewardBar
from grpo_workbook.diagnosis import HealthCallback, watch
from grpo_workbook.resume import stop_on_interrupt
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

watched = watch(reward_functions)
args = GRPOConfig(
    output_dir=str(folder / "checkpoints"), reward_weights=weights, **profile.grpo
)
probe = HeldoutProbe(
    policy, tokenizer, heldout_set, every=20, problems=60, judge=MY_JUDGE,
    max_new_tokens=profile.grpo["max_completion_length"], seed=profile.seed,
)
trainer = GRPOTrainer(
    policy, watched, args, train_set, processing_class=tokenizer,
    callbacks=[
        Float32Adapters(policy), RewardBar(), probe,
        HealthCallback(watched, stop_on={"nan", "collapsed"}),
    ],
)
trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# Store the settings of the run, and its log.

# %%
from grpo_workbook.diagnosis import roles_of

settings = dict(profile.grpo)
settings["lora_rank"] = profile.lora["r"]
settings["dtype"] = profile.dtype
settings["system_prompt"] = profile.system_prompt
settings["max_prompt_length"] = profile.max_prompt_length
run_facts = {
    "settings": settings, "reward_weights": reward_weights,
    "reward_roles": roles_of(reward_functions),
}
files.write_json(folder / "run.json", run_facts)
files.write_json(folder / "log.json", trainer.state.log_history)
log = [entry for entry in trainer.state.log_history if "reward" in entry]
print(len(log), "of", profile.grpo["max_steps"], "steps are in the log")

# %% [markdown]
# ## 8 · The diagnosis
#
# Did anything go wrong during training? `read_run` and `diagnose` read the folder; the command line has the same as
# `python -m grpo_workbook diagnose FOLDER`. If they find something severe, correct it and train again *before* you go
# on to step 9. A finding may rest on the probe's curve. If you train again for such a finding, the held-out problems
# have helped to choose the run. Then measure step 9 on problems that no run has seen.

# %%
from grpo_workbook.diagnosis import as_text, diagnose, read_run, run_panels

run_log = read_run(folder)
findings = diagnose(run_log)
print(as_text(findings, run_log))
figure, words = run_panels(run_log, findings, f"Diagnosis: {findings[0].name}")
figures.show(figure, words)

# %% [markdown]
# In each panel the horizontal axis is the training step; a thin line shows the logged values, the thick line their
# moving average. What matters here: the total reward and the reward for the number rise, and the fraction of
# zero-variance groups stays below 1. The mean length stays near 28 tokens, and the limit is 64: only in step 32 does
# the longest completion reach it. The adapters no longer move away quickly. ([Chapter 05](05_monitoring.ipynb) explains
# each of these curves.)
#
# The panel of the held-out problems has the four measurements of `HeldoutProbe`: strict and lenient are the same here.
# Where should this curve begin? The probe asks only the first 60 of the 120 problems, and each of them once. So compare
# it with the baseline of the same 60 problems, which have eight answers each from step 6:

# %%
from grpo_workbook.evaluation import by_problem, rate_interval

probed = len(probe.dataset)
baseline_rates = by_problem(before_sampled.strict, TRIES)[:probed]
baseline = sum(baseline_rates) / probed
baseline_low, baseline_high = rate_interval(baseline_rates)
curve = [entry for entry in trainer.state.log_history if "heldout/strict" in entry]
print(f"baseline of all {len(heldout_set)} problems:         {before_sampled.rate:.1%}")
print(f"baseline of the probe's {probed} problems:  {baseline:.1%}", end=" ")
print(f"({baseline_low:.1%} to {baseline_high:.1%})")
print(f"the probe before the first step:      {curve[0]['heldout/strict']:.1%}")

# %% [markdown]
# The probe's curve with 95 % intervals, beside this baseline:

# %% tags=["hide-input"]
from grpo_workbook import wilson_interval

figure, (axes,) = figures.new_panels(7.5, 3.2)
axes.axhline(baseline, color=figures.GREY, linestyle="--",
             label=f"baseline,\n{TRIES} answers each")
axes.axhspan(baseline_low, baseline_high, color=figures.GREY, alpha=0.2, lw=0)
probe_steps = [entry["step"] for entry in curve]
probe_rates = [entry["heldout/strict"] for entry in curve]
spans = []
for step, rate in zip(probe_steps, probe_rates):
    right = round(rate * probed)
    low, high = wilson_interval([True] * right + [False] * (probed - right))
    axes.vlines(step, low, high, color=figures.BLUE)
    spans.append(f"step {step}: {rate:.2f} ({low:.2f} to {high:.2f})")
axes.plot(probe_steps, probe_rates, "o-", color=figures.BLUE,
          label="probe,\n1 answer each")
axes.set(xlabel="optimizer step", ylabel="strictly right", ylim=(0, 1))
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_xticks(probe_steps)
axes.set_title(f"The same {probed} held-out problems during the run")
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Line chart of the probe: {'; '.join(spans)}. "
             f"The baseline of the same problems is {baseline:.2f} "
             f"({baseline_low:.2f} to {baseline_high:.2f}).")

# %% [markdown]
# Each point is the rate of the 60 problems that are strictly right, with its 95 % interval. The dashed line is their
# baseline, and the grey band is the baseline's 95 % interval. Before the first step the probe has 18.3 % and the
# baseline 29.6 %. The difference can only be chance, because the new adapters change nothing yet. (It is an unlucky
# draw: seven other seeds gave 20 to 33 % for the same probe.) One answer to each of 60 problems is a rough measurement,
# and the interval of the first point overlaps the band. So do not take a small step of such a curve for a change. The
# rise as a whole is not small: the intervals of the last two points lie above the band.
#
# ## 9 · What did it gain?
#
# Ask the same held-out problems again, sampled with the same seed, and compare the answers in pairs.

# %%
from grpo_workbook import compare
from grpo_workbook.evaluation import describe_gain, report_heldout

after_sampled = ask_heldout_problems(policy, sample=True)
after_greedy = ask_heldout_problems(policy, sample=False)
heldout_report = report_heldout(
    {"sampled": before_sampled, "greedy": before_greedy},
    {"sampled": after_sampled, "greedy": after_greedy},
)
print(compare(before_sampled, after_sampled))

# %% [markdown]
# Keep the answers, too, so that you can read them and anyone can score them again. Each line of the file has an answer
# before training and one after it:

# %%
from datasets import Dataset

asked = heldout_set["question"][:]
references = heldout_set["answer"][:]
answer_rows = []
pairs = {"sampled": (before_sampled, after_sampled)}
pairs["greedy"] = (before_greedy, after_greedy)
for way, (before, after) in pairs.items():
    for place, completion in enumerate(after.completions):
        number = place // after.samples  # a problem's samples stand in a row
        row = {"question": asked[number], "answer": references[number], "way": way}
        row["before"] = before.completions[place]
        row["right_before"] = before.strict[place]
        row["after"] = completion
        row["right_after"] = after.strict[place]
        answer_rows.append(row)
Dataset.from_list(answer_rows).to_json(folder / "heldout_answers.jsonl")
print(len(answer_rows), "pairs of answers")

# %% [markdown]
# How does the gain look with greedy decoding, and within eight tries? *Lenient* accepts the right number in any
# readable form, and *pass@8* is the rate of problems of which at least one of eight answers is right.

# %% tags=["hide-input"]
figure, words = figures.before_after(heldout_report)
figures.show(figure, words)

# %% [markdown]
# Each pair of bars is accuracy on the held-out problems before and after training, with 95 % intervals. Strict and
# lenient are equal if no right answer has another form than the requested one.
#
# A gain in *strict* accuracy can mean three different things. A reader of your model card will think of the third one,
# so find out which of them it is ([chapter 08](08_evaluation.ipynb)):
#
# 1. **Form**: what the model already got right, but in another form, it now writes in the requested form.
# 2. **Sharpening**: what the model solved in some of its tries, it now solves in most of them.
# 3. **New**: the model solves problems that it solved in none of its tries before. (Each of the eight tries is judged
#    by the other seven, so the tables say *7 tries*; chapter 08 explains why.)
#
# `describe_gain` divides the gain into these parts, and the model card will show the same table:

# %%
from IPython.display import Markdown

gain_lines = describe_gain(heldout_report)
Markdown("\n".join(gain_lines))

# %% [markdown]
# The same as a figure, from the accuracy before to the accuracy after:

# %% tags=["hide-input"]
sampled_report = heldout_report["sampled"]
gain_parts = sampled_report["parts"]
level = sampled_report["strict"]["before"]
figure, (axes,) = figures.new_panels(7.5, 3.4)
axes.bar("before", level, color=figures.GREY)
axes.text(0, level + 0.02, f"{level:.1%}", ha="center")
looks = {"form": (figures.ORANGE, ""), "sharpening": (figures.BLUE, "//"),
         "new": (figures.GREEN, "")}
gains = []
for place, (name, (colour, hatch)) in enumerate(looks.items(), 1):
    gain = gain_parts[name]["gain"]
    low, high = gain_parts[name]["gain_interval"]
    axes.bar(name, gain, bottom=level, color=colour, hatch=hatch, edgecolor="white")
    axes.hlines(level, place - 0.4, place + 0.4, color=colour)  # visible also for a 0
    axes.vlines(place, level + low, level + high, color="black")
    top = level + max(gain, high)
    points = f"{100 * gain:+z.1f}"
    gains.append(f"{name} {points}")
    axes.text(place, top + 0.02, points, ha="center")
    level += gain
    axes.hlines(level, place - 0.4, place + 1.4, color=figures.GREY, lw=0.8)
axes.bar("after", level, color=figures.GREY)
axes.text(4, level + 0.02, f"{level:.1%}", ha="center")
axes.set(ylim=(0, 1), ylabel="strict accuracy, sampled")
axes.yaxis.set_major_formatter("{x:.0%}")
axes.set_title("What the gain consists of, in points, with 95 % intervals")
words = "Bars from the accuracy before to that after. Points: "
figures.show(figure, words + ", ".join(gains))

# %% [markdown]
# The grey bars are the accuracy before and after training. Each part of the gain begins where the one before it ends,
# and its black line is its 95 % interval.
#
# None of the measured gain is form, because the base nearly always writes the requested form ([its
# card](../data/tiny-qwen3/README.md)). No answer was right in another form, neither before training nor after it, so no
# problem shows a gain or a loss in form. That does not mean that the measurement has no error. By the *rule of three*,
# what none of 120 problems shows can still be true of 3 in 120. So the interval reaches to 2.5 points on both sides.
#
# Of the gain, 12.8 points are sharpening, and 16.9 are on problems that the base solved in none of its other seven
# tries. Their intervals overlap, so these intervals do not show which part is larger. (An interval of the difference,
# problem by problem, could. The chapter does not compute it.) "New" depends on the number of tries: with 64 of them the
# base solves more ([chapter 08](08_evaluation.ipynb)).
#
# With one greedy answer to each problem, accuracy rises from 40.8 to 75.8 %. This gain of 35.0 points is well above the
# 11 to 16 that step 5 computed. But it is one run with one seed, and a tiny model's result is only a hypothesis about
# large ones. And the held-out problems are of the same six kinds as the training problems: *new* means new problems of
# these kinds, and says nothing about a seventh. With a real model and a real task, ask the same question before you
# claim a gain.

# %% [markdown]
# ## 10 · Report, merge, card
#
# The report collects the numbers of the run.

# %%
from statistics import mean

tenth = max(1, len(log) // 10)
reward_means = {}
for name in names:
    values = [entry[f"rewards/{name}/mean"] for entry in log]
    first_mean = round(mean(values[:tenth]), 3)
    last_mean = round(mean(values[-tenth:]), 3)
    reward_means[name] = {"first_tenth": first_mean, "last_tenth": last_mean}
source = MY_FILE
if os.path.exists(MY_FILE):
    source = os.path.basename(MY_FILE)
report = {"model": profile.model_name, "seed": profile.seed, "backend": "unsloth"}
report["steps"] = len(log)
report["load_in_4bit"] = profile.loader["load_in_4bit"]
report["lora_parameters"] = trainable
report["reward_weights"] = reward_weights
report["rewards"] = reward_means
report["heldout"] = heldout_report
report["data"] = {"source": source, "dropped_leaked": dropped_leaked}
report["data"]["rows_left"] = rows_left
report["data"]["dropped_too_long_train"] = too_long  # before the split
report["data"]["train"] = len(train_set)
report["data"]["heldout"] = len(heldout_set)
report["data_sha256"] = data.splitting.sha256_of(train_rows, heldout_rows)
files.write_json(folder / "report.json", report)

# %% [markdown]
# `merge` adds the adapter to the base's 16-bit weights. It proves the merge by comparing logits and held-out answers,
# and writes nothing if the proof fails ([chapter 09](09_merge_and_inference.ipynb)). It reads the report beside the
# adapter and writes the model card from it.

# %%
from grpo_workbook import merge, save_adapter

save_adapter(policy, tokenizer, folder / "adapter")
merge_proof = merge(
    profile.model, folder / "adapter", folder / "merged",
    heldout=heldout_set, policy=after_greedy, judge=MY_JUDGE,
    max_new_tokens=profile.grpo["max_completion_length"],
    batch_size=profile.eval_batch_size,
)
merge_proof.pop("merged_answers")
report["merge"] = merge_proof
files.write_json(folder / "report.json", report)
off = merge_proof["relative_logit_difference"]
same_tokens = merge_proof["same_greedy_tokens"]
print(f"merged: the logits differ by {off:.2%} of their spread from those of the base")
print(f"with its adapter, and the token is the same at {same_tokens:.2%} of the places")

# %% [markdown]
# Here is the part of the card from the results to the rewards. Read it like a stranger who finds the model in a year:

# %%
card_file = folder / "merged" / "README.md"
card = card_file.read_text(encoding="utf-8")
begin = card.index("## Before and after")
end = card.index("## Hyper-parameters")
print(card[begin:end])

# %% [markdown]
# One line may surprise a stranger: decoded greedily, the merged model is right more often than the policy before
# merging, 79.2 against 75.8 %. The policy was trained and measured on the base in 4 bits, and the merged model has the
# base's 16-bit weights. The difference is four problems of 120. Even if four problems got better and none worse, the
# paired test would give p = 0.125, so the difference may be chance. The card gives both errors, that of the merge and
# that of the change of base ([chapter 09](09_merge_and_inference.ipynb)).
#
# So every gain in these tables is one of the 4-bit policy over the 4-bit base, as the line under *Before and after*
# says. You send the merged model. To claim a gain for it, ask the base in 16 bits and the merged model the same
# held-out problems:

# %%
from grpo_workbook import load_model

in_16_bits = {}
for name, model_folder in (("base", profile.model), ("merged", folder / "merged")):
    model, _ = load_model(model_folder, dtype=profile.dtype, device=profile.device)
    in_16_bits[name] = ask_heldout_problems(model, sample=False)
    del model
before, after = {"greedy": in_16_bits["base"]}, {"greedy": in_16_bits["merged"]}
report["in_16_bits"] = report_heldout(before, after)
files.write_json(folder / "report.json", report)
print(compare(in_16_bits["base"], in_16_bits["merged"]))

# %% [markdown]
# This gain is larger than the 35.0 points of the 4-bit policy partly because its baseline is lower: greedily the base
# has 35.0 % in 16 bits and 40.8 % in 4 bits. The chapter does not test this difference of the bases, so do not rank the
# two gains. Step 11 writes this one into the card, as a line of its own.
#
# ## 11 · The checklist
#
# Each item of the checklist is computed from the files. The first function checks data and rewards:

# %%
def check_inputs(folder):
    """{what must hold: (whether it does, the evidence)}, of data and rewards."""
    data_report = files.read_json(folder / "data_report.json")
    report = files.read_json(folder / "report.json")
    attacked = files.read_json(folder / "attacks.json")
    train = read_part(folder, "train")
    heldout = read_part(folder, "heldout")
    faults = 0
    for fault in ("invalid", "same_question", "near", "heldout_invalid"):
        faults += len(data_report[fault])
    hurts = data_report["hurts"]
    leaks = len(leaked_rows(train, heldout))
    sha256 = data.splitting.sha256_of(train, heldout)
    rewards = attacked["rewards"]  # with their weights
    most = f"the best of {attacked['attacks']} earns {attacked['most']:.0%}"
    checks = {}
    checks["no invalid or repeated row"] = (faults == 0, f"{faults} found")
    checks["nothing in the data would hurt"] = (not hurts, f"{len(hurts)} found")
    checks["no training question is held out"] = (leaks == 0, f"{leaks} found")
    same_rows = sha256 == report["data_sha256"]
    checks["the data files are the run's"] = (same_rows, f"SHA-256 {sha256[:8]}")
    same_rewards = rewards == report["reward_weights"]
    checks["the attacked rewards were trained"] = (same_rewards, ", ".join(rewards))
    if not attacked["own_question"]:
        most = "not judged, the attacks were on another question"
    all_fail = attacked["own_question"] and attacked["most"] < 1
    checks["no attack gets through"] = (all_fail, most)
    return checks

# %% [markdown]
# The second function checks the run and its model. A gain is ticked if its p-value is below 0.05. This test is over the
# problems of one run, so it does not say what another seed would give:

# %%
def rose(change):
    """(Whether the rate rose beyond chance, the evidence)."""
    evidence = f"{change['before']:.1%} to {change['after']:.1%}"
    p_value = change["p_value"]
    return change["gain"] > 0 and p_value < 0.05, f"{evidence}, p = {p_value:.1g}"

# %% [markdown]
# The gains of the policy and of the merged model are two items, because they were measured apart:

# %%
from grpo_workbook.diagnosis.findings import SEVERE
from grpo_workbook.export import is_proved


def check_results(folder):
    """{what must hold: (whether it does, the evidence)}, of the run and its model."""
    report = files.read_json(folder / "report.json")
    card = (folder / "merged" / "README.md").read_text(encoding="utf-8")
    run_log = read_run(folder)
    steps = len(run_log.of("reward"))
    wanted = run_log.settings["max_steps"]
    severe = [each.name for each in diagnose(run_log) if each.severity == SEVERE]
    strict = report["heldout"]["sampled"]["strict"]
    rates = [f"{strict['before']:.1%}", f"{strict['after']:.1%}"]
    merged = report["in_16_bits"]["greedy"]["strict"]
    facts = [report["data"]["source"], *report["reward_weights"], *rates]
    missing = [fact for fact in facts if fact not in card]
    same = f"logits off by {report['merge']['relative_logit_difference']:.2%}"
    kind_of_gain = describe_gain(report["heldout"])[0]
    checks = {}
    checks["training ended"] = (steps == wanted, f"{steps} of {wanted} steps")
    checks["no severe finding"] = (not severe, ", ".join(severe) or "none")
    checks["strict, sampled: the policy gained, in one run"] = rose(strict)
    checks["strict, greedy: the merged model gained, too"] = rose(merged)
    checks["the card says what the gain is"] = (kind_of_gain in card, kind_of_gain)
    checks["the merge is proved"] = (is_proved(report["merge"]), same)
    evidence = ", ".join(missing) or "all found"
    checks["the card names data, rewards, numbers"] = (not missing, evidence)
    return checks

# %% [markdown]
# Now check everything, and write the list into the model card, with the gain in 16 bits and the numbers of rows from
# step 2, so that the card is the one page that you send.

# %%
def check_all(folder):
    return {**check_inputs(folder), **check_results(folder)}


def as_lines(checks):
    lines = []
    for item, (holds, evidence) in checks.items():
        mark = "x" if holds else " "
        lines.append(f"- [{mark}] {item}: {evidence}")
    return "\n".join(lines)


checks = check_all(folder)
print(as_lines(checks))
final_report = files.read_json(folder / "report.json")
_, gain_in_16_bits = rose(final_report["in_16_bits"]["greedy"]["strict"])
counts = final_report["data"]["rows_left"]
row_lines = "\n".join(f"- {step}: {count}" for step, count in counts.items())
sections = "## These merged weights over the 16-bit base\n\n"
sections += f"Strict, greedy, the same held-out problems: {gain_in_16_bits}\n\n"
sections += f"## Rows left after each step\n\n{row_lines}\n\n"
sections += f"## Checked\n\n{as_lines(checks)}\n"
card_file.write_text(f"{card}\n\n{sections}", "utf-8");

# %% [markdown]
# Can this checklist fail at all? Put one held-out question into the training file, and check again:

# %%
kept = train_file.read_bytes()
first_heldout_line = heldout_file.read_bytes().splitlines()[0]
try:
    train_file.write_bytes(kept + first_heldout_line + b"\n")
    spoiled = check_all(folder)
finally:
    train_file.write_bytes(kept)
failed = [item for item, (holds, _) in spoiled.items() if not holds]
print("failed:", ", ".join(failed))

# %% [markdown]
# The checklist finds the leak, and it finds that the file is no longer the run's. This tests two of its 13 items; spoil
# another file to see another one fail. Two items compare the card with the report from which it was written: they fail
# only if one of the two is older than the other, and do not say that the report is right. The checklist compares
# rewards by name and weight only: if you change the code of a reward, attack it again. And all attacks were on five
# rows: a reward that withstands them there can fail on another, so attack more before a long run. No program can check
# the following three things. Check them yourself:
#
# - I read 50 completions from before training and 50 from after it, right ones as well as wrong ones. (They are in
#   `heldout_answers.jsonl`: eight sampled ones and a greedy one to each problem.)
# - The held-out problems are what users will ask, and not what was easy to collect.
# - I chose no reward, step or checkpoint by the held-out set. The curve in step 8 was looked at and used for nothing.

# %% [markdown] tags=["remove-cell"]
# This cell is for the automatic run on every change: it fails if training did not happen or did not help.

# %% tags=["remove-cell"]
proved = {"steps": trainer.state.global_step, "heldout": heldout_report}
proved["p_value"] = heldout_report["sampled"]["strict"]["p_value"]
proved["leaks"] = naive_leaks
proved["rows"] = rows_left
proved["through"] = through
proved["linear4bit_layers"] = count_4bit_layers(policy)
proved["merge"] = merge_proof
proved["checklist"] = {item: bool(holds) for item, (holds, _) in checks.items()}
proved["spoiled"] = failed
files.write_json(folder / "notebook_17.json", proved)
if profile.name == "smoke":
    assert trainer.state.global_step == MY_STEPS == len(log)
    assert after_sampled.rate > before_sampled.interval[1], "no gain"
    assert proved["p_value"] < 1e-6, "no gain"
    assert heldout_report["greedy"]["lenient"]["p_value"] < 0.01, "form alone"
    assert all(proved["checklist"].values()), checks

# %% [markdown]
# ## Three projects
#
# ### Answers from your knowledge base
#
# - **Data:** questions whose answer is a number, a date, a name from a list, or yes or no. The prompt contains the
#   passage that has the answer, because GRPO does not teach facts: it teaches the model how to use what it is given.
# - **Reward:** one reward for the answer, compared exactly after `strip().lower()`, and a smaller reward for the number
#   of the right passage.
# - **Trap:** questions from one document end up on both sides of the split (exercise 17.1).
# - **First step:** sample 100 rows eight times each. In how many groups is the model neither always right nor always
#   wrong?
#
# ### Functions that pass their tests
#
# - **Data:** small functions of your own code, each with six tests or more. The docstring is the prompt.
# - **Reward:** 1 if the function passes all of its tests in the sandbox, else 0: `unit_tests` of [chapter
#   06](06_code_rewards.ipynb). Partial credit is for a model that never passes.
# - **Trap:** the model can pass the tests that it sees in the prompt by returning their expected values. Show two
#   tests, and reward the others.
# - **First step:** run `code_attacks` of `grpo_workbook.sandbox.attacks` against your own tests.
#
# ### Fields from messy text
#
# - **Data:** e-mails or invoices, with the fields that someone once typed in. The answer is JSON.
# - **Reward:** 0 unless the JSON parses and has exactly the right keys; then the fraction of right fields.
# - **Trap:** if most fields are empty in most rows, the constant answer "all empty" earns a lot.
# - **First step:** compute what the constant answer earns, and pay only for what a completion earns beyond that.
#
# If no program can check your answers, because they are free texts, you need a judge: chapter 14 builds and tests one,
# and `MY_JUDGE` above takes it. If your questions contain pictures, read chapter 15 first.
#
# For every project, measure the model that you have first. If fewer than 5 % of its samples are right, fine-tune it on
# some answers first (SFT). If more than 90 % are right, choose harder rows. (Both limits are rules of thumb, not
# measured here.)

# %% [markdown]
# ## Exercises
#
# Three exercises ask for a function, and the second of them is a reward for your own task. The last one is an
# experiment, which runs only after you have written down a prediction.

# %% [markdown]
# ### Exercise 17.1 · `split_by_group` · medium · 8 minutes
#
# Rows from one document, customer or repository often contain each other's answers. So hold out whole groups. `groups`
# names the group of each row. Take the groups in the order of their first row, **from the last one backwards**, until
# at least `heldout` rows are held out. Return the indices of the held-out rows in ascending order. (In a project you
# would draw the groups at random. The fixed order is there so that your result can be checked.)

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def split_by_group(groups: list[str], heldout: int) -> list[int]:
    raise NotImplementedError


check("17.1", split_by_group);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `list(dict.fromkeys(groups))` contains every group once, in the order of its first row. The rows of a group need not
# be next to each other.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def split_by_group(groups: list[str], heldout: int) -> list[int]:
#     chosen = []
#     for group in reversed(list(dict.fromkeys(groups))):
#         if len(chosen) >= heldout:
#             break
#         for row, name in enumerate(groups):
#             if name == group:
#                 chosen.append(row)
#     return sorted(chosen)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 17.2 · `my_project` · hard · 25 minutes
#
# Write a reward for **your** task. The check attacks it with texts made from your own rows. Return three things:
#
# - the reward, as TRL calls it;
# - at least eight rows, each a dict with `question`, `answer` and whatever else the reward needs (read them from your
#   file);
# - a function that takes a row and returns the text that a good model would write.
#
# In the honest text the answer has to stand as it stands in the row: 1200 and not 1,200. For every row, the check
# compares the honest text with these attacks: the honest text of another row, all answers in a list, the honest text
# with this list in the place of its answer or with nothing there, the honest text before or behind another one, on one
# line or two, the same text five times, the question, and an empty text. Each attack must earn at most nine tenths of
# what the honest text earns, on every row. All rewards must lie between -1 and 1. And no fixed text may be right in
# more than half of the rows.

# %% tags=["exercise"]
def my_project() -> tuple:
    raise NotImplementedError


check("17.2", my_project);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `right_number` passes for word problems with `lambda row: honest(row["answer"])`. For texts, accept one marked place
# only, and compare all of its text, after `strip().lower()`, with the answer.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_project() -> tuple:
#     import json
#
#     from grpo_workbook.rewards import text_of
#
#     def fields_reward(completions, answer, **columns):
#         """The fraction of right fields, for JSON that has exactly the expected ones."""
#
#         def value(text, reference):
#             try:
#                 fields = json.loads(text)
#             except ValueError:
#                 return 0.0
#             if not isinstance(fields, dict) or fields.keys() != reference.keys():
#                 return 0.0
#             right = sum(fields[key] == reference[key] for key in reference)
#             return right / len(reference)
#
#         values = []
#         for completion, reference in zip(completions, answer):
#             values.append(value(text_of(completion), json.loads(reference)))
#         return values
#
#     people = ["Ada", "Ben", "Carla", "Dana", "Emil", "Farid", "Grace", "Hugo"]
#     rows = []
#     for lamps, name in enumerate(people, 2):
#         question = f"{name} orders {lamps} lamps, please by {10 + lamps} May."
#         answer = json.dumps({"name": name, "lamps": lamps, "day": 10 + lamps})
#         rows.append({"question": question, "answer": answer})
#     return fields_reward, rows, lambda row: row["answer"]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 17.3 · `may_claim` · medium · 12 minutes
#
# A colleague shows you four sentences for a model card. Which of them do the numbers carry? `gains` has the 95 %
# interval, as (low, high) in points, of each part of a gain: `"form"`, `"sharpening"` and `"new"`, and of all
# `"together"`. Return the numbers of the sentences that hold wherever in its interval each true value lies, in
# ascending order:
#
# 1. Strict accuracy rose.
# 2. The model solves problems that it solved in none of its tries before.
# 3. Less than 3 points of the gain are form.
# 4. More of the gain is new than sharpening.

# %% tags=["exercise"]
def may_claim(gains: dict) -> list[int]:
    raise NotImplementedError


check("17.3", may_claim);

# %% [markdown]
# <details><summary>Hint</summary>
#
# For each sentence look for the value in the interval that is worst for it. Does the sentence hold even there? "It was
# not shown to be different from 0" is not "it is 0".
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def may_claim(gains: dict) -> list[int]:
#     claims = []
#     if gains["together"][0] > 0:
#         claims.append(1)
#     if gains["new"][0] > 0:
#         claims.append(2)
#     if gains["form"][1] < 3:
#         claims.append(3)
#     if gains["new"][0] > gains["sharpening"][1]:
#         claims.append(4)
#     return claims
# ```
#
# Sentence 3 is the one that goes wrong most often. An interval from -1 to 8 contains 0, so a gain in form is not shown.
# But neither is its absence: up to 8 points may be form. Even if no problem shows any form, the number of problems
# decides: with 120 of them the interval reaches to 2.5 points, and with 60 to 4.9. The rule for sentence 4 is strict,
# because two intervals that overlap a little can still belong to a clear difference. An interval of the *difference*,
# problem by problem, decides such a case.
#
# </details>
#
# Ask your function about the run above:

# %%
intervals = {}  # in points
for name in ("form", "sharpening", "new"):
    low, high = gain_parts[name]["gain_interval"]
    intervals[name] = (100 * low, 100 * high)
low, high = sampled_report["strict"]["gain_interval"]
intervals["together"] = (100 * low, 100 * high)
try:
    print("the sentences that this run carries:", may_claim(intervals))
except NotImplementedError:
    print("Write may_claim first, then run this cell.")

# %% [markdown]
# ### Exercise 17.4 · `few_rows` · medium · 6 minutes
#
# Are 16 rows enough? Train again for as many steps as above, but only on the first 16 training problems. Is the strict
# held-out accuracy of the greedy answers `"lower"` or `"higher"` than that of the run above? Answer `"no difference"`
# if you expect a paired test with p of 0.05 or more.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "lower", "higher" or "no difference"


def train_again(functions, weights, rows, steps):
    """A new policy, trained with these rewards on these rows."""
    new_policy, _ = load_policy(profile)
    settings = {**profile.grpo, "max_steps": steps, "save_strategy": "no"}
    args = GRPOConfig(str(folder / "again"), reward_weights=weights, **settings)
    trainer = GRPOTrainer(
        new_policy, functions, args, rows, processing_class=tokenizer,
        callbacks=[Float32Adapters(new_policy), RewardBar()],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return new_policy


def few_rows() -> dict:
    """The same run on 16 problems: change their number, or the rewards."""
    few = train_set.select(range(16))
    taught = train_again(reward_functions, weights, few, steps=MY_STEPS)
    scores = ask_heldout_problems(taught, sample=False)
    return {"before": after_greedy.strict, "after": scores.strict}


predict("17.4", prediction, few_rows);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The gain above is no gain in form, so the model has to learn arithmetic. There are six kinds of problem with many
# different numbers. Can 16 problems show all that a model has to learn? And what can it learn by heart?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "lower"
# ```
#
# Measured with seed 0: 91 of 120 greedy answers are strictly right with 590 problems, and 52 with 16 (p = 9e-10),
# hardly more than the 49 before training. The reward on the 16 problems rises higher than in the run above, to 2.8 of
# 3: the model has learned these problems and not the skill. A form is the same in every problem, so a few rows teach
# it. A skill needs many.
#
# Large models can differ, but ask what the gain is. [Wang et al. 2025](https://arxiv.org/abs/2504.20571) trained
# Qwen2.5-Math-1.5B on a single problem, and MATH-500 rose from 36.0 % to 73.6 %. They attribute only 8.6 of these 37.6
# points to more than a corrected form.
#
# </details>

# %% [markdown]
# ## Summary
#
# How do you get from a raw file to a model that others can trust? By steps that leave evidence behind:
#
# - Clean the data before you split it, and train on the files that you checked.
# - Attack the rewards before training, also with texts made from your own rows.
# - Look at the untrained model's groups: only groups with different rewards teach.
# - Measure the same held-out problems before and after training, in pairs, and read the diagnosis of the run.
# - Say what kind of gain it is: form, sharpening or new. Here it was sharpening and new.
# - Prove the merge, measure the model that you send, and let its card name data, rewards and numbers.
# - Let a checklist read the files. Check yourself what it cannot: read completions, ask whether the held-out problems
#   are what users will ask, and choose nothing by the held-out set.
#
# This was the last chapter. `python -m grpo_workbook run --config my.yaml` does the steps 6 to 10 in one command
# ([templates/my_project](../templates/my_project/README.md)), and [chapter 00](00_start_here.ipynb) has the map.
