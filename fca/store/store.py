"""The store: everything that was computed, as files. A row that exists is a run that is done.

What is damaged (fca/store/damage.py) is never read: a run is then to be done again, a reader leaves it out.
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
    """Where a run stands: its row exists, and its files are whole; they are not; its error exists; a record exists that
    it was killed or starved; a live worker holds it; none of these."""

    DONE = "done"
    DAMAGED = "damaged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    RUNNING = "running"
    ABSENT = "absent"


ENDED_EARLY = (State.FAILED, State.INTERRUPTED)
"""Ended without a row, with a record of the reason."""

SETTLED = (State.DONE, *ENDED_EARLY)
"""What a command does not try again within itself; the next command forgets interruptions."""


class ClaimLost(Exception):
    """Another worker took this run over (this one was silent for too long); its result is not written."""


def no_images(_: str) -> None:
    """The images of a store that knows none."""


@dataclass(frozen=True)
class Store:
    """The folder `outputs`: runs/, items/, tables/, cache/ and reports/.

    images: fingerprint -> the data set, if its images are at hand: for the few pictures of a page.
    """

    outputs: Path
    left_out: tuple[DamagedFile, ...] = ()  # what `rows` leaves out, see `without`
    images: Callable[[str], ImageData | None] = field(default=no_images, compare=False, repr=False)

    def folder(self, run_id: str) -> Path:
        """Where a run's files lie. Raises FcaError for an id that would lead elsewhere: rows may be somebody else's."""
        if run_id in ("", "..") or Path(run_id).name != run_id:
            raise FcaError("run_id", run_id, "the name of a folder in runs/", "list them: fca results")
        return self.outputs / "runs" / run_id

    def run_ids(self) -> list[str]:
        """All runs that were begun; other files are ignored."""
        folder = self.outputs / "runs"
        return sorted(path.name for path in folder.iterdir() if damage.is_run_id(path.name)) if folder.is_dir() else []

    def state(self, run_id: str) -> State:
        """Where a run stands now."""
        return self.state_and_damage(run_id)[0]

    def problem(self, run_id: str) -> DamagedFile | None:
        """What is wrong with the files of a finished or failed run; None if nothing is, and for one that is neither."""
        return self.state_and_damage(run_id)[1]

    def state_and_damage(self, run_id: str) -> tuple[State, DamagedFile | None]:
        """Both at once."""
        folder = self.folder(run_id)
        found, damaged = State.ABSENT, None
        try:
            damaged = damage.problem_of(folder)
            if damaged is None:
                return State.DONE, None
        except FileNotFoundError:
            try:
                found = State.INTERRUPTED if was_interrupted(self.error(run_id)) else State.FAILED
            except FileNotFoundError:
                pass
            except DamagedFile as unreadable:
                damaged = unreadable
        if claims.is_held(folder):
            return State.RUNNING, damaged
        return (found if damaged is None else State.DAMAGED), damaged

    def damaged(self) -> list[DamagedFile]:
        """The damaged runs, each by its first damaged file, and the damaged items tables of the others."""
        return [damaged for run_id in self.run_ids() if (damaged := self.problem(run_id))] + self.damaged_items()

    def damaged_items(self) -> list[DamagedFile]:
        """The items tables that are damaged, of those that finished runs need."""
        found = []
        for fingerprint in self.rows()["fingerprint"].dropna().unique():
            try:
                self.items(fingerprint)
            except DamagedFile as damaged:
                found.append(damaged)
        return found

    def without(self, damaged: DamagedFile) -> Store:
        """This store as a reader sees it that leaves out the runs that need a damaged file, and all others like it.

        Raises the damage itself if it is left out already, or is of no run.
        """
        if damaged.args in [known.args for known in self.left_out]:
            raise damaged
        known = {other.args: other for other in (damaged, *(() if self.left_out else self.damaged()))}
        damage.warn(list(known.values()))
        return replace(self, left_out=(*self.left_out, *known.values()))

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
        """One line per finished run, but for those left out; see `results`."""
        frame = results(self.outputs, query)
        if not self.left_out:
            return frame
        keys = {name for known in self.left_out for name in (known.path.stem, known.path.parent.name)}
        return frame[~(frame["run_id"].isin(keys) | frame["fingerprint"].isin(keys))].reset_index(drop=True)

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
        own_columns = tuple(columns)
        row = checked(row, own_columns)
        folder = self.folder(row["run_id"])
        for name, array in arrays.items():
            write_array(folder / f"{name}.npy", array)
        content = damage.listing(folder, row, keep_schema(self.outputs, own_columns))
        if not claims.is_mine(folder, token):
            raise ClaimLost(f"run {row['run_id']} was taken over by another worker")
        write_whole(folder / ROW, lambda file: file.write(content))
        for name in (ERROR, NOTE, REMOVED):
            remove(folder / name)
        return row

    def weights(self, run_id: str) -> list[Path]:
        """The weights that a training of a whole network left: of its best epoch, and snapshots.

        Those of a single layer are few bytes, which analyses read; they are none of these.
        """
        folder = self.folder(run_id)
        return sorted(folder.glob("*.safetensors")) if (folder / FITTED).exists() else []

    def remove_weights(self, run_id: str, paths: Iterable[Path], why: str) -> None:
        """Remove weights of a finished run, which stays whole: a record of them is written first."""
        names = [path.name for path in paths]
        if names:
            known = damage.removed(self.folder(run_id))
            write_json(self.folder(run_id) / REMOVED, {"files": sorted({*known, *names}), "why": why})
        for name in names:
            remove(self.folder(run_id) / name)

    def fail(self, run_id: str, error: Mapping[str, Any]) -> None:
        """Record why a run failed, or was `interrupted`: message, traceback and the command that repeats it."""
        write_json(self.folder(run_id) / ERROR, dict(error))

    def forgive(self, run_id: str) -> None:
        """Forget that a run failed or was interrupted, so that it is done again."""
        remove(self.folder(run_id) / ERROR)

    def clear(self, run_id: str) -> None:
        """Remove what is damaged of a run, and what its row lists with it, so that it is done again from nothing; and
        what is no file in the place of one.

        Only for who holds the run's claim. A damaged row alone leaves arrays and weights: the work may go on from them.
        """
        damaged, folder = self.problem(run_id), self.folder(run_id)
        paths = list(folder.iterdir())
        make_way(*(path for path in paths if damage.is_ours(path.name)))
        if damaged is None:
            return
        doomed = [folder / name for name in (ROW, ERROR, NOTE, REMOVED)]
        if damaged.path not in doomed:
            doomed += [path for path in paths if damage.is_listed(path.name)]
        for path in doomed:
            remove(path)

    def drop(self, run_id: str) -> None:
        """Remove the folder of a run that was refused before it computed anything; weights, results and others stay."""
        folder = self.folder(run_id)
        if not any((folder / name).exists() for name in (ROW, "last.ckpt", "best.safetensors", "journal.jsonl")):
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(OSError):  # not empty: there are other runs
                folder.parent.rmdir()
                self.outputs.rmdir()

    def error(self, run_id: str) -> dict[str, Any]:
        """The record of a failed or interrupted run.

        Raises DamagedFile for what is none; FileNotFoundError where nothing is.
        """
        path = self.folder(run_id) / ERROR
        error = read_object(path, error=str)
        if error.get("run_id", run_id) != run_id:
            raise DamagedFile(path, f"is of run {error['run_id']!s:.40}")
        return error

    def keep_items(self, data: ImageData) -> None:
        """Write the list of images, if it is not there and whole; rows of every array follow its order.

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
        stat = path.stat() if path.is_file() else None
        return _items(path, stat and (stat.st_size, stat.st_mtime_ns, stat.st_ino)).copy(deep=False)

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
        """Id -> name, parameters, runs and so on of every saved table; one whose description is damaged is none."""
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
        wanted = list(frame.columns.astype(str) if columns is None else columns)
        if lacking := [name for name in wanted if name not in frame]:
            raise DamagedFile(path, f"has no column {', '.join(lacking)}: save it again")
        return frame[wanted]

    def save(self, table: Table) -> Path:
        """Save an analysis' table under an id of its name, its parameters and the runs it read; returns its folder."""
        meaning = {"name": table.name, "parameters": dict(table.parameters), "runs": sorted(table.runs)}
        table_id = hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()[:12]
        folder = self.outputs / "tables" / table_id
        write_frame(folder / "table.parquet", table.frame, table_id)
        write_text(folder / "table.csv", csv_text(table.frame))
        about = {"question": table.question, "source": table.source}
        write_json(folder / "table.json", {**meaning, **about, SCHEMA: keep_schema(self.outputs, table.columns)})
        return folder


@lru_cache(maxsize=4)  # every predict row of a data set asks for its images
def _items(path: Path, _: tuple[int, int, int] | None) -> pd.DataFrame:
    """A list of images, read once while size, time and inode of its file stay."""
    items = read_frame(path, path.stem)
    whole = {"image_id", "label", "split"} <= set(items)
    if not whole or not isinstance(items["label"].dtype, pd.CategoricalDtype):
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
    if absent := [name for name in dict.fromkeys(columns) if name not in frame]:
        frame = frame.reindex(columns=[*frame.columns, *absent])
    return frame if query is None else rows_matching(frame, query).reset_index(drop=True)
