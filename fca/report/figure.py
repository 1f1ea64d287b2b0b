"""What an analysis brings to a page beside its tables: figures of them, and headlines that sum them up."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class Visuals(NamedTuple):
    """The figures of an analysis, in the order of the page, and its headlines: name of a table -> its sentences."""

    figures: tuple[Figure, ...]
    headlines: Mapping[str, Sentences]


def visuals_of(analysis: object) -> Visuals:
    """`FIGURES` and `HEADLINES` beside an analysis: in its own module, or in the module `figures` of its package.

    An analysis declares its `tables`; figures of other analyses in the same module are left out.
    """
    module = sys.modules[type(analysis).__module__]
    if not hasattr(module, "FIGURES"):
        module = importlib.import_module(f"{module.__package__}.figures")
    tables: Sequence[Declared] = getattr(analysis, "tables", ())
    names = [table.name for table in tables]
    figures = [figure for figure in module.FIGURES if figure.tables[0].name in names]
    figures.sort(key=lambda figure: names.index(figure.tables[0].name))
    headlines = {name: sentences for name, sentences in getattr(module, "HEADLINES", {}).items() if name in names}
    return Visuals(tuple(figures), headlines)


def headlines(analysis: object, tables: Mapping[str, Table]) -> list[str]:
    """One sentence for each finding in these tables; none for a table that is missing or empty."""
    known = visuals_of(analysis).headlines
    return [line for name, table in tables.items() if name in known for line in known[name](table.frame)]
