"""Load a model, with or without an adapter, and know a model or an adapter again.

`load_model` is what chapters and commands call. An adapter is checked against the base that it was
trained on: by the base's `fingerprint`, which `export.save_adapter` writes beside the adapter, or
by its name. Models load from safetensors only, so that no code that comes with a model is run.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from grpo_workbook import compat
from grpo_workbook.config import find_model
from grpo_workbook.data import load_tokenizer
from grpo_workbook.data.prompts import load_processor
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

PIECE = 2**20  # bytes that are hashed at a time
BASE_RECORD = "base.json"  # beside an adapter: the name and fingerprint of its base
# The first one is the new form, the second the old one.
PROCESSOR_FILES = ("processor_config.json", "preprocessor_config.json")
VISION = ("vision_tower.", "vision_model.", "visual.")  # parts of the names of its layers
# Of a LoraConfig: what says where an adapter comes from, and not which layers it has.
NOT_OF_THE_LAYERS = (
    "peft_type",
    "peft_version",
    "task_type",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
)
TEXT_WEIGHTS = {  # how checkpoints with vision or sound name the text part -> its own names
    r"^language_model\.model\.": "model.",
    r"^model\.language_model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}


def load_model(
    name: str | Path,
    adapter: str | Path | None = None,
    *,
    dtype: Any = "float32",
    device: str = "cpu",
    load_in_4bit: bool = False,
    dequantize: bool = False,
    any_base: bool = False,
    pictures: bool = False,
) -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer), by plain Transformers, and PEFT for an adapter.

    Of a model with vision or sound only the text part is loaded, unless `pictures` is true.

    Args:
        name: a family (qwen, gemma), a folder, or a hub id.
        adapter: the folder of a LoRA adapter whose base is `name`.
        dtype: of all weights that are not in 4-bit: a text such as "float32", or "auto".
        device: "cpu" or "cuda".
        load_in_4bit: as NF4, as in training.
        dequantize: round the weights to NF4, and unpack them again to `dtype`: the base that an
            adapter saw in 4-bit training, in layers that can be merged.
        any_base: use the adapter on another base than the one that it was trained on, too.
        pictures: load the whole of a model with vision, and its processor in place of the
            tokenizer. In 4-bit the vision tower stays wide, and the model can be trained on a CPU
            (see `compat.keep_packed_weights`).

    Raises:
        WorkbookError: if there is no such model or adapter, if they do not belong together, or if
            one of their files is damaged.
    """
    model_name = find_model(name)
    if adapter is not None:
        adapter = find_adapter(adapter)
        if not any_base:
            require_base(adapter, model_name)
    reader = load_reader(model_name, adapter, pictures=pictures)
    model = load_base(model_name, dtype, device, load_in_4bit, dequantize, pictures)
    if adapter is not None:
        model = _add_adapter(model, adapter, model_name)
    return model.eval(), reader


def load_reader(model: str, adapter: str | Path | None = None, *, pictures: bool = False) -> Any:
    """The tokenizer of a model, or the adapter's own if it has one; with pictures the processor.

    Args:
        model: a folder, or a hub id.
        adapter, pictures: as in `load_model`.

    Raises:
        WorkbookError: if there is no such adapter, or the tokenizer cannot be loaded.
    """
    source = model
    if adapter is not None:
        folder = find_adapter(adapter)
        # PEFT alone saves no tokenizer. `export.save_adapter` saves that of the training.
        is_saved = (Path(folder) / "tokenizer_config.json").is_file()
        if pictures:
            is_saved = has_processor(folder)
        if is_saved:
            source = folder
    if pictures:
        return load_processor(source)
    return load_tokenizer(source)


def load_base(
    model: str,
    dtype: Any,
    device: str,
    load_in_4bit: bool,
    dequantize: bool = False,
    pictures: bool = False,
) -> Any:
    """A language model from safetensors.

    Args:
        model: a folder, or a hub id.
        dtype, device, load_in_4bit, dequantize, pictures: as in `load_model`.

    Raises:
        WorkbookError: if it cannot be loaded, or lacks weights.
    """
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        BitsAndBytesConfig,
    )

    library: Any = AutoModelForImageTextToText if pictures else AutoModelForCausalLM
    settings: dict[str, Any] = {}
    # Left out for 16 bits: None would replace the config of a model that is saved in 4-bit.
    if load_in_4bit or dequantize:
        settings["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=None if dtype == "auto" else dtype,
            llm_int8_skip_modules=compat.wide_modules() if pictures else None,
        )
    try:
        part = {} if pictures else text_part(model)
        loaded: Any = library.from_pretrained(
            model,
            dtype=dtype,
            device_map=device,
            use_safetensors=True,
            output_loading_info=True,
            **part,
            **settings,
        )
        base, loading = loaded
        missing = sorted(loading["missing_keys"])
        if missing:  # else they would be random numbers
            raise ValueError(f"it lacks {len(missing)} of its weights, such as {missing[0]}")
    except Exception as error:  # a damaged file can raise anything
        raise WorkbookError(
            f"{readable(model)} cannot be loaded from safetensors ({first_line(error)}): check the "
            "name, and the network for a hub id"
        ) from error
    if dequantize:
        base = base.dequantize()
    # Chapters train such a model as it comes from here, without Unsloth's loader.
    if pictures:
        compat.keep_packed_weights(base)
    if part or dequantize:
        compat.save_under_own_names(base)
    return base


