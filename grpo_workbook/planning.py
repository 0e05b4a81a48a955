"""The memory of a GRPO run before it starts: by part, whether it fits, and what to change.

The model is built from its config on torch's meta device, which has shapes but no numbers. Weights
are counted by module, adapters as PEFT makes them, and the KV cache comes from a forward pass. The
experts of a mixture are counted in 16 bits, because bitsandbytes packs no stacked weights.

Sources: LoRA (arXiv 2106.09685), QLoRA (2305.14314: NF4, double quantization) and 2205.05198
(activations, with and without recomputing). Not included: Unsloth's kernels keep less than
Transformers + PEFT, and adapters in the vision of a model would keep its activations.
"""

import copy
import json
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook import compat
from grpo_workbook.config import (
    FAMILIES,
    PROFILES,
    TARGET_MODULES,
    Profile,
    lengths_of_thoughts,
)
from grpo_workbook.errors import WorkbookError, first_line, wrap
from grpo_workbook.files import readable

if TYPE_CHECKING:
    from trl import GRPOConfig

__all__ = [
    "GIB",
    "KNOWN",
    "Plan",
    "activation_bytes",
    "find_shape",
    "kv_cache_bytes",
    "memory",
    "plan",
    "weight_bytes",
]

GIB = 2**30
WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a number
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # 4 bits; 8 bits per 64 weights; 32 per 256 of these
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
LOGIT_CHUNKS = 4  # Unsloth splits the logits into at least this many pieces
RESERVE = 1.0 * GIB  # assumed: CUDA context, workspaces of cuBLAS and bitsandbytes
USABLE = 0.92  # assumed: the rest is lost between torch's blocks
PROFILE_GIB = {"t4": 14.7, "24gb": 22.1, "80gb": 79.1}  # as torch reports a T4, an L4, an A100
# Unsloth computes these in 32 bits if the GPU has no bfloat16, because float16 overflows.
FORCED_32_BIT = ("gemma3_text", "gemma4_text", "qwen3_5_text")
# The text part of popular models' config.json, for use without a network.
KNOWN = json.loads(Path(__file__).with_name("known_models.json").read_text(encoding="utf-8"))

Parts = dict[str, dict[str, float]]  # phase -> part -> bytes


# ------------------------------------------------------------------ the model


@dataclass(frozen=True, eq=False)
class Shape:
    """A text decoder on the meta device. All counts are weights or values, not bytes."""

    model: Any
    config: Any = None  # of the whole model, if the decoder is a part of one

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """The shape of a config of Transformers; with vision or sound, of its text part."""
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        text_config = copy.deepcopy(config.get_text_config())  # building a model changes it
        with init_empty_weights(include_buffers=True):
            # The other ways to compute experts look at numbers, which the meta device has not.
            model = AutoModelForCausalLM.from_config(
                text_config, experts_implementation="batched_mm"
            )
            return cls(model, config)

    @cached_property
    def vision_weights(self) -> int:
        """What the whole model has beside its text part: the vision tower and the projector.

        Raises WorkbookError if its config has no vision.
        """
        from accelerate import init_empty_weights
        from transformers import AutoModelForImageTextToText

        try:
            with init_empty_weights(include_buffers=True):
                whole: Any = AutoModelForImageTextToText.from_config(copy.deepcopy(self.config))
        except ValueError as error:
            raise WorkbookError(
                f"the model has no vision ({first_line(error)}): leave out image_tokens, or give "
                "the folder or the hub id of a model with vision"
            ) from error
        return whole.num_parameters() - self.model.num_parameters()

    @cached_property
    def layers(self) -> list[dict[str, tuple[int, int]]]:
        """For each layer {projection: (in, out)}, and for its norms {name: (width, 0)}.

        The router and the experts of a mixture are not in it.
        """
        import torch

        layers = []
        for layer in self.model.get_decoder().layers:
            sizes = {}
            for full_name, module in layer.named_modules():
                name = full_name.split(".")[-1]
                if isinstance(module, torch.nn.Linear):
                    sizes[name] = (module.in_features, module.out_features)
                elif "norm" in name and getattr(module, "weight", None) is not None:
                    sizes[name] = (module.weight.shape[-1], 0)
            layers.append(sizes)
        return layers

    @cached_property
    def experts(self) -> list[dict[str, int]]:
        """For each layer {name: weights of all its experts}; empty where it has none."""
        layers = []
        for layer in self.model.get_decoder().layers:
            sizes = {}
            for full_name, parameter in layer.named_parameters():
                if "experts" in full_name and parameter.ndim == 3:
                    sizes[full_name.split(".")[-1]] = parameter.numel()
            layers.append(sizes)
        return layers

    @property
    def expert_weights(self) -> int:
        """The weights of all experts, which are stacked in parameters of three dimensions."""
        return sum(sum(sizes.values()) for sizes in self.experts)

    @cached_property
    def expert_values(self) -> int:
        """The values that a token has inside the experts of a layer: what goes into the last one.

        That is the width of an expert times the number of experts that a token goes through; 0
        without experts.
        """
        config = self.model.config
        widths = [0]
        for sizes in self.experts:
            if "down_proj" in sizes:
                widths.append(
                    sizes["down_proj"] // (_number_of_experts(config) * config.hidden_size)
                )
        return max(widths) * getattr(config, "num_experts_per_tok", 1)

    @property
    def mlp_width(self) -> int:
        """The values that a token has inside the widest MLP, or in the experts it goes through."""
        widths = [layer["down_proj"][0] for layer in self.layers if "down_proj" in layer]
        if not widths and self.expert_values == 0:  # an architecture with other names
            return 4 * self.model.config.hidden_size
        return max(widths, default=0) + self.expert_values

    @cached_property
    def weights(self) -> tuple[int, int]:
        """(all weights, those that 4-bit loading shrinks: the projections of the layers)."""
        import torch

        projections = 0
        for module in self.model.get_decoder().layers.modules():
            if isinstance(module, torch.nn.Linear):
                projections += module.weight.numel()
        return self.model.num_parameters(), projections

    def lora(self, rank: int, target_modules: Sequence[str] = TARGET_MODULES) -> int:
        """The weights of LoRA adapters on these modules, as PEFT makes them.

        Each expert of a mixture gets its own; where gate and up are one, with twice the rank.
        """
        return rank * _adapter_weights(self, tuple(target_modules))

    def cached(self, tokens: int) -> int:
        """The values in the cache after a forward pass over one text, with windows and states."""
        return _cached_values(self, tokens)


