import json
import subprocess
import sys

import pytest
from conftest import REPO

from grpo_workbook.config import PROFILES, RunConfig, _fitting_profile
from grpo_workbook.errors import WorkbookError


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for name in ("PROFILE", "MODEL", "SEED", "OUTPUT"):
        monkeypatch.delenv(f"GRPO_WORKBOOK_{name}", raising=False)


def test_importing_the_package_loads_nothing_heavy():
    modules = (
        "run",
        "data",
        "answers",
        "rewards",
        "training",
        "evaluate",
        "export",
        "figures",
        "pipeline",
        "checks",
    )
    heavy = ("torch", "trl", "transformers", "datasets", "unsloth", "matplotlib", "scipy", "pandas")
    code = f"import sys, {', '.join(f'grpo_workbook.{m}' for m in modules)}\n"
    code += f"print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert out.strip() == "[]"


def test_default_on_this_machine_says_why():
    run = RunConfig.from_env()
    assert run.family == "qwen"
    assert run.seed == 0
    assert set(run.why) == {"device", "profile", "model", "seed", "output"}
    assert all(run.why.values())
    text = str(run)
    assert all(
        word in text for word in ("device", "profile", "model", "seed", "output", "LoRA rank")
    )
    assert max(map(len, text.splitlines())) <= 80


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
        ({"profile": "huge"}, "unknown profile 'huge': choose one of smoke, t4, 24gb, 80gb"),
        ({"model": "llama"}, "unknown model 'llama': give a family"),
        ({"model": "org/Llama-3"}, "unknown family 'Llama-3' of model 'org/Llama-3'"),
        ({"model": "./nowhere"}, "unknown model './nowhere'"),
        (
            {"num_generations": 6},
            "batch of 64 completions cannot be cut into groups of 6: .* such as 66",
        ),
        ({"num_generations": 1}, "needs at least 2"),
        ({"batch_size": 20}, "20 completions cannot be cut into groups of 8"),
        ({"per_device_batch": 24}, "64 completions cannot be cut into batches of 24"),
        ({"seed": -1}, "seed -1 is not between 0 and 4294967295"),
        ({"learning_rate": float("nan")}, "learning_rate is nan: it must be a number, more than 0"),
        ({"learning_rate": -1e-3}, r"learning_rate is -0\.001"),
        ({"temperature": 0.0}, r"temperature is 0\.0"),
        ({"beta": -0.1}, r"beta is -0\.1: it must be a number, at least 0"),
        ({"steps": 0}, "steps is 0: it must be at least 1"),
        ({"steps": 30.5}, r"steps is 30\.5: it must be a whole number"),
        ({"steps": "30"}, "steps is '30': it must be a whole number"),
        ({"steps": True}, "steps is True: it must be a whole number"),
        ({"steps": 10**400}, "steps is 10{29}: it must be at most"),
        ({"learning_rate": 10**400}, r"learning_rate is 10{50,60}: it must be a number"),
        ({"load_in_4bit": "false"}, "load_in_4bit is 'false': it must be true or false"),
        ({"rewards": ["correctness"]}, "rewards is .'correctness'.: it must be a text"),
        ({"seed": 1.5}, r"the seed 1\.5 is not a whole number"),
        ({"epochs": 3}, "unknown setting 'epochs'"),
        ({"vllm": "on"}, "vllm is 'on': choose one of off, colocate, server"),
        ({"vllm": "colocate"}, "vllm is 'colocate' and vLLM needs a CUDA GPU: say vllm: off"),
        ({"vllm_server": "8000"}, "vllm_server is '8000': give HOST:PORT"),
        ({"vllm_server": "here:" + 5000 * "9"}, "vllm_server is 'here:9+: give HOST:PORT"),
        ({"vllm_gpu_memory": 1.5}, r"vllm_gpu_memory is 1\.5"),
    ],
)
def test_bad_values_are_named_with_the_mend(arguments, message):
    with pytest.raises(WorkbookError, match=message):
        RunConfig.from_env(**arguments)


def test_numbers_of_numpy_become_pythons():
    import numpy as np

    settings = RunConfig.from_env(
        max_steps=np.int64(30), learning_rate=np.float32(0.5), temperature=1
    ).settings
    assert [type(v) for v in (settings.steps, settings.learning_rate, settings.temperature)] == [
        int,
        float,
        float,
    ]


def test_a_seed_that_is_no_number(monkeypatch):
    monkeypatch.setenv("GRPO_WORKBOOK_SEED", "lucky")
    with pytest.raises(WorkbookError, match="'lucky' is not a whole number"):
        RunConfig.from_env()


def test_model_folders(tmp_path):
    with pytest.raises(WorkbookError, match=r"no config\.json"):
        RunConfig.from_env(model=str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(WorkbookError, match="not a JSON object"):
        RunConfig.from_env(model=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(WorkbookError, match="unknown family 'gpt2'"):
        RunConfig.from_env(model=str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3_text"}))
    assert RunConfig.from_env(model=str(tmp_path)).family == "gemma"
    assert RunConfig.from_env(model=str(REPO / "data" / "tiny-qwen3")).family == "qwen"


def test_a_model_has_one_name_from_every_folder(tmp_path, monkeypatch):
    here = RunConfig.from_env(model="qwen")
    monkeypatch.chdir(REPO / "data")
    there = RunConfig.from_env(model="tiny-qwen3")
    assert here.model == there.model == str(REPO / "data" / "tiny-qwen3")
    assert here.model_name == there.model_name == "data/tiny-qwen3"
    assert RunConfig.from_env(model="Qwen/Qwen3-0.6B").model_name == "Qwen/Qwen3-0.6B"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    assert RunConfig.from_env(model=str(tmp_path)).model_name == str(tmp_path)


def test_a_hub_id_needs_no_network():
    assert RunConfig.from_env(model="unsloth/gemma-3-1b-it").family == "gemma"
    assert RunConfig.from_env(model="Qwen/Qwen3-0.6B").model == "Qwen/Qwen3-0.6B"


def test_a_gpu_profile_without_a_gpu():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(WorkbookError, match="profile 't4' needs a CUDA GPU"):
        RunConfig.from_env(profile="t4")


@pytest.mark.parametrize(
    ("device", "gib", "profile"),
    [
        ("cpu", 0, "smoke"),
        ("cuda", 14.7, "t4"),
        ("cuda", 22.5, "24gb"),
        ("cuda", 79.2, "80gb"),
        ("cuda", 139.7, "80gb"),
    ],
)
def test_the_profile_follows_the_memory(device, gib, profile):
    assert _fitting_profile(device, gib)[0] == profile


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_a_batch_that_trl_takes(name):
    settings = PROFILES[name]
    assert settings.batch_size % settings.num_generations == 0
    assert settings.batch_size % settings.per_device_batch == 0
    assert settings.heldout >= 400


def test_a_smaller_batch_bends_the_device_batch_and_nothing_else():
    settings = RunConfig.from_env(batch_size=48, num_generations=4).settings
    assert (settings.batch_size, settings.per_device_batch, settings.prompts_per_step) == (
        48,
        48,
        12,
    )


def test_a_model_folder_without_a_model_type_is_said(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": null}')
    with pytest.raises(WorkbookError, match="unknown family ''"):
        RunConfig.from_env(model=str(tmp_path))
