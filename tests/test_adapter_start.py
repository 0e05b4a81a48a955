"""GRPO that starts from an adapter of an earlier training: it is trained on, and merged."""

import json
import shutil

import pytest
import torch
from conftest import REPO, assert_names, raises_naming, report_of, trains
from safetensors.torch import load_file, save_file

from grpo_workbook import compat
from grpo_workbook.cli import main, options
from grpo_workbook.config import choose_profile
from grpo_workbook.data import WORD_PROBLEMS, chat_prompt, load_problems, render, to_dataset
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import evaluate
from grpo_workbook.models import fingerprint, load_model
from grpo_workbook.training import load_policy

TINY, GEMMA = REPO / "data" / "tiny-qwen3", REPO / "data" / "tiny-gemma3"
WEIGHTS = "adapter_model.safetensors"
SIZES = ["--heldout", "40", "--per_device_train_batch_size", "16", "--num_generations", "8"]


def save_trained_adapter(folder, base=TINY, **settings):
    """An adapter as PEFT saves it, without a tokenizer, whose weights change the model."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(**{"r": 4, "target_modules": ["q_proj", "v_proj"], **settings})
    model = get_peft_model(load_model(base)[0], config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.05)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    return save_trained_adapter(tmp_path_factory.mktemp("sft") / "adapter", lora_alpha=32)


def logits_of(model, tokenizer):
    text = render([chat_prompt("Ada has 3 pens and buys 4. How many?")], tokenizer)
    model.eval()
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt", add_special_tokens=False)).logits


@pytest.mark.parametrize("backend", ["unsloth", "plain"])
@pytest.mark.parametrize(
    "settings",
    [
        {"lora_alpha": 32},
        {"r": 8, "use_rslora": True, "rank_pattern": {"v_proj": 2}, "lora_dropout": 0.1},
        {"use_dora": True},
        {"modules_to_save": ["embed_tokens"]},
    ],
)
@pytest.mark.slow
def test_the_policy_is_the_base_with_the_adapter(tmp_path, backend, settings):
    """Its rank, alpha and layers count, and not the profile's; all of it can be trained."""
    folder = save_trained_adapter(tmp_path / "sft", **settings)
    profile = choose_profile(load_in_4bit=False, lora_rank=32)
    policy, tokenizer = load_policy(profile, backend, adapter=folder)
    expected = logits_of(*load_model(TINY, folder))
    assert torch.allclose(logits_of(policy, tokenizer), expected, atol=1e-4)
    with policy.disable_adapter():
        assert not torch.allclose(logits_of(policy, tokenizer), expected, atol=1e-2)
    saved = load_file(folder / "adapter_model.safetensors")
    learning = [name for name, weight in policy.named_parameters() if weight.requires_grad]
    assert len(learning) == len(saved)
    config = policy.peft_config["default"]
    assert (config.r, config.lora_dropout) == (settings.get("r", 4), 0.0)
    assert config.base_model_name_or_path == str(TINY)


@pytest.mark.slow
def test_a_tokenizer_beside_the_adapter_is_used(tmp_path, adapter):
    folder = shutil.copytree(adapter, tmp_path / "sft")
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(TINY / file, folder)
    template = "SFT {% for m in messages %}{{ m.content }}{% endfor %}"
    (folder / "chat_template.jinja").write_text(template)
    _, tokenizer = load_policy(choose_profile(), adapter=folder)
    assert render([chat_prompt("Hello", None)], tokenizer) == ["SFT Hello"]


@pytest.mark.parametrize(("backend", "copies"), [("unsloth", False), ("plain", True)])
def test_the_reference_on_a_gpu_is_told(backend, copies):
    assert ("WITHOUT the adapter" in compat.reference_of(0.1, backend, "cuda")) is not copies
    assert "copy of the adapter" in compat.reference_of(0.1, "unsloth", "cpu")


# ------------------------------------------------------------------ what is refused


def _changed(tmp_path, adapter, **changes):
    folder = shutil.copytree(adapter, tmp_path / "changed")
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


