"""scikit-learn's handwritten digits: real scans that come with the library, so no network and no folder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import UInt8
from PIL import Image

from fca.data.splits import Share, assemble, held_out
from fca.types import ImageData

SIZE = 32  # pixels a side; the scans have 8


@dataclass(frozen=True)
class Digits:
    """`dataset=digits`: 1,797 scans of 10 digits, 8 x 8 pixels of 17 grey levels, shown at 32 x 32.

    version: of these images and of how they are enlarged; part of the fingerprint.
    test, val: the fixed stratified draws of both from all images and from what is left of them.
    mirror:  whether a mirrored image still shows its class.
    """

    version: str
    test: Share
    val: Share
    mirror: bool = False

    def load(self) -> ImageData:
        """The scans, in their own order."""
        from sklearn.datasets import load_digits

        scans, targets = load_digits(return_X_y=True)
        listed = pd.DataFrame({"image_id": [f"{i:04d}" for i in range(len(scans))], "label": targets.astype(str)})
        listed["split"] = np.where(held_out(listed, self.test), "test", "train")
        grey = np.round(scans.reshape(-1, 8, 8) * (255 / 16)).astype(np.uint8)

        def reader(_: pd.DataFrame) -> Scans:
            return Scans(grey)

        return assemble("digits", listed, reader, self.val, version=self.version, mirror=self.mirror)


@dataclass(frozen=True)
class Scans:
    """Reads a scan, enlarged smoothly."""

    grey: UInt8[np.ndarray, "images 8 8"]

    def __call__(self, index: int) -> UInt8[np.ndarray, "height width 3"]:
        """RGB pixels of the scan at this position."""
        return np.array(Image.fromarray(self.grey[index]).resize((SIZE, SIZE), Image.Resampling.BICUBIC).convert("RGB"))
