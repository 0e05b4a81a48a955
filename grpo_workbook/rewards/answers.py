"""Find the final answer in a text, read it exactly, compare it, and check the form of the text.

The form is <reasoning>7+7=14</reasoning> <answer>14</answer>. Numbers are fractions, compared
exactly; nothing is evaluated. The work is bounded however long the text is.
"""

import re
import tomllib
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from grpo_workbook.errors import WorkbookError

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
MAX_ANSWER = 1_000  # characters

_TAG = re.compile("|".join(TAGS))
# (?>...) is atomic: it never gives back what it took, so that no text takes quadratic time. A
# possessive group, its short form, matches wrongly before Python 3.11.5 (Debian 12 has 3.11.2).
_PAIR = re.compile(r"<answer>((?>(?:[^<]|<(?!/?answer>))*))</answer>")
# Characters that mean an ASCII one: full-width forms (U+FF01 is "!"), minus, en dash, wide spaces.
PLAIN = {0xFF01 + i: 0x21 + i for i in range(94)} | {0x2212: "-", 0x2013: "-", 0x2044: "/"}
PLAIN |= dict.fromkeys(map(ord, "\u00a0\u2007\u2009\u202f\u3000"), " ")
# Thousands separated by commas or spaces, or plain digits; then decimals. Bounded, because a
# completion may hold anything. Thousands never begin with 0: 0,125 is an eighth, not 125.
_NUMBER = (
    r"(?:(?:[1-9]\d{0,2}(?:(?:,\d{3}){1,10}|(?: \d{3}){1,10}(?!\d))|\d{1,30})(?:\.\d{1,30})?"
    r"|\.\d{1,30})"
)
_CURRENCY = r"(?:\b(?:Rs\.?|USD|EUR|GBP|CHF)\s*|(?:\bUS|\bA|\bC)?[$€£¥₹])"
_ANSWER = re.compile(
    rf"(?a)(?P<sign>[-+]?)\s*(?:{_CURRENCY}\s*(?P<sign2>-?))?(?:(?:(?P<whole>\d{{1,30}})\s+)?"
    r"(?P<top>\d{1,30})\s*/\s*(?P<bottom>\d{1,30})(?!\d|[.,]\d|\s*/)"
    rf"|(?P<number>{_NUMBER}(?:[eE][-+]?[0-3]?\d{{1,2}}(?!\d))?))"
)
# The last number of a text. Possessive: each digit is read once, and long numbers are not cut.
_LAST = re.compile(
    rf"(?a)(?<!\d)(?<!\d\.)-?{_CURRENCY}?(?:(?:(?>\d{{1,3}})(?>(?:,\d{{3}}(?!\d))+)|\d++)(?>(?:\.\d+)?)"
    r"|\.\d++)(?>(?:[eE][-+]?\d+)?)(?>(?:/\d+)?)(?!\.\d)"
)
# \boxed{...} with braces in pairs, to a depth of three. Atomic and bounded, as all here.
_INSIDE = r"[^{}\\]|\\."
for _ in range(3):
    _INSIDE = rf"[^{{}}\\]|\\.|\{{(?>(?:{_INSIDE}){{0,200}})\}}"
BOX = re.compile(rf"\\boxed\{{((?>(?:{_INSIDE}){{0,{MAX_ANSWER}}}))\}}", re.DOTALL)
# The words that may follow a number, and those that change it, take it back or offer another one.
_WORDS = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))
_UNITS = {word.lower() if len(word) > 2 else word for word in _WORDS["units"].split()}
CHANGES = re.compile(
    rf"(?:{'|'.join(_WORDS['changes'].split())})s?|\w*(?:illi(?:on|ard)|миллион|тысяч)\w{{0,3}}"
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|hundred|thousand)ths?"
    r"|(?:hal[fv]|doubl|trebl|tripl|quadrupl)(?:e|es|ed|ing)?"
    r"|.*[一二两三四五六七八九十百千万萬亿億兆半倍].*"
)
# LaTeX's ways to write a number, in plain ASCII.
_MARKED = re.compile(r"[\\{^~(]|\$.*\$")
_GROUP = r"\s*(?:\{\s*(-?\d{1,30})\s*\}|(\d))"
_LATEX = [
    (re.compile(pattern), plain)
    for pattern, plain in (
        (r"^\$\$?([^$]+)\$\$?", r"\1 "),  # $5$ apples
        (r"\\(?:left|right)(?![a-z])|\\!\s*|\\[()\[\]]", ""),
        (r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}", r" \1"),
        (r"\\[,;: ]|~(?=[ A-Za-z\\])|\\q?quad(?![a-z])", " "),
        (rf"\\[cdt]?frac{_GROUP}{_GROUP}", r" \1\2/\3\4"),
        (r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))", "°"),
        (r"(?<=[A-Za-z])\s*\^\s*(?:[23]|\{-?[123]\})", ""),  # cm^2
        (rf"(?<=\d)\s*(?:\\times|\\cdot|[×·*])\s*10\s*\^{_GROUP}(?!\d)", r"e\1\2"),
        (r"\{(,)\}|\\([$%])", r"\1\2"),
        (r"^\s*([-+]?)\s*\(([^(),]*)\)", r"\1\2 "),
    )
]


