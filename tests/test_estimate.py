import json
import re

import pytest
from conftest import cli
from PIL import Image

from grpo_workbook.cli.estimate_command import parse, report
from grpo_workbook.config import PROFILES, replace_settings
from grpo_workbook.errors import WorkbookError
from grpo_workbook.planning.architectures import architecture
from grpo_workbook.planning.cost_figures import COUNTS, cost_panels, gpu_counts
from grpo_workbook.planning.estimate import estimate
from grpo_workbook.planning.memory import GIB, memory
from grpo_workbook.planning.step_time import (
    GPUS,
    communication_seconds,
    saturation,
    step_seconds,
    update_seconds,
)


def test_what_a_user_reads():
    result = cli("estimate", "--model", "Qwen/Qwen3-4B", "--profile", "t4")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = result.stdout
    for part in (
        "weights (4-bit)",
        "LoRA adapters",
        "optimizer",
        "inputs of all layers",
        "logits",
        "KV cache",
    ):
        assert part in text
    for other in (
        "weights in 16-bit",
        "activations without checkpointing",
        "It fits",
        "not measured",
        "a step with",
    ):
        assert other in text


def test_the_parts_add_up():
    found = estimate("qwen3-4b", "t4")
    sizes = found.as_dict()["bytes"]
    total = sizes.pop("total")
    m = found.memory
    always, generation, update = (sum(p.values()) for p in (m.always, m.generation, m.update))
    assert sum(sizes.values()) == pytest.approx(always + generation + update, abs=20)
    assert total == pytest.approx(always + max(generation, update), abs=20)


def test_what_does_not_fit_is_told_what_to_change_and_then_fits():
    result = cli("estimate", "--model", "gemma-3-12b", "--profile", "t4", "--json")
    assert result.returncode == 1
    said = json.loads(result.stdout)
    assert said["fits"] is False
    assert said["measured"] is False
    totals = [c["total_bytes"] for c in said["changes"]]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] <= said["usable_bytes"] < said["bytes"]["total"]
    # the same changes, by hand, give what was said, and it fits
    changes = {c["what"].split()[0]: int(c["what"].rsplit(" ", 1)[1]) for c in said["changes"]}
    assert list(changes) == ["per_device_batch", "batch_size"]
    again = estimate("gemma-3-12b", "t4", changes)
    assert again.fits
    assert again.memory.total == pytest.approx(totals[-1], abs=1)


def test_the_cheapest_change_comes_first_and_only_what_is_needed_is_told():
    found = estimate("qwen3-1.7b", "t4", {"gradient_checkpointing": False})
    assert not found.fits
    assert [c.what for c in found.changes] == ["per_device_batch 8 -> 2"]
    found = estimate(
        "qwen3-1.7b", "t4", {"gradient_checkpointing": False, "batch_size": 8}, gib=5.5
    )
    assert [c.what for c in found.changes] == [
        "per_device_batch 8 -> 1",
        "gradient_checkpointing off -> on",
    ]


def test_where_no_setting_is_enough_a_smaller_model_is_named():
    found = estimate("qwen3-8b", "t4", gib=5)
    assert found.changes[-1].what.startswith("model -> unsloth/Qwen3")
    assert found.changes[-1].total <= found.budget
    hopeless = estimate("qwen3-8b", "t4", gib=0.5)
    assert hopeless.changes[-1].total > hopeless.budget
    assert "That is not enough: take a larger GPU" in report(hopeless)


@pytest.mark.parametrize(
    ("changes", "grows"),
    [
        ({"batch_size": 64}, "KV cache"),
        ({"max_completion_length": 1024}, "KV cache"),
        ({"lora_rank": 64}, "optimizer (AdamW)"),
        ({"load_in_4bit": False}, "weights (16-bit)"),
        ({"per_device_batch": 16}, "logits, in pieces"),
    ],
)
def test_more_of_anything_takes_more(changes, grows):
    before, after = estimate("qwen3-4b", "t4").memory, estimate("qwen3-4b", "t4", changes).memory
    name = grows if grows in before.parts else "weights (4-bit)"
    assert after.parts[grows] > before.parts[name]


def test_vllm_beside_the_training_needs_room_for_its_cache():
    cramped = estimate("qwen3-8b", "24gb", {"vllm": "colocate", "vllm_gpu_memory": 0.3})
    assert cramped.room == int(
        (0.3 * 22.1 * GIB - cramped.alternatives["weights in 4-bit"]) // (147_456 * 1280)
    )
    assert f"vLLM writes {cramped.room} of 32 completions at once" in report(cramped)
    roomy = estimate("qwen3-8b", "24gb", {"vllm": "colocate", "vllm_gpu_memory": 0.6})
    assert roomy.seconds["generation"] < cramped.seconds["generation"] / 2
    assert roomy.memory.total > cramped.memory.total
    none = estimate("qwen3-8b", "24gb", {"vllm": "colocate", "vllm_gpu_memory": 0.2})
    assert none.fits is False
    assert "no room for one completion" in report(none)


def test_checkpointing_trades_memory_for_time():
    with_, without = (
        estimate("qwen3-4b", "24gb", {"gradient_checkpointing": on}) for on in (True, False)
    )
    assert with_.memory.learning < without.memory.learning
    assert with_.seconds["update"] == pytest.approx(1.5 * without.seconds["update"])
    assert with_.seconds["generation"] == without.seconds["generation"]


def test_the_arithmetic_of_an_update_by_hand():
    """A 1.7 B model, 32 completions of 896 tokens: 6 operations for each weight and token, and attention."""
    a, s, gpu = architecture("qwen3-1.7b"), PROFILES["t4"], GPUS["t4"]
    tokens = 32 * 896
    weights = 1_409_286_144 + 151_936 * 2048
    by_hand = (6 * weights * tokens + 3 * tokens * 28 * 2 * 896 * 2048) / (65e12 * 0.35)
    assert update_seconds(a, s, gpu, 32) == pytest.approx(by_hand)


