"""The folder of one run: whose it is, one writer at a time, room for it, and never a half-written file in it."""

import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone, check_disk, write_json

PARTS = (
    "run.json",
    "before.json",
    "checkpoints",
    "log.json",
    "adapter",
    "after.json",
    "merged",
    "figures",
    "report.json",
    "stages.json",
)


def parts(output: Path) -> list[str]:
    """The names in this folder that a run wrote."""
    return [name for name in PARTS if (output / name).exists()] + sorted(
        p.name for p in output.glob("stage-[0-9]*-*")
    )


def check_room(run: RunConfig) -> None:
    """Raise WorkbookError when the disk cannot hold checkpoints, adapter and merged weights.

    Six times the base and 50 MiB for a folder; for a hub model, whose size is not known yet, a guess by profile.
    """
    folder = Path(run.model)
    if folder.is_dir():
        needed = 6 * sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) + 50 * 2**20
    else:
        needed = {"smoke": 5, "t4": 15, "24gb": 30, "80gb": 80}[run.profile] * 2**30
    check_disk(run.output, needed, "the run")


def add_choice(group) -> None:
    """The options --overwrite and --resume, of which one may be given: see `check_folder`."""
    choice = group.add_mutually_exclusive_group()
    choice.add_argument("--overwrite", action="store_true", help="replace the run that is there")
    choice.add_argument("--resume", action="store_true", help="continue the run that is there")


def identity_of(run: RunConfig, backend: str, data_sha256: str, **more) -> dict:
    """What makes a run this one and no other, for run.json: --resume continues only what has the same."""
    return {
        "profile": run.profile,
        "model": run.model_name,
        "seed": run.seed,
        "backend": backend,
        "settings": {k: v for k, v in asdict(run.settings).items() if k not in ("qwen", "gemma")},
        "data_sha256": data_sha256,
        **more,
    }


def check_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool) -> None:
    """Raise WorkbookError when the folder holds a run that is neither to be replaced nor this one to continue."""
    if output.exists() and not output.is_dir():
        raise WorkbookError(f"the output {output} is a file: name a folder with --output")
    above = next(
        p for p in (output.absolute(), *output.absolute().parents) if p.exists() or p.is_symlink()
    )
    if not above.is_dir():
        raise WorkbookError(
            f"the output {output} cannot be made, for {above} is no folder: name another with --output"
        )
    if not os.access(above, os.W_OK | os.X_OK):
        raise WorkbookError(
            f"the output {output} cannot be made (no permission to write in {above}): name another"
        )
    beside = output.resolve().parent
    if output.exists() and not os.access(beside, os.W_OK | os.X_OK):
        raise WorkbookError(
            f"the output {output} cannot be kept from other runs, for its lock lies in {beside}, where nothing may be "
            f"written: name a folder inside of it, such as {output / 'run'}"
        )
    present = parts(output)
    if not present or (overwrite and "run.json" in present):
        return
    if overwrite:
        raise WorkbookError(
            f"{output} holds {', '.join(present)} but no run.json, so it is no run: choose another --output"
        )
    if not resume:
        raise WorkbookError(
            f"{output} holds another run ({', '.join(present)}): continue it with --resume, replace it "
            "with --overwrite, or choose another folder with --output"
        )
    try:
        there = json.loads((output / "run.json").read_text(encoding="utf-8"))
        if not isinstance(there, dict):
            raise ValueError("no object")
    except (OSError, ValueError, RecursionError):
        raise WorkbookError(
            f"{output} has no readable run.json, so it cannot be continued: start again with --overwrite"
        ) from None
    if different := _different(there, identity):
        raise WorkbookError(
            f"{output} holds a different run (not the same: {', '.join(different)}): give the same "
            "options to --resume it, or replace it with --overwrite"
        )


def _different(there: dict, here: dict) -> list[str]:
    """The names whose values differ; of settings and overrides, which hold many, the single ones.

    `reward_weights` are told for `diagnose`; what they are is decided by `settings.rewards`.
    """
    names = []
    for name in there | here:
        a, b = there.get(name), here.get(name)
        if (
            a != b
            and name in ("settings", "overrides")
            and isinstance(a, dict)
            and isinstance(b, dict)
        ):
            names += [inner for inner in a | b if a.get(inner) != b.get(inner)]
        elif a != b and name != "reward_weights":
            names.append(name)
    return names


@contextmanager
def own_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool):
    """Make the folder this run's own, and keep other runs out of it while the block lasts.

    It is checked (see `check_folder`), cleared of a run that is to be replaced, and gets its run.json. Raises
    WorkbookError when another process is writing there, or has made it another run's since it was checked first.
    """
    with alone(output):
        check_folder(output, identity, overwrite=overwrite, resume=resume)
        if not resume:
            for path in (output / name for name in parts(output)):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "run.json", identity)
        yield
