"""What notebooks need beside the lesson: short output, and a helper's own source."""

import subprocess
import sys

import pytest
from conftest import REPO, environment

from grpo_workbook.notebook import show

IMPORT = "from grpo_workbook.notebook import quiet; quiet(); quiet(); import unsloth; print(unsloth.__version__)"


def test_without_a_gpu_importing_unsloth_says_so_in_one_short_line():
    result = subprocess.run(
        [sys.executable, "-c", IMPORT],
        cwd=REPO,
        env=environment(CUDA_VISIBLE_DEVICES=""),
        capture_output=True,
        text=True,
        check=True,
    )
    banner, version = result.stdout.splitlines()
    assert banner == f"Unsloth {version}: no GPU found, training on CPU"


def test_show_displays_the_source_as_it_is(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show(show)
    assert shown[0].data.startswith("def show(")
    assert "display(Code(" in shown[0].data


@pytest.mark.parametrize("module", ["json", "grpo_workbook.lengths"])
def test_other_imports_print_what_they_print(module):
    code = f"from grpo_workbook.notebook import quiet; quiet(); import {module}; print('a (b) c')"
    said = subprocess.run([sys.executable, "-c", code], cwd=REPO, capture_output=True, text=True, check=True).stdout
    assert said == "a (b) c\n"
