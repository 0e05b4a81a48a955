# %% [markdown]
# # 09 · Merge and inference
#
# **After this notebook you can** merge an adapter into its base and prove that nothing was lost, recognise a merge that
# is wrong although it answers well, generate in batches, choose sampling settings by measurement, and serve the model
# over HTTP.
#
# **Time:** about 3 minutes on two CPU cores; a short training run is a third of it.

# %% [markdown]
# ## A merge by hand
#
# LoRA leaves the base's weight `W` unchanged and adds a second path beside it: first through the thin matrix `A`, then
# through `B`, then times `alpha / r`. Here with 3 inputs, 2 outputs and rank 1:

# %%
import torch

W = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])  # outputs x inputs
A = torch.tensor([[1.0, 0.0, -1.0]])  # r x inputs
B = torch.tensor([[0.5], [2.0]])  # outputs x r
alpha, r = 2.0, 1
x = torch.tensor([1.0, 1.0, 2.0])
merged_W = W + alpha / r * (B @ A)
print("base alone:       ", W @ x)
print("adapter beside it:", W @ x + alpha / r * (B @ (A @ x)))
print("merged:           ", merged_W @ x)

# %% [markdown]
# Both paths are linear, so they can be added once and for all. The merged layer is one matrix, with no second path to
# compute for each token.

# %% tags=["hide-input"]
from grpo_workbook import figures, quiet

quiet()  # no loading bars, no advice from the libraries
pale = figures.PALE
boxes = {
    "x": (0.06, 0.5, "x", pale["data"]),
    "W": (0.4, 0.82, "W, frozen", pale["off"]),
    "A": (0.28, 0.2, "A: r x inputs", pale["model"]),
    "B": (0.54, 0.2, "B: outputs x r", pale["model"]),
    "+": (0.78, 0.5, "+", pale["number"]),
    "y": (0.93, 0.5, "y", pale["data"]),
}
arrows = [("x", "W", ""), ("W", "+", ""), ("x", "A", ""), ("A", "B", ""),
          ("B", "+", "times alpha / r"), ("+", "y", "")]
figure = figures.diagram(boxes, arrows, (7.0, 2.4))
figure.suptitle("The merge adds both paths into one matrix: W + (alpha / r) B A")
alt = "The input x goes through the frozen W and, beside it, through A and B."
figures.show(figure, alt + " Their sum is y; B's part times alpha / r.")

# %% [markdown]
# ## Why not merge into the 4-bit weights?
#
# A 4-bit weight is not a free number. It is one of 16 *levels*, times a *scale* that a *block* of 64 weights shares:
# the largest magnitude in the block. With double quantization, which every run of the course uses, the scale is itself
# rounded to 8 bits; here we keep it exact.
#
# Take 64 weights that lie on the levels of NF4, add a small update, and round again. Most weights fall back to their
# old level, so their update is lost. A few jump to the next level and move much further than the update asked for.

# %%
from bitsandbytes.functional import get_4bit_type

levels = get_4bit_type("nf4", device="cpu")
print("levels:", *(f"{level:.2f}" for level in levels))


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
# For a single weight on the level 0, this much of a change arrives:

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
# So merge into the base's **16-bit** weights. If you want a 4-bit model afterwards, quantize once at the end and
# measure the cost, as we do below.

# %% [markdown]
# ## An adapter worth merging
#
# A short run, set up as in chapter 04: 4-bit base, LoRA, TRL's trainer.

# %%
import os

from grpo_workbook import load_policy
from grpo_workbook.run_config import RunConfig

run = RunConfig.from_env(profile="smoke", max_steps=24, heldout=120)
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"
import unsloth

policy, tokenizer = load_policy(run)
print(run.model_name, "on", run.device)

# %% [markdown]
# Its baseline: *strict* is right and in the required form, sampled at temperature 1.

# %%
from statistics import mean

from grpo_workbook import config, data, evaluate, load_problems, to_dataset
from grpo_workbook import paired_p_value, wilson_interval

rows = load_problems(data.WORD_PROBLEMS["heldout"]).select(range(run.heldout))
heldout = to_dataset(rows)
how = {
    "max_new_tokens": run.max_completion_length,
    "batch_size": run.eval_batch,
    "seed": run.seed,
}
before = evaluate(policy, tokenizer, heldout, sample=True, **how)
print(f"before: {mean(before.strict):.1%} strict, sampled, of {len(rows)}")

# %% [markdown]
# Train:

