"""From a source of problems to what the model reads: rows, chat prompts, token counts, the split.

`datasets` reads the sources and keeps the rows in a file that is mapped into memory. Rows have
`question`, `answer` (what rewards compare with) and `solution` (the answer as the source has it).
`to_dataset` puts `prompt` in front, which TRL reads; it hands every other column to the rewards.
"""

import contextlib
import csv
import functools
import hashlib
import json
import tempfile
import uuid
import warnings
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_workbook.answers import reference_answer
from grpo_workbook.config import CHAT_TEMPLATE_KWARGS, DATA, SYSTEM_PROMPT, RunConfig
from grpo_workbook.errors import WorkbookError, first_line
from grpo_workbook.files import place_of, readable
from grpo_workbook.leakage import drop_leaked

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase

WORD_PROBLEMS = {name: DATA / "word_problems" / f"{name}.jsonl" for name in ("train", "heldout")}
KNOWLEDGE_BASE = DATA / "knowledge_base.csv"
FORMATS = {".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet"}
KINDS = ("auto", "number", "text")
CORE = ("question", "answer", "solution")
# Columns that the course or TRL fills: a source's own goes on as NAME_original.
TAKEN = {*CORE, "prompt", "prompts", "completion", "completions", "completion_ids"}


@contextlib.contextmanager
def _quiet():
    """No progress bars of `datasets`, and no log lines of it beside our own messages."""
    import datasets

    level, bars = datasets.logging.get_verbosity(), not datasets.are_progress_bars_disabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if bars:
            datasets.enable_progress_bars()


@functools.cache
def _tables() -> tempfile.TemporaryDirectory:
    """Where this process keeps its tables; removed when it ends. TMPDIR chooses the disk."""
    return tempfile.TemporaryDirectory(prefix="grpo_workbook_")


def _new() -> str:
    return f"{_tables().name}/{uuid.uuid4().hex}.arrow"


@_quiet()
def read_rows(source: Any) -> "Dataset":
    """The rows of a source, unchecked and mapped into memory.

    A source is a file (.jsonl, .json, .csv, .tsv, .parquet; the texts as .gz too), a hub id with
    configuration and split (openai/gsm8k:main:test), a Dataset, or a list of dicts. Raises
    WorkbookError for one that cannot be read, with the line that is wrong.
    """
    from datasets import Dataset, load_dataset
    from datasets.exceptions import DatasetsError
    from pandas.errors import ParserWarning

    if isinstance(source, Dataset):
        return source
    if isinstance(source, list):
        names = dict.fromkeys(name for row in source for name in row)
        rows = [{name: row.get(name) for name in names} for row in source]
        return Dataset.from_list(rows, on_mixed_types="use_json")
    if not isinstance(source, str | Path):
        raise WorkbookError(f"a {type(source).__name__} is no source: name a file, or one split")
    path = place_of(source)
    kind = FORMATS.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if kind and not (path.is_file() and path.stat().st_size):
        there = "is empty" if path.is_file() else "does not exist"
        raise WorkbookError(f"data file {source} {there}: name one with rows")
    if not kind and path.exists():
        raise WorkbookError(f"{source} is no data file: name one that ends in {', '.join(FORMATS)}")
    failures = (OSError, EOFError, ValueError, TypeError, RuntimeError, StopIteration)
    try:
        if not kind:
            name, config, part = [*str(source).split(":", 2), "", ""][:3]
            return load_dataset(name, config or None, split=part or "train")
        # A first row of too many fields is only warned of, and would shift every column.
        with warnings.catch_warnings(action="error", category=ParserWarning):
            options = _csv_options(path) if kind == "csv" else {}
            options |= {"encoding": "utf-8-sig", "chunksize": 2**20} if kind == "json" else {}
            options |= {"data_files": str(path), "cache_dir": _new()}
            return load_dataset(kind, split="train", **options)
    except (*failures, DatasetsError) as error:
        why = _wrong_line(path, kind) or first_line(error.__cause__ or error)
        what = "cannot be read" if kind else "is no file, and as a hub id it cannot be loaded"
        raise WorkbookError(f"{source} {what}: {why}") from error


def _bytes(path: Path) -> Any:
    import fsspec

    return fsspec.open(str(path), "rb", compression="infer")


