"""Pairs, extreme subsets and what-ifs against scores computed from the images of those classes alone."""

import itertools
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.stats.similarity import class_similarity, similarity_scores
from fca.studies.few_class.stats.difficulty import (
    extreme_subset,
    pair_simss,
    random_simss,
    what_if_added,
    what_if_merged,
)
from fca.types import FcaError

EXACT = 1e-9  # the promise; float64 keeps about 1e-14


def world(seed, classes=20, names=None, dimensions=4):
    """Unequal classes of overlapping images, in any order, under labels with holes."""
    rng = np.random.default_rng(seed)
    names = np.sort(rng.choice(500, size=classes, replace=False)) if names is None else np.array(names)
    own = rng.permutation(np.repeat(np.arange(classes), rng.integers(2, 8, size=classes)))
    features = 1.0 + rng.normal(size=(classes, dimensions))[own] + 0.8 * rng.normal(size=(len(own), dimensions))
    return features, names[own]


def simss_alone(features, labels, classes):
    inside = np.isin(labels, classes)
    return similarity_scores(features[inside], labels[inside]).simss


@settings(deadline=None, max_examples=12)
@given(st.integers(0, 2**32 - 1), st.integers(2, 7))
def test_every_pair_scores_as_its_images_alone(seed, classes):
    features, labels = world(seed, classes)
    pairs, names = pair_simss(class_similarity(features, labels), labels), np.unique(labels)
    assert np.isnan(np.diag(pairs)).all()
    for a, b in itertools.permutations(range(classes), 2):
        assert pairs[a, b] == pytest.approx(simss_alone(features, labels, names[[a, b]]), abs=EXACT)


@cache
def enumerated(seed, classes, size):
    """SimSS of every subset: eq. 4 read off the matrix, one subset after the other."""
    features, labels = world(seed, classes)
    similarity, names = class_similarity(features, labels), np.unique(labels)
    members = {c: np.flatnonzero(labels == c) for c in names}
    column = {c: k for k, c in enumerate(names)}

    def score(subset):
        means = []
        for c in subset:
            own = similarity[members[c], column[c]]
            nearest = np.max([similarity[members[c], column[d]] for d in subset if d != c], axis=0)
            means.append(np.mean((own - nearest) / np.maximum(own, nearest)))
        return np.mean(means)

    every = {tuple(int(c) for c in subset): score(subset) for subset in itertools.combinations(names, size)}
    return similarity, labels, every


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_extreme_subsets_of_two_and_three_of_20_classes_equal_enumeration(seed, size, hardest):
    similarity, labels, every = enumerated(seed, 20, size)
    best = (min if hardest else max)(every, key=lambda c: every[c])
    found = extreme_subset(similarity, labels, size, hardest)
    assert found.classes == best
    assert found.simss == pytest.approx(every[best], abs=EXACT)


