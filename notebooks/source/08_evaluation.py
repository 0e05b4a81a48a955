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
for name, shares in (("30 problems", few), ("480 problems", many)):
    gains = (shares[:, 1] - shares[:, 0]).round(6)  # 0.1 is no exact float
    print(f"{name}: a gain of 10 points or more in {np.mean(gains >= 0.1):.1%}")

# %% [markdown]
# With 30 problems, luck alone hands out ten points in about one of four tries. Whoever trains four times and shows the
# best run has a result, and perhaps no better model.

# %%
from grpo_workbook import figures

edges = np.array([-0.45, -0.25, -0.15, -0.05, 0.05, 0.15, 0.25, 0.45])
labels = [
    "-25 and less",
    "-25 to -15",
    "-15 to -5",
    "-5 to 5",
    "5 to 15",
    "15 to 25",
    "25 and more",
]
bars = {
    name: np.histogram((s[:, 1] - s[:, 0]).clip(-0.44, 0.44), edges)[0] / 100
    for name, s in (("30 problems", few), ("480 problems", many))
}
figure, words = figures.bar_chart(
    bars,
    labels,
    y="% of repetitions",
    title="Gains in points where nothing changed",
    finding="480 problems stay near 0; 30 problems scatter over 30 points.",
)
figure.axes[0].tick_params(axis="x", labelsize=7)
figures.show(figure, words)

# %% [markdown]
# ## How many problems, then? Ask before the run
#
# **Power** is the chance that a gain which is really there is also found: that the test's p is at most 0.05. It depends
# on how the two measurements hang together:
#
# - *unpaired*: before and after on different problems. The luck of the draw counts twice.
# - *paired*: the same problems before and after. Only those that changed count; what was right and stays right, or was
#   out of reach and stays there, cancels.

# %%
from grpo_workbook.power import paired_items, unpaired_items

print("to see a gain from 60 % with a chance of 80 % (paired: 3 % get worse):")
for gain in (0.20, 0.10, 0.05, 0.02):
    paired = paired_items(better=gain + 0.03, worse=0.03)
    unpaired = unpaired_items(0.60, 0.60 + gain)
    print(
        f"  {gain:3.0%}: {paired:5,} problems paired, {unpaired:6,} unpaired, each time"
    )

# %% [markdown]
# And the other way round: what is the smallest gain that the problems you have can show, again with a power of 80 %?

# %%
from grpo_workbook.power import paired_gain, unpaired_gain

