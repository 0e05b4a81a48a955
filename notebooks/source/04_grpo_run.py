# %% [markdown]
# # 04 · A GRPO run you can trust
#
# **After this notebook you can** load a model in 4-bit, give it LoRA adapters, train it with GRPO through Unsloth and
# TRL, and say with an interval and a paired test whether it got better on problems it never saw.
#
# **Time:** about 3 minutes on two CPU cores (smoke profile); on one core, or a busy machine, up to twice that. On a GPU
# the same cells train Qwen3 or Gemma 3; the times there have not been measured yet.
#
# The whole run is also one command: `make run`, or `python -m grpo_workbook run --help`.

# %% [markdown]
# ## The idea, on four completions
#
# GRPO asks the model the same question several times and rewards every answer. What counts is only how an answer
# compares with the others of its **group**: the *advantage* is the reward minus the group's mean, divided by the
# group's standard deviation.

# %%
from statistics import mean, stdev

group = [3.0, 0.25, 0.5, 3.0]  # two right and well-formed, two not
advantages = [(r - mean(group)) / stdev(group) for r in group]
print([round(a, 2) for a in advantages])

# %% [markdown]
# Answers above the mean are made more likely, those below less. When all four earn the same, every advantage is 0 and
# the group teaches nothing:

# %%
group = [3.0, 3.0, 3.0, 3.0]
print([r - mean(group) for r in group])

# %% [markdown]
# So GRPO needs a model that gets it right *sometimes*. A group that is always right, or never, is a **zero-variance
# group**.

# %% [markdown]
# ## What this run is
#
# One object says what runs here, and why. `GRPO_WORKBOOK_PROFILE` and `GRPO_WORKBOOK_MODEL` in the environment change
# it; without a GPU it chooses the smoke profile.

# %%
from grpo_workbook import RunConfig

run = RunConfig.from_env()
print(run)

# %% [markdown]
# Unsloth comes first: it patches TRL and Transformers, and can do so only before they are loaded.

# %%
import os

from grpo_workbook import quiet, show

quiet()  # no loading bars, no advice
if os.path.isdir(run.model):
    os.environ["HF_HUB_OFFLINE"] = "1"  # the model is on this disk: ask no network

import unsloth

# %% [markdown]
# ## The problems
#
# Word problems of one and two steps in GSM8K's form: the answer ends in `#### N`. The held-out problems share no
# combination of template and numbers with the training problems.

# %%
from grpo_workbook import data, load_problems, to_dataset

train_rows = load_problems(data.WORD_PROBLEMS["train"])
heldout_rows = load_problems(data.WORD_PROBLEMS["heldout"]).select(range(run.heldout))
print(len(train_rows), "to train on,", len(heldout_rows), "held out\n")
print(train_rows[0]["question"], "\n" + train_rows[0]["solution"])

# %% [markdown]
# TRL wants a `prompt` (here a conversation) and hands every other column to the rewards: `answer` will be the number.

# %%
train_set, heldout_set = to_dataset(train_rows), to_dataset(heldout_rows)
train_set[0]

# %% [markdown]
# ## The model, in 4-bit, with adapters
#
# The base model's weights are stored in 4 bits (NF4, made for weights that are normally distributed) and stay frozen.
# What will learn is a pair of thin matrices beside each of them: low-rank adaptation, LoRA. Unsloth says what it took:
# `dtype` is the type of the arithmetic and of what is not in 4 bits, and "chunked CE" a way to compute a loss in
# pieces, which saves memory.

# %%
import torch
from unsloth import FastLanguageModel

torch.manual_seed(run.seed)
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name=run.model,
    max_seq_length=run.max_prompt_length + run.max_completion_length,
    dtype=getattr(torch, run.dtype),
    load_in_4bit=run.load_in_4bit,
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
)

# %% [markdown]
# `r` is the rank: how thin the matrices are. Adapting all seven projections of a layer costs little and learns more
# than attention alone ([QLoRA](https://arxiv.org/abs/2305.14314) measured it). `lora_alpha / r` scales what they add.

# %%
model = FastLanguageModel.get_peft_model(
    model,
    r=run.lora_rank,
    lora_alpha=2 * run.lora_rank,
    lora_dropout=0.0,
    target_modules=["q_proj", "k_proj", "v_proj", "o_proj",
                    "gate_proj", "up_proj", "down_proj"],
    use_gradient_checkpointing="unsloth" if run.gradient_checkpointing else False,
    random_state=run.seed,
)
tokenizer.padding_side = "left"  # the model continues its prompt: padding comes before

# %% [markdown]
# Trust nothing: a layer that cannot be quantized falls back to 16 bits without an error. Count them.

# %%
from grpo_workbook import training

