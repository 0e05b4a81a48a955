# %% [markdown]
# # 14 · Your own project
#
# **After this notebook you can** take a raw file of your own to a trained and merged model, and show on one page, with
# a checklist, that each step held.
#
# **Time:** about 2 minutes on two CPU cores; more than half of it is the training run.
#
# The chapter runs as it stands, on an example. Then change the cell under "What is yours", and go through it again.

# %% [markdown]
# ## The steps
#
# Nearly every step writes a file, and the checklist at the end reads these files. So it judges what the run left behind,
# and not what you remember of it.

# %% tags=["hide-input"]
from grpo_workbook import figures, quiet

quiet()  # no loading bars, no advice from the libraries
pale = figures.PALE
boxes = {
    "raw": (0.08, 0.82, "your\nraw file", pale["data"]),
    "clean": (0.32, 0.82, "clean, split\ntrain.jsonl\nheldout.jsonl", pale["data"]),
    "rewards": (0.6, 0.82, "rewards, attacked\nattacks.json", pale["check"]),
    "before": (0.88, 0.82, "baseline\nreport.json", pale["number"]),
    "train": (0.88, 0.45, "GRPO run\nlog.json, adapter/", pale["model"]),
    "health": (0.6, 0.45, "diagnosis", pale["check"]),
    "after": (0.32, 0.45, "held-out again\nreport.json", pale["number"]),
    "merge": (0.08, 0.45, "merge, card\nmerged/", pale["model"]),
    "list": (0.08, 0.1, "checklist", pale["check"]),
    "you": (0.48, 0.1, "what no program can check:\nyou read completions", pale["off"]),
    "page": (0.88, 0.1, "page.html", pale["data"]),
}
way = ["raw", "clean", "rewards", "before", "train", "health", "after", "merge"]
arrows = [(a, b, "") for a, b in zip(way, way[1:])]
arrows += [("merge", "list", "every file"), ("list", "you", "")]
arrows += [("you", "page", "")]
figure = figures.diagram(boxes, arrows, (9.0, 3.8))
figure.suptitle("Nearly every step writes a file, and the checklist reads them", y=1.03)
figures.show(figure, "Boxes in order: raw file, clean and split, rewards attacked, "
             "baseline, GRPO run, diagnosis, held-out again, merge and card, "
             "checklist, your own reading, page.")

# %% [markdown]
# ## What is yours
#
# Change these lines for your own project. A file may be CSV, JSON lines, Parquet or a hub id.

# %%
MY_FILE = None  # "my.csv", "my.jsonl", "owner/name:config:split"; None: the example
MY_DATA = {"question_column": "question", "answer_column": "answer",
           "answers": "auto"}  # "number" or "text" says it for all rows
MY_PROMPT = None  # the system prompt; None: the course's
MY_PROFILE = "smoke"  # the tiny model; None: the model that fits your GPU, for hours
MY_STEPS = None  # None: 32 in the smoke profile, elsewhere the profile's own number
MY_JUDGE = None  # for answers that are texts: a function (given, answer) -> bool

# %% [markdown]
# The machine and its settings. All files go to one folder. Unsloth comes first, because it patches TRL and
# Transformers.

# %%
import os

from grpo_workbook.run_config import RunConfig

run = RunConfig.from_env(default_profile=MY_PROFILE)
run = run.replace(output=run.output / "capstone")
if run.profile == "smoke":
    run = run.replace(max_steps=32, heldout=120)
run = run.replace(max_steps=MY_STEPS or run.max_steps,
                  system_prompt=MY_PROMPT or run.system_prompt)
if os.path.isdir(run.model) and (MY_FILE is None or os.path.exists(MY_FILE)):
    os.environ["HF_HUB_OFFLINE"] = "1"  # all is on this disk: no network needed
import unsloth

run.output.mkdir(parents=True, exist_ok=True)
print(run)

# %% [markdown]
# ## 1 · The raw file
#
# Without a file of yours, the next cell writes one: 720 word problems of the course with the dirt of real files. Its
# columns have other names, too.

# %%
import csv
import random

from grpo_workbook import data, load_problems


def write_example(path) -> None:
    """Word problems, with rows that repeat, contradict, or have no answer."""
    rows = load_problems(data.WORD_PROBLEMS["train"]).select(range(720))
    rows = list(zip(rows["question"], rows["answer"]))
    rows += [(q.upper(), a) for q, a in rows[:40]]  # the same question again
    rows += [(f"Please: {q}", a) for q, a in rows[40:70]]  # nearly the same
    rows += [(q, str(int(a) + 1)) for q, a in rows[70:80]]  # a second answer
    rows += [(f"{q} (open)", "") for q, a in rows[80:90]]  # no answer
    rows += [(f"{q} (open)", "see page 7") for q, a in rows[90:96]]
    random.Random(0).shuffle(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("task", "result"), *rows])


if MY_FILE is None:
    MY_FILE = run.output / "raw.csv"
    MY_DATA = MY_DATA | {"question_column": "task", "answer_column": "result"}
    write_example(MY_FILE)

# %% [markdown]
# Ask what the file is before you change it. `check-data` lists what would hurt training, and its exit status is 1.

# %%
from grpo_workbook.cli import main

