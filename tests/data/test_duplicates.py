import itertools

import numpy as np
import pytest

from fca.data.arrays import Digits
from fca.data.duplicates import exact_pairs, near_pairs, perceptual_hashes, signature
from fca.data.splits import Share
from tests.support.copied_images import COPIES, again, crops
from tests.support.trees import VAL


def pairs_of(images):
    sides = np.array([min(image.shape[:2]) for image in images])
    return near_pairs(np.stack([signature(image) for image in images]), sides)


@pytest.mark.wide
@pytest.mark.parametrize("side", [32, 64])
@pytest.mark.parametrize("copy", COPIES)
def test_planted_copies_are_found_and_nothing_else(copy, side):
    images = crops(side, 40)
    found = pairs_of([*images, *(COPIES[copy](image) for image in images)])
    planted = [(i, i + len(images)) for i in range(len(images))]
    assert len(images) == 40
    assert set(map(tuple, found.tolist())) <= set(planted)
    assert len(found) >= 38  # 95 %


def test_pictures_compare_the_same_in_either_order():
    images = crops(32, 10)
    copies = [COPIES["half size"](image) for image in images]
    there, back = pairs_of([*images, *copies]), pairs_of([*copies, *images])
    assert there.tolist() == back.tolist() == [[i, i + 10] for i in range(10)]


def test_different_scans_of_one_digit_are_not_copies():
    data = Digits("1", Share(0.2, 0), VAL).load()
    ones = [data.read(row) for row in np.flatnonzero(data.labels == 1).tolist()]
    assert len(pairs_of(ones)) == 0
    assert pairs_of([*ones[:50], again(ones[7], "JPEG", 50)]).tolist() == [[7, 50]]


def test_flat_pictures_match_nothing():
    flat = [np.full((32, 32, 3), value, np.uint8) for value in (0, 0, 255, 128)]
    assert len(pairs_of(flat)) == 0


def test_blocks_do_not_lose_or_repeat_pairs(monkeypatch):
    images = crops(32, 20)
    all_images = [*images, *images, *images]
    whole = pairs_of(all_images)
    monkeypatch.setattr("fca.data.duplicates.BLOCK", 7)
    parts = pairs_of(all_images)
    assert sorted(map(tuple, parts.tolist())) == sorted(map(tuple, whole.tolist()))
    assert len(whole) == 20 * 3


def test_exact_pairs_are_all_pairs_of_equals():
    digests = [b"a", b"b", b"a", b"c", b"b", b"a"]
    brute = [[i, j] for i, j in itertools.combinations(range(6), 2) if digests[i] == digests[j]]
    assert sorted(exact_pairs(digests).tolist()) == brute
    assert exact_pairs([b"a", b"b"]).shape == (0, 2)


def test_hashes_of_copies_differ_in_few_bits_and_those_of_others_in_many():
    images = crops(64, 40)
    hashes = perceptual_hashes(np.stack([signature(image) for image in images]))
    copied = perceptual_hashes(np.stack([signature(again(image, "JPEG", 50)) for image in images]))
    assert np.bitwise_count(hashes ^ copied).max() <= 8
    others = np.bitwise_count(hashes[:, None] ^ hashes[None])[~np.eye(40, dtype=bool)]
    assert np.median(others) > 24
