# %% [markdown]
# # 04 · A GRPO run you can trust
#
# How do you train a model with GRPO so that you can trust the result? This chapter begins with a training script of
# fewer than 40 lines that you can copy. It then repeats each step of the script and adds the checks and measurements
# that the script lacks.
#
# **After this notebook you can** load a model in 4 bits, give it LoRA adapters, and train it with GRPO through Unsloth
# and TRL. You can also say, with an interval and a paired test, whether it improved on problems it never saw, and what
# kind of gain it is.
#
# **Time:** about 4 minutes on two CPU cores, where the tiny model is trained (the *smoke* profile), up to twice that on
# one core. Reading takes about 40 minutes. **You need** chapter 00; chapters 01 to 03 explain the algorithm, the data
# and the rewards.
#
# On a GPU the same cells train Qwen3 or Gemma 3. On a T4, Qwen3-1.7B would take about 4 hours of training plus up to
# two hours of evaluation (an estimate, not measured). To finish within minutes there too, first run
# `%env GRPO_WORKBOOK_PROFILE=smoke`: the notebook then trains the tiny model.

# %% [markdown]
# ## The script
#
# The script trains the course's tiny Qwen3, so that it runs on any machine. This model first learned arithmetic, then
# imitated right answers to word problems ([its card](../data/tiny-qwen3/README.md)). Ten kinds of problem were common
# among these answers. Six other kinds were **rare**, with four worked examples of each, and the model often gets them
# wrong (in one of them people get on and off a bus). The script trains it on these six kinds, with rewards and without
# any worked answer.
#
# The next cell sets the script's three inputs: the paths of the model and of the problems, and the system prompt.

# %%
import os

import torch
from grpo_workbook import PROFILES, choose_profile, data, quiet, use_one_thread

# the script's three inputs
MODEL = PROFILES["smoke"]["qwen"]  # a folder, or a name such as "Qwen/Qwen3-1.7B"
PROBLEMS = str(data.WORD_PROBLEMS["train"])  # a JSON object in each line
SYSTEM = "Work inside <reasoning> tags, then give the number inside <answer> tags."

# for this notebook only
quiet()  # no loading bars, no advice
use_one_thread()  # for a tiny model several threads only wait for each other
profile = choose_profile()  # this machine's settings: for the careful run, below
# the script's model and the careful run's (on a CPU the same): are both on this disk?
both_models_here = os.path.isdir(profile.model) and os.path.isdir(MODEL)
if both_models_here and os.path.isfile(PROBLEMS):
    os.environ["HF_HUB_OFFLINE"] = "1"  # all is on this disk: no network needed

# %% [markdown]
# The rest is a complete GRPO training that calls the libraries directly:
#
# - It loads the model and gives it adapters. (On a CPU Unsloth prints that it supports `SFTTrainer`. GRPO works there
#   all the same, with TRL's own trainer.)
# - `to_prompt` makes a row's prompt, and keeps of its `answer` only the number, which stands after `#### `.
# - `right_answer` is the reward: 1 if the right number stands in the answer tag, else 0. TRL calls it with a list of
#   completions, each a conversation of one message, and with their rows' answers.
# - Each step samples 80 completions, 8 to each of 10 problems.
#
# The learning rate is high because the model is tiny; step 5 says what a large model needs. To use the script
# elsewhere, copy this cell with `import torch` and with your own `MODEL`, `PROBLEMS` and `SYSTEM`:

# %%
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

train_set = load_dataset("json", data_files=PROBLEMS, split="train")
train_set = train_set.filter(lambda row: row["rare"]).map(to_prompt)
args = GRPOConfig(
    output_dir="outputs/script", max_steps=30, learning_rate=1.5e-3, num_generations=8,
    per_device_train_batch_size=80, max_completion_length=64, logging_steps=1,
    report_to="none", use_cpu=not torch.cuda.is_available(),
)
trainer = GRPOTrainer(model, right_answer, args, train_set, processing_class=tokenizer)
trainer.remove_callback(PrinterCallback)  # it prints all metrics of every step
trainer.train();

# %% [markdown]
# TRL logs many numbers, which [chapter 05](05_monitoring.ipynb) explains. One of them is `reward`, the mean reward of a
# step's completions. Here it is the fraction of completions that contain the right answer. It varies from step to step,
# because some problems are harder than others, so the cell prints the mean of ten steps:

# %%
from statistics import mean

rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
for start in range(0, len(rewards), 10):
    ten_steps = rewards[start : start + 10]
    last_step = start + len(ten_steps)
    print(f"steps {start + 1:2} to {last_step:2}  reward {mean(ten_steps):.2f}")

# %% [markdown]
# In this stored run the reward was highest in the last ten steps. In yours it may not be: 30 steps are few, and
# machines round differently.
#
# <details><summary>For the curious: the same script on GSM8K, with a GPU</summary>
#
# To train a real model on GSM8K, a public set of grade-school word problems, change these values of the script. Then
# restart the kernel, because the cell with the inputs may have switched the network off:
#
# | in the script | here | Qwen3-1.7B on a GPU with 16 GB |
# | --- | --- | --- |
# | `MODEL` | the tiny Qwen3 | `"Qwen/Qwen3-1.7B"` |
# | `PROBLEMS` | a file | `"openai/gsm8k"` |
# | `load_dataset(...)` | `"json", data_files=PROBLEMS` | `PROBLEMS, "main"` |
# | `.filter(...)` | the rare kinds | leave it out |
# | `r`, `lora_alpha` | 16, 32 | 32, 64 |
# | `max_steps`, `learning_rate` | 30, 1.5e-3 | 250, 1e-5 |
# | `per_device_train_batch_size` | 80 | 8, with `gradient_accumulation_steps=4` |
# | `max_completion_length` | 64 | 512, with `chat_template_kwargs={"enable_thinking": False}` |
# | precision | chosen by TRL | on a T4 `bf16=False, fp16=True`, because it has no bfloat16 |
#
# `SYSTEM` and `.map(to_prompt)` stay. No run with the right column was made for this course.
#
# The script's reward compares text, not numbers. If the answer is `1,000`, a completion that ends in
# `<answer>1000</answer>` earns nothing. Step 3 uses a reward that compares numbers.
#
# </details>
#
# Does a higher reward mean that the model has improved? The script cannot tell. It ignores three things: whether its
# reward can be fooled, whether the number format of its weights is fine enough for small updates, and how the model
# does on problems that it did not train on. The next cell looks at the first two:

# %%
fooling = "<answer>7</answer><answer>8</answer><answer>9</answer>"
reward_of_three = right_answer([[{"role": "assistant", "content": fooling}]], ["8"])
adapters = [weight for weight in model.parameters() if weight.requires_grad]
print("reward of an answer that lists three numbers:", reward_of_three)
print("number format of the weights that learn:", adapters[0].dtype)

# %% [markdown]
# - The **reward** can be fooled: an answer with several numbers earns as much as the right one.
# - The **weights** that learn are in bfloat16, if the cell printed so: TRL converted them when the trainer was built.
#   (On a GPU, Unsloth keeps float32.) Bfloat16 has two to three significant decimal digits, so small updates can get
#   lost. Step 1 counts them.
# - The **evaluation** is missing. Nobody knows whether the model solves *other* problems better, or only earns more.
#
# There are two smaller problems: many values are left to defaults, which differ between TRL and Unsloth, and the
# trained model exists only in memory.
#
# The rest of this chapter repeats the training with care. Steps 1 to 6 train a model. Steps 7 to 9 ask whether it
# improved, what kind of gain that is, and whether something else would have gained as much. Step 10 keeps the model.

