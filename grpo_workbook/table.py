"""Write a stream of rows into an Arrow file and map it: a dataset of ten million rows takes disk, not memory.

Rows of one file need not agree. A column whose values one Arrow type can hold keeps them; a column that holds texts
here and numbers there, or objects with differing keys, becomes JSON text, and is named.
"""

import contextlib
import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_workbook.errors import WorkbookError

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

BATCH_ROWS = 1000
BATCH_CHARACTERS = 16 * 2**20  # so that a batch of very long rows is small too


@functools.cache
def _folder() -> tempfile.TemporaryDirectory:
    """Where this process keeps its tables; removed when it ends. TMPDIR chooses the disk."""
    return tempfile.TemporaryDirectory(prefix="grpo_workbook_")


def to_table(
    rows: Callable[[], Iterable[dict]], schema: "pa.Schema | None" = None
) -> tuple["Dataset | None", list[str]]:
    """(the rows as a memory-mapped dataset, or None when there are none; the columns that became JSON text).

    `rows` is called again from the start when a later row does not fit the types of the earlier ones. `schema`: the
    types that the source itself names. Raises WorkbookError when the disk cannot hold it.
    """
    import pyarrow as pa
    from datasets import Dataset

    known = {field.name: _storable(field.type) for field in schema} if schema else {}
    types: dict[str, pa.DataType | str] = {
        name: kind for name, kind in known.items() if kind is not None
    }
    sure = frozenset(types)
    with tempfile.NamedTemporaryFile(dir=_folder().name, suffix=".arrow", delete=False) as file:
        path = Path(file.name)
    while (written := _write(path, rows(), types, sure)) is None:
        pass
    if not written:
        path.unlink()
        return None, []
    return Dataset.from_file(str(path)), sorted(
        name for name, kind in types.items() if kind == "json"
    )


def column(dataset: "Dataset", name: str) -> Iterator:
    """A column's values one after another, a batch of them in memory: twenty times as fast as `dataset[name]`."""
    for batch in dataset.select_columns(name).iter(BATCH_ROWS):
        yield from batch[name]


def _write(path: Path, rows: Iterable[dict], types: dict, sure: frozenset) -> int | None:
    """How many rows were written, or None when `types` had to change on the way: then it begins again."""
    import pyarrow as pa

    writer, schema, count = None, None, 0
    try:
        for batch in _batches(rows):
            columns = {name: [row.get(name) for row in batch] for name in _names(batch, types)}
            arrays = [_array(values, name, types, name in sure) for name, values in columns.items()]
            table = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            if writer is None:
                with _room(path):
                    schema, writer = table.schema, pa.ipc.new_stream(str(path), table.schema)
            elif table.schema != schema:
                return None
            with _room(path):
                writer.write_batch(table)
            count += len(batch)
    finally:
        if writer is not None:
            with _room(path):
                writer.close()
    return count


@contextlib.contextmanager
def _room(path: Path) -> Iterator[None]:
    """A full disk, said in words."""
    try:
        yield
    except OSError as error:
        raise WorkbookError(
            f"{path.parent} cannot hold the table ({os.strerror(error.errno) if error.errno else error}): free disk "
            "space, or choose another disk with TMPDIR"
        ) from error


def _batches(rows: Iterable[dict]) -> Iterator[list[dict]]:
    batch, characters = [], 0
    for row in rows:
        batch.append(row)
        characters += sum(len(v) for v in row.values() if isinstance(v, str))
        if len(batch) == BATCH_ROWS or characters > BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _names(batch: list[dict], types: dict) -> list[str]:
    """Every column seen so far, in the order of their first appearance."""
    return list(dict.fromkeys([*types, *(name for row in batch for name in row)]))


def _storable(kind: "pa.DataType") -> "pa.DataType | None":
    """The type that a source's own column is kept in, or None where `datasets` has none (maps)."""
    import pyarrow as pa
    from datasets.features.features import generate_from_arrow_type

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    try:
        generate_from_arrow_type(kind)
    except ValueError:
        return None
    return kind


def _array(values: list, name: str, types: dict, sure: bool = False) -> "pa.Array":
    """The values as an Arrow array of the column's type; `types` is widened when they do not fit.

    `sure`: the source itself said what the type is, so nothing is lost in it (an int32, a key of a struct).
    """
    import pyarrow as pa

    known = types.get(name)
    if sure and known != "json":
        try:
            return pa.array(values, type=known)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # the source did not keep to it
    if known != "json":
        array = _faithful(values)
        wanted = None if array is None else _widest(known, array.type)
        if wanted is not None:
            types[name] = wanted
            if array.type == wanted:
                return array
            try:
                return pa.array(values, type=wanted)
            except (pa.ArrowException, OverflowError):
                pass  # whole numbers too large for a float beside them
    types[name] = "json"
    return pa.array(
        [v if v is None or isinstance(v, str) else _json(v) for v in values], type=pa.string()
    )


def _faithful(values: list) -> "pa.Array | None":
    """The array that holds these values unchanged, or None when no one type does."""
    import pyarrow as pa

    try:
        array = pa.array(values)
    except (pa.ArrowException, OverflowError):
        return None
    # Objects with differing keys would all get the keys of all.
    if pa.types.is_nested(array.type) and any(
        _json(a) != _json(b) for a, b in zip(array.to_pylist(), values, strict=True)
    ):
        return None
    return array


def _widest(known: "pa.DataType | None", found: "pa.DataType") -> "pa.DataType | None":
    """The type that holds both without changing a value (a whole number may become a float), or None."""
    import pyarrow as pa

    if known is None or known == found or pa.types.is_null(known):
        return found
    if pa.types.is_null(found):
        return known
    if pa.types.is_nested(known) or pa.types.is_nested(found):
        lists = pa.types.is_list(known) and pa.types.is_list(found)
        inside = _widest(known.value_type, found.value_type) if lists else None
        return None if inside is None else pa.list_(inside)
    try:
        schemas = [pa.schema([("x", t)]) for t in (known, found)]
        return pa.unify_schemas(schemas, promote_options="permissive").field("x").type
    except pa.ArrowException:
        return None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