counts = [30, 60, 120, 240, 480, 960]
lines = {
    "paired, 3 % get worse": (
        counts,
        [100 * paired_gain(n, worse=0.03) for n in counts],
    ),
    "unpaired, from 60 %": (counts, [100 * unpaired_gain(n, 0.60) for n in counts]),
}
figures.show(
    *figures.line_chart(
        lines,
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
# A short run, set up as in chapter 04. The held-out problems are answered eight times each, drawn at temperature 1 as
# training draws them: with eight answers there is more to see than with one.

# %%
import os

from grpo_workbook.notebook import quiet, show
from grpo_workbook.config import RunConfig

quiet()
run = RunConfig.from_env(max_steps=40, heldout=160)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook.training import load_policy

model, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# The rows, and a function that answers them all. Sample `s` of problem `i` stands at `texts[i][s]`.

# %%
from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset
from grpo_workbook.evaluate import generate

SAMPLES = 8
rows = read_problems(WORD_PROBLEMS["heldout"])[: run.heldout]
prompts = [prompt for prompt in to_dataset(rows)["prompt"] for _ in range(SAMPLES)]


def answer_all():
    texts = generate(
        model,
        tokenizer,
        prompts,
        sample=True,
        seed=run.seed,
        batch_size=run.eval_batch,
        max_new_tokens=run.max_completion_length,
    )
    return [texts[i : i + SAMPLES] for i in range(0, len(texts), SAMPLES)]


before = answer_all()
print(len(rows), "problems,", sum(map(len, before)), "completions")

# %% [markdown]
# ## Strict and lenient
#
# *Strict*: in the asked form, and right. *Lenient*: the number that a kind reader would take is right. Both are true,
# and they say different things: the first is what a program can use, the second what the model knows.

# %%
from grpo_workbook.answers import is_leniently_right, is_strictly_right, is_well_formed
from grpo_workbook.intervals import wilson_interval

JUDGES = {
    "strict": is_strictly_right,
    "lenient": is_leniently_right,
    "form": lambda text, answer: is_well_formed(text),
}


def judge_all(texts):
    """{measure: a list for each problem, with True or False for each sample}"""
    pairs = [(ts, row["answer"]) for ts, row in zip(texts, rows)]
    return {
        name: [[is_right(t, answer) for t in ts] for ts, answer in pairs]
        for name, is_right in JUDGES.items()
    }


right_before = judge_all(before)
for name, found in right_before.items():
    first = [samples[0] for samples in found]  # one answer for each problem
    low, high = wilson_interval(first)
    told = f"{sum(first):3} of {len(first)} = {np.mean(first):.1%}"
    print(f"{name:8} {told}   95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# (These are the first answers only, one for each problem.) The interval is Wilson's: all true shares under which what
# you saw would not be a surprise. The one from the schoolbook, `share ± 1.96 * sqrt(share * (1 - share) / n)`, fails
# where it matters: 30 of 30 right gives it 100 % to 100 %.

# %%
print("30 of 30:", wilson_interval([True] * 30))
print(" 0 of 30:", wilson_interval([False] * 30))

# %% [markdown]
# Never trust a share whose completions you have not read. What is right leniently and wrong strictly?

# %%
shown = 0
for row, texts in zip(rows, before):
    kind, strict = (
        is_right(texts[0], row["answer"])
        for is_right in (is_leniently_right, is_strictly_right)
    )
    if kind and not strict:
        print(f"{row['answer']:>3}: {' '.join(texts[0].split())}")
        shown += 1
        if shown == 4:
            break

# %% [markdown]
# ## Means: the bootstrap
#
# A length is no yes or no, and neither is a problem's share of eight samples. For means of anything the **bootstrap**
# draws the problems again, with replacement, thousands of times, and looks how far the mean wanders.
#
# It draws *problems*. Eight answers to one problem are not eight problems: an easy one is right eight times. Drawing
# single answers instead gives an interval that is too narrow, the more so the more the problems differ. The course's
# are much alike, so the two differ little here:

# %%
from grpo_workbook.intervals import bootstrap_interval


def count_tokens(text):
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])


shares = [sum(samples) / SAMPLES for samples in right_before["lenient"]]
every = [r for samples in right_before["lenient"] for r in samples]
lengths = [count_tokens(ts[0]) for ts in before]
print(f"lenient, mean {np.mean(shares):.1%}")
print("  problems drawn again:   {:.1%} to {:.1%}".format(*bootstrap_interval(shares)))
print("  answers drawn again:    {:.1%} to {:.1%}".format(*bootstrap_interval(every)))
print(f"tokens, mean {np.mean(lengths):.1f}")
print("  problems drawn again:   {:.1f} to {:.1f}".format(*bootstrap_interval(lengths)))

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
    (
        int(draw.integers(12, 25)),
        str(draw.choice(list(signs))),
        int(draw.integers(2, 10)),
    )
    for _ in range(400)
]
# each one once, and none with a larger answer than the word problems have
sums = [(a, s, b) for a, s, b in dict.fromkeys(sums) if signs[s](a, b) <= 60]
lines = [f"5+5=10\n12/4=3\n9*3=27\n{a}{s}{b}=" for a, s, b in sums]
print(lines[0])

# %% [markdown]
# The likeliest continuation, read as a number, is right or wrong:

# %%
from grpo_workbook.generation import complete, ready, sampling


