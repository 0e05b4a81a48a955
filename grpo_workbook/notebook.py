"""Helpers for notebooks: show a function's source, silence libraries, set up Colab.

On Colab the first cell of every notebook calls `set_up`: it installs the pinned versions and
restarts. Colab's own packages in KEPT, such as torch, stay if their version is in the range.
"""

import inspect
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO

# What will do beside the pins: Colab needs its own as they are, and vLLM an older fastapi.
KEPT = {
    "torch": ">=2.4,<2.15", "pandas": ">=2.2", "scipy": ">=1.11", "matplotlib": ">=3.8",
    "tensorboard": ">=2.15", "protobuf": ">=4", "psutil": ">=5.9", "packaging": ">=24.1",
    "filelock": ">=3.15", "tqdm": ">=4.66", "rich": ">=13",
    "fastapi": ">=0.115", "uvicorn": ">=0.30", "openai": ">=1.98", "torchao": ">=0.16",
}  # fmt: skip
# For JupyterLab and for tests: Colab has its own notebook server.
LEFT_OUT = "jupyterlab ipykernel jupytext nbclient nbformat nbmake pytest pytest-xdist ruff".split()


def show(*objects: Callable) -> None:
    """Display the source of functions or classes, so that a lesson always shows the real code."""
    from IPython.display import Code, display

    display(Code("\n\n".join(inspect.getsource(o).rstrip() for o in objects), language="python"))


def quiet() -> None:
    """Turn off the libraries' loading bars and advice. Call it before `import unsloth`."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("DATASETS_VERBOSITY", "critical")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it suggests a download for 4-bit
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", message="IProgress not found")  # plain bars are enough


def pins() -> dict[str, str]:
    """Package and pinned version of every `name==version` line; {} without a clone."""
    files = (REPO / name for name in ("requirements.txt", "requirements-unsloth.txt"))
    text = "\n".join(f.read_text(encoding="utf-8") for f in files if f.is_file())
    return dict(re.findall(r"^([\w.-]+)==([^\s#]+)", text, re.MULTILINE))


def installed() -> dict[str, str]:
    """Installed packages and their versions, by normalised name."""
    found = ((d.metadata["Name"], d.version) for d in metadata.distributions())
    return {name.lower().replace("_", "-"): version for name, version in found if name}


def wanted(there: Mapping[str, str], left_out=LEFT_OUT) -> dict[str, str]:
    """Package and version of everything that is not there in a version that will do."""
    from packaging.specifiers import SpecifierSet

    missing, optional = {}, {"torchao": "0.18.0"}  # PEFT refuses Colab's 0.10 for every LoRA
    for name, pin in (pins() | {n: pin for n, pin in optional.items() if n in there}).items():
        has = there.get(name.lower().replace("_", "-"), "0")
        fits = SpecifierSet(KEPT.get(name, f"=={pin}"))  # ==2.13.0 takes 2.13.0+cu130 too
        if name not in left_out and has not in fits:
            missing[name] = pin
    return missing


def commands(missing: Mapping[str, str], there: Mapping[str, str], file: Path) -> list[list[str]]:
    """The pip commands that install `missing` and move nothing that is kept, by a constraints file.

    Unsloth and torchao come last and without their dependencies; then the course.
    """
    keep = [f"{name}=={there[name]}\n" for name in KEPT if name in there and name not in missing]
    file.write_text("".join(keep), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    asked = [f"{name}=={pin}" for name, pin in missing.items()]
    last = [name for name in asked if name.startswith(("unsloth", "torchao"))]
    first = [name for name in asked if name not in last]
    found = [[*pip, "-c", str(file), *first]] if first else []
    return [*found, [*pip, "--no-deps", *last, "-e", str(REPO)]]


def set_up() -> None:
    """Install the pinned versions and end this process, so that Colab starts a new one.

    If pip fails, or a version is still wrong afterwards, it raises and does not restart.
    """
    there = installed()
    missing = wanted(there)
    if not missing and "grpo-workbook" in there:
        print("The pinned versions are installed.")
        return
    print("Installing", ", ".join(missing) or "the course", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(missing, there, Path(folder) / "constraints.txt"):
            subprocess.run(command, check=True)
    if wrong := wanted(installed()):
        raise WorkbookError(f"pip did not install these: {wrong}. Start a new runtime")
    print("Installed. The runtime restarts now: run this cell once more.", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
