"""`fit`: train a classifier by Lightning, go on after a kill, leave its best weights.

`Keeper` keeps the checkpoint to go on from, the requested snapshots and the best epoch. What happens to a batch is in
fca/training/module.py.
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
from fca.training.batches import Batch, Batches, Examples, count_batches
from fca.training.devices import TrainingProcess, devices_of, launch
from fca.training.infer import batch_size_of, logits_of
from fca.training.module import Diverged, Training, smallest_forward
from fca.training.recipe import Recipe, snapshot_file
from fca.training.trainer import TrainerKeys
from fca.types import Classifier, FcaError

before_lightning()

import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.plugins import TorchCheckpointIO  # noqa: E402
from pytorch_lightning.plugins.environments import LightningEnvironment  # type: ignore[attr-defined]  # noqa: E402
from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]  # noqa: E402

COMPILED_FROM = 10**11  # pixels: 2 million images of 224 x 224, about a quarter of an hour of a ResNet-50 on one GPU
BEST = "best.safetensors"
CHECKPOINT = "last.ckpt"
NO_RANK = (-math.inf, -math.inf)  # of weights that do not count as an epoch: any epoch is better
PROGRESS_S = 5.0  # seconds between two writings of the progress
# Warnings that no user can do anything about.
_IGNORED_WARNINGS = (
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning 2.6 still uses the old name with torch 2.13
    r"GPU available but not used",  # as configured: machine.accelerator=cpu
    r"The `srun` command is available on your system but is not used",  # a launcher has placed the process
    r"`torch\.jit\.script_method` is deprecated",  # torch.compile imports it itself
    r"It is recommended to use `self\.log\(.*sync_dist=True",  # the metrics are those of all processes
    r"Found \d+ module\(s\) in eval mode",  # batch norms of recipe.frozen_norms
    r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",  # 16-mixed skips its first steps
)
log = logging.getLogger(__name__)


class AtomicCheckpointIO(TorchCheckpointIO):
    """Lightning's checkpoints, written so that a kill leaves no partial file."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Save as Lightning does, but write the file under another name, and rename it when it is complete."""
        write_whole(Path(path), lambda file: torch.save(checkpoint, file))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}


def gathered_weights(trainer: pl.Trainer, training: Training) -> dict[str, Tensor]:
    """The weights of the network that is evaluated (the running average if there is one), by name, on the CPU.

    With FSDP each process has only a share: the first one gathers all weights, and the others get an empty dictionary.
    """
    if isinstance(trainer.strategy, pl.strategies.FSDPStrategy):
        state = trainer.strategy.lightning_module_state_dict()  # of `training`, which calls its module `network`
        return {name.removeprefix("network."): value for name, value in state.items()}
    return weights_of(training.evaluated)


def check_finite(trainer: pl.Trainer, training: Training, weights: Mapping[str, Tensor]) -> None:
    """Raise Diverged, in all processes, if the first process has weights that are not finite.

    The loss alone does not show this: batch norm with an infinite variance gives zeros, and so a finite loss.
    """
    parameters = {name for name, _ in training.evaluated.named_parameters()}
    if trainer.strategy.broadcast(bool(broken_tensors(weights, parameters))):
        raise Diverged


