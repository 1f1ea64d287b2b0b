"""One self-contained HTML page, and beside it every figure as PNG, SVG and PDF and every table as CSV."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pandas as pd
import vl_convert
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fca.allowed import Allowed, plain_name
from fca.csv_table import csv_text
from fca.report import style, terms
from fca.report.compare import FOLDER
from fca.report.finding import Finding, Headline, answers, findings_of, notes, statements
from fca.report.pictures import is_pictures, name_of_large
from fca.report.style import NothingToDraw, spec
from fca.store import columns as of_row
from fca.store.files import write_text
from fca.types import Analysis, Column, FcaError, Table, with_interval

MOST = 5  # headlines on a page
RUNS = "runs"  # the file of the runs behind a page, among those of its tables
_NUMBER = re.compile(r"[+-]?\d[\d.,]*(?: %| points)? \[[^\]]*\]")
_FILES = (".png", ".svg", ".pdf", ".csv", "-column.svg", "-column.pdf")
LARGE = "pictures"  # beside index.html: pictures at full size, which a click on a thumbnail opens
SHOWN = 1_000  # lines of a table that are on the page; its file has all
_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("tables.js", "filters.js", "figures.js", "compare.js", "start.js")
_SIGN = '<meta name="generator" content="fca report">'
_FIRST = (
    *(of_row.RUN_ID, of_row.TASK, of_row.DATASET, of_row.MODEL, of_row.ENCODER, of_row.NCL, of_row.SUBSET_SEED),
    *with_interval(of_row.TOP1),
)
_MADE_BY = (of_row.COMMIT, of_row.VERSIONS, of_row.DEVICE, of_row.HOST)


@dataclass(frozen=True)
class Section:
    """A part of the page: a figure, sentences on its details, and tables.

    missing: why there is no figure; a section without tables too is one line at the end of the page.
    """

    key: str  # anchor and file name
    title: str
    figure: dict[str, Any] | None
    tables: tuple[Table, ...]
    missing: str | None = None
    details: tuple[str, ...] = ()
    again: str = ""  # what makes its tables again

    @property
    def shown(self) -> bool:
        """Whether there is more than the reason why there is nothing."""
        return self.figure is not None or bool(self.tables or self.details)

    @property
    def caption(self) -> tuple[str, list[str]]:
        """The question of the figure, and the lines that explain its marks."""
        title = (self.figure or {}).get("title", "")
        return (title["text"], title.get("subtitle", [])) if isinstance(title, dict) else (title or self.title, [])


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    headlines: sentences on the whole page.    rows: the runs behind it, as in `fca.store.results`, and their `columns`.
    command: what makes this page again.    left_out: what of the store it does not show, and why, as sentences.
    answers: what the page opens with, at most five.    large: thumbnail -> the file of the same picture at full size.
    """

    title: str
    headlines: Sequence[str]
    sections: Sequence[Section]
    rows: pd.DataFrame
    command: str
    columns: Sequence[Column] = ()
    left_out: Sequence[str] = ()
    answers: Sequence[Headline] = ()
    large: Mapping[str, Path] = field(default_factory=dict)


def write_page(folder: Path, page: Page) -> Path:
    """Write index.html, figures/ and tables/ into the folder, in place of an earlier page; returns index.html.

    Raises FcaError for a folder that holds anything but an earlier page.
    """
    index = folder / "index.html"
    is_page = index.is_file() and _SIGN in index.read_text(encoding="utf-8", errors="replace")
    if folder.exists() and not is_page and not (folder.is_dir() and not any(folder.iterdir())):
        allowed = "a new or empty folder, or one with an earlier page"
        raise FcaError("folder of the page", folder, allowed, "take another name")
    write_text(index, render(page))  # first: whatever happens next, the folder is known as a page's
    for part in ("figures", "tables", FOLDER, LARGE):  # else a figure that is left out now would stay from before
        shutil.rmtree(folder / part, ignore_errors=True)
        (folder / part).mkdir(parents=True)
    for uri, file in page.large.items():
        shutil.copyfile(file, folder / LARGE / name_of_large(uri))
    for section in page.sections:
        if section.figure is not None:
            style.save(section.figure, folder / "figures" / plain_name("key of a figure", section.key))
        for table in section.tables:
            file = folder / "tables" / f"{plain_name('name of a table', table.name)}.csv"
            file.write_text(csv_text(table.frame), encoding="utf-8")
    (folder / "tables" / f"{RUNS}.csv").write_text(csv_text(page.rows), encoding="utf-8")
    return index