# %%
from grpo_workbook import parse_rewards
from grpo_workbook.run_config import make_trainer
from grpo_workbook.resume import stop_on_interrupt

functions, weights = parse_rewards(run.rewards)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
trainer = make_trainer(run, policy, tokenizer, train_set, functions, weights)
with stop_on_interrupt(trainer):
    trainer.train()

# %% [markdown]
# After it. We keep the greedy answers, because the merged model will have to reproduce them.

# %%
after = evaluate(policy, tokenizer, heldout, sample=True, **how)
after_greedy = evaluate(policy, tokenizer, heldout, **how)
p_value = paired_p_value(before.strict, after.strict)
print(f"after: {mean(after.strict):.1%} strict, sampled (p = {p_value:.1g})")
print(f"       {mean(after_greedy.strict):.1%} strict, greedy")

# %% [markdown]
# ## The adapter's folder
#
# `save_adapter` calls PEFT's `save_pretrained` and adds the tokenizer and `base.json`. That file has a hash of the
# base's weights, because the config names the base only by path or hub id, and what lies there may change.

# %%
import json

from grpo_workbook import save_adapter

folder = run.output / "chapter_09"
save_adapter(policy, tokenizer, folder / "adapter")
for path in sorted((folder / "adapter").iterdir()):
    print(f"{path.stat().st_size:9,} bytes  {path.name}")
config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
print({key: config[key] for key in ("peft_type", "r", "lora_alpha")})
print(sorted(config["target_modules"]))
print(json.loads((folder / "adapter" / "base.json").read_text()))

# %% [markdown]
# ## The merge
#
# Load the base again, unquantized, with the adapter on it. Then Unsloth writes the two as one model.

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
# The result is an ordinary model, which needs neither Unsloth nor PEFT:

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
# That a merged model loads and answers well proves nothing. So base-plus-adapter and the merged model read the same
# prompts and answers, and we compare their logits at every position of an answer:
#
# - the *relative difference*: its root mean square, divided by the standard deviation of the logits at a position;
# - the fraction of positions where both would write the *same token*.
#
# Unsloth saves float16 or, where the processor has it, bfloat16, with 11 or 8 significant bits: rounding makes some
# ten-thousandths or some thousandths. `merge` below always writes bfloat16, so its difference is about ten times that
# of float16.

# %%
from grpo_workbook import export
from grpo_workbook.export import compare_logits

prompts = list(heldout["prompt"])


def prove(reference, candidate):
    texts = after_greedy.completions
    return compare_logits(reference, candidate, tokenizer, prompts, texts)


proof = prove(unmerged, model)
print(proof)
print(f"accepted up to {export.RELATIVE:.0%} difference, from {export.SAME_TOKENS:.0%}"
      " same tokens:", export.is_proved(proof))

# %% [markdown]
# ## Three merges that are wrong
#
# Why compare logits, and not simply count right answers? Because wrong merges can answer well. Three that happen:
# `alpha / r` is left out (here it is 2, so the update is half as large); the adapter is added twice; or PEFT's
# `merge_and_unload` is called on the 4-bit model, which only warns.

# %%
import warnings

from grpo_workbook import load_model
from peft.tuners.lora import LoraLayer


def with_adapter(load_in_4bit=False):
    where = {"dtype": run.dtype, "device": run.device, "load_in_4bit": load_in_4bit}
    return load_model(run.model, folder / "adapter", **where)[0]


