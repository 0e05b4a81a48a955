"""For modules that do not use `config.choose_profile` yet; it goes away when the last one does."""

import math
import os
import sys
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from grpo_workbook import compat, config
from grpo_workbook.config import (
    CHAT_TEMPLATE_KWARGS,
    FAMILIES,
    REWARDS,
    SYSTEM_PROMPT,
    _family,
    _fitting_profile,
    find_model,
    nearest,
)
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, readable

CHOICES = {
    "dtype": ("float32", "float16", "bfloat16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "vllm": ("off", "colocate", "server"),
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
FOLLOW = ("device", "family", "why")  # of RunConfig's fields: from the machine and the model
PROFILES: dict[str, dict[str, Any]] = {}
for _name, _new in config.PROFILES.items():
    _grpo = _new["grpo"]
    _per_device = _grpo["per_device_train_batch_size"]
    PROFILES[_name] = {
        "qwen": _new["qwen"], "gemma": _new["gemma"], "dtype": _new["dtype"],
        "max_steps": _grpo["max_steps"],
        "batch_size": _per_device * _grpo["gradient_accumulation_steps"],
        "num_generations": _grpo["num_generations"], "per_device_batch": _per_device,
        "learning_rate": _grpo["learning_rate"], "lora_rank": _new["lora_rank"],
        "max_prompt_length": _new["max_prompt_length"],
        "max_completion_length": _grpo["max_completion_length"], "heldout": _new["heldout"],
        "eval_batch": _new["eval_batch_size"],
        "gradient_checkpointing": _grpo["gradient_checkpointing"],
        "vllm": "colocate" if _grpo["use_vllm"] else "off",
    }  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """One run: its device, model, training settings and output folder, and the reason for each."""

    device: str  # "cpu" or "cuda"
    profile: str  # smoke, t4, 24gb or 80gb; by default the one that fits the device
    model: str  # a family (qwen, gemma), a folder, or an id on the Hugging Face hub
    family: str  # "qwen", "gemma", or the name of another model
    seed: int  # for the adapters, the order of the data and all sampling; default 0
    output: Path  # the folder for all results; default outputs/run
    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    max_steps: int  # optimizer steps
    batch_size: int  # completions in one optimizer step, over all processes
    num_generations: int  # completions per problem: the group
    per_device_batch: int  # completions at once in training, at most
    learning_rate: float  # its peak; LoRA: 1e-5, then 5e-5; full fine-tuning: 1e-6
    lora_rank: int  # r of LoRA (Hu et al., arXiv 2106.09685)
    max_prompt_length: int  # in tokens; longer prompts are dropped, as TRL does not truncate them
    max_completion_length: int  # in tokens; longer completions are cut off
    heldout: int  # number of held-out problems
    eval_batch: int  # prompts answered at once in an evaluation
    gradient_checkpointing: bool  # less memory for more time
    load_in_4bit: bool = True  # the base in NF4, as in QLoRA
    temperature: float = 1.0  # of the sampling during training
    beta: float = 0.0  # weight of the KL penalty; 0 needs no reference model
    shuffle_dataset: bool = True  # false keeps the order of the rows, for a curriculum
    loss_type: str = "dapo"  # TRL's: grpo, dr_grpo, dapo, ...
    scale_rewards: str = "group"  # divide by the standard deviation of the group, batch or none
    rewards: str = REWARDS  # name:weight,...
    system_prompt: str = SYSTEM_PROMPT  # the instruction before each question
    vllm: str = "off"  # sample with vLLM: off, colocate (beside the training) or server
    vllm_gpu_memory: float = 0.3  # the fraction of the GPU that a colocated vLLM takes
    vllm_server: str = "127.0.0.1:8000"  # where `vllm serve` listens
    why: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.type))
        group = max(2, self.num_generations)
        if self.num_generations < 2 or self.batch_size % group:
            said = f"{self.batch_size} completions cannot be cut into groups of"
            fix = f"choose a multiple such as {math.ceil(self.batch_size / group) * group}"
            raise WorkbookError(f"{said} {self.num_generations}, at least 2: {fix}")
        if self.loss_type == "dr_grpo" and self.scale_rewards == "group":
            raise WorkbookError("scale_rewards is 'group', which dr_grpo loses on a GPU: say none")
        if self.vllm == "server" and self.load_in_4bit:
            raise WorkbookError("a vLLM server cannot read 4-bit weights: say load_in_4bit: false")
        # TRL takes per_device_batch x whole accumulation steps.
        fits = _largest_divisor(self.batch_size, self.per_device_batch)
        object.__setattr__(self, "per_device_batch", fits)

    @classmethod
    def from_env(cls, *, profile=None, model=None, seed=None, output=None, **values) -> Self:
        """Choose everything: an argument wins over GRPO_WORKBOOK_PROFILE, _MODEL, _SEED and
        _OUTPUT in the environment, these over what fits the machine (or `default_profile`).
        Other `values` replace the profile's (`max_steps=30`), unless None. Raises WorkbookError.
        """
        import torch

        why: dict[str, str] = {}

        def choose(name: str, given, default, reason: str) -> Any:
            variable = f"GRPO_WORKBOOK_{name.upper()}"
            set_there = os.environ.get(variable) or None, f"{variable} is set"
            options = [(given, "given as an argument"), set_there, (default, reason)]
            value, why[name] = next(option for option in options if option[0] is not None)
            return value

        device, gib, why["device"] = config.find_device()
        usual = values.pop("default_profile", None), "the chapter's: minutes on any machine"
        usual = usual if usual[0] else _fitting_profile(device, gib)
        profile = choose("profile", profile, *usual)
        if profile not in PROFILES:
            raise WorkbookError(f"unknown profile {profile!r}: {nearest(profile, PROFILES)}")
        if profile == "smoke":
            # Two threads would spin while they wait, and slow down everything beside them.
            if os.environ.setdefault("OMP_NUM_THREADS", "1") == "1":
                torch.set_num_threads(1)
        elif device == "cpu":
            raise WorkbookError(f"profile {profile!r} needs a CUDA GPU, torch sees none: use smoke")
        known = [f.name for f in fields(cls) if f.name not in FOLLOW]
        if unknown := sorted(values.keys() - known):
            raise WorkbookError(f"unknown setting {unknown[0]!r}: {nearest(unknown[0], known)}")
        given = {name: value for name, value in values.items() if value is not None}
        chosen = {name: v for name, v in PROFILES[profile].items() if name not in FAMILIES} | given
        model = find_model(choose("model", model, "qwen", "the default family"), profile)
        _fit_the_gpu(chosen, given, device, model, why)
        seed = choose("seed", seed, 0, "the default")
        seed = int(seed) if str(seed).isdecimal() else seed  # a text in the environment
        output = str(choose("output", output, "outputs/run", "the default"))
        if not output.strip():
            raise WorkbookError(f"the output {output!r} is no folder's name: give one (--output)")
        return cls(device, profile, model, _family(model), seed, Path(output), why=why, **chosen)

    def replace(self, **values) -> "RunConfig":
        """The same run with other values; WorkbookError for an impossible value."""
        return replace(self, **values)

    @property
    def prompts_per_step(self) -> int:
        """Different problems in one optimizer step."""
        return self.batch_size // self.num_generations

    @property
    def model_name(self) -> str:
        """The model's name in reports: a hub id, or a path relative to the project's folder."""
        return self.model.removeprefix(f"{REPO}{os.sep}")

    @property
    def loader(self) -> dict:
        """As of `config.Profile`."""
        import torch

        arguments = {
            "model_name": self.model, "dtype": getattr(torch, self.dtype),
            "max_seq_length": self.max_prompt_length + self.max_completion_length,
            "load_in_4bit": self.load_in_4bit, "use_exact_model_name": True,
            "use_gradient_checkpointing": self.gradient_checkpointing and "unsloth",
        }  # fmt: skip
        if self.vllm == "colocate":
            arguments |= {"fast_inference": True, "max_lora_rank": self.lora_rank}
            arguments |= {"gpu_memory_utilization": self.vllm_gpu_memory}
        return arguments

    @property
    def lora(self) -> dict:
        """As of `config.Profile`."""
        return {
            "r": self.lora_rank, "lora_alpha": 2 * self.lora_rank, "lora_dropout": 0.0,
            "target_modules": list(config.TARGET_MODULES), "random_state": self.seed,
            "use_gradient_checkpointing": self.gradient_checkpointing and "unsloth",
        }  # fmt: skip

    @property
    def grpo(self) -> dict:
        """As of `config.Profile`."""
        return {"gradient_checkpointing": self.gradient_checkpointing}

    def __str__(self) -> str:
        told = vars(self) | {"model": f"{readable(self.model)} ({self.family})"}
        told["output"] = readable(self.output)
        lines = [f"{name:<8} {told[name]!s:<28} {why}" for name, why in self.why.items()]
        base = "4-bit NF4" if self.load_in_4bit else "16-bit"
        samples = "" if self.vllm == "off" else f", vLLM samples ({self.vllm})"
        return "\n".join(lines) + (
            f"\ntraining {self.max_steps} steps of {self.prompts_per_step} problems x "
            f"{self.num_generations} completions{samples},\n         {base} base, LoRA rank "
            f"{self.lora_rank}, learning rate {self.learning_rate:g}"
        )

    def to_grpo_config(self, weights=None, overrides: dict | None = None, processes: int = 1):
        """TRL's GRPOConfig for this run and `processes`, the same anywhere; `overrides` win."""
        from trl import GRPOConfig

        # On a GPU Unsloth's trainer would compute float32 in bfloat16: this says not to.
        os.environ["UNSLOTH_MIXED_PRECISION"] = "bfloat16" if self.dtype == "float32" else "float32"
        part, left = divmod(self.batch_size, processes)
        if left:
            fix = f"processes: choose a multiple of {math.lcm(processes, self.num_generations)}"
            raise WorkbookError(f"{self.batch_size} cannot be divided among {processes} {fix}")
        at_once, vllm = _largest_divisor(part, self.per_device_batch), self.vllm != "off"
        arguments: dict[str, Any] = dict(
            output_dir=str(self.output / "checkpoints"), seed=self.seed, data_seed=self.seed,
            max_steps=self.max_steps, num_generations=self.num_generations,
            per_device_train_batch_size=at_once, gradient_accumulation_steps=part // at_once,
            # Sample for one optimizer step at a time, and use each completion once.
            steps_per_generation=part // at_once, num_iterations=1,
            shuffle_dataset=self.shuffle_dataset,
            # Sampling: from the policy's full distribution.
            max_completion_length=self.max_completion_length, temperature=self.temperature,
            top_p=1.0, top_k=0, repetition_penalty=1.0, chat_template_kwargs=CHAT_TEMPLATE_KWARGS,
            # vLLM's probabilities differ a little from the trained model's: TRL corrects for it.
            use_vllm=vllm, vllm_importance_sampling_correction=vllm,
            vllm_mode=self.vllm if vllm else "colocate",
            vllm_server_base_url=f"http://{self.vllm_server}",
            vllm_gpu_memory_utilization=self.vllm_gpu_memory, vllm_tensor_parallel_size=1,
            vllm_max_model_length=self.max_prompt_length + self.max_completion_length,
            loss_type=self.loss_type, scale_rewards=self.scale_rewards, beta=self.beta,
            importance_sampling_level="token", epsilon=0.2, mask_truncated_completions=False,
            epsilon_high=5.0 if self.loss_type == "cispo" else 0.2,  # at ratio 1 no other one clips
            reward_weights=weights and list(weights), learning_rate=self.learning_rate,
            lr_scheduler_type="linear", warmup_steps=min(5, self.max_steps), weight_decay=0.0,
            optim="adamw_torch_fused", adam_beta1=0.9, adam_beta2=0.99, max_grad_norm=1.0,
            bf16=self.dtype == "bfloat16", fp16=self.dtype == "float16",
            use_cpu=self.device == "cpu", dataloader_pin_memory=self.device != "cpu",
            gradient_checkpointing=self.gradient_checkpointing,
            ddp_find_unused_parameters=False,  # there are none: every adapter has a gradient
            # Two checkpoints: the older one stays until the newest is complete.
            save_strategy="steps", save_steps=min(25, self.max_steps), save_total_limit=2,
            logging_steps=1, report_to="none", log_completions=False, disable_tqdm=True,
        ) | (overrides or {})  # fmt: skip
        if arguments.get("generation_batch_size") is not None:
            arguments.pop("steps_per_generation")  # TRL takes only one of the two
        try:
            return GRPOConfig(**arguments)
        except (ValueError, TypeError) as error:
            raise WorkbookError(f"TRL refuses {overrides or 'this run'}: {error}") from error


