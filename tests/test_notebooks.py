"""Every notebook is executed by nbmake in smoke mode, and what nbmake lets through is closed here.

nbmake passes cells whose shell command failed, whose %pip failed, whose thread raised, and `raises-exception` cells
that did not raise. So: none of these may stand in a notebook, the executed outputs may hold no traceback, and a
notebook that trains must prove its steps and its gain in a file.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from conftest import REPO, environment
from filelock import FileLock

sys.path.insert(0, str(REPO / "notebooks"))
import build

SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))
NAMES = [s.stem for s in SOURCES]


def stored(name):
    return nbformat.read(REPO / "notebooks" / f"{name}.ipynb", as_version=4)


def test_every_source_has_its_notebook_and_the_other_way():
    assert [p.stem for p in sorted((REPO / "notebooks").glob("*.ipynb"))] == NAMES
    assert NAMES


@pytest.mark.parametrize("name", NAMES)
def test_stored_notebook_is_built_from_its_source(name):
    notebook, source = stored(name), REPO / "notebooks" / "source" / f"{name}.py"
    assert notebook.metadata["grpo_workbook"]["source_sha256"] == build.source_hash(source), (
        "run `make notebooks`"
    )
    fresh = build.build(source)
    assert [(c.cell_type, c.id, c.source) for c in notebook.cells] == [
        (c.cell_type, c.id, c.source) for c in fresh.cells
    ]


@pytest.mark.parametrize("name", NAMES)
def test_stored_outputs_are_complete_clean_and_short(name):
    notebook = stored(name)
    codes = [c for c in notebook.cells if c.cell_type == "code"]
    assert [c.execution_count for c in codes] == list(range(1, len(codes) + 1))
    for cell in codes:
        for output in cell.outputs:
            assert output.output_type != "error"
            text = output.get("text", "") or output.get("data", {}).get("text/plain", "")
            assert len(text.splitlines()) <= 60, f"a flood in {cell.id}"
            assert "\r" not in text
            assert not re.search(r"(/home/|/root/|/tmp/|/Users/|/work/)", text), (
                f"a path of one machine in {cell.id}"
            )


@pytest.mark.parametrize("name", NAMES)
def test_every_image_has_words(name):
    found = 0
    for cell in stored(name).cells:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            assert "image/png" not in data, (
                f"{cell.id}: show figures with figures.show, which carries the words"
            )
            for tag in re.findall(r"<img [^>]*>", data.get("text/html", "")):
                assert len(re.search(r'alt="([^"]*)"', tag)[1]) > 40
                found += 1
        if cell.cell_type == "markdown":
            assert not re.search(r"!\[\s*\]\(", cell.source)
    assert found


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_nbmake_cannot_see_fail(name):
    for cell in stored(name).cells:
        if cell.cell_type == "code":
            assert not re.search(
                r"^\s*[!%]|\bget_ipython\(|\bos\.system\(|import threading",
                cell.source,
                re.MULTILINE,
            )
            assert "raises-exception" not in cell.metadata.get("tags", [])
    assert "mock" not in stored(name).metadata.get("nbmake", {})


@pytest.mark.parametrize("name", NAMES)
def test_short_cells_with_words_between_them(name):
    cells = stored(name).cells
    for before, cell in itertools.pairwise(cells):
        if cell.cell_type == "code":
            assert before.cell_type == "markdown", (
                f"{cell.id} follows another code cell without a word"
            )
            assert len(cell.source.splitlines()) <= 30
            assert max(map(len, cell.source.splitlines())) <= 88
    text = "\n".join(c.source for c in cells if c.cell_type == "markdown")
    for part in ("After this notebook you can", "**Time:**", "## Exercises", "## Summary"):
        assert part in text


@pytest.mark.parametrize("name", NAMES)
def test_no_warning_of_a_library_reaches_the_reader(name):
    for cell in stored(name).cells:
        for output in cell.get("outputs", []):
            text = output.get("text", "")
            assert not re.search(r"\w*Warning:|warnings\.warn|\bWARNING\b|DEPRECAT", text), (
                f"{cell.id}: {text[:300]}"
            )


@pytest.mark.parametrize("name", NAMES)
def test_headings_are_in_order_and_links_lead_somewhere(name):
    text = "\n".join(c.source for c in stored(name).cells if c.cell_type == "markdown")
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    levels = [len(m[1]) for m in re.finditer(r"^(#+) ", text, re.MULTILINE)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    targets = [
        t.split("#")[0]
        for t in re.findall(r"\]\(([^)\s]+)\)", text)
        if not re.match(r"https?://|#", t)
    ]
    assert [t for t in targets if not (REPO / "notebooks" / t).exists()] == []


def test_building_twice_gives_the_same_notebook():
    first, second = (nbformat.writes(build.build(SOURCES[0])) for _ in range(2))
    assert first == second


def test_a_stale_notebook_is_found(tmp_path):
    shutil.copytree(
        REPO / "notebooks",
        tmp_path / "notebooks",
        ignore=shutil.ignore_patterns("outputs", ".ipynb*"),
    )
    shutil.copy(REPO / "pyproject.toml", tmp_path)  # the first cell's address
    command = [sys.executable, str(tmp_path / "notebooks" / "build.py"), "--check"]
    assert subprocess.run(command).returncode == 0
    with (tmp_path / "notebooks" / "source" / SOURCES[0].name).open("a") as source:
        source.write("\n# a change\n")
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "make notebooks" in result.stdout


def test_words_are_renewed_without_executing_and_code_is_not(tmp_path):
    shutil.copytree(
        REPO / "notebooks",
        tmp_path / "notebooks",
        ignore=shutil.ignore_patterns("outputs", ".ipynb*"),
    )
    shutil.copy(REPO / "pyproject.toml", tmp_path)
    shutil.copy(REPO / "README.md", tmp_path)
    folder, name = tmp_path / "notebooks", SOURCES[0].stem
    before = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    words = [sys.executable, str(folder / "build.py"), "--words", name]
    with (folder / "source" / f"{name}.py").open("a") as source:
        source.write("\n# %% [markdown]\n# One thing more.\n")
    assert subprocess.run(words).returncode == 0
    after = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    assert after.cells[-1].source == "One thing more."
    outputs = [
        [c.get("outputs") for c in n.cells if c.cell_type == "code"] for n in (before, after)
    ]
    assert outputs[0] == outputs[1]
    with (folder / "source" / f"{name}.py").open("a") as source:
        source.write("\n# %%\nprint(1)\n")
    result = subprocess.run(words, capture_output=True, text=True)
    assert result.returncode == 1
    assert "run `make notebooks`" in result.stdout


@pytest.fixture(scope="session")
def executed(tmp_path_factory):
    """name -> (folder of a copy of that notebook, executed by nbmake, its outputs beside it; what nbmake said).

    Each is executed once, for all workers.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def execute(name: str) -> tuple[Path, str]:
        folder, said = root / "nbmake" / name, root / "nbmake" / f"{name}.txt"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(root / "nbmake" / f"{name}.lock"):
            if not said.exists():
                shutil.copy(REPO / "notebooks" / f"{name}.ipynb", folder)
                said.write_text(_nbmake(folder, f"{name}.ipynb"), encoding="utf-8")
        return folder, said.read_text(encoding="utf-8")

    return execute


