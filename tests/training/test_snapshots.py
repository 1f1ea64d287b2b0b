"""Snapshots on the way: which steps they are of, also when steps are few and when a training is interrupted."""

import math
from fractions import Fraction

import pytest
import torch
from safetensors.torch import load_file

from fca.training.loop import Keeper, TrainingPlace, fit, weights_of
from tests.support.tiny import classifier, examples, recipe

SHARES = ["0.01", "0.1", "0.3", "0.5", "0.7"]  # of all steps, as Sharma et al. (2023, appendix C) keep them
FILES = {share: f"snapshot-{float(share):.2f}.safetensors" for share in SHARES}


class Interrupted(Exception):
    pass


def train(folder, **changes):
    asked = recipe(snapshots=[float(share) for share in SHARES], **changes)
    return fit(
        classifier(),
        examples(64),
        examples(12, seed=1),
        asked,
        0,
        TrainingPlace(folder, accelerator="cpu", checkpoint_s=0.0),
    )


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def due(share, steps):
    """ceil(share * steps) of the decimal number itself, not of the nearest float."""
    return math.ceil(Fraction(share) * steps)


@pytest.fixture
def weights_after(monkeypatch):
    """Step -> the weights then, as the trainings of this test go."""
    seen = {}
    original = Keeper.on_train_batch_end

    def watched(self, trainer, pl_module, *rest):
        seen[trainer.global_step] = weights_of(pl_module.network)
        original(self, trainer, pl_module, *rest)

    monkeypatch.setattr(Keeper, "on_train_batch_end", watched)
    return seen


def test_the_step_of_a_share_is_exact_for_any_number_of_steps():
    asked = recipe(snapshots=[float(share) for share in SHARES])
    for steps in [*range(1, 1001), 156_300, 1_000_000]:
        kept = {fraction: step for step, fractions in asked.snapshot_steps(steps).items() for fraction in fractions}
        assert kept == {float(share): due(share, steps) for share in SHARES}


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"epochs": 5, "batch_size": 64}, [1, 1, 2, 3, 4]),  # one step an epoch: 1 and 10 % fall on the first
        ({"epochs": 1, "batch_size": 32}, [1, 1, 1, 1, 2]),
        ({"epochs": 4, "batch_size": 8}, [1, 4, 10, 16, 23]),
        ({"epochs": 1, "batch_size": 64, "warmup_epochs": 0.0}, [1, 1, 1, 1, 1]),
    ],
)
def test_every_share_has_a_file_with_the_weights_after_its_step(tmp_path, weights_after, changes, steps):
    train(tmp_path, **changes)
    assert [due(share, len(weights_after)) for share in SHARES] == steps
    assert {path.name for path in tmp_path.glob("snapshot-*")} == set(FILES.values())
    for share, step in zip(SHARES, steps, strict=True):
        assert same(load_file(tmp_path / FILES[share]), weights_after[step])


def test_keeping_snapshots_changes_nothing_in_training(tmp_path, weights_after):
    train(tmp_path / "with", epochs=2)
    with_them = dict(weights_after)
    place = TrainingPlace(tmp_path / "without", accelerator="cpu")
    fit(classifier(), examples(64), examples(12, seed=1), recipe(epochs=2), 0, place)
    assert with_them.keys() == weights_after.keys()
    assert all(same(with_them[step], weights_after[step]) for step in with_them)


@pytest.mark.wide
@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("step", [2, 9, 13, 16])  # of 16 in 2 epochs: in the first; in the second before and after 70 %
def test_an_interrupted_training_leaves_the_snapshots_of_an_uninterrupted_one(tmp_path, monkeypatch, step, ema):
    asked = {"epochs": 2, "batch_size": 8, "ema": ema, "mixup": 0.2}
    train(tmp_path / "whole", **asked)
    original = Keeper.on_train_batch_end

    def stops(self, trainer, pl_module, *rest):
        original(self, trainer, pl_module, *rest)
        if trainer.global_step == step:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_batch_end", stops)
        with pytest.raises(Interrupted):
            train(tmp_path / "cut", **asked)
    left = {path.name for path in (tmp_path / "cut").glob("snapshot-*")}
    assert left == {FILES[share] for share in SHARES if due(share, 16) <= step}
    train(tmp_path / "cut", **asked)
    for name in FILES.values():
        assert same(load_file(tmp_path / "whole" / name), load_file(tmp_path / "cut" / name)), name


def test_a_snapshot_of_a_finished_epoch_is_not_written_again_after_an_interruption(tmp_path, monkeypatch):
    asked = {"epochs": 2, "batch_size": 8}

    def stops(self, *_):
        if self.history:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(Keeper, "on_train_epoch_start", stops)
        with pytest.raises(Interrupted):
            train(tmp_path, **asked)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("snapshot-*")}
    assert set(before) == {FILES[share] for share in ("0.01", "0.1", "0.3", "0.5")}  # steps 1, 2, 5 and 8 of 16
    train(tmp_path, **asked)
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in before} == before
    assert (tmp_path / FILES["0.7"]).is_file()
