import threading

import numpy as np
import pytest
import torch

from fca.training import batches as module
from fca.training.augment import Augment
from fca.training.batches import DRAWS_PER_IMAGE, Batches, Examples, epoch_rng, read_ahead
from fca.types import FcaError, Packed, UnreadableImage
from tests.support.numbered_images import CPU, numbered
from tests.support.tiny import examples, recipe


def rows_shown(loader, epoch):
    loader.epoch = epoch
    return [tuple(batch.images[:, 0, 0].flatten().tolist()) for batch in loader]


def test_an_epoch_shows_every_image_once_with_its_own_label_in_nearly_equal_batches():
    loader = Batches(numbered(65), 16, CPU, seed=0)
    seen = [(int(i), int(y)) for batch in loader for i, y in zip(batch.images[:, 0, 0, 0], batch.labels, strict=True)]
    assert sorted(seen) == [(i, i % 7) for i in range(65)]
    assert [len(batch.labels) for batch in loader] == [13] * 5
    assert len(loader) == 5


def test_order_and_draws_follow_from_seed_and_epoch_alone():
    flips = recipe(flip=True)
    one, two = (Batches(numbered(40), 8, CPU, 3, flips) for _ in range(2))
    late = rows_shown(one, 5)
    assert rows_shown(two, 0) != late
    assert rows_shown(two, 5) == late
    assert rows_shown(Batches(numbered(40), 8, CPU, 4, flips), 5) != late
    one.epoch = two.epoch = 2
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a.draws, b.draws, atol=0, rtol=0)
        assert a.draws.shape == (8, DRAWS_PER_IMAGE)


def test_order_and_draws_are_those_of_all_runs_before_passes_and_repeats():
    loader = Batches(numbered(40), 16, CPU, 3, recipe(flip=True))
    loader.epoch = 2
    rng = epoch_rng(3, 2)
    order = rng.permutation(40)
    draws = rng.random((40, DRAWS_PER_IMAGE), dtype=np.float32)
    shown = list(loader)
    np.testing.assert_array_equal(torch.cat([batch.images[:, 0, 0, 0] for batch in shown]), order)
    np.testing.assert_array_equal(torch.cat([batch.draws for batch in shown]), draws[order])


def test_augmentation_does_not_change_the_order():
    changed = recipe(flip=True, augment=Augment("randaugment", 2, 9, 0.3, 0.5))
    plain, augmented = (rows_shown(Batches(numbered(40), 8, CPU, 0, r), 1) for r in (recipe(), changed))
    assert plain == augmented


def test_every_pass_of_an_epoch_shows_all_images_in_another_order():
    loader = Batches(numbered(30), 8, CPU, 0, recipe(passes=3, flip=True))
    batches = list(loader)
    shown = np.concatenate([batch.images[:, 0, 0, 0] for batch in batches]).reshape(3, 30)
    assert len(loader) == len(batches) == 3 * 4
    assert {len(batch.labels) for batch in batches} == {7, 8}
    assert all(sorted(part) == list(range(30)) for part in shown.tolist())
    assert len({tuple(part) for part in shown.tolist()}) == 3
    assert len(np.unique(torch.cat([batch.draws for batch in batches])[:, 0])) == 90


def test_repeats_show_a_share_of_the_images_several_times_by_other_numbers_in_an_epoch_as_long():
    loader = Batches(numbered(30), 10, CPU, 0, recipe(repeats=3, flip=True))
    batches = list(loader)
    shown = np.concatenate([batch.images[:, 0, 0, 0] for batch in batches])
    assert np.unique(shown, return_counts=True)[1].tolist() == [3] * 10
    assert [len(batch.labels) for batch in batches] == [10] * 3
    assert len(np.unique(torch.cat([batch.draws for batch in batches])[:, 0])) == 30


class Photos:
    """Originals of any shapes, in memory; `reads` counts what was read."""

    def __init__(self, photos):
        self.photos = photos
        self.reads = []

    def __getitem__(self, rows):
        self.reads.append(len(rows))
        chosen = [self.photos[row] for row in rows]
        sides = np.array([photo.shape[:2] for photo in chosen])
        return Packed(np.concatenate([photo.reshape(-1, 3) for photo in chosen]), sides[:, 0], sides[:, 1])


SIDES = [(9, 31), (40, 8), (13, 13), (17, 29), (64, 11), (8, 9), (21, 22)]


def photos(n):
    """Noise of odd shapes."""
    rng = np.random.default_rng(0)
    shown = [rng.integers(0, 256, (*sides, 3), dtype=np.uint8) for sides in SIDES]
    pixels = np.zeros((len(SIDES), 8, 8, 3), np.uint8)
    rows = np.arange(n) % len(SIDES)
    return Examples(pixels, rows, rows, Photos(shown))


