"""What a person sees in the terminal: finished runs, failures, tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable

from fca.doors.configure import Job
from fca.store import State, Store

_HEADLINES = ("top1", "top1_open", "top1_masked")


def show_job(job: Job) -> list[str]:
    """One line a run of the plan: what it is, its headline with interval, where it is kept; returns the failed."""
    store = job.setup.store
    for run in job.plan:
        if store.state(run.run_id) is State.DONE:
            row = store.row(run.run_id)
            what = " ".join(str(row[key]) for key in ("task", "dataset", "model", "encoder") if key in row)
            ncl = f" ncl={row['ncl']}" if "ncl" in row else ""
            scores = "".join(
                f"  {name} {row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"
                for name in _HEADLINES
                if name in row
            )
            flag = f"  {row['flag']}!" if "flag" in row else ""
            print(f"{what}{ncl}{scores}{flag}  {store.folder(run.run_id)}")
    failed = [run.run_id for run in job.plan if store.state(run.run_id) is State.FAILED]
    show_failures(store, failed)
    return failed


def show_failures(store: Store, failed: Sequence[str], most: int = 5) -> None:
    """The first failures with their commands, and how to go on."""
    for run_id in list(failed)[:most]:
        error = store.error(run_id)
        print(f"failed {run_id} ({error['task']}): {error['error']}\n  {error['command']}")
    if failed:
        more = f"{len(failed)} failed; " if len(failed) > most else ""
        print(f"{more}all of them: fca status    again: the same command with sweep.retry=true")


def show_frame(frame: pd.DataFrame, title: str) -> None:
    """A frame as a table in the terminal; columns without any value are left out."""
    frame = frame.dropna(axis="columns", how="all")
    table = RichTable(title=title, title_justify="left")
    for name in frame.columns:
        table.add_column(str(name), justify="right" if pd.api.types.is_numeric_dtype(frame[name]) else "left")
    for values in frame.itertuples(index=False):
        table.add_row(*(_cell(value) for value in values))
    Console().print(table)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return "" if value is None or value is pd.NA else str(value)
