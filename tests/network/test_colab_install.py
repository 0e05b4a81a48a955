"""Run all on Colab: its packages in its versions, its kernel, the first cell, and then the chapter.

tests/colab has the versions; beyond what stands there nothing of Colab is here. The Python is the
one that runs this test (Colab's is 3.13), and torch is the package index's build of Colab's
version: on an index with CPU builds 150 MB, elsewhere CUDA's 3 GB. Many minutes: `make test-colab`.
"""

import json
import os
import re
import signal
import subprocess
import sys
from datetime import datetime

import pytest
from conftest import REPO
from nbclient import NotebookClient
from test_colab import freeze
from test_notebooks import PROOFS

sys.path.insert(0, str(REPO / "notebooks"))
import build

PINS = {"trl": "1.15.0", "tyro": "1.0.17", "torchao": "0.18.0", "unsloth": "2026.10.9"}
STAYS = ("torch", "pandas", "scipy", "numpy", "matplotlib", "protobuf", "psutil")
LOOK = f"""
import importlib.metadata as m
import json
from packaging.requirements import Requirement
needs = [r for r in map(Requirement, m.requires("grpo-workbook")) if not r.marker]
wrong = [str(r) for r in needs if not r.specifier.contains(m.version(r.name), prereleases=True)]
print(json.dumps([wrong, {{name: m.version(name) for name in {(*PINS, *STAYS)}}}]))
"""


@pytest.fixture(scope="module")
def colab(tmp_path_factory):
    """(folder, Python, environment variables, first cell) of a runtime as Colab starts one."""
    folder = tmp_path_factory.mktemp("colab")
    subprocess.run(["git", "clone", "-q", str(REPO), str(folder / "address")], check=True)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python, wanted = folder / "venv" / "bin" / "python", folder / "freeze.txt"
    has = {name: version.split("+")[0] for name, version in freeze("cpu").items()}
    wanted.write_text("".join(f"{name}=={version}\n" for name, version in has.items()))
    if subprocess.run([python, "-m", "pip", "install", "-q", "-r", wanted]).returncode:
        pytest.skip("the package index cannot be reached, or lacks one of Colab's versions")
    subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "triton"])
    (about,) = (folder / "venv").rglob("torch-*.dist-info/METADATA")  # a CPU build asks for none
    about.write_text(re.sub("(?m)^Requires-Dist: triton.*\n", "", about.read_text()))
    kernel = folder / "jupyter" / "kernels" / "colab" / "kernel.json"
    kernel.parent.mkdir(parents=True)
    start = [str(python), "-m", "ipykernel_launcher", "--matplotlib=inline"]
    start += ["-f", "{connection_file}"]
    kernel.write_text(json.dumps({"argv": start, "display_name": "Colab", "language": "python"}))
    kept = ("PATH", "HOME", "LANG", "SSL_CERT_FILE", "OMP_NUM_THREADS")
    env = {k: v for k, v in os.environ.items() if k in kept or k.startswith("PIP_")}
    env |= {"COLAB_RELEASE_TAG": "release", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    return folder, python, env, build.first_cells(str(folder / "address"))[1].source


def run_all(colab, name: str) -> tuple[str, float]:
    """(what the first cell said, its seconds) of a chapter executed from its top to its end."""
    folder, _, env, cell = colab
    notebook = build.build(REPO / "notebooks" / "source" / f"{name}.py")
    (first,) = [c for c in notebook.cells if c.id == "first-cell"]
    first.source = cell
    env = env | {"GRPO_WORKBOOK_OUTPUT": str(folder / name)}
    client = NotebookClient(notebook, timeout=1800, kernel_name="colab")
    client.resources = {"metadata": {"path": str(folder)}}
    client.execute(env=env)
    times = [datetime.fromisoformat(t) for t in first.metadata.execution.values()]
    return "".join(o.text for o in first.outputs), (max(times) - min(times)).total_seconds()


@pytest.mark.extra
def test_one_click_installs_and_goes_on_to_the_end(colab, monkeypatch):
    folder, python, env, _ = colab
    monkeypatch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
    size = lambda: sum(f.stat().st_size for f in (folder / "venv").rglob("*") if f.is_file())  # noqa: E731
    before = size()
    said, seconds = run_all(colab, "00_start_here")
    assert "Installed. Go on with the next cell." in said
    print(f"The first cell: {seconds:.0f} s, {(size() - before) / 1e6:+.0f} MB on the disk")
    looked = subprocess.run([python, "-c", LOOK], env=env, capture_output=True, text=True)
    wrong, versions = json.loads(looked.stdout)
    assert wrong == []
    has = {name: version.split("+")[0] for name, version in versions.items()}
    assert has == PINS | {name: freeze("cpu")[name].split("+")[0] for name in STAYS}
    for name in ("02_dataset_prep", "05_monitoring"):
        said, _ = run_all(colab, name)
        assert said == "The pinned versions are installed.\n"
    for name in ("00_start_here", "05_monitoring"):
        file, holds = PROOFS[name]
        holds(folder, json.loads((folder / name / file).read_text()))


@pytest.mark.extra
def test_what_was_loaded_before_restarts_the_runtime_once(colab):
    """After the chapters: only one small package is older again, and the runtime has loaded it."""
    folder, python, env, cell = colab
    pip = [python, "-m", "pip", "install", "-q", "--no-deps", "tyro==1.0.16"]
    subprocess.run(pip, env=env, check=True)

    def run(before: str, after: str):
        command = [python, "-c", f"{before}\n{cell}\n{after}"]
        return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)

    first = run("import tyro", "print('went on')")
    assert first.returncode == -signal.SIGKILL, first.stdout + first.stderr[-3000:]
    assert "Installing tyro (" in first.stdout
    assert "tyro had been loaded before, so the runtime restarts now" in first.stdout
    assert first.stdout.endswith("Choose Runtime > Run all once more.\n")
    second = run("", "import grpo_workbook\nprint(grpo_workbook.__file__)")
    assert second.returncode == 0, second.stderr[-3000:]
    where = folder / "grpo-workbook" / "grpo_workbook" / "__init__.py"
    assert second.stdout.splitlines()[-2:] == ["The pinned versions are installed.", str(where)]
