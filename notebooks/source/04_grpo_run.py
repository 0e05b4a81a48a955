# %% [markdown]
# # 04 · A GRPO run you can trust
#
# How do you train a model with GRPO so that you can trust the result? This chapter begins with a training script of 30
# lines that you can copy. It then repeats each step of the script and adds the checks and measurements that the script
# lacks.
#
# **After this notebook you can** load a model in 4 bits, give it LoRA adapters, train it with GRPO through Unsloth and
# TRL, and say with an interval and a paired test whether it improved on problems it never saw.
#
# **Time:** about 4 minutes on two CPU cores (smoke profile), up to twice that on one core or a busy machine. Reading
# takes about 40 minutes. **You need** chapter 00; chapters 01 to 03 explain the algorithm, the data and the rewards.
#
# On a GPU the same cells train Qwen3 or Gemma 3. On a T4, Qwen3-1.7B would take about 4 hours of training plus up to
# one hour of evaluation (an estimate from the profile, not measured). To finish within minutes there too, first run
# `%env GRPO_WORKBOOK_PROFILE=smoke`: the notebook then trains the tiny model.

# %% [markdown]
# ## The script
#
# The script trains the course's tiny Qwen3, so that it runs on any machine. The first lines set the paths of the model
# and of the problems, and the system prompt:

# %%
import os

from grpo_workbook import PROFILES, choose_profile, data, quiet, use_one_thread

