"""The pinned versions, the installed ones, and what has to be installed."""

import re
from collections.abc import Mapping, Sequence
from importlib import metadata

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


def wanted(versions: Mapping[str, str], left_out: Sequence[str] = LEFT_OUT) -> dict[str, str]:
    """What has to be installed: package and pinned version of all that will not do.

    Args:
        versions: the installed packages, see `installed`.
        left_out: packages that may be missing.
    """
    from packaging.specifiers import SpecifierSet

    required = pins()
    # Nothing needs these packages, but where one is installed its version must be a good one.
    for name, version in OPTIONAL.items():
        if name in versions:
            required[name] = version
    missing = {}
    for name, version in required.items():
        if name in left_out:
            continue
        # A package that is not installed counts as version 0, which no range takes.
        has = versions.get(name.lower().replace("_", "-"), "0")
        if has not in SpecifierSet(KEPT.get(name, f"=={version}")):  # 2.13.0+cu130 is 2.13.0 too
            missing[name] = version
    return missing
