"""Images of equal content stay on one side of every split that is drawn; those in several given ones are counted."""

import logging
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import Share, as_trained_on, cut_as_before, for_training, held_out
from fca.tasks.describe import described, findings, summary
from tests.data.test_splits import data_of
from tests.data.trees import VAL

CLASSES = ("cat", "dog", "fox")


def picture(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 255, (12, 12, 3), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def flat(tmp_path_factory):
    """150 images of three classes, without splits, with 60 exact pairs: 20 pairs and 10 single images a class."""
    root = tmp_path_factory.mktemp("copies") / "flat"
    for c, name in enumerate(CLASSES):
        for i in range(30):
            picture(root / name / f"{i:02d}.png", 100 * c + i)
            if i < 20:
                shutil.copy(root / name / f"{i:02d}.png", root / name / f"copy of {i:02d}.png")
    return root


def splits_of_pictures(data):
    return data.items.groupby("content")["split"].nunique()


def as_folder(root, _):
    return Folder(str(root), VAL).load()


def as_zip(root, tmp_path):
    return Folder(shutil.make_archive(str(tmp_path / "flat"), "zip", root), VAL).load()


def as_manifest(root, tmp_path):
    """Single images of a class are taken in pairs: of groups that have no copy, and of some that have."""
    paths = sorted(str(path.relative_to(root)) for path in root.rglob("*.png"))
    lines = pd.DataFrame({"path": paths, "label": [path.split("/")[0] for path in paths]})
    lines["session"] = [f"{label}{number // 2}" for label, number in zip(lines["label"], lines.index, strict=True)]
    lines.to_csv(tmp_path / "lines.csv", index=False)
    return Manifest(str(root), str(tmp_path / "lines.csv"), VAL, group="session").load()


@pytest.mark.parametrize("load", [as_folder, as_zip, as_manifest])
def test_no_picture_is_on_two_sides_of_a_cut(flat, tmp_path, load):
    """Of 60 pairs 28 once were, and a network was right on all of its test images."""
    data = load(flat, tmp_path)
    assert (data.items["content"].value_counts() == 2).sum() == 60
    assert splits_of_pictures(cut_as_before(data)).max() == 2 or data.group
    cut = for_training(data)
    assert splits_of_pictures(cut).max() == 1
    if data.group:
        assert cut.items.groupby("session")["split"].nunique().max() == 1
    counts = pd.crosstab(cut.items["label"], cut.items["split"])
    assert (counts > 0).all(axis=None)
    tolerance = 6 if data.group else 2  # half of the largest unit: two groups that share a picture, or a pair
    assert (counts - [10, 35, 5]).abs().max(axis=None) <= tolerance


def test_single_images_fill_up_what_copies_leave(flat):
    """Without groups every class has exactly its share where single images are enough."""
    cut = for_training(as_folder(flat, None))
    counts = pd.crosstab(cut.items["label"], cut.items["split"])
    assert counts["test"].tolist() == [10, 10, 10]
    assert counts["val"].tolist() == [5, 5, 5]


def test_a_validation_split_that_is_carved_takes_copies_together():
    frame = pd.DataFrame({"image_id": [f"{i:03d}" for i in range(200)], "label": ["a", "b"] * 100, "split": "train"})
    content = [f"picture {i // 4}" if i < 120 else f"single {i}" for i in range(200)]  # 4 images, of two labels
    test = frame.assign(image_id="t" + frame["image_id"], split="test", content=[f"t{i}" for i in range(200)])
    data = data_of(pd.concat([frame.assign(content=content), test]))
    assert splits_of_pictures(data).max() == 1
    assert pd.crosstab(data.items["label"], data.items["split"])["val"].between(9, 11).all()


def test_a_set_without_copies_is_cut_and_known_as_it_always_was():
    frame = pd.DataFrame({"image_id": [f"{i:03d}" for i in range(90)], "label": list("abc") * 30})
    data = data_of(frame.assign(content=[f"{i}" for i in range(90)]))
    assert for_training(data).fingerprint == cut_as_before(data).fingerprint == "50bb2d675337"
    part = Share(0.1, 3)
    assert (held_out(data.items, part) == held_out(frame, part)).all()


def test_files_that_cannot_be_read_are_no_copies_of_each_other():
    frame = pd.DataFrame({"image_id": [f"{i:03d}" for i in range(60)], "label": list("abc") * 20})
    data = data_of(frame.assign(content="unreadable"))
    assert for_training(data).items["split"].value_counts().to_dict() == {"train": 42, "test": 12, "val": 6}


def test_a_cut_that_parted_copies_has_another_fingerprint_and_its_training_is_still_tested_on_its_own_test_images(flat):
    data = as_folder(flat, None)
    before, now = cut_as_before(data), for_training(data)
    assert before.fingerprint != now.fingerprint
    assert (as_trained_on(data, before.fingerprint).items["split"] == before.items["split"]).all()
    assert (as_trained_on(data, now.fingerprint).items["split"] == now.items["split"]).all()


def test_given_splits_that_share_pictures_are_counted_at_every_training(flat, tmp_path, caplog):
    root = tmp_path / "given"
    shutil.copytree(flat, root / "train")
    for name in CLASSES:
        for i in range(3):
            picture(root / "test" / name / f"{i}.png", f"{name}{i}".encode()[0] * 1000 + i)
    for i in (3, 4):
        shutil.copy(root / "train" / "cat" / f"2{i}.png", root / "test" / "cat" / f"{i}.png")
    shutil.copy(root / "train" / "cat" / "25.png", root / "test" / "dog" / "5.png")
    with caplog.at_level(logging.WARNING):
        for_training(Folder(str(root), VAL).load())
    assert "copies of 3 pictures are in several given splits" in caplog.text
    assert "3 test images are copies of training or validation images" in caplog.text
    assert "copies of 1 picture have different labels, such as test/dog/5.png, train/cat/25.png" in caplog.text


def test_copies_that_a_cut_keeps_together_are_counted(flat, caplog):
    with caplog.at_level(logging.WARNING):
        for_training(as_folder(flat, None))
    assert "120 images are copies of 60 pictures: the cut keeps copies in one split" in caplog.text


def test_what_describe_counts_is_the_cut_that_a_training_uses(flat, tmp_path):
    near = tmp_path / "near"
    shutil.copytree(flat, near)
    for name in CLASSES:
        for i in range(10):
            Image.open(near / name / f"{i:02d}.png").resize((48, 48)).save(near / name / f"near {i:02d}.png")
    data = as_folder(flat, None)
    cut = for_training(data)
    columns = summary(cut, described(data))
    assert (columns["n_train"], columns["n_val"], columns["n_test"]) == (105, 15, 30)
    assert (columns["duplicates_exact"], columns["duplicates_between_splits"]) == (60, 0)
    assert findings(cut, described(data)).empty
