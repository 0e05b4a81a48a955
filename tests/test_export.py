"""merge: proved, or refused with its numbers, and never half-written; the model card."""

import copy
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from conftest import REPO, assert_names, environment, raises_naming, slow
from datasets import Dataset

from grpo_workbook.cli import main
from grpo_workbook.data import chat_prompt, load_problems
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import Scores, evaluate, generate, report_heldout, score
from grpo_workbook.export import (
    compare_logits,
    is_proved,
    merge,
    save_adapter,
    settings_of_run,
    write_card,
)
from grpo_workbook.files import swap_folder
from grpo_workbook.models import load_model
from grpo_workbook.statistics import wilson_interval

ROWS = load_problems(REPO / "data" / "word_problems" / "heldout.jsonl").to_list()[:40]
PROMPTS = [chat_prompt(row["question"]) for row in ROWS[:12]]
TINY = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
FORM = REPO / "data" / "tiny-form"  # it solves a third of the problems


def lora(base, folder, std=0.02, **config):
    """An adapter with real weights, saved as a run saves it."""
    import torch
    from peft import LoraConfig, get_peft_model

    model, tokenizer = load_model(base)
    torch.manual_seed(0)
    config = {"r": 8, "lora_alpha": 16, "target_modules": "all-linear", **config}
    model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **config))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=std)
    save_adapter(model.train(), tokenizer, folder)
    assert model.training  # saving in the middle of a run changes nothing
    return folder


@pytest.fixture(scope="module", params=["qwen", "gemma"])
@slow
def trained(request, tmp_path_factory):
    """(base, adapter) of each family; embeddings are tied in both."""
    folder = tmp_path_factory.mktemp(request.param)
    base = shutil.copytree(TINY[request.param], folder / "base")
    return base, lora(base, folder / "adapter", std=0.04)  # changes some answers of both


@pytest.fixture(scope="module")
@slow
def in_a_run(tmp_path_factory):
    """The adapter, which does nothing, of a run whose policy had 39 of 40 problems right."""
    folder = tmp_path_factory.mktemp("run")
    lora(TINY["qwen"], folder / "adapter", std=0.0, target_modules=["q_proj"])
    right = [f"<reasoning>\n?\n</reasoning>\n<answer>{row['answer']}</answer>" for row in ROWS]
    after = {name: [row[name] for row in ROWS] for name in ("question", "answer")}
    after |= {"kind": "number", "heldout": {"greedy": ["?", *right[1:]]}}
    (folder / "after.json").write_text(json.dumps(after))
    settings = {"max_completion_length": 48, "system_prompt": "Be brief."}
    (folder / "run.json").write_text(json.dumps({"settings": settings}))
    return folder / "adapter"


# ------------------------------------------------------------------ the comparison


