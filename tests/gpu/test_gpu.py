"""What benchmarks/gpu.py measures, as tests on a CUDA GPU: pytest tests/gpu, or make test-gpu.

The suite hides every GPU from itself (tests/conftest.py); these processes see them again.
"""

import json
import subprocess
import sys
from functools import cache

import pytest
from conftest import REPO, VISIBLE_GPUS, environment

pytestmark = [pytest.mark.gpu, pytest.mark.extra]


def with_gpus() -> dict[str, str]:
    """The environment of a process that sees what the caller of pytest sees."""
    env = environment()
    del env["CUDA_VISIBLE_DEVICES"]
    return env if VISIBLE_GPUS is None else env | {"CUDA_VISIBLE_DEVICES": VISIBLE_GPUS}


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A job's name -> the rows that were written until it ended; each job is run once."""
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    if subprocess.run([sys.executable, "-c", code], env=with_gpus()).returncode:
        pytest.skip("torch sees no CUDA GPU")
    out = tmp_path_factory.mktemp("gpu")

    @cache
    def run(job: str) -> dict[str, dict]:
        command = [sys.executable, "benchmarks/gpu.py", "--jobs", job, "--out", str(out)]
        result = subprocess.run(command, cwd=REPO, env=with_gpus(), capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + (out / f"{job}.txt").read_text()
        lines = (out / "gpu.jsonl").read_text().splitlines()
        return {row["row"]: row for row in map(json.loads, lines)}

    return run


def test_the_kernels_compute_what_pytorch_does(results):
    row = results("qwen")["kernels"]
    assert "Unsloth" in row["trainer"]
    assert row["NF4 by Unsloth"] < 0.01


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_the_tiny_models_learn_and_merge_as_on_the_cpu(results, family):
    row = results(family)[f"main run, {family}"]
    assert row["greedy"]["after"] >= 0.75  # of the rare kinds, as tests/test_cli_run.py asks
    assert row["sampled"]["after"] >= 0.65
    assert row["layers_in_4bit"] == row["layers"]
    assert "healthy" in row["diagnosis"]
    assert results(family)[f"merge, {family}"]["same_greedy_tokens"] >= 0.98


@pytest.mark.parametrize("side", ["unsloth", "plain"])
def test_both_sides_train_at_the_same_shape(results, side):
    job = f"0.6B-{side}"
    row = results(job)[job]
    assert row["layers_in_4bit"] == 28 * 7
    assert min(row["gradient_norms"]) > 0
    assert row["peak_gib"]["learning"] > 0
