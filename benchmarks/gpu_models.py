"""Models with random weights in real architectures, made without a network, for benchmarks/gpu.py.

Speed and memory do not depend on the values of the weights but on their shapes, including the
vocabulary: the logits of 151,936 tokens need more memory than most layers. So the shapes are the
published ones, and the course's tiny tokenizer is filled up to the vocabulary with unused tokens.
"""

import json
import shutil
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data"

QWEN = {"model_type": "qwen3", "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936,
        "max_position_embeddings": 40_960, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0}}  # fmt: skip
GEMMA = {"model_type": "gemma3_text", "head_dim": 256, "query_pre_attn_scalar": 256,
"vocab_size": 262_144,
         "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6,
         "tie_word_embeddings": True}  # fmt: skip

# The published shapes: layers, width, feed-forward width, heads, and whether the head is the
# embedding.
SIZES = {
    "0.6B": QWEN | {"num_hidden_layers": 28, "hidden_size": 1024, "intermediate_size": 3072,
                    "num_attention_heads": 16, "tie_word_embeddings": True},
    "1.7B": QWEN | {"num_hidden_layers": 28, "hidden_size": 2048, "intermediate_size": 6144,
                    "num_attention_heads": 16, "tie_word_embeddings": True},
    "4B": QWEN | {"num_hidden_layers": 36, "hidden_size": 2560, "intermediate_size": 9728,
                  "num_attention_heads": 32, "tie_word_embeddings": True},
    "8B": QWEN | {"num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12_288,
                  "num_attention_heads": 32, "tie_word_embeddings": False},
    "gemma-1B": GEMMA | {"num_hidden_layers": 26, "hidden_size": 1152, "intermediate_size": 6912,
                         "num_attention_heads": 4, "num_key_value_heads": 1, "sliding_window": 512},
    "gemma-4B": GEMMA | {"num_hidden_layers": 34, "hidden_size": 2560, "intermediate_size": 10_240,
                         "num_attention_heads": 8, "num_key_value_heads": 4,
                         "sliding_window": 1024},
}  # fmt: skip
TINY = ("tiny", "gemma-tiny")  # the shapes of the course's own models, for a CPU


def family_of(size: str) -> str:
    """ "qwen" or "gemma"."""
    return "gemma" if size.startswith("gemma") else "qwen"


def make_config(size: str):
    """The Transformers config of a size of SIZES or TINY, with the tiny tokenizer's special
    tokens."""
    from transformers import CONFIG_MAPPING

    if size in TINY:
        values = json.loads((_tiny(size) / "config.json").read_text(encoding="utf-8"))
    else:
        values = dict(SIZES[size])
        if family_of(size) == "gemma":  # five layers of sliding attention, then one that sees all
            layers = values["num_hidden_layers"]
            values["layer_types"] = [
                "full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)
            ]
            values["rope_parameters"] = {
                "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            }
            values["bos_token_id"] = 2
    values |= {"eos_token_id": 1, "pad_token_id": 0}  # as data/tiny-*/tokenizer.json has them
    return CONFIG_MAPPING[values.pop("model_type")](**values)


def _tiny(size: str) -> Path:
    return DATA / {"qwen": "tiny-qwen3", "gemma": "tiny-gemma3"}[family_of(size)]


def write_tokenizer(size: str, vocabulary: int, folder: Path) -> None:
    """The tiny tokenizer of the family, with as many tokens as the model has embeddings."""
    source = _tiny(size)
    for name in ("tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(source / name, folder)
    tokenizer = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))
    words = tokenizer["model"]["vocab"]
    taken = set(words.values()) | {t["id"] for t in tokenizer["added_tokens"]}
    words.update({f"~{i}~": i for i in range(vocabulary) if i not in taken})
    (folder / "tokenizer.json").write_text(
        json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8"
    )


def write_model(size: str, folder: Path, device: str = "cpu", seed: int = 0) -> dict:
    """Random bfloat16 weights of this size, made on `device`, as safetensors with config and
    tokenizer.

    Returns {"parameters", "bytes", "vocabulary"}. Raises OSError when the disk cannot hold them.
    """
    import torch
    from transformers import AutoModelForCausalLM

    config = make_config(size)
    needed = 2 * count_parameters(size) + 2**28
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(
            f"{size} needs {needed / 2**30:.1f} GiB in {folder} and {free / 2**30:.1f} are free: "
            f"name --work"
        )
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.generation_config.update(eos_token_id=1, pad_token_id=0)
    model.save_pretrained(folder, max_shard_size="4GB")
    write_tokenizer(size, config.vocab_size, folder)
    return {
        "parameters": model.num_parameters(),
        "bytes": sum(f.stat().st_size for f in folder.glob("*.safetensors")),
        "vocabulary": config.vocab_size,
    }


def count_parameters(size: str) -> int:
    """How many weights a model of this size has. Nothing is allocated."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(make_config(size)).num_parameters()
