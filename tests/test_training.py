import pytest

from grpo_workbook.run import Run, WorkbookError
from grpo_workbook.training import count_4bit_layers, grpo_config, last_checkpoint, load_policy

# What TRL or Unsloth fills in differently on a CPU and on a GPU (facts of TRL 1.15 and Unsloth 2026.10).
DIFFERS = (
    "learning_rate",
    "per_device_train_batch_size",
    "gradient_accumulation_steps",
    "weight_decay",
    "warmup_steps",
    "optim",
    "bf16",
    "fp16",
    "loss_type",
    "epsilon",
    "epsilon_high",
    "mask_truncated_completions",
    "scale_rewards",
    "beta",
    "num_generations",
    "max_completion_length",
    "temperature",
    "gradient_checkpointing",
    "use_vllm",
    "importance_sampling_level",
    "num_iterations",
    "report_to",
    "logging_steps",
    "seed",
    "steps_per_generation",
    "vllm_importance_sampling_correction",
)


def test_every_value_that_differs_is_written_down():
    import ast
    import inspect

    call = next(
        n
        for n in ast.walk(ast.parse(inspect.getsource(grpo_config)))
        if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "GRPOConfig"
    )
    assert set(DIFFERS) <= {k.arg for k in call.keywords}


@pytest.mark.parametrize(
    "changes", [{}, {"batch_size": 24, "num_generations": 4}, {"steps": 1}, {"batch_size": 64, "per_device_batch": 16}]
)
def test_trl_takes_the_config_and_keeps_our_values(tmp_path, changes):
    run = Run.from_env(output=tmp_path, seed=11, **changes)
    config = grpo_config(run)
    s = run.settings
    assert config.per_device_train_batch_size * config.gradient_accumulation_steps == s.batch_size
    assert config.generation_batch_size == s.batch_size
    assert (config.num_generations, config.max_steps, config.seed) == (s.num_generations, s.steps, 11)
    assert (config.learning_rate, config.temperature, config.beta) == (s.learning_rate, s.temperature, s.beta)
    assert config.bf16 is False
    assert config.warmup_steps <= s.steps


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_the_policy_is_4bit_and_only_adapters_learn(family):
    run = Run.from_env(model=family)
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

    model, tokenizer = load_policy(Run.from_env(model=family))
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

    policies = [load_policy(Run.from_env(seed=seed))[0] for seed in (1, 1, 2)]
    adapters = [torch.cat([p.detach().flatten() for n, p in m.named_parameters() if "lora_A" in n]) for m in policies]
    assert torch.equal(adapters[0], adapters[1])
    assert not torch.equal(adapters[0], adapters[2])
    ids = torch.arange(300, 330).unsqueeze(0)
    with torch.no_grad():
        adapted = policies[0](ids).logits
        with policies[0].disable_adapter():
            assert torch.equal(policies[0](ids).logits, adapted)


def test_16bit_loads_no_4bit_layer():
    assert count_4bit_layers(load_policy(Run.from_env(load_in_4bit=False))[0]) == 0


def test_a_checkpoint_that_was_cut_off_is_passed_over(tmp_path):
    assert last_checkpoint(tmp_path / "none") is None
    for step, state in ((25, "{}"), (100, '{"global'), (75, None), (50, "{}")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(tmp_path) == str(tmp_path / "checkpoint-50")


def test_a_model_that_is_not_there_is_named():
    run = Run.from_env(model="unsloth/Qwen3-no-such-model")
    with pytest.raises(WorkbookError, match="'unsloth/Qwen3-no-such-model' cannot be loaded .*check the name"):
        load_policy(run)
