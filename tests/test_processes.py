"""Several processes for real: gloo on the CPU, started by torchrun and by accelerate, killed and hung."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter

import psutil
import pytest
from conftest import REPO, cli, environment, report_of

from grpo_workbook.errors import WorkbookError
from grpo_workbook.processes import from_env

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2")
TEST = REPO / "tests"


def launch(*command, timeout=580, **env):
    return subprocess.run(
        [*map(str, command)],
        cwd=REPO,
        env=environment(PYTHONPATH=str(REPO), TRL_EXPERIMENTAL_SILENCE="1", **env),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


# ------------------------------------------------------------------ how many were started


def test_one_process_alone_needs_no_group(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)
    alone = from_env()
    assert (alone.index, alone.count, alone.main) == (0, 1, True)
    assert alone.gather(3) == [3]
    assert alone.once(lambda: 4) == alone.first(lambda: 4) == 4
    assert alone.any(True) is True
    with pytest.raises(
        WorkbookError, match="1 process started and 2 expected: start with `torchrun"
    ):
        from_env(2)
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(WorkbookError, match="WORLD_SIZE is 'two'"):
        from_env()
    for count, index in (("0", "0"), ("2", "2"), ("2", "-1")):
        monkeypatch.setenv("WORLD_SIZE", count)
        monkeypatch.setenv("RANK", index)
        with pytest.raises(WorkbookError, match="RANK from 0 to WORLD_SIZE - 1"):
            from_env()


@pytest.mark.parametrize("how", ["--cpu", "MULTI_CPU"])
def test_a_launcher_that_quietly_starts_one_process_is_caught(how, tmp_path):
    config = tmp_path / "multi_cpu.yaml"
    text = (REPO / "configs" / "cpu_two_processes.yaml").read_text()
    config.write_text(text.replace("distributed_type: MULTI_GPU", "distributed_type: MULTI_CPU"))
    options = ["--cpu", "--num_processes", "2"] if how == "--cpu" else ["--config_file", config]
    command = (
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        *options,
        "-m",
        "grpo_workbook",
        "train",
    )
    result = launch(*command, "--output", tmp_path / "out")
    assert result.returncode != 0
    assert "asked for several processes and started one" in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["cpu_two_processes", "data_parallel", "fsdp", "deepspeed_zero3"])
def test_accelerate_reads_the_launch_files(name):
    from accelerate.commands.config.config_args import load_config_from_file

    config = load_config_from_file(str(REPO / "configs" / f"{name}.yaml"))  # an unknown key raises
    assert config.num_processes == 2
    kind = {"fsdp": "FSDP", "deepspeed_zero3": "DEEPSPEED"}.get(name, "MULTI_GPU")
    assert config.distributed_type == kind
    if name == "fsdp":
        assert config.fsdp_config["fsdp_version"] == 2
    if name == "deepspeed_zero3":
        assert config.deepspeed_config["zero_stage"] == 3


def test_divided_weights_need_the_plain_backend(tmp_path):
    result = cli("train", "--output", tmp_path / "out", ACCELERATE_USE_FSDP="true")
    assert result.returncode == 2
    assert "which Unsloth does not do: add --backend plain" in result.stderr
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ two processes, no model


def test_what_one_does_all_know():
    result = launch(*TORCHRUN, TEST / "gloo_pieces.py", "pieces")
    assert result.returncode == 0, result.stderr[-3000:]
    found = [
        json.loads(line) for line in result.stderr.splitlines() if line.startswith('{"gathered"')
    ]
    assert len(found) == 2
    for one in found:
        assert one["gathered"] == [[0, "", None], [1, "é", None]]
        assert one["once"] == {"by": "0"}
        assert one["any"] == [False, True]
        assert one["error"][1] == "the file 'x' is missing"
    assert sorted((o["worked"], o["worked in the end"], o["error"][0]) for o in found) == [
        (0, 1, "AlreadySaid"),
        (1, 2, "WorkbookError"),
    ]
    assert result.stdout.count("said by the main one") == 1


def test_a_process_that_hangs_ends_the_job_with_a_message():
    result = launch(*TORCHRUN, TEST / "gloo_pieces.py", "hang", timeout=60)
    assert result.returncode != 0
    assert (
        "process 0 of 2 cannot go on: another process is gone, or was silent for 5 s"
        in result.stderr
    )
    assert "checkpoint-25; the same command with --resume goes on from there" in result.stderr


# ------------------------------------------------------------------ two processes and one are the same


@pytest.fixture(scope="module")
def fixed(tmp_path_factory):
    """name -> folder of a training on given completions in one process and in two."""
    found = {}
    for name, launcher in (("one", (sys.executable,)), ("two", TORCHRUN)):
        folder = found[name] = tmp_path_factory.mktemp(name)
        result = launch(*launcher, TEST / "fixed_completions.py", folder)
        assert result.returncode == 0, result.stderr[-3000:]
    return found


@pytest.mark.long
def test_the_same_completions_give_the_same_advantages_and_the_same_adapter(fixed):
    import torch
    from safetensors.torch import load_file

    one, two = (
        json.loads((fixed[name] / "advantages.json").read_text()) for name in ("one", "two")
    )
    assert (one["processes"], two["processes"]) == (1, 2)
    assert len(one["steps"]) == 4
    for a, b in zip(one["steps"], two["steps"], strict=True):
        assert a[0] == b[0]  # the completions, in the order of the global batch
        assert a[1] == b[1]  # the advantages, bit for bit
        assert len(a[1]) == 32
        assert len(set(a[1])) > 4
    assert one["drawn"] == two["drawn"]  # measuring is shared, and draws what one process draws
    assert len(set(one["drawn"])) > 20
    first, second = (
        load_file(fixed[name] / "adapter" / "adapter_model.safetensors") for name in ("one", "two")
    )
    assert first.keys() == second.keys()
    before, after = (
        torch.cat([w[k].float().flatten() for k in sorted(w) if "lora_B" in k])
        for w in (first, second)
    )
    assert before.abs().max() > 1e-3  # they begin at 0
    # Two halves are added up in another order. Adam divides by the gradient's size, so a weight whose gradient is
    # almost 0 may go another way: a few single weights differ, the adapter as a whole does not.
    assert (before - after).norm() / before.norm() < 0.01
    everything = torch.cat([(first[k].float() - second[k].float()).abs().flatten() for k in first])
    assert (everything > 1e-4).float().mean() < 0.002


# ------------------------------------------------------------------ the whole command in two processes


@pytest.mark.long
def test_accelerate_starts_two_that_learn_and_write_once(tmp_path):
    folder = tmp_path / "run"
    launcher = (
        sys.executable,
        "-m",
        "accelerate.commands.launch",
        "--config_file",
        "configs/cpu_two_processes.yaml",
    )
    options = ("--steps", "50", "--heldout", "160", "--eval-batch", "40", "--expect-processes", "2")
    result = launch(*launcher, "-m", "grpo_workbook", "train", *options, "--output", folder)
    assert result.returncode == 0, result.stderr[-3000:]
    report, log = report_of(folder), json.loads((folder / "log.json").read_text())
    assert report["processes"] == 2
    assert report["heldout"]["before"]["strict_sampled"] <= 0.35
    assert report["heldout"]["after"]["strict_sampled"] >= 0.80
    assert report["heldout"]["p_value"] < 1e-6
    assert [entry["step"] for entry in log] == list(range(1, 51))
    assert report["completions"]["total"] == 50 * 64
    for words in (
        "Before training:",
        "Loading the model",
        "Five held-out questions",
        "strict, sampled",
    ):
        assert result.stdout.count(words) == 1
    assert result.stderr.count("training: 100%") <= 3  # one bar, drawn anew
    assert "checkpoint-50" in [p.name for p in (folder / "checkpoints").glob("checkpoint-*")]
    assert not list(folder.rglob("*.new"))
    kept = json.loads((folder / "before.json").read_text())
    assert all(len(texts) == 160 and all(texts) for texts in kept.values())


@pytest.mark.long
def test_a_killed_process_ends_the_job_and_its_checkpoint_goes_on(tmp_path):
    from safetensors.torch import load_file

    from grpo_workbook.resume.checkpoints import last_checkpoint

    folder, said = tmp_path / "run", tmp_path / "said.txt"
    options = (
        "--steps",
        "24",
        "--heldout",
        "8",
        "--batch-size",
        "16",
        "--save_steps",
        "2",
        "--output",
        folder,
    )
    with said.open("w") as out:
        process = subprocess.Popen(
            [*map(str, (*TORCHRUN, "-m", "grpo_workbook", "train", *options))],
            cwd=REPO,
            env=environment(),
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 300
        while last_checkpoint(folder / "checkpoints") is None:
            assert process.poll() is None, said.read_text()[-3000:]
            assert time.monotonic() < deadline, said.read_text()[-3000:]
            time.sleep(0.2)
        workers = {
            int(p.environ()["RANK"]): p
            for p in psutil.Process(process.pid).children()
            if "RANK" in p.environ()
        }
        assert workers.keys() == {0, 1}
        family = [
            *workers.values(),
            *(c for p in workers.values() for c in p.children(recursive=True)),
        ]
        os.kill(workers[1].pid, signal.SIGKILL)
        process.wait(timeout=60)  # the promise
    finally:
        process.kill()
        process.wait()
    words = said.read_text()
    assert process.returncode != 0
    assert "process 0 of 2 cannot go on" in words
    assert re.search(
        r"The last checkpoint is \S+checkpoint-\d+; the same command with --resume", words
    )
    assert re.search(
        r"rank\s*: 1 .*\n\s*exitcode\s*: -9", words
    )  # torchrun's report names the one that was killed
    psutil.wait_procs(family, timeout=10)
    assert not [p for p in family if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    kept = last_checkpoint(folder / "checkpoints")
    assert f"{kept.rsplit('/', 1)[1]};" in words
    assert load_file(f"{kept}/adapter_model.safetensors")
    assert not (folder / "report.json").exists()

    again = launch(*TORCHRUN, "-m", "grpo_workbook", "train", *options, "--resume")
    assert again.returncode == 0, again.stderr[-3000:]
    assert again.stdout.count(f"Continuing from {kept.rsplit('/', 1)[1]}") == 1
    assert [entry["step"] for entry in json.loads((folder / "log.json").read_text())] == list(
        range(1, 25)
    )
    assert report_of(folder)["resumed_from_step"] == int(kept.rsplit("-", 1)[1])


def test_bad_input_is_said_once_although_two_meet_it(tmp_path):
    options = ("--data", tmp_path / "none.jsonl", "--output", tmp_path / "out")
    result = launch(*TORCHRUN, "-m", "grpo_workbook", "train", *options)
    assert result.returncode != 0
    assert Counter(re.findall(r"error: .*does not exist", result.stderr)).total() == 1, (
        result.stderr
    )
    assert not (tmp_path / "out").exists()
