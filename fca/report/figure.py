"""What an analysis brings to a page beside its tables: answers, figures, and sentences that sum the tables up."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import NamedTuple, Protocol

import altair as alt
import pandas as pd

from fca.types import Table

DATASET = "dataset"  # the column of which the answers of a page have one value

Sentences = Callable[[pd.DataFrame], Iterator[str]]


class Declared(Protocol):
    """The declaration of a table, such as `fca.studies.table.TableSpec`."""

    @property
    def name(self) -> str: ...


class Figure(NamedTuple):
    """A figure of one table or several.

    key: anchor on the page and file name.    tables: the declarations of those that it draws, in the order of `draw`.
    """

    key: str
    title: str
    tables: tuple[Declared, ...]
    draw: Callable[..., alt.FacetChart]


class Headline(NamedTuple):
    """The answer to a question: a sentence with one number and its interval, and a small figure of the same table."""

    question: str
    sentence: str
    figure: alt.TopLevelMixin | None


class Answer(NamedTuple):
    """What a study can answer at the top of a page; the most useful come first in its `ANSWERS`.

    tables: the declarations of those that it reads.
    find:   their frames, none of them empty and all of one data set -> the sentence and the small figure
            (`fca.report.small`); None where they hold no answer.
    """

    question: str
    tables: tuple[Declared, ...]
    find: Callable[..., tuple[str, alt.TopLevelMixin] | None]


class Visuals(NamedTuple):
    """What an analysis declares: figures in the order of the page, name of a table -> its sentences, and answers."""

    figures: tuple[Figure, ...]
    headlines: Mapping[str, Sentences]
    answers: tuple[Answer, ...]


def visuals_of(analysis: object) -> Visuals:
    """`FIGURES`, `HEADLINES` and `ANSWERS` beside an analysis: in its own module, or in `figures` of its package.

    An analysis declares its `tables`; what is of other analyses in the same module is left out.
    """
    module = sys.modules[type(analysis).__module__]
    if not hasattr(module, "FIGURES"):
        module = importlib.import_module(f"{module.__package__}.figures")
    tables: Sequence[Declared] = getattr(analysis, "tables", ())
    names = [table.name for table in tables]
    figures = [figure for figure in module.FIGURES if figure.tables[0].name in names]
    figures.sort(key=lambda figure: names.index(figure.tables[0].name))
    headlines = {name: sentences for name, sentences in getattr(module, "HEADLINES", {}).items() if name in names}
    return Visuals(tuple(figures), headlines, getattr(module, "ANSWERS", ()))


def headlines(analysis: object, tables: Mapping[str, Table]) -> list[str]:
    """One sentence for each finding in these tables; none for a table that is missing or empty.

    After these, what a study says in the parameter `notes` of its tables.
    """
    known = visuals_of(analysis).headlines
    found = [line for name, table in tables.items() if name in known for line in known[name](table.frame)]
    notes = dict.fromkeys(note for table in tables.values() for note in table.parameters.get("notes", []))
    return [*found, *notes]


def answers(analyses: Iterable[object], tables: Mapping[str, Table], most: int) -> list[Headline]:
    """The answers that these tables hold, at most so many: the first of every study, then the second of every study.

    They are about one data set: the one with most answers, then with most lines. Others fill in where it has none.
    """
    ranked = zip_longest(*dict.fromkeys(visuals_of(analysis).answers for analysis in analyses))
    known = [answer for same in ranked for answer in same if answer and all(of.name in tables for of in answer.tables)]
    frames = [[tables[of.name].frame for of in answer.tables] for answer in known]
    about = [frame[DATASET].dropna() for frame in chain.from_iterable(frames) if DATASET in frame]
    lines = Counter(chain.from_iterable(about))
    datasets: Sequence[str | None] = sorted(lines, key=lambda dataset: (-lines[dataset], dataset)) or [None]
    found = [[_found(*one, dataset) for one in zip(known, frames, strict=True)] for dataset in datasets]
    found.sort(key=lambda answered: answered.count(None))
    first = (next(filter(None, same), None) for same in zip(*found, strict=True))
    shown = [headline for headline in first if headline][:most]
    if shown and len(datasets) > 1:
        others = f"{len(datasets) - 1} more data set{'s' if len(datasets) > 2 else ''} below"
        shown[0] = shown[0]._replace(sentence=f"{shown[0].sentence.removesuffix('.')}; {others}.")
    return shown


def _found(answer: Answer, frames: Sequence[pd.DataFrame], dataset: str | None) -> Headline | None:
    parts = [frame[frame[DATASET] == dataset].reset_index(drop=True) if DATASET in frame else frame for frame in frames]
    found = None if any(part.empty for part in parts) else answer.find(*parts)
    return None if found is None else Headline(answer.question, *found)
