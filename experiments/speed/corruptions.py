# Claim: no corruption takes more than 3 times as long as in imagecorruptions (OpenCV, numba); how many images a second
# get all 95 shifts of shift=corruption/all, on one core. Its elastic_transform (half the work: no affine change) and
# frost (six photographs, read and cut) are other algorithms than ours.
#   python experiments/speed/corruptions.py            1 minute; CPU seconds of one thread, the least of 5 calls
import time

import cv2
import imagecorruptions
import numpy as np
from PIL import Image
from sklearn.datasets import load_sample_image

from fca.shifts.constants import CONSTANTS
from fca.shifts.corruption import Corruption, corrupted, generator

REPEATS = 5


def ours(image, kind, severity):
    label = Corruption(kind, severity).label()
    return corrupted(image, kind, severity, generator(0, "test/00017", label))


def theirs(image, kind, severity):
    return imagecorruptions.corrupt(image, severity, kind)


def milliseconds(image, kind):
    """The least CPU time of each severity, ours and theirs, called in turn."""
    found = np.full((2, 5, REPEATS), np.inf)
    for repeat in range(REPEATS):
        for severity in range(1, 6):
            for i, corrupt in enumerate((ours, theirs)):
                start = time.process_time()
                corrupt(image, kind, severity)
                found[i, severity - 1, repeat] = time.process_time() - start
    return 1000 * found.min(axis=2)


def main():
    cv2.setNumThreads(1)
    whole = Image.fromarray(load_sample_image("china.jpg"))
    for side in (32, 224):
        image = np.asarray(whole.resize((side, side), Image.Resampling.BOX))
        print(f"{side} px: ms an image, mean of 5 severities; ratio = ours / theirs, of the severity with the largest")
        totals, ratios = np.zeros(2), {}
        for kind in CONSTANTS:
            for corrupt in (ours, theirs):
                corrupt(image, kind, 1)  # tables, compilers
            mine, other = milliseconds(image, kind)
            totals += mine.sum(), other.sum()
            ratios[kind] = float((mine / other).max())
            print(f"  {kind:18} {mine.mean():7.2f} {other.mean():7.2f} {ratios[kind]:6.2f}")
        slowest = max(ratios, key=ratios.get)
        print(
            f"  all 95: {1000 / totals[0]:.2f} images/s, theirs {1000 / totals[1]:.2f}: {totals[1] / totals[0]:.1f} x;"
        )
        print(f"  largest ratio {ratios[slowest]:.2f} ({slowest}); claim: 3")


if __name__ == "__main__":
    main()
