"""Numbers and answers in texts: what is read, what is not, and what counts as equal."""

import random
from fractions import Fraction

import pytest
from conftest import raises_naming

from grpo_workbook.errors import WorkbookError
from grpo_workbook.rewards.answers import (
    extract_answer,
    is_correct,
    is_well_formed,
    lenient_answer,
    parse_number,
    read_answer,
    reference_answer,
    tagged_answer,
)


def is_leniently_right(text, answer):
    return is_correct(lenient_answer(text), answer)


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
        ("84/2", 42),
        ("1e3", 1000),
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
        "-$-5",
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


@pytest.mark.parametrize(
    "text", ["0,125", "000,072", "-0,125", "$0,500", "0,125.5", "00,125", "0,125,000"]
)
def test_a_decimal_comma_behind_a_zero_is_no_thousand(text):
    assert parse_number(text) is None
    assert read_answer(text) is None
    assert reference_answer(f"#### {text}") is None
    for gold in ("125", "72", "500", "0.125"):
        assert not is_correct(text, gold)
        assert not is_leniently_right(f"It is {text}", gold)


def test_near_is_not_equal():
    assert not is_correct("1009", "1000")
    assert not is_correct("0.333", "1/3")
    assert is_correct("2/6", "1/3")


def test_a_broken_reference_raises_instead_of_scoring_zero():
    with raises_naming(WorkbookError, "'many'"):
        is_correct("3", "many")


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
def test_a_reference_is_what_follows_its_mark(solution, answer):
    assert reference_answer(solution) == answer


def test_only_one_answer_block_counts():
    assert tagged_answer(GOOD) == "42"
    assert tagged_answer("<answer>41</answer><answer>42</answer>") is None
    assert tagged_answer("<answer>42") is None
    assert tagged_answer("</answer>42<answer>") is None


@pytest.mark.parametrize(
    "text", [GOOD, f"\n{GOOD}\n\n", "<reasoning>a</reasoning><answer>b</answer>"]
)
def test_both_parts_in_their_order_are_well_formed(text):
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
def test_anything_around_or_missing_is_not_well_formed(text):
    assert not is_well_formed(text)


def test_the_lenient_answer_is_the_last_number():
    assert is_leniently_right("The answer is 42.", "42")
    assert is_leniently_right("6*7=42\n#### 42", "42")
    assert not is_leniently_right("first 42, then 41", "42")
    assert lenient_answer("nothing here") is None
    assert lenient_answer("it costs $1,000.50 now") == "$1,000.50"


def test_a_huge_text_is_read():
    """A quadratic reader would need minutes for each of these; a linear one returns at once."""
    assert not is_well_formed("<reasoning>" + " \n" * 500_000)
    assert lenient_answer("1," * 500_000) == "1"
    assert lenient_answer("12 " * 500_000 + "7") == "7"
    assert tagged_answer("<answer>" * 100_000) is None
    assert parse_number("9" * 1_000_000) is None
    assert parse_number("1" + ",111" * 1500) is None


