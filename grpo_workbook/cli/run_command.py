"""`python -m grpo_workbook run`: the course's main run; and the options that run, train and stages have in common."""

import argparse
import sys
from pathlib import Path

from grpo_workbook.cli.data_report import add_reading_options, reading_options
from grpo_workbook.cli.folder import add_choice
from grpo_workbook.cli.run_report import show_report
from grpo_workbook.config import FAMILIES, PROFILES, RunConfig
from grpo_workbook.files import readable
from grpo_workbook.processes import Processes, from_env, start

EXAMPLES = """examples:
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --model gemma --seed 1 --output outputs/gemma
  python -m grpo_workbook run --data my.jsonl --steps 30 --output outputs/mine

exit status: 0 well, 2 bad input, 130 interrupted
"""
# name: (type, what stands for the value, help)
OPTIONS: dict[str, tuple[type, str, str]] = {
    "model": (str, "M", f"a family ({', '.join(FAMILIES)}), a folder or a hub id"),
    "profile": (str, "P", f"{', '.join(PROFILES)} (default: what fits the device)"),
    "backend": (str, "B", "unsloth (default), or plain: no Unsloth"),
    "data": (str, "SOURCE", ".jsonl, .csv, .parquet, a hub id, reasoning-gym:TASK"),
    "heldout_data": (str, "SOURCE", "held-out problems (default: part of --data)"),
    "seed": (int, "N", "default 0"),
    "output": (str, "DIR", "default outputs/run"),
    "rewards": (str, "SPEC", "name:weight,... or FILE.py:FUNCTION:weight"),
    "steps": (int, "N", "optimizer steps"),
    "batch_size": (int, "N", "completions in a step, over all processes"),
    "num_generations": (int, "N", "completions in a group"),
    "learning_rate": (float, "X", "at its highest"),
    "heldout": (int, "N", "held-out problems measured"),
    "max_prompt_length": (int, "N", "longer prompts are dropped"),
}
SETTINGS = (
    "rewards",
    "steps",
    "batch_size",
    "num_generations",
    "learning_rate",
    "heldout",
    "max_prompt_length",
    "load_in_4bit",
    "gradient_checkpointing",
)


def add_options(group, *names: str, **words: str) -> None:
    """Add these of OPTIONS to a parser or a group of one; `words` are other helps than there, by name."""
    for name in names:
        kind, metavar, known = OPTIONS[name]
        group.add_argument(
            f"--{name.replace('_', '-')}",
            type=kind,
            metavar=metavar,
            default="unsloth" if name == "backend" else None,
            help=words.get(name, known),
        )


def add_all_options(parser: argparse.ArgumentParser):
    """Everything that `run` takes, in its groups: (what, where, how)."""
    what = parser.add_argument_group("what")
    add_options(what, "model", "profile", "backend", "data", "heldout_data")
    add_reading_options(what)
    add_options(what, "seed")
    where = parser.add_argument_group("where")
    add_options(where, "output")
    add_choice(where)
    how = parser.add_argument_group("how (default: the profile's values)")
    add_options(how, *SETTINGS[:7])
    how.add_argument(
        "--load-in-16bit",
        dest="load_in_4bit",
        action="store_false",
        default=None,
        help="do not quantize the base",
    )
    how.add_argument(
        "--gradient-checkpointing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="recompute activations instead of keeping them",
    )
    return what, where, how


def add_parser(commands) -> None:
    """Add run to the command line."""
    parser = commands.add_parser(
        "run",
        help="measure, train with GRPO, measure again, merge, report",
        usage="%(prog)s [options]",
        description="Measure, train with GRPO, measure again, merge, prove the merge, report.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_all_options(parser)


def main(args: argparse.Namespace) -> int:
    """Exit status: 0 well, 1 when another process was lost, 130 interrupted. Raises WorkbookError for bad input."""
    run = RunConfig.from_env(
        profile=args.profile,
        model=args.model,
        seed=args.seed,
        output=args.output,
        **{name: getattr(args, name) for name in SETTINGS},
    )
    return carry_out(
        run,
        from_env(),
        data=args.data,
        heldout_data=args.heldout_data,
        reading=reading_options(args),
        backend=args.backend,
        overwrite=args.overwrite,
        resume=args.resume,
    )


def carry_out(run: RunConfig, processes: Processes, **options) -> int:
    """The main run with these options (see pipeline.main_run) in every process, and its report on the terminal.

    Returns the exit status: 0 well, 130 interrupted.
    """
    from grpo_workbook.cli.pipeline import Interrupted, main_run
    from grpo_workbook.resume.checkpoints import last_checkpoint

    def checkpoint() -> str | None:
        return last_checkpoint(run.output / "checkpoints")

    timeout = (options.get("overrides") or {}).get("ddp_timeout")
    try:
        with start(processes, run.device, timeout, checkpoint) as together:
            report = main_run(run, processes=together, **options)
    except Interrupted as stopped:
        if processes.main:
            also = (
                ", and so does `make run`"
                if run.output == Path("outputs/run") and "overrides" not in options
                else ""
            )
            print(
                f"\nInterrupted: {stopped}. The adapter is in {readable(run.output / 'adapter')}; the same command "
                f"with --resume goes on from there{also}.",
                file=sys.stderr,
            )
        return 130
    if processes.main:
        show_report(report, run.output)
    return 0
