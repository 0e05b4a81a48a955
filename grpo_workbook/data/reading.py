"""The problems of a source: a file, a hub id, a Dataset or a list of dicts.

`read_rows` reads the rows of any source as they are, into a table on disk. `load_problems` gives
each row a question and an answer that the rewards can use, and refuses rows that have none;
`check_problems` tells which rows those are.
"""

import json
import tempfile
import warnings
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.config import DATA
from grpo_workbook.data.chats import CHAT, has_chats, refuse_images, text_answers, unfold_chats
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import place_of
from grpo_workbook.rewards.answers import reference_answer

if TYPE_CHECKING:
    from datasets import Dataset

WORD_PROBLEMS = {
    "train": DATA / "word_problems" / "train.jsonl",
    "heldout": DATA / "word_problems" / "heldout.jsonl",
}
GSM8K = {"train": "openai/gsm8k:main:train", "heldout": "openai/gsm8k:main:test"}
KNOWLEDGE_BASE = DATA / "knowledge_base.csv"

# The ending of a file's name -> the format as `datasets` calls it. Text files may end in .gz too.
FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
ANSWER_KINDS = ("auto", "number", "text")
PROBLEM_COLUMNS = ("question", "answer", "solution")
# Where questions and answers are looked for, in this order, if the user names no column.
QUESTION_COLUMNS = ("question", "prompt", "problem", "messages", "conversations")
ANSWER_COLUMNS = ("answer", "solution", "ground_truth")
# Columns that the course or TRL fills. A column of the source with such a name is renamed.
RESERVED_COLUMNS = (
    *PROBLEM_COLUMNS,
    CHAT,
    "prompt",
    "prompts",
    "completion",
    "completions",
    "completion_ids",
)


# ------------------------------------------------------------------ rows as they are


def find_file(source: str | Path) -> tuple[Path, str | None]:
    """The path of a source and its format, without reading it; the format of a hub id is None.

    Raises:
        WorkbookError: the file does not exist, is empty, or is not a data file.
    """
    path = place_of(source)
    # problems.csv.gz is a CSV file: all readers of texts unpack it.
    name = path.name.lower().removesuffix(".gz")
    file_format = FORMATS.get(Path(name).suffix)
    # A name without an ending of FORMATS that does not exist may be a hub id.
    if file_format is None and path.exists():
        raise WorkbookError(f"{source} is not a data file: give one with {', '.join(FORMATS)}")
    if file_format is not None and not (path.is_file() and path.stat().st_size > 0):
        raise WorkbookError(f"the data file {source} does not exist, or is empty")
    return path, file_format


def read_rows(source: Any) -> "Dataset":
    """Read the rows of a source without checking them.

    Args:
        source: a file (.jsonl, .json, .csv, .tsv, .parquet; text files also as .gz), a hub id with
            configuration and split (openai/gsm8k:main:test), a Dataset, or a list of dicts.

    Raises:
        WorkbookError: the source cannot be read; the message has the reader's reason.
    """
    from datasets import Dataset

    if isinstance(source, Dataset):
        return source
    if isinstance(source, list):
        return _rows_of_dicts(source)
    if not isinstance(source, str | Path):
        raise WorkbookError(f"a {type(source).__name__} is not a source: give a file, or one split")

    path, file_format = find_file(source)
    try:
        if file_format is None:
            return _read_hub(str(source))
        if file_format == "csv":
            return _read_csv(path)
        return _read_file(path, file_format)
    except Exception as error:  # each reader has errors of its own
        if file_format is None:
            problem = "is not a file, and cannot be loaded as a hub id"
            raise WorkbookError(f"{source} {problem}: {_reason(error)}") from error
        # The number of a line helps more than what the reader says.
        reason = _bad_line(path) or _reason(error)
        raise WorkbookError(f"{source} cannot be read: {reason}") from error


def _rows_of_dicts(rows: list[dict]) -> "Dataset":
    """A table of dicts; a column that a dict does not have is None in its row."""
    from datasets import Dataset

    names: dict[str, None] = {}  # an ordered set
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {}
    for name in names:
        columns[name] = [row.get(name) for row in rows]
    # A column with numbers and texts would be refused. As JSON each value keeps its type.
    return Dataset.from_dict(columns, on_mixed_types="use_json")


