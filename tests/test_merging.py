"""merge as a user calls it: proved, refused with its number, and never half-written."""

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import REPO, environment

from grpo_workbook.__main__ import main
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, read_problems
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluate import score
from grpo_workbook.generation import generate
from grpo_workbook.loading import load_for_measuring
from grpo_workbook.merging import find_base, is_proved, merge_and_prove, run_of

PROMPTS = [chat_prompt(row["question"]) for row in read_problems(WORD_PROBLEMS["heldout"])[:12]]


@pytest.fixture(scope="module", params=["qwen", "gemma"])
def trained(request, tmp_path_factory):
    """(base folder, adapter folder with real weights) of each family; embeddings are tied in both."""
    import torch
    from peft import LoraConfig, get_peft_model

    from grpo_workbook.export import save_adapter

    folder = tmp_path_factory.mktemp(request.param)
    base = shutil.copytree(
        REPO / "data" / f"tiny-{'qwen3' if request.param == 'qwen' else 'gemma3'}", folder / "base"
    )
    model, tokenizer = load_for_measuring(str(base))
    torch.manual_seed(0)
    model = get_peft_model(
        model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
    )
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
    save_adapter(model, tokenizer, folder / "adapter")
    return base, folder / "adapter"


@pytest.fixture
def merge(capsys):
    """The command in this process: (exit status, what it printed, what it said on the error stream)."""

    def run(*arguments):
        status = main(["merge", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def test_a_merge_is_proved_and_answers_alike(trained, tmp_path, merge):
    base, adapter = trained
    status, out, err = merge(adapter, "--output", tmp_path / "merged", "--items", "40")
    assert status == 0, err[-2000:]
    assert "on 40 prompts" in out
    assert "held-out, strictly right" in out
    assert "the policy before" in out
    assert {f.suffix for f in (tmp_path / "merged").iterdir()} <= {
        ".safetensors",
        ".json",
        ".jinja",
        ".md",
    }
    config = json.loads((tmp_path / "merged" / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert config["tie_word_embeddings"] is True
    answers = [
        generate(*load_for_measuring(str(model), extra), PROMPTS, max_new_tokens=48)
        for model, extra in ((base, str(adapter)), (tmp_path / "merged", None), (base, None))
    ]
    same = sum(a == b for a, b in zip(answers[0], answers[1], strict=True))
    assert same >= len(PROMPTS) - 1  # a near-tie may turn in 16 bits
    assert answers[0] != answers[2]  # and the adapter does something
    assert elsewhere(tmp_path / "merged") == answers[1]
    # how it writes and how it is asked are the base's
    assert (tmp_path / "merged" / "chat_template.jinja").read_bytes() == (
        base / "chat_template.jinja"
    ).read_bytes()
    kept = [
        json.loads((folder / "generation_config.json").read_text())
        for folder in (base, tmp_path / "merged")
    ]
    assert all(
        kept[1][k] == v
        for k, v in kept[0].items()
        if k not in ("transformers_version", "_from_model_config")
    )


def elsewhere(folder):
    """Greedy answers by plain Transformers alone, in a process of its own."""
    code = f"""
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained({str(folder)!r}, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained({str(folder)!r}, padding_side="left")
ids = tokenizer.apply_chat_template(json.load(sys.stdin), add_generation_prompt=True, padding=True,
                                    return_tensors="pt", return_dict=True)
out = model.generate(**ids, do_sample=False, max_new_tokens=48)
print(json.dumps(tokenizer.batch_decode(out[:, ids["input_ids"].shape[1]:], skip_special_tokens=True)))
assert not [m for m in sys.modules if m.split(".")[0] in ("unsloth", "grpo_workbook")]
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(
        command, input=json.dumps(PROMPTS), capture_output=True, text=True, env=environment()
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


def test_a_merge_that_is_another_model_is_refused_with_its_number(trained, tmp_path, merge):
    """An adapter on the output layer, where that is tied to the embedding: merged, it changes what the model reads."""
    import torch
    from peft import LoraConfig, get_peft_model

    from grpo_workbook.export import save_adapter

    base, _ = trained
    model, tokenizer = load_for_measuring(str(base))
    model = get_peft_model(
        model, LoraConfig(r=8, target_modules=["lm_head"], task_type="CAUSAL_LM")
    )
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    broken = tmp_path / "adapter"
    save_adapter(model, tokenizer, broken)
    output = tmp_path / "merged"
    status, out, err = merge(broken, "--output", output, "--items", "12")
    assert status == 2, out
    assert "of the places" in err
    assert not output.exists()
    assert not output.with_name("merged.new").exists()
    status, out, err = merge(broken, "--output", output, "--items", "12", "--allow-mismatch")
    assert status == 0, err[-2000:]
    assert "kept although it is another model" in out
    assert (output / "model.safetensors").is_file()


def test_the_base_is_checked_before_anything_is_loaded(trained, tmp_path):
    base, adapter = trained
    assert find_base(adapter) == str(base.resolve())
    # another base than the one it was trained on
    other = shutil.copytree(base, tmp_path / "other")
    with (other / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with pytest.raises(WorkbookError, match="is not the base that"):
        find_base(adapter, str(other))
    # quantized
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"load_in_4bit": True}})
    )
    with pytest.raises(WorkbookError, match="holds quantized weights"):
        find_base(adapter, str(other))
    # gone
    moved = shutil.copytree(adapter, tmp_path / "adapter")
    named = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(
        json.dumps({**named, "base_model_name_or_path": "/nowhere/base"})
    )
    with pytest.raises(WorkbookError, match="name it with --base"):
        find_base(moved)
    assert find_base(moved, str(base)) == str(base.resolve())


def test_bad_input_is_named(in_a_run, tmp_path, merge):
    adapter = Path(in_a_run[1])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "file").write_text("")
    for arguments, words in (
        ([tmp_path, "--output", tmp_path / "m"], "holds no adapter"),
        ([adapter, "--output", tmp_path / "full"], "is not empty"),
        ([adapter, "--output", tmp_path / "file"], "is a file"),
        ([adapter, "--output", tmp_path / "m", "--items", "0"], "--items is 0"),
        (
            [adapter, "--output", tmp_path / "full", "--overwrite"],
            "holds no model, so it is not replaced",
        ),
        ([adapter, "--output", adapter, "--overwrite"], "holds the adapter, which would be lost"),
        (
            [adapter, "--output", adapter.parent, "--overwrite"],
            "holds the adapter, which would be lost",
        ),
        (
            [adapter, "--output", tmp_path / "m", "--base", "unsloth/qwen3-4b-bnb-4bit"],
            "the hub cannot be asked",
        ),
    ):
        status, _, err = merge(*arguments)
        assert status == 2, err
        assert words in err
    assert (tmp_path / "full" / "x").read_text() == "mine"


@pytest.fixture(scope="module")
def in_a_run(tmp_path_factory):
    """(base, adapter) in the folder of a run whose policy answered 40 held-out problems, 39 of them right."""
    import torch
    from peft import LoraConfig, get_peft_model

    from grpo_workbook.export import save_adapter

    folder = tmp_path_factory.mktemp("run")
    base = REPO / "data" / "tiny-qwen3"
    model, tokenizer = load_for_measuring(str(base))
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    save_adapter(model, tokenizer, folder / "adapter")
    rows = read_problems(WORD_PROBLEMS["heldout"])[:40]
    texts = [f"<reasoning>\n?\n</reasoning>\n<answer>{row['answer']}</answer>" for row in rows]
    after = {
        "kind": "number",
        "question": [row["question"] for row in rows],
        "answer": [row["answer"] for row in rows],
        "greedy": ["?", *texts[1:]],
    }
    (folder / "after.json").write_text(json.dumps(after))
    (folder / "run.json").write_text(
        json.dumps({"settings": {"load_in_4bit": True, "max_completion_length": 48}})
    )
    return str(base), str(folder / "adapter")


def test_a_merged_model_that_answers_worse_than_its_run_is_refused(in_a_run, tmp_path, merge):
    """The same logits as base-plus-adapter, and not what the run measured: the adapter is not that run's."""
    status, out, err = merge(in_a_run[1], "--output", tmp_path / "merged")
    assert status == 2, out
    words = " ".join(err.split())
    assert (
        "of 40 held-out problems right, and the policy that was trained 97.5% (95 % interval 87.1% to 99.6%)"
        in words
    )
    assert list(tmp_path.iterdir()) == []


def test_a_merge_in_a_run_tells_the_runs_numbers(in_a_run, tmp_path):
    base, adapter = in_a_run
    _, settings, heldout = run_of(adapter)
    heldout = heldout.first(12)
    assert heldout.right == [False] + [True] * 11
    texts = generate(*load_for_measuring(base, adapter), PROMPTS, max_new_tokens=48)
    heldout = replace(heldout, right=score(texts, heldout.answers).strict)
    proof = merge_and_prove(
        adapter, base, tmp_path / "merged", PROMPTS, max_new_tokens=48, heldout=heldout
    )
    assert proof["merged_strict_greedy"] == proof["policy_strict_greedy"] > 0
    low, high = proof["policy_ci95"]
    assert low < proof["policy_strict_greedy"] < high
    card = json.loads((tmp_path / "merged" / "run_card.json").read_text())
    assert card["settings"] == settings
    assert card["report"]["merge"] == proof


def test_a_merge_that_answers_better_is_kept_and_said(in_a_run, tmp_path, merge):
    """The policy answered on 4-bit weights: in 16 bits it may do better than its interval, but not worse."""
    adapter = in_a_run[1]
    low_and_high = {
        "same_greedy_tokens": 1.0,
        "relative_logit_difference": 0.003,
        "policy_ci95": [0.4, 0.6],
    }
    proved = [is_proved(low_and_high | {"merged_strict_greedy": a}) for a in (0.39, 0.4, 0.6, 0.61)]
    assert proved == [False, True, True, True]
    assert not is_proved(
        low_and_high | {"merged_strict_greedy": 0.61, "relative_logit_difference": 0.05}
    )
    after = Path(adapter).parent / "after.json"
    told = json.loads(after.read_text())
    worse = told | {"greedy": ["no answer"] * len(told["greedy"])}
    after.write_text(json.dumps(worse))
    try:
        status, out, err = merge(adapter, "--output", tmp_path / "merged")
    finally:
        after.write_text(json.dumps(told))
    assert status == 0, err
    assert "0.0% (95 % interval 0.0% to" in out
    assert "lies above that interval" in out
    assert "95 % interval 0.0% to" in (tmp_path / "merged" / "README.md").read_text()


def test_a_killed_merge_leaves_nothing_under_the_name(in_a_run, tmp_path):
    base, adapter = in_a_run
    output = tmp_path / "merged"
    command = [sys.executable, "-m", "grpo_workbook", "merge", adapter, "--output", str(output)]
    process = subprocess.Popen(
        command, cwd=REPO, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    half = output.with_name("merged.new") / "model.safetensors"
    while not half.exists():
        assert process.poll() is None, process.stderr.read()[-2000:]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert half.parent.exists()
    assert not output.exists()
    merge_and_prove(adapter, base, output, PROMPTS[:2], max_new_tokens=8)
    assert (output / "model.safetensors").is_file()
    assert not half.parent.exists()


def test_a_disk_that_is_too_small_is_said_before_anything_is_loaded(in_a_run, tmp_path):
    """A real file system of 10 MB, mounted where only this process sees it."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("this machine allows no user namespaces, so no small disk can be mounted")
    merge = f"exec {sys.executable} -m grpo_workbook merge {in_a_run[1]} --output {tmp_path}/merged"
    inside = f"mount -t tmpfs -o size=10m none {tmp_path} && {merge}"
    command = ["unshare", "-rm", "sh", "-c", inside]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPO, env=environment())
    assert result.returncode == 2, result.stderr
    assert "MiB free and the merged model needs about" in result.stderr


@pytest.mark.parametrize(
    ("base", "adapter", "damaged"),
    [
        ("{oops", {}, "base/config.json"),
        ("[1]", {}, "base/config.json"),
        ("{}", {"base_model_name_or_path": 5}, "adapter"),
    ],
)
def test_a_damaged_config_is_named(tmp_path, base, adapter, damaged):
    for name in ("base", "adapter"):
        (tmp_path / name).mkdir()
    (tmp_path / "base" / "config.json").write_text(base)
    config = {"base_model_name_or_path": str(tmp_path / "base"), **adapter}
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(
        WorkbookError, match=f"{damaged}.* is damaged: save that model or adapter again"
    ):
        find_base(tmp_path / "adapter")
