"""`watch` and HealthCallback: what they log, when they look, and what they report."""

import json
import math
from functools import partial

import pytest
from conftest import REPO, raises_naming
from test_diagnosis import history, real

from grpo_workbook.diagnosis import HealthCallback, read_run, roles_of, watch
from grpo_workbook.diagnosis.health import log_the_end
from grpo_workbook.environments import get_tool_answer_reward
from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards import correctness_reward, strict_format_reward
from grpo_workbook.rewards.answers import extract_answer
from grpo_workbook.rewards.contract import (
    RewardInfo,
    about,
    attach_info,
    checked,
    name_of,
    reward,
    text_of,
    with_opening,
)


def test_adapters_that_begin_at_zero_are_no_broken_number():
    import torch
    from transformers import TrainerControl, TrainerState, TrainingArguments

    model = torch.nn.Linear(2, 2, bias=False)
    torch.nn.init.zeros_(model.weight)
    vitals, args, control = HealthCallback(), TrainingArguments(use_cpu=True), TrainerControl()
    vitals.on_train_begin(args, state := TrainerState(), control, model=model)
    torch.nn.init.ones_(model.weight)
    state.log_history.append({"step": 1, "reward": 0.5})
    vitals.on_log(args, state, control, logs={"reward": 0.5})
    assert state.log_history[-1]["adapter/change"] == 2.0


def test_watched_rewards_are_the_same_and_counted():
    logged = {}

    def half_reward(completions, **columns):
        return [0.5, None, math.nan, 0.5]

    (watched,) = watch([half_reward])
    texts = ["a", "a", " ", "b"]
    values = watched(prompts=["p", "p", "q", "q"], completions=texts, log_metric=logged.__setitem__)
    assert values[:2] == [0.5, None]
    assert watched.__name__ == "half_reward"
    assert logged == {
        "rewards/invalid_fraction": 1 / 3,
        "completions/unique_fraction": 0.75,
        "completions/empty_fraction": 0.25,
    }

    def bad_reward(completions, **columns):
        raise KeyError("anser")

    with pytest.raises(KeyError) as raised:
        watch([bad_reward])[0](prompts=["p"], completions=["a"])
    assert raised.value.__notes__ == ["raised by the reward function bad_reward"]


def called(*contents, end=None):
    """A conversation: a call, its result, a call, ...; `end` is the answer."""
    messages = []
    for content in contents:
        call = {"type": "function", "function": {"name": "lookup", "arguments": {"item": content}}}
        messages.append({"role": "assistant", "content": "", "tool_calls": [call]})
        messages.append({"role": "tool", "name": "lookup", "content": content})
    return [*messages, {"role": "assistant", "content": end}] if end else messages[:-1]


def test_watched_rewards_count_what_became_of_calls():
    from types import SimpleNamespace

    def log(name, value):
        assert name not in logged, f"{name} is counted in two places"
        logged[name] = value

    (watched,) = watch([get_tool_answer_reward()])
    answer_alone = [{"role": "assistant", "content": "5"}]
    completions = [called("a", end="5"), called("a", "b", end="5"), called("c"), answer_alone]
    games = [SimpleNamespace(out_of_turns=late) for late in (False, False, True)] + [object()]
    columns, logged = {"prompts": ["p"] * 4, "environments": games, "answer": ["5"] * 4}, {}
    assert watched(completions=completions, log_metric=log, **columns) == [1.0, 1.0, 0.0, 1.0]
    assert {k: v for k, v in logged.items() if k.startswith("tools/")} == {
        "tools/calling": 0.75,
        "tools/lost_results": 0.25,  # ends in a call
        "tools/result_frequency": 0.75,  # TRL counts the call without a result, too
        "tools/out_of_turns": 0.25,
        "tools/broken": 0.0,  # the reward's own
    }
    assert logged["completions/unique_fraction"] == 1.0  # the same answer after other calls
    assert logged["completions/empty_fraction"] == 0.0  # a call is no empty completion
    logged.clear()
    watched(completions=[answer_alone] * 4, log_metric=log, **columns)
    assert [name for name in logged if name.startswith("tools/")] == ["tools/broken"]


@pytest.mark.parametrize(
    ("texts", "prompt_tag", "unclosed"),
    [
        (["<think>1</think>4", "<think>1, 2", "4", "<think>1</think><think>2"], "", 0.5),
        # The template has opened the thoughts.
        (["1</think>4", "1, 2", "</think>4", "2"], "<think>", 0.5),
        (["1, 2", "1, 2, 3"], "<think>", 1.0),
        (["4", "<reasoning>4</reasoning>"], "", None),
        # A closing tag alone says nothing of the other completions.
        (["4</think>", "4", "5"], "", None),
        (["<think>1</think>4", "4</think>", "5"], "", 0.0),
    ],
)
def test_watched_rewards_count_thoughts_that_never_close(texts, prompt_tag, unclosed):
    logged = {}
    (watched,) = watch([strict_format_reward], prompt_tag=prompt_tag)
    watched(prompts=["p"] * len(texts), completions=texts, log_metric=logged.__setitem__)
    assert logged.get("thoughts/unclosed") == unclosed