def why_not_plain(run: RunConfig) -> str | None:
    """Why plain Transformers + PEFT + TRL cannot train here, or None when it can."""
    if run.vllm == "colocate" and run.load_in_4bit:
        said = "TRL would merge into the 4-bit base and out again at every step, which rounds it"
        return f"{said}: say vllm: off, or load_in_4bit: false"
    return compat.why_not_plain(run.device)


def make_trainer(
    run: RunConfig, model, tokenizer, dataset, rewards, weights=None, overrides=None, **more
):
    """TRL's own GRPOTrainer with this run's config and a progress bar that shows the reward;
    `weights`: a number for each reward; `overrides`: of GRPOConfig; `more`: tools, callbacks, ...
    """
    import importlib

    from transformers import PrinterCallback
    from trl import GRPOTrainer

    RewardBar = importlib.import_module("grpo_workbook.training").RewardBar

    args = run.to_grpo_config(weights, overrides, int(os.environ.get("WORLD_SIZE") or 1))
    if args.use_adaptive_entropy and run.device == "cuda" and "unsloth" in sys.modules:
        said = "on a GPU Unsloth's trainer ignores use_adaptive_entropy"
        raise WorkbookError(f"{said}: say entropy_coef for a fixed bonus, or --backend plain")
    adapters = [(p, p.data) for name, p in model.named_parameters() if "lora_" in name]
    try:
        trainer: Any = GRPOTrainer(model, list(rewards), args, dataset, None, tokenizer, **more)
    except (ValueError, TypeError, ImportError, RuntimeError) as error:
        raise WorkbookError(f"TRL refuses {overrides or 'this run'}: {error}") from error
    # TRL casts the adapters of a quantized model to bfloat16, where a weight of 0.01 cannot take a
    # step of 1e-5. On a GPU Unsloth removes that cast; here it is undone, with the digits it took.
    for parameter, exact in adapters:
        parameter.data = exact.float()
    trainer.remove_callback(PrinterCallback)
    if trainer.is_world_process_zero():
        trainer.add_callback(RewardBar())
    return trainer


