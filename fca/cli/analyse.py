"""`fca analyse`, and `fca.analyse` in a notebook: the tables and figures of an analysis of stored runs."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
from omegaconf import DictConfig

from fca.cli import printable
from fca.cli.application import AnalyseConfig, application, check_root
from fca.cli.configure import component, configured, keys_of, store_with_images
from fca.cli.notices import gathered
from fca.cli.selection import narrow
from fca.cli.show import check_store
from fca.cli.terminal import as_text, shown_columns
from fca.report.finding import Finding, findings_of, sentences
from fca.report.style import NothingToDraw, as_svg, spec
from fca.store import Store
from fca.store.files import DamagedFile
from fca.store.filters import Filters, words_of
from fca.types import Analysis, Table

MAX_LINES = 40  # of a table; the file has all


def _print(config: DictConfig) -> None:
    """Run an analysis, save its tables, and print each table with its question, source and folder, then the answers.

    An analysis declares findings. A finding may have a function `draw`, which draws a figure of tables of the analysis,
    and a function `state`, which returns sentences about them (answers). Tables with an answer are printed last, next
    to the answers.
    config: the configuration of `fca analyse`.
    """
    check_root("analyse", config)
    result = _analysed(config, config.outputs)
    findings_with_answer = [finding for finding in findings_of(result.analysis) if finding.state is not None]
    # an answer from several tables counts for the first of them
    tables_with_answer = {finding.tables[0].name for finding in findings_with_answer}

    saved_tables = list(zip(result.tables.values(), result.save(), strict=True))
    # False sorts before True: tables with an answer come last
    saved_tables.sort(key=lambda table_and_folder: table_and_folder[0].name in tables_with_answer)
    for table, folder in saved_tables:
        print(f"{_text(table)}\n{len(table.runs)} runs; kept in {folder}\n")
    print(*map(printable, sentences(result.analysis, result.tables)), sep="\n")


def _analysed(config: DictConfig, outputs: str | Path) -> Analysed:
    """Run the analysis of a configuration on the store in `outputs`.

    Raises FcaError if there is no such store, for an unknown key, and for a store without rows for the analysis.
    """
    check_store(outputs, "outputs")
    store = store_with_images(outputs)
    narrow(config, store, AnalyseConfig)  # from here on, the analysis reads only the runs that were asked for
    analysis = component(config, "analysis")
    with gathered(), keys_of("analysis", analysis):  # each warning once; errors name keys as they are typed
        tables, store = tables_of(analysis, store)
    return Analysed(store, analysis, {table.name: table for table in tables})


def tables_of(analysis: Analysis, store: Store) -> tuple[list[Table], Store]:
    """The tables of an analysis, and the store without the runs that the analysis could not read.

    When the analysis meets a damaged file, it starts again without the runs that need this file. The log names these
    runs.
    """
    while True:
        try:
            return list(analysis(store)), store
        except DamagedFile as damage:
            store = store.without(damage)


main = partial(application, "analyse", _print)  # exit code 0, or 2 when there is nothing to analyse or a key is wrong


def _text(table: Table) -> str:
    """A table as text under its name and question, with its source below."""
    lines = as_text(table.frame, f"{table.name}: {table.question}", MAX_LINES)
    return f"{lines}\n{table.source}"


def analyse(name: str, outputs: str | Path = "outputs", *, filters: Filters | None = None, **options: Any) -> Analysed:
    """Run the analysis of conf/analysis/<name>.yaml on the store in `outputs`; nothing is saved.

    The result has the tables and figures of the analysis, and shows them in a notebook.
    filters: which runs the analysis reads, as `fca.results` takes them, e.g. {"dataset": "digits"}; None: all.
    options: values that replace values of the file, e.g. query="dataset == 'digits'".
    Raises FcaError for an unknown name, folder, column or option, and if the store has no rows for the analysis.
    """
    config = configured("analyse", "analysis", name, options, filters=words_of(filters))
    return _analysed(config, outputs)


@dataclass(frozen=True)
class Analysed:
    """The result of an analysis: its tables and figures. A notebook shows both, a console the tables.

    result["accuracy"] is the DataFrame of a table; `result.figures` has Altair charts by name, with tooltips.
    tables: by name.
    """

    store: Store
    analysis: Analysis
    tables: Mapping[str, Table]

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self.tables[name].frame

    def save(self) -> list[Path]:
        """Save the tables in the store, as `fca analyse` does; returns their folders, whose names are the ids."""
        return [self.store.save(table) for table in self.tables.values()]

    @cached_property
    def figures(self) -> dict[str, Any]:
        """Name -> Altair chart; a figure for which the tables have too little is left out."""
        return {finding.key: chart for finding, chart in self._drawn()}

    def _drawn(self) -> Iterator[tuple[Finding, Any]]:
        """Yield each finding of the analysis that has a figure, with its chart.

        A finding declares the tables of the analysis that its figure shows. It is skipped if the analysis made no such
        table, or if the tables have too few values.
        """
        for finding in findings_of(self.analysis):
            if finding.draw is None or not finding.is_in(self.tables):
                continue
            tables = [self.tables[table.name] for table in finding.tables]
            try:
                chart = finding.draw(*tables)
            except NothingToDraw:
                continue
            yield finding, chart

    def __repr__(self) -> str:
        return "\n\n".join(map(_text, self.tables.values()))

    def _repr_html_(self) -> str:
        """What a notebook shows: each figure under its title, then each table under its name and question."""
        paragraphs = []
        for finding, chart in self._drawn():
            svg = as_svg(spec(chart))
            picture = base64.b64encode(svg.encode()).decode()  # for an <img>, because ids of inline SVGs collide
            paragraphs.append(
                f'<p><b>{html.escape(finding.title)}</b></p><img src="data:image/svg+xml;base64,{picture}">'
            )
        for table in self.tables.values():
            title = f"<b>{html.escape(table.name)}</b>: {html.escape(table.question)}"
            lines = table.frame[shown_columns(table.frame)].to_html(index=False, max_rows=MAX_LINES, na_rep="")
            paragraphs.append(f"<p>{title}</p>{lines}<p><small>{html.escape(table.source)}</small></p>")
        return "\n".join(paragraphs)
