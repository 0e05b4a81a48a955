"""Build notebooks/NN_name.ipynb from notebooks/source/NN_name.py and execute them in the smoke profile.

    python notebooks/build.py                   # build and execute all
    python notebooks/build.py 04_grpo_run       # one
    python notebooks/build.py --check           # exit status 1 when a notebook is older than its source

Every notebook carries the hash of the source it was built from; cell ids come from the cells' places, so that building
twice gives the same file but for what was measured.
"""

import argparse
import hashlib
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "source"
KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def source_hash(source: Path) -> str:
    return hashlib.sha256(source.read_bytes()).hexdigest()


def build(source: Path) -> nbformat.NotebookNode:
    """The notebook without outputs."""
    notebook = jupytext.read(source, fmt="py:percent")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number:03}"
    notebook.metadata = {
        "kernelspec": KERNEL,
        "language_info": {"name": "python"},
        "grpo_workbook": {"source_sha256": source_hash(source)},
    }
    return notebook


def execute(notebook: nbformat.NotebookNode) -> None:
    """Run in the smoke profile, in a folder that is thrown away with what the notebook writes."""
    with tempfile.TemporaryDirectory() as folder:
        # what is stored is a run that anyone can repeat: the smoke profile, on the CPU, with no network
        for name in ("GRPO_WORKBOOK_PROFILE", "GRPO_WORKBOOK_MODEL", "GRPO_WORKBOOK_SEED", "GRPO_WORKBOOK_OUTPUT"):
            os.environ.pop(name, None)
        os.environ.update(GRPO_WORKBOOK_PROGRESS=f"{folder}/progress.json", CUDA_VISIBLE_DEVICES="", HF_HUB_OFFLINE="1")
        NotebookClient(
            notebook, timeout=1200, kernel_name=KERNEL["name"], resources={"metadata": {"path": folder}}
        ).execute()


def tidy(notebook: nbformat.NotebookNode) -> None:
    """Keep what a reader wants: the last state of a progress bar, no folder of this machine, no execution times."""
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        kept: list[nbformat.NotebookNode] = []
        for output in cell.get("outputs", []):
            if output.get("output_type") == "stream":
                previous = kept[-1] if kept and kept[-1].get("name") == output["name"] else None
                if previous is not None:
                    previous["text"] += output["text"]
                    continue
            kept.append(output)
        for output in kept:
            if output.get("output_type") == "stream":
                output["text"] = _settle(output["text"]).replace(f"{HERE.parent}/", "").replace(str(Path.home()), "~")
        cell["outputs"] = [o for o in kept if o.get("text", True)] if cell.cell_type == "code" else []
        if cell.cell_type != "code":
            del cell["outputs"]


def _settle(text: str) -> str:
    """What a terminal would show in the end: after a carriage return a line is written over."""
    lines = [re.split(r"\r+", line.rstrip("\r"))[-1].rstrip() for line in re.sub(r"\x1b\[A", "", text).split("\n")]
    return "\n".join(lines).strip("\n") + "\n" if any(lines) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the notebooks from their sources and execute them.")
    parser.add_argument("names", nargs="*", help="NN_name; default: all")
    parser.add_argument("--check", action="store_true", help="only compare hashes")
    args = parser.parse_args()
    sources = [p for p in sorted(SOURCE.glob("[0-9]*.py")) if not args.names or p.stem in args.names]
    if not sources:
        print(f"no source called {', '.join(args.names)} in notebooks/source", file=sys.stderr)
        return 2
    stale = []
    for source in sources:
        target = HERE / f"{source.stem}.ipynb"
        if args.check:
            there = nbformat.read(target, as_version=4).metadata.get("grpo_workbook") if target.is_file() else None
            if not there or there["source_sha256"] != source_hash(source):
                stale.append(source.stem)
            continue
        print(f"{source.stem}: executing", flush=True)
        notebook = build(source)
        execute(notebook)
        tidy(notebook)
        nbformat.validate(notebook)
        nbformat.write(notebook, target)
        print(f"{source.stem}: written")
    for name in stale:
        print(f"{name}.ipynb is older than source/{name}.py: run `make notebooks`")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
