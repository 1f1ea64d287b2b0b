import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_lightning.loggers.logger import DummyLogger
from safetensors.torch import load_file

from tests.training.victim import train

ROOT = Path(__file__).parents[2]


def killed(folder, step):
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # equal sums need equal threads
    command = [sys.executable, "-m", "tests.training.victim", str(folder), str(step)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


@pytest.mark.slow
def test_a_training_that_was_killed_goes_on_after_its_last_epoch_to_the_same_bits(tmp_path, caplog):
    whole = train(tmp_path / "whole")
    assert killed(tmp_path / "killed", 20) == -signal.SIGKILL  # the third epoch is steps 16 to 23
    left = {path.name for path in (tmp_path / "killed").iterdir()}
    assert "last.ckpt" in left
    assert not {"best.safetensors", "fitted.json"} & left
    with caplog.at_level("INFO", logger="fca"):
        resumed = train(tmp_path / "killed")
    told = [record.message.split(":")[0] for record in caplog.records]
    assert told == ["go on after epoch 2", "epoch 3", "epoch 4"]
    assert resumed.history == whole.history
    assert resumed.best_epoch == whole.best_epoch
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in (tmp_path / "killed").iterdir()} == files
    for file in files - {"fitted.json"}:  # which says how long it took
        a, b = (load_file(tmp_path / run / file) for run in ("whole", "killed"))
        assert all(torch.equal(a[name], b[name]) for name in a), file


class Interrupted(DummyLogger):
    """What arrives while a step is at work: a signal, or the exception that the command line makes of it."""

    def __init__(self, what):
        super().__init__()
        self.what = what

    def log_metrics(self, metrics, step=None):
        if isinstance(self.what, int):
            signal.raise_signal(self.what)
        else:
            raise self.what


@pytest.mark.parametrize("what", [SystemExit(143), KeyboardInterrupt(), signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_training_is_never_taken_for_a_finished_one(what, tmp_path):
    with pytest.raises(SystemExit):
        train(tmp_path, Interrupted(what))
    assert not list(tmp_path.glob("*.json"))
    assert not (tmp_path / "best.safetensors").exists()
