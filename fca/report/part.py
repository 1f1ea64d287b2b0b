"""What a figure module brings to a report: its parts of the page, and sentences that answer in words."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import altair as alt
import pandas as pd

from fca.types import Table

Answer = Callable[[pd.DataFrame], Iterator[str]]


class Part(NamedTuple):
    """A figure with its tables. key: anchor and file name.    tables: those that it draws, in the order of `draw`."""

    key: str
    title: str
    analysis: str  # which analysis makes its tables
    tables: tuple[str, ...]
    draw: Callable[..., alt.FacetChart | alt.LayerChart]


@cache
def parts() -> tuple[Part, ...]:
    """The `PARTS` of every module of fca.report: the folder is the registry."""
    return tuple(part for module in _modules() for part in getattr(module, "PARTS", ()))


def answers(tables: Mapping[str, Table]) -> list[str]:
    """One sentence a finding, by the `ANSWERS` of every module; none for a table that is missing or empty."""
    told = {name: tell for module in _modules() for name, tell in getattr(module, "ANSWERS", {}).items()}
    return [line for name, table in tables.items() if name in told for line in told[name](table.frame)]


def _modules() -> list[object]:
    found = pkgutil.walk_packages(importlib.import_module("fca.studies").__path__, "fca.studies.")
    return [importlib.import_module(name) for name in sorted(one.name for one in found if ".figures." in one.name)]
