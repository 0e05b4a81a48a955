"""Unsloth's path for a GPU on a machine without one: torch.cuda is faked, Triton is interpreted.

Import it before unsloth. The two kernels that run once for each row are PyTorch here: interpreted
they would take minutes. 4-bit kernels and bfloat16 cannot be tried so.
"""

import os
import sys
from types import SimpleNamespace

os.environ |= {"TRITON_INTERPRET": "1", "UNSLOTH_ALLOW_CPU": "1", "UNSLOTH_COMPILE_DISABLE": "1"}
os.environ |= {"UNSLOTH_DISABLE_STATISTICS": "1", "UNSLOTH_ENABLE_FLEX_ATTENTION": "0"}

import torch

GIB = 22.1
CAPABILITY = tuple(map(int, os.environ.get("FAKE_CAPABILITY", "8.9")[::2]))  # an L4; T4: 7.5
PROPERTIES = SimpleNamespace(
    name="Fake GPU", total_memory=int(GIB * 2**30), major=CAPABILITY[0], minor=CAPABILITY[1],
    multi_processor_count=40, gcnArchName="", warp_size=32, regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=1024, shared_memory_per_multiprocessor=65536,
    shared_memory_per_block_optin=65536, L2_cache_size=4 << 20, is_integrated=False,
)  # fmt: skip
ANSWERS = {
    "get_device_properties": PROPERTIES, "get_device_capability": CAPABILITY,
    "get_device_name": PROPERTIES.name, "current_device": 0, "memory_stats": {},
    "mem_get_info": (PROPERTIES.total_memory, PROPERTIES.total_memory),
    "empty_cache": None, "synchronize": None, "reset_peak_memory_stats": None, "ipc_collect": None,
    "max_memory_reserved": 0, "max_memory_allocated": 0, "memory_reserved": 0,
    "memory_allocated": 0,
}  # fmt: skip
for _name, _answer in ANSWERS.items():
    setattr(torch.cuda, _name, lambda *given, _answer=_answer, **more: _answer)


class _OneDevice(list):
    """A list with an entry for each GPU: whatever is asked for, it is the only one."""

    def __getitem__(self, i):
        return super().__getitem__(i if isinstance(i, int | slice) else 0)

    def __setitem__(self, i, value):
        super().__setitem__(i if isinstance(i, int | slice) else 0, value)


class _One(int):
    def __rmul__(self, other):
        return _OneDevice(other) if isinstance(other, list) else other * int(self)


def arm() -> None:
    """After `import unsloth`: its trainers are compiled, its kernels and caches lie on the CPU."""
    import transformers.training_args
    import unsloth_zoo.device_type
    from unsloth import FastLanguageModel, FastModel
    from unsloth.models import llama, rl

    os.environ["UNSLOTH_ALLOW_CPU"] = "0"
    half = CAPABILITY >= (8, 0)
    has_half = lambda *given, **more: half  # noqa: E731
    torch.cuda.is_bf16_supported = has_half
    transformers.training_args.is_torch_bf16_gpu_available = has_half
    unsloth_zoo.device_type.device_is_bf16_supported = has_half
    rl.PatchFastRL(None, None)
    rl.PatchRL(FastLanguageModel)
    llama.DEVICE_COUNT, llama.DEVICE_TYPE_TORCH = _One(1), "cpu"
    llama.get_current_device = lambda: "cpu"
    llama._LazyDeviceScratch.__getitem__ = _scratch
    for thing in vars(llama).values():
        if isinstance(thing, type) and "_build_rope_cache" in vars(thing):
            thing._build_rope_cache = _rope_cache
    kernels = {"fast_rms_layernorm": _rms_norm, "fast_rope_embedding": _rope}
    for module in [m for name, m in sys.modules.items() if "unsloth" in name.lower()]:
        if hasattr(module, "is_bfloat16_supported"):
            module.is_bfloat16_supported, module.SUPPORTS_BFLOAT16 = has_half, half
        for name, kernel in kernels.items():
            if hasattr(module, name):
                setattr(module, name, kernel)
    for loader in (FastLanguageModel, FastModel):
        loader.from_pretrained = staticmethod(_on_the_cpu(loader.from_pretrained))


def _on_the_cpu(load):
    return lambda *given, **more: load(*given, **{"device_map": "cpu"} | more)


def _scratch(self, i):
    i = i if isinstance(i, int) else 0
    if list.__getitem__(self, i) is None:
        list.__setitem__(self, i, self._make(torch.device("cpu")))
    return list.__getitem__(self, i)


def _rope_cache(self, device_index):
    size, how = self.current_rope_size, {"device": torch.device("cpu")}
    with self._rope_build_mode():
        self._set_cos_sin_cache(self._rope_cache_rows(), dtype=self._rope_cache_dtype, **how)
    self.current_rope_size = size
    self._rope_cache_versions[device_index] = self._rope_cache_version
    self._mark_rope_build(device_index)


def _rms_norm(norm, x, gemma=False, **more):
    epsilon = getattr(norm, "variance_epsilon", None) or norm.eps
    wide = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + epsilon)
    if gemma:
        return (wide * (norm.weight.float() + 1)).to(x.dtype)
    return wide.to(norm.weight.dtype) * norm.weight


def _rope(q, k, cos, sin, indices=None):
    def turned(x):
        return torch.cat((-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]), -1)

    tokens, cos, sin = q.shape[2], cos.squeeze(), sin.squeeze()
    if indices is None:
        cos, sin = cos[:tokens], sin[:tokens]
    else:
        rows = indices.reshape(1 if indices.numel() == tokens else -1, tokens)
        cos, sin = cos[rows].unsqueeze(1), sin[rows].unsqueeze(1)
    cos, sin = cos.to(q.dtype), sin.to(q.dtype)
    return q * cos + turned(q) * sin, k * cos + turned(k) * sin
