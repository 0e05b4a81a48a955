"""benchmarks/gpu.py without a GPU: its logic with tiny shapes, its refusals, its table."""

import json
import subprocess
import sys

import pytest
from conftest import REPO, assert_names, environment, raises_naming

sys.path.insert(0, str(REPO / "benchmarks"))
import gpu
import gpu_models

# Weights that the published models have, counted by their makers.
PUBLISHED = {
    "0.6B": 596_049_920,
    "1.7B": 1_720_574_976,
    "4B": 4_022_468_096,
    "8B": 8_190_735_360,
    "gemma-1B": 999_885_952,
    "gemma-4B": 3_880_099_328,
}


def run(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, str(REPO / "benchmarks" / "gpu.py"), *map(str, arguments)]
    return subprocess.run(command, env=environment(), capture_output=True, text=True)


@pytest.mark.parametrize("size", gpu.SIZES)
def test_the_shapes_are_the_published_ones(size):
    assert gpu_models.count_parameters(size) == PUBLISHED[size]


@pytest.mark.parametrize("size", gpu_models.TINY)
def test_a_written_model_loads_and_its_tokenizer_fills_the_vocabulary(size, tmp_path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    written = gpu_models.write_model(size, tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(tokenizer) == model.config.vocab_size == written["vocabulary"]
    assert model.dtype == torch.bfloat16
    ids = tokenizer("7 and 8", return_tensors="pt").input_ids
    assert torch.isfinite(model(ids).logits).all()


@pytest.mark.slow
@pytest.mark.parametrize(("size", "vocabulary"), [("4B", 151_936), ("gemma-1B", 262_144)])
def test_the_tokenizer_decodes_every_token_of_a_real_vocabulary(size, vocabulary, tmp_path):
    from transformers import AutoTokenizer

    assert gpu_models.make_config(size).vocab_size == vocabulary
    gpu_models.write_tokenizer(size, vocabulary, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer) == vocabulary
    assert tokenizer.decode([vocabulary - 1]) == f"~{vocabulary - 1}~"
    assert tokenizer.eos_token_id == 1


def test_prompts_have_exactly_the_tokens_asked_for(tiny):
    import gpu_speed

    for _, tokenizer in tiny.values():
        for prompt in gpu_speed.prompts_of(150, tokenizer, 20):
            ids = tokenizer.apply_chat_template(
                prompt, add_generation_prompt=True, enable_thinking=False
            )["input_ids"]
            assert len(ids) == 150
    with raises_naming(ValueError, "--prompt-tokens 20"):
        gpu_speed.prompts_of(20, tokenizer, 1)


@pytest.mark.extra
def test_every_part_runs_on_the_cpu(tmp_path):
    result = run("--tiny", "--device", "cpu", "--families", "qwen", "--out", tmp_path)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["failures"] == []
    assert found["machine"]["gpu"] is None
    assert set(gpu.PARTS) <= set(found)
    assert list(found["kernels"][0]["nf4_loss"]) == ["bitsandbytes"]
    assert found["main_run"][0]["steps"] == 4
    assert found["main_run"][0]["merge"]["same_greedy_tokens"] > 0.98
    assert found["vision"][0]["moved"] > 4 * found["vision"][0]["lost"]
    assert [row["model"] for row in found["precisions"]][1] == "qwen float32"
    assert {row["used"]["adapters"] for row in found["precisions"]} == {"torch.float32"}
    assert found["memory"][0]["computed"]["learning"] > 0
    assert found["chapters"][0]["passed"]
    speed = found["speed"][0]
    assert len(speed["unsloth"]["all_steps_s"]) == 3
    assert speed["unsloth"]["problems"] == []
    assert speed["unsloth"]["linear4bit_layers"] == 4 * 7
    assert "Triton" in speed["plain"]["refused"]
    assert speed["shapes"]["completion_tokens"] == 8
    for row in found["learning"]:
        assert row["steps"] == 4
        assert not row["bounds_judged"]
        assert {"reward", "grad_norm", "rewards/correctness_reward/mean"} <= set(row["metrics"])
    for row in found["merge"]:
        assert (
            "4-bit" in row["live"]["refused"]
        )  # Unsloth's CPU backend; on a GPU it is proved like the other
        assert 0 < row["reloaded"]["max_abs_logit_difference"] < 0.5
        assert row["reloaded"]["same_greedy_tokens"] > 0.98
    resume = found["resume"][0]
    assert resume["resumed"] | {"job_seconds": 0} == {
        "from": "checkpoint-2",
        "steps": 4,
        "job_seconds": 0,
    }
    assert resume["comparison"]["steps"] == 4
    table = (tmp_path / "gpu.md").read_text()
    assert table in result.stdout
    for word in (
        "| tiny | unsloth |",
        "refused: TRL",
        "| qwen |",
        "| qwen, reloaded |",
        "checkpoint-2",
    ):
        assert word in table


def test_a_dry_run_names_every_part_in_the_order_of_running():
    said = run("--dry-run").stdout
    assert [line.split()[0] for line in said.splitlines()[:-1]] == list(gpu.PARTS)
    assert "kernels" in run("--help").stdout
    assert run("--dry-run", "--part", "speed,merge").stdout.startswith("speed")


@pytest.mark.slow
def test_a_kernel_that_fails_ends_it_and_another_part_does_not(tmp_path):
    """Nothing after a broken import can pass; all else stands alone."""
    (tmp_path / "unsloth.py").write_text("raise ImportError('no such kernel')\n")
    begin = ("--tiny", "--device", "cpu", "--families", "qwen", "--out", tmp_path / "out")
    for parts, reached in (("kernels,vision", ["kernels"]), ("vision,merge", ["vision", "merge"])):
        command = [sys.executable, str(REPO / "benchmarks" / "gpu.py"), "--part", parts]
        env = environment(PYTHONPATH=str(tmp_path))
        result = subprocess.run([*command, *map(str, begin)], env=env, capture_output=True)
        assert result.returncode == 1
        found = json.loads((tmp_path / "out" / "gpu.json").read_text())
        assert [part for part in parts.split(",") if part in found] == reached
        assert all("no such kernel" in str(found[part]) for part in reached)
    assert "no such kernel" in (tmp_path / "out" / "gpu.md").read_text()


def test_the_time_is_kept_to_and_what_was_not_reached_is_said(tmp_path):
    result = run(
        "--tiny", "--device", "cpu", "--part", "learning", "--out", tmp_path, "--budget", "1.5"
    )
    assert result.returncode in (1, 2)  # 2 where even naming the machine took longer
    assert_names(result.stdout, "--budget")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--part", "sped"], ["'sped'", *gpu.PARTS]),
        (["--sizes", "3B"], ["'3B'", *gpu.SIZES]),
        (["--families", "llama"], ["'llama'", "qwen", "gemma"]),
        (["--batch", "12"], ["--batch 12", "--group 8"]),
        (["--per-device", "4"], ["--per-device 4", "--group"]),
        (["--steps", "0"], ["--steps", 0]),
        (["--device", "cpu"], ["--device cpu", "--tiny"]),
    ],
)
def test_bad_input_is_named(arguments, named):
    result = run(*arguments)
    assert result.returncode == 2
    assert_names(result.stderr, *named)


@pytest.mark.slow
def test_without_a_gpu_it_says_so(tmp_path):
    result = run("--part", "speed", "--out", tmp_path)
    assert result.returncode == 2
    assert_names(result.stdout, "CUDA")
    assert list(tmp_path.iterdir()) == []