def _fit_the_gpu(chosen: dict, given: dict, device: str, model: str, why: dict) -> None:
    """Replace the profile's choices that this GPU or the installed packages cannot serve."""
    import torch

    # Without bfloat16 Unsloth loads Gemma in float16, and computes in float32 all the same.
    half = chosen["dtype"] == "bfloat16" or ("dtype" not in given and _family(model) == "gemma")
    if half and device == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        chosen["dtype"], why["dtype"] = "float16", "the GPU has no bfloat16"
    if chosen.get("vllm") in ("colocate", "server") and (device == "cpu" or not find_spec("vllm")):
        missing = "vLLM needs a CUDA GPU, and to be installed"
        if "vllm" in given:
            raise WorkbookError(f"vllm is {given['vllm']!r} and {missing} (.[vllm]): say vllm: off")
        chosen["vllm"], why["vllm"] = "off", missing
    # As Unsloth's notebooks: vLLM sleeps during the update. Unsloth reads it when it is imported.
    if chosen.get("vllm") == "colocate" and "unsloth" not in sys.modules:
        for name in ("STANDBY", "STANDBY_UTIL_OVERRIDE"):  # and vllm_gpu_memory counts all the same
            os.environ.setdefault(f"UNSLOTH_VLLM_{name}", "1")


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value in its field's type and within its bounds; NumPy numbers become Python's."""
    if kind not in KINDS:
        return value
    wanted = {int: Integral, float: Real}.get(kind, kind)
    if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
        raise WorkbookError(f"{name} is {value!r:.60}: it must be {KINDS[kind]}")
    least = "at least" if name in ("seed", "beta") else "more than"
    if kind in (int, float) and not (value > 0 or (value == 0 and least == "at least")):
        raise WorkbookError(f"{name} is {value}: it must be {least} 0")
    if value not in CHOICES.get(name, [value]):
        raise WorkbookError(f"{name} is {value!r}: choose one of {', '.join(CHOICES[name])}")
    return kind(value)


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, min(number, most) + 1) if number % n == 0)
