"""The meaning of columns travels with rows and tables: a reader needs nothing that declared them."""

import json
import subprocess
import sys

import pandas as pd
import pytest

from fca.store import Store, claims
from fca.store.files import DamagedFile
from fca.store.schemas import FOLDER, keep_schema, read_schema
from fca.types import Column, Table

COLUMNS = (
    Column("toys", int, ",.0f", "toys in the box"),
    Column("share", float, "+.1%", "share of red ones", {"a": "the first"}, filters=True),
    Column("names", tuple, "", "of the children"),
)


def declared(columns):
    return [(str(c), c.value_type, c.number_format, c.meaning, dict(c.choices), c.filters) for c in columns]


def write_row(store, run_id="0123456789ab", columns=COLUMNS):
    row = {"run_id": run_id, "task": "toy", "toys": 3, "share": 0.5}
    return store.write(row, {}, claims.acquire(store.folder(run_id)), columns)


def printed(folder, *words):
    """What a command prints in a process of its own."""
    command = [sys.executable, "-m", "fca.cli.main", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_a_schema_comes_back_as_it_was_declared_and_is_stored_once(tmp_path):
    schema_id = keep_schema(tmp_path, COLUMNS)
    assert keep_schema(tmp_path, list(COLUMNS)) == schema_id
    assert declared(read_schema(tmp_path, schema_id)) == declared(COLUMNS)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == [f"{schema_id}.json"]
    assert keep_schema(tmp_path, COLUMNS[:2]) != schema_id


@pytest.mark.wide
def test_a_row_knows_its_columns_where_their_task_was_never_imported(tmp_path):
    store = Store(tmp_path / "outputs")
    row = write_row(store)
    assert store.row("0123456789ab") == row, "the schema is no value of the row"
    assert "toys in the box" in printed(tmp_path, "show", "0123456789ab")
    words = ("results", "--columns", "toys,names", "--format", "csv")
    assert printed(tmp_path, *words) == "toys,names\n3,\n", "a declared column that no run has is empty"


def test_a_table_shows_what_its_columns_mean(tmp_path):
    store = Store(tmp_path / "outputs")
    frame = pd.DataFrame({"toys": [1], "share": [0.5], "names": [("a",)]})
    folder = store.save(Table("toys", "How many?", "nobody", frame, {}, (), COLUMNS))
    about = json.loads((folder / "table.json").read_text())
    assert declared(store.columns_of_table(about)) == declared(COLUMNS)
    assert "  share  share of red ones\n" in printed(tmp_path, "show", folder.name)


def test_a_store_without_schemas_is_read_without_them(tmp_path):
    store = Store(tmp_path / "outputs")
    write_row(store)
    for path in (store.outputs / FOLDER).iterdir():
        path.unlink()
    assert store.rows()["toys"].tolist() == [3]
    assert store.damaged() == []
    assert store.columns_of_table({"name": "toys"}) == store.columns_of_table({"schema": "0123456789ab"}) == ()


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "eval"}, "wrong kind 'eval' of column 0"),
        ({"format": "{0.__class__}"}, "wrong format"),
        ({"meaning": None}, "wrong name, kind, format and meaning of column 0"),
        ({"choices": ["a"]}, "wrong choices of column 0"),
        ({"filters": 1}, "wrong filters of column 0"),
    ],
)
def test_a_schema_from_elsewhere_that_is_none_is_refused_with_its_part_and_stops_no_reader(tmp_path, change, problem):
    store = Store(tmp_path / "outputs")
    write_row(store)
    [path] = (store.outputs / FOLDER).iterdir()
    content = json.loads(path.read_text())
    content["columns"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(DamagedFile, match=problem):
        read_schema(store.outputs, path.stem)
    assert "toys" not in store.columns()
    assert store.rows()["toys"].tolist() == [3]


def test_a_schema_is_named_by_its_hash_and_leads_nowhere_else(tmp_path):
    with pytest.raises(DamagedFile, match="its name is no id"):
        read_schema(tmp_path, "../../0123456789ab")