def _nbmake(folder, notebook):
    options = [
        "--nbmake",
        "--overwrite",
        "--nbmake-timeout=900",
        "--nbmake-kernel=python3",
        "-p",
        "no:cacheprovider",
    ]
    env = environment(
        GRPO_WORKBOOK_PROFILE="smoke",
        GRPO_WORKBOOK_OUTPUT=str(folder / "outputs"),
        GRPO_WORKBOOK_PROGRESS=str(folder / "progress.json"),
        HF_HUB_OFFLINE="1",
        PATH=os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
    )
    command = [sys.executable, "-m", "pytest", *options, "-q", notebook]
    result = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return f"exit status {result.returncode}\n{result.stdout}"


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_nbmake_executes_it(executed, name):
    _, said = executed(name)
    assert said.startswith("exit status 0\n"), said[-6000:]
    assert "1 passed" in said


@pytest.mark.parametrize("name", NAMES)
def test_executed_outputs_hold_no_hidden_failure(executed, name):
    folder, _ = executed(name)
    notebook = nbformat.read(folder / f"{name}.ipynb", as_version=4)
    codes = [c for c in notebook.cells if c.cell_type == "code"]
    assert all(c.execution_count for c in codes)
    text = json.dumps([c.outputs for c in codes])
    assert "Traceback (most recent call last)" not in text
    assert "Exception in thread" not in text
    assert text.count("Not attempted") == sum(
        "exercise" in c.metadata.get("tags", []) for c in codes
    )


def test_notebook_00_trained_learned_and_shows_every_chapter(executed):
    folder, _ = executed("00_start_here")
    proved = json.loads((folder / "outputs" / "notebook_00.json").read_text())
    assert proved["steps"] == 40
    assert proved["linear4bit_layers"] == 4 * 7
    assert proved["after"] > proved["before"] + 0.3
    assert proved["p_value"] < 1e-6
    assert proved["reward"][1] > proved["reward"][0] + 0.5
    outputs = [o for c in stored("00_start_here").cells for o in c.get("outputs", [])]
    shown = next(o.data["text/markdown"] for o in outputs if "text/markdown" in o.get("data", {}))
    assert re.findall(r"\]\((\w+)\.ipynb\)", shown) == NAMES, (
        "a chapter came or went: run `make notebooks`"
    )


