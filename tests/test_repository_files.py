"""The files around the code: links that open a notebook, containers, the lock, workflows, the
glossary, and the notebooks for a class.
"""

import itertools
import json
import re
import sys
import tomllib

import nbformat
import pytest
import yaml
from conftest import REPO
from packaging.utils import canonicalize_name

import grpo_workbook

sys.path.insert(0, str(REPO / "notebooks"))
import build

SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))
README = (REPO / "README.md").read_text(encoding="utf-8")
CHAPTERS = (REPO / "docs" / "chapters.md").read_text(encoding="utf-8")
MAKEFILE = (REPO / "Makefile").read_text(encoding="utf-8")
PYTHON = (REPO / ".python-version").read_text().strip()
WORKFLOWS = sorted((REPO / ".github").rglob("*.yml"))


def pins() -> dict[str, str]:
    versions = {}
    for file in ("requirements.txt", "requirements/unsloth.txt"):
        text = (REPO / file).read_text(encoding="utf-8")
        for name, version in re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE):
            versions[canonicalize_name(name)] = version
    return versions


@pytest.mark.parametrize("source", SOURCES, ids=lambda p: p.stem)
def test_each_notebook_opens_with_one_click_from_the_texts_and_from_its_first_words(source):
    links = build.links(source.stem)
    assert set(links) == {"Colab", "Kaggle"}
    words = build.first_cells(name=source.stem)[0].source
    path = build.address().removeprefix("https://github.com/")
    for _, link in links.values():
        assert link in CHAPTERS
        assert link in words
        file = link.partition(f"{path}/blob/main/")[2]
        assert (REPO / file).is_file(), link
        assert (REPO / file).stem == source.stem


def test_one_address_of_the_repository_stands_everywhere():
    address = build.address()
    owner = address.removeprefix("https://github.com/").partition("/")[0]
    names = ("*.md", "*.cff", "*.toml", "docs/*.md", ".github/**/*.yml", ".devcontainer/*")
    for path in itertools.chain.from_iterable(map(REPO.glob, names)):
        for found in re.findall(rf"{owner}/[\w-]+(?=/|\)|\"|$)", path.read_text(), re.MULTILINE):
            assert address.endswith(found), f"{path.name}: {found}"
    assert f"repository-code: {address}\n" in (REPO / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.gpu"])
def test_a_container_installs_what_make_installs(name):
    text = re.sub(r"\\\n\s*", "", (REPO / ".devcontainer" / name).read_text())
    (image,) = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert re.fullmatch(rf"python:{PYTHON}\.\d+-slim-\w+", image)  # a release, not whatever is new
    installs = re.findall(r"pip install --no-cache-dir (.*?)(?= &&|\n)", text)
    if name == "Dockerfile":
        assert installs.pop(0) == (
            "\"$(grep -o '^torch==[^ ]*' requirements.txt)\" "
            "--index-url https://download.pytorch.org/whl/cpu"
        )
    ours = re.findall(r"pip install --disable-pip-version-check -q (.*)", MAKEFILE)[:2]
    assert installs == ours == ["-r requirements.txt", "--no-deps -r requirements/unsloth.txt"]
    assert "RUN make setup\n" in text  # the course itself, and again what make takes
    assert "USER learner" in text
    assert ("GRPO_WORKBOOK_PROFILE=smoke" in text) is (name == "Dockerfile")


def test_codespaces_build_the_cpu_container():
    folder = REPO / ".devcontainer"
    container = json.loads((folder / "devcontainer.json").read_text())
    assert (folder / container["build"]["dockerfile"]).is_file()
    assert container["hostRequirements"]["cpus"] == 2
    for file in container["customizations"]["codespaces"]["openFiles"]:
        assert (REPO / file).is_file()


def test_the_lock_has_the_pinned_versions_from_pypi_alone():
    text = (REPO / "uv.lock").read_text()
    assert set(re.findall(r"https://([^/\"]+)", text)) == {"pypi.org", "files.pythonhosted.org"}
    locked = {p["name"]: p for p in tomllib.loads(text)["package"] if p["name"] != "fastapi"}
    missing = {n: v for n, v in pins().items() if f'name = "{n}"\nversion = "{v}"' not in text}
    assert missing == {}, "run `make lock`"
    for name in ("unsloth", "unsloth-zoo"):  # its own requirements would bring CUDA-only packages
        assert "dependencies" not in locked[name]
    # `uv sync` installs each pinned package: asked for by the project or by its default group
    ours = locked["grpo-workbook"]
    extras = ours["optional-dependencies"]
    needs = [*ours["dependencies"], *ours["dev-dependencies"]["dev"]]
    for name in ("unsloth", "notebooks", "serving"):
        needs += extras[name]
    reached = set()
    while needs:
        name = needs.pop()["name"]
        if name not in reached:
            reached.add(name)
            needs += locked.get(name, {}).get("dependencies", [])
    assert pins().keys() <= reached
    for package in locked.values():
        assert all("hash" in wheel for wheel in package.get("wheels", []))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.name)
