"""Any source of problems as one stream of rows: files, the hub, `datasets` objects, reasoning-gym's procedural tasks.

A source is named by a text: a file (`my.jsonl`, `my.csv`, `my.parquet`), a hub id (`openai/gsm8k`,
`openai/gsm8k:main:test` with configuration and split), or `reasoning-gym:chain_sum,size=500,seed=1`. A Dataset of
`datasets` and a list of dicts are sources too.
"""

import difflib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.csv_reader import csv_columns, read_csv
from grpo_workbook.errors import WorkbookError
from grpo_workbook.readers import Fault, Rows, check_object, open_parquet, read_jsonl

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

FORMATS = {
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_jsonl,
    ".csv": read_csv,
    ".tsv": read_csv,
}
GYM = "reasoning-gym:"
GYM_SIZE = 1000
GYM_MOST = 10_000_000
_HUB_ID = re.compile(
    r"(?P<id>[\w.-]+/[\w.-]+)(?::(?P<config>[\w.-]*))?(?::(?P<split>[\w.\[\]:%-]+))?"
)


@dataclass(frozen=True)
class Source:
    """Rows that can be read again from the start. `unit` is what their numbers count: "line" or "row"."""

    name: str
    rows: Callable[[], Rows]
    unit: str = "row"
    schema: "pa.Schema | None" = None  # the columns' types, where the source knows them
    columns: list[str] | None = None  # their names, where every row has the same

    def place(self, number: int, line: int | None = None) -> str:
        """How an error names a row: `my.csv, row 3 (line 7)`."""
        return f"{self.name}, {self.unit} {number}" + (
            f" (line {line})" if line is not None else ""
        )


def open_source(source: "str | Path | Dataset | Sequence[dict] | Source", seed: int = 0) -> Source:
    """The source as a stream of rows. `seed` is that of procedural tasks that name none.

    Raises WorkbookError for a file that is missing, a folder, or of an unknown format, an unknown task, and a hub id
    when there is no connection. What is wrong inside a file shows while it is read.
    """
    if isinstance(source, Source):
        return source
    if isinstance(source, str | Path):
        return _open_name(str(source), seed)
    if hasattr(source, "features") and hasattr(source, "iter"):
        return _open_dataset(source)
    if isinstance(source, dict):  # a DatasetDict is one
        raise WorkbookError(
            f"the data has several splits ({', '.join(map(str, source))}): give one of them"
        )
    if isinstance(source, Sequence):
        return Source(
            "the list", lambda: ((n, check_object(row)) for n, row in enumerate(source, 1))
        )
    raise WorkbookError(
        f"a {type(source).__name__} is no source: give a file's name, a Dataset or a list of dicts"
    )


def _open_name(name: str, seed: int) -> Source:
    if name.startswith(GYM):
        return _open_gym(name, seed)
    try:
        path = Path(name).expanduser()
    except RuntimeError:
        raise WorkbookError(f"{name}: there is no user of that name: give the whole path") from None
    if os.path.isdir(path):
        inside = sorted(p.name for p in path.iterdir() if _format(p) in {*FORMATS, ".parquet"})
        holds = f"it holds {', '.join(inside[:5])}" if inside else "it holds none"
        raise WorkbookError(f"{path} is a folder: name one data file ({holds})")
    if os.path.exists(path):
        return _open_file(path)
    hub = _HUB_ID.fullmatch(name)
    if hub and _format(Path(name)) not in {*FORMATS, ".parquet"}:
        return _open_hub(hub["id"], hub["config"] or None, hub["split"] or "train")
    near = difflib.get_close_matches(path.name, _names_beside(path), n=1)
    hint = f" (is it {near[0]}?)" if near else ""
    raise WorkbookError(
        f"data file {path} does not exist{hint}: give a .jsonl, .csv or .parquet file with 'question' and 'answer'"
    )


def _names_beside(path: Path) -> list[str]:
    try:
        return [p.name for p in path.parent.iterdir()]
    except OSError:
        return []


