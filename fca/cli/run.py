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
    """Do one job of `fca run`, alone or as a part of a sweep.

    A job that is alone waits for runs that other processes compute, and shows its results; the exit code is 1 if a run
    failed. A job of a sweep does not wait for runs of other processes, and the sweep shows the results.
    With sweep.print=true, the job only prints its command.
    """
    end_with_parent()  # a worker of a sweep must not outlive the sweep
    console()  # from here on, fca's warnings are printed
    hydra = HydraConfig.get()
    if config.sweep.print:
        _print_command(config, typed_words(hydra))
        return

    with gathered():  # warnings about planning are printed once, with their count
        job = job_of(config, typed_words(hydra))
    if hydra.mode is not RunMode.RUN:  # a job of a sweep
        _execute_and_close(job, alone=False)
        return

    if job.chosen_classes is not None:  # the user listed classes (subset.classes): show which classes these are
        print(job.chosen_classes, flush=True)
    complete(job)
    failed_ids = show_job(job)  # prints the results; returns the runs that failed or were interrupted
    if failed_ids:
        raise SystemExit(1)


def complete(job: Job) -> None:
    """Do the unfinished runs of a job, also runs that failed before; wait for runs that other processes compute."""
    store = job.context.store
    for planned in job.plan:
        store.forgive(planned.run_id)  # removes the record of a failure: a run with this record is not done again
        clear(store.folder(planned.run_id))  # removes the claim of a killed process, which would still hold the run
    job.context.tracker.connect()
    with shared():  # a warning that several processes repeat is printed once, with its count
        _execute_and_close(job, alone=True)  # alone: no sweep, so it waits for runs that other commands compute
    Weights([job]).remove_unneeded()  # removes the weights that machine.keep_weights does not ask to keep


def _print_command(config: DictConfig, words: list[str]) -> None:
    """Print the command of a job if it has runs left to do, or else that nothing is left to run. Downloads nothing.

    If the data set is not on this machine, the runs are unknown, and the command is printed in any case.
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
    void_ids = find_void_ids(store, unfinished_runs)  # runs that will never have a result: their training diverged
    has_runs_to_do = any(planned.run_id not in void_ids for planned in unfinished_runs)
    print(job.command if has_runs_to_do else "nothing is left to run")


def _execute_and_close(job: Job, *, alone: bool) -> None:
    """Execute a job; however that ends, its tracker is left with nothing open."""
    try:
        execute(job, alone=alone)
    finally:
        job.context.tracker.close()


main = partial(application, "run", run)  # exit code 0; 1 when a run failed; 2 for a configuration that cannot be run
