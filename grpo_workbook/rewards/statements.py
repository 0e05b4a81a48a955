"""Which answer a text states, where answers are expressions and not only numbers.

These functions read marks, sentences and lists for `symbolic.py`, without any algebra.
"""

import re
from itertools import pairwise

from grpo_workbook.rewards.answers import (
    BOX,
    CHANGES,
    MAX_MARKS,
    behind_thoughts,
    extract_answer,
    same_answer,
)

__all__ = ["MARK", "NAME", "boxed_values", "count_alternatives", "final_answer", "stated_answer"]

MARK = re.compile(r"</?answer>|\\boxed\{|####")  # of a final answer
# The name in front of a value: "x =", "f(x) =", "(x, y) =", "\theta \approx"
NAME = re.compile(
    r"\s*(?:\\?[A-Za-z]\w*(?:_\{?\w+\}?)?(?:\(\w\))?|\([a-z, ]+\))\s*(?:=|\\approx(?![a-z]))"
)
# Words and signs that offer another value.
_OR = re.compile(r"\b(?:or|either|maybe|not)\b|\\lor|\$\$|\\pm|\xb1")
_AND = re.compile(r",?\s*(?:\\text\{\s*and\s*\}|\band\b)")
# What may stand between two boxes of one answer: signs, "and", and the name of the next value
_GAP = re.compile(r"(?:[\s$,;.()\[\]\\]|\\text\{ ?and ?\}|and|or|\\q?quad)*(?:[A-Za-z]\w*\s*=\s*)?")
# The last statement of prose: "is", words, then a formula or a number, and no number behind it.
_STATED = re.compile(
    r"(?si).*(?:\b(?:answer|is|are|that|thus|therefore)|it's|[a-z]:)\s(?P<words>[a-z ,]{0,60}?)"
    r"(?P<value>\$\$[^$]+\$\$|\$[^$\n]+\$|\\\[.+?\\\]|\\\([^\n]+?\\\)"
    r"|(?<![a-z])-?[$€]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?(?:m[²³])?(?![\w/]|[.,:]\d))"
    r"(?P<unit>(?>(?:[^\W\d]|[\s,²³%€°])*))(?:[.<][^\d$\\]*)?\Z"
)
_IS_THE_ANSWER = re.compile(r"\A\s*is (?:our|the) (?:answer|solution)")
# Two roots of one unknown: x = 1 or x = 2
_ROOTS = re.compile(r"([A-Za-z])\s*=([^=]+?)(?:[,;]|\\text\{ *or *\}|\bor\b)\s*\1\s*=([^=]+)\Z")
# LaTeX's text with a word in it
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mbox)\{[^{}]*[^\W\d_][^{}]*\}")
_POWER = re.compile(r"^\s*\^\{?\d\}?")  # of a unit: \text{ cm}^2


def final_answer(text: str) -> str | None:
    """The marked answer of a text, or all of a text without a mark; None if marks disagree.

    Thoughts do not count. Several boxes in a row, with nothing but signs and "and" between them,
    are one list.
    """
    text = behind_thoughts(text)
    if not MARK.search(text):
        return text.strip()
    if "<answer>" not in text and text.count("\\boxed{") <= MAX_MARKS:
        values = _row_of_boxes(text)
        if values:
            different = {same_answer(value): value for value in values}
            return ", ".join(different.values())
    answer = extract_answer(text)
    if answer is None:
        return None
    return final_answer(answer)  # the marked answer may hold a mark itself: a box in a block


def boxed_values(prediction: str | None) -> set[str]:
    """The different values in the boxes of a prediction, after its thoughts.

    None of them where another mark has an answer, too.
    """
    text = behind_thoughts(prediction or "")
    if set(MARK.findall(text)) != {"\\boxed{"} or text.count("\\boxed{") > MAX_MARKS:
        return set()
    return {box[1].strip() for box in BOX.finditer(text)}


def _row_of_boxes(text: str) -> list[str]:
    """The values of all boxes of a text; none if other words stand between them."""
    boxes = list(BOX.finditer(text))
    for box, following in pairwise(boxes):
        if not _GAP.fullmatch(text[box.end() : following.start()]):
            return []
    return [box[1].strip() for box in boxes]


def stated_answer(prediction: str | None) -> str | None:
    """The answer of a prediction: what is marked, or its last sentence states, or all of it."""
    if prediction is None:
        return None
    prediction = behind_thoughts(prediction)
    if MARK.search(prediction):
        answer = final_answer(prediction) or ""
        return _ROOTS.sub(r"\2,\3", answer)
    match = _STATED.match(prediction[-2_000:])
    if match is not None and not _words_change_it(match):
        return match["value"]
    return prediction.strip()


def _words_change_it(match: re.Match) -> bool:
    """Whether a word before or after the value of a statement may change it: "half of 72"."""
    unit = _IS_THE_ANSWER.sub("", match["unit"])
    for word in re.findall(r"\w+", f"{match['words']} {unit}".lower()):
        if CHANGES.fullmatch(word) or not word.rstrip("²³").isascii():
            return True
    return False


def count_alternatives(answer: str) -> int:
    """The number of values that an answer offers: by "or", list signs outside brackets and such."""
    answer = re.sub(r"[<>!]=", "<", answer.strip(" $").lower())
    answer = _AND.sub(",", answer)
    terms = [""]
    equals = 0
    depth = 0
    for sign in answer:
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        outside = depth <= 0
        if outside and sign == "=":
            equals += 1
        if outside and sign in ",;":
            terms.append("")
        elif not sign.isspace():
            terms[-1] += sign
    different = set(terms) - {""}
    if NAME.match(answer):
        equals -= 1  # y = 5 is one value, but 3 = 2 are two
    return len(_OR.findall(answer)) + len(different) + max(0, equals) + _texts_between(answer)


def _texts_between(answer: str) -> int:
    """The number of texts between two terms, as in "2 \\text{ bzw. } 3": each offers a choice.

    A text behind the last term is a unit.
    """
    parts = [_POWER.sub("", part) for part in _TEXT.split(answer)]
    with_terms = [index for index, part in enumerate(parts) if re.search(r"\w", part)]
    if not with_terms:
        return 0
    return with_terms[-1] - with_terms[0]
