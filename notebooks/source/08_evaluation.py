# %% [markdown]
# # 08 · Evaluation
#
# **After this notebook you can** plan how many problems an evaluation needs, measure a model strictly and leniently
# with an interval, show with a paired test that training helped, read pass@k and majority vote, and find what got
# worse.
#
# **Time:** about 3 minutes on two CPU cores; a short training run is half of it.

# %% [markdown]
# ## 30 problems prove nothing
#
# A model that is right half of the time answers 30 problems. Then it answers 30 different ones. Nothing was trained in
# between. How often does it look better by ten percentage points? We simulate this 10,000 times:

# %%
import numpy as np

rng = np.random.default_rng(0)
few = rng.binomial(30, 0.5, (10_000, 2)) / 30  # (repetition, before and after)
many = rng.binomial(480, 0.5, (10_000, 2)) / 480
lucky = {}
for name, rates in (("30 problems", few), ("480 problems", many)):
    gains = (rates[:, 1] - rates[:, 0]).round(6)  # 0.1 is not exact in binary
    lucky[name] = np.mean(gains >= 0.1)
    print(f"{name}: a gain of 10 points or more in {lucky[name]:.1%} of repetitions")

# %% [markdown]
# With 30 problems, luck alone produces ten points in about one of four tries. If you train four times and show the best
# run, you probably have such a result, although the model need not be better.

# %% tags=["hide-input"]
from grpo_workbook import figures

edges = (np.arange(-15, 17) - 0.5) * 10 / 3  # the steps in which 30 problems move
middles = (edges[1:] + edges[:-1]) / 2
figure, (axes,) = figures.new_panels(7.0, 3.4)
looks = {"30 problems": (few, figures.ORANGE, 10),
         "480 problems": (many, figures.GREEN, 14)}
for name, (rates, colour, place) in looks.items():
    found = np.histogram(100 * (rates[:, 1] - rates[:, 0]), edges)[0] / 100
    axes.fill_between(middles, found, color=colour, alpha=0.35)
    axes.plot(middles, found, color=colour, lw=2)
    axes.text(middles[place], found[place], f"{name}  ", color=colour, ha="right")
axes.axvline(10, color="black", ls="--", lw=1)
seen = "\n".join(f"{rate:.1%} with {name}" for name, rate in lucky.items())
axes.text(11, 20, f"10 points or more by luck:\n{seen}")
axes.set(xlabel="gain in points, although nothing changed", ylabel="% of repetitions",
         title="With 30 problems, ten points are often luck",
         xlim=(-40, 40), ylim=(0, None))
words = (
    "Two distributions of the gain in points where nothing changed. With 480 problems "
    "nearly all gains lie within 7 points of 0. With 30 problems they spread over 30 "
    f"points, and {lucky['30 problems']:.0%} of them reach 10 points."
)
figures.show(figure, words)

# %% [markdown]
# ## How many problems? Ask before the run
#
# **Power** is the probability that the test finds a gain which really exists: that its p-value is at most 0.05. It
# depends on how the two measurements relate:
#
# - *unpaired*: before and after on different problems. Each measurement has its own luck with the problems.
# - *paired*: the same problems before and after. A problem that is right both times, or wrong both times, cancels out.
#   Only the problems that changed count, so there is less noise.

# %%
from math import ceil

from scipy.stats import norm

from grpo_workbook import statistics
from grpo_workbook.statistics import paired_gain, paired_items


def unpaired_items(before: float, gain: float, power: float = 0.8) -> int:
    """Problems for each model: the normal approximation (Fleiss et al. 2003)."""
    after, middle = before + gain, before + gain / 2
    spread = norm.isf(0.025) * (2 * middle * (1 - middle)) ** 0.5
    spread += norm.ppf(power) * (before * (1 - before) + after * (1 - after)) ** 0.5
    return ceil((spread / gain) ** 2)


print("Problems needed to show a gain of a model that is right in 60 % before")
print("(power 80 %; paired: while 3 % of the problems get worse):")
for gain in (0.20, 0.10, 0.05, 0.02):
    paired = paired_items(better=gain + 0.03, worse=0.03)
    unpaired = unpaired_items(0.60, gain)
    said = f"{paired:5,} paired, {unpaired:6,} unpaired for each model"
    print(f"  to {0.6 + gain:.0%}: {said}")

