from fractions import Fraction

import pytest

from grpo_workbook.answers import (
    is_leniently_right,
    is_strictly_right,
    is_well_formed,
    lenient_answer,
    parse_number,
    reference_answer,
    same_number,
    tagged_answer,
)

GOOD = "<reasoning>\n6*7=42\n</reasoning>\n<answer>42</answer>"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", 72),
        ("1,000", 1000),
        ("1000", 1000),
        ("$72", 72),
        ("72.0", 72),
        ("1/2", Fraction(1, 2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("-5", -5),
        ("\u22125", -5),
        ("-$5", -5),
        ("$-5", -5),
        ("+3", 3),
        ("3.", 3),
        ("1,234,567.25", Fraction(123456725, 100)),
        (" 7 ", 7),
        ("50%", 50),
        ("-1 / 4", Fraction(-1, 4)),
        ("€9.99", Fraction(999, 100)),
        ("0.1", Fraction(1, 10)),
    ],
)
def test_numbers_are_read_exactly(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "abc",
        "7 apples",
        "1,00",
        "1/0",
        "2+70",
        "1, 2",
        "--5",
        "1e3",
        "٣",
        "7" * 200,
        "72 or 5",
        "1.2.3",
        "12,34",
        "x = 5",
        "-",
        "$",
        "1//2",
    ],
)
def test_what_is_no_number_is_none(text):
    assert parse_number(text) is None


def test_near_is_not_equal():
    assert not same_number("1009", "1000")
    assert not same_number("0.333", "1/3")
    assert same_number("2/6", "1/3")


def test_a_broken_reference_raises_instead_of_scoring_zero():
    with pytest.raises(ValueError, match="'many' is not a number"):
        same_number("3", "many")


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        ("48/2 = <<48/2=24>>24\n#### 72", "72"),
        ("#### 1,250", "1250"),
        ("18", "18"),
        ("#### $5.50", "$5.50"),
        ("no number at all", None),
        ("#### ", None),
        ("5 apples #### some", None),
    ],
)
def test_reference_answers(solution, answer):
    assert reference_answer(solution) == answer


def test_only_one_answer_block_counts():
    assert tagged_answer(GOOD) == "42"
    assert tagged_answer("<answer>41</answer><answer>42</answer>") is None
    assert tagged_answer("<answer>42") is None
    assert tagged_answer("</answer>42<answer>") is None


@pytest.mark.parametrize("text", [GOOD, f"\n{GOOD}\n\n", "<reasoning>a</reasoning><answer>b</answer>"])
def test_well_formed(text):
    assert is_well_formed(text)


@pytest.mark.parametrize(
    "text",
    [
        GOOD + "\nSo the answer is 42.",
        "Sure! " + GOOD,
        GOOD + GOOD,
        "<reasoning></reasoning><answer>42</answer>",
        "<reasoning>a</reasoning><answer> </answer>",
        "<answer>42</answer><reasoning>a</reasoning>",
        "<reasoning>a</reasoning> so <answer>42</answer>",
        "<reasoning>a<answer>42</answer></reasoning>",
        "<reasoning><answer>a</reasoning></answer>",
        "42",
        "",
        "<reasoning>a</reasoning>42",
        "</reasoning></answer><reasoning><answer>",
    ],
)
def test_not_well_formed(text):
    assert not is_well_formed(text)


def test_strict_and_lenient():
    assert is_strictly_right(GOOD, "42")
    assert not is_strictly_right(GOOD, "41")
    assert not is_strictly_right("The answer is 42.", "42")
    assert is_leniently_right("The answer is 42.", "42")
    assert is_leniently_right("6*7=42\n#### 42", "42")
    assert not is_leniently_right("first 42, then 41", "42")
    assert lenient_answer("nothing here") is None
    assert lenient_answer("it costs $1,000.50 now") == "$1,000.50"


def test_a_huge_text_is_read_in_linear_time():
    """A quadratic reader would need minutes for this; a linear one returns at once."""
    assert not is_well_formed("<reasoning>" + " \n" * 500_000)
    assert lenient_answer("1," * 500_000) == "1"
    assert lenient_answer("12 " * 500_000 + "7") == "7"
    assert tagged_answer("<answer>" * 100_000) is None
    assert parse_number("9" * 1_000_000) is None
    assert parse_number("1" + ",111" * 1500) is None
