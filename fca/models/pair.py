"""Your own similarity of two images, as the paper allows: `model@encoder=pair encoder.function=m.sim plugins=[m]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NoReturn

import numpy as np
from jaxtyping import UInt8

from fca.models.own import FUNCTION_KEY, OwnFunction
from fca.types import FcaError
from fca.validation import Allowed, Seed

Image = UInt8[np.ndarray, "size size 3"]


@dataclass(frozen=True)
class PairFunction(OwnFunction):
    """A similarity of the user's: a function of two uint8 images of one size -> a number in [0, 1] (arXiv:2411.01099).

    images_per_class: how many images of each class are drawn, since all pairs are too many.
    seed:             decides which ones are drawn.

    It has neither features nor logits, only `similarity`: the embed task compares the drawn images pair by pair.
    """

    images_per_class: Annotated[int, Allowed(2)]
    seed: Seed

    family = "pair"

    def identity(self) -> dict[str, Any]:
        """What enters the ids of runs: all fields, and the sha256 of the function's source file.

        Raises FcaError for impossible settings, and if there is no such file.
        """
        if self.images_per_class < 2:
            allowed = "at least 2: similarity within a class needs pairs"
            raise FcaError("model.images_per_class", self.images_per_class, allowed, "raise model.images_per_class")
        return super().identity()

    def build(self, classes: Sequence[str] | None = None) -> NoReturn:
        """Always raises FcaError: a function of two images has no network to build."""
        allowed = "an encoder or a network: a function of two images gives neither features nor logits"
        raise FcaError("model", self.function, allowed, "use it as model@encoder=pair with task=embed")

    def similarity(self, first: Image, second: Image) -> float:
        """The function's value for two images. Raises FcaError unless it is a number in [0, 1].

        >>> black, white = np.zeros((8, 8, 3), np.uint8), np.full((8, 8, 3), 255, np.uint8)
        >>> PairFunction(8, "fca.models.pair.structural_similarity", 1.0, "bilinear", 10, 0).similarity(black, black)
        1.0
        """
        value = self.call(first, second)
        try:
            similarity = float(value)
        except (TypeError, ValueError):  # no number: refused below, as NaN is
            similarity = float("nan")
        if not 0 <= similarity <= 1:
            raise FcaError(FUNCTION_KEY, f"{self.function} -> {value}", "a number in [0, 1]", "scale what it gives")
        return similarity


def structural_similarity(first: Image, second: Image) -> float:
    """(1 + SSIM) / 2 of two images: an example of a similarity, to copy.

    SSIM (Wang et al., IEEE TIP 13(4), 2004) is in [-1, 1], so this is in [0, 1], as (1 + cos) / 2 is elsewhere. It is
    computed by scikit-image in windows of 7 pixels, and averaged over windows and colours.

    >>> grey = np.full((8, 8, 3), 128, np.uint8)
    >>> structural_similarity(grey, grey)
    1.0
    """
    from skimage.metrics import structural_similarity as ssim

    value: Any = ssim(first, second, channel_axis=-1, data_range=255)  # type: ignore[no-untyped-call]
    return float((1 + value) / 2)
