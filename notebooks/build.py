"""Build notebooks/NN_name.ipynb from notebooks/source/NN_name.py, and execute it in smoke.

    python notebooks/build.py                   # build and execute those whose inputs have changed
    python notebooks/build.py --all             # all
    python notebooks/build.py 04_grpo_run       # one
    python notebooks/build.py --check           # exit status 1 if a source is newer
    python notebooks/build.py --words           # update the text, if no code has changed
    python notebooks/build.py --first-cell      # rewrite only the set-up cell
    python notebooks/build.py --without-solutions class     # for a class, into the folder `class`

Every notebook carries two hashes: of its source, which `--check` compares, and of its inputs (the
source, the files of the package that it reaches, the pins), which say whether it would run
differently today. The last four commands execute nothing. Cell ids depend only on the cells'
places, so building twice gives the same file except for measured values.
"""

import argparse
import ast
import base64
import hashlib
import io
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from PIL import Image

HERE = Path(__file__).resolve().parent
REPO = HERE.parent
sys.path.insert(0, str(REPO))
import grpo_workbook  # noqa: E402

SOURCE = HERE / "source"
PACKAGE = REPO / "grpo_workbook"
PINS = ["requirements.txt", "requirements/unsloth.txt"]  # others: the book's, the tests'
SETTINGS = [  # environment variables that would change what a notebook shows
    "GRPO_WORKBOOK_PROFILE",
    "GRPO_WORKBOOK_MODEL",
    "GRPO_WORKBOOK_SEED",
    "GRPO_WORKBOOK_OUTPUT",
]
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
PLACES = {  # where a notebook opens with one click: (its badge, the link)
    "Colab": (
        "https://colab.research.google.com/assets/colab-badge.svg",
        "https://colab.research.google.com/github/{path}/blob/main/notebooks/{name}.ipynb",
    ),
    "Kaggle": (
        "https://kaggle.com/static/images/open-in-kaggle.svg",
        "https://kaggle.com/kernels/welcome?src=https://github.com/{path}/blob/main/notebooks/{name}.ipynb",
    ),
}
FOLDED = {"hide-input", "remove-cell"}  # tags of cells that only draw, or only prove
SOLUTION = r"\n*<details><summary>Solution</summary>.*?</details>"

# The first code cell of every notebook, after its title. It stands here once, and learners read it
# in the notebook.
FIRST_WORDS = (
    "On Colab and Kaggle the next cell installs the course (about 170 MB). "
    "Anywhere else it does nothing."
)
FIRST_CELL = """\
import os
import subprocess
import sys

if {"COLAB_RELEASE_TAG", "KAGGLE_KERNEL_RUN_TYPE"} & set(os.environ):  # Colab, Kaggle
    repository = "@REPOSITORY@"
    folder = os.path.abspath("grpo-workbook")
    if not os.path.isdir(folder):
        command = ["git", "clone", "--depth=1", repository, folder]
        subprocess.run(command, check=True)
    sys.path[:0] = [folder, os.path.join(folder, "notebooks")]
    from colab_setup import set_up

    set_up()  # installs what differs from the pinned versions"""


# --- A notebook from its source ----------------------------------------------------------------


def build(source: Path) -> NotebookNode:
    """The notebook without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
        if FOLDED & set(cell.metadata.get("tags", [])):
            fold(cell)
    notebook.cells[1:1] = first_cells(name=source.stem)
    hashes = {"source_sha256": source_hash(source), "inputs_sha256": inputs_hash(source)}
    notebook.metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
        "grpo_workbook": hashes,
    }
    return notebook


def fold(cell: NotebookNode) -> None:
    """Hide a cell's code behind a click in Jupyter and Colab; the book does so by the tag."""
    cell.metadata["jupyter"] = {"source_hidden": True}
    cell.metadata["cellView"] = "form"


