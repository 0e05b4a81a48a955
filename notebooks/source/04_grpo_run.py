# %% [markdown]
# # 04 · A GRPO run you can trust
#
# **After this notebook you can** load a model in 4 bits, give it LoRA adapters, train it with GRPO through Unsloth and
# TRL, and say with an interval and a paired test whether it improved on problems it never saw.
#
# **Time:** about 4 minutes on two CPU cores (smoke profile), up to twice that on one core or a busy machine. On a GPU
# the same cells train Qwen3 or Gemma 3. On a T4, Qwen3-1.7B would train for about 4 hours and be measured for up to one:
# computed from the profile, not measured. For minutes there too, set `GRPO_WORKBOOK_PROFILE=smoke` before the
# next cells (`%env GRPO_WORKBOOK_PROFILE=smoke`): it takes the tiny model.
#
# The whole run is also one command: `make run`, or `python -m grpo_workbook run --help`.

# %% [markdown]
# ## The settings of this run
#
# GRPO needs a model that is right *sometimes* (chapter 00). `RunConfig` chooses device, profile and model, and says why.
# `GRPO_WORKBOOK_PROFILE` and `GRPO_WORKBOOK_MODEL` in the environment override it.

# %%
from grpo_workbook.run_config import RunConfig

run = RunConfig.from_env()
print(run)

# %% [markdown]
# Import Unsloth first, because it can patch TRL and Transformers only before they are loaded.

# %%
import os

from grpo_workbook import quiet

quiet()  # no loading bars, no advice
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed

import unsloth

# %% [markdown]
# ## What is different on a GPU
#
# The code is the same on both machines, but the trainer is not. On a GPU `import unsloth` replaces TRL's trainer. On a CPU
# it leaves GRPO to TRL. That is why the line that it prints there says "with SFTTrainer": Unsloth's CPU backend adapts
# supervised fine-tuning and promises nothing else. GRPO works on it because it is TRL's own code.

# %%
from trl import GRPOTrainer

print(GRPOTrainer.__name__, "from", GRPOTrainer.__module__)

# %% [markdown]
# | | CPU | GPU, with Unsloth |
# | --- | --- | --- |
# | trainer class | TRL's `GRPOTrainer` | `UnslothGRPOTrainer`, generated from TRL's source into `unsloth_compiled_cache/` |
# | loss | TRL's | `grpo_compute_loss` of unsloth_zoo, compiled |
# | log-probabilities | TRL's code, with one PyTorch function of Unsloth's in place of TRL's Triton kernel | computed from the last hidden states, a chunk at a time |
# | reference model when `beta` > 0 | a frozen copy of the adapters, made with the trainer | the base model, with the adapters switched off |
# | number format of the adapters | bfloat16 when the base is in 4 bits; this course undoes that (see "Training") | float32 |
# | settings that change by themselves | 8-bit optimizers become AdamW | `dr_grpo` turns `scale_rewards` off; a batch smaller than a group grows |
# | logged | `entropy`; `kl` only when `beta` > 0 | `kl` always, no `entropy` |
#
# The table was read from `unsloth/models/rl.py`, `unsloth_zoo/rl_replacements.py` and `unsloth/_cpu_init.py`. Expect a GPU
# run to learn like a CPU run, not to repeat its numbers. [Chapter 07](07_stages_and_curriculum.ipynb) comes back to the reference.

# %% [markdown]
# ## The problems
#
# These are word problems of one and two steps in GSM8K's form: the answer ends in `#### N`. The held-out problems share no
# combination of template and numbers with the training problems. In a GPU's profile they are GSM8K itself.

# %%
from grpo_workbook import data, load_problems, to_dataset

train_rows, heldout_rows, _ = data.load_split(
    heldout=run.heldout, seed=run.seed, profile_name=run.profile
)
print(len(train_rows), "to train on,", len(heldout_rows), "held out\n")
print(train_rows[0]["question"], "\n" + train_rows[0]["solution"])

# %% [markdown]
# TRL wants a `prompt`, here a conversation. It passes every other column to the reward functions, which need `answer`.

# %%
train_set, heldout_set = to_dataset(train_rows), to_dataset(heldout_rows)
train_set[0]

# %% [markdown]
# ## The model, in 4 bits, with adapters
#
# The base model's weights are stored in NF4, a 4-bit format made for normally distributed weights, and never change.
# `dtype` is the number format of the arithmetic and of everything in the base that is not quantized. ("Chunked CE" in
# Unsloth's line saves memory in supervised fine-tuning.)

# %%
import torch
from grpo_workbook import models, sample_unpacked
from unsloth import FastLanguageModel, FastModel

