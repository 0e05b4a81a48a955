# %% [markdown]
# # 09 · Merge and inference
#
# **After this notebook you can** merge an adapter into its base and prove that nothing was lost, recognise a merge that
# is wrong although it answers well, ask the model in batches and as a stream, choose sampling settings by measurement,
# and serve the model over HTTP.
#
# **Time:** about 2 minutes on two CPU cores; a short training run is a third of it. On a GPU the same cells
# merge and serve Qwen3 or Gemma 3; the times there have not been measured yet.

# %% [markdown]
# ## A merge by hand
#
# LoRA leaves the base's weight `W` as it is and adds a path beside it: the input goes through the thin `A`, then
# through `B`, and the result is scaled by `alpha / r`. Here with 3 inputs, 2 outputs and rank 1:

# %%
import torch

W = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # outputs x inputs
A = torch.tensor([[1.0, 0.0, -1.0]])  # r x inputs
B = torch.tensor([[0.5], [2.0]])  # outputs x r
alpha, r = 2.0, 1
x = torch.tensor([1.0, 1.0, 2.0])
print("base alone:      ", W @ x)
print("adapter beside it:", W @ x + alpha / r * (B @ (A @ x)))

# %% [markdown]
# Both paths are linear, so they can be added once and for all. That is the whole merge: one matrix, no path beside it,
# nothing to carry along while generating.

# %%
merged_W = W + alpha / r * (B @ A)
print(merged_W)
print("merged:          ", merged_W @ x)

# %% [markdown]
# ## Why not into the 4-bit weights
#
# A 4-bit weight is no free number. It is one of 16 *levels*, times a *scale* that a *block* of 64 weights shares: the
# largest magnitude in the block. These are NF4's levels:

# %%
from grpo_workbook.notebook import quiet, show

quiet()  # no loading bars, no advice from the libraries
from bitsandbytes.functional import get_4bit_type

levels = get_4bit_type("nf4", device="cpu")
print([round(level, 3) for level in levels.tolist()])

# %% [markdown]
# Take 64 weights that lie on these levels, add a small update, and round to the same grid again. Most weights fall back
# to the level they came from: for them the update never happened. A few jump to the next level, and move much further
# than they were asked to.

# %%
def round_to_levels(weights, scale):
    """Each weight as the nearest level times the scale."""
    nearest = (weights[:, None] / scale - levels).abs().argmin(1)
    return scale * levels[nearest]


torch.manual_seed(0)
drawn = 0.05 * torch.randn(64)
scale = drawn.abs().max()
block = round_to_levels(drawn, scale)
update = 0.003 * torch.randn(64)
again = round_to_levels(block + update, scale)
error = (again - block - update).norm() / update.norm()
print(f"{int((again == block).sum())} of 64 weights are back on their level")
print(f"the rounding error is {error:.0%} of the update's size")

# %% [markdown]
# For a single weight on the level 0, this is what arrives of a change:

# %%
from grpo_workbook import figures

asked = torch.linspace(0, 0.35, 141)
arrives = levels[(asked[:, None] - levels).abs().argmin(1)]
figures.show(
    *figures.line_chart(
        {
            "16-bit": (asked.tolist(), asked.bfloat16().float().tolist()),
            "4-bit (NF4)": (asked.tolist(), arrives.tolist()),
        },
        x="change asked for, in units of the block's scale",
        y="change that arrives",
        title="A small change of a 4-bit weight is no change",
        finding="16 bits follow; 4 bits climb in steps of about 0.08.",
        markers=False,
    )
)

# %% [markdown]
# So an adapter is merged into the base's **16-bit** weights. Who wants 4 bits afterwards rounds once, at the end, and
# measures what that cost; this chapter does so further down.

# %% [markdown]
# ## An adapter worth merging
#
# A short run, set up as in chapter 04: 4-bit base, LoRA, TRL's trainer.

# %%
import os

from grpo_workbook.config import RunConfig

run = RunConfig.from_env(max_steps=24, heldout=120)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth
from grpo_workbook.training import load_policy

policy, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# What it can do before: *strict* is right and in the asked form, drawn at temperature 1.

# %%
from statistics import mean

from grpo_workbook.data import WORD_PROBLEMS, read_problems, to_dataset
from grpo_workbook.evaluate import evaluate, paired_p_value, wilson_interval

rows = read_problems(WORD_PROBLEMS["heldout"])[: run.heldout]
heldout = to_dataset(rows)
how = {
    "max_new_tokens": run.max_completion_length,
    "batch_size": run.eval_batch,
    "seed": run.seed,
}
before = evaluate(policy, tokenizer, heldout, sample=True, **how)
before_greedy = evaluate(policy, tokenizer, heldout, **how)
print(f"before: {mean(before.strict):.1%} strict, sampled, of {len(rows)}")

