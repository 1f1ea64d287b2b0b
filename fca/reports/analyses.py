"""The report of some analyses: one page with every figure that draws their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fca.nouns import Table
from fca.reports.page import Page, Section, write_page
from fca.reports.part import answers, parts
from fca.reports.style import NothingToDraw, spec


@dataclass(frozen=True)
class AnalysesReport:
    """`report=few_class`. name: of its folder under reports/.

    analyses: run first, and told in this order; left out where no rows are.
    options:  field -> value, for each analysis that has the field.
    """

    name: str
    title: str
    analyses: list[str]
    options: dict[str, Any]

    def __call__(
        self, folder: Path, tables: Sequence[Table], rows: pd.DataFrame, reasons: Mapping[str, str], command: str
    ) -> Path:
        """Write the page, its figures and tables into the folder; returns the page.

        rows: all that the store holds; the page lists those that the tables read and those that these were made from.
        reasons: analysis -> why it could not answer; shown in its place.    command: what was asked, to make it again.
        """
        known = {table.name: table for table in tables}
        read = {run_id for table in tables for run_id in table.runs}
        used = rows[rows["run_id"].isin(read | set(rows.loc[rows["run_id"].isin(read), "parent"].dropna()))]
        sections = list(_sections(self.analyses, known, reasons))
        page = Page(self.title, answers(known), sections, used, command)
        return write_page(folder, page)


def _sections(analyses: Sequence[str], known: Mapping[str, Table], reasons: Mapping[str, str]) -> Iterator[Section]:
    """Each part with its figure, or with the reason why there is none. In the order of analyses
    and of their tables; a table is shown where it is first drawn."""
    shown: set[str] = set()
    order = {name: place for place, name in enumerate(known)}
    for part in sorted(
        (part for part in parts() if part.analysis in analyses),
        key=lambda part: (analyses.index(part.analysis), order.get(part.tables[0], 0)),
    ):
        tables = tuple(known[name] for name in part.tables if name in known)
        new = tuple(table for table in tables if table.name not in shown and len(table.frame))
        shown |= {table.name for table in new}
        if len(tables) < len(part.tables):
            reason = reasons.get(part.analysis, f"analysis {part.analysis} did not run")
            yield Section(part.key, part.title, None, new, reason)
            continue
        try:
            yield Section(part.key, part.title, spec(part.draw(*tables)), new)
        except NothingToDraw as nothing:
            yield Section(part.key, part.title, None, new, str(nothing))
