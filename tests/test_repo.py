"""The project as a whole: what the README promises exists, and setting up twice installs once."""

import ast
import importlib
import importlib.util
import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
import tomllib

import pytest
from conftest import REPO, assert_names, cli, raises_naming
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from grpo_workbook.cli import main

README = (REPO / "README.md").read_text(encoding="utf-8")


def test_the_readme_lists_the_chapters_that_exist_and_no_other():
    linked = set(re.findall(r"\]\(notebooks/(\w+)\.ipynb\)", README))
    assert linked == {p.stem for p in (REPO / "notebooks").glob("*.ipynb")}


def test_the_minutes_are_the_measured_ones():
    benchmark = runpy.run_path(str(REPO / "benchmarks" / "notebooks.py"))
    table = benchmark["TABLE"].read_text(encoding="utf-8")
    measured = [row[0] for row in re.findall(benchmark["ROW"], table, re.MULTILINE)]
    assert measured == sorted(p.stem for p in (REPO / "notebooks" / "source").glob("[0-9]*.py"))
    for path, text in benchmark["with_minutes"]().items():
        assert path.read_text(encoding="utf-8") == text, "python benchmarks/notebooks.py --write"


def test_the_table_of_chapters_counts_each_ones_exercises():
    table = (REPO / "docs" / "chapters.md").read_text(encoding="utf-8")
    rows = re.findall(r"\(\.\./notebooks/(\w+)\.ipynb\) \| (\d+) \|", table)
    assert len(rows) == len(list((REPO / "notebooks").glob("[0-9]*.ipynb")))
    for name, exercises in rows:
        source = (REPO / "notebooks" / "source" / f"{name}.py").read_text(encoding="utf-8")
        count = len(re.findall(r"^# ### Exercise", source, re.MULTILINE))
        assert count == int(exercises), f"{name} has {count} exercises: say so in docs/chapters.md"


PAGES = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (REPO / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", sorted(PAGES))
def test_every_link_leads_somewhere(name):
    links = re.findall(r"\]\(([^)\s#]+)[^)\s]*\)", (REPO / name).read_text(encoding="utf-8"))
    assert [
        t for t in links if not t.startswith("http") and not ((REPO / name).parent / t).exists()
    ] == []


def test_every_picture_in_the_readme_has_words_and_every_page_a_link():
    pages = {f"docs/{p.name}" for p in (REPO / "docs").glob("*.md")}
    assert [p for p in pages - {"docs/for_teachers.md"} if f"]({p})" not in README] == []
    for words in re.findall(r"!\[([^]]*)\]", README):
        assert len(words) > 40
    assert "@@" not in README


def test_every_module_has_a_docstring():
    for path in (REPO / "grpo_workbook").rglob("*.py"):
        assert path.read_text(encoding="utf-8").startswith('"""'), path


HEAVY = ("torch", "transformers", "trl", "datasets", "pandas", "matplotlib", "typing")


def test_the_package_imports_in_a_moment_and_loads_nothing_heavy():
    code = "import sys, grpo_workbook; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    loaded = result.stdout.split()
    assert "grpo_workbook" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_every_public_name_is_there_with_a_docstring():
    import grpo_workbook

    assert 30 <= len(grpo_workbook.__all__) <= 40
    for name in grpo_workbook.__all__:
        value = getattr(grpo_workbook, name)
        assert value.__doc__ or not callable(value), name
    assert set(grpo_workbook.__all__) <= set(dir(grpo_workbook))
    with raises_naming(AttributeError, "evalute"):
        _ = grpo_workbook.evalute


@pytest.mark.slow
def test_a_type_checker_sees_the_signatures_of_the_public_names(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from grpo_workbook import choose_profile, evaluate\n"
        "evaluate(1, 2, 3, max_new_token=3)\n"
        "choose_profile(profil='smoke')\n"
    )
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("pyright is not installed: make lint installs it")
    result = subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPO)},
        cwd=tmp_path,
    )
    errors = json.loads(result.stdout)["generalDiagnostics"]
    messages = " ".join(error["message"] for error in errors)
    assert "max_new_token" in messages
    assert "profil" in messages


