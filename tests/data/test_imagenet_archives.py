"""The archives of ImageNet, as they are handed out."""

import shutil

import numpy as np
import pytest
import scipy.io

from fca.data.public import ImageNet
from fca.torchvision_ops import declare_torchvision_ops
from fca.types import FcaError
from tests.support import public_trees
from tests.support.public_trees import md5, packed
from tests.support.trees import VAL

declare_torchvision_ops()
from torchvision import datasets  # noqa: E402  after the operators are declared


@pytest.fixture
def archives_of_imagenet(tmp_path, monkeypatch):
    """The three archives as they are handed out: a tar of tars, flat validation images, a devkit with their truth."""
    public_trees.imagenet(tmp_path / "tree")
    root = tmp_path / "imagenet"
    work = tmp_path / "work"
    for folder in (root, work / "train", work / "val", work / "kit/ILSVRC2012_devkit_t12/data"):
        folder.mkdir(parents=True)
    for folder in (tmp_path / "tree/train").iterdir():
        packed(folder, ".", work / f"train/{folder.name}.tar")
    for file in (tmp_path / "tree/val").glob("*/*"):
        shutil.copy(file, work / "val")
    packed(work / "train", ".", root / "ILSVRC2012_img_train.tar")
    packed(work / "val", ".", root / "ILSVRC2012_img_val.tar")
    data = work / "kit/ILSVRC2012_devkit_t12/data"
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    synsets = [(1, "n01440764", "tench, Tinca tinca", "a fish", 0), (2, "n02012849", "crane", "a bird", 0)]
    synsets += [(1001, "n00001740", "entity", "all", 2)]
    scipy.io.savemat(data / "meta.mat", {"synsets": np.array(synsets, dtype=kinds)})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("2\n1\n")  # in the order of the file names
    packed(work / "kit", ".", root / "ILSVRC2012_devkit_t12.tar.gz")
    names = datasets.imagenet.ARCHIVE_META.items()
    monkeypatch.setattr(
        datasets.imagenet, "ARCHIVE_META", {part: (name, md5(root / name)) for part, (name, _) in names}
    )
    return root


def test_the_archives_of_imagenet_are_extracted_where_they_lie(archives_of_imagenet, tmp_path):
    data = ImageNet(root=str(archives_of_imagenet), val=VAL, images={"train": 20, "val": 2}).load()
    assert data.fingerprint == ImageNet(root=str(tmp_path / "tree"), val=VAL).load().fingerprint


def test_archives_of_imagenet_without_the_devkit_are_refused(archives_of_imagenet):
    (archives_of_imagenet / "ILSVRC2012_devkit_t12.tar.gz").unlink()
    with pytest.raises(FcaError, match=r"allowed: whole archives, and ILSVRC2012_devkit_t12.tar.gz beside them"):
        ImageNet(root=str(archives_of_imagenet), val=VAL).load()
