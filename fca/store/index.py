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
VERSION = "1"
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
    known = table.select(_STAMP.names)
    if known.sort_by(_FOLDER).equals(stamps):
        return table
    old, now = _lines(known), set(_lines(stamps))
    table = table.filter(pa.array([line in now for line in old], pa.bool_()))
    new, damaged = sorted(now - set(old)), list[DamagedFile]()
    for start in range(0, len(new), AT_ONCE):
        table = _joined(table, _parsed(outputs / "runs", new[start : start + AT_ONCE], damaged))
    warn(damaged)
    names = [name for name in ("finished", "run_id") if name in table.column_names]
    keys = pa.table({name: pc.fill_null(table[name].cast(pa.string()), "") for name in names})  # missing: first
    table = table.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in names])) if names else table
    if len(now ^ set(old)) > WORTHWHILE + len(now) // 100:
        with suppress(OSError):  # a store that may only be read
            _write_index(outputs / INDEX, table)
    return table


def _lines(stamps: pa.Table) -> list[tuple[str, int, int]]:
    return list(zip(*(column.to_pylist() for column in stamps.columns), strict=True))


def _parsed(runs: Path, stamps: Sequence[tuple[str, int, int]], damaged: list[DamagedFile]) -> pa.Table:
    """These rows, one column per name; the others are added to `damaged`."""
    rows, kept = [], []
    for stamp in stamps:
        with suppress(FileNotFoundError):  # removed a moment ago
            try:
                rows.append(row_of(f"{runs}/{stamp[0]}"))
                kept.append(stamp)
            except DamagedFile as damage:
                damaged.append(damage)
    table = pa.table([list(column) for column in zip(*kept, strict=True)] or [[], [], []], _STAMP)
    for name in {name: None for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        kinds = {type(value) for value in values if value is not None}
        table = table.append_column(name, _column(values, _ARROW.get(kinds.pop()) if len(kinds) == 1 else None))
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
    """Both, one after the other; a column whose values differ in kind becomes JSON in both."""
    for name in set(old.column_names) & set(new.column_names):
        if old[name].type != new[name].type:
            place, other = old.column_names.index(name), new.column_names.index(name)
            old = old.set_column(place, name, _column(_values(old[name]), None))
            new = new.set_column(other, name, _column(_values(new[name]), None))
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
    """Of the version, the columns and the number of rows: page checksums of Parquet leave these out."""
    about = [VERSION, pa.__version__, table.num_rows, [(field.name, str(field.type)) for field in table.schema]]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest().encode()


def _frame(table: pa.Table) -> pd.DataFrame:
    kinds = {str(column): column.kind for column in BASE}
    others = [name for name in table.column_names if name not in kinds and name not in _STAMP.names]
    columns = {}
    missing = {kind: pd.Series([None] * table.num_rows, dtype=_PANDAS.get(kind, "object")) for kind in kinds.values()}
    for name in [*kinds, *sorted(others, key=lambda name: (name.startswith(RECIPE), name))]:
        if name in table.column_names and table[name].null_count < table.num_rows:
            columns[name] = _series(table[name], kinds.get(name))
        elif name in kinds:
            columns[name] = missing[kinds[name]]
    return pd.DataFrame(columns)


def _series(column: pa.ChunkedArray, kind: type | None) -> pd.Series:
    """kind: the declared one; None where the values decide."""
    found = [kind for kind, arrow in _ARROW.items() if arrow == column.type]
    values: Any = column.to_pandas(types_mapper=_MAPPER.get) if found else _values(column)
    if kind is None:
        kinds = set(found) or {type(value) for value in values if value is not None}
        kind = kinds.pop() if len(kinds) == 1 else float if kinds == {int, float} else object
    try:
        return pd.Series(values, dtype=_PANDAS.get(kind, "object"))
    except (TypeError, ValueError, OverflowError):  # beyond 64 bits; or a fraction among whole numbers, from elsewhere
        return pd.Series(list(values), dtype="object")
