"""Every value of a run that TRL and Unsloth would otherwise choose, and the profiles: one set of values per machine."""

import math
from dataclasses import dataclass, fields, replace
from numbers import Integral, Real
from pathlib import Path

from grpo_workbook.errors import WorkbookError

REPO = Path(__file__).resolve().parent.parent
DATA = REPO / "data"
VLLM = ("off", "colocate", "server")
DTYPES = ("float32", "float16", "bfloat16")
LOSS_TYPES = (
    "grpo",
    "bnpo",
    "dr_grpo",
    "dapo",
    "luspo",
    "cispo",
    "sapo",
    "vespo",
)  # TRL's; it checks in the first step
SCALES = ("group", "batch", "none")
KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
LARGEST = {
    "lora_rank": 10**4,
    "max_prompt_tokens": 10**7,
    "max_completion_tokens": 10**7,
}  # else a billion


@dataclass(frozen=True)
class Settings:
    """Every value that TRL and Unsloth would otherwise choose, and choose differently on a CPU and on a GPU."""

    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    qwen: str  # the model when the family is "qwen": folder or hub id
    gemma: str
    steps: int  # optimizer steps
    batch_size: int  # completions in one optimizer step
    num_generations: int  # completions per problem: the group
    per_device_batch: int  # completions that go through the model at once while training
    learning_rate: float  # at its highest; it falls linearly after the warm-up
    lora_rank: int  # r of LoRA (Hu et al., arXiv 2106.09685)
    max_prompt_tokens: int  # longer prompts are dropped: TRL no longer truncates
    max_completion_tokens: int  # TRL's max_completion_length: longer completions are cut off
    heldout: int  # held-out problems that are measured
    eval_batch: int  # prompts that are answered at once while measuring
    gradient_checkpointing: bool
    load_in_4bit: bool = True
    temperature: float = 1.0  # of sampling while training
    beta: float = 0.0  # weight of the KL penalty; 0 needs no reference model
    shuffle: bool = (
        True  # False: the rows in their order, as a curriculum from easy to hard wants them
    )
    loss_type: str = "dapo"
    scale_rewards: str = "group"
    rewards: str = (
        "correctness:2,strict_format:0.5,incremental_format:0.5"  # name:weight, see rubric.py
    )
    vllm: str = "off"  # who draws the completions: Transformers, or vLLM beside the training or on a server of its own
    vllm_gpu_memory: float = 0.3  # vllm="colocate": the share of the GPU's memory that vLLM takes
    vllm_server: str = "127.0.0.1:8000"  # vllm="server": where `trl vllm-serve` listens

    @property
    def prompts_per_step(self) -> int:
        """Different problems in one optimizer step."""
        return self.batch_size // self.num_generations


PROFILES: dict[str, Settings] = {
    # float32 on the CPU: bfloat16 is emulated, and slower, on most CPUs.
    "smoke": Settings("float32", str(DATA / "tiny-qwen3"), str(DATA / "tiny-gemma3"), steps=120, batch_size=64,
                      num_generations=8, per_device_batch=64, learning_rate=1e-3, lora_rank=16,
                      max_prompt_tokens=160, max_completion_tokens=64, heldout=480, eval_batch=128,
                      gradient_checkpointing=False),
    # A T4 (16 GB) has no bfloat16.
    "t4": Settings("float16", "unsloth/Qwen3-1.7B", "unsloth/gemma-3-1b-it", steps=250, batch_size=32,
                   num_generations=8, per_device_batch=8, learning_rate=1e-5, lora_rank=32,
                   max_prompt_tokens=384, max_completion_tokens=512, heldout=400, eval_batch=16,
                   gradient_checkpointing=True),
    "24gb": Settings("bfloat16", "unsloth/Qwen3-4B", "unsloth/gemma-3-4b-it", steps=300, batch_size=64,
                     num_generations=8, per_device_batch=16, learning_rate=1e-5, lora_rank=32,
                     max_prompt_tokens=512, max_completion_tokens=768, heldout=400, eval_batch=32,
                     gradient_checkpointing=True, vllm="colocate"),
    "80gb": Settings("bfloat16", "unsloth/Qwen3-8B", "unsloth/gemma-3-12b-it", steps=500, batch_size=128,
                     num_generations=8, per_device_batch=32, learning_rate=5e-6, lora_rank=32,
                     max_prompt_tokens=512, max_completion_tokens=1024, heldout=400, eval_batch=64,
                     gradient_checkpointing=True, vllm="colocate"),
}  # fmt: skip


