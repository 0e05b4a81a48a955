"""The formulas against what the tiny models really hold. Only the assumed parts (reserve, pieces of logits) are not."""

import pytest
import torch
from conftest import REPO

from grpo_workbook.config import PROFILES, replace_settings
from grpo_workbook.planning.architectures import ADAPTED, architecture
from grpo_workbook.planning.memory import (
    ADAPTER_BYTES,
    activation_bytes,
    activation_value_bytes,
    kv_cache_bytes,
    logits_bytes,
    memory,
    weight_bytes,
)

FOLDERS = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
RANK, ROWS, TOKENS = 16, 4, 96


def load(family: str, dtype: str, four_bit: bool):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    ) if four_bit else None  # fmt: skip
    return AutoModelForCausalLM.from_pretrained(
        FOLDERS[family], dtype=dtype, quantization_config=quantization
    )


def adapted(model):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=list(ADAPTED), task_type="CAUSAL_LM"
    )
    model = get_peft_model(model, config).train()
    model.enable_input_require_grads()
    return model


@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize(
    ("dtype", "four_bit"), [("bfloat16", True), ("bfloat16", False), ("float32", True)]
)
def test_weights(family, dtype, four_bit):
    """4-bit weights with the scales that bitsandbytes keeps for them, and what stays wide beside them."""
    model = load(family, dtype, four_bit)
    held = sum(p.numel() * p.element_size() for p in model.parameters())
    for p in model.parameters():
        if hasattr(p, "quant_state"):
            held += p.quant_state.absmax.nbytes + p.quant_state.state2.absmax.nbytes
    assert weight_bytes(architecture(FOLDERS[family]), dtype, four_bit) == pytest.approx(
        held, rel=0.01
    )


def test_adapters_and_the_state_of_adamw():
    model = adapted(load("qwen", "bfloat16", True))
    trained = [p for p in model.parameters() if p.requires_grad]
    model(
        input_ids=torch.randint(5, 200, (1, 8)), labels=torch.randint(5, 200, (1, 8))
    ).loss.backward()
    optimizer = torch.optim.AdamW(trained, fused=True)
    optimizer.step()
    state = sum(
        t.nbytes for s in optimizer.state.values() for name, t in s.items() if name != "step"
    )
    said = memory(
        architecture(FOLDERS["qwen"]), replace_settings(PROFILES["smoke"], {"lora_rank": RANK})
    ).always
    assert said["LoRA adapters"] == sum(p.nbytes for p in trained)
    assert said["their gradients"] == sum(p.grad.nbytes for p in trained)
    assert said["optimizer (AdamW)"] == state
    assert {p.element_size() for p in trained} == {ADAPTER_BYTES}


@pytest.mark.parametrize("family", FOLDERS)
def test_the_cache_of_a_real_generation(family, tiny):
    model, tokenizer = tiny[family]
    ids = torch.randint(5, 200, (3, 30))
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=70, min_new_tokens=70, do_sample=False,
        pad_token_id=tokenizer.pad_token_id, return_dict_in_generate=True,
    )  # fmt: skip
    held = sum(t.nbytes for layer in out.past_key_values.layers for t in (layer.keys, layer.values))
    # the last token is written and never read: 99 of 100 are in the cache
    assert kv_cache_bytes(architecture(FOLDERS[family]), 3, 99, "float32") == held


def test_a_window_and_a_state_do_not_grow():
    gemma, hybrid = architecture("gemma-3-1b"), architecture("qwen3.5-0.8b")
    grown = gemma.cached(4096) - gemma.cached(2048)
    assert grown == 2048 * 4 * 2 * 256  # of 26 layers, four look at everything
    assert hybrid.cached(0) > 0
    assert hybrid.cached(2048) - hybrid.cached(1024) == 1024 * 6 * 2 * 2 * 256  # six of 24


def test_the_state_of_a_linear_attention_is_what_transformers_keeps():
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    config = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 2,
              "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64, "linear_num_key_heads": 2,
              "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
              "linear_conv_kernel_dim": 4}  # fmt: skip
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING["qwen3_5_text"](**config)).eval()
    from grpo_workbook.planning.architectures import from_config

    with torch.no_grad():
        cache = model(torch.randint(0, 64, (2, 12)), use_cache=True).past_key_values
    held = 0
    for layer in cache.layers:
        for name in ("keys", "values", "conv_states", "recurrent_states"):
            held += sum(t.nbytes for t in tensors(getattr(layer, name, None)))
    found = from_config(config | {"model_type": "qwen3_5_text"})
    assert kv_cache_bytes(found, 2, 12, "float32") == pytest.approx(held, rel=0.1)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for v in value.values() for t in tensors(v)]
    return [t for v in value for t in tensors(v)] if isinstance(value, list | tuple) else []


def test_logits(tiny):
    model, _ = tiny["qwen"]
    with torch.no_grad():
        real = model(torch.randint(5, 200, (2, 7))).logits
    assert logits_bytes(architecture(FOLDERS["qwen"]), 2, 7) == real.nbytes


def kept_for_backward(model, autocast: bool) -> int:
    """Bytes that autograd keeps of a forward pass through the decoder, each storage once, weights left out."""
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    held, alive = {}, []

    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
            alive.append(t)  # or its place would be used again
        return t

    hooks = torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t)
    with hooks, torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        model.base_model.model.model(input_ids=torch.randint(5, 200, (ROWS, TOKENS)))
    return sum(held.values())


@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_with_and_without_checkpointing(family, dtype):
    """Within 7 %, by what autograd itself says that it keeps."""
    a, model = architecture(FOLDERS[family]), adapted(load(family, dtype, False))
    each = activation_value_bytes(a, dtype)
    whole = activation_bytes(a, ROWS, TOKENS, RANK, each, False)["activations of all layers"]
    assert whole == pytest.approx(kept_for_backward(model, dtype == "bfloat16"), rel=0.07)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = activation_bytes(a, ROWS, TOKENS, RANK, each, True)["inputs of all layers"]
    # one more vector than layers: the last norm's input (in 32 bits)
    more = ROWS * TOKENS * 4 * (a.hidden + 1)
    assert inputs + more == pytest.approx(kept_for_backward(model, dtype == "bfloat16"), rel=0.07)


def test_float16_is_computed_in_32_bits_where_unsloth_forces_it():
    """The families that we name are those that the installed Unsloth names."""
    import ast
    import importlib.util
    from pathlib import Path

    source = Path(
        importlib.util.find_spec("unsloth").submodule_search_locations[0], "models", "loader.py"
    ).read_text()
    named = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == "_FORCE_FLOAT32_FALLBACK"
    )
    forced = {name.rstrip(",").replace("_", "") for name in named}
    for name, width in (("gemma-3-1b", 4), ("gemma-4-e2b", 4), ("qwen3.5-4b", 4), ("qwen3-4b", 2)):
        a = architecture(name)
        assert activation_value_bytes(a, "float16") == width
        assert activation_value_bytes(a, "bfloat16") == 2
        assert (a.model_type.removesuffix("_text").replace("_", "") in forced) == (width == 4)


def test_processes_share_the_batch_and_not_the_model():
    a, s = architecture("qwen3-4b"), PROFILES["t4"]
    one, four = memory(a, s), memory(a, s, 4)
    assert one.always == four.always
    assert four.generation["KV cache"] == one.generation["KV cache"] / 4
    assert one.total == max(one.generating, one.learning)
