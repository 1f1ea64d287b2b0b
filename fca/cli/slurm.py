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

POLL_S = 10  # between two queries of the queue
RESULT_S = 2  # to wait for the last file of a job that is gone
TAIL = 15  # lines of a job's .err
GRACE_S = 10.0  # SLURM kills 30 s after SIGTERM
log = logging.getLogger(__name__)


class Watcher(SlurmInfoWatcher):
    """The states of jobs by squeue, which every cluster has, where sacct needs accounting.

    A job is done when two looks in a row do not list it: one that is queued again may be missing for a moment.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=POLL_S)
        self.missing: set[str] = set()
        self.has_warned = False

    def update(self) -> None:
        """Look once; a queue that does not answer leaves all states as they were."""
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
        missing_twice = unfinished_jobs & self.missing - listed_jobs
        self._finished |= missing_twice
        self.missing = unfinished_jobs - listed_jobs
        self._info_dict.update({job: {"State": "GONE"} for job in self._finished})


@contextmanager
def watching() -> Iterator[None]:
    """Have submitit watch its jobs by squeue; a job without a result then has a return value that raises LostJob."""
    watcher = SlurmJob.watcher
    results = SlurmJob.results
    timeout_s = SlurmJob._results_timeout_s

    def result_or_loss(job: SlurmJob[Any]) -> list[Any]:
        try:
            return results(job)
        except (UncompletedJobError, FailedJobError):
            output = job.stderr() or job.stdout() or f"{job.paths.stderr} is empty"
            tail = "\n".join(output.splitlines()[-TAIL:])
            loss = LostJob(f"SLURM job {job.job_id} left the queue without a row; the end of its .err file:\n{tail}")
            return [JobReturn(status=JobStatus.FAILED, _return_value=loss)]

    SlurmJob.watcher = Watcher()
    SlurmJob.results = result_or_loss  # type: ignore[method-assign, assignment]
    SlurmJob._results_timeout_s = RESULT_S
    try:
        yield
    finally:
        SlurmJob.watcher = watcher
        SlurmJob.results = results  # type: ignore[method-assign]
        SlurmJob._results_timeout_s = timeout_s


@contextmanager
def stopping(delay_s: float) -> Iterator[None]:
    """In a job: at submitit's signal a training first writes a checkpoint, then the job is queued again.

    delay_s: between the signal and the end of the job's time; what is no training has half of it to end. After SIGTERM
    (pre-emption, scancel) it is SLURM that queues the job again, or not.
    """
    user_signal = SlurmJobEnvironment._usr_sig()
    queue_again: Any = signal.getsignal(user_signal)
    is_terminated = False

    def end() -> None:
        claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def signal_again() -> None:
        os.kill(os.getpid(), user_signal)

    def on_signal(received: int, _: Any) -> None:
        nonlocal is_terminated
        is_terminated |= received == signal.SIGTERM
        requested.set()
        signal.signal(user_signal, queue_again)

        # What does not stop by itself is stopped
        timer = threading.Timer(GRACE_S, end) if is_terminated else threading.Timer(delay_s / 2, signal_again)
        timer.daemon = True
        timer.start()

    for signal_number in (user_signal, signal.SIGTERM):
        signal.signal(signal_number, on_signal)
    try:
        yield
    except Preempted:
        if is_terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        queue_again(user_signal, None)  # ends this process
