"""Duplicates and near-duplicates of questions within a data set and across two.

Duplicates differ only in case, white space and punctuation; arithmetic signs count. Near-duplicates
have the same numbers and signs in order, and at least 80 % of their words in common (Jaccard). A
problem with another name in it is a near-duplicate, a problem with other numbers is not. Questions
to pictures repeat each other only if the pixels of their pictures are the same.
"""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category, normalize

from grpo_workbook.errors import WorkbookError
from grpo_workbook.pictures import image_column, picture_numbers

if TYPE_CHECKING:
    from datasets import Dataset

ALIKE = 0.8  # the share of words that near-duplicates have in common
COMPARED = 2000  # a row is compared with at most this many rows that have its numbers and a word

# NFKC would turn a superscript 2 into 2, and 2½ into 21/2, so these get spaces around them first.
_FRACTION_OR_INDEX = re.compile("[¼-¾⅓-⅞]|[₀-₎]+")
_EXPONENT = re.compile("[²³¹⁰-ⁿ]+")
# One spelling for each sign.
_PLAIN_SIGNS = str.maketrans(
    {
        "−": "-",
        "–": "-",
        "—": "-",
        "×": "*",
        "⋅": "*",
        "∗": "*",
        "÷": "/",
        "∕": "/",
        "⁄": "/",
        "≥": ">=",
        "≤": "<=",
        "≠": "!=",
    }
)
# The mathematical signs of Unicode: roots, sets, comparisons, arrows, and the plain + < = > | ~.
_MATH_SYMBOLS = "".join(char for char in map(chr, range(0x2C00)) if category(char) == "Sm")
_SIGNS = re.escape("*/^%⌊⌋⌈⌉" + _MATH_SYMBOLS)
_WORD = r"[^\W\d_]{2}"
# Numbers, words, signs. A hyphen between letters is punctuation, elsewhere a minus. ! is a sign
# after a number, a bracket or a single letter, or before =; a colon is a sign between digits; a
# bracket is a sign unless a word stands inside next to it, or next but one.
_PIECE = re.compile(
    rf"\d+(?:\.\d+)?|[^\W\d_]+|!=|[{_SIGNS}]|(?<![^\W\d_])-|-(?![^\W\d_])"
    r"|(?<=[\d)\]}])!|(?<=\b[^\W\d_])!|(?<=\d):(?=\d)|(?<=\d)·|·(?=\d)"
    rf"|[(\[{{](?!(?:\w+ )?{_WORD})|(?<!{_WORD})(?<!{_WORD} \w)(?<!{_WORD} \d\d)[)\]}}]"
)
_THOUSANDS_COMMA = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")


def pieces(text: str) -> list[str]:
    """The words, numbers and signs of a text in lower case; without any, its parts by spaces."""
    text = _FRACTION_OR_INDEX.sub(r" \g<0> ", text)
    text = _EXPONENT.sub(r"^\g<0> ", text)
    text = normalize("NFKC", text).casefold().translate(_PLAIN_SIGNS)
    text = _THOUSANDS_COMMA.sub("", text)
    parts = _PIECE.findall(text)
    # A text may be of other characters alone. Without parts it would be equal to all such texts.
    if not parts:
        return text.split()
    return parts


def template(text: str) -> str:
    """The text with every number masked: the same for problems that were made from one sentence."""
    masked = []
    for piece in pieces(text):
        masked.append("#" if piece[0].isdigit() else piece)
    return " ".join(masked)


def same_questions(questions: Sequence[str], others: Sequence[str] | None = None) -> dict[int, int]:
    """Rows whose question repeats another one.

    Args:
        questions: the questions to look at.
        others: the questions that they may repeat; by default the earlier ones of `questions`.

    Returns:
        {row of `questions`: the first earlier row, or the first row of `others`, that is the same}.
    """
    first_row: dict[str, int] = {}  # what makes two questions the same -> the first row with it
    for row, text in enumerate(others or ()):
        first_row.setdefault(" ".join(pieces(text)), row)
    matches = {}
    for row, text in enumerate(questions):
        key = " ".join(pieces(text))
        if key in first_row:
            matches[row] = first_row[key]
        elif others is None:  # the later ones may repeat this one
            first_row[key] = row
    return matches


