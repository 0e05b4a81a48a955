"""Render the README, the executed notebooks and the cards as a static site, with search:
build/book/index.html.

    python docs/book/build.py            # or: make book
    python docs/book/build.py --out DIR

Nothing is executed: the pages show the stored outputs of the notebooks. A broken link fails the
build.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import nbformat

HERE = Path(__file__).resolve().parent
REPO = HERE.parent.parent
TREE = """
```{toctree}
:hidden:
:caption: Chapters

%s
```

```{toctree}
:hidden:
:caption: The project

%s
```
"""


def collect(source: Path) -> None:
    """Copy the book's pages in the layout of the repository, so that relative links work."""
    shutil.rmtree(source, ignore_errors=True)
    (source / "_static").mkdir(parents=True)
    shutil.copy(HERE / "conf.py", source)
    for name in ("book.css", "favicon.svg"):
        shutil.copy(HERE / name, source / "_static")
    chapters = sorted((REPO / "notebooks").glob("[0-9]*.ipynb"))
    cards = sorted((REPO / "data").glob("*/README.md"))
    more = [REPO / "CONTRIBUTING.md", REPO / "CHANGELOG.md", *sorted((REPO / "docs").glob("*.md"))]
    for path in (*chapters, *cards, *more, *(REPO / "docs").glob("*.png")):
        target = source / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    (source / "docs" / "glossary.md").write_text(glossary(chapters), encoding="utf-8")
    names = [
        [str(p.relative_to(REPO).with_suffix("")) for p in group]
        for group in (chapters, [REPO / "docs" / "glossary.md", *more, *cards])
    ]
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    (source / "index.md").write_text(
        readme + TREE % tuple("\n".join(n) for n in names), encoding="utf-8"
    )
    _link_what_is_not_shown(source)
    (source / "llms.txt").write_text(llms_txt(source), encoding="utf-8")


def glossary(chapters: list[Path]) -> str:
    """The page of all terms from A to Z, each with a link to the chapter that introduces it."""
    found = tomllib.loads((HERE / "glossary.toml").read_text(encoding="utf-8"))
    names = {path.name[:2]: path.name for path in chapters}
    rows = sorted(
        (
            f"| **{term}** | {meaning} | [{number}](../notebooks/{names[number]}) |"
            for number, terms in found.items()
            for term, meaning in terms.items()
        ),
        key=str.casefold,
    )
    head = ["# Glossary", "", "| term | meaning | chapter |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows]) + "\n"


def llms_txt(source: Path) -> str:
    """The pages as a list for language models (llmstxt.org): a title, a sentence, links."""
    readme = (REPO / "README.md").read_text(encoding="utf-8")
    about = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = ["# GRPO Workbook", "", f"> {about['description']}.", "", "## Chapters", ""]
    for title, path, can in re.findall(
        r"^\| \[(\d\d .*?)\]\((.*?)\.ipynb\) \| (.*?) \|", readme, re.M
    ):
        lines.append(f"- [{title}]({path}.html): after it you can {can}")
    lines += [
        "",
        "## The project",
        "",
        "- [README](index.html): start, chapters, helpers, commands",
    ]
    for page in sorted([*source.glob("[A-Z]*.md"), *source.glob("docs/*.md")]):
        title = page.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({page.relative_to(source).with_suffix('.html')})")
    return "\n".join([*lines, f"- [Source code]({about['urls']['Repository']})"]) + "\n"


def _link_what_is_not_shown(source: Path) -> None:
    """A link to a file that the book does not hold (code, a licence) leads to the repository
    instead.
    """
    address = re.search(
        r'^Repository = "(.*)"', (REPO / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE
    )[1]
    for page in [*source.rglob("*.md"), *source.rglob("*.ipynb")]:
        home = REPO / page.relative_to(source).parent

        def lead(match, home=home, page=page):
            target, anchor = match[1], match[2] or ""
            if (page.parent / target).exists() or not (home / target).exists():
                return match[0]
            kind = "tree" if (home / target).is_dir() else "blob"
            path = (home / target).resolve().relative_to(REPO)
            return f"]({address}/{kind}/main/{path}{anchor})"

        def led(text, lead=lead):
            return re.sub(r"\]\((?!http|#)([^)#\s]+)(#[^)\s]*)?\)", lead, text)

        if page.suffix == ".md":
            page.write_text(led(page.read_text(encoding="utf-8")), encoding="utf-8")
            continue
        notebook = nbformat.read(page, as_version=4)
        # the set-up cell and its words: a page is read, not run; of the badges only the links stay
        first = [c.source for c in notebook.cells if c.id == "first-words"]
        places = re.findall(r"\[!\[(.*?)\]\(.*?\)\]\((.*?)\)", "".join(first))
        notebook.cells = [c for c in notebook.cells if not c.id.startswith("first-")]
        notebook.cells[0].source += "\n\n" + " · ".join(f"[{name}]({url})" for name, url in places)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = led(cell.source)
        nbformat.write(notebook, page)


def main() -> int:
    parser = argparse.ArgumentParser(description="Render the book: build/book/index.html")
    parser.add_argument(
        "--out", type=Path, default=REPO / "build" / "book", help="default build/book"
    )
    out = parser.parse_args().out.resolve()
    source = out.with_name(out.name + "-source")
    collect(source)
    shutil.rmtree(out, ignore_errors=True)
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-q",
        "-W",
        "--keep-going",
        str(source),
        str(out),
    ]
    status = subprocess.run(command).returncode
    if status == 0:
        print(f"{out}/index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
