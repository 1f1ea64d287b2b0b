"""Does any corruption take more than 3 times as long as in imagecorruptions (OpenCV, numba)? And how long do all take?

    python experiments/speed/corruptions.py            1 minute; CPU seconds of one thread, the least of 5 calls

Also: how many images a second get all 95 shifts of shift=corruption/all, on one core. The peer's elastic_transform
(half the work: no affine change) and frost (six photographs, read and cut) are other algorithms than ours.
"""

import cv2
import imagecorruptions
import numpy as np
from harness import machine, options, timed
from PIL import Image
from sklearn.datasets import load_sample_image

from fca.shifts.constants import PUBLISHED
from fca.shifts.corruption import Corruption, corrupted
from fca.types import keyed_rng


def ours(image, kind, severity):
    return corrupted(image, kind, severity, keyed_rng(0, "test/00017", Corruption(kind, severity).label()))


def theirs(image, kind, severity):
    return imagecorruptions.corrupt(image, severity, kind)


def milliseconds(image, kind, calls):
    """The least CPU time of each severity, ours and theirs, called in turn."""
    ours(image, kind, 1), theirs(image, kind, 1)  # tables, compilers
    spent = [[[timed(f, image, kind, s).cpu for s in range(1, 6)] for f in (ours, theirs)] for _ in range(calls)]
    return 1000 * np.min(spent, axis=0)


def main():
    size = options(__doc__, calls=(5, 1), kinds=(len(PUBLISHED), 2))
    cv2.setNumThreads(1)
    whole = Image.fromarray(load_sample_image("china.jpg"))
    for side in (32, 224)[: 1 if size.smoke else 2]:
        image = np.asarray(whole.resize((side, side), Image.Resampling.BOX))
        print(f"{side} px: ms an image, mean of 5 severities; ratio = ours / theirs, of the severity with the largest")
        totals, ratios = np.zeros(2), {}
        for kind in list(PUBLISHED)[: size.kinds]:
            mine, other = milliseconds(image, kind, size.calls)
            totals += mine.sum(), other.sum()
            ratios[kind] = float((mine / other).max())
            print(f"  {kind:18} {mine.mean():7.2f} {other.mean():7.2f} {ratios[kind]:6.2f}")
        slowest = max(ratios, key=ratios.get)
        rates = 1000 / totals
        print(f"  all {5 * len(ratios)}: {rates[0]:.2f} images/s, theirs {rates[1]:.2f}: {rates[0] / rates[1]:.1f} x;")
        print(f"  largest ratio {ratios[slowest]:.2f} ({slowest}); claim: 3")
    machine()


if __name__ == "__main__":
    main()
