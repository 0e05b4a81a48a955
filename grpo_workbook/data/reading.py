"""The rows of a source of problems: a file, a hub id, a Dataset or a list of dicts."""

import contextlib
import gzip
import itertools
import json
import re
import tempfile
import warnings
import zlib
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import DATA
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import place_of
from grpo_workbook.rewards.answers import reference_answer

if TYPE_CHECKING:
    from datasets import Dataset

WORD_PROBLEMS = {name: DATA / "word_problems" / f"{name}.jsonl" for name in ("train", "heldout")}
GSM8K = {"train": "openai/gsm8k:main:train", "heldout": "openai/gsm8k:main:test"}
KNOWLEDGE_BASE = DATA / "knowledge_base.csv"
FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
KINDS = ("auto", "number", "text")
MOST_COLUMNS, LONGEST_LINE, DEEPEST = 1000, 64 * 2**20, 64  # the line in bytes; brackets deep
CORE = ("question", "answer", "solution")
# Columns that the course or TRL fills; a column of the source with such a name gets _original.
TAKEN = {*CORE, "prompt", "prompts", "completion", "completions", "completion_ids"}


def find_file(source: str | Path) -> tuple[Path, str | None]:
    """(path of a source, kind of file: None for a hub id), unread. WorkbookError for no file."""
    path = place_of(source)
    kind = FORMATS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if kind and not (path.is_file() and path.stat().st_size):
        raise WorkbookError(f"the data file {source} does not exist, or is empty")
    if not kind and path.exists():
        raise WorkbookError(f"{source} is not a data file: give one with {', '.join(FORMATS)}")
    return path, kind


def read_rows(source: Any) -> "Dataset":
    """The unchecked rows of a file (.jsonl, .json, .csv, .tsv, .parquet; text files as .gz too),
    a hub id with configuration and split (openai/gsm8k:main:test), a Dataset, or a list of dicts.
    Raises WorkbookError for what cannot be read.
    """
    from datasets import Dataset, load_dataset
    from datasets.fingerprint import get_temporary_cache_files_directory
    from pyarrow.parquet import read_metadata

    if isinstance(source, Dataset):
        return source
    if isinstance(source, list):
        table = {n: [row.get(n) for row in source] for n in dict.fromkeys(itertools.chain(*source))}
        return Dataset.from_dict(table, on_mixed_types="use_json")
    if not isinstance(source, str | Path):
        raise WorkbookError(f"a {type(source).__name__} is not a source: give a file, or one split")
    path, kind = find_file(source)
    if kind == "json" and (why := _wrong_line(path, quick=True)):
        raise WorkbookError(f"{source} cannot be read: {why}")
    try:
        if not kind:
            name, config, part = [*str(source).split(":", 2), "", ""][:3]  # "" if not given
            return load_dataset(name, config or None, split=part or "train")
        if kind == "csv":
            return _read_csv(path)
        if kind == "parquet" and not read_metadata(path).num_rows:
            raise ValueError("it has no rows: give at least one")
        # The table is deleted when the process ends; TMPDIR chooses the disk.
        place = tempfile.mkdtemp(dir=get_temporary_cache_files_directory())
        options = {"encoding": "utf-8-sig", "chunksize": 2**20} if kind == "json" else {}
        return load_dataset(kind, data_files=str(path), split="train", cache_dir=place, **options)
    except Exception as error:  # each reader has its own errors
        why = (kind == "json" and _wrong_line(path)) or first_line(error.__cause__ or error)
        what = "cannot be read" if kind else "is not a file, and cannot be loaded as a hub id"
        raise WorkbookError(f"{source} {what}: {why}") from error


def _read_csv(path: Path) -> "Dataset":
    """The rows with every column as text, so that 007 and NA stay as they are."""
    import pandas as pd
    from datasets import Dataset

    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    with opened(path, "rb") as file:  # pandas would take minutes
        first = file.readline()
    if (wide := 1 + max(map(first.count, (b",", b";", b"\t")))) > MOST_COLUMNS:
        raise ValueError(f"it has {wide:,} columns, at most {MOST_COLUMNS:,}: keep those you need")
    separator = max(",;\t", key=lambda sep: pd.read_csv(path, sep=sep, nrows=0).shape[1])
    how: Any = {"sep": separator, "dtype": str, "keep_default_na": False, "encoding": "utf-8-sig"}
    # For a first row with too many fields pandas only warns, and shifts every column.
    with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
        return Dataset.from_pandas(pd.read_csv(path, index_col=False, **how), preserve_index=False)


