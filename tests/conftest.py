"""Shared pieces: the command line as a user calls it, and one full main run of each family for many tests."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"

VISIBLE_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES")  # tests/gpu gives them back to its processes
# The same suite everywhere: on the CPU, offline, with none of the course's own variables set.
os.environ.update(TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
for _name in [name for name in os.environ if name.startswith("GRPO_WORKBOOK_")]:
    del os.environ[_name]
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ["OMP_NUM_THREADS"] = (
        "1"  # workers side by side: threads of both on the same cores slow both down
    )


def environment(**more: str) -> dict[str, str]:
    """This environment without the course's own variables, offline."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("GRPO_WORKBOOK_")}
    return kept | {"COLUMNS": "80", "PYTHONUNBUFFERED": "1"} | more


def cli(
    *arguments: str | Path, cwd: Path = REPO, timeout: int = 580, **env: str
) -> subprocess.CompletedProcess:
    """Run `python -m grpo_workbook ...` in a process of its own."""
    command = [sys.executable, "-m", "grpo_workbook", *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, env=environment(**env), capture_output=True, text=True, timeout=timeout
    )


def report_of(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def pytest_collection_modifyitems(items):
    """What takes a minute or more goes first, each to whoever is free; of the rest a file stays with one worker."""
    for item in items:
        alone = item.get_closest_marker("long") is not None
        item.add_marker(pytest.mark.xdist_group(item.name if alone else item.path.stem))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.fixture(scope="session")
def main_runs(tmp_path_factory):
    """family -> (folder of a full main run with seed 0, what it printed); each trains once, for all workers."""
    root = tmp_path_factory.getbasetemp()
    root = root.parent if "PYTEST_XDIST_WORKER" in os.environ else root

    def run(family: str) -> tuple[Path, str]:
        folder, said = root / f"main-{family}", root / f"main-{family}.txt"
        with FileLock(root / f"main-{family}.lock"):
            if not said.exists():
                result = cli("run", "--model", family, "--output", folder, "--overwrite")
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