def first_cells(repository: str | None = None, name: str = "") -> list[NotebookNode]:
    """The badges, the words and the code that set a Colab runtime up."""
    if repository is None:
        repository = address()
    badges = []
    for place, (badge, link) in links(name).items():
        badges.append(f"[![Open in {place}]({badge})]({link})")
    words = " ".join(badges) + "\n\n" + FIRST_WORDS
    code = FIRST_CELL.replace("@REPOSITORY@", repository)
    return [
        nbformat.v4.new_markdown_cell(words, id="first-words"),
        nbformat.v4.new_code_cell(code, id="first-cell"),
    ]


def address() -> str:
    """Where the course is cloned from: pyproject.toml says it, once."""
    project = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["urls"]["Repository"]


def links(name: str) -> dict[str, tuple[str, str]]:
    """The badge and the link of the notebook called `name`, for each place."""
    path = address().removeprefix("https://github.com/")
    result = {}
    for place, (badge, link) in PLACES.items():
        result[place] = (badge, link.format(path=path, name=name))
    return result


# --- Hashes ------------------------------------------------------------------------------------


def source_hash(source: Path) -> str:
    """The hash of a notebook's source."""
    return hashlib.sha256(source.read_bytes()).hexdigest()


def inputs_hash(source: Path) -> str:
    """The hash of all that a notebook's result depends on: its source, the package's files that it
    reaches with the tables beside them, the pins.
    """
    reached: set[Path] = set()
    new = imported(source.read_text(encoding="utf-8"))
    while new:
        reached.update(new)
        next_files: set[Path] = set()
        for path in new:
            next_files.update(imported(path.read_text(encoding="utf-8")))
        new = next_files - reached
    for path in list(reached):
        reached.update(path.parent.glob("*.toml"))
    files = [source, *sorted(reached), *(REPO / name for name in PINS)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def imported(code: str) -> set[Path]:
    """The files of the package that this code imports, with all files of an imported room."""
    files: set[Path] = set()
    for name in imported_names(code):
        part = name.split(".")[1]
        home = grpo_workbook._MODULES.get(part, name)  # of a name at the door: its module
        module = home.split(".")[1]
        files.add(PACKAGE / f"{module}.py")
        files.update((PACKAGE / module).glob("*.py"))
    return {path for path in files if path.is_file()}


def imported_names(code: str) -> list[str]:
    """The full names that this code imports from the package, such as "grpo_workbook.evaluate"."""
    names = []
    for node in ast.walk(ast.parse(code)):
        prefix = ""
        if isinstance(node, ast.ImportFrom):
            prefix = f"{node.module}."
        elif not isinstance(node, ast.Import):
            continue
        for alias in node.names:
            name = prefix + alias.name
            if name.startswith("grpo_workbook."):
                names.append(name)
    return names


# --- Execution, and what is stored of it -------------------------------------------------------


def execute(notebook: NotebookNode) -> None:
    """Run in the smoke profile, on the CPU, without network, so that anyone can repeat it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in SETTINGS:
            os.environ.pop(name, None)
        os.environ["GRPO_WORKBOOK_PROGRESS"] = f"{folder}/progress.json"
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        os.environ["HF_HUB_OFFLINE"] = "1"
        client = NotebookClient(
            notebook,
            timeout=1200,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": folder}},
        )
        client.execute()


def tidy(notebook: NotebookNode) -> None:
    """Keep only the last state of a progress bar, and remove local folders and execution times."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            cell.pop("outputs", None)
            continue
        outputs = []
        shown = [output for output in cell.outputs if not is_local_page(output)]
        for output in join_streams(shown):
            if output.output_type == "stream":
                output.text = without_folders(settle(output.text))
                if output.text == "":
                    continue
            outputs.append(output)
        cell.outputs = outputs


def is_local_page(output: NotebookNode) -> bool:
    """Whether an output is Trackio's page: a local server, with its token."""
    return "<iframe" in "".join(output.get("data", {}).get("text/html", ""))


def join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """The outputs, with the pieces of a stream that follow one another in one."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and joined and joined[-1].get("name") == output.name:
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def settle(text: str) -> str:
    """What a terminal would show in the end: after a carriage return a line is written over."""
    lines = []
    for line in text.replace("\x1b[A", "").split("\n"):
        last_state = re.split(r"\r+", line.rstrip("\r"))[-1]
        lines.append(last_state.rstrip())
    settled = "\n".join(lines).strip("\n")
    return settled + "\n" if any(lines) else ""


def without_folders(text: str) -> str:
    """The text without the folders of this machine."""
    return text.replace(f"{REPO}/", "").replace(str(Path.home()), "~")


def halve_pictures(notebook: NotebookNode) -> None:
    """Store the PNG beside a picture's HTML in the size at which it is shown, not in twice that.

    Each picture is stored twice; the PNG is for viewers that show no HTML.
    """
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            width = output.get("metadata", {}).get("image/png", {}).get("width")
            if width and "<img " in output.data.get("text/html", ""):
                halve_picture(output.data, width)


def halve_picture(data: NotebookNode, width: int) -> None:
    """Halve the PNG of an output if it is at least twice as wide as it is shown."""
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    if image.width < 2 * width:
        return
    small = io.BytesIO()
    image.convert("RGB").reduce(2).quantize(64, 2).save(small, "PNG", optimize=True)
    data["image/png"] = base64.b64encode(small.getvalue()).decode()


# --- Updates without execution -----------------------------------------------------------------


def outline(notebook: NotebookNode) -> list[tuple[str, str, str]]:
    """(type, id, source) of every cell: the notebook without its outputs."""
    return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that are executed."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def split_first_cells(notebook: NotebookNode) -> tuple[list[NotebookNode], list[NotebookNode]]:
    """The cells that set a Colab runtime up, and the others."""
    first = []
    others = []
    for cell in notebook.cells:
        if cell.id in ("first-words", "first-cell"):
            first.append(cell)
        else:
            others.append(cell)
    return first, others


def renew_first_cell(stored: NotebookNode, fresh: NotebookNode) -> bool:
    """Give a stored notebook the current first cells and keep its outputs; False if other cells
    differ too.

    Only the execution counts move by one.
    """
    _, stored_rest = split_first_cells(stored)
    fresh_first, fresh_rest = split_first_cells(fresh)
    if outline(NotebookNode(cells=stored_rest)) != outline(NotebookNode(cells=fresh_rest)):
        return False
    stored.cells = [*stored_rest[:1], *fresh_first, *stored_rest[1:]]
    for count, cell in enumerate(code_cells(stored), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    return True


def renew_words(stored: NotebookNode, fresh: NotebookNode) -> bool:
    """Give `fresh` the outputs of `stored`; False if the code differs, so it must be executed."""
    stored_codes = code_cells(stored)
    fresh_codes = code_cells(fresh)
    if [cell.source for cell in stored_codes] != [cell.source for cell in fresh_codes]:
        return False
    for fresh_cell, stored_cell in zip(fresh_codes, stored_codes, strict=True):
        fresh_cell.outputs = stored_cell.outputs
        fresh_cell.execution_count = stored_cell.execution_count
    return True


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """A built notebook for a class: the hints stay, folded; the solutions go."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(SOLUTION, "", cell.source, flags=re.DOTALL)
    del notebook.metadata["grpo_workbook"]  # it has no source of its own to be compared with
    return notebook


# --- The commands, each for a list of sources --------------------------------------------------


def stored_notebook(source: Path) -> NotebookNode | None:
    """The notebook as it is in the repository, or None."""
    target = HERE / f"{source.stem}.ipynb"
    if not target.is_file():
        return None
    return nbformat.read(target, as_version=4)


def store(notebook: NotebookNode, source: Path) -> None:
    """Write a notebook to its place in the repository."""
    nbformat.write(notebook, HERE / f"{source.stem}.ipynb")


def hashes_of(notebook: NotebookNode) -> dict[str, str]:
    """The hashes that a stored notebook carries; empty if it has none."""
    return notebook.metadata.get("grpo_workbook", {})


def is_current(source: Path) -> bool:
    """Whether the stored notebook has the cells of its source."""
    stored = stored_notebook(source)
    if stored is None or hashes_of(stored).get("source_sha256") != source_hash(source):
        return False
    return outline(stored) == outline(build(source))


def update_words(source: Path) -> bool:
    """Update the stored notebook's text; False if its code differs from the source's."""
    stored = stored_notebook(source)
    if stored is None:
        return False
    if hashes_of(stored).get("source_sha256") == source_hash(source):
        return True  # its other inputs may have changed: an execution must see that
    fresh = build(source)
    if not renew_words(stored, fresh):
        return False
    halve_pictures(fresh)
    store(fresh, source)
    return True


def update_first_cell(source: Path) -> bool:
    """Update the stored notebook's first cells; False if others differ from the source's."""
    stored = stored_notebook(source)
    if stored is None or not renew_first_cell(stored, build(source)):
        return False
    store(stored, source)
    return True


def build_and_execute(source: Path, always: bool) -> None:
    """Store the executed notebook, unless its inputs are the same; `always`: even then."""
    notebook = build(source)
    stored = stored_notebook(source)
    if not always and stored is not None and hashes_of(stored) == hashes_of(notebook):
        print(f"{source.stem}: its inputs are the same")
        return
    print(f"{source.stem}: executing", flush=True)
    execute(notebook)
    tidy(notebook)
    halve_pictures(notebook)
    nbformat.validate(notebook)
    store(notebook, source)
    print(f"{source.stem}: written")


def write_for_class(sources: list[Path], folder: Path) -> int:
    """Write the notebooks without solutions into a folder, where none may be; the exit status."""
    targets = {source: folder / f"{source.stem}.ipynb" for source in sources}
    for target in targets.values():
        if target.exists():
            message = f"{target} exists, maybe with someone's work: choose another folder"
            print(message, file=sys.stderr)
            return 2
    folder.mkdir(parents=True, exist_ok=True)
    for source, target in targets.items():
        nbformat.write(without_solutions(build(source)), target)
    print(f"{len(targets)} notebooks without solutions in {folder}")
    return 0


def report_stale(sources: list[Path], is_renewed: Callable[[Path], bool]) -> int:
    """Print the notebooks that have to be executed; 1 if there are any.

    `is_renewed(source)` checks or updates the stored notebook, and returns whether it is current.
    """
    status = 0
    for source in sources:
        if not is_renewed(source):
            print(f"{source.stem}.ipynb is older than source/{source.name}: run `make notebooks`")
            status = 1
    return status


def parse_arguments() -> argparse.Namespace:
    """The options of this command."""
    parser = argparse.ArgumentParser(
        description="Build the notebooks from their sources and execute them."
    )
    parser.add_argument("names", nargs="*", help="NN_name; default: all")
    parser.add_argument("--all", action="store_true", help="also those with unchanged inputs")
    parser.add_argument("--check", action="store_true", help="only compare with the sources")
    parser.add_argument(
        "--words", action="store_true", help="only update the text, if no code has changed"
    )
    parser.add_argument("--first-cell", action="store_true", help="only rewrite the first cell")
    parser.add_argument(
        "--without-solutions", type=Path, metavar="FOLDER", help="write copies for a class there"
    )
    return parser.parse_args()


def choose_sources(names: list[str]) -> list[Path]:
    """The sources of these notebooks, or of all if none is named."""
    if not names:
        return sorted(SOURCE.glob("[0-9]*.py"))
    return [SOURCE / f"{name}.py" for name in sorted(names)]


def main() -> int:
    """Run a command; 1 if a notebook is older than its source and has to be executed."""
    args = parse_arguments()
    sources = choose_sources(args.names)
    for source in sources:
        if not source.is_file():
            print(f"notebooks/source has no {source.name}", file=sys.stderr)
            return 2
    if args.without_solutions is not None:
        return write_for_class(sources, args.without_solutions)
    if args.check:
        return report_stale(sources, is_current)
    if args.words:
        return report_stale(sources, update_words)
    if args.first_cell:
        return report_stale(sources, update_first_cell)
    for source in sources:
        build_and_execute(source, always=args.all or bool(args.names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