def answer_sums():
    with ready(model, tokenizer):
        found = complete(
            model, tokenizer, lines, max_new_tokens=4, how=sampling(temperature=0)
        )
    read = [re.match(r"\d*", c.text)[0] for c in found]
    return [text == str(signs[s](a, b)) for text, (a, s, b) in zip(read, sums)]


sums_before = answer_sums()
print(f"bare sums before: {sum(sums_before)} of {len(sums)} right")

# %% [markdown]
# ## A short training run
#
# 40 steps, with the rewards of chapter 03.

# %%
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.training import make_trainer, stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_set = to_dataset(read_problems(WORD_PROBLEMS["train"]))
trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# ## Did it get better?
#
# The same problems, the same seed, the same judges; and now the mean over all eight answers to each.

# %%
after = answer_all()
right_after = judge_all(after)
for name in JUDGES:
    was, now = (np.mean(right[name]) for right in (right_before, right_after))
    gain = [
        np.mean(a) - np.mean(b) for b, a in zip(right_before[name], right_after[name])
    ]
    low, high = bootstrap_interval(gain)
    told = f"gain {now - was:+.1%}, 95 % interval {low:+.1%} to {high:+.1%}"
    print(f"{name:8} {was:.1%} -> {now:.1%}   {told}")

# %% [markdown]
# That interval is of the *difference* on each problem. Comparing two separate intervals by eye wastes the pairing: two
# may overlap although the difference is certain.
#
# **McNemar's exact test** looks at one answer for each problem, and only at the problems whose outcome changed. If
# training did nothing, each of them is a fair coin.

# %%
from grpo_workbook.intervals import changed, paired_p_value

first_before = [samples[0] for samples in right_before["strict"]]
first_after = [samples[0] for samples in right_after["strict"]]
better, worse = changed(first_before, first_after)
p_value = paired_p_value(first_before, first_after)
stayed = len(rows) - len(better) - len(worse)
print(f"{len(better)} got better, {len(worse)} got worse, {stayed} stayed")
print(f"p = {p_value:.1g}")
show(paired_p_value)

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
pairs = zip(right_before["lenient"], right_after["lenient"])
loss = [sum(b) - sum(a) for b, a in pairs]
worst = sorted(range(len(rows)), key=lambda i: -loss[i])
print(sum(n >= 2 for n in loss), "problems lost two or more right answers,")
print(sum(n <= -2 for n in loss), "gained two or more\n")
for i in [i for i in worst if loss[i] >= 2][:3]:
    wrong = next(t for t, good in zip(after[i], right_after["lenient"][i]) if not good)
    print(f"{rows[i]['question']} (right: {rows[i]['answer']})")
    print("   ", " ".join(wrong.split()))

# %% [markdown]
# Length and form belong to every comparison. Answers that grow longer cost money; answers that shrink may have lost
# their reasoning.

# %%
for name, texts in (("before", before), ("after", after)):
    counts = [count_tokens(t) for ts in texts for t in ts]
    print(
        f"{name:6} {np.mean(counts):5.1f} tokens on average, the longest {max(counts)}"
    )

# %% [markdown]
# And the other skill:

# %%
sums_after = answer_sums()
gain = [float(a) - float(b) for b, a in zip(sums_before, sums_after)]
low, high = bootstrap_interval(gain)
print(f"bare sums: {np.mean(sums_before):.1%} before, {np.mean(sums_after):.1%} after")
print(f"gain {np.mean(gain):+.1%}, 95 % interval {low:+.1%} to {high:+.1%}")
print(f"p = {paired_p_value(sums_before, sums_after):.2g}")

# %% [markdown]
# Read it with care. "p is large" is not "nothing was forgotten": a loss as large as the interval's lower end would fit
# what was seen.

# %% [markdown]
# ## Where is it right, and where not?
#
# By the length of the question, by the number of steps. These parts of the data are small, so their intervals are wide:
# a difference between two of them needs a reason *and* a test.

