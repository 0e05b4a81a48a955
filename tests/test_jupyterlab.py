"""A learner's walk in JupyterLab, in a real browser: run every cell, answer two exercises wrongly,
then rightly.

`WALK=all` walks through every notebook; the suite takes a short one.
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request

import jupytext
import nbformat
import pytest
from conftest import REPO, environment
from test_book import BROWSER, OFFLINE

pytestmark = pytest.mark.extra

sync = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed (requirements/book.txt)"
)
SHORT = "02_dataset_prep"
SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))
NAMES = [s.stem for s in SOURCES if os.environ.get("WALK") == "all" or s.stem == SHORT]
# every cell stands in the page, not only those in view
LAB_SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def two_exercises(name):
    """(number, function, solution) of a notebook's first two exercises."""
    cells = jupytext.read(REPO / "notebooks" / "source" / f"{name}.py", fmt="py:percent").cells
    found = []
    for heading, stub, answer in zip(cells, cells[1:], cells[2:], strict=False):
        if match := re.match(r"### Exercise (\d\d\.\d) · `(\w+)`", heading.source):
            solution = re.search(
                r"<summary>Solution</summary>\n\n```python\n(.*?)```", answer.source, re.DOTALL
            )[1]
            imports = "\n".join(
                line for line in stub.source.splitlines() if line.startswith(("from ", "import "))
            )
            found.append((match[1], match[2], f"{imports}\n\n{solution}"))
    return found[:2]


@pytest.fixture
def lab(tmp_path):
    """The address of a JupyterLab on loopback that serves tmp_path; stopped afterwards."""
    if BROWSER is None:
        pytest.skip("no Chromium on this machine (Debian: apt install chromium)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = tmp_path / ".settings" / "@jupyterlab"
    for name, values in LAB_SETTINGS.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    options = [
        "--no-browser",
        "--allow-root",
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
    ]
    options += ["--IdentityProvider.token=", f"--LabApp.user_settings_dir={tmp_path / '.settings'}"]
    env = environment(
        GRPO_WORKBOOK_PROFILE="smoke",
        GRPO_WORKBOOK_PROGRESS=str(tmp_path / "progress.json"),
        GRPO_WORKBOOK_OUTPUT=str(tmp_path / "outputs"),
        PYTHONPATH=str(REPO),
    )
    with (tmp_path / "lab.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options],
            cwd=tmp_path,
            env=env,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}"
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{address}/api", timeout=1)
            break
        except OSError:
            assert process.poll() is None, (tmp_path / "lab.log").read_text()[-3000:]
            time.sleep(0.5)
    yield address
    process.terminate()
    process.wait(timeout=60)


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_walks_through_a_notebook(lab, tmp_path, name):
    path = tmp_path / f"{name}.ipynb"
    stored = nbformat.read(REPO / "notebooks" / path.name, as_version=4)
    for cell in stored.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    nbformat.write(stored, path)
    with sync.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=list(OFFLINE))
        page, trouble = browser.new_page(viewport={"width": 1280, "height": 900}), []
        page.on("pageerror", lambda e: trouble.append(str(e)))
        page.goto(f"{lab}/lab/tree/{path.name}")
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for(timeout=120_000)
        page.locator(".jp-Toolbar-kernelName", has_text="Python 3 (ipykernel)").wait_for(
            timeout=120_000
        )
        page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').first.wait_for(
            timeout=120_000
        )
        run_all(page)
        finished(page, path, sum(c.cell_type == "code" for c in stored.cells))
        for number, function, solution in two_exercises(name):
            imports = "from grpo_workbook.exercises import check"
            wrong = f'{imports}\n\n\ndef {function}(*a, **k):\n    return "no"\n\n\n'
            call = f'check("{number}", {function});'
            assert "Not yet" in answer(page, number, wrong + call)
            assert f"Solved: {function} is right" in answer(page, number, f"{solution}\n\n{call}")
        page.screenshot(path=str(tmp_path / "lab.png"))
        assert trouble == []
        browser.close()
    solved = json.loads((tmp_path / "progress.json").read_text())["solved"]
    assert sorted(solved) == [number for number, _, _ in two_exercises(name)]


def run_all(page):
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("^Run All Cells")).click()


def finished(page, path, cells, seconds=3600):
    """Wait until the last cell has run (only one that hangs takes an hour), with no error saved."""
    deadline = time.monotonic() + seconds
    while True:
        page.keyboard.press("Control+s")
        page.wait_for_timeout(1000)
        now = nbformat.read(path, as_version=4)
        codes = [c for c in now.cells if c.cell_type == "code"]
        errors = [o for c in codes for o in c.outputs if o.output_type == "error"]
        assert not errors, errors[0].evalue
        idle = page.locator('.jp-Notebook-ExecutionIndicator[data-status="idle"]').count()
        if (
            idle
            and sorted(c.execution_count or 0 for c in codes)[-1] == cells
            and all(c.execution_count for c in codes)
        ):
            return now
        assert time.monotonic() < deadline, "the notebook did not end"


def answer(page, number, code):
    """Write the code into the exercise's cell, run it, and return what it prints."""
    assert page.locator("dialog").count() == 0, page.locator("dialog").first.inner_text()
    cell = page.locator(".jp-CodeCell", has_text=f'check("{number}"').first
    cell.scroll_into_view_if_needed()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(code)
    before = cell.locator(".jp-InputPrompt").first.inner_text()
    page.keyboard.press("Control+Enter")
    for _ in range(240):
        prompt = cell.locator(".jp-InputPrompt").first.inner_text()
        if prompt != before and "*" not in prompt:
            return cell.locator(".jp-OutputArea-output").first.inner_text()
        page.wait_for_timeout(250)
    raise AssertionError(f"the cell of {number} did not end")