CROPS = {"scale_min": 0.3, "crop_from": "original", "flip": True, "augment": Augment("trivial", 0, 0, 0.4, 0.5)}


def test_crops_are_the_same_bits_held_or_streamed_and_in_every_process(monkeypatch):
    preloaded = Batches(photos(50), 16, CPU, 1, recipe(**CROPS))
    assert len(preloaded.preloaded.pixels) == sum(a * b for a, b in SIDES) * 7 + 9 * 31
    monkeypatch.setattr(module, "PRELOAD_BYTES", 100)
    streamed = Batches(photos(50), 16, CPU, 1, recipe(**CROPS))
    assert streamed.preloaded is None
    halves = [Batches(photos(50), 16, CPU, 1, recipe(**CROPS), rank=rank, world=2) for rank in (0, 1)]
    halves[1].examples.originals.reads.clear()
    for a, b, *split in zip(preloaded, streamed, *halves, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        assert all(map(np.array_equal, a.changes, b.changes))
        for rank, part in enumerate(split):
            assert torch.equal(part.images, a.images[rank::2])
            assert torch.equal(part.labels, a.labels[rank::2])
            assert all(np.array_equal(x, y[rank::2]) for x, y in zip(part.changes, a.changes, strict=True))
    assert sum(halves[1].examples.originals.reads) == 24  # its own images alone are read


def test_images_as_stored_are_split_among_processes_without_loss():
    parts = [list(Batches(numbered(41), 10, CPU, 2, recipe(flip=True), rank=rank, world=3)) for rank in range(3)]
    whole = list(Batches(numbered(41), 10, CPU, 2, recipe(flip=True)))
    for batch, *split in zip(whole, *parts, strict=True):
        assert [len(part.labels) for part in split] == [3] * 3 or len(batch.labels) == 8
        for rank, part in enumerate(split):
            assert torch.equal(part.images, batch.images[rank::3])
            assert torch.equal(part.draws, batch.draws[rank::3])


def test_a_training_crop_can_show_every_corner_of_a_photo_that_is_not_square():
    photo = np.zeros((24, 36, 3), np.uint8)
    corners = {(0, 0): 60, (0, -1): 120, (-1, 0): 180, (-1, -1): 240}
    for (y, x), value in corners.items():
        photo[y * 3 :, x * 3 :][:3, :3] = value
    rows = np.zeros(300, int)
    shown = Examples(np.zeros((1, 8, 8, 3), np.uint8), rows, rows, Photos([photo]))
    (batch,) = Batches(shown, 300, CPU, 0, recipe(scale_min=0.5, crop_from="original"))
    for (y, x), value in corners.items():
        assert value in batch.images[:, y, x]  # a crop at most three times as large shows 3 pixels of its edge as one


def test_crops_of_originals_that_are_not_there_stop_with_the_way_out():
    with pytest.raises(FcaError, match=r"recipe\.crop_from = original; allowed: input"):
        Batches(examples(20), 8, CPU, 0, recipe(scale_min=0.5, crop_from="original"))


def test_a_set_too_large_to_hold_gives_the_same_batches_read_as_they_come(monkeypatch):
    preloaded = Batches(examples(50), 16, CPU, seed=1)
    monkeypatch.setattr(module, "PRELOAD_BYTES", 100)
    streamed = Batches(examples(50), 16, CPU, seed=1)
    assert preloaded.preloaded is not None
    assert streamed.preloaded is None
    for a, b in zip(preloaded, streamed, strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)


def test_without_a_seed_images_come_in_their_own_order():
    assert [row[0] for batch in rows_shown(Batches(numbered(9), 4, CPU), 0) for row in [batch]] == [0, 3, 6]


def test_reading_runs_ahead_in_one_thread_but_not_far():
    reads, names = [], set()

    def read(part):
        reads.append(part)
        names.add(threading.current_thread().name)
        return part

    answers = read_ahead(read, range(10), ahead=2)
    assert next(answers) == 0
    answers.close()
    assert len(reads) <= 3
    assert len(names) == 1
    assert list(read_ahead(read, range(10))) == list(range(10))


def test_an_unreadable_image_stops_the_batch_that_needs_it():
    def read(part):
        if part == 2:
            raise UnreadableImage("cat/7.png cannot be decoded")
        return part

    answers = read_ahead(read, range(5))
    assert [next(answers), next(answers)] == [0, 1]
    with pytest.raises(UnreadableImage, match=r"cat/7\.png"):
        next(answers)
