"""What W&B's server lacks of a store: entries are written from the rows, then W&B's own uploader sends all files.

What was sent is remembered by W&B's mark beside each file, and what was written by a record for each entry; so a sync
that is killed goes on, and one that has nothing to do sends nothing.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from fca.report.tracking.entries import Entry, entry_id
from fca.report.tracking.runs import SYNCED, WandbTracker
from fca.store import claims
from fca.store.columns import Row
from fca.store.files import open_to_append

AT_ONCE = 500  # runs that one process of W&B's is given
ROUNDS = 5  # without a single run sent, then the rest is left
STALL_S = 300.0  # without a run sent: W&B's process tries for hours where a server does not answer
POLL_S, WAIT_S, MOST_S = 0.5, 2.0, 60.0
LOG = "sync.log"


def missing(tracker: WandbTracker) -> list[Entry]:
    """The entries of which some row was never written to a file of W&B's, each with all of its rows."""
    finished_by_run: dict[str, str] = {}  # as it was written
    for record in Path(tracker.dir, "wandb", "entries").glob("*.json"):
        finished_by_run.update(tracker.held(record.stem))

    stored_rows = tracker.store.rows()[["run_id", "finished"]].fillna("")
    rows_by_entry: dict[str, list[Row]] = {}
    for run_id, finished in stored_rows.itertuples(index=False):
        if finished_by_run.get(run_id) == finished:
            continue
        row = tracker.store.row_if_whole(run_id)
        if row is not None:
            rows_by_entry.setdefault(entry_id(row, tracker.store), []).append(row)
    return [tracker.entry(identity, rows) for identity, rows in rows_by_entry.items()]


def unsent(tracker: WandbTracker) -> list[Path]:
    """Folders of runs that W&B's server lacks, oldest first, without those of runs that are still being worked on."""
    run_folders = Path(tracker.dir, "wandb").glob("*run-*-*")
    unsent_folders = []
    for folder in sorted(run_folders, key=lambda path: path.name.partition("run-")[2]):
        if folder.is_symlink():
            continue
        for file in folder.glob("run-*.wandb"):
            run_id = file.stem.removeprefix("run-")
            is_in_progress = claims.is_held(tracker.store.folder(run_id))
            if not file.with_suffix(SYNCED).exists() and not is_in_progress:
                unsent_folders.append(folder)
    return unsent_folders


def send(folders: Sequence[Path], workers: int, log: Path, shown: Callable[[int], None]) -> list[Path]:
    """Send runs by `wandb sync`, so many at a time; returns those that were not sent.

    One process sends all: when the server answers 429 it waits as long as that asks, else ever longer. Files of one run
    go one after another. What is left after a round is tried again, until nothing more is sent.
    log: where W&B's own messages go.    shown: called with the number of runs sent.
    """
    left, barren = list(folders), 0
    while left and barren < ROUNDS:
        before = len(left)
        for start in range(0, before, AT_ONCE):
            sent = len(folders) - before + start - len(_left(left[:start]))

            def add(more: int, sent: int = sent) -> None:
                shown(sent + more)

            _send_once(left[start : start + AT_ONCE], workers, log, add)
        left = _left(folders)
        barren = barren + 1 if len(left) == before else 0
        if left and barren < ROUNDS:
            time.sleep(min(MOST_S, WAIT_S * 2**barren))
    return left


def _send_once(folders: Sequence[Path], workers: int, log: Path, shown: Callable[[int], None]) -> None:
    """Send runs by a process of W&B's, which works in an empty folder.

    In the current one it would take a wandb.py for W&B, and a `wandb/settings` for whose server is sent the API key.
    Both may have come with a folder of images or a store.
    """
    places = [str(folder.resolve()) for folder in folders]
    command = [sys.executable, "-P", "-m", "wandb", "sync", "--include-online", "-n", str(workers), *places]
    quiet = {"WANDB_ERROR_REPORTING": "false", "WANDB_SILENT": "false", "WANDB_DIR": str(log.parent.parent.resolve())}
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_MODE", "WANDB_SERVICE")}
    for name, value in environment.items():
        if name.startswith("WANDB_") and name.endswith("_DIR"):
            environment[name] = str(Path(value).resolve())

    with tempfile.TemporaryDirectory(prefix="fca-sync-") as empty:
        with open_to_append(log) as file:
            process = subprocess.Popen(command, cwd=empty, env=environment | quiet, stdout=file, stderr=file)  # noqa: S603
        try:
            number, since = len(_left(folders)), time.monotonic()
            while process.poll() is None and time.monotonic() - since < STALL_S:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                if (now := len(_left(folders))) != number:
                    number, since = now, time.monotonic()
                    shown(len(folders) - number)
        finally:
            process.terminate()
            process.wait()


def _left(folders: Sequence[Path]) -> list[Path]:
    return [folder for folder in folders if not any(folder.glob(f"*{SYNCED}"))]