@cache  # the search for settings that fit asks again and again
def _cached_values(shape: Shape, tokens: int) -> int:
    import torch
    from torch.utils._pytree import tree_leaves

    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad():
        output = shape.model(input_ids=ids, use_cache=True, logits_to_keep=1)
    count = 0
    for layer in output.past_key_values.layers:
        for value in tree_leaves(vars(layer)):
            # Keys, values and states. Other tensors hold a setting, such as the length of a window.
            if isinstance(value, torch.Tensor) and value.ndim > 1:
                count += value.numel()
    return count


def _number_of_experts(config: Any) -> int:
    """The experts of a layer, under one of the names that configs have for it."""
    for name in ("num_experts", "num_local_experts", "n_routed_experts"):
        if getattr(config, name, None):
            return getattr(config, name)
    return 1


@cache
def _adapter_weights(shape: Shape, target_modules: tuple[str, ...]) -> int:
    """The weights of adapters of rank 1. Raises WorkbookError if the model has no such modules."""
    from accelerate import init_empty_weights
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with init_empty_weights(include_buffers=True):
        model = AutoModelForCausalLM.from_config(shape.model.config)
        settings = LoraConfig(
            r=1,
            target_modules=list(target_modules),
            target_parameters=compat.expert_parameters(model, target_modules),
            task_type="CAUSAL_LM",
        )
        try:
            with warnings.catch_warnings(action="ignore"):  # PEFT's, of patterns for experts
                adapted = get_peft_model(model, settings)
        except ValueError as error:
            raise WorkbookError(
                f"target_modules is {', '.join(target_modules)} ({first_line(error)}): give the "
                "names of this model's layers"
            ) from error
    return sum(weight.numel() for weight in adapted.parameters() if weight.requires_grad)


@cache
def find_shape(model: str, pictures: bool = False) -> Shape:
    """The shape of a model of KNOWN (with or without owner and variant), a folder or a hub id.

    Args:
        model: its name.
        pictures: read the config even of a model of KNOWN, where only the text part stands.

    Raises:
        WorkbookError: it cannot be found or built.
    """
    from transformers import AutoConfig

    last_part = model.strip("/ ").rsplit("/", 1)[-1].lower()
    # All variants of a size have the same shape.
    name = re.sub(r"(-(unsloth|bnb-4bit|it|pt|base|instruct|thinking|2507))+$", "", last_part)
    folder = Path(model).expanduser()
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise WorkbookError(f"{model} is an adapter: give the model that it was trained on")
    try:
        if name in KNOWN and not folder.is_dir() and not pictures:
            return Shape.of(AutoConfig.for_model(**KNOWN[name]))
        return Shape.of(AutoConfig.from_pretrained(folder.as_posix()))  # also on Windows
    except Exception as error:  # an unknown config can raise anything
        problem = f"the model {model!r} cannot be built from its config ({first_line(error)})"
        fix = f"give one of {', '.join(KNOWN)}, a folder with a config.json, or a hub id"
        if pictures:
            fix = "image_tokens needs the whole config: give a folder, or a hub id with its owner"
        raise WorkbookError(f"{problem}: {fix}") from error


