"""Do the unfinished runs of a plan: claim them, do them, write each row when it is ready, record failures."""

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
from fca.tasks import HasImages
from fca.training import stop
from fca.types import FcaError, Finished, Run, without_password

POLL_S = 1.0
PARENT_CHECKED_EVERY_S = 0.5
PACKAGES_THAT_DECIDE_NUMBERS = ("fca", "torch", "timm", "pytorch-lightning", "numpy")
log = logging.getLogger(__name__)


class WithoutPasswords(logging.Formatter):
    """Formats the lines of the log, also lines that libraries log, without passwords."""

    def format(self, record: logging.LogRecord) -> str:
        """The formatted line, with *** in place of user names and passwords of URLs."""
        return without_password(super().format(record))


class EpochFilter:
    """A filter of logging that selects lines about epochs, some seconds apart, for output without a progress bar.

    shows_epochs: whether any line is selected at all.
    """

    def __init__(self, shows_epochs: bool) -> None:
        self.is_active = shows_epochs and not on_terminal()
        self.last_shown = time.monotonic()
        self.pause_s = FIRST_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to show this line: it is about an epoch, and the last line was shown long enough ago."""
        if not self.is_active or not record.getMessage().startswith("epoch "):
            return False
        if time.monotonic() - self.last_shown < self.pause_s:
            return False

        self.last_shown = time.monotonic()
        self.pause_s = EVERY_S  # longer than the one before the first line
        return True


class LogFile(logging.FileHandler):
    """Appends to the log of a run, but not through a link; what cannot be written, on a full disk, is left out."""

    def _open(self) -> io.TextIOWrapper:
        return io.TextIOWrapper(open_to_append(Path(self.baseFilename)), encoding="utf-8")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  as logging calls it
        """Continue without the line."""


@contextmanager
def logged(path: Path, *, epochs: bool = False) -> Iterator[None]:
    """Append everything that libraries and fca log or warn in the body to this file; fca's warnings are also printed.

    path:   the file; the first line creates it.
    epochs: whether lines about epochs are also printed, if the output is not a terminal, which has a progress bar.
    """
    root_logger = logging.getLogger()
    log_file = LogFile(path, delay=True)  # makes no file before the first line
    log_file.setFormatter(WithoutPasswords("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log_file.setLevel(logging.INFO)
    root_logger.addHandler(log_file)

    fca_logger = logging.getLogger("fca")
    previous_level = fca_logger.level
    fca_logger.setLevel(logging.INFO)  # lines about epochs are of this level
    console()  # adds the handler that prints warnings, if it is not there yet
    epoch_output = logging.StreamHandler()
    epoch_output.addFilter(EpochFilter(epochs))
    epoch_output.setFormatter(WithoutPasswords())
    fca_logger.addHandler(epoch_output)

    logging.captureWarnings(True)  # what Python's module `warnings` prints goes to the file instead
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root_logger.removeHandler(log_file)
        fca_logger.removeHandler(epoch_output)
        fca_logger.setLevel(previous_level)
        with suppress(OSError):  # a full disk: the result counts, not its log
            log_file.close()


@cache
def provenance() -> dict[str, str | None]:
    """The columns of a row for machine and code: host, versions of the packages that decide numbers, and commit.

    The commit is the one of this checkout, with `-dirty` if files differ from it; None outside a checkout.
    """
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES_THAT_DECIDE_NUMBERS)
    return {"host": socket.gethostname(), "commit": commit(), "versions": versions}


@cache
def end_with_parent() -> None:
    """Make a worker of joblib end soon after the sweep that started it, and leave Ctrl-C to the sweep.

    It does nothing in a process that no sweep started, and nothing at a second call.
    """
    sweep = multiprocessing.parent_process()
    if sweep is None:
        return

    def end() -> None:
        """End this process at once, without unwinding; release its claims if the sweep is gone."""
        sweep_is_alive = os.getppid() == sweep.pid
        if not sweep_is_alive:  # otherwise the sweep needs the claims: they show the run at which its worker died
            claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def watch() -> None:
        """Wait until this process has another parent, as it gets when the sweep is gone; then end it."""
        while os.getppid() == sweep.pid:
            time.sleep(PARENT_CHECKED_EVERY_S)
        end()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: end())
    threading.Thread(target=watch, daemon=True, name="fca-watch").start()


def execute(job: Job, *, alone: bool) -> None:
    """Do the unfinished runs of a job: runs without a row and without a recorded failure, if they can be done.

    Runs whose files are damaged are done again. If a run needs another run that failed or was interrupted, it gets the
    same kind of record as that run.

    The runs that can be done now are claimed and done in rounds, until no run is left. A round ends early if a file of
    an earlier run turns out to be damaged; then that run counts as unfinished, and the next round begins with it.

    alone: True for a single job. The job waits for runs that another worker is doing, and takes them over if that
           worker dies. An error in the configuration is raised and leaves no trace in the store.
           False for a job of a sweep. The job does not wait for runs that another worker is doing, since the sweep
           waits for them. It records every error.
    """
    store = job.context.store
    done_ids = {run.run_id for run in job.plan if store.state(run.run_id) is State.DONE}
    keep_items(job, done_ids)  # writes again a list of images that was lost, without which results cannot be read

    earlier_damage: set[str] = set()  # the messages about damaged files in earlier rounds
    while pending := unfinished(store, job.plan):
        orphans = record_orphans(job, pending)  # the runs that cannot be done, since the run that they need failed
        with _claimed(pending, store) as token_of_run:
            claimed_runs = [run for run in pending if run.run_id in token_of_run]
            try:
                _do_runs(job, claimed_runs, token_of_run, alone)
            except DamagedFile as damaged:  # of a run that the claimed runs need
                message = str(damaged)
                is_still_damaged = message in earlier_damage  # repeating did not help, as on a disk that is broken
                if is_still_damaged:
                    for run in claimed_runs:  # without a record, they would be tried for ever
                        record_failure(job, run, message, None)
                earlier_damage.add(message)

        has_progress = claimed_runs or orphans
        if not has_progress:  # other workers have claimed all runs that can be done now
            if not alone:
                return
            time.sleep(POLL_S)


def unfinished(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs that are still to be done, in their order: not done, failed or interrupted, and possible to do."""
    unsettled = [run for run in runs if store.state(run.run_id) not in SETTLED]
    void_ids = find_void_ids(store, unsettled)
    return [run for run in unsettled if run.run_id not in void_ids]


