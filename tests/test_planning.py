"""Memory before a run: every formula against what tiny models really hold, and what the plan says.

Only the assumed parts (the reserve, the pieces of the logits) are compared with nothing.
"""

import ast
import importlib.util
import json
import sys
from itertools import chain
from pathlib import Path

import pytest
import torch
from conftest import REPO, assert_names, finished, raises_naming

from grpo_workbook.cli import main
from grpo_workbook.config import BATCH, PROFILES, TARGET_MODULES, choose_profile
from grpo_workbook.errors import WorkbookError
from grpo_workbook.planning import (
    FORCED_32_BIT,
    GIB,
    KNOWN,
    Shape,
    activation_bytes,
    find_shape,
    kv_cache_bytes,
    logits_bytes,
    memory,
    peak,
    plan,
    weight_bytes,
)

FOLDERS = {"qwen": REPO / "data" / "tiny-qwen3", "gemma": REPO / "data" / "tiny-gemma3"}
RANK, ROWS, TOKENS = 16, 4, 96
# What their makers publish, in billions; of Qwen3.5 and Gemma 4 the text part, which is ours.
BILLIONS = {
    "qwen3-0.6b": 0.596, "qwen3-1.7b": 1.72, "qwen3-4b": 4.02, "qwen3-8b": 8.19,
    "gemma-3-270m": 0.268, "gemma-3-1b": 1.00, "gemma-3-4b": 3.88, "gemma-3-12b": 11.77,
    "qwen3.5-0.8b": 0.75, "qwen3.5-4b": 4.21, "gemma-4-e2b": 4.63, "gemma-4-e4b": 7.46,
}  # fmt: skip


def tiny_shape(family: str) -> Shape:
    return find_shape(str(FOLDERS[family]))


def load(family: str, dtype: str, four_bit: bool):
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    ) if four_bit else None  # fmt: skip
    return AutoModelForCausalLM.from_pretrained(
        FOLDERS[family], dtype=dtype, quantization_config=quantization
    )


def adapted(model, rank=RANK):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, target_modules=list(TARGET_MODULES), task_type="CAUSAL_LM")
    model = get_peft_model(model, config).train()
    model.enable_input_require_grads()
    return model


# ---- what a model is made of


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_model_has_the_weights_that_are_published(name):
    shape = find_shape(name)
    assert shape.weights[0] / 1e9 == pytest.approx(BILLIONS[name], rel=0.005)
    linear = [
        m for n, m in shape.model.named_modules() if type(m) is torch.nn.Linear and ".layers." in n
    ]
    assert shape.weights[1] == sum(m.weight.numel() for m in linear)


@pytest.mark.parametrize("name", ["qwen3-0.6b", "gemma-3-270m", "qwen3.5-0.8b", "gemma-4-e2b"])
def test_adapters_count_as_peft_does(name):
    from accelerate import init_empty_weights
    from transformers import AutoModelForCausalLM

    config = find_shape(name).model.config
    with init_empty_weights():
        model = adapted(AutoModelForCausalLM.from_config(config), 8)
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert find_shape(name).lora(8) == trained


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("unsloth/Qwen3-4B-Instruct-2507-unsloth-bnb-4bit", "qwen3-4b"),
        ("Qwen/Qwen3-0.6B-Base", "qwen3-0.6b"),
        ("google/gemma-3-1b-it", "gemma-3-1b"),
    ],
)
def test_a_known_model_is_found_by_the_names_of_its_variants(name, known):
    assert find_shape(name).weights == find_shape(known).weights


def test_a_folder_of_any_architecture_is_counted_and_of_one_with_vision_its_text(tmp_path):
    llama = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(llama))
    shape = find_shape(str(tmp_path))
    projections = chain.from_iterable(layer.values() for layer in shape.layers)
    assert shape.lora(1) == sum(inputs + outputs for inputs, outputs in projections if outputs)
    assert shape.cached(10) == 2 * 10 * 2 * 2 * 16
    vision = tmp_path / "vision"
    vision.mkdir()
    (vision / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": KNOWN["gemma-3-4b"]})
    )
    assert find_shape(str(vision)).weights == find_shape("gemma-3-4b").weights