# %%
from grpo_workbook.breakdown import groups, in_order
from grpo_workbook.measures import share

sorted_by = groups(rows)
print(f"{'':33}   before             after")
for name in ("length", "steps"):
    for label in in_order(sorted_by[name]):
        inside = [i for i, other in enumerate(sorted_by[name]) if other == label]
        told = f"{name:7} {label:15} n = {len(inside):3}"
        for right in (right_before, right_after):
            f = share([np.mean(right["strict"][i]) for i in inside])
            told += f"   {f['share']:4.0%} ({f['low']:.0%} to {f['high']:.0%})"
        print(told)

# %% [markdown]
# ## pass@k: could it, if asked again?
#
# pass@k is the chance that at least one of k answers is right. First on four answers of which one is right, by counting
# every choice of two:

# %%
from itertools import combinations

answers = [True, False, False, False]
pairs = list(combinations(answers, 2))
print(pairs)
print("pass@2 =", sum(map(any, pairs)), "/", len(pairs))

# %% [markdown]
# Counted instead of listed: of `C(n, k)` choices, `C(n - right, k)` hold no right answer. `pass_at_k` does it as a
# product, as the paper on HumanEval prints it (Chen et al. 2021, arXiv 2107.03374), so that nothing overflows. The
# obvious `1 - (1 - right / n) ** k` is too low on average, and the more so the fewer answers there are:

# %%
from grpo_workbook.attempts import majority_at_k, pass_at_k

show(pass_at_k)
print("pass@2 =", pass_at_k(n=4, right=1, k=2))
print("the obvious way:", 1 - (1 - 1 / 4) ** 2)

# %% [markdown]
# **Majority vote** (maj@k, or self-consistency: Wang et al. 2022, arXiv 2203.11171) needs no one who knows the right
# answer: take k answers and return the commonest. It helps a model whose right answer is commoner than each of its
# wrong ones. maj@k is the share of problems that such a vote gets right.

# %%
from grpo_workbook.measures import lenient_vote

ks, gold = [1, 2, 4, 8], [float(row["answer"]) for row in rows]
curves = {}
for name, texts, right in (
    ("before", before, right_before),
    ("after", after, right_after),
):
    votes = [[lenient_vote(t) for t in ts] for ts in texts]
    counts = [sum(samples) for samples in right["lenient"]]
    passed = [np.mean([pass_at_k(SAMPLES, c, k) for c in counts]) for k in ks]
    voted = [np.mean([majority_at_k(v, g, k) for v, g in zip(votes, gold)]) for k in ks]
    curves[f"pass@k {name}"], curves[f"maj@k {name}"] = (ks, passed), (ks, voted)
