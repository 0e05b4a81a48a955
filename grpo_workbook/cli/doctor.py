"""Check this machine, and say how to fix what is wrong."""

import os
import platform
import re
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from grpo_workbook.cli import option
from grpo_workbook.cli.versions import LEFT_OUT, installed, pins, wanted
from grpo_workbook.config import choose_profile

REINSTALL = "run `make setup`, without make `uv sync`; docs/install.md has the same for pip"
ONE_GPU = "set CUDA_VISIBLE_DEVICES=0: one process trains on one GPU (TRL refuses several)"
NO_SANDBOX = "chapter 06 and code rewards need it: on Windows use WSL 2 (docs/install.md)"
WELL = "All is well: `make run` trains and measures here."
WELL_SO_FAR = (
    "All is well so far. `doctor --full` also loads torch, and tries 4-bit and the sandbox."
)
GIB = 2**30
NEEDED_MEMORY_GIB = 3  # of the smoke run
NEEDED_DISK_GIB = 1
OPTIONS = [option("--full", action="store_true", help="load torch, try 4-bit and the sandbox")]


class Line(NamedTuple):
    """One line of the report; `fix` is empty if nothing is wrong."""

    name: str
    value: str
    fix: str = ""


def main(args) -> int:
    """Print the report; 1 if something needs a fix, else 0."""
    wrong = 0
    for line in examine(args.full):
        mark = "!!" if line.fix else "ok"
        print(f"{mark}  {line.name:<14} {line.value}", flush=True)
        if line.fix:
            print(f"{'':19}-> {line.fix}", flush=True)
            wrong += 1
    if wrong:
        print(f"\n{wrong} to fix.")
        return 1
    print(f"\n{WELL if args.full else WELL_SO_FAR}")
    return 0


def examine(full: bool) -> Iterator[Line]:
    """The lines, each when it is known; `full` loads torch and bitsandbytes, and tries them."""
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Line("python", system)
    yield from packages(installed())
    checks = [(gpus, REINSTALL), (machine, REINSTALL)]
    if full:
        checks.append((four_bit, REINSTALL))
        checks.append((sandbox, NO_SANDBOX))
        checks.append((settings, "correct the value, or remove it"))
    for check, fix in checks:
        try:
            yield from check()
        except Exception as problem:  # any error is a line of the report
            yield Line(check.__name__, f"fails: {problem}", fix)


def packages(versions: dict[str, str]) -> list[Line]:
    """Whether each pinned package is installed, in a version that will do."""
    # Colab sets this variable. It has a notebook server, so that ours may be missing there.
    on_colab = "COLAB_RELEASE_TAG" in os.environ
    left_out = LEFT_OUT if on_colab else []
    remedy = "run a notebook's first cell" if on_colab else REINSTALL
    wrong = wanted(versions, left_out)
    lines = []
    # An optional package has no pin, and is listed only when it is wrong.
    for name in {**pins(), **wrong}:
        if name in left_out:
            continue
        version = versions.get(name.lower().replace("_", "-"), "not installed")
        fix = f"the course is tested with {wrong[name]}: {remedy}" if name in wrong else ""
        lines.append(Line(name, version, fix))
    return lines


def gpus() -> list[Line]:
    """The GPUs that the driver shows to this process, and whether torch's build can use them."""
    # nvidia-smi comes with the driver, and answers without loading torch.
    tool = shutil.which("nvidia-smi")
    table = subprocess.run([tool], capture_output=True, text=True).stdout if tool else ""
    # Its head has the newest CUDA that the driver can run. Each GPU has its memory in a row, as
    # "0MiB / 15360MiB".
    driver = re.search(r"CUDA .*?Version: (\d+)", table)
    rows = re.findall(r"MiB */ *\d+MiB", table)
    shown = len(rows) or 1  # a GPU that shares the machine's memory has no such row
    # CUDA shows a process the GPUs of this list alone. "" and -1 hide all of them.
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        shown = min(shown, len([name for name in chosen.split(",") if name not in ("", "-1")]))
    if driver is None or shown == 0:
        return [Line("gpus", "0 visible")]

    takes = int(driver[1])
    # Torch's version file is read as a text, because loading torch takes seconds.
    file = metadata.distribution("torch").locate_file("torch/version.py")
    text = Path(str(file)).read_text(encoding="utf-8")
    built = re.search(r"^cuda\b.*'(\d+)", text, re.MULTILINE)
    build = f"CUDA {built[1]}" if built else "CPUs"
    fix = ONE_GPU if shown > 1 else ""
    # With a build for a newer CUDA than the driver's, torch sees no GPU and does not say why.
    if built is None or int(built[1]) > takes:
        index = "cu130" if takes >= 13 else "cu126"
        fix = (
            f"pip install --force-reinstall torch=={pins()['torch']} "
            f"--index-url https://download.pytorch.org/whl/{index}"
        )
    value = f"{shown} visible: the driver takes CUDA {takes}, torch is built for {build}"
    return [Line("gpus", value, fix)]


def machine() -> Iterator[Line]:
    """Cores, memory and disk."""
    import psutil

    yield Line("cpu", f"{psutil.cpu_count()} cores")
    memory = psutil.virtual_memory()
    fix = ""
    if memory.available < NEEDED_MEMORY_GIB * GIB:
        fix = f"the smoke run needs {NEEDED_MEMORY_GIB} GiB: close other programs"
    yield Line(
        "memory", f"{memory.available / GIB:.1f} GiB free of {memory.total / GIB:.1f} GiB", fix
    )
    free = shutil.disk_usage(".").free
    fix = ""
    if free < NEEDED_DISK_GIB * GIB:
        fix = f"free at least {NEEDED_DISK_GIB} GiB, or choose another disk with --output_dir"
    yield Line("disk", f"{free / GIB:.1f} GiB free here", fix)


def four_bit() -> Iterator[Line]:
    """Quantize and restore a small tensor, because the import alone proves nothing."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    values = torch.linspace(-1, 1, 4096, device=device).reshape(64, 64)
    packed, state = quantize_4bit(values, quant_type="nf4")
    # The widest gap between NF4's levels, from -1 to -0.70, rounds by 0.15 at most.
    error = (dequantize_4bit(packed, state) - values).abs().max().item()
    fix = "" if error < 0.2 else REINSTALL
    yield Line("4-bit", f"NF4 works on {device} (largest rounding {error:.2f} of 1)", fix)


def sandbox() -> Iterator[Line]:
    """How well model-written code is isolated here. Less than full isolation needs no fix."""
    from grpo_workbook.sandbox import Sandbox

    # The sandbox warns where its isolation is weaker, which the line of the report shows.
    with warnings.catch_warnings(action="ignore"), Sandbox(workers=1) as box:
        level, reason = box.probe()
    yield Line("sandbox", f"{level} ({reason})" if reason else level)


def settings() -> Iterator[Line]:
    """The settings of a run on this machine, and the reason for each."""
    profile = choose_profile()
    yield Line("device", f"{profile.device} ({profile.reasons['device']})")
    yield Line("profile", f"{profile.name} ({profile.reasons['profile']})")
    yield Line("model", f"{Path(profile.model).name} ({profile.reasons['model']})")
