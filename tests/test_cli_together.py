"""Several processes for real: gloo on the CPU, started by torchrun and by accelerate, killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import (
    REPO,
    ended,
    environment,
    finished,
    report_of,
    trains,
)

from grpo_workbook.cli import together
from grpo_workbook.resume import last_checkpoint

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
ACCELERATE = (sys.executable, "-m", "accelerate.commands.launch")
RUN = ("-m", "grpo_workbook", "run")
TEST = REPO / "tests"


def launch(*command):
    return finished([*map(str, command)], PYTHONPATH=str(REPO), TRL_EXPERIMENTAL_SILENCE="1")


# ------------------------------------------------------------------ how many were started


def test_one_process_alone_needs_no_group(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    assert (together.count(), together.is_main()) == (1, True)
    with together.together("cpu"):
        assert together.once(lambda: 4) == 4


@pytest.mark.parametrize("name", ["cpu_two_processes", "data_parallel"])
def test_accelerate_reads_the_launch_files(name):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(REPO / "configs" / f"{name}.yaml"))  # an unknown key raises
    assert config.num_processes == 2
    assert config.distributed_type == "MULTI_GPU"


# ------------------------------------------------------------------ two processes, no model


@pytest.mark.extra
def test_what_one_does_all_know():
    result = launch(*TORCHRUN, TEST / "gloo_pieces.py", "pieces")
    assert result.returncode == 0, result.stderr[-3000:]
    found = [json.loads(x) for x in result.stderr.splitlines() if x.startswith('{"once"')]
    assert [one["once"] for one in found] == [{"by": "0", "text": "é"}] * 2
    ends = sorted((o["worked"], o["worked in the end"], *o["error"]) for o in found)
    assert ends == [(0, 1, "SystemExit", "2"), (1, 2, "WorkbookError", "the file 'x' is missing")]
    assert result.stdout.count("said by the main one") == 1


@pytest.mark.slow
def test_a_lost_process_ends_the_job():
    result = launch(*TORCHRUN, TEST / "gloo_pieces.py", "loss")
    assert result.returncode != 0


# ------------------------------------------------------------ two processes and one are the same


@pytest.fixture(scope="module")
@trains
def fixed(tmp_path_factory):
    """name -> folder of a training on given completions in one process and in two."""
    folders = {}
    for name, launcher in (("one", (sys.executable,)), ("two", TORCHRUN)):
        folders[name] = tmp_path_factory.mktemp(name)
        result = launch(*launcher, TEST / "fixed_completions.py", folders[name])
        assert result.returncode == 0, result.stderr[-3000:]
    return folders


@pytest.mark.extra
def test_the_same_completions_give_the_same_advantages_and_the_same_adapter(fixed):
    import torch
    from safetensors.torch import load_file

    one, two = (json.loads((fixed[n] / "advantages.json").read_text()) for n in ("one", "two"))
    assert (one["processes"], two["processes"]) == (1, 2)
    assert len(one["steps"]) == 4
    for a, b in zip(one["steps"], two["steps"], strict=True):
        assert a[0] == b[0]  # the completions, in the order of the global batch
        assert a[1] == b[1]  # the advantages, bit for bit
        assert len(a[1]) == 32
        assert len(set(a[1])) > 4
    assert one["sampled"] == two["sampled"]  # measuring is shared, and samples what one would
    assert len(set(one["sampled"])) > 20
    file = "adapter/adapter_model.safetensors"
    first, second = (load_file(fixed[name] / file) for name in ("one", "two"))
    assert first.keys() == second.keys()

    def flat(weights, name=""):
        chosen = [key for key in sorted(weights) if name in key]
        return torch.cat([weights[key].float().flatten() for key in chosen])

    before, after = flat(first, "lora_B"), flat(second, "lora_B")
    assert before.abs().max() > 1e-3  # they begin at 0
    # Two halves are added up in another order. Adam divides by the gradient's size, so a weight
    # whose gradient is almost 0 may go another way: a few single weights differ, the adapter as a
    # whole does not.
    assert (before - after).norm() / before.norm() < 0.01
    everything = (flat(first) - flat(second)).abs()
    assert (everything > 1e-4).float().mean() < 0.002


# ------------------------------------------------------------ the whole command in two processes


@pytest.mark.extra
def test_accelerate_starts_two_that_learn_and_write_once(tmp_path):
    folder = tmp_path / "run"
    launcher = (*ACCELERATE, "--config_file", "configs/cpu_two_processes.yaml")
    options = (
        "--model",
        "data/tiny-form",  # its form is learned in few steps
        "--max_steps",
        "50",
        "--per_device_train_batch_size",
        "32",  # 64 in a step of both
        "--heldout",
        "160",
        "--eval_batch_size",
        "40",
        "--output_dir",
        folder,
    )
    result = launch(*launcher, *RUN, *options)
    assert result.returncode == 0, result.stderr[-3000:]
    report, log = report_of(folder), json.loads((folder / "log.json").read_text())
    assert report["processes"] == 2
    strict = report["heldout"]["sampled"]["strict"]
    assert strict["before"] <= 0.35
    assert strict["after"] >= 0.80
    assert strict["p_value"] < 1e-6
    assert [entry["step"] for entry in log] == list(range(1, 51))
    assert report["completions"]["total"] == 50 * 64
    for words in ("Before training:", "Loading the model", "Five held-out questions"):
        assert result.stdout.count(words) == 1
    assert result.stderr.count("training: 100%") <= 3  # one bar, drawn anew
    assert "checkpoint-50" in [p.name for p in (folder / "checkpoints").glob("checkpoint-*")]
    assert not list(folder.rglob("*.new"))
    kept = json.loads((folder / "before.json").read_text())
    for completions in kept["heldout"].values():
        assert len(completions) == 160
        assert all(completions)


@pytest.mark.extra
def test_a_killed_process_ends_the_job_and_its_checkpoint_goes_on(tmp_path):
    folder, said = tmp_path / "run", tmp_path / "said.txt"
    sizes = (
        "--max-steps",
        "24",
        "--heldout",
        "8",
        "--per_device_train_batch_size",
        "8",
        "--save_steps",
        "2",
    )
    command = [*map(str, (*TORCHRUN, *RUN, *sizes, "--output_dir", folder))]
    with said.open("w") as out:
        how = {"cwd": REPO, "env": environment(), "stdout": out, "stderr": subprocess.STDOUT}
        process = psutil.Popen(command, **how)
    try:
        while last_checkpoint(folder / "checkpoints") is None:
            assert process.poll() is None, said.read_text()[-3000:]
            time.sleep(0.2)
        workers = {int(p.environ()["RANK"]): p for p in process.children() if "RANK" in p.environ()}
        assert workers.keys() == {0, 1}
        family = [*workers.values()]
        for worker in workers.values():
            family += worker.children(recursive=True)
        os.kill(workers[1].pid, signal.SIGKILL)
        ended(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    assert process.returncode != 0
    psutil.wait_procs(family, timeout=300)  # only one that hangs takes so long
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    kept = str(last_checkpoint(folder / "checkpoints"))
    assert not (folder / "report.json").exists()

    again = launch(*command, "--resume")
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout.count(f"Continuing from {kept.rsplit('/', 1)[1]}") == 1
    log = json.loads((folder / "log.json").read_text())
    assert [entry["step"] for entry in log] == list(range(1, 25))
    assert report_of(folder)["resumed_from_step"] == int(kept.rsplit("-", 1)[1])


@pytest.mark.extra
def test_bad_input_is_said_once_although_two_meet_it(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "log.json").write_text("[]")
    result = launch(*TORCHRUN, *RUN, "--output_dir", folder)
    assert result.returncode != 0
    assert len(re.findall("error: .*", result.stderr)) == 1
    assert os.listdir(folder) == ["log.json"]
