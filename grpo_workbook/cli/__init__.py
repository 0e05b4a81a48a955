"""The command line: the only place that parses arguments and combines the rooms."""

import argparse
import importlib
import io
import os
import re
import sys

from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.notebook import quiet

EXAMPLES = """examples:
  python -m grpo_workbook doctor                    check this machine
  python -m grpo_workbook run --config my.yaml      your own run
  python -m grpo_workbook diagnose outputs/run      what is wrong with a run

exit status: 0 fine, 1 something to fix, 2 bad input, 130 interrupted
"""
# Each is a module of this folder: its docstring is its help (the first line stands in the list, the
# rest after the options), OPTIONS a table of options, and `main(args)` returns the exit status.
COMMANDS = "doctor new check_data plan run diagnose evaluate merge".split()
GOES_ON = {"run": "--resume"}
RAW = argparse.RawDescriptionHelpFormatter


def option(*names: str, **how) -> tuple:
    """A row of a command's OPTIONS: what argparse's add_argument takes."""
    return names, how


READING = [  # a user's data, for the commands that read it with argparse
    option("--question-column", default="question", metavar="NAME", help="default question"),
    option("--answer-column", default="answer", metavar="NAME", help="default answer"),
    option("--skip-invalid", action="store_true", help="leave out invalid rows"),
]


def refuse(message: str):
    """Of every parser: one line in place of its whole usage."""
    raise WorkbookError(re.sub(r"^argument (--[\w-]+)\S*: ", r"\1: ", message))


def parser(commands=tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of all commands, or of some."""
    top = argparse.ArgumentParser("python -m grpo_workbook", epilog=EXAMPLES, formatter_class=RAW)
    added = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        module = importlib.import_module(f"{__name__}.{name}")
        words, _, rest = module.__doc__.partition("\n\n")
        how = {"description": words, "epilog": rest, "formatter_class": RAW, "help": words}
        one = added.add_parser(name.replace("_", "-"), usage=getattr(module, "USAGE", None), **how)
        top.error = one.error = refuse
        for names, more in module.OPTIONS:
            one.add_argument(*names, **more)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command in `arguments` (default: of the process) and return its exit status.

    Bad input and errors of the system give one line on standard error and status 2; any other
    exception is a bug of the workbook and is raised.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0].replace("-", "_") if arguments else ""
    quiet()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # else an umlaut would end the command in LANG=C
            stream.reconfigure(errors="backslashreplace")
    try:
        args = arguments[1:]  # for these commands TRL's parser reads the rest
        if name not in ("run", "plan") or {"-h", "--help"} & set(args):
            args = parser([name] if name in COMMANDS else COMMANDS).parse_args(arguments)
        status = importlib.import_module(f"{__name__}.{name}").main(args)
        print(end="", flush=True)  # so that a reader who has left is noticed here
        return status
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if (said := _told(error)) is None:
            raise
        print(f"error: {said}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        goes_on = f". {GOES_ON[name]} continues from here" if name in GOES_ON else ""
        print(f"\nInterrupted{goes_on}.", file=sys.stderr)
        return 130


def _told(error: Exception) -> str | None:
    """What to print for an error of the user or the system; None for a bug of the workbook."""
    match error:
        case WorkbookError():
            return visible(str(error))
        case ModuleNotFoundError(name=name) if "grpo_workbook" not in (name or ""):
            return f"{name} is not installed: run `make setup`, or see the README for pip"
        case OSError(errno=int()):  # else a library's own error
            where = f"{error.filename}: " if error.filename else ""
            return f"{where}{error.strerror}: check the path, its permissions and the disk space"
        case UnicodeEncodeError(object=text, start=start):
            part = text[max(0, start - 30) : start + 30]
            return f"{part!r} has characters that are no text: correct its encoding"
        case RuntimeError() if "Symlink loop" in str(error):
            return f"{error}: give a path that ends somewhere"