REFUSED = {
    "missing": (lambda t, a: ["--adapter", t / "none"], "none"),
    "a model": (lambda t, a: ["--adapter", TINY], "adapter_config.json"),
    "not LoRA": (lambda t, a: ["--adapter", _changed(t, a, peft_type="IA3")], "IA3"),
    "another base": (lambda t, a: ["--adapter", a, "--model", GEMMA], "data/tiny-gemma3"),
    "another rank": (lambda t, a: ["--adapter", a, "--lora_rank", "8"], "rank 4"),
    "as the model": (lambda t, a: ["--model", a], "--adapter"),
    "its base is gone": (
        lambda t, a: ["--adapter", _changed(t, a, base_model_name_or_path="/gone/base")],
        "/gone/base",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_adapter_that_cannot_be_trained_is_refused_at_once(tmp_path, capsys, adapter, name):
    arguments, named = REFUSED[name]
    command = ["run", "--output_dir", tmp_path / "out", *arguments(tmp_path, adapter)]
    assert main([str(word) for word in command]) == 2
    assert_names(capsys.readouterr().err, "error: ", named)
    assert not (tmp_path / "out").exists()


def test_an_adapter_at_home_is_the_same_adapter(adapter, monkeypatch):
    """A shell leaves --adapter=~/... as it is, and run.json needs the hash of its files."""
    monkeypatch.setenv("HOME", str(adapter.parent))
    request = options.parse([f"--adapter=~/{adapter.name}"])
    assert fingerprint(request.options.adapter) == fingerprint(adapter) is not None


def _wider(name, weight):
    return name, torch.cat([weight, weight], dim=1) if "lora_A" in name else weight


def _deeper(name, weight):
    return name.replace("layers.3.", "layers.30."), weight


@pytest.mark.slow
@pytest.mark.parametrize("change", [_wider, _deeper])
def test_weights_of_another_base_are_refused_before_anything_is_measured(
    tmp_path, capsys, adapter, change
):
    """Under this base's name: other shapes, and a layer that this one does not have."""
    other = shutil.copytree(adapter, tmp_path / "other")
    weights = load_file(adapter / WEIGHTS)
    save_file(dict(change(name, weights[name]) for name in weights), other / WEIGHTS)
    with raises_naming(WorkbookError, other, "data/tiny-qwen3"):
        load_policy(choose_profile(), adapter=other)
    out = tmp_path / "out"
    assert main(["run", "--adapter", str(other), "--output_dir", str(out)]) == 2
    assert_names(capsys.readouterr().err, other)
    assert not out.exists()


# ------------------------------------------------------------------ the run


@pytest.fixture(scope="module")
@trains
def started(tmp_path_factory, adapter):
    """(folder, command) of a run of four steps from the adapter."""
    folder = tmp_path_factory.mktemp("run")
    command = ["run", "--adapter", str(adapter), *SIZES, "--beta", "0.1", "--save_steps", "2"]
    command += ["--max-steps", "4", "--output_dir", str(folder)]
    assert main(command) == 0
    return folder, command


def test_before_is_the_adapter_and_the_merged_result_is_proved(started, adapter):
    folder, _ = started
    report = report_of(folder)
    assert report["merge"]["same_greedy_tokens"] >= 0.98
    config = json.loads((folder / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"]) == (4, 32)
    assert report["adapter"].endswith("adapter")

    rows = load_problems(WORD_PROBLEMS["heldout"]).select(range(40))
    profile = choose_profile()
    policy, tokenizer = load_policy(profile, adapter=adapter)
    tokens = profile.grpo["max_completion_length"]
    scores = evaluate(policy, tokenizer, to_dataset(rows), max_new_tokens=tokens)
    assert report["heldout"]["greedy"]["lenient"]["before"] == pytest.approx(
        sum(scores.lenient) / 40, abs=1e-4
    )
    # With beta above 0 the reference is the adapter of the start.
    reference = load_file(folder / "checkpoints" / "checkpoint-4" / "ref" / WEIGHTS)
    at_start = load_file(adapter / WEIGHTS)
    assert all(torch.allclose(reference[n].float(), at_start[n], atol=2e-3) for n in at_start)
    now = load_file(folder / "adapter" / WEIGHTS)
    assert any(not torch.equal(now[n], at_start[n]) for n in at_start)


def test_it_resumes_from_the_same_adapter_only(started, adapter, tmp_path, capsys):
    folder, command = started
    weights = folder / "adapter" / WEIGHTS
    trained = weights.read_bytes()
    (folder / "report.json").unlink()
    shutil.rmtree(folder / "checkpoints" / "checkpoint-4")
    assert main([*command, "--resume"]) == 0
    assert report_of(folder)["resumed_from_step"] == 2
    assert weights.read_bytes() == trained
    capsys.readouterr()
    other = save_trained_adapter(tmp_path / "other", lora_alpha=8)
    command[command.index("--adapter") + 1] = str(other)
    assert main([*command, "--resume"]) == 2
    assert_names(capsys.readouterr().err, "adapter_hash")
