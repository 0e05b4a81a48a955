"""`python -m grpo_workbook new`: a project that passes its own tests and trains."""

import json
import subprocess
import sys

import pytest
import yaml
from conftest import REPO, assert_names, cli, environment, report_of

from grpo_workbook.cli import main
from grpo_workbook.cli.new import PROMPTS
from grpo_workbook.config import PROFILES


@pytest.fixture(scope="module", params=PROMPTS)
def project(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("new") / request.param
    assert main(["new", str(folder), "--task", request.param]) == 0
    return folder


@pytest.mark.slow
def test_the_project_passes_its_own_tests(project):
    call = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", "."]
    env = environment(PYTHONPATH=str(REPO))
    result = subprocess.run(call, cwd=project, env=env, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout


def test_its_data_would_hurt_no_training(project, monkeypatch):
    said = subprocess.run(
        ["make", "-n", "--no-print-directory", "data"], cwd=project, capture_output=True, text=True
    )
    python, m, package, *arguments = said.stdout.split()
    assert (python, m, package) == ("python", "-m", "grpo_workbook")
    monkeypatch.chdir(project)
    assert main(arguments) == 0


def test_its_rate_of_learning_fits_the_model(project):
    """The tiny model's is a hundred times too high for a real one, so it never goes without it."""
    cpu, t4 = (yaml.safe_load((project / f"{name}.yaml").read_text()) for name in ("cpu", "t4"))
    assert (cpu["profile"], cpu["model"]) == ("smoke", "tiny_model")
    assert "learning_rate" not in cpu
    assert float(t4["learning_rate"]) <= PROFILES[t4["profile"]]["grpo"]["learning_rate"]
    assert cpu["system_prompt"] == t4["system_prompt"] == PROMPTS[project.name]


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "mine.old").mkdir()
    (tmp_path / "mine.old" / "thesis.txt").write_text("years")
    assert main(["new", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine.old" / "thesis.txt").read_text() == "years"
    assert main(["new", str(tmp_path / "mine")]) == 2
    tmp_path = tmp_path / "mine.old"
    (tmp_path / "thesis.txt").unlink()
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["new", str(tmp_path)]) == 2
    assert_names(capsys.readouterr().err, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert main(["new", str(tmp_path / "notes.txt")]) == 2
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_without_a_task_it_is_classification(tmp_path):
    assert main(["new", str(tmp_path / "mine")]) == 0
    assert PROMPTS["classification"] in (tmp_path / "mine" / "cpu.yaml").read_text()
    assert not (tmp_path / "mine" / "shop.db").exists()


@pytest.mark.parametrize("script", ["build_messages.py", "build_orders.py"])
def test_the_data_is_what_the_script_makes(script):
    result = subprocess.run([sys.executable, REPO / "data" / script, "--check"])
    assert result.returncode == 0


def test_no_held_out_question_is_a_training_question():
    for task in ("my_project", "extraction", "sql"):
        lines = []
        for pool in ("train", "heldout"):
            lines += (REPO / "templates" / task / f"{pool}.jsonl").read_text().splitlines()
        questions = [json.loads(line)["question"] for line in lines]
        assert len(set(questions)) == len(questions) == 560


@pytest.mark.trains
def test_the_project_trains_where_it_is_and_changed_rewards_are_another_run(project):
    call = ("run", "--config", "cpu.yaml", "--max-steps", "2", "--heldout", "64")
    result = cli(*call, cwd=project, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    report = report_of(project / "outputs" / "cpu")
    before = report["heldout"]["sampled"]["strict"]["before"]
    assert 0.1 < before < 0.7  # judged by the project's own reward
    assert report["merge"]["heldout"]["strict"]["after"] > 0
    rewards = project / "rewards.py"
    rewards.write_text(rewards.read_text() + "\n# changed\n")
    again = cli(*call, "--resume", cwd=project, PYTHONPATH=str(REPO))
    assert again.returncode == 2
    assert_names(again.stderr, "reward_files")


@pytest.mark.extra
def test_the_project_learns_what_its_readme_says(project):
    call = ("run", "--config", "cpu.yaml", "--output_dir", "outputs/whole")
    result = cli(*call, cwd=project, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    strict = report_of(project / "outputs" / "whole")["heldout"]["sampled"]["strict"]
    before, after = strict["before"], strict["after"]
    assert after > before + 0.3
    assert after > 0.6  # sql 72 %, the others above 95 %
