"""Every public set, from a small tree in the format of its authors."""

import hashlib

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from PIL import Image

from fca.cli.application import register
from fca.cli.configure import component
from fca.cli.places import CONF
from fca.data.splits import for_training
from fca.store import Store
from fca.types import FcaError
from tests.support import public_trees
from tests.support.public_set_files import NAMES, drawings, load


@pytest.fixture
def tree(tmp_path):
    """Write the small tree of a set; returns the root."""
    return lambda name: getattr(public_trees, name)(tmp_path)


def counts(data):
    return data.items["split"].value_counts().to_dict()


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "compat", "classes", "splits"),
    [
        # 12 images a class: 2 test, 1 of the other 10 val
        ("caltech101", None, ("Faces", "Faces_easy", "accordion", "airplanes"), {"train": 36, "val": 4, "test": 8}),
        ("caltech101", "fca", ("Faces", "Faces_easy", "accordion", "airplanes"), {"train": 36, "val": 4, "test": 8}),
        ("caltech256", None, ("001.ak47", "056.dog", "198.spider"), {"train": 21, "val": 3, "test": 6}),
        ("caltech256", "fca", ("001.ak47", "056.dog", "198.spider", "257.clutter"), {"train": 28, "val": 4, "test": 8}),
        (
            "cub200",
            None,
            ("001.Black_footed_Albatross", "002.Laysan_Albatross", "016.Painted_Bunting"),
            {"train": 27, "val": 3, "test": 30},
        ),
        ("dtd", None, ("banded", "polka-dotted", "waffled"), {"train": 12, "val": 12, "test": 12}),
        ("dtd", "fca", ("banded", "polka-dotted", "waffled"), {"train": 9, "val": 3, "test": 12}),
        ("food101", None, ("apple_pie", "waffles"), {"train": 36, "val": 4, "test": 10}),
        # one whole track of each class is val: the shortest, as there are only 3 and 4
        ("gtsrb", "fca", ("00000", "00014"), {"test": 42, "train": 119, "val": 47}),
        ("imagenet", None, ("n01440764", "n02012849"), {"train": 18, "val": 2, "test": 2}),
        ("indoor67", None, ("airport_inside", "winecellar"), {"train": 18, "val": 2, "test": 2}),
        ("quickdraw", None, ("The Eiffel Tower", "t-shirt"), {"train": 58, "val": 6, "test": 16}),
    ],
)
def test_classes_and_splits_are_those_of_the_authors(tree, name, compat, classes, splits):
    data = load(name, tree(name), compat)
    assert data.name == name
    assert data.classes == classes
    assert counts(data) == splits
    for row in range(len(data.items)):
        assert data.read(row).dtype == np.uint8
    assert counts(for_training(data)) == splits


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES)
def test_a_set_is_the_same_wherever_it_lies_and_its_pixels_are_those_of_its_files(
    tree, tmp_path, tmp_path_factory, name
):
    root = tree(name)
    data = load(name, root)
    moved = root.rename(tmp_path_factory.mktemp("elsewhere") / root.name)
    again = load(name, moved)
    assert again.fingerprint == data.fingerprint
    if name == "quickdraw":
        return
    row = len(data.items) - 1
    [file] = [path for path in moved.rglob("*.*") if path.as_posix().endswith("/" + again.items["image_id"][row])]
    assert (again.read(row) == np.asarray(Image.open(file).convert("RGB"))).all()


@pytest.mark.wide
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("quickdraw", "indoor67")])
def test_a_declared_version_stands_for_the_content_of_checksummed_files(tree, name):
    root = tree(name)
    data = load(name, root)
    assert data.fingerprint_kind == "version"
    columns = [data.items[column].astype(str) for column in ("image_id", "bytes", "label", "split")]
    text = "".join("\x1f".join(record) + "\x1e" for record in sorted(zip(*columns, strict=True)))
    assert data.fingerprint == hashlib.sha256(text.encode()).hexdigest()[:12], "as it always was"
    assert load(name, root, version="mended").fingerprint != data.fingerprint


@pytest.mark.parametrize("name", ["caltech101", "food101", "indoor67"])
def test_without_a_version_the_content_of_the_files_decides(tree, name):
    root = tree(name)
    declared, before = load(name, root), load(name, root, version=None)
    assert before.fingerprint_kind == "content"
    assert "bytes" not in before.items
    assert (declared.fingerprint == before.fingerprint) == (name == "indoor67"), "nobody published its checksum"
    [file] = [path for path in root.rglob("*.*") if path.as_posix().endswith("/" + before.items["image_id"][0])]
    changed = bytearray(file.read_bytes())
    changed[-3] ^= 1
    file.write_bytes(changed)
    assert load(name, root, version=None).fingerprint != before.fingerprint
    assert (load(name, root).fingerprint == declared.fingerprint) == (name != "indoor67")


