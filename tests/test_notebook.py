"""A helper's own source on the page; the first cell, which sets a Colab runtime up."""

import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat
import pytest
from conftest import REPO, assert_names, copy_notebooks, environment
from packaging.specifiers import SpecifierSet

from grpo_workbook.notebook import show

sys.path.insert(0, str(REPO / "notebooks"))
import build
import colab_setup
from colab_setup import KEPT, LEFT_OUT, installed, pins, wanted

ADDRESS = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
CELL = build.first_cells()[1].source


def run(code: str, folder: Path, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
    )


def test_show_displays_the_source_as_it_is(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    show(show)
    assert shown[0].data.startswith("def show(")
    assert "display(Code(" in shown[0].data


@pytest.mark.parametrize("path", sorted((REPO / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_the_set_up_is_the_first_code_cell_of_every_notebook(path):
    cells = nbformat.read(path, as_version=4).cells
    assert next(c for c in cells if c.cell_type == "code").source == CELL
    assert [c.cell_type for c in cells[:4]] == ["markdown", "markdown", "code", "markdown"]


def test_the_address_stands_in_one_place():
    assert f'"{ADDRESS}"' in CELL
    texts = [
        p.read_text()
        for folder in ("grpo_workbook", "notebooks")
        for p in (REPO / folder).rglob("*.py")
    ]
    assert not [t for t in texts if ADDRESS in t]


def test_the_set_up_does_nothing_outside_of_colab(tmp_path):
    result = run(
        f"{CELL}\nprint('grpo_workbook.notebook' in sys.modules, sys.path[0] == '')", tmp_path
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "False True\n", "")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_is_not_there_fails_loudly(tmp_path):
    cell = build.first_cells(str(tmp_path / "nowhere"))[1].source
    result = run(f"{cell}\nprint('went on')", tmp_path, COLAB_RELEASE_TAG="release")
    assert result.returncode == 1
    assert "nowhere" in result.stderr
    assert "CalledProcessError" in result.stderr
    assert "went on" not in result.stdout


def test_where_every_version_is_right_nothing_is_installed(tmp_path):
    """In this environment, which has the pins: no pip, no restart, the notebook goes on."""
    code = (
        f"import sys; sys.path[:0] = [{str(REPO)!r}, {str(REPO / 'notebooks')!r}]\n"
        "from colab_setup import set_up\nset_up()\nprint('on')"
    )
    if wanted(installed()) or "grpo-workbook" not in installed():
        pytest.skip("this environment does not have the pinned versions: make setup")
    result = run(code, tmp_path)
    assert (result.returncode, result.stdout) == (0, "The pinned versions are installed.\non\n")


def test_versions_count_and_not_presence(tmp_path):
    there = {n.lower().replace("_", "-"): v for n, v in pins().items()}
    assert wanted(there) == {}
    assert wanted(there | {"trl": "1.14.0"}) == {"trl": pins()["trl"]}
    assert wanted(there | {"transformers": "5.18.0"}) == {"transformers": pins()["transformers"]}
    assert wanted({n: v for n, v in there.items() if n != "unsloth-zoo"}) == {
        "unsloth_zoo": pins()["unsloth_zoo"]
    }
    assert wanted({n: v for n, v in there.items() if n not in ("jupyterlab", "pytest")}) == {}


def test_colabs_own_torch_stays_where_unsloth_takes_it():
    there = {n.lower().replace("_", "-"): v for n, v in pins().items()}
    assert wanted(there | {"torch": "2.11.0+cu130", "pandas": "2.2.2"}) == {}
    assert wanted(there | {"torch": "2.15.0+cu130"}) == {"torch": pins()["torch"]}


def test_what_pip_is_told(tmp_path):
    missing, constraints = {"trl": "1.15.0", "unsloth": "2026.10.9"}, tmp_path / "c.txt"
    first, last = colab_setup.commands(
        missing, {"torch": "2.11.0+cu130", "trl": "1.14.0"}, constraints
    )
    assert constraints.read_text() == "torch==2.11.0+cu130\n"
    assert first[:4] == [sys.executable, "-m", "pip", "install"]
    assert first[-3:] == ["-c", str(constraints), "trl==1.15.0"]
    assert last[-4:] == ["--no-deps", "unsloth==2026.10.9", "-e", str(REPO)]


@pytest.mark.slow
def test_pip_that_fails_is_loud_and_nothing_restarts(tmp_path):
    """A pin that no index has, by pip itself: the cell ends in pip's error, and the process was
    not killed."""
    code = f"""
import sys
sys.path[:0] = [{str(REPO)!r}, {str(REPO / "notebooks")!r}]
import colab_setup
colab_setup.wanted = lambda there: {{"trl": "1.15.0"}}
colab_setup.set_up()
"""
    result = run(
        code, tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path), PIP_FORCE_REINSTALL="1"
    )
    assert result.returncode == 1
    assert "CalledProcessError" in result.stderr
    assert_names(result.stderr, "trl==1.15.0")


def test_kept_and_left_out_are_pins():
    known = pins() | {"torchao": "0.18.0"}  # where there is one
    assert set(KEPT) | set(LEFT_OUT) <= set(known)
    assert all(SpecifierSet(there).contains(known[name]) for name, there in KEPT.items())


def test_a_new_first_cell_leaves_the_outputs_alone(tmp_path):
    path = REPO / "notebooks" / "03_reward_design.ipynb"
    stored, fresh = (
        nbformat.read(path, as_version=4),
        build.build(REPO / "notebooks" / "source" / "03_reward_design.py"),
    )
    before = [(c.id, str(c.get("outputs"))) for c in stored.cells]
    stored.cells[2].source = "an older first cell"
    assert build.renew_first_cell(stored, fresh)
    assert [(c.id, str(c.get("outputs"))) for c in stored.cells] == before
    assert build.outline(stored) == build.outline(fresh)
    del stored.cells[1:3]
    assert build.renew_first_cell(stored, fresh)
    assert [(c.id, str(c.get("outputs"))) for c in stored.cells] == before
    stored.cells[5].source += "!"
    assert not build.renew_first_cell(stored, fresh)


@pytest.mark.slow
def test_another_address_is_found_and_put_in_without_executing(tmp_path):
    copy_notebooks(tmp_path)
    project = (REPO / "pyproject.toml").read_text().replace(ADDRESS, "https://example.org/another")
    (tmp_path / "pyproject.toml").write_text(project)
    path = tmp_path / "notebooks" / "03_reward_design.ipynb"
    before = [c.get("outputs") for c in nbformat.read(path, as_version=4).cells]

    def run_build(option):
        return subprocess.run(
            [sys.executable, str(tmp_path / "notebooks" / "build.py"), option], capture_output=True
        )

    assert run_build("--check").returncode == 1
    assert run_build("--first-cell").returncode == 0
    assert run_build("--check").returncode == 0
    cells = nbformat.read(path, as_version=4).cells
    assert '"https://example.org/another"' in cells[2].source
    assert [c.get("outputs") for c in cells] == before


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("2", "2")])
@pytest.mark.parametrize("torch_first", [True, False])
def test_one_thread_unless_told_otherwise(before, after, torch_first):
    code = "import torch\n" * torch_first + (
        "import os; from grpo_workbook import use_one_thread; use_one_thread(); import torch\n"
        "print(os.environ['OMP_NUM_THREADS'], torch.get_num_threads())"
    )
    env = environment()
    env.pop("OMP_NUM_THREADS", None)
    env |= {} if before is None else {"OMP_NUM_THREADS": before}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert result.stdout.split() == [after, after], result.stderr
