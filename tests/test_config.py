from dataclasses import replace
from pathlib import Path

import pytest

from grpo_workbook import config
from grpo_workbook.config import PROFILES, RunConfig
from grpo_workbook.errors import WorkbookError

# What TRL or Unsloth fills in differently on a CPU and on a GPU (facts of TRL 1.15 and Unsloth 2026.10).
DIFFERS = (
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "weight_decay",
    "warmup_steps",
    "optim",
    "bf16",
    "fp16",
    "loss_type",
    "epsilon",
    "epsilon_high",
    "mask_truncated_completions",
    "scale_rewards",
    "beta",
    "num_generations",
    "max_completion_length",
    "temperature",
    "gradient_checkpointing",
    "use_vllm",
    "importance_sampling_level",
    "num_iterations",
    "report_to",
    "logging_steps",
    "seed",
    "steps_per_generation",
    "vllm_importance_sampling_correction",
)


def test_every_value_that_differs_is_written_down():
    written = set(config.grpo_arguments(RunConfig.from_env()))
    assert set(DIFFERS) <= written


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 24, "num_generations": 4},
        {"steps": 1},
        {"batch_size": 64, "per_device_batch": 16},
    ],
)
def test_trl_takes_the_config_and_keeps_our_values(tmp_path, changes):
    run = RunConfig.from_env(output=tmp_path, seed=11, **changes)
    made = run.to_grpo_config()
    s = run
    assert made.per_device_train_batch_size * made.gradient_accumulation_steps == s.batch_size
    assert made.generation_batch_size == s.batch_size
    assert (made.num_generations, made.max_steps, made.seed) == (s.num_generations, s.steps, 11)
    assert (made.learning_rate, made.temperature, made.beta) == (
        s.learning_rate,
        s.temperature,
        s.beta,
    )
    assert made.bf16 is False
    assert made.warmup_steps <= s.steps


def test_reward_weights_reach_trl(tmp_path):
    run = RunConfig.from_env(output=tmp_path)
    assert run.to_grpo_config().reward_weights is None
    assert run.to_grpo_config((2.0, 0.5)).reward_weights == [2.0, 0.5]


def test_no_group_of_arguments_hides_anothers():
    s = PROFILES["smoke"]
    groups = (
        config.batch_arguments,
        config.sampling_arguments,
        config.algorithm_arguments,
        config.optimizer_arguments,
    )
    names = [name for group in groups for name in group(s)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_share_one_batch(processes):
    arguments = config.batch_arguments(replace(PROFILES["80gb"], batch_size=96), processes)
    share = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
    assert share * processes == 96
    assert arguments["per_device_train_batch_size"] <= PROFILES["80gb"].per_device_batch


def test_a_batch_that_cannot_be_shared_is_refused_with_one_that_can():
    with pytest.raises(
        WorkbookError, match="64 completions cannot be divided among 3 processes: .* such as 24"
    ):
        config.batch_arguments(PROFILES["smoke"], 3)


@pytest.mark.parametrize("vllm", ["off", "colocate", "server"])
@pytest.mark.parametrize("profile", PROFILES)
def test_trl_takes_every_profile_with_and_without_vllm(tmp_path, profile, vllm):
    settings = replace(PROFILES[profile], vllm=vllm, vllm_server="10.0.0.7:8123", dtype="float32")
    made = config.grpo_config(RunConfig("cpu", profile, "m", "qwen", 0, Path(tmp_path), settings))
    assert made.use_vllm is (vllm != "off")
    assert made.vllm_importance_sampling_correction is (vllm != "off")
    if vllm != "off":
        assert made.vllm_mode == vllm
    if vllm == "colocate":
        assert 0 < made.vllm_gpu_memory_utilization < 1
        assert (
            made.vllm_max_model_length
            == settings.max_prompt_length + settings.max_completion_length
        )
    if vllm == "server":
        assert (made.vllm_server_host, made.vllm_server_port) == ("10.0.0.7", 8123)


def test_overrides_win_and_what_trl_refuses_is_named(tmp_path):
    run = RunConfig.from_env(output=tmp_path)
    made = run.to_grpo_config(overrides={"max_grad_norm": 0.25, "generation_batch_size": 128})
    assert (made.max_grad_norm, made.generation_batch_size) == (0.25, 128)
    assert made.steps_per_generation == 2
    with pytest.raises(
        WorkbookError, match=r"TRL does not take generation_batch_size=65: .*divisible"
    ):
        run.to_grpo_config(overrides={"generation_batch_size": 65})
