"""What the learner has solved: one file, written all at once and under a lock, so that no kill and no second notebook
loses an entry.
"""

import json
import os
import time
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json


def progress_file() -> Path:
    """Where solutions are recorded: GRPO_WORKBOOK_PROGRESS, else a file in the home folder."""
    return Path(
        os.environ.get("GRPO_WORKBOOK_PROGRESS") or "~/.grpo_workbook/progress.json"
    ).expanduser()


def solved() -> dict[str, str]:
    """Solved exercise -> the day it was solved first. A damaged file counts as none, and is kept aside."""
    path = progress_file()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["solved"]
        return {str(number): str(day) for number, day in kept.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:  # a folder, or no permission: nothing to keep aside
        print(
            f"{path} cannot be read ({error.strerror}): set GRPO_WORKBOOK_PROGRESS to a file that can"
        )
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        aside = (
            path.with_name(path.name + ".damaged")
            if path.suffix == ".damaged"
            else path.with_suffix(".damaged")
        )
        try:
            os.replace(path, aside)
        except OSError as error:
            print(
                f"{path} could not be read, nor kept aside ({error.strerror}): set GRPO_WORKBOOK_PROGRESS elsewhere"
            )
        else:
            print(f"{path} could not be read; it was kept as {aside.name}")
        return {}


def record(number: str) -> str | None:
    """Add a solved exercise; why it could not be written down, or None. A solved exercise stays solved either way."""
    from filelock import FileLock, Timeout

    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=10):
            kept = solved()
            kept.setdefault(number, time.strftime("%Y-%m-%d"))
            write_json(path, {"solved": dict(sorted(kept.items()))})
    except (
        OSError,
        Timeout,
        WorkbookError,
        NotImplementedError,
    ) as error:  # the last: a disk without locks
        return f"{path} cannot be written ({error.__cause__ or error}): set GRPO_WORKBOOK_PROGRESS to a file that can"
    return None
