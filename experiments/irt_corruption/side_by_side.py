"""The tables of Sharma et al. (Do models see corruption as we see?, 2023) beside ours, from stored runs.

    python experiments/irt_corruption/side_by_side.py outputs                      the paper's CIFAR-10; about a minute
    python experiments/irt_corruption/side_by_side.py outputs cifar100             the runs of another data set
    python experiments/irt_corruption/side_by_side.py outputs cifar10 wrong.csv    with the labels known to be wrong

Starts no run. What none fills stays empty, with the command that fills it. "As the paper did" is compat=seed001 with
its model of responses. Expect on an empty store: the paper's numbers alone, and where it contradicts itself.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import altair as alt
import compared
import figures
import pandas as pd
from compared import THEIRS
from sharma import CONTRADICTIONS, DATASET, MODEL, PAPER, TEXTS

from fca.report.page import Page, Section, write_page
from fca.report.style import NothingToDraw, spec
from fca.store import Store
from fca.studies.irt.class_robustness import ClassRobustness
from fca.studies.irt.difficulty_segments import DifficultySegments
from fca.studies.irt.irt import Irt, Reliability
from fca.studies.irt.label_errors import LabelErrors, read_verdicts
from fca.tables.rows import readable_rows
from fca.types import FcaError, Table

COLUMN = ["item", "error"]  # of the file of verdicts
EMPTY = "no run has what this figure needs; the table gives the commands that make them"
ABOUT = {
    "ours": "default way: 2pl, segments by expected success, cut on clean images",
    "as_paper": "compat=seed001, 3pl-upper, segments by difficulty b, cut at each severity; most robust = moves most",
}
Ways = tuple[dict[str, Table], dict[str, Table]]  # tables by name: ours, and as the paper did


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 2 when the verdicts or the query cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", type=Path, help="the store")
    parser.add_argument("dataset", nargs="?", default=DATASET, help=f"whose runs (default: {DATASET})")
    parser.add_argument("verdicts", nargs="?", help="CSV of reviewed labels: item, and error = 1 where it is wrong")
    parser.add_argument("--to", type=Path, help="folder of the page (default: OUTPUTS/reports/side_by_side)")
    parser.add_argument("--query", help="narrows the runs, a condition on their columns")
    given = parser.parse_args(arguments)
    try:
        page = side_by_side(Store(given.outputs), given.dataset, given.verdicts, given.query)
        index = write_page(given.to or given.outputs / "reports" / "side_by_side", page)
    except FcaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*page.headlines, f"page: {index}"]))
    return 0


def side_by_side(store: Store, dataset: str = DATASET, verdicts: str | None = None, query: str | None = None) -> Page:
    """The page. Raises FcaError for verdicts and a query that cannot be read; what else fails is a headline."""
    ways, reasons = analysed(store, dataset, verdicts, query)
    parts = list(_sections(ways, dataset, verdicts is not None))
    words = [str(store.outputs), dataset, *([verdicts] if verdicts else []), *(["--query", query] if query else [])]
    command = shlex.join(["python", "experiments/irt_corruption/side_by_side.py", *words])
    rows = store.rows()
    used = {run for part in parts for table in part.tables for run in table.runs}
    used |= set(rows.loc[rows["run_id"].isin(used), "parent"].dropna())
    lines = list(_headlines({table.name: table.frame for part in parts for table in part.tables}, reasons))
    return Page("Sharma et al. and ours", lines, parts, rows[rows["run_id"].isin(used)], command)


def analysed(store: Store, dataset: str, verdicts: str | None, query: str | None) -> tuple[Ways, dict[str, str]]:
    """The analyses in both ways, and why one has no table; where a fit each is needed, only what the paper reports."""
    if verdicts is not None:
        read_verdicts(verdicts, COLUMN)
    rows = readable_rows(store, query)
    own = f"dataset == {dataset!r}" + (f" and ({query})" if query else "")
    shifts = rows["shift"].dropna().unique().tolist()
    first = ["clean", *(name for name in shifts if name.endswith("/1"))]
    blur = ["clean", *(name for name in shifts if "/defocus_blur/" in name)]
    analyses: list[tuple[str, Callable[..., Any], dict[str, str]]] = [
        ("reliability", Reliability, {"query": f"{own} and shift in {first}"}),
        ("difficulty_segments", DifficultySegments, {"query": own}),
        ("class_robustness", ClassRobustness, {"query": own}),
        ("irt", Irt, {"query": f"{own} and shift in {blur}", "model": MODEL}),  # feasibility is needed in both ways
    ]
    made = [
        (f"{name}, {way}", tables, kind(**fields | ({"model": MODEL, "compat": "seed001"} if tables else {})))
        for name, kind, fields in analyses
        for tables, way in enumerate(("ours", "as the paper did"))
    ]
    if verdicts is not None:
        made.append(("label_errors", 0, LabelErrors(own, [], verdicts, COLUMN, MODEL, "seed001")))
    ways: Ways = ({}, {})
    reasons: dict[str, str] = {}
    for name, way, analysis in made:
        try:
            ways[way].update({table.name: table for table in analysis(store)})
        except FcaError as error:
            reasons[name] = str(error)
    return ways, reasons


def _sections(ways: Ways, dataset: str, verdicts: bool) -> Iterator[Section]:
    analyses = (Irt, Reliability, DifficultySegments, ClassRobustness, LabelErrors)
    empty = {table.name: table.frame([]) for analysis in analyses for table in analysis.tables}
    ours, theirs = ({**empty, **{name: table.frame for name, table in tables.items()}} for tables in ways)

    classes = compared.table1_classes(ours["class_robustness"], theirs["class_robustness"])
    taus = compared.table2(ours["reliability"], theirs["reliability"], dataset)
    solved = compared.table3(ours["segment_models"], theirs["segment_models"], dataset)
    shares = compared.table3_shares(solved)
    outer = compared.figure4(ours["segment_classes"], theirs["segment_classes"], dataset)
    frames = {
        "table1": compared.table1(ours["robust_classes"], theirs["robust_classes"], dataset),
        "table1_classes": classes,
        "table2": taus,
        "table3": solved,
        "table3_shares": shares,
        "figure4": outer,
        "moves": compared.moves(ours["class_severity"], theirs["class_severity"], dataset),
        "statements": compared.statements(ours, theirs, dataset, verdicts),
        "contradictions": pd.DataFrame(CONTRADICTIONS),
    }
    draw = {
        "table1": partial(figures.table1, classes),
        "table2": partial(figures.table2, taus),
        "table3": partial(figures.table3, shares),
        "figure4": partial(figures.figure4, outer),
    }
    for key, section in TEXTS["sections"].items():
        tables = tuple(_table(name, frames[name], ways, **text) for name, text in section["tables"].items())
        yield _section(key, section["title"], draw.get(key), *tables)


def _table(
    name: str,
    frame: pd.DataFrame,
    ways: Ways,
    question: str,
    source: str,
    read: list[str],
    notes: Mapping[str, str] = {},
) -> Table:
    """read: the tables of analyses that it is made of."""
    used = {run for tables in ways for other in read if other in tables for run in tables[other].runs}
    about = {**ABOUT, **notes} if read else {}
    return Table(name, question, f"{PAPER}{source}", frame, about, tuple(sorted(used)))


def _section(key: str, title: str, draw: Callable[[], alt.FacetChart] | None, *tables: Table) -> Section:
    if draw is None:
        return Section(key, title, None, tables, "a figure; the table has it in words")
    try:
        return Section(key, title, spec(draw()), tables)
    except NothingToDraw:
        return Section(key, title, None, tables, EMPTY)


def _headlines(frames: Mapping[str, pd.DataFrame], reasons: Mapping[str, str]) -> Iterator[str]:
    """The first lines of the page; every number in them stands in a table."""
    printed = frames["table1"].dropna(subset="susceptible_paper")
    filled = printed.dropna(subset="susceptible")
    line = f"Table 1: {len(filled)} of {len(printed)} corruptions have runs here"
    same = [f"{one.corruption} {one.same} (as the paper did {one.same_as_paper})" for one in filled.itertuples()]
    agree = f"of its four classes ours gives the same verdict to: {', '.join(same)}; {compared.CHANCE} by chance"
    yield f"{line}; {agree if same else 'every empty cell names the command that fills it'}."
    for one in frames["table2"].dropna(subset="tau").itertuples():
        paper = "not in the paper" if pd.isna(one.tau_paper) else f"the paper {one.tau_paper:.3f}"
        ours = f"ours {one.tau:.3f} {_interval(one.tau_low, one.tau_high)}"
        theirs = f"as the paper did {one.tau_as_paper:.3f} {_interval(one.tau_low_as_paper, one.tau_high_as_paper)}"
        whose = f"{one.n_subjects} subjects of {one.n_models} model{'s' if one.n_models > 1 else ''}"
        yield f"Table 2, {one.corruption}: {paper}; {ours}; {theirs}; {whose}."
    stated = frames["figure4"].dropna(subset=["paper", "seen"])
    for parameter, part in stated.groupby("parameter", sort=False):
        agree = f"of {len(part)} classes in the outer quarters are few or many as stated"
        yield f"Figure 4, {parameter}: {_as_stated(part, agree)}."
    moved = frames["moves"].dropna(subset="seen")
    if len(moved):
        yield f"Figures 8 to 10: {_as_stated(moved, f'of {len(moved)} moves are as stated')}."
    for one in frames["statements"].dropna(subset="ours").itertuples():
        theirs = "" if compared.missing(one.as_paper) else f" As the paper did: {one.as_paper}."
        yield f"Stated ({one.where}): {one.statement}. Ours: {one.ours}.{theirs}"
    for reason in dict.fromkeys(reasons.values()):
        yield f"Not shown: {'; '.join(name for name in reasons if reasons[name] == reason)}. {reason}"


def _interval(low: float, high: float) -> str:
    return "(no interval: one model)" if pd.isna(low) else f"[{low:.3f}, {high:.3f}]"


def _as_stated(part: pd.DataFrame, words: str) -> str:
    same, theirs = ((part["paper"] == part[f"seen{end}"]).sum() for end in ("", THEIRS))
    return f"{same} {words}; as the paper did, {theirs}"


if __name__ == "__main__":
    raise SystemExit(main())
