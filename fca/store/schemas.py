"""The meaning of the columns of stored rows and tables, stored once for all with the same columns.

A row and a table name their schema by its hash, so code that has not imported the declaration of the columns can print
and plot them. Rows and tables of earlier versions name no schema; their columns are shown without a meaning.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fca.store.columns import RENAMED
from fca.store.files import DamagedFile, content_of, if_whole, parsed, write_text
from fca.types import Column

FOLDER = "schemas"
KINDS: dict[str, type] = {kind.__name__: kind for kind in (str, int, float, bool, tuple)}
_ID = re.compile(r"[0-9a-f]{12}")
_FORMAT = re.compile(r"[+,]{0,2}(\.\d{1,2})?~?[a-z%]?")  # of d3, as far as columns have them


def keep_schema(outputs: Path, columns: Iterable[Column]) -> str:
    """Write the schema of these columns (their names, types and meanings) to schemas/ID.json, unless it exists.

    Returns its id, a hash of its content, so that all rows and tables with the same columns share one file.

    outputs: the folder of the store.
    """
    text = json.dumps({"columns": [_column_as_json(column) for column in columns]}, indent=1, sort_keys=True)
    schema_id = hashlib.sha256(text.encode()).hexdigest()[:12]
    path = outputs / FOLDER / f"{schema_id}.json"
    if not path.is_file():
        write_text(path, text)
    return schema_id


def _column_as_json(column: Column) -> dict[str, Any]:
    """The fields of a column, as a schema has them; `_column_from_json` reads them."""
    return {
        "name": str(column),
        "kind": column.value_type.__name__,
        "format": column.number_format,
        "meaning": column.meaning,
        "choices": dict(column.choices),
        "filters": column.filters,
    }


def read_schema(outputs: Path, schema_id: str) -> tuple[Column, ...]:
    """The columns of a stored schema (the declarations of a row's columns), in order.

    Raises DamagedFile for text that is no id of a schema, a missing file, and a wrong field, which the error names.
    """
    path = outputs / FOLDER / f"{schema_id}.json"
    if not _ID.fullmatch(schema_id):  # another text, such as ../x, could lead out of the folder
        raise DamagedFile(path, "is no schema: its name is no id")
    try:
        content = content_of(path)
    except FileNotFoundError:
        raise DamagedFile(path, "is missing") from None
    described = parsed(path, content, columns=list)["columns"]
    return tuple(_column_from_json(path, number, column) for number, column in enumerate(described))


def _column_from_json(path: Path, number: int, described: object) -> Column:
    """The column that an entry of a schema describes.

    Every field is checked, because a store may come from somebody else.

    number:    position of the column in the schema, for errors.
    described: the entry, as parsed from JSON.
    Raises DamagedFile for a field that is missing or wrong.
    """
    fields: dict[str, Any] = described if isinstance(described, dict) else {}
    texts = [fields.get(name) for name in ("name", "kind", "format", "meaning")]
    choices = fields.get("choices")

    wrong = None  # the first field that is wrong, in words
    if not all(isinstance(text, str) for text in texts) or not fields["name"]:  # a column without a name
        wrong = "name, kind, format and meaning"
    elif fields["kind"] not in KINDS:
        wrong = f"kind {fields['kind']!r:.40}"
    elif not _FORMAT.fullmatch(fields["format"]):
        wrong = f"format {fields['format']!r:.40}"
    elif not isinstance(choices, dict) or not all(isinstance(label, str) for label in choices.values()):
        wrong = "choices"
    elif not isinstance(fields.get("filters"), bool):
        wrong = "filters"
    if wrong is not None:
        raise DamagedFile(path, f"is no schema: wrong {wrong} of column {number}")

    kind = KINDS[fields["kind"]]
    return Column(fields["name"], kind, fields["format"], fields["meaning"], choices or {}, fields["filters"])


def known_columns(outputs: Path) -> Iterator[Column]:
    """The columns that the schemas of a store declare, each name once.

    A column that an earlier version called otherwise has its present name, as it has in rows. Of several columns with
    the same name, the first in the order of the files is taken. A damaged schema is skipped.
    """
    names: set[str] = set()
    for path in sorted((outputs / FOLDER).glob("*.json")):
        columns: tuple[Column, ...] = ()
        with if_whole():  # damage ends the block; rows can be read without their schema
            columns = read_schema(outputs, path.stem)
        for column in columns:
            name = RENAMED.get(str(column), str(column))
            if name not in names:
                names.add(name)
                fields = (column.value_type, column.number_format, column.meaning, column.choices, column.filters)
                yield Column(name, *fields)
