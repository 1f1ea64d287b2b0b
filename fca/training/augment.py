"""Random draws for training images beside shifts: crops, policies, colour jitter, erasing; in numpy, on the CPU.

Order of a training batch, as in timm: crop and flip, policy, jitter, normalise, erasing, mixup or cutmix.
fca/training/changes.py applies the draws to pixels. No torch here: a recipe is part of every plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from fca.validation import Allowed

POLICIES = ("none", "randaugment", "trivial", "autoaugment", "three_augment")
AFFINE = ["shear_x", "shear_y", "translate_x", "translate_y", "rotate"]
OPERATIONS = [
    "identity",
    *AFFINE,
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
    "invert",
    "grayscale",
    "blur",
]
OPERATION_NUMBERS = {name: number for number, name in enumerate(OPERATIONS)}
N_CHOICES = 14  # randaugment and trivial choose among the first 14 operations
N_SIGNED_OPERATIONS = 10  # the first 10 operations also have negative strengths
LARGEST_MAGNITUDE = 30
# Strength at that magnitude, in the units of Changes, but translations as shares of the side and bits that are lost.
STRENGTHS = np.array([0, 0.3, 0.3, 150 / 331, 150 / 331, 30, 0.9, 0.9, 0.9, 0.9, 4, 1, 0, 0, 0])
# The same for trivial, with translations in pixels.
TRIVIAL_STRENGTHS = np.array([0, 0.99, 0.99, 32, 32, 135, 0.99, 0.99, 0.99, 0.99, 6, 1, 0, 0, 0])
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
Rounds = tuple[Int[np.ndarray, "images rounds"], Float[np.ndarray, "images rounds"]]
"""Operations of each image, one after another, and their strengths; see Changes."""


class Changes(NamedTuple):
    """The changes of each image of a batch: operations one after another, and a rectangle to erase.

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
    magnitude: Annotated[int, Allowed(0, LARGEST_MAGNITUDE)]
    jitter: Annotated[float, Allowed(0, below=1)]
    erasing: Annotated[float, Allowed(0, 1)]

    def label(self) -> str | None:
        """The name of this augmentation in tables; None if it changes nothing.

        >>> Augment("randaugment", 2, 9, 0.0, 0.25).label()
        'randaugment 2 x 9, erasing 0.25'
        """
        words = []
        if self.policy == "randaugment":
            words.append(f"randaugment {self.ops} x {self.magnitude}")
        elif self.policy != "none":
            words.append(self.policy)
        if self.jitter:
            words.append(f"jitter {self.jitter:g}")
        if self.erasing:
            words.append(f"erasing {self.erasing:g}")
        return ", ".join(words) or None

    def draw_changes(self, rng: np.random.Generator, images: int, size: int) -> Changes:
        """Draw the changes of a number of square images: operations, and a rectangle to erase.

        A round is one operation for each image, with its strength. The rounds of the policy come first, then three
        rounds of the colour jitter, whose strength is a relative change: 0.2 multiplies brightness by 1.2.

        images: number of images.
        size: their side in pixels.
        """
        # Each element has the operations and the strengths of one or more rounds: images x rounds. The first is empty,
        # so that the concatenation below works without policy and jitter.
        rounds: list[Rounds] = [(np.zeros((images, 0), int), np.zeros((images, 0)))]
        if self.policy == "three_augment":
            rounds.append(_draw_three_augment(rng, images))
        elif self.policy != "none":
            rounds.append(self._draw_policy(rng, images, size))

        if self.jitter:
            jittered = [OPERATION_NUMBERS[name] for name in ("brightness", "contrast", "color")]
            order = rng.permuted(np.tile(jittered, (images, 1)), axis=1)  # images x 3, each row in a random order
            rounds.append((order, rng.uniform(-self.jitter, self.jitter, order.shape)))

        erased = np.zeros((images, 4), int)
        if self.erasing:
            # 2 * TRIES + 2 numbers for the rectangle; the last number decides whether the image is erased at all.
            uniform = rng.random((images, 2 * TRIES + 3))
            sides = np.full(images, size)
            # The ranges are those of torchvision's RandomErasing. Its aspect is height / width, ours the inverse, and
            # its rectangles are smaller than the image along both axes: hence the margin.
            areas, aspects = (0.02, 0.33), (1 / 3.3, 1 / 0.3)
            boxes, has_fit = draw_rectangles(uniform, sides, sides, areas, aspects, margin=1)
            is_erased = has_fit & (uniform[:, -1] < self.erasing)
            erased = boxes * is_erased[:, None]  # all 0 where nothing is erased

        return Changes(
            operation=np.concatenate([operation for operation, _ in rounds], 1),
            strength=np.concatenate([strength for _, strength in rounds], 1),
            erased=erased,
        )

    def _draw_policy(self, rng: np.random.Generator, images: int, size: int) -> Rounds:
        """Draw operations and their strengths by randaugment, trivial or autoaugment.

        The strength of an operation is its largest strength, which depends on the policy, times a share from 0 to 1.
        randaugment has the same share for all operations; the other policies draw a share for each. Operations that
        have two directions, such as rotate or brightness, get a negative strength with a chance of one half.

        images: number of images.
        size: their side in pixels.
        Returns two arrays of shape (images, rounds). The first has the numbers of the operations. The second has their
        strengths, each in the unit of its operation: tangent of a shear, pixels of a translation, degrees of a
        rotation, threshold of solarize, bits that posterize keeps, or relative change of brightness and the like.
        """
        n_operations = self.ops if self.policy == "randaugment" else 1
        # The first N_CHOICES of OPERATIONS. Those behind them, such as grayscale, belong to other policies.
        operation = rng.integers(N_CHOICES, size=(images, n_operations))

        # Largest strength of each operation. STRENGTHS has translations as shares of the side: to pixels.
        translations = (OPERATION_NUMBERS["translate_x"], OPERATION_NUMBERS["translate_y"])
        is_share_of_side = np.isin(np.arange(len(STRENGTHS)), translations)
        largest = STRENGTHS * np.where(is_share_of_side, size, 1)

        share: Any = self.magnitude / LARGEST_MAGNITUDE  # randaugment: one share for all operations
        if self.policy == "trivial":
            largest = TRIVIAL_STRENGTHS  # this policy has larger strengths, and translations in pixels
            share = rng.integers(LARGEST_MAGNITUDE + 1, size=operation.shape) / LARGEST_MAGNITUDE
        elif self.policy == "autoaugment":
            # Its pairs replace the operations drawn above. That draw stays: without it, later random numbers would
            # differ.
            operation, share = _draw_autoaugment(rng, images)

        strength = largest[operation] * share
        has_two_directions = operation < N_SIGNED_OPERATIONS  # these operations come first in OPERATIONS
        is_reversed = has_two_directions & (rng.random(operation.shape) < 0.5)

        # Translations are whole pixels. A strong solarize has a low threshold; a strong posterize keeps few bits.
        strength = np.where(np.isin(operation, translations), np.trunc(strength), strength)
        strength = np.where(operation == OPERATION_NUMBERS["solarize"], 1 - strength, strength)
        strength = np.where(operation == OPERATION_NUMBERS["posterize"], 8 - np.rint(strength), strength)
        return operation, np.where(is_reversed, -strength, strength)


