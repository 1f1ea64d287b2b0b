"""Hydra accepts launchers only from the namespace package hydra_plugins; ours live in fca/cli/launchers.py."""

from contextlib import suppress

with suppress(ImportError):  # without the extra `launchers`
    from fca.cli import launchers, trust  # noqa: F401

    class GpusLauncher(launchers.Gpus):
        """One worker a slot of a GPU."""

    class SlurmLauncher(launchers.Slurm):
        """Jobs that are watched, and go on when they are queued again."""


with suppress(ImportError):  # those of Ray alone may be missing
    from fca.cli import ray

    class RayLauncher(ray.Ray):
        """Tasks that import what the sweep imports, and end with it."""
