"""Write the notebooks without solutions, for a class.

examples:
  python -m grpo_workbook assign class              all chapters
  python -m grpo_workbook assign week2 01 02        two of them
"""

import json
import re
from pathlib import Path

from grpo_workbook.cli import option
from grpo_workbook.errors import WorkbookError
from grpo_workbook.files import REPO

SOLUTION = r"\n*<details><summary>Solution</summary>.*?</details>"
OPTIONS = [
    option("folder", type=Path, help="where to write; notebooks that are there are not replaced"),
    option("chapters", nargs="*", metavar="CHAPTER", help="such as 01; default: all"),
]


def main(args) -> int:
    """Write the notebooks without solutions and outputs; the hints stay, folded."""
    there = {path.name[:2]: path for path in sorted((REPO / "notebooks").glob("[0-9]*.ipynb"))}
    if unknown := [name for name in args.chapters if name not in there]:
        raise WorkbookError(f"no chapter {unknown[0]!r}: choose from {', '.join(there)}")
    chosen = {args.folder / there[name].name: there[name] for name in args.chapters or there}
    if taken := [path for path in chosen if path.exists()]:
        raise WorkbookError(f"{taken[0]} exists, maybe with someone's work: choose another folder")
    args.folder.mkdir(parents=True, exist_ok=True)
    for target, source in chosen.items():
        notebook = json.loads(source.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell.update(outputs=[], execution_count=None)
            else:
                text = re.sub(SOLUTION, "", "".join(cell["source"]), flags=re.DOTALL)
                cell["source"] = text.splitlines(keepends=True)
        notebook["metadata"].pop("grpo_workbook", None)  # the stored outputs' hashes
        target.write_text(json.dumps(notebook, indent=1, ensure_ascii=False), encoding="utf-8")
    print(f"{len(chosen)} notebooks without solutions in {args.folder}")
    return 0
