"""Find the final answer in a text, read it exactly, compare it, and check the form of the text.

The course's form is <reasoning>7+7=14</reasoning> <answer>14</answer>. `extract_answer` and its
relatives find the answer in a text, `read_answer` reads it as a fraction, `is_correct` compares it.
Nothing is evaluated, and the work is bounded however long the text is: it is the policy's.
"""

import re
import tomllib
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

from grpo_workbook.errors import WorkbookError

__all__ = [
    "TAGS",
    "behind_thoughts",
    "extract_answer",
    "is_correct",
    "is_well_formed",
    "lenient_answer",
    "parse_number",
    "read_answer",
    "reference_answer",
    "tagged_answer",
    "thought_is_open",
    "without_thought",
]

TAGS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
MAX_ANSWER = 1_000  # characters
MAX_NUMBER = 200  # characters
MAX_MARKS = 64  # more than so many marked answers in a text are spam

_TAG = re.compile("|".join(TAGS))
# (?>...) is atomic: it never gives back what it took, so that no text takes quadratic time. A
# possessive group, its short form, matches wrongly before Python 3.11.5 (Debian 12 has 3.11.2).
_PAIR = re.compile(r"<answer>((?>(?:[^<]|<(?!/?answer>))*))</answer>")
# Unusual characters and the ASCII ones that they mean: minus, en dash, fraction slash, spaces.
TO_ASCII = str.maketrans("\u2212\u2013\u2044\u00a0\u2007\u2009\u202f\u3000", "--/     ")
TO_ASCII.update({0xFF01 + i: 0x21 + i for i in range(94)})  # the full-width forms of ! to ~
# Thousands separated by commas or spaces, or plain digits; then decimals. Bounded, because a
# completion may hold anything. Thousands never begin with 0: 0,125 is an eighth, not 125.
_NUMBER = (
    r"(?:(?:[1-9]\d{0,2}(?:(?:,\d{3}){1,10}|(?: \d{3}){1,10}(?!\d))|\d{1,30})(?:\.\d{1,30})?"
    r"|\.\d{1,30})"
)
_CURRENCY = r"(?:\b(?:Rs\.?|USD|EUR|GBP|CHF)\s*|(?:\bUS|\bA|\bC)?[$€£¥₹])"
# A sign, a currency, and then a fraction that may have a whole part, or a number.
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
CHANGES = re.compile(
    rf"(?:{'|'.join(_WORDS['changes'].split())})s?|\w*(?:illi(?:on|ard)|миллион|тысяч)\w{{0,3}}"
    r"|(?:four|fif|six|seven|eigh|nin|ten|eleven|twelf|\w+teen|\w+tie|hundred|thousand)ths?"
    r"|(?:hal[fv]|doubl|trebl|tripl|quadrupl)(?:e|es|ed|ing)?"
    r"|.*[一二两三四五六七八九十百千万萬亿億兆半倍].*"
)
# What changes how an answer looks and not what it says
_UNSEEN = re.compile(r"\s|\\[,;:! ]|\\(?:left|right|displaystyle|limits)(?![a-z])|\$")
_LETTER = re.compile(r"\{(\w)\}")  # braces that LaTeX can do without: x_{1}
_SIGNS_OF_UNITS = ("", "%", "$", "€", "£", "¥", "₹", "°", "¢")
# LaTeX's ways to write a number, and the plain text that takes their place, in this order.
_MARKED = re.compile(r"[\\{^~(]|\$.*\$")
_GROUP = r"\s*(?:\{\s*(-?\d{1,30})\s*\}|(\d))"
_LATEX = [
    (re.compile(r"^\$\$?([^$]+)\$\$?"), r"\1 "),  # $5$ apples
    (re.compile(r"\\(?:left|right)(?![a-z])|\\!\s*|\\[()\[\]]"), ""),
    (re.compile(r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf)|mbox)\s*\{([^{}]*)\}"), r" \1"),
    (re.compile(r"\\[,;: ]|~(?=[ A-Za-z\\])|\\q?quad(?![a-z])"), " "),
    (re.compile(rf"\\[cdt]?frac{_GROUP}{_GROUP}"), r" \1\2/\3\4"),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-z]))"), "°"),
    (re.compile(r"(?<=[A-Za-z])\s*\^\s*(?:[23]|\{-?[123]\})"), ""),  # cm^2
    (re.compile(rf"(?<=\d)\s*(?:\\times|\\cdot|[×·*])\s*10\s*\^{_GROUP}(?!\d)"), r"e\1\2"),
    (re.compile(r"\{(,)\}|\\([$%])"), r"\1\2"),
    (re.compile(r"^\s*([-+]?)\s*\(([^(),]*)\)"), r"\1\2 "),
]


def _with_case(word: str) -> str:
    """The word in lower case; one of up to two letters stays as it is: mV and MV differ."""
    return word.lower() if len(word) > 2 else word


_UNITS = {_with_case(word) for word in _WORDS["units"].split()}


def parse_number(text: str) -> Fraction | None:
    """The whole text as a number, for data: no unit except %, and 84/2 is 42."""
    return _read(text, question="", strict=False)


