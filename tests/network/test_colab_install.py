"""The first cell on a fresh Colab: a clean environment, the repository's address set to a local
clone, pip for real.

Colab is played by the variable that it sets, and by an empty environment: what Colab has beyond
that is not here. Minutes and gigabytes: `make test-colab`.
"""

import os
import re
import signal
import subprocess
import sys

import pytest
from conftest import REPO

sys.path.insert(0, str(REPO / "notebooks"))
import build


@pytest.mark.extra
def test_a_fresh_runtime_gets_the_pins_restarts_and_then_goes_on(tmp_path):
    clone, content = tmp_path / "address", tmp_path / "content"
    content.mkdir()
    subprocess.run(["git", "clone", "-q", str(REPO), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    # An older version of what the course needs, and Colab's own version of what is to stay, and of
    # what PEFT refuses.
    older = ["packaging==25.0", "tyro==1.0.16", "torchao==0.10.0"]
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", *older]
    if subprocess.run(pip).returncode:
        pytest.skip("the package index cannot be reached")
    kept = ("PATH", "HOME", "LANG", "SSL_CERT_FILE")
    env = {k: v for k, v in os.environ.items() if k in kept or k.startswith("PIP_")} | {
        "COLAB_RELEASE_TAG": "release"
    }
    cell = build.first_cells(str(clone))[1].source

    def run(more=""):
        command = [python, "-c", f"{cell}\n{more}"]
        return subprocess.run(command, cwd=content, env=env, capture_output=True, text=True)

    first = run("print('went on')")
    assert first.returncode == -signal.SIGKILL, first.stdout + first.stderr[-3000:]
    assert re.search("^Installing .*tyro, .*torchao$", first.stdout, re.MULTILINE)
    assert "packaging" not in first.stdout
    assert "restarts now" in first.stdout
    assert "went on" not in first.stdout
    names = "packaging", "tyro", "trl", "unsloth", "torchao"
    versions = f"import importlib.metadata as m; print([m.version(n) for n in {names}])"
    where = "import grpo_workbook; print(grpo_workbook.__file__)"
    second = run(f"import unsloth\nfrom trl import GRPOTrainer\n{versions}\n{where}")
    assert second.returncode == 0, second.stderr[-3000:]
    assert "The pinned versions are installed." in second.stdout
    assert "['25.0', '1.0.17', '1.15.0', '2026.10.9', '0.18.0']" in second.stdout
    assert str(content / "grpo-workbook" / "grpo_workbook") in second.stdout
