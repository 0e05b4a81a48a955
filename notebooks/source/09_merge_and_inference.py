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
from grpo_workbook import figures, quiet, show

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
weights = 0.05 * torch.randn(64)
scale = weights.abs().max()
block = round_to_levels(weights, scale)
update = 0.003 * torch.randn(64)
again = round_to_levels(block + update, scale)
error = (again - block - update).norm() / update.norm()
print(f"{int((again == block).sum())} of 64 weights are back on their level")
print(f"the rounding error is {error:.0%} of the update's size")

# %% [markdown]
# For a single weight on the level 0, this is what arrives of a change:

# %%
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

from grpo_workbook import RunConfig, load_policy

run = RunConfig.from_env(max_steps=24, heldout=120)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth

policy, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# What it can do before: *strict* is right and in the asked form, sampled at temperature 1.

# %%
from statistics import mean

from grpo_workbook import data, evaluate, load_problems, to_dataset
from grpo_workbook import paired_p_value, wilson_interval

rows = load_problems(data.WORD_PROBLEMS["heldout"]).select(range(run.heldout))
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
from grpo_workbook import make_trainer, parse_rewards, stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_rows = load_problems(data.WORD_PROBLEMS["train"])
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

from grpo_workbook import save_adapter

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
# - the fraction of positions where both would write the same token.
#
# The merged weights are stored in bfloat16, which has 8 significant bits: differences of some thousandths are rounding.
# Where the held-out accuracy was measured too, `is_proved` also refuses one below the interval of the trained policy's.
# Above it is no fault: the policy answered on a 4-bit base, and on 16-bit weights it may answer better.

# %%
from grpo_workbook import compare_logits, export

prompts = list(heldout["prompt"])


def prove(reference, candidate):
    texts = after_greedy.completions
    return compare_logits(reference, candidate, tokenizer, prompts, texts)


proof = prove(unmerged, model)
print(proof)
print(f"bounds: {export.RELATIVE:.0%} of the spread,", end=" ")
print(f"{export.SAME_TOKENS:.0%} same tokens")
show(export.is_proved)

# %% [markdown]
# ## Three merges that are wrong
#
# Why two numbers, and why logits, when one could just count right answers? Because wrong merges answer well. Three that
# happen: `alpha / r` left out (here it is 2, so the update is half as large); the adapter added twice; and PEFT's
# `merge_and_unload` on the 4-bit model, which does not refuse.

# %%
import textwrap
import warnings

from grpo_workbook import load_model
from peft.tuners.lora import LoraLayer


