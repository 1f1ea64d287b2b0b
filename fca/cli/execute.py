"""Do the unfinished runs of a plan: claim them, work, write each row as it comes, record failures."""

from __future__ import annotations

import io
import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

from fca.cli.configure import Job
from fca.cli.notices import console
from fca.cli.version import commit
from fca.progress import EVERY_S, FIRST_S, on_terminal
from fca.store import ENDED_EARLY, SETTLED, ClaimLost, State, Store, claims
from fca.store.columns import DIVERGED, FINGERPRINT, FINGERPRINT_KIND, FLAG
from fca.store.files import DamagedFile, open_to_append, write_text
from fca.store.interruption import is_starved, was_interrupted
from fca.tasks import OnImages
from fca.training import stop
from fca.types import FcaError, Finished, Run, without_password

POLL_S = 1.0
WATCH_PARENT_S = 0.5
PACKAGES = ("fca", "torch", "timm", "pytorch-lightning", "numpy")
log = logging.getLogger(__name__)


class WithoutPasswords(logging.Formatter):
    """Formats lines of the log, also those of libraries, without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """The line without passwords."""
        return without_password(super().format(record))


class EpochFilter:
    """Passes, beside warnings, a line on an epoch every few seconds, where no terminal shows a progress bar."""

    def __init__(self, epochs: bool) -> None:
        self.shows_epochs = epochs and not on_terminal()
        self.last_shown = time.monotonic()
        self.pause_s = FIRST_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show this line."""
        is_epoch = record.getMessage().startswith("epoch ")
        if not (self.shows_epochs and is_epoch):
            return False
        if time.monotonic() - self.last_shown < self.pause_s:
            return False

        self.last_shown = time.monotonic()
        self.pause_s = EVERY_S
        return True


class LogFile(logging.FileHandler):
    """Appends to the log of a run, never through a link; a full disk makes the run fail, not its log."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_to_append(Path(self.baseFilename)), encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  as logging calls it
        """Go on without the line."""


@contextmanager
def logged(path: Path, *, epochs: bool = False) -> Iterator[None]:
    """Append what any library logs or warns in the body to this file; show warnings of ours, and epochs, as well."""
    root_logger = logging.getLogger()
    our_logger = logging.getLogger("fca")
    previous_level = our_logger.level
    our_logger.setLevel(logging.INFO)

    file_handler = LogFile(path, delay=True)
    file_handler.setFormatter(WithoutPasswords("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    file_handler.setLevel(logging.INFO)
    root_logger.addHandler(file_handler)

    console()  # shows warnings
    epoch_handler = logging.StreamHandler()
    epoch_handler.addFilter(EpochFilter(epochs))
    epoch_handler.setFormatter(WithoutPasswords())
    our_logger.addHandler(epoch_handler)

    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root_logger.removeHandler(file_handler)
        our_logger.removeHandler(epoch_handler)
        our_logger.setLevel(previous_level)
        with suppress(OSError):
            file_handler.close()


@cache
def provenance() -> dict[str, str | None]:
    """The columns of a row with the code and machine that made it: host, commit, versions of the packages that matter.

    The commit is that of this checkout, with `-dirty` where files differ from it; None outside a checkout.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    return {"host": socket.gethostname(), "commit": commit(), "versions": versions}


@cache
def end_with_parent() -> None:
    """In a worker of joblib: end soon after the sweep that started it; leave Ctrl-C to the sweep."""
    sweep = multiprocessing.parent_process()
    if sweep is None:
        return

    def end() -> None:
        is_orphan = os.getppid() != sweep.pid
        if is_orphan:  # else the sweep learns from the claim at which run its worker died
            claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == sweep.pid:
            time.sleep(WATCH_PARENT_S)
        end()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: end())
    threading.Thread(target=watch, daemon=True, name="fca-watch").start()


