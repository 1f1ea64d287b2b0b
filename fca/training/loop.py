"""`fit`: train a classifier by Lightning, go on after a kill, leave its best weights.

`Keeper` is what is kept: the checkpoint to go on from, the requested snapshots, the best epoch. What happens to a batch
is in fca/training/module.py.
"""

from __future__ import annotations

import logging
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor, nn

from fca.finite import broken_tensors
from fca.store.damage import FITTED, PROGRESS, check_header
from fca.store.files import DamagedFile, opened, read_object, remove, write_json, write_whole
from fca.torchvision_ops import before_lightning
from fca.training import stop
from fca.training.batches import Batch, Batches, Examples, batches_of
from fca.training.devices import Part, devices_of, launch
from fca.training.infer import batch_size_of, logits_of
from fca.training.module import Diverged, Training, least_together
from fca.training.recipe import Recipe, snapshot_file
from fca.training.trainer import TrainerKeys
from fca.types import Classifier, FcaError

before_lightning()

import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.plugins import TorchCheckpointIO  # noqa: E402
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]  # noqa: E402
from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]  # noqa: E402

COMPILED_FROM = 10**11  # pixels: 2 million images of 224 x 224, about a quarter of an hour of a ResNet-50 on one GPU
BEST, CHECKPOINT = "best.safetensors", "last.ckpt"
NOT_JUDGED = (-math.inf, -math.inf)  # rank of weights that do not count as an epoch: any epoch is better
PROGRESS_S = 5.0  # between two writings of how far a training is
# Warnings that no user can do anything about.
_KNOWN = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 still uses the old name with torch 2.13
    r"GPU available but not used",  # as configured: machine.accelerator=cpu
    r"The `srun` command is available on your system but is not used",  # a launcher has placed the process
    r"`torch\.jit\.script_method` is deprecated",  # torch.compile imports it itself
    r"It is recommended to use `self\.log\(.*sync_dist=True",  # the figures are those of all processes
    r"Found \d+ module\(s\) in eval mode",  # batch norms of recipe.frozen_norms
    r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",  # 16-mixed skips its first steps
)
log = logging.getLogger(__name__)


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints, but never half of one after a kill."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        write_whole(Path(path), lambda file: torch.save(checkpoint, file))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}


def whole_weights(trainer: pl.Trainer, training: Training) -> dict[str, Tensor]:
    """Those of the evaluated network; where processes share them out, the first one gets all and the others nothing."""
    if isinstance(trainer.strategy, pl.strategies.FSDPStrategy):
        found = trainer.strategy.lightning_module_state_dict()
        return {name.removeprefix("network."): value for name, value in found.items()}
    return weights_of(training.evaluated)


def check_finite(trainer: pl.Trainer, training: Training, weights: Mapping[str, Tensor]) -> None:
    """Raise Diverged, in all processes, where weights of the first one are not finite.

    Batch norm with an infinite variance gives zeros, and so a loss that is finite.
    """
    parameters = {name for name, _ in training.evaluated.named_parameters()}
    if trainer.strategy.broadcast(bool(broken_tensors(weights, parameters))):
        raise Diverged


class Sharded(Training):
    """For FSDP: the optimiser is made while weights have their shapes, by which it decides what decays."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.made = super().configure_optimizers()

    def configure_optimizers(self) -> Any:
        """As it was made; the parameters are the same objects, with their share of the values."""
        return self.made

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, *_: Any, **__: Any) -> None:
        """By the norm of all processes' shares."""
        if gradient_clip_val:
            self.trainer.strategy.model.clip_grad_norm_(gradient_clip_val)  # type: ignore[union-attr, operator]


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """One .safetensors file, whole or not there."""
    write_whole(path, lambda file: file.write(save(weights)))


