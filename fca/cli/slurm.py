"""Jobs of SLURM, over submitit: seen from the sweep, and from inside one that is to end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from submitit.core.utils import FailedJobError, UncompletedJobError
from submitit.slurm.slurm import SlurmInfoWatcher, SlurmJob, SlurmJobEnvironment

from fca.cli.sweeper import LostJob
from fca.store import claims
from fca.training.stop import Preempted, requested

QUEUE_POLLED_EVERY_S = 10
RESULT_WITHIN_S = 2  # for the last file of a job that is gone
N_LAST_LINES = 15  # of a lost job's .err file, for the message
GRACE_S = 10.0  # after SIGTERM, until a job ends at once; SLURM kills it after 30 s
log = logging.getLogger(__name__)


class Watcher(SlurmInfoWatcher):
    """Finds for submitit which jobs have ended, by squeue, which every cluster has; sacct needs accounting.

    A job has ended when two looks in a row do not list it: one that is queued again may be missing for a moment.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=QUEUE_POLLED_EVERY_S)
        self.missing: set[str] = set()  # ids of the jobs that the latest look did not list
        self.has_warned = False

    def update(self) -> None:
        """Look once, and note the jobs that have ended; if squeue does not answer, all states stay as they were."""
        self._num_calls += 1
        self._last_status_check = time.time()
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if answer.returncode:
            if not self.has_warned:
                log.warning("squeue does not answer, the sweep waits: %s", answer.stderr.strip())
            self.has_warned = True
            return

        listed_jobs = set(answer.stdout.split())
        unfinished_jobs = self._registered - self._finished
        missing_now = unfinished_jobs - listed_jobs
        self._finished |= missing_now & self.missing
        self.missing = missing_now
        # to submitit, a state that it does not know means that the job has ended
        self._info_dict.update({job: {"State": "GONE"} for job in self._finished})


@contextmanager
def watching() -> Iterator[None]:
    """Have submitit, while the body runs, watch its jobs by squeue, and report lost jobs as such.

    A job that ended without a result then has a return value that raises LostJob. Submitit has no settings for this, so
    attributes of its class are replaced, and restored at the end.
    """
    watcher = SlurmJob.watcher
    results = SlurmJob.results
    timeout_s = SlurmJob._results_timeout_s

    def result_or_loss(job: SlurmJob[Any]) -> list[Any]:
        """The result of a job; for a lost one a result that raises LostJob with the end of its output."""
        try:
            return results(job)
        except (UncompletedJobError, FailedJobError):
            output = job.stderr() or job.stdout() or f"{job.paths.stderr} is empty"
            tail = "\n".join(output.splitlines()[-N_LAST_LINES:])
            loss = LostJob(f"SLURM job {job.job_id} left the queue without a row; the end of its .err file:\n{tail}")
            return [JobReturn(status=JobStatus.FAILED, _return_value=loss)]

    SlurmJob.watcher = Watcher()
    SlurmJob.results = result_or_loss  # type: ignore[method-assign, assignment]
    SlurmJob._results_timeout_s = RESULT_WITHIN_S
    try:
        yield
    finally:
        SlurmJob.watcher = watcher
        SlurmJob.results = results  # type: ignore[method-assign]
        SlurmJob._results_timeout_s = timeout_s


@contextmanager
def stopping(delay_s: float) -> Iterator[None]:
    """In a job: before its time ends, have a training write a checkpoint, and queue the job again.

    Submitit's signal comes `delay_s` seconds before the end of the job's time. A training then writes one and
    stops. Other work has half of that time to end; then the job is queued again as it is.
    After SIGTERM (pre-emption, scancel), SLURM decides whether to queue the job again.
    """
    user_signal = SlurmJobEnvironment._usr_sig()
    queue_again: Any = signal.getsignal(user_signal)  # submitit's handler
    is_terminated = False

    def end() -> None:
        claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def signal_again() -> None:
        os.kill(os.getpid(), user_signal)

    def on_signal(received: int, _: Any) -> None:
        """Request that a training stops, and start the timer for work that does not stop by itself."""
        nonlocal is_terminated
        is_terminated |= received == signal.SIGTERM
        requested.set()
        signal.signal(user_signal, queue_again)  # at the next signal, submitit queues the job again

        timer = threading.Timer(GRACE_S, end) if is_terminated else threading.Timer(delay_s / 2, signal_again)
        timer.daemon = True  # does not keep alive a process whose work has ended
        timer.start()

    for signal_number in (user_signal, signal.SIGTERM):
        signal.signal(signal_number, on_signal)
    try:
        yield
    except Preempted:  # the training has written its checkpoint
        if is_terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        queue_again(user_signal, None)  # ends this process
