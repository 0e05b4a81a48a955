"""`python -m grpo_workbook export-gguf`: a merged model as one GGUF file for llama.cpp, by llama.cpp's own converter.

The converter is no Python package: it comes with llama.cpp's source (or with llama-cpp-python's, `make gguf`). It knows
a model's pre-tokenizer by a hash of what the tokenizer makes of one text, vocabulary and all; a tokenizer of one's own
has another hash. Where tokenizer.json splits text by a rule that llama.cpp has, letter for letter, its name is given.

Of Gemma 3 the converter leaves out which layers look at all of the text, and llama.cpp then takes every sixth: written
so, a model with another pattern loads and answers wrongly. Here the pattern is written down.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, check_disk, readable, whole_file

CONVERTER = "convert_hf_to_gguf.py"
VARIABLE = "LLAMA_CPP"  # llama.cpp's folder
TYPES = ("f16", "bf16", "q8_0", "f32")
ROPE = 10_000.0  # the base of the rotary angles in Gemma 3's sliding layers, fixed in llama.cpp
_TAIL = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
# tokenizer.json's rule -> llama.cpp's name for it (src/llama-vocab.cpp)
PRE_TOKENIZERS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|" + _TAIL: "qwen2",
    _TAIL: "ufakzeka",  # Qwen's without English contractions: the course's tiny models
}
EXAMPLES = """examples:
  python -m grpo_workbook export-gguf outputs/run/merged --output model.gguf
  python -m grpo_workbook export-gguf outputs/run/merged --output model.gguf \\
      --type q8_0 --llama-cpp ~/llama.cpp

