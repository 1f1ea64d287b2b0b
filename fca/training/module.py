"""The LightningModule: what happens to one batch, and what an epoch amounted to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
import pytorch_lightning as pl  # noqa: E402
import timm.optim  # noqa: E402
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn  # noqa: E402
from torchvision.transforms.v2 import CutMix, MixUp, RandomChoice  # noqa: E402

from fca.nouns import Classifier  # noqa: E402
from fca.training.augment import warp  # noqa: E402
from fca.training.batches import Batch, keyed  # noqa: E402
from fca.training.device import as_input  # noqa: E402
from fca.training.recipe import Recipe  # noqa: E402

LOOK_EVERY = 50  # steps between two looks at the loss, each of which waits for the device


class Diverged(Exception):
    """The loss is no longer a finite number."""


class Training(pl.LightningModule):
    """Trains a classifier's network in place; `figures` holds the last epoch's train_loss, val_loss, val_top1 and lr.

    steps: of the whole training, for the schedule.
    seed:  everything that torch draws in an epoch (dropout, mixup) follows from (seed, epoch).
    """

    def __init__(self, classifier: Classifier, recipe: Recipe, steps: int, seed: int) -> None:
        super().__init__()
        self.network, self.normalise = classifier.module, classifier.normalise
        self.recipe, self.steps, self.seed = recipe, steps, seed
        self.mix = _mixing(recipe, len(classifier.classes))
        average = get_ema_multi_avg_fn(recipe.ema)  # type: ignore[no-untyped-call]
        self.average = AveragedModel(self.network, multi_avg_fn=average, use_buffers=True) if recipe.ema else None
        self.figures: dict[str, float] = {}

    def configure_optimizers(self) -> Any:
        """timm's optimiser, and the recipe's learning rate at every step."""
        recipe = self.recipe
        optimiser = timm.optim.create_optimizer_v2(  # type: ignore[attr-defined]
            self.network, recipe.optimiser, recipe.lr, recipe.weight_decay, momentum=recipe.momentum
        )
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: recipe.lr_share(step, self.steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        """Nothing random is carried from one epoch to the next, so a resumed training draws what it would have."""
        batches: Any = self.trainer.train_dataloader
        batches.epoch = self.current_epoch
        torch.manual_seed(int(keyed(self.seed, self.current_epoch, 1).integers(2**63)))
        self.train_loss = torch.zeros((), device=self.device)

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        """Warp, mix, forward, cross-entropy."""
        recipe = self.recipe
        images = as_input(batch.images)
        if batch.draws is not None:
            images = warp(images, batch.draws, recipe.flip, recipe.shift, recipe.scale_min)
        images, targets = self.normalise(images), batch.labels
        if self.mix is not None:
            images, targets = self.mix(images, targets)
        logits = self.network(images.contiguous(memory_format=torch.channels_last)).float()
        loss = cross_entropy(logits, targets, label_smoothing=recipe.label_smoothing)
        self.train_loss += loss.detach()
        if (index + 1) % LOOK_EVERY == 0:
            self.look()
        if self.logger is not None:
            self.log("train_loss_step", loss.detach(), batch_size=len(batch.labels))
        return loss

    @property
    def answering(self) -> nn.Module:
        """The network whose answers count: the running average, if there is one."""
        return self.network if self.average is None else self.average.module

    def follow(self) -> None:
        """Let the running average take in the weights of a step."""
        if self.average is not None:
            self.average.update_parameters(self.network)

    def look(self) -> None:
        """Raise Diverged if a loss of this epoch was not finite; waits for the device."""
        if not torch.isfinite(self.train_loss):
            raise Diverged

    def on_validation_epoch_start(self) -> None:
        """Begin to count."""
        self.val = torch.zeros(3, dtype=torch.float32, device=self.device)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Add up loss, correct answers and images, without waiting for the device."""
        logits = self.answering(self.normalise(as_input(batch.images))).float()
        loss = cross_entropy(logits, batch.labels, reduction="sum")
        correct = (logits.argmax(1) == batch.labels).sum()
        self.val += torch.stack([loss, correct, torch.full_like(loss, len(batch.labels))])

    def on_validation_epoch_end(self) -> None:
        """The epoch's figures, for the loggers and for the choice of the best epoch."""
        loss, correct, images = self.val.tolist()
        train_loss = self.train_loss.item() / self.trainer.num_training_batches
        lr = self.recipe.lr * self.recipe.lr_share(self.global_step - 1, self.steps)
        self.figures = {"train_loss": train_loss, "val_loss": loss / images, "val_top1": correct / images, "lr": lr}
        self.log_dict(self.figures)


def _mixing(recipe: Recipe, ncl: int) -> Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None:
    kinds = [kind(alpha=a, num_classes=ncl) for kind, a in ((MixUp, recipe.mixup), (CutMix, recipe.cutmix)) if a]
    return RandomChoice(kinds) if len(kinds) > 1 else next(iter(kinds), None)
