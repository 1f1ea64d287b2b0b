import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_lightning.loggers.logger import DummyLogger
from safetensors.torch import load_file

from tests.support.victim import Kills, train

ROOT = Path(__file__).parents[2]


def killed(folder, step):
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads())}  # equal sums need equal threads
    command = [sys.executable, "-m", "tests.support.victim", str(folder), str(step)]
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


class Stops(Kills):
    """An error instead, which leaves what a kill leaves."""

    def log_metrics(self, metrics, step=None):
        if "train/loss_step" in metrics and step >= self.step:
            raise RuntimeError("stopped")


def of_another_training(content):
    found = torch.load(io.BytesIO(content), weights_only=True)
    found["callbacks"]["Keeper"]["run"] = "0123456789ab"
    file = io.BytesIO()
    torch.save(found, file)
    return file.getvalue()


def of_another_network(content):
    found = torch.load(io.BytesIO(content), weights_only=True)
    found["state_dict"] = {"network.weight": torch.zeros(3)}
    file = io.BytesIO()
    torch.save(found, file)
    return file.getvalue()


@pytest.mark.wide
@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        of_another_training,
        pytest.param(of_another_network, marks=pytest.mark.slow),
        pytest.param(lambda content: b"", marks=pytest.mark.slow),
        pytest.param(lambda content: b"nonsense", marks=pytest.mark.slow),
    ],
    ids=["cut", "another training's", "another network's", "empty", "text"],
)
def test_from_an_unreadable_checkpoint_a_training_begins_anew_with_a_warning(tmp_path, caplog, damage):
    whole = train(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="stopped"):
        train(tmp_path / "stopped", Stops(20))
    path = tmp_path / "stopped" / "last.ckpt"
    path.write_bytes(damage(path.read_bytes()))
    again = train(tmp_path / "stopped")
    assert again.history == whole.history
    [warning] = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning.startswith(f"the training begins anew: {path} ")
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("best.safetensors", None), ("fitted.json", b"{")]
    + [
        pytest.param(name, content, marks=pytest.mark.slow)
        for name in ("best.safetensors", "fitted.json")
        for content in (b"", b"nonsense", b"[]", b'{"best_epoch": 1}')
    ],
)
def test_a_training_whose_result_cannot_be_read_is_done_anew(tmp_path, name, content):
    whole = train(tmp_path / "run")
    path = tmp_path / "run" / name
    before = (tmp_path / "run" / "best.safetensors").read_bytes()
    path.unlink() if content is None else path.write_bytes(content)
    again = train(tmp_path / "run")
    assert again.history == whole.history
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == before


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