def text_part(model: str) -> dict[str, Any]:
    """What `from_pretrained` takes to load only the text part of a model with vision or sound.

    Empty for a model of text alone.
    """
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model)
    text_config = getattr(config, "text_config", None)
    if text_config is None:
        return {}
    # How weights are packed stands in the config of the whole model only.
    if hasattr(config, "quantization_config"):
        text_config.quantization_config = config.quantization_config
    return {"config": text_config, "key_mapping": TEXT_WEIGHTS}


def has_processor(folder: str | Path) -> bool:
    """Whether a processor for pictures was saved in this folder."""
    return any((Path(folder) / name).is_file() for name in PROCESSOR_FILES)


def is_of_whole_model(adapter: str) -> bool:
    """Whether an adapter was trained on a whole model with vision, by the names of its layers."""
    from safetensors import safe_open

    try:
        with safe_open(Path(adapter) / "adapter_model.safetensors", "pt") as file:
            names = " ".join(file.keys())
    except Exception:  # what is wrong with a damaged file is said when it is loaded
        return False
    of_language = "language_model." in names or "text_model." in names
    return of_language or has_vision(names)


def has_vision(names: str) -> bool:
    """Whether some of these names of weights are of the vision of a model."""
    return any(part in names for part in VISION)


def _add_adapter(base: Any, folder: str, model_name: str) -> Any:
    """The base with the adapter. Raises WorkbookError if they do not fit."""
    from peft import PeftModel

    try:
        model = PeftModel.from_pretrained(base, folder)
    except Exception as error:  # a damaged file can raise anything
        raise _no_fit(folder, model_name, error) from error
    load_weights(model, folder, model_name)
    return model


def load_weights(model: Any, folder: str, model_name: str) -> None:
    """Load an adapter's weights into layers that are there. Raises WorkbookError if one is left."""
    try:
        lost = compat.unplaced_weights(model, folder)
        if lost:
            raise ValueError(f"{len(lost)} weights are in one of the two only, such as {lost[0]}")
    except Exception as error:  # a damaged file can raise anything
        raise _no_fit(folder, model_name, error) from error


def _no_fit(folder: str, model_name: str, error: Exception) -> WorkbookError:
    """The error for an adapter that cannot be loaded on a base, with the advice for its cause."""
    message = str(error)
    reason = first_line(error)
    # PEFT has no error classes for these causes, so they are known by the words of its messages.
    if "size mismatch" in message and ("embed_tokens" in message or "lm_head" in message):
        advice = (
            "the vocabulary was resized for its training. Resize the base in the same way "
            "(resize_token_embeddings), save it, and give that folder as the base"
        )
    elif "size mismatch" in message:
        advice = (
            "its base has other sizes, or its config another rank. Give the base of its training"
        )
    elif "language_model" in message or "vision" in message:
        advice = (
            "it was trained on the whole model with vision or sound, whose layers have other "
            "names, and here only the text part is loaded. Load all of it with its processor: "
            "load_model(..., pictures=True)"
        )
    elif "arget modules" in message or "are in one of the two only" in message:
        advice = "its layers are those of another architecture. Give the base it was trained on"
    else:
        advice = "if the base is right, a file of the adapter is damaged. Save or copy it again"
    return WorkbookError(f"{folder} does not fit {readable(model_name)} ({reason}): {advice}")


# ---------------------------------------------------------------------------- adapters


def find_adapter(name: str | Path) -> str:
    """The absolute path of a LoRA adapter's folder.

    Raises WorkbookError if it is not an adapter, or does not say which base it was trained on.
    """
    folder = Path(name).expanduser().resolve()
    if not folder.is_dir():
        raise WorkbookError(f"there is no adapter {name}: give the folder of a saved LoRA adapter")
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / file).is_file():
            raise WorkbookError(f"{name} is not an adapter: it has no {file}. {_hint(folder)}")
    base_of(folder)
    return str(folder)


def _hint(folder: Path) -> str:
    """What to give instead of a folder that lacks a file of an adapter."""
    if (folder / "adapter_model.bin").is_file():
        return (
            "Its weights are in adapter_model.bin, a format that can run code: load it with PEFT, "
            "if you trust it, and save it again with save_pretrained"
        )
    # PEFT saves an adapter with another name than "default" in a folder of this name.
    inside = sorted(path.parent for path in folder.glob("*/adapter_config.json"))
    if inside:
        return f"Give the folder inside: {', '.join(readable(path) for path in inside)}"
    # The result of a merge or of full fine-tuning.
    if (folder / "config.json").is_file():
        return "It is a whole model, which needs no adapter"
    return "Give the folder of a saved LoRA adapter"


