"""benchmarks/stored_runs.py: a run is found again by its key, and a GPU's are kept out."""

import subprocess
import sys

import pytest
from conftest import REPO, assert_names, environment

sys.path.insert(0, str(REPO / "benchmarks"))
import thinking
import vision
from stored_runs import StoredRuns


def test_a_run_takes_the_place_of_an_older_one(tmp_path):
    stored = StoredRuns(tmp_path / "runs.jsonl", ["first", "second"])
    assert stored.rows() == []
    for method, seed in [("gone", 0), ("second", 0), ("first", 1), ("first", 0)]:
        stored.add({"method": method, "seed": seed, "key": "old"})
    stored.add({"method": "second", "seed": 0, "key": "new"})
    runs = [(row["method"], row["seed"], row["key"]) for row in stored.rows()]
    assert runs == [
        ("first", 0, "old"),
        ("first", 1, "old"),
        ("second", 0, "new"),
        ("gone", 0, "old"),
    ]
    assert stored.has("second", 0, "new")
    assert not stored.has("second", 0, "old")


@pytest.mark.parametrize("benchmark", [thinking, vision])
def test_writing_the_stored_runs_again_changes_nothing(benchmark, tmp_path):
    copy = StoredRuns(tmp_path / "runs.jsonl", benchmark.METHODS)
    rows = benchmark.STORED.rows()
    for row in reversed(rows):
        copy.add(row)
    assert len(rows) > 0
    assert copy.path.read_bytes() == benchmark.STORED.path.read_bytes()


def test_the_missing_runs_are_made_seed_by_seed_with_each_methods_own_seeds(monkeypatch):
    more = vision.Method("vision", seeds=(0, 4))
    monkeypatch.setitem(vision.METHODS, "more", more)
    own = [("more", 0), ("base", 0), ("both", 0), ("both", 1), ("both", 2), ("more", 4)]
    assert vision.wanted(["more", "base", "both"], None) == own
    assert vision.wanted(["base", "more"], [7, 8]) == [
        ("base", 7),
        ("more", 7),
        ("base", 8),
        ("more", 8),
    ]


def test_a_run_on_a_gpu_is_refused():
    code = (
        "import torch; torch.cuda.is_available = lambda: True\n"
        "import stored_runs; stored_runs.use_one_core()"
    )
    env = environment(PYTHONPATH=f"{REPO}:{REPO / 'benchmarks'}")
    result = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert result.returncode == 1
    assert_names(result.stderr, "GPU", "CUDA_VISIBLE_DEVICES", "benchmarks/gpu.py")
    assert "Traceback" not in result.stderr
