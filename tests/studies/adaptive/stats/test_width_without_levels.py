"""Tests of images without levels that stop at a width: intervals hold the truth although they looked meanwhile."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import hypergeom

from fca.studies.adaptive.stats import estimate, make_pool, run_policy, start_policy
from fca.studies.adaptive.stats.simple import exact_interval

ITEMS, STEP = 120, 12


@cache
def ends(right, asked):
    return exact_interval(right, asked, ITEMS)


def exactly(right_of_all, width):
    """Coverage and bias in points, by summing over every number right that can be seen."""
    truth, asked, chance, held, bias = right_of_all / ITEMS, 0, {0: 1.0}, 0.0, 0.0
    while chance:
        new = dict.fromkeys(range(asked + STEP + 1), 0.0)
        for right, weight in chance.items():
            drawn = np.arange(STEP + 1)
            for more, p in zip(drawn, hypergeom.pmf(drawn, ITEMS - asked, right_of_all - right, STEP), strict=True):
                new[right + int(more)] += weight * float(p)
        asked += STEP
        chance = {}
        for right, weight in ((right, weight) for right, weight in new.items() if weight > 0):
            low, high = ends(right, asked)
            if high - low > width and asked < ITEMS:
                chance[right] = weight
                continue
            held += weight * (low - 1e-12 <= truth <= high + 1e-12)
            bias += weight * 100 * (right / asked - truth)
    return held, bias


@pytest.mark.parametrize("width", [0.06, 0.1, 0.2])
@pytest.mark.slow
def test_stopping_at_a_width_keeps_the_coverage_of_every_accuracy(width):
    held, bias = np.array([exactly(right, width) for right in range(0, ITEMS + 1, 3)]).T
    assert held.min() >= 0.93
    assert np.abs(bias).max() < 0.1 * 100 * width  # the mean error of a stopped test is small beside its interval


@pytest.mark.wide
@pytest.mark.parametrize("policy", ["random", "proportional"])
def test_tests_by_policy_are_the_sum_over_what_can_be_seen(policy):
    pool = make_pool(None, np.arange(ITEMS) % 4)
    correct = np.random.default_rng(0).permutation(ITEMS) < 96  # classes alike
    held = []
    for seed in range(150):
        rng, test = np.random.default_rng(seed), start_policy(policy, pool, STEP / ITEMS)
        while True:
            record = run_policy(test, correct, rng).record
            overall = estimate("hypergeometric", pool, record).overall
            if record.evaluated.all() or overall.high[0, 0] - overall.low[0, 0] <= 0.2:
                break
            test.extend()
        held.append(overall.low[0, 0] - 1e-12 <= 0.8 <= overall.high[0, 0] + 1e-12)
    assert np.mean(held) == pytest.approx(exactly(96, 0.2)[0], abs=0.05)  # 150 tests: standard error .017