def _read_hub(source: str) -> "Dataset":
    """The rows of a hub id such as openai/gsm8k:main:test; the split is "train" if it has none."""
    from datasets import load_dataset

    name, _, rest = source.partition(":")
    config, _, split = rest.partition(":")
    return load_dataset(name, config or None, split=split or "train")


def _read_csv(path: Path) -> "Dataset":
    """The rows with every column as text, so that 007 and NA stay as they are."""
    import pandas as pd
    from datasets import Dataset

    # Excel writes semicolons where the comma is the decimal sign. The header tells which it is.
    widths = {}
    for separator in ",;\t":
        widths[separator] = pd.read_csv(path, sep=separator, nrows=0).shape[1]
    best_separator = max(widths, key=lambda separator: widths[separator])
    # For a first row with too many fields pandas only warns, and shifts every column.
    with warnings.catch_warnings(action="error", category=pd.errors.ParserWarning):
        table = pd.read_csv(
            path,
            sep=best_separator,
            index_col=False,
            dtype=str,
            keep_default_na=False,
            encoding="utf-8-sig",
        )
    return Dataset.from_pandas(table, preserve_index=False)


def _read_file(path: Path, file_format: str) -> "Dataset":
    """The rows of a JSON or Parquet file."""
    from datasets import load_dataset
    from datasets.fingerprint import get_temporary_cache_files_directory

    # The table is deleted when the process ends; TMPDIR chooses the disk.
    folder = tempfile.mkdtemp(dir=get_temporary_cache_files_directory())
    if file_format == "parquet":
        return load_dataset("parquet", data_files=str(path), split="train", cache_dir=folder)
    return load_dataset(
        "json",
        data_files=str(path),
        split="train",
        cache_dir=folder,
        encoding="utf-8-sig",  # Excel and Windows write a mark at the start of a file
        chunksize=2**20,  # bytes
    )


def _reason(error: Exception) -> str:
    """The reader's reason in one line; `datasets` often has it in the cause of its error."""
    if "corresponds to no data" in str(error):
        return "it has no rows: give at least one"
    return first_line(error.__cause__ or error)


def _bad_line(path: Path) -> str | None:
    """The first line of a .jsonl file that is not a JSON object, and why."""
    if path.suffix.lower() != ".jsonl":
        return None
    # `datasets` counts rows from 0, and in each of its chunks anew.
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                return f"line {number} is not JSON ({first_line(error)})"
            if not isinstance(row, dict):
                return f"line {number} is not a JSON object"
    return None


# ------------------------------------------------------------------ problems


def load_problems(
    source: Any,
    *,
    question_column: str | None = None,
    answer_column: str | None = None,
    answers: str = "auto",
    skip_invalid: bool = False,
    pictures: bool = False,
) -> "Dataset":
    """Load the problems of a source, with the columns that the course and its rewards use.

    Args:
        source: what `read_rows` takes.
        question_column: the source's column with the questions: texts, or conversations as lists
            of messages with `role` and `content` (TRL) or `from` and `value` (ShareGPT). Default:
            the first of question, prompt, problem, messages and conversations.
        answer_column: the source's column with the answers or worked solutions. Default: answer,
            else solution or ground_truth, else the assistant's last turn in each conversation.
        answers: what an answer is. "number": the number after the last ####, or the whole text if
            it is a number. "text": the whole text. "auto": "number" if at least half of the first
            1,000 answers hold one, otherwise "text".
        skip_invalid: drop rows without a question or an answer (see `check_problems`).
        pictures: keep pictures in a column `image` or `images`, for a model with vision. Default:
            they are an error, because a model of text would not see them.

    Returns:
        The columns `question`, `answer` and `solution` (the answer column as it was), then the
        other columns of the source. For conversations `chat` has the messages before the answer,
        from which `to_dataset` makes the prompt, and `question` all of their texts.

    Raises:
        WorkbookError: the source cannot be read, has images, a column is missing or may be one of
            several, a row is invalid, or no row is valid.
    """
    problems, invalid = check_problems(
        source,
        question_column=question_column,
        answer_column=answer_column,
        answers=answers,
        pictures=pictures,
    )
    if invalid and not skip_invalid:
        fix = "fix it, or drop invalid rows with --skip-invalid"
        raise _invalid_row(_name_of(source), invalid, fix)
    return problems


