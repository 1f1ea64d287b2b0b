"""What notebooks import."""

import numpy as np

from fca.studies.irt import IrtFit, fit_irt


def test_a_fit_of_responses_is_made_by_the_public_name():
    right = np.random.default_rng(0).random((30, 40)) < np.linspace(0.2, 0.9, 40)
    fit = fit_irt(right.astype(float), model="1pl")
    assert isinstance(fit, IrtFit)
    assert np.corrcoef(fit.difficulty, right.mean(axis=0))[0, 1] < -0.9
