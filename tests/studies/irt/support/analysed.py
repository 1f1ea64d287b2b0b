"""What tests/studies/test_analyses.py needs for the analyses of this study."""

MAY_BE_EMPTY = {"label_error_rules", "label_error_curve"}  # without verdicts
CHEAPER = {}  # settings that only make an analysis more precise


def add(study):
    """Rows beside those that all analyses find."""


def stores(folders):
    """Stores for analyses that read other rows, by a part of the name of their module."""
    return {}
