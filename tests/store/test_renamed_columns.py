"""Rows that an earlier version wrote are read with the present names of columns, and the older names may be typed."""

import logging

import pytest

import fca
from fca.cli.results import main
from fca.store import Store, claims
from fca.store.columns import present_name
from fca.store.filters import query_of
from fca.store.query import rows_matching
from fca.tables.rows import apply_query
from fca.types import Column

RUN_IDS = {"n_asked": "0123456789ab", "n_evaluated": "ba9876543210"}


@pytest.fixture
def store(tmp_path):
    """Two tests of 18 and 36 images: one of an earlier version, one of the present."""
    store = Store(tmp_path)
    for n, (name, run_id) in zip((18, 36), RUN_IDS.items(), strict=True):
        token = claims.acquire(store.folder(run_id))
        row = {"run_id": run_id, "task": "adaptive_test", "dataset": "digits", name: n}
        store.write(row, {}, token, [Column(name, int)])
    present_name.cache_clear()
    return store


def test_rows_of_an_earlier_version_have_the_present_name(store):
    assert store.row(RUN_IDS["n_asked"])["n_evaluated"] == 18
    rows = store.rows()
    assert "n_asked" not in rows
    assert sorted(rows["n_evaluated"]) == [18, 36]


def test_an_older_name_in_a_query_or_filter_keeps_the_same_rows_with_one_hint(store, caplog):
    rows = store.rows()
    with caplog.at_level(logging.WARNING):
        assert rows_matching(rows, "n_asked > 20")["run_id"].tolist() == [RUN_IDS["n_evaluated"]]
        assert rows_matching(rows, query_of("n_asked<=20", rows))["run_id"].tolist() == [RUN_IDS["n_asked"]]
    assert [record.getMessage() for record in caplog.records] == ["column n_asked is now called n_evaluated"]


def test_an_older_name_may_be_typed_where_columns_are_listed(store, capsys):
    words = ["--columns", "run_id,n_asked", "--sort", "-n_asked", "--format", "csv", "--outputs", str(store.outputs)]
    assert main(words) == 0
    lines = capsys.readouterr().out.split()
    assert lines == ["run_id,n_evaluated", f"{RUN_IDS['n_evaluated']},36", f"{RUN_IDS['n_asked']},18"]


def test_an_older_name_selects_rows_through_the_command_the_package_and_analyses(store, capsys):
    """The schema that an earlier version wrote declares the older name: it must not become an empty column beside."""
    newer = RUN_IDS["n_evaluated"]
    assert (
        main(["--query", "n_asked > 20", "--columns", "run_id", "--format", "csv", "--outputs", str(store.outputs)])
        == 0
    )
    assert capsys.readouterr().out.split() == ["run_id", newer]
    assert fca.results(store.outputs, query="n_asked > 20")["run_id"].tolist() == [newer]
    listed = fca.results(store.outputs, columns=["run_id", "n_asked"])
    assert dict(zip(listed["run_id"], listed["n_evaluated"], strict=True)) == dict(
        zip(RUN_IDS.values(), (18, 36), strict=True)
    )
    assert apply_query(store.rows(), "n_asked > 20")["run_id"].tolist() == [newer]
