"""`machine.keep_weights`: weights of trained networks are removed once no planned run of a sweep needs them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable

from fca.cli.configure import Job
from fca.models.stored import BEST, SUFFIX, StoredRun
from fca.store import State

log = logging.getLogger(__name__)


class Weights:
    """Removes weights of the trainings of a sweep, while the sweep runs, as machine.keep_weights demands.

    keep:       id of each training whose weights are not all kept -> machine.keep_weights, "best" or "none".
    unfinished: id of each of these trainings -> its own id and the ids of the runs that need its weights, as far as
                these runs are not done.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        """Find, in the plans of these jobs, trainings whose weights are not all kept, and the runs that need them."""
        readers: dict[str, set[str]] = defaultdict(set)  # training -> the runs that need its weights
        self.keep: dict[str, str] = {}
        for job in jobs:
            self.store = job.context.store  # all jobs have the same store
            keep = job.context.machine.keep_weights
            # earlier trainings whose weights the job starts with: all runs of the job need them
            stored_models = [
                model for model in (job.context.model, job.context.encoder) if isinstance(model, StoredRun)
            ]
            trainings = [model.run_id for model in stored_models]
            for run in job.plan:
                # the parent is the run whose weights or arrays this run reads
                needed_trainings = [*trainings, run.parent] if run.parent else trainings
                for training in needed_trainings:
                    readers[training].add(run.run_id)
                if run.task == "train" and keep != "snapshots":  # "snapshots" keeps all weights
                    self.keep[run.run_id] = keep
        # training -> its own id and the ids of the runs that need its weights; `remove_unneeded` drops finished runs
        self.unfinished = {run_id: {run_id, *readers[run_id]} for run_id in self.keep}

    def remove_unneeded(self) -> None:
        """Remove the weights of each training that is done and whose weights no unfinished run needs.

        Only the weights that machine.keep_weights does not keep are removed. The sweep calls this again and again. Once
        the weights of a training are removed, the training is no longer looked at.
        """
        for run_id, unfinished_ids in list(self.unfinished.items()):
            # while a training is not done, no run that needs its weights can be done, so their states are not read
            if run_id not in unfinished_ids or self.store.state(run_id) is State.DONE:
                done_ids = {reader for reader in unfinished_ids if self.store.state(reader) is State.DONE}
                unfinished_ids -= done_ids  # the set in self.unfinished itself

            is_trained = run_id not in unfinished_ids
            if unfinished_ids and is_trained and self.store.has_diverged(run_id):
                unfinished_ids.clear()  # the runs that need these weights will never be done
            if not unfinished_ids:
                del self.unfinished[run_id]
                self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        """Remove the weights of a training that machine.keep_weights does not keep; a failure is logged."""
        keep = self.keep[run_id]
        best_file = f"{BEST}{SUFFIX}"
        unneeded = [path for path in self.store.weights(run_id) if keep == "none" or path.name != best_file]
        try:
            self.store.remove_weights(run_id, unneeded, f"machine.keep_weights={keep}")
        except OSError as error:  # the results are whole; the same sweep tries again
            log.warning("weights of run %s stay: %s", run_id, error)
