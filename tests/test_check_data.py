"""check-data as a user calls it: what it prints, writes and returns; and `run` with the same sources."""

import json

import pytest
from conftest import SHARED, cli

from grpo_workbook.__main__ import main
from grpo_workbook.data import KNOWLEDGE_BASE, WORD_PROBLEMS
from grpo_workbook.problems import load

GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"
ROWS = [{"frage": f"What is {i} plus {i * i}?", "antwort": str(i + i * i), "level": i % 3} for i in range(70)]
COLUMNS = ("--question-column", "frage", "--answer-column", "antwort")


@pytest.fixture
def messy(tmp_path):
    """70 good rows in columns of another language, one bad one, one of 1 MB."""
    bad = [{"frage": "x", "antwort": "lots"}, {"frage": "word " * 200_000, "antwort": "1"}]
    path = tmp_path / "messy.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in [*ROWS, *bad]), encoding="utf-8")
    return path


def test_good_data_is_0_and_fits_80_columns(tmp_path):
    files = (WORD_PROBLEMS["train"], "--heldout-data", WORD_PROBLEMS["heldout"], "--json", "r.json")
    result = cli("check-data", *files, cwd=tmp_path)  # a path is printed as it was given, so long ones stay outside
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in ("2,400 valid", "0 also", "tokens", "median 56", "####", "160 tokens", "diversity", "Nothing here"):
        assert word in result.stdout
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["well"] is True
    assert report["heldout"]["rows"] == 480


def test_harm_is_1_and_the_cleaned_file_is_good(messy, tmp_path):
    before = messy.read_bytes()
    result = cli("check-data", messy, *COLUMNS)
    assert result.returncode == 1, result.stderr
    assert "messy.jsonl, line 71: no number in the answer 'lots'" in " ".join(result.stdout.split())
    assert "HURTS: 1 of 72 rows are invalid" in result.stdout
    assert "71 valid" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    for name in ("clean.jsonl", "clean.parquet"):
        result = cli("check-data", messy, *COLUMNS, "--skip-invalid", "--output", tmp_path / name)
        assert result.returncode == 0, result.stdout + result.stderr
        assert "70 prompts fit, 1 would be dropped" in result.stdout
        clean = load(tmp_path / name).dataset
        assert clean["question"][:] == [r["frage"] for r in ROWS]
        assert clean["level"][:] == [r["level"] for r in ROWS]
        assert clean.column_names == ["question", "answer", "solution", "level"]
    assert messy.read_bytes() == before


BAD = {
    "missing": (["none.jsonl"], "none.jsonl does not exist"),
    "header": (["messy.jsonl"], "--question-column 'frage'"),
    "nothing fits": (["messy.jsonl", *COLUMNS, "--max-prompt-tokens", "3", "--output", "o.jsonl"], "o.jsonl is not"),
    "format": (["messy.jsonl", *COLUMNS, "--output", "o.txt"], "name it .jsonl or .parquet"),
    "its own source": (["messy.jsonl", *COLUMNS, "--output", "messy.jsonl"], "is the source"),
    "no folder": (["messy.jsonl", *COLUMNS, "--json", "nowhere/r.json"], "a folder that exists"),
    "heldout": (["messy.jsonl", *COLUMNS, "--heldout-data", "none.csv"], "none.csv does not exist"),
    "model": (["messy.jsonl", *COLUMNS, "--model", "mistral"], "unknown model 'mistral'"),
    "tokenizer": (["messy.jsonl", *COLUMNS, "--model", "unsloth/Qwen3-none"], "the tokenizer of 'unsloth/Qwen3-none'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_2_and_nothing_is_written(messy, name, monkeypatch, capsys):
    arguments, message = BAD[name]
    before = messy.read_bytes()
    monkeypatch.chdir(messy.parent)
    assert main(["check-data", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in messy.parent.iterdir()] == ["messy.jsonl"]
    assert messy.read_bytes() == before


def test_a_cleaned_file_keeps_the_whole_answers(tmp_path, capsys):
    out = tmp_path / "clean.jsonl"
    assert main(["check-data", str(WORD_PROBLEMS["heldout"]), "--output", str(out)]) == 0
    assert out.read_text(encoding="utf-8") == WORD_PROBLEMS["heldout"].read_text(encoding="utf-8")


def test_help_has_examples_and_exit_statuses():
    result = cli("check-data", "--help")
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in ("examples:", "exit status:", "--skip-invalid", "--heldout-data", "reasoning-gym:"):
        assert word in result.stdout


def test_a_knowledge_base_is_checked_as_text():
    result = cli("check-data", KNOWLEDGE_BASE, "--answer-column", "expert_answer")
    assert result.returncode == 0, result.stderr
    assert "note: answers are texts" in result.stdout


def test_gsm8k_is_reported_in_one_go(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    result = cli("check-data", GSM8K, "--max-prompt-tokens", "1024")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "7,473 valid" in result.stdout


def test_run_takes_the_same_sources_and_options(messy, tmp_path):
    result = cli("run", "--data", messy, *COLUMNS, "--output", tmp_path / "out")
    assert result.returncode == 2
    assert "line 71" in result.stderr
    assert not (tmp_path / "out").exists()
    short = ("--steps", "1", "--heldout", "8", "--output", tmp_path / "out")
    result = cli("run", "--data", messy, *COLUMNS, "--skip-invalid", *short, OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr[-3000:]
    data = json.loads((tmp_path / "out" / "report.json").read_text())["data"]
    assert data["train"] + data["heldout"] == 70
    assert data["dropped_too_long_train"] + data["dropped_too_long_heldout"] == 1
