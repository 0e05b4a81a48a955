"""Load problems: every row of a source checked, its final answer extracted, all of it in a memory-mapped dataset.

Rows out have `question`, `answer` (what rewards compare with), `solution` (the answer as the source has it), and the
source's other columns untouched.
"""

import difflib
import itertools
import math
import numbers
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from grpo_workbook.answers import reference_answer
from grpo_workbook.errors import WorkbookError
from grpo_workbook.readers import Fault
from grpo_workbook.sources import Source, open_source
from grpo_workbook.table import to_table

if TYPE_CHECKING:
    from datasets import Dataset

KINDS = ("auto", "number", "text")
ASKED = "as asked"  # the reason for a kind that was not guessed
PEEK = 1000  # rows that decide what "auto" means
KEPT = 1000  # problems of a file that are kept word for word; all are counted
# Columns that this course or TRL's trainer fills itself: a source's own goes on under another name.
TAKEN = frozenset(
    "prompt question answer solution prompts completion completions completion_ids trainer_state log_extra log_metric "
    "image images environment environments".split()
)
# What others call these columns, for the hint.
ELSEWHERE = {
    "--question-column": "question problem prompt query instruction input frage aufgabe pregunta domanda "
    "pergunta".split(),
    "--answer-column": "answer expert_answer solution response output target label antwort lösung réponse respuesta "
    "risposta resposta".split(),
}


@dataclass
class Loaded:
    """What `load` found: `faults` are (place, Fault) of rows that cannot be used; `places` numbers those that can."""

    dataset: "Dataset"
    source: Source
    kind: str  # of the answers: "number" or "text"
    kind_reason: str
    faults: list[tuple[str, Fault]] = field(default_factory=list)
    fault_counts: Counter = field(default_factory=Counter)
    places: array = field(default_factory=lambda: array("q"))
    notes: list[str] = field(default_factory=list)

    def place(self, index: int) -> str:
        """Where the dataset's row came from: `my.jsonl, line 17`."""
        return self.source.place(self.places[index])


def load(
    source,
    *,
    question_column: str = "question",
    answer_column: str = "answer",
    answers: str = "auto",
    skip_invalid: bool = False,
    seed: int = 0,
    progress: bool = False,
) -> Loaded:
    """Read and check every row of a source (see sources.open_source).

    `answers` says what an answer is. "number": the number after the last `####`, or the whole text if it is one; any
    other row is invalid. "text": any text. "auto": "number" if at least half of the first 1,000 answers are numbers or
    hold a `####`. A JSON number counts as its text.

    Raises WorkbookError with source and row for the first invalid row (how many more there are, too), unless
    `skip_invalid`; and always when no row is left.
    """
    if answers not in KINDS:
        raise WorkbookError(
            f"unknown kind of answers {answers!r}: choose one of {', '.join(KINDS)}"
        )
    opened = open_source(source, seed)
    columns = question_column, answer_column
    if opened.columns is not None:
        _check_columns(opened, columns)
    kind, reason = (answers, ASKED) if answers != "auto" else _guess(opened, columns)
    loaded = Loaded(None, opened, kind, reason)
    schema = _other_columns(opened.schema, columns)
    dataset, as_json = to_table(lambda: _checked(loaded, columns, progress), schema)
    if dataset is None or (loaded.faults and not skip_invalid):
        _give_up(loaded, dataset)
    loaded.dataset = dataset
    loaded.notes += [
        f"column {name!r} holds what no one type of column can: kept as JSON text"
        for name in as_json
    ]
    return loaded


def _check_columns(source: Source, wanted: tuple[str, str]) -> None:
    for name, option in zip(wanted, ("--question-column", "--answer-column"), strict=True):
        if name not in source.columns:
            raise WorkbookError(f"{source.name}: {_no_column(name, source.columns, option)}")


def _no_column(name: str, present: list[str], option: str) -> str:
    lowered = {p.lower().strip(): p for p in present}
    near = [n for n in ELSEWHERE.get(option, ()) if n in lowered]
    near = near or difflib.get_close_matches(name.lower(), lowered, n=1, cutoff=0.5)
    hint = f" (such as {option} {lowered[near[0]]!r})" if near else ""
    return f"no {name!r} among {sorted(present)}: rename the column, fill it in, or name it with {option}{hint}"


def _other_columns(schema, columns: tuple[str, str]):
    """The types of the columns that stay as they are, under the names they will have."""
    if schema is None:
        return None
    import pyarrow as pa

    core = [pa.field(name, pa.string()) for name in ("question", "answer", "solution")]
    rest = [f for f in schema if f.name not in columns]
    return pa.schema([*core, *(f.with_name(_free(f.name, schema.names)) for f in rest)])


