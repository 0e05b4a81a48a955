"""Which checkpoints are whole: each is sealed with a manifest of its files, written last.

A checkpoint counts only if every file has the SHA-256 that its manifest.json names. What the
Trainer wrote without us has none and does not count: nothing tells it from one that a kill has cut
off. A run that begins anew takes the manifests off the earlier ones.
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
    """Flush every file of the checkpoint to the disk, then write its manifest: now it counts."""
    (checkpoint / MANIFEST).unlink(missing_ok=True)
    files = {}
    for path in sorted(p for p in checkpoint.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())  # else a power cut could keep the manifest without the files
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files[path.relative_to(checkpoint).as_posix()] = sha256
    write_json(checkpoint / MANIFEST, {"files": files})


def fault(checkpoint: Path) -> str | None:
    """Why the checkpoint is not whole, or None when it is. Reads all of it (1 to 3 s a GB)."""
    try:
        files = dict(json.loads((checkpoint / MANIFEST).read_text(encoding="utf-8"))["files"])
    except FileNotFoundError:
        return f"it has no {MANIFEST}: it was cut off, is of an earlier run, or not of this package"
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return f"its {MANIFEST} cannot be read"
    for name, sha256 in files.items():
        if not (checkpoint / name).is_file():
            return f"{name} is missing"
        with (checkpoint / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != sha256:
                return f"{name} has other contents than were written"
    return None


def all_checkpoints(folder: Path | str) -> list[Path]:
    """The folders checkpoint-N in `folder`, newest first, whole or not."""
    found = [p for p in Path(folder).glob("checkpoint-*") if p.name[11:].isdecimal() and p.is_dir()]
    return sorted(found, key=lambda path: int(path.name[11:]), reverse=True)


def last_checkpoint(folder: Path | str, say: Callable = lambda text: None) -> str | None:
    """The newest whole checkpoint in `folder`, or None; `say` gets each passed over, and why."""
    for checkpoint in all_checkpoints(folder):
        if (why := fault(checkpoint)) is None:
            return str(checkpoint)
        say(f"{readable(checkpoint)} is passed over: {why}")
    return None


def clear_torn(folder: Path) -> None:
    """Remove checkpoints that are not whole: the Trainer would count them to remove the oldest."""
    for checkpoint in filter(fault, all_checkpoints(folder)):
        shutil.rmtree(checkpoint)


def set_aside(folder: Path) -> None:
    """A run begins anew in `folder`: checkpoints of the earlier one stay, but no longer count."""
    for checkpoint in all_checkpoints(folder):
        (checkpoint / MANIFEST).unlink(missing_ok=True)