# %% [markdown]
# The reverse question: what is the smallest gain that your problems can show, again with a power of 80 %?

# %%
counts = [30, 60, 120, 240, 480, 960]
points = np.arange(0.1, 40, 0.1)  # a gain is at most 40 points: from 60 to 100 %
needed = np.array([unpaired_items(0.60, gain / 100) for gain in points])
paired = [100 * paired_gain(n, worse=0.03) for n in counts]
unpaired = [points[needed <= n][0] for n in counts]
figure, words = figures.line_chart(
    {
        "paired, 3 % get worse": (counts, paired),
        "unpaired, from 60 %": (counts, unpaired),
    },
    x="problems",
    y="smallest gain, points",
    title="From 120 problems on, pairing shows much smaller gains",
    finding="Unpaired, the same gain takes several times the problems.",
)
figure.axes[0].set_xscale("log", base=2)
figure.axes[0].set_xticks(counts, map(str, counts), minor=False)
figures.show(figure, words)

# %% [markdown]
# With 30 problems pairing does not help yet. From 120 to 960, an unpaired one needs 2.6 to 5 times as many problems
# for each model to show the same gain.
#
# If `paired_items` asks for more problems than you have, collect more first; otherwise you will most likely miss a gain
# of that size.

# %% [markdown]
# ## The model and its baseline
#
# A short run, set up as in chapter 04.

# %%
import os

from grpo_workbook import quiet, show
from grpo_workbook.run_config import RunConfig

quiet()
run = RunConfig.from_env(default_profile="smoke", max_steps=40, heldout=160)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook import load_policy

model, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# `evaluate` takes any model, its tokenizer, and a dataset with the columns `prompt` and `answer`. Each held-out problem
# is answered eight times, sampled at temperature 1 as in training, because pass@k and voting need several answers.
# `table` returns a pandas table with one row per answer and the dataset's own columns.

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
# *Strict*: the answer is right and in the required form. *Lenient*: the answer is right if we accept it in any readable
# form. The first says what a program can use, the second what the model knows. Report both.

# %%
MEASURES = ["strict", "lenient", "well_formed"]
first_before = before[before["sample"] == 0].set_index("problem")
for name in MEASURES:
    right = first_before[name]
    low, high = statistics.wilson_interval(right)
    count = f"{sum(right):3} of {len(right)} = {right.mean():.1%}"
    print(f"{name:11} {count}   95 % interval {low:.1%} to {high:.1%}")

# %% [markdown]
# (First answers only, one per problem.) The interval is Wilson's: it holds all true rates with which the observed count
# would be no surprise. The textbook interval, `rate ± 1.96 * sqrt(rate * (1 - rate) / n)`, fails near 0 and 1: for 30 of
# 30 right it claims 100 % to 100 %.

# %%
print("30 of 30:", statistics.wilson_interval([True] * 30))
print(" 0 of 30:", statistics.wilson_interval([False] * 30))

# %% [markdown]
# Never trust a rate before you have read some completions. Which answers are right leniently and wrong strictly?

# %%
loose = first_before[first_before["lenient"] & ~first_before["strict"]]
for row in loose.head(4).itertuples():
    print(f"{row.answer:>3}: {' '.join(row.completions.split())}")

# %% [markdown]
# ## Means: the bootstrap
#
# A length is not a yes or no, and neither is a problem's rate over eight samples. For the mean of such numbers the
# **bootstrap** resamples the problems with replacement, thousands of times, and measures how much the mean varies.
#
# It must resample *problems*, because eight answers to one problem are not eight problems: an easy one is right all
# eight times. Resampling single answers makes the interval too narrow. Our problems are much alike, so here the
# difference is small:

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
# ## A second skill, to detect forgetting
#
# Training on one task can cost another. So measure something that is *not* trained. Here it is bare arithmetic without
# a chat: each text holds three solved sums and one to solve, and the model continues it.

# %%
import re

signs = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
rng = np.random.default_rng(8)
sums = [
    (int(rng.integers(12, 25)), str(rng.choice([*signs])), int(rng.integers(2, 10)))
    for _ in range(400)
]
# without repetitions, and without larger answers than the word problems have
sums = [(a, s, b) for a, s, b in dict.fromkeys(sums) if signs[s](a, b) <= 60]
lines = [f"5+5=10\n12/4=3\n9*3=27\n{a}{s}{b}=" for a, s, b in sums]
print(lines[0])