def merge_scaled(factor, load_in_4bit=False):
    """The merge with `factor` times the right alpha / r."""
    wrong = with_adapter(load_in_4bit)
    for module in wrong.modules():
        if isinstance(module, LoraLayer):  # its scaling: {adapter: alpha / r}
            module.scaling = {k: factor * v for k, v in module.scaling.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrong = wrong.merge_and_unload()
    print(*{str(w.message) for w in caught if "Merge lora" in str(w.message)}, end="")
    return wrong

# %% [markdown]
# We make each merge, compare its logits, and let it answer the held-out problems, greedily and sampled. (The last one
# prints PEFT's warning.)

# %%
from dataclasses import asdict

from grpo_workbook import compare

MERGES = {
    "right": lambda: model,
    "alpha / r left out": lambda: merge_scaled(config["r"] / config["lora_alpha"]),
    "added twice": lambda: merge_scaled(2),
    "into 4-bit weights": lambda: merge_scaled(1, load_in_4bit=True),
}
found = {}
for name, make in MERGES.items():
    candidate = make()
    numbers = prove(unmerged, candidate)
    greedy = evaluate(candidate, tokenizer, heldout, **how)
    numbers["heldout"] = asdict(compare(after_greedy, greedy))
    sampled = evaluate(candidate, tokenizer, heldout, sample=True, **how)
    found[name] = numbers | {
        "sampled": mean(sampled.strict),
        "proved": export.is_proved(numbers),
    }
in_4bit = candidate  # the last one, for later

# %% [markdown]
# The numbers. The first two columns are the proof's:

# %%
print(f"{'':20} logits differ   same token   strict, greedy   sampled   proof")
for name, n in found.items():
    print(
        f"{name:20} {n['relative_logit_difference']:13.1%}"
        f" {n['same_greedy_tokens']:12.2%} {n['heldout']['strict']['after']:16.1%}"
        f" {n['sampled']:9.1%}   {'accepted' if n['proved'] else 'refused'}"
    )

# %% [markdown]
# Read the lines "alpha / r left out" and "into 4-bit weights". Hardly a token changes and greedy accuracy does not
# fall, yet each is a different policy: its logits are off by a quarter of their spread or more. Greedy accuracy would
# have passed both merges; the logits refuse them. With sampling both get fewer answers right, but with 120 problems the
# loss without alpha / r could still be chance.

# %% [markdown]
# ## Three routes to a merged model
#
# The proof compares with the adapter on the *16-bit* base. But the policy was trained on the *4-bit* base, which is a
# different model: its rounding errors were there while the adapter learned. There are three routes from the trained
# policy to one set of weights. How far from that policy does each one end?

# %%
from peft import PeftModel

del unmerged, candidate  # free memory
trained = with_adapter(load_in_4bit=True)
unpacked, _ = load_model(
    run.model, dtype=run.dtype, device=run.device, load_in_4bit=True
)
unpacked = PeftModel.from_pretrained(unpacked.dequantize(), folder / "adapter")
unpacked = unpacked.merge_and_unload()
routes = {}
merged = {"4-bit": in_4bit, "16-bit": model, "unpacked": unpacked}
for name, candidate in merged.items():
    strict = mean(evaluate(candidate, tokenizer, heldout, **how).strict)
    far = prove(trained, candidate)["relative_logit_difference"]
    routes[name] = f"logits off by {far:.1%}\nstrict, greedy {strict:.1%}"
low, high = wilson_interval(after_greedy.strict)

# %% [markdown]
# Drawn with the measured errors:

# %% tags=["hide-input"]
boxes = {
    "policy": (0.16, 0.5, "trained policy\n4-bit weights,\nadapter beside them\n"
               f"strict, greedy {mean(after_greedy.strict):.1%}\n"
               f"({low:.1%} to {high:.1%})", pale["model"]),
    "4-bit": (0.84, 0.84, "merged, 4-bit\n" + routes["4-bit"], pale["number"]),
    "16-bit": (0.84, 0.5, "merged, 16-bit\n" + routes["16-bit"], pale["check"]),
    "unpacked": (0.84, 0.16, "merged, unpacked\n" + routes["unpacked"], pale["check"]),
}
arrows = [
    ("policy", "4-bit", "add, round to 4 bits again"),
    ("policy", "16-bit", "add to the original 16-bit weights"),
    ("policy", "unpacked", "unpack to 16 bits, add"),
]
figure = figures.diagram(boxes, arrows, (9.0, 3.8))
figure.suptitle("Rounding again loses most; the unpacked base is nearest to training")
ends = "; ".join(f"{k}: {v}".replace("\n", ", ") for k, v in routes.items())
figures.show(figure, f"Arrows from the trained policy to three merged models. {ends}.")

# %% [markdown]
# The unpacked base stays closest to what was trained, and keeps the 4-bit rounding errors for good. The original 16-bit
# base gives a model that was never trained as such. Both are legitimate: the held-out score of what you ship decides.
# Here the three greedy scores differ by a problem or two, so they rank nothing.

# %% [markdown]
# ## The same in one call
#
# `merge` checks the base by its hash, merges, proves by logits and held-out answers, and writes a card. The folder
# appears only when the proof holds. A merge that gives another model is refused, and the error message has the numbers.
# `heldout` compares the policy (before) with the merged model (after).

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
# In a terminal: `python -m grpo_workbook merge outputs/run/adapter --output outputs/merged`.
#
# It also refuses a fourth kind of wrong merge. Many small models, this one too, use one matrix for the embeddings and
# the output layer (*tied embeddings*). An adapter on only one of the two changes both once it is merged.

# %% [markdown]
# ## Generating with plain Transformers
#
# The `pipeline` takes a chat and returns it with one more turn. Give it the system prompt of training, because the
# model learned with it (exercise 09.3 measures what happens without).

# %%
from transformers import pipeline

chat, options = prompts[0], config.CHAT_TEMPLATE_KWARGS
ask = pipeline("text-generation", model=model, tokenizer=tokenizer)
greedy = {"do_sample": False, "max_new_tokens": run.max_completion_length}
result = ask(chat, tokenizer_encode_kwargs=options, **greedy)
for turn in result[0]["generated_text"]:
    print(f"[{turn['role']}] {turn['content']}")

# %% [markdown]
# ### A batch
#
# A batch is a rectangle, so short prompts are filled up with padding. For generation the padding goes on the **left**:
# the model continues where the row ends, and that must be the end of its prompt. 60 prompts, padded either way, with
# the score of all answers and the text of the second:

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
# Padding on the right raises no error and no warning, but the answers are worthless. A batch needs two more things: the
# attention mask, without which padding is read as text, and `add_special_tokens=False`, because the chat template has
# added them already. `grpo_workbook.generate` does all three. (To stream, call `model.generate` in a thread, with a
# `TextIteratorStreamer`.)

# %% [markdown]
# ## Sampling settings
#
# A token is sampled from the model's distribution. Each setting changes that distribution first, in this order:
#
# - **repetition_penalty** makes tokens less likely that were already written (the prompt counts), here "12".
# - **temperature** divides the logits: below 1 sharper, above 1 flatter. It cuts nothing off.
# - **top_k** keeps the k likeliest tokens, however the rest is distributed.
# - **top_p** keeps the likeliest until they add up to p, including the one that crosses p.
# - **min_p** keeps tokens with at least that fraction of the top token's probability: few where the model is sure, many
#   where it is not.

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
written = torch.tensor([[0]])  # "12" is already in the text
hot = TemperatureLogitsWarper(2.0)
WARPERS = {
    "unchanged": [],
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
        y="probability of the next token",
        title="Temperature and penalty reshape; top_k, top_p, min_p cut off (crosses)",
        finding="Temperature and penalty reshape, the rest cut the tail off.",
    )
)

