"""Questions that are the same, or nearly so, within a data set and across two: without comparing every pair.

The same: equal but for case, white space and punctuation; signs of arithmetic, and brackets that hold some, are no
punctuation. Nearly the same: the same numbers and signs in the same order, and at least 80 % of all the words of both
in common (Jaccard). So another name in the same problem is a near-duplicate, and the same sentence with other numbers
is not: its answer differs, and it counts as a template.
"""

import itertools
import re
import unicodedata
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from grpo_workbook.crowds import COMPARISONS, partners

if TYPE_CHECKING:
    import numpy as np

ALIKE = 0.8
CROWD = 100  # rows with the same numbers that share a word: of more, not every pair is listed
CHUNK = 50_000  # rows whose words are sorted at once
# One spelling for each sign, before NFKC would make 2 of a superscript 2, and 21/2 of 2½.
_SPELLINGS = {
    **dict.fromkeys(map(ord, "\u2212\u2013\u2014"), "-"),
    **{
        ord(c): f" {unicodedata.normalize('NFKC', c)} "
        for c in map(chr, [0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F)])
    },
    **{
        ord(a): b
        for a, b in zip("×⋅∗÷∕≥≤≠", ["*", "*", "*", "/", "/", ">=", "<=", "!="], strict=True)
    },
}
_ODD = re.compile(f"[{''.join(map(chr, _SPELLINGS))}]")
_RAISED = re.compile("[\u00b2\u00b3\u00b9\u2070-\u207f]+")
_LOWERED = re.compile("[\u2080-\u208e]+")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_OPENING, _CLOSING = "([{", ")]}"
# The mathematical signs of Unicode: roots, sets, comparisons, arrows, and the plain + < = > | ~.
_SIGNS = "".join(
    re.escape(c)
    for c in map(chr, itertools.chain(range(0x100), range(0x2000, 0x2C00)))
    if unicodedata.category(c) == "Sm" or c in "*/^%⌊⌋⌈⌉"
)
# Numbers, words, signs. A hyphen between letters is punctuation, elsewhere a minus; ! is a sign right behind a number,
# a bracket or a single letter, or before =; a colon is one between digits.
_PIECE = re.compile(
    rf"\d+(?:\.\d+)?|[^\W\d_]+|!=|[{_SIGNS}()\[\]{{}}]|(?<![^\W\d_])-|-(?![^\W\d_])"
    r"|(?<=[\d)\]}])!|(?<=\b[^\W\d_])!|(?<=\d):(?=\d)|(?<=\d)·|·(?=\d)"
)


def pieces(text: str) -> list[str]:
    """Words, numbers and signs of arithmetic, lower-cased, without punctuation; 1,000 is 1000, and 3 + 4 not 3 - 4.

    A bracket is a sign where numbers, signs or single letters stand in it, and punctuation around words: (a + b) * 2
    is not a + b * 2, and "Ana (a girl)" is "Ana, a girl". A text that has no pieces gives what stands between its
    spaces, so that it still differs from others.
    """
    if not text.isascii():
        text = _RAISED.sub(lambda found: "^" + unicodedata.normalize("NFKC", found[0]), text)
        text = _LOWERED.sub(lambda found: f" {unicodedata.normalize('NFKC', found[0])} ", text)
        text = _ODD.sub(lambda found: _SPELLINGS[ord(found[0])], text)
        text = unicodedata.normalize("NFKC", text).replace("\u2044", "/").translate(_SPELLINGS)
    normal = _THOUSANDS.sub("", text.casefold())
    found = _PIECE.findall(normal)
    if not set(found).isdisjoint(_OPENING + _CLOSING):
        found = [
            p for i, p in enumerate(found) if p not in _OPENING + _CLOSING or _is_sign(found, i)
        ]
    return found or normal.split()


def _is_sign(found: list[str], place: int) -> bool:
    """Whether the bracket at this place holds mathematics, by the two pieces inside that are nearest to it."""
    step = 1 if found[place] in _OPENING else -1
    near = [found[i] if 0 <= i < len(found) else "" for i in (place + step, place + 2 * step)]
    if len(near[0]) > 1 and near[0].isalpha():
        return False
    return not (near[0].isalnum() and near[1].isalpha() and len(near[1]) > 1)


def words(text: str) -> list[str]:
    """The words and numbers among a text's pieces."""
    return [p for p in pieces(text) if p[0].isalnum()]


def key(text: str) -> str:
    """What two texts share if they differ in case, white space and punctuation only."""
    return " ".join(pieces(text))


def template(text: str) -> str:
    """The text with every number masked: what problems made from one sentence share."""
    return " ".join("#" if p[0].isdigit() else p for p in pieces(text))


def digest(found: list[str]) -> int:
    """64 bits for a text's pieces: enough to find equal ones among many millions, in little memory."""
    return int.from_bytes(blake2b(" ".join(found).encode(), digest_size=8).digest())


def numbers_of(found: list[str]) -> int:
    """64 bits for the numbers and signs among the pieces, in their order; the same within one process."""
    return hash(tuple(p for p in found if not p[0].isalpha()))


