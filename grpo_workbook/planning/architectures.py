"""What a model is made of, from its config alone: weights that 4-bit shrinks, weights that it does not, KV cache.

The table holds the text decoders that the course names, as their config.json gives them. Tests build each on torch's
meta device and compare the weights. Of Qwen3 and Gemma 3 the totals are those that their makers publish. Of Qwen3.5 and
Gemma 4 the makers count vision and sound as well (0.9, 4.7; 5.1, 8.0 billion): their values were read in several public
copies of the config.json, which agree, and the total of the text part is ours.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.errors import WorkbookError

ADAPTED = (
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj",
)  # what the course adapts

_QWEN3 = {"model_type": "qwen3", "vocab_size": 151936, "head_dim": 128, "num_key_value_heads": 8}
_GEMMA3 = {
    "model_type": "gemma3_text",
    "vocab_size": 262144,
    "head_dim": 256,
    "sliding_window": 512,
}
_QWEN35 = {"model_type": "qwen3_5_text", "vocab_size": 248320, "head_dim": 256, "tie_word_embeddings": True,
           "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
           "linear_num_key_heads": 16, "full_attention_interval": 4}  # fmt: skip
_GEMMA4 = {"model_type": "gemma4_text", "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
           "hidden_size_per_layer_input": 256, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
           "num_attention_heads": 8}  # fmt: skip


def _shape(
    base: dict, hidden: int, inner: int, layers: int, heads: int, kv_heads: int, **more
) -> dict:
    return base | {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        **more,
    }


# name: (text config, what the hub calls it, weights of the text model in billions)
KNOWN: dict[str, tuple[dict, str, float]] = {
    "qwen3-0.6b": (_shape(_QWEN3, 1024, 3072, 28, 16, 8, tie_word_embeddings=True), "unsloth/Qwen3-0.6B", 0.596),
    "qwen3-1.7b": (_shape(_QWEN3, 2048, 6144, 28, 16, 8, tie_word_embeddings=True), "unsloth/Qwen3-1.7B", 1.72),
    "qwen3-4b": (_shape(_QWEN3, 2560, 9728, 36, 32, 8, tie_word_embeddings=True), "unsloth/Qwen3-4B", 4.02),
    "qwen3-8b": (_shape(_QWEN3, 4096, 12288, 36, 32, 8, tie_word_embeddings=False), "unsloth/Qwen3-8B", 8.19),
    "gemma-3-270m": (_shape(_GEMMA3, 640, 2048, 18, 4, 1), "unsloth/gemma-3-270m-it", 0.268),
    "gemma-3-1b": (_shape(_GEMMA3, 1152, 6912, 26, 4, 1), "unsloth/gemma-3-1b-it", 1.00),
    "gemma-3-4b": (
        _shape(_GEMMA3, 2560, 10240, 34, 8, 4, vocab_size=262208, sliding_window=1024),
        "unsloth/gemma-3-4b-it",
        3.88,
    ),
    "gemma-3-12b": (
        _shape(_GEMMA3, 3840, 15360, 48, 16, 8, vocab_size=262208, sliding_window=1024),
        "unsloth/gemma-3-12b-it",
        11.77,
    ),
    "qwen3.5-0.8b": (_shape(_QWEN35, 1024, 3584, 24, 8, 2, linear_num_value_heads=16), "unsloth/Qwen3.5-0.8B", 0.75),
    "qwen3.5-4b": (_shape(_QWEN35, 2560, 9216, 32, 16, 4, linear_num_value_heads=32), "unsloth/Qwen3.5-4B", 4.21),
    "gemma-4-e2b": (
        _shape(
            _GEMMA4, 1536, 6144, 35, 8, 1, num_kv_shared_layers=20, use_double_wide_mlp=True, sliding_window_pattern=5
        ),
        "unsloth/gemma-4-E2B-it",
        4.63,
    ),
    "gemma-4-e4b": (
        _shape(_GEMMA4, 2560, 10240, 42, 8, 2, num_kv_shared_layers=18, sliding_window_pattern=6),
        "unsloth/gemma-4-E4B-it",
        7.46,
    ),
}  # fmt: skip
MODEL_TYPES = ("qwen2", "qwen3", "gemma3_text", "qwen3_5_text", "gemma4_text")


@dataclass(frozen=True)
class Layer:
    """One layer of the decoder. Widths are numbers of values for one token, counts numbers of weights."""

    linear: Mapping[str, tuple[int, int]]  # projection: (in, out); what 4-bit loading quantizes
    other: int  # weights that stay in 16 bits: norms, biases, a convolution
    norms: int  # RMSNorms of the hidden width
    query: int  # width of the queries: heads x head_dim; 0 in a linear attention, which looks at no past token
    heads: int
    key: int  # width of the keys that this layer computes; 0 where it shares another layer's
    kv_heads: int
    inner: int  # width of the MLP
    window: int | None = None  # attention sees so many tokens back; None: all
    state: int = 0  # values of a linear attention's state for one sequence, however long it is

    @property
    def cached(self) -> int:
        """Values in the KV cache for one token: a key and a value."""
        return 2 * self.key


@dataclass(frozen=True)
class Architecture:
    """A decoder for text. Counts are numbers of weights, not bytes."""

    name: str
    model_type: str
    hidden: int
    vocabulary: int
    layers: tuple[Layer, ...]
    embedding: int  # embedding tables, and the head where it is not tied to them
    other: int  # further weights outside of the layers

    @property
    def quantizable(self) -> int:
        """Weights that 4-bit loading shrinks: the linear projections of the layers."""
        return sum(a * b for layer in self.layers for a, b in layer.linear.values())

    @property
    def kept(self) -> int:
        """Weights that stay in 16 bits: embeddings, head, norms."""
        return self.embedding + self.other + sum(layer.other for layer in self.layers)

    @property
    def parameters(self) -> int:
        """All weights; a table that is used twice counts once."""
        return self.quantizable + self.kept

    @property
    def multiplied(self) -> int:
        """Weights that every token is multiplied with: the projections and the head, but no table that is looked up."""
        return self.quantizable + self.vocabulary * self.hidden

    def lora(self, rank: int) -> int:
        """Weights of LoRA adapters on the seven projections that the course adapts: rank x (in + out) for each."""
        return sum(
            rank * (a + b)
            for layer in self.layers
            for n, (a, b) in layer.linear.items()
            if n in ADAPTED
        )

    def cached(self, tokens: int) -> int:
        """Values in the KV cache of one sequence. A sliding window keeps window - 1 tokens; a state never grows."""
        return sum(
            layer.state
            + layer.cached * (tokens if layer.window is None else min(tokens, layer.window - 1))
            for layer in self.layers
        )


def architecture(model: str | Path) -> Architecture:
    """The architecture of a model of the course, of a folder with a config.json, or of a hub model in the local cache.

    A name is recognised with and without its owner, and with the endings of its variants ("-it", "-Base",
    "-unsloth-bnb-4bit"). Asks no network. Raises WorkbookError for a model that is none of these.
    """
    text = str(model)
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise WorkbookError(
                f"the folder {text} has no config.json: name the folder that save_pretrained wrote"
            )
        return from_config(_read(folder / "config.json"), text)
    if (short := short_name(text)) in KNOWN:
        return from_config(KNOWN[short][0], KNOWN[short][1])
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(text, "config.json") if text.count("/") == 1 else None
    except HFValidationError:
        cached = None
    if isinstance(cached, str):
        return from_config(_read(Path(cached)), text)
    raise WorkbookError(
        f"the architecture of {text!r} is not known here: name one of {', '.join(KNOWN)}, a folder with a "
        "config.json, or a hub model that was downloaded before"
    )


def short_name(model: str) -> str:
    """A hub id as the table names it: without owner, variant and quantization."""
    name = model.strip().rstrip("/").rsplit("/", 1)[-1].lower()
    name = re.sub(r"(-unsloth)?-bnb-4bit$|-fp8$", "", name)
    return re.sub(r"-(it|pt|base|instruct|instruct-2507|thinking-2507)$", "", name)


def _read(path: Path) -> dict:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise WorkbookError(f"{path} is not a JSON object: copy the model again")
    return config


def from_config(config: dict, name: str = "") -> Architecture:
    """The architecture that a config.json's content describes; of a model with vision, its text part.

    `name` is what the result and the errors call it. Raises WorkbookError for an architecture that is not in
    MODEL_TYPES, and for a config that lacks a value or has one that cannot be.
    """
    nested = config.get("text_config")
    c = nested if isinstance(nested, dict) else config
    kind = str(c.get("model_type") or config.get("model_type"))
    kind = {"gemma3": "gemma3_text", "qwen3_5": "qwen3_5_text", "gemma4": "gemma4_text"}.get(
        kind, kind
    )
    if kind not in MODEL_TYPES:
        raise WorkbookError(
            f"{name or 'this model'} is a {kind!r}: the estimate knows {', '.join(MODEL_TYPES)}"
        )
    try:
        return _build(
            c,
            kind,
            name,
            bool(c.get("tie_word_embeddings", config.get("tie_word_embeddings", _ties(kind)))),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise WorkbookError(
            f"the config of {name or 'this model'} lacks a value, or has a wrong one ({error}): copy it again"
        ) from None


def _ties(kind: str) -> bool:
    return kind.startswith("gemma")


def _build(c: dict, kind: str, name: str, tied: bool) -> Architecture:
    hidden, vocabulary, count = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"]
    kinds = _layer_types(c, kind, count)
    if min(hidden, vocabulary, count) < 1 or len(kinds) != count:
        raise ValueError(
            f"{count} layers of {len(kinds)} types, {hidden} wide, {vocabulary} tokens"
        )
    shared_from = count - (c.get("num_kv_shared_layers") or 0)
    layers = tuple(_layer(c, kind, kinds[i], i >= shared_from) for i in range(count))
    embedding, other = vocabulary * hidden * (1 if tied else 2), hidden
    if (
        per_layer := c.get("hidden_size_per_layer_input") or 0
    ):  # Gemma 4: a second, much wider table
        embedding += c["vocab_size_per_layer_input"] * count * per_layer
        other += hidden * count * per_layer + per_layer
    return Architecture(name, kind, hidden, vocabulary, layers, embedding, other)


def _layer_types(c: dict, kind: str, count: int) -> list[str]:
    if c.get("layer_types"):
        return list(c["layer_types"])
    if kind == "qwen3_5_text":
        every = c.get("full_attention_interval", 4)
        return ["linear_attention" if (i + 1) % every else "full_attention" for i in range(count)]
    if kind.startswith("gemma"):
        every = c.get("sliding_window_pattern", 6)
        kinds = ["sliding_attention" if (i + 1) % every else "full_attention" for i in range(count)]
        return [*kinds[:-1], "full_attention"] if kind == "gemma4_text" else kinds
    return ["full_attention"] * count


def _layer(c: dict, kind: str, attention: str, shares: bool) -> Layer:
    hidden, heads = c["hidden_size"], c["num_attention_heads"]
    kv_heads = c.get("num_key_value_heads") or heads
    inner = c["intermediate_size"] * (2 if shares and c.get("use_double_wide_mlp") else 1)
    mlp = {"gate_proj": (hidden, inner), "up_proj": (hidden, inner), "down_proj": (inner, hidden)}
    norms = {"gemma3_text": 4, "gemma4_text": 4}.get(kind, 2)
    if attention == "linear_attention":
        return _linear_attention(c, mlp, inner)
    size = c.get("head_dim") or hidden // heads
    if kind == "gemma4_text" and attention == "full_attention":
        size = c.get("global_head_dim") or 512
    query, key = heads * size, 0 if shares else kv_heads * size
    # Qwen3.5 gates what attention gives, with a second half of q_proj
    linear = {
        "q_proj": (hidden, query * (2 if kind == "qwen3_5_text" else 1)),
        "o_proj": (query, hidden),
        **mlp,
    }
    other = norms * hidden + (0 if kind == "qwen2" else size * (1 if shares else 2))
    if not shares:
        linear |= {"k_proj": (hidden, key), "v_proj": (hidden, key)}
    if kind == "qwen2":
        other += query + 2 * key  # biases
    if per_layer := c.get("hidden_size_per_layer_input") or 0:
        linear |= {
            "per_layer_input_gate": (hidden, per_layer),
            "per_layer_projection": (per_layer, hidden),
        }
        other, norms = other + hidden, norms + 1
    window = c.get("sliding_window") if attention == "sliding_attention" else None
    return Layer(linear, other, norms, query, heads, key, kv_heads, inner, window)


def _linear_attention(c: dict, mlp: dict, inner: int) -> Layer:
    """Gated DeltaNet, as in Qwen3.5: a state of fixed size in place of a KV cache."""
    hidden, heads = c["hidden_size"], c["linear_num_value_heads"]
    key = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    value = heads * c["linear_value_head_dim"]
    mixed, kernel = 2 * key + value, c["linear_conv_kernel_dim"]
    linear = {
        "in_proj_qkv": (hidden, mixed),
        "in_proj_z": (hidden, value),
        "in_proj_b": (hidden, heads),
        "in_proj_a": (hidden, heads),
        "out_proj": (value, hidden),
        **mlp,
    }
    other = 2 * hidden + mixed * kernel + 2 * heads + c["linear_value_head_dim"]
    state = heads * c["linear_key_head_dim"] * c["linear_value_head_dim"] + mixed * kernel
    return Layer(linear, other, 2, 0, heads, 0, 0, inner, state=state)
