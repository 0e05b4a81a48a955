"""Files of problems, row by row with their places: JSONL, CSV and Parquet, plain or (but for Parquet) as .gz.

A reader yields `(number, row)`, and `(number, Fault)` for a row that cannot be read; what makes the whole file
unreadable raises WorkbookError. Nothing is held but the row at hand, so a file may be larger than the memory.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from grpo_workbook.run import WorkbookError

MAX_ROW_BYTES = 64 * 2**20  # a longer "line" is no text file
MAX_DEPTH = 32  # of lists and objects in one another
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


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
    for number, line in _lines(path):
        if line.strip():
            yield number, _parse(line)


def _parse(line: bytes) -> dict | Fault:
    if b"\x00" in line:
        return Fault("null bytes", "holds null bytes: the file was cut or damaged, write it again")
    try:
        row = _DECODER.decode(line.rstrip(b"\r\n").decode("utf-8"))
    except UnicodeDecodeError as error:
        return _not_utf8(line[error.start], error.start)
    except RecursionError:
        return Fault("too deep", f"nested too deeply (more than {MAX_DEPTH} levels): flatten it")
    except json.JSONDecodeError as error:
        cut = "" if line.endswith(b"\n") else "; the file ends inside this line, so it may have been cut short"
        return Fault(
            "not JSON", f"not JSON ({error.msg}, character {error.pos + 1}){cut}: every line must be one JSON object"
        )
    except ValueError as error:  # NaN, or a number of more digits than Python reads
        return Fault("not JSON", f"not JSON ({str(error).split(':')[0]}): every line must be one JSON object")
    # An escape can hold half of a pair that only together is a character.
    if b"\\ud" in line.lower() and not _is_text(row):
        return Fault(
            "broken character", "holds half of a surrogate pair (\\ud83d or the like): write it again as UTF-8"
        )
    return check_row(row)


def check_row(row: object) -> dict | Fault:
    """The row itself when it is an object that a table can hold, else what is wrong with it."""
    if not isinstance(row, dict):
        return Fault("not an object", f"a {type(row).__name__}, not a JSON object with 'question' and 'answer'")
    nested = [v for v in row.values() if isinstance(v, list | dict)]
    for _ in range(MAX_DEPTH):
        if not nested:
            return row
        inside = (v.values() if isinstance(v, dict) else v for v in nested)
        nested = [v for values in inside for v in values if isinstance(v, list | dict)]
    return Fault("too deep", f"nested too deeply (more than {MAX_DEPTH} levels): flatten it")


def _no_constant(name: str):
    raise ValueError(f"{name} is no JSON value")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _not_utf8(byte: int, place: int) -> Fault:
    return Fault("not UTF-8", f"not UTF-8 (byte 0x{byte:02x} at place {place + 1}): save the file as UTF-8 text")


def _is_array(path: Path) -> bool:
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        return file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["


def _read_array(path: Path) -> Rows:
    try:
        rows = _DECODER.decode(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise WorkbookError(
            f"{path} starts as a JSON array and is none ({error}): write one JSON object a line (.jsonl)"
        ) from None
    for number, row in enumerate(rows, 1):
        if not _is_text(row):
            yield number, Fault("broken character", "holds half of a surrogate pair: write the file again as UTF-8")
        else:
            yield number, check_row(row)


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, line with its end) of a text file; a byte order mark is taken off."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            number = 0
            # Split at \n alone: other line separators may stand inside a text.
            while line := file.readline(MAX_ROW_BYTES + 1):
                number += 1
                if len(line) > MAX_ROW_BYTES:
                    raise WorkbookError(
                        f"{path.name}, line {number}: longer than {MAX_ROW_BYTES // 2**20} MiB: is this a text file?"
                    )
                if number == 1:
                    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                        raise WorkbookError(f"{path} is UTF-16 (its first bytes say so): save it as UTF-8 text")
                    line = line.removeprefix(b"\xef\xbb\xbf")
                yield number, line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise WorkbookError(f"{path} is no whole gzip file ({error}): copy it again") from None


def read_csv(path: Path) -> Rows:
    """The rows under a CSV file's header, numbered from 1 without it; a quoted field may hold line ends.

    The separator is the one of comma, semicolon, tab and bar that cuts the header into most columns.
    """
    lines, reader, separator, header = _begin_csv(path)
    number = 0
    while True:
        start = lines.number + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise WorkbookError(f"{path.name}, row {number + 1} (line {start}): {_quoting(error)}") from None
        if fields is None:
            return
        if fields:  # not a blank line
            number += 1
            yield number, _csv_row(header, fields, separator, start)


def csv_columns(path: Path) -> list[str]:
    """The names in the header."""
    return _begin_csv(path)[3]


def _begin_csv(path: Path):
    """(lines, reader that stands behind the header, separator, header)."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    lines = _CsvLines(path)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise WorkbookError(f"{path} has no rows: give a CSV file whose first line names the columns")
    if "\r" in first.rstrip("\r\n"):
        raise WorkbookError(f"{path} ends its lines with \\r alone: save it with \\n or \\r\\n")
    separator = max(SEPARATORS, key=lambda s: len(next(csv.reader([first], delimiter=s))))
    lines.push_back(first)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        fields = next(reader)
    except csv.Error as error:
        raise WorkbookError(f"{path}, the header: {_quoting(error)}") from None
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        raise WorkbookError(f"{path}: the header is not UTF-8: save the file as UTF-8 text") from None
    header = [name.strip() or f"column_{place}" for place, name in enumerate(fields, 1)]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise WorkbookError(f"{path}: two columns are called {', '.join(map(repr, twice))}: rename one")
    return lines, reader, separator, header


def _csv_row(header: list[str], fields: list[str], separator: str, line: int) -> dict | Fault:
    if len(fields) != len(header):
        text = f"{len(fields)} fields where the header has {len(header)} (separator: {SEPARATORS[separator]}): "
        return Fault("ragged", text + "quote a field that holds the separator, or fill in what is missing", line)
    try:
        "".join(fields).encode()
    except UnicodeEncodeError as error:
        text = "".join(fields)
        return Fault("not UTF-8", _not_utf8(ord(text[error.start]) - 0xDC00, error.start).text, line)
    return dict(zip(header, fields, strict=True))


def _quoting(error: csv.Error) -> str:
    if "unexpected end of data" in str(error):
        return "a quoted field begins here and is never closed: double the quotes inside a field"
    return f'{error}: inside a quoted field write "" for each quote'


class _CsvLines:
    """The lines of a file as text, counted; bytes that are no UTF-8 stay recognisable in it."""

    def __init__(self, path: Path):
        self._lines, self.number, self._kept = _lines(path), 0, None

    def __iter__(self):
        return self

    def __next__(self) -> str:
        self.number += 1
        if self._kept is not None:
            line, self._kept = self._kept, None
            return line
        try:
            return next(self._lines)[1].decode("utf-8", "surrogateescape")
        except StopIteration:
            self.number -= 1
            raise

    def push_back(self, line: str) -> None:
        self._kept = line
        self.number -= 1


def open_parquet(path: Path):
    """(Arrow schema, function that yields the rows numbered from 1)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def damaged(error: Exception) -> WorkbookError:
        return WorkbookError(f"{path} is no Parquet file ({str(error).splitlines()[0]}): copy or write it again")

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise damaged(error) from None

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

    return schema, rows
