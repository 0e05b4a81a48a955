"""benchmarks/controls.py: its reward of chance, its table, and that the stored runs are whole."""

import json
import sys
from types import SimpleNamespace

from conftest import REPO

sys.path.insert(0, str(REPO / "benchmarks"))
import controls


def test_the_random_reward_ignores_the_completions():
    state = SimpleNamespace(global_step=3)
    rewards = controls.random_reward(["<answer>1</answer>"] * 400, state)
    assert set(rewards) == {0.0, 1.0}
    assert 150 < sum(rewards) < 250
    assert controls.random_reward([""] * 400, state) == rewards


def test_the_table_has_seeds_side_by_side():
    row = {"run": "main", "family": "qwen", "sampled": 0.7}
    curve = {"1": 0.7, "8": 0.8, "16": 0.9}
    rows = [
        {**row, "seed": 1, "greedy": [1, 1, 1, 1], "pass_at_k": curve},
        {**row, "seed": 0, "greedy": [0, 1, 1, 1], "pass_at_k": curve},
    ]
    line = controls.table(rows).splitlines()[-1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["main", "qwen", "0, 1", "75.0%, 100.0%"]
    assert cells[6] == "90.0%, 90.0%"
    assert cells[7] == ""  # 64 answers were not sampled


def test_every_run_is_stored_and_measured_on_the_rare_problems():
    rows = json.loads(controls.RESULTS.read_text(encoding="utf-8"))
    stored = {row["run"] for row in rows if row["family"] == "qwen" and row["seed"] == 0}
    assert stored == set(controls.RUNS)
    for row in rows:
        assert len(row["greedy"]) == 257
        assert str(controls.SAMPLES[row["run"]]) in row["pass_at_k"]
