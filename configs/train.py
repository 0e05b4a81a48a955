"""One training in any number of processes, which the launcher starts. Chapter 10 explains it.

    python configs/train.py outputs/one 6
    accelerate launch --config_file configs/cpu_two_processes.yaml configs/train.py outputs/two 6

A step has 64 completions in each case. What a process was asked, and the accuracy on held-out
problems before and after, are written to FOLDER/process_N.json.
"""

import json
import os
import sys
from pathlib import Path

import unsloth  # noqa: F401  # isort: skip  (before trl, which it patches)
from trl import GRPOConfig, GRPOTrainer

from grpo_workbook import (
    Float32Adapters,
    choose_profile,
    correctness_reward,
    data,
    evaluate,
    load_policy,
    load_problems,
    to_dataset,
)

folder, steps = Path(sys.argv[1]), int(sys.argv[2])
profile = choose_profile("smoke", load_in_4bit=False)
model, tokenizer = load_policy(profile)
train_set = to_dataset(load_problems(data.WORD_PROBLEMS["train"]))
heldout = to_dataset(load_problems(data.WORD_PROBLEMS["heldout"]).select(range(80)))

processes = int(os.environ.get("WORLD_SIZE", 1))  # which the launcher sets
args = GRPOConfig(
    output_dir=str(folder),
    max_steps=steps,
    learning_rate=1e-3,
    num_generations=8,
    per_device_train_batch_size=16,  # completions at once, in each process
    gradient_accumulation_steps=64 // (16 * processes),
    max_completion_length=64,
    chat_template_kwargs=profile.grpo["chat_template_kwargs"],  # also in `measure`
    gradient_checkpointing=False,
    bf16=False,
    use_cpu=profile.device == "cpu",
    logging_steps=1,
    save_strategy="no",
    report_to="none",
)
asked = []  # the questions of each step in this process


def correctness(prompts, completions, answer, **columns):
    """TRL calls a reward once a step, in each process with the completions of this process."""
    asked.append([prompt[-1]["content"] for prompt in prompts])
    return correctness_reward(prompts=prompts, completions=completions, answer=answer, **columns)


def measure() -> float:
    """The accuracy on held-out problems. The processes share the work, so each must call it."""
    scores = evaluate(
        model,
        tokenizer,
        heldout,
        rewards=[correctness_reward],
        sample=True,
        chat_template_kwargs=args.chat_template_kwargs,
    )
    return scores.rate


trainer = GRPOTrainer(
    model,
    [correctness],
    args,
    train_set,
    processing_class=tokenizer,
    callbacks=[Float32Adapters(model)],
)
before = measure()
trainer.train()
after = measure()
state = trainer.accelerator
record = {"processes": state.num_processes, "asked": asked, "before": before, "after": after}
folder.mkdir(parents=True, exist_ok=True)
(folder / f"process_{state.process_index}.json").write_text(json.dumps(record))
