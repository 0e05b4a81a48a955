"""The pinned versions, the installed ones, and what has to be installed."""

import re
from collections.abc import Mapping
from importlib import metadata

from grpo_workbook.files import REPO

# What will do beside the pins: Colab needs its own as they are (no range goes below what was tried
# there: tests/colab), and vLLM an older fastapi.
KEPT = {
    "torch": ">=2.11,<2.15", "pandas": ">=2.2", "scipy": ">=1.16", "matplotlib": ">=3.10",
    "tensorboard": ">=2.20", "protobuf": ">=5.29", "psutil": ">=5.9", "packaging": ">=26",
    "filelock": ">=3.32", "tqdm": ">=4.67", "rich": ">=13.9",
    "fastapi": ">=0.115", "uvicorn": ">=0.30", "openai": ">=1.98", "torchao": ">=0.16",
}  # fmt: skip
# For JupyterLab and for tests: Colab has its own notebook server.
LEFT_OUT = "jupyterlab ipykernel jupytext nbclient nbformat nbmake pytest pytest-xdist ruff".split()


def pins() -> dict[str, str]:
    """Package and pinned version of every `name==version` line; {} without a clone."""
    files = (REPO / name for name in ("requirements.txt", "requirements/unsloth.txt"))
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