# %% [markdown]
# ## The settings
#
# The script's settings stood in its code, for one machine. `choose_profile`, called above, looks at the machine and
# chooses a model and settings that fit it. (The environment variables `GRPO_WORKBOOK_PROFILE` and `GRPO_WORKBOOK_MODEL`
# override its choice.) In the output, NF4 is the 4-bit format of step 1:

# %%
print(profile)

# %% [markdown]
# Three fields of the profile are the arguments of calls to the libraries: `profile.loader` for
# `from_pretrained`, `profile.lora` for `get_peft_model`, and `profile.grpo` for `GRPOConfig`.
#
# <details><summary>For the curious: what is different on a GPU</summary>
#
# This notebook's code is the same on a CPU and on a GPU, but the trainer is not. On a GPU `import unsloth` replaces
# TRL's trainer. On a CPU Unsloth leaves TRL's own in place.
#
# | | CPU | GPU, with Unsloth |
# | --- | --- | --- |
# | trainer class | TRL's `GRPOTrainer` | `UnslothGRPOTrainer`, generated from TRL's source into `unsloth_compiled_cache/` |
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
# A training needs memory for all weights, and also for the gradients and optimizer states of those weights that learn.
# For a large model this is more than a small GPU has. Two means make it fit:
#
# - **4 bits**: the linear layers take about a quarter of their size with 16 bits. The embeddings are not quantized, so
#   a small model with a large vocabulary shrinks less: Qwen3-1.7B to about 40 % (computed from its shapes).
# - **Adapters**: only few weights learn, so there are few gradients and optimizer states.
#
# The tiny model would fit without either; it has both so that a run on a CPU takes the same steps as one on a GPU.
#
# `load_policy(profile)` makes the script's two calls, `from_pretrained` and `get_peft_model`, with the profile's
# values, which the cell prints. `dtype` is the number format of the arithmetic, not of the adapters (theirs follows
# below). Adapters go to the layers in `target_modules`, and `max_seq_length` is the longest prompt plus the longest
# completion, in tokens:

# %%
from grpo_workbook import load_policy

for name, value in {**profile.loader, **profile.lora}.items():
    print(f"{name:27} {value}")
model, tokenizer = load_policy(profile)

# %% [markdown]
# The base model's weights never change. They are stored in **NF4**, a 4-bit format. Beside each frozen matrix W stand
# two thin matrices, A and B, and only these learn ([LoRA](https://arxiv.org/abs/2106.09685)). The layer computes
# `W x + (lora_alpha / r) B A x`. B starts at zero, so the adapters change nothing until the first update. The figure
# shows one layer of the model:

# %% tags=["hide-input"]
from bitsandbytes.functional import dequantize_4bit
from grpo_workbook import figures
from matplotlib.patches import Rectangle
from peft.tuners.lora.bnb import Linear4bit

layer = next(part for part in model.modules() if isinstance(part, Linear4bit))
packed = layer.base_layer.weight
W = dequantize_4bit(packed.data, packed.quant_state).float()
A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
block = W.flatten()[:64]
strip = (block / block.abs().max()).reshape(1, 64).cpu().numpy()
figure, (axes,) = figures.new_panels(8.0, 3.7)
axes.imshow(strip, cmap="PuOr", extent=(0, 6.4, 3.1, 3.5), vmin=-1, vmax=1)
for x, y, wide, high, hue, text in (
    (0, 0, 2.4, 2.4, "off", f"W\n{W.shape[0]} x {W.shape[1]}\nNF4, frozen"),
    (3.6, 0, 0.6, 2.4, "data", f"B\n\n{B.shape[0]}\nx\n{B.shape[1]}"),
    (4.5, 0.9, 2.4, 0.6, "data", f"A     {A.shape[0]} x {A.shape[1]}"),
):
    axes.add_patch(Rectangle((x, y), wide, high, fc=figures.PALE[hue], ec="grey"))
    axes.text(x + wide / 2, y + high / 2, text, ha="center", va="center")
axes.add_patch(Rectangle((0, 2.3), 1.2, 0.1, color="black"))
axes.plot([0, 0], [2.4, 3.1], [1.2, 6.4], [2.4, 3.1], color=figures.GREY, lw=0.8)
axes.text(0, 3.58, "one block of W: 64 weights of 4 bits, purple above 0, orange below")
axes.text(3.0, 1.2, r"+ 2 $\times$", ha="center", va="center")
axes.text(4.35, 1.2, r"$\times$", ha="center", va="center")
axes.set(xlim=(-0.1, 7.0), ylim=(-0.1, 3.9), aspect="equal")
axes.set_title("W stays in 4 bits and never changes; A and B learn")
axes.axis("off")
figures.show(figure, "One block of frozen W enlarged; beside it B and A, which learn.")
del layer, packed, W, A, B, block

# %% [markdown]
# The stripes at the top of the figure are one block of W, enlarged from the black mark in the corner of W. Each stripe
# is a weight, coloured by its value. Below, the product of B and A, times 2 (`lora_alpha / r`), is added to W.
#
# <details><summary>For the curious: NF4, and the rank</summary>
#
# NF4 is made for normally distributed weights. It stores them in **blocks** of 64. Each weight becomes one of 16 levels
# from -1 to 1, which takes 4 bits. The scale of the block, its largest magnitude, is stored once, in 8 bits.
#
# The rank `r` is the thin dimension of A and B. A factor `lora_alpha / r` of 2, as here, is a common choice. A model
# learns more if all seven projections of a layer have adapters than if only those of the attention have them
# ([QLoRA](https://arxiv.org/abs/2305.14314) measured it).
#
# </details>
#
# Now check how many layers are in 4 bits, because a layer that cannot be quantized stays as it is without an error:

# %%
from grpo_workbook.training import count_4bit_layers

expected = model.config.num_hidden_layers * len(profile.lora["target_modules"])
trainable, total = model.get_nb_trainable_parameters()
print(count_4bit_layers(model), "of", expected, "linear layers in 4-bit")
print(f"{trainable:,} adapter weights will learn")

# %% [markdown]
# All linear layers are in 4 bits.
#
# ### Keep the adapters in float32
#
# When the trainer is built, in step 6, TRL 1.15 casts the adapters of a quantized base to **bfloat16**. How many
# updates would get lost? AdamW moves a weight by up to about the learning rate in a step. So the cell takes an adapter
# matrix A of a larger model (rank 32, 2,048 inputs) with the initial values that PEFT gives it. It adds a learning rate
# to each weight, rounds to bfloat16, and counts the weights that come out unchanged:

# %%
dice = torch.Generator().manual_seed(0)
start = torch.empty(32, 2048).uniform_(-1, 1, generator=dice) / 2048**0.5
start = start.bfloat16()
for update in (1e-5, 5e-5, 1.5e-3):
    moved = start.float() + update
    unchanged = moved.bfloat16() == start
    rate = unchanged.float().mean()
    print(f"an update of {update:g} leaves {rate:.0%} of the weights unchanged")

