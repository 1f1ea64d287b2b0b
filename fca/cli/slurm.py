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

LOOK_S, RESULT_S = 10, 2  # between two looks at the queue; for the last file of a job that is gone
TAIL = 15  # lines of a job's .err
GRACE_S = 10.0  # SLURM kills 30 s after SIGTERM
log = logging.getLogger(__name__)


class Watcher(SlurmInfoWatcher):
    """The states of jobs by squeue, which every cluster has, where sacct needs accounting.

    A job is done when two looks in a row do not list it: one that is queued again may be missing for a moment.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=LOOK_S)
        self.missing, self.warned = set[str](), False

    def update(self) -> None:
        """Look once; a queue that does not answer leaves all states as they were."""
        self._num_calls += 1
        self._last_status_check = time.time()
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        look = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if look.returncode:
            if not self.warned:
                log.warning("squeue does not answer, the sweep waits: %s", look.stderr.strip())
            self.warned = True
            return
        listed = set(look.stdout.split())
        waited_for = self._registered - self._finished
        self._finished |= waited_for & self.missing - listed
        self.missing = waited_for - listed
        self._info_dict.update({job: {"State": "GONE"} for job in self._finished})


@contextmanager
def watching() -> Iterator[None]:
    """Have submitit watch its jobs by squeue; a job without a result then has a return value that raises LostJob."""
    before = _, results, _ = SlurmJob.watcher, SlurmJob.results, SlurmJob._results_timeout_s

    def result_or_loss(job: SlurmJob[Any]) -> list[Any]:
        try:
            return results(job)
        except (UncompletedJobError, FailedJobError):
            tail = "\n".join((job.stderr() or job.stdout() or f"{job.paths.stderr} is empty").splitlines()[-TAIL:])
            loss = LostJob(f"SLURM job {job.job_id} left the queue without a row; the end of its .err file:\n{tail}")
            return [JobReturn(status=JobStatus.FAILED, _return_value=loss)]

    SlurmJob.watcher, SlurmJob.results, SlurmJob._results_timeout_s = Watcher(), result_or_loss, RESULT_S  # type: ignore
    try:
        yield
    finally:
        SlurmJob.watcher, SlurmJob.results, SlurmJob._results_timeout_s = before  # type: ignore[method-assign]


@contextmanager
def stopping(delay_s: float) -> Iterator[None]:
    """In a job: at submitit's signal a training first writes a checkpoint, then the job is queued again.

    delay_s: between the signal and the end of the job's time; what is no training has half of it to end. After SIGTERM
    (pre-emption, scancel) it is SLURM that queues the job again, or not.
    """
    number = SlurmJobEnvironment._usr_sig()
    queue_again: Any = signal.getsignal(number)
    terminated = False

    def end() -> None:
        claims.abandon()
        os._exit(128 + signal.SIGTERM)

    def on_signal(received: int, _: Any) -> None:
        nonlocal terminated
        terminated |= received == signal.SIGTERM
        requested.set()
        late = (GRACE_S, end) if terminated else (delay_s / 2, lambda: os.kill(os.getpid(), number))
        signal.signal(number, queue_again)
        timer = threading.Timer(*late)
        timer.daemon = True
        timer.start()

    for each in (number, signal.SIGTERM):
        signal.signal(each, on_signal)
    try:
        yield
    except Preempted:
        if terminated:
            raise SystemExit(128 + signal.SIGTERM) from None
        queue_again(number, None)  # ends this process
