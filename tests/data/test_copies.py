"""Images of equal content stay on one side of every split that is drawn; those in several given ones are counted."""

import logging
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from fca.data.folder import Folder
from fca.data.manifest import Manifest
from fca.data.splits import Share, for_training, held_out
from fca.tasks.describe import describe_images, findings, summary
from tests.support.split_data import data_of
from tests.support.trees import VAL

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
    blind = replace(data, items=data.items.drop(columns="content"))
    unaware = for_training(blind).items["split"]
    assert splits_of_pictures(replace(data, items=data.items.assign(split=unaware))).max() == 2 or data.group
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


def invented(contents, **columns):
    """A line an image, of these contents; ids in their order."""
    ids = [f"{i:03d}" for i in range(len(contents))]
    return pd.DataFrame({"image_id": ids, "content": contents, **columns})


def added(frame, **line):
    """One image more, in front of all others."""
    return pd.concat([frame, pd.DataFrame([{"image_id": "!new", "content": "new", **line}])], ignore_index=True)


def sides(frame, group=None):
    return for_training(data_of(frame, group=group)).items.set_index("image_id")["split"]


def changed(before, after):
    """How many of the images that both cuts have change their side."""
    return int((after[before.index] != before).sum())


def patients(classes, each=10):
    """600 images of 60 patients; each patient has one class, or several at random."""
    patient = np.repeat(np.arange(60), each)
    label = patient % classes if classes == 3 else np.random.default_rng(0).integers(0, classes, 60 * each)
    contents = [f"picture {i}" for i in range(60 * each)]
    return invented(contents, label=[f"c{c}" for c in label], patient=[f"p{p:02d}" for p in patient])


@pytest.mark.parametrize("classes", [2, 3], ids=["patients of two classes", "patients of one class"])
def test_a_pair_inside_a_group_changes_nothing_and_one_that_joins_two_groups_little(classes):
    """Where groups were named by the number of a line, one pair moved 260 to 310 of these 600 images."""
    items = patients(classes)
    before = sides(items, "patient")
    inside, across = items.copy(), items.copy()
    inside.loc[1, "content"] = inside.loc[0, "content"]
    across.loc[31, "content"] = across.loc[0, "content"]  # patients 0 and 3
    assert changed(before, sides(inside, "patient")) == 0
    assert changed(before, sides(across, "patient")) <= 60  # 6 of 60 patients


@pytest.mark.parametrize("classes", [2, 3], ids=["patients of two classes", "patients of one class"])
def test_an_image_that_is_added_moves_at_most_a_few_patients(classes):
    items = patients(classes)
    items.loc[1, "content"] = items.loc[0, "content"]
    before = sides(items, "patient")
    assert changed(before, sides(added(items, label="c0", patient="a new one"), "patient")) <= 40
    assert changed(before, sides(added(items, label="c0", patient=""), "patient")) <= 40


def test_copies_without_a_group_are_one_unit_named_by_their_content():
    items = patients(3)
    items.loc[[0, 10, 20], "patient"] = ""
    items.loc[20, "content"] = items.loc[0, "content"]
    before = sides(items, "patient")
    assert before["000"] == before["020"]
    assert changed(before, sides(added(items, label="c0", patient=""), "patient")) <= 40


@pytest.mark.parametrize("content", ["new", "single 7", "picture 3"], ids=["another picture", "a copy", "a third copy"])
def test_an_image_that_is_added_moves_only_what_lies_at_the_edge_of_a_side(content):
    """Of 300 images 115 are copies: one more image once moved 52 copies and 4 single images."""
    contents = [f"picture {i // 2}" if i < 115 else f"single {i - 115}" for i in range(300)]
    items = invented(contents, label=list("abc") * 100).assign(
        label=lambda of: of.groupby("content")["label"].transform("min")
    )
    before = sides(items)
    label = items["label"][items["content"] == content]
    after = sides(added(items, label="a" if label.empty else label.iloc[0]).assign(content=[*contents, content]))
    assert changed(before, after) <= 6  # a picture whose size changes may change sides, and two images at each edge


def test_images_without_copies_stay_where_they_were_before_some_images_got_copies():
    single = invented([f"single {i}" for i in range(200)], label=["a", "b"] * 100)
    before = sides(single)
    copied = single.iloc[:20].assign(image_id=lambda of: "!copy of " + of["image_id"])
    after = sides(pd.concat([single, copied]))
    assert changed(before.iloc[20:], after) <= 8  # shares of 100 and of 110 images, two edges in two classes


def pictures_by_side(frame):
    """Images and pictures of class x on each side."""
    of_x = for_training(data_of(frame)).items.query("label == 'x'")
    return of_x.groupby("split")["content"].agg(["size", "nunique"])


def test_copies_are_not_forced_onto_sides_that_single_images_fill():
    """Two pictures of 8 copies and 14 single images: the test images were once 8 copies of one picture."""
    contents = [f"picture {i // 8}" if i < 16 else f"single {i}" for i in range(60)]
    found = pictures_by_side(invented(contents, label=["x"] * 30 + ["y"] * 30))
    assert found["size"].to_dict() == {"test": 6, "train": 21, "val": 3}
    assert found["nunique"][["test", "val"]].tolist() == [6, 3]


@pytest.mark.parametrize("single", [0, 1, 2])
def test_a_class_with_too_few_single_images_still_has_a_place_on_every_side(single):
    """With two single images test took both, and val had none."""
    contents = [f"picture {i // 8}" if i < 24 else f"single {i}" for i in range(24 + single)]
    others = [f"other {i}" for i in range(30)]
    frame = invented(contents + others, label=["x"] * len(contents) + ["y"] * 30)
    found = pictures_by_side(frame)
    assert set(found.index) == {"train", "val", "test"}
    assert found["size"]["train"] >= 8
    forced = (found["size"][["test", "val"]] == 8).sum()
    assert forced == max(0, 2 - single)  # no more pictures leave training than have to


def test_a_set_without_copies_is_cut_and_known_as_it_always_was():
    frame = pd.DataFrame({"image_id": [f"{i:03d}" for i in range(90)], "label": list("abc") * 30})
    data = data_of(frame.assign(content=[f"{i}" for i in range(90)]))
    assert for_training(data).fingerprint == "50bb2d675337"
    part = Share(0.1, 3)
    assert (held_out(data.items, part) == held_out(frame, part)).all()


def test_files_that_cannot_be_read_are_no_copies_of_each_other():
    frame = pd.DataFrame({"image_id": [f"{i:03d}" for i in range(60)], "label": list("abc") * 20})
    data = data_of(frame.assign(content="unreadable"))
    assert for_training(data).items["split"].value_counts().to_dict() == {"train": 42, "test": 12, "val": 6}


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
    columns = summary(cut, describe_images(data))
    assert (columns["n_train"], columns["n_val"], columns["n_test"]) == (105, 15, 30)
    assert (columns["duplicates_exact"], columns["duplicates_between_splits"]) == (60, 0)
    assert findings(cut, describe_images(data)).empty
