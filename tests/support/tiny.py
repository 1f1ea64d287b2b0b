"""A network, a recipe and images so small that a training takes a tenth of a second."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fca.training.augment import Augment
from fca.training.batches import Examples
from fca.training.recipe import Recipe
from fca.types import Classifier

SIZE = 8


@dataclass(frozen=True)
class Square:
    key: str = "square8"
    size: int = SIZE

    def __call__(self, image, mask=None):
        return image, mask


def classifier(ncl=3, seed=0):
    """With batch norm and dropout, whose state and randomness must survive a resume."""
    torch.manual_seed(seed)
    body = nn.Sequential(
        nn.Conv2d(3, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )
    head = nn.Linear(24, ncl)
    keys = tuple(f"class{i}" for i in range(ncl))
    return Classifier(nn.Sequential(body, head), keys, Square(), lambda x: (x - 0.5) / 0.25, body, head)


def examples(n, ncl=3, seed=0):
    """Class i is bright in colour i."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % ncl
    pixels = rng.integers(0, 160, (n, SIZE, SIZE, 3), dtype=np.uint8)
    pixels[np.arange(n), :, :, labels] += 70
    return Examples(pixels, np.arange(n), labels)


def recipe(**changes):
    values = {
        "epochs": 3, "batch_size": 16, "optimiser": "adamw", "lr": 0.01, "weight_decay": 0.01, "momentum": 0.9,
        "schedule": "cosine", "warmup_epochs": 1.0, "milestones": [0.5, 0.75], "gamma": 0.1, "precision": "32-true",
        "lr_batch": 0, "finetune_lr": 1.0, "lr_min": 0.0, "step_epochs": 0.0, "cutmix": 0.0, "ema": 0.0,
        "ema_warmup": True, "label_smoothing": 0.0, "mixup": 0.0, "flip": False, "shift": 0.0, "scale_min": 1.0,
        "grad_clip": 0.0, "snapshots": [], "steps": 0, "min_steps": 0, "passes": 1, "accumulate": 1, "repeats": 1,
        "optimiser_options": {}, "layer_decay": 1.0, "crop_from": "input", "val_max": 0, "patience": 0,
        "frozen_norms": False,
        "augment": Augment("none", 0, 0, 0.0, 0.0),
    }  # fmt: skip
    return Recipe(**{**values, **changes})
