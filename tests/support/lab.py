"""A real store with runs of invented models, whose every answer is known."""

import itertools
import shutil
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import softmax

from fca.stats.intervals import wilson
from fca.store import Store, claims
from fca.subset import draw_subset
from fca.types import ImageData
from tests.support.columns import task_columns

KEYS = ("wolf", "cat", "yak", "ant", "bee", "dog")  # the order of labels, not of the alphabet
PER_CLASS = 8
RECIPE = {"recipe_epochs": 10, "recipe_lr": 0.1}


def images(per_class=PER_CLASS, keys=KEYS, seed=0):
    """Test images in any order among training images."""
    order = np.random.default_rng(seed).permutation(2 * len(keys) * per_class)
    items = pd.DataFrame(
        {
            "image_id": [f"{i}.png" for i in order],
            "label": [keys[i % len(keys)] for i in order],
            "split": ["test" if i < len(keys) * per_class else "train" for i in order],
            "attribute": [("size", "light")[i // len(keys) // 3 % 2] for i in order],
            "level": [("easy", "medium", "hard")[i // len(keys) % 3] for i in order],
        }
    )
    return ImageData("zoo", items, tuple(keys), f"fingerprint{per_class}", read=lambda _: np.zeros((1, 1, 3), np.uint8))


@dataclass
class Lab:
    """Writes rows as the tasks do."""

    store: Store
    data: ImageData = field(default_factory=images)
    count: itertools.count = field(default_factory=itertools.count)

    def __post_init__(self):
        self.store.keep_items(self.data)

    @property
    def true(self):
        """Labels of the test images, in the order of items."""
        return self.data.labels[self.data.rows("test")]

    def write(self, arrays=(), **columns):
        number = next(self.count)
        about = {
            "dataset": self.data.name,
            "fingerprint": self.data.fingerprint,
            "num_classes": len(self.data.classes),
            "split": "test",
            "shift": "clean",
            "run_id": f"{number:012x}",
            "finished": f"2026-01-01T00:00:{number:06d}",
        }
        row = {**about, **columns}
        folder = self.store.folder(row["run_id"])
        token = claims.acquire(folder)
        self.store.write(row, dict(arrays), token, task_columns())
        claims.release(folder, token)
        return row["run_id"]

    def train(self, model, subset, top1, **columns):
        """A sub-model; `top1` on 50 test images, or None when it has no answer."""
        low, high = (None, None) if top1 is None else wilson(round(top1 * 50), 50)
        measured = {"top1": top1, "top1_low": low, "top1_high": high, "n_test": 50}
        drawn = {"ncl": subset.ncl, "subset_seed": subset.seed, "sampler": subset.sampler, "classes": subset.classes}
        about = {"task": "train", "model": model, "seed": 0, "adaptation": "scratch", **RECIPE}
        return self.write(**{**about, **drawn, **measured, **columns})

    def predict(self, model, logits, keys=None, **columns):
        """A full model's answers on the test images."""
        keys = keys or self.data.classes
        right = np.array(keys)[logits.argmax(axis=1)] == np.array(self.data.classes)[self.true]
        arrays = {
            "pred": logits.argmax(axis=1).astype(np.int32),
            "p_max": softmax(logits, axis=1).max(axis=1).astype(np.float32),
            "logits": logits,
            "logit_classes": np.array(keys),
        }
        about = {"task": "predict", "model": model, "ncl": len(self.data.classes), "top1_open": right.mean()}
        return self.write(arrays, **{**about, "classes": range(len(self.data.classes)), **columns})

    def embed(self, encoder, features, **columns):
        """The features of the test images."""
        about = {"task": "embed", "encoder": encoder, "ncl": len(self.data.classes)}
        arrays = {"features": features.astype(np.float16)}
        return self.write(arrays, **{**about, "classes": range(len(self.data.classes)), **columns})

    def logits(self, seed, skill=1.0):
        """Of a model that is right more often than not."""
        noise = np.random.default_rng(seed).normal(size=(len(self.true), len(self.data.classes)))
        return (noise + skill * np.eye(len(self.data.classes))[self.true]).astype(np.float32)

    def features(self, seed, spread=1.0):
        """Around a centre a class."""
        rng = np.random.default_rng(seed)
        return rng.normal(size=(len(self.data.classes), 8))[self.true] + spread * rng.normal(size=(len(self.true), 8))

    def subsets(self, ncl=(2, 3), seeds=range(4)):
        return [draw_subset(len(self.data.classes), n, s) for n in ncl for s in seeds]

    def answered(self, model, right, shift="clean", **columns):
        """A full model's answers that are right where told, the next class elsewhere; no logits are kept.

        right: bool, one a test image; or the chance of each to be right.
        """
        classes = len(self.data.classes)
        right = np.asarray(right)
        if right.dtype != bool:
            right = np.random.default_rng(next(self.count)).random(len(self.true)) < right
        pred = np.where(right, self.true, (self.true + 1) % classes).astype(np.int32)
        sure = np.full(len(pred), 0.5, np.float32)
        arrays = {"pred": pred, "p_max": sure, "logit_classes": np.array(self.data.classes)}
        about = {"task": "predict", "model": model, "ncl": classes, "classes": range(classes), "shift": shift}
        return self.write(arrays, **{**about, "top1_open": right.mean(), **columns})

    def corrupted(self, models, kinds=("fog", "snow"), severities=range(1, 6), **columns):
        """Answers of models {name: logit of being right on a middling image} on clean images and under corruptions.

        Harder with severity; images differ in ease, the same at every severity.
        """
        ease = np.random.default_rng(5).normal(size=len(self.true))
        for model, skill in models.items():
            shifts = [("clean", 0), *((f"corruption/{kind}/{s}", s) for kind in kinds for s in severities)]
            for shift, severity in shifts:
                self.answered(model, 1 / (1 + np.exp(0.5 * severity - skill - ease)), shift, **columns)


def copy_of(lab, outputs):
    """The same store in another folder, where numbers of runs go on."""
    shutil.copytree(lab.store.outputs, outputs)
    numbers = [int(run_id, 16) for run_id in lab.store.rows()["run_id"]]
    return Lab(Store(outputs), lab.data, itertools.count(max(numbers) + 1))
