"""Several devices for one training; on a CPU they are processes over gloo."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from pytorch_lightning.loggers.logger import DummyLogger
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy

from fca.training import devices, stop
from fca.training.batches import Batches, as_input
from fca.training.devices import check_devices, devices_name, devices_of
from fca.training.loop import TrainingPlace, fit
from fca.types import FcaError, UnreadableImage
from tests.support.several_devices import bare, train
from tests.support.tiny import classifier, examples, recipe

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100")


@pytest.mark.parametrize("wrong", [0, -1, "x", "2", True, 1.5, None, [], [0, 0], [-1], ["0"], [True]])
def test_what_no_machine_has_is_refused_by_its_value(wrong):
    with pytest.raises(FcaError) as caught:
        check_devices(wrong)
    assert caught.value.args[:2] == ("machine.devices", str(wrong))


def test_a_command_with_wrong_devices_ends_before_it_begins(fca):
    code, _, err = fca("machine.devices=x", "logger=none")
    assert (code, "machine.devices = x; allowed: a number from 1" in err) == (2, True)
    assert not Path("outputs/runs").exists()


def test_devices_are_those_that_are_there(gpus):
    assert [device.index for device in devices_of("auto", "auto")] == [0, 1, 2, 3]
    assert [device.index for device in devices_of("gpu", [0, 2], "fsdp")] == [0, 2]
    assert [str(device) for device in devices_of("auto", 1)] == ["cuda:0"]
    assert devices_of("cpu", "auto") == [CPU]
    assert devices_name("auto", [0, 2]) == "2 x NVIDIA H100"
    assert devices_name("auto", 1) == "NVIDIA H100"


@pytest.mark.parametrize(
    ("accelerator", "number", "allowed"),
    [
        ("auto", 5, "GPUs from 0 to 3"),
        ("auto", [1, 4], "GPUs from 0 to 3"),
        ("cpu", 10_000, "a number up to"),
        ("cpu", [0], "a number up to"),
    ],
)
def test_devices_that_are_not_there_are_refused(gpus, accelerator, number, allowed):
    with pytest.raises(FcaError, match=allowed) as caught:
        devices_of(accelerator, number)
    assert caught.value.args[:2] == ("machine.devices", str(number))


def test_weights_are_not_sharded_on_a_cpu():
    with pytest.raises(FcaError, match=r"machine\.strategy = fsdp; allowed: auto or ddp on cpu"):
        devices_of("cpu", 2, "fsdp")


def test_more_devices_than_images_in_a_batch_are_refused(tmp_path, gpus):
    with pytest.raises(FcaError, match=r"machine\.devices = 4; allowed: up to 2, a batch of train images"):
        fit(bare(), examples(5), examples(30), recipe(batch_size=3), 0, TrainingPlace(tmp_path, devices=4))


@pytest.mark.parametrize("world", [2, 3])
def test_the_mean_of_all_processes_gradients_is_that_of_the_whole_batch(world):
    built, data = bare(), examples(61)  # 4 batches of 15 or 16, in parts of 5 to 8

    def gradients(rank, world):
        for batch in Batches(data, 16, CPU, 0, None, False, rank, world):
            loss = cross_entropy(built.module(built.normalise(as_input(batch.images))), batch.labels) * batch.share
            yield torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(built.module.parameters()))])

    parts = [torch.stack(list(gradients(rank, world))) for rank in range(world)]
    whole = torch.stack(list(gradients(0, 1)))
    torch.testing.assert_close(sum(parts) / world, whole, atol=1e-5, rtol=0)  # float32, sums in another order


def test_memory_maps_travel_as_names_of_files(tmp_path):
    values = np.arange(10_000, dtype=np.int64).reshape(100, 100)
    np.save(tmp_path / "a.npy", values)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    sent = devices._pickled_with_maps_by_name((mapped, lambda: mapped[1:], mapped[1:]))
    again, part, copied = pickle.loads(sent)
    assert len(sent) < 85_000  # of 80,000 bytes; the function holds the map again
    assert type(again) is np.memmap
    np.testing.assert_array_equal(again, values)
    for each in (part(), copied):
        np.testing.assert_array_equal(each, values[1:])


class Listed(DummyLogger):
    def __init__(self):
        super().__init__()
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, metrics))


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path, caplog):
    busy = {"ema": 0.9, "grad_clip": 0.5, "flip": True, "shift": 0.125, "scale_min": 0.5, "snapshots": [0.5]}
    busy |= {"accumulate": 2, "passes": 2}
    loggers = Listed(), Listed()
    with caplog.at_level("INFO", logger="fca"):
        fits = [train(tmp_path / str(i + 1), i + 1, changes=busy, logger=loggers[i]) for i in (0, 1)]
    (one, first), (two, second) = fits
    # Same order and draws: only the order of float32 sums differs.
    assert [line["val_top1"] for line in first.history] == [line["val_top1"] for line in second.history]
    for name in ("train_loss", "val_loss", "lr"):
        assert [each[name] for each in second.history] == pytest.approx(
            [each[name] for each in first.history], abs=1e-5
        )
    for file in ("best.safetensors", "snapshot-0.50.safetensors"):
        a, b = (load_file(tmp_path / number / file) for number in "12")
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)
    torch.testing.assert_close(two.module.state_dict(), one.module.state_dict(), atol=1e-5, rtol=0)
    assert {path.name for path in (tmp_path / "1").iterdir()} == {path.name for path in (tmp_path / "2").iterdir()}
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("fca")]
    assert messages[:3] == messages[3:]
    assert [step for step, _ in loggers[0].lines] == [step for step, _ in loggers[1].lines]


@pytest.mark.slow
def test_the_row_of_two_processes_is_that_of_one(fca, start, tmp_path):
    words = ["model=test_vit", "model.input_size=32", "subset.ncl=3", "limit=40", "recipe.epochs=2", "logger=none"]
    words += ["recipe.min_steps=0", "machine.accelerator=cpu"]
    process = start("run", *words, "machine.devices=2", "outputs=o2", cwd=tmp_path)
    assert fca(*words, "outputs=o1")[0] == 0
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    rows, weights = [], []
    for outputs in ("o1", "o2"):
        [path] = [p for p in Path(outputs).glob("runs/*/row.json") if json.loads(p.read_text())["task"] == "train"]
        rows.append(json.loads(path.read_text()))
        weights.append(load_file(path.with_name("best.safetensors")))
        assert "epoch 2: train_loss" in path.with_name("log.txt").read_text()
    one, two = rows
    assert two["device"].startswith("2 x ")
    for name in ("run_id", "val_top1", "top1", "best_epoch", "n_train", "flag"):
        assert two.get(name) == one.get(name), name
    torch.testing.assert_close(*weights, atol=1e-4, rtol=0)  # steps of Adam: 10 of 2e-3, from sums in another order


def second(then):
    """What the network of the second process does with its images, from the sixth batch on."""
    calls = iter(range(10_000))
    usual = classifier().normalise
    return lambda x: then(x) if os.environ.get("LOCAL_RANK") == "1" and next(calls) > 5 else usual(x)


def unreadable(_):
    raise UnreadableImage("a.png is no image")


def refused(_):
    raise FcaError("images", 3, "more", "get some")


def killed(_):
    os.kill(os.getpid(), signal.SIGKILL)


def children():
    return psutil.Process().children()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("then", "error"),
    [
        (unreadable, UnreadableImage("a.png is no image")),
        (refused, FcaError("images", 3, "more", "get some")),
    ],
)
def test_an_error_in_one_process_ends_all_and_is_raised(tmp_path, then, error):
    before = children()
    with pytest.raises(type(error)) as caught:
        train(tmp_path, 2, replace(bare(), normalise=second(then)))
    assert caught.value.args == error.args
    assert "in process 1 of the training" in caught.value.__notes__[0]
    assert children() == before
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt"}


@pytest.mark.slow
def test_all_processes_see_that_one_diverged(tmp_path):
    built, fitted = train(tmp_path, 2, replace(bare(), normalise=second(lambda x: x * torch.nan)))
    assert (fitted.diverged, fitted.epochs_run, fitted.best_epoch) == (True, 1, 1)
    assert all(value.isfinite().all() for value in built.module.state_dict().values())


@pytest.mark.slow
def test_a_training_whose_process_died_goes_on_with_another_number_of_them(tmp_path):
    _, whole = train(tmp_path / "whole", 1)
    before = children()
    with pytest.raises(RuntimeError, match=r"process of the training died: exit code -9|Connection"):
        train(tmp_path / "died", 2, replace(bare(), normalise=second(killed)))
    assert children() == before
    assert {path.name for path in (tmp_path / "died").iterdir()} == {"last.ckpt"}
    _, resumed = train(tmp_path / "died", 1)
    assert [line["val_top1"] for line in resumed.history] == [line["val_top1"] for line in whole.history]
    a, b = (load_file(tmp_path / run / "best.safetensors") for run in ("whole", "died"))
    torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


class Stops(DummyLogger):
    def log_metrics(self, metrics, step=None):
        stop.requested.set()


def slow(x):
    time.sleep(0.5)
    return x


@pytest.mark.slow
def test_all_processes_stop_when_this_one_is_asked_to(tmp_path):
    try:
        with pytest.raises(stop.Preempted):
            train(tmp_path, 2, replace(bare(), normalise=slow), {"epochs": 50}, logger=Stops())
    finally:
        stop.requested.clear()
    assert {path.name for path in tmp_path.iterdir()} == {"last.ckpt"}


SLEEPER = """
import time
from dataclasses import replace
from pathlib import Path
import fca.training.loop
from tests.support.several_devices import bare, train
train(Path({folder!r}), 2, replace(bare(), normalise=lambda x: time.sleep(0.5) or x), {{"epochs": 50}})
"""


@pytest.mark.slow
def test_the_processes_of_a_killed_training_end_and_its_script_needs_no_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SLEEPER.format(folder=str(tmp_path / "run")))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    parent = subprocess.Popen([sys.executable, script], env=environment)
    end = time.monotonic() + 120
    while not (tmp_path / "run" / "last.ckpt").exists():
        assert parent.poll() is None
        assert time.monotonic() < end
        time.sleep(0.1)
    team = psutil.Process(parent.pid).children()
    assert len(team) == 2
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(team, timeout=10)
    assert not alive
