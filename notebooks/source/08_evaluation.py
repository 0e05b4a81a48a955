# %% [markdown]
# # 08 · Evaluation
#
# **After this notebook you can** say before a run how many problems it takes to see a gain, measure a model strictly
# and leniently with an interval, show with a paired test that training helped, read pass@k and majority vote, and find
# what got worse.
#
# **Time:** about 2 minutes on two CPU cores; a short training run is half of it. On a GPU the same cells measure
# Qwen3 or Gemma 3; the times there have not been measured yet.

# %% [markdown]
# ## 30 problems prove nothing
#
# A model that is right half of the time answers 30 problems. Then it answers 30 others. Nothing was trained in between.
# How often does it look better by ten *points*, that is percentage points? We do that 10,000 times:

# %%
import numpy as np

rng = np.random.default_rng(0)
few = rng.binomial(30, 0.5, (10_000, 2)) / 30  # (repetition, before and after)
many = rng.binomial(480, 0.5, (10_000, 2)) / 480
for name, rates in (("30 problems", few), ("480 problems", many)):
    gains = (rates[:, 1] - rates[:, 0]).round(6)  # 0.1 is no exact float
    print(f"{name}: a gain of 10 points or more in {np.mean(gains >= 0.1):.1%}")

# %% [markdown]
# With 30 problems, luck alone hands out ten points in about one of four tries. Whoever trains four times and shows the
# best run has a result, and perhaps no better model.

# %%
from grpo_workbook import figures

edges = np.array([-0.45, -0.25, -0.15, -0.05, 0.05, 0.15, 0.25, 0.45])
labels = ["-25 and less", "-25 to -15", "-15 to -5", "-5 to 5",
          "5 to 15", "15 to 25", "25 and more"]
bars = {
    name: np.histogram((r[:, 1] - r[:, 0]).clip(-0.44, 0.44), edges)[0] / 100
    for name, r in (("30 problems", few), ("480 problems", many))
}
figure, words = figures.bar_chart(
    bars,
    labels,
    y="% of repetitions",
    title="Gains in points where nothing changed",
    finding="480 problems stay near 0; 30 problems scatter over 30 points.",
    form=".0f",
)
figure.axes[0].tick_params(axis="x", labelsize=7)
figures.show(figure, words)

# %% [markdown]
# ## How many problems, then? Ask before the run
#
# **Power** is the probability that a gain which is really there is also found: that the test's p is at most 0.05. It
# depends on how the two measurements hang together:
#
# - *unpaired*: before and after on different problems. The luck of which problems they are counts twice.
# - *paired*: the same problems before and after. Only those that changed count; what was right and stays right, or was
#   out of reach and stays there, cancels.

# %%
from grpo_workbook import statistics

print("to see a gain from 60 % with a power of 80 % (paired: 3 % get worse):")
for gain in (0.20, 0.10, 0.05, 0.02):
    paired = statistics.paired_items(better=gain + 0.03, worse=0.03)
    unpaired = statistics.unpaired_items(0.60, 0.60 + gain)
    print(
        f"  {gain:3.0%}: {paired:5,} problems paired, {unpaired:6,} unpaired, each time"
    )

# %% [markdown]
# And the other way round: what is the smallest gain that the problems you have can show, again with a power of 80 %?

# %%
counts = [30, 60, 120, 240, 480, 960]
paired = [100 * statistics.paired_gain(n, worse=0.03) for n in counts]
unpaired = [100 * statistics.unpaired_gain(n, 0.60) for n in counts]
figures.show(
    *figures.line_chart(
        {
            "paired, 3 % get worse": (counts, paired),
            "unpaired, from 60 %": (counts, unpaired),
        },
        x="problems",
        y="smallest gain, points",
        log_x=True,
        title="What so many problems can show",
        finding="Pairing is worth many problems.",
    )
)

# %% [markdown]
# With 30 problems pairing does not help yet: either way it takes a gain of some 30 points. From 120 on it is worth as
# much as two to five times the problems.
#
# `python -m grpo_workbook power --before 0.6 --gain 0.05` says the same on the command line. If the answer is more
# problems than you have, get more first: otherwise a gain of that size would most likely be missed.

# %% [markdown]
# ## The model and its baseline
#
# A short run, set up as in chapter 04.

# %%
import os

from grpo_workbook import RunConfig, quiet, show

quiet()
run = RunConfig.from_env(max_steps=40, heldout=160)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook import load_policy

model, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# `evaluate` takes any model, its tokenizer, and a dataset with the columns `prompt` and `answer`. The held-out problems
# are answered eight times each, sampled at temperature 1 as training samples them: with eight answers there is more to
# see than with one. `table` puts what came out beside the dataset's own columns, a row for each answer, for pandas.

# %%
from grpo_workbook import data, evaluate, load_problems, to_dataset

SAMPLES = 8
problems = load_problems(data.WORD_PROBLEMS["heldout"])
heldout = to_dataset(problems.select(range(run.heldout)))
how = {
    "samples": SAMPLES,
    "sample": True,
    "seed": run.seed,
    "batch_size": run.eval_batch,
    "max_new_tokens": run.max_completion_length,
}
before = evaluate(model, tokenizer, heldout, **how).table(heldout)
print(before["problem"].nunique(), "problems,", len(before), "completions")
before[["problem", "sample", "answer", "completions", "strict", "lenient"]].head(4)

# %% [markdown]
# ## Strict and lenient
#
# *Strict*: in the asked form, and right. *Lenient*: the number that a kind reader would take is right. Both are true,
# and they say different things: the first is what a program can use, the second what the model knows.

# %%
MEASURES = ["strict", "lenient", "well_formed"]
first_before = before[before["sample"] == 0].set_index("problem")
for name in MEASURES:
    right = first_before[name]
    low, high = statistics.wilson_interval(right)
    told = f"{sum(right):3} of {len(right)} = {right.mean():.1%}"
    print(f"{name:11} {told}   95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# (These are the first answers only, one for each problem.) The interval is Wilson's: all true rates under which what
# you saw would not be a surprise. The one from the schoolbook, `rate ± 1.96 * sqrt(rate * (1 - rate) / n)`, fails
# where it matters: 30 of 30 right gives it 100 % to 100 %.

# %%
print("30 of 30:", statistics.wilson_interval([True] * 30))
print(" 0 of 30:", statistics.wilson_interval([False] * 30))

# %% [markdown]
# Never trust a rate whose completions you have not read. What is right leniently and wrong strictly?

# %%
loose = first_before[first_before["lenient"] & ~first_before["strict"]]
for row in loose.head(4).itertuples():
    print(f"{row.answer:>3}: {' '.join(row.completions.split())}")

# %% [markdown]
# ## Means: the bootstrap
#
# A length is no yes or no, and neither is a problem's rate over eight samples. For means of anything the **bootstrap**
# resamples the problems, with replacement, thousands of times, and looks how far the mean wanders.
#
# It resamples *problems*. Eight answers to one problem are not eight problems: an easy one is right eight times.
# Resampling single answers instead gives an interval that is too narrow, the more so the more the problems differ. The
# course's are much alike, so the two differ little here:

# %%
interval = statistics.bootstrap_interval
rates = before.groupby("problem")["lenient"].mean()
lengths = first_before["tokens"]
print(f"lenient, mean {rates.mean():.1%}")
print("  over problems:   {:.1%} to {:.1%}".format(*interval(rates)))
print("  over answers:    {:.1%} to {:.1%}".format(*interval(before["lenient"])))
print(f"tokens, mean {lengths.mean():.1f}")
print("  over problems:   {:.1f} to {:.1f}".format(*interval(lengths)))

# %% [markdown]
# ## Another skill, to see whether it is forgotten
#
# Training on one thing can cost another. So measure something that is *not* trained: here lines of bare arithmetic,
# without any chat around them, which the model continues. Each text holds three solved sums and one to solve.

# %%
import re

signs = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
draw = np.random.default_rng(8)
sums = [
    (int(draw.integers(12, 25)), str(draw.choice([*signs])), int(draw.integers(2, 10)))
    for _ in range(400)
]
# each one once, and none with a larger answer than the word problems have
sums = [(a, s, b) for a, s, b in dict.fromkeys(sums) if signs[s](a, b) <= 60]
lines = [f"5+5=10\n12/4=3\n9*3=27\n{a}{s}{b}=" for a, s, b in sums]
print(lines[0])

# %% [markdown]
# The likeliest continuation, read as a number, is right or wrong. (`generate` takes chats, or texts as they stand.)

# %%
from grpo_workbook import generate


def answer_sums():
    texts = generate(model, tokenizer, lines, max_new_tokens=4, batch_size=400)
    read = [re.match(r"\d*", text)[0] for text in texts]
    return [text == str(signs[s](a, b)) for text, (a, s, b) in zip(read, sums)]


sums_before = answer_sums()
print(f"bare sums before: {sum(sums_before)} of {len(sums)} right")

# %% [markdown]
# ## A short training run
#
# 40 steps, with the rewards of chapter 03.

# %%
from grpo_workbook import make_trainer, parse_rewards, stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# ## Did it get better?
#
# The same problems, the same seed, the same measures; and now the mean over all eight answers to each.

# %%
after = evaluate(model, tokenizer, heldout, **how).table(heldout)
was, now = (table.groupby("problem")[MEASURES].mean() for table in (before, after))
for name in MEASURES:
    gain = now[name] - was[name]
    low, high = interval(gain)
    told = f"gain {gain.mean():+.1%}, 95 % interval {low:+.1%} to {high:+.1%}"
    print(f"{name:11} {was[name].mean():.1%} -> {now[name].mean():.1%}   {told}")

# %% [markdown]
# That interval is of the *difference* on each problem. Comparing two separate intervals by eye wastes the pairing: two
# may overlap although the difference is certain.
#
# **McNemar's exact test** looks at one answer for each problem, and only at the problems whose outcome changed. If
# training did nothing, each of them is a fair coin.

# %%
first_after = after[after["sample"] == 0].set_index("problem")
outcomes = (first_before["strict"], first_after["strict"])
better, worse = statistics.changed(*outcomes)
p_value = statistics.paired_p_value(*outcomes)
stayed = len(heldout) - len(better) - len(worse)
print(f"{len(better)} got better, {len(worse)} got worse, {stayed} stayed")
print(f"p = {p_value:.1g}")
show(statistics.paired_p_value)

# %% [markdown]
# What a small p does *not* say: that the gain is large (that is the interval's business), that it holds for other kinds
# of problems, or that it came from what you think. Better form alone can raise *strict*: compare it with *lenient*
# above.

# %% [markdown]
# ## What got worse?
#
# The sum hides it: better and worse cancel. Read those that got worse first. One answer may be worse by chance, so this
# asks for problems of which at least two answers fewer than before are right, leniently read.

# %%
loss = (SAMPLES * (was["lenient"] - now["lenient"])).round()
print((loss >= 2).sum(), "problems lost two or more right answers,")
print((loss <= -2).sum(), "gained two or more\n")
for i in loss[loss >= 2].sort_values(ascending=False).index[:3]:
    wrong = after[(after["problem"] == i) & ~after["lenient"]].iloc[0]
    print(f"{wrong['question']} (right: {wrong['answer']})")
    print("   ", " ".join(wrong["completions"].split()))

# %% [markdown]
# Length and form belong to every comparison. Answers that grow longer cost money; answers that shrink may have lost
# their reasoning.

# %%
for name, table in (("before", before), ("after", after)):
    mean, most = table["tokens"].mean(), table["tokens"].max()
    print(f"{name:6} {mean:5.1f} tokens on average, the longest {most}")

# %% [markdown]
# And the other skill:

# %%
sums_after = answer_sums()
gain = [float(a) - float(b) for b, a in zip(sums_before, sums_after)]
low, high = interval(gain)
print(f"bare sums: {np.mean(sums_before):.1%} before, {np.mean(sums_after):.1%} after")
print(f"gain {np.mean(gain):+.1%}, 95 % interval {low:+.1%} to {high:+.1%}")
print(f"p = {statistics.paired_p_value(sums_before, sums_after):.2g}")

# %% [markdown]
# Read it with care. "p is large" is not "nothing was forgotten": a loss as large as the interval's lower end would fit
# what was seen.

# %% [markdown]
# ## Where is it right, and where not?
#
# By the length of the question, by the number of steps. These parts of the data are small, so their intervals are wide:
# a difference between two of them needs a reason *and* a test.

# %%
import pandas as pd

groups = {
    "words": pd.qcut(first_before["question"].str.split().str.len(), 4, precision=0),
    "steps": first_before["solution"].str.count("<<"),
}
print(f"{'':33}   before             after")
for name, labels in groups.items():
    for label in sorted(labels.unique()):
        told = f"{name:6} {label!s:14} n = {sum(labels == label):3}"
        for rates in (was["strict"], now["strict"]):
            part = rates[labels == label]
            low, high = interval(part)
            told += f"   {part.mean():4.0%} ({low:.0%} to {high:.0%})"
        print(told)

# %% [markdown]
# ## pass@k: could it, if asked again?
#
# pass@k is the probability that at least one of k answers is right. First on four answers of which one is right, by
# counting every choice of two:

# %%
from itertools import combinations

answered = [True, False, False, False]
pairs = list(combinations(answered, 2))
print(pairs)
print("pass@2 =", sum(map(any, pairs)), "/", len(pairs))

# %% [markdown]
# Counted instead of listed: of `C(n, k)` choices, `C(n - right, k)` hold no right answer. That is the estimator of the
# paper on HumanEval (Chen et al. 2021, arXiv 2107.03374). The obvious `1 - (1 - right / n) ** k` is too low on average,
# and the more so the fewer answers there are:

# %%
show(statistics.pass_at_k)
print("pass@2 =", statistics.pass_at_k(n=4, right=1, k=2))
print("the obvious way:", 1 - (1 - 1 / 4) ** 2)

# %% [markdown]
# **Majority vote** (maj@k, or self-consistency: Wang et al. 2022, arXiv 2203.11171) needs no one who knows the right
# answer: take k answers and return the commonest. It helps a model whose right answer is commoner than each of its
# wrong ones. maj@k is the fraction of problems that such a vote gets right.

# %%
from grpo_workbook import answers

ks, curves = [1, 2, 4, 8], {}
gold = [answers.read_answer(text) for text in heldout["answer"]]
for name, table in (("before", before), ("after", after)):
    kind = map(answers.lenient_answer, table["completions"])
    numbers = [answers.read_answer(text or "") for text in kind]  # None abstains
    votes = [numbers[i : i + SAMPLES] for i in range(0, len(numbers), SAMPLES)]
    right = table.groupby("problem")["lenient"].sum()
    passed, voted = [], []
    for k in ks:
        found = [statistics.pass_at_k(SAMPLES, int(n), k) for n in right]
        passed.append(np.mean(found))
        found = [statistics.majority_at_k(v, g, k) for v, g in zip(votes, gold)]
        voted.append(np.mean(found))
    curves[f"pass@k {name}"], curves[f"maj@k {name}"] = (ks, passed), (ks, voted)

# %% [markdown]
# Both, before and after:

# %%
figures.show(
    *figures.line_chart(
        curves,
        x="k",
        y="rate of problems (lenient)",
        log_x=True,
        title="Several attempts",
        finding="Training lifts the first answer towards what several could do.",
    )
)

# %% [markdown]
# The four lines are this chapter's picture of what GRPO does. Before training the model *could* solve nearly every
# problem, if asked often enough (pass@8), but one answer was often wrong. Training moves the first answer towards that
# ceiling: it makes the model do reliably what it could do sometimes. A pass@8 that clearly grew would point to new
# skill, one that clearly fell to lost variety. Here both are near 1, and one problem more or less says nothing.
#
# maj@2 equals maj@1: where two disagree, one of them is taken by chance, and that is no better than a single answer.

# %% [markdown]
# ## A stopped evaluation loses nothing
#
# On a real model an evaluation takes hours. With a `completions_file` each batch is on the disk as soon as it is done.
# Here we cut that file in the middle of a line, as a kill would, and call again: what is there stays, and because each
# batch has its own seed, what is missing comes out as it would have.

# %%
from pathlib import Path

file = Path(run.output, "chapter_08.jsonl")
file.unlink(missing_ok=True)
part, how_part = heldout.select(range(24)), {**how, "samples": 1, "batch_size": 4}
whole = evaluate(model, tokenizer, part, completions_file=file, **how_part)
kept = file.read_bytes()
file.write_bytes(kept[: len(kept) // 2])
again = evaluate(model, tokenizer, part, completions_file=file, **how_part)
print("the same scores:", again == whole, "  the same file:", file.read_bytes() == kept)

# %% [markdown]
# Another model, other prompts or another seed behind the same file are refused, not mixed:

# %%
from grpo_workbook import WorkbookError

try:
    evaluate(model, tokenizer, part, completions_file=file, **how_part | {"seed": 1})
except WorkbookError as error:
    print(error)

# %% [markdown]
# ## The same as one command
#
# For a model in a folder or on the hub, with or without adapter. It goes on where it was interrupted, and compares with
# an earlier report. The other skill is the same command with other `--data`. It leaves `results.jsonl`, the table of
# above: `pandas.read_json("results.jsonl", lines=True)` sorts it into groups as we did. In a terminal:
#
# ```bash
# python -m grpo_workbook evaluate qwen --data test.jsonl --samples 8 --output outputs/base
# python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter --data test.jsonl \
#     --samples 8 --output outputs/after --baseline outputs/base
# ```
#
# Here the adapter that was just trained, on 100 problems, greedy, against its base. First the base.

# %%
from grpo_workbook import save_adapter
from grpo_workbook.cli import main

folder = run.output / "chapter_08"
save_adapter(model, tokenizer, folder / "adapter")


def evaluate_into(name, *more):
    """What the command `evaluate` does, in a folder of this name."""
    words = ["evaluate", run.model, "--data", data.WORD_PROBLEMS["heldout"],
             "--items", 100,
             "--batch-size", 100, "--max-new-tokens", run.max_completion_length,
             "--load-in-4bit", "--overwrite", "--output", folder / name, *more]
    assert main([str(word) for word in words]) == 0, "the command failed"


evaluate_into("base")

# %% [markdown]
# And with the adapter:

# %%
evaluate_into("after", "--adapter", folder / "adapter", "--baseline", folder / "base")

# %% [markdown]
# Read *lenient* beside *strict*. In the smoke run the base, taken greedily, already knows nearly every answer: what the
# adapter adds there is form. Sampled, as above, it adds reliability as well. One number alone would have told one of
# the two stories.
#
# The two reports as a figure:

# %%
import json

report = json.loads((folder / "after" / "report.json").read_text())
sides = {"baseline": report["baseline"], "this model": report}
bars = {name: [side[m]["rate"] for m in MEASURES] for name, side in sides.items()}
figures.show(
    *figures.bar_chart(
        bars,
        MEASURES,
        y="rate of problems",
        title=f"{report['n']} problems",
        form=".0%",
    )
)

# %% [markdown]
# ## What to record
#
# Whoever reads your number must be able to measure it again. `report.json` and `results.jsonl` hold all of this:
#
# | record | because |
# | --- | --- |
# | model and adapter with a hash of their weights | "the new one" is no name |
# | data with a hash, and the number of problems | another split is another number |
# | system prompt, template, temperature, limit of tokens, seed | each moves accuracy by points |
# | strict, lenient, form, lengths, rate cut off | one number hides the others |
# | interval, paired p, better and worse | without them a difference is an anecdote |
# | the baseline, measured by the same code | a number from a paper was not |
# | every completion | someone will ask what it wrote |
# | versions | a newer library may answer otherwise |
#
# **Before** the run: enough problems (`power`), no leaks (`check-data`), a baseline, another skill. **During**: nothing
# is chosen by the held-out score; who chooses a checkpoint by it needs a third set to measure that. **After**: every
# run is reported, also the ones that failed.
#
# Comparing with others? lm-evaluation-harness measures a merged model on the tasks that everyone reports:
#
# ```bash
# lm_eval --model hf --model_args pretrained=outputs/run/merged --tasks gsm8k --apply_chat_template
# ```
#
# Its `strict-match` wants `#### 72`, its `flexible-extract` takes the last number. A test of the course hands the
# harness's filters and our measures the same completions: with our form as its pattern it finds right what *strict*
# finds right.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did not
# help.

# %%
tables = {"before": before, "after": after}
strict = {when: round(float(t["strict"].mean()), 4) for when, t in tables.items()}
log = [entry for entry in trainer.state.log_history if "reward" in entry]
proved = {
    "steps": trainer.state.global_step,
    "strict": strict,
    "p_value": p_value,
    "sums": [float(np.mean(sums_before)), float(np.mean(sums_after))],
    "command": report["baseline"]["verdict"],
    "resumed": again == whole,
}
(run.output / "notebook_08.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps == len(log)
assert all(entry["step_time"] > 0 for entry in log)
assert again == whole, "the evaluation that went on is another one"
if run.profile == "smoke":
    learned = strict["after"] > strict["before"] + 0.3 and p_value < 1e-6
    assert learned, "the model did not learn"
    seen = report["baseline"]["comparison"]["strict"]["p_value"]
    assert seen < 1e-3, "the command saw no gain"
    assert np.mean(sums_before) > 0.5, "the other skill was never there"

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 08.1 · `pass_at_k` · easy · 5 minutes
#
# By hand, without the helper: of `n` answers, `right` are right. What fraction of all choices of `k` of them holds
# at least one right one?

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def pass_at_k(n: int, right: int, k: int) -> float:
    raise NotImplementedError


check("08.1", pass_at_k);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Count the choices with no right answer. `math.comb(a, b)` is 0 where b is more than a.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import comb
#
#
# def pass_at_k(n: int, right: int, k: int) -> float:
#     return 1 - comb(n - right, k) / comb(n, k)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.2 · `wilson` · medium · 10 minutes
#
# Wilson's 95 % interval of `right` out of `n`, as (lower end, upper end), with p = right / n and z = 1.96. Its centre
# is `(p + z²/(2n)) / (1 + z²/n)`, its half width `z / (1 + z²/n) * sqrt(p(1-p)/n + z²/(4n²))`.


# %% tags=["exercise"]
def wilson(right: int, n: int) -> tuple[float, float]:
    raise NotImplementedError


check("08.2", wilson);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Both formulas divide by the same `1 + z²/n`. For 30 of 30 the lower end is about 0.886.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def wilson(right: int, n: int) -> tuple[float, float]:
#     p, z = right / n, 1.96
#     centre = (p + z * z / (2 * n)) / (1 + z * z / n)
#     half = z / (1 + z * z / n) * (p * (1 - p) / n + z * z / (4 * n * n)) ** 0.5
#     return centre - half, centre + half
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.3 · `mcnemar` · medium · 8 minutes
#
# `better` problems got better, `worse` got worse. If each of them was a fair coin, how likely is an outcome at least as
# far from even, in either direction? Return this exact p-value, at most 1.


# %% tags=["exercise"]
def mcnemar(better: int, worse: int) -> float:
    raise NotImplementedError


check("08.3", mcnemar);

# %% [markdown]
# <details><summary>Hint</summary>
#
# With m coins, `comb(m, i) / 2**m` is the chance of i heads. One tail runs from 0 to the smaller count; the other is as
# large. What is counted twice when both counts are equal?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import comb
#
#
# def mcnemar(better: int, worse: int) -> float:
#     m = better + worse
#     tail = sum(comb(m, i) for i in range(min(better, worse) + 1)) / 2**m
#     return min(1.0, 2 * tail)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.4 · `chance_of_gain` · medium · 10 minutes
#
# Why 30 problems prove nothing, without a simulation. A model that is right with probability `rate` answers `n`
# problems, and then `n` others. What is the chance that it gets at least `more` problems more right the second time,
# though nothing changed?


# %% tags=["exercise"]
def chance_of_gain(n: int, rate: float, more: int) -> float:
    raise NotImplementedError


check("08.4", chance_of_gain);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `scipy.stats.binom.pmf(i, n, rate)` is the chance of i right ones. Add up the products over all pairs of counts that
# fit.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from scipy.stats import binom
#
#
# def chance_of_gain(n: int, rate: float, more: int) -> float:
#     chance = [float(binom.pmf(i, n, rate)) for i in range(n + 1)]
#     return sum(chance[i] * chance[j] for i in range(n + 1) for j in range(i + more, n + 1))
# ```
#
# </details>

# %% [markdown]
# ### Exercise 08.5 · `vote` · easy · 5 minutes
#
# Return the commonest of several answers. A `None` among them is a completion without an answer: it does not vote.
# Where two or more answers are equally common and none is commoner, return `None`, and also where nobody votes.


# %% tags=["exercise"]
def vote(answers: list[str | None]) -> str | None:
    raise NotImplementedError


check("08.5", vote);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `collections.Counter(...).most_common(2)` gives the two commonest with their counts.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from collections import Counter
#
#
# def vote(answers: list[str | None]) -> str | None:
#     counts = Counter(a for a in answers if a is not None).most_common(2)
#     if not counts or (len(counts) == 2 and counts[0][1] == counts[1][1]):
#         return None
#     return counts[0][0]
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - Ask for the power before the run. 30 problems often show ten points by luck; pairing is worth many problems.
# - Strict and lenient, form and length, each with an interval: Wilson's for rates, the bootstrap over problems for
#   means.
# - Compare on the same problems, with a paired test. Read what got worse, and measure a skill that was not trained.
# - pass@k says what the model could do, its first answer what it does. GRPO moves the second towards the first.
# - `python -m grpo_workbook evaluate` does it all, and writes down what others need to do it again.
#
# Next: [09 · Merge and inference](09_merge_and_inference.ipynb) takes the trained adapter to work.
