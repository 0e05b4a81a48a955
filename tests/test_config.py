"""RunConfig: what is chosen and why, which values cannot be, and what TRL gets of it."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from conftest import REPO, environment, finished
from packaging.requirements import Requirement

from grpo_workbook import config
from grpo_workbook.cli.versions import pins, wanted
from grpo_workbook.config import FAMILIES, PROFILES, RunConfig, _fitting_profile
from grpo_workbook.errors import WorkbookError

# What TRL or Unsloth fills in differently on a CPU and on a GPU (TRL 1.15, Unsloth 2026.10).
DIFFERS = """learning_rate per_device_train_batch_size gradient_accumulation_steps weight_decay
warmup_steps optim bf16 fp16 loss_type epsilon epsilon_high mask_truncated_completions scale_rewards
beta num_generations max_completion_length temperature gradient_checkpointing use_vllm
importance_sampling_level num_iterations report_to logging_steps seed steps_per_generation
vllm_importance_sampling_correction""".split()


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PROFILE", "MODEL", "SEED", "OUTPUT"):
        monkeypatch.delenv(f"GRPO_WORKBOOK_{name}", raising=False)


def profile(name: str, output, **values) -> RunConfig:
    """A RunConfig of any profile, on this machine's CPU."""
    chosen = {k: v for k, v in PROFILES[name].items() if k not in FAMILIES} | values
    return RunConfig("cpu", name, "m", "qwen", 0, Path(output), **chosen)


# ------------------------------------------------------------------ what is chosen


def test_default_on_this_machine_says_why():
    run = RunConfig.from_env()
    assert (run.family, run.seed) == ("qwen", 0)
    assert set(run.why) == {"device", "profile", "model", "seed", "output"}
    assert all(run.why.values())
    text = str(run)
    for word in ("device", "profile", "model", "seed", "output", "LoRA rank"):
        assert word in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_learning_rate_of_lora_is_the_same_on_every_gpu():
    rates = {name: values["learning_rate"] for name, values in PROFILES.items()}
    assert rates == {"smoke": 1e-3, "t4": 1e-5, "24gb": 1e-5, "80gb": 1e-5}


def test_the_environment_is_read_and_arguments_win(monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_MODEL", "gemma")
    monkeypatch.setenv("GRPO_WORKBOOK_SEED", "5")
    monkeypatch.setenv("GRPO_WORKBOOK_OUTPUT", "elsewhere")
    run = RunConfig.from_env()
    assert (run.family, run.seed, str(run.output)) == ("gemma", 5, "elsewhere")
    assert run.why["seed"] == "GRPO_WORKBOOK_SEED is set"
    run = RunConfig.from_env(model="qwen", seed=7)
    assert (run.family, run.seed, run.why["seed"]) == ("qwen", 7, "given as an argument")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"profile": "huge"}, "unknown profile 'huge': choose from 24gb, 80gb, smoke, t4"),
        ({"model": "llama"}, "unknown model 'llama': give a family"),
        ({"model": "./nowhere"}, "unknown model './nowhere'"),
        ({"num_generations": 6}, "cannot be cut into groups of 6, .* such as 66"),
        ({"num_generations": 1}, "groups of 1, at least 2"),
        ({"batch_size": 20}, "20 completions cannot be cut into groups of 8"),
        ({"seed": -1}, "seed is -1: it must be at least 0"),
        ({"seed": 1.5}, r"seed is 1\.5: it must be a whole number"),
        ({"learning_rate": float("nan")}, "learning_rate is nan: it must be more than 0"),
        ({"learning_rate": -1e-3}, r"learning_rate is -0\.001"),
        ({"temperature": 0.0}, r"temperature is 0\.0: it must be more than 0"),
        ({"beta": -0.1}, r"beta is -0\.1: it must be at least 0"),
        ({"max_steps": 0}, "max_steps is 0: it must be more than 0"),
        ({"max_steps": 30.5}, r"max_steps is 30\.5: it must be a whole number"),
        ({"max_steps": "30"}, "max_steps is '30': it must be a whole number"),
        ({"max_steps": True}, "max_steps is True: it must be a whole number"),
        ({"load_in_4bit": "false"}, "load_in_4bit is 'false': it must be true or false"),
        ({"rewards": ["correctness"]}, "rewards is .'correctness'.: it must be a text"),
        ({"max_step": 3}, r"unknown setting 'max_step': did you mean max_steps\?"),
        ({"steps": 3}, "unknown setting 'steps': did you mean max_steps"),
        ({"vllm": "on"}, "vllm is 'on': choose one of off, colocate, server"),
        ({"vllm": "colocate"}, r"vLLM needs a CUDA GPU, .*\(\.\[vllm\]\): say vllm"),
        ({"output": " "}, "the output ' ' is no folder's name"),
    ],
)
def test_bad_values_are_named_with_the_fix(arguments, message):
    with pytest.raises(WorkbookError, match=message):
        RunConfig.from_env(**arguments)


