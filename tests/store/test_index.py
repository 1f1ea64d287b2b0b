"""The index of rows: whatever state it is in, the frame is the one that the row files alone give."""

import os

import numpy as np
import pandas as pd
import pytest

from fca.store import Store, index, results
from fca.store.columns import BASE
from fca.store.index import INDEX
from tests.support.stored_rows import put_row

ROWS = {
    "a" * 12: {
        "task": "train",
        "ncl": 5,
        "classes": [0, 3],
        "top1": 0.5,
        "recipe_flip": True,
        "finished": "2026-01-02",
    },
    "b" * 12: {"task": "train", "ncl": 2, "top1": 1, "recipe_lr": 0.1, "recipe_flip": False, "finished": "2026-01-01"},
    "c" * 12: {"task": "toy", "depth": 3, "note": "ü, \n", "levels": ["easy"], "finished": "2026-01-03"},
    "d" * 12: {"task": "toy", "depth": 0.5, "odd": 1, "huge": 2**70},
    "e" * 12: {"task": "toy", "odd": "one", "nested": {"a": [1]}, "empty": []},
}


@pytest.fixture
def outputs(tmp_path, monkeypatch):
    """A store whose index is written at every chance, and of which this process remembers nothing."""
    monkeypatch.setattr(index, "WORTHWHILE", -1)
    for run_id, row in ROWS.items():
        put(tmp_path, run_id, row)
    return tmp_path


def put(outputs, run_id, row):
    return put_row(outputs, {"run_id": run_id, **row})


def read(outputs, monkeypatch):
    """As a new process reads."""
    monkeypatch.setattr(index, "_last", None)
    return results(outputs)


