# %% [markdown]
# # 10 · Scale out
#
# Does this model fit on my GPU, and what will be slow? If you find out by trying, you pay for it: a run that does not
# fit can train for a while and stop when the first long completions come, and a run whose step takes a minute needs
# more than four hours for 250 steps. This chapter answers both questions before a run starts, for Qwen3-4B on a GPU of
# 16 GB. The answers decide which model you train and with which settings.
#
# **After this notebook you can** compute how much memory a run needs and choose what to change if it does not fit;
# measure where the time of a step goes; move a run to several GPUs without changing its step, and sample with vLLM and
# know what that changes. What does not belong to these questions stands under "For the curious" and "For reference".
#
# **Time:** about 2 minutes on two CPU cores. Reading takes about 40 minutes. **You need** chapter 04. All measurements
# here are of the tiny model on a CPU. The numbers for large models are computed from formulas; a section below checks
# three of them (weights, activations, KV cache) on the tiny model. Nothing in this chapter was measured on a GPU.

# %% [markdown]
# First the set-up. Unsloth must be imported before TRL and Transformers, because it changes parts of both.

# %%
import os

import numpy as np
from grpo_workbook import choose_profile, figures, quiet, use_one_thread

quiet()  # fewer warnings of the libraries
use_one_thread()  # for a tiny model several threads only wait for each other
profile = choose_profile("smoke")
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
import unsloth

# %% [markdown]
# ## Does it fit?
#
# A T4 is the smallest GPU for which this course has settings. It has 16 GB, of which PyTorch sees 14.7 GiB. (A GiB is
# 1024³ bytes, a MiB 1024².) `plan` computes the memory of a run, part by part. It starts from a profile's settings,
# here those for the T4:

# %%
from grpo_workbook.planning import plan

print(plan("Qwen/Qwen3-4B", "t4"))

# %% [markdown]
# It fits. In the output, *always* is the memory that is needed all the time, *sampling* is added while completions are
# written, and *learning* is added during the update. The *reserve* is an assumed gibibyte for CUDA and its libraries.
# *Usable* is what PyTorch sees, less an assumed 8 % that is lost between its blocks of memory. The other parts are
# explained in the next section.
#
# Now suppose that you want the base model in 16 bits, twice as many completions in a step, and no gradient
# checkpointing. That does not fit, so `plan` lists what to change, and it begins with the cheapest change:

# %%
wish = plan(
    "Qwen/Qwen3-4B", "t4", load_in_4bit=False, gradient_checkpointing=False,
    gradient_accumulation_steps=8,
)
text = str(wish)
print(text[text.index("in all") :])

# %% [markdown]
# Smaller pieces (`per_device_train_batch_size`) give the same gradient, added up in more parts. They cost some time,
# because a GPU computes large pieces more efficiently, and, with the course's loss (`dapo`), they leave the training as
# it is. (Exercise 10.3 tests another loss.) With one completion at a time the activations are so small that
# checkpointing need not be switched on.
#
# The last change halves what is *sampled at once*: with `steps_per_generation=32` TRL samples the 64 completions in two
# rounds of 32, and the weights change only after both. So the step stays the same (each round is averaged over its own
# tokens, which is a small difference), and the price is time: a round of 32 takes more than half as long as one of 64.
#
# `plan` is also a command, for any model and memory. This is a GPU of 12 GB, of which PyTorch sees about 11.6 GiB:
#
# ```bash
# python -m grpo_workbook plan --model Qwen/Qwen3-4B --memory 11.6 --gradient-accumulation-steps 8
# ```

# %% [markdown]
# ## What the plan adds up
#
# | part | grows with | what makes it smaller |
# | --- | --- | --- |
# | weights | the model | 4 bits (NF4): half a byte for each weight, and a little for the scales. Embeddings and norms stay in 16 bits |
# | LoRA adapters, their gradients, the optimizer's two moments | the rank | a smaller rank, or moments of 8 bits (`optim="adamw_8bit"`). Each adapter weight takes 16 bytes, four numbers of 32 bits; full training takes 16 bytes for each weight of the model |
# | KV cache | the tokens of all completions that are *sampled at once*, by default those of a step | sampling a step in several rounds (`steps_per_generation` below `gradient_accumulation_steps`), shorter completions |
# | prompts, one layer's cache copied | the prompts of all completions, read at once; the cache grows by copying | several rounds, shorter prompts |
# | activations | the tokens that the model reads *at once* | gradient checkpointing, smaller pieces |
# | logits | the tokens at once, times the vocabulary | smaller pieces; Unsloth and TRL also compute them in pieces |
#
# The **moments** are AdamW's two running averages for each weight that learns. The **KV cache** stores a key and a
# value of every token in every layer while a text is generated. The **activations** are what the forward pass keeps for
# the backward pass. **Gradient checkpointing** keeps only each layer's input and computes the layer again during the
# backward pass, so it trades time for memory. (Unsloth's own form also moves these inputs to the memory of the CPU.
# `plan` counts them on the GPU, so its peak of the update is on the safe side.) The **logits** are one score for each
# word of the vocabulary, at every token.
#
# Sampling and the update come one after the other, so only the larger of their two peaks counts. In the next figure the
# run samples 32 completions at once and learns from 8 at a time. First take the parts of both phases from the plan:

# %% tags=["hide-input"]
from grpo_workbook.planning import GIB

t4 = plan("Qwen/Qwen3-4B", "t4")
always = sum(t4.parts["always"].values()) / GIB
full, copied, prompts, token = np.array(list(t4.parts["sampling"].values())) / GIB
read = always + 384 / 896 * full  # the cache of the prompts, which are read first
sampled = always + full + copied + token
inputs, layer, logits = np.array(list(t4.parts["learning"].values())) / GIB
update = always + inputs + layer + logits
usable = t4.usable / GIB

# %% [markdown]
# In the figure the height is the memory; the widths are not to scale.

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 3.6)
axes.fill_between([0, 11.6], always, color="#CCCCCC")
rising = [read + prompts, read + prompts, read, sampled]  # then token by token
axes.fill_between([0.3, 0.6, 0.65, 6], always, rising, color=figures.BLUE)
forward = always + inputs
heights = [always, forward, update, forward + layer, always]  # forward, turn, backward
for start in (7, 8.1, 9.2, 10.3):
    times = start + np.array([0, 0.4, 0.45, 0.55, 1])
    axes.fill_between(times, always, heights, color=figures.ORANGE)
axes.axhline(usable, color="black", linestyle="--", lw=1)
axes.text(2, always / 2, "weights, adapters, gradients, moments, reserve")
axes.text(3.2, always + 0.9, "prompts and KV cache", ha="center", color="white")
axes.text(9.2, update + 0.5, "activations and logits\nof 8 completions, 4 times",
          ha="center")
axes.text(5.8, usable - 0.9, f"a T4 can use {usable:.1f} GiB", ha="center")
axes.set_xticks([3.1, 9.2], ["sampling", "update"])
axes.set(ylabel="GiB", ylim=(0, 14.5))
axes.set_title("One step of Qwen3-4B on a T4: the higher peak decides", loc="left")
figures.show(figure, f"Memory in one step of Qwen3-4B. Floor: {always:.1f} GiB. "
             f"Reading the prompts takes {read + prompts:.1f}; then it falls to "
             f"{read:.1f}, and the KV cache takes it to {sampled:.1f}. The update has "
             f"four teeth of {update:.1f}.")

# %% [markdown]
# Grey is the memory that is always needed. Blue is sampling. The prompts are read first, which takes working memory
# (the "prompts" of the table): the small step at the left, 6.7 GiB. When it is free again, 6.1 GiB are left, because
# 384 of the 896 tokens are already in the KV cache. From there the cache grows with every token, to 8.5 GiB. `plan`
# says 9.1, because it adds the prompts' working memory to the full cache. That is cautious: the two are not needed at
# the same time, but PyTorch may not be able to use all of the freed memory again. Each orange tooth is one piece of the
# update: the memory rises through the forward pass, jumps at the turn, and falls while the backward pass gives the
# layers' memory back. The jump is that of the logits and of one layer that is computed again. Both peaks stay below the
# dashed line, so the run fits.
#
# Now compute both peaks for other settings, most of which change one part:

