"""benchmarks/controls.py: its reward of chance, its table, and that the stored runs are whole."""

import json
import sys
from types import SimpleNamespace

from conftest import REPO

sys.path.insert(0, str(REPO / "benchmarks"))
sys.path.insert(0, str(REPO / "data"))
import controls
from build_tiny_models import DRAW, rare_examples
from build_word_problems import RARE_KINDS, build


def test_the_random_reward_ignores_the_completions():
    state = SimpleNamespace(global_step=3)
    rewards = controls.random_reward(["<answer>1</answer>"] * 400, state)
    assert set(rewards) == {0.0, 1.0}
    assert 150 < sum(rewards) < 250
    assert controls.random_reward([""] * 400, state) == rewards


def test_the_table_has_the_mean_of_the_seeds_and_their_range():
    row = {"run": "main", "family": "qwen", "sampled": 0.7}
    curve = {"1": 0.7, "8": 0.8, "16": 0.9}
    rows = [
        {**row, "seed": 1, "greedy": [1, 1, 1, 1], "pass_at_k": curve},
        {**row, "seed": 0, "greedy": [0, 1, 1, 1], "pass_at_k": curve},
    ]
    line = controls.table(rows).splitlines()[-1]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:4] == ["main", "qwen", "0, 1", "87.5% (75.0 to 100.0)"]
    assert cells[6] == "90.0%"  # both seeds are equal
    assert cells[7] == ""  # 64 answers were not sampled


def test_fresh_problems_are_in_none_of_the_data():
    fresh = controls.fresh_problems()
    known = [*build("train"), *build("heldout"), *rare_examples(DRAW)]
    known_operands = {(problem.template, problem.operands) for problem in known}
    fresh_operands = {(problem.template, problem.operands) for problem in fresh}
    assert len(fresh_operands) == len(fresh) == 2 * 257
    assert not fresh_operands & known_operands
    assert {problem.template for problem in fresh} == set(RARE_KINDS)


def test_every_run_is_stored_and_measured_on_the_rare_problems():
    rows = json.loads(controls.RESULTS.read_text(encoding="utf-8"))
    stored = {(row["run"], row["seed"]) for row in rows if row["family"] == "qwen"}
    trained = {(name, seed) for name in controls.RUNS[1:] for seed in (0, 1, 2)}
    assert stored >= {("base", 0), *trained}
    for row in rows:
        assert len(row["greedy"]) == 257
        assert str(controls.SAMPLES[row["run"]]) in row["pass_at_k"]


def test_base_and_main_run_are_stored_on_fresh_problems_for_both_families():
    rows = json.loads(controls.RESULTS.read_text(encoding="utf-8"))
    measured = [row for row in rows if row["run"] in ("base", "main")]
    stored = {(row["family"], row["run"], row["seed"]) for row in measured}
    for family in ("qwen", "gemma"):
        runs = {(family, "main", seed) for seed in (0, 1, 2)}
        assert stored >= {(family, "base", 0), *runs}
    for row in measured:
        assert len(row["fresh"]["greedy"]) == 2 * 257
        assert str(controls.FRESH_SAMPLES) in row["fresh"]["pass_at_k"]