def test_dr_grpo_is_the_same_on_a_gpu_as_here(tmp_path):
    with pytest.raises(WorkbookError, match="is 'group', which dr_grpo loses on a GPU: say none"):
        RunConfig.from_env(loss_type="dr_grpo")
    run = RunConfig.from_env(loss_type="dr_grpo", scale_rewards="none", output=tmp_path)
    assert run.to_grpo_config().scale_rewards == "none"


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


def test_a_vllm_server_gets_no_packed_weights(tmp_path):
    with pytest.raises(WorkbookError, match="cannot read 4-bit weights: say load_in_4bit: false"):
        profile("24gb", tmp_path, vllm="server")
    assert profile("24gb", tmp_path, vllm="server", load_in_4bit=False).vllm == "server"


# What vllm 0.31.0 asks for, as far as the course has it too (its metadata on the package index).
VLLM = """torch==2.13.0 transformers>=5.10.4,<5.18.0 openai>=2.25.0 psutil
    fastapi>=0.133.0,<0.137.0 protobuf>=5.29.6,!=6.30.*,!=6.31.*,!=6.32.* sentencepiece tqdm pyyaml
    filelock>=3.16.1""".split()


def test_the_vllm_of_the_extra_goes_with_the_pins_but_for_fastapi():
    """A pin that is raised past it is found here, before pip takes another torch."""
    needs = {(need := Requirement(line)).name: need.specifier for line in VLLM}
    pinned = {name.lower(): version for name, version in pins().items()}
    assert [name for name, takes in needs.items() if pinned[name] not in takes] == ["fastapi"]
    with_vllm = {n.lower().replace("_", "-"): v for n, v in pins().items()} | {"vllm": "0.31.0"}
    assert wanted(with_vllm | {"fastapi": "0.136.0"}) == {}
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["vllm"]
    assert extra == ["vllm==0.31.0; sys_platform == 'linux'"]
    trl = Path(find_spec("trl").origin).with_name("import_utils.py").read_text()
    assert "versions from 0.21.0 to 0.31.0" in trl


def test_replace_keeps_the_rest_and_checks():
    run = RunConfig.from_env(seed=3)
    other = run.replace(max_steps=7, batch_size=48, num_generations=4)
    assert (other.max_steps, other.seed, other.prompts_per_step) == (7, 3, 12)
    assert (run.per_device_batch, other.per_device_batch) == (64, 48)
    with pytest.raises(WorkbookError, match="max_steps is 0"):
        run.replace(max_steps=0)


def test_numbers_of_numpy_become_pythons():
    run = RunConfig.from_env(max_steps=np.int64(30), learning_rate=np.float32(0.5), temperature=1)
    assert [type(v) for v in (run.max_steps, run.learning_rate, run.temperature)] == [
        int,
        float,
        float,
    ]


