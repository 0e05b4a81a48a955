"""Every way to name a model that is not one; the fingerprint tells policies apart."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO, environment, raises_naming

from grpo_workbook.errors import WorkbookError
from grpo_workbook.models import (
    find_adapter,
    find_model,
    fingerprint,
    load_model,
    require_base,
)

TINY, GEMMA = REPO / "data" / "tiny-qwen3", REPO / "data" / "tiny-gemma3"


@pytest.fixture
def adapter(tmp_path):
    """A LoRA adapter on the tiny Qwen, saved by PEFT."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    get_peft_model(load_model(TINY)[0], config).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_family_and_a_folder_are_found():
    assert find_model("qwen") == find_model(TINY) == str(TINY)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("nowhere", ["'nowhere'", "qwen", "gemma"]),
        ("./no/where", ["'./no/where'"]),
        (str(REPO / "tests"), [REPO / "tests", "config.json"]),
    ],
)
def test_what_is_no_model_is_named(name, named):
    with raises_naming(WorkbookError, *named):
        find_model(name)


def test_a_model_that_the_hub_does_not_give_is_named():
    with raises_naming(WorkbookError, "someone/model-that-is-not-here", "network"):
        load_model("someone/model-that-is-not-here")


def test_an_adapter_is_no_model_and_a_model_no_adapter(adapter):
    with raises_naming(WorkbookError, adapter, "--adapter"):
        find_model(adapter)
    with raises_naming(WorkbookError, TINY, "adapter_config.json"):
        find_adapter(TINY)
    assert find_adapter(adapter) == str(adapter)
    require_base(adapter, str(TINY))
    with raises_naming(WorkbookError, "data/tiny-gemma3", adapter, "any_base=True"):
        load_model(GEMMA, adapter)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with raises_naming(WorkbookError, adapter, "adapter_model.safetensors"):
        find_adapter(adapter)
    (adapter / "adapter_model.bin").rename(adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text("{")
    with raises_naming(WorkbookError, "adapter_config.json"):
        find_adapter(adapter)


def test_the_base_is_known_by_its_hash_and_not_by_its_place(adapter, tmp_path):
    base = shutil.copytree(TINY, tmp_path / "moved")
    (adapter / "base.json").write_text(json.dumps({"base": "gone", "hash": fingerprint(TINY)}))
    require_base(adapter, str(base))
    (base / "chat_template.jinja").write_text("{{ messages }}")
    with raises_naming(WorkbookError, base, adapter):
        load_model(base, adapter)


def test_a_base_in_4bit_on_the_hub_is_the_same_base(adapter):
    config = json.loads((adapter / "adapter_config.json").read_text())
    named = {"base_model_name_or_path": "unsloth/qwen3-1.7b-unsloth-bnb-4bit"}
    (adapter / "adapter_config.json").write_text(json.dumps(config | named))
    require_base(adapter, "unsloth/Qwen3-1.7B")
    with raises_naming(WorkbookError, "unsloth/Qwen3-4B", adapter):
        require_base(adapter, "unsloth/Qwen3-4B")


def test_an_adapter_of_another_shape_is_refused(adapter):
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
    with raises_naming(WorkbookError, adapter, "tiny-qwen3"):
        load_model(TINY, adapter)


@pytest.mark.parametrize("break_it", ["pickled", "no template", "no tokenizer", "torn weights"])
def test_a_broken_folder_is_refused(break_it, tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "model")
    weights = folder / "model.safetensors"
    missing = "safetensors"
    if break_it == "pickled":
        weights.rename(folder / "pytorch_model.bin")
    elif break_it == "no template":
        (folder / "chat_template.jinja").unlink()
        missing = "chat template"
    elif break_it == "no tokenizer":
        (folder / "tokenizer.json").unlink()
        missing = "tokenizer"
    else:
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2])
    with raises_naming(WorkbookError, folder, missing):
        load_model(folder)


