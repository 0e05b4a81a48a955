"""What this run is: one flat RunConfig with the device, the model, every number, and why each was chosen.

The same notebook runs on two CPU cores and on an 80 GB GPU; only its RunConfig differs. `to_grpo_config` names every
value that TRL or Unsloth would otherwise choose, and choose differently on a CPU and on a GPU.
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
# Qwen3's template would otherwise open a <think> block before ours. Templates without the switch ignore it.
CHAT_TEMPLATE_KWARGS = {"enable_thinking": False}
SCALES = ("group", "batch", "none")
CHOICES = {
    "dtype": ("float32", "float16", "bfloat16"),
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": SCALES,
    "vllm": ("off", "colocate", "server"),
}
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
LEAST = dict.fromkeys(
    "max_steps batch_size per_device_batch lora_rank heldout eval_batch".split(), 1
)
LEAST |= {"max_prompt_length": 1, "max_completion_length": 1, "num_generations": 2}
LEAST |= {"seed": 0, "beta": 0.0, "learning_rate": 0.0, "temperature": 0.0, "vllm_gpu_memory": 0.0}
MORE_THAN_LEAST = ("learning_rate", "temperature", "vllm_gpu_memory")
MOST = {"seed": 2**32 - 1, "lora_rank": 10**4, "vllm_gpu_memory": 0.99}  # else a billion

# What fits which machine. Only smoke has been tried on the machine it names.
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
                 batch_size=64, per_device_batch=16, learning_rate=1e-5, max_prompt_length=512,
                 max_completion_length=768, eval_batch=32, vllm="colocate"),
    "80gb": dict(_GPU, qwen=f"{_QWEN}8B", gemma=f"{_GEMMA}12b-it", dtype="bfloat16", max_steps=500,
                 batch_size=128, per_device_batch=32, learning_rate=5e-6, max_prompt_length=512,
                 max_completion_length=1024, eval_batch=64, vllm="colocate"),
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """One run: what it runs on, what it trains, how much, where it writes, and why each was chosen."""

    device: str  # "cpu" or "cuda"
    profile: str
    model: str  # a folder, or an id on the Hugging Face hub
    family: str  # "qwen" or "gemma"
    seed: int
    output: Path
    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    max_steps: int  # optimizer steps
    batch_size: int  # completions in one optimizer step, over all processes
    num_generations: int  # completions per problem: the group
    per_device_batch: int  # completions at once in training: at most this, a divisor of batch_size
    learning_rate: float  # at its highest; it falls linearly after the warm-up
    lora_rank: int  # r of LoRA (Hu et al., arXiv 2106.09685)
    max_prompt_length: int  # in tokens; longer prompts are dropped, for TRL truncates none
    max_completion_length: int  # in tokens; longer completions are cut off
    heldout: int  # held-out problems that are measured
    eval_batch: int  # prompts that are answered at once while measuring
    gradient_checkpointing: bool
    load_in_4bit: bool = True
    temperature: float = 1.0  # of sampling while training
    beta: float = 0.0  # weight of the KL penalty; 0 needs no reference model
    shuffle_dataset: bool = True  # False: the rows in their order, as a curriculum wants them
    loss_type: str = "dapo"
    scale_rewards: str = "group"
    rewards: str = "correctness:2,strict_format:0.5,incremental_format:0.5"  # name:weight,...
    system_prompt: str = SYSTEM_PROMPT  # what the model is told before each question
    vllm: str = "off"  # who samples: Transformers, vLLM beside the training, or a vLLM server
    vllm_gpu_memory: float = 0.3  # vllm="colocate": the fraction of the GPU that vLLM takes
    vllm_server: str = "127.0.0.1:8000"  # vllm="server": where `trl vllm-serve` listens
    why: dict[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self):
        for f in fields(self):
            if f.type in KINDS:
                object.__setattr__(self, f.name, _of_kind(f.name, getattr(self, f.name), f.type))
        if self.batch_size % self.num_generations:
            raise WorkbookError(
                f"a batch of {self.batch_size} completions cannot be cut into groups of "
                f"{self.num_generations}: choose a batch size that {self.num_generations} divides, "
                f"such as {-(-self.batch_size // self.num_generations) * self.num_generations}"
            )
        if not re.fullmatch(r".+:[0-9]{1,5}", self.vllm_server):
            raise WorkbookError(
                f"vllm_server is {self.vllm_server!r}: give HOST:PORT, such as 127.0.0.1:8000"
            )
        # TRL takes per_device_batch x whole accumulation steps.
        fits = _largest_divisor(self.batch_size, self.per_device_batch)
        object.__setattr__(self, "per_device_batch", fits)

    @classmethod
    def from_env(
        cls,
        *,
        profile: str | None = None,
        model: str | None = None,
        seed: int | str | None = None,
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
            one_thread()
        device, gib, why["device"] = find_device()
        profile = choose("profile", profile, *_fitting_profile(device, gib))
        if profile not in PROFILES:
            raise WorkbookError(
                f"unknown profile {profile!r}: {nearest(profile, PROFILES)} "
                "(--profile or GRPO_WORKBOOK_PROFILE)"
            )
        if profile == "smoke":
            one_thread()
        elif device == "cpu":
            raise WorkbookError(
                f"profile {profile!r} needs a CUDA GPU and torch sees none: use the profile smoke, "
                "or see `python -m grpo_workbook doctor`"
            )
        given = {name: value for name, value in values.items() if value is not None}
        for name in given.keys() - set(SETTINGS):
            raise WorkbookError(f"unknown setting {name!r}: {nearest(name, SETTINGS)}")
        chosen = {name: v for name, v in PROFILES[profile].items() if name not in FAMILIES} | given
        _fit_the_gpu(chosen, given, device, why)
        model = str(choose("model", model, "qwen", "the default family"))
        model, family = _find_family(model, PROFILES[profile])
        seed = choose("seed", seed, 0, "the default")
        if isinstance(seed, str) and seed.isdecimal():
            seed = int(seed)
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
        lines = [
            f"{name:<8} {value!s:<28} {self.why.get(name, '')}".rstrip()
            for name, value in (
                ("device", self.device),
                ("profile", self.profile),
                ("model", f"{readable(self.model)} ({self.family})"),
                ("seed", self.seed),
                ("output", readable(self.output)),
                *([("vllm", self.vllm)] if self.vllm != "off" or "vllm" in self.why else []),
            )
        ]
        return "\n".join(lines) + (
            f"\ntraining {self.max_steps} steps of {self.prompts_per_step} problems x "
            f"{self.num_generations} completions,\n         {'4-bit NF4' if self.load_in_4bit else '16-bit'} "
            f"base, LoRA rank {self.lora_rank}, learning rate {self.learning_rate:g}"
        )

    def to_grpo_config(
        self,
        weights: Sequence[float] | None = None,
        overrides: dict | None = None,
        processes: int = 1,
    ) -> "GRPOConfig":
        """TRL's config of this run, with nothing left to a default that a machine decides.

        `weights`: one per reward function, in their order; None counts each once. `overrides`:
        fields of GRPOConfig that win over the run's. `processes`: how many share a step's
        completions. Raises WorkbookError for a batch that cannot be divided among them.
        """
        from trl import GRPOConfig

        part, left = divmod(self.batch_size, processes)
        if left:
            raise WorkbookError(
                f"a step of {self.batch_size} completions cannot be divided among {processes} "
                f"processes: choose a multiple of {math.lcm(processes, self.num_generations)}"
            )
        at_once = _largest_divisor(part, self.per_device_batch)
        arguments = dict(
            output_dir=str(self.output / "checkpoints"), seed=self.seed, data_seed=self.seed,
            # How much: a step sees batch_size completions, in groups of num_generations.
            max_steps=self.max_steps, num_generations=self.num_generations,
            per_device_train_batch_size=at_once, gradient_accumulation_steps=part // at_once,
            steps_per_generation=part // at_once,  # sample for one optimizer step at a time
            num_iterations=1,  # and use each completion once
            shuffle_dataset=self.shuffle_dataset,
            # Sampling: from the policy itself, with nothing cut off its distribution.
            max_completion_length=self.max_completion_length, temperature=self.temperature,
            top_p=1.0, top_k=0, repetition_penalty=1.0, chat_template_kwargs=CHAT_TEMPLATE_KWARGS,
            **_vllm_arguments(self),
            # The algorithm.
            loss_type=self.loss_type, scale_rewards=self.scale_rewards, beta=self.beta,
            importance_sampling_level="token", epsilon=0.2, epsilon_high=0.2,
            mask_truncated_completions=False,
            reward_weights=None if weights is None else list(weights),
            # The optimizer.
            learning_rate=self.learning_rate, lr_scheduler_type="linear",
            warmup_steps=min(5, self.max_steps), optim="adamw_torch_fused", weight_decay=0.0,
            adam_beta1=0.9, adam_beta2=0.99, max_grad_norm=1.0,
            # The machine.
            bf16=self.dtype == "bfloat16", fp16=self.dtype == "float16",
            use_cpu=self.device == "cpu", dataloader_pin_memory=self.device != "cpu",
            gradient_checkpointing=self.gradient_checkpointing,
            ddp_find_unused_parameters=False,  # every adapter has a gradient: do not look
            # What is kept: two checkpoints, the one before until the newest is whole.
            save_strategy="steps", save_steps=min(25, self.max_steps), save_total_limit=2,
            logging_steps=1, report_to="none", log_completions=False,
            disable_tqdm=True,  # our own bar shows the reward
        ) | (overrides or {})  # fmt: skip
        if arguments.get("generation_batch_size") is not None:
            arguments.pop("steps_per_generation")  # TRL takes one of the two
        try:
            return GRPOConfig(**arguments)
        except (ValueError, TypeError) as error:
            if not overrides:
                raise
            raise WorkbookError(f"TRL does not take {overrides}: {error}") from error


_CHOSEN_FIRST = ("device", "profile", "model", "family", "seed", "output", "why")
SETTINGS = tuple(f.name for f in fields(RunConfig) if f.name not in _CHOSEN_FIRST)


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

    if device == "cuda" and chosen["dtype"] == "bfloat16":
        if not torch.cuda.is_bf16_supported(including_emulation=False):
            chosen["dtype"], why["dtype"] = "float16", "the GPU has no bfloat16"
    if chosen.get("vllm", "off") != "off":
        missing = "vLLM needs a CUDA GPU" if device == "cpu" else "vLLM is not installed"
        if device == "cuda" and find_spec("vllm"):
            return
        if "vllm" in given:
            raise WorkbookError(f"vllm is {given['vllm']!r} and {missing}: say vllm: off")
        chosen["vllm"], why["vllm"] = "off", missing


def _vllm_arguments(run: RunConfig) -> dict[str, Any]:
    """Who samples. vLLM's probabilities differ a little from the trained model's: corrected."""
    on = run.vllm != "off"
    arguments: dict[str, Any] = {"use_vllm": on, "vllm_importance_sampling_correction": on}
    if run.vllm == "server":
        host, _, port = run.vllm_server.rpartition(":")
        arguments |= {
            "vllm_mode": "server",
            "vllm_server_host": host,
            "vllm_server_port": int(port),
        }
    elif run.vllm == "colocate":
        arguments |= {
            "vllm_mode": "colocate",
            "vllm_gpu_memory_utilization": run.vllm_gpu_memory,
            "vllm_max_model_length": run.max_prompt_length + run.max_completion_length,
            "vllm_tensor_parallel_size": 1,
        }
    return arguments


def _find_family(model: str, values: dict[str, Any]) -> tuple[str, str]:
    """(folder or hub id, family) of a family's name, a folder, or a hub id."""
    folder = Path(values.get(model, model)).expanduser()
    if folder.is_dir():
        try:
            kind = str(json.loads((folder / "config.json").read_text())["model_type"])
        except (OSError, ValueError, LookupError, TypeError):
            raise WorkbookError(
                f"{folder} has no readable config.json with a model_type: name the folder that "
                "save_pretrained wrote"
            ) from None
        found = str(folder.resolve())  # the adapter will name its base by this path
    elif model in FAMILIES and folder.is_absolute():
        raise WorkbookError(
            f"the tiny model {folder} is missing: it comes with a clone of the course (or "
            "`make models` there); elsewhere name a --model"
        )
    elif model in FAMILIES or re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", model):
        found, kind = (values[model], model) if model in FAMILIES else (model, model.split("/")[1])
    else:
        raise WorkbookError(
            f"unknown model {model!r}: give a family ({', '.join(FAMILIES)}), a folder that "
            "exists, or a hub id such as unsloth/Qwen3-1.7B (--model or GRPO_WORKBOOK_MODEL)"
        )
    if family := next((name for name in FAMILIES if name in kind.lower()), None):
        return found, family
    raise WorkbookError(
        f"unknown family {kind!r} of model {model!r}: the course runs {' and '.join(FAMILIES)}"
    )


def _of_kind(name: str, value: object, kind: type):
    """The value as its field's type, in its bounds; a NumPy number becomes Python's."""
    wanted = {int: Integral, float: Real}.get(kind, kind)
    if not isinstance(value, wanted) or (kind is not bool and isinstance(value, bool)):
        raise WorkbookError(f"{name} is {value!r:.60}: it must be {KINDS[kind]}")
    if name in LEAST:
        least, most = LEAST[name], MOST.get(name, 10**9)
        if not least <= value <= most or (value == least and name in MORE_THAN_LEAST):
            more = "more than" if name in MORE_THAN_LEAST else "at least"
            raise WorkbookError(f"{name} is {value}: it must be {more} {least}, at most {most:g}")
    if name in CHOICES and value not in CHOICES[name]:
        raise WorkbookError(f"{name} is {value!r}: choose one of {', '.join(CHOICES[name])}")
    return kind(value)


def _largest_divisor(number: int, most: int) -> int:
    return max(n for n in range(1, min(number, most) + 1) if number % n == 0)
