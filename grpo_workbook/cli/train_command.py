"""`python -m grpo_workbook train`: the main run on one's own data and rewards, from a YAML file, in several processes.

What is not given comes from the profile; the file wins over the profile, the command line over the file. Every name is
one of the run's own settings or a field of TRL's GRPOConfig (grpo_fields.py).
"""

import argparse
import os
from dataclasses import fields
from pathlib import Path

from grpo_workbook.cli import grpo_fields
from grpo_workbook.cli.run_command import add_all_options, carry_out
from grpo_workbook.cli.yaml_file import read_yaml_file
from grpo_workbook.config import FAMILIES, KINDS, RunConfig
from grpo_workbook.data import SYSTEM_PROMPT
from grpo_workbook.errors import WorkbookError
from grpo_workbook.processes import Processes, from_env
from grpo_workbook.reward_files import beside

EXAMPLES = """examples:
  python -m grpo_workbook train --config my.yaml
  python -m grpo_workbook train --config my.yaml --steps 20 --max_grad_norm 0.5
  python -m grpo_workbook train --data my.jsonl --rewards mine.py:my_reward
  torchrun --nproc_per_node 2 -m grpo_workbook train --config my.yaml
  accelerate launch --config_file configs/data_parallel.yaml \\
      -m grpo_workbook train --config my.yaml

Any setting of the run and any field of TRL's GRPOConfig can be given, here as
--name value and in the file as name: value. --list-fields shows them all.
The command line wins over the file, the file over the profile. Paths in the
file start from its folder. templates/my_project is a project to copy.
"""
SETTINGS = {f.name: f.type for f in fields(Settings) if f.name not in FAMILIES}
# What is neither a setting nor a field of GRPOConfig, and its type.
OPTIONS = {
    "model": str,
    "profile": str,
    "backend": str,
    "data": str,
    "heldout_data": str,
    "question_column": str,
    "answer_column": str,
    "skip_invalid": bool,
    "system_prompt": str,
    "seed": int,
    "output": str,
    "overwrite": bool,
    "resume": bool,
    "expect_processes": int,
}
KNOWN = {**OPTIONS, **SETTINGS}
PATHS = ("data", "heldout_data", "model", "output")


def add_parser(commands) -> None:
    """Add train to the command line; what it does not know itself is left over for `main`."""
    parser = commands.add_parser(
        "train",
        help="the same run on your own data and rewards, in one process or more",
        usage="%(prog)s [--config FILE] [options]",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="a YAML file with any of these and more"
    )
    what, _, how = add_all_options(parser)
    what.add_argument(
        "--system-prompt", metavar="TEXT", help="what the model is told before each question"
    )
    how.add_argument("--vllm", metavar="V", help="off, colocate or server")
    how.add_argument(
        "--expect-processes", type=int, metavar="N", help="an error unless so many were started"
    )
    how.add_argument(
        "--list-fields", action="store_true", help="every name that can be set, and end"
    )
    shown = {
        action.dest for action in parser._actions if action.dest != "load_in_4bit"
    }  # --load-in-16bit is its no
    for name in SETTINGS.keys() - shown:  # --list-fields shows them
        kind = SETTINGS[name]
        more = {"action": argparse.BooleanOptionalAction} if kind is bool else {"type": kind}
        how.add_argument(f"--{name.replace('_', '-')}", dest=name, help=argparse.SUPPRESS, **more)
    for action in parser._actions:  # what is not given stays out, for the file's value
        action.default = argparse.SUPPRESS


def hyphens(arguments: list[str]) -> list[str]:
    """The command line with our own options as argparse has them: --batch_size, as in the file, is --batch-size."""

    def one(argument: str) -> str:
        name, equals, value = argument.partition("=")
        plain = name[2:].removeprefix("no-").replace("-", "_")
        known = name.startswith("--") and (
            plain in KNOWN or plain in ("load_in_16bit", "list_fields")
        )
        return name.replace("_", "-") + equals + value if known else argument

    return [one(argument) for argument in arguments]


def main(args: argparse.Namespace, rest: list[str]) -> int:
    """Exit status: 0 well, 1 when another process was lost, 130 interrupted. Raises WorkbookError for bad input.

    `rest` is what argparse left over: fields of GRPOConfig.
    """
    given = {name: value for name, value in vars(args).items() if name != "command"}
    if given.pop("list_fields", False):
        print(
            "The run's own settings:\n  " + "\n  ".join(KNOWN) + "\n\nFields of TRL's GRPOConfig:"
        )
        print(grpo_fields.listing())
        return 0
    config = given.pop("config", None)
    file = read_yaml(config) if config is not None else {}
    if given.get("resume") or given.get("overwrite"):  # one of the two: the command line's wins
        file = {name: value for name, value in file.items() if name not in ("resume", "overwrite")}
    run, options, overrides, processes = prepare(file, given, rest, str(config))
    return carry_out(run, processes, overrides=overrides, **options)