def find_void_ids(store: Store, runs: Iterable[Run]) -> set[str]:
    """The ids of the void runs: they can never be done, since they need the weights of a training that diverged.

    runs: the runs to look at, in an order in which each run comes after the run that it needs (its parent).
    """
    # id of a parent -> whether it diverged, or is void itself; read once for all runs that share the parent
    has_diverged: dict[str, bool] = {}
    void_ids: set[str] = set()
    for run in runs:
        if run.parent is None:
            continue
        if run.parent not in has_diverged:
            has_diverged[run.parent] = run.parent in void_ids or store.has_diverged(run.parent)
        if has_diverged[run.parent]:
            void_ids.add(run.run_id)
    return void_ids


def record_orphans(job: Job, runs: Sequence[Run]) -> list[Run]:
    """Record the runs whose parent, the run that they need, failed or was interrupted; returns these runs.

    A run gets the same kind of record as its parent, so that both are repeated by the same command.
    """
    store = job.context.store
    orphans = [run for run in runs if run.parent and store.state(run.parent) in ENDED_EARLY]

    for run in orphans:
        parent_error = store.error(str(run.parent))
        interrupted = was_interrupted(parent_error)
        end = "was interrupted" if interrupted else "failed"
        cause = f"run {run.parent}, which it needs, {end}: {parent_error['error']}"
        record_failure(job, run, cause, None, interrupted=interrupted)

    return orphans


def keep_items(job: Job, done_ids: set[str]) -> None:
    """Write the lists of images that a job's finished runs read, where such a list is missing or damaged.

    Without its list, it is unknown to which images the stored predictions of a run belong.
    done_ids: the ids of the finished runs. Other runs have no results yet that would need a list.
    """
    for run in job.plan:
        # a run may read the data set of the job with other splits; its work then has these images
        data = run.work.data if isinstance(run.work, HasImages) else job.context.data
        # false for a run that depends on no images, such as a program in fp32
        is_of_this_data = data.fingerprint == run.metadata.get("fingerprint")
        if run.run_id in done_ids and is_of_this_data:
            job.context.store.keep_items(data)


@contextmanager
def _claimed(runs: Sequence[Run], store: Store) -> Iterator[dict[str, str]]:
    """Claim, while the body runs, the runs that can be done now and that no other worker has claimed.

    A run can be done now if it needs no other run (its parent), or if the parent is done or is claimed here as well.
    Yields run_id -> token of the claim, which proves later that this process still holds it.
    runs: the runs to claim, in an order in which each run comes after its parent.
    """
    token_of_folder: dict[Path, str] = {}
    with claims.beating(token_of_folder):  # renews the claims in the dictionary, also those that are added below
        for run in runs:
            parent_is_done = run.parent is None or store.state(run.parent) is State.DONE
            is_ready = parent_is_done or store.folder(str(run.parent)) in token_of_folder
            if not is_ready:
                continue

            folder = store.folder(run.run_id)
            token = claims.acquire(folder)
            if token is not None:  # None: another worker holds it
                token_of_folder[folder] = token
                store.clear(run.run_id)  # damaged files of an earlier attempt would be in the way
        yield {folder.name: token for folder, token in token_of_folder.items()}  # the name of the folder is the run_id


