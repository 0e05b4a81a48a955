"""How many bytes each part of a GRPO run takes, from the model's architecture and the settings.

Formulas: LoRA (Hu et al., arXiv 2106.09685), NF4 with double quantization (Dettmers et al., QLoRA, arXiv 2305.14314),
AdamW's two moments, activations with and without recomputing (after Korthikanti et al., arXiv 2205.05198, counted for
these decoders), keys and values of the cache. Tests compare each with what the tiny models really hold.

What they leave out: Unsloth's fused kernels keep less than plain Transformers + PEFT, whose activations are counted
here, and its checkpointing moves the layers' inputs to the host. Its own 4-bit files keep some projections in 16 bits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_workbook.config import RunConfig
from grpo_workbook.planning.architectures import ADAPTED, Architecture, Layer

GIB = 2**30
NF4_BYTES = (
    0.5 + 1 / 64 + 4 / (64 * 256)
)  # a half byte, a scale of 8 bits per 64, a scale of 32 bits per 256 scales
ADAPTER_BYTES = 4  # PEFT and Unsloth keep adapters, their gradients and AdamW's moments in 32 bits
LOGIT_CHUNKS = 4  # Unsloth cuts the logits into at least so many pieces
RESERVE = 1.0 * GIB  # assumed: CUDA context, cuBLAS and bitsandbytes workspaces
# Unsloth computes these in 32 bits where the GPU has no bfloat16: in float16 their gradients are not numbers.
FORCED_32_BIT = ("gemma3_text", "gemma4_text", "qwen3_5_text")


@dataclass(frozen=True)
class Memory:
    """Bytes by part. The generation and the update come one after the other: the larger of the two counts."""

    always: Mapping[str, float]
    generation: Mapping[str, float]
    update: Mapping[str, float]

    @property
    def generating(self) -> float:
        """Bytes while completions are drawn."""
        return sum(self.always.values()) + sum(self.generation.values())

    @property
    def learning(self) -> float:
        """Bytes while the adapters are updated."""
        return sum(self.always.values()) + sum(self.update.values())

    @property
    def total(self) -> float:
        """The larger of the two, in bytes."""
        return max(self.generating, self.learning)

    @property
    def parts(self) -> dict[str, float]:
        """Bytes of every part, those of both phases."""
        return {**self.always, **self.generation, **self.update}


def value_bytes(dtype: str) -> int:
    """Bytes of one value in float32, float16 or bfloat16."""
    return 4 if dtype == "float32" else 2


def activation_value_bytes(a: Architecture, dtype: str) -> int:
    """Bytes of one activation while training: 4 as well where Unsloth replaces float16 by 32 bits."""
    return 4 if dtype == "float32" or (dtype == "float16" and a.model_type in FORCED_32_BIT) else 2


def weight_bytes(a: Architecture, dtype: str, load_in_4bit: bool) -> float:
    """Bytes of the base model. In 4-bit the projections shrink to NF4; embeddings, head and norms keep their type."""
    wide = value_bytes(dtype)
    return a.quantizable * (NF4_BYTES if load_in_4bit else wide) + a.kept * wide


def kv_cache_bytes(a: Architecture, sequences: int, tokens: int, dtype: str) -> float:
    """Bytes of the keys and values of `sequences` texts of `tokens` tokens each that are generated at once."""
    return sequences * a.cached(tokens) * value_bytes(dtype)


def logits_bytes(a: Architecture, rows: int, tokens: int, each: int = 4) -> float:
    """Bytes of one number for every row, token and word of the vocabulary, `each` bytes wide: losses are computed in
    32 bits.
    """
    return rows * tokens * a.vocabulary * each


def layer_bytes(layer: Layer, hidden: int, rank: int, each: int) -> float:
    """Bytes that one layer keeps for the backward pass, for one token: inputs of adapters, of norms, of products.

    `each`: bytes of an activation. In 16 bits the norms still work in 32, and PEFT keeps a copy for each adapter where
    in 32 bits the adapters of one input share it.
    """
    adapted = {name: size for name, size in layer.linear.items() if name in ADAPTED}
    shared = (
        {"k_proj", "v_proj", "up_proj"} if each == 4 else set()
    )  # q and gate hold their input already
    inputs = sum(size[0] for name, size in adapted.items() if name not in shared)
    mixing = 4 * sum(
        layer.linear[n][1] for n in ("in_proj_qkv", "in_proj_z") if n in layer.linear
    )  # a rough count
    queries = (1 if each == 4 else 2) * layer.query
    kept = inputs + 3 * layer.inner + queries + 2 * layer.key + rank * len(adapted) + mixing
    norms = layer.norms * (hidden + 1) + layer.query + layer.key + 2 * layer.heads + layer.kv_heads
    return kept * each + norms * 4


def activation_bytes(
    a: Architecture, rows: int, tokens: int, rank: int, each: int, checkpointing: bool
) -> dict[str, float]:
    """Bytes, by part, that a forward pass over `rows` texts of `tokens` tokens keeps for the backward pass.

    `rank` is that of LoRA, `each` the bytes of an activation. With checkpointing: every layer's input and one whole
    layer.
    """
    every = [layer_bytes(layer, a.hidden, rank, each) for layer in a.layers]
    if not checkpointing:
        return {"activations of all layers": rows * tokens * sum(every)}
    return {
        "inputs of all layers": rows * tokens * len(every) * a.hidden * each,
        "one layer, computed again": rows * tokens * max(every),
    }


def vllm_cache_bytes(a: Architecture, s: RunConfig, gib: float) -> float:
    """Bytes that vLLM beside the training has for keys and values: its share of the GPU (`gib` GiB), less the weights,
    which both use.
    """
    return max(0.0, s.vllm_gpu_memory * gib * GIB - weight_bytes(a, s.dtype, s.load_in_4bit))


def memory(a: Architecture, s: RunConfig, processes: int = 1, gib: float = 0.0) -> Memory:
    """All parts for one process of `processes`, each with a whole copy of the model and its share of the batch.

    `gib` is the GPU's memory in GiB, of which vLLM beside the training takes its share whether it generates or not.
    """
    rows = max(1, s.batch_size // processes)
    training = min(s.per_device_batch, rows)
    tokens, wide = s.max_prompt_length + s.max_completion_length, value_bytes(s.dtype)
    adapters = a.lora(s.lora_rank) * ADAPTER_BYTES
    always = {
        f"weights ({'4-bit' if s.load_in_4bit else f'{8 * wide}-bit'})": weight_bytes(
            a, s.dtype, s.load_in_4bit
        ),
        "LoRA adapters": adapters,
        "their gradients": adapters,
        "optimizer (AdamW)": 2 * adapters,
        "reserve (assumed)": RESERVE,
    }
    return Memory(
        always=always
        | ({"KV cache of vLLM": vllm_cache_bytes(a, s, gib)} if s.vllm == "colocate" else {}),
        generation=_generation(a, s, rows, tokens, wide) if s.vllm == "off" else {},
        update={
            **activation_bytes(
                a,
                training,
                tokens,
                s.lora_rank,
                activation_value_bytes(a, s.dtype),
                s.gradient_checkpointing,
            ),
            # the logits and their gradient
            "logits, in pieces": 2
            * logits_bytes(a, training, s.max_completion_length)
            / LOGIT_CHUNKS,
        },
    )


def _generation(
    a: Architecture, s: RunConfig, rows: int, tokens: int, wide: int
) -> dict[str, float]:
    """With Transformers all completions of a step are written side by side."""
    cache = kv_cache_bytes(a, rows, tokens, s.dtype)
    widest = max(layer.inner for layer in a.layers)
    prefill = rows * s.max_prompt_length * (2 * a.hidden + 2 * widest) * wide
    return {
        "KV cache": cache,
        "one layer's cache, copied": cache / len(a.layers),
        "prompts, logits of a token": prefill + 2 * logits_bytes(a, rows, 1),
    }