torch.manual_seed(run.seed)
loader, part, sees = FastLanguageModel, {}, models.text_part(run.model)
if sees:  # a checkpoint that sees as well: its text part
    loader, part = FastModel, sees if run.device == "cpu" else {"text_only": True}
vllm = {}
if run.vllm == "colocate":  # only on a GPU: vLLM samples, and shares the weights
    vllm = {"fast_inference": True, "max_lora_rank": run.lora_rank,
            "gpu_memory_utilization": run.vllm_gpu_memory}
model, tokenizer = loader.from_pretrained(
    model_name=run.model,
    use_exact_model_name=True,  # these weights, not others that are in 4 bits already
    max_seq_length=run.max_prompt_length + run.max_completion_length,
    dtype=getattr(torch, run.dtype),
    load_in_4bit=run.load_in_4bit,
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
    **part,
    **vllm,
)

# %% [markdown]
# What learns is a pair of thin matrices A and B beside each frozen one: low-rank adaptation,
# [LoRA](https://arxiv.org/abs/2106.09685). The rank `r` says how thin. Their product is scaled by `lora_alpha / r`; a factor of 2 is a
# convention. Adapting all seven projections of a layer learns more than attention alone
# ([QLoRA](https://arxiv.org/abs/2305.14314) measured it). On a CPU `sample_unpacked` makes one matrix of each layer and its
# adapter while the model generates, which takes half the time; training uses the 4-bit weights.

# %%
model = loader.get_peft_model(
    model,
    r=run.lora_rank,
    lora_alpha=2 * run.lora_rank,
    lora_dropout=0.0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
                    "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
    random_state=run.seed,
    **({"finetune_vision_layers": False} if sees else {}),
)
tokenizer.padding_side = "left"  # the model continues its prompt: padding comes before
sample_unpacked(model)  # only for a small model on a CPU

# %% [markdown]
# Check the result, because a layer that cannot be quantized stays in 16 bits without an error:

# %%
from grpo_workbook import training

per_layer = 7  # the projections named above
expected = model.config.num_hidden_layers * per_layer
print(training.count_4bit_layers(model), "of", expected, "linear layers in 4-bit")
print(f"{model.get_nb_trainable_parameters()[0]:,} adapter weights will learn")

# %% [markdown]
# Now look inside one layer. NF4 stores weights in **blocks** of 64. Each weight becomes one of 16 levels from -1 to 1, which
# takes 4 bits. The block's scale, its largest magnitude, is stored once, in 8 bits.

# %%
from bitsandbytes.functional import dequantize_4bit
from peft.tuners.lora.bnb import Linear4bit

layer = next(m for m in model.modules() if isinstance(m, Linear4bit))
packed = layer.base_layer.weight
W = dequantize_4bit(packed.data, packed.quant_state).float()
A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
block = W.flatten()[:64]
scale = block.abs().max().item()
levels = (block / scale).unique()
print(f"{W.numel():,} weights in {packed.numel():,} bytes and {W.numel() // 64} scales")
print(len(levels), "of the 16 levels occur in the first block")
print(f"A and B: {A.numel() + B.numel():,} weights, B all zero: {not B.any()}")

# %% [markdown]
# B starts at zero, so the adapters change nothing until the first update. From then on the layer computes `W x + 2 B A x`.

# %% tags=["hide-input"]
from grpo_workbook import figures
from matplotlib.patches import Rectangle

figure, (axes,) = figures.new_panels(8.0, 3.7)
strip = (block / scale).reshape(1, 64).cpu().numpy()
axes.imshow(strip, cmap="PuOr", extent=(0, 6.4, 3.1, 3.5), vmin=-1, vmax=1)
for x, y, wide, high, colour, words in [
    (6.8, 3.1, 0.9, 0.4, "number", f"{scale:.3f}"),
    (0, 0, 2.4, 2.4, "off", f"W\n{W.shape[0]} x {W.shape[1]}\nNF4, frozen"),
    (3.6, 0, 0.6, 2.4, "data", f"B\n\n{B.shape[0]}\nx\n{B.shape[1]}"),
    (4.5, 0.9, 2.4, 0.6, "data", f"A     {A.shape[0]} x {A.shape[1]}"),
]:
    look = {"facecolor": figures.PALE[colour], "edgecolor": figures.GREY}
    axes.add_patch(Rectangle((x, y), wide, high, **look))
    axes.text(x + wide / 2, y + high / 2, words, ha="center", va="center")
