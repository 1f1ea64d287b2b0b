"""The store: everything that was computed, as files. A row that exists is a run that is done."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fca.store import claims
from fca.store.columns import Row, checked
from fca.store.files import remove_parts, write_array, write_frame, write_json, write_text
from fca.store.index import read_rows, row_of
from fca.types import Arrays, Column, FcaError, ImageData, Table


class State(Enum):
    """Where a run stands: its row exists; its error exists; a live worker holds it; none of these."""

    DONE = "done"
    FAILED = "failed"
    RUNNING = "running"
    ABSENT = "absent"


class ClaimLost(Exception):
    """Another worker took this run over (this one was silent for too long); its result is not written."""


@dataclass(frozen=True)
class Store:
    """The folder `outputs`: runs/, items/, tables/, cache/ and reports/."""

    outputs: Path

    def folder(self, run_id: str) -> Path:
        """Where a run's files lie."""
        return self.outputs / "runs" / run_id

    def state(self, run_id: str) -> State:
        """Where a run stands now."""
        folder = self.folder(run_id)
        if (folder / "row.json").exists():
            return State.DONE
        if claims.is_held(folder):
            return State.RUNNING
        return State.FAILED if (folder / "error.json").exists() else State.ABSENT

    def row(self, run_id: str) -> Row:
        """One finished run; raises FcaError if there is none."""
        try:
            return row_of(self.folder(run_id))
        except FileNotFoundError:
            raise FcaError("run_id", run_id, f"a finished run in {self.outputs}", "list them: fca results") from None

    def rows(self, query: str | None = None) -> pd.DataFrame:
        """One line per finished run; see `results`."""
        return results(self.outputs, query)

    def array(self, run_id: str, name: str) -> np.ndarray:
        """A run's array, memory-mapped."""
        return np.load(self.folder(run_id) / f"{name}.npy", mmap_mode="r", allow_pickle=False)

    def write(self, row: Mapping[str, Any], arrays: Arrays, token: str, columns: Iterable[Column] = ()) -> Row:
        """Store a finished run: arrays first, the row last. Raises ClaimLost if the claim is no longer ours.

        columns: those that the run's task declares, beside the ones that all rows share.
        """
        row = checked(row, columns)
        folder = self.folder(row["run_id"])
        for name, array in arrays.items():
            write_array(folder / f"{name}.npy", array)
        if not claims.is_mine(folder, token):
            raise ClaimLost(f"run {row['run_id']} was taken over by another worker")
        write_json(folder / "row.json", row)
        (folder / "error.json").unlink(missing_ok=True)
        return row

    def fail(self, run_id: str, error: Mapping[str, Any]) -> None:
        """Record why a run failed: message, traceback and the command that repeats it."""
        write_json(self.folder(run_id) / "error.json", dict(error))

    def forgive(self, run_id: str) -> None:
        """Forget that a run failed, so that it is done again."""
        (self.folder(run_id) / "error.json").unlink(missing_ok=True)

    def drop(self, run_id: str) -> None:
        """Remove the folder of a run that was refused before it computed anything; weights and results stay."""
        folder = self.folder(run_id)
        if not any((folder / name).exists() for name in ("row.json", "last.ckpt", "best.safetensors", "journal.jsonl")):
            shutil.rmtree(folder, ignore_errors=True)

    def error(self, run_id: str) -> dict[str, Any]:
        """The record of a failed run."""
        return json.loads((self.folder(run_id) / "error.json").read_text())

    def keep_items(self, data: ImageData) -> None:
        """Write the list of images, once; rows of every array follow its order, label categories the class order."""
        path = self.outputs / "items" / f"{data.fingerprint}.parquet"
        if not path.exists():
            remove_parts(path.parent)
            label = pd.Categorical(data.items["label"], categories=list(data.classes))
            write_frame(path, data.items.assign(label=label))

    def items(self, fingerprint: str) -> pd.DataFrame:
        """The images behind this fingerprint: image_id, label, split and annotations."""
        return pd.read_parquet(self.outputs / "items" / f"{fingerprint}.parquet")

    def save(self, table: Table) -> Path:
        """Save an analysis' table under an id of its name, its parameters and the runs it read; returns its folder."""
        meaning = {"name": table.name, "parameters": dict(table.parameters), "runs": sorted(table.runs)}
        table_id = hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:12]
        folder = self.outputs / "tables" / table_id
        write_frame(folder / "table.parquet", table.frame)
        write_text(folder / "table.csv", table.frame.to_csv(index=False))
        write_json(folder / "table.json", {**meaning, "question": table.question, "source": table.source})
        return folder


def results(outputs: str | Path = "outputs", query: str | None = None, columns: Iterable[str] = ()) -> pd.DataFrame:
    """One line per finished run: the columns that all tasks share (fca/store/columns.py), then those of some tasks.

    outputs: the store's folder.    query: a pandas query on the columns, e.g. "task == 'train' and ncl <= 5".
    columns: further ones, which are missing everywhere if no row has them.
    A value that a run does not have is missing, never 0. Raises FcaError for a query that cannot be read.

    >>> results("no/such/folder").empty
    True
    """
    frame = read_rows(Path(outputs))
    if absent := [name for name in dict.fromkeys(columns) if name not in frame]:
        frame = frame.reindex(columns=[*frame.columns, *absent])
    return frame if query is None else queried(frame, query).reset_index(drop=True)


def queried(frame: pd.DataFrame, query: str, name: str = "query") -> pd.DataFrame:
    """The lines that a pandas query keeps. Raises FcaError, which calls the query by `name`, if it cannot be read."""
    try:
        return frame.query(query, engine="python")
    except Exception as error:
        raise FcaError(name, query, f"a pandas query on {', '.join(frame.columns)}", f"mend it: {error}") from error
