"""Find and load a model, with or without an adapter: by family, folder or hub id."""

import hashlib
import json
from pathlib import Path
from typing import Any

from grpo_workbook.config import find_model
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

PIECE = 2**20  # bytes that are hashed at a time
BASE_RECORD = "base.json"  # beside an adapter: the base that it was trained on, by its hash


def find_adapter(name: str | Path, model: str | None = None) -> tuple[str, str | None]:
    """(the adapter's folder, None or a sentence saying that the given `model` is not its base)."""
    folder = Path(name).expanduser().resolve()
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / file).is_file():
            raise WorkbookError(f"{name} is not an adapter: it has no {file}")
    named = _field(path := folder / "adapter_config.json", "base_model_name_or_path")
    if named is None:
        raise WorkbookError(f"{readable(path)} is damaged: save or copy it again")
    known = model is None or check_base(folder, model)
    if known or (known is None and _place(named) == _place(str(model))):
        return str(folder), None
    said = f"{readable(str(model))} is not the base of {readable(folder)}, {readable(named)}"
    return str(folder), said


def check_base(adapter: str | Path, model: str) -> bool | None:
    """Whether the folder `model` is the adapter's base, by its hash; None if that is unknown."""
    recorded, there = _field(Path(adapter) / BASE_RECORD, "hash"), fingerprint(model)
    return None if None in (recorded, there) else recorded == there


def _field(path: Path, name: str) -> str | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))[name]
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _place(name: str) -> Path:
    """A folder, or a hub id as a path, without the endings that mark 4-bit weights."""
    plain = name.lower().removesuffix("-bnb-4bit").removesuffix("-unsloth")
    return Path(name if Path(name).is_dir() else plain).resolve()


def load_model(
    name, adapter=None, *, dtype="float32", device="cpu", load_in_4bit=False, any_base=False
) -> tuple[Any, Any]:
    """(model in evaluation mode, tokenizer) by plain Transformers, and PEFT for an adapter.
    From safetensors, no code that comes with a model is run; with vision or sound the text part.
    `name` (see `find_model`) must be the base of the `adapter`, unless `any_base`. `dtype` is of
    all weights that are not 4-bit; `load_in_4bit` takes NF4, as in training.
    """
    from peft import PeftModel

    model = source = find_model(name)  # source: of the tokenizer
    if adapter is not None:
        adapter, said = find_adapter(adapter, model)
        if said and not any_base:
            raise WorkbookError(f"{said}. Give its base, or use it anyway with --any-base")
        source = adapter if (Path(adapter) / "tokenizer_config.json").is_file() else model
    tokenizer = load_tokenizer(source)
    loaded = load_base(model, dtype, device, load_in_4bit)
    if adapter is None:
        return loaded.eval(), tokenizer
    try:
        loaded = PeftModel.from_pretrained(loaded, adapter)
        found = loaded.load_adapter(adapter, "default")  # again: this one says what was not placed
        if wrong := [*found.unexpected_keys, *found.missing_keys]:
            raise ValueError(f"{len(wrong)} weights are in one of the two only, such as {wrong[0]}")
    except Exception as error:  # a damaged file can raise anything
        said = f"{adapter} does not fit {readable(model)} ({first_line(error)})"
        raise WorkbookError(f"{said}: name the base that it was trained on") from error
    return loaded.eval(), tokenizer


def text_part(model: str) -> dict:
    """What `from_pretrained` takes to load only the text part of a model with vision or sound."""
    from transformers import AutoConfig

    whole = AutoConfig.from_pretrained(model)
    if (text := getattr(whole, "text_config", None)) is None:
        return {}
    if hasattr(whole, "quantization_config"):
        text.quantization_config = whole.quantization_config
    names = {r"^language_model\.model\.": "model.", r"^model\.language_model\.": "model."}
    return {"config": text, "key_mapping": names | {r"^language_model\.lm_head\.": "lm_head."}}


def load_base(model: str, dtype: str, device: str, load_in_4bit: bool, **nf4) -> Any:
    """A language model from safetensors, optionally in 4-bit as in QLoRA; `nf4`: more settings."""
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    how: dict = {"dtype": dtype, "device_map": device, "use_safetensors": True}
    if load_in_4bit:  # None would override the config of a 4-bit model
        nf4 |= {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        nf4 |= {"load_in_4bit": True, "bnb_4bit_compute_dtype": dtype}
        how["quantization_config"] = BitsAndBytesConfig(**nf4)
    try:
        how |= (part := text_part(model)) | {"output_loading_info": True}
        loaded: Any = AutoModelForCausalLM.from_pretrained(model, **how)
        base, found = loaded
        if lost := sorted(found["missing_keys"]):  # else they would be random numbers
            raise ValueError(f"it lacks {len(lost)} of the model's weights, such as {lost[0]}")
    except Exception as error:  # a damaged file can raise anything
        said = f"{readable(model)} cannot be loaded from safetensors ({first_line(error)})"
        raise WorkbookError(f"{said}: check the name, and the network for a hub id") from error
    if part:
        del base._weight_conversions  # else it would be saved under the whole checkpoint's names
    return base


def check_positions(model: Any, tokens: int, fix: str) -> None:
    """Raise WorkbookError if a prompt and its completion have more tokens than the model takes."""
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if most and tokens > most:
        said = f"a prompt and its completion have up to {tokens:,} tokens, but this model was made"
        raise WorkbookError(f"{said} for at most {most:,}: {fix}")


def fingerprint(folder: str | Path | None) -> str | None:
    """A hash of weights (of a large file 64 pieces and the last), config, template; or None."""
    if folder is None or not Path(folder).is_dir():
        return None
    found = hashlib.sha256()
    kinds = (".safetensors", "config.json", ".jinja", "tokenizer.json")
    for path in sorted(p for p in Path(folder).iterdir() if p.name.endswith(kinds)):
        size = path.stat().st_size
        found.update(f"{path.name}:{size}".encode())
        last = [size - PIECE] if size > 64 * PIECE else []
        with path.open("rb") as file:
            for place in [*range(0, size, max(PIECE, size // 64)), *last]:
                file.seek(place)
                found.update(file.read(PIECE))
    return found.hexdigest()[:16]