def test_notebook_01_trained_and_learned(executed):
    folder, _ = executed("01_grpo_from_scratch")
    proved = json.loads((folder / "outputs" / "notebook_01.json").read_text())
    assert proved["steps"] == 40
    assert proved["before"] <= 0.35
    assert proved["after"] >= 0.8
    log = proved["log"]
    assert [m["step"] for m in log] == list(range(1, 41))
    first, last = log[:5], log[-5:]
    assert sum(m["reward"] for m in last) / 5 > 1.5 * log[0]["reward"]
    assert sum(m["reward_std"] for m in last) < sum(
        m["reward_std"] for m in first
    )  # they agree, on what is right
    assert sum(m["silent_groups"] for m in last) > sum(m["silent_groups"] for m in first)
    assert log[0]["kl"] == pytest.approx(0, abs=1e-9)  # the policy is still its reference
    assert all(m["kl"] > 0.01 for m in last)
    assert all(
        m["clip_low"] == m["clip_high"] == 0 for m in log
    )  # one update for each batch: the ratio is 1


def test_notebook_04_trained_and_learned(executed):
    folder, _ = executed("04_grpo_run")
    proved = json.loads((folder / "outputs" / "notebook.json").read_text())
    assert proved["steps"] == 120
    assert proved["linear4bit_layers"] > 0
    assert proved["before"]["strict_sampled"] <= 0.35
    assert proved["after"]["strict_sampled"] >= 0.85
    assert proved["after"]["strict_greedy"] >= max(0.90, proved["before"]["strict_greedy"])
    assert proved["p_value"] < 1e-6
    assert proved["merged_strict_greedy"] > proved["after"]["strict_greedy"] - 0.05
    assert (folder / "outputs" / "adapter" / "adapter_model.safetensors").is_file()
    assert (folder / "outputs" / "merged" / "model.safetensors").is_file()


def test_notebook_05_watched_a_healthy_run_and_stopped_a_sick_one(executed):
    folder, _ = executed("05_monitoring")
    proved = json.loads((folder / "outputs" / "notebook_05.json").read_text())
    assert proved["steps"] == 20
    assert proved["finding"] == "healthy"
    assert proved["after"] > proved["before"] + 0.2
    assert proved["stopped_at"] <= 10
    assert "rate_too_high" in proved["stopped_for"]


def test_notebook_06_trained_and_learned(executed):
    folder, _ = executed("06_code_rewards")
    proved = json.loads((folder / "outputs" / "code" / "notebook_06.json").read_text())
    assert proved["steps"] == 60
    assert proved["linear4bit_layers"] > 0
    assert 0.2 <= proved["before"]["sampled"] <= 0.45
    assert proved["after"]["sampled"] >= 0.8
    assert proved["after"]["greedy"] >= proved["before"]["greedy"]
    assert proved["p_value"] < 1e-6
    assert "sandbox error" not in proved["outcomes"]


def test_notebook_07_trained_stage_after_stage(executed):
    folder, _ = executed("07_stages_and_curriculum")
    proved = json.loads((folder / "outputs" / "notebook_07.json").read_text())
    assert proved["steps"] == [8, 16]
    assert proved["adamw_steps"] == 24
    assert proved["after"] > proved["before"] + 0.4
    assert proved["p_values"][0] < 1e-6
    assert proved["pass_rates"][1] > proved["pass_rates"][0] + 0.3
    begins = list(proved["kl_begins"].values())
    assert max(map(abs, begins[:2])) < 1e-6 < 1e-3 < begins[2]


def test_notebook_08_trained_and_learned(executed):
    folder, _ = executed("08_evaluation")
    proved = json.loads((folder / "outputs" / "notebook_08.json").read_text())
    assert proved["steps"] == 40
    assert proved["strict"]["after"] > proved["strict"]["before"] + 0.3
    assert proved["p_value"] < 1e-6
    assert any(line.startswith("strict rose from") for line in proved["command"])


def test_notebook_09_merged_a_policy_that_learned_and_refused_wrong_merges(executed):
    folder, _ = executed("09_merge_and_inference")
    proved = json.loads((folder / "outputs" / "notebook_09.json").read_text())
    assert proved["steps"] == 24
    assert proved["after"] > proved["before"] + 0.3
    assert proved["p_value"] < 1e-6
    assert {name: merge["proved"] for name, merge in proved["merges"].items()} == {
        "right": True,
        "alpha / r left out": False,
        "added twice": False,
        "into 4-bit weights": False,
    }
    assert proved["padding"]["left"] > proved["padding"]["right"] + 0.5
    assert proved["port_closed"]
    merged = folder / "outputs" / "chapter_09" / "merged"
    assert (merged / "model.safetensors").is_file()
    assert (folder / "outputs" / "chapter_09" / "merged_by_command" / "model.safetensors").is_file()


def test_notebook_10_measured_what_it_computes_and_trained_in_two_processes(executed):
    folder, _ = executed("10_scale_out")
    proved = json.loads((folder / "outputs" / "notebook_10.json").read_text())
    assert proved["steps"] == 4
    assert proved["two_processes"]["processes"] == 2
    assert proved["cache"][0] == proved["cache"][1] > 0
    without, with_ = proved["kept"]["False"], proved["kept"]["True"]
    assert without[0] == pytest.approx(without[1], rel=0.07)
    assert with_[0] < without[0] / 5
