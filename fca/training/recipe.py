"""How a network is trained. Every field is part of a run's identity; nothing here imports torch."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace

from fca.torchvision_ops import imported
from fca.types import FcaError

SCHEDULES = ("cosine", "step", "constant")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
# Names that every timm has. Any other one is looked up in timm itself, which takes seconds to import.
COMMON_OPTIMISERS = ("sgd", "momentum", "adam", "adamw", "nadam", "nadamw", "radam", "rmsprop", "lamb", "lion", "muon")
ADAPTIVE = ("ada", "lamb")  # parts of the names of optimisers whose steps do not grow with the gradient


@dataclass(frozen=True)
class Recipe:
    """The fields of `recipe` in YAML. 0 switches off label_smoothing, mixup, cutmix, ema, shift, grad_clip, lr_min.

    epochs:          passes over the training images.
    batch_size:      images a step, at most: an epoch is cut into equal batches, so none is tiny.
    optimiser:       any name of timm.optim.create_optimizer_v2; biases and norms are not decayed.
    lr:              highest learning rate, from scratch and for batches of `lr_batch`; see `scaled`.
    lr_batch:        batch size that lr is meant for; 0 = any.
    finetune_lr:     share of lr to use when training begins with given weights.
    lr_min:          where cosine ends.
    weight_decay:    as the optimiser defines it.
    momentum:        of optimisers that have one (sgd, rmsprop, ...).
    schedule:        cosine (to lr_min), step (times `gamma` at every milestone) or constant.
    warmup_epochs:   linear growth of the learning rate from 0, part of `epochs`.
    milestones:      for `step`: shares of training, each in (0, 1).
    gamma:           for `step`.
    step_epochs:     for `step`: times gamma also each time so many epochs have passed; 0 = only at milestones.
    precision:       32-true, bf16-mixed or 16-mixed (the latter needs a GPU).
    label_smoothing: share of the target spread over all classes.
    mixup:           alpha of mixup's Beta(alpha, alpha).    cutmix: likewise; with both, each batch takes one of them.
    ema:             decay of a running average of the weights, which is then validated and kept in their place.
    ema_warmup:      average over few steps at first: step t (from 0) decays by min(ema, (1 + t) / (10 + t)).
    flip:            mirror half of the images, left to right.
    shift:           largest random translation, as a share of the side: 0.125 = 4 of 32 pixels, filled with black.
    scale_min:       smallest area of a random resized crop, as a share of the image; 1 = no crop.
    grad_clip:       largest norm of all gradients together.
    snapshots:       intermediate weights to keep, as fractions of all steps, each in (0, 1].
    """

    epochs: int
    batch_size: int
    optimiser: str
    lr: float
    lr_batch: int
    finetune_lr: float
    lr_min: float
    weight_decay: float
    momentum: float
    schedule: str
    warmup_epochs: float
    milestones: list[float]
    gamma: float
    step_epochs: float
    precision: str
    label_smoothing: float
    mixup: float
    cutmix: float
    ema: float
    ema_warmup: bool
    flip: bool
    shift: float
    scale_min: float
    grad_clip: float
    snapshots: list[float]

    def check(self) -> None:
        """Raise FcaError for the first value outside its range, naming the key as the user types it."""

        def number(value: float) -> tuple[bool, str]:
            return 0 <= value < math.inf, "a finite number of at least 0"

        ranges = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "batch_size": (self.batch_size >= 2, "at least 2"),
            "optimiser": _optimiser(self.optimiser),
            "lr": (0 < self.lr < math.inf, "a finite number above 0"),
            "lr_batch": (self.lr_batch >= 0, "at least 0"),
            "finetune_lr": (0 < self.finetune_lr <= 1, "above 0 and at most 1, a share of lr"),
            "lr_min": (0 <= self.lr_min <= self.lr, f"from 0 to lr={self.lr:g}"),
            "weight_decay": number(self.weight_decay),
            "momentum": (0 <= self.momentum < 1, "at least 0 and below 1"),
            "schedule": (self.schedule in SCHEDULES, ", ".join(SCHEDULES)),
            "warmup_epochs": (0 <= self.warmup_epochs <= self.epochs, f"from 0 to epochs={self.epochs}"),
            "milestones": (all(0 < m < 1 for m in self.milestones), "shares of training, each above 0 and below 1"),
            "gamma": (0 < self.gamma <= 1, "above 0 and at most 1"),
            "step_epochs": number(self.step_epochs),
            "precision": (self.precision in PRECISIONS, ", ".join(PRECISIONS)),
            "label_smoothing": (0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            "mixup": number(self.mixup),
            "cutmix": number(self.cutmix),
            "ema": (0 <= self.ema < 1, "at least 0 and below 1"),
            "shift": (0 <= self.shift < 1, "at least 0 and below 1, a share of the side"),
            "scale_min": (0 < self.scale_min <= 1, "above 0 and at most 1, a share of the area"),
            "grad_clip": number(self.grad_clip),
            "snapshots": (all(0 < s <= 1 for s in self.snapshots), "fractions of all steps, each above 0, at most 1"),
        }
        for name, (inside, allowed) in ranges.items():
            if not inside:
                raise FcaError(f"recipe.{name}", getattr(self, name), allowed, f"set recipe.{name}=...")

    @property
    def warps(self) -> bool:
        """Whether training images are flipped, shifted or cropped."""
        return self.flip or self.shift > 0 or self.scale_min < 1

    def scaled(self, finetune: bool) -> Recipe:
        """This recipe with its effective learning rate filled in: lr_batch 0 and finetune_lr 1.

        lr grows with batch_size / lr_batch, or with its square root for adaptive optimisers (arXiv:1706.02677 and
        arXiv:1404.5997, by the rule of timm's train.py).    finetune: whether training begins with given weights.
        """
        ratio = self.batch_size / self.lr_batch if self.lr_batch else 1.0
        by_batch = ratio**0.5 if any(part in self.optimiser for part in ADAPTIVE) else ratio
        share = by_batch * (self.finetune_lr if finetune else 1.0)
        return replace(self, lr=self.lr * share, lr_min=self.lr_min * share, lr_batch=0, finetune_lr=1.0)

    def lr_share(self, step: int, steps: int) -> float:
        """The learning rate of a step (from 0) of `steps`, as a share of `lr`.

        Warm-up: (step + 1) / warm. Then cosine: (1 + cos(π t)) / 2 with t from 0 to 1 over what is left of training
        (arXiv:1608.03983, without restarts), between lr and lr_min; step: gamma to the number of drops passed.
        """
        warm = self.warmup_epochs / self.epochs * steps
        if step + 1 < warm:
            return (step + 1) / warm
        if self.schedule == "cosine":
            share = (1 + math.cos(math.pi * (step - warm) / (steps - warm))) / 2 if step > warm else 1.0
            return share + (1 - share) * self.lr_min / self.lr
        if self.schedule == "step":
            every = self.step_epochs / self.epochs * steps
            drops = math.floor(step / every + 1e-9) if every else 0
            return self.gamma ** (drops + sum(milestone * steps <= step for milestone in self.milestones))
        return 1.0

    def snapshot_steps(self, steps: int) -> dict[int, list[float]]:
        """Number of steps done -> the fractions of `snapshots` that are kept then: ceil(fraction * steps)."""
        kept = defaultdict(list)
        for fraction in self.snapshots:
            kept[max(1, math.ceil(fraction * steps - 1e-9))].append(fraction)  # 0.07 * 100 is 7.000000000000001
        return kept


def snapshot_file(fraction: float) -> str:
    """The file of a snapshot's weights: at least two decimals, more where the fraction has more.

    >>> snapshot_file(0.5), snapshot_file(0.125), snapshot_file(1.0)
    ('snapshot-0.50.safetensors', 'snapshot-0.125.safetensors', 'snapshot-1.00.safetensors')
    """
    short = f"{fraction:.2f}"
    return f"snapshot-{short if float(short) == fraction else fraction}.safetensors"


def _optimiser(name: str) -> tuple[bool, str]:
    if name in COMMON_OPTIMISERS:
        return True, ""
    names = imported("timm.optim").list_optimizers()
    return name in names, ", ".join(names)
