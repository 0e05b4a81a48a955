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
"""The same training as a stock TRL script, for what the settings files cannot say.

    uv run train.py       # no clone, no installation: uv takes the versions above
    uv run train.py 4     # does it run? Four steps
    python train.py       # in an environment with the workbook

It reads cpu.yaml's system prompt, and writes to outputs/script.
"""

import sys
from pathlib import Path

import unsloth  # isort: skip  (before trl, which it patches)
import torch
import yaml
from rewards import right, well_formed
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

HERE = Path(__file__).parent
MODEL, LENGTH = str(HERE / "tiny_model"), 64  # of a completion, in tokens; a real model: 256
RATE = 1e-3  # for the tiny model; a real one: 1e-5
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40
GPU = torch.cuda.is_available()

prompt = yaml.safe_load((HERE / "cpu.yaml").read_text())["system_prompt"]
train_set, heldout = (
    to_dataset(load_problems(HERE / f"{name}.jsonl", answers="text"), prompt)
    for name in ("train", "heldout")
)
model, tokenizer = unsloth.FastLanguageModel.from_pretrained(
    MODEL, max_seq_length=160 + LENGTH, load_in_4bit=True, dtype=None if GPU else torch.float32
)
model = unsloth.FastLanguageModel.get_peft_model(model, r=16, lora_alpha=32, random_state=0)
sample_unpacked(model)  # on a CPU it samples in half the time
args = GRPOConfig(
    str(HERE / "outputs" / "script"), max_steps=STEPS, learning_rate=RATE, warmup_steps=5,
    per_device_train_batch_size=64, num_generations=8, max_completion_length=LENGTH,
    reward_weights=[2.0, 0.5], logging_steps=1, report_to="none", gradient_checkpointing=False,
    bf16=GPU and torch.cuda.is_bf16_supported(), fp16=GPU and not torch.cuda.is_bf16_supported(),
)  # fmt: skip
trainer = GRPOTrainer(
    model, [right, well_formed], args, train_set, processing_class=tokenizer,
    # The adapters stay in float32; the second says what is wrong with the run, if anything.
    callbacks=[Float32Adapters(model), HealthCallback()],
)  # fmt: skip


def measure():
    """The right answers on the held-out rows, sampled once each."""
    return evaluate(
        model, tokenizer, heldout,
        rewards=[right], sample=True, max_new_tokens=LENGTH, batch_size=120,
    )  # fmt: skip


before = measure()
trainer.train()
after = measure()
print(f"right before {before.rate:.1%}, after {after.rate:.1%}; {compare(before, after)}")
trainer.save_model(str(HERE / "outputs" / "script" / "adapter"))
