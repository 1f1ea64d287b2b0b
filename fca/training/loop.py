"""`fit`: train a classifier by Lightning, go on after a kill, leave its best weights.

`Training` is what happens to one batch and the figures of an epoch; `Keeper` what is kept: the checkpoint to go on
from, the requested snapshots, the best epoch.
"""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim.swa_utils import AveragedModel

from fca.store.damage import check_header
from fca.store.files import DamagedFile, opened, read_object, remove, write_json, write_whole
from fca.torchvision_ops import declare_torchvision_ops
from fca.training.batches import DRAWS, Batch, Batches, Examples, as_input, device_of, keyed, warp
from fca.training.infer import batch_size_of
from fca.training.recipe import Recipe, snapshot_file
from fca.types import Classifier, FcaError

declare_torchvision_ops()

import pytorch_lightning as pl  # noqa: E402
import timm.optim  # noqa: E402
from pytorch_lightning.plugins import TorchCheckpointIO  # noqa: E402
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]  # noqa: E402
from torchvision.transforms.v2 import CutMix, MixUp, RandomChoice  # noqa: E402

CHECK_EVERY = 50  # steps between two checks of the loss, each of which waits for the device
BEST, FITTED, CHECKPOINT = "best.safetensors", "fitted.json", "last.ckpt"
# Warnings that no user can do anything about.
_KNOWN = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 still uses the old name with torch 2.13
    r"GPU available but not used",  # as configured: machine.accelerator=cpu
    r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",  # 16-mixed skips its first steps
)
Tensors = tuple[Tensor, ...] | list[Tensor]
log = logging.getLogger(__name__)


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
        kinds = ((MixUp, recipe.mixup), (CutMix, recipe.cutmix))
        mixes = [kind(alpha=alpha, num_classes=len(classifier.classes)) for kind, alpha in kinds if alpha]
        self.mix = RandomChoice(mixes) if len(mixes) > 1 else next(iter(mixes), None)
        average = moving_average(recipe)
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
        """No random state passes from one epoch to the next, so a resumed training draws the same numbers."""
        batches: Any = self.trainer.train_dataloader
        batches.epoch = self.current_epoch
        torch.manual_seed(int(keyed(self.seed, self.current_epoch, 1).integers(2**63)))
        self.train_loss = torch.zeros((), device=self.device)

    def training_step(self, batch: Batch, index: int) -> Float[Tensor, ""]:
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
        if (index + 1) % CHECK_EVERY == 0:
            self.check_loss()
        if self.logger is not None:
            self.log("train_loss_step", loss.detach(), batch_size=len(batch.labels))
        return loss

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
        if not torch.isfinite(self.train_loss):
            raise Diverged

    def on_validation_epoch_start(self) -> None:
        self.val = torch.zeros(3, dtype=torch.float32, device=self.device)

    def validation_step(self, batch: Batch, index: int) -> None:
        """Add up loss, correct predictions and images, without waiting for the device."""
        logits = self.evaluated(self.normalise(as_input(batch.images))).float()
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


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints, but never half of one after a kill."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_whole(Path(path), lambda file: torch.save(checkpoint, file))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """One .safetensors file, whole or not there."""
    write_whole(path, lambda file: file.write(save(weights)))


class Keeper(pl.Callback):
    """Keeps, in memory and inside every checkpoint, the best epoch so far; writes snapshots at their steps.

    The best epoch has the highest val_top1; among equal ones, the lowest val_loss; then the first. Epoch 0 = the
    weights that training began with, kept when not one epoch ended with finite losses.
    """

    def __init__(self, folder: Path, snapshots: dict[int, list[float]], network: nn.Module) -> None:
        self.folder, self.snapshots, self.run = folder, snapshots, folder.name
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"epoch": 0, "rank": [-math.inf, -math.inf], "weights": weights_of(network)}
        self.seconds, self.begun = 0.0, time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs of the epochs before it."""
        return {"history": self.history, "best": self.best, "seconds": self.seconds, "run": self.run}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best, self.seconds = (state_dict[name] for name in ("history", "best", "seconds"))
        log.info("go on after epoch %d", len(self.history))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, *_: Any) -> None:
        """Update the running average, then write the snapshots of this step."""
        pl_module.follow()
        for fraction in self.snapshots.get(trainer.global_step, ()):
            pl_module.check_loss()
            save_weights(self.folder / snapshot_file(fraction), weights_of(pl_module.evaluated))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Compare the epoch with the best one, then write the checkpoint."""
        figures = pl_module.figures
        if not all(map(math.isfinite, figures.values())):
            raise Diverged
        epoch = trainer.current_epoch + 1
        now = time.perf_counter()
        self.seconds, self.begun = self.seconds + now - self.begun, now
        self.history.append(figures)
        log.info("epoch %d: %s", epoch, ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
        rank = [figures["val_top1"], -figures["val_loss"]]
        if rank > self.best["rank"]:
            self.best = {"epoch": epoch, "rank": rank, "weights": weights_of(pl_module.evaluated)}
        if epoch < pl_module.recipe.epochs:
            trainer.save_checkpoint(self.folder / CHECKPOINT, weights_only=False)


@dataclass(frozen=True)
class Place:
    """Where a training works and what it shows there; none of it changes the result.

    folder:   of the run; its weights and checkpoints go there.        accelerator: auto, cpu or gpu.
    logger:   a Lightning logger for the curves, or False for none.    progress:    show a bar on the terminal.
    """

    folder: Path
    accelerator: str = "auto"
    logger: Any = False
    progress: bool = False


@dataclass(frozen=True)
class Fitted:
    """Result of a training. Epochs count from 1.

    best_epoch: highest val_top1, then lowest val_loss; 0 = the weights it began with, when no epoch had finite losses.
    val_top1:   of the best epoch, a fraction; None when best_epoch is 0.
    epochs_run: epochs that ended with finite losses; history has one line for each.
    diverged:   a loss became infinite or NaN, and training stopped there.
    train_s:    seconds spent on those epochs, before and after any kill.
    """

    best_epoch: int
    val_top1: float | None
    epochs_run: int
    diverged: bool
    train_s: float
    history: list[dict[str, float]]


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch. Call it before a classifier is built: its first weights are drawn then."""
    pl.seed_everything(seed, verbose=False)