def _csv_options(path: Path) -> dict:
    """The separator, from the header, and every column as text: 007 and NA stay what they are."""
    from datasets import Features, Value

    with _bytes(path) as file:
        header = file.readline().decode("utf-8-sig").rstrip("\r\n")
    separator = "\t" if "\t" in header else max(",;", key=header.count)
    names = next(csv.reader([header], delimiter=separator), [])
    features = Features({name: Value("string") for name in names})
    return {"sep": separator, "features": features, "keep_default_na": False, "index_col": False}


def _wrong_line(path: Path, kind: str | None) -> str | None:
    """The first line of a text file that is no UTF-8, or no JSON, and why; None where none is."""
    if kind not in ("json", "csv"):
        return None
    with contextlib.suppress(OSError, EOFError), _bytes(path) as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig")
                if kind == "json" and text.strip():
                    json.loads(text)
            except UnicodeDecodeError as error:
                return f"line {number} is not UTF-8 ({error.reason}): save the file as UTF-8 text"
            except ValueError as error:
                return f"line {number} is not JSON ({error})"
    return None


@_quiet()
def load_problems(
    source: Any,
    *,
    question_column: str = "question",
    answer_column: str = "answer",
    answers: str = "auto",
    skip_invalid: bool = False,
    invalid: dict[int, str] | None = None,
) -> "Dataset":
    """The problems of a source: question, answer, solution, then its other columns.

    Args:
        source: see `read_rows`.
        question_column, answer_column: what the source calls them.
        answers: what an answer is. "number": the number after the last ####, or the whole text if
            it is one. "text": any text. "auto": "number" if at least half of the first 1,000
            answers hold a number or a ####. A JSON number counts as its text.
        skip_invalid: leave out the rows that cannot be used.
        invalid: a dict to fill with them, the row's number from 1 -> why. It skips them too.

    Raises WorkbookError with number, field and value of the first invalid row, and for no rows.
    """
    from datasets import Features, Value

    rows, columns = read_rows(source), (question_column, answer_column)
    name = Path(source).name if isinstance(source, str | Path) else "the data"
    for column, option in zip(columns, ("--question-column", "--answer-column"), strict=True):
        if column not in rows.column_names:
            there = ", ".join(map(repr, rows.column_names))
            raise WorkbookError(f"{name} has no column {column!r} ({there}): name it with {option}")
    if answers not in KINDS:
        raise WorkbookError(f"unknown kind of answers {answers!r}: choose from {', '.join(KINDS)}")
    if answers == "auto":
        first = [str(_as_text(value)) for value in rows[:1000][answer_column] if value]
        numbers = sum("####" in text or reference_answer(text) is not None for text in first)
        answers = "number" if 2 * numbers >= len(first) else "text"
    wrong: dict[int, str] = {}

    def check(batch: dict, places: list[int]) -> dict[str, list]:
        made = []
        for place, *given in zip(places, *(batch[column] for column in columns), strict=True):
            row = _checked(given, answers, columns)
            made.append((None, None, None) if isinstance(row, str) else row)
            if isinstance(row, str):
                wrong[place + 1] = row
        return dict(zip(CORE, map(list, zip(*made, strict=True)), strict=True))

    other = {n: f"{n}_original" if n in TAKEN else n for n in rows.column_names if n not in columns}
    rows = rows.rename_columns({old: new for old, new in other.items() if old != new})
    types = dict.fromkeys(CORE, Value("string")) | {n: rows.features[n] for n in other.values()}
    dataset = rows.map(
        check, with_indices=True, batched=True, remove_columns=[*dict.fromkeys(columns)],
        features=Features(types), load_from_cache_file=False, cache_file_name=_new(),
    )  # fmt: skip
    if wrong:
        dataset = dataset.select([n for n in range(len(dataset)) if n + 1 not in wrong])
    if not len(dataset) or (wrong and not skip_invalid and invalid is None):
        number, why = next(iter(wrong.items()), (1, "there is none"))
        more = f" ({len(wrong) - 1:,} more rows are invalid)" if len(wrong) > 1 else ""
        skip = "fix it, or drop such rows with --skip-invalid" if len(dataset) else "no row is left"
        raise WorkbookError(f"{name}, row {number}: {why}{more}: {skip}")
    if invalid is not None:
        invalid.update(wrong)
    return dataset


