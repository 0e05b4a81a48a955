import pytest

from grpo_workbook import config
from grpo_workbook.run import Run

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
    written = set(config.grpo_arguments(Run.from_env()))
    assert set(DIFFERS) <= written


@pytest.mark.parametrize(
    "changes", [{}, {"batch_size": 24, "num_generations": 4}, {"steps": 1}, {"batch_size": 64, "per_device_batch": 16}]
)
def test_trl_takes_the_config_and_keeps_our_values(tmp_path, changes):
    run = Run.from_env(output=tmp_path, seed=11, **changes)
    made = config.grpo_config(run)
    s = run.settings
    assert made.per_device_train_batch_size * made.gradient_accumulation_steps == s.batch_size
    assert made.generation_batch_size == s.batch_size
    assert (made.num_generations, made.max_steps, made.seed) == (s.num_generations, s.steps, 11)
    assert (made.learning_rate, made.temperature, made.beta) == (s.learning_rate, s.temperature, s.beta)
    assert made.bf16 is False
    assert made.warmup_steps <= s.steps


def test_reward_weights_reach_trl(tmp_path):
    run = Run.from_env(output=tmp_path)
    assert config.grpo_config(run).reward_weights is None
    assert config.grpo_config(run, (2.0, 0.5)).reward_weights == [2.0, 0.5]
