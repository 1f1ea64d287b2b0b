"""Jobs of `fca run` done ahead of time in other processes, one per core."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context

from fca.cli.execute import end_with_parent, execute, unfinished
from fca.cli.jobs import Jobs, Keys
from fca.cli.notices import console
from fca.data.files import threads
from fca.plugins import plugins, use_plugins
from fca.progress import Meter
from fca.store.files import if_whole
from fca.types import FcaError

FEWEST = 3  # jobs for which processes are worth their start, some seconds each


def do_ahead(jobs: Jobs, keys_of_jobs: Sequence[Keys], label: str) -> None:
    """Do the unfinished ones of some jobs in other processes, as many at once as there are cores.

    The caller does all jobs again afterwards, and jobs that were done here then take no time. Fewer than FEWEST jobs
    are left to the caller, since processes take seconds to start. A job stays unfinished if it fails, if its
    configuration is wrong or if its process is killed: the caller gets the error when it does the job itself.

    jobs:         makes a job from its keys; `jobs.words` are the typed words that all jobs have (dataset.root=photos).
    keys_of_jobs: the further configuration keys of each job.
    label:        text of the progress bar.
    """
    unfinished_keys = [keys for keys in keys_of_jobs if _is_unfinished(jobs, keys)]
    workers = min(threads(0), len(unfinished_keys))  # threads(0): number of cores
    if len(unfinished_keys) < FEWEST or workers < 2:
        return

    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        # plugins(): the user's modules that this process has imported, which a new process has to import again
        tasks = [pool.submit(_do, tuple(jobs.words), dict(keys), plugins()) for keys in unfinished_keys]
        with Meter(label, len(tasks)) as meter, suppress(BrokenProcessPool):
            for task in as_completed(tasks):
                # `_do` leaves errors of a job to the caller. BrokenProcessPool is raised if a process was killed: then
                # the caller does all the rest
                task.result()
                meter.add(1)
        pool.shutdown()  # wait for the processes to end: the next measurement has the machine to itself
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # after an interrupt, start no more jobs


def _is_unfinished(jobs: Jobs, keys: Keys) -> bool:
    """Whether any run of a job is still to be done."""
    job = jobs.job(keys)
    return bool(unfinished(job.context.store, job.plan))


def _do(words: Sequence[str], keys: Keys, modules: Sequence[str]) -> None:
    """Do one job in this worker process, which ends if its parent does.

    words, keys: of the job.    modules: plugins that the parent has imported.
    """
    end_with_parent()
    console()
    use_plugins(modules)
    with if_whole(), suppress(FcaError):  # the caller meets the error when it does the job itself
        execute(Jobs(words).job(keys), alone=True)
