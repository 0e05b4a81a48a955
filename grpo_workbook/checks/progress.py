"""What the learner has solved: one file, written all at once and under a lock, so that no kill and no second notebook
loses an entry.
"""

import json
import os
import time
from pathlib import Path


def progress_file() -> Path:
    """Where solutions are recorded: GRPO_WORKBOOK_PROGRESS, else a file in the home folder."""
    return Path(os.environ.get("GRPO_WORKBOOK_PROGRESS") or Path.home() / ".grpo_workbook" / "progress.json")


def solved() -> dict[str, str]:
    """Solved exercise -> the day it was solved first. A damaged file counts as none, and is kept aside."""
    path = progress_file()
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))["solved"]
        return {str(number): str(day) for number, day in kept.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:  # a folder, or no permission: nothing to keep aside
        print(f"{path} cannot be read ({error.strerror}): set GRPO_WORKBOOK_PROGRESS to a file that can")
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        aside = path.with_name(path.name + ".damaged") if path.suffix == ".damaged" else path.with_suffix(".damaged")
        try:
            os.replace(path, aside)
        except OSError as error:
            print(f"{path} could not be read, nor kept aside ({error.strerror}): set GRPO_WORKBOOK_PROGRESS elsewhere")
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
            new = path.with_suffix(".new")
            new.write_text(json.dumps({"solved": dict(sorted(kept.items()))}, indent=2) + "\n", encoding="utf-8")
            os.replace(new, path)
    except (OSError, Timeout) as error:
        return f"{path} cannot be written ({error}): set GRPO_WORKBOOK_PROGRESS to a file that can"
    return None
