"""check-data as a user calls it: what it counts, calls harmful, prints, writes and returns."""

import json

import pytest
from conftest import SHARED, assert_names, cli
from rich.cells import cell_len

from grpo_workbook.cli import main
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt
from grpo_workbook.data.reading import KNOWLEDGE_BASE

GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"
ROWS = [
    {"frage": f"What is {i} plus {i * i}?", "antwort": str(i + i * i), "level": i % 3}
    for i in range(70)
]
COLUMNS = ("--question-column", "frage", "--answer-column", "antwort")


def write(path, rows):
    path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in rows), "utf-8")
    return path


def plain(count=100):
    return [
        {"question": f"What is {i} plus {i * i}?", "answer": str(i + i * i)} for i in range(count)
    ]


@pytest.fixture
def report_on(tmp_path, capsys):
    """The report on rows, as JSON, what was printed, and the exit status."""

    def report(rows, heldout=None, *options):
        arguments = [
            "check-data",
            write(tmp_path / "rows.jsonl", rows),
            "--json",
            tmp_path / "r.json",
        ]
        if heldout:
            arguments += ["--heldout-data", write(tmp_path / "held.jsonl", heldout)]
        status = main([str(a) for a in (*arguments, *options)])
        said = capsys.readouterr().out
        found = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
        assert (status == 0) is (found["hurts"] == [])
        return found, " ".join(said.split()), status

    return report


@pytest.fixture
def messy(tmp_path):
    """70 good rows in columns of another language, one bad one, one of 1 MB."""
    bad = [{"frage": "x", "antwort": "lots"}, {"frage": "word " * 200_000, "antwort": "1"}]
    return write(tmp_path / "messy.jsonl", [*ROWS, *bad])


@pytest.mark.slow
def test_good_data_is_0_and_fits_80_columns(tmp_path):
    files = (WORD_PROBLEMS["train"], "--heldout-data", WORD_PROBLEMS["heldout"], "--json", "r.json")
    result = cli("check-data", *files, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in ("rows 2,400", "invalid 0", "median prompt 56", "160", "Nothing here"):
        assert word in " ".join(result.stdout.split())
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["rows"], report["invalid"], report["answers"]) == (2400, [], "number")
    assert report["near"] == report["heldout_also_in_training"] == []
    assert report["heldout_rows"] == 480


def test_each_harm_is_named(report_on):
    good = plain()
    assert report_on(good)[0]["hurts"] == []
    cases = {  # what is counted -> rows, held-out rows
        "1 rows": ([*good, {"question": "q", "answer": "lots"}], None),
        "1 held-out": (good, [good[7]]),
        "1 questions": ([*good, good[3] | {"answer": "0"}], None),
        "10 rows": (good + good[:10], None),
        "63 rows": (plain(63), None),
    }
    for harm, (rows, heldout) in cases.items():
        report, printed, status = report_on(rows, heldout)
        assert status == 1
        assert len(report["hurts"]) == 1, report["hurts"]
        assert_names(report["hurts"][0], harm)
        assert_names(printed, harm)
    report, _, status = report_on([*good, {"question": "q", "answer": ""}], None, "--skip-invalid")
    assert (status, report["rows"]) == (0, 101)
    (invalid,) = report["invalid"]
    assert_names(invalid, "row 101", "'answer'", "''")


def test_near_leaks_are_counted_apart_and_named_by_their_rows(report_on):
    train = [
        {
            "question": f"{name} had {i} red shells, sold {i + 1} in May. How many are left?",
            "answer": "1",
        }
        for i, name in enumerate(["Ana", "Ben"] * 50)
    ]
    held = [{"question": train[9]["question"].replace("Ben", "Mia"), "answer": "1"}]
    train[3] = {"question": "bad", "answer": None}  # rows count as they stand in the file
    report, said, _ = report_on(train, held)
    assert report["heldout_also_in_training"] == []
    assert report["heldout_nearly_in_training"] == ["held.jsonl, row 1 ~ rows.jsonl, row 10"]
    assert "held.jsonl, row 1 ~ rows.jsonl, row 10" in said