def require_base(
    adapter: str, model: str, advice: str = "give its base, or load_model(..., any_base=True)"
) -> None:
    """Raise WorkbookError, with the advice, unless the adapter was trained on `model`.

    The model is a folder or a hub id. It is known by hash or name, as in `is_base`.
    """
    if not is_base(adapter, model):
        raise WorkbookError(
            f"{readable(model)} is not the base of {readable(adapter)}, "
            f"{readable(base_of(adapter))}: {advice}"
        )


def is_base(adapter: str, model: str) -> bool:
    """Whether the adapter was trained on `model`, by hash if both are known, else by name."""
    same_hash = check_base(adapter, model)
    if same_hash is not None:
        return same_hash
    return _plain_name(base_of(adapter)) == _plain_name(model)


def find_adapter_of(model: str, adapter: str | Path) -> str:
    """The folder of a LoRA adapter that can be trained on with this model.

    Raises:
        WorkbookError: if it is not one of LoRA, or `model` is not its base, by hash or name.
    """
    rank_of(adapter)
    folder = find_adapter(adapter)
    # Two models of one size have the same shapes: only the name or the hash tells them apart.
    advice = (
        "give that one as the model. If both are the same model, write the name that you give as "
        "base_model_name_or_path into its adapter_config.json"
    )
    require_base(folder, model, advice)
    return folder


def rank_of(adapter: str | Path) -> int:
    """The rank of a LoRA adapter, without loading a library.

    Raises:
        WorkbookError: if it is not an adapter, or none of LoRA.
    """
    folder = find_adapter(adapter)
    path = Path(folder) / "adapter_config.json"
    # Of the file itself: PEFT would load Transformers, which Unsloth has to change first.
    peft_type, rank = _read_field(path, "peft_type"), _read_field(path, "r")
    if peft_type != "LORA" or not isinstance(rank, int):
        raise WorkbookError(
            f"{adapter} is an adapter of the type {peft_type}: only LoRA is trained"
        )
    return rank


def lora_settings(adapter: str) -> dict[str, Any]:
    """The arguments of `get_peft_model` that make layers for the weights of a LoRA adapter.

    Its dropout is left out, because it is a setting of the training. This loads PEFT, which must be
    loaded after Unsloth.

    Raises:
        WorkbookError: if it is not an adapter of LoRA.
    """
    from peft import LoraConfig

    # An adapter of another kind has no such fields.
    rank_of(adapter)
    saved = LoraConfig.from_pretrained(adapter).to_dict()
    defaults = LoraConfig().to_dict()
    modules = saved["target_modules"]  # a set, or a regular expression
    settings = {
        "r": saved["r"],
        "lora_alpha": saved["lora_alpha"],
        "target_modules": modules if isinstance(modules, str) else sorted(modules),
    }
    # Only what differs: Unsloth's get_peft_model has its own form of some of the defaults.
    others = set(defaults) - {*settings, "lora_dropout", *NOT_OF_THE_LAYERS}
    for name in sorted(others):
        if saved[name] != defaults[name]:
            settings[name] = saved[name]
    return settings


def base_of(adapter: str | Path) -> str:
    """The name of the base that an adapter was trained on. Raises WorkbookError if it is lost."""
    path = Path(adapter) / "adapter_config.json"
    name = _read_field(path, "base_model_name_or_path")
    if name is None:
        raise WorkbookError(f"{readable(path)} is damaged: save or copy it again")
    return name


def check_base(adapter: str | Path, model: str) -> bool | None:
    """Whether the folder `model` is the adapter's base, by its hash; None if that is unknown."""
    recorded = _read_field(Path(adapter) / BASE_RECORD, "hash")
    actual = fingerprint(model)
    if recorded is None or actual is None:
        return None
    return recorded == actual


def fingerprint(folder: str | Path | None) -> str | None:
    """A hash of a model's or an adapter's weights, config and template; None if it is no folder.

    Of a large file 64 pieces and its end are read.
    """
    if folder is None or not Path(folder).is_dir():
        return None
    digest = hashlib.sha256()
    endings = (".safetensors", "config.json", ".jinja", "tokenizer.json")
    # Sorted, because a file system lists files in any order.
    for path in sorted(Path(folder).iterdir()):
        if not path.name.endswith(endings):
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}:{size}".encode())
        # Places all over the file: reading all of a large model would take long.
        places = list(range(0, size, max(PIECE, size // 64)))
        if size > 64 * PIECE:
            places.append(size - PIECE)
        with path.open("rb") as file:
            for place in places:
                file.seek(place)
                digest.update(file.read(PIECE))
    return digest.hexdigest()[:16]


def _read_field(path: Path, name: str) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _plain_name(name: str) -> Path:
    """A folder, or a hub id without the marks of 4-bit weights: to compare names of models."""
    if Path(name).is_dir():
        return Path(name).resolve()
    # Unsloth's packed copies of a model have its name with -bnb-4bit or -unsloth-bnb-4bit.
    return Path(name.lower().removesuffix("-bnb-4bit").removesuffix("-unsloth")).resolve()
