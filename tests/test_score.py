import json
import math

import pytest

from grpo_workbook import rewards, rubric
from grpo_workbook.rubric import DEFAULT_REWARDS, REGISTRY, parse_rewards, score

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"
ROWS = [{"prompt": "6*7?", "answer": "42"}, {"prompt": "2+3?", "answer": "5"}]
COMPLETIONS = [GOOD, "42", "<answer>42</answer>", "", "5", "6", "7", "8"]


def test_the_default_is_what_the_main_run_uses():
    assert parse_rewards(DEFAULT_REWARDS) == (list(rewards.REWARDS), list(rewards.REWARD_WEIGHTS))


def test_names_arguments_and_weights(tmp_path):
    schema = tmp_path / "s.json"
    schema.write_text('{"type": "integer"}')
    functions, weights = parse_rewards(
        f" correctness : 2 , overlong=100:0.3,style, json_schema={schema}:1e-1 ,debug=5:0"
    )
    assert weights == [2.0, 0.3, 1.0, 0.1, 0.0]
    assert [f.__name__ for f in functions] == [
        "correctness_reward",
        "overlong_reward",
        "style_reward",
        "json_schema_reward",
        "debug_reward",
    ]
    assert functions[1](completions=["x"], completion_ids=[[0] * 90]) == [-0.5]
    assert functions[3](completions=["42", "[]"]) == [1.0, 0.25]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("corectness:2", "unknown reward 'corectness': choose from correctness, symbolic"),
        ("", "a reward is missing"),
        ("correctness,", "a reward is missing"),
        ("correctness:2,correctness:1", "'correctness' is there twice"),
        ("correctness:lots", "the weight 'lots' of 'correctness' is not a number"),
        ("correctness:", "the weight '' of 'correctness' is not a number"),
        ("correctness:nan", "the weight nan of 'correctness'"),
        ("correctness:inf", "the weight inf"),
        ("correctness:-1", "penalties are negative already"),
        ("style:0,debug:0", "every weight"),
        ("length", "needs an argument: length=TOKENS"),
        ("length=:2", "needs an argument"),
        ("correctness=3", "takes no argument"),
        ("length=many", "length=many: 'many' is not a whole number"),
        ("length=0", "length=0: a target length of 0"),
        ("json_schema=/nowhere.json", "'/nowhere.json' cannot be used"),
    ],
)
def test_a_bad_spec_is_named(spec, message):
    with pytest.raises(ValueError, match=message):
        parse_rewards(spec)


def test_a_schema_file_that_is_none(tmp_path):
    for text in ("{", '{"type": "int"}'):
        (tmp_path / "s.json").write_text(text)
        with pytest.raises(ValueError, match="cannot be used"):
            parse_rewards(f"json_schema={tmp_path / 's.json'}")


def test_the_registry_says_what_each_is():
    for name, entry in REGISTRY.items():
        assert len(entry.description) > 15, name
        assert -1 <= entry.low <= entry.high <= 1


def test_score_sees_what_grpo_would_see():
    functions, weights = parse_rewards(DEFAULT_REWARDS)
    scored = score(functions, COMPLETIONS, ROWS, group_size=4, weights=weights)
    assert scored.totals == [[3.0, 0.0, 2.0, 0.0], [0.0] * 4]
    rows = {row["reward"]: row for row in scored.rows()}
    assert list(rows) == [
        "correctness_reward",
        "strict_format_reward",
        "incremental_format_reward",
        "total",
    ]
    assert rows["correctness_reward"]["mean"] == 0.25
    assert rows["total"] == {
        "reward": "total",
        "weight": None,
        "n": 8,
        "none": 0,
        "mean": 0.625,
        "std": pytest.approx(math.sqrt((9 + 4) / 8 - 0.625**2)),
        "min": 0.0,
        "max": 3.0,
        "equal_groups": 0.5,
    }
    assert json.loads(json.dumps(scored.to_dict()))["groups"]["total"] == scored.totals
    one_each = [row for row in ROWS for _ in range(4)]
    assert (
        score(functions, COMPLETIONS, one_each, group_size=4, weights=weights).totals
        == scored.totals
    )


def test_the_total_is_trls(tmp_path):
    """The weighted sum of rubric and the one in TRL's trainer, None included."""
    import torch

    def sometimes(completions, **columns):
        return [None if c == "" else 1.0 for c in completions]

    functions, weights = [rewards.correctness_reward, sometimes], [2.0, 0.3]
    scored = score(functions, COMPLETIONS, ROWS, group_size=4, weights=weights)
    table = torch.tensor(
        [
            [math.nan if v is None else v for g in groups for v in g]
            for groups in scored.groups.values()
        ]
    ).T
    theirs = (table * torch.tensor(weights).unsqueeze(0)).nansum(dim=1)  # as GRPOTrainer does
    assert [v for g in scored.totals for v in g] == pytest.approx(theirs.tolist())
    assert scored.rows()[1]["none"] == 1


