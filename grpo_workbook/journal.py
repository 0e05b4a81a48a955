"""A file of JSON lines that survives a pulled plug: what a line says was done is done, and nothing is done twice.

Beside the lines stands an identity: a journal is continued only with the settings that it was begun with.
"""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import readable, write_json

LINES, IDENTITY = "completions.jsonl", "identity.json"


class Journal:
    """The lines of one piece of work, in a folder: `records` are those that are whole, `append` adds to them."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.path = folder / LINES
        self.records: list[dict] = []

    def open(self, identity: dict, *, overwrite: bool = False, results: Iterable[str] = ()) -> None:
        """Begin, or go on: read what is there and cut off a last line that a kill left torn.

        Raises WorkbookError when the folder holds another piece of work (unless `overwrite`, which removes it and the
        `results` made from it), or something that is none.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise WorkbookError(f"the output {self.folder} is a file: name a folder with --output")
        if overwrite and (self.folder / IDENTITY).is_file():
            for name in (*results, LINES, IDENTITY):
                (self.folder / name).unlink(missing_ok=True)
        there = read_identity(self.folder) if self.folder.is_dir() else None
        if there is None and self.folder.is_dir() and any(self.folder.glob("*")):
            raise WorkbookError(
                f"the folder {readable(self.folder)} holds other files and no {IDENTITY}: name a new one with --output"
            )
        if there is not None and there != identity:
            different = [name for name in identity | there if identity.get(name) != there.get(name)]
            raise WorkbookError(
                f"the folder {readable(self.folder)} holds another evaluation (not the same: {', '.join(different)}): "
                "replace it with --overwrite, or name another folder with --output"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        if there is None:
            write_json(self.folder / IDENTITY, identity)
        self.records = read_lines(self.path, mend=True) if self.path.exists() else []

    def append(self, records: Iterable[dict]) -> None:
        """Write the records, one line each, and return when they are on the disk."""
        records = list(records)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                for record in records:
                    file.write(json.dumps(record, ensure_ascii=False) + "\n")
                    file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise WorkbookError(
                f"{readable(self.path)} cannot be written ({error.strerror}): mend that (free some room?), and give "
                "the same command to go on"
            ) from error
        self.records += records


def read_identity(folder: Path) -> dict | None:
    """What the folder was begun with, or None where it holds no journal. Raises WorkbookError when it is unreadable."""
    path = folder / IDENTITY
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise WorkbookError(f"{readable(path)} is damaged: replace the evaluation with --overwrite")
    return found


def read_lines(path: Path, mend: bool = False) -> list[dict]:
    """The records of all whole lines. A torn last line is left out, and cut off the file when `mend`.

    Raises WorkbookError with the line's number for anything else that is no record.
    """
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if mend and whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    records = []
    for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            raise WorkbookError(
                f"{readable(path)}, line {number} is damaged: start again with --overwrite"
            )
        records.append(record)
    return records
