"""Find the final answer in a text, normalise it, compare it exactly. And: is the text well-formed?

A completion is well-formed when it is one reasoning block, one answer block, and nothing else:

    <reasoning>
    7+7=14
    </reasoning>
    <answer>14</answer>
"""

import re
from fractions import Fraction

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")

_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})  # unicode minus, en dash
# Thousands separated by commas, or plain digits; then decimals. Bounded: a completion may hold anything.
_DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,10}|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30}"
_NUMBER = rf"(?:{_DIGITS})"
_WHOLE = re.compile(
    rf"(?P<sign>[-+]?)\s*(?:[$€£]\s*(?P<sign2>-?))?(?P<top>{_NUMBER})(?:\s*/\s*(?P<bottom>{_NUMBER}))?\s*%?\.?",
    re.ASCII,
)
_LAST = re.compile(rf"(?<!\d)-?[$€£]?{_NUMBER}(?:/{_NUMBER})?(?!\d)", re.ASCII)


def parse_number(text: str) -> Fraction | None:
    """The number that the whole text is, exactly, or None: 1,000 = 1000, $72 = 72, 72.0 = 72, 1/2 = 0.5.

    A currency sign before and a percent sign or full stop after it are ignored; any other word makes it None.
    """
    match = _WHOLE.fullmatch(text.strip().translate(_MINUS))
    if match is None:
        return None
    top, bottom = (Fraction((match[g] or "1").replace(",", "")) for g in ("top", "bottom"))
    if bottom == 0:
        return None
    return (-1 if "-" in (match["sign"], match["sign2"]) else 1) * top / bottom


def same_number(text: str | None, reference: str) -> bool:
    """Whether both texts are the same rational number. Raises ValueError when the reference is none."""
    wanted = parse_number(reference)
    if wanted is None:
        raise ValueError(f"the reference answer {reference!r} is not a number: clean the data before training")
    return text is not None and parse_number(text) == wanted


def reference_answer(solution: str) -> str | None:
    """The final number of a GSM8K solution (after the last ####), or of a text that is a number itself, or None."""
    final = solution.rsplit("####", 1)[-1].strip()
    return final.replace(",", "") if parse_number(final) is not None else None


def tagged_answer(text: str) -> str | None:
    """What stands in the only <answer> block, or None when there is none or more than one tag of a kind."""
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    _, _, rest = text.partition("<answer>")
    inside, closed, _ = rest.partition("</answer>")
    return inside.strip() if closed else None


def lenient_answer(text: str) -> str | None:
    """The answer that a kind reader would take: the answer block, else after ####, else the last number."""
    inside = tagged_answer(text)
    if inside is not None and parse_number(inside) is not None:
        return inside
    if "####" in text and (final := reference_answer(text)) is not None:
        return final
    numbers = _LAST.findall(text.translate(_MINUS))
    return numbers[-1] if numbers else None


def is_well_formed(text: str) -> bool:
    """One non-empty reasoning block, then one non-empty answer block, and nothing but white space around them."""
    text = text.strip()
    if any(text.count(tag) != 1 for tag in TAGS) or not text.startswith(TAGS[0]) or not text.endswith(TAGS[3]):
        return False
    reasoning, found, rest = text.removeprefix(TAGS[0]).partition(TAGS[1])
    between, opened, answer = rest.removesuffix(TAGS[3]).partition(TAGS[2])
    return bool(found and opened and reasoning.strip() and answer.strip()) and not between.strip()


def is_strictly_right(text: str, reference: str) -> bool:
    """Well-formed, and the answer block holds exactly the reference number."""
    return is_well_formed(text) and same_number(tagged_answer(text), reference)


def is_leniently_right(text: str, reference: str) -> bool:
    """The kindly read answer is the reference number, whatever the form."""
    return same_number(lenient_answer(text), reference)
