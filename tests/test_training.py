"""The policy that is loaded: 4-bit, adapters alone learn, and gradients flow; the callbacks."""

import copy
import json
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from conftest import raises_naming

from grpo_workbook.config import TARGET_MODULES, choose_profile
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import generate
from grpo_workbook.training import (
    Callback,
    Float32Adapters,
    HeldoutProbe,
    RewardBar,
    count_4bit_layers,
    load_policy,
)


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_the_policy_is_4bit_and_only_adapters_learn(family):
    model, tokenizer = load_policy(choose_profile(model=family))
    assert count_4bit_layers(model) == 4 * 7
    bases = [m.base_layer.weight for m in model.modules() if hasattr(m, "base_layer")]
    assert len(bases) == 4 * 7
    assert {(str(w.dtype), w.quant_type) for w in bases} == {("torch.uint8", "nf4")}
    learning = [n for n, p in model.named_parameters() if p.requires_grad]
    assert learning
    assert all("lora_" in n for n in learning)
    assert {n.split(".lora_")[0].rsplit(".", 1)[1] for n in learning} == set(TARGET_MODULES)
    assert tokenizer.padding_side == "left"


@pytest.mark.parametrize("family", ["qwen", "gemma"])
def test_generating_does_not_spoil_the_gradient(family):
    """bitsandbytes repacks 4-bit weights to generate: stock 4-bit then lets no gradient by."""
    import torch

    from grpo_workbook.data import chat_prompt
    from grpo_workbook.evaluation import generate

    model, tokenizer = load_policy(choose_profile(model=family))
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


@pytest.mark.parametrize("family", ["qwen", "gemma"])
@pytest.mark.slow
def test_unpacked_sampling_answers_as_the_packed_model_does(family):
    import torch

    from grpo_workbook.data import chat_prompt
    from grpo_workbook.evaluation import generate

    def answers(model):
        prompts = [chat_prompt(f"Ada has {n} pens and buys 3. How many?") for n in range(8)]
        how = {"max_new_tokens": 24, "sample": True}
        return generate(model, tokenizer, prompts, **how)

    model, tokenizer = load_policy(choose_profile(model=family))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in (p for name, p in twin.named_parameters() if "lora_B" in name):
            parameter.zero_()
    fast, copied = answers(model), answers(twin)
    with model.disable_adapter():
        base = answers(model)
    with pytest.raises(AttributeError):
        model.generate(input_ids=["no tensor"])
    del model.generate  # the library's own
    assert answers(model) == fast != copied == base
    with model.disable_adapter():
        assert answers(model) == base


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_any_4bit_model_with_adapters_samples_unpacked(dtype):
    """Of plain Transformers and PEFT: Qwen2 has biases."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import BitsAndBytesConfig, Qwen2Config, Qwen2ForCausalLM

    from grpo_workbook import sample_unpacked

    sizes = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 99}
    heads = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    torch.manual_seed(0)
    base = Qwen2ForCausalLM(Qwen2Config(**sizes, **heads))
    for name, parameter in base.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    with TemporaryDirectory() as folder:
        base.save_pretrained(folder)
        four = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
        base = Qwen2ForCausalLM.from_pretrained(folder, dtype=dtype, quantization_config=four)
    for layer in base.modules():  # or it packs weights again for CPUs with bfloat16, for its kernel
        layer.support_avx512bf16_for_cpu = False
    how = {"init_lora_weights": False, "lora_dropout": 0.1, "task_type": "CAUSAL_LM"}
    model = get_peft_model(base, LoraConfig(target_modules=["q_proj", "down_proj"], **how)).eval()
    ids = torch.arange(20).reshape(2, 10)
    end = {"max_new_tokens": 4, "output_logits": True, "return_dict_in_generate": True}
    packed = model.generate(input_ids=ids, **end).logits
    sample_unpacked(model)
    calls = []
    lora = next(m for m in model.modules() if hasattr(m, "lora_A"))
    lora.register_forward_pre_hook(lambda module, given: calls.append("forward" in vars(module)))
    unpacked = model.generate(input_ids=ids, **end).logits
    assert all(calls)
    near = {"atol": 1e-5 if dtype == "float32" else 0.05, "rtol": 0}
    torch.testing.assert_close(unpacked[0], packed[0], **near)
    assert "forward" not in vars(lora)


def test_fresh_adapters_change_nothing_and_follow_the_seed():
    import torch

    policies = [load_policy(choose_profile(seed=seed))[0] for seed in (1, 1, 2)]
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
    assert count_4bit_layers(load_policy(choose_profile(load_in_4bit=False))[0]) == 0


@pytest.mark.slow
def test_adapters_stay_float32_beside_a_base_in_4bit_and_float16(tmp_path):
    """TRL makes them bfloat16, which float16's gradient scaler on a GPU does not know: the T4."""
    from trl import GRPOConfig, GRPOTrainer

    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset
    from grpo_workbook.rewards import correctness_reward

    profile = choose_profile(dtype="float16", grpo={"max_steps": 1})
    model, tokenizer = load_policy(profile, "plain")
    before = {n: p.clone() for n, p in model.named_parameters() if p.requires_grad}
    rows = to_dataset(load_problems(WORD_PROBLEMS["train"]).select(range(16)))

    def trainer_with(callbacks):
        args = GRPOConfig(output_dir=str(tmp_path), **profile.grpo)
        parts = {"processing_class": tokenizer, "callbacks": callbacks}
        return GRPOTrainer(model, correctness_reward, args, rows, **parts)

    kept = trainer_with([Float32Adapters(model)]).model.named_parameters()
    learning = {name: p for name, p in kept if p.requires_grad}
    assert {str(p.dtype) for p in learning.values()} == {"torch.float32"}
    assert all((learning[name] == value).all() for name, value in before.items())
    stock = trainer_with([]).model.parameters()
    assert {str(p.dtype) for p in stock if p.requires_grad} == {"torch.bfloat16"}


