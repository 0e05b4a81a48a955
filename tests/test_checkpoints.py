"""Which checkpoints count, which are skipped with a reason, and which are removed: only our own."""

import fcntl
import functools
import json
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from grpo_workbook.errors import WorkbookError
from grpo_workbook.resume import (
    LOST,
    MANIFEST,
    TRAINER_STATE,
    ExactCheckpoints,
    _stateful,
    last_checkpoint,
    mark_unfinished,
    note_earlier,
    read_state,
    remove_unfinished,
    seal,
    write_state,
)

FILES = {
    "adapter_model.safetensors": b"a" * 5000,
    "optimizer.pt": b"o" * 100,
    "ref/adapter_model.safetensors": b"r",
}


def write_stock(folder, step, run="a"):
    """A checkpoint as the Trainer alone leaves it; `run` stands in its log."""
    checkpoint = folder / f"checkpoint-{step}"
    for name, contents in FILES.items():
        path = checkpoint / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents)
    (checkpoint / TRAINER_STATE).write_text(json.dumps({"global_step": step, "run": run}))
    return checkpoint


@pytest.fixture
def folder(tmp_path):
    """Two sealed checkpoints."""
    for step in (25, 100):
        seal(write_stock(tmp_path, step))
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path):
    path.write_bytes(b"x" + path.read_bytes()[1:])


def remove(path):
    path.unlink()


@pytest.mark.parametrize("name", [*FILES, TRAINER_STATE])
@pytest.mark.parametrize("harm", [cut, change, remove])
def test_a_checkpoint_with_any_file_spoilt_is_skipped_and_named(folder, capsys, name, harm):
    assert last_checkpoint(folder) == str(folder / "checkpoint-100")
    assert capsys.readouterr().out == ""
    harm(folder / "checkpoint-100" / name)
    assert last_checkpoint(folder) == str(folder / "checkpoint-25")
    (line,) = capsys.readouterr().out.splitlines()
    assert "checkpoint-100 is skipped: " in line
    assert name in line


@pytest.mark.parametrize("text", ["", "[" * 100_000, "[]", '{"files": ["optimizer.pt"]}'])
def test_a_manifest_that_is_none_is_a_reason(folder, capsys, text):
    (folder / "checkpoint-100" / MANIFEST).write_text(text)
    assert last_checkpoint(folder) == str(folder / "checkpoint-25")
    assert MANIFEST in capsys.readouterr().out


def test_other_names_and_no_folder_are_no_checkpoints(folder):
    assert last_checkpoint(folder / "none") is None
    for name in ("checkpoint-old", "checkpoint-", "runs"):
        (folder / name).mkdir()
    assert last_checkpoint(folder) == str(folder / "checkpoint-100")


# ---- checkpoints of the Trainer alone


def test_a_newer_checkpoint_of_stock_trl_counts(folder, capsys):
    write_stock(folder, 200)
    assert last_checkpoint(folder) == str(folder / "checkpoint-200")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("harm", [cut, remove])
def test_a_stock_checkpoint_that_was_cut_off_is_skipped_with_a_line(folder, capsys, harm):
    harm(write_stock(folder, 200) / TRAINER_STATE)
    assert last_checkpoint(folder) == str(folder / "checkpoint-100")
    line = capsys.readouterr().out
    assert "checkpoint-200 is skipped" in line
    assert TRAINER_STATE in line


def test_nothing_of_stock_trl_is_removed_or_changed(folder):
    """When a run continues and when a new one starts, complete or not."""
    write_stock(folder, 200)
    (write_stock(folder, 300) / TRAINER_STATE).unlink()
    paths = [path for path in folder.rglob("*") if path.is_file()]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    remove_unfinished(folder)
    note_earlier(folder)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths} == before


def test_loading_a_stock_checkpoint_says_what_is_lost(folder, capsys):
    loaded = []
    trainer = SimpleNamespace(
        model=object(),
        is_world_process_zero=lambda: True,
        _load_from_checkpoint=lambda checkpoint, model: loaded.append(checkpoint),
        _save_checkpoint=None,
    )
    checkpoint = write_stock(folder, 200)
    exact = ExactCheckpoints(trainer)
    exact.load(str(checkpoint))
    assert loaded == [str(checkpoint)]
    assert exact.state is None
    line = capsys.readouterr().out
    assert line.startswith(str(checkpoint))
    assert line.strip() == LOST.format(checkpoint)


# ---- our own


def test_only_our_own_unfinished_checkpoints_are_removed(folder, capsys):
    mark_unfinished(folder / "checkpoint-200")
    write_stock(folder, 200)  # a kill before it was sealed
    mark_unfinished(folder / "checkpoint-300")  # a kill before anything was written
    cut(folder / "checkpoint-100" / "optimizer.pt")  # sealed, and damaged later
    (folder / "runs").mkdir()
    assert last_checkpoint(folder) == str(folder / "checkpoint-25")
    skipped = capsys.readouterr().out.splitlines()
    assert [line.split(" is skipped")[0].split("/")[-1] for line in skipped] == [
        "checkpoint-300",
        "checkpoint-200",
        "checkpoint-100",
    ]
    remove_unfinished(folder)
    assert names(folder) == ["checkpoint-100", "checkpoint-25", "runs"]


def test_a_run_begun_anew_does_not_continue_an_earlier_one(folder, capsys):
    """Neither sealed nor stock checkpoints, until the new run has written its own."""
    write_stock(folder, 200)
    note_earlier(folder)
    assert last_checkpoint(folder) is None
    assert capsys.readouterr().out.count("earlier run") == 3
    shutil.rmtree(folder / "checkpoint-25")
    seal(write_stock(folder, 25, run="b"))  # the new run has come this far
    assert last_checkpoint(folder) == str(folder / "checkpoint-25")


def test_files_are_flushed_through_handles_that_may_write(folder, monkeypatch):
    """On Windows a flush of any other raises: no checkpoint could be written there."""
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(fcntl.fcntl(file, fcntl.F_GETFL)))
    seal(folder / "checkpoint-25")
    assert len(flushed) == len(FILES) + 1
    assert all(mode & os.O_ACCMODE == os.O_RDWR for mode in flushed)


def test_rewards_with_a_state_are_found_within_wrappers():
    """functools.wraps copies the attributes of an object, but not the methods of its class."""

    class Fading:
        __name__ = "fading"

        def load_state_dict(self, state):
            pass

    fading, other = Fading(), Fading()
    wrapped = functools.wraps(fading)(lambda **columns: None)
    twice = functools.wraps(wrapped)(lambda **columns: None)
    found = _stateful([twice, print, other])
    assert found == {"fading:0": fading, "fading:1": other}


def test_a_state_of_numbers_texts_and_tensors_is_read_as_it_was_written(tmp_path):
    """A mean is often a number of NumPy."""
    means = [np.mean([0.5, 0.0]), np.float32(0.25), np.int64(3), np.bool_(True)]
    state = {"rate": 0.1, "seen": [[3, ["text", None]]], 7: means, "start": torch.arange(3.0)}
    write_state(tmp_path / "state.safetensors", state)
    restored = read_state(tmp_path / "state.safetensors")
    assert restored.pop("start").tolist() == [0.0, 1.0, 2.0]
    del state["start"]
    assert restored == state


def test_a_state_that_could_not_be_read_is_refused_when_it_is_written(tmp_path):
    with pytest.raises(WorkbookError, match="OwnState"):
        write_state(tmp_path / "state.safetensors", {"reward": OwnState()})


class OwnState:
    """Not a plain value."""