def test_a_seed_that_is_no_number(monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_SEED", "lucky")
    with pytest.raises(WorkbookError, match="seed is 'lucky': it must be a whole number"):
        RunConfig.from_env()


def test_model_folders(tmp_path):
    with pytest.raises(WorkbookError, match=r"has no config\.json: name a folder with a saved"):
        RunConfig.from_env(model=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3_text"}))
    run = RunConfig.from_env(model=str(tmp_path))
    assert (run.family, run.model_name) == ("gemma", str(tmp_path))


def test_a_model_has_one_name_from_every_folder(monkeypatch):
    here = RunConfig.from_env(model="qwen")
    monkeypatch.chdir(REPO / "data")
    there = RunConfig.from_env(model="tiny-qwen3")
    assert here.model == there.model == str(REPO / "data" / "tiny-qwen3")
    assert here.model_name == there.model_name == "data/tiny-qwen3"


def test_a_hub_id_needs_no_network_and_another_family_its_own_name():
    run = RunConfig.from_env(model="unsloth/gemma-3-1b-it")
    assert (run.family, run.model_name) == ("gemma", "unsloth/gemma-3-1b-it")
    assert RunConfig.from_env(model="org/Llama-3").family == "Llama-3"


def test_a_gpu_profile_without_a_gpu():
    with pytest.raises(WorkbookError, match="profile 't4' needs a CUDA GPU"):
        RunConfig.from_env(profile="t4")


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


T4 = lambda: ("cuda", 14.7, "torch sees Tesla T4")  # noqa: E731


def test_a_chapter_takes_minutes_on_a_t4_unless_told_otherwise(monkeypatch):
    """With the T4's own model, 40 steps would take most of an hour."""
    monkeypatch.setattr(config, "find_device", T4)
    run = RunConfig.from_env(default_profile="smoke", max_steps=40)
    assert (run.device, run.profile, run.model_name) == ("cuda", "smoke", "data/tiny-qwen3")
    assert "minutes" in run.why["profile"]
    assert RunConfig.from_env().model == "unsloth/Qwen3-1.7B"
    monkeypatch.setenv("GRPO_WORKBOOK_PROFILE", "t4")
    run = RunConfig.from_env(default_profile="smoke", max_steps=40)
    assert (run.model, run.max_steps) == ("unsloth/Qwen3-1.7B", 40)


def test_a_gemma_takes_float16_in_every_profile_of_a_gpu_without_bfloat16(monkeypatch):
    """Unsloth loads it so there, and refuses nothing else; a dtype that was asked for stays."""
    monkeypatch.setattr(config, "find_device", T4)
    t4 = {"default_profile": "smoke", "model": "gemma"}
    for has_bfloat16, dtype in ((False, "float16"), (True, "float32")):
        monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda b=has_bfloat16, **_: b)
        assert RunConfig.from_env(**t4).dtype == dtype
        assert RunConfig.from_env(**t4, dtype="float32").dtype == "float32"
        assert RunConfig.from_env(**t4 | {"model": "qwen"}).dtype == "float32"


def test_a_colocated_vllm_sleeps_during_the_update(monkeypatch):
    """Unsloth reads it when it is imported, which is after the run was chosen."""
    monkeypatch.setattr(config, "find_device", lambda: ("cuda", 22.1, "torch sees an L4"))
    monkeypatch.setattr(config, "find_spec", lambda name: object())
    monkeypatch.delitem(sys.modules, "unsloth", raising=False)
    names = ("UNSLOTH_VLLM_STANDBY", "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE")
    for name in names:
        monkeypatch.setenv(name, "")  # to be set back after the test
        monkeypatch.delenv(name)
    RunConfig.from_env(vllm="off")
    assert not set(names) & set(os.environ)
    monkeypatch.setenv(names[0], "0")
    assert RunConfig.from_env().vllm == "colocate"
    assert [os.environ[name] for name in names] == ["0", "1"]  # what was said, wins
    monkeypatch.delenv(names[0])
    monkeypatch.setitem(sys.modules, "unsloth", None)  # too late: its memory is not made for it
    assert RunConfig.from_env().vllm == "colocate"
    assert names[0] not in os.environ


def test_cispo_caps_the_weight_and_not_the_ratio(tmp_path):
    """At 0.2 it would cap every weight, and the gradient, to a fifth."""
    run = RunConfig.from_env(loss_type="cispo", output=tmp_path)
    assert run.to_grpo_config().epsilon_high == 5.0
    assert run.replace(loss_type="dapo").to_grpo_config().epsilon_high == 0.2


@pytest.mark.parametrize("name", ["t4", "24gb", "80gb"])
def test_measuring_holds_no_more_answers_than_training_samples_at_once(name):
    """What the plan of a run counts, so that a run that fits is measured too."""
    assert PROFILES[name]["eval_batch"] <= PROFILES[name]["batch_size"]
    assert PROFILES[name]["eval_batch"] >= 32  # unpacking 4-bit weights costs the same for fewer


SOURCES = sorted((REPO / "notebooks" / "source").glob("[0-9]*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_only_chapter_04_trains_the_gpus_own_model_by_default(path):
    """Chapters 09 and 10 hold several models or float32 weights: their tiny one is not asked."""
    calls = re.findall(r"\bRunConfig\.from_env\(([^)]*)", path.read_text())
    number = int(path.stem[:2])
    wanted = "" if number in (1, 4) else 'default_profile="smoke"'
    wanted = 'profile="smoke"' if number in (9, 10) else wanted
    wanted = "default_profile=MY_PROFILE" if number == 14 else wanted  # "smoke" until it is changed
    assert calls
    assert all(wanted in call for call in calls if call != 'profile="smoke", model=str(TINY_CODER')
    assert number not in (9, 10) or all("default_profile" not in call for call in calls)


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("2", "2")])
@pytest.mark.parametrize("torch_first", [True, False])
def test_the_smoke_profile_takes_one_thread_unless_told_otherwise(before, after, torch_first):
    code = "import torch\n" * torch_first + (
        "import os; from grpo_workbook import RunConfig; RunConfig.from_env(); import torch\n"
        "print(os.environ['OMP_NUM_THREADS'], torch.get_num_threads())"
    )
    env = environment()
    env.pop("OMP_NUM_THREADS", None)
    env |= {} if before is None else {"OMP_NUM_THREADS": before}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert result.stdout.split() == [after, after], result.stderr


# ------------------------------------------------------------------ what TRL gets


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"batch_size": 24, "num_generations": 4},
        {"max_steps": 1},
        {"batch_size": 64, "per_device_batch": 16},
    ],
)
def test_trl_takes_the_config_and_keeps_our_values(tmp_path, changes):
    run = RunConfig.from_env(output=tmp_path, seed=11, **changes)
    made = run.to_grpo_config()
    assert made.per_device_train_batch_size * made.gradient_accumulation_steps == run.batch_size
    assert made.generation_batch_size == run.batch_size
    for name in ("num_generations", "max_steps", "seed", "learning_rate", "temperature", "beta"):
        assert getattr(made, name) == getattr(run, name)
    assert made.bf16 is False
    assert made.warmup_steps <= run.max_steps
    assert made.reward_weights is None
    assert run.to_grpo_config((2.0, 0.5)).reward_weights == [2.0, 0.5]


