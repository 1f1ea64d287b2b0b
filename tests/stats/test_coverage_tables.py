"""The tables of how often intervals contain the truth, shrunk: every row still simulates its quantity."""

import coverage_tables
import numpy as np
import pytest


@pytest.mark.parametrize("name", coverage_tables.TABLES)
def test_every_row_gives_an_interval_in_which_its_value_may_lie(name, monkeypatch):
    monkeypatch.setattr(coverage_tables, "LARGE", 2000)
    monkeypatch.setattr(coverage_tables, "EXPECTATION", 5)
    table = coverage_tables.covered(coverage_tables.TABLES[name](), (8,), 6)
    assert table["quantity"].is_unique
    assert (table["8"].dropna() >= 50).all(), "far from the truth: the row and its true value do not belong together"
    assert table["8"].notna().sum() >= len(table) - 1


def test_the_tables_are_printed_as_markdown(capsys):
    coverage_tables.main(["--only", "clusters", "--repeats", "4", "--draws", "3", "5"])
    printed = capsys.readouterr().out
    assert "| quantity | 3 | 5 | missing |" in printed
    assert printed.count("\n| ") == 1 + len(list(coverage_tables.clusters()))


def test_a_row_without_a_true_value_in_its_intervals_shows_it():
    row = coverage_tables.Row("off", 5.0, lambda rng, n: (0.0, 1.0))
    assert coverage_tables.covered(iter([row]), (3,), 10)["3"].tolist() == [0.0]
    none = coverage_tables.Row("none", 5.0, lambda rng, n: (np.nan, np.nan))
    assert np.isnan(coverage_tables.covered(iter([none]), (3,), 10)["3"].item())
