"""The command line: python -m grpo_workbook COMMAND; each command's options live beside what it does."""

import argparse
import os
import sys
from pathlib import Path

from grpo_workbook import (
    ask,
    data_report,
    estimate_command,
    evaluation_command,
    gguf,
    merging,
    monitor,
    push,
    stages_command,
    train_command,
)
from grpo_workbook.folder import add_choice
from grpo_workbook.processes import AlreadySaid, from_env
from grpo_workbook.run import FAMILIES, PROFILES, Run, WorkbookError
from grpo_workbook.terminal import visible

EXAMPLES = """examples:
  python -m grpo_workbook doctor
  python -m grpo_workbook estimate --profile t4     does it fit? how long?
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --resume              after a Ctrl-C or a crash
  python -m grpo_workbook run --model gemma --seed 1 --output outputs/gemma
  python -m grpo_workbook run --data my.jsonl --steps 30 --output outputs/mine
  python -m grpo_workbook train --config my.yaml    your own data and rewards
  python -m grpo_workbook check-data my.jsonl       before you train on it
  python -m grpo_workbook diagnose outputs/run      what is wrong with a run
  python -m grpo_workbook evaluate qwen --data my.jsonl
  python -m grpo_workbook generate outputs/run/merged \\
      "Tom has 5 pens and buys 3 more. How many pens does Tom have now?"
"""


def parser() -> argparse.ArgumentParser:
    """The whole command line. Each command adds its own options; those of `run` stand here."""
    raw = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="python -m grpo_workbook",
        description="The GRPO Workbook's command line.",
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="what this machine is, what is wrong with it, how to mend it")
    commands.add_parser("progress", help="which exercises you have solved")

    estimate_command.add_parser(commands)
    data_report.add_parser(commands)
    monitor.add_parser(commands)
    evaluation_command.add_parsers(commands)
    ask.add_parser(commands)
    merging.add_parser(commands)
    stages_command.add_parser(commands)
    gguf.add_parser(commands)
    push.add_parser(commands)
    train_command.add_parser(commands)

    run = commands.add_parser(
        "run",
        help="measure, train with GRPO, measure again, merge, report",
        usage="%(prog)s [options]",
        epilog=EXAMPLES,
        formatter_class=raw,
    )
    what = run.add_argument_group("what")
    what.add_argument("--model", metavar="M", help=f"a family ({', '.join(FAMILIES)}), a folder or a hub id")
    what.add_argument("--profile", metavar="P", help=f"{', '.join(PROFILES)} (default: what fits the device)")
    what.add_argument("--backend", default="unsloth", metavar="B", help="unsloth, or plain (Transformers + PEFT + TRL)")
    what.add_argument("--data", metavar="SOURCE", help=".jsonl, .csv, .parquet, a hub id, reasoning-gym:TASK")
    what.add_argument("--heldout-data", metavar="SOURCE", help="held-out problems (default: part of --data)")
    data_report.add_reading_options(what)
    what.add_argument("--seed", type=int, metavar="N", help="default 0")
    where = run.add_argument_group("where")
    where.add_argument("--output", type=Path, metavar="DIR", help="default outputs/run")
    add_choice(where)
    how = run.add_argument_group("how (default: the profile's values)")
    how.add_argument("--rewards", metavar="SPEC", help="such as correctness:2,strict_format:0.5 (name:weight)")
    how.add_argument("--steps", type=int, metavar="N", help="optimizer steps")
    how.add_argument("--batch-size", type=int, metavar="N", help="completions in a step")
    how.add_argument("--num-generations", type=int, metavar="N", help="completions in a group")
    how.add_argument("--learning-rate", type=float, metavar="X")
    how.add_argument("--heldout", type=int, metavar="N", help="held-out problems measured")
    how.add_argument("--max-prompt-tokens", type=int, metavar="N", help="longer prompts are dropped")
    how.add_argument(
        "--load-in-16bit", dest="load_in_4bit", action="store_false", default=None, help="do not quantize the base"
    )
    how.add_argument(
        "--gradient-checkpointing",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="recompute activations instead of keeping them",
    )
    return top


SETTINGS = (
    "rewards",
    "steps",
    "batch_size",
    "num_generations",
    "learning_rate",
    "heldout",
    "max_prompt_tokens",
    "load_in_4bit",
    "gradient_checkpointing",
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name (default: the process's own, without the program's name).

    The exit status: 0 well, 1 something to mend, 2 bad input, 130 interrupted. Bad input is printed as one line to
    standard error; any other exception is a fault of ours and goes on.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["train"]:
        arguments = train_command.hyphens(arguments)
    args, rest = parser().parse_known_args(arguments)
    if rest and args.command != "train":
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        if args.command == "train":
            return train_command.main(args, rest)
        if args.command == "doctor":
            from grpo_workbook import doctor

            return doctor.show(doctor.examine())
        if args.command == "progress":
            from grpo_workbook.checks import show_progress

            return show_progress()
        return COMMANDS[args.command](args)
    except AlreadySaid:
        return 2
    except WorkbookError as error:
        who = f"process {os.environ['RANK']}: " if int(os.environ.get("RANK") or 0) else ""
        print(f"error: {who}{visible(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("grpo_workbook"):
            raise
        print(f"error: {error.name} is not installed: run `make setup`, or see the README for pip", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None:  # no file or disk: a library's own, with its story
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"error: {where}{error.strerror or error}: check the place, its permissions and its room", file=sys.stderr
        )
        return 2
    except KeyboardInterrupt:
        how = {"run": "--resume (or `make run`)", "evaluate": "The same command"}
        how |= dict.fromkeys(("train", "stages"), "The same command with --resume")
        goes_on = how.get(args.command)
        more = f": nothing more was written. {goes_on} goes on from what is there" if goes_on else ""
        print(f"\nInterrupted{more}.", file=sys.stderr)
        return 130


def _run(args: argparse.Namespace) -> int:
    run = Run.from_env(
        profile=args.profile,
        model=args.model,
        seed=args.seed,
        output=args.output,
        **{name: getattr(args, name) for name in SETTINGS},
    )
    return train_command.carry_out(
        run,
        from_env(),
        data=args.data,
        heldout_data=args.heldout_data,
        reading=data_report.reading_options(args),
        backend=args.backend,
        overwrite=args.overwrite,
        resume=args.resume,
    )


COMMANDS = {
    "estimate": estimate_command.main,
    "check-data": data_report.main,
    "diagnose": monitor.main,
    "run": _run,
    "stages": stages_command.main,
    "evaluate": evaluation_command.main,
    "power": evaluation_command.show_power,
    "generate": ask.main,
    "merge": merging.main,
    "export-gguf": gguf.main,
    "push": push.main,
}


if __name__ == "__main__":
    sys.exit(main())
