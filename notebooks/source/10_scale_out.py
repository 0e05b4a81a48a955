# %% [markdown]
# # 10 · Scale out
#
# **After this notebook you can** say before a run what it takes in memory, and what to change when it does not fit; read
# the values of a GPU profile and say why they are what they are; tell the loss types apart; train in several processes
# with torchrun and accelerate; and say where vLLM comes in.
#
# **Time:** about 2 minutes on two CPU cores. It measures on the tiny model and computes for the large ones: no number
# for a GPU in here has been measured yet.

# %% [markdown]
# ## Eight completions, two processes
#
# Training on several GPUs runs one *process*, one running copy of the program, for each. Two problems, four completions
# each, on two GPUs. With a group on each GPU, nothing changes:

# %%
import torch

rewards = torch.tensor([3.0, 0.5, 0.5, 3.0, 0.5, 0.5, 0.5, 3.0])


def advantages(group):
    return [round(float(a), 2) for a in (group - group.mean()) / group.std()]


first, second = rewards.view(2, 4)
print("process 0:", advantages(first))
print("process 1:", advantages(second))

# %% [markdown]
# Now one problem with a group of eight, half of it in each process. If each took its own mean, the same reward would be
# worth different things on the two GPUs:

# %%
print("each its own mean: ", advantages(first), advantages(second))
print("the group's mean:  ", advantages(rewards))

# %% [markdown]
# So TRL gathers all rewards first, computes the advantages of whole groups, and gives each process its slice back: a
# group may lie on several GPUs. Only the completions of a step, over all processes, must be whole groups:
#
# `per_device_train_batch_size x gradient_accumulation_steps x processes = completions of a step`
#
# A run of this course names the product, `batch_size`, and how many completions a GPU takes at once,
# `per_device_batch`. It works out the rest: whoever adds a GPU keeps the same training and only divides it. (A
# *round* here is one accumulation step.)

# %%
batch, group, at_once = 32, 8, 4
print(f"{batch} completions of {batch // group} problems, {at_once} at once:")
for processes in (1, 2, 4, 8):
    each = batch // processes
    rounds = each // at_once
    print(f"  processes: {processes}, completions each: {each}, rounds: {rounds}")

# %% [markdown]
# ## What takes memory, measured on the tiny model
#
# Five things: the weights; the adapters, with their gradients and the optimizer's state; the activations, which the
# forward pass keeps for the backward pass; the logits; and the KV cache while completions are generated. Take them one
# at a time. Sizes are in GiB, 1024³ bytes, or MiB, 1024² bytes.
#
# **Weights.** In 4-bit (NF4, chapter 09) a weight takes half a byte, and a little for the scales. Embeddings and norms
# stay as they are: in so small a model they are a good part.

# %%
import os

from grpo_workbook import RunConfig, load_model, quiet

quiet()
run = RunConfig.from_env()
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network
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
# (The computed number holds the scales too, which `parameters()` leaves out.) 4-bit costs time: a weight is unpacked
# whenever it is used. On the tiny model a run with a 16-bit base takes 0.82 of the time that the 4-bit run takes
# ([measured](../docs/measurements.md)).
#
# The computed number needs no weights at all. A config says how wide everything is, and a model can be built from it on
# torch's *meta device*, where tensors have a shape and no content. accelerate does it in one line, for any model:

# %%
from accelerate import init_empty_weights
from transformers import AutoModelForCausalLM, Qwen3Config
from grpo_workbook.planning import GIB, KNOWN

with init_empty_weights(include_buffers=True):
    empty = AutoModelForCausalLM.from_config(Qwen3Config(**KNOWN["qwen3-4b"]))
print(f"{sum(p.numel() for p in empty.parameters()) / 1e9:.2f} B weights,", end=" ")
print(f"on the device {next(empty.parameters()).device}")
linear = [m for m in empty.model.layers.modules() if isinstance(m, torch.nn.Linear)]
print(f"{sum(m.weight.numel() for m in linear) / 1e9:.2f} B of them in projections,")
print("which 4-bit shrinks; embeddings and norms stay in 16 bits:")
large = find_shape("Qwen/Qwen3-4B")
for four_bit in (False, True):
    size = weight_bytes(large, "bfloat16", four_bit) / GIB
    print(f"Qwen3-4B, {'4-bit' if four_bit else '16-bit'}: {size:.2f} GiB")

