"""Where is a policy right and where not? Problems sorted into groups: by their columns, length, steps, sentence.

A group of ten problems has a wide interval; look at it before you explain a difference between two groups.
"""

import re
from collections import Counter
from collections.abc import Sequence

from grpo_workbook.duplicates import template, words

CORE = frozenset(("key", "prompt", "question", "answer", "solution"))
MOST = 16  # groups: more are no breakdown
FEWEST = 5  # problems on average in a group
_CALCULATION = re.compile(r"<<([^<>=]{1,60})=")


def groups(rows: Sequence[dict]) -> dict[str, list[str]]:
    """For each way to sort the rows, each row's group: {"length": ["9 to 14 words", ...], "difficulty": [...]}.

    A row has `question`, perhaps `solution`, and further columns. Only ways that make two to MOST groups, of at least
    FEWEST problems on average, are given:

    - every column of the data with few different values (difficulty, level, template, topic)
    - `length`: the question's words, in four parts of about the same size
    - `steps` and `operations`: the calculations in a GSM8K solution (<<6*7=42>>)
    - `sentence`: the question with its numbers masked, where few sentences make all questions
    """
    found = {name: [str(row.get(name)) for row in rows] for name in _columns(rows)}
    found.setdefault("length", _by_length([len(words(row["question"])) for row in rows]))
    calculations = [_CALCULATION.findall(str(row.get("solution", ""))) for row in rows]
    if all(calculations):
        found.setdefault("steps", [str(len(c)) for c in calculations])
        found.setdefault(
            "operations", [" then ".join(_signs(c) for c in cs) for cs in calculations]
        )
    found.setdefault("sentence", [template(row["question"]) for row in rows])
    return {name: labels for name, labels in found.items() if _sorts(labels)}


def _columns(rows: Sequence[dict]) -> list[str]:
    names = [name for name in rows[0] if name not in CORE] if rows else []
    return [
        n
        for n in names
        if all(isinstance(r.get(n), str | int | None) and len(str(r.get(n))) <= 60 for r in rows)
    ]


def _sorts(labels: list[str]) -> bool:
    return 1 < len(set(labels)) <= min(MOST, len(labels) / FEWEST)


def _signs(calculation: str) -> str:
    return "".join(re.findall(r"[+*/]|(?<=.)-", calculation)) or "="


def _by_length(lengths: list[int]) -> list[str]:
    """Labels of up to four parts, cut so that equal lengths stay together."""
    ordered = sorted(lengths)
    cuts = (
        sorted({ordered[len(ordered) * q // 4] for q in (1, 2, 3)} - {ordered[0]})
        if ordered
        else []
    )
    parts = [sum(length >= cut for cut in cuts) for length in lengths]
    label = {}
    for part in set(parts):
        inside = [n for n, p in zip(lengths, parts, strict=True) if p == part]
        low, high = min(inside), max(inside)
        label[part] = f"{low} words" if low == high else f"{low} to {high} words"
    return [label[p] for p in parts]


def in_order(labels: Sequence[str]) -> list[str]:
    """The different groups among the labels as a table lists them: numbers by value, others by how many they hold."""
    counts = Counter(labels)

    def place(label: str):
        number = re.match(r"\d+", label)
        return (0, int(number[0]), label) if number else (1, -counts[label], label)

    return sorted(counts, key=place)
