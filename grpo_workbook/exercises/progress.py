"""The learner's solved exercises in one file, which is locked and never written in part."""

import json
import os
import time
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import write_json

ELSEWHERE = "set GRPO_WORKBOOK_PROGRESS to another file"


def progress_file() -> Path:
    """The file of solutions: GRPO_WORKBOOK_PROGRESS, else a file in the home folder."""
    name = os.environ.get("GRPO_WORKBOOK_PROGRESS") or "~/.grpo_workbook/progress.json"
    return Path(name).expanduser()


def solved() -> dict[str, str]:
    """{solved exercise: the day of its first solution}. A damaged file is renamed and counts as
    empty.
    """
    path = progress_file()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["solved"]
        return {str(number): str(day) for number, day in kept.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:  # a folder, or no permission: nothing to keep aside
        print(f"{path} cannot be read ({error.strerror}): {ELSEWHERE}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        twice = path.suffix == ".damaged"
        aside = path.with_suffix(".damaged.damaged" if twice else ".damaged")
        try:
            os.replace(path, aside)
            print(f"{path} could not be read; it is now {aside.name}")
        except OSError as error:
            print(f"{path} could be neither read nor renamed ({error.strerror}): {ELSEWHERE}")
    return {}


def record(number: str) -> str | None:
    """Add a solved exercise; returns why it could not be recorded, or None."""
    from filelock import FileLock, Timeout

    path = progress_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock"), timeout=10):
            kept = solved()
            kept.setdefault(number, time.strftime("%Y-%m-%d"))
            write_json(path, {"solved": dict(sorted(kept.items()))})
    # the last: no locks there
    except (OSError, Timeout, WorkbookError, NotImplementedError) as error:
        return f"{path} cannot be written ({error.__cause__ or error}): {ELSEWHERE}"
    return None
