"""The released script, replayed as a loop over pairs of list entries."""

import math

import numpy as np
import pytest

from fca.stats.similarity import class_similarity, fca_released, released_draw, subset_scores
from fca.subset import draw_subset
from fca.types import FcaError

GRID = [(ncl, seed) for ncl in (2, 3, 4, 5, 10) for seed in range(5)]


def cos(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def literal(features, labels, subsets):
    """Lists that are never cleared, and one mean over each heap of pairs."""
    sim = [[(cos(a, b) + 1) / 2 for b in features.tolist()] for a in features.tolist()]
    lists, lines = {}, []
    for subset in subsets:
        for image, label in enumerate(labels.tolist()):
            if label not in subset:
                continue
            if label in lists:
                lists[label].append(image)
            else:
                lists[label] = []
        lines.append((alpha(sim, lists, subset), beta(sim, lists, subset), score(sim, lists, subset)))
    return lines


def mean(values):
    return sum(values) / len(values) if values else math.nan


def alpha(sim, lists, subset):
    heap = []
    for c in subset:
        for i in range(len(lists[c])):
            heap += [sim[lists[c][i]][lists[c][j]] for j in range(i + 1, len(lists[c]))]
    return mean(heap)


def beta(sim, lists, subset):
    heap = []
    for first in range(len(subset)):
        for second in range(first + 1, len(subset)):
            a, b = lists[subset[first]], lists[subset[second]]
            for i in range(len(a)):
                heap += [sim[a[i]][b[j]] for j in range(i + 1, len(b))]
    return mean(heap)


def score(sim, lists, subset):
    heap = []
    for c in subset:
        other_classes = [d for d in subset if d != c]
        for i, image in enumerate(lists[c]):
            to_own = mean([sim[image][entry] for j, entry in enumerate(lists[c]) if j != i])
            to_nearest = max(mean([sim[image][entry] for entry in lists[d]]) for d in other_classes)
            heap.append((to_own - to_nearest) / max(to_own, to_nearest))
    return mean(heap)


def images_of(seed, classes=6, sizes=(2, 7)):
    """Images of unequal classes, in any order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(classes), rng.integers(*sizes, size=classes)))
    centres = rng.normal(size=(classes, 5))
    return centres[labels] + rng.normal(size=(len(labels), 5)), labels


@pytest.mark.parametrize("seed", range(4))
def test_every_score_equals_the_literal_loop_over_a_grid_of_draws(seed):
    features, labels = images_of(seed, classes=9)
    subsets = [released_draw(9, ncl, s) for ncl in (2, 3, 4, 8) for s in range(3)]
    ours = np.array(fca_released(features, labels, subsets))
    assert ours == pytest.approx(np.array(literal(features, labels, subsets)), abs=1e-9, nan_ok=True)


def test_what_came_before_changes_the_scores():
    features, labels = images_of(seed=8, sizes=(4, 7))
    [first] = fca_released(features, labels, [(0, 1)])
    _, second = fca_released(features, labels, [(1, 2), (0, 1)])
    assert np.abs(np.subtract(first, second)).min() > 1e-6


def test_the_order_of_the_draw_changes_s_beta_only():
    features, labels = images_of(seed=8, sizes=(4, 7))
    [ascending] = fca_released(features, labels, [(0, 1, 2)])
    [reordered] = fca_released(features, labels, [(2, 0, 1)])
    assert ascending.s_alpha == pytest.approx(reordered.s_alpha, abs=1e-12)
    assert ascending.simss == pytest.approx(reordered.simss, abs=1e-12)
    assert abs(ascending.s_beta - reordered.s_beta) > 1e-6


def test_classes_of_two_images_have_no_pair_at_first_sight_and_nan_is_logged():
    features, labels = np.random.default_rng(0).normal(size=(4, 3)), np.array([0, 0, 1, 1])
    first, second = fca_released(features, labels, [(0, 1), (0, 1)])
    assert all(map(math.isnan, first))
    assert not any(map(math.isnan, second))


def test_without_repeats_the_scores_near_ours_as_classes_grow():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 400)
    centres = rng.normal(size=(5, 8))
    features = centres[labels] + rng.normal(size=(2000, 8))
    [released] = fca_released(features, labels, [tuple(range(5))])
    ours = subset_scores(class_similarity(features, labels), labels, np.arange(5))
    assert released.simss == pytest.approx(ours.simss_pooled, abs=2e-3)  # one image in 400 is missing
    assert released.s_alpha == pytest.approx(ours.intra, abs=2e-3)


def test_the_draw_is_the_sampler_s_in_its_own_order():
    for ncl, seed in GRID:
        classes = released_draw(100, ncl, seed)
        assert tuple(sorted(classes)) == draw_subset(100, ncl, seed, "fca").classes
        assert 99 not in classes


def test_lists_grow_over_the_imagenet_grid_as_the_script_s_do():
    times_met = np.zeros(1000, int)
    range_by_ncl = {}
    for ncl in (2, 3, 4, 5, 10, 100):
        mean_lengths = []
        for seed in range(5):
            subset = list(released_draw(1000, ncl, seed))
            times_met[subset] += 1
            mean_lengths.append((50 * times_met[subset] - 1).mean())  # of 50 images a class, the first is skipped once
        range_by_ncl[ncl] = (round(min(mean_lengths)), round(max(mean_lengths)))
    # counted by replaying the script's list logic: entries a class, mean over the classes of a subset
    assert range_by_ncl == {
        2: (49, 49),
        3: (82, 82),
        4: (112, 112),
        5: (139, 139),
        10: (119, 119),
        100: (65, 80),
    }


@pytest.mark.parametrize(
    ("subset", "message"),
    [
        ((0,), r"classes of a subset = \[0\]; allowed: two or more"),
        ((0, 0), r"classes of a subset = \[0, 0\]"),
        ((0, 5), "images of class = 0 of 5; allowed: two images or more"),
        ((0, 1), "images of class = 1 of 1"),
    ],
)
def test_subsets_that_the_script_cannot_score_are_named(subset, message):
    with pytest.raises(FcaError, match=message):
        fca_released(np.eye(3), np.array([0, 0, 1]), [subset])
