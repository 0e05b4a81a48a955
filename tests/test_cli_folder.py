"""The folder of a run: replaced only when it is a run, resumed only as itself."""

import json
import os
import subprocess
import sys

import pytest
from conftest import REPO, environment

from grpo_workbook.cli.run import check_folder, own_folder
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone

RESUME = {"overwrite": False, "resume": True}
AFRESH = {"overwrite": False, "resume": False}
REPLACE = {"overwrite": True, "resume": False}


def test_a_run_is_replaced_only_while_it_is_ours(tmp_path):
    (folder := tmp_path / "a folder für mich").mkdir()
    with own_folder(folder, {"seed": 0}, **AFRESH):
        (folder / "log.json").write_text("[]")
        (folder / "mine.txt").write_text("mine")
    for how, said in ((AFRESH, "holds another run"), (RESUME, "different: seed")):
        with pytest.raises(WorkbookError, match=said), own_folder(folder, {"seed": 1}, **how):
            pass
    with own_folder(folder, {"seed": 1}, **REPLACE):
        assert sorted(os.listdir(folder)) == ["mine.txt", "run.json"]
    assert json.loads((folder / "run.json").read_text()) == {"seed": 1}
    (folder / "log.json").write_text("[]")
    (folder / "run.json").unlink()
    with pytest.raises(WorkbookError, match=r"no run\.json, so it is not a run"):
        check_folder(folder, {}, **REPLACE)


def test_a_run_with_other_options_is_refused_by_their_names(tmp_path):
    kept = {"seed": 0, "settings": {"max_steps": 30, "beta": 0.0}, "overrides": {"top_p": 0.5}}
    (tmp_path / "run.json").write_text(json.dumps(kept))
    check_folder(tmp_path, kept, **RESUME)
    told = kept | {"reward_weights": {"f": 1.0}, "reward_roles": {"f": None}}
    check_folder(tmp_path, told, **RESUME)  # what follows from the rewards is no other run
    other = kept | {"settings": {"max_steps": 31, "beta": 0.0}, "overrides": {}}
    with pytest.raises(WorkbookError, match=r"different: max_steps, top_p\)"):
        check_folder(tmp_path, other, **RESUME)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(WorkbookError, match=r"run\.json.*--overwrite"):
        check_folder(tmp_path, kept, **RESUME)


@pytest.mark.slow
def test_a_second_run_from_python_is_kept_out_too(tmp_path):
    """As two notebooks would: the second calls main_run and never the command line."""
    code = (
        "import sys; from grpo_workbook import RunConfig\n"
        "from grpo_workbook.cli.run import main_run\n"
        "main_run(RunConfig.from_env(max_steps=1, heldout=8, output=sys.argv[1]))"
    )
    with alone(tmp_path / "out"):
        second = subprocess.run(
            [sys.executable, "-c", code, tmp_path / "out"],
            cwd=REPO,
            env=environment(),
            capture_output=True,
            text=True,
        )
    assert "another process is writing to" in second.stderr
    assert not (tmp_path / "out").exists()


def test_of_a_part_that_lies_on_another_disk_only_the_link_is_removed(tmp_path):
    """Such as checkpoints that had to move: what is elsewhere is not ours to delete."""
    (far := tmp_path / "far").mkdir()
    (far / "mine.txt").write_text("mine")
    with own_folder(tmp_path / "run", {}, **AFRESH):
        (tmp_path / "run" / "checkpoints").symlink_to(far)
    with own_folder(tmp_path / "run", {}, **REPLACE):
        assert os.listdir(tmp_path / "run") == ["run.json"]
    assert os.listdir(far) == ["mine.txt"]
