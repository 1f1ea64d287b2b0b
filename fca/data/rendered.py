"""Objects drawn on demand by ten attributes and three levels of difficulty: no network, no folder, exact masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated

import pandas as pd

from fca.allowed import Allowed, Seed
from fca.data.splits import Share, assemble
from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, SIZES, VERSION, Rendered, render, scene_of
from fca.types import LEVELS, FcaError, ImageData

FIRST_INDEX = {"test": 0, "val": 10**6, "train": 2 * 10**6}  # of a split's scenes: none is in two splits


@dataclass(frozen=True)
class RenderedObjects:
    """`dataset=rendered`: solid objects, their test images in matched triplets easy, medium, hard of each attribute.

    classes, attributes: which; an attribute is what makes a test image hard, all others are at their easy values.
    per_level:       test images per (class, attribute, level).
    train_per_class, val_per_class: images of a class, spread evenly over the attributes and `train_levels`.
    size:            pixels a side.    seed: of all images.
    mirror:          whether a mirrored image still shows its class.
    """

    classes: Annotated[list[str], Allowed(filled=True)]
    attributes: Annotated[list[str], Allowed(filled=True)]
    per_level: int
    train_per_class: int
    val_per_class: int
    train_levels: Annotated[list[str], Allowed(filled=True)]
    size: int
    seed: Seed
    mirror: bool = True

    def load(self) -> ImageData:
        """The images, listed; each is drawn when it is read. Raises FcaError for unknown names, counts out of range."""
        self._check()
        keys = product(["test"], self.classes, self.attributes, LEVELS, range(self.per_level))
        listed = pd.DataFrame([_item(*key) for key in (*keys, *self._easy("val"), *self._easy("train"))])
        return assemble(
            "rendered",
            listed,
            lambda image_id: self._drawn(image_id).image,
            Share(0.1, self.seed),
            version=f"drawing {VERSION}, size {self.size}, seed {self.seed}",
            mask=lambda image_id: self._drawn(image_id).visible,
            mirror=self.mirror,
        )

    def _drawn(self, image_id: str) -> Rendered:
        """An image and its masks, by its id alone."""
        split, label, attribute, level, index = image_id.split("/")
        scene = scene_of(label, attribute, level, FIRST_INDEX[split] + int(index), self.seed)
        return render(scene, self.size)

    def _easy(self, split: str) -> Iterator[tuple[str, str, str, str, int]]:
        """A class's training images go round the attributes, then round the levels."""
        ways = [(attribute, level) for level in self.train_levels for attribute in self.attributes]
        count = self.train_per_class if split == "train" else self.val_per_class
        for label, place in product(self.classes, range(count)):
            index, way = divmod(place, len(ways))
            yield split, label, *ways[way], index

    def _check(self) -> None:
        _known("dataset.classes", self.classes, CLASSES)
        _known("dataset.attributes", self.attributes, (*ATTRIBUTES, BACKGROUND))
        _known("dataset.train_levels", self.train_levels, LEVELS)
        ranges = {"per_level": (1, 10**6), "train_per_class": (0, 10**6), "val_per_class": (0, 10**6), "size": SIZES}
        for key, (low, high) in ranges.items():
            if not low <= (number := getattr(self, key)) <= high:
                raise FcaError(f"dataset.{key}", number, f"{low:,} to {high:,}", "take another number")


def _known(key: str, names: Sequence[str], known: Sequence[str]) -> None:
    wrong = [name for name in names if name not in known or list(names).count(name) > 1]
    if wrong or not names:
        raise FcaError(key, ", ".join(wrong) or "nothing", ", ".join(known), "name each that you want once")


def _item(split: str, label: str, attribute: str, level: str, index: int) -> dict[str, object]:
    return {
        "image_id": f"{split}/{label}/{attribute}/{level}/{index:02d}",
        "label": label,
        "split": split,
        "attribute": attribute,
        "level": level,
        "index": index,
        "triplet": f"{split}/{label}/{attribute}/{index:02d}",
    }