# %%
settings = {
    "T4 settings": {},
    "16-bit base": {"load_in_4bit": False},
    "16-bit base, rounds of 16": {"load_in_4bit": False, "steps_per_generation": 2},
    "64 completions in a step": {"gradient_accumulation_steps": 8},
    "64, in two rounds of 32": {
        "gradient_accumulation_steps": 8, "steps_per_generation": 4},
    "completions of 1,024 tokens": {"max_completion_length": 1024},
    "no checkpointing": {"gradient_checkpointing": False},
    "no checkpointing, 1 at a time": {
        "gradient_checkpointing": False, "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 32},
}
peaks = {}  # GiB always, while sampling, while learning
for name, values in settings.items():
    parts = plan("Qwen/Qwen3-4B", "t4", **values).parts
    always = sum(parts["always"].values())
    sampling = always + sum(parts["sampling"].values())
    learning = always + sum(parts["learning"].values())
    peaks[name] = (always / GIB, sampling / GIB, learning / GIB)

# %% [markdown]
# In the next figure, the upper bar of each pair is the peak of sampling, the lower one that of the update. The grey
# part of both is the memory that is always needed. A setting fits if both bars end before the dashed line. The numbers
# are the lengths of the bars. (The axis ends at 20 GiB, and a longer bar is cut off there.)

# %% tags=["hide-input"]
table = np.array(list(peaks.values()))
floors, sampling, learning = table.T
places = np.arange(len(peaks))
figure, (axes,) = figures.new_panels(8.5, 4.6)
bars = {"sampling": (sampling, -0.2, figures.BLUE, ""),
        "update": (learning, 0.2, figures.ORANGE, "//")}
for label, (heights, shift, colour, hatch) in bars.items():
    added = heights - floors
    axes.barh(places + shift, floors, 0.36, color="#CCCCCC")
    axes.barh(places + shift, added, 0.36, left=floors, color=colour, hatch=hatch,
              edgecolor="white", label=label)
    for place, height in zip(places + shift, heights):
        note = f"{height:.1f}"
        if height > usable:
            note += ": too much"
        axes.text(0.2, place, note, va="center", fontsize=9)
axes.axvline(usable, color="black", linestyle="--", lw=1, zorder=0)
axes.set(yticks=places, yticklabels=list(peaks), xlabel="GiB", xlim=(0, 20))
axes.invert_yaxis()
axes.grid(False)
axes.set_title(f"Peaks of Qwen3-4B; dashed: what a T4 can use, {usable:.1f} GiB",
               loc="left")
figure.legend(loc="outside lower center", ncols=2, frameon=False)
pairs = []
for name, (_, first, second) in peaks.items():
    pairs.append(f"{name}: {first:.1f} and {second:.1f}")
figures.show(figure, f"Bars of the memory of Qwen3-4B in GiB, while sampling and "
             f"during the update. {'; '.join(pairs)}. A T4 can use {usable:.1f}.")

# %% [markdown]
# 4 bits shrink the weights, checkpointing shrinks the activations, and the KV cache shrinks with completions that are
# shorter or sampled in rounds. Long completions cost memory in both phases. They also cost time, because their tokens
# are written one after the other. (`plan` counts the prompt once for each completion, because `generate` of
# Transformers stores it so. vLLM stores a prompt once for all completions of its group.)
#
# Do not trust a verdict close to the line: the reserve and the usable share are assumed, and no peak was measured on a
# GPU. A run of 13.0 GiB may not fit into the 13.5, and one of 13.7 may: without the prompts' working memory, which is
# free again by then, 64 completions in a step take 12.6 GiB. The T4 settings (9.1) leave 4.4 GiB.
#
# By the third pair a 16-bit base fits, too, if the step is sampled in rounds of 16 and checkpointing stays on: 13.0
# GiB, close to the line. Its weights need no unpacking. In the first section `plan` proposed 4 bits all the same,
# because it does not try all combinations: it takes one change after the other, the cheapest first.

# %% [markdown]
# ## For the curious: the formulas, measured
#
# Does `plan` compute correctly? The tiny model is small enough to measure each part. Unfold a cell to see how. First
# the weights: the bytes that were measured, beside the bytes that the formula gives. (The formula includes the scales
# of NF4, which `parameters()` leaves out. So in 4 bits the computed number is a little larger.)

# %% tags=["hide-input"]
from grpo_workbook import load_model
from grpo_workbook.planning import find_shape, weight_bytes

shape = find_shape(profile.model)  # on PyTorch's meta device: sizes without numbers
for load_in_4bit in (False, True):
    model, tokenizer = load_model(
        profile.model, dtype="bfloat16", device=profile.device,
        load_in_4bit=load_in_4bit,
    )
    measured_bytes = sum(weight.nbytes for weight in model.parameters())
    computed_bytes = weight_bytes(shape, "bfloat16", load_in_4bit)
    print(f"4-bit: {load_in_4bit!s:6}{measured_bytes:>12,}", end="; ")
    print(f"computed {computed_bytes:,.0f}")

# %% [markdown]
# For the activations, PyTorch can report what it keeps for the backward pass:

# %% tags=["hide-input"]
import torch


def kept_bytes(model, ids):
    """Bytes that autograd keeps of a forward pass, weights not counted."""
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    sizes = {}  # address -> bytes
    alive = []  # or an address would be used again

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    def unpack(tensor):
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        model.base_model.model.model(input_ids=ids, use_cache=False)
    return sum(sizes.values())

# %% [markdown]
# Run 16 texts of 160 tokens forward and backward, first without checkpointing, then with it:

# %% tags=["hide-input"]
import time

from grpo_workbook.planning import activation_bytes
from peft import LoraConfig, get_peft_model

model, tokenizer = load_model(profile.model, device=profile.device)
lora = LoraConfig(r=16, target_modules=profile.lora["target_modules"])
model = get_peft_model(model, lora).train()
model.enable_input_require_grads()
ids = torch.randint(5, 200, (16, 160), device=profile.device)
model(input_ids=ids, labels=ids).loss.backward()  # once, to warm up
kept = {}  # checkpointing -> (measured bytes, computed bytes)
seconds = {}
for checkpointing in (False, True):
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    began = time.perf_counter()
    for _ in range(3):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    seconds[checkpointing] = (time.perf_counter() - began) / 3
    sizes = activation_bytes(shape, 16 * 160, 16, 4, checkpointing)
    computed_bytes = next(iter(sizes.values()))  # the second part is computed again
    measured_bytes = kept_bytes(model, ids)
    kept[checkpointing] = (measured_bytes, computed_bytes)
    measured_mib = measured_bytes / 2**20
    computed_mib = computed_bytes / 2**20
    print(f"checkpointing {checkpointing!s:6}", end="")
    print(f"{measured_mib:5.1f} MiB kept, computed {computed_mib:5.1f}")
print(f"time of forward and backward times {seconds[True] / seconds[False]:.2f}")

# %% [markdown]
# With checkpointing the formula gives a fifth too little memory here. The missing 1.3 MiB are about one layer's input
# (2,560 tokens x 128 numbers x 4 bytes = 1.25 MiB): the last norm keeps its input, too, and the formula does not count
# it. Beside the 4 layers of the tiny model that is much; beside the 36 of Qwen3-4B it is 3 %, or 0.03 GiB. In passes as
# short as these the factor is mostly noise: two runs on the same machine gave 1.14 and 1.81. For large models, count
# the work instead. In full fine-tuning a step costs one unit for the forward pass and two for the backward pass (the
# gradients of the activations and of the weights). Checkpointing adds a second forward pass, so three units become
# four: a factor of 1.33. With LoRA the base needs no gradients of its weights, so two units become three: a factor of
# 1.5. Sampling costs the same as before, so a whole step slows down by less.
#
# The last part is the KV cache, here of 8 texts with 40 tokens of prompt and 60 of completion. The model never reads
# the last token that it writes, so the cache contains 99 tokens of each text.

# %% tags=["hide-input"]
from grpo_workbook.planning import kv_cache_bytes

plain = model.unload().eval()
prompts = torch.randint(5, 200, (8, 40), device=profile.device)
output = plain.generate(
    prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=60,
    min_new_tokens=60, do_sample=False, use_cache=True, return_dict_in_generate=True,
    pad_token_id=tokenizer.pad_token_id,
)
cache_measured = 0
for layer in output.past_key_values.layers:
    cache_measured += layer.keys.nbytes + layer.values.nbytes
cache_computed = kv_cache_bytes(shape, 8, 99, "float32")
print(f"measured {cache_measured:,} bytes, computed {cache_computed:,}")

# %% [markdown]
# ## What is slow?
#
# Before you make something faster, measure where the time goes. A step of GRPO has five parts: the policy samples the
# completions, the reward functions score them, the model runs forward and backward over them, and the optimizer changes
# the adapters. Each part is a method of TRL's trainer or an event of its callbacks, so a few lines can record when it
# begins and when it ends:

# %%
from transformers import TrainerCallback

spans = []  # (part, when it began, when it ended), in seconds


def now():
    if profile.device == "cuda":
        torch.cuda.synchronize()  # wait until the GPU has done its work
    return time.perf_counter()


def timed(part, call):
    """The same call, which also notes its span."""

    def call_and_note(*args, **kwargs):
        began = now()
        result = call(*args, **kwargs)
        spans.append((part, began, now()))
        return result

    return call_and_note


class OptimizerSpan(TrainerCallback):
    def on_pre_optimizer_step(self, *args, **kwargs):
        self.began = now()

    def on_optimizer_step(self, *args, **kwargs):
        spans.append(("optimizer", self.began, now()))

# %% [markdown]
# Train for two steps, with the update in four pieces (accumulation steps). The first step is a warm-up and is not
# shown.

# %%
from grpo_workbook import (
    Float32Adapters, correctness_reward, data, load_policy, load_problems,
    strict_format_reward, to_dataset,
)
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

problems = load_problems(data.WORD_PROBLEMS["train"]).select(range(64))
train_set = to_dataset(problems)
policy, tokenizer = load_policy(profile)
changes = {"max_steps": 2, "save_strategy": "no", "per_device_train_batch_size": 16,
           "gradient_accumulation_steps": 4}
settings = {**profile.grpo, **changes}
args = GRPOConfig(str(profile.output / "step"), reward_weights=[2.0, 0.5], **settings)
trainer = GRPOTrainer(
    policy, [correctness_reward, strict_format_reward], args, train_set,
    processing_class=tokenizer, callbacks=[Float32Adapters(policy), OptimizerSpan()],
)
trainer.remove_callback(PrinterCallback)
trainer._generate = timed("sampling", trainer._generate)
trainer._calculate_rewards = timed("rewards", trainer._calculate_rewards)
trainer.compute_loss = timed("forward", trainer.compute_loss)
trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)
trainer.train();

