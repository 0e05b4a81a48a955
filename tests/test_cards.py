"""The cards: what the hub reads, what a reader runs, and that neither tells about the machine."""

import copy
import json
import re
import shutil
import subprocess
import sys

from conftest import REPO, environment

from grpo_workbook.card_sections import without_paths
from grpo_workbook.cards import model_card, run_card, write_card
from grpo_workbook.intervals import wilson_interval

TINY = REPO / "data" / "tiny-qwen3"
BEFORE = {
    "strict_sampled": 0.25,
    "strict_greedy": 0.45,
    "lenient_sampled": 0.75,
    "well_formed_sampled": 0.3,
}
AFTER = {
    "strict_sampled": 0.925,
    "strict_greedy": 0.985,
    "lenient_sampled": 0.93,
    "well_formed_sampled": 0.99,
}
REPORT = {
    "model": "data/tiny-qwen3",
    "backend": "unsloth",
    "load_in_4bit": True,
    "lora_parameters": 131072,
    "steps": 120,
    "seed": 0,
    "reward_weights": {"correctness_reward": 2.0},
    "rewards": {"correctness_reward": {"first_tenth": 0.2, "last_tenth": 0.9}},
    "versions": {"python": "3.11.7", "trl": "1.15.0"},
    "data_sha256": "24" * 32,
    "data": {
        "train": 2400,
        "heldout": 400,
        "dropped_too_long_train": 7,
        "dropped_leaked": 0,
        "max_prompt_length": 160,
    },
    "heldout": {
        "n": 400,
        "before": BEFORE,
        "after": AFTER,
        "p_value": 3e-89,
        "p_value_well_formed": 1e-90,
    },
    "merge": {
        "max_abs_logit_difference": 0.03,
        "relative_logit_difference": 0.002,
        "same_greedy_tokens": 1.0,
    },
    "examples": [{"question": "2|3?", "answer": "5", "before": "?", "after": "<answer>5</answer>"}],
    "verdict": ["strict accuracy rose"],
}
SETTINGS = {
    "steps": 120,
    "rewards": "json_schema=/home/ada/private/schema.json:1",
    "max_completion_length": 64,
}


def test_the_metadata_is_the_hubs_and_survives_a_file(tmp_path):
    from huggingface_hub import ModelCard

    card = model_card(
        REPORT, base="Qwen/Qwen3-0.6B", data="openai/gsm8k:main:train", settings=SETTINGS
    )
    card.save(tmp_path / "README.md")
    data = ModelCard.load(tmp_path / "README.md").data
    assert data.to_dict() == card.data.to_dict()
    assert data.base_model == "Qwen/Qwen3-0.6B"
    assert (data.datasets, data.tags) == (["openai/gsm8k"], ["grpo", "trl", "unsloth"])
    assert "license" not in data.to_dict()
    found = {
        e.metric_name: (e.metric_value, e.metric_args["interval_95"]) for e in data.eval_results
    }
    interval = list(wilson_interval([True] * 370 + [False] * 30))
    assert found["strict, sampled, after training"] == (0.925, interval)
    assert found["strict, sampled, before training"][0] == 0.25
    assert {e.dataset_type for e in data.eval_results} == {"openai/gsm8k"}
    assert model_card(REPORT, base="Qwen/Qwen3-0.6B", license="mit").data.license == "mit"


def test_the_text_has_the_numbers():
    text = str(model_card(REPORT, base=TINY, settings=SETTINGS, base_hash="abc"))
    for words in (
        "| strict, sampled | 25.0% (21.0% to 29.5%) | 92.5% (89.5% to 94.7%) |",
        "p = 3e-89 by McNemar's exact paired test",
        "largest logit difference 0.03",
        "7 training prompts that were too long",
        "`" + "24" * 32 + "`",
        "| `correctness_reward` | 2 | 0.2 | 0.9 |",
        "| steps | 120 |",
        "2/3? (right: 5)",
        "`data/tiny-qwen3`, a local folder (hash `abc`)",
        "a toy of about a million parameters",
        "trl 1.15.0",
    ):
        assert words in text
    assert "may be chance" not in text
    doubtful = copy.deepcopy(REPORT)
    doubtful["heldout"]["p_value"] = 0.2
    assert "The difference in strict accuracy may be chance" in str(model_card(doubtful, base=TINY))


def test_a_local_base_or_data_set_is_no_id_of_the_hub(tmp_path):
    card = model_card(REPORT, base=TINY, data=tmp_path / "mine.jsonl")
    assert "base_model" not in card.data.to_dict()
    assert "datasets" not in card.data.to_dict()
    assert {e.dataset_type for e in card.data.eval_results} == {"mine"}
    assert (
        model_card(REPORT, base="data/tiny-qwen3").data.base_model is None
    )  # a folder that looks like an id
    for name in (
        "mine/train.parquet",
        "mine/train.TSV",
        "mine/train.jsonl.gz",
    ):  # a file that has been moved since
        assert "datasets" not in model_card(REPORT, base=TINY, data=name).data.to_dict()


def test_a_folder_with_a_space_in_its_name_is_cut_off_too(tmp_path, monkeypatch):
    home = tmp_path / "Jane Doe"
    (home / "My Drive" / "base").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    given = {
        "base": f"{home}/My Drive/base",
        "log": f"see {home}/runs/x.json, and {home}/y",
        "rate": "</answer>/1",
    }
    assert without_paths(given) == {
        "base": "base",
        "log": "see x.json, and y",
        "rate": "</answer>/1",
    }


def test_no_path_of_the_machine_is_in_a_card(tmp_path):
    base = shutil.copytree(TINY, tmp_path / "base")
    report = {
        **REPORT,
        "model": str(base),
        "data": {**REPORT["data"], "source": str(tmp_path / "mine.jsonl")},
    }
    for kind in ("adapter", "merged"):
        folder = shutil.copytree(TINY, tmp_path / kind)
        write_card(folder, report, SETTINGS, base=base, data=tmp_path / "mine.jsonl", kind=kind)
        for name in ("README.md", "run_card.json"):
            text = (folder / name).read_text(encoding="utf-8")
            assert str(tmp_path) not in text
            assert "/home/" not in text
            assert "schema.json" in text
    found = json.loads((tmp_path / "merged" / "run_card.json").read_text())
    assert found["report"]["heldout"] == REPORT["heldout"]
    assert found["report"]["examples"] == REPORT["examples"]
    assert found["base"]["name"] == found["report"]["model"] == "base"
    again = run_card(report, SETTINGS, base=TINY, folder=tmp_path / "merged")
    assert again["base"]["hash"] == found["base"]["hash"] is not None  # the same weights elsewhere


def test_outside_of_a_run_the_card_claims_nothing():
    card = model_card(
        {"merge": REPORT["merge"], "versions": {"trl": "1.15.0"}}, base="Qwen/Qwen3-0.6B"
    )
    assert card.data.eval_results is None
    assert card.data.tags is None
    assert "the same greedy token at 100.00%" in str(card)
    assert "was not known where it was merged" in str(card)


def test_what_the_card_says_to_run_runs(tmp_path):
    """Its own lines, in a process that starts in the folder."""
    folder = shutil.copytree(REPO / "data" / "tiny-gemma3", tmp_path / "merged")
    write_card(folder, REPORT, SETTINGS, base=TINY)
    code = re.search(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)[1]
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(), capture_output=True, text=True
    )
    assert "7+5=12" in result.stdout, result.stderr[-2000:]
