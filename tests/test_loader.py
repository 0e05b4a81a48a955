"""Checkpoints with vision: the text part is trained, and the same part loaded again everywhere."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
from conftest import REPO, raises_naming, slow

from grpo_workbook.config import choose_profile
from grpo_workbook.data import chat_prompt, load_tokenizer
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate
from grpo_workbook.export import merge, save_adapter, write_card
from grpo_workbook.models import load_model, text_part

NOTEBOOKS = REPO / "notebooks" / "source"
UNSLOTH = Path(importlib.util.find_spec("unsloth").submodule_search_locations[0])
TINY = {"gemma3": REPO / "data" / "tiny-gemma3", "qwen3_5": REPO / "data" / "tiny-qwen3"}
TINY["gemma4"] = TINY["gemma3"]  # its tokenizer; the other weights of both are random
LORA = {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj", "v_proj", "down_proj"]}
PROMPT = [chat_prompt("Ada has 3 pens and buys 4 more. How many pens does Ada have now?")]


def make(family, folder):
    """A tiny checkpoint that sees, saved as a hub's is; Gemma's text part is the course's model."""
    import torch
    import transformers

    torch.manual_seed(0)
    vision = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    if family == "gemma3":
        text = transformers.AutoModelForCausalLM.from_pretrained(TINY[family], dtype="float32")
        vision |= {"num_hidden_layers": 1, "image_size": 28, "patch_size": 14}
        tokens = {"boi_token_index": 3, "eoi_token_index": 4, "image_token_index": 5}
        sizes = {"text_config": text.config.to_dict(), "mm_tokens_per_image": 4, **tokens}
        config = transformers.Gemma3Config(vision_config=vision, **sizes)
        model = transformers.Gemma3ForConditionalGeneration(config)
        model.model.language_model.load_state_dict(text.model.state_dict())
    elif family == "gemma4":
        words = len(load_tokenizer(TINY[family]))
        text = {
            "vocab_size": words, "vocab_size_per_layer_input": words, "hidden_size": 64,
            "hidden_size_per_layer_input": 0, "intermediate_size": 128, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "global_head_dim": 16, "num_kv_shared_layers": 0, "tie_word_embeddings": True,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
        }  # fmt: skip
        vision |= {"num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 16}
        config = transformers.Gemma4Config(text_config=text, vision_config=vision)
        model = transformers.Gemma4ForConditionalGeneration(config)
        # Its attention has no 1 / sqrt(head_dim): training puts that into this weight. Without it
        # a random model's attention is so sharp that rounding to bfloat16 moves logits by 3 %.
        for layer in model.model.language_model.layers:
            layer.self_attn.q_norm.weight.data.fill_(16**-0.5)
    else:
        text = {
            "vocab_size": len(load_tokenizer(TINY[family])), "hidden_size": 128,
            "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
            "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
            "tie_word_embeddings": True,
        }  # fmt: skip
        vision |= {"depth": 1, "num_heads": 2, "out_hidden_size": 128}
        sizes = {"text_config": text, "vision_config": vision, "tie_word_embeddings": True}
        model = transformers.Qwen3_5ForConditionalGeneration(transformers.Qwen3_5Config(**sizes))
    model.save_pretrained(folder)
    load_tokenizer(TINY[family]).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
@slow
def gemma(tmp_path_factory):
    return make("gemma3", tmp_path_factory.mktemp("gemma3"))


def trained(model):
    """The model, its adapters as if they had learned something."""
    import torch

    torch.manual_seed(1)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(std=0.05)
    return model.eval()


def logits(model, tokenizer):
    import torch

    ids = tokenizer.apply_chat_template(PROMPT[0], add_generation_prompt=True, return_tensors="pt")
    with torch.no_grad():
        return model(input_ids=ids["input_ids"]).logits[0].float()


def test_the_installed_unsloth_takes_what_its_loaders_are_given():
    tree = ast.parse((UNSLOTH / "models" / "loader.py").read_text(encoding="utf-8"))
    taken = {
        cls.name: {a.arg for a in fn.args.args}
        for cls in tree.body
        if isinstance(cls, ast.ClassDef)
        for fn in cls.body
        if isinstance(fn, ast.FunctionDef) and fn.name == "from_pretrained"
    }
    given = set(choose_profile().loader)
    assert given <= taken["FastLanguageModel"]
    assert given | {"text_only"} <= taken["FastModel"]


def test_a_chapter_calls_unsloths_loader_only_for_the_courses_text_models():
    """Models that see, vLLM's engine and exactly the named weights are load_policy's business."""
    sources = {path.name[:2]: path.read_text() for path in NOTEBOOKS.glob("[0-9]*.py")}
    call = re.compile(r"^[^#\n]*(loader|FastLanguageModel|FastModel)\.from_pretrained\(", re.M)
    callers = sorted(number for number, text in sources.items() if call.search(text))
    assert callers == ["04", "09"]
    assert 'MODEL = "' not in sources["04"]  # a path of the course's data, and no hub id
    assert "load_policy(profile)" in sources["04"]


def test_an_adapter_of_the_text_part_is_loaded_and_merged_with_it(gemma, tmp_path):
    """As saved by training on a GPU, where Unsloth takes the text part of the checkpoint."""
    from peft import LoraConfig, get_peft_model

    base, tokenizer = load_model(gemma)
    assert type(base).__name__ == "Gemma3ForCausalLM"
    plain = logits(base, tokenizer)
    assert (plain - logits(*load_model(TINY["gemma3"]))).abs().max() < 1e-4
    policy = trained(get_peft_model(base, LoraConfig(**LORA, task_type="CAUSAL_LM")))
    save_adapter(policy, tokenizer, tmp_path / "adapter")
    wanted, again = logits(policy, tokenizer), logits(*load_model(gemma, tmp_path / "adapter"))
    assert (wanted - plain).abs().max() > 1
    assert (wanted - again).abs().max() < 1e-4
    write_card(tmp_path / "adapter", {}, {}, base=gemma)
    card = (tmp_path / "adapter" / "README.md").read_text()
    assert 'AutoConfig.from_pretrained("' in card
    assert f"""key_mapping"] = {text_part(str(gemma))["key_mapping"]}\n""" in card
    proof = merge(None, tmp_path / "adapter", tmp_path / "merged")
    assert proof["relative_logit_difference"] < 0.02
    merged, words = load_model(tmp_path / "merged")
    assert (logits(merged, words) - wanted).abs().max() < 0.5
    assert text_part(str(tmp_path / "merged")) == {}
    answers = [
        generate(*one, PROMPT, max_new_tokens=32) for one in ((merged, words), (policy, words))
    ]
    assert answers[0] == answers[1]


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma4", "qwen3_5"])
def test_the_text_part_of_other_families_is_loaded_adapted_and_merged(family, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    folder = make(family, tmp_path / "base")
    base, tokenizer = load_model(folder)
    whole = AutoModelForImageTextToText.from_pretrained(folder, dtype="float32").eval()
    plain = logits(base, tokenizer)
    assert (plain - logits(whole, tokenizer)).abs().max() < 1e-4
    policy = trained(get_peft_model(base, LoraConfig(**LORA, task_type="CAUSAL_LM")))
    save_adapter(policy, tokenizer, tmp_path / "adapter")
    wanted, again = logits(policy, tokenizer), logits(*load_model(folder, tmp_path / "adapter"))
    spread = wanted.std()
    assert (wanted - plain).abs().max() > spread
    assert (wanted - again).abs().max() < 1e-4
    merge(None, tmp_path / "adapter", tmp_path / "merged", max_new_tokens=24)
    assert (wanted - logits(*load_model(tmp_path / "merged"))).abs().max() < 0.1 * spread


def test_an_adapter_that_finds_no_place_is_an_error(gemma, tmp_path):
    """One of the whole checkpoint: PEFT would warn, and the base be measured."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    whole = AutoModelForImageTextToText.from_pretrained(gemma, dtype="float32")
    policy = trained(get_peft_model(whole, LoraConfig(**LORA, task_type="CAUSAL_LM")))
    policy.save_pretrained(tmp_path / "adapter")
    for act in (
        lambda: load_model(gemma, tmp_path / "adapter"),
        lambda: merge(gemma, tmp_path / "adapter", tmp_path / "merged"),
    ):
        with raises_naming(WorkbookError, tmp_path / "adapter", "language_model"):
            act()
    assert not (tmp_path / "merged").exists()


def test_a_checkpoint_without_all_its_weights_is_an_error(tmp_path):
    """Transformers would fill them in at random."""
    from safetensors.torch import load_file, save_file

    folder = make("gemma3", tmp_path)
    weights = load_file(folder / "model.safetensors")
    del weights[next(name for name in weights if "layers.1.mlp.up_proj" in name)]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with raises_naming(WorkbookError, folder, "layers.1.mlp.up_proj"):
        load_model(folder)


@pytest.mark.trains
@pytest.mark.parametrize("family", TINY)
def test_what_unsloth_trains_of_a_model_that_sees_is_what_is_loaded_again(family, tmp_path):
    from grpo_workbook import load_policy
    from grpo_workbook.planning import find_shape

    folder = make(family, tmp_path / "base")
    profile = choose_profile(model=folder, load_in_4bit=False)
    policy, tokenizer = load_policy(profile)
    learning = [n for n, p in policy.named_parameters() if p.requires_grad]
    assert not [n for n in learning if "visual" in n or "vision" in n]
    expected = find_shape(str(folder)).lora(profile.lora["r"])
    assert policy.get_nb_trainable_parameters()[0] == expected
    save_adapter(trained(policy), tokenizer, tmp_path / "adapter")
    wanted, plain = logits(policy, tokenizer), logits(*load_model(folder))
    again = logits(*load_model(folder, tmp_path / "adapter"))
    assert (wanted - plain).abs().max() > 0.5
    assert (wanted - again).abs().max() < 1e-3