# %% [markdown]
# The first two are learning rates of large models. There bfloat16 would lose 82 % or 29 % of such updates; at this
# run's 1.5e-3 it loses none. How much less a training would learn because of this was not measured. But float32
# adapters cost little memory, so this course keeps them: in step 6 the callback `Float32Adapters` converts them back.
#
# <details><summary>For the curious: what the count leaves out</summary>
#
# At 1.5e-3 an update is not lost, but it is rounded. All three percentages are rather too low, because most updates are
# smaller than the learning rate, and the schedule lowers the rate to 0. B starts at 0, where bfloat16 is fine enough,
# and loses updates only once it has grown. At 1e-3 [tiny models](../docs/measurements.md) ended alike in both formats.
#
# </details>
#
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
# Only problems that the model did not train on can show what it has learned. So some are **held out**.
#
# The tiny model trains on word problems in GSM8K's form: the worked answer ends in `#### N`, and each calculation
# stands in it once more, in `<<...>>`. (The profiles for GPUs use GSM8K itself.) `load_split` does what the script did
# with `load_dataset(...)` and `.filter(...)`, checks every row, and returns the held-out problems, too. It keeps the
# worked answer as `solution`; `answer` is only the number.
#
# A held-out problem may have the sentence pattern of a training problem, but then it has other numbers. So the held-out
# rate shows how well the model solves other problems of these kinds, not new kinds.

# %%
train_rows, heldout_rows, _ = data.load_split(
    heldout=profile.heldout, seed=profile.seed, profile_name=profile.name
)
print(len(train_rows), "to train on,", len(heldout_rows), "held out\n")
example = train_rows[0]
print(example["question"])
print(example["solution"])

# %% [markdown]
# The held-out problems are of all 16 kinds, but the rare kinds are the task of this run. So the folded cell also
# selects 120 of the rare ones, `rare_rows`; they stay among the 480. Each will get 16 sampled answers; `tries` is this
# number, and `task` is the name of these problems in the outputs. (GSM8K has no rare kinds; there it takes the first
# 120 problems, with 4 answers each.)

# %% tags=["hide-input"]
from grpo_workbook.data.splitting import select_true

task, tries = "held-out problems", 4
rare_rows = heldout_rows
if "rare" in heldout_rows.column_names:
    task, tries = "problems of the rare kinds", 16
    rare_rows = select_true(heldout_rows, "rare")
rare_rows = rare_rows.select(range(min(120, len(rare_rows))))
print(f"{len(rare_rows)} {task} are measured apart, with {tries} tries each")

# %% [markdown]
# TRL expects a column `prompt`. Here it is a conversation, which `to_dataset` makes as the script's `to_prompt` did,
# with the same system prompt. TRL passes every other column to the reward functions, and ours need `answer`. TRL does
# not truncate prompts, so `drop_long_prompts` removes those that are too long.

# %%
from grpo_workbook import drop_long_prompts, render, to_dataset

train_set = to_dataset(train_rows)
heldout_set = to_dataset(heldout_rows)
rare_set = to_dataset(rare_rows)
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
# functions below come from [chapter 03](03_reward_design.ipynb). The **form** is one `<reasoning>` block, then one
# `<answer>` block, and nothing else:
#
# - `correctness_reward` pays 1 for the right number in the answer tag.
# - `strict_format_reward` pays 1 for the whole form.
# - `incremental_format_reward` pays 0.25 for each of the four tags in its place, counted from the first.
#
# GRPO compares their weighted sums. The weights are 2, 0.5 and 0.5, so a right number counts twice as much as all of
# the form.
#
# The tiny model already writes the form, so here the last two only have to preserve it. A model that has to learn the
# form needs them.
#
# <details><summary>For the curious: what the weights cannot do</summary>
#
# A right number counts twice as much as the form where the completions of a group differ in both. Where they differ
# only in the form, the weights do not make the form less important: each group is divided by its own standard
# deviation, so even a small difference in reward leads to advantages of the usual size. For the same reason only the
# ratio of the weights matters.
#
# </details>
#
# Before you train, test the functions on completions whose quality you know:

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
# *Two answers* would have fooled the script's reward. Here it earns nothing, not even for its form, because the first
# tag, `<reasoning>`, is missing. A right number counts only inside the answer tag: *no tags* earns 0, and *half the
# form* 0.25, for its first two tags alone. A wrong number in perfect form earns 1, a third of what the right one earns.
#
# ## Step 4: the baseline
#
# Measure the model before training, because a later rate means nothing without one to compare it with. Two pairs of
# words say what is measured:
#
# - How an answer is made: a *sampled* answer draws each token at random with the model's own probabilities (temperature
#   1), as training does. A *greedy* answer takes the most likely token each time.
# - What counts: the *strict* rate counts answers that are right and well-formed; *well-formed* are those that have the
#   form, right or wrong.
#
# Each strict rate is printed with its 95 % confidence interval ([chapter 08](08_evaluation.ipynb)).

# %%
from grpo_workbook.evaluation import measure

longest = profile.grpo["max_completion_length"]


def ask(policy, problems, ways, samples=1):
    """Scores by way of decoding: one greedy answer to each problem, or sampled ones."""
    return measure(
        policy, tokenizer, problems, ways=ways, samples=samples, seed=profile.seed,
        batch_size=profile.eval_batch_size, max_new_tokens=longest,
    )


def print_rates(name, scores):
    low, high = scores.interval
    rate = f"{scores.rate:.1%} ({low:.1%} to {high:.1%})"
    print(f"{name}: strict {rate}, well-formed {mean(scores.well_formed):.1%}")


before_all = ask(model, heldout_set, ways=["greedy"])
before_rare = ask(model, rare_set, ways=["sampled", "greedy"], samples=tries)
print_rates("all kinds, greedy", before_all["greedy"])
for way, scores in before_rare.items():
    print_rates(f"{task}, {way}", scores)

# %% [markdown]
# On the rare kinds 33.1 % of the sampled and 44.2 % of the greedy answers are strictly right, and nearly all are
# well-formed. So this model has no form to learn: what it lacks is the right number.
#
# Can GRPO teach it? Only if right answers occur. So the next cell measures the fraction of problems that at least one
# of the 16 tries solves, which is called **pass@16**. It also prints some wrong answers:

# %%
from grpo_workbook.evaluation import passed

sampled_before = before_rare["sampled"]
solved = mean(passed(sampled_before.strict, tries))
print(f"pass@{tries}, strict: {solved:.1%}\n")
answers = zip(rare_set, before_rare["greedy"].completions, before_rare["greedy"].strict)
wrong = [(row, text) for row, text, is_right in answers if not is_right]
for row, text in wrong[:4]:
    print(f"{row['question']}  (right: {row['answer']})")
    print("   ", " ".join(text.split()))

# %% [markdown]
# The model often takes a wrong number into its calculation: one that stands elsewhere in the question, one that it has
# copied wrongly, or one that it has not computed. Some operations are wrong (`18-4`, where four people get on), and
# some results (`6-6=10`). But 16 tries solve 64 % of the problems. So right answers occur, and GRPO can reinforce them.

