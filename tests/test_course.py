"""The map of the course: it says what the notebooks say, and counts what is solved."""

import json

import pytest
from conftest import REPO

from grpo_workbook.exercises import course_map
from grpo_workbook.exercises.course import chapters


@pytest.fixture
def progress(tmp_path, monkeypatch):
    path = tmp_path / "progress.json"
    monkeypatch.setenv("GRPO_WORKBOOK_PROGRESS", str(path))
    return path


def test_every_chapter_is_on_the_map_with_its_words(progress):
    found = chapters()
    assert [c.name for c in found] == [
        p.stem for p in sorted((REPO / "notebooks").glob("[0-9]*.ipynb"))
    ]
    for c in found:
        assert c.title.startswith(f"{c.name[:2]} · ")
        assert len(c.skill) > 40
        assert "minute" in c.minutes
        assert (c.solved, c.exercises >= 3) == (0, True)


def test_what_is_solved_is_counted(progress, capsys):
    progress.write_text(
        json.dumps({"solved": {"01.1": "2026-01-01", "01.2": "2026-01-01", "99.9": "2026-01-01"}})
    )
    assert {c.name: c.solved for c in chapters()}["01_grpo_from_scratch"] == 2
    assert sum(c.solved for c in chapters()) == 2


def test_the_table_links_to_the_chapters(progress, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    course_map()
    assert "[00 · Start here](00_start_here.ipynb)" in shown[0].data
    assert shown[0].data.count("\n") == len(chapters()) + 1


def test_a_folder_without_notebooks_has_an_empty_map(tmp_path, progress):
    assert chapters(tmp_path) == []
