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


class Declared(Protocol):
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
    tables: tuple[Declared, ...]
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
    """`FINDINGS` of the study of an analysis: in its own module, or in `figures` of its package.

    Raises FcaError where neither has any.
    """
    kind = type(analysis)
    module = sys.modules[kind.__module__]
    beside = f"{module.__package__}.figures"
    if not hasattr(module, "FINDINGS") and module.__package__ and find_spec(beside):
        module = importlib.import_module(beside)
    findings: tuple[Finding, ...] | None = getattr(module, "FINDINGS", None)
    if findings is None:
        places = f"FINDINGS in {kind.__module__}" + (f" or in {beside}" if module.__package__ else "")
        step = "add it: a list of fca.report.finding.Finding, as docs/recipes/analysis.md shows"
        raise FcaError("analysis._target_", f"{kind.__module__}.{kind.__qualname__}", f"a study with {places}", step)
    return findings


def findings_of(analysis: Analysis) -> list[Finding]:
    """The findings of a study whose first table is one of this analysis, in the order of its `tables`."""
    declared: Sequence[Declared] = analysis.tables
    names = [table.name for table in declared]
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
    """Every statement of an analysis as a sentence, and after these the notes of its tables."""
    stated = [one.sentence for finding in findings_of(analysis) for one in statements(finding, tables)]
    return [*stated, *notes(tables.values())]


def notes(tables: Iterable[Table]) -> list[str]:
    """The sentences that an analysis has put in the parameter `notes` of its tables, each once."""
    return list(dict.fromkeys(note for table in tables for note in table.parameters.get("notes", [])))


def answers(analyses: Iterable[Analysis], tables: Mapping[str, Table], most: int) -> list[Headline]:
    """The answers that these tables hold, at most so many: the first of every study, then the second of every study.

    They are about one data set: the one with most answers, then with most lines. Others fill in where it has none.
    """
    by_study = dict.fromkeys(study_findings(analysis) for analysis in analyses)
    of_study = [[one for one in findings if one.question and one.is_in(tables)] for findings in by_study]
    findings = [finding for same_rank in zip_longest(*of_study) for finding in same_rank if finding is not None]
    frames_of = [[tables[table.name].frame for table in finding.tables] for finding in findings]

    n_lines: Counter[str] = Counter()
    for frame in chain.from_iterable(frames_of):
        if DATASET in frame:
            n_lines.update(frame[DATASET].dropna())
    by_lines = sorted(n_lines, key=lambda dataset: (-n_lines[dataset], dataset))
    datasets: Sequence[str | None] = by_lines or [None]

    headlines_on = []
    for dataset in datasets:
        headlines = [_headline(*pair, dataset) for pair in zip(findings, frames_of, strict=True)]
        headlines_on.append(headlines)
    headlines_on.sort(key=lambda headlines: headlines.count(None))
    first_known = [next(filter(None, same), None) for same in zip(*headlines_on, strict=True)]

    shown = [headline for headline in first_known if headline is not None][:most]
    if shown and len(datasets) > 1:
        others = f"{len(datasets) - 1} more data set{'s' if len(datasets) > 2 else ''} below"
        shown[0] = shown[0]._replace(sentence=f"{shown[0].sentence.removesuffix('.')}; {others}.")
    return shown


def _headline(finding: Finding, frames: Sequence[pd.DataFrame], dataset: str | None) -> Headline | None:
    first = next(_statements_on(finding, frames, dataset), None)
    return None if first is None else Headline(finding.question, *first)


def _datasets(frames: Sequence[pd.DataFrame]) -> list[str | None]:
    """The data sets of these frames in the order of their lines; None for lines of no data set."""
    columns = [frame[DATASET] for frame in frames if DATASET in frame]
    if not columns:
        return [None]
    values = pd.concat(columns, ignore_index=True).astype(object)
    return list(dict.fromkeys(values.where(values.notna(), None)))


def _statements_on(finding: Finding, frames: Sequence[pd.DataFrame], dataset: str | None) -> Iterator[Statement]:
    parts = [_part_on(dataset, frame) for frame in frames]
    if finding.state is not None and not any(part.empty for part in parts):
        yield from finding.state(*parts)


def _part_on(dataset: str | None, frame: pd.DataFrame) -> pd.DataFrame:
    """The lines about a data set; all where the frame does not distinguish data sets."""
    if DATASET not in frame:
        return frame
    is_on = frame[DATASET].isna() if dataset is None else frame[DATASET] == dataset
    return frame[is_on].reset_index(drop=True)