# %% [markdown]
# The next figure is the time line of the second step:

# %% tags=["hide-input"]
rows = ["sampling", "rewards", "forward", "backward", "optimizer"]
totals = dict.fromkeys(rows, 0.0)
starts = [began for part, began, _ in spans if part == "sampling"]
figure, (axes,) = figures.new_panels(8.0, 2.5)
for part, began, ended in spans:
    if began < starts[-1]:
        continue  # of the warm-up
    seconds_taken = ended - began
    totals[part] += seconds_taken
    colour = figures.BLUE if part == "sampling" else figures.ORANGE
    start = began - starts[-1]
    look = {"color": colour, "edgecolor": colour}  # an edge: short parts stay visible
    axes.barh(part, seconds_taken, left=start, **look)
labels = []
for part, total in totals.items():
    milliseconds = 1000 * total
    labels.append(f"{part}, {milliseconds:.0f} ms")
axes.set_yticks(range(5), labels)
axes.set_xlabel("seconds since the step began")
axes.invert_yaxis()
share = totals["sampling"] / sum(totals.values())
title = f"Sampling takes {share:.0%} of the step, then the update runs in pieces"
axes.set_title(title, loc="left")
figures.show(
    figure,
    f"Time line of one step: {', '.join(labels)}. One long bar for sampling comes "
    "first, then forward and backward take turns, once for each piece, and the "
    "optimizer ends it.",
)

# %% [markdown]
# Each bar is the time from the beginning to the end of one part: sampling is blue, the rest orange. Sampling is one
# long bar; then forward and backward passes alternate, once for each piece. The rewards and the optimizer take so
# little time that their bars are lines.
#
# This is a small model with short completions on a CPU, where arithmetic is slow. A GPU computes so fast that another
# limit matters: the update reads all tokens of its completions at once, but sampling writes one token after the other.
# For each new token the GPU must read all weights of the model and the whole KV cache from its memory.
#
# How long does each part take *at least*, if all prompts have 384 tokens and all completions 512, the limits of the
# profile? (Shorter ones take less.) Two numbers of the T4's data sheet give a bound: 320 GB per second from its memory,
# and 65 trillion operations per second in 16 bits. A forward pass takes two operations (multiply and add) for each
# weight and token. The update takes three such passes: forward, forward again because of the checkpointing, and
# backward through the activations (the frozen base needs no gradients of its weights). A 4-bit weight must be unpacked
# before it is used. Some GPU kernels do so while they multiply (*sampling*); others write all weights in 16 bits and
# read them again, for every token (*with unpacking*).

# %%
BANDWIDTH = 320e9  # bytes a second
ARITHMETIC = 65e12  # operations a second
PROMPT, NEW = 384, 512  # tokens
shape_4b = find_shape("Qwen/Qwen3-4B")
packed = weight_bytes(shape_4b, "float16", True)
linear_in_16_bits = 2 * shape_4b.weights[1]  # bytes of the weights that 4 bits pack
operations = 2 * shape_4b.weights[0]  # of a token in a forward pass


def shortest_times(completions):
    """Seconds, at least: sampling packed, sampling unpacked, its arithmetic, update."""
    cache = kv_cache_bytes(shape_4b, completions, PROMPT + NEW // 2, "float16")
    unpacked = packed + 2 * linear_in_16_bits  # written in 16 bits and read again
    read_packed = NEW * (packed + cache) / BANDWIDTH
    read_unpacked = NEW * (unpacked + cache) / BANDWIDTH
    arithmetic = NEW * completions * operations / ARITHMETIC
    tokens = completions * (PROMPT + NEW)
    update = 3 * tokens * operations / ARITHMETIC
    return read_packed, read_unpacked, arithmetic, update


for completions in (1, 8, 16, 32):
    fused, unpacking, arithmetic, update = shortest_times(completions)
    print(f"{completions:2} completions: sampling {fused:4.1f} s", end=", ")
    print(f"with unpacking {unpacking:4.1f} s", end=", ")
    print(f"its arithmetic alone {arithmetic:3.1f} s; update {update:4.1f} s")

# %% [markdown]
# The next figure draws them. By the source of Unsloth 2026.10.9, which this course installs, a T4 multiplies packed
# weights only for up to 16 completions at once. For more it unpacks them. So the bound for sampling follows the solid
# line up to 16 and the dashed one in the grey area. The broad pale line shows this way:

# %% tags=["hide-input"]
counts = [1, 2, 4, 8, 16, 32, 64]
bounds = [shortest_times(count) for count in counts]
packed_times, unpacked_times, arithmetic_times, update_times = zip(*bounds)
blue = figures.BLUE
orange = figures.ORANGE
grey = figures.GREY
figure, (axes,) = figures.new_panels(7.5, 4.0)
first, last = 2**4.5, 2**6.2
axes.axvspan(first, last, color="#EEEEEE", zorder=0)
axes.text(23.5, 41, "Unsloth unpacks")
with_unsloth = packed_times[:5] + unpacked_times[5:]
axes.plot(counts, with_unsloth, color=blue, lw=9, alpha=0.2)
look = {"lw": 2, "marker": "o", "ms": 4}
axes.plot(counts, unpacked_times, "--", color=blue, **look)
axes.text(1, 23.5, "sampling, weights unpacked for each token", color=blue)
axes.plot(counts, packed_times, "-", color=blue, **look)
axes.text(1, 8, "sampling, packed weights", color=blue)
axes.plot(counts, arithmetic_times, ":", color=grey, **look)
axes.text(1, -3, "sampling, its arithmetic alone", color=grey)
axes.plot(counts, update_times, "-", color=orange, **look)
axes.text(35, 18.5, "update", color=orange)
axes.set_xscale("log", base=2)
axes.set_xticks(counts, counts)
axes.set(xlabel="completions at once", ylabel="seconds, at least")
axes.set(xlim=(0.9, last), ylim=(-4, 45))
axes.set_title("Qwen3-4B on a T4: above 16 completions sampling is slow", loc="left")
numbers = ", ".join(f"{seconds:.0f}" for seconds in shortest_times(32))
words = f"Four lower bounds; for 32 completions {numbers} seconds, as in the table."
figures.show(figure, f"{words} Unsloth's way is the packed one up to 16.")

# %% [markdown]
# Look at the dotted line first: for 32 completions, the arithmetic of writing takes only 2 seconds. So while it
# samples, most of the GPU waits for the memory. That is why the solid line is only about twice as high at 32
# completions as at one. (All bounds of sampling leave out the reading of the prompts, 1.5 seconds for 32.)
#
# Which part is slower? For 32 completions of full length, the update takes at least 11 seconds, and sampling at least
# 32, because they are more than 16. So expect sampling to be the slow part, as [TRL's
# documentation](https://huggingface.co/docs/trl/speeding_up_training) does. All of these bounds are optimistic: that of
# the update leaves out attention and the unpacking of the weights, and that of sampling the hundreds of small GPU
# programs that `generate` starts for each token. So measure your run.
#
# The limit of 16 suggests a trick: sample the 32 completions in two rounds of 16 (`steps_per_generation=2`). By the
# bounds two such rounds take 2 x 6.7 = 13 seconds instead of 32. This course has not measured it.
#
# There are two ways to a faster step: several GPUs share the work, or a faster program than `generate` samples.

# %% [markdown]
# ## Several GPUs
#
# The update is arithmetic, so two GPUs can do it in about half of the time, if each takes half of the completions.
# Sampling gains less, because each GPU still reads all weights for each token. By the bounds above, one T4 with 32
# completions needs 32.3 + 10.6 = 43 seconds for the step, or 13.4 + 10.6 = 24 in two rounds of 16. Two T4s with 16 each
# need 6.7 + 5.3 = 12, half of the second number: two rounds at the same time. With a kernel that never unpacks, one T4
# would need 9.1 + 10.6 = 20, and two of them are then less than twice as fast.
#
# But does the run still learn the same? Training on several GPUs runs one *process*, that is one copy of the program,
# for each GPU. Take a group of eight completions, four of them in each process. If each process subtracted the mean of
# its own four rewards, the same reward would get different advantages on the two GPUs:

# %%
rewards = torch.tensor([3.0, 0.5, 0.5, 3.0, 0.5, 0.5, 0.5, 3.0])
on_gpu_0, on_gpu_1 = rewards.view(2, 4)


def standardized(group):
    values = (group - group.mean()) / group.std()
    return np.round(values.tolist(), 2).tolist()


print("each its own mean:", standardized(on_gpu_0), standardized(on_gpu_1))
print("the group's mean: ", standardized(rewards))

# %% [markdown]
# So TRL first gathers all rewards, then computes the advantages of whole groups, and gives each process its own part:

# %% tags=["hide-input"]
def spaced(numbers):
    return "  ".join(f"{number:g}" for number in numbers)


advantages = standardized(rewards)
pale = figures.PALE
statistics = f"mean {rewards.mean():.2f}\ndeviation {rewards.std():.2f}"
rewards_0 = f"GPU 0\nrewards\n{spaced(on_gpu_0.tolist())}"
rewards_1 = f"GPU 1\nrewards\n{spaced(on_gpu_1.tolist())}"
white = pale["model"]
boxes = {"0": (0.12, 0.76, rewards_0, white), "1": (0.12, 0.24, rewards_1, white)}
boxes["r"] = (0.38, 0.5, f"8 rewards gathered\n{statistics}", pale["number"])
boxes["a"] = (0.66, 0.76, f"GPU 0\nadvantages\n{spaced(advantages[:4])}", white)
boxes["b"] = (0.66, 0.24, f"GPU 1\nadvantages\n{spaced(advantages[4:])}", white)
boxes["g"] = (0.91, 0.5, "gradients\naveraged", pale["number"])
arrows = [("0", "r", ""), ("1", "r", ""), ("r", "a", ""), ("r", "b", ""),
          ("a", "g", ""), ("b", "g", "")]
figure = figures.diagram(boxes, arrows, (8.0, 2.6))
figure.suptitle("Advantages are those of the whole group, wherever it lies", y=1.05)
figures.show(
    figure,
    "Two GPUs hold four completions of one group each. All eight rewards are gathered; "
    "each GPU gets its four advantages back and computes a gradient, and the gradients "
    "are averaged.",
)

# %% [markdown]
# So one group may be spread over several GPUs. Only what is sampled at once must consist of whole groups. By default
# that is the whole step (with `steps_per_generation`, each round):
#
# `per_device_train_batch_size x gradient_accumulation_steps x processes = completions of a step`
#
# If you keep this product, a second GPU changes only the random numbers. Here are three ways to a step of 64
# completions, with 8 at once:

# %%
for processes in (1, 2, 4):
    pieces = 64 // (8 * processes)
    print(f"{processes} processes x {pieces} pieces x 8 completions")

# %% [markdown]
# A **launcher** starts a script several times and tells each process its number. This is such a script. Read it as one
# that you could have written for a single GPU: apart from comments and docstrings, only the lines with `processes` and
# the last lines, from `state` on, know about several processes.

# %%
from grpo_workbook import files

script = files.REPO / "configs" / "train.py"
code = script.read_text()
print(code[code.index("folder, steps") :])  # what stands before are the imports

# %% [markdown]
# Start it twice: by Python alone, and by `accelerate launch` with two processes. The file `cpu_two_processes.yaml`
# tells accelerate what to start. On a CPU the processes communicate through the library gloo, on GPUs through NCCL.
# Nothing else differs.

# %%
import subprocess
import sys

settings_file = files.REPO / "configs" / "cpu_two_processes.yaml"
launchers = {"one": [sys.executable]}
launchers["two"] = [sys.executable, "-m", "accelerate.commands.launch"]
launchers["two"] += ["--config_file", str(settings_file)]
environment = dict(os.environ)
environment["OMP_NUM_THREADS"] = "1"
environment["CUDA_VISIBLE_DEVICES"] = ""  # the tiny model, on the CPU
environment["PYTHONPATH"] = os.pathsep.join(sys.path)
records = {}  # launcher -> for each process what it was asked and measured
for name, launcher in launchers.items():
    folder = profile.output / name
    command = [*launcher, str(script), str(folder), "4"]  # 4 steps
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-3000:])
    paths = sorted(folder.glob("process_*.json"))
    records[name] = [files.read_json(path) for path in paths]

