"""The rows of a store as one frame, kept as a Parquet file beside `runs/`: 50,000 of them load in half a second.

The files row.json stay the truth: a line of the index is used only while its row.json has the size and time that the
index remembers, its stamp. An index that is missing, damaged or of another version is made anew; where it cannot be
written, the rows are parsed each time. Readers write it, whole or not at all; workers never do. A damaged row is left
out, with a line in the log.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fca.store.columns import BASE, RECIPE, Row
from fca.store.damage import is_run_id, read_row, warn
from fca.store.files import DamagedFile, make_way, opened, remove_parts, write_whole

INDEX = "rows.parquet"
VERSION = "2"
WORTHWHILE = 100  # the index is written anew if more rows are new or lost than this number and a hundredth of all
AT_ONCE = 1000  # rows to parse together; with ten times as many dictionaries in memory each takes twice as long

_FOLDER = "_folder"
_STAMP = pa.schema({_FOLDER: pa.string(), "_size": pa.int64(), "_mtime_ns": pa.int64()})  # columns of the index alone
_TEXT = pa.dictionary(pa.int32(), pa.string())  # JSON of values that are not all of one of the kinds below
_ARROW_TYPES = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_PANDAS_TYPES: dict[type, Any] = {str: "str", int: "Int64", float: "float64", bool: "boolean"}
_PANDAS_OF_ARROW = {
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    pa.string(): pd.StringDtype(na_value=np.nan),
}

_last: tuple[Path, pa.Table, pd.DataFrame] | None = None  # what this process read last: the store, its stamps and rows


def row_of(folder: str | Path) -> Row:
    """The row in one run's folder. Raises FileNotFoundError for an unfinished run, DamagedFile for a damaged row."""
    return read_row(folder).row


def read_rows(outputs: Path) -> pd.DataFrame:
    """The rows of all finished runs, one line for each, in the order in which the runs finished.

    The columns of BASE come first and are always there; then those that any row has. Whole numbers are Int64, other
    numbers float64, text is str, and lists are tuples. What a row does not have is missing, never 0. While no row.json
    changes, later calls of the process return the rows that the first one read.

    outputs: the folder of the store; if it does not exist, the frame is empty.
    """
    global _last
    store_path = outputs.absolute()
    stamps = _stamps(outputs / "runs")
    if _last is None or _last[0] != store_path or not _last[1].equals(stamps):
        _last = store_path, stamps, _frame_of_rows(_rows_with_stamps(outputs, stamps))
    return _last[2].copy(deep=False)  # a new frame, so that the caller can add columns


def _stamps(runs: Path) -> pa.Table:
    """The stamps of all finished runs: folder, and size and time of change of its row.json, sorted by folder.

    It uses strings and os functions, because Path takes twice as long over thousands of runs.
    """
    root = str(runs)
    run_ids = sorted(filter(is_run_id, os.listdir(runs))) if runs.is_dir() else []  # noqa: PTH208

    names: list[str] = []
    sizes: list[int] = []
    times: list[int] = []
    for name in run_ids:
        with suppress(OSError):  # no row: running, failed or abandoned; or a link to nothing
            stat = os.stat(f"{root}/{name}/row.json")  # noqa: PTH116
            names.append(name)
            sizes.append(stat.st_size)
            times.append(stat.st_mtime_ns)
    return pa.table([names, sizes, times], _STAMP)


