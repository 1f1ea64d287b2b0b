"""The running average of the weights, and cutmix."""

from contextlib import suppress

import torch
from safetensors.torch import load_file

from fca.training.loop import Place, Training, fit
from tests.training.tiny import classifier, examples, recipe


def test_the_average_is_what_is_kept_and_follows_its_equation(tmp_path, monkeypatch):
    path = []
    after = Training.follow

    def watched(self):
        path.append({k: v.clone() for k, v in self.network.state_dict().items()})
        after(self)

    monkeypatch.setattr(Training, "follow", watched)
    asked = recipe(ema=0.5, snapshots=[1.0])
    fit(classifier(), examples(48), examples(12, seed=1), asked, 0, Place(tmp_path))
    expected = path[0]  # the first step is where the average begins
    for weights in path[1:]:
        expected = {k: 0.5 * v + 0.5 * weights[k] for k, v in expected.items()}
    kept = load_file(tmp_path / "snapshot-1.00.safetensors")
    assert kept.keys() == expected.keys()
    for key, value in kept.items():
        if value.is_floating_point():  # not the number of batches that a batch norm has seen
            torch.testing.assert_close(value, expected[key], rtol=1e-5, atol=1e-6)  # float32, nine steps


def test_an_interrupted_average_goes_on_as_if_it_had_not_been(tmp_path, monkeypatch):
    asked = recipe(ema=0.9, cutmix=1.0, mixup=0.4)
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    fit(classifier(), examples(48), examples(12, seed=1), asked, 0, Place(whole))
    start = Training.on_train_epoch_start

    def stops(self):
        if self.current_epoch == 2:
            raise KeyboardInterrupt
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "on_train_epoch_start", stops)
        with suppress(KeyboardInterrupt, SystemExit):
            fit(classifier(), examples(48), examples(12, seed=1), asked, 0, Place(cut))
    assert not (cut / "fitted.json").exists()
    fit(classifier(), examples(48), examples(12, seed=1), asked, 0, Place(cut))
    one, other = load_file(whole / "best.safetensors"), load_file(cut / "best.safetensors")
    assert all(torch.equal(one[key], other[key]) for key in one)
