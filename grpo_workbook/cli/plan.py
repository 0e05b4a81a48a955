"""The command `plan`: the memory of a run by part, whether it fits, and what to change."""

import argparse
import dataclasses

from grpo_workbook.cli import add_command
from grpo_workbook.config import PROFILES, RunConfig

# The fields of RunConfig that change the memory.
VALUES = (
    "dtype batch_size num_generations per_device_batch lora_rank load_in_4bit max_prompt_length "
    "max_completion_length gradient_checkpointing vllm vllm_gpu_memory"
).split()
EXAMPLES = """examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B --batch-size 64
  python -m grpo_workbook plan --model my/folder --memory 12
"""


def add_parser(commands) -> None:
    """Add plan to the command line: its own options, and RunConfig's."""
    words = "memory of a run before it starts, and what makes it fit"
    how = {"epilog": EXAMPLES, "usage": "%(prog)s [options]"}
    how["description"] = "Memory by part, from the model's config alone. Nothing is measured."
    add = add_command(commands, "plan", words, **how)
    add("--model", default="qwen", help="qwen, gemma, a hub id or a folder")
    add("--profile", default="t4", help=f"{', '.join(PROFILES)} (default t4)")
    add("--memory", type=float, metavar="GIB", help="your GPU's memory")
    kinds = {f.name: f.type for f in dataclasses.fields(RunConfig)}
    for name in VALUES:
        kind = true_or_false if kinds[name] is bool else kinds[name]
        add(f"--{name.replace('_', '-')}", f"--{name}", dest=name, type=kind, metavar="X")


def true_or_false(text: str) -> bool | str:
    """A switch as in TRL; RunConfig refuses other words."""
    return {"true": True, "false": False}.get(text.lower(), text)


def main(args: argparse.Namespace) -> int:
    """Print the plan: 1 if the run does not fit, 0 if it fits or that is unknown."""
    from grpo_workbook.planning import plan

    given = {name: value for name in VALUES if (value := getattr(args, name)) is not None}
    found = plan(args.model, args.profile, gib=args.memory, **given)
    print(found)
    return int(found.fits is False)