def prepare(
    file: dict, given: dict, rest: list[str], where: str = "the file"
) -> tuple[RunConfig, dict, dict, Processes]:
    """(run, options of main_run, fields of GRPOConfig, processes) of a file's values, the command line's, and its rest.

    Raises WorkbookError for a name that nothing has (with the nearest), a value of the wrong type, a field that is
    refused, and values that contradict each other.
    """
    own = {n: typed(n, v, KNOWN[n], where) for n, v in file.items() if n in KNOWN and v is not None}
    theirs = {name: value for name, value in file.items() if name not in KNOWN}
    expected = own.pop("expect_processes", None)
    processes = from_env(given.pop("expect_processes", expected))
    overrides = {}
    if theirs or rest:
        _import_in_order({**own, **given}.get("backend", "unsloth"))
        for name in theirs:
            if name not in grpo_fields.field_names():
                raise WorkbookError(f"{where}: {grpo_fields.unknown(name, KNOWN)}")
        found = {name: grpo_fields.from_value(name, value, where) for name, value in theirs.items()}
        for fields_given, beside in (
            (found, own),
            (grpo_fields.from_arguments(rest, KNOWN), given),
        ):
            settings, kept = grpo_fields.divide(fields_given)
            if twice := sorted(settings.keys() & beside.keys()):
                raise WorkbookError(
                    f"{twice[0]} is given twice, once under TRL's name: leave one of them out"
                )
            beside |= settings
            overrides |= kept
    own |= given
    grpo_fields.whole_batch(own, overrides, processes.count)
    if own.get("resume") and own.get("overwrite"):
        raise WorkbookError("resume and overwrite are both given: choose one")
    run = RunConfig.from_env(
        profile=own.pop("profile", None),
        model=own.pop("model", None),
        seed=own.pop("seed", None),
        output=own.pop("output", None),
        **{name: own.pop(name) for name in SETTINGS if name in own},
    )
    if (overrides.get("logging_steps") or 1) > run.max_steps:
        raise WorkbookError(
            f"logging_steps is {overrides['logging_steps']:g} and the run has {run.max_steps} steps: nothing "
            "would be logged, and the report is made from the log"
        )
    reading = {
        "question_column": own.pop("question_column", "question"),
        "answer_column": own.pop("answer_column", "answer"),
        "skip_invalid": own.pop("skip_invalid", False),
    }
    own.setdefault("system_prompt", SYSTEM_PROMPT)
    return run, {**own, "reading": reading}, overrides, processes


def read_yaml(path: Path) -> dict:
    """The file's names and values; names may be written with hyphens. Paths start from the file's folder.

    Raises WorkbookError where it cannot be read (see yaml_file.py), or is no mapping of names to values.
    """
    found = read_yaml_file(path, "the config file")
    if not isinstance(found, dict):
        kind = "empty" if found is None else f"a {type(found).__name__}"
        raise WorkbookError(f"{path} is {kind}: write one `name: value` in a line")
    names = [str(name).replace("-", "_") for name in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise WorkbookError(f"{path}: {twice!r} stands there twice, with - and with _")
    values = dict(zip(names, found.values(), strict=True))
    if "stages" in values:
        raise WorkbookError(
            f"{path}: stages have a file and a command of their own, `grpo_workbook stages FILE`"
        )
    for name in PATHS:
        if isinstance(values.get(name), str):
            there = path.parent / Path(values[name]).expanduser()
            values[name] = str(there) if name == "output" or there.exists() else values[name]
    if isinstance(values.get("rewards"), list):
        values["rewards"] = ",".join(map(str, values["rewards"]))
    if isinstance(values.get("rewards"), str):
        values["rewards"] = beside(values["rewards"], path.parent)
    return values


def typed(name: str, value: object, kind: type, where: str):
    """The value as the setting's type. Raises WorkbookError for what cannot be that."""
    try:
        if kind is bool and not isinstance(value, bool):
            raise ValueError
        if kind is not bool and (
            isinstance(value, bool) or not isinstance(value, str | int | float)
        ):
            raise ValueError
        if kind is int and isinstance(value, float) and not value.is_integer():
            raise ValueError
        return kind(value)
    except (ValueError, OverflowError):
        raise WorkbookError(f"{where}: {name} is {value!r}: it must be {KINDS[kind]}") from None


def _import_in_order(backend: str) -> None:
    """Unsloth before TRL, which it patches; its banner from the main process alone."""
    if backend == "unsloth":
        import contextlib
        import importlib
        import io

        from grpo_workbook.notebook import quiet

        quiet()
        others = int(os.environ.get("RANK") or 0) > 0
        with contextlib.redirect_stdout(io.StringIO()) if others else contextlib.nullcontext():
            importlib.import_module("unsloth")
