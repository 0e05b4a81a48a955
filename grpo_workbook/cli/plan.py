"""The memory of a run by part, before it starts, and what makes it fit.

It is computed from the model's config; nothing is measured. All settings of a
run that change the memory count (`run --help`). The default profile is t4.

examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B --batch-size 64
  python -m grpo_workbook plan --model my/folder --memory 12
  python -m grpo_workbook plan --profile 24gb --config my.yaml
"""

from grpo_workbook.cli import option, options

USAGE = "%(prog)s [--memory GIB] [--model M] [options of run]"
OPTIONS = [option("--memory", metavar="GIB", help="your GPU's memory")]


def main(arguments: list[str]) -> int:
    """Print the plan: 1 if the run does not fit, 0 if it fits or that is unknown."""
    from grpo_workbook.planning import plan

    values, _ = options.read(arguments, loads=False, memory=float)
    model, profile = values.pop("model", "qwen"), values.pop("profile", "t4")
    counts = options.run_fields().keys() & values.keys() - {"seed", "output"}
    found = plan(model, profile, gib=values.get("memory"), **{n: values[n] for n in counts})
    print(found)
    return int(found.fits is False)