class Keeper(pl.Callback):
    """Keeps the best epoch so far in memory and in every checkpoint; writes snapshots, checkpoints and the progress.

    The best epoch has the highest val_top1; among equal ones, the lowest val_loss; then the first. Epoch 0 = the
    weights that training began with, kept when not one epoch ended with finite losses, or when `start` is better.
    A checkpoint is written at the end of an epoch, when checkpoint_s seconds have passed since the last one or since
    the training began, and when a stop is requested; it lacks the best weights where they are those of its own epoch.
    """

    def __init__(
        self,
        folder: Path,
        snapshots: dict[int, list[float]],
        network: nn.Module,
        checkpoint_s: float = 0.0,
        start: Sequence[float] = NOT_JUDGED,
    ) -> None:
        self.folder, self.snapshots, self.run, self.checkpoint_s = folder, snapshots, folder.name, checkpoint_s
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"epoch": 0, "rank": [*start], "weights": weights_of(network)}
        self.seconds, self.images = 0.0, 0
        self.begun = self.saved = self.shown = time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs of the epochs before it."""
        best = {**self.best, "weights": None} if self.best["epoch"] == len(self.history) else self.best
        return {"history": self.history, "best": best, "seconds": self.seconds, "run": self.run}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history, self.best, self.seconds = (state_dict[name] for name in ("history", "best", "seconds"))
        log.info("go on after epoch %d", len(self.history))

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """The clocks of checkpoints and progress begin; best weights are those of the network that was loaded."""
        self.begun = self.saved = self.shown = time.perf_counter()
        if self.best["weights"] is None:
            self.best["weights"] = whole_weights(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, index: int) -> None:
        """Update the running average, then write the snapshots of this step, and at times the progress."""
        pl_module.follow()
        for fraction in self.snapshots.get(trainer.global_step, ()):
            pl_module.check_loss()
            weights = whole_weights(trainer, pl_module)
            if trainer.is_global_zero:
                save_weights(self.folder / snapshot_file(fraction), weights)
        self.images += len(batch.labels) * trainer.world_size
        now = time.perf_counter()
        if now - self.shown >= PROGRESS_S and trainer.is_global_zero:
            with suppress(OSError):  # only somebody's view of it
                write_json(self.folder / PROGRESS, self._progress(trainer, pl_module.device, index, now))
            self.images, self.shown = 0, now

    def _progress(self, trainer: pl.Trainer, device: torch.device, index: int, now: float) -> dict[str, Any]:
        epoch, epochs = trainer.current_epoch, trainer.max_epochs or 1
        share = (epoch + (index + 1) / trainer.num_training_batches) / epochs
        return {
            "epoch": epoch + 1,
            "epochs": epochs,
            "images_per_s": self.images / (now - self.shown),
            "left_s": (self.seconds + now - self.begun) * (1 - share) / share,
            "device": _name(device),
        }

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Plain batch norm has other averages in every process: those of the first one are kept."""
        for buffer in pl_module.evaluated.buffers() if trainer.world_size > 1 else ():
            torch.distributed.broadcast(buffer, 0)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Compare the epoch with the best one, then write the checkpoint if it is due. Raises Preempted if asked to."""
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
            weights = whole_weights(trainer, pl_module)
            check_finite(trainer, pl_module, weights)
            self.best = {"epoch": epoch, "rank": rank, "weights": weights}
        if epoch == pl_module.recipe.epochs:
            return
        if (patience := pl_module.recipe.patience) and epoch - self.best["epoch"] >= patience:
            trainer.should_stop = True
            return  # without a checkpoint, from which a resumed training would go on
        stopping, due = trainer.strategy.broadcast((stop.requested.is_set(), now - self.saved >= self.checkpoint_s))
        if stopping or due:
            trainer.save_checkpoint(self.folder / CHECKPOINT, weights_only=False)
            self.saved = time.perf_counter()
        if stopping:
            raise stop.Preempted(f"the training stopped after epoch {epoch} of {pl_module.recipe.epochs}")


def _name(device: torch.device) -> str:
    """The device as the machine counts it, whatever a launcher shows to this process: cuda:3."""
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    at = device.index or 0
    return f"cuda:{seen[at]}" if device.type == "cuda" and at < len(seen) else str(device)


@dataclass(frozen=True)
class Place:
    """Where a training works and what it shows there; none of it changes the result.

    folder:       of the run; its weights and checkpoints go there.    accelerator: auto, cpu or gpu.
    devices:      a number, auto or a list of GPUs.                    strategy:    of several: auto, ddp or fsdp.
    compile:      auto, true or false: auto compiles long trainings on CUDA and none on a CPU (see COMPILED_FROM).
    checkpoint_s: seconds between two checkpoints, which are written at the ends of epochs; 0 = at each.
    logger:       a Lightning logger for the curves, or False.         progress:    show a bar on the terminal.
    trainer:      what else shows or watches it.
    """

    folder: Path
    accelerator: str = "auto"
    devices: Any = 1
    strategy: str = "auto"
    compile: str = "auto"
    checkpoint_s: float = 300.0
    logger: Any = False
    progress: bool = False
    trainer: TrainerKeys | None = None


@dataclass(frozen=True)
class Fitted:
    """Result of a training. Epochs count from 1.

    best_epoch: highest val_top1, then lowest val_loss; 0 = the weights it began with, when no epoch had finite losses
                or, where these count, none was better.
    val_top1:   of the best epoch, a fraction; None for weights that do not count.
    epochs_run: epochs that ended with finite losses; history has one line for each.
    diverged:   a loss or a weight became infinite or NaN, and training stopped there.
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


