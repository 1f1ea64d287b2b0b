"""The store: rows whole or absent, missing never a number, states, queries."""

import json
import resource
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from fca.store import ClaimLost, State, Store, claims, results
from fca.store.columns import BASE, checked
from fca.store.files import PLACE, DamagedFile, signed
from fca.types import Column, FcaError, ImageData, Table

ROW = {"run_id": "0123456789ab", "task": "train", "dataset": "digits", "ncl": 5, "classes": (1, 2), "top1": 0.5}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def written(store, arrays=(), **columns):
    row = {**ROW, **columns}
    folder = store.folder(row["run_id"])
    token = claims.acquire(folder)
    store.write(row, dict(arrays), token)
    claims.release(folder, token)
    return row["run_id"]


def test_every_column_brings_back_its_own_value(store):
    samples = {
        str: lambda name: f"text of {name}",
        int: len,
        float: lambda name: len(name) / 64,
        tuple: lambda name: (len(name), 99),
    }
    values = {str(column): samples[column.value_type](column) for column in BASE} | {"run_id": "0123456789ab"}
    written(store, **values, recipe_lr=0.1)
    row = store.rows().iloc[0]
    for name, value in values.items():
        assert row[name] == value, name
    assert row["recipe_lr"] == 0.1


def test_what_a_run_does_not_have_is_missing_and_not_a_number(store):
    written(store, ncl=None, top1=None)
    row = store.rows().iloc[0]
    assert row[["ncl", "top1", "model", "flag"]].isna().all()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"top1": float("nan")}, "top1=nan is not a number"),
        ({"precision": 1.0}, "column 'precision'"),
        ({"ncl": 2.5}, "ncl=2.5 is not a whole number"),
        ({"model": 3}, "model=3 is a int"),
    ],
)
def test_a_row_refuses_what_is_not_declared_or_not_measured(columns, message):
    with pytest.raises(ValueError, match=message):
        checked({**ROW, **columns})


def test_a_task_declares_its_own_columns_and_reading_needs_no_declaration(store):
    columns = (Column("depth", int), Column("deep", bool), Column("names", tuple))
    row = {**ROW, "depth": np.int64(3), "deep": np.True_, "names": ("a", "b")}
    with pytest.raises(ValueError, match=r"column 'deep'.* declared neither by the task nor in BASE"):
        store.write(row, {}, claims.acquire(store.folder(ROW["run_id"])))
    store.write(row, {}, json.loads((store.folder(ROW["run_id"]) / "claim.json").read_text())["token"], columns)
    read = store.rows("depth == 3").iloc[0]
    assert (read["depth"], read["deep"], read["names"]) == (3, True, ("a", "b"))


def test_a_query_may_name_a_declared_column_that_no_row_has(store):
    written(store)
    with pytest.raises(FcaError, match="query = depth > 3"):
        results(store.outputs, "depth > 3")
    assert results(store.outputs, "depth > 3", columns=["depth", "ncl"]).empty
    assert results(store.outputs, "not depth > 3", columns=["depth"])["depth"].isna().all()


def test_states_follow_claim_error_and_row(store):
    run_id = ROW["run_id"]
    folder = store.folder(run_id)
    assert store.state(run_id) is State.ABSENT
    token = claims.acquire(folder)
    assert store.state(run_id) is State.RUNNING
    store.fail(run_id, {"error": "broke"})
    claims.release(folder, token)
    assert store.state(run_id) is State.FAILED
    written(store)
    assert store.state(run_id) is State.DONE
    assert not (folder / "error.json").exists()


def test_a_worker_that_lost_its_claim_writes_no_row(store):
    token = claims.acquire(store.folder(ROW["run_id"]))
    claims.release(store.folder(ROW["run_id"]), token)
    claims.acquire(store.folder(ROW["run_id"]))
    with pytest.raises(ClaimLost, match=ROW["run_id"]):
        store.write(ROW, {}, token)
    assert store.state(ROW["run_id"]) is State.RUNNING


def test_arrays_come_back_memory_mapped_and_without_pickle(store):
    keys = np.array(["cat", "dög"])
    run_id = written(store, {"logits": np.eye(3, dtype=np.float32), "logit_classes": keys}.items())
    assert isinstance(store.array(run_id, "logits"), np.memmap)
    assert store.array(run_id, "logit_classes").tolist() == ["cat", "dög"]


def test_unfinished_runs_are_no_results(store):
    written(store)
    store.folder("ffffffffffff").mkdir()
    store.fail("eeeeeeeeeeee", {"error": "broke"})
    assert results(store.outputs)["run_id"].tolist() == [ROW["run_id"]]


def test_a_query_selects_and_a_wrong_one_names_itself_and_the_columns(store):
    written(store)
    written(store, run_id="aaaaaaaaaaaa", ncl=2)
    assert store.rows("ncl <= 3")["run_id"].tolist() == ["aaaaaaaaaaaa"]
    with pytest.raises(
        FcaError, match=r"query = nlc <= 3; allowed: comparisons .* columns: run_id, task, .*; next: mend it: .*nlc"
    ):
        store.rows("nlc <= 3")


