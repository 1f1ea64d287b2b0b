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

RUNS_PER_PROCESS = 500  # runs that one process of W&B's is given
MAX_FAILED_ROUNDS = 5  # rounds in a row in which no run was sent; then the rest is left for the next sync
STALL_S = 300.0  # without a run sent, after which W&B's process is ended: it tries for hours without a server
POLL_S = 0.5  # between two looks at what was sent
FIRST_WAIT_S, MAX_WAIT_S = 2.0, 60.0  # before the next round; doubled after each failed one
LOG = "sync.log"


def missing(tracker: WandbTracker) -> list[Entry]:
    """The entries with a row that was never written to W&B's files, each also with its rows that were written before.

    An entry is a run in W&B. It shows one or more rows, which are the stored results of fca's runs. W&B's files are in
    the store, whether or not they were sent to the server.
    """
    finished_by_run: dict[str, str] = {}  # run_id -> when the run finished, for all rows that were written to W&B
    for record in Path(tracker.dir, "wandb", "entries").glob("*.json"):
        finished_by_run.update(tracker.recorded_rows(record.stem))

    stored_rows = tracker.store.rows()[["run_id", "finished"]].fillna("")
    unwritten_rows_by_entry: dict[str, list[Row]] = {}
    for run_id, finished in stored_rows.itertuples(index=False):
        if finished_by_run.get(run_id) == finished:  # a run that was repeated has a later time
            continue
        row = tracker.store.row_if_whole(run_id)
        if row is not None:
            unwritten_rows_by_entry.setdefault(entry_id(row, tracker.store), []).append(row)
    # `entry` adds the rows that were written before
    return [tracker.entry(identity, rows) for identity, rows in unwritten_rows_by_entry.items()]


def unsent(tracker: WandbTracker) -> list[Path]:
    """Folders of the runs that W&B's server lacks, oldest first. Runs that a worker is still doing are left out."""
    run_folders = Path(tracker.dir, "wandb").glob("*run-*-*")
    unsent_folders = []
    for folder in sorted(run_folders, key=lambda path: path.name.partition("run-")[2]):  # the name has the time
        if folder.is_symlink():  # `latest-run`, a link that W&B keeps to the latest folder
            continue
        for file in folder.glob("run-*.wandb"):
            run_id = file.stem.removeprefix("run-")
            is_in_progress = claims.is_held(tracker.store.folder(run_id))
            is_sent = file.with_suffix(SYNCED).exists()
            if not is_sent and not is_in_progress:
                unsent_folders.append(folder)
    return unsent_folders


def send(folders: Sequence[Path], workers: int, log: Path, report_sent: Callable[[int], None]) -> list[Path]:
    """Send the folders of runs by `wandb sync`; returns the folders that were not sent.

    W&B's process handles a busy server itself: after a status of 429 it waits as long as the server asks, after other
    failures ever longer. Folders that are left after a round are tried again, until MAX_FAILED_ROUNDS rounds in a row
    sent nothing.

    workers:     how many runs are sent at once; the files of one run are sent one after another.
    log:         the file to which W&B's own messages go.
    report_sent: called with the number of runs sent so far, for a progress bar.
    """
    unsent_folders = list(folders)
    failed_rounds = 0
    while unsent_folders and failed_rounds < MAX_FAILED_ROUNDS:
        for start in range(0, len(unsent_folders), RUNS_PER_PROCESS):
            sent_before = len(folders) - len(_without_mark(folders))  # W&B marks the file of a run that it has sent

            def report_total(sent_by_process: int, sent_before: int = sent_before) -> None:
                """Report the number sent so far by all processes; the default binds this turn's `sent_before`."""
                report_sent(sent_before + sent_by_process)

            _send_once(unsent_folders[start : start + RUNS_PER_PROCESS], workers, log, report_total)

        still_unsent = _without_mark(folders)
        has_failed = len(still_unsent) == len(unsent_folders)
        failed_rounds = failed_rounds + 1 if has_failed else 0
        unsent_folders = still_unsent
        if unsent_folders and failed_rounds < MAX_FAILED_ROUNDS:
            time.sleep(min(MAX_WAIT_S, FIRST_WAIT_S * 2**failed_rounds))
    return unsent_folders


def _send_once(folders: Sequence[Path], workers: int, log: Path, report_sent: Callable[[int], None]) -> None:
    """Send runs by one process of W&B's, which is ended when it has sent no run for STALL_S seconds.

    The process works in an empty folder. In the current folder it would import a file wandb.py instead of W&B, and read
    from a file `wandb/settings` the address of the server to which it sends the API key. A stranger may have put both
    into a folder of images or a store.

    folders:     the folders of the runs, as W&B wrote them.
    workers:     how many are sent at once.
    log:         the file to which the process writes its messages.
    report_sent: called with the number of these runs sent so far.
    """
    paths = [str(folder.resolve()) for folder in folders]  # absolute, as the process works elsewhere
    # --include-online: also runs that were begun online, but which the server did not take in time
    command = [sys.executable, "-P", "-m", "wandb", "sync", "--include-online", "-n", str(workers), *paths]

    # WANDB_MODE could forbid sending, and WANDB_SERVICE names the W&B process of this program: both are left out
    environment = {name: value for name, value in os.environ.items() if name not in ("WANDB_MODE", "WANDB_SERVICE")}
    for name, value in environment.items():
        if name.startswith("WANDB_") and name.endswith("_DIR"):
            environment[name] = str(Path(value).resolve())  # the process works elsewhere
    environment |= {
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_SILENT": "false",
        "WANDB_DIR": str(log.parent.parent.resolve()),  # the log is in WANDB_DIR/wandb
    }

    with tempfile.TemporaryDirectory(prefix="fca-sync-") as empty_folder:
        with open_to_append(log) as file:
            process = subprocess.Popen(command, cwd=empty_folder, env=environment, stdout=file, stderr=file)  # noqa: S603
        try:
            n_unsent = len(_without_mark(folders))  # W&B marks the file of a run that it has sent
            last_progress = time.monotonic()
            while process.poll() is None and time.monotonic() - last_progress < STALL_S:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_S)
                n_unsent_now = len(_without_mark(folders))
                if n_unsent_now != n_unsent:
                    n_unsent = n_unsent_now
                    last_progress = time.monotonic()
                    report_sent(len(folders) - n_unsent)
        finally:
            process.terminate()
            process.wait()


def _without_mark(folders: Sequence[Path]) -> list[Path]:
    """The folders in which W&B has not marked the run as sent."""
    return [folder for folder in folders if not any(folder.glob(f"*{SYNCED}"))]
