"""One report of invented tables, written once for all tests that look at it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

from fca.report.page import AnalysesReport
from fca.types import Table
from tests.studies.few_class.support.invented import COLUMNS, results, run_rows, tables


class Written(NamedTuple):
    folder: Path
    tables: Sequence[Table]
    rows: pd.DataFrame

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Written:
    made = tables()
    rows = run_rows(made)
    folder = tmp_path_factory.mktemp("reports") / "few_class"
    report = AnalysesReport("few_class", "Few classes", ["few_class", "similarity", "correlation"], {})
    assert report(folder, results(made), rows, "fca report report=few_class", COLUMNS) == folder / "index.html"
    return Written(folder, made, rows)
