"""Samples against every sample there can be: chances of inclusion, and variances, by enumeration."""

import itertools
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.studies.progressive.stats.pool import capped_inclusion, fixed_size_variance, shuffled_ranks, systematic


class Told(np.random.Generator):
    """A generator that draws what it is told."""

    def __init__(self, order, start):
        super().__init__(np.random.PCG64(0))
        self.order, self.start = np.array(order), start

    def permutation(self, n):
        return self.order

    def random(self):
        return self.start


def every_sample(inclusion, along=None):
    """(probability, sample) of each that systematic sampling can give: every order, every stretch of the start."""
    orders = list(itertools.permutations(range(len(inclusion))))
    for order in orders:
        line = np.array(order)
        if along is not None:
            line = line[np.argsort(along[line], kind="stable")]
        cuts = np.unique(np.concatenate([[0.0, 1.0], 1 - np.cumsum(inclusion[line]) % 1]))
        for low, high in itertools.pairwise(cuts):
            if high - low > 1e-12:
                yield (high - low) / len(orders), systematic(inclusion, Told(order, (low + high) / 2), along)


INCLUSION = np.array([1.0, 0.7, 0.3, 0.5, 0.25, 0.25])


@pytest.mark.parametrize("along", [None, np.array([3.0, 1.0, 2.0, 1.0, 0.0, 5.0])])
def test_every_item_is_drawn_with_exactly_its_chance_in_samples_of_one_size(along):
    seen = np.zeros(6)
    for probability, sample in every_sample(INCLUSION, along):
        assert sample.sum() == 3
        seen += probability * sample
    assert seen == pytest.approx(INCLUSION, abs=1e-12)


def test_the_variance_of_equal_chances_is_unbiased_over_all_samples():
    e, n = np.array([1.0, -0.5, 0.2, 0.0, 2.0, 0.7, -1.0]), 3
    inclusion = np.full(7, n / 7)
    samples = [list(s) for s in itertools.combinations(range(7), n)]
    totals = [e[s].sum() * 7 / n for s in samples]
    said = [fixed_size_variance(e[None, s], inclusion[s])[0] for s in samples]
    assert len(samples) == comb(7, n)
    assert np.mean(said) == pytest.approx(np.var(totals), rel=1e-12)


def test_the_variance_of_unequal_chances_is_near_the_simulated_one():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 1, 400)
    e = (rng.random(400) < p) - p
    inclusion = capped_inclusion(np.sqrt(p * (1 - p)), 100)
    totals, said = [], []
    for _ in range(4000):
        drawn = systematic(inclusion, rng)
        totals.append((e[drawn] / inclusion[drawn]).sum())
        said.append(fixed_size_variance(e[None, drawn], inclusion[drawn])[0])
    # a variance from 4,000 totals has a standard error of 2.2 %; Hájek's approximation is good to a part in the sample
    assert np.mean(said) == pytest.approx(np.var(totals), rel=0.08)
    assert np.mean(totals) == pytest.approx(e.sum(), abs=4 * np.std(totals) / 4000**0.5)


def test_items_taken_for_certain_add_no_variance_and_one_item_tells_none():
    assert fixed_size_variance(np.ones((2, 3)), np.ones(3)) == pytest.approx([0, 0])
    assert np.isnan(fixed_size_variance(np.ones((1, 1)), np.array([0.5]))).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=30), st.data())
def test_chances_sum_to_the_size_and_are_proportional_below_one(size, data):
    n = data.draw(st.integers(0, len(size)))
    chance = capped_inclusion(np.array(size), n)
    assert chance.sum() == pytest.approx(n)
    assert (chance <= 1).all()
    open_ = chance < 1 - 1e-9
    if n and open_.any():
        ratio = chance[open_] / np.array(size)[open_]
        assert ratio == pytest.approx(ratio[0])
        assert (np.array(size)[~open_] >= np.array(size)[open_].max() - 1e-6).all()


@pytest.mark.parametrize(
    ("size", "n", "reason"),
    [([1.0], 2, "n=2 of 1"), ([0.0, 1.0], 1, "size 0"), ([np.nan, 1.0], 1, "finite"), ([np.inf, 1.0], 1, "finite")],
)
def test_samples_that_cannot_be_are_refused(size, n, reason):
    with pytest.raises(ValueError, match=reason):
        capped_inclusion(np.array(size), n)


def test_ranks_are_a_random_order_of_each_stratum():
    stratum = np.array([2, 0, 0, 1, 0, 2])
    seen = np.zeros((6, 3))
    for k in range(3000):
        ranks = shuffled_ranks(stratum, np.random.default_rng(k))
        assert sorted(ranks[stratum == 0]) == [0, 1, 2]
        assert sorted(ranks[stratum == 2]) == [0, 1]
        seen[np.arange(6), ranks] += 1
    assert seen[[1, 2, 4]] / 3000 == pytest.approx(np.full((3, 3), 1 / 3), abs=0.035)  # four standard errors
