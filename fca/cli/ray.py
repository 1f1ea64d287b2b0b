"""The launcher `ray`, over Hydra's: found at every start of Hydra, so Ray itself is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.utils import JobReturn
from hydra_plugins.hydra_ray_launcher.ray_launcher import RayLauncher

ENDED_WITHIN_S = 10.0  # seconds that workers have to end


class Ray(RayLauncher):
    """Tasks of Ray, whose workers import from where this process does, and which ends as other commands at a signal."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Do the jobs; a signal ends Ray first, so that no worker outlives the sweep, nor holds a run after it."""
        import psutil
        import ray

        from fca.cli.ray_driver import connect

        try:
            connect(self.ray_cfg.init)
            return super().launch(job_overrides, initial_job_idx)
        except (SystemExit, KeyboardInterrupt):
            workers = psutil.Process().children(recursive=True)
            ray.shutdown()  # which does not wait for them
            psutil.wait_procs(workers, timeout=ENDED_WITHIN_S)
            raise
