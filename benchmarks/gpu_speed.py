"""One side of the comparison in benchmarks/gpu.py: a few timed GRPO steps of fixed shape, in its
own process."""

import itertools
import math
import statistics
import time

from grpo_workbook import compat
from grpo_workbook.config import CHAT_TEMPLATE_KWARGS, Profile, choose_profile
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, load_problems


def make_profile(job: dict) -> Profile:
    """The settings of a speed job: the same for both sides."""
    return choose_profile(
        "smoke",
        model=job["model"],
        seed=0,
        output=job["folder"],
        dtype=job["dtype"],
        load_in_4bit=job.get("load_in_4bit"),
        lora_rank=job["rank"],
        max_prompt_length=job["prompt_tokens"],
        grpo={
            "max_steps": job["steps"],
            "num_generations": job["group"],
            "per_device_train_batch_size": job["per_device"],
            "gradient_accumulation_steps": job["batch"] // job["per_device"],
            "learning_rate": 1e-5,
            "max_completion_length": job["completion_tokens"],
            "gradient_checkpointing": job["checkpointing"],
            "save_strategy": "no",
        },
    )


def prompts_of(tokens: int, tokenizer, count: int) -> list[list[dict]]:
    """`count` word problems, each followed by digits until the prompt has exactly `tokens` tokens.

    Raises ValueError for a problem that is longer.
    """

    def length(prompt):
        ids = tokenizer.apply_chat_template(
            [prompt], add_generation_prompt=True, **CHAT_TEMPLATE_KWARGS
        )["input_ids"]
        return len(ids[0])

    found = []
    for row in load_problems(WORD_PROBLEMS["train"]).select(range(count)):
        prompt = chat_prompt(row["question"])
        missing = tokens - length(prompt)
        if missing < 0:
            raise ValueError(f"--prompt-tokens {tokens}: a prompt has {length(prompt)} already")
        prompt[-1]["content"] += "7" * missing  # these tokenizers make one token of each digit
        if length(prompt) != tokens:
            raise ValueError(f"a prompt has {length(prompt)} tokens instead of {tokens}")
        found.append(prompt)
    return found


def spread_reward(completion_ids, **columns) -> list[float]:
    """A number that differs within every group, so that every group has a gradient; it costs
    nothing."""
    return [sum(ids) % 97 / 97 for ids in completion_ids]


def speed(job: dict) -> dict:
    """Train `steps` steps; seconds of each, completion lengths, peak memory, and what makes a
    number worth nothing."""
    profile = make_profile(job)
    from grpo_workbook.training import count_4bit_layers, load_policy

    reason = compat.why_not_plain(profile.device)
    if job["side"] == "plain" and reason is not None:
        return {"refused": reason}
    memory = Memory(profile.device)
    model, tokenizer = load_policy(profile, job["side"])
    loaded = memory.peak()
    memory.reset()
    log, ends = _train(profile, model, tokenizer, memory)
    took = [b - a for a, b in itertools.pairwise(ends)]
    timed = took[job["warm_up"] :]
    peak = memory.peak()
    lengths = sorted(
        {
            round(entry.get("completions/mean_length", entry.get("completion_length")))
            for entry in log
        }
    )
    layers = 7 * model.config.num_hidden_layers
    problems = []
    if lengths != [job["completion_tokens"]]:
        problems.append(f"completions of {lengths} tokens instead of {job['completion_tokens']}")
    if count_4bit_layers(model) != layers:
        problems.append(f"{count_4bit_layers(model)} layers in 4-bit instead of {layers}")
    if not all(math.isfinite(entry["grad_norm"]) and entry["grad_norm"] > 0 for entry in log):
        problems.append(f"gradient norms {[entry['grad_norm'] for entry in log]}")
    seconds = statistics.median(timed)
    return {
        "seconds_per_step": round(seconds, 4),
        "all_steps_s": [round(t, 4) for t in took],
        "completion_tokens_per_s": round(job["batch"] * job["completion_tokens"] / seconds, 1),
        "peak": peak,
        "peak_while_loading": loaded,
        "linear4bit_layers": layers,
        "estimate_gib": estimate_gib(profile),
        "problems": problems,
    }


def _train(profile: Profile, model, tokenizer, memory: "Memory") -> tuple[list[dict], list[float]]:
    """(TRL's log, the clock at the start and after every step): stock GRPOTrainer, completions of
    a fixed length."""
    from datasets import Dataset
    from transformers import PrinterCallback, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_train_begin(self, args, state, control, **kwargs):
            ends.append(memory.clock())

        on_step_end = on_train_begin

    args = GRPOConfig(output_dir=str(profile.output / "checkpoints"), **profile.grpo)
    # No completion may end before the last token: the end token is forbidden until then.
    args.generation_kwargs = {"min_new_tokens": args.max_completion_length}
    problems = args.generation_batch_size // args.num_generations
    prompts = prompts_of(profile.max_prompt_length, tokenizer, problems * 4)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[spread_reward],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(Clock())
    trainer.train()
    return [entry for entry in trainer.state.log_history if "reward" in entry], ends


class Memory:
    """Peak memory and the clock of a device, both read after all that was begun on it is done."""

    def __init__(self, device: str):
        import torch

        self.cuda = torch.cuda if device == "cuda" else None

    def clock(self) -> float:
        """Seconds."""
        if self.cuda:
            self.cuda.synchronize()
        return time.perf_counter()

    def reset(self) -> None:
        """Count the peak from here. The most memory of a process on a CPU cannot be reset."""
        if self.cuda:
            self.cuda.synchronize()
            self.cuda.reset_peak_memory_stats()

    def peak(self) -> dict[str, float]:
        """GiB: allocated and reserved by torch on a GPU, resident on a CPU."""
        if self.cuda:
            self.cuda.synchronize()
            found = {
                "allocated": self.cuda.max_memory_allocated(),
                "reserved": self.cuda.max_memory_reserved(),
            }
        else:
            from grpo_workbook.cli.report import peak_rss_mb

            found = {"resident": peak_rss_mb() * 1e6}
        return {name: round(value / 2**30, 3) for name, value in found.items()}


def estimate_gib(profile: Profile) -> float:
    """What `grpo_workbook plan` says of this run, in GiB."""
    from grpo_workbook.planning import GIB, plan

    return round(plan(profile.model, profile).peak / GIB, 3)
