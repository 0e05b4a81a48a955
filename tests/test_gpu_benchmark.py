"""benchmarks/gpu.py without a GPU: the whole program with tiny shapes, and its refusals."""

import json
import subprocess
import sys

import pytest
from conftest import REPO, assert_names, environment

sys.path.insert(0, str(REPO / "benchmarks"))
import gpu


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, str(REPO / "benchmarks" / "gpu.py"), *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True)


def rows(folder) -> dict[str, dict]:
    """The last result of each row of gpu.jsonl."""
    results = {}
    for line in (folder / "gpu.jsonl").read_text().splitlines():
        result = json.loads(line)
        results[result.pop("row")] = result
    return results


def test_the_shapes_have_the_published_numbers_of_weights():
    import torch
    from transformers import AutoModelForCausalLM

    published = {"0.6B": 596_049_920, "4B": 4_022_468_096}
    for size, parameters in published.items():
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(gpu.config_of(size))
        assert model.num_parameters() == parameters


@pytest.mark.trains
def test_a_tiny_model_is_trained_measured_and_merged(tmp_path):
    result = run("--tiny", "--device", "cpu", "--jobs", "qwen", "--budget", 1200, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + (tmp_path / "qwen.txt").read_text()
    results = rows(tmp_path)
    assert results["machine"]["gpu"] is None
    assert results["kernels"]["NF4 by bitsandbytes"] < 0.01
    main_run = results["main run, qwen"]
    assert main_run["steps"] == 4
    assert main_run["layers_in_4bit"] == main_run["layers"]
    assert main_run["adapters"] == "torch.float32"
    assert main_run["greedy"]["gain"] == main_run["greedy"]["after"] - main_run["greedy"]["before"]
    log = json.loads((tmp_path / "log-qwen.json").read_text())
    assert [entry["step"] for entry in log] == [1, 2, 3, 4]
    assert results["merge, qwen"]["same_greedy_tokens"] > 0.98


@pytest.mark.slow
def test_a_model_that_sees_is_trained_and_shown_blank_charts(tmp_path):
    arguments = ("--tiny", "--device", "cpu", "--jobs", "pictures", "--budget", 1200)
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 0, result.stdout + (tmp_path / "pictures.txt").read_text()
    pictures = rows(tmp_path)["pictures"]
    assert pictures["steps"] == len(pictures["rewards"]) == 2
    assert pictures["learning"] > 0
    assert 0 <= pictures["shown_blank"] <= 1
    assert pictures["greedy"]["after"] > 0  # of eight charts the base reads about half


@pytest.mark.slow
def test_steps_of_one_shape_are_timed_and_the_other_side_is_refused_on_a_cpu(tmp_path):
    jobs = ("tiny-unsloth", "tiny-plain")
    result = run("--tiny", "--device", "cpu", "--jobs", *jobs, "--budget", 1200, "--out", tmp_path)
    assert result.returncode == 0, result.stdout
    results = rows(tmp_path)
    assert len(results["tiny-unsloth"]["all_steps"]) == 3
    assert results["tiny-unsloth"]["layers_in_4bit"] == 4 * 7
    assert min(results["tiny-unsloth"]["gradient_norms"]) > 0
    assert results["tiny-unsloth"]["planned_gib"]["learning"] > 0
    assert "Triton" in results["tiny-plain"]["refused"]


def test_a_job_that_fails_is_a_row_and_the_next_one_begins(tmp_path):
    (tmp_path / "unsloth.py").write_text("raise ImportError('no such kernel')\n")
    command = [sys.executable, str(REPO / "benchmarks" / "gpu.py"), "--tiny", "--device", "cpu"]
    command += ["--jobs", "qwen", "gemma", "--out", str(tmp_path / "out")]
    result = subprocess.run(command, env=environment(PYTHONPATH=str(tmp_path)), capture_output=True)
    assert result.returncode == 1
    for name in ("qwen", "gemma"):
        assert "error" in rows(tmp_path / "out")[name]
        assert "no such kernel" in (tmp_path / "out" / f"{name}.txt").read_text()


def test_what_the_budget_does_not_reach_is_named(tmp_path):
    arguments = ("--tiny", "--device", "cpu", "--jobs", "qwen", "gemma", "--out", tmp_path)
    assert run(*arguments, "--budget", 2).returncode == 1
    results = rows(tmp_path)
    assert "stopped" in results["qwen"]["error"]
    assert "not begun" in results["gemma"]["error"]


def test_a_second_run_keeps_the_rows_of_the_first_and_prints_its_own(tmp_path):
    earlier = json.dumps({"row": "gemma", "error": "of another day"}) + "\n"
    (tmp_path / "gpu.jsonl").write_text(earlier)
    arguments = ("--tiny", "--device", "cpu", "--jobs", "tiny-unsloth", "--budget", 0)
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 1
    assert_names(result.stdout, '"machine"', '"tiny-unsloth"', "not begun")
    assert "of another day" not in result.stdout
    assert set(rows(tmp_path)) == {"gemma", "machine", "tiny-unsloth"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--tiny", "--device", "cpu", "--jobs", "qwem"], ["'qwem'", "qwen", "gemma"]),
        (["--device", "cpu"], ["--device cpu", "--tiny"]),
        ([], ["CUDA", "--tiny"]),
    ],
)
def test_bad_input_is_named(arguments, named, tmp_path):
    result = run(*arguments, "--out", tmp_path)
    assert result.returncode == 2
    assert_names(result.stderr, *named)
    assert list(tmp_path.iterdir()) == []
