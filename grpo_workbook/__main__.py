"""The command line: python -m grpo_workbook COMMAND; each command's options live beside what it does."""

import argparse
import os
import sys

from grpo_workbook import merging
from grpo_workbook.cli import (
    ask,
    data_report,
    estimate_command,
    evaluation_command,
    gguf,
    push,
    run_command,
    stages_command,
    train_command,
)
from grpo_workbook.diagnosis import monitor
from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.processes import AlreadySaid

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
    """The whole command line, every command with its options."""
    top = argparse.ArgumentParser(
        prog="python -m grpo_workbook",
        description="The GRPO Workbook's command line.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, words in (
        ("doctor", "what this machine is, what is wrong with it, how to mend it"),
        ("progress", "which exercises you have solved"),
    ):
        commands.add_parser(name, help=words, description=f"Shows {words}.")
    run_command.add_parser(commands)
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
    return top


def read(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """(the command with its options, the rest: fields of GRPOConfig for `train`). Ends the process for bad usage."""
    if arguments[:1] == ["train"]:
        arguments = train_command.hyphens(arguments)
    args, rest = parser().parse_known_args(arguments)
    questions = rest[:1] == ["--"] or all(" " in word or not word.startswith("-") for word in rest)
    if args.command == "generate" and questions:  # behind options; some Pythons leave them over
        args.questions, rest = [*args.questions, *(word for word in rest if word != "--")], []
    if rest and args.command != "train":
        parser().error(f"unrecognized arguments: {' '.join(rest)}")
    return args, rest


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name (default: the process's own, without the program's name).

    The exit status: 0 well, 1 something to mend, 2 bad input, 130 interrupted. Bad input, a missing package and what
    the system refuses are told in one line on standard error; any other exception is a fault of ours and goes on.
    """
    args, rest = read(sys.argv[1:] if arguments is None else arguments)
    try:
        if args.command == "train":
            return train_command.main(args, rest)
        if args.command == "doctor":
            from grpo_workbook.cli import doctor

            return doctor.show(doctor.examine())
        if args.command == "progress":
            from grpo_workbook.exercises import show_progress

            return show_progress()
        return COMMANDS[args.command](args)
    except AlreadySaid:
        return 2
    except WorkbookError as error:
        rank = os.environ.get("RANK", "")
        who = f"process {rank}: " if rank.strip("0") else ""
        print(f"error: {who}{visible(str(error))}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("grpo_workbook"):
            raise
        print(
            f"error: {error.name} is not installed: run `make setup`, or see the README for pip",
            file=sys.stderr,
        )
        return 2
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None:  # no file or disk: a library's own, with its story
            raise
        where = f"{error.filename}: " if error.filename else ""
        print(
            f"error: {where}{error.strerror or error}: check the place, its permissions and its room",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:
        how = {"run": "--resume (or `make run`)", "evaluate": "The same command"}
        how |= dict.fromkeys(("train", "stages"), "The same command with --resume")
        goes_on = how.get(args.command)
        more = (
            f": nothing more was written. {goes_on} goes on from what is there" if goes_on else ""
        )
        print(f"\nInterrupted{more}.", file=sys.stderr)
        return 130


COMMANDS = {
    "estimate": estimate_command.main,
    "check-data": data_report.main,
    "diagnose": monitor.main,
    "run": run_command.main,
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
