"""Files of a run: written whole or not at all, one writer at a time, under a readable name."""

import contextlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from grpo_workbook.errors import WorkbookError, first_line

REPO = Path(__file__).resolve().parent.parent  # the clone; a package installed alone has none


def readable(path: str | Path) -> str:
    """The path as seen from this folder or from the project's, when it lies below one of them."""
    for root in (Path.cwd(), REPO):
        if (resolved := Path(path).resolve()).is_relative_to(root):
            return str(resolved.relative_to(root))
    return str(path)


def place_of(name: str | Path) -> Path:
    """The absolute path that a name means, ~ and links resolved. A hub id gives one too."""
    path = Path(name)
    with contextlib.suppress(RuntimeError):  # ~nobody: no such user
        path = path.expanduser()
    return path.resolve()


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A path to write to; it becomes `path` at the end of the block.

    An error or a kill leaves the old file. Raises WorkbookError with the system's reason when it
    cannot be written (no folder, no permission, disk full).
    """
    target = place_of(path)  # behind a link: the link stays
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
        reason = error.strerror or error
        raise WorkbookError(
            f"{path} cannot be written ({reason}): choose another place, or free disk space"
        ) from error


def write_json(path: Path, value: object) -> None:
    """Write what JSON can hold, indented, all or nothing (see `whole_file`, also for its error).

    NaN and the infinities, which JSON does not know and other readers refuse, are written as null.
    """
    text = json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    with whole_file(path) as new:
        new.write_text(text + "\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_json(path: Path, fix: str = "start again with --overwrite"):
    """What a run wrote earlier as JSON. Raises WorkbookError with the fix where it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = f"{readable(path)} was written by the run and cannot be read: {fix}"
        raise WorkbookError(said) from error


def check_writable(
    written: Mapping[str, Path | None], read: Mapping[str, str | Path | None]
) -> None:
    """Raise WorkbookError for a file that cannot stand there, or is read or written elsewhere too.

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


def check_disk(output: Path, needed: int, what: str) -> None:
    """Raise WorkbookError when the disk of `output` has fewer than the `needed` bytes free.

    The folder need not be there yet. `what` needs them, in the message's words ("the run").
    """
    existing = next(p for p in (output.absolute(), *output.absolute().parents) if p.is_dir())
    free = shutil.disk_usage(existing).free
    if free < needed:
        raise WorkbookError(
            f"the disk of {readable(output)} has {free / 2**20:.0f} MiB free and {what} needs "
            f"about {needed / 2**20:.0f} MiB: free some, or choose another disk with --output"
        )


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep a second writer out of the folder. Raises WorkbookError when one is at it."""
    from filelock import FileLock, Timeout  # it brings asyncio

    place = folder.resolve()  # "." and a link have the same lock as the folder's own name
    elsewhere = "name another folder with --output"
    if not place.name:
        raise WorkbookError(f"{folder} is no folder to write a run into: {elsewhere}")
    lock = FileLock(place.with_name(f".{place.name}.lock"))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=0)
    except Timeout:  # an OSError too
        said = f"another process is writing to {readable(folder)}: wait for it, or {elsewhere}"
        raise WorkbookError(said) from None
    except (OSError, NotImplementedError) as error:  # the latter on a disk without locks
        reason = f"{lock.lock_file}: {first_line(error)}"
        raise WorkbookError(
            f"{readable(folder)} cannot be locked ({reason}): {elsewhere}"
        ) from error
    try:
        yield
    finally:
        lock.release()


def swap_folder(folder: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a new folder beside `folder`, then put it in its place; a link stays one.

    What `write` raises goes on, and the old folder stays. The old one is moved aside before the new
    one comes, so that a kill at any moment loses neither; the next call puts it back.
    """
    folder = folder.resolve() if folder.is_symlink() else folder
    new, old = (folder.with_name(folder.name + ending) for ending in (".new", ".old"))
    recover_folder(folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        write(new)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    if folder.exists():
        os.replace(folder, old)
    os.replace(new, folder)
    shutil.rmtree(old, ignore_errors=True)


def recover_folder(folder: Path) -> None:
    """Put back the folder that a killed `swap_folder` had moved aside; else remove what is left."""
    old = folder.with_name(folder.name + ".old")
    if old.is_dir() and not folder.exists():
        os.replace(old, folder)
    shutil.rmtree(old, ignore_errors=True)