axes.add_patch(Rectangle((0, 2.3), 1.2, 0.1, color=figures.ORANGE))
axes.plot([0, 0], [2.4, 3.1], [1.2, 6.4], [2.4, 3.1], color=figures.GREY, lw=0.8)
axes.text(0, 3.58, "one block of W: 64 weights of 4 bits, purple above 0, orange below")
axes.text(6.8, 3.58, "its scale, 8 bits")
axes.text(3.0, 1.2, "+ 2 x", ha="center", va="center")
axes.text(4.5, 0.4, "A and B learn, B from 0", color=figures.BLUE)
axes.set(xlim=(-0.1, 8.1), ylim=(-0.1, 3.9), aspect="equal")
axes.set_title("W stays in 4 bits and never changes; A and B learn")
axes.axis("off")
figures.show(figure, "A frozen square W; one block of 64 weights is enlarged as a strip"
             f" with its scale {scale:.3f}. Beside W stand the thin B and A.")

# %% [markdown]
# TRL does not truncate prompts, so drop those that are too long. This is the text that the model reads:

# %%
from grpo_workbook import drop_long_prompts, render

train_set, dropped = drop_long_prompts(train_set, tokenizer, run.max_prompt_length)
print(dropped, "dropped\n")
print(render([train_set[0]["prompt"]], tokenizer)[0])

# %% [markdown]
# <details><summary>The same without Unsloth: plain Transformers, PEFT and TRL</summary>
#
# ```python
# from peft import LoraConfig
# from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
# from trl import GRPOConfig, GRPOTrainer
#
# quantization = BitsAndBytesConfig(
#     load_in_4bit=True, bnb_4bit_quant_type="nf4",
#     bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16,
# )
# model = AutoModelForCausalLM.from_pretrained(
#     "Qwen/Qwen3-1.7B", dtype=torch.bfloat16, quantization_config=quantization
# )
# tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen3-1.7B", padding_side="left")
# adapters = LoraConfig(
#     r=32, lora_alpha=64, target_modules="all-linear", task_type="CAUSAL_LM"
# )
# args = GRPOConfig(
#     "outputs", max_steps=250, learning_rate=1e-5, num_generations=8,
#     per_device_train_batch_size=8, gradient_accumulation_steps=4,
#     max_completion_length=512, logging_steps=1, reward_weights=weights,
#     chat_template_kwargs={"enable_thinking": False},
# )
# trainer = GRPOTrainer(
#     model=model, processing_class=tokenizer, peft_config=adapters, args=args,
#     reward_funcs=functions, train_dataset=train_set,
# )
# ```
#
# (`weights` and `functions` are made below.) On a T4 write float16 in both places and `bf16=False, fp16=True`. TRL makes
# these adapters itself and casts them to bfloat16 (see "Training"). Once the trainer is built, set
# `p.data = p.data.float()` for each parameter `p` that learns: rounding does no harm before the first step.
#
# `python -m grpo_workbook run --backend plain` runs it on a GPU, but not on a
# CPU, because TRL 1.15 computes log-probabilities in a Triton kernel.
#
# Processors with AVX512-BF16 hold another trap. At the first generation bitsandbytes 0.50 repacks a layer's 4-bit weights,
# and no gradient flows back through the layer any more. The reward still rises, only less, because other layers learn.
# Unsloth and our plain backend switch the repacking off.
#
# </details>

# %% [markdown]
# ## The rewards
#
# A reward function gets the completions and the dataset's columns, and returns a number for each completion. These three,
# from [chapter 03](03_reward_design.ipynb), return 0 to 1: for the right number, for perfect form, for parts of the form.

# %%
from grpo_workbook import parse_rewards

functions, weights = parse_rewards(run.rewards)
names = [f.__name__.removesuffix("_reward") for f in functions]
print(dict(zip(names, weights)))

# %% [markdown]
# Test them on completions that you know before you train. GRPO compares the weighted totals.

# %%
samples = {
    "right": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "no tags": "6*7=42. The answer is 42.",
    "half the form": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "wrong number": "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>",
    "two answers": "<answer>41</answer><answer>42</answer>",
}
print(f"{'':15}", *[f"{name:>20}" for name in names], f"{'total':>7}")
for name, text in samples.items():
    values = [f(completions=[text], answer=["42"])[0] for f in functions]
    total = sum(w * v for w, v in zip(weights, values))
    print(f"{name:15}", *[f"{v:20.2f}" for v in values], f"{total:7.2f}")

# %% [markdown]
# ## The baseline
#
# Without a baseline no later number means anything. *Strict* counts answers that are right and well-formed; *lenient*
# accepts any readable form. *Sampled* uses temperature 1, as training does; *greedy* takes the most likely token. Each rate
# has its 95 % interval (Wilson's).

