"""`fca analyse`: compute the tables of an analysis from stored runs, and save them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from fca.cli.application import application
from fca.cli.configure import component
from fca.cli.show import show_frame
from fca.store import Store

LINES = 40  # of a table shown in the terminal; the file has all


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 2 when there is nothing to analyse or the configuration is wrong."""
    return application("analyse", analyse, arguments)


def analyse(config: DictConfig) -> None:
    """Print every table with its question and source, and where it is saved."""
    store = Store(Path(config.outputs))
    for table in component(config, "analysis")(store):
        show_frame(table.frame, f"{table.name}: {table.question}", LINES)
        print(f"{table.source}\n{len(table.runs)} runs; kept in {store.save(table)}\n")
