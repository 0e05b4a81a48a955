"""A user's reward that hangs, leaves the process or is interrupted: named, saved, ended."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from conftest import REPO, cli, environment, finished

from grpo_workbook.cli.rewards import parse_rewards
from grpo_workbook.errors import WorkbookError
from grpo_workbook.resume import last_checkpoint

ROWS = {"question": ["What is 1 + 1?", "What is 2 + 2?"], "answer": ["2", "4"]}
SOURCE = """
import multiprocessing, os, re, time

def sleeps(completions, **columns):
    time.sleep(1000)

def swallows(completions, **columns):
    while True:
        try:
            time.sleep(1000)
        except Exception:
            pass

def matches(completions, **columns):
    return [float(bool(re.match("(a+)+b", "a" * 40))) for _ in completions]

def leaves(completions, **columns):
    os._exit(0)

def starts(completions, **columns):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(len, completions)

def works(completions, **columns):
    return [1.0 for _ in completions]

calls = 0

def later(completions, **columns):
    global calls
    calls += 1
    if calls > 3:
        print("HANGS", flush=True)
        time.sleep(1000)
    return [float(len(str(completion)) % 3) for completion in completions]

def once_silent(completions, **columns):
    global calls
    calls += 1
    return [None if calls == 3 else float(len(str(c)) % 3) for c in completions]
"""
SMALL = "--max-steps 5 --heldout 8 --batch-size 8 --max-completion-length 24".split()


@pytest.fixture
def source(tmp_path):
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


def call(source, name, timeout):
    [function], _ = parse_rewards(f"{source}:{name}", timeout)
    return function(completions=["a", "b"], **ROWS)


@pytest.mark.parametrize("name", ["sleeps", "swallows", "matches"])
def test_a_reward_that_hangs_is_named_with_its_rows(source, name):
    with pytest.raises(WorkbookError) as error:
        call(source, name, 0.2)
    for words in (name, "0.2 s", "'What is 1 + 1?'; 'What is 2 + 2?'", "raise --reward-timeout"):
        assert words in str(error.value)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_without_a_timer_signal_rewards_and_judges_work_and_it_is_said_once(source, tmp_path):
    """As on Windows: the worker processes start without these signals too."""
    (tmp_path / "sitecustomize.py").write_text(
        "import signal\n"
        "for name in 'setitimer getitimer alarm ITIMER_REAL SIGALRM'.split(): delattr(signal, name)"
    )
    code = f"""
from grpo_workbook.cli.rewards import judge_for, parse_rewards
from grpo_workbook.errors import WorkbookError
if __name__ == "__main__":
    (works, leaves), _ = parse_rewards("{source}:works,{source}:leaves")
    for _ in range(2):
        print(works(completions=["a", "b"], question=["1", "2"]))
    try:
        leaves(completions=["a", "b"])
    except WorkbookError as error:
        print(error)
    judge = judge_for("text")
    for text in ("x+x", "3x"):
        while (verdict := judge("<answer>" + text + "</answer>", "2x")) is None:
            pass  # on a busy machine its time limit can pass
        print(verdict)
"""
    (tmp_path / "calls.py").write_text(code)
    path = f"{tmp_path}:{REPO}"
    result = finished([sys.executable, "-W", "error", tmp_path / "calls.py"], PYTHONPATH=path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("[1.0, 1.0]") == 2
    assert "os._exit(0)" in result.stdout
    assert result.stdout.endswith("True\nFalse\n")
    assert result.stderr.count("no time limit") == 1


def test_a_reward_that_leaves_the_process_is_an_error_and_its_children_may(source):
    with pytest.raises(WorkbookError, match=r"leaves failed in step 1: .*os\._exit\(0\) \(line"):
        call(source, "leaves", 60)
    before, others = os._exit, set(multiprocessing.active_children())
    assert call(source, "starts", 60) == [1.0, 1.0]
    assert os._exit is before
    assert set(multiprocessing.active_children()) <= others


def test_a_reward_that_is_quick_changes_no_signal(source):
    names = (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)
    before = [signal.getsignal(name) for name in names]
    assert call(source, "works", 60) == [1.0, 1.0]
    assert [signal.getsignal(name) for name in names] == before


@pytest.mark.slow
def test_ctrl_c_ends_a_hanging_reward(source):
    """With a handler that only takes note, as while training."""
    noted = []
    before = signal.signal(signal.SIGINT, lambda *given: noted.append(given))
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            call(source, "swallows", 600)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert len(noted) == 1


@pytest.mark.trains
def test_a_run_with_a_reward_that_hangs_keeps_a_checkpoint(source, tmp_path):
    options = [*SMALL, "--rewards", f"{source}:later", "--output", tmp_path / "run"]
    result = cli("run", *options, "--reward-timeout", "2")
    assert result.returncode == 2, result.stderr[-3000:]
    assert "later ran for more than 2 s on the answers to '" in result.stderr
    assert "Traceback" not in result.stderr
    kept = last_checkpoint(tmp_path / "run" / "checkpoints")
    assert kept is not None
    assert kept.endswith("checkpoint-2")  # the first call is the trial before training
    again = cli("run", *options, "--reward-timeout", "2", "--resume")
    assert "Continuing from checkpoint-2" in again.stdout
    assert last_checkpoint(tmp_path / "run" / "checkpoints").endswith("checkpoint-4")


@pytest.mark.trains
def test_a_step_in_which_no_reward_applies_ends_no_training_and_is_counted(source, tmp_path):
    options = [*SMALL, "--rewards", f"{source}:once_silent", "--output", tmp_path / "run"]
    result = cli("run", *options)
    assert result.returncode == 0, result.stderr[-3000:]
    said = " ".join(cli("diagnose", tmp_path / "run").stdout.split())
    assert "5 rows, steps 1-5 NOTE no_reward, step 2 " in said
    assert "rows in which no reward applied 1 of 5 " in said


@pytest.mark.trains
@pytest.mark.parametrize("when", ["reward=", "HANGS"])
def test_sigterm_saves_as_ctrl_c_does(source, tmp_path, when):
    """While a step is computed, and in a reward that hangs."""
    said, name = tmp_path / "said.txt", "works" if when == "reward=" else "later"
    options = [*SMALL, "--max-steps", "60", "--rewards", f"{source}:{name}"]
    command = [sys.executable, "-m", "grpo_workbook", "run", *options, "--output", tmp_path / "run"]
    with said.open("w") as out:
        how = {"cwd": REPO, "env": environment(), "stdout": out, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(list(map(str, command)), **how)
    try:
        while when not in said.read_text():
            assert process.poll() is None, said.read_text()[-3000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 130, said.read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    assert "SIGTERM: finishing this step" in said.read_text()
    assert "--resume" in said.read_text()
    assert last_checkpoint(tmp_path / "run" / "checkpoints")