# %%
from grpo_workbook import evaluate

how = {"max_new_tokens": run.max_completion_length,
       "batch_size": run.eval_batch, "seed": run.seed}
before_sampled = evaluate(model, tokenizer, heldout_set, sample=True, **how)
before_greedy = evaluate(model, tokenizer, heldout_set, **how)
print("sampled,", before_sampled)
print("greedy, ", before_greedy)

# %% [markdown]
# Greedily the model gets the number right in 99 % but the form in 46 %: it can do the arithmetic and misses the form.
# Read some sampled completions to see how:

# %%
for completion in before_sampled.completions[1:5]:
    print(completion, end="\n---\n")

# %% [markdown]
# ## The configuration
#
# TRL and Unsloth have different defaults, so write down every value of the algorithm:

# %%
algorithm = {
    "max_steps": run.max_steps,
    "num_generations": run.num_generations,  # completions of one problem: its group
    "num_iterations": 1,  # each completion is used for one update
    "max_completion_length": run.max_completion_length,  # longer ones are cut off
    "mask_truncated_completions": False,  # and still count
    "temperature": run.temperature,  # 1 samples from the policy as it is,
    "top_p": 1.0, "top_k": 0, "repetition_penalty": 1.0,  # with nothing cut off
    "chat_template_kwargs": {"enable_thinking": False},  # Qwen3: an empty <think> block
    "loss_type": run.loss_type, "scale_rewards": run.scale_rewards,
    "importance_sampling_level": "token", "epsilon": 0.2, "epsilon_high": 0.2,
    "beta": run.beta,  # 0: no KL penalty, so no reference model
    "learning_rate": run.learning_rate,
    "warmup_steps": 5,  # AdamW's first estimates rest on few gradients: start small
    "lr_scheduler_type": "linear",  # down to 0 at the last step
    "adam_beta2": 0.99,  # averages over about 100 steps; 1,000 would outlast the run
    "weight_decay": 0.0,  # A and B start where they change nothing
    "max_grad_norm": 1.0,
}

# %% [markdown]
# Precision, memory, checkpoints and vLLM depend on the machine. `to_grpo_config` adds them and makes TRL's `GRPOConfig`.

# %%
args = run.to_grpo_config(weights, algorithm)
print("completions at once:", args.per_device_train_batch_size)
print("batches accumulated for an optimizer step:", args.gradient_accumulation_steps)
print("precision:", "bf16" if args.bf16 else "fp16" if args.fp16 else "float32")

# %% [markdown]
# | setting | what it does | 16 GB GPU | 80 GB GPU |
# | --- | --- | --- | --- |
# | `num_generations` | size of the group. Larger: steadier advantages, fewer zero-variance groups, more time | 8 | 8 to 16 |
# | batch size | completions in an optimizer step. Smaller: noisier gradient, faster steps | 32 | 32 to 128 |
# | `per_device_train_batch_size` | completions in memory at once; the gradient is accumulated | 4 to 8 | 16 to 32 |
# | `max_completion_length` | most of the time and memory. Too short: answers are cut off before they earn anything | 512 | 1024 and more |
# | `learning_rate` | **LoRA: start at 1e-5, try 5e-5. Full fine-tuning: 1e-6.** Independent of the GPU | 1e-5 | 1e-5 |
# | LoRA `r` | what the adapters can express. Reinforcement learning needs little | 32 | 32 |
# | `beta` | weight of the KL penalty. 0 needs no reference model | 0 | 0 to 0.04 |
# | gradient checkpointing | recomputes activations: less memory, more time | on | on for long answers |
# | vLLM (`fast_inference=True`) | generates several times faster, on a GPU only | if memory allows | on |
#
# The learning rates come from TRL's page [LoRA Without Regret](https://huggingface.co/docs/trl/main/en/lora_without_regret): 1e-5 (3B) and
# 5e-5 (0.6B) with LoRA, 1e-6 for all weights. With a fixed `lora_alpha` the best rate hardly depends on the rank. The tiny
# model, with less than a million weights, takes 1e-3. That page advises fewer than 32 completions in a step with LoRA:
# larger batches, as in the table, are common, but not supported by it.
#
# `loss_type="dapo"` is only DAPO's way to count tokens (chapter 01). The rest of DAPO is off here.
#
# Batch sizes count **completions**: `per_device_train_batch_size x gradient_accumulation_steps x processes` must be whole
# groups. A batch of 4 with groups of 8, as in older guides, raises a `ValueError` in TRL (on a GPU, Unsloth enlarges
# it). TRL's `max_prompt_length` no longer exists.
#
# The GPU columns are common values, not measured here. Chapter 10 computes the memory that they take.

