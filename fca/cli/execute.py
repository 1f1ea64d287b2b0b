"""Do what is left of a plan: claim, work, write each row as it comes, record what failed."""

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
WATCH_S = 0.5
PACKAGES = ("fca", "torch", "timm", "pytorch-lightning", "numpy")
log = logging.getLogger(__name__)


class WithoutPasswords(logging.Formatter):
    """Lines of the log, also those of libraries, without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        return without_password(super().format(record))


class Epochs:
    """Which lines of the log are also shown beside warnings: where no terminal has a bar, epochs, seconds apart."""

    def __init__(self, epochs: bool) -> None:
        self.epochs, self.last = epochs and not on_terminal(), time.monotonic()
        self.pause = FIRST_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether this one is."""
        of_epoch = self.epochs and record.getMessage().startswith("epoch ")
        if of_epoch and time.monotonic() - self.last >= self.pause:
            self.last, self.pause = time.monotonic(), EVERY_S
            return True
        return False


class LogFile(logging.FileHandler):
    """Appends to the log of a run, through no link; a full disk fails the run, not its log."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_to_append(Path(self.baseFilename)), encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  as logging calls it
        """Go on without the line."""


@contextmanager
def logged(path: Path, *, epochs: bool = False) -> Iterator[None]:
    """Append what any library logs or warns in the body to this file; warnings of ours, and epochs, are also shown."""
    handler = LogFile(path, delay=True)
    handler.setFormatter(WithoutPasswords("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.setLevel(logging.INFO)
    ours, root = logging.getLogger("fca"), logging.getLogger()
    level = ours.level
    ours.setLevel(logging.INFO)
    root.addHandler(handler)
    console()  # shows warnings
    shown = logging.StreamHandler()
    shown.addFilter(Epochs(epochs))
    shown.setFormatter(WithoutPasswords())
    ours.addHandler(shown)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        ours.removeHandler(shown)
        ours.setLevel(level)
        with suppress(OSError):
            handler.close()


@cache
def provenance() -> dict[str, str | None]:
    """Which code and which machine make rows: the columns host, versions of what decides a number, and commit.

    The commit is that of this checkout, `-dirty` when files differ from it; None outside a checkout.
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
        if os.getppid() != sweep.pid:  # else the sweep learns from the claim which run its worker died of
            claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def watch() -> None:
        while os.getppid() == sweep.pid:
            time.sleep(WATCH_S)
        end()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: end())
    threading.Thread(target=watch, daemon=True, name="fca-watch").start()


def execute(job: Job, *, alone: bool) -> None:
    """Do the runs of a job that are not settled and not void (see `void`); damaged ones are done again.

    alone: runs that another worker computes are waited for, or taken over when it dies, and an error of the user's
    is raised without a trace in the store. In a sweep they are left to the other, and every error is a record.
    """
    store, found = job.setup.store, list[str]()
    keep_items(job, {run.run_id for run in job.plan if store.state(run.run_id) is State.DONE})
    while left := unfinished(store, job.plan):
        orphans = record_orphans(job, left)
        with _claimed(left, store) as tokens:
            won = [run for run in left if run.run_id in tokens]
            try:
                _work(job, won, tokens, alone)
            except DamagedFile as damaged:  # of a run that these need: it is done again first
                for run in won if str(damaged) in found else ():  # to no avail, as where nothing may be written
                    record_failure(job, run, str(damaged), None)
                found.append(str(damaged))
        if not won and not orphans:
            if not alone:
                return
            time.sleep(POLL_S)


def unfinished(store: Store, runs: Sequence[Run]) -> list[Run]:
    """Those of these runs that are still to be done, in their order."""
    left = [run for run in runs if store.state(run.run_id) not in SETTLED]
    never = void(store, left)
    return [run for run in left if run.run_id not in never]


def void(store: Store, runs: Iterable[Run]) -> set[str]:
    """Ids of those of these runs that nobody will do: they need the weights of a training that diverged.

    runs: each behind the one that it needs.
    """
    has_diverged: dict[str, bool] = {}
    never: set[str] = set()
    for run in runs:
        if run.parent is None:
            continue
        if run.parent not in has_diverged:
            has_diverged[run.parent] = run.parent in never or store.has_diverged(run.parent)
        if has_diverged[run.parent]:
            never.add(run.run_id)
    return never