# ------------------------------------------------------------------ bytes


def weight_bytes(shape: Shape, dtype: str, load_in_4bit: bool) -> float:
    """Bytes of the base model: projections in 4-bit; all else stays wide.

    That is embeddings, head and norms, and the router and the experts of a mixture.
    """
    all_weights, projections = shape.weights
    width = WIDTHS[dtype]
    others = (all_weights - projections) * width
    if load_in_4bit:
        return projections * NF4_BYTES + others
    return projections * width + others


def kv_cache_bytes(shape: Shape, sequences: int, tokens: int, dtype: str) -> float:
    """Bytes of the keys and values of `sequences` texts of `tokens` tokens each."""
    return sequences * shape.cached(tokens) * WIDTHS[dtype]


def logits_bytes(shape: Shape, rows: int, tokens: int) -> float:
    """Bytes of the logits: 32 bits per row, token and vocabulary entry."""
    return rows * tokens * shape.model.config.vocab_size * 4


def activation_bytes(
    shape: Shape, tokens: int, rank: int, width: int, checkpointing: bool
) -> dict[str, float]:
    """Bytes, by part, that a forward pass keeps for the backward pass.

    Args:
        shape: the model.
        tokens: of all texts that go through at once.
        rank: of the LoRA adapters.
        width: bytes of a value, 2 or 4. In 16 bits the norms still use 32.
        checkpointing: whether only each layer's input is kept, and the layer computed again.
    """
    layers = []
    for layer, experts in zip(shape.layers, shape.experts, strict=True):
        size = tokens * _layer_bytes(layer, rank, width)
        if experts:
            size += tokens * _expert_bytes(shape, width)
        layers.append(size)
    if not checkpointing:
        return {"activations of all layers": sum(layers)}
    inputs = tokens * len(layers) * shape.model.config.hidden_size * width
    return {"inputs of all layers": inputs, "one layer, computed again": max(layers)}


def _expert_bytes(shape: Shape, width: int) -> int:
    """Bytes that the experts of a layer keep for a token: their inputs, products and outputs."""
    config = shape.model.config
    passes = getattr(config, "num_experts_per_tok", 1)
    # Each expert's own copy of the input and its output; gate and up, the activation, the product.
    return (2 * passes * config.hidden_size + 4 * shape.expert_values) * width


def _layer_bytes(layer: dict[str, tuple[int, int]], rank: int, width: int) -> int:
    """Bytes that a layer keeps for a token: the inputs of its adapters, products and norms."""

    def features_in(name: str) -> int:
        return layer.get(name, (0, 0))[0]

    def features_out(name: str) -> int:
        return layer.get(name, (0, 0))[1]

    query = features_in("o_proj")
    key = features_out("k_proj")
    values = 0
    for name in TARGET_MODULES:
        if name not in layer:
            continue
        values += rank  # between the two matrices of the adapter
        # PEFT copies the input for each adapter; in 32 bits those of the same input share one.
        shares_input = width == 4 and name in ("k_proj", "v_proj", "up_proj")
        if not shares_input:
            values += features_in(name)
    values += 3 * features_in("down_proj")  # the gate, its activation, and the product
    # Attention keeps queries, keys, values and its output. In 32 bits the output is the input of
    # o_proj, which is counted above; in 16 bits PEFT has a copy of it.
    values += query if width == 4 else 2 * query
    values += 2 * key
    values += 4 * (features_out("in_proj_qkv") + features_out("in_proj_z"))  # linear attention

    norms = 0
    for name, (norm_width, out_features) in layer.items():
        is_norm = out_features == 0
        if is_norm and name not in ("q_norm", "k_norm"):
            norms += norm_width
    if "q_norm" in layer:
        norms += query + key
    return values * width + 4 * norms


# ------------------------------------------------------------------ a run


