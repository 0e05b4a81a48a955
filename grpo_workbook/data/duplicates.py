"""Duplicates and near-duplicates of questions within a data set and across two.

Duplicates differ only in case, white space and punctuation; arithmetic signs count. Near-duplicates
have the same numbers and signs in order, and at least 80 % of their words in common (Jaccard). A
problem with another name in it is a near-duplicate, one with other numbers is not.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from unicodedata import category, normalize

from grpo_workbook.errors import WorkbookError

ALIKE = 0.8
COMPARED = 2000  # a row is compared with at most so many rows that have its numbers and a word
# NFKC would turn a superscript 2 into 2, and 2½ into 21/2. Then one spelling for each sign.
_APART, _RAISED = re.compile("[¼-¾⅓-⅞]|[₀-₎]+"), re.compile("[²³¹⁰-ⁿ]+")
_PLAIN = str.maketrans(dict(zip("−–—×⋅∗÷∕⁄≥≤≠", "- - - * * * / / / >= <= !=".split(), strict=True)))
# The mathematical signs of Unicode: roots, sets, comparisons, arrows, and the plain + < = > | ~.
_SIGNS = re.escape("*/^%⌊⌋⌈⌉" + "".join(c for c in map(chr, range(0x2C00)) if category(c) == "Sm"))
_WORD = r"[^\W\d_]{2}"
# Numbers, words, signs. A hyphen between letters is punctuation, elsewhere a minus. ! is a sign
# after a number, a bracket or a single letter, or before =; a colon is a sign between digits; a
# bracket is a sign unless a word stands inside next to it, or next but one.
_PIECE = re.compile(
    rf"\d+(?:\.\d+)?|[^\W\d_]+|!=|[{_SIGNS}]|(?<![^\W\d_])-|-(?![^\W\d_])"
    r"|(?<=[\d)\]}])!|(?<=\b[^\W\d_])!|(?<=\d):(?=\d)|(?<=\d)·|·(?=\d)"
    rf"|[(\[{{](?!(?:\w+ )?{_WORD})|(?<!{_WORD})(?<!{_WORD} \w)(?<!{_WORD} \d\d)[)\]}}]"
)


def pieces(text: str) -> list[str]:
    """The words, numbers and signs of a text in lower case; without any, its parts by spaces."""
    text = _RAISED.sub(r"^\g<0> ", _APART.sub(r" \g<0> ", text))
    text = normalize("NFKC", text).casefold().translate(_PLAIN)
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    return _PIECE.findall(text) or text.split()


def template(text: str) -> str:
    """The text with every number masked: the same for problems from one sentence."""
    return " ".join("#" if p[0].isdigit() else p for p in pieces(text))


def same_questions(questions: Iterable[str], others: Iterable[str] | None = None) -> dict[int, int]:
    """{row: the first earlier row, or the first row of `others`, with the same question}."""
    keys = [" ".join(pieces(text)) for text in questions]
    known = keys if others is None else [" ".join(pieces(text)) for text in others]
    first = {key: row for row, key in reversed(list(enumerate(known)))}
    found = {row: first[key] for row, key in enumerate(keys) if key in first}
    return found if others is not None else {a: b for a, b in found.items() if a != b}


def near_duplicates(questions: list[str], others: list[str] | None = None) -> dict[int, int]:
    """{row: an earlier row, or a row of `others`, that it nearly repeats}; no exact duplicates.

    Prefix filtering (Chaudhuri, Ganti and Kaushik 2006): with rare words first, two sets with 80 %
    in common have one of their first few words in common. Only such rows are compared.
    """
    texts, mine = [*(others or ()), *questions], len(others or ())  # where the questions begin
    groups = defaultdict(list)
    for row, text in enumerate(texts):
        groups[hash(tuple(p for p in pieces(text) if not p[0].isalpha()))].append(row)
    found: dict[int, int] = {}
    for group in (rows for rows in groups.values() if len(rows) > 1 and rows[-1] >= mine):
        rows = [(row, pieces(texts[row])) for row in group]
        rarity = Counter(word for _, text in rows for word in set(text))
        index: dict[str, list] = defaultdict(list)
        for row, text in rows:
            bag = {piece for piece in text if piece[0].isalnum()}
            few = int((1 - ALIKE) * len(bag) + 1e-9) + 1
            prefix = sorted(bag, key=lambda word: (rarity[word], word))[:few]
            if row >= mine:
                near = (seen for word in prefix for seen in index[word][:COMPARED])
                for other, its_text, its in near:  # its bag; Jaccard's similarity
                    if its_text != text and len(bag & its) >= ALIKE * len(bag | its):
                        found.setdefault(row - mine, other)
                        break
            if row < mine or others is None:
                for word in prefix:
                    index[word].append((row, text, bag))
    return dict(sorted(found.items()))


def leaked_rows(train, heldout) -> dict[int, int]:
    """{row of the training Dataset: the held-out row that it repeats or nearly repeats}."""
    both = train["question"][:], heldout["question"][:]
    return dict(sorted((near_duplicates(*both) | same_questions(*both)).items()))


def drop_leaked(train, heldout, leaks=leaked_rows) -> tuple:
    """(the training Dataset without the rows that `leaks` finds, their number)."""
    leaked = leaks(train, heldout)
    if len(leaked) == len(train):
        raise WorkbookError("every training question is also held out: give different files")
    return train.select([n for n in range(len(train)) if n not in leaked]), len(leaked)