def _draw_three_augment(rng: np.random.Generator, images: int) -> Rounds:
    """Draw one operation for each image, grayscale, solarize or blur, and its strength.

    The strength is the sigma of a blur in pixels, and a threshold of 128 / 255 for solarize; grayscale ignores it.
    Returns two arrays of shape (images, 1).
    """
    choices = [OPERATION_NUMBERS[name] for name in ("grayscale", "solarize", "blur")]
    operation = rng.choice(choices, (images, 1))
    sigma = rng.uniform(0.1, 2.0, operation.shape)
    return operation, np.where(operation == OPERATION_NUMBERS["solarize"], 128 / 255, sigma)


def _draw_autoaugment(rng: np.random.Generator, images: int) -> Rounds:
    """Draw a pair of operations for each image from IMAGENET, the pairs of AutoAugment's policy for that data set.

    Each operation of a pair is done with a probability of its own; otherwise its number becomes 0, the identity.
    Returns two arrays of shape (images, 2): the numbers of the operations, and their magnitudes as shares of the
    largest magnitude.
    """
    pairs = np.array([pair.split() for pair in IMAGENET.split(",")])  # pairs x 6 words
    words = pairs[rng.integers(len(pairs), size=images)].reshape(images, 2, 3)  # name, probability in tenths, magnitude
    names = words[..., 0]
    tenths = words[..., 1].astype(int)
    magnitudes = words[..., 2].astype(int)

    happens = 10 * rng.random((images, 2)) < tenths
    numbers = np.vectorize(OPERATION_NUMBERS.get)(names)
    operation = np.where(happens, numbers, 0)
    return operation, magnitudes / 9  # 9 is the largest magnitude in IMAGENET


