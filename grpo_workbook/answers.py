"""Find the final answer in a text, read it exactly, compare it, and check the form of the text.

The form is <reasoning>7+7=14</reasoning> <answer>14</answer>. Numbers are fractions, compared
exactly; nothing is evaluated. The work is bounded however long the text is.
"""

import re
from fractions import Fraction
from functools import lru_cache

from grpo_workbook.errors import WorkbookError

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
MAX_ANSWER = 1_000  # characters

_TAG = re.compile("|".join(TAGS))
_PAIR = re.compile(r"<answer>((?:[^<]|<(?!/?answer>))*+)</answer>")
# Characters that mean an ASCII one: full-width forms (U+FF01 is "!"), minus, en dash, wide spaces.
PLAIN = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x2212: "-", 0x2013: "-"}
PLAIN |= dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ")
# Thousands separated by commas, or plain digits; then decimals. Bounded, because a completion may
# hold anything. Thousands never begin with 0: 0,125 is an eighth with a decimal comma, not 125.
_NUMBER = r"(?:(?:[1-9]\d{0,2}(?:,\d{3}){1,10}|\d{1,30})(?:\.\d{1,30})?|\.\d{1,30})"
_CURRENCY = "[$€£¥₹]"
_ANSWER = re.compile(
    rf"(?a)(?P<sign>[-+]?)\s*(?:{_CURRENCY}\s*(?P<sign2>-?))?(?:(?:(?P<whole>\d{{1,30}})\s+)?"
    r"(?P<top>\d{1,30})\s*/\s*(?P<bottom>\d{1,30})(?!\d|[.,]\d|\s*/)"
    rf"|(?P<number>{_NUMBER}(?:[eE][-+]?[0-3]?\d{{1,2}}(?!\d))?))"
)
# The last number of a text. Possessive: each digit is read once, and long numbers are not cut.
_LAST = re.compile(
    rf"(?a)(?<!\d)(?<!\d\.)-?{_CURRENCY}?(?:(?:\d{{1,3}}+(?:,\d{{3}}(?!\d))++|\d++)(?:\.\d++)?+"
    r"|\.\d++)(?:[eE][-+]?\d++)?+(?:/\d++)?+(?!\.\d)"
)
# \boxed{...} with braces in pairs, to a depth of three. Possessive and bounded, as all here.
_INSIDE = r"[^{}\\]|\\."
for _ in range(3):
    _INSIDE = rf"[^{{}}\\]|\\.|\{{(?:{_INSIDE}){{0,200}}+\}}"
_BOX = re.compile(rf"\\boxed\{{((?:{_INSIDE}){{0,{MAX_ANSWER}}}+)\}}", re.DOTALL)
# Words after a number that change it, take it back or offer another one. They and their plurals are
# not units, except points, scores and overs. The fractions do not include "month".
_NOT_UNITS = (
    "or and not no but if maybe perhaps possibly probably wait than to from plus minus times by "
    "over divided mod is are equals equal actually either instead rather correction sorry i mean "
    "think else otherwise also then so dozen hundred thousand lakh lac crore googol score pair "
    "gross half grand halve third quarter point k bn mn mio mrd squared cubed factorial root sqrt "
    "pi negative inverse reciprocal opposite double twice wrong false incorrect oder und nicht "
    "kein vielleicht eventuell bzw beziehungsweise ou et peut quizás quizá acaso forse oppure "
    "zero one two three four five six sixe seven eight nine ten eleven twelve thirteen fourteen "
    "fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty "
    "ninety"
)
_CHANGES = re.compile(
    rf"(?!points$|scores$|overs$)(?:{_NOT_UNITS.replace(' ', '|')})s?|\w*illi(?:on|ard)(?:th)?s?"
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|hundred|thousand)ths?"
)


def parse_number(text: str) -> Fraction | None:
    """The whole text as a number, for data: no unit except %, and 84/2 is 42."""
    return read_answer(text, alone=True)


def read_answer(text: str, alone: bool = False) -> Fraction | None:
    """An answer as an exact number; None if it holds no number, or more than one.

    - 72, 1,000, $72, 72.0, -5, 1/2, 1 1/2, 1e3, **72**, \\frac{1}{2}, full-width digits.
    - A unit may follow ("72 apples") and is not compared. % is a unit: 50% is 50, never 0.5.
    - Not a number: "72 or 73", "42 41", "72 and more", "5 thousand", "5 tenths", "72?", "-$-5".
    - A division that still has to be done is not a number: 84/2 is not 42, but 2/4 and 7/2 count.
    """
    text = text.strip()
    if not 0 < len(text) <= 200:
        return None
    text = _plain(text[2:-2] if text.startswith("**") and text.endswith("**") else text).strip()
    match = _ANSWER.match(text)
    if match is None or (match["sign"] and match["sign2"]):  # -$-5
        return None
    rest = text[match.end() :].strip()
    if rest not in ("", "%", ".", "%.") and (alone or not _is_unit(rest)):
        return None
    if match["bottom"]:
        top, bottom, whole = int(match["top"]), int(match["bottom"]), int(match["whole"] or 0)
        if not bottom or (top % bottom == 0 and not alone) or (match["whole"] and top > bottom):
            return None
        value = whole + Fraction(top, bottom)
    else:
        value = Fraction(match["number"].replace(",", ""))
    return -value if "-" in (match["sign"], match["sign2"]) else value


