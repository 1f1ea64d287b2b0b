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

from fca.csv_table import csv_text
from fca.report import style, terms
from fca.report.compare import FOLDER
from fca.report.finding import Finding, Headline, findings_of, notes, page_headlines, statements
from fca.report.pictures import is_pictures, name_of_large
from fca.report.style import NothingToDraw, spec
from fca.store import columns as of_row
from fca.store.files import write_text
from fca.types import Analysis, Column, FcaError, Table, interval_columns
from fca.validation import Allowed, plain_name

MAX_HEADLINES = 5  # at the top of a page
RUNS = "runs"  # the file of the runs behind a page, among those of its tables
_NUMBER_WITH_INTERVAL = re.compile(r"[+-]?\d[\d.,]*(?: %| points)? \[[^\]]*\]")  # 98.1 % [97.0, 99.0]
_FILE_ENDINGS = (".png", ".svg", ".pdf", ".csv", "-column.svg", "-column.pdf")  # of a figure, for download
LARGE = "pictures"  # beside index.html: pictures at full size, which a click on a thumbnail opens
MAX_TABLE_LINES = 1_000  # lines of a table on the page; its CSV file has all
_WEB = Path(__file__).parent / "web"
_SCRIPTS = ("tables.js", "filters.js", "figures.js", "compare.js", "start.js")
_MARK_OF_A_PAGE = '<meta name="generator" content="fca report">'
_FIRST_COLUMNS = (
    *(of_row.RUN_ID, of_row.TASK, of_row.DATASET, of_row.MODEL, of_row.ENCODER, of_row.NCL, of_row.SUBSET_SEED),
    *interval_columns(of_row.TOP1),
)
_ENVIRONMENT_COLUMNS = (of_row.COMMIT, of_row.VERSIONS, of_row.DEVICE, of_row.HOST)


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
    again: str = ""  # the command that makes its tables again

    @property
    def has_content(self) -> bool:
        """Whether it has a figure, tables or sentences, not only the reason why they are missing."""
        return self.figure is not None or bool(self.tables or self.details)

    @property
    def caption(self) -> tuple[str, list[str]]:
        """The question of the figure, and the lines that explain its marks."""
        title = (self.figure or {}).get("title", "")
        if isinstance(title, dict):
            return title["text"], title.get("subtitle", [])
        return title or self.title, []


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    headlines: sentences on the whole page.
    rows:      the runs behind it, as in `fca.store.results`, and their `columns`.
    command:   what makes this page again.
    left_out:  what of the store it does not show, and why, as sentences.
    answers:   what the page opens with, at most five.
    large:     thumbnail -> the file of the same picture at full size.
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

    Full-size pictures are copied into a folder of their own. All runs of the page become tables/runs.csv.

    Raises FcaError for a folder that holds anything but an earlier page.
    """
    index = folder / "index.html"
    # only the folder of an earlier page is written again: a person's own files are never removed
    has_page = index.is_file() and _MARK_OF_A_PAGE in index.read_text(encoding="utf-8", errors="replace")
    if folder.exists() and not has_page:
        is_empty_folder = folder.is_dir() and not any(folder.iterdir())
        if not is_empty_folder:
            allowed = "a new or empty folder, or one with an earlier page"
            raise FcaError("folder of the page", folder, allowed, "take another name")

    write_text(index, render(page))  # first: even if a later step fails, the folder is recognised as a page's
    # all folders of a page, also of run comparisons (FOLDER) and large pictures, lose the files of an earlier page
    for subfolder in ("figures", "tables", FOLDER, LARGE):
        shutil.rmtree(folder / subfolder, ignore_errors=True)
        (folder / subfolder).mkdir(parents=True)

    for uri, file in page.large.items():  # uri: the thumbnail of the picture in the file
        shutil.copyfile(file, folder / LARGE / name_of_large(uri))
    # plain_name: raises FcaError for a name that would lead to another folder
    for section in page.sections:
        if section.figure is not None:
            style.save(section.figure, folder / "figures" / plain_name("key of a figure", section.key))
        for table in section.tables:
            file = folder / "tables" / f"{plain_name('name of a table', table.name)}.csv"
            file.write_text(csv_text(table.frame), encoding="utf-8")
    (folder / "tables" / f"{RUNS}.csv").write_text(csv_text(page.rows), encoding="utf-8")
    return index


def render(page: Page) -> str:
    """The HTML of a page, with its scripts, style and data inside.

    `page.answers` are the headlines that the page opens with, each with a small figure. `page.sections` are its figures
    and tables. The HTML loads nothing from the network, and everything from the data is escaped.
    """
    sections = [section for section in page.sections if section.has_content]
    tables = [table for section in page.sections for table in section.tables]
    varying_rows, constant_values = _varying_and_constant(page.rows)
    filter_columns = _filter_columns(tables)

    # figures by key: the small figures beside the headlines at the top, then the figures of the sections
    figures: dict[str, dict[str, Any]] = {}
    for number, headline in enumerate(page.answers):
        if headline.figure is not None:
            figures[f"answer-{number}"] = spec(headline.figure)
    for section in page.sections:
        if section.figure is not None:
            figures[section.key] = filtered(section.figure, filter_columns)
    # a click on a thumbnail opens the picture at full size
    figures = {key: with_picture_links(figure, page.large) for key, figure in figures.items()}

    # every word of the glossary is explained once, where it first appears: headlines come before sections
    explained_words: set[str] = set()
    answers_for_template = []
    for number, headline in enumerate(page.answers):
        headline_terms = terms.explained(f"{headline.question} {headline.sentence}", explained_words)
        answers_for_template.append({**_headline_for_template(number, headline), "terms": headline_terms})
    section_terms = {section.key: terms.explained(_visible_text(section), explained_words) for section in sections}

    # What the scripts of the page read. For each column that filters: `filters` has the values from which a person
    # chooses and `names`, where declared, the label of each value.
    data = {
        "figures": {key: compact(figure) for key, figure in figures.items()},
        "tables": {
            **{table.name: grid(table.frame, table.columns) for table in tables},
            "runs": grid(varying_rows, page.columns),
        },
        "filters": {column: _values_to_choose(tables, column) for column in filter_columns},
        "names": {column: dict(column.choices) for column in filter_columns if column.choices},
        "meanings": {column: column.meaning for column in filter_columns},
        "config": {"light": style.config(), "dark": style.config(dark=True)},
    }
    environment = Environment(loader=FileSystemLoader(_WEB), autoescape=True, undefined=StrictUndefined)
    return environment.get_template("page.html.jinja").render(
        page=page,
        answers=answers_for_template,
        terms=section_terms,
        most=MAX_HEADLINES,
        shown=MAX_TABLE_LINES,
        # for each file of a figure the words of its link and its ending: "column pdf" is a PDF for a paper's column
        files=[(ending.strip(".-").replace(".", " "), ending) for ending in _FILE_ENDINGS],
        sections=sections,
        missing=_titles_by_missing_reason(page.sections),
        constant=constant_values,
        data=data,
        # each command with its number of runs; likewise each combination of software and machine
        commands=_combinations_with_counts(page.rows.dropna(subset="command"), ["command"]),
        made_by=_combinations_with_counts(page.rows, list(_ENVIRONMENT_COLUMNS)),
        # Markup: these are files of fca, so they are not escaped
        css=Markup((_WEB / "page.css").read_text()),  # noqa: S704
        js=Markup("\n".join((_WEB / name).read_text() for name in _SCRIPTS)),  # noqa: S704
        vega=Markup(_vega()),  # noqa: S704
    )


def _headline_for_template(number: int, headline: Headline) -> dict[str, Any]:
    """A headline as the values that the template shows, by their names in the template.

    The sentence is split at its first number with an interval, which the template sets in bold.

    number: position of the headline on the page, part of the key of its figure.
    """
    sentence = headline.sentence
    match = _NUMBER_WITH_INTERVAL.search(sentence)
    start, end = match.span() if match else (0, 0)  # without such a number only `after` has text
    return {
        "question": headline.question,
        "figure": headline.figure is not None,
        "key": f"answer-{number}",
        "before": sentence[:start],
        "after": sentence[end:],
        "number": sentence[start:end],
    }


def _visible_text(section: Section) -> str:
    """The text of a section that a person sees before opening a table: question, caption, legends, axes, panels.

    It is only searched for words of the glossary, so it may include the specification of the figure as JSON. Tooltips
    are left out: they have many columns, most of which nobody looks at.
    """
    question, caption_lines = section.caption
    figure = section.figure or {}
    encoding = {
        name: value for name, value in figure.items() if name not in ("datasets", "title", "transform", "params")
    }
    encoding_text = json.dumps(_without_tooltips(encoding))

    panel_headings: set[str] = set()
    for lines in figure.get("datasets", {}).values():
        panel_headings.update(str(line["panel"]) for line in lines if "panel" in line)
    return " ".join([question, *caption_lines, encoding_text, *sorted(panel_headings)])


def _without_tooltips(node: Any) -> Any:
    """A part of a figure without what is shown only under the pointer."""
    if isinstance(node, list):
        return [_without_tooltips(child) for child in node]
    if isinstance(node, dict):
        return {name: _without_tooltips(child) for name, child in node.items() if name != "tooltip"}
    return node


def with_picture_links(figure: dict[str, Any], large: Mapping[str, Path]) -> dict[str, Any]:
    """The figure with the address of the full-size picture, as field `large`, beside each thumbnail that has one.

    The address is relative to the page, whose folder has a copy of the picture: so it stays valid when the page is
    moved, and reveals no path of this machine.

    large: thumbnail (a data URI) -> the file of the same picture at full size.
    """

    def with_address(line: dict[str, Any]) -> dict[str, Any]:
        """A line of the figure's data, with `large` if its thumbnail has a full-size picture."""
        if line.get("thumbnail") not in large:
            return line
        return {**line, "large": f"{LARGE}/{name_of_large(line['thumbnail'])}"}

    datasets = figure.get("datasets", {})
    if not datasets:
        return figure
    linked_datasets = {name: [with_address(line) for line in lines] for name, lines in datasets.items()}
    return {**figure, "datasets": linked_datasets}


