"""Colab as it is: what the first cell installs over the packages that Colab's own lists name.

tests/colab holds `pip freeze` of both runtimes; nothing is downloaded (make test-colab does that).
"""

import re
import sys
from importlib import metadata
from pathlib import Path

import pytest
from conftest import REPO
from packaging.requirements import Requirement

from grpo_workbook.cli import versions

sys.path.insert(0, str(REPO / "notebooks"))
import colab_setup

FREEZES = Path(__file__).with_name("colab")
INSTALLED = """accelerate bitsandbytes datasets hf_transfer math-verify peft pebble reasoning-gym
    sentencepiece torchao trackio transformers trl tyro unsloth unsloth_zoo""".split()
MOVED = {"pyarrow": "datasets", "tokenizers": "transformers"}  # pip brings newer ones


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def freeze(kind: str) -> dict[str, str]:
    text = (FREEZES / f"{kind}.txt").read_text()
    found = re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE)
    return {normal(name): version for name, version in found}


def needs(name: str) -> list[Requirement]:
    """What this package asks for on Colab: Linux, Python 3.13, no extras."""
    where = {"extra": "", "python_version": "3.13", "python_full_version": "3.13.15"}
    found = [Requirement(line) for line in metadata.requires(name) or []]
    return [need for need in found if not need.marker or need.marker.evaluate(where)]


@pytest.fixture(params=["cpu", "gpu"])
def colab(request):
    return freeze(request.param)


def test_the_first_cell_installs_what_differs_and_nothing_that_colab_needs(colab, tmp_path):
    missing = versions.wanted(colab)
    assert sorted(missing) == sorted(INSTALLED)
    first, last = colab_setup.commands(missing, colab, tmp_path / "constraints.txt")
    kept = (tmp_path / "constraints.txt").read_text().split()
    assert f"torch=={colab['torch']}" in kept
    assert "pandas==2.2.3" in kept
    assert not [line for line in kept if line.startswith("torchao")]
    # Without their dependencies: Unsloth's are for CUDA, and torchao's are not Colab's to choose.
    assert "--no-deps" in last
    assert {"torchao==0.18.0", "unsloth==2026.10.9"} <= set(last)
    assert not [word for word in first if word.startswith(("torch", "unsloth"))]
    assert versions.wanted(colab | {normal(n): v for n, v in missing.items()}) == {}


def test_what_is_installed_takes_what_is_kept(colab):
    """pip would refuse the constraints, or the import fail, where it did not."""
    missing = versions.wanted(colab)
    there = colab | {normal(name): version for name, version in missing.items()}
    moved, ignored = {}, {"certifi"}  # Unsloth's wish: it comes without its dependencies
    for package in sorted(missing.keys() - {"torchao"}):  # in the tests' environment there is none
        for need in needs(package):
            name, has = normal(need.name), there.get(normal(need.name))
            fits = not has or need.specifier.contains(has, prereleases=True)
            if not fits and name not in ignored:
                assert name not in versions.KEPT, f"{package} needs {need}, and Colab keeps {has}"
                assert name not in missing, f"{package} needs {need}, and the pin is {has}"
                moved.setdefault(name, package)
    assert moved == MOVED


@pytest.mark.slow
def test_peft_takes_the_torchao_that_colab_has_then(tmp_path, monkeypatch):
    from peft.import_utils import is_torchao_available

    def with_torchao(version: str) -> bool:
        about = tmp_path / version / f"torchao-{version}.dist-info" / "METADATA"
        about.parent.mkdir(parents=True)
        about.write_text(f"Metadata-Version: 2.1\nName: torchao\nVersion: {version}\n")
        (tmp_path / version / "torchao").mkdir()
        (tmp_path / version / "torchao" / "__init__.py").touch()
        monkeypatch.syspath_prepend(tmp_path / version)
        return is_torchao_available.__wrapped__()

    has = freeze("gpu")["torchao"]
    with pytest.raises(ImportError, match="incompatible version of torchao"):
        with_torchao(has)
    assert with_torchao(versions.wanted({"torchao": has})["torchao"])


@pytest.mark.parametrize("version", ["0.16.0", "0.17.0", "0.18.0"])
def test_a_torchao_that_will_do_stays_and_none_is_installed_where_none_is(version):
    assert "torchao" not in versions.wanted({"torchao": version})
    assert "torchao" not in versions.wanted({})