# ------------------------------------------------------------- what a model may write for a number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("72", 72),
        ("72 apples", 72),
        ("5 km", 5),
        ("60 km/h", 60),
        ("$72", 72),
        ("72 €", 72),
        ("\\$72", 72),
        ("1,000", 1000),
        ("1e3", 1000),
        ("**72**", 72),
        ("1.5E+2", 150),
        ("25e-2", Fraction(1, 4)),
        ("72.", 72),
        ("72,", 72),
        ("42;", 42),
        ("50%", 50),
        ("50\\%", 50),
        ("50 percent", 50),
        ("50 USD", 50),
        ("US$50", 50),
        ("USD 50", 50),
        ("Rs. 1,250.50", Fraction(2501, 2)),
        ("-$50", -50),
        ("20¢", 20),
        ("3 kWh", 3),
        ("$12/hr", 12),
        ("12.50/hour", Fraction(25, 2)),
        ("72 years old", 72),
        ("72~\\text{km}", 72),
        ("1\u20442", Fraction(1, 2)),
        ("1/2", Fraction(1, 2)),
        ("2/4", Fraction(1, 2)),
        ("1 1/2", Fraction(3, 2)),
        ("-1 1/2", Fraction(-3, 2)),
        ("3\\frac{1}{4}", Fraction(13, 4)),
        ("\\dfrac{7}{2}", Fraction(7, 2)),
        ("1/2 cup", Fraction(1, 2)),
        ("\u22125", -5),
        ("４２", 42),
        ("１，０００．５", Fraction(2001, 2)),
        ("1\u202f", 1),
        ("5 m²", 5),
        ("36.6 °C", Fraction(183, 5)),
        ("5\\text{ apples}", 5),
        ("5 months", 5),
        ("5 seconds", 5),
        ("5 points", 5),
        ("5 dollars", 5),
        ("72 times", 72),
        ("5 o'clock", 5),
        ("5 people", 5),
        ("5 inches", 5),
        ("1 foot", 1),
        ("5 kg", 5),
        # thousands with spaces
        ("1 000", 1000),
        ("12 345 678.5 km", Fraction(24691357, 2)),
        ("1\u202f234", 1234),
        # LaTeX
        ("\\frac13", Fraction(1, 3)),
        ("-\\frac{1}3", Fraction(-1, 3)),
        ("2\\cfrac 1{3}", Fraction(7, 3)),
        ("\\left(\\frac13\\right)", Fraction(1, 3)),
        ("-\\left( \\tfrac{1}{3} \\right)", Fraction(-1, 3)),
        ("(1/3)", Fraction(1, 3)),
        ("45^\\circ", 45),
        ("45^{\\circ}", 45),
        ("25\\text{ cm}^2", 25),
        ("25\\,\\mathrm{~m}^{3}", 25),
        ("5\\textbf{ miles}", 5),
        ("1{,}234", 1234),
        ("1\\,234", 1234),
        ("12,\\! 345", 12345),
        ("\\(72\\)", 72),
        ("\\[ 72 \\]", 72),
        ("$72$", 72),
        ("$$72$$", 72),
        ("$28\\%$", 28),
        ("$28$ %", 28),
        ("$5$ apples", 5),
        ("1\\times10^3", 1000),
        ("2.5 \\cdot 10^{-3}", Fraction(1, 400)),
        ("3×10^2 km", 300),
    ],
)
def test_answers_are_read_exactly(text, number):
    assert read_answer(text) == number


QUESTION = (
    "How many cups of flour, or pies, PAVILIONS and baths, if 3 boxes are halved? 多少苹果和几百万?"
)


@pytest.mark.parametrize(
    "unit", ["cups of flour.", "pies", "pavilions", "pavilion", "baths", "box", "苹果"]
)
def test_a_unit_may_come_from_the_question(unit):
    assert is_correct(f"5 {unit}", "5", QUESTION)
    assert is_correct(f"5 {unit}", "5", [{"role": "user", "content": f"1+4?\n{QUESTION}"}])
    assert is_correct(f"5 {unit}", f"5 {unit}")  # the reference's own unit
    assert not is_correct(f"6 {unit}", "5", QUESTION)


@pytest.mark.parametrize("word", ["or", "and", "halved", "3", "if", "are", "百万", "几百万", "ies"])
def test_a_word_of_the_question_that_changes_a_number_is_no_unit(word):
    assert not is_correct(f"5 {word}", "5", QUESTION)


@pytest.mark.parametrize(
    "rest",
    [
        *" Millionen| millones| тысяч| 百万| 万| halved| halves| doubled| isn't| isnt".split("|"),
        *"-|''|'| '-| .-| nope| flour| pavilions| MM| K|x| x|^2|²| mil|...|a| \\pm 1|\\ldots".split(
            "|"
        ),
        *"\\text{ halved}|\\text{ or }73| \\cdot 2|\\cdot 10|e|^\\circ 30'".split("|"),
    ],
)
def test_only_units_may_follow_a_number(rest):
    assert read_answer(f"72{rest}") is None


