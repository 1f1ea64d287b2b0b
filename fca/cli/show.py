"""What a person sees in the terminal: finished runs, failures, tables."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fca.cli.configure import Job
from fca.report.pictures import is_pictures
from fca.store import State, Store
from fca.store.columns import COLUMNS, Row

HEADLINES = ("top1", "top1_open", "top1_masked", "top1_grouped", "accuracy", "score")
COUNTS = [name for name in COLUMNS if name.startswith(("n_", "class_", "height_", "width_", "duplicates_"))]


def show_job(job: Job) -> list[str]:
    """One line a run of the plan: what it is, its headline with interval, where it is kept; returns the failed."""
    store = job.setup.store
    for run in job.plan:
        if store.state(run.run_id) is State.DONE:
            print(f"{_line(store.row(run.run_id))}  {store.folder(run.run_id)}")
    failed = [run.run_id for run in job.plan if store.state(run.run_id) is State.FAILED]
    show_failures(store, failed)
    return failed


def _line(row: Row) -> str:
    what = [str(row[key]) for key in ("task", "dataset", "model", "encoder") if key in row]
    if "n_images" in row:
        what += [f"{key}={row[key]}" for key in COUNTS if key in row]
    elif "ncl" in row:
        what.append(f"ncl={row['ncl']}")
    what += [str(row[key]) for key, usual in (("snapshot", "best"), ("shift", "clean")) if row.get(key, usual) != usual]
    for name in HEADLINES:
        if f"{name}_low" in row:
            what.append(f" {name} {row[name]:.4f} [{row[f'{name}_low']:.4f}, {row[f'{name}_high']:.4f}]")
    if "n_asked" in row:
        what.append(f" asked {row['n_asked']} of {row['n_pool']} images")
    return " ".join(what) + (f"  {row['flag']}!" if "flag" in row else "")


def show_failures(store: Store, failed: Sequence[str], most: int = 5) -> None:
    """The first failures with their commands, and how to go on."""
    for run_id in list(failed)[:most]:
        error = store.error(run_id)
        print(f"failed {run_id} ({error['task']}): {error['error']}\n  {error['command']}")
    if failed:
        more = f"{len(failed)} failed; " if len(failed) > most else ""
        print(f"{more}all of them: fca status    a sweep runs them again with sweep.retry=true")


def show_frame(frame: pd.DataFrame, title: str, most: int | None = None) -> None:
    """A frame as plain text, its first `most` lines; pictures and columns without any value are left out."""
    print(title)
    if frame.empty:
        print("(no line)")
        return
    seen = [name for name in frame if frame[name].notna().any() and not is_pictures(frame[name])]
    shown = frame[seen].head(most or len(frame))
    shown = shown.astype(object).where(shown.notna(), "")
    print(shown.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
    if len(shown) < len(frame):
        print(f"... and {len(frame) - len(shown)} lines more")
