"""The learning curve of a linear probe: its accuracy with a half, a quarter and an eighth of its training images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, Integer, Num

from fca.stats.features import FOLDS, Features, Labels, Probe, fit_probe
from fca.types import FcaError

HALVINGS = 3  # down to an eighth of the images
FEWEST = 2  # groups of a class in every part
SHUFFLED_IMAGES = 500  # images fitted at each size, over all shuffles
MOST_SHUFFLES = 4
DIVIDED_IMAGES = 8000  # images fitted at each size; with more images, some parts are not fitted (but at least two are)

Groups = Integer[np.ndarray, " images"]


@dataclass(frozen=True)
class Subsets:
    """Predictions of probes of several sizes for the same images, each image by probes that were fitted without it.

    sizes:  images that a probe is fitted to, the mean over its predictions; the first is that of all images.
    fits:   probes of each size.
    judged: positions among the training images, then n_train + positions among the validation images.
    right:  share of the probes of a size that are right about an image.
    """

    sizes: Float[np.ndarray, " sizes"]
    fits: Int[np.ndarray, " sizes"]
    judged: Int[np.ndarray, " judged"]
    right: Float[np.ndarray, "sizes judged"]


def nested_parts(
    labels: Labels, groups: Groups, halvings: int, rng: np.random.Generator
) -> list[Int[np.ndarray, " images"]]:
    """The number of the part that each image is in, for the division into 1, 2, 4, ... 2^halvings parts.

    Parts share no image, every class is divided evenly, and a part of one division lies within a part of the one
    before. Groups stay whole, in the class of their first image.

    >>> one, two = nested_parts(np.array([0, 0, 1, 1]), np.arange(4), 1, np.random.default_rng(0))
    >>> one.tolist(), np.bincount(two).tolist()
    ([0, 0, 0, 0], [2, 2])
    """
    # for each group the position of its first image, for each image the position of its group
    _, first_image, group_of_image = np.unique(groups, return_index=True, return_inverse=True)
    label_of_group = labels[first_image]

    rank = np.empty(len(first_image), np.int64)  # of each group among those of its class, in random order
    for label in np.unique(label_of_group):
        groups_of_class = np.flatnonzero(label_of_group == label)
        rank[rng.permutation(groups_of_class)] = np.arange(len(groups_of_class))

    # remainders nest: groups with the same rank modulo 4 have the same rank modulo 2
    return [rank[group_of_image] % 2**halving for halving in range(halvings + 1)]


def possible_halvings(labels: Labels, groups: Groups) -> int:
    """How often the images can be halved, at most HALVINGS times, so that every part has FEWEST groups of each class.

    labels: 0 to classes - 1, for each image.
    groups: number of each image's group. Images of one group stay together in a part, and count as one image, of the
            class of the first of them.
    Raises FcaError if the images cannot be halved even once.

    >>> possible_halvings(np.repeat([0, 1], 10), np.arange(20))
    2
    """
    first_image_of_group = np.unique(groups, return_index=True)[1]
    n_classes = int(labels.max()) + 1
    groups_by_class = np.bincount(labels[first_image_of_group], minlength=n_classes)
    fewest = int(groups_by_class.min())
    if fewest < 2 * FEWEST:
        what = "training images of the smallest class, those that belong together counted once"
        raise FcaError(what, fewest, f"{2 * FEWEST} or more, to halve them", "add images of that class")
    return min(HALVINGS, int(np.log2(fewest / FEWEST)))


def measure(
    features: Features,
    labels: Labels,
    val_features: Num[np.ndarray, "val features"],
    val_labels: Integer[np.ndarray, " val"],
    groups: Groups | None = None,
    seed: int = 0,
) -> Subsets:
    """Fit the probe of `fit_probe` to all training images, and to nested halves, quarters and eighths of them.

    The same images judge the probes of all sizes: validation images, which all probes predict, and about
    fca.stats.features.MAX_LEFT_OUT training images. Such a training image is predicted by the probe of each part that
    it is not in. For the part that it is in, it is predicted by another fit, to the part without its fold of images.

    features, labels: of the training images; labels are 0 to classes - 1.
    groups: images with the same number are left out together; None: each image by itself.    seed: of the parts.
    Raises FcaError for a class of fewer than four groups.

    >>> rng = np.random.default_rng(0)
    >>> labels = np.repeat([0, 1], 40)
    >>> x = np.eye(2)[labels] + 0.4 * rng.normal(size=(80, 2))
    >>> subsets = measure(x, labels, x[:0], labels[:0])
    >>> subsets.fits.tolist(), subsets.right.shape
    ([1, 8, 16, 32], (4, 80))
    """
    if groups is None:
        groups = np.arange(len(labels))
    halvings = possible_halvings(labels, groups)
    # A shuffle divides all images anew into parts of each size. With few images there are several shuffles, so that
    # about SHUFFLED_IMAGES images are fitted at each size
    shuffles = int(np.clip(SHUFFLED_IMAGES // len(labels), 1, MOST_SHUFFLES))
    probe_of_all = fit_probe(features, labels, groups)

    # training images first, then validation images
    all_features = np.concatenate([features, val_features])
    all_labels = np.concatenate([labels, val_labels])
    judged = np.concatenate([probe_of_all.judged, len(labels) + np.arange(len(val_labels))])

    n_right = np.zeros((halvings + 1, len(judged)))
    n_predicted = np.zeros_like(n_right)
    sum_of_sizes = np.zeros(halvings + 1)
    fits = np.zeros(halvings + 1, np.int64)
    # halving: how often the images were halved to get a part, 0 for all of them; rows: positions of its images
    for halving, rows in _parts(labels, groups, halvings, shuffles, seed):
        is_all = len(rows) == len(labels)
        probe = probe_of_all if is_all else fit_probe(features[rows], labels[rows], groups[rows])

        predicted, n_fitted = _predictions(probe, rows, all_features, judged)
        is_predicted = predicted >= 0  # -1: an image of this part that no fit left out
        n_right[halving] += is_predicted & (predicted == all_labels[judged])
        n_predicted[halving] += is_predicted
        sum_of_sizes[halving] += n_fitted[is_predicted].sum()
        fits[halving] += 1
    sizes = sum_of_sizes / n_predicted.sum(axis=1)  # mean number of images to which a predicting probe was fitted
    return Subsets(sizes, fits, judged, n_right / n_predicted)


def _parts(
    labels: Labels, groups: Groups, halvings: int, shuffles: int, seed: int
) -> Iterator[tuple[int, Int[np.ndarray, " rows"]]]:
    """For every part to which a probe is fitted: how often the images were halved, and the positions of its images.

    All images together come first, as a part of no halving. Then the images are divided anew in every shuffle. With
    many images only two parts of a size are used: each image is outside of one of them, and a fit takes seconds.
    """
    yield 0, np.arange(len(labels))

    most_parts = max(2, DIVIDED_IMAGES // len(labels))
    for shuffle in range(shuffles):
        part_by_halving = nested_parts(labels, groups, halvings, np.random.default_rng([seed, shuffle]))
        for halving in range(1, halvings + 1):
            for part in range(min(2**halving, most_parts)):
                yield halving, np.flatnonzero(part_by_halving[halving] == part)


def _predictions(
    probe: Probe,
    rows: Int[np.ndarray, " rows"],
    features: Num[np.ndarray, "all_images features"],
    judged: Int[np.ndarray, " judged"],
) -> tuple[Int[np.ndarray, " judged"], Float[np.ndarray, " judged"]]:
    """The predicted class of each judged image, and the number of images to which the predicting probe was fitted.

    rows:     positions of the images to which the probe was fitted.
    features: of all images, training images first.
    judged:   positions of the images to predict.

    The probe also has outputs of cross-validation: for each of FOLDS folds of its images, by a fit to the others. These
    predict the judged images to which the probe was fitted. The class of such an image is -1 if no fold has it.
    """
    predicted = probe.logits(features[judged]).argmax(axis=1)
    n_fitted = np.full(len(judged), float(len(rows)))

    # by position among all images; probe.judged: positions among `rows` of the images that a fold left out
    left_out_class = np.full(len(features), -1)
    left_out_class[rows[probe.judged]] = probe.left_out.argmax(axis=1)
    is_fitted: Bool[np.ndarray, " judged"] = np.isin(judged, rows)
    predicted[is_fitted] = left_out_class[judged[is_fitted]]
    share_without_one_fold = 1 - 1 / min(FOLDS, len(rows))  # of `rows`, to which the fit without a fold was fitted
    n_fitted[is_fitted] *= share_without_one_fold
    return predicted, n_fitted