def test_workflows_and_issue_forms_are_valid_and_call_what_exists(path):
    text = path.read_text(encoding="utf-8")
    parsed = yaml.safe_load(text)
    for target in re.findall(r"run: make ([\w-]+)", text):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target
    if path.parent.name == "workflows":
        assert {"name", True, "permissions", "jobs"} <= parsed.keys()  # YAML reads `on` as true
        for job in parsed["jobs"].values():
            assert {"runs-on", "timeout-minutes", "steps"} <= job.keys()
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step)
                assert re.search(r"@v\d+$", step.get("uses", "@v1"))
    elif "body" in parsed:
        assert {"name", "description", "body"} <= parsed.keys()
        assert "grpo_workbook doctor" in text
        assert all(field["attributes"]["label"] for field in parsed["body"])


def test_the_version_is_cited_and_its_changes_are_listed():
    citation = yaml.safe_load((REPO / "CITATION.cff").read_text())
    assert citation["version"] == grpo_workbook.__version__
    assert {"cff-version", "message", "title", "authors", "license"} <= citation.keys()
    changes = (REPO / "CHANGELOG.md").read_text()
    assert f"## {grpo_workbook.__version__} · {citation['date-released']}" in changes


def test_the_commands_of_pre_commit_and_of_agents_md_exist():
    hooks = yaml.safe_load((REPO / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    commands = " ".join(hook["entry"] for hook in hooks)
    files = [word for word in commands.split() if word.endswith(".py")]
    agents = (REPO / "AGENTS.md").read_text()
    files += re.findall(r"(?:tests|notebooks)/\w+\.py", agents)
    assert [file for file in files if not (REPO / file).is_file() and "NN_" not in file] == []
    for target in re.findall(r"(?:^|`)make ([\w-]+)", agents, re.MULTILINE):
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE), target


def test_each_term_of_the_glossary_stands_once_and_in_its_chapter():
    found = tomllib.loads((REPO / "docs" / "book" / "glossary.toml").read_text(encoding="utf-8"))
    terms = list(itertools.chain.from_iterable(found.values()))
    assert len(terms) > 30
    assert len({term.casefold() for term in terms}) == len(terms)
    texts = {p.stem[:2]: " ".join(re.sub(r"\n#?", " ", p.read_text()).split()) for p in SOURCES}
    for chapter, meanings in found.items():
        for term, meaning in meanings.items():
            assert re.search(rf"\b{re.escape(term)}", texts[chapter], re.IGNORECASE), term
            assert meaning.endswith(".")


def test_a_class_gets_the_notebooks_without_solutions_and_no_work_is_replaced(tmp_path, capsys):
    folder = tmp_path / "class"
    assert build.write_for_class(SOURCES[:3], folder) == 0
    for source in SOURCES[:3]:
        class_copy = nbformat.read(folder / f"{source.stem}.ipynb", as_version=4)
        nbformat.validate(class_copy)
        original = build.build(source)
        assert len(class_copy.cells) == len(original.cells)
        hints = 0
        exercises = 0
        for cell, before in zip(class_copy.cells, original.cells, strict=True):
            exercises += "exercise" in cell.metadata.get("tags", [])
            if cell.cell_type == "code":
                assert (cell.source, cell.outputs) == (before.source, [])
                continue
            hints += "<summary>Hint</summary>" in cell.source
            assert "<summary>Solution" not in cell.source
            assert cell.source.count("<details>") == cell.source.count("</details>")
            if "<summary>Solution" not in before.source:
                assert cell.source == before.source
        assert hints == exercises >= 3
    work = folder / f"{SOURCES[0].stem}.ipynb"
    work.write_text("mine")
    assert build.write_for_class(SOURCES[:1], folder) == 2
    assert work.read_text() == "mine"
    assert str(work) in capsys.readouterr().err
