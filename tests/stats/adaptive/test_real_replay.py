"""Adaptive tests on the answers of real ImageNet models, and the published averages of items asked by level."""

import os
import sys
from pathlib import Path

import pytest

from fca.stats.adaptive import MAPPING_L, MAPPING_Q

EXPERIMENT = Path(__file__).parents[3] / "experiments" / "progressive"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENT))
    sys.modules.pop("replay", None)
    import replay

    yield replay
    sys.modules.pop("replay", None)


@pytest.mark.slow
@pytest.mark.parametrize("mapping", [MAPPING_Q, MAPPING_L])
def test_published_averages_of_items_by_level_are_reached_within_a_quarter(script, mapping):
    found = script.table1(mapping)
    assert len(found) == 6
    assert (found["largest difference"] < 0.25).all()


@pytest.mark.real
@pytest.mark.slow
def test_a_quarter_of_the_images_tells_more_by_adaptive_tests(script):
    lines = script.one_split(Path(os.environ["FCA_REAL_DATA"]) / "responses", split=1, repeats=10, alike=True)
    found = script.summary(lines).set_index(["policy", "estimator", "target"])
    for (policy, estimator), bars in script.ASKED_OF_US.items():
        for target, bar in zip(("accuracy", "score"), bars, strict=True):
            line = found.loc[(policy, estimator, target)]
            assert line["low"] < bar, "one split of five; the whole table is in the script"
            assert abs(line["bias"]) < 0.2
            assert 92 < line["coverage %"] < 98
    assert found.loc[("gre_two_stage", "session_mean", "score"), "bias"] < -1
    assert found.loc[("gre_two_stage", "pooled", "score"), "bias"] > 2