def test_an_unknown_backend_is_named():
    with raises_naming(WorkbookError, "'pain'", "unsloth", "plain"):
        load_policy(choose_profile(), "pain")


def test_a_model_that_is_not_there_is_named():
    profile = choose_profile(model="unsloth/Qwen3-no-such-model")
    with raises_naming(WorkbookError, "'unsloth/Qwen3-no-such-model'"):
        load_policy(profile)


def test_a_bar_that_an_error_left_open_pushes_the_next_one_nowhere(capsys):
    left, bar = RewardBar(), RewardBar()
    state = SimpleNamespace(max_steps=4, global_step=2, is_world_process_zero=True)
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


@pytest.mark.parametrize("name", ["completions/mean_length", "completion_length"])
def test_the_bar_knows_trls_name_of_the_length_and_unsloths_on_a_gpu(name, capsys):
    bar = RewardBar()
    state = SimpleNamespace(max_steps=4, global_step=1, is_world_process_zero=True)
    bar.on_train_begin(None, state, None)
    bar.on_log(None, state, None, logs={"reward": None, name: 9.0})  # no reward applied
    bar.on_log(None, state, None, logs={"reward": 0.5, name: 27.0})
    bar.on_train_end(None, state, None)
    assert "reward=0.50, tokens=27" in capsys.readouterr().err


def test_a_callback_answers_every_event_and_nothing_else():
    callback = Callback()
    assert callback.on_step_end(1, 2, 3, model=4) is None
    with pytest.raises(AttributeError):
        callback.off()


def test_the_probe_needs_a_number_of_steps_and_keeps_its_state():
    from datasets import Dataset

    data = Dataset.from_dict({"prompt": ["a", "b"], "answer": ["1", "2"]})
    with raises_naming(WorkbookError, "every is 0"):
        HeldoutProbe(None, None, data, every=0)
    probe, again = (HeldoutProbe(None, None, data, problems=1) for _ in range(2))
    probe.seen.append((3, ["text"]))
    again.load_state_dict(probe.state_dict())
    assert (again.seen, len(again.dataset)) == ([(3, ["text"])], 1)


def test_a_probe_that_could_never_stop_is_refused():
    from datasets import Dataset

    data = Dataset.from_dict({"prompt": ["a"] * 40, "answer": ["1"] * 40})
    for problems, max_steps, named in (
        (4, 10, ("4 problems", "2 probes", "at least 5")),
        (11, 190, ("11 problems", "20 probes", "12")),
        (11, 9, ("probes is 1",)),
    ):
        probe = HeldoutProbe(None, None, data, problems=problems, every=10, stop=True)
        with raises_naming(WorkbookError, *named):
            probe.on_train_begin(None, SimpleNamespace(max_steps=max_steps, global_step=0), None)


