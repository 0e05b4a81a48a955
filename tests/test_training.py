from types import SimpleNamespace

import pytest

from grpo_workbook.config import RunConfig
from grpo_workbook.errors import WorkbookError
from grpo_workbook.training import count_4bit_layers, load_policy, reward_bar


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_the_policy_is_4bit_and_only_adapters_learn(family):
    run = RunConfig.from_env(model=family)
    model, tokenizer = load_policy(run)
    assert count_4bit_layers(model) == 4 * 7
    bases = [m.base_layer.weight for m in model.modules() if hasattr(m, "base_layer")]
    assert len(bases) == 4 * 7
    assert {(str(w.dtype), w.quant_type) for w in bases} == {("torch.uint8", "nf4")}
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    assert learning
    assert all("lora_" in n for n in learning)
    assert {n.split(".lora_")[0].rsplit(".", 1)[1] for n in learning} == {
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    }
    assert tokenizer.padding_side == "left"


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_generating_does_not_spoil_the_gradient(family):
    """bitsandbytes repacks 4-bit weights when it generates, and then lets no gradient through: stock 4-bit on a CPU."""
    import torch

    from grpo_workbook.data import chat_prompt
    from grpo_workbook.evaluate import generate

    model, tokenizer = load_policy(RunConfig.from_env(model=family))
    ids = torch.arange(300, 340).reshape(2, 20)

    def gradients():
        model.zero_grad()
        model.train()
        model(input_ids=ids, labels=ids).loss.backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if "lora_B" in n}

    before = gradients()
    generate(model, tokenizer, [chat_prompt("How many?")], max_new_tokens=4)
    after = gradients()
    assert all(g.abs().sum() > 0 for g in before.values())
    assert all(torch.allclose(before[n], after[n], rtol=1e-4, atol=1e-7) for n in before)


def test_fresh_adapters_change_nothing_and_follow_the_seed():
    import torch

    policies = [load_policy(RunConfig.from_env(seed=seed))[0] for seed in (1, 1, 2)]
    adapters = [
        torch.cat([p.detach().flatten() for n, p in m.named_parameters() if "lora_A" in n])
        for m in policies
    ]
    assert torch.equal(adapters[0], adapters[1])
    assert not torch.equal(adapters[0], adapters[2])
    ids = torch.arange(300, 330).unsqueeze(0)
    with torch.no_grad():
        adapted = policies[0](ids).logits
        with policies[0].disable_adapter():
            assert torch.equal(policies[0](ids).logits, adapted)


def test_16bit_loads_no_4bit_layer():
    assert count_4bit_layers(load_policy(RunConfig.from_env(load_in_4bit=False))[0]) == 0


def test_an_unknown_backend_is_named():
    with pytest.raises(WorkbookError, match="unknown backend 'pain': choose one of unsloth, plain"):
        load_policy(RunConfig.from_env(), "pain")


def test_a_model_that_is_not_there_is_named():
    run = RunConfig.from_env(model="unsloth/Qwen3-no-such-model")
    with pytest.raises(
        WorkbookError, match="'unsloth/Qwen3-no-such-model' cannot be loaded .*check the name"
    ):
        load_policy(run)


def test_a_bar_that_an_error_left_open_pushes_the_next_one_nowhere(capsys):
    left, bar = reward_bar(), reward_bar()
    state = SimpleNamespace(max_steps=4, global_step=2)
    left.on_train_begin(None, state, None)
    capsys.readouterr()
    bar.on_train_begin(None, state, None)
    state.global_step = 4
    bar.on_step_end(None, state, None)
    bar.on_train_end(None, state, None)
    said = capsys.readouterr().err
    left.on_train_end(None, state, None)
    assert "4/4" in said
    assert said.count("\n") == 1
    assert "\x1b[A" not in said  # no move to another line and back
