"""Build notebooks/NN_name.ipynb from notebooks/source/NN_name.py, and execute it in smoke.

    python notebooks/build.py                   # build and execute those whose inputs have changed
    python notebooks/build.py --all             # all
    python notebooks/build.py 04_grpo_run       # one
    python notebooks/build.py --check           # exit status 1 if a source is newer
    python notebooks/build.py --words           # update the text, if no code has changed
    python notebooks/build.py --first-cell      # rewrite only the set-up cell

Every notebook carries two hashes: of its source, which `--check` compares, and of its inputs (the
source, the files of the package that it reaches, the pins), which say whether it would run
differently today. The last three commands execute nothing. Cell ids depend only on the cells'
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
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient
from PIL import Image

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import grpo_workbook  # noqa: E402

SOURCE = HERE / "source"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
# The first code cell of every notebook, after its title. It stands here once, and learners read it
# in the notebook.
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
FIRST_WORDS = (
    "On Colab and Kaggle this cell installs the course (about 170 MB). "
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


def source_hash(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def imported(text: str) -> set[Path]:
    """The files of the package that this code imports, with all files of an imported room."""
    package, found = HERE.parent / "grpo_workbook", set()
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("grpo_workbook"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [a.name for a in node.names if a.name.startswith("grpo_workbook.")]
        for name in names:
            part = name.split(".")[1]
            part = grpo_workbook._HOME.get(part, part)  # a name of the public API: its module
            found.add(package / f"{part}.py")
            found.update((package / part).glob("*.py"))
    return {path for path in found if path.is_file()}


def inputs_hash(source: Path) -> str:
    """Of all that a notebook's result depends on: its source, the package's files that it reaches
    with the tables beside them, the pins.
    """
    reached, new = set(), imported(source.read_text(encoding="utf-8"))
    while new:
        reached |= new
        new = {f for path in new for f in imported(path.read_text(encoding="utf-8"))} - reached
    reached |= {table for path in reached for table in path.parent.glob("*.toml")}
    names = ("requirements.txt", "requirements/unsloth.txt")  # others: the book's, the tests'
    pins = [HERE.parent / name for name in names]
    files = [source, *sorted(reached), *sorted(pins)]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def address() -> str:
    """Where the course is cloned from: pyproject.toml says it, once."""
    return tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "urls"
    ]["Repository"]


def links(name: str) -> dict[str, tuple[str, str]]:
    """{place: (badge, link)} of the notebook called `name`."""
    path = address().removeprefix("https://github.com/")
    return {
        place: (badge, link.format(path=path, name=name)) for place, (badge, link) in PLACES.items()
    }


def first_cells(repository: str | None = None, name: str = "") -> list[nbformat.NotebookNode]:
    """The badges, the words and the code that set a Colab runtime up."""
    code = FIRST_CELL.replace("@REPOSITORY@", repository or address())
    badges = [f"[![Open in {p}]({badge})]({link})" for p, (badge, link) in links(name).items()]
    return [
        nbformat.v4.new_markdown_cell(f"{' '.join(badges)}\n\n{FIRST_WORDS}", id="first-words"),
        nbformat.v4.new_code_cell(code, id="first-cell"),
    ]


def build(source: Path) -> nbformat.NotebookNode:
    """The notebook without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
    notebook.cells[1:1] = first_cells(name=source.stem)
    notebook.metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
        "grpo_workbook": {
            "source_sha256": source_hash(source),
            "inputs_sha256": inputs_hash(source),
        },
    }
    return notebook


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run in the smoke profile, in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        # so that anyone can repeat the stored run: the smoke profile, on the CPU, without network
        for name in (
            "GRPO_WORKBOOK_PROFILE",
            "GRPO_WORKBOOK_MODEL",
            "GRPO_WORKBOOK_SEED",
            "GRPO_WORKBOOK_OUTPUT",
        ):
            os.environ.pop(name, None)
        os.environ.update(
            GRPO_WORKBOOK_PROGRESS=f"{folder}/progress.json",
            CUDA_VISIBLE_DEVICES="",
            HF_HUB_OFFLINE="1",
        )
        NotebookClient(
            notebook,
            timeout=1200,
            kernel_name=KERNEL["name"],
            resources={"metadata": {"path": folder}},
        ).execute()


def outline(notebook: nbformat.NotebookNode) -> list[tuple[str, str, str]]:
    """(type, id, source) of every cell: the notebook without its outputs."""
    return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]


