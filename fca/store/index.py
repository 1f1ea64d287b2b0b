"""The rows of a store as one frame, kept as a Parquet file beside `runs/`: 50,000 of them load in half a second.

Rows stay the truth: one counts as known only while its row.json has the size and time that the index remembers. An
index that is missing, damaged or of another version is made anew; where it cannot be written, rows are read all the
same. Readers write it, whole or not at all; workers never do. A damaged row is left out, with a line in the log.
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
WORTHWHILE = 100  # the index is written anew for more new or lost rows than this and a hundredth of all
AT_ONCE = 1000  # rows to parse; ten times as many dictionaries in memory take twice as long each

_FOLDER = "_folder"
_STAMP = pa.schema({_FOLDER: pa.string(), "_size": pa.int64(), "_mtime_ns": pa.int64()})  # columns of the index alone
_TEXT = pa.dictionary(pa.int32(), pa.string())  # JSON of values that are not all of one of the kinds below
_ARROW = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
_MAPPER = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(), pa.string(): pd.StringDtype(na_value=np.nan)}
_PANDAS: dict[type, Any] = {str: "str", int: "Int64", float: "float64", bool: "boolean"}

_last: tuple[Path, pa.Table, pd.DataFrame] | None = None  # what this process read last: store, stamps, rows


def row_of(folder: str | Path) -> Row:
    """The row of one run's folder; raises FileNotFoundError for a run that is not finished, DamagedFile."""
    return read_row(folder).row


def read_rows(outputs: Path) -> pd.DataFrame:
    """Every finished run, in the order they finished; a process that reads again parses only what is new.

    Columns of BASE come first and are always there; the others are those that some row has, of the kind of its values:
    whole numbers Int64, others float64, text str, lists tuples. Absence is missing, never 0.
    """
    global _last
    place = outputs.absolute()
    stamps = _stamps(outputs / "runs")
    if _last is None or _last[0] != place or not _last[1].equals(stamps):
        _last = place, stamps, _frame(_table(outputs, stamps))
    return _last[2].copy(deep=False)


def _stamps(runs: Path) -> pa.Table:
    """Folder, size and time of the row of every finished run, by folder."""
    root, names, sizes, times = str(runs), [], [], []
    for name in sorted(filter(is_run_id, os.listdir(runs))) if runs.is_dir() else []:  # noqa: PTH208
        with suppress(OSError):  # running, failed or abandoned: not a result; or a link to nothing
            stat = os.stat(f"{root}/{name}/row.json")  # noqa: PTH116  as above
            names.append(name)
            sizes.append(stat.st_size)
            times.append(stat.st_mtime_ns)
    return pa.table([names, sizes, times], _STAMP)


def _table(outputs: Path, stamps: pa.Table) -> pa.Table:
    """The rows with these stamps: from the index where it has them, else parsed; a better index is written."""
    table = _read_index(outputs / INDEX)
    indexed_stamps = table.select(_STAMP.names)
    if indexed_stamps.sort_by(_FOLDER).equals(stamps):
        return table

    indexed_lines = _lines(indexed_stamps)
    current_lines = set(_lines(stamps))
    is_current = [line in current_lines for line in indexed_lines]
    table = table.filter(pa.array(is_current, pa.bool_()))

    new_lines = sorted(current_lines - set(indexed_lines))
    damaged: list[DamagedFile] = []
    for start in range(0, len(new_lines), AT_ONCE):
        new_table = _parsed(outputs / "runs", new_lines[start : start + AT_ONCE], damaged)
        table = _joined(table, new_table)
    warn(damaged)

    sort_columns = [name for name in ("finished", "run_id") if name in table.column_names]
    if sort_columns:  # missing values sort first
        texts = {name: pc.fill_null(table[name].cast(pa.string()), "") for name in sort_columns}
        order = pc.sort_indices(pa.table(texts), sort_keys=[(name, "ascending") for name in sort_columns])
        table = table.take(order)

    n_changed = len(current_lines ^ set(indexed_lines))
    if n_changed > WORTHWHILE + len(current_lines) // 100:
        with suppress(OSError):  # a store that may only be read
            _write_index(outputs / INDEX, table)
    return table


def _lines(stamps: pa.Table) -> list[tuple[str, int, int]]:
    return list(zip(*(column.to_pylist() for column in stamps.columns), strict=True))


