"""Collect the wheels that a GPU machine without network lacks: with this clone at most 64 MiB.

    python benchmarks/wheelhouse.py                      # for Python 3.12: make wheelhouse
    python benchmarks/wheelhouse.py --python 3.11 --cuda 12.8
    python benchmarks/wheelhouse.py --without            # that machine has HAS alone
    python benchmarks/wheelhouse.py --also transformers  # this one there is too old

That machine is Linux on x86-64, glibc 2.28 or newer, and has HAS and OFTEN: torch, transformers,
accelerate, peft, pandas, pyarrow, scipy, matplotlib and what these need. Large wheels are written
again without the parts that training does not import (SLIM); such a wheel says so by its build tag.
Copy the folder there, then: python benchmarks/gpu.py --wheelhouse DIR
"""

import argparse
import base64
import csv
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from fnmatch import fnmatch
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

REPO = Path(__file__).resolve().parent.parent
MIB = 2**20
LIMIT = 64  # MiB

# What the other machine has: torch, transformers, accelerate, peft, and what these need.
HAS = set(
    "torch triton numpy sympy mpmath networkx jinja2 markupsafe fsspec filelock typing-extensions "
    "setuptools "
    "transformers tokenizers safetensors huggingface-hub hf-xet regex pyyaml packaging tqdm typer "
    "click rich "
    "httpx httpcore h11 anyio idna certifi pygments markdown-it-py mdurl annotated-doc accelerate "
    "psutil peft pydantic "
    "shellingham".split()
)
# What it lacks; the versions are those of requirements*.txt, or stand here.
WANTED = {
    "unsloth": "",
    "unsloth_zoo": "",
    "trl": "",
    "datasets": "",
    "bitsandbytes": "",
    "protobuf": "",
    "pandas": "",
    "cut_cross_entropy": "25.1.1",
    "pyarrow": "26.0.1",
    "dill": "0.4.1",
    "multiprocess": "0.70.19",
    "xxhash": "4.1.0",
    "fsspec": "2026.2.0",  # a newer one is refused by datasets
    "requests": "2.34.2",
    "urllib3": "2.8.0",
    "charset-normalizer": "3.5.2",
    "python-dateutil": "4.0.0",
    "six": "1.17.0",
    "tzdata": "2026.6",
    "pillow": "13.0.0",
    # what the package itself imports: a run's report and its figures, the chapters' rewards
    "scipy": "",
    "matplotlib": "",
    "contourpy": "1.3.3",
    "cycler": "0.12.1",
    "fonttools": "4.68.0",
    "kiwisolver": "1.5.1",
    "pyparsing": "3.3.3",
    "pebble": "",
    "math-verify": "",
    "latex2sympy2_extended": "1.11.0",
    "antlr4-python3-runtime": "4.13.2",
    "jsonschema": "4.26.0",
    "jsonschema-specifications": "2025.9.1",
    "referencing": "0.37.0",
    "rpds-py": "2026.9.1",
    "attrs": "26.1.0",
}
# Of these, what a machine for such work mostly has as well.
OFTEN = """pyarrow pandas python-dateutil six tzdata pillow protobuf requests urllib3
    charset-normalizer xxhash scipy matplotlib contourpy cycler fonttools kiwisolver
    pyparsing""".split()
# Asked for in a wheel's metadata, and imported nowhere on the way through training.
UNNEEDED = set(
    "xformers torchvision torchao diffusers hf_transfer sentencepiece tyro json5 nest-asyncio "
    "structlog wheel einops "
    "msgspec".split()
)
# Parts of a wheel that are left out, as patterns of the files' names.
SLIM = {
    "unsloth": ("studio/*",),  # a web studio; training imports nothing of it
    "bitsandbytes": ("*/libbitsandbytes_cuda*", "*/libbitsandbytes_rocm*",
    "*/libbitsandbytes_xpu*"),
    "pandas": ("pandas/tests/*",),
    "pillow": ("*avif*", "*_imagingft*", "*harfbuzz*", "*freetype*"),  # AVIF, drawing text
    "pyarrow": (
        "pyarrow/tests/*", "pyarrow/include/*", "pyarrow/includes/*", "pyarrow/src/*", "*.pyx",
        "*.pxd", "*.pxi",
        "*flight*", "*/_substrait*", "*s3*", "*gcsfs*", "*azurefs*", "*_cpp_tests*",
        "*/libarrow_python.so", "*/libarrow_python.so.*.*",  # the same file under other names
        "*/libarrow_python_parquet_encryption.so", "*/libarrow_python_parquet_encryption.so.*.*",
    ),
}  # fmt: skip