# %% [markdown]
# Look at "cat": temperature 2 raises it from 0.4 % to 3 % *per token*. In an answer of 25 tokens one such slip is more
# likely than not, so a high temperature needs a cut.

# %% [markdown]
# ### Measured on the model
#
# 30 problems, eight answers each. *Strict*: rate of right and well-formed answers. *maj@8*: rate of problems whose most
# common answer is right (chapter 08). *Distinct*: different texts among the eight, divided by eight.

# %%
from grpo_workbook.rewards import answers as reading
from grpo_workbook.statistics import majority_at_k

few, K = heldout.select(range(30)), 8
temperatures = [0.5, 1.0, 1.3, 1.6, 2.0]
measured = {"strict": [], "maj@8": [], "distinct": []}
for heat in temperatures:
    way = {"samples": K, "sample": True, "temperature": heat}
    scores = evaluate(model, tokenizer, few, **way, **how)
    said = [scores.completions[i : i + K] for i in range(0, K * len(few), K)]
    votes = [[reading.read_answer(reading.lenient_answer(t) or "") for t in group]
             for group in said]
    voted = [majority_at_k(v, float(g), K) for v, g in zip(votes, few["answer"])]
    measured["strict"].append(mean(scores.strict))
    measured["maj@8"].append(mean(voted))
    measured["distinct"].append(mean(len(set(group)) for group in said) / K)
at_high = ", ".join(f"{name} {ys[3]:.0%}" for name, ys in measured.items())
figures.show(
    *figures.line_chart(
        {name: (temperatures, ys) for name, ys in measured.items()},
        x="temperature",
        y="rate",
        title="Accuracy falls as variety grows, and the vote holds out longer",
        finding=f"At temperature 1.6: {at_high}.",
    )
)

# %% [markdown]
# At low temperatures the eight answers are nearly always the same, so a vote adds nothing. At high ones the single
# answer suffers first, then the vote. For one answer, go low. For voting or for training samples, take as much variety
# as accuracy allows.
#
# In training, cut nothing (`top_k=0`, `top_p=1`, no penalty): TRL computes a token's probability over all tokens, with
# the temperature but without a cut. And arithmetic *has* to repeat its numbers, so a repetition penalty does harm.