# %% [markdown]
# ## Training
#
# Each optimizer step is one round of this loop:

# %% tags=["hide-input"]
n, problems, colours = run.batch_size, run.prompts_per_step, figures.PALE
weights_moved = f"{model.get_nb_trainable_parameters()[0]:,}"
boxes = {
    "problems": (0.07, 0.68, f"{problems}\nproblems", colours["data"]),
    "policy": (0.33, 0.68, "policy:\n4-bit base + adapters", colours["model"]),
    "rewards": (0.66, 0.68, f"{len(functions)} reward\nfunctions", colours["check"]),
    "total": (0.9, 0.68, f"{n} rewards in\n{problems} groups", colours["number"]),
    "advantages": (0.9, 0.16, f"{n}\nadvantages", colours["number"]),
    "loss": (0.62, 0.16, "loss over\nall tokens", colours["number"]),
    "adamw": (0.33, 0.16, f"AdamW moves\n{weights_moved} weights", colours["model"]),
}
arrows = [
    ("problems", "policy", ""),
    ("policy", "rewards", f"{problems} x {run.num_generations}\ncompletions"),
    ("rewards", "total", "weighted\nsum"),
    ("total", "advantages", "minus the group's\nmean, over its std"),
    ("advantages", "loss", ""),
    ("loss", "adamw", "gradient"),
    ("adamw", "policy", f"next of {run.max_steps} steps"),
]
figure = figures.diagram(boxes, arrows, (8.4, 3.0))
figure.suptitle(f"One optimizer step: {n} completions, one move of the adapters")
figures.show(figure, f"A loop: {problems} problems go to the policy, which samples {n} "
             "completions; rewards, advantages and the loss lead to AdamW and back.")

# %% [markdown]
# TRL's trainer runs the loop. Building it has a side effect: when the base is quantized, TRL 1.15 casts the adapters to
# **bfloat16**. Unsloth removes that on a GPU. Keep the weights and put them back, so that what learns is float32 on both
# machines:

# %%
adapters = {p: p.data for p in model.parameters() if p.requires_grad}
trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    args=args,
    reward_funcs=functions,
    train_dataset=train_set,
)
print("adapters when the trainer is built:", {p.dtype for p in adapters})
for p, exact in adapters.items():
    p.data = exact  # not p.data.float(): the cast has rounded the weights
print("adapters when it trains:          ", {p.dtype for p in adapters})

# %% [markdown]
# A float32 adapter takes 16 bytes for each weight, 4 each for weight, gradient and AdamW's two moments; in bfloat16 it is 8.
# But bfloat16 has only two to three significant digits, so an update that is small beside its weight is rounded away.
# AdamW's updates are about as large as the learning rate. So count the lost updates of the matrix A:

# %%
def lost(dtype: torch.dtype, rate: float) -> float:
    """The fraction of A's weights that an update of this size leaves as they are."""
    a = A.detach().to(dtype)
    return (a - rate == a).float().mean().item()


rates = [10 ** (k / 8) for k in range(-48, -15)]
figure, (axes,) = figures.new_panels(7.0, 3.2)
for dtype, colour in ((torch.bfloat16, figures.GREY), (torch.float32, figures.BLUE)):
    fractions = [lost(dtype, rate) for rate in rates]
    axes.plot(rates, fractions, color=colour, lw=2)
    name = str(dtype).removeprefix("torch.")
    axes.text(rates[0], fractions[0] + 0.03, name, color=colour)
marks = {1e-5: "LoRA on a\nlarge model", run.learning_rate: "this run"}
for rate, words in marks.items():
    axes.axvline(rate, color="black", ls=":", lw=1)
    axes.text(rate * 1.1, 0.4, words)
at_1e5 = f"{lost(torch.bfloat16, 1e-5):.0%}"
axes.set(xscale="log", ylim=(-0.05, 1.12), ylabel="fraction of updates lost",
         xlabel="size of an update (about the learning rate)",
         title=f"At 1e-5 bfloat16 rounds away {at_1e5} of the updates of A")
figures.show(figure, "Line chart: rounding removes a fraction of the updates of A, "
             f"{at_1e5} in bfloat16 at a rate of 1e-5; in float32 it is 0.")

# %% [markdown]
# At this run's 1e-3 no update is lost, only rounded. At 1e-5 (TRL without Unsloth on a GPU, say) A would hardly move, and
# only B would learn, because it starts at 0.
#
# Now train. The progress bar shows the mean weighted reward, at most 3. If you interrupt the kernel, the step under way is
# finished and a checkpoint is saved.