def test_a_model_agrees_with_itself_and_not_with_a_disturbed_copy(tiny):
    import torch

    model, tokenizer = tiny["qwen"]
    completions = generate(model, tokenizer, PROMPTS, max_new_tokens=48)
    assert compare_logits(model, model, tokenizer, PROMPTS, completions) == {
        "max_abs_logit_difference": 0.0,
        "relative_logit_difference": 0.0,
        "same_greedy_tokens": 1.0,
    }
    torch.manual_seed(0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.model.layers[0].parameters():
            parameter += torch.randn_like(parameter)
    proof = compare_logits(model, other, tokenizer, PROMPTS, completions)
    assert proof["max_abs_logit_difference"] > 1
    assert proof["same_greedy_tokens"] < 0.9


def test_logits_that_are_no_numbers_are_no_agreement(tiny):
    import torch

    model, tokenizer = tiny["qwen"]
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight[0] = torch.nan
    proof = compare_logits(model, broken, tokenizer, PROMPTS[:4], ["4", "5", "6", "7"])
    # NaN, and not the 0 of equal ones
    assert proof["max_abs_logit_difference"] != proof["max_abs_logit_difference"]
    assert not is_proved(proof)


def test_a_problems_logits_do_not_hang_on_those_beside_it(tiny):
    import torch

    model, tokenizer = tiny["gemma"]
    completions = generate(model, tokenizer, PROMPTS, max_new_tokens=48)
    other = copy.deepcopy(model).to(torch.bfloat16).float()
    with torch.no_grad():
        other.model.norm.weight += 0.1
    found = [
        compare_logits(model, other, tokenizer, [prompt], [completion])
        for prompt, completion in zip(PROMPTS, completions, strict=True)
    ]
    name = "max_abs_logit_difference"
    together = compare_logits(model, other, tokenizer, PROMPTS, completions)
    assert together[name] == max(one[name] for one in found) > 0


def test_worse_than_the_interval_is_refused_and_better_is_not():
    proof = {"same_greedy_tokens": 1.0, "relative_logit_difference": 0.003}

    def with_answers(rate, p_value=0.001):
        strict = {"before_interval": (0.4, 0.6), "after": rate, "p_value": p_value}
        return proof | {"heldout": {"strict": strict}}

    rates = (0.39, 0.4, 0.6, 0.61)
    assert [is_proved(with_answers(rate)) for rate in rates] == [False, True, True, True]
    assert is_proved(with_answers(0.39, p_value=0.01))  # that may be chance
    assert not is_proved(proof | {"relative_logit_difference": 0.05})
    assert not is_proved(proof | {"same_greedy_tokens": 0.97})


# ------------------------------------------------------------------ the merge


@pytest.mark.slow
def test_three_lines_merge_and_what_comes_out_answers_alike(trained, tmp_path):
    base, adapter = trained
    merged = tmp_path / "merged"
    proof = merge(base, adapter, merged)
    assert proof["relative_logit_difference"] < 0.005
    assert proof["same_greedy_tokens"] > 0.98
    kinds = {f.suffix for f in merged.iterdir()}
    assert kinds <= {".safetensors", ".json", ".jinja", ".md"}
    config = json.loads((merged / "config.json").read_text())
    assert config["dtype"] == "bfloat16"
    assert config["tie_word_embeddings"] is True
    answers = [
        generate(*load_model(model, extra), PROMPTS, max_new_tokens=48)
        for model, extra in ((base, adapter), (merged, None), (base, None))
    ]
    same = sum(a == b for a, b in zip(answers[0], answers[1], strict=True))
    assert same >= len(PROMPTS) - 1  # a near-tie may turn in 16 bits
    assert answers[0] != answers[2]  # and the adapter does something
    assert elsewhere(merged) == answers[1]
    # how it writes and how it is asked are the base's
    template = "chat_template.jinja"
    assert (merged / template).read_bytes() == (base / template).read_bytes()
    kept = [json.loads((f / "generation_config.json").read_text()) for f in (base, merged)]
    ours = ("transformers_version", "_from_model_config")
    assert all(kept[1][k] == v for k, v in kept[0].items() if k not in ours)


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
out = out[:, ids["input_ids"].shape[1]:]
print(json.dumps(tokenizer.batch_decode(out, skip_special_tokens=True)))
assert not [m for m in sys.modules if m.split(".")[0] in ("unsloth", "grpo_workbook")]
"""
    command, text = [sys.executable, "-c", code], json.dumps(PROMPTS)
    how = {"capture_output": True, "text": True, "env": environment()}
    result = subprocess.run(command, input=text, **how)
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


def test_a_merge_that_is_another_model_is_refused_everywhere(trained, tmp_path, capsys):
    """An adapter on the output layer, tied to the embedding: merged, it changes what is read."""
    base, _ = trained
    broken = lora(base, tmp_path / "adapter", std=0.2, target_modules=["lm_head"])
    output = tmp_path / "merged"
    with raises_naming(WorkbookError, "at least 98"):
        merge(base, broken, output)
    assert main(["merge", str(broken), "--output", str(output)]) == 2
    assert_names(capsys.readouterr().err, "at least 98")
    assert [p.name for p in tmp_path.iterdir()] == ["adapter"]


def test_logits_are_kept_as_far_as_the_bytes_go(tiny, monkeypatch):
    """Of 300 words a place takes 1.2 kB; of 262,144 words, 1 MB."""
    from grpo_workbook import export

    model, tokenizer = tiny["qwen"]
    completions = generate(model, tokenizer, PROMPTS, max_new_tokens=48)
    asked = (model, tokenizer, PROMPTS, completions)
    everything = export.read_logits(*asked)
    tokens = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in completions]
    assert [len(logits) - 1 for logits in everything] == tokens
    room = 100 * 4 * model.config.vocab_size
    monkeypatch.setattr(export, "LOGIT_BYTES", room)
    some = export.read_logits(*asked)
    assert 0 < sum(logits.nbytes for logits in some) <= room
    assert all((a == b).all() for a, b in zip(some, everything, strict=False))


@pytest.mark.parametrize(
    ("model", "gib", "device", "dtype"),
    [
        ("Qwen3-0.6B", 14.3, "cuda", "float32"),
        ("Qwen3-1.7B", 14.3, "cuda", "bfloat16"),
        ("gemma-3-1b", 14.3, "cuda", "float32"),
        ("Qwen3-4B", 14.3, "cuda", "bfloat16"),
        ("Qwen3-8B", 14.3, "cpu", None),
        ("Qwen3-4B", 21.5, "cuda", "bfloat16"),
        ("gemma-3-4b", 21.5, "cuda", "bfloat16"),
        ("Qwen3-8B", 78.0, "cuda", "float32"),
        ("gemma-3-12b", 78.0, "cuda", "bfloat16"),
        ("gemma-3-12b", 21.5, "cpu", None),
    ],
)
def test_a_merge_goes_to_the_gpu_where_it_fits_with_its_answers(
    model, gib, device, dtype, monkeypatch
):
    """The models of the profiles: weights, keys and values of a batch, and two GiB of the rest."""
    import torch

    from grpo_workbook.config import PROFILES
    from grpo_workbook.export import _device_and_dtype
    from grpo_workbook.planning import PROFILE_GIB, find_shape, kv_cache_bytes

    shape, free = find_shape(model), gib * 2**30
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    chosen_device, chosen_dtype = _device_and_dtype(shape.weights[0])
    assert chosen_device == device
    if device == "cuda":
        assert chosen_dtype == getattr(torch, dtype)
        profile = next(name for name in PROFILE_GIB if PROFILE_GIB[name] > gib)
        values = PROFILES[profile]
        tokens = values["max_prompt_length"] + values["grpo"]["max_completion_length"]
        cache = kv_cache_bytes(shape, values["eval_batch_size"], tokens, dtype)
        each = chosen_dtype.itemsize
        assert each * shape.weights[0] + cache + 2 * 2**30 < free


def test_the_base_is_checked(trained, tmp_path):
    base, adapter = trained
    other = shutil.copytree(base, tmp_path / "other")
    with (other / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    with raises_naming(WorkbookError, other, adapter, "--base"):
        merge(other, adapter, tmp_path / "merged")
    moved = shutil.copytree(adapter, tmp_path / "adapter")
    named = json.loads((moved / "adapter_config.json").read_text())
    named["base_model_name_or_path"] = "/nowhere/base"
    (moved / "adapter_config.json").write_text(json.dumps(named))
    with raises_naming(WorkbookError, "'/nowhere/base'"):
        merge(None, moved, tmp_path / "merged")
    assert merge(base, moved, tmp_path / "merged")["same_greedy_tokens"] > 0.98
    (base / "config.json").rename(base / "kept")
    (base / "config.json").write_text("{oops")
    try:
        with pytest.raises(WorkbookError):
            merge(base, adapter, tmp_path / "merged")
    finally:
        (base / "kept").replace(base / "config.json")


def test_a_base_in_4bit_is_refused(tmp_path):
    import bitsandbytes  # noqa: F401  (without it Transformers says so itself)

    model, tokenizer = load_model(TINY["qwen"], load_in_4bit=True)
    model.save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    adapter = lora(TINY["qwen"], tmp_path / "adapter", target_modules=["q_proj"])
    (adapter / "base.json").unlink()
    with raises_naming(WorkbookError, tmp_path / "base", "--base", "--dequantize"):
        merge(tmp_path / "base", adapter, tmp_path / "merged")
    proof = merge(tmp_path / "base", adapter, tmp_path / "merged", dequantize=True)
    assert is_proved(proof)


def test_bad_input_is_named(in_a_run, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    for arguments, named in (
        ([tmp_path, "--output", tmp_path / "m"], tmp_path),
        ([in_a_run, "--output", tmp_path / "full"], tmp_path / "full"),
        ([in_a_run, "--output", tmp_path / "full", "--overwrite"], tmp_path / "full"),
        ([in_a_run, "--output", tmp_path / "full" / "x"], tmp_path / "full" / "x"),
        ([in_a_run, "--output", in_a_run, "--overwrite"], in_a_run),
        ([in_a_run, "--output", in_a_run.parent, "--overwrite"], in_a_run.parent),
        ([in_a_run, "--output", tmp_path / "m", "--base", "no/model"], "no/model"),
    ):
        assert main(["merge", *map(str, arguments)]) == 2
        assert_names(capsys.readouterr().err, named)
    assert (tmp_path / "full" / "x").read_text() == "mine"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["full"]


def test_options_of_the_template_that_are_not_the_runs_are_refused(in_a_run, tmp_path):
    run = shutil.copytree(in_a_run.parent, tmp_path / "run")
    settings = json.loads((run / "run.json").read_text())["settings"]
    settings["chat_template_kwargs"] = {"enable_thinking": True}
    (run / "run.json").write_text(json.dumps({"settings": settings}))
    options = {"enable_thinking": False}
    with raises_naming(WorkbookError, "{'enable_thinking': True}", options):
        merge(None, run / "adapter", tmp_path / "merged", chat_template_kwargs=options)


@pytest.mark.slow
def test_the_card_names_the_prompt_and_the_limit_of_the_proof(tmp_path):
    """The adapter belongs to no run: only the caller knows how it was trained."""
    adapter = lora(TINY["qwen"], tmp_path / "adapter", std=1e-5, target_modules=["q_proj"])
    options = {"enable_thinking": True}
    merge(None, adapter, tmp_path / "merged", max_new_tokens=24, chat_template_kwargs=options)
    card = (tmp_path / "merged" / "README.md").read_text()
    assert_names(card, "max_new_tokens=24", f"**{options}", f'kwargs": {json.dumps(options)}')


def test_a_hub_id_has_no_run_beside_it(tmp_path, monkeypatch):
    (tmp_path / "owner").mkdir()
    for folder in (tmp_path, tmp_path / "owner"):
        (folder / "run.json").write_text('{"settings": {"max_completion_length": 48}}')
    monkeypatch.chdir(tmp_path)
    assert settings_of_run("gpt2") == settings_of_run("owner/name") == {}
    (tmp_path / "merged").mkdir()
    assert settings_of_run("merged") == {"max_completion_length": 48}


def test_a_checkpoint_has_the_settings_of_its_run(in_a_run, tmp_path):
    """A run may lie in a folder that is itself called checkpoints."""
    run = shutil.copytree(in_a_run.parent, tmp_path / "checkpoints")
    checkpoint = shutil.copytree(in_a_run, run / "checkpoints" / "checkpoint-25")
    assert settings_of_run(checkpoint) == settings_of_run(run / "adapter")
    assert settings_of_run(checkpoint)["max_completion_length"] == 48


@pytest.mark.slow
def test_a_checkpoint_is_merged_with_the_prompt_and_without_the_report_of_its_run(
    in_a_run, tmp_path
):
    run = shutil.copytree(in_a_run.parent, tmp_path / "run")
    (run / "report.json").write_text(json.dumps({"steps": 150, "lora_parameters": 7777}))
    checkpoint = shutil.copytree(in_a_run, run / "checkpoints" / "checkpoint-25")
    merge(None, checkpoint, tmp_path / "merged")
    card = (tmp_path / "merged" / "README.md").read_text()
    assert_names(card, "Be brief.", "max_new_tokens=48")
    assert "7,777" not in card


def test_a_merged_model_that_answers_worse_than_its_run_is_refused(in_a_run, tmp_path, capsys):
    """The same logits as base-plus-adapter, and not what the run measured."""
    assert main(["merge", str(in_a_run), "--output", str(tmp_path / "merged")]) == 2
    assert_names(capsys.readouterr().err, "40 held-out problems", "97.5%", "87.1% to 99.6%")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_runs_own_prompt_asks_and_stands_on_the_card(in_a_run, tmp_path, capsys):
    """With the course's prompt the base has more right, so that a good merge could be refused."""
    assert settings_of_run(in_a_run)["system_prompt"] == "Be brief."
    place = shutil.copytree(in_a_run.parent, tmp_path / "run")
    after = json.loads((place / "after.json").read_text())
    prompts = [chat_prompt(question, "Be brief.") for question in after["question"]]
    after["heldout"]["greedy"] = generate(*load_model(TINY["qwen"]), prompts, max_new_tokens=48)
    (place / "after.json").write_text(json.dumps(after))
    assert main(["merge", str(place / "adapter"), "--output", str(tmp_path / "merged")]) == 0
    out = capsys.readouterr().out
    rate = score(after["heldout"]["greedy"], after["answer"]).strict.count(True) / 40
    assert f"merged {rate:.1%}, the policy before merging {rate:.1%}" in " ".join(out.split())
    card = (tmp_path / "merged" / "README.md").read_text()
    assert '"content": "Be brief."' in card
    assert "<reasoning>" not in card
    proof = merge(None, place / "adapter", tmp_path / "merged")  # a model is replaced by the next
    assert proof["merged_answers"] == after["heldout"]["greedy"][:5]


@pytest.mark.slow
def test_heldout_rows_and_the_policys_scores_are_taken(tmp_path):
    adapter = lora(FORM, tmp_path / "adapter")
    rows = [{"prompt": p, "answer": r["answer"]} for p, r in zip(PROMPTS, ROWS, strict=False)]
    heldout, how = Dataset.from_list(rows), {"max_new_tokens": 48}
    policy = evaluate(*load_model(FORM, adapter, load_in_4bit=True), heldout, **how)
    proof = merge(None, adapter, tmp_path / "m", heldout=heldout, policy=policy, **how)
    assert proof["heldout"]["strict"]["before_interval"] == wilson_interval(policy.strict)
    better = replace(policy, strict=[True] * 12)
    with raises_naming(WorkbookError, "12 held-out problems", "100.0%"):
        merge(None, adapter, tmp_path / "m", heldout=heldout, policy=better, **how)
    assert (tmp_path / "m" / "model.safetensors").is_file()  # the old one


@pytest.mark.slow
def test_answers_behind_a_tag_of_the_template_are_scored_as_they_were_measured(tmp_path):
    """The template opens <reasoning>: no answer has the whole form, and the merge is right."""
    base = shutil.copytree(TINY["qwen"], tmp_path / "base")
    template = base / "chat_template.jinja"
    template.write_text(template.read_text() + "{{- '<reasoning>\\n' -}}")
    adapter = lora(base, tmp_path / "adapter", std=1e-5)
    heldout = Dataset.from_list(
        [{"prompt": p, "answer": r["answer"]} for p, r in zip(PROMPTS, ROWS, strict=False)]
    )
    settings = {"heldout": heldout, "max_new_tokens": 48}
    policy = evaluate(*load_model(base, adapter), heldout, max_new_tokens=48)
    proof = merge(None, adapter, tmp_path / "merged", policy=policy, **settings)
    strict = proof["heldout"]["strict"]
    assert strict["before"] == strict["after"] > 0.5


@pytest.mark.slow
def test_the_change_of_base_is_told_apart_from_the_merge(tmp_path, capsys):
    """An adapter of almost nothing, trained on a base in 4-bit: only the base can differ."""
    adapter = lora(FORM, tmp_path / "adapter", std=1e-5)
    heldout = Dataset.from_list(
        [{"prompt": p, "answer": r["answer"]} for p, r in zip(PROMPTS, ROWS, strict=False)]
    )
    policy = evaluate(*load_model(FORM, adapter, load_in_4bit=True), heldout, max_new_tokens=48)
    output = tmp_path / "merged"
    settings = {"heldout": heldout, "max_new_tokens": 48}
    # As if the 4-bit base had solved all problems, as it does for a policy that needs its rounding.
    better = replace(policy, strict=[True] * 12)
    with raises_naming(WorkbookError, "the merge is right", "change of base", "--dequantize"):
        merge(None, adapter, output, policy=better, **settings)

    proof = merge(None, adapter, output, policy=policy, dequantize=True, **settings)
    assert proof["relative_logit_difference"] < 0.005
    assert proof["base_change"]["relative_logit_difference"] < 0.02
    assert proof["base_change"]["same_greedy_tokens"] > 0.98
    assert proof["merged_answers"] == policy.completions[:5]
    assert "rounded to NF4" in (output / "README.md").read_text()
    arguments = ["--output", str(output), "--overwrite"]
    assert main(["merge", str(adapter), *arguments, "--dequantize"]) == 0
    assert "rounded to NF4" in capsys.readouterr().out
    assert main(["merge", str(adapter), *arguments]) == 0
    assert "change of base" in capsys.readouterr().out


@pytest.mark.slow
def test_a_killed_merge_leaves_nothing_under_the_name(in_a_run, tmp_path):
    output = tmp_path / "merged"
    code = f"from grpo_workbook import merge; merge(None, {str(in_a_run)!r}, {str(output)!r})"
    how = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "env": environment()}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=REPO, **how)
    half = output.with_name("merged.new") / "model.safetensors"
    while not half.exists():
        assert process.poll() is None, process.stderr.read()[-2000:]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert half.parent.exists()
    assert not output.exists()


