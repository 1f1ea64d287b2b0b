"""Adaptive tests on the responses of real ImageNet models, and the published averages of items by level."""

import os
from pathlib import Path

import pytest
import replay as script
from table1 import table1

from fca.studies.adaptive.stats import MAPPING_L, MAPPING_Q


@pytest.mark.slow
@pytest.mark.parametrize("mapping", [MAPPING_Q, MAPPING_L])
def test_published_averages_of_items_by_level_are_reached_within_a_quarter(mapping):
    found = table1(mapping)
    assert len(found) == 6
    assert (found["largest difference"] < 0.25).all()


@pytest.mark.real
@pytest.mark.slow
def test_a_quarter_of_the_images_measures_more_by_adaptive_tests():
    lines = script.one_split(Path(os.environ["FCA_REAL_DATA"]) / "responses", split=1, repeats=10, alike=True)
    found = script.summary(lines).set_index(["policy", "estimator", "target"])
    for (policy, estimator), bars in script.BARS.items():
        for target, bar in zip(("accuracy", "score"), bars, strict=True):
            line = found.loc[(policy, estimator, target)]
            assert line["low"] < bar, "one split of five; the whole table is in the script"
            assert abs(line["bias"]) < 0.2
            assert 92 < line["coverage %"] < 98
    assert found.loc[("gre_two_stage", "session_mean", "score"), "bias"] < -1
    assert found.loc[("gre_two_stage", "pooled", "score"), "bias"] > 2