def from_rows_alone(outputs, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(index, "INDEX", "no/such/file")
        patch.setattr(index, "_write_index", lambda *_: None)
        return read(outputs, patch)


@pytest.fixture
def parsed(monkeypatch):
    """The folders that were parsed."""
    found, parse = [], index.row_of
    monkeypatch.setattr(index, "row_of", lambda folder: found.append(str(folder)[-12:]) or parse(folder))
    return found


def test_kinds_come_from_the_declaration_else_from_the_values(outputs, monkeypatch):
    frame = read(outputs, monkeypatch).set_index("run_id")
    assert list(frame)[: len(BASE) - 1] == [str(column) for column in BASE if column != "run_id"]
    assert list(frame)[-2:] == ["recipe_flip", "recipe_lr"]
    kinds = {"ncl": "Int64", "top1": "float64", "depth": "float64", "note": "str", "recipe_flip": "boolean"}
    assert {name: str(frame[name].dtype) for name in kinds} == kinds
    assert frame.loc["a" * 12, "classes"] == (0, 3)
    assert frame.loc["c" * 12, ["note", "levels"]].tolist() == ["ü, \n", ("easy",)]
    assert frame["odd"].dropna().tolist() == [1, "one"]
    assert frame["huge"].dropna().tolist() == [2**70]
    assert frame["nested"].dropna().tolist() == [{"a": [1]}]
    assert frame["empty"].dropna().tolist() == [()]
    assert frame["model"].isna().all()


def test_a_fraction_among_whole_numbers_in_a_row_from_elsewhere_stops_no_reader(outputs, monkeypatch):
    put(outputs, "f" * 12, {"task": "train", "ncl": 2.5, "finished": "2026-01-04"})
    assert read(outputs, monkeypatch)["ncl"].dropna().tolist() == [2, 5, 2.5]


def test_rows_come_in_the_order_they_finished(outputs, monkeypatch):
    order = ["d" * 12, "e" * 12, "b" * 12, "a" * 12, "c" * 12]
    assert read(outputs, monkeypatch)["run_id"].tolist() == order, "from the rows"
    assert read(outputs, monkeypatch)["run_id"].tolist() == order, "from the index"


def change_nothing(outputs):
    pass


def add_a_row(outputs):
    put(outputs, "f" * 12, {"task": "train", "depth": 7, "note": "more", "finished": "2026-01-01T05"})


def add_a_row_with_another_kind(outputs):
    put(outputs, "f" * 12, {"task": "train", "depth": "deep", "note": 3, "model": "net", "recipe_flip": 0.5})


def remove_the_only_fraction(outputs):
    (outputs / "runs" / ("d" * 12) / "row.json").unlink()


def change_a_row_in_place(outputs):
    put(outputs, "a" * 12, {"task": "train", "ncl": 6, "top1": 0.25})


def change_a_row_but_not_its_size(outputs):
    before = (outputs / "runs" / ("a" * 12) / "row.json").stat()
    path = put(outputs, "a" * 12, {**ROWS["a" * 12], "ncl": 7})
    assert path.stat().st_size == before.st_size
    later = before.st_mtime_ns + 10**7
    os.utime(path, ns=(later, later))


def truncate_the_index(outputs):
    content = (outputs / INDEX).read_bytes()
    (outputs / INDEX).write_bytes(content[: len(content) // 2])


def write_nonsense_as_index(outputs):
    (outputs / INDEX).write_text("nonsense")


def take_the_index_of_something_else(outputs):
    pd.DataFrame({"run_id": ["x"]}).to_parquet(outputs / INDEX)


def make_the_index_a_folder(outputs):
    (outputs / INDEX).unlink()
    (outputs / INDEX).mkdir()


def remove_all_rows(outputs):
    for path in outputs.glob("runs/*/row.json"):
        path.unlink()


CHANGES = [
    change_nothing, add_a_row, add_a_row_with_another_kind, remove_the_only_fraction, change_a_row_in_place,
    change_a_row_but_not_its_size, truncate_the_index, write_nonsense_as_index, take_the_index_of_something_else,
    make_the_index_a_folder, remove_all_rows,
]  # fmt: skip


@pytest.mark.wide
@pytest.mark.parametrize("change", CHANGES)
def test_after_any_change_the_frame_is_that_of_the_rows_alone(outputs, monkeypatch, change):
    read(outputs, monkeypatch)
    assert (outputs / INDEX).is_file()
    change(outputs)
    for _ in range(2):
        pd.testing.assert_frame_equal(read(outputs, monkeypatch), from_rows_alone(outputs, monkeypatch))


@pytest.mark.wide
def test_a_damaged_byte_anywhere_is_found_or_changes_nothing(outputs, monkeypatch):
    expected = read(outputs, monkeypatch)
    content, whole = (outputs / INDEX).read_bytes(), index._read_index(outputs / INDEX)
    places = np.random.default_rng(0).integers(len(content), size=300)
    for number, place in enumerate(places):
        (outputs / INDEX).write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        found = index._read_index(outputs / INDEX)
        assert found.equals(whole) or not found.num_rows, place
        if number % 10 == 0:  # reading the rows themselves takes long
            pd.testing.assert_frame_equal(read(outputs, monkeypatch), expected)


def test_only_new_and_changed_rows_are_parsed(outputs, monkeypatch, parsed):
    read(outputs, monkeypatch)
    parsed.clear()
    read(outputs, monkeypatch)
    assert parsed == []
    add_a_row(outputs)
    change_a_row_in_place(outputs)
    read(outputs, monkeypatch)
    assert sorted(parsed) == ["a" * 12, "f" * 12]


def test_a_process_that_reads_again_neither_parses_nor_opens_the_index(outputs, monkeypatch, parsed):
    frame = read(outputs, monkeypatch)
    frame["ncl"] = 0  # the reader's own copy
    parsed.clear()
    (outputs / INDEX).write_text("nonsense")
    again = Store(outputs).rows()
    assert parsed == []
    assert again["ncl"].dropna().tolist() == [2, 5]
    add_a_row(outputs)
    assert len(Store(outputs).rows()) == 6


def test_a_store_that_may_only_be_read_gives_its_rows(outputs, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(index, "write_whole", refuse)
    assert len(read(outputs, monkeypatch)) == 5
    assert not (outputs / INDEX).exists()


def test_a_small_store_needs_no_index(outputs, monkeypatch):
    monkeypatch.setattr(index, "WORTHWHILE", 100)
    assert len(read(outputs, monkeypatch)) == 5
    assert not (outputs / INDEX).exists()


def test_a_row_that_vanishes_while_it_is_read_is_left_out(outputs, monkeypatch):
    parse = index.row_of

    def vanish(folder):
        if folder.endswith("a" * 12):
            raise FileNotFoundError
        return parse(folder)

    monkeypatch.setattr(index, "row_of", vanish)
    assert len(read(outputs, monkeypatch)) == 4
