"""What stays of a training: the checkpoint to go on from, asked snapshots, the best epoch's weights, the figures."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from fca.store.files import write_whole
from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.plugins import TorchCheckpointIO  # noqa: E402

from fca.training.module import Diverged, Training  # noqa: E402
from fca.training.recipe import snapshot_file  # noqa: E402

CHECKPOINT = "last.ckpt"
log = logging.getLogger(__name__)


class WholeFiles(TorchCheckpointIO):
    """Lightning's checkpoints, but never half of one after a kill."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write beside, then rename."""
        write_whole(Path(path), lambda file: torch.save(checkpoint, file))


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.detach().cpu().clone().contiguous() for name, value in module.state_dict().items()}


def save_weights(path: Path, weights: dict[str, Tensor]) -> None:
    """One whole .safetensors file."""
    write_whole(path, lambda file: file.write(save(weights)))


class Keeper(pl.Callback):
    """Keeps, in memory and inside every checkpoint, the best epoch so far; writes snapshots as they come.

    The best epoch has the highest val_top1; among equal ones, the lowest val_loss; then the first. Epoch 0 = the
    weights that training began with, kept when not one epoch ended with finite losses.
    """

    def __init__(self, folder: Path, snapshots: dict[int, list[float]], network: nn.Module) -> None:
        self.folder, self.snapshots = folder, snapshots
        self.history: list[dict[str, float]] = []
        self.best: dict[str, Any] = {"epoch": 0, "rank": [-math.inf, -math.inf], "weights": weights_of(network)}
        self.seconds, self.begun = 0.0, time.perf_counter()

    def state_dict(self) -> dict[str, Any]:
        """What a resumed training needs to know of the epochs before it."""
        return {"history": self.history, "best": self.best, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what an interrupted training left."""
        self.history, self.best, self.seconds = (state_dict[name] for name in ("history", "best", "seconds"))
        log.info("go on after epoch %d", len(self.history))

    def on_train_batch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule, *_: Any) -> None:
        """Let the average follow, then write the snapshots of this step."""
        assert isinstance(pl_module, Training)
        pl_module.follow()
        for fraction in self.snapshots.get(trainer.global_step, ()):
            pl_module.look()
            save_weights(self.folder / snapshot_file(fraction), weights_of(pl_module.answering))

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the epoch with the best one, then write the checkpoint."""
        assert isinstance(pl_module, Training)
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
            self.best = {"epoch": epoch, "rank": rank, "weights": weights_of(pl_module.answering)}
        if epoch < pl_module.recipe.epochs:
            trainer.save_checkpoint(self.folder / CHECKPOINT, weights_only=False)