def fit(classifier: Classifier, train: Examples, val: Examples, recipe: Recipe, seed: int, place: Place) -> Fitted:
    """Train `classifier.module` in place and leave it with the weights of the best epoch on `val`.

    Batches, augmentation, dropout and mixup follow from (seed, epoch): on a CPU, the same call gives the same bits,
    whether it was interrupted or not. Called again in the same folder, it goes on after the last finished epoch, and
    only loads the weights when all are done; from files that are not whole it begins anew, with a warning. torch's
    global generator is left in another state.

    A recipe whose learning rate is for other batches is scaled as from scratch; one that is scaled already stays.
    place.folder then has best.safetensors, snapshot-0.50.safetensors, ... as requested, and fitted.json.
    Raises FcaError for a recipe out of range, an empty train or val set, a GPU that is not there.
    """
    recipe.check()
    recipe = recipe.scaled(finetune=False)
    device = device_of(place.accelerator)
    for split, examples in (("train", train), ("val", val)):
        if not len(examples):
            raise FcaError(f"{split} images", 0, "at least 1", "take a larger dataset, or see: fca run task=describe")
    if recipe.precision == "16-mixed" and device.type == "cpu":
        raise FcaError("recipe.precision", recipe.precision, "32-true or bf16-mixed on a CPU", "use bf16-mixed")
    if (fitted := _fitted(place.folder, classifier.module)) is not None:
        return fitted
    place.folder.mkdir(parents=True, exist_ok=True)
    batches = Batches(train, recipe.batch_size, device, seed, DRAWS if recipe.warps else 0, place.progress)
    val_batches = Batches(val, batch_size_of(classifier.input_size), device, progress=place.progress)
    steps = len(batches) * recipe.epochs
    keeper = Keeper(place.folder, recipe.snapshot_steps(steps), classifier.module)
    training = Training(classifier, recipe, steps, seed)
    training.train()
    with _quiet():
        trainer = _trainer(recipe, place, device, keeper, len(batches))
        checkpoint = _checkpoint(place.folder, training)
        diverged = False
        try:
            trainer.fit(training, batches, val_batches, ckpt_path=checkpoint, weights_only=True)
        except Diverged:
            diverged = True
    best, epoch = keeper.best, keeper.best["epoch"]
    classifier.module.load_state_dict(best["weights"])
    top1 = best["rank"][0] if epoch else None
    fitted = Fitted(epoch, top1, len(keeper.history), diverged, keeper.seconds, keeper.history)
    save_weights(place.folder / BEST, best["weights"])
    write_json(place.folder / FITTED, asdict(fitted))
    (place.folder / CHECKPOINT).unlink(missing_ok=True)
    return fitted


