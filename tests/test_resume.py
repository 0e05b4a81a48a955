"""A run that is stopped, however, and resumed ends as one that went through: bit for bit."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import REPO, assert_names, environment, trains

# All that can go wrong at once: completions sampled for 2 steps and used 2 times, in 2 accumulated
# batches, a reference policy, the second epoch, rewards with a state, a log of every second step,
# a probe.
HARD = {
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 2,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "beta": 0.05,
    "rows": 10,
    "fading": True,
    "logging_steps": 2,
    "probe": True,
}
EASY = {"rows": 12}  # in the smoke profile's way; an epoch has 6 steps
TIMED = ("step_time", "time/generation_fraction", "memory/fraction", "heldout/seconds")


class Runs:
    """Asks tests/resumed.py for one run after the other; the libraries are imported once."""

    def __init__(self, *before: str):
        path = environment(PYTHONPATH=str(REPO), GRPO_WORKBOOK_PROFILE="smoke")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        command = [*before, sys.executable, "tests/resumed.py"]
        self.process = subprocess.Popen(command, cwd=REPO, env=path, text=True, **pipes)

    def __call__(self, folder, **options) -> dict:
        self.process.stdin.write(json.dumps({"folder": str(folder)} | options) + "\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith("DID "):
                return json.loads(line[4:]) | {"printed": "".join(printed)}
            printed.append(line)
        raise AssertionError("".join(printed)[-3000:])

    def end(self):
        self.process.stdin.close()
        self.process.wait()


@pytest.fixture(scope="module")
@trains
def runs():
    started = Runs()
    yield started
    started.end()


@pytest.fixture(scope="module")
@trains
def easy(runs, tmp_path_factory):
    """(folder of a run that went through, what it did)"""
    folder = tmp_path_factory.mktemp("through") / "easy"
    return folder, runs(folder, **EASY)


def adapter(folder) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def history(folder) -> list[dict]:
    entries = json.loads((folder / "history.json").read_text())
    kept = []
    for entry in entries:
        if "train_runtime" in entry:
            continue
        for name in TIMED:
            entry.pop(name, None)
        kept.append(entry)
    return kept


def test_four_kills_change_nothing(runs, easy, tmp_path):
    """Before the first checkpoint, in the middle of writing one, right after one, between two."""
    folder = tmp_path / "run"
    kills = [(2, "step"), (6, "writing"), (6, "sealed"), (8, "step")]
    for number, kill in enumerate(kills):
        done = runs(folder, resume=number > 0, arm=kill, **EASY)
        assert done.get("killed") == 9, done
        if number == 1:
            torn = folder / "checkpoints" / "checkpoint-6"
            assert torn.is_dir()
            assert "unfinished" in (torn / "manifest.json").read_text()
    last = runs(folder, resume=True, **EASY)
    assert (last["from"], last["to"]) == (6, 10), last
    assert "Continuing from checkpoint-6" in last["printed"]
    assert last["findings"] == easy[1]["findings"]
    assert adapter(folder) == adapter(easy[0])
    assert history(folder) == history(easy[0])
    assert [e["step"] for e in history(folder)] == list(range(1, 11))


def test_what_is_sampled_counted_and_logged_between_two_checkpoints_goes_on(runs, tmp_path):
    """From a checkpoint amid sampled completions, after Ctrl-C, and after the last step."""
    hard, copied, other, folder = (tmp_path / n for n in ("hard", "copied", "other", "run"))
    through = runs(hard, save_total_limit=None, **HARD)
    before = adapter(hard), history(hard)
    for path in (copied, other):
        kept = hard / "checkpoints" / "checkpoint-3"
        shutil.copytree(kept, path / "checkpoints" / "checkpoint-3")
    ends = [runs(hard, resume=True, **HARD), runs(copied, resume=True, **HARD)]
    ends.append(runs(folder, arm=(5, "interrupted"), **HARD))
    assert_names(ends[-1]["printed"], "Ctrl-C")
    ends.append(runs(folder, resume=True, **HARD))
    assert [(e["from"], e["to"]) for e in ends] == [(10, 10), (3, 10), (0, 5), (5, 10)]
    for path in (hard, copied, folder):
        assert adapter(path) == before[0], path
        assert history(path) == before[1], path
    assert ends[1]["findings"] == ends[3]["findings"] == through["findings"]  # none is said twice
    refused = runs(other, resume=True, **HARD | {"rows": 16, "num_iterations": 1})
    assert_names(refused["error"], "num_iterations 2, here 1", "training rows 10, here 16")


def test_checkpoints_of_stock_trl_are_continued_and_none_is_removed(runs, tmp_path):
    """A stock run of 6 steps, then `train(resume=True)` to 8 steps: TRL's checkpoints stay."""
    folder = tmp_path / "run"
    limits = EASY | {"save_total_limit": None, "max_steps": 6}
    runs(folder, stock=True, **limits)
    stock = {path: path.read_bytes() for path in (folder / "checkpoints").rglob("*.*")}
    again = runs(folder, resume=True, **limits | {"max_steps": 8})
    assert (again["from"], again["to"]) == (6, 8), again
    assert "Continuing from checkpoint-6" in again["printed"]
    assert_names(again["printed"], "Lost", "completions")
    assert [e["step"] for e in history(folder)] == list(range(1, 9))
    assert {path: path.read_bytes() for path in stock} == stock
    assert (folder / "checkpoints" / "checkpoint-8" / "manifest.json").is_file()


def test_a_full_disk_stops_the_run_and_spares_the_last_checkpoint(easy, tmp_path):
    """A real file system of 80 MB, filled up while training; then there is room again."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces, so no small disk can be mounted")
    disk = tmp_path / "disk"
    disk.mkdir()
    script = f'mount -t tmpfs -o size=80m none {disk}; "$@"; cp -r {disk}/run {tmp_path}/kept'
    runs = Runs("unshare", "-rm", "sh", "-c", script, "sh")
    full = runs(disk / "run", arm=(5, "full"), **EASY)
    assert_names(full["error"], "checkpoint-6", "disk space", "checkpoint-3")
    filler = disk / "run" / "filler"  # seen by the processes in there alone
    again = runs(disk / "run", resume=True, remove=str(filler), **EASY)
    assert "Continuing from checkpoint-3" in again["printed"]
    assert "skipped" not in again["printed"]  # what there was of 6 is gone
    runs.end()
    assert adapter(tmp_path / "kept") == adapter(easy[0])
