"""`machine.keep_weights`: weights of trained networks go once nothing that a sweep plans needs them."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable

from fca.cli.configure import Job
from fca.models.stored import BEST, SUFFIX, StoredRun
from fca.store import State

log = logging.getLogger(__name__)


class Weights:
    """The trainings of these jobs whose weights are not all to be kept, each with the runs that need them."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        needing: dict[str, set[str]] = defaultdict(set)
        self.keep: dict[str, str] = {}
        for job in jobs:
            self.store, keep = job.setup.store, job.setup.machine.keep_weights
            trained = [model.run_id for model in (job.setup.model, job.setup.encoder) if isinstance(model, StoredRun)]
            for run in job.plan:
                for needed in (*trained, *filter(None, [run.parent])):
                    needing[needed].add(run.run_id)
                if run.task == "train" and keep != "snapshots":
                    self.keep[run.run_id] = keep
        self.left = {run_id: {run_id, *needing[run_id]} for run_id in self.keep}

    def remove_unneeded(self) -> None:
        """Remove what is not to be kept of those trainings of which all that needs them is done."""
        for run_id, left in list(self.left.items()):
            if run_id not in left or self.store.state(run_id) is State.DONE:
                left -= {needing for needing in left if self.store.state(needing) is State.DONE}
            if left and run_id not in left and self.store.has_diverged(run_id):
                left.clear()  # nobody will do what needs these weights
            if not left:
                del self.left[run_id]
                self._remove(run_id)

    def _remove(self, run_id: str) -> None:
        keep = self.keep[run_id]
        doomed = [path for path in self.store.weights(run_id) if keep == "none" or path.name != f"{BEST}{SUFFIX}"]
        try:
            self.store.remove_weights(run_id, doomed, f"machine.keep_weights={keep}")
        except OSError as error:  # the results are whole; the same sweep tries again
            log.warning("weights of run %s stay: %s", run_id, error)