# %%
from transformers import PrinterCallback
from grpo_workbook.resume import stop_on_interrupt

trainer.remove_callback(PrinterCallback)
trainer.add_callback(training.RewardBar())
with stop_on_interrupt(trainer):
    result = trainer.train()

# %% [markdown]
# Watch the reward, not the loss. Advantages are centred within each group, so the loss stays near 0 throughout; only its
# gradient matters. Each line is the mean over a tenth of the steps.

# %%
from statistics import mean

log = [entry for entry in trainer.state.log_history if "reward" in entry]
length = "completions/mean_length"
length = length if length in log[0] else "completion_length"  # TRL's, Unsloth's
columns = {"reward": "reward", "loss": "loss", "grad_norm": "gradient norm",
           "frac_reward_zero_std": "zero variance", length: "tokens"}
print(f"{'steps':>9}", *[f"{name:>14}" for name in columns.values()])
tenth = max(1, len(log) // 10)
for start in range(0, len(log), tenth):
    part = log[start : start + tenth]
    values = [mean(entry[key] for entry in part) for key in columns]
    steps = f"{part[0]['step']:4}-{part[-1]['step']:4}"
    print(steps, *[f"{value:14.3f}" for value in values])

# %% [markdown]
# The model learns the form first, because it is the same for every problem. Then the reward rises slowly, as mistakes in
# the sampled arithmetic become rarer, and more and more groups have zero variance, because all of their completions are
# right. In the figure only the total is weighted; pale lines are single steps.

# %%
figure, words = figures.reward_curves(log)
first, last = (mean(entry["reward"] for entry in part) for part in (log[:5], log[-5:]))
rise = f"{first:.1f} to {last:.1f} of 3"
figure.axes[0].set_title(f"Form first, then fewer mistakes: {rise}")
figures.show(figure, words)

# %% [markdown]
# ## Did it learn?
#
# The training reward cannot tell, because the model may have exploited it or memorized the problems. Held-out problems
# can. The black bars are 95 % intervals.

# %%
from grpo_workbook.evaluation import report_heldout

after_sampled = evaluate(model, tokenizer, heldout_set, sample=True, **how)
after_greedy = evaluate(model, tokenizer, heldout_set, **how)
results = report_heldout({"sampled": before_sampled, "greedy": before_greedy},
                         {"sampled": after_sampled, "greedy": after_greedy})
figure, words = figures.before_after(results)
gain = f"{before_sampled.rate:.0%} to {after_sampled.rate:.0%}"
figure.axes[0].set_title(f"{len(heldout_set)} held-out problems: {gain} strict")
figures.show(figure, words)

# %% [markdown]
# All numbers after training, as those before it stood above:

# %%
print("sampled,", after_sampled)
print("greedy, ", after_greedy)

# %% [markdown]
# Greedily, the number was right in 99 % before training (*lenient*), and that did not rise. So the model learned no
# new arithmetic. It learned the form, and its *sampled* answers came closer to the greedy ones.
#
# Could that be chance? If training had no effect, a problem whose outcome changed would be as likely to get better as worse,
# like a coin. McNemar's exact test computes how often a coin would give such a result.

# %%
from grpo_workbook import paired_p_value, wilson_interval

print("strict, sampled, 95 % interval before:", wilson_interval(before_sampled.strict))
print("strict, sampled, 95 % interval after: ", wilson_interval(after_sampled.strict))
p_value = paired_p_value(before_sampled.strict, after_sampled.strict)
print(f"p = {p_value:.1g}")

# %% [markdown]
# ## Keep it: the adapter, and the merged model
#
# The adapter is small, but needs its base. Merging it into 4-bit weights would round them again, so `merge` loads the base
# unquantized, adds the adapter, and saves one 16-bit model that plain Transformers can load.

# %%
from accelerate.utils.memory import clear_device_cache
from grpo_workbook import merge, save_adapter

save_adapter(model, tokenizer, run.output / "adapter")
steps, learned_in = trainer.state.global_step, {p.dtype for p in adapters}
in_4bit = training.count_4bit_layers(model)
if hasattr(model, "vllm_engine"):  # it holds its part of the GPU to its end
    from unsloth_zoo.vllm_utils import delete_vllm

    delete_vllm(model.vllm_engine)
del model, trainer, adapters, p, exact, layer, packed, W, A, B, block
clear_device_cache(garbage_collection=True)

# %% [markdown]
# The trained policy is on disk, and no longer in memory: on a GPU the 16-bit models need the room.

# %%
folder = run.output / "merged"
proof = merge(run.model, run.output / "adapter", folder, heldout=heldout_set,
              policy=after_greedy, max_new_tokens=run.max_completion_length,
              batch_size=run.eval_batch)

# %% [markdown]
# The proof is in the logits. On the same tokens the merged model must give those of the 16-bit base with its adapter beside
# it. Rounding to 16 bits moves them a little, but the most likely token should stay. `merge` writes nothing that fails
# this test, or that answers the held-out problems worse than the policy. `heldout` compares the policy (before) with the
# merged model (after).

# %%
proof

# %% [markdown]
# That proves the merge. It does not prove that an adapter trained on the *4-bit* base works as well on the unquantized
# base, which is another model. So `merge` also lets what you would ship answer the held-out problems:

# %%
greedy = proof["heldout"]["strict"]
print(f"4-bit with adapter: {greedy['before']:.1%} strict, greedy")
print(f"merged, 16-bit:     {greedy['after']:.1%}")

# %% [markdown]
# Here are its answers to five held-out questions:

# %%
for row, text in zip(heldout_set, proof["merged_answers"]):
    print(f"{row['question']}  (right: {row['answer']})")
    print("   ", " ".join(text.split()))

# %% [markdown] tags=["remove-cell"]
# This cell is for the automatic run on every change: it fails if training did not happen or did not help.

# %% tags=["remove-cell"] jupyter={"source_hidden": true}
import json

run.output.mkdir(parents=True, exist_ok=True)
proved = {"steps": steps,
          "heldout": results, "p_value": p_value, "merge": proof,
          "linear4bit_layers": in_4bit}
(run.output / "notebook.json").write_text(json.dumps(proved, indent=2))
assert steps == run.max_steps and len(log) == run.max_steps
assert all(entry["step_time"] > 0 for entry in log)
assert learned_in == {torch.float32}, "not the weights that were meant"
if run.profile == "smoke":
    assert after_sampled.rate > before_sampled.interval[1] and p_value < 1e-6, "no gain"
    assert proof["same_greedy_tokens"] > 0.99, "the merged model is a different one"
    assert greedy["after"] > after_greedy.rate - 0.05

# %% [markdown]
# ## Exercises
#
# Two functions and two experiments. An experiment runs only after you have written a prediction.
# The table in chapter 00 counts what you have solved. Load the trained policy again for them, from its adapter:

# %%
from grpo_workbook import load_model

where = {"dtype": run.dtype, "device": run.device, "load_in_4bit": run.load_in_4bit}
model, tokenizer = load_model(run.model, run.output / "adapter", **where)

# %% [markdown]
# ### Exercise 04.1 · `accumulation_steps` · easy · 5 minutes
#
# An optimizer step needs `batch_size` completions. Each process handles `per_device_batch` of them at a time. How many
# accumulation steps does each process need? Raise `ValueError` if the groups or the batches do not divide evenly.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def accumulation_steps(
    batch_size: int, per_device_batch: int, processes: int, num_generations: int
) -> int:
    raise NotImplementedError


