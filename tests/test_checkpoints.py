import fcntl
import functools
import json
import os
from types import SimpleNamespace

import pytest

from grpo_workbook.resume import MANIFEST, _stateful, last_checkpoint, seal, tidy
from grpo_workbook.rewards import correctness_reward, strict_format_reward
from grpo_workbook.training import AdaptiveWeight

FILES = {
    "adapter_model.safetensors": b"a" * 5000,
    "optimizer.pt": b"o" * 100,
    "ref/adapter_model.safetensors": b"r",
}


@pytest.fixture
def folder(tmp_path):
    """Two whole checkpoints."""
    for step in (25, 100):
        for name, contents in FILES.items():
            path = tmp_path / f"checkpoint-{step}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
        seal(tmp_path / f"checkpoint-{step}")
    return tmp_path


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change(path):
    path.write_bytes(b"x" + path.read_bytes()[1:])


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
@pytest.mark.parametrize(
    "harm", [cut, change, lambda path: path.unlink()], ids=["cut", "changed", "gone"]
)
def test_a_checkpoint_with_any_file_spoilt_is_passed_over_and_named(folder, name, harm):
    said = []
    assert last_checkpoint(folder, said.append) == str(folder / "checkpoint-100")
    assert said == []
    harm(folder / "checkpoint-100" / name)
    assert last_checkpoint(folder, said.append) == str(folder / "checkpoint-25")
    assert len(said) == 1
    assert "checkpoint-100 is skipped: " in said[0]
    assert name in said[0]


def test_without_a_whole_one_there_is_none(tmp_path, folder):
    assert last_checkpoint(tmp_path / "none") is None
    for name in ("checkpoint-old", "checkpoint-200", "checkpoint-"):
        (folder / name).mkdir()
    (folder / "checkpoint-200" / "trainer_state.json").write_text(
        "{}"
    )  # as the Trainer alone leaves it
    assert last_checkpoint(folder) == str(folder / "checkpoint-100")
    for step in (25, 100):
        (folder / f"checkpoint-{step}" / MANIFEST).write_text(
            json.dumps({"files": ["optimizer.pt"]})
        )
    (folder / "checkpoint-100" / MANIFEST).write_text("[" * 100_000)
    said = []
    assert last_checkpoint(folder, said.append) is None
    assert len(said) == 3


def test_only_torn_ones_are_cleared(folder):
    cut(folder / "checkpoint-100" / "optimizer.pt")
    (folder / "runs").mkdir()
    tidy(folder, resumed=True)
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoint-25", "runs"]


def test_a_run_begun_anew_does_not_continue_the_earlier_one(folder):
    tidy(folder, resumed=False)
    said = []
    assert last_checkpoint(folder, said.append) is None
    assert "or of an earlier run" in said[0]
    seal(folder / "checkpoint-25")  # the new run has come this far
    assert last_checkpoint(folder) == str(folder / "checkpoint-25")


def test_files_are_flushed_through_handles_that_may_write(folder, monkeypatch):
    """On Windows a flush of any other raises: no checkpoint could be written there."""
    flushed = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(fcntl.fcntl(file, fcntl.F_GETFL)))
    seal(folder / "checkpoint-25")
    assert len(flushed) == len(FILES)
    assert all(mode & os.O_ACCMODE == os.O_RDWR for mode in flushed)


def test_rewards_with_a_state_are_found_within_wrappers_and_ensembles():
    """functools.wraps copies the attributes of an object, but not the methods of its class."""

    fading = AdaptiveWeight(strict_format_reward, correctness_reward)
    wrapped = functools.wraps(fading)(lambda **columns: fading(**columns))
    ensemble = SimpleNamespace(members=[AdaptiveWeight(fading, correctness_reward)])
    handler = SimpleNamespace(callbacks=[])
    trainer = SimpleNamespace(reward_funcs=[wrapped, ensemble], callback_handler=handler)
    found, name = _stateful(trainer)["rewards"], "adaptive_strict_format_reward"
    assert list(found) == [f"{name}:0", f"adaptive_{name}:0", f"{name}:1"]
    assert found[f"{name}:0"] is found[f"{name}:1"] is fading
