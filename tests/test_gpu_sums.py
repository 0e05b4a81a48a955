"""What a run does beside training, on paper, for every model of the catalogue and every profile.

A run that fits must not end in too little memory when it is measured or merged, hours later.
"""

import re

import pytest
import torch
from conftest import REPO

from grpo_workbook.config import PROFILES
from grpo_workbook.errors import WorkbookError
from grpo_workbook.export import LOGIT_BYTES, _device_and_dtype
from grpo_workbook.planning import (
    KNOWN,
    PROFILE_GIB,
    find_shape,
    kv_cache_bytes,
    logits_bytes,
    plan,
)

TOO_LARGE = {(m, p) for m in ("gemma-3-12b", "gemma-4-e4b") for p in ("t4", "24gb")}


def run_that_fits(model: str, profile: str):
    try:
        found = plan(model, profile)
    except WorkbookError:  # vLLM's part cannot hold a completion
        found = None
    assert bool(found and found.fits) == ((model, profile) not in TOO_LARGE)
    if not found or not found.fits:
        pytest.skip("its training does not fit either, and the plan says so")
    settings, shape = found.settings, find_shape(model)
    length = settings.max_prompt_length + settings.max_completion_length
    batch = PROFILES[profile]["eval_batch_size"]
    cache = kv_cache_bytes(shape, batch, length, settings.dtype)
    answering = cache * (1 + 1 / len(shape.layers)) + 2 * logits_bytes(shape, batch, 1)
    return found, shape, answering


CATALOGUE = pytest.mark.parametrize(
    ("model", "profile"), [(model, profile) for model in KNOWN for profile in PROFILE_GIB]
)


@pytest.mark.slow
@CATALOGUE
def test_measuring_fits_beside_the_training_model_and_vllm(model, profile):
    """Transformers answers the held-out problems, whatever samples in training."""
    found, _, answering = run_that_fits(model, profile)
    assert sum(found.parts["always"].values()) + answering <= found.usable


@pytest.mark.slow
@CATALOGUE
def test_a_merge_on_the_gpu_fits_with_its_proof(model, profile, monkeypatch):
    """The run's and the command's: one model at a time, its answers, and a row of its logits."""
    found, shape, answering = run_that_fits(model, profile)
    free = int(found.usable)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (free, free))
    device, dtype = _device_and_dtype(shape.weights[0])
    if device == "cuda":
        length = found.settings.max_completion_length + 1
        row = min(LOGIT_BYTES, logits_bytes(shape, 1, length)) * 2  # and its float32 copy
        weights = dtype.itemsize * shape.weights[0]
        assert weights + max(answering, row) <= found.usable


@pytest.mark.parametrize("chapter", ["09", "10"])
def test_the_chapters_that_hold_several_models_take_the_tiny_one_everywhere(chapter):
    """With a profile's own model 09 would need 30 of an L4's 22 GiB, and 10 41."""
    (source,) = (REPO / "notebooks" / "source").glob(f"{chapter}_*.py")
    calls = re.findall(r"choose_profile\(([^)]*)", source.read_text())
    assert calls
    assert all(call.startswith('"smoke"') for call in calls), calls


def test_chapter_04_has_room_to_merge_and_loads_nothing_beside_it():
    """The merge goes where it fits: on the GPU only after the policy and vLLM have left it."""
    source = (REPO / "notebooks" / "source" / "04_grpo_run.py").read_text()
    cells = re.split(r"^# %%.*\n", source.split("# ## Exercises")[0], flags=re.M)
    code = [cell for cell in cells if not cell.startswith("# ")]
    (free,) = [i for i, cell in enumerate(code) if "clear_device_cache(" in cell]
    (merging,) = [i for i, cell in enumerate(code) if re.search(r"\bmerge\(", cell)]
    assert free < merging
    assert re.search(r"^del model, trainer\b", code[free], re.M)
    assert "free_vllm(model)" in code[free]
    assert not re.search(r"load_model\(|load_policy\(|from_pretrained\(", "".join(code[free:]))


def test_chapter_04_says_the_hours_of_a_gpu_and_how_to_take_minutes():
    source = (REPO / "notebooks" / "source" / "04_grpo_run.py").read_text()
    first = source.split("# %% [markdown]\n")[1]
    assert re.search(r"T4\b.* hours", first, re.S)
    assert "GRPO_WORKBOOK_PROFILE=smoke" in first
