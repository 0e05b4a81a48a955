# /// script
# requires-python = ">=3.11"
# dependencies = [
#     "grpo-workbook @ git+https://github.com/grpo-workbook/grpo-workbook",
#     "unsloth==2026.10.9", "unsloth_zoo==2026.10.9",
#     "torch==2.13.0", "trl==1.15.0", "transformers==5.17.0", "datasets==4.8.5", "peft==0.21.2",
#     "accelerate==1.15.0", "bitsandbytes==0.50.2", "tyro==1.0.17", "protobuf==7.36.2",
#     "sentencepiece==0.2.3", "hf_transfer==0.1.9", "psutil==7.2.2", "math-verify==0.9.0",
#     "pebble==5.2.3", "scipy==1.17.1", "matplotlib==3.11.2", "pandas==3.1.1", "rich==15.0.0",
#     "packaging==26.3", "filelock==4.2.11", "PyYAML==6.0.3", "tqdm==4.70.1",
# ]
# [tool.uv]  # Unsloth without its own requirements, some of which are for GPUs alone
# dependency-metadata = [
#     { name = "unsloth", requires-dist = [] },
#     { name = "unsloth-zoo", requires-dist = [] },
# ]
# ///
"""The training as a script with TRL's own calls, for what the settings files cannot express.

    uv run train.py       # no clone, no installation: uv installs the versions above
    uv run train.py 4     # only four steps, to see whether it runs
    python train.py       # in an environment with the workbook

It takes its system prompt from cpu.yaml, and writes to outputs/script.
"""

import sys
from pathlib import Path

import unsloth  # isort: skip  (before trl, which it patches)
import rewards
import torch
import yaml
from trl import GRPOConfig, GRPOTrainer

from grpo_workbook import (
    Float32Adapters,
    compare,
    evaluate,
    load_problems,
    sample_unpacked,
    to_dataset,
)
from grpo_workbook.diagnosis import HealthCallback

HERE = Path(rewards.__file__).parent  # the project's folder, also where train.py was sent alone
OUTPUT = HERE / "outputs" / "script"
MODEL = str(HERE / "tiny_model")  # or a model of the hub, such as "Qwen/Qwen3-1.7B"
LEARNING_RATE = 1e-3  # for the tiny model; for a real one 1e-5
MAX_TOKENS = 64  # of a completion; for a real model 256
# What the chat template reads beside the messages, in training and in measuring. Without it Qwen3
# thinks. To let it think, write True, and give MAX_TOKENS room for the thoughts.
TEMPLATE_OPTIONS = {"enable_thinking": False}
MAX_STEPS = 40
if len(sys.argv) > 1:
    MAX_STEPS = int(sys.argv[1])

# The precision: float32 on a CPU, bfloat16 on a GPU that has it, else float16.
on_gpu = torch.cuda.is_available()
use_bfloat16 = on_gpu and torch.cuda.is_bf16_supported()
use_float16 = on_gpu and not use_bfloat16

# The data: each row has a prompt (system prompt and question), an answer, and its other columns.
system_prompt = yaml.safe_load((HERE / "cpu.yaml").read_text())["system_prompt"]
train_set = to_dataset(load_problems(HERE / "train.jsonl", answers="text"), system_prompt)
heldout = to_dataset(load_problems(HERE / "heldout.jsonl", answers="text"), system_prompt)

# The model: its weights in 4 bits, with LoRA adapters that are trained.
model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
    MODEL,
    max_seq_length=160 + MAX_TOKENS,
    load_in_4bit=True,
    dtype=None if on_gpu else torch.float32,
)
model = unsloth.FastLanguageModel.get_peft_model(model, r=16, lora_alpha=32, random_state=0)
sample_unpacked(model)  # on a CPU a small model then samples in half the time

args = GRPOConfig(
    output_dir=str(OUTPUT),
    max_steps=MAX_STEPS,
    learning_rate=LEARNING_RATE,
    warmup_steps=5,
    per_device_train_batch_size=64,  # completions, in groups of num_generations
    num_generations=8,
    max_completion_length=MAX_TOKENS,
    chat_template_kwargs=TEMPLATE_OPTIONS,
    reward_weights=[2.0, 0.5],  # of the two below
    gradient_checkpointing=False,
    bf16=use_bfloat16,
    fp16=use_float16,
    logging_steps=1,
    report_to="none",
)
trainer = GRPOTrainer(
    model,
    [rewards.right, rewards.well_formed],
    args,
    train_set,
    processing_class=tokenizer,
    # The first keeps the adapters in float32, the second prints what is wrong with the run.
    callbacks=[Float32Adapters(model), HealthCallback()],
)


def measure():
    """Sample one answer to each held-out question, and judge it with the reward `right`."""
    return evaluate(
        model,
        tokenizer,
        heldout,
        rewards=[rewards.right],
        sample=True,
        max_new_tokens=MAX_TOKENS,
        chat_template_kwargs=TEMPLATE_OPTIONS,
        batch_size=120,
    )


before = measure()
trainer.train()
after = measure()
print(f"right before {before.rate:.1%}, after {after.rate:.1%}; {compare(before, after)}")
trainer.save_model(str(OUTPUT / "adapter"))