flags = [f"--{name.replace('_', '-')}={value}" for name, value in MY_DATA.items()]
print("exit status", main(["check-data", str(MY_FILE), *flags]))

# %% [markdown]
# ## 2 · Clean, then split
#
# What if you split right away? The valid rows, unclean:

# %%
from grpo_workbook import leaked_rows, split

rows, invalid = data.check_problems(MY_FILE, **MY_DATA)
naive_leaks = len(leaked_rows(*split(rows, run.heldout, run.seed)))
print(naive_leaks, "training questions would also be held out")

# %% [markdown]
# Each of those questions has a copy on the other side of the split. So drop repeats first. If two copies have different
# answers, drop both, because you do not know which of them is right.

# %%
from grpo_workbook import drop_leaked, drop_long_prompts, to_dataset
from grpo_workbook.data import duplicates

found = {"in the file": len(rows) + len(invalid), "valid": len(rows)}
asked, answered = rows["question"][:], rows["answer"][:]
repeated = duplicates.near_duplicates(asked) | duplicates.same_questions(asked)
disputed = {i for a, b in repeated.items() if answered[a] != answered[b]
            for i in (a, b)}
found["undisputed"] = len(rows) - len(disputed)
rows = rows.select([i for i in range(len(rows)) if i not in {*repeated, *disputed}])
found["no repeats"] = len(rows)

# %% [markdown]
# Prompts over the budget go next. Then split, and look for leaks once more. `split` gives both parts the same lengths
# of questions; `by="topic"` takes a column of yours. If your rows come from documents, split by document (exercise
# 14.1).

# %%
tokenizer = data.load_tokenizer(run.model)
prompts = to_dataset(rows, run.system_prompt, fold=data.prompts.needs_folding(tokenizer))
prompts, _ = drop_long_prompts(prompts, tokenizer, run.max_prompt_length)
found["within the budget"] = len(prompts)
train_part, heldout_part = split(prompts, run.heldout, run.seed)
train_part, dropped_leaked = drop_leaked(train_part, heldout_part)
found |= {"for training": len(train_part), "held out": len(heldout_part)}

# %% [markdown]
# Write both parts, and read them again. From here on everything uses these two files.

# %%
for name, part in {"train": train_part, "heldout": heldout_part}.items():
    part.remove_columns(["prompt", "solution"]).to_json(run.output / f"{name}.jsonl")


def read_parts(folder):
    """(training rows, held-out rows) as the files have them."""
    return [load_problems(folder / f"{name}.jsonl", answers=MY_DATA["answers"])
            for name in ("train", "heldout")]


train_rows, heldout_rows = read_parts(run.output)
fold = data.prompts.needs_folding(tokenizer)
train_set = to_dataset(train_rows, run.system_prompt, fold=fold)
heldout_set = to_dataset(heldout_rows, run.system_prompt, fold=fold)
print(train_set[0]["prompt"][-1]["content"], "->", train_set[0]["answer"])

# %% [markdown]
# How many rows did each step cost? If one costs more than you expected, read those rows before you go on.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(7.5, 2.8)
colours = [figures.GREY] * (len(found) - 2) + [figures.BLUE] * 2
axes.bar_label(axes.barh(list(found), found.values(), color=colours), padding=4)
axes.invert_yaxis()
axes.grid(False)
total = found["in the file"]
lost = total - found["within the budget"]
axes.set(xlabel="rows", title=f"{lost} of {total} rows could not be used")
said = ", ".join(f"{name} {count}" for name, count in found.items())
figures.show(figure, f"Bar chart of the rows that are left after each step: {said}.")

# %% [markdown]
# The report on the two files goes to `data_report.json`. It shows no repeats, no leaks and nothing that would hurt.

# %%
report_file = run.output / "data_report.json"
files_of_data = [str(run.output / f"{name}.jsonl") for name in ("train", "heldout")]
main(["check-data", files_of_data[0], "--heldout-data", files_of_data[1],
      f"--answers={MY_DATA['answers']}", "--json", str(report_file)]);

# %% [markdown]
# ## 3 · Rewards, attacked
#
# A first draft, written in a hurry. It pays 2 if the right number occurs and 1 if the tags occur:

# %%
from grpo_workbook import reward, rewards


@reward("correctness", columns=("answer",), answers="number")
def draft_right(completions, answer, **columns):
    """1.0 where the right number stands somewhere in the text."""
    texts = [rewards.text_of(c) for c in completions]
    return [float(gold in text) for text, gold in zip(texts, answer, strict=True)]


@reward("format")
def draft_form(completions, **columns):
    """1.0 where both opening tags stand somewhere in the text."""
    texts = [rewards.text_of(c) for c in completions]
    return [float("<reasoning>" in t and "<answer>" in t) for t in texts]


draft = ([draft_right, draft_form], [2.0, 1.0])

# %% [markdown]
# The second version reads one place only, the single answer block, and compares numbers exactly. The form comes from
# the course's rewards. **For your task write `right_number` anew**, and keep its three habits: read one fixed place,
# take only one answer, compare exactly.

# %%
from grpo_workbook import parse_rewards
from grpo_workbook.rewards import answers