per_layer = 7  # the projections named above
expected = model.config.num_hidden_layers * per_layer
print(training.count_4bit_layers(model), "of", expected, "linear layers in 4-bit")
print(f"{training.count_trained_parameters(model):,} adapter weights will learn")

# %% [markdown]
# TRL no longer truncates prompts, so what does not fit is dropped before training. And this is what the model really
# reads:

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
# from trl import GRPOTrainer
#
# quantization = BitsAndBytesConfig(
#     load_in_4bit=True, bnb_4bit_quant_type="nf4",
#     bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16,
# )
# model = AutoModelForCausalLM.from_pretrained(
#     run.model, dtype=torch.bfloat16, quantization_config=quantization
# )
# tokenizer = AutoTokenizer.from_pretrained(run.model, padding_side="left")
# adapters = LoraConfig(
#     r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"
# )
# trainer = GRPOTrainer(
#     model=model, processing_class=tokenizer, peft_config=adapters,
#     args=run.to_grpo_config(weights), reward_funcs=functions,
#     train_dataset=train_set,
# )
# ```
#
# (`weights` and `functions` are made below.)
# `python -m grpo_workbook run --backend plain` runs it on a GPU. On a CPU TRL 1.15 cannot: it computes
# log-probabilities in a Triton kernel, and the command says so.
#
# Where stock TRL does start on a CPU (1.16 and later), 4-bit **learns wrongly without a word**: on processors with
# AVX512-BF16, bitsandbytes 0.50 repacks a layer's weights at the first generation, and after that no gradient flows
# back through the layer. The other layers go on learning, so the reward still rises, only less. Unsloth turns the
# repacking off, and so does our plain backend.
#
# </details>

# %% [markdown]
# ## The rewards
#
# A reward function gets the completions and the dataset's columns, and returns one number for each completion. Ours
# give 0 to 1 each: for the right number, for perfect form, for parts of the form. Weights say what each counts.

# %%
from grpo_workbook import correctness_reward, parse_rewards

print(run.rewards)
functions, weights = parse_rewards(run.rewards)
show(correctness_reward)

# %% [markdown]
# Test each reward on completions you know, before any model is trained on it. The last one hedges: two answers. The
# total is what GRPO compares.

# %%
samples = {
    "right": "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>",
    "no tags": "6*7=42. The answer is 42.",
    "half the form": "<reasoning>\n6*7=42\n</reasoning>\n42",
    "wrong number": "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>",
    "hedged": "<answer>41</answer><answer>42</answer>",
}
names = [f.__name__.removesuffix("_reward") for f in functions]
print(f"{'':15}", *[f"{name:>20}" for name in names], f"{'total':>7}")
for name, text in samples.items():
    values = [f(completions=[text], answer=["42"])[0] for f in functions]
    total = sum(w * v for w, v in zip(weights, values))
    print(f"{name:15}", *[f"{v:20.2f}" for v in values], f"{total:7.2f}")

# %% [markdown]
# ## The baseline
#
# Without it no later number means anything. *Strict* is right and well-formed, *lenient* takes any readable answer;
# *sampled* is at temperature 1, as in training, *greedy* takes the likeliest token. `ci95` is the 95 % interval of the
# first number (Wilson's).

# %%
from grpo_workbook import evaluate, summary

how = {"max_new_tokens": run.max_completion_length,
       "batch_size": run.eval_batch, "seed": run.seed}
before_sampled = evaluate(model, tokenizer, heldout_set, sample=True, **how)
before_greedy = evaluate(model, tokenizer, heldout_set, **how)
before = summary(before_sampled, before_greedy)
before

# %% [markdown]
# The model mostly knows its arithmetic, and shows it badly. Numbers hide that, so look at what it writes when it is
# sampled, whole:

# %%
for completion in before_sampled.completions[1:5]:
    print(completion, end="\n---\n")

# %% [markdown]
# ## The configuration
#
# TRL's defaults and Unsloth's differ, and differ again between CPU and GPU. So every value that matters is written
# down, once, for all machines: how much goes into one step, how completions are sampled, which of GRPO's many forms, how
# the adapters move. Together they are TRL's `GRPOConfig`:

# %%
show(RunConfig.to_grpo_config)