def record_orphans(job: Job, runs: Sequence[Run]) -> list[Run]:
    """Record as failed or interrupted, and return, those of these runs that need one that is."""
    store = job.setup.store
    orphans = [run for run in runs if run.parent and store.state(run.parent) in ENDED_EARLY]

    for run in orphans:
        record = store.error(str(run.parent))
        interrupted = was_interrupted(record)
        fate = "was interrupted" if interrupted else "failed"
        cause = f"run {run.parent}, which it needs, {fate}: {record['error']}"
        record_failure(job, run, cause, None, interrupted=interrupted)

    return orphans


def keep_items(job: Job, done: set[str]) -> None:
    """Write the lists of images that those runs of a job need which are done, where they are missing or damaged."""
    for run in job.plan:
        data = run.work.data if isinstance(run.work, OnImages) else job.setup.data
        if run.run_id in done and data.fingerprint == run.about.get("fingerprint"):
            job.setup.store.keep_items(data)


@contextmanager
def _claimed(runs: Sequence[Run], store: Store) -> Iterator[dict[str, str]]:
    """The claims of those runs that are free and whose parent is done or claimed with them: run_id -> token."""
    held: dict[Path, str] = {}
    with claims.beating(held):
        for run in runs:
            folder, parent = store.folder(run.run_id), run.parent
            ready = parent is None or store.folder(parent) in held or store.state(parent) is State.DONE
            if ready and (token := claims.acquire(folder)):
                held[folder] = token
                store.clear(run.run_id)
        yield {folder.name: token for folder, token in held.items()}


def _work(job: Job, runs: Sequence[Run], tokens: dict[str, str], alone: bool) -> None:
    """Let the task yield these runs and write each; an error is recorded for the run at work."""
    store = job.setup.store
    left = [run for run in runs if store.state(run.run_id) is not State.DONE]  # done since the plan was made
    while left:
        _describe(job, left)
        try:
            with logged(store.folder(left[0].run_id) / "log.txt", epochs=alone):
                log.info("begin %s", ", ".join(f"{run.task} {run.run_id}" for run in left))
                for finished in job.task.run(left, job.setup):
                    _write(job, finished, tokens[finished.run.run_id])
                    left = [run for run in left if run.run_id != finished.run.run_id]
                    if finished.columns.get(FLAG) == DIVERGED:
                        break
                else:
                    _check_all_done(job, left)
            left = _without_void(store, left)
        except DamagedFile:
            raise
        except ClaimLost:
            left = left[1:]
        except FcaError as error:
            if alone:
                for run in left:
                    store.drop(run.run_id)
                raise
            left = _fail(job, left, str(error), None)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            left = _fail(job, left, message, traceback.format_exc(), interrupted=is_starved(error))


def _check_all_done(job: Job, left: Sequence[Run]) -> None:
    """Raise RuntimeError for runs that the task did not yield: a defect; they would be tried for ever."""
    if left:
        raise RuntimeError(f"{type(job.task).__name__} ended without a row for {left[0].task} {left[0].run_id}")


def _without_void(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs that are still to be done once a training has diverged; nothing stays of those that need its weights."""
    never = void(store, runs)
    for run_id in never:
        store.drop(run_id)
    return [run for run in runs if run.run_id not in never]


def _describe(job: Job, runs: Sequence[Run]) -> None:
    """Write the configuration of these runs beside their results."""
    for run in runs:
        write_text(job.setup.store.folder(run.run_id) / "config.yaml", job.config)


def _write(job: Job, finished: Finished, token: str) -> None:
    run, kind = finished.run, job.setup.data.fingerprint_kind
    row = {
        **run.about,
        FINGERPRINT_KIND: kind if FINGERPRINT in run.about else None,
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
    job.setup.tracker.finish(job.setup.store.write(row, finished.arrays, token, columns))
    if stop.requested.is_set():
        raise stop.Preempted


def _fail(job: Job, left: Sequence[Run], message: str, trace: str | None, *, interrupted: bool = False) -> list[Run]:
    """Record how the first run ended; returns the others but for those that need it, which `execute` records."""
    record_failure(job, left[0], message, trace, interrupted=interrupted)
    return [run for run in left[1:] if run.parent != left[0].run_id]


def record_failure(job: Job, run: Run, message: str, trace: str | None, *, interrupted: bool = False) -> None:
    """Write why a run failed, with the command that does it again.

    interrupted: it was killed or starved, so the same command does it again without being asked to.
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