@reward("correctness", columns=("answer",), answers="number")
def right_number(completions, answer, **columns):
    """1.0 where the only answer block holds exactly the right number."""
    said = [answers.tagged_answer(rewards.text_of(c)) for c in completions]
    return [float(answers.is_correct(s, gold)) for s, gold in zip(said, answer)]


form, form_weights = parse_rewards("strict_format:0.5,incremental_format:0.5")
functions, weights = [right_number, *form], [2.0, *form_weights]

# %% [markdown]
# Now attack both. Take a question of yours, what a good model would write (`HONEST`), the course's collection of
# attacks, and attacks made from your own data: the right form around the commonest answers, and around other questions'
# answers. The collection needs a whole number as answer; if yours are texts, it attacks a question of its own, and
# exercise 14.2 attacks yours.

# %%
from collections import Counter

from grpo_workbook.rewards import attacks, honest, score_rewards

fit = [r for r in train_rows if r["answer"].isdecimal() and 10 <= int(r["answer"])]
row = (fit or [{"question": "What is 6 times 7?", "answer": "42"}])[0]
HONEST = honest(row["answer"])
attempts = [(a.family, a.text) for a in attacks(
    row["answer"], str(int(row["answer"]) - 1), row["question"])]
common = Counter(train_rows["answer"]).most_common(2)
for answer in {*(text for text, _ in common), *train_rows["answer"][:9]}:
    if answer != row["answer"]:
        attempts.append(("another row's answer", honest(answer)))
print(len(attempts), "attacks on:", row["question"])

# %% [markdown]
# `score` makes one group of the honest completion and all attacks, and adds the rewards up as TRL does. An attack that
# earns as much as the honest completion **gets through**.

# %%
def attack(functions, weights):
    """What each attack earns, as a fraction of the honest completion's reward."""
    texts = [HONEST, *(text for _, text in attempts)]
    table = score_rewards(functions, texts, [row], group_size=len(texts), weights=weights)
    full, *earned = table.groups["total"][0]
    assert full > 0, "the honest completion earns nothing: correct it, or the reward"
    return [value / full for value in earned]


from grpo_workbook import files

earned = {"draft": attack(*draft), "final": attack(functions, weights)}
through = {name: sum(e >= 1 for e in values) for name, values in earned.items()}
attacked = {"attacks": len(attempts), "through": through["final"],
            "most": max(earned["final"]), "rewards": [f.__name__ for f in functions]}
files.write_json(run.output / "attacks.json", attacked)
print(through, f"of {len(attempts)} get through; the best earns {attacked['most']:.0%}")

# %% [markdown]
# By kind of attack:

# %% tags=["hide-input"]
kinds = list(dict.fromkeys(kind for kind, _ in attempts))
counts = {"all": [sum(kind == k for k, _ in attempts) for kind in kinds]}
for name, values in earned.items():
    pairs = list(zip(attempts, values))
    fooled = [kind for (kind, _), fraction in pairs if fraction >= 1]
    counts[name] = [fooled.count(kind) for kind in kinds]
figure, (axes,) = figures.new_panels(7.5, 4.4)
look = {"color": figures.ORANGE, "hatch": "//", "edgecolor": "white"}
axes.barh(kinds, counts["all"], color="#DDDDDD", label="attacks tried")
axes.barh(kinds, counts["draft"], 0.5, label="fool the draft", **look)
axes.barh(kinds, counts["final"], 0.25, color=figures.BLUE, label="fool the final ones")
axes.invert_yaxis()
axes.grid(False)
axes.set_xlabel("number of attacks")
axes.set_title(f"Of {len(attempts)} attacks {through['draft']} fool the draft, "
               f"{through['final']} the final rewards")
figure.legend(frameon=False, loc="outside lower center", ncols=3)
parts = zip(kinds, counts["draft"], counts["all"])
said = ", ".join(f"{kind} {fooled} of {tried}" for kind, fooled, tried in parts)
figures.show(figure, f"Bar chart by kind of attack. The draft is fooled by: {said}. "
             f"The final rewards by {through['final']}.")

# %% [markdown]
# ## 4 · Can the model learn it?
#
# Load the policy: the base in 4 bits, with fresh LoRA adapters.

# %%
from grpo_workbook import load_policy, training

policy, tokenizer = load_policy(run)
print(training.count_4bit_layers(policy), "layers in 4 bits,",
      f"{policy.get_nb_trainable_parameters()[0]:,} weights will learn")

