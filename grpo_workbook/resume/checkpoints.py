"""Complete checkpoints: each is sealed with a manifest of its files, written last.

A checkpoint counts only if every file has the SHA-256 in its manifest.json. A checkpoint of the
Trainer alone has no manifest and does not count: it cannot be told from one that a kill cut off. A
new run removes the manifests of earlier ones.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from grpo_workbook.files import readable, write_json

MANIFEST = "manifest.json"


def seal(checkpoint: Path) -> None:
    """Flush every file of the checkpoint to the disk, then write its manifest."""
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    files = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut could leave a manifest without its files
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(checkpoint).as_posix()] = sha256
    write_json(checkpoint / MANIFEST, {"files": files})


def fault(checkpoint: Path) -> str | None:
    """Why the checkpoint is incomplete, or None. Reads all of it (1 to 3 s per GB)."""
    try:
        files = dict(json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"])
    except FileNotFoundError:
        return f"it has no {MANIFEST}: it is incomplete, or of an earlier run or another program"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return f"its {MANIFEST} cannot be read"
    for name, sha256 in files.items():
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
        with (checkpoint / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return f"{name} has changed since it was written"
    return None


def all_checkpoints(folder: Path | str) -> list[Path]:
    """The folders checkpoint-N in `folder`, newest first, complete or not."""
    found = [p for p in Path(folder).glob("checkpoint-*") if p.name[11:].isdecimal() and p.is_dir()]
    return sorted(found, key=lambda path: int(path.name[11:]), reverse=True)


def last_checkpoint(folder: Path | str, say: Callable = lambda text: None) -> str | None:
    """The newest complete checkpoint in `folder`, or None; `say` gets the skipped ones, and why."""
    for checkpoint in all_checkpoints(folder):
        if (why := fault(checkpoint)) is None:
            return str(checkpoint)
        say(f"{readable(checkpoint)} is skipped: {why}")
    return None


def clear_torn(folder: Path) -> None:
    """Remove incomplete checkpoints: the Trainer would count them and remove complete ones."""
    for checkpoint in filter(fault, all_checkpoints(folder)):
        shutil.rmtree(checkpoint)


def set_aside(folder: Path) -> None:
    """For a new run in `folder`: checkpoints of the earlier one stay, but no longer count."""
    for checkpoint in all_checkpoints(folder):
        (checkpoint / MANIFEST).unlink(missing_ok=True)