def replace_settings(settings: Settings, changes: dict) -> Settings:
    """The settings with `changes` in place (None: unchanged). WorkbookError for a name or value that cannot be.

    per_device_batch is lowered to the next number that divides batch_size, unless it is among the changes.
    """
    kinds = {f.name: f.type for f in fields(Settings)}
    changes = {name: value for name, value in changes.items() if value is not None}
    for name in changes:
        if name not in kinds:
            raise WorkbookError(f"unknown setting {name!r}: choose from {', '.join(sorted(kinds))}")
        changes[name] = _of_kind(name, changes[name], kinds[name])
    settings = replace(settings, **changes)
    for name in (
        "steps",
        "batch_size",
        "per_device_batch",
        "lora_rank",
        "heldout",
        "max_prompt_tokens",
        "max_completion_tokens",
        "eval_batch",
    ):
        if getattr(settings, name) < 1:
            raise WorkbookError(f"{name} is {getattr(settings, name)}: it must be at least 1")
        if getattr(settings, name) > (most := LARGEST.get(name, 10**9)):
            raise WorkbookError(
                f"{name} is {getattr(settings, name)!s:.30}: it must be at most {most}"
            )
    for name, least in (
        ("learning_rate", "more than 0"),
        ("temperature", "more than 0"),
        ("beta", "at least 0"),
    ):
        value = getattr(settings, name)
        if not math.isfinite(value) or value < 0 or (value == 0 and least == "more than 0"):
            raise WorkbookError(f"{name} is {value}: it must be a number, {least}")
    for name, known in (
        ("vllm", VLLM),
        ("dtype", DTYPES),
        ("loss_type", LOSS_TYPES),
        ("scale_rewards", SCALES),
    ):
        if getattr(settings, name) not in known:
            raise WorkbookError(
                f"{name} is {getattr(settings, name)!r}: choose one of {', '.join(known)}"
            )
    host, _, port = settings.vllm_server.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or not 0 < int(port) < 65536:
        raise WorkbookError(
            f"vllm_server is {settings.vllm_server!r:.60}: give HOST:PORT, such as 127.0.0.1:8000"
        )
    if not 0 < settings.vllm_gpu_memory < 1:
        raise WorkbookError(
            f"vllm_gpu_memory is {settings.vllm_gpu_memory}: it must be a share between 0 and 1"
        )
    if settings.num_generations < 2:
        raise WorkbookError(
            f"num_generations is {settings.num_generations}: a group needs at least 2 completions, "
            "or there is nothing to compare"
        )
    if settings.batch_size % settings.num_generations:
        raise WorkbookError(
            f"a batch of {settings.batch_size} completions cannot be cut into groups of "
            f"{settings.num_generations}: choose a batch size that {settings.num_generations} divides, "
            f"such as {_next_multiple(settings.batch_size, settings.num_generations)}"
        )
    if "per_device_batch" in changes and settings.batch_size % settings.per_device_batch:
        raise WorkbookError(
            f"a step of {settings.batch_size} completions cannot be cut into batches of "
            f"{settings.per_device_batch}: choose a per-device batch that divides it"
        )
    # The profile's own value bends to the batch: TRL takes per_device_batch x whole accumulation steps.
    fitting = max(
        n for n in range(1, settings.per_device_batch + 1) if settings.batch_size % n == 0
    )
    return replace(settings, per_device_batch=fitting)


def _of_kind(name: str, value: object, kind: type):
    """The value as the setting's type, a NumPy number as Python's; no text is read as a number."""
    wanted = {int: Integral, float: Real}.get(kind, kind)
    try:
        if isinstance(value, wanted) and (kind is bool or not isinstance(value, bool)):
            return kind(value)
    except OverflowError:  # a whole number that no float holds
        pass
    raise WorkbookError(f"{name} is {value!r:.60}: it must be {KINDS[kind]}")


def _next_multiple(number: int, step: int) -> int:
    return -(-number // step) * step
