"""What notebooks import."""

import pytest

from fca.studies.reliance import relative_foreground_sensitivity


def test_a_sensitivity_is_computed_by_the_public_name():
    # (0.4 - 0.8) / (2 min(0.6, 0.4)), of a mean accuracy of 0.6
    assert relative_foreground_sensitivity(0.4, 0.8) == pytest.approx(0.5)
