"""The run command with a user's reward that fails or does not apply, or stopped by a cluster."""

import signal
import subprocess
import sys
import time

import pytest
from conftest import REPO, assert_names, cli, environment

from grpo_workbook.resume import last_checkpoint

SOURCE = """
calls = 0

def works(completions, **columns):
    return [1.0 for _ in completions]

def later_fails(completions, **columns):
    global calls
    calls += 1
    if calls > 3:
        raise KeyError("colour")
    return [float(len(str(completion)) % 3) for completion in completions]

def once_silent(completions, **columns):
    global calls
    calls += 1
    return [None if calls == 3 else float(len(str(c)) % 3) for c in completions]
"""
SMALL = "--max_steps 5 --heldout 8 --per_device_train_batch_size 8".split()
SMALL += ["--max_completion_length", "24"]

pytestmark = pytest.mark.trains


@pytest.fixture
def source(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


def test_a_run_with_a_reward_that_fails_is_resumed_from_its_last_checkpoint(source, tmp_path):
    options = [*SMALL, "--rewards", f"{source}:later_fails", "--output_dir", tmp_path / "run"]
    options += ["--save_steps", "1"]
    result = cli("run", *options)
    assert result.returncode == 2, result.stderr[-3000:]
    assert_names(result.stderr, "mine.py", "later_fails", "step 3", "KeyError: 'colour'", "line 11")
    assert "Traceback" not in result.stderr
    # the first call is the trial before training
    assert last_checkpoint(tmp_path / "run" / "checkpoints").endswith("checkpoint-2")
    again = cli("run", *options, "--resume")
    assert "Continuing from checkpoint-2" in again.stdout
    assert last_checkpoint(tmp_path / "run" / "checkpoints").endswith("checkpoint-4")


def test_a_step_in_which_no_reward_applies_ends_no_training_and_is_counted(source, tmp_path):
    options = [*SMALL, "--rewards", f"{source}:once_silent", "--output_dir", tmp_path / "run"]
    result = cli("run", *options)
    assert result.returncode == 0, result.stderr[-3000:]
    printed = cli("diagnose", tmp_path / "run").stdout
    assert_names(printed, "5 rows, steps 1-5", "NOTE no_reward, step 2", "1 of 5")


def test_sigterm_saves_as_ctrl_c_does(source, tmp_path):
    log = tmp_path / "log.txt"
    options = [*SMALL, "--max-steps", "60", "--rewards", f"{source}:works"]
    options += ["--output_dir", tmp_path / "run"]
    command = [sys.executable, "-m", "grpo_workbook", "run", *options]
    with log.open("w") as out:
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=REPO,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        while "reward=" not in log.read_text():  # while a step is computed
            assert process.poll() is None, log.read_text()[-3000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130, log.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    assert_names(log.read_text(), "SIGTERM", "--resume")
    assert last_checkpoint(tmp_path / "run" / "checkpoints")
