"""The store: all results, as files. A run with a row is done.

Damaged files (fca/store/damage.py) are never read: a damaged run is repeated, and readers leave it out.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fca.csv_table import csv_text
from fca.store import claims, damage
from fca.store.columns import BASE, DIVERGED, FLAG, Row, checked
from fca.store.damage import ERROR, FITTED, NOTE, REMOVED, ROW, SCHEMA
from fca.store.files import (
    DamagedFile,
    if_whole,
    make_way,
    read_array,
    read_frame,
    read_object,
    remove,
    remove_parts,
    write_array,
    write_frame,
    write_json,
    write_text,
    write_whole,
)
from fca.store.index import read_rows, row_of
from fca.store.interruption import was_interrupted
from fca.store.query import rows_matching
from fca.store.schemas import keep_schema, known_columns, read_schema
from fca.types import Arrays, Column, FcaError, ImageData, Table


class State(Enum):
    """Where a run stands."""

    DONE = "done"  # it has a row, and its files are intact
    DAMAGED = "damaged"  # its row, a file that the row lists, or its error record is damaged
    FAILED = "failed"  # it has an error record
    INTERRUPTED = "interrupted"  # its record says that it was killed or lacked resources
    RUNNING = "running"  # a live worker holds its claim
    ABSENT = "absent"


ENDED_EARLY = (State.FAILED, State.INTERRUPTED)
"""Ended without a row, with a record of the reason."""

SETTLED = (State.DONE, *ENDED_EARLY)
"""Not repeated within the same command; the next command repeats interrupted runs."""


class ClaimLost(Exception):
    """Another worker took this run over (this one was silent for too long); its result is not written."""


def no_images(_: str) -> None:
    """The images of a store without any data set at hand."""


@dataclass(frozen=True)
class Store:
    """The folder `outputs`: runs/, items/, tables/, cache/ and reports/.

    images: fingerprint -> the data set, if its images are at hand, for the pictures of a page.
    """

    outputs: Path
    left_out: tuple[DamagedFile, ...] = ()  # what `rows` leaves out, see `without`
    images: Callable[[str], ImageData | None] = field(default=no_images, compare=False, repr=False)

    def folder(self, run_id: str) -> Path:
        """The folder of a run. Raises FcaError for an id that leads elsewhere; rows may come from a stranger."""
        if run_id in ("", "..") or Path(run_id).name != run_id:
            raise FcaError("run_id", run_id, "the name of a folder in runs/", "list them: fca results")
        return self.outputs / "runs" / run_id

    def run_ids(self) -> list[str]:
        """All runs that were begun; other files are ignored."""
        folder = self.outputs / "runs"
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if damage.is_run_id(path.name))

    def state(self, run_id: str) -> State:
        """Where a run stands now."""
        return self.state_and_damage(run_id)[0]

    def problem(self, run_id: str) -> DamagedFile | None:
        """What is wrong with the files of a finished or failed run; None if nothing is, and for other runs."""
        return self.state_and_damage(run_id)[1]

    def state_and_damage(self, run_id: str) -> tuple[State, DamagedFile | None]:
        """The state and the problem of a run at once."""
        folder = self.folder(run_id)
        try:
            damaged = damage.problem_of(folder)
            state = State.DONE if damaged is None else State.DAMAGED
        except FileNotFoundError:
            state, damaged = self._state_without_row(run_id)

        if state is not State.DONE and claims.is_held(folder):
            return State.RUNNING, damaged
        return state, damaged

    def _state_without_row(self, run_id: str) -> tuple[State, DamagedFile | None]:
        try:
            error = self.error(run_id)
        except FileNotFoundError:
            return State.ABSENT, None
        except DamagedFile as damaged:
            return State.DAMAGED, damaged
        return (State.INTERRUPTED if was_interrupted(error) else State.FAILED), None

    def damaged(self) -> list[DamagedFile]:
        """The damaged runs, each by its first damaged file, and the damaged items tables of the others."""
        problems = [self.problem(run_id) for run_id in self.run_ids()]
        damaged_runs = [problem for problem in problems if problem is not None]
        return damaged_runs + self.damaged_items()

    def damaged_items(self) -> list[DamagedFile]:
        """The items tables that are damaged, of those that finished runs need."""
        damaged_tables = []
        for fingerprint in self.rows()["fingerprint"].dropna().unique():
            try:
                self.items(fingerprint)
            except DamagedFile as damaged:
                damaged_tables.append(damaged)
        return damaged_tables

    def without(self, damaged: DamagedFile) -> Store:
        """This store without the runs that need a damaged file; the first time, without all damaged runs.

        Raises the damage itself if it is left out already.
        """
        if damaged.args in [file.args for file in self.left_out]:
            raise damaged

        damaged_files = [damaged]
        if not self.left_out:
            damaged_files += self.damaged()
        unique_files = {file.args: file for file in damaged_files}.values()
        damage.warn(list(unique_files))
        return replace(self, left_out=(*self.left_out, *unique_files))

    def row(self, run_id: str) -> Row:
        """One finished run; raises FcaError if there is none, DamagedFile if its row is not whole."""
        try:
            return row_of(self.folder(run_id))
        except FileNotFoundError:
            raise FcaError("run_id", run_id, f"a finished run in {self.outputs}", "list them: fca results") from None

    def row_if_whole(self, run_id: str) -> Row | None:
        """One finished run; None where there is none, or its row is damaged, which `damaged` lists."""
        with suppress(FcaError, DamagedFile):
            return self.row(run_id)
        return None

    def has_diverged(self, run_id: str) -> bool:
        """Whether a finished run is a training that diverged."""
        row = self.row_if_whole(run_id)
        return row is not None and row.get(FLAG) == DIVERGED

    def rows(self, query: str | None = None) -> pd.DataFrame:
        """One line per finished run, except those left out; see `results`."""
        frame = results(self.outputs, query)
        if not self.left_out:
            return frame

        # a damaged file is in the folder of its run, or is an items table with the fingerprint as its name
        names = {file.path.stem for file in self.left_out} | {file.path.parent.name for file in self.left_out}
        is_left_out = frame["run_id"].isin(names) | frame["fingerprint"].isin(names)
        return frame[~is_left_out].reset_index(drop=True)

    def has_array(self, run_id: str, name: str) -> bool:
        """Whether a finished run kept an array of this name."""
        return f"{name}.npy" in damage.read_row(self.folder(run_id)).files

    def array(self, run_id: str, name: str, lines: int | None = None) -> np.ndarray:
        """A run's array, memory-mapped. Raises DamagedFile for one that is not as it was written.

        lines: how many it must have.
        """
        path = self.folder(run_id) / f"{name}.npy"
        with damage.noting():
            damage.compare(path)
            array = read_array(path)
            if lines not in (None, len(array)):
                raise DamagedFile(path, f"has {len(array):,} lines for {lines:,} images")
        return array

    def write(self, row: Mapping[str, Any], arrays: Arrays, token: str, columns: Iterable[Column] = ()) -> Row:
        """Store a finished run: arrays first, the row last. Raises ClaimLost if the claim is no longer ours.

        columns: those that the run's task declares, beside the ones that all rows share.
        """
        task_columns = tuple(columns)
        row = checked(row, task_columns)
        folder = self.folder(row["run_id"])
        for name, array in arrays.items():
            write_array(folder / f"{name}.npy", array)
        content = damage.listing(folder, row, keep_schema(self.outputs, task_columns))
        if not claims.is_mine(folder, token):
            raise ClaimLost(f"run {row['run_id']} was taken over by another worker")
        write_whole(folder / ROW, lambda file: file.write(content))
        for name in (ERROR, NOTE, REMOVED):
            remove(folder / name)
        return row

    def weights(self, run_id: str) -> list[Path]:
        """The weights of a training of a whole network: its best epoch, and snapshots.

        Weights of a single layer are small and read by analyses, so they are not among them.
        """
        folder = self.folder(run_id)
        if not (folder / FITTED).exists():
            return []
        return sorted(folder.glob("*.safetensors"))

    def remove_weights(self, run_id: str, paths: Iterable[Path], why: str) -> None:
        """Remove weights of a finished run; a record of them is written first, so that the run is not damaged."""
        names = [path.name for path in paths]
        if not names:
            return

        folder = self.folder(run_id)
        removed_names = {*damage.removed(folder), *names}
        write_json(folder / REMOVED, {"files": sorted(removed_names), "why": why})
        for name in names:
            remove(folder / name)

    def fail(self, run_id: str, error: Mapping[str, Any]) -> None:
        """Record why a run failed, or was `interrupted`: message, traceback and the command that repeats it."""
        write_json(self.folder(run_id) / ERROR, dict(error))

    def forgive(self, run_id: str) -> None:
        """Forget that a run failed or was interrupted, so that it is done again."""
        remove(self.folder(run_id) / ERROR)

    def clear(self, run_id: str) -> None:
        """Remove the records of a damaged run so that it is repeated, and with a damaged array or weights all of these.

        Folders, pipes and broken links in the place of a run's files are removed in any case. A damaged row or record
        leaves arrays and weights, from which the work may resume. Only for the holder of the run's claim.
        """
        damaged = self.problem(run_id)
        folder = self.folder(run_id)
        paths = list(folder.iterdir())
        make_way(*(path for path in paths if damage.is_ours(path.name)))
        if damaged is None:
            return

        paths_to_remove = [folder / name for name in (ROW, ERROR, NOTE, REMOVED)]
        if damaged.path not in paths_to_remove:
            paths_to_remove += [path for path in paths if damage.is_listed(path.name)]
        for path in paths_to_remove:
            remove(path)

    def drop(self, run_id: str) -> None:
        """Remove the folder of a run that was refused before it computed anything; a folder with results stays."""
        folder = self.folder(run_id)
        result_names = (ROW, "last.ckpt", "best.safetensors", "journal.jsonl")
        if any((folder / name).exists() for name in result_names):
            return

        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # not empty: there are other runs
            folder.parent.rmdir()
            self.outputs.rmdir()

    def error(self, run_id: str) -> dict[str, Any]:
        """The record of a failed or interrupted run.

        Raises DamagedFile for a file that is no record; FileNotFoundError without a record.
        """
        path = self.folder(run_id) / ERROR
        error = read_object(path, error=str)
        if error.get("run_id", run_id) != run_id:
            raise DamagedFile(path, f"is of run {error['run_id']!s:.40}")
        return error

    def keep_items(self, data: ImageData) -> None:
        """Write the list of images unless it exists intact; rows of every array follow its order.

        Label categories are in class order.
        """
        path = self.outputs / "items" / f"{data.fingerprint}.parquet"
        with if_whole():
            if not damage.was_whole(path):
                if self.items(data.fingerprint)["image_id"].tolist() != data.items["image_id"].tolist():
                    raise DamagedFile(path, "lists other images")
                damage.remember(path)
            return
        remove(path)
        remove_parts(path.parent)
        label = pd.Categorical(data.items["label"], categories=list(data.classes))
        write_frame(path, data.items.assign(label=label), data.fingerprint)

    def items(self, fingerprint: str) -> pd.DataFrame:
        """The images behind this fingerprint: image_id, label, split and annotations. Raises DamagedFile."""
        path = self.outputs / "items" / f"{fingerprint}.parquet"
        if Path(fingerprint).name != fingerprint:
            raise DamagedFile(path, "leads out of items/, by the fingerprint in a row")

        file_identity = None
        if path.is_file():
            stat = path.stat()
            file_identity = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return _cached_items(path, file_identity).copy(deep=False)

    def columns(self) -> tuple[Column, ...]:
        """The columns of all rows and tables: those that every row shares, and those that stored schemas declare."""
        return tuple(dict.fromkeys((*BASE, *known_columns(self.outputs))))

    def columns_of_table(self, about: Mapping[str, Any]) -> tuple[Column, ...]:
        """The columns of a saved table, of which `about` is table.json; none where it names no schema that is whole."""
        schema = about.get(SCHEMA)
        with if_whole():  # the table itself is there
            return read_schema(self.outputs, schema) if isinstance(schema, str) else ()
        return ()

    def saved_tables(self) -> dict[str, dict[str, Any]]:
        """Id -> name, parameters, runs and so on of every saved table whose description is intact."""
        described = {}
        for path in sorted((self.outputs / "tables").glob("*/table.json")):
            with if_whole():
                described[path.parent.name] = read_object(path, name=str, parameters=dict, runs=list)
        return described

    def saved_lines(self, table_id: str, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The lines of a saved table. Raises DamagedFile for one that is not as it was written, or lacks a column.

        columns: those to read; None: all.
        """
        path = self.outputs / "tables" / table_id / "table.parquet"
        frame = read_frame(path, table_id)
        names = list(frame.columns.astype(str) if columns is None else columns)
        missing_names = [name for name in names if name not in frame]
        if missing_names:
            raise DamagedFile(path, f"has no column {', '.join(missing_names)}: save it again")
        return frame[names]

    def save(self, table: Table) -> Path:
        """Save an analysis' table under an id of its name, its parameters and the runs it read; returns its folder."""
        identity = {
            "name": table.name,
            "parameters": dict(table.parameters),
            "runs": sorted(table.runs),
        }
        table_id = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]

        folder = self.outputs / "tables" / table_id
        write_frame(folder / "table.parquet", table.frame, table_id)
        write_text(folder / "table.csv", csv_text(table.frame))
        description = {
            **identity,
            "question": table.question,
            "source": table.source,
            SCHEMA: keep_schema(self.outputs, table.columns),
        }
        write_json(folder / "table.json", description)
        return folder


