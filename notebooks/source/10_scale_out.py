# %% [markdown]
# # 10 · Scale out
#
# **After this notebook you can** say where a step's time goes and what a run takes in memory; choose what to change
# when it does not fit; tell the loss types apart; train in several processes; and use vLLM without losing completions
# unnoticed.
#
# **Time:** about 2 minutes on two CPU cores. All measurements here are of the tiny model. The numbers for large models
# are computed: nothing in this chapter was measured on a GPU.

# %% [markdown]
# ## One step, by the clock
#
# Before you make something faster, look where its time goes. Unsloth comes first, because it patches TRL and
# Transformers.

# %%
import os

from grpo_workbook import load_policy, quiet
from grpo_workbook.run_config import RunConfig

quiet()  # no loading bars, no advice
run = RunConfig.from_env(profile="smoke")
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
import unsloth

model, tokenizer = load_policy(run)

# %% [markdown]
# A step has five parts: sample the completions, compute their rewards, run the model forward and backward over them,
# let the optimizer move the adapters. Each is a method of TRL's trainer or an event of its callbacks, so a few lines
# can note when it begins and ends:

# %%
import time

import torch
from transformers import TrainerCallback

spans = []  # (part, when it began, when it ended), in seconds


def now():
    if run.device == "cuda":
        torch.cuda.synchronize()  # wait until the GPU has done what it was given
    return time.perf_counter()


def timed(part, call):
    """The same call, which also notes its span."""

    def inner(*args, **kwargs):
        began = now()
        result = call(*args, **kwargs)
        spans.append((part, began, now()))
        return result

    return inner


# %% [markdown]
# Two steps, with the update in four pieces (accumulation steps). The first step is the warm-up, the second is shown.

# %%
from grpo_workbook import data, load_problems, parse_rewards, to_dataset
from grpo_workbook.run_config import make_trainer


class OptimizerSpan(TrainerCallback):
    def on_pre_optimizer_step(self, *args, **kwargs):
        self.began = now()

    def on_optimizer_step(self, *args, **kwargs):
        spans.append(("optimizer", self.began, now()))


