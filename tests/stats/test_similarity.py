"""Similarity scores against pairs counted one by one, and against what may not change them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fca.stats.similarity import class_similarity, similarity_scores, subset_scores
from fca.types import FcaError

EXACT = 1e-6  # the promise; float64 keeps about 1e-14


@st.composite
def labelled_features(draw, classes=(2, 5)):
    """Images of unequal classes, in any order, under labels with holes."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    names = rng.choice(100, size=draw(st.integers(*classes)), replace=False)
    labels = rng.permutation(np.concatenate([np.full(rng.integers(2, 9), name) for name in names]))
    return rng.normal(size=(len(labels), draw(st.integers(2, 6)))) + draw(st.floats(-1, 1)), labels


def pairwise(z, labels):
    """Eqs. 1 to 4 as published: every pair of images by itself."""
    images = range(len(z))
    classes = sorted(set(labels.tolist()))
    members = {c: [i for i in images if labels[i] == c] for c in classes}

    sim = np.empty((len(z), len(z)))
    for i, j in itertools.product(images, images):
        cosine = np.dot(z[i], z[j]) / np.sqrt(np.dot(z[i], z[i]) * np.dot(z[j], z[j]))
        sim[i, j] = (cosine + 1) / 2

    to_own, to_nearest = [], []
    for i in images:
        to_own.append(np.mean([sim[i, j] for j in members[labels[i]] if j != i]))
        to_nearest.append(max(np.mean(sim[i, members[c]]) for c in classes if c != labels[i]))
    silhouettes = [(a - b) / max(a, b) for a, b in zip(to_own, to_nearest, strict=True)]

    def mean_of_class_means(values):
        return np.mean([np.mean([values[i] for i in members[c]]) for c in classes])

    within_classes = [[sim[i, j] for i, j in itertools.combinations(members[c], 2)] for c in classes]
    between_classes = [sim[np.ix_(members[a], members[b])] for a, b in itertools.combinations(classes, 2)]
    return {
        "intra": np.mean([np.mean(similarities) for similarities in within_classes]),
        "inter": np.mean([np.mean(similarities) for similarities in between_classes]),
        "nearest_inter": mean_of_class_means(to_nearest),
        "simss": mean_of_class_means(silhouettes),
        "simss_pooled": np.mean(silhouettes),
    }


@settings(deadline=None, max_examples=40)
@given(labelled_features())
def test_the_closed_form_equals_the_double_loop(drawn):
    features, labels = drawn
    assert similarity_scores(features, labels)._asdict() == pytest.approx(pairwise(features, labels), abs=EXACT)


@settings(deadline=None, max_examples=20)
@given(labelled_features(classes=(3, 6)), st.data())
def test_a_subset_scores_as_its_images_alone(drawn, data):
    features, labels = drawn
    classes = np.array(data.draw(st.lists(st.sampled_from(sorted(set(labels.tolist()))), min_size=2, unique=True)))
    inside = np.isin(labels, classes)
    alone = similarity_scores(features[inside], labels[inside])
    assert subset_scores(class_similarity(features, labels), labels, classes) == pytest.approx(alone, abs=1e-12)


@settings(deadline=None, max_examples=20)
@given(labelled_features(), st.integers(0, 1000))
def test_order_scale_and_rotation_change_nothing(drawn, seed):
    features, labels = drawn
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    rotation = np.linalg.qr(rng.normal(size=(features.shape[1],) * 2))[0]
    scale = rng.uniform(1e-3, 1e3, size=(len(labels), 1))
    moved = similarity_scores(((features * scale) @ rotation)[order], labels[order])
    assert moved == pytest.approx(similarity_scores(features, labels), abs=1e-9)


@settings(deadline=None, max_examples=20)
@given(labelled_features())
def test_scores_stay_in_their_ranges(drawn):
    features, labels = drawn
    similarity = class_similarity(features, labels)
    assert ((similarity >= 0) & (similarity <= 1)).all()
    scores = similarity_scores(features, labels)
    assert all(0 <= s <= 1 for s in scores[:3])
    assert -1 <= scores.simss <= 1
    assert scores.nearest_inter >= scores.inter - 1e-12


def test_the_class_mean_of_an_image_leaves_the_image_out():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [-1.0, 0.0]])
    similarity = class_similarity(features, np.array([3, 3, 9, 9]))
    assert similarity == pytest.approx(np.array([[0.5, 0.5], [0.5, 0.5], [0.75, 0.0], [0.25, 0.0]]))


def test_large_classes_weigh_more_in_the_pooled_score_only():
    features = np.array([[1.0, 0.0]] * 2 + [[0.0, 1.0], [0.0, -1.0]] * 10)
    scores = similarity_scores(features, np.array([0] * 2 + [1] * 20))
    tight, loose = 0.5, (9 / 19 - 0.5) / 0.5  # by hand: a = 1, b = 1/2; a = 9/19 (9 alike, 10 opposite), b = 1/2
    assert scores.simss == pytest.approx((tight + loose) / 2)
    assert scores.simss_pooled == pytest.approx((2 * tight + 20 * loose) / 22)


def test_an_image_opposite_to_all_others_scores_zero():
    features = np.array([[1.0], [-1.0], [-1.0], [-1.0]]) * [0.3, 0.1, 0.7]
    scores = similarity_scores(features, np.array([0, 0, 1, 1]))
    assert scores.simss_pooled == pytest.approx((0 - 1 + 0.5 + 0.5) / 4)


def test_half_precision_is_computed_in_double():
    rng = np.random.default_rng(0)
    features, labels = (40 * rng.normal(size=(60, 300))).astype(np.float16), np.arange(60) % 4
    in_double = similarity_scores(features.astype(np.float64), labels)
    assert similarity_scores(features, labels) == pytest.approx(in_double, abs=1e-12)
    assert similarity_scores(features.astype(np.float32), labels.astype(np.int8)) == pytest.approx(in_double, abs=1e-12)


def test_the_features_are_not_changed():
    features = np.arange(8.0).reshape(4, 2)
    similarity_scores(features, np.array([0, 0, 1, 1]))
    assert (features == np.arange(8.0).reshape(4, 2)).all()


def test_subset_scores_leave_the_matrix_as_it_was():
    features = np.random.default_rng(0).normal(size=(9, 3))
    labels = np.arange(9) % 3
    similarity = class_similarity(features, labels)
    unchanged = similarity.copy()
    subset_scores(similarity, labels, np.array([0, 1, 2]))
    assert (similarity == unchanged).all()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 0, 17, 5, 5], "class with one image = 17; allowed: two images or more"),
        ([4, 4, 4, 4, 4], "number of classes = 1; allowed: 2 or more"),
    ],
)
def test_classes_that_cannot_be_compared_are_named(labels, message):
    with pytest.raises(FcaError, match=message):
        similarity_scores(np.eye(5), np.array(labels))


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
def test_images_without_usable_features_are_named(value):
    features = np.ones((6, 2))
    features[3] = value
    with pytest.raises(FcaError, match="features of image = 3; allowed: finite"):
        similarity_scores(features, np.array([0, 0, 0, 1, 1, 1]))


def test_a_subset_names_the_class_that_has_no_image():
    labels = np.array([0, 0, 1, 1])
    with pytest.raises(FcaError, match="class = 8; allowed: the 2 labels"):
        subset_scores(class_similarity(np.eye(4), labels), labels, np.array([0, 8]))
    with pytest.raises(FcaError, match="number of classes = 1"):
        subset_scores(class_similarity(np.eye(4), labels), labels, np.array([0]))
