"""What a finished sweep prints: its accuracies by the swept keys, and the command to go on with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fca.cli.next_command import next_command
from fca.cli.results import REQUESTED_COLUMNS, grouped
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
    """The columns of the keys that a sweep varies, in the order of the axes of the grid.

    overrides: for each point of the grid, its overrides as KEY=VALUE. A key that has no column, such as recipe/augment,
    is left out.

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
        name = "encoder" if key == "model@encoder" else key  # the column of the group model@encoder
        # no slash as in recipe/augment, which has no column
        consists_of_words_and_dots = name.replace(".", "").replace("_", "").isalnum()
        if consists_of_words_and_dots:
            columns.append(column_of(f"{name}="))  # column_of expects a filter, NAME=VALUES
    return columns


def outcome(store: Store, runs: Sequence[Run], axes: Sequence[str]) -> Iterator[str]:
    """Yield what a sweep prints at its end: a table of mean accuracies, and the command to type next.

    The table has a line for each combination of values of the axes, with the mean accuracy over its runs, the interval
    and the number of runs. There is no table if no run has an accuracy. Nothing at all is yielded if no run is done.
    store: the store of the sweep.
    runs:  all runs of the sweep.
    axes:  the columns of the swept keys. Other columns of the configuration in which the runs differ are axes, too.
    """
    rows = store.rows()
    done_rows = rows[rows[RUN_ID].isin([run.run_id for run in runs])]
    if done_rows.empty:
        return

    measured_rows, accuracy_column = _rows_with_accuracy(done_rows)
    if accuracy_column is not None:
        group_columns = _differing_columns(measured_rows, axes) or [MODEL]  # MODEL if all have the same values
        table = grouped(measured_rows, group_columns, [accuracy_column])
        # if no group has an interval, the columns of its bounds have only missing values and are dropped
        table = table.rename(columns={f"{accuracy_column}_n": "runs"}).dropna(axis="columns", how="all")
        columns = ", ".join(group_columns)
        title = f"{accuracy_column} by {columns}: mean over the runs, with its 95 % interval where it has one"
        yield as_text(table, title, MAX_LINES)
    yield f"next: {next_command(store, done_rows)}"


def _rows_with_accuracy(rows: pd.DataFrame) -> tuple[pd.DataFrame, str | None]:
    """The rows whose accuracy is shown, and the name of the column with this accuracy.

    All these rows are of one task, since several tasks may store the same accuracy of a network.
    If no run has an accuracy, no rows and None.
    """
    for task in TASKS_WITH_ACCURACY:  # in order of preference
        rows_of_task = rows[rows[TASK] == task]
        for headline in HEADLINES:  # the columns of accuracy, the preferred one first
            if headline in rows_of_task and rows_of_task[headline].notna().any():
                return rows_of_task[rows_of_task[headline].notna()], str(headline)
    return rows[:0], None  # an empty frame with the same columns


def _differing_columns(rows: pd.DataFrame, axes: Sequence[str]) -> list[str]:
    """The columns of the configuration in which these rows differ; the axes of the sweep come first.

    Columns of seeds are left out, since runs that differ only in seeds are averaged. Columns that are derived from the
    size of a subset are left out as well.
    axes: columns of the swept keys.
    """
    recipe_columns = [str(name) for name in rows if str(name).startswith(RECIPE)]
    configuration_columns = [*map(str, REQUESTED_COLUMNS), *recipe_columns]

    differing = []
    for column in dict.fromkeys([*axes, *configuration_columns]):  # each once
        if column not in configuration_columns or column in _COLUMNS_THAT_ARE_NO_AXES or column not in rows:
            continue
        different_values = set(rows[column].astype(object).map(repr))  # repr, as lists cannot be in a set
        if len(different_values) > 1:
            differing.append(column)
    return differing