def test_prompts_over_the_budget_hurt(report_on, tiny):
    long = plain(80) + [{"question": "word " * 300 + str(i), "answer": "1"} for i in range(30)]
    report, said, _ = report_on(long, long[-1:], "--max-prompt-length", "160")
    assert report["too_long"] == 30
    assert_names(said, "30 of 110 prompts", "160 tokens", "1 held-out prompts")
    for family in ("qwen", "gemma"):
        _, tokenizer = tiny[family]
        prompts = [chat_prompt(row["question"]) for row in plain(80)]
        lengths = sorted(
            len(tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"])
            for prompt in prompts
        )
        found = report_on(plain(80), None, "--model", family)[0]
        assert (found["median_prompt"], found["longest_prompt"]) == (lengths[39], lengths[-1])


@pytest.mark.slow
def test_harm_is_1_and_the_source_stays_as_it_is(messy, capsys):
    before = messy.read_bytes()
    assert main(["check-data", str(messy), *COLUMNS]) == 1
    said = capsys.readouterr().out
    assert_names(said, "row 71", "'antwort'", "'lots'")
    assert max(map(len, said.splitlines())) <= 80
    assert main(["check-data", str(messy), *COLUMNS, "--skip-invalid"]) == 0
    assert "too long 1 " in " ".join(capsys.readouterr().out.split())
    assert messy.read_bytes() == before


BAD = {
    "missing": (["none.jsonl"], "none.jsonl"),
    "header": (["messy.jsonl"], "--question-column"),
    "no folder": (["messy.jsonl", *COLUMNS, "--json", "nowhere/r.json"], "nowhere/r.json"),
    "heldout": (["messy.jsonl", *COLUMNS, "--heldout-data", "none.csv"], "none.csv"),
    "model": (["messy.jsonl", *COLUMNS, "--model", "mistral"], "'mistral'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_2_and_nothing_is_written(messy, name, monkeypatch, capsys):
    arguments, named = BAD[name]
    before = messy.read_bytes()
    monkeypatch.chdir(messy.parent)
    assert main(["check-data", *arguments]) == 2
    assert_names(capsys.readouterr().err, named)
    assert [p.name for p in messy.parent.iterdir()] == ["messy.jsonl"]
    assert messy.read_bytes() == before


def test_a_report_that_cannot_be_written_leaves_the_old_one(capsys):
    assert main(["check-data", str(WORD_PROBLEMS["heldout"]), "--json", "/dev/full"]) == 2
    assert_names(capsys.readouterr().err, "/dev/full", "No space left on device")


def test_no_text_of_a_data_file_reaches_the_terminal_raw(tmp_path, capsys):
    """Clearing the screen, ringing the bell, and Chinese, which takes two columns a character."""
    rows = [{"question": f"\x1b[2J{i} plus {i}", "answer": "\x1b[31mX\x07"} for i in range(100)]
    wide = [{"question": f"漢字{i} 番 " + "漢字" * 40, "answer": "漢字" * 40} for i in range(100)]
    for name, data in {"esc.jsonl": rows, "漢字" * 20 + ".jsonl": wide}.items():
        path = write(tmp_path / name, [*data, {"question": "漢 " * 60, "answer": None}])
        assert main(["check-data", str(path), "--answers", "text"]) == 1
        said = capsys.readouterr().out
        assert "\x1b" not in said
        assert "\x07" not in said
        assert max(map(cell_len, said.splitlines())) <= 80
    assert "漢字" in said
    assert main(["check-data", str(tmp_path / "\x1b[2J.jsonl")]) == 2
    assert_names(capsys.readouterr().err, r"\x1b[2J.jsonl")


def test_help_has_examples_and_exit_statuses_and_costs_nothing():
    result = cli("check-data", "--help")
    assert result.returncode == 0
    assert max(map(len, result.stdout.splitlines())) <= 80
    for word in ("Exit status 0", "--skip-invalid", "--heldout-data"):
        assert word in result.stdout


def test_a_knowledge_base_is_checked_as_text(capsys):
    """What `run` would refuse is not called well, unless texts are what was asked for."""
    arguments = ["check-data", str(KNOWLEDGE_BASE), "--answer-column", "expert_answer"]
    assert main(arguments) == 1
    assert_names(capsys.readouterr().out, "HURTS", "texts")
    assert main([*arguments, "--answers", "text"]) == 0


@pytest.mark.slow
def test_gsm8k_is_as_it_is_known(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    result = cli("check-data", GSM8K, "--max-prompt-length", "1024", "--json", tmp_path / "r.json")
    assert result.returncode == 0, result.stdout + result.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert (report["rows"], report["invalid"], report["same_question"]) == (7473, [], [])
    assert len(report["near"]) == 1


@pytest.mark.trains
def test_run_takes_the_same_sources_and_options(messy, tmp_path):
    result = cli("run", "--data", messy, *COLUMNS, "--output_dir", tmp_path / "out")
    assert result.returncode == 2
    assert "row 71" in result.stderr
    assert not (tmp_path / "out").exists()
    short = ("--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8")
    command = ("run", "--data", messy, *COLUMNS, "--skip-invalid", *short)
    result = cli(*command, "--output_dir", tmp_path / "out")
    assert result.returncode == 0, result.stderr[-3000:]
    data = json.loads((tmp_path / "out" / "report.json").read_text())["data"]
    assert data["train"] + data["heldout"] == 70
    assert data["dropped_too_long_train"] + data["dropped_too_long_heldout"] == 1


@pytest.mark.trains
def test_run_learns_from_answers_that_are_no_numbers(tmp_path):
    """Roots and fractions, judged as mathematics; rewards that compare numbers refuse them."""
    rows = [
        {"question": f"What is the root of {i} over 2?", "answer": rf"\frac{{\sqrt{{{i}}}}}{{2}}"}
        for i in range(80)
    ]
    path = write(tmp_path / "latex.jsonl", rows)
    result = cli("run", "--data", path, "--output_dir", tmp_path / "out")
    assert result.returncode == 2
    assert_names(result.stderr, "row 1", "'answer'")
    rewards = ("--rewards", "symbolic,incremental_format")
    short = ("--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8")
    result = cli("run", "--data", path, *rewards, *short, "--output_dir", tmp_path / "out")
    assert result.returncode == 0, result.stderr[-3000:]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["heldout"]["greedy"]["n"] == 8
    assert report["heldout"]["greedy"]["strict"]["before"] == 0


def test_answers_that_cannot_be_compared_are_named_by_their_rows(report_on):
    rows = [row | {"answer": f"{row['answer']}x"} for row in plain()]
    rows[7]["answer"] = "12:00"
    rows[9]["answer"] = "<answer>2</answer> or <answer>3</answer>"
    report, printed, status = report_on(rows, None, "--answers", "text")
    assert status == 1
    first, second = report["not_comparable"]
    assert_names(first, "row 8", "12:00")
    assert_names(second, "row 10", "<answer>2</answer>")
    assert_names(printed, "row 8", "row 10")
