"""Colab as it is: what the first cell installs over the packages that Colab's own lists name.

tests/colab has both runtimes' versions of what the course touches, and their date; nothing is
downloaded (make test-colab does that). With COLAB_FREEZES=FOLDER they are compared with newer ones.
"""

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from conftest import REPO, SHARED, environment, raises_naming
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

sys.path.insert(0, str(REPO / "notebooks"))
import colab_setup
from colab_setup import KEPT, wanted

COLAB = tomllib.loads(Path(__file__).with_name("colab").joinpath("freeze.toml").read_text())
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
RANGES = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["unsloth"]]
INSTALLED = """accelerate bitsandbytes datasets hf_transfer math-verify peft pebble reasoning-gym
    sentencepiece torchao trackio transformers trl tyro unsloth unsloth_zoo""".split()
MOVED = {"pyarrow": "datasets", "tokenizers": "transformers"}  # pip brings newer ones


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


def freeze(kind: str) -> dict[str, str]:
    return COLAB["both"] | COLAB[kind]


def needs(name: str) -> list[Requirement]:
    """What this package asks for on Colab: Linux, Python 3.13, no extras."""
    python = COLAB["python"]
    short = python.rpartition(".")[0]
    where = {"extra": "", "python_version": short, "python_full_version": python}
    found = [Requirement(line) for line in metadata.requires(name) or []]
    return [need for need in found if not need.marker or need.marker.evaluate(where)]


@pytest.fixture(params=["cpu", "gpu"])
def colab(request):
    return freeze(request.param)


def test_the_first_cell_installs_what_differs_and_nothing_that_colab_needs(colab, tmp_path):
    missing = wanted(colab)
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
    assert wanted(colab | {normal(n): v for n, v in missing.items()}) == {}


def test_what_is_installed_takes_what_is_kept(colab):
    """pip would refuse the constraints, or the import fail, where it did not."""
    missing = wanted(colab)
    there = colab | {normal(name): version for name, version in missing.items()}
    moved, ignored = {}, {"certifi"}  # Unsloth's wish: it comes without its dependencies
    for package in sorted(missing.keys() - {"torchao"}):  # in the tests' environment there is none
        for need in needs(package):
            name, has = normal(need.name), there.get(normal(need.name))
            fits = not has or need.specifier.contains(has, prereleases=True)
            if not fits and name not in ignored:
                assert name not in KEPT, f"{package} needs {need}, and Colab keeps {has}"
                assert name not in missing, f"{package} needs {need}, and the pin is {has}"
                moved.setdefault(name, package)
    assert moved == MOVED


def test_the_projects_ranges_take_what_colab_has_then(colab):
    there = colab | {normal(n): v for n, v in wanted(colab).items()}
    wrong = [r for r in map(Requirement, RANGES) if not r.specifier.contains(there[normal(r.name)])]
    assert wrong == []
    assert SpecifierSet(PROJECT["requires-python"]).contains(COLAB["python"])


def test_no_range_goes_below_what_was_tried(colab):
    """The chapters were executed with Colab's versions and with the pins, with nothing older."""
    ours = {r.name: r.specifier for r in map(Requirement, RANGES)}
    for name in KEPT.keys() & colab.keys() - {
        "torchao",
        "fastapi",
        "uvicorn",
        "openai",
    }:
        lowest = re.search(r">=([\d.]+)", KEPT[name])[1]
        assert f"{colab[name]}.".startswith(f"{lowest}."), f"{name}: Colab has {colab[name]}"
        assert ours.get(name) in (None, SpecifierSet(), SpecifierSet(KEPT[name])), name


FREEZES = Path(os.environ.get("COLAB_FREEZES", SHARED / "data" / "colab"))


@pytest.mark.skipif(not FREEZES.is_dir(), reason="Colab's own lists are not here: COLAB_FREEZES")
@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_the_table_says_what_colabs_own_list_says(kind):
    text = (FREEZES / f"colab-{kind}-freeze.txt").read_text().replace("%2B", "+")
    rows = re.findall(r"^([\w.-]+)(?:==| @ \S+/\w+-)([^\s-]+)", text, re.MULTILINE)
    has = {canonicalize_name(name): version for name, version in rows}
    drift = {n: (v, has.get(n)) for n, v in freeze(kind).items() if has.get(n) != v}
    assert drift == {}, "package: (tests/colab, Colab today)"


CELL = """
import sys
sys.path[:0] = ["notebooks"]
import numpy, yaml
from colab_setup import installed, loaded_before
print(*loaded_before(installed() | dict.fromkeys(sys.argv[1].split(","), "0.1")))
"""


@pytest.mark.parametrize(
    ("replaced", "loaded"),
    [
        ("trl,transformers,peft,pyarrow,tokenizers,torchao", ""),
        ("trl,numpy,gone-package", "numpy"),
        ("pyyaml,numpy", "numpy pyyaml"),
    ],
)
def test_the_runtime_restarts_only_for_what_it_has_loaded(replaced, loaded):
    command = [sys.executable, "-c", CELL, replaced]
    how = {"capture_output": True, "text": True, "check": True}
    said = subprocess.run(command, cwd=REPO, env=environment(), **how).stdout
    assert said.strip() == loaded


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
    with raises_naming(ImportError, "torchao"):
        with_torchao(has)
    assert with_torchao(wanted({"torchao": has})["torchao"])


@pytest.mark.parametrize("version", ["0.16.0", "0.17.0", "0.18.0"])
def test_a_torchao_that_will_do_stays_and_none_is_installed_where_none_is(version):
    assert "torchao" not in wanted({"torchao": version})
    assert "torchao" not in wanted({})
