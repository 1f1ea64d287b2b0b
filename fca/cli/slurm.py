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
    """Finds out for submitit which jobs have ended, by the program squeue.

    Submitit itself asks sacct, which needs accounting; squeue works on every cluster.
    A job counts as ended when two looks in a row do not list it, because a job that is queued again may be missing from
    the list for a moment.
    """

    def __init__(self) -> None:
        super().__init__(delay_s=QUEUE_POLLED_EVERY_S)
        self.missing: set[str] = set()  # ids of the jobs that the latest look did not list
        self.has_warned = False

    def update(self) -> None:
        """Ask squeue once, and note the jobs that have ended; submitit calls this again and again.

        A job has ended when two looks in a row do not list it, since a job that is queued again may be missing from the
        list for a moment. If squeue does not answer, all states stay as they were.
        """
        # attributes with an underscore are submitit's; the ids of jobs are in `_registered` and `_finished`
        self._num_calls += 1
        self._last_status_check = time.time()
        command = ["squeue", "--me", "--noheader", "--array", "--format=%i"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if answer.returncode:
            if not self.has_warned:  # one warning is enough, though squeue is asked every few seconds
                log.warning("squeue does not answer, the sweep waits: %s", answer.stderr.strip())
            self.has_warned = True
            return

        listed_jobs = set(answer.stdout.split())
        unfinished_jobs = self._registered - self._finished
        missing_now = unfinished_jobs - listed_jobs
        self._finished |= missing_now & self.missing  # missing in two looks in a row
        self.missing = missing_now
        # GONE is no state of SLURM; submitit treats a job as ended if its state is not in a list of unfinished states
        self._info_dict.update({job: {"State": "GONE"} for job in self._finished})


@contextmanager
def watching() -> Iterator[None]:
    """While the body runs, have submitit watch its jobs by squeue, and report lost jobs as such.

    A lost job is a job that ended without a result. Its return value then raises LostJob, where submitit would raise an
    error that hides the results of the other jobs. Submitit has no settings for this, so attributes of its class are
    replaced, and restored at the end.
    """
    watcher = SlurmJob.watcher
    results = SlurmJob.results
    timeout_s = SlurmJob._results_timeout_s

    def result_or_loss(job: SlurmJob[Any]) -> list[Any]:
        """The result of a job, in a list; for a lost job, a result that raises LostJob with the end of its output."""
        try:
            return results(job)
        except (UncompletedJobError, FailedJobError):
            output = job.stderr() or job.stdout() or f"{job.paths.stderr} is empty"
            tail = "\n".join(output.splitlines()[-N_LAST_LINES:])
            loss = LostJob(f"SLURM job {job.job_id} left the queue without a row; the end of its .err file:\n{tail}")
            return [JobReturn(status=JobStatus.FAILED, _return_value=loss)]  # its `return_value` raises `loss`

    SlurmJob.watcher = Watcher()  # ours, which asks squeue
    SlurmJob.results = result_or_loss  # type: ignore[method-assign, assignment]
    SlurmJob._results_timeout_s = RESULT_WITHIN_S  # how long submitit waits for the result file of a job that has ended
    try:
        yield
    finally:
        SlurmJob.watcher = watcher
        SlurmJob.results = results  # type: ignore[method-assign]
        SlurmJob._results_timeout_s = timeout_s


@contextmanager
def stopping(delay_s: float) -> Iterator[None]:
    """Inside of a SLURM job: shortly before its time limit, stop the body and have the job queued again.

    SLURM sends a signal, as submitit has asked it to, `delay_s` seconds before the time limit. A training in the body
    then writes a checkpoint and stops, and the job is queued again. Other work has half of `delay_s` to end; after
    that, the job is queued again although the work has not ended.

    SLURM sends SIGTERM when it ends a job earlier (pre-emption, scancel). The body then has GRACE_S seconds to stop in
    the same way. After that, this process ends, and SLURM decides whether to queue the job again.
    """
    user_signal = SlurmJobEnvironment._usr_sig()  # the signal before the time limit
    queue_again: Any = signal.getsignal(user_signal)  # submitit's handler, which has SLURM queue the job again
    is_terminated = False

    def end() -> None:
        claims.abandon()  # so that other processes may do the claimed runs
        os._exit(128 + signal.SIGTERM)

    def signal_again() -> None:
        os.kill(os.getpid(), user_signal)

    def on_signal(received: int, _: Any) -> None:
        """Request that a training stops, and start a timer that acts if the work has not ended by then."""
        nonlocal is_terminated
        is_terminated |= received == signal.SIGTERM
        requested.set()  # the event that trainings look at: they write a checkpoint and raise Preempted
        signal.signal(user_signal, queue_again)  # at the next `user_signal`, submitit queues the job again

        timer = threading.Timer(GRACE_S, end) if is_terminated else threading.Timer(delay_s / 2, signal_again)
        timer.daemon = True  # does not keep alive a process whose work has ended
        timer.start()

    for signal_number in (user_signal, signal.SIGTERM):
        signal.signal(signal_number, on_signal)
    try:
        yield
    except Preempted:  # the training has written its checkpoint
        if is_terminated:  # SLURM itself queues the job again, if at all
            raise SystemExit(128 + signal.SIGTERM) from None
        queue_again(user_signal, None)  # ends this process