# ------------------------------------------------------------------ folders that are swapped


def test_a_failed_write_leaves_the_old_folder(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "old").write_text("old")

    def fails(target):
        (target / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        swap_folder(folder, fails)
    assert [p.name for p in folder.iterdir()] == ["old"]
    swap_folder(folder, lambda target: (target / "new").write_text("new"))
    assert [p.name for p in folder.iterdir()] == ["new"]


def test_a_link_to_another_disk_stays_a_link(tmp_path):
    (tmp_path / "disk" / "adapter").mkdir(parents=True)
    link = tmp_path / "adapter"
    link.symlink_to(tmp_path / "disk" / "adapter")
    swap_folder(link, lambda target: (target / "new").write_text("new"))
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "disk" / "adapter").iterdir()] == ["new"]
    assert [p.name for p in (tmp_path / "disk").iterdir()] == ["adapter"]


@pytest.mark.parametrize("moved", [0, 1, 2])
def test_a_kill_around_the_renames_loses_neither_model(tmp_path, moved):
    """SIGKILL before the first rename, between the two, and before the old folder is removed."""
    folder = tmp_path / "merged"
    folder.mkdir()
    (folder / "weights").write_text("old")
    code = f"""
import os, shutil, signal
from pathlib import Path
from grpo_workbook import files

renamed, rename = 0, os.replace

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def replace(a, b):
    global renamed
    if renamed == {moved}:
        die()
    rename(a, b)
    renamed += 1

remove = shutil.rmtree
files.os.replace = replace
files.shutil.rmtree = lambda path, **how: die() if renamed == 2 else remove(path, **how)
files.swap_folder(Path({str(folder)!r}), lambda new: (new / "weights").write_text("new"))
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=REPO, env=environment())
    assert process.returncode == -signal.SIGKILL
    # some folder holds the old model whole, and some the new one
    texts = {(p / "weights").read_text() for p in tmp_path.iterdir() if p.is_dir()}
    assert texts == {"old", "new"}
    with pytest.raises(ZeroDivisionError):  # the next call puts back what was moved aside
        swap_folder(folder, lambda new: 1 / 0)
    assert (folder / "weights").read_text() == ("new" if moved == 2 else "old")
    swap_folder(folder, lambda new: (new / "weights").write_text("newer"))
    assert [p.name for p in tmp_path.iterdir()] == ["merged"]
    assert (folder / "weights").read_text() == "newer"


# ------------------------------------------------------------------ the card


def scores_with(right: int, n: int) -> Scores:
    """The scores of n problems, of which so many are right by every measure."""
    outcomes = [True] * right + [False] * (n - right)
    return Scores([""] * n, outcomes, outcomes, outcomes)


WRONG, RIGHT = scores_with(100, 400), scores_with(370, 400)
REPORT = {
    "model": "data/tiny-qwen3",
    "backend": "unsloth",
    "load_in_4bit": True,
    "lora_parameters": 131072,
    "steps": 120,
    "seed": 0,
    "reward_weights": {"correctness_reward": 2.0},
    "rewards": {"correctness_reward": {"first_tenth": 0.2, "last_tenth": 0.9}},
    "versions": {"python": "3.11.7", "trl": "1.15.0"},
    "data_sha256": "24" * 32,
    "data": {"train": 2400, "heldout": 400, "dropped_too_long_train": 7},
    "heldout": report_heldout(
        {"sampled": WRONG, "greedy": WRONG}, {"sampled": RIGHT, "greedy": RIGHT}
    ),
    "merge": {
        "max_abs_logit_difference": 0.03,
        "relative_logit_difference": 0.002,
        "same_greedy_tokens": 1.0,
    },
    "examples": [{"question": "2|3?", "answer": "5", "before": "?", "after": "<answer>5</answer>"}],
    "verdict": ["strict accuracy rose"],
}
SETTINGS = {
    "max_steps": 120,
    "rewards": "/home/ada/private/mine.py:good:1",
    "max_completion_length": 64,
    "system_prompt": 'Say "so"\nand no more.',
}


@pytest.fixture
def card(tmp_path):
    """(metadata, text) of a card."""
    from huggingface_hub import ModelCard

    folder = shutil.copytree(TINY["qwen"], tmp_path / "merged")

    def make(report=REPORT, settings=SETTINGS, base=TINY["qwen"], **more):
        write_card(folder, report, settings, base=base, **more)
        return ModelCard.load(folder / "README.md").data, (folder / "README.md").read_text()

    return make


def test_the_metadata_is_the_hubs(card, tmp_path):
    report = {**REPORT, "data": {**REPORT["data"], "source": "openai/gsm8k:main:train"}}
    data, text = card(report, base="Qwen/Qwen3-0.6B")
    assert (data.base_model, data.library_name) == ("Qwen/Qwen3-0.6B", "transformers")
    assert (data.datasets, data.tags) == (["openai/gsm8k"], ["grpo", "trl"])
    assert "[Qwen/Qwen3-0.6B](https://huggingface.co/Qwen/Qwen3-0.6B)" in text
    (tmp_path / "merged" / "adapter_config.json").write_text("{}")
    data, text = card(report, base="Qwen/Qwen3-0.6B")
    assert data.library_name == "peft"
    assert 'from_pretrained("Qwen/Qwen3-0.6B")' in text
    found = {e.metric_name: (e.metric_value, e.metric_args) for e in data.eval_results}
    interval = list(wilson_interval([True] * 370 + [False] * 30))
    assert found["strict_sampled, after training"] == (0.925, {"interval_95": interval})
    assert {e.dataset_type for e in data.eval_results} == {"openai/gsm8k"}


def test_a_merged_models_metadata_has_only_what_was_measured_of_it(card):
    """The rates before and after are those of the base in 4 bits with its adapter."""
    data, text = card()
    assert data.eval_results is None  # its merge was proved by logits alone
    assert "Measured on the 4-bit base with the adapter beside it, and **not with these" in text
    assert "which have answered no held-out problem" in text
    merged = report_heldout({"greedy": RIGHT}, {"greedy": scores_with(374, 400)})["greedy"]
    data, text = card({**REPORT, "merge": {**REPORT["merge"], "heldout": merged}})
    values = {e.metric_name: e.metric_value for e in data.eval_results}
    assert values["strict_greedy, after training"] == 0.935
    assert all("sampled" not in name for name in values)
    assert "They answered the problems greedily" in text
    assert "strict, greedy: merged 93.5%, the policy before merging 92.5%" in text
    in_16_bits = {**REPORT, "load_in_4bit": False}
    assert "Measured on the base with the adapter beside it, and **not" in card(in_16_bits)[1]


def test_a_part_of_the_gain_that_no_problem_shows_has_an_interval_on_the_card(card):
    """Rule of three: what none of 400 problems shows may still be true of 3 in 400."""
    assert "| form | +0.0 (-0.8 to +0.8) |" in card()[1]


def test_the_text_has_the_numbers(card):
    _, text = card()
    for words in (
        "| strict sampled | 25.0% (21.0% to 29.5%) | 92.5% (89.5% to 94.7%) |",
        "p = 1.1e-81 by the exact paired test",
        "Strict accuracy (sampled) changed by +67.5 points: +",
        "- strict accuracy rose",
        "largest logit difference 0.03",
        "7 training and 0 held-out prompts that were too long",
        "`" + "24" * 32 + "`",
        "| `correctness_reward` | 2 | 0.2 | 0.9 |",
        "| max_steps | 120 |",
        "2|3? (right: 5)",
        "`data/tiny-qwen3`, a local folder (hash `",
        "a toy of about a million parameters",
        "trl 1.15.0",
        r'"content": "Say \"so\"\nand no more."',
    ):
        assert words in text, words
    assert "may be chance" not in text
    before, after = scores_with(4, 8), scores_with(5, 8)
    doubtful = {**REPORT, "heldout": report_heldout({"sampled": before}, {"sampled": after})}
    assert "may be chance" in card(doubtful)[1]


def test_the_example_has_the_system_message_of_the_runs_conversations(card):
    data = {**REPORT["data"], "system_messages": ["Think first."]}
    _, text = card({**REPORT, "data": data})
    assert '"content": "Think first."' in text
    assert '"content": "Say' not in text


def test_a_local_base_or_data_set_is_no_id_of_the_hub_and_no_path_is_told(card, tmp_path):
    base = shutil.copytree(TINY["qwen"], tmp_path / "base")
    for source in (str(tmp_path / "mine.jsonl"), "mine/train.parquet", "mine/train.csv"):
        data, text = card({**REPORT, "data": {**REPORT["data"], "source": source}}, base=base)
        assert data.base_model is data.datasets is None
        assert str(tmp_path) not in text
        assert "/home/" not in text
        assert "mine.py:good:1" in text
    assert card(base="data/tiny-qwen3")[0].base_model is None  # a folder that looks like an id


def test_outside_of_a_run_the_card_claims_nothing(card):
    data, text = card({"merge": REPORT["merge"]}, {}, base="Qwen/Qwen3-0.6B")
    assert data.eval_results is data.tags is None
    assert "the same greedy token at 100.00%" in text
    assert "were not known when it was merged" in text


@pytest.mark.slow
def test_what_the_card_says_to_run_runs(tmp_path):
    """Its own lines, in a process that starts in the folder; Gemma has no system turn."""
    folder = shutil.copytree(TINY["gemma"], tmp_path / "merged")
    from grpo_workbook.config import SYSTEM_PROMPT

    write_card(folder, REPORT, {**SETTINGS, "system_prompt": SYSTEM_PROMPT}, base=TINY["gemma"])
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    how = {"capture_output": True, "text": True, "env": environment()}
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, **how)
    assert "7+5=12" in result.stdout, result.stderr[-2000:]


# ------------------------------------------------------------------ in the main run


@pytest.mark.parametrize("family", ["qwen"])
def test_a_main_runs_merged_model_and_its_cards(main_runs, family):
    """Plain Transformers gives the report's answers, and both cards have its numbers."""
    from huggingface_hub import ModelCard

    folder, _ = main_runs(family)
    report = json.loads((folder / "report.json").read_text())
    prompts = [chat_prompt(example["question"]) for example in report["examples"]]
    texts = generate(*load_model(folder / "merged"), prompts, max_new_tokens=64)
    assert texts == [example["after"] for example in report["examples"]]
    greedy = report["heldout"]["greedy"]["strict"]["after"]
    assert report["merge"]["heldout"]["strict"]["after"] >= greedy - 0.03
    for part in ("adapter", "merged"):
        card = ModelCard.load(folder / part / "README.md")
        found = {e.metric_name: e.metric_value for e in card.data.eval_results}
        if part == "adapter":
            after = report["heldout"]["sampled"]["strict"]["after"]
            assert found["strict_sampled, after training"] == after
        else:  # only the greedy answers are those of the merged weights
            after = report["merge"]["heldout"]["strict"]["after"]
            assert found["strict_greedy, after training"] == after
            assert "strict_sampled, after training" not in found
        assert str(REPO) not in str(card)


def test_an_adapter_that_peft_cannot_merge_is_refused_with_its_reason(tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tiny = REPO / "data" / "tiny-qwen3"
    base = AutoModelForCausalLM.from_pretrained(tiny, dtype="float32")
    settings = LoraConfig(r=2, target_modules=["q_proj"], lora_bias=True, task_type="CAUSAL_LM")
    get_peft_model(base, settings).save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(tiny).save_pretrained(tmp_path / "adapter")
    with raises_naming(WorkbookError, tmp_path / "adapter", "lora_bias"):
        merge(None, tmp_path / "adapter", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
