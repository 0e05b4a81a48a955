"""The learner's solved exercises, in one file that several notebooks may write at the same time."""

import json
import os
import time
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json

FIX = "set GRPO_WORKBOOK_PROGRESS to another file"


def progress_file() -> Path:
    """The file of solutions: GRPO_WORKBOOK_PROGRESS, else a file in the home folder."""
    name = os.environ.get("GRPO_WORKBOOK_PROGRESS")
    if not name:
        name = "~/.grpo_workbook/progress.json"
    return Path(name).expanduser()


def solved() -> dict[str, str]:
    """Each solved exercise with the day of its first solution.

    A file that is damaged is renamed to `.damaged`, so that nothing overwrites it.
    """
    path = progress_file()
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(number): str(day) for number, day in content["solved"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:  # such as a folder of that name
        print(f"{path} cannot be read ({error.strerror}): {FIX}")
        return {}
    except (ValueError, KeyError, TypeError, AttributeError):
        damaged = path.with_suffix(".damaged")
        path.replace(damaged)
        print(f"{path} could not be read; it is now {damaged.name}")
        return {}


def record(number: str) -> str | None:
    """Add a solved exercise. Returns why it could not be recorded, or None if it was."""
    from filelock import FileLock, Timeout

    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=10):
            solutions = solved()
            solutions.setdefault(number, time.strftime("%Y-%m-%d"))
            write_json(path, {"solved": dict(sorted(solutions.items()))})
    # filelock raises NotImplementedError on a file system without locks
    except (OSError, Timeout, WorkbookError, NotImplementedError) as error:
        return f"{path} cannot be written ({error.__cause__ or error}): {FIX}"
    return None
