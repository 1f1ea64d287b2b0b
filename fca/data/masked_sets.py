"""Hard ImageNet and RIVAL10 with their object masks, by their folders and file names; no pickle of theirs is opened."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from fca.data.content import inventory
from fca.data.files import Directory, bytes_of, image_of
from fca.data.manifest import mask_of
from fca.data.public import find_tree
from fca.data.splits import Share, assemble, first_few
from fca.subset import read_superclasses
from fca.types import FcaError, ImageData, check_choice

MASK_NAME = r"([^/_]+)_([^/]+)"  # wnid and ImageNet's file name: n04228054_ILSVRC2012_val_00001234.JPEG


class Layout(NamedTuple):
    """How a set of masks is packed.

    folder:       a folder that every copy has.
    mask_pattern: matches the path of a mask; its groups are the set's split, the wnid and ImageNet's file name.
    image_folder: the folder of the images that were downloaded with the masks, relative to that of the masks.
    image_path:   an image's path there, as a template for the groups of `mask_pattern`.
    source:       where people find the set.
    """

    folder: str
    mask_pattern: str
    image_folder: str
    image_path: str
    source: str


LAYOUTS = {
    "hard_imagenet": Layout(
        "hardImageNet/val",
        f"(train|val)/{MASK_NAME}",
        "../HardImageNet_Images",
        r"\1/\2/\3",
        "hardImageNet and HardImageNet_Images of https://mmoayeri.github.io/HardImageNet",
    ),
    "rival10": Layout(
        "RIVAL10/test",
        f"(train|test)/entire_object_masks/{MASK_NAME}",
        ".",
        r"\1/ordinary/\2_\3",
        "rival10.zip of https://github.com/mmoayeri/RIVAL10",
    ),
}


@dataclass(frozen=True, kw_only=True)
class MaskedImageNet:
    """`dataset=hard_imagenet` and `dataset=rival10`: images of ImageNet that have a mask.

    The test split has only images of ImageNet's validation folder, whatever the set's own split is, because RIVAL10's
    test split contains training images of ImageNet.

    name:     hard_imagenet or rival10.
    root:     the folder of the masks, or the one that holds it.
    val:      what to hold out from the training images.
    mirror:   whether a mirrored image still shows its class.
    classes:  the number of classes: for hard_imagenet 15 (wnids), for rival10 20 (wnids) or 10 (groups of wnids). The
              column `wnid` has the wnid in any case.
    imagenet: the folder with train/<wnid>/ and val/<wnid>/ (val alone is enough to predict); null = the images that
              were downloaded with the masks. Images are identified by their names and sizes, masks by their content.
    images:   how many images of ImageNet's train and val have masks; null = whatever is there.
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
        """Find the masks, and list the images that have one; the images themselves are not read.

        Raises FcaError if images, masks or ranks are absent, or if they do not fit each other.
        """
        check_choice("dataset.name", self.name, LAYOUTS)
        layout = LAYOUTS[self.name]
        # A wnid is ImageNet's name of a class, such as n04228054. Users may classify wnids, or the groups of wnids.
        group_of_wnid = read_superclasses(self.name).of
        n_groups = len(set(group_of_wnid.values()))
        check_choice("dataset.classes", self.classes, sorted({len(group_of_wnid), n_groups}))

        # Users may give the folder of the masks or the folder around it. Example: layout.folder is "hardImageNet/val",
        # so the masks are in the folder hardImageNet. Then `find_tree` returns either root/hardImageNet/val or
        # root/val, and the folder of the masks is its parent.
        split_folder = layout.folder.split("/")[1]
        masks_root = find_tree(self.root, (layout.folder, split_folder), layout.source).parent
        images_root = masks_root / layout.image_folder if self.imagenet is None else Path(self.imagenet).expanduser()
        mask_inventory = inventory(Directory(str(masks_root)))
        path_matches = [re.fullmatch(layout.mask_pattern, path) for path in mask_inventory.listing.sizes]  # all files
        mask_matches = [match for match in path_matches if match]
        listed = self._images_with_masks(mask_matches, layout.image_path, images_root)

        unknown_wnids = sorted(set(listed["wnid"]) - set(group_of_wnid))
        if unknown_wnids:
            allowed = f"the classes of {self.name}: {', '.join(group_of_wnid)}"
            step = "bring it as its authors packed it"
            raise FcaError(f"wnids of masks in {masks_root}", first_few(unknown_wnids), allowed, step)
        self._check_number_of_masks(images_root, listed)

        is_class_per_wnid = self.classes == len(group_of_wnid)
        listed["label"] = listed["wnid"] if is_class_per_wnid else listed["wnid"].map(group_of_wnid)

        # The size of an image and its name identify it: reading the bytes of all images would take too long.
        listed["bytes"] = self._image_sizes(images_root, listed["image"].tolist())

        listed["mask_content"] = listed["mask"].map(mask_inventory.digests(listed["mask"]))
        if self.ranks is not None:  # rank 1: the image with the strongest spurious cue of its class
            listed["rank"] = listed["image_id"].map(_rank_of_image(self.ranks, set(listed["image_id"])))

        # The columns of the table stay with the images as annotations, but the paths are taken out of it, because the
        # same data may be in other folders.
        image_of_id = dict(zip(listed["image_id"], listed.pop("image"), strict=True))
        mask_of_id = dict(zip(listed["image_id"], listed.pop("mask"), strict=True))
        images = Directory(str(images_root))
        read_mask = partial(mask_of, mask_inventory.files, objects="bright", images=images)  # the object is bright
        return assemble(
            self.name,
            listed,
            lambda image_id: image_of(images, image_of_id[image_id]),
            self.val,
            mask=lambda image_id: read_mask(mask_of_id[image_id], image_of_id[image_id]),
            mirror=self.mirror,
            official=True,  # no warning that validation images are held out
        )

    def _image_sizes(self, images_root: Path, paths: Sequence[str]) -> list[int]:
        """The size of each image file in bytes. Raises FcaError naming the files that do not exist.

        paths: of the files, below `images_root`.
        """
        files = [images_root / path for path in paths]
        missing_images = [path for path, file in zip(paths, files, strict=True) if not file.is_file()]
        if missing_images:
            step = "set dataset.imagenet to the folder with train/<wnid>/ and val/<wnid>/"
            what = f"images of {self.name} that are not there"
            raise FcaError(what, first_few(missing_images), f"files in {images_root}", step)
        return [file.stat().st_size for file in files]

    def _images_with_masks(self, masks: Sequence[re.Match[str]], image_path: str, images_root: Path) -> pd.DataFrame:
        """One line per mask: `mask` and `image` (paths of the two files), `wnid` (the class), `split` and `image_id`.

        The id is the one that the same image has in dataset=imagenet. An image of ImageNet's folder val is in the test
        split, and an image of its folder train is in the train split, whatever split the set of masks put it into.

        masks:       for each mask, the match of its path with the layout's `mask_pattern`, whose groups are the set's
                     split, the wnid and ImageNet's file name.
        image_path:  a template that makes of such a match the path of the image that was downloaded with the mask. It
                     is not used if `imagenet` is set.
        images_root: the folder of the images. If `imagenet` is set and this folder has no train, training images are
                     left out.
        """
        # match[0]: the path of the mask, match[2]: the wnid, match[3]: the file name
        lines = [(match[0], match[2], match[3], match.expand(image_path)) for match in masks]
        listed = pd.DataFrame(lines, columns=["mask", "wnid", "file", "image"], dtype="str")

        is_val = listed["file"].str.startswith("ILSVRC2012_val_")
        imagenet_split = pd.Series("train", listed.index).mask(is_val, "val")
        listed["image_id"] = imagenet_split + "/" + listed["wnid"] + "/" + listed.pop("file")
        listed["split"] = imagenet_split.replace("val", "test")
        if self.imagenet is None:
            return listed

        listed["image"] = listed["image_id"]  # the paths below ImageNet's folder are the ids
        if (images_root / "train").is_dir():
            return listed
        return listed[imagenet_split == "val"].reset_index(drop=True)

    def _check_number_of_masks(self, images_root: Path, listed: pd.DataFrame) -> None:
        """Raise FcaError if ImageNet's train or val has fewer or more masks than `images` states.

        The images of val are the test split. So if `images` states no number for val, at least one mask is needed.

        images_root: the folder of the images.
        listed:      one line per mask, as `_images_with_masks` returns them.
        """
        # None accepts any number above 0. It is the default of val, which is checked in any case.
        for split, expected in {"val": None, **(self.images or {})}.items():
            check_choice("dataset.images", split, ("train", "val"))
            ids = set(listed["image_id"][listed["image_id"].str.startswith(split)])
            # ImageNet's folder may have only val, which is enough to predict; then there are no training images.
            is_left_out = self.imagenet is not None and split == "train" and not (images_root / split).is_dir()
            is_complete = len(ids) > 0 if expected is None else len(ids) == expected
            if is_left_out or is_complete:
                continue

            # Each validation image of these classes should have a mask, so the message can name those without one.
            ids_without_mask = []
            if split == "val":
                wnids = set(listed["wnid"])
                files = [file for wnid in wnids for file in (images_root / "val" / wnid).glob("*.*")]
                ids_without_mask = sorted({f"val/{file.parent.name}/{file.name}" for file in files} - ids)
            count = f"{len(ids)}, none of {first_few(ids_without_mask)}" if ids_without_mask else len(ids)
            allowed = "at least 1: they are the test" if expected is None else f"{expected}, as published"
            step = f"bring the masks that {self.root} lacks, or accept what is there: dataset.images=null"
            raise FcaError(f"masks of {self.name} for ImageNet's {split}", count, allowed, step)


def _rank_of_image(file: str, ids: set[str]) -> Mapping[str, int]:
    """Read the rank of each image by its spurious cues: image id -> rank, 1 for the strongest cues of a class.

    file: JSON {class: [image id, ...]}, where the image with the strongest cue is the last one of its list.
    ids:  the ids of the images that have masks.

    Raises FcaError for a file of another form, and for a file that lists none of `ids`.
    """
    rank_of_image = {}
    try:
        lists = json.loads(bytes_of(Path(file).expanduser()))
        for ids_of_class in lists.values():
            for position, image_id in enumerate(ids_of_class):
                rank_of_image[image_id] = len(ids_of_class) - position
        if not ids & set(rank_of_image):
            raise ValueError("it lists no image that has a mask")
    # No such file, no JSON, values of other types, or JSON that is nested too deeply.
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        step = f"convert the authors' file as conf/dataset/hard_imagenet.yaml shows ({error})"
        raise FcaError("dataset.ranks", file, "JSON: {class: [train/<wnid>/<file>, ...]}", step) from error
    return rank_of_image
