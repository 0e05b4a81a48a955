"""Files of problems, row by row with their places: JSONL and Parquet (CSV: csv_reader.py); texts may be .gz.

A reader yields `(number, row)`, and `(number, Fault)` for a row that cannot be read; what makes the whole file
unreadable raises WorkbookError. Nothing is held but the row at hand, so a file may be larger than the memory.
"""

import contextlib
import gzip
import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from grpo_workbook.errors import WorkbookError, first_line

MAX_ROW_BYTES = 64 * 2**20  # a longer "line" is no text file
MAX_DEPTH = 32  # of lists and objects in one another


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a row cannot be used: `kind` is what a report counts, `text` says it, `line` is the line if not the row."""

    kind: str
    text: str
    line: int | None = None


Rows = Iterator[tuple[int, dict | Fault]]


def read_jsonl(path: Path) -> Rows:
    """One JSON object a line, numbered by line. A .json file may be one array instead, numbered by element."""
    if _is_array(path):
        yield from _read_array(path)
        return
    for number, line in lines(path):
        if line.strip():
            yield number, _parse(line)


def _parse(line: bytes) -> dict | Fault:
    if b"\x00" in line:
        return Fault("null bytes", "holds null bytes: the file was cut or damaged, write it again")
    try:
        row = _DECODER.decode(line.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as error:
        return not_utf8(line[error.start], error.start)
    except RecursionError:
        return Fault("too deep", f"nested too deeply (more than {MAX_DEPTH} levels): flatten it")
    except json.JSONDecodeError as error:
        cut = (
            ""
            if line.endswith(b"\n")
            else "; the file ends inside this line, so it may have been cut short"
        )
        return Fault(
            "not JSON",
            f"not JSON ({error.msg}, character {error.pos + 1}){cut}: every line must be one JSON object",
        )
    except _Refused as error:
        return error.fault
    except ValueError as error:  # NaN, or a number of more digits than Python reads
        return Fault(
            "not JSON", f"not JSON ({str(error).split(':')[0]}): every line must be one JSON object"
        )
    # An escape can hold half of a pair that only together is a character.
    if b"\\ud" in line.lower() and not _is_text(row):
        return Fault(
            "broken character",
            "holds half of a surrogate pair (\\ud83d or the like): write it again as UTF-8",
        )
    return check_row(row)


def check_row(row: object) -> dict | Fault:
    """The row itself when it is an object that a table can hold, else what is wrong with it."""
    if not isinstance(row, dict):
        return Fault(
            "not an object",
            f"a {type(row).__name__}, not a JSON object with 'question' and 'answer'",
        )
    nested = [v for v in row.values() if isinstance(v, list | dict)]
    for _ in range(MAX_DEPTH):
        if not nested:
            return row
        inside = (v.values() if isinstance(v, dict) else v for v in nested)
        nested = [v for values in inside for v in values if isinstance(v, list | dict)]
    return Fault("too deep", f"nested too deeply (more than {MAX_DEPTH} levels): flatten it")


def check_object(row: object) -> dict | Fault:
    """`check_row` for what came from Python and not out of a file: its keys and texts are checked too."""
    row = check_row(row)
    if isinstance(row, Fault):
        return row
    odd = [name for name in row if not isinstance(name, str)]
    if odd:
        return Fault(
            "not an object",
            f"the name {odd[0]!r} is a {type(odd[0]).__name__}: names must be texts",
        )
    try:
        text = _is_text(row)
    except ValueError as error:
        return Fault(
            "too large",
            f"holds a number that cannot be written ({str(error).split(';')[0]}): make it a text",
        )
    return (
        row if text else Fault("broken character", "holds half of a surrogate pair: write it again")
    )


class _Refused(ValueError):
    """Valid to Python's JSON reader, and yet not what the file says."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.fault = Fault(kind, text)


def _no_constant(name: str):
    raise ValueError(f"{name} is no JSON value")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused(
            "too large", f"the number {text[:40]} is larger than a float can be: make it a text"
        )
    return value


def _object(pairs: list[tuple]) -> dict:
    made = dict(pairs)
    if len(made) != len(pairs):
        twice = next(name for name in made if sum(name == other for other, _ in pairs) > 1)
        raise _Refused("repeated key", f"{twice!r} stands there twice: keep one")
    return made


_DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object
)


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False, default=str, skipkeys=True).encode()
    except UnicodeEncodeError:
        return False
    return True


def not_utf8(byte: int, place: int) -> Fault:
    """The fault of a row with this byte at this place of it, from 0."""
    return Fault(
        "not UTF-8",
        f"not UTF-8 (byte 0x{byte:02x} at place {place + 1}): save the file as UTF-8 text",
    )


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, out of their .gz."""
    try:
        with gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb") as file:
            yield file
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkbookError(f"{path} is no whole gzip file ({error}): copy it again") from None


def _is_array(path: Path) -> bool:
    if not path.name.lower().removesuffix(".gz").endswith(".json"):
        return False
    with _opened(path) as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _read_array(path: Path) -> Rows:
    try:
        with _opened(path) as file:
            rows = _DECODER.decode(file.read().decode("utf-8-sig"))
    except WorkbookError:
        raise
    except _Refused as error:
        raise WorkbookError(f"{path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise WorkbookError(
            f"{path} starts as a JSON array and is none ({error}): write one JSON object a line (.jsonl)"
        ) from None
    for number, row in enumerate(rows, 1):
        if not _is_text(row):
            yield (
                number,
                Fault(
                    "broken character",
                    "holds half of a surrogate pair: write the file again as UTF-8",
                ),
            )
        else:
            yield number, check_row(row)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line with its end) of a text file; a byte order mark is taken off."""
    with _opened(path) as file:
        number = 0
        # Split at \n alone: other line separators may stand inside a text.
        while line := file.readline(MAX_ROW_BYTES + 1):
            number += 1
            if len(line) > MAX_ROW_BYTES:
                raise WorkbookError(
                    f"{path.name}, line {number}: longer than {MAX_ROW_BYTES // 2**20} MiB: is this a text file?"
                )
            if number == 1:
                null = [byte == 0 for byte in line[:4]]
                if line.startswith((b"\xff\xfe", b"\xfe\xff")) or null in (
                    [True, False] * 2,
                    [False, True] * 2,
                ):
                    raise WorkbookError(
                        f"{path} is UTF-16 (its first bytes say so): save it as UTF-8 text"
                    )
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line


def open_parquet(path: Path):
    """(Arrow schema, function that yields the rows numbered from 1). WorkbookError for no Parquet, or a name twice."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def damaged(error: Exception) -> WorkbookError:
        return WorkbookError(
            f"{path} is no Parquet file ({first_line(error)}): copy or write it again"
        )

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise damaged(error) from None
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise WorkbookError(
            f"{path}: two columns are called {', '.join(map(repr, twice))}: rename one"
        )

    def rows() -> Rows:
        number = 0
        try:
            with pq.ParquetFile(path, memory_map=True) as file:
                for batch in file.iter_batches(batch_size=1000):
                    for row in batch.to_pylist():
                        number += 1
                        yield number, row
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise damaged(error) from None
        except KeyError as error:  # pytz and zoneinfo raise it for a time zone
            raise WorkbookError(
                f"{path}: unknown time zone {error}: write the column in UTC"
            ) from None

    return schema, rows