def _do_runs(job: Job, runs: Sequence[Run], token_of_run: dict[str, str], alone: bool) -> None:
    """Have the task do these claimed runs, and store each as soon as the task yields it.

    The task does the runs in order and yields each when it is finished. So an error is an error of the first run that
    is not finished. It is recorded (`_fail`), and the task starts again with the other runs, without those that need
    the failed run. Raises DamagedFile if a run that these need has a damaged file.
    token_of_run: run_id -> token of its claim.
    alone: whether an FcaError, a mistake in the configuration, is raised, as for a single job; else it is recorded.
    """
    store = job.context.store
    # another worker may have finished some between the plan and the claim
    pending = [run for run in runs if store.state(run.run_id) is not State.DONE]
    while pending:
        _write_configuration(job, pending)
        try:
            # a single job also prints its epochs; a sweep prints none
            with logged(store.folder(pending[0].run_id) / "log.txt", epochs=alone):
                log.info("begin %s", ", ".join(f"{run.task} {run.run_id}" for run in pending))
                for finished in job.task.run(pending, job.context):
                    _write(job, finished, token_of_run[finished.run.run_id])
                    pending = [run for run in pending if run.run_id != finished.run.run_id]
                    if finished.columns.get(FLAG) == DIVERGED:  # the runs that need its weights are left out below
                        break
                else:  # the task ended, without a `break` above
                    _check_all_done(job, pending)
            pending = _without_void(store, pending)  # without runs that need the weights of a diverged training

        except DamagedFile:  # `execute` handles it
            raise
        except ClaimLost:  # another worker has taken over the first run, as this one was silent for too long
            pending = pending[1:]
        except FcaError as error:
            if alone:  # the user will correct the configuration: leave no trace of this one
                for run in pending:
                    store.drop(run.run_id)
                raise
            pending = _fail(job, pending, str(error), None)
        except Exception as error:  # of any kind: it costs this run, not the others
            message = f"{type(error).__name__}: {error}"
            # starved: without memory or disk space, for which the run is not to blame
            pending = _fail(job, pending, message, traceback.format_exc(), interrupted=is_starved(error))


def _check_all_done(job: Job, pending: Sequence[Run]) -> None:
    """Raise RuntimeError for runs that the task did not yield: a defect, after which they would be tried for ever."""
    if pending:
        raise RuntimeError(f"{type(job.task).__name__} ended without a row for {pending[0].task} {pending[0].run_id}")


def _without_void(store: Store, runs: Sequence[Run]) -> list[Run]:
    """The runs that can still be done after a training diverged; the folders of the runs that cannot are removed."""
    void_ids = find_void_ids(store, runs)
    for run_id in void_ids:
        store.drop(run_id)
    return [run for run in runs if run.run_id not in void_ids]


def _write_configuration(job: Job, runs: Sequence[Run]) -> None:
    """Write the configuration of these runs beside their results."""
    for run in runs:
        write_text(job.context.store.folder(run.run_id) / "config.yaml", job.config)


def _write(job: Job, finished: Finished, token: str) -> None:
    """Store the row and the arrays of a finished run, and pass the row to the tracker.

    token: the token of the claim of the run.
    Raises ClaimLost if another worker took the run over. Raises Preempted, after the run is stored, if this process was
    asked to end.
    """
    run = finished.run
    has_fingerprint = FINGERPRINT in run.metadata  # of the data set; a run that depends on no images has none
    row = {
        **run.metadata,
        FINGERPRINT_KIND: job.context.data.fingerprint_kind if has_fingerprint else None,
        **finished.columns,
        "limit": job.context.data.limit,  # the most images of a split, where the user limits them
        **provenance(),
        "finished": datetime.now(UTC).isoformat(timespec="microseconds"),  # texts of one length, which sort by time
        "run_id": run.run_id,
        "task": run.task,
        "parent": run.parent,
        "command": job.command,
    }
    # the columns that the row may have besides those of the recipe and those that all tasks share; others are refused
    columns = (*job.task.columns, *job.context.adaptation.columns)
    stored_row = job.context.store.write(row, finished.arrays, token, columns)
    job.context.tracker.finish(stored_row)
    if stop.requested.is_set():
        raise stop.Preempted


def _fail(job: Job, runs: Sequence[Run], message: str, trace: str | None, *, interrupted: bool = False) -> list[Run]:
    """Record the failure of the first of these runs, and return the others that can still be done now.

    Runs that need the failed one are not returned; `execute` records them afterwards.
    """
    failed, *others = runs
    record_failure(job, failed, message, trace, interrupted=interrupted)
    return [run for run in others if run.parent != failed.run_id]


def record_failure(job: Job, run: Run, message: str, trace: str | None, *, interrupted: bool = False) -> None:
    """Write why a run has no result, with the command that repeats it, into the store and to the tracker.

    message: the error.
    trace: its traceback; None for an error that needs none, such as a mistake of the user.
    interrupted: whether the run was killed or lacked memory or disk space. The same command does such a run again,
                 whereas a run that failed is only repeated on request.
    """
    error = {
        "run_id": run.run_id,
        "task": run.task,
        "error": without_password(message),
        "interrupted": interrupted,
        "command": job.command,
        "traceback": None if trace is None else without_password(trace),
    }
    job.context.store.fail(run.run_id, error)
    job.context.tracker.fail(run)
