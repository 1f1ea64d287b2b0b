"""The launcher `ray`, over Hydra's: found at every start of Hydra, so Ray itself is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.utils import JobReturn
from hydra_plugins.hydra_ray_launcher.ray_launcher import RayLauncher

WORKERS_END_WITHIN_S = 10.0


class Ray(RayLauncher):
    """Runs each job as a task of Ray.

    Workers import from the same folders as this process. At a signal the sweep ends as with other launchers.
    """

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Do the jobs. At a signal, end Ray first, so that no worker outlives the sweep and keeps its runs claimed.

        job_overrides: the overrides of each job.
        initial_job_idx: the number of the first job.
        """
        import psutil
        import ray

        from fca.cli.ray_driver import connect

        try:
            connect(self.ray_cfg.init)
            return super().launch(job_overrides, initial_job_idx)
        except (SystemExit, KeyboardInterrupt):
            workers = psutil.Process().children(recursive=True)
            ray.shutdown()  # does not wait for them
            psutil.wait_procs(workers, timeout=WORKERS_END_WITHIN_S)
            raise