figures.show(
    *figures.line_chart(
        curves,
        x="k",
        y="share of problems (lenient)",
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
# maj@2 equals maj@1: where two disagree, one of them is drawn, and that is no better than a single answer.

# %% [markdown]
# ## The same as one command
#
# For a model in a folder or on the hub, with or without adapter. It writes every completion as it comes, goes on where
# it was interrupted, and compares with an earlier report. `--also other.jsonl` measures a second set beside the first:
# prompts of another kind than those that were trained, to see what was forgotten. In a terminal:
#
# ```bash
# python -m grpo_workbook evaluate qwen --data test.jsonl --samples 8 --output outputs/base
# python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter --data test.jsonl \
#     --samples 8 --output outputs/after --baseline outputs/base
# ```
#
# Here the adapter that was just trained, on 100 problems, greedy, against its base. First the base. (*harness* is
# explained further down, under *What to record*.)

# %%
from grpo_workbook.__main__ import main
from grpo_workbook.export import save_adapter

folder = run.output / "chapter_08"
save_adapter(model, tokenizer, folder / "adapter")


def evaluate_into(name, *more):
    """What the command `evaluate` does, in a folder of this name."""
    words = ["evaluate", run.model, "--data", WORD_PROBLEMS["heldout"],
             "--items", 100, "--load-in-4bit", "--overwrite",
             "--output", folder / name, *more]
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
# The figure that lies beside the report:

# %%
import json

from grpo_workbook.evaluation_report import draw

report = json.loads((folder / "after" / "report.json").read_text())
figures.show(*draw(report))

# %% [markdown]
# ## What to record
#
# Whoever reads your number must be able to measure it again. `report.json` holds all of this:
#
# | record | because |
# | --- | --- |
# | model and adapter with a hash of their weights | "the new one" is no name |
# | data with a hash, and the number of problems | another split is another number |
# | system prompt, template, temperature, top-p, limit of tokens, seed | each moves accuracy by points |
# | strict, lenient, form, lengths, share cut off | one number hides the others |
# | interval, paired p, better and worse | without them a difference is an anecdote |
# | the baseline, measured by the same code | a number from a paper was not |
# | every completion | someone will ask what it wrote |
# | versions | a newer library may answer otherwise |
#
# **Before** the run: enough problems (`power`), no leaks (`check-data`), a baseline, another skill. **During**: nothing
# is chosen by the held-out score; who chooses a checkpoint by it needs a third set to measure that. **After**: every
# run is reported, also the ones that failed.
#
# Comparing with others? The report also holds the two numbers that lm-evaluation-harness gives for GSM8K
# (`strict-match` wants `#### 72`, `flexible-extract` takes the last number), and a test compares them with the harness.

# %%
base_report = json.loads((folder / "base" / "report.json").read_text())
for name, numbers in (("base", base_report), ("after", report)):
    print(f"{name:6}", numbers["sets"]["main"]["harness"])

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did not
# help.

# %%
both = {"before": right_before, "after": right_after}
strict = {
    when: round(float(np.mean(right["strict"])), 4) for when, right in both.items()
}
log = [entry for entry in trainer.state.log_history if "reward" in entry]
proved = {
    "steps": trainer.state.global_step,
    "strict": strict,
    "p_value": p_value,
    "sums": [float(np.mean(sums_before)), float(np.mean(sums_after))],
    "command": report["verdict"],
}
(run.output / "notebook_08.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps == len(log)
assert all(entry["step_time"] > 0 for entry in log)
if run.profile == "smoke":
    learned = strict["after"] > strict["before"] + 0.3 and p_value < 1e-6
    assert learned, "the model did not learn"
    seen = report["baseline"]["comparison"]["main"]["strict"]["p_value"]
    assert seen < 1e-3, "the command saw no gain"
    assert np.mean(sums_before) > 0.5, "the other skill was never there"

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 08.1 · `pass_at_k` · easy · 5 minutes
#
# By hand, without the helper: of `n` answers, `right` are right. What share of all choices of `k` of them holds at
# least one right one?

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
# Why 30 problems prove nothing, without a simulation. A model that is right with probability `share` answers `n`
# problems, and then `n` others. What is the chance that it gets at least `more` problems more right the second time,
# though nothing changed?


# %% tags=["exercise"]
def chance_of_gain(n: int, share: float, more: int) -> float:
    raise NotImplementedError


check("08.4", chance_of_gain);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `scipy.stats.binom.pmf(i, n, share)` is the chance of i right ones. Add up the products over all pairs of counts that
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
# def chance_of_gain(n: int, share: float, more: int) -> float:
#     chance = [float(binom.pmf(i, n, share)) for i in range(n + 1)]
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
# - Strict and lenient, form and length, each with an interval: Wilson's for shares, the bootstrap over problems for
#   means.
# - Compare on the same problems, with a paired test. Read what got worse, and measure a skill that was not trained.
# - pass@k says what the model could do, its first answer what it does. GRPO moves the second towards the first.
# - `python -m grpo_workbook evaluate` does it all, and writes down what others need to do it again.
#
# Next: [09 · Merge and inference](09_merge_and_inference.ipynb) takes the trained adapter to work.