def test_the_fingerprint_names_the_policy_and_not_the_folder(tmp_path):
    shutil.copytree(TINY, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == fingerprint(TINY)
    data = bytearray((tmp_path / "copy" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "copy" / "model.safetensors").write_bytes(data)
    assert fingerprint(tmp_path / "copy") != fingerprint(TINY)
    assert fingerprint("someone/model") is fingerprint(None) is None


def test_a_large_file_is_hashed_in_places(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(200 * 2**20)
    first = fingerprint(tmp_path)
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert fingerprint(tmp_path) != first


@pytest.mark.slow
def test_outside_of_the_clone_any_model_is_measured_and_merged(adapter, tmp_path):
    """The package alone, on a CPU, in an empty folder: no file of the course is asked for."""
    shutil.copytree(REPO / "grpo_workbook", tmp_path / "site" / "grpo_workbook")
    base = shutil.copytree(TINY, tmp_path / "mine")
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(
        json.dumps(config | {"base_model_name_or_path": str(base)})
    )
    data = [{"question": f"What is {n} plus 3?", "answer": str(n + 3)} for n in range(8)]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, data)))
    (tmp_path / "work").mkdir()
    for command in (
        ["merge", adapter, "--output", tmp_path / "merged", "--data", tmp_path / "mine.jsonl"],
        ["evaluate", base, "--data", tmp_path / "mine.jsonl", "--max-new-tokens", 16],
    ):
        result = subprocess.run(
            [sys.executable, "-P", "-m", "grpo_workbook", *map(str, command)],
            cwd=tmp_path / "work",
            env=environment(PYTHONPATH=str(tmp_path / "site")),
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr[-2000:]
        assert str(REPO / "data") not in result.stdout + result.stderr
    assert (tmp_path / "merged" / "model.safetensors").is_file()


def saved_adapter(folder, resize=None, **settings):
    """A LoRA adapter on the tiny model, perhaps with more tokens."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    if resize:
        base.resize_token_embeddings(resize)
    model = get_peft_model(base, LoraConfig(r=2, task_type="CAUSAL_LM", **settings))
    model.save_pretrained(folder)
    return folder


def test_each_cause_of_an_adapter_that_does_not_fit_has_its_own_advice(tmp_path):
    resized = saved_adapter(tmp_path / "resized", 700, target_modules=["q_proj"])
    with raises_naming(WorkbookError, "[700, 128]", "embed_tokens", "resize_token_embeddings"):
        load_model(TINY, resized)
    other = saved_adapter(tmp_path / "other", target_modules=["q_proj"])
    config = json.loads((other / "adapter_config.json").read_text())
    for modules, named in (
        (r".*language_model.*\.q_proj", "text part"),
        (["c_attn"], "architecture"),
    ):
        text = json.dumps(config | {"target_modules": modules})
        (other / "adapter_config.json").write_text(text)
        with raises_naming(WorkbookError, other, named):
            load_model(TINY, other)


def test_folders_that_are_nearly_an_adapter_get_a_hint(tmp_path, adapter):
    pickled = shutil.copytree(adapter, tmp_path / "pickled")
    (pickled / "adapter_model.safetensors").rename(pickled / "adapter_model.bin")
    with raises_naming(WorkbookError, pickled, "adapter_model.bin", "save_pretrained"):
        find_adapter(pickled)
    outer = tmp_path / "outer"
    shutil.copytree(adapter, outer / "grpo")
    with raises_naming(WorkbookError, outer / "grpo"):
        find_adapter(outer)


def test_an_adapter_given_as_a_model_leads_to_its_base(adapter):
    config = json.loads((adapter / "adapter_config.json").read_text())
    with raises_naming(WorkbookError, adapter, Path(config["base_model_name_or_path"]).name):
        load_model(adapter)
    (adapter / "adapter_config.json").write_text("{")
    with raises_naming(WorkbookError, adapter, "base"):
        load_model(adapter)