# %% [markdown]
# The greedy continuation, read as a number, is right or wrong. (`generate` takes chats, or plain texts as here.)

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
from grpo_workbook import parse_rewards
from grpo_workbook.run_config import make_trainer
from grpo_workbook.resume import stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
trainer = make_trainer(run, model, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# ## Did it get better?
#
# The same problems, the same sampling seed, the same measures, and now the mean over all eight answers to a problem:

# %%
after = evaluate(model, tokenizer, heldout, **how).table(heldout)
was, now = (table.groupby("problem")[MEASURES].mean() for table in (before, after))
for name in MEASURES:
    gain = now[name] - was[name]
    low, high = interval(gain)
    text = f"gain {gain.mean():+.1%}, 95 % interval {low:+.1%} to {high:+.1%}"
    print(f"{name:11} {was[name].mean():.1%} -> {now[name].mean():.1%}   {text}")

# %% [markdown]
# This is the interval of the *difference* on each problem. Comparing two separate intervals by eye wastes the pairing:
# they may overlap although the difference is certain.
#
# **McNemar's exact test** takes one answer per problem and looks only at the problems whose outcome changed. If
# training did nothing, each of them is a fair coin: better or worse with the same probability.

# %%
first_after = after[after["sample"] == 0].set_index("problem")
outcomes = (first_before["strict"], first_after["strict"])
better, worse = statistics.changed(*outcomes)
p_value = statistics.paired_p_value(*outcomes)
print(f"{len(better)} got better, {len(worse)} got worse; p = {p_value:.1g}")
show(statistics.paired_p_value)

# %% [markdown]
# The picture of the test: four kinds of problems, and only two of them count.

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

kept = int((outcomes[0] & outcomes[1]).sum())  # right both times
lost = len(heldout) - len(better) - len(worse) - kept  # wrong both times
cells = [  # column (after), row (before), what stands there, colour
    (0, 1, f"{kept}\nstayed right", figures.PALE["off"]),
    (1, 1, f"{len(worse)}\ngot worse", figures.PALE["number"]),
    (0, 0, f"{len(better)}\ngot better", figures.PALE["check"]),
    (1, 0, f"{lost}\nstayed wrong", figures.PALE["off"]),
]
figure, (axes,) = figures.new_panels(6.0, 3.4)
for x, y, words, colour in cells:
    axes.add_patch(Rectangle((x, y), 0.97, 0.97, facecolor=colour))
    axes.text(x + 0.48, y + 0.48, words, ha="center", va="center", fontsize=13)
axes.set(xlim=(0, 2), ylim=(0, 2), xlabel="after training", ylabel="before training")
axes.set_xticks([0.48, 1.48], ["right", "wrong"])
axes.set_yticks([0.48, 1.48], ["wrong", "right"])
axes.tick_params(length=0)
axes.grid(visible=False)
axes.spines[:].set_visible(False)
changed = len(better) + len(worse)
axes.set_title(f"The test counts the {changed} that changed: p = {p_value:.0g}")
words = (
    f"A two by two table: {kept} problems stayed right, {lost} stayed wrong (grey, not "
    f"counted); {len(better)} got better, {len(worse)} got worse, p = {p_value:.1g}."
)
figures.show(figure, words)

# %% [markdown]
# A small p does *not* say that the gain is large (the interval says that), that it holds for other kinds of problems,
# or that it has the cause you believe in. Better form alone can raise *strict*, so compare it with *lenient* above.

# %% [markdown]
# ## One model, eight evaluations, one seed
#
# The eight samples of each problem are also eight complete evaluations of the same model:

# %%
for name, table in (("before", before), ("after", after)):
    rates = table.groupby("sample")["strict"].mean()
    print(f"{name:6}", " ".join(f"{rate:.1%}" for rate in rates))

# %% [markdown]
# This spread comes from sampling the answers. The intervals above cover it and the choice of the problems, and nothing
# else. Another *training seed* gives another model: in the course's benchmark, a reward for correctness alone took 36,
# 14 and 26 steps to the same goal with three seeds ([measured](../docs/measurements.md)). Exercise 08.3 measures the
# effect here.

# %% [markdown]
# ## What got worse?
#
# The mean hides it, because gains and losses cancel. Read the problems that got worse first. One answer may be worse by
# chance, so this lists problems that lost at least two of eight right answers (leniently).

# %%
loss = (SAMPLES * (was["lenient"] - now["lenient"])).round()
print((loss >= 2).sum(), "problems lost two or more right answers,")
print((loss <= -2).sum(), "gained two or more\n")
for i in loss[loss >= 2].sort_values(ascending=False).index[:3]:
    wrong = after[(after["problem"] == i) & ~after["lenient"]].iloc[0]
    print(f"{wrong['question']} (right: {wrong['answer']})")
    print("   ", " ".join(wrong["completions"].split()))

# %% [markdown]
# Compare lengths as well: longer answers cost money, shorter ones may have lost their reasoning. And the second skill:

# %%
for name, table in (("before", before), ("after", after)):
    mean, most = table["tokens"].mean(), table["tokens"].max()
    print(f"{name:6} {mean:5.1f} tokens on average, the longest {most}")
sums_after = answer_sums()
gain = [float(a) - float(b) for b, a in zip(sums_before, sums_after)]
low, high = interval(gain)
print(f"bare sums: {np.mean(sums_before):.1%} before, {np.mean(sums_after):.1%} after")
print(f"gain {np.mean(gain):+.1%}, 95 % interval {low:+.1%} to {high:+.1%}")
print(f"p = {statistics.paired_p_value(sums_before, sums_after):.2g}")

# %% [markdown]
# In the stored run both say the same: the interval includes 0, and p is above 0.05, so no loss is shown. Near the
# border they can disagree, because with few changed sums the bootstrap's interval is a little too narrow and the exact
# test is cautious; then measure more sums. A large p never means "nothing was forgotten": a loss as large as the lower
# end of the interval would also fit what we saw.

# %% [markdown]
# ## pass@k and maj@k: several answers to one problem
#
# - **pass@k** is the probability that at least one of k answers is right. It says what the model *can* produce, and it
#   needs somebody who recognises the right answer.
# - **maj@k** (majority vote, or self-consistency: Wang et al. 2022, arXiv 2203.11171) returns the most common of k
#   answers. It needs no checker, but it helps only where the right answer is more common than each wrong one.
#
# Eight answers to three problems, made up:

# %% tags=["hide-input"]
toy = {
    "A: mostly right": ("23", "23 23 31 23 23 17 23 23"),
    "B: one common mistake": ("14", "19 14 19 19 12 14 19 19"),
    "C: out of reach": ("42", "40 41 38 40 39 45 37 46"),
}
columns = {"pass@1": 8.8, "pass@8": 10.3, "maj@8": 11.8}  # and where they stand
figure, (axes,) = figures.new_panels(8.0, 2.8)
for y, (right, text) in enumerate(toy.values()):
    texts = text.split()
    for x, given in enumerate(texts):
        colour = figures.PALE["check" if given == right else "number"]
        axes.add_patch(Rectangle((x, y), 0.9, 0.8, facecolor=colour))
        axes.text(x + 0.45, y + 0.4, given, ha="center", va="center")
    k1, k8 = (statistics.pass_at_k(8, texts.count(right), k) for k in (1, 8))
    vote = statistics.majority_at_k(texts, right, 8)
    for x, rate in zip(columns.values(), (k1, k8, vote)):
        axes.text(x, y + 0.4, f"{rate:.0%}", ha="center", va="center", weight="bold")
for word, x in columns.items():
    axes.text(x, -0.3, word, ha="center", va="center")
axes.set(xlim=(0, 12.5), ylim=(2.9, -0.6), xticks=[])
axes.set_title("In B the right answer is there, and the vote misses it")
axes.set_yticks([0.4, 1.4, 2.4], [*toy])
axes.tick_params(length=0)
axes.grid(visible=False)
axes.spines[:].set_visible(False)
words = "Eight answers to each of three problems. A: 6 of 8 right, pass@8 and maj@8 "
words += "100 %. B: 2 right and 5 times one mistake, pass@8 100 %, maj@8 0 %. C: 0 %."
figures.show(figure, words)

# %% [markdown]
# With n answers of which some are right, `C(n - right, k)` of the `C(n, k)` choices hold no right one: that is the
# estimator of the HumanEval paper (Chen et al. 2021, arXiv 2107.03374). The obvious `1 - (1 - right / n) ** k` is too
# low on average, most of all with few answers:

# %%
print("estimator:      ", statistics.pass_at_k(n=4, right=1, k=2))
print("obvious formula:", 1 - (1 - 1 / 4) ** 2)

# %% [markdown]
# Now pass@k and maj@k of our model, before and after:

# %%
from grpo_workbook.rewards import answers

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
    curves[f"pass@k {name}"], curves[f"maj@k {name}"] = passed, voted

# %% [markdown]
# The colour says before or after, the dash says pass@k or maj@k:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels()
for name, ys in curves.items():
    colour = figures.BLUE if name.endswith("after") else figures.GREY
    dash, marker = ("-", "o") if name.startswith("pass") else ("--", "s")
    axes.plot(ks, ys, dash, color=colour, marker=marker, ms=5, lw=2, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks(ks, ks)
axes.minorticks_off()
low = 0.5 * (min(map(min, curves.values())) > 0.5)
axes.set(xlabel="k", ylabel=f"rate of problems (from {low:g})", ylim=(low, 1.02),
         title="Training lifts the first answer; pass@8 was high already")
axes.legend(frameon=False, loc="lower right")
ends = "; ".join(f"{name}: {ys[0]:.1%} at 1, {ys[-1]:.1%} at {ks[-1]}"
                 for name, ys in curves.items())
figures.show(figure, f"Line chart of the rate of problems (lenient) over k. {ends}.")

# %% [markdown]
# Before training the model *could* solve every problem within eight attempts (pass@8), but a single answer was often
# wrong. Training made the single answer much more reliable. Here pass@8 is near 1 both times, so this run cannot say
# whether training added anything to what was within reach, or took anything away.
#
# maj@2 is close to maj@1: where two answers disagree, the vote picks one of them at random. (They can differ, because a
# completion without an answer does not vote.)

# %% [markdown]
# > **In dispute: does RL add what the base model cannot do?**
# >
# > *It only sharpens.* [Yue et al. 2025](https://arxiv.org/abs/2504.13837): the trained model wins at k = 1, but with k
# > in the tens to hundreds the base model catches up and wins, on mathematics, code and images. Training makes existing
# > solutions likelier and loses variety.
# >
# > *It can add.* [ProRL](https://arxiv.org/abs/2505.24864) trains far longer, on more kinds of tasks, and keeps entropy
# > up (KL penalty with a reference that is reset, higher temperature, clip-higher). On some tasks the base model then
# > fails in every attempt and the trained model succeeds, mostly where the base model was weak.
# >
# > So look at pass@k with large k, at entropy and at the length of training before you claim either. Our k = 8 on an
# > easy task decides nothing.
# >
# > **In dispute: does the reward matter?** With [random rewards](https://arxiv.org/abs/2506.10947) Qwen2.5-Math-7B
# > gained about 21 points on MATH-500, with correct ones 29; Llama 3 and OLMo 2 gained little or nothing from random
# > ones. [Wu et al. 2025](https://arxiv.org/abs/2507.10532) point to contamination: given 60 % of a MATH-500 problem,
# > that model completes the rest word for word in 55 % of cases, and on new arithmetic only correct rewards helped. So
# > train once with a random reward as a control, use two model families, and test on problems newer than the model.
# >
# > **In dispute: are longer answers better reasoning?** Answers often grow while accuracy rises.
# > [Liu et al. 2025](https://arxiv.org/abs/2503.20783) trace part of that growth to GRPO's loss: divided by its own
# > length, a long wrong answer is punished less per token. Report the lengths of right and wrong answers separately.

# %% [markdown]
# ## The same as one command
#
# The command takes a model in a folder or on the hub, with or without an adapter, and compares with an earlier report. `results.jsonl` holds the table from above. For the second skill, run it again with
# other `--data`:
#
# ```bash
# python -m grpo_workbook evaluate qwen --data test.jsonl --samples 8 --output outputs/base
# python -m grpo_workbook evaluate qwen --adapter outputs/run/adapter --data test.jsonl \
#     --samples 8 --output outputs/after --baseline outputs/base
# ```
#
# Here: our new adapter against its base, greedily, on 100 problems.

# %%
from grpo_workbook import save_adapter
from grpo_workbook.cli import main

folder = run.output / "chapter_08"
save_adapter(model, tokenizer, folder / "adapter")


def evaluate_into(name, *more):
    """Run the command `evaluate` with its output in a folder of this name."""
    words = ["evaluate", run.model, "--data", data.WORD_PROBLEMS["heldout"],
             "--items", 100,
             "--batch-size", 100, "--max-new-tokens", run.max_completion_length,
             "--load-in-4bit", "--overwrite", "--output", folder / name, *more]
    assert main([str(word) for word in words]) == 0, "the command failed"


evaluate_into("base")
evaluate_into("after", "--adapter", folder / "adapter", "--baseline", folder / "base")

# %% [markdown]
# Read *lenient* beside *strict*. Decoded greedily, the base of the stored run already has every answer right leniently,
# so the adapter can add only form. With sampling, as above, it adds reliability too. One number alone would hide one of
# the two.

# %% [markdown]
# ## What to record
#
# A reader of your number must be able to measure it again. `report.json` and `results.jsonl` hold:
#
# | record | because |
# | --- | --- |
# | model, adapter and data, each with a hash | "the new one" identifies nothing |
# | system prompt, template, temperature, token limit, seed | each moves accuracy by points |
# | strict, lenient, form, lengths, rate of cut-off answers | one number hides the rest |
# | interval, paired p, better and worse | without them a difference is an anecdote |
# | the baseline, measured by the same code | a paper's number was measured differently |
# | every completion, and the versions | someone will ask what the model wrote, and with what |
#
# **Before** the run: enough problems (`paired_items`), no leaks (`check-data`), a baseline, a second skill. **During**: never
# select anything on the held-out set. If you pick a checkpoint with it, you need a third set for the final number.
# **After**: report every run and every seed, including the ones that failed.
#
# To compare with published numbers, run lm-evaluation-harness on the merged model. Its `strict-match` expects
# `#### 72`, its `flexible-extract` takes the last number:
#
# ```bash
# lm_eval --model hf --model_args pretrained=outputs/run/merged --tasks gsm8k --apply_chat_template
# ```

# %% [markdown] tags=["remove-cell"]
# This cell serves the machine that runs the notebook on every change. It fails when training did not happen, or did not
# help.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

report = json.loads((folder / "after" / "report.json").read_text())
tables = {"before": before, "after": after}
strict = {when: round(float(t["strict"].mean()), 4) for when, t in tables.items()}
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
    seen = report["heldout"]["greedy"]["strict"]["p_value"]
    assert seen < 1e-3, "the command saw no gain"
    assert np.mean(sums_before) > 0.5, "the other skill was never there"

# %% [markdown]
# ## Exercises
#
# Fill in a cell and run it: it checks itself. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 08.1 · `mcnemar` · medium · 8 minutes
#
# `better` problems got better, `worse` got worse. If each of them was a fair coin, how likely is an outcome at least as
# far from even, in either direction? Return this exact p-value, at most 1.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def mcnemar(better: int, worse: int) -> float:
    raise NotImplementedError


check("08.1", mcnemar);

# %% [markdown]
# <details><summary>Hint</summary>
#
# With m coins, `comb(m, i) / 2**m` is the probability of i heads. One tail runs from 0 to the smaller count; the other
# tail is as large. What is counted twice when both counts are equal?
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
# ### Exercise 08.2 · `chance_of_gain` · medium · 10 minutes
#
# Show without a simulation that 30 problems prove nothing. A model that is right with probability `rate` answers `n`
# problems, and then `n` different ones. What is the probability that it gets at least `more` problems more right the
# second time, although nothing changed?


# %% tags=["exercise"]
def chance_of_gain(n: int, rate: float, more: int) -> float:
    raise NotImplementedError


check("08.2", chance_of_gain);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `scipy.stats.binom.pmf(i, n, rate)` is the probability of i right answers. Add up the products over all pairs of
# counts that fit.
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
# ### Exercise 08.3 · `seed_spread` · medium · 10 minutes
#
# An experiment. Train three times for ten steps. Only the seed differs: it sets the start of the adapters, the order of
# the problems and the sampling. Measure each model on the same held-out problems. Are the three rates `"within"` what
# noise of the evaluation alone would give (their range stays below a 95 % bound), or `"beyond"` it? Predict, then run
# the cell. Afterwards set `rewards="correctness:1"` and more steps, and predict again.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "within" or "beyond"


def three_seeds(rewards=None, steps=10, seeds=(0, 1, 2)) -> dict:
    """Train once per seed, measure on the same problems. Change rewards and steps."""
    functions, weights = parse_rewards(rewards or run.rewards)
    rates = []
    for seed in seeds:
        config = run.replace(seed=seed, max_steps=steps)
        policy, words = load_policy(config)
        make_trainer(config, policy, words, train_set, functions, weights).train()
        scores = evaluate(policy, words, heldout, **how | {"samples": 1})
        rates.append(float(np.mean(scores.strict)))
        print(f"seed {seed}: {rates[-1]:.1%} strict")
    return {"strict": rates, "problems": len(heldout)}


predict("08.3", prediction, three_seeds);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The bound is that of Tukey's test: among three equal rates, the range exceeds 3.31 standard errors in 5 % of cases. At
# a rate of 80 % on 160 problems, how many points is that?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "within"
# ```
#
# Recorded runs of the course had 82.8 %, 81.2 % and 75.0 % on 64 problems after ten steps: eight points apart, and the
# bound was 17. So an evaluation of this size cannot tell the seeds apart, and it could not tell two methods apart
# either that differ by so much. With correctness as the only reward, seeds differ far more: the course's benchmark
# needed 36, 14 and 26 steps to 80 %, probably because a run waits for its first well-formed right answers. Compare
# methods over several seeds.
#
# </details>

# %% [markdown]
# ### Exercise 08.4 · `verdict` · medium · 15 minutes
#
# The sentence for your own report. From the outcomes of the same problems before and after, return `"rose"`, `"fell"`
# or `"not shown"`, at a p-value of at most 0.05. The cell below the solution applies it to two evaluations of your own.


# %% tags=["exercise"]
def verdict(before: list[bool], after: list[bool]) -> str:
    raise NotImplementedError


check("08.4", verdict);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `statistics.paired_p_value` and `statistics.changed` take these lists. First ask whether anything was shown, then in
# which direction.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from grpo_workbook import statistics
#
#
# def verdict(before: list[bool], after: list[bool]) -> str:
#     if statistics.paired_p_value(before, after) > 0.05:
#         return "not shown"
#     return "rose" if sum(after) > sum(before) else "fell"
# ```
#
# </details>

# %% [markdown]
# **Your data, your model.** Evaluate your model before and after training (or two models) on your own file, by the
# command above, and put the two output folders here. By default they are this chapter's. The last line says what your
# number of problems can show at all: is it small enough for the decision that you have to take?

# %%
from contextlib import suppress

import pandas as pd

BEFORE, AFTER = folder / "base", folder / "after"  # your two --output folders
old, new = (pd.read_json(f / "results.jsonl", lines=True) for f in (BEFORE, AFTER))
old, new = (table[table["sample"] == 0] for table in (old, new))
assert list(old["question"]) == list(new["question"]), "not the same problems"
for name in MEASURES:
    with suppress(NotImplementedError):  # until the exercise is solved
        result = verdict(list(old[name]), list(new[name]))
        print(f"{name}: {old[name].mean():.1%} -> {new[name].mean():.1%}: {result}")
least = paired_gain(len(old), worse=0.03)
gain = f"a gain of {100 * least:.1f} points" if least else "nothing"
print(f"{len(old)} problems can show {gain} (3 % worse, power 80 %)")

# %% [markdown]
# ## Summary
#
# - Compute the power before the run. With 30 problems, ten points are often luck.
# - Report strict and lenient, form and length, each with an interval.
# - Compare on the same problems with a paired test, read what got worse, and measure a skill that was not trained.
# - An interval covers the problems, not the training seed. Run several seeds before you compare methods.
# - pass@k says what the model can produce, its first answer what it does produce. GRPO lifts the first answer; whether
#   it also extends what the model can produce is in dispute.
#
# Next: [09 · Merge and inference](09_merge_and_inference.ipynb) puts the trained adapter to work.
