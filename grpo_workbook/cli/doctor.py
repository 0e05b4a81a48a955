"""Check this machine, and say how to fix what is wrong."""

import os
import platform
import re
import shutil
import subprocess
import warnings
from collections import namedtuple
from pathlib import Path

from grpo_workbook.cli.versions import LEFT_OUT, installed, pins, wanted
from grpo_workbook.config import RunConfig

REINSTALL = "run `make setup`, without make `uv sync`; docs/install.md has the same for pip"
ONE_GPU = "set CUDA_VISIBLE_DEVICES=0: one process trains on one GPU (TRL refuses several)"
NO_SANDBOX = "chapter 06 and code rewards need it: on Windows use WSL 2 (docs/install.md)"
OPTIONS: list = []
# One line of the report; `fix` is empty if nothing is wrong.
Finding = namedtuple("Finding", "name value fix", defaults=("",))


def main(args=None) -> int:
    """Print the report; 1 if something needs a fix, else 0."""
    wrong = 0
    for name, value, fix in examine():
        print(f"{'!!' if fix else 'ok'}  {name:<14} {value}" + f"\n{'':19}-> {fix}" * bool(fix))
        wrong += bool(fix)
    print(f"\n{wrong} to fix" if wrong else "\nAll is well: `make run` trains and measures here.")
    return int(wrong > 0)


def examine() -> list[Finding]:
    """All findings in the order of printing. Loads torch and bitsandbytes."""
    system = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    findings = [Finding("python", system), *packages(installed())]
    checks = {machine: REINSTALL, four_bit: REINSTALL}
    checks |= {sandbox: NO_SANDBOX, settings: "correct the value, or remove it"}
    for check, fix in checks.items():
        try:
            findings += check()
        except Exception as problem:  # any error is a line of the report
            findings.append(Finding(check.__name__, f"fails: {problem}", fix))
    return findings


def packages(there: dict[str, str]) -> list[Finding]:
    """Whether each pinned package is there, in a version that will do."""
    colab = "COLAB_RELEASE_TAG" in os.environ
    left_out, fix = (LEFT_OUT, "run a notebook's first cell") if colab else ([], REINSTALL)
    wrong = wanted(there, left_out)
    fixes = {name: f"the course is tested with {pin}: {fix}" for name, pin in wrong.items()}
    has = {n: there.get(n.lower().replace("_", "-"), "not installed") for n in pins() | wrong}
    return [Finding(n, has[n], fixes.get(n, "")) for n in has if n not in left_out]


def machine() -> list[Finding]:
    """GPUs, cores, memory and disk."""
    import psutil
    import torch

    gib, memory, free = 2**30, psutil.virtual_memory(), shutil.disk_usage(".").free
    gpus, small = torch.cuda.device_count(), "the smoke run needs 3 GiB: close other programs"
    full = "free at least 1 GiB, or choose another disk with --output"
    left = f"{memory.available / gib:.1f} GiB free of {memory.total / gib:.1f} GiB"
    return [
        Finding("gpus", f"{gpus} visible", ONE_GPU if gpus > 1 else "" if gpus else other_build()),
        Finding("cpu", f"{psutil.cpu_count()} cores, torch uses {torch.get_num_threads()} threads"),
        Finding("memory", left, "" if memory.available > 3 * gib else small),
        Finding("disk", f"{free / gib:.1f} GiB free here", "" if free > gib else full),
    ]


def other_build() -> str:
    """What to install where torch is built for a newer CUDA than the driver takes, or for none."""
    import torch

    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    tool = None if hidden else shutil.which("nvidia-smi")
    told = subprocess.run([tool], capture_output=True, text=True).stdout if tool else ""
    takes, built = re.search(r"CUDA Version: (\d+)", told), torch.version.cuda or "0"
    if not takes or 0 < int(built.split(".")[0]) <= int(takes[1]):
        return ""
    said = f"the driver takes CUDA {takes[1]}, torch is built for {torch.version.cuda or 'CPUs'}"
    index = f"https://download.pytorch.org/whl/{'cu130' if int(takes[1]) >= 13 else 'cu126'}"
    return f"{said}: pip install --force-reinstall torch=={pins()['torch']} --index-url {index}"


def four_bit() -> list[Finding]:
    """Quantize and restore a small tensor, because the import alone proves nothing."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.linspace(-1, 1, 4096, device=device).reshape(64, 64)
    error = (dequantize_4bit(*quantize_4bit(x, quant_type="nf4")) - x).abs().max().item()
    works = f"NF4 works on {device} (largest rounding {error:.2f} of 1)"
    return [Finding("4-bit", works, "" if error < 0.2 else REINSTALL)]


def sandbox() -> list[Finding]:
    """How well model-written code is isolated here. Less than full isolation needs no fix."""
    from grpo_workbook.sandbox import Sandbox

    with warnings.catch_warnings(action="ignore"), Sandbox(workers=1) as box:
        level, why = box.probe()
    return [Finding("sandbox", f"{level} ({why})" if why else level)]


def settings() -> list[Finding]:
    """The settings of a run on this machine, and the reason for each."""
    run = RunConfig.from_env()
    told = {"device": run.device, "profile": run.profile, "model": Path(run.model).name}
    return [Finding(name, f"{value} ({run.why[name]})") for name, value in told.items()]