@pytest.mark.parametrize(
    "config", ["[]", "{", '{"model_type": "qwen3", "hidden_size": "wide"}', "{}"]
)
def test_a_config_that_cannot_be_built_is_an_error(tmp_path, config):
    (tmp_path / "config.json").write_text(config)
    with raises_naming(WorkbookError, tmp_path):
        find_shape(str(tmp_path))


@pytest.mark.parametrize("name", ["llama", "org/no-such-model", "a/b/c", "", "../.."])
def test_an_unknown_model_is_named_with_those_that_are_known(name):
    with raises_naming(WorkbookError, repr(name), *KNOWN):
        find_shape(name)


# ---- bytes, against what is really held


@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize(
    ("dtype", "four_bit"), [("bfloat16", True), ("bfloat16", False), ("float32", True)]
)
def test_weights_are_those_that_a_loaded_model_holds(family, dtype, four_bit):
    """4-bit weights with the scales that bitsandbytes keeps, and what stays wide beside them."""
    model = load(family, dtype, four_bit)
    held = sum(p.nbytes for p in model.parameters())
    for p in model.parameters():
        if hasattr(p, "quant_state"):
            held += p.quant_state.absmax.nbytes + p.quant_state.state2.absmax.nbytes
    assert weight_bytes(tiny_shape(family), dtype, four_bit) == pytest.approx(held, rel=0.01)


# A step with Float32Adapters and one without: the adapters' types and bytes in it.
ONE_STEP = """
import json, sys
import unsloth
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from grpo_workbook import Float32Adapters, choose_profile, data, load_policy, load_problems
from grpo_workbook import to_dataset

class Count(TrainerCallback):
    def on_optimizer_step(self, args, state, control, model, optimizer, **kwargs):
        learned = [p for p in model.parameters() if p.requires_grad]
        moments = [t for s in optimizer.state.values() for k, t in s.items() if k != "step"]
        sizes = [sum(t.nbytes for t in held)
                 for held in (learned, [p.grad for p in learned], moments)]
        print("FOUND", json.dumps([sorted({str(p.dtype) for p in learned}), sizes]))

def later_is_better(completions, **columns):
    return [float(i) for i in range(len(completions))]

sizes = {"max_steps": 1, "per_device_train_batch_size": 8, "max_completion_length": 8}
profile = choose_profile("smoke", grpo=sizes)
args = GRPOConfig(output_dir=sys.argv[1], **profile.grpo)
rows = to_dataset(load_problems(data.WORD_PROBLEMS["train"]).select(range(8)))
for stock in (False, True):
    model, tokenizer = load_policy(profile)
    before = [p.clone() for p in model.parameters() if p.requires_grad]
    parts = {"processing_class": tokenizer, "callbacks": [Count()]}
    if not stock:
        parts["callbacks"].append(Float32Adapters(model))
    trainer = GRPOTrainer(model, [later_is_better], args, rows, **parts)
    kept = [p for p in model.parameters() if p.requires_grad]
    print("FOUND", json.dumps(all((a == b).all().item() for a, b in zip(before, kept))))
    trainer.train()
"""


@pytest.mark.trains
def test_adapters_and_the_state_of_adamw_in_a_trainer(tmp_path):
    """TRL changes the adapters' type while it is built, so this looks after a step."""
    result = finished([sys.executable, "-c", ONE_STEP, str(tmp_path)])
    assert result.returncode == 0, result.stderr[-3000:]
    lines = [line for line in result.stdout.splitlines() if line.startswith("FOUND")]
    found = [json.loads(line.removeprefix("FOUND")) for line in lines]
    same, course, rounded, stock = found
    assert same
    assert not rounded  # TRL's cast costs the adapters their last digits
    said = memory(tiny_shape("qwen"), plan("qwen", "smoke", lora_rank=RANK).settings)["always"]
    sizes = [said[part] for part in ("LoRA adapters", "their gradients", "optimizer (AdamW)")]
    assert course == [["torch.float32"], sizes]
    assert stock == [["torch.bfloat16"], [size / 2 for size in sizes]]


