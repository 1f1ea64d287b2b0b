"""A store of invented runs for experiments/irt_corruption."""

from itertools import count

import numpy as np
import pytest

from fca.store import Store
from tests.support.lab import Lab, images

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """Four models on invented CIFAR-10, one at two snapshots: clean, blurred, brighter, and a kind of no table."""
    made = Store(tmp_path_factory.mktemp("side_by_side") / "outputs")
    data = images(per_class=12, keys=CLASSES)
    lab = Lab(made, type(data)("cifar10", data.items, data.classes, "invented", data.read), count())
    kinds = ("defocus_blur", "brightness", "contrast")
    lab.corrupted({"vit_b16": 2.0, "resnet101": 1.0}, kinds, snapshot="best")
    lab.corrupted({"resnet101": 0.0}, kinds, snapshot="0.1")
    lab.corrupted({"small": -0.5, "smaller": -1.5}, kinds)
    return made


@pytest.fixture(scope="session")
def verdicts(store, tmp_path_factory):
    """Every tenth test image is called mislabelled."""
    items = store.items("invented")
    names = items.loc[items["split"] == "test", "image_id"]
    path = tmp_path_factory.mktemp("verdicts") / "verdicts.csv"
    wrong = np.arange(len(names)) % 10 == 0
    path.write_text("\n".join(["item,error", *(f"{name},{int(one)}" for name, one in zip(names, wrong, strict=True))]))
    return path
