"""The package as a wheel, in an environment of its own outside the clone: nothing asks for the
course's data there.
"""

import json
import shutil
import subprocess
import sys
import sysconfig

import pytest
from conftest import REPO, finished
from test_readme_example import prove

pytestmark = pytest.mark.extra


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory):
    """(a folder outside the clone, the Python of an environment where the wheel is installed and
    the clone is not).
    """
    root = tmp_path_factory.mktemp("elsewhere")
    source = root / "source"
    for name in ("grpo_workbook", "templates"):
        shutil.copytree(REPO / name, source / name)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(root), str(source)]
    done = subprocess.run(build, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no wheel can be built here: {done.stderr.strip()[-300:]}")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "env"], check=True)
    python = root / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-deps"]
    subprocess.run([*pip, *map(str, root.glob("*.whl"))], check=True)
    # the libraries are those of this environment: its folder as a path, without its link to the
    # clone
    packages = sysconfig.get_paths()["purelib"]
    site = next((root / "env" / "lib").glob("python*/site-packages"))
    (site / "libraries.pth").write_text(packages + "\n")
    shutil.rmtree(source)
    return root, python


def call(elsewhere, *arguments):
    root, python = elsewhere
    return finished([python, "-m", "grpo_workbook", *map(str, arguments)], cwd=root)


def test_the_commands_answer(elsewhere):
    root, python = elsewhere
    where = finished(
        [python, "-c", "import grpo_workbook; print(grpo_workbook.__file__)"], cwd=root
    )
    assert str(root) in where.stdout
    for arguments in (
        ["--help"],
        ["run", "--help"],
        ["evaluate", "--help"],
    ):
        result = call(elsewhere, *arguments)
        assert result.returncode == 0, result.stderr


def test_a_model_of_ones_own_is_measured_and_the_courses_own_is_said_to_be_missing(elsewhere):
    root, _ = elsewhere
    shutil.copytree(REPO / "data" / "tiny-qwen3", root / "model", dirs_exist_ok=True)
    rows = [{"question": f"Tom has {n} pens. How many pens?", "answer": str(n)} for n in (3, 4)]
    (root / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    result = call(elsewhere, "evaluate", "model", "--data", "rows.jsonl")
    assert result.returncode == 0, result.stderr[-2000:]
    missing = call(elsewhere, "evaluate", "qwen", "--data", "rows.jsonl")
    assert (missing.returncode, missing.stderr.count("Traceback")) == (2, 0)
    assert "clone" in missing.stderr


def test_the_readmes_snippets_run(elsewhere, tmp_path):
    prove(tmp_path, elsewhere[1])


def test_a_new_project_is_complete_and_trains(elsewhere):
    root, python = elsewhere
    made = call(elsewhere, "new", "mine")
    assert made.returncode == 0, made.stderr
    template, skip = REPO / "templates" / "my_project", {"__pycache__", ".pytest_cache", "outputs"}
    files = {p.relative_to(template) for p in template.rglob("*") if not skip & {*p.parts}}
    assert {p.relative_to(root / "mine") for p in (root / "mine").rglob("*")} == files
    made = call(elsewhere, "new", "queries", "--task", "sql")
    assert (root / "queries" / "shop.db").is_file(), made.stderr
    command = [python, "-m", "grpo_workbook", "run", "--config", "cpu.yaml"]
    trained = finished([*command, "--max-steps", "4", "--heldout", "32"], cwd=root / "mine")
    assert trained.returncode == 0, trained.stderr[-3000:]
    assert (root / "mine" / "outputs" / "cpu" / "merged" / "model.safetensors").is_file()