@dataclass(frozen=True)
class Settings:
    """What of a run decides its memory, by the names of TRL, PEFT and Unsloth."""

    dtype: str  # of the weights that are not 4-bit, and of the arithmetic
    load_in_4bit: bool
    lora_rank: int
    max_prompt_length: int  # tokens
    max_completion_length: int  # tokens
    num_generations: int
    per_device_train_batch_size: int  # completions that learn at once
    gradient_accumulation_steps: int
    gradient_checkpointing: bool
    use_vllm: bool
    vllm_mode: str
    vllm_gpu_memory_utilization: float
    # Device batches whose completions are sampled at once; None: those of an optimizer step.
    steps_per_generation: int | None = None
    num_processes: int = 1  # each with its own device batch; a group may be spread over them
    target_modules: tuple[str, ...] = TARGET_MODULES
    image_tokens: int | None = None  # of the pictures of a prompt; None: text alone

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and not value > 0:
                raise WorkbookError(f"{name} is {value}: it must be more than 0")
        if self.dtype not in WIDTHS:
            raise WorkbookError(f"dtype is {self.dtype!r}: choose one of {', '.join(WIDTHS)}")
        group = self.num_generations
        if group < 2 or self.generation_batch_size % group != 0:
            problem = f"{self.generation_batch_size} completions cannot be cut into groups of"
            steps = "gradient_accumulation_steps"
            if self.steps_per_generation is not None:
                steps = "steps_per_generation"
            fix = f"per_device_train_batch_size x {steps} must be a multiple"
            raise WorkbookError(f"{problem} {group}, at least 2: {fix}")

    @property
    def prompt_length(self) -> int:
        """Tokens of the longest prompt with its pictures."""
        return self.max_prompt_length + (self.image_tokens or 0)

    @property
    def completions_per_step(self) -> int:
        """Completions of a device in one optimizer step."""
        return self.per_device_train_batch_size * self.gradient_accumulation_steps

    @property
    def completions_at_once(self) -> int:
        """Completions that a device samples at once, as TRL's `steps_per_generation` says."""
        steps = self.steps_per_generation
        if steps is None:
            steps = self.gradient_accumulation_steps
        return self.per_device_train_batch_size * steps

    @property
    def generation_batch_size(self) -> int:
        """Completions that all devices sample at once; TRL has a field of this name."""
        return self.completions_at_once * self.num_processes

    @property
    def prompts_at_once(self) -> int:
        """Different problems that are sampled at once."""
        return self.generation_batch_size // self.num_generations


def memory(shape: Shape, settings: Settings, gib: float = 0.0) -> Parts:
    """Bytes by part.

    Args:
        shape: the model.
        settings: of the run.
        gib: the GPU's memory; a colocated vLLM holds its part of it all the time.

    Returns:
        {"always": ..., "sampling": ..., "learning": ...}, each {part: bytes}. Sampling and learning
        take turns.

    Raises:
        WorkbookError: vLLM's part is too small.
    """
    # Adapters with gradients and moments in 32 bits, as Unsloth on a GPU and `Float32Adapters`
    # keep them: 16 bytes per weight. Stock TRL uses bfloat16 on a 4-bit model: 8 bytes.
    adapters = shape.lora(settings.lora_rank, settings.target_modules) * 4
    always = {
        "weights": weight_bytes(shape, settings.dtype, settings.load_in_4bit),
        "LoRA adapters": adapters,
        "their gradients": adapters,
        "optimizer (AdamW)": 2 * adapters,
        "reserve (assumed)": RESERVE,
    }
    if settings.image_tokens is not None:  # 4-bit loading leaves vision wide
        always["vision"] = shape.vision_weights * WIDTHS[settings.dtype]
    sampling = {}
    if not settings.use_vllm:
        sampling = _sampling_bytes(shape, settings)
    elif settings.vllm_mode == "colocate" and gib > 0:
        always["KV cache of vLLM"] = _vllm_cache_bytes(shape, settings, gib)
    return {"always": always, "sampling": sampling, "learning": _learning_bytes(shape, settings)}


def _sampling_bytes(shape: Shape, settings: Settings) -> dict[str, float]:
    """Bytes by part while Transformers samples completions, those of a generation batch at once."""
    batch = settings.completions_at_once
    length = settings.prompt_length + settings.max_completion_length
    kv_cache = kv_cache_bytes(shape, batch, length, settings.dtype)
    hidden_width = shape.model.config.hidden_size
    prompt_values = batch * settings.prompt_length * 2 * (hidden_width + shape.mlp_width)
    return {
        "KV cache": kv_cache,
        "one layer's cache, copied": kv_cache / len(shape.layers),
        "prompts": prompt_values * WIDTHS[settings.dtype],
        "logits of a token": 2 * logits_bytes(shape, batch, 1),
    }


def _vllm_cache_bytes(shape: Shape, settings: Settings, gib: float) -> float:
    """What a vLLM beside the training has for its cache; the two share the weights."""
    share = settings.vllm_gpu_memory_utilization
    weights = weight_bytes(shape, settings.dtype, settings.load_in_4bit)
    room = share * gib * GIB - weights
    length = settings.prompt_length + settings.max_completion_length
    if room < kv_cache_bytes(shape, 1, length, settings.dtype):
        problem = f"vllm_gpu_memory_utilization={share:g} of {gib:g} GiB cannot hold one completion"
        raise WorkbookError(
            f"{problem} beside {weights / GIB:.1f} GiB of weights: give more, or use_vllm=False "
            "(--no-use-vllm)"
        )
    return room


