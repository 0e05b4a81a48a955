"""Which of Unsloth's loaders takes a model, and what the installed Unsloth takes."""

import ast
import importlib.util
from pathlib import Path

import pytest
from conftest import REPO

from grpo_workbook.training import has_many_senses

UNSLOTH = Path(importlib.util.find_spec("unsloth").submodule_search_locations[0])


@pytest.mark.parametrize(
    ("model", "many"),
    [
        ("unsloth/Qwen3-4B", False),
        ("unsloth/gemma-3-1b-it", False),
        ("google/gemma-3-4b-it", True),
        ("unsloth/Qwen3.5-0.8B", True),
        ("google/gemma-4-E2B-it", True),
        (str(REPO / "data" / "tiny-gemma3"), False),
    ],
)
def test_checkpoints_with_vision_or_sound_are_told(model, many):
    assert has_many_senses(model) is many


def test_the_installed_unsloth_takes_what_its_loaders_are_given():
    tree = ast.parse((UNSLOTH / "models" / "loader.py").read_text(encoding="utf-8"))
    taken = {
        cls.name: {a.arg for a in fn.args.args}
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for fn in cls.body
        if isinstance(fn, ast.FunctionDef) and fn.name == "from_pretrained"
    }
    given = {"model_name", "max_seq_length", "dtype", "load_in_4bit", "use_gradient_checkpointing"}
    assert given <= taken["FastLanguageModel"]
    assert given | {"text_only"} <= taken["FastModel"]


@pytest.mark.trains
def test_the_text_part_of_a_model_that_sees_is_adapted(tmp_path):
    """A tiny Qwen3.5 with vision, loaded as a hub's would be: adapters on its text, in 4-bit."""
    import torch
    from transformers import AutoTokenizer, Qwen3_5Config, Qwen3_5ForConditionalGeneration

    from grpo_workbook import RunConfig, load_policy
    from grpo_workbook.planning import find_shape
    from grpo_workbook.training import count_trained_parameters

    tokenizer = AutoTokenizer.from_pretrained(REPO / "data" / "tiny-qwen3")
    torch.manual_seed(0)
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 128, "intermediate_size": 256,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
        "linear_value_head_dim": 32, "tie_word_embeddings": True,
    }  # fmt: skip
    vision = {"depth": 1, "hidden_size": 64, "intermediate_size": 64, "num_heads": 2}
    vision["out_hidden_size"] = 128
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert has_many_senses(str(tmp_path))
    run = RunConfig.from_env(model=str(tmp_path))
    model, _ = load_policy(run)
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    assert learning
    assert not [n for n in learning if "visual" in n or "vision" in n]
    assert count_trained_parameters(model) == find_shape(str(tmp_path)).lora(run.lora_rank)