def test_watched_rewards_read_the_tag_that_the_prompt_has_opened():
    """Without it, an answer in a thought that never ends would be paid."""
    cut_off = "<reasoning>6*7</reasoning><answer>42</answer>"
    texts = [cut_off, f"Hm.</think>{cut_off}", ""]
    chats = [[{"role": "assistant", "content": text}] for text in texts]
    columns = {"prompts": ["p"] * 3, "answer": ["42"] * 3}
    for completions in (texts, chats):
        logged = {}
        functions = [correctness_reward, strict_format_reward]
        for watched in watch(functions, prompt_tag="<think>"):
            rewards = watched(completions=completions, log_metric=logged.__setitem__, **columns)
            assert rewards == [0.0, 1.0, 0.0]
        # The tag is no text of the completion.
        assert logged["completions/empty_fraction"] == pytest.approx(1 / 3)
    assert texts[0] == cut_off == chats[0][0]["content"]


def test_a_reward_that_is_an_object_is_watched_too():
    """Its completions were not counted, and no time was measured."""

    class Fading:
        __name__ = "fading_reward"

        def __call__(self, completions, **columns):
            return strict_format_reward(completions)

    logged = {}
    fading = Fading()
    attach_info(fading, RewardInfo("format"))
    (watched,) = watch([fading])
    values = watched(
        prompts=["p"] * 2, completions=["a", "a"], answer=["1", "1"], log_metric=logged.__setitem__
    )
    assert values == [0.0, 0.0]
    assert (logged["completions/unique_fraction"], logged["completions/empty_fraction"]) == (
        0.5,
        0.0,
    )
    assert watched.__name__ == "fading_reward"
    assert watched.called_at is not None
    assert about(watched).role == "format"
    assert watched.__wrapped__ is fading  # a checkpoint finds its state
    assert roles_of([watched]) == {"fading_reward": "format"}


def test_reward_models_stay_as_they_are():
    import torch

    functions = ["org/reward-model", torch.nn.Linear(2, 2)]
    assert watch(functions) == functions


@reward(role="length")
async def awaited_length(completions, **columns):
    return [float(len(text_of(completion))) for completion in completions]


class AwaitedLength:
    async def __call__(self, completions, **columns):
        return await awaited_length(completions)


class Length:
    def __call__(self, completions, *, of=1, **columns):
        return [len(text_of(completion)) / of for completion in completions]


@pytest.mark.parametrize(
    "function",
    [Length(), partial(Length(), of=1), awaited_length, partial(awaited_length), AwaitedLength()],
)
def test_every_reward_reads_the_tag_in_training_as_in_the_measurement(function):
    (watched,) = watch([function], prompt_tag="<think>")
    texts = ["4", "a</think>4"]
    for completions in (texts, [[{"role": "assistant", "content": text}] for text in texts]):
        assert checked(watched, completions, prompts=["p"] * 2) == [8.0, 17.0]
    assert name_of(watched) == name_of(function)
    assert about(watched) == about(function)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("2+2</think>\n\n<answer>4</answer><|im_end|>", "4"),
        ("is it <answer>4</answer>", None),
        ("2+2</think>{call}<|im_end|>", "4"),
        ("</think>{call}<|im_end|>", "4"),
    ],
)
@pytest.mark.parametrize("field", ["reasoning_content", "thinking"])
def test_an_answer_counts_where_trl_has_parsed_its_thought(text, answer, field):
    """The tag was put in front of a content without a thought, and all of it was one."""
    from trl.chat_template_utils import parse_response, qwen3_5_template

    from grpo_workbook.data import load_tokenizer

    tokenizer = load_tokenizer(REPO / "data" / "tiny-qwen3")
    fields = dict(qwen3_5_template["fields"])
    thought = fields.pop("reasoning_content")
    tokenizer.response_template = {**qwen3_5_template, "fields": {field: thought, **fields}}
    call = "<tool_call>\n<function=add>\n</function>\n</tool_call>"
    start = tokenizer.encode("<|im_start|>assistant\n<think>\n")
    completion = [parse_response(tokenizer, tokenizer.encode(text.format(call=call)), prefix=start)]
    assert "</think>" not in completion[0]["content"]
    if completion[0].get("tool_calls"):
        completion.append({"role": "tool", "name": "add", "content": "4"})
        completion.append({"role": "assistant", "content": "<answer>4</answer>"})
    assert extract_answer(text_of(with_opening(completion, "<think>"))) == answer