train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]).select(range(64)))
rewards, weights = parse_rewards(run.rewards)
small = run.replace(max_steps=2, per_device_batch=run.batch_size // 4)
keep_nothing = {"save_strategy": "no"}
trainer = make_trainer(
    small, model, tokenizer, train_set, rewards, weights, keep_nothing
)
trainer._generate = timed("sampling", trainer._generate)
trainer._calculate_rewards = timed("rewards", trainer._calculate_rewards)
trainer.compute_loss = timed("forward", trainer.compute_loss)
trainer.accelerator.backward = timed("backward", trainer.accelerator.backward)
trainer.add_callback(OptimizerSpan())
trainer.train();

# %% [markdown]
# The second step, drawn:

# %% tags=["hide-input"]
from grpo_workbook import figures

start = max(began for part, began, _ in spans if part == "sampling")
step = [span for span in spans if span[1] >= start]
parts = ("sampling", "rewards", "forward", "backward", "optimizer")
seconds = {p: sum(end - began for q, began, end in step if q == p) for p in parts}
figure, (axes,) = figures.new_panels(8.0, 2.5)
for part, began, end in step:
    colour = figures.BLUE if part == "sampling" else figures.ORANGE
    axes.barh(parts.index(part), end - began, left=began - start, color=colour,
              edgecolor=colour)  # an edge: very short parts stay visible
labels = [f"{part}, {seconds[part]:.2f} s" for part in parts]
axes.set(yticks=range(5), yticklabels=labels, xlabel="seconds since the step began")
axes.invert_yaxis()
fraction = seconds["sampling"] / sum(seconds.values())
finding = f"Sampling takes {fraction:.0%} of the step, then the update runs in pieces"
axes.set_title(finding, loc="left")
listed = ", ".join(f"{part} {seconds[part]:.2f} s" for part in parts)
figures.show(
    figure,
    f"Time line of one step: {listed}. One long bar for sampling comes first, then "
    "forward and backward take turns, once for each piece, and the optimizer ends it.",
)

# %% [markdown]
# Long completions make sampling's part larger, because a completion is written token by token while the update sees all
# its tokens at once. Three questions follow: can several GPUs split a step, does it fit into memory, and can something
# else sample faster?

# %% [markdown]
# ## One batch on several GPUs
#
# Training on several GPUs runs one *process*, one copy of the program, for each. Take a group of eight completions,
# four in each process. If each process used the mean of its own four, the same reward would be worth different things
# on the two GPUs:

# %%
earned = torch.tensor([3.0, 0.5, 0.5, 3.0, 0.5, 0.5, 0.5, 3.0])
first, second = earned.view(2, 4)


def advantages(group):
    return [round(float(a), 2) for a in (group - group.mean()) / group.std()]


print("each its own mean:", advantages(first), advantages(second))
print("the group's mean: ", advantages(earned))

# %% [markdown]
# So TRL gathers all rewards first, computes the advantages of whole groups, and hands each process its own part:

# %% tags=["hide-input"]
def listed(numbers):
    return "  ".join(f"{number:g}" for number in numbers)


whole, pale = advantages(earned), figures.PALE
gathered = f"8 rewards gathered\nmean {earned.mean():.2f}\ndeviation {earned.std():.2f}"
boxes = {
    "0": (0.12, 0.76, f"GPU 0\nrewards\n{listed(first.tolist())}", pale["model"]),
    "1": (0.12, 0.24, f"GPU 1\nrewards\n{listed(second.tolist())}", pale["model"]),
    "r": (0.38, 0.5, gathered, pale["number"]),
    "a": (0.66, 0.76, f"GPU 0\nadvantages\n{listed(whole[:4])}", pale["model"]),
    "b": (0.66, 0.24, f"GPU 1\nadvantages\n{listed(whole[4:])}", pale["model"]),
    "g": (0.91, 0.5, "gradients\naveraged", pale["number"]),
}
arrows = [(*pair, "") for pair in ("0r", "1r", "ra", "rb", "ag", "bg")]
figure = figures.diagram(boxes, arrows, (8.0, 2.6))
figure.suptitle("Advantages are those of the whole group, wherever it lies", y=1.05)
figures.show(
    figure,
    "Two GPUs hold four completions of one group each. All eight rewards are gathered, "
    f"mean {earned.mean():.2f}, deviation {earned.std():.2f}; each GPU gets its four "
    "advantages back and computes a gradient, and the gradients are averaged.",
)

# %% [markdown]
# So a group may lie on several GPUs. Only a whole step must consist of whole groups:
#
# `per_device_train_batch_size x gradient_accumulation_steps x processes = completions of a step`
#
# Adding a GPU changes only the random numbers (and the loss `bnpo`, see below), as long as the product stays. So a run of
# this course fixes the product (`batch_size`) and how many completions a GPU takes at once (`per_device_batch`):

# %%
for processes in (1, 2, 4):
    config = run.replace(per_device_batch=8).to_grpo_config(processes=processes)
    at_once = config.per_device_train_batch_size
    pieces = config.gradient_accumulation_steps
    print(f"{processes} processes x {pieces} pieces x {at_once} completions")

# %% [markdown]
# ## What takes memory
#
# Five things: the weights; the adapters with their gradients and the optimizer's state; the activations, which the
# forward pass keeps for the backward pass; the logits; the KV cache during sampling. (A GiB is 1024³ bytes, a MiB
# 1024².)
#
# **Weights.** In 4-bit (NF4, chapter 09) a weight takes half a byte and a little for the scales. Embeddings and norms
# stay in 16 bits. In so small a model they are a good part of the whole.

# %%
from grpo_workbook import load_model
from grpo_workbook.planning import find_shape, weight_bytes

shape = find_shape(run.model)
for four_bit in (False, True):
    model, tokenizer = load_model(
        run.model, dtype="bfloat16", device=run.device, load_in_4bit=four_bit
    )
    held = sum(p.nbytes for p in model.parameters())
    said = weight_bytes(shape, "bfloat16", four_bit)
    name = "4-bit" if four_bit else "16-bit"
    print(f"{name:7}{held:>12,} bytes; computed {said:,.0f}")

# %% [markdown]
# (The computed number includes the scales, which `parameters()` leaves out.) The price of 4-bit is time, because a
# weight is unpacked whenever it is used. A large model's weights can be counted without loading any: PyTorch builds the
# model from its config on the *meta device*, where tensors have a shape and no content.

# %%
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM, Qwen3Config
from grpo_workbook.planning import GIB, KNOWN

with init_empty_weights(include_buffers=True):
    empty = AutoModelForCausalLM.from_config(Qwen3Config(**KNOWN["qwen3-4b"]))
linear = [m for m in empty.model.layers.modules() if isinstance(m, torch.nn.Linear)]
print(f"{sum(p.numel() for p in empty.parameters()) / 1e9:.2f} B weights,", end=" ")
print(f"{sum(m.weight.numel() for m in linear) / 1e9:.2f} B of them in projections")
large = find_shape("Qwen/Qwen3-4B")
for four_bit in (False, True):
    size = weight_bytes(large, "bfloat16", four_bit) / GIB
    print(f"Qwen3-4B, {'4-bit' if four_bit else '16-bit'}: {size:.2f} GiB")

# %% [markdown]
# `accelerate estimate-memory Qwen/Qwen3-4B --library_name transformers` counts the weights of any model on the hub. It
# leaves out the adapters, the activations and the cache, which decide whether a GRPO run fits.

# %% [markdown]
# **Adapters.** LoRA adds `rank x (in + out)` weights beside each of a layer's seven projections. With its gradient and
# AdamW's two moments, each weight is four numbers. The trainer from above still holds them:

# %%
learned = [p for p in trainer.model.parameters() if p.requires_grad]
states = trainer.optimizer.state.values()
moments = sum(t.nbytes for s in states for name, t in s.items() if name != "step")
held = 2 * sum(p.nbytes for p in learned) + moments  # weights, gradients, moments
count = sum(p.numel() for p in learned)
print(f"{learned[0].dtype}: {held / count:.0f} bytes for each of {count:,} weights")
adapters = large.lora(32)
print(f"Qwen3-4B, rank 32: {adapters:,} weights,", end=" ")
print(f"{16 * adapters / GIB:.2f} GiB in 32 bits, {8 * adapters / GIB:.2f} in 16 bits")
print(f"Qwen3-4B, all weights in 32 bits: {16 * large.weights[0] / GIB:.0f} GiB")

# %% [markdown]
# In float32 four numbers are 16 bytes. Unsloth keeps them so on a GPU, and `make_trainer` does elsewhere. Stock TRL
# converts the adapters of a 4-bit model to bfloat16 when the trainer is built: 8 bytes. This saving has a price,
# because bfloat16 keeps only two to three digits, and a small step is rounded away:

# %%
for kind in (torch.float32, torch.bfloat16):
    weight = torch.tensor(0.02, dtype=kind)
    moved = weight - 1e-5  # a step of AdamW is about as long as the learning rate
    print(f"{kind}: {weight:.6f} becomes {moved:.6f}")

# %% [markdown]
# **Activations.** The backward pass needs what the forward pass computed. PyTorch can be asked what it keeps:

# %%
def kept(model, ids):
    """Bytes that autograd keeps of a forward pass, weights not counted."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    found, alive = {}, []

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
            alive.append(t)  # or its place would be used again
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        model.base_model.model.model(input_ids=ids)
    return sum(found.values())


# %% [markdown]
# *Gradient checkpointing* keeps only each layer's input and computes the layer again during the backward pass: less
# memory for more time. Here 16 texts of 160 tokens go forward and backward, without it and with it:

# %%
from peft import LoraConfig, get_peft_model
from grpo_workbook import training

model, tokenizer = load_model(run.model, device=run.device)
lora = LoraConfig(r=16, target_modules=list(training.TARGET_MODULES))
model = get_peft_model(model, lora).train()
model.enable_input_require_grads()
ids = torch.randint(5, 200, (16, 160), device=run.device)
model(input_ids=ids, labels=ids).loss.backward()  # once, to warm up
measured = {}
for checkpointing in (False, True):
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    began = now()
    for _ in range(3):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    measured[checkpointing] = kept(model, ids), (now() - began) / 3

# %% [markdown]
# What was measured, beside the formula of the plan:

# %%
from grpo_workbook.planning import activation_bytes

computed = {}
for checkpointing, (held, _) in measured.items():
    sizes = activation_bytes(shape, 16 * 160, 16, 4, checkpointing)
    computed[checkpointing] = next(iter(sizes.values()))
    what = ", ".join(f"{name} {size / 2**20:.1f}" for name, size in sizes.items())
    name = "with" if checkpointing else "without"
    print(f"{name:8}{held / 2**20:5.1f} MiB kept; computed: {what}")
less = measured[False][0] / measured[True][0]
more = measured[True][1] / measured[False][1]
print(f"memory divided by {less:.0f}, time of forward and backward times {more:.2f}")

# %% [markdown]
# (*Kept* does not count the one layer that is computed again.) The time is mostly overhead in passes this short, so
# expect another number on another machine. For large models count the work. Full fine-tuning costs one unit forward and
# two backward (gradients of activations and of weights), so a second forward pass makes three units four: x 1.33. With
# LoRA the base needs no gradients of its weights, so two units become three: x 1.5. Sampling costs the same as before,
# so a whole step slows down by less. A whole run of the tiny model took x 1.34, such overhead included
# ([measured](../docs/measurements.md)).

# %% [markdown]
# **Logits.** One number for each token of a text *and each token of the vocabulary*. With a vocabulary of 152,000
# (Qwen3) or 262,000 (Gemma 3) they can outweigh the model. Unsloth computes them in pieces. TRL uses a kernel that
# returns only the probability of each sampled token. If they were kept, in 32 bits:

# %%
from grpo_workbook.planning import logits_bytes

for name in ("qwen3-4b", "gemma-3-4b"):
    size = logits_bytes(find_shape(name), 8, 512) / GIB
    print(f"{name}: 8 completions of 512 tokens make {size:.1f} GiB of logits")

# %% [markdown]
# **KV cache.** While a text is generated, every layer keeps a key and a value for every token. All completions of a
# step are sampled side by side, so the cache grows with the *whole* batch. A real one, of 8 texts with 40 tokens of
# prompt and 60 of completion:

# %%
from grpo_workbook.planning import kv_cache_bytes

plain = model.unload().eval()
prompts = torch.randint(5, 200, (8, 40), device=run.device)
out = plain.generate(
    prompts,
    attention_mask=torch.ones_like(prompts),
    max_new_tokens=60,
    min_new_tokens=60,
    do_sample=False,
    use_cache=True,
    return_dict_in_generate=True,
    pad_token_id=tokenizer.pad_token_id,
)
layers = out.past_key_values.layers
held_cache = sum(t.nbytes for layer in layers for t in (layer.keys, layer.values))
said = kv_cache_bytes(shape, 8, 99, "float32")
print(f"measured {held_cache:,}, computed {said:,} bytes")

# %% [markdown]
# (99 of 100 tokens, because the model never reads the last one.) The computed number is what the model's own forward
# pass leaves in its cache on the meta device, so sliding windows and linear attention need no formula.

# %% [markdown]
# ## What adds up to a peak
#
# Sampling and the update come one after the other, so the larger of the two counts. This is Qwen3-4B in 4-bit with the
# settings for a T4: it samples 32 completions at once and learns from 8 at a time. The widths are not to scale.

# %% tags=["hide-input"]
from grpo_workbook.planning import plan

sizes = plan("qwen3-4b", "t4").parts
base = sum(sizes["always"].values()) / GIB
cache = sum(sizes["sampling"].values()) / GIB
inputs, again, logits = (size / GIB for size in sizes["learning"].values())
figure, (axes,) = figures.new_panels(8.0, 3.6)
axes.fill_between([0, 11.6], base, color="#CCCCCC")
rising = [base + 384 / 896 * cache, base + cache]  # prompts, then token by token
axes.fill_between([0.3, 6], base, rising, color=figures.BLUE)
for start in (7, 8.1, 9.2, 10.3):  # forward, the turn, backward
    peak = base + inputs + again + logits
    axes.fill_between([start, start + 0.4, start + 0.45, start + 0.55, start + 1],
                      base, [base, base + inputs, peak, base + inputs + again, base],
                      color=figures.ORANGE)
axes.axhline(13.52, color="black", linestyle="--", lw=1)
for x, y, words, colour in (
    (5.8, base / 2, "weights, adapters, gradients, moments, reserve", "black"),
    (3.6, base + 0.3 * cache, "KV cache of 32 completions", "white"),
    (9.2, base + 4.9, "activations and logits\nof 8 completions, 4 times", "black"),
    (5.8, 12.9, "a T4 can use 13.5 GiB", "black"),
):
    axes.text(x, y, words, ha="center", va="center", color=colour)
axes.set_xticks([3.1, 9.2], ["sampling", "update"])
axes.set(ylabel="GiB", ylim=(0, 14.5))
axes.set_title("Two peaks on what is always there: the higher one decides", loc="left")
figures.show(figure, (
    f"Memory in one step of Qwen3-4B. Floor: {base:.1f} GiB. The KV cache takes it "
    f"to {base + cache:.1f} while sampling. The update has four teeth of {peak:.1f}."))

# %% [markdown]
# The same sums for four settings:

# %% tags=["hide-input"]
settings = {
    "T4 settings": {},
    "16-bit base": {"load_in_4bit": False},
    "64 completions a step": {"gradient_accumulation_steps": 8},
    "no checkpointing,\n1 completion at a time": {
        "gradient_checkpointing": False, "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 32},
}
kinds = {"weights": "#999999", "adapters, gradients, moments": "#56B4E9",
         "reserve (assumed)": "#DDDDDD"}
kinds |= {"sampling": figures.BLUE, "update": figures.ORANGE}
figure, (axes,) = figures.new_panels(8.0, 3.8)
lines = []
for row, (name, values) in enumerate(settings.items()):
    sizes = plan("qwen3-4b", "t4", **values).parts
    weight, *four, reserve = (size / GIB for size in sizes["always"].values())
    top = [sum(sizes[phase].values()) / GIB for phase in ("sampling", "learning")]
    for y, last, size in zip((row - 0.2, row + 0.2), ("sampling", "update"), top):
        left = 0.0
        bars = [weight, sum(four), reserve, size]
        for kind, width in zip([*list(kinds)[:3], last], bars):
            axes.barh(y, width, 0.36, left=left, color=kinds[kind])
            left += width
        paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(left + 0.12, y, f"{left:.1f}", va="center", fontsize=9, bbox=paper)
    lines.append(f"{name}: {max(top) + weight + sum(four) + reserve:.1f}")

# %% [markdown]
# The upper bar of each pair is sampling, the lower one the update:

# %% tags=["hide-input"]
from matplotlib.patches import Patch

axes.axvline(13.52, color="black", linestyle="--", lw=1)
axes.set(yticks=range(4), yticklabels=list(settings), xlabel="GiB", xlim=(0, 16.5))
axes.invert_yaxis()
axes.grid(False)
axes.set_title("Each setting moves one part; the dashed line is a T4", loc="left")
figure.legend(
    handles=[Patch(color=colour, label=kind) for kind, colour in kinds.items()],
    loc="outside lower center", ncols=3, frameon=False,
)
figures.show(figure, (
    "Stacked bars of the memory of Qwen3-4B, the larger of sampling and update in GiB. "
    + "; ".join(lines).replace("\n", " ") + ". A T4 can use 13.5."))

# %% [markdown]
# Without checkpointing *and* with 8 completions at a time it would be 47 GiB. So 4-bit shrinks the weights,
# checkpointing the activations, and a smaller batch the KV cache.
#
# ## Your machine, your model
#
# `plan` does these sums. It names what it assumes. First for this machine:

# %%
import psutil

cpu = run.device == "cpu"
size = psutil.virtual_memory().total if cpu else torch.cuda.mem_get_info()[1]
print(plan(run.model, run.profile, gib=size / GIB))

# %% [markdown]
# When a run does not fit, `plan` lists changes, the cheapest first. Smaller pieces (`per_device_train_batch_size`) cost nearly
# nothing, because the same gradient is added up in more parts. A smaller batch is a different training:

# %%
wish = {"load_in_4bit": False, "gradient_checkpointing": False,
        "gradient_accumulation_steps": 8}
said = str(plan("unsloth/gemma-3-4b-it", "t4", **wish))
print(said[said.index("in all") :])

# %% [markdown]
# The same as a command, for any model and memory:
#
# ```bash
# python -m grpo_workbook plan --model Qwen/Qwen3-4B --memory 11.6 --gradient-accumulation-steps 8
# ```
#
# How memory grows with the length of completions and with the size of a group (four problems in a step):

# %% tags=["hide-input"]
def phases(**values):
    """GiB while it samples and while it learns, with what is always there."""
    sizes = plan("qwen3-4b", "t4", **values).parts
    sums = {name: sum(part.values()) / GIB for name, part in sizes.items()}
    return sums["always"] + sums["sampling"], sums["always"] + sums["learning"]


longest, groups = [128, 256, 512, 1024, 2048], [2, 4, 8, 16, 32]
charts = {
    "longest completion, tokens": [phases(max_completion_length=n) for n in longest],
    "completions in a group": [
        phases(num_generations=n, gradient_accumulation_steps=n // 2) for n in groups],
}
figure, grid = figures.new_panels(8.0, 3.2, 2, 2)
for axes, (name, pairs), xs in zip(grid, charts.items(), (longest, groups)):
    for k, phase in enumerate(("sampling", "update")):
        ys, colour = [pair[k] for pair in pairs], (figures.BLUE, figures.ORANGE)[k]
        axes.plot(xs, ys, "o-", color=colour)
        side, up = (("right", 1.3), ("center", -2.8))[k]
        axes.text(xs[3], ys[3] + up, phase, color=colour, ha=side)
    axes.set_xscale("log", base=2)
    axes.set(xticks=xs, xticklabels=xs, xlabel=name, ylabel="GiB", ylim=(0, 26))
grid[0].set_title("Long completions: both peaks grow", fontsize=11)
grid[1].set_title("Larger groups cost cache alone", fontsize=11)
ends = [[f"{pairs[i][k]:.1f}" for i in (0, -1)]
        for pairs in charts.values() for k in (0, 1)]
figures.show(figure, (
    "Memory of Qwen3-4B on a T4 in GiB. From 128 to 2,048 tokens sampling grows "
    "from {} to {}, the update from {} to {}. From groups of 2 to 32 sampling grows "
    "from {} to {}, the update stays at {} ({}).").format(*sum(ends, [])))

# %% [markdown]
# Doubling the group adds more to the cache than doubling the completions' length, because the cache holds the prompt
# again for each completion. The update's memory stays the same, since only its number of pieces grows. Long completions
# cost memory in both phases, and they cost time, because their tokens are written one after the other.

# %% [markdown]
# ## Settings by GPU
#
# The course has a profile for each of three sizes of GPU. Their values are common ones that fit on paper. Two of them:

# %%
from grpo_workbook import PROFILES

small, big = PROFILES["t4"], PROFILES["80gb"]
print(f"{'':24}{'T4, 16 GB':>20}{'80 GB':>20}")
values_shown = (
    "qwen dtype load_in_4bit lora_rank num_generations batch_size per_device_batch "
    "max_prompt_length max_completion_length learning_rate max_steps "
    "gradient_checkpointing vllm beta loss_type"
)
for name in values_shown.split():  # what a profile leaves out is RunConfig's default
    default = getattr(RunConfig, name, "")
    values = [profile.get(name, default) for profile in (small, big)]
    print(f"{name:24}" + "".join(f"{value!s:>20}" for value in values))

# %% [markdown]
# | value | why |
# | --- | --- |
# | `dtype` | A T4 has no bfloat16, so float16. Gemma 3, Gemma 4 and Qwen3.5 overflow in float16, so Unsloth computes them in 32 bits there |
# | `load_in_4bit` | saves 2 GiB with a model of 1.7 B, 5 GiB with 4 B; the price is time to unpack. On 80 GB the 8 B would fit in 16 bits too, but 4 bits leave vLLM's cache 18 GiB instead of 8 (`plan`) |
# | `lora_rank` | 32: reinforcement learning needs little |
# | `num_generations` | 8; up to 16 with harder problems, because small groups are more often zero-variance groups (chapter 01) |
# | `batch_size` | 32 completions are four problems, a noisy gradient; 128 is steadier. LoRA gains less from very large batches than full training |
# | `per_device_batch` | as many as fit. The rest is accumulated, which changes only the time |
# | `max_completion_length` | 512 is enough for two steps of arithmetic. Long reasoning needs more |
# | `learning_rate` | LoRA: start at 1e-5 and try 5e-5. Full training: 1e-6. The GPU has nothing to do with it (chapter 04) |
# | `gradient_checkpointing` | on, because without it one completion fills gigabytes |
# | `vllm` | off if training leaves too little memory for it, otherwise colocate (see below) |
# | `beta` | 0 needs no reference model and no second forward pass |
#
# ## The loss types, on one batch
#
# Two completions: one short and right, one long and wrong. How much does each loss type let a single token count? The
# gradient says it, with the losses of chapter 01. CISPO's cap on the weight is its `epsilon_high` (5 here), and GSPO is
# `loss_type="grpo"` with one ratio for the whole sequence.

# %%
from grpo_workbook import grpo_loss

lengths = (4, 12)
mask = torch.tensor([[1.0] * n + [0.0] * (12 - n) for n in lengths])
A = torch.tensor([1.0, -1.0])
at_first = torch.zeros(2, 12)
later = torch.zeros(2, 12)  # two tokens of the right answer have become more likely:
later[0, 0], later[0, 1] = torch.log(torch.tensor([1.5, 3.0]))
names = {
    "grpo": {"loss_type": "grpo"}, "dr_grpo": {"loss_type": "dr_grpo"},
    "bnpo": {"loss_type": "bnpo"}, "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    "gspo": {"loss_type": "grpo", "level": "sequence"},
}


def token_weights(moved, **how):
    """What each token counts, in thousandths: 4 of the short answer, 12 of the long."""
    old = torch.full((2, 12), -1.0)
    logp = (old + moved).requires_grad_(True)
    loss, _ = grpo_loss(logp, A, mask, old_logp=old, max_completion_length=16, **how)
    loss.backward()
    gradient = 1000 * logp.grad.abs()
    return [*gradient[0, :4].tolist(), *gradient[1].tolist()]


# %% [markdown]
# Above is the first update, where every ratio is 1. Below the policy has moved: the first two tokens of the right
# answer are 1.5 and 3 times as likely as when they were sampled.

# %% tags=["hide-input"]
import numpy as np

figure, grid = figures.new_panels(7.0, 5.6, 2)
titles = ("First update: length decides", "After a move: clipping decides, too")
for axes, moved, title in zip(grid, (at_first, later), titles):
    table = np.array([token_weights(moved, **how) for how in names.values()])
    table = np.insert(table, 4, np.nan, axis=1)  # a gap between the two answers
    axes.imshow(table, cmap="Blues", vmin=0, vmax=300, aspect="auto")
    for (row, column), value in np.ndenumerate(table):
        if not np.isnan(value):
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9)
    axes.set(yticks=range(len(names)), yticklabels=list(names), xticks=[1.5, 10.5])
    axes.set_xticklabels(["right, 4 tokens", "wrong, 12 tokens"])
    axes.set_title(title, fontsize=11)
    axes.grid(False)
figures.show(figure, (
    "Two tables of what a token counts, in thousandths. First update: in grpo and gspo "
    "each of the short answer 125 and of the long one 42, in dr_grpo all 31, in bnpo, "
    "dapo and cispo all 62. After the move the first two tokens count 0, in cispo "
    "94 and 188. gspo drops all four tokens of the right answer."))

# %% [markdown]
# - **grpo** (arXiv 2402.03300): every completion counts the same, so a token of a long wrong answer is punished less.
#   Rambling is cheap.
# - **dr_grpo** (2503.20783): every token counts the same, divided by a constant, the largest possible length. Dr. GRPO
#   also drops the deviation from the advantage (`scale_rewards="none"`).
# - **dapo**: every token counts the same, divided by the tokens of the whole step. This is one of four parts of DAPO
#   (2503.14476) and the only one in the course's default run. The others: a higher upper clip (`epsilon_high=0.28`),
#   special treatment of truncated completions (`mask_truncated_completions`, a soft length penalty), and *dynamic
#   sampling*, which samples again until no group has zero variance. TRL 1.15 does not have that one.
# - **bnpo**: divided by the tokens of each piece that goes through at once, so it differs from dapo when a step has
#   several pieces or processes. (It is not the method of the paper called BNPO, 2506.02864.)
# - **cispo** (2506.13585): clips the *weight* and not the loss. No token loses its gradient: the two count 1.5 and 3
#   times as much.
# - **gspo** (2507.18071): one ratio for a completion, the geometric mean of its tokens' ratios. Here it is 1.46, above
#   1.2, so the whole answer is dropped. (GSPO's own clip range is far narrower, 3e-4 and 4e-4.)

# %% [markdown]
# ## Several processes
#
# torchrun starts a program several times and tells each process which one it is. It works with any script that builds a
# `GRPOTrainer`; here the script is `python -m grpo_workbook run`, on a 16-bit base. On a CPU the processes talk through
# the library gloo.

# %%
import subprocess
import sys

command = [
    sys.executable, "-m", "torch.distributed.run", "--standalone",
    "--nproc_per_node", "2", "-m", "grpo_workbook", "run", "--max_steps", "4",
    "--per_device_train_batch_size", "16", "--heldout", "16", "--load_in_4bit", "false",
    "--output_dir", str(run.output / "two"), "--overwrite",
]
environment = os.environ | {"OMP_NUM_THREADS": "1", "GRPO_WORKBOOK_PROFILE": "smoke"}
environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
began = time.perf_counter()
done = subprocess.run(command, env=environment, capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-3000:]
print(f"{time.perf_counter() - began:.0f} s with both starts")

# %% [markdown]
# The reward of a step is the mean over the completions of both processes. Each process samples with a seed of its own,
# so the completions differ from those of a single process.

# %%
import json

written = json.loads((run.output / "two" / "report.json").read_text())
print("processes:", written["processes"])
log = json.loads((run.output / "two" / "log.json").read_text())
rewarded = [entry for entry in log if "reward" in entry]
print("steps:", len(rewarded), " mean reward of all completions of both:",
      [round(entry["reward"], 2) for entry in rewarded])

# %% [markdown]
# The other launcher, accelerate, reads its settings from a file:
#
# ```bash
# accelerate launch --config_file configs/data_parallel.yaml -m grpo_workbook run --config my.yaml
# ```
#
# Check that it started what you asked for: `accelerate launch --cpu --num_processes 2` starts a single process without
# an error. `run` refuses to start then; in a script of your own, print `trainer.accelerator.num_processes`.
#
# The folder `configs/` has four commented files. `data_parallel.yaml` gives each GPU a whole copy of the model; start
# with it. `cpu_two_processes.yaml` is the same without GPUs. `fsdp.yaml` and `deepspeed_zero3.yaml` divide the weights
# among the GPUs, for a model that does not fit on one. With LoRA this is rarely needed (an 8 B model takes 6 GiB in
# 4-bit), and sampling gets slow, because each token needs weights from all GPUs. Unsloth does not divide weights, so
# these two need `--backend plain`.

# %% [markdown]
# ## vLLM samples the completions
#
# The update can be split among many GPUs. A completion is written token by token, and each token reads all the weights,
# whether for one completion or for thirty. So past some number of GPUs all of them wait for the longest completion.
# What helps is shorter completions, more of them in a step, or a faster sampler. vLLM keeps one pool for all caches and
# gives the room of finished completions to waiting ones. It runs in two ways:

# %% tags=["hide-input"]
from matplotlib.patches import Rectangle

boxes = {
    "trainer": (0.1, 0.42, "trainer:\nadapters,\nactivations", pale["model"]),
    "vllm": (0.38, 0.42, "vLLM:\nKV cache", pale["number"]),
    "server": (0.62, 0.42, "GPU 0 and 1:\nvLLM server", pale["number"]),
    "other": (0.91, 0.42, "GPU 2 and 3:\ntrainer", pale["model"]),
}
arrows = [("trainer", "vllm", "prompts", -0.4),
          ("vllm", "trainer", "completions", -0.4),
          ("other", "server", "prompts, new weights", 0.4),
          ("server", "other", "completions", 0.4)]
figure = figures.diagram(boxes, arrows, (8.0, 2.6))
heads = {0.02: "colocate: one GPU, by turns", 0.54: "server: GPUs of its own"}
for x, words in heads.items():
    frame = Rectangle((x - 0.01, 0.03), 0.46, 0.77, fill=False, ls="--", color="grey")
    figure.axes[0].add_patch(frame)
    figure.text(x, 0.87, words, fontsize=12)
figures.show(figure, (
    "Left, colocate: trainer and vLLM share one GPU and take turns; prompts go one "
    "way, completions the other. Right, server: vLLM runs on GPUs 0 and 1; the trainer "
    "on GPUs 2 and 3 sends it prompts and, after each step, the new weights."))

# %% [markdown]
# | | who samples | when |
# | --- | --- | --- |
# | `--use_vllm false` | `generate` of Transformers | no GPU, little memory, a new architecture |
# | `--use_vllm --vllm_mode colocate` | vLLM in the training process, with `vllm_gpu_memory_utilization` of the GPU; with Unsloth it uses the same weights | one to eight GPUs |
# | `--use_vllm --vllm_mode server` | vLLM on GPUs of its own; each step sends it the new weights | long completions, many GPUs |
#
# A server on two GPUs, and the training on two others (`trl vllm-serve` of older guides is deprecated, and only runs
# this command); no cell runs them, because they need four GPUs:
#
# ```bash
# CUDA_VISIBLE_DEVICES=0,1 VLLM_SERVER_DEV_MODE=1 vllm serve Qwen/Qwen3-4B --port 8000 \
#     --tensor-parallel-size 2 --weight-transfer-config '{"backend": "nccl"}' \
#     --logprobs-mode processed_logprobs --max-logprobs -1  # from vLLM 0.30 on: --enable-scale-out
# CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 -m grpo_workbook run --model Qwen/Qwen3-4B \
#     --use_vllm --vllm_mode server --vllm_server_port 8000 --load_in_4bit false
# ```
#
# Two settings of TRL to know: `vllm_enable_sleep_mode` lets a colocated vLLM give its memory back during the update,
# and `use_transformers_continuous_batching` can speed sampling up where there is no vLLM.
#
# ### The sampler is not quite the policy
#
# vLLM uses other kernels and often another precision than the trainer, so its log-probabilities differ a little: the
# completions come from a slightly different policy. You can see the effect without vLLM. A copy of the tiny model in
# bfloat16 and one in 4 bits sample for a trainer in float32:

# %%
from grpo_workbook import render


def differences(sampler, trained, rows):
    """Log-probability of every sampled token: under `trained`, less under `sampler`."""
    width = rows["input_ids"].shape[1]
    out = sampler.generate(
        **rows, max_new_tokens=64, do_sample=True, top_k=0, output_logits=True,
        return_dict_in_generate=True, pad_token_id=tokenizer.pad_token_id,
    )
    tokens = out.sequences[:, width:, None]
    more = torch.ones_like(out.sequences[:, width:])
    mask = torch.cat([rows["attention_mask"], more], 1)
    with torch.no_grad():
        logits = trained(input_ids=out.sequences, attention_mask=mask).logits
    theirs = torch.stack(out.logits, 1).float().log_softmax(-1).gather(-1, tokens)
    ours = logits[:, width - 1 : -1].float().log_softmax(-1).gather(-1, tokens)
    ends = (tokens == tokenizer.eos_token_id).long()
    real = ends.cumsum(1) - ends == 0  # up to the end of each completion
    return (ours - theirs)[real]


# %% [markdown]
# Both samplers on the same 64 prompts:

# %%
rows = tokenizer(render(list(train_set["prompt"]), tokenizer), padding=True,
                 padding_side="left", add_special_tokens=False, return_tensors="pt")
found = {}
samplers = {"bfloat16": {"dtype": "bfloat16"}, "4-bit": {"load_in_4bit": True}}
for name, how in samplers.items():
    sampler, _ = load_model(run.model, device=run.device, **how)
    torch.manual_seed(0)
    found[name] = differences(sampler, plain, rows.to(run.device)).cpu()
    print(f"{name:8} differs by {found[name].abs().mean():.4f} a token on average")

# %% [markdown]
# TRL corrects for this with the ratio of the two probabilities (`vllm_importance_sampling_correction`, on with vLLM in
# this course). Its default mode, `sequence_mask`, takes the ratio of the *whole completion*, multiplies the
# completion's loss by it, and **drops** the completion when the ratio exceeds 3 (`vllm_importance_sampling_clip_max`).
# That ratio is a product over all tokens, so small differences add up. To see how, join the measured differences at
# random into longer completions:

# %%
counts = [32, 128, 512, 2048, 8192]
figure, grid = figures.new_panels(9.0, 3.2, 2, 2)
lines = []
for axes, (name, steps) in zip(grid, found.items()):
    near, dropped = [], []
    for n in counts:
        ratio = steps[torch.randint(len(steps), (400, n))].sum(1).exp()
        dropped.append(float((ratio > 3).float().mean()))
        near.append(float(((ratio >= 1 / 3) & (ratio <= 3)).float().mean()))
    little = [1 - a - b for a, b in zip(near, dropped)]
    colours = [figures.PALE["data"], "#BBBBBB", figures.ORANGE]
    axes.stackplot(counts, near, little, dropped, colors=colours,
                   labels=["weight above 1/3", "weight below 1/3", "dropped"])
    axes.set_xscale("log", base=2)
    axes.set(xticks=counts, xticklabels=counts, xlim=(32, 8192), ylim=(0, 1))
    axes.set_xlabel("tokens of a completion")
    axes.set_title(f"{name}: {near[3]:.0%} above 1/3 at 2,048 tokens", fontsize=11)
    said = f"{near[3]:.0%} have a weight above 1/3, {dropped[3]:.0%} are dropped"
    lines.append(f"{name} sampler: at 2,048 tokens {said}")
grid[0].set_ylabel("fraction of the completions")
handles = grid[0].get_legend_handles_labels()
figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
figures.show(figure, (
    "What sequence_mask does to completions of 32 to 8,192 tokens, joined from "
    "measured differences. " + "; ".join(lines) + ". The rest: weight below 1/3."))

# %% [markdown]
# The tiny model's own completions, of about 25 tokens, lose next to nothing. A bfloat16 sampler does no harm up to
# 2,048 tokens. With the 4-bit sampler a few are dropped, but the greater loss is another one: the longer the
# completions, the more of them have a small weight, in the end nearly all. (On average the trainer finds a sampled
# token a little less likely than the sampler did, so the product shrinks.) So watch three metrics when vLLM samples:
#
# - `sampling/sampling_logp_difference/mean`: the mean difference a token. It jumps when the sampler has stale weights.
# - `sampling/importance_sampling_ratio/mean`: near 1 in a healthy run. Dropped completions count as 0.
# - `sampling/importance_sampling_ratio/min`: 0 when a completion was dropped.
#
# The four modes combine `token` or `sequence` (whose ratio) with `truncate` or `mask` (clip or drop what is over the
# bound). For long completions take `vllm_importance_sampling_mode="token_truncate"`, *truncated importance sampling*:
# it uses each token's own ratio and drops nothing.

# %% [markdown]
# ## Your own run, as a file
#
# All of these values fit into one file for `python -m grpo_workbook run`, fields of TRL's `GRPOConfig` too.
# `python -m grpo_workbook new my_project` makes a folder with data, two rewards and their tests, and a file for each
# machine, such as this one:

# %%
from grpo_workbook import files

print((files.REPO / "templates" / "my_project" / "t4.yaml").read_text())

# %% [markdown]
# ```bash
# python -m grpo_workbook check-data train.jsonl
# python -m grpo_workbook plan --profile t4
# python -m grpo_workbook run --config t4.yaml --max_steps 4
# python -m grpo_workbook run --config t4.yaml --overwrite
# python -m grpo_workbook diagnose outputs/t4
# ```
#
# In this order: is the data sound, does the run fit, does it start, the run itself, and was anything wrong with it.
#
# The short run also says how long the long one will take. Its log has the `step_time` in seconds. Leave out the first
# step, multiply the others' mean by the number of steps, and add the two evaluations. If the completions get longer
# while the model learns, so do the steps.

# %% [markdown] tags=["remove-cell"]
# For the machine that runs this notebook on every change: fail when a formula has drifted from what was measured, or
# the processes did not train.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
proved = {
    "kept": {str(k): [v[0], round(computed[k])] for k, v in measured.items()},
    "cache": [held_cache, kv_cache_bytes(shape, 8, 99, "float32")],
    "steps": len(rewarded),
    "processes": written["processes"],
}
(run.output / "notebook_10.json").write_text(json.dumps(proved, indent=2))
assert len(rewarded) == 4
if run.profile == "smoke":
    assert held_cache == proved["cache"][1]
    assert abs(computed[False] / measured[False][0] - 1) < 0.07
    assert measured[True][0] < measured[False][0] / 5

# %% [markdown]
# ## Exercises
#
# Run a cell to check your answer. The table in chapter 00 counts what you have solved.

# %% [markdown]
# ### Exercise 10.1 · `kv_cache_bytes` · easy · 5 minutes
#
# Return the bytes of the KV cache in 16 bits when `completions` texts hold `tokens` tokens each. Each of the `layers`
# layers keeps, for every token, a key and a value in each of `kv_heads` heads of width `head_dim`.

# %% tags=["exercise"]
from grpo_workbook.exercises import check, predict


def kv_cache_bytes(
    layers: int, kv_heads: int, head_dim: int, tokens: int, completions: int
) -> int:
    raise NotImplementedError


check("10.1", kv_cache_bytes);

# %% [markdown]
# <details><summary>Hint</summary>
#
# One token in one layer: a key and a value of `kv_heads * head_dim` numbers, two bytes each. For Qwen3-4B (36, 8, 128)
# that makes 147,456 bytes a token over all layers.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def kv_cache_bytes(
#     layers: int, kv_heads: int, head_dim: int, tokens: int, completions: int
# ) -> int:
#     values = 2 * kv_heads * head_dim  # a key and a value
#     return 2 * values * layers * tokens * completions
# ```
#
# </details>

# %% [markdown]
# ### Exercise 10.2 · `nf4_bytes` · medium · 8 minutes
#
# NF4 with double quantization: a weight takes 4 bits. Each block of 64 weights has a scale of 8 bits. Every 256 of
# these scales share another scale, of 32 bits. How many bytes do `weights` weights take? Blocks that are not full count
# in proportion, so the result may be a fraction.


# %% tags=["exercise"]
def nf4_bytes(weights: int) -> float:
    raise NotImplementedError


check("10.2", nf4_bytes);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Add up what one weight takes: its own bits, its part of a scale, and its part of that scale's scale. A byte has 8
# bits.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def nf4_bytes(weights: int) -> float:
#     return weights * (0.5 + 1 / 64 + 4 / (64 * 256))
# ```
#
# </details>

# %% [markdown]
# ### Exercise 10.3 · `smaller_pieces` · medium · 8 minutes
#
# Smaller pieces should give the same gradient: 64 completions at once, or 8 times 8. Does the norm of the first step's
# gradient stay the same with `loss_type="bnpo"`? Predict, then run. Afterwards try `"dapo"`, the course's default.

# %% tags=["exercise"]
prediction = ...  # "stays" or "changes"


def run_pieces() -> dict:
    """The gradient's norm in the first step, by the number of completions at once."""
    norms = {}
    for at_once in (run.batch_size, run.batch_size // 8):
        one = run.replace(max_steps=1, per_device_batch=at_once, loss_type="bnpo")
        policy, tokens = load_policy(one)
        step = make_trainer(
            one, policy, tokens, train_set, rewards, weights, {"save_strategy": "no"}
        )
        step.train()
        norms[at_once] = step.state.log_history[0]["grad_norm"]
    return norms


predict("10.3", prediction, run_pieces);

# %% [markdown]
# <details><summary>Hint</summary>
#
# By what does each of the two loss types divide the sum over all tokens? Do all pieces have the same number of tokens?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "changes"
# ```
#
# `bnpo` divides each piece by its own number of tokens. A token in a piece of short completions counts more than one in
# a piece of long ones, so the size of the pieces becomes part of the training. `dapo` divides by the tokens of the
# whole step, and there the norm stays, apart from rounding.
#
# </details>

# %% [markdown]
# ### Exercise 10.4 · `side_by_side` · easy · 5 minutes
#
# Sampling 64 completions instead of 8, each of 40 tokens, in one call of `generate`: how does the time grow? Afterwards
# try other numbers of completions and tokens.

# %% tags=["exercise"]
import timeit
from functools import partial

prediction = ...  # "hardly" (below x 1.5), "below proportion", "x 8" (above x 6)


def run_sizes() -> dict:
    """Seconds to sample, by the number of completions: the best of five tries."""
    taken = {}
    for count in (8, 64):
        prompts = torch.randint(5, 200, (count, 100), device=run.device)
        how = {"attention_mask": torch.ones_like(prompts), "do_sample": True}
        how |= {"min_new_tokens": 40, "max_new_tokens": 40, "pad_token_id": 0}
        call = partial(plain.generate, prompts, **how)
        taken[count] = min(timeit.repeat(call, number=1, repeat=5))
    return taken


predict("10.4", prediction, run_sizes);

# %% [markdown]
# <details><summary>Hint</summary>
#
# For each token position the layers' weights are read once, for all completions together. What does grow with their
# number?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "below proportion"
# ```
#
# On a CPU core the arithmetic grows with the number of completions, and the cost of each call does not. On a GPU the
# arithmetic of 64 completions is hardly more than that of 8, and reading the weights takes the time, so expect "hardly"
# there. Either way, sampling more completions side by side makes each of them cheaper.
#
# </details>

# %% [markdown]
# ### Exercise 10.5 · `my_plan` · medium · 10 minutes
#
# Your model, your GPU. Return the arguments of `plan`: a `model` (one of `planning.KNOWN`, a folder or a hub id), a
# `profile` (`t4`, `24gb` or `80gb`), `gib` as `nvidia-smi` or `torch.cuda.mem_get_info()` says, and the settings that
# you would run. It should fit, have at least four problems in a step, and not leave more than half of the memory empty.


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
# ## Summary
#
# - A step is sampling, then the update. Each has its peak of memory, and the larger one decides.
# - 4-bit shrinks the projections, LoRA the optimizer's state, checkpointing the activations. The KV cache grows with
#   the whole batch, the activations with what goes through at once.
# - When a run does not fit: first smaller pieces, then checkpointing and 4-bit, then a smaller batch or shorter
#   answers.
# - The batch over all processes must be whole groups, and advantages are computed over all of it.
# - `loss_type="dapo"` is one part of DAPO. `bnpo` depends on the size of the pieces.
# - vLLM speeds sampling up. Watch the sampling metrics, because TRL's correction can drop long completions, or leave
#   them almost no weight.
#
# Next: [11 · Tools and environments](11_tools_and_environments.ipynb) trains a model that acts. To start with your own
# data, make [a project](../templates/my_project/README.md) with `python -m grpo_workbook new my_project`, put in your
# data, your rewards and your values, and run `python -m grpo_workbook run --config t4.yaml`.
