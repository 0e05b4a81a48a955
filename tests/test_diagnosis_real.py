"""The diagnosis on logs of other people's runs on GPUs, where their folder exists."""

import sys

import pytest
from conftest import REPO

from grpo_workbook.diagnosis import diagnose

sys.path.insert(0, str(REPO / "benchmarks"))
from diagnosis import alarms, live_alarms, real_runs

FOLDER = REPO.parent / "shared" / "data" / "real_logs"
pytestmark = pytest.mark.skipif(
    not FOLDER.is_dir(), reason="the logs of other people's runs are not part of the repository"
)


@pytest.fixture(scope="module")
def reals():
    return real_runs(FOLDER)


def test_the_cause_is_named_in_nine_of_ten_sick_runs(reals):
    sick = [r for r in reals if r.sick]
    missed = {r.name: first for r in sick if not r.right({first := diagnose(r.run)[0].name})}
    assert len(sick) >= 15
    assert len(missed) <= 0.1 * len(sick), missed


def test_no_healthy_run_is_accused_at_its_end(reals):
    healthy = [r for r in reals if not r.sick]
    assert len(healthy) >= 10
    assert {r.name: found for r in healthy if (found := alarms(diagnose(r.run)))} == {}
    assert {diagnose(r.run)[0].name for r in healthy} == {"healthy"}


@pytest.mark.slow
def test_at_most_one_healthy_run_in_seven_is_ever_accused_while_it_goes_on(reals):
    healthy = [r for r in reals if not r.sick]
    accused = {r.name: said for r in healthy if (said := live_alarms(r))}
    assert len(accused) <= len(healthy) / 7, accused


def test_every_finding_says_its_steps_its_evidence_and_what_to_do(reals):
    for real in reals:
        for found in diagnose(real.run):
            assert real.run.table.index.min() <= found.step <= found.until
            assert found.until == real.run.table.index.max()
            assert found.evidence
            assert len(found.do) > 20