# %% [markdown]
# ## Step 5: the configuration
#
# TRL and Unsloth have different defaults. So the profile sets every value of the algorithm explicitly, and this call
# passes them to `GRPOConfig` (`print(profile.grpo)` shows them all):

# %%
args = GRPOConfig(
    output_dir=str(profile.output / "checkpoints"), reward_weights=weights,
    **profile.grpo,
)

# %% [markdown]
# To change a value, write `GRPOConfig(..., **{**profile.grpo, "max_steps": 30})`. The table explains the settings that
# you are most likely to change. Two of them are batch sizes, which count **completions**.
#
# | setting | what it does | here | 16 GB GPU |
# | --- | --- | --- | --- |
# | `num_generations` | size of the group. Larger: steadier advantages, fewer groups whose rewards are all equal, more time | 8 | 8 |
# | batch size of a step | a multiple of `num_generations`. Smaller: noisier gradient, faster steps | 80 | 32 |
# | `per_device_train_batch_size` | completions in memory at once; the gradient is accumulated | 80 | 4 to 8 |
# | `max_completion_length` | longest completion in tokens; it costs most of the time and memory. Too short: answers are cut off before they earn anything | 64 | 512 |
# | `temperature` | 1 samples from the policy as it is; higher explores more | 1 | 1 |
# | `num_iterations` | updates per completion. At 1 the training is on-policy: every update uses fresh completions | 1 | 1 |
# | `learning_rate` | **LoRA: start at 1e-5, try 5e-5. Full fine-tuning: 1e-6.** Independent of the GPU | 1.5e-3 (a tiny model) | 1e-5 |
# | LoRA `r` | what the adapters can express. Reinforcement learning needs little | 16 | 32 |
# | `beta` | weight of the KL penalty, which holds the policy near the base. 0: no penalty, no reference model | 0 | 0 |
# | `use_vllm` | generates several times faster, on a GPU only | no (a CPU) | if memory allows |
#
# A step's batch is `per_device_train_batch_size x gradient_accumulation_steps x processes`. The GPU column has common
# values, not measured here.
#
# <details><summary>For the curious: three more settings, where the values come from, and a GPU with 80 GB</summary>
#
# | setting | what it does | here | 16 GB GPU |
# | --- | --- | --- | --- |
# | `loss_type` | how the loss is averaged; `dapo`: over all tokens of the step (the rest of the algorithm DAPO is off) | dapo | dapo |
# | `adam_beta2` | AdamW averages squared gradients over about `1 / (1 - adam_beta2)` steps: 100 here. TRL's default, 0.999, gives 1,000, more than most runs have | 0.99 | 0.99 |
# | gradient checkpointing | recomputes activations: less memory, more time | off | on |
#
# The learning rates come from TRL's page
# [LoRA Without Regret](https://huggingface.co/docs/trl/main/en/lora_without_regret): with LoRA, 1e-5 for a model of 3B
# weights and 5e-5 for one of 0.6B; with full fine-tuning, 1e-6. With a fixed `lora_alpha` the best rate hardly depends
# on the rank. That page also advises fewer than 32 completions in a step with LoRA. Larger batches, as in the table and
# in this run, are common, but they go against this advice.
#
# Common values on a GPU with 80 GB, not measured here either: groups of 8 to 16, steps of 32 to 128 completions, at
# least 1,024 tokens, a `beta` up to 0.04. [Chapter 10](10_scale_out.ipynb) computes the memory that settings take.
#
# </details>

# %% [markdown]
# ## Step 6: training
#
# Each optimizer step is one round of the loop in the figure, which TRL's trainer runs.

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
# Read the figure from the top left, along the arrows; their labels say what is passed on or computed. Blue is data,
# white the model and its update, green the reward functions, and orange numbers.
#
# Now train. `Float32Adapters` keeps the adapters in float32 (step 1). `RewardBar` shows the mean weighted reward, at
# most 3, and the mean length in tokens, both of the latest step only; single steps vary much. (The stored run was made
# on a slower machine, so its bar alone shows nearly the 4 minutes of the whole chapter.)

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
# Did the reward rise? Watch the reward, not the loss. Here the value of the loss is minus the mean advantage over all
# tokens. The advantages of each group sum to 0, so this value stays near 0, whether the model learns or not. Its
# gradient does not: it makes completions with a positive advantage more likely, and the others less.
# ([Chapter 05](05_monitoring.ipynb) shows when the value moves away from 0, and that this is no fault either.)
#
# In the table, each row is the mean over a tenth of the steps, named after the last of them. `frac_reward_zero_std` is
# the fraction of groups whose rewards are all equal:

# %% tags=["hide-input"]
log = [entry for entry in trainer.state.log_history if "reward" in entry]
table = pd.DataFrame(log).set_index("step")
columns = ["reward", "loss", "frac_reward_zero_std"]
tenth = max(1, len(table) // 10)
# with 120 steps: 1 to 12 -> 12, 13 to 24 -> 24
last_steps = (table.index - 1) // tenth * tenth + tenth
table.filter(items=columns).groupby(last_steps).mean().round(3)

# %% [markdown]
# The reward rose. The form was nearly perfect before training (step 4), so the rise comes from the numbers. In about
# four of ten groups all rewards are equal, because all completions are right or all are wrong. These groups teach
# nothing; the model learns from the others.
#
# In the figure, the bold lines are means of seven steps and the pale lines are single steps. The total is the weighted
# sum, at most 3; the other three lines are its parts before weighting, each at most 1. The lines of the two rewards for
# the form lie on each other, near 1.

# %% tags=["hide-input"]
figure, words = figures.reward_curves(log)
first = mean(entry["reward"] for entry in log[:10])
last = mean(entry["reward"] for entry in log[-10:])
rise = f"{first:.1f} in the first ten steps, {last:.1f} in the last ten"
figure.axes[0].set_title(f"Mean total reward: {rise}")
figures.show(figure, words)

# %% [markdown]
# ## Step 7: did it learn?
#
# The training reward cannot answer this question. The model may have exploited the reward or, in a run that sees its
# problems several times, memorized them. (This run takes 10 new problems in each of 120 steps.) And each step has other
# problems, so its reward does not compare before and after on the same ones.
#
# Held-out problems can. The cell measures them again, as in step 4, and `report_heldout` puts the values before and
# after side by side:

# %%
from grpo_workbook.evaluation import report_heldout

after_all = ask(model, heldout_set, ways=["greedy"])
after_rare = ask(model, rare_set, ways=["sampled", "greedy"], samples=tries)
results = report_heldout(before_rare, after_rare)

# %% [markdown]
# Each pair of bars in the figure is one strict measure before and after training, and the thin black lines are its 95 %
# intervals. The last pair is the pass@16 of step 4:

# %% tags=["hide-input"]
sampled = results["sampled"]
pairs = {"sampled": sampled["strict"], "greedy": results["greedy"]["strict"]}
pairs[f"pass@{tries}"] = sampled["strict_pass"]
looks = {"before": (-0.2, figures.GREY, ""), "after": (0.2, figures.BLUE, "//")}
figure, (axes,) = figures.new_panels(7.0, 3.4)
words = []
for side, (shift, colour, hatch) in looks.items():
    for place, (name, pair) in enumerate(pairs.items()):
        rate, (low, high) = pair[side], pair[f"{side}_interval"]
        bar = axes.bar(
            place + shift, rate, 0.38, yerr=[[rate - low], [high - rate]], capsize=4,
            color=colour, hatch=hatch, edgecolor="white",
            label=side if place == 0 else None,
        )
        axes.bar_label(bar, [f"{rate:.1%}"], padding=3, fontsize=9)
        words.append(f"{name} {side}: {rate:.1%} ({low:.1%} to {high:.1%})")
rise = f"{sampled['strict']['before']:.0%} to {sampled['strict']['after']:.0%}"
axes.set_title(f"{sampled['n']} {task}: {rise} of sampled answers right")
axes.set(xticks=range(len(pairs)), xticklabels=list(pairs), ylabel="strict accuracy")
axes.margins(y=0.15)
figure.legend(frameon=False, loc="outside right center")
figures.show(figure, f"Pairs of bars, with 95 % intervals. {'; '.join(words)}.")

# %% [markdown]
# All three measures rose, and in no pair do the two intervals overlap.
#
# Could the gain be chance? Look at the greedy answers, one for each problem. If training had no effect, a problem whose
# answer changed would be as likely to get better as to get worse, like the toss of a coin. McNemar's exact test
# computes the probability that tossed coins give a result at least as one-sided as this one. That probability is the
# p-value:

# %%
from grpo_workbook import paired_p_value

greedy_before, greedy_after = before_rare["greedy"], after_rare["greedy"]
for name, scores in (("before", greedy_before), ("after", greedy_after)):
    low, high = scores.interval
    print(f"greedy, {name:6} {scores.rate:.1%}, interval {low:.1%} to {high:.1%}")
p_value = paired_p_value(greedy_before.strict, greedy_after.strict)
change = results["greedy"]["strict"]
print(f"{change['better']} got better, {change['worse']} worse: p = {p_value:.1g}")

# %% [markdown]
# 49 problems got better and none got worse. So chance does not explain the gain.
#
# The run trained on the rare kinds only. Did the model forget the others? The cell prints the rates on the held-out
# problems of all kinds, and then on those of the common kinds, with the same paired test:

# %% tags=["hide-input"]
from itertools import compress

from grpo_workbook.statistics import changed

everything = report_heldout(before_all, after_all)
strict = everything["greedy"]["strict"]
print(f"all kinds, greedy: {strict['before']:.1%} before, {strict['after']:.1%} after")
if "rare" in heldout_set.column_names:
    common = [not row["rare"] for row in heldout_set]
    right_before = list(compress(before_all["greedy"].strict, common))
    right_after = list(compress(after_all["greedy"].strict, common))
    better, worse = changed(right_before, right_after)
    p_common = paired_p_value(right_before, right_after)
    rates = f"{mean(right_before):.1%} before, {mean(right_after):.1%} after"
    print(f"common kinds, {len(right_before)} problems: {rates}")
    print(f"{len(better)} got better, {len(worse)} worse: p = {p_common:.2g}")

# %% [markdown]
# Over all kinds the rate rose from 61.0 % to 82.3 %, because the rare kinds gain much. On the common kinds alone it
# fell from 87.0 % to 82.1 %. That can be chance, because p is 0.11. So this run alone neither shows nor excludes a
# loss. [Chapter 08](08_evaluation.ipynb) computes how many problems would be enough.
#
# But the rate fell with each of three seeds, and with the course's tiny Gemma 3 it fell further
# ([measurements](../docs/measurements.md)). Training on a part of a task can cost the rest, so measure the rest too.

# %% [markdown]
# ## Step 8: what kind of gain is it?
#
# "The model improved" can mean three things:
#
# - **form**: the answer was right before, and now it has the form that was asked for;
# - **sharpening**: the problem was solved in some of the earlier tries, and now the right answer is likely;
# - **new**: the problem was solved in none of the earlier tries, and now it is.
#
# `describe_gain` divides the strict gain into these parts. For each problem it needs two facts from before training:
# its rate, and whether it was solved at all. If the same tries gave both, a problem that failed 16 times by bad luck
# would count as new with a rate of 0, and the end of its bad luck would look like a gain. So the tries are split: the
# first try gives the rate, and the other 15 say whether the problem was solved. Then the second try gives the rate, and
# so on. The result is the mean over all 16 splits.
#
# In the table the first three rows add up to *together*; the last two rows are other measures, for comparison:

# %%
from grpo_workbook.evaluation import describe_gain
from IPython.display import Markdown, display

text = "\n".join(describe_gain(results))
display(Markdown(text))

# %% [markdown]
# None of the gain is form. About half is sharpening, and half is on problems that none of the other 15 tries solved.
#
# In the figure each mark is a problem: from left to right the fraction of right tries before training, from bottom to
# top the fraction after. Shape and colour say which kind makes up most of the problem's gain. In the left column stand
# the problems that none of the 16 earlier tries solved; the table counted 15, the figure counts all 16. What lies
# clearly below the dashed line got worse. (Marks are moved a little at random, so that they do not hide each other.)

# %% tags=["hide-input"]
from grpo_workbook.evaluation import by_problem

rates = pd.DataFrame()
for side, scores in (("before", sampled_before), ("after", after_rare["sampled"])):
    rates[side] = by_problem(scores.strict, tries)
    rates[f"lenient {side}"] = by_problem(scores.lenient, tries)
gain = rates["after"] - rates["before"]
lenient_gain = rates["lenient after"] - rates["lenient before"]
failed = rates["lenient before"] == 0
part = pd.Series("sharpening", rates.index)
part[lenient_gain < gain / 2] = "form"
part[failed] = "new"
part[gain <= 0] = "no gain"
dice = torch.Generator().manual_seed(0)
noise = 0.04 * (torch.rand(2, len(rates), generator=dice).numpy() - 0.5)
x, y = rates["before"] + noise[0], rates["after"] + noise[1]
marks = {"new": "o", "sharpening": "s", "form": "^", "no gain": "x"}
colours = [figures.ORANGE, figures.BLUE, figures.GREEN, figures.GREY]
figure, (axes,) = figures.new_panels(6.0, 4.2)
axes.plot([0, 1], [0, 1], "--", color=figures.GREY, lw=1)
for (name, mark), colour in zip(marks.items(), colours):
    is_part = part == name
    label = f"{name}: {is_part.sum()}" if is_part.any() else None
    axes.plot(x[is_part], y[is_part], mark, color=colour, alpha=0.7, label=label)
axes.set(xlabel="right before (fraction of tries)", ylabel="right after")
axes.set_aspect("equal")
title = f"{failed.sum()} problems were never solved in {tries} tries"
figure.suptitle(f"{title}; {(part == 'new').sum()} of them are solved now")
figure.legend(frameon=False, loc="outside right center", title="problems")
figures.show(figure, f"Problems by kind of gain: {part.value_counts().to_dict()}.")

# %% [markdown]
# Of the 43 problems in the left column, 34 are now solved in at least one try. But "new" has two limits:
#
# - It does not mean that the model could not solve the problem before. A problem that it solves in one of 50 tries is
#   usually solved in none of 15.
# - It does not mean new arithmetic. The model could add, subtract and multiply before training, and it solved other
#   kinds of problem; GRPO taught it to do so in the rare kinds. If it never solved a kind, no group of this kind would
#   have a right answer, and nothing would be reinforced. Such a kind would probably stay unsolved, unless something
#   learned from a similar kind carries over.
#
# Which kinds gained? For each rare kind the table has the number of problems and the greedy accuracy before and after
# training:

# %% tags=["hide-input"]
if "kind" in rare_set.column_names:
    kinds = pd.DataFrame({"kind": list(rare_set["kind"])})
    kinds["before"] = greedy_before.strict
    kinds["after"] = greedy_after.strict
    rates = kinds.groupby("kind").mean()
    rates.insert(0, "problems", kinds["kind"].value_counts())
    display(rates.sort_values("before").round(2))

# %% [markdown]
# The answers to the kind `how_many_more` were all right before, so all of the greedy gain comes from the other five
# kinds.
#
# ## Step 9: would something else have gained as much?
#
# Perhaps any training would have helped, or more practice with the old data. Before these explanations are excluded, a
# gain proves little. So `benchmarks/controls.py` repeats the run of this chapter, *main*, beside **controls**. Each
# control starts from *base*, the model before training, and takes as many steps as *main*, with as many sequences in a
# step. *main* and each control have three seeds:
#
# - *random*: the same run, with a reward that is the toss of a coin;
# - *more*: more supervised training on data like that which made *base*, with as few rare examples as there;
# - *rebalanced*: like *more*, but half of the sequences in each step are the 24 rare examples (four of each kind),
#   which come again and again;
# - *worked*: supervised training on worked answers to the problems that GRPO trains on.
#
# All of them answer the 257 held-out problems of the rare kinds with one *greedy* answer each, and the first 120 also
# with *sampled* answers. The next cell reads the stored results into the table `controls`, a row for each run and seed:

# %% tags=["hide-input"]
import json

from grpo_workbook import files

stored = json.loads((files.REPO / "benchmarks" / "controls.json").read_text())
lines = []
for run in stored:
    if run["family"] == "qwen":
        line = {"run": run["run"], "greedy": 100 * mean(run["greedy"])}
        line["sampled"] = 100 * run["sampled"]
        line["pass@16"] = 100 * run["pass_at_k"]["16"]
        if "fresh" in run:
            line["fresh"] = 100 * mean(run["fresh"]["greedy"])
        lines.append(line)
controls = pd.DataFrame(lines)
measures = ["greedy", "sampled", "pass@16"]
by_run = controls.groupby("run", sort=False)
print(", ".join(f"{name}: {count}" for name, count in by_run.size().items()), "seeds")

# %% [markdown]
# In the figure each row is a run and each dot a seed. The number beside the dots is their mean; the dotted line is
# *base*, which has one dot, because nothing is trained in it. The three dots of *random* coincide. All rates are
# strict:

# %% tags=["hide-input"]
means = by_run[measures].mean()
names = list(means.sort_values("greedy").index)
colours = {"main": figures.ORANGE}
figure, grid = figures.new_panels(9.5, 2.9, 3, 3)
words = []
for axes, column in zip(grid, measures):
    for place, name in enumerate(names):
        values = controls.loc[controls["run"] == name, column]
        colour = colours.get(name, figures.BLUE)
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.6)
        x, side = values.max() + 4, "left"
        if x > 84:  # no room on the right
            x, side = values.min() - 4, "right"
        axes.text(x, place, f"{values.mean():.1f}", ha=side, va="center", color=colour)
        words.append(f"{name}, {column}: {values.mean():.1f}")
    axes.axvline(means.loc["base", column], ls=":", color=figures.GREY)
    axes.set_title(column)
    axes.set_xlim(-4, 104)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(labelleft=axes is grid[0])  # the names once, on the left
    axes.invert_yaxis()