@pytest.mark.parametrize(
    "text",
    [
        "\\frac{144}{2}",
        "\\(72\\) \\(73\\)",
        "$72$ $73$",
        "$72$ or $73$",
        "(72, 73)",
        "(72,730)",
        "(1)(72)",
        "\\pm 72",
        "~72",
        "\\{72\\}",
        "36\\times 2",
        "72\\times10^{99999999}",
        "10^3",
        "-(-72)",
        "72 7300",
        "1 0000",
        "\\frac1",
        "\\sqrt[3]{72}",
    ],
)
def test_latex_that_is_no_number(text):
    assert read_answer(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "72 or 73",
        "42 41",
        "42 maybe",
        "42 not 41",
        "42 forty-one",
        "5 thousand",
        "5k",
        "2 dozen",
        "5 squared",
        "72?",
        "5!",
        *(
            f"5 {word}"
            for word in "tenths tenth hundredths thousandths thirds halves quarters sevenths "
            "twentieth lakh lakhs millions quadrillion zillion milliards googol score pairs "
            "tens".split()
        ),
        *(
            f"5 {word}"
            for word in "negative inverse oder vielleicht OU pi hundreds dozens fifteenths".split()
        ),
        "5 twenty-fifths",
        "72 wrong",
        "72 false",
        "-$-5",
        "+$-5",
        "84/2",
        "42/1",
        "0/5",
        "84/2 apples",
        "**",
        "****",
        "2**",
        "1/0",
        "1/2/3",
        "40+2",
        "6*7",
        "6 x 7",
        "4 x",
        "1, 2, 3 or 72",
        "1,00",
        "12,34",
        "1.2.3",
        "1e999999999",
        "1e-999999999",
        "1e9999",
        "4\u200b2",
        "4\x002",
        "٣",
        "9" * 200,
        "9" * 1_000_000,
        "x = 5",
        "forty-two",
        "42 a b c d e f",
        "<answer>42</answer>",
        "3 1/2 1/2",
        "1 7/2",
    ],
)
def test_what_is_no_answer_is_none(text):
    assert read_answer(text) is None


def test_percent_has_one_meaning():
    assert is_correct("50%", "50")
    assert is_correct("50", "50%")
    assert not is_correct("50%", "0.5")
    assert not is_correct("0.5", "50%")


def test_division_left_undone_is_no_answer_but_may_be_a_gold():
    assert not is_correct("84/2", "42")
    assert is_correct("42", "84/2")
    assert is_correct("2/4", "1/2")
    assert is_correct("3.5", "7/2")


def test_a_broken_gold_is_named_whatever_its_type():
    for gold in ("x^2", "", "72 or 5"):
        with raises_naming(WorkbookError, repr(gold)):
            is_correct("3", gold)
    with raises_naming(WorkbookError, 42, "int"):
        is_correct("3", 42)


def test_every_rational_is_read_back_from_every_way_to_write_it():
    """Seeded: the same number in all spellings is right, its neighbours are wrong."""
    rng = random.Random(7)
    full_width = str.maketrans({str(d): chr(0xFF10 + d) for d in range(10)})
    for _ in range(500):
        n = rng.randrange(-(10 ** rng.randrange(1, 12)), 10**9)
        cents = rng.randrange(1, 100)
        spellings = [
            str(n),
            f"{n:,}",
            f"{n}.0",
            f"{n} apples",
            f"{n}.",
            f"{n}e0",
            str(n).translate(full_width),
        ]
        spellings += [str(n).replace("-", "\u2212"), f"${n}" if n >= 0 else f"-${-n}", f" {n}\n"]
        assert [s for s in spellings if not is_correct(s, str(n))] == []
        assert not any(is_correct(s, str(n + 1)) or is_correct(s, f"{n}.5") for s in spellings)
        assert is_correct(f"{n}.{cents:02}", f"{n}.{cents:02}0")
        assert is_correct(str(Fraction(n, 7)), f"{3 * n}/21")


