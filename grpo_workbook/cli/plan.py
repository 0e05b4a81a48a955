"""The command `plan`: the memory of a run by part, whether it fits, and what to change."""

from grpo_workbook.cli import add_command, options
from grpo_workbook.config import PROFILES

EXAMPLES = """examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B --batch-size 64
  python -m grpo_workbook plan --model my/folder --memory 12
  python -m grpo_workbook plan --profile 24gb --config my.yaml
"""


def add_parser(commands) -> None:
    """Add plan to the command line; `main` reads what follows it."""
    words = "memory of a run before it starts, and what makes it fit"
    usage = "%(prog)s [--memory GIB] [--model M] [options]"
    about = "Memory by part, from the model's config alone. Nothing is measured.\n\n"
    about += f"--memory: your GPU's, in GiB. Profiles: {', '.join(PROFILES)} (default t4).\n"
    about += "Every setting of a run that changes the memory: `run --help` lists them."
    add_command(commands, "plan", words, usage=usage, description=about, epilog=EXAMPLES)


def main(arguments: list[str]) -> int:
    """Print the plan: 1 if the run does not fit, 0 if it fits or that is unknown."""
    from grpo_workbook.planning import plan

    values, _ = options.read(arguments, memory=float)
    model, profile = values.pop("model", "qwen"), values.pop("profile", "t4")
    counts = options.run_fields().keys() & values.keys() - {"seed", "output"}
    named = {name: values[name] for name in counts}
    found = plan(model, profile, gib=values.get("memory"), **named)
    print(found)
    return int(found.fits is False)
