"""The settings of a run: one flat RunConfig with device, model and numbers, and why each."""

import difflib
import math
import os
import re
import sys
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Self

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, readable

DATA = REPO / "data"
FAMILIES = ("qwen", "gemma")
SYSTEM_PROMPT = "Work inside <reasoning> tags, then give the number inside <answer> tags."
# Qwen3's template would otherwise open a <think> block before ours. Others ignore the switch.
CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}
CHOICES = {
    "dtype": ("float32", "float16", "bfloat16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "vllm": ("off", "colocate", "server"),
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
FOLLOW = ("device", "family", "why")  # of RunConfig's fields: from the machine and the model

# Settings that fit each machine, and the models of the families there; profiles.toml says why.
_PROFILES = Path(__file__).with_name("profiles.toml").read_text(encoding="utf-8")
PROFILES: dict[str, dict[str, Any]] = tomllib.loads(_PROFILES)
PROFILES["smoke"] |= {"qwen": str(DATA / "tiny-qwen3"), "gemma": str(DATA / "tiny-gemma3")}


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
    rewards: str = "correctness:2,strict_format:0.5,incremental_format:0.5"  # name:weight,...
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

        device, gib, why["device"] = find_device()
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


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known name, or all of them."""
    near = difflib.get_close_matches(str(name), known := sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"


def find_device() -> tuple[str, float, str]:
    """(device, its memory in GiB, why): the first CUDA GPU that torch sees, else the CPU (0)."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return "cuda", properties.total_memory / 2**30, f"torch sees {properties.name}"
    return "cpu", 0.0, "torch sees no CUDA GPU"


def find_model(name: str | Path, profile: str | None = None) -> str:
    """The folder or hub id for a family, a folder or a hub id, offline; else WorkbookError."""
    if (model := str(name)) in FAMILIES:
        if profile is None:
            return RunConfig.from_env(model=model).model
        model = PROFILES[profile][model]
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())  # an adapter names its base by this path
    if (folder / "adapter_config.json").is_file():
        raise WorkbookError(f"{model} is an adapter: give it as --adapter, and its base as MODEL")
    if folder.exists():
        raise WorkbookError(f"{model} has no config.json: name a folder with a saved model")
    if folder.is_relative_to(DATA):
        raise WorkbookError(f"{model} comes with a clone of the course: elsewhere name a --model")
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", model):
        kinds = f"a family ({', '.join(FAMILIES)}), a folder, or a hub id such as A/B"
        raise WorkbookError(f"unknown model {model!r}: give {kinds} (--model)")
    return model


def _family(model: str) -> str:
    config, name = Path(model) / "config.json", Path(model).name
    words = config.read_text(encoding="utf-8") if config.is_file() else name
    return next((family for family in FAMILIES if family in words.lower()), name)


def _fitting_profile(device: str, gib: float) -> tuple[str, str]:
    if device == "cpu":
        return "smoke", "no GPU: a tiny model for two CPU cores"
    return "t4" if gib < 20 else "24gb" if gib < 60 else "80gb", f"the GPU has {gib:.0f} GiB"


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
