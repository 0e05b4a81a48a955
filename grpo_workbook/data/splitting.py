"""What a run trains on and is measured on: the split, without leaks between its parts."""

import functools
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.data.duplicates import drop_leaked
from grpo_workbook.data.reading import GSM8K, WORD_PROBLEMS, load_problems, read_rows
from grpo_workbook.errors import WorkbookError, first_line

if TYPE_CHECKING:
    from datasets import Dataset


def split(
    dataset: "Dataset", heldout: int, seed: int, by: str = "length"
) -> tuple["Dataset", "Dataset"]:
    """Split the rows into training and held-out rows, stratified.

    Args:
        dataset: rows with a `question`.
        heldout: how many rows to hold out; at most a fifth of all is held out.
        seed: decides which rows.
        by: both parts have the same mix of this column's values, or with "length" of four buckets
            of question length.

    Returns:
        The training rows and the held-out rows.

    Raises:
        WorkbookError: there are too few rows, or a value of the column is too rare.
    """
    count = min(heldout, len(dataset) // 5)
    if count < 1:
        raise WorkbookError(f"cannot hold out {heldout} of {len(dataset)} rows: at least 1 of 5")
    try:
        # train_test_split wants a held-out row of each stratum, so few rows have fewer buckets.
        strata = _length_buckets(dataset, min(4, count)) if by == "length" else dataset[by][:]
        marked = dataset.add_column("_stratum", [str(value) for value in strata])
        # train_test_split stratifies by a column of classes alone.
        marked = marked.class_encode_column("_stratum")
        parts = marked.train_test_split(count, seed=seed, stratify_by_column="_stratum")
    except (KeyError, ValueError) as error:
        raise WorkbookError(f"the rows cannot be split by {by!r}: {first_line(error)}") from None
    parts = parts.remove_columns("_stratum")
    return parts["train"], parts["test"]


def _length_buckets(dataset: "Dataset", buckets: int) -> list[int]:
    """The number of each row's bucket; buckets of equal size, by the length of the question."""
    import pandas as pd

    # Ranks, because many questions have the same length and buckets need different borders.
    lengths = pd.Series(dataset["question"][:]).str.len()
    return list(pd.qcut(lengths.rank(method="first"), buckets, labels=False))


# Cached, because a run asks for each part, and a failed download would be tried and told twice.
@functools.cache
def course_data(profile_name: str) -> dict[str, Any]:
    """The sources {"train", "heldout"} that a run of this profile uses by default.

    On a GPU they are GSM8K, if it can be loaded: real models solve the course's own word problems
    from the start.
    """
    if profile_name == "smoke":
        return WORD_PROBLEMS
    try:
        for source in GSM8K.values():
            read_rows(source)
    except WorkbookError as error:
        print(f"The course's own word problems instead of GSM8K: {first_line(error)}")
        return WORD_PROBLEMS
    return GSM8K


def load_split(
    data: str | Path | None = None,
    heldout_data: str | Path | None = None,
    *,
    heldout: int,
    seed: int,
    profile_name: str,
    question_column: str | None = None,
    answer_column: str | None = None,
    answers: str = "auto",
    skip_invalid: bool = False,
) -> tuple["Dataset", "Dataset", int]:
    """Load what a run trains on and what it is measured on, without leaks between the two.

    Args:
        data: a source of training problems (see `read_rows`), which is split if `heldout_data` is
            not given; by default the course's (see `course_data`). A tiny model trains on
            the word problems of the rare kinds, and is measured on all kinds.
        heldout_data: a source of held-out problems; by default the course's.
        heldout: how many problems are held out at most.
        seed: decides which problems a split holds out.
        profile_name: decides which of the course's data is used.
        question_column: as in `load_problems`, as are the three below. They are for `data` and
            `heldout_data`, not for the course's own.
        answer_column: the column with the answers or solutions.
        answers: "auto", "number" or "text".
        skip_invalid: drop invalid rows.

    Returns:
        The training problems, the held-out problems, and how many training problems were dropped
        because their question is also held out (see `leaked_rows`).

    Raises:
        WorkbookError: a source cannot be read or split, or every training question is held out.
    """

    def load(source: str | Path | None, part: str) -> "Dataset":
        if source is None:
            return load_problems(course_data(profile_name)[part])
        return load_problems(
            source,
            question_column=question_column,
            answer_column=answer_column,
            answers=answers,
            skip_invalid=skip_invalid,
        )

    train = load(data, "train")
    if data is None and profile_name == "smoke":
        # The tiny models solve the other kinds from the start, so that nearly all of their groups
        # would have no variance, and teach nothing.
        train = select_true(train, "rare")
    # A file of one's own is split. The course's data has a held-out file already.
    if data is not None and heldout_data is None:
        train, heldout_rows = split(train, heldout, seed)
    else:
        heldout_rows = load(heldout_data, "heldout")
        # The first ones, whatever the seed, so that all runs are measured on the same problems.
        heldout_rows = heldout_rows.select(range(min(heldout, len(heldout_rows))))
    # A leak leaves the training part: what was held out stays the same when training data change.
    train, leaked = drop_leaked(train, heldout_rows)
    return train, heldout_rows, leaked


def select_true(dataset: "Dataset", column: str) -> "Dataset":
    """The rows in which this column is true. A CSV file has true and false as texts.

    Raises:
        WorkbookError: for a missing column, another value than true or false, and no true row.
    """
    if column not in dataset.column_names:
        raise WorkbookError(f"there is no column {column!r}, only {dataset.column_names}")
    chosen = []
    for row, value in enumerate(dataset[column]):
        text = str(value).lower()
        if text not in ("true", "false"):
            raise WorkbookError(f"{column!r} is {value!r} in row {row + 1}: give true or false")
        if text == "true":
            chosen.append(row)
    if not chosen:
        raise WorkbookError(f"{column!r} is true in no row: choose another column")
    return dataset.select(chosen)


def sha256_of(*parts: Iterable[dict]) -> str:
    """A hash of all rows in order; the order of the columns does not matter."""
    digest = hashlib.sha256()
    for part in parts:
        for row in part:
            # default=str: dates and decimals, which JSON does not have.
            line = json.dumps(row, sort_keys=True, default=str)
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()
