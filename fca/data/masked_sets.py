"""Hard ImageNet and RIVAL10 with their object masks, and masks that several workers drew, consolidated.

The public sets are read by their folders and file names. Their pickles are never opened: a pickle can run code.
"""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from jaxtyping import Bool

from fca.allowed import Allowed
from fca.data.content import Inventory, inventory
from fca.data.files import Directory, bytes_of, image_of, in_order, open_root
from fca.data.manifest import Manifest, mask_of
from fca.data.public import found
from fca.data.splits import AtPosition, Share, assemble, shown
from fca.identity import fingerprint
from fca.subset import read_groups
from fca.types import FcaError, ImageData, UnreadableImage, check_choice

log = logging.getLogger(__name__)
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


# Masks that workers drew (section 3.2 of Hard ImageNet).


def iou(a: Bool[np.ndarray, "height width"], b: Bool[np.ndarray, "height width"]) -> float:
    """Intersection over union of two masks, 0 to 1; NaN of two empty ones.

    >>> iou(np.array([[True, True, False]]), np.array([[False, True, False]]))
    0.5
    """
    union = int((a | b).sum())
    return int((a & b).sum()) / union if union else float("nan")


def consolidated(masks: Bool[np.ndarray, "masks height width"]) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
    """The pixels that more than half of the masks have (half of an even number is not enough); each mask's IoU with it.

    >>> consolidated(np.array([[[True, True]], [[True, False]]]))
    (array([[ True, False]]), [0.5, 1.0])
    """
    majority = 2 * masks.sum(axis=0) > len(masks)
    return majority, [iou(mask, majority) for mask in masks]


def screened(lines: pd.DataFrame, exam_least: float | None, check_least: float | None) -> pd.DataFrame:
    """What is known of each worker (index): `exam`, `check` (mean IoU; NaN = none), and whether the masks are `kept`.

    lines:       columns worker, phase (exam, check or work), image_id and iou (with the truth).
    exam_least:  to pass, all images of the exam must be done, with this mean IoU; None = there is no exam.
    check_least: who has a lower mean IoU on attention checks is removed; who had none stays. None = nobody is.
    """
    of = pd.DataFrame(index=pd.Index(sorted(set(lines["worker"])), name="worker"))
    exam, check = (lines[lines["phase"] == phase].groupby("worker") for phase in ("exam", "check"))
    images = lines["image_id"][lines["phase"] == "exam"].nunique()
    of["exam"] = exam["iou"].mean().where(exam["image_id"].nunique() == images)
    of["check"] = check["iou"].mean()
    passed = True if exam_least is None else of["exam"] > exam_least - 1e-9  # a mean of .6 and .7 is .6499999999999999
    return of.assign(kept=passed & ~(of["check"] < (check_least or 0) - 1e-9))


