"""What tests/studies/test_analyses.py needs for the analyses of this study."""

from tests.studies.recommend.support.recommended import recommended

MAY_BE_EMPTY = set()
CHEAPER = {}


def add(study):
    """No further rows."""


def stores(folders):
    """Trainings and measurements of programs for a job."""
    return {"recommend": recommended(folders)}
