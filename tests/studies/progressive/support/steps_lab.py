"""A store whose test images have an attribute, a level and a triplet, and models whose every prediction is known."""

import itertools

import numpy as np
import pandas as pd

from fca.store import Store
from fca.studies.progressive.stats.pool import LEVELS
from fca.types import ImageData
from tests.support.lab import Lab

CLASSES = ("wolf", "cat", "yak", "ant")  # the order of labels, not of the alphabet
ATTRIBUTES = ("size", "light")


def steps_lab(outputs, attributes=ATTRIBUTES, per_level=3, classes=CLASSES, change=lambda items: items) -> Lab:
    """Images in any order, among training images that have no level.

    change: of the frame of items, before it is stored.
    """
    lines = [
        {
            "image_id": f"{label}-{attribute}-{level}-{index}",
            "label": label,
            "split": "test",
            "attribute": attribute,
            "level": level,
            "triplet": f"{label}-{attribute}-{index}",
        }
        for label, attribute, level, index in itertools.product(classes, attributes, LEVELS, range(per_level))
    ]
    lines += [{"image_id": f"train-{label}", "label": label, "split": "train"} for label in classes]
    items = change(pd.DataFrame(lines).sample(frac=1, random_state=0).reset_index(drop=True))
    return Lab(Store(outputs), ImageData("steps", items, tuple(classes), "levels", read=lambda _: None))


def items_of(lab):
    """The test items, in the order of the responses."""
    return lab.data.items[lab.data.items["split"] == "test"].reset_index(drop=True)


def respond(lab, model, right, confidence=0.5, **columns):
    """A full model's predictions: right, or the next class; confidence is one number or one an image."""
    classes = len(lab.data.classes)
    pred = np.where(np.asarray(right, dtype=bool), lab.true, (lab.true + 1) % classes).astype(np.int32)
    sure = np.broadcast_to(np.asarray(confidence, dtype=np.float32), pred.shape)
    arrays = {"pred": pred, "p_max": np.ascontiguousarray(sure), "logit_classes": np.array(lab.data.classes)}
    arrays["logits"] = np.eye(classes, dtype=np.float32)[pred]
    about = {"task": "predict", "model": model, "ncl": classes, "classes": range(classes)}
    return lab.write(arrays, **{**about, **columns})


def able(lab, skill, noise=0.0, seed=0):
    """Right where skill exceeds the level (0, 1, 2), give or take."""
    level = items_of(lab)["level"].map(LEVELS.index).to_numpy()
    return skill + noise * np.random.default_rng(seed).normal(size=len(level)) > level
