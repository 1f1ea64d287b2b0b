"""When a training leaves a checkpoint, what is in it, and what can be seen of it while it works."""

import json

import pytest
import torch

from fca.training import loop, stop
from fca.training.loop import TrainingPlace, fit
from tests.support.tiny import classifier, examples, recipe

EPOCHS = 6


def train(folder, checkpoint_s=300.0, **changes):
    place = TrainingPlace(folder, accelerator="cpu", checkpoint_s=checkpoint_s)
    return fit(classifier(), examples(48), examples(24, seed=1), recipe(epochs=EPOCHS, **changes), 0, place)


def each_step(monkeypatch, call):
    """Have a function called before the end of every step, with how many were done."""
    original = loop.Keeper.on_train_batch_end

    def watched(self, trainer, *rest):
        call(trainer.global_step)
        original(self, trainer, *rest)

    monkeypatch.setattr(loop.Keeper, "on_train_batch_end", watched)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until a test sets it."""
    now = [1000.0]
    monkeypatch.setattr(loop.time, "perf_counter", lambda: now[0])
    return now


@pytest.fixture
def requested():
    yield stop.requested
    stop.requested.clear()


def written(monkeypatch):
    """The epochs after which checkpoints are written, as the training goes."""
    epochs, original = [], loop.AtomicCheckpointIO.save_checkpoint

    def save(self, checkpoint, path, storage_options=None):
        epochs.append(len(checkpoint["callbacks"]["Keeper"]["history"]))
        original(self, checkpoint, path, storage_options)

    monkeypatch.setattr(loop.AtomicCheckpointIO, "save_checkpoint", save)
    return epochs


@pytest.mark.parametrize(
    ("checkpoint_s", "epochs"),
    [(0.0, [1, 2, 3, 4, 5]), (30.0, [1, 2, 3, 4, 5]), (31.0, [2, 4]), (90.0, [3]), (151.0, [])],
)
def test_checkpoints_are_so_many_seconds_apart_and_none_is_of_the_last_epoch(
    tmp_path, monkeypatch, clock, checkpoint_s, epochs
):
    def step(_):
        clock[0] += 10.0  # 3 steps an epoch

    each_step(monkeypatch, step)
    found = written(monkeypatch)
    fitted = train(tmp_path, checkpoint_s)
    assert found == epochs
    assert fitted.train_s == pytest.approx(10 * 3 * EPOCHS)
    assert not (tmp_path / "last.ckpt").exists()


def test_a_requested_stop_leaves_a_checkpoint_from_which_the_same_bits_come(tmp_path, requested, monkeypatch):
    whole = train(tmp_path / "whole")
    saved = written(monkeypatch)
    each_step(monkeypatch, lambda step: requested.set() if step == 7 else None)
    with pytest.raises(stop.Preempted, match=r"stopped after epoch 3 of 6"):
        train(tmp_path / "cut")
    assert saved == [3]
    assert not (tmp_path / "cut" / "best.safetensors").exists()
    requested.clear()
    again = train(tmp_path / "cut")
    assert (again.history, again.best_epoch) == (whole.history, whole.best_epoch)
    best = [(tmp_path / run / "best.safetensors").read_bytes() for run in ("whole", "cut")]
    assert best[0] == best[1]


def test_a_stop_that_is_requested_in_the_last_epoch_stops_nothing(tmp_path, requested, monkeypatch):
    each_step(monkeypatch, lambda step: requested.set() if step == 16 else None)
    train(tmp_path)
    assert (tmp_path / "best.safetensors").exists()


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_a_checkpoint_has_the_best_weights_once(tmp_path, requested, monkeypatch, ema):
    """They are those of its own epoch, or stand beside them."""
    requested.set()
    held = []
    with pytest.raises(stop.Preempted):
        train(tmp_path, ema=ema)
    first = torch.load(tmp_path / "last.ckpt", weights_only=True)["callbacks"]["Keeper"]["best"]
    assert first["epoch"] == 1
    assert first["weights"] is None
    requested.clear()

    original = loop.Keeper.on_train_epoch_end

    def poor_from_now_on(self, trainer, module):
        held.append(loop.weights_of(module.evaluated))
        module.figures["val_top1"] = -1.0
        requested.set()
        original(self, trainer, module)

    monkeypatch.setattr(loop.Keeper, "on_train_epoch_end", poor_from_now_on)
    with pytest.raises(stop.Preempted):
        train(tmp_path, ema=ema)
    second = torch.load(tmp_path / "last.ckpt", weights_only=True)
    best = second["callbacks"]["Keeper"]["best"]
    assert best["epoch"] == 1
    assert any(not torch.equal(best["weights"][name], held[0][name]) for name in held[0])


def test_a_training_shows_how_far_it_is_and_removes_that_at_its_end(tmp_path, monkeypatch, clock):
    seen = []

    def step(at):
        clock[0] += 3.0
        if (tmp_path / "progress.json").exists():
            seen.append(json.loads((tmp_path / "progress.json").read_text()))

    each_step(monkeypatch, step)
    train(tmp_path)
    # 3 steps of 16 images an epoch; at least 5 s between two writings: after every second step, from the second on
    assert seen[0] == {"epoch": 1, "epochs": 6, "images_per_s": 32 / 6, "left_s": 48.0, "device": "cpu"}
    assert [one["epoch"] for one in seen[::2]][:4] == [1, 2, 2, 3]
    assert not (tmp_path / "progress.json").exists()


def test_the_progress_names_the_gpu_as_the_machine_counts_it(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    assert loop._machine_wide_name(torch.device("cuda", 1)) == "cuda:5"
    assert loop._machine_wide_name(torch.device("cuda")) == "cuda:3"
    assert loop._machine_wide_name(torch.device("cpu")) == "cpu"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert loop._machine_wide_name(torch.device("cuda", 1)) == "cuda:1"
