"""What the first cell of every notebook calls on Colab: install the pinned versions, and restart.

Colab's own packages in `versions.KEPT`, such as torch, stay if their version is in the range.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from grpo_workbook.cli.versions import KEPT, installed, wanted
from grpo_workbook.files import REPO


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
        raise RuntimeError(f"pip did not install these: {wrong}. Start a new runtime")
    print("Installed. The runtime restarts now: run this cell once more.", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
