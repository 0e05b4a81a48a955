"""The folder of a run: replaced only when it is a run, resumed only as itself."""

import json
import os

import pytest
from conftest import assert_names, cli, raises_naming

from grpo_workbook.cli.options import RunOptions
from grpo_workbook.cli.run import check_folder, own_folder
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import alone

AFRESH, RESUME, REPLACE = RunOptions(), RunOptions(resume=True), RunOptions(overwrite=True)


def test_a_run_is_replaced_only_while_it_is_ours(tmp_path):
    folder = tmp_path / "a folder für mich"
    folder.mkdir()
    with own_folder(folder, {"seed": 0}, AFRESH):
        (folder / "log.json").write_text("[]")
        (folder / "mine.txt").write_text("mine")
    for mode, named in ((AFRESH, ["--resume", "--overwrite"]), (RESUME, ["seed", "--overwrite"])):
        with raises_naming(WorkbookError, folder, *named), own_folder(folder, {"seed": 1}, mode):
            pass
    with own_folder(folder, {"seed": 1}, REPLACE):
        assert sorted(os.listdir(folder)) == ["mine.txt", "run.json"]
    assert json.loads((folder / "run.json").read_text()) == {"seed": 1}
    (folder / "log.json").write_text("[]")
    (folder / "run.json").unlink()
    with raises_naming(WorkbookError, folder, "log.json", "run.json"):
        check_folder(folder, {}, overwrite=True, resume=False)


def test_a_run_with_other_options_is_refused_by_their_names(tmp_path):
    kept = {"seed": 0, "settings": {"max_steps": 30, "top_p": 0.5}}
    (tmp_path / "run.json").write_text(json.dumps(kept))
    check_folder(tmp_path, kept, overwrite=False, resume=True)
    with_rewards = kept | {"reward_weights": {"f": 1.0}, "reward_roles": {"f": None}}
    # What follows from the rewards is no other run.
    check_folder(tmp_path, with_rewards, overwrite=False, resume=True)
    other = kept | {"settings": {"max_steps": 31}}
    with raises_naming(WorkbookError, "max_steps, top_p"):
        check_folder(tmp_path, other, overwrite=False, resume=True)
    (tmp_path / "run.json").write_text("{")
    with raises_naming(WorkbookError, "run.json", "--overwrite"):
        check_folder(tmp_path, kept, overwrite=False, resume=True)


@pytest.mark.slow
def test_a_second_run_is_kept_out(tmp_path):
    with alone(tmp_path / "out"):
        second = cli("run", "--max_steps", "1", "--heldout", "8", "--output_dir", tmp_path / "out")
    assert second.returncode == 2
    assert_names(second.stderr, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_of_a_part_that_lies_on_another_disk_only_the_link_is_removed(tmp_path):
    """Such as checkpoints that had to move: what is elsewhere is not ours to delete."""
    far = tmp_path / "far"
    far.mkdir()
    (far / "mine.txt").write_text("mine")
    with own_folder(tmp_path / "run", {}, AFRESH):
        (tmp_path / "run" / "checkpoints").symlink_to(far)
    with own_folder(tmp_path / "run", {}, REPLACE):
        assert os.listdir(tmp_path / "run") == ["run.json"]
    assert os.listdir(far) == ["mine.txt"]
