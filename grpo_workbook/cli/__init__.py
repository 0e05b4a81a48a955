"""The command line: the only place that parses arguments, and that joins the rooms together."""

import argparse
import importlib
import os
import sys

from grpo_workbook.errors import WorkbookError, visible
from grpo_workbook.notebook import quiet

EXAMPLES = """examples:
  python -m grpo_workbook doctor                    what is missing here
  python -m grpo_workbook run                       the course's main run
  python -m grpo_workbook run --config my.yaml      your own
  python -m grpo_workbook diagnose outputs/run      what is wrong with a run
  python -m grpo_workbook evaluate qwen --data my.jsonl

exit status: 0 well, 1 something to fix, 2 bad input, 130 interrupted
"""
# Each is a module of this folder with `add_parser(commands)` and `main(args) -> exit status`.
COMMANDS = "doctor check_data plan power run stages diagnose evaluate merge progress".split()
GOES_ON = {"run": "--resume", "stages": "--resume", "evaluate": "The same command"}


def parser(commands=tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The whole command line, or a part of it, every command with its options."""
    how = {"epilog": EXAMPLES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    top = argparse.ArgumentParser("python -m grpo_workbook", **how)
    added = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"{__name__}.{name}").add_parser(added)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run the command that the arguments name (default: the process's own); its exit status.

    Bad input, a missing package and what the system refuses are told in one line on standard error
    (status 2); any other exception is a fault of ours and goes on.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    name = arguments[0].replace("-", "_") if arguments else ""
    quiet()
    try:
        args = arguments[1:]  # of these two TRL's parser reads what follows
        if name not in ("run", "stages") or {"-h", "--help"} & set(args):
            args = parser([name] if name in COMMANDS else COMMANDS).parse_args(arguments)
        return importlib.import_module(f"{__name__}.{name}").main(args)
    except WorkbookError as error:
        said = visible(str(error))
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("grpo_workbook"):
            raise
        said = f"{error.name} is not installed: run `make setup`, or see the README for pip"
    except BrokenPipeError:  # who read the output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno is None:  # no file or disk: a library's own, with its story
            raise
        where = f"{error.filename}: " if error.filename else ""
        said = f"{where}{error.strerror}: check the place, its permissions and its room"
    except KeyboardInterrupt:
        goes_on = f". {GOES_ON[name]} goes on from what is there" if name in GOES_ON else ""
        print(f"\nInterrupted{goes_on}.", file=sys.stderr)
        return 130
    print(f"error: {said}", file=sys.stderr)
    return 2
