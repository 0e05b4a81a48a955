"""Check this machine, and list what a report of a problem needs.

Each line is a fact or a trial: the versions against pyproject.toml, Unsloth,
the GPU, a 4-bit tensor, the sandbox, the settings of a run. A line with !! is
followed by its fix. Nothing secret is printed. Takes about ten seconds.

Exit status 1: something needs a fix.

examples:
  python -m grpo_workbook doctor
"""

import os
import platform
import shutil
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import NamedTuple

from grpo_workbook import compat
from grpo_workbook.cli.report import versions
from grpo_workbook.config import choose_profile
from grpo_workbook.errors import WorkbookError

REINSTALL = "run `make setup`, without make `uv sync`; docs/install.md has the same for pip"
NO_GPU = "install a build of torch that your driver takes: pytorch.org/get-started/locally"
NO_SANDBOX = "chapter 06 and code rewards need it: on Windows use WSL 2 (docs/install.md)"
OPTIONS: list[tuple] = []


class Line(NamedTuple):
    """One line of the report; `fix` is empty if nothing is wrong."""

    name: str
    value: str
    fix: str = ""


def main(args) -> int:
    """Print the report; 1 if something needs a fix, else 0."""
    status = 0
    for line in examine():
        mark = "!!" if line.fix else "ok"
        print(f"{mark}  {line.name:<14} {line.value}", flush=True)
        if line.fix:
            print(f"{'':19}-> {line.fix}", flush=True)
            status = 1
    if status == 0:
        print("\nAll is well: `make run` trains and measures here.")
    return status


def examine() -> Iterator[Line]:
    """The lines of the report, each when it is known."""
    yield Line("platform", platform.platform())
    for name, version in versions().items():
        yield Line(name, version)
    # From quick to slow: what a reader waits for comes last.
    checks: list[tuple[str, Callable[[], str], str]] = [
        ("packages", check_packages, REINSTALL),
        ("unsloth", check_unsloth, REINSTALL),
        ("gpu", check_gpu, NO_GPU),
        ("machine", describe_machine, REINSTALL),
        ("4-bit", check_four_bit, REINSTALL),
        ("sandbox", check_sandbox, NO_SANDBOX),
        ("settings", describe_settings, "correct the value, or remove it"),
    ]
    for name, check, fix in checks:
        try:
            yield Line(name, check())
        except Exception as problem:  # any error is a line of the report
            yield Line(name, f"fails: {problem}", fix)


def check_packages() -> str:
    """Whether the package's requirements are installed in the ranges of pyproject.toml."""
    from packaging.requirements import Requirement

    wrong = []
    requirements = metadata.requires("grpo-workbook") or []
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None:  # of an extra
            continue
        version = metadata.version(requirement.name)
        if version not in requirement.specifier:
            wrong.append(f"{requirement.name} is {version}, not {requirement.specifier}")
    if wrong:
        raise WorkbookError("; ".join(wrong))
    return "in the ranges that were tried"


def check_unsloth() -> str:
    """Whether Unsloth can be loaded with these versions of the other libraries."""
    compat.refuse_mlx()
    return "loads"


def check_gpu() -> str:
    """The GPUs that torch sees. Raises WorkbookError if there is one that torch cannot use."""
    import torch

    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return f"{', '.join(names)} (CUDA {torch.version.cuda})"
    # Torch does not say why it sees none: it is a build for CPUs, or for a newer driver.
    is_hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    if shutil.which("nvidia-smi") and not is_hidden:
        build = torch.version.cuda or "no CUDA"
        raise WorkbookError(f"nvidia-smi is here, but torch (built for {build}) sees no GPU")
    if torch.backends.mps.is_available():
        return "Apple's GPU is not used (docs/apple_silicon.md): the tiny models train on the CPU"
    return "none: the tiny models train on the CPU"


def describe_machine() -> str:
    """Cores, memory and disk."""
    import psutil

    memory = psutil.virtual_memory()
    disk = psutil.disk_usage(".")
    return (
        f"{psutil.cpu_count()} cores, {memory.available / 2**30:.1f} of "
        f"{memory.total / 2**30:.1f} GiB memory free, {disk.free / 2**30:.1f} GiB disk free here"
    )


def check_four_bit() -> str:
    """Quantize and restore a small tensor, because the import alone proves nothing."""
    import torch
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    device = "cuda" if torch.cuda.is_available() else "cpu"
    values = torch.linspace(-1, 1, 4096, device=device).reshape(64, 64)
    packed, state = quantize_4bit(values, quant_type="nf4")
    error = (dequantize_4bit(packed, state) - values).abs().max().item()
    # The widest gap between NF4's levels, from -1 to -0.70, rounds by 0.15 at most.
    if not error < 0.2:
        raise WorkbookError(f"NF4 on {device} rounds by {error:.2f}, at most 0.15 is right")
    return f"NF4 works on {device} (largest rounding {error:.2f} of 1)"


def check_sandbox() -> str:
    """How well model-written code is isolated here. Less than full isolation needs no fix."""
    from grpo_workbook.sandbox import Sandbox

    # The sandbox warns where its isolation is weaker, which the line of the report shows.
    with warnings.catch_warnings(action="ignore"), Sandbox(workers=1) as box:
        level, reason = box.probe()
    return f"{level} ({reason})" if reason else level


def describe_settings() -> str:
    """The profile and the model of a run on this machine. Raises WorkbookError for a wrong one."""
    profile = choose_profile()
    return f"profile {profile.name} ({profile.reasons['profile']}), model {profile.model_name}"
