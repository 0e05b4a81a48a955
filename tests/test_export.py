import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO

from grpo_workbook.config import RunConfig
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, read_problems
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluate import generate
from grpo_workbook.export import compare_logits, merge, swap_folder
from grpo_workbook.loading import fingerprint
from grpo_workbook.merging import is_proved

ROWS = read_problems(WORD_PROBLEMS["heldout"])[:8]
PROMPTS = [chat_prompt(r["question"]) for r in ROWS]


def test_a_model_agrees_with_itself_and_not_with_a_disturbed_copy(tiny):
    import copy

    import torch

    model, tokenizer = tiny["qwen"]
    completions = generate(model, tokenizer, PROMPTS, max_new_tokens=48)
    assert compare_logits(model, model, tokenizer, PROMPTS, completions) == {
        "max_abs_logit_difference": 0.0,
        "relative_logit_difference": 0.0,
        "same_greedy_tokens": 1.0,
    }
    torch.manual_seed(0)
    other = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in other.model.layers[0].parameters():
            parameter += torch.randn_like(parameter)
    proof = compare_logits(model, other, tokenizer, PROMPTS, completions)
    assert proof["max_abs_logit_difference"] > 1
    assert proof["same_greedy_tokens"] < 0.9


def test_logits_that_are_no_numbers_are_no_agreement(tiny):
    import copy

    import torch

    model, tokenizer = tiny["qwen"]
    broken = copy.deepcopy(model)
    with torch.no_grad():
        broken.model.norm.weight[0] = torch.nan
    proof = compare_logits(
        model, broken, tokenizer, PROMPTS[:4], ["4", "5", "6", "7"], batch_size=2
    )
    assert (
        proof["max_abs_logit_difference"] != proof["max_abs_logit_difference"]
    )  # NaN, and not the 0 of equal ones
    assert not is_proved(proof)


def test_padding_and_batches_do_not_change_the_comparison(tiny):
    import copy

    import torch

    model, tokenizer = tiny["gemma"]
    completions = generate(model, tokenizer, PROMPTS, max_new_tokens=48)
    other = copy.deepcopy(model).to(torch.bfloat16).float()
    with torch.no_grad():
        other.model.norm.weight += 0.1
    proofs = [
        compare_logits(model, other, tokenizer, PROMPTS, completions, batch_size=n)
        for n in (1, 3, 8)
    ]
    assert proofs[0]["max_abs_logit_difference"] > 0
    assert proofs[1] == pytest.approx(proofs[0], abs=2e-5)
    assert proofs[2] == pytest.approx(proofs[0], abs=2e-5)


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_plain_transformers_loads_the_merged_folder(main_runs, family):
    """In a process that never imports Unsloth, PEFT or bitsandbytes: the same answers as in the report."""
    folder, _ = main_runs(family)
    code = f"""
import json, sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained({str(folder / "merged")!r}, dtype="float32")
tokenizer = AutoTokenizer.from_pretrained({str(folder / "merged")!r}, padding_side="left")
report = json.load(open({str(folder / "report.json")!r}))
from grpo_workbook.data import chat_prompt
for example in report["examples"]:
    ids = tokenizer.apply_chat_template(chat_prompt(example["question"]), add_generation_prompt=True,
                                        return_tensors="pt", return_dict=True)
    out = model.generate(**ids, do_sample=False, max_new_tokens=64)
    text = tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
    assert text == example["after"], (text, example["after"])
assert not [m for m in sys.modules if m.split(".")[0] in ("unsloth", "bitsandbytes")]
print("same")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == "same", result.stderr[-2000:]
    assert {f.suffix for f in (folder / "merged").iterdir()} <= {
        ".safetensors",
        ".json",
        ".jinja",
        ".md",
    }


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_adapter_and_merged_model_have_their_cards(main_runs, family):
    from huggingface_hub import ModelCard

    folder, _ = main_runs(family)
    report = json.loads((folder / "report.json").read_text())
    for part in ("adapter", "merged"):
        card = ModelCard.load(folder / part / "README.md")
        found = {e.metric_name: e.metric_value for e in card.data.eval_results}
        assert (
            found["strict, sampled, after training"] == report["heldout"]["after"]["strict_sampled"]
        )
        machine = json.loads((folder / part / "run_card.json").read_text())
        assert machine["report"]["heldout"] == report["heldout"]
        assert machine["settings"]["steps"] == report["steps"]
        assert machine["weights_hash"] == fingerprint(str(folder / part))
        assert str(REPO) not in str(card) + json.dumps(machine)
    assert "base_model_name_or_path" in (folder / "adapter" / "adapter_config.json").read_text()


def test_a_base_that_has_changed_since_is_not_merged_into(tmp_path):
    """The run's own merge asks the same as the command's."""
    base = shutil.copytree(REPO / "data" / "tiny-qwen3", tmp_path / "base")
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base)}))
    (adapter / "adapter_model.safetensors").write_bytes(b"")
    (adapter / "base.json").write_text(json.dumps({"base": "base", "hash": fingerprint(str(base))}))
    (base / "chat_template.jinja").write_text("{{ messages }}")
    for backend in ("unsloth", "plain"):
        with pytest.raises(
            WorkbookError, match=r"base is not the base that the adapter .* was trained on"
        ):
            merge(RunConfig.from_env(model=str(base)), adapter, tmp_path / "merged", backend)
    assert not (tmp_path / "merged").exists()


def test_merging_a_folder_without_adapter_is_refused(tmp_path):
    run = RunConfig.from_env(model="qwen")
    with pytest.raises(WorkbookError, match="holds no adapter"):
        merge(run, Path(run.model), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_failed_write_leaves_the_old_folder(tmp_path):
    folder = tmp_path / "adapter"
    folder.mkdir()
    (folder / "old").write_text("old")

    def fails(target):
        (target / "half").write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        swap_folder(folder, fails)
    assert [p.name for p in folder.iterdir()] == ["old"]
    swap_folder(folder, lambda target: (target / "new").write_text("new"))
    assert [p.name for p in folder.iterdir()] == ["new"]


def test_a_link_to_another_disk_stays_a_link(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk" / "adapter").mkdir()
    link = tmp_path / "adapter"
    link.symlink_to(tmp_path / "disk" / "adapter")
    swap_folder(link, lambda target: (target / "new").write_text("new"))
    assert link.is_symlink()
    assert [p.name for p in (tmp_path / "disk" / "adapter").iterdir()] == ["new"]
    assert [p.name for p in (tmp_path / "disk").iterdir()] == ["adapter"]