# %% [markdown]
# | setting | what it does | small GPU (16 GB) | large GPU (80 GB) |
# | --- | --- | --- | --- |
# | `num_generations` | the group. Larger: steadier advantages, fewer zero-variance groups, more time | 8 | 8 to 16 |
# | batch size | completions in an optimizer step. Fewer: a noisier gradient, faster steps | 32 | 128 and more |
# | `per_device_train_batch_size` | completions in memory at once; the rest is accumulated | 4 to 8 | 16 to 32 |
# | `max_completion_length` | most of the time and memory. Too short, and answers are cut before they earn anything | 512 | 1024 and more |
# | `learning_rate` | 1e-5 to 1e-6 for billions of weights; the tiny model takes 1e-3 | 1e-5 | 5e-6 |
# | LoRA `r` | what the adapters can express. Reinforcement learning needs little | 32 | 32 |
# | `beta` | weight of the KL penalty. 0 needs no reference model | 0 | 0 to 0.04 |
# | gradient checkpointing | recomputes activations: less memory, more time | on | on for long answers |
# | vLLM (`fast_inference=True`) | generates several times faster, on a GPU only | if memory allows | on |
#
# These are common values, reasoned and not tried here: no GPU run has been measured yet. Chapter 10 computes the memory
# that they take.
#
# The batch counts **completions**: `per_device_train_batch_size x gradient_accumulation_steps x processes` must be
# whole groups. For a batch of 4 with groups of 8, which older guides use, TRL raises a `ValueError` (Unsloth raises the
# batch size on a GPU, without asking). They also pass `max_prompt_length`, which is gone.

# %% [markdown]
# ## Training
#
# TRL's own trainer. In every step it samples a group of completions for each of a few problems, rewards them, and moves
# the adapters. The progress bar shows the mean weighted reward, of at most 3. Interrupting the kernel ends training
# after the step under way: what was learned stays in `model`, and a checkpoint is saved.

# %%
from trl import GRPOTrainer
from transformers import PrinterCallback
from grpo_workbook import stop_on_interrupt

trainer = GRPOTrainer(
    model=model,
    processing_class=tokenizer,
    args=run.to_grpo_config(weights),
    reward_funcs=functions,
    train_dataset=train_set,
)
trainer.remove_callback(PrinterCallback)
trainer.add_callback(training.RewardBar())
with stop_on_interrupt(trainer):
    result = trainer.train()

# %% [markdown]
# Watch the reward, not the loss. Advantages are centred within each group, so the loss is small from the first step to
# the last, and a little off 0 because `dapo` weighs longer answers more (chapter 01 takes it apart). It says which way to
# move, not how good the model is. Each line is the mean of a tenth of the steps.

# %%
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
# Form is learned first, because it is the same for every problem. Then the reward creeps on, as slips in the arithmetic
# become rarer. The rate of zero-variance groups grows with it: all their completions are right, and they teach nothing more.
# In the figure the total is weighted, the single rewards are not; pale lines are single steps, strong ones are smoothed.

# %%
from grpo_workbook import figures

figures.show(*figures.reward_curves(log))

# %% [markdown]
# ## Did it learn?
#
# The training reward cannot say: it could have been gamed, or learned by heart. The held-out problems can. The black
# bars are 95 % intervals of the sampled, strict accuracy.

# %%
after_sampled = evaluate(model, tokenizer, heldout_set, sample=True, **how)
after_greedy = evaluate(model, tokenizer, heldout_set, **how)
after = summary(after_sampled, after_greedy)
figures.show(*figures.before_after(before, after, len(heldout_set)))

# %% [markdown]
# Could that be chance? Every problem was answered twice, before and after. If training did nothing, a problem whose
# outcome changed was as likely to change for the better as for the worse: a coin. McNemar's exact test asks how often
# a coin would do this.

# %%
from grpo_workbook import paired_p_value, wilson_interval

print("strict, sampled, 95 % interval before:", wilson_interval(before_sampled.strict))
print("strict, sampled, 95 % interval after: ", wilson_interval(after_sampled.strict))
p_value = paired_p_value(before_sampled.strict, after_sampled.strict)
print(f"p = {p_value:.1g}")

# %% [markdown]
# ## Keep it: the adapter, and the merged model
#
# The adapter alone is small and needs its base. Adapters cannot be merged into 4-bit weights without rounding them
# again, so the base is loaded unquantized, and then the two become one model, saved in 16-bit, that plain Transformers
# can load.

# %%
from grpo_workbook import load_model, merge, save_adapter

save_adapter(model, tokenizer, run.output / "adapter")
folder = run.output / "merged"
proof = merge(run.model, run.output / "adapter", folder, heldout=heldout_set,
              policy=after_greedy, max_new_tokens=run.max_completion_length,
              batch_size=run.eval_batch)

# %% [markdown]
# A merge is proved by its logits: on the same tokens, the 16-bit base with the adapter beside it and the merged model
# must say the same. Rounding to 16 bits moves them a little; the chosen tokens should not change. `merge` writes nothing
# that fails this, or that answers the held-out problems worse than the policy did.

# %%
proof

# %% [markdown]
# That proves the merge. It does not prove that the adapter, trained on the *4-bit* base, works as well on the unquantized
# one: that is another model. So what you would ship is measured like everything else.

