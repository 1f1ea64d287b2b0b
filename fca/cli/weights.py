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

    keep:       id of each training whose weights are not all kept -> its machine.keep_weights: "best" keeps the weights
                of the best epoch, "none" keeps no weights.
    unfinished: id of each of these trainings -> its own id and the ids of the runs that need its weights, as far as
                these runs are not done.
    """

    def __init__(self, jobs: Iterable[Job]) -> None:
        """Find the trainings of these jobs whose weights are not all kept, and the runs that need these weights.

        jobs: the jobs of a sweep; each has its planned runs, and all have the same store.
        """
        readers: dict[str, set[str]] = defaultdict(set)  # id of a training -> ids of the runs that need its weights
        self.keep: dict[str, str] = {}  # id of a training -> its machine.keep_weights
        for job in jobs:
            self.store = job.context.store
            networks = (job.context.model, job.context.encoder)
            # networks of earlier trainings (model=run), which every run of the job reads
            ids_for_all_runs = [network.run_id for network in networks if isinstance(network, StoredRun)]
            keep = job.context.machine.keep_weights

            for run in job.plan:
                # the parent of a run is the run whose weights or arrays it reads
                ids_for_this_run = [] if run.parent is None else [run.parent]
                for needed_id in ids_for_all_runs + ids_for_this_run:
                    readers[needed_id].add(run.run_id)
                if run.task == "train" and keep != "snapshots":  # "snapshots" keeps all weights
                    self.keep[run.run_id] = keep

        # each training itself and the runs that need its weights; `remove_unneeded` takes out those that are done
        self.unfinished = {run_id: {run_id, *readers[run_id]} for run_id in self.keep}

    def remove_unneeded(self) -> None:
        """Remove the weights of each training that is done and whose weights no unfinished run needs.

        Only the weights that machine.keep_weights does not keep are removed. The sweep calls this again and again. For
        each training, self.unfinished has the ids of the training itself and of the runs that need its weights, as far
        as these runs were not done at the last call.
        """
        for run_id, unfinished_ids in list(self.unfinished.items()):  # a copy, since entries are removed below
            was_unfinished = run_id in unfinished_ids
            if was_unfinished and self.store.state(run_id) is not State.DONE:
                continue  # the training still runs: no run that needs its weights can be done yet

            done_ids = {reader for reader in unfinished_ids if self.store.state(reader) is State.DONE}
            unfinished_ids -= done_ids  # changes the set in self.unfinished
            if unfinished_ids and self.store.has_diverged(run_id):
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