ROOMS = ("rewards", "sandbox", "environments", "diagnosis", "resume", "planning", "data")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_opens_without_torch_and_offers_what_it_names(room):
    code = (
        f"import sys, grpo_workbook.{room} as room\n"
        "print([m for m in ('torch', 'transformers', 'trl', 'matplotlib') if m in sys.modules])\n"
        "print(len(room.__all__), [n for n in room.__all__ if not hasattr(room, n)])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert result.returncode == 0, result.stderr
    loaded, offered = result.stdout.splitlines()
    assert loaded == "[]"
    count, missing = offered.split(" ", 1)
    assert 1 <= int(count) <= 12
    assert missing == "[]"


def python_texts() -> dict[str, str]:
    """What readers copy: the chapters, the templates, and the code in README and docs."""
    texts = {}
    for folder in ("notebooks/source", "templates"):
        for path in (REPO / folder).rglob("*.py"):
            texts[str(path.relative_to(REPO))] = path.read_text(encoding="utf-8")
    for name in ("README.md", "docs/helpers.md"):
        text = (REPO / name).read_text(encoding="utf-8")
        texts[name] = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    return texts


def imported_names() -> dict[str, set[str]]:
    """Module of the package -> the names that the texts for readers import from it."""
    names: dict[str, set[str]] = {}
    for text in python_texts().values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("grpo_workbook"):
                names.setdefault(node.module, set()).update(alias.name for alias in node.names)
    return names


def test_what_readers_import_exists_and_each_public_name_is_used():
    import grpo_workbook

    names = imported_names()
    for module, imported in names.items():
        home = importlib.import_module(module)
        for name in imported:
            is_module = importlib.util.find_spec(module).submodule_search_locations is not None
            if is_module and importlib.util.find_spec(f"{module}.{name}") is not None:
                continue  # from grpo_workbook.sandbox import attacks
            assert hasattr(home, name), f"{module} has no {name}"
    everywhere = " ".join(python_texts().values())
    unused = [n for n in grpo_workbook.__all__ if not re.search(rf"\b{n}\b", everywhere)]
    assert unused == []


@pytest.mark.parametrize("room", ROOMS)
def test_each_name_of_a_room_stands_where_a_reader_meets_it(room):
    """In a chapter, a template, the README or the page on the helpers."""
    texts = list(python_texts().values())
    for page in ("README.md", "docs/helpers.md"):
        texts.append((REPO / page).read_text(encoding="utf-8"))
    everywhere = " ".join(texts)
    names = importlib.import_module(f"grpo_workbook.{room}").__all__
    assert [name for name in names if not re.search(rf"\b{name}\b", everywhere)] == []


def test_everything_public_has_a_docstring():
    """Functions, classes, methods and properties whose name does not begin with _; what stands
    inside a function is its own affair, and when a callback's on_... is called, Transformers says.
    """

    def without(node: ast.AST, place: str) -> list[str]:
        found = []
        for inner in ast.iter_child_nodes(node):
            kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            if isinstance(inner, kinds) and not inner.name.startswith(("_", "on_")):
                found += [] if ast.get_docstring(inner) else [f"{place}.{inner.name}"]
                found += (
                    without(inner, f"{place}.{inner.name}")
                    if isinstance(inner, ast.ClassDef)
                    else []
                )
        return found

    missing = []
    for path in sorted((REPO / "grpo_workbook").rglob("*.py")):
        missing += without(ast.parse(path.read_text(encoding="utf-8")), path.stem)
    assert missing == []


def test_what_the_package_imports_is_what_it_says_it_needs():
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    needed = [Requirement(r) for r in project["dependencies"]]
    extras = itertools.chain.from_iterable(project["optional-dependencies"].values())
    offered = [Requirement(line) for line in extras]
    modules = {"PyYAML": "yaml", "ipython": "IPython", "pillow": "PIL"}

    def module(requirement):
        return modules.get(requirement.name, requirement.name.replace("-", "_"))

    # the sandbox's programs import one another; Unsloth stands in a requirements file of its own
    # and pytest runs tests there, where it is installed
    own = {"grpo_workbook", "unsloth", "unsloth_zoo", "pytest"}
    own |= {path.stem for path in (REPO / "grpo_workbook" / "sandbox").glob("*.py")}
    imported = set()
    for path in (REPO / "grpo_workbook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            imported |= {name.split(".")[0] for name in names}
    foreign = imported - set(sys.stdlib_module_names) - own
    assert foreign - {module(r) for r in needed + offered} == set()
    assert {module(r) for r in needed} - foreign == set()


def test_each_package_is_pinned_once_and_within_the_range_that_is_asked_for():
    lines = []
    for file in [REPO / "requirements.txt", *sorted((REPO / "requirements").glob("*.txt"))]:
        lines += file.read_text().splitlines()
    pins = [line.split("#")[0].strip().split("==") for line in lines if not line.startswith("#")]
    names = [canonicalize_name(name) for name, _ in pins]
    assert sorted(names) == sorted(set(names))
    versions = dict(zip(names, (version for _, version in pins), strict=True))
    project = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
    asked = [
        Requirement(r)
        for r in (*project["dependencies"], *project["optional-dependencies"]["unsloth"])
    ]
    both = [r for r in asked if canonicalize_name(r.name) in versions]
    assert len(both) > 15
    assert [str(r) for r in both if versions[canonicalize_name(r.name)] not in r.specifier] == []


def test_nothing_loads_foreign_code_or_pickles():
    for path in [
        *(REPO / "grpo_workbook").rglob("*.py"),
        *(REPO / "notebooks" / "source").glob("*.py"),
    ]:
        text = path.read_text(encoding="utf-8")
        # which run programs and tests: the sandbox
        if path.name in ("candidate.py", "tester.py", "together.py"):
            text = re.sub(r"\b(exec|eval)\(", "", text)
        assert not re.search(
            r"trust_remote_code\s*=|import pickle|torch\.load\(|os\.system|(?<![.\w])(eval|exec)\(",
            text,
        ), path


COMMANDS = "doctor new check-data plan run diagnose evaluate merge".split()


@pytest.mark.parametrize("arguments", [["--help"], *([c, "--help"] for c in COMMANDS)])
def test_help_fits_80_columns(arguments):
    result = cli(*arguments)
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "examples:" in result.stdout


@pytest.mark.slow
def test_a_launchers_number_that_is_none_does_not_hide_what_is_wrong():
    result = cli("check-data", "none.jsonl", RANK="first")
    assert (result.returncode, result.stderr.count("Traceback")) == (2, 0)
    assert_names(result.stderr, "none.jsonl")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("fly", ["'fly'", *COMMANDS]),
        ("", ["COMMAND"]),
        ("evaluate qwen", ["--data"]),
        ("evaluate qwen --data none.jsonl", ["none.jsonl"]),
        ("check-data my.csv --answers nummber", ["--answers", "'nummber'", "number"]),
        ("plan --modle x", ["--modle"]),
    ],
)
def test_bad_arguments_are_one_line_and_nothing_written(
    tmp_path, monkeypatch, capsys, arguments, named
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert_names(line, *named)
    assert list(tmp_path.iterdir()) == []


def test_make_installs_once(tmp_path):
    """With a stand-in for pip that writes down its calls: the second make calls it no more, a
    changed pin does.
    """
    for name in ("Makefile", "requirements.txt", "requirements/unsloth.txt", "pyproject.toml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((REPO / name).read_text())
    bin_ = tmp_path / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").write_text(
        f'#!/bin/sh\ntest "$3" = --version || echo $* >> {tmp_path}/calls\n'
    )
    (bin_ / "python").chmod(0o755)

    def calls():
        subprocess.run(
            ["make", "setup", f"PYTHON={sys.executable}"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )
        return (tmp_path / "calls").read_text().splitlines()

    first = calls()
    assert [("--no-deps" in c, "-r requirements/unsloth.txt" in c) for c in first][1] == (
        True,
        True,
    )
    assert calls() == first
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    later = time.time() + 5
    os.utime(tmp_path / "requirements.txt", (later, later))
    assert len(calls()) == 2 * len(first)


@pytest.fixture
def small_project(tmp_path):
    """The Makefile with nothing to install: setting up takes seconds and needs no network."""
    shutil.copy(REPO / "Makefile", tmp_path)
    for name in ("requirements.txt", "requirements/unsloth.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "0"\n')
    return tmp_path


def make(folder, *arguments):
    command = ["make", f"PYTHON={sys.executable}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
@pytest.mark.parametrize("left", ["Python and no pip", "an empty folder", "nothing"])
def test_an_environment_that_was_cut_off_is_made_again(small_project, left):
    bin_ = small_project / ".venv" / "bin"
    if left == "an empty folder":
        bin_.mkdir(parents=True)
    if left == "Python and no pip":
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", small_project / ".venv"], check=True
        )
    makefile = small_project / "Makefile"
    makefile.write_text(makefile.read_text().replace("-m pip install", "-m pip --version #"))
    result = make(small_project, "setup")
    assert result.returncode == 0, result.stderr
    assert (
        subprocess.run([bin_ / "python", "-m", "pip", "--version"], capture_output=True).returncode
        == 0
    )


def test_make_run_continues_what_was_stopped_and_replaces_what_had_ended(small_project):
    def command():
        out = make(small_project, "-n", "run").stdout
        return re.search(r"grpo_workbook run (.*)", out)[1].strip()

    folder = small_project / "outputs" / "run"
    folder.mkdir(parents=True)
    assert command() == "--overwrite"
    (folder / "run.json").write_text("{}")
    assert command() == "--resume"
    (folder / "report.json").write_text("{}")
    assert command() == "--overwrite"


def test_a_home_folder_that_cannot_be_written_gives_way_to_one_in_the_project(small_project):
    bin_ = small_project / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "jupyter").write_text('#!/bin/sh\necho "home $HOME"\ntouch "$HOME/written"\n')
    (bin_ / "jupyter").chmod(0o755)
    (small_project / ".venv" / ".installed").touch()
    for home, expected in (
        ("/nowhere/at all", small_project / ".home"),
        (small_project, small_project),
    ):
        command = ["make", "lab"]
        result = subprocess.run(
            command, cwd=small_project, env=os.environ | {"HOME": str(home)}, capture_output=True
        )
        assert f"home {expected}\n" in result.stdout.decode(), result.stderr
        assert (expected / "written").is_file()
