"""Load any model to measure it: a folder or a hub id, with or without an adapter, through plain Transformers.

Safetensors only, and no code that comes with a model is run. Every way to name something that is not there, or is
something else, ends in a WorkbookError that says what to name instead.
"""

import hashlib
import json
import os
from pathlib import Path

from grpo_workbook.config import FAMILIES, RunConfig
from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable
from grpo_workbook.sources import why_offline
from grpo_workbook.training import torch_dtype

WHOLE = 64 * 2**20  # bytes: a larger file is hashed at 64 places
BASE_RECORD = (
    "base.json"  # beside an adapter of the course: the base that it was trained on, by its hash
)
QUANTIZED = (
    "-unsloth-bnb-4bit",
    "-bnb-4bit",
)  # how hub models of the same weights in 4-bit are named


def find_model(name: str) -> str:
    """The folder (absolute) or hub id that a name stands for: a family of the course, a folder, or a hub id.

    Raises WorkbookError for a folder without a model, an adapter, a file, what is no name of a model, and a hub id that
    is not in the cache while the hub cannot be asked.
    """
    if name in FAMILIES:
        return RunConfig.from_env(model=name).model
    folder = Path(name).expanduser()
    if folder.is_dir():
        if (folder / "config.json").is_file():
            return str(folder.resolve())
        if (folder / "adapter_config.json").is_file():
            raise WorkbookError(
                f"{name} is an adapter: give its base model as MODEL, and this folder as --adapter"
            )
        raise WorkbookError(
            f"the folder {name} has no config.json: name the folder that save_pretrained wrote"
        )
    if folder.exists():
        raise WorkbookError(f"{name} is a file: name the folder that save_pretrained wrote")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise WorkbookError(
            f"unknown model {name!r}: give a family ({', '.join(FAMILIES)}), a folder that exists, or a hub id such as "
            "Qwen/Qwen3-0.6B"
        )
    if not is_cached(name) and (reason := why_offline()):
        raise WorkbookError(
            f"{name!r} is no folder here, and the hub cannot be asked for it: {reason}"
        )
    return name


def is_cached(name: str) -> bool:
    """Whether a hub model's config lies in the local cache, from an earlier download."""
    from huggingface_hub import try_to_load_from_cache

    return isinstance(try_to_load_from_cache(name, "config.json"), str)


def find_adapter(name: str, model: str | None, *, any_base: bool = False) -> tuple[str, str | None]:
    """(the adapter's folder, a note). Raises WorkbookError where it is none, or belongs to another base than `model`.

    With `any_base` another base gives a note and no error. `model` None: only the adapter's own files are checked.
    """
    folder = Path(name).expanduser()
    if not (folder / "adapter_config.json").is_file():
        raise WorkbookError(
            f"{name} holds no adapter (no adapter_config.json): name the folder of a saved adapter"
        )
    if not (folder / "adapter_model.safetensors").is_file():
        raise WorkbookError(
            f"{name} holds no adapter_model.safetensors: pickled weights are not loaded"
        )
    base = read_config(folder / "adapter_config.json").get("base_model_name_or_path")
    found, note = str(folder.resolve()), None
    if model is not None:
        try:
            if not check_base(found, model) and not _same_base(base or "", model):
                raise WorkbookError(
                    f"the adapter {readable(found)} names another base than {readable(model)}: "
                    f"{readable(base) if base else 'none'}"
                )
        except WorkbookError as error:
            note = str(error)
            if not any_base:
                raise WorkbookError(
                    f"{note}. Give its base as MODEL, or use it all the same with --any-base"
                ) from None
    return found, note