def _learning_bytes(shape: Shape, settings: Settings) -> dict[str, float]:
    """Bytes by part while the completions of one device batch go forward and backward."""
    rows = settings.per_device_train_batch_size
    width = WIDTHS[settings.dtype]
    if settings.dtype == "float16" and shape.model.config.model_type in FORCED_32_BIT:
        width = 4
    parts = activation_bytes(
        shape,
        rows * (settings.prompt_length + settings.max_completion_length),
        settings.lora_rank,
        width,
        settings.gradient_checkpointing,
    )
    logits = logits_bytes(shape, rows, settings.max_completion_length)
    parts["logits and gradient, in pieces"] = 2 * logits / LOGIT_CHUNKS
    if shape.expert_weights > 0 and set(settings.target_modules) - set(ATTENTION):
        # PEFT adds the adapters to the experts' weights in each forward pass, and keeps the sum
        # for the backward pass, which makes its gradient. Unsloth on a GPU needs less.
        by_layer = [sum(sizes.values()) for sizes in shape.experts]
        sums = max(by_layer) if settings.gradient_checkpointing else sum(by_layer)
        parts["experts with their adapters"] = (sums + max(by_layer)) * width
    return parts


def peak(parts: Mapping[str, Mapping[str, float]]) -> float:
    """The peak in bytes: what is always held, and the larger of sampling and learning."""
    sampling = sum(parts["sampling"].values())
    learning = sum(parts["learning"].values())
    return sum(parts["always"].values()) + max(sampling, learning)


# ------------------------------------------------------------------ the plan


@dataclass(frozen=True)
class Change:
    """A change that saves memory."""

    fields: dict[str, tuple[Any, Any]]  # name of a setting -> (before, after)
    cost: str
    peak: float  # bytes, with this change and those before it


@dataclass(frozen=True)
class Plan:
    """The memory of a run, in bytes by part. `print(plan)` shows it."""

    model: str
    device: str  # the profile, or "your GPU"
    settings: Settings
    parts: Parts
    usable: float  # bytes of the device that a run can use; 0 if unknown
    changes: list[Change]  # what makes it fit, the cheapest first; empty if it fits
    notes: list[str]  # what was assumed about this model

    @property
    def peak(self) -> float:
        """The peak in bytes."""
        return peak(self.parts)

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None if the device's memory is unknown."""
        if self.usable == 0:
            return None
        return self.peak <= self.usable

    def __str__(self) -> str:
        lines = [f"{self.model} on {self.device}: computed", ""]
        for phase, parts in self.parts.items():
            lines.append(f"{phase:<34}{sum(parts.values()) / GIB:8.2f} GiB")
            for part, size in parts.items():
                bar = "#" * round(30 * size / self.peak)
                lines.append(f"  {part:<32}{size / GIB:8.2f}  {bar}".rstrip())
        lines.append(f"{'in all: always + the larger':<34}{self.peak / GIB:8.2f} GiB")
        lines.append("")
        for note in self.notes:
            lines.extend(wrap(note, 80))
        if self.fits is None:
            lines.append("This machine's memory is unknown: give it with --memory.")
            return "\n".join(lines)
        verdict = "fits" if self.fits else "does not fit"
        usable = f"{self.usable / GIB:.2f} GiB are usable ({USABLE:.0%}, assumed)."
        lines.append(f"It {verdict}: {usable}")
        reached = self.peak
        for change in self.changes:
            reached = change.peak
            for name, (before, after) in change.fields.items():
                if isinstance(after, tuple):  # both would be too long for a line
                    lines.append(f"  {name} -> {','.join(after)}")
                elif before is None:
                    lines.append(f"  {name} -> {after}")
                else:
                    lines.append(f"  {name} {before} -> {after}")
            size = f"{change.peak / GIB:.2f} GiB"
            lines.append(f"      {size}, and it costs {change.cost}")
        if reached > self.usable:
            lines.append("No setting is enough: choose a smaller model or a larger GPU.")
        return "\n".join(lines)


