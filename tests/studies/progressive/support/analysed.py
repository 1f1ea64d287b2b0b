"""What tests/studies/test_analyses.py needs for the analyses of this study."""

MAY_BE_EMPTY = {"contradictions", "contradictions_shown"}  # where no image contradicts its level
CHEAPER = {}


def add(study):
    """Rows beside those that all analyses find."""


def stores(folders):
    """Stores for analyses that read other rows, by a part of the name of their module."""
    return {}