def parse_number(text: str) -> Fraction | None:
    """The whole text as a number, for data: no unit except %, and 84/2 is 42."""
    return read_answer(text, alone=True)


def read_answer(text: str, alone: bool = False, question: str = "") -> Fraction | None:
    """An answer as an exact number; None if it holds no number, or more than one.
    - 72, 1,000, 1 000, $72, 72.0, -5, 1/2, 1 1/2, 1e3, **72**, full-width digits, LaTeX's \\frac12,
      \\(72\\), 45^\\circ, 1{,}234 and 1\\times10^3.
    - A unit may follow and is not compared: words of units.toml ("72 km/h") or of the question
      ("72 widgets"). % is a unit: 50% is 50, never 0.5.
    - Not a number: "72 or 73", "42 41", "72 and more", "5 thousand", "5 tenths", "72?", "-$-5".
    - A division that still has to be done is not a number: 84/2 is not 42, but 2/4 and 7/2 count.
    """
    if not 0 < len(text := text.strip()) <= 200:
        return None
    text = _plain(text[2:-2] if text.startswith("**") and text.endswith("**") else text)
    match = _ANSWER.match(text)
    if match is None or (match["sign"] and match["sign2"]):  # -$-5
        return None
    rest = text[match.end() :].strip()
    if rest not in ("", "%", ".", "%.") and (alone or not _is_unit(rest, question)):
        return None
    if match["bottom"]:
        top, bottom, whole = int(match["top"]), int(match["bottom"]), int(match["whole"] or 0)
        if not bottom or (top % bottom == 0 and not alone) or (match["whole"] and top > bottom):
            return None
        value = whole + Fraction(top, bottom)
    else:
        value = Fraction(re.sub("[, ]", "", match["number"]))
    return -value if "-" in (match["sign"], match["sign2"]) else value


def _plain(text: str) -> str:
    """Full-width forms, unusual spaces, unicode minus and LaTeX's numbers, in plain ASCII."""
    text = text if text.isascii() else text.translate(PLAIN)
    if _MARKED.search(text):
        for pattern, plain in _LATEX:
            text = pattern.sub(plain, text)
    return text.strip()


def _is_unit(rest: str, question: str) -> bool:
    """Whether the text after a number is a unit of up to four words that does not change it."""
    rest = re.sub(r"\s*[.,;:]$", "", rest)
    if rest in ("", "%", "$", "€", "£", "¥", "₹", "°", "¢"):
        return True
    words = re.split(r"[\s/.-]+", re.sub(r"°|[²³]|['’]s\b|^/", "", rest).lstrip())
    return len(words) <= 4 and all(_is_known(word, question) for word in words)


def _is_known(word: str, question: str) -> bool:
    """Whether a word is in the list of units, or in the question and does not change a number."""
    word = word.lower() if len(word) > 2 else word  # short units keep their case: mV, MV
    forms = {word} | {word.removesuffix(end) for end in ("s", "es") if len(word) > 2}
    if forms & _UNITS or CHANGES.fullmatch(word) or not word.isalpha():
        return bool(forms & _UNITS)
    asked = question.lower().replace("\\n", " ")  # a chat has escaped line ends
    if not word.isascii():  # Chinese has no spaces
        return word in asked
    return len(word) > 2 and not {*forms, f"{word}s"}.isdisjoint(re.findall(r"[^\W\d_]+", asked))


