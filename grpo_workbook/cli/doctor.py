"""What is this machine, what will the course choose on it, and what is wrong, with the mend."""

import platform
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO
from grpo_workbook.notebook import pins

MIN_PYTHON = (3, 11)
REINSTALL = (
    "run `make setup` (it installs requirements.txt, then requirements-unsloth.txt with --no-deps)"
)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report; `mend` is empty when all is well."""

    name: str
    value: str
    mend: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which they are printed. Loads torch and bitsandbytes."""
    findings = [_python(), *_versions(pins())]
    if any(f.name in ("torch", "psutil") and f.value == "not installed" for f in findings):
        return findings  # nothing more can be said without them
    findings += [*_machine(), _four_bit(), _sandbox(), *_models()]
    try:
        run = RunConfig.from_env()
        findings.append(Finding("device", run.device))
        findings.append(Finding("profile", f"{run.profile} ({run.why['profile']})"))
        findings.append(Finding("model", f"{Path(run.model).name} ({run.why['model']})"))
    except WorkbookError as error:
        findings.append(Finding("settings", "unusable", str(error)))
    return findings


def _python() -> Finding:
    mend = (
        ""
        if sys.version_info >= MIN_PYTHON
        else "install Python 3.11 or newer and run `make PYTHON=python3.11 setup`"
    )
    return Finding(
        "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}", mend
    )


def _versions(wanted: dict[str, str]) -> list[Finding]:
    findings = []
    for name, pin in wanted.items():
        try:
            there = version(name)
        except PackageNotFoundError:
            findings.append(Finding(name, "not installed", REINSTALL))
            continue
        plain = there.split("+")[0]  # torch 2.13.0+cpu is torch 2.13.0
        mend = "" if plain == pin else f"the course is tested with {pin}: {REINSTALL}"
        findings.append(Finding(name, there, mend))
    return findings


def _machine() -> list[Finding]:
    import psutil
    import torch

    memory = psutil.virtual_memory()
    disk = shutil.disk_usage(Path.cwd())
    return [
        *_gpus(torch.cuda.device_count() if torch.cuda.is_available() else 0),
        Finding(
            "cpu",
            f"{psutil.cpu_count(logical=True)} cores, torch uses {torch.get_num_threads()} threads",
        ),
        Finding(
            "memory",
            f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f} GiB",
            ""
            if memory.available > 3 * 2**30
            else "the smoke run needs 3 GiB: close other programs",
        ),
        Finding(
            "disk",
            f"{disk.free / 2**30:.1f} GiB free here",
            ""
            if disk.free > 2**30
            else "free at least 1 GiB, or choose another disk with --output",
        ),
    ]


def _gpus(count: int) -> list[Finding]:
    """One process may see one GPU only: TRL refuses several."""
    if count < 2:
        return []
    return [
        Finding(
            "gpus", f"{count} visible", "set CUDA_VISIBLE_DEVICES=0: one process trains on one GPU"
        )
    ]


def _four_bit() -> Finding:
    """Quantize and restore a small tensor: the import alone proves nothing."""
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        from bitsandbytes.functional import dequantize_4bit, quantize_4bit

        x = torch.linspace(-1, 1, 4096, device=device).reshape(64, 64)
        error = (dequantize_4bit(*quantize_4bit(x, quant_type="nf4")) - x).abs().max().item()
    except Exception as problem:  # whatever it is, it goes on the page
        return Finding("4-bit", f"fails: {problem}", REINSTALL)
    return Finding(
        "4-bit",
        f"NF4 works on {device} (largest rounding {error:.2f} of 1)",
        "" if error < 0.2 else REINSTALL,
    )


def _sandbox() -> Finding:
    """How well model-written code can be shut in here. Less than full is no fault of the installation: no mend."""
    import warnings

    from grpo_workbook.sandbox.sandbox import Sandbox

    try:
        with warnings.catch_warnings(), Sandbox(workers=1) as sandbox:
            warnings.simplefilter("ignore")
            level, why = sandbox.probe()
    except (OSError, RuntimeError) as problem:
        return Finding(
            "sandbox",
            f"fails: {problem}",
            "model-written code cannot be run here: chapter 06 needs it",
        )
    return Finding("sandbox", f"{level} ({why})" if why else level)


def _models() -> list[Finding]:
    findings = []
    for folder in ("tiny-qwen3", "tiny-gemma3"):
        there = (REPO / "data" / folder / "model.safetensors").is_file()
        findings.append(
            Finding(
                folder,
                "present" if there else "missing",
                "" if there else "run `make models` (15 minutes), or clone again",
            )
        )
    return findings


def show(findings: list[Finding]) -> int:
    """Print the report; 1 when something needs a mend, else 0."""
    for finding in findings:
        print(f"{'!!' if finding.mend else 'ok'}  {finding.name:<14} {finding.value}")
        if finding.mend:
            print(f"    {'':<14} -> {finding.mend}")
    wrong = sum(bool(f.mend) for f in findings)
    print(
        f"\n{wrong} to mend"
        if wrong
        else "\nAll is well: `make run` trains and measures a model here."
    )
    return 1 if wrong else 0
