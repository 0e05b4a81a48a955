"""How long a GRPO step takes on paper: what must be computed and read, over what a GPU can do. Nothing is measured.

Generation writes one token after another: every token reads all weights and the cache, so memory bandwidth and the
time to start the kernels bound it. The update sees all tokens at once: arithmetic bounds it. Between several GPUs the
adapters' gradients are added up (a ring all-reduce). Every function gives seconds; `rows` are completions.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from grpo_workbook.config import RunConfig
from grpo_workbook.planning.architectures import Architecture
from grpo_workbook.planning.memory import (
    ADAPTER_BYTES,
    kv_cache_bytes,
    value_bytes,
    vllm_cache_bytes,
    weight_bytes,
)


@dataclass(frozen=True)
class Gpu:
    """One GPU, from its maker's data sheet; memory as torch reports it."""

    name: str
    gib: float
    tflops: float  # dense, 16 bits
    bandwidth: float  # GB/s of its memory


GPUS: dict[str, Gpu] = {
    "t4": Gpu("T4", 14.7, 65, 320),
    "24gb": Gpu("L4", 22.1, 121, 300),
    "80gb": Gpu("A100 80GB", 79.1, 312, 1935),
}

# Every assumption of the time estimate: (value, why). None of them was measured here.
ASSUMED: dict[str, tuple[float, str]] = {
    "compute": (0.35, "share of the data sheet's arithmetic that is reached"),
    "bandwidth": (0.6, "share of the data sheet's bandwidth that is reached"),
    "start_ms": (1.0, "ms to start a layer's kernels for a token (Transformers)"),
    "start_ms_vllm": (0.1, "the same with vLLM, which records them once (CUDA graphs)"),
    "unpacking": (4.0, "bytes to unpack a weight: written and read in 16 bits"),
    "network_gb": (25.0, "GB/s between machines, for each GPU (200 Gbit/s)"),
    "network_us": (20.0, "microseconds for a message between two GPUs"),
}


def generation_seconds(a: Architecture, s: RunConfig, gpu: Gpu, rows: int) -> float:
    """Writing `rows` completions of full length: the longest decides, so this is an upper bound.

    Side by side, or, where vLLM beside the training has no room for all, one wave after another.
    """
    if s.vllm == "colocate":
        room = max(1, vllm_room(a, s, gpu.gib))
        whole, rest = divmod(rows, room)
        return whole * _writing(a, s, gpu, room) + (_writing(a, s, gpu, rest) if rest else 0.0)
    return _writing(a, s, gpu, rows)


def vllm_room(a: Architecture, s: RunConfig, gib: float) -> int:
    """How many completions of full length vLLM beside the training can write at once."""
    each = kv_cache_bytes(a, 1, s.max_prompt_length + s.max_completion_length, s.dtype)
    return int(vllm_cache_bytes(a, s, gib) // each)


def _writing(a: Architecture, s: RunConfig, gpu: Gpu, rows: int) -> float:
    tokens = s.max_completion_length
    middle = s.max_prompt_length + tokens // 2
    read = weight_bytes(a, s.dtype, s.load_in_4bit) - _tables(a, s)
    if s.load_in_4bit and rows > 1:
        read += a.quantizable * ASSUMED["unpacking"][0]
    read += kv_cache_bytes(a, rows, middle, s.dtype)
    moving = read / (gpu.bandwidth * 1e9 * ASSUMED["bandwidth"][0])
    computing = 2 * rows * a.multiplied / _speed(gpu)
    starting = len(a.layers) * ASSUMED["start_ms" if s.vllm == "off" else "start_ms_vllm"][0] / 1000
    prompts = 2 * rows * s.max_prompt_length * a.quantizable / _speed(gpu)
    return tokens * (max(moving, computing) + starting) + prompts


def _tables(a: Architecture, s: RunConfig) -> float:
    """Bytes of embedding tables from which a token reads one row only; the head is read whole."""
    return max(0, a.embedding - a.vocabulary * a.hidden) * value_bytes(s.dtype)


def update_seconds(a: Architecture, s: RunConfig, gpu: Gpu, rows: int) -> float:
    """Forward and backward over `rows` completions of full length.

    2 operations for each weight and token forward, 2 back: frozen weights need no gradient of their own, which saves a
    third against full training. Checkpointing computes forward once more; a KL penalty adds the reference's forward.
    """
    tokens = rows * (s.max_prompt_length + s.max_completion_length)
    passes = 2 + s.gradient_checkpointing + (s.beta > 0)
    length = s.max_prompt_length + s.max_completion_length
    attention = sum(2 * min(length, layer.window or length) * layer.query for layer in a.layers)
    return passes * tokens * (2 * a.multiplied + attention) / _speed(gpu)


def communication_seconds(a: Architecture, s: RunConfig, processes: int) -> float:
    """Adding up the adapters' gradients around a ring: 2 (n-1) / n of their bytes, and 2 (n-1) messages."""
    if processes == 1:
        return 0.0
    volume = 2 * (processes - 1) / processes * a.lora(s.lora_rank) * ADAPTER_BYTES
    messages = 2 * (processes - 1) * ASSUMED["network_us"][0] / 1e6
    return volume / (ASSUMED["network_gb"][0] * 1e9) + messages


def step_seconds(a: Architecture, s: RunConfig, gpu: Gpu, processes: int = 1) -> dict[str, float]:
    """Seconds of one optimizer step by part; the batch is shared out, and more GPUs than completions are idle."""
    rows = -(-s.batch_size // processes)
    return {
        "generation": generation_seconds(a, s, gpu, rows),
        "update": update_seconds(a, s, gpu, rows),
        "communication": communication_seconds(a, s, min(processes, s.batch_size)),
    }


def saturation(
    a: Architecture, s: RunConfig, gpu: Gpu, counts: tuple[int, ...]
) -> tuple[dict[int, Mapping[str, float]], str, int]:
    """(seconds by part for each number of GPUs, the part that stops shrinking first, from how many GPUs on).

    A part has stopped shrinking when four times as many GPUs leave it more than half of what it took.
    """
    found = {n: step_seconds(a, s, gpu, n) for n in counts}
    for few, many in zip(counts, counts[2:], strict=False):
        stuck = [p for p in ("generation", "update") if found[many][p] > found[few][p] / 2]
        if stuck:
            return found, max(stuck, key=lambda p: found[few][p]), few
    return found, "", counts[-1]


def _speed(gpu: Gpu) -> float:
    return gpu.tflops * 1e12 * ASSUMED["compute"][0]