def _free(name: str, names: Iterable[str]) -> str:
    """The name that a source's own column goes on under; `names` are all of its columns."""
    if name not in TAKEN:
        return name
    name += "_original"
    while name in names:
        name += "_"
    return name


def _guess(source: Source, columns: tuple[str, str]) -> tuple[str, str]:
    """(number or text, why), by the first rows."""
    rows = (row for _, row in itertools.islice(source.rows(), PEEK) if isinstance(row, dict))
    found = [
        text
        for row in rows
        if isinstance(text := _as_text(row.get(columns[1])), str) and text.strip()
    ]
    numbers = sum("####" in text or reference_answer(text) is not None for text in found)
    kind = "number" if 2 * numbers >= len(found) else "text"
    return kind, f"{numbers:,} of the first {len(found):,} answers are numbers or hold a ####"


def _checked(loaded: Loaded, columns: tuple[str, str], progress: bool) -> Iterator[dict]:
    """The usable rows; what is wrong with the others goes to `loaded`."""
    from tqdm import tqdm

    loaded.faults, loaded.fault_counts, loaded.places, loaded.notes = [], Counter(), array("q"), []
    renamed: set[str] = set()
    bar = tqdm(
        loaded.source.rows(),
        "reading",
        unit="row",
        ncols=80,
        leave=False,
        delay=2,
        disable=not progress,
        mininterval=1,
    )
    for number, row in bar:
        fault = row if isinstance(row, Fault) else None
        if fault is None:
            row = _problem(row, columns, loaded.kind)
            fault = row if isinstance(row, Fault) else None
        if fault is None:
            loaded.places.append(number)
            renamed.update(name for name in row if name.rstrip("_").endswith("_original"))
            yield row
            continue
        loaded.fault_counts[fault.kind] += 1
        if len(loaded.faults) < KEPT:
            loaded.faults.append((loaded.source.place(number, fault.line), fault))
    loaded.notes += [
        f"column {name.rstrip('_').removesuffix('_original')!r} goes on as {name!r}: the course or TRL fills the first"
        for name in sorted(renamed)
        if name.rstrip("_").removesuffix("_original") in TAKEN
    ]


def _problem(row: dict, columns: tuple[str, str], kind: str) -> dict | Fault:
    """The row with `question`, `answer` and `solution` first, or why it is none."""
    texts = []
    for name, option in zip(columns, ("--question-column", "--answer-column"), strict=True):
        if name not in row:
            return Fault("missing field", _no_column(name, [str(k) for k in row], option))
        text = _as_text(row[name]) if option == "--answer-column" else row[name]
        if text is None or text == "" or (isinstance(text, str) and not text.strip()):
            return Fault("empty field", f"{name!r} is {row[name]!r}: it must be a non-empty text")
        if not isinstance(text, str):
            return Fault(
                "not text", f"{name!r} is {_short(row[name])}: it must be a non-empty text"
            )
        if "\x00" in text:
            return Fault("null bytes", f"{name!r} holds a null character: take it out")
        texts.append(text)
    question, solution = texts
    try:
        (question + solution).encode()
    except UnicodeEncodeError as error:
        return Fault(
            "broken character",
            f"holds half of a surrogate pair ({error.object[error.start]!r}): write it again",
        )
    answer = reference_answer(solution) if kind == "number" else solution
    if answer is None:
        return Fault(
            "no number",
            f"no number in the answer {_short(solution[-60:])}: end it in '#### N', or give N",
        )
    others = {_free(name, row): value for name, value in row.items() if name not in columns}
    return {"question": question, "answer": answer, "solution": solution, **others}


def _as_text(value: object) -> object:
    """A number (JSON's, NumPy's, a Decimal) as its exact text; anything else as it is."""
    try:
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return str(value)
        if (
            isinstance(value, numbers.Real | Decimal)
            and math.isfinite(value)
            and not isinstance(value, bool)
        ):
            return format(Decimal(str(value)), "f")
    except (ValueError, InvalidOperation):  # more digits than Python writes; a Fraction
        pass
    return value


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= 80 else text[:77] + "..."


def _give_up(loaded: Loaded, dataset: "Dataset | None") -> None:
    name, bad = loaded.source.name, loaded.fault_counts.total()
    if not bad:
        raise WorkbookError(f"{name} has no rows: it is empty but for blank lines or a header")
    place, fault = loaded.faults[0]
    message = f"{place}: {fault.text}"
    if dataset is None and bad > 1:
        raise WorkbookError(f"none of the {bad:,} rows can be used. The first: {message}")
    if bad > 1:
        more = "1 more row is" if bad == 2 else f"{bad - 1:,} more rows are"
        message += f" ({more} invalid: check-data lists them, --skip-invalid drops them)"
    elif dataset is not None:
        message += " (or drop it with --skip-invalid)"
    raise WorkbookError(message)