def _fitted(folder: Path, module: nn.Module) -> Fitted | None:
    """The training that ended in this folder, its weights loaded; None where none did, or its files are not whole."""
    if not (folder / FITTED).exists():
        return None
    try:
        fitted = Fitted(**read_object(folder / FITTED))
        check_header(folder / BEST)
        weights = load_file(folder / BEST)
        if _shapes(weights) != _shapes(module.state_dict()):
            raise DamagedFile(folder / BEST, "holds another network")
    except (DamagedFile, SafetensorError, OSError, TypeError) as error:
        _begin_anew(error, folder / FITTED, folder / BEST)
        return None
    module.load_state_dict(weights)
    return fitted


def _checkpoint(folder: Path, training: Training) -> Path | None:
    """The checkpoint to go on from; None where there is none, or it is no whole one of this training."""
    path = folder / CHECKPOINT
    if not path.exists():
        return None
    try:
        with opened(path) as file:
            found = torch.load(file, map_location="cpu", weights_only=True)
        run = found["callbacks"]["Keeper"].get("run", folder.name)
        if run != folder.name or _shapes(found["state_dict"]) != _shapes(training.state_dict()):
            raise DamagedFile(path, f"is of another training, {run}")
    except Exception as error:  # whatever unpickling raises
        _begin_anew(error, path)
        return None
    return path


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}


def _begin_anew(error: Exception, *paths: Path) -> None:
    """Warn that a training cannot go on from these files, and remove them."""
    known = str(error) if isinstance(error, DamagedFile) else f"{paths[-1]} cannot be read ({error})"
    log.warning("the training begins anew: %.300s", known.partition("\n")[0])
    for path in paths:
        remove(path)


def _trainer(recipe: Recipe, place: Place, device: torch.device, keeper: Keeper, steps: int) -> pl.Trainer:
    callbacks: list[pl.Callback] = [keeper]
    if place.progress:
        callbacks.append(pl.callbacks.RichProgressBar(leave=False))
    return pl.Trainer(
        accelerator=device.type,
        devices=1,
        precision=recipe.precision,  # type: ignore[arg-type]
        max_epochs=recipe.epochs,
        gradient_clip_val=recipe.grad_clip or None,
        logger=place.logger,
        log_every_n_steps=min(10, steps),
        callbacks=callbacks,
        # One process whatever the cluster: a launcher such as submitit has already placed it.
        plugins=[WholeFiles(), LightningEnvironment()],
        default_root_dir=place.folder,
        enable_checkpointing=False,
        enable_progress_bar=place.progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Lightning's notes on devices, tips and reasons to stop, and without the known warnings."""
    notes = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    level = notes.level
    notes.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in _KNOWN:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        notes.setLevel(level)
