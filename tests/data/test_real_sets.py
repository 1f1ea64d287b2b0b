"""The published sets in FCA_REAL_DATA, as they are: zips of split/class/file, tables, masks."""

import os
from contextlib import suppress

import numpy as np
import pytest

from fca.data.duplicates import near_pairs, signature
from fca.data.files import decode_mask, open_root, parallel_map
from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import for_training
from fca.tasks.describe import describe_images, summary
from fca.types import FcaError, UnreadableImage
from tests.support.copied_images import COPIES
from tests.support.trees import VAL

pytestmark = pytest.mark.real


def archive(name):
    return f"{os.environ['FCA_REAL_DATA']}/images/{name}.zip"


@pytest.mark.parametrize(
    ("name", "splits", "classes", "counts"),
    [
        ("cifar10", None, 10, {"train": 2700, "val": 300, "test": 10000}),
        ("grocery", None, 81, {"train": 546, "val": 141, "test": 567}),
        ("clothing", None, 10, {"train": 200, "val": 80, "test": 80}),
        ("signdigits", None, 10, {"test": 600}),
        ("imagenet_sample", None, 1000, {"test": 1000}),
        ("omniglot_small", {"small1": "test", "small2": None}, 136, {"test": 2720}),
    ],
)
def test_an_archive_of_class_folders_is_read_whole(name, splits, classes, counts):
    data = Folder(archive(name), VAL, splits=splits).load()
    assert data.name == name
    assert len(data.classes) == classes
    assert data.items["split"].value_counts().to_dict() == counts
    for index in np.linspace(0, len(data.items) - 1, 20).astype(int).tolist():
        assert data.read(index).ndim == 3


def test_a_set_of_one_split_can_be_trained_on():
    data = for_training(Folder(archive("signdigits"), VAL).load())
    assert data.items["split"].value_counts().to_dict() == {"train": 420, "val": 60, "test": 120}


def test_a_set_with_one_image_a_class_can_not_be_trained_on():
    with pytest.raises(FcaError, match=r"images of n01440764, .* and 995 more in the train split of .* = 0"):
        for_training(Folder(archive("imagenet_sample"), VAL).load())


@pytest.mark.parametrize(
    ("name", "both"),
    [
        ("omniglot_small", "small1/Greek.character01 and small2/Greek.character01"),
        ("cue_conflict", "conflict/airplane and edges/airplane"),
    ],
)
def test_folders_that_could_be_splits_or_classes_are_asked_about(name, both):
    with pytest.raises(FcaError, match=f"two folders under one name = {both}; "):
        Folder(archive(name), VAL).load()


def test_cue_conflict_has_its_silhouettes_as_masks():
    columns, where = {"label": "shape_label"}, "kind == 'conflict'"
    data = Manifest(archive("cue_conflict"), "index.csv", VAL, columns=columns, where=where, mask_object="dark").load()
    assert len(data.items) == 640
    assert len(data.classes) == 16
    assert set(data.items["texture_label"]) == set(data.classes)
    arrays = describe_images(data)
    assert np.median(arrays["mask_area"]) < 0.5  # the object, not its surroundings
    assert 0 < arrays["mask_area"].min() < arrays["mask_area"].max() < 1
    assert np.abs(arrays["mask_x"] - 0.5).mean() < 0.1


def test_boxes_of_tiny_imagenet_are_coarse_masks():
    boxes = ["x0", "y0", "x1", "y1"]
    data = Manifest(archive("tinyimagenet60_boxes"), "index.csv", VAL, mask_box=boxes).load()
    assert (len(data.items), len(data.classes)) == (3000, 60)
    areas = np.array([data.mask(row).mean() for row in range(3000)])
    assert round(float(np.median(areas)), 2) == 0.5  # as the card of the data has it
    assert [round(float((areas >= full).mean()), 2) for full in (0.95, 1)] == [0.14, 0.07]
    row = data.items["image_id"].tolist().index("test/n01443537/val_68.JPEG")  # 10, 19, 63, 42
    assert data.mask(row)[19:43, 10:64].all()
    assert data.mask(row).sum() == 24 * 54
    photographs = [data.items["path"][row] for row in range(0, 3000, 30)]
    files, refused = open_root(archive("tinyimagenet60_boxes"), "images"), 0
    for path in photographs:
        with suppress(UnreadableImage):
            decode_mask(files.read(path), path, "bright")
            refused -= 1
        refused += 1
    assert refused > 85, "of a hundred photographs given as masks"


def test_grocery_by_its_coarse_classes():
    data = Manifest(archive("grocery"), "index.csv", VAL, columns={"label": "coarse_id"}).load()
    assert len(data.classes) == 43
    assert len(data.rows("test")) == 567


def test_copies_planted_among_ten_thousand_photographs_are_found():
    data = Folder(archive("cifar10"), VAL).load()
    images = list(parallel_map(lambda row: data.read(int(data.rows("test")[row])), 10_000, 0, "reading"))
    signatures = np.stack([signature(image) for image in images])
    chosen = np.random.default_rng(0).choice(10_000, 300, replace=False).tolist()
    alone = set(map(tuple, near_pairs(signatures, np.full(10_000, 32)).tolist()))
    assert len(alone) == 28  # looked at one by one: the same photograph, each of them
    copies = [copy(images[row]) for copy in COPIES.values() for row in chosen]
    both = np.concatenate([signatures, np.stack([signature(image) for image in copies])])
    sides = np.array([32] * 10_000 + [min(image.shape[:2]) for image in copies])
    found = set(map(tuple, near_pairs(both, sides).tolist()))
    for place, name in enumerate(COPIES):
        planted = {(row, 10_000 + 300 * place + i) for i, row in enumerate(chosen)}
        assert len(found & planted) >= 0.95 * 300, name
    truth = {10_000 + place: chosen[place % 300] for place in range(len(copies))}
    kin = {frozenset(pair) for pair in alone}
    pairs = {frozenset(truth.get(i, i) for i in pair) for pair in found}
    strangers = {pair for pair in pairs if len(pair) == 2 and pair not in kin}
    assert len(strangers) <= 1


def test_describing_photographs_counts_their_copies():
    data = Folder(archive("clothing"), VAL).load()
    row = summary(data, describe_images(data))
    assert (row["n_images"], row["n_train"], row["class_min"]) == (360, 200, 36)
    assert (row["height_min"], row["width_min"], row["width_max"]) == (400, 400, 888)
    assert row["duplicates_exact"] == row["duplicates_near"] == row["duplicates_between_splits"] == 0
