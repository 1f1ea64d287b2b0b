"""One self-contained HTML page, and beside it every figure as PNG, SVG and PDF and every table as CSV."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fca.allowed import Allowed, plain_name
from fca.report import style
from fca.report.figure import headlines, visuals_of
from fca.report.pictures import is_pictures
from fca.report.style import NothingToDraw, spec
from fca.store import columns as of_row
from fca.store.files import write_text
from fca.types import Column, FcaError, Table, with_interval

_HERE = Path(__file__).parent
_SIGNS = ('<meta name="generator" content="fca report">', '<a class="skip" href="#summary">')  # old pages: the second
_FIRST = (
    *(of_row.RUN_ID, of_row.TASK, of_row.DATASET, of_row.MODEL, of_row.ENCODER, of_row.NCL, of_row.SUBSET_SEED),
    *with_interval(of_row.TOP1),
)
_MADE_BY = (of_row.COMMIT, of_row.VERSIONS, of_row.DEVICE, of_row.HOST)


@dataclass(frozen=True)
class Section:
    """A part of the page. `missing`: why there is no figure; with no tables either, the part is left out."""

    key: str  # anchor and file name
    title: str
    figure: dict[str, Any] | None
    tables: tuple[Table, ...]
    missing: str | None = None


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    headlines: sentences at its top.    rows: the runs behind it, as in `fca.store.results`, and their `columns`.
    command: what makes this page again.    left_out: what of the store it does not show, and why, as sentences.
    """

    title: str
    headlines: Sequence[str]
    sections: Sequence[Section]
    rows: pd.DataFrame
    command: str
    columns: Sequence[Column] = ()
    left_out: Sequence[str] = ()


def write_page(folder: Path, page: Page) -> Path:
    """Write index.html, figures/ and tables/ into the folder, in place of an earlier page; returns index.html.

    Raises FcaError for a folder that holds anything but an earlier page.
    """
    index = folder / "index.html"
    is_page = index.is_file() and any(sign in index.read_text(encoding="utf-8", errors="replace") for sign in _SIGNS)
    if folder.exists() and not is_page and not (folder.is_dir() and not any(folder.iterdir())):
        allowed = "a new or empty folder, or one with an earlier page"
        raise FcaError("folder of the page", folder, allowed, "take another name")
    write_text(index, render(page))  # first: whatever happens next, the folder is known as a page's
    for part in ("figures", "tables"):  # else a figure that is left out now would stay from before
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    for section in page.sections:
        if section.figure is not None:
            style.save(section.figure, folder / "figures" / plain_name("key of a figure", section.key))
        for table in section.tables:
            table.frame.to_csv(folder / "tables" / f"{plain_name('name of a table', table.name)}.csv", index=False)
    page.rows.to_csv(folder / "tables" / "runs.csv", index=False)
    return index


def render(page: Page) -> str:
    """The HTML: no resource from elsewhere, everything from the data escaped."""
    environment = Environment(loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined)
    tables = [table for section in page.sections for table in section.tables]
    varying, constant = _split(page.rows)
    data = {
        "figures": {s.key: s.figure for s in page.sections if s.figure is not None},
        "tables": {t.name: grid(t.frame, t.columns) for t in tables} | {"runs": grid(varying, page.columns)},
        "filters": {column: _choices(tables, column) for column in _filters(tables)},
        "names": {column: dict(column.choices) for column in _filters(tables) if column.choices},
        "config": {"light": style.config(), "dark": style.config(dark=True)},
    }
    return environment.get_template("page.html.jinja").render(
        page=page,
        constant=constant,
        data=data,
        commands=_counted(page.rows.dropna(subset="command"), ["command"]),
        made_by=_counted(page.rows, list(_MADE_BY)),
        css=Markup((_HERE / "page.css").read_text()),  # noqa: S704  ours, as are the next two
        js=Markup((_HERE / "page.js").read_text()),  # noqa: S704
        vega=Markup(_vega()),  # noqa: S704
    )


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed vl-convert."""
    return vl_convert.javascript_bundle(vl_version=style.VEGA_LITE)  # type: ignore[call-arg]


def grid(frame: pd.DataFrame, columns: Sequence[Column] = ()) -> dict[str, Any]:
    """A frame for the page's tables: columns with kind (percent, number, image or text) and meaning, and their lines.

    columns: the declarations of those that are declared.

    >>> share = Column("top1", float, ".2%", "top-1 accuracy")
    >>> grid(pd.DataFrame({"ncl": [2], "top1": [0.5], "classes": [(0, 7)]}), [share])["lines"]
    [[2, 0.5, '0, 7']]
    """
    declared = {str(column): column for column in columns}
    names = [str(name) for name in frame.columns if frame[name].notna().any()]
    heads = [{"name": name, **_about(declared.get(name, Column(name)), frame[name])} for name in names]
    lines = zip(*(style.cells(frame[name]) for name in names), strict=True)
    return {"columns": heads, "lines": [list(line) for line in lines]}


def _about(column: Column, values: pd.Series) -> dict[str, str]:
    kind = "text"
    if column.number_format.endswith("%"):
        kind = "percent"
    elif is_pictures(values):
        kind = "image"
    elif pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):  # True is no number
        kind = "number"
    return {"kind": kind, **({"meaning": column.meaning} if column.meaning else {})}


def _split(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The columns in which runs differ, and the value of those in which all agree."""
    shown = {str(name): style.cells(rows[name]) for name in rows}
    constant = {name: values[0] for name, values in shown.items() if len(set(values)) == 1 and values[0] is not None}
    varying = [name for name in rows if name not in constant]
    return rows[sorted(varying, key=lambda name: name not in _FIRST)], constant