def _parsed(runs: Path, stamps: Sequence[tuple[str, int, int]], damaged: list[DamagedFile]) -> pa.Table:
    """The rows with these stamps, one column per name; damaged rows are left out and added to `damaged`."""
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

    stamp_columns = [list(column) for column in zip(*stamps_of_rows, strict=True)] or [[], [], []]
    table = pa.table(stamp_columns, _STAMP)
    names = dict.fromkeys(name for row in rows for name in row)  # in order of first appearance
    for name in names:
        values = [row.get(name) for row in rows]
        types = {type(value) for value in values if value is not None}
        arrow_type = _ARROW.get(types.pop()) if len(types) == 1 else None
        table = table.append_column(name, _column(values, arrow_type))
    return table


def _column(values: Sequence[Any], arrow: pa.DataType | None) -> pa.Array:
    """Values of one kind as they are, others as JSON: both come back exactly."""
    if arrow is not None:
        with suppress(OverflowError):  # a whole number beyond 64 bits
            return pa.array(values, arrow)
    return pa.array([None if value is None else json.dumps(value) for value in values], _TEXT)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """As they were in the rows, lists as tuples."""
    if column.type != _TEXT:
        return column.to_pylist()
    array = pa.chunked_array(column.unify_dictionaries(), _TEXT).combine_chunks()
    texts = ",".join(array.dictionary.to_pylist())
    parsed = [tuple(value) if isinstance(value, list) else value for value in json.loads(f"[{texts}]")]
    return [None if code is None else parsed[code] for code in array.indices.to_pylist()]


def _joined(old: pa.Table, new: pa.Table) -> pa.Table:
    """The rows of both tables; a column whose type differs between them becomes JSON in both."""
    for name in set(old.column_names) & set(new.column_names):
        if old[name].type == new[name].type:
            continue
        old = old.set_column(old.column_names.index(name), name, _column(_values(old[name]), None))
        new = new.set_column(new.column_names.index(name), name, _column(_values(new[name]), None))
    return pa.concat_tables([old, new], promote_options="default")


def _read_index(path: Path) -> pa.Table:
    """The index; an empty one where there is none that can be trusted."""
    with suppress(DamagedFile, OSError, ValueError, pa.ArrowException), opened(path) as file:
        table = pq.read_table(file, page_checksum_verification=True)
        if (table.schema.metadata or {}).get(b"fca") == _signature(table):
            return table
    return _STAMP.empty_table()


def _write_index(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"fca": _signature(table)}), buffer, write_page_checksum=True)
    make_way(path)
    remove_parts(path.parent)
    write_whole(path, lambda file: file.write(buffer.getbuffer()))


def _signature(table: pa.Table) -> bytes:
    """Hash of the version, the columns and the number of rows, which page checksums of Parquet do not cover."""
    columns = [(field.name, str(field.type)) for field in table.schema]
    text = json.dumps([VERSION, pa.__version__, table.num_rows, columns])
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _frame(table: pa.Table) -> pd.DataFrame:
    """The rows as a frame: columns of BASE first, then others by name, the recipe last."""
    base_types = {str(column): column.value_type for column in BASE}
    other_names = [name for name in table.column_names if name not in base_types and name not in _STAMP.names]
    other_names.sort(key=lambda name: (name.startswith(RECIPE), name))
    empty_columns = {  # one for each type, shared by all columns without a value
        base_type: pd.Series([None] * table.num_rows, dtype=_PANDAS.get(base_type, "object"))
        for base_type in base_types.values()
    }

    columns = {}
    for name in [*base_types, *other_names]:
        has_values = name in table.column_names and table[name].null_count < table.num_rows
        if has_values:
            columns[name] = _series(table[name], base_types.get(name))
        elif name in base_types:
            columns[name] = empty_columns[base_types[name]]
    return pd.DataFrame(columns)


def _series(column: pa.ChunkedArray, declared_type: type | None) -> pd.Series:
    """A column as pandas has it; declared_type: None where the values decide."""
    stored_types = {python_type for python_type, arrow_type in _ARROW.items() if arrow_type == column.type}
    values: Any = column.to_pandas(types_mapper=_MAPPER.get) if stored_types else _values(column)

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
        return pd.Series(values, dtype=_PANDAS.get(series_type, "object"))
    except (TypeError, ValueError, OverflowError):  # beyond 64 bits; or a fraction among whole numbers, from elsewhere
        return pd.Series(list(values), dtype="object")
