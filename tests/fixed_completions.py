"""Trains four steps on completions that are given, alone or in several processes.

    python fixed_completions.py FOLDER     (or with torchrun; see test_cli_together.py)

Process 0 writes advantages.json (step by step, in the order of the global batch) and the adapter
into FOLDER, and what the untrained policy samples on 40 problems, measured by all together.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path

from grpo_workbook.cli.together import count, is_main, together
from grpo_workbook.config import REWARDS, choose_profile
from grpo_workbook.data import WORD_PROBLEMS, load_problems, render, to_dataset
from grpo_workbook.evaluation import evaluate
from grpo_workbook.notebook import use_one_thread
from grpo_workbook.rewards import parse_rewards
from grpo_workbook.training import Callback, Float32Adapters, load_policy

folder = Path(sys.argv[1])
use_one_thread()
# 32 completions in each step, over all processes
sizes = {"max_steps": 4, "per_device_train_batch_size": 32 // count()}
profile = choose_profile("smoke", output=folder, grpo=sizes)


def completion(question: str, answer: str, number: int) -> str:
    """The number-th completion of a group: right, wrong, without form, of different lengths."""
    draw = random.Random(f"{question}{number}")
    said = answer if draw.random() < 0.5 else str(draw.randint(0, 40))
    thought = " ".join(["so"] * draw.randint(0, 6))
    return (
        f"<reasoning>\n{thought}\n</reasoning>\n<answer>\n{said}\n</answer>"
        if draw.random() < 0.7
        else f"{thought} {said}"
    )


with together(profile.device):
    model, tokenizer = load_policy(profile)
    from trl import GRPOConfig, GRPOTrainer  # after Unsloth

    rows = load_problems(WORD_PROBLEMS["train"]).select(range(64))
    answers = dict(zip(rows["question"], rows["answer"], strict=True))

    def given(prompts, trainer):
        seen, texts = Counter(), []
        for prompt in prompts:
            question = prompt[-1]["content"]
            texts.append(
                completion(question, answers[question], seen[question]) + tokenizer.eos_token
            )
            seen[question] += 1
        ids = [
            tokenizer(t, add_special_tokens=False)["input_ids"] for t in render(prompts, tokenizer)
        ]
        sampled = [tokenizer(t, add_special_tokens=False)["input_ids"] for t in texts]
        return {"prompt_ids": ids, "completion_ids": sampled, "logprobs": None}

    class Keep(Callback):
        """Every step's advantages, gathered from all processes by TRL itself."""

        steps = []  # noqa: RUF012

        def on_step_end(self, args, state, control, **kwargs):
            texts = [
                c if isinstance(c, str) else c[0]["content"] for c in trainer._logs["completion"]
            ]
            self.steps.append([texts, list(trainer._logs["advantages"])])

    sample = to_dataset(rows.select(range(40)))
    how = {"max_new_tokens": 48, "sample": True, "batch_size": 8, "seed": 3}
    sampled_before = evaluate(model, tokenizer, sample, **how).completions
    functions, weights = parse_rewards(REWARDS)
    args = GRPOConfig(output_dir=str(folder), reward_weights=weights, **profile.grpo)
    callbacks = [Float32Adapters(model), Keep()]
    trainer = GRPOTrainer(
        model, functions, args, to_dataset(rows), processing_class=tokenizer, callbacks=callbacks
    )
    trainer.rollout_func = given
    trainer.train()
    if is_main():
        (folder / "advantages.json").write_text(
            json.dumps({"processes": count(), "steps": Keep.steps, "sampled": sampled_before})
        )
        model.save_pretrained(folder / "adapter")