def _checked(given: Sequence, answers: str, columns: Sequence[str]) -> tuple | str:
    """(question, answer, solution) of a row, from its two values, or why it cannot be used."""
    question, solution = given[0], _as_text(given[1])
    for column, text in zip(columns, (question, solution), strict=True):
        if text is None or (isinstance(text, str) and not text.strip()):
            return f"{column!r} is empty ({text!r:.60})"
        if not isinstance(text, str):
            return f"{column!r} is no text but {text!r:.60}"
    answer = reference_answer(solution) if answers == "number" else solution
    if answer is None:
        return f"{columns[1]!r} has no number: {solution[-60:]!r} should end in '#### N', or be N"
    return question, answer, solution


def _as_text(value: Any) -> Any:
    """A number, or a date that the reader made of a text, as text; anything else as it is."""
    if isinstance(value, bool) or (isinstance(value, float) and not abs(value) < 2**53):
        return value  # no number, or one that a float may have rounded
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    known = isinstance(value, int | float | Decimal | date)
    return str(value).removesuffix(" 00:00:00") if known else value


def chat_prompt(
    question: str,
    system_prompt: str | None = SYSTEM_PROMPT,
    examples: Sequence[tuple[str, str]] = (),
) -> list[dict[str, str]]:
    """The question as a conversation, after the system prompt and `examples` of (question, answer).

    One example is one-shot, several are few-shot. Without a system prompt (None or "") there is no
    system turn: then the template may add its own.
    """
    turns = [("system", system_prompt)] if system_prompt else []
    for asked, answered in examples:
        turns += [("user", asked), ("assistant", answered)]
    return [{"role": role, "content": text} for role, text in [*turns, ("user", question)]]


def fold_system(prompt: list[dict[str, str]]) -> list[dict[str, str]]:
    """The conversation with its system text at the start of the first user's turn."""
    if prompt[0]["role"] != "system":
        return prompt
    system, first, *rest = prompt
    return [{**first, "content": f"{system['content']}\n\n{first['content']}"}, *rest]


@_quiet()
def to_dataset(
    rows: "Dataset | list[dict]",
    system_prompt: str | None = SYSTEM_PROMPT,
    examples: Sequence[tuple[str, str]] = (),
    fold: bool = False,
) -> "Dataset":
    """The rows with `prompt` in front: prompt, answer, question, then every other column untouched.

    `fold` writes the system prompt into the user's turn (see `needs_folding`).
    """
    from datasets import Dataset

    dataset = Dataset.from_list(rows) if isinstance(rows, list) else rows
    if not {"question", "answer"} <= {*dataset.column_names}:
        there = ", ".join(map(repr, dataset.column_names)) or "none"
        raise WorkbookError(
            f"rows need the columns 'question' and 'answer' (there are: {there}): read them with "
            "load_problems, which renames"
        )

    def prompts(batch: dict) -> dict:
        made = [chat_prompt(question, system_prompt, examples) for question in batch["question"]]
        return {"prompt": [fold_system(prompt) for prompt in made] if fold else made}

    dataset = dataset.map(prompts, batched=True)
    order = dict.fromkeys(["prompt", "answer", "question", *dataset.column_names])
    return dataset.select_columns([*order])


