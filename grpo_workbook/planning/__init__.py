"""What a GRPO run takes in memory, before it starts: by part, whether it fits, what to change."""

from grpo_workbook.planning.fit import Plan, plan
from grpo_workbook.planning.memory import (
    GIB,
    KNOWN,
    Shape,
    activation_bytes,
    find_shape,
    kv_cache_bytes,
    logits_bytes,
    memory,
    total,
    weight_bytes,
)  # fmt: skip

__all__ = [
    "GIB", "KNOWN", "Plan", "Shape", "activation_bytes", "find_shape", "kv_cache_bytes",
    "logits_bytes", "memory", "plan", "total", "weight_bytes",
]  # fmt: skip
