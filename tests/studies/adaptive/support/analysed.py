"""What tests/studies/test_analyses.py needs for the analyses of this study."""

from tests.studies.adaptive.support.live_tests import live

MAY_BE_EMPTY = {"adaptive_asked", "adaptive_trajectories", "adaptive_sessions"}  # below nine images a session
CHEAPER = {}


def add(study):
    """A model that took a test."""
    live(study, "slow", ncl=6, classes=range(6))


def stores(folders):
    """None of its own."""
    return {}
