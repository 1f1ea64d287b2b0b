"""The analyses over what the store holds: in the default way, and as the paper did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pandas as pd
from paper import MODEL

from fca.store import Store
from fca.studies.irt.class_robustness import CLASSES, NAMED, SEVERITY, ClassRobustness
from fca.studies.irt.difficulty_segments import CLASSES as OUTER
from fca.studies.irt.difficulty_segments import MODELS, DifficultySegments
from fca.studies.irt.irt import COLUMNS, ITEMS, Irt, Reliability
from fca.studies.irt.label_errors import RATES, LabelErrors, read_verdicts
from fca.studies.rows import check_query
from fca.types import FcaError, Table

READ = {  # the tables that are read, with their columns
    "irt_items": ITEMS,
    "reliability": COLUMNS,
    "segment_models": MODELS,
    "segment_classes": OUTER,
    "robust_classes": NAMED,
    "class_robustness": CLASSES,
    "class_severity": SEVERITY,
    "label_error_rules": RATES,
}
AS_PAPER = {"model": MODEL, "compat": "seed001"}
COLUMN = ["item", "error"]


class Ways(NamedTuple):
    """Tables by name, in both ways. reasons: why an analysis has none."""

    ours: dict[str, Table]
    theirs: dict[str, Table]
    reasons: dict[str, str]

    def frames(self) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
        """Of both ways, with an empty frame where there is no table."""
        return tuple(
            {name: tables[name].frame if name in tables else pd.DataFrame(columns=columns)
             for name, columns in READ.items()}
            for tables in (self.ours, self.theirs)
        )  # type: ignore[return-value]  # fmt: skip

    def runs(self, *names: str) -> tuple[str, ...]:
        """Those behind these tables."""
        tables = [tables[name] for tables in (self.ours, self.theirs) for name in names if name in tables]
        return tuple(sorted({run for table in tables for run in table.runs}))


def analysed(store: Store, dataset: str, verdicts: str | None = None, query: str | None = None) -> Ways:
    """Run them. Raises FcaError for verdicts and a query that cannot be read; what else fails is a reason."""
    if verdicts is not None:
        read_verdicts(verdicts, COLUMN)
    check_query(store.rows(), query)
    ways = Ways({}, {}, {})
    for name, analysis in _analyses(store, dataset, query):
        for way, tables, fields in (("ours", ways.ours, {}), ("as the paper did", ways.theirs, AS_PAPER)):
            _keep(ways.reasons, f"{name}, {way}", tables, lambda make=analysis, given=fields: make(**given)(store))
    own = _narrowed(dataset, query)
    errors = LabelErrors(query=own, verdicts=verdicts, verdict_columns=COLUMN, model=MODEL)
    if verdicts is not None:
        _keep(ways.reasons, "label_errors", ways.ours, lambda: errors(store))
    return ways


def _analyses(store: Store, dataset: str, query: str | None) -> Iterator[tuple[str, Callable]]:
    """Each by name; narrowed to the severities and corruptions that the paper tells of, where a fit each is needed."""
    own = _narrowed(dataset, query)
    shifts = store.rows()["shift"].dropna().unique().tolist()
    first = ["clean", *(name for name in shifts if name.endswith("/1"))]
    blur = ["clean", *(name for name in shifts if "/defocus_blur/" in name)]

    def asked(analysis: type, query: str, **fields: str) -> Callable:
        return lambda **given: analysis(query=query, **{**fields, **given})

    yield "reliability", asked(Reliability, f"{own} and shift in {first}")
    yield "difficulty_segments", asked(DifficultySegments, own)
    yield "class_robustness", asked(ClassRobustness, own)
    yield "irt", asked(Irt, f"{own} and shift in {blur}", model=MODEL)  # the feasibility is asked for in both ways


def _narrowed(dataset: str, query: str | None) -> str:
    return f"dataset == {dataset!r}" + (f" and ({query})" if query else "")


def _keep(reasons: dict[str, str], name: str, tables: dict[str, Table], make: Callable[[], list[Table]]) -> None:
    try:
        tables |= {table.name: table for table in make()}
    except FcaError as error:
        reasons[name] = str(error)
