"""Start a project of your own from a template.

examples:
  python -m grpo_workbook new my_project    classify messages, answer with JSON
"""

import shutil
from pathlib import Path

from grpo_workbook.cli import add_command
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, place_of, readable

NEXT = """{folder} is a project: its README.md says what to change. Next:
  cd {folder}
  make test     the rewards against right answers and cheats
  make short    four steps of training
"""


def add_parser(commands) -> None:
    """Add new to the command line."""
    add = add_command(commands, "new", __doc__)
    add("folder", type=Path, help="the project's folder; it must be new or empty")


def main(args) -> int:
    """Copy the template; 0. Raises WorkbookError for a folder with something in it."""
    folder = place_of(args.folder)
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise WorkbookError(f"{readable(folder)} exists already: name a new folder")
    inside = Path(__file__).parent.parent / "templates"  # an installed package has its own copy
    templates = inside if inside.is_dir() else REPO / "templates"
    skip = shutil.ignore_patterns("__pycache__", "outputs", "*.pyc", ".pytest_cache")
    shutil.copytree(templates / "my_project", folder, ignore=skip, dirs_exist_ok=True)
    print(NEXT.format(folder=readable(folder)), end="")
    return 0
