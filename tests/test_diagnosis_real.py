"""The diagnosis on logs of other people's runs on GPUs, where their folder exists."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from conftest import REPO

from grpo_workbook.diagnosis import diagnose
from grpo_workbook.diagnosis.runlog import RunLog, read_runs

sys.path.insert(0, str(REPO / "benchmarks"))
from diagnosis import PERTURBED, alarms, live_alarms, real_runs

FOLDER = REPO.parent / "shared" / "data" / "real_logs"
needs_logs = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the logs of other people's runs are not part of the repository"
)
# The six runs of chapter 05, as means over ten steps; and the settings that their log lacks.
GPU_RUNS = REPO / "data" / "gpu_runs.csv"
LIMITS = {"gemma3_1b": 768, "qwen25_3b": 200, "phi4_14b": 200, "llama32_1b_fp8": 1849}


def patient(name):
    """One of the six as a patient: read_runs gives a RunLog for each name in the column `run`."""
    run = read_runs(GPU_RUNS)[name]
    limit = {"max_completion_length": LIMITS[name]} if name in LIMITS else {}
    return {f.name for f in diagnose(replace(run, settings=limit))}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gemma3_1b", {"healthy"}),
        ("llama32_3b", {"healthy"}),
        ("qwen25_3b", {"healthy"}),
        ("phi4_14b", {"truncated"}),
        ("llama32_1b_fp8", {"truncated", "reference_differs"}),
        ("qwen3_0.6b_base", {"reward_falls", "kl_too_high"}),
    ],
)
def test_the_six_gpu_runs_of_the_course_are_patients(name, expected):
    assert patient(name) == expected


@pytest.mark.parametrize("change", PERTURBED.values(), ids=PERTURBED)
def test_a_perturbed_log_is_still_read_and_the_same_for_the_same_seed(change):
    table = read_runs(GPU_RUNS)["llama32_3b"].table.dropna(axis="columns", how="all")
    one, other = (change(table, np.random.default_rng(3)) for _ in range(2))
    if one is not None:  # too few rows for means of 5
        assert one.equals(other)
        assert not one.equals(table)
        assert diagnose(RunLog(one))[0].means


@pytest.fixture(scope="module")
def reals():
    return real_runs(FOLDER)


@needs_logs
def test_the_cause_is_named_in_nine_of_ten_sick_runs(reals):
    sick = [r for r in reals if r.sick]
    missed = {r.name: first for r in sick if not r.right({first := diagnose(r.run)[0].name})}
    assert len(sick) >= 15
    assert len(missed) <= 0.1 * len(sick), missed


@needs_logs
def test_no_healthy_run_is_accused_at_its_end(reals):
    healthy = [r for r in reals if not r.sick]
    assert len(healthy) >= 10
    assert {r.name: found for r in healthy if (found := alarms(diagnose(r.run)))} == {}
    assert {diagnose(r.run)[0].name for r in healthy} == {"healthy"}


@needs_logs
@pytest.mark.slow
def test_at_most_one_healthy_run_in_seven_is_ever_accused_while_it_goes_on(reals):
    healthy = [r for r in reals if not r.sick]
    accused = {r.name: said for r in healthy if (said := live_alarms(r))}
    assert len(accused) <= len(healthy) / 7, accused


@needs_logs
def test_every_finding_says_its_steps_its_evidence_and_what_to_do(reals):
    for real in reals:
        for found in diagnose(real.run):
            assert real.run.table.index.min() <= found.step <= found.until
            assert found.until <= real.run.table.index.max()
            if found.name not in ("memory", "reward_nan", "no_reward"):  # else the last bad row
                assert found.until == real.run.table.index.max()
            assert found.evidence
            assert len(found.do) > 20
