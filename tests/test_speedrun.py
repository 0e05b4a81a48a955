"""benchmarks/speedrun.py: its model and data are unchanged, and its tricks change only the time."""

import json
import sys

import pytest
from conftest import REPO, finished

sys.path.insert(0, str(REPO / "benchmarks"))
import speedrun


def test_model_and_data_are_those_of_the_records():
    speedrun.check_hashes()


def test_a_record_needs_all_seeds():
    seconds = {"wall": 60.0, "processor": 59.0, "steps": 80, "completions": 6400}
    good = {**seconds, "sampled": speedrun.GOAL + 0.02, "greedy": 0.8}
    bad = {**seconds, "sampled": speedrun.GOAL - 0.02, "greedy": 0.8}
    assert speedrun.table_row("mine", [good, good, good]).endswith("| yes |")
    assert speedrun.table_row("mine", [good, good, bad]).endswith("| no |")


def test_trying_leaves_the_heldout_problems_alone():
    all_rows, heldout = speedrun.load_rows(trying=False)
    rows, tried = speedrun.load_rows(trying=True)
    assert len(tried) == len(heldout) == 257
    assert len(rows) + len(tried) == len(all_rows)
    assert not set(tried["question"]) & set(rows["question"])
    assert not set(tried["question"]) & set(heldout["question"])
    assert all(heldout["rare"])
    assert all(all_rows["rare"])


def two_steps(folder, more: dict) -> list[dict]:
    settings = json.dumps({"max_steps": 2, "per_device_train_batch_size": 16, **more})
    call = [sys.executable, speedrun.__file__, "--try", settings, "--seeds", "10"]
    result = finished([*call, "--folder", str(folder)])
    assert result.returncode == 1, result.stderr[-3000:]  # two steps are not enough
    (path,) = folder.glob("*.json")
    return json.loads(path.read_text())["log"]


@pytest.mark.trains
def test_the_tricks_sample_and_learn_the_same(tmp_path):
    plain = two_steps(tmp_path / "plain", {})
    fast = two_steps(tmp_path / "fast", speedrun.FASTER)
    for name in ("reward", "completions/mean_length", "grad_norm"):
        expected = [entry[name] for entry in plain]
        assert [entry[name] for entry in fast] == pytest.approx(expected, rel=1e-3)
    assert all(entry["grad_norm"] > 0 for entry in fast)
