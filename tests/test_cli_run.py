"""The main run as a user calls it: what it must show, bad input, Ctrl-C, real data."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
import torch
from conftest import REPO, SHARED, assert_names, cli, environment, raises_naming, report_of
from safetensors.torch import load_file

from grpo_workbook import compat
from grpo_workbook.cli import main
from grpo_workbook.cli.options import RunOptions
from grpo_workbook.cli.run import own_folder
from grpo_workbook.config import find_device
from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.errors import WorkbookError

FAMILIES = ("qwen", pytest.param("gemma", marks=pytest.mark.extra))
GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"
# Few problems and small steps: most of a short run's time is its start, about 15 s.
FEW = ("--heldout", "12", "--per_device_train_batch_size", "16")
SHORT = ("--max-steps", "24", *FEW)
TIMES = ("train_seconds", "total_seconds", "peak_rss_mb")


def run(*arguments, folder, **env):
    """A run that must end well: its report."""
    result = cli("run", *arguments, "--output_dir", folder, **env)
    assert result.returncode == 0, result.stderr[-3000:]
    return report_of(folder)


# ------------------------------------------------------------------ what the main run must show


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_measurably_learns(main_runs, family):
    report = report_of(main_runs(family)[0])
    rare = report["subset"]
    sampled, greedy = rare["sampled"]["strict"], rare["greedy"]["strict"]
    assert rare["sampled"]["n"] >= 240
    assert greedy["before"] <= 0.45
    assert greedy["after"] >= 0.75
    assert sampled["before"] <= 0.40
    assert sampled["after"] >= 0.65
    for change in (sampled, greedy):
        assert change["p_value"] < 1e-6
        assert change["after_interval"][0] > change["before_interval"][1]
    # Not only sharpening: problems are solved that the base does not solve in 16 tries.
    assert rare["sampled"]["lenient_pass"]["gain"] >= 0.15
    held = report["heldout"]  # of all kinds
    assert held["sampled"]["n"] >= 400
    for way in ("sampled", "greedy"):
        assert held[way]["strict"]["gain"] > 0
        assert held[way]["strict"]["p_value"] < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_training_really_happened_in_4bit(main_runs, family):
    folder, _ = main_runs(family)
    report, log = report_of(folder), json.loads((folder / "log.json").read_text())
    assert [e["step"] for e in log] == list(range(1, report["steps"] + 1))
    assert all(e["step_time"] > 0 for e in log)
    assert any(e["grad_norm"] > 0 for e in log[:10])
    assert report["load_in_4bit"] is True
    assert report["linear4bit_layers"] == 4 * 7  # layers x projections
    assert report["lora_parameters"] > 50_000
    assert report["completions"]["total"] == report["steps"] * 80
    rewards = report["rewards"]
    assert rewards["reward"]["last_tenth"] > rewards["reward"]["first_tenth"] + 0.3
    names = ("correctness_reward", "strict_format_reward", "incremental_format_reward")
    assert set(rewards) == {"reward", *names}
    adapter = load_file(folder / "adapter" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapter.values()} == {torch.float32}  # as it was trained


@pytest.mark.parametrize("family", FAMILIES)
def test_report_is_complete(main_runs, family):
    report = report_of(main_runs(family)[0])
    assert set(report) >= {*TIMES, "profile", "device", "seed", "data_sha256", "completions"}
    assert report["versions"]["trl"] == version("trl")
    assert report["family"] == family
    assert report["model"].startswith("data/tiny-")
    assert report["peak_rss_mb"] < 3000
    assert set(report["heldout"]) == {"sampled", "greedy"}
    for comparison in report["heldout"].values():
        assert {"strict", "lenient", "well_formed"} <= set(comparison)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_merge_is_proved_and_the_card_written(main_runs, family):
    folder, _ = main_runs(family)
    report = report_of(folder)
    merge, greedy = report["merge"], report["heldout"]["greedy"]["strict"]
    assert 0 < merge["max_abs_logit_difference"] < 0.5  # 0: a model compared with itself
    assert merge["same_greedy_tokens"] >= 0.99
    assert merge["heldout"]["strict"]["after"] >= greedy["after"] - 0.03
    for kind in ("adapter", "merged"):
        card = (folder / kind / "README.md").read_text()
        assert "Work inside <reasoning> tags" in card
        assert "strict sampled" in card


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_printed(main_runs, family):
    folder, out = main_runs(family)
    rows = ["strict sampled", "strict greedy", "lenient sampled", "well formed sampled"]
    words = (
        "Strict accuracy (sampled) changed by",
        "95 % intervals",
        "Five held-out questions",
        "report.json",
        "adapter",
    )
    for word in (*rows, *words, "the same greedy token at"):
        assert word in out
    ours = out[out.index("Before and after") :]  # before it, Unsloth speaks too
    assert max(map(len, ours.splitlines())) <= 120
    assert len(report_of(folder)["examples"]) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_figures_have_their_words_beside_and_inside(main_runs, family):
    from PIL import Image

    folder = main_runs(family)[0] / "figures"
    for name in ("rewards", "before_after"):
        words = (folder / f"{name}.txt").read_text().strip()
        image = Image.open(folder / f"{name}.png")
        assert image.text["Description"] == words
        assert min(image.size) > 300


@pytest.mark.extra
def test_4bit_learns_as_16bit_does(main_runs, tmp_path):
    """Stock 4-bit on a CPU learns wrongly without a word: training here must not."""
    sixteen = run("--no-load-in-4bit", folder=tmp_path)
    four = report_of(main_runs("qwen")[0])
    assert (four["linear4bit_layers"] > 0, sixteen["linear4bit_layers"]) == (True, 0)
    for decoding, difference in (("greedy", 0.05), ("sampled", 0.07)):
        after_four = four["heldout"][decoding]["strict"]["after"]
        after_sixteen = sixteen["heldout"][decoding]["strict"]["after"]
        assert after_four >= after_sixteen - difference


@pytest.mark.trains
def test_the_same_seed_gives_the_same_report(tmp_path):
    options = ("--max-steps", "6", "--seed", "3", *FEW)
    first = run(*options, folder=tmp_path / "a")
    second = run(*options, folder=tmp_path / "b")
    assert {name for name in first if first[name] != second[name]} <= set(TIMES)
    weights = "adapter/adapter_model.safetensors"
    assert (tmp_path / "a" / weights).read_bytes() == (tmp_path / "b" / weights).read_bytes()


@pytest.mark.extra
def test_real_gsm8k_is_reported_honestly(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    report = run("--data", GSM8K, "--max-steps", "30", "--heldout", "120", folder=tmp_path)
    dropped = sum(report["data"][f"dropped_too_long_{part}"] for part in ("train", "heldout"))
    assert dropped > 1000
    assert sum(report["data"][k] for k in ("train", "heldout", "dropped_leaked")) + dropped == 7473
    rewards = report["rewards"]["strict_format_reward"]
    assert rewards["last_tenth"] > rewards["first_tenth"] + 0.1
    assert report["verdict"][0].startswith("strict accuracy")
    assert "may be chance" in report["verdict"][0]
    assert "well-formed answers rose" in report["verdict"][2]


# ------------------------------------------------------------------ bad input


def _write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


GOOD = '{"question": "q", "answer": "#### 5"}\n'
ROWS = GOOD.replace('"q"', '"q %d"') * 8 % (*range(8),)
BAD_INPUT = {
    "no such file": (lambda t: ["--data", t / "none.jsonl"], "none.jsonl"),
    "not json": (lambda t: ["--data", _write(t / "j.jsonl", GOOD + "{nope")], "j.jsonl"),
    "too few left": (lambda t: ["--data", _write(t / "l.jsonl", ROWS)], "7 training problems"),
    "too few rows": (lambda t: ["--data", _write(t / "f.jsonl", GOOD)], "1 row"),
    "seed": (lambda t: ["--seed", "-1"], "seed is -1"),
    "groups": (lambda t: ["--per_device_train_batch_size", "20"], "num_generations"),
    "too long": (lambda t: ["--max-prompt-length", "3"], "3 tokens"),
    "hub": (lambda t: ["--model", "unsloth/Qwen3-none"], "'unsloth/Qwen3-none'"),
    "a file": (lambda t: ["--output_dir", _write(t / "file", "")], "--output_dir"),
    "in a file": (lambda t: ["--output_dir", _write(t / "file", "") / "run"], "file"),
    "backend": (lambda t: ["--backend", "jax"], "'jax'"),
    "log": (lambda t: ["--logging_steps=10", "--max-steps=5"], "logging_steps is 10"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named_and_nothing_is_written(tmp_path, capsys, name):
    arguments, named = BAD_INPUT[name]
    command = ["run", "--output_dir", tmp_path / "out", *arguments(tmp_path)]
    assert main([str(word) for word in command]) == 2
    assert_names(capsys.readouterr().err, "error: ", named)
    assert not (tmp_path / "out").exists()


def test_plain_backend_says_why_not(tmp_path, capsys):
    if compat.why_not_plain(find_device()[0]) is None:
        pytest.skip("the plain backend can train here")
    assert main(["run", "--backend", "plain", "--output_dir", str(tmp_path / "out")]) == 2
    assert "Triton" in capsys.readouterr().err


def test_processes_are_connected_before_trl_chooses_a_device(monkeypatch, capsys):
    """A GRPOConfig that is made before gives each process on a CPU a device of its own."""
    from grpo_workbook.cli import options
    from grpo_workbook.cli import run as the_run

    events = []

    @contextlib.contextmanager
    def connect(device):
        events.append(device)
        yield

    def load(request):
        events.append("loaded")
        raise WorkbookError("far enough")

    monkeypatch.setattr(the_run, "together", connect)
    monkeypatch.setattr(options, "load", load)
    assert main(["run"]) == 2
    assert events == ["cpu", "loaded"]


def test_a_folder_with_another_run_is_left_alone(main_runs, capsys):
    folder, _ = main_runs("qwen")
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    assert main(["run", "--output_dir", str(folder)]) == 2
    assert_names(capsys.readouterr().err, folder, "--resume", "--overwrite")
    assert main(["run", "--output_dir", str(folder), "--resume", "--seed", "9"]) == 2
    assert_names(capsys.readouterr().err, folder, "seed", "--overwrite")
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


@pytest.mark.slow
def test_a_package_that_is_missing_is_named_with_the_fix(tmp_path):
    """A stand-in earlier on the path says what Python says when Unsloth was never installed."""
    error = "raise ModuleNotFoundError(\"No module named 'unsloth'\", name='unsloth')"
    _write(tmp_path / "unsloth.py", error)
    result = cli("run", "--output_dir", tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert_names(result.stderr, "error: ", "unsloth", "make setup")
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------ interrupted


@pytest.mark.trains
def test_a_pulled_plug_while_merging_and_a_run_that_is_replaced(tmp_path):
    folder, options = tmp_path / "run", ("--max-steps", "2", *FEW)
    weights = folder / "adapter" / "adapter_model.safetensors"
    first = run(*options, "--model", "data/tiny-qwen3", folder=folder)
    trained = weights.read_bytes()
    (folder / "report.json").unlink()
    shutil.rmtree(folder / "merged")
    (folder / "notes.txt").write_text("mine")
    second = run(*options, "--model", REPO / "data" / "tiny-qwen3", "--resume", folder=folder)
    assert {k for k in first if first[k] != second[k]} <= {*TIMES, "resumed_from_step"}
    assert second["resumed_from_step"] == 2
    assert weights.read_bytes() == trained

    rewards = ("--seed", "1", "--rewards", "strict_format:1,overlong=60:0.5")
    third = run(*options, *rewards, "--overwrite", folder=folder)
    assert third["seed"] == 1
    assert third["reward_weights"] == {"strict_format_reward": 1.0, "overlong_reward": 0.5}
    entry = json.loads((folder / "log.json").read_text())[-1]
    means = [entry[f"rewards/{name}/mean"] for name in third["reward_weights"]]
    assert entry["reward"] == pytest.approx(means[0] + 0.5 * means[1], abs=1e-5)
    assert weights.read_bytes() != trained
    assert (folder / "notes.txt").read_text() == "mine"


@pytest.mark.trains
def test_a_subset_of_the_heldout_problems_is_measured_apart(tmp_path, capsys):
    """Also by a run that is resumed: it scores the answers before training that are on the disk."""
    rows = [json.loads(line) for line in WORD_PROBLEMS["heldout"].open(encoding="utf-8")][:20]
    for number, row in enumerate(rows):
        row["hard"] = number % 4 == 0
    held = tmp_path / "held.jsonl"
    held.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder = tmp_path / "run"
    sizes = ["--max-steps", "1", "--per_device_train_batch_size", "8"]
    subset = ["--subset", "hard", "--subset_samples", "4", "--heldout_samples", "2"]
    command = ["run", *sizes, *subset, "--heldout_data", str(held), "--output_dir", str(folder)]
    assert main(command) == 0
    report = report_of(folder)
    measured = {
        (name, way): (comparison["n"], comparison["samples"])
        for name in ("heldout", "subset")
        for way, comparison in report[name].items()
    }
    assert measured == {
        ("heldout", "sampled"): (20, 2),
        ("heldout", "greedy"): (20, 1),
        ("subset", "sampled"): (5, 4),
        ("subset", "greedy"): (5, 1),
    }
    out = capsys.readouterr().out
    assert "The problems in which hard is true" in out
    assert "| lenient pass@4 sampled |" in out
    assert "solved before in some of 3 tries" in out
    assert (folder / "figures" / "before_after_subset.png").is_file()

    assert main([*command, "--resume"]) == 0
    again = report_of(folder)
    assert (again["heldout"], again["subset"]) == (report["heldout"], report["subset"])


@pytest.mark.trains
def test_a_bad_merge_is_refused_and_the_adapter_kept(tmp_path, capsys, monkeypatch):
    from grpo_workbook import export

    bad = {"max_abs_logit_difference": 9.0, "relative_logit_difference": 0.5}
    monkeypatch.setattr(
        export, "logit_differences", lambda *logits: bad | {"same_greedy_tokens": 0.4}
    )
    folder = tmp_path / "run"
    sizes = ["--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8"]
    assert main(["run", *sizes, "--output_dir", str(folder)]) == 2
    # How far the logits differ, and at how many positions the same token is chosen.
    assert_names(capsys.readouterr().err, "50.0%", "40.00%")
    assert (folder / "adapter" / "adapter_model.safetensors").is_file()
    assert not (folder / "merged").exists()
    assert {"heldout", "rewards"} <= report_of(folder).keys()
    assert "merge" not in report_of(folder)


@pytest.mark.trains
def test_a_gpu_that_is_too_small_for_the_merge_loses_nothing(tmp_path, capsys, monkeypatch):
    """The trained model is gone before the merge begins, and everything else is written."""
    import gc

    from peft import PeftModel

    from grpo_workbook.cli import run as the_run

    def alive():
        return sum(isinstance(x, PeftModel) for x in gc.get_objects())

    def full(*given, **more):
        seen.append(alive())
        raise torch.OutOfMemoryError("CUDA out of memory")

    gc.collect()  # models that tests before this one have left
    seen, before, folder = [], alive(), tmp_path / "run"
    monkeypatch.setattr(the_run, "merge", full)
    sizes = ["--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8"]
    assert main(["run", *sizes, "--output_dir", str(folder)]) == 2
    assert seen == [before]
    assert {"heldout", "rewards", "verdict", "examples"} <= report_of(folder).keys()
    again = capsys.readouterr().err.split("python -m grpo_workbook ")[1].split()
    assert main(again) == 0
    assert (folder / "merged" / "model.safetensors").is_file()


def test_resume_says_at_once_that_a_folder_holds_no_run(tmp_path, capsys):
    """Its name may be misspelt; a job that always resumes starts all the same."""
    with own_folder(tmp_path / "run", {}, RunOptions(resume=True)):
        assert_names(capsys.readouterr().out, tmp_path / "run")
    with own_folder(tmp_path / "run", {}, RunOptions(resume=True)):
        assert capsys.readouterr().out == ""  # now it holds one


@pytest.mark.trains
def test_ctrl_c_saves_a_usable_adapter_and_resume_goes_on(tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    folder, said = tmp_path / "run", tmp_path / "said.txt"
    command = [sys.executable, "-m", "grpo_workbook", "run", *SHORT, "--output_dir", str(folder)]
    with said.open("w") as out:
        how = {"cwd": REPO, "env": environment(), "stdout": out, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, **how)
    try:
        while "reward=" not in said.read_text():
            assert process.poll() is None, said.read_text()[-3000:]
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130, said.read_text()
    finally:
        process.kill()
        process.wait()
    assert_names(said.read_text(), "Interrupted", "--resume")
    assert not (folder / "report.json").exists()
    base = AutoModelForCausalLM.from_pretrained(REPO / "data" / "tiny-qwen3")
    model = PeftModel.from_pretrained(base, folder / "adapter")
    assert sum(p.abs().sum() for n, p in model.named_parameters() if "lora_B" in n) > 0

    measured_at = (folder / "before.json").stat().st_mtime_ns
    result = cli("run", *SHORT, "--output_dir", folder, "--resume")
    assert result.returncode == 0, result.stderr[-3000:]
    assert_names(result.stdout, "checkpoint-", "The baseline was measured before the interruption")
    # The saved baseline is shown again, and not measured again.
    shown = [line for line in said.read_text().splitlines() if "Before training:" in line]
    assert len(shown) == 1
    assert_names(result.stdout, shown[0])
    assert (folder / "before.json").stat().st_mtime_ns == measured_at
    report, log = report_of(folder), json.loads((folder / "log.json").read_text())
    assert report["resumed_from_step"] > 0
    assert report["train_seconds"] >= sum(e["step_time"] for e in log) - 1
    assert [e["step"] for e in log] == list(range(1, 25))


def test_a_reference_that_cannot_be_judged_ends_the_run_before_it_starts(capsys):
    from datasets import Dataset

    from grpo_workbook.cli.run import check_references

    good = Dataset.from_dict({"question": ["Expand.", "When?"], "answer": ["x^2+1", "12:00"]})
    check_references(good, good)
    assert_names(capsys.readouterr().out, "When?", "12:00")
    unclear = Dataset.from_dict(
        {"question": ["Which?"], "answer": ["<answer>2</answer><answer>3</answer>"]}
    )
    with raises_naming(WorkbookError, "held-out", "Which?", "<answer>3</answer>"):
        check_references(good, unclear)


# ------------------------------------------------------------------ thinking

STEP_TASKS = REPO / "data" / "step_tasks"


@pytest.mark.trains
def test_a_run_with_thoughts_is_measured_merged_and_described_alike(tmp_path):
    folder = tmp_path / "run"
    own = ("--data", STEP_TASKS / "train.jsonl", "--heldout_data", STEP_TASKS / "heldout.jsonl")
    settings = ("--system_prompt=", "--rewards", "correctness", "--max_steps", "2", *FEW)
    run("--thinking", "--model", REPO / "data" / "tiny-thinker", *own, *settings, folder=folder)
    on = {"enable_thinking": True}
    record = json.loads((folder / "run.json").read_text())["settings"]
    assert record["chat_template_kwargs"] == on
    after = json.loads((folder / "after.json").read_text())
    assert any(text.startswith("<think>") for text in after["heldout"]["sampled"])
    for part in ("adapter", "merged"):
        card = (folder / part / "README.md").read_text()
        assert '"chat_template_kwargs": {"enable_thinking": true}' in card
    log = json.loads((folder / "log.json").read_text())
    assert len(log) == 2
    assert all("thoughts/unclosed" in row for row in log)
    measured = tmp_path / "measured"
    data = ("--data", STEP_TASKS / "heldout.jsonl", "--items", "4", "--system-prompt=")
    result = cli("evaluate", folder / "merged", *data, "--output", measured)
    assert result.returncode == 0, result.stderr[-3000:]
    assert report_of(measured)["chat_template_kwargs"] == on
    # The limit is that of the training: a shorter one would cut thoughts off.
    assert report_of(measured)["max_new_tokens"] == record["max_completion_length"]


@pytest.mark.slow
def test_thinking_with_a_template_that_has_no_switch_is_refused(tmp_path, capsys):
    arguments = ["run", "--thinking", "--output_dir", str(tmp_path / "run"), *SHORT]
    assert main(arguments) == 2
    assert_names(capsys.readouterr().err, "enable_thinking", "tiny-qwen3")
    assert not (tmp_path / "run").exists()
