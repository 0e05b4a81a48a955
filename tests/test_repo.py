"""The project as a whole: what the README promises exists, and setting up twice installs once."""

import re
import subprocess
import sys

import pytest
from conftest import REPO, cli

README = (REPO / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_the_chapters_that_exist_and_no_other():
    linked = set(re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", README))
    assert linked == {p.stem for p in (REPO / "notebooks").glob("*.ipynb")}


def test_every_link_and_picture_in_the_readme_leads_somewhere():
    targets = [t for t in re.findall(r"\]\(([^)\s]+)\)", README) if not t.startswith("http")]
    assert targets
    assert [t for t in targets if not (REPO / t).exists()] == []
    for words in re.findall(r"!\[([^]]*)\]", README):
        assert len(words) > 40
    assert "@@" not in README


def test_every_module_has_a_docstring_and_stays_small():
    for path in (REPO / "grpo_workbook").rglob("*.py"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith('"""'), path
        assert len(lines) <= 320, f"{path.name} holds two ideas"


def test_modules_import_only_from_those_before_them():
    order = [
        "run",
        "answers",
        "data",
        "rewards",
        "grpo",
        "grpo_trainer",
        "config",
        "training",
        "evaluate",
        "export",
        "figures",
        "charts",
        "folder",
        "pipeline",
    ]
    for place, name in enumerate(order):
        text = (REPO / "grpo_workbook" / f"{name}.py").read_text(encoding="utf-8")
        used = set(re.findall(r"from grpo_workbook\.(\w+) import", text)) & set(order)
        assert used <= set(order[:place]), name


def test_nothing_loads_foreign_code_or_pickles():
    for path in [*(REPO / "grpo_workbook").rglob("*.py"), *(REPO / "notebooks" / "source").glob("*.py")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(
            r"trust_remote_code|import pickle|torch\.load\(|os\.system|(?<![.\w])(eval|exec)\(", text
        ), path


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["doctor", "--help"]])
def test_help_fits_80_columns(arguments):
    result = cli(*arguments)
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    if arguments != ["doctor", "--help"]:
        assert "examples:" in result.stdout


def test_an_unknown_command_is_bad_input():
    result = cli("fly")
    assert result.returncode == 2
    assert "fly" in result.stderr


def test_make_installs_once(tmp_path):
    """With a stand-in for pip that writes down its calls: the second make calls it no more, a changed pin does."""
    for name in ("Makefile", "requirements.txt", "requirements-unsloth.txt", "pyproject.toml"):
        (tmp_path / name).write_text((REPO / name).read_text())
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").write_text(f"#!/bin/sh\necho $* >> {tmp_path}/calls\n")
    (bin_ / "python").chmod(0o755)

    def calls():
        subprocess.run(["make", "setup", f"PYTHON={sys.executable}"], cwd=tmp_path, check=True, capture_output=True)
        return (tmp_path / "calls").read_text().splitlines()

    first = calls()
    assert [("--no-deps" in c, "-r requirements-unsloth.txt" in c) for c in first][1] == (True, True)
    assert calls() == first
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    import os
    import time

    later = time.time() + 5
    os.utime(tmp_path / "requirements.txt", (later, later))
    assert len(calls()) == 2 * len(first)
