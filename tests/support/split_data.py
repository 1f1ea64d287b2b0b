"""What several tests share: listed images without pixels."""

import numpy as np

from fca.data.splits import assemble
from tests.support.trees import VAL


def data_of(frame, **options):
    return assemble("set", frame, lambda _: np.zeros((1, 1, 3), np.uint8), options.pop("val", VAL), **options)
