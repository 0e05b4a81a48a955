"""A seeded, stratified split into training and held-out problems, and what would leak from one into the other."""

import random
from collections import Counter
from typing import TYPE_CHECKING

from grpo_workbook.duplicates import Index, near
from grpo_workbook.run import WorkbookError
from grpo_workbook.table import column

if TYPE_CHECKING:
    from datasets import Dataset

BUCKETS = 4  # of question length
LEVELS = 100  # a column of more different values is no stratum


def split(dataset: "Dataset", heldout: int, seed: int, by: str | None = "length") -> tuple["Dataset", "Dataset"]:
    """(train, held-out): at most `heldout` rows, and never more than a fifth, are held out; the same for a seed.

    `by` names what both parts shall have in the same shares: a column (difficulty, topic), or "length" for four equal
    buckets of the question's length; None draws from all rows alike. Rows keep their order. Raises WorkbookError for
    fewer than 5 rows, an unknown column, or one of more than 100 different values.
    """
    count = min(heldout, len(dataset) // 5)
    if count < 1:
        raise WorkbookError(
            f"{len(dataset)} rows are too few to hold some out: give at least 5, or --heldout-data FILE"
        )
    rng = random.Random(seed)
    members: dict[object, list[int]] = {}
    for row, stratum in enumerate(_strata(dataset, by)):
        members.setdefault(stratum, []).append(row)
    chosen = {row for stratum, n in _quotas(members, count).items() for row in rng.sample(members[stratum], n)}
    return (
        dataset.select([row for row in range(len(dataset)) if row not in chosen]),
        dataset.select(sorted(chosen)),
    )


def _strata(dataset: "Dataset", by: str | None) -> list:
    if by is None:
        return [0] * len(dataset)
    if by in dataset.column_names:
        values = [value if isinstance(value, str | int | float) else str(value) for value in column(dataset, by)]
        if len(set(values)) > LEVELS:
            raise WorkbookError(
                f"column {by!r} has {len(set(values)):,} different values: stratify by one of at most {LEVELS}"
            )
        return values
    if by != "length":
        raise WorkbookError(f"no column {by!r} to stratify by: choose 'length' or one of {dataset.column_names}")
    lengths = [len(question) for question in column(dataset, "question")]
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    strata = [0] * len(lengths)
    for place, row in enumerate(order):
        strata[row] = place * BUCKETS // len(order)
    return strata


def _quotas(members: dict[object, list[int]], count: int) -> dict[object, int]:
    """How many to draw from each stratum: its share, rounded so that the sum is `count` (largest remainder)."""
    total = sum(map(len, members.values()))
    exact = {stratum: count * len(rows) / total for stratum, rows in members.items()}
    quotas = {stratum: int(share) for stratum, share in exact.items()}
    for stratum in sorted(exact, key=lambda s: quotas[s] - exact[s])[: count - sum(quotas.values())]:
        quotas[stratum] += 1
    return quotas


def shares(dataset: "Dataset", name: str) -> dict:
    """The share of each value of a column, most frequent first: print it for both parts of a split."""
    counts = Counter(column(dataset, name))
    return {value: round(n / len(dataset), 3) for value, n in counts.most_common()}


def leaked_rows(train: "Dataset", heldout: "Dataset") -> dict[int, int]:
    """Training row -> the held-out row whose question it repeats, or nearly repeats (see duplicates.py)."""
    index = Index.of(column(train, "question"), column(heldout, "question"))
    first: dict[bytes, int] = {}
    for row in range(len(train), len(index)):
        first.setdefault(index.digests[row], row - len(train))
    found = {row: first[index.digests[row]] for row in range(len(train)) if index.digests[row] in first}
    for row, twin in near(index, boundary=len(train)):
        found.setdefault(row, twin - len(train))
    return dict(sorted(found.items()))


def drop_leaked(train: "Dataset", heldout: "Dataset") -> tuple["Dataset", int]:
    """(the training rows whose question is not held out, nor nearly so; how many were)."""
    leaked = leaked_rows(train, heldout)
    if len(leaked) == len(train):
        raise WorkbookError("every training question is also held out: give different files")
    return (train.select([i for i in range(len(train)) if i not in leaked]) if leaked else train), len(leaked)
