"""The levels that are drawn are those that are scored."""

from fca.render import LEVELS as DRAWN
from fca.studies.progressive.stats.pool import LEVELS


def test_levels_have_one_spelling():
    assert DRAWN == LEVELS
