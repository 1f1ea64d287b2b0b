"""ImageNet-1K as people have it: train and val with a folder a wnid, or the archives that these come from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from fca.data.public import matching, public_data, whole
from fca.data.splits import Share, class_sizes, held_out, shown
from fca.types import FcaError, ImageData

SPLIT_OF = {"train": "train", "val": "test"}  # folder -> ours: the authors keep the labels of their test images
FILE = r"n\d{8}/[^/]+\.(JPEG|jpeg|jpg)"
DEVKIT = "ILSVRC2012_devkit_t12.tar.gz"
VAL_HALF = "val_half"
"""The value of `dataset.split` that halves the published validation images into test and val."""


@dataclass(frozen=True)
class ImageNet:
    """`dataset=imagenet`: 1,281,167 training images of 1,000 wnids; their 50,000 validation images are our test.

    root:     the folder with train/n01440764/... and val/n01440764/..., or with ILSVRC2012_img_{train,val}.tar and the
              devkit, which are then checked and extracted there. val alone is enough to predict.
    images:   how many images each folder holds as published; null = whatever is there (a part of the classes).
    val:      what to carve from the training images.    mirror: whether a mirrored image still shows its class.
    split:    null, or val_half: of each class's published validation images one half is test, the other half val
              (Sharma et al., 2023, appendix C: 25 and 25), drawn by val.seed; of an odd number n test has ceil(n / 2)
              and val floor(n / 2). Nothing is carved then (val.share is not used): all training images are train.
    """

    root: str
    val: Share
    images: dict[str, int] | None = None
    mirror: bool = True
    split: str | None = None

    def load(self) -> ImageData:
        """List the images.

        Raises FcaError when they are absent, fewer than published or not in wnid folders, for an unknown split, and for
        a class with too few validation images to halve.
        """
        if self.split not in (None, VAL_HALF):
            raise FcaError("dataset.split", self.split, f"null or {VAL_HALF}", "see conf/dataset/imagenet.yaml")
        root = Path(self.root).expanduser()
        there = [name for name in SPLIT_OF if (root / name).is_dir() or _extracted(root, name)]
        if "val" not in there:
            names = ", ".join(f"ILSVRC2012_img_{name}.tar" for name in SPLIT_OF)
            raise FcaError(
                "dataset.root",
                root,
                f"a folder with train/<wnid>/ and val/<wnid>/, or with {names} and {DEVKIT}",
                "bring them from https://image-net.org/download-images (after its terms), and set dataset.root",
            )
        listed = pd.concat([self._listed(root, name) for name in there], ignore_index=True)
        if self.split == VAL_HALF:
            listed = _halved(listed, self.val.seed)
        return public_data("imagenet", root, listed, self.val, self.mirror)

    def _listed(self, root: Path, name: str) -> pd.DataFrame:
        listed = matching(root / name, FILE, "n01440764/n01440764_10026.JPEG, in folders of wnids")
        expected = None if self.images is None else self.images.get(name)
        whole(f"images in {name} of imagenet", len(listed), expected, root / name, "images")
        return listed.assign(image_id=name + "/" + listed["image_id"], split=SPLIT_OF[name])


def _halved(listed: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The lines with the smaller half of each class's test images as val."""
    given = listed[listed["split"] == "test"]
    if lone := sorted(given["label"][class_sizes(given) < 2]):
        raise FcaError(
            f"validation images of {shown(lone)}",
            1,
            f"at least 2 with dataset.split={VAL_HALF}: one for test, one for val",
            "add images, leave these classes out, or set dataset.split=null",
        )
    test = held_out(given, Share(0.5, seed))  # floor(n / 2 + 1 / 2) of n, which is ceil(n / 2)
    return listed.assign(split=listed["split"].mask(listed.index.isin(given.index[~test]), "val"))


def _extracted(root: Path, name: str) -> bool:
    """Whether the archive of this folder lies there, and was checked and extracted."""
    if not (root / f"ILSVRC2012_img_{name}.tar").is_file():
        return False
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from torchvision import datasets

    try:
        datasets.ImageNet(root, split=name)
    except (RuntimeError, OSError) as error:  # the devkit is missing, an archive is damaged, the disk is full
        step = f"bring it again, and remove {root / name} if it is there"
        raise FcaError(
            "dataset.root", root, f"whole archives, and {DEVKIT} beside them", f"{step} ({error})"
        ) from error
    return True