# %% [markdown]
# How was the work divided? Each process noted the questions that it was asked in each step:

# %%
first_steps = {}  # launcher -> the questions of the first step, process by process
for name, processes in records.items():
    first_steps[name] = []
    for number, record in enumerate(processes):
        questions = record["asked"][0]
        first_steps[name] += questions
        count = len(set(questions))
        size = len(questions)
        print(f"{name}, process {number}: {size} completions of {count} problems")
same = first_steps["one"] == first_steps["two"]
print("the same problems in the same order:", same)

# %% [markdown]
# The two processes together got the same questions as the one process: TRL shuffles the problems with the same seed
# everywhere, and each process takes its part of the step. Each did half of the work. The processes also share the work
# of measuring: `evaluate` divides the problems among them and gathers the answers. Before the training, both launchers
# should measure the same accuracy on the same 80 held-out problems:

# %%
for name, processes in records.items():
    before = processes[0]["before"]
    print(f"{name}: held-out accuracy {before:.1%} before the training")

# %% [markdown]
# And the training itself? The accuracies after these four steps could not tell: each process samples with a seed of its
# own, so the two runs learn from other completions. To compare the launchers, give both the same completions. A test of
# this course does that (`tests/test_cli_together.py`), for four steps with one process and with two. All advantages are
# then equal in every bit, and the adapters differ by less than 1 %, because the halves of a sum are added in another
# order. So a second process changes nothing but the samples.
#
# Always check how many processes were started, and print `trainer.accelerator.num_processes`. With `accelerate launch
# --cpu --num_processes 2`, for example, accelerate starts a single process without an error. `python -m grpo_workbook
# run` refuses to start in this case. It is a script like the one above, and every launcher can start it; `torchrun` is
# the launcher of PyTorch, which needs no file:
#
# ```bash
# accelerate launch --config_file configs/data_parallel.yaml -m grpo_workbook run --config my.yaml
# torchrun --nproc_per_node 2 -m grpo_workbook run --config my.yaml
# ```

# %% [markdown]
# ### A model that does not fit on one GPU
#
# So far each process has had a whole copy of the model. That is called **data parallel**. If one copy does not fit, the
# processes can *divide* what they store. In full training with mixed precision and Adam, each weight takes 16 bytes, as
# an adapter's does: here 2 for the weight, 2 for its gradient, and 12 for the optimizer (a copy in 32 bits and two
# moments). The stages of DeepSpeed's ZeRO divide more and more of these among the GPUs ([Rajbhandari et al.
# 2020](https://arxiv.org/abs/1910.02054)). FSDP is PyTorch's own form of the last stage.

# %%
weights = find_shape("Qwen/Qwen3-8B").weights[0]
gpus = 4
stages = {  # bytes of a weight that each GPU has, and bytes that are divided
    "data parallel": (16, 0),
    "ZeRO 1, divides the optimizer": (4, 12),
    "ZeRO 2, and the gradients": (2, 14),
    "ZeRO 3 or FSDP, and the weights": (0, 16),
}
for name, (whole, divided) in stages.items():
    gib = weights * (whole + divided / gpus) / GIB
    print(f"{name:32}{gib:6.0f} GiB on each of {gpus} GPUs")

# %% [markdown]
# These numbers are computed, and they leave out the activations and the KV cache. With LoRA you rarely need any of it:
# gradients and moments exist for the adapters alone, and the 8 B base takes about 6 GiB in 4 bits (by `plan`). Dividing
# the weights also makes sampling costly: by default TRL collects the whole weights on each GPU before it samples
# (`ds3_gather_for_generation`), which takes the memory of the whole model again. Unsloth and `python -m
# grpo_workbook run` do not divide them. For full training, write a script with TRL alone. TRL contains a settings file
# for each stage (`fsdp2.yaml`, `zero2.yaml`, `zero3.yaml`).
#
# <details><summary>The command</summary>
#
# DeepSpeed is a package of its own (`pip install deepspeed`). No cell runs this, because it needs several GPUs.
#
# ```bash
# FILES=$(python -c "from importlib import resources; print(resources.files('trl') / 'accelerate_configs')")
# accelerate launch --config_file $FILES/zero3.yaml --num_processes 4 my_script.py
# ```
#
# </details>

# %% [markdown]
# ## A faster sampler: vLLM
#
# More GPUs share the update, but all of them wait for the longest completion. vLLM is a library that samples faster
# than `generate`, for three reasons. It records once which hundreds of small programs a token needs, and then starts
# them together (CUDA graphs). It gives the place of a finished completion to a waiting one at once, so short ones do
# not wait for long ones. And it keeps one pool of memory for all caches, with the prompt of a group stored once, so
# more completions fit. How much faster is it? This course has not measured that. But vLLM, too, must read the weights
# for each token. With a base in 16 bits, a token takes at least the time of reading
# weights in 16 bits. With a base in 4 bits, vLLM calls bitsandbytes
# ([source](https://github.com/vllm-project/vllm/blob/01f5395fdf04e971bac08504ccf5a2c7c0c7cda6/vllm/model_executor/layers/quantization/bitsandbytes.py)).
# Version 0.50.2 of bitsandbytes multiplies packed weights for a few completions at once and unpacks them for many; from
# how many on depends on the GPU and the size of a layer. So for many completions the dashed line bounds vLLM, too. What
# it can save is what your run needs *beyond* its line: compare the time of your sampling with it. And if a base in 16
# bits fits beside vLLM's cache, try that first.
#
# vLLM runs in two ways. With **colocate** it shares each GPU with the trainer, and the two take turns. As a **server**
# it has GPUs of its own. The figure shows both ways on four GPUs. Time goes to the right; blue is sampling, orange the
# update, and white is a GPU that waits:

# %% tags=["hide-input"]
pale = figures.PALE
figure, panels = figures.new_panels(8.0, 3.6, count=2)
alike, apart_axes = panels
blue = {"color": figures.BLUE, "edgecolor": "white"}
orange = {"color": figures.ORANGE, "edgecolor": "white"}
for start in (0, 3, 6, 9):  # four GPUs: 2 for sampling, 1 for the update
    alike.barh(0, 2, 0.6, left=start, **blue)
    alike.barh(0, 1, 0.6, left=start + 2, **orange)
