"""What several tests share: what task=describe leaves of images, without running it."""

import base64
from io import BytesIO

import numpy as np
from PIL import Image


def describe(lab):
    """As `task=describe` stores it: image k is all of grey k."""
    grey = np.arange(len(lab.data.items), dtype=np.uint8)
    thumbnails = np.broadcast_to(grey[:, None, None, None], (len(grey), 64, 64, 3))
    about = {"task": "describe", "split": None, "shift": None}
    return lab.write({"thumbnails": np.ascontiguousarray(thumbnails)}, **about)


def pixels(uri):
    return np.asarray(Image.open(BytesIO(base64.b64decode(uri.partition(",")[2]))))
