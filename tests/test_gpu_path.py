"""What a GPU would run of Unsloth, on a CPU (see fake_cuda.py): loading, adapters, the trainer."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import REPO, environment
from test_loader import make

# In a folder of its own: a CPU machine has no use for Triton, and its other tests go without.
TRITON = REPO / ".venv" / "triton"
pytestmark = [
    pytest.mark.trains,
    pytest.mark.skipif(
        not (importlib.util.find_spec("triton") or TRITON.is_dir()),
        reason="Unsloth's path for a GPU needs Triton, which `make test-all` installs",
    ),
]
START = """
import json, sys
sys.path.insert(0, "tests")
import fake_cuda
import unsloth
fake_cuda.arm()
import trl
from grpo_workbook import choose_profile, config, load_model, load_policy, load_problems
from grpo_workbook import Float32Adapters, parse_rewards, save_adapter, to_dataset
from grpo_workbook.data import WORD_PROBLEMS
config.find_device = lambda: ("cuda", fake_cuda.GIB, fake_cuda.PROPERTIES.name)
grpo = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
grpo |= {"num_generations": 4, "max_steps": 1}
where = {"model": sys.argv[1], "output": sys.argv[2], "load_in_4bit": False, "grpo": grpo}
profile = choose_profile("smoke", **where)
told = {}

def rows_and_rewards():
    problems = load_problems(WORD_PROBLEMS["train"])
    problems = problems.filter(lambda row: row["rare"])  # the others are solved: no gradient
    rows = to_dataset(problems.select(range(16)))
    functions, weights = parse_rewards(config.REWARDS)
    folder = str(profile.output / "checkpoints")
    return rows, functions, trl.GRPOConfig(folder, reward_weights=weights, **profile.grpo)
"""
VISION = """
loader, given = unsloth.FastModel, {}
load, adapt = loader.from_pretrained, loader.get_peft_model

def loaded(**how):
    given.update(how)
    return load(**how)

def beside_vllm(model, **how):
    model.vllm_engine = object()
    try:
        return adapt(model, **how)
    finally:
        del model.vllm_engine

loader.from_pretrained, loader.get_peft_model = map(staticmethod, (loaded, beside_vllm))
policy, tokenizer = load_policy(profile)
for name, weight in policy.named_parameters():
    if "lora_B" in name:
        weight.data.normal_(std=0.05)
save_adapter(policy, tokenizer, profile.output / "adapter")
again = dict(load_model(profile.model, profile.output / "adapter")[0].named_parameters())
trained = {name: w for name, w in policy.named_parameters() if w.requires_grad}
told["text_only"], told["exact"] = given["text_only"], given["use_exact_model_name"]
told["base"] = policy.peft_config["default"].base_model_name_or_path
told["adapters"] = list(trained)
told["same"] = all(bool((again[name] == w).all()) for name, w in trained.items())
"""
TRAINS = """
policy, tokenizer = load_policy(profile)
rows, functions, args = rows_and_rewards()
callbacks = [Float32Adapters(policy)] if sys.argv[3] == "ours" else []
parts = {"processing_class": tokenizer, "callbacks": callbacks}
trainer = trl.GRPOTrainer(policy, functions, args, rows, **parts)
trainer.train()
told["dtype"] = profile.dtype
told["trainer"] = type(trainer).__mro__[1].__name__
told["half"] = [trainer.args.bf16, trainer.args.fp16, trainer.accelerator.mixed_precision]
told["autocast"] = trainer._autocast_enabled
told["adapters"] = sorted({str(p.dtype) for p in policy.parameters() if p.requires_grad})
told["gradient"] = trainer.state.log_history[0]["grad_norm"]
"""


CHAPTER = """
import gc, re, weakref
import torch
from pathlib import Path
source = Path("notebooks/source/04_grpo_run.py").read_text()
cells = re.split("(?m)^# %%.*\\n", source.split("# ## Exercises")[0])
from datasets.utils.logging import disable_progress_bar
disable_progress_bar()
rows, functions, args = rows_and_rewards()
names = {"profile": profile, "train_set": rows, "functions": functions}
names["weights"] = args.reward_weights
names |= dict.fromkeys(["layer", "packed", "W", "A", "B", "block"])  # of a 4-bit layer
from transformers import PrinterCallback
names |= {"GRPOTrainer": trl.GRPOTrainer, "PrinterCallback": PrinterCallback, "args": args}

def execute(word):
    (cell,) = [cell for cell in cells if word in cell and not cell.startswith("# ")]
    exec(compile(cell, word, "exec"), names)

execute("load_policy(profile)")
execute("import count_4bit_layers")
learning = {n: p for n, p in names["model"].named_parameters() if p.requires_grad}
told["adapters"] = list(learning)
execute("RewardBar()]")
told["gradient"] = names["trainer"].state.log_history[0]["grad_norm"]
gone = [weakref.ref(names[name]) for name in ("model", "trainer")]
del learning
execute("clear_device_cache(")
told["left"] = [str(type(one())) for one in gone if one() is not None]
told["steps"], told["saved"] = names["steps"], (profile.output / "adapter").is_dir()
"""


PICTURES = """
import dataclasses, re
from pathlib import Path
from datasets import Dataset
from grpo_workbook import correctness_reward, evaluate
from grpo_workbook.compat import picture_tokens
from grpo_workbook.exercises.charts import make_charts, rows
from grpo_workbook.pictures import check_pictures, picture_controls
source = Path("notebooks/source/15_pictures.py").read_text()
# The same cells with the tiny model, in 32 bits, and for one step.
shorter = {
    "unsloth/Qwen3-VL-2B-Instruct": sys.argv[1],
    "max_seq_length=4096, load_in_4bit=True": "max_seq_length=4096, load_in_4bit=False",
    # Unsloth pins memory for its checkpoints, which needs a GPU.
    'use_gradient_checkpointing="unsloth"': "use_gradient_checkpointing=False",
    "max_steps=60": "max_steps=1",
    "max_new_tokens=1024": "max_new_tokens=48",
    "max_completion_length=1024": "max_completion_length=48",
}
for old, new in shorter.items():
    assert old in source, old
    source = source.replace(old, new)