def render(page: Page) -> str:
    """The HTML: no resource from elsewhere, everything from the data escaped."""
    environment = Environment(loader=FileSystemLoader(_WEB), autoescape=True, undefined=StrictUndefined)
    tables = [table for section in page.sections for table in section.tables]
    varying, constant = _split(page.rows)
    fields = _filters(tables)
    small = {f"answer-{i}": one.figure for i, one in enumerate(page.answers) if one.figure is not None}
    figures = {s.key: filtered(s.figure, fields) for s in page.sections if s.figure is not None}
    drawn = {name: linked(figure, page.large) for name, figure in {**_specs(small), **figures}.items()}
    explained_words: set[str] = set()
    data = {
        "figures": {name: compact(figure) for name, figure in drawn.items()},
        "tables": {t.name: grid(t.frame, t.columns) for t in tables} | {"runs": grid(varying, page.columns)},
        "filters": {column: _choices(tables, column) for column in fields},
        "names": {column: dict(column.choices) for column in fields if column.choices},
        "meanings": {column: column.meaning for column in fields},
        "config": {"light": style.config(), "dark": style.config(dark=True)},
    }
    return environment.get_template("page.html.jinja").render(
        page=page,
        answers=[
            _opening(i, one) | {"terms": terms.explained(f"{one.question} {one.sentence}", explained_words)}
            for i, one in enumerate(page.answers)
        ],
        terms={s.key: terms.explained(_words(s), explained_words) for s in page.sections if s.shown},
        most=MOST,
        shown=SHOWN,
        files=[(end.strip(".-").replace(".", " "), end) for end in _FILES],
        sections=[section for section in page.sections if section.shown],
        missing=_missing(page.sections),
        constant=constant,
        data=data,
        commands=_counted(page.rows.dropna(subset="command"), ["command"]),
        made_by=_counted(page.rows, list(_MADE_BY)),
        css=Markup((_WEB / "page.css").read_text()),  # noqa: S704  ours, as are the next two
        js=Markup("\n".join((_WEB / name).read_text() for name in _SCRIPTS)),  # noqa: S704
        vega=Markup(_vega()),  # noqa: S704
    )


def _opening(i: int, headline: Headline) -> dict[str, Any]:
    """An answer as the template shows it: the first number with its interval stands out."""
    number = _NUMBER.search(headline.sentence)
    start, end = number.span() if number else (0, 0)
    parts = {"before": headline.sentence[:start], "after": headline.sentence[end:]}
    shown = {"question": headline.question, "figure": headline.figure is not None, "key": f"answer-{i}"}
    return {**shown, **parts, "number": headline.sentence[start:end]}


def _words(section: Section) -> str:
    """What a reader sees of a section before opening a table: question, caption, legends, axes, headings of panels.

    Tooltips have many columns, most of which nobody looks at.
    """
    question, lines = section.caption
    figure = section.figure or {}
    bare = {name: part for name, part in figure.items() if name not in ("datasets", "title", "transform", "params")}
    panels = {line["panel"] for drawn in figure.get("datasets", {}).values() for line in drawn if "panel" in line}
    return " ".join([question, *lines, json.dumps(_without_tooltips(bare)), *sorted(map(str, panels))])


def _without_tooltips(node: Any) -> Any:
    """A part of a figure without what is shown only under the pointer."""
    if isinstance(node, list):
        return [_without_tooltips(child) for child in node]
    if isinstance(node, dict):
        return {name: _without_tooltips(child) for name, child in node.items() if name != "tooltip"}
    return node