def with_adapter(load_in_4bit=False):
    how = {"dtype": run.dtype, "device": run.device, "load_in_4bit": load_in_4bit}
    return load_model(run.model, folder / "adapter", **how)[0]


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
    sampled = evaluate(candidate, tokenizer, heldout, sample=True, **how)
    found[name] = numbers | {
        "sampled": mean(sampled.strict),
        "proved": export.is_proved(numbers),
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
# policy: its logits are off by a quarter of their spread and more. As soon as answers are *sampled*, both get fewer
# right, by amounts that alone could be luck among 120 problems. Greedy accuracy would have passed both; the logits
# refuse them.
#
# **Tied embeddings** are a fourth way. Many small models, this one too, read and write with one matrix: the embeddings
# are also the output layer (`tie_word_embeddings`). An adapter on only one of the two, merged, changes both. The
# course's adapters leave that matrix alone; where someone's did not, the merge is refused, as you will see below.

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
unpacked, _ = load_model(
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
# ## The same in one call
#
# `merge` does all of this in one go, for any base and adapter: it checks the base by its hash, merges, proves by logits
# and by held-out answers, writes a card, and gives the folder its name only when the proof holds. A merge that is
# another model is refused with the numbers, and nothing is written.

# %%
from grpo_workbook import merge

by_call = merge(
    run.model,
    folder / "adapter",
    folder / "merged_by_call",
    heldout=heldout,
    policy=after_greedy,
    max_new_tokens=run.max_completion_length,
    batch_size=run.eval_batch,
)
print({name: value for name, value in by_call.items() if name != "merged_answers"})

# %% [markdown]
# In a terminal it is `python -m grpo_workbook merge outputs/run/adapter --output outputs/merged`, which asks with the
# system prompt that `run.json` beside the adapter holds. Here is the adapter on a tied output layer, refused. (PEFT
# warns at length about such an adapter; that is left out here.)

# %%
from grpo_workbook import WorkbookError
from peft import LoraConfig, get_peft_model

warnings.filterwarnings("ignore", category=UserWarning, module="peft")
torch.manual_seed(0)
tied = get_peft_model(
    load_model(run.model, dtype=run.dtype, device=run.device)[0],
    LoraConfig(target_modules=["lm_head"], task_type="CAUSAL_LM", r=8),
)
for name, weight in tied.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(weight, std=0.2)
save_adapter(tied, tokenizer, folder / "adapter_on_the_output")
try:
    merge(run.model, folder / "adapter_on_the_output", folder / "merged_wrong")
except WorkbookError as refused:
    print(textwrap.fill(str(refused), 88))
print("written:", (folder / "merged_wrong").exists())

# %% [markdown]
# ## Asking with plain Transformers
#
# The `pipeline` takes a chat and gives back the chat with one more turn. Give it the system prompt of training: a model
# that learned with one is another model without it.

# %%
from transformers import pipeline

chat, options = prompts[0], data.CHAT_TEMPLATE_KWARGS
ask = pipeline("text-generation", model=model, tokenizer=tokenizer)
greedy = {"do_sample": False, "max_new_tokens": run.max_completion_length}
result = ask(chat, tokenizer_encode_kwargs=options, **greedy)
for turn in result[0]["generated_text"]:
    print(f"[{turn['role']}] {turn['content']}")

# %% [markdown]
# ### Many at once
#
# A batch is a rectangle, prompts are not. The short ones are filled up with padding, and for generation on the
# **left**: the model continues where the row ends, and that must be its prompt's end. 60 prompts, padded either way,
# with the score of all answers and the text of the second:

# %%
from grpo_workbook import render, score

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
# `grpo_workbook.generate` does all this, and puts prompts of similar length together, so that little is padding.

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
# A program wants the pieces in a loop. For that `TextIteratorStreamer` is read while `generate` writes in a thread.
# Bars stand between the pieces; these answers hold hardly a space, so each piece is a line:

# %%
from threading import Thread

from transformers import TextIteratorStreamer

streamer = TextIteratorStreamer(
    tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=60
)
writer = Thread(target=model.generate, kwargs={**one, **greedy, "streamer": streamer})
writer.start()
pieces = [piece for piece in streamer if piece]
writer.join()
print("|".join(pieces).replace("\n", "\\n"))

# %% [markdown]
# `timeout` is for the day when the thread fails: its exception is not raised here, and without a timeout the loop would
# wait for the next piece forever.

# %% [markdown]
# ## Sampling settings
#
# The model gives a distribution over the next token, and a token is sampled from it. Every setting changes the
# distribution before that. First on six tokens, with Transformers' own classes:
#
# - **temperature** divides the logits: below 1 sharper, above 1 flatter. Nothing is cut off.
# - **top_k** keeps the k likeliest, however the rest is spread.
# - **top_p** keeps the likeliest until they add up to p; the one that crosses p is kept.
# - **min_p** keeps what has at least that fraction of the likeliest one's chance: few where the model is sure, many
#   where it is not.
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
# 30 problems, eight answers each. *Strict* is the rate of right and well-formed answers. *maj@8* is the rate of
# problems whose commonest answer of eight is right (chapter 08). *Distinct* is how many different texts there are among
# the eight, divided by eight: 0.125 when all are the same.

# %%
from grpo_workbook import answers as reading
from grpo_workbook import majority_at_k

K, FEW = 8, 30
gold = rows["answer"][:FEW]


def answers_of(text, **settings):
    """K texts for one rendered prompt or each of several: a list of K for each."""
    batch = tokenizer(
        text, return_tensors="pt", padding=True, add_special_tokens=False
    ).to(run.device)
    length = {"max_new_tokens": run.max_completion_length, "num_return_sequences": K}
    out = model.generate(**batch, **length, **settings)
    new = out[:, batch["input_ids"].shape[1] :]
    found = tokenizer.batch_decode(new, skip_special_tokens=True)
    return [found[i : i + K] for i in range(0, len(found), K)]


# %% [markdown]
# Three numbers of these answers say what a setting does:

# %%
def measure(**settings):
    """(strict, maj@8, distinct) of K answers to each of the first FEW problems"""
    torch.manual_seed(run.seed)
    size = max(1, run.eval_batch // K)
    found = []
    for i in range(0, FEW, size):
        found += answers_of(texts[i : min(i + size, FEW)], **settings)
    right = score([t for ts in found for t in ts], [g for g in gold for _ in range(K)])
    votes = [
        [reading.read_answer(reading.lenient_answer(t) or "") for t in texts]
        for texts in found
    ]
    voted = [majority_at_k(v, float(g), K) for v, g in zip(votes, gold)]
    return mean(right.strict), mean(voted), mean(len(set(ts)) for ts in found) / K

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
        y="rate",
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
# its probability now to that when it was sampled, and TRL computes both over all tokens: it divides the logits by the
# temperature, but knows of no cut.

# %% [markdown]
# ## Serving
#
# `transformers serve` answers over HTTP in OpenAI's format. On a GPU take vLLM, which is made to answer many users at
# once and speaks the same format:
#
# ```bash
# transformers serve outputs/run/merged --host 127.0.0.1 --port 8000
# vllm serve outputs/run/merged --host 127.0.0.1 --port 8000 --max-model-len 1024
# ```
#
# `127.0.0.1` is on purpose: with `0.0.0.0` anyone in the network could ask, without a password. The cell starts the
# first line on a free port, offline, and waits until it answers:

# %%
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

with socket.socket() as sock:
    sock.bind(("127.0.0.1", 0))
    port = sock.getsockname()[1]
transformers = Path(sys.executable).with_name("transformers")
line = f"{transformers} serve {folder / 'merged'} --host 127.0.0.1 --port {port}"
line += f" --device {run.device}"
log = (folder / "server.log").open("w")
server = subprocess.Popen(
    line.split(), stdout=log, stderr=log, env={**os.environ, "HF_HUB_OFFLINE": "1"}
)
url = f"http://127.0.0.1:{port}"
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # past any proxy
while True:
    assert server.poll() is None, (folder / "server.log").read_text()[-2000:]
    try:
        direct.open(f"{url}/health", timeout=2)
        break
    except OSError:
        time.sleep(0.2)
print("it answers")

# %% [markdown]
# It is asked by the `openai` client, at once and as a stream. The name of the model is the folder; the switch of the
# chat template travels along, for the prompt must be that of training.

# %%
import openai

client = openai.OpenAI(
    base_url=f"{url}/v1",
    api_key="none",  # nothing checks it
    http_client=openai.DefaultHttpxClient(trust_env=False),  # no proxy on loopback
)
request = {
    "model": str(folder / "merged"),
    "messages": chat,
    "max_tokens": run.max_completion_length,
    "temperature": 0,
    "extra_body": {"chat_template_kwargs": options},
}
served_answer = client.chat.completions.create(**request).choices[0].message.content
chunks = client.chat.completions.create(**request, stream=True)
pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
print(served_answer)
print(f"streamed in {len(pieces)} pieces:", "".join(pieces) == served_answer)

# %% [markdown]
# To talk to it in a terminal, `transformers chat` is a client of the same server. It wants a keyboard, so the notebook
# only shows its line; give it the system prompt of training, and no sampling:
#
# ```bash
# transformers chat outputs/run/merged http://127.0.0.1:8000 do_sample=False \
#     --system-prompt "Work inside <reasoning> tags, then give the number inside <answer> tags."
# ```
#
# The server is stopped, and asked whether it is gone:

# %%
server.terminate()
server.wait(timeout=30)
log.close()
with socket.socket() as sock:
    closed = sock.connect_ex(("127.0.0.1", port)) != 0
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
# llama.cpp's own converter writes GGUF. It is no Python package; it comes with llama.cpp's source:
#
# ```bash
# git clone --depth 1 https://github.com/ggml-org/llama.cpp
# python llama.cpp/convert_hf_to_gguf.py outputs/run/merged --outfile model.gguf --outtype f16
# llama.cpp/build/bin/llama-cli -m model.gguf     # after compiling it
# ```
#
# Two things to know, for both make a file that loads and answers wrongly, or no file:
#
# - **How text is split into tokens** (the *pre-tokenizer*) is known to it by a hash of what the tokenizer makes of one
#   text, vocabulary and all. It knows Qwen's and Gemma's. A tokenizer of your own has another hash, and the converter
#   refuses it: `BPE pre-tokenizer was not recognized`. This course's tiny models are such a case. Never answer that by
#   naming one that is nearly the same: the model would read other tokens than it was trained on.
# - **Which layers of Gemma 3 look at all of the text** is not written into the file, and llama.cpp takes every sixth. A
#   model with another pattern, as the course's tiny one, needs it written down.
#
# `make test-gguf`, in the course's folder, compiles llama.cpp (minutes, once), tells its converter both, and compares:
# with the tiny models, llama.cpp gave the same greedy answers as Transformers to 60 held-out prompts in 16 bits, and to
# 59 with one of them in 8 bits ([measured](../docs/measurements.md)). Where `LLAMA_CPP` names llama.cpp's folder, this
# cell runs its converter:

# %%
converter = Path(os.environ.get("LLAMA_CPP", "llama.cpp")) / "convert_hf_to_gguf.py"
if converter.is_file():
    line = [sys.executable, converter, folder / "merged", "--outfile"]
    line += [folder / "model.gguf", "--outtype", "f16"]
    ended = subprocess.run(line, capture_output=True, text=True)
    print("\n".join(ended.stderr.splitlines()[-3:]))
else:
    print("llama.cpp is not here: set LLAMA_CPP to its folder")

# %% [markdown]
# ## A card, and the hub
#
# A model without its numbers is a rumour. The card says what it is, on what it was trained and measured, with
# intervals, the merge's proof, and how to load it with the prompt of training. `make run` writes one by itself; here
# from what this notebook measured:

# %%
from dataclasses import asdict

from importlib.metadata import version

from grpo_workbook import data, summary, training

report = {
    "backend": "unsloth",
    "seed": run.seed,
    "steps": trainer.state.global_step,
    "load_in_4bit": run.load_in_4bit,
    "lora_parameters": training.count_trained_parameters(policy),
    "data": {
        "train": len(train_rows),
        "heldout": len(rows),
        "max_prompt_length": run.max_prompt_length,
    },
    "data_sha256": data.sha256_of(train_rows, rows),
    "heldout": {
        "n": len(rows),
        "before": summary(before, before_greedy),
        "after": summary(after, after_greedy),
        "p_value": p_value,
    },
    "merge": proof,
    "versions": {name: version(name) for name in ("unsloth", "trl", "transformers")},
}

# %% [markdown]
# Its first lines are for the hub, the rest for people.

# %%
export.write_card(folder / "merged", report, asdict(run), base=run.model)
card = (folder / "merged" / "README.md").read_text()
text = card.split("---\n", 2)[2].strip()
for line in text.splitlines()[:16]:
    print(textwrap.fill(line, 100) if not line.startswith("|") else line)

# %% [markdown]
# `hf upload` sends a folder to the hub. It has no trial run, so look first at what would go: every file with its size,
# that no weights are pickled (they could run code where they are loaded), and that no path of your machine is in them.

# %%
for path in sorted(p for p in (folder / "merged").rglob("*") if p.is_file()):
    pickled = path.suffix in (".bin", ".pt", ".pth", ".pkl")
    private = str(Path.home()).encode() in path.read_bytes()
    remark = "PICKLED" * pickled + " A PATH OF THIS MACHINE" * private
    print(f"{path.stat().st_size:9,} bytes  {path.name:24} {remark}")
    assert not pickled

# %% [markdown]
# Then in a terminal, after `hf auth login`; never from a notebook, where a login or its error would be stored with the
# outputs. `--private` first: what is public once has been copied.
#
# ```bash
# hf upload me/my-model outputs/run/merged . --private
# ```

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
    "by_call": by_call,
    "padding": {side: mean(score(t, answers).strict) for side, t in shown.items()},
    "served": served,
    "port_closed": closed,
}
(run.output / "notebook_09.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps == len(log)
assert all(entry["step_time"] > 0 for entry in log)
assert served_answer == "".join(pieces)
assert not (folder / "merged_wrong").exists()
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
# The proof's two numbers, `(how far they differ, fraction of same tokens)`, from the logits of both models: a row for
# each position, a number in it for each token.
#
# - How far they differ: the root of *(mean squared difference / mean variance)*. The variance is that of `ours` within
#   a position (`statistics.variance`), averaged over positions.
# - The fraction of positions where both would write the same token: the one with the largest logit.
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
# - Settings change the distribution before a token is sampled. Choose them by measurement, and train without cuts.
# - Serve on loopback, and round to fewer bits once, at the end.
#
# Next: [10 · Scale out](10_scale_out.ipynb) says what a run takes in memory and time, and what more GPUs would bring.
# How to measure what you ship is in [08 · Evaluation](08_evaluation.ipynb).
