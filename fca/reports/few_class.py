"""The report of the few-class analyses: accuracy, DCN, ranks, similarity and their correlation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import altair as alt
import pandas as pd

from fca.nouns import Table
from fca.reports import accuracy, similarity
from fca.reports.answers import answers
from fca.reports.page import Page, Section, write_page
from fca.reports.style import NothingToDraw, spec


class _Part(NamedTuple):
    key: str
    title: str
    analysis: str  # which analysis makes its tables
    tables: tuple[str, ...]  # those that the figure draws, in the order of its arguments
    draw: Callable[..., alt.FacetChart]


_PARTS = (
    _Part("accuracy", "Accuracy", "few_class", ("accuracy_points", "accuracy"), accuracy.accuracy_figure),
    _Part("gap", "Sub-models against full models", "few_class", ("gap",), accuracy.gap_figure),
    _Part("dcn", "The best model (DCN)", "few_class", ("dcn",), accuracy.dcn_figure),
    _Part("ranks", "Ranks of the models", "few_class", ("ranks",), accuracy.ranks_figure),
    _Part("rank_agreement", "Ranks on all classes", "few_class", ("rank_agreement",), accuracy.agreement_figure),
    _Part("similarity", "Similarity of the subsets", "similarity", ("similarity",), similarity.similarity_figure),
    _Part(
        "simss_accuracy",
        "Similarity and accuracy",
        "correlation",
        ("correlation_points", "correlation"),
        similarity.scatter_figure,
    ),
    _Part(
        "correlation",
        "What similarity tells",
        "correlation",
        ("correlation", "correlation_points"),
        similarity.correlation_figure,
    ),
)


@dataclass(frozen=True)
class FewClassReport:
    """`report=few_class`. name: of its folder under reports/.    analyses: run first; left out where no rows are."""

    name: str
    title: str
    analyses: list[str]

    def __call__(self, folder: Path, tables: Sequence[Table], rows: pd.DataFrame, reasons: Mapping[str, str]) -> Path:
        """Write the page, its figures and tables into the folder; returns the page.

        rows: all that the store holds; the page lists those that the tables read and those that these were made from.
        reasons: analysis -> why it could not answer; shown in its place.
        """
        known = {table.name: table for table in tables}
        read = {run_id for table in tables for run_id in table.runs}
        used = rows[rows["run_id"].isin(read | set(rows.loc[rows["run_id"].isin(read), "parent"].dropna()))]
        sections = list(_sections(known, reasons))
        page = Page(self.title, answers(known), sections, used, f"fca report report={self.name}")
        return write_page(folder, page)


def _sections(known: Mapping[str, Table], reasons: Mapping[str, str]) -> Iterator[Section]:
    """Each part with its figure, or with the reason why there is none. A table is shown where it is first drawn."""
    shown: set[str] = set()
    for part in _PARTS:
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
