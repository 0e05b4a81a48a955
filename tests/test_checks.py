"""Both ways: the solutions in the notebooks pass, stubs and typical mistakes are told what they are."""

import re
import textwrap

import jupytext
import pytest
from conftest import REPO

from grpo_workbook import checks

SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))
checks._load_all()


def _blocks():
    """(notebook, exercise, stub code, solution code) of every exercise in every notebook."""
    for source in SOURCES:
        cells = jupytext.read(source, fmt="py:percent").cells
        for heading, stub, answer in zip(cells, cells[1:], cells[2:], strict=False):
            match = re.match(r"### Exercise \d+ · `(\w+)` · (easy|medium|hard) · \d+ minutes", heading.source)
            if match:
                solution = re.search(r"<summary>Solution</summary>\n\n```python\n(.*?)```", answer.source, re.DOTALL)
                yield pytest.param(source.stem, match[1], stub.source, solution and solution[1], id=match[1])


blocks = list(_blocks())


def test_every_exercise_has_its_place_in_a_notebook():
    placed = {(b.values[0], b.values[1]) for b in blocks}
    assert placed == {(e.notebook, e.name) for e in checks.EXERCISES.values()}
    for source in SOURCES:
        assert 3 <= sum(notebook == source.stem for notebook, _ in placed) <= 6


@pytest.fixture
def progress(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", str(tmp_path / "deep" / "progress.json"))
    return tmp_path / "deep" / "progress.json"


@pytest.mark.parametrize(("notebook", "name", "stub", "solution"), blocks)
def test_solution_passes_and_is_recorded(notebook, name, stub, solution, progress, capsys):
    space = {"check": checks.check}
    exec(solution, space)
    assert checks.check(space[name]).status == "solved"
    assert "Solved" in capsys.readouterr().out
    assert checks.solved() == {name}


@pytest.mark.parametrize(("notebook", "name", "stub", "solution"), blocks)
def test_stub_runs_through_and_is_not_attempted(notebook, name, stub, solution, progress, capsys):
    exec(stub, {"check": checks.check})
    assert "Not attempted" in capsys.readouterr().out
    assert checks.solved() == set()
    assert "raise NotImplementedError" in stub
    # the stub is typed, and the solution keeps its signature
    signature = re.search(rf"def {name}\((.*)\) -> (.*):", stub)
    assert signature
    assert signature[0] in solution


@pytest.mark.parametrize("name", checks.EXERCISES)
def test_typical_mistakes_fail_and_are_named(name):
    task = checks.EXERCISES[name]
    assert len(task.mistakes) >= 2
    for wrong, sentence in task.mistakes:
        wrong.__name__ = name
        result = checks.judge(wrong)
        assert (result.status, result.message) == ("wrong", sentence)
        assert len(sentence) > 30


def test_an_unknown_mistake_is_shown_its_case():
    def lora_parameters(shapes, rank):
        return 7

    message = checks.judge(lora_parameters).message
    assert message == "lora_parameters([(128, 128)], 16) should give 4096, but gave 7"

    def lora_parameters(shapes, rank):
        return undefined  # noqa: F821

    assert "raised NameError" in checks.judge(lora_parameters).message


def test_a_function_that_changes_its_arguments_does_not_spoil_the_cases():
    def lora_parameters(shapes, rank):
        total = 0
        while shapes:
            a, b = shapes.pop()
            total += rank * (a + b)
        return total

    assert checks.judge(lora_parameters).status == checks.judge(lora_parameters).status == "solved"


def test_a_wrong_name_is_said():
    def something_else():
        pass

    with pytest.raises(ValueError, match="no exercise is called 'something_else'"):
        checks.judge(something_else)


def test_a_damaged_progress_file_is_kept_aside(progress, capsys):
    progress.parent.mkdir(parents=True)
    progress.write_text("{broken")
    checks.record("lora_parameters")
    assert checks.solved() == {"lora_parameters"}
    assert progress.with_suffix(".damaged").read_text() == "{broken"


def test_progress_lists_every_exercise(progress, capsys):
    checks.record("lora_parameters")
    assert checks.show_progress() == 0
    out = capsys.readouterr().out
    assert "[x] lora_parameters" in out
    assert "[ ] accumulation_steps" in out
    assert textwrap.shorten(out, 10_000).endswith(f"1 of {len(checks.EXERCISES)} solved")
