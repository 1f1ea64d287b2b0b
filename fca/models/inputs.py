"""What stands before and behind every network: normalisation, and the class keys of its logits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fca.geometry import ResizeCrop
from fca.types import FcaError

if TYPE_CHECKING:
    from torch import Tensor

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of RGB in [0, 1]
IMAGENETS = (
    "imagenet-1k",
    "imagenet-12k",
    "imagenet-21k-goog",
    "imagenet-21k-miil",
    "imagenet-22k",
    "imagenet-22k-ms",
)  # as timm calls them


@dataclass(frozen=True)
class Normalise:
    """(x - mean) / std, channel by channel, of images in [0, 1] and of shape (batch, channels, height, width).

    >>> import torch
    >>> Normalise((0.5,), (0.25,))(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Sequence[float]
    std: Sequence[float]

    def __call__(self, images: Tensor) -> Tensor:
        """On the images' device and in their precision."""
        mean, std = (images.new_tensor(values)[:, None, None] for values in (self.mean, self.std))
        return (images - mean) / std


def check_rgb(mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
    """Raise FcaError for a given mean or std that is not one of three channels."""
    for key, value in (("mean", mean), ("std", std)):
        if value is not None and len(value) != 3:
            raise FcaError(f"model.{key}", value, "three numbers, of red, green and blue", f"correct model.{key}")


def resize_crop(
    crop: int, side: int, size: int | None, crop_pct: float | None, interpolation: str, squash: bool = False
) -> ResizeCrop:
    """The geometry on record (crop to `crop` after a resize of the shorter side to `side`) with what the user set.

    >>> resize_crop(224, 232, None, None, "bilinear").key, resize_crop(224, 256, 112, None, "bicubic").key
    ('224-232-bilinear', '112-128-bicubic')
    """
    size = size or crop
    share = crop_pct or min(1.0, crop / side)
    if crop_pct is None and math.floor(size / share) < size * side // crop:
        share = math.nextafter(share, 0)  # the quotient was rounded up
    return ResizeCrop(size, share, interpolation, squash)


def class_keys(classes: Any) -> tuple[str, ...]:
    """The class key of every logit: a list of them, or the name of an ImageNet (wnids in timm's order); none for null.

    Raises FcaError for an unknown name, a list of other things than keys, and keys that stand twice.

    >>> class_keys(["cat", 7]), class_keys(None)
    (('cat', '7'), ())
    """
    meant = classes_meaning(classes)
    if not isinstance(meant, str):
        return tuple(meant or ())
    from fca.torchvision_ops import declare_torchvision_ops

    declare_torchvision_ops()
    from timm.data.imagenet_info import ImageNetInfo

    return tuple(ImageNetInfo(meant).label_names())  # type: ignore[no-untyped-call]


def classes_meaning(classes: Any) -> str | list[str] | None:
    """Class keys as they enter an identity: an ImageNet stays a name. Raises as `class_keys` does, and needs no timm.

    >>> classes_meaning("imagenet-1k"), classes_meaning(["cat", 7])
    ('imagenet-1k', ['cat', '7'])
    """
    if classes is None:
        return None
    if isinstance(classes, str):
        if classes not in IMAGENETS:
            allowed = f"a list of class keys, or one of {', '.join(IMAGENETS)}"
            raise FcaError("model.classes", classes, allowed, "correct model.classes")
        return classes
    odd = [key for key in classes if isinstance(key, bool) or not isinstance(key, str | int)]
    keys = [str(key) for key in classes]
    twice = [key for key, count in Counter(keys).items() if count > 1]
    if odd or twice or not keys:
        allowed = "different class keys, in the order of the logits (quote a key such as 'no')"
        raise FcaError("model.classes", (odd or twice or keys)[:5], allowed, "correct model.classes")
    return keys


# What networks and their weights are called in tables.


PRETRAINED = "pretrained"
"""The value of `weights` that means those which the family publishes."""


def file_label(weights: str | None) -> str | None:
    """The weights' name in tables: that of their file; None from scratch."""
    return None if weights is None else Path(weights).name


def keywords_label(name: str, kwargs: Mapping[str, Any]) -> str:
    """A network's name in tables with the keywords that it was given.

    >>> keywords_label("resnet18", {"channels": [16, 32], "drop_rate": 0.1})
    'resnet18 channels=16-32 drop_rate=0.1'
    """
    return " ".join([name, *(f"{key}={_short(value)}" for key, value in kwargs.items())])


def _short(value: Any) -> str:
    return "-".join(map(str, value)) if isinstance(value, list) else str(value)
