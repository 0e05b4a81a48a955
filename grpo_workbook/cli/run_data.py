"""What a run trains and is measured on: the course's own word problems, or the user's rows, split and free of leaks."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.config import RunConfig
from grpo_workbook.data import WORD_PROBLEMS
from grpo_workbook.problems import load
from grpo_workbook.splitting import drop_leaked, split

if TYPE_CHECKING:
    from datasets import Dataset

COMPARE_NUMBERS = frozenset(
    {"correctness_reward"}
)  # rewards that refuse an answer that is no number


def answers_for(functions: Sequence[Callable], data: Path | str | None) -> str:
    """What an answer is for these rewards, and so for the measuring: "number" or "text" (see problems.load).

    The course's own data has numbers. Of the user's, numbers are demanded only where a reward compares them.
    """
    return "number" if data is None or COMPARE_NUMBERS & {f.__name__ for f in functions} else "text"


def load_rows(
    run: RunConfig, data, heldout_data, reading: dict | None = None, answers: str = "number"
) -> tuple["Dataset", "Dataset", int]:
    """(training rows, held-out rows, leaked rows dropped). Without files: the course's own word problems.

    `reading` and `answers` are for the user's own files. With answers="number" one without a number is invalid.
    """

    def read(source):
        own = source not in WORD_PROBLEMS.values()
        kind, options = (answers, reading or {}) if own else ("number", {})
        return load(source, answers=kind, seed=run.seed, progress=True, **options).dataset

    if data is not None and heldout_data is None:
        train, heldout = split(read(data), run.heldout, run.seed)
    else:
        train, heldout = (
            read(s)
            for s in (data or WORD_PROBLEMS["train"], heldout_data or WORD_PROBLEMS["heldout"])
        )
        heldout = heldout.select(range(min(run.heldout, len(heldout))))
    train, leaked = drop_leaked(train, heldout)
    return train, heldout, leaked
