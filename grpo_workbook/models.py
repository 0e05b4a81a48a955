"""Find and load any model: a family of the course, a folder or a hub id, also with an adapter.

Safetensors only, and no code that comes with a model is run.
"""

import hashlib
import json
import os
from pathlib import Path

from grpo_workbook.data import load_tokenizer
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import readable

PIECE = 2**20  # bytes that are hashed at a time
BASE_RECORD = "base.json"  # beside an adapter: the base that it was trained on, by its hash
QUANTIZED = ("-unsloth-bnb-4bit", "-bnb-4bit")  # how hub models of 4-bit weights are named


def find_model(name: str | Path) -> str:
    """The folder (absolute) or hub id of a family of the course, a folder, or a hub id.

    Raises WorkbookError for what is no model, and a hub id that neither hub nor cache can give.
    """
    from grpo_workbook.config import FAMILIES, RunConfig

    name = str(name)
    if name in FAMILIES:
        return RunConfig.from_env(model=name).model
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return str(folder.resolve())
    if (folder / "adapter_config.json").is_file():
        raise WorkbookError(f"{name} is an adapter: give its base as MODEL, and it as --adapter")
    if folder.exists():
        raise WorkbookError(f"{name} has no config.json: name a folder with a saved model")
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise WorkbookError(
            f"unknown model {name!r}: give a family ({', '.join(FAMILIES)}), a folder that exists, "
            "or a hub id such as Qwen/Qwen3-0.6B"
        )
    from huggingface_hub import hf_hub_download

    try:
        hf_hub_download(name, "config.json")
    except (OSError, ValueError) as error:  # the hub's errors, and the network's, are of these
        raise WorkbookError(
            f"{name!r} is no folder here, and the hub does not give it: {first_line(error)}"
        ) from error
    return name


def find_adapter(
    name: str | Path, model: str | None = None, *, any_base: bool = False
) -> tuple[str, str | None]:
    """(the adapter's folder, a note or None); `model` None asks only for the adapter's own files.

    Raises WorkbookError where it is no adapter, or belongs to another base than `model`; with
    `any_base` another base gives the note instead.
    """
    folder = Path(name).expanduser().resolve()
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        if not (folder / file).is_file():
            raise WorkbookError(f"{name} holds no adapter: it has no {file}")
    named = read_config(folder / "adapter_config.json").get("base_model_name_or_path") or ""
    known = True if model is None else check_base(folder, model)
    if known or (known is None and _place(named) == _place(str(model))):
        return str(folder), None
    note = f"{readable(str(model))} is not the base of {readable(folder)}, {readable(named)}"
    if any_base:
        return str(folder), note
    raise WorkbookError(f"{note}. Give its base as MODEL, or use it all the same with --any-base")


def _place(name: str) -> str:
    """A folder's path, or a hub id without what says that its weights are in 4-bit."""
    for ending in QUANTIZED:
        name = name.removesuffix(ending)
    return str(Path(name).resolve()) if Path(name).is_dir() else name.lower()


def read_config(path: Path) -> dict:
    """What a config.json or adapter_config.json holds. Raises WorkbookError where it is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise WorkbookError(f"{readable(path)} is damaged: save or copy it again")
    return found


def check_base(adapter: str | Path, model: str | None) -> bool | None:
    """Whether the folder `model` is the base that the adapter was trained on, by the recorded hash.

    None where that is not known: no hash was recorded, or the base is on the hub.
    """
    try:
        recorded = json.loads((Path(adapter) / BASE_RECORD).read_text(encoding="utf-8"))["hash"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    there = fingerprint(model)
    return None if recorded is None or there is None else recorded == there


def load_model(
    name: str | Path,
    adapter: str | Path | None = None,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    load_in_4bit: bool = False,
    any_base: bool = False,
):
    """(model in evaluation mode, tokenizer) by plain Transformers, and PEFT for an adapter.

    Args:
        name: a family, a folder or a hub id.
        adapter: the folder of a LoRA adapter; its base must be `name`, unless `any_base`.
        dtype: float32, float16 or bfloat16, of all weights that are not 4-bit.
        device: "cpu" or "cuda".
        load_in_4bit: hold the base in NF4, as training does.

    Raises WorkbookError for what cannot be loaded, and for an adapter that does not fit.
    """
    model = find_model(name)
    if adapter is not None:
        adapter, _ = find_adapter(adapter, model, any_base=any_base)
    if Path(model).is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")  # everything is on this disk: ask no one
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    own = adapter is not None and (Path(adapter) / "tokenizer_config.json").is_file()
    tokenizer = load_tokenizer(adapter if adapter is not None and own else model)
    how = {"dtype": dtype, "device_map": device, "use_safetensors": True}
    if load_in_4bit:  # given as None, it would hide what a 4-bit model's own config says
        nf4 = {"bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}
        how["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_compute_dtype=dtype, **nf4
        )
    try:
        loaded = AutoModelForCausalLM.from_pretrained(model, **how)
    except (OSError, ValueError, KeyError, AttributeError, SafetensorError) as error:
        raise WorkbookError(
            f"{readable(model)} cannot be loaded ({first_line(error)}): check the name, and the "
            "network if it is a hub id; weights must be safetensors"
        ) from error
    if adapter is not None:
        from peft import PeftModel

        try:
            loaded = PeftModel.from_pretrained(loaded, adapter)
        except (RuntimeError, ValueError) as error:
            raise WorkbookError(
                f"the adapter {readable(adapter)} does not fit {readable(model)} "
                f"({first_line(error)}): name the base that it was trained on"
            ) from error
    return loaded.eval(), tokenizer


def fingerprint(folder: str | Path | None) -> str | None:
    """A hash of weights, config and chat template: the same for the same policy, wherever it lies.

    Of a file over 64 MiB it reads 64 pieces of 1 MiB and the last. None for what is no folder.
    """
    if folder is None or not Path(folder).is_dir():
        return None
    found = hashlib.sha256()
    kinds = (".safetensors", "config.json", ".jinja", "tokenizer.json")
    for path in sorted(p for p in Path(folder).iterdir() if p.name.endswith(kinds) and p.is_file()):
        size = path.stat().st_size
        found.update(f"{path.name}:{size}".encode())
        places = list(range(0, size, max(PIECE, size // 64)))
        with path.open("rb") as file:
            for place in [*places, *([size - PIECE] if size > 64 * PIECE else [])]:
                file.seek(place)
                found.update(file.read(PIECE))
    return found.hexdigest()[:16]