@pytest.mark.parametrize("family", FOLDERS)
def test_the_cache_of_a_real_generation(family, tiny):
    model, tokenizer = tiny[family]
    ids = torch.randint(5, 200, (3, 30))
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=70, min_new_tokens=70,
        do_sample=False, pad_token_id=tokenizer.pad_token_id, return_dict_in_generate=True,
    )  # fmt: skip
    held = sum(layer.keys.nbytes + layer.values.nbytes for layer in out.past_key_values.layers)
    # the last token is written and never read: 99 of 100 are in the cache
    assert kv_cache_bytes(tiny_shape(family), 3, 99, "float32") == held


@pytest.mark.slow
def test_a_window_and_a_state_do_not_grow():
    gemma, hybrid = find_shape("gemma-3-1b"), find_shape("qwen3.5-0.8b")
    grown = gemma.cached(4096) - gemma.cached(2048)
    assert grown == 2048 * 4 * 2 * 256  # of 26 layers, four look at everything
    assert hybrid.cached(512) - hybrid.cached(256) == 256 * 6 * 2 * 2 * 256  # six of 24
    assert hybrid.cached(1) > 10**6


def test_logits_are_those_that_a_model_returns(tiny):
    with torch.no_grad():
        real = tiny["qwen"][0](torch.randint(5, 200, (2, 7))).logits
    assert logits_bytes(tiny_shape("qwen"), 2, 7) == real.nbytes


def kept_for_backward(model, autocast: bool) -> int:
    """Bytes that autograd keeps of the decoder's forward pass, each storage once, no weights."""
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
    shape, model, each = (
        tiny_shape(family),
        adapted(load(family, dtype, False)),
        4 if dtype == "float32" else 2,
    )
    whole = activation_bytes(shape, ROWS * TOKENS, RANK, each, False)["activations of all layers"]
    assert whole == pytest.approx(kept_for_backward(model, dtype == "bfloat16"), rel=0.07)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    inputs = activation_bytes(shape, ROWS * TOKENS, RANK, each, True)["inputs of all layers"]
    # one more vector than layers: the last norm's input (in 32 bits)
    more = ROWS * TOKENS * 4 * (shape.model.config.hidden_size + 1)
    assert inputs + more == pytest.approx(kept_for_backward(model, dtype == "bfloat16"), rel=0.07)


def test_float16_is_computed_in_32_bits_where_the_installed_unsloth_forces_it():
    folder = Path(importlib.util.find_spec("unsloth").submodule_search_locations[0])
    named = next(
        ast.literal_eval(node.value)
        for node in ast.walk(ast.parse((folder / "models" / "loader.py").read_text()))
        if isinstance(node, ast.Assign)
        and getattr(node.targets[0], "id", "") == "_FORCE_FLOAT32_FALLBACK"
    )
    forced = {name.rstrip(",").replace("_", "") for name in named}
    kinds = {config["model_type"] for config in KNOWN.values()}
    for kind in kinds:
        plain = kind.removesuffix("_text").replace("_", "")
        assert (plain in forced) == (kind in FORCED_32_BIT), kind


# ---- the plan


def test_of_sampling_and_learning_the_larger_counts():
    parts = plan("qwen3-4b", "t4").parts
    sums = {phase: sum(sizes.values()) for phase, sizes in parts.items()}
    assert peak(parts) == sums["always"] + max(sums["sampling"], sums["learning"])