def read_answer(text: str, question: str = "") -> Fraction | None:
    """An answer as an exact number; None if it holds no number, or more than one.

    - 72, 1,000, 1 000, $72, 72.0, -5, 1/2, 1 1/2, 1e3, **72**, full-width digits, LaTeX's \\frac12,
      \\(72\\), 45^\\circ, 1{,}234 and 1\\times10^3.
    - A unit may follow and is not compared: words of units.toml ("72 km/h") or of the question
      ("72 widgets"). % is a unit: 50% is 50, never 0.5.
    - Not a number: "72 or 73", "42 41", "72 and more", "5 thousand", "5 tenths", "72?", "-$-5".
    - A division that still has to be done is not a number: 84/2 is not 42, but 2/4 and 7/2 count.
    """
    return _read(text, question, strict=True)


def _read(text: str, question: str, strict: bool) -> Fraction | None:
    """The number in a text. Strict: units may follow it, and a division must not come out even."""
    text = text.strip()
    if not 0 < len(text) <= MAX_NUMBER:
        return None
    if text.startswith("**") and text.endswith("**"):
        text = text[2:-2]  # bold in Markdown
    text = _plain(text)
    match = _ANSWER.match(text)
    if match is None:
        return None
    if match["sign"] and match["sign2"]:  # -$-5
        return None
    rest = text[match.end() :].strip()
    if rest not in ("", "%", ".", "%.") and not (strict and _is_unit(rest, question)):
        return None
    value = _fraction(match, strict) if match["bottom"] else _decimal(match)
    if value is not None and "-" in (match["sign"], match["sign2"]):
        return -value
    return value


def _fraction(match: re.Match, strict: bool) -> Fraction | None:
    """The value of 1/2 or 1 1/2. None for 1/0, for 1 7/2, and if strict for 84/2, which is 42."""
    top, bottom = int(match["top"]), int(match["bottom"])
    if bottom == 0:
        return None
    if strict and top % bottom == 0:
        return None
    if match["whole"] is None:
        return Fraction(top, bottom)
    whole = int(match["whole"])
    if top > bottom:
        return None
    return whole + Fraction(top, bottom)


def _decimal(match: re.Match) -> Fraction:
    """The value of 1,234.5 or 1e3."""
    return Fraction(match["number"].replace(",", "").replace(" ", ""))


def _plain(text: str) -> str:
    """Full-width forms, unusual spaces, unicode minus and LaTeX's numbers, in plain ASCII."""
    if not text.isascii():
        text = text.translate(TO_ASCII)
    if _MARKED.search(text):
        for pattern, replacement in _LATEX:
            text = pattern.sub(replacement, text)
    return text.strip()


def _is_unit(rest: str, question: str) -> bool:
    """Whether the text after a number is a unit of up to four words that does not change it."""
    rest = re.sub(r"\s*[.,;:]$", "", rest)
    if rest in _SIGNS_OF_UNITS:
        return True
    rest = re.sub(r"°|[²³]|['’]s\b|^/", "", rest)  # °C, m², 5 o'clock's, /hour
    words = re.split(r"[\s/.-]+", rest.lstrip())
    return len(words) <= 4 and all(_is_unit_word(word, question) for word in words)


def _is_unit_word(word: str, question: str) -> bool:
    """Whether a word is in the list of units, or in the question and does not change a number."""
    word = _with_case(word)
    forms = {word}
    if len(word) > 2:
        forms.update((word.removesuffix("s"), word.removesuffix("es")))
    if forms & _UNITS:
        return True
    if CHANGES.fullmatch(word) or not word.isalpha():
        return False
    question = question.lower().replace("\\n", " ")  # a chat as text has escaped line ends
    if not word.isascii():
        return word in question  # Chinese has no spaces
    if len(word) <= 2:
        return False
    forms.add(f"{word}s")
    return not forms.isdisjoint(re.findall(r"[^\W\d_]+", question))


@lru_cache(maxsize=4096)
def _reference_number(reference: str) -> Fraction | None:
    """The reference as a number, read less strictly than an answer: 84/2 is 42."""
    if not isinstance(reference, str):
        type_name = type(reference).__name__
        raise WorkbookError(
            f"the reference answer {reference!r:.80} is a {type_name}: give it as text"
        )
    value = parse_number(reference)
    if value is None:
        value = read_answer(reference, question=reference)
    return value


def is_correct(
    answer: str | None, reference: str, question: object = "", or_text: bool = False
) -> bool:
    """Whether an answer is exactly the same number as the reference; False for None.

    Words of the question (a text or a chat) and of the reference may be units in the answer.
    Raises WorkbookError for a reference that is no number; with `or_text` it is compared as text,
    without regard to case and spaces.
    """
    number = _reference_number(reference)
    if number is None and not or_text:
        raise WorkbookError(
            f"the reference answer {reference[:80]!r} is not a number: clean the data before "
            "training, or use the symbolic reward"
        )
    if answer is None:
        return False
    if number is None:
        return bool(answer) and answer.casefold().split() == reference.casefold().split()
    return read_answer(answer, question=f"{question} {reference}") == number


