"""What several tests share: a store with what a recommendation reads."""

from dataclasses import replace

import numpy as np

from fca.stats.intervals import wilson
from fca.store import Store
from fca.store.columns import JUDGED_IMAGES, LEFT_OUT_LOGITS
from fca.studies.recommend.evidence import FITS, RIGHT, SIZES
from tests.support.lab import RECIPE, Lab, images

SPLITS = ("train", "val", "test")
SIZE = 32  # pixels
TOP1 = np.array([0.9, 0.85, 0.8, 0.7])  # with all training images, halves, quarters, eighths
QUIET = {"memory_mb": 2.0, "gflops": 0.1, "params": 1000, "batch_images_per_s": 900.0, "load": 0.0, "input_size": SIZE}


def job_data(name="zoo", per_class=90, keys=("wolf", "cat", "yak")):
    """A third of each class for every split."""
    data = images(per_class // 2, keys)
    splits = [SPLITS[i % 3] for i in data.items.groupby("label").cumcount()]
    return replace(data, name=name, items=data.items.assign(split=splits), fingerprint=f"{name}{per_class}")


def network(lab, model, latency_ms, **of):
    lab.write(task="latency", model=model, **{"ncl": 3, **QUIET, "latency_ms": latency_ms, **of})


def predictions_with(labels, right, ncl, last=False):
    """Predicted labels, right on a share of the images: the first of them, or the last."""
    n = len(labels)
    is_right = np.arange(n)[:: -1 if last else 1] < round(right * n)
    return np.where(is_right, labels, (labels + 1) % ncl).astype(np.int32)


def trained(lab, model, right, adaptation="scratch", seed=0, last=False, swapped=(), **of):
    """A training that is right on a share `right` of each split; its run id.

    swapped: images that a probe, left out, takes for another class with certainty.
    """
    about = {"model": model, "adaptation": adaptation, "ncl": 3, "classes": range(3), "seed": seed, **RECIPE, **of}
    about |= {"input_size": SIZE}
    classes = list(about["classes"])
    rows = {split: lab.data.rows(split) for split in SPLITS}
    rows = {split: part[np.isin(lab.data.labels[part], classes)] for split, part in rows.items()}
    labels = {split: np.searchsorted(classes, lab.data.labels[part]) for split, part in rows.items()}
    n_test = len(labels["test"])
    low, high = wilson(round(right * n_test), n_test)
    measured = {"top1": right, "top1_low": low, "top1_high": high, "n_test": n_test, "train_s": 2.0}

    arrays = {}
    if adaptation == "probe":
        judged = np.concatenate([rows["train"], rows["val"]])
        parts = [predictions_with(labels[split], right, len(classes), last) for split in ("train", "val")]
        predicted = np.concatenate(parts)
        predicted[np.isin(judged, swapped)] = (lab.data.labels[judged[np.isin(judged, swapped)]] + 1) % 3
        arrays = {JUDGED_IMAGES: judged.astype(np.int32), LEFT_OUT_LOGITS: 5.0 * np.eye(len(classes))[predicted]}
        measured["n_judged"] = len(judged)
    run = lab.write(arrays, task="train", **about, **measured)
    for split in ("val", "test"):
        pred = np.array(classes)[predictions_with(labels[split], right, len(classes), last)].astype(np.int32)
        logits = 5.0 * np.eye(len(lab.data.classes), dtype=np.float32)[pred]
        stored = {"pred": pred, "logits": logits, "logit_classes": np.array(lab.data.classes)}
        lab.write(stored, task="predict", split=split, parent=run, snapshot="best", **about)
    return run


def curve(lab, model, top1=TOP1, first_class=None, judged=None, **of):
    """A run that measured this curve.    first_class: share right of the images of class 0; None: as of the others."""
    train, val = lab.data.rows("train"), lab.data.rows("val")
    judged = np.concatenate([train, val]) if judged is None else judged
    right = np.repeat(top1[:, None], len(judged), axis=1)
    if first_class is not None:
        right[:, lab.data.labels[judged] == 0] = first_class
    sizes = len(train) / np.array([1.0, 2.0, 4.0, 8.0])
    arrays = {SIZES: sizes, FITS: np.array([1, 2, 4, 8]), RIGHT: right.astype(np.float32)}
    arrays[JUDGED_IMAGES] = judged.astype(np.int32)
    about = {"ncl": 3, "classes": range(3), "adaptation": "probe", "input_size": SIZE, "weights": "w", **of}
    return lab.write(arrays, task="learning_curve", model=model, n_train=len(train), **about)


def recommended(folders):
    """Four networks: the best is slow, one as good is fast, a fast one is bad, and one was not trained."""
    lab = Lab(Store(folders.mktemp("recommended") / "outputs"), job_data(per_class=600))
    for model, latency in (("slow", 40.0), ("fast", 4.0), ("bad", 2.0), ("untrained", 9.0)):
        network(lab, model, latency, weights=None if model == "untrained" else "w")
    planted = lab.data.rows("train")[5]
    trained(lab, "slow", 0.98, "probe", weights="w", swapped=[planted])
    trained(lab, "fast", 0.98, "probe", weights="w", swapped=[planted])
    trained(lab, "bad", 0.5, "probe", weights="w")
    trained(lab, "bad", 0.55, "finetune", weights="w", last=True)
    curve(lab, "fast", TOP1)
    return lab
