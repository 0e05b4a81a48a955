"""A run that is stopped, however, and resumed ends where the run that went through ends: real runs, tiny, killed."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import REPO, environment

# All that can go wrong at once: completions drawn for 2 steps and used 2 times, in 2 accumulated batches, a reference
# policy, the second epoch, rewards with a state (one inside an ensemble), a log of every second step, a probe.
HARD = {
    "per_device_batch": 4,
    "steps_per_generation": 4,
    "num_iterations": 2,
    "beta": 0.05,
    "rows": 10,
    "adaptive": True,
    "logging_steps": 2,
    "probe": True,
}
EASY = {"rows": 12}  # in the smoke profile's way; an epoch has 6 steps
TIMED = ("step_time", "time/generation_share", "memory/share", "heldout/seconds")


def start(runs, **more) -> subprocess.CompletedProcess:
    """Do these runs in one process: a list for trainers, {"arguments", "armed"} for the command line."""
    command = [sys.executable, "tests/resumed.py", json.dumps(runs, default=str)]
    path = environment(PYTHONPATH=str(REPO), GRPO_WORKBOOK_PROFILE="smoke")
    return subprocess.run(
        command, cwd=REPO, env=path, capture_output=True, text=True, timeout=580, **more
    )


def did(result: subprocess.CompletedProcess) -> list[dict]:
    assert result.returncode == 0, result.stdout[-1500:] + result.stderr[-3000:]
    return [json.loads(line[4:]) for line in result.stdout.splitlines() if line.startswith("DID ")]


def adapter(folder) -> bytes:
    return (folder / "adapter" / "adapter_model.safetensors").read_bytes()


def history(folder) -> list[dict]:
    entries = json.loads((folder / "history.json").read_text())
    return [
        {k: v for k, v in e.items() if k not in TIMED} for e in entries if "train_runtime" not in e
    ]


@pytest.fixture(scope="module")
def through(tmp_path_factory):
    """Folders of two runs that went through, and what they did."""
    root = tmp_path_factory.mktemp("through")
    runs = [
        {"folder": root / "easy"} | EASY,
        {"folder": root / "hard", "save_total_limit": None} | HARD,
    ]
    return root / "easy", root / "hard", did(start(runs))


def test_four_kills_change_nothing(through, tmp_path):
    """Before the first checkpoint, in the middle of writing one, right after one, between two."""
    easy, folder = through[0], tmp_path / "run"
    kills = [(2, "step"), (6, "writing"), (6, "sealed"), (8, "step")]
    said = []
    for number, kill in enumerate(kills):
        result = start([{"folder": folder, "resume": number > 0, "arm": kill} | EASY])
        assert result.returncode == -9, result.stderr[-3000:]
        said.append(result.stdout)
    last = start([{"folder": folder, "resume": True} | EASY])
    assert did(last) == [{"from": 6, "to": 10, "said": through[2][0]["said"]}]
    assert "No checkpoint: training begins at step 1" in said[1]
    assert "checkpoint-6 is passed over: it has no manifest.json: it was cut off" in said[2]
    assert "Continuing from checkpoint-3" in said[2]
    assert "Continuing from checkpoint-6" in said[3]
    assert adapter(folder) == adapter(easy)
    assert history(folder) == history(easy)
    assert [e["step"] for e in history(folder)] == list(range(1, 11))


def test_what_is_drawn_counted_and_logged_between_two_checkpoints_goes_on(through, tmp_path):
    """From a checkpoint in the middle of drawn completions, after Ctrl-C, and after the last step."""
    hard, folder = through[1], tmp_path / "run"
    before, said = (adapter(hard), history(hard)), through[2][1]["said"]
    copied, other = tmp_path / "copied", tmp_path / "other"
    for path in (copied, other):
        shutil.copytree(
            hard / "checkpoints" / "checkpoint-3", path / "checkpoints" / "checkpoint-3"
        )
    runs = [{"folder": f, "resume": True} | HARD for f in (hard, copied, folder)]
    runs.insert(2, {"folder": folder, "arm": (5, "interrupted")} | HARD)
    runs.append({"folder": other, "resume": True} | HARD | {"rows": 16, "num_iterations": 1})
    result = start(runs)
    *ends, refused = did(result)
    assert [(e["from"], e["to"]) for e in ends] == [(10, 10), (3, 10), (0, 5), (5, 10)]
    assert "Ctrl-C: finishing this step, then saving" in result.stdout
    for path in (hard, copied, folder):
        assert adapter(path) == before[0], path
        assert history(path) == before[1], path
    assert (ends[1]["said"], ends[3]["said"]) == (said, said)  # no finding is said twice
    wrong = "was written with num_iterations 2, here 1; training rows 10, here 16: give the same values, or begin anew"
    assert wrong in refused["error"]


@pytest.mark.long
def test_a_full_disk_stops_the_run_and_spares_the_last_checkpoint(tmp_path):
    """A real file system of 80 MB, filled up while training; then there is room again."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces, so no small disk can be mounted")
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = [
        "run",
        "--steps",
        "8",
        "--batch-size",
        "8",
        "--num-generations",
        "4",
        "--heldout",
        "8",
    ]
    arguments += ["--output", str(disk / "run")]
    full = {"arguments": arguments, "armed": [5, "full"]}
    again = {"arguments": [*arguments, "--resume"], "armed": None}
    script = f"""mount -t tmpfs -o size=80m none {disk} && {{
        {sys.executable} tests/resumed.py '{json.dumps(full)}'; echo "exit $?"
        ls {disk}/run {disk}/run/checkpoints; rm {disk}/run/filler
        {sys.executable} tests/resumed.py '{json.dumps(again)}'; echo "exit $?"
    }}; cp -r {disk}/run {tmp_path}/kept"""
    command = ["unshare", "-rm", "sh", "-c", script]
    result = subprocess.run(
        command, cwd=REPO, env=environment(PYTHONPATH=str(REPO)), capture_output=True, text=True
    )
    went_on = result.stdout.split("exit 2", 1)[1]
    assert "Traceback" not in result.stderr
    error = result.stderr[result.stderr.index("error: ") :].splitlines()[0]
    assert "the checkpoint of step 6 cannot be written" in error
    assert "free some room there" in error
    assert "checkpoint-3 is whole, and resuming goes on from there" in error
    assert "checkpoint-6" not in went_on.split("Continuing")[0]  # what there was of it is gone
    assert "Continuing from checkpoint-3" in went_on
    assert "exit 0" in went_on
    assert [e["step"] for e in json.loads((tmp_path / "kept" / "log.json").read_text())] == list(
        range(1, 9)
    )
