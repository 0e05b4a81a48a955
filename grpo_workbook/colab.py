"""Set a Colab runtime up: the pinned versions, then a restart, before anything is downloaded or loaded.

The first cell of every notebook calls `set_up`. Colab brings packages of its own: those in KEPT stay as they are where
their version will do, torch above all, for Colab's fits its GPU. All others get the pinned version, not just any.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from packaging.specifiers import SpecifierSet

from grpo_workbook.cli.doctor import MIN_PYTHON, pins
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO

UNSLOTH = REPO / "requirements-unsloth.txt"
# Colab's own, and other programs of Colab need them as they are.
KEPT = {
    "torch": ">=2.4,<2.15",  # what Unsloth takes
    "pandas": ">=2.2",
    "scipy": ">=1.11",
    "matplotlib": ">=3.8",
    "tensorboard": ">=2.15",
    "protobuf": ">=4",
    "psutil": ">=5.9",
    "packaging": ">=24.1",
    "filelock": ">=3.15",
    "tqdm": ">=4.66",
    "rich": ">=13",
}
# For JupyterLab and for tests: Colab has its own notebook server.
LEFT_OUT = "jupyterlab ipykernel jupytext nbclient nbformat nbmake pytest pytest-xdist ruff".split()


def installed() -> dict[str, str]:
    """Package and version of everything that is installed, by normalised name; what pip left half removed has none."""
    found = ((d.metadata["Name"], d) for d in metadata.distributions())
    return {name.lower().replace("_", "-"): d.version for name, d in found if name}


def wanted(there: Mapping[str, str]) -> dict[str, str]:
    """Package and version of everything that must be installed, because its version is not there."""
    found = {}
    for name, pin in pins().items():
        has = there.get(name.lower().replace("_", "-"), "").split("+")[
            0
        ]  # torch 2.13.0+cu130 is torch 2.13.0
        fits = has == pin or (
            has and name in KEPT and SpecifierSet(KEPT[name]).contains(has, prereleases=True)
        )
        if name not in LEFT_OUT and not fits:
            found[name] = pin
    return found


def commands(
    missing: Mapping[str, str], there: Mapping[str, str], constraints: Path
) -> list[list[str]]:
    """The pip commands that install `missing` and move nothing that is kept; writes the file of constraints.

    Unsloth comes last and without its dependencies, as `make setup` does it.
    """
    keep = {name: there[name] for name in KEPT if name in there and name not in missing}
    constraints.write_text("".join(f"{n}=={v}\n" for n, v in keep.items()), encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    unsloth = set(pins(UNSLOTH))
    first, last = (
        [f"{n}=={v}" for n, v in missing.items() if (n in unsloth) is late]
        for late in (False, True)
    )
    found = [[*pip, "-c", str(constraints), *first]] if first else []
    found += [[*pip, "--no-deps", *last]] if last else []
    return [*found, [*pip, "--no-deps", "-e", str(REPO)]]


def set_up() -> None:
    """Install what differs from the pins, and end this process so that Colab starts a new one; else do nothing.

    Raises CalledProcessError when pip fails, and WorkbookError for a Python that is too old or a version that is still
    wrong afterwards: then nothing is restarted, and the cell stays red.
    """
    if sys.version_info < MIN_PYTHON:
        raise WorkbookError(
            f"Python {sys.version.split()[0]} is too old: choose a runtime with 3.11 or newer"
        )
    there = installed()
    missing = wanted(there)
    if not missing and "grpo-workbook" in there:
        print("The pinned versions are installed.")
        return
    print(
        f"Installing {', '.join(f'{n} {v}' for n, v in missing.items()) or 'the course'}",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(missing, there, Path(folder) / "constraints.txt"):
            subprocess.run(command, check=True)
    if wrong := wanted(installed()):
        raise WorkbookError(
            f"pip said that all is well, and these are not there: {wrong}. Start a new runtime"
        )
    print(
        "Installed. The runtime restarts now, without the old versions: run this cell once more.",
        flush=True,
    )
    os.kill(os.getpid(), signal.SIGKILL)
