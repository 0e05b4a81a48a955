"""The memory of a GRPO run before it starts: by part, whether it fits, and what to change.

The model is built from its config on torch's meta device, which has shapes but no numbers. Weights
are counted by module, and the KV cache comes from a forward pass. Sources: LoRA (arXiv
2106.09685), QLoRA (2305.14314: NF4, double quantization) and 2205.05198 (activations, with and
without recomputing). Not included: Unsloth's kernels keep less than Transformers + PEFT.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from grpo_workbook.config import FAMILIES, TARGET_MODULES
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.run_config import PROFILES, RunConfig

__all__ = """GIB KNOWN Plan Shape activation_bytes find_shape kv_cache_bytes logits_bytes memory
    plan total weight_bytes""".split()

GIB = 2**30
WIDE = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a number
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # 4 bits; 8 bits per 64 weights; 32 per 256 of these
LOGIT_CHUNKS = 4  # Unsloth splits the logits into at least this many pieces
RESERVE = 1.0 * GIB  # assumed: CUDA context, workspaces of cuBLAS and bitsandbytes
USABLE = 0.92  # assumed: the rest is lost between torch's blocks
PROFILE_GIB = {"t4": 14.7, "24gb": 22.1, "80gb": 79.1}  # as torch reports a T4, an L4, an A100
# Unsloth computes these in 32 bits if the GPU has no bfloat16, because float16 overflows.
FORCED_32_BIT = ("gemma3_text", "gemma4_text", "qwen3_5_text")
# The text part of popular models' config.json, for use without a network.
KNOWN = json.loads(Path(__file__).with_name("known_models.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class Shape:
    """A text decoder on the meta device. All counts are weights or values, not bytes."""

    model: Any

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """The shape of a config of Transformers; with vision or sound, of its text part."""
        from accelerate import init_empty_weights
        from transformers import AutoModelForCausalLM

        with init_empty_weights(include_buffers=True):
            return cls(AutoModelForCausalLM.from_config(config.get_text_config()))

    @cached_property
    def layers(self) -> list[dict[str, tuple[int, int]]]:
        """For each layer {projection: (in, out)}, and for its norms {name: (width, 0)}."""
        found = []
        for layer in self.model.get_decoder().layers:
            named = [(n.replace(".weight", ""), p.shape[::-1]) for n, p in layer.named_parameters()]
            sides = {n.split(".")[-1]: s for n, s in named if len(s) == 2 or "norm" in n}
            found.append({name: (*shape, 0)[:2] for name, shape in sides.items()})
        return found

    @cached_property
    def weights(self) -> tuple[int, int]:
        """(all weights, those that 4-bit loading shrinks: the projections of the layers)."""
        projections = sum(a * b for layer in self.layers for a, b in layer.values())
        return self.model.num_parameters(), projections

    def lora(self, rank: int) -> int:
        """The weights of LoRA adapters on the course's target modules."""
        return rank * sum(sum(layer.get(n, ())) for layer in self.layers for n in TARGET_MODULES)

    @cache  # noqa: B019 - there are few shapes
    def cached(self, tokens: int) -> int:
        """The values in the cache after a forward pass over one text, with windows and states."""
        import torch
        from torch.utils._pytree import tree_leaves

        ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        with torch.no_grad():
            out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        held = tree_leaves([vars(layer) for layer in out.past_key_values.layers])
        return sum(value.numel() for value in held if getattr(value, "ndim", 0) > 1)


@cache
def find_shape(model: str) -> Shape:
    """The shape of a model of KNOWN (with or without owner and variant), a folder or a hub id.
    Raises WorkbookError if it cannot be found or built.
    """
    from transformers import AutoConfig

    variant = r"(-(unsloth|bnb-4bit|it|pt|base|instruct|thinking|2507))+$"
    name = re.sub(variant, "", model.strip("/ ").rsplit("/", 1)[-1].lower())
    folder = Path(model).expanduser()
    try:
        if folder.is_dir() or name not in KNOWN:
            return Shape.of(AutoConfig.from_pretrained(folder.as_posix()))  # also on Windows
        return Shape.of(AutoConfig.for_model(**KNOWN[name]))
    except Exception as error:  # an unknown config can raise anything
        said = f"the model {model!r} cannot be built from its config ({first_line(error)}): give "
        known = f"one of {', '.join(KNOWN)}, a folder with a config.json, or a hub id"
        raise WorkbookError(said + known) from error


def weight_bytes(shape: Shape, dtype: str, load_in_4bit: bool) -> float:
    """Bytes of the base model: projections in 4-bit; embeddings, head and norms stay wide."""
    (every, projections), wide = shape.weights, WIDE[dtype]
    return projections * (NF4_BYTES if load_in_4bit else wide) + (every - projections) * wide


def kv_cache_bytes(shape: Shape, sequences: int, tokens: int, dtype: str) -> float:
    """Bytes of the keys and values of `sequences` texts of `tokens` tokens each."""
    return sequences * shape.cached(tokens) * WIDE[dtype]


