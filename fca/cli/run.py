"""`fca run`: one configuration, or with -m (or an experiment that sweeps) many."""

from __future__ import annotations

import sys
from functools import partial

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fca.cli.application import application, typed_words
from fca.cli.configure import Job, NotDownloaded, job_of, not_here
from fca.cli.execute import end_with_parent, execute, find_void_ids
from fca.cli.notices import console, gathered, shared
from fca.cli.show import show_job
from fca.cli.weights import Weights
from fca.store import State
from fca.store.claims import clear


def run(config: DictConfig) -> None:
    """Do one job of `fca run`, whether it is alone or one of a sweep.

    Alone, it waits for runs that other processes compute, and shows its results; exit code 1 if a run failed. In a
    sweep, it leaves such runs to the others, and the sweep shows the results.
    With sweep.print=true, it only prints its command.
    """
    end_with_parent()  # if this is a worker of a sweep
    console()  # from here on, fca's warnings are printed
    hydra = HydraConfig.get()
    if config.sweep.print:
        _print_command(config, typed_words(hydra))
        return

    with gathered():  # warnings about planning are printed once, with their count
        job = job_of(config, typed_words(hydra))
    if hydra.mode is not RunMode.RUN:
        _execute_and_close(job, alone=False)
        return

    if job.chosen_classes is not None:
        print(job.chosen_classes, flush=True)
    complete(job)
    if show_job(job):  # a run failed
        raise SystemExit(1)


def complete(job: Job) -> None:
    """Do the unfinished runs of a job, those that failed before included, and wait for runs that others compute."""
    store = job.context.store
    for planned in job.plan:
        store.forgive(planned.run_id)  # otherwise a failed run would count as settled
        clear(store.folder(planned.run_id))  # the claim of a killed process
    job.context.tracker.connect()
    with shared():
        _execute_and_close(job, alone=True)
    Weights([job]).remove_unneeded()


def _print_command(config: DictConfig, words: list[str]) -> None:
    """Print the command of a job if it has runs left to do; else a line that there are none. Downloads nothing.

    If the data set is not on the disk, its runs are unknown, so that the command is printed in any case.
    words: the overrides, as typed.
    """
    try:
        job = job_of(config, words, download=False)
    except NotDownloaded as missing:
        print(missing.command)
        print(not_here([missing.dataset]), file=sys.stderr)
        return

    store = job.context.store
    unfinished_runs = [planned for planned in job.plan if store.state(planned.run_id) is not State.DONE]
    void_ids = find_void_ids(store, unfinished_runs)  # of runs that need a training that diverged
    has_runs_to_do = any(planned.run_id not in void_ids for planned in unfinished_runs)
    print(job.command if has_runs_to_do else "nothing is left to run")


def _execute_and_close(job: Job, *, alone: bool) -> None:
    """Execute a job; however that ends, its tracker is left with nothing open."""
    try:
        execute(job, alone=alone)
    finally:
        job.context.tracker.close()


main = partial(application, "run", run)  # exit code 0; 1 when a run failed; 2 for a configuration that cannot be run