def draw_rectangles(
    uniform: Float[np.ndarray, "images numbers"],
    height: Int[np.ndarray, " images"],
    width: Int[np.ndarray, " images"],
    areas: tuple[float, float],
    aspects: tuple[float, float],
    margin: int = 0,
) -> tuple[Int[np.ndarray, "images 4"], Bool[np.ndarray, " images"]]:
    """Draw a random rectangle inside each image by torchvision's rule: draw a size up to TRIES times, until it fits.

    A rectangle of area A and aspect r (width / height) has

        height = sqrt(A / r),   width = sqrt(A r).

    A is a share of the image's area, uniform in `areas`; log r is uniform between the logarithms of `aspects`. The
    place of the rectangle is uniform in the image.

    uniform: random numbers in [0, 1), a row for each image: TRIES for the area, TRIES for the aspect, two for the
             place. Further columns are ignored, so that callers can draw numbers of their own in the same call.
    height, width: sizes of the images in pixels.
    areas, aspects: the smallest and the largest value.
    margin:  at least this many rows, and this many columns, of the image are outside of the rectangle.

    Returns two arrays. The first has top, left, height and width in pixels, with the first size that fits; the second
    has whether any size fits. Where none does, the rectangle is not valid, and the caller has to ignore it.
    """
    # All tries are computed at once: arrays of images x tries.
    area_share = areas[0] + (areas[1] - areas[0]) * uniform[:, :TRIES]
    area = area_share * (height * width)[:, None]
    log_low, log_high = np.log(aspects)
    aspect = np.exp(log_low + (log_high - log_low) * uniform[:, TRIES : 2 * TRIES])
    heights = np.rint(np.sqrt(area / aspect)).astype(int)
    widths = np.rint(np.sqrt(area * aspect)).astype(int)

    # In a tiny image a side may be rounded to 0 pixels.
    fits_height = (heights > 0) & (heights <= height[:, None] - margin)
    fits_width = (widths > 0) & (widths <= width[:, None] - margin)
    fits = fits_height & fits_width

    # Take the size of the first try that fits: from here on there is one value for each image.
    first_fit = fits.argmax(1)[:, None]  # argmax gives the first True, and 0 if there is none
    box_height = np.take_along_axis(heights, first_fit, 1)[:, 0]
    box_width = np.take_along_axis(widths, first_fit, 1)[:, 0]

    n_tops = height - box_height + 1  # number of rows at which the rectangle can begin
    n_lefts = width - box_width + 1
    top = np.floor(uniform[:, 2 * TRIES] * n_tops).astype(int)
    left = np.floor(uniform[:, 2 * TRIES + 1] * n_lefts).astype(int)
    return np.stack([top, left, box_height, box_width], 1), np.asarray(fits.any(1))


def draw_crops(
    uniform: Float[np.ndarray, "images numbers"],
    height: Int[np.ndarray, " images"],
    width: Int[np.ndarray, " images"],
    scale_min: float,
) -> Int[np.ndarray, "images 4"]:
    """Draw a crop of each image like torchvision's RandomResizedCrop, with scale=(scale_min, 1) and aspects 3:4 to 4:3.

    Returns top, left, height and width of the crops in pixels. An image in which no random crop fits, such as a
    panorama, gets the largest central crop with such an aspect.

    uniform, height, width: as for `draw_rectangles`.
    scale_min: smallest area of a crop, as a share of the image.
    """
    boxes, has_fit = draw_rectangles(uniform, height, width, (scale_min, 1.0), (3 / 4, 4 / 3))
    central_height = np.minimum(height, np.rint(width * 4 / 3).astype(int))
    central_width = np.minimum(width, np.rint(height * 4 / 3).astype(int))
    central_top = (height - central_height) // 2
    central_left = (width - central_width) // 2
    central = np.stack([central_top, central_left, central_height, central_width], 1)
    return np.where(has_fit[:, None], boxes, central)
