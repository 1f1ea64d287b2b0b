"""`fca run`: one configuration, or with -m (or an experiment that sweeps) many."""

from __future__ import annotations

from functools import partial

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from fca.cli.application import application, typed_words
from fca.cli.configure import Job, job_of
from fca.cli.execute import end_with_parent, execute
from fca.cli.show import show_job
from fca.cli.weights import Weights
from fca.store import State
from fca.store.claims import clear


def run(config: DictConfig) -> None:
    """One job: alone it waits for runs that others compute and shows its results; in a sweep it leaves them."""
    end_with_parent()
    hydra = HydraConfig.get()
    job = job_of(config, typed_words(hydra))
    store = job.setup.store
    if config.sweep.print:
        left = [r for r in job.plan if store.state(r.run_id) is not State.DONE]
        print(job.command if left else "nothing is left to run")
        return
    if hydra.mode is RunMode.RUN and (line := job.chosen_classes) is not None:
        print(line, flush=True)
    if hydra.mode is not RunMode.RUN:
        _followed(job, alone=False)
        return
    for planned in job.plan:
        store.forgive(planned.run_id)
        clear(store.folder(planned.run_id))
    job.setup.tracker.connect()
    _followed(job, alone=True)
    Weights([job]).remove_unneeded()
    if show_job(job):
        raise SystemExit(1)


def _followed(job: Job, *, alone: bool) -> None:
    """Execute a job; however that ends, its tracker is left with nothing open."""
    try:
        execute(job, alone=alone)
    finally:
        job.setup.tracker.close()


main = partial(application, "run", run)  # exit code 0; 1 when a run failed; 2 for a configuration that cannot be run
