"""`fit`: train a classifier by Lightning, go on after a kill, leave its best weights."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from fca.nouns import Classifier, FcaError
from fca.store.files import write_json
from fca.torchvision_ops import declare_torchvision_ops
from fca.training.augment import DRAWS
from fca.training.batches import Batches, Examples
from fca.training.device import device_of
from fca.training.infer import batch_size_of
from fca.training.keep import CHECKPOINT, Keeper, WholeFiles, save_weights
from fca.training.module import Diverged, Training
from fca.training.recipe import Recipe

declare_torchvision_ops()
import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]  # noqa: E402

BEST, FITTED = "best.safetensors", "fitted.json"

# Warnings about nothing that a user can mend.
_KNOWN = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 still asks torch 2.13 for the old name
    r"GPU available but not used",  # as asked: machine.accelerator=cpu
    r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",  # 16-mixed skips its first steps
)


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
    """What a training came to. Epochs count from 1.

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
    only loads the weights when all are done. torch's global generator is left in another state.

    A recipe whose learning rate is for other batches is scaled as from scratch; one that is scaled already stays.
    place.folder then has best.safetensors, snapshot-0.50.safetensors, ... as asked, and fitted.json.
    Raises FcaError for a recipe out of range, an empty train or val set, a GPU that is not there.
    """
    recipe.check()
    recipe = recipe.scaled(finetune=False)
    device = device_of(place.accelerator)
    _check(train, val, recipe, device)
    done = place.folder / FITTED
    if done.is_file():
        classifier.module.load_state_dict(load_file(place.folder / BEST))
        return Fitted(**json.loads(done.read_text()))
    place.folder.mkdir(parents=True, exist_ok=True)
    batches = Batches(train, recipe.batch_size, device, seed, DRAWS if recipe.warps else 0, place.progress)
    steps = len(batches) * recipe.epochs
    keeper = Keeper(place.folder, recipe.snapshot_steps(steps), classifier.module)
    training = Training(classifier, recipe, steps, seed)
    training.train()
    val_batches = Batches(val, batch_size_of(classifier.input_size), device, progress=place.progress)
    unfinished = place.folder / CHECKPOINT if (place.folder / CHECKPOINT).is_file() else None
    with _quiet():
        trainer = _trainer(recipe, place, device, keeper, len(batches))
        try:
            trainer.fit(training, batches, val_batches, ckpt_path=unfinished, weights_only=True)
            diverged = False
        except Diverged:
            diverged = True
    return _finish(classifier, keeper, diverged, place.folder)


def _check(train: Examples, val: Examples, recipe: Recipe, device: torch.device) -> None:
    for split, examples in (("train", train), ("val", val)):
        if not len(examples):
            raise FcaError(f"{split} images", 0, "at least 1", "take a larger dataset, or see: fca run task=describe")
    if recipe.precision == "16-mixed" and device.type == "cpu":
        raise FcaError("recipe.precision", recipe.precision, "32-true or bf16-mixed on a CPU", "use bf16-mixed")


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
    """Without Lightning's notes on devices, tips and reasons to stop; warnings stay, but for the known ones."""
    log = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    level = log.level
    log.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            for message in _KNOWN:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        log.setLevel(level)


def _finish(classifier: Classifier, keeper: Keeper, diverged: bool, folder: Path) -> Fitted:
    best = keeper.best
    classifier.module.load_state_dict(best["weights"])
    fitted = Fitted(
        best_epoch=best["epoch"],
        val_top1=best["rank"][0] if best["epoch"] else None,
        epochs_run=len(keeper.history),
        diverged=diverged,
        train_s=keeper.seconds,
        history=keeper.history,
    )
    save_weights(folder / BEST, best["weights"])
    write_json(folder / FITTED, asdict(fitted))
    (folder / CHECKPOINT).unlink(missing_ok=True)
    return fitted
