"""Every work-around for a version of TRL, Unsloth, PEFT, bitsandbytes or Transformers.

Each is one function with a docstring that names the version and the cause, so that it can be
removed when the library has changed. The pinned versions are in requirements.txt.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def let_vllm_sleep() -> None:
    """Let a colocated vLLM give its memory back during the update; call it before `import unsloth`.

    Unsloth 2026.10 reads both variables when it is imported, as its own notebooks set them. With
    the second one vllm_gpu_memory_utilization counts all the same. What is set already stays.
    """
    if "unsloth" not in sys.modules:
        os.environ.setdefault("UNSLOTH_VLLM_STANDBY", "1")
        os.environ.setdefault("UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE", "1")


def keep_float32(dtype: str) -> None:
    """Let Unsloth's trainer on a GPU compute in the dtype of the model ("float32", ...).

    Unsloth 2026.10 decides by this variable, when a trainer is built, whether to compute in
    bfloat16, and its get_peft_model sets it so that a float32 model would be. Call it after
    get_peft_model.
    """
    os.environ["UNSLOTH_MIXED_PRECISION"] = "bfloat16" if dtype == "float32" else "float32"


def keep_packed_weights(model: Any) -> None:
    """Let gradients pass through 4-bit layers on a CPU after the model has generated.

    bitsandbytes 0.50 packs 4-bit weights again for its AVX512-BF16 kernel on the first forward
    without gradients, and the backward pass then reads them wrongly. Unsloth switches it off too.
    """
    for layer in model.modules():
        if hasattr(layer, "support_avx512bf16_for_cpu"):
            layer.support_avx512bf16_for_cpu = False


def is_packed_again(quant_state: Any) -> bool:
    """Whether bitsandbytes 0.50 has packed a 4-bit weight for its kernel (`keep_packed_weights`).

    Its dequantize_4bit cannot read such a weight.
    """
    return bool(getattr(quant_state, "packing_format_for_cpu", False))


@contextmanager
def grouped_heads_without_copies() -> Iterator[None]:
    """Let PyTorch's attention read the keys and values of a group of heads in place.

    Transformers 5.17 copies them for each head where it does not know that the kernel can do
    without, as on a CPU. The copies take a large part of the time of a tiny model.
    """
    from transformers.integrations import sdpa_attention

    original = sdpa_attention.use_gqa_in_sdpa
    sdpa_attention.use_gqa_in_sdpa = lambda *arguments: True
    try:
        yield
    finally:
        sdpa_attention.use_gqa_in_sdpa = original


def free_vllm(model: Any) -> None:
    """End the vLLM engine that Unsloth 2026.10 has put beside a model, if there is one.

    It holds its part of the GPU until it is deleted by Unsloth's own function.
    """
    if hasattr(model, "vllm_engine"):
        from unsloth_zoo.vllm_utils import delete_vllm

        delete_vllm(model.vllm_engine)


def why_not_plain(device: str) -> str | None:
    """Why plain Transformers, PEFT and TRL cannot train on this device ("cpu", "cuda"), or None.

    TRL 1.15 calls a Triton kernel without asking whether there is Triton (trl/trainer/utils.py,
    "'NoneType' object has no attribute 'apply'"). Unsloth's import replaces it.
    """
    if device == "cpu":
        return "TRL 1.15 computes log-probabilities in a Triton kernel, which needs a GPU"
    return None
