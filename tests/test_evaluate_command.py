"""The command evaluate as a user calls it: the files, a kill, a baseline, bad input; and power."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas
import pytest
from conftest import REPO, environment, report_of, slow

from grpo_workbook.cli import main
from grpo_workbook.cli.evaluate import compare, numbers
from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import score
from grpo_workbook.rewards.answers import is_correct, is_well_formed, lenient_answer, tagged_answer

HELDOUT, TRAIN = (str(WORD_PROBLEMS[split]) for split in ("heldout", "train"))
FILES = ["completions.jsonl", "report.json", "report.md", "results.jsonl"]
GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
LOOSE, BAD = "The answer is 42.", "<reasoning>\n6*7=41\n</reasoning>\n<answer>41</answer>"
OPTIONS = ["--samples", "4", "--items", "60", "--batch-size", "40", "--max-new-tokens", "64"]


def run(folder, *options, data=HELDOUT, model="qwen"):
    return main(["evaluate", model, "--data", data, "--output", str(folder), *map(str, options)])


@pytest.fixture(scope="module")
@slow
def sampled(tmp_path_factory):
    """The folder of 60 problems with 4 samples each."""
    folder = tmp_path_factory.mktemp("evaluation") / "sampled"
    assert run(folder, *OPTIONS) == 0
    return folder


@pytest.mark.slow
def test_everything_is_written_and_agrees(sampled):
    assert sorted(p.name for p in sampled.iterdir()) == FILES
    report = report_of(sampled)
    records = list(map(json.loads, (sampled / "results.jsonl").open(encoding="utf-8")))
    assert len(records) == 240
    assert {(r["problem"], r["sample"]) for r in records} == {
        (i, s) for i in range(60) for s in range(4)
    }
    for measure, read in (("strict", tagged_answer), ("lenient", lenient_answer)):
        formed = [r for r in records if measure == "lenient" or is_well_formed(r["completions"])]
        right = sum(is_correct(read(r["completions"]), r["answer"]) for r in formed) / 240
        assert report[measure]["rate"] == pytest.approx(right, abs=1e-4)
        assert report[measure]["low"] < right < report[measure]["high"]
    assert report["pass_at_k"]["1"]["rate"] == report["lenient"]["rate"]
    passed = [report["pass_at_k"][k]["rate"] for k in ("1", "2", "4")]
    assert passed[0] < passed[1] < passed[2]
    assert report["data_sha256"]
    assert report["model_hash"]
    text = (sampled / "report.md").read_text(encoding="utf-8")
    for words in (
        "60 problems",
        "4 samples each",
        "| pass@4, lenient |",
    ):
        assert words in text


def test_the_same_command_again_only_reports_again(sampled):
    before = {name: (sampled / name).read_bytes() for name in FILES}
    assert run(sampled, *OPTIONS) == 0
    assert {name: (sampled / name).read_bytes() for name in FILES} == before


def test_overwriting_removes_its_own_files_only(sampled, tmp_path):
    folder = tmp_path / "mine"
    shutil.copytree(sampled, folder)
    (folder / "thesis.txt").write_text("years of work")
    assert run(folder, "--items", 8, "--overwrite") == 0
    assert sorted(p.name for p in folder.iterdir()) == [*FILES, "thesis.txt"]
    assert report_of(folder)["n"] == 8


@pytest.mark.slow
def test_answers_that_are_texts_are_judged(tmp_path):
    """The symbolic judge: 42 is no text of the reference and the same number."""
    data = tmp_path / "texts.jsonl"
    rows = [
        {"question": f"What is 40+{i}?", "answer": rf"\\frac{{{2 * (40 + i)}}}{{2}}"}
        for i in (1, 2)
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(tmp_path / "x", "--answers", "text", data=str(data)) == 0
    assert report_of(tmp_path / "x")["n"] == 2


def test_other_settings_do_not_mix(sampled, capsys):
    before = (sampled / "completions.jsonl").read_bytes()
    assert run(sampled, *OPTIONS, "--seed", 1, "--temperature", 0.5) == 2
    assert "different: temperature, seed" in capsys.readouterr().err
    assert run(sampled, *OPTIONS, data=TRAIN) == 2
    assert "different: prompts" in capsys.readouterr().err
    assert (sampled / "completions.jsonl").read_bytes() == before


@pytest.mark.slow
def test_a_baseline_is_compared_on_the_same_problems(sampled, tmp_path, capsys):
    assert run(tmp_path / "b", *OPTIONS, "--seed", 2, "--baseline", sampled) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines()[:20])) <= 80
    report, old = report_of(tmp_path / "b"), report_of(sampled)
    assert report["baseline"]["strict"] == old["strict"]
    found = report["baseline"]["comparison"]["strict"]
    assert found["difference"] == pytest.approx(
        report["strict"]["rate"] - old["strict"]["rate"], abs=2e-4
    )
    assert found["low"] <= found["difference"] <= found["high"]
    assert all(line in " ".join(said.split()) for line in report["baseline"]["verdict"])
    for name in ("report.json", "results.jsonl"):
        unfinished = tmp_path / f"without-{name}"
        shutil.copytree(sampled, unfinished)
        (unfinished / name).unlink()
        assert run(tmp_path / "c", "--baseline", unfinished) == 2
        assert "is not finished: run its command" in capsys.readouterr().err
    assert run(tmp_path / "d", "--items", 8, "--baseline", sampled) == 2
    assert "answered other problems" in capsys.readouterr().err


def started(*options):
    command = [sys.executable, "-m", "grpo_workbook", "evaluate", "qwen", "--data", HELDOUT]
    how = {"cwd": REPO, "env": environment(), "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*command, "--batch-size", "4", *map(str, options)], **how)


def wait_for(process, path, lines):
    while process.poll() is None and not (
        path.exists() and path.read_bytes().count(b"\n") >= lines
    ):
        time.sleep(0.01)
    assert process.poll() is None, "it ended before it could be stopped"


@pytest.mark.slow
def test_a_kill_in_the_middle_loses_and_repeats_nothing(tmp_path):
    """SIGKILL, then a torn line; what comes out is what an evaluation that went through writes."""
    options = ("--items", 32, "--samples", 2, "--max-new-tokens", 32)
    process = started(*options, "--output", tmp_path / "killed")
    path = tmp_path / "killed" / "completions.jsonl"
    wait_for(process, path, 16)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "killed" / "report.json").exists()
    kept = path.read_bytes()
    path.write_bytes(kept + b'{"index": 12, "text": "torn')
    for name in ("killed", "whole"):
        assert run(tmp_path / name, "--batch-size", 4, *options) == 0
    assert path.read_bytes().startswith(kept)
    for name in ("completions.jsonl", "results.jsonl", "report.json"):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.slow
def test_an_interrupt_says_how_to_go_on(tmp_path):
    process = started("--output", tmp_path / "x")
    wait_for(process, tmp_path / "x" / "completions.jsonl", 2)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130
    assert "The same command continues from here." in said


def test_before_and_after_training(main_runs, tmp_path):
    """The adapter of a real run against its base."""
    folder, _ = main_runs("qwen")
    options = ("--items", 100, "--max-new-tokens", 64)
    assert run(tmp_path / "before", *options, model="qwen") == 0
    more = ("--adapter", folder / "adapter", "--baseline", tmp_path / "before")
    assert run(tmp_path / "after", *options, *more, model="qwen") == 0
    report = report_of(tmp_path / "after")
    found = report["baseline"]["comparison"]["strict"]
    assert found["difference"] > 0.3
    assert found["p_value"] < 1e-6
    assert report["baseline"]["verdict"][0].startswith("strict rose from")
    assert report["adapter_hash"] != report["baseline"]["adapter_hash"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], "unknown model 'nowhere'"),
        (["qwen", "--data", "no.jsonl"], "no.jsonl"),
        (["qwen", "--adapter", str(REPO / "data" / "tiny-qwen3")], "is not an adapter"),
        (["qwen", "--samples", "0"], "--samples is 0"),
        (["qwen", "--samples", "4", "--temperature", "0"], "several --samples need more"),
        (["qwen", "--temperature", "-1"], "--temperature is -1.0"),
        (["qwen", "--temperature", "nan"], "--temperature is nan"),
        (["qwen", "--items", "0"], "--items is 0"),
        (["qwen", "--baseline", str(REPO / "tests")], "is not finished"),
        (["qwen", "--baseline", "none"], "the baseline none is not there"),
        (["qwen", "--output", "full"], "full holds other files"),
    ],
)
def test_bad_input_is_named_with_its_fix(arguments, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    more = [] if "--data" in arguments else ["--data", HELDOUT]
    more += [] if "--output" in arguments else ["--output", str(tmp_path / "out")]
    assert main(["evaluate", *arguments, *more]) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "report.json").exists()


# ------------------------------------------------------- on completions whose worth is known


def table_of(*samples, **columns):
    """The table of a list of texts for each problem; 42 is right."""
    texts = [text for one in samples for text in one]
    found = score(texts, ["42"] * len(texts))
    problems = [(i, s) for i, one in enumerate(samples) for s in range(len(one))]
    rows = {
        "problem": [i for i, _ in problems],
        "sample": [s for _, s in problems],
        "question": [f"Problem {'long ' * (i % 3)}{i}?" for i, _ in problems],
        "answer": "42",
        "completions": texts,
        "tokens": [len(t) // 4 for t in texts],
        "ended": True,
    }
    rows |= {name: [values[i] for i, _ in problems] for name, values in columns.items()}
    return pandas.DataFrame(
        rows | {m: getattr(found, m) for m in ("strict", "lenient", "well_formed")}
    )


def compared(before, after, **more):
    how = {
        "samples": 1,
        "sample": False,
        "temperature": 1.0,
        "max_new_tokens": 64,
        "dtype": "float32",
    }
    how |= {
        "system_prompt": "",
        "data_sha256": "1",
        "model": "m",
        "adapter": None,
        "adapter_hash": None,
    }
    new = {**how, "notes": [], **numbers(after), **more}
    return compare({**how, **numbers(before)}, before, new, after), new


def test_better_and_worse_are_counted_and_tested():
    before = table_of(*[[LOOSE]] * 30, [GOOD], [GOOD], [BAD])
    after = table_of(*[[GOOD]] * 30, [BAD], [GOOD], [BAD])
    found, _ = compared(before, after)
    strict, lenient = (found["comparison"][name] for name in ("strict", "lenient"))
    assert (strict["better"], strict["worse"]) == (30, 1)
    assert (lenient["better"], lenient["worse"]) == (0, 1)
    assert strict["p_value"] == pytest.approx(2 * 32 / 2**31)
    assert strict["difference"] == pytest.approx(29 / 33, abs=1e-4)
    said = "strict rose from 6.1% to 93.9% (p = 3e-08); 30 got better, 1 worse"
    assert found["verdict"][0] == said


def test_chance_is_called_chance_and_other_settings_are_noted():
    before, after = table_of([GOOD], [BAD], [GOOD]), table_of([GOOD], [GOOD], [GOOD])
    found, new = compared(before, after, temperature=0.5)
    assert "which may be chance (p = 1)" in found["verdict"][0]
    assert new["notes"] == ["the baseline has other settings: temperature"]
    with pytest.raises(WorkbookError, match="answered other problems"):
        compared(before, after, data_sha256="2")


def test_several_samples_by_hand():
    """Two problems, four samples: 2 and 1 strictly right; leniently 3 and 1."""
    found = numbers(table_of([GOOD, GOOD, LOOSE, BAD], [GOOD, BAD, BAD, "no idea"]))
    assert found["strict"]["rate"] == pytest.approx(3 / 8)
    assert found["lenient"]["rate"] == pytest.approx(4 / 8)
    assert found["pass_at_k"][2]["rate"] == pytest.approx((1 + 1 / 2) / 2, abs=1e-4)
    assert list(found["pass_at_k"]) == [1, 2, 4]


def test_power_answers_before_the_run(capsys):
    assert main(["power", "--before", "0.6", "--gain", "0.05"]) == 0
    said = capsys.readouterr().out
    assert "60.0% to 65.0%" in said
    assert "562 problems" in said
    assert main(["power", "--before", "0.6", "--items", "480"]) == 0
    assert "480 problems" in capsys.readouterr().out
    for option, value, words in (
        ("--gain", "0.5", "after is 1.1"),
        ("--items", "0", "--items is 0"),
        ("--gain", "0", "--gain is 0.0"),
    ):
        assert main(["power", "--before", "0.6", option, value]) == 2
        assert words in capsys.readouterr().err