def _titles_by_missing_reason(sections: Sequence[Section]) -> dict[str, list[str]]:
    """Reason for which sections have nothing to show -> the titles of these sections."""
    titles_by_reason: dict[str, list[str]] = {}
    for section in sections:
        if not section.has_content:
            reason = section.missing or "nothing to show"
            titles_by_reason.setdefault(reason, []).append(section.title)
    return titles_by_reason


def filtered(figure: dict[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """The figure (a Vega-Lite specification) with a filter for each of these fields that its data have.

    A field by which the figure filters already gets no second filter. A filter is a parameter `only_<field>`, which
    the page sets to the values that are shown; while it is empty, all lines are shown.

    >>> spec = {"data": {"name": "d"}, "datasets": {"d": [{"model": "vit"}]}, "mark": "point"}
    >>> filtered(spec, ["model", "ncl"])["params"]
    [{'name': 'only_model', 'value': []}]
    """
    name_of_data = figure.get("data", {}).get("name")
    lines = figure.get("datasets", {}).get(name_of_data, [])
    data_fields = lines[0] if lines else {}  # all lines have the same fields
    param_names = {param["name"] for param in figure.get("params", [])}
    new_fields = [field for field in fields if field in data_fields and f"only_{field}" not in param_names]

    new_filters = [{"filter": style.only(field)} for field in new_fields]
    new_params = [{"name": f"only_{field}", "value": []} for field in new_fields]
    return {
        **figure,
        "transform": [*new_filters, *figure.get("transform", [])],
        "params": [*figure.get("params", []), *new_params],
    }


def compact(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure as the page stores it: without its title, which the page shows as text, and with smaller data.

    The names of fields are stored once instead of in every line. Fields that the figure does not use are left out. As
    names also occur inside Vega expressions, a field stays if every word of its name occurs in the specification.
    """
    encoding = {name: value for name, value in figure.items() if name not in ("datasets", "title")}
    words = set(re.findall(r"\w+", json.dumps(encoding)))

    datasets = {}
    for name, lines in figure.get("datasets", {}).items():
        all_fields = lines[0] if lines else {}
        fields = [field for field in all_fields if words.issuperset(re.findall(r"\w+", field))]
        datasets[name] = {
            "fields": fields,
            "lines": [[line.get(field) for field in fields] for line in lines],
        }
    return {**encoding, "datasets": datasets}


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, from the installed vl-convert."""
    return vl_convert.javascript_bundle(vl_version=style.VEGA_LITE)  # type: ignore[call-arg]


def grid(frame: pd.DataFrame, columns: Sequence[Column] = ()) -> dict[str, Any]:
    """A frame as JSON for the page's tables; columns without any value are left out.

    Its keys are `columns` (each with name, kind and, where declared, meaning; kind is percent, number, image or text),
    `lines` (the values of the first MAX_TABLE_LINES lines) and `all` (the number of all lines).

    columns: the declarations of columns; a column of the frame may have none.

    >>> share = Column("top1", float, ".2%", "top-1 accuracy")
    >>> grid(pd.DataFrame({"ncl": [2], "top1": [0.5], "classes": [(0, 7)]}), [share])["lines"]
    [[2, 0.5, '0, 7']]
    """
    declarations = {str(column): column for column in columns}
    names = [str(name) for name in frame.columns if frame[name].notna().any()]

    headings = []
    for name in names:
        column = declarations.get(name, Column(name))
        heading = {"name": name, "kind": _display_kind(column, frame[name])}
        if column.meaning:
            heading["meaning"] = column.meaning
        headings.append(heading)

    cells_by_column = [style.cells(frame[name].head(MAX_TABLE_LINES)) for name in names]
    lines = [list(line) for line in zip(*cells_by_column, strict=True)]
    return {"columns": headings, "lines": lines, "all": len(frame)}


def _display_kind(column: Column, values: pd.Series) -> str:
    """How the page displays a column: percent, image, number or text."""
    if column.number_format.endswith("%"):
        return "percent"
    if is_pictures(values):
        return "image"
    if pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values):  # True is no number
        return "number"
    return "text"


def _varying_and_constant(rows: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Split the columns of a table of runs into columns in which runs differ and columns in which all are equal.

    Returns a frame of the columns in which runs differ, and the constant columns as column -> value. In the frame,
    columns that identify a run (_FIRST_COLUMNS) come first. A column without any value stays in the frame.
    """
    constant_values: dict[str, Any] = {}
    for name in rows:
        values = style.cells(rows[name])
        if len(set(values)) == 1 and values[0] is not None:
            constant_values[str(name)] = values[0]

    varying_columns = [name for name in rows if name not in constant_values]
    varying_columns.sort(key=lambda name: name not in _FIRST_COLUMNS)  # False sorts first
    return rows[varying_columns], constant_values


def _filter_columns(tables: Sequence[Table]) -> list[Column]:
    """The columns by which a person can filter the page, each once. The tables declare which columns these are."""
    return list(dict.fromkeys(column for table in tables for column in table.columns if column.filters))


def _values_to_choose(tables: Sequence[Table], column: Column) -> list[Any]:
    """The values of a column in all tables, from which a person chooses a filter: in declared order, else sorted.

    Empty for fewer than two values, among which there is nothing to choose.
    """
    values: set[Any] = set()
    for table in tables:
        if column in table.frame:
            values.update(style.cells(table.frame[column].dropna()))
    if len(values) < 2:
        return []

    declared_order = list(column.choices)
    return sorted(values, key=declared_order.index if declared_order else None)


def _combinations_with_counts(rows: pd.DataFrame, names: Sequence[str]) -> list[tuple[dict[str, str], int]]:
    """The combinations of values that runs have in these columns, each with its number of runs, most frequent first.

    A combination is column -> value, without the columns in which its runs have no value.

    rows:  the table of runs.
    names: the columns; columns that the table lacks are ignored.
    """
    present_names = [name for name in names if name in rows]
    cells = rows[present_names].dropna(axis="columns", how="all")
    if cells.empty:
        return []

    counts = cells.value_counts(dropna=False)
    combinations = counts.index.to_frame(index=False).astype(object).to_dict("records")
    combinations_with_counts = []
    for combination, n_runs in zip(combinations, counts, strict=True):
        present_values = {str(name): value for name, value in combination.items() if pd.notna(value)}
        combinations_with_counts.append((present_values, int(n_runs)))
    return combinations_with_counts


# The report of some analyses: one page with every figure that draws their tables.


class Result(NamedTuple):
    """What an analysis found: its tables, or the reason why there are none.

    mixed: whether there are none because the runs do not belong together; a query can then select some of them.
    """

    analysis: Analysis
    tables: Sequence[Table]
    missing: str = ""
    mixed: bool = False


@dataclass(frozen=True)
class AnalysesReport:
    """A report that shows some analyses on one page: `report=few_class`.

    name:     of its folder under reports/.
    analyses: what is run, and shown in this order; one without rows to read is left out.
    options:  field -> value, for each analysis that has the field.
    """

    name: str
    title: str
    analyses: Annotated[list[str], Allowed(non_empty=True)]
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
        """Write the page, its figures and tables into the folder; returns the path of the page.

        results:  one for each of `analyses`, in their order.
        rows:     all runs of the store, one a line; `columns` are the declarations of its columns. The page lists the
                  runs that the tables read, and the runs from which these were computed (their parents).
        command:  the command that makes the page again.
        left_out: sentences on what the page does not show of the store.
        large:    thumbnail -> the file of the same picture at full size.
        """
        tables_by_name = tables_of_results(results)
        sections: list[Section] = []
        for analysis_name, result in zip(self.analyses, results, strict=True):
            analysis_command = _analysis_command(analysis_name, command)
            analysis_sections = _sections(result, tables_by_name)
            sections.extend(replace(section, again=analysis_command) for section in analysis_sections)
        drawn_tables = {table.name for section in sections for table in section.tables}
        sections.extend(_undrawn_tables(results, drawn_tables))

        run_ids = {run_id for result in results for table in result.tables for run_id in table.runs}
        parents = set(rows.loc[rows["run_id"].isin(run_ids), "parent"].dropna())
        page = Page(
            title=self.title,
            headlines=(),  # plain sentences; a report opens with `answers` instead, which have figures
            sections=sections,
            rows=rows[rows["run_id"].isin(run_ids | parents)],
            command=command,
            columns=columns,
            left_out=left_out,
            answers=headlines_of_results(results),
            large=large or {},
        )
        return write_page(folder, page)


def _analysis_command(name: str, command: str) -> str:
    """The command of one analysis of a report, on the same runs.

    >>> _analysis_command("findings", "fca report report=few_class logger=none outputs=x model=net 'query=ncl > 2'")
    "fca analyse analysis=findings outputs=x model=net 'query=ncl > 2'"
    """
    report_options = ("report", "logger", "serve", "hydra")
    words = []
    for word in shlex.split(command)[2:]:  # after `fca report`
        option = re.split(r"[.=]", word.lstrip("+~"))[0]
        if option not in report_options:
            words.append(word)
    return shlex.join(["fca", "analyse", f"analysis={name}", *words])


def tables_of_results(results: Iterable[Result]) -> dict[str, Table]:
    """The tables of all results, by name."""
    return {table.name: table for result in results for table in result.tables}


def headlines_of_results(results: Sequence[Result]) -> list[Headline]:
    """What the page of these results opens with, the most useful first."""
    return page_headlines((result.analysis for result in results), tables_of_results(results), MAX_HEADLINES)


def _sections(result: Result, tables_by_name: Mapping[str, Table]) -> Iterator[Section]:
    """A section of the page for each figure of an analysis, with the figure or the reason why it is missing.

    A table that several figures draw is only in the section of the first one. The sentences of a finding that has no
    figure are in the section that has the finding's first table.

    result:         the analysis with its tables.
    tables_by_name: the tables of all analyses, because a finding may also draw tables of other analyses.
    """
    findings = findings_of(result.analysis)
    findings_without_figure = [finding for finding in findings if finding.draw is None]
    placed_tables: set[str] = set()
    for finding in findings:
        if finding.draw is None:
            continue

        tables = [tables_by_name[table.name] for table in finding.tables if table.name in tables_by_name]
        figure, reason = _figure_or_reason(finding, tables, result.missing or "its analysis did not run")
        if figure is None:
            yield Section(finding.key, finding.title, None, (), reason)
            continue

        new_tables = tuple(table for table in tables if table.name not in placed_tables and len(table.frame))
        new_names = {table.name for table in new_tables}
        placed_tables.update(new_names)

        findings_beside = [other for other in findings_without_figure if other.tables[0].name in new_names]
        details = (*_sentences([finding, *findings_beside], tables_by_name), *notes(new_tables))
        yield Section(finding.key, finding.title, figure, new_tables, None, details)


def _figure_or_reason(
    finding: Finding, tables: Sequence[Table], missing: str
) -> tuple[dict[str, Any] | None, str | None]:
    """The figure of a finding and None; or None and why there is no figure.

    missing: the reason where some of the finding's tables are missing.
    """
    if finding.draw is None or len(tables) < len(finding.tables):
        return None, missing
    try:
        return spec(finding.draw(*tables)), None
    except NothingToDraw as nothing:
        return None, str(nothing)


def _sentences(findings: Iterable[Finding], tables: Mapping[str, Table]) -> list[str]:
    """The sentences of these findings."""
    return [statement.sentence for finding in findings for statement in statements(finding, tables)]


def _undrawn_tables(results: Sequence[Result], drawn_tables: set[str]) -> Iterator[Section]:
    """One section with the tables that no figure shows, and the sentences of their findings.

    Nothing is yielded if the figures show all tables that have lines.

    drawn_tables: the names of the tables with a figure.
    """
    undrawn = {}
    for result in results:
        for table in result.tables:
            if table.name not in drawn_tables and len(table.frame):
                undrawn[table.name] = table
    if not undrawn:
        return

    all_findings = dict.fromkeys(finding for result in results for finding in findings_of(result.analysis))
    findings = [finding for finding in all_findings if finding.tables[0].name in undrawn]
    details = (*_sentences(findings, tables_of_results(results)), *notes(undrawn.values()))
    yield Section("other_tables", "More tables", None, tuple(undrawn.values()), None, details)