def load_tokenizer(model: str | Path) -> "PreTrainedTokenizerBase":
    """The tokenizer of a folder or hub id, padding on the left; of a folder, without the network.

    Raises WorkbookError where there is none, or it has no chat template.
    """
    from transformers import AutoTokenizer

    here = Path(model).is_dir()
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", local_files_only=here)
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise WorkbookError(
            f"the tokenizer of {readable(model)!r} cannot be loaded ({first_line(error)}): check "
            "the name, and the network if it is a hub id"
        ) from error
    if not tokenizer.chat_template or len(tokenizer) < 100:  # without its vocabulary it is empty
        raise WorkbookError(
            f"{readable(model)!r} has no tokenizer with a chat template: name an instruction-tuned "
            "model, or copy the tokenizer's files there"
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def system_role(tokenizer: "PreTrainedTokenizerBase") -> str:
    """What the chat template does with a system message.

    "own turn", "in the user's turn" (Gemma), "refused" or "ignored"; the last two need folding.
    """
    from jinja2 import TemplateError

    try:
        text = render([chat_prompt("USER TEXT", "SYSTEM TEXT")], tokenizer)[0]
    except TemplateError:
        return "refused"
    _, found, after = text.partition("SYSTEM TEXT")
    if not found:
        return "ignored"
    return "own turn" if after.partition("USER TEXT")[0].strip() else "in the user's turn"


def needs_folding(tokenizer: "PreTrainedTokenizerBase") -> bool:
    """Whether the system prompt must open the user's turn: the template refuses or drops one."""
    return system_role(tokenizer) in ("refused", "ignored")


def render(prompts: Sequence[list[dict]], tokenizer: Any) -> list[str]:
    """Each conversation as the text that the model reads, up to where its own turn begins."""
    return tokenizer.apply_chat_template(
        list(prompts), tokenize=False, add_generation_prompt=True, **CHAT_TEMPLATE_KWARGS
    )


def prompt_lengths(dataset: "Dataset", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """Tokens of each prompt as the model sees it, template and generation prompt included."""
    lengths: list[int] = []
    for start in range(0, len(dataset), 1000):
        texts = render(dataset["prompt"][start : start + 1000], tokenizer)
        lengths += map(len, tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"])
    return lengths


def drop_long_prompts(
    dataset: "Dataset",
    tokenizer: "PreTrainedTokenizerBase",
    max_prompt_length: int,
    name: str = "the data",
) -> tuple["Dataset", int]:
    """(the rows whose prompt has at most so many tokens, how many have more). TRL truncates none.

    Raises WorkbookError when no row fits; `name` is what it calls the data.
    """
    lengths = prompt_lengths(dataset, tokenizer)
    fitting = [row for row, length in enumerate(lengths) if length <= max_prompt_length]
    if not fitting:
        raise WorkbookError(
            f"{name} has no prompt of at most {max_prompt_length} tokens (the shortest has "
            f"{min(lengths, default=0)}): raise --max-prompt-length"
        )
    return dataset.select(fitting), len(lengths) - len(fitting)


@_quiet()
def split(
    dataset: "Dataset", heldout: int, seed: int, by: str = "length"
) -> tuple["Dataset", "Dataset"]:
    """(train, held-out): `heldout` rows, at most a fifth, are held out; the same for the same seed.

    `by` names what both parts have at equal rates: a column (difficulty, topic), or "length" for
    four equal buckets of the question's length. Raises WorkbookError where that cannot be.
    """
    import pandas as pd

    count = min(heldout, len(dataset) // 5)
    if count < 1:
        raise WorkbookError(
            f"{heldout} of {len(dataset)} rows cannot be held out: give 5 rows or more, and hold "
            "out at least 1"
        )
    if by == "length":
        lengths = pd.Series(dataset["question"][:]).str.len().rank(method="first")
        strata = pd.Series(pd.qcut(lengths, min(4, count), labels=False))
    elif by in dataset.column_names:
        strata = pd.Series(dataset[by][:])
    else:
        raise WorkbookError(f"no column {by!r} to split by: choose from {dataset.column_names}")
    marked = dataset.add_column("_stratum", strata.astype(str).tolist())
    try:
        marked = marked.class_encode_column("_stratum")
        parts = marked.train_test_split(count, seed=seed, stratify_by_column="_stratum")
    except ValueError as error:
        raise WorkbookError(f"the rows cannot be split by {by!r}: {first_line(error)}") from None
    train, held = (parts[name].remove_columns("_stratum") for name in ("train", "test"))
    return train, held


def load_split(
    run: RunConfig, data: Any = None, heldout_data: Any = None, **reading
) -> tuple["Dataset", "Dataset", int]:
    """(training rows, held-out rows, leaked training rows dropped); without data the course's own.

    `reading` is what `load_problems` takes; it is for the user's data.
    """
    if data is not None and heldout_data is None:
        train, heldout = split(load_problems(data, **reading), run.heldout, run.seed)
    else:
        train, heldout = (
            load_problems(given, **reading) if given else load_problems(WORD_PROBLEMS[name])
            for name, given in (("train", data), ("heldout", heldout_data))
        )
        heldout = heldout.select(range(min(run.heldout, len(heldout))))
    train, leaked = drop_leaked(train, heldout)
    return train, heldout, leaked


def sha256_of(*parts: Iterable[dict]) -> str:
    """A hash of the rows of all parts in order: a report says by it what it was measured on.

    The order of a row's columns does not count; what JSON cannot hold counts by its text.
    """
    found = hashlib.sha256()
    for row in (row for part in parts for row in part):
        text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
        found.update(text.encode() + b"\n")
    return found.hexdigest()