def plan(
    model: Any,
    profile: "str | Profile | GRPOConfig" = "t4",
    *,
    gib: float | None = None,
    dtype: str | None = None,
    load_in_4bit: bool | None = None,
    lora_rank: int | None = None,
    max_prompt_length: int | None = None,
    max_completion_length: int | None = None,
    num_generations: int | None = None,
    per_device_train_batch_size: int | None = None,
    gradient_accumulation_steps: int | None = None,
    steps_per_generation: int | None = None,
    generation_batch_size: int | None = None,
    target_modules: Sequence[str] | None = None,
    gradient_checkpointing: bool | None = None,
    use_vllm: bool | None = None,
    vllm_gpu_memory_utilization: float | None = None,
    image_tokens: int | None = None,
    thinking: bool = False,
) -> Plan:
    """Compute the memory of a run, for any GPU. It counts LoRA, not full fine-tuning.

        print(plan("Qwen/Qwen3-4B", GRPOConfig("out", per_device_train_batch_size=8), gib=24))

    Args:
        model: "qwen" or "gemma" (the profile's own), a name for `find_shape`, or a config of
            Transformers.
        profile: the settings to start with: a profile's name ("t4"), a Profile, or a GRPOConfig
            with lora_rank=16, load_in_4bit=False and max_prompt_length=512, which it does not have.
        gib: the device's memory; by default that of the profile's GPU.
        dtype: this and all below replace a value of the profile; their names are TRL's, or those
            of `choose_profile`.
        image_tokens: of the pictures of a prompt, beside max_prompt_length, for a training of the
            whole of a model with vision; a picture has 256 in Gemma 3, and in Qwen-VL more if it is
            larger. Default: only the text part is trained.
        thinking: plan a run with thoughts (`run --thinking`), and say what they cost beside the
            same run without them. A profile's name brings the lengths of its table `thinking`; what
            is given here wins over them. A Profile must have been chosen with `thinking=True`.

    Raises:
        WorkbookError: an unknown model or profile, an impossible value, or `thinking` with a
            Profile that does not think or with a GRPOConfig, which have their lengths already.
    """
    if gib is not None and not 0 < gib < 10**6:
        raise WorkbookError(f"the memory is {gib:g} GiB: give a number above 0 and below 1,000,000")
    usual = _settings_of(profile)
    device = _name_of(profile)
    changed = {
        "dtype": dtype,
        "load_in_4bit": load_in_4bit,
        "lora_rank": lora_rank,
        "max_prompt_length": max_prompt_length,
        "max_completion_length": max_completion_length,
        "num_generations": num_generations,
        "per_device_train_batch_size": per_device_train_batch_size,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "steps_per_generation": steps_per_generation,
        "target_modules": None if target_modules is None else tuple(target_modules),
        "gradient_checkpointing": gradient_checkpointing,
        "use_vllm": use_vllm,
        "vllm_gpu_memory_utilization": vllm_gpu_memory_utilization,
        "image_tokens": image_tokens,
    }
    replaced = {name: value for name, value in changed.items() if value is not None}
    settings = usual
    if thinking:
        settings = {**usual, **_thinking_settings(profile, device, replaced)}
    settings = {**settings, **replaced}
    if generation_batch_size is not None:
        if steps_per_generation is not None:
            raise WorkbookError("steps_per_generation and generation_batch_size: give one of them")
        settings["steps_per_generation"] = _steps_of(generation_batch_size, settings)
    settings = Settings(**settings)

    shape, model_name = _find_model(model, device, image_tokens is not None)
    if gib is None:
        gib = PROFILE_GIB.get(device, 0.0)
    usable = USABLE * gib * GIB
    parts = memory(shape, settings, gib)
    changes = []
    if gib > 0:
        changes = _changes_that_fit(shape, settings, gib, usable)
    notes = _notes(shape, settings)
    if thinking:
        usual_length = PROFILES[device]["grpo"]["max_completion_length"]
        notes.append(_cost_of_thinking(shape, settings, usual_length, gib))
    return Plan(model_name, device, settings, parts, usable, changes, notes)


def _thinking_settings(
    profile: "str | Profile | GRPOConfig", device: str, replaced: dict[str, Any]
) -> dict[str, Any]:
    """What a run with thoughts changes in the settings of a profile; `replaced` wins later."""
    if isinstance(profile, str):
        return lengths_of_thoughts(PROFILES[device]["thinking"], replaced)
    if not isinstance(profile, Profile):
        raise WorkbookError(
            f"thinking is True, and a {type(profile).__name__} has its length already: leave "
            "thinking out, or give a profile's name and max_completion_length"
        )
    if not profile.thinking:
        raise WorkbookError(
            "thinking is True, and the profile was chosen without: choose_profile(thinking=True)"
        )
    return {}  # choose_profile has made its lengths those of thoughts, or the user's


def _cost_of_thinking(shape: Shape, settings: Settings, usual_length: int, gib: float) -> str:
    """What a run with thoughts costs beside the same with completions of the usual length.

    The time is that of the tokens: each is sampled and learned once. What a token costs beyond
    that, because it attends to more of them, is not counted.
    """
    length = settings.max_completion_length
    completions = settings.completions_per_step
    peaks = []
    for choice in (settings, replace(settings, max_completion_length=usual_length)):
        peaks.append(f"{peak(memory(shape, choice, gib)) / GIB:.2f} GiB")
    return (
        f"Thinking: completions have up to {length} tokens instead of {usual_length}. A step "
        f"samples and learns up to {completions * length:,} tokens instead of "
        f"{completions * usual_length:,} and takes about {length / usual_length:.1f} times as long "
        f"if completions use them all. In the same batches the peak is {peaks[0]} instead of "
        f"{peaks[1]}."
    )


