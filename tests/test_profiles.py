"""The catalogue: every entry becomes a GRPOConfig of the installed TRL, adds up, and fits its GPU on paper."""

import ast
import importlib.util
import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
from conftest import REPO

from grpo_workbook import run as run_module
from grpo_workbook.config import PROFILES, RunConfig
from grpo_workbook.planning.architectures import KNOWN
from grpo_workbook.planning.estimate import estimate
from grpo_workbook.planning.profiles import CATALOGUE, find_entry, loader_for
from grpo_workbook.planning.step_time import GPUS
from grpo_workbook.training import load_policy

UNSLOTH = Path(importlib.util.find_spec("unsloth").submodule_search_locations[0])


@pytest.fixture
def gpu(monkeypatch):
    """A machine that says it has a GPU with bfloat16: settings and config objects ask for no more."""
    import torch

    def pretend(bfloat16: bool):
        monkeypatch.setattr(run_module, "find_device", lambda: ("cuda", 80.0, "a test says so"))
        monkeypatch.setattr(run_module, "_has_bfloat16", lambda: bfloat16)
        monkeypatch.setattr(run_module, "_why_no_vllm", lambda device: "")
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *a, **k: bfloat16)
        monkeypatch.setattr(
            torch.cuda, "get_device_capability", lambda *a: (8, 0) if bfloat16 else (7, 5)
        )

    return pretend


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PROFILE", "MODEL", "SEED", "OUTPUT"):
        monkeypatch.delenv(f"GRPO_WORKBOOK_{name}", raising=False)


@pytest.mark.parametrize("key", CATALOGUE, ids="-".join)
def test_every_entry_is_a_config_that_the_installed_trl_takes(key, gpu, tmp_path, monkeypatch):
    from transformers import TrainingArguments

    entry = CATALOGUE[key]
    gpu(bfloat16=entry.profile != "t4")
    # no CUDA here: the devices are set up when a Trainer asks for them, and only the values are looked at
    monkeypatch.setattr(TrainingArguments, "_setup_devices", property(lambda self: None))
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda self: 1))
    run = RunConfig.from_env(profile=entry.profile, model=entry.model, output=tmp_path)
    made, s = run.to_grpo_config(), entry.settings
    assert run.settings == s
    assert made.per_device_train_batch_size * made.gradient_accumulation_steps == s.batch_size
    assert made.generation_batch_size == s.batch_size
    assert s.batch_size % s.num_generations == 0
    assert (made.fp16, made.bf16) == (entry.profile == "t4", entry.profile != "t4")
    assert (made.learning_rate, made.max_steps, made.num_generations) == (
        s.learning_rate,
        s.steps,
        s.num_generations,
    )
    assert made.gradient_checkpointing is True
    assert made.max_completion_length == s.max_completion_length


@pytest.mark.parametrize("key", CATALOGUE, ids="-".join)
def test_every_entry_fits_its_gpu_on_paper(key):
    entry = CATALOGUE[key]
    found = estimate(entry.model, entry.profile)
    assert found.fits, f"{found.memory.total / 2**30:.1f} GiB"
    assert 0 < found.minutes < 12 * 60
    assert entry.tried is False  # when someone has: say where, here


def test_the_catalogue_covers_what_the_course_names():
    wanted = ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b", "qwen3-8b", "gemma-3-270m", "gemma-3-1b", "gemma-3-4b",
              "qwen3.5-0.8b", "qwen3.5-4b", "gemma-4-e2b"]  # fmt: skip
    assert set(GPUS) == set(PROFILES) - {"smoke"}
    for profile in GPUS:
        assert {n for p, n in CATALOGUE if p == profile} >= set(wanted)
    # E4B's weights alone are 7.3 GiB in 4-bit: not on a T4
    assert ("t4", "gemma-4-e4b") not in CATALOGUE
    assert {("24gb", "gemma-4-e4b"), ("80gb", "gemma-4-e4b")} <= set(CATALOGUE)
    for profile, base in PROFILES.items():
        if profile != "smoke":
            assert find_entry(profile, base.qwen)
            assert find_entry(profile, base.gemma)


