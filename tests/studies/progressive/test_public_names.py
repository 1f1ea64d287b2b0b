"""What notebooks import."""

import numpy as np

from fca.studies.progressive import hierarchical_score


def test_a_hierarchical_score_is_counted_by_the_public_name():
    correct = np.array([[True, True, True], [True, False, False], [False, False, True]])  # the last one does not follow
    assert hierarchical_score(correct).score == 2 / 3