arrow = {"arrowstyle": "-|>", "color": figures.GREY}
for start in (0, 6):  # two GPUs each: assumed to take twice as long
    turn = start + 4
    end = start + 6
    apart_axes.barh(0, 4, 0.6, left=start, **blue)
    apart_axes.barh(1, 2, 0.6, left=turn, **orange)
    apart_axes.annotate("", (turn, 0.7), (turn, 0.3), arrowprops=arrow)
    apart_axes.annotate("", (end, 0.3), (end, 0.7), arrowprops=arrow)
    apart_axes.text(turn - 0.1, 0.5, "completions", ha="right", va="center")
    apart_axes.text(end - 0.1, 0.5, "weights", ha="right", va="center")
alike.set_yticks([0], ["GPUs 0 to 3: both"])
apart_axes.set_yticks([0, 1], ["GPUs 0, 1: vLLM", "GPUs 2, 3: trainer"])
alike.set_title("colocate: vLLM and trainer take turns on each GPU", loc="left")
apart_axes.set_title("server: each has its own GPUs, and one waits", loc="left")
for axes in panels:
    axes.set(xlim=(0, 12.1), xticks=[])
    axes.invert_yaxis()
    axes.grid(visible=False)
apart_axes.set_xlabel("time (a sketch: it leaves out switching and transfers)")
figures.show(figure, "Two time lines of four GPUs. Colocate: all sample, then all "
             "update, four steps. Server: two GPUs sample while two wait, then the "
             "other way round, two steps in the same time.")

# %% [markdown]
# In the sketch the server looks worse, because half of its GPUs always wait. (The sketch is too pessimistic: two GPUs
# need less than twice as long to sample as four, because sampling waits for the memory.) The server is worth most in
# two cases: if the memory of a GPU cannot hold both vLLM's cache and the training, or if both halves work at the same
# time, as in the section on asynchronous GRPO below.

# %% [markdown]
# These are the settings:
#
# | settings of `GRPOConfig` | what samples | when to use it |
# | --- | --- | --- |
# | `use_vllm=False` | `generate` of Transformers | no GPU, little memory, or a model that vLLM does not know yet |
# | `use_vllm=True, vllm_mode="colocate"` | vLLM in the training process, with the fraction `vllm_gpu_memory_utilization` of the GPU's memory. With Unsloth it uses the same weights; without it, it has a second copy. It keeps its cache during the update, too, unless it sleeps (`vllm_enable_sleep_mode`; with Unsloth `UNSLOTH_VLLM_STANDBY=1`, which this course sets). `plan` counts the cache all the time, which is the safe side | one to eight GPUs |
# | `use_vllm=True, vllm_mode="server"` | vLLM on GPUs of its own; after each step the trainer sends it the new weights | long completions, many GPUs |
#
# These commands start a server on two GPUs and the training on two others. No cell runs them, because they need four
# GPUs.
#
# ```bash
# CUDA_VISIBLE_DEVICES=0,1 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-4B --port 8000 \
#     --tensor-parallel-size 2 --weight-transfer-config '{"backend": "nccl"}' \
#     --logprobs-mode processed_logprobs --max-logprobs -1  # from vLLM 0.30 on: --enable-scale-out
# CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 -m grpo_workbook run --model Qwen/Qwen3-4B \
#     --use_vllm --vllm_mode server --vllm_server_port 8000 --load_in_4bit false
# ```

# %% [markdown]
# ## What vLLM changes: the sampler is not quite the policy
#
# vLLM computes with other GPU code than the trainer, and often in another precision. So its log-probabilities differ a
# little, and the completions come from a slightly different policy. You can see the effect without vLLM: let a copy of
# the tiny model in bfloat16 sample for a trainer in float32. The next cell compares their log-probabilities of every
# sampled token:

# %%
from grpo_workbook import render


def differences(sampler, trained, rows):
    """Log-probability of every sampled token: under `trained`, less under `sampler`."""
    width = rows["input_ids"].shape[1]
    output = sampler.generate(
        **rows, max_new_tokens=64, do_sample=True, top_k=0, output_logits=True,
        return_dict_in_generate=True, pad_token_id=tokenizer.pad_token_id,
    )
    tokens = output.sequences[:, width:, None]  # (texts, tokens, 1)
    new_mask = torch.ones_like(output.sequences[:, width:])
    mask = torch.cat([rows["attention_mask"], new_mask], 1)
    with torch.no_grad():
        logits = trained(input_ids=output.sequences, attention_mask=mask).logits
    sampled = torch.stack(output.logits, 1).float().log_softmax(-1)
    logits = logits[:, width - 1 : -1]  # those that predict the new tokens
    learned = logits.float().log_softmax(-1)
    difference = learned.gather(-1, tokens) - sampled.gather(-1, tokens)
    ends = (tokens == tokenizer.eos_token_id).long()
    is_real = ends.cumsum(1) - ends == 0  # up to the end of each completion
    return difference[is_real].cpu()


texts = render(list(train_set["prompt"]), tokenizer)
rows = tokenizer(texts, padding=True, padding_side="left", add_special_tokens=False,
                 return_tensors="pt").to(profile.device)

# %% [markdown]
# For contrast, a second sampler has 4-bit weights. That exaggerates the effect: in no set-up of this course does a
# 4-bit model sample for a trainer that is not 4-bit itself.

# %%
apart = {}
loadings = {"bfloat16": {"dtype": "bfloat16"}, "4-bit": {"load_in_4bit": True}}
for name, loading in loadings.items():
    sampler, _ = load_model(profile.model, device=profile.device, **loading)
    torch.manual_seed(0)
    apart[name] = differences(sampler, plain, rows)
    mean_difference = apart[name].abs().mean()
    print(f"{name:8} differs by {mean_difference:.4f} a token on average")

# %% [markdown]
# TRL corrects for the difference with a ratio: the probability under the trainer, divided by that under the sampler.
# (The setting `vllm_importance_sampling_correction` is on with vLLM in this course.) Its default mode, `sequence_mask`,
# takes the ratio of the *whole completion* and multiplies the completion's loss by it. If the ratio exceeds 3
# (`vllm_importance_sampling_clip_max`), it **drops** the completion.
#
# What does this do to long completions? First a toy, a model with only two tokens. The sampler writes each of them with
# probability 50 %; the trainer would write the first with 52 % and the second with 48 %. The ratio of a completion is
# the product over its tokens:

# %%
from scipy.stats import binom

