"""Objects drawn on demand by ten attributes and three levels of difficulty, or with a cue behind them; exact masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated

import numpy as np
import pandas as pd
from jaxtyping import UInt8

from fca.data.splits import Share, assemble
from fca.render import ATTRIBUTES, BACKGROUND, CLASSES, LEVELS, SIZES, VERSION, Rendered, render, scene_of
from fca.render.cue import CUES, Cued, background, co_objects, cued
from fca.render.cue import VERSION as CUE_VERSION
from fca.types import FcaError, ImageData, keyed_rng
from fca.validation import Allowed, Seed

FIRST_INDEX = {"test": 0, "val": 10**6, "train": 2 * 10**6}  # of a split's scenes: none is in two splits


@dataclass(frozen=True)
class RenderedObjects:
    """`dataset=rendered`: solid objects, their test images in matched triplets easy, medium, hard of each attribute.

    classes, attributes: which; an attribute is what makes a test image hard, all others are at their easy values.
    per_level:       test images per (class, attribute, level).
    train_per_class, val_per_class: images of a class, spread evenly over the attributes and `train_levels`.
    size:            pixels a side.    seed: of all images.
    mirror:          whether a mirrored image still shows its class.
    cue:             null, or what behind the object goes with a class: color, texture or object (see fca.render.cue).
                     Then all images are at the easy values of all attributes, and objects cover a tenth of the image.
    cue_strength:    an image has the cue of its own class with this probability, else that of a class drawn uniformly.
    """

    classes: Annotated[list[str], Allowed(non_empty=True)]
    attributes: Annotated[list[str], Allowed(non_empty=True)]
    per_level: int
    train_per_class: int
    val_per_class: int
    train_levels: Annotated[list[str], Allowed(non_empty=True)]
    size: int
    seed: Seed
    mirror: bool = True
    cue: Annotated[str | None, Allowed(choices=CUES)] = None
    cue_strength: Annotated[float, Allowed(0, 1)] = 0.0

    def load(self) -> ImageData:
        """The images, listed; each is drawn when it is read. Raises FcaError for unknown names, counts out of range."""
        self._check()
        levels = LEVELS if self.cue is None else ["easy"]
        test_keys = product(["test"], self.classes, self.attributes, levels, range(self.per_level))
        listed = pd.DataFrame([_item(*key) for key in (*test_keys, *self._easy("val"), *self._easy("train"))])
        version = f"drawing {VERSION}, size {self.size}, seed {self.seed}"
        if self.cue is None:
            return self._assembled("rendered", listed, version)

        strength = float(self.cue_strength)
        ids_and_labels = zip(listed["image_id"], listed["label"], strict=True)
        cue_classes = [self._cue_class(image_id, label) for image_id, label in ids_and_labels]
        listed = listed.assign(cue=self.cue, cue_strength=strength, cue_class=cue_classes)
        version += f", cue {CUE_VERSION} {self.cue} {strength} of {', '.join(self.classes)}"
        data = self._assembled(f"rendered {self.cue} {self.cue_strength:g}", listed, version)
        return replace(data, background=self._background)

    def _assembled(self, name: str, listed: pd.DataFrame, version: str) -> ImageData:
        listed_images = assemble(
            name,
            listed,
            lambda image_id: self._drawn(image_id)[0],
            Share(0.1, self.seed),
            version=version,
            mask=lambda image_id: self._drawn(image_id)[1],
            mirror=self.mirror and self.cue != "texture",  # a grating mirrored is that of another class
            official=True,
        )
        return replace(listed_images, side=self.size)

    def _drawn(self, image_id: str) -> Rendered | Cued:
        """An image and its masks, by its id alone."""
        split, label, attribute, level, index = image_id.split("/")
        scene = scene_of(label, attribute, level, FIRST_INDEX[split] + int(index), self.seed)
        if self.cue is None:
            return render(scene, self.size)
        cue_class = self._cue_class(image_id, label)
        return cued(scene, self.cue, cue_class, self.classes, f"{self.seed}/{image_id}", self.size)

    def _background(self, image_id: str) -> UInt8[np.ndarray, "size size 3"]:
        cue_class = self._cue_class(image_id, image_id.split("/")[1])
        return background(str(self.cue), cue_class, self.classes, f"{self.seed}/{image_id}", self.size)

    def _cue_class(self, image_id: str, label: str) -> str:
        """The class whose cue an image has; with a higher strength, more images have that of their label."""
        rng = keyed_rng("cue", self.seed, image_id)
        has_cue_of_label = rng.random() < self.cue_strength
        uniform_class = self.classes[rng.integers(len(self.classes))]
        return label if has_cue_of_label else uniform_class

    def _easy(self, split: str) -> Iterator[tuple[str, str, str, str, int]]:
        """Keys of a class's training or validation images: they take turns over attributes, then over levels."""
        variants = [(attribute, level) for level in self.train_levels for attribute in self.attributes]
        count = self.train_per_class if split == "train" else self.val_per_class
        for label, position in product(self.classes, range(count)):
            index, variant = divmod(position, len(variants))
            attribute, level = variants[variant]
            yield split, label, attribute, level, index

    def _check(self) -> None:
        _known("dataset.classes", self.classes, CLASSES)
        _known("dataset.attributes", self.attributes, (*ATTRIBUTES, BACKGROUND))
        _known("dataset.train_levels", self.train_levels, LEVELS)
        if self.cue is None and self.cue_strength > 0:
            allowed = "0 without a cue: nothing behind the object goes with its class"
            raise FcaError(
                "dataset.cue_strength", self.cue_strength, allowed, "add dataset.cue=color, texture or object"
            )
        if self.cue is not None:
            if self.train_levels != ["easy"]:
                step = "leave it as it is: with a cue all images are easy"
                raise FcaError("dataset.train_levels", ", ".join(self.train_levels), "easy", step)
            if self.cue == "object":
                co_objects(self.classes)
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
