"""What notebooks import."""

import importlib

import numpy as np


def test_the_public_name_is_the_function_whatever_was_imported_before():
    importlib.import_module("fca.studies.adaptive.adaptive_replay")
    from fca.studies.adaptive import replay

    session = np.zeros(36, dtype=int)
    levels = np.repeat([0, 1, 2], 12)
    found = replay(np.ones((1, 36), dtype=bool), levels, session, session, "static_k", "stratified", 0.25, repeats=1)
    assert found["truth"].tolist() == [1.0, 1.0]