figure.suptitle(
    "Of these runs, only imitating worked answers gains more than GRPO (main)"
)
figure.supxlabel("right answers, or solved problems (%)", fontsize=10)
figures.show(figure, f"Dots of seeds in three panels. Means: {'; '.join(words)}.")

# %% [markdown]
# Only imitating worked answers gained more than GRPO. (The greedy rates are lower than in step 7, because they are of
# all 257 problems, and the first 120 are easier.) All controls use the learning rate that was chosen for *main*, so at
# their own best rate they may gain more.
#
# - *random* ends at 0. Its advantages are noise, and at this learning rate 120 steps of noise destroy the model. So
#   this control had no fair chance, and it says little about the gain; a lower rate was not tried.
#   [Chapter 08](08_evaluation.ipynb) reports a large model that gained even with random rewards, so with a large model
#   repeat this control.
# - *more* helps little: the greedy rate rises by 4 points, the sampled rate by 7.
# - *rebalanced* reaches a greedy rate of 48 % with the same data. So practising the 24 rare examples more often gains 9
#   points without any reward; GRPO gains 43.
# - *worked* gains most: the greedy rate is 95 %. These answers are in the form that this model already writes. If you
#   have such answers, compare with this control first. GRPO reached 81.5 % without them: its reward needs only the
#   right numbers.
#
# One control is missing. *Rejection sampling* needs only the right numbers, too: sample answers from the base, keep the
# right ones, and imitate them. It was not run here, so the figure does not show that the gain needs GRPO.
# [Chapter 12](12_which_algorithm.ipynb) compares the two.
#
# One more objection: the settings of *main* were chosen by looking at these held-out problems, so its rate may be too
# high. Therefore *base* and *main* also answered 514 **fresh** problems, with which nothing was chosen:

# %%
for name in ("base", "main"):
    rates = controls.loc[controls["run"] == name, "fresh"]
    print(f"{name}, greedy, on the fresh problems: {rates.mean():.1f} %")
    print("   by seed:", *rates.round(1))

# %% [markdown]
# On fresh problems the gain is 40.5 points, nearly as large as the 43.0 points on the held-out problems. So the tiny
# model improved with each of three seeds. ([Chapter 08](08_evaluation.ipynb) shows how far seeds can lie apart.)
#
# All of this holds for a model of less than a million weights. For large models it is a hypothesis that you can test in
# the same way.
#
# <details><summary>For the curious: these rates beside those of steps 4 and 8</summary>
#
# The sampled rates of *base* differ a little from step 4, because here each problem has 64 tries.
#
# The pass@16 of this chapter's run rises by 28 points, from 64.2 % to 92.5 %. This is no independent evidence of new
# problems, because it is computed from the same tries.
#
# With more tries, fewer problems are new. In the stored runs of step 9 the base had 64 tries at each of these 120
# problems. All 64 together solve 75.8 % of the problems, and any 16 of them 65.3 % on average. After training, 16 tries
# solve 94.2 %, the mean of three seeds. So four times as many tries of the base do not reach what 16 tries of the
# trained model solve.
#
# </details>
#
# ## Step 10: keep the model
#
# The adapter is small, but it cannot be used without its base. To *merge* means to add the adapter to the base's
# weights, so that one model is left. Merging into 4-bit weights would round them again. So `merge` loads the base
# unquantized, adds the adapter, and saves one 16-bit model that plain Transformers can load. First save the adapter and
# free the memory, because the merge needs it:

# %%
from accelerate.utils.memory import clear_device_cache
from grpo_workbook import merge, save_adapter
from grpo_workbook.compat import free_vllm

