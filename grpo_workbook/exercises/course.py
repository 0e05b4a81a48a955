"""The map of the course: every chapter, what it teaches, how long it takes, and how much of it is solved."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.run import REPO

NOTEBOOKS = REPO / "notebooks"


@dataclass(frozen=True)
class Chapter:
    """One notebook; `skill` goes on from "After this notebook you can", `solved` and `exercises` count."""

    name: str
    title: str
    skill: str
    minutes: str
    solved: int
    exercises: int


def chapters(folder: Path = NOTEBOOKS) -> list[Chapter]:
    """The chapters in `folder`, from the notebooks' own first cells and the learner's progress."""
    from grpo_workbook.exercises import EXERCISES, load_all
    from grpo_workbook.exercises.progress import solved

    load_all()
    done, found = solved(), []
    for path in sorted(folder.glob("[0-9][0-9]_*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = " ".join(
            "".join("".join(c["source"]) for c in cells[:3] if c["cell_type"] == "markdown").split()
        )
        mine = [number for number, task in EXERCISES.items() if task.notebook == path.stem]
        found.append(
            Chapter(
                path.stem,
                _first(r"# (\d\d · .*?) \*\*After", text).split(":")[0],
                _first(r"\*\*After this notebook you can\*\* (.*?)[.] ", text),
                _first(r"\*\*Time:\*\* about (.*?) on two CPU cores", text),
                sum(number in done for number in mine),
                len(mine),
            )
        )
    return found


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1].strip() if match else ""


def course_map(folder: Path = NOTEBOOKS) -> None:
    """Display the map as a table with links, for a notebook that lies in `folder`."""
    from IPython.display import Markdown, display

    lines = [
        "| chapter | after it you can | on two CPU cores | solved |",
        "| :-- | :-- | :-- | :-- |",
    ]
    for c in chapters(folder):
        lines.append(
            f"| [{c.title}]({c.name}.ipynb) | {c.skill} | {c.minutes} | {c.solved} of {c.exercises} |"
        )
    display(Markdown("\n".join(lines)))
