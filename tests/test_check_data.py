"""check-data as a user calls it: what it prints, writes and returns; and `run` with the same sources."""

import json
import os
import subprocess
import sys
from datetime import date
from decimal import Decimal

import pytest
from conftest import REPO, SHARED, cli, environment

from grpo_workbook.__main__ import main
from grpo_workbook.data import KNOWLEDGE_BASE, WORD_PROBLEMS
from grpo_workbook.errors import cells
from grpo_workbook.problems import load

GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"
ROWS = [
    {"frage": f"What is {i} plus {i * i}?", "antwort": str(i + i * i), "level": i % 3}
    for i in range(70)
]
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
    result = cli(
        "check-data", *files, cwd=tmp_path
    )  # a path is printed as it was given, so long ones stay outside
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in (
        "2,400 valid",
        "0 also",
        "tokens",
        "median 56",
        "####",
        "160 tokens",
        "diversity",
        "Nothing here",
    ):
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
    "nothing fits": (
        ["messy.jsonl", *COLUMNS, "--max-prompt-length", "3", "--output", "o.jsonl"],
        "o.jsonl is not",
    ),
    "format": (["messy.jsonl", *COLUMNS, "--output", "o.txt"], "name it .jsonl or .parquet"),
    "its own source": (
        ["messy.jsonl", *COLUMNS, "--output", "messy.jsonl"],
        "is the source and --output at once",
    ),
    "the held-out source": (
        ["messy.jsonl", "--heldout-data", "./messy.jsonl", "--json", "messy.jsonl"],
        "at once",
    ),
    "one file for both": (
        ["messy.jsonl", "--output", "o.jsonl", "--json", "../{0}/o.jsonl"],
        "--output and --json",
    ),
    "no folder": (["messy.jsonl", *COLUMNS, "--json", "nowhere/r.json"], "a folder that exists"),
    "heldout": (["messy.jsonl", *COLUMNS, "--heldout-data", "none.csv"], "none.csv does not exist"),
    "model": (["messy.jsonl", *COLUMNS, "--model", "mistral"], "unknown model 'mistral'"),
    "tokenizer": (
        ["messy.jsonl", *COLUMNS, "--model", "unsloth/Qwen3-none"],
        "the tokenizer of 'unsloth/Qwen3-none'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_2_and_nothing_is_written(messy, name, monkeypatch, capsys):
    arguments, message = BAD[name]
    arguments = [a.format(messy.parent.name) for a in arguments]
    before = messy.read_bytes()
    monkeypatch.chdir(messy.parent)
    assert main(["check-data", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [p.name for p in messy.parent.iterdir()] == ["messy.jsonl"]
    assert messy.read_bytes() == before


def test_the_held_out_file_is_never_written_over(messy, tmp_path, capsys):
    """By any of its names: as it is, by a link, and from the home folder."""
    held = tmp_path / "held.jsonl"
    held.write_bytes(WORD_PROBLEMS["heldout"].read_bytes())
    (tmp_path / "link.jsonl").symlink_to(held)
    (tmp_path / "hard.jsonl").hardlink_to(held)
    before = held.read_bytes()
    for name in ("held.jsonl", "link.jsonl", "hard.jsonl"):
        for option in ("--output", "--json"):
            arguments = [
                str(messy),
                *COLUMNS,
                "--heldout-data",
                str(held),
                option,
                str(tmp_path / name),
            ]
            assert main(["check-data", *arguments]) == 2
            assert f"is --heldout-data and {option} at once" in capsys.readouterr().err
    assert held.read_bytes() == before


def test_the_home_folder_also_where_no_shell_has_read_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        main(
            [
                "check-data",
                str(WORD_PROBLEMS["heldout"]),
                "--json=~/r.json",
                "--output=~/rows.jsonl",
            ]
        )
        == 0
    )
    assert json.loads((tmp_path / "r.json").read_text())["rows"] == 480
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 480


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch, capsys):
    (tmp_path / "r.json").write_text("old")
    tmp_path.chmod(0o500)
    source = str(WORD_PROBLEMS["heldout"])
    try:
        if not os.access(tmp_path, os.W_OK):  # root may write everywhere
            assert main(["check-data", source, "--json", str(tmp_path / "r.json")]) == 2
            assert "r.json cannot be written (Permission denied)" in capsys.readouterr().err
    finally:
        tmp_path.chmod(0o700)
    assert main(["check-data", source, "--json", "/dev/full"]) == 2
    assert "/dev/full cannot be written (No space left on device)" in capsys.readouterr().err
    assert (tmp_path / "r.json").read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize(
    "extra",
    [{"x": float("nan")}, {"x": b"\xff"}, {"x": Decimal("1.5")}, {"x": [float("inf")]}],
    ids=lambda e: str(e["x"]),
)
def test_what_json_cannot_say_is_not_written_as_json(extra, tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"question": r["frage"], "answer": r["antwort"], "day": date(2026, 1, 2)} | extra
        for r in ROWS
    ]
    source, out = tmp_path / "a.parquet", tmp_path / "o.parquet"
    pq.write_table(pa.Table.from_pylist(rows), source)
    assert main(["check-data", str(source), "--output", str(tmp_path / "o.jsonl")]) == 2
    assert "a row cannot be JSON" in (said := capsys.readouterr().err)
    assert "name the output .parquet" in said
    assert not (tmp_path / "o.jsonl").exists()
    assert main(["check-data", str(source), "--output", str(out)]) == 0
    assert repr(load(out).dataset[0]["x"]) == repr(extra["x"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.parquet", "o.parquet"]


def test_a_full_disk_is_bad_input_and_no_traceback(tmp_path):
    """With a limit of 100 KiB on each file that the process writes."""
    path = tmp_path / "big.jsonl"
    path.write_text(
        "".join(json.dumps({"question": f"{i} " * 200, "answer": "1"}) + "\n" for i in range(2000))
    )
    command = f"ulimit -f 100; exec {sys.executable} -m grpo_workbook check-data {path}"
    result = subprocess.run(
        ["bash", "-c", command], cwd=REPO, env=environment(), capture_output=True, text=True
    )
    assert result.returncode == 2, result.stderr
    assert "cannot hold the table (File too large)" in result.stderr
    assert "Traceback" not in result.stderr


def test_no_text_of_a_data_file_reaches_the_terminal_raw(tmp_path, capsys):
    """Clearing the screen, ringing the bell, and lines of Chinese that take two columns a character."""
    rows = [
        {"question": f"\x1b[2J{i} plus {i}", "answer": "\x1b[31mX\x07", "\x1b[0m": 1}
        for i in range(100)
    ]
    wide = [
        {"question": f"漢字{i} 番 " + "漢字" * 40, "answer": "漢字" * 40, "列": 1}
        for i in range(100)
    ]
    for name, data in {"esc.jsonl": rows, "漢字" * 20 + ".jsonl": wide}.items():
        path = tmp_path / name
        path.write_text(
            "".join(
                json.dumps(r, ensure_ascii=False) + "\n" for r in [*data, {"question": "漢 " * 60}]
            )
        )
        assert main(["check-data", str(path), "--answers", "text"]) == 1
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert "\x07" not in said
        assert max(map(cells, said.splitlines())) <= 80
    assert "漢字" in said
    assert main(["check-data", str(tmp_path / "\x1b[2J.jsonl")]) == 2
    assert r"\x1b[2J.jsonl does not exist" in capsys.readouterr().err


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


def test_a_knowledge_base_is_checked_as_text(capsys):
    """What `run` would refuse is not called well, unless texts are what was asked for."""
    arguments = ["check-data", str(KNOWLEDGE_BASE), "--answer-column", "expert_answer"]
    assert main(arguments) == 1
    assert (
        "HURTS: answers are texts, and the default rewards of `run` need numbers"
        in capsys.readouterr().out
    )
    assert main([*arguments, "--answers", "text"]) == 0
    assert "note: answers are texts" in capsys.readouterr().out


def test_gsm8k_is_reported_in_one_go(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    result = cli("check-data", GSM8K, "--max-prompt-length", "1024")
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


def test_run_learns_from_answers_that_are_no_numbers(tmp_path):
    """Roots and fractions, judged as mathematics; rewards that compare numbers still refuse them."""
    rows = [
        {"question": f"What is the root of {i} over 2?", "answer": rf"\frac{{\sqrt{{{i}}}}}{{2}}"}
        for i in range(80)
    ]
    path = tmp_path / "latex.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = cli("run", "--data", path, "--output", tmp_path / "out")
    assert result.returncode == 2
    assert "no number in the answer" in result.stderr
    short = ("--rewards", "symbolic,incremental_format", "--steps", "1", "--heldout", "8")
    result = cli("run", "--data", path, *short, "--output", tmp_path / "out", OMP_NUM_THREADS="1")
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["heldout"]["n"] == 8
    assert report["heldout"]["before"]["strict_greedy"] == 0
    assert report["examples"][0]["answer"].startswith(r"\frac")