exit status: 0 written, 2 bad input, no converter, or a model it does not know
"""


def find_converter(place: str | Path | None = None) -> Path:
    """llama.cpp's converter: in `place` (its folder, or the script), $LLAMA_CPP, the PATH, or where `make gguf` put it.

    Raises WorkbookError with the command that gets it.
    """
    named = place or os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        path = path / CONVERTER if path.is_dir() else path
        if path.name != CONVERTER or not path.is_file():
            raise WorkbookError(f"{named} holds no {CONVERTER}: name llama.cpp's folder")
        return path.resolve()
    found = shutil.which(CONVERTER)
    built = sorted((REPO / ".venv-gguf" / "src").glob(f"*/vendor/llama.cpp/{CONVERTER}"))
    if found or built:
        return Path(found or built[-1]).resolve()
    raise WorkbookError(
        f"llama.cpp's converter ({CONVERTER}) is not here: `git clone --depth 1 https://github.com/ggml-org/llama.cpp` "
        f"and give its folder as --llama-cpp llama.cpp, or as {VARIABLE}"
    )


def pre_tokenizer(folder: str | Path) -> str | None:
    """llama.cpp's name for the way in which the folder's tokenizer splits text; None where no name surely fits."""
    try:
        found = json.loads((Path(folder) / "tokenizer.json").read_text(encoding="utf-8"))
        split, bytes_ = found["pre_tokenizer"]["pretokenizers"]
        same = (
            (split["type"], split["behavior"], split["invert"]) == ("Split", "Isolated", False)
            and (bytes_["type"], bytes_["add_prefix_space"], bytes_["use_regex"])
            == ("ByteLevel", False, False)
            and found["normalizer"] is None
            and found["model"]["type"] == "BPE"
        )
        return PRE_TOKENIZERS.get(split["pattern"]["Regex"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def gemma_layers(folder: str | Path) -> list[bool] | None:
    """Of a Gemma 3 whose full-attention layers are not every sixth: for each layer whether its attention slides.

    None for every other model. Raises WorkbookError for what GGUF's Gemma 3 cannot say.
    """
    config = _config(Path(folder))
    config = config.get("text_config") or config
    kinds = config.get("layer_types")
    if config.get("model_type") not in ("gemma3", "gemma3_text") or not kinds:
        return None
    base = (
        (config.get("rope_parameters") or {}).get("sliding_attention", {}).get("rope_theta", ROPE)
    )
    if base != ROPE:
        raise WorkbookError(
            f"{folder} turns its sliding layers at {base:g}, and llama.cpp always at {ROPE:g}"
        )
    slides = [kind == "sliding_attention" for kind in kinds]
    return slides if slides != [(i + 1) % 6 != 0 for i in range(len(kinds))] else None


def to_gguf(
    folder: str | Path, output: str | Path, kind: str = "f16", llama_cpp: str | Path | None = None
) -> Path:
    """Write the merged model in `folder` to the file `output`, all or nothing; returns its path.

    Raises WorkbookError for a folder that is no merged model, without a converter, and with the converter's last words
    where it refuses the model.
    """
    folder, output = Path(folder).expanduser(), Path(output).expanduser()
    if kind not in TYPES:
        raise WorkbookError(f"unknown type {kind!r}: choose one of {', '.join(TYPES)}")
    _check_model(folder)
    converter = find_converter(llama_cpp)
    if not output.resolve().parent.is_dir() or output.is_dir():
        raise WorkbookError(f"{output} cannot be written: name a file in a folder that exists")
    size = sum(f.stat().st_size for f in folder.glob("*.safetensors"))
    check_disk(output.resolve().parent, size * (2 if kind == "f32" else 1) + 2**20, "the file")
    known = {"pre_tokenizer": pre_tokenizer(folder), "gemma_layers": gemma_layers(folder)}
    start: list = [converter]
    if any(value is not None for value in known.values()):
        start = ["-P", Path(__file__).with_name("gguf_driver.py"), converter, json.dumps(known)]
    with whole_file(output) as target:
        command = [
            sys.executable,
            *map(str, start),
            str(folder),
            "--outfile",
            str(target),
            "--outtype",
            kind,
        ]
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        result = subprocess.run(command, env=env, capture_output=True, text=True, errors="replace")
        if result.returncode or not target.is_file() or target.open("rb").read(4) != b"GGUF":
            raise WorkbookError(_why(folder, result.stderr))
    return output


def _check_model(folder: Path) -> None:
    if (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file():
        raise WorkbookError(
            f"{folder} is an adapter: merge it first (python -m grpo_workbook merge)"
        )
    if _config(folder).get("quantization_config"):
        raise WorkbookError(f"{folder} holds quantized weights: name the 16-bit model")
    if not any(folder.glob("*.safetensors")):
        raise WorkbookError(f"{folder} holds no .safetensors: pickled weights are not converted")


def _config(folder: Path) -> dict:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise WorkbookError(
            f"{folder} holds no model (no readable config.json): name a merged model's folder"
        )
    return config


def _why(folder: Path, said: str) -> str:
    if "pre-tokenizer was not recognized" in said:
        return (
            f"llama.cpp does not know how {readable(folder)} splits text (its pre-tokenizer), so it would read other "
            "tokens: a newer llama.cpp may know it"
        )
    lines = [line for line in said.splitlines() if line.strip()] or ["no word"]
    return f"llama.cpp's converter could not convert {readable(folder)}: {lines[-1].strip()[:300]}"


# ------------------------------------------------------------------ the command


def add_parser(commands) -> None:
    """Add export-gguf to the command line."""
    parser = commands.add_parser(
        "export-gguf",
        help="a merged model as one file for llama.cpp",
        usage="%(prog)s FOLDER --output FILE [options]",
        description="Convert a merged model to GGUF with llama.cpp's converter.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", metavar="FOLDER", help="a merged model")
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="the file, such as model.gguf"
    )
    parser.add_argument(
        "--type",
        default="f16",
        metavar="T",
        help=f"of the weights: {', '.join(TYPES)} (default f16)",
    )
    parser.add_argument(
        "--llama-cpp", metavar="DIR", help=f"llama.cpp's folder (default: ${VARIABLE}, or the PATH)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the file that is there")


def main(args: argparse.Namespace) -> int:
    """Convert and say where it is. Raises WorkbookError for bad input."""
    if args.output.expanduser().exists() and not args.overwrite:
        raise WorkbookError(
            f"{args.output} is there already: choose another --output, or replace it with --overwrite"
        )
    path = to_gguf(args.folder, args.output, args.type, args.llama_cpp)
    print(f"written to {readable(path)}, {args.type}, {path.stat().st_size / 1e6:.1f} MB")
    return 0