save_adapter(model, tokenizer, profile.output / "adapter")
# these two values are for the automatic check of this notebook
steps = trainer.state.global_step
in_4bit = count_4bit_layers(model)
free_vllm(model)  # if vLLM stands beside the model, it holds a part of the GPU
del model, trainer
clear_device_cache(garbage_collection=True)

# %% [markdown]
# `merge` reads the trained policy from the disk, and tests its result before it writes it. Given the same tokens, the
# merged model must compute the same logits as the 16-bit base with a separate adapter. Rounding to 16 bits changes the
# logits by a small part of their spread, but the most likely token should stay the same.
#
# This shows that the merge was computed correctly, not that an adapter trained on the *4-bit* base works as well on the
# unquantized base, a slightly different model. So the merged model also answers the held-out problems, and `merge`
# refuses it if it is clearly worse than the trained policy: below the policy's 95 % interval, with p below 0.01.

# %%
proof = merge(
    profile.model, profile.output / "adapter", profile.output / "merged",
    heldout=heldout_set, batch_size=profile.eval_batch_size, max_new_tokens=longest,
    policy=after_all["greedy"],  # the trained policy's answers, to compare with
)
greedy = proof["heldout"]["strict"]  # before: 4-bit with adapter; after: merged
print(f"the same most likely token: {proof['same_greedy_tokens']:.2%} of positions")
print(f"difference of the logits:   {proof['relative_logit_difference']:.2%}")
print(f"4-bit with adapter:         {greedy['before']:.1%} strict, greedy")
print(f"merged, 16-bit:             {greedy['after']:.1%} strict, greedy")

# %% [markdown]
# The merge is correct, and the last two rates are nearly equal. These are the merged model's first answers; the third
# problem stood in step 4:

# %%
for row, text in zip(heldout_set, proof["merged_answers"]):
    print(f"{row['question']}  (right: {row['answer']})")
    print("   ", " ".join(text.split()))

# %% [markdown] tags=["remove-cell"]
# This cell is for the automatic run on every change: it fails if training did not happen or did not help.

# %% tags=["remove-cell"]
profile.output.mkdir(parents=True, exist_ok=True)
proved = {
    "steps": steps,
    "heldout": everything,
    "rare": results,
    "p_value": p_value,
    "merge": proof,
    "linear4bit_layers": in_4bit,
}
(profile.output / "notebook.json").write_text(json.dumps(proved, indent=2))
assert steps == profile.grpo["max_steps"] == len(log)
assert all(entry["step_time"] > 0 for entry in log)
assert trained_formats == {torch.float32}, "not the weights that were meant"
if profile.name == "smoke":
    assert greedy_after.rate > greedy_before.interval[1] and p_value < 1e-6, "no gain"
    passes = results["sampled"]["strict_pass"]
    assert passes["gain_interval"][0] > 0, "no more problems are solved in 16 tries"
    assert proof["same_greedy_tokens"] > 0.99, "the merged model is a different one"
    assert greedy["after"] > after_all["greedy"].rate - 0.05

# %% [markdown]
# ## Your own project
#
# The command `run` repeats all these steps with your own data and rewards. It accepts any argument of TRL's
# `GRPOConfig` by its name, and it saves a checkpoint every `save_steps` steps, so that an interrupted training can
# continue. To start, `python -m grpo_workbook new my_project` creates [a project](../templates/my_project/README.md)
# that can train at once: data, two reward functions with their tests, and a script like the one above.
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
# prediction. First load the trained policy again, from its adapter:

# %%
from grpo_workbook import load_model

model, tokenizer = load_model(
    profile.model, profile.output / "adapter", dtype=profile.dtype,
    device=profile.device, load_in_4bit=profile.loader["load_in_4bit"],
)

# %% [markdown]
# ### Exercise 04.1 · `my_reward` · medium · 15 minutes
#
# Write a reward of your own; the next exercise trains with it. The model should give *right answers, as short as
# possible*:
#
# - A completion with exactly one answer block (`<answer>`, the right number, `</answer>`) is right.
# - Of two right completions the shorter one earns more, at least if the shorter one has fewer than 100 characters.
# - Every other completion, such as a wrong answer or several answer blocks, earns less than all right ones, whatever
#   their lengths.
#
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
# all answer blocks. Give 0 unless there is one and it is right. What is left must fall with the length and never reach
# 0, not even for a text of several thousand characters.
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

# %% [markdown]
# ### Exercise 04.2 · `swap_the_reward` · medium · 10 minutes
#
# Swap the chapter's three rewards for your own, and train a fresh copy of the base with it on the rare kinds, for 40
# steps. Two things can change in the greedy answers to the rare kinds. *More* of them can be right (p of the paired
# test is below 0.05), and they can become *shorter* (their mean length in tokens falls by a tenth or more). Write down
# whether you expect `"more right"`, `"shorter"`, `"both"` or `"neither"`. Then run the cell (about a minute). It also
# prints an answer.

# %% tags=["exercise"]
from grpo_workbook.exercises import predict

prediction = ...  # "more right", "shorter", "both" or "neither"


def swap_the_reward() -> dict:
    """40 steps with `my_reward` alone: change it, or `own_steps`, and run again."""
    own_steps = 40
    policy, _ = load_policy(profile)
    settings = {**profile.grpo, "max_steps": own_steps, "save_strategy": "no"}
    own_args = GRPOConfig(output_dir=str(profile.output / "my_reward"), **settings)
    own_trainer = GRPOTrainer(
        policy, [my_reward], own_args, train_set, processing_class=tokenizer,
        callbacks=[Float32Adapters(policy), RewardBar()],
    )
    own_trainer.remove_callback(PrinterCallback)
    own_trainer.train()
    trained = ask(policy, rare_set, ways=["greedy"])["greedy"]
    print(trained.completions[0])
    return {
        "before": greedy_before.strict, "after": trained.strict,
        "tokens": [mean(scores.tokens) for scores in (greedy_before, trained)],
    }


predict("04.2", prediction, swap_the_reward);

# %% [markdown]
# <details><summary>Hint</summary>
#
# In about half of the groups some completions are right and some are wrong. What separates their rewards more, being
# right or being short? And how much do the lengths of this model's right answers to one problem differ? Step 4 prints
# some answers.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "more right"
# ```
#
# We ran this with the solution of 04.1: before training 44 % of the 120 greedy answers were right, and after 40 steps
# 66 % (p = 3e-6). In a group with right and wrong answers a right one earns at least 0.5 more, which outweighs any
# difference in length. In a group of right answers only the length counts, and the division by the standard deviation
# gives it full size (step 3). Still the mean length hardly changed (27.4 and 27.3 tokens), because this model writes
# all its answers in one form, and a reward can only select among the completions that are sampled.
#
# A model that varies its form finds what the reward forgets. We also trained *tiny-form*, the model of chapter 00, with
# this reward: after 48 steps (of 64 completions, learning rate 1e-3) 88 % of its answers were right in any form, but
# the *strict* rate had fallen from 21 % to 0. It no longer wrote `</reasoning>`, a tag that costs 12 characters and
# that the reward never asks for.
#
# </details>

