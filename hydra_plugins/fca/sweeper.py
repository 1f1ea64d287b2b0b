"""Hydra accepts a sweeper only from the namespace package hydra_plugins; ours lives in fca/cli/sweeper.py."""

from hydra.plugins.sweeper import Sweeper

from fca.cli.sweeper import ResumingSweep


class FcaSweeper(ResumingSweep, Sweeper):
    """Hydra multiruns that resume."""
