"""Whether a set has images above 96 pixels: read as little as possible, remembered where all had to be read."""

from dataclasses import replace

import numpy as np
import pytest

from fca.data import sizes
from fca.data.sizes import any_above_reference
from fca.types import UnreadableImage
from tests.support.photographs import data_of


@pytest.fixture(autouse=True)
def _new_process(monkeypatch, tmp_path):
    monkeypatch.setenv("FCA_CACHE", str(tmp_path))
    monkeypatch.setattr(sizes, "_known", {})


def counted(sides, **fields):
    """A set of square images that notes which of them were read."""
    read = []

    def image(i):
        read.append(i)
        if sides[i] is None:
            raise UnreadableImage("damaged")
        return np.zeros((sides[i], sides[i] + 9, 3), np.uint8)

    return replace(data_of([None] * len(sides)), read=image, **fields), read


def test_photographs_are_recognised_by_the_first_one():
    data, read = counted([500, 400, 300])
    assert any_above_reference(data, "test")
    assert read == [0]


def test_one_image_above_is_enough_and_a_damaged_one_does_not_count():
    data, read = counted([32, None, 97, 32])
    assert any_above_reference(data, "test")
    assert read == [0, 1, 2]


def test_a_set_of_small_images_is_read_once_by_all_processes(monkeypatch):
    data, read = counted([32, 96, 8])
    for _ in range(2):
        monkeypatch.setattr(sizes, "_known", {})
        assert not any_above_reference(data, "test")
    assert read == [0, 1, 2]
    other = replace(data, fingerprint="1" * 12)
    assert not any_above_reference(other, "test")
    assert len(read) == 6, "other images"


def test_only_the_images_of_the_split_count():
    data, _ = counted([32, 500])
    data.items["split"] = ["test", "train"]
    assert not any_above_reference(data, "test")
    assert any_above_reference(data, "train")


def test_what_is_known_is_not_read():
    data, read = counted([128, 128], side=128)
    assert any_above_reference(data, "test")
    assert not any_above_reference(replace(data, side=96), "test")
    assert read == []


def test_a_damaged_record_is_made_again(tmp_path):
    data, read = counted([32])
    assert not any_above_reference(data, "test")
    sizes._known.clear()
    next((tmp_path / "sizes").iterdir()).write_text("{")
    assert not any_above_reference(data, "test")
    assert read == [0, 0]