@pytest.mark.parametrize("hardest", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_no_single_swap_improves_an_extreme_subset_even_from_few_starts(seed, hardest):
    features, labels = world(seed, classes=14)
    similarity, sign = class_similarity(features, labels), 1 if hardest else -1
    found = extreme_subset(similarity, labels, 5, hardest, starts=2)
    assert found.simss == pytest.approx(simss_alone(features, labels, found.classes), abs=EXACT)
    for out, into in itertools.product(found.classes, np.setdiff1d(labels, found.classes)):
        other = [*(c for c in found.classes if c != out), into]
        assert sign * simss_alone(features, labels, other) >= sign * found.simss - EXACT


def test_extreme_subsets_of_five_of_ten_classes_are_those_of_enumeration():
    for seed in range(2):  # not promised, but a search that misses these is poor
        similarity, labels, every = enumerated(seed, 10, 5)
        assert extreme_subset(similarity, labels, 5).simss == pytest.approx(min(every.values()), abs=EXACT)
        easiest = extreme_subset(similarity, labels, 5, hardest=False)
        assert easiest.simss == pytest.approx(max(every.values()), abs=EXACT)


def test_all_classes_are_one_subset_and_pairs_at_hand_change_nothing():
    features, labels = world(1, classes=5)
    similarity = class_similarity(features, labels)
    whole = extreme_subset(similarity, labels, 5, pairs=pair_simss(similarity, labels))
    assert whole.classes == tuple(np.unique(labels))
    assert whole.simss == pytest.approx(similarity_scores(features, labels).simss, abs=EXACT)


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
def test_adding_a_class_changes_simss_as_computed_anew(seed, size):
    features, labels = world(seed, classes=6)
    names = np.unique(labels)
    subset = np.random.default_rng(seed).choice(names, size, replace=False)
    change = what_if_added(class_similarity(features, labels), labels, subset)
    before = simss_alone(features, labels, subset)
    for name, value in zip(names, change, strict=True):
        if name in subset:
            assert np.isnan(value)
        else:
            assert value == pytest.approx(simss_alone(features, labels, [*subset, name]) - before, abs=EXACT)


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 2**32 - 1), st.integers(3, 5))
def test_merging_two_classes_scores_as_features_under_merged_labels(seed, size):
    features, labels = world(seed, classes=6)
    subset = np.random.default_rng(seed).choice(np.unique(labels), size, replace=False)
    similarity = class_similarity(features, labels)
    before = similarity.copy()
    for a, b in itertools.permutations(subset.tolist(), 2):
        merged = np.where(labels == b, a, labels)
        expected = simss_alone(features, merged, np.setdiff1d(subset, [b]))
        assert what_if_merged(similarity, labels, subset, a, b) == pytest.approx(expected, abs=EXACT)
    assert (similarity == before).all()


def test_random_subsets_are_all_of_them_or_repeatable_draws_of_right_scores():
    features, labels = world(3, classes=8)
    similarity, names = class_similarity(features, labels), np.unique(labels)
    every = [simss_alone(features, labels, c) for c in itertools.combinations(names, 3)]
    assert random_simss(similarity, labels, 3, draws=56) == pytest.approx(every, abs=EXACT)
    drawn = random_simss(similarity, labels, 3, draws=40, seed=5)
    assert (drawn == random_simss(similarity, labels, 3, draws=40, seed=5)).all()
    assert np.isin(drawn.round(9), np.round(every, 9)).all()
    assert len(set(random_simss(similarity, labels, 4, draws=40).round(9))) > 10


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s, y: extreme_subset(s, y, 1), "size of the subset = 1; allowed: 2 to 4"),
        (lambda s, y: extreme_subset(s, y, 5), "size of the subset = 5; allowed: 2 to 4"),
        (lambda s, y: random_simss(s, y, 5), "size of the subset = 5; allowed: 2 to 4"),
        (lambda s, y: what_if_added(s, y, np.array([0, 9])), "class = 9; allowed: the 4 labels"),
        (lambda s, y: what_if_added(s, y, np.array([0])), "number of classes = 1"),
        (lambda s, y: what_if_merged(s, y, np.array([0, 1, 2]), 1, 3), r"classes to merge = 1 and 3; .* \[0, 1, 2\]"),
        (lambda s, y: what_if_merged(s, y, np.array([0, 1, 2]), 1, 1), "classes to merge = 1 and 1"),
        (lambda s, y: what_if_merged(s, y, np.array([0, 1]), 0, 1), "number of classes = 2; allowed: 3 or more"),
        (lambda s, y: pair_simss(s[:0], y[:0]), "number of classes = 0; allowed: 2 or more"),
    ],
)
def test_what_cannot_be_answered_is_named(call, message):
    labels = np.arange(4).repeat(2)
    with pytest.raises(FcaError, match=message):
        call(class_similarity(np.random.default_rng(0).normal(size=(8, 3)), labels), labels)
