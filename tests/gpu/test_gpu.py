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


@cache
def has_cuda() -> bool:
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return (
        subprocess.run(
            [sys.executable, "-c", code], env=with_gpus(), capture_output=True
        ).returncode
        == 0
    )


@pytest.fixture(scope="session")
def part(tmp_path_factory):
    """name -> that part's rows in gpu.json; each is run once."""
    if not has_cuda():
        pytest.skip("torch sees no CUDA GPU")
    out = tmp_path_factory.mktemp("gpu")

    @cache
    def run(name: str) -> list[dict]:
        shape = ["--sizes", "0.6B", "--steps", "3", "--completion-tokens", "64"]
        command = [sys.executable, "benchmarks/gpu.py", "--part", name, "--out", str(out), *shape]
        result = subprocess.run(command, cwd=REPO, env=with_gpus(), capture_output=True, text=True)
        assert result.returncode in (0, 1), result.stdout[-2000:] + result.stderr[-4000:]
        return json.loads((out / "gpu.json").read_text())[name]

    return run


def test_the_kernels_compute_what_pytorch_does(part):
    row = part("kernels")[0]
    assert "error" not in row, row
    assert row["problems"] == []
    assert {"float32", "float16"} <= set(row["norm_error"])


def test_the_main_run_learns_and_merges(part):
    row = part("main_run")[0]
    assert "error" not in row, row
    assert row["after"]["strict_sampled"] >= 0.65  # of the rare kinds
    assert row["merge"]["same_greedy_tokens"] >= 0.98


def test_an_adapter_of_a_model_that_sees_is_found_again(part):
    row = part("vision")[0]
    assert "error" not in row, row
    assert row["problems"] == []


def test_float16_and_float32_are_trained_as_asked(part):
    used = {row["model"]: row["used"] for row in part("precisions")}
    assert used["qwen float16"]["fp16"]
    assert not used["qwen float32"]["bf16"]
    assert {one["adapters"] for one in used.values()} == {"torch.float32"}


def test_both_sides_train_at_the_same_shape(part):
    row = part("speed")[0]
    assert row["weights"]["parameters"] == 596_049_920
    for side in ("unsloth", "plain"):
        assert "error" not in row[side], row[side]
        assert row[side]["problems"] == []
        assert row[side]["linear4bit_layers"] == 28 * 7
        assert row[side]["peak"]["reserved"] >= row[side]["peak"]["allocated"] > 0


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_the_tiny_models_learn_as_on_the_cpu(part, family):
    row = next(r for r in part("learning") if r["family"] == family)
    assert "error" not in row, row
    assert row["bounds_judged"]
    assert (
        row["problems"] == []
    )  # the accuracy bounds, the metrics' names, every step logged, every layer in 4-bit
    assert "healthy" in row["diagnosis"]


@pytest.mark.parametrize("family", ["qwen", "gemma"])
@pytest.mark.parametrize("way", ["live", "reloaded"])
def test_an_adapter_trained_in_4bit_is_merged_and_proved(part, family, way):
    row = next(r for r in part("merge") if r["family"] == family)
    assert row["training"]["linear4bit_layers"] == 4 * 7
    assert "refused" not in row[way]
    assert "error" not in row[way], row[way]
    assert row[way]["problems"] == []


def test_a_stopped_run_goes_on(part):
    row = part("resume")[0]
    assert row["resumed"]["from"] == "checkpoint-10"
    assert row["resumed"]["steps"] == 20
    assert row["comparison"]["problems"] == []