def fit(
    classifier: Classifier,
    train: Examples,
    val: Examples,
    recipe: Recipe,
    seed: int,
    place: Place,
    start_counts: bool = False,
) -> Fitted:
    """Train `classifier.module` in place and leave it with the weights of the best epoch on `val`.

    Batches, augmentation, dropout and mixup follow from (seed, epoch): on a CPU, the same call gives the same bits,
    whether it was interrupted or not. Called again in the same folder, it goes on after the last checkpoint, and
    only loads the weights when all are done; from files that are not whole it begins anew, with a warning. torch's
    global generator is left in another state.

    start_counts: whether the weights it begins with are kept where no epoch is better on `val`.

    A recipe whose learning rate is for other batches is scaled as from scratch; one that is scaled already stays.
    place.folder then has best.safetensors, snapshot-0.50.safetensors, ... as requested, and fitted.json.
    On several devices each step is that of the whole batch: every process works on its share of the images. Plain batch
    norm (on a CPU) sees that share, synchronised batch norm (on GPUs) all; dropout and mixup draw in each process.
    Raises FcaError for a recipe out of range, too few train or val images, devices that are not there or too many;
    Preempted where fca.training.stop requests it, once there is a checkpoint.
    """
    recipe.check()
    recipe = recipe.scaled(finetune=False).sized(len(train), len(val))
    devices = devices_of(place.accelerator, place.devices, place.strategy)
    least = _check_images(classifier, len(train), len(val), recipe, devices)
    if len(devices) > 1 and place.strategy == "fsdp" and (recipe.ema or recipe.accumulate > 1):
        raise FcaError("machine.strategy", "fsdp", "ddp with recipe.ema or recipe.accumulate", "switch these off")
    if recipe.precision == "16-mixed" and devices[0].type == "cpu":
        raise FcaError("recipe.precision", recipe.precision, "32-true or bf16-mixed on a CPU", "use bf16-mixed")
    if recipe.layer_decay < 1 and not hasattr(classifier.module, "group_matcher"):
        allowed = f"1 for {type(classifier.module).__name__}: only timm's own networks group their layers"
        raise FcaError("recipe.layer_decay", recipe.layer_decay, allowed, "set recipe.layer_decay=1")
    if (fitted := _fitted(place.folder, classifier.module)) is not None:
        return fitted
    place.folder.mkdir(parents=True, exist_ok=True)
    if len(devices) == 1:
        return _train(classifier, train, val, recipe, seed, place, least, start_counts, Part(devices))
    given = (classifier, train, val, recipe, seed, replace(place, logger=bool(place.logger)), least, start_counts)
    launch(_train, given, devices, place.logger)
    fitted = _fitted(place.folder, classifier.module)
    assert fitted is not None, "the first process wrote it"
    return fitted


def _check_images(classifier: Classifier, train: int, val: int, recipe: Recipe, devices: Sequence[torch.device]) -> int:
    """How many images must go through the network together in training: 1, or 2 where a batch norm needs two.

    Raises FcaError for too few images, and for more devices than images in a batch.
    """
    for split, images, fewest in (("train", train, 2), ("val", val, 1)):
        if images < fewest:
            step = "take a larger dataset, or see: fca run task=describe"
            raise FcaError(f"{split} images", images, f"at least {fewest}", step)

    in_batch = train // batches_of(train, recipe.batch_size)
    in_val_batch = val // batches_of(val, batch_size_of(classifier.input_size))
    is_synchronised = len(devices) > 1 and devices[0].type == "cuda"  # batch norm sees the images of all processes
    is_one_alone = in_batch // len(devices) // recipe.accumulate < 2
    least = least_together(classifier) if is_one_alone and not is_synchronised else 1
    most = in_batch // recipe.accumulate
    if least > 1:
        most = min(train, recipe.batch_size) // least  # batches may be larger, and have fewer parts
        log.info("no image goes through batch norm alone: it joins others of its batch, or those of the batch before")

    for split, images in (("train", most), ("val", in_val_batch)):
        if len(devices) > max(1, images):
            raise FcaError("machine.devices", len(devices), f"up to {images}, a batch of {split} images", "lower it")
    return least