@pytest.mark.slow
@pytest.mark.parametrize("family", FOLDERS)
@pytest.mark.parametrize("profile", sorted(set(PROFILES) - {"smoke"}))
def test_every_profile_fits_its_gpu_on_paper(family, profile):
    found = plan(family, profile)
    assert found.fits, str(found)
    assert max(map(len, str(found).splitlines())) <= 80


@pytest.mark.slow
def test_what_does_not_fit_gets_the_cheapest_changes_in_order():
    found = plan(
        "unsloth/gemma-3-4b-it",
        "t4",
        load_in_4bit=False,
        gradient_checkpointing=False,
        gradient_accumulation_steps=8,
    )
    assert found.fits is False
    pieces, four_bit, rounds = found.changes
    assert pieces.fields == {
        "per_device_train_batch_size": (8, 1),
        "gradient_accumulation_steps": (8, 64),
    }
    assert four_bit.fields == {"load_in_4bit": (False, True)}
    assert rounds.fields == {"steps_per_generation": (None, 32)}
    assert rounds.peak <= found.usable < four_bit.peak < pieces.peak < found.peak
    done = plan(
        "unsloth/gemma-3-4b-it",
        "t4",
        per_device_train_batch_size=1,
        gradient_accumulation_steps=64,
        steps_per_generation=32,
        gradient_checkpointing=False,
    )
    assert done.peak == rounds.peak
    assert done.fits
    assert done.changes == []
    assert "steps_per_generation -> 32" in str(found)
    assert "choose a smaller model or a larger GPU" in str(plan("qwen3-8b", "t4", lora_rank=4000))


def test_vllm_takes_its_part_and_needs_room():
    found = plan("qwen3-4b", "24gb")
    held = found.parts["always"]["KV cache of vLLM"] + found.parts["always"]["weights"]
    assert held == pytest.approx(0.3 * 22.1 * GIB)
    assert found.parts["sampling"] == {}
    with raises_naming(WorkbookError, "vllm_gpu_memory_utilization=0.1", "use_vllm=False"):
        plan("qwen3-4b", "24gb", vllm_gpu_memory_utilization=0.1)


def test_the_tiny_model_has_no_limit_until_one_is_given():
    found = plan("qwen", "smoke")
    assert found.fits is None
    assert "give it with --memory" in str(found)
    assert plan("qwen", "smoke", gib=8).fits


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--model", "llama"], ["llama", "qwen3-0.6b"]),
        (["--profile", "h100"], ["'h100'", *PROFILES]),
        (["--gradient-accumulation-steps", "33", "--num-generations", "5"], [264, 5]),
        (["--memory", "-3"], ["-3 GiB"]),
        (["--use-vllm", "maybe"], ["maybe"]),
    ],
)
def test_bad_input_is_named_with_exit_status_2(arguments, named, capsys):
    assert main(["plan", *arguments]) == 2
    assert_names(capsys.readouterr().err, *named)


def test_the_command_says_by_its_status_whether_it_fits(capsys):
    assert main(["plan", "--model", "qwen3-0.6b"]) == 0
    assert main(["plan", "--model", "qwen3-8b", "--no-load-in-4bit"]) == 1
    out = capsys.readouterr().out
    assert "It fits: 13.52 GiB are usable" in out
    assert "load_in_4bit False -> True" in out


def test_the_command_reads_names_of_layers_as_a_run_does(capsys):
    printed = []
    for names in ("q_proj,v_proj", "q_proj, v_proj"):
        assert main(["plan", "--model", "qwen3-0.6b", "--target-modules", names]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]


def test_a_profile_counts_as_its_name_does():
    """A Profile has the values of this machine; its name has those of the profile's own GPU."""
    profile = choose_profile("smoke", lora_rank=4, grpo={"max_completion_length": 32})
    by_object = plan(profile.model, profile, gib=8)
    by_name = plan("qwen", "smoke", gib=8, lora_rank=4, max_completion_length=32)
    assert by_object == by_name


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"num_generations": 1}, "groups of 1"),
        ({"num_generations": 7}, "groups of 7"),
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"dtype": "int8"}, "'int8'"),
        ({"gib": float("nan")}, "nan GiB"),
    ],
)
def test_impossible_values_are_named(values, named):
    with raises_naming(WorkbookError, named):
        plan("qwen", "smoke", **values)


