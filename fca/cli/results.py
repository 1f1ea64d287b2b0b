"""`fca results`: stored runs as a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from fca.cli.show import show_frame
from fca.store import results
from fca.store.columns import MAIN
from fca.types import FcaError


def main(arguments: Sequence[str]) -> int:
    """Print the rows; exit code 2 for a query that cannot be read."""
    parser = argparse.ArgumentParser(prog="fca results", description=__doc__)
    parser.add_argument("--outputs", default="outputs", help="the store (default: outputs)")
    parser.add_argument("--query", help="a pandas query, e.g. \"task == 'train' and ncl <= 5\"")
    parser.add_argument("--columns", help="comma-separated; default: the main ones (table), all (csv, json)")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    asked = parser.parse_args(arguments)
    try:
        frame = results(asked.outputs, asked.query)
        if asked.columns:
            frame = frame[_columns(asked.columns, list(frame.columns))]
    except FcaError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if asked.format == "csv":
        frame.to_csv(sys.stdout, index=False)
    elif asked.format == "json":
        print(frame.to_json(orient="records", lines=True))
    else:
        show_frame(frame if asked.columns else frame[list(MAIN)], f"{len(frame)} runs in {asked.outputs}")
    return 0


def _columns(asked: str, known: list[str]) -> list[str]:
    names = asked.split(",")
    for name in names:
        if name not in known:
            raise FcaError("--columns", name, ", ".join(known), "name columns of the results")
    return names
