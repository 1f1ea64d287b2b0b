from dataclasses import replace

import numpy as np
import pytest

from fca.data.rendered import RenderedObjects
from fca.render import ATTRIBUTES, CLASSES, render, scene_of
from fca.types import FcaError

SMALL = RenderedObjects(
    classes=["mug", "car"],
    attributes=["size", "light"],
    per_level=2,
    train_per_class=5,
    val_per_class=2,
    train_levels=["easy"],
    size=32,
    seed=0,
)


@pytest.fixture(scope="module")
def data():
    return SMALL.load()


def test_the_set_of_the_paper_has_twelve_images_a_level():
    full = replace(SMALL, classes=list(CLASSES[:10]))
    items = replace(full, attributes=list(ATTRIBUTES), per_level=12).load().items
    test = items[items["split"] == "test"]
    assert len(test) == 3600
    assert (test.groupby(["label", "attribute", "level"]).size() == 12).all()
    assert (test.groupby("triplet").size() == 3).all()
    assert (test.groupby("triplet")["level"].nunique() == 3).all()


def test_an_item_is_drawn_from_its_own_key(data):
    row = data.items.index[data.items["image_id"] == "test/car/size/hard/01"][0]
    item = data.items.loc[row]
    assert (item["label"], item["attribute"], item["level"], item["index"]) == ("car", "size", "hard", 1)
    assert item["triplet"] == "test/car/size/01"
    image, visible, _ = render(scene_of("car", "size", "hard", 1, 0), 32)
    assert (data.read(row) == image).all()
    assert (data.mask(row) == visible).all()


def test_training_images_are_easy_and_go_round_the_attributes(data):
    train = data.items[data.items["split"] == "train"]
    assert set(train["level"]) == {"easy"}
    assert train.groupby("label").size().to_dict() == {"car": 5, "mug": 5}
    assert train[train["label"] == "car"]["attribute"].value_counts().to_dict() == {"size": 3, "light": 2}


def test_no_image_is_in_two_splits(data):
    pixels = {data.read(i).tobytes() for i in range(len(data.items))}
    assert len(pixels) == len(data.items) == 2 * (2 * 3 * 2 + 5 + 2)


def test_other_levels_can_be_trained_on():
    items = replace(SMALL, train_levels=["easy", "hard"], train_per_class=4).load().items
    assert (items[items["split"] == "train"].groupby(["label", "attribute", "level"]).size() == 1).all()


def test_val_is_carved_from_train_where_there_is_none():
    loaded = replace(SMALL, val_per_class=0, train_per_class=10).load()
    val = loaded.rows("val")
    assert len(val) == 2
    image = loaded.read(int(val[0]))
    assert image.shape == (32, 32, 3)


@pytest.mark.parametrize("change", [{"seed": 1}, {"size": 48}, {"per_level": 3}, {"train_per_class": 6}])
def test_another_seed_size_or_count_is_another_set(change, data):
    assert replace(SMALL, **change).load().fingerprint != data.fingerprint


def test_another_drawing_is_another_set(data, monkeypatch):
    monkeypatch.setattr("fca.data.rendered.VERSION", "another")
    assert SMALL.load().fingerprint != data.fingerprint


def test_more_images_a_level_keep_those_that_there_are(data):
    more = replace(SMALL, per_level=3).load()
    where = {image_id: i for i, image_id in enumerate(more.items["image_id"])}
    for row, image_id in enumerate(data.items["image_id"][:4]):
        assert np.array_equal(data.read(row), more.read(where[image_id]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"classes": ["mug", "dragon"]}, "dataset.classes = dragon; allowed: airplane, "),
        ({"classes": []}, "dataset.classes = nothing; allowed: airplane, "),
        ({"classes": ["mug"]}, "classes of rendered = mug; allowed: at least two"),
        ({"classes": ["mug", "mug"]}, "dataset.classes = mug, mug"),
        ({"attributes": ["smell"]}, "dataset.attributes = smell; allowed: color, "),
        ({"train_levels": ["soft"]}, "dataset.train_levels = soft; allowed: easy, "),
        ({"per_level": 0}, "dataset.per_level = 0; allowed: 1 to"),
        ({"train_per_class": -1}, "dataset.train_per_class = -1; allowed: 0 to"),
        ({"size": 4}, "dataset.size = 4; allowed: 8 to 2,048"),
    ],
)
def test_what_cannot_be_drawn_is_named(change, message):
    with pytest.raises(FcaError, match=message):
        replace(SMALL, **change).load()