# ---- mixtures of experts


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """The folder of a tiny mixture of experts with random weights."""
    from transformers import AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

    folder = tmp_path_factory.mktemp("mixture")
    config = Qwen3MoeConfig(
        vocab_size=640, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=48, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    Qwen3MoeForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    AutoTokenizer.from_pretrained(FOLDERS["qwen"]).save_pretrained(folder)
    return folder


def policy_of(folder, **settings):
    from grpo_workbook.training import load_policy

    return load_policy(choose_profile("smoke", model=folder, **settings), "plain")


@pytest.mark.parametrize("modules", [TARGET_MODULES, ("q_proj", "v_proj")])
def test_a_mixture_of_experts_counts_as_it_is_loaded(mixture, modules):
    model, _ = policy_of(mixture, lora_rank=4, target_modules=modules)
    shape = find_shape(str(mixture))
    learned = [p for p in model.parameters() if p.requires_grad]
    assert shape.lora(4, modules) == sum(p.numel() for p in learned)
    held = -sum(p.nbytes for p in learned)
    for p in model.parameters():
        held += p.nbytes
        if hasattr(p, "quant_state"):
            held += p.quant_state.absmax.nbytes + p.quant_state.state2.absmax.nbytes
    assert weight_bytes(shape, "float32", True) == pytest.approx(held, rel=0.01)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_of_a_mixture_of_experts(mixture, dtype):
    """Within 15 %, by what autograd keeps: the experts with their adapters are a part of it."""
    from transformers import AutoModelForCausalLM

    shape = find_shape(str(mixture))
    model = adapted(AutoModelForCausalLM.from_pretrained(mixture, dtype=dtype))
    width = 4 if dtype == "float32" else 2
    counted = activation_bytes(shape, ROWS * TOKENS, RANK, width, False)
    counted = counted["activations of all layers"] + shape.expert_weights * width
    assert counted == pytest.approx(kept_for_backward(model, dtype == "bfloat16"), rel=0.15)


def test_a_plan_for_a_mixture_says_what_was_not_measured(mixture, capsys):
    assert main(["plan", "--model", str(mixture), "--memory", "8"]) == 0
    printed = capsys.readouterr().out
    assert_names(printed, "computed", "experts", "not measured")
    assert max(map(len, printed.splitlines())) <= 80 + len(str(mixture))


def test_adapters_on_the_experts_are_the_first_to_go_where_they_do_not_fit():
    from transformers import Qwen3MoeConfig

    config = Qwen3MoeConfig(
        hidden_size=1024, num_hidden_layers=4, num_experts=64, moe_intermediate_size=768,
        num_attention_heads=8, num_key_value_heads=2, head_dim=128, vocab_size=32_000,
    )  # fmt: skip
    settings = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}
    planned = plan(config, "t4", gib=4, lora_rank=64, num_generations=8, **settings)
    (change,) = planned.changes
    assert change.fields == {"target_modules": (TARGET_MODULES, TARGET_MODULES[:4])}
    assert change.peak <= planned.usable < planned.peak
    assert "target_modules -> q_proj,k_proj,v_proj,o_proj" in str(planned)


def test_experts_learn_and_sample_in_4_bit(mixture):
    model, _ = policy_of(mixture, lora_rank=4)
    ids = torch.randint(5, 600, (2, 12))
    model.train()
    model(input_ids=ids, labels=ids).loss.backward()
    learned = [n for n, p in model.named_parameters() if p.requires_grad and p.grad is not None]
    assert any(".experts." in name for name in learned)
    model.eval()
    assert model.generate(input_ids=ids, max_new_tokens=3, do_sample=False).shape[1] > 12


