"""What the first cell of every notebook calls on Colab: install the pinned versions.

Colab's own packages in `versions.KEPT`, such as torch, stay if their version is in the range. What
is installed can be imported at once: the runtime restarts only if an older version is loaded.
"""

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib import metadata
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
