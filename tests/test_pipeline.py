"""The main run as a user calls it: what it must show, bad input, Ctrl-C, a pulled plug, real data."""

import json
import shutil
import signal
import subprocess
import sys
import time

import pytest
from conftest import REPO, SHARED, cli, environment, report_of

FAMILIES = ("qwen", "gemma")
GSM8K = SHARED / "data" / "gsm8k" / "train.jsonl"
SHORT = ("--heldout", "40", "--steps", "24")
TIMES = ("train_seconds", "total_seconds", "peak_rss_mb")


# ------------------------------------------------------------------ what the main run must show


@pytest.mark.long
@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_measurably_learns(main_runs, family):
    folder, _ = main_runs(family)
    report = report_of(folder)
    before, after = report["heldout"]["before"], report["heldout"]["after"]
    assert report["heldout"]["n"] >= 400
    assert before["strict_sampled"] <= 0.35
    assert after["strict_sampled"] >= 0.85
    assert after["strict_greedy"] >= max(0.90, before["strict_greedy"])
    assert report["heldout"]["p_value"] < 1e-6
    assert after["ci95"][0] > before["ci95"][1]


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
    assert report["completions"]["total"] == report["steps"] * 64
    assert (
        report["rewards"]["reward"]["last_tenth"] > report["rewards"]["reward"]["first_tenth"] + 0.5
    )
    assert set(report["rewards"]) == {
        "reward",
        "correctness_reward",
        "strict_format_reward",
        "incremental_format_reward",
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_report_is_complete(main_runs, family):
    folder, _ = main_runs(family)
    report = report_of(folder)
    assert {
        "profile",
        "device",
        "model",
        "family",
        "load_in_4bit",
        "linear4bit_layers",
        "lora_parameters",
        "steps",
        "train_seconds",
        "total_seconds",
        "peak_rss_mb",
        "seed",
        "versions",
        "data_sha256",
        "heldout",
        "merge",
        "completions",
        "rewards",
    } <= set(report)
    assert {"n", "before", "after", "p_value"} <= set(report["heldout"])
    for when in ("before", "after"):
        assert {"strict_sampled", "strict_greedy", "lenient_sampled", "ci95"} <= set(
            report["heldout"][when]
        )
    assert report["versions"]["trl"] == "1.15.0"
    assert report["family"] == family
    assert report["model"].startswith("data/tiny-")
    assert report["peak_rss_mb"] < 3000


@pytest.mark.parametrize("family", FAMILIES)
def test_the_merge_is_proved(main_runs, family):
    merge = report_of(main_runs(family)[0])["merge"]
    assert 0 < merge["max_abs_logit_difference"] < 0.5  # 0 would mean a model compared with itself
    assert merge["same_greedy_tokens"] >= 0.99
    assert merge["merged_strict_greedy"] >= 0.90


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_printed(main_runs, family):
    folder, out = main_runs(family)
    for word in (
        "before",
        "after",
        "strict, sampled",
        "strict, greedy",
        "95 % interval",
        "Five held-out questions",
        "report.json",
        "adapter",
        "merged",
        "figures",
    ):
        assert word in out
    ours = out[out.index("held-out problems, data/tiny-") :]  # before it, Unsloth speaks too
    assert max(map(len, ours.splitlines())) <= 80
    assert len(report_of(folder)["examples"]) == 5


@pytest.mark.parametrize("family", FAMILIES)
def test_figures_have_their_words_beside_and_inside(main_runs, family):
    from PIL import Image

    folder = main_runs(family)[0] / "figures"
    for name in ("rewards", "before_after", "health"):
        words = (folder / f"{name}.txt").read_text().strip()
        image = Image.open(folder / f"{name}.png")
        assert image.text["Description"] == words
        assert "from" in words
        assert min(image.size) > 300


@pytest.mark.long
def test_4bit_learns_as_16bit_does(main_runs, tmp_path):
    """Stock 4-bit on a CPU learns wrongly without a word: training here must not."""
    result = cli("run", "--load-in-16bit", "--output", tmp_path / "run")
    assert result.returncode == 0, result.stderr[-3000:]
    four, sixteen = report_of(main_runs("qwen")[0]), report_of(tmp_path / "run")
    assert (four["linear4bit_layers"] > 0, sixteen["linear4bit_layers"]) == (True, 0)
    after4, after16 = four["heldout"]["after"], sixteen["heldout"]["after"]
    assert after4["strict_greedy"] >= after16["strict_greedy"] - 0.05
    assert after4["strict_sampled"] >= after16["strict_sampled"] - 0.07


@pytest.mark.long
def test_the_same_seed_gives_the_same_report(tmp_path):
    reports = []
    for name in ("a", "b"):
        result = cli(
            "run", "--steps", "8", "--heldout", "40", "--seed", "3", "--output", tmp_path / name
        )
        assert result.returncode == 0, result.stderr[-3000:]
        reports.append({k: v for k, v in report_of(tmp_path / name).items() if k not in TIMES})
    assert reports[0] == reports[1]
    weights = [
        (tmp_path / name / "adapter" / "adapter_model.safetensors").read_bytes()
        for name in ("a", "b")
    ]
    assert weights[0] == weights[1]


@pytest.mark.long
def test_real_gsm8k_is_reported_honestly(tmp_path):
    if not GSM8K.is_file():
        pytest.skip("GSM8K's train set is not beside the project (shared/data/gsm8k/train.jsonl)")
    result = cli(
        "run", "--data", GSM8K, "--steps", "30", "--heldout", "120", "--output", tmp_path / "run"
    )
    assert result.returncode == 0, result.stderr[-3000:]
    report = report_of(tmp_path / "run")
    dropped = report["data"]["dropped_too_long_train"] + report["data"]["dropped_too_long_heldout"]
    assert dropped > 1000
    assert f"Dropped {report['data']['dropped_too_long_train']} training" in result.stdout
    assert sum(report["data"][k] for k in ("train", "heldout", "dropped_leaked")) + dropped == 7473
    rewards = report["rewards"]["strict_format_reward"]
    assert rewards["last_tenth"] > rewards["first_tenth"] + 0.1
    assert report["verdict"][0].startswith("strict accuracy")
    assert "may be chance" in report["verdict"][0]
    assert "well-formed answers rose" in report["verdict"][1]


# ------------------------------------------------------------------ bad input


def _write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


GOOD = '{"question": "q", "answer": "#### 5"}\n'
BAD_INPUT = {
    "missing file": (lambda t: ["--data", t / "none.jsonl"], "none.jsonl does not exist"),
    "empty file": (lambda t: ["--data", _write(t / "e.jsonl", "")], "is empty"),
    "not json": (lambda t: ["--data", _write(t / "j.jsonl", GOOD + "{nope")], "line 2: not JSON"),
    "no question": (
        lambda t: ["--data", _write(t / "q.jsonl", '{"answer": "5"}')],
        "no 'question'",
    ),
    "no answer": (lambda t: ["--data", _write(t / "a.jsonl", '{"question": "5"}')], "no 'answer'"),
    "no number": (
        lambda t: ["--data", _write(t / "n.jsonl", '{"question": "q", "answer": "lots"}')],
        "'lots'",
    ),
    "a folder as data": (lambda t: ["--data", t], "is a folder"),
    "half a surrogate pair": (
        lambda t: ["--data", _write(t / "s.jsonl", '{"question": "\\ud83d", "answer": "5"}')],
        "surrogate",
    ),
    "nested": (
        lambda t: ["--data", _write(t / "d.jsonl", '{"a": ' + "[" * 200_000)],
        "nested too deeply",
    ),
    "negative seed": (lambda t: ["--seed", "-1"], "the seed -1 is not between"),
    "learning rate nan": (
        lambda t: ["--learning-rate", "nan"],
        "learning_rate is nan: it must be a number",
    ),
    "learning rate 0": (
        lambda t: ["--learning-rate", "0"],
        "learning_rate is 0.0: it must be a number, more than 0",
    ),
    "too few left": (
        lambda t: [
            "--data",
            _write(t / "l.jsonl", GOOD.replace('"q"', '"q %d"') * 8 % (*range(8),)),
        ],
        "7 training problems are left",
    ),
    "too few rows": (lambda t: ["--data", _write(t / "f.jsonl", GOOD)], "too few"),
    "no config.json": (lambda t: ["--model", t], "no config.json"),
    "unknown profile": (lambda t: ["--profile", "giant"], "unknown profile 'giant'"),
    "unknown family": (lambda t: ["--model", "mistral"], "unknown model 'mistral'"),
    "unknown reward": (
        lambda t: ["--rewards", "corectness:2"],
        "unknown reward 'corectness': choose from correct",
    ),
    "groups": (lambda t: ["--batch-size", "20"], "20 completions cannot be cut into groups of 8"),
    "all prompts too long": (lambda t: ["--max-prompt-length", "3"], "longer than 3 tokens"),
    "no such model": (
        lambda t: ["--model", "unsloth/Qwen3-none"],
        "'unsloth/Qwen3-none' cannot be loaded",
    ),
    "output is a file": (lambda t: ["--output", _write(t / "file", "")], "is a file"),
    "output in a file": (
        lambda t: ["--output", _write(t / "file", "") / "sub" / "run"],
        "is no folder",
    ),
    "unknown backend": (lambda t: ["--backend", "jax"], "unknown backend 'jax'"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_named_and_nothing_is_written(tmp_path, name):
    arguments, message = BAD_INPUT[name]
    result = cli("run", "--output", tmp_path / "out", *arguments(tmp_path))
    assert result.returncode == 2
    assert "error: " in result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


def test_plain_backend_says_why_not(tmp_path):
    from grpo_workbook.config import RunConfig
    from grpo_workbook.training import why_not_plain

    if why_not_plain(RunConfig.from_env()) is None:
        pytest.skip("the plain backend can train here")
    result = cli("run", "--backend", "plain", "--output", tmp_path / "out")
    assert result.returncode == 2
    assert "Triton" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_another_run_is_left_alone(main_runs):
    folder, _ = main_runs("qwen")
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    result = cli("run", "--output", folder)
    assert result.returncode == 2
    assert "--resume" in result.stderr
    assert "--overwrite" in result.stderr
    result = cli("run", "--output", folder, "--resume", "--seed", "9")
    assert result.returncode == 2
    assert "different run (not the same: seed)" in result.stderr
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


def test_a_disk_without_room(tmp_path):
    """A real file system of 20 MB, mounted where only this process sees it."""
    run = f"exec {sys.executable} -m grpo_workbook run --output {tmp_path}/out"
    inside = f"mount -t tmpfs -o size=20m none {tmp_path} && {run}"
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces, so no small disk can be mounted")
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", inside],
        capture_output=True,
        text=True,
        cwd=REPO,
        env=environment(),
    )
    assert result.returncode == 2, result.stderr
    assert "MiB free and the run needs about" in result.stderr


def test_a_package_that_is_missing_is_named_with_the_mend(tmp_path):
    """A stand-in earlier on the path says what Python says when Unsloth was never installed."""
    _write(
        tmp_path / "unsloth.py",
        "raise ModuleNotFoundError(\"No module named 'unsloth'\", name='unsloth')",
    )
    result = cli("run", "--output", tmp_path / "out", PYTHONPATH=str(tmp_path))
    assert result.returncode == 2
    assert "error: unsloth is not installed: run `make setup`" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_a_folder_is_continued_or_replaced_only_when_it_is_a_run(tmp_path):
    folder, options = (
        tmp_path / "run",
        ("--steps", "2", "--heldout", "40", "--model", "data/tiny-qwen3"),
    )
    assert cli("run", *options, "--output", folder).returncode == 0
    first, weights = (
        report_of(folder),
        (folder / "adapter" / "adapter_model.safetensors").read_bytes(),
    )
    assert first["model"] == "data/tiny-qwen3"
    base = json.loads((folder / "adapter" / "adapter_config.json").read_text())[
        "base_model_name_or_path"
    ]
    assert base == str(REPO / "data" / "tiny-qwen3")

    # the plug was pulled while merging; the model is named from another folder
    (folder / "report.json").unlink()
    shutil.rmtree(folder / "merged")
    again = (
        "--steps",
        "2",
        "--heldout",
        "40",
        "--model",
        REPO / "data" / "tiny-qwen3",
        "--output",
        folder,
    )
    result = cli("run", *again, "--resume", cwd=tmp_path, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    second = report_of(folder)
    different = {k for k in first if first[k] != second[k]}
    assert different <= {*TIMES, "resumed_from_step"}
    assert second["resumed_from_step"] == 2
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() == weights

    (folder / "notes.txt").write_text("mine")
    rewards = ("--rewards", "strict_format:1,repetition=3:0.5")
    assert (
        cli("run", *options, "--seed", "1", *rewards, "--overwrite", "--output", folder).returncode
        == 0
    )
    assert report_of(folder)["seed"] == 1
    assert report_of(folder)["reward_weights"] == {
        "strict_format_reward": 1.0,
        "repetition_reward": 0.5,
    }
    entry = json.loads((folder / "log.json").read_text())[-1]
    parts = (
        entry["rewards/strict_format_reward/mean"] + 0.5 * entry["rewards/repetition_reward/mean"]
    )
    assert entry["reward"] == pytest.approx(parts, abs=1e-5)
    assert (folder / "adapter" / "adapter_model.safetensors").read_bytes() != weights
    assert (folder / "notes.txt").read_text() == "mine"

    (folder / "run.json").unlink()
    before = {p: p.stat().st_mtime_ns for p in folder.rglob("*")}
    result = cli("run", *options, "--overwrite", "--output", folder)
    assert result.returncode == 2
    assert "no run.json, so it is no run" in result.stderr
    assert {p: p.stat().st_mtime_ns for p in folder.rglob("*")} == before


# ------------------------------------------------------------------ interrupted


@pytest.fixture
def started(tmp_path):
    """(process of a run in tmp_path / "run", file of what it prints); killed at the end whatever happens."""
    command = [
        sys.executable,
        "-m",
        "grpo_workbook",
        "run",
        *SHORT,
        "--output",
        str(tmp_path / "run"),
    ]
    said = tmp_path / "said.txt"
    with said.open("w") as out:
        process = subprocess.Popen(
            command, cwd=REPO, env=environment(), stdout=out, stderr=subprocess.STDOUT
        )
    yield process, said
    process.kill()
    process.wait()


def _wait_for(condition, process, said, seconds=300):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, said.read_text()[-3000:]
        assert time.monotonic() < deadline, said.read_text()[-3000:]
        time.sleep(0.2)


def _resume_and_check(folder):
    result = cli("run", *SHORT, "--output", folder, "--resume")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Continuing from checkpoint-" in result.stdout
    assert "The baseline was measured before" in result.stdout
    report, log = report_of(folder), json.loads((folder / "log.json").read_text())
    assert report["resumed_from_step"] > 0
    assert (
        report["train_seconds"] >= sum(e["step_time"] for e in log) - 1
    )  # steps before the interruption included
    assert [e["step"] for e in log] == list(range(1, 25))


@pytest.mark.long
def test_ctrl_c_saves_a_usable_adapter_and_resume_goes_on(tmp_path, started):
    folder = tmp_path / "run"
    process, said = started
    _wait_for(lambda: "reward=" in said.read_text(), process, said)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=120)
    assert process.returncode == 130, said.read_text()
    assert "Interrupted: stopped after step" in said.read_text()
    assert (
        "the same command with --resume goes on from there." in said.read_text()
    )  # `make run` has another folder
    assert not (folder / "report.json").exists()

    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(REPO / "data" / "tiny-qwen3")
    model = PeftModel.from_pretrained(base, folder / "adapter")
    assert sum(p.abs().sum() for n, p in model.named_parameters() if "lora_B" in n) > 0
    _resume_and_check(folder)
