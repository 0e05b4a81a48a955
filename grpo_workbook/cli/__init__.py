"""The command line: the only place that parses arguments and combines the rooms.

Each command is a module of this folder. Its docstring is its help (the first line stands in the
list of commands, the rest after the options), OPTIONS is a table of its options, and `main` returns
the exit status. `main` of `run` gets plain words, which TRL's parser reads.
"""

import argparse
import importlib
import io
import os
import re
import sys
from typing import Any, NoReturn

from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.notebook import quiet

EXAMPLES = """examples:
  python -m grpo_workbook doctor                    check this machine
  python -m grpo_workbook run --config my.yaml      your own run
  python -m grpo_workbook diagnose outputs/run      what is wrong with a run

exit status: 0 fine, 1 something to fix, 2 bad input, 130 interrupted
"""
COMMANDS = ("doctor", "new", "check_data", "plan", "run", "diagnose", "evaluate", "merge")
RAW = argparse.RawDescriptionHelpFormatter


def option(*names: str, **arguments) -> tuple:
    """A row of a command's OPTIONS: what argparse's add_argument takes."""
    return names, arguments


READING = [  # a user's data, for the commands that read it with argparse
    option(
        "--question-column",
        metavar="NAME",
        help="texts or chats; default: question, prompt, problem, messages or conversations",
    ),
    option(
        "--answer-column",
        metavar="NAME",
        help="default: answer, solution or ground_truth, else the last turn of each chat",
    ),
    option("--skip-invalid", action="store_true", help="leave out invalid rows"),
]


def refuse(message: str) -> NoReturn:
    """Replaces the `error` of every parser: one line instead of its whole usage."""
    # argparse begins with "argument --seed/-s: ". The option's first name is enough.
    raise WorkbookError(re.sub(r"^argument (--[\w-]+)\S*: ", r"\1: ", message))


def parser(commands: tuple[str, ...] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of all commands, or of some."""
    top: Any = argparse.ArgumentParser(
        "python -m grpo_workbook", epilog=EXAMPLES, formatter_class=RAW
    )
    top.error = refuse
    subparsers = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        module = importlib.import_module(f"{__name__}.{name}")
        first_line, _, rest = (module.__doc__ or "").partition("\n\n")
        command = subparsers.add_parser(
            name.replace("_", "-"),
            # Commands with many options have a short usage. None lets argparse list all options.
            usage=getattr(module, "USAGE", None),
            description=first_line,
            epilog=rest,
            formatter_class=RAW,
            help=first_line,
        )
        command.error = refuse
        for names, arguments in module.OPTIONS:
            command.add_argument(*names, **arguments)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: of the process) and return its exit status.

    Bad input and errors of the system give one line on standard error and status 2; any other
    exception is a bug of the workbook and is raised.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    # The module of the command check-data is check_data.
    name = arguments[0].replace("-", "_") if arguments else ""
    # Before a command imports a library, because libraries read these settings when they load.
    quiet()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else an umlaut would end the command in LANG=C
            stream.reconfigure(errors="backslashreplace")
    try:
        status = run_command(name, arguments)
        print(end="", flush=True)  # so that a reader who has left is noticed here
        return status
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        # Python flushes standard output once more when it ends, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        message = message_of(error)
        if message is None:
            raise
        print(f"error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        advice = ". --resume continues from the last checkpoint" if name == "run" else ""
        print(f"\nInterrupted{advice}.", file=sys.stderr)
        # What a shell shows for SIGINT: 128 and the signal's number, 2.
        return 130


def run_command(name: str, arguments: list[str]) -> int:
    """Parse the arguments and run the command of this name; returns its exit status."""
    asks_for_help = "-h" in arguments or "--help" in arguments
    # `run` has all of TRL's options too, which only TRL's parser knows. Its help lists the usual
    # ones, and loads no TRL.
    if name == "run" and not asks_for_help:
        return importlib.import_module(f"{__name__}.run").main(arguments[1:])
    # Only the module of this command is imported. An unknown name gets the parser of all commands,
    # which lists them.
    commands = (name,) if name in COMMANDS else COMMANDS
    args = parser(commands).parse_args(arguments)
    return importlib.import_module(f"{__name__}.{name}").main(args)


def message_of(error: Exception) -> str | None:
    """What to print for an error of the user or the system; None for a bug of the workbook."""
    match error:
        case WorkbookError():
            return visible(str(error))
        # If a module of the workbook itself is missing, no installation helps: it is a bug.
        case ModuleNotFoundError(name=name) if "grpo_workbook" not in (name or ""):
            return f"{name} is not installed: run `make setup`, or see the README for pip"
        case OSError(errno=int()):  # else a library's own error
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}{error.strerror}: check the path, its permissions and the disk space"
    return None
