"""Jobs of `fca run` done ahead in other processes, one a core: what they leave is done where it is asked for."""

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


def do_ahead(jobs: Jobs, several: Sequence[Keys], doing: str) -> None:
    """Do what is left of these jobs, one process a core, a bar beside it.

    It raises nothing: a job that fails or is refused there, or loses its process, is left, for the caller to do and to
    show its error.    doing: what stands beside the bar.
    """
    left = [keys for keys in several if unfinished(jobs.job(keys).setup.store, jobs.job(keys).plan)]
    workers = min(threads(0), len(left))
    if len(left) < FEWEST or workers < 2:
        return

    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    try:
        tasks = [pool.submit(_do, tuple(jobs.words), dict(keys), plugins()) for keys in left]
        with Meter(doing, len(tasks)) as meter, suppress(BrokenProcessPool):
            for task in as_completed(tasks):
                task.result()
                meter.add(1)
        pool.shutdown()  # what is measured next has the machine to itself
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _do(words: Sequence[str], keys: Keys, modules: Sequence[str]) -> None:
    """One job, in a process of its own."""
    end_with_parent()
    console()
    use_plugins(modules)
    with if_whole(), suppress(FcaError):
        execute(Jobs(words).job(keys), alone=True)