@dataclass(frozen=True, kw_only=True)
class AnnotatedImages(Manifest):
    """`dataset=annotated`: the images of a manifest, with the pixel majority of the masks that screened workers drew.

    annotations: a CSV, found as `file` is: image_id, worker, phase (exam, check, work), mask and true_mask (paths).
    exam_least, check_least: see `screened`.    checks: least share of attention checks among checks and work.
    masks:       how many each image needs.
    Columns of the images: n_annotations, ask_again (masks that it lacks), iou_1, iou_2 ... (each mask against the
    majority, by worker) and agreement, their mean. Masks and boxes of the manifest itself are not used.
    """

    annotations: str
    exam_least: Annotated[float | None, Allowed(0, 1)] = 0.65
    check_least: Annotated[float | None, Allowed(0, 1)] = 0.5
    checks: Annotated[float, Allowed(0, 1)] = 0.1
    masks: Annotated[int, Allowed(1)] = 5

    def load(self) -> ImageData:
        """List the images and compare all masks; nothing is written. Raises FcaError for what does not fit, named."""
        data, there = super().load(), inventory(open_root(self.root, "the files that the tables list"))
        path_of = dict(zip(data.items["image_id"], data.items["path"], strict=True))
        lines, ids = self._lines_of(there, path_of), list(path_of)
        read = partial(mask_of, there.files, objects=self.mask_object)

        def with_truth(row: int) -> float:
            mask, truth = lines["mask"][row], lines["true_mask"][row]
            return iou(read(mask, truth), read(truth, truth)) if truth else np.nan

        def of_all(image_id: str) -> tuple[Bool[np.ndarray, "height width"], list[float]]:
            return consolidated(np.stack([read(path, path_of[image_id]) for path in drawn[image_id]]))

        try:
            lines["iou"] = list(in_order(with_truth, len(lines), 0, "comparing masks with the truth"))
            workers = screened(lines, self.exam_least, self.check_least)
            work = lines[(lines["phase"] == "work") & lines["worker"].map(workers["kept"])]
            drawn = {str(image_id): masks.tolist() for image_id, masks in work.groupby("image_id")["mask"]}
            have = list(drawn)
            found = list(in_order(lambda at: of_all(have[at])[1], len(have), 0, "comparing the masks of an image"))
        except UnreadableImage as error:
            raise FcaError("mask", error, "black and white, as large as its image", "mend it or its line") from error
        columns = {f"iou_{place}": column for place, column in enumerate(zip_longest(*found, fillvalue=np.nan), 1)}
        ious = pd.DataFrame(columns, have, dtype=np.float64).reindex(ids).reset_index(drop=True)
        digests = there.digests(work["mask"])
        contents = {i: " ".join([*map(digests.__getitem__, paths), self.mask_object]) for i, paths in drawn.items()}
        n = np.array([len(drawn.get(image_id, ())) for image_id in ids])
        counts = {"n_annotations": n, "ask_again": (self.masks - n).clip(0)}
        items = data.items.assign(mask_content=[contents.get(image_id, "") for image_id in ids], **counts)
        items = items.assign(agreement=ious.mean(axis=1), **ious)
        self._report(lines, workers, items)
        mask = AtPosition(lambda image_id: of_all(image_id)[0] if image_id in drawn else None, ids)
        return replace(data, items=items, fingerprint=fingerprint(items), mask=mask)

    def _lines_of(self, there: Inventory, ids: Iterable[str]) -> pd.DataFrame:
        """The annotations, by image and worker. Raises FcaError naming the lines that do not fit."""
        sizes, name = there.listing.sizes, self.annotations
        try:
            content = there.files.read(name) if name in sizes else bytes_of(Path(name).expanduser())
            lines = pd.read_csv(io.BytesIO(content), dtype="str", na_filter=False)
            lines = lines[["image_id", "worker", "phase", "mask", "true_mask"]]
        except Exception as error:  # no such file or column, another encoding, a damaged archive: many kinds
            allowed = "a CSV with columns image_id, worker, phase, mask, true_mask"
            raise FcaError("dataset.annotations", name, allowed, f"mend it: {error}") from error
        work = lines["phase"] == "work"
        for wrong, allowed in (
            (~lines["phase"].isin(["exam", "check", "work"]), "exam, check or work as phase"),
            (lines["worker"].str.contains(r"^$|[\x00-\x1f\x7f-\x9f]"), "a worker, in printable text"),
            (~lines["mask"].isin([*sizes]), f"a file of {self.root} as mask"),
            (~work & ~lines["true_mask"].isin([*sizes]), f"a file of {self.root} as true_mask, of exam and check"),
            (work & ~lines["image_id"].isin([*ids]), f"an image of {self.file} as image_id, of work"),
            (lines.duplicated(["image_id", "worker", "phase"]), "one line a worker, phase and image"),
        ):
            if wrong.any():
                named = [f"{row + 2} ({', '.join(map(str, lines.loc[row]))})" for row in np.flatnonzero(wrong)]
                raise FcaError(f"lines of {name}", shown(named), allowed, "correct them")
        lines["true_mask"] = lines["true_mask"].mask(work, "")
        return lines.sort_values(["image_id", "worker", "phase"], ignore_index=True)

    def _report(self, lines: pd.DataFrame, workers: pd.DataFrame, items: pd.DataFrame) -> None:
        removed, again = workers.index[~workers["kept"]].tolist(), items["image_id"][items["ask_again"] > 0].tolist()
        if removed:
            log.warning("masks of %d of %d workers are left out: %s", len(removed), len(workers), shown(removed))
        if again:
            log.warning("ask again for masks of %d images (column ask_again): %s", len(again), shown(again))
        checks, phases = lines["iou"][lines["phase"] == "check"], lines["phase"].value_counts()
        share = len(checks) / max(1, len(lines) - phases.get("exam", 0))
        level = logging.WARNING if share < self.checks else logging.INFO
        text = "attention checks: %.1f %% of the annotations (expected: %.1f %%), mean IoU %.2f; agreement %.2f"
        log.log(level, text, 100 * share, 100 * self.checks, checks.mean(), items["agreement"].mean())
