"""The map of the course: each chapter with its skill, its minutes and the solved exercises."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.exercises.progress import solved
from grpo_workbook.exercises.tasks import EXERCISES, load_all
from grpo_workbook.files import REPO

NOTEBOOKS = REPO / "notebooks"
# What the first cells of a notebook say about it:
TITLE = r"# (\d\d · .*?)\n"
SKILL = r"\*\*After this notebook you can\*\* (.*?)[.]\s"
MINUTES = r"\*\*Time:\*\* about (.*?) on two CPU cores"


@dataclass(frozen=True)
class Chapter:
    """One notebook. `skill` continues "After this notebook you can"."""

    name: str
    title: str
    skill: str
    minutes: str
    solved: int  # of its exercises
    exercises: int


def course_map(folder: Path = NOTEBOOKS) -> None:
    """Display the chapters in `folder` as a table with links, for a notebook in that folder."""
    from IPython.display import Markdown, display

    rows = ["| chapter | after it you can | on two CPU cores | solved |", "|:--|:--|:--|:--|"]
    for chapter in chapters(folder):
        link = f"[{chapter.title}]({chapter.name}.ipynb)"
        count = f"{chapter.solved} of {chapter.exercises}"
        rows.append(f"| {link} | {chapter.skill} | {chapter.minutes} | {count} |")
    display(Markdown("\n".join(rows)))


def chapters(folder: Path = NOTEBOOKS) -> list[Chapter]:
    """The chapters in `folder`, from the notebooks' first cells and the learner's progress."""
    load_all()
    solutions = solved()
    course = []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        text = introduction(path)
        title = first_match(TITLE, text).split(":")[0]
        numbers = [task.number for task in EXERCISES.values() if task.notebook == path.stem]
        chapter = Chapter(
            name=path.stem,
            title=title,
            skill=first_match(SKILL, text),
            minutes=first_match(MINUTES, text),
            solved=len(solutions.keys() & set(numbers)),
            exercises=len(numbers),
        )
        course.append(chapter)
    return course


def introduction(path: Path) -> str:
    """The text of a notebook's first cells."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    text = ""
    for cell in cells[:3]:
        if cell["cell_type"] == "markdown":
            text += "".join(cell["source"]) + "\n"
    return text


def first_match(pattern: str, text: str) -> str:
    """What the group of a pattern matches first, in one line, or an empty text."""
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        return ""
    return " ".join(match[1].split())
