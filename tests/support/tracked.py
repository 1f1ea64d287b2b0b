"""A small store of trainings and predictions, as `fca run` leaves them, without any training."""

import json

import numpy as np
import yaml

from fca.report.tracking.runs import WandbTracker
from fca.store import Store, claims
from fca.store.files import write_text
from fca.types import Column, Run

COLUMNS = tuple(Column(name, float) for name in ("val_top1",)) + tuple(
    Column(n, int) for n in ("n_train", "best_epoch")
)
TYPED = {
    "dataset": {"_target_": "fca.data.arrays.Digits", "root": "/home/me/digits", "token": "hf_secret"},
    "model": {"_target_": "fca.models.timm_models.TimmModel", "name": "test_resnet", "weights": None},
    "encoder": {"_target_": "fca.models.handmade.Hog", "cell": 8},
    "subset": {"ncl": 2, "seed": 0, "sampler": "uniform", "classes": None},
    "recipe": {"_target_": "fca.training.recipe.Recipe", "lr": 0.1, "epochs": 3, "batch_size": 64},
    "task": {"_target_": "fca.tasks.train.Train"},
    "machine": {"_target_": "fca.tasks.Machine", "devices": 1, "cache_gb": 4.0},
    "adaptation": None,
    "seed": 0,
    "limit": None,
    "logger": {"_target_": "fca.report.tracking.runs.WandbTracker", "project": "fca"},
    "sweep": {"print": False},
}
COMMAND = "fca run experiment=few_class subset.ncl=2 dataset.token=hf_secret"


def tracker_in(outputs, **given):
    values = {"project": "fca", "entity": None, "group": None, "tags": None, "dir": str(outputs), **given}
    return WandbTracker(**values)


def training(seed):
    about = {"dataset": "digits", "fingerprint": "f00d", "model": "test_resnet", "ncl": 2, "subset_seed": 0}
    about |= {"sampler": "uniform", "classes": (1, 4), "seed": seed, "adaptation": "scratch"}
    about |= {"recipe_lr": 0.025, "recipe_epochs": 3, "recipe_batch_size": 64}
    return Run("train", {"data": {"fingerprint": "f00d"}, "classes": [1, 4], "seed": seed}, about)


def prediction(train, shift="clean", snapshot="best"):
    about = {**train.metadata, "shift": shift, "snapshot": snapshot}
    return Run("predict", {"model": train.run_id, "shift": shift, "snapshot": snapshot}, about, train.run_id)


def score(parent, classes):
    about = {"dataset": "digits", "model": "test_resnet", "ncl": len(classes), "classes": classes}
    return Run("score", {"parent": parent.run_id, "classes": list(classes)}, about, parent.run_id)


def begin(outputs, run, typed=TYPED, command=COMMAND):
    """The run's folder with its configuration, as before any work."""
    text = f"# {command}\n{yaml.safe_dump({**typed, 'seed': run.metadata.get('seed', 0)}, sort_keys=False)}"
    write_text(Store(outputs).folder(run.run_id) / "config.yaml", text)


def done(outputs, run, **columns):
    """The row of a finished run, stored; a training has its history too."""
    store = Store(outputs)
    begin(outputs, run)
    row = {**run.metadata, **columns, "run_id": run.run_id, "task": run.task, "parent": run.parent}
    row |= {"command": COMMAND, "commit": "abc123", "host": "vm", "finished": f"2026-01-01T00:00:00.{run.run_id}"}
    if run.task == "train":
        lines = [
            {"train_loss": 1 / (e + 1), "train_top1": 0.5, "val_loss": 2.0, "val_top1": 0.25 * e} for e in range(3)
        ]
        (store.folder(run.run_id) / "fitted.json").write_text(json.dumps({"history": lines}))
        row = {"top1": 0.75, "val_top1": 0.5, "n_train": 100, "train_s": 1.5, "images_per_s": 9.0, "n_test": 40, **row}
    token = claims.acquire(store.folder(run.run_id))
    kept = store.write(row, {"logits": np.zeros((2, 2), np.float32)} if run.task == "predict" else {}, token, COLUMNS)
    claims.release(store.folder(run.run_id), token)
    return kept
