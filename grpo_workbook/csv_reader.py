"""CSV files row by row: the separator, the header, quoted fields with line ends in them, and whatever can be wrong."""

import csv
from pathlib import Path

from grpo_workbook.errors import WorkbookError
from grpo_workbook.readers import MAX_ROW_BYTES, Fault, Rows, lines, not_utf8

SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def read_csv(path: Path) -> Rows:
    """The rows under a CSV file's header, numbered from 1 without it; a quoted field may hold line ends.

    The separator is the one of comma, semicolon, tab and bar that cuts the header into most columns; in a .tsv file it
    is the tab. Raises WorkbookError for a file whose header or quoting cannot be read; a row that cannot is a Fault.
    """
    lines, reader, separator, header = _begin_csv(path)
    number = 0
    while True:
        start = lines.number + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            if "new-line character" not in str(error):
                raise WorkbookError(
                    f"{path.name}, row {number + 1} (line {start}): {_quoting(error)}"
                ) from None
            number += 1
            yield (
                number,
                Fault(
                    "stray \\r",
                    "holds a \\r outside of quotes: quote the field, or take it out",
                    start,
                ),
            )
            continue
        if fields is None:
            return
        if len(fields) > 1 or (
            fields and (fields[0].strip() or len(header) == 1)
        ):  # not a blank line
            number += 1
            yield number, _csv_row(header, fields, separator, start)


def csv_columns(path: Path) -> list[str]:
    """The names in the header. Raises WorkbookError where there is none that can be read."""
    return _begin_csv(path)[3]


def _begin_csv(path: Path):
    """(lines, reader that stands behind the header, separator, header)."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    lines = _CsvLines(path)
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        raise WorkbookError(
            f"{path} has no rows: give a CSV file whose first line names the columns"
        )
    if "\r" in first.rstrip("\r\n"):
        raise WorkbookError(f"{path} ends its lines with \\r alone: save it with \\n or \\r\\n")
    tabs = path.name.lower().removesuffix(".gz").endswith(".tsv") and "\t" in first
    separator = (
        "\t" if tabs else max(SEPARATORS, key=lambda s: len(next(csv.reader([first], delimiter=s))))
    )
    lines.push_back(first)
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        fields = next(reader)
    except csv.Error as error:
        raise WorkbookError(f"{path}, the header: {_quoting(error)}") from None
    try:
        "".join(fields).encode()
    except UnicodeEncodeError:
        raise WorkbookError(
            f"{path}: the header is not UTF-8: save the file as UTF-8 text"
        ) from None
    header = [name.strip() or f"column_{place}" for place, name in enumerate(fields, 1)]
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        raise WorkbookError(
            f"{path}: two columns are called {', '.join(map(repr, twice))}: rename one"
        )
    return lines, reader, separator, header


def _csv_row(header: list[str], fields: list[str], separator: str, line: int) -> dict | Fault:
    if len(fields) != len(header):
        text = f"{len(fields)} fields where the header has {len(header)} (separator: {SEPARATORS[separator]}): "
        return Fault(
            "ragged",
            text + "quote a field that holds the separator, or fill in what is missing",
            line,
        )
    try:
        "".join(fields).encode()
    except UnicodeEncodeError as error:
        text = "".join(fields)
        return Fault("not UTF-8", not_utf8(ord(text[error.start]) - 0xDC00, error.start).text, line)
    if any("\x00" in field for field in fields):
        return Fault(
            "null bytes", "holds null bytes: the file was cut or damaged, write it again", line
        )
    return dict(zip(header, fields, strict=True))


def _quoting(error: csv.Error) -> str:
    if "unexpected end of data" in str(error):
        return "a quoted field begins here and is never closed: double the quotes inside a field"
    return f'{error}: inside a quoted field write "" for each quote'


class _CsvLines:
    """The lines of a file as text, counted; bytes that are no UTF-8 stay recognisable in it."""

    def __init__(self, path: Path):
        self._lines, self.number, self._kept = lines(path), 0, None

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