@dataclass(frozen=True)
class _Question:
    """A question in the search for near-duplicates."""

    row: int
    pieces: list[str]
    words: set[str]  # and numbers, but not signs
    prefix: list[tuple[str, str]]  # its rarest words, each with all its numbers and signs

    def nearly_repeats(self, other: "_Question") -> bool:
        """Whether Jaccard's similarity is ALIKE or more, and the two are no exact duplicates."""
        if self.pieces == other.pieces:
            return False
        return len(self.words & other.words) >= ALIKE * len(self.words | other.words)


def near_duplicates(
    questions: Sequence[str], others: Sequence[str] | None = None
) -> dict[int, int]:
    """Rows whose question nearly repeats another one; exact duplicates are not among them.

    Prefix filtering (Chaudhuri, Ganti and Kaushik 2006): with rare words first, two sets with 80 %
    in common have one of their first few words in common. Only such rows are compared.

    Args:
        questions: the questions to look at.
        others: the questions that they may repeat; by default the earlier ones of `questions`.

    Returns:
        {row of `questions`: an earlier row, or a row of `others`, that it nearly repeats}.
    """
    frequency: Counter[str] = Counter()  # word -> in how many questions it is
    for text in (*questions, *(others or ())):
        frequency.update(set(pieces(text)))

    index: dict[tuple[str, str], list[_Question]] = defaultdict(list)
    for row, text in enumerate(others or ()):
        question = _read(row, text, frequency)
        for key in question.prefix:
            index[key].append(question)
    matches = {}
    for row, text in enumerate(questions):
        question = _read(row, text, frequency)
        match = _first_near_duplicate(question, index)
        if match is not None:
            matches[row] = match
        if others is None:  # the later ones may repeat this one
            for key in question.prefix:
                index[key].append(question)
    return matches


def _read(row: int, text: str, frequency: Counter[str]) -> _Question:
    """A question, with the keys under which others that nearly repeat it can be found."""
    parts = [sys.intern(piece) for piece in pieces(text)]  # one object for all equal words
    words = {piece for piece in parts if piece[0].isalnum()}
    # Only questions with the same numbers and signs in order can be near-duplicates.
    numbers = " ".join(piece for piece in parts if not piece[0].isalpha())
    # The word itself decides between equally rare ones: all questions must sort alike.
    by_rarity = sorted(words, key=lambda word: (frequency[word], word))
    # The other may lack 20 % of the words, so of one word more it has at least one. (1e-9: in
    # binary, 0.2 * 5 is a little less than 1.)
    prefix_length = int((1 - ALIKE) * len(words) + 1e-9) + 1
    prefix = [(numbers, word) for word in by_rarity[:prefix_length]]
    return _Question(row, parts, words, prefix)


def _first_near_duplicate(
    question: _Question, index: dict[tuple[str, str], list[_Question]]
) -> int | None:
    for key in question.prefix:
        for candidate in index.get(key, [])[:COMPARED]:
            if question.nearly_repeats(candidate):
                return candidate.row
    return None


def questions_of(rows: "Dataset") -> list[str]:
    """The questions as they are compared: with pictures, each has the number of its pictures.

    Questions with other numbers in them are never duplicates, not even near ones.
    """
    questions = rows["question"][:]
    if image_column(rows) is None:
        return questions
    numbered = []
    for question, number in zip(questions, picture_numbers(rows), strict=True):
        if number == 0:  # a row without a picture
            numbered.append(question)
        else:
            numbered.append(f"{question} {number}")
    return numbered


def leaked_rows(train: "Dataset", heldout: "Dataset") -> dict[int, int]:
    """{row of the training data: the held-out row whose question it repeats or nearly repeats}.

    `train` and `heldout` are rows with a `question`. With pictures (a column `image` or `images`),
    a row repeats another one only if its picture has the same pixels, too.
    """
    questions = questions_of(train)
    heldout_questions = questions_of(heldout)
    leaks = near_duplicates(questions, heldout_questions)
    # The same question is the better proof, if a row also nearly repeats another one.
    leaks.update(same_questions(questions, heldout_questions))
    return dict(sorted(leaks.items()))


def drop_leaked(train: "Dataset", heldout: "Dataset") -> tuple["Dataset", int]:
    """Remove the training rows that `leaked_rows` finds.

    Args:
        train, heldout: rows with a `question`.

    Returns:
        The remaining training rows, and how many were removed.

    Raises:
        WorkbookError: no training row would remain.
    """
    leaks = leaked_rows(train, heldout)
    if len(leaks) == len(train):
        raise WorkbookError("every training question is also held out: give different files")
    kept = [row for row in range(len(train)) if row not in leaks]
    return train.select(kept), len(leaks)
