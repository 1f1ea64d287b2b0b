"""What tests/studies/test_analyses.py needs for the analyses of this study."""

import numpy as np

from fca.store import Store
from tests.studies.search.support import searched_store
from tests.studies.search.support.searched import searched
from tests.support.lab import Lab

MAY_BE_EMPTY = {"search_predictors"}  # below 21 subdomains
CHEAPER = {}


def add(study):
    """No further rows."""


def stores(folders):
    """A search that visited every subdomain, and one with images and with fresh images of its rules."""
    whole = Lab(Store(folders.mktemp("searched") / "outputs"))
    searched(whole, (np.random.default_rng(0).random((6, 8)) < 0.6).astype(np.int8))
    failing = Lab(Store(folders.mktemp("failing") / "outputs"))
    searched_store.searched(failing)
    return {"search": whole, "failures": failing}
