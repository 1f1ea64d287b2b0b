"""What is drawn for training images beside shifts: crops, policies, colour jitter, erasing; in numpy, on the CPU.

Order of a training batch, as in timm: crop and flip, policy, jitter, normalise, erasing, mixup or cutmix. What is drawn
here is done to pixels in fca/training/changes.py. No torch: a recipe is part of every plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fca.allowed import Allowed

POLICIES = ("none", "randaugment", "trivial", "autoaugment", "three_augment")
AFFINE = ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"]
OPERATIONS = ["identity", *AFFINE, "brightness", "color", "contrast", "sharpness", "posterize", "solarize"]
OPERATIONS += ["autocontrast", "equalize", "invert", "grayscale", "blur"]
NUMBERS = {name: number for number, name in enumerate(OPERATIONS)}
SPACE, SIGNED = 14, 10  # randaugment and trivial choose among the first 14; the first 10 also go the other way
LEVELS = 30  # largest magnitude
# Strength at that magnitude, in the units of Changes, but translations as shares of the side and bits that are lost.
USUAL = np.array([0, 0.3, 0.3, 150 / 331, 150 / 331, 30, 0.9, 0.9, 0.9, 0.9, 4, 1, 0, 0, 0])
WIDE = np.array([0, 0.99, 0.99, 32, 32, 135, 0.99, 0.99, 0.99, 0.99, 6, 1, 0, 0, 0])  # translations in pixels
# AutoAugment's pairs of operations for ImageNet, each with its probability in tenths and its magnitude from 0 to 9.
IMAGENET = """
posterize 4 8 rotate 6 9, solarize 6 5 autocontrast 6 0, equalize 8 0 equalize 6 0, posterize 6 7 posterize 6 6,
equalize 4 0 solarize 2 4, equalize 4 0 rotate 8 8, solarize 6 3 equalize 6 0, posterize 8 5 equalize 10 0,
rotate 2 3 solarize 6 8, equalize 6 0 posterize 4 6, rotate 8 8 color 4 0, rotate 4 9 equalize 6 0,
equalize 0 0 equalize 8 0, invert 6 0 equalize 10 0, color 6 4 contrast 10 8, rotate 8 8 color 10 2,
color 8 8 solarize 8 7, sharpness 4 7 invert 6 0, shear_x 6 5 equalize 10 0, color 4 0 equalize 6 0,
equalize 4 0 solarize 2 4, solarize 6 5 autocontrast 6 0, invert 6 0 equalize 10 0, color 6 4 contrast 10 8,
equalize 8 0 equalize 6 0"""
TRIES = 10  # of a rectangle that must fit its image
Round = tuple[Int[np.ndarray, "images rounds"], Float[np.ndarray, "images rounds"]]


class Changes(NamedTuple):
    """What happens to each image of a batch: operations one after another, and a rectangle to erase.

    operation: position in OPERATIONS.
    strength:  tangent of a shear, pixels of a translation, degrees of a rotation; factor of brightness, color, contrast
               and sharpness less 1; bits that posterize keeps; threshold of solarize, 1 = white; sigma of a blur.
    erased:    top, left, height, width; height 0 = none.
    """

    operation: Int[np.ndarray, "batch rounds"]
    strength: Float[np.ndarray, "batch rounds"]
    erased: Int[np.ndarray, "batch 4"]


@dataclass(frozen=True)
class Augment:
    """The fields of `recipe.augment` in YAML, chosen by recipe/augment=NAME.

    policy:    none, randaugment (arXiv:1909.13719), trivial (arXiv:2103.10158), autoaugment (arXiv:1805.09501, for
               ImageNet) or three_augment (arXiv:2204.07118); operations and their ranges are torchvision's.
    ops:       operations an image, of randaugment.
    magnitude: strength of them, 0 to 30.
    jitter:    brightness, contrast and saturation are multiplied by up to 1 +- this, in random order.
    erasing:   probability that 2 to 33 % of an image, a rectangle, become noise (arXiv:1708.04896).
    """

    policy: Annotated[str, Allowed(choices=POLICIES)]
    ops: Annotated[int, Allowed(0)]
    magnitude: Annotated[int, Allowed(0, LEVELS)]
    jitter: Annotated[float, Allowed(0, below=1)]
    erasing: Annotated[float, Allowed(0, 1)]

    def label(self) -> str | None:
        """Its name in tables; None if nothing is changed.

        >>> Augment("randaugment", 2, 9, 0.0, 0.25).label()
        'randaugment 2 x 9, erasing 0.25'
        """
        policy = {"none": "", "randaugment": f"randaugment {self.ops} x {self.magnitude}"}.get(self.policy, self.policy)
        shares = {"jitter": self.jitter, "erasing": self.erasing}
        return ", ".join(filter(None, [policy, *(f"{k} {v:g}" for k, v in shares.items() if v)])) or None

    def drawn(self, rng: np.random.Generator, images: int, size: int) -> Changes:
        """Draw what happens to each of so many square images of this side."""
        rounds: list[Round] = [(np.zeros((images, 0), int), np.zeros((images, 0)))]
        if self.policy != "none":
            rounds.append(self._policy(rng, images, size))
        if self.jitter:
            blends = [NUMBERS[name] for name in ("brightness", "contrast", "color")]
            order = rng.permuted(np.tile(blends, (images, 1)), axis=1)
            rounds.append((order, rng.uniform(-self.jitter, self.jitter, order.shape)))
        erased = np.zeros((images, 4), int)
        if self.erasing:
            uniform, sides = rng.random((images, 2 * TRIES + 3)), np.full(images, size)
            boxes, found = rectangles(uniform, sides, sides, (0.02, 0.33), (1 / 3.3, 1 / 0.3), room=1)
            erased = boxes * (found & (uniform[:, -1] < self.erasing))[:, None]
        operation, strength = (np.concatenate(parts, 1) for parts in zip(*rounds, strict=True))
        return Changes(operation, strength, erased)

    def _policy(self, rng: np.random.Generator, images: int, size: int) -> Round:
        if self.policy == "three_augment":
            operation = rng.choice([NUMBERS[name] for name in ("grayscale", "solarize", "blur")], (images, 1))
            sigma = rng.uniform(0.1, 2.0, operation.shape)
            return operation, np.where(operation == NUMBERS["solarize"], 128 / 255, sigma)
        share: Any = self.magnitude / LEVELS
        most = USUAL * np.where(np.isin(np.arange(15), (3, 4)), size, 1)
        operation = rng.integers(SPACE, size=(images, self.ops if self.policy == "randaugment" else 1))
        if self.policy == "trivial":
            most, share = WIDE, rng.integers(LEVELS + 1, size=operation.shape) / LEVELS
        if self.policy == "autoaugment":
            words = np.array([pair.split() for pair in IMAGENET.split(",")])
            chosen = words[rng.integers(len(words), size=images)].reshape(images, 2, 3)
            happens = 10 * rng.random((images, 2)) < chosen[..., 1].astype(int)
            operation = np.where(happens, np.vectorize(NUMBERS.get)(chosen[..., 0]), 0)
            share = chosen[..., 2].astype(int) / 9
        strength = most[operation] * share
        backward = (operation < SIGNED) & (rng.random(operation.shape) < 0.5)
        moves, posterize, solarize = (operation == NUMBERS[name] for name in ("translate_x", "posterize", "solarize"))
        strength = np.where(moves | (operation == NUMBERS["translate_y"]), np.trunc(strength), strength)
        strength = np.where(posterize, 8 - np.rint(strength), np.where(solarize, 1 - strength, strength))
        return operation, np.where(backward, -strength, strength)


def rectangles(
    uniform: Float[np.ndarray, "images numbers"],
    height: Int[np.ndarray, " images"],
    width: Int[np.ndarray, " images"],
    areas: tuple[float, float],
    aspects: tuple[float, float],
    room: int = 0,
) -> tuple[Int[np.ndarray, "images 4"], Bool[np.ndarray, " images"]]:
    """Random rectangles by torchvision's rule: top, left, height, width of each, and whether one of TRIES fits.

    Its share of the image's area is uniform in `areas`, the logarithm of its width / height in those of `aspects`.
    uniform: in [0, 1): 2 TRIES for area and aspect, then 2 for the place.    room: pixels left free along each axis.
    """
    log_low, log_high = np.log(aspects)
    area = (areas[0] + (areas[1] - areas[0]) * uniform[:, :TRIES]) * (height * width)[:, None]
    stretch = np.exp(log_low + (log_high - log_low) * uniform[:, TRIES : 2 * TRIES])
    sides = np.rint(np.sqrt([area / stretch, area * stretch])).astype(int)
    whole = np.stack([height, width])
    fits = np.logical_and.reduce((sides > 0) & (sides <= whole[..., None] - room))
    sides = np.take_along_axis(sides, fits.argmax(1)[None, :, None], 2)[..., 0]
    start = np.floor(uniform[:, 2 * TRIES : 2 * TRIES + 2].T * (whole - sides + 1)).astype(int)
    return np.concatenate([start, sides]).T, np.asarray(fits.any(1))


def crops(
    uniform: Float[np.ndarray, "images numbers"],
    height: Int[np.ndarray, " images"],
    width: Int[np.ndarray, " images"],
    scale_min: float,
) -> Int[np.ndarray, "images 4"]:
    """torchvision's RandomResizedCrop, scale=(scale_min, 1): top, left, height and width of a crop of each image.

    Where no try fits, it is the largest central one with an aspect from 3:4 to 4:3.    uniform: see `rectangles`.
    """
    boxes, found = rectangles(uniform, height, width, (scale_min, 1.0), (3 / 4, 4 / 3))
    tall = np.minimum(height, np.rint(width * 4 / 3).astype(int))
    wide = np.minimum(width, np.rint(height * 4 / 3).astype(int))
    return np.where(found[:, None], boxes, np.stack([(height - tall) // 2, (width - wide) // 2, tall, wide], 1))
