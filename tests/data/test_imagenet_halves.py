"""`dataset.split=val_half`: the published validation images of ImageNet, one half for test and one for val."""

import pandas as pd
import pytest

from fca.data.public import ImageNet
from fca.data.splits import Share, for_training
from fca.store import Store
from fca.types import FcaError
from tests.support import public_trees
from tests.support.trees import VAL

TENCH, CRANE, SNAIL = "n01440764", "n02012849", "n01944390"


def halves(root, val=VAL):
    return ImageNet(root=str(root), val=val, split="val_half").load()


def sizes(data, split):
    return data.items.loc[data.items["split"] == split, "label"].value_counts().to_dict()


def ids(data, split):
    return set(data.items.loc[data.items["split"] == split, "image_id"])


@pytest.fixture
def validation(tmp_path):
    """Validation images alone: as many as published, an odd number, and the fewest."""
    return public_trees.imagenet_val(tmp_path, {TENCH: 50, CRANE: 7, SNAIL: 2})


@pytest.fixture
def whole(tmp_path):
    """Ten training images of each of two wnids, and five validation images."""
    (public_trees.imagenet(tmp_path) / "val").rename(tmp_path / "other")
    return public_trees.imagenet_val(tmp_path, {TENCH: 5, CRANE: 5})


def test_each_class_is_halved_and_of_an_odd_number_test_has_one_more(validation):
    data = halves(validation)
    assert sizes(data, "test") == {TENCH: 25, CRANE: 4, SNAIL: 1}
    assert sizes(data, "val") == {TENCH: 25, CRANE: 3, SNAIL: 1}
    assert len(data.items) == 59


def test_training_images_all_stay_train_and_the_given_val_is_taken(whole):
    data = halves(whole)
    assert sizes(data, "train") == {TENCH: 10, CRANE: 10}
    assert sizes(data, "test") == {TENCH: 3, CRANE: 3}
    assert sizes(data, "val") == {TENCH: 2, CRANE: 2}
    assert all(image_id.startswith("val/") for image_id in ids(data, "val") | ids(data, "test"))
    assert for_training(data) is data


def test_the_draw_follows_the_seed_and_an_image_s_own_name(validation):
    first, again, other = halves(validation), halves(validation), halves(validation, Share(0.1, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert ids(first, "test") == ids(again, "test") != ids(other, "test")
    assert ids(first, "test") == ids(halves(validation, Share(0.3, 0)), "test"), "a share that is not used"
    for file in (validation / "val" / CRANE).iterdir():
        file.unlink()
    (validation / "val" / CRANE).rmdir()
    assert ids(halves(validation), "test") == {i for i in ids(first, "test") if CRANE not in i}


def test_golden_fingerprints_of_imagenet(validation):
    """These enter run ids: as it always was without a split, and as halved."""
    assert ImageNet(root=str(validation), val=VAL).load().fingerprint == "969d4c240a9e"
    assert halves(validation).fingerprint == "354bed570bad"


def test_the_list_of_images_and_their_halves_is_kept_in_the_store(fca, validation, tmp_path):
    words = ["task=describe", "dataset=imagenet", f"dataset.root={validation}", "dataset.images=null", "logger=none"]
    public_trees.write(validation, [path.relative_to(validation).as_posix() for path in validation.rglob("*.JPEG")])
    code, _, errors = fca(*words, "dataset.split=val_half")
    assert code == 0, errors
    store, data = Store(tmp_path / "outputs"), halves(validation)
    kept = store.items(data.fingerprint)[["image_id", "label", "split"]].astype("str")
    pd.testing.assert_frame_equal(kept, data.items[["image_id", "label", "split"]].astype("str"))
    assert [row["fingerprint"] for _, row in store.rows().iterrows()] == [data.fingerprint]


def test_another_split_is_refused_before_anything_is_listed(tmp_path):
    with pytest.raises(FcaError, match=r"dataset\.split = val_third; allowed: null or val_half"):
        ImageNet(root=str(tmp_path), val=VAL, split="val_third").load()


def test_a_class_with_one_validation_image_cannot_be_halved(tmp_path):
    root = public_trees.imagenet(tmp_path)
    with pytest.raises(FcaError, match=r"validation images of n01440764, n02012849 = 1; allowed: at least 2 with"):
        halves(root)
    assert sizes(ImageNet(root=str(root), val=VAL).load(), "test") == {TENCH: 1, CRANE: 1}
