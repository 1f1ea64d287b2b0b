"""Fixtures of stores with invented models, see tests/support/lab.py."""

import numpy as np
import pytest

from fca.store import Store
from tests.support.lab import RECIPE, Lab, copy_of


@pytest.fixture
def lab(tmp_path):
    return Lab(Store(tmp_path / "outputs"))


@pytest.fixture(scope="session")
def written_study(tmp_path_factory):
    """Two models as sub-models on ncl 2, 3, 6 and as full models, and one encoder."""
    lab = Lab(Store(tmp_path_factory.mktemp("study") / "outputs"))
    rng = np.random.default_rng(7)
    for number, model in enumerate(("slow", "quick")):
        for subset in dict.fromkeys(lab.subsets(ncl=(2, 3, 6))):
            lab.train(model, subset, round(rng.uniform(0.4, 1.0), 2))
        lab.predict(model, lab.logits(seed=number), seed=0, adaptation="scratch", snapshot="best", **RECIPE)
    lab.embed("hog", lab.features(seed=3))
    return lab


@pytest.fixture
def study(written_study, tmp_path):
    """A copy of it, to change."""
    return copy_of(written_study, tmp_path / "outputs")
