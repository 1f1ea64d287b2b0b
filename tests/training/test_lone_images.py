"""No image goes through batch norm alone: it has no variance there, and torch refuses it."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from fca.training.batches import Batches, count_batches
from fca.training.loop import TrainingPlace, fit
from fca.training.module import smallest_forward
from fca.types import Classifier, FcaError
from tests.support.numbered_images import CPU, numbered
from tests.support.tiny import Square, classifier, examples, recipe


def pooled(norm, ncl=3):
    """A network whose norm comes behind its pooling, where an image has one value a channel."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 6, 3), nn.AdaptiveAvgPool2d(1), norm(6), nn.Flatten())
    head = nn.Linear(6, ncl)
    keys = tuple(f"class{i}" for i in range(ncl))
    return Classifier(nn.Sequential(body, head), keys, Square(), lambda x: x, body, head)


def group_norm(channels):
    return nn.GroupNorm(1, channels)


@pytest.mark.parametrize(
    ("images", "size", "fewest", "sizes"),
    [
        (7, 2, 2, [3, 2, 2]),
        (7, 2, 1, [2, 2, 2, 1]),
        (9, 4, 2, [3, 3, 3]),
        (3, 2, 2, [3]),
        (5, 3, 4, [5]),
        (2, 1, 2, [2]),
    ],
)
def test_batches_are_never_smaller_than_the_fewest(images, size, fewest, sizes):
    loader = Batches(numbered(images), size, CPU, seed=0, min_images=fewest)
    assert [len(batch.labels) for batch in loader] == sizes
    assert len(loader) == count_batches(images, size, fewest) == len(sizes)
    shown = torch.cat([batch.images[:, 0, 0, 0] for batch in loader])
    assert sorted(shown.tolist()) == list(range(images))


@pytest.mark.parametrize(("changes", "images"), [({"batch_size": 2}, 7), ({"batch_size": 4, "accumulate": 4}, 8)])
def test_a_network_with_batch_norm_trains_on_odd_numbers_of_images(tmp_path, changes, images):
    """Before: ValueError, Expected more than 1 value per channel when training."""
    built = pooled(nn.BatchNorm2d)
    fitted = fit(
        built, examples(images), examples(4, seed=1), recipe(**changes), 0, TrainingPlace(tmp_path, accelerator="cpu")
    )
    assert (fitted.epochs_run, fitted.diverged) == (3, False)


@pytest.mark.parametrize("norm", [group_norm, nn.BatchNorm2d])
def test_how_many_images_a_network_needs_is_looked_up_without_a_trace(norm):
    built = pooled(norm)
    before = {name: value.clone() for name, value in built.module.state_dict().items()}
    state = torch.random.get_rng_state()
    assert smallest_forward(built) == (2 if norm is nn.BatchNorm2d else 1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in built.module.state_dict().items())
    assert built.module.training
    assert not any(module._forward_pre_hooks for module in built.module.modules())


def test_a_batch_norm_over_many_pixels_takes_a_lone_image_as_before(tmp_path):
    """Results of such trainings have ids that must not come to mean others."""
    assert smallest_forward(classifier()) == 1
    data = examples(7), examples(4, seed=1)
    fit(classifier(), *data, recipe(batch_size=2, snapshots=[0.25]), 0, TrainingPlace(tmp_path, accelerator="cpu"))
    shown = [len(batch.labels) for batch in Batches(data[0], 2, CPU, seed=0)]
    assert shown == [2, 2, 2, 1]
    assert load_file(tmp_path / "snapshot-0.25.safetensors")["0.1.num_batches_tracked"] == 3, "a quarter of 12 steps"


def test_a_single_training_image_is_refused(tmp_path):
    with pytest.raises(FcaError, match=r"train images = 1; allowed: at least 2"):
        fit(pooled(group_norm), examples(1), examples(4), recipe(), 0, TrainingPlace(tmp_path, accelerator="cpu"))


def test_processes_with_plain_batch_norm_get_two_images_each_or_are_refused(tmp_path):
    place = TrainingPlace(tmp_path, accelerator="cpu", devices=2)
    with pytest.raises(FcaError, match=r"machine.devices = 2; allowed: up to 1, a batch of train images"):
        fit(pooled(nn.BatchNorm2d), examples(7), examples(4), recipe(batch_size=3), 0, place)
    loader = Batches(numbered(9), 4, CPU, seed=0, rank=1, world=2, min_images=4)
    assert min(len(batch.labels) for batch in loader) == 2
    assert np.mean([batch.share for batch in loader]) <= 1
