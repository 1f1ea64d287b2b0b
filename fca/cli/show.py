"""What a person sees in the terminal: finished runs, failures, tables."""

from __future__ import annotations

import io
import os
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd

from fca.cli.configure import Job
from fca.report.pictures import is_pictures
from fca.store import State, Store
from fca.store.columns import HEADLINES, Row
from fca.store.files import DamagedFile, content_of
from fca.tasks import FINDINGS
from fca.types import FcaError

USUAL = {"snapshot": "best", "shift": "clean"}  # not worth a word


def show_job(job: Job) -> list[str]:
    """One line per run of the plan: what it is, its headline with interval, where it is kept; returns the failed."""
    store = job.setup.store
    for run in job.plan:
        if store.state(run.run_id) is State.DONE:
            folder = store.folder(run.run_id)
            print(f"{_line(store.row(run.run_id), job.task.summary)}  {folder}")
            with suppress(DamagedFile, ValueError, KeyError, OSError):  # no list, or a damaged one; the row is whole
                print(*_findings(folder / FINDINGS), sep="", end="")
    failed = [run.run_id for run in job.plan if store.state(run.run_id) is State.FAILED]
    show_failures(store, failed)
    return failed


def _findings(file: Path, first: int = 3) -> Iterator[str]:
    """A line for each kind of finding: how many there are, and the first few."""
    found = pd.read_csv(io.BytesIO(content_of(file)), dtype="str", keep_default_na=False)
    for kind, part in found.groupby("finding", sort=False):
        shown = "; ".join(_finding(line) for line in part.head(first).to_dict("records"))
        yield f"  {len(part)} x {kind}: {shown}{f'; all in {file}' if len(part) > first else ''}\n"


def _finding(line: Mapping[Hashable, str]) -> str:
    if line["group"]:
        return f"{line['group']} ({line['detail']})"
    if line["other_image_id"]:
        return f"{line['image_id']} ({line['label']}) and {line['other_image_id']} ({line['other_label']})"
    return line["detail"]


def _line(row: Row, summary: Sequence[str]) -> str:
    words = [str(row[key]) for key in ("task", "dataset", "model", "encoder") if key in row]
    words += [f"ncl={row['ncl']}"] if "ncl" in row else []
    words += [str(row[key]) for key, usual in USUAL.items() if row.get(key, usual) != usual]
    words += filter(None, (_shown(entry, row) for entry in dict.fromkeys((*HEADLINES, *summary))))
    return " ".join(words) + (f"  {row['flag']}!" if "flag" in row else "")


def _shown(entry: str, row: Row) -> str | None:
    """A template filled in; a column with its interval, or as name=value; None where the row has no such value.

    >>> _shown("{n_seen} of {n_all} images", {"n_seen": 3, "n_all": 9})
    ' 3 of 9 images'
    >>> _shown("top1", {"top1": 0.5, "top1_low": 0.4, "top1_high": 0.6}), _shown("rounds", {"rounds": 3})
    (' top1 0.5000 [0.4000, 0.6000]', 'rounds=3')
    """
    names = [name for _, name, _, _ in Formatter().parse(entry) if name]
    if not set(names or [entry]) <= set(row):
        return None
    if names:
        return f" {entry.format_map(row)}"
    if f"{entry}_low" in row:
        return f" {entry} {row[entry]:.4f} [{row[f'{entry}_low']:.4f}, {row[f'{entry}_high']:.4f}]"
    return f"{entry}={row[entry]}"


def show_failures(store: Store, failed: Sequence[str], most: int = 5) -> None:
    """The first failures with their commands, and how to go on."""
    for run_id in list(failed)[:most]:
        error = store.error(run_id)
        print(f"failed {run_id} ({error.get('task')}): {error['error']}\n  {error.get('command')}")
    if failed:
        more = f"{len(failed)} failed; " if len(failed) > most else ""
        print(f"{more}all of them: fca status    a sweep runs them again with sweep.retry=true")


def check_store(outputs: str | Path, key: str = "--outputs") -> None:
    """Raise FcaError unless this is a folder that can be read; the usual one may be missing before the first run."""
    usual = outputs == "outputs" and not os.path.lexists(outputs)
    is_folder = isinstance(outputs, str | Path) and os.path.isdir(outputs)  # noqa: PTH112  # a notebook may give anything
    if not usual and not (is_folder and os.access(outputs, os.R_OK | os.X_OK)):
        raise FcaError(key, outputs, "a folder that fca run filled", "name the one that outputs= named")


def as_text(frame: pd.DataFrame, title: str, most: int | None = None) -> str:
    """A frame as plain text under its title: its first `most` lines, in the columns of `shown_columns`."""
    if frame.empty:
        return f"{title}\n(no line)"
    shown = frame[shown_columns(frame)].head(most or len(frame))
    columns = []
    for name in shown:  # a fifth of the time of to_string over thousands of lines
        present = shown[name].notna()
        cells = [str(name), *map(_cell, shown[name].astype(object).where(present, ""))]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) for cell in cells])
    lines = map(" ".join, zip(*columns, strict=True))
    more = [f"... and {len(frame) - len(shown)} lines more"] if len(shown) < len(frame) else []
    return "\n".join([title, *lines, *more])


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("\n", "\\n")


def shown_columns(frame: pd.DataFrame) -> list[str]:
    """The columns that have any value, but for pictures."""
    return [str(name) for name in frame if frame[name].notna().any() and not is_pictures(frame[name])]
