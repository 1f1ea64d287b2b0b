"""Groups of classes, and the accuracy of naming only the group."""

import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from fca.stats.protocols import grouped_top1
from fca.store import Store
from fca.subset import SHIPPED, Superclasses, read_superclasses
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError
from tests.conftest import SMALL

declare_torchvision_ops()
from timm.data.imagenet_info import ImageNetInfo  # noqa: E402

# how many of ImageNet's wnids each list of arXiv:1808.08750's 16-class-ImageNet has: 207 in all
SIXTEEN = {
    "airplane": 1, "bear": 4, "bicycle": 2, "bird": 49, "boat": 5, "bottle": 7, "car": 3, "cat": 6, "chair": 4,
    "clock": 3, "dog": 109, "elephant": 2, "keyboard": 2, "knife": 1, "oven": 1, "truck": 8,
}  # fmt: skip


def test_shipped_groups_are_of_imagenet_classes_and_name_their_source():
    imagenet = ImageNetInfo("imagenet-1k")
    imagenet_classes = set(imagenet.label_names())
    for path in SHIPPED.glob("*.csv"):
        assert set(read_superclasses(path.stem).of) <= imagenet_classes
        assert "Source:" in path.read_text()

    dog = pd.Series(read_superclasses("imagenet_dog").of)
    assert dog.value_counts().to_dict() == {"not dog": 882, "dog": 118}
    dog_descriptions = {imagenet.label_name_to_description(key) for key, group in dog.items() if group == "dog"}
    assert {"Chihuahua", "Mexican hairless", "pug, pug-dog"} <= dog_descriptions


def test_the_sixteen_categories_have_the_sizes_of_the_lists_and_agree_on_what_is_a_dog():
    sixteen = read_superclasses("imagenet_16").of
    assert pd.Series(sixteen).value_counts().to_dict() == SIXTEEN
    dog = read_superclasses("imagenet_dog").of
    assert all(dog[key] == "dog" for key, group in sixteen.items() if group == "dog")


def test_the_classes_of_hard_imagenet_are_those_that_the_paper_names():
    describe = ImageNetInfo("imagenet-1k").label_name_to_description
    for wnid, name in read_superclasses("hard_imagenet").of.items():
        words = describe(wnid).replace("dogsled", "dog sled").replace("ballplayer", "baseball player")
        assert name in words.replace("bathing cap", "swimming cap"), wnid
    assert len(read_superclasses("hard_imagenet").of) == 15
    assert describe("n04356056").startswith("sunglasses")


def test_two_imagenet_classes_belong_to_each_of_rival10s():
    rival10 = pd.Series(read_superclasses("rival10").of)
    assert rival10.value_counts().unique().tolist() == [2]

    # another list of entry-level categories agrees, where it has the class
    describe = ImageNetInfo("imagenet-1k").label_name_to_description
    imagenet_16 = read_superclasses("imagenet_16").of
    name_in_imagenet_16 = {"plane": "airplane", "equine": None, "deer": None, "frog": None, "ship": "boat"}
    for wnid, group in rival10.items():
        expected = name_in_imagenet_16.get(group, group)
        assert imagenet_16.get(wnid, expected) in (expected, None), describe(wnid)


@pytest.mark.parametrize("seed", range(5))
def test_grouped_accuracy_sums_the_probabilities_of_a_group(seed):
    rng = np.random.default_rng(seed)
    logits = 5 * rng.normal(size=(200, 9))
    true = rng.integers(0, 9, 200)
    group = np.array([0, 0, 0, 1, 1, 2, 2, -1, -1])

    probabilities = softmax(logits, axis=1)
    group_probabilities = np.stack([probabilities[:, group == g].sum(axis=1) for g in range(3)], axis=1)
    is_right = group_probabilities.argmax(axis=1) == group[true]
    is_in_group = group[true] >= 0
    expected = (is_right[is_in_group].mean(), is_in_group.sum())
    assert grouped_top1(logits, group, true) == expected
    assert grouped_top1(logits + 1e4, group, true) == expected, "only differences of logits count"


def test_one_group_a_class_is_the_masked_protocol():
    rng = np.random.default_rng(0)
    logits, true = rng.normal(size=(100, 6)), rng.integers(0, 4, 100)
    open_among_four = (logits[:, :4].argmax(axis=1) == true).mean()
    assert grouped_top1(logits, np.array([0, 1, 2, 3, -1, -1]), true)[0] == open_among_four


@pytest.mark.parametrize(
    ("group", "true", "said"), [([0, 0, -1], [0], "two or more"), ([0, 1, -1], [2], "at least one")]
)
def test_no_groups_or_no_image_of_them_is_an_error(group, true, said):
    with pytest.raises(FcaError, match=said):
        grouped_top1(np.zeros((len(true), 3)), np.array(group), np.array(true))


def test_a_file_inside_a_zip_with_other_columns(tmp_path):
    text = "Class (str),n,Kind (str)\nGala,1,apple\nPlum,2,stone fruit\nGala,3,apple\n"
    with zipfile.ZipFile(tmp_path / "shop.zip", "w") as archive:
        archive.writestr("lists/classes.csv", text)
    groups = read_superclasses(f"{tmp_path}/shop.zip/lists/classes.csv", ["Class (str)", "Kind (str)"])
    assert groups == Superclasses("classes", {"Gala": "apple", "Plum": "stone fruit"})


@pytest.mark.parametrize(
    ("where", "columns", "said"),
    [
        ("imagenet_17", ["class", "group"], r"groups = imagenet_17; allowed: one of .*imagenet_16, imagenet_dog"),
        ("two.csv", ["class", "kind"], r"group_columns = class, kind; allowed: .*class, group"),
        ("two.csv", ["class", "group"], r"class in two groups = a"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(tmp_path, monkeypatch, where, columns, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.csv").write_text("class,group\na,x\nb,x\na,y\n")
    with pytest.raises(FcaError, match=said):
        read_superclasses(where, columns)


def test_the_command_line_scores_groups_from_the_stored_answers(fca, tmp_path):
    (tmp_path / "odd.csv").write_text(
        "class,group\n" + "".join(f"{i},{'odd' if i % 2 else 'even'}\n" for i in range(9))
    )
    assert fca("model=test_resnet", *SMALL)[0] == 0
    store = Store(tmp_path / "outputs")
    [run_id] = store.rows("task == 'train'")["run_id"]
    code, out, err = fca(
        "task=predict", "model=run", f"model.run_id={run_id}", "task.groups=odd.csv", "logger=none", "limit=8"
    )
    assert code == 0, err
    [row] = store.rows("task == 'score'").to_dict("records")
    assert (row["groups"], row["n_test"], row["n_grouped"]) == ("odd", 80, 72)
    assert row["top1_grouped_low"] < row["top1_grouped"] < row["top1_grouped_high"]
    assert "top1_grouped" in out