def test_experts_that_peft_does_not_find_by_itself_get_adapters(tmp_path):
    from transformers import AutoTokenizer, MixtralConfig, MixtralForCausalLM

    config = MixtralConfig(
        vocab_size=640, hidden_size=64, intermediate_size=48, num_hidden_layers=1,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, eos_token_id=1,
    )  # fmt: skip
    MixtralForCausalLM(config).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(FOLDERS["qwen"]).save_pretrained(tmp_path)
    model, _ = policy_of(tmp_path, lora_rank=4, load_in_4bit=False)
    learned = {n: p.numel() for n, p in model.named_parameters() if p.requires_grad}
    assert any(".experts." in name for name in learned)
    assert find_shape(str(tmp_path)).lora(4) == sum(learned.values())
    with raises_naming(WorkbookError, "c_attn"):
        policy_of(tmp_path, target_modules=["c_attn"])
    with raises_naming(WorkbookError, "vproj"):  # which PEFT leaves out without a word
        policy_of(tmp_path, target_modules=["q_proj", "vproj"])
    with raises_naming(WorkbookError, "c_attn"):
        plan(str(tmp_path), "t4", target_modules=["c_attn"])


@pytest.mark.slow
def test_a_mixture_with_adapters_on_its_experts_merges_and_is_proved(mixture, tmp_path):
    from grpo_workbook.export import is_proved, merge, save_adapter

    model, tokenizer = policy_of(mixture, lora_rank=4)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.05)
    save_adapter(model, tokenizer, tmp_path / "adapter")
    proof = merge(None, tmp_path / "adapter", tmp_path / "merged", max_new_tokens=16)
    assert is_proved(proof)


# ---- generation batches