def check_problems(
    source: Any,
    *,
    question_column: str | None = None,
    answer_column: str | None = None,
    answers: str = "auto",
    name: str | None = None,
    pictures: bool = False,
) -> tuple["Dataset", dict[int, str]]:
    """Load the valid problems of a source, and say why each other row is invalid.

    The parameters are those of `load_problems`; `name` is what errors call the source.

    Returns:
        The valid problems, and {row number, from 1: the reason} for the invalid rows.

    Raises:
        WorkbookError: the source cannot be read, a column is missing, or no row is valid.
    """
    if answers not in ANSWER_KINDS:
        choices = ", ".join(ANSWER_KINDS)
        raise WorkbookError(f"unknown kind of answers {answers!r}: choose from {choices}")
    if name is None:
        name = _name_of(source)
    table = read_rows(source)
    if not pictures:
        refuse_images(table, name)
    rows, columns, unreadable = _read_texts(table, question_column, answer_column, name)
    if answers == "auto":
        answers = _usual_kind(text_answers(rows[columns[1]][:1000]))

    problems = _add_problem_columns(rows, columns, answers)
    reasons = problems["_reason"][:]  # None for a valid row
    problems = problems.remove_columns("_reason")
    invalid = {}
    for number, reason in enumerate(reasons, start=1):
        if reason is not None:
            # A chat that cannot be read has left an empty question. Its own reason says more.
            invalid[number] = unreadable.get(number, reason)
    if len(invalid) == len(problems):
        raise _invalid_row(name, invalid, "no row is valid")
    if invalid:  # a table without a selection is read faster
        valid = [row for row in range(len(problems)) if row + 1 not in invalid]
        problems = problems.select(valid)
    return problems, invalid


def _read_texts(
    rows: "Dataset", question_column: str | None, answer_column: str | None, name: str
) -> tuple["Dataset", tuple[str, str], dict[int, str]]:
    """(rows whose questions are texts, the two columns, the reason why a row's chat is none)."""
    question_column, answer_column = find_columns(rows, question_column, answer_column, name)
    # Before the chats are read, because their messages get a column of a reserved name.
    rows = _rename_reserved(rows, (question_column, answer_column))
    unreadable = {}
    if has_chats(rows, question_column):
        rows, unreadable = unfold_chats(rows, question_column, answer_column)
        question_column = "question"
    if answer_column is None:  # then the last turns of the chats have become this column
        answer_column = "answer"
    return rows, (question_column, answer_column), unreadable


def find_columns(
    rows: "Dataset", question_column: str | None, answer_column: str | None, name: str
) -> tuple[str, str | None]:
    """(column of questions, column of answers), as named or by their usual names.

    The second is None if the answers are the assistant's last turns. Raises WorkbookError if a
    column is missing, if two columns may have the answers, or if there is no row.
    """
    if len(rows) == 0 and rows.column_names:
        raise WorkbookError(f"{name} has no rows: give at least one")
    if question_column is None:
        usual = [column for column in QUESTION_COLUMNS if column in rows.column_names]
        # Without any of them, the error names the column that the course's own data have.
        question_column = usual[0] if usual else "question"
    _require(rows, question_column, name, "--question-column")
    if answer_column is None:
        answer_column = _usual_answers(rows, question_column, name)
    if answer_column is not None:
        _require(rows, answer_column, name, "--answer-column")
    return question_column, answer_column


def _usual_answers(rows: "Dataset", question_column: str, name: str) -> str | None:
    """The column with the answers by its usual name; None if a chat's last turn is the answer.

    Raises WorkbookError if it is not clear which column it is.
    """
    usual = []
    for column in ANSWER_COLUMNS:
        if column in rows.column_names and column != question_column:
            usual.append(column)
    # `answer` and the whole `solution` often stand side by side. Others are named by the user.
    if len(usual) > 1 and "answer" not in usual:
        choice = " and ".join(repr(column) for column in usual)
        raise WorkbookError(f"{name} may have its answers in {choice}: say --answer-column")
    if usual:
        return usual[0]
    if has_chats(rows, question_column):
        return None
    return "answer"


