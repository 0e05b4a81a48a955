"""What `--backend plain` does on GPUs with a 4-bit base, as far as a CPU can tell."""

import pytest
from conftest import raises_naming

from grpo_workbook.config import check_grpo_config, choose_profile
from grpo_workbook.errors import WorkbookError
from grpo_workbook.training import load_policy


def test_a_vllm_beside_a_4bit_base_is_refused(tmp_path):
    from trl import GRPOConfig

    values = {**choose_profile("smoke").grpo, "use_vllm": True}
    args = GRPOConfig(output_dir=str(tmp_path), **values)
    with raises_naming(WorkbookError, "use_vllm=False"):
        check_grpo_config(args, backend="plain", load_in_4bit=True)
    check_grpo_config(args, backend="plain", load_in_4bit=False)


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