@lru_cache(maxsize=4)  # every predict row of a data set asks for its images
def _cached_items(path: Path, _: tuple[int, int, int] | None) -> pd.DataFrame:
    """A list of images, read again only if size, time or inode of its file change."""
    items = read_frame(path, path.stem)
    has_columns = {"image_id", "label", "split"} <= set(items)
    if not has_columns or not isinstance(items["label"].dtype, pd.CategoricalDtype):
        raise DamagedFile(path, "is no list of images")
    return items


def results(outputs: str | Path = "outputs", query: str | None = None, columns: Iterable[str] = ()) -> pd.DataFrame:
    """One line per finished run: the columns that all tasks share (fca/store/columns.py), then those of some tasks.

    outputs: the store's folder.    query: on the columns, e.g. "task == 'train' and ncl <= 5"; see `fca.store.query`.
    columns: further ones, which are missing everywhere if no row has them.
    A value that a run does not have is missing, never 0. Raises FcaError for a query that cannot be read.

    >>> results("no/such/folder").empty
    True
    """
    frame = read_rows(Path(outputs))
    absent_names = [name for name in dict.fromkeys(columns) if name not in frame]
    if absent_names:
        frame = frame.reindex(columns=[*frame.columns, *absent_names])
    if query is None:
        return frame
    return rows_matching(frame, query).reset_index(drop=True)
