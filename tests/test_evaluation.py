"""python -m grpo_workbook evaluate as a user calls it: the files, a kill in the middle, a baseline, bad input."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPO, cli, environment, report_of

from grpo_workbook.__main__ import main
from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.evaluation_run import batches

HELDOUT, TRAIN = (str(WORD_PROBLEMS[split]) for split in ("heldout", "train"))
FILES = [
    "changes.jsonl",
    "completions.jsonl",
    "identity.json",
    "report.json",
    "report.md",
    "report.png",
    "report.txt",
]


def lines_of(folder):
    return [
        json.loads(line)
        for line in (folder / "completions.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def widest(text):
    """The longest line but for the one that names the folder."""
    return max(len(line) for line in text.splitlines() if not line.startswith("In /"))


def ids(records):
    return [(r["set"], r["key"], r["sample"]) for r in records]


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """(folder, process) of 60 problems with 4 samples each, and 20 of another set."""
    folder = tmp_path_factory.mktemp("evaluation") / "sampled"
    options = (
        "--samples",
        4,
        "--items",
        60,
        "--also",
        TRAIN,
        "--batch-size",
        40,
        "--output",
        folder,
    )
    return folder, cli("evaluate", "qwen", "--data", HELDOUT, *options)


def test_everything_is_written_and_said(sampled):
    folder, result = sampled
    assert result.returncode == 0, result.stderr
    assert sorted(p.name for p in folder.iterdir()) == FILES
    assert widest(result.stdout) <= 80
    assert "60 held-out problems, 4 samples each" in result.stdout
    assert "480/480" in result.stderr
    text = (folder / "report.md").read_text()
    for words in (
        "## Held-out problems",
        "## Another skill",
        "| 4 |",
        "| length |",
        "lm-evaluation-harness",
    ):
        assert words in text
    assert (folder / "report.png").read_bytes().startswith(b"\x89PNG")
    assert len((folder / "report.txt").read_text()) > 100


def test_every_completion_is_there_once_with_its_question(sampled):
    records = lines_of(sampled[0])
    assert len(records) == len(set(ids(records))) == 60 * 4 * 2
    assert all(
        r["question"] and r["answer"] and r["completion"] and 0 < r["tokens"] <= 64 for r in records
    )
    assert len({r["completion"] for r in records}) > 100


def test_the_numbers_agree_with_each_other_and_with_the_completions(sampled):
    from grpo_workbook.answers import is_leniently_right, is_strictly_right

    main = report_of(sampled[0])["sets"]["main"]
    records = [r for r in lines_of(sampled[0]) if r["set"] == "main"]
    for measure, judge in (("strict", is_strictly_right), ("lenient", is_leniently_right)):
        right = sum(judge(r["completion"], r["answer"]) for r in records) / len(records)
        assert main[measure]["share"] == pytest.approx(right, abs=1e-4)
        assert main[measure]["low"] < right < main[measure]["high"]
        first = (
            main["pass_at_k"]["1"][measure]["share"],
            main["majority_at_k"]["1"][measure]["share"],
        )
        assert first == pytest.approx((right, right), abs=1e-4)
        passes = [main["pass_at_k"][k][measure]["share"] for k in ("1", "2", "4")]
        assert passes == sorted(passes)
        assert passes[2] > passes[0]
        assert main["majority_at_k"]["4"][measure]["share"] < passes[2]
    assert main["tokens"]["low"] < main["tokens"]["mean"] < main["tokens"]["high"]
    for found in main["by"].values():
        assert sum(group["n"] for group in found) == 60
    assert {"length", "steps"} <= set(main["by"])


def test_the_same_command_again_only_reports_again(sampled):
    folder, _ = sampled
    before, made = (
        (folder / "completions.jsonl").read_bytes(),
        (folder / "report.json").read_bytes(),
    )
    options = (
        "--samples",
        4,
        "--items",
        60,
        "--also",
        TRAIN,
        "--batch-size",
        40,
        "--output",
        folder,
    )
    result = cli("evaluate", "qwen", "--data", HELDOUT, *options)
    assert result.returncode == 0
    assert "answering" not in result.stderr
    assert (folder / "completions.jsonl").read_bytes() == before
    assert (folder / "report.json").read_bytes() == made


def test_other_settings_do_not_mix(sampled):
    folder, _ = sampled
    options = (
        "--samples",
        4,
        "--items",
        60,
        "--also",
        TRAIN,
        "--batch-size",
        40,
        "--output",
        folder,
    )
    result = cli("evaluate", "qwen", "--data", HELDOUT, *options, "--seed", 1, "--temperature", 0.5)
    assert result.returncode == 2
    assert "not the same: temperature, seed" in result.stderr
    assert "--overwrite" in result.stderr
    assert sorted(p.name for p in folder.iterdir()) == FILES


def test_a_kill_in_the_middle_loses_and_repeats_nothing(tmp_path):
    """SIGKILL twice, once with a line torn; what comes out is what a run that went through writes."""
    options = [
        "evaluate",
        "qwen",
        "--data",
        HELDOUT,
        "--items",
        "64",
        "--samples",
        "2",
        "--batch-size",
        "4",
    ]
    whole = tmp_path / "whole"
    assert cli(*options, "--output", whole).returncode == 0

    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "grpo_workbook", *options, "--output", str(folder)]
    kept = 0
    for round_ in range(2):
        process = subprocess.Popen(command, cwd=REPO, env=environment(), stderr=subprocess.DEVNULL)
        path, wanted = folder / "completions.jsonl", kept + 24
        while process.poll() is None and not (
            path.exists() and path.read_bytes().count(b"\n") >= wanted
        ):
            time.sleep(0.01)
        assert process.poll() is None, "it ended before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kept = path.read_bytes().count(b"\n")
        assert wanted <= kept < 128
        if round_ == 0:
            with path.open("ab") as file:
                file.write(b'{"set": "main", "key": "torn')
        assert not (folder / "report.json").exists()
    result = cli(*options, "--output", folder)
    assert result.returncode == 0, result.stderr
    assert f"Going on: {kept} of 128 completions are there" in result.stdout
    assert ids(lines_of(folder)) == ids(lines_of(whole))
    assert lines_of(folder) == lines_of(whole)
    assert report_of(folder)["sets"] == report_of(whole)["sets"]


def test_an_interrupt_says_how_to_go_on(tmp_path):
    options = [
        "evaluate",
        "qwen",
        "--data",
        HELDOUT,
        "--batch-size",
        "4",
        "--output",
        str(tmp_path / "x"),
    ]
    command = [sys.executable, "-m", "grpo_workbook", *options]
    process = subprocess.Popen(
        command, cwd=REPO, env=environment(), stderr=subprocess.PIPE, text=True
    )
    path = tmp_path / "x" / "completions.jsonl"
    while process.poll() is None and not path.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 130
    assert "The same command goes on from what is there." in said


@pytest.mark.long
def test_before_and_after_training(main_runs, tmp_path):
    """The adapter of a real run against its base: what got better and worse, and the other set beside it."""
    run, _ = main_runs("gemma")
    options = ("--items", 100, "--also", TRAIN)
    before = cli("evaluate", "gemma", "--data", HELDOUT, *options, "--output", tmp_path / "before")
    assert before.returncode == 0, before.stderr
    arguments = (
        "gemma",
        "--adapter",
        run / "adapter",
        "--data",
        HELDOUT,
        *options,
        "--output",
        tmp_path / "after",
    )
    after = cli("evaluate", *arguments, "--baseline", tmp_path / "before" / "report.json")
    assert after.returncode == 0, after.stderr
    assert widest(after.stdout) <= 80
    report = report_of(tmp_path / "after")
    found = report["baseline"]["comparison"]["main"]["strict"]
    assert (found["before"], found["after"]) == (
        report_of(tmp_path / "before")["sets"]["main"]["strict"]["share"],
        report["sets"]["main"]["strict"]["share"],
    )
    assert found["after"] > found["before"] + 0.3
    assert found["low"] < found["difference"] < found["high"]
    assert found["p_value"] < 1e-6
    assert any(line.startswith("strict rose from") for line in report["verdict"])
    assert any("other skill" in line for line in report["verdict"])
    changes = [
        json.loads(line) for line in (tmp_path / "after" / "changes.jsonl").read_text().splitlines()
    ]
    main = [c for c in changes if c["set"] == "main"]
    assert sum(c["change"] == "better" for c in main) == found["better"]
    assert sum(c["change"] == "worse" for c in main) == found["worse"]
    assert "## Got better" in (tmp_path / "after" / "report.md").read_text()
    assert "names another base" not in after.stdout

    other = cli("evaluate", "gemma", "--data", TRAIN, "--items", 8, "--output", tmp_path / "other", "--baseline",
                tmp_path / "before")  # fmt: skip
    assert other.returncode == 2
    assert "answered none of these problems" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere", "--data", HELDOUT], "unknown model 'nowhere'"),
        (["qwen", "--data", "no.jsonl"], "no.jsonl"),
        (
            ["qwen", "--data", HELDOUT, "--adapter", str(REPO / "data" / "tiny-qwen3")],
            "holds no adapter",
        ),
        (["qwen", "--data", HELDOUT, "--samples", "0"], "--samples is 0"),
        (
            ["qwen", "--data", HELDOUT, "--samples", "4", "--temperature", "0"],
            "--temperature above 0",
        ),
        (["qwen", "--data", HELDOUT, "--temperature", "-1"], "--temperature is -1.0"),
        (["qwen", "--data", HELDOUT, "--temperature", "nan"], "--temperature is nan"),
        (["qwen", "--data", HELDOUT, "--top-p", "0"], "--top-p is 0.0"),
        (
            ["qwen", "--data", HELDOUT, "--samples", "4", "--k", "1,8"],
            "each k must lie from 1 to --samples",
        ),
        (["qwen", "--data", HELDOUT, "--k", "one"], "--k is 'one'"),
        (["qwen", "--data", HELDOUT, "--items", "0"], "--items is 0"),
        (
            ["qwen", "--data", HELDOUT, "--max-new-tokens", "2000"],
            "more than the 1024 that the model takes",
        ),
        (["qwen", "--data", HELDOUT, "--baseline", str(REPO / "tests")], "is no evaluation"),
        (["qwen", "--data", HELDOUT, "--also", str(REPO / "data" / "README.md")], "README.md"),
        (["qwen"], "--data"),
    ],
)
def test_bad_input_is_named_with_its_mend(arguments, words, tmp_path, capsys):
    try:
        status = main(["evaluate", *arguments, "--output", str(tmp_path / "out")])
    except SystemExit as stopped:  # what argparse finds itself
        status = stopped.code
    assert status == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "report.json").exists()


def test_an_unfinished_baseline_is_refused(sampled, tmp_path, capsys):
    import shutil

    folder = tmp_path / "cut"
    shutil.copytree(sampled[0], folder)
    lines = (folder / "completions.jsonl").read_text().splitlines(keepends=True)
    (folder / "completions.jsonl").write_text("".join(lines[:-1]))
    arguments = [
        "evaluate",
        "qwen",
        "--data",
        HELDOUT,
        "--baseline",
        str(folder),
        "--output",
        str(tmp_path / "x"),
    ]
    assert main(arguments) == 2
    assert (
        "is unfinished (479 of 480 completions): run its command again" in capsys.readouterr().err
    )


def test_a_baseline_is_not_its_own_output(sampled, capsys):
    folder = str(sampled[0])
    arguments = [
        "evaluate",
        "qwen",
        "--data",
        HELDOUT,
        "--output",
        folder,
        "--baseline",
        f"{folder}/report.json",
    ]
    assert main(arguments) == 2
    assert "is the --output itself" in capsys.readouterr().err


def test_batches_hold_every_completion_once_and_like_lengths_together():
    texts = ["a" * n for n in (5, 1, 9, 1, 7)]
    found = batches(texts, samples=3, batch_size=4)
    assert sorted(u for batch in found for u in batch) == [
        (i, s) for i in range(5) for s in range(3)
    ]
    assert [len(texts[i]) for batch in found for i, _ in batch] == sorted(
        len(t) for t in texts for _ in range(3)
    )
    assert max(map(len, found)) == 4


def test_power_answers_before_the_run(capsys):
    assert main(["power", "--before", "0.6", "--gain", "0.05"]) == 0
    assert "60.0% to 65.0%" in capsys.readouterr().out
    assert main(["power", "--before", "0.6", "--items", "480"]) == 0
    assert "480 problems" in capsys.readouterr().out
    for option, value in (("--gain", "0.5"), ("--items", "0")):
        assert main(["power", "--before", "0.6", option, value]) == 2
        assert option in capsys.readouterr().err
