import json

import pytest
from conftest import REPO

from grpo_workbook.errors import WorkbookError
from grpo_workbook.planning.architectures import (
    KNOWN,
    MODEL_TYPES,
    architecture,
    from_config,
    short_name,
)


def on_meta(config: dict):
    """The real model of a text config, without memory: (model, its class's name)."""
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    values = {k: v for k, v in config.items() if k not in ("model_type", "sliding_window_pattern")}
    if config["model_type"] == "gemma4_text":
        every, count = config["sliding_window_pattern"], config["num_hidden_layers"]
        values["layer_types"] = [
            "sliding_attention" if (i + 1) % every else "full_attention" for i in range(count)
        ]
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(CONFIG_MAPPING[config["model_type"]](**values))


@pytest.mark.parametrize("name", KNOWN)
def test_every_model_of_the_table_counts_as_transformers_builds_it(name):
    config, _, billions = KNOWN[name]
    model, found = on_meta(config), architecture(name)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.parameters / 1e9 == pytest.approx(billions, rel=0.005)
    linear = [
        m for n, m in model.named_modules() if m.__class__.__name__ == "Linear" and ".layers." in n
    ]
    assert found.quantizable == sum(m.weight.numel() for m in linear)
    # 4-bit leaves the head alone, and Transformers builds each projection with the width that we count
    assert len(linear) == sum(len(layer.linear) for layer in found.layers)


def test_adapters_count_as_peft_does():
    from peft import LoraConfig, get_peft_model

    for name in ("qwen3-0.6b", "gemma-3-270m", "qwen3.5-0.8b", "gemma-4-e2b"):
        model = on_meta(KNOWN[name][0])
        adapters = LoraConfig(
            r=8,
            target_modules=[
                "q_proj",
                "k_proj",
                "v_proj",
                "o_proj",
                "gate_proj",
                "up_proj",
                "down_proj",
            ],
            task_type="CAUSAL_LM",
        )
        trained = sum(
            p.numel() for p in get_peft_model(model, adapters).parameters() if p.requires_grad
        )
        assert architecture(name).lora(8) == trained


@pytest.mark.parametrize("folder", ["tiny-qwen3", "tiny-gemma3", "tiny-coder"])
def test_a_local_folder_counts_as_its_file_does(folder):
    from safetensors import safe_open

    with safe_open(REPO / "data" / folder / "model.safetensors", "pt") as file:
        held = sum(file.get_tensor(k).numel() for k in file.keys())  # noqa: SIM118
    assert architecture(REPO / "data" / folder).parameters == held


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("unsloth/Qwen3-4B-Instruct-2507-unsloth-bnb-4bit", "qwen3-4b"),
        ("Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"),
        ("google/gemma-3-1b-it", "gemma-3-1b"),
        ("google/gemma-4-E2B", "gemma-4-e2b"),
        ("someone/Qwen3-4B-poems", "qwen3-4b-poems"),
    ],
)
def test_names_of_variants(name, short):
    assert short_name(name) == short


def test_the_text_part_of_a_model_with_vision(tmp_path):
    text = dict(KNOWN["gemma-3-4b"][0])
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {}})
    )
    assert architecture(tmp_path).parameters == architecture("gemma-3-4b").parameters


def test_a_hub_model_in_the_cache_needs_no_network(tmp_path, monkeypatch):
    from huggingface_hub import constants

    snapshot = tmp_path / "models--me--Qwen3-mine" / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(KNOWN["qwen3-0.6b"][0]))
    refs = tmp_path / "models--me--Qwen3-mine" / "refs"
    refs.mkdir()
    (refs / "main").write_text("a" * 40)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert architecture("me/Qwen3-mine").parameters == architecture("qwen3-0.6b").parameters


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("[]", "not a JSON object"),
        ('{"model_type": "mamba"}', "is a 'mamba': the estimate knows qwen2, qwen3"),
        ('{"model_type": "qwen3", "hidden_size": 8}', "lacks a value"),
        (
            '{"model_type": "qwen3", "hidden_size": "wide", "vocab_size": 3, "num_hidden_layers": null}',
            "a wrong one",
        ),
        (
            json.dumps({**KNOWN["qwen3-0.6b"][0], "layer_types": ["full_attention"] * 3}),
            "28 layers of 3 types",
        ),
        (
            json.dumps({**KNOWN["qwen3-0.6b"][0], "num_hidden_layers": -1}),
            "a wrong one .*copy it again",
        ),
        (
            json.dumps({**KNOWN["gemma-3-1b"][0], "sliding_window_pattern": 0}),
            "a wrong one .*copy it again",
        ),
    ],
)
def test_configs_that_cannot_be_read_are_said(tmp_path, config, message):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(WorkbookError, match=message):
        architecture(tmp_path)


@pytest.mark.parametrize("name", ["llama", "org/Llama-3-8B", "a/b/c", "", "Qwen/Qwen9-1T", "../.."])
def test_what_is_not_known_is_said(name):
    with pytest.raises(WorkbookError, match=r"not known here|no config\.json"):
        architecture(name)


def test_every_model_type_builds_without_a_table_entry():
    assert {KNOWN[n][0]["model_type"] for n in KNOWN} | {"qwen2"} == set(MODEL_TYPES)
    qwen2 = {"model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}  # fmt: skip
    assert from_config(qwen2).parameters == sum(p.numel() for p in on_meta(qwen2).parameters())