print("tokens   dropped   median    mean   mean without the dropped")
for length in (10, 100, 1000, 4000):
    first = np.arange(length + 1)  # how often the sampler wrote the first token
    second = length - first
    chance = binom.pmf(first, length, 0.5)
    ratio = 1.04**first * 0.96**second  # 52 % / 50 % and 48 % / 50 %
    is_dropped = ratio > 3
    dropped = chance[is_dropped].sum()
    median = ratio[length // 2]
    mean = chance @ ratio
    weights_kept = np.where(is_dropped, 0, ratio)
    mean_kept = chance @ weights_kept
    print(f"{length:6} {dropped:9.1%}", end="")
    print(f" {median:8.2f} {mean:7.2f} {mean_kept:14.2f}")

# %% [markdown]
# Without the limit the mean of the ratio is 1 at every length, so the correction is right on average. But the longer
# the completions are, the more of this mean comes from a few completions with a very large ratio, and the median falls.
# These few are dropped: at 4,000 tokens they are 4.5 % of the completions, and four fifths of the total weight are lost
# with them.
#
# The next cell does the same with the measured differences. It joins them at random into longer completions (so it
# assumes that tokens differ independently). The exact mean of a token's ratio is 1, as in the toy. The mean of the
# measured tokens is a little off. In a product of 8,192 ratios this error would grow, so the cell first shifts all
# differences by a constant that makes the mean 1:

# %%
lengths = [32, 128, 512, 2048, 8192]
ratios = {}  # sampler -> for each length the quantiles 5, 50, 95 % of the ratio
for name, steps in apart.items():
    steps = steps - steps.exp().mean().log()  # so that a token's mean ratio is 1
    ratios[name] = []
    for length in lengths:
        chosen = torch.randint(len(steps), (400, length))
        ratio = steps[chosen].sum(1).exp().numpy()
        ratios[name].append(np.quantile(ratio, [0.05, 0.5, 0.95]))

# %% [markdown]
# In the figure, each line is the median ratio of completions of this length (the five points were computed), and its
# band contains nine tenths of them. At a ratio of 1 a completion counts fully, at 0.01 it hardly counts, and above the
# dotted line it is dropped. Both axes are logarithmic; what is below 0.0001 is cut off:

# %% tags=["hide-input"]
figure, (axes,) = figures.new_panels(8.0, 3.6)
colours = {"bfloat16": figures.BLUE, "4-bit": figures.ORANGE}
sentences = []
for name, quantiles in ratios.items():
    low, median, high = np.array(quantiles).T
    dash = "-" if name == "bfloat16" else "--"
    axes.fill_between(lengths, low, high, color=colours[name], alpha=0.2)
    axes.plot(lengths, median, dash, marker="o", color=colours[name])
    band = f"nine tenths from {low[-1]:.2g} to {high[-1]:.2g}"
    sentences.append(f"{name}, 8,192 tokens: median {median[-1]:.2g}, {band}")
axes.axhline(3, color="black", linestyle=":", lw=1)
axes.text(33, 3.4, "dropped", fontsize=9)
axes.set_xscale("log", base=2)
axes.set_yscale("log")
axes.set(xticks=lengths, xticklabels=lengths, xlim=(32, 8192), ylim=(1e-4, 20))
axes.set(xlabel="tokens of a completion", ylabel="ratio of the completion")
axes.set_title("The longer the completion, the further its ratio is from 1", loc="left")
axes.text(2400, 1.3, "bfloat16 sampler", color=figures.BLUE)
axes.text(60, 4e-3, "4-bit sampler", color=figures.ORANGE)
figures.show(figure, "Ratios of completions of 32 to 8,192 tokens, joined from "
             f"measured differences. {'. '.join(sentences)}.")

# %% [markdown]
# The ratios of the bfloat16 sampler leave 1 slowly: at 8,192 tokens nine in ten lie between about 0.2 and 2.7, so few
# completions are dropped. But at this length equally good completions get weights that differ more than tenfold. In the
# toy every token differs by 0.04, far more than the 0.0015 measured here. But the tiny model is sure of most of its
# tokens, and the probability of a sure token can hardly differ, so it is no measure of a large model with vLLM. For
# that, see [Yao et al. 2025](https://fengyao.notion.site/off-policy-rl), who described the effect and proposed such a
# correction.
#
# The ratios of the 4-bit sampler collapse, and faster than in the toy, although its tokens differ by only 0.0145 on
# average. So its differences must be uneven: most tokens hardly differ, a few differ much, and these few decide the
# ratio. So its line rests on few tokens; trust its direction, not its values.
#
# When vLLM samples, watch three metrics:
#
# - `sampling/sampling_logp_difference/mean` is the mean size of the difference per token, as printed above. It jumps if
#   the sampler has stale weights. It hides a few large differences: for these look at
#   `sampling/sampling_logp_difference/max`.
# - `sampling/importance_sampling_ratio/mean` is near 1 in a healthy run with short completions. Dropped completions
#   count as 0, so it falls when long completions are dropped, as in the last column of the toy.
# - `sampling/importance_sampling_ratio/min` is 0 if a completion was dropped.
#
# If long completions are lost, you can choose `vllm_importance_sampling_mode="token_truncate"`. It multiplies the loss
# of each token by the token's own ratio, limited to 3, and drops nothing. This trades variance for bias: the ratio of
# the whole completion would be exact, whereas a token's own ratio ignores that the sampler also wrote the tokens before
# it. This course has not measured which of the two trains better.

# %% [markdown]
# ## For the curious: asynchronous GRPO
#
# With a server, one half of the GPUs is always idle: vLLM waits while the trainer updates, and the trainer waits while
# vLLM samples. It even waits for the *last* completion of a step, while most of vLLM has nothing left to do. In
# **asynchronous** training both work at the same time: vLLM begins the next completions at once, and the trainer takes
# the next whole groups that are finished, here eight groups of eight.
#
# How much time does this save? The next cells simulate it. A completion takes 12 seconds in the median, with a long
# tail of up to 60; vLLM writes 64 at once; an update takes 20 seconds:

# %%
import heapq
import math
import random
from collections import defaultdict


def writing_time(chance):
    """Seconds that vLLM writes a completion: most take about 12, a few much longer."""
    return min(60.0, chance.lognormvariate(math.log(12), 0.7))

# %% [markdown]
# The simulation starts a completion whenever vLLM has a place, and an update whenever enough whole groups are finished.
# `ahead` is the number of further steps whose completions may be started before the update of the current step has
# ended. With 0, nothing is asynchronous.

# %%
def simulate(ahead, steps=200, batch=64, group=8, update=20.0):
    """Seconds per step, how stale each completion was, and who worked when."""
    chance = random.Random(0)
    now, version, started, ends = 0.0, 0, 0, math.inf  # ends: of the current update
    writing = []  # of each completion: its end, its group, the version that writes it
    written = defaultdict(list)  # group -> the version of each finished completion
    ready = []  # the same of whole groups that the trainer has not used
    ages, sampler, trainer = [], [], []
    while version < steps:
        while len(writing) < batch and started < batch * (version + 1 + ahead):
            end = now + writing_time(chance)
            heapq.heappush(writing, (end, started // group, version))
            started += 1
        sampler.append((now, len(writing)))
        if ends == math.inf and len(ready) >= batch:
            ages += [version - sampled for sampled in ready[:batch]]
            ready = ready[batch:]
            ends = now + update
            trainer.append((now, ends))
        now = min(ends, writing[0][0]) if writing else ends
        if now == ends:
            version, ends = version + 1, math.inf  # vLLM gets the new weights
            continue
        _, number, sampled = heapq.heappop(writing)
        written[number].append(sampled)
        if len(written[number]) == group:
            ready += written.pop(number)
    return now / steps, ages, sampler, trainer

# %% [markdown]
# Run it for 200 steps, with more and more steps ahead:

# %%
runs = {}
for ahead in (0, 1, 2, 4, 8):
    runs[ahead] = simulate(ahead)
    seconds_per_step, ages, _, trainer_spans = runs[ahead]
    speed = runs[0][0] / seconds_per_step
    age = np.mean(ages)
    oldest = max(ages)
    print(f"{ahead} ahead: {seconds_per_step:2.0f} s a step, {speed:.1f} x", end="; ")
    print(f"completions {age:.1f} updates old, at most {oldest}")

# %% [markdown]
# The next figure shows the first minutes without running ahead, and with two steps ahead:

# %% tags=["hide-input"]
minutes = 5
figure, rows_of_axes = figures.new_panels(8.0, 4.0, 2)
titles = {0: "synchronous: the two take turns", 2: "asynchronous, two steps ahead"}
for axes, (ahead, title) in zip(rows_of_axes, titles.items()):
    times, writing = np.array(runs[ahead][2]).T
    axes.fill_between(times / 60, writing, step="post", color=figures.BLUE, lw=0)
    for began, ended in runs[ahead][3]:
        start = began / 60
        length = ended / 60 - start
        look = {"color": figures.ORANGE, "edgecolor": "white"}
        axes.barh(-14, length, 16, left=start, **look)
    axes.set(xlim=(0, minutes), ylim=(-26, 70), yticks=[-14, 0, 64])
    axes.set_yticklabels(["update", "0", "64"])
    axes.set_title(title, loc="left")
    axes.grid(False)
for axes in rows_of_axes:
    axes.set_ylabel("completions\nbeing written")
rows_of_axes[-1].set_xlabel("minutes")
counts = []
for ahead in titles:
    _, ends = zip(*runs[ahead][3])
    in_time = [ended for ended in ends if ended < 60 * minutes]
    counts.append(len(in_time))
figures.show(figure, f"Two time lines of {minutes} minutes. Synchronous: vLLM falls "
             "from 64 completions to a few, then rests during the update; "
             f"{counts[0]} updates end. Two steps ahead: vLLM is never idle, the "
             f"updates follow each other closely, and {counts[1]} end.")

# %% [markdown]
# Blue is the number of completions that vLLM is writing, orange are the updates. Above, the sampling spends about half
# of its time on the last few completions of a step, and vLLM writes nothing during an update. Below, vLLM always has
# completions to write, though fewer and fewer until an update ends: only then may it start those of one more step. The
# updates follow each other with short pauses.
#
# Compared with the synchronous server, one step ahead makes this run about twice as fast, and two steps about three
# times. From four steps ahead on, the trainer has no pause left, so more makes nothing faster: it only makes the
# completions older. (The oldest ones are older than the steps ahead, because a group with a slow completion is still
# being written while later ones already fill the next step.) Compare with colocate on all GPUs, too. Suppose that they
# halve the update, and that the sampling takes as long as before, because it waits for the longest completion: then a
# step takes about 55 + 10 = 65 seconds, so the asynchronous run is still far ahead. Run the simulation with your own
# numbers, which the time line of a step gives you.
#
# **What it costs.** A completion that is two updates old was sampled by a policy that no longer exists: training is
# **off-policy**. So sampler and trainer differ once more, as in the section on the sampler, but here because of the
# updates between them, and by more. The remedy is the same. It is called **importance sampling**: multiply the loss by
# the ratio of the two probabilities, under the trained policy and under the one that sampled, and limit this ratio. The
# remedy has a limit, too. The further the two policies are apart, the more ratios are cut off, and the less a
# completion can teach. So every asynchronous trainer bounds the staleness, which is the age of a completion in updates.
#
# <details><summary>Five asynchronous trainers, and a run with TRL</summary>
#
# | trainer | how far it may run ahead | what corrects |
# | --- | --- | --- |
# | `AsyncGRPOTrainer` of TRL: experimental in 1.15 (`trl.experimental.async_grpo`), [stable since 1.18](https://github.com/huggingface/trl/releases/tag/v1.18.0) | `max_staleness`: what is more than 4 updates old is dropped | the ratio to the probabilities that vLLM reported, clipped as in GRPO |
# | [prime-rl](https://docs.primeintellect.ai/prime-rl/algorithms) | always one step | the ratio of each token, limited; a token whose probability changed too much is left out |
# | [AReaL](https://inclusionai.github.io/AReaL/algorithms/async.html) | `max_head_offpolicyness`, and 0 is synchronous; a completion may be continued by newer weights | decoupled PPO ([Hilton et al. 2021](https://arxiv.org/abs/2110.00641)): the ratio as above, and clipping around a *recent* policy |
# | [verl](https://verl.readthedocs.io/en/latest/advance/fully_async.html), fully asynchronous recipe | a setting; its authors report 2.4 to 2.7 times the speed with a 7 B model on 128 GPUs | see its page |
# | [NeMo RL](https://docs.nvidia.com/nemo/rl/latest/guides/async-grpo.html) | `max_trajectory_age_steps`, 1 in its example | importance sampling, "required for convergence" |
#
# A run with TRL looks like this, beside a vLLM server as above. It takes the same rewards and data as `GRPOTrainer`. It
# does not know `scale_rewards`, `loss_type` or `beta`, and its metrics have other names. This course has not run it:
#
# ```python
# from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer  # TRL 1.15
#
# args = AsyncGRPOConfig(output_dir="outputs/async", max_staleness=2, num_generations=8)
# trainer = AsyncGRPOTrainer("Qwen/Qwen3-4B", [correctness_reward], args, train_set)
# ```
#
# </details>
#
# When is it worth it? If sampling takes most of a step, if the completions differ much in length, and if you have GPUs
# for both. On a single GPU the trainer and vLLM take turns anyway. Watch the staleness (`sample/staleness_mean` in TRL
# 1.15) and the metrics of the section above, and compare the held-out accuracy with a synchronous run: faster steps
# that teach less are no gain.

# %% [markdown]
# ## For reference: settings by GPU
#
# The course has profiles for three sizes of GPU. Their values are common ones that fit according to `plan`; none has
# been tuned on its GPU. Here are two of the profiles:

# %%
from grpo_workbook import PROFILES

t4_profile = PROFILES["t4"]
big_profile = PROFILES["80gb"]
print(f"{'':30}{'T4, 16 GB':>20}{'80 GB':>20}")
for name in ("qwen", "dtype", "lora_rank", "max_prompt_length"):
    on_t4 = t4_profile[name]
    on_big = big_profile[name]
    print(f"{name:30}{on_t4!s:>20}{on_big!s:>20}")
for name in (
    "max_completion_length", "num_generations", "per_device_train_batch_size",
    "gradient_accumulation_steps", "learning_rate", "max_steps",
    "gradient_checkpointing", "use_vllm", "beta", "loss_type",
):
    on_t4 = t4_profile["grpo"][name]
    on_big = big_profile["grpo"][name]
    print(f"{name:30}{on_t4!s:>20}{on_big!s:>20}")

# %% [markdown]
# <details><summary>Why each setting has its value</summary>
#
# | setting | why it has this value |
# | --- | --- |
# | `qwen` | the model. Qwen3-4B fits on a T4, too (first section), but a smaller model takes less time, and a T4 is slow |
# | `dtype` | A T4 has no bfloat16, so it takes float16. Gemma 3, Gemma 4 and Qwen3.5 overflow or get NaN gradients in float16, so Unsloth computes them in 32 bits there |
# | `load_in_4bit` (True) | It saves 2 GiB with a model of 1.7 B weights and 5 GiB with 4 B. The price is time, because a weight is unpacked whenever it is used. On 80 GB the 8 B model would fit in 16 bits, too, but 4 bits leave vLLM's cache 18 GiB instead of 8.5 (`plan`). If 8.5 GiB are enough for your step, 16 bits may be faster |
# | `lora_rank` | 32 is enough, because reinforcement learning needs little capacity: even rank 1 matched full training in [Schulman et al. 2025](https://thinkingmachines.ai/blog/lora/) |
# | `num_generations` | 8; up to 16 with harder problems, because small groups are more often zero-variance groups (chapter 01) |
# | completions in a step | 32 completions are four problems, which gives a noisy gradient; 128 give a steadier one. LoRA gains less from very large batches than full training (same study, for supervised training) |
# | `per_device_train_batch_size` | as many as fit. The rest is accumulated, which changes only the time |
# | `max_completion_length` | 512 is enough for two steps of arithmetic. Long reasoning needs more |
# | `learning_rate` | LoRA: start at 1e-5 and try 5e-5. Full training: 1e-6. It does not depend on the GPU (chapter 04) |
# | `gradient_checkpointing` | on, because without it a single completion can fill gigabytes |
# | `use_vllm` | off if training leaves too little memory for it |
# | `beta` | 0, which needs no reference model and no forward pass of it. (With vLLM, TRL makes one more forward pass all the same, for the correction) |
#
# </details>

# %% [markdown]
# ## For reference: your own run, as a file
#
# You can write all of these values into one file for `python -m grpo_workbook run`, which takes every field of TRL's
# `GRPOConfig`. `python -m grpo_workbook new my_project` makes a folder with data, two rewards and their tests, and one
# file for each kind of machine, such as this one:

# %%
print((files.REPO / "templates" / "my_project" / "t4.yaml").read_text())

# %% [markdown]
# Five commands, in this order, answer five questions: Is the data sound? Does the run fit? Does it start? Did the model
# learn? Was anything wrong with the run?
#
# ```bash
# python -m grpo_workbook check-data train.jsonl
# python -m grpo_workbook plan --profile t4 --model unsloth/Qwen3-1.7B
# python -m grpo_workbook run --config t4.yaml --max_steps 4
# python -m grpo_workbook run --config t4.yaml --overwrite
# python -m grpo_workbook diagnose outputs/t4
# ```
#
# The short run (`--max_steps 4`) also tells you how long the long one will take. Its log has the `step_time` in
# seconds. Leave out the first step, multiply the mean of the others by the number of steps, and add the time of the two
# evaluations. If the completions get longer while the model learns, the steps take longer, too.

# %% [markdown]
# <details><summary>A GPU that you do not own</summary>
#
# A script whose first lines name its packages can also run on a rented GPU. `python -m grpo_workbook new my_project`
# writes such a `train.py`. With an account at Hugging Face that may run jobs, this command sends it to a T4, together
# with the folder:
#
# ```bash
# hf jobs uv run --flavor t4-small --timeout 2h --volume ./my_project:/project:rw \
#     --env PYTHONPATH=/project my_project/train.py
# ```
#
# `uv` installs the packages there. The script takes its data and rewards from `/project`, and writes its outputs there,
# into a bucket of your account. `--flavor` names the machine (`hf jobs hardware` lists them with their prices), and
# `--timeout` ends a job that hangs. Add `--dry-run` to see the job without starting it. This course has not run it; a
# test starts the script in the same way, apart from its folder.
#
# </details>

# %% [markdown] tags=["remove-cell"]
# For the machine that runs this notebook on every change: fail if a formula has drifted from what was measured, or if
# the processes did not train.

# %% tags=["remove-cell"]
proved = {"steps": len(records["two"][0]["asked"]), "processes": len(records["two"])}
proved["kept"] = {"False": kept[False], "True": kept[True]}
proved["cache"] = [cache_measured, cache_computed]
files.write_json(profile.output / "notebook_10.json", proved)
assert same
assert records["one"][0]["before"] == records["two"][1]["before"]
assert cache_measured == cache_computed
without_measured, without_computed = kept[False]
with_measured, _ = kept[True]
assert abs(without_computed / without_measured - 1) < 0.07
assert with_measured < without_measured / 5

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 10.1 · `largest_step` · medium · 8 minutes
#
# How many completions can a step have, if all are sampled at once? Return the largest number of completions whose KV
# cache in 16 bits fits into `free` bytes. Each completion has `tokens` tokens, its prompt included. Each of the
# `layers` layers keeps, for every token, a key and a value in each of `kv_heads` heads of width `head_dim`. A step
# consists of whole groups of `group` completions; if not even one group fits, return 0.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def largest_step(
    free: int, layers: int, kv_heads: int, head_dim: int, tokens: int, group: int
) -> int:
    raise NotImplementedError


check("10.1", largest_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# One token in one layer takes a key and a value of `kv_heads * head_dim` numbers each, with two bytes per number. For
# Qwen3-4B (36, 8, 128) that makes 147,456 bytes per token over all layers. How many bytes does a whole group take?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def largest_step(
#     free: int, layers: int, kv_heads: int, head_dim: int, tokens: int, group: int
# ) -> int:
#     numbers = 2 * kv_heads * head_dim  # a key and a value
#     bytes_of_completion = 2 * numbers * layers * tokens
#     return free // (bytes_of_completion * group) * group
# ```
#
# </details>
#
# Take your number into a run of Qwen3-4B on a T4. `plan` also counts some smaller parts, such as the prompts and a copy
# of one layer's cache, so it allows a smaller step:

# %%
always_needed = sum(t4.parts["always"].values())
free = int(t4.usable - always_needed)
try:
    step = largest_step(free, 36, 8, 128, 384 + 512, 8)
    print(f"the cache of {step} completions fits")
    for pieces in range(step // 8, 0, -1):
        if plan("Qwen/Qwen3-4B", "t4", gradient_accumulation_steps=pieces).fits:
            print(f"plan allows {8 * pieces}: gradient_accumulation_steps={pieces}")
            break
except NotImplementedError:
    print("Write largest_step first, then run this cell again.")

# %% [markdown]
# ### Exercise 10.2 · `choose_base` · medium · 10 minutes
#
# Do you need a base model in 4 bits? In NF4 with double quantization, a weight takes 4 bits. Each block of 64 weights
# has a scale of 8 bits, and every 256 of these scales share another scale, of 32 bits. Only the linear layers are
# stored in this way; the other weights (embeddings, norms) stay in 16 bits. `rest` is the memory that the run needs
# besides the weights, and `usable` what the GPU has, both in GiB (2³⁰ bytes). Return `"16 bits"` if the run fits with
# all weights in 16 bits, which is faster. Return `"4 bits"` if it only fits in NF4, and `"neither"` if it does not fit
# at all.


# %% tags=["exercise"]
def choose_base(
    linear_weights: int, other_weights: int, rest: float, usable: float
) -> str:
    raise NotImplementedError


check("10.2", choose_base);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Add up what one weight takes in NF4: its own bits, its part of its block's scale, and its part of the scale's scale. A
# byte has 8 bits.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def choose_base(
#     linear_weights: int, other_weights: int, rest: float, usable: float
# ) -> str:
#     nf4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # bytes for a weight
#     in_16_bits = 2 * (linear_weights + other_weights) / 2**30
#     in_4_bits = (nf4 * linear_weights + 2 * other_weights) / 2**30
#     if in_16_bits + rest <= usable:
#         return "16 bits"
#     if in_4_bits + rest <= usable:
#         return "4 bits"
#     return "neither"
# ```
#
# </details>
#
# Compare your choice for Qwen3-4B, with the settings for the T4, with what `plan` says for three sizes of GPU:

# %%
shape_4b = find_shape("Qwen/Qwen3-4B")
all_weights, linear = shape_4b.weights  # in all, and those that 4 bits pack
rest = (t4.peak - weight_bytes(shape_4b, "bfloat16", True)) / GIB
try:
    for name, gib in {"12 GB": 11.6, "16 GB": 14.7, "24 GB": 22.1}.items():
        wide = plan("Qwen/Qwen3-4B", "t4", gib=gib, load_in_4bit=False)
        choice = choose_base(linear, all_weights - linear, rest, wide.usable / GIB)
        print(f"{name}: you choose {choice}; in 16 bits it fits: {wide.fits}")
except NotImplementedError:
    print("Write choose_base first, then run this cell again.")

# %% [markdown]
# ### Exercise 10.3 · `smaller_pieces` · medium · 8 minutes
#
# The step is the same: 64 completions at once, or 8 times 8. `loss_type="bnpo"` divides the sum over a piece's tokens
# by the number of tokens in this piece, and TRL then takes the mean over the pieces. Does the norm of the first step's
# gradient stay the same? Predict, then run. Afterwards predict it for `"dapo"`, the course's loss, and change the cell.

# %% tags=["exercise"]
prediction = ...  # "stays" or "changes"


def run_pieces() -> dict:
    """The gradient's norm in the first step, by the number of completions at once."""
    norms = {}
    for at_once in (64, 8):
        new_policy, _ = load_policy(profile)
        changes = {"max_steps": 1, "save_strategy": "no", "loss_type": "bnpo"}
        changes["per_device_train_batch_size"] = at_once
        changes["gradient_accumulation_steps"] = 64 // at_once
        args = GRPOConfig(str(profile.output / "pieces"), **{**profile.grpo, **changes})
        step = GRPOTrainer(
            new_policy, [correctness_reward, strict_format_reward], args, train_set,
            processing_class=tokenizer, callbacks=[Float32Adapters(new_policy)],
        )
        step.remove_callback(PrinterCallback)
        step.train()
        norms[at_once] = step.state.log_history[0]["grad_norm"]
    return norms


predict("10.3", prediction, run_pieces);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `dapo` divides by the tokens of the whole step. Do all pieces have the same number of tokens?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "changes"
# ```
#
# `bnpo` divides each piece by its own number of tokens. A token in a piece of short completions then counts more than
# one in a piece of long ones, so the gradient depends on how the step is cut into pieces. `dapo` divides by the tokens
# of the whole step, so the norm stays the same, apart from rounding.
#
# </details>

# %% [markdown]
# ### Exercise 10.4 · `same_step` · easy · 8 minutes
#
# You have tuned a run, and now you can rent more GPUs. With which `gradient_accumulation_steps` does the run stay the
# same? A step has `completions` completions in groups of `group`, all sampled at once; each of the `processes` learns
# from `at_once` of them at a time. Return the number, or None if the same step cannot be made with these values (then
# choose another `at_once`, and do not let the step shrink or grow unnoticed).


# %% tags=["exercise"]
def same_step(
    processes: int, completions: int, at_once: int, group: int
) -> int | None:
    raise NotImplementedError


check("10.4", same_step);

# %% [markdown]
# <details><summary>Hint</summary>
#
# How many completions do all processes learn from in one piece? A group may be spread over processes and over pieces,
# but the whole step must consist of whole groups.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def same_step(
#     processes: int, completions: int, at_once: int, group: int
# ) -> int | None:
#     piece = processes * at_once
#     if completions % group != 0 or completions % piece != 0:
#         return None
#     return completions // piece
# ```
#
# </details>
#
# For which numbers of GPUs can the tuned step of 64 completions be kept?

# %%
try:
    for processes in (1, 2, 3, 4, 6, 8, 16):
        answers = []
        for at_once in (8, 4):
            pieces = same_step(processes, completions=64, at_once=at_once, group=8)
            answers.append(f"{at_once} at once: {pieces}")
        print(f"{processes:2} GPUs, accumulation steps with {', with '.join(answers)}")
except NotImplementedError:
    print("Write same_step first, then run this cell.")

# %% [markdown]
# ### Exercise 10.5 · `my_plan` · medium · 10 minutes
#
# Does your model fit on your GPU? Return the arguments of `plan`: a `model` (one of `KNOWN`, a folder or a hub id), a
# `profile` (`t4`, `24gb` or `80gb`), the memory `gib` of the GPU, and the settings with which you would run. `gib` is
# the second number of `torch.cuda.mem_get_info()`, divided by 2**30; without a GPU, take one that you could rent.
# `list(KNOWN)` shows the models, after `from grpo_workbook.planning import KNOWN`. The run should fit, have at least
# four problems in a step, and not leave more than a quarter of the memory empty.


# %% tags=["exercise"]
def my_plan() -> dict:
    raise NotImplementedError


check("10.5", my_plan);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Start with `print(plan("Qwen/Qwen3-4B", "t4", gib=14.7))`. If there is room, what would help your task most: longer
# completions, a larger group, a larger model?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_plan() -> dict:
#     # a T4, with room for longer reasoning than the profile has
#     return {"model": "Qwen/Qwen3-4B", "profile": "t4", "gib": 14.7,
#             "max_completion_length": 1024}
# ```
#
# </details>

# %% [markdown]
# ### Exercise 10.6 · `two_steps_ahead` · medium · 8 minutes
#
# In the simulation of asynchronous GRPO an update took 20 seconds, and two steps ahead made the run about three times
# as fast. Now you train a larger model, and an update takes 120 seconds. The sampling stays as it was. How much faster
# is the asynchronous run with two steps ahead? Predict, then run. Then decide: if you could rent two more GPUs, would
# you give them to vLLM or to the trainer? Suppose that they halve the update, and try it with `update=60.0`.

# %% tags=["exercise"]
prediction = ...  # "about 3 times", "about 1.5 times", "not at all"


def run_ahead() -> dict:
    """Seconds per step without and with two steps ahead: change the numbers."""
    seconds = {}
    for ahead in (0, 2):
        seconds[ahead], *_ = simulate(ahead, update=120.0)
    return seconds


predict("10.6", prediction, run_ahead);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Without running ahead, a step takes the time of the sampling plus that of the update. What does it take if both run at
# the same time?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "about 1.5 times"
# ```
#
# The sampling of a step takes about 55 seconds, so a synchronous step takes 175. If both run at the same time, the step
# takes as long as the longer of the two, here the update: 120 seconds. The trainer is the bottleneck, so give it the
# two GPUs: with updates of 60 seconds a step takes 60. A faster vLLM would change nothing.
#
# </details>

# %% [markdown]
# ## Summary
#
# Does this model fit on my GPU, and what will be slow? By the computation of this chapter, Qwen3-4B fits on a GPU of 16
# GB, in 4 bits and with gradient checkpointing, with about 4 GiB to spare. Sampling is probably the slow part: 32
# completions of full length take at least 32 seconds with the installed Unsloth, which unpacks the weights for each
# token, and their update takes at least 11. Both bounds are optimistic. (Nothing here was measured on a GPU.)
#
# - `plan` computes the memory before the run. A step is sampling, then the update; each has its peak of memory, and the
#   larger peak must fit.
# - 4 bits shrink the weights, LoRA shrinks the optimizer's state, and checkpointing shrinks the activations. The KV
#   cache grows with the completions that are sampled at once, the activations with those that the model reads at once.
# - If a run does not fit, take smaller pieces first, then 4 bits and checkpointing, then sample a step in several
#   rounds, and only then shorten the completions.
# - Two numbers of a data sheet bound the time of a step. Expect sampling to be slow, because for each token the GPU
#   reads all weights and does little with them; vLLM is made to speed it up. Then measure where the time goes.
# - Several GPUs share a step: the same script, started by a launcher, gets the same problems in parts. The completions
#   that all processes together sample at once must be whole groups, and the advantages are those of whole groups.
# - With vLLM, watch the sampling metrics. A sampler in bfloat16 moved few completions of the tiny model far from a
#   ratio of 1. But if tokens differ by a few percent, as in the toy, TRL's correction drops long completions or leaves
#   them almost no weight.
# - Asynchronous training lets sampler and trainer work at the same time. In our simulation two steps ahead almost fill
#   the pauses; many more only make the completions older.
#
# Next: [11 · Tools and environments](11_tools_and_environments.ipynb) trains a model that acts. To start with your own
# data, make [a project](../templates/my_project/README.md) with `python -m grpo_workbook new my_project`, put in your
# data, your rewards and your values, and run `python -m grpo_workbook run --config t4.yaml`.