@dataclass
class Index:
    """The questions in a form that finds twins: per row 24 bytes, and 4 for each different word."""

    digests: array  # a hash of each row's pieces
    numbers: array  # a hash of each row's numbers, in their order
    words: array  # the ids of each row's different words, one row behind the other
    starts: array  # where each row begins in `words`
    vocabulary: dict[str, int]

    @classmethod
    def of(cls, *parts: Iterable[str]) -> "Index":
        """An index over the texts of all parts, one part behind the other."""
        index = cls(array("Q"), array("q"), array("I"), array("q", [0]), {})
        for text in itertools.chain(*parts):
            found = pieces(text)
            index.digests.append(digest(found))
            index.numbers.append(numbers_of(found))
            ids = {
                index.vocabulary.setdefault(p, len(index.vocabulary))
                for p in found
                if p[0].isalnum()
            }
            index.words.extend(sorted(ids))
            index.starts.append(len(index.words))
        return index

    def __len__(self) -> int:
        return len(self.digests)

    def head(self, count: int) -> "Index":
        """The index of the first rows alone."""
        end = self.starts[count]
        return Index(
            self.digests[:count],
            self.numbers[:count],
            self.words[:end],
            self.starts[: count + 1],
            self.vocabulary,
        )

    def word_set(self, row: int) -> set[int]:
        """The ids of the row's different words."""
        return set(self.words[self.starts[row] : self.starts[row + 1]])


def same(index: Index) -> list[list[int]]:
    """Groups of two or more rows with equal questions, in the order of their first rows."""
    groups: dict[int, list[int]] = {}
    for row, code in enumerate(index.digests):
        groups.setdefault(code, []).append(row)
    return [rows for rows in groups.values() if len(rows) > 1]


def near(index: Index, boundary: int | None = None) -> list[tuple[int, int]]:
    """Pairs (a, b), a < b, of nearly the same questions that are not the same; across `boundary` only, if given.

    Prefix filtering (Chaudhuri, Ganti and Kaushik 2006; Bayardo, Ma and Srikant 2007): with words in order of rarity,
    two sets of at least 80 % overlap share one of their first few words, so only rows that do are compared. Every pair
    is found, but for one case: where more than 100 rows with the same numbers share such a word, pairs with a few
    representatives are listed, so that each row that has a twin stands in a pair (limits: see crowds.py).
    """
    pairs, left = set(), COMPARISONS
    for rows in _candidates(index):
        if len(rows) > CROWD:
            found, left = partners(
                index.words, index.starts, index.digests, rows, ALIKE, boundary, left
            )
            pairs.update((min(pair), max(pair)) for pair in found)
            continue
        rows = rows.tolist()
        sets = {row: index.word_set(row) for row in rows}
        for a, b in itertools.combinations(rows, 2):
            if (a, b) in pairs or (boundary is not None and (a < boundary) == (b < boundary)):
                continue
            if index.digests[a] != index.digests[b] and jaccard(sets[a], sets[b]) >= ALIKE:
                pairs.add((a, b))
    return sorted(pairs)


def jaccard(a: set, b: set) -> float:
    """The share of all elements of both that both have; 1.0 for two empty sets."""
    return len(a & b) / len(a | b) if a or b else 1.0


def _candidates(index: Index) -> "Iterable[np.ndarray]":
    """Groups of rows that have the same numbers and share a word of their prefixes."""
    import numpy as np

    if len(index) == 0 or len(index.words) == 0:
        return
    words, starts = np.frombuffer(index.words, np.uint32), np.frombuffer(index.starts, np.int64)
    rarity = np.bincount(words, minlength=len(index.vocabulary))
    parts = [
        _prefixes(words, starts[i : i + CHUNK + 1], rarity, i) for i in range(0, len(index), CHUNK)
    ]
    words, rows = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    numbers = np.frombuffer(index.numbers, np.int64)[rows]
    order = np.lexsort((rows, words, numbers))
    words, rows, numbers = words[order], rows[order], numbers[order]
    edges = np.flatnonzero((np.diff(words.astype(np.int64)) != 0) | (np.diff(numbers) != 0)) + 1
    bounds = np.concatenate([[0], edges, [len(rows)]])
    lengths = np.diff(bounds)
    for i in np.flatnonzero(lengths > 1):
        yield rows[bounds[i] : bounds[i + 1]]


def _prefixes(words, starts, rarity, first: int):
    """(words, rows) of the prefixes of the rows that begin at `starts`; the first of them is row `first`."""
    import numpy as np

    words, sizes = words[starts[0] : starts[-1]], np.diff(starts)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    order = np.lexsort(
        (words, rarity[words], rows)
    )  # the rarest word of a row first; ties the same way everywhere
    place = np.arange(len(words)) - np.repeat(starts[:-1] - starts[0], sizes)
    prefix = sizes - np.ceil(ALIKE * sizes - 1e-9).astype(np.int64) + 1
    kept = place < np.repeat(prefix, sizes)
    return words[order][kept], rows[kept] + first
