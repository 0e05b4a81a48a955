"""From a Run to TRL's GRPOConfig, with every value that TRL or Unsloth would choose differently on a CPU and a GPU.

The arguments come in four groups, each small enough to read: how much, how completions are drawn, the algorithm, the
optimizer. What depends on the machine is in `grpo_config` itself.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from grpo_workbook.data import CHAT_TEMPLATE_KWARGS
from grpo_workbook.errors import WorkbookError
from grpo_workbook.run import Run, Settings

if TYPE_CHECKING:
    from trl import GRPOConfig


def batch_arguments(s: Settings, processes: int = 1) -> dict:
    """How much: one optimizer step sees batch_size completions, in groups of num_generations, over all processes.

    Each process has its part of them at a time: per_device_batch, or the next smaller number that goes into its share.
    """
    if s.batch_size % processes:
        raise WorkbookError(
            f"a step of {s.batch_size} completions cannot be divided among {processes} processes: choose a batch_size "
            f"that {processes} and num_generations ({s.num_generations}) both divide, such as "
            f"{math.lcm(processes, s.num_generations)} or a multiple of it"
        )
    share = s.batch_size // processes
    at_once = max(n for n in range(1, s.per_device_batch + 1) if share % n == 0)
    accumulation = share // at_once
    return {
        "max_steps": s.steps,
        "num_generations": s.num_generations,
        "per_device_train_batch_size": at_once,
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
        **vllm_arguments(s),
    }


def vllm_arguments(s: Settings) -> dict:
    """Who draws them: Transformers, or vLLM within the training process (colocate) or on a server (trl vllm-serve).

    vLLM's probabilities differ a little from those of the trained model: the correction weighs that out.
    """
    if s.vllm == "off":
        return {"use_vllm": False, "vllm_importance_sampling_correction": False}
    arguments = {"use_vllm": True, "vllm_mode": s.vllm, "vllm_importance_sampling_correction": True}
    if s.vllm == "server":
        host, port = s.vllm_server.rsplit(":", 1)
        return arguments | {"vllm_server_host": host, "vllm_server_port": int(port)}
    return arguments | {
        "vllm_gpu_memory_utilization": s.vllm_gpu_memory,
        "vllm_max_model_length": s.max_prompt_tokens + s.max_completion_tokens,
        "vllm_tensor_parallel_size": 1,
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


def grpo_arguments(
    run: Run, reward_weights: Sequence[float] | None = None, processes: int = 1
) -> dict:
    """Every argument of the run's GRPOConfig, by name. Raises WorkbookError as `batch_arguments` does."""
    s = run.settings
    return {
        "output_dir": str(run.output / "checkpoints"),
        "seed": run.seed,
        "data_seed": run.seed,
        **batch_arguments(s, processes),
        **sampling_arguments(s),
        **algorithm_arguments(s),
        **optimizer_arguments(s),
        "reward_weights": None if reward_weights is None else list(reward_weights),
        # the machine
        "bf16": s.dtype == "bfloat16",
        "fp16": s.dtype == "float16",
        "use_cpu": run.device == "cpu",
        "gradient_checkpointing": s.gradient_checkpointing,
        "dataloader_pin_memory": run.device != "cpu",
        "ddp_find_unused_parameters": False,  # every adapter has a gradient: looking for those without costs time
        # what is kept
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_steps": max(1, min(25, s.steps)),
        "save_total_limit": 2,  # the one before, until the newest is whole
        "report_to": "none",
        "disable_tqdm": True,  # our own bar shows the reward
        "log_completions": False,
    }


def grpo_config(
    run: Run,
    reward_weights: Sequence[float] | None = None,
    overrides: dict | None = None,
    processes: int = 1,
) -> "GRPOConfig":
    """The run's whole GRPOConfig.

    `reward_weights`: one per reward function, in their order; None counts each once. `overrides`: fields of GRPOConfig
    that win over the run's (see grpo_fields.py). `processes`: how many share a step's completions. Raises
    WorkbookError for what TRL does not take.
    """
    from trl import GRPOConfig

    arguments = grpo_arguments(run, reward_weights, processes) | (overrides or {})
    if arguments.get("generation_batch_size") is not None:
        arguments.pop("steps_per_generation")  # TRL takes one of the two
    try:
        return GRPOConfig(**arguments)
    except (ValueError, TypeError) as error:
        if not overrides:
            raise
        raise WorkbookError(f"TRL does not take {named(overrides)}: {error}") from error


def named(overrides: dict) -> str:
    """The fields and their values, as an error names them."""
    return ", ".join(f"{name}={value!r}" for name, value in overrides.items())
