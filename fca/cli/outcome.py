"""What a finished sweep prints: its accuracies by what was swept, and the command that goes on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fca.cli.next_command import next_command
from fca.cli.results import MEANING, grouped
from fca.cli.terminal import as_text
from fca.store import Store
from fca.store.columns import HEADLINES, MODEL, RECIPE, RUN_ID, SNAPSHOT, TASK
from fca.store.filters import column_of
from fca.tables.rows import OF_SIZE
from fca.types import Run

LINES = 20
MEASURED_BY = ("train", "score", "predict")  # the first of these that a sweep has; its others repeat the accuracies
_NO_AXES = (TASK, SNAPSHOT, *OF_SIZE)


def swept_columns(overrides: Sequence[Sequence[str]]) -> list[str]:
    """The columns of the keys that have several values in a grid, in the order of its axes.

    >>> swept_columns([["model=a", "subset.ncl=2", "seed=0"], ["model=a", "subset.ncl=5", "seed=0"]])
    ['ncl']
    """
    values: dict[str, set[str]] = {}
    for words in overrides:
        for word in words:
            key, _, value = word.lstrip("+").partition("=")
            values.setdefault(key, set()).add(value)
    swept = [key for key, of_key in values.items() if len(of_key) > 1]
    columns = ["encoder" if key == "model@encoder" else key for key in swept]
    return [column_of(f"{column}=") for column in columns if column.replace(".", "").replace("_", "").isalnum()]


def outcome(store: Store, runs: Sequence[Run], axes: Sequence[str]) -> Iterator[str]:
    """Lines: the mean accuracy for each value of the axes, and the next command. Nothing where no run is done.

    axes: columns of what was swept; what else differs between the runs, but for seeds, is an axis too.
    """
    rows = store.rows()
    done = rows[rows[RUN_ID].isin([run.run_id for run in runs])]
    if done.empty:
        return
    measured, headline = _measured(done)
    if headline is not None:
        by = _differing(measured, axes) or [MODEL]
        table = grouped(measured, by, [headline])
        table = table.rename(columns={f"{headline}_n": "runs"}).dropna(axis="columns", how="all")
        title = f"{headline} by {', '.join(by)}: mean over the runs, with its 95 % interval where it has one"
        yield as_text(table, title, LINES)
    yield f"next: {next_command(store, done)}"


def _measured(done: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """The rows whose accuracy is shown, and the column that has it; None where no run has one."""
    for task in MEASURED_BY:
        of_task = done[done[TASK] == task]
        for headline in HEADLINES:
            if headline in of_task and of_task[headline].notna().any():
                return of_task[of_task[headline].notna()], str(headline)
    return done[:0], None


def _differing(measured: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """The axes and other columns of the configuration in which these runs differ: those of the sweep first."""
    meant = [str(column) for column in (*MEANING, *(name for name in measured if str(name).startswith(RECIPE)))]
    columns = [column for column in dict.fromkeys([*axes, *meant]) if column in meant and column not in _NO_AXES]
    return [column for column in columns if column in measured and _kinds(measured[column]) > 1]


def _kinds(column: pd.Series) -> int:
    return len(set(column.astype(object).map(repr)))
