"""Damaged files, link loops, texts without an encoding, huge sizes: one line, and status 2."""

import json
import shutil
import subprocess
import sys

import pytest
from conftest import REPO, assert_names, environment

from grpo_workbook import data
from grpo_workbook.cli import main

TINY = REPO / "data" / "tiny-qwen3"
HELDOUT = str(data.WORD_PROBLEMS["heldout"])
NOISE = b"\xff" * 7 + b"\x7f garbage"  # a header that would have 2^63 bytes


def refused(capsys, *arguments) -> str:
    """The message of a command, which must end with status 2."""
    assert main([str(word) for word in arguments]) == 2
    message = capsys.readouterr().err
    assert sum(line.startswith("error: ") for line in message.splitlines()) == 1
    return message


@pytest.fixture
def model(tmp_path):
    """A copy of the tiny model, to be damaged."""
    return shutil.copytree(TINY, tmp_path / "model")


@pytest.fixture
def adapter(tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    get_peft_model(base, LoraConfig(r=2)).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def evaluate(tmp_path, model, *more):
    more = (*more, "--items", 2, "--max-new-tokens", 4, "--output", tmp_path / "out")
    return "evaluate", model, *(more if "--data" in more else ("--data", HELDOUT, *more))


@pytest.mark.parametrize("noise", [NOISE, b"", b"{}"], ids=["header", "empty", "short"])
@pytest.mark.slow
def test_damaged_weights(model, tmp_path, capsys, noise):
    (model / "model.safetensors").write_bytes(noise)
    assert_names(refused(capsys, *evaluate(tmp_path, model)), model)


def test_a_damaged_adapter(adapter, tmp_path, capsys):
    (adapter / "adapter_model.safetensors").write_bytes(NOISE)
    for call in (
        evaluate(tmp_path, "qwen", "--adapter", adapter),
        ("merge", adapter, "--base", TINY, "--output", tmp_path / "merged"),
    ):
        assert_names(refused(capsys, *call), adapter)


@pytest.mark.parametrize("value", ["big", None, [1]])
def test_a_config_with_a_wrong_type(model, tmp_path, capsys, value):
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"hidden_size": value}))
    assert_names(refused(capsys, *evaluate(tmp_path, model)), model)


def test_a_figure_with_another_suffix(tmp_path, capsys):
    log = [{"step": i, "reward": 0.1 * i} for i in range(1, 5)]
    (tmp_path / "log.json").write_text(json.dumps(log))
    message = refused(capsys, "diagnose", tmp_path / "log.json", "--figure", tmp_path / "x.xyz")
    assert "x.xyz" in "".join(message.split())  # wrapped, a long path anywhere
    assert ".png" in message


def test_a_prompt_that_is_no_text(tmp_path, capsys):
    rows = [{"question": f"What is {i} + 1?", "answer": f"{i + 1}"} for i in range(5)]
    text = "".join(json.dumps(row) + "\n" for row in [*rows, rows[0] | {"question": "bad \ud800"}])
    (tmp_path / "rows.jsonl").write_text(text)
    assert_names(refused(capsys, "check-data", tmp_path / "rows.jsonl"), "rows.jsonl")


def test_a_parquet_file_without_rows(tmp_path, capsys):
    from datasets import Dataset

    Dataset.from_dict({"question": [], "answer": []}).to_parquet(tmp_path / "none.parquet")
    assert_names(refused(capsys, "check-data", tmp_path / "none.parquet"), "none.parquet")


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_table_in_another_encoding(tmp_path, capsys, encoding):
    text = "question,answer\n" + "How much?,1\n" * 9 + "Größe?,1\n"
    (tmp_path / "old.csv").write_bytes(text.encode(encoding))
    message = refused(capsys, "check-data", tmp_path / "old.csv")
    bad_line = "Größe?" if encoding == "latin-1" else "q\\x00u\\x00e"
    assert_names(message, "old.csv", bad_line, "UTF-8")


# ------------------------------------------------------------------ standard streams


def shell(command: str, **env: str) -> subprocess.CompletedProcess:
    command = command.replace("PYTHON", f"{sys.executable} -W default")
    how = {"capture_output": True, "cwd": REPO, "env": environment(**env)}
    return subprocess.run(["sh", "-c", command], **how)


def test_a_record_of_a_run_that_is_no_object(tmp_path, capsys):
    (tmp_path / "log.json").write_text(json.dumps([{"step": i, "reward": 0} for i in range(40)]))
    (tmp_path / "run.json").write_text("[1]")
    again = ("--resume", "--output_dir", tmp_path, "--max_steps", "1")
    for command in (("diagnose", tmp_path / "log.json"), ("run", *again)):
        message = "".join(refused(capsys, *command).split())  # a long path is wrapped anywhere
        assert_names(message, "run.json", "list")


def test_an_umlaut_where_the_terminal_knows_none(tmp_path):
    (tmp_path / "größe.json").write_text(json.dumps([{"step": i, "reward": 0} for i in range(40)]))
    command = f"PYTHON -m grpo_workbook diagnose {tmp_path}/größe.json"
    done = shell(command, LC_ALL="C", PYTHONIOENCODING="ascii")
    assert done.returncode == 1  # a constant reward
    assert b"gr\\xf6\\xdfe" in done.stdout
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "--help",
        "--help | true",
        pytest.param(f"check-data {HELDOUT}", marks=pytest.mark.slow),
        pytest.param(f"check-data {HELDOUT} | true", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_leaves_and_a_closed_input_are_no_errors(command):
    said = shell(f"PYTHON -m grpo_workbook {command} <&-").stderr.decode()
    assert "Traceback" not in said
    assert "Warning" not in said
    assert "Exception ignored" not in said
