"""The constants of every corruption. Those of the 19 published ones come from Hendrycks and Dietterich's generators.

A further corruption is a row of `FURTHER` here and a function of its name in `fca.shifts.corruption`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from fca.geometry import REFERENCE_ABOVE
from fca.types import FcaError

Number = int | float
Five = tuple[tuple[Number, ...], ...]

UP_TO = {"cifar": 48, "tiny_imagenet": REFERENCE_ABOVE}
"""The shorter side, in pixels, up to which a set of constants applies to an image; above all of them: imagenet."""
SEVERITIES = 5


def _one(*values: Number) -> Five:
    return tuple((value,) for value in values)


def _scaled(side: Number, *lengths: tuple[Number, ...]) -> Five:
    """Lengths that are published as shares of a side, in pixels."""
    return tuple(tuple(side * length for length in three) for three in lengths)


# frost: the last constant is the factor by which the published textures are shrunk for this size.    spatter: the last
# is 0 for water and 1 for mud.    elastic_transform: reach of the wobble, its smoothness, jitter of the affine corners;
# those of imagenet are shares of 244 pixels, not 224, as in the published generators.
# fmt: off
_PUBLISHED_BY_SIZE: dict[str, dict[str, Five]] = {
    "cifar": {
        "gaussian_noise": _one(0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": _one(500, 250, 100, 75, 50),
        "impulse_noise": _one(0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "snow": ((0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                 (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8)),
        "frost": ((1, 0.2, 0.2), (1, 0.3, 0.2), (0.9, 0.4, 0.2), (0.85, 0.4, 0.2), (0.75, 0.45, 0.2)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": _one(0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": _one(0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": _scaled(
            32, (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
        "pixelate": _one(0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": _one(80, 65, 58, 50, 40),
        "speckle_noise": _one(0.06, 0.1, 0.12, 0.16, 0.2),
        "gaussian_blur": _one(0.4, 0.6, 0.7, 0.8, 1),
        "spatter": ((0.62, 0.1, 0.7, 0.7, 0.5, 0), (0.65, 0.1, 0.8, 0.7, 0.5, 0), (0.65, 0.3, 1, 0.69, 0.5, 0),
                    (0.65, 0.1, 0.7, 0.69, 0.6, 1), (0.65, 0.1, 0.5, 0.68, 0.6, 1)),
        "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    },
    "tiny_imagenet": {
        "gaussian_noise": _one(0.04, 0.08, 0.12, 0.15, 0.18),
        "shot_noise": _one(250, 100, 50, 30, 15),
        "impulse_noise": _one(0.01, 0.02, 0.05, 0.08, 0.14),
        "defocus_blur": ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        "glass_blur": ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        "motion_blur": ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "snow": ((0.1, 0.2, 1, 0.6, 8, 3, 0.8), (0.1, 0.2, 1, 0.5, 10, 4, 0.8), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
                 (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6)),
        "frost": ((1, 0.3, 0.3), (0.9, 0.4, 0.3), (0.8, 0.45, 0.3), (0.75, 0.5, 0.3), (0.7, 0.55, 0.3)),
        "fog": ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        "brightness": _one(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _one(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _scaled(
            64, (0, 0, 0.08), (0.05, 0.3, 0.06), (0.1, 0.08, 0.06), (0.1, 0.03, 0.03), (0.16, 0.03, 0.02)),
        "pixelate": _one(0.9, 0.8, 0.7, 0.6, 0.5),
        "jpeg_compression": _one(65, 58, 50, 40, 25),
        "speckle_noise": _one(0.15, 0.2, 0.25, 0.3, 0.35),
        "gaussian_blur": _one(0.5, 0.75, 1, 1.25, 1.5),
        "spatter": ((0.62, 0.1, 0.7, 0.7, 0.6, 0), (0.65, 0.1, 0.8, 0.7, 0.6, 0), (0.65, 0.3, 1, 0.69, 0.6, 0),
                    (0.65, 0.1, 0.7, 0.68, 0.6, 1), (0.65, 0.1, 0.5, 0.67, 0.6, 1)),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
    },
    "imagenet": {
        "gaussian_noise": _one(0.08, 0.12, 0.18, 0.26, 0.38),
        "shot_noise": _one(60, 25, 12, 5, 3),
        "impulse_noise": _one(0.03, 0.06, 0.09, 0.17, 0.27),
        "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
        "glass_blur": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
        "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
        "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
        "snow": ((0.1, 0.3, 3, 0.5, 10, 4, 0.8), (0.2, 0.3, 2, 0.5, 12, 4, 0.7), (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                 (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65), (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55)),
        "frost": ((1, 0.4, 1), (0.8, 0.6, 1), (0.7, 0.7, 1), (0.65, 0.7, 1), (0.6, 0.75, 1)),
        "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
        "brightness": _one(0.1, 0.2, 0.3, 0.4, 0.5),
        "contrast": _one(0.4, 0.3, 0.2, 0.1, 0.05),
        "elastic_transform": _scaled(
            244, (2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
        "pixelate": _one(0.6, 0.5, 0.4, 0.3, 0.25),
        "jpeg_compression": _one(25, 18, 15, 10, 7),
        "speckle_noise": _one(0.15, 0.2, 0.35, 0.45, 0.6),
        "gaussian_blur": _one(1, 2, 3, 4, 6),
        "spatter": ((0.65, 0.3, 4, 0.69, 0.6, 0), (0.65, 0.3, 3, 0.68, 0.6, 0), (0.65, 0.3, 2, 0.68, 0.5, 0),
                    (0.65, 0.3, 1, 0.65, 1.5, 1), (0.67, 0.4, 1, 0.65, 1.5, 1)),
        "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
}
# fmt: on
PUBLISHED = tuple(_PUBLISHED_BY_SIZE["imagenet"])
"""The 19 kinds of CIFAR-10-C and ImageNet-C: those of `shift=corruption/all`."""

FURTHER: dict[str, Five] = {}
"""Further kinds: kind -> one tuple per severity, for images of any size. Options of several kinds leave them out."""

CONSTANTS = {
    **{kind: {size: fives[kind] for size, fives in _PUBLISHED_BY_SIZE.items()} for kind in PUBLISHED},
    **{kind: dict.fromkeys(_PUBLISHED_BY_SIZE, fives) for kind, fives in FURTHER.items()},
}
"""kind -> size -> the arguments of the function that draws it, one tuple per severity."""


def constants(kind: str, severity: int, height: int, width: int) -> tuple[Number, ...]:
    """The arguments of a kind's drawing function at a severity (1 to 5), for an image of this height and width.

    The image's shorter side decides: up to 48 px the arguments of CIFAR-10-C apply, up to 96 px the arguments of
    Tiny-ImageNet-C, otherwise the arguments of ImageNet-C. Lengths are in pixels, as published: on an image much larger
    than 224 px, a blur of ImageNet-C is the same number of pixels wide, and therefore looks weaker. Runs therefore
    corrupt larger images at ImageNet-C's own size (see `fca.shifts.corruption.Corruption`).

    >>> constants("defocus_blur", 3, 32, 32), constants("defocus_blur", 3, 375, 500)
    ((0.5, 0.6), (6, 0.5))
    """
    each([kind], [severity], ("corruption", "severity"))
    size = next((size for size, side in UP_TO.items() if min(height, width) <= side), "imagenet")
    return CONSTANTS[kind][size][severity - 1]


def each(
    kinds: Sequence[str], severities: Sequence[int], keys: Sequence[str] = ("shift.kinds", "shift.severities")
) -> list[tuple[str, int]]:
    """All pairs of a kind of corruption and a severity: the kinds in the given order, each at every severity.

    keys: the names of the settings for kinds and severities, for error messages.
    Raises FcaError for a kind that does not exist (the message lists all existing kinds), for a severity outside 1 to
    5, and for an empty list of kinds or severities.

    >>> each(["fog", "frost"], [1, 3])
    [('fog', 1), ('fog', 3), ('frost', 1), ('frost', 3)]
    """
    kinds_key, severities_key = keys
    unknown = [kind for kind in kinds if kind not in CONSTANTS]
    if unknown or not kinds:
        refused = unknown[0] if unknown else kinds  # else: the empty list
        raise FcaError(kinds_key, refused, ", ".join(CONSTANTS), "take some of these")

    outside = [severity for severity in severities if not 1 <= severity <= SEVERITIES]
    if outside or not severities:
        refused_severity = outside[0] if outside else severities  # else: the empty list
        step = "take some of these; clean is shift=clean"
        raise FcaError(severities_key, refused_severity, f"1 (weakest) to {SEVERITIES}", step)
    return list(product(kinds, severities))