def _format(path: Path) -> str:
    """The suffix that says the format: that before .gz."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() == ".gz" else path.suffix.lower()


def _open_file(path: Path) -> Source:
    kind = _format(path)
    try:
        with path.open("rb") as file:
            empty = not file.read(1)
    except OSError as error:
        raise WorkbookError(
            f"{path} cannot be read ({error.strerror}): check its permissions"
        ) from None
    if empty:
        raise WorkbookError(
            f"{path} is empty: give a file with 'question' and 'answer' in every row"
        )
    if kind == ".parquet":
        schema, rows = open_parquet(path)
        return Source(path.name, rows, "row", schema, schema.names)
    if kind not in FORMATS:
        raise WorkbookError(
            f"{path} is of an unknown kind {kind!r}: name it {', '.join((*FORMATS, '.parquet'))}"
        )
    reader = FORMATS[kind]
    if reader is read_csv:
        return Source(path.name, lambda: read_csv(path), columns=csv_columns(path))
    return Source(path.name, lambda: reader(path), "line")


def _open_dataset(dataset: "Dataset", name: str = "the dataset") -> Source:
    features = getattr(dataset.features, "arrow_schema", None)

    def rows() -> Rows:
        number = 0
        for batch in dataset.iter(1000):
            for values in zip(*batch.values(), strict=True):
                number += 1
                yield number, dict(zip(batch, values, strict=True))

    return Source(name, rows, "row", features, list(dataset.features))


def _open_gym(name: str, seed: int) -> Source:
    """reasoning-gym:TASK,size=N,seed=N and any other setting of the task."""
    from reasoning_gym import create_dataset
    from reasoning_gym.factory import DATASETS

    task, *settings = name.removeprefix(GYM).split(",")
    if task not in DATASETS:
        near = difflib.get_close_matches(task, DATASETS, n=3)
        raise WorkbookError(
            f"reasoning-gym has no task {task!r}: {'did you mean ' + ', '.join(near) if near else 'see its gallery'}"
        )
    chosen: dict = {"size": GYM_SIZE, "seed": seed}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not re.fullmatch(r"-?\d{1,18}(\.\d{1,18})?|true|false", value):
            raise WorkbookError(
                f"{setting!r} in {name!r}: write settings as name=number, such as size=500"
            )
        chosen[key] = (
            {"true": True, "false": False}.get(value) if value.isalpha() else _number(value)
        )
    for key in ("size", "seed"):
        if type(chosen[key]) is not int:
            raise WorkbookError(f"{key}={chosen[key]} in {name!r}: give a whole number")
    if chosen["size"] > GYM_MOST:
        raise WorkbookError(f"size={chosen['size']} in {name!r}: give at most {GYM_MOST:,}")
    try:
        made = create_dataset(task, **chosen)
    except (TypeError, AssertionError, ValueError) as error:
        raise WorkbookError(
            f"reasoning-gym's {task} takes no such settings ({error}): mend {name!r}"
        ) from None

    def row(number: int) -> dict | Fault:
        entry = made[number - 1]
        return {
            key: value for key, value in entry.items() if key in ("question", "answer", "metadata")
        }

    return Source(f"{GYM}{task}", lambda: ((n, row(n)) for n in range(1, chosen["size"] + 1)))


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _open_hub(repository: str, config: str | None, split: str) -> Source:
    """A split of a data set on the Hugging Face hub; its own code is never run (datasets 4 has no such switch)."""
    if reason := why_offline():
        raise WorkbookError(
            f"there is no file {repository}, and as a hub id it cannot be loaded: {reason}. Give a file, or go online"
        )
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError

    try:
        dataset = load_dataset(repository, config, split=split)
    except (
        OSError,
        ValueError,
        RuntimeError,
        DatasetsError,
    ) as error:  # not found, gated, no such configuration or split
        said = " ".join(str(error).split())[:300]
        raise WorkbookError(
            f"{repository} cannot be loaded from the hub ({said}): name configuration and split as in "
            "openai/gsm8k:main:train"
        ) from error
    return _open_dataset(dataset, repository)


def why_offline(timeout: float = 5.0) -> str | None:
    """Why the hub cannot be asked, or None. Known at once, where the hub's client would try again for half a minute."""
    import socket
    from urllib.parse import urlsplit

    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    if any(
        os.environ.get(name) for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
    ):
        return None  # only the proxy can say
    address = urlsplit(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")
    try:
        socket.create_connection((address.hostname, address.port or 443), timeout).close()
    except OSError as error:
        return f"{address.hostname} does not answer ({error.strerror or error})"
    return None
