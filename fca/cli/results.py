"""`fca results`: stored runs as a table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd

from fca import store
from fca.cli import Words, refused
from fca.cli.show import as_text, check_store
from fca.store.columns import MAIN
from fca.types import FcaError, check_choice


def main(arguments: Sequence[str]) -> int:
    """Print the rows; exit code 2 for words that cannot be understood."""
    parser = Words(prog="fca results", description=__doc__)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--query", help="a condition, e.g. \"task == 'train' and ncl <= 5\"")
    parser.add_argument("--columns", help="comma-separated; default: the main ones (table), all (csv, json)")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    try:
        options = parser.parse_args(arguments)
        check_store(options.outputs)
        names = options.columns.split(",") if options.columns is not None else []
        frame = results(options.outputs, options.query, names)
    except FcaError as error:
        return refused(error)
    if options.format == "csv":
        frame.to_csv(sys.stdout, index=False)
    elif options.format == "json":
        print(frame.to_json(orient="records", lines=True))
    else:
        print(as_text(frame if names else frame[list(MAIN)], f"{len(frame)} runs in {options.outputs}"))
    return 0


def results(outputs: str | Path = "outputs", query: str | None = None, columns: Sequence[str] = ()) -> pd.DataFrame:
    """One line per finished run, as `fca.store.results`; the query may name a column of a task that has not run yet.

    columns: those to return; empty: all.
    Raises FcaError for a folder that is none, a query that cannot be read, and an unknown column.

    >>> results("no/such/folder")
    Traceback (most recent call last):
    fca.types.FcaError: outputs = no/such/folder; allowed: a folder that fca run filled; next: ...
    """
    check_store(outputs, "outputs")
    with suppress(FcaError):  # perhaps because no row has a column that the query names
        frame = store.results(outputs, query)
        if set(columns) <= set(frame):
            return frame[list(columns)] if columns else frame
    from fca.cli.configure import task_columns  # a second, for a question that is rarely asked

    frame = store.results(outputs, query, task_columns())
    for name in columns:
        check_choice("--columns", name, frame, "name columns of the results")
    return frame[list(columns)] if columns else frame
