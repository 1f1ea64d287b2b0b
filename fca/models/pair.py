"""Your own similarity of two images, as the paper allows one: `model@encoder=pair encoder.function=mymodule.sim`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from jaxtyping import UInt8

from fca.geometry import ResizeCrop
from fca.identity import settled
from fca.models.own import WHAT, call, function_of, source_of
from fca.types import FcaError

Image = UInt8[np.ndarray, "size size 3"]


@dataclass(frozen=True)
class PairFunction:
    """A function of yours: sim(image, image) -> a number in [0, 1], of uint8 images of one size (arXiv:2411.01099).

    function: module.name; the module may lie in the current folder.
    input_size, crop_pct, interpolation: of the images that it gets, see fca.geometry.ResizeCrop.
    images_per_class: how many images of each class are drawn, since all pairs are too many.    seed: of that draw.

    It has neither features nor logits, only `similarity`: the embed task compares the drawn images.
    """

    function: str
    input_size: int
    crop_pct: float
    interpolation: str
    images_per_class: int
    seed: int

    def label(self) -> str:
        """The function's name."""
        return self.function

    def weights_label(self) -> str | None:
        return None

    def identity(self) -> dict[str, Any]:
        """All fields, and the sha256 of the function's source file. Raises FcaError for impossible settings."""
        if self.images_per_class < 2:
            allowed = "at least 2: similarity within a class needs pairs"
            raise FcaError("model.images_per_class", self.images_per_class, allowed, "raise model.images_per_class")
        return {"family": "pair", **settled("model", asdict(self)), "source": source_of(self.function)}

    def build(self, classes: Sequence[str] | None = None) -> NoReturn:
        """Raises FcaError: there is nothing to build."""
        allowed = "an encoder or a network: a function of two images gives neither features nor logits"
        raise FcaError("model", self.function, allowed, "use it as model@encoder=pair with task=embed")

    @property
    def geometry(self) -> ResizeCrop:
        """Resize and crop of an image before it is compared."""
        return ResizeCrop(self.input_size, self.crop_pct, self.interpolation)

    def similarity(self, first: Image, second: Image) -> float:
        """The function's value for two images. Raises FcaError unless it is a number in [0, 1].

        >>> black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
        >>> PairFunction("fca.models.pair.structural_similarity", 8, 1.0, "bilinear", 10, 0).similarity(black, black)
        1.0
        """
        value = call(self.function, self._function, first, second)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not 0 <= number <= 1:
            raise FcaError(WHAT, f"{self.function} -> {value}", "a number in [0, 1]", "scale what it gives")
        return number

    @cached_property
    def _function(self) -> Any:
        return function_of(self.function)


def structural_similarity(first: Image, second: Image) -> float:
    """(1 + SSIM) / 2 by scikit-image, windows of 7 pixels, mean over colours: an example to copy.

    SSIM (Wang et al., IEEE TIP 13(4), 2004) lies in [-1, 1]; the scale is that of (1 + cos) / 2 elsewhere.

    >>> grey = np.full((8, 8, 3), 128, np.uint8)
    >>> structural_similarity(grey, grey)
    1.0
    """
    from skimage.metrics import structural_similarity as ssim

    value: Any = ssim(first, second, channel_axis=-1, data_range=255)  # type: ignore[no-untyped-call]
    return float((1 + value) / 2)
