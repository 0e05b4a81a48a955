"""The map of the course: each chapter with its skill, its minutes and the solved exercises."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.exercises import EXERCISES, load_all
from grpo_workbook.exercises.progress import solved
from grpo_workbook.files import REPO

NOTEBOOKS = REPO / "notebooks"
TITLE = r"# (\d\d · .*?) \*\*After"
SKILL = r"\*\*After this notebook you can\*\* (.*?)[.] "
MINUTES = r"\*\*Time:\*\* about (.*?) on two CPU cores"


@dataclass(frozen=True)
class Chapter:
    """One notebook; `skill` continues "After this notebook you can", the last two are counts."""

    name: str
    title: str
    skill: str
    minutes: str
    solved: int
    exercises: int


def chapters(folder: Path = NOTEBOOKS) -> list[Chapter]:
    """The chapters in `folder`, from the notebooks' first cells and the learner's progress."""
    load_all()
    done, found = solved(), []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"][:3]
        text = " ".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        text = " ".join(text.split())
        title, skill, minutes = (_first(pattern, text) for pattern in (TITLE, SKILL, MINUTES))
        mine = [number for number, task in EXERCISES.items() if task.notebook == path.stem]
        counts = sum(number in done for number in mine), len(mine)
        found.append(Chapter(path.stem, title.split(":")[0], skill, minutes, *counts))
    return found


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1].strip() if match else ""


def course_map(folder: Path = NOTEBOOKS) -> None:
    """Display the map as a table with links, for a notebook in `folder`."""
    from IPython.display import Markdown, display

    rows = ["| chapter | after it you can | on two CPU cores | solved |", "|:--|:--|:--|:--|"]
    for c in chapters(folder):
        link, count = f"[{c.title}]({c.name}.ipynb)", f"{c.solved} of {c.exercises}"
        rows.append(f"| {link} | {c.skill} | {c.minutes} | {count} |")
    display(Markdown("\n".join(rows)))
