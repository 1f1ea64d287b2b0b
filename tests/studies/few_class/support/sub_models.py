"""What several tests share: rows of sub-models with chosen predictions."""

import numpy as np


def sub_model(lab, model, subset, right, seed=0, **columns):
    """A sub-model, and its answers on the subset's test images in the order of items: right or the next class."""
    inside = np.flatnonzero(np.isin(lab.true, subset.classes))
    keys = np.array([lab.data.classes[c] for c in subset.classes])
    true = np.searchsorted(subset.classes, lab.true[inside])
    pred = np.where(right, true, (true + 1) % subset.ncl).astype(np.int32)
    run_id = lab.train(model, subset, float(np.mean(right)), seed=seed, **columns)
    about = {"task": "predict", "parent": run_id, "model": model, "snapshot": "best", "ncl": subset.ncl}
    logits = np.eye(subset.ncl, dtype=np.float32)[pred]
    lab.write({"pred": pred, "logits": logits, "logit_classes": keys}, **about, classes=subset.classes, seed=seed)
    return run_id


def answers(lab, subset, skill, seed):
    """Right more often with more skill."""
    n = int(np.isin(lab.true, subset.classes).sum())
    return np.random.default_rng(seed).random(n) < skill


def images(lab, subset):
    return np.flatnonzero(np.isin(lab.true, subset.classes))