def _plain(text: str) -> str:
    """Full-width forms, unusual spaces, unicode minus and LaTeX's numbers, in plain ASCII."""
    text = text.translate(PLAIN)
    if "\\" in text:
        text = re.sub(r"\\[dt]?frac\{(-?\d{1,30})\}\{(\d{1,30})\}", r" \1/\2", text)
        text = re.sub(r"\\(?:text|mathrm)\{([^{}]*)\}", r" \1", text)
        text = re.sub(r"\\([$%])", r"\1", text).replace("\\!", "").replace("\\,", " ")
        text = text.replace("{,}", ",").strip()
    return text


def _is_unit(rest: str) -> bool:
    """Whether the text after a number is a unit of up to four words that does not change it."""
    rest = rest.rstrip(".,;:").strip()
    if rest in ("", "%", "$", "€", "£", "¥", "₹", "°"):
        return True
    words = [w.lstrip("°").rstrip("²³") for w in re.split(r"[\s/.'’-]+", rest) if w]
    return len(words) <= 4 and all(
        w.isalpha() and (w[1:] or w in "mglLshtWVANJCF") and not _CHANGES.fullmatch(w.lower())
        for w in words
    )


@lru_cache(maxsize=4096)
def _number_of(reference: str) -> Fraction:
    """The reference as a number, read less strictly than an answer: 84/2 is 42."""
    if not isinstance(reference, str):
        kind = type(reference).__name__
        raise WorkbookError(f"the reference answer {reference!r:.80} is a {kind}: give it as text")
    value = parse_number(reference)
    value = read_answer(reference) if value is None else value
    if value is None:
        said = "is not a number: clean the data before training, or use the symbolic reward"
        raise WorkbookError(f"the reference answer {reference[:80]!r} {said}")
    return value


def is_correct(prediction: str | None, reference: str) -> bool:
    """Whether the prediction is exactly the same number as the reference; False for None."""
    wanted = _number_of(reference)
    return prediction is not None and read_answer(prediction) == wanted


def extract_answer(text: str) -> str | None:
    """The final answer of a text, or None if there is none, or several that differ.

    Complete <answer>...</answer> pairs come first, then \\boxed{...}, then the rest of a line after
    ####, as in GSM8K. Several answers count as one if they are equal as numbers or as text. Words
    outside the marks spoil the form, but not the number: `<answer>42</answer> no wait, 41`.
    """
    for mark, find in ((TAGS[3], _PAIR.findall), ("\\boxed{", _BOX.findall), ("####", _hashed)):
        if text.count(mark) > 64:  # spam
            return None
        found = [(_BOX.fullmatch(a) or (a, a))[1].strip() for a in map(str.strip, find(text))]
        if found := [answer for answer in found if answer]:
            one = len({a if (n := read_answer(a)) is None else n for a in found}) == 1
            return found[-1] if one and len(found[-1]) <= MAX_ANSWER else None
    return None


def _hashed(text: str) -> list[str]:
    """The ends of lines after ####; headings ("#### Step 1") only if none of them is a number."""
    lines = [piece.split("\n", 1)[0] for piece in text.split("####")[1:]]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    return [line for line in lines if read_answer(line) is not None] or lines


def reference_answer(solution: str) -> str | None:
    """The final number of a GSM8K solution (after the last ####), or a text that is a number."""
    final = solution.rsplit("####", 1)[-1].strip()
    return final.replace(",", "") if parse_number(final) is not None else None


def tagged_answer(text: str) -> str | None:
    """The text in the only <answer> block; None if there are several, or none."""
    if text.count(TAGS[2]) != 1 or text.count(TAGS[3]) != 1:
        return None
    inside, closed, _ = text.partition(TAGS[2])[2].partition(TAGS[3])
    return inside.strip() if closed else None


def lenient_answer(text: str) -> str | None:
    """The answer as a lenient reader finds it: the block, else after ####, else the last number."""
    inside = tagged_answer(text)
    if inside is not None and read_answer(inside) is not None:
        return inside
    if "####" in text and (final := reference_answer(text)) is not None:
        return final
    found = _LAST.findall(text[-4_000:].translate({0x2212: "-", 0x2013: "-"}))
    return found[-1] if found else None


def is_well_formed(text: str) -> bool:
    """Whether the text is one filled reasoning block, then one filled answer block, and no more."""
    if any(text.count(tag) != 1 for tag in TAGS) or _TAG.findall(text) != [*TAGS]:
        return False
    before, reasoning, between, answer, after = map(str.strip, _TAG.split(text))
    return bool(reasoning and answer) and not (before or between or after)