def _require(rows: "Dataset", column: str, name: str, option: str) -> None:
    """Raise WorkbookError if a column is missing."""
    if column not in rows.column_names:
        problem = f"{name} has no column {column!r}, only {rows.column_names}"
        raise WorkbookError(f"{problem}: choose one with {option}")


def _name_of(source: Any) -> str:
    if isinstance(source, str | Path):
        return Path(source).name
    return "the data"


def _invalid_row(name: str, invalid: dict[int, str], fix: str) -> WorkbookError:
    number, reason = next(iter(invalid.items()))
    problem = f"{name}, row {number}: {reason} ({len(invalid):,} invalid in all)"
    return WorkbookError(f"{problem}: {fix}")


def _usual_kind(solutions: Sequence[Any]) -> str:
    """What these answers are: "number" if at least half of them hold one, otherwise "text"."""
    # Empty answers are invalid rows, and say nothing about the others.
    texts = [str(solution) for solution in solutions if solution]
    numbers = 0
    for text in texts:
        if "####" in text or reference_answer(text) is not None:
            numbers += 1
    return "number" if 2 * numbers >= len(texts) else "text"


def _rename_reserved(rows: "Dataset", columns: tuple[str, str | None]) -> "Dataset":
    """The rows with _original after the name of each other column that the course or TRL fills."""
    new_names = {}
    for name in RESERVED_COLUMNS:
        if name in rows.column_names and name not in columns:
            new_name = f"{name}_original"
            if new_name in rows.column_names:
                new_name += "2"
            new_names[name] = new_name
    return rows.rename_columns(new_names)


def _add_problem_columns(rows: "Dataset", columns: tuple[str, str], answers: str) -> "Dataset":
    """The rows with question, answer, solution and _reason in place of the two `columns`."""
    from datasets import Features, Value

    def check(questions: list, solutions: list) -> dict[str, list]:
        checked: dict[str, list] = {name: [] for name in new_columns}
        for question, solution in zip(questions, text_answers(solutions), strict=True):
            solution = _number_as_text(solution)
            answer, reason = _check_problem(question, solution, answers, columns)
            invalid = reason is not None
            # What is invalid may have any type, and these columns hold texts only.
            checked["question"].append(None if invalid else question)
            checked["answer"].append(answer)
            checked["solution"].append(None if invalid else solution)
            checked["_reason"].append(reason)
        return checked

    # The types are named, because `map` guesses them from its first batch, in which every answer
    # may be None.
    new_columns = (*PROBLEM_COLUMNS, "_reason")
    types = {name: Value("string") for name in new_columns}
    for name, type_of_column in rows.features.items():
        if name not in columns:
            types[name] = type_of_column
    return rows.map(
        check,
        batched=True,
        input_columns=list(columns),
        remove_columns=list(columns),
        features=Features(types),
        load_from_cache_file=False,
    )


def _number_as_text(value: Any) -> Any:
    """Numbers and dates as text, 5.0 as "5"; any other value unchanged.

    JSON's reader makes dates of texts such as 1969-07-20. A float of 2**53 or more has lost digits,
    so it stays a float, which is no valid answer.
    """
    if type(value) is float and not abs(value) < 2**53:
        return value
    # By type() and not isinstance, for which True is an int.
    if type(value) in (int, float, Decimal) or isinstance(value, date):
        return str(value).removesuffix(".0").removesuffix(" 00:00:00")
    return value


def _check_problem(
    question: Any, solution: Any, answers: str, columns: tuple[str, str]
) -> tuple[str | None, str | None]:
    """(the answer, None) for a valid row, (None, the reason) for an invalid one."""
    for column, text in zip(columns, (question, solution), strict=True):
        if not isinstance(text, str) or not text.strip():
            return None, f"{column!r} is empty or not a text: {text!r:.60}"
    if answers == "text":
        return solution, None
    answer = reference_answer(solution)
    if answer is None:
        problem = f"{columns[1]!r} has no number: {solution[-60:]!r}"
        return None, f"{problem} must end in '#### N', or be a number"
    return answer, None