# %% [markdown]
# With a network, `accelerate estimate-memory` counts the weights of any model on the hub in the same way:
#
# ```bash
# accelerate estimate-memory Qwen/Qwen3-4B --library_name transformers --dtypes float16 int4
# ```
#
# It says nothing of adapters, activations and the cache, which decide whether a GRPO run fits.

# %% [markdown]
# **Adapters.** LoRA adds `rank x (in + out)` weights beside each projection that it adapts, here all seven of a layer
# (attention's q, k, v, o and the MLP's gate, up, down). They, their gradients and AdamW's two moments (chapter 07) are
# kept in 32 bits: four times 4, or 16 bytes for each weight of an adapter. Full training would need that for every
# weight:

# %%
adapters = large.lora(32)
theirs = 16 * adapters / GIB
print(f"rank 32: {adapters:,} weights, with all that is theirs {theirs:.2f} GiB")
print(f"all weights: {16 * large.weights[0] / GIB:.0f} GiB")

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
# Gradient checkpointing keeps each layer's input only, and computes the layer again in the backward pass: less memory
# for more time. 16 texts of 160 tokens go forward and backward, without it and with it:

# %%
import time

from peft import LoraConfig, get_peft_model
from grpo_workbook import training

model, tokenizer = load_model(run.model, device=run.device)
adapters = LoraConfig(r=16, target_modules=list(training.TARGET_MODULES))
model = get_peft_model(model, adapters).train()
model.enable_input_require_grads()
ids = torch.randint(5, 200, (16, 160), device=run.device)
model(input_ids=ids, labels=ids).loss.backward()  # once, to warm up
measured = {}
for checkpointing in (False, True):
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    began = time.perf_counter()
    for _ in range(3):
        model(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    seconds = (time.perf_counter() - began) / 3
    measured[checkpointing] = kept(model, ids), seconds

# %% [markdown]
# What was measured, beside what the formula of the plan says. With checkpointing the activations of one layer at a
# time come on top, while it is computed again; *kept* does not count them. (*A pass* is forward and backward.)

# %%
from grpo_workbook.planning import activation_bytes

computed = {}
for checkpointing, (held, seconds) in measured.items():
    parts = activation_bytes(shape, 16 * 160, 16, 4, checkpointing)
    computed[checkpointing] = next(iter(parts.values()))
    what = ", ".join(f"{name} {size / 2**20:.1f}" for name, size in parts.items())
    name = "on " if checkpointing else "off"
    print(f"checkpointing {name}: {held / 2**20:5.1f} MiB kept, {seconds:.2f} s a pass")
    print(f"   computed: {what} (MiB)")
less = measured[False][0] / measured[True][0]
more = measured[True][1] / measured[False][1]
print(f"kept: {less:.0f} times less; time: {more:.2f} times as much")

# %% [markdown]
# **Logits.** One number for each token of a text *and each token of the vocabulary*. With a vocabulary of 152,000
# (Qwen3) or 262,000 (Gemma 3), they can outweigh the model. Unsloth computes them in pieces, TRL tile by tile in a
# kernel that returns only the probability of each sampled token: neither keeps them all. If they were kept, in
# 32 bits:

# %%
from grpo_workbook.planning import logits_bytes

for name in ("qwen3-4b", "gemma-3-4b"):
    size = logits_bytes(find_shape(name), 8, 512) / GIB
    print(f"{name}: 8 completions of 512 tokens make {size:.1f} GiB of logits")

# %% [markdown]
# **KV cache.** While a text is generated, every layer keeps a key and a value for every token. All completions of a
# step are generated side by side, so this grows with the *whole* batch. Here is a real one, of 8 texts with 40 tokens
# of prompt and 60 of completion:

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
# (99 of 100 tokens: the last one is sampled, and the model never reads it.) The computed number is what the model's own
# forward pass leaves in its cache on the meta device, so sliding windows and linear attention need no formula.

# %% [markdown]
# ## Your machine, your model
#
# `plan` adds it up. What it does not know it assumes, and says so. First for this machine, whatever it is:

# %%
import psutil
from grpo_workbook.planning import plan

gib = psutil.virtual_memory().total / GIB if run.device == "cpu" else None
print(plan(run.model, run.profile, gib=gib))

# %% [markdown]
# On a CPU most of it is the reserve, which stands for the libraries there. On a T4 the parts matter:

# %%
print(plan("Qwen/Qwen3-4B", "t4"))

# %% [markdown]
# The first part is always there. Sampling and learning come one after the other, so the larger of the two counts. When
# it does not fit, the cheapest change comes first. Smaller pieces (`per_device_batch`) cost nearly nothing: the same
# gradient, added up in more parts. A smaller batch is a different training. Here is a wish that is too large for a T4:

# %%
wish = {"load_in_4bit": False, "gradient_checkpointing": False, "batch_size": 64}
said = str(plan("unsloth/gemma-3-4b-it", "t4", **wish))
print(said[said.index("in all") :])

# %% [markdown]
# The same as a command, with your own values and your GPU's memory:
#
# ```bash
# python -m grpo_workbook plan --model Qwen/Qwen3-4B --memory 11.6 --batch-size 64
# ```
#
# How memory grows with the longest completion, and with the size of a group (as many problems in a step):

# %%
from grpo_workbook import figures


def phases(**values):
    """GiB while it samples and while it learns, with what is always there."""
    parts = plan("qwen3-4b", "t4", **values).parts
    sums = {name: sum(sizes.values()) / GIB for name, sizes in parts.items()}
    return sums["always"] + sums["sampling"], sums["always"] + sums["learning"]


longest, groups = [128, 256, 512, 1024, 2048], [2, 4, 8, 16, 32]
sampling, learning = zip(*(phases(max_completion_length=n) for n in longest))
figures.show(
    *figures.line_chart(
        {"sampling": (longest, sampling), "learning": (longest, learning)},
        x="longest completion, tokens",
        y="GiB",
        title="Qwen3-4B on a T4: computed, not measured",
        finding="Both grow with every token; 32 completions are sampled at once.",
        log_x=True,
    )
)

# %% [markdown]
# A larger group fills the KV cache, and leaves learning as it is: that takes `per_device_batch` completions at a time.

# %%
by_group = [phases(num_generations=n, batch_size=4 * n) for n in groups]
print("completions in a group:", groups)
print("GiB while sampling:    ", [round(sampling, 1) for sampling, _ in by_group])
print("GiB while learning:    ", [round(learning, 1) for _, learning in by_group])

# %% [markdown]
# ## Hyper-parameters by GPU
#
# The course has a profile for each of three sizes of GPU. Nobody has tried them yet: they are common values that fit on
# paper. Two of them:

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
# | value | small GPU: why | large GPU: why |
# | --- | --- | --- |
# | `dtype` | float16: a T4 has no bfloat16. Gemma 3, Gemma 4 and Qwen3.5 run into NaN in float16, so Unsloth computes them in 32 bits there | bfloat16: the range of 32 bits, the size of 16 |
# | `load_in_4bit` | yes: from 1.7 B on it makes room | yes; `false` where there is room, for unpacking costs time |
# | `lora_rank` | 32: reinforcement learning needs little | 32, as well |
# | `num_generations` | 8: the fewer, the more zero-variance groups (chapters 01 and 07) | 8; up to 16 with harder problems |
# | `batch_size` | 32: four problems in a step, a noisy gradient | 128: sixteen problems |
# | `per_device_batch` | what fits; the rest is accumulated. Changes nothing but time | 32 |
# | `max_completion_length` | 512: enough for two steps of arithmetic | 1024: reasoning needs room |
# | `learning_rate` | 1e-5: ten times TRL's default, which is for full training; LoRA bears it | 5e-6: smaller for a larger model |
# | `max_steps` | 250: a first answer in an afternoon | 500 |
# | `gradient_checkpointing` | on: without it one completion fills gigabytes | on, with long completions |
# | `vllm` | off: little room beside the training | colocate: samples faster (see below) |
# | `beta` | 0: no reference, no second forward pass | 0; a little where answers must stay fluent |
# | `loss_type` | dapo, see below | dapo |

# %% [markdown]
# ## The loss types of today, on one batch
#
# Two completions: one short and right, one long and wrong. What does each loss type let a single token count, and what
# the whole completion? The gradient says it, in thousandths, with the losses of chapter 01. Two of the names need more
# than `loss_type`: CISPO's cap on the weight is its `epsilon_high` (5 here), and GSPO is `loss_type="grpo"` with one
# ratio for the whole sequence.

# %%
from grpo_workbook import grpo_loss

lengths = (4, 12)
mask = torch.tensor([[1.0] * n + [0.0] * (12 - n) for n in lengths])
A = torch.tensor([1.0, -1.0])


def weights_of(**how):
    """(what a token of each counts, what the whole of each counts), in thousandths."""
    logp = torch.full((2, 12), -1.0, requires_grad=True)
    loss, _ = grpo_loss(logp, A, mask, max_completion_length=16, **how)
    loss.backward()
    gradient = logp.grad.abs() * 1000
    return [float(g[0]) for g in gradient], [float(g.sum()) for g in gradient]


names = {name: {"loss_type": name} for name in ("grpo", "dr_grpo", "bnpo", "dapo")}
names["cispo"] = {"loss_type": "cispo", "epsilon_high": 5.0}
names["gspo"] = {"loss_type": "grpo", "level": "sequence"}
print(f"{'':9}{'a token of':>18}{'the whole of':>20}")
print(f"{'':9}{'short':>9}{'long':>9}{'short':>11}{'long':>9}")
for name, how in names.items():
    token, whole = weights_of(**how)
    print(f"{name:9}{token[0]:9.1f}{token[1]:9.1f}{whole[0]:11.1f}{whole[1]:9.1f}")

# %% [markdown]
# - **GRPO** (arXiv 2402.03300): every completion counts the same, so a token of a long wrong answer is punished less:
#   rambling is cheap.
# - **Dr. GRPO** (2503.20783): every token counts the same, divided by a constant, the largest possible length. It also
#   leaves out the deviation in the advantage (`scale_rewards="none"`).
# - **BNPO**, and **DAPO** (2503.14476): every token counts the same, divided by the number of tokens: `bnpo` by that of
#   each piece that goes through at once, `dapo` by that of the whole step. So they differ only when a step comes in
#   several pieces, or runs in several processes.
# - **CISPO** (2506.13585): as DAPO, but clips the *weight* and not the loss: no token loses its gradient.
# - **GSPO** (2507.18071): one ratio for a completion. At the first update all ratios are 1 and it is GRPO.
#
# What sets the last two apart shows when the policy has moved. Let two tokens of the right answer have become 1.5 and 3
# times as likely:

# %%
moved = torch.zeros(2, 12)
moved[0, 0], moved[0, 1] = torch.log(torch.tensor([1.5, 3.0]))
for name in ("grpo", "dapo", "cispo", "gspo"):
    logp = torch.full((2, 12), -1.0) + moved
    logp.requires_grad_(True)
    old = torch.full((2, 12), -1.0)
    loss, metrics = grpo_loss(
        logp, A, mask, old_logp=old, max_completion_length=16, **names[name]
    )
    loss.backward()
    shown = [round(1000 * abs(float(g)), 1) for g in logp.grad[0, :4]]
    print(f"{name:6} the four tokens of the right answer count {shown}")

# %% [markdown]
# GRPO and DAPO drop the two tokens that went too far (over 1 + 0.2). CISPO keeps them, and lets them count 1.5 and 3
# times as much. GSPO looks at the whole answer: the geometric mean of its four ratios, about 1.46, is over 1.2, so the
# *whole answer* is dropped. (GSPO's own clip range is far narrower, 3e-4 and 4e-4: see chapter 01.)

# %% [markdown]
# ## Several processes
#
# `python -m grpo_workbook run` in two processes, started by torchrun (`--standalone`: one machine, any free port).
# Here both are on the CPU, where they talk through the library gloo; on GPUs the line is the same. Four steps on
# a 16-bit base, to see that they work together:

# %%
import subprocess
import sys

command = [
    sys.executable, "-m", "torch.distributed.run", "--standalone",
    "--nproc_per_node", "2", "-m", "grpo_workbook", "run", "--max-steps", "4",
    "--batch-size", "32", "--heldout", "16", "--load-in-4bit", "false",
    "--output", str(run.output / "two"), "--overwrite",
]
environment = os.environ | {"OMP_NUM_THREADS": "1", "GRPO_WORKBOOK_PROFILE": "smoke"}
environment |= {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
began = time.perf_counter()
done = subprocess.run(command, env=environment, capture_output=True, text=True)
assert done.returncode == 0, done.stderr[-3000:]
print(f"{time.perf_counter() - began:.0f} s with both starts")

# %% [markdown]
# What the run wrote down about it. The reward of a step is the mean over the completions of both processes. Each samples
# with a seed of its own, so the completions are others than in a single process.

# %%
import json

written = json.loads((run.output / "two" / "report.json").read_text())
print("processes:", written["processes"])
log = json.loads((run.output / "two" / "log.json").read_text())
rewarded = [entry for entry in log if "reward" in entry]
print("steps:", len(rewarded), " mean reward of all completions of both:",
      [round(entry["reward"], 2) for entry in rewarded])

# %% [markdown]
# The other launcher, accelerate, reads a file:
#
# ```bash
# accelerate launch --config_file configs/data_parallel.yaml -m grpo_workbook run --config my.yaml
# ```
#
# A launcher can fail without a word: `accelerate launch --cpu --num_processes 2` starts one process, and such a run
# would take twice as long and look fine. `run` refuses to start then. Four files lie in `configs/`; this one gives each
# GPU a whole copy of the model:

# %%
from grpo_workbook import files

configs = files.REPO / "configs"
print((configs / "data_parallel.yaml").read_text())

# %% [markdown]
# | line | what it says |
# | --- | --- |
# | `distributed_type: MULTI_GPU` | data parallel: the model whole on each GPU, gradients averaged |
# | `num_machines`, `machine_rank` | one machine; with several, the same file on each, with its own rank |
# | `num_processes` | one for each GPU. `batch_size` stays what all sample together |
# | `main_process_port: 0` | any free port, so that two runs do not collide |
# | `gpu_ids: all` | or `0,1` |
# | `mixed_precision: 'no'` | the run's `dtype` says it; two places would contradict each other |
# | `rdzv_backend`, `same_network` | how they find each other: fixed addresses, one network |
#
# When the model does not fit on one GPU even with the smallest pieces, the weights themselves are divided among the
# GPUs. Two ways, PyTorch's FSDP (fully sharded data parallel) and DeepSpeed's ZeRO-3; their lines beyond those above:

# %%
import yaml

base = yaml.safe_load((configs / "data_parallel.yaml").read_text())
for name in ("fsdp", "deepspeed_zero3"):
    config = yaml.safe_load((configs / f"{name}.yaml").read_text())
    print(name)
    for key, value in config.items():
        if base.get(key) != value:
            lines = value.items() if isinstance(value, dict) else [("", value)]
            print("\n".join(f"  {key:18}{part:34}{v}" for part, v in lines))

# %% [markdown]
# | FSDP | DeepSpeed | what it says |
# | --- | --- | --- |
# | `fsdp_version: 2` | `zero_stage: 3` | divide weights, gradients and optimizer (stages 1 and 2: not the weights) |
# | `fsdp_reshard_after_forward` | (always) | give the others' weights back after use: that is where the memory is saved |
# | `fsdp_auto_wrap_policy` | (by module) | one unit for each decoder layer: only one is whole at a time |
# | `fsdp_offload_params` | `offload_*_device` | keep them in the host's memory: fits nearly anything, slow |
# | `fsdp_cpu_ram_efficient_loading` | `zero3_init_flag` | the run loads the model whole before it is divided |
# | `fsdp_state_dict_type` | `zero3_save_16bit_model` | checkpoints hold the whole adapter |
# | `fsdp_activation_checkpointing` | (none) | off: the setting `gradient_checkpointing` says it |
# | (above) | `mixed_precision` | DeepSpeed wants it here: bf16, or 'no' on a T4 |
#
# With LoRA this is rarely needed: gradients and optimizer are small, and in 4-bit the weights of an 8 B model take 6
# GiB. And generation pays for it: with FSDP each GPU fetches the others' weights for every token; with ZeRO-3 TRL puts
# the whole model on each GPU while it generates, unless `ds3_gather_for_generation` is off. Unsloth does not divide
# weights, so use `--backend plain`. Neither file has been tried on GPUs yet.

# %% [markdown]
# ## vLLM: who samples the completions
#
# | | how | when |
# | --- | --- | --- |
# | `--vllm off` | `generate` of Transformers, in the training process | no GPU, little memory, a new architecture |
# | `--vllm colocate` | vLLM in the same process, with a part of the GPU (`vllm_gpu_memory`); with Unsloth it uses the same weights | one to eight GPUs |
# | `--vllm server` | TRL's server on GPUs of its own; each step sends it the new weights | long completions, many GPUs |
#
# TRL brings the server as a command, here with two GPUs for it and two for the training:
#
# ```bash
# CUDA_VISIBLE_DEVICES=0,1 trl vllm-serve --model Qwen/Qwen3-4B --tensor_parallel_size 2 --port 8000
# CUDA_VISIBLE_DEVICES=2,3 torchrun --nproc_per_node 2 -m grpo_workbook run --model Qwen/Qwen3-4B \
#     --vllm server --vllm-server 127.0.0.1:8000
# ```
#
# vLLM keeps one pool for all caches, lets waiting completions take the room of finished ones, and replays recorded
# sequences of GPU kernels. Its probabilities differ a little from the trainer's; TRL can correct for that by a weight
# (`vllm_importance_sampling_correction`, which the course turns on with vLLM).
#
# Sampling is what to speed up first. The update sees all tokens at once, and can be divided among many GPUs. A
# completion is written token by token, and each token reads all the weights, whether for one completion or for thirty:
# past some number of GPUs everybody waits for the longest answer. What helps then is not another GPU, but shorter
# completions, more completions in a step, or sampling that runs ahead of the training.

# %% [markdown]
# ## Your own run, as a file
#
# All of this chapter's values fit into one file, and `python -m grpo_workbook run` takes it: on one GPU as it is, on
# several after torchrun or accelerate. `templates/my_project` is a folder to copy, with data, two rewards and this
# file:

# %%
print((files.REPO / "templates" / "my_project" / "my.yaml").read_text())

# %% [markdown]
# ```bash
# python -m grpo_workbook check-data data.jsonl
# python -m grpo_workbook plan --model Qwen/Qwen3-4B --profile t4
# python -m grpo_workbook run --config my.yaml --max-steps 4
# python -m grpo_workbook run --config my.yaml --overwrite
# python -m grpo_workbook diagnose outputs
# ```
#
# In this order: what in the data would hurt; does it fit; does it run at all, in four steps; the run; and what is wrong
# with it, if anything.

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when a formula has drifted from what was
# measured, or the processes did not train.

# %%
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
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 10.1 · `smallest_batch` · easy · 5 minutes
#
# `processes` GPUs take `per_device` completions each at once, in as many rounds as it takes. What is the smallest
# number of completions for a step that fills whole rounds, and consists of whole groups of `group`?

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def smallest_batch(per_device: int, processes: int, group: int) -> int:
    raise NotImplementedError


check("10.1", smallest_batch);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Two numbers must divide it. Which? `math.lcm` finds the smallest such number.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# from math import lcm
#
#
# def smallest_batch(per_device: int, processes: int, group: int) -> int:
#     return lcm(per_device * processes, group)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 10.2 · `kv_cache_bytes` · easy · 5 minutes
#
# Bytes of the KV cache in 16 bits, when `completions` texts hold `tokens` tokens each. Each of the `layers` layers
# keeps, for every token, a key and a value in each of `kv_heads` heads of width `head_dim`.


# %% tags=["exercise"]
def kv_cache_bytes(
    layers: int, kv_heads: int, head_dim: int, tokens: int, completions: int
) -> int:
    raise NotImplementedError


check("10.2", kv_cache_bytes);

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
# ### Exercise 10.3 · `completions_each` · easy · 5 minutes
#
# A step samples `batch` completions in groups of `group`, over `processes` processes. Return how many completions each
# process takes, and how many problems are in the step. Where either does not come out even, raise `ValueError`.


# %% tags=["exercise"]
def completions_each(batch: int, group: int, processes: int) -> tuple[int, int]:
    raise NotImplementedError


check("10.3", completions_each);

# %% [markdown]
# <details><summary>Hint</summary>
#
# `batch` must be a multiple of `group`, and of `processes`. A group may lie on two processes.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def completions_each(batch: int, group: int, processes: int) -> tuple[int, int]:
#     if batch % group or batch % processes:
#         raise ValueError(f"{batch} is no multiple of {group} and of {processes}")
#     return batch // processes, batch // group
# ```
#
# </details>

# %% [markdown]
# ### Exercise 10.4 · `nf4_bytes` · medium · 8 minutes
#
# NF4 with double quantization: a weight takes 4 bits. Each block of 64 weights has a scale of 8 bits. Every 256 of
# these scales have one of their own together, of 32 bits. How many bytes do `weights` weights take? Blocks that are not full
# count in proportion, so the result may be a fraction.


# %% tags=["exercise"]
def nf4_bytes(weights: int) -> float:
    raise NotImplementedError


check("10.4", nf4_bytes);

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
# ### Exercise 10.5 · `largest_that_fits` · medium · 8 minutes
#
# A GPU has `memory` GiB, of which 92 % can be used. `needed` says what each model takes, in GiB. Return the name of the
# one that takes most among those that fit, and `None` when none fits.


# %% tags=["exercise"]
def largest_that_fits(memory: float, needed: dict[str, float]) -> str | None:
    raise NotImplementedError


check("10.5", largest_that_fits);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Keep those that fit. `max` takes a `key` to compare by, and a `default` for when nothing is left.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def largest_that_fits(memory: float, needed: dict[str, float]) -> str | None:
#     fitting = [name for name, gib in needed.items() if gib <= 0.92 * memory]
#     return max(fitting, key=needed.get, default=None)
# ```
#
# </details>

# %% [markdown]
# ## Summary
#
# - Memory is weights, adapters, activations, logits and KV cache. Generation and update come one after the other, and
#   the larger of the two counts.
# - 4-bit shrinks the projections, LoRA the optimizer, checkpointing the activations. The KV cache grows with the whole
#   batch, the activations with what goes through at once.
# - What does not fit: first smaller pieces, then checkpointing and 4-bit, then a smaller batch or shorter answers.
# - The batch over all processes is whole groups, and advantages are computed over all of them.
# - Sampling takes the time: vLLM first, then more GPUs.
# - `python -m grpo_workbook plan` does the sums. Until someone has measured them on a GPU, they are only sums.
#
# Next: your own project. Copy [templates/my_project](../templates/my_project/README.md), put in your data, your rewards
# and your values, and run `python -m grpo_workbook run --config my.yaml`. [Chapter 00](00_start_here.ipynb) has the
# map.