@lru_cache(maxsize=4096)
def _number_of(reference: str) -> Fraction | None:
    """The reference as a number, read less strictly than an answer: 84/2 is 42."""
    if not isinstance(reference, str):
        kind = type(reference).__name__
        raise WorkbookError(f"the reference answer {reference!r:.80} is a {kind}: give it as text")
    value = parse_number(reference)
    return read_answer(reference, question=reference) if value is None else value


def is_correct(said: str | None, reference: str, question: object = "", or_text=False) -> bool:
    """Whether the given answer is exactly the same number as the reference; False for None.

    Words of the question (a text or a chat) and of the reference may be units. A reference that is
    no number raises WorkbookError, or with `or_text` is compared as text, case and spaces aside.
    """
    wanted = _number_of(reference)
    if wanted is None and not or_text:
        fix = "is not a number: clean the data before training, or use the symbolic reward"
        raise WorkbookError(f"the reference answer {reference[:80]!r} {fix}")
    if wanted is None or said is None:
        return bool(said) and said.casefold().split() == reference.casefold().split()
    return read_answer(said, question=f"{question} {reference}") == wanted


def _hashed(text: str) -> list[str]:
    """The ends of lines after ####; headings ("#### Step 1") only if none of them is a number."""
    lines = [piece.split("\n", 1)[0] for piece in text.split("####")[1:]]
    lines = [line for line in lines if not line.lstrip().startswith("#")]
    return [line for line in lines if read_answer(line, question=line) is not None] or lines


# Mark of a final answer -> what finds all answers that are marked with it.
MARKS = {"<answer>": _PAIR.findall, "\\boxed{}": BOX.findall, "####": _hashed}


def marked_answers(text: str, mark: str) -> list[str]:
    """All answers with one of MARKS; of spam (over 64 marks) more than `agreed` takes."""
    few, end = text.count(mark.removesuffix("}")) <= 64, text.rpartition("</think>")[2]
    return MARKS[mark](end) or MARKS[mark](text) if few else [mark] * 65


def extract_answer(text: str) -> str | None:
    """The final answer of a text, or None if there is none, or several that differ.

    Complete <answer>...</answer> pairs come first, then \\boxed{...}, then the rest of a line after
    ####, as in GSM8K. Words outside the marks do not count.
    """
    for mark in MARKS:
        if any(map(str.strip, found := marked_answers(text, mark))):
            return agreed(found)
    return None


def agreed(answers: list[str]) -> str | None:
    """The last of several answers that are equal as numbers or as text, else None."""
    inside = [(BOX.fullmatch(a.strip(" $\n")) or (a, a))[1].strip() for a in answers[:65]]
    found = [answer for answer in inside if answer]
    one = len({a if (n := read_answer(a, question=a)) is None else n for a in found}) == 1
    return found[-1] if one and len(answers) <= 64 and len(found[-1]) <= MAX_ANSWER else None


def reference_answer(solution: str) -> str | None:
    """The final number of a GSM8K solution (after the last ####), or a text that is a number."""
    final = solution.rsplit("####", 1)[-1].strip()
    return final.replace(",", "") if parse_number(final) is not None else None


def tagged_answer(text: str) -> str | None:
    """The text in the only <answer> block; None if there are several, or none."""
    return agreed(_PAIR.findall(text)) if text.count(TAGS[2]) == text.count(TAGS[3]) == 1 else None


def lenient_answer(text: str) -> str | None:
    """The answer as a lenient reader finds it: the block, else after ####, else the last number."""
    if (inside := tagged_answer(text)) and read_answer(inside, question=inside) is not None:
        return inside
    if "####" in text and (final := reference_answer(text)) is not None:
        return final
    found = _LAST.findall(text[-4_000:].translate({0x2212: "-", 0x2013: "-"}))
    return found[-1] if found else None


def is_well_formed(text: str) -> bool:
    """Whether the text is one filled reasoning block, then one filled answer block, and no more."""
    filled = [bool(part.strip()) for part in _TAG.split(text)]
    return _TAG.findall(text) == [*TAGS] and filled == [False, True, False, True, False]
