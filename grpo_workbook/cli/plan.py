"""The memory of a run by part, before it starts, and what makes it fit.

It is computed from the model's config; nothing is measured. All settings of a
run that change the memory count (`run --help`). The default profile is t4.

examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B
  python -m grpo_workbook plan --model my/folder --memory 12
"""

import dataclasses

from grpo_workbook.cli import option, options

USAGE = "%(prog)s [--memory GIB] [--NAME VALUE ...]"
OPTIONS = [
    option("--memory", type=float, metavar="GIB", help="your GPU's memory"),
    option("--model", default="qwen", help="a family, a folder or a hub id"),
    option("--profile", default="t4", help="smoke, t4, 24gb or 80gb"),
]


def main(arguments: list[str]) -> int:
    """Print the plan: 1 if the run does not fit, 0 if it fits or that is unknown."""
    from grpo_workbook.planning import plan
    from grpo_workbook.run_config import FOLLOW, RunConfig

    kinds = [("memory", float, None)]
    for field in dataclasses.fields(RunConfig):
        if field.name not in (*FOLLOW, "output", "seed"):
            kinds.append((field.name, field.type, None))
    parser = options.new_parser(dataclasses.make_dataclass("PlanOptions", kinds))
    given = vars(parser.parse_args(arguments))
    values = {name: value for name, value in given.items() if value is not None}
    model, profile = values.pop("model", "qwen"), values.pop("profile", "t4")
    computed = plan(model, profile, gib=values.pop("memory", None), **values)
    print(computed)
    return int(computed.fits is False)