class WheelhouseError(ValueError):
    """Something cannot be collected; the message has the fix."""


def pins() -> dict[str, str]:
    """Package and pinned version of every line of requirements.txt and requirements-unsloth.txt."""
    lines = [
        line
        for f in ("requirements.txt", "requirements-unsloth.txt")
        for line in (REPO / f).read_text().split("\n")
    ]
    pairs = (line.split("#")[0].strip().partition("==") for line in lines)
    return {canonicalize_name(name): version for name, same, version in pairs if same}


def download(names: dict[str, str], python: str, folder: Path) -> list[Path]:
    """The wheels of exactly these packages for Linux x86-64. CalledProcessError, after pip's
    words, when one fails."""
    platforms = [f"--platform=manylinux_2_{minor}_x86_64" for minor in range(28, 4, -1)]
    platforms += [f"--platform=manylinux{year}_x86_64" for year in (2014, 2010, 1)]
    known = pins()
    wanted = [
        f"{name}=={version or known[canonicalize_name(name)]}" for name, version in names.items()
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "-q",
        "--no-deps",
        "--only-binary=:all:",
        "--implementation=cp",
    ]
    subprocess.run(
        [*command, f"--python-version={python}", *platforms, "-d", str(folder), *wanted], check=True
    )
    return sorted(folder.glob("*.whl"))


def slim(wheel: Path, drop: tuple[str, ...], keep: tuple[str, ...], folder: Path) -> Path:
    """Write `wheel` again into `folder` without the files that match `drop` and not `keep`; a
    wheel as pip wants it.

    Its RECORD lists what is left, and its build tag (1slim) says that it is not the publisher's.
    """

    def is_kept(name: str) -> bool:
        return any(fnmatch(name, p) for p in keep) or not any(fnmatch(name, p) for p in drop)

    name, version, *tags = wheel.stem.split("-")
    target = folder / "-".join([name, version, "1slim", *tags[-3:]])
    target = target.with_name(target.name + ".whl")
    with (
        zipfile.ZipFile(wheel) as old,
        zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new,
    ):
        record = next(n for n in old.namelist() if re.fullmatch(r"[^/]+\.dist-info/RECORD", n))
        about = record.replace("RECORD", "WHEEL")
        rows = {row[0]: row for row in csv.reader(io.StringIO(old.read(record).decode())) if row}
        left = []
        for item in old.infolist():
            if item.filename == record or item.is_dir() or not is_kept(item.filename):
                continue
            data = old.read(item)
            if item.filename == about:
                data = (
                    re.sub(rb"^Build:.*\n", b"", data, flags=re.MULTILINE).rstrip()
                    + b"\nBuild: 1slim\n"
                )
                digest = (
                    base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
                )
                rows[about] = [about, f"sha256={digest}", str(len(data))]
            item.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(item, data, compresslevel=9)
            left.append(rows[item.filename])
        listing = io.StringIO()
        csv.writer(listing, lineterminator="\n").writerows([*left, [record, "", ""]])
        new.writestr(record, listing.getvalue())
    return target


def cuda_libraries(wheel: Path, versions: list[str]) -> tuple[str, ...]:
    """The names of bitsandbytes' libraries for these CUDA versions ("12.8")."""
    there = sorted(n for n in zipfile.ZipFile(wheel).namelist() if "libbitsandbytes_cuda" in n)
    wanted = {v: f"libbitsandbytes_cuda{v.replace('.', '')}.so" for v in versions}
    for version, name in wanted.items():
        if not any(n.endswith(name) for n in there):
            known = ", ".join(re.sub(r".*cuda(\d\d)(\d+)\.so", r"\1.\2", n) for n in there)
            raise WheelhouseError(
                f"{wheel.name} has no library for CUDA {version}: choose from {known}"
            )
    return tuple(f"*/{name}" for name in wanted.values())


def unmet(wheels: list[Path], has: set[str], python: str) -> list[str]:
    """What a wheel asks for that is neither in the folder, nor on the other machine, nor known to
    be unneeded."""
    environment = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "os_name": "posix",
        "platform_system": "Linux", "platform_machine": "x86_64",
        "implementation_name": "cpython", "extra": "",
    }  # fmt: skip
    here = {canonicalize_name(w.name.split("-")[0]): w.name.split("-")[1] for w in wheels}
    known = has | {canonicalize_name(n) for n in UNNEEDED}
    found = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as file:
            about = next(
                n for n in file.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)
            )
            lines = file.read(about).decode().split("\n\n")[0].splitlines()
        for line in lines:
            if not line.startswith("Requires-Dist:"):
                continue
            need = Requirement(line.partition(":")[2].strip())
            name = canonicalize_name(need.name)
            if need.marker and not need.marker.evaluate(environment):
                continue
            if name in here and not need.specifier.contains(here[name], prereleases=True):
                found.append(
                    f"{wheel.name.split('-')[0]} needs {need.name}{need.specifier}, and "
                    f"{here[name]} is here"
                )
            elif name not in here and name not in known:
                found.append(
                    f"{wheel.name.split('-')[0]} needs {need.name}, which is in none of HAS, "
                    f"WANTED, UNNEEDED"
                )
    return sorted(set(found))


