"""Predictors against loops, refitting, and direct maximisation, and against what may not change them."""

import time

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.metrics import pairwise_distances, silhouette_samples
from sklearn.preprocessing import normalize

from fca.stats.features import RIDGE_PENALTIES, cosine_silhouette, knn_top1, logme, probe_top1, sample_rows, separation
from fca.stats.similarity import similarity_scores
from fca.types import FcaError

SCORES = (cosine_silhouette, knn_top1, probe_top1, logme)
every_score = pytest.mark.parametrize("score", SCORES, ids=lambda score: score.__name__)


def images(seed, classes=3, per_class=8, size=5, spread=1.0):
    """Features around a centre a class, under labels with holes, in any order."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(rng.choice(50, classes, replace=False), per_class))
    centres = rng.normal(size=(50, size))
    return centres[labels] + spread * rng.normal(size=(len(labels), size)) + 0.5, labels


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_silhouette_equals_the_definition(seed):
    features, labels = images(seed)
    distance = pairwise_distances(features, metric="cosine")
    silhouettes = []
    for i, label in enumerate(labels):
        is_another_image = np.arange(len(labels)) != i
        mean_distance = {c: distance[i, (labels == c) & is_another_image].mean() for c in set(labels.tolist())}
        a = mean_distance[label]
        b = min(mean_distance[c] for c in mean_distance if c != label)
        silhouettes.append((b - a) / max(a, b))
    score = cosine_silhouette(features, labels)
    assert score == pytest.approx(np.mean(silhouettes), abs=1e-10)
    assert score == pytest.approx(silhouette_samples(features, labels, metric="cosine").mean())


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 10**6), neighbours=st.integers(1, 7))
def test_knn_equals_a_vote_counted_image_by_image(seed, neighbours):
    features, labels = images(seed)
    units = normalize(features)
    right = []
    for i, unit in enumerate(units):
        nearest_first = np.argsort(-(units @ unit)).tolist()
        nearest_first.remove(i)
        votes = [labels[j] for j in nearest_first[:neighbours]]
        highest_count = max(votes.count(c) for c in votes)
        predicted = next(c for c in votes if votes.count(c) == highest_count)  # of equals, the nearest
        right.append(predicted == labels[i])
    assert knn_top1(features, labels, neighbours) == np.mean(right)


@settings(deadline=None, max_examples=3)
@given(seed=st.integers(0, 10**6), classes=st.sampled_from([2, 3]))
def test_the_probe_left_out_equals_refitting_without_each_image(seed, classes):
    features, labels = images(seed, classes=classes)
    units = normalize(features)
    targets = (labels[:, None] == np.unique(labels)).astype(float)
    outputs = np.empty((len(RIDGE_PENALTIES), *targets.shape))
    for number, penalty in enumerate(RIDGE_PENALTIES):
        for i in range(len(labels)):
            is_another_image = np.arange(len(labels)) != i
            ridge = Ridge(penalty).fit(units[is_another_image], targets[is_another_image])
            outputs[number, i] = ridge.predict(units[i : i + 1])[0]

    best = ((outputs - targets) ** 2).mean(axis=(1, 2)).argmin()
    expected = (outputs[best].argmax(axis=1) == targets.argmax(axis=1)).mean()
    assert probe_top1(features, labels) == pytest.approx(expected, abs=1e-12)


@pytest.mark.wide
@pytest.mark.parametrize(
    ("per_class", "size", "scale"), [(20, 5, 1.0), (6, 40, 30.0)], ids=["more images", "more features"]
)
def test_logme_is_the_greatest_evidence_that_direct_search_finds(per_class, size, scale):
    features, labels = images(3, per_class=per_class, size=size)
    features *= scale
    n = len(labels)

    def greatest_evidence(y):
        def loss(logs):  # logarithms of a and b
            covariance = features @ features.T * np.exp(-logs[0]) + np.exp(-logs[1]) * np.eye(n)
            return -scipy.stats.multivariate_normal(cov=covariance, allow_singular=True).logpdf(y) / n

        starts = [(np.log(a * scale**2), np.log(b)) for a in (0.1, 10) for b in (1, 30)]
        return max(-scipy.optimize.minimize(loss, start, method="Nelder-Mead").fun for start in starts)

    evidences = [greatest_evidence((labels == c).astype(float)) for c in np.unique(labels)]
    assert logme(features, labels) == pytest.approx(np.mean(evidences), abs=1e-4)  # where Nelder-Mead stops


def test_logme_equals_the_published_update_written_out_with_matrices():
    features, labels = images(5, per_class=15)
    n, size = features.shape
    gram = features.T @ features
    evidences = []
    for c in np.unique(labels):
        y = (labels == c).astype(float)
        alpha = beta = 1.0
        for _ in range(500):
            a = alpha * np.eye(size) + beta * gram
            mean = beta * np.linalg.solve(a, features.T @ y)
            gamma = beta * np.trace(np.linalg.solve(a, gram))
            residual = ((features @ mean - y) ** 2).sum()
            alpha = gamma / (mean @ mean)
            beta = (n - gamma) / residual

        _, log_determinant = np.linalg.slogdet(a)
        log_evidence = size * np.log(alpha) + n * np.log(beta) - n * np.log(2 * np.pi) - log_determinant
        log_evidence -= beta * residual + alpha * mean @ mean
        evidences.append(log_evidence / 2 / n)
    assert logme(features, labels) == pytest.approx(np.mean(evidences), abs=1e-8)


def test_logme_of_features_that_tell_the_classes_without_noise_is_finite_and_high():
    labels = np.repeat([0, 1, 2], 10)
    assert 2 < logme(np.eye(3)[labels], labels) < 100


@every_score
def test_closer_classes_are_harder_for_every_predictor(score):
    means = []
    for spread in (0.2, 1.0, 4.0):
        scores = [score(*images(seed, per_class=20, spread=spread)) for seed in range(3)]
        means.append(np.mean(scores))
    assert means == sorted(means, reverse=True)


@every_score
@settings(deadline=None, max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_neither_order_nor_names_nor_the_scale_of_features_change_a_predictor(score, seed):
    features, labels = images(seed)
    order = np.random.default_rng(seed).permutation(len(labels))
    again = score(7 * features[order], 1000 - labels[order])
    assert again == pytest.approx(score(features, labels), abs=1e-6)


def test_separation_is_half_the_difference_of_mean_cosines():
    features, labels = images(1)
    units = normalize(features)
    cosine = units @ units.T
    off = ~np.eye(len(labels), dtype=bool)
    same = labels[:, None] == labels[None, :]  # classes of one size, so that means of means are means
    expected = (cosine[same & off].mean() - cosine[~same].mean()) / 2
    scores = similarity_scores(features, labels)
    assert separation(scores.intra, scores.inter) == pytest.approx(expected, abs=1e-12)


def test_a_sample_has_as_many_images_of_every_class_and_is_nested():
    labels = np.random.default_rng(0).permutation(np.repeat([4, 9, 11], [50, 3, 80]))

    def sampled_images_by_class(images):
        sampled_labels = labels[sample_rows(labels, images=images)]
        return [(sampled_labels == c).sum() for c in (4, 9, 11)]

    assert sampled_images_by_class(60) == [20, 3, 20]
    assert sampled_images_by_class(1) == [2, 2, 2]

    rows = sample_rows(labels, images=60)
    assert (np.diff(rows) > 0).all()
    assert set(sample_rows(labels, images=12)) < set(rows)
    assert set(sample_rows(labels, images=12, seed=1)) != set(sample_rows(labels, images=12))

    rows_of_class = np.flatnonzero(labels == 4)
    sampled_alone = rows_of_class[sample_rows(labels[rows_of_class], 20)]
    assert set(rows[labels[rows] == 4]) == set(sampled_alone), "the draw of a class does not depend on other classes"


def test_few_images_are_all_taken():
    assert sample_rows(np.array([0, 1, 0, 1, 1]), images=10).tolist() == [0, 1, 2, 3, 4]


@every_score
def test_what_cannot_be_compared_is_refused_by_name(score):
    features, labels = images(0)
    with pytest.raises(FcaError, match="number of classes = 1; allowed: 2 or more"):
        score(features[:4], np.zeros(4, dtype=int))
    with pytest.raises(FcaError, match="number of classes = 0"):
        score(features[:0], labels[:0])
    with pytest.raises(FcaError, match="class with one image = 7"):
        score(features[:5], np.array([1, 1, 2, 2, 7]))
    features[3] = 0
    features[5, 1] = np.nan
    with pytest.raises(FcaError, match="features of image = 3, 5"):
        score(features, labels)


def test_a_subset_of_five_classes_is_scored_in_a_fraction_of_a_second():
    features, labels = images(0, classes=5, per_class=1000, size=512)
    begin = time.process_time()
    rows = sample_rows(labels)
    for score in SCORES:
        score(features[rows], labels[rows])
    assert time.process_time() - begin < 3  # 0.2 s on an idle core