def _rows_with_stamps(outputs: Path, stamps: pa.Table) -> pa.Table:
    """The rows of all runs in `stamps`, with the columns of their stamps, in the order in which the runs finished.

    A row comes from the index if the index has its current stamp; otherwise its row.json is parsed. If many rows were
    parsed or are gone, a new index is written. Damaged rows are left out, with a warning.

    stamps: folder of each finished run, with size and time of its row.json, sorted by folder.
    """
    table = _read_index(outputs / INDEX)
    indexed_stamps = table.select(_STAMP.names)
    if indexed_stamps.sort_by(_FOLDER).equals(stamps):  # the index is up to date, and was sorted when it was written
        return table

    # Forget lines whose row.json was changed or removed
    indexed = _as_tuples(indexed_stamps)
    current = set(_as_tuples(stamps))
    is_current = [stamp in current for stamp in indexed]
    table = table.filter(pa.array(is_current, pa.bool_()))

    # Parse the rows that are new
    new_stamps = sorted(current - set(indexed))
    damaged: list[DamagedFile] = []
    for start in range(0, len(new_stamps), AT_ONCE):
        new_table = _parsed_rows(outputs / "runs", new_stamps[start : start + AT_ONCE], damaged)
        table = _joined(table, new_table)
    warn(damaged)

    sort_columns = [name for name in ("finished", "run_id") if name in table.column_names]
    if sort_columns:
        # As text, because a column with values of several types is JSON; missing values sort first
        texts = {name: pc.fill_null(table[name].cast(pa.string()), "") for name in sort_columns}
        order = pc.sort_indices(pa.table(texts), sort_keys=[(name, "ascending") for name in sort_columns])
        table = table.take(order)

    # a small change is not worth writing the whole index
    n_changed = len(current ^ set(indexed))  # stamps that are new, or only in the old index
    if n_changed > WORTHWHILE + len(current) // 100:
        with suppress(OSError):  # a store that may only be read
            _write_index(outputs / INDEX, table)
    return table


def _as_tuples(stamps: pa.Table) -> list[tuple[str, int, int]]:
    """The lines of a table of stamps: (folder, size, time) of each."""
    return list(zip(*(column.to_pylist() for column in stamps.columns), strict=True))


def _parsed_rows(runs: Path, stamps: Sequence[tuple[str, int, int]], damaged: list[DamagedFile]) -> pa.Table:
    """A table of rows read from their files, with a line for each run and the columns of its stamp.

    A column whose values have different types is stored as JSON. Damaged rows are left out.

    runs:    the folder with the folders of all runs.
    stamps:  for each run its folder, and the size and time of its row.json.
    damaged: a list to which the errors of damaged rows are appended.
    """
    rows: list[Row] = []
    stamps_of_rows: list[tuple[str, int, int]] = []
    for stamp in stamps:
        folder = stamp[0]
        with suppress(FileNotFoundError):  # removed a moment ago
            try:
                rows.append(row_of(f"{runs}/{folder}"))
                stamps_of_rows.append(stamp)
            except DamagedFile as damage:
                damaged.append(damage)

    stamp_columns = [list(column) for column in zip(*stamps_of_rows, strict=True)] or [[], [], []]  # without any row
    table = pa.table(stamp_columns, _STAMP)
    names = dict.fromkeys(name for row in rows for name in row)  # in order of first appearance
    for name in names:
        values = [row.get(name) for row in rows]
        types = {type(value) for value in values if value is not None}
        arrow_type = _ARROW_TYPES.get(types.pop()) if len(types) == 1 else None
        table = table.append_column(name, _arrow_column(values, arrow_type))
    return table


def _arrow_column(values: Sequence[Any], arrow_type: pa.DataType | None) -> pa.Array:
    """An Arrow column of these values; `_python_values` returns them exactly. None is a missing value.

    arrow_type: of all values; None: they have several types, or one that Arrow lacks, and are stored as JSON.
    """
    if arrow_type is not None:
        with suppress(OverflowError):  # a whole number beyond 64 bits is stored as JSON, too
            return pa.array(values, arrow_type)
    return pa.array([None if value is None else json.dumps(value) for value in values], _TEXT)


