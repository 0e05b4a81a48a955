import pytest

from grpo_workbook.rewards import (
    MAX_REWARD,
    REWARDS,
    correctness_reward,
    incremental_format_reward,
    strict_format_reward,
    text_of,
)

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


def chat(text):
    return [{"role": "assistant", "content": text}]


def test_both_forms_of_completions():
    assert text_of(GOOD) == text_of(chat(GOOD)) == GOOD
    assert correctness_reward([GOOD], answer=["42"]) == correctness_reward([chat(GOOD)], answer=["42"]) == [2.0]


def test_the_best_completion_earns_the_maximum():
    assert sum(f(completions=[GOOD], answer=["42"])[0] for f in REWARDS) == MAX_REWARD


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 2.0),
        ("<answer>42</answer>", 2.0),
        ("<answer>$42.00</answer>", 2.0),
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
    with pytest.raises(TypeError, match="answer"):
        correctness_reward(completions=[GOOD])


def test_strict_format():
    assert strict_format_reward([GOOD, GOOD + " bye", "42"]) == [0.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        (GOOD, 0.5),
        (GOOD + " trailing words", 0.5),
        ("<reasoning>\nabc", 0.125),
        ("<reasoning>abc</reasoning> 42", 0.25),
        ("<reasoning>abc</reasoning><answer>42", 0.375),
        ("<reasoning>abc<answer>42</answer>", 0.125),
        ("<answer>42</answer>", 0.0),
        ("", 0.0),
        ("42", 0.0),
        # gaming it
        ("</answer><answer></reasoning><reasoning>", 0.125),
        ("<reasoning></reasoning><answer></answer>", 0.125),
        ("<reasoning>a</reasoning><answer> </answer>", 0.375),
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
            assert all(v >= 0 for v in values)
            assert sum(values) < MAX_REWARD or (sum(values) == MAX_REWARD and text.count("<") == 4)
