import itertools

import numpy as np
import pytest

from fca.stats.features import fit_probe
from fca.studies.recommend.stats.nested_subsets import MOST_SHUFFLES, measure, nested_parts, possible_halvings
from fca.types import FcaError
from tests.support.clouds import clouds


def test_parts_are_nested_and_even_in_every_class_and_keep_groups_whole():
    labels = np.repeat([0, 1, 2], [16, 20, 9])
    groups = np.arange(45)
    groups[[1, 17, 18]] = 0, 16, 16  # the images 0 and 1 belong together, and 16 to 18
    divisions = nested_parts(labels, groups, 2, np.random.default_rng(0))

    for halving, part in enumerate(divisions):
        assert part[0] == part[1]
        assert part[16] == part[17] == part[18]
        per_class = np.array([np.bincount(part[labels == label], minlength=2**halving) for label in range(3)])
        assert (per_class.max(axis=1) - per_class.min(axis=1)).max() <= 3  # one group more, of three images
    for wide, narrow in itertools.pairwise(divisions):
        assert len(np.unique(np.stack([wide, narrow]), axis=1).T) == narrow.max() + 1  # of each part one above it


def test_every_image_is_judged_by_the_probes_that_have_not_seen_it():
    x, labels = clouds(24, 5, spread=3.0)
    val, val_labels = clouds(9, 5, spread=3.0, seed=1)
    subsets = measure(x, labels, val, val_labels, seed=7)

    right = [[] for _ in range(33)]
    for shuffle in range(MOST_SHUFFLES):
        part_of_image = nested_parts(labels, np.arange(24), 1, np.random.default_rng([7, shuffle]))[1]
        for part in range(2):
            rows = np.flatnonzero(part_of_image == part)
            probe = fit_probe(x[rows], labels[rows])
            for image in set(range(24)) - set(rows):
                right[image].append(probe.logits(x[[image]]).argmax() == labels[image])
            for at, image in enumerate(rows):
                right[image].append(probe.left_out[at].argmax() == labels[image])
            for image in range(9):
                right[24 + image].append(probe.logits(val[[image]]).argmax() == val_labels[image])

    assert subsets.judged.tolist() == list(range(33))
    assert subsets.fits.tolist() == [1, 8, 16]
    assert subsets.right[1] == pytest.approx([np.mean(of_image) for of_image in right], abs=1e-12)
    # half of the training images judge a probe of 12, the others that of 11 of them, validation images all 12
    assert subsets.sizes[1] == pytest.approx((12 * 12 + 12 * 11 + 9 * 12) / 33)


def test_more_images_give_a_better_probe():
    x, labels = clouds(400, 60, spread=5.0)
    accuracy = measure(x, labels, x[:0], labels[:0]).right.mean(axis=1)
    assert (np.diff(accuracy) < 0).all()


def test_copies_do_not_make_a_subset_look_accurate():
    rng = np.random.default_rng(0)
    x = np.repeat(rng.normal(size=(60, 200)), 2, axis=0)  # noise, each image twice
    labels, groups = np.repeat(np.arange(60) % 2, 2), np.repeat(np.arange(60), 2)
    grouped = measure(x, labels, x[:0], labels[:0], groups).right.mean(axis=1)
    alone = measure(x, labels, x[:0], labels[:0]).right.mean(axis=1)
    assert alone[0] > 0.9
    assert (grouped < 0.7).all()  # chance is 0.5, four standard errors of 60 groups above it 0.76


def test_a_class_that_cannot_be_halved_is_refused_with_its_number():
    labels = np.repeat([0, 1], [20, 3])
    with pytest.raises(FcaError, match="counted once = 3; allowed: 4 or more"):
        possible_halvings(labels, np.arange(23))


def test_of_many_images_not_every_part_is_fitted(monkeypatch):
    monkeypatch.setattr("fca.studies.recommend.stats.nested_subsets.DIVIDED_IMAGES", 80)
    x, labels = clouds(64, 5)
    subsets = measure(x, labels, x[:0], labels[:0])
    assert subsets.fits.tolist() == [1, 8, 8, 8]  # two parts in each of 4 shuffles
    assert np.isfinite(subsets.right).all()
