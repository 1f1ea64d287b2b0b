"""The parts of the page, and what they say in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import altair as alt
import cells
import figures
import pandas as pd
import statements
from paper import CONTRADICTIONS, PAPER, SUBJECTS
from ways import Ways

from fca.report.page import Section
from fca.report.style import NothingToDraw, spec
from fca.types import Table

EMPTY = "no run has what this figure needs; the table gives the commands that make them"
WORDS = "a figure; the table says it in words"
ABOUT = {
    "ours": "default way: 2pl, segments by expected success, cut on clean images",
    "as_paper": "compat=seed001, 3pl-upper, segments by difficulty b, cut at each severity; most robust = moves most",
}
CONFLICTS = ["on", "where", "says", "elsewhere", "says_there"]


def sections(ways: Ways, dataset: str, verdicts: bool) -> list[Section]:
    """Every part. verdicts: whether a file of known annotation errors is given."""
    ours, theirs = ways.frames()
    return [*_tables(ways, ours, theirs, dataset), *_words(ways, ours, theirs, dataset, verdicts)]


def _tables(
    ways: Ways, ours: Mapping[str, pd.DataFrame], theirs: Mapping[str, pd.DataFrame], dataset: str
) -> Iterator[Section]:
    def both(name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        return ours[name], theirs[name]

    runs = ways.runs("robust_classes", "class_robustness")
    named = cells.table1(*both("robust_classes"), dataset)
    classes = cells.table1_classes(*both("class_robustness"))
    chance = {**ABOUT, "same": f"of the four classes named; by chance {cells.CHANCE}"}
    told = [
        Table("table1", "Which classes are susceptible, which robust?", f"{PAPER}, table 1", named, chance, runs),
        Table("table1_classes", "How steady is each class?", f"{PAPER}, section 3.2", classes, ABOUT, runs),
    ]
    yield _section("table1", "Table 1: susceptible and robust classes", lambda: figures.table1(classes), *told)
    taus, runs = cells.table2(*both("reliability"), dataset), ways.runs("reliability")
    about = {**ABOUT, "intervals": "95 % over models, all snapshots of one together", "paper": f"{SUBJECTS} subjects"}
    asked = "Does ability order the subjects as accuracy does?"
    table = Table("table2", asked, f"{PAPER}, table 2", taus, about, runs)
    yield _section("table2", "Table 2: ability and accuracy", lambda: figures.table2(taus), table)
    solved, runs = cells.table3(*both("segment_models"), dataset), ways.runs("segment_models")
    shares = cells.table3_shares(solved)
    asked = "How many images of each segment does each subject get right?"
    told = [
        Table("table3", asked, f"{PAPER}, table 3 (its severity is not stated)", solved, ABOUT, runs),
        Table("table3_shares", "The same as shares", f"{PAPER}, table 3", shares, ABOUT, runs),
    ]
    yield _section("table3", "Table 3: subjects and segments", lambda: figures.table3(shares), *told)
    outer, runs = cells.figure4(*both("segment_classes"), dataset), ways.runs("segment_classes")
    about = {**ABOUT, "intervals": "95 %, Wilson", "seen": "few or many where the interval leaves out a quarter"}
    asked = "Which classes are in the outer quarters?"
    table = Table("figure4", asked, f"{PAPER}, figure 4 and section 3.3", outer, about, runs)
    yield _section("figure4", "Figure 4: classes in the outer quarters", lambda: figures.figure4(outer), table)


def _words(
    ways: Ways, ours: Mapping[str, pd.DataFrame], theirs: Mapping[str, pd.DataFrame], dataset: str, verdicts: bool
) -> Iterator[Section]:
    moved = statements.moves(ours["class_severity"], theirs["class_severity"], dataset)
    about = {**ABOUT, "counts": "images of the class in the segment, at each severity above 0"}
    asked = "Do classes move between segments as the paper says?"
    table = Table("moves", asked, f"{PAPER}, figures 8 to 10", moved, about, ways.runs("class_severity"))
    yield Section("moves", "Figures 8 to 10: classes that move", None, (table,), WORDS)
    said = statements.statements(ours, theirs, dataset, verdicts)
    runs = ways.runs("class_robustness", "irt_items", "segment_models", "label_error_rules")
    table = Table("statements", "Does ours agree with what is stated?", PAPER, said, {**ABOUT, **_FIGURE1}, runs)
    yield Section("statements", "Statements", None, (table,), WORDS)
    against = pd.DataFrame(CONTRADICTIONS, columns=CONFLICTS)
    table = Table("contradictions", "Where does the paper contradict itself?", PAPER, against, {}, ())
    yield Section("contradictions", "The paper against itself", None, (table,), WORDS)


_FIGURE1 = {
    "figure 1": "3pl-upper in both ways, since it asks for feasibility; one fit of all severities; falls: by over 1 %"
}


def told(parts: Sequence[Section], reasons: Mapping[str, str]) -> list[str]:
    """The first lines of the page; every number in them stands in a table."""
    frames = {table.name: table.frame for part in parts for table in part.tables}
    lines = [*_table1_says(frames["table1"]), *_table2_says(frames["table2"]), *_figure4_says(frames["figure4"])]
    moved = frames["moves"].dropna(subset="seen")
    if len(moved):
        same, theirs = ((moved["paper"] == moved[f"seen{end}"]).sum() for end in ("", cells.THEIRS))
        lines.append(f"Figures 8 to 10: {same} of {len(moved)} moves are as stated; as the paper did, {theirs}.")
    for line in frames["statements"].dropna(subset="ours").itertuples():
        lines.append(f"Stated ({line.where}): {line.statement}. Ours: {line.ours}.")
        if not cells.missing(line.as_paper):
            lines[-1] += f" As the paper did: {line.as_paper}."
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return [*lines, *(f"Not shown: {'; '.join(those)}. {reason}" for reason, those in names.items())]


def _table1_says(table: pd.DataFrame) -> Iterator[str]:
    printed = table.dropna(subset="susceptible_paper")
    filled = printed.dropna(subset="susceptible")
    line = f"Table 1: {len(filled)} of {len(printed)} corruptions have runs here"
    if filled.empty:
        yield f"{line}; every empty cell names the command that fills it."
        return
    same = [f"{one.corruption} {one.same} (as the paper did {one.same_as_paper})" for one in filled.itertuples()]
    yield f"{line}; of its four classes ours gives the same verdict to: {', '.join(same)}; {cells.CHANCE} by chance."


def _table2_says(table: pd.DataFrame) -> Iterator[str]:
    for one in table.dropna(subset="tau").itertuples():
        paper = "not in the paper" if pd.isna(one.tau_paper) else f"the paper {one.tau_paper:.3f}"
        ours = f"ours {one.tau:.3f} {_interval(one.tau_low, one.tau_high)}"
        theirs = f"as the paper did {one.tau_as_paper:.3f} {_interval(one.tau_low_as_paper, one.tau_high_as_paper)}"
        whose = f"{one.n_subjects} subjects of {one.n_models} model{'s' if one.n_models > 1 else ''}"
        yield f"Table 2, {one.corruption}: {paper}; {ours}; {theirs}; {whose}."


def _interval(low: float, high: float) -> str:
    return "(no interval: one model)" if pd.isna(low) else f"[{low:.3f}, {high:.3f}]"


def _figure4_says(table: pd.DataFrame) -> Iterator[str]:
    stated = table.dropna(subset=["paper", "seen"])
    for parameter, part in stated.groupby("parameter", sort=False):
        same, theirs = ((part["paper"] == part[f"seen{end}"]).sum() for end in ("", cells.THEIRS))
        yield (
            f"Figure 4, {parameter}: {same} of {len(part)} classes in the outer quarters are few or many as stated; "
            f"as the paper did, {theirs}."
        )


def _section(key: str, title: str, draw: Callable[[], alt.FacetChart], *tables: Table) -> Section:
    try:
        return Section(key, title, spec(draw()), tables)
    except NothingToDraw:
        return Section(key, title, None, tables, EMPTY)
