"""Write a file whole or not at all, and never over one that is read or written elsewhere."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from grpo_workbook.errors import WorkbookError


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` at the end of the block, and an error or a kill leaves the old file.

    Raises WorkbookError with the system's reason when it cannot be written (no folder, no permission, disk full).
    """
    target = place_of(path)  # behind a link: the link stays
    try:
        if target.exists() and not target.is_file():  # a device or a pipe: nothing to replace
            yield target
            return
        new = target.with_name(f".{target.name}.{os.getpid()}.new")
        try:
            yield new
            os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise WorkbookError(
            f"{path} cannot be written ({error.strerror or error}): choose another place, or free disk space"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write what JSON can hold, indented, all or nothing (see `whole_file`, also for its error)."""
    with whole_file(path) as new:
        new.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def place_of(name: str | Path) -> Path:
    """The absolute path that a name means, ~ and links resolved. A name that is no path (a hub id) gives one too."""
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # ~nobody: no such user
        path = path.expanduser()
    return path.resolve()


def check_writable(written: Mapping[str, Path | None], read: Mapping[str, str | Path | None]) -> None:
    """Raise WorkbookError when a file cannot stand where it is to be written, or is read or written elsewhere too.

    Both map what the user calls it ("--output") to its path; None is left out.
    """
    taken = [(what, name) for what, name in read.items() if name is not None]
    for option, path in written.items():
        if path is None:
            continue
        if not place_of(path).parent.is_dir() or place_of(path).is_dir():
            raise WorkbookError(f"{path} cannot be written: name a file in a folder that exists")
        for what, other in taken:
            if _same(path, other):
                raise WorkbookError(f"{path} is {what} and {option} at once: name another file")
        taken.append((option, path))


def _same(a: str | Path, b: str | Path) -> bool:
    a, b = place_of(a), place_of(b)
    try:
        return a == b or os.path.samefile(a, b)  # two names of one file, or of one but for case
    except (OSError, ValueError):  # at least one is not there
        return False