def test_a_ring_of_gpus_by_hand():
    a, s = architecture("qwen3-4b"), PROFILES["24gb"]
    volume = 33_030_144 * s.lora_rank / 16 * 4
    assert communication_seconds(a, s, 8) == pytest.approx(2 * 7 / 8 * volume / 25e9 + 14 * 20e-6)
    assert communication_seconds(a, s, 1) == 0


def test_generation_saturates_first_and_no_gpu_makes_it_slower():
    a = architecture("qwen3-8b")
    s = replace_settings(
        PROFILES["80gb"], {"batch_size": 1024, "load_in_4bit": False, "vllm": "server"}
    )
    found, stuck, count = saturation(a, s, GPUS["80gb"], COUNTS)
    assert stuck == "generation"
    assert 1 < count < 128
    for part in ("generation", "update"):
        values = [found[n][part] for n in COUNTS]
        assert values == sorted(values, reverse=True)
    one, many = (sum(found[n].values()) for n in (1, 1024))
    assert 1 < one / many < 1024


def test_processes_that_cannot_share_the_batch_are_refused():
    assert (
        step_seconds(architecture("qwen3-4b"), PROFILES["t4"], GPUS["t4"], 4)["communication"] > 0
    )
    assert estimate("qwen3-4b", "24gb", processes=4).seconds["communication"] > 0
    with pytest.raises(
        WorkbookError, match="32 completions cannot be shared out among 3 processes"
    ):
        estimate("qwen3-4b", "24gb", processes=3)
    with pytest.raises(WorkbookError, match="at least one"):
        estimate("qwen3-4b", "24gb", processes=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "llama"], "not known here"),
        (["--profile", "h100"], "unknown profile 'h100'"),
        (["--set", "batch_size"], "give NAME=VALUE"),
        (["--set", "batchsize=3"], "unknown setting 'batchsize'"),
        (["--set", "batch_size=many"], "'many' is not what batch_size takes"),
        (["--set", "load_in_4bit=perhaps"], "is not what load_in_4bit takes"),
        (["--set", "num_generations=7"], "cannot be cut into groups of 7"),
        (["--memory", "-3"], "give the GPU's memory in GiB"),
        (["--memory", "1e300", "--json"], "give the GPU's memory in GiB"),
        (["--memory", "inf"], "give the GPU's memory in GiB"),
        (["--set", "stps=3"], "unknown setting 'stps': did you mean steps?"),
        (["--set", "lora_rank=1000000000"], "lora_rank is 1000000000: it must be at most"),
        (["--set", "dtype=floot"], "dtype is 'floot': choose one of"),
        (["--figure", "x.txt"], "name a .png file"),
        (["--figure", "no-such-folder/x.png"], "name a file in a folder that exists"),
        (["--processes", "5"], "cannot be shared out"),
        (["--profile", "smoke", "--figure", "x.png"], "no GPU to draw"),
    ],
)
def test_bad_input_is_named(arguments, message):
    from grpo_workbook.__main__ import main, parser
    from grpo_workbook.cli.estimate_command import main as command

    with pytest.raises(WorkbookError, match=re.escape(message)):
        command(parser().parse_args(["estimate", *arguments]))
    assert main(["estimate", *arguments]) == 2


def test_the_report_fits_80_columns_where_nothing_helps():
    text = report(estimate("qwen3-8b", "t4", {"lora_rank": 9999}))
    assert "no setting helps" in text
    assert max(map(len, text.splitlines())) <= 80


def test_settings_from_the_command_line_have_their_types():
    pairs = ["batch_size=64", "learning_rate=1e-6", "load_in_4bit=off", "loss_type=dr_grpo"]
    assert parse(pairs) == {
        "batch_size": 64,
        "learning_rate": 1e-6,
        "load_in_4bit": False,
        "loss_type": "dr_grpo",
    }


@pytest.mark.parametrize("option", ["--list", "--assumptions"])
def test_tables_fit_80_columns(option, capsys):
    from grpo_workbook.__main__ import main

    assert main(["estimate", option]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "measured" in out


@pytest.mark.parametrize(
    "model", ["qwen", "gemma-3-12b", "unsloth/Qwen3.5-4B", "google/gemma-4-E4B-it"]
)
@pytest.mark.parametrize("profile", list(PROFILES))
def test_every_report_fits_80_columns(model, profile):
    assert max(map(len, report(estimate(model, profile)).splitlines())) <= 80


def test_the_tiny_model_in_the_smoke_profile_has_no_limit():
    found = estimate("qwen", "smoke")
    assert found.fits is None
    assert found.minutes is None
    assert found.memory.total < 2 * GIB
    assert estimate("qwen", "smoke", gib=8).fits


def test_figures_and_their_words(tmp_path):
    result = cli(
        "estimate", "--model", "gemma-3-4b", "--profile", "24gb", "--figure", tmp_path / "c.png"
    )
    assert result.returncode == 0, result.stderr
    for name in ("c.png", "c-gpus.png"):
        words = Image.open(tmp_path / name).text["Description"]
        assert (tmp_path / name).with_suffix(".txt").read_text().strip() == words
    found = estimate("gemma-3-4b", "24gb")
    _, words = cost_panels(found)
    small = memory(
        architecture("gemma-3-4b"),
        replace_settings(found.settings, {"max_completion_length": 128}),
        gib=22.1,
    )
    assert f"longest completion, tokens from 128 to 2048: {small.total / GIB:.1f} to " in words
    assert "computed, not measured" in words
    _, words = gpu_counts(found)
    assert "Generation saturates first" in words
