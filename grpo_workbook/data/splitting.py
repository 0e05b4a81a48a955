"""The split into training and held-out rows, without leaks between them."""

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from grpo_workbook.data.duplicates import drop_leaked, leaked_rows
from grpo_workbook.data.reading import GSM8K, WORD_PROBLEMS, load_problems, read_rows
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.run_config import RunConfig

if TYPE_CHECKING:
    from datasets import Dataset


def split(dataset: "Dataset", heldout: int, seed: int, by="length") -> tuple["Dataset", "Dataset"]:
    """(train, held-out) with `heldout` rows held out, at most a fifth; `seed` decides which.
    Both are stratified by `by`: a column, or "length" for four buckets of question length.
    """
    import pandas as pd

    count = min(heldout, len(dataset) // 5)
    if count < 1:
        raise WorkbookError(f"cannot hold out {heldout} of {len(dataset)} rows: at least 1 of 5")
    lengths = pd.Series(dataset["question"][:]).str.len().rank(method="first")
    try:
        strata = pd.qcut(lengths, min(4, count), labels=False) if by == "length" else dataset[by]
        marked = dataset.add_column("_stratum", [*map(str, strata)]).class_encode_column("_stratum")
        parts = marked.train_test_split(count, seed=seed, stratify_by_column="_stratum")
    except (KeyError, ValueError) as error:
        raise WorkbookError(f"the rows cannot be split by {by!r}: {first_line(error)}") from None
    parts = parts.remove_columns("_stratum")
    return parts["train"], parts["test"]


@functools.cache
def course_data(name: str) -> dict[str, Any]:
    """What a run of this profile trains on by default: GSM8K on a GPU, if it can be had."""
    try:
        return GSM8K if name != "smoke" and all(map(read_rows, GSM8K.values())) else WORD_PROBLEMS
    except WorkbookError as error:
        print(f"The course's own word problems instead of GSM8K: {first_line(error)}")
        return WORD_PROBLEMS


def load_split(run: RunConfig, data=None, heldout_data=None, leaks=leaked_rows, **reading) -> tuple:
    """(training rows, held-out rows, leaked training rows dropped); without data the course's.
    `leaks` finds them; `reading` is what `load_problems` takes, for the user's data.
    """
    if data and not heldout_data:
        train, heldout = split(load_problems(data, **reading), run.heldout, run.seed)
    else:
        train, heldout = (
            load_problems(given or course_data(run.profile)[name], **(reading if given else {}))
            for name, given in (("train", data), ("heldout", heldout_data))
        )
        heldout = heldout.select(range(min(run.heldout, len(heldout))))
    train, leaked = drop_leaked(train, heldout, leaks)
    return train, heldout, leaked


def sha256_of(*parts: Iterable[dict]) -> str:
    """A hash of all rows in order; the order of the columns does not matter."""
    rows = (json.dumps(row, sort_keys=True, default=str) for row in itertools.chain(*parts))
    return hashlib.sha256("".join(f"{row}\n" for row in rows).encode()).hexdigest()
