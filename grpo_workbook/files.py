"""Write the files of a run completely or not at all, one writer at a time; show short paths.

A file or a folder is first written beside its place under another name, and then takes the place of
the old one in one step: a reader, or a kill in the middle, meets the old one or the new one.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from grpo_workbook.errors import WorkbookError, first_line

T = TypeVar("T")
REPO = Path(__file__).resolve().parent.parent  # the clone; a package installed alone has none


def readable(path: str | Path) -> str:
    """The path relative to this folder or the project's, if it is inside one of them."""
    absolute = Path(path).resolve()
    for root in (Path.cwd(), REPO):
        if absolute.is_relative_to(root):
            return str(absolute.relative_to(root))
    return str(path)


def place_of(name: str | Path) -> Path:
    """The absolute path for a name, with ~ and links resolved; a hub id gives one too."""
    return Path(os.path.expanduser(name)).resolve()


# ---- files


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path that replaces `path` at the block's end; an error or a kill leaves it.

    Raises WorkbookError, with the OSError as its cause, if the file cannot be written.
    """
    target = place_of(path)  # the target of a link: the link stays
    temporary = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        # A device such as /dev/stdout is written to; replacing it would destroy it.
        if target.exists() and not target.is_file():
            yield target
            return
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise WorkbookError(
            f"{path} cannot be written ({error.strerror or error}): choose another place, or free "
            "disk space"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, completely or not at all (see `whole_file`)."""
    # NaN and infinity become null: JSON does not know them, and other readers refuse them.
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    text = json.dumps(finite, indent=2, ensure_ascii=False)
    with whole_file(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def read_json(path: Path, fix: str = "start again with --overwrite") -> Any:
    """Read a JSON file. Raises WorkbookError, with the fix, if it is damaged or not there."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WorkbookError(f"{readable(path)} cannot be read ({error.strerror}): {fix}") from error
    except ValueError as error:
        raise WorkbookError(f"{readable(path)} is damaged: {fix}") from error


def read_object(path: Path, fix: str = "start again with --overwrite") -> dict[str, Any]:
    """`read_json` for a file that holds an object. Raises WorkbookError for anything else."""
    content = read_json(path, fix)
    if not isinstance(content, dict):
        raise WorkbookError(
            f"{readable(path)} holds a {type(content).__name__} and no object with names: {fix}"
        )
    return content


# ---- folders


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder against a second writer. Raises WorkbookError if it is locked already."""
    from filelock import FileLock, Timeout  # imports asyncio

    target = folder.resolve()  # the same lock for ".", a link and the folder's own name
    lock = FileLock(target.with_name(f".{target.name}.lock"), timeout=0)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout as error:
        raise WorkbookError(
            f"{readable(folder)} cannot be locked: another process is writing to it; wait for it, "
            "or choose another folder"
        ) from error
    except (OSError, NotImplementedError) as error:  # some network disks have no locks
        raise WorkbookError(
            f"{readable(folder)} cannot be locked: {first_line(error)}; choose another folder"
        ) from error
    try:
        yield
    finally:
        lock.release()


def swap_folder(folder: Path, write: Callable[[Path], T]) -> T:
    """Let `write` fill a new folder, then replace `folder` with it; an error leaves it.

    Returns what `write` returns. The old folder is first moved aside: a kill loses neither, and
    the next call moves it back.
    """
    if folder.is_symlink():
        folder = folder.resolve()
    new = folder.with_name(folder.name + ".new")
    old = folder.with_name(folder.name + ".old")
    if old.is_dir() and not folder.exists():  # an earlier call was killed between its two moves
        os.replace(old, folder)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        result = write(new)
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    return result
