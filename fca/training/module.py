"""The steps of a training: augment a batch, forward, loss, running average; and the metrics of an epoch."""

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
from fca.training.batches import Batch, as_input, epoch_rng, warp
from fca.training.changes import apply_changes, erase
from fca.training.infer import checked_logits
from fca.training.recipe import Recipe
from fca.types import Classifier

before_lightning()

import pytorch_lightning as pl  # noqa: E402
import timm.optim  # noqa: E402
from torchvision.transforms.v2 import CutMix, MixUp, RandomChoice  # noqa: E402

NAMES_IN_LOGGERS = {  # metrics of an epoch -> what loggers call them
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
    """Trains a classifier's network in place, as Lightning's module.

    figures: after an epoch, its losses, accuracies and learning rate, by the keys of NAMES_IN_LOGGERS.
    """

    def __init__(
        self,
        classifier: Classifier,
        recipe: Recipe,
        steps: int,
        seed: int,
        is_compiled: bool = False,
        forward_size: int = 1,
    ) -> None:
        """Prepare what the recipe needs: mixup and cutmix, a running average of the weights, precision, compiling.

        classifier:   its module is trained; it must give one logit for each class.
        recipe:       how to train, with the learning rate for this batch size, and with epochs in place of steps.
        steps:        number of steps in the whole training, for the schedule of the learning rate.
        seed:         everything that torch draws in an epoch (dropout, mixup) follows from (seed, epoch).
        is_compiled:  whether training steps go through torch.compile.
        forward_size: fewest images that may go through the network together: 2 where batch norm needs two, else 1.
        """
        super().__init__()
        self.network = classifier.module
        self.normalise = classifier.normalise
        self.n_classes = len(classifier.classes)
        self.recipe = recipe
        self.steps = steps
        self.seed = seed
        self.forward_size = forward_size

        mixes: list[nn.Module] = []
        if recipe.mixup:
            mixes.append(MixUp(alpha=recipe.mixup, num_classes=self.n_classes))
        if recipe.cutmix:
            mixes.append(CutMix(alpha=recipe.cutmix, num_classes=self.n_classes))
        self.mix = RandomChoice(mixes) if len(mixes) > 1 else next(iter(mixes), None)  # None: images are not mixed

        self.average = None
        if recipe.ema:
            self.average = AveragedModel(self.network, multi_avg_fn=moving_average(recipe), use_buffers=True)
            self.average.requires_grad_(False)  # else DDP waits for its gradients, which never come

        if recipe.precision == "bf16-true":
            self.network.to(torch.bfloat16)
        # Only the forward pass is compiled: a compiled module would have other names for its weights.
        self.compiled_forward = torch.compile(self.network.forward) if is_compiled else None
        self.figures: dict[str, float] = {}  # of the latest epoch; empty until one has ended

    def train(self, mode: bool = True) -> Training:
        """PyTorch's switch to training or evaluation; batch norms that the recipe freezes stay in evaluation mode."""
        super().train(mode)
        if self.recipe.frozen_norms:
            for norm in batch_norms(self.network):
                norm.eval()
        return self

    def configure_optimizers(self) -> Any:
        """timm's optimiser by its name in the recipe, and a schedule that sets the learning rate at every step.

        With layer_decay, earlier layers learn more slowly: each group of layers has a factor of its own.
        """
        recipe = self.recipe
        options = {"momentum": recipe.momentum, **recipe.optimiser_options}
        if recipe.layer_decay < 1:
            options["layer_decay"] = recipe.layer_decay
        optimiser = timm.optim.create_optimizer_v2(  # type: ignore[attr-defined]
            self.network, recipe.optimiser, recipe.lr, recipe.weight_decay, **options
        )

        # layer_decay gives each group of layers a factor, lr_scale, which only timm's own schedules multiply with.
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * group.get("lr_scale", 1.0)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: recipe.lr_share(step, self.steps))
        return {"optimizer": optimiser, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def on_train_epoch_start(self) -> None:
        """Seed the epoch by its number, so that a resumed training draws the same; reset sums and clocks."""
        trainer: Any = self.trainer
        trainer.train_dataloader.epoch = self.current_epoch  # `Batches` draws the order of images by it
        # 1 separates these draws from those of the batches.
        epoch_seed = int(epoch_rng(self.seed, self.current_epoch, 1).integers(2**63))
        torch.manual_seed(epoch_seed + self.global_rank)  # processes draw different numbers

        self.train_sums = torch.zeros(2, device=self.device)  # loss and accuracy, added up over batches
        self.log_interval = trainer.log_every_n_steps
        self._start_speed_count()

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
        """Forward this process's images of a batch, in chunks (recipe.accumulate), and return the last chunk's loss.

        The loss of a chunk is its mean cross-entropy x weight, where

            weight = batch.share * images of the chunk / images of this process,
            batch.share = images of this process / mean number of images in all processes.

        Summed over chunks and averaged over processes, this is the mean loss of the whole batch. The backward passes of
        the earlier chunks happen here, and their gradients add up in the network; Lightning does the backward pass of
        the returned loss.

        index: position of the batch in its epoch.
        """
        images, targets = self.network_inputs(batch)

        # All processes make the same number of chunks, so that they stay in step: as many as the process with the
        # fewest images can make. The size of the whole batch follows from the definition of `batch.share`.
        n_processes = self.trainer.world_size
        whole_batch_size = round(len(images) * n_processes / batch.share)
        fewest_images = whole_batch_size // n_processes
        n_chunks = max(1, min(self.recipe.accumulate, fewest_images // self.forward_size))
        if self.recipe.accumulate > 1:
            # Gradients are zeroed here, before the first chunk. Lightning would do it after this method and lose those
            # of the earlier chunks, so its hook `optimizer_zero_grad` does nothing with `accumulate`.
            self.optimizers().zero_grad()  # type: ignore[union-attr]

        forward = self.compiled_forward or self.network
        sums = torch.zeros_like(self.train_sums)  # loss and accuracy of this batch, added up over chunks
        chunks = zip(images.tensor_split(n_chunks), targets.tensor_split(n_chunks), strict=True)
        for number, (chunk, chunk_targets) in enumerate(chunks, start=1):
            logits = checked_logits(forward(chunk), len(chunk), self.n_classes).float()
            loss = cross_entropy(logits, chunk_targets, label_smoothing=self.recipe.label_smoothing)
            weight = batch.share * len(chunk) / len(images)
            if weight != 1:  # with one chunk and one process it is 1
                loss = loss * weight
            sums += torch.stack([loss.detach(), weight * accuracy(logits.detach(), chunk_targets)])
            if number < n_chunks:  # the last backward pass is Lightning's
                self.trainer.strategy.backward(loss, None)  # adds to the gradients; None: it needs no optimiser

        self.train_sums += sums
        if (index + 1) % CHECK_EVERY == 0:  # not at every step, since the check waits for the device
            self.check_loss()  # raises Diverged for a loss that is not finite

        self.images_since_log += len(images) * n_processes
        if self.is_logged_step:  # one step of several
            # pace: learning rate, and images per second since the last logged step
            self.log_dict({"train/loss_step": sums[0], **self.pace()}, batch_size=len(images))
            self._start_speed_count()
        return loss

    @property
    def is_logged_step(self) -> bool:
        """Whether the metrics of this step are logged; Lightning would drop those of other steps."""
        return self.logger is not None and (self.global_step + 1) % self.log_interval == 0

    def pace(self) -> dict[str, float]:
        """The learning rate of this step, and the images per second since the last step whose metrics were logged."""
        return {
            "lr": self.recipe.lr * self.recipe.lr_share(self.global_step, self.steps),
            "images_per_s": self.images_since_log / (time.perf_counter() - self.last_log_time),
        }

    def _start_speed_count(self) -> None:
        """Count images and time anew, for the speed at the next step whose metrics are logged."""
        self.images_since_log = 0
        self.last_log_time = time.perf_counter()

    def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """At steps that are logged, log the norm of all gradients together, before they are clipped.

        With FSDP nothing is logged, since a process has only its share of the gradients.
        """
        is_sharded = isinstance(self.trainer.strategy, pl.strategies.FSDPStrategy)
        if self.is_logged_step and not is_sharded:
            gradients = [weights.grad for weights in self.network.parameters() if weights.grad is not None]
            self.log("grad_norm", nn.utils.get_total_norm(gradients))

    def network_inputs(self, batch: Batch) -> tuple[Float[Tensor, "batch 3 size size"], Tensor]:
        """The images of a training batch as the network gets them, augmented and mixed, and their targets.

        Targets are labels, or, if images were mixed (mixup, cutmix), the share of each class: shape (batch, classes).
        """
        recipe = self.recipe
        images = as_input(batch.images)
        targets = batch.labels

        if batch.draws is not None:
            images = warp(images, batch.draws, recipe.flip, recipe.shift, recipe.scale_min)
        if batch.changes is not None:
            images = apply_changes(images, batch.changes)
        images = self.normalise(images)
        if batch.changes is not None:  # after normalising: erased pixels become standard normal noise
            images = erase(images, batch.changes.erased)
        if self.mix is not None:
            images, targets = self.mix(images, targets)
        return self.in_network_format(images), targets  # its precision and memory layout

    def in_network_format(self, images: Float[Tensor, "batch 3 size size"]) -> Float[Tensor, "batch 3 size size"]:
        """Images in the network's precision, and in channels_last, the strides in which convolutions are fastest."""
        dtype = torch.bfloat16 if self.recipe.precision == "bf16-true" else images.dtype
        return images.to(dtype, memory_format=torch.channels_last)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Set all gradients to zero; Lightning calls this between `training_step` and the backward pass of its loss.

        With `accumulate`, the chunks of the batch have added their gradients by then. So nothing is done here:
        `training_step` zeroes the gradients before it forwards the chunks.
        """
        if self.recipe.accumulate == 1:
            optimizer.zero_grad()

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """Do Lightning's step of the optimiser. Raises Diverged for a step that would overflow the weights."""
        try:
            super().optimizer_step(*args, **kwargs)
        except RuntimeError as error:
            if OVERFLOW in str(error):
                raise Diverged from error
            raise

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and kept: the running average of the weights, if there is one."""
        return self.network if self.average is None else self.average.module

    def update_average(self) -> None:
        """Update the running average, if there is one, with the weights after a step."""
        if self.average is not None:
            self.average.update_parameters(self.network)

    def check_loss(self) -> None:
        """Raise Diverged in all processes if the sum of this epoch's losses is not finite; waits for the device."""
        loss_sum = self.trainer.strategy.reduce(self.train_sums[0].clone())
        if not torch.isfinite(loss_sum):
            raise Diverged

    def on_validation_epoch_start(self) -> None:
        self.val_sums = torch.zeros(3, dtype=torch.float32, device=self.device)  # loss, correct predictions, images

    def validation_step(self, batch: Batch, index: int) -> None:
        """Add loss, correct predictions and images of a batch to `val_sums`, without waiting for the device."""
        images = self.in_network_format(self.normalise(as_input(batch.images)))
        logits = self.evaluated(images).float()
        loss = cross_entropy(logits, batch.labels, reduction="sum")
        n_correct = (logits.argmax(1) == batch.labels).sum()
        self.val_sums += torch.stack([loss, n_correct, torch.full_like(loss, len(batch.labels))])

    def on_validation_epoch_end(self) -> None:
        """Compute the epoch's losses, accuracies and learning rate over all processes, as `figures`, and log them.

        `Keeper` chooses the best epoch by them.
        """
        strategy = self.trainer.strategy
        val_loss_sum, n_correct, n_images = strategy.reduce(self.val_sums, reduce_op="sum").tolist()
        # Added up over the batches of the epoch. Without an operation `reduce` takes the mean over processes.
        train_loss_sum, train_accuracy_sum = strategy.reduce(self.train_sums).tolist()
        n_batches = self.trainer.num_training_batches
        self.figures = {
            "train_loss": train_loss_sum / n_batches,
            "train_top1": train_accuracy_sum / n_batches,
            "val_loss": val_loss_sum / n_images,
            "val_top1": n_correct / n_images,
            "lr": self.recipe.lr * self.recipe.lr_share(self.global_step - 1, self.steps),  # of the last step
        }
        if self.logger is not None:
            # The learning rate is logged with the steps.
            without_lr = {NAMES_IN_LOGGERS[name]: value for name, value in self.figures.items() if name != "lr"}
            self.log_dict(without_lr)


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """The layers of a network that normalise by averages over the images of a batch."""
    return [layer for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]


def smallest_forward(classifier: Classifier) -> int:
    """The fewest images that a network can be trained on at once: 1, or 2 where batch norm needs two.

    Batch norm in training needs more than one value per channel. For one image it gets a single value if it normalises
    vectors, or maps of one pixel. This is found by a forward pass of one image, which does not change the network.
    """
    module = classifier.module
    was_training = module.training
    module.train()
    # A norm that stays in evaluation mode is frozen: it uses stored averages, so one value is enough.
    norms = [norm for norm in batch_norms(module) if norm.training]
    if not norms:
        module.train(was_training)
        return 1

    values_per_channel: list[int] = []

    def count_values(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shape = inputs[0].shape  # images x channels, then height x width or nothing
        values_per_channel.append(shape[0] * math.prod(shape[2:]))

    handles = [norm.register_forward_pre_hook(count_values) for norm in norms]
    module.eval()  # in training mode the pass would change averages, and fail for the very case that is sought
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):  # later random numbers stay the same
            module(torch.zeros(1, 3, classifier.input_size, classifier.input_size))
    finally:
        for handle in handles:
            handle.remove()
        module.train(was_training)
    return 2 if 1 in values_per_channel else 1


def accuracy(logits: Float[Tensor, "batch classes"], targets: Tensor) -> Float[Tensor, ""]:
    """The share of a batch that is predicted correctly.

    targets: labels, or, for mixed images, the shares of the classes: the class with the largest share counts then.

    >>> accuracy(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1, 1]))
    tensor(0.5000)
    """
    labels = targets if targets.ndim == 1 else targets.argmax(1)
    return (logits.argmax(1) == labels).float().mean()


def moving_average(recipe: Recipe) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """Return the rule by which torch's AveragedModel updates its averages of weights and buffers after each step.

        average ← d average + (1 - d) value,   d = min(ema, (1 + t) / (10 + t)) for t = 1, 2, ...

    After the first step of a training AveragedModel copies the weights; t counts the steps from the second one on.
    Without ema_warmup d = ema; then the weights after the first step weigh ema^t in the average, which becomes small
    only after about 3 / (1 - ema) steps. Integers are copied at every step: they count the batches that a batch norm
    has seen, and have no average.
    """

    @torch.no_grad()
    def update(averages: Tensors, values: Tensors, step: Tensor | int) -> None:
        """Update these averages in place.

        values: the weights or buffers after the step.
        step: t.
        """
        are_counts = not averages[0].is_floating_point()  # torch calls this for tensors of one type at a time
        if are_counts:
            torch._foreach_copy_(averages, values)
            return

        t = int(step)
        decay = min(recipe.ema, (1 + t) / (10 + t)) if recipe.ema_warmup else recipe.ema
        torch._foreach_lerp_(averages, values, 1 - decay)

    return update
