"""Write the files of a run completely or not at all, one writer at a time; show short paths."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from grpo_workbook.errors import WorkbookError, first_line

REPO = Path(__file__).resolve().parent.parent  # the clone; a package installed alone has none


def readable(path: str | Path) -> str:
    """The path relative to this folder or the project's, if it is inside one of them."""
    for root in (Path.cwd(), REPO):
        with contextlib.suppress(ValueError):
            return str(Path(path).resolve().relative_to(root))
    return str(path)


def place_of(name: str | Path) -> Path:
    """The absolute path for a name, with ~ and links resolved; a hub id gives one too."""
    return Path(os.path.expanduser(name)).resolve()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path that replaces `path` at the block's end; an error or a kill leaves it."""
    target = place_of(path)  # the target of a link: the link stays
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        if target.exists() and not target.is_file():  # a device or a pipe: nothing to replace
            yield target
            return
        try:
            yield new
            os.replace(new, target)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        said = f"{path} cannot be written ({error.strerror or error})"
        raise WorkbookError(f"{said}: choose another place, or free disk space") from error


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, completely or not at all (see `whole_file`)."""
    # NaN and infinity become null: JSON does not know them, and other readers refuse them.
    value = json.loads(json.dumps(value), parse_constant=lambda name: None)
    with whole_file(path) as new:
        new.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: Path, fix: str = "start again with --overwrite"):
    """Read a JSON file of a run. Raises WorkbookError, with the fix, if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WorkbookError(f"{readable(path)} is damaged: {fix}") from error


def check_disk(output: Path, needed: int, what: str) -> None:
    """Raise WorkbookError if `what` needs more space than the disk of `output` has free."""
    existing = next(p for p in (output.absolute(), *output.absolute().parents) if p.is_dir())
    free = shutil.disk_usage(existing).free
    if free < needed:
        said = f"{free / 2**20:.0f} MiB free, but {what} needs about {needed / 2**20:.0f} MiB"
        raise WorkbookError(f"{readable(output)} has {said}: free some, or choose another disk")


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lock the folder against a second writer. Raises WorkbookError if it is locked already."""
    from filelock import FileLock, Timeout  # imports asyncio

    place = folder.resolve()  # the same lock for ".", a link and the folder's own name
    lock = FileLock(place.with_name(f".{place.name}.lock"), timeout=0)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        held = lock.acquire()
    except (OSError, NotImplementedError) as error:  # NotImplementedError: a disk without locks
        taken = "another process is writing to it"
        why = taken if isinstance(error, Timeout) else first_line(error)
        raise WorkbookError(f"{readable(folder)} cannot be locked: {why}") from error
    with held:
        yield


def swap_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new folder, then replace `folder` with it; an error leaves it.
    The old one is first moved aside: a kill loses neither, and the next call moves it back.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    new, old = (folder.with_name(folder.name + ending) for ending in (".new", ".old"))
    if old.is_dir() and not folder.exists():
        os.replace(old, folder)
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        write(new)
        if folder.exists():
            os.replace(folder, old)
        os.replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)
