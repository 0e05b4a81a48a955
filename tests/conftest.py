"""Shared pieces: the command line as a user calls it, one full main run for many tests."""

import contextlib
import gc
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"

VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")  # tests/gpu gives them back to its processes
# The same suite everywhere: on the CPU, offline, with none of the course's own variables set.
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
for _name in [name for name in os.environ if name.startswith("GRPO_WORKBOOK_")]:
    del os.environ[_name]
signal.signal(signal.SIGINT, signal.default_int_handler)  # `make test &` would ignore it
sys.modules.setdefault("rfc3987_syntax")  # jsonschema goes without: 1 s for what no notebook needs
gc.set_threshold(20_000)  # as `quiet` does, and why
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = "1"  # workers side by side: more threads slow both down


def environment(**more: str) -> dict[str, str]:
    """This environment without the course's own variables, offline."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRPO_WORKBOOK_")}
    return kept | {"COLUMNS": "80", "PYTHONUNBUFFERED": "1"} | more


def cli(*arguments: str | Path, cwd: Path = REPO, **env: str) -> subprocess.CompletedProcess:
    """Run `python -m grpo_workbook ...` in a process of its own."""
    return finished([sys.executable, "-m", "grpo_workbook", *map(str, arguments)], cwd, **env)


def finished(command: list, cwd: Path = REPO, **env: str) -> subprocess.CompletedProcess:
    """Run a command to its end, however slow the machine: it is given up only when it stands still.

    That is when neither it nor a child of it has used a second of processor time within 5 minutes.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = psutil.Popen(
            command,
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        code = ended(process)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read())
    return subprocess.CompletedProcess(command, code, *texts)


def copy_notebooks(folder: Path) -> Path:
    """Copy all that notebooks/build.py reads into a folder; returns the copy of `notebooks`."""
    ignored = shutil.ignore_patterns("outputs", ".ipynb*")
    shutil.copytree(REPO / "notebooks", folder / "notebooks", ignore=ignored)
    shutil.copytree(REPO / "requirements", folder / "requirements")
    shutil.copy(REPO / "requirements.txt", folder)
    shutil.copy(REPO / "pyproject.toml", folder)  # the first cell's address
    return folder / "notebooks"


def ended(process: psutil.Popen) -> int:
    """Wait for the end of a process as `finished` does; its exit status."""
    used = -1.0
    while True:
        try:
            return process.wait(timeout=300)
        except psutil.TimeoutExpired:
            before, used = used, _processor_seconds(process)
            if used - before < 1:
                process.kill()
                raise


def until(true: Callable[[], object]) -> bool:
    """Wait until `true()`: a busy machine is seconds late, so only what hangs takes 5 minutes."""
    limit = time.monotonic() + 300
    while time.monotonic() < limit:
        if true():
            return True
        time.sleep(0.05)
    return bool(true())


def _processor_seconds(process: psutil.Process) -> float:
    total = 0.0
    for one in [process, *process.children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            total += sum(one.cpu_times()[:2])
    return total


def assert_names(text: str, *values: object) -> None:
    """Assert that a message names these values, in whatever words and wherever its lines break."""
    words = " ".join(text.split())
    for value in values:
        assert str(value) in words, f"{value} is not named in: {text}"


@contextlib.contextmanager
def raises_naming(error: type[Exception], *values: object):
    """Expect an error of this type whose message names these values, in whatever words."""
    with pytest.raises(error) as caught:
        yield caught
    assert_names(str(caught.value), *values)


def report_of(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def trains(fixture):
    """Mark a fixture that trains a model: every test that uses it gets the marker `trains`."""
    fixture.marker = "trains"
    return fixture


def slow(fixture):
    """Mark a fixture that takes seconds: every test that uses it gets the marker `slow`."""
    fixture.marker = "slow"
    return fixture


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    """Mark what is slow by the fixtures that it asks for, and deal the tests out to the workers.

    What takes long goes first, each to whoever is free; tests of one main run stay together, for
    they would wait for one another; of the rest a file stays with one worker.
    """
    for item in items:
        fixtures = getattr(item, "_fixtureinfo", None)
        used = []
        if fixtures is not None:
            used = list(itertools.chain.from_iterable(fixtures.name2fixturedefs.values()))
        marked = [d for d in used if hasattr(d.func, "marker")]
        for definition in marked:
            item.add_marker(definition.func.marker)
        group = item.path.stem
        if "main_runs" in getattr(item, "fixturenames", ()):
            group = "main_runs"
        elif any(d.scope == "module" for d in marked):
            group += "-shared"  # what the file has made is not made again by a second worker
        elif _slow(item):
            group = item.name
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: (not _slow(item), "main_runs" not in item.fixturenames))


def _slow(item) -> bool:
    return any(item.get_closest_marker(n) for n in ("trains", "slow", "notebook", "extra"))


@pytest.fixture(scope="session")
@trains
def main_runs(tmp_path_factory):
    """family -> (folder of a full main run with seed 0, what it printed); each trains once, for all
    workers.
    """
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def run(family: str) -> tuple[Path, str]:
        folder, said = root / f"main-{family}", root / f"main-{family}.txt"
        with FileLock(root / f"main-{family}.lock"):
            if not said.exists():
                result = cli("run", "--model", family, "--output_dir", folder, "--overwrite")
                assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
                said.write_text(result.stdout, encoding="utf-8")
        return folder, said.read_text(encoding="utf-8")

    return run


@pytest.fixture(scope="session")
def tiny():
    """family -> (model in float32, tokenizer), loaded by plain Transformers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folders = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
    return {
        family: (
            AutoModelForCausalLM.from_pretrained(folder, dtype="float32").eval(),
            AutoTokenizer.from_pretrained(folder),
        )
        for family, folder in folders.items()
    }
