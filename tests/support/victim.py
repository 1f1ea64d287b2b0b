"""A training that takes its own process down. `python -m tests.support.victim <folder> <step>`"""

import os
import signal
import sys
from pathlib import Path

from fca.torchvision_ops import declare_torchvision_ops

declare_torchvision_ops()
from pytorch_lightning.loggers.logger import DummyLogger  # noqa: E402

from fca.training.loop import TrainingPlace, fit  # noqa: E402
from tests.support.tiny import classifier, examples, recipe  # noqa: E402

SNAPSHOTS = [0.01, 0.02, 0.1, 0.3, 0.5, 0.7, 1.0]  # the first two after one step
BUSY = {"epochs": 4, "mixup": 0.2, "flip": True, "shift": 0.125, "snapshots": SNAPSHOTS, "batch_size": 8}


class Kills(DummyLogger):
    """Unhandled and uncatchable, when it is told the loss of a step."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def log_metrics(self, metrics, step=None):
        if "train/loss_step" in metrics and step >= self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def train(folder, logger=False):
    place = TrainingPlace(Path(folder), accelerator="cpu", checkpoint_s=0.0, logger=logger)
    return fit(classifier(), examples(60), examples(30, seed=1), recipe(**BUSY), 0, place)


if __name__ == "__main__":
    train(sys.argv[1], Kills(int(sys.argv[2])))