def _steps_of(generation_batch_size: int, settings: dict[str, Any]) -> int:
    """TRL's steps_per_generation for a generation batch of this size."""
    device_batches = settings["per_device_train_batch_size"] * settings["num_processes"]
    if generation_batch_size < 1 or generation_batch_size % device_batches != 0:
        raise WorkbookError(
            f"generation_batch_size is {generation_batch_size}: it must be a multiple of "
            f"{device_batches}, the completions of one device batch of all processes"
        )
    return generation_batch_size // device_batches


def _notes(shape: Shape, settings: Settings) -> list[str]:
    """What a reader must know about how a mixture of experts is counted."""
    experts = shape.expert_weights
    if experts == 0:
        return []
    all_weights, _ = shape.weights
    note = f"{experts / all_weights:.0%} of the weights are experts"
    if settings.load_in_4bit:
        saved = experts * (WIDTHS[settings.dtype] - NF4_BYTES) / GIB
        note += (
            f", counted in {settings.dtype}: bitsandbytes does not pack them. Unsloth on a GPU "
            f"may pack them too, which was not measured and would take {saved:.2f} GiB less"
        )
    return [f"{note}."]


# Settings that are fields of GRPOConfig.
GRPO_FIELDS = (
    "max_completion_length",
    "num_generations",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "gradient_checkpointing",
    "use_vllm",
    "vllm_mode",
    "vllm_gpu_memory_utilization",
)


def _find_model(model: Any, device: str, pictures: bool) -> tuple[Shape, str]:
    """(the model's shape, its name in the plan)."""
    if not isinstance(model, str):
        return Shape.of(model), model.name_or_path or model.model_type
    if model in FAMILIES:
        profile_name = device if device in PROFILES else "t4"
        model = PROFILES[profile_name][model]
    return find_shape(model, pictures), readable(model)


def _name_of(profile: "str | Profile | GRPOConfig") -> str:
    if isinstance(profile, str):
        return profile
    if isinstance(profile, Profile):
        return profile.name
    return "your GPU"


def _settings_of(profile: "str | Profile | GRPOConfig") -> dict[str, Any]:
    """The values for `Settings` that a profile, its name or a GRPOConfig has."""
    if isinstance(profile, str):
        if profile not in PROFILES:
            choices = ", ".join(PROFILES)
            raise WorkbookError(f"unknown profile {profile!r}: choose one of {choices}")
        table = PROFILES[profile]
        grpo = table["grpo"]
        others = {
            "dtype": table["dtype"],
            "load_in_4bit": True,
            "lora_rank": table["lora_rank"],
            "max_prompt_length": table["max_prompt_length"],
            "steps_per_generation": None,
            "num_processes": 1,
        }
    elif isinstance(profile, Profile):
        grpo = profile.grpo
        others = {
            "dtype": profile.dtype,
            "load_in_4bit": profile.loader["load_in_4bit"],
            "lora_rank": profile.lora["r"],
            "max_prompt_length": profile.max_prompt_length,
            "target_modules": tuple(profile.lora["target_modules"]),
            "steps_per_generation": grpo.get("steps_per_generation"),
            "num_processes": 1,
        }
        if grpo.get("generation_batch_size") is not None:
            settings = {**grpo, **others}
            others["steps_per_generation"] = _steps_of(grpo["generation_batch_size"], settings)
    else:
        grpo = vars(profile)
        dtype = "float32"
        if profile.fp16:
            dtype = "float16"
        if profile.bf16:
            dtype = "bfloat16"
        # TRL has filled in the field that was left out, and knows the number of processes.
        filled: Any = profile
        steps = filled.steps_per_generation
        completions = filled.per_device_train_batch_size * steps
        others = {
            "dtype": dtype,
            "load_in_4bit": False,
            "lora_rank": 16,
            "max_prompt_length": 512,
            "steps_per_generation": steps,
            "num_processes": filled.generation_batch_size // completions,
        }
        if steps == profile.gradient_accumulation_steps:  # TRL's default
            others["steps_per_generation"] = None
    return {**{name: grpo[name] for name in GRPO_FIELDS}, **others}


# ------------------------------------------------------------------ what makes it fit
#
# Each function makes a change that saves memory, or returns None where there is nothing left to
# save.