@pytest.mark.parametrize(("name", "every"), [("caltech101", (5, 10)), ("caltech256", (5, 10))])
def test_compat_tests_on_every_fifth_file_number(tree, name, every):
    items = load(name, tree(name), "fca").items
    numbers = items["image_id"].str.extract(r"(\d+)\.jpg")[0].astype(int)
    assert set(numbers[items["split"] == "test"]) == set(every)


def test_a_physical_sign_is_never_in_train_and_in_val(tree):
    data = load("gtsrb", tree("gtsrb"))
    of = data.items.groupby("split")["track"].agg(lambda tracks: set(tracks.dropna()))
    assert not of["train"] & of["val"]
    assert of["train"] | of["val"] == {f"00000/{t:05d}" for t in range(4)} | {f"00014/{t:05d}" for t in range(3)}
    assert {track.split("/")[0] for track in of["val"]} == {"00000", "00014"}
    test = data.items[data.items["split"] == "test"]
    assert test["track"].isna().all()
    assert test["label"].tolist() == ["00014", "00000", "00000", "00014"]
    assert counts(data)["train"] + counts(data)["val"] == 7 * 30 - 2


def test_the_track_of_a_sign_is_kept_with_the_images(fca, tree, tmp_path):
    code, _, errors = fca("task=describe", "dataset=gtsrb", f"dataset.root={tree('gtsrb')}", "logger=none")
    assert code == 0, errors
    store = Store(tmp_path / "outputs")
    items = store.items(store.rows().iloc[0]["fingerprint"])
    assert items["track"].nunique() == 7
    assert items["track"].isna().sum() == 4


def test_compat_of_gtsrb_tests_on_every_fifth_frame_of_signs_that_are_trained_on(tree):
    items = load("gtsrb", tree("gtsrb"), "fca").items
    numbers = [int(path[-15:-4]) for path in items["image_id"]]  # as released: int("00003_00012") is 300012
    assert [n % 5 == 0 for n in numbers] == (items["split"] == "test").tolist()
    of = items.groupby("split")["track"].agg(set)
    assert of["test"] == of["train"] | of["val"]
    assert not of["train"] & of["val"]


def test_another_fold_of_dtd_has_its_own_lists(tree):
    root = tree("dtd")
    first, second = load("dtd", root), load("dtd", root, fold=2)
    splits = {data: set(d.items["image_id"][d.items["split"] == "val"]) for data, d in ((1, first), (2, second))}
    assert splits[2] == set(first.items["image_id"][first.items["split"] == "train"])
    with pytest.raises(FcaError, match=r"dataset.fold = 11; allowed: 1 to 10"):
        load("dtd", root, fold=11)
    with pytest.raises(FcaError, match=r"dataset.fold = 2; allowed: 1 with compat=fca"):
        load("dtd", root, "fca", fold=2)


def test_a_drawing_is_read_from_its_row_and_a_larger_sample_holds_the_smaller(tmp_path):
    public_trees.quickdraw(tmp_path, n=200)
    small, large = (drawings(tmp_path, per_class=n).load() for n in (10, 20))
    for i, image_id in enumerate(small.items["image_id"]):
        key, row = image_id.split("/")
        image = small.read(i)
        assert image.shape == (28, 28, 3)
        assert image[0, 0].tolist() == [int(row)] * 3
        assert image[0, 1, 0] == (key == "t-shirt")
    assert small.fingerprint == "dd942473ae61"  # the draw does not depend on the version of a library
    assert set(small.items["image_id"]) < set(large.items["image_id"])
    released = drawings(tmp_path, per_class=100, compat="fca").load().items
    rows = released["image_id"].str[-6:].astype(int)
    assert ((rows % 5 == 0) == (released["split"] == "test")).all()


def test_validation_images_alone_are_enough_to_predict_on_imagenet(tree):
    root = tree("imagenet")
    (root / "train").rename(root / "elsewhere")
    assert counts(load("imagenet", root)) == {"test": 2}


@pytest.mark.wide
@pytest.mark.parametrize("name", [*NAMES, "cifar10", "cifar100", "digits", "folder", "manifest"])
def test_only_sets_whose_classes_have_a_side_are_never_flipped(tree, tmp_path, name):
    register()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("run", [f"dataset={name}"])
    assert config.dataset.mirror == (name not in ("digits", "gtsrb", "quickdraw"))
    if name in ("digits", "gtsrb"):
        missing = [] if name == "digits" else [f"dataset.root={tree(name)}", "compat=fca"]
        with initialize_config_dir(str(CONF), version_base="1.3"):
            data = component(compose("run", [f"dataset={name}", *missing]), "dataset").load()
        assert not data.mirror