# %% [markdown]
# <details><summary>The calls behind <code>load_policy</code> and <code>make_trainer</code>, for a script of your
# own</summary>
#
# ```python
# import torch
# from unsloth import FastLanguageModel  # first: it patches TRL and Transformers
# from trl import GRPOConfig, GRPOTrainer
#
# model, tokenizer = FastLanguageModel.from_pretrained(
#     "unsloth/Qwen3-1.7B", max_seq_length=896, dtype=torch.float16, load_in_4bit=True)
# model = FastLanguageModel.get_peft_model(
#     model, r=32, lora_alpha=64, lora_dropout=0.0, random_state=0,
#     target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
#                     "gate_proj", "up_proj", "down_proj"])
# tokenizer.padding_side = "left"
# args = GRPOConfig(
#     "outputs", max_steps=250, learning_rate=1e-5, num_generations=8,
#     per_device_train_batch_size=8, gradient_accumulation_steps=4, fp16=True,
#     max_completion_length=512, reward_weights=weights, logging_steps=1,
#     chat_template_kwargs={"enable_thinking": False})
# trainer = GRPOTrainer(
#     model=model, processing_class=tokenizer, args=args,
#     reward_funcs=functions, train_dataset=train_set)
# trainer.train()
# ```
#
# Where TRL runs without Unsloth's changes, as on a CPU, it rounds the adapters to bfloat16. Keep a copy of their
# weights before the trainer is built, and put it back after ([chapter 04](04_grpo_run.ipynb)).
#
# </details>
#
# GRPO needs a task that the model solves *sometimes*. So sample a group for a few training problems, and score it. The
# column `equal` is the rate of groups whose rewards are all equal; in the row `total` such a group teaches nothing.
# (`none` counts completions to which a reward did not apply.)

# %%
from grpo_workbook import evaluate

how = {"max_new_tokens": run.max_completion_length, "batch_size": run.eval_batch,
       "seed": run.seed, "judge": MY_JUDGE}
group = run.num_generations
few = train_set.select(range(2 * run.prompts_per_step))
tried = evaluate(policy, tokenizer, few, samples=group, sample=True, **how)
scored = score_rewards(functions, tried.completions, list(few), group_size=group,
               weights=weights)
scored.table().round(2)

# %% [markdown]
# How many completions of each group give the right answer?

# %% tags=["hide-input"]
right = [round(sum(values)) for values in scored.groups[functions[0].__name__]]
labels = [str(k) for k in range(group + 1)]
mixed = sum(0 < k < group for k in right)
title = f"In {mixed} of {len(few)} groups some completions are right and some wrong"
figure, words = figures.bar_panels(
    {"untrained model": [right.count(k) for k in range(group + 1)]},
    labels, y="groups", title=title)
figure.axes[0].set_xlabel(f"right completions of {group}")
figures.show(figure, f"{title}. {words}")

# %% [markdown]
# Where most groups are at 0, take easier problems, or teach the form by SFT first. Where most are at the right edge,
# take harder ones.

# %% [markdown]
# ## 5 · Plan: memory and problems
#
# What will the run take of your GPU? In the smoke profile this plans a real model on a T4.

# %%
from grpo_workbook.planning import plan

smoke = run.profile == "smoke"
print(plan("qwen", "t4") if smoke else plan(run.model, run.profile))

# %% [markdown]
# And what gain could the held-out problems show? With a power of 80 %, if 3 % of the problems get worse:

# %%
from grpo_workbook import statistics
from grpo_workbook.statistics import paired_gain

smallest = paired_gain(len(heldout_set), worse=0.03) or 1.0
print(f"{len(heldout_set)} problems show a gain from {100 * smallest:.1f} points on")

# %% [markdown]
# ## 6 · The baseline
#
# *Strict* is right and in the required form. *Sampled* is at temperature 1, as in training.

# %%
from grpo_workbook import wilson_interval

before_sampled = evaluate(policy, tokenizer, heldout_set, sample=True, **how)
before_greedy = evaluate(policy, tokenizer, heldout_set, **how)
low, high = before_sampled.interval
print(f"strict, sampled: {before_sampled.rate:.1%} ({low:.1%} to {high:.1%})")
print(before_sampled.completions[0])

# %% [markdown]
# ## 7 · The run
#
# `watch` counts what the rewards see. `HealthCallback` diagnoses the log while it grows, and stops the run when it is
# lost. `HeldoutProbe` looks at a few held-out problems now and then. It only watches: choose no checkpoint by it.

# %%
from grpo_workbook import HeldoutProbe
from grpo_workbook.run_config import make_trainer
from grpo_workbook.resume import stop_on_interrupt
from grpo_workbook.diagnosis import HealthCallback, roles_of, watch