def _train(
    classifier: Classifier,
    train: Examples,
    val: Examples,
    recipe: Recipe,
    seed: int,
    place: Place,
    least: int,
    start_counts: bool,
    part: Part,
) -> Fitted:
    """What one process does of a training; the first one writes."""
    device, world = part.devices[part.rank], len(part.devices)
    if world > 1:
        logger = part.curves() if place.logger else False
        place = replace(place, logger=logger, progress=place.progress and part.rank == 0)
        if device.type == "cuda":  # by timm: torch's own would drop the activations inside timm's batch norms
            convert_sync_batchnorm(classifier.module)  # type: ignore[no-untyped-call]
    share = (place.progress, part.rank, world)
    batches = Batches(train, recipe.batch_size, device, seed, recipe, *share, fewest=least * world)
    val_batches = Batches(val, batch_size_of(classifier.input_size), device, None, None, *share)
    steps = len(batches) * recipe.epochs
    start = _rank(classifier, val, place.accelerator) if start_counts else NOT_JUDGED
    keeper = Keeper(place.folder, recipe.snapshot_steps(steps), classifier.module, place.checkpoint_s, start)
    kind = Sharded if world > 1 and place.strategy == "fsdp" else Training
    compiled = _compiles(place.compile, device, steps * recipe.batch_size * classifier.input_size**2)
    with _quiet(), _tensor_cores(recipe.precision):
        training = kind(classifier, recipe, steps, seed, compiled, least)
        training.train()
        trainer = _trainer(recipe, place, part, keeper, len(batches))
        checkpoint = _checkpoint(place.folder, training)
        diverged = False
        try:
            trainer.fit(training, batches, val_batches, ckpt_path=checkpoint, weights_only=True)
        except Diverged:
            diverged = True
        finally:
            remove(place.folder / PROGRESS)
    best, epoch = keeper.best, keeper.best["epoch"]
    if world == 1:  # else the process that started this one loads them
        classifier.module.float().load_state_dict(best["weights"])
    top1 = best["rank"][0] if math.isfinite(best["rank"][0]) else None
    fitted = Fitted(epoch, top1, len(keeper.history), diverged, keeper.seconds, keeper.history)
    if part.rank == 0:
        save_weights(place.folder / BEST, best["weights"])
        write_json(place.folder / FITTED, asdict(fitted))
        (place.folder / CHECKPOINT).unlink(missing_ok=True)
    return fitted


def _rank(classifier: Classifier, val: Examples, accelerator: str) -> tuple[float, float]:
    """By which epochs are compared, of a network before it is trained: accuracy, then minus the loss."""
    logits = torch.from_numpy(logits_of(classifier, val.pixels, val.rows, accelerator))
    labels = torch.from_numpy(val.labels)
    top1 = (logits.argmax(1) == labels).float().mean()
    return float(top1), -float(torch.nn.functional.cross_entropy(logits, labels))


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


def _trainer(recipe: Recipe, place: Place, part: Part, keeper: Keeper, steps: int) -> pl.Trainer:
    watched: dict[str, Any] = {"enable_model_summary": False, "log_every_n_steps": 10, "callbacks": [], "logger": []}
    watched |= place.trainer.arguments(place.folder) if place.trainer else {}
    callbacks: list[pl.Callback] = [keeper, *watched.pop("callbacks")]
    loggers = ([place.logger] if place.logger else []) + watched.pop("logger")
    if place.progress:
        callbacks.append(pl.callbacks.RichProgressBar(leave=False))
    return pl.Trainer(
        **part.trainer(place.strategy),
        precision=recipe.precision if recipe.precision.endswith("mixed") else "32-true",  # type: ignore[arg-type]
        max_epochs=recipe.epochs,
        gradient_clip_val=recipe.grad_clip or None,
        logger=loggers or False,
        callbacks=callbacks,
        # No processes are started here, whatever the cluster: submitit or `launch` has already placed this one.
        plugins=[WholeFiles(), LightningEnvironment()],
        default_root_dir=place.folder,
        enable_checkpointing=False,
        enable_progress_bar=place.progress,
        num_sanity_val_steps=0,
        **{**watched, "log_every_n_steps": min(watched["log_every_n_steps"], steps)},
    )


def _compiles(wanted: str, device: torch.device, pixels: int) -> bool:
    """Whether to compile: auto = on CUDA, where a training shows so many pixels that minutes of compiling come back."""
    return wanted == "true" or (wanted == "auto" and device.type == "cuda" and pixels >= COMPILED_FROM)


@contextmanager
def _tensor_cores(precision: str) -> Iterator[None]:
    """TF32 in matrix products and convolutions where the precision is tf32; torch is left as it was."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]


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
