"""The messages when a public set is absent, damaged or configured in a way that it does not have."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from fca.data.arrays import Cifar
from fca.data.public import Caltech
from fca.types import FcaError, UnreadableImage
from tests.support import public_trees
from tests.support.public_set_files import NAMES, TEST, load
from tests.support.trees import VAL

BRING = {
    "caltech101": "caltech-101.zip of https://data.caltech.edu",
    "caltech256": "256_ObjectCategories.tar of https://data.caltech.edu",
    "cub200": "https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz",
    "dtd": "dtd-r1.0.1.tar.gz",
    "food101": "food-101.tar.gz",
    "gtsrb": "GTSRB_Final_Training_Images.zip, GTSRB_Final_Test_Images.zip, GTSRB_Final_Test_GT.zip of https://",
    "imagenet": "https://image-net.org/download-images",
    "indoor67": "indoorCVPR_09.tar, TrainImages.txt and TestImages.txt",
    "quickdraw": "gs://quickdraw_dataset/full/numpy_bitmap/*.npy",
}


@pytest.fixture
def tree(tmp_path):
    return lambda name: getattr(public_trees, name)(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_an_absent_set_is_refused_with_the_folder_and_the_files_to_bring(tmp_path, name):
    with pytest.raises(FcaError, match=f"dataset.root = {tmp_path}; .*a folder .*{re.escape(BRING[name])}"):
        load(name, tmp_path)


@pytest.mark.parametrize("name", ["caltech101", "caltech256", "dtd", "gtsrb", "quickdraw"])
def test_another_compat_than_the_one_is_refused(tmp_path, name):
    with pytest.raises(FcaError, match="compat = fcb; allowed: null or fca"):
        load(name, tmp_path, "fcb")


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("cub200", "CUB_200_2011/images/016.Painted_Bunting/Painted_Bunting_0007_7.jpg"),
        ("dtd", "dtd/dtd/images/polka-dotted/polka-dotted_0005.jpg"),
        ("food101", "food-101/images/waffles/1005650.jpg"),
        ("gtsrb", "gtsrb/GTSRB/Final_Training/Images/00014/00002_00029.ppm"),
        ("gtsrb", "gtsrb/GTSRB/Final_Test/Images/00003.ppm"),
        ("indoor67", "indoor67/Images/airport_inside/L'aeroport (2).JPG"),
    ],
)
def test_a_listed_file_that_is_not_there_is_named(tree, name, lost):
    root = tree(name)
    (root / lost).unlink()
    end = re.escape("/".join(lost.split("/")[-2:]))
    with pytest.raises(FcaError, match=f"files of {name} that are not there = .*{end}; .*is not whole: remove it"):
        load(name, root)


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("cub200", "CUB_200_2011/train_test_split.txt"),
        ("dtd", "dtd/dtd/labels/val1.txt"),
        ("food101", "food-101/meta/test.txt"),
        ("gtsrb", "gtsrb/GT-final_test.csv"),
        ("indoor67", "indoor67/TestImages.txt"),
    ],
)
def test_a_list_that_is_not_there_is_named(tree, name, lost):
    root = tree(name)
    (root / lost).unlink()
    with pytest.raises(FcaError, match=f"file = {root / lost}; allowed: the list that comes with the set"):
        load(name, root)


@pytest.mark.parametrize(
    ("name", "published", "count"), [("caltech101", 49, 48), ("caltech256", 31, 30), ("quickdraw", 345, 2)]
)
def test_fewer_than_published_are_refused(tree, name, published, count):
    key = "classes" if name == "quickdraw" else "images"
    message = rf"{key} of {name} = {count}; allowed: {published}, as published; .*dataset.{key}=null"
    root = tree(name)
    with pytest.raises(FcaError, match=message):
        load(name, root, **{key: published})
    assert len(load(name, root, **{key: count}).items)


def test_a_part_of_imagenet_is_refused_unless_it_is_asked_for(tree):
    root = tree("imagenet")
    assert len(load("imagenet", root, images={"train": 20, "val": 2}).items) == 22
    with pytest.raises(FcaError, match=r"images in val of imagenet = 2; allowed: 50000, as published"):
        load("imagenet", root, images={"train": 20, "val": 50000})
    for file in (root / "val").glob("*/*"):  # as the archive of the validation images is, without folders
        file.rename(root / "val" / file.name)
    with pytest.raises(FcaError, match=r"images in .*/val = 0; .*n01440764_10026.JPEG, in folders of wnids"):
        load("imagenet", root)


def test_training_frames_of_gtsrb_without_their_tables_are_refused(tree):
    root = tree("gtsrb")
    for table in root.rglob("GT-000*.csv"):
        table.unlink()
    with pytest.raises(FcaError, match=r"Final_Training/Images; allowed: 00000/GT-00000.csv and so on"):
        load("gtsrb", root)


def test_the_table_of_gtsrb_that_keeps_the_test_classes_secret_is_refused(tree):
    root = tree("gtsrb")
    truth = root / "gtsrb/GT-final_test.csv"
    truth.write_text("\n".join(line.rpartition(";")[0] for line in truth.read_text().splitlines()))
    with pytest.raises(FcaError, match=r"columns = Filename, .*Roi.Y2; allowed: Filename and ClassId"):
        load("gtsrb", root)


def test_lists_of_cub_that_do_not_fit_each_other_are_refused(tree):
    root = tree("cub200")
    file = root / "CUB_200_2011/train_test_split.txt"
    file.write_text("\n".join(file.read_text().splitlines()[:-3]))
    with pytest.raises(FcaError, match="images of cub200 in some lists only = 3"):
        load("cub200", root)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((9, 28, 28), np.uint8), r"bitmaps = uint8 \(9, 28, 28\) in .*t-shirt.npy; .*\(drawings, 784\)"),
        (np.zeros((9, 784)), r"bitmaps = float64 \(9, 784\)"),
        (None, r"file = .*t-shirt.npy; allowed: a whole .npy"),
    ],
)
def test_bitmaps_of_another_kind_or_cut_off_are_refused(tree, rows, message):
    file = tree("quickdraw") / "quickdraw/t-shirt.npy"
    if rows is None:
        file.write_bytes(file.read_bytes()[:-1])
    else:
        np.save(file, rows)
    with pytest.raises(FcaError, match=message):
        load("quickdraw", file.parents[1])


def test_too_small_a_sample_of_drawings_is_refused(tmp_path):
    with pytest.raises(FcaError, match=r"dataset.per_class = 2; allowed: 3 or more"):
        load("quickdraw", tmp_path, per_class=2)


@pytest.mark.parametrize(
    ("name", "file", "content", "message"),
    [
        (
            "cub200",
            "CUB_200_2011/classes.txt",
            b"1 001.Black_footed_Albatross",
            "images of cub200 in some lists only = 40",
        ),
        ("cub200", "CUB_200_2011/images.txt", b"\xff\xfe", r"file = .*images\.txt; .*'utf-8' codec"),
        (
            "gtsrb",
            "gtsrb/GT-final_test.csv",
            b"",
            r"GT-final_test\.csv = no header; allowed: a first line with the names of columns",
        ),
        ("gtsrb", "gtsrb/GT-final_test.csv", b"Filename;ClassId\n0.ppm;nan", r"0\.ppm of class nan"),
        ("gtsrb", "gtsrb/GT-final_test.csv", b"Filename;ClassId\n../0.ppm;1", r"\.\./0\.ppm of class 1"),
        ("quickdraw", "quickdraw/t-shirt.npy", b"\x93NUMPY\x01\x00v\x00{'descr': (", "a whole .npy of bitmaps"),
        ("quickdraw", "quickdraw/t-shirt.npy", pickle.dumps({"t-shirt": 1}), "a whole .npy of bitmaps"),
    ],
)
def test_a_damaged_list_is_named(tree, name, file, content, message):
    root = tree(name)
    (root / file).write_bytes(content)
    with pytest.raises(FcaError, match=message):
        load(name, root)


class Hostile:
    """Makes a file when it is read by the plain pickle module."""

    def __init__(self, made):
        self.made = made

    def __reduce__(self):
        return Path.touch, (self.made,)


def test_pickles_in_place_of_a_sets_own_files_are_not_run(tmp_path):
    content = pickle.dumps(Hostile(tmp_path / "made"), protocol=2)
    cifar = tmp_path / "cifar-10-batches-py"
    cifar.mkdir()
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch", "batches.meta"):
        (cifar / name).write_bytes(content)
    for name in ("meta.bin", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"):
        (tmp_path / name).write_bytes(content)
    for load_it in (
        Cifar(name="cifar10", version="1", root=str(tmp_path), download=False, val=VAL).load,
        lambda: load("imagenet", tmp_path),
    ):
        with pytest.raises(FcaError, match=r"dataset\.root = "):
            load_it()
    assert not (tmp_path / "made").exists()


def test_an_image_that_is_cut_off_is_named_when_it_is_read(tree):
    root = tree("indoor67")
    file = root / "indoor67/Images/airport_inside/N190023.JPG"
    file.write_bytes(file.read_bytes()[:200])
    data = load("indoor67", root)
    row = data.items["image_id"].tolist().index("airport_inside/N190023.JPG")
    with pytest.raises(UnreadableImage, match=r"indoor67/Images/airport_inside/N190023.JPG: "):
        data.read(row)


def test_another_caltech_is_refused(tmp_path):
    with pytest.raises(FcaError, match=r"dataset.name = caltech7; allowed: caltech101, caltech256"):
        Caltech(name="caltech7", root=str(tmp_path), download=False, test=TEST, val=VAL).load()
