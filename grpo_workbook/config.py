"""From a Run to TRL's GRPOConfig, with every value that TRL or Unsloth would choose differently on a CPU and a GPU.

The arguments come in four groups, each small enough to read: how much, how completions are drawn, the algorithm, the
optimizer. What depends on the machine is in `grpo_config` itself.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_workbook.data import CHAT_TEMPLATE_KWARGS
from grpo_workbook.run import Run, Settings

if TYPE_CHECKING:
    from trl import GRPOConfig


def batch_arguments(s: Settings) -> dict:
    """How much: one optimizer step sees batch_size completions, in groups of num_generations."""
    accumulation = s.batch_size // s.per_device_batch
    return {
        "max_steps": s.steps,
        "num_generations": s.num_generations,
        "per_device_train_batch_size": s.per_device_batch,
        "gradient_accumulation_steps": accumulation,
        "steps_per_generation": accumulation,  # draw for one optimizer step at a time
        "num_iterations": 1,  # and use each completion once
        "shuffle_dataset": s.shuffle,
    }


def sampling_arguments(s: Settings) -> dict:
    """How completions are drawn: from the policy itself, nothing cut off its distribution."""
    return {
        "max_completion_length": s.max_completion_tokens,
        "temperature": s.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "repetition_penalty": 1.0,
        "chat_template_kwargs": CHAT_TEMPLATE_KWARGS,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
    }


def algorithm_arguments(s: Settings) -> dict:
    """Which GRPO: loss, advantages, clipping, KL penalty."""
    return {
        "loss_type": s.loss_type,
        "scale_rewards": s.scale_rewards,
        "importance_sampling_level": "token",
        "epsilon": 0.2,
        "epsilon_high": 0.2,
        "beta": s.beta,
        "mask_truncated_completions": False,
    }


def optimizer_arguments(s: Settings) -> dict:
    """How the adapters move."""
    return {
        "learning_rate": s.learning_rate,
        "lr_scheduler_type": "linear",
        "warmup_steps": min(5, s.steps),
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.99,
        "max_grad_norm": 1.0,
    }


def grpo_config(run: Run, reward_weights: Sequence[float] | None = None) -> "GRPOConfig":
    """The run's whole GRPOConfig. `reward_weights`: one per reward function, in their order; None counts each once."""
    from trl import GRPOConfig

    s = run.settings
    return GRPOConfig(
        output_dir=str(run.output / "checkpoints"),
        seed=run.seed,
        data_seed=run.seed,
        **batch_arguments(s),
        **sampling_arguments(s),
        **algorithm_arguments(s),
        **optimizer_arguments(s),
        reward_weights=None if reward_weights is None else list(reward_weights),
        # the machine
        bf16=s.dtype == "bfloat16",
        fp16=s.dtype == "float16",
        use_cpu=run.device == "cpu",
        gradient_checkpointing=s.gradient_checkpointing,
        dataloader_pin_memory=run.device != "cpu",
        # what is kept
        logging_steps=1,
        save_strategy="steps",
        save_steps=max(1, min(25, s.steps)),
        save_total_limit=2,  # the one before, until the newest is whole
        report_to="none",
        disable_tqdm=True,  # our own bar shows the reward
        log_completions=False,
    )