# %% [markdown]
# ## Serving
#
# `transformers serve` answers over HTTP in OpenAI's format. On a GPU use vLLM, which is built for many users at once
# and speaks the same format:
#
# ```bash
# transformers serve outputs/run/merged --host 127.0.0.1 --port 8000
# vllm serve outputs/run/merged --host 127.0.0.1 --port 8000 --max-model-len 1024
# ```
#
# Keep `127.0.0.1`: with `0.0.0.0` anyone on the network could ask, without a password. The cell starts the first
# command on a free port, offline, and waits until it answers:

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
print("the server answers")

# %% [markdown]
# Ask it with the `openai` client, whole and as a stream. The model's name is the folder. The chat template's switch (no
# thinking) is sent too, because the prompt must be that of training.

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
# To talk to it in a terminal: `transformers chat outputs/run/merged http://127.0.0.1:8000 do_sample=False`, with
# `--system-prompt` and the prompt of training. No cell runs it, because it waits for you to type, and it renders answers
# as Markdown, which hides tags such as `<answer>` and their text. With `HF_HUB_OFFLINE` set it refuses even a server on
# this machine. vLLM needs a GPU, so no cell runs it either.
#
# Stop the server, and check that the port is closed:

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
# Quantize once, at the end, and measure. The merged model in NF4 through plain Transformers, beside its 16-bit form:

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
# The embeddings stay in 16 bits, so memory falls to about a third, not a quarter.
#
# NF4 needs no *calibration* (examples that decide the rounding) and quantizes while loading. **GGUF** is the format of
# llama.cpp and Ollama, for CPUs and laptops. **AWQ** (4-bit, calibrated) and **FP8** are for servers such as vLLM.
# Whatever you choose, measure the held-out score of the file that you ship.

# %% [markdown]
# ## One file for llama.cpp
#
# llama.cpp's own converter writes GGUF. Not executed here, because llama.cpp must be downloaded and compiled first:
#
# ```bash
# git clone --depth 1 https://github.com/ggml-org/llama.cpp
# cmake -S llama.cpp -B llama.cpp/build && cmake --build llama.cpp/build --target llama-cli
# python llama.cpp/convert_hf_to_gguf.py outputs/run/merged --outfile model.gguf --outtype f16
# llama.cpp/build/bin/llama-cli -m model.gguf
# ```
#
# Two things to check for a model of your own. The converter recognises the *pre-tokenizer* (how text is split) by a
# hash and refuses an unknown one; do not name a similar one instead, because the model would read other tokens than in
# training. And llama.cpp assumes that every sixth layer of a Gemma 3 is global: a model with another pattern, such as
# the course's tiny one, loads and answers wrongly. `make test-gguf` handles both for the tiny models and compares the
# answers with those of Transformers ([measured](../docs/measurements.md)).

# %% [markdown]
# ## Appendix: the card and the upload
#
# A card states what the model is, what was measured, and the prompt it was trained with. `make run` writes one with all
# numbers of the run. This one is from `merge`:

# %%
card = (folder / "merged_by_call" / "README.md").read_text()
print(card.split("---\n", 2)[2].split("## How to load it")[0].strip())

# %% [markdown]
# Upload from a terminal after `hf auth login`, not from a notebook, whose outputs would keep the login. Send no pickled
# file (`.bin`, `.pt`), because a pickle can run code where it is loaded. No cell runs this, because it needs your
# login:
#
# ```bash
# hf upload me/my-model outputs/run/merged . --private
# ```

# %% [markdown] tags=["remove-cell"]
# This cell serves the machine that runs the notebook on every change. It fails when training did not happen or did not
# help, when the merge is another policy, or when a wrong one was accepted.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
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
if run.profile == "smoke":
    learned = proved["after"] > proved["before"] + 0.3 and p_value < 1e-6
    assert learned, "the model did not learn"
    assert [n["proved"] for n in found.values()] == [True, False, False, False]
    assert served["4-bit NF4"] > served["16-bit"] - 0.1
    assert proved["padding"]["left"] > proved["padding"]["right"] + 0.5

# %% [markdown]
# ## Exercises
#
# Fill in a cell and run it: it checks itself. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 09.1 · `sampling_chances` · medium · 10 minutes
#
# Return the probability of each token from the logits, with temperature and then top_p: keep the likeliest tokens until
# they add up to at least `top_p`, give the rest 0.0, and scale what is kept to add up to 1.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def sampling_chances(
    logits: list[float], temperature: float, top_p: float
) -> list[float]:
    raise NotImplementedError