cells = re.split("(?m)^# %%.*\\n", source)
names = {"profile": dataclasses.replace(profile, name="t4"), "evaluate": evaluate}
names["GRPOConfig"] = trl.GRPOConfig
names["GRPOTrainer"] = trl.GRPOTrainer
names["picture_tokens"] = picture_tokens
names["picture_controls"] = picture_controls
names["correctness_reward"] = correctness_reward
# Some charts as MathVista has its questions, in the place of the download.
questions = []
for row in rows(make_charts(16, seed=1, heldout=False), "grey"):
    text = row["prompt"][1]["content"]
    questions.append(dict(decoded_image=row["image"], question=text, answer=row["answer"]))

def execute(word):
    (cell,) = [cell for cell in cells if word in cell and not cell.startswith("# ")]
    exec(compile(cell, word, "exec"), names)

execute("FastVisionModel.from_pretrained")
learning = [name for name, weight in names["large"].named_parameters() if weight.requires_grad]
told["adapters"] = learning
names["on_a_gpu"] = False  # only its function: the rest downloads
execute("def to_row")
data = Dataset.from_list(questions)
data = data.map(names["to_row"], remove_columns=data.column_names)
check_pictures(data, names["large_processor"])
names["halves"] = {"train": data, "test": data.select(range(4))}
names["on_a_gpu"] = True
execute("large_args = GRPOConfig")
told["columns"] = data.column_names
told["steps"] = names["large_trainer"].state.global_step
told["tokens"] = names["large_trainer"].state.log_history[0]["num_tokens"]
told["trainer"] = type(names["large_trainer"]).__mro__[1].__name__
"""


def on_a_gpu(code: str, model: Path, *given, **env: str) -> dict:
    """What the code told, in a process that takes this machine for one with an L4."""
    code = START + code + "print(json.dumps(told))"
    command = [sys.executable, "-c", code, *map(str, (model, *given))]
    how = {"capture_output": True, "text": True, "env": environment(PYTHONPATH=str(TRITON), **env)}
    result = subprocess.run(command, cwd=REPO, **how)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_a_model_that_sees_is_adapted_beside_vllm_and_its_adapter_found_again(tmp_path):
    base = make("gemma3", tmp_path / "base")
    told = on_a_gpu(VISION, base, tmp_path)
    assert told["text_only"]
    assert told["exact"]
    assert told["base"] == str(base)
    assert told["same"]
    assert len(told["adapters"]) == 4 * 7 * 2
    assert not [name for name in told["adapters"] if "vision" in name]


@pytest.mark.parametrize("whose", ["ours", "stock"])
def test_float32_stays_float32_where_the_gpu_has_bfloat16(whose, tmp_path):
    told = on_a_gpu(TRAINS, REPO / "data" / "tiny-qwen3", tmp_path, whose)
    assert told["trainer"].startswith(("Unsloth", "_Unsloth"))
    assert told["half"] == [False, False, "no"]
    assert not told["autocast"]
    assert told["adapters"] == ["torch.float32"]
    assert told["gradient"] > 0


def test_a_gemma_is_trained_in_what_unsloth_takes_where_nothing_else_was_asked_for(tmp_path):
    told = on_a_gpu(TRAINS, REPO / "data" / "tiny-gemma3", tmp_path, "ours", FAKE_CAPABILITY="7.5")
    assert told["dtype"] == "float16"
    assert told["adapters"] == ["torch.float32"]
    assert told["gradient"] > 0


@pytest.mark.parametrize("family", ["tiny-qwen3", "gemma3"])
def test_chapter_04_loads_trains_and_frees_the_model(family, tmp_path):
    """Its own cells, also on a checkpoint that sees."""
    sees = family == "gemma3"
    model = make(family, tmp_path / "base") if sees else REPO / "data" / family
    told = on_a_gpu(CHAPTER, model, tmp_path)
    assert len(told["adapters"]) == 4 * 7 * 2
    assert not [name for name in told["adapters"] if "vision" in name]
    assert told["gradient"] > 0
    assert told["saved"]
    assert told["steps"] == 1
    assert told["left"] == []


def test_chapter_15_trains_the_language_layers_of_a_model_that_sees(tmp_path):
    told = on_a_gpu(PICTURES, REPO / "data" / "tiny-vision", tmp_path)
    assert len(told["adapters"]) == 4 * 7 * 2
    assert not [name for name in told["adapters"] if "vision_tower" in name]
    assert sorted(told["columns"]) == ["answer", "image", "prompt"]
    assert told["trainer"].startswith(("Unsloth", "_Unsloth"))
    # No gradient: the tiny model does not answer in the form that these questions ask for.
    assert told["steps"] == 1
    assert told["tokens"] > 0
