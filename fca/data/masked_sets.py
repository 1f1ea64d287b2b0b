"""Hard ImageNet and RIVAL10 with their object masks, by their folders and file names; no pickle of theirs is opened."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from fca.data.content import inventory
from fca.data.files import Directory, bytes_of, image_of
from fca.data.manifest import mask_of
from fca.data.public import find_tree
from fca.data.splits import Share, assemble, first_few
from fca.subset import read_groups
from fca.types import FcaError, ImageData, check_choice

IMAGE = r"([^/_]+)_([^/]+)"  # in a mask's name: wnid and ImageNet's file name, n04228054_ILSVRC2012_val_00001234.JPEG
LAYOUTS = {  # a folder that every copy has; masks; where the download has images, their paths there; where to get it
    "hard_imagenet": (
        *("hardImageNet/val", f"(train|val)/{IMAGE}", "../HardImageNet_Images", r"\1/\2/\3"),
        "hardImageNet and HardImageNet_Images of https://mmoayeri.github.io/HardImageNet",
    ),
    "rival10": (
        *("RIVAL10/test", f"(train|test)/entire_object_masks/{IMAGE}", ".", r"\1/ordinary/\2_\3"),
        "rival10.zip of https://github.com/mmoayeri/RIVAL10",
    ),
}


@dataclass(frozen=True, kw_only=True)
class MaskedImageNet:
    """`dataset=hard_imagenet` and `dataset=rival10`: images of ImageNet that have a mask.

    Test has images of ImageNet's validation folder alone, whatever the set's own split: RIVAL10's leaks.

    name:     hard_imagenet or rival10.    root: the folder of the masks, or the one that holds it.
    val:      what to hold out from the training images.    mirror: whether a mirrored image still shows its class.
    classes:  of hard_imagenet 15 wnids, of rival10 20 wnids or 10 groups of them; column `wnid` has the wnid.
    imagenet: the folder with train/<wnid>/ and val/<wnid>/ (val alone is enough to predict); null = the images that
              were downloaded with the masks. They are known by their names and sizes, masks by what they contain.
    images:   how many have masks in ImageNet's train and val; null = whatever is there.
    ranks:    a JSON {class: [train/<wnid>/<file>, ...]}, the strongest spurious cue last: column `rank`, 1 = strongest.
    """

    name: str
    root: str
    val: Share
    classes: int
    imagenet: str | None = None
    images: dict[str, int] | None = None
    ranks: str | None = None
    mirror: bool = True

    def load(self) -> ImageData:
        """List the images that have masks. Raises FcaError when images, masks or ranks are absent or do not fit."""
        check_choice("dataset.name", self.name, LAYOUTS)
        place, pattern, image_folder, image_path, source = LAYOUTS[self.name]
        group_of_wnid = read_groups(self.name).of
        check_choice("dataset.classes", self.classes, sorted({len(group_of_wnid), len(set(group_of_wnid.values()))}))

        # Masks, and the images that they belong to.
        masks_root = find_tree(self.root, (place, place.split("/")[1]), source).parent
        images_root = masks_root / image_folder if self.imagenet is None else Path(self.imagenet).expanduser()
        mask_inventory = inventory(Directory(str(masks_root)))
        mask_matches = [match for path in mask_inventory.listing.sizes if (match := re.fullmatch(pattern, path))]
        listed = self._listed(mask_matches, image_path, images_root)

        unknown_wnids = sorted(set(listed["wnid"]) - set(group_of_wnid))
        if unknown_wnids:
            allowed = f"the classes of {self.name}: {', '.join(group_of_wnid)}"
            step = "bring it as its authors packed it"
            raise FcaError(f"wnids of masks in {masks_root}", first_few(unknown_wnids), allowed, step)
        self._check_counts(images_root, listed)

        is_class_per_wnid = self.classes == len(group_of_wnid)
        listed["label"] = listed["wnid"] if is_class_per_wnid else listed["wnid"].map(group_of_wnid)

        image_files = [images_root / path for path in listed["image"]]
        listed["bytes"] = [file.stat().st_size if file.is_file() else -1 for file in image_files]
        missing_images = listed["image"][listed["bytes"] < 0].tolist()
        if missing_images:
            step = "set dataset.imagenet to the folder with train/<wnid>/ and val/<wnid>/"
            what = f"images of {self.name} that are not there"
            raise FcaError(what, first_few(missing_images), f"files in {images_root}", step)

        listed["mask_content"] = listed["mask"].map(mask_inventory.digests(listed["mask"]))
        if self.ranks is not None:
            listed["rank"] = listed["image_id"].map(_ranks(self.ranks, set(listed["image_id"])))

        image_of_id = dict(zip(listed["image_id"], listed.pop("image"), strict=True))
        mask_of_id = dict(zip(listed["image_id"], listed.pop("mask"), strict=True))
        images = Directory(str(images_root))
        read_mask = partial(mask_of, mask_inventory.files, objects="bright", images=images)
        return assemble(
            self.name,
            listed,
            lambda image_id: image_of(images, image_of_id[image_id]),
            self.val,
            mask=lambda image_id: read_mask(mask_of_id[image_id], image_of_id[image_id]),
            mirror=self.mirror,
            official=True,
        )

    def _listed(self, masks: Sequence[re.Match[str]], image_path: str, images_root: Path) -> pd.DataFrame:
        """A line a mask: mask and image (paths), wnid, split and image_id (the same as in dataset=imagenet).

        image_path: the path of a downloaded image, as a template for the match of its mask.
        """
        lines = [(match[0], match[2], match[3], match.expand(image_path)) for match in masks]
        listed = pd.DataFrame(lines, columns=["mask", "wnid", "file", "image"], dtype="str")

        is_val = listed["file"].str.startswith("ILSVRC2012_val_")
        imagenet_split = pd.Series("train", listed.index).mask(is_val, "val")
        listed["image_id"] = imagenet_split + "/" + listed["wnid"] + "/" + listed.pop("file")
        listed["split"] = imagenet_split.replace("val", "test")
        if self.imagenet is None:
            return listed

        listed["image"] = listed["image_id"]
        if (images_root / "train").is_dir():
            return listed
        return listed[imagenet_split == "val"].reset_index(drop=True)

    def _check_counts(self, images_root: Path, listed: pd.DataFrame) -> None:
        """Raise FcaError if ImageNet's train or val has another number of masks than published."""
        for split, expected in {"val": None, **(self.images or {})}.items():
            check_choice("dataset.images", split, ("train", "val"))
            ids = set(listed["image_id"][listed["image_id"].str.startswith(split)])
            is_left_out = self.imagenet is not None and split == "train" and not (images_root / split).is_dir()
            is_complete = len(ids) > 0 if expected is None else len(ids) == expected
            if is_left_out or is_complete:
                continue

            # Unlike training images, all validation images of the classes have masks.
            without_mask = []
            if split == "val":
                wnids = set(listed["wnid"])
                files = [file for wnid in wnids for file in (images_root / "val" / wnid).glob("*.*")]
                without_mask = sorted({f"val/{file.parent.name}/{file.name}" for file in files} - ids)
            count = f"{len(ids)}, none of {first_few(without_mask)}" if without_mask else len(ids)
            allowed = "at least 1: they are the test" if expected is None else f"{expected}, as published"
            step = f"bring the masks that {self.root} lacks, or accept what is there: dataset.images=null"
            raise FcaError(f"masks of {self.name} for ImageNet's {split}", count, allowed, step)


def _ranks(file: str, ids: set[str]) -> Mapping[str, int]:
    """Image id -> rank in its class, 1 = the last of its list. Raises FcaError for another file."""
    rank_of_image = {}
    try:
        lists = json.loads(bytes_of(Path(file).expanduser()))
        for paths in lists.values():
            for position, path in enumerate(paths):
                rank_of_image[path] = len(paths) - position
        if not ids & set(rank_of_image):
            raise ValueError("it lists no image that has a mask")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        step = f"convert the authors' file as conf/dataset/hard_imagenet.yaml shows ({error})"
        raise FcaError("dataset.ranks", file, "JSON: {class: [train/<wnid>/<file>, ...]}", step) from error
    return rank_of_image