def test_the_probe_logs_rates_and_takes_a_judge(tiny):
    """Text answers, such as names, are judged by whoever is given."""
    from datasets import Dataset

    model, tokenizer = tiny["qwen"]
    prompt = [{"role": "user", "content": "Which colour?"}]
    data = Dataset.from_dict({"prompt": [prompt] * 3, "answer": ["red", "blue", "green"]})
    state = SimpleNamespace(global_step=0, log_history=[])
    how = {"max_new_tokens": 4, "judge": lambda given, answer: True}
    probe = HeldoutProbe(model, tokenizer, data, every=2, **how)
    args = SimpleNamespace(chat_template_kwargs=None)
    probe.on_train_begin(args, state, None)
    state.global_step = 1
    probe.on_step_end(args, state, None)  # not yet
    (entry,) = state.log_history
    assert entry["step"] == 0
    for name in ("strict", "lenient", "well_formed"):
        assert 0 <= entry[f"heldout/{name}"] <= 1
    assert [len(texts) for _, texts in probe.seen] == [3]


def test_the_probe_asks_what_the_trainer_asks(tiny):
    from datasets import Dataset

    model, tokenizer = tiny["qwen"]
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template += "{{ opening }}"
    prompts = [[{"role": "user", "content": f"What is {n}+1?"}] for n in (2, 5)]
    data = Dataset.from_dict({"prompt": prompts, "answer": ["3", "6"]})
    texts = {}
    for opening in ("<reasoning>\n1+1=", ""):
        probe = HeldoutProbe(model, tokenizer, data, max_new_tokens=16)
        args = SimpleNamespace(chat_template_kwargs={"opening": opening})
        probe.on_step_end(args, SimpleNamespace(global_step=0, log_history=[]), None)
        texts[opening] = probe.seen[0][1]
        assert texts[opening] == generate(
            model,
            tokenizer,
            prompts,
            sample=True,
            max_new_tokens=16,
            chat_template_kwargs=args.chat_template_kwargs,
        )
    assert len({tuple(seen) for seen in texts.values()}) == 2


def test_every_process_stops_where_the_accuracy_falls_and_one_says_so(tiny, capsys):
    from datasets import Dataset
    from transformers import TrainerControl, TrainerState

    data = Dataset.from_dict({"prompt": ["What is 1+1?"] * 8, "answer": ["2"] * 8})
    for is_first in (True, False):
        probe = HeldoutProbe(*tiny["qwen"], data, every=1, stop=True, max_new_tokens=1)
        probe.best = {"step": 1, "strict": [True] * 8}
        state = TrainerState(global_step=2, max_steps=2, is_world_process_zero=is_first)
        control = TrainerControl()
        probe.on_step_end(SimpleNamespace(chat_template_kwargs=None), state, control)
        assert control.should_training_stop
        assert ("the best step was 1" in capsys.readouterr().out) == is_first


@pytest.mark.slow
def test_the_probe_keeps_the_best_adapter_and_stops_where_the_accuracy_falls(tiny, tmp_path):
    from peft import LoraConfig, get_peft_model
    from transformers import TrainerControl, TrainerState

    from grpo_workbook.data import WORD_PROBLEMS, load_problems, to_dataset
    from grpo_workbook.models import load_model

    model = get_peft_model(copy.deepcopy(tiny["qwen"][0]), LoraConfig(target_modules=["q_proj"]))
    heldout = to_dataset(load_problems(WORD_PROBLEMS["heldout"]))
    how = {"every": 2, "problems": 48, "max_new_tokens": 48, "keep": tmp_path / "best"}
    probe = HeldoutProbe(model, tiny["qwen"][1], heldout, stop=True, **how)

    def at(step: int) -> bool:
        state.global_step, control = step, TrainerControl()
        probe.on_step_end(SimpleNamespace(chat_template_kwargs=None), state, control)
        return control.should_training_stop

    state = TrainerState(max_steps=4)
    assert not at(0)
    assert not at(2)  # the same answers as at the start
    kept = {name: p.clone() for name, p in model.named_parameters() if "lora_" in name}
    for name in kept:
        model.get_parameter(name).data += 0.3  # nothing that it writes is an answer now
    assert at(4)
    rates = [entry["heldout/strict"] for entry in state.log_history if "heldout/strict" in entry]
    assert rates[0] == rates[1] > 0.1 > rates[2]
    best, _ = load_model("qwen", tmp_path / "best", any_base=True)
    found = dict(best.named_parameters())
    assert all((found[name] == value).all() for name, value in kept.items())
    again = HeldoutProbe(model, tiny["qwen"][1], heldout, stop=True, **how)
    again.load_state_dict(json.loads(json.dumps(probe.state_dict())))
    assert again.best == probe.best
    assert again.best["step"] == 0