def _python_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as they were in the rows, except that lists are tuples."""
    if column.type != _TEXT:
        return column.to_pylist()

    # Each distinct text is parsed once, all of them as one JSON list; `indices` then give the value of each line
    array = pa.chunked_array(column.unify_dictionaries(), _TEXT).combine_chunks()
    texts = ",".join(array.dictionary.to_pylist())
    distinct_values = [tuple(value) if isinstance(value, list) else value for value in json.loads(f"[{texts}]")]
    return [None if index is None else distinct_values[index] for index in array.indices.to_pylist()]


def _joined(old: pa.Table, new: pa.Table) -> pa.Table:
    """The rows of both tables, first those of `old`. A column whose type differs between them is stored as JSON."""
    for name in set(old.column_names) & set(new.column_names):
        if old[name].type == new[name].type:
            continue
        old_column = _arrow_column(_python_values(old[name]), None)
        new_column = _arrow_column(_python_values(new[name]), None)
        old = old.set_column(old.column_names.index(name), name, old_column)
        new = new.set_column(new.column_names.index(name), name, new_column)
    return pa.concat_tables([old, new], promote_options="default")  # fills columns that only one table has with nulls


def _read_index(path: Path) -> pa.Table:
    """The table in the index file; an empty one if the file is missing, damaged, or of another version."""
    with suppress(DamagedFile, OSError, ValueError, pa.ArrowException), opened(path) as file:
        table = pq.read_table(file, page_checksum_verification=True)
        if (table.schema.metadata or {}).get(b"fca") == _signature(table):
            return table
    return _STAMP.empty_table()


def _write_index(path: Path, table: pa.Table) -> None:
    """Write the index with its signature. Raises OSError, also where a store may only be read."""
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"fca": _signature(table)}), buffer, write_page_checksum=True)
    make_way(path)
    remove_parts(path.parent)
    write_whole(path, lambda file: file.write(buffer.getbuffer()))


def _signature(table: pa.Table) -> bytes:
    """A hash by which the reader recognises an intact index of the present version.

    It covers what Parquet's own checksums of pages do not: the versions of the format and of Arrow, the names and types
    of the columns, and the number of rows.
    """
    columns = [(field.name, str(field.type)) for field in table.schema]
    text = json.dumps([VERSION, pa.__version__, table.num_rows, columns])
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _frame_of_rows(table: pa.Table) -> pd.DataFrame:
    """The rows as a frame: the columns of BASE (of every task) first, then others by name, and of the recipe last.

    Columns of BASE are there even if no row has a value. Other columns without a value, and the stamps, are left out.
    """
    base_types = {str(column): column.value_type for column in BASE}
    other_names = [name for name in table.column_names if name not in base_types and name not in _STAMP.names]
    other_names.sort(key=lambda name: (name.startswith(RECIPE), name))
    empty_columns = {  # one for each type, shared by all columns without a value
        base_type: pd.Series([None] * table.num_rows, dtype=_PANDAS_TYPES.get(base_type, "object"))
        for base_type in base_types.values()
    }

    columns = {}
    for name in [*base_types, *other_names]:
        has_values = name in table.column_names and table[name].null_count < table.num_rows
        if has_values:
            columns[name] = _series_of_column(table[name], base_types.get(name))
        elif name in base_types:
            columns[name] = empty_columns[base_types[name]]
    return pd.DataFrame(columns)


def _series_of_column(column: pa.ChunkedArray, declared_type: type | None) -> pd.Series:
    """A column of the index as a series of pandas, whose missing values stay missing.

    declared_type: the type of the values by the declaration of the column; None: no declaration, the values decide.
    """
    # The Python type of the column's values; empty for a column of JSON, whose values have several types
    stored_types = {python_type for python_type, arrow_type in _ARROW_TYPES.items() if arrow_type == column.type}
    values: Any = column.to_pandas(types_mapper=_PANDAS_OF_ARROW.get) if stored_types else _python_values(column)

    series_type = declared_type
    if series_type is None:
        value_types = stored_types or {type(value) for value in values if value is not None}
        if len(value_types) == 1:
            series_type = value_types.pop()
        elif value_types == {int, float}:
            series_type = float
        else:
            series_type = object

    try:
        return pd.Series(values, dtype=_PANDAS_TYPES.get(series_type, "object"))
    except (TypeError, ValueError, OverflowError):
        # A number beyond 64 bits, or a row from elsewhere whose value is not of the declared type
        return pd.Series(list(values), dtype="object")