def linked(figure: dict[str, Any], large: Mapping[str, Path]) -> dict[str, Any]:
    """The figure with the address of the full picture, as `large`, beside each thumbnail that has one.

    The address is relative to the page, whose folder has a copy; so a page that goes elsewhere names no folder of here.
    """
    datasets = {}
    for name, lines in figure.get("datasets", {}).items():
        datasets[name] = [
            {**line, "large": f"{LARGE}/{name_of_large(line['thumbnail'])}"} if line.get("thumbnail") in large else line
            for line in lines
        ]
    return {**figure, "datasets": datasets} if datasets else figure


def _specs(charts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: spec(chart) for name, chart in charts.items()}


def _missing(sections: Sequence[Section]) -> dict[str, list[str]]:
    """Reason -> the titles of the sections that lack a figure and tables for it."""
    found: dict[str, list[str]] = {}
    for section in sections:
        if not section.shown:
            found.setdefault(section.missing or "nothing to show", []).append(section.title)
    return found


def filtered(figure: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The figure with a filter `only_<field>` for each of these fields that is in its data and that it lacks.

    >>> spec = {"data": {"name": "d"}, "datasets": {"d": [{"model": "vit"}]}, "mark": "point"}
    >>> filtered(spec, ["model", "ncl"])["params"]
    [{'name': 'only_model', 'value': []}]
    """
    lines = figure.get("datasets", {}).get(figure.get("data", {}).get("name"), [])
    known = {param["name"] for param in figure.get("params", [])}
    new = [name for name in fields if lines and name in lines[0] and f"only_{name}" not in known]
    return {
        **figure,
        "transform": [*({"filter": style.only(name)} for name in new), *figure.get("transform", [])],
        "params": [*figure.get("params", []), *({"name": f"only_{name}", "value": []} for name in new)],
    }


def compact(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure without its title, which the page has as text, and with its data as columns and lines.

    Fields that the figure never names are left out.
    """
    bare = {name: part for name, part in figure.items() if name not in ("datasets", "title")}
    words = set(re.findall(r"\w+", json.dumps(bare)))
    datasets = {}
    for name, lines in figure.get("datasets", {}).items():
        fields = [field for field in (lines[0] if lines else {}) if words.issuperset(re.findall(r"\w+", field))]
        datasets[name] = {"fields": fields, "lines": [[line.get(field) for field in fields] for line in lines]}
    return {**bare, "datasets": datasets}


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed vl-convert."""
    return vl_convert.javascript_bundle(vl_version=style.VEGA_LITE)  # type: ignore[call-arg]


def grid(frame: pd.DataFrame, columns: Sequence[Column] = ()) -> dict[str, Any]:
    """A frame for the page's tables: columns with kind (percent, number, image or text) and meaning, and their lines.

    columns: the declarations of those that are declared.    all: how many lines there are; the first thousand follow.

    >>> share = Column("top1", float, ".2%", "top-1 accuracy")
    >>> grid(pd.DataFrame({"ncl": [2], "top1": [0.5], "classes": [(0, 7)]}), [share])["lines"]
    [[2, 0.5, '0, 7']]
    """
    declared = {str(column): column for column in columns}
    names = [str(name) for name in frame.columns if frame[name].notna().any()]
    heads = [{"name": name, **_about(declared.get(name, Column(name)), frame[name])} for name in names]
    lines = zip(*(style.cells(frame[name].head(SHOWN)) for name in names), strict=True)
    return {"columns": heads, "lines": [list(line) for line in lines], "all": len(frame)}


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
    """What an analysis found: its tables, or the reason why there are none.

    mixed: whether that reason is rows that do not belong together, among which a query chooses.
    """

    analysis: Analysis
    tables: Sequence[Table]
    missing: str = ""
    mixed: bool = False


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
        large: Mapping[str, Path] | None = None,
    ) -> Path:
        """Write the page, its figures and tables into the folder; returns the page.

        rows: all that the store holds, with their columns; the page lists those that the tables read and those that
        these were made from.    command: what makes the page again.    left_out: sentences on what is not there.
        large: thumbnail -> the file of the same picture at full size.
        """
        read = {run_id for result in results for table in result.tables for run_id in table.runs}
        used = rows[rows["run_id"].isin(read | set(rows.loc[rows["run_id"].isin(read), "parent"].dropna()))]
        known = known_tables(results)
        again = [_analysis_command(name, command) for name in self.analyses]
        made = zip(results, again, strict=True)
        sections = [replace(section, again=line) for result, line in made for section in _sections(result, known)]
        sections += _others(results, {table.name for section in sections for table in section.tables})
        opening = answers_of(results)
        return write_page(
            folder, Page(self.title, (), sections, used, command, columns, left_out, opening, large or {})
        )


def _analysis_command(name: str, command: str) -> str:
    """The command of one analysis of a report, on the same runs.

    >>> _analysis_command("findings", "fca report report=few_class logger=none outputs=x model=net 'query=ncl > 2'")
    "fca analyse analysis=findings outputs=x model=net 'query=ncl > 2'"
    """
    of_report = ("report", "logger", "serve", "hydra")
    words = shlex.split(command)[2:]
    own = [word for word in words if re.split(r"[.=]", word.lstrip("+~"))[0] not in of_report]
    return shlex.join(["fca", "analyse", f"analysis={name}", *own])


def known_tables(results: Iterable[Result]) -> dict[str, Table]:
    """Name -> table, of all results."""
    return {table.name: table for result in results for table in result.tables}


def answers_of(results: Sequence[Result]) -> list[Headline]:
    """What the page of these results opens with, the most useful first."""
    return answers((result.analysis for result in results), known_tables(results), MOST)


def _sections(result: Result, known: Mapping[str, Table]) -> Iterator[Section]:
    """Each figure of an analysis, or the reason why it is missing; below it the tables that it is the first to draw.

    A finding without a figure is stated beside the figure that draws its first table.
    """
    findings = findings_of(result.analysis)
    shown: set[str] = set()
    for finding in findings:
        if finding.draw is None:
            continue

        tables = [known[table.name] for table in finding.tables if table.name in known]
        drawn, missing = _drawn(finding, tables, result.missing or "its analysis did not run")
        if drawn is None:
            yield Section(finding.key, finding.title, None, (), missing)
            continue

        new = tuple(table for table in tables if table.name not in shown and len(table.frame))
        new_names = {table.name for table in new}
        shown |= new_names
        beside = [one for one in findings if one.draw is None and one.tables[0].name in new_names]
        details = (*_stated([finding, *beside], known), *notes(new))
        yield Section(finding.key, finding.title, drawn, new, None, details)


def _drawn(finding: Finding, tables: Sequence[Table], missing: str) -> tuple[dict[str, Any] | None, str | None]:
    """The figure of a finding, or None and why there is none."""
    if finding.draw is None or len(tables) < len(finding.tables):
        return None, missing
    try:
        return spec(finding.draw(*tables)), None
    except NothingToDraw as nothing:
        return None, str(nothing)


def _stated(findings: Iterable[Finding], tables: Mapping[str, Table]) -> list[str]:
    return [one.sentence for finding in findings for one in statements(finding, tables)]


def _others(results: Sequence[Result], shown: set[str]) -> Iterator[Section]:
    """The tables that no figure shows, with their sentences, if there are any."""
    known = known_tables(results)
    lacking = {
        table.name: table
        for result in results
        for table in result.tables
        if table.name not in shown and len(table.frame)
    }
    if not lacking:
        return

    findings = dict.fromkeys(finding for result in results for finding in findings_of(result.analysis))
    of_these = [finding for finding in findings if finding.tables[0].name in lacking]
    details = (*_stated(of_these, known), *notes(lacking.values()))
    yield Section("other_tables", "More tables", None, tuple(lacking.values()), None, details)
