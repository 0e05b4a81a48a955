import pytest

from grpo_workbook.reward_lab.symbolic import SymbolicChecker
from grpo_workbook.rewards import (
    REWARD_WEIGHTS,
    REWARDS,
    correctness_reward,
    incremental_format_reward,
    integer_answer_reward,
    json_schema,
    soft_format_reward,
    strict_format_reward,
    symbolic_correctness,
    text_of,
)

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


def total(text):
    """What GRPO compares: TRL's weighted sum."""
    values = [f(completions=[text], answer=["42"])[0] for f in REWARDS]
    return sum(w * v for w, v in zip(REWARD_WEIGHTS, values, strict=True))


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_both_forms_of_completions():
    assert text_of(GOOD) == text_of(chat(GOOD)) == GOOD
    assert (
        correctness_reward([GOOD], answer=["42"])
        == correctness_reward([chat(GOOD)], answer=["42"])
        == [1.0]
    )


def test_the_best_completion_earns_the_maximum():
    assert total(GOOD) == sum(REWARD_WEIGHTS) == 3.0


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        ("<answer>42</answer>", 1.0),
        ("<answer>$42.00</answer>", 1.0),
        ("<answer>41</answer>", 0.0),
        ("42", 0.0),
        ("<answer>41</answer><answer>42</answer>", 0.0),
        ("<answer>41 or 42</answer>", 0.0),
        ("<answer>40+2</answer>", 0.0),
        ("<answer>42", 0.0),
        ("", 0.0),
    ],
)
def test_correctness(text, reward):
    assert correctness_reward([text], answer=["42"]) == [reward]


def test_a_broken_reference_is_an_error_and_not_a_zero():
    with pytest.raises(ValueError, match="is not a number"):
        correctness_reward([GOOD], answer=["forty-two"])
    with pytest.raises(ValueError, match="2 completions but 1"):
        correctness_reward([GOOD, GOOD], answer=["42"])
    with pytest.raises(ValueError, match="needs the column 'answer'"):
        correctness_reward(completions=[GOOD])


def test_strict_format():
    assert strict_format_reward([GOOD, GOOD + " bye", "42"]) == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        (GOOD + " trailing words", 1.0),
        ("<reasoning>\nabc", 0.25),
        ("<reasoning>abc</reasoning> 42", 0.5),
        ("<reasoning>abc</reasoning><answer>42", 0.75),
        ("<reasoning>abc<answer>42</answer>", 0.25),
        ("<answer>42</answer>", 0.0),
        ("", 0.0),
        ("42", 0.0),
        # gaming it
        ("</answer><answer></reasoning><reasoning>", 0.25),
        ("<reasoning></reasoning><answer></answer>", 0.25),
        ("<reasoning>a</reasoning><answer> </answer>", 0.75),
        (GOOD * 3, 0.0),
        ("<reasoning>" * 50, 0.0),
        ("<answer>1</answer>" * 4, 0.0),
    ],
)
def test_incremental_format(text, reward):
    assert incremental_format_reward([text]) == [reward]


def test_no_text_earns_less_than_nothing_or_more_than_everything():
    from itertools import product

    parts = ["<reasoning>", "</reasoning>", "<answer>", "</answer>", "42", " "]
    for length in range(6):
        for text in map("".join, product(parts, repeat=length)):
            values = [f(completions=[text], answer=["42"])[0] for f in REWARDS]
            assert all(0 <= v <= 1 for v in values)
            most = sum(REWARD_WEIGHTS)
            assert total(text) < most or (total(text) == most and text.count("<") == 4)


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        ("<answer>41 apples</answer>", 1.0),
        ("<answer>42.0</answer>", 1.0),
        ("<answer>42.5</answer>", 0.0),
        ("<answer>84/2</answer>", 0.0),
        ("<answer>many</answer>", 0.0),
        ("42", 0.0),
    ],
)
def test_integer_answer(text, reward):
    assert integer_answer_reward([text]) == [reward]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 1.0),
        (f"Sure! {GOOD} Bye.", 1.0),
        ("<reasoning>a</reasoning> so <answer>42</answer>", 1.0),
        ("<answer>42</answer><reasoning>a</reasoning>", 0.0),
        ("<reasoning></reasoning><answer>42</answer>", 0.0),
        (GOOD * 2, 0.0),
    ],
)
def test_soft_format(text, reward):
    assert soft_format_reward([text]) == [reward]


def test_json_schema():
    reward = json_schema(
        {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
    )
    texts = [
        '{"n": 42}',
        '<answer>{"n": 42}</answer>',
        '{"n": "42"}',
        "[]",
        "42",
        "NaN",
        '{"n": 42',
        "",
        "[" * 9000,
    ]
    assert reward(texts) == [1.0, 1.0, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, 0.0]
    assert reward(['{"n": 4, "more": "' + "x" * 20_000 + '"}']) == [0.0]
    with pytest.raises(ValueError, match="no JSON schema: 'int' is not valid"):
        json_schema({"type": "int"})


def test_symbolic_correctness_says_nothing_where_nothing_is_known():
    with SymbolicChecker(time_limit=2.0) as checker:
        reward = symbolic_correctness(checker)
        texts = [
            chat("<answer>2x</answer>"),
            "\\boxed{x}",
            "no answer",
            "<answer>9^{9^{9^{9}}}</answer>",
        ]
        assert reward(texts, answer=["x+x"] * 4) == [1.0, 0.0, 0.0, None]
        assert reward(["<answer>42</answer>"], answer=["42"]) == [1.0]
        with pytest.raises(
            ValueError, match=r"1 of 1 completions could not be judged \(1 timeouts, 0 errors"
        ):
            reward(texts[3:], answer=["x^2"])
        assert symbolic_correctness(checker, max_failed=1.0)(texts[3:], answer=["x^2"]) == [None]


def test_every_form_of_a_completion_is_read_and_what_does_not_apply_is_none():
    good = "<reasoning>2+2=4</reasoning><answer>4</answer>"
    blocks = [{"role": "assistant", "content": [{"type": "text", "text": good}]}]
    assert correctness_reward(completions=[blocks, good, good], answer=["4", None, "5"]) == [
        1.0,
        None,
        0.0,
    ]
    assert correctness_reward(completions=[], answer=[]) == []
    for completions, answer, words in (
        ([good], None, "needs the column 'answer'"),
        ([good, good], "42", "answer is the text '42'"),
        ([good], ["4", "4"], "1 completions but 2"),
        ([None], ["4"], "the completion 'None' is no text"),
        ([[{"content": good}]], ["4"], "no list of messages with role and content"),
    ):
        with pytest.raises(ValueError, match=words):
            correctness_reward(
                completions=completions, **({} if answer is None else {"answer": answer})
            )


def test_no_completion_crashes_the_json_reward_and_a_reference_to_nowhere_is_said_at_once():
    tenth = json_schema({"type": "number", "multipleOf": 0.01})
    assert tenth(completions=["0.25", "1e400", "1" + "0" * 400, "x"]) == [1.0, 0.25, 0.25, 0.0]
    inside = {"$defs": {"n": {"type": "number"}}, "properties": {"a": {"$ref": "#/$defs/n"}}}
    assert json_schema(inside)(completions=['{"a": 1}', '{"a": "x"}']) == [1.0, 0.25]
    for schema in (
        {"$ref": "#/nope"},
        {"$ref": "http://x.y/z.json"},
        {"properties": {"a": {"$ref": "#/$defs/m"}}},
    ):
        with pytest.raises(ValueError, match="which it does not hold"):
            json_schema(schema)
