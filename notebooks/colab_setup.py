"""What the first cell of every notebook calls on Colab: install the pinned versions.

Colab's own packages in KEPT, such as torch, stay if their version is in the range. What
is installed can be imported at once: the runtime restarts only if an older version is loaded.
"""

import importlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from grpo_workbook.files import REPO

# What will do beside the pins: Colab needs its own as they are (no range goes below what was tried
# there: tests/colab), and vLLM an older fastapi.
KEPT = {
    "torch": ">=2.11,<2.15",
    "pandas": ">=2.2",
    "scipy": ">=1.16",
    "matplotlib": ">=3.10",
    "tensorboard": ">=2.20",
    "protobuf": ">=5.29",
    "psutil": ">=5.9",
    "packaging": ">=26",
    "filelock": ">=3.32",
    "tqdm": ">=4.67",
    "rich": ">=13.9",
    "fastapi": ">=0.115",
    "uvicorn": ">=0.30",
    "openai": ">=1.98",
    "torchao": ">=0.16",
}
OPTIONAL = {"torchao": "0.18.0"}  # PEFT refuses Colab's 0.10 for every LoRA
# For JupyterLab and for tests: Colab has its own notebook server.
LEFT_OUT = [
    "jupyterlab",
    "ipykernel",
    "jupytext",
    "nbclient",
    "nbformat",
    "nbmake",
    "pytest",
    "pytest-xdist",
    "ruff",
]


def pins() -> dict[str, str]:
    """Package and pinned version of every `name==version` line; {} without a clone."""
    versions = {}
    for name in ("requirements.txt", "requirements/unsloth.txt"):
        path = REPO / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            versions.update(re.findall(r"^([\w.-]+)==([^\s#]+)", text, re.MULTILINE))
    return versions


def installed() -> dict[str, str]:
    """Installed packages and their versions, by normalised name."""
    versions = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        # What a removed package has left behind may have no name.
        if name:
            # For a package index capitals do not count, and an underscore is a hyphen.
            versions[name.lower().replace("_", "-")] = distribution.version
    return versions


def wanted(versions: Mapping[str, str]) -> dict[str, str]:
    """What has to be installed: package and pinned version of all that will not do."""
    from packaging.specifiers import SpecifierSet

    required = pins()
    # Nothing needs these packages, but where one is installed its version must be a good one.
    for name, version in OPTIONAL.items():
        if name in versions:
            required[name] = version
    missing = {}
    for name, version in required.items():
        if name in LEFT_OUT:
            continue
        # A package that is not installed counts as version 0, which no range takes.
        has = versions.get(name.lower().replace("_", "-"), "0")
        if has not in SpecifierSet(KEPT.get(name, f"=={version}")):  # 2.13.0+cu130 is 2.13.0 too
            missing[name] = version
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


def loaded_before(there: Mapping[str, str]) -> list[str]:
    """The packages that this process has imported in a version of `there` that is gone now."""
    now = installed()
    gone = {name for name, version in there.items() if now.get(name) != version}
    owners = metadata.packages_distributions()
    loaded = {owner for module in owners.keys() & sys.modules.keys() for owner in owners[module]}
    return sorted(gone & {name.lower().replace("_", "-") for name in loaded})


def set_up() -> None:
    """Install the pinned versions; end this process, so that Colab starts a new one, if it must.

    If pip fails, or a version is still wrong afterwards, it raises and does not restart.
    """
    there = installed()
    missing = wanted(there)
    if not missing and "grpo-workbook" in there:
        print("The pinned versions are installed.")
        return
    print("Installing", ", ".join(missing) or "the course", "(about 170 MB)", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(missing, there, Path(folder) / "constraints.txt"):
            subprocess.run(command, check=True)
    importlib.invalidate_caches()
    if wrong := wanted(installed()):
        raise RuntimeError(f"pip did not install these: {wrong}. Start a new runtime")
    if not (old := loaded_before(there)):
        print("Installed. Go on with the next cell.")
        return
    print(f"Installed, but {', '.join(old)} had been loaded before, so the runtime restarts now.")
    print("Choose Runtime > Run all once more.", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