def logits_bytes(shape: Shape, rows: int, tokens: int) -> float:
    """Bytes of the logits: 32 bits per row, token and vocabulary entry."""
    return rows * tokens * shape.model.config.vocab_size * 4


def activation_bytes(shape: Shape, tokens: int, rank: int, each: int, checkpointing: bool) -> dict:
    """Bytes, by part, that a forward pass over `tokens` tokens keeps for the backward pass.
    Inputs of adapters, products and norms, `each` bytes per value. In 16 bits the norms still use
    32, and PEFT copies the input for each adapter; in 32 bits there is one copy.
    """
    layers, shared = [], ("k_proj", "v_proj", "up_proj") if each == 4 else ()
    for layer in shape.layers:
        size = defaultdict(lambda: (0, 0), layer)
        adapted = [name for name in TARGET_MODULES if name in layer]
        query, key = size["o_proj"][0], size["k_proj"][1]
        kept = sum(layer[name][0] for name in adapted if name not in shared) + rank * len(adapted)
        kept += 3 * size["down_proj"][0] + (1 if each == 4 else 2) * query + 2 * key
        kept += 4 * (size["in_proj_qkv"][1] + size["in_proj_z"][1])  # linear attention, roughly
        norms = sum(w for n, (w, out) in layer.items() if not out and n not in ("q_norm", "k_norm"))
        norms += query + key if "q_norm" in layer else 0
        layers.append(tokens * (kept * each + 4 * norms))
    if not checkpointing:
        return {"activations of all layers": sum(layers)}
    inputs = tokens * len(layers) * shape.model.config.hidden_size * each
    return {"inputs of all layers": inputs, "one layer, computed again": max(layers)}


def memory(shape: Shape, run: RunConfig, gib: float = 0.0) -> dict[str, dict[str, float]]:
    """Bytes by part: {"always": ..., "sampling": ..., "learning": ...}; the last two take turns.
    `gib` is the GPU's memory; a colocated vLLM holds its part of it all the time.
    """
    length, batch = run.max_prompt_length + run.max_completion_length, run.batch_size
    config, wide = shape.model.config, WIDE[run.dtype]
    # Adapters with gradients and moments in 32 bits, as Unsloth on a GPU and `make_trainer` keep
    # them: 16 bytes per weight. Stock TRL uses bfloat16 on a 4-bit model: 8 bytes.
    adapters = shape.lora(run.lora_rank) * 4
    always = {
        "weights": weight_bytes(shape, run.dtype, run.load_in_4bit), "LoRA adapters": adapters,
        "their gradients": adapters, "optimizer (AdamW)": 2 * adapters,
        "reserve (assumed)": RESERVE,
    }  # fmt: skip
    sampling = {}
    if run.vllm == "colocate" and gib:  # vLLM and training use the same weights
        room = always["KV cache of vLLM"] = run.vllm_gpu_memory * gib * GIB - always["weights"]
        if room < kv_cache_bytes(shape, 1, length, run.dtype):
            part = f"vllm_gpu_memory={run.vllm_gpu_memory:g} of {gib:g} GiB"
            raise WorkbookError(f"{part} cannot hold one completion: give more, or vllm=off")
    elif run.vllm == "off":  # Transformers samples all completions of a step at once
        cached = kv_cache_bytes(shape, batch, length, run.dtype)
        sampling = {"KV cache": cached, "one layer's cache, copied": cached / len(shape.layers)}
        width = config.hidden_size + max(layer["down_proj"][0] for layer in shape.layers)
        sampling["prompts"] = batch * run.max_prompt_length * 2 * width * wide
        sampling["logits of a token"] = 2 * logits_bytes(shape, batch, 1)
    each = 4 if run.dtype == "float16" and config.model_type in FORCED_32_BIT else wide
    tokens = run.per_device_batch * length
    learning = activation_bytes(shape, tokens, run.lora_rank, each, run.gradient_checkpointing)
    logits = logits_bytes(shape, run.per_device_batch, run.max_completion_length)
    learning["logits and gradient, in pieces"] = 2 * logits / LOGIT_CHUNKS
    return {"always": always, "sampling": sampling, "learning": learning}


def total(parts: Mapping[str, Mapping[str, float]]) -> float:
    """The peak, in bytes."""
    sums = {phase: sum(sizes.values()) for phase, sizes in parts.items()}
    return sums["always"] + max(sums["sampling"], sums["learning"])


