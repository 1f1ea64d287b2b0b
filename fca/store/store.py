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
    INTERRUPTED = "interrupted"  # by its error record it was killed or lacked resources
    RUNNING = "running"  # a live worker holds its claim
    ABSENT = "absent"


ENDED_EARLY = (State.FAILED, State.INTERRUPTED)
"""States of runs that ended without a row and left a record of the reason."""

SETTLED = (State.DONE, *ENDED_EARLY)
"""States of runs that the same command does not repeat; the next command repeats interrupted runs."""


class ClaimLost(Exception):
    """Another worker took this run over, because this one was silent for too long; its result is not written."""


def no_images(_: str) -> None:
    """For `Store.images`, where no data set is at hand: None for every fingerprint."""


@dataclass(frozen=True)
class Store:
    """All results, as files in the folder `outputs`: runs/, items/, tables/, cache/ and reports/.

    left_out: damaged files; `rows` leaves out the runs that need them, see `without`.
    images:   returns the data set with a fingerprint, for the pictures of a page; None if its images are not at hand.
    """

    outputs: Path
    left_out: tuple[DamagedFile, ...] = ()
    images: Callable[[str], ImageData | None] = field(default=no_images, compare=False, repr=False)

    def folder(self, run_id: str) -> Path:
        """The folder of a run, which need not exist.

        Raises FcaError for an id that leads out of runs/, because ids may come from a row that a stranger wrote.
        """
        if run_id in ("", "..") or Path(run_id).name != run_id:
            raise FcaError("run_id", run_id, "the name of a folder in runs/", "list them: fca results")
        return self.outputs / "runs" / run_id

    def run_ids(self) -> list[str]:
        """The ids of all runs that were begun, sorted; empty if there is no store."""
        folder = self.outputs / "runs"
        if not folder.is_dir():
            return []
        return sorted(path.name for path in folder.iterdir() if damage.is_run_id(path.name))

    def state(self, run_id: str) -> State:
        """Whether a run is done, running, failed and so on at this moment."""
        return self.state_and_damage(run_id)[0]

    def problem(self, run_id: str) -> DamagedFile | None:
        """The first damaged file of a finished or failed run; None for an intact run, and for one of another state."""
        return self.state_and_damage(run_id)[1]

    def state_and_damage(self, run_id: str) -> tuple[State, DamagedFile | None]:
        """The state of a run, and its first damaged file or None. One check of the folder shows both.

        A damaged run that a worker is repeating is RUNNING, with its damage.
        """
        folder = self.folder(run_id)
        try:
            damaged = damage.problem_of(folder)
            state = State.DONE if damaged is None else State.DAMAGED
        except FileNotFoundError:
            state, damaged = self._state_without_row(run_id)

        # a worker keeps its claim for a moment after it has finished a run, so a finished run is DONE nevertheless
        if state is not State.DONE and claims.is_held(folder):
            return State.RUNNING, damaged
        return state, damaged

    def _state_without_row(self, run_id: str) -> tuple[State, DamagedFile | None]:
        """The state of a run without a row, that is without a result, by its error record.

        The second value is the damage of that record, or None if it is intact.
        """
        try:
            error = self.error(run_id)
        except FileNotFoundError:
            return State.ABSENT, None
        except DamagedFile as damaged:
            return State.DAMAGED, damaged
        return (State.INTERRUPTED if was_interrupted(error) else State.FAILED), None

    def damaged(self) -> list[DamagedFile]:
        """All damage in the store: the first damaged file of each run, then damaged lists of images (see `items`)."""
        problems = [self.problem(run_id) for run_id in self.run_ids()]
        damaged_runs = [problem for problem in problems if problem is not None]
        return damaged_runs + self.damaged_items()

    def damaged_items(self) -> list[DamagedFile]:
        """The damaged files among the lists of images (see `items`) to which finished runs refer."""
        damaged_lists = []
        for fingerprint in self.rows()["fingerprint"].dropna().unique():
            try:
                self.items(fingerprint)
            except DamagedFile as damaged:
                damaged_lists.append(damaged)
        return damaged_lists

    def without(self, damaged: DamagedFile) -> Store:
        """This store without the runs that need a damaged file, for a reader that found the file to be damaged.

        Two DamagedFiles with the same path and problem (`args`) count as one. The first call also looks for all other
        damage, so that the reader need not start again for each damaged file. The log names the files. Raises
        `damaged` itself if the file is left out already, because the reader would find it again and again.
        """
        if damaged.args in [file.args for file in self.left_out]:
            raise damaged

        damaged_files = [damaged]
        if not self.left_out:  # the first call
            damaged_files += self.damaged()
        unique_files = {file.args: file for file in damaged_files}.values()
        damage.warn(list(unique_files))
        return replace(self, left_out=(*self.left_out, *unique_files))

    def row(self, run_id: str) -> Row:
        """The row of a finished run. Raises FcaError if there is no such run, DamagedFile if its row is damaged."""
        try:
            return row_of(self.folder(run_id))
        except FileNotFoundError:
            raise FcaError("run_id", run_id, f"a finished run in {self.outputs}", "list them: fca results") from None

    def row_if_whole(self, run_id: str) -> Row | None:
        """The row of a finished run; None if there is no such run, or its row is damaged."""
        with suppress(FcaError, DamagedFile):
            return self.row(run_id)
        return None

    def has_diverged(self, run_id: str) -> bool:
        """Whether a finished run is a training that diverged."""
        row = self.row_if_whole(run_id)
        return row is not None and row.get(FLAG) == DIVERGED

    def rows(self, query: str | None = None) -> pd.DataFrame:
        """One line for each finished run that needs no file in `left_out`; see `fca.store.results` for the columns.

        query: keeps the lines for which it is true; None: all. Raises FcaError for one that cannot be read.
        """
        frame = results(self.outputs, query)
        if not self.left_out:
            return frame

        # A damaged file is in the folder of its run, or is a list of images whose name is the fingerprint
        names = {file.path.stem for file in self.left_out} | {file.path.parent.name for file in self.left_out}
        is_left_out = frame["run_id"].isin(names) | frame["fingerprint"].isin(names)
        return frame[~is_left_out].reset_index(drop=True)

    def has_array(self, run_id: str, name: str) -> bool:
        """Whether a finished run stored an array of this name."""
        return f"{name}.npy" in damage.read_row(self.folder(run_id)).files

    def array(self, run_id: str, name: str, lines: int | None = None) -> np.ndarray:
        """An array that a run stored, memory-mapped.

        lines: the length that it must have; None: any.
        Raises DamagedFile for an array that is missing, altered or of another length; a note of it is left in the run's
        folder, so that the next check of the run looks at all of its files.
        """
        path = self.folder(run_id) / f"{name}.npy"
        with damage.noting():
            damage.compare(path)
            array = read_array(path)
            if lines not in (None, len(array)):
                raise DamagedFile(path, f"has {len(array):,} lines for {lines:,} images")
        return array

    def write(self, row: Mapping[str, Any], arrays: Arrays, token: str, columns: Iterable[Column] = ()) -> Row:
        """Store the result of a run, which is then done; returns its row as it was stored.

        row:     column -> value, with `run_id`.
        arrays:  name -> array.
        token:   the token of the claim under which the run was computed.
        columns: the columns that the run's task declares in addition to the columns that all rows share.
        Raises ClaimLost, and stores no row, if another worker holds the claim by now; ValueError for a value that its
        column does not allow.
        """
        task_columns = tuple(columns)
        row = checked(row, task_columns)
        folder = self.folder(row["run_id"])
        for name, array in arrays.items():
            write_array(folder / f"{name}.npy", array)

        # The row comes last: where there is one, the run is complete
        schema_id = keep_schema(self.outputs, task_columns)
        row_content = damage.listing(folder, row, schema_id)
        if not claims.is_mine(folder, token):
            raise ClaimLost(f"run {row['run_id']} was taken over by another worker")
        write_whole(folder / ROW, lambda file: file.write(row_content))

        for name in (ERROR, NOTE, REMOVED):  # records of earlier attempts
            remove(folder / name)
        return row

    def weights(self, run_id: str) -> list[Path]:
        """The files of weights of a training of a whole network: of its best epoch, and its snapshots.

        Empty for a run that trained a single layer: such weights are small, and analyses read them, so that they are
        never removed.
        """
        folder = self.folder(run_id)
        if not (folder / FITTED).exists():
            return []
        return sorted(folder.glob("*.safetensors"))

    def remove_weights(self, run_id: str, paths: Iterable[Path], why: str) -> None:
        """Remove weights of a finished run on purpose.

        A record with the reason is written first. Because of this record, the missing files do not count as damage.

        paths: the files.
        why:   the reason.
        """
        names = [path.name for path in paths]
        if not names:
            return

        folder = self.folder(run_id)
        removed_names = {*damage.removed(folder), *names}
        write_json(folder / REMOVED, {"files": sorted(removed_names), "why": why})
        for name in names:
            remove(folder / name)

    def fail(self, run_id: str, error: Mapping[str, Any]) -> None:
        """Write the record of a run that failed or was interrupted.

        error: `error` (the message), and where known `traceback`, `command` (repeats the run), `interrupted` and so on.
        """
        write_json(self.folder(run_id) / ERROR, dict(error))

    def forgive(self, run_id: str) -> None:
        """Remove the record of a run that failed or was interrupted, so that the next command does it again."""
        remove(self.folder(run_id) / ERROR)

    def clear(self, run_id: str) -> None:
        """Prepare the folder of a run so that it can be done again; only for the holder of the run's claim.

        Folders, pipes and broken links in the place of the run's files are removed. If the run is damaged, its row and
        its records (of errors, damage and removed files) are removed. If the damage is in an array or weights, all
        arrays and weights are removed, too; otherwise they stay, because the work may resume from them.
        """
        damaged = self.problem(run_id)
        folder = self.folder(run_id)
        paths = list(folder.iterdir())
        paths_of_run = [path for path in paths if damage.is_ours(path.name)]  # names that a run may write
        make_way(*paths_of_run)  # removes what is no regular file
        if damaged is None:
            return

        paths_to_remove = [folder / name for name in (ROW, ERROR, NOTE, REMOVED)]
        is_in_array_or_weights = damaged.path not in paths_to_remove
        if is_in_array_or_weights:
            paths_to_remove += [path for path in paths if damage.is_listed(path.name)]
        for path in paths_to_remove:
            remove(path)

    def drop(self, run_id: str) -> None:
        """Remove the folder of a run that was refused before it computed anything.

        A folder stays if it has a row, or a file from which the work can resume. If no other run is stored, the store's
        folder is removed, too.
        """
        folder = self.folder(run_id)
        result_names = (ROW, "last.ckpt", "best.safetensors", "journal.jsonl")
        if any((folder / name).exists() for name in result_names):
            return

        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):  # a folder that is not empty, as there are other runs
            folder.parent.rmdir()
            self.outputs.rmdir()

    def error(self, run_id: str) -> dict[str, Any]:
        """The record of a failed or interrupted run, as `fail` wrote it.

        Raises DamagedFile for a file that is no record of this run, FileNotFoundError if there is none.
        """
        path = self.folder(run_id) / ERROR
        error = read_object(path, error=str)
        if error.get("run_id", run_id) != run_id:
            raise DamagedFile(path, f"is of run {error['run_id']!s:.40}")
        return error

    def keep_items(self, data: ImageData) -> None:
        """Store the list of images of a data set (see `items`), unless it is stored already and intact.

        The lines of a run's arrays are in the order of this list. The label is categorical; its categories are the
        class keys in the order of the classes.
        """
        path = self.outputs / "items" / f"{data.fingerprint}.parquet"
        with if_whole():
            if not damage.was_whole(path):  # not checked by this process yet
                stored_ids = self.items(data.fingerprint)["image_id"].tolist()
                if stored_ids != data.items["image_id"].tolist():
                    raise DamagedFile(path, "lists other images")
                damage.remember(path)
            return

        # Only reached if the list is missing or damaged: then `if_whole` has ended its block before the return
        remove(path)
        remove_parts(path.parent)
        label = pd.Categorical(data.items["label"], categories=list(data.classes))
        write_frame(path, data.items.assign(label=label), data.fingerprint)

    def items(self, fingerprint: str) -> pd.DataFrame:
        """The list of images of the data set with this fingerprint: columns image_id, label, split and annotations.

        The list is cached until its file changes.
        Raises DamagedFile for a list that is missing or damaged, and for a fingerprint that leads out of items/.
        """
        path = self.outputs / "items" / f"{fingerprint}.parquet"
        if Path(fingerprint).name != fingerprint:
            raise DamagedFile(path, "leads out of items/, by the fingerprint in a row")

        file_identity = None  # part of the cache's key, so that a changed file is read again
        if path.is_file():
            stat = path.stat()
            file_identity = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return _cached_items(path, file_identity).copy(deep=False)  # columns that a caller adds stay out of the cache

    def columns(self) -> tuple[Column, ...]:
        """The declared columns of all rows and tables: those that all rows share, then those of the stored schemas."""
        return tuple(dict.fromkeys((*BASE, *known_columns(self.outputs))))  # each name once

    def columns_of_table(self, about: Mapping[str, Any]) -> tuple[Column, ...]:
        """The columns of a saved table with their declared meanings; empty if its schema is missing or damaged.

        about: the content of its table.json, which has the id of the schema.
        """
        schema = about.get(SCHEMA)
        with if_whole():  # the table can be shown without the meanings of its columns
            return read_schema(self.outputs, schema) if isinstance(schema, str) else ()
        return ()

    def saved_tables(self) -> dict[str, dict[str, Any]]:
        """Id of every saved table -> its description: name, parameters, runs, question, source and schema.

        Tables whose description is damaged are left out.
        """
        described = {}
        for path in sorted((self.outputs / "tables").glob("*/table.json")):
            with if_whole():
                described[path.parent.name] = read_object(path, name=str, parameters=dict, runs=list)
        return described

    def saved_lines(self, table_id: str, columns: Iterable[str] | None = None) -> pd.DataFrame:
        """The lines of a saved table.

        columns: those to return; None: all.
        Raises DamagedFile for a table that is missing, was altered, or lacks one of these columns.
        """
        path = self.outputs / "tables" / table_id / "table.parquet"
        frame = read_frame(path, table_id)
        names = list(frame.columns.astype(str) if columns is None else columns)
        missing_names = [name for name in names if name not in frame]
        if missing_names:
            raise DamagedFile(path, f"has no column {', '.join(missing_names)}: save it again")
        return frame[names]

    def save(self, table: Table) -> Path:
        """Save the table of an analysis, as Parquet and CSV with a description beside them; returns its folder.

        Its id, which names the folder, is a hash of its name, its parameters and the runs that it read. A table with
        the same three replaces an earlier one.
        """
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
    """The list of images in a file, with the columns image_id, label, split and annotations.

    The second argument (size, time and inode of the file) is part of the cache's key: a changed file is read again.
    Raises DamagedFile for a file that is missing, damaged or no list of images.
    """
    items = read_frame(path, path.stem)
    has_columns = {"image_id", "label", "split"} <= set(items)
    if not has_columns or not isinstance(items["label"].dtype, pd.CategoricalDtype):
        raise DamagedFile(path, "is no list of images")
    return items


def results(outputs: str | Path = "outputs", query: str | None = None, columns: Iterable[str] = ()) -> pd.DataFrame:
    """One line for each finished run: the columns that all tasks share (fca/store/columns.py), then those of some.

    outputs: the store's folder; without one the frame is empty.
    query:   keeps the lines for which it is true, e.g. "task == 'train' and ncl <= 5" (see `fca.store.query`).
    columns: further columns that the frame must have; they have no value if no run has them.
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