def _wrong_line(path: Path, quick=False) -> str | None:
    """The first line of a JSON file that cannot be read, and why; `quick` parses one row alone."""
    opened: Any = gzip.open if path.suffix.lower() == ".gz" else open
    lines = ".jsonl" in path.name.lower()  # else one array, on one line or on several
    row: Any = quick and not lines  # a true value: `quick` does not parse an array
    with contextlib.suppress(OSError, EOFError, zlib.error), opened(path, "rb") as file:
        for number, line in enumerate(file if lines else [file.read()], 1):
            if lines and len(line) > LONGEST_LINE:
                return f"line {number} has {len(line):,} bytes, at most {LONGEST_LINE:,}: split it"
            if line.count(b"[") + line.count(b"{") > DEEPEST and (deep := _depth(line)) > DEEPEST:
                return f"line {number} is nested {deep:,} deep, at most {DEEPEST}: flatten it"
            try:
                if line.strip() and not (quick and row):  # a first row of null crashes the reader
                    row = json.loads(line.decode("utf-8-sig"))
                    if not isinstance(row, list) and len({**row}) > MOST_COLUMNS:
                        return f"line {number} has {len(row):,} columns, at most {MOST_COLUMNS:,}"
            except (ValueError, TypeError) as error:
                return f"line {number} is not a JSON object in UTF-8 ({first_line(error)})"
        return "" if row else "it has no rows: give at least one"


def _depth(line: bytes) -> int:
    """How deep the brackets outside the texts are nested: too deep a row crashes the reader."""
    marks = re.finditer(rb'"(?:[^"\\]+|\\.)*"?|[][{}]', line)
    return max(itertools.accumulate((m[0] in b"[{") - (m[0] in b"]}") for m in marks))


def load_problems(
    source: Any, *, question_column="question", answer_column="answer", answers="auto",
    skip_invalid=False, invalid: dict[int, str] | None = None,
) -> "Dataset":  # fmt: skip
    """The problems of a source (see `read_rows`): `question`, `answer` (for the rewards),
    `solution` (the answer column as it was), and the other columns.

    `answers` is "number" (after the last ####, or the whole text), "text", or "auto": "number" if
    at least half of the first 1,000 answers hold one. An invalid row raises WorkbookError, unless
    `skip_invalid` is set or a dict is given as `invalid`: it gets row number (from 1) -> reason.
    """
    from datasets import Features, Value

    rows, columns = read_rows(source), [question_column, answer_column]
    name = Path(source).name if isinstance(source, str | Path) else "the data"
    for column, option in zip(columns, ("--question-column", "--answer-column"), strict=True):
        if column not in rows.column_names:
            there = f"{name} has no column {column!r}, only {rows.column_names}"
            raise WorkbookError(f"{there}: choose one with {option}")
    if not len(rows):
        raise WorkbookError(f"{name} has no rows: give at least one")
    if answers not in KINDS:
        raise WorkbookError(f"unknown kind of answers {answers!r}: choose from {', '.join(KINDS)}")
    if answers == "auto":
        first = [str(value) for value in rows[:1000][answer_column] if value]
        numbers = sum("####" in text or reference_answer(text) is not None for text in first)
        answers = "number" if 2 * numbers >= len(first) else "text"

    def check(questions: list, solutions: list) -> dict[str, list]:
        made = [_checked(*row, answers, columns) for row in zip(questions, solutions, strict=True)]
        return {name: [row[i] for row in made] for i, name in enumerate((*CORE, "_why"))}

    new = {c: f"{c}_original" for c in TAKEN & {*rows.column_names} - {*columns}}
    rows = rows.rename_columns({c: n + "2" if n in rows.features else n for c, n in new.items()})
    types = dict.fromkeys((*CORE, "_why"), Value("string"))
    types |= {column: type for column, type in rows.features.items() if column not in columns}
    rows = rows.map(
        check, batched=True, input_columns=columns, remove_columns=columns,
        features=Features(types), load_from_cache_file=False,
    )  # fmt: skip
    wrong = {number: why for number, why in enumerate(rows["_why"][:], 1) if why}
    good = [n for n in range(len(rows)) if n + 1 not in wrong] if wrong else range(len(rows))
    if not good or (wrong and not skip_invalid and invalid is None):
        number, why = next(iter(wrong.items()))
        fix = "fix it, or drop invalid rows with --skip-invalid" if good else "no row is valid"
        raise WorkbookError(f"{name}, row {number}: {why} ({len(wrong):,} invalid in all): {fix}")
    if invalid is not None:
        invalid.update(wrong)
    return rows.remove_columns("_why").select(good)


def _checked(question: Any, solution: Any, answers: str, columns: list[str]) -> tuple:
    """(question, answer, solution, None) of a row; for an invalid row the last is the reason."""
    # Numbers become text, and so do dates, which the reader parses. A large float has lost digits.
    kind = type(solution)
    exact = abs(solution) < 2**53 if kind is float else kind in (int, Decimal)
    if exact or issubclass(kind, date):
        solution = str(solution).removesuffix(".0").removesuffix(" 00:00:00")
    for column, text in zip(columns, (question, solution), strict=True):
        if not isinstance(text, str) or not text.strip():
            return None, None, None, f"{column!r} is empty or not a text: {text!r:.60}"
    answer = reference_answer(solution) if answers == "number" else solution
    why = f"{columns[1]!r} has no number: {solution[-60:]!r} must end in '#### N', or be a number"
    return question, answer, solution, why if answer is None else None
