"""The command `plan`: what a run takes in memory by part, whether it fits, what to change."""

import argparse
import dataclasses

from grpo_workbook.config import PROFILES, RunConfig

# The fields of RunConfig that memory depends on.
VALUES = (
    "dtype", "batch_size", "num_generations", "per_device_batch", "lora_rank", "load_in_4bit",
    "max_prompt_length", "max_completion_length", "gradient_checkpointing", "vllm",
    "vllm_gpu_memory",
)  # fmt: skip
EXAMPLES = """examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B --profile t4
  python -m grpo_workbook plan --model gemma-3-4b --profile t4 --batch-size 64
  python -m grpo_workbook plan --model my/folder --memory 12
"""


def add_parser(commands) -> None:
    """Add plan to the command line: its own options, and RunConfig's."""
    parser = commands.add_parser(
        "plan",
        help="memory of a run before it starts, and what makes it fit",
        description="Memory by part, from the model's config alone. Nothing is measured.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options]",
    )
    parser.add_argument("--model", default="qwen", help="qwen, gemma, a hub id or a folder")
    parser.add_argument("--profile", default="t4", help=f"{', '.join(PROFILES)} (default t4)")
    parser.add_argument("--memory", type=float, metavar="GIB", help="your GPU's memory")
    for field in dataclasses.fields(RunConfig):
        if field.name in VALUES:
            names = (f"--{field.name.replace('_', '-')}", f"--{field.name}")
            kind = true_or_false if field.type is bool else field.type
            parser.add_argument(*names, dest=field.name, type=kind, metavar="VALUE")


def true_or_false(text: str) -> bool:
    """A switch, as TRL reads it. ValueError for other words."""
    return ("false", "true").index(text.lower()) == 1


def main(args: argparse.Namespace) -> int:
    """Print the plan: 0 when the run fits or nobody can say, 1 when it does not."""
    from grpo_workbook.notebook import quiet
    from grpo_workbook.planning import plan

    quiet()
    given = {name: value for name in VALUES if (value := getattr(args, name)) is not None}
    found = plan(args.model, args.profile, gib=args.memory, **given)
    print(found)
    return 1 if found.fits is False else 0
