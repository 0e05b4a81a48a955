"""What `--backend plain` does on GPUs with a 4-bit base, as far as a CPU can tell."""

import json
import sys

import pytest
from conftest import REPO, finished, raises_naming

from grpo_workbook.config import check_grpo_config, choose_profile
from grpo_workbook.errors import WorkbookError
from grpo_workbook.training import load_policy

PIECES = """
import json, sys
import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from trl import GRPOConfig, GRPOTrainer
from grpo_workbook import Float32Adapters, choose_profile, correctness_reward, load_policy
from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset

profile = choose_profile("smoke", dtype="float16", grpo={"max_steps": 1})
model, tokenizer = load_policy(profile, "plain")
rows = to_dataset(load_problems(WORD_PROBLEMS["train"]).select(range(16)))
args = GRPOConfig(output_dir=sys.argv[1], **profile.grpo)
parts = {"processing_class": tokenizer, "callbacks": [Float32Adapters(model)]}
model = GRPOTrainer(model, correctness_reward, args, rows, **parts).model
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
    from trl import GRPOConfig

    values = {**choose_profile("smoke").grpo, "use_vllm": True}
    args = GRPOConfig(output_dir=str(tmp_path), **values)
    with raises_naming(WorkbookError, "use_vllm=False"):
        check_grpo_config(args, device="cuda", backend="plain", load_in_4bit=True)
    check_grpo_config(args, device="cuda", backend="plain", load_in_4bit=False)


@pytest.mark.slow
def test_merging_into_a_4bit_base_and_out_again_changes_it():
    """The reason: TRL does so whenever it sends vLLM the weights."""
    policy, _ = load_policy(choose_profile(), "plain")
    layer = policy.get_base_model().model.layers[0].mlp.up_proj
    layer.lora_B["default"].weight.data.normal_(std=0.05)
    before = layer.base_layer.weight.clone()
    policy.merge_adapter()
    policy.unmerge_adapter()
    assert (layer.base_layer.weight != before).any()