check("09.1", sampling_chances);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Temperature, softmax, cut, divide by the sum: in this order. For the cut go through the tokens from the likeliest on,
# and stop *after* the one with which the sum reaches `top_p`.
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
# ### Exercise 09.2 · `left_pad` · easy · 8 minutes
#
# Make a batch of prompts, each a list of token ids, padded on the left with the id `pad`. Return `(ids, attention_mask,
# positions)`, each a list of rows of equal width. The mask is 1 at the prompt's tokens and 0 at padding. Positions
# count from 0 at each prompt's first token, and are 0 at padding.

# %% tags=["exercise"]
def left_pad(
    rows: list[list[int]], pad: int
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    raise NotImplementedError


check("09.2", left_pad);

# %% [markdown]
# <details><summary>Hint</summary>
#
# A row gets `width - len(row)` padding tokens in front. A prompt may itself hold the id `pad`, so count tokens; do not
# compare ids.
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
# ### Exercise 09.3 · `other_prompt` · medium · 8 minutes
#
# An experiment. Training and serving used the same system prompt. Leave it out when you ask: does *strict*, greedy,
# fall, stay or rise? (*Stays*: the paired test of chapter 08 shows no change at 0.05.) Predict, then run. Afterwards
# try a prompt of your own words, and a temperature of 1.

# %% tags=["exercise"]
from grpo_workbook import statistics
from grpo_workbook.exercises import predict

prediction = ...  # "falls", "stays" or "rises"


def other_prompt(system_prompt="") -> dict:
    """The same problems with the prompt of training and with another: change it."""
    strict = []
    for dataset in (heldout, to_dataset(rows, system_prompt)):
        strict.append(evaluate(model, tokenizer, dataset, **how).strict)
        print(f"{mean(strict[-1]):.1%} strict")
    better, worse = statistics.changed(*strict)
    return {"better": len(better), "worse": len(worse), "problems": len(rows)}


predict("09.3", prediction, other_prompt);

# %% [markdown]
# <details><summary>Hint</summary>
#
# The rewards saw only completions that followed this prompt. Is the form bound to the prompt, or to the turn of the
# assistant?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "falls"
# ```
#
# The weights were trained on texts that all begin with that prompt. Store it with the model: the card does.
#
# </details>

# %% [markdown]
# ### Exercise 09.4 · `fewer_bits` · medium · 15 minutes
#
# Your own adapter. Set `ADAPTER` and `BASE` (for example `outputs/run/adapter` of chapter 04 or a run on your GPU) and
# `DATA`. The cell merges with a proof, quantizes the merged model to 4 bits and compares both on the same problems.
# Does *strict*, greedy, fall, stay or rise from 16 to 4 bits?

# %% tags=["exercise"]
prediction = ...  # "falls", "stays" or "rises"


def fewer_bits() -> dict:
    """Merge an adapter of yours, quantize it, and measure what the quantizing costs."""
    ADAPTER, BASE = folder / "adapter", run.model  # yours
    DATA = data.WORD_PROBLEMS["heldout"]  # yours
    merge(BASE, ADAPTER, folder / "mine")
    problems = load_problems(DATA).select(range(run.heldout))
    strict = []
    for bits in (16, 4):
        where = {"dtype": run.dtype, "device": run.device, "load_in_4bit": bits == 4}
        mine, words = load_model(folder / "mine", **where)
        strict.append(evaluate(mine, words, to_dataset(problems), **how).strict)
        print(f"{bits:2} bits: {mean(strict[-1]):.1%} strict")
    better, worse = statistics.changed(*strict)
    return {"better": len(better), "worse": len(worse), "problems": len(problems)}


predict("09.4", prediction, fewer_bits);

# %% [markdown]
# <details><summary>Hint</summary>
#
# This chapter's adapter was trained on a 4-bit base. How many of 120 answers would have to change before the paired
# test notices?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "stays"
# ```
#
# "Stays" means that no loss was shown, not that there is none: six problems worse and none better would be the first
# result with p below 0.05. If a smaller loss matters to you, measure on more problems.
#
# </details>

# %% [markdown]
# ## Summary
#
# - Merge into 16-bit weights, and prove the merge by its logits: a wrong merge can answer as well as the right one.
# - The merged model is not quite the policy that was trained. Measure what you ship.
# - Generate with left padding, an attention mask, and the system prompt of training.
# - Choose sampling settings by measurement, and train without cuts.
# - Serve on loopback, and quantize once, at the end.
#
# Next: [10 · Scale out](10_scale_out.ipynb) says what a run takes in memory and time, and what more GPUs bring.