# %%
merged, merged_tokenizer = load_model(folder, dtype=run.dtype, device=run.device)
merged_greedy = evaluate(merged, merged_tokenizer, heldout_set, **how)
print(f"4-bit with adapter: {mean(after_greedy.strict):.1%} strict, greedy")
print(f"merged, 16-bit:     {mean(merged_greedy.strict):.1%}")

# %% [markdown]
# And five held-out questions with its answers:

# %%
for row, text in zip(heldout_set, merged_greedy.completions[:5]):
    print(f"{row['question']}  (right: {row['answer']})")
    print("   ", " ".join(text.split()))

# %% [markdown]
# This cell is for the machine that runs the notebook on every change: it fails when training did not happen, or did
# not help.

# %%
import json

run.output.mkdir(parents=True, exist_ok=True)
proved = {"steps": trainer.state.global_step,
          "before": before, "after": after, "p_value": p_value, "merge": proof,
          "linear4bit_layers": training.count_4bit_layers(model),
          "merged_strict_greedy": mean(merged_greedy.strict)}
(run.output / "notebook.json").write_text(json.dumps(proved, indent=2))
assert trainer.state.global_step == run.max_steps and len(log) == run.max_steps
assert all(entry["step_time"] > 0 for entry in log)
if run.profile == "smoke":
    assert after["strict_sampled"] > before["ci95"][1] and p_value < 1e-6, "no gain"
    assert proof["same_greedy_tokens"] > 0.99, "the merged model is a different one"
    assert proved["merged_strict_greedy"] > after["strict_greedy"] - 0.05

# %% [markdown]
# ## Exercises
#
# Write the function and run its cell: it answers. `python -m grpo_workbook progress` lists what you have solved.

# %% [markdown]
# ### Exercise 04.1 · `accumulation_steps` · easy · 5 minutes
#
# An optimizer step shall hold `batch_size` completions. A process takes `per_device_batch` of them at a time. How many
# accumulation steps does each process need? Raise `ValueError` when groups or batches do not come out whole.

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
# All processes together take `per_device_batch * processes` completions at a time. Two things must divide
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
#         raise ValueError(f"{batch_size} completions are not whole groups of {num_generations} and batches of {at_once}")
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
# Each pair adds `rank * inputs + outputs * rank`. To compare with the number that was printed above, take
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
# ### Exercise 04.3 · `changed_outcomes` · medium · 8 minutes
#
# The paired test needs two counts: problems that got better and problems that got worse. Return `(better, worse)` from
# the outcomes before and after. Lists of different length are an error: raise `ValueError`.

# %% tags=["exercise"]
def changed_outcomes(before: list[bool], after: list[bool]) -> tuple[int, int]:
    raise NotImplementedError


check("04.3", changed_outcomes);

# %% [markdown]
# <details><summary>Hint</summary>
#
# Walk through both lists together. `zip` has an argument that refuses lists of different length.
#
# </details>
#
# <details><summary>Solution</summary>
#
# ```python
# def changed_outcomes(before: list[bool], after: list[bool]) -> tuple[int, int]:
#     pairs = list(zip(before, after, strict=True))
#     better = sum(a and not b for b, a in pairs)
#     worse = sum(b and not a for b, a in pairs)
#     return better, worse
# ```
#
# </details>

# %% [markdown]
# ## A script to copy
#
# The same run without a notebook is the command `run`, which `grpo_workbook/cli/run.py` writes out. It takes your own
# data and rewards, and any field of `RunConfig` and of TRL's `GRPOConfig` by its name: copy
# [`templates/my_project`](../templates/my_project/README.md), 40 problems with two reward functions and a YAML file.
#
# ```bash
# python -m grpo_workbook run --model gemma --seed 1 --output outputs/gemma
# python -m grpo_workbook run --data my_problems.jsonl --max-steps 100 --output outputs/mine
# python -m grpo_workbook run --resume        # after a Ctrl-C or a crash
# python -m grpo_workbook run --config my.yaml --max_grad_norm 0.5
# ```

# %% [markdown]
# ## Summary
#
# - GRPO compares a model's answers to one question with each other. Groups that all earn the same teach nothing.
# - 4-bit base, LoRA adapters, TRL's trainer, every setting written down: the same on a CPU and on a GPU.
# - Measure on held-out problems before and after, with an interval and a paired test. The loss says nothing.
# - A merge is proved by its logits, and what is shipped by its own held-out score.
#
# The advantages and losses are taken apart in [01 · GRPO from scratch](01_grpo_from_scratch.ipynb), the data in
# [02 · Dataset preparation](02_dataset_prep.ipynb), the rewards in [03 · Reward design](03_reward_design.ipynb).
#
# Next: [05 · Monitoring](05_monitoring.ipynb) reads such a run while it goes on.
