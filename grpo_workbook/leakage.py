"""Questions that are the same, or nearly so, within a data set and across two.

The same: equal but for case, white space and punctuation; signs of arithmetic, and brackets that
hold some, are no punctuation. Nearly the same: the same numbers and signs in the same order, and at
least 80 % of all the words of both in common (Jaccard). So another name in the same problem is a
near-duplicate, and the same sentence with other numbers is not: its answer differs.
"""

import itertools
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError

if TYPE_CHECKING:
    from datasets import Dataset

ALIKE = 0.8
COMPARED = 2000  # rows with the same numbers and a word in common that one row is compared with
# One spelling for each sign, before NFKC would make 2 of a superscript 2, and 21/2 of 2½.
_SPELLINGS = {
    ord(a): b for a, b in zip("−–—×⋅∗÷∕≥≤≠", "- - - * * * / / >= <= !=".split(), strict=True)
}
_SPELLINGS |= {ord(c): f" {unicodedata.normalize('NFKC', c)} " for c in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+")
_LOWERED = re.compile("[\u2080-\u208e]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_OPENING, _CLOSING = "([{", ")]}"
# The mathematical signs of Unicode: roots, sets, comparisons, arrows, and the plain + < = > | ~.
_SIGNS = "".join(
    re.escape(c)
    for c in map(chr, [*range(0x100), *range(0x2000, 0x2C00)])
    if unicodedata.category(c) == "Sm" or c in "*/^%⌊⌋⌈⌉"
)
# Numbers, words, signs. A hyphen between letters is punctuation, elsewhere a minus; ! is a sign
# behind a number, a bracket or a single letter, or before =; a colon is one between digits.
_PIECE = re.compile(
    rf"\d+(?:\.\d+)?|[^\W\d_]+|!=|[{_SIGNS}()\[\]{{}}]|(?<![^\W\d_])-|-(?![^\W\d_])"
    r"|(?<=[\d)\]}])!|(?<=\b[^\W\d_])!|(?<=\d):(?=\d)|(?<=\d)·|·(?=\d)"
)


def pieces(text: str) -> list[str]:
    """Words, numbers and signs of arithmetic in lower case; 1,000 is 1000, and 3 + 4 is not 3 - 4.

    A text that has none gives what stands between its spaces, so that it still differs from others.
    """
    if not text.isascii():
        text = _RAISED.sub(lambda found: "^" + unicodedata.normalize("NFKC", found[0]), text)
        text = _LOWERED.sub(lambda found: f" {unicodedata.normalize('NFKC', found[0])} ", text)
        text = unicodedata.normalize("NFKC", text.translate(_SPELLINGS)).replace("\u2044", "/")
    normal = _THOUSANDS.sub("", text.translate(_SPELLINGS).casefold())
    found = _PIECE.findall(normal)
    if not {*_OPENING, *_CLOSING}.isdisjoint(found):
        brackets = [p in _OPENING or p in _CLOSING for p in found]
        found = [p for i, p in enumerate(found) if not brackets[i] or _is_sign(found, i)]
    return found or normal.split()


def _is_sign(found: list[str], place: int) -> bool:
    """Whether a bracket holds mathematics and no words, by the two pieces inside next to it."""
    step = 1 if found[place] in _OPENING else -1
    near = [found[i] if 0 <= i < len(found) else "" for i in (place + step, place + 2 * step)]
    if len(near[0]) > 1 and near[0].isalpha():
        return False
    return not (near[0].isalnum() and near[1].isalpha() and len(near[1]) > 1)


def words(text: str) -> set[str]:
    """The different words and numbers among a text's pieces."""
    return {p for p in pieces(text) if p[0].isalnum()}


def template(text: str) -> str:
    """The text with every number masked: what problems made from one sentence share."""
    return " ".join("#" if p[0].isdigit() else p for p in pieces(text))


def jaccard(a: set, b: set) -> float:
    """The rate of elements of either that both have; 1.0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 1.0


def same_questions(questions: Iterable[str], others: Iterable[str] | None = None) -> dict[int, int]:
    """{row: the first earlier row, or row of `others`, with the same question}."""
    first: dict[str, int] = {}
    for row, text in enumerate(others or ()):
        first.setdefault(" ".join(pieces(text)), row)
    found = {}
    for row, text in enumerate(questions):
        key = " ".join(pieces(text))
        if key in first:
            found[row] = first[key]
        elif others is None:
            first[key] = row
    return found


def near_duplicates(
    questions: Sequence[str], others: Sequence[str] | None = None
) -> dict[int, int]:
    """{row: an earlier row, or row of `others`, with nearly and not exactly the same question}.

    Prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): with words
    in one order, rare ones first, two sets with 80 % in common share one of their first few, so
    only such rows are compared, the first 2,000 at most. Each row that has such a twin is found.
    """
    mine = _by_numbers(questions)
    found: dict[int, int] = {}
    for numbers, known in (mine if others is None else _by_numbers(others)).items():
        new = mine.get(numbers, []) if others is not None else known if len(known) > 1 else []
        if not new:
            continue
        rows = [(row, pieces(questions[row]), True) for row in new]
        if others is not None:
            rows = [(row, pieces(others[row]), False) for row in known] + rows
        rarity = Counter(word for _, text, _ in rows for word in set(text))
        index: dict[str, list] = defaultdict(list)
        for row, text, asks in rows:
            bag = {piece for piece in text if piece[0].isalnum()}
            prefix = sorted(bag, key=lambda word: (rarity[word], word))
            prefix = prefix[: len(bag) - math.ceil(ALIKE * len(bag) - 1e-9) + 1]
            if asks:
                near = (other for word in prefix for other in index[word][:COMPARED])
                twins = ((row, n) for n, t, b in near if jaccard(bag, b) >= ALIKE and t != text)
                found.update(itertools.islice(twins, 1))
            if not asks or others is None:
                for word in prefix:
                    index[word].append((row, text, bag))
    return dict(sorted(found.items()))


def _by_numbers(questions: Iterable[str]) -> dict[int, list[int]]:
    """The rows by their numbers and signs, in their order."""
    groups = defaultdict(list)
    for row, text in enumerate(questions):
        groups[hash(tuple(p for p in pieces(text) if not p[0].isalpha()))].append(row)
    return groups


def leaked_rows(train: "Dataset", heldout: "Dataset") -> dict[int, int]:
    """Training row -> the held-out row whose question it repeats, or nearly repeats."""
    questions, held = train["question"][:], heldout["question"][:]
    found = near_duplicates(questions, held) | same_questions(questions, held)
    return dict(sorted(found.items()))


def drop_leaked(train: "Dataset", heldout: "Dataset") -> tuple["Dataset", int]:
    """(the training rows whose question is not held out, nor nearly so; how many were).

    Raises WorkbookError when none is left.
    """
    leaked = leaked_rows(train, heldout)
    if len(leaked) == len(train):
        raise WorkbookError("every training question is also held out: give different files")
    kept = [row for row in range(len(train)) if row not in leaked]
    return (train.select(kept) if leaked else train), len(leaked)