class Sharded(Training):
    """Training with FSDP, which cuts all weights into shares for the processes.

    It makes its optimiser before that, while weights still have their shapes: by these it decides which ones decay.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.optimisers = super().configure_optimizers()

    def configure_optimizers(self) -> Any:
        """The optimiser that was made before sharding, which holds the same parameters; these have new values now."""
        return self.optimisers

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, *_: Any, **__: Any) -> None:
        """Clip gradients by their norm over the shares of all processes, which Lightning's own method would not do."""
        if gradient_clip_val:
            self.trainer.strategy.model.clip_grad_norm_(gradient_clip_val)  # type: ignore[union-attr, operator]


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as one .safetensors file; after a kill it is complete or absent."""
    write_whole(path, lambda file: file.write(save(weights)))


class Keeper(pl.Callback):
    """Keeps the best epoch so far in memory and in every checkpoint; writes snapshots, checkpoints and the progress.

    The best epoch has the highest val_top1; among equal ones the lowest val_loss; then the first. Epoch 0 stands for
    the weights that training began with. They are the best if no epoch ended with finite losses, or none beats
    `start_rank`.

    A checkpoint is written at the end of an epoch if checkpoint_s seconds have passed since the last one (or since the
    training began), and when a stop is requested. It has the best weights too, unless those are of the same epoch.
    """

    def __init__(
        self,
        folder: Path,
        snapshots: dict[int, list[float]],
        network: nn.Module,
        checkpoint_s: float = 0.0,
        start_rank: Sequence[float] = NO_RANK,
    ) -> None:
        """Begin to keep the best weights: before the first epoch the network's initial weights, as those of epoch 0.

        folder:       the run's folder, where all files go.
        snapshots:    number of steps done -> the fractions of the training that end with this step; the weights are
                      saved once for each fraction.
        checkpoint_s: seconds between two checkpoints; 0 = one after each epoch.
        start_rank:   [accuracy, -loss] of the initial weights on validation images. NO_RANK: any epoch is better than
                      they are.
        """
        self.folder = folder
        self.run_id = folder.name
        self.snapshots = snapshots
        self.checkpoint_s = checkpoint_s
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"epoch": 0, "rank": [*start_rank], "weights": weights_of(network)}
        self.seconds = 0.0  # of the epochs in history
        self.images_since_progress = 0
        self._start_clocks()

    def _start_clocks(self) -> None:
        """Start measuring the epoch, the time since the last checkpoint, and the time since the last progress."""
        current_time = time.perf_counter()
        self.epoch_start = current_time
        self.checkpoint_time = current_time
        self.progress_time = current_time

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps of the epochs so far. Lightning stores it beside the latest weights of the network.

        If the latest epoch is the best one, its weights are not stored twice: those of the best epoch are None.
        """
        best_is_latest = self.best["epoch"] == len(self.history)  # the history has one line for each epoch
        return {
            "history": self.history,
            "best": {**self.best, "weights": None} if best_is_latest else self.best,
            "seconds": self.seconds,
            "run": self.run_id,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` kept, when a training goes on from a checkpoint."""
        self.history = state_dict["history"]
        self.best = state_dict["best"]
        self.seconds = state_dict["seconds"]
        log.info("go on after epoch %d", len(self.history))

    def on_train_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Start the clocks; after a resumed training has loaded its checkpoint, complete the best weights.

        `state_dict` leaves them out where they are the weights of the network, which the checkpoint restored.
        """
        self._start_clocks()
        if self.best["weights"] is None:
            self.best["weights"] = gathered_weights(trainer, pl_module)

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: Any, outputs: Any, batch: Batch, index: int) -> None:
        """After a step, update the running average of the weights, save snapshots that are due, and write the progress.

        The progress is written every PROGRESS_S seconds, by the first process.

        Raises Diverged instead of saving a snapshot if a loss of this epoch was not finite.

        outputs, index: what `training_step` returned, and the position of the batch in its epoch (Lightning passes
        both).
        """
        pl_module.update_average()

        for fraction in self.snapshots.get(trainer.global_step, ()):
            pl_module.check_loss()
            weights = gathered_weights(trainer, pl_module)  # all processes call it: with FSDP each has only a share
            if trainer.is_global_zero:
                save_weights(self.folder / snapshot_file(fraction), weights)

        self.images_since_progress += len(batch.labels) * trainer.world_size
        current_time = time.perf_counter()
        if current_time - self.progress_time >= PROGRESS_S and trainer.is_global_zero:
            with suppress(OSError):  # the progress is for display only
                write_json(self.folder / PROGRESS, self._progress(trainer, pl_module.device, index, current_time))
            self.images_since_progress = 0
            self.progress_time = current_time

    def _progress(self, trainer: pl.Trainer, device: torch.device, index: int, current_time: float) -> dict[str, Any]:
        """What the progress file shows after a batch, with an estimate of the seconds left.

        index: position of the batch in its epoch, from 0.
        current_time: now, by time.perf_counter().
        """
        epoch = trainer.current_epoch
        epochs = trainer.max_epochs or 1  # `_lightning_trainer` always sets it, but its type allows None
        share_done = (epoch + (index + 1) / trainer.num_training_batches) / epochs
        seconds_so_far = self.seconds + current_time - self.epoch_start
        return {
            "epoch": epoch + 1,
            "epochs": epochs,
            "images_per_s": self.images_since_progress / (current_time - self.progress_time),
            "left_s": seconds_so_far * (1 - share_done) / share_done,
            "device": _machine_wide_name(device),  # such as cuda:3, also where the process sees only this GPU
        }

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Copy the first process's buffers to all processes, so that all validate the same network.

        Buffers are the running averages of batch norm. Plain batch norm takes them over the images of its own process,
        so they differ.
        """
        if trainer.world_size == 1:
            return
        for buffer in pl_module.evaluated.buffers():
            torch.distributed.broadcast(buffer, 0)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """Compare the epoch with the best one, end the training if patience is over, write a checkpoint if one is due.

        Patience is a number of epochs: the training ends when so many epochs in a row were no better than the best
        epoch. 0 is no limit.

        Raises Diverged if a loss of the epoch, or a weight of a new best epoch, is not finite. If a stop is requested,
        a checkpoint is written, and Preempted is raised.
        """
        figures = pl_module.figures  # losses, accuracies and learning rate of this epoch
        if not all(map(math.isfinite, figures.values())):
            raise Diverged  # the best epoch before this one is kept

        epoch = trainer.current_epoch + 1  # epochs count from 1 here
        epochs = pl_module.recipe.epochs
        current_time = time.perf_counter()
        self.seconds = self.seconds + current_time - self.epoch_start
        self.epoch_start = current_time
        self.history.append(figures)
        log.info("epoch %d: %s", epoch, ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))

        rank = [figures["val_top1"], -figures["val_loss"]]  # higher accuracy is better, then lower loss
        if rank > self.best["rank"]:
            weights = gathered_weights(trainer, pl_module)
            check_finite(trainer, pl_module, weights)
            self.best = {"epoch": epoch, "rank": rank, "weights": weights}

        if epoch == epochs:  # the training is done: nothing is left to go on with, or to stop
            return
        patience = pl_module.recipe.patience
        if patience and epoch - self.best["epoch"] >= patience:
            trainer.should_stop = True
            return  # no checkpoint is written: a resumed training would train beyond this epoch

        is_due = current_time - self.checkpoint_time >= self.checkpoint_s
        # Clocks and signals differ between processes: all do what the first process decides.
        should_stop, should_save = trainer.strategy.broadcast((stop.requested.is_set(), is_due))
        if should_stop or should_save:
            trainer.save_checkpoint(self.folder / CHECKPOINT, weights_only=False)  # with the optimiser's state
            self.checkpoint_time = time.perf_counter()
        if should_stop:
            raise stop.Preempted(f"the training stopped after epoch {epoch} of {epochs}")


def _machine_wide_name(device: torch.device) -> str:
    """The name of a device with its number in the whole machine, such as cuda:3.

    A launcher may show only some GPUs to this process. torch counts these from 0; CUDA_VISIBLE_DEVICES lists their
    numbers in the machine. Without this variable, and for a CPU, it is torch's own name.
    """
    visible = [number for number in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if number]
    index = device.index or 0  # without an index: the first GPU
    if device.type != "cuda" or index >= len(visible):
        return str(device)
    return f"cuda:{visible[index]}"


@dataclass(frozen=True)
class TrainingPlace:
    """Folder, devices and display of a training; none of them changes the result.

    folder:       the folder of the run, where weights and checkpoints go.
    accelerator:  auto, cpu or gpu.
    devices:      a number, auto or a list of GPUs.
    strategy:     how several devices work together: auto, ddp or fsdp.
    compile:      auto, true or false: auto compiles long trainings on CUDA and none on a CPU (see COMPILED_FROM).
    checkpoint_s: seconds between two checkpoints, which are written at the ends of epochs; 0 = at each.
    logger:       a Lightning logger for the curves, or False.
    progress:     show a bar on the terminal.
    trainer:      further loggers, callbacks and options of Lightning's Trainer.
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
    """Seed the random numbers of Python, NumPy and torch.

    Call it before a classifier is built: its first weights are drawn then.
    """
    pl.seed_everything(seed, verbose=False)


def fit(
    classifier: Classifier,
    train: Examples,
    val: Examples,
    recipe: Recipe,
    seed: int,
    place: TrainingPlace,
    start_counts: bool = False,
) -> Fitted:
    """Train `classifier.module` in place, and leave it with the weights of the best epoch on `val`.

    recipe:       how to train. Its learning rate is given for a batch size of lr_batch, and is scaled here to
                  batch_size. A caller that trains a network with given weights has called `scaled(finetune=True)`
                  before, which also multiplies the learning rate by finetune_lr. Such a recipe has lr_batch=0 (any
                  batch size), so its learning rate stays as it is here.
    seed:         batches, augmentation, dropout and mixup follow from (seed, epoch): on a CPU the same call gives the
                  same bits, whether it was interrupted or not.
    place:        folder, devices and display. The folder then has best.safetensors, the snapshots of the recipe
                  (snapshot-0.50.safetensors, ...) and fitted.json.
    start_counts: whether the initial weights are kept if no epoch is better on `val`.

    A second call in the same folder continues after the last checkpoint; if all epochs are done, it only loads the
    weights. If the files there are damaged, it starts again, with a warning. torch's global generator changes.

    On several devices every process works on its share of each batch. Plain batch norm (on a CPU) sees that share,
    synchronised batch norm (on GPUs) the whole batch; dropout and mixup are drawn in each process.

    Raises FcaError for a recipe out of range, for too few train or val images, and for devices that are missing or too
    many. Raises Preempted, after a checkpoint was written, if fca.training.stop has requested a stop.
    """
    recipe.check()
    # Fill in the learning rate for this batch size, and the numbers of epochs and passes for these numbers of images.
    # finetune=False: callers that finetune have multiplied it by finetune_lr already.
    recipe = recipe.scaled(finetune=False).sized(len(train), len(val))
    devices = devices_of(place.accelerator, place.devices, place.strategy)
    # 2 where batch norm could get a single image, which it cannot normalise; else 1
    forward_size = _fewest_images_per_forward(classifier, len(train), len(val), recipe, devices)
    _check_recipe_on_devices(classifier, recipe, place, devices)

    finished = _load_fitted(place.folder, classifier.module)
    if finished is not None:
        return finished

    place.folder.mkdir(parents=True, exist_ok=True)
    if len(devices) == 1:
        process = TrainingProcess(devices)
        return _train_in_process(classifier, train, val, recipe, seed, place, forward_size, start_counts, process)

    # A logger stays in this process. True in its place: the first process sends its metrics, which `launch` logs here.
    place_of_processes = replace(place, logger=bool(place.logger))
    args = (classifier, train, val, recipe, seed, place_of_processes, forward_size, start_counts)
    launch(_train_in_process, args, devices, place.logger)
    fitted = _load_fitted(place.folder, classifier.module)
    assert fitted is not None, "the first process wrote it"  # before `launch` returned
    return fitted


def _check_recipe_on_devices(
    classifier: Classifier, recipe: Recipe, place: TrainingPlace, devices: Sequence[torch.device]
) -> None:
    """Raise FcaError if the network cannot be trained by the recipe on these devices.

    With FSDP, neither a running average of the weights nor chunks of a batch are supported. Training in float16 needs a
    GPU. Learning rates that decay from layer to layer need groups of layers, which only networks of timm have.
    """
    is_sharded = len(devices) > 1 and place.strategy == "fsdp"  # each process holds a share of the weights
    if is_sharded and (recipe.ema or recipe.accumulate > 1):
        raise FcaError("machine.strategy", "fsdp", "ddp with recipe.ema or recipe.accumulate", "switch these off")
    if recipe.precision == "16-mixed" and devices[0].type == "cpu":
        raise FcaError("recipe.precision", recipe.precision, "32-true or bf16-mixed on a CPU", "use bf16-mixed")
    if recipe.layer_decay < 1 and not hasattr(classifier.module, "group_matcher"):
        allowed = f"1 for {type(classifier.module).__name__}: only timm's own networks group their layers"
        raise FcaError("recipe.layer_decay", recipe.layer_decay, allowed, "set recipe.layer_decay=1")


def _fewest_images_per_forward(
    classifier: Classifier, n_train: int, n_val: int, recipe: Recipe, devices: Sequence[torch.device]
) -> int:
    """Fewest images that may go through the network together in training: 1, or 2 where batch norm needs two.

    Batch norm that gets one value for each channel cannot normalise it, which can happen for a single image. The caller
    then makes batches of at least this size in every process.

    n_train, n_val: numbers of training and validation images.

    Raises FcaError if these are too few, and if there are more devices than a batch has images for.
    """
    for split, n_images, fewest in (("train", n_train, 2), ("val", n_val, 1)):
        if n_images < fewest:
            step = "take a larger dataset, or see: fca run task=describe"
            raise FcaError(f"{split} images", n_images, f"at least {fewest}", step)

    # Images of the smallest batch; batches differ by one image at most.
    batch_images = n_train // count_batches(n_train, recipe.batch_size)
    val_batch_images = n_val // count_batches(n_val, batch_size_of(classifier.input_size))

    # Each process cuts its part of a batch into `accumulate` chunks, and forwards these one after another.
    smallest_chunk = batch_images // len(devices) // recipe.accumulate
    is_synchronised = len(devices) > 1 and devices[0].type == "cuda"  # batch norm sees the images of all processes
    can_be_alone = smallest_chunk < 2 and not is_synchronised
    forward_size = smallest_forward(classifier) if can_be_alone else 1

    # The most devices that can share a batch: each needs an image for each of its chunks.
    most_devices = batch_images // recipe.accumulate
    if forward_size > 1:
        # This limit does not hold here, because chunks and batches that are too small are made larger: `training_step`
        # cuts fewer chunks than `accumulate`, down to one, and `Batches` makes fewer batches. So it is enough that each
        # device gets `forward_size` images of a batch of full size.
        full_batch_images = min(n_train, recipe.batch_size)
        most_devices = full_batch_images // forward_size
        log.info("no image goes through batch norm alone: it joins others of its batch, or those of the batch before")

    # For validation, each device needs an image of every batch. A single device always suffices.
    for split, limit in (("train", most_devices), ("val", val_batch_images)):
        if len(devices) > max(1, limit):
            raise FcaError("machine.devices", len(devices), f"up to {limit}, a batch of {split} images", "lower it")
    return forward_size


def _train_in_process(
    classifier: Classifier,
    train: Examples,
    val: Examples,
    recipe: Recipe,
    seed: int,
    place: TrainingPlace,
    forward_size: int,
    start_counts: bool,
    process: TrainingProcess,
) -> Fitted:
    """Train as one process of a training, or as the only one; the first process writes the files of the result.

    The result of the only process is returned to `fit`. With several processes, `fit` reads it from these files.

    recipe:       how to train, with the learning rate for this batch size, and with epochs in place of steps.
    forward_size: fewest images that may go through the network together in one process.
    start_counts: whether the initial weights are kept if no epoch is better on `val`.
    process:      the devices of all processes, and the number of this process.
    place:        where the files of the training go, its devices, and how it is shown.

    Raises Preempted, after a checkpoint was written, if a stop is requested.
    """
    n_processes = len(process.devices)
    device = process.devices[process.rank]
    if n_processes > 1:
        # place.logger is True if there is a logger, which stays in the process that started this one. Only the first
        # process shows a bar.
        logger = process.forwarding_logger() if place.logger else False
        place = replace(place, logger=logger, progress=place.progress and process.rank == 0)
        if device.type == "cuda":  # by timm: torch's own would drop the activations inside timm's batch norms
            convert_sync_batchnorm(classifier.module)  # type: ignore[no-untyped-call]

    # Data: this process takes its part of every batch. Validation has no seed and no recipe: in order, unchanged.
    for_this_process: dict[str, Any] = {"progress": place.progress, "rank": process.rank, "world": n_processes}
    fewest_images = forward_size * n_processes
    batches = Batches(train, recipe.batch_size, device, seed, recipe, min_images=fewest_images, **for_this_process)
    val_batches = Batches(val, batch_size_of(classifier.input_size), device, **for_this_process)
    steps = len(batches) * recipe.epochs

    # `keeper` ranks epochs by validation accuracy, then loss, and keeps the weights of the best one. With NO_RANK any
    # epoch is better than the initial weights.
    start_rank = _rank_before_training(classifier, val, place.accelerator) if start_counts else NO_RANK
    snapshots = recipe.snapshot_steps(steps)
    keeper = Keeper(place.folder, snapshots, classifier.module, place.checkpoint_s, start_rank)
    # `Sharded`: with FSDP each process holds only a share of the weights
    training_class = Sharded if n_processes > 1 and place.strategy == "fsdp" else Training
    # Compiling takes minutes, which only long trainings make up for; the length is measured in pixels over all steps.
    n_pixels = steps * recipe.batch_size * classifier.input_size**2
    is_compiled = _should_compile(place.compile, device, n_pixels)

    # Train.
    has_diverged = False
    with _without_lightning_notes(), _tf32_if_asked(recipe.precision):
        training = training_class(classifier, recipe, steps, seed, is_compiled, forward_size)
        training.train()  # the network may be in evaluation mode, and Lightning keeps the mode that it finds
        trainer = _lightning_trainer(recipe, place, process, keeper, len(batches))
        checkpoint = _usable_checkpoint(place.folder, training)
        try:
            # weights_only: unpickling the checkpoint makes tensors and plain values, and runs no other code
            trainer.fit(training, batches, val_batches, ckpt_path=checkpoint, weights_only=True)
        except Diverged:  # a loss or a weight was not finite
            has_diverged = True
        finally:
            remove(place.folder / PROGRESS)  # the progress is shown while the training runs

    # Keep the best epoch.
    best = keeper.best
    if n_processes == 1:  # else `fit`, in the process that started this one, loads the weights from their file
        classifier.module.float().load_state_dict(best["weights"])  # float: a recipe of bf16-true has changed the type
    best_top1, _ = best["rank"]  # accuracy and minus the loss, of the best epoch or of the start
    fitted = Fitted(
        best_epoch=best["epoch"],
        val_top1=best_top1 if math.isfinite(best_top1) else None,  # -infinity in NO_RANK: no accuracy
        epochs_run=len(keeper.history),
        diverged=has_diverged,
        train_s=keeper.seconds,
        history=keeper.history,
    )
    if process.rank == 0:
        # In this order: where fitted.json exists, the weights do, and only then the checkpoint is not needed.
        save_weights(place.folder / BEST, best["weights"])
        write_json(place.folder / FITTED, asdict(fitted))
        (place.folder / CHECKPOINT).unlink(missing_ok=True)
    return fitted


def _rank_before_training(classifier: Classifier, val: Examples, accelerator: str) -> tuple[float, float]:
    """Accuracy and minus the loss of the network on validation images before training, to be compared with epochs."""
    logits = torch.from_numpy(logits_of(classifier, val.pixels, val.rows, accelerator))
    labels = torch.from_numpy(val.labels)
    top1 = (logits.argmax(1) == labels).float().mean()
    loss = torch.nn.functional.cross_entropy(logits, labels)
    return float(top1), -float(loss)


def _load_fitted(folder: Path, module: nn.Module) -> Fitted | None:
    """Load the best weights of a finished training in this folder into `module`, and return its results.

    Returns None if no training was finished there. Files that are damaged, or hold another network, are removed with a
    warning, and None is returned, so that the caller trains again.
    """
    if not (folder / FITTED).exists():  # it is written after the weights
        return None

    try:
        fitted = Fitted(**read_object(folder / FITTED))
        check_header(folder / BEST)  # raises for a file that was cut off
        weights = load_file(folder / BEST)
        if _shapes(weights) != _shapes(module.state_dict()):
            raise DamagedFile(folder / BEST, "holds another network")
    except (DamagedFile, SafetensorError, OSError, TypeError) as error:
        _discard(error, folder / FITTED, folder / BEST)
        return None

    module.load_state_dict(weights)
    return fitted


def _usable_checkpoint(folder: Path, training: Training) -> Path | None:
    """The checkpoint in a folder that this training can go on from; None if there is none.

    A checkpoint that is damaged, or of another run or network, is removed with a warning.
    """
    path = folder / CHECKPOINT
    if not path.exists():
        return None

    try:
        with opened(path) as file:
            checkpoint = torch.load(file, map_location="cpu", weights_only=True)
        # The folder is named by its run. Older checkpoints name no run: they are taken as of this run.
        run_id = checkpoint["callbacks"]["Keeper"].get("run", folder.name)
        if run_id != folder.name or _shapes(checkpoint["state_dict"]) != _shapes(training.state_dict()):
            raise DamagedFile(path, f"is of another training, {run_id}")
    except Exception as error:  # damaged files make unpickling raise errors of any kind
        _discard(error, path)
        return None
    return path


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """The shape of each weight and buffer by its name: two states of one network have the same shapes."""
    return {name: tuple(value.shape) for name, value in state.items()}


def _discard(error: Exception, *paths: Path) -> None:
    """Warn that a training cannot go on from these files, and remove them.

    error: what is wrong with them.
    """
    reason = str(error) if isinstance(error, DamagedFile) else f"{paths[-1]} cannot be read ({error})"
    first_line, _, _ = reason.partition("\n")
    log.warning("the training begins anew: %.300s", first_line)
    for path in paths:
        remove(path)


def _lightning_trainer(
    recipe: Recipe, place: TrainingPlace, process: TrainingProcess, keeper: Keeper, steps: int
) -> pl.Trainer:
    """Lightning's Trainer for one process of a training, with the options of the configuration (place.trainer).

    keeper: the callback that writes the checkpoints and keeps the best epoch.
    steps:  number of steps in an epoch. Metrics of steps are logged at least once in each epoch.
    """
    options: dict[str, Any] = {
        "enable_model_summary": False,
        "log_every_n_steps": 10,
        "callbacks": [],
        "logger": [],
    }
    if place.trainer:
        options.update(place.trainer.arguments(place.folder))
    options["log_every_n_steps"] = min(options["log_every_n_steps"], steps)

    callbacks: list[pl.Callback] = [keeper, *options.pop("callbacks")]
    if place.progress:
        callbacks.append(pl.callbacks.RichProgressBar(leave=False))

    loggers = options.pop("logger")
    if place.logger:
        loggers = [place.logger, *loggers]

    return pl.Trainer(
        **process.trainer_options(place.strategy),
        # The other precisions are set elsewhere: bf16-true by `Training`, tf32 by `_tf32_if_asked`.
        precision=recipe.precision if recipe.precision.endswith("mixed") else "32-true",  # type: ignore[arg-type]
        max_epochs=recipe.epochs,
        gradient_clip_val=recipe.grad_clip or None,  # None: no clipping
        logger=loggers or False,
        callbacks=callbacks,
        # LightningEnvironment: Lightning starts no processes, even if it detects a cluster, since submitit or `launch`
        # has started this one already.
        plugins=[AtomicCheckpointIO(), LightningEnvironment()],
        default_root_dir=place.folder,
        enable_checkpointing=False,  # `keeper` writes them
        enable_progress_bar=place.progress,
        num_sanity_val_steps=0,  # no trial validation before the first epoch
        **options,
    )


def _should_compile(setting: str, device: torch.device, pixels: int) -> bool:
    """Whether to compile the network with torch.compile.

    setting: true, false or auto. auto compiles on CUDA if the training is so long that faster steps make up for the
             minutes of compiling.
    pixels:  length of the training: the number of pixels in the images of all its steps.
    """
    if setting == "auto":
        return device.type == "cuda" and pixels >= COMPILED_FROM
    return setting == "true"


@contextmanager
def _tf32_if_asked(precision: str) -> Iterator[None]:
    """Let GPUs use TF32 in matrix products and convolutions in the body of `with`, if the precision is tf32.

    torch's own settings are restored afterwards.
    """
    previous_precision = torch.get_float32_matmul_precision()
    previous_cudnn = torch.backends.cudnn.allow_tf32
    if precision == "tf32":
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous_precision)
        torch.backends.cudnn.allow_tf32 = previous_cudnn


@contextmanager
def _without_lightning_notes() -> Iterator[None]:
    """Mute Lightning in the body of `with`: its notes on devices, its tips, and its reasons to stop.

    Warnings that match a pattern of _IGNORED_WARNINGS are muted as well, since they need no action of the user.
    """
    notes = logging.getLogger("pytorch_lightning.utilities.rank_zero")  # the logger of all these notes
    previous_level = notes.level
    notes.setLevel(logging.WARNING)  # warnings still come through
    try:
        with warnings.catch_warnings():
            for message in _IGNORED_WARNINGS:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        notes.setLevel(previous_level)
