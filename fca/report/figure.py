"""What an analysis brings to a page beside its tables: answers, figures, and sentences that sum the tables up."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import NamedTuple, Protocol

import altair as alt
import pandas as pd

from fca.types import Table

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
    find:   their frames -> the sentence and the small figure (`fca.report.small`); None where they hold no answer.
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
    """One sentence for each finding in these tables; none for a table that is missing or empty."""
    known = visuals_of(analysis).headlines
    return [line for name, table in tables.items() if name in known for line in known[name](table.frame)]


def answers(analyses: Iterable[object], tables: Mapping[str, Table], most: int) -> list[Headline]:
    """The answers that these tables hold, at most so many: the first of every study, then the second of every study."""
    ranked = zip_longest(*dict.fromkeys(visuals_of(analysis).answers for analysis in analyses))
    found = (_found(answer, tables) for same in ranked for answer in same if answer)
    return [headline for headline in found if headline][:most]


def _found(answer: Answer, tables: Mapping[str, Table]) -> Headline | None:
    frames = [tables[table.name].frame for table in answer.tables if table.name in tables]
    if len(frames) < len(answer.tables) or any(frame.empty for frame in frames):
        return None
    found = answer.find(*frames)
    return None if found is None else Headline(answer.question, *found)
