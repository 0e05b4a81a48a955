"""What TRL takes as a reward beside functions: its own rewards by name, and reward models."""

import pytest
import torch
from conftest import REPO, assert_names, raises_naming, report_of, slow
from datasets import Dataset

from grpo_workbook.cli import main
from grpo_workbook.cli.rewards import beside, file_hashes
from grpo_workbook.data import chat_prompt
from grpo_workbook.errors import WorkbookError
from grpo_workbook.evaluation import evaluate
from grpo_workbook.rewards import parse_rewards
from grpo_workbook.rewards.contract import about, call, name_of
from grpo_workbook.rewards.models import RewardModel

TINY = REPO / "data" / "tiny-qwen3"
PROMPT = chat_prompt("What is 3 plus 4?")


@pytest.fixture(scope="module")
@slow
def reward_model(tmp_path_factory):
    """The folder of a small sequence classification model with one label, and its tokenizer."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("rewards") / "tiny-rm"
    model = AutoModelForSequenceClassification.from_pretrained(TINY, num_labels=1)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(TINY).save_pretrained(folder)
    return folder


# ------------------------------------------------------------------ TRL's own, by name


def test_rewards_of_trl_by_name():
    spec = "trl.rewards.accuracy_reward:2,trl.rewards.think_format_reward:0.5"
    functions, weights = parse_rewards(spec)
    assert [name_of(f) for f in functions] == ["accuracy_reward", "think_format_reward"]
    assert weights == [2.0, 0.5]
    assert [about(f).role for f in functions] == ["correctness", "format"]
    texts = ["<think>\n3 + 4\n</think>\n\\boxed{7}", "\\boxed{8}"]
    accuracy, form = functions
    assert call(accuracy, texts, prompt=[PROMPT, PROMPT], solution=["7", "7"]) == [1.0, 0.0]
    assert call(form, texts, prompt=[PROMPT, PROMPT]) == [1.0, 0.0]


def test_factories_of_trl_take_their_numbers():
    (function,), _ = parse_rewards("trl.rewards.get_soft_overlong_punishment=10;4")
    ids = [[1] * 6, [1] * 8, [1] * 11]
    assert call(function, ["a", "b", "c"], completion_ids=ids) == [0.0, -0.5, -1.0]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("trl.rewards.acuracy_reward", "accuracy_reward"),
        ("trl.rewards.think_format_reward=3", "=3"),
        ("trl.rewards.get_soft_overlong_punishment", "soft_punish_cache"),
        ("trl.rewards.get_soft_overlong_punishment=a;b", "'a'"),
        ("corectness", "correctness"),
    ],
)
def test_what_is_no_reward_is_named(spec, named):
    with raises_naming(WorkbookError, named):
        parse_rewards(spec)


def test_a_missing_column_is_named_before_anything_is_loaded():
    (function,), _ = parse_rewards("trl.rewards.accuracy_reward")
    with raises_naming(WorkbookError, "solution"):
        call(function, ["\\boxed{7}"], prompt=[PROMPT], answer=["7"])


# ------------------------------------------------------------------ reward models


def _rewards_in_trl(reward, tokenizer, folder):
    """The rewards that TRL's own trainer computes, as it does with a model's name."""
    import unsloth  # noqa: F401
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    args = GRPOConfig(
        output_dir=str(folder), num_generations=2, per_device_train_batch_size=2, bf16=False
    )
    rows = Dataset.from_list([{"prompt": PROMPT}] * 2)
    trainer = GRPOTrainer(
        str(TINY), reward, args, rows, processing_class=tokenizer, peft_config=LoraConfig()
    )
    completions = [[{"role": "assistant", "content": text}] for text in TEXTS]
    inputs = [{"prompt": PROMPT}] * len(TEXTS)
    values = trainer._calculate_rewards(inputs, [PROMPT] * len(TEXTS), completions, None)
    return trainer.reward_func_names, values[:, 0].tolist()


TEXTS = ["<answer>7</answer>", "8", "It is a long answer that ends in seven."]


@pytest.mark.slow
def test_a_reward_model_scores_as_in_trl(reward_model, tiny, tmp_path):
    names, expected = _rewards_in_trl(str(reward_model), tiny["qwen"][1], tmp_path)
    ours = RewardModel(reward_model)
    assert names == [name_of(ours)] == ["tiny-rm"]
    values = call(ours, TEXTS, prompt=[PROMPT] * len(TEXTS))
    assert values == pytest.approx(expected, abs=1e-5)
    assert len(set(values)) == len(values)


def test_evaluate_takes_a_reward_model_or_its_name(reward_model, tiny):
    rows = Dataset.from_list([{"prompt": PROMPT}, {"prompt": chat_prompt("What is 2 plus 2?")}])
    by_name, by_model = [
        evaluate(*tiny["qwen"], rows, rewards=[reward], right_at=-100, max_new_tokens=8)
        for reward in (str(reward_model), RewardModel(reward_model).model)
    ]
    assert by_name.rewards == by_model.rewards
    assert list(by_name.rewards) == ["tiny-rm"]
    assert by_name.rate == 1.0


def test_a_model_that_does_not_score_is_refused(tmp_path, reward_model):
    with raises_naming(WorkbookError, "data/tiny-qwen3", "score"):
        call(RewardModel(TINY), ["7"], prompt=[PROMPT])
    with raises_naming(WorkbookError, "someone/rm-that-is-not-here"):
        call(parse_rewards("someone/rm-that-is-not-here")[0][0], ["7"], prompt=[PROMPT])
    command = ["run", "--rewards", str(TINY), "--output_dir", str(tmp_path / "out")]
    assert main(command) == 2
    assert not (tmp_path / "out").exists()


def test_a_reward_model_beside_a_yaml_file_is_found(reward_model):
    assert (
        beside("tiny-rm:0.5,correctness", reward_model.parent) == f"{reward_model}:0.5,correctness"
    )
    functions, weights = parse_rewards(f"correctness:2,{reward_model}/:0.5")  # as a shell writes it
    assert weights == [2.0, 0.5]
    # TRL takes the name in the log from the model.
    assert name_of(functions[1]) == functions[1].model.config.name_or_path.split("/")[-1]
    (value,) = file_hashes(functions).values()
    assert value


@pytest.mark.trains
def test_a_run_trains_with_trls_rewards_and_a_reward_model(reward_model, tmp_path, capsys):
    folder = tmp_path / "run"
    spec = f"correctness,trl.rewards.accuracy_reward:0.5,{reward_model}:0.1"
    sizes = ["--max-steps", "1", "--heldout", "8", "--per_device_train_batch_size", "8"]
    command = ["run", *sizes, "--rewards", spec, "--output_dir", str(folder)]
    assert main(command) == 0
    report = report_of(folder)
    assert report["reward_weights"] == {
        "correctness_reward": 1.0,
        "accuracy_reward": 0.5,
        "tiny-rm": 0.1,
    }
    assert report["rewards"]["tiny-rm"]["last_tenth"] != 0
    assert main([*command, "--resume"]) == 0
    capsys.readouterr()
    (reward_model / "chat_template.jinja").write_text("{{ messages }}")
    assert main([*command, "--resume"]) == 2
    assert_names(capsys.readouterr().err, "reward_files")