quiet()  # no loading bars, no advice
use_one_thread()  # for a tiny model several threads only wait for each other
profile = choose_profile()  # this machine's settings: for the careful run, below
if os.path.isdir(profile.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: no network needed
MODEL = PROFILES["smoke"]["qwen"]  # a folder, or a name such as "Qwen/Qwen3-1.7B"
PROBLEMS = str(data.WORD_PROBLEMS["train"])  # a JSON object in each line
SYSTEM = "Work inside <reasoning> tags, then give the number inside <answer> tags."

# %% [markdown]
# The rest is a complete GRPO training that calls the libraries directly:

# %%
import torch
from unsloth import FastLanguageModel  # before TRL, because it changes parts of TRL
from datasets import load_dataset
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

model, tokenizer = FastLanguageModel.from_pretrained(MODEL, load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=16, lora_alpha=32)

def to_prompt(row):
    system = {"role": "system", "content": SYSTEM}
    user = {"role": "user", "content": row["question"]}
    return {"prompt": [system, user], "answer": row["answer"].split("#### ")[1]}

def right_answer(completions, answer, **columns):
    rewards = []
    for completion, right in zip(completions, answer):
        text = completion[0]["content"]
        rewards.append(float(f"<answer>{right}</answer>" in text))
    return rewards

train_set = load_dataset("json", data_files=PROBLEMS, split="train").map(to_prompt)
args = GRPOConfig(
    output_dir="outputs/script", max_steps=10, learning_rate=1e-3, num_generations=8,
    per_device_train_batch_size=64, max_completion_length=64, logging_steps=1,
    report_to="none", use_cpu=not torch.cuda.is_available(),
)
trainer = GRPOTrainer(model, right_answer, args, train_set, processing_class=tokenizer)
trainer.remove_callback(PrinterCallback)  # it prints all metrics of every step
trainer.train();

# %% [markdown]
# TRL logs many numbers, which [chapter 05](05_monitoring.ipynb) explains. One of them is `reward`, the mean reward of a
# step's completions. Here it is the fraction of completions that contain the right answer.

# %%
for entry in trainer.state.log_history:
    if "reward" in entry:
        print(f"step {entry['step']:2}  reward {entry['reward']:.2f}")

# %% [markdown]
# The reward rises. To train a real model on GSM8K, a public set of grade-school word problems, change these values of
# the script:
#
# | in the script | here | Qwen3-1.7B on a GPU with 16 GB |
# | --- | --- | --- |
# | `MODEL` | the tiny Qwen3 | `"Qwen/Qwen3-1.7B"` |
# | `load_dataset(...)` | `"json", data_files=PROBLEMS` | `"openai/gsm8k", "main"` |
# | `r`, `lora_alpha` | 16, 32 | 32, 64 |
# | `max_steps`, `learning_rate` | 10, 1e-3 | 250, 1e-5 |
# | `per_device_train_batch_size` | 64 | 8, with `gradient_accumulation_steps=4` |
# | `max_completion_length` | 64 | 512, with `chat_template_kwargs={"enable_thinking": False}` |
# | precision | chosen by TRL | on a T4 `bf16=False, fp16=True`, because it has no bfloat16 |
#
# Does the rising reward mean that the model has improved? The next cell looks at three things that the script ignores:

# %%
fooling = "<answer>7</answer><answer>8</answer><answer>9</answer>"
reward_of_three = right_answer([[{"role": "assistant", "content": fooling}]], ["8"])
adapters = [weight for weight in model.parameters() if weight.requires_grad]
print("reward of an answer that lists three numbers:", reward_of_three)
print("number format of the weights that learn:", adapters[0].dtype)
print("held-out problems:", 0)

# %% [markdown]
# - The **reward** can be fooled: an answer with several numbers earns as much as the right one.
# - The **weights** that learn are in bfloat16, a format with two to three significant decimal digits, in which small
#   updates can get lost.
# - The **evaluation** is missing. Nobody knows whether the model solves *other* problems better, or only earns more.
#
# There are two smaller problems. The script leaves many values to defaults, and the defaults of TRL and Unsloth differ.
# And at the end the trained model exists only in memory. The rest of this chapter repeats each step, so that the result
# can be trusted.

# %% [markdown]
# ## The settings
#
# GRPO needs a model that is right *sometimes* (chapter 00). `choose_profile` looks at the machine and chooses a model
# and settings that fit it. The environment variables `GRPO_WORKBOOK_PROFILE` and `GRPO_WORKBOOK_MODEL` override its
# choice.

# %%
print(profile)

# %% [markdown]
# A profile only holds values. Three of its fields are dictionaries of arguments, one for each call to a library:
# `profile.loader` for `from_pretrained`, `profile.lora` for `get_peft_model`, and `profile.grpo` for `GRPOConfig`.
#
# <details><summary>For the curious: what is different on a GPU</summary>
#
# This notebook's code is the same on a CPU and on a GPU, but the trainer is not. On a GPU `import unsloth` replaces
# TRL's trainer. On a CPU Unsloth adapts only supervised fine-tuning, which is why the line that it prints there says
# "with SFTTrainer". GRPO works on a CPU because Unsloth leaves TRL's own trainer in place.
#
# | | CPU | GPU, with Unsloth |
# | --- | --- | --- |
# | trainer class | TRL's `GRPOTrainer` | `UnslothGRPOTrainer`, generated from TRL's source into `unsloth_compiled_cache/` |
# | loss | TRL's | `grpo_compute_loss` of unsloth_zoo, compiled |
# | log-probabilities | TRL's code, with one PyTorch function of Unsloth's in place of TRL's Triton kernel | computed from the last hidden states, a chunk at a time |
# | reference model when `beta` > 0 | a frozen copy of the adapters, made with the trainer | the base model, with the adapters switched off |
# | number format of the adapters | bfloat16 when the base is in 4 bits; `Float32Adapters` undoes that | float32 |
# | settings that change by themselves | 8-bit optimizers become AdamW | `dr_grpo` turns `scale_rewards` off; a batch smaller than a group grows |
# | logged | `entropy`; `kl` only when `beta` > 0 | `kl` always, no `entropy` |
#
# The table was read from `unsloth/models/rl.py`, `unsloth_zoo/rl_replacements.py` and `unsloth/_cpu_init.py`. Expect a
# GPU run to learn like a CPU run, not to repeat its numbers.
#
# </details>

# %% [markdown]
# ## Step 1: the model, in 4 bits, with adapters
#
# The script's two calls were `from_pretrained` and `get_peft_model`. `load_policy(profile)` makes the same two calls
# with the profile's values, and also loads models that can see, such as Gemma 3 4B, of which only the text part is
# trained:

# %%
from grpo_workbook import load_policy

for name, value in {**profile.loader, **profile.lora}.items():
    print(f"{name:27} {value}")
model, tokenizer = load_policy(profile)

# %% [markdown]
# The weights of the base model never change. They are stored in **NF4**, a 4-bit format made for normally distributed
# weights. `dtype` is the number format of the arithmetic and of everything that is not quantized. Beside each frozen
# matrix W stand two thin matrices, A and B, and only these learn. This is low-rank adaptation,
# [LoRA](https://arxiv.org/abs/2106.09685). The rank `r` is the thin dimension of A and B. The layer computes
# `W x + (lora_alpha / r) B A x`, where a factor `lora_alpha / r` of 2, as here, is a common choice. B starts at zero,
# so the adapters change nothing until the first update. Adapting all seven projections of a layer learns more than
# adapting attention alone ([QLoRA](https://arxiv.org/abs/2305.14314) measured it).

# %% tags=["hide-input"]
from bitsandbytes.functional import dequantize_4bit
from peft.tuners.lora.bnb import Linear4bit

layer = next(part for part in model.modules() if isinstance(part, Linear4bit))
packed = layer.base_layer.weight
W = dequantize_4bit(packed.data, packed.quant_state).float()
A = layer.lora_A["default"].weight
B = layer.lora_B["default"].weight
block = W.flatten()[:64]
scale = block.abs().max().item()
levels = (block / scale).unique()
print(f"{W.numel():,} weights in {packed.numel():,} bytes and {W.numel() // 64} scales")
print(len(levels), "of the 16 levels occur in the first block")
print(f"A and B: {A.numel() + B.numel():,} weights, B all zero: {not B.any()}")

# %% [markdown]
# These numbers come from one layer of the model. NF4 stores weights in **blocks** of 64. Each weight becomes one of 16
# levels from -1 to 1, which takes 4 bits. The scale of the block, its largest magnitude, is stored once, in 8 bits.

# %% tags=["hide-input"]
from grpo_workbook import figures
from matplotlib.patches import Rectangle

rectangles = [  # x, y, width, height, colour, text
    (6.8, 3.1, 0.9, 0.4, "number", f"{scale:.3f}"),
    (0, 0, 2.4, 2.4, "off", f"W\n{W.shape[0]} x {W.shape[1]}\nNF4, frozen"),
    (3.6, 0, 0.6, 2.4, "data", f"B\n\n{B.shape[0]}\nx\n{B.shape[1]}"),
    (4.5, 0.9, 2.4, 0.6, "data", f"A     {A.shape[0]} x {A.shape[1]}"),
]
figure, (axes,) = figures.new_panels(8.0, 3.7)
strip = (block / scale).reshape(1, 64).cpu().numpy()
axes.imshow(strip, cmap="PuOr", extent=(0, 6.4, 3.1, 3.5), vmin=-1, vmax=1)
for x, y, width, height, colour, text in rectangles:
    look = {"facecolor": figures.PALE[colour], "edgecolor": figures.GREY}
    axes.add_patch(Rectangle((x, y), width, height, **look))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center")
axes.add_patch(Rectangle((0, 2.3), 1.2, 0.1, color=figures.ORANGE))
axes.plot([0, 0], [2.4, 3.1], [1.2, 6.4], [2.4, 3.1], color=figures.GREY, lw=0.8)
axes.text(0, 3.58, "one block of W: 64 weights of 4 bits, purple above 0, orange below")
axes.text(6.8, 3.58, "its scale, 8 bits")
axes.text(3.0, 1.2, "+ 2 x", ha="center", va="center")
axes.text(4.5, 0.4, "A and B learn, B from 0", color=figures.BLUE)
axes.set(xlim=(-0.1, 8.1), ylim=(-0.1, 3.9), aspect="equal")
axes.set_title("W stays in 4 bits and never changes; A and B learn")
axes.axis("off")
words = f"A frozen W; one block of 64 weights is enlarged, with its scale {scale:.3f}. "
figures.show(figure, words + "Beside W stand the thin matrices B and A, which learn.")

# %% [markdown]
# The stripes at the top of the figure are the weights of one block, coloured by their value. Below it, the product of
# the thin matrices B and A, times 2, is added to W.
#
# Now check how many layers are in 4 bits, because a layer that cannot be quantized stays in 16 bits without an error:

# %%
from grpo_workbook.training import count_4bit_layers

expected = model.config.num_hidden_layers * len(profile.lora["target_modules"])
trainable, total = model.get_nb_trainable_parameters()
print(count_4bit_layers(model), "of", expected, "linear layers in 4-bit")
print(f"{trainable:,} adapter weights will learn")

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
# trainer = GRPOTrainer(
#     model, functions, args, train_set, processing_class=tokenizer, peft_config=adapters
# )
# ```
#
# On a T4 write `torch.float16` in both places. Here TRL itself makes the adapters, and casts them to bfloat16. Once the
# trainer is built, set `p.data = p.data.float()` for each parameter `p` that learns. The rounding in between does no
# harm, because nothing has been learned yet.
#
# `python -m grpo_workbook run --backend plain` runs it on a GPU, but not on a CPU, because TRL 1.15 computes
# log-probabilities in a Triton kernel.
#
# On processors with AVX512-BF16 there is another trap. At the first generation bitsandbytes 0.50 repacks a layer's
# 4-bit weights, and no gradient flows back through the layer any more. The reward still rises, only less, because other
# layers learn. Unsloth and our plain backend switch the repacking off.
#
# </details>

# %% [markdown]
# ## Step 2: the problems, and some that are held out
#
# The tiny model trains on word problems of one and two steps in GSM8K's form: the answer ends in `#### N`. The profiles
# for GPUs use GSM8K itself. `load_split` does what the script did with `load_dataset(...)`, checks every row, and also
# returns **held-out** problems. No held-out problem has both the sentence pattern and the numbers of a training
# problem.

# %%
train_rows, heldout_rows, _ = data.load_split(
    heldout=profile.heldout, seed=profile.seed, profile_name=profile.name
)
print(len(train_rows), "to train on,", len(heldout_rows), "held out\n")
example = train_rows[0]
print(example["question"])
print(example["solution"])

# %% [markdown]
# TRL expects a column `prompt`. Here it is a conversation, as the script's `.map(to_prompt)` made it. TRL passes every
# other column to the reward functions, and ours need `answer`. TRL does not truncate prompts, so `drop_long_prompts`
# removes those that are too long.

# %%
from grpo_workbook import drop_long_prompts, render, to_dataset

train_set = to_dataset(train_rows)
heldout_set = to_dataset(heldout_rows)
train_set, dropped = drop_long_prompts(train_set, tokenizer, profile.max_prompt_length)
print(dropped, "dropped\n")
print(train_set[0])

# %% [markdown]
# The tokenizer's chat template turns the conversation into the text that the model reads:

# %%
print(render([train_set[0]["prompt"]], tokenizer)[0])

# %% [markdown]
# ## Step 3: the rewards
#
# A reward function gets the completions and the dataset's columns, and returns a number for each completion. The three
# functions below come from [chapter 03](03_reward_design.ipynb) and return a value from 0 to 1: one for the right
# number, one for perfect form, and one for parts of the form. GRPO compares the weighted sums of the three. Before you
# train, test the functions on completions whose quality you know:

# %%
import pandas as pd
from grpo_workbook.rewards import (
    correctness_reward, incremental_format_reward, strict_format_reward,
)

functions = [correctness_reward, strict_format_reward, incremental_format_reward]
weights = [2.0, 0.5, 0.5]
known = {
    "right": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "no tags": "6*7=42. The answer is 42.",
    "half the form": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "wrong number": "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>",
    "two answers": "<answer>41</answer><answer>42</answer>",
}
texts = list(known.values())
table = pd.DataFrame(index=list(known))
total = 0.0
for function, weight in zip(functions, weights):
    values = function(completions=texts, answer=["42"] * len(texts))
    name = function.__name__.removesuffix("_reward")
    table[name] = values
    total = total + weight * table[name]
table["weighted total"] = total
table

# %% [markdown]
# The last completion gives two numbers. It would have fooled the script's reward, and here it earns nothing.
#
# ## Step 4: the baseline
#
# Measure the model before training, because a later rate means nothing without one to compare it with. The *strict*
# rate counts answers that are right and well-formed. The *lenient* rate counts right answers in any readable form. A
# *sampled* answer draws each token at random with the model's own probabilities (temperature 1), as training does. A
# *greedy* answer takes the most likely token each time. In parentheses, each rate is followed by its 95 % confidence
# interval (Wilson's, [chapter 08](08_evaluation.ipynb)).

# %%
from grpo_workbook import evaluate

longest = profile.grpo["max_completion_length"]


def ask_heldout_problems(policy, sample):
    return evaluate(
        policy, tokenizer, heldout_set, sample=sample, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=longest,
    )


before_sampled = ask_heldout_problems(model, sample=True)
before_greedy = ask_heldout_problems(model, sample=False)
print("sampled,", before_sampled)
print("greedy, ", before_greedy)

# %% [markdown]
# The model's greedy answers have the right number in 99 % of the problems and the right form in 46 %: it can do the
# arithmetic and misses the form. We made it so on purpose. The tiny model was first trained on the arithmetic, and then
# on answers in messy forms ([its card](../data/tiny-qwen3/README.md)), so that GRPO has something to improve within
# minutes. Read some sampled completions:

# %%
for completion in before_sampled.completions[1:5]:
    print(completion, end="\n---\n")

# %% [markdown]
# ## Step 5: the configuration
#
# TRL and Unsloth have different defaults. So the profile sets every value of the algorithm explicitly and passes them
# to `GRPOConfig`. To change some of them, write `GRPOConfig(..., **{**profile.grpo, "max_steps": 30})`.

# %%
args = GRPOConfig(
    output_dir=str(profile.output / "checkpoints"), reward_weights=weights,
    **profile.grpo,
)
for name, value in profile.grpo.items():
    print(f"{name:35} {value}")

# %% [markdown]
# | setting | what it does | 16 GB GPU | 80 GB GPU |
# | --- | --- | --- | --- |
# | `num_generations` | size of the group. Larger: steadier advantages, fewer zero-variance groups, more time | 8 | 8 to 16 |
# | batch size | completions in an optimizer step. Smaller: noisier gradient, faster steps | 32 | 32 to 128 |
# | `per_device_train_batch_size` | completions in memory at once; the gradient is accumulated | 4 to 8 | 16 to 32 |
# | `max_completion_length` | longest completion in tokens; it costs most of the time and memory. Too short: answers are cut off before they earn anything | 512 | 1024 and more |
# | `temperature` | 1 samples from the policy as it is; higher explores more | 1 | 1 |
# | `num_iterations` | updates per completion. At 1 the training is on-policy: every update uses fresh completions | 1 | 1 |
# | `learning_rate` | **LoRA: start at 1e-5, try 5e-5. Full fine-tuning: 1e-6.** Independent of the GPU | 1e-5 | 1e-5 |
# | LoRA `r` | what the adapters can express. Reinforcement learning needs little | 32 | 32 |
# | `beta` | weight of the KL penalty. 0 needs no reference model | 0 | 0 to 0.04 |
# | `adam_beta2` | AdamW averages over about 100 steps at 0.99; at TRL's default, 0.999, over 1,000, more than most runs have | 0.99 | 0.99 |
# | gradient checkpointing | recomputes activations: less memory, more time | on | on for long answers |
# | `use_vllm` | generates several times faster, on a GPU only | if memory allows | on |
#
# The learning rates come from TRL's page [LoRA Without
# Regret](https://huggingface.co/docs/trl/main/en/lora_without_regret): with LoRA, 1e-5 for a model of 3B weights and
# 5e-5 for one of 0.6B; with full fine-tuning, 1e-6. With a fixed `lora_alpha` the best rate hardly depends on the rank.
# Our tiny model, with less than a million weights, uses 1e-3. That page also advises fewer than 32 completions in a
# step with LoRA. Larger batches, as in the table, are common, but they go against this advice.
#
# `loss_type="dapo"` takes from the algorithm DAPO only its average over tokens (chapter 01). The rest of DAPO is off
# here.
#
# Batch sizes count **completions**: `per_device_train_batch_size x gradient_accumulation_steps x processes` must be a
# multiple of `num_generations`. A batch of 4 with groups of 8, as in older guides, raises a `ValueError` in TRL (on a
# GPU, Unsloth enlarges it). TRL's `max_prompt_length` no longer exists.
#
# The GPU columns are common values, not measured here. [Chapter 10](10_scale_out.ipynb) computes the memory that they
# take.

# %% [markdown]
# ## Step 6: training
#
# Each optimizer step is one round of the loop in the figure. TRL's trainer runs this loop. The sampled completions are
# also called **rollouts**.

# %% tags=["hide-input"]
group = profile.grpo["num_generations"]
n = args.per_device_train_batch_size * args.gradient_accumulation_steps
problems = n // group
steps = profile.grpo["max_steps"]
pale = figures.PALE
boxes = {
    "problems": (0.07, 0.68, f"{problems}\nproblems", pale["data"]),
    "policy": (0.33, 0.68, "policy:\n4-bit base + adapters", pale["model"]),
    "rewards": (0.66, 0.68, f"{len(functions)} reward\nfunctions", pale["check"]),
    "total": (0.9, 0.68, f"{n} rewards in\n{problems} groups", pale["number"]),
    "advantages": (0.9, 0.16, f"{n}\nadvantages", pale["number"]),
    "loss": (0.62, 0.16, "loss over\nall tokens", pale["number"]),
    "adamw": (0.33, 0.16, f"AdamW moves\n{trainable:,} weights", pale["model"]),
}
arrows = [
    ("problems", "policy", ""),
    ("policy", "rewards", f"{problems} x {group}\ncompletions"),
    ("rewards", "total", "weighted\nsum"),
    ("total", "advantages", "minus the group's mean,\nover its standard deviation"),
    ("advantages", "loss", ""), ("loss", "adamw", "gradient"),
    ("adamw", "policy", f"next of {steps} steps"),
]
figure = figures.diagram(boxes, arrows, (8.4, 3.0))
figure.suptitle(f"One optimizer step: {n} completions, one move of the adapters")
words = f"A loop: {problems} problems go to the policy, which samples {n} completions; "
figures.show(figure, words + "rewards, advantages and the loss lead to AdamW and back.")

# %% [markdown]
# Read the figure from the top left: each box is a result, and each arrow leads to what is computed from it.
#
# Building the trainer has a side effect: when the base is quantized, TRL 1.15 casts the adapters to **bfloat16**. On a
# GPU Unsloth removes that cast; on any machine the callback `Float32Adapters` converts the adapters back to float32.
# The cast matters at the learning rates of large models. Take an A with 2,048 inputs and PEFT's initial values: in
# bfloat16, an update of 1e-5 leaves 82 % of its weights exactly as they were, and an update of 5e-5 leaves 29 %
# unchanged. (At this run's 1e-3 no update is lost; it is only rounded.)
#
# `RewardBar` shows the mean weighted reward, at most 3, and the mean length in tokens.

# %%
from grpo_workbook import Float32Adapters, RewardBar

trainer = GRPOTrainer(
    model, functions, args, train_set, processing_class=tokenizer,
    callbacks=[Float32Adapters(model), RewardBar()],
)
trainer.remove_callback(PrinterCallback)  # the bar shows the same in one line
trained_formats = {p.dtype for p in model.parameters() if p.requires_grad}
print("number format of the weights that learn:", trained_formats)
trainer.train();

# %% [markdown]
# A checkpoint is saved every `save_steps` steps, so an interrupted training can continue. (A run that was started by
# the command continues with `python -m grpo_workbook run --resume`.)
#
# Watch the reward, not the loss. The advantages of each group sum to 0, so the value of the loss stays near 0
# throughout; only its gradient matters. In the table, each row is the mean over a tenth of the steps, and
# `frac_reward_zero_std` is the fraction of groups with zero variance:

# %%
log = [entry for entry in trainer.state.log_history if "reward" in entry]
table = pd.DataFrame(log).set_index("step")
columns = ["reward", "loss", "grad_norm", "frac_reward_zero_std"]
columns += ["completions/mean_length", "completion_length"]  # TRL's name, Unsloth's
tenth = max(1, len(table) // 10)
last_steps = (table.index - 1) // tenth * tenth + tenth
table.filter(items=columns).groupby(last_steps).mean().round(3)

# %% [markdown]
# The model learns the form first, because the form is the same for every problem. Then the reward rises slowly, as
# mistakes in the sampled arithmetic become rarer. More and more groups have zero variance, because all of their
# completions are right.
#
# In the figure, the bold lines are means of seven steps and the pale lines are single steps. The total is the weighted
# sum, at most 3; the other three lines are its parts before weighting, each at most 1.

# %% tags=["hide-input"]
from statistics import mean

figure, words = figures.reward_curves(log)
first = mean(entry["reward"] for entry in log[:5])
last = mean(entry["reward"] for entry in log[-5:])
rise = f"{first:.1f} to {last:.1f} of 3"
figure.axes[0].set_title(f"Form first, then fewer mistakes: {rise}")
figures.show(figure, words)

# %% [markdown]
# ## Step 7: did it learn?
#
# The training reward cannot answer this question, because the model may have exploited the reward or memorized the
# problems. Held-out problems can. Each pair of bars in the figure is one measure of accuracy before and after training,
# and the thin black lines are its 95 % intervals.

# %%
from grpo_workbook.evaluation import report_heldout

after_sampled = ask_heldout_problems(model, sample=True)
after_greedy = ask_heldout_problems(model, sample=False)
results = report_heldout(
    {"sampled": before_sampled, "greedy": before_greedy},
    {"sampled": after_sampled, "greedy": after_greedy},
)
figure, words = figures.before_after(results)
gain = f"{before_sampled.rate:.0%} to {after_sampled.rate:.0%}"
figure.axes[0].set_title(f"{len(heldout_set)} held-out problems: {gain} strict")
figures.show(figure, words)

# %% [markdown]
# These are all rates after training, in the form in which the baseline was printed above:

# %%
print("sampled,", after_sampled)
print("greedy, ", after_greedy)

# %% [markdown]
# Most of the gain is form. In any readable form (*lenient*), the sampled answers were right in 71 % of the problems
# before training and in 92 % after it. The greedy answers were right in 99 % before training, and this rate did not
# rise. So the run shows no new arithmetic: the model learned the form, and its *sampled* answers came closer to the
# greedy ones.
#
# Could the strict gain be chance? If training had no effect, a problem whose outcome changed would be as likely to get
# better as to get worse, like the toss of a coin. McNemar's exact test computes how likely coins would give a result at
# least as one-sided as this one. That probability is the p-value:

# %%
from grpo_workbook import paired_p_value

for name, scores in (("before", before_sampled), ("after", after_sampled)):
    low, high = scores.interval
    print(f"strict, {name:6} {scores.rate:.1%}, interval {low:.1%} to {high:.1%}")
p_value = paired_p_value(before_sampled.strict, after_sampled.strict)
print(f"p = {p_value:.1g}")

# %% [markdown]
# One run with one seed shows that *this* model improved. How much another seed would gain is a question for [chapter
# 08](08_evaluation.ipynb).
#
# ## Step 8: keep the model
#
# The adapter is small, but it cannot be used without its base. To *merge* means to add the adapter to the base's
# weights, so that one model is left. Merging into 4-bit weights would round them again. So `merge` loads the base
# unquantized, adds the adapter, and saves one 16-bit model that plain Transformers can load. First save the adapter and
# free the memory, because the merge needs it.

# %%
from accelerate.utils.memory import clear_device_cache
from grpo_workbook import merge, save_adapter
from grpo_workbook.compat import free_vllm

save_adapter(model, tokenizer, profile.output / "adapter")
steps = trainer.state.global_step
in_4bit = count_4bit_layers(model)
free_vllm(model)  # if vLLM stands beside the model, it holds a part of the GPU
del model, trainer, layer, packed, W, A, B, block
clear_device_cache(garbage_collection=True)

# %% [markdown]
# The trained policy is now on disk and no longer in memory. `merge` reads it from there:

# %%
proof = merge(
    profile.model, profile.output / "adapter", profile.output / "merged",
    heldout=heldout_set, policy=after_greedy, batch_size=profile.eval_batch_size,
    max_new_tokens=longest,
)

# %% [markdown]
# `merge` tests its result before it writes it. Given the same tokens, the merged model must compute the same logits as
# the 16-bit base with a separate adapter. Rounding to 16 bits changes the logits a little, but the most likely token
# should stay the same. `merge` also refuses a merged model that answers the held-out problems clearly worse than the
# trained policy.

# %%
greedy = proof["heldout"]["strict"]
print(f"the same most likely token: {proof['same_greedy_tokens']:.2%} of positions")
print(f"difference of the logits:   {proof['relative_logit_difference']:.2%}")
print(f"4-bit with adapter:         {greedy['before']:.1%} strict, greedy")
print(f"merged, 16-bit:             {greedy['after']:.1%} strict, greedy")

# %% [markdown]
# The first two numbers show that the merge was computed correctly. They do not show that an adapter trained on the
# *4-bit* base works as well on the unquantized base, which is a slightly different model. That is why the merged model
# also answers the held-out problems: the last two numbers compare it with the trained policy. Here are the merged
# model's first answers:

# %%
for row, text in zip(heldout_set, proof["merged_answers"]):
    print(f"{row['question']}  (right: {row['answer']})")
    print("   ", " ".join(text.split()))

# %% [markdown] tags=["remove-cell"]
# This cell is for the automatic run on every change: it fails if training did not happen or did not help.

# %% tags=["remove-cell"]
import json

profile.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": steps,
    "heldout": results,
    "p_value": p_value,
    "merge": proof,
    "linear4bit_layers": in_4bit,
}
(profile.output / "notebook.json").write_text(json.dumps(proved, indent=2))
assert steps == profile.grpo["max_steps"] == len(log)
assert all(entry["step_time"] > 0 for entry in log)
assert trained_formats == {torch.float32}, "not the weights that were meant"
if profile.name == "smoke":
    assert after_sampled.rate > before_sampled.interval[1] and p_value < 1e-6, "no gain"
    assert proof["same_greedy_tokens"] > 0.99, "the merged model is a different one"
    assert greedy["after"] > after_greedy.rate - 0.05

# %% [markdown]
# ## Your own project
#
# The command `run` repeats all these steps with your own data and rewards. It accepts any argument of TRL's
# `GRPOConfig` by its name. To start, `python -m grpo_workbook new my_project` creates [a
# project](../templates/my_project/README.md) that can train at once: data, two reward functions with their tests, and a
# script like the one above.
#
# ```bash
# python -m grpo_workbook run --model gemma --seed 1 --output_dir outputs/gemma
# python -m grpo_workbook run --data my_problems.jsonl --max_steps 100 --output_dir outputs/mine
# python -m grpo_workbook run --resume        # after a Ctrl-C or a crash
# python -m grpo_workbook run --config my.yaml --max_grad_norm 0.5
# ```

# %% [markdown]
# ## Exercises
#
# There are two functions to write and two experiments to predict. An experiment runs only after you have written a
# prediction. The table in chapter 00 counts what you have solved. First load the trained policy again, from its
# adapter:

# %%
from grpo_workbook import load_model

model, tokenizer = load_model(
    profile.model, profile.output / "adapter", dtype=profile.dtype,
    device=profile.device, load_in_4bit=profile.loader["load_in_4bit"],
)

# %% [markdown]
# ### Exercise 04.1 · `my_reward` · medium · 15 minutes
#
# Write a reward of your own and train with it. The model should give *right answers, as short as possible*. A
# completion with exactly one answer block (`<answer>`, the right number, `</answer>`) earns something, and a shorter
# one earns more. A completion without the right number must earn less than any completion with it, however short it is.
# You choose how the reward depends on the length. The check calls your function as TRL does, with two completions of
# which the first must earn more.

# %% tags=["exercise"]
from grpo_workbook.exercises import check


def my_reward(completions: list, answer: list[str], **columns) -> list[float]:
    """One number per completion; completions[0][0]["content"] is the first text."""
    raise NotImplementedError


check("04.1", my_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Go through `zip(completions, answer)`. `re.findall("<answer>(.*?)</answer>", text, re.DOTALL)` returns the contents of
# all answer blocks. Give 0 unless there is one and it is right; otherwise give 1 minus a little for each character, and
# at least 0.5.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def my_reward(completions: list, answer: list[str], **columns) -> list[float]:
#     """One number per completion; completions[0][0]["content"] is the first text."""
#     import re
#
#     rewards = []
#     for completion, right in zip(completions, answer):
#         text = completion[0]["content"]
#         blocks = re.findall("<answer>(.*?)</answer>", text, re.DOTALL)
#         if len(blocks) == 1 and blocks[0].strip() == right:
#             rewards.append(1.0 - min(0.5, 0.005 * len(text)))
#         else:
#             rewards.append(0.0)
#     return rewards
# ```
#
# </details>
#
# Now train a fresh model with your reward (about a minute). The cell begins once the check is passed:

# %%
from grpo_workbook.exercises import judge

if judge("04.1", my_reward).status == "solved":
    policy, _ = load_policy(profile)
    settings = {**profile.grpo, "max_steps": 24, "save_strategy": "no"}
    own_args = GRPOConfig(output_dir=str(profile.output / "my_reward"), **settings)
    own_trainer = GRPOTrainer(
        policy, [my_reward], own_args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    own_trainer.remove_callback(PrinterCallback)
    own_trainer.train()
    short = ask_heldout_problems(policy, sample=True)
    for name, scores in (("before", before_sampled), ("after", short)):
        lenient = mean(scores.lenient)
        tokens = mean(scores.tokens)
        print(f"{name:6} right in any form {lenient:.1%}, {tokens:.0f} tokens")
    print(short.completions[0])

# %% [markdown]
# Compare the lengths and the rates, and read the completion. What did the model leave out? We ran this with the
# solution above and measured on 160 held-out problems. (The cell measures on the profile's problems, so its rate before
# training differs from ours.) After 24 steps the mean length had fallen from 26 to 24 tokens, and the answers that are
# right in any form had risen from 79 % to 86 %.
#
# Then train for 48 steps. In our run 88 % were right in any form, but the *strictly* right answers fell from 21 % to 0:
# the model no longer wrote `</reasoning>`. The tag costs 12 characters, and this reward never asks for it. So the model
# learned what the reward pays for, and lost what we had left out of the reward.

# %% [markdown]
# ### Exercise 04.2 · `lora_parameters` · easy · 5 minutes
#
# To a frozen matrix of size `inputs x outputs`, LoRA of rank r adds A (r x inputs) and B (outputs x r). Given a list of
# such `(inputs, outputs)`, how many weights learn in all?

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
# According to the table of settings, reinforcement learning needs only a small rank. Test this: train the base again
# with rank 1, on the same problems with the same learning rate. Then 8,192 weights learn instead of 131,072. After 15
# steps (half a minute), has the reward risen `"as fast"` as in the run above (at least 80 % of its gain), `"slower"`,
# or `"not at all"` (less than 20 %)?

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "as fast", "slower" or "not at all"


def rank_one() -> dict:
    """15 steps with thinner adapters: change what you like, one thing at a time."""
    # the rate does not fall within the 15 steps, as it hardly does in the run above
    changes = {"max_steps": 15, "lr_scheduler_type": "constant_with_warmup"}
    thin = choose_profile(lora_rank=1, grpo={**changes, "save_strategy": "no"})
    policy, _ = load_policy(thin)
    folder = str(profile.output / "rank_one")
    thin_args = GRPOConfig(output_dir=folder, reward_weights=weights, **thin.grpo)
    thin_trainer = GRPOTrainer(
        policy, functions, thin_args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    thin_trainer.remove_callback(PrinterCallback)
    thin_trainer.train()
    history = thin_trainer.state.log_history
    rewards = [entry["reward"] for entry in history if "reward" in entry]
    return {"rank_1": rewards, "run": [entry["reward"] for entry in log[:15]]}


predict("04.3", prediction, rank_one);

# %% [markdown]
# <details><summary>Hint</summary>
#
# AdamW moves every weight of A and B by about the learning rate, whatever the rank. The layer changes by `2 B A`, a sum
# of r products, and with `lora_alpha = 2 r` the factor stays 2. How many products push in the same direction?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "slower"
# ```
#
# The sum has one product instead of 16, so the same learning rate changes the layer less. This limits how fast rank 1
# learns, and not what it can learn. A fixed `lora_alpha` of 32, as in TRL's recipe, would give thin adapters a larger
# factor. Try a `learning_rate` of 4e-3 in `changes`.
#
# </details>

# %% [markdown]
# ### Exercise 04.4 · `my_problems` · medium · 10 minutes
#
# Does the model also gain on *your* problems? Write some. The default problems are worded like the training problems
# but have larger numbers: their sums go from 44 to 129, while most numbers in the training questions are below 20. The
# cell answers each problem without and with the adapters. Will the trained model be right and well-formed on `"more"`
# problems, on `"fewer"`, or is there `"no difference"` (p of the paired test is 0.05 or more)?

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def my_problems() -> dict:
    """The base model against the trained one, on problems of your own."""
    question = "Ada has {} pears and finds {} more. How many pears does Ada have now?"
    rows = []
    for a in range(30, 86, 7):
        for b in (14, 26, 38, 50):
            rows.append({"question": question.format(a, b), "answer": str(a + b)})
    # YOUR PROBLEMS: rows = load_problems("my_problems.jsonl")
    mine = to_dataset(rows)
    sampling = {"sample": True, "seed": profile.seed, "max_new_tokens": longest}
    with model.disable_adapter():
        base = evaluate(model, tokenizer, mine, **sampling)
    trained = evaluate(model, tokenizer, mine, **sampling)
    print(trained.completions[0])
    return {"before": base.strict, "after": trained.strict}


predict("04.4", prediction, my_problems);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Form and sum must both be right. Which of the two did training change, and can the base model compute such sums at
# all?
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
# ## Summary
#
# How do you train a model with GRPO so that you can trust the result?
#
# - The training itself takes 30 lines: model, adapters, data, reward, `GRPOConfig`, `GRPOTrainer`.
# - Before you train, test the reward on completions whose quality you know. Some of them should try to fool it.
# - Set every value that matters explicitly, because TRL and Unsloth have different defaults. LoRA starts at a learning
#   rate of 1e-5, full fine-tuning at 1e-6, on any GPU.
# - The 4-bit base is frozen, and LoRA adapters learn. Keep them in float32.
# - Measure held-out problems before and after, with an interval and a paired test. Neither the loss nor the training
#   reward can tell whether the model improved.
# - Test the merged model on the held-out problems, because that is the model you ship.
#
# Next: [05 · Monitoring](05_monitoring.ipynb) shows how to tell, while a run trains, whether it is healthy.
