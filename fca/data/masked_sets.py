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
from fca.data.public import found
from fca.data.splits import Share, assemble, shown
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
    val:      what to carve from the training images.    mirror: whether a mirrored image still shows its class.
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
        (place, pattern, folder, beside, source), group_of = LAYOUTS[self.name], read_groups(self.name).of
        check_choice("dataset.classes", self.classes, sorted({len(group_of), len(set(group_of.values()))}))
        masks = found(self.root, (place, place.split("/")[1]), source).parent
        images = masks / folder if self.imagenet is None else Path(self.imagenet).expanduser()
        there = inventory(Directory(str(masks)))
        listed = self._listed([m for path in there.listing.sizes if (m := re.fullmatch(pattern, path))], beside, images)
        if unknown := sorted(set(listed["wnid"]) - set(group_of)):
            allowed = f"the classes of {self.name}: {', '.join(group_of)}"
            raise FcaError(f"wnids of masks in {masks}", shown(unknown), allowed, "bring it as its authors packed it")
        self._check_counts(images, listed)
        listed["label"] = listed["wnid"] if self.classes == len(group_of) else listed["wnid"].map(group_of)
        listed["bytes"] = [file.stat().st_size if (file := images / p).is_file() else -1 for p in listed["image"]]
        if gone := listed["image"][listed["bytes"] < 0].tolist():
            step = "set dataset.imagenet to the folder with train/<wnid>/ and val/<wnid>/"
            raise FcaError(f"images of {self.name} that are not there", shown(gone), f"files in {images}", step)
        listed["mask_content"] = listed["mask"].map(there.digests(listed["mask"]))
        if self.ranks is not None:
            listed["rank"] = listed["image_id"].map(_ranks(self.ranks, set(listed["image_id"])))
        image, mask = (dict(zip(listed["image_id"], listed.pop(at), strict=True)) for at in ("image", "mask"))
        read = partial(mask_of, there.files, objects="bright", images=(shots := Directory(str(images))))
        return assemble(
            self.name,
            listed,
            lambda image_id: image_of(shots, image[image_id]),
            self.val,
            mask=lambda image_id: read(mask[image_id], image[image_id]),
            mirror=self.mirror,
            official=True,
        )

    def _listed(self, masks: Sequence[re.Match[str]], beside: str, images: Path) -> pd.DataFrame:
        """A line a mask: mask and image (paths), wnid, split and image_id (the same as in dataset=imagenet)."""
        lines = [(m[0], m[2], m[3], m.expand(beside)) for m in masks]
        listed = pd.DataFrame(lines, columns=["mask", "wnid", "file", "image"], dtype="str")
        part = pd.Series("train", listed.index).mask(listed["file"].str.startswith("ILSVRC2012_val_"), "val")
        listed["image_id"] = part + "/" + listed["wnid"] + "/" + listed.pop("file")
        listed["split"] = part.replace("val", "test")
        if self.imagenet is None:
            return listed
        listed["image"] = listed["image_id"]
        return listed if (images / "train").is_dir() else listed[part == "val"].reset_index(drop=True)

    def _check_counts(self, images: Path, listed: pd.DataFrame) -> None:
        for part, expected in {"val": None, **(self.images or {})}.items():
            check_choice("dataset.images", part, ("train", "val"))
            ids = set(listed["image_id"][listed["image_id"].str.startswith(part)])
            left_out = self.imagenet is not None and part == "train" and not (images / part).is_dir()
            if len(ids) == expected or left_out or (ids and expected is None):
                continue
            # unlike training images, all validation images of the classes have masks
            files = [file for wnid in set(listed["wnid"]) for file in (images / "val" / wnid).glob("*.*")]
            bare = sorted({f"val/{file.parent.name}/{file.name}" for file in files} - ids) if part == "val" else []
            count = f"{len(ids)}, none of {shown(bare)}" if bare else len(ids)
            step = f"bring the masks that {self.root} lacks, or accept what is there: dataset.images=null"
            allowed = "at least 1: they are the test" if expected is None else f"{expected}, as published"
            raise FcaError(f"masks of {self.name} for ImageNet's {part}", count, allowed, step)


def _ranks(file: str, ids: set[str]) -> Mapping[str, int]:
    """Image id -> rank in its class, 1 = the last of its list. Raises FcaError for another file."""
    try:
        lists = json.loads(bytes_of(Path(file).expanduser()))
        rank = {path: len(paths) - at for paths in lists.values() for at, path in enumerate(paths)}
        if not ids & set(rank):
            raise ValueError("it lists no image that has a mask")
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        step = f"convert the authors' file as conf/dataset/hard_imagenet.yaml shows ({error})"
        raise FcaError("dataset.ranks", file, "JSON: {class: [train/<wnid>/<file>, ...]}", step) from error
    return rank