@pytest.mark.parametrize(
    "odd",
    [
        {"finished": 5},
        {"finished": ["a"]},
        {"dataset": {"a": 1}},
        {"ncl": "five"},
        {"top1": [0.5]},
        {"classes": "1, 2"},
        {"classes": [1, "2"]},
    ],
    ids=str,
)
def test_a_signed_row_with_values_that_its_columns_cannot_have_is_left_out(store, odd):
    """Anybody can sign a row; before, the first of these was a traceback of `fca status` and `fca results`."""
    whole, hostile = written(store, run_id="aaaaaaaaaaaa", finished="2026"), written(store, finished="2027")
    path = store.folder(hostile) / "row.json"
    row = {**json.loads(path.read_text()), **odd, "files": [PLACE.decode()]}
    path.write_bytes(signed(json.dumps(row).encode()))
    assert store.rows()["run_id"].tolist() == [whole]
    [damaged] = store.damaged()
    assert damaged.path == path
    assert damaged.problem.endswith(f"as {next(iter(odd))}")


def test_a_row_that_lists_no_files_is_damaged_with_the_reason(store):
    path = store.folder(written(store)) / "row.json"
    row = json.loads(path.read_text())
    del row["files"]
    path.write_text(json.dumps(row))

    assert store.state(ROW["run_id"]) is State.DAMAGED
    assert store.rows().empty
    [damaged] = store.damaged()
    assert damaged.path == path
    assert damaged.problem == "lists no files: written by an earlier version; repeat the command"


def test_a_row_without_its_checksum_was_altered(store):
    path = store.folder(written(store)) / "row.json"
    row = json.loads(path.read_text())
    path.write_text(json.dumps({**row, "files": ["pred.npy 3 0"]}))

    [damaged] = store.damaged()
    assert damaged.problem == "was altered"


def test_a_table_without_its_checksum_is_no_table_of_the_store(store):
    table = Table("gap", "?", "source", pd.DataFrame({"a": [1]}), {}, ())
    folder = store.save(table)
    assert store.saved_lines(folder.name)["a"].tolist() == [1]
    with pytest.raises(DamagedFile, match="has no column b: save it again"):
        store.saved_lines(folder.name, ["a", "b"])

    table.frame.to_parquet(folder / "table.parquet")
    with pytest.raises(DamagedFile, match="is another table, or was altered"):
        store.saved_lines(folder.name)


def test_a_full_disk_leaves_no_half_row(tmp_path):
    """A file-size limit of the kernel fails a write in the middle, as a full disk does."""
    code = f"""
import resource, signal, numpy as np
from pathlib import Path
from fca.store import Store, claims
store = Store(Path({str(tmp_path)!r}))
token = claims.acquire(store.folder("0123456789ab"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, {resource.RLIM_INFINITY}))
store.write({ROW!r}, {{"logits": np.zeros((1000, 1000))}}, token)
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=False)
    assert "OSError" in done.stderr
    folder = Store(tmp_path).folder(ROW["run_id"])
    assert sorted(path.name for path in folder.iterdir()) == ["claim.json"]
    assert Store(tmp_path).state(ROW["run_id"]) is State.ABSENT


def test_items_are_written_once_and_come_back_in_order(store):
    items = pd.DataFrame({"image_id": ["b", "a"], "label": ["x", "y"], "split": ["test", "train"]})
    data = ImageData("toy", items, ("y", "x", "z"), "f" * 12, read=lambda i: np.zeros((1, 1, 3), np.uint8))
    store.keep_items(data)
    path = store.outputs / "items" / ("f" * 12 + ".parquet")
    before = path.stat().st_mtime_ns
    store.keep_items(data)
    assert path.stat().st_mtime_ns == before
    assert store.items("f" * 12)["image_id"].tolist() == ["b", "a"]
    assert store.items("f" * 12)["label"].cat.categories.tolist() == ["y", "x", "z"]


def test_items_are_read_once_while_their_file_stays_and_are_the_readers_own(store, monkeypatch):
    items = pd.DataFrame({"image_id": ["b", "a"], "label": ["x", "y"], "split": ["test", "train"]})
    data = ImageData("toy", items, ("y", "x"), "e" * 12, read=lambda i: np.zeros((1, 1, 3), np.uint8))
    store.keep_items(data)
    first = store.items("e" * 12)
    first["split"] = "mine"
    first.loc[0, "image_id"] = "mine"
    monkeypatch.setattr("fca.store.store.read_frame", None)
    assert store.items("e" * 12)[["image_id", "split"]].to_numpy().tolist() == [["b", "test"], ["a", "train"]]
    monkeypatch.undo()
    (store.outputs / "items" / ("e" * 12 + ".parquet")).unlink()
    with pytest.raises(DamagedFile, match="is missing"):
        store.items("e" * 12)
    store.keep_items(replace(data, items=items.assign(split="test")))
    assert set(store.items("e" * 12)["split"]) == {"test"}


def test_a_table_has_one_id_whatever_the_order_of_its_runs(store):
    table = Table("gap", "?", "source", pd.DataFrame({"a": [1]}), {"ncl": [2]}, ("r1", "r2"))
    other = Table("gap", "?", "source", pd.DataFrame({"a": [1]}), {"ncl": [2]}, ("r2", "r1"))
    folder = store.save(table)
    assert store.save(other) == folder
    assert json.loads((folder / "table.json").read_text())["question"] == "?"
    assert pd.read_csv(folder / "table.csv").equals(table.frame)


def test_an_unknown_run_is_named(store):
    with pytest.raises(FcaError, match="run_id = nope"):
        store.row("nope")
