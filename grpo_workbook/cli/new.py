"""Start a project of your own from a template.

examples:
  python -m grpo_workbook new mine                     a text's label, as JSON
  python -m grpo_workbook new mine --task extraction   a text's values, as JSON
  python -m grpo_workbook new mine --task sql          a query on a database
"""

import shutil
from pathlib import Path

from grpo_workbook.cli import option
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO, place_of, readable

PROMPTS = {
    "classification": 'Answer with JSON: {"label": billing, delivery, defect or account, '
    '"urgent": true or false}',
    "extraction": 'Answer with JSON: "name", "city", "item", "count" (a number), "day" (or null)',
    "sql": "Answer with one SQLite query on orders (customer, city, item, count, price)",
}
# Folders of templates: a task has all down to its own, each copied over the ones before. So the
# Makefile, the workflow and the YAML files are there once, and sql has extraction's tiny model.
LAYERS = {"classification": "my_project", "extraction": "extraction", "sql": "sql"}
OPTIONS = [
    option("folder", type=Path, help="the project's folder; it must be new or empty"),
    option("--task", choices=PROMPTS, default="classification", help="default %(default)s"),
]
NEXT = """{folder} is a project: its README.md says what to change. Next:
  cd {folder}
  make test     the rewards against right answers and cheats
  make short    four steps of training
"""


def main(args) -> int:
    """Copy the template; 0. Raises WorkbookError for a folder with something in it."""
    folder = place_of(args.folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise WorkbookError(f"{readable(folder)} exists already: name a new folder")
    templates = Path(__file__).parent.parent / "templates"  # of an installed package
    if not templates.is_dir():
        templates = REPO / "templates"  # of a clone
    # What tests and runs of the templates themselves leave in a clone.
    skip = shutil.ignore_patterns("__pycache__", "outputs", "*.pyc", ".pytest_cache")
    for task, layer in LAYERS.items():
        shutil.copytree(templates / layer, folder, ignore=skip, dirs_exist_ok=True)
        if task == args.task:
            break
    # The configs are classification's; other tasks ask for another answer.
    for path in folder.glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        text = text.replace(PROMPTS["classification"], PROMPTS[args.task])
        path.write_text(text, encoding="utf-8")
    print(NEXT.format(folder=readable(folder)), end="")
    return 0
