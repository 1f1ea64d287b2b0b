import threading

import numpy as np
import pytest
import torch

from fca.training import batches as module
from fca.training.batches import Batches, Examples, read_ahead
from fca.types import UnreadableImage
from tests.training.tiny import examples

CPU = torch.device("cpu")


def rows_shown(loader, epoch):
    loader.epoch = epoch
    return [tuple(batch.images[:, 0, 0].flatten().tolist()) for batch in loader]


def numbered(n):
    """Image i has i in its first byte."""
    pixels = np.zeros((n, 2, 2, 3), np.uint8)
    pixels[:, 0, 0, 0] = np.arange(n)
    return Examples(pixels, np.arange(n), np.arange(n) % 7)


def test_an_epoch_shows_every_image_once_with_its_own_label_in_nearly_equal_batches():
    loader = Batches(numbered(65), 16, CPU, seed=0)
    seen = [(int(i), int(y)) for batch in loader for i, y in zip(batch.images[:, 0, 0, 0], batch.labels, strict=True)]
    assert sorted(seen) == [(i, i % 7) for i in range(65)]
    assert [len(batch.labels) for batch in loader] == [13] * 5
    assert len(loader) == 5


def test_order_and_draws_follow_from_seed_and_epoch_alone():
    one, two = (Batches(numbered(40), 8, CPU, seed=3, draws=2) for _ in range(2))
    late = rows_shown(one, 5)
    assert rows_shown(two, 0) != late
    assert rows_shown(two, 5) == late
    assert rows_shown(Batches(numbered(40), 8, CPU, seed=4, draws=2), 5) != late
    one.epoch = two.epoch = 2
    for a, b in zip(one, two, strict=True):
        torch.testing.assert_close(a.draws, b.draws, atol=0, rtol=0)
        assert a.draws.shape == (8, 2)


def test_augmentation_does_not_change_the_order():
    assert rows_shown(Batches(numbered(40), 8, CPU, 0, draws=0), 1) == rows_shown(
        Batches(numbered(40), 8, CPU, 0, 2), 1
    )


def test_a_set_too_large_to_hold_gives_the_same_batches_read_as_they_come(monkeypatch):
    held = Batches(examples(50), 16, CPU, seed=1)
    monkeypatch.setattr(module, "HELD_BYTES", 100)
    streamed = Batches(examples(50), 16, CPU, seed=1)
    assert held.held is not None
    assert streamed.held is None
    for a, b in zip(held, streamed, strict=True):
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
