"""The parts of the parity page: its tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import altair as alt
import cells
import curve_drawings
import curves
import drawings
import pandas as pd
import ranking
import similarities
from findings import findings
from paper import DCN, IMAGENET, PAPER, base
from studies import Study

from fca.report.page import Section
from fca.report.style import NothingToDraw, spec
from fca.studies.few_class.figures.similarity import scatter_figure
from fca.types import Table

NO_RUN = "no run has what this figure needs; the table gives the commands that make them"
NO_RUN_ELSEWHERE = "no run has what this figure needs"
BARS = "Mean over class subsets; bars: one standard deviation between subsets."


def sections(
    paper: pd.DataFrame, correlations: pd.DataFrame, rows: pd.DataFrame, studies: list[Study]
) -> list[Section]:
    """Every part of the page. paper: Table 1.    correlations: Figure 5.    rows: of the store."""
    table = cells.table1(paper, rows)
    return [*_table1(paper, table), *_curves(paper, studies), *_similarity(correlations, studies)]


def _table1(paper: pd.DataFrame, table: pd.DataFrame) -> Iterator[Section]:
    runs = tuple(sorted(set(table["run_id"].dropna())))
    told = Table("table1", "Are full models as accurate as in the paper?", f"{PAPER} table 1", table, _ABOUT, runs)
    yield _section("table1", "Table 1: full models", lambda: drawings.table1(table), told)
    best = table[table["paper_model"] == DCN].dropna(axis="columns", how="all")
    told = Table("figure2a", _BEST, f"{PAPER} figure 2a", best, {}, runs)
    yield _section("figure2a", "Figure 2a: DCN", lambda: drawings.dcn(table), told)
    ranks = cells.ranks(table)
    told = Table("figure2b", _RANKS, f"{PAPER} figure 2b", ranks, {}, runs)
    yield _section("figure2b", "Figure 2b: ranks", lambda: drawings.ranks(ranks), told)
    agree = ranking.agreement(paper, table)
    source = f"{PAPER} table 1, recomputed; ours where there are runs"
    told = Table("rank_agreement", _AGREE, source, agree, {"intervals": "bootstrap over models"}, runs)
    yield _section("rank_agreement", "Is ImageNet's ranking everybody's?", lambda: drawings.agreement(agree), told)
    regret = ranking.regret(paper)
    told = Table(
        "regret", _REGRET, f"{PAPER} table 1, recomputed", regret, {"intervals": "bootstrap over data sets"}, ()
    )
    yield _section("regret", "Always the same model", lambda: drawings.regret(regret), told)


def _curves(paper: pd.DataFrame, studies: list[Study]) -> Iterator[Section]:
    runs = tuple(sorted({run for study in studies for run in study.points["run_id"]}))
    here, there = curves.figure1(studies), curves.figure1_elsewhere(studies)
    found = findings(studies)
    on = (found["dataset"].map(base) == IMAGENET).to_numpy()

    def table(name: str, question: str, source: str, frame: pd.DataFrame) -> Table:
        return Table(name, question, source, frame, _INTERVALS, runs)

    beyond = "as in the paper; these data sets are not in its figure"
    told = [table("figure1", "ResNets: accuracy by ncl", f"{PAPER} figure 1; masked is not in it", here)]
    told.append(table("figure1_findings", _FOUND, f"{PAPER} figure 1 (a) to (d)", found[on]))
    title = ": ResNets on ImageNet"
    yield _section(
        "figure1", "Figure 1: ResNets, full and sub-models", lambda: curve_drawings.scaling(here, title), *told
    )
    for number, ask, frame in (
        (3, "DCN-Full by ncl", curves.figure3(studies, paper[DCN])),
        (4, "DCN-Sub and DCN-Full at 2 to 4 classes", curves.figure4(studies, paper[DCN])),
    ):
        hollow = " Hollow: the paper's DCN on all classes." if number == 3 else ""
        heading = alt.Title(f"Figure {number}: {ask}", subtitle=[BARS + hollow])
        drawn = _drawer(curve_drawings.dcn_curve, frame, heading)
        told = [table(f"figure{number}", ask, f"{PAPER} figure {number}; masked is not in it", frame)]
        yield _section(f"figure{number}", f"Figure {number}: {ask}", drawn, *told)
    told = [table("beyond_figure1", "Accuracy by ncl elsewhere", beyond, there)]
    told.append(table("beyond_findings", _FOUND, beyond, found[~on]))
    title = ", beyond: all models on other data sets"
    yield _section("beyond_figure1", "Beyond the paper: figure 1", lambda: curve_drawings.scaling(there, title), *told)
    best = curves.dcn_elsewhere(studies)
    drawn = _drawer(
        curve_drawings.dcn_curve, best, alt.Title("Figures 3 and 4, beyond the paper's ten", subtitle=[BARS])
    )
    told = [table("beyond_dcn", "DCN by ncl beyond the paper's ten", beyond, best)]
    yield _section("beyond_dcn", "Beyond the paper: figures 3 and 4", drawn, *told)


def _similarity(published: pd.DataFrame, studies: list[Study]) -> Iterator[Section]:
    found, reasons = similarities.gathered(studies)
    named = {True: "Figure 5", False: "Beyond the paper: figure 5"}
    frames = {True: similarities.figure5(published, found), False: similarities.elsewhere(found)}
    for on, name in named.items():
        mine = {key: tables for key, tables in found.items() if (base(key) == IMAGENET) is on}
        runs = tuple(sorted({run for tables in mine.values() for table in tables.values() for run in table.runs}))
        why = {key: reason for key, reason in reasons.items() if (base(key) == IMAGENET) is on}
        key = "figure5" if on else "beyond_figure5"
        about = (f"{PAPER} figure 5; within ncl and ncl alone are not in it", frames[on], {**_INTERVALS, **why}, runs)
        heading = alt.Title(
            f"{name}: does SimSS tell accuracy?",
            subtitle=["Pearson's r. Ours: 95 % interval over subset seeds and models; the paper's: Fisher's."],
        )
        drawn = _drawer(drawings.coefficients, frames[on], heading)
        yield _section(key, f"{name}: SimSS and accuracy", drawn, Table(key, _SIMSS, *about))
        if mine:
            yield _points(key, name, mine)


def _points(key: str, name: str, found: Mapping[str, Mapping[str, Table]]) -> Section:
    """The points behind the coefficients, drawn as the few-class report draws them."""
    merged = {}
    for kind in ("correlation_points", "correlation"):
        tables = [tables[kind] for tables in found.values()]
        frame = pd.concat([table.frame for table in tables], ignore_index=True)
        runs = tuple(sorted({run for table in tables for run in table.runs}))
        merged[kind] = Table(f"{key}_{kind}", tables[0].question, tables[0].source, frame, tables[0].parameters, runs)
    return _section(f"{key}_points", f"{name}: points", lambda: scatter_figure(*merged.values()), *merged.values())


def _drawer(draw: Callable[..., alt.FacetChart], *given: Any) -> Callable[[], alt.FacetChart]:
    return lambda: draw(*given)


def _section(key: str, title: str, draw: Callable[[], alt.FacetChart], *tables: Table) -> Section:
    try:
        return Section(key, title, spec(draw()), tables)
    except NothingToDraw:
        return Section(key, title, None, tables, NO_RUN_ELSEWHERE if key.startswith("beyond") else NO_RUN)


_ABOUT = {"ours": "top1_open of full models on the clean test split", "intervals": "95 %, Wilson"}
_INTERVALS = {"intervals": "95 %, bootstrap over subset seeds", "spread": "standard deviation between subsets"}
_BEST = "How accurate is the best of the models on all classes?"
_RANKS = "Does the ranking of the models change with the data set?"
_AGREE = "Does the ranking on ImageNet tell that on another data set?"
_FOUND = "What does the paper say, what do we see, and is it told apart?"
_REGRET = "How far below the best is always taking one model?"
_SIMSS = "Does SimSS tell the accuracy of the best model?"