def collect(
    python: str, cuda: list[str], out: Path, without: list[str], also: list[str]
) -> list[tuple[str, int, int]]:
    """Fill `out` (it is emptied of wheels first); (wheel, bytes as published, bytes here) of
    each."""
    leave = {canonicalize_name(n) for n in without}
    names = {n: v for n, v in WANTED.items() if canonicalize_name(n) not in leave}
    unknown = [n for n in also if canonicalize_name(n) not in pins()]
    if unknown:
        raise WheelhouseError(f"--also {unknown[0]}: only what requirements.txt pins can be added")
    names |= dict.fromkeys(also, "")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder, "new")
        new.mkdir()
        for wheel in download(names, python, Path(folder)):
            name = wheel.name.split("-")[0]
            keep = cuda_libraries(wheel, cuda) if name == "bitsandbytes" else ()
            made = (
                slim(wheel, SLIM[name], keep, new)
                if name in SLIM
                else Path(shutil.copy(wheel, new))
            )
            rows.append((made.name, wheel.stat().st_size, made.stat().st_size))
        missing = unmet(sorted(new.glob("*.whl")), HAS | leave, python)
        if missing:
            raise WheelhouseError("; ".join(missing))
        out.mkdir(parents=True, exist_ok=True)
        for old in out.glob("*.whl"):
            old.unlink()
        for wheel in new.iterdir():
            shutil.move(wheel, out / wheel.name)
    return sorted(rows, key=lambda row: -row[2])


def room() -> int:
    """Whole MiB that LIMIT leaves beside this clone's files, which are carried too."""
    command = ["git", "ls-files", "-z"]
    names = subprocess.run(command, cwd=REPO, capture_output=True, check=True, text=True).stdout
    files = [REPO / name for name in names.split("\0") if name]
    return int(LIMIT - sum(f.stat().st_size for f in files if f.is_file()) / MIB)


def show(rows: list[tuple[str, int, int]], limit: int) -> int:
    """Print the table of sizes; 1 when the folder is larger than `limit` MiB, else 0."""
    print(f"{'wheel':44} {'published':>10} {'here':>8}  MiB")
    for name, before, after in rows:
        short = "-".join(name.split("-")[:2])
        print(
            f"{short:44} {before / MIB:10.2f} "
            f"{after / MIB:8.2f}{'  slimmed' if '-1slim-' in name else ''}"
        )
    before, total = sum(r[1] for r in rows), sum(r[2] for r in rows)
    print(f"{f'{len(rows)} wheels':44} {before / MIB:10.2f} {total / MIB:8.2f}")
    if total <= limit * MIB:
        return 0
    print(
        f"That is more than {limit} MiB: leave out with --without what the other machine has",
        file=sys.stderr,
    )
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--python", default="3.12", metavar="X.Y", help="that machine's Python (default 3.12)"
    )
    parser.add_argument(
        "--cuda",
        nargs="+",
        default=["12.8", "13.0"],
        metavar="X.Y",
        help="its torch's CUDA: 12.8 13.0",
    )
    parser.add_argument(
        "--out", type=Path, default=REPO / "wheelhouse", metavar="DIR", help="default: wheelhouse"
    )
    parser.add_argument(
        "--without",
        nargs="*",
        default=OFTEN,
        metavar="NAME",
        help=f"what it has: {' '.join(OFTEN)}",
    )
    parser.add_argument(
        "--also", nargs="*", default=[], metavar="NAME", help="packages that are too old there"
    )
    parser.add_argument(
        "--limit",
        type=int,
        default=room(),
        metavar="MIB",
        help=f"the most it may hold (what the clone leaves of {LIMIT} MiB)",
    )
    args = parser.parse_args()
    try:
        rows = collect(args.python, args.cuda, args.out, args.without, args.also)
    except WheelhouseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError:
        print(
            "error: pip could not download all of them (its reason stands above)", file=sys.stderr
        )
        return 2
    return show(rows, args.limit)


if __name__ == "__main__":
    sys.exit(main())