# %% [markdown]
# ### Exercise 04.3 · `what_is_shown` · medium · 12 minutes
#
# Write the rule that decides what a run has shown. `before`, `after` and `control` have one `True` or `False` for each
# held-out problem: whether the greedy answer of the base, of the trained model and of a control is right. Return
#
# - `"no gain shown"`, unless the trained model is better than the base;
# - `"a gain, but not beyond the control"`, if it is better than the base, but not better than the control;
# - `"a gain beyond the control"`, if it is better than both.
#
# One model is *better* than another if more of its answers are right and the paired test gives p below 0.05.

# %% tags=["exercise"]
def what_is_shown(before: list[bool], after: list[bool], control: list[bool]) -> str:
    raise NotImplementedError


check("04.3", what_is_shown);

# %% [markdown]
# <details><summary>Hint</summary>
#
# You need the same comparison twice, so write it once, as a function of two lists. `paired_p_value` of step 7 (`from
# grpo_workbook import paired_p_value`) has two sides: p is small for a loss, too. So compare `sum(first)` and
# `sum(second)` as well.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def what_is_shown(before: list[bool], after: list[bool], control: list[bool]) -> str:
#     from grpo_workbook import paired_p_value
#
#     def is_better(second, first):
#         return sum(second) > sum(first) and paired_p_value(first, second) < 0.05
#
#     if not is_better(after, before):
#         return "no gain shown"
#     if not is_better(after, control):
#         return "a gain, but not beyond the control"
#     return "a gain beyond the control"
# ```
#
# </details>
#
# Once the check is passed, the next cell applies your rule to the stored runs of seed 0: *main*, the run of this
# chapter, against each control:

# %%
from grpo_workbook.exercises import judge

if judge("04.3", what_is_shown).status == "solved":
    right = {}
    for run in stored:
        if run["family"] == "qwen" and run["seed"] == 0:
            right[run["run"]] = run["greedy"]  # 1 or 0 for each of 257 problems
    for name in ("random", "more", "rebalanced", "worked"):
        print(f"{name:10}", what_is_shown(right["base"], right["main"], right[name]))

# %% [markdown]
# The stored gain is beyond *random*, *more* and *rebalanced*, but not beyond *worked*. Neither answer is final. A gain
# beyond a control excludes only the explanation that this control stands for, and only if the control had a fair
# chance: *random* ended at 0, so being beyond it says little. And a gain that is not beyond *worked* is still a gain:
# it came without worked answers. Before you train, decide which control your claim needs.

# %% [markdown]
# ### Exercise 04.4 · `my_problems` · medium · 12 minutes
#
# Does the gain carry over to problems that look different? In one rare kind people get off and on a bus. Here the bus
# becomes a tram: the cell makes 32 such problems, in a new sentence and with numbers of the size that the training
# problems have. Both models answer them greedily. Will the trained model be right and well-formed on `"more"` of these
# problems, on `"fewer"`, or is there `"no difference"` (p of the paired test is 0.05 or more)? Write down your
# prediction and run the cell.
#
# Then change one thing at a time, and predict again:
#
# - **larger numbers** in the same sentence: `range(40, 96, 7)` for `a`, and `(13, 18), (15, 14), (26, 19), (18, 32)`
#   for `b` and `c`.
# - **another kind**: set `question` to `"Ada has {} pears and finds {} more. How many pears does Ada have now?"`, and
#   use `for b in (3, 5, 8, 9):`, `str(a + b)` and `question.format(a, b)`. Such sums are a common kind, on which the
#   run did not train. If the result changes, is the reason *pears*, a new word, or *finds*, which stands only in a rare
#   kind?
# - **problems of your own**.

# %% tags=["exercise"]
prediction = ...  # "more", "fewer" or "no difference"


def my_problems() -> dict:
    """The base model against the trained one, on the problems in `rows`."""
    from grpo_workbook import evaluate

    question = "A tram carries {} people. At the next stop {} leave and {} enter. "
    question += "How many people are in it now?"
    rows = []
    for a in range(10, 25, 2):
        for b, c in ((3, 8), (5, 4), (6, 9), (8, 2)):
            answer = str(a - b + c)
            rows.append({"question": question.format(a, b, c), "answer": answer})
    mine = to_dataset(rows)
    with model.disable_adapter():
        base = evaluate(model, tokenizer, mine, max_new_tokens=longest)
    trained = evaluate(model, tokenizer, mine, max_new_tokens=longest)
    print(rows[0]["question"])
    for name, scores in (("base", base), ("trained", trained)):
        print(f"{name}:", " ".join(scores.completions[0].split()))
    return {"before": base.strict, "after": trained.strict}


predict("04.4", prediction, my_problems);

# %% [markdown]
# <details><summary>Hint</summary>
#
# What did the run reinforce: a sentence, a way to calculate, or numbers of a certain size? What of that do these
# problems share with the training problems?
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# prediction = "more"
# ```
#
# In our run (seed 0) the base solved 7 of the 32 problems and the trained model 31: 24 got better, none worse
# (p = 1e-7). The verbs and the tram are new, but the calculation is that of the bus, and so is a part of the sentence.
# So the gain is not tied to the exact wording of the training problems.
#
# **Larger numbers**: 0 before and 0 after, so no difference. Many of these answers do not even copy the numbers of the
# question, and no bus of the training problems carries more than 32 people. (0 against 0 is also a floor: it could not
# show a loss.)
#
# **Pears**: 21 before and 8 after, none better and 13 worse (p = 2e-4), so the trained model solves *fewer*. It often
# subtracts (`10-3=6`), as many of the trained kinds do. The word *finds* is not the reason: with *buys*, as in the
# common kind, 19 fell to 7. With *pens* and *buys* all 32 were right before and after. The training problems have pens
# but no pears, so a part of what the model could do with an unknown word is lost.
#
# Each of these is one set of 32 problems and one trained model. Here the gain reached problems that are close to the
# trained ones, did not reach further, and cost something where the model was less sure. Measure such problems before
# you call a gain general.
#
# </details>

# %% [markdown]
# ## Summary
#
# How do you train a model with GRPO so that you can trust the result?
#
# - The training itself takes fewer than 40 lines: model, adapters, data, reward, `GRPOConfig`, `GRPOTrainer`. The trust
#   comes from what is done before and after it.
# - Before you train, test the reward on completions whose quality you know. Some of them should try to fool it.
# - Set every value that matters explicitly, because TRL and Unsloth have different defaults. Large models with LoRA
#   start at a learning rate of 1e-5, with full fine-tuning at 1e-6. Keep the adapters in float32: at 1e-5, bfloat16 can
#   lose most single updates.
# - Measure held-out problems before and after, with an interval and a paired test, and also the problems that the run
#   does not train on. Neither the loss nor the training reward can tell whether the model improved.
# - Say what kind of gain it is: form, sharpening, or problems that none of the earlier tries solved.
# - Exclude other explanations. Train on other data for as many steps, imitate right answers (worked ones, or the
#   model's own), repeat the run with other seeds, and measure fresh problems if the held-out ones helped to choose
#   settings. A random reward is a control only where it does not destroy the model.
# - Test the merged model on the held-out problems, because that is the model you ship.
#
# Next: [05 · Monitoring](05_monitoring.ipynb) shows how to tell, while a run trains, whether it is healthy.
