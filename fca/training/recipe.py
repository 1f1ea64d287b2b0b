"""The recipe of a training. Every field is part of a run's identity; nothing here imports torch."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

from fca.torchvision_ops import imported
from fca.training.augment import Augment
from fca.types import FcaError

SCHEDULES = ("cosine", "step", "constant")
PRECISIONS = ("32-true", "tf32", "bf16-mixed", "bf16-true", "16-mixed")
CROPS_FROM = ("original", "input")
# Names that every timm has. Any other one is looked up in timm itself, which takes seconds to import.
COMMON_OPTIMISERS = ("sgd", "momentum", "adam", "adamw", "nadam", "nadamw", "radam", "rmsprop", "lamb", "lion", "muon")
# Arguments of timm's optimisers that are no keywords of `optimiser_options`: recipes set them elsewhere, or not at all.
NOT_OPTIONS = {
    "model_or_params",
    "params",
    "opt",
    "lr",
    "weight_decay",
    "momentum",
    "layer_decay",
    "param_group_fn",
    "args",
    "kwargs",
    "defaults",
}
FEW_STEPS = 100  # of a training; see experiments/few_class_arena/min_steps.py
ADAPTIVE = ("ada", "lamb")  # parts of the names of optimisers whose steps do not grow with the gradient


@dataclass(frozen=True)
class Recipe:
    """The fields of `recipe` in YAML. 0 switches off label_smoothing, mixup, cutmix, ema, shift, grad_clip, lr_min.

    epochs:          after each of them val is scored, and the learning rate's plan is counted in them.
    steps:           length of the training in steps instead, rounded up to whole passes; 0 = as long as its epochs.
    min_steps:       a training of fewer steps goes through its images several times an epoch, so that it has so many.
    passes:          passes over the training images in an epoch; `sized` multiplies it for `min_steps`.
    batch_size:      images a step on all devices, at most: an epoch is cut into equal batches, so none is tiny.
    accumulate:      parts into which a batch is cut where it does not fit the device; batch norm sees a part.
    optimiser:       any name of timm.optim.create_optimizer_v2; biases and norms are not decayed.
    optimiser_options: its own keywords, e.g. {betas: [0.9, 0.95], eps: 1e-6}.
    layer_decay:     factor of the learning rate from each group of layers to the one before it, as timm groups those
                     of its networks; 1 = the same for all.
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
    precision:       32-true, tf32 (32-true with TF32 in matrix products of GPUs; in their convolutions both have it, by
                     torch's default), bf16-mixed, bf16-true (weights and steps too) or 16-mixed (which needs a GPU).
    label_smoothing: share of the target spread over all classes.
    mixup:           alpha of mixup's Beta(alpha, alpha).
    cutmix:          likewise; with both, each batch takes one of them.
    ema:             decay of a running average of the weights, which is then validated and kept in their place.
    ema_warmup:      average over few steps at first: step t (from 0) decays by min(ema, (1 + t) / (10 + t)).
    flip:            mirror half of the images, left to right.
    shift:           largest random translation, as a share of the side: 0.125 = 4 of 32 pixels, filled with black.
    scale_min:       smallest area of a random resized crop, as a share of the image; 1 = no crop.
    crop_from:       original = crops are cut from the whole image; input = from the image at input size, as in a test.
    frozen_norms:    batch norms keep their pretrained averages, as in a test: those of few images differ.
    repeats:         augmentations of an image in an epoch (arXiv:1901.09335), which shows 1 / repeats of the images.
    augment:         further changes of training images, see fca/training/augment.py.
    grad_clip:       largest norm of all gradients together.
    val_max:         validation images that choose the epoch, a fixed draw stratified by class; 0 = all.
    patience:        stop after so many epochs without a better one; 0 = never. It excludes snapshots.
    snapshots:       intermediate weights to keep, as fractions of all steps, each in (0, 1] and named once.
    """

    epochs: int
    steps: int
    min_steps: int
    passes: int
    batch_size: int
    accumulate: int
    optimiser: str
    optimiser_options: dict[str, Any]
    layer_decay: float
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
    crop_from: str
    frozen_norms: bool
    repeats: int
    augment: Augment
    grad_clip: float
    val_max: int
    patience: int
    snapshots: list[float]

    def check(self) -> None:
        """Raise FcaError for the first value outside its range, naming its key as the user types it: recipe.KEY."""

        def at_least_0(value: float) -> tuple[bool, str]:
            """Whether a number is finite and at least 0, and this range in words."""
            return 0 <= value < math.inf, "a finite number of at least 0"

        shift_below = 0 if self.crops else 1  # crops of originals are random translations already: no shift
        has_distinct_snapshots = len(set(self.snapshots)) == len(self.snapshots)
        # key -> whether its value is allowed, and the allowed values in words
        ranges = {
            "epochs": (self.epochs >= 1, "at least 1"),
            "steps": (self.steps >= 0, "at least 0"),
            "min_steps": (self.min_steps >= 0, "at least 0"),
            "passes": (self.passes >= 1, "at least 1"),
            "layer_decay": (0 < self.layer_decay <= 1, "above 0 and at most 1"),
            "crop_from": (self.crop_from in CROPS_FROM, ", ".join(CROPS_FROM)),
            "repeats": (self.repeats >= 1, "at least 1"),
            "val_max": (self.val_max >= 0, "at least 0"),
            "patience": (self.patience >= 0, "at least 0"),
            "batch_size": (self.batch_size >= 2, "at least 2"),
            "accumulate": (1 <= self.accumulate <= self.batch_size, f"from 1 to batch_size={self.batch_size}"),
            "optimiser": _is_optimiser_of_timm(self.optimiser),  # a pair like the others
            "lr": (0 < self.lr < math.inf, "a finite number above 0"),
            "lr_batch": (self.lr_batch >= 0, "at least 0"),
            "finetune_lr": (0 < self.finetune_lr <= 1, "above 0 and at most 1, a share of lr"),
            "lr_min": (0 <= self.lr_min <= self.lr, f"from 0 to lr={self.lr:g}"),
            "weight_decay": at_least_0(self.weight_decay),
            "momentum": (0 <= self.momentum < 1, "at least 0 and below 1"),
            "schedule": (self.schedule in SCHEDULES, ", ".join(SCHEDULES)),
            "warmup_epochs": (0 <= self.warmup_epochs <= self.epochs, f"from 0 to epochs={self.epochs}"),
            "milestones": (
                all(0 < share < 1 for share in self.milestones),
                "shares of training, each above 0 and below 1",
            ),
            "gamma": (0 < self.gamma <= 1, "above 0 and at most 1"),
            "step_epochs": at_least_0(self.step_epochs),
            "precision": (self.precision in PRECISIONS, ", ".join(PRECISIONS)),
            "label_smoothing": (0 <= self.label_smoothing < 1, "at least 0 and below 1"),
            "mixup": at_least_0(self.mixup),
            "cutmix": at_least_0(self.cutmix),
            "ema": (0 <= self.ema < 1, "at least 0 and below 1"),
            "shift": (
                self.shift == 0 or 0 <= self.shift < shift_below,
                "a share of the side below 1; 0 with crops",
            ),
            "scale_min": (0 < self.scale_min <= 1, "above 0 and at most 1, a share of the area"),
            "grad_clip": at_least_0(self.grad_clip),
            "snapshots": (
                all(0 < fraction <= 1 for fraction in self.snapshots) and has_distinct_snapshots,
                "fractions of all steps, each above 0, at most 1, and named once",
            ),
        }
        if self.snapshots:
            ranges["patience"] = (self.patience == 0, "0 with snapshots, which are shares of the whole training")
        if self.precision == "bf16-true":
            ranges["ema"] = (self.ema == 0, "0 for bf16-true, in which an average stands still: see bf16-mixed")

        for name, (is_allowed, allowed) in ranges.items():
            if not is_allowed:
                raise FcaError(f"recipe.{name}", getattr(self, name), allowed, f"set recipe.{name}=...")

        if self.optimiser_options:
            _check_optimiser_options(self)

    def essential(self, images: int, val_images: int) -> Recipe:
        """This recipe as it enters the id of a run: two recipes that train in the same way become equal.

        A number of steps becomes a number of epochs, each with a number of passes over the images. A key that has no
        effect, given the other keys, gets a neutral value.

        images, val_images: numbers of training and validation images.
        """
        recipe = self.sized(images, val_images)

        augment = recipe.augment
        if augment.policy != "randaugment":  # the only policy with these two settings
            augment = replace(augment, ops=0, magnitude=0)
        # The first epoch is the best so far, so training stops at the earliest after epoch 1 + patience.
        can_stop_early = recipe.patience < recipe.epochs - 1
        return replace(
            recipe,
            ema_warmup=recipe.ema > 0 and recipe.ema_warmup,
            crop_from=recipe.crop_from if recipe.scale_min < 1 else "input",  # at 1 nothing is cropped
            patience=recipe.patience if can_stop_early else 0,
            augment=augment,
        )

    def steps_for(self, images: int) -> int:
        """Number of steps of a training on this number of images; the recipe must be `sized` for them already."""
        steps_per_pass = -(-images // self.batch_size)  # rounded up
        return self.epochs * self.passes * steps_per_pass

    @property
    def warps(self) -> bool:
        """Whether training images are flipped, shifted or cropped."""
        return self.flip or self.shift > 0 or self.scale_min < 1

    @property
    def crops(self) -> bool:
        """Whether training images are cut from originals."""
        return self.scale_min < 1 and self.crop_from == "original"

    def scaled(self, finetune: bool) -> Recipe:
        """This recipe with its effective learning rate filled in, so that lr_batch is 0 (any) and finetune_lr is 1.

        lr and lr_min are multiplied by batch_size / lr_batch, or by its square root for adaptive optimisers
        (arXiv:1706.02677 and arXiv:1404.5997, by the rule of timm's train.py); and, with `finetune`, by finetune_lr.

        finetune: whether the training begins with given weights, instead of from scratch.
        """
        batch_ratio = self.batch_size / self.lr_batch if self.lr_batch else 1.0  # 0: lr is for any batch size
        is_adaptive = any(name_part in self.optimiser for name_part in ADAPTIVE)
        batch_factor = batch_ratio**0.5 if is_adaptive else batch_ratio
        factor = batch_factor * (self.finetune_lr if finetune else 1.0)
        return replace(self, lr=self.lr * factor, lr_min=self.lr_min * factor, lr_batch=0, finetune_lr=1.0)

    def sized(self, images: int, val_images: int) -> Recipe:
        """The recipe for a number of images: `steps` and `min_steps` are turned into epochs and passes, and become 0.

        If `steps` is given, the passes over the images that make so many steps are spread over at most `epochs` epochs.
        Each epoch has the same number of passes, rounded up. If `steps` is 0, each epoch has enough passes that all
        epochs together have at least `min_steps` steps. Warm-up and drops of the learning rate, which are counted in
        epochs, keep their share of the training.

        images, val_images: numbers of training and validation images. val_max becomes 0, which stands for all, if there
        are no more than val_max validation images.
        """
        steps_per_pass = max(1, -(-images // self.batch_size))  # rounded up, as are the quotients below
        epochs = self.epochs
        passes = self.passes
        if self.steps:
            total_passes = -(-self.steps // steps_per_pass)
            epochs = min(epochs, total_passes)
            passes = -(-total_passes // epochs)
        else:
            steps = epochs * passes * steps_per_pass
            passes *= max(1, -(-self.min_steps // steps))

        epochs_ratio = epochs / self.epochs
        return replace(
            self,
            epochs=epochs,
            passes=passes,
            steps=0,
            min_steps=0,
            warmup_epochs=self.warmup_epochs * epochs_ratio,
            step_epochs=self.step_epochs * epochs_ratio,
            val_max=self.val_max if val_images > self.val_max else 0,
        )

    def lr_share(self, step: int, steps: int) -> float:
        """The learning rate at a step of a training as a share of `lr`.

        step:  the number of the step, from 0.
        steps: the number of steps of the whole training.

        Warm-up, over the first w = warmup_epochs / epochs * steps steps: (step + 1) / w. After it, by the schedule:

            cosine:   c + (1 - c) lr_min / lr,   c = (1 + cos(π t)) / 2,   t = (step - w) / (steps - w)
                      (arXiv:1608.03983, without restarts)
            step:     gamma ^ (number of drops so far), which are at the milestones and each time step_epochs have
                      passed
            constant: 1
        """
        warm = self.warmup_epochs / self.epochs * steps
        if step + 1 < warm:
            return (step + 1) / warm

        if self.schedule == "cosine":
            cosine = 1.0
            if step > warm:  # else t is at most 0: the highest rate
                angle = math.pi * (step - warm) / (steps - warm)  # π t
                cosine = (1 + math.cos(angle)) / 2
            return cosine + (1 - cosine) * self.lr_min / self.lr

        if self.schedule == "step":
            steps_per_drop = self.step_epochs / self.epochs * steps
            # 1e-9: a quotient that is a whole number may be rounded to just below it.
            periodic_drops = math.floor(step / steps_per_drop + 1e-9) if steps_per_drop else 0
            milestone_drops = sum(milestone * steps <= step for milestone in self.milestones)
            return self.gamma ** (periodic_drops + milestone_drops)

        return 1.0

    def snapshot_steps(self, steps: int) -> dict[int, list[float]]:
        """Number of steps done, ceil(fraction * steps) -> the fractions of `snapshots` whose weights are saved then.

        steps: how many the whole training has.
        """
        fractions_by_step = defaultdict(list)
        for fraction in self.snapshots:
            step = max(1, math.ceil(fraction * steps - 1e-9))  # without 1e-9, 0.07 * 100 = 7.000000000000001 gives 8
            fractions_by_step[step].append(fraction)
        return fractions_by_step


def snapshot_file(fraction: float) -> str:
    """The name of the file with a snapshot's weights: two decimals of the fraction, or more if it has more.

    >>> snapshot_file(0.5), snapshot_file(0.125), snapshot_file(1.0)
    ('snapshot-0.50.safetensors', 'snapshot-0.125.safetensors', 'snapshot-1.00.safetensors')
    """
    two_decimals = f"{fraction:.2f}"
    is_exact = float(two_decimals) == fraction
    return f"snapshot-{two_decimals if is_exact else fraction}.safetensors"


def _is_optimiser_of_timm(name: str) -> tuple[bool, str]:
    """Whether timm has an optimiser of this name, and, if it has not, the names that it has, for a message."""
    if name in COMMON_OPTIMISERS:
        return True, ""
    names = imported("timm.optim").list_optimizers()
    return name in names, ", ".join(names)


def _check_optimiser_options(recipe: Recipe) -> None:
    """Raise FcaError for optimiser_options that the recipe's optimiser does not have, or whose values it refuses.

    To try the values, an optimiser of a 2 x 2 matrix is made with them.
    """
    optim = imported("timm.optim")
    torch = imported("torch")
    options = recipe.optimiser_options

    optimiser_class = optim.get_optimizer_class(recipe.optimiser, False)  # False: without timm's default arguments
    parameters = {*signature(optim.create_optimizer_v2).parameters, *signature(optimiser_class).parameters}
    keywords = parameters - NOT_OPTIONS  # without those that other keys of the recipe set
    allowed = f"keywords of {recipe.optimiser}: {', '.join(sorted(keywords))}"

    unknown_keywords = sorted(set(options) - keywords)
    if unknown_keywords:
        raise FcaError(f"recipe.optimiser_options.{unknown_keywords[0]}", options, allowed, "correct it")

    try:
        weights = torch.nn.Parameter(torch.zeros(2, 2))
        optim.create_optimizer_v2([weights], recipe.optimiser, recipe.lr, **options)
    except Exception as error:  # optimisers refuse values with errors of every kind
        raise FcaError("recipe.optimiser_options", options, f"{allowed} ({error})", "correct it") from None