def renew_first_cell(stored: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> bool:
    """Give a stored notebook the current first cells and keep its outputs; False if other cells
    differ too.

    Only the execution counts move by one.
    """
    ids = {cell.id for cell in first_cells()}
    rest = [cell for cell in stored.cells if cell.id not in ids]
    if outline(nbformat.from_dict({"cells": rest})) != [
        part for part in outline(fresh) if part[1] not in ids
    ]:
        return False
    stored.cells = [*rest[:1], *(c for c in fresh.cells if c.id in ids), *rest[1:]]
    for count, cell in enumerate((c for c in stored.cells if c.cell_type == "code"), start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = count
    return True


def renew_words(stored: nbformat.NotebookNode, fresh: nbformat.NotebookNode) -> bool:
    """Give `fresh` the outputs of `stored`; False if the code differs, so it must be executed."""
    codes, old = ([c for c in n.cells if c.cell_type == "code"] for n in (fresh, stored))
    if [c.source for c in codes] != [c.source for c in old]:
        return False
    for cell, before in zip(codes, old, strict=True):
        cell.outputs, cell.execution_count = before.outputs, before.execution_count
    return True


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Keep only the last state of a progress bar, and remove local folders and execution times."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        kept: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", []):
            if "<iframe" in "".join(output.get("data", {}).get("text/html", "")):
                continue  # Trackio's page: a local server, with its token
            if output.get("output_type") == "stream":
                previous = kept[-1] if kept and kept[-1].get("name") == output["name"] else None
                if previous is not None:
                    previous["text"] += output["text"]
                    continue
            kept.append(output)
        for output in kept:
            if output.get("output_type") == "stream":
                output["text"] = (
                    _settle(output["text"])
                    .replace(f"{HERE.parent}/", "")
                    .replace(str(Path.home()), "~")
                )
        cell["outputs"] = (
            [o for o in kept if o.get("text", True)] if cell.cell_type == "code" else []
        )
        if cell.cell_type != "code":
            del cell["outputs"]


def halve_pictures(notebook: nbformat.NotebookNode) -> None:
    """Store the PNG beside a picture's HTML in the size at which it is shown, not in twice that.

    Each picture is stored twice; the PNG is for viewers that show no HTML.
    """
    outputs = [o for c in notebook.cells for o in c.get("outputs", []) if "metadata" in o]
    for output in outputs:
        width = output["metadata"].get("image/png", {}).get("width")
        if not width or "<img " not in output["data"].get("text/html", ""):
            continue
        image = Image.open(io.BytesIO(base64.b64decode(output["data"]["image/png"])))
        if image.width >= 2 * width:
            small = io.BytesIO()
            image.convert("RGB").reduce(2).quantize(64, 2).save(small, "PNG", optimize=True)
            output["data"]["image/png"] = base64.b64encode(small.getvalue()).decode()


def _settle(text: str) -> str:
    """What a terminal would show in the end: after a carriage return a line is written over."""
    lines = [
        re.split(r"\r+", line.rstrip("\r"))[-1].rstrip()
        for line in re.sub(r"\x1b\[A", "", text).split("\n")
    ]
    return "\n".join(lines).strip("\n") + "\n" if any(lines) else ""


def main() -> int:
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
    args = parser.parse_args()
    sources = [
        p for p in sorted(SOURCE.glob("[0-9]*.py")) if not args.names or p.stem in args.names
    ]
    if not sources:
        print(f"no source called {', '.join(args.names)} in notebooks/source", file=sys.stderr)
        return 2
    stale = []
    for source in sources:
        target = HERE / f"{source.stem}.ipynb"
        if args.check:
            there = nbformat.read(target, as_version=4) if target.is_file() else None
            known = there.metadata.get("grpo_workbook") if there else None
            if (
                not known
                or known["source_sha256"] != source_hash(source)
                or outline(there) != outline(build(source))
            ):
                stale.append(source.stem)
            continue
        if args.words:
            stored, fresh = (
                nbformat.read(target, as_version=4) if target.is_file() else None,
                build(source),
            )
            known = stored.metadata.get("grpo_workbook", {}) if stored else {}
            if known.get("source_sha256") == source_hash(source):
                continue  # its other inputs may have changed: an execution must see that
            if stored and renew_words(stored, fresh):
                halve_pictures(fresh)
                nbformat.write(fresh, target)
            else:
                stale.append(source.stem)
            continue
        if args.first_cell:
            stored = nbformat.read(target, as_version=4) if target.is_file() else None
            if stored and renew_first_cell(stored, build(source)):
                nbformat.write(stored, target)
            else:
                stale.append(source.stem)
            continue
        notebook = build(source)
        there = nbformat.read(target, as_version=4) if target.is_file() else None
        same = there and there.metadata.get("grpo_workbook") == notebook.metadata["grpo_workbook"]
        if same and not args.all and not args.names:
            print(f"{source.stem}: its inputs are the same")
            continue
        print(f"{source.stem}: executing", flush=True)
        execute(notebook)
        tidy(notebook)
        halve_pictures(notebook)
        nbformat.validate(notebook)
        nbformat.write(notebook, target)
        print(f"{source.stem}: written")
    for name in stale:
        print(f"{name}.ipynb is older than source/{name}.py: run `make notebooks`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