def _smaller_pieces(settings: Settings) -> Settings | None:
    size = settings.per_device_train_batch_size
    if size == 1:
        return None
    # A step has pieces of one size.
    half = size // 2 if size % 2 == 0 else 1
    steps = settings.steps_per_generation
    if steps is not None:  # as many completions are sampled at once as before
        steps = settings.completions_at_once // half
    return replace(
        settings,
        per_device_train_batch_size=half,
        gradient_accumulation_steps=settings.completions_per_step // half,
        steps_per_generation=steps,
    )


def _smaller_generations(settings: Settings) -> Settings | None:
    steps = settings.steps_per_generation
    if steps is None or steps <= settings.gradient_accumulation_steps:
        return None
    half = max(steps // 2, settings.gradient_accumulation_steps)
    completions = settings.per_device_train_batch_size * half * settings.num_processes
    if completions % settings.num_generations != 0:
        return None
    return replace(settings, steps_per_generation=half)


def _attention_only(settings: Settings) -> Settings | None:
    attention = tuple(name for name in settings.target_modules if name in ATTENTION)
    if not attention or attention == settings.target_modules:
        return None
    return replace(settings, target_modules=attention)


def _checkpointing(settings: Settings) -> Settings | None:
    if settings.gradient_checkpointing:
        return None
    return replace(settings, gradient_checkpointing=True)


def _no_vllm(settings: Settings) -> Settings | None:
    if not settings.use_vllm:
        return None
    return replace(settings, use_vllm=False)


def _four_bit(settings: Settings) -> Settings | None:
    if settings.load_in_4bit:
        return None
    return replace(settings, load_in_4bit=True)


def _more_rounds(settings: Settings) -> Settings | None:
    """The same step, sampled in more rounds of whole groups before the weights change."""
    step = settings.completions_per_step * settings.num_processes
    for problems in range(settings.prompts_at_once // 2, 0, -1):
        completions = problems * settings.num_generations  # of a round
        if step % completions != 0 or completions % settings.num_processes != 0:
            continue
        on_a_device = completions // settings.num_processes
        # Pieces of one size, none larger than before.
        size = math.gcd(on_a_device, settings.per_device_train_batch_size)
        return replace(
            settings,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=settings.completions_per_step // size,
            steps_per_generation=on_a_device // size,
        )
    return None


def _shorter_completions(settings: Settings) -> Settings | None:
    if settings.max_completion_length < 512:
        return None
    return replace(settings, max_completion_length=settings.max_completion_length // 2)


# The cheapest first.
CHANGES: list[tuple[Callable[[Settings], Settings | None], str]] = [
    (_smaller_pieces, "a little time: smaller pieces"),
    (_smaller_generations, "a little time: fewer completions are sampled at once"),
    (_four_bit, "time to unpack the weights, and a little accuracy"),
    (_checkpointing, "time: every layer is computed twice"),
    (_attention_only, "the experts: adapters on the attention only"),
    (_no_vllm, "time: Transformers samples the completions instead"),
    (_more_rounds, "time: a step is sampled in several rounds"),
    (_shorter_completions, "answers that are cut off without a reward"),
]


def _changes_that_fit(shape: Shape, settings: Settings, gib: float, usable: float) -> list[Change]:
    """The cheapest changes that save memory, until the run fits or nothing is left to change."""
    changes = []
    parts = memory(shape, settings, gib)
    missing = _missing_bytes(parts, usable)
    for change, cost in CHANGES:
        # The adapters of a dense MLP are small.
        if change is _attention_only and shape.expert_weights == 0:
            continue
        start = settings
        # Again and again, as 8 -> 4 -> 2, until it fits or this change saves nothing more.
        while missing > 0:
            candidate = change(settings)
            if candidate is None:
                break
            candidate_parts = memory(shape, candidate, gib)
            still_missing = _missing_bytes(candidate_parts, usable)
            if still_missing >= missing:
                break
            settings = candidate
            parts = candidate_parts
            missing = still_missing
        if settings != start:
            changes.append(Change(_differences(start, settings), cost, peak(parts)))
    return changes


def _missing_bytes(parts: Parts, usable: float) -> float:
    """How much sampling and learning need beyond what is usable, added up."""
    # The peak alone would not do: a change that helps the lower of the two is needed as well.
    always = sum(parts["always"].values())
    missing = 0.0
    for phase in ("sampling", "learning"):
        needed = always + sum(parts[phase].values())
        missing += max(0.0, needed - usable)
    return missing


def _differences(before: Settings, after: Settings) -> dict[str, tuple[Any, Any]]:
    """{name: (value before, value after)} of the settings that differ."""
    differences = {}
    for name, old_value in vars(before).items():
        new_value = getattr(after, name)
        if new_value != old_value:
            differences[name] = (old_value, new_value)
    return differences