def _after_hashes(text: str) -> list[str]:
    """The ends of lines after ####; headings ("#### Step 1") only if none of them is a number."""
    lines = []
    for piece in text.split("####")[1:]:
        line = piece.split("\n", 1)[0]
        if not line.lstrip().startswith("#"):
            lines.append(line)
    numbers = [line for line in lines if read_answer(line, question=line) is not None]
    return numbers or lines


# The mark of a final answer, and what finds all answers with this mark in a text.
MARKS: dict[str, Callable[[str], list[str]]] = {
    "<answer>": _PAIR.findall,
    "\\boxed{}": BOX.findall,
    "####": _after_hashes,
}


def marked_answers(text: str, mark: str) -> list[str]:
    """All answers with one of MARKS behind the thoughts of a text.

    Of a text with more than MAX_MARKS marks it returns more answers than `agreed` accepts.
    """
    text = behind_thoughts(text)
    if text.count(mark.removesuffix("}")) > MAX_MARKS:
        return [mark] * (MAX_MARKS + 1)
    return MARKS[mark](text)


def extract_answer(text: str) -> str | None:
    """The final answer of a text, or None if it has none, or several that differ.

    Complete <answer>...</answer> pairs come first, then \\boxed{...}, then the rest of a line after
    ####, as in GSM8K. Words outside the marks do not count.
    """
    for mark in MARKS:
        answers = marked_answers(text, mark)
        if any(answer.strip() for answer in answers):
            return agreed(answers)
    return None


def agreed(answers: list[str]) -> str | None:
    """The last of several answers that are equal by `same_answer`, else None."""
    if len(answers) > MAX_MARKS:
        return None
    filled = []
    values = set()
    for answer in answers:
        box = BOX.fullmatch(answer.strip(" $\n"))  # <answer>\boxed{42}</answer>
        inside = (box[1] if box else answer).strip()
        if inside:
            filled.append(inside)
            values.add(same_answer(inside))
    if len(values) != 1 or len(filled[-1]) > MAX_ANSWER:
        return None
    return filled[-1]


def same_answer(answer: str) -> Fraction | str:
    """What is equal for two answers that are the same: the number, else the text.

    Spaces, LaTeX's sizes, and dollar signs are not compared: x + 1 is $x+1$.
    """
    number = read_answer(answer, question=answer)
    if number is not None:
        return number
    # Only what LaTeX itself does not tell apart: \binom{1}{23} is not \binom{12}{3}, nor x^2 x^3.
    plain = _LETTER.sub(r"\1", answer.translate(TO_ASCII).replace("\\dfrac", "\\frac"))
    return _UNSEEN.sub("", plain) or answer


def reference_answer(solution: str) -> str | None:
    """The final number of a GSM8K solution (after the last ####), or a text that is a number."""
    final = solution.rsplit("####", 1)[-1].strip()
    if parse_number(final) is None:
        return None
    return final.replace(",", "")


def without_thought(text: str) -> str:
    """A completion without the thought that it begins with; "" if that thought never closes.

    What stands in a thought is a draft: it is neither an answer nor a part of the form.
    """
    if not text.lstrip().startswith("<think>"):
        return text
    return text.partition("</think>")[2]


def behind_thoughts(text: str) -> str:
    """The part of a text that may hold its answer: what follows its last thought.

    That is "" if this thought never closes. A closing tag alone belongs to a thought that the
    prompt has opened.
    """
    if thought_is_open(text):
        return ""
    return text.rpartition("</think>")[2]


def thought_is_open(text: str) -> bool:
    """Whether the last <think> of a text has no </think> behind it."""
    return text.rfind("<think>") > text.rfind("</think>")


def tagged_answer(text: str) -> str | None:
    """The text in the only <answer> block behind thoughts; None if there are several, or none."""
    text = behind_thoughts(text)
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return None
    return agreed(_PAIR.findall(text))


def lenient_answer(text: str) -> str | None:
    """The answer as a lenient reader finds it: the block, else after ####, else the last number.

    It reads behind the thoughts, too: what stands in them are drafts.
    """
    text = behind_thoughts(text)
    tagged = tagged_answer(text)
    if tagged and read_answer(tagged, question=tagged) is not None:
        return tagged
    if "####" in text:
        final = reference_answer(text)
        if final is not None:
            return final
    numbers = _LAST.findall(text[-4_000:].translate({0x2212: "-", 0x2013: "-"}))
    return numbers[-1] if numbers else None


def is_well_formed(text: str) -> bool:
    """Whether the text is one filled reasoning block, then one filled answer block, and no more.

    A thought before them is left out, whatever it holds, if the text begins with its <think>. Where
    the prompt has opened the thought, give the text with this tag in front.
    """
    text = without_thought(text)
    if _TAG.findall(text) != list(TAGS):
        return False
    before, reasoning, between, answer, after = [part.strip() for part in _TAG.split(text)]
    outside = before + between + after
    return bool(reasoning) and bool(answer) and not outside
