"""merge as a user calls it: proved, refused with its number, and never half-written."""

import json
import shutil

import pytest
from conftest import REPO, cli

from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, read_problems
from grpo_workbook.generation import generate
from grpo_workbook.loading import load_for_measuring
from grpo_workbook.merging import find_base
from grpo_workbook.run import WorkbookError

PROMPTS = [chat_prompt(row["question"]) for row in read_problems(WORD_PROBLEMS["heldout"])[:12]]


@pytest.fixture(scope="module", params=["qwen", "gemma"])
def trained(request, tmp_path_factory):
    """(base folder, adapter folder with real weights) of each family; embeddings are tied in both."""
    import torch
    from peft import LoraConfig, get_peft_model

    from grpo_workbook.export import save_adapter

    folder = tmp_path_factory.mktemp(request.param)
    base = shutil.copytree(REPO / "data" / f"tiny-{'qwen3' if request.param == 'qwen' else 'gemma3'}", folder / "base")
    model, tokenizer = load_for_measuring(str(base))
    torch.manual_seed(0)
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
    save_adapter(model, tokenizer, folder / "adapter")
    return base, folder / "adapter"


def test_a_merge_is_proved_and_answers_alike(trained, tmp_path):
    base, adapter = trained
    result = cli("merge", adapter, "--output", tmp_path / "merged", "--items", "40")
    assert result.returncode == 0, result.stderr[-2000:]
    assert "on 40 prompts" in result.stdout
    assert {f.suffix for f in (tmp_path / "merged").iterdir()} <= {".safetensors", ".json", ".jinja"}
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


def test_a_merge_that_is_another_model_is_refused_with_its_number(trained, tmp_path):
    """An adapter on the output layer, where that is tied to the embedding: merged, it changes what the model reads."""
    import torch
    from peft import LoraConfig, get_peft_model

    from grpo_workbook.export import save_adapter

    base, _ = trained
    model, tokenizer = load_for_measuring(str(base))
    model = get_peft_model(model, LoraConfig(r=8, target_modules=["lm_head"], task_type="CAUSAL_LM"))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.2)
    broken = tmp_path / "adapter"
    save_adapter(model, tokenizer, broken)
    output = tmp_path / "merged"
    result = cli("merge", broken, "--output", output, "--items", "12")
    assert result.returncode == 2, result.stdout
    assert "of the places" in result.stderr
    assert not output.exists()
    assert not output.with_name("merged.new").exists()
    result = cli("merge", broken, "--output", output, "--items", "12", "--allow-mismatch")
    assert result.returncode == 0, result.stderr[-2000:]
    assert "kept although it is another model" in result.stdout
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
    (other / "config.json").write_text(json.dumps({**config, "quantization_config": {"load_in_4bit": True}}))
    with pytest.raises(WorkbookError, match="holds quantized weights"):
        find_base(adapter, str(other))
    # gone
    moved = shutil.copytree(adapter, tmp_path / "adapter")
    named = json.loads((moved / "adapter_config.json").read_text())
    (moved / "adapter_config.json").write_text(json.dumps({**named, "base_model_name_or_path": "/nowhere/base"}))
    with pytest.raises(WorkbookError, match="name it with --base"):
        find_base(moved)
    assert find_base(moved, str(base)) == str(base.resolve())


def test_bad_input_is_named(trained, tmp_path):
    _, adapter = trained
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    (tmp_path / "file").write_text("")
    for arguments, words in (
        ([tmp_path, "--output", tmp_path / "m"], "holds no adapter"),
        ([adapter, "--output", tmp_path / "full"], "is not empty"),
        ([adapter, "--output", tmp_path / "file"], "is a file"),
        ([adapter, "--output", tmp_path / "m", "--items", "0"], "--items is 0"),
    ):
        result = cli("merge", *arguments)
        assert result.returncode == 2, result.stderr
        assert words in result.stderr
    assert (tmp_path / "full" / "x").read_text() == "mine"


def test_too_little_disk(trained, tmp_path, monkeypatch):
    from grpo_workbook import merging

    monkeypatch.setattr(merging.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 2**20})())
    with pytest.raises(WorkbookError, match="1 MiB free"):
        merging.check_merge_room(str(trained[0]), tmp_path / "deep" / "merged")