# Changes that save memory, the cheapest first: (the next smaller value, the cost).
CHANGES: dict[str, tuple[Any, str]] = {
    "per_device_batch": (lambda run: run.per_device_batch // 2, "a little time: smaller pieces"),
    "gradient_checkpointing": (lambda run: True, "time: every layer is computed twice"),
    "vllm": (lambda run: "off", "time: Transformers samples the completions instead"),
    "load_in_4bit": (lambda run: True, "time to unpack the weights, and a little accuracy"),
    "batch_size": (lambda run: run.prompts_per_step // 2 * run.num_generations,
                   "a noisier gradient, so more steps"),
    "max_completion_length": (lambda run: run.max_completion_length // 2 * (
        run.max_completion_length >= 512), "answers that are cut off without a reward"),  # to 256
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The memory of a run, in bytes by part. `usable`: of the device, 0 if unknown."""

    run: RunConfig
    parts: dict[str, dict[str, float]]
    usable: float
    changes: tuple[tuple[str, str, float], ...]  # (change, its cost, bytes with all changes so far)

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None if the device's memory is unknown."""
        return total(self.parts) <= self.usable if self.usable else None

    def __str__(self) -> str:
        most = total(self.parts)
        unit, name = (GIB, "GiB") if most > 4 * GIB else (2**20, "MiB")
        lines = [f"{self.run.model_name} on {self.run.profile}: computed", ""]
        for phase, parts in self.parts.items():
            lines.append(f"{phase:<34}{sum(parts.values()) / unit:8.2f} {name}")
            for part, size in parts.items():
                bar = "#" * round(30 * size / most)
                lines.append(f"  {part:<32}{size / unit:8.2f}  {bar}".rstrip())
        lines += [f"{'in all: always + the larger':<34}{most / unit:8.2f} {name}", ""]
        if self.fits is None:
            return "\n".join([*lines, "This machine's memory is unknown: give it with --memory."])
        said = f"It {'fits' if self.fits else 'does not fit'}: {self.usable / unit:.2f} {name} "
        lines.append(f"{said}are usable ({USABLE:.0%}, assumed).")
        for what, cost, size in self.changes:
            lines += [f"  {what:<50}{size / unit:8.2f} {name}", f"      costs {cost}"]
        if not self.fits and (not self.changes or self.changes[-1][2] > self.usable):
            lines.append("No setting is enough: choose a smaller model or a larger GPU.")
        return "\n".join(lines)


def plan(model: Any, profile: Any, *, gib: float | None = None, **values) -> Plan:
    """The plan for `model` with the profile's settings and `values`, for any GPU.

        print(plan("Qwen/Qwen3-4B", GRPOConfig("out", per_device_train_batch_size=8), gib=24))

    `model`: "qwen" or "gemma" (the profile's own), a name for `find_shape`, or a config of
    Transformers. `profile`: a name, or TRL's GRPOConfig; what that does not say is a value of its
    own: lora_rank (16), load_in_4bit (False), max_prompt_length (512). It counts LoRA, not full
    fine-tuning. `gib`: the device's memory (default: the profile's, or unknown). WorkbookError for
    unknown or impossible values.
    """
    name, settings = profile, PROFILES.get(profile if isinstance(profile, str) else "t4")
    if not isinstance(profile, str):  # the profile t4 gives the values that do not count here
        name, values = "your GPU", _settings_of(profile) | values
    if settings is None or (gib is not None and not 0 < gib < 10**6):
        said = f"the memory is {gib:g} GiB" if settings else f"unknown profile {profile!r}"
        raise WorkbookError(f"{said}: choose one of {', '.join(PROFILES)}, and a memory above 0")
    chosen = {key: value for key, value in settings.items() if key not in FAMILIES} | values
    if isinstance(model, str):
        shape = find_shape(model := settings[model] if model in FAMILIES else model)
    else:
        shape, model = Shape.of(model), model.name_or_path or model.model_type
    device = "cpu" if name == "smoke" else "cuda"
    run = RunConfig(device, name, model, "", 0, Path("outputs/run"), **chosen)
    size = gib or PROFILE_GIB.get(name, 0.0)
    changes = tuple(_changes(shape, run, size)) if size else ()
    return Plan(run, memory(shape, run, size), USABLE * size * GIB, changes)


def _settings_of(args: Any) -> dict[str, Any]:
    """The values of a RunConfig that a GRPOConfig of TRL means, and the defaults of `plan`."""
    at_once = args.per_device_train_batch_size
    found = {"lora_rank": 16, "load_in_4bit": False, "max_prompt_length": 512}
    found |= {"dtype": "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"}
    found |= {"per_device_batch": at_once, "batch_size": at_once * args.gradient_accumulation_steps}
    found |= {"vllm": args.vllm_mode if args.use_vllm else "off"}
    found |= {"vllm_gpu_memory": args.vllm_gpu_memory_utilization}
    same = ("num_generations", "max_completion_length", "gradient_checkpointing")
    return found | {name: getattr(args, name) for name in same}


def _changes(shape: Shape, run: RunConfig, gib: float) -> Iterator[tuple[str, str, float]]:
    """The cheapest changes that save memory, one by one, until the run fits."""
    takes = lambda run: total(memory(shape, run, gib))  # noqa: E731
    changed = so_far = run
    while takes(changed) > USABLE * gib * GIB:
        for name, (smaller, _) in CHANGES.items():
            candidate = changed.replace(**{name: smaller(changed) or getattr(changed, name)})
            if takes(candidate) < 0.99 * takes(changed):
                changed = candidate
                break
        else:
            break
    for name, (_, cost) in CHANGES.items():
        if (new := getattr(changed, name)) != (old := getattr(run, name)):
            so_far = so_far.replace(**{name: new})
            yield f"{name} {old} -> {new}", cost, takes(so_far)