watched = watch(functions)
trainer = make_trainer(run, policy, tokenizer, train_set, watched, weights)
trainer.add_callback(HealthCallback(watched, stop_on={"nan", "collapsed"}))
every = max(1, run.max_steps // 4)
trainer.add_callback(HeldoutProbe(policy, tokenizer, heldout_set, every=every, **how))
print(type(trainer).__name__, "of", type(trainer).__module__.split(".")[0])
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# Write down what the run was, and its log.

# %%
left_out = ("device", "profile", "model", "family", "seed", "output", "why")
settings = {name: value for name, value in vars(run).items() if name not in left_out}
names = [f.__name__ for f in functions]
what = {"settings": settings, "reward_roles": roles_of(functions),
        "reward_weights": dict(zip(names, weights))}
files.write_json(run.output / "run.json", what)
files.write_json(run.output / "log.json", trainer.state.log_history)
log = [entry for entry in trainer.state.log_history if "reward" in entry]
print(len(log), "of", run.max_steps, "steps are in the log")

# %% [markdown]
# ## 8 · The diagnosis
#
# It reads the folder, as `python -m grpo_workbook diagnose FOLDER` does. If it finds something severe, correct that and
# train again *before* you look at the held-out problems.

# %%
from grpo_workbook.diagnosis import as_text, diagnose, read_run, run_panels
from grpo_workbook.diagnosis.findings import SEVERE

whole = read_run(run.output)
findings = diagnose(whole)
print(as_text(findings, whole))
figures.show(*run_panels(whole, findings, f"Diagnosis: {findings[0].name}"))

# %% [markdown]
# ## 9 · Did it help?
#
# The same held-out problems, sampled with the same seed:

# %%
from grpo_workbook.evaluation import report_heldout

after_sampled = evaluate(policy, tokenizer, heldout_set, sample=True, **how)
after_greedy = evaluate(policy, tokenizer, heldout_set, **how)
results = report_heldout({"sampled": before_sampled, "greedy": before_greedy},
                         {"sampled": after_sampled, "greedy": after_greedy})
strict, lenient = results["sampled"]["strict"], results["sampled"]["lenient"]
p_value = strict["p_value"]
low, high = strict["gain_interval"]
gain_said = (f"{100 * strict['gain']:+.1f} points, "
             f"95 % interval {100 * low:+.1f} to {100 * high:+.1f}")
print(f"{strict['better']} problems got better, {strict['worse']} worse, p = {p_value:.1g}")
print("gain", gain_said)
print(f"lenient {lenient['before']:.1%} to {lenient['after']:.1%}")

# %% [markdown]
# *Lenient* accepts the right number in any form. In the example it rises far less than *strict*, so most of the gain is
# form. Report both, or a reader takes all of it for arithmetic.

# %% [markdown]
# ## 10 · Report, merge, card
#
# The report collects the numbers. `merge` finds it beside the adapter, and the model card takes its facts from there.

# %%
from statistics import mean

from grpo_workbook import merge, save_adapter

tenth = max(1, len(log) // 10)
ends = {"first_tenth": log[:tenth], "last_tenth": log[-tenth:]}
source = os.path.basename(MY_FILE) if os.path.exists(MY_FILE) else MY_FILE
report = {
    "model": run.model_name, "seed": run.seed, "steps": len(log), "backend": "unsloth",
    "load_in_4bit": run.load_in_4bit, "reward_weights": what["reward_weights"],
    "lora_parameters": policy.get_nb_trainable_parameters()[0],
    "data": {"source": source, "train": len(train_set), "heldout": len(heldout_set),
             "dropped_leaked": dropped_leaked},
    "data_sha256": data.splitting.sha256_of(train_rows, heldout_rows),
    "rewards": {name: {end: round(mean(e[f"rewards/{name}/mean"] for e in part), 3)
                       for end, part in ends.items()} for name in names},
    "heldout": results,
}
files.write_json(run.output / "report.json", report)

# %% [markdown]
# The merge is proved by its logits and by its held-out answers, or refused ([chapter
# 09](09_merge_and_inference.ipynb)).

# %%
save_adapter(policy, tokenizer, run.output / "adapter")
proof = merge(run.model, run.output / "adapter", run.output / "merged",
              heldout=heldout_set, policy=after_greedy, judge=MY_JUDGE,
              max_new_tokens=run.max_completion_length, batch_size=run.eval_batch)
proof.pop("merged_answers")
files.write_json(run.output / "report.json", report | {"merge": proof})
proof

# %% [markdown]
# The card, from its numbers to its rewards. Read it as a stranger would who finds the model in a year:

# %%
card = (run.output / "merged" / "README.md").read_text(encoding="utf-8")
begin, end = card.index("## Before and after"), card.index("## Hyper-parameters")
print(card[begin:end])

# %% [markdown]
# ## 11 · The checklist
#
# Each item is computed from the files. First those of data and rewards:

# %%
from grpo_workbook import export


def input_checks(folder):
    """{what must hold: (whether it does, the evidence)}, of data and rewards."""
    told, report, attacked = (files.read_json(folder / f"{name}.json")
                              for name in ("data_report", "report", "attacks"))
    parts = read_parts(folder)
    kinds = ("invalid", "same_question", "near", "heldout_invalid")
    faults, leaks = sum(len(told[kind]) for kind in kinds), len(leaked_rows(*parts))
    found = data.splitting.sha256_of(*parts)
    same = attacked["rewards"] == list(report["reward_weights"])
    most = f"the best of {attacked['attacks']} earns {attacked['most']:.0%}"
    return {
        "no invalid or repeated row": (faults == 0, f"{faults} found"),
        "nothing in the data would hurt":
            (not told["hurts"], "; ".join(told["hurts"]) or "0 found"),
        "no training question is held out": (leaks == 0, f"{leaks} found"),
        "the data files are the run's":
            (found == report["data_sha256"], f"SHA-256 {found[:8]}"),
        "the attacked rewards were trained": (same, ", ".join(attacked["rewards"])),
        "no attack gets through": (attacked["most"] < 1, most),
    }

# %% [markdown]
# Then those of the run and of what it produced:

# %%
def result_checks(folder):
    """{what must hold: (whether it does, the evidence)}, of the run and its model."""
    report, whole = files.read_json(folder / "report.json"), read_run(folder)
    steps, wanted = whole.table["reward"].count(), whole.settings["max_steps"]
    severe = [f.name for f in diagnose(whole) if f.severity == SEVERE]
    held, proof = report["heldout"]["sampled"]["strict"], report["merge"]
    rates = [held[when] for when in ("before", "after")]
    gained = rates[1] > rates[0] and held["p_value"] < 0.05
    proved = export.is_proved(proof) and any((folder / "merged").glob("*.safetensors"))
    same = f"same token at {proof['same_greedy_tokens']:.1%} of the places"
    card = (folder / "merged" / "README.md").read_text(encoding="utf-8")
    facts = [report["data"]["source"], *report["reward_weights"]]
    missing = [f for f in [*facts, *(f"{r:.1%}" for r in rates)] if f not in card]
    return {
        "training ended": (steps == wanted, f"{steps} of {wanted} steps"),
        "no severe finding": (not severe, ", ".join(severe) or "none"),
        "the gain is no chance": (gained, f"{rates[0]:.1%} to {rates[1]:.1%}, "
                                  f"p = {held['p_value']:.1g}"),
        "the merge is proved": (proved, same),
        "the card names data, rewards, numbers":
            (not missing, ", ".join(missing) or "all found"),
    }

# %% [markdown]
# Both together:

# %%
def checklist(folder):
    return input_checks(folder) | result_checks(folder)


done = checklist(run.output)
for item, (holds, evidence) in done.items():
    print(f"[{'x' if holds else ' '}] {item:38} {evidence}")

# %% [markdown]
# A checklist that cannot fail is worth nothing. So put one held-out question into the training file, and look again:

# %%
train_file, heldout_file = (run.output / f"{n}.jsonl" for n in ("train", "heldout"))
kept = train_file.read_bytes()
try:
    train_file.write_bytes(kept + heldout_file.read_bytes().splitlines()[0] + b"\n")
    spoiled = checklist(run.output)
finally:
    train_file.write_bytes(kept)
for item, (holds, evidence) in spoiled.items():
    if not holds:
        print(f"[ ] {item:38} {evidence}")

# %% [markdown]
# Three things no program can check. Check them yourself:
#
# - I read 50 completions from before and 50 from after, right ones as well as wrong ones.
# - The held-out problems are what users will ask, not what was easy to collect.
# - I looked at the held-out set once. No reward, step or checkpoint was chosen by it.

# %% [markdown]
# ## 12 · The page
#
# One page to send: the gain, the curve, three problems, the checklist. First the picture of the gain:

# %% tags=["hide-input"]
rose = f"{before_sampled.rate:.0%} to {after_sampled.rate:.0%}"
gain_figure, (axes,) = figures.new_panels(7.0, 3.6)
kinds = ["strict", "lenient", "well_formed"]
sides = {"before": (before_sampled, figures.GREY),
         "after": (after_sampled, figures.BLUE)}
said = []
for shift, (when, (scores, colour)) in zip((-0.2, 0.2), sides.items()):
    rates = [mean(getattr(scores, kind)) for kind in kinds]
    bounds = [wilson_interval(getattr(scores, kind)) for kind in kinds]
    ends_of = [[r - b[0] for r, b in zip(rates, bounds)],
               [b[1] - r for r, b in zip(rates, bounds)]]
    places = [i + shift for i in range(len(kinds))]
    axes.bar(places, rates, 0.38, color=colour, label=when)
    axes.errorbar(places, rates, ends_of, fmt="none", color="black", capsize=4)
    said.append(when + " " + ", ".join(f"{k} {r:.1%}" for k, r in zip(kinds, rates)))
axes.set(xticks=range(len(kinds)), xticklabels=[k.replace("_", "-") for k in kinds],
         ylim=(0, 1.05), ylabel="rate, sampled",
         title=f"{len(heldout_set)} held-out problems: {rose} strict")
gain_figure.legend(frameon=False, loc="outside right center")
gain_words = f"Bars with 95 % intervals, held-out problems: {'; '.join(said)}."

# %% [markdown]
# And the rewards while training:

# %%
curve_figure, curve_words = figures.reward_curves(log)
totals = [mean(e["reward"] for e in part) for part in ends.values()]
curve_figure.axes[0].set_title(f"Reward: {totals[0]:.1f} to {totals[1]:.1f}")
pictures = [figures.Picture(gain_figure, gain_words),
            figures.Picture(curve_figure, curve_words)]

# %% [markdown]
# The completions are the first three held-out ones, so that nobody chose them. A model wrote them, so they are escaped:
# otherwise a `<script>` in a completion would run in the reader's browser.

# %%
from html import escape


def sample_html(i):
    """One held-out question, with what the model wrote before and after."""
    texts = [f"<b>{escape(heldout_set[i]['question'])}</b>"]
    for when, scores in (("before", before_sampled), ("after", after_sampled)):
        text, right = escape(scores.completions[i]), scores.strict[i]
        texts.append(f"{when}, {'' if right else 'not '}strictly right:<pre style="
                     f"'white-space:pre-wrap;margin:2px 12px'>{text}</pre>")
    return f"<div style='flex:1 1 220px'>{'<br>'.join(texts)}</div>"


def list_html(done):
    """The checklist, an item a line."""
    lines = ((("&#10003;" if holds else "&#10007;"), item, evidence)
             for item, (holds, evidence) in done.items())
    return "".join(f"<p style='margin:3px 0'>{mark} <b>{escape(item)}</b>: "
                   f"{escape(evidence)}</p>" for mark, item, evidence in lines)

# %% [markdown]
# Put together, written to `page.html`, and shown:

# %%
from IPython.display import display

row_style = "display:flex;flex-wrap:wrap;gap:16px"
images = "".join(
    f"<img style='flex:1 1 480px;min-width:0;max-width:100%' "
    f'src="data:image/png;base64,{picture.png}" alt="{escape(picture.words)}">'
    for picture in pictures)
samples = "".join(sample_html(i) for i in range(3))
page = f"""<div style='background:#fff;color:#111;padding:12px;max-width:960px'>
<h3>{escape(run.model_name)} on {escape(str(source))}</h3>
<p>Strictly right on {len(heldout_set)} held-out problems: {rose}
({gain_said}, p = {p_value:.1g}).</p>
<div style='{row_style}'>{images}</div>
<div style='{row_style}'>{samples}</div>
<h4>Checked</h4>{list_html(done)}</div>"""
head = "<!doctype html><html lang=en><meta charset=utf-8><title>My model</title>"
head += "<meta name=viewport content='width=device-width'>"
(run.output / "page.html").write_text(head + page, encoding="utf-8")
words = f"A page with two pictures, three samples and a checklist. {gain_words}"
shown = {"text/html": page, "image/png": pictures[0].png, "text/plain": words}
display(shown, raw=True)

# %% [markdown] tags=["remove-cell"]
# This cell is for the automatic run on every change: it fails if training did not happen or did not help.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
proved = {"steps": trainer.state.global_step, "heldout": results,
          "p_value": p_value, "leaks": naive_leaks, "rows": found, "through": through,
          "linear4bit_layers": training.count_4bit_layers(policy), "merge": proof,
          "checklist": {item: bool(holds) for item, (holds, _) in done.items()},
          "spoiled": [item for item, (holds, _) in spoiled.items() if not holds]}
files.write_json(run.output / "notebook_14.json", proved)
if run.profile == "smoke":
    assert trainer.state.global_step == run.max_steps == len(log)
    assert after_sampled.rate > before_sampled.interval[1] and p_value < 1e-6, "no gain"
    assert all(proved["checklist"].values()), done

# %% [markdown]
# ## Three projects
#
# ### Answers from your knowledge base
#
# - **Data:** questions whose answer is a number, a date, a name from a list, or yes or no. Each comes with the passage
#   that says it, and the passage is part of the prompt, because GRPO teaches how to answer, not facts.
# - **Reward:** the answer, compared exactly after `strip().lower()`, and a smaller one for the number of the right
#   passage.
# - **Trap:** questions from one document stand on both sides of the split (exercise 14.1).
# - **First step:** 100 rows, eight samples each. In how many groups is the model neither always right nor always wrong?
#
# ### Functions that pass their tests
#
# - **Data:** small functions of your own code, each with six tests or more. The docstring is the prompt.
# - **Reward:** the rate of passed tests, in the sandbox: `unit_tests` of [chapter 06](06_code_rewards.ipynb).
# - **Trap:** tests that stand in the prompt are passed by looking the values up. Show two, and pay for the others.
# - **First step:** run `code_attacks` of `grpo_workbook.sandbox.attacks` against your own tests.
#
# ### Fields from messy text
#
# - **Data:** e-mails or invoices, with the fields that someone once typed in. The answer is JSON.
# - **Reward:** 0 unless the JSON parses and has exactly the right keys, then the rate of right fields.
# - **Trap:** in most rows most fields are empty, so a constant "all empty" earns a lot.
# - **First step:** compute what the constant answer earns, and pay only what lies above it.
#
# For all three: measure first with the model you have. If it is right in fewer than 5 % of the samples, fine-tune on
# some answers first (SFT). If it is right in more than 90 %, choose harder rows.

# %% [markdown]
# ## Exercises
#
# Two functions, the second one for your own task, and two experiments, which run only after you have written a
# prediction.

# %% [markdown]
# ### Exercise 14.1 · `split_by_group` · medium · 8 minutes
#
# Rows from one document, customer or repository know each other's answers. So hold out whole groups. `groups` names the
# group of each row. Take groups in the order of their first row, **from the last one backwards**, until at least
# `heldout` rows are held out. Return the indices of the held-out rows, ascending.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def split_by_group(groups: list[str], heldout: int) -> list[int]:
    raise NotImplementedError


check("14.1", split_by_group);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `list(dict.fromkeys(groups))` has every group once, in the order of its first row. A group's rows need not be
# neighbours.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def split_by_group(groups: list[str], heldout: int) -> list[int]:
#     chosen: list[int] = []
#     for group in reversed(list(dict.fromkeys(groups))):
#         if len(chosen) >= heldout:
#             break
#         chosen += [i for i, g in enumerate(groups) if g == group]
#     return sorted(chosen)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 14.2 · `my_project` · hard · 25 minutes
#
# A reward for **your** task, attacked with texts made from your own rows. Return three things:
#
# - the reward, in TRL's contract;
# - at least eight rows, each a dict with `question`, `answer` and what else the reward needs (read them from your
#   file);
# - a function that takes a row and gives the text that a good model would write.
#
# The check pairs every row with its honest text, and then with: the honest text of another row, all answers in a list,
# the honest text followed by another one, the same text five times, the question, and nothing. Each must earn less than
# the honest text, on every row. All rewards lie between -1 and 1. And no fixed text may be right in more than half of the
# rows.

# %% tags=["exercise"]
def my_project() -> tuple:
    raise NotImplementedError


check("14.2", my_project);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `right_number` passes for word problems with `lambda row: honest(row["answer"])`. For texts, compare the whole answer
# after `strip().lower()`, and accept one marked place only.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_project() -> tuple:
#     import json
#
#     def fields_reward(completions, answer, **columns):
#         """1.0 for JSON with exactly the right fields, half of it for one right field."""
#
#         def value(text, gold):
#             try:
#                 said = json.loads(text)
#             except ValueError:
#                 return 0.0
#             if not isinstance(said, dict) or said.keys() != gold.keys():
#                 return 0.0
#             return sum(said[key] == gold[key] for key in gold) / len(gold)
#
#         texts = [c if isinstance(c, str) else c[0]["content"] for c in completions]
#         return [value(t, json.loads(gold)) for t, gold in zip(texts, answer)]
#
#     people = ["Ada", "Ben", "Carla", "Dana", "Emil", "Farid", "Grace", "Hugo"]
#     rows = [{"question": f"{name} orders {n} lamps, please by {10 + n} May.",
#              "answer": json.dumps({"name": name, "lamps": n, "day": 10 + n})}
#             for n, name in enumerate(people, 2)]
#     return fields_reward, rows, lambda row: row["answer"]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 14.3 · `first_draft` · medium · 6 minutes
#
# What if nobody had attacked the draft? Train 16 steps with it. It pays 2 for the right number anywhere and 1 for the
# two opening tags. Does the strict held-out accuracy `"rise"`, `"stay"` (p of the paired test is 0.05 or more) or
# `"fall"`?

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "rise", "stay" or "fall"


def first_draft() -> dict:
    """16 steps with the draft's rewards: change the draft, or the number of steps."""
    short = run.replace(max_steps=16, output=run.output / "first_draft")
    fresh, _ = load_policy(short)
    again = make_trainer(
        short, fresh, tokenizer, train_set, *draft, {"save_strategy": "no"})
    again.train()
    scores = evaluate(fresh, tokenizer, heldout_set, sample=True, **how)
    print(scores.completions[0])
    paid = [e["reward"] for e in again.state.log_history if "reward" in e]
    return {"reward": paid, "before": before_sampled.strict, "after": scores.strict}


predict("14.3", prediction, first_draft);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Print a few completions of the base that the draft pays in full. What is left for training to improve, and does the
# draft pay for a clean end?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "stay"
# ```
#
# Measured with seed 0: the draft's own reward rose from 2.4 to 2.7 of 3, and of 120 problems 18 were strictly right
# before and 11 after (p = 0.14). Read the printed completion: behind the answer block it says another number. That
# costs nothing under the draft, and a second number is a second chance.
#
# </details>

# %% [markdown]
# ### Exercise 14.4 · `few_rows` · medium · 6 minutes
#
# How many rows does *your* project need? Train again, as long as above, on the first 16 training problems alone. Is the
# strict held-out accuracy `"lower"` than that of the run above, `"higher"`, or is there `"no difference"` (p of the
# paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "lower", "higher" or "no difference"


def few_rows() -> dict:
    """The same run on 16 problems: change how many."""
    again = run.replace(output=run.output / "few_rows")
    fresh, _ = load_policy(again)
    few = train_set.select(range(16))
    small = make_trainer(
        again, fresh, tokenizer, few, functions, weights, {"save_strategy": "no"})
    small.train()
    scores = evaluate(fresh, tokenizer, heldout_set, sample=True, **how)
    return {"before": after_sampled.strict, "after": scores.strict}


predict("14.4", prediction, few_rows);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Look at *strict* and *lenient* above: what is most of the gain? How many different problems does it take to learn
# that?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "no difference"
# ```
#
# Measured with seed 0: 102 of 120 with 590 problems, 98 with 16 (p = 0.42). Most of the gain is the form, which is the
# same in every problem. So a first run of your own needs few rows, as long as the model solves them sometimes.
# [Wang et al. 2025](https://arxiv.org/abs/2504.20571) trained Qwen2.5-Math-1.5B on a single problem, and MATH-500 rose
# from 36.0 % to 73.6 %. Still, 120 held-out problems show only differences from about eleven points on, and a new skill
# takes more rows than a form.
#
# </details>

# %% [markdown]
# ## Summary
#
# - Clean before you split, and train on the files that you checked.
# - Attack the rewards before training, also with texts made from your own rows.
# - Look at the untrained model's groups: only groups with different rewards teach.
# - Baseline, run, diagnosis, the same problems again: an interval and a paired test say what the run was worth.
# - The merge is proved, and the card says with what data, rewards and numbers the model was made.
# - A checklist reads files. What it cannot read, you have to do: read completions, and look at the held-out set once.
#
# This was the last chapter. `python -m grpo_workbook run --config my.yaml` does steps 6 to 10 in one command
# ([templates/my_project](../templates/my_project/README.md)), and [chapter 00](00_start_here.ipynb) has the map.
