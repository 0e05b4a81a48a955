"""The folder of one run: which run it holds, one writer at a time, and enough disk space."""

import shutil
from contextlib import contextmanager
from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone, check_disk, read_json, write_json

PARTS = "run.json before.json checkpoints log.json adapter after.json merged figures report.json"
NO_SETTING = ("device", "profile", "model", "family", "seed", "output", "why")


def parts(output: Path) -> list[str]:
    """The files and folders of a run in this folder."""
    stages = sorted(path.name for path in output.glob("stage-[0-9]*-*"))
    return [name for name in [*PARTS.split(), "stages.json", *stages] if (output / name).exists()]


def check_room(run: RunConfig) -> None:
    """Raise WorkbookError if the disk cannot hold checkpoints, adapter and merged weights."""
    # a guess for a hub model; for a folder six times the base and 50 MiB
    needed = {"smoke": 5, "t4": 15, "24gb": 30, "80gb": 80}[run.profile] * 2**30
    if (folder := Path(run.model)).is_dir():
        needed = 6 * sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) + 50 * 2**20
    check_disk(run.output, needed, "the run")


def identity_of(run: RunConfig, backend: str, data_sha256: str, **more) -> dict:
    """The identity of a run for run.json: --resume continues only a run with the same one."""
    who = {"profile": run.profile, "model": run.model_name, "seed": run.seed, "backend": backend}
    settings = {name: value for name, value in vars(run).items() if name not in NO_SETTING}
    return {**who, "settings": settings, "data_sha256": data_sha256, **more}


def check_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool) -> None:
    """Raise WorkbookError if the folder holds another run, or one that must not be replaced."""
    if output.is_file():
        raise WorkbookError(f"the output {output} is a file: give a folder with --output")
    present = parts(output)
    if not present or (overwrite and "run.json" in present):
        return
    names, other = ", ".join(present), "choose another folder with --output"
    if overwrite:
        raise WorkbookError(f"{output} holds {names} but no run.json, so it is not a run: {other}")
    if not resume:
        how = "continue it with --resume, replace it with --overwrite"
        raise WorkbookError(f"{output} holds another run ({names}): {how}, or {other}")
    # Settings and overrides are compared one by one; the last two follow from the rewards.
    told = "settings overrides reward_weights reward_roles".split()
    there = read_json(output / "run.json")
    a, b = ({**x, **x.get("settings", {}), **x.get("overrides", {})} for x in (there, identity))
    different = [name for name in a | b if name not in told and a.get(name) != b.get(name)]
    if different:
        said = f"{output} holds another run (different: {', '.join(different)})"
        fix = "give its options to --resume it, or replace it with --overwrite"
        raise WorkbookError(f"{said}: {fix}")


@contextmanager
def own_folder(output: Path, identity: dict, *, overwrite: bool, resume: bool):
    """Prepare the folder for this run, and lock it for the duration of the block.

    It is checked again (see `check_folder`), cleared of the old run, and gets its run.json.
    """
    with alone(output):
        check_folder(output, identity, overwrite=overwrite, resume=resume)
        for path in [] if resume else [output / name for name in parts(output)]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "run.json", identity)
        yield
