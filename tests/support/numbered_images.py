"""What several tests share: images that show their number."""

import numpy as np
import torch

from fca.training.batches import Examples

CPU = torch.device("cpu")


def numbered(n):
    """Image i has i in its first byte."""
    pixels = np.zeros((n, 2, 2, 3), np.uint8)
    pixels[:, 0, 0, 0] = np.arange(n)
    return Examples(pixels, np.arange(n), np.arange(n) % 7)