check("04.1", accumulation_steps);

# %% [markdown]
# <details><summary>Hint</summary>
#
# All processes together handle `per_device_batch * processes` completions at a time. Two numbers must divide
# `batch_size`.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def accumulation_steps(
#     batch_size: int, per_device_batch: int, processes: int, num_generations: int
# ) -> int:
#     at_once = per_device_batch * processes
#     if batch_size % num_generations or batch_size % at_once:
#         raise ValueError(f"{batch_size} is no multiple of {num_generations} and {at_once}")
#     return batch_size // at_once
# ```
#
# </details>

# %% [markdown]
# ### Exercise 04.2 · `lora_parameters` · easy · 5 minutes
#
# Beside a frozen weight of `inputs x outputs`, LoRA of rank r puts A (r x inputs) and B (outputs x r). How many
# weights learn, for a list of `(inputs, outputs)`?

# %% tags=["exercise"]
def lora_parameters(shapes: list[tuple[int, int]], rank: int) -> int:
    raise NotImplementedError


check("04.2", lora_parameters);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Each pair adds `rank * inputs + outputs * rank`. Compare with the number printed above: take
# `[(m.in_features, m.out_features) for n, m in model.named_modules() if n.endswith("base_layer")]` and rank 16.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def lora_parameters(shapes: list[tuple[int, int]], rank: int) -> int:
#     return sum(rank * (inputs + outputs) for inputs, outputs in shapes)
# ```
#
# </details>

