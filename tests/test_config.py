"""Profiles: what is chosen and why, which values cannot be, and what TRL gets of them."""

import json
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import REPO, finished, raises_naming
from packaging.requirements import Requirement

from grpo_workbook import config
from grpo_workbook.config import (
    PROFILES,
    _fitting_profile,
    check_grpo_config,
    choose_profile,
    find_model,
)
from grpo_workbook.errors import WorkbookError

sys.path.insert(0, str(REPO / "notebooks"))
from colab_setup import pins, wanted

# What TRL or Unsloth fills in differently on a CPU and on a GPU (TRL 1.15, Unsloth 2026.10).
DIFFERS = """learning_rate per_device_train_batch_size gradient_accumulation_steps weight_decay
warmup_steps optim bf16 fp16 loss_type epsilon epsilon_high mask_truncated_completions scale_rewards
beta num_generations max_completion_length temperature gradient_checkpointing use_vllm
importance_sampling_level num_iterations report_to logging_steps seed
vllm_importance_sampling_correction""".split()
GPU_PROFILES = ("t4", "24gb", "80gb")


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PROFILE", "MODEL", "SEED", "OUTPUT"):
        monkeypatch.delenv(f"GRPO_WORKBOOK_{name}", raising=False)


@pytest.fixture
def gpu(monkeypatch):
    """Makes torch see a GPU: call it with its memory in GiB, and whether it has bfloat16."""

    def pretend(gib: float, bfloat16: bool = True, vllm: bool = False) -> None:
        monkeypatch.setattr(config, "find_device", lambda: ("cuda", gib, "torch sees a GPU"))
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda **_: bfloat16)
        monkeypatch.setattr(config, "find_spec", lambda name: object() if vllm else None)

    return pretend


# ------------------------------------------------------------------ what is chosen


def test_default_on_this_machine_says_why():
    profile = choose_profile()
    assert (profile.name, profile.device, profile.family, profile.seed) == (
        "smoke",
        "cpu",
        "qwen",
        0,
    )
    assert set(profile.reasons) == {"device", "profile", "model", "seed", "output"}
    assert all(profile.reasons.values())
    text = str(profile)
    for word in ("device", "profile", "model", "seed", "output", "LoRA rank"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_the_learning_rate_of_lora_is_the_same_on_every_gpu():
    rates = {name: values["grpo"]["learning_rate"] for name, values in PROFILES.items()}
    assert rates == {"smoke": 1.5e-3, "t4": 1e-5, "24gb": 1e-5, "80gb": 1e-5}


def test_the_environment_is_read_and_arguments_win(monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_MODEL", "gemma")
    monkeypatch.setenv("GRPO_WORKBOOK_SEED", "5")
    monkeypatch.setenv("GRPO_WORKBOOK_OUTPUT", "elsewhere")
    profile = choose_profile()
    assert (profile.family, profile.seed, profile.output) == ("gemma", 5, Path("elsewhere"))
    assert profile.grpo["seed"] == profile.lora["random_state"] == 5
    assert profile.reasons["seed"] == "GRPO_WORKBOOK_SEED is set"
    profile = choose_profile(model="qwen", seed=7)
    assert (profile.family, profile.seed) == ("qwen", 7)
    assert profile.reasons["seed"] == "given as an argument"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"name": "huge"}, "24gb, 80gb, smoke, t4"),
        ({"name": "t4"}, "'t4'"),
        ({"model": "llama"}, "'llama'"),
        ({"model": "./nowhere"}, "'./nowhere'"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"seed": "lucky"}, "seed is 'lucky'"),
        ({"lora_rank": 0}, "lora_rank is 0"),
        ({"eval_batch_size": 0}, "eval_batch_size is 0"),
        ({"heldout": True}, "heldout is True"),
        ({"dtype": "float8"}, "dtype is 'float8'"),
        ({"output": " "}, "output is ' '"),
        ({"grpo": {"use_vllm": True}}, "use_vllm is True"),
    ],
)
def test_bad_values_are_named(arguments, named):
    with raises_naming(WorkbookError, named):
        choose_profile(**arguments)


def test_arguments_replace_the_profiles_values():
    profile = choose_profile(
        "smoke",
        dtype="float16",
        load_in_4bit=False,
        lora_rank=4,
        max_prompt_length=100,
        heldout=12,
        eval_batch_size=3,
        grpo={"max_completion_length": 28, "max_steps": 7},
    )
    assert (profile.heldout, profile.eval_batch_size, profile.max_prompt_length) == (12, 3, 100)
    assert (profile.lora["r"], profile.lora["lora_alpha"]) == (4, 8)
    assert profile.loader["max_seq_length"] == profile.grpo["vllm_max_model_length"] == 128
    assert profile.loader["load_in_4bit"] is False
    assert str(profile.loader["dtype"]) == "torch.float16"
    assert (profile.grpo["fp16"], profile.grpo["bf16"]) == (True, False)
    assert profile.grpo["max_steps"] == 7
    assert PROFILES["smoke"]["grpo"]["max_steps"] == 120


