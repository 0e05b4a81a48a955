"""The folder of a run: one writer at a time, by whatever name it is called; replaced only when it is a run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO, environment

from grpo_workbook.cli.folder import check_folder, own_folder
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone, check_disk


def test_a_folder_that_cannot_be_made_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(WorkbookError, match="cannot be locked"), alone(tmp_path / "file" / "work"):
        pass


def test_two_at_once_are_refused(tmp_path):
    with (
        alone(tmp_path / "work"),
        pytest.raises(WorkbookError, match="another process is writing"),
        alone(tmp_path / "work"),
    ):
        pass
    with alone(tmp_path / "work"):
        assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("name", [".", "../work", "link"])
def test_every_name_of_a_folder_has_the_same_lock(tmp_path, monkeypatch, name):
    (work := tmp_path / "work").mkdir()
    (work / "link").symlink_to(work)
    monkeypatch.chdir(work)
    with (
        alone(work),
        pytest.raises(WorkbookError, match="another process is writing"),
        alone(Path(name)),
    ):
        pass
    assert set(os.listdir(tmp_path)) == {"work", ".work.lock"}


def test_the_root_of_the_machine_is_no_folder_for_a_run(tmp_path):
    with (
        pytest.raises(WorkbookError, match="/ is no folder to write a run into: name another"),
        alone(Path("/")),
    ):
        pass


def test_a_run_is_replaced_only_while_it_is_ours(tmp_path):
    (folder := tmp_path / "a folder für mich").mkdir()
    with own_folder(folder, {"seed": 0}, overwrite=False, resume=False):
        (folder / "log.json").write_text("[]")
        (folder / "mine.txt").write_text("mine")
    for how, said in (
        ({"overwrite": False, "resume": False}, "holds another run"),
        ({"overwrite": False, "resume": True}, "not the same: seed"),
    ):
        with pytest.raises(WorkbookError, match=said), own_folder(folder, {"seed": 1}, **how):
            pass
    with own_folder(folder, {"seed": 1}, overwrite=True, resume=False):
        assert sorted(os.listdir(folder)) == ["mine.txt", "run.json"]
    assert json.loads((folder / "run.json").read_text()) == {"seed": 1}


def test_a_disk_that_is_too_small_is_said_before_the_folder_is_there(tmp_path):
    check_disk(tmp_path / "not" / "yet", 1, "the run")
    with pytest.raises(WorkbookError, match=r"MiB free and the run needs about \d+ MiB: free some"):
        check_disk(tmp_path / "not" / "yet", 2**70, "the run")
    assert not (tmp_path / "not").exists()


def test_a_run_from_python_keeps_others_out_too(tmp_path):
    """As two notebooks would: the second calls main_run and never the command line."""
    code = (
        "from grpo_workbook.cli.pipeline import main_run; from grpo_workbook.run import Run; import sys;"
        "main_run(Run.from_env(max_steps=1, heldout=8, output=sys.argv[1]))"
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
    with own_folder(tmp_path / "run", {}, overwrite=False, resume=False):
        (tmp_path / "run" / "checkpoints").symlink_to(far)
    with own_folder(tmp_path / "run", {}, overwrite=True, resume=False):
        assert os.listdir(tmp_path / "run") == ["run.json"]
    assert os.listdir(far) == ["mine.txt"]


def test_a_folder_whose_lock_could_not_be_written_is_refused_before_anything_else(
    tmp_path, monkeypatch
):
    (tmp_path / "mounted").mkdir()
    allowed = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != tmp_path and allowed(path, mode)
    )
    with pytest.raises(
        WorkbookError,
        match=r"its lock lies in .*, where nothing may be written: name a folder inside",
    ):
        check_folder(tmp_path / "mounted", {}, overwrite=False, resume=False)
    check_folder(tmp_path / "mounted" / "run", {}, overwrite=False, resume=False)


def test_a_lock_that_cannot_be_had_is_named(tmp_path):
    (tmp_path / ".run.lock").mkdir()
    with (
        pytest.raises(WorkbookError, match=r"cannot be locked \(.*\.run\.lock: "),
        alone(tmp_path / "run"),
    ):
        pass


def test_a_run_begun_before_its_weights_were_told_goes_on(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps({"seed": 0}))
    check_folder(tmp_path, {"seed": 0, "reward_weights": {"f": 1.0}}, overwrite=False, resume=True)