# ------------------------------------------------------------------ the final answer of a text


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (GOOD, "42"),
        ("so \\boxed{42}.", "42"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("6*7=42\n#### 42", "42"),
        ("#### Step 1\n6*7\n#### 42\n", "42"),
        ("<answer>\\boxed{42}</answer>", "42"),
        ("<answer>\n$\\boxed{42}$\n</answer>", "42"),
        ("<think>\\boxed{41}? \\boxed{40}?</think>\nIt is \\boxed{42}.", "42"),  # drafts
        ("<think>so \\boxed{42}</think>", None),
        ("<think><answer>41</answer></think> \\boxed{42}", "42"),
        ("<think>\\boxed{41}" * 70 + "</think> \\boxed{42}", "42"),
        ("<think>\\boxed{41}</think> \\boxed{41} or \\boxed{42}", None),
        ("<answer>42</answer> \\boxed{7}", "42"),  # the order of the forms
        ("\\boxed{42}\n#### 7", "42"),
        ("<answer>42</answer> no wait, 41", "42"),
        ("<answer>42</answer><answer>42.0</answer>", "42.0"),
        ("<answer>0</answer><answer>0.0</answer>", "0.0"),
        ("Give it in <answer> tags: <answer>42</answer>", "42"),
        ("<answer></answer><answer>42</answer>", "42"),
        ("<answer>x</answer><answer>x</answer>", "x"),
        # hedging
        ("<answer>41</answer><answer>42</answer>", None),
        ("\\boxed{41} or \\boxed{42}", None),
        ("#### 41\n#### 42", None),
        ("<answer>72 of them</answer> or <answer>5</answer>", None),
        # nothing there
        ("", None),
        ("42", None),
        ("<answer>42", None),
        ("</answer>42<answer>", None),
        ("<answer></answer>", None),
        ("\\boxed{42", None),
        ("\\boxed{}", None),
        ("####", None),
        ("<answer>" + "x" * 2000 + "</answer>", None),
    ],
)
def test_the_final_answer_of_a_text_is_found(text, answer):
    assert extract_answer(text) == answer


def test_a_number_is_never_cut():
    assert not is_leniently_right("it is 0." + "3" * 40, "0")
    assert not is_leniently_right("it is 5, no, 0." + "3" * 40, "5")
    assert is_leniently_right("version 1.2.3 costs 5", "5")
    assert not is_leniently_right("1e3", "3")
    assert is_leniently_right("that makes 1e3", "1000")
    assert is_leniently_right("so 1,250 in all", "1250")


HOSTILE = {
    "opening tags": "<answer>",
    "pairs": "<answer>1</answer>",
    "closing tags": "</answer>",
    "boxes": "\\boxed{",
    "braces": "\\boxed{" + "{" * 15000,
    "hashes": "#",
    "hash lines": "#### 1\n",
    "digits": "9",
    "commas": "1,",
    "thousands": ",111",
    "space": " \n",
    "full-width": "４",
    "minus": "-",
    "dots": ".1",
    "slashes": "1/",
    "zero width": "\u200b",
    "exponents": "1e1",
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_text_of_a_million_characters_is_never_right(kind):
    """A quadratic reader would not come back from it (benchmarks/rewards.py measures the time)."""
    text = HOSTILE[kind] * (1_000_000 // len(HOSTILE[kind]) + 1)
    assert not is_well_formed(text)
    assert tagged_answer(text) is None
    assert parse_number(text) is None
    assert read_answer(text) is None
    assert not is_correct(extract_answer(text), "42")
    assert not is_correct(lenient_answer(text), "42")


THOUGHT = "<think>\nIs it <answer>41</answer>? No.\n</think>\n\n"


@pytest.mark.parametrize(
    ("text", "answer", "formed"),
    [
        (f"{THOUGHT}<reasoning>6*7</reasoning><answer>42</answer>", "42", True),
        (f"{THOUGHT}<answer>42</answer>", "42", False),
        # A thought that the prompt has opened, and one that never closes.
        ("so <answer>41</answer>?</think><answer>42</answer>", "42", False),
        ("<think><reasoning>6*7</reasoning><answer>42</answer>", None, False),
        ("Hm. <think><reasoning>6*7</reasoning><answer>42</answer>", None, False),
        ("<think>6*7 = 42, so #### 42</think>", None, False),
        # An answer before a second thought is none, whether or not this thought closes.
        (f"{THOUGHT}<answer>42</answer><think>let me", None, False),
        (f"{THOUGHT}<answer>42</answer><think>let me</think>", None, False),
        (f"{THOUGHT}<answer>42</answer><think>let me</think><answer>43</answer>", "43", False),
    ],
)
def test_a_thought_is_neither_an_answer_nor_a_part_of_the_form(text, answer, formed):
    assert tagged_answer(text) == answer
    assert lenient_answer(text) == answer
    assert is_well_formed(text) == formed
