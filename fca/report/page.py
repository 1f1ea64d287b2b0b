"""One self-contained HTML page, and beside it every figure as PNG, SVG and PDF and every table as CSV."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
import vl_convert
from markupsafe import Markup

from fca.report import style
from fca.report.part import answers, parts
from fca.report.pictures import is_pictures
from fca.report.style import NothingToDraw, spec
from fca.types import Table

_HERE = Path(__file__).parent
_FRACTIONS = ("top1", "val_top1", "spread", "sub_minus_")  # shown in percent
_FIRST = ("run_id", "task", "dataset", "model", "encoder", "ncl", "subset_seed", "top1", "top1_low", "top1_high")
_MADE_BY = ("commit", "versions", "device", "host")


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
    """What is told. rows: the runs behind it, as in `fca.store.results`.    command: what makes this page again."""

    title: str
    answers: Sequence[str]
    sections: Sequence[Section]
    rows: pd.DataFrame
    command: str


def write_page(folder: Path, page: Page) -> Path:
    """Write index.html, figures/ and tables/ into the folder, in place of an earlier page; returns index.html."""
    for part in ("figures", "tables"):  # else a figure that is left out now would stay from before
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    for section in page.sections:
        if section.figure is not None:
            style.save(section.figure, folder / "figures" / section.key)
        for table in section.tables:
            table.frame.to_csv(folder / "tables" / f"{table.name}.csv", index=False)
    page.rows.to_csv(folder / "tables" / "runs.csv", index=False)
    index = folder / "index.html"
    index.write_text(render(page), encoding="utf-8")
    return index


def render(page: Page) -> str:
    """The HTML: no resource from elsewhere, everything from the data escaped."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_HERE), autoescape=True, undefined=_STRICT)
    tables = [table for section in page.sections for table in section.tables]
    varying, constant = _split(page.rows)
    data = {
        "figures": {s.key: s.figure for s in page.sections if s.figure is not None},
        "tables": {**{table.name: grid(table.frame) for table in tables}, "runs": grid(varying)},
        "filters": {field: _choices(tables, field) for field in style.FILTERS},
        "names": style.PROTOCOLS,
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
    bundle: str = vl_convert.javascript_bundle(vl_version=style.VEGA_LITE)  # type: ignore[call-arg]
    return bundle


def grid(frame: pd.DataFrame) -> dict[str, Any]:
    """A frame for the page's tables: columns with their kind (percent, number, image or text) and lines of JSON values.

    >>> grid(pd.DataFrame({"ncl": [2], "top1": [0.5], "classes": [(0, 7)]}))["lines"]
    [[2, 0.5, '0, 7']]
    """
    names = [str(name) for name in frame.columns if frame[name].notna().any()]
    columns = [{"name": name, "kind": _kind(name, frame[name])} for name in names]
    lines = zip(*(style.cells(frame[name]) for name in names), strict=True)
    return {"columns": columns, "lines": [list(line) for line in lines]}


def _kind(name: str, values: pd.Series) -> str:
    if name.startswith(_FRACTIONS):
        return "percent"
    if is_pictures(values):
        return "image"
    number = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)  # True is no number
    return "number" if number else "text"


def _split(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The columns in which runs differ, and the value of those in which all agree."""
    shown = {str(name): style.cells(rows[name]) for name in rows}
    constant = {name: values[0] for name, values in shown.items() if len(set(values)) == 1 and values[0] is not None}
    varying = [name for name in rows if name not in constant]
    return rows[sorted(varying, key=lambda name: name not in _FIRST)], constant


def _choices(tables: Sequence[Table], field: str) -> list[Any]:
    """The values of a field in all tables, in the order a reader expects; none where there is nothing to choose."""
    found = {value for t in tables if field in t.frame for value in style.cells(t.frame[field].dropna())}
    order = list(style.PROTOCOLS).index if field == "protocol" else None
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


_STRICT = jinja2.StrictUndefined

# The report of some analyses: one page with every figure that draws their tables.


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
