"""Every way to name a model that is not one; the fingerprint tells policies apart."""

import json
import shutil

import pytest
from conftest import REPO

from grpo_workbook.errors import WorkbookError
from grpo_workbook.loading import find_adapter, find_model, fingerprint, load_for_measuring

TINY = REPO / "data" / "tiny-qwen3"


@pytest.fixture
def adapter(tiny, tmp_path):
    """A LoRA adapter on the tiny Qwen, saved by PEFT."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(TINY, dtype="float32")
    get_peft_model(
        base, LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")
    ).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


def test_a_family_and_a_folder_are_found():
    assert find_model("qwen") == find_model(str(TINY)) == str(TINY)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("nowhere", "unknown model 'nowhere'"),
        ("./no/where", "unknown model"),
        (str(REPO / "tests"), "has no config.json"),
        (str(REPO / "README.md"), "is a file"),
        ("someone/model-that-is-not-here", "the hub cannot be asked for it: HF_HUB_OFFLINE is set"),
    ],
)
def test_what_is_no_model_is_said(name, words):
    with pytest.raises(WorkbookError, match=words):
        find_model(name)


def test_an_adapter_is_no_model_and_a_model_no_adapter(adapter, tmp_path):
    with pytest.raises(WorkbookError, match="is an adapter: give its base model as MODEL"):
        find_model(str(adapter))
    with pytest.raises(WorkbookError, match="holds no adapter"):
        find_adapter(str(TINY), str(TINY))
    assert find_adapter(str(adapter), str(TINY)) == (str(adapter), None)
    other = str(REPO / "data" / "tiny-gemma3")
    with pytest.raises(
        WorkbookError,
        match=r"names another base than data/tiny-gemma3: .*Give its base as MODEL, or",
    ):
        find_adapter(str(adapter), other)
    _, note = find_adapter(str(adapter), other, any_base=True)
    assert "names another base than data/tiny-gemma3: data/tiny-qwen3" in note
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(WorkbookError, match="pickled weights are not loaded"):
        find_adapter(str(adapter), str(TINY))
    (adapter / "adapter_model.bin").rename(adapter / "adapter_model.safetensors")
    (adapter / "adapter_config.json").write_text("{")
    with pytest.raises(WorkbookError, match="is damaged: save that model or adapter again"):
        find_adapter(str(adapter), str(TINY))


def test_the_base_is_known_by_its_hash_and_not_by_its_place(adapter, tmp_path):
    base = shutil.copytree(TINY, tmp_path / "moved")
    (adapter / "base.json").write_text(json.dumps({"base": "gone", "hash": fingerprint(str(TINY))}))
    assert find_adapter(str(adapter), str(base)) == (str(adapter), None)
    (base / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(
        WorkbookError,
        match=r"moved is not the base that the adapter .* was trained on \(hash .*MODEL",
    ):
        find_adapter(str(adapter), str(base))
    _, note = find_adapter(str(adapter), str(base), any_base=True)
    assert "is not the base" in note


def test_a_base_in_4bit_on_the_hub_is_the_same_base(adapter):
    config = json.loads((adapter / "adapter_config.json").read_text())
    named = {"base_model_name_or_path": "unsloth/qwen3-1.7b-unsloth-bnb-4bit"}
    (adapter / "adapter_config.json").write_text(json.dumps(config | named))
    assert find_adapter(str(adapter), "unsloth/Qwen3-1.7B")[1] is None
    with pytest.raises(WorkbookError, match="names another base than unsloth/Qwen3-4B"):
        find_adapter(str(adapter), "unsloth/Qwen3-4B")


def test_an_adapter_of_another_shape_is_refused(adapter):
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"r": 8}))
    with pytest.raises(
        WorkbookError, match=r"does not fit the model \(.*name the base that it was trained on"
    ):
        load_for_measuring(str(TINY), str(adapter))


@pytest.mark.parametrize("break_it", ["pickled", "no template", "no tokenizer", "torn weights"])
def test_a_broken_folder_is_refused(break_it, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(TINY, folder)
    words = "cannot be loaded"
    if break_it == "pickled":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    elif break_it == "no template":
        (folder / "chat_template.jinja").unlink()
        words = "has no chat template"
    elif break_it == "no tokenizer":
        (folder / "tokenizer.json").unlink()
        words = "has no tokenizer"
    else:
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(WorkbookError, match=words):
        load_for_measuring(find_model(str(folder)))


def test_the_fingerprint_names_the_policy_and_not_the_folder(tmp_path):
    shutil.copytree(TINY, tmp_path / "copy")
    assert fingerprint(str(tmp_path / "copy")) == fingerprint(str(TINY))
    data = bytearray((tmp_path / "copy" / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "copy" / "model.safetensors").write_bytes(data)
    assert fingerprint(str(tmp_path / "copy")) != fingerprint(str(TINY))
    assert fingerprint("someone/model") is fingerprint(None) is None


def test_a_large_file_is_hashed_in_places(tmp_path):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.truncate(200 * 2**20)
    first = fingerprint(str(tmp_path))
    with path.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")
    assert fingerprint(str(tmp_path)) != first