def _filters(tables: Sequence[Table]) -> list[Column]:
    """The columns by which a reader can filter the page: those that a table declares so, each once."""
    return list(dict.fromkeys(column for table in tables for column in table.columns if column.filters))


def _choices(tables: Sequence[Table], column: Column) -> list[Any]:
    """The values of a column in all tables, in the order a reader expects; none where there is nothing to choose."""
    found = {value for t in tables if column in t.frame for value in style.cells(t.frame[column].dropna())}
    order = list(column.choices).index if column.choices else None
    return sorted(found, key=order) if len(found) > 1 else []


def _counted(rows: pd.DataFrame, names: Sequence[str]) -> list[tuple[dict[str, str], int]]:
    """Every combination of these columns, most frequent first, and how many runs it made."""
    known = rows[[name for name in names if name in rows]].dropna(axis="columns", how="all")
    if known.empty:
        return []
    counts = known.value_counts(dropna=False)
    keys = counts.index.to_frame(index=False).astype(object)
    return [
        ({str(name): value for name, value in line.items() if pd.notna(value)}, int(n))
        for line, n in zip(keys.to_dict("records"), counts, strict=True)
    ]


# The report of some analyses: one page with every figure that draws their tables.


class Result(NamedTuple):
    """What an analysis found: its tables, or the reason why there are none."""

    analysis: Any
    tables: Sequence[Table]
    missing: str = ""


@dataclass(frozen=True)
class AnalysesReport:
    """`report=few_class`. name: of its folder under reports/.

    analyses: run first, and shown in this order; left out where no rows are.
    options:  field -> value, for each analysis that has the field.
    """

    name: str
    title: str
    analyses: Annotated[list[str], Allowed(filled=True)]
    options: dict[str, Any]

    def __call__(
        self,
        folder: Path,
        results: Sequence[Result],
        rows: pd.DataFrame,
        command: str,
        columns: Sequence[Column] = (),
        left_out: Sequence[str] = (),
    ) -> Path:
        """Write the page, its figures and tables into the folder; returns the page.

        rows: all that the store holds, with their columns; the page lists those that the tables read and those that
        these were made from.    command: what makes the page again.    left_out: sentences on what is not there.
        """
        read = {run_id for result in results for table in result.tables for run_id in table.runs}
        used = rows[rows["run_id"].isin(read | set(rows.loc[rows["run_id"].isin(read), "parent"].dropna()))]
        known = {table.name: table for result in results for table in result.tables}
        sections = [section for result in results for section in _sections(result, known)]
        sentences = [line for result in results for line in headlines(result.analysis, known)]
        return write_page(folder, Page(self.title, sentences, sections, used, command, columns, left_out))


def _sections(result: Result, known: Mapping[str, Table]) -> Iterator[Section]:
    """Each figure of an analysis, or the reason why it is missing; below it the tables that it is the first to draw."""
    shown: set[str] = set()
    for figure in visuals_of(result.analysis).figures:
        tables = [known[table.name] for table in figure.tables if table.name in known]
        new = tuple(table for table in tables if table.name not in shown and len(table.frame))
        shown |= {table.name for table in new}
        drawn, missing = None, result.missing or "its analysis did not run"
        if len(tables) == len(figure.tables):
            try:
                drawn = spec(figure.draw(*tables))
            except NothingToDraw as nothing:
                missing = str(nothing)
        yield Section(figure.key, figure.title, drawn, new, None if drawn else missing)
