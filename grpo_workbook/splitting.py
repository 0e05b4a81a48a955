"""A seeded, stratified split into training and held-out problems, and what would leak from one into the other."""

import random
from collections import Counter
from typing import TYPE_CHECKING

from grpo_workbook.duplicates import Index, near, numbers_of, pieces
from grpo_workbook.errors import WorkbookError
from grpo_workbook.table import column

if TYPE_CHECKING:
    from datasets import Dataset

BUCKETS = 4  # of question length
LEVELS = 100  # a column of more different values is no stratum


def split(
    dataset: "Dataset", heldout: int, seed: int, by: str | None = "length"
) -> tuple["Dataset", "Dataset"]:
    """(train, held-out): at most `heldout` rows, and never more than a fifth, are held out; the same for a seed.

    `by` names what both parts shall have in the same shares: a column (difficulty, topic), or "length" for four equal
    buckets of the question's length, whether there is a column of that name or not; None draws from all rows alike.
    Rows keep their order. Raises WorkbookError for fewer than 5 rows, `heldout` under 1, an unknown column, or one of
    more than 100 different values.
    """
    if heldout < 1:
        raise WorkbookError(f"heldout is {heldout}: hold out at least 1 row")
    count = min(heldout, len(dataset) // 5)
    if count < 1:
        raise WorkbookError(
            f"{len(dataset)} rows are too few to hold some out: give at least 5, or --heldout-data FILE"
        )
    import numpy as np

    rng = random.Random(seed)
    strata = _strata(dataset, by)
    members = [np.flatnonzero(strata == stratum) for stratum in range(strata.max() + 1)]
    held = np.zeros(len(dataset), bool)
    for rows, n in zip(members, _quotas([len(rows) for rows in members], count), strict=True):
        held[rows[rng.sample(range(len(rows)), n)]] = True
    return dataset.select(np.flatnonzero(~held)), dataset.select(np.flatnonzero(held))


def _strata(dataset: "Dataset", by: str | None):
    """The number of each row's stratum, from 0."""
    import numpy as np

    if by is None:
        return np.zeros(len(dataset), np.int16)
    if by != "length" and by in dataset.column_names:
        names: dict[str, int] = {}
        numbers = (names.setdefault(str(value), len(names)) for value in column(dataset, by))
        strata = np.fromiter(numbers, np.int64, len(dataset))
        if len(names) > LEVELS:
            raise WorkbookError(
                f"column {by!r} has {len(names):,} different values: stratify by one of at most {LEVELS}"
            )
        return strata
    if by != "length":
        raise WorkbookError(
            f"no column {by!r} to stratify by: choose 'length' or one of {dataset.column_names}"
        )
    lengths = np.fromiter(
        (len(question) for question in column(dataset, "question")), np.int64, len(dataset)
    )
    strata = np.zeros(len(dataset), np.int16)
    strata[np.argsort(lengths, kind="stable")] = np.arange(len(dataset)) * BUCKETS // len(dataset)
    return strata


def _quotas(sizes: list[int], count: int) -> list[int]:
    """How many to draw from each stratum: its share, rounded so that the sum is `count` (largest remainder)."""
    exact = [count * size / sum(sizes) for size in sizes]
    quotas = [int(share) for share in exact]
    for stratum in sorted(range(len(sizes)), key=lambda s: quotas[s] - exact[s])[
        : count - sum(quotas)
    ]:
        quotas[stratum] += 1
    return quotas


def shares(dataset: "Dataset", name: str) -> dict:
    """The share of each value of a column, most frequent first: print it for both parts of a split."""
    counts = Counter(column(dataset, name))
    return {value: round(n / len(dataset), 3) for value, n in counts.most_common()}


def leaked_rows(train: "Dataset", heldout: "Dataset") -> dict[int, int]:
    """Training row -> the held-out row whose question it repeats, or nearly repeats (see duplicates.py).

    Only training rows with the numbers of a held-out one are looked at twice, so millions of them take little memory.
    """
    held = Index.of(column(heldout, "question"))
    numbers = set(held.numbers)
    suspects, texts = [], []
    for row, question in enumerate(column(train, "question")):
        if numbers_of(pieces(question)) in numbers:
            suspects.append(row)
            texts.append(question)
    index = Index.of(texts, column(heldout, "question"))
    first: dict[int, int] = {}
    for row, code in enumerate(held.digests):
        first.setdefault(code, row)
    found = {
        row: first[code]
        for row, code in zip(suspects, index.digests, strict=False)
        if code in first
    }
    for place, twin in near(index, boundary=len(suspects)):
        found.setdefault(suspects[place], twin - len(suspects))
    return dict(sorted(found.items()))


def drop_leaked(train: "Dataset", heldout: "Dataset") -> tuple["Dataset", int]:
    """(the training rows whose question is not held out, nor nearly so; how many were).

    Raises WorkbookError when none is left.
    """
    import numpy as np

    leaked = leaked_rows(train, heldout)
    if len(leaked) == len(train):
        raise WorkbookError("every training question is also held out: give different files")
    kept = np.delete(np.arange(len(train)), list(leaked))
    return (train.select(kept) if leaked else train), len(leaked)