# %% [markdown]
# ### Exercise 04.3 · `rank_one` · medium · 6 minutes
#
# Reinforcement learning needs little rank, says the table. Test it: train the base again with rank 1, so that 8,192 weights
# learn, not 131,072, on the same problems with the same learning rate. After 15 steps (half a minute), has the reward risen
# `"as fast"` as in the run above (at least 80 % of its gain), `"slower"`, or `"not at all"` (less than 20 %)?

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "as fast", "slower" or "not at all"


def rank_one() -> dict:
    """15 steps with thinner adapters: change what you like, one thing at a time."""
    small = run.replace(lora_rank=1, max_steps=15, output=run.output / "rank_one")
    fresh, _ = training.load_policy(small)
    # the rate does not fall within the 15 steps, as it hardly does in the run above
    other = {"lr_scheduler_type": "constant_with_warmup", "save_strategy": "no"}
    again = training.make_trainer(
        small, fresh, tokenizer, train_set, functions, weights, other)
    again.train()
    rewards = [e["reward"] for e in again.state.log_history if "reward" in e]
    return {"rank_1": rewards, "run": [e["reward"] for e in log[: len(rewards)]]}


predict("04.3", prediction, rank_one);

# %% [markdown]
# <details><summary>Hint</summary>
#
# AdamW moves every weight of A and B by about the learning rate, whatever the rank. The layer changes by `2 B A`, a sum of r
# products, and with `lora_alpha = 2 r` the factor stays 2. How many products push in the same direction?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "slower"
# ```
#
# The sum has one product instead of 16, so the same learning rate changes the layer less. That is the pace, not the limit: a
# fixed `lora_alpha` of 32, as in TRL's recipe, would give thin adapters a larger factor. Try `learning_rate=4e-3`.
#
# </details>

# %% [markdown]
# ### Exercise 04.4 · `my_problems` · medium · 10 minutes
#
# Does the gain hold on *your* problems? Write some. The default has the training's form with larger numbers: sums from 44 to
# 129, where most numbers in the training questions are below 20. The cell answers each problem without and with the
# adapters. Will the trained model be right and well-formed on `"more"` of them, on `"fewer"`, or is there `"no difference"`
# (p of the paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def my_problems() -> dict:
    """The base model against the trained one, on problems of your own."""
    question = "Ada has {} pears and finds {} more. How many pears does Ada have now?"
    rows = [{"question": question.format(a, b), "answer": str(a + b)}
            for a in range(30, 86, 7) for b in (14, 26, 38, 50)]
    # YOUR PROBLEMS: rows = load_problems("my_problems.jsonl")
    mine = to_dataset(rows)
    with model.disable_adapter():
        base = evaluate(model, tokenizer, mine, sample=True, **how)
    trained = evaluate(model, tokenizer, mine, sample=True, **how)
    print(trained.completions[0])
    return {"before": base.strict, "after": trained.strict}


predict("04.4", prediction, my_problems);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Form and sum must both be right. Which of them did training change, and can the base model do such sums at all?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "no difference"
# ```
#
# Read the printed completion. The form carries over to the new problems, but the model never learned sums of this size.
#
# </details>

# %% [markdown]
# ## A script to copy
#
# The command `run` (`grpo_workbook/cli/run.py`) does the same with your own data and rewards, and takes any field of
# `RunConfig` or TRL's `GRPOConfig` by its name. To start, `python -m grpo_workbook new my_project` makes [a project](../templates/my_project/README.md)
# that trains: data, two reward functions with their tests, a YAML file per machine.
#
# ```bash
# python -m grpo_workbook run --model gemma --seed 1 --output_dir outputs/gemma
# python -m grpo_workbook run --data my_problems.jsonl --max_steps 100 --output_dir outputs/mine
# python -m grpo_workbook run --resume        # after a Ctrl-C or a crash
# python -m grpo_workbook run --config my.yaml --max_grad_norm 0.5
# ```

# %% [markdown]
# ## Summary
#
# - GRPO compares a model's answers to one problem. A group whose answers all earn the same teaches nothing.
# - The 4-bit base is frozen; LoRA adapters learn, in float32. Check their number format after the trainer is built.
# - On a GPU Unsloth replaces TRL's trainer.
# - LoRA starts at a learning rate of 1e-5, full fine-tuning at 1e-6, on any GPU.
# - Measure held-out problems before and after, with an interval and a paired test. The loss says nothing.
# - The logits prove a merge. Its own held-out score judges what you ship.
#
# Next: [05 · Monitoring](05_monitoring.ipynb) reads such a run while it trains.
