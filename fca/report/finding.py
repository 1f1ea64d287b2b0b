"""What a study finds out, declared once: a question, the tables it reads, sentences and figures.

The terminal, the top of a page, its sections and W&B take what they show from these declarations.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain, zip_longest
from typing import NamedTuple, Protocol

import altair as alt
import pandas as pd

from fca.types import Analysis, FcaError, Table

DATASET = "dataset"  # a statement is about one value of this column


class TableDeclaration(Protocol):
    """The declaration of a table, such as `fca.tables.table.TableSpec`."""

    @property
    def name(self) -> str: ...


class Statement(NamedTuple):
    """A sentence with one number and its interval, and the small figure beside it if it opens a page."""

    sentence: str
    small: alt.TopLevelMixin | None = None


class Finding(NamedTuple):
    """One thing that a study finds out; its most useful findings come first in `FINDINGS`.

    key:      anchor of its section, and the file name of its figure.
    title:    of its section.
    tables:   the declarations of the tables that it reads, in the order of the arguments of `state` and `draw`.
    question: what the top of a page asks, and its first statement answers; empty: it is only in its section.
    state:    the frames of these tables, none empty and all of one data set -> statements, the most important first.
    draw:     these tables -> the full figure.
    """

    key: str
    title: str
    tables: tuple[TableDeclaration, ...]
    question: str = ""
    state: Callable[..., Iterable[Statement]] | None = None
    draw: Callable[..., alt.FacetChart] | None = None

    def is_in(self, tables: Mapping[str, Table]) -> bool:
        """Whether all tables that it reads are there."""
        return all(table.name in tables for table in self.tables)


class Headline(NamedTuple):
    """The answer to a question at the top of a page."""

    question: str
    sentence: str
    figure: alt.TopLevelMixin | None


def study_findings(analysis: Analysis) -> tuple[Finding, ...]:
    """The list `FINDINGS` of the study to which an analysis belongs: its figures, and the sentences that it can state.

    It is in the module of the analysis or, otherwise, in module `figures` of the same package.
    Raises FcaError where neither module has it.
    """
    analysis_class = type(analysis)
    module = sys.modules[analysis_class.__module__]
    figures_module = f"{module.__package__}.figures"
    is_in_figures = not hasattr(module, "FINDINGS") and module.__package__ and find_spec(figures_module)
    if is_in_figures:
        module = importlib.import_module(figures_module)

    findings: tuple[Finding, ...] | None = getattr(module, "FINDINGS", None)
    if findings is None:
        places = f"FINDINGS in {analysis_class.__module__}"
        if module.__package__:
            places += f" or in {figures_module}"
        class_path = f"{analysis_class.__module__}.{analysis_class.__qualname__}"
        step = "add it: a list of fca.report.finding.Finding, as docs/recipes/analysis.md shows"
        raise FcaError("analysis._target_", class_path, f"a study with {places}", step)
    return findings


def findings_of(analysis: Analysis) -> list[Finding]:
    """The findings of an analysis: the findings of its study whose first table it makes, in the order of `tables`."""
    declarations: Sequence[TableDeclaration] = analysis.tables
    names = [table.name for table in declarations]
    findings = [finding for finding in study_findings(analysis) if finding.tables[0].name in names]
    return sorted(findings, key=lambda finding: names.index(finding.tables[0].name))


def statements(finding: Finding, tables: Mapping[str, Table]) -> Iterator[Statement]:
    """What a finding states about each data set; nothing where one of its tables is missing or empty."""
    if finding.state is None or not finding.is_in(tables):
        return
    frames = [tables[table.name].frame for table in finding.tables]
    for dataset in _datasets(frames):
        yield from _statements_on(finding, frames, dataset)


def sentences(analysis: Analysis, tables: Mapping[str, Table]) -> list[str]:
    """Every statement of an analysis as a sentence, followed by the notes of its tables."""
    stated = [statement.sentence for finding in findings_of(analysis) for statement in statements(finding, tables)]
    return [*stated, *notes(tables.values())]


def notes(tables: Iterable[Table]) -> list[str]:
    """The sentences that an analysis has put in the parameter `notes` of its tables, each once."""
    return list(dict.fromkeys(note for table in tables for note in table.parameters.get("notes", [])))


def page_headlines(analyses: Iterable[Analysis], tables: Mapping[str, Table], most: int) -> list[Headline]:
    """Headlines for the top of a page, at most `most`: the first finding of every study, then the second of each.

    A finding is a question that a study answers by sentences on a data set; a headline is its first sentence.
    Where possible all headlines are about one data set: the one with most headlines and, if several have as many, the
    one of these with most lines in the tables. A finding that states nothing about this data set gives a headline on
    the next data set about which it states something. With several data sets the first headline ends with the number of
    the others.

    analyses: of the page, each of which belongs to a study.
    tables:   name of each table -> the table.
    """
    ranked_findings = _ranked_findings(analyses, tables)
    frames_by_finding = [[tables[table.name].frame for table in finding.tables] for finding in ranked_findings]
    datasets = _datasets_by_lines(chain.from_iterable(frames_by_finding))

    # data sets x findings, the data set with most headlines first
    headlines_by_dataset = []
    for dataset in datasets:
        findings_and_frames = zip(ranked_findings, frames_by_finding, strict=True)
        headlines_by_dataset.append([_headline(finding, frames, dataset) for finding, frames in findings_and_frames])
    # by the number of missing headlines; the sort is stable, so ties keep the order by lines
    headlines_by_dataset.sort(key=lambda headlines: headlines.count(None))

    # for each finding, the headline on the first data set that has one
    first_headlines: list[Headline] = []
    for headlines_of_finding in zip(*headlines_by_dataset, strict=True):
        headline = next((headline for headline in headlines_of_finding if headline is not None), None)
        if headline is not None:
            first_headlines.append(headline)

    selected = first_headlines[:most]
    if selected and len(datasets) > 1:
        n_others = len(datasets) - 1
        others = f"{n_others} more data set{'s' if n_others > 1 else ''} below"
        selected[0] = selected[0]._replace(sentence=f"{selected[0].sentence.removesuffix('.')}; {others}.")
    return selected


def _ranked_findings(analyses: Iterable[Analysis], tables: Mapping[str, Table]) -> list[Finding]:
    """The findings with a question whose tables exist: the first finding of every study, then the second, and so on."""
    studies = dict.fromkeys(study_findings(analysis) for analysis in analyses)  # several analyses may share a study
    findings_by_study = [
        [finding for finding in findings if finding.question and finding.is_in(tables)] for findings in studies
    ]
    ranked_findings: list[Finding] = []
    for findings_of_rank in zip_longest(*findings_by_study):  # None for a study that has fewer findings
        ranked_findings.extend(finding for finding in findings_of_rank if finding is not None)
    return ranked_findings


def _datasets_by_lines(frames: Iterable[pd.DataFrame]) -> Sequence[str | None]:
    """The data sets of these frames, the one with most lines first; None alone where no frame names a data set."""
    n_lines: Counter[str] = Counter()
    for frame in frames:
        if DATASET in frame:
            n_lines.update(frame[DATASET].dropna())
    by_lines = sorted(n_lines, key=lambda dataset: (-n_lines[dataset], dataset))
    return by_lines or [None]


def _headline(finding: Finding, frames: Sequence[pd.DataFrame], dataset: str | None) -> Headline | None:
    """The first statement of a finding on a data set, under its question; None where it states nothing."""
    statement = next(_statements_on(finding, frames, dataset), None)
    if statement is None:
        return None
    return Headline(finding.question, statement.sentence, statement.small)


def _datasets(frames: Sequence[pd.DataFrame]) -> list[str | None]:
    """The data sets of these frames in the order of their lines; None for lines of no data set."""
    columns = [frame[DATASET] for frame in frames if DATASET in frame]
    if not columns:
        return [None]
    values = pd.concat(columns, ignore_index=True).astype(object)
    return list(dict.fromkeys(values.where(values.notna(), None)))


def _statements_on(finding: Finding, frames: Sequence[pd.DataFrame], dataset: str | None) -> Iterator[Statement]:
    """The statements of a finding on a data set; none where a frame has no line about it."""
    dataset_frames = [_lines_on(dataset, frame) for frame in frames]
    has_empty_frame = any(frame.empty for frame in dataset_frames)
    if finding.state is not None and not has_empty_frame:
        yield from finding.state(*dataset_frames)


def _lines_on(dataset: str | None, frame: pd.DataFrame) -> pd.DataFrame:
    """The lines about a data set; all where the frame does not distinguish data sets."""
    if DATASET not in frame:
        return frame
    is_on = frame[DATASET].isna() if dataset is None else frame[DATASET] == dataset
    return frame[is_on].reset_index(drop=True)