# %% [markdown]
# Training:

# %%
from grpo_workbook.rubric import parse_rewards
from grpo_workbook.training import make_trainer, stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_rows = read_problems(WORD_PROBLEMS["train"])
train_set = to_dataset(train_rows)
trainer = make_trainer(run, policy, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# And after. The greedy answers are kept: the merged model will have to give them too.

# %%
after = evaluate(policy, tokenizer, heldout, sample=True, **how)
after_greedy = evaluate(policy, tokenizer, heldout, **how)
p_value = paired_p_value(before.strict, after.strict)
print(f"after: {mean(after.strict):.1%} strict, sampled (p = {p_value:.1g})")
print(f"       {mean(after_greedy.strict):.1%} strict, greedy")

# %% [markdown]
# ## The adapter's folder
#
# `save_adapter` writes what PEFT writes, the tokenizer, and one file more.

# %%
import json

from grpo_workbook.export import save_adapter

folder = run.output / "chapter_09"
save_adapter(policy, tokenizer, folder / "adapter")
for path in sorted((folder / "adapter").iterdir()):
    print(f"{path.stat().st_size:9,} bytes  {path.name}")

# %% [markdown]
# `adapter_config.json` says how the adapter is to be read: without `r` and `lora_alpha` its matrices mean nothing. It
# names its base by a path or a name, and what lies there may change. So `base.json`, which this course adds, keeps a
# hash of the base's weights: the course's `merge` refuses any other base.

# %%
config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
print({key: config[key] for key in ("peft_type", "r", "lora_alpha", "lora_dropout")})
print(sorted(config["target_modules"]))
print(json.loads((folder / "adapter" / "base.json").read_text()))

# %% [markdown]
# ## The merge
#
# The base is loaded again, unquantized, with the adapter on it; then Unsloth writes the two as one model.

# %%
from unsloth import FastLanguageModel

unmerged, _ = FastLanguageModel.from_pretrained(
    str(folder / "adapter"),
    max_seq_length=run.max_prompt_length + run.max_completion_length,
    dtype=getattr(torch, run.dtype),
    load_in_4bit=False,  # the 16-bit weights
)
unmerged.save_pretrained_merged(
    str(folder / "merged"), tokenizer, save_method="merged_16bit"
)
for path in sorted((folder / "merged").iterdir()):
    print(f"{path.stat().st_size:9,} bytes  {path.name}")

# %% [markdown]
# What came out is an ordinary model: to use it takes neither Unsloth nor PEFT.

# %%
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained(
    folder / "merged", dtype=getattr(torch, run.dtype), device_map=run.device
).eval()
tokenizer = AutoTokenizer.from_pretrained(folder / "merged", padding_side="left")
print(type(model).__name__, f"{model.num_parameters():,} parameters")

# %% [markdown]
# ## The proof
#
# That it loads proves nothing, and neither does a nice answer. So the base with the adapter beside it and the merged
# model both read the same prompts and answers, and at every position of an answer their logits are compared:
#
# - how far they differ, measured by how far the logits of one position lie apart: the root mean square of the
#   difference, divided by the standard deviation of the logits;
# - the share of positions where both would write the same token.
#
# The merged weights are stored in bfloat16, which has 8 significant bits: differences of some thousandths are rounding.
# Where the held-out accuracy was measured too, `is_proved` also refuses a merged model whose accuracy lies below the
# interval of the trained policy's. Above it is no fault: the policy answered on a 4-bit base, and on 16-bit weights it
# may answer better.

# %%
from grpo_workbook.export import compare_logits
from grpo_workbook.merging import RELATIVE, SAME_TOKENS, is_proved

prompts = list(heldout["prompt"])


def prove(reference, candidate):
    texts = after_greedy.completions
    size = run.eval_batch // 4  # all logits of a batch are held at once
    return compare_logits(reference, candidate, tokenizer, prompts, texts, size)


proof = prove(unmerged, model)
print(proof)
print(f"bounds: at most {RELATIVE:.0%} of the spread, {SAME_TOKENS:.0%} same tokens")
show(is_proved)

# %% [markdown]
# ## Three merges that are wrong
#
# Why two numbers, and why logits, when one could just count right answers? Because wrong merges answer well. Three that
# happen: `alpha / r` left out (here it is 2, so the update is half as large); the adapter added twice; and PEFT's
# `merge_and_unload` on the 4-bit model, which does not refuse.

# %%
import warnings

from grpo_workbook.loading import load_for_measuring
from peft.tuners.lora import LoraLayer


def with_adapter(load_in_4bit=False):
    return load_for_measuring(
        run.model,
        str(folder / "adapter"),
        dtype=run.dtype,
        device=run.device,
        load_in_4bit=load_in_4bit,
    )[0]


def merge_scaled(factor):
    """The merge with `factor` times the right alpha / r."""
    wrong = with_adapter()
    for module in wrong.modules():
        if isinstance(module, LoraLayer):  # its scaling: {adapter: alpha / r}
            module.scaling = {k: factor * v for k, v in module.scaling.items()}
    return wrong.merge_and_unload()

# %% [markdown]
# Of the third, all that PEFT says is a warning, which is caught here and printed:

# %%
def merge_into_4bit():
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        wrong = with_adapter(load_in_4bit=True).merge_and_unload()
    said = {str(w.message) for w in heard if "Merge lora" in str(w.message)}
    print(*said)
    return wrong


MERGES = {
    "right": lambda: model,
    "alpha / r left out": lambda: merge_scaled(config["r"] / config["lora_alpha"]),
    "added twice": lambda: merge_scaled(2),
    "into 4-bit weights": merge_into_4bit,
}

# %% [markdown]
# Each is made, compared by its logits, and asked the held-out problems, greedily and sampled. (The third one's warning
# is all that is printed here.)

# %%
found = {}
for name, make in MERGES.items():
    candidate = make()
    numbers = prove(unmerged, candidate)
    greedy = evaluate(candidate, tokenizer, heldout, **how)
    numbers["merged_strict_greedy"] = mean(greedy.strict)
    numbers["policy_ci95"] = wilson_interval(after_greedy.strict)
    drawn = evaluate(candidate, tokenizer, heldout, sample=True, **how)
    found[name] = numbers | {
        "sampled": mean(drawn.strict),
        "proved": is_proved(numbers),
    }

# %% [markdown]
# The numbers. *Logits differ* and *same token* are the proof's two:

# %%
print(f"{'':20} logits differ   same token   strict, greedy   sampled   proof")
for name, n in found.items():
    print(
        f"{name:20} {n['relative_logit_difference']:13.1%}"
        f" {n['same_greedy_tokens']:12.2%} {n['merged_strict_greedy']:16.1%}"
        f" {n['sampled']:9.1%}   {'accepted' if n['proved'] else 'refused'}"
    )

# %% [markdown]
# Read the second line and the last. Hardly a token changes, greedy accuracy does not fall, and yet each is another
# policy: its logits are off by a quarter of their spread and more. As soon as answers are *drawn*, both get fewer
# right, by amounts that alone could be luck among 120 problems. Greedy accuracy would have passed both; the logits
# refuse them.
#
# **Tied embeddings** are a fourth way. Many small models, this one too, read and write with one matrix: the embeddings
# are also the output layer (`tie_word_embeddings`). An adapter on only one of the two, merged, changes both. The
# course's adapters leave that matrix alone; where someone's did not, `python -m grpo_workbook merge` measures and
# refuses.

# %%
print("tied:", model.config.get_text_config().tie_word_embeddings)
reads, writes = model.get_input_embeddings(), model.get_output_embeddings()
print("one matrix:", reads.weight is writes.weight)

# %% [markdown]
# ## Is it still the policy that was trained?
#
# The proof compares with the adapter on the *16-bit* base. Training used the *4-bit* base, and that is another model:
# its rounding errors were there while the adapter learned. How far is the merged model from the policy that was
# trained? And is it better to unpack the 4-bit weights into 16 bits and merge into those?

# %%
from peft import PeftModel

del unmerged, candidate  # room for others
trained = with_adapter(load_in_4bit=True)
unpacked, _ = load_for_measuring(
    run.model, dtype=run.dtype, device=run.device, load_in_4bit=True
)
unpacked = PeftModel.from_pretrained(unpacked.dequantize(), folder / "adapter")
unpacked = unpacked.merge_and_unload()
low, high = wilson_interval(after_greedy.strict)
told = f"{mean(after_greedy.strict):.1%} ({low:.1%} to {high:.1%})"
print(f"the 4-bit policy, greedy: {told}")
for name, candidate in (("16-bit base", model), ("unpacked base", unpacked)):
    scores = evaluate(candidate, tokenizer, heldout, **how)
    far = prove(trained, candidate)["relative_logit_difference"]
    print(f"merged, {name}: {mean(scores.strict):.1%}, logits {far:.1%} from it")

# %% [markdown]
# Merged into the unpacked base, the model is closer to what was trained, and carries the 4-bit base's rounding errors
# for good. Merged into the 16-bit base, it is a model that was never trained as such. Neither is wrong. What decides is
# the held-out score of what you ship, and here both lie inside the policy's interval.

# %% [markdown]
# ## The same as one command
#
# `merge` does all of this in one go: it checks the base by its hash, merges, proves by logits and by held-out answers,
# writes a card, and gives the folder its name only when the proof holds. In a terminal:
#
# ```bash
# python -m grpo_workbook merge outputs/run/adapter --output outputs/run/merged
# ```
#
# A notebook could run that line with `!`, but then a failure is easily overlooked. So the cell starts it with
# `check=True`, which raises an exception:

# %%
import subprocess
import sys


def command(*words):
    """Run `python -m grpo_workbook ...` and print what it says."""
    line = [sys.executable, "-m", "grpo_workbook", *map(str, words)]
    print(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)


target = folder / "merged_by_command"
command("merge", folder / "adapter", "--output", target, "--items", 40, "--overwrite")

# %% [markdown]
# `python -m grpo_workbook generate MODEL QUESTION` asks any model, with or without adapter:

# %%
command("generate", folder / "merged", rows[0]["question"])

# %% [markdown]
# ## Asking with plain Transformers
#
# The `pipeline` takes a chat and gives back the chat with one more turn. Give it the system prompt of training: a model
# that learned with one is another model without it.

# %%
from transformers import pipeline

from grpo_workbook.cli.ask import conversation
from grpo_workbook.data import CHAT_TEMPLATE_KWARGS

chat = conversation(tokenizer, rows[0]["question"])
ask = pipeline("text-generation", model=model, tokenizer=tokenizer)
greedy = {"do_sample": False, "max_new_tokens": run.max_completion_length}
result = ask(chat, tokenizer_encode_kwargs=CHAT_TEMPLATE_KWARGS, **greedy)
for turn in result[0]["generated_text"]:
    print(f"[{turn['role']}] {turn['content']}")

# %% [markdown]
# ### Many at once
#
# A batch is a rectangle, prompts are not. The short ones are filled up with padding, and for generation on the
# **left**: the model continues where the row ends, and that must be its prompt's end. 60 prompts, padded either way,
# with the score of all answers and the text of the second:

# %%
from grpo_workbook.data import render
from grpo_workbook.evaluate import score

texts = render(prompts[:60], tokenizer)
answers = heldout["answer"][:60]
shown = {}
for side in ("left", "right"):
    tokenizer.padding_side = side
    batch = tokenizer(
        texts, return_tensors="pt", padding=True, add_special_tokens=False
    ).to(run.device)
    out = model.generate(**batch, **greedy)[:, batch["input_ids"].shape[1] :]
    shown[side] = tokenizer.batch_decode(out, skip_special_tokens=True)
    right = score(shown[side], answers).strict
    print(f"padded on the {side}: {mean(right):.0%} strict")
    print("   ", " ".join(shown[side][1].split()))
tokenizer.padding_side = "left"

# %% [markdown]
# On the right nothing fails, nothing warns, and the answers are rubbish. Two more things that a batch needs: the
# attention mask (without it padding is read), and `add_special_tokens=False` after a chat template, which has put them
# there already.
#
# `grpo_workbook.generation.generate` does all this, and puts prompts of similar length together, so that little is
# padding.

# %% [markdown]
# ### As it is written
#
# A reader waits for the first word, not for the last. Transformers hands every token to a *streamer*; `TextStreamer`
# prints them as soon as they make a whole word, which ends in a space or a new line:

# %%
from transformers import TextStreamer

one = tokenizer(texts[2], return_tensors="pt", add_special_tokens=False).to(run.device)
streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
_ = model.generate(**one, **greedy, streamer=streamer)

# %% [markdown]
# A program wants the pieces in a loop. For that `TextIteratorStreamer` is read while `generate` writes in a thread;
# `ask.stream` does it, raises what the thread raised, and stops the model when the loop is left. Bars stand between the
# pieces; these answers hold hardly a space, so each piece is a line:

# %%
from grpo_workbook.cli.ask import stream
from grpo_workbook.generation import sampling

pieces = stream(
    model,
    tokenizer,
    rows[2]["question"],
    max_new_tokens=run.max_completion_length,
    how=sampling(temperature=0),
)
print("|".join(pieces).replace("\n", "\\n"))

# %% [markdown]
# ## Sampling settings
#
# The model gives a distribution over the next token, and a token is drawn from it. Every setting changes the
# distribution before the draw. First on six tokens, with Transformers' own classes:
#
# - **temperature** divides the logits: below 1 sharper, above 1 flatter. Nothing is cut off.
# - **top_k** keeps the k likeliest, however the rest is spread.
# - **top_p** keeps the likeliest until they add up to p; the one that crosses p is kept.
# - **min_p** keeps what has at least that share of the likeliest one's chance: few where the model is sure, many where
#   it is not.
# - **repetition_penalty** makes what was written already less likely, here "12". The prompt counts as written.
#
# Where several are set, they come in this order: penalty, temperature, top_k, top_p, min_p.

# %%
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

words = ["12", "13", "15", "20", "2", "cat"]
logits = torch.tensor([[4.0, 3.0, 2.5, 1.5, 0.5, -1.0]])
written = torch.tensor([[0]])  # "12" stands in the text already
hot = TemperatureLogitsWarper(2.0)
WARPERS = {
    "as it is": [],
    "temperature 0.5": [TemperatureLogitsWarper(0.5)],
    "temperature 2": [hot],
    "repetition_penalty 1.5": [RepetitionPenaltyLogitsProcessor(1.5)],
    "top_k 4": [TopKLogitsWarper(4)],
    "top_p 0.75": [TopPLogitsWarper(0.75)],
    "min_p 0.1": [MinPLogitsWarper(0.1)],
    "temperature 2, min_p 0.1": [hot, MinPLogitsWarper(0.1)],
}

# %% [markdown]
# Each setting applied to the same six logits:

# %%
chances = {}
for name, steps in WARPERS.items():
    scores = logits.clone()
    for step in steps:
        scores = step(written, scores)
    chances[name] = scores.softmax(-1)[0].tolist()
figures.show(
    *figures.bar_panels(
        chances,
        words,
        y="chance of the next token",
        title="One distribution under each setting (a cross: cut off)",
        finding="Temperature and penalty reshape; "
        "top_k, top_p and min_p cut the tail off.",
    )
)

# %% [markdown]
# Look at "cat" under temperature 2: from 0.4 % to 3 %, and that for *each token*. Over an answer of 25 tokens one such
# slip is more likely than not. That is why high temperatures want a cut.

# %% [markdown]
# ### Measured on the model
#
# 30 problems, eight answers each. *Strict* is the share of right and well-formed answers. *maj@8* is the share of
# problems whose commonest answer of eight is right (chapter 08). *Distinct* is how many different texts there are among
# the eight, as a share of eight: 0.125 when all are the same.

# %%
from grpo_workbook.attempts import majority_at_k
from grpo_workbook.generation import complete, ready
from grpo_workbook.measures import lenient_vote

K, FEW = 8, 30
gold = [row["answer"] for row in rows[:FEW]]


def measure(**settings_of_generate):
    """(strict, maj@8, distinct) of K answers to each of the first FEW problems"""
    many = [text for text in texts[:FEW] for _ in range(K)]
    limit, size = run.max_completion_length, run.eval_batch
    drawn, more = [], {"max_new_tokens": limit, "how": settings_of_generate}
    with ready(model, tokenizer):
        torch.manual_seed(run.seed)
        for i in range(0, len(many), size):
            drawn += complete(model, tokenizer, many[i : i + size], **more)
    found = [[c.text for c in drawn[i : i + K]] for i in range(0, len(drawn), K)]
    strict = score([c.text for c in drawn], [g for g in gold for _ in range(K)])
    voted = [
        majority_at_k([lenient_vote(t) for t in ts], float(g), K)
        for ts, g in zip(found, gold)
    ]
    return mean(strict.strict), mean(voted), mean(len(set(ts)) for ts in found) / K

# %% [markdown]
# First the temperature alone (`top_k=0` turns off Transformers' default of 50):

# %%
temperatures = [0.5, 1.0, 1.3, 1.6, 2.0]
measured = [measure(do_sample=True, temperature=t, top_k=0) for t in temperatures]
curves = {
    name: (temperatures, [m[i] for m in measured])
    for i, name in enumerate(("strict", "maj@8", "distinct"))
}
at_high = ", ".join(f"{name} {ys[3]:.0%}" for name, (_, ys) in curves.items())
figures.show(
    *figures.line_chart(
        curves,
        x="temperature",
        y="share",
        title="Accuracy falls as variety grows",
        finding=f"At temperature 1.6: {at_high}.",
    )
)

# %% [markdown]
# At low temperatures the model says the same thing eight times, and a vote adds nothing. At high ones the single answer
# suffers first; the vote holds out longer, until nothing is left to vote on. For one answer, go low. For voting, or for
# samples to train on: as much variety as accuracy allows.
#
# Now what the cuts save at a temperature that is too high, and what a repetition penalty does to arithmetic, which
# *has* to repeat its numbers:

# %%
hot = {"do_sample": True, "temperature": 1.6, "top_k": 0}
mild = {**hot, "temperature": 1.0}
effects = {
    "temperature 1.6": measured[temperatures.index(1.6)],
    "  with top_k 5": measure(**{**hot, "top_k": 5}),
    "  with top_p 0.9": measure(**hot, top_p=0.9),
    "  with min_p 0.1": measure(**hot, min_p=0.1),
    "temperature 1": measured[temperatures.index(1.0)],
    "  with repetition_penalty 1.5": measure(**mild, repetition_penalty=1.5),
}
print(f"{'':30} strict   maj@8   distinct")
for name, (strict, voted, distinct) in effects.items():
    print(f"{name:30} {strict:6.1%} {voted:7.1%} {distinct:10.1%}")

# %% [markdown]
# Every cut brings much of the accuracy back, min_p most, because it keeps few tokens where the model is sure. It also
# brings the variety down: at 1.6 with min_p the answers are about as varied as at 1. The penalty may help prose that
# goes in circles; here it forbids what is right.
#
# In training, cut nothing (the course's runs set `top_k=0` and `top_p=1`). The update weighs each token by the ratio of
# its probability now to that when it was drawn, and TRL computes both over all tokens: it divides the logits by the
# temperature, but knows of no cut.

# %% [markdown]
# ## Serving
#
# `transformers serve` answers over HTTP in OpenAI's format; `serving.serve` starts it on loopback, waits until it
# answers, and stops it at the end of the block. On a GPU take vLLM, which is made to answer many users at once; the
# course's profiles for GPUs take it when it is installed:

# %%
from importlib.util import find_spec

from grpo_workbook.cli.serving import serve

engine = "vllm" if run.profile != "smoke" and find_spec("vllm") else "transformers"
print("served by", engine)

# %% [markdown]
# By hand, in a terminal, the two would be started like this. `127.0.0.1` is on purpose: with `0.0.0.0` anyone in the
# network could ask, without a password.
#
# ```bash
# transformers serve outputs/run/merged --host 127.0.0.1 --port 8000
# vllm serve outputs/run/merged --host 127.0.0.1 --port 8000 --max-model-len 1024
# ```
#
# And asked: over plain HTTP, by the `openai` client, and by the client as a stream.

# %%
import openai

options = {"max_tokens": run.max_completion_length, "temperature": 0}
with serve(str(folder / "merged"), device=run.device, engine=engine) as server:
    by_http = server.ask(chat, chat_template_kwargs=CHAT_TEMPLATE_KWARGS, **options)
    client = openai.OpenAI(
        base_url=server.url,
        api_key="none",  # nothing checks it
        http_client=openai.DefaultHttpxClient(trust_env=False),  # no proxy on loopback
    )
    request = {
        "model": server.model,
        "messages": chat,
        "extra_body": {"chat_template_kwargs": CHAT_TEMPLATE_KWARGS},
        **options,
    }
    answer = client.chat.completions.create(**request)
    by_client = answer.choices[0].message.content
    chunks = client.chat.completions.create(**request, stream=True)
    pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
print(by_http)
print("the client says the same:", by_client == by_http)
print(f"streamed in {len(pieces)} pieces:", "".join(pieces) == by_http)

# %% [markdown]
# At the end of the block the server is stopped. Do not take that on trust: ask its port.

# %%
import socket
from urllib.parse import urlsplit

address = urlsplit(server.url)
with socket.socket() as sock:
    closed = sock.connect_ex((address.hostname, address.port)) != 0
assert closed, "the server is still there"
print("port closed:", closed)

# %% [markdown]
# ## Serving in 4 bits
#
# Rounding once, at the end, is fine as long as it is measured. The merged model in NF4 through plain Transformers,
# beside the same in 16 bits:

# %%
from transformers import BitsAndBytesConfig

nf4 = BitsAndBytesConfig(
    load_in_4bit=True,
    bnb_4bit_quant_type="nf4",
    bnb_4bit_use_double_quant=True,
    bnb_4bit_compute_dtype=torch.bfloat16,
)
served = {}
for name, more in (("16-bit", {}), ("4-bit NF4", {"quantization_config": nf4})):
    small = AutoModelForCausalLM.from_pretrained(
        folder / "merged", dtype=torch.bfloat16, device_map=run.device, **more
    ).eval()
    scores = evaluate(small, tokenizer, heldout, **how)
    low, high = wilson_interval(scores.strict)
    served[name] = mean(scores.strict)
    print(
        f"{name:10} {small.get_memory_footprint() / 2**20:5.2f} MiB   "
        f"{served[name]:.1%} strict, greedy ({low:.1%} to {high:.1%})"
    )

# %% [markdown]
# The embeddings stay in 16 bits, so the memory falls to about a third and not to a quarter; for Qwen3-4B too, as
# chapter 10 computes.
#
# NF4 needs no *calibration*, that is no examples to choose the rounding by, and the weights are rounded while they are
# loaded. **GGUF** is the file format of llama.cpp and Ollama, for CPUs and laptops; **AWQ** (4-bit, calibrated on
# examples) and **FP8** (8-bit floating point, on GPUs with kernels for it) are for servers such as vLLM. Whatever you
# choose: the file that you ship gets its own held-out score.

# %% [markdown]
# ## One file for llama.cpp
#
# llama.cpp's own converter writes GGUF. It is no Python package: where it is missing, a message says how to get it
# (`make gguf` in the course's folder compiles it, in minutes), and the notebook goes on. On the command line it is
# `python -m grpo_workbook export-gguf`. With the course's tiny models, llama.cpp gave the same greedy answers as
# Transformers to 60 held-out prompts in float32, and to 59 with one of them in 8 bits
# ([measured](../docs/measurements.md)).

# %%
import textwrap

from grpo_workbook.errors import WorkbookError
from grpo_workbook.cli.gguf import find_converter, to_gguf

try:
    converter = find_converter()
except WorkbookError as missing:
    print(textwrap.fill(str(missing), 88, break_long_words=False))
else:
    file = to_gguf(folder / "merged", folder / "model.gguf", llama_cpp=converter)
    print(f"{file.name}: {file.stat().st_size:,} bytes")

# %% [markdown]
# ## A card, and the hub
#
# A model without its numbers is a rumour. The card says what it is, on what it was trained and measured, with
# intervals, the merge's proof, and how to load it with the prompt of training. `make run` writes one by itself; here
# from what this notebook measured:

# %%
from dataclasses import asdict

from grpo_workbook.cards import write_card
from grpo_workbook.data import sha256_of
from grpo_workbook.evaluate import summary
from grpo_workbook.cli.run_report import versions
from grpo_workbook.training import count_trained_parameters

report = {
    "backend": "unsloth",
    "seed": run.seed,
    "steps": trainer.state.global_step,
    "load_in_4bit": run.load_in_4bit,
    "lora_parameters": count_trained_parameters(policy),
    "data": {
        "train": len(train_rows),
        "heldout": len(rows),
        "max_prompt_length": run.max_prompt_length,
    },
    "data_sha256": sha256_of(train_rows, rows),
    "heldout": {
        "n": len(rows),
        "before": summary(before, before_greedy),
        "after": summary(after, after_greedy),
        "p_value": p_value,
    },
    "merge": proof,
    "versions": versions(),
}

# %% [markdown]
# Its first lines are for the hub, the rest for people. Beside it `run_card.json` holds the same for programs.

# %%
write_card(folder / "merged", report, asdict(settings), base=run.model)
card = (folder / "merged" / "README.md").read_text()
text = card.split("---\n", 2)[2].strip()
for line in text.splitlines()[:16]:
    print(textwrap.fill(line, 100) if not line.startswith("|") else line)

# %% [markdown]
# `push` shows what would go to the hub, looks for pickled files, tokens and paths of your machine in it, and sends
# nothing without `--yes`. It never sends from a notebook: a login or its error would be stored with the outputs.

# %%
command("push", folder / "merged", "me/my-model", "--private")

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen or did not
# help, when the merge is another policy, or when a wrong one was accepted.

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
proved = {
    "steps": trainer.state.global_step,
    "before": mean(before.strict),
    "after": mean(after.strict),
    "p_value": p_value,
    "merges": found,
    "padding": {side: mean(score(t, answers).strict) for side, t in shown.items()},
    "served": served,
    "port_closed": closed,
}
(run.output / "notebook_09.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps == len(log)
assert all(entry["step_time"] > 0 for entry in log)
assert by_client == by_http == "".join(pieces)
if run.profile == "smoke":
    learned = proved["after"] > proved["before"] + 0.3 and p_value < 1e-6
    assert learned, "the model did not learn"
    assert [n["proved"] for n in found.values()] == [True, False, False, False]
    assert served["4-bit NF4"] > served["16-bit"] - 0.1
    assert proved["padding"]["left"] > proved["padding"]["right"] + 0.5

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 09.1 · `merge_lora` · easy · 5 minutes
#
# The merged weight, with matrices as lists of rows: `W` is outputs x inputs, `A` is r x inputs, `B` is outputs x r.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def merge_lora(
    W: list[list[float]],
    A: list[list[float]],
    B: list[list[float]],
    alpha: float,
    r: int,
) -> list[list[float]]:
    raise NotImplementedError


check("09.1", merge_lora);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Entry (i, j) of `B A` is the sum of `B[i][k] * A[k][j]` over k. Tensors may be returned as well as lists.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def merge_lora(
#     W: list[list[float]],
#     A: list[list[float]],
#     B: list[list[float]],
#     alpha: float,
#     r: int,
# ) -> list[list[float]]:
#     return [
#         [w + alpha / r * sum(b * a[j] for b, a in zip(B[i], A)) for j, w in enumerate(row)]
#         for i, row in enumerate(W)
#     ]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 09.2 · `round_to_grid` · medium · 8 minutes
#
# Return what 4-bit storage makes of one block of weights: divide each by the block's scale, its largest magnitude; take
# the nearest level; multiply by the scale again. The `levels` lie between -1 and 1, and 0 is one of them.

# %% tags=["exercise"]
def round_to_grid(weights: list[float], levels: list[float]) -> list[float]:
    raise NotImplementedError


check("09.2", round_to_grid);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `min(levels, key=lambda level: abs(level - x))` is the level nearest to x. What is the scale of a block of zeros, and
# what becomes of the division?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def round_to_grid(weights: list[float], levels: list[float]) -> list[float]:
#     scale = max(abs(w) for w in weights)
#     if scale == 0:
#         return [0.0] * len(weights)
#     return [scale * min(levels, key=lambda level: abs(level - w / scale)) for w in weights]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 09.3 · `sampling_chances` · medium · 10 minutes
#
# Return the chance of each token from the logits, with temperature and then top_p: the likeliest tokens are kept until
# they add up to at least `top_p`, the others get 0.0, and what is kept is scaled to add up to 1.

# %% tags=["exercise"]
def sampling_chances(
    logits: list[float], temperature: float, top_p: float
) -> list[float]:
    raise NotImplementedError


check("09.3", sampling_chances);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Temperature, softmax, cut, divide by the sum: in this order. For the cut walk through the tokens from the likeliest
# on, and stop *after* the one with which the sum reaches `top_p`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import exp
#
#
# def sampling_chances(
#     logits: list[float], temperature: float, top_p: float
# ) -> list[float]:
#     top = max(logits)
#     weights = [exp((x - top) / temperature) for x in logits]
#     chances = [w / sum(weights) for w in weights]
#     kept, total = [0.0] * len(chances), 0.0
#     for i in sorted(range(len(chances)), key=lambda i: -chances[i]):
#         kept[i] = chances[i]
#         total += chances[i]
#         if total >= top_p:
#             break
#     return [c / total for c in kept]
# ```
#
# </details>

# %% [markdown]
# ### Exercise 09.4 · `left_pad` · easy · 8 minutes
#
# Make a batch of prompts, each a list of token numbers, padded on the left with the token number `pad`. Return `(ids,
# attention_mask, positions)`, each a list of rows of equal width. The mask is 1 at the prompt's tokens and 0 at
# padding; positions count from 0 at each prompt's first token, and are 0 at padding.

# %% tags=["exercise"]
def left_pad(
    rows: list[list[int]], pad: int
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    raise NotImplementedError


check("09.4", left_pad);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A row gets `width - len(row)` times the padding in front. A prompt may hold the number `pad` itself: count, do not
# compare.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def left_pad(
#     rows: list[list[int]], pad: int
# ) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
#     width = max(len(row) for row in rows)
#     gaps = [width - len(row) for row in rows]
#     ids = [[pad] * gap + row for gap, row in zip(gaps, rows)]
#     mask = [[0] * gap + [1] * len(row) for gap, row in zip(gaps, rows)]
#     positions = [[0] * gap + list(range(len(row))) for gap, row in zip(gaps, rows)]
#     return ids, mask, positions
# ```
#
# </details>

# %% [markdown]
# ### Exercise 09.5 · `compare_merge` · hard · 12 minutes
#
# The proof's two numbers, `(how far they differ, share of the same tokens)`, from the logits of both models: a row for
# each position, a number in it for each token.
#
# - How far they differ: the root of *(mean squared difference / mean variance)*. The variance is that of `ours` within
#   a position (`statistics.variance`), averaged over positions.
# - The share of positions where both would write the same token: the one with the largest logit.
#
# Raise `ValueError` when the two do not have equally many positions.

# %% tags=["exercise"]
def compare_merge(
    ours: list[list[float]], merged: list[list[float]]
) -> tuple[float, float]:
    raise NotImplementedError


check("09.5", compare_merge);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `zip(ours, merged, strict=True)` raises the ValueError. Average squares and variances over all positions first, divide
# then, and take the root last.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from statistics import mean, variance
#
#
# def compare_merge(
#     ours: list[list[float]], merged: list[list[float]]
# ) -> tuple[float, float]:
#     pairs = list(zip(ours, merged, strict=True))
#     squares = mean((x - y) ** 2 for a, b in pairs for x, y in zip(a, b))
#     spread = mean(variance(row) for row in ours)
#     same = mean(float(a.index(max(a)) == b.index(max(b))) for a, b in pairs)
#     return (squares / spread) ** 0.5, same
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - A merge is `W + alpha / r * B A`, into 16-bit weights. 4-bit weights swallow a small update or make it too large.
# - Prove it by the logits. A wrong merge can answer greedily as well as the right one.
# - The merged model is not quite the policy that was trained: measure what you ship.
# - Generate with left padding, an attention mask, and the system prompt of training.
# - Settings change the distribution before the draw. Choose them by measurement, and train without cuts.
# - Serve on loopback, and round to fewer bits once, at the end.
#
# Next: [10 · Scale out](10_scale_out.ipynb) says what a run takes in memory and time, and what more GPUs would bring.
# How to measure what you ship is in [08 · Evaluation](08_evaluation.ipynb).