def test_model_folders(tmp_path):
    with raises_naming(WorkbookError, "config.json"):
        choose_profile(model=tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3_text"}))
    profile = choose_profile(model=tmp_path)
    assert (profile.family, profile.model_name) == ("gemma", str(tmp_path))


def test_a_model_has_one_name_from_every_folder(monkeypatch):
    here = choose_profile(model="qwen")
    monkeypatch.chdir(REPO / "data")
    there = choose_profile(model="tiny-qwen3")
    assert here.model == there.model == find_model("qwen") == str(REPO / "data" / "tiny-qwen3")
    assert here.model_name == there.model_name == "data/tiny-qwen3"


def test_a_hub_id_needs_no_network_and_another_family_its_own_name():
    profile = choose_profile(model="unsloth/gemma-3-1b-it")
    assert (profile.family, profile.model_name) == ("gemma", "unsloth/gemma-3-1b-it")
    assert choose_profile(model="org/Llama-3").family == "Llama-3"


@pytest.mark.parametrize(
    ("device", "gib", "name"),
    [
        ("cpu", 0, "smoke"),
        ("cuda", 14.7, "t4"),
        ("cuda", 22.5, "24gb"),
        ("cuda", 79.2, "80gb"),
        ("cuda", 139.7, "80gb"),
    ],
)
def test_the_profile_follows_the_memory(device, gib, name):
    assert _fitting_profile(device, gib)[0] == name


def test_a_chapter_takes_minutes_on_a_t4_unless_told_otherwise(monkeypatch, gpu):
    """With the T4's own model, 40 steps would take most of an hour."""
    gpu(14.7, bfloat16=False)
    profile = choose_profile(default="smoke")
    assert (profile.device, profile.name, profile.model_name) == (
        "cuda",
        "smoke",
        "data/tiny-qwen3",
    )
    assert "minutes" in profile.reasons["profile"]
    assert choose_profile().model == "unsloth/Qwen3-1.7B"
    monkeypatch.setenv("GRPO_WORKBOOK_PROFILE", "t4")
    profile = choose_profile(default="smoke", grpo={"max_steps": 40})
    assert (profile.model, profile.grpo["max_steps"]) == ("unsloth/Qwen3-1.7B", 40)


def test_a_gemma_takes_float16_in_every_profile_of_a_gpu_without_bfloat16(gpu):
    """Unsloth loads it so there, and refuses nothing else; a dtype that was asked for stays."""
    for has_bfloat16, dtype in ((False, "float16"), (True, "float32")):
        gpu(14.7, bfloat16=has_bfloat16)
        assert choose_profile(default="smoke", model="gemma").dtype == dtype
        assert choose_profile(default="smoke", model="gemma", dtype="float32").dtype == "float32"
        assert choose_profile(default="smoke", model="qwen").dtype == "float32"


def test_bfloat16_becomes_float16_on_a_gpu_without_it(gpu):
    gpu(22.1, bfloat16=False)
    profile = choose_profile()
    assert (profile.dtype, profile.grpo["fp16"], profile.grpo["bf16"]) == ("float16", True, False)
    assert profile.reasons["dtype"] == "the GPU has no bfloat16"


def test_vllm_is_used_where_it_is_installed(gpu):
    gpu(22.1, vllm=True)
    profile = choose_profile(grpo={"vllm_gpu_memory_utilization": 0.4})
    assert profile.grpo["use_vllm"]
    assert profile.loader["fast_inference"]
    assert profile.loader["gpu_memory_utilization"] == 0.4
    assert profile.loader["max_lora_rank"] == profile.lora["r"]
    server = choose_profile(grpo={"vllm_mode": "server"})
    assert "fast_inference" not in server.loader
    gpu(22.1, vllm=False)
    profile = choose_profile()
    assert not profile.grpo["use_vllm"]
    assert "fast_inference" not in profile.loader
    assert "vLLM" in profile.reasons["use_vllm"]
    assert "use_vllm" in str(profile)


@pytest.mark.parametrize("name", GPU_PROFILES)
def test_measuring_holds_no_more_answers_than_training_samples_at_once(name):
    """What the plan of a run counts, so that a run that fits is measured too."""
    grpo = PROFILES[name]["grpo"]
    completions = grpo["per_device_train_batch_size"] * grpo["gradient_accumulation_steps"]
    # From 32 on: unpacking 4-bit weights costs the same for fewer.
    assert 32 <= PROFILES[name]["eval_batch_size"] <= completions


def test_choosing_changes_neither_the_environment_nor_the_threads():
    code = (
        "import os, torch; from grpo_workbook.config import choose_profile\n"
        "torch.set_num_threads(2); before = dict(os.environ); choose_profile()\n"
        "assert before == dict(os.environ); print(torch.get_num_threads())"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.split() == ["2"], result.stderr


# ------------------------------------------------------------------ what TRL gets


@pytest.mark.parametrize("name", PROFILES)
def test_trl_takes_every_profile(name, tmp_path, gpu):
    from trl import GRPOConfig

    if name != "smoke":
        gpu(80.0, vllm=True)
    profile = choose_profile(name, seed=11, dtype="float32", grpo={"use_cpu": True})
    args = GRPOConfig(output_dir=str(tmp_path), reward_weights=[2.0, 0.5], **profile.grpo)
    completions = args.per_device_train_batch_size * args.gradient_accumulation_steps
    assert args.generation_batch_size == completions  # sampled for one optimizer step at a time
    assert completions % args.num_generations == 0
    assert (args.seed, args.data_seed, args.bf16) == (11, 11, False)
    for field, value in profile.grpo.items():
        if field not in ("report_to", "dataloader_pin_memory"):  # a list; False for a CPU
            assert getattr(args, field) == value, field
    assert set(DIFFERS) <= set(profile.grpo)
    check_grpo_config(args, backend="unsloth", load_in_4bit=True)


@pytest.mark.parametrize(
    ("changes", "where", "named"),
    [
        ({"loss_type": "dr_grpo"}, {}, "scale_rewards is 'group'"),
        ({"loss_type": "cispo"}, {}, "epsilon_high is 0.2"),
        ({"num_train_epochs": 2}, {}, "num_train_epochs is 2"),
        ({"resume_from_checkpoint": "x"}, {}, "resume_from_checkpoint is 'x'"),
        ({"use_vllm": True, "vllm_mode": "server"}, {}, "load_in_4bit=False"),
        ({"use_vllm": True}, {"backend": "plain"}, "use_vllm=False"),
    ],
)
def test_what_would_go_wrong_in_silence_is_refused(changes, where, named, tmp_path):
    from trl import GRPOConfig

    args = GRPOConfig(output_dir=str(tmp_path), **{**choose_profile("smoke").grpo, **changes})
    machine = {"backend": "unsloth", "load_in_4bit": True, **where}
    with raises_naming(WorkbookError, named):
        check_grpo_config(args, **machine)


@pytest.mark.slow
def test_unsloth_changes_none_of_our_values_on_a_gpu(tmp_path):
    """Every profile, loss type, scaling and sampler, in the GRPOConfig that Unsloth makes there;
    and the metrics that the diagnosis has to do without, or to rename.
    """
    command = [sys.executable, str(REPO / "tests" / "unsloth_config.py")]
    result = finished(command, tmp_path, PYTHONPATH=str(REPO))
    assert result.returncode == 0, result.stderr[-3000:]
    there = json.loads(result.stdout.splitlines()[-1])
    # With vLLM, 0 and -1 both mean that no word is cut off.
    assert there["changed"] == [["top_k", "0", "-1"]]
    assert {"kl", "completion_length"} <= set(there["logged"])
    assert "entropy" not in there["logged"]


# What vllm 0.31.0 asks for, as far as the course has it too (its metadata on the package index).
VLLM = """torch==2.13.0 transformers>=5.10.4,<5.18.0 openai>=2.25.0 psutil
    fastapi>=0.133.0,<0.137.0 protobuf>=5.29.6,!=6.30.*,!=6.31.*,!=6.32.* sentencepiece tqdm pyyaml
    filelock>=3.16.1""".split()


def test_the_vllm_of_the_extra_goes_with_the_pins_but_for_fastapi():
    """A pin that is raised past it is found here, before pip takes another torch."""
    needs = {need.name: need.specifier for need in map(Requirement, VLLM)}
    pinned = {name.lower(): version for name, version in pins().items()}
    assert [name for name, takes in needs.items() if pinned[name] not in takes] == ["fastapi"]
    with_vllm = {n.lower().replace("_", "-"): v for n, v in pins().items()} | {"vllm": "0.31.0"}
    assert wanted(with_vllm | {"fastapi": "0.136.0"}) == {}
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["vllm"]
    assert extra == ["vllm==0.31.0; sys_platform == 'linux'"]
    trl = Path(find_spec("trl").origin).with_name("import_utils.py").read_text()
    assert "versions from 0.21.0 to 0.31.0" in trl


# ------------------------------------------------------------------ thinking


def test_thinking_is_one_choice_for_the_template_and_the_lengths():
    usual, on = choose_profile("smoke"), choose_profile("smoke", thinking=True)
    assert (usual.thinking, on.thinking) == (False, True)
    assert on.grpo["chat_template_kwargs"] == {"enable_thinking": True}
    assert on.grpo["max_completion_length"] > usual.grpo["max_completion_length"]
    assert on.loader["max_seq_length"] > usual.loader["max_seq_length"]
    assert choose_profile("smoke", thinking=False).grpo == usual.grpo
    short = choose_profile("smoke", thinking=True, grpo={"max_completion_length": 40})
    assert short.grpo["max_completion_length"] == 40
    assert "thinking" in str(on)
    assert "thinking" not in str(usual)
    for options in ({"enable_thinking": False}, {"other": 1}, None):
        with raises_naming(WorkbookError, "thinking is True", str(options or {})):
            choose_profile("smoke", thinking=True, grpo={"chat_template_kwargs": options})
