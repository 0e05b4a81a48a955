"""How many bytes each part of a GRPO run takes, from the model's own config and the run's values.

The model is built on torch's meta device, where it has shapes and no numbers: weights are counted
by module, and the KV cache is what its own forward pass leaves. Formulas: LoRA (arXiv 2106.09685),
NF4 with double quantization (QLoRA, 2305.14314), AdamW's two moments, activations with and without
recomputing (after 2205.05198). Tests compare each with what tiny models hold. Left out: Unsloth's
fused kernels keep less than Transformers + PEFT, and its checkpointing moves inputs to the host.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.training import TARGET_MODULES

GIB = 2**30
NF4_BYTES = 0.5 + 1 / 64 + 4 / (64 * 256)  # 4 bits; 8 for each 64 weights, 32 for 256 of these
LOGIT_CHUNKS = 4  # Unsloth cuts the logits into at least so many pieces
RESERVE = 1.0 * GIB  # assumed: CUDA context, workspaces of cuBLAS and bitsandbytes
# Unsloth computes these in 32 bits where the GPU has no bfloat16: float16 overflows in them.
FORCED_32_BIT = ("gemma3_text", "gemma4_text", "qwen3_5_text")
# The text part of popular models' config.json, for use without a network.
KNOWN = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))


@dataclass(frozen=True, eq=False)
class Shape:
    """A text decoder on the meta device. Counts are numbers of weights or values, not bytes."""

    model: Any

    @property
    def parameters(self) -> int:
        """All weights; a table that is used twice counts once."""
        return sum(p.numel() for p in self.model.parameters())

    @cached_property
    def layers(self) -> list[dict[str, tuple[int, int]]]:
        """For each layer {projection: (in, out)}, and for its norms {name: (width, 0)}."""
        found = []
        for layer in self.model.get_decoder().layers:
            sizes = {name: tuple(p.shape) for name, p in layer.named_parameters()}
            names = {name: name.removesuffix(".weight").rsplit(".", 1)[-1] for name in sizes}
            shapes = {names[k]: (s[1], s[0]) for k, s in sizes.items() if len(s) == 2}
            shapes |= {names[k]: (s[0], 0) for k, s in sizes.items() if "norm" in names[k]}
            found.append(shapes)
        return found

    @property
    def quantizable(self) -> int:
        """Weights that 4-bit loading shrinks: the linear projections of the layers."""
        return sum(a * b for layer in self.layers for a, b in layer.values())

    def lora(self, rank: int) -> int:
        """Weights of LoRA adapters on the seven projections that the course adapts."""
        adapted = [layer[n] for layer in self.layers for n in TARGET_MODULES if n in layer]
        return sum(rank * (a + b) for a, b in adapted)

    @cache  # noqa: B019 - there are few shapes
    def cached(self, tokens: int) -> int:
        """Values in the cache of one text: what a forward pass leaves, windows and states too."""
        import torch

        ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
        with torch.no_grad():
            out = self.model(input_ids=ids, use_cache=True, logits_to_keep=1)
        return sum(t.numel() for layer in out.past_key_values.layers for t in _tensors(vars(layer)))


def _tensors(value) -> list:
    if hasattr(value, "numel"):
        return [value] if value.ndim > 1 else []
    return [t for v in value.values() for t in _tensors(v)] if isinstance(value, dict) else []


@cache
def find_shape(model: str) -> Shape:
    """A model of KNOWN (with or without owner and variant), a folder or a hub id, without weights.

    Raises WorkbookError for what cannot be found or built.
    """
    from accelerate import init_empty_weights
    from transformers import CONFIG_MAPPING, AutoConfig, AutoModelForCausalLM

    name = re.sub(r"(-unsloth)?-bnb-4bit$", "", model.strip("/ ").rsplit("/", 1)[-1].lower())
    name = re.sub(r"-(it|pt|base|instruct|instruct-2507|thinking-2507)$", "", name)
    folder = Path(model).expanduser()
    try:
        if folder.is_dir() or name not in KNOWN:
            config = AutoConfig.from_pretrained(str(folder)).get_text_config()
        else:
            config = CONFIG_MAPPING[KNOWN[name]["model_type"]](**KNOWN[name])
        with init_empty_weights(include_buffers=True):
            return Shape(AutoModelForCausalLM.from_config(config))
    except Exception as error:  # whatever a config of somebody else's can do
        raise WorkbookError(
            f"the model {model!r} cannot be built from its config ({first_line(error)}): name one "
            f"of {', '.join(KNOWN)}, a folder with a config.json, or a hub id"
        ) from error


def value_bytes(dtype: str) -> int:
    """Bytes of one value in float32, float16 or bfloat16."""
    return 4 if dtype == "float32" else 2


def weight_bytes(shape: Shape, dtype: str, load_in_4bit: bool) -> float:
    """Bytes of the base model: 4-bit shrinks projections; embeddings, head and norms stay wide."""
    wide = value_bytes(dtype)
    kept = shape.parameters - shape.quantizable
    return shape.quantizable * (NF4_BYTES if load_in_4bit else wide) + kept * wide


def kv_cache_bytes(shape: Shape, sequences: int, tokens: int, dtype: str) -> float:
    """Bytes of the keys and values of `sequences` texts of `tokens` tokens each."""
    return sequences * shape.cached(tokens) * value_bytes(dtype)


def logits_bytes(shape: Shape, rows: int, tokens: int) -> float:
    """Bytes of a 32-bit number for every row, token and word of the vocabulary."""
    return rows * tokens * shape.model.config.vocab_size * 4


def layer_bytes(layer: Mapping[str, tuple[int, int]], rank: int, each: int) -> float:
    """Bytes that a layer keeps for the backward pass, for one token, `each` bytes an activation.

    Inputs of adapters, of products and of norms. In 16 bits the norms still work in 32, and PEFT
    copies the input for each adapter, where in 32 bits the adapters of one input share it.
    """
    size = lambda name, side: layer.get(name, (0, 0))[side]  # noqa: E731
    adapted = [name for name in TARGET_MODULES if name in layer]
    shared = ("k_proj", "v_proj", "up_proj") if each == 4 else ()
    query, key = size("o_proj", 0), size("k_proj", 1)
    kept = sum(size(name, 0) for name in adapted if name not in shared) + rank * len(adapted)
    kept += 3 * size("down_proj", 0) + (1 if each == 4 else 2) * query + 2 * key
    kept += 4 * (size("in_proj_qkv", 1) + size("in_proj_z", 1))  # linear attention, roughly
    norms = [w for name, (w, out) in layer.items() if not out and name not in ("q_norm", "k_norm")]
    per_head = query + key if "q_norm" in layer else 0
    return kept * each + 4 * (sum(norms) + per_head)


def activation_bytes(
    shape: Shape, tokens: int, rank: int, each: int, checkpointing: bool
) -> dict[str, float]:
    """Bytes, by part, that a forward pass over `tokens` tokens in all keeps for the backward."""
    every = [tokens * layer_bytes(layer, rank, each) for layer in shape.layers]
    if not checkpointing:
        return {"activations of all layers": sum(every)}
    inputs = tokens * len(every) * shape.model.config.hidden_size * each
    return {"inputs of all layers": inputs, "one layer, computed again": max(every)}


def memory(
    shape: Shape, run: RunConfig, processes: int = 1, gib: float = 0.0
) -> dict[str, dict[str, float]]:
    """Bytes by part for one of `processes`: {"always": ..., "sampling": ..., "learning": ...}.

    Sampling and learning come one after the other: the larger counts. `gib` is the GPU's memory, of
    which vLLM beside the training takes its part all the time.
    """
    rows = max(1, run.batch_size // processes)
    at_once = min(run.per_device_batch, rows)
    length, wide = run.max_prompt_length + run.max_completion_length, value_bytes(run.dtype)
    weights = weight_bytes(shape, run.dtype, run.load_in_4bit)
    adapters = shape.lora(run.lora_rank) * 4  # kept in 32 bits, with their gradients and moments
    always = {
        f"weights ({'4-bit' if run.load_in_4bit else f'{8 * wide}-bit'})": weights,
        "LoRA adapters": adapters,
        "their gradients": adapters,
        "optimizer (AdamW)": 2 * adapters,
        "reserve (assumed)": RESERVE,
    }
    sampling = {}
    if run.vllm == "colocate" and gib:  # it shares the weights with the training
        room = always["KV cache of vLLM"] = run.vllm_gpu_memory * gib * GIB - weights
        if room < kv_cache_bytes(shape, 1, length, run.dtype):
            part = f"vllm_gpu_memory={run.vllm_gpu_memory:g} of {gib:g} GiB"
            raise WorkbookError(f"{part} has no room for one completion: give more, or vllm=off")
    elif run.vllm == "off":  # Transformers writes all completions of a step side by side
        cached = kv_cache_bytes(shape, rows, length, run.dtype)
        width = shape.model.config.hidden_size + max(
            layer["down_proj"][0] for layer in shape.layers
        )
        sampling = {
            "KV cache": cached,
            "one layer's cache, copied": cached / len(shape.layers),
            "prompts": rows * run.max_prompt_length * 2 * width * wide,
            "logits of a token": 2 * logits_bytes(shape, rows, 1),
        }
    forced = run.dtype == "float16" and shape.model.config.model_type in FORCED_32_BIT
    tokens, each = at_once * length, 4 if forced else wide
    learning = activation_bytes(shape, tokens, run.lora_rank, each, run.gradient_checkpointing)
    logits = logits_bytes(shape, at_once, run.max_completion_length)
    learning["logits and gradient, in pieces"] = 2 * logits / LOGIT_CHUNKS
    return {"always": always, "sampling": sampling, "learning": learning}


def total(parts: Mapping[str, Mapping[str, float]]) -> float:
    """The most bytes that are held at once."""
    sums = {phase: sum(sizes.values()) for phase, sizes in parts.items()}
    return sums["always"] + max(sums["sampling"], sums["learning"])