def test_every_value_that_differs_between_machines_is_named(tmp_path, monkeypatch):
    import trl

    given = {}
    monkeypatch.setattr(trl, "GRPOConfig", lambda **arguments: given.update(arguments))
    RunConfig.from_env(output=tmp_path).to_grpo_config()
    assert set(DIFFERS) <= set(given)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_share_one_batch(tmp_path, processes):
    run = profile("80gb", tmp_path, batch_size=96, vllm="off", dtype="float32")
    made = run.to_grpo_config(processes=processes, overrides={"generation_batch_size": 96})
    part = made.per_device_train_batch_size * made.gradient_accumulation_steps
    assert part * processes == 96
    assert made.per_device_train_batch_size <= PROFILES["80gb"]["per_device_batch"]


def test_a_batch_that_cannot_be_shared_is_refused_with_one_that_can():
    with pytest.raises(WorkbookError, match="divided among 3 processes: choose a multiple of 24"):
        RunConfig.from_env().to_grpo_config(processes=3)


@pytest.mark.parametrize("vllm", ["off", "colocate", "server"])
@pytest.mark.parametrize("name", PROFILES)
def test_trl_takes_every_profile_with_and_without_vllm(tmp_path, name, vllm):
    values = {"vllm": vllm, "load_in_4bit": vllm != "server", "vllm_server": "10.0.0.7:8123"}
    run = profile(name, tmp_path, dtype="float32", **values)
    made = run.to_grpo_config()
    assert made.use_vllm is made.vllm_importance_sampling_correction is (vllm != "off")
    assert run.heldout >= 400
    if vllm != "off":
        assert made.vllm_mode == vllm
        assert made.vllm_max_model_length == run.max_prompt_length + run.max_completion_length
        assert made.vllm_server_base_url == "http://10.0.0.7:8123"


def test_overrides_win_and_what_trl_refuses_is_named(tmp_path):
    run = RunConfig.from_env(output=tmp_path)
    made = run.to_grpo_config(overrides={"max_grad_norm": 0.25, "generation_batch_size": 128})
    assert (made.max_grad_norm, made.generation_batch_size) == (0.25, 128)
    assert made.steps_per_generation == 2
    with pytest.raises(WorkbookError, match=r"TRL refuses .*batch_size': 65.*divisible"):
        run.to_grpo_config(overrides={"generation_batch_size": 65})