def test_score_shows_a_table_of_80_columns_and_a_figure_with_words(capsys):
    functions, weights = parse_rewards(DEFAULT_REWARDS)
    scored = score(functions, COMPLETIONS, ROWS, group_size=4, weights=weights)
    scored.show()
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert all(
        word in out
        for word in (
            "2 groups of 4",
            "incremental_format",
            "without gradient",
            "total",
            "0.62",
            "50%",
        )
    )
    figure, words = scored.figure()
    assert "total has a mean of 0.62, and all rewards are equal in 1" in words
    assert len(figure.axes) == 4
    dots = [len(c.get_offsets()) for c in figure.axes[-1].collections]
    assert dots == [4, 4]


def test_the_rewards_get_what_trl_gives_them():
    seen = {}

    def looks(completions, prompts, answer, question, **columns):
        seen.update(prompts=prompts, answer=answer, question=question, rest=columns)
        return [0.0] * len(completions)

    rows = [{"prompt": [{"role": "user", "content": "q"}], "answer": "1", "question": "q"}]
    score([looks], ["a", "b"], rows, group_size=2)
    assert seen == {
        "prompts": [rows[0]["prompt"]] * 2,
        "answer": ["1"] * 2,
        "question": ["q"] * 2,
        "rest": {},
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0], "broke the contract"),
        ([1.0, math.nan], "broke the contract"),
        (["1", "0"], "broke the contract"),
    ],
)
def test_a_broken_reward_is_named(values, message):
    def broken_reward(completions, **columns):
        return values

    with pytest.raises(ValueError, match=f"broken_reward {message}"):
        score([broken_reward], ["a", "b"], [{"answer": "1"}], group_size=2)


@pytest.mark.parametrize(
    ("completions", "rows", "size", "message"),
    [
        (["a", "b", "c"], [{}], 2, "3 completions cannot be cut into groups of 2"),
        ([], [], 2, "0 completions cannot"),
        (["a"], [{}], 1, "groups of 1"),
        (["a", "b", "c", "d"], [{}] * 3, 2, "3 rows for 4 completions"),
    ],
)
def test_numbers_that_do_not_fit(completions, rows, size, message):
    with pytest.raises(ValueError, match=message):
        score([rewards.strict_format_reward], completions, rows, group_size=size)
    with pytest.raises(ValueError, match="one each, and no name twice"):
        score([rewards.strict_format_reward], ["a", "b"], [{}], group_size=2, weights=[1, 2])


def test_a_workers_reward_is_had_by_name():
    (function,), _ = parse_rewards("symbolic")
    assert function(completions=["\\boxed{x+x}", "\\boxed{3x}"], answer=["2x", "2x"]) == [1.0, 0.0]


def test_importing_it_is_light():
    assert rubric.__doc__
    import subprocess
    import sys

    from conftest import REPO, environment

    code = (
        "import sys, grpo_workbook.rubric, grpo_workbook.reward_lab.attacks, grpo_workbook.ensembles, grpo_workbook.symbolic;"
        "print([m for m in ('torch', 'sympy', 'math_verify', 'jsonschema', 'matplotlib', 'rich') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=REPO, env=environment(), capture_output=True, text=True
    )
    assert result.stdout.strip() == "[]", result.stderr


def test_score_takes_what_trl_takes_and_names_what_it_does_not(tmp_path):
    import functools

    import numpy as np

    def numpy_reward(completions, **columns):
        return [np.float32(0.5)] * len(completions)

    def nothing(completions, **columns):
        return None

    rows = [{"answer": "4"}]
    assert (
        score([functools.partial(numpy_reward)], ["x"] * 2, rows, group_size=2).rows()[0]["mean"]
        == 0.5
    )
    for functions, data, words in (
        ([], rows, "no reward functions"),
        ([nothing], rows, "nothing broke the contract"),
        (
            [numpy_reward],
            [{"answer": "4", "x": 1}, {"answer": "4"}],
            "row 1 has not the columns of row 0",
        ),
        (parse_rewards("correctness")[0], [{"q": "4"}], "needs the column 'answer'"),
    ):
        with pytest.raises(ValueError, match=words):
            score(functions, ["x"] * 2, data, group_size=2)
    (tmp_path / "deep.schema").write_text("[" * 100_000)
    for spec, words in (
        (f"json_schema={tmp_path / 'deep.schema'}", "nested too deeply"),
        ("correctness,", "a reward is missing in 'correctness,'"),
        ("debug:1", "no reward but debug"),
    ):
        with pytest.raises(ValueError, match=words):
            parse_rewards(spec)