def test_a_run_takes_the_entrys_values_and_arguments_win(gpu):
    gpu(bfloat16=False)
    default = RunConfig.from_env(profile="t4", model="qwen")
    assert default.model == "unsloth/Qwen3-1.7B"
    assert default.settings == CATALOGUE["t4", "qwen3-1.7b"].settings
    other = RunConfig.from_env(profile="t4", model="unsloth/Qwen3-8B", max_steps=7)
    assert other.settings.batch_size == CATALOGUE["t4", "qwen3-8b"].settings.batch_size == 16
    assert other.settings.steps == 7
    assert "catalogue's for this model" in other.why["settings"]
    unknown = RunConfig.from_env(profile="t4", model="me/Qwen3-4B-poems")
    assert unknown.settings == PROFILES["t4"]
    assert "lacks this model" in unknown.why["settings"]
    assert RunConfig.from_env(profile="smoke").settings == PROFILES["smoke"]


@pytest.mark.parametrize("name", KNOWN)
def test_hub_names_are_those_that_unsloth_knows(name):
    """In its mapper; Qwen3.5 is not in it, and is named as its own files name it."""
    hub = KNOWN[name][1]
    known = (UNSLOTH / "models" / "mapper.py").read_text(encoding="utf-8")
    if not name.startswith("qwen3.5"):
        assert f'"{hub}"' in known
    assert run_module.Run.from_env(model=hub).family == ("gemma" if "gemma" in name else "qwen")


@pytest.mark.parametrize(
    ("model", "loader"),
    [
        ("unsloth/Qwen3-4B", "FastLanguageModel"),
        ("unsloth/gemma-3-1b-it", "FastLanguageModel"),
        ("google/gemma-3-4b-it", "FastModel"),
        ("unsloth/Qwen3.5-0.8B", "FastModel"),
        ("google/gemma-4-E2B-it", "FastModel"),
        (str(REPO / "data" / "tiny-gemma3"), "FastLanguageModel"),
    ],
)
def test_the_loader_follows_the_model(model, loader):
    assert loader_for(model) == loader


def test_the_installed_unsloth_takes_what_its_loader_is_given():
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


def test_the_text_part_of_a_model_that_sees_is_adapted(tmp_path):
    """A tiny Qwen3.5 with vision, loaded as a hub's would be: adapters on its text, in 4-bit."""
    import torch
    from transformers import AutoTokenizer, Qwen3_5Config, Qwen3_5ForConditionalGeneration

    from grpo_workbook.planning.architectures import architecture
    from grpo_workbook.training import count_trained_parameters

    tokenizer = AutoTokenizer.from_pretrained(REPO / "data" / "tiny-qwen3")
    torch.manual_seed(0)
    text = {"vocab_size": len(tokenizer), "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
            "tie_word_embeddings": True}  # fmt: skip
    vision = {
        "depth": 1,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_heads": 2,
        "out_hidden_size": 128,
    }
    config = Qwen3_5Config(text_config=text, vision_config=vision, tie_word_embeddings=True)
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert loader_for(str(tmp_path)) == "FastModel"
    run = RunConfig.from_env(model=str(tmp_path))
    assert run.family == "qwen"
    model, _ = load_policy(run)
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    assert learning
    assert not [n for n in learning if "visual" in n or "vision" in n]
    assert count_trained_parameters(model) == architecture(tmp_path).lora(run.lora_rank)


def test_a_damaged_config_is_no_reason_to_fail_here(tmp_path):
    (tmp_path / "config.json").write_text("{")
    assert loader_for(str(tmp_path)) == "FastLanguageModel"  # Run says what is wrong with it


def test_settings_in_the_catalogue_are_whole():
    for entry in CATALOGUE.values():
        assert set(asdict(entry.settings)) == {f.name for f in fields(Settings)}
        json.dumps(asdict(entry.settings))