@pytest.mark.parametrize(
    ("every", "logging_steps", "expected"),
    [
        (5, 1, [5, 10, 15, 20, 25, 30]),
        (5, 3, [6, 12, 18, 24, 30]),
        (5, 7, [7, 14, 21, 28]),
        (10, 4, [12, 24]),
    ],
)
def test_it_looks_at_the_first_log_after_so_many_steps(monkeypatch, every, logging_steps, expected):
    """And draws its panels then, each time in the place of the first."""
    from types import SimpleNamespace

    import IPython.display
    import torch
    from transformers import TrainerState

    shown, state = [], TrainerState()

    def display(picture, display_id, update):
        assert display_id == f"panels {id(callback)}"
        shown.append((state.global_step, update))

    monkeypatch.setattr(IPython.display, "display", display)
    callback = HealthCallback(every=every, panels=True)
    callback.on_train_begin(None, state, None, model=torch.nn.Linear(1, 1))
    for state.global_step in range(logging_steps, 31, logging_steps):
        state.log_history.append({"step": state.global_step, "reward": 0.5})
        callback.on_log(SimpleNamespace(), state, None, logs={"reward": 0.5})
    assert shown == [(step, step != expected[0]) for step in expected]


def test_an_unknown_finding_to_stop_on_is_named():
    with raises_naming(WorkbookError, "exploded"):
        HealthCallback(stop_on={"exploded"})


def test_the_reference_copy_does_not_water_down_how_far_the_adapters_moved(tiny):
    """As TRL makes it for beta > 0: a second adapter, frozen, with the first one's weights."""
    import copy

    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import TrainerControl, TrainerState, TrainingArguments

    def change(reference):
        torch.manual_seed(0)
        lora = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = get_peft_model(copy.deepcopy(tiny["qwen"][0]), lora)
        if reference:
            model.add_adapter("ref", lora)
        vitals, args, control = HealthCallback(), TrainingArguments(use_cpu=True), TrainerControl()
        vitals.on_train_begin(args, state := TrainerState(), control, model=model)
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if ".default." in name:
                    weight += 0.01
        state.log_history.append({"reward": 1.0})
        vitals.on_log(args, state, control, logs={"reward": 1.0})
        return state.log_history[-1]["adapter/change"]

    alone = change(reference=False)
    assert alone > 0
    assert change(reference=True) == pytest.approx(alone)


def test_a_run_that_is_refused_to_go_on_keeps_its_log(tmp_path):
    import torch
    from transformers import Trainer, TrainingArguments

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x):
            if x.max() > 3:
                raise ValueError("too much")
            return {"loss": ((self.weight - x) ** 2).mean()}

    def trainer(numbers):
        settings = {
            "max_steps": 4,
            "per_device_train_batch_size": 1,
            "report_to": "none",
            "use_cpu": True,
        }
        args = TrainingArguments(
            tmp_path, disable_tqdm=True, remove_unused_columns=False, **settings
        )
        return Trainer(Line(), args, train_dataset=[{"x": torch.tensor(float(n))} for n in numbers])

    path = tmp_path / "log.json"
    with pytest.raises(ValueError, match="too much"), log_the_end(begun := trainer([5]), path):
        begun.train()
    kept = path.read_text()
    assert json.loads(kept) == [{"step": 1, "error": "ValueError: too much", "where": ""}]
    refused = trainer([1])
    with pytest.raises(WorkbookError, match="other options"), log_the_end(refused, path):
        raise WorkbookError("other options")
    assert path.read_text() == kept
    (again := trainer([5])).state.log_history.append({"step": 1})  # there is something to tell
    with pytest.raises(ValueError, match="too much"), log_the_end(again, path):
        raise ValueError("too much")
    assert len(json.loads(path.read_text())) == 2


def test_a_live_finding_must_stand_for_three_checks_and_is_sent_on():
    sent, health = [], HealthCallback(every=1)
    dips = {5: -0.5, 6: -1.0}  # one bad moment of a run that rises

    def run(upto):
        return read_run(history(upto, reward=lambda s: dips.get(s, 0.1 * s)))

    assert [f.name for s in range(10, 13) for f in health.look(run(s))] == []
    flat = [read_run(real(s, {"max_steps": 60})) for s in range(30, 36)]
    shown = [[f.name for f in health.look(log)] for log in flat]
    assert shown == [[], [], ["reward_flat"], [], [], []]
    broken = real(40, loss=lambda s: math.nan if s == 40 else 0.1)
    assert [f.name for f in health.look(read_run(broken))] == ["nan"]  # at once

    from types import SimpleNamespace

    import torch
    from transformers import TrainerControl, TrainerState

    health = HealthCallback(every=1, say=sent.append, alert=lambda *report: sent.append(report))

    def train(health, control=None, **rank):
        state = TrainerState(max_steps=60, **rank)
        health.on_train_begin(None, state, control, model=torch.nn.Linear(1, 1))
        for entry in real(50)["log_history"]:
            state.global_step = entry["step"]
            state.log_history.append(dict(entry))
            health.on_log(SimpleNamespace(), state, control, logs=entry)

    train(health)
    text, (title, words, level) = sent
    assert "reward_flat" in text
    assert (title, level) == ("reward_flat at step 43", "WARN")
    assert "num_generations" in words or "larger groups" in words

    # each process of several looks, and stops, but one reports
    reports, control = [], TrainerControl()
    health = HealthCallback(
        every=1,
        say=reports.append,
        alert=lambda *report: reports.append(report),
        stop_on=["reward_flat"],
    )
    train(health, control, is_world_process_zero=False)
    assert [text for text in reports if "Stopping" not in text] == []
    assert control.should_training_stop
