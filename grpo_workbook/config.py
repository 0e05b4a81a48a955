"""What this run is: one flat RunConfig with the device, the model, every number, and why each.

The same notebook runs on two CPU cores and on an 80 GB GPU; only its RunConfig differs.
"""

import difflib
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, readable

if TYPE_CHECKING:
    from trl import GRPOConfig

DATA = REPO / "data"
FAMILIES = ("qwen", "gemma")
SYSTEM_PROMPT = "Work inside <reasoning> tags, then give the number inside <answer> tags."
# Qwen3's template would otherwise open a <think> block before ours. Others ignore the switch.
CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}
SCALES = ("group", "batch", "none")
CHOICES = {
    "dtype": ("float32", "float16", "bfloat16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": SCALES,
    "vllm": ("off", "colocate", "server"),
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
MOST = {"seed": 2**32 - 1, "lora_rank": 10**4, "vllm_gpu_memory": 1}  # else a billion

# What fits which machine. Only smoke has been tried on the machine that it names.
_GPU = {"num_generations": 8, "lora_rank": 32, "heldout": 400, "gradient_checkpointing": True}
_QWEN, _GEMMA = "unsloth/Qwen3-", "unsloth/gemma-3-"
PROFILES: dict[str, dict[str, Any]] = {
    # float32 on the CPU: bfloat16 is emulated, and slower, on most CPUs.
    "smoke": dict(qwen=str(DATA / "tiny-qwen3"), gemma=str(DATA / "tiny-gemma3"), dtype="float32",
                  max_steps=120, batch_size=64, num_generations=8, per_device_batch=64,
                  learning_rate=1e-3, lora_rank=16, max_prompt_length=160, heldout=480,
                  max_completion_length=64, eval_batch=128, gradient_checkpointing=False),
    # A T4 (16 GB) has no bfloat16.
    "t4": dict(_GPU, qwen=f"{_QWEN}1.7B", gemma=f"{_GEMMA}1b-it", dtype="float16", max_steps=250,
               batch_size=32, per_device_batch=8, learning_rate=1e-5, max_prompt_length=384,
               max_completion_length=512, eval_batch=16),
    "24gb": dict(_GPU, qwen=f"{_QWEN}4B", gemma=f"{_GEMMA}4b-it", dtype="bfloat16", max_steps=300,
                 batch_size=64, per_device_batch=8, learning_rate=1e-5, max_prompt_length=512,
                 max_completion_length=768, eval_batch=32, vllm="colocate"),
    "80gb": dict(_GPU, qwen=f"{_QWEN}8B", gemma=f"{_GEMMA}12b-it", dtype="bfloat16", max_steps=500,
                 batch_size=128, per_device_batch=32, learning_rate=5e-6, max_prompt_length=512,
                 max_completion_length=1024, eval_batch=64, vllm="colocate"),
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """One run: what it runs on, what it trains, how much, where it writes, and why."""

    device: str  # "cpu" or "cuda"
    profile: str  # smoke, t4, 24gb or 80gb; by default what fits the device
    model: str  # a family (qwen, gemma), a folder, or an id on the Hugging Face hub
    family: str  # "qwen", "gemma", or another's name as it stands
    seed: int  # of the adapters, the data's order and all sampling; default 0
    output: Path  # the folder that it writes to; default outputs/run
    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    max_steps: int  # optimizer steps
    batch_size: int  # completions in one optimizer step, over all processes
    num_generations: int  # completions per problem: the group
    per_device_batch: int  # completions at once in training: at most so many
    learning_rate: float  # at its highest; it falls linearly after the warm-up
    lora_rank: int  # r of LoRA (Hu et al., arXiv 2106.09685)
    max_prompt_length: int  # in tokens; longer prompts are dropped, for TRL truncates none
    max_completion_length: int  # in tokens; longer completions are cut off
    heldout: int  # held-out problems that are measured
    eval_batch: int  # prompts that are answered at once while measuring
    gradient_checkpointing: bool  # less memory for more time
    load_in_4bit: bool = True  # the base as NF4, as QLoRA has it
    temperature: float = 1.0  # of sampling while training
    beta: float = 0.0  # weight of the KL penalty; 0 needs no reference model
    shuffle_dataset: bool = True  # false: the rows in their order, as a curriculum wants them
    loss_type: str = "dapo"  # TRL's: grpo, dr_grpo, dapo, ...
    scale_rewards: str = "group"  # by whose standard deviation: group, batch or none
    rewards: str = "correctness:2,strict_format:0.5,incremental_format:0.5"  # name:weight,...
    system_prompt: str = SYSTEM_PROMPT  # what the model is told before each question
    vllm: str = "off"  # or colocate (beside the training) or server: who samples
    vllm_gpu_memory: float = 0.3  # the fraction of the GPU that a colocated vLLM takes
    vllm_server: str = "127.0.0.1:8000"  # where `trl vllm-serve` listens
    why: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        for f in fields(self):
            object.__setattr__(self, f.name, _checked(f.name, getattr(self, f.name), f.type))
        if self.num_generations < 2 or self.batch_size % self.num_generations:
            size = max(2, self.num_generations)
            raise WorkbookError(
                f"a batch of {self.batch_size} completions cannot be cut into groups of "
                f"{self.num_generations}, at least 2: choose a multiple such as "
                f"{-(-self.batch_size // size) * size}"
            )
        if not re.fullmatch(r".+:[0-9]{1,5}", self.vllm_server):
            raise WorkbookError(f"vllm_server is {self.vllm_server!r}: give HOST:PORT")
        # TRL takes per_device_batch x whole accumulation steps.
        fits = _largest_divisor(self.batch_size, self.per_device_batch)
        object.__setattr__(self, "per_device_batch", fits)

    @classmethod
    def from_env(
        cls,
        *,
        profile: str | None = None,
        model: str | None = None,
        seed: Any = None,
        output: str | Path | None = None,
        **values,
    ) -> "RunConfig":
        """Choose everything: an argument wins over the environment, the environment over the rest.

        Reads GRPO_WORKBOOK_PROFILE, _MODEL, _SEED and _OUTPUT. Further keyword arguments replace
        values of the profile (`max_steps=30`); None leaves them. In the smoke profile a process
        gets one thread, unless OMP_NUM_THREADS is set. Raises WorkbookError with the fix.
        """
        why: dict[str, str] = {}

        def choose(name: str, given, default, reason: str):
            variable = f"GRPO_WORKBOOK_{name.upper()}"
            if given is not None:
                why[name] = "given as an argument"
                return given
            why[name] = f"{variable} is set" if os.environ.get(variable) else reason
            return os.environ.get(variable) or default

        if (profile or os.environ.get("GRPO_WORKBOOK_PROFILE")) == "smoke":
            one_thread()  # before torch is there
        device, gib, why["device"] = find_device()
        profile = choose("profile", profile, *_fitting_profile(device, gib))
        if profile not in PROFILES:
            raise WorkbookError(f"unknown profile {profile!r}: {nearest(profile, PROFILES)}")
        if profile == "smoke":
            one_thread()
        elif device == "cpu":
            raise WorkbookError(
                f"profile {profile!r} needs a CUDA GPU and torch sees none: use the profile smoke, "
                "or see `python -m grpo_workbook doctor`"
            )
        given = {name: value for name, value in values.items() if value is not None}
        if unknown := sorted(given.keys() - set(SETTINGS)):
            raise WorkbookError(f"unknown setting {unknown[0]!r}: {nearest(unknown[0], SETTINGS)}")
        chosen = {name: v for name, v in PROFILES[profile].items() if name not in FAMILIES} | given
        _fit_the_gpu(chosen, given, device, why)
        model = str(choose("model", model, "qwen", "the default family"))
        model, family = _find_family(model, PROFILES[profile])
        seed = choose("seed", seed, 0, "the default")
        seed = int(seed) if isinstance(seed, str) and seed.isdecimal() else seed
        output = str(choose("output", output, "outputs/run", "the default"))
        if not output.strip() or "\0" in output:
            raise WorkbookError(f"the output {output!r} is no folder's name: name one (--output)")
        return cls(device, profile, model, family, seed, Path(output), why=why, **chosen)

    def replace(self, **values) -> "RunConfig":
        """The same run with other values; WorkbookError for a value that cannot be."""
        return replace(self, **values)

    @property
    def prompts_per_step(self) -> int:
        """Different problems in one optimizer step."""
        return self.batch_size // self.num_generations

    @property
    def model_name(self) -> str:
        """The model as reports name it: a hub id, or a path seen from the project's folder."""
        folder = Path(self.model)
        return str(folder.relative_to(REPO)) if folder.is_relative_to(REPO) else self.model

    def __str__(self) -> str:
        told = {name: getattr(self, name) for name in ("device", "profile", "model", "seed")}
        told |= {
            "model": f"{readable(self.model)} ({self.family})",
            "output": readable(self.output),
        }
        told |= {"vllm": self.vllm} if "vllm" in self.why or self.vllm != "off" else {}
        lines = [f"{k:<8} {v!s:<28} {self.why.get(k, '')}".rstrip() for k, v in told.items()]
        base = "4-bit NF4" if self.load_in_4bit else "16-bit"
        return "\n".join(lines) + (
            f"\ntraining {self.max_steps} steps of {self.prompts_per_step} problems x "
            f"{self.num_generations} completions,\n         {base} base, LoRA rank "
            f"{self.lora_rank}, learning rate {self.learning_rate:g}"
        )

    def to_grpo_config(
        self,
        weights: Sequence[float] | None = None,
        overrides: dict | None = None,
        processes: int = 1,
    ) -> "GRPOConfig":
        """TRL's config of this run; no value is left to a default that differs by machine.

        `weights`: one per reward function, None counts each once; `overrides`: fields of GRPOConfig
        that win; `processes`: how many share a step. WorkbookError where they cannot divide it.
        """
        from trl import GRPOConfig

        part, left = divmod(self.batch_size, processes)
        if left:
            said = f"a step of {self.batch_size} completions cannot be divided among {processes}"
            fit = math.lcm(processes, self.num_generations)
            raise WorkbookError(f"{said} processes: choose a multiple of {fit}")
        at_once, vllm = _largest_divisor(part, self.per_device_batch), self.vllm != "off"
        host, _, port = self.vllm_server.rpartition(":")
        arguments: dict[str, Any] = dict(
            output_dir=str(self.output / "checkpoints"), seed=self.seed, data_seed=self.seed,
            # How much: a step sees batch_size completions, in groups of num_generations.
            max_steps=self.max_steps, num_generations=self.num_generations,
            per_device_train_batch_size=at_once, gradient_accumulation_steps=part // at_once,
            # Sample for one optimizer step at a time, and use each completion once.
            steps_per_generation=part // at_once, num_iterations=1,
            shuffle_dataset=self.shuffle_dataset,
            # Sampling: from the policy itself, with nothing cut off its distribution.
            max_completion_length=self.max_completion_length, temperature=self.temperature,
            top_p=1.0, top_k=0, repetition_penalty=1.0, chat_template_kwargs=CHAT_TEMPLATE_KWARGS,
            # vLLM's probabilities differ a little from the trained model's, which is corrected.
            use_vllm=vllm, vllm_importance_sampling_correction=vllm, vllm_server_host=host,
            vllm_mode=self.vllm if vllm else "colocate", vllm_server_port=int(port),
            vllm_gpu_memory_utilization=self.vllm_gpu_memory, vllm_tensor_parallel_size=1,
            vllm_max_model_length=self.max_prompt_length + self.max_completion_length,
            # The algorithm.
            loss_type=self.loss_type, scale_rewards=self.scale_rewards, beta=self.beta,
            importance_sampling_level="token", epsilon=0.2, epsilon_high=0.2,
            mask_truncated_completions=False,
            reward_weights=None if weights is None else list(weights),
            learning_rate=self.learning_rate, lr_scheduler_type="linear",
            warmup_steps=min(5, self.max_steps), optim="adamw_torch_fused", weight_decay=0.0,
            adam_beta1=0.9, adam_beta2=0.99, max_grad_norm=1.0,
            bf16=self.dtype == "bfloat16", fp16=self.dtype == "float16",
            use_cpu=self.device == "cpu", dataloader_pin_memory=self.device != "cpu",
            gradient_checkpointing=self.gradient_checkpointing,
            ddp_find_unused_parameters=False,  # every adapter has a gradient: do not look
            # What is kept: two checkpoints, the one before until the newest is whole.
            save_strategy="steps", save_steps=min(25, self.max_steps), save_total_limit=2,
            logging_steps=1, report_to="none", log_completions=False, disable_tqdm=True,
        ) | (overrides or {})  # fmt: skip
        if arguments.get("generation_batch_size") is not None:
            arguments.pop("steps_per_generation")  # TRL takes one of the two
        try:
            return GRPOConfig(**arguments)
        except (ValueError, TypeError) as error:
            if not overrides:
                raise
            raise WorkbookError(f"TRL does not take {overrides}: {error}") from error


_CHOSEN = ("device", "profile", "model", "family", "seed", "output", "why")
SETTINGS = tuple(f.name for f in fields(RunConfig) if f.name not in _CHOSEN)


def nearest(name: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the one that was probably meant, or all."""
    near = difflib.get_close_matches(str(name), known := sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"


def one_thread() -> None:
    """One thread for this process, unless OMP_NUM_THREADS is set.

    A tiny model gains little from two, and as soon as anything else runs, threads that spin while
    they wait for each other make a run four times slower.
    """
    if os.environ.setdefault("OMP_NUM_THREADS", "1") == "1" and "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def find_device() -> tuple[str, float, str]:
    """(device, its memory in GiB, why): the first CUDA GPU that torch sees, else the CPU (0)."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return "cuda", properties.total_memory / 2**30, f"torch sees {properties.name}"
    return "cpu", 0.0, "torch sees no CUDA GPU"


def _fitting_profile(device: str, gib: float) -> tuple[str, str]:
    if device == "cpu":
        return "smoke", "no GPU: a tiny model for two CPU cores"
    return "t4" if gib < 20 else "24gb" if gib < 60 else "80gb", f"the GPU has {gib:.0f} GiB"


def _fit_the_gpu(chosen: dict, given: dict, device: str, why: dict[str, str]) -> None:
    """Replace what the profile has chosen and this GPU or its packages lack."""
    import torch

    half = device == "cuda" and chosen["dtype"] == "bfloat16"
    if half and not torch.cuda.is_bf16_supported(including_emulation=False):
        chosen["dtype"], why["dtype"] = "float16", "the GPU has no bfloat16"
    missing = None if find_spec("vllm") else "vLLM is not installed"
    missing = "vLLM needs a CUDA GPU" if device == "cpu" else missing
    if missing and chosen.get("vllm", "off") in ("colocate", "server"):
        if "vllm" in given:
            raise WorkbookError(f"vllm is {given['vllm']!r} and {missing}: say vllm: off")
        chosen["vllm"], why["vllm"] = "off", missing


def _find_family(model: str, profile: dict[str, Any]) -> tuple[str, str]:
    """(folder or hub id, family) of a family's name, a folder, or a hub id."""
    name = str(profile.get(model, model))
    folder = Path(name).expanduser()
    if folder.is_dir():
        try:
            kind = str(json.loads((folder / "config.json").read_text())["model_type"])
        except (OSError, ValueError, LookupError, TypeError):
            raise WorkbookError(f"{folder} has no config.json with a model_type") from None
        name = str(folder.resolve())  # the adapter will name its base by this path
    elif folder.is_relative_to(DATA):
        raise WorkbookError(
            f"the tiny model {folder} is missing: it comes with a clone of the course (or "
            "`make models` there); elsewhere name a --model"
        )
    elif re.fullmatch(r"\w[\w.-]*/[\w.-]+", name):
        kind = name.split("/")[1]
    else:
        raise WorkbookError(
            f"unknown model {model!r}: give a family ({', '.join(FAMILIES)}), a folder that "
            "exists, or a hub id such as unsloth/Qwen3-1.7B (--model or GRPO_WORKBOOK_MODEL)"
        )
    return name, next((known for known in FAMILIES if known in kind.lower()), kind)


def _checked(name: str, value: Any, kind: Any) -> Any:
    """The value as its field's type, in its bounds; a NumPy number becomes Python's."""
    if kind not in KINDS:
        return value
    wanted = {int: Integral, float: Real}.get(kind, kind)
    if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
        raise WorkbookError(f"{name} is {value!r:.60}: it must be {KINDS[kind]}")
    if kind in (int, float):
        zero, most = name in ("seed", "beta"), MOST.get(name, 10**9)  # the two may be 0
        if not (value >= 0 if zero else value > 0) or value > most:
            least = "at least 0" if zero else "more than 0"
            raise WorkbookError(f"{name} is {value!s:.30}: it must be {least}, at most {most}")
    if name in CHOICES and value not in CHOICES[name]:
        raise WorkbookError(f"{name} is {value!r}: choose one of {', '.join(CHOICES[name])}")
    return kind(value)


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, min(number, most) + 1) if number % n == 0)
