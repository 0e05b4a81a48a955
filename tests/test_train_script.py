"""The template's train.py: its PEP 723 header has the course's pins, and it trains as it stands."""

import re
import shutil
import sys
import tomllib

import pytest
from conftest import REPO, finished
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPT = REPO / "templates" / "my_project" / "train.py"
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))


def header() -> dict:
    """What uv reads, by the expression that PEP 723 gives."""
    text = SCRIPT.read_text(encoding="utf-8")
    block = re.search(r"(?m)^# /// script$\s(?P<content>(^#(| .*)$\s)+)^# ///$", text)["content"]
    return tomllib.loads(re.sub(r"(?m)^# ?", "", block))


def named(requirements: list[str]) -> dict[str, str]:
    """Name -> the rest: a version or an address."""
    found = [Requirement(text) for text in requirements]
    return {canonicalize_name(one.name): one.url or str(one.specifier) for one in found}


def test_the_header_has_the_courses_pins_and_all_that_the_package_imports():
    lines = []
    for name in ("requirements.txt", "requirements/unsloth.txt"):
        text = (REPO / name).read_text(encoding="utf-8")
        lines += re.findall(r"^[\w.-]+==[^\s#]+", text, re.MULTILINE)
    pins, there = named(lines), named(header()["dependencies"])
    address = PROJECT["project"]["urls"]["Repository"]
    assert there.pop("grpo-workbook") == f"git+{address}"
    assert there == {name: pins.get(name) for name in there}
    needed = named(PROJECT["project"]["dependencies"]).keys()
    needed |= named(PROJECT["project"]["optional-dependencies"]["unsloth"]).keys()
    assert needed & pins.keys() | {"unsloth", "unsloth-zoo"} == there.keys()


def test_uv_reads_the_rest_as_from_pyproject():
    assert header()["requires-python"] == PROJECT["project"]["requires-python"]
    metadata = PROJECT["tool"]["uv"]["dependency-metadata"]
    assert header()["tool"]["uv"]["dependency-metadata"] == metadata


@pytest.mark.trains
def test_it_trains_as_it_stands(tmp_path):
    skip = shutil.ignore_patterns("__pycache__", "outputs")
    shutil.copytree(SCRIPT.parent, tmp_path / "mine", ignore=skip)
    # as `hf jobs uv run` starts it: the script alone, with the folder on Python's path (chapter 10)
    (tmp_path / "mine" / "train.py").rename(tmp_path / "train.py")
    call = [sys.executable, "train.py", "4"]
    result = finished(call, cwd=tmp_path, PYTHONPATH=f"{REPO}:{tmp_path / 'mine'}")
    assert result.returncode == 0, result.stderr[-3000:]
    before, after = map(float, re.findall(r"(?:before|after) ([\d.]+)%", result.stdout))
    assert 10 < before < 50
    assert after > 0
    adapter = tmp_path / "mine" / "outputs" / "script" / "adapter"
    assert (adapter / "adapter_model.safetensors").is_file()
