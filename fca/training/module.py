"""What happens to one batch: augment, forward, loss, the running average; and the figures of an epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel

from fca.finite import OVERFLOW
from fca.torchvision_ops import before_lightning
from fca.training.batches import Batch, as_input, keyed, warp
from fca.training.changes import changed, erased
from fca.training.infer import checked_logits
from fca.training.recipe import Recipe
from fca.types import Classifier

before_lightning()

import pytorch_lightning as pl  # noqa: E402
import timm.optim  # noqa: E402
from torchvision.transforms.v2 import CutMix, MixUp, RandomChoice  # noqa: E402

LOGGED = {  # figures of an epoch -> what loggers call them
    "train_loss": "train/loss",
    "train_top1": "train/top1",
    "val_loss": "val/loss",
    "val_top1": "val/top1",
    "lr": "lr",
}
CHECK_EVERY = 50  # steps between two checks of the loss, each of which waits for the device
Tensors = tuple[Tensor, ...] | list[Tensor]


class Diverged(Exception):
    """The loss is no longer a finite number."""


class Training(pl.LightningModule):
    """Trains a classifier's network in place; `figures` holds what `LOGGED` names of the last epoch.

    steps:    of the whole training, for the schedule.
    seed:     everything that torch draws in an epoch (dropout, mixup) follows from (seed, epoch).
    compiled: whether training steps go through torch.compile; the names of the weights stay as they are.
    least:    images that go through the network together, at least; see `least_together`.
    """

    def __init__(
        self, classifier: Classifier, recipe: Recipe, steps: int, seed: int, compiled: bool = False, least: int = 1
    ) -> None:
        super().__init__()
        self.network, self.normalise = classifier.module, classifier.normalise
        self.recipe, self.steps, self.seed = recipe, steps, seed
        self.classes, self.least = len(classifier.classes), least
        kinds = ((MixUp, recipe.mixup), (CutMix, recipe.cutmix))
        mixes = [kind(alpha=alpha, num_classes=len(classifier.classes)) for kind, alpha in kinds if alpha]
        self.mix = RandomChoice(mixes) if len(mixes) > 1 else next(iter(mixes), None)
        average = moving_average(recipe)
        self.average = AveragedModel(self.network, multi_avg_fn=average, use_buffers=True) if recipe.ema else None
        if self.average is not None:
            self.average.requires_grad_(False)  # else other processes wait for its gradients
        if recipe.precision == "bf16-true":
            self.network.to(torch.bfloat16)
        self.compiled = torch.compile(self.network.forward) if compiled else None
        self.figures: dict[str, float] = {}

    def train(self, mode: bool = True) -> Training:
        """PyTorch's; batch norms that the recipe leaves as they are stay as in a test."""
        super().train(mode)
        if self.recipe.frozen_norms:
            for norm in batch_norms(self.network):
                norm.eval()
        return self

    def configure_optimizers(self) -> Any:
        """timm's optimiser, and the recipe's learning rate at every step."""
        recipe = self.recipe
        options = {"momentum": recipe.momentum, **recipe.optimiser_options}
        if recipe.layer_decay < 1:
            options["layer_decay"] = recipe.layer_decay
        optimiser = timm.optim.create_optimizer_v2(  # type: ignore[attr-defined]
            self.network, recipe.optimiser, recipe.lr, recipe.weight_decay, **options
        )
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * group.get("lr_scale", 1.0)  # which only timm's own schedules multiply with
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: recipe.lr_share(step, self.steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        """No random state passes from one epoch to the next, so a resumed training draws the same numbers."""
        trainer: Any = self.trainer
        self.every, batches = trainer.log_every_n_steps, trainer.train_dataloader
        batches.epoch = self.current_epoch
        torch.manual_seed(int(keyed(self.seed, self.current_epoch, 1).integers(2**63)) + self.global_rank)
        self.totals = torch.zeros(2, device=self.device)  # loss and accuracy, added up over batches
        self.shown, self.since = 0, time.perf_counter()

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        """The mean loss of a batch; of one in parts that of the last, when the others have left their gradients."""
        images, targets = self.inputs(batch)
        world = self.trainer.world_size
        in_smallest_share = round(len(images) * world / batch.share) // world  # all processes have as many parts
        number = max(1, min(self.recipe.accumulate, in_smallest_share // self.least))
        if self.recipe.accumulate > 1:
            self.optimizers().zero_grad()  # type: ignore[union-attr]
        total = torch.zeros_like(self.totals)
        parts = list(zip(images.tensor_split(number), targets.tensor_split(number), strict=True))
        for place, (part, truth) in enumerate(parts, start=1):
            outputs = (self.compiled or self.network)(part)
            logits = checked_logits(outputs, len(part), self.classes).float()
            loss = cross_entropy(logits, truth, label_smoothing=self.recipe.label_smoothing)
            share = batch.share * len(part) / len(images)
            loss = loss if share == 1 else loss * share
            total += torch.stack([loss.detach(), share * accuracy(logits.detach(), truth)])
            if place < number:
                self.trainer.strategy.backward(loss, None)
        self.totals += total
        if (index + 1) % CHECK_EVERY == 0:
            self.check_loss()
        self.shown += len(images) * self.trainer.world_size
        if self.logged_now:
            self.log_dict({"train/loss_step": total[0], **self.pace()}, batch_size=len(images))
        return loss

    @property
    def logged_now(self) -> bool:
        """Whether somebody wants to see this step: Lightning drops what is logged at others."""
        return self.logger is not None and (self.global_step + 1) % self.every == 0

    def pace(self) -> dict[str, float]:
        """The learning rate of this step, and images a second since the last step that was logged."""
        now, shown = time.perf_counter(), self.shown
        seconds, self.since, self.shown = now - self.since, now, 0
        return {
            "lr": self.recipe.lr * self.recipe.lr_share(self.global_step, self.steps),
            "images_per_s": shown / seconds,
        }

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Log the norm of all gradients together, before they are clipped; FSDP has but a share of them here."""
        if self.logged_now and not isinstance(self.trainer.strategy, pl.strategies.FSDPStrategy):
            gradients = [weights.grad for weights in self.network.parameters() if weights.grad is not None]
            self.log("grad_norm", nn.utils.get_total_norm(gradients))

    def inputs(self, batch: Batch) -> tuple[Float[Tensor, "batch 3 size size"], Tensor]:
        """What the network sees of a batch, augmented and mixed, and its targets: labels, or shares of the classes."""
        recipe = self.recipe
        images = as_input(batch.images)
        if batch.draws is not None:
            images = warp(images, batch.draws, recipe.flip, recipe.shift, recipe.scale_min)
        if batch.changes is not None:
            images = changed(images, batch.changes)
        images, targets = self.normalise(images), batch.labels
        if batch.changes is not None:
            images = erased(images, batch.changes.erased)
        if self.mix is not None:
            images, targets = self.mix(images, targets)
        return self.as_seen(images), targets

    def as_seen(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch 3 size size"]:
        """Images in the precision of bf16-true, and in the strides in which convolutions are fastest."""
        kind = torch.bfloat16 if self.recipe.precision == "bf16-true" else images.dtype
        return images.to(kind, memory_format=torch.channels_last)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Lightning's, which comes after `training_step`; there the parts of a batch have left their gradients."""
        if self.recipe.accumulate == 1:
            optimizer.zero_grad()

    def optimizer_step(self, *given: Any, **named: Any) -> None:
        """Lightning's. Raises Diverged for a step that no weight can take."""
        try:
            super().optimizer_step(*given, **named)
        except RuntimeError as error:
            if OVERFLOW in str(error):
                raise Diverged from error
            raise

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and kept: the running average, if there is one."""
        return self.network if self.average is None else self.average.module

    def follow(self) -> None:
        """Update the running average with the weights of a step."""
        if self.average is not None:
            self.average.update_parameters(self.network)

    def check_loss(self) -> None:
        """Raise Diverged if a loss of this epoch was not finite; waits for the device."""
        if not torch.isfinite(self.trainer.strategy.reduce(self.totals[0].clone())):  # in all processes alike
            raise Diverged

    def on_validation_epoch_start(self) -> None:
        self.val = torch.zeros(3, dtype=torch.float32, device=self.device)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Add up loss, correct predictions and images, without waiting for the device."""
        logits = self.evaluated(self.as_seen(self.normalise(as_input(batch.images)))).float()
        loss = cross_entropy(logits, batch.labels, reduction="sum")
        correct = (logits.argmax(1) == batch.labels).sum()
        self.val += torch.stack([loss, correct, torch.full_like(loss, len(batch.labels))])

    def on_validation_epoch_end(self) -> None:
        """The epoch's figures, for the loggers and for the choice of the best epoch."""
        loss, correct, images = self.trainer.strategy.reduce(self.val, reduce_op="sum").tolist()
        batches = self.trainer.num_training_batches
        train = [value / batches for value in self.trainer.strategy.reduce(self.totals).tolist()]
        lr = self.recipe.lr * self.recipe.lr_share(self.global_step - 1, self.steps)
        found = (*train, loss / images, correct / images, lr)
        self.figures = dict(zip(LOGGED, found, strict=True))
        if self.logger is not None:
            self.log_dict({LOGGED[name]: value for name, value in self.figures.items() if name != "lr"})  # see pace


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """The layers of a network that normalise by averages over images."""
    return [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def least_together(classifier: Classifier) -> int:
    """How many images a network must see at once to be trained: 2 where a batch norm has one value an image, else 1.

    Looked up in a forward pass that changes nothing.
    """
    module = classifier.module
    was_training = module.training
    module.train()
    norms = [norm for norm in batch_norms(module) if norm.training]
    if not norms:
        module.train(was_training)
        return 1

    values_a_channel: list[int] = []

    def count(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        values_a_channel.append(given[0].shape[0] * math.prod(given[0].shape[2:]))

    handles = [norm.register_forward_pre_hook(count) for norm in norms]
    module.eval()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            module(torch.zeros(1, 3, classifier.input_size, classifier.input_size))
    finally:
        for handle in handles:
            handle.remove()
        module.train(was_training)
    return 2 if 1 in values_a_channel else 1


def accuracy(logits: Float[Tensor, "batch classes"], targets: Tensor) -> Float[Tensor, ""]:
    """The share of a batch that is predicted correctly; of mixed images, the class with the larger share counts.

    >>> accuracy(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1]))
    tensor(0.5000)
    """
    truth = targets if targets.ndim == 1 else targets.argmax(1)
    return (logits.argmax(1) == truth).float().mean()


def moving_average(recipe: Recipe) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """How torch's AveragedModel follows the weights and buffers after its first step, which it copies.

        average ← d average + (1 - d) value,   d = min(ema, (1 + t) / (10 + t)) at its step t = 1, 2, ...

    Without ema_warmup d = ema, which in fewer than some 3 / (1 - ema) steps leaves much of the first weights.
    Counts (of the batches that a batch norm has seen) are copied.
    """

    @torch.no_grad()
    def follow(averages: Tensors, values: Tensors, step: Tensor | int) -> None:
        if not averages[0].is_floating_point():  # torch groups them by type
            torch._foreach_copy_(averages, values)
            return
        t = int(step)
        decay = min(recipe.ema, (1 + t) / (10 + t)) if recipe.ema_warmup else recipe.ema
        torch._foreach_lerp_(averages, values, 1 - decay)

    return follow
