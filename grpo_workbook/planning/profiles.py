"""The catalogue: for every GPU profile and model that the course names, all values of a run.

The values are common ones, reasoned and not tried: nobody has run an entry on its GPU yet (`tried`). What an entry
takes in memory and time is not written down here but computed by estimate.py, and a test keeps every entry within its
profile's memory.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.config import PROFILES, RunConfig, replace_settings
from grpo_workbook.planning.architectures import KNOWN, short_name

# Checkpoints with vision or sound: Unsloth's FastModel takes their text part (text_only=True).
MANY_SENSES = ("gemma-3-4b", "gemma-3-12b", "gemma-3-27b", "gemma-4-", "qwen3.5-")

# Completions in a step, in a group, in memory at once; longest prompt and completion; learning rate; steps; base;
# vLLM's share of the GPU's memory. vLLM pays where there is room for it beside training: on a T4 there is little, and
# Gemma 4 needs compute capability 8.0 for it. With Qwen3.5 and Gemma 4 Transformers draws, to begin with.
_TABLE = """
t4    qwen3-0.6b    32  8   8   384   512  2e-5  250  16-bit off
t4    qwen3-1.7b    32  8   8   384   512  1e-5  250  4-bit  off
t4    qwen3-4b      32  8   4   384   512  1e-5  150  4-bit  off
t4    qwen3-8b      16  8   2   384   384  5e-6  100  4-bit  off
t4    gemma-3-270m  32  8   8   384   512  5e-5  300  16-bit off
t4    gemma-3-1b    32  8   8   384   512  1e-5  250  16-bit off
t4    gemma-3-4b    32  8   4   384   512  1e-5  150  4-bit  off
t4    qwen3.5-0.8b  32  8   8   384   512  2e-5  250  16-bit off
t4    qwen3.5-4b    32  8   2   384   512  1e-5  150  16-bit off
t4    gemma-4-e2b   32  8   4   384   512  1e-5  150  4-bit  off
24gb  qwen3-0.6b    64  8   16  512   768  2e-5  300  16-bit 0.3
24gb  qwen3-1.7b    64  8   16  512   768  1e-5  300  16-bit 0.4
24gb  qwen3-4b      32  8   8   512   768  1e-5  250  16-bit 0.5
24gb  qwen3-8b      32  8   4   512   768  5e-6  150  4-bit  off
24gb  gemma-3-270m  64  8   16  512   768  5e-5  300  16-bit 0.2
24gb  gemma-3-1b    64  8   16  512   768  1e-5  300  16-bit 0.3
24gb  gemma-3-4b    32  8   8   512   768  1e-5  250  16-bit 0.5
24gb  qwen3.5-0.8b  64  8   16  512   768  2e-5  300  16-bit off
24gb  qwen3.5-4b    32  8   8   512   768  1e-5  250  16-bit off
24gb  gemma-4-e2b   32  8   8   512   768  1e-5  250  16-bit off
24gb  gemma-4-e4b   32  8   4   512   768  1e-5  200  4-bit  off
80gb  qwen3-0.6b    128 8   32  512   1024 2e-5  400  16-bit 0.3
80gb  qwen3-1.7b    128 8   32  512   1024 1e-5  400  16-bit 0.3
80gb  qwen3-4b      128 8   32  512   1024 1e-5  300  16-bit 0.4
80gb  qwen3-8b      128 8   16  512   1024 5e-6  250  16-bit 0.5
80gb  gemma-3-270m  128 8   32  512   1024 5e-5  400  16-bit 0.2
80gb  gemma-3-1b    128 8   32  512   1024 1e-5  400  16-bit 0.3
80gb  gemma-3-4b    128 8   32  512   1024 1e-5  300  16-bit 0.4
80gb  gemma-3-12b   64  8   8   512   1024 5e-6  200  16-bit 0.6
80gb  qwen3.5-0.8b  128 8   32  512   1024 2e-5  400  16-bit off
80gb  qwen3.5-4b    128 8   32  512   1024 1e-5  300  16-bit off
80gb  gemma-4-e2b   128 8   32  512   1024 1e-5  300  16-bit off
80gb  gemma-4-e4b   128 8   16  512   1024 1e-5  300  16-bit off
"""


@dataclass(frozen=True)
class Entry:
    """A model on a profile: its settings, the loader that Unsloth gives it, and whether someone has run it."""

    profile: str
    name: str  # as architectures.KNOWN has it
    model: str  # as the hub has it
    settings: RunConfig
    loader: str  # "FastLanguageModel" or "FastModel"
    tried: bool = False


def loader_for(model: str) -> str:
    """Which of Unsloth's loaders takes this hub id or folder: FastModel for checkpoints with vision or sound."""
    folder = Path(model).expanduser()
    if (folder / "config.json").is_file():
        try:
            config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except ValueError:
            config = {}
        many = isinstance(config, dict) and any(
            k in config for k in ("vision_config", "audio_config")
        )
    else:
        many = short_name(model).startswith(MANY_SENSES)
    return "FastModel" if many else "FastLanguageModel"


def _entry(line: str) -> Entry:
    profile, name, batch, group, device, prompt, completion, rate, steps, base, share = line.split()
    settings = replace_settings(
        PROFILES[profile],
        {
            "batch_size": int(batch),
            "num_generations": int(group),
            "per_device_batch": int(device),
            "max_prompt_length": int(prompt),
            "max_completion_length": int(completion),
            "learning_rate": float(rate),
            "steps": int(steps),
            "load_in_4bit": base == "4-bit",
            "vllm": "off" if share == "off" else "colocate",
            "vllm_gpu_memory": None if share == "off" else float(share),
        },
    )
    model = KNOWN[name][1]
    return Entry(profile, name, model, settings, loader_for(model))


CATALOGUE: dict[tuple[str, str], Entry] = {
    (entry.profile, entry.name): entry for entry in map(_entry, _TABLE.strip().splitlines())
}


def find_entry(profile: str, model: str) -> Entry | None:
    """The catalogue's entry for a profile and a hub id or short name; None for a folder, and for what is not there."""
    if Path(model).expanduser().is_dir():
        return None
    return CATALOGUE.get((profile, short_name(model)))