def read_config(path: Path) -> dict:
    """What the config.json of a model, or the adapter_config.json of an adapter, holds. WorkbookError for no object."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        found = None
    named = found.get("base_model_name_or_path") if isinstance(found, dict) else None
    if not isinstance(found, dict) or not isinstance(named, str | None):
        raise WorkbookError(
            f"{readable(path)} is damaged: save that model or adapter again, or copy it again"
        )
    return found


def check_base(adapter: str | Path, model: str) -> bool:
    """Whether it is known that `model` (a folder) is the base that the adapter was trained on, by the recorded hash.

    Raises WorkbookError where it is known that it is not. False where nothing was recorded: an adapter from elsewhere,
    or a base on the hub.
    """
    try:
        recorded = json.loads((Path(adapter) / BASE_RECORD).read_text(encoding="utf-8"))["hash"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    there = fingerprint(model)
    if recorded is None or there is None:
        return False
    if recorded != there:
        raise WorkbookError(
            f"{readable(model)} is not the base that the adapter {readable(adapter)} was trained on (hash {there}, "
            f"recorded {recorded})"
        )
    return True


def _same_base(named: str, model: str) -> bool:
    """By name alone: the same folder, or the same hub model, in 4-bit or not."""
    if Path(named).is_dir() or Path(model).is_dir():
        return Path(named).resolve() == Path(model).resolve()
    return without_4bit(named).lower() == without_4bit(model).lower()


def without_4bit(name: str) -> str:
    """A hub id without the ending that says that its weights are in 4-bit."""
    for ending in QUANTIZED:
        name = name.removesuffix(ending)
    return name


def load_for_measuring(
    model: str,
    adapter: str | None = None,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    load_in_4bit: bool = False,
):
    """(model in evaluation mode, tokenizer) of what `find_model` and `find_adapter` found.

    `dtype`: float32, float16 or bfloat16, of all weights, or beside 4-bit ones (`load_in_4bit`: NF4). `device`: "cpu"
    or "cuda". Raises WorkbookError for what cannot be loaded, weights that are no safetensors, no tokenizer or no chat
    template, and an adapter that does not fit.
    """
    if Path(model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk: ask no one
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    tokenizer = load_tokenizer(adapter if _has_tokenizer(adapter) else model)
    quantization = (
        BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch_dtype(dtype),
        )
        if load_in_4bit
        else None
    )
    try:
        loaded = AutoModelForCausalLM.from_pretrained(
            model,
            dtype=torch_dtype(dtype),
            device_map=device,
            use_safetensors=True,
            quantization_config=quantization,
        )
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise WorkbookError(
            f"the model {readable(model)!r} cannot be loaded ({first_line(error)}): check the name, and the network "
            "if it is a hub id; weights must be safetensors"
        ) from error
    return (loaded if adapter is None else _with_adapter(loaded, adapter)).eval(), tokenizer


def _with_adapter(model, adapter: str):
    from peft import PeftModel

    try:
        return PeftModel.from_pretrained(model, adapter)
    except (RuntimeError, ValueError) as error:
        raise WorkbookError(
            f"the adapter {readable(adapter)} does not fit the model ({first_line(error)}): name the base that it was "
            "trained on"
        ) from error


def _has_tokenizer(adapter: str | None) -> bool:
    return adapter is not None and (Path(adapter) / "tokenizer_config.json").is_file()


def fingerprint(folder: str | None) -> str | None:
    """A hash of a folder's weights, config and chat template: the same for the same policy, wherever it lies.

    Of a file over 64 MiB it reads 64 pieces of 1 MiB, evenly spaced. None for what is no folder.
    """
    if folder is None or not Path(folder).is_dir():
        return None
    found = hashlib.sha256()
    kinds = (".safetensors", "config.json", ".jinja", "tokenizer.json")
    for path in sorted(p for p in Path(folder).iterdir() if p.name.endswith(kinds) and p.is_file()):
        size = path.stat().st_size
        found.update(f"{path.name}:{size}".encode())
        with path.open("rb") as file:
            if size <= WHOLE:
                found.update(file.read())
                continue
            for i in range(64):
                file.seek(i * (size - 2**20) // 63)
                found.update(file.read(2**20))
    return found.hexdigest()[:16]
