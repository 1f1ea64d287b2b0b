"""What a finished sweep prints: its accuracies by the swept keys, and the command to go on with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fca.cli.next_command import next_command
from fca.cli.results import MEANING, grouped
from fca.cli.terminal import as_text
from fca.store import Store
from fca.store.columns import HEADLINES, MODEL, RECIPE, RUN_ID, SNAPSHOT, TASK
from fca.store.filters import column_of
from fca.tables.rows import SUBSET_SIZE_COLUMNS
from fca.types import Run

MAX_LINES = 20
TASKS_WITH_ACCURACY = ("train", "score", "predict")  # the first that a sweep has is shown; others repeat its accuracies
_COLUMNS_THAT_ARE_NO_AXES = (TASK, SNAPSHOT, *SUBSET_SIZE_COLUMNS)


def swept_columns(overrides: Sequence[Sequence[str]]) -> list[str]:
    """The columns of the keys that have several values in a grid, in the order of its axes.

    overrides: those of each point, as KEY=VALUE. A key that has no column, such as recipe/augment, is left out.

    >>> swept_columns([["model=a", "subset.ncl=2", "seed=0"], ["model=a", "subset.ncl=5", "seed=0"]])
    ['ncl']
    """
    values: dict[str, set[str]] = {}
    for words in overrides:
        for word in words:
            key, _, value = word.lstrip("+").partition("=")
            values.setdefault(key, set()).add(value)
    swept_keys = [key for key, values_of_key in values.items() if len(values_of_key) > 1]

    columns = []
    for key in swept_keys:
        name = "encoder" if key == "model@encoder" else key
        consists_of_words_and_dots = name.replace(".", "").replace("_", "").isalnum()
        if consists_of_words_and_dots:
            columns.append(column_of(f"{name}="))
    return columns


def outcome(store: Store, runs: Sequence[Run], axes: Sequence[str]) -> Iterator[str]:
    """Yield what a sweep prints at its end: a table of mean accuracy for each value of the axes, and the next command.

    Nothing is printed if no run is done.    runs: all of the sweep.
    axes: columns of the swept keys; other columns of the configuration in which the runs differ are axes, too.
    """
    rows = store.rows()
    done_rows = rows[rows[RUN_ID].isin([run.run_id for run in runs])]
    if done_rows.empty:
        return

    measured_rows, headline = _rows_with_accuracy(done_rows)
    if headline is not None:
        group_columns = _differing_columns(measured_rows, axes) or [MODEL]  # all runs have the same configuration
        table = grouped(measured_rows, group_columns, [headline])
        # an interval that no group has is a column of missing values
        table = table.rename(columns={f"{headline}_n": "runs"}).dropna(axis="columns", how="all")
        columns = ", ".join(group_columns)
        title = f"{headline} by {columns}: mean over the runs, with its 95 % interval where it has one"
        yield as_text(table, title, MAX_LINES)
    yield f"next: {next_command(store, done_rows)}"


def _rows_with_accuracy(rows: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """The rows whose accuracy is shown, and the column that has it; no rows and None if no run has an accuracy.

    They are all of one task, since several tasks may store the same accuracy of a network.
    """
    for task in TASKS_WITH_ACCURACY:
        rows_of_task = rows[rows[TASK] == task]
        for headline in HEADLINES:  # the columns of accuracy
            if headline in rows_of_task and rows_of_task[headline].notna().any():
                return rows_of_task[rows_of_task[headline].notna()], str(headline)
    return rows[:0], None


def _differing_columns(rows: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """The columns of the configuration in which these runs differ, the axes of the sweep first.

    Seeds are no such columns, since their runs are averaged; nor is what follows from the size of a subset.
    """
    recipe_columns = [str(name) for name in rows if str(name).startswith(RECIPE)]
    configuration_columns = [*map(str, MEANING), *recipe_columns]

    differing = []
    for column in dict.fromkeys([*axes, *configuration_columns]):  # each once
        if column not in configuration_columns or column in _COLUMNS_THAT_ARE_NO_AXES or column not in rows:
            continue
        different_values = set(rows[column].astype(object).map(repr))  # repr, as lists cannot be in a set
        if len(different_values) > 1:
            differing.append(column)
    return differing