@pytest.mark.parametrize(
    "settings",
    [
        {"per_device_train_batch_size": 8},
        {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        {"per_device_train_batch_size": 8, "steps_per_generation": 16},
        {"per_device_train_batch_size": 8, "generation_batch_size": 128},
        {"per_device_train_batch_size": 4, "steps_per_generation": 2},
        {"per_device_train_batch_size": 2, "generation_batch_size": 8},
        {
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 4,
            "generation_batch_size": 8,
        },
    ],
)
def test_completions_are_sampled_at_once_as_trl_counts_them(settings, tmp_path):
    from trl import GRPOConfig

    shared = {"max_completion_length": 64, "num_generations": 8, "use_cpu": True, "bf16": False}
    args = GRPOConfig(str(tmp_path), **shared, **settings)
    planned = plan("qwen3-0.6b", args, gib=24)
    assert planned.settings.generation_batch_size == args.generation_batch_size
    cache = kv_cache_bytes(
        find_shape("qwen3-0.6b"), args.generation_batch_size, 512 + 64, "float32"
    )
    assert planned.parts["sampling"]["KV cache"] == cache
    spelt_out = plan("qwen3-0.6b", "t4", gib=24, num_generations=8,
                     **{"gradient_accumulation_steps": 1, **settings})  # fmt: skip
    assert spelt_out.settings.generation_batch_size == args.generation_batch_size


def test_a_generation_batch_that_trl_refuses_is_refused():
    with raises_naming(WorkbookError, "generation_batch_size is 12", "8"):
        plan("qwen", "smoke", per_device_train_batch_size=8, generation_batch_size=12)
    with raises_naming(WorkbookError, "steps_per_generation", "generation_batch_size"):
        plan("qwen", "smoke", steps_per_generation=2, generation_batch_size=16)


def test_fewer_completions_at_once_are_proposed_where_sampling_does_not_fit():
    settings = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    planned = plan("qwen3-4b", "t4", steps_per_generation=64, num_generations=8, **settings)
    assert planned.fits is False
    changed = [name for change in planned.changes for name in change.fields]
    assert "steps_per_generation" in changed
    assert planned.changes[-1].peak <= planned.usable


def test_the_same_step_is_sampled_in_rounds_of_whole_groups_where_memory_is_short():
    planned = plan("qwen3-4b", "t4", gib=11.6, gradient_accumulation_steps=8)
    (rounds,) = planned.changes
    assert rounds.fields == {"steps_per_generation": (None, 4)}  # two rounds of 32
    assert rounds.peak == plan("qwen3-4b", "t4").peak  # of a step of 32
    # A step of nine groups has no half of whole groups: three rounds are still too much, nine fit.
    odd = plan("qwen3-4b", "t4", gib=11.6, num_generations=16, gradient_accumulation_steps=18)
    (rounds,) = odd.changes
    assert rounds.fields == {"steps_per_generation": (None, 2)}
    assert rounds.peak <= odd.usable


@pytest.mark.parametrize("profile", ["t4", "24gb", "80gb"])
def test_thinking_fits_every_profile_on_paper_and_its_cost_is_named(profile, capsys):
    usual, thinking = plan("qwen", profile), plan("qwen", profile, thinking=True)
    assert thinking.fits
    assert thinking.settings.max_completion_length > usual.settings.max_completion_length
    assert thinking.settings.completions_per_step == usual.settings.completions_per_step
    times = thinking.settings.max_completion_length / usual.settings.max_completion_length
    # Its peak is compared with that of shorter completions in the same batches.
    batch = {name: getattr(thinking.settings, name) for name in BATCH}
    shorter = plan("qwen", profile, **batch)
    peaks = [f"{planned.peak / GIB:.2f} GiB" for planned in (thinking, shorter)]
    assert_names(thinking.notes[-1], f"{times:.1f} times", *peaks)
    assert main(["plan", "--profile", profile, "--thinking"]) == 0
    assert peaks[0] in " ".join(capsys.readouterr().out.split())


def test_a_profile_that_thinks_keeps_its_lengths_in_the_plan():
    table = PROFILES["smoke"]
    answers, thoughts = (table[name]["max_completion_length"] for name in ("grpo", "thinking"))
    shorter = {"grpo": {"max_completion_length": 40}}
    equal = {"grpo": {"max_completion_length": answers}}
    for options, length in (({}, thoughts), (shorter, 40), (equal, answers)):
        profile = choose_profile("smoke", thinking=True, **options)
        planned = plan("qwen", profile, thinking=True)
        assert planned.settings.max_completion_length == length
        assert_names(planned.notes[-1], f"up to {length} tokens instead of {answers}")


def test_a_length_of_the_users_wins_over_that_of_thoughts():
    planned = plan("qwen", "smoke", max_completion_length=40, thinking=True)
    assert planned.settings.max_completion_length == 40


def test_a_profile_that_does_not_think_is_not_planned_with_thoughts():
    with raises_naming(WorkbookError, "choose_profile(thinking=True)"):
        plan("qwen", choose_profile("smoke"), thinking=True)


@pytest.mark.parametrize("name", BATCH)
@pytest.mark.parametrize("profile", ["24gb", "80gb"])
def test_a_batch_of_the_users_has_as_many_completions_with_thoughts_as_without(profile, name):
    usual, thinking = (plan("qwen", profile, thinking=on, **{name: 2}) for on in (False, True))
    assert thinking.settings.completions_per_step == usual.settings.completions_per_step


@pytest.mark.parametrize("gib", [0, 2e6])
def test_a_memory_that_no_gpu_has_is_refused_with_what_is_possible(gib):
    with raises_naming(WorkbookError, f"{gib:g} GiB", "above 0", "below 1,000,000"):
        plan("qwen", gib=gib)


def test_thinking_needs_a_profile_whose_lengths_are_known(tmp_path):
    from trl import GRPOConfig

    with raises_naming(WorkbookError, "GRPOConfig", "thinking", "max_completion_length"):
        plan("qwen", GRPOConfig(str(tmp_path), bf16=False, use_cpu=True), thinking=True)
