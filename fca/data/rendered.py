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
    """`dataset=rendered`: images of solid objects, drawn by a renderer when they are read.

    Test images come in triplets: the same object at an easy, a medium and a hard value of one attribute (such as
    occlusion or light), while all other attributes are at their easy values.

    classes:         which objects.
    attributes:      which attributes make test images hard.
    per_level:       number of test images per (class, attribute, level).
    train_per_class, val_per_class: number of images of a class, spread evenly over the attributes and `train_levels`.
    size:            pixels a side.
    seed:            of all images.
    mirror:          whether a mirrored image still shows its class.
    cue:             null, or what occurs behind the objects of a class: color, texture or object (see fca.render.cue).
                     Then all images have the easy values of all attributes, and objects cover a tenth of the image.
    cue_strength:    the probability that an image has the cue of its own class; else it has the cue of a class drawn
                     uniformly from all.
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
        """List the images; each is drawn when it is read. Raises FcaError for unknown names and counts out of range."""
        self._check()
        levels = LEVELS if self.cue is None else ["easy"]  # with a cue all images are easy
        # The key of an image is (split, label, attribute, level, index). Test images are all combinations; the others
        # take turns over attributes and `train_levels`.
        test_keys = product(["test"], self.classes, self.attributes, levels, range(self.per_level))
        keys = [*test_keys, *self._keys_outside_test("val"), *self._keys_outside_test("train")]
        listed = pd.DataFrame([_line_of_image(*key) for key in keys])
        version = f"drawing {VERSION}, size {self.size}, seed {self.seed}"  # decides the pixels, with the image ids
        if self.cue is None:
            return self._assembled("rendered", listed, version)

        # A cue is something behind the object that occurs with a class, such as a colour. Draw for each image the class
        # whose cue it shows: with the probability `cue_strength` its own class, otherwise any class.
        strength = float(self.cue_strength)
        ids_and_labels = zip(listed["image_id"], listed["label"], strict=True)
        cue_classes = [self._class_of_cue(image_id, label) for image_id, label in ids_and_labels]
        listed = listed.assign(cue=self.cue, cue_strength=strength, cue_class=cue_classes)
        version += f", cue {CUE_VERSION} {self.cue} {strength} of {', '.join(self.classes)}"
        data = self._assembled(f"rendered {self.cue} {self.cue_strength:g}", listed, version)
        # With the images without their objects, an object can be put over the background of another image.
        return replace(data, background=self._background)

    def _assembled(self, name: str, listed: pd.DataFrame, version: str) -> ImageData:
        """The data set of the listed images, which are drawn when they are read.

        version: a text with all that decides the pixels beside the image ids; it enters the fingerprint.
        """
        data = assemble(
            name,
            listed,
            lambda image_id: self._draw(image_id)[0],
            Share(0.1, self.seed),  # held out for validation only if `val_per_class` is 0
            version=version,
            mask=lambda image_id: self._draw(image_id)[1],
            mirror=self.mirror and self.cue != "texture",  # a mirrored grating is the cue of another class
            official=True,  # for `assemble`, a published set: it does not warn that validation images are held out
        )
        return replace(data, side=self.size)

    def _draw(self, image_id: str) -> Rendered | Cued:
        """Draw an image and its masks. They depend only on the id and the settings: the same image at every reading.

        image_id: split/class/attribute/level/index, see `_line_of_image`.
        """
        split, label, attribute, level, index = image_id.split("/")
        scene_index = FIRST_INDEX[split] + int(index)  # so that no scene is in two splits
        scene = scene_of(label, attribute, level, scene_index, self.seed)
        if self.cue is None:
            return render(scene, self.size)
        cue_class = self._class_of_cue(image_id, label)
        background_key = f"{self.seed}/{image_id}"  # seeds the background's random numbers
        return cued(scene, self.cue, cue_class, self.classes, background_key, self.size)

    def _background(self, image_id: str) -> UInt8[np.ndarray, "size size 3"]:
        """Draw the background of an image, with its cue and without its object."""
        label = image_id.split("/")[1]
        cue_class = self._class_of_cue(image_id, label)
        background_key = f"{self.seed}/{image_id}"  # as in `_draw`, so that it is the background of the image
        return background(str(self.cue), cue_class, self.classes, background_key, self.size)

    def _class_of_cue(self, image_id: str, label: str) -> str:
        """Draw the class whose cue an image has: with probability `cue_strength` its own (`label`), else any class.

        A cue is something behind the object, such as a colour, that occurs with a class. An image that has the cue of
        its own class keeps it at any higher strength.
        """
        rng = keyed_rng("cue", self.seed, image_id)
        has_cue_of_label = rng.random() < self.cue_strength
        uniform_class = self.classes[rng.integers(len(self.classes))]
        return label if has_cue_of_label else uniform_class

    def _keys_outside_test(self, split: str) -> Iterator[tuple[str, str, str, str, int]]:
        """The key (split, label, attribute, level, index) of each training or validation image.

        The images of a class take turns over all attributes at the first level, then over all attributes at the next
        level, and so on. After the last level they begin again, with the next index.

        split: "train" or "val".
        """
        variants = [(attribute, level) for level in self.train_levels for attribute in self.attributes]
        count = self.train_per_class if split == "train" else self.val_per_class
        for label, position in product(self.classes, range(count)):
            index, variant_number = divmod(position, len(variants))
            attribute, level = variants[variant_number]
            yield split, label, attribute, level, index

    def _check(self) -> None:
        """Raise FcaError for unknown or repeated names, numbers out of range, and settings that do not fit a cue."""
        _check_names("dataset.classes", self.classes, CLASSES)
        _check_names("dataset.attributes", self.attributes, (*ATTRIBUTES, BACKGROUND))
        _check_names("dataset.train_levels", self.train_levels, LEVELS)
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
                co_objects(self.classes)  # raises if there are too many classes for the objects behind them

        # Below 10^6 the scenes of the splits differ, see FIRST_INDEX.
        ranges = {"per_level": (1, 10**6), "train_per_class": (0, 10**6), "val_per_class": (0, 10**6), "size": SIZES}
        for key, (low, high) in ranges.items():
            if not low <= (number := getattr(self, key)) <= high:
                raise FcaError(f"dataset.{key}", number, f"{low:,} to {high:,}", "take another number")


def _check_names(key: str, names: Sequence[str], known_names: Sequence[str]) -> None:
    """Raise FcaError unless there are names, all of them among `known_names`, and each only once.

    key: the setting that has the `names`, for the message.
    """
    wrong = [name for name in names if name not in known_names or list(names).count(name) > 1]
    if wrong or not names:
        raise FcaError(key, ", ".join(wrong) or "nothing", ", ".join(known_names), "name each that you want once")


def _line_of_image(split: str, label: str, attribute: str, level: str, index: int) -> dict[str, object]:
    """The columns of one image, with its id.

    A triplet is one object at the three levels of an attribute: its images differ only in the level and the id.
    """
    return {
        "image_id": f"{split}/{label}/{attribute}/{level}/{index:02d}",
        "label": label,
        "split": split,
        "attribute": attribute,
        "level": level,
        "index": index,
        "triplet": f"{split}/{label}/{attribute}/{index:02d}",
    }
