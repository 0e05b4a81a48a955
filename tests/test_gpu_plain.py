"""What `--backend plain` does on GPUs with a 4-bit base, as far as a CPU can tell."""

import json
import sys
from dataclasses import replace

import pytest
from conftest import REPO, finished

from grpo_workbook import load_policy
from grpo_workbook.cli.run import Job
from grpo_workbook.errors import WorkbookError
from grpo_workbook.run_config import RunConfig, why_not_plain

PIECES = """
import json, sys
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from grpo_workbook import data, load_policy, load_problems
from grpo_workbook.run_config import RunConfig
from grpo_workbook import parse_rewards, to_dataset
from grpo_workbook.run_config import make_trainer

run = RunConfig.from_env(profile="smoke", dtype="float16", max_steps=1, output=sys.argv[1])
model, tokenizer = load_policy(run, "plain")
rows = to_dataset(load_problems(data.WORD_PROBLEMS["train"]).select(range(16)))
model = make_trainer(run, model, tokenizer, rows, *parse_rewards(run.rewards)).model
half = torch.float16
how = {"mp_policy": MixedPrecisionPolicy(half, half, half)}  # as accelerate's
how["mesh"] = torch.distributed.init_device_mesh("cpu", (2,))
for part in (*model.get_base_model().model.layers, model):
    fully_shard(part, **how)
learning = [p for p in model.parameters() if p.requires_grad]
optimizer, scaler = torch.optim.AdamW(learning, lr=1e-3), torch.amp.GradScaler("cpu", 16.0)
ids, losses = torch.arange(100, 132)[None], []
for step in range(3):
    with torch.autocast("cpu", half):
        logits = model(input_ids=ids).logits[0, :-1].float()
    losses.append(torch.nn.functional.cross_entropy(logits, ids[0, 1:]))
    scaler.scale(losses[-1]).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
if torch.distributed.get_rank() == 0:
    told = {"adapters": sorted({str(p.dtype) for p in learning})}
    frozen = {str(p.dtype) for p in model.parameters() if not p.requires_grad}
    told |= {"base": sorted(frozen), "losses": [x.item() for x in losses]}
    told["divided"] = all(isinstance(p, DTensor) for p in model.parameters())
    print(json.dumps(told))
torch.distributed.destroy_process_group()
"""


@pytest.mark.extra
def test_a_4bit_base_in_float16_is_divided_and_its_adapters_learn_in_float32(tmp_path):
    """TRL makes them bfloat16, which float16's gradient scaler on a GPU does not know."""
    (tmp_path / "pieces.py").write_text(PIECES)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    command = [sys.executable, *launch, str(tmp_path / "pieces.py"), str(tmp_path)]
    sharded = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "OMP_NUM_THREADS": "1"}
    result = finished(command, tmp_path, PYTHONPATH=str(REPO), **sharded)
    assert result.returncode == 0, result.stderr[-3000:]
    told = json.loads(result.stdout.splitlines()[-1])
    assert told["adapters"] == ["torch.float32"]
    assert told["base"] == ["torch.float16"]
    assert told["divided"]
    assert told["losses"][2] < told["losses"][1] < told["losses"][0]


def test_a_vllm_beside_a_4bit_base_is_refused(tmp_path):
    run = replace(RunConfig.from_env(output=tmp_path), device="cuda", vllm="colocate")
    with pytest.raises(WorkbookError, match="merge into the 4-bit base .*: say vllm: off, or load"):
        Job(run, backend="plain")
    assert why_not_plain(run.replace(load_in_4bit=False)) is None
    assert why_not_plain(run.replace(vllm="off")) is None


@pytest.mark.slow
def test_merging_into_a_4bit_base_and_out_again_changes_it():
    """The reason: TRL does so whenever it sends vLLM the weights."""
    policy, _ = load_policy(RunConfig.from_env(), "plain")
    layer = policy.get_base_model().model.layers[0].mlp.up_proj
    layer.lora_B["default"].weight.data.normal_(std=0.05)
    before = layer.base_layer.weight.clone()
    policy.merge_adapter()
    policy.unmerge_adapter()
    assert (layer.base_layer.weight != before).any()
