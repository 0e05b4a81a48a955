"""Check this machine, and say how to fix what is wrong."""

import os
import platform
import re
import shutil
import subprocess
import warnings
from collections import namedtuple
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from grpo_workbook.cli import option
from grpo_workbook.cli.versions import LEFT_OUT, installed, pins, wanted
from grpo_workbook.run_config import RunConfig

REINSTALL = "run `make setup`, without make `uv sync`; docs/install.md has the same for pip"
ONE_GPU = "set CUDA_VISIBLE_DEVICES=0: one process trains on one GPU (TRL refuses several)"
NO_SANDBOX = "chapter 06 and code rewards need it: on Windows use WSL 2 (docs/install.md)"
WELL = "All is well: `make run` trains and measures here."
MORE = "`doctor --full` also loads torch, and tries 4-bit and the sandbox."
OPTIONS = [option("--full", action="store_true", help="load torch, try 4-bit and the sandbox")]
# One line of the report; `fix` is empty if nothing is wrong.
Line = namedtuple("Line", "name value fix", defaults=("",))


def main(args) -> int:
    """Print the report; 1 if something needs a fix, else 0."""
    wrong = 0
    for name, value, fix in examine(args.full):
        said = f"{'!!' if fix else 'ok'}  {name:<14} {value}"
        print(said + (f"\n{'':19}-> {fix}" if fix else ""), flush=True)
        wrong += bool(fix)
    well, more = (WELL, "") if args.full else ("All is well so far.", f" {MORE}")
    print(f"\n{wrong} to fix.{more}" if wrong else f"\n{well}{more}")
    return int(wrong > 0)


def examine(full: bool) -> Iterator[Line]:
    """The lines, each when it is known; `full` loads torch and bitsandbytes, and tries them."""
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Line("python", system)
    yield from packages(installed())
    tried = {four_bit: REINSTALL, sandbox: NO_SANDBOX, settings: "correct the value, or remove it"}
    checks = {gpus: REINSTALL, machine: REINSTALL} | (tried if full else {})
    for check, fix in checks.items():
        try:
            yield from check()
        except Exception as problem:  # any error is a line of the report
            yield Line(check.__name__, f"fails: {problem}", fix)


def packages(there: dict[str, str]) -> list[Line]:
    """Whether each pinned package is there, in a version that will do."""
    colab = "COLAB_RELEASE_TAG" in os.environ
    left_out, fix = (LEFT_OUT, "run a notebook's first cell") if colab else ([], REINSTALL)
    wrong = wanted(there, left_out)
    fixes = {name: f"the course is tested with {pin}: {fix}" for name, pin in wrong.items()}
    has = {n: there.get(n.lower().replace("_", "-"), "not installed") for n in pins() | wrong}
    return [Line(n, has[n], fixes.get(n, "")) for n in has if n not in left_out]


def gpus() -> list[Line]:
    """The GPUs that the driver shows to this process, and whether torch's build can use them."""
    tool, chosen = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    told = subprocess.run([tool], capture_output=True, text=True).stdout if tool else ""
    takes, rows = re.search(r"CUDA .*?Version: (\d+)", told), re.findall(r"MiB */ *\d+MiB", told)
    shown = len(rows) or 1  # a GPU that shares the machine's memory has no such row
    if chosen is not None:
        shown = min(shown, len([name for name in chosen.split(",") if name not in ("", "-1")]))
    if not takes or not shown:
        return [Line("gpus", "0 visible")]
    file = metadata.distribution("torch").locate_file("torch/version.py")  # to load it: seconds
    built = re.search(r"^cuda\b.*'(\d+)", Path(file).read_text(encoding="utf-8"), re.MULTILINE)
    fix, kind = ONE_GPU if shown > 1 else "", f"CUDA {built[1]}" if built else "CPUs"
    if not built or int(built[1]) > int(takes[1]):
        index = f"https://download.pytorch.org/whl/{'cu130' if int(takes[1]) >= 13 else 'cu126'}"
        fix = f"pip install --force-reinstall torch=={pins()['torch']} --index-url {index}"
    driver = f"the driver takes CUDA {takes[1]}, torch is built for {kind}"
    return [Line("gpus", f"{shown} visible: {driver}", fix)]


def machine() -> list[Line]:
    """Cores, memory and disk."""
    import psutil

    gib, memory, free = 2**30, psutil.virtual_memory(), shutil.disk_usage(".").free
    small = "the smoke run needs 3 GiB: close other programs"
    full = "free at least 1 GiB, or choose another disk with --output"
    left = f"{memory.available / gib:.1f} GiB free of {memory.total / gib:.1f} GiB"
    return [
        Line("cpu", f"{psutil.cpu_count()} cores"),
        Line("memory", left, "" if memory.available > 3 * gib else small),
        Line("disk", f"{free / gib:.1f} GiB free here", "" if free > gib else full),
    ]


def four_bit() -> list[Line]:
    """Quantize and restore a small tensor, because the import alone proves nothing."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.linspace(-1, 1, 4096, device=device).reshape(64, 64)
    error = (dequantize_4bit(*quantize_4bit(x, quant_type="nf4")) - x).abs().max().item()
    works = f"NF4 works on {device} (largest rounding {error:.2f} of 1)"
    return [Line("4-bit", works, "" if error < 0.2 else REINSTALL)]


def sandbox() -> list[Line]:
    """How well model-written code is isolated here. Less than full isolation needs no fix."""
    from grpo_workbook.sandbox import Sandbox

    with warnings.catch_warnings(action="ignore"), Sandbox(workers=1) as box:
        level, why = box.probe()
    return [Line("sandbox", f"{level} ({why})" if why else level)]


def settings() -> list[Line]:
    """The settings of a run on this machine, and the reason for each."""
    run = RunConfig.from_env()
    told = {"device": run.device, "profile": run.profile, "model": Path(run.model).name}
    return [Line(name, f"{value} ({run.why[name]})") for name, value in told.items()]
