"""benchmarks/speedrun.py: its model and data are unchanged, and its tricks change only the time."""

import json
import sys

import pytest
from conftest import REPO, finished

sys.path.insert(0, str(REPO / "benchmarks"))
import speedrun


def test_model_and_data_are_those_of_the_records():
    speedrun.check_hashes()


def two_steps(folder, more: dict) -> list[dict]:
    settings = json.dumps({"max_steps": 2, "per_device_train_batch_size": 16, **more})
    call = [sys.executable, speedrun.__file__, "--try", settings, "--seeds", "10"]
    result = finished([*call, "--folder", str(folder)])
    assert result.returncode == 1, result.stderr[-3000:]  # two steps are not enough
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())["log"]


@pytest.mark.trains
def test_the_tricks_sample_and_learn_the_same(tmp_path):
    plain, fast = (
        two_steps(tmp_path / name, more)
        for name, more in (("plain", speedrun.RECORDS["packed"]), ("fast", speedrun.SHARED))
    )
    for name in ("reward", "completions/mean_length", "grad_norm"):
        assert [e[name] for e in fast] == pytest.approx([e[name] for e in plain], rel=1e-3)
    assert all(e["grad_norm"] > 0 for e in fast)