def execute(job: Job, *, alone: bool) -> None:
    """Do the runs of a job that are neither settled nor void (see `void`); damaged runs are done again.

    alone: wait for runs that another worker computes, or take them over when it dies, and raise the user's errors
    without a trace in the store. In a sweep, leave such runs to the other worker, and record every error.
    """
    store = job.setup.store
    done_ids = {run.run_id for run in job.plan if store.state(run.run_id) is State.DONE}
    keep_items(job, done_ids)

    damaged_files: set[str] = set()
    while pending_runs := unfinished(store, job.plan):
        orphans = record_orphans(job, pending_runs)
        with _claimed(pending_runs, store) as tokens:
            claimed_runs = [run for run in pending_runs if run.run_id in tokens]
            try:
                _work(job, claimed_runs, tokens, alone)
            except DamagedFile as damage:  # of a run that these need: the next round does it again first
                file = str(damage)
                if file in damaged_files:  # to no avail, as where nothing may be written
                    for run in claimed_runs:
                        record_failure(job, run, file, None)
                damaged_files.add(file)

        made_progress = claimed_runs or orphans
        if made_progress:
            continue
        if not alone:
            return
        time.sleep(POLL_S)


def unfinished(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs of these that are still to be done, in their order."""
    unsettled_runs = [run for run in runs if store.state(run.run_id) not in SETTLED]
    void_ids = void(store, unsettled_runs)
    return [run for run in unsettled_runs if run.run_id not in void_ids]


def void(store: Store, runs: Iterable[Run]) -> set[str]:
    """Ids of the runs of these that nobody will do: they need the weights of a training that diverged.

    runs: each behind the run that it needs.
    """
    is_useless_by_parent: dict[str, bool] = {}  # it diverged, or is void itself
    void_ids: set[str] = set()
    for run in runs:
        if run.parent is None:
            continue
        if run.parent not in is_useless_by_parent:
            is_useless_by_parent[run.parent] = run.parent in void_ids or store.has_diverged(run.parent)
        if is_useless_by_parent[run.parent]:
            void_ids.add(run.run_id)
    return void_ids


def record_orphans(job: Job, runs: Sequence[Run]) -> list[Run]:
    """Record as failed or interrupted, and return, the runs of these whose parent failed or was interrupted."""
    store = job.setup.store
    orphans = [run for run in runs if run.parent and store.state(run.parent) in ENDED_EARLY]

    for run in orphans:
        record = store.error(str(run.parent))
        interrupted = was_interrupted(record)
        fate = "was interrupted" if interrupted else "failed"
        cause = f"run {run.parent}, which it needs, {fate}: {record['error']}"
        record_failure(job, run, cause, None, interrupted=interrupted)

    return orphans


def keep_items(job: Job, done_ids: set[str]) -> None:
    """Write the lists of images that the done runs of a job need, where a list is missing or damaged."""
    for run in job.plan:
        data = run.work.data if isinstance(run.work, OnImages) else job.setup.data
        if run.run_id in done_ids and data.fingerprint == run.about.get("fingerprint"):
            job.setup.store.keep_items(data)


@contextmanager
def _claimed(runs: Sequence[Run], store: Store) -> Iterator[dict[str, str]]:
    """Claims, run_id -> token, on the runs that are free and whose parent is done or claimed with them."""
    token_by_folder: dict[Path, str] = {}
    with claims.beating(token_by_folder):
        for run in runs:
            parent = run.parent
            is_ready = parent is None or store.folder(parent) in token_by_folder or store.state(parent) is State.DONE
            if not is_ready:
                continue

            folder = store.folder(run.run_id)
            token = claims.acquire(folder)
            if token:
                token_by_folder[folder] = token
                store.clear(run.run_id)
        yield {folder.name: token for folder, token in token_by_folder.items()}


def _work(job: Job, runs: Sequence[Run], tokens: dict[str, str], alone: bool) -> None:
    """Let the task do these runs and write each result; an error is recorded for the run at work."""
    store = job.setup.store
    pending_runs = [run for run in runs if store.state(run.run_id) is not State.DONE]  # done since the plan was made

    while pending_runs:
        _write_configuration(job, pending_runs)
        try:
            with logged(store.folder(pending_runs[0].run_id) / "log.txt", epochs=alone):
                log.info("begin %s", ", ".join(f"{run.task} {run.run_id}" for run in pending_runs))
                for finished in job.task.run(pending_runs, job.setup):
                    _write(job, finished, tokens[finished.run.run_id])
                    pending_runs = [run for run in pending_runs if run.run_id != finished.run.run_id]
                    if finished.columns.get(FLAG) == DIVERGED:
                        break  # the runs that need its weights are void
                else:
                    _check_all_done(job, pending_runs)
            pending_runs = _drop_void(store, pending_runs)
        except DamagedFile:
            raise
        except ClaimLost:
            pending_runs = pending_runs[1:]
        except FcaError as error:
            if alone:
                for run in pending_runs:
                    store.drop(run.run_id)
                raise
            pending_runs = _fail_first(job, pending_runs, str(error), None)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            trace = traceback.format_exc()
            pending_runs = _fail_first(job, pending_runs, message, trace, interrupted=is_starved(error))


def _write_configuration(job: Job, runs: Sequence[Run]) -> None:
    """Store the configuration of these runs beside their results."""
    for run in runs:
        write_text(job.setup.store.folder(run.run_id) / "config.yaml", job.config)


def _check_all_done(job: Job, pending_runs: Sequence[Run]) -> None:
    """Raise RuntimeError for runs that the task did not yield: a defect; they would be tried for ever."""
    if pending_runs:
        first = pending_runs[0]
        raise RuntimeError(f"{type(job.task).__name__} ended without a row for {first.task} {first.run_id}")


def _drop_void(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs that are not void; removes the folders of the others."""
    void_ids = void(store, runs)
    for run_id in void_ids:
        store.drop(run_id)
    return [run for run in runs if run.run_id not in void_ids]


def _write(job: Job, finished: Finished, token: str) -> None:
    """Store a finished run and hand it to the tracker; ends the work if the process was asked to stop."""
    run = finished.run
    fingerprint_kind = job.setup.data.fingerprint_kind if FINGERPRINT in run.about else None
    row = {
        **run.about,
        FINGERPRINT_KIND: fingerprint_kind,
        **finished.columns,
        "limit": job.setup.data.limit,
        **provenance(),
        "finished": datetime.now(UTC).isoformat(timespec="microseconds"),
        "run_id": run.run_id,
        "task": run.task,
        "parent": run.parent,
        "command": job.command,
    }
    columns = (*job.task.columns, *job.setup.adaptation.columns)
    stored_row = job.setup.store.write(row, finished.arrays, token, columns)
    job.setup.tracker.finish(stored_row)
    if stop.requested.is_set():
        raise stop.Preempted


def _fail_first(
    job: Job, runs: Sequence[Run], message: str, trace: str | None, *, interrupted: bool = False
) -> list[Run]:
    """Record how the first run ended; returns the others without those that need it, which `execute` records."""
    failed_run, *later_runs = runs
    record_failure(job, failed_run, message, trace, interrupted=interrupted)
    return [run for run in later_runs if run.parent != failed_run.run_id]


def record_failure(job: Job, run: Run, message: str, trace: str | None, *, interrupted: bool = False) -> None:
    """Write why a run failed, with the command that does it again.

    interrupted: it was killed or starved, so the same command does it again even without sweep.retry.
    """
    error = {
        "run_id": run.run_id,
        "task": run.task,
        "error": without_password(message),
        "interrupted": interrupted,
        "command": job.command,
        "traceback": trace and without_password(trace),
    }
    job.setup.store.fail(run.run_id, error)
    job.setup.tracker.fail(run)
